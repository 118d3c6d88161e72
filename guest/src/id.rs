//! Which state IDs and patterns are accepted.

use crate::error::Error;

/// The longest ID or pattern, in bytes.
///
/// It travels as a URL parameter, which ClickHouse takes up to 128 KiB, counted after encoding
/// (error 1000, "Field value too long"). One byte of an ID becomes at most 6 there (a tab: `%5Ct`; a
/// backslash: `%5C%5C`) and one of a pattern at most 12 (a backslash again, escaped for the regular
/// expression too): 96 KiB. Meltano's own database takes 900 characters.
const MAX_BYTES: usize = 8 * 1024;

/// Refuses an ID that is too long.
pub(crate) fn check_id(id: &str) -> Result<(), Error> {
    check("state ID", id)
}

/// Refuses a pattern that is too long.
pub(crate) fn check_pattern(pattern: &str) -> Result<(), Error> {
    check("pattern", pattern)
}

fn check(what: &str, text: &str) -> Result<(), Error> {
    if text.len() > MAX_BYTES {
        return Err(Error::InvalidInput(format!(
            "the {what} has {} bytes: the ClickHouse plugin takes up to {MAX_BYTES}, use a shorter one",
            text.len()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::escape::parameter;
    use crate::pattern::Pattern;

    const FIELD_LIMIT: usize = 128 * 1024;

    fn encoded(value: &str) -> usize {
        url::form_urlencoded::byte_serialize(parameter(value).as_bytes())
            .map(str::len)
            .sum()
    }

    #[test]
    fn the_longest_accepted_text_fits_a_url_parameter() {
        for character in ['\\', '\t', '\0', '[', '*', '-', 'é', '😀', '\u{1}'] {
            let text: String =
                std::iter::repeat_n(character, MAX_BYTES / character.len_utf8()).collect();
            assert!(check_id(&text).is_ok());
            assert!(encoded(&text) < FIELD_LIMIT, "{character:?}");
            if let Pattern::Like { regex, .. } = Pattern::parse(&format!("{text}?")) {
                assert!(
                    encoded(&regex) < FIELD_LIMIT,
                    "{character:?}: {}",
                    encoded(&regex)
                );
            }
        }
    }

    #[test]
    fn longer_text_is_refused_with_its_length() {
        let Err(Error::InvalidInput(message)) = check_id(&"a".repeat(8193)) else {
            panic!()
        };
        assert!(
            message.contains("8193") && message.contains("8192"),
            "{message}"
        );
    }

    #[test]
    fn the_empty_id_is_an_id() {
        assert!(check_id("").is_ok());
    }
}
