//! Which documents are accepted, and which of them are stored at all.
//!
//! A document is checked, never changed: its text is stored byte for byte.

use crate::error::Error;
use serde_json::value::RawValue;

/// The longest document, in bytes. Both of a state at this size, as sent and as received, still
/// fit into a 32-bit address space with room to spare; Meltano's largest known states have some megabytes.
pub(crate) const MAX_BYTES: usize = 64 * 1024 * 1024;

/// A document that is worth storing, or none: an object without members is stored as NULL, as the
/// Python backend stores it (`json.dumps(state) if state else None`).
///
/// `what` names the document in an error: `completed` or `partial`.
pub(crate) fn check(what: &str, document: Option<String>) -> Result<Option<String>, Error> {
    let Some(text) = document else {
        return Ok(None);
    };
    if text.len() > MAX_BYTES {
        return Err(Error::InvalidInput(format!(
            "the {what} state has {} bytes: the ClickHouse plugin takes up to {MAX_BYTES}",
            text.len()
        )));
    }
    // RawValue checks the grammar and keeps nothing: it neither recurses (so nesting has no limit) nor reads
    // numbers (so large ones are kept) nor decodes escapes (so lone surrogates are kept).
    if let Err(error) = serde_json::from_str::<&RawValue>(&text) {
        return Err(Error::InvalidInput(format!(
            "the {what} state is not valid JSON, at line {} column {}: it must be one JSON object",
            error.line(),
            error.column()
        )));
    }
    let Some(inside) = trim(&text).strip_prefix('{') else {
        return Err(Error::InvalidInput(format!(
            "the {what} state is JSON but not an object: it must be one JSON object, like {{\"singer_state\": {{}}}}"
        )));
    };
    if trim(inside) == "}" {
        return Ok(None);
    }
    Ok(Some(text))
}

/// Whether a document has nothing in it but objects without members, and nulls: `{"singer_state": {}}`.
///
/// What is left of such a document without its keys is brackets and nulls. It is valid JSON: that was checked.
pub(crate) fn holds_nothing(text: &str) -> bool {
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        rest = match first {
            '"' => match end_of_string(rest).map(|end| trim(rest.get(end..).unwrap_or_default())) {
                Some(after) if after.starts_with(':') => after,
                _ => return false,
            },
            '{' | '}' | ':' | ',' | ' ' | '\t' | '\n' | '\r' => rest.get(1..).unwrap_or_default(),
            _ => match rest.strip_prefix("null") {
                Some(after) => after,
                None => return false,
            },
        };
    }
    true
}

/// Where the string that `text` begins with ends.
fn end_of_string(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices()
        .skip(1)
        .find_map(|(at, character)| match character {
            _ if escaped => {
                escaped = false;
                None
            }
            '\\' => {
                escaped = true;
                None
            }
            '"' => Some(at + 1),
            _ => None,
        })
}

/// Whether a stored text can be a document. A full check is the writer's task: a reader would
/// spend more time on it than on the read.
pub(crate) fn is_plausible(text: &str) -> bool {
    let text = trim(text);
    text.len() >= 2 && text.starts_with('{') && text.ends_with('}')
}

/// `text` without the white space of JSON around it.
fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\n', '\r'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(text: &str) -> Option<String> {
        check("partial", Some(text.to_owned())).unwrap()
    }

    fn refuse(text: &str) -> String {
        let Err(Error::InvalidInput(message)) = check("partial", Some(text.to_owned())) else {
            panic!("{text}")
        };
        assert!(message.starts_with("the partial state"), "{message}");
        message
    }

    #[test]
    fn a_document_is_kept_byte_for_byte() {
        for text in [
            r#" {"b": 1, "a": 123456789012345678901234567890, "b": 1.50} "#,
            r#"{"lone": "\ud800", "pair": "\ud83d\ude00", "nul": "\u0000"}"#,
            "{\"é\":\"\u{7f}\u{2028}\"}\n",
            r#"{"singer_state":{}}"#,
        ] {
            assert_eq!(accept(text).as_deref(), Some(text));
        }
    }

    #[test]
    fn an_absent_document_and_an_empty_object_are_not_stored() {
        assert_eq!(check("partial", None).unwrap(), None);
        for text in ["{}", " {\n\t} \r\n"] {
            assert_eq!(accept(text), None);
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in ["[]", "null", "1", "\"{}\""] {
            assert!(refuse(text).contains("not an object"));
        }
    }

    #[test]
    fn what_is_no_json_is_refused_with_its_place() {
        for text in [
            "",
            "{",
            "{}{}",
            "{'a':1}",
            "{\"a\":NaN}",
            "\u{feff}{}",
            "{\"a\":\"\n\"}",
            "{\"a\":1,}",
            "\u{a0}{}",
        ] {
            assert!(refuse(text).contains("line"), "{text}");
        }
    }

    #[test]
    fn an_error_does_not_quote_the_document() {
        assert!(!refuse("{\"token\": hunter2}").contains("hunter2"));
    }

    #[test]
    fn nesting_has_no_limit() {
        let text = format!("{{\"a\":{}{}}}", "[".repeat(500_000), "]".repeat(500_000));
        assert!(accept(&text).is_some());
    }

    #[test]
    fn a_document_above_the_limit_is_refused() {
        assert!(refuse(&" ".repeat(MAX_BYTES + 1)).contains("67108865"));
    }

    #[test]
    fn objects_and_nulls_hold_nothing() {
        for text in [
            "{}",
            " {\n} ",
            r#"{"singer_state": {}}"#,
            r#"{"a": null, "b\"\\" : {"c}": {}, "": null}}"#,
        ] {
            assert!(holds_nothing(text), "{text}");
        }
        for text in [
            r#"{"a": 0}"#,
            r#"{"a": ""}"#,
            r#"{"a": {"b": ":"}}"#,
            r#"{"a": "x" }"#,
            r#"{"a": []}"#,
            r#"{"a": false}"#,
            r#"{"a": {"b\"": {"c": "\""}}}"#,
        ] {
            assert!(!holds_nothing(text), "{text}");
        }
    }

    #[test]
    fn a_stored_text_is_plausible_where_it_looks_like_an_object() {
        assert!(is_plausible(" {\"a\":1}\n"));
        for text in ["", "{", "null", "[]", "{\"a\":1"] {
            assert!(!is_plausible(text), "{text}");
        }
    }
}
