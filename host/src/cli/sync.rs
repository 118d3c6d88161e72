//! `sync`: the states of one store in another one.

use std::cmp::Ordering;
use std::collections::VecDeque;

use indicatif::ProgressBar;
use pipeline_state::{Backend, Error, Expectation, State, StateId, Version};
use serde_json::json;

use super::args::LeaseArgs;
use super::failure::Failure;
use super::foreign::Foreign;
use super::output::Output;
use super::{interrupt, lock, progress};

/// How many states are in memory of each store.
const AT_ONCE: u32 = 500;

/// Copy the states of a store to another one, where they differ
///
/// A store is a URI; or env:NAME, whose URI is in the variable NAME, where nobody else sees its password; or a dot, which is the store of
/// --uri and the settings. The others have what their URI says, and no other settings. Beside those with a plugin there are Meltano's own:
/// file:///folder and sqlite:///folder/meltano.db. What only TO has stays. To run it again after an interruption is safe. What somebody else
/// replaces in TO meanwhile is not overwritten, and the command fails; a state that they make in the very moment is, unless they hold its lease.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  pipeline-state sync sqlite:///srv/project/.meltano/meltano.db . --dry-run\n  \
                  pipeline-state sync env:OLD_URI env:NEW_URI --pattern 'prod:*'"
)]
pub(super) struct SyncArgs {
    /// The store that is read
    pub(super) from: String,
    /// The store that is written
    pub(super) to: String,
    /// Only IDs that match: * any text, ? one character, [abc] or [!abc] one of some
    #[arg(long, default_value = "*", hide_default_value = true)]
    pattern: String,
    /// Tell what would be written, and write nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Replace a state only where both stores say when theirs was written, and it is the older one
    #[arg(long)]
    only_newer: bool,
    #[command(flatten)]
    lease: LeaseArgs,
}

pub(super) enum Store {
    Plugin(Backend),
    Foreign(Foreign),
}

/// A state in either store.
struct Item {
    id: StateId,
    state: State,
    version: Option<Version>,
    updated_at_ms: Option<u64>,
}

/// What was done.
#[derive(Default)]
struct Counts {
    created: u64,
    replaced: u64,
    same: u64,
    older: u64,
}

pub(super) async fn run(
    from: &Store,
    mut to: Store,
    args: &SyncArgs,
    output: Output,
) -> Result<(), Failure> {
    let mut counts = Counts::default();
    let progress = progress::of_states(output);
    let copying = copy(from, &mut to, args, output, &mut counts, &progress);
    let result = interrupt::or(copying).await.flatten();
    progress.finish_and_clear();
    let Counts {
        created,
        replaced,
        same,
        older,
    } = counts;
    if let Err(failure) = result {
        return Err(Failure::Sync {
            written: if args.dry_run { 0 } else { created + replaced },
            failure: Box::new(failure),
        });
    }
    let older_too = match args.only_newer {
        true => format!(", {older} not newer"),
        false => String::new(),
    };
    let nothing = if args.dry_run {
        "; nothing was written"
    } else {
        ""
    };
    let sentence = format!(
        "{created} states created, {replaced} replaced, {same} the same{older_too}{nothing}"
    );
    let object = json!({
        "created": created, "replaced": replaced, "same": same, "not_newer": older, "dry_run": args.dry_run,
    });
    Ok(output.result(&object, &sentence)?)
}

/// Goes through both in the order of their IDs, side by side.
async fn copy(
    from: &Store,
    to: &mut Store,
    args: &SyncArgs,
    output: Output,
    counts: &mut Counts,
    progress: &ProgressBar,
) -> Result<(), Failure> {
    let mut source = Cursor::default();
    let mut target = Cursor::default();
    loop {
        let mut batch: Vec<(Item, Option<Version>)> = Vec::new();
        let mut done = Counts::default();
        while batch.len() < AT_ONCE as usize {
            let Some(item) = source.next(from, &args.pattern).await? else {
                break;
            };
            progress.inc(1);
            let there = target.find(to, &args.pattern, &item.id).await?;
            let (what, version) = match there {
                None => {
                    done.created += 1;
                    ("create", None)
                }
                Some(there) if is_same(&there.state, &item.state) => {
                    done.same += 1;
                    continue;
                }
                Some(there) if args.only_newer && !is_newer(&item, &there) => {
                    done.older += 1;
                    continue;
                }
                Some(there) => {
                    done.replaced += 1;
                    ("replace", there.version)
                }
            };
            if args.dry_run {
                progress.suspend(|| output.note(&format!("would {what} `{}`", item.id)));
            }
            batch.push((item, version));
        }
        let is_last = batch.is_empty();
        if !args.dry_run && !is_last {
            write(to, batch, &args.lease).await?;
        }
        counts.created += done.created;
        counts.replaced += done.replaced;
        counts.same += done.same;
        counts.older += done.older;
        if is_last {
            return Ok(());
        }
    }
}

