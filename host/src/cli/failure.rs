//! Why a command failed: what is told, and the exit code for its kind.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use pipeline_state::{Error, Outcome, Version};

#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("{error}{}", hint(.error))]
    Backend {
        #[from]
        error: Error,
    },
    #[error("there is no state `{0}`")]
    NoSuchState(String),
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
    #[error("this deletes every state; say --force if you mean it")]
    NotForced,
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
            "; wait for it (`lock run --wait`), or end it: pipeline-state lock break '{}' {}",
            holder.id, holder.token
        ),
        _ => String::new(),
    }
}

impl Failure {
    /// The table in the help text and the README.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Failure::Io(_) | Failure::File { .. } => 1,
            Failure::NotForced => 2,
            Failure::NoSuchState(_)
            | Failure::NoSuchVersion { .. }
            | Failure::NoSuchLease { .. } => 3,
            // A shell's rule.
            Failure::NotStarted { error, .. } => match error.kind() {
                io::ErrorKind::NotFound => 127,
                _ => 126,
            },
            // What is wrong is told one by one, each of another kind.
            Failure::Problems(_) => 1,
            Failure::Backend { error } => match error {
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
                Error::OriginDenied { .. } => 13,
                Error::PluginFailed { .. } => 14,
                Error::Conflict { .. } => 15,
                Error::Locked { .. } => 16,
                _ => 1,
            },
        }
    }
}
