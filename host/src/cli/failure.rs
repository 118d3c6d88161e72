//! Why a command failed: what is told, and the exit code for its kind.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use pipeline_state::{Error, Outcome, Version};

#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("{error}{}", hint(.error))]
    Backend {
        #[from]
        error: Error,
    },
    #[error("there is no state `{id}`{}", did_you_mean(.near))]
    NoSuchState { id: String, near: Vec<String> },
    #[error("the history of `{id}` has no version {version}; see `pipeline-state history`")]
    NoSuchVersion { id: String, version: Version },
    #[error("{}", match .0 {
        1 => String::from("there is a problem"),
        count => format!("there are {count} problems"),
    })]
    Problems(usize),
    #[error(
        "the lease of `{id}` with the token {token} is not held any more; see `pipeline-state lock show`"
    )]
    NoSuchLease { id: String, token: String },
    #[error("{}: {error}", .program.display())]
    NotStarted { program: OsString, error: io::Error },
    #[error("{path}: {error}", path = .path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}, and nobody can be asked here: say --force if you mean it")]
    NotForced(String),
    #[error("nothing was done")]
    Declined,
    #[error("{0}")]
    Usage(String),
    #[error(
        "the {0} document has no `singer_state` at its top, so that Meltano would not read it; a state looks like \
         {{\"completed\": {{\"singer_state\": {{}}}}}}; --no-validate takes it all the same"
    )]
    NotSinger(&'static str),
    #[error(
        "`{to}` is stored, and `{from}` is not deleted{}: {error}",
        if *.changed { ", since somebody has changed it meanwhile; look at both, and move it again or clear it" } else { "; clear it" }
    )]
    HalfMoved {
        from: String,
        to: String,
        changed: bool,
        error: Box<Error>,
    },
    #[error("{failure}; what you wrote is in {}", .path.display())]
    Edited {
        path: PathBuf,
        failure: Box<Failure>,
    },
    #[error("the editor ended with {0}; nothing was written")]
    Editor(std::process::ExitStatus),
    #[error("{}: {failure}; {} states were stored before that; mend it and run it again", .path.display(), counted(*.stored, .failure))]
    Import {
        path: PathBuf,
        stored: u64,
        failure: Box<Failure>,
    },
    #[error("{failure}; {} states were written before that; to run it again is safe", counted(*.written, .failure))]
    Sync { written: u64, failure: Box<Failure> },
    #[error("{0}")]
    Foreign(String),
    #[error("not what `export` writes: {0}")]
    NoExport(String),
    #[error("broken off")]
    Interrupted,
    #[error("this process runs under the lease of `{0}` already: it would wait for itself")]
    HeldAlready(String),
}

/// What to do. A write whose fate is not known must not look like one that did nothing.
fn hint(error: &Error) -> String {
    match (error, error.outcome()) {
        (_, Outcome::Unknown) => String::from(
            "; the change may have been stored or not: read it back before you try again",
        ),
        (
            Error::Locked {
                holder: Some(holder),
            },
            _,
        ) => format!(
            "; wait for it (`lock run --wait`), or end it: pipeline-state lock break {} {}",
            quoted(&holder.id.to_string()),
            quoted(&holder.token)
        ),
        _ => String::new(),
    }
}

pub(super) fn did_you_mean(near: &[String]) -> String {
    match near {
        [] => String::new(),
        near => format!("; did you mean `{}`?", near.join("` or `")),
    }
}

/// The word that means this text to a shell.
fn quoted(text: &str) -> String {
    match !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric()) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// A text as one line of a terminal. Owners, IDs and a server's words are anybody's: what moves the cursor, or turns around the order of
/// what is read, is shown as an escape.
pub(super) fn plain(text: &str) -> String {
    let mut line = String::new();
    for c in text.chars() {
        match c {
            '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => {
                line.extend(c.escape_default());
            }
            c if c.is_control() => line.extend(c.escape_default()),
            c => line.push(c),
        }
    }
    line
}

/// Of what came before a failure; a request that was on its way may have come as well.
fn counted(count: u64, failure: &Failure) -> String {
    match failure {
        Failure::Interrupted => format!("at least {count}"),
        Failure::Backend { error } if error.outcome() == Outcome::Unknown => {
            format!("at least {count}")
        }
        _ => count.to_string(),
    }
}

impl Failure {
    /// That of a file, for `map_err`.
    pub(super) fn file(path: &Path) -> impl FnOnce(io::Error) -> Failure {
        |error| Failure::File {
            path: path.to_owned(),
            error,
        }
    }

    /// The table in the help text and the README.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Failure::Io(_)
            | Failure::File { .. }
            | Failure::Declined
            | Failure::Foreign(_)
            | Failure::Editor(_) => 1,
            Failure::NotForced(_)
            | Failure::HeldAlready(_)
            | Failure::Usage(_)
            | Failure::NotSinger(_)
            | Failure::NoExport(_) => 2,
            Failure::Edited { failure, .. }
            | Failure::Import { failure, .. }
            | Failure::Sync { failure, .. } => failure.exit_code(),
            // A shell's rule.
            Failure::Interrupted => 130,
            Failure::NoSuchState { .. }
            | Failure::NoSuchVersion { .. }
            | Failure::NoSuchLease { .. } => 3,
            // A shell's rule.
            Failure::NotStarted { error, .. } => match error.kind() {
                io::ErrorKind::NotFound => 127,
                _ => 126,
            },
            // What is wrong is told one by one, each of another kind.
            Failure::Problems(_) => 1,
            Failure::HalfMoved { error, .. } => of(error),
            Failure::Backend { error } => of(error),
        }
    }
}

fn of(error: &Error) -> u8 {
    match error {
        Error::InvalidInput(_) => 2,
        Error::MissingSetting(_) => 4,
        Error::Unauthenticated(_) => 5,
        Error::AccessDenied(_) => 6,
        Error::Unavailable { .. } => 7,
        Error::TimedOut { .. } => 8,
        Error::Server { .. } => 9,
        Error::Corrupt(_) => 10,
        Error::UnknownScheme { .. } => 11,
        Error::BadPlugin { .. } | Error::SchemeTaken { .. } => 12,
        Error::OriginDenied { .. } | Error::NotAllowed { .. } => 13,
        Error::PluginFailed { .. } => 14,
        Error::Conflict { .. } => 15,
        Error::Locked { .. } => 16,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_a_quoted_word_as_it_was() {
        for (text, word) in [
            ("a1", "a1"),
            ("", "''"),
            ("dev:a", "'dev:a'"),
            ("it's; $(x)", r"'it'\''s; $(x)'"),
        ] {
            assert_eq!(quoted(text), word);
        }
    }

    #[test]
    fn a_text_is_one_line_and_moves_no_cursor() {
        assert_eq!(plain("Zoë \\ 'a' \u{1f600}"), "Zoë \\ 'a' \u{1f600}");
        assert_eq!(
            plain("a\tb\r\n\u{1b}[2J\u{9b}\u{7f}\u{202e}\u{2028}"),
            r"a\tb\r\n\u{1b}[2J\u{9b}\u{7f}\u{202e}\u{2028}"
        );
    }
}
