//! Python's `fnmatch.fnmatchcase`, for stores that have no plugin to do it.

pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut at, mut pos) = (0, 0);
    // Where the last `*` was, and what it has taken so far: no more than one is ever tried again.
    let mut star: Option<(usize, usize)> = None;
    while let Some(&c) = text.get(pos) {
        if pattern.get(at) == Some(&'*') {
            star = Some((at + 1, pos));
            at += 1;
            continue;
        }
        if let Some(next) = one(&pattern, at, c) {
            at = next;
            pos += 1;
        } else if let Some((after, taken)) = star {
            star = Some((after, taken + 1));
            (at, pos) = (after, taken + 1);
        } else {
            return false;
        }
    }
    pattern
        .get(at..)
        .unwrap_or_default()
        .iter()
        .all(|c| *c == '*')
}

/// Where the pattern goes on after it has matched this character; none where it does not.
fn one(pattern: &[char], at: usize, c: char) -> Option<usize> {
    match pattern.get(at)? {
        '?' => Some(at + 1),
        '[' => match class(pattern, at + 1) {
            Some((members, next)) => contains(members, c).then_some(next),
            // It is not closed: it stands for itself.
            None => (c == '[').then_some(at + 1),
        },
        other => (*other == c).then_some(at + 1),
    }
}

/// What is between the brackets, and where the pattern goes on. A `]` that comes first is a member.
fn class(pattern: &[char], start: usize) -> Option<(&[char], usize)> {
    let first = start + usize::from(pattern.get(start) == Some(&'!'));
    let after = first + usize::from(pattern.get(first) == Some(&']'));
    let end = after + pattern.get(after..)?.iter().position(|c| *c == ']')?;
    Some((pattern.get(start..end)?, end + 1))
}

fn contains(members: &[char], c: char) -> bool {
    let (negated, mut members) = match members {
        ['!', rest @ ..] => (true, rest),
        all => (false, all),
    };
    let mut found = false;
    loop {
        members = match members {
            [from, '-', to, rest @ ..] => {
                found |= (*from..=*to).contains(&c);
                rest
            }
            [one, rest @ ..] => {
                found |= *one == c;
                rest
            }
            [] => return found != negated,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_matches_as_python_does() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("dev:*", "dev:tap-a", true),
            ("dev:*", "Dev:tap-a", false),
            ("*a*b", "xaxbxb", true),
            ("*a*b", "xaxbx", false),
            ("?", "ä", true),
            ("[abc]x", "bx", true),
            ("[!abc]x", "bx", false),
            ("[a-c]", "b", true),
            ("[]a]", "]", true),
            ("[!]]", "]", false),
            ("[a", "[a", true),
            ("[a-]", "-", true),
            ("a.c", "abc", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
