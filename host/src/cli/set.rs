//! `set`: stores a state in place of the one that is there.

use std::path::PathBuf;

use clap::ArgGroup;
use pipeline_state::{Backend, Expectation, State, StateId, Version};

use super::args::LeaseArgs;
use super::document::Readable;
use super::failure::Failure;
use super::output::Output;
use super::{ask, document};

#[derive(clap::Args)]
#[command(group = ArgGroup::new("source").required(true).args(["state", "input_file"]))]
pub(super) struct SetArgs {
    /// Whose state
    pub(super) id: StateId,
    /// The state: {"completed": {"singer_state": {...}}}, or {"singer_state": {...}} for a completed one
    state: Option<String>,
    /// Read the state from a file; - is stdin
    #[arg(long, value_name = "FILE")]
    input_file: Option<PathBuf>,
    /// Replace a state that is there without asking
    #[arg(long)]
    force: bool,
    /// Take also what has no `singer_state` at the top of a document, which Meltano would not read
    #[arg(long)]
    no_validate: bool,
    #[command(flatten)]
    pub(super) lease: LeaseArgs,
}

impl SetArgs {
    /// Bad input is told without a store.
    pub(super) fn state(&self) -> Result<State, Failure> {
        let file = self.input_file.as_deref();
        let state = document::read_state(
            self.state.as_deref(),
            file,
            document::completed,
            Readable::unless(self.no_validate),
        )?;
        if !self.no_validate {
            document::check(&state)?;
        }
        Ok(state)
    }
}

pub(super) async fn run(
    backend: &Backend,
    args: &SetArgs,
    state: State,
    output: Output,
) -> Result<(), Failure> {
    let version = store(backend, &args.id, state, args.force).await?;
    Ok(output.written(&args.id, version)?)
}

/// Unless by force it asks before a state is replaced, and then replaces that one and no newer one.
pub(super) async fn store(
    backend: &Backend,
    id: &StateId,
    state: State,
    force: bool,
) -> Result<Version, Failure> {
    if force {
        return Ok(backend.set(id, state).await?);
    }
    let expect = match backend.get(id).await? {
        None => Expectation::Absent,
        // As it is printed: an absent document and an empty one are the same.
        Some(stored) if stored.state.to_json() == state.to_json() => {
            Expectation::Version(stored.version)
        }
        Some(stored) => {
            ask::before(&format!("This replaces the state `{id}`"), false)?;
            Expectation::Version(stored.version)
        }
    };
    Ok(backend.set_if(id, state, expect).await?)
}