/// As far as both stores say when.
fn is_newer(item: &Item, than: &Item) -> bool {
    matches!((item.updated_at_ms, than.updated_at_ms), (Some(item), Some(than)) if item > than)
}

/// An absent document is an empty one.
fn is_same(a: &State, b: &State) -> bool {
    a.to_json() == b.to_json()
}

/// What is new goes in one request; what is replaced is what was seen.
async fn write(
    to: &mut Store,
    batch: Vec<(Item, Option<Version>)>,
    lease: &LeaseArgs,
) -> Result<(), Failure> {
    let backend = match to {
        Store::Plugin(backend) => backend,
        Store::Foreign(foreign) => {
            let states: Vec<_> = batch
                .into_iter()
                .map(|(item, _)| (item.id, item.state))
                .collect();
            return foreign.write(&states);
        }
    };
    lock::refuse_held_of(backend, batch.iter().map(|(item, _)| &item.id), lease).await?;
    let mut new = Vec::new();
    for (Item { id, state, .. }, version) in batch {
        match version {
            None => new.push((id, state)),
            Some(version) => {
                let expect = Expectation::Version(version);
                let written = backend.set_if(&id, state, expect).await;
                written.map_err(|error| match error {
                    Error::Conflict { .. } => Failure::Foreign(format!(
                        "somebody has written the state `{id}` meanwhile; run it again"
                    )),
                    error => Failure::from(error),
                })?;
            }
        }
    }
    if !new.is_empty() {
        backend.set_many(new).await?;
    }
    Ok(())
}

/// A place in a store, page by page.
#[derive(Default)]
struct Cursor {
    page: VecDeque<Item>,
    after: Option<StateId>,
    is_at_end: bool,
}

impl Cursor {
    async fn next(&mut self, store: &Store, pattern: &str) -> Result<Option<Item>, Failure> {
        self.fill(store, pattern).await?;
        Ok(self.page.pop_front())
    }

    /// The state with this ID. What comes before is left behind.
    async fn find(
        &mut self,
        store: &Store,
        pattern: &str,
        id: &StateId,
    ) -> Result<Option<Item>, Failure> {
        loop {
            self.fill(store, pattern).await?;
            match self.page.front().map(|item| item.id.cmp(id)) {
                Some(Ordering::Less) => drop(self.page.pop_front()),
                Some(Ordering::Equal) => return Ok(self.page.pop_front()),
                Some(Ordering::Greater) | None => return Ok(None),
            }
        }
    }

    async fn fill(&mut self, store: &Store, pattern: &str) -> Result<(), Failure> {
        while self.page.is_empty() && !self.is_at_end {
            let after = self.after.as_ref();
            match store {
                Store::Plugin(backend) => {
                    let page = backend.get_page(pattern, after, AT_ONCE).await?;
                    self.page.extend(page.entries.into_iter().map(|entry| Item {
                        id: entry.id,
                        state: entry.state,
                        version: Some(entry.version),
                        updated_at_ms: Some(entry.updated_at_ms),
                    }));
                    self.is_at_end = page.next.is_none();
                    self.after = page.next;
                }
                Store::Foreign(foreign) => {
                    let page = foreign.page(pattern, after, AT_ONCE as usize)?;
                    self.is_at_end = page.is_empty();
                    self.page.extend(page.into_iter().map(|found| Item {
                        id: found.id,
                        state: found.state,
                        version: None,
                        updated_at_ms: found.updated_at_ms,
                    }));
                    self.after = self.page.back().map(|item| item.id.clone());
                }
            }
        }
        Ok(())
    }
}
