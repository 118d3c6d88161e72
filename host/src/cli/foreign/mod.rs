//! Meltano's own stores, to move from them and back.
//!
//! They are built in, and no plugins: a plugin can do HTTP to one origin and nothing else, and neither a folder nor a database file is
//! reached so.

mod database;
mod folder;
mod pattern;

use std::path::{Path, PathBuf};

use pipeline_state::{Error, State, StateId};

use super::failure::Failure;

use database::Database;
use folder::Folder;

/// A state as one of these stores has it.
pub(super) struct Found {
    pub(super) id: StateId,
    pub(super) state: State,
    /// In milliseconds since 1970; none where the store does not say.
    pub(super) updated_at_ms: Option<u64>,
}

/// What a store is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
    /// To tell what a write would do: a store that a write would make is an empty one.
    Pretend,
}

pub(super) enum Foreign {
    Folder(Folder),
    Database(Database),
}

impl Foreign {
    /// None where the URI is not of such a store.
    pub(super) fn open(uri: &str, access: Access) -> Result<Option<Foreign>, Failure> {
        if let Some(path) = uri.strip_prefix("file://") {
            return Ok(Some(Foreign::Folder(Folder::open(
                absolute(path)?,
                access,
            )?)));
        }
        if let Some(path) = uri.strip_prefix("sqlite://") {
            // SQLAlchemy has a fourth slash before an absolute path.
            let path = absolute(path)?;
            return Ok(Some(Foreign::Database(Database::open(path, access)?)));
        }
        Ok(None)
    }

    /// Up to `limit` states whose IDs match the pattern, in the order of their IDs, from the first one after `after`. The last one is what
    /// to go on from.
    pub(super) fn page(
        &self,
        pattern: &str,
        after: Option<&StateId>,
        limit: usize,
    ) -> Result<Vec<Found>, Failure> {
        match self {
            Foreign::Folder(folder) => folder.page(pattern, after, limit),
            Foreign::Database(database) => database.page(pattern, after, limit),
        }
    }

    pub(super) fn write(&mut self, states: &[(StateId, State)]) -> Result<(), Failure> {
        match self {
            Foreign::Folder(folder) => folder.write(states),
            Foreign::Database(database) => database.write(states),
        }
    }
}

fn absolute(path: &str) -> Result<PathBuf, Error> {
    match path.strip_prefix('/') {
        Some(rest) if !rest.trim_start_matches('/').is_empty() => {
            Ok(Path::new("/").join(rest.trim_start_matches('/')))
        }
        _ => Err(Error::InvalidInput(String::from(
            "the URI names no absolute path; it looks like file:///folder or sqlite:///folder/meltano.db",
        ))),
    }
}

fn read(id: &StateId, text: &str) -> Result<State, Error> {
    State::from_json(text).map_err(|error| Error::Corrupt(format!("the state `{id}`: {error}")))
}
