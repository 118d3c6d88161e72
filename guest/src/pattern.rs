//! Patterns of state IDs: those of Python's `fnmatch.fnmatchcase`, on the whole ID, as the conditions that the
//! server evaluates.
//!
//! The Python backend turns `*` and `?` into `LIKE`, where `_` and `%` of an ID match too much; this does not.

/// What an ID must be like.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Any ID.
    All,
    /// This one ID.
    Exact(String),
    /// An ID that a regular expression of ClickHouse's `match` (RE2) matches.
    Like {
        /// What all such IDs start with, so that the primary key narrows the search; may be empty.
        prefix: String,
        /// Anchored at both ends.
        regex: String,
    },
}

/// Matches no character at all: RE2 has no shorter word for it.
const NEVER: &str = r"[^\x{0}-\x{10FFFF}]";

impl Pattern {
    /// Any text is a pattern. The empty one is all, as in the Python backend.
    pub(crate) fn parse(text: &str) -> Self {
        let characters: Vec<char> = text.chars().collect();
        let mut regex = String::from(r"(?s)\A");
        let mut prefix = String::new();
        let mut literal = true;
        let mut stars_alone = true;
        let mut rest = characters.as_slice();
        while let Some((&first, mut after)) = rest.split_first() {
            let special = match first {
                '*' => Some(".*".to_owned()),
                '?' => Some(".".to_owned()),
                '[' => set(&mut after),
                _ => None,
            };
            rest = after;
            stars_alone &= first == '*';
            match special {
                // Two stars in a row match no more than one.
                Some(part) if part == ".*" && regex.ends_with(".*") => {}
                Some(part) => {
                    literal = false;
                    regex.push_str(&part);
                }
                None => {
                    push_escaped(&mut regex, first);
                    if literal {
                        prefix.push(first);
                    }
                }
            }
        }
        regex.push_str(r"\z");
        match (stars_alone, literal) {
            (true, _) => Self::All,
            (false, true) => Self::Exact(prefix),
            (false, false) => Self::Like { prefix, regex },
        }
    }
}

/// Reads a set, the `[` before it already gone. Without a `]` it is none, and `[` stands for itself.
fn set(rest: &mut &[char]) -> Option<String> {
    let mut negated = rest.first() == Some(&'!');
    let members = rest.get(usize::from(negated)..)?;
    // A `]` that comes first is a member.
    let end = members.iter().skip(1).position(|c| *c == ']')? + 1;
    let (members, after) = members.split_at_checked(end)?;
    *rest = after.get(1..)?;

    // A range from high to low has no members. Python leaves it out before it looks for the `!`, so one that
    // comes first then negates: `[z-a!b]` is `[!b]`.
    let mut members = members;
    while let [from, '-', to, after @ ..] = members {
        if from <= to {
            break;
        }
        members = after;
        if let (false, ['!', after @ ..]) = (negated, members) {
            (negated, members) = (true, after);
            break;
        }
    }
    let mut inside = String::new();
    loop {
        match members {
            [from, '-', to, after @ ..] => {
                if from <= to {
                    push_escaped(&mut inside, *from);
                    inside.push('-');
                    push_escaped(&mut inside, *to);
                }
                members = after;
            }
            [one, after @ ..] => {
                push_escaped(&mut inside, *one);
                members = after;
            }
            [] => break,
        }
    }
    Some(match (inside.is_empty(), negated) {
        (true, false) => NEVER.to_owned(),
        (true, true) => ".".to_owned(),
        (false, false) => format!("[{inside}]"),
        (false, true) => format!("[^{inside}]"),
    })
}

/// A character that stands for itself, in a set and outside one.
fn push_escaped(regex: &mut String, character: char) {
    match character {
        '\0' => regex.push_str(r"\x00"),
        c if c.is_ascii_punctuation() => regex.extend(['\\', c]),
        c => regex.push(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, id: &str) -> bool {
        match Pattern::parse(pattern) {
            Pattern::All => true,
            Pattern::Exact(text) => text == id,
            Pattern::Like { prefix, regex } => {
                let regex = regex::Regex::new(&regex).unwrap();
                assert!(
                    !regex.is_match(id) || id.starts_with(&prefix),
                    "{pattern} {id} {prefix}"
                );
                regex.is_match(id)
            }
        }
    }

    /// `pattern TAB id TAB 0 or 1`, as Python's own `fnmatch.fnmatchcase` says; see the head of the file.
    #[test]
    fn patterns_match_what_pythons_fnmatch_matches() {
        let cases = include_str!("../tests/fnmatch.tsv");
        let mut count = 0;
        for line in cases.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split('\t').collect();
            let [pattern, id, expected] = fields[..] else {
                panic!("{line}")
            };
            // The empty pattern is all here, and nothing but the empty ID there.
            if pattern.is_empty() {
                continue;
            }
            assert_eq!(matches(pattern, id), expected == "1", "{pattern:?} {id:?}");
            count += 1;
        }
        assert!(count > 1000, "{count}");
    }

    #[test]
    fn no_pattern_and_stars_alone_are_all() {
        for pattern in ["", "*", "**"] {
            assert_eq!(Pattern::parse(pattern), Pattern::All);
        }
    }

    #[test]
    fn text_without_wildcards_is_one_id() {
        for pattern in [
            "dev:tap-a-to-target-b",
            "a_b%c",
            "a\\b",
            "[",
            "a]",
            "[a",
            "[!]",
            "[]",
        ] {
            assert_eq!(Pattern::parse(pattern), Pattern::Exact(pattern.to_owned()));
        }
    }

    #[test]
    fn what_stands_before_the_first_wildcard_is_the_prefix() {
        for (pattern, expected) in [
            ("dev:*", "dev:"),
            ("a.b?c*", "a.b"),
            ("*a", ""),
            ("[ab]c", ""),
            ("a[x", "a[x"),
        ] {
            match Pattern::parse(pattern) {
                Pattern::Like { prefix, .. } | Pattern::Exact(prefix) => {
                    assert_eq!(prefix, expected)
                }
                Pattern::All => panic!("{pattern}"),
            }
        }
    }

    #[test]
    fn line_feeds_and_nul_are_characters_like_others() {
        assert!(matches("a?b*", "a\nb\n\nc"));
        assert!(matches("a\0*", "a\0b"));
        assert!(!matches("a*", "a\nb\u{0}".trim_start_matches('a')));
    }
}
