//! `clear`, also known as `delete`: one state, those that match a pattern, or all.

use clap::ArgGroup;
use pipeline_state::{Backend, Expectation, StateId};
use serde_json::json;

use super::args::LeaseArgs;
use super::failure::Failure;
use super::output::Output;
use super::{ask, ids, lock, pages};

#[derive(clap::Args)]
#[command(
    group = ArgGroup::new("what").required(true).args(["id", "pattern", "all"]),
    after_help = "Examples:\n  pipeline-state clear dev:tap-a-to-target-b\n  pipeline-state clear --pattern 'dev:*' --force"
)]
pub(super) struct ClearArgs {
    /// Whose state
    id: Option<StateId>,
    /// Those of all IDs that match: * any text, ? one character, [abc] or [!abc] one of some
    #[arg(long)]
    pattern: Option<String>,
    /// All of them
    #[arg(long)]
    all: bool,
    /// Don't ask
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    lease: LeaseArgs,
}

pub(super) async fn run(backend: Backend, args: &ClearArgs, output: Output) -> Result<(), Failure> {
    match (&args.id, &args.pattern) {
        (Some(id), _) => one(backend, id, args, output).await,
        (None, Some(pattern)) => matching(&backend, pattern, args, output).await,
        (None, None) => all(&backend, args, output).await,
    }
}

async fn one(
    backend: Backend,
    id: &StateId,
    args: &ClearArgs,
    output: Output,
) -> Result<(), Failure> {
    let backend = lock::for_writing(backend, id, &args.lease).await?;
    let expect = match args.force {
        true => Expectation::Any,
        false => {
            let stored = ids::stored(&backend, id).await?;
            ask::before(&format!("This deletes the state `{id}`"), false)?;
            Expectation::Version(stored.version)
        }
    };
    match backend.delete_if(id, expect).await? {
        true if output.json => Ok(super::output::line(&json!({"deleted": 1}))?),
        true => Ok(()),
        false => Err(ids::missing(&backend, id).await),
    }
}

async fn matching(
    backend: &Backend,
    pattern: &str,
    args: &ClearArgs,
    output: Output,
) -> Result<(), Failure> {
    lock::refuse_held(backend, pattern, &args.lease).await?;
    let mut found = Vec::new();
    pages::of_ids(backend, pattern, |ids| {
        found.extend(ids);
        Ok(())
    })
    .await?;
    if let Some(first) = found.first() {
        let what = match found.len() {
            1 => format!("This deletes the state `{first}`"),
            count => format!("This deletes {count} states, `{first}` the first of them"),
        };
        ask::before(&what, args.force)?;
    }
    let mut deleted = 0;
    for id in &found {
        if backend.delete(id).await? {
            deleted += 1;
        }
    }
    tell(deleted, output)
}

async fn all(backend: &Backend, args: &ClearArgs, output: Output) -> Result<(), Failure> {
    ask::before("This deletes every state", args.force)?;
    lock::refuse_held(backend, "*", &args.lease).await?;
    tell(backend.clear().await?, output)
}

fn tell(deleted: u64, output: Output) -> Result<(), Failure> {
    let sentence = format!("deleted {deleted} states");
    Ok(output.result(&json!({"deleted": deleted}), &sentence)?)
}
