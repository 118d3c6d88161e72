//! `merge`: adds to a state, by Meltano's rules.

use std::path::PathBuf;

use clap::ArgGroup;
use pipeline_state::{Backend, Error, Expectation, State, StateId, Version};

use super::args::LeaseArgs;
use super::document::Readable;
use super::failure::Failure;
use super::output::Output;
use super::{document, ids};

/// Add to a state: objects are merged, anything else is replaced
///
/// {"singer_state": {...}} is merged into the partial document, as `meltano state merge` does, and so is what the next run of another
/// state would read. {"completed": {...}, "partial": {...}} is merged document by document. What somebody else writes at the same
/// moment is not lost.
#[derive(clap::Args)]
#[command(
    group = ArgGroup::new("source").required(true).args(["state", "input_file", "from_state_id"]),
    after_help = "Example:\n  pipeline-state merge dev:tap-a-to-target-b '{\"singer_state\": {\"bookmarks\": {\"users\": {\"since\": 7}}}}'"
)]
pub(super) struct MergeArgs {
    /// Whose state
    pub(super) id: StateId,
    /// What is added
    state: Option<String>,
    /// Read it from a file; - is stdin
    #[arg(long, value_name = "FILE")]
    input_file: Option<PathBuf>,
    /// Add what the next run of this state would read
    #[arg(long, value_name = "ID")]
    from_state_id: Option<StateId>,
    /// Take also what has no `singer_state` at the top of a document, which Meltano would not read
    #[arg(long)]
    no_validate: bool,
    #[command(flatten)]
    pub(super) lease: LeaseArgs,
}

pub(super) async fn run(
    backend: &Backend,
    args: &MergeArgs,
    output: Output,
) -> Result<(), Failure> {
    let added = match &args.from_state_id {
        Some(source) => {
            let State { completed, partial } = ids::stored(backend, source).await?.state;
            State {
                completed: None,
                partial: document::merge(completed.as_deref(), partial.as_deref())?,
            }
        }
        None => document::read_state(
            args.state.as_deref(),
            args.input_file.as_deref(),
            document::partial,
            Readable::unless(args.no_validate),
        )?,
    };
    if !args.no_validate {
        document::check(&added)?;
    }
    let version = merge(backend, &args.id, &added).await?;
    Ok(output.written(&args.id, version)?)
}

/// Until nobody else has written between reading and writing. Whoever loses has let another one succeed, so it ends.
async fn merge(backend: &Backend, id: &StateId, added: &State) -> Result<Version, Error> {
    loop {
        let stored = backend.get(id).await?;
        let expect = stored.as_ref().map_or(Expectation::Absent, |entry| {
            Expectation::Version(entry.version)
        });
        let State { completed, partial } = stored.map(|entry| entry.state).unwrap_or_default();
        let merged = State {
            completed: document::merge(completed.as_deref(), added.completed.as_deref())?,
            partial: document::merge(partial.as_deref(), added.partial.as_deref())?,
        };
        match backend.set_if(id, merged, expect).await {
            Err(Error::Conflict { .. }) => {}
            done => return done,
        }
    }
}
