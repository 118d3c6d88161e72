//! `edit`: a state in an editor.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

use pipeline_state::{Backend, Error, Expectation, State, StateId};
use tempfile::NamedTempFile;

use super::args::LeaseArgs;
use super::failure::Failure;
use super::output::Output;
use super::{ask, document};

/// Edit a state as JSON in $VISUAL, $EDITOR or vi
///
/// What is left as it was writes nothing. What somebody else has written meanwhile is not overwritten: it is shown, and your file is
/// kept.
#[derive(clap::Args)]
pub(super) struct EditArgs {
    /// Whose state; a new one where there is none
    pub(super) id: StateId,
    /// Take also what has no `singer_state` at the top of a document, which Meltano would not read
    #[arg(long)]
    no_validate: bool,
    /// Without effect: as `meltano state edit` has it, which asks before it opens the editor
    #[arg(long = "force")]
    _force: bool,
    #[command(flatten)]
    pub(super) lease: LeaseArgs,
}

pub(super) async fn run(backend: &Backend, args: &EditArgs, output: Output) -> Result<(), Failure> {
    let stored = backend.get(&args.id).await?;
    let (before, expect) = match stored {
        Some(entry) => (entry.state, Expectation::Version(entry.version)),
        None => (State::default(), Expectation::Absent),
    };
    let text = document::pretty_state(&before);
    // It is this user's alone.
    let mut file = tempfile::Builder::new()
        .prefix("pipeline-state-")
        .suffix(".json")
        .tempfile()?;
    file.write_all(text.as_bytes())?;
    file.flush()?;
    let edited = loop {
        open_editor(file.path())?;
        let edited = fs::read_to_string(file.path())?;
        if edited.trim().is_empty() || document::one_line(&edited) == document::one_line(&text) {
            output.note("nothing was changed");
            return Ok(());
        }
        match state(&edited, args) {
            Ok(edited) => break edited,
            Err(failure) if !ask::is_interactive() => return kept(file, failure),
            Err(failure) => {
                output.note(&format!("error: {failure}"));
                if !ask::yes("Edit it again?", true)? {
                    return kept(file, failure);
                }
            }
        }
    };
    let after = merge_bytes(&before, edited);
    match backend.set_if(&args.id, after, expect).await {
        Ok(version) => Ok(output.written(&args.id, version)?),
        Err(error) => {
            if let Error::Conflict { .. } = error {
                show_conflict(backend, &args.id, &text).await?;
            }
            kept(file, Failure::from(error))
        }
    }
}

fn state(text: &str, args: &EditArgs) -> Result<State, Failure> {
    let state = State::from_json(text)?;
    if !args.no_validate {
        document::check(&state)?;
    }
    Ok(state)
}

/// A document that was only laid out for reading keeps its bytes.
fn merge_bytes(before: &State, edited: State) -> State {
    let keep = |before: &Option<String>, edited: Option<String>| {
        let edited = document::one_line(&edited?);
        match before {
            Some(before) if document::one_line(before) == edited => Some(before.clone()),
            _ => Some(edited),
        }
    };
    State {
        completed: keep(&before.completed, edited.completed),
        partial: keep(&before.partial, edited.partial),
    }
}

async fn show_conflict(backend: &Backend, id: &StateId, before: &str) -> Result<(), Failure> {
    let now = match backend.get(id).await? {
        Some(entry) => document::pretty_state(&entry.state),
        None => String::new(),
    };
    let diff = document::diff(("as you began", before), ("as it is stored now", &now));
    Ok(io::stderr().write_all(diff.as_bytes())?)
}

/// No work is thrown away.
fn kept(file: NamedTempFile, failure: Failure) -> Result<(), Failure> {
    let (_, path) = file.keep().map_err(|error| error.error)?;
    Err(Failure::Edited {
        path,
        failure: Box::new(failure),
    })
}

/// As a shell's command, so that it may have arguments (`code --wait`).
fn open_editor(file: &Path) -> Result<(), Failure> {
    let set = |name| env::var_os(name).filter(|editor| !editor.is_empty());
    let editor = set("VISUAL").or_else(|| set("EDITOR"));
    let mut command = match cfg!(unix) {
        true => {
            let mut script = editor.clone().unwrap_or_else(|| OsString::from("vi"));
            script.push(" \"$@\"");
            let mut command = Command::new("sh");
            command.arg("-c").arg(script).arg("sh").arg(file);
            command
        }
        false => {
            let editor = editor.clone().unwrap_or_else(|| OsString::from("notepad"));
            let mut command = Command::new(editor);
            command.arg(file);
            command
        }
    };
    let status = command.status().map_err(|error| Failure::NotStarted {
        program: editor.unwrap_or_else(|| OsString::from("vi")),
        error,
    })?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::Editor(status)),
    }
}
