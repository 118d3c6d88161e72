//! Why a command failed: what is told, and the exit code for its kind. Both are the native program's.

/// The codes in the README.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// A stream failed, or `doctor` found a problem.
    Failed = 1,
    Usage = 2,
    NoSuchState = 3,
    MissingSetting = 4,
    Unauthenticated = 5,
    AccessDenied = 6,
    Unavailable = 7,
    TimedOut = 8,
    Server = 9,
    Corrupt = 10,
    UnknownScheme = 11,
    Conflict = 15,
    Locked = 16,
}

/// A failure of a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Failure {
        Failure {
            code,
            text: text.into(),
        }
    }

    pub(crate) fn usage(text: impl Into<String>) -> Failure {
        Failure::new(Code::Usage, text)
    }

    pub(crate) fn no_such_state(id: &str) -> Failure {
        Failure::new(Code::NoSuchState, format!("there is no state `{id}`"))
    }

    /// Nobody can be asked here, so what replaces or deletes something needs a word for it.
    pub(crate) fn not_forced(what: &str) -> Failure {
        Failure::usage(format!(
            "{what}, and nobody can be asked here: say --force if you mean it"
        ))
    }

    /// The one line that is told.
    pub(crate) fn line(&self) -> String {
        format!("error: {}", plain(&self.text))
    }
}

/// A text as one line of a terminal. Owners, IDs and a server's words are anybody's: what moves the cursor, or turns around the
/// order of what is read, is shown as an escape.
pub(crate) fn plain(text: &str) -> String {
    let mut line = String::new();
    for c in text.chars() {
        match c {
            '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => line.extend(c.escape_default()),
            c if c.is_control() => line.extend(c.escape_default()),
            c => line.push(c),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_in_one_line_that_moves_no_cursor() {
        let failure = Failure::no_such_state("a\u{1b}[2J\nb\u{202e}");
        assert_eq!(
            failure.line(),
            r"error: there is no state `a\u{1b}[2J\nb\u{202e}`"
        );
        assert_eq!(failure.code as u8, 3);
    }
}
