//! `export`: all states as one JSON object, as `meltano state export` prints them.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use pipeline_state::{Backend, Entry};

use super::failure::Failure;
use super::interrupt;
use super::output::Output;
use super::{pages, progress};

/// Print all states as {ID: {"completed": {...}, "partial": {...}}}, as `meltano state export` does
///
/// The documents are as they are stored, byte for byte. States are read page by page, in the order of their IDs, so that any number of
/// them takes little memory; what is written meanwhile may be among them or not.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  pipeline-state export -o states.json\n  pipeline-state export --pattern 'dev:*' | pipeline-state --uri ... import"
)]
pub(super) struct ExportArgs {
    /// Only IDs that match: * any text, ? one character, [abc] or [!abc] one of some
    #[arg(long, default_value = "*", hide_default_value = true)]
    pattern: String,
    /// Write to a file, which is there when all is written, and not before
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) async fn run(
    backend: &Backend,
    args: &ExportArgs,
    output: Output,
) -> Result<(), Failure> {
    let Some(path) = &args.output else {
        let mut out = BufWriter::new(io::stdout().lock());
        // Not among the states, where both are for one terminal.
        let progress = match io::stdout().is_terminal() {
            true => ProgressBar::hidden(),
            false => progress::of_states(output),
        };
        write(backend, &args.pattern, &mut out, &progress).await?;
        return Ok(out.flush()?);
    };
    // Beside it, so that giving it its name is one step. It goes away with this function otherwise.
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let file = tempfile::Builder::new()
        .prefix(".pipeline-state-")
        .tempfile_in(folder)
        .map_err(Failure::file(path))?;
    let mut out = BufWriter::new(file);
    let progress = progress::of_states(output);
    let count = interrupt::or(write(backend, &args.pattern, &mut out, &progress)).await??;
    let file = out
        .into_inner()
        .map_err(|error| Failure::file(path)(error.into_error()))?;
    file.as_file().sync_all().map_err(Failure::file(path))?;
    file.persist(path)
        .map_err(|error| Failure::file(path)(error.error))?;
    output.note(&format!("exported {count} states"));
    Ok(())
}

/// A state on each line, unless a document has line breaks of its own.
async fn write(
    backend: &Backend,
    pattern: &str,
    out: &mut impl Write,
    progress: &ProgressBar,
) -> Result<u64, Failure> {
    let mut count = 0;
    out.write_all(b"{")?;
    pages::of_states(backend, pattern, |entries| {
        for Entry { id, state, .. } in &entries {
            let separator = if count == 0 { "\n" } else { ",\n" };
            let id = serde_json::to_string(id.as_str()).map_err(io::Error::from)?;
            write!(out, "{separator}{id}: {}", state.to_json())?;
            count += 1;
        }
        progress.set_position(count);
        Ok(())
    })
    .await?;
    progress.finish_and_clear();
    out.write_all(if count == 0 { b"}\n" } else { b"\n}\n" })?;
    Ok(count)
}
