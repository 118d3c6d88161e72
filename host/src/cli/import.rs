//! `import`: what `export`, or `meltano state export`, has printed.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use pipeline_state::{Backend, State, StateId};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::args::LeaseArgs;
use super::failure::Failure;
use super::output::Output;
use super::{document, interrupt, lock, progress};

/// One request of the store takes so many states, or so many bytes of them.
const BATCH: usize = 1_000;
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// Store the states of a file as `export` or `meltano state export` writes it, in place of those that are there
///
/// The file is read piece by piece, so that one of any size takes little memory. Of two states of one ID the later one counts. Where the
/// file is broken, what came before that place is stored; to run it again is safe.
#[derive(clap::Args)]
pub(super) struct ImportArgs {
    /// The file; - is stdin
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Read and check all of it, and store nothing
    #[arg(long)]
    dry_run: bool,
    /// Take also what has no `singer_state` at the top of a document, which Meltano would not read
    #[arg(long)]
    no_validate: bool,
    #[command(flatten)]
    lease: LeaseArgs,
}

type Pair = (StateId, State);

pub(super) async fn run(
    backend: &Backend,
    args: &ImportArgs,
    output: Output,
) -> Result<(), Failure> {
    let progress = progress::of_file(&args.file, output);
    let file = open(&args.file, &progress)?;
    let validate = !args.no_validate;
    // One batch is read while another one is stored, and no more.
    let (sender, mut batches) = mpsc::channel(1);
    let reading = tokio::task::spawn_blocking(move || read(file, validate, &sender));
    let mut stored = 0;
    let storing = async {
        while let Some(batch) = batches.recv().await {
            let count = u64::try_from(batch.len()).unwrap_or_default();
            if !args.dry_run {
                store(backend, batch, &args.lease).await?;
            }
            stored += count;
        }
        Ok::<(), Failure>(())
    };
    let result = interrupt::or(storing).await.flatten();
    progress.finish_and_clear();
    if let Err(failure) = result {
        return Err(broken_off(args, stored, failure));
    }
    match reading.await.map_err(io::Error::other)? {
        Err(reason) => Err(broken_off(args, stored, reason)),
        Ok(()) if args.dry_run => {
            let sentence = format!("{stored} states can be imported; nothing was written");
            Ok(output.result(&json!({"imported": 0, "checked": stored}), &sentence)?)
        }
        Ok(()) => {
            let sentence = format!("imported {stored} states");
            Ok(output.result(&json!({"imported": stored}), &sentence)?)
        }
    }
}

fn broken_off(args: &ImportArgs, stored: u64, failure: Failure) -> Failure {
    Failure::Import {
        path: args.file.clone(),
        stored: if args.dry_run { 0 } else { stored },
        failure: Box::new(failure),
    }
}

async fn store(backend: &Backend, batch: Vec<Pair>, lease: &LeaseArgs) -> Result<(), Failure> {
    lock::refuse_held_of(backend, batch.iter().map(|(id, _)| id), lease).await?;
    backend.set_many(batch).await?;
    Ok(())
}

fn open(path: &Path, progress: &ProgressBar) -> Result<Box<dyn Read + Send>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(progress.wrap_read(io::stdin())));
    }
    let file = File::open(path).map_err(Failure::file(path))?;
    Ok(Box::new(progress.wrap_read(file)))
}

/// Reads the file state by state, and hands on batches of them.
fn read(file: impl Read, validate: bool, batches: &mpsc::Sender<Vec<Pair>>) -> Result<(), Failure> {
    let mut reader = serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 16, file));
    let mut states = States {
        validate,
        batches,
        batch: Vec::new(),
        bytes: 0,
    };
    let result = (&mut states)
        .deserialize(&mut reader)
        .and_then(|()| reader.end());
    // Also what comes before a place that is broken.
    states.hand_on();
    result.map_err(|error| Failure::NoExport(error.to_string()))
}

struct States<'a> {
    validate: bool,
    batches: &'a mpsc::Sender<Vec<Pair>>,
    batch: Vec<Pair>,
    bytes: usize,
}

impl States<'_> {
    /// False where nobody takes it any more.
    fn hand_on(&mut self) -> bool {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        batch.is_empty() || self.batches.blocking_send(batch).is_ok()
    }

    fn state(&self, id: &str, text: &str) -> Result<State, String> {
        let told = |failure: Failure| format!("the state `{id}`: {failure}");
        let state = State::from_json(text).map_err(|error| told(error.into()))?;
        if self.validate {
            document::check(&state).map_err(told)?;
        }
        Ok(state)
    }
}

impl<'de> DeserializeSeed<'de> for &mut States<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut States<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object whose members are states by their IDs")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(id) = map.next_key::<String>()? {
            let text: Box<RawValue> = map.next_value()?;
            let state = self.state(&id, text.get()).map_err(A::Error::custom)?;
            self.bytes += text.get().len();
            self.batch.push((StateId::from(id), state));
            if (self.batch.len() >= BATCH || self.bytes >= BATCH_BYTES) && !self.hand_on() {
                return Err(A::Error::custom("it was broken off"));
            }
        }
        Ok(())
    }
}
