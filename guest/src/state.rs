//! The documents of a state that is to be written, and how they compare with what is stored.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::document;
use crate::error::Error;
use crate::merge::merge;
use crate::rows::Content;

/// The documents of a state, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Documents {
    pub(crate) partial: Option<String>,
    pub(crate) completed: Option<String>,
}

impl Documents {
    pub(crate) fn check(partial: Option<String>, completed: Option<String>) -> Result<Self, Error> {
        Ok(Self {
            partial: document::check("partial", partial)?,
            completed: document::check("completed", completed)?,
        })
    }

    /// What is stored, where it was read whole.
    pub(crate) fn of(content: &Content) -> Result<Self, Error> {
        match content {
            Content::Documents { partial, completed } => Ok(Self {
                partial: partial.clone(),
                completed: completed.clone(),
            }),
            Content::Hashes { .. } => Ok(Self {
                partial: None,
                completed: None,
            }),
            Content::Corrupt(why) => Err(Error::Corrupt(why.clone())),
        }
    }

    pub(crate) fn size(&self) -> usize {
        [&self.partial, &self.completed]
            .into_iter()
            .flatten()
            .map(String::len)
            .sum()
    }

    /// Whether no bookmark is in any of them.
    pub(crate) fn is_empty(&self) -> bool {
        [&self.partial, &self.completed]
            .into_iter()
            .flatten()
            .all(|document| document::holds_nothing(document))
    }

    /// Whether they are what is stored. `key` is that of the hashes, so that nobody can make two documents alike.
    pub(crate) fn is_stored(&self, content: &Content, key: Option<(u64, u64)>) -> bool {
        match (content, key) {
            (Content::Documents { partial, completed }, _) => {
                *partial == self.partial && *completed == self.completed
            }
            (Content::Hashes { partial, completed }, Some(key)) => {
                let hash = |document: &Option<String>| hash(document.as_deref().unwrap_or(""), key);
                *partial == hash(&self.partial) && *completed == hash(&self.completed)
            }
            (Content::Hashes { .. }, None) | (Content::Corrupt(_), _) => false,
        }
    }
}

/// ClickHouse's `sipHash64Keyed`, as the bits of a signed number.
fn hash(text: &str, (first, second): (u64, u64)) -> i64 {
    let mut hasher = SipHasher24::new_with_keys(first, second);
    hasher.write(text.as_bytes());
    i64::from_le_bytes(hasher.finish().to_le_bytes())
}

/// The stored partial document with the members of another one.
pub(crate) fn merge_partial(
    stored: Option<&str>,
    new: Option<&str>,
) -> Result<Option<String>, Error> {
    let Some(new) = new else {
        return Ok(stored.map(str::to_owned));
    };
    let Some(stored) = stored else {
        return Ok(Some(new.to_owned()));
    };
    let merged = merge(stored, new).map_err(|mismatch| {
        Error::InvalidInput(format!(
            "the partial state can't be merged into the one that is stored: `{}` is an object in the new one and none \
             in the stored one; nothing was written",
            mismatch.path
        ))
    })?;
    let merged = merged.unwrap_or_else(|| stored.to_owned());
    document::check("merged partial", Some(merged))
}

pub(crate) fn refuse_to_empty(stored: &Documents) -> Result<(), Error> {
    match stored.is_empty() {
        true => Ok(()),
        false => Err(Error::InvalidInput(
            "the new state is empty and the stored one is not, and `refuse_empty` is on: nothing was written; delete the \
             state if it is to go"
                .to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(completed: &str) -> Documents {
        Documents {
            partial: None,
            completed: Some(completed.to_owned()),
        }
    }

    #[test]
    fn a_partial_document_is_merged_and_the_error_of_one_that_can_not_be_names_the_place() {
        let merged = merge_partial(Some(r#"{"a": {"b": 1}}"#), Some(r#"{"a": {"c": 2}}"#));
        assert_eq!(merged.unwrap().unwrap(), r#"{"a": {"b": 1,"c": 2}}"#);
        assert_eq!(
            merge_partial(Some("{\"a\": 1}"), None).unwrap().unwrap(),
            "{\"a\": 1}"
        );
        assert_eq!(
            merge_partial(None, Some("{\"a\": 1}")).unwrap().unwrap(),
            "{\"a\": 1}"
        );
        let Err(Error::InvalidInput(message)) = merge_partial(
            Some(r#"{"a": {"b": "hunter2"}}"#),
            Some(r#"{"a": {"b": {}}}"#),
        ) else {
            panic!()
        };
        assert!(
            message.contains("`a.b`") && !message.contains("hunter2"),
            "{message}"
        );
    }

    #[test]
    fn a_state_without_bookmarks_is_empty() {
        for empty in [
            "{\"singer_state\": {}}",
            "{\"singer_state\": {\"bookmarks\": {}}}",
            "{\"a\": null}",
        ] {
            assert!(documents(empty).is_empty(), "{empty}");
        }
        assert!(!documents("{\"a\": 0}").is_empty());
        assert!(refuse_to_empty(&documents(r#"{"singer_state": {"a": 1}}"#)).is_err());
        assert!(refuse_to_empty(&documents("{}")).is_ok());
    }

    #[test]
    fn a_state_is_compared_by_its_text_or_by_its_hash() {
        let state = documents(r#"{"singer_state": {"a": 1}}"#);
        let other = documents(r#"{"singer_state": {"a":1}}"#);
        let content = Content::Documents {
            partial: None,
            completed: state.completed.clone(),
        };
        assert!(state.is_stored(&content, None) && !other.is_stored(&content, None));
        // As `SELECT sipHash64Keyed((toUInt64(1), toUInt64(2)), ...)` says.
        let hashes = Content::Hashes {
            partial: -8_779_574_827_602_434_181,
            completed: 1_182_425_998_186_676_093,
        };
        assert!(state.is_stored(&hashes, Some((1, 2))));
        assert!(!other.is_stored(&hashes, Some((1, 2))) && !state.is_stored(&hashes, Some((2, 1))));
        assert!(!state.is_stored(&hashes, None));
    }
}
