//! Patterns of the contract.

/// The pattern that this ID alone matches.
pub(crate) fn escape(id: &str) -> String {
    let mut pattern = String::new();
    for c in id.chars() {
        match c {
            '*' | '?' | '[' => pattern.extend(['[', c, ']']),
            c => pattern.push(c),
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_in_a_pattern_is_put_into_brackets() {
        assert_eq!(escape("dev:a"), "dev:a");
        assert_eq!(escape("a*b?[c]"), "a[*]b[?][[]c]");
    }
}
