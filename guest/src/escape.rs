//! How names and values are written so that the server reads back exactly what was meant.
//!
//! Documents never come here: they travel as `RowBinary` (see `rowbinary`), which needs no escapes.

use std::borrow::Cow;

use crate::error::Error;

/// The name of a database or table, quoted for SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identifier(String);

impl Identifier {
    /// Quotes `name`, the value of the setting `setting`. ClickHouse takes any text but an empty
    /// one; a NUL would end the name of a file on the server.
    pub(crate) fn new(setting: &str, name: &str) -> Result<Self, Error> {
        if name.is_empty() || name.contains('\0') {
            let fault = if name.is_empty() {
                "is empty"
            } else {
                "holds a NUL character"
            };
            return Err(Error::InvalidInput(format!(
                "the setting `{setting}` {fault}: give the name of a ClickHouse {}",
                if setting == "table" {
                    "table"
                } else {
                    "database"
                }
            )));
        }
        let mut quoted = String::with_capacity(name.len() + 2);
        quoted.push('`');
        for character in name.chars() {
            if matches!(character, '`' | '\\') {
                quoted.push('\\');
            }
            quoted.push(character);
        }
        quoted.push('`');
        Ok(Self(quoted))
    }
}

impl std::fmt::Display for Identifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// `value` for a URL parameter `param_...`, before it is URL-encoded: the server reads such values as
/// a field of `TSV`.
pub(crate) fn parameter(value: &str) -> Cow<'_, str> {
    tab_separated(value)
}

/// `value` as a field of `TabSeparated`. Only a backslash, tab or line feed would be read differently (observed on 26.9);
/// carriage return and NUL are escaped because the format's description asks for it.
pub(crate) fn tab_separated(value: &str) -> Cow<'_, str> {
    if !value.contains(['\\', '\t', '\n', '\r', '\0']) {
        return Cow::Borrowed(value);
    }
    let mut escaped = String::with_capacity(value.len() + value.len() / 8);
    for character in value.chars() {
        match character {
            '\\' => escaped.push_str("\\\\"),
            '\t' => escaped.push_str("\\t"),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\0' => escaped.push_str("\\0"),
            other => escaped.push(other),
        }
    }
    Cow::Owned(escaped)
}

/// Texts for a URL parameter of the type `Array(String)`: quoted one by one, and not escaped once more as a whole.
pub(crate) fn array<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut array = String::from("[");
    for text in texts {
        if array.len() > 1 {
            array.push(',');
        }
        array.push('\'');
        array.push_str(&tab_separated(text).replace('\'', "\\'"));
        array.push('\'');
    }
    array.push(']');
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_quoted_whatever_they_hold() {
        let quote = |name| Identifier::new("table", name).unwrap().to_string();
        assert_eq!(quote("state"), "`state`");
        assert_eq!(quote("my-state 1"), "`my-state 1`");
        assert_eq!(quote("a`b\\c'é\n"), "`a\\`b\\\\c'é\n`");
    }

    #[test]
    fn an_empty_identifier_or_one_with_nul_is_refused() {
        for name in ["", "a\0b"] {
            let Err(Error::InvalidInput(message)) = Identifier::new("schema", name) else {
                panic!("{name:?}")
            };
            assert!(message.contains("`schema`"), "{message}");
        }
    }

    #[test]
    fn parameters_are_escaped_as_a_field_of_tsv() {
        assert_eq!(parameter("a\\b\tc\nd\re\0f"), "a\\\\b\\tc\\nd\\re\\0f");
        assert_eq!(parameter("'\"`\u{8}\u{c}😀"), "'\"`\u{8}\u{c}😀");
        assert_eq!(parameter("\\N"), "\\\\N");
    }

    #[test]
    fn arrays_hold_any_text() {
        assert_eq!(array([]), "[]");
        assert_eq!(array(["a", "b'c\\\n", ""]), "['a','b\\'c\\\\\\n','']");
    }
}
