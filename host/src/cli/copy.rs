//! `copy` and `move`: a state under another ID.

use pipeline_state::{Backend, Error, Expectation, StateId};

use super::args::LeaseArgs;
use super::failure::Failure;
use super::output::Output;
use super::{ids, set};

#[derive(clap::Args)]
pub(super) struct CopyArgs {
    /// Whose state it is
    #[arg(value_name = "SRC")]
    pub(super) source: StateId,
    /// Whose state it becomes
    #[arg(value_name = "DST")]
    pub(super) target: StateId,
    /// Replace a state of DST without asking
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    pub(super) lease: LeaseArgs,
}

pub(super) async fn copy(target: &Backend, args: &CopyArgs, output: Output) -> Result<(), Failure> {
    refuse_same(args)?;
    let stored = ids::stored(target, &args.source).await?;
    let version = set::store(target, &args.target, stored.state, args.force).await?;
    Ok(output.written(&args.target, version)?)
}

/// The target is written before the source is deleted, so that the state is always somewhere.
pub(super) async fn rename(
    source: &Backend,
    target: &Backend,
    args: &CopyArgs,
    output: Output,
) -> Result<(), Failure> {
    refuse_same(args)?;
    let stored = ids::stored(source, &args.source).await?;
    let version = set::store(target, &args.target, stored.state, args.force).await?;
    let deleted = source
        .delete_if(&args.source, Expectation::Version(stored.version))
        .await;
    match deleted {
        Ok(_) => Ok(output.written(&args.target, version)?),
        Err(error) => Err(Failure::HalfMoved {
            from: args.source.to_string(),
            to: args.target.to_string(),
            changed: matches!(error, Error::Conflict { .. }),
            error: Box::new(error),
        }),
    }
}

fn refuse_same(args: &CopyArgs) -> Result<(), Error> {
    match args.source == args.target {
        true => Err(Error::InvalidInput(String::from(
            "SRC and DST are the same state",
        ))),
        false => Ok(()),
    }
}
