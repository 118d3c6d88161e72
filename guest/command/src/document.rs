//! States as the arguments and the output have them: Meltano's form. Documents are kept byte for byte.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::failure::{Code, Failure};

/// What a document must have at its top: Meltano reads nothing else.
const SINGER_STATE: &str = "singer_state";

/// The documents of a state, as texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Documents {
    pub(crate) completed: Option<String>,
    pub(crate) partial: Option<String>,
}

/// What a document that stands alone becomes: `{"singer_state": {...}}`.
#[derive(Clone, Copy)]
pub(crate) enum Alone {
    Completed,
    Partial,
}

/// Borrows from the text, so that a large document is copied once.
#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with the members `completed` and `partial`"
)]
struct Members<'a> {
    #[serde(borrow, default)]
    completed: Option<&'a RawValue>,
    #[serde(borrow, default)]
    partial: Option<&'a RawValue>,
}

impl Documents {
    /// Reads `{"completed": {...}, "partial": {...}}`, where either may be missing, or one document: any object, where it need not
    /// be one that Meltano reads.
    pub(crate) fn read(text: &str, alone: Alone, no_validate: bool) -> Result<Documents, Failure> {
        let text = text.trim();
        let is_alone = |members: Option<BTreeMap<String, &RawValue>>| {
            members.is_some_and(|members| {
                let has = |name| members.contains_key(name);
                let none_of_both = !has("completed") && !has("partial");
                has(SINGER_STATE) || no_validate && none_of_both && !members.is_empty()
            })
        };
        if is_alone(members(text)) {
            let document = Some(text.to_owned());
            return Ok(match alone {
                Alone::Completed => Documents {
                    completed: document,
                    partial: None,
                },
                Alone::Partial => Documents {
                    completed: None,
                    partial: document,
                },
            });
        }
        // Without this, serde would take an array for the members in their order.
        if !text.starts_with('{') {
            return Err(no_state("not a JSON object"));
        }
        let members: Members<'_> =
            serde_json::from_str(text).map_err(|error| no_state(&error.to_string()))?;
        Ok(Documents {
            completed: object("completed", members.completed)?,
            partial: object("partial", members.partial)?,
        })
    }

    /// Refuses what Meltano would not read.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let documents = [("completed", &self.completed), ("partial", &self.partial)];
        for (name, document) in documents {
            if !is_empty(document.as_deref()) && !document.as_deref().is_some_and(has_singer_state)
            {
                return Err(Failure::usage(format!(
                    "the {name} document has no `singer_state` at its top, so that Meltano would not read it; a state looks \
                     like {{\"completed\": {{\"singer_state\": {{}}}}}}; --no-validate takes it all the same"
                )));
            }
        }
        Ok(())
    }

    /// Meltano's form.
    pub(crate) fn json(&self) -> String {
        format!(
            "{{\"completed\": {}, \"partial\": {}}}",
            self.completed.as_deref().unwrap_or("{}"),
            self.partial.as_deref().unwrap_or("{}"),
        )
    }

    /// The same in one line, for a member of an object that is printed on one.
    pub(crate) fn json_line(&self) -> Result<String, Failure> {
        let json = self.json();
        serde_json::from_str::<&RawValue>(&json).map_err(|error| {
            Failure::new(
                Code::Corrupt,
                format!("a stored document is no JSON: {error}"),
            )
        })?;
        Ok(one_line(&json))
    }

    /// What the documents take.
    pub(crate) fn bytes(&self) -> usize {
        let length = |document: &Option<String>| document.as_ref().map_or(0, String::len);
        length(&self.completed) + length(&self.partial)
    }

    /// What Meltano takes the state for.
    pub(crate) fn kind(&self) -> &'static str {
        let empty = is_empty(self.completed.as_deref()) && is_empty(self.partial.as_deref());
        match self.check() {
            _ if empty => "empty",
            Ok(()) => "valid",
            Err(_) => "invalid",
        }
    }
}

/// The same JSON as Python's `json.dumps` lays it out; numbers and strings stay as they are.
fn one_line(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in json.chars() {
        match c {
            _ if in_string => {
                line.push(c);
                in_string = escaped || c != '"';
                escaped = !escaped && c == '\\';
            }
            ' ' | '\t' | '\r' | '\n' => {}
            ',' | ':' => line.extend([c, ' ']),
            _ => {
                line.push(c);
                in_string = c == '"';
            }
        }
    }
    line
}

