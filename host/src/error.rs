//! What can go wrong, as one type: the kind, the cause and the mend in one line, and for a write
//! what it may have done to the store.

use std::convert::Infallible;

use crate::bindings::pipeline::state::types as wit;
use crate::{Holder, Version, text};

/// What a failed call may have done to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing was written: the call may be made again without a second thought.
    NotApplied,
    /// It may have been written or not: read it back before you act on it.
    Unknown,
}

/// Why a call failed. Its text is one line, says what to do, and never holds a secret.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), pipeline_state::Error> {
/// use pipeline_state::{Error, Plugins, Settings};
///
/// let plugins = Plugins::builder().build().await?;
/// let error = plugins.open("redis://localhost/0", &Settings::new()).err().unwrap();
/// assert!(matches!(error, Error::UnknownScheme { .. }));
/// assert_eq!(error.to_string(), "no plugin serves the scheme `redis`; there are: clickhouse");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call's arguments, the URI or a setting can't be used as they are.
    #[error("{0}")]
    InvalidInput(String),
    /// A setting without a default is not given.
    #[error("{0}")]
    MissingSetting(String),
    /// The store does not know this user, or the password is wrong.
    #[error("{0}")]
    Unauthenticated(String),
    /// The store knows the user and forbids the operation.
    #[error("{0}")]
    AccessDenied(String),
    /// A write did not find what it expected; nothing was written.
    #[error("{}; nothing was written", match .stored {
        Some(version) => format!("the stored state has the version {version}, which is not the expected one"),
        None => String::from("there is no such state, and one was expected"),
    })]
    Conflict {
        /// The version that is stored; none where there is no state.
        stored: Option<Version>,
    },
    /// Somebody else holds the lease of the state, or the lease under which a write was made is lost; nothing was written.
    #[error("{}", match .holder {
        Some(holder) => format!("`{}` is locked by {holder}", text::line(holder.id.as_str())),
        None => String::from("the lease is lost: it has expired, or was broken; nothing was written"),
    })]
    Locked {
        /// Who holds it; none where nobody does.
        holder: Option<Holder>,
    },
    /// The store could not be reached, or the connection broke.
    #[error("{message}")]
    Unavailable {
        /// What happened.
        message: String,
        /// What a write may have done.
        outcome: Outcome,
    },
    /// The store, or the plugin, did not answer in time.
    #[error("{message}")]
    TimedOut {
        /// What happened.
        message: String,
        /// What a write may have done.
        outcome: Outcome,
    },
    /// The store answered with an error of its own.
    #[error("{message}")]
    Server {
        /// The store's number for it; 0 where it gave none.
        code: i32,
        /// The store's name for it; empty where it gave none.
        name: String,
        /// The store's words.
        message: String,
        /// What a write may have done.
        outcome: Outcome,
    },
    /// The store answered with something that can't be a state.
    #[error("{0}")]
    Corrupt(String),
    /// No plugin serves the scheme of the URI.
    #[error("no plugin serves the scheme `{scheme}`; there are: {}", .known.join(", "))]
    UnknownScheme {
        /// The scheme that was asked for.
        scheme: String,
        /// The schemes that are served, in order.
        known: Vec<String>,
    },
    /// Two plugins serve one scheme.
    #[error(
        "the plugins {first} and {second} both serve the scheme `{scheme}`; leave one of them out"
    )]
    SchemeTaken {
        /// The scheme.
        scheme: String,
        /// Where the plugin that came first is from.
        first: String,
        /// Where the other one is from.
        second: String,
    },
    /// A file, or a folder of them, can't be used as a plugin.
    #[error("{path}: {reason}")]
    BadPlugin {
        /// Where it is.
        path: String,
        /// What is wrong with it and what to do.
        reason: String,
    },
    /// A plugin asked for an origin that its target does not name.
    #[error("the plugin asked for {asked}, and {}", match .allowed {
        Some(origin) => format!("may reach {origin} alone, which its URI and settings name"),
        None => String::from("may reach nothing, since its URI and settings name no host"),
    })]
    OriginDenied {
        /// The method and the origin of the request.
        asked: String,
        /// The one that is allowed, if any.
        allowed: Option<String>,
        /// What a write may have done: the plugin may have written before it strayed.
        outcome: Outcome,
    },
    /// The operator does not allow it: an origin that is named, or credentials for a plugin that asks for them.
    #[error("{message}")]
    NotAllowed {
        /// What is not allowed, and what would allow it.
        message: String,
        /// What a write may have done: a name may stand for an address that is not allowed at a later request.
        outcome: Outcome,
    },
    /// A plugin broke off: it trapped, or went past its memory.
    #[error("the plugin broke off: {reason}")]
    PluginFailed {
        /// What happened.
        reason: String,
        /// What a write may have done.
        outcome: Outcome,
    },
}

