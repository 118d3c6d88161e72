//! What others wrote, as part of one line: a plugin's words, and through it a server's, must not break logs or move a terminal's
//! cursor.

/// More than any message needs.
const LONGEST: usize = 2_000;

/// The same text as one line of bounded length. What moves a cursor or turns the direction of reading is escaped.
pub(crate) fn line(text: &str) -> String {
    let mut line = String::new();
    for (at, c) in text.chars().enumerate() {
        match c {
            _ if at == LONGEST => {
                line.push('…');
                break;
            }
            '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{61c}' => {
                line.extend(c.escape_unicode());
            }
            c if c.is_control() => line.extend(c.escape_debug()),
            c => line.push(c),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_one_line_that_does_nothing() {
        for (text, shown) in [
            ("Zoë \\ 'x' 💾", "Zoë \\ 'x' 💾"),
            ("one\r\ntwo", "one\\r\\ntwo"),
            ("a\u{1b}[2Jb\u{9b}1m", "a\\u{1b}[2Jb\\u{9b}1m"),
            ("a\u{202e}b\u{2028}c", "a\\u{202e}b\\u{2028}c"),
        ] {
            assert_eq!(line(text), shown);
        }
    }

    #[test]
    fn what_is_long_is_cut() {
        assert_eq!(line(&"ä".repeat(3_000)).chars().count(), LONGEST + 1);
        assert_eq!(line(&"ä".repeat(LONGEST)).chars().count(), LONGEST);
    }
}