/// An absent document and one without members are the same.
pub(crate) fn is_empty(document: Option<&str>) -> bool {
    document.is_none_or(|document| {
        let inner = document.trim().strip_prefix('{');
        inner.is_none_or(|inner| inner.trim_start() == "}")
    })
}

/// None where it is no object.
fn members(document: &str) -> Option<BTreeMap<String, &RawValue>> {
    serde_json::from_str(document).ok()
}

fn has_singer_state(document: &str) -> bool {
    members(document).is_some_and(|members| members.contains_key(SINGER_STATE))
}

fn object(name: &str, document: Option<&RawValue>) -> Result<Option<String>, Failure> {
    match document.map(RawValue::get) {
        None => Ok(None),
        // A raw value is well-formed already, so its first character tells what it is.
        Some(text) if text.starts_with('{') => Ok(Some(text.to_owned())),
        Some(_) => Err(no_state(&format!("`{name}` must be a JSON object"))),
    }
}

fn no_state(why: &str) -> Failure {
    Failure::usage(format!(
        "not a state: {why}; a state looks like {{\"completed\": {{\"singer_state\": {{}}}}}}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Documents {
        Documents::read(text, Alone::Completed, false).unwrap()
    }

    #[test]
    fn documents_keep_their_text() {
        let state = read(
            "{ \"partial\" : {\n \"b\": 1.0,\"a\":\"\\ud800\", \"a\":99999999999999999999999} , \"completed\":{} }",
        );
        assert_eq!(state.completed.as_deref(), Some("{}"));
        assert_eq!(
            state.partial.as_deref(),
            Some("{\n \"b\": 1.0,\"a\":\"\\ud800\", \"a\":99999999999999999999999}")
        );
        assert_eq!(read(&state.json()), state);
        assert_eq!(
            state.json_line().unwrap(),
            r#"{"completed": {}, "partial": {"b": 1.0, "a": "\ud800", "a": 99999999999999999999999}}"#
        );
        let strings = read(r#"{"completed":{"a :\",\\":[1,{ }]}}"#);
        assert_eq!(
            strings.json_line().unwrap(),
            r#"{"completed": {"a :\",\\": [1, {}]}, "partial": {}}"#
        );
    }

    #[test]
    fn a_document_alone_is_what_it_is_said_to_be() {
        let text = r#" {"singer_state": {"a": 1.0}} "#;
        let document = Some(text.trim().to_owned());
        assert_eq!(read(text).completed, document);
        let partial = Documents::read(text, Alone::Partial, false).unwrap();
        assert_eq!((partial.completed, partial.partial), (None, document));

        let other = r#"{"x": 1}"#;
        assert!(Documents::read(other, Alone::Completed, false).is_err());
        let taken = Documents::read(other, Alone::Completed, true).unwrap();
        assert_eq!(taken.completed.as_deref(), Some(other));
        let both = Documents::read(r#"{"partial": {"x": 1}}"#, Alone::Completed, true).unwrap();
        assert_eq!(both.completed, None);
    }

    #[test]
    fn a_state_is_valid_by_its_singer_state() {
        for (text, kind) in [
            (r#"{"completed":{"singer_state":{}}}"#, "valid"),
            (
                r#"{"completed":{"singer_state":{}},"partial":{"x":1}}"#,
                "invalid",
            ),
            (r#"{"completed":{"a":{"singer_state":{}}}}"#, "invalid"),
            (r#"{"completed":{ },"partial":null}"#, "empty"),
        ] {
            assert_eq!(read(text).kind(), kind, "{text}");
        }
    }

    #[test]
    fn what_is_no_state_is_refused_with_an_example() {
        for text in [
            "",
            "nonsense",
            "[]",
            "{",
            r#"{"other":{}}"#,
            r#"{"completed":{},"completed":{}}"#,
            r#"{"completed":[]}"#,
            r#"{"partial":"{}"}"#,
            r#"{"completed":{}} x"#,
        ] {
            let line = Documents::read(text, Alone::Completed, false)
                .unwrap_err()
                .line();
            assert!(line.starts_with("error: not a state: "), "{text}: {line}");
            assert!(line.contains("singer_state"), "{text}: {line}");
        }
    }
}