impl Error {
    /// The same error with other words of a plugin or a server.
    pub(crate) fn with_texts(self, change: impl Fn(&str) -> String) -> Error {
        match self {
            Error::InvalidInput(text) => Error::InvalidInput(change(&text)),
            Error::MissingSetting(text) => Error::MissingSetting(change(&text)),
            Error::Unauthenticated(text) => Error::Unauthenticated(change(&text)),
            Error::AccessDenied(text) => Error::AccessDenied(change(&text)),
            Error::Corrupt(text) => Error::Corrupt(change(&text)),
            Error::Unavailable { message, outcome } => Error::Unavailable {
                message: change(&message),
                outcome,
            },
            Error::TimedOut { message, outcome } => Error::TimedOut {
                message: change(&message),
                outcome,
            },
            Error::Server {
                code,
                name,
                message,
                outcome,
            } => Error::Server {
                code,
                name: change(&name),
                message: change(&message),
                outcome,
            },
            Error::PluginFailed { reason, outcome } => Error::PluginFailed {
                reason: change(&reason),
                outcome,
            },
            Error::OriginDenied {
                asked,
                allowed,
                outcome,
            } => Error::OriginDenied {
                asked: change(&asked),
                allowed,
                outcome,
            },
            other @ (Error::Conflict { .. }
            | Error::Locked { .. }
            | Error::UnknownScheme { .. }
            | Error::SchemeTaken { .. }
            | Error::NotAllowed { .. }
            | Error::BadPlugin { .. }) => other,
        }
    }

    /// What a failed write may have done to the store. A failed read has never written.
    pub fn outcome(&self) -> Outcome {
        match self {
            Error::Unavailable { outcome, .. }
            | Error::TimedOut { outcome, .. }
            | Error::Server { outcome, .. }
            | Error::OriginDenied { outcome, .. }
            | Error::NotAllowed { outcome, .. }
            | Error::PluginFailed { outcome, .. } => *outcome,
            _ => Outcome::NotApplied,
        }
    }

    pub(crate) fn not_allowed(message: impl Into<String>) -> Error {
        Error::NotAllowed {
            message: message.into(),
            outcome: Outcome::NotApplied,
        }
    }

    pub(crate) fn bad_plugin(path: impl Into<String>, reason: impl Into<String>) -> Error {
        Error::BadPlugin {
            path: path.into(),
            reason: reason.into(),
        }
    }
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Error {
        match never {}
    }
}

impl From<wit::Outcome> for Outcome {
    fn from(outcome: wit::Outcome) -> Outcome {
        match outcome {
            wit::Outcome::NotApplied => Outcome::NotApplied,
            wit::Outcome::Unknown => Outcome::Unknown,
        }
    }
}

impl From<wit::Error> for Error {
    fn from(error: wit::Error) -> Error {
        match error {
            wit::Error::InvalidInput(text) => Error::InvalidInput(text),
            wit::Error::MissingSetting(text) => Error::MissingSetting(text),
            wit::Error::Unauthenticated(text) => Error::Unauthenticated(text),
            wit::Error::AccessDenied(text) => Error::AccessDenied(text),
            wit::Error::Unavailable(failure) => Error::Unavailable {
                message: failure.message,
                outcome: failure.outcome.into(),
            },
            wit::Error::TimedOut(failure) => Error::TimedOut {
                message: failure.message,
                outcome: failure.outcome.into(),
            },
            wit::Error::Server(error) => Error::Server {
                code: error.code,
                name: error.name,
                message: error.message,
                outcome: error.outcome.into(),
            },
            wit::Error::Corrupt(text) => Error::Corrupt(text),
            wit::Error::Locked(holder) => Error::Locked {
                holder: holder.map(Holder::from),
            },
            wit::Error::Conflict(version) => Error::Conflict {
                stored: version.map(Version::from),
            },
        }
    }
}
