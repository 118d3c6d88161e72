//! `diff`: what has changed between two versions of a state, or between what is stored and a file.

use std::io::{self, Write};
use std::path::Path;

use pipeline_state::{Backend, State, StateId, Version};

use super::document;
use super::document::Readable;
use super::failure::Failure;
use super::history;
use super::ids;
use super::output::{Colour, coloured, has_colours};

/// Show what has changed in a state, as `diff -u` does
///
/// Without more, between the last version but one and the last one. One version is compared with what is stored, and so is a file; two
/// are compared with one another. Versions need the history to be kept; `history` prints them.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  pipeline-state diff dev:tap-a-to-target-b\n  pipeline-state diff dev:tap-a-to-target-b 1796204412713086542\n  \
                  pipeline-state diff dev:tap-a-to-target-b state.json"
)]
pub(super) struct DiffArgs {
    /// Whose state
    id: StateId,
    /// A version, or a file whose name is not a number; - is stdin
    #[arg(value_name = "VERSION|FILE")]
    from: Option<String>,
    /// Another version
    #[arg(value_name = "VERSION")]
    to: Option<Version>,
}

/// A name and a text.
type Side = (String, String);

pub(super) async fn run(backend: &Backend, args: &DiffArgs) -> Result<(), Failure> {
    let (before, after) = match &args.from {
        None => last_two(backend, &args.id).await?,
        Some(from) => match (from.parse(), args.to) {
            (Ok(from), None) => (
                version(backend, &args.id, from).await?,
                now(backend, &args.id).await?,
            ),
            (Ok(from), Some(to)) => (
                version(backend, &args.id, from).await?,
                version(backend, &args.id, to).await?,
            ),
            (Err(_), None) => (now(backend, &args.id).await?, file(Path::new(from))?),
            (Err(_), Some(_)) => {
                return Err(Failure::Usage(String::from(
                    "a file is compared with what is stored: give no version beside it",
                )));
            }
        },
    };
    let diff = document::diff((&before.0, &before.1), (&after.0, &after.1));
    let colours = has_colours();
    let mut out = io::stdout().lock();
    for line in diff.split_inclusive('\n') {
        let colour = match line.as_bytes().first() {
            Some(b'+') if colours => Some(Colour::Green),
            Some(b'-') if colours => Some(Colour::Red),
            _ => None,
        };
        match colour {
            Some(colour) => writeln!(out, "{}", coloured(line.trim_end_matches('\n'), colour))?,
            None => out.write_all(line.as_bytes())?,
        }
    }
    Ok(())
}

/// None where it was deleted.
fn side(name: String, state: Option<&State>) -> Side {
    (name, state.map(document::pretty_state).unwrap_or_default())
}

async fn last_two(backend: &Backend, id: &StateId) -> Result<(Side, Side), Failure> {
    let changes = backend.versions(id, None, 2).await?;
    let mut changes = changes.into_iter();
    let Some(last) = changes.next() else {
        return Err(ids::missing(backend, id).await);
    };
    let before = match changes.next() {
        Some(before) => side(before.version.to_string(), before.state.as_ref()),
        None => side(String::from("nothing"), None),
    };
    Ok((before, side(last.version.to_string(), last.state.as_ref())))
}

async fn version(backend: &Backend, id: &StateId, version: Version) -> Result<Side, Failure> {
    let change = history::at(backend, id, version).await?;
    Ok(side(version.to_string(), change.state.as_ref()))
}

async fn now(backend: &Backend, id: &StateId) -> Result<Side, Failure> {
    let entry = ids::stored(backend, id).await?;
    Ok(side(entry.version.to_string(), Some(&entry.state)))
}

fn file(path: &Path) -> Result<Side, Failure> {
    let readable = Readable::NotNeeded;
    let state = document::read_state(None, Some(path), document::completed, readable)?;
    Ok(side(path.display().to_string(), Some(&state)))
}
