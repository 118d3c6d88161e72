//! The errors of the contract (`types.error`), as plain values.
//!
//! This module gives them their form: one line, of bounded length. What an answer of the server
//! means is `response`'s business, what a broken connection means is `network`'s.

use crate::lease::Lease;
use crate::version::Version;

/// What a failed call may have done to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing was written.
    NotApplied,
    /// It may have been written or not.
    Unknown,
}

/// What a request does to the store: what a failure leaves open, and whether the request may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It only reads.
    Read,
    /// It writes, and does nothing more when the server gets it twice.
    Repeatable,
    /// It writes, each time that the server gets it.
    Once,
}

impl Effect {
    /// What is to be said of a request whose fate nobody knows.
    pub(crate) fn uncertain(self) -> Outcome {
        match self {
            Self::Read => Outcome::NotApplied,
            Self::Repeatable | Self::Once => Outcome::Unknown,
        }
    }

    /// Whether a request whose fate nobody knows may be sent again.
    pub(crate) fn may_be_repeated(self) -> bool {
        self != Self::Once
    }
}

/// A failure on the way to the store or back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// One line.
    pub(crate) message: String,
    /// What a write may have done.
    pub(crate) outcome: Outcome,
}

/// An error that ClickHouse itself answered with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServerError {
    /// The code of its exception, 0 where it gave none.
    pub(crate) code: i32,
    /// Its name, empty where it gave none.
    pub(crate) name: String,
    /// One line.
    pub(crate) message: String,
    /// What a write may have done.
    pub(crate) outcome: Outcome,
}

/// Why a call failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// The arguments, the URI or a setting can't be used.
    InvalidInput(String),
    /// A setting without a default is not given.
    MissingSetting(String),
    /// Unknown user or wrong password.
    Unauthenticated(String),
    /// The user may not do this.
    AccessDenied(String),
    /// No connection, or a broken one.
    Unavailable(Failure),
    /// No answer in time.
    TimedOut(Failure),
    /// An exception of the server.
    Server(ServerError),
    /// An answer that can't be a state.
    Corrupt(String),
    /// A write did not find what it expected, but this version or nothing.
    Conflict(Option<Version>),
    /// Somebody else holds the lease, or nobody any more.
    Locked(Option<Lease>),
}

impl Error {
    /// The same error of a write that may have been applied by an earlier try.
    pub(crate) fn in_doubt(self) -> Self {
        self.with(Outcome::Unknown)
    }

    fn with(self, outcome: Outcome) -> Self {
        match self {
            Self::Unavailable(failure) => Self::Unavailable(Failure { outcome, ..failure }),
            Self::TimedOut(failure) => Self::TimedOut(Failure { outcome, ..failure }),
            Self::Server(error) => Self::Server(ServerError { outcome, ..error }),
            other => other,
        }
    }

    /// The same error of something that a write needed before anything of it was sent.
    pub(crate) fn before_the_write(self) -> Self {
        self.with(Outcome::NotApplied)
    }

    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Unavailable(failure) | Self::TimedOut(failure) => failure.outcome,
            Self::Server(error) => error.outcome,
            _ => Outcome::NotApplied,
        }
    }
}

/// The longest text of the server that an error repeats, in characters: enough for the sentence
/// that says what is wrong, and not for a query or a document that the server quotes after it.
const MAX_CHARACTERS: usize = 500;

/// `text` as one line: white space and control characters become single spaces, and what exceeds
/// the limit is cut.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::new();
    let mut length = 0;
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    for word in words.filter(|word| !word.is_empty()) {
        if length > 0 {
            line.push(' ');
            length += 1;
        }
        for character in word.chars() {
            // A word that ends at the limit has a space behind it.
            if length >= MAX_CHARACTERS {
                line.push('…');
                return line;
            }
            line.push(character);
            length += 1;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_many_lines_becomes_one() {
        assert_eq!(one_line(" a\r\n\tb\0c\u{1b}[31m d\n"), "a b c [31m d");
        assert_eq!(one_line("\n"), "");
    }

    #[test]
    fn long_text_is_cut() {
        let line = one_line(&"ä".repeat(2000));
        assert_eq!(line.chars().count(), MAX_CHARACTERS + 1);
        assert!(line.ends_with('…'));
    }

    #[test]
    fn long_text_is_cut_wherever_its_words_end() {
        for first in MAX_CHARACTERS - 2..MAX_CHARACTERS + 2 {
            let line = one_line(&format!("{} {}", "a".repeat(first), "b ".repeat(2000)));
            assert!(line.chars().count() <= MAX_CHARACTERS + 2, "{first}");
            assert!(line.ends_with('…'), "{first}");
        }
    }

    #[test]
    fn a_read_never_leaves_a_question_open() {
        assert_eq!(Effect::Read.uncertain(), Outcome::NotApplied);
        assert_eq!(Effect::Once.uncertain(), Outcome::Unknown);
    }
}
