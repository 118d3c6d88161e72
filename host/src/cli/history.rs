//! `history` and `restore`: what a state was before.

use std::io::{self, BufWriter, Write};

use pipeline_state::{Backend, Change, StateId, Version};
use serde::Serialize;
use serde_json::value::RawValue;

use super::failure::Failure;
use super::output::{Output, raw, write_line};
use super::time::utc;

/// A line for each version: the version, the time, and the state, or that it was deleted.
pub(super) async fn show(
    backend: &Backend,
    id: &StateId,
    limit: u32,
    output: Output,
) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    for change in backend.versions(id, None, limit).await? {
        let state = change.state.as_ref().map(pipeline_state::State::to_json);
        let time = utc(change.written_at_ms);
        if output.json {
            #[derive(Serialize)]
            struct Line<'a> {
                id: &'a str,
                version: String,
                written_at: String,
                state: Option<Box<RawValue>>,
            }
            let line = Line {
                id: id.as_str(),
                version: change.version.to_string(),
                written_at: time,
                state: state.as_deref().map(raw).transpose()?,
            };
            write_line(&mut out, &line)?;
        } else {
            let state = state.as_deref().unwrap_or("deleted");
            writeln!(out, "{}\t{time}\t{state}", change.version)?;
        }
    }
    Ok(out.flush()?)
}

/// What was written with this version.
pub(super) async fn at(
    backend: &Backend,
    id: &StateId,
    version: Version,
) -> Result<Change, Failure> {
    // The newest one before the version after it.
    let before = Version::from(version.get().saturating_add(1));
    let changes = backend.versions(id, Some(before), 1).await?;
    changes
        .into_iter()
        .find(|change| change.version == version)
        .ok_or_else(|| Failure::NoSuchVersion {
            id: id.to_string(),
            version,
        })
}

pub(super) async fn restore(
    backend: &Backend,
    id: &StateId,
    version: Version,
    output: Output,
) -> Result<(), Failure> {
    match at(backend, id, version).await?.state {
        Some(state) => {
            let version = backend.set(id, state).await?;
            output.written(id, version)?;
        }
        None => drop(backend.delete(id).await?),
    }
    Ok(())
}
