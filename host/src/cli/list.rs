//! `list` and `get`: what is stored.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};

use clap::ValueEnum;
use pipeline_state::{Backend, Entry, Holder, StateId};
use serde_json::json;

use super::document::{self, Kind};
use super::failure::{Failure, plain};
use super::ids;
use super::output::{Colour, Output, coloured, has_colours, raw, write_line};
use super::pages;
use super::time::utc;

#[derive(clap::Args)]
#[command(
    after_help = "On a terminal the colour says whether Meltano reads a state: green, or red where a document has no singer_state, or \
                  yellow for an empty one. --long says so in words, as the last but one column of: ID, time, bytes, version, valid or \
                  invalid or empty, who holds the lease."
)]
pub(super) struct ListArgs {
    /// Only IDs that match: * any text, ? one character, [abc] or [!abc] one of some
    #[arg(long, default_value = "*", hide_default_value = true)]
    pattern: String,
    /// Print time, size, version, validity and the holder of the lease too
    #[arg(short, long)]
    long: bool,
}

pub(super) async fn list(
    backend: &Backend,
    args: &ListArgs,
    output: Output,
) -> Result<(), Failure> {
    match args.long || has_colours() && !output.json {
        true => states(backend, args, output).await,
        false => only_ids(backend, &args.pattern, output).await,
    }
}

async fn only_ids(backend: &Backend, pattern: &str, output: Output) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    pages::of_ids(backend, pattern, |ids| {
        for id in ids {
            match output.json {
                true => write_line(&mut out, &json!({"id": id.as_str()}))?,
                false => writeln!(out, "{id}")?,
            }
        }
        Ok(())
    })
    .await?;
    Ok(out.flush()?)
}

async fn states(backend: &Backend, args: &ListArgs, output: Output) -> Result<(), Failure> {
    let holders: HashMap<StateId, Holder> = match args.long {
        true => {
            let holders = backend.holders(&args.pattern).await?.into_iter();
            holders.map(|holder| (holder.id.clone(), holder)).collect()
        }
        false => HashMap::new(),
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let colours = has_colours();
    pages::of_states(backend, &args.pattern, |entries| {
        for entry in &entries {
            let holder = holders.get(&entry.id);
            match (output.json, args.long) {
                (true, _) => write_line(&mut out, &as_json(entry, holder))?,
                (false, true) => writeln!(out, "{}", as_line(entry, holder, colours))?,
                (false, false) => writeln!(out, "{}", shown(entry, colours))?,
            }
        }
        Ok(())
    })
    .await?;
    Ok(out.flush()?)
}

fn as_json(entry: &Entry, holder: Option<&Holder>) -> serde_json::Value {
    json!({
        "id": entry.id.as_str(),
        "updated_at": utc(entry.updated_at_ms),
        "bytes": size(entry),
        "version": entry.version.to_string(),
        "state": Kind::of(&entry.state).name(),
        "holder": holder.map(|holder| holder.owner.as_str()),
    })
}

fn as_line(entry: &Entry, holder: Option<&Holder>, colours: bool) -> String {
    format!(
        "{}\t{}\t{}\t{}\t{}\t{}",
        shown(entry, colours),
        utc(entry.updated_at_ms),
        size(entry),
        entry.version,
        Kind::of(&entry.state).name(),
        holder.map_or(String::from("-"), |holder| plain(&holder.owner)),
    )
}

/// What the documents take.
fn size(entry: &Entry) -> usize {
    let length = |document: &Option<String>| document.as_ref().map_or(0, String::len);
    length(&entry.state.completed) + length(&entry.state.partial)
}

/// The ID, in Meltano's colours.
fn shown(entry: &Entry, colours: bool) -> String {
    if !colours {
        return entry.id.to_string();
    }
    let colour = match Kind::of(&entry.state) {
        Kind::Valid => Colour::Green,
        Kind::Invalid => Colour::Red,
        Kind::Empty => Colour::Yellow,
    };
    coloured(&plain(entry.id.as_str()), colour)
}

/// How a state is laid out.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Format {
    /// As it is stored, on one line unless a document has line breaks
    Json,
    /// With a line for each member
    Pretty,
}

#[derive(clap::Args)]
pub(super) struct GetArgs {
    /// Whose state
    id: StateId,
    /// How it is laid out
    #[arg(long, value_enum, default_value = "json")]
    format: Format,
    /// Print what the next run reads: partial merged over completed, as `meltano state get` does
    #[arg(long)]
    merged: bool,
}

pub(super) async fn get(backend: &Backend, args: &GetArgs, output: Output) -> Result<(), Failure> {
    let entry = ids::stored(backend, &args.id).await?;
    let state = match args.merged {
        false => entry.state.to_json(),
        true => {
            let (completed, partial) = (&entry.state.completed, &entry.state.partial);
            document::merge(completed.as_deref(), partial.as_deref())?
                .unwrap_or_else(|| String::from("{}"))
        }
    };
    let mut out = io::stdout().lock();
    if output.json {
        #[derive(serde::Serialize)]
        struct Stored<'a> {
            id: &'a str,
            version: String,
            updated_at: String,
            state: Box<serde_json::value::RawValue>,
        }
        return Ok(write_line(
            &mut out,
            &Stored {
                id: entry.id.as_str(),
                version: entry.version.to_string(),
                updated_at: utc(entry.updated_at_ms),
                state: raw(&state)?,
            },
        )?);
    }
    match args.format {
        Format::Json => writeln!(out, "{state}")?,
        Format::Pretty => writeln!(out, "{}", document::pretty(&state))?,
    }
    Ok(())
}
