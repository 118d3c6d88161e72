//! What is printed: for people, or with `--json` one JSON object on a line for scripts.

use std::io::{self, IsTerminal, Write};

use pipeline_state::{Error, StateId, Version};
use serde::Serialize;

use super::failure::plain;

/// How a command tells what it did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Output {
    pub(super) json: bool,
    pub(super) quiet: bool,
}

impl Output {
    /// What was written: nothing for people, who know what they asked for.
    pub(super) fn written(self, id: &StateId, version: Version) -> io::Result<()> {
        match self.json {
            true => line(&serde_json::json!({"id": id.as_str(), "version": version.to_string()})),
            false => Ok(()),
        }
    }

    /// A result that is one object with `--json`, and else a sentence on stderr.
    pub(super) fn result(self, object: &serde_json::Value, sentence: &str) -> io::Result<()> {
        match self.json {
            true => line(object),
            false => {
                self.note(sentence);
                Ok(())
            }
        }
    }

    /// A sentence beside the result.
    pub(super) fn note(self, sentence: &str) {
        if !self.quiet {
            // With stderr closed there is nobody to tell.
            let _ = writeln!(io::stderr(), "{}", plain(sentence));
        }
    }
}

/// One object on one line of stdout.
pub(super) fn line(object: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write_line(&mut out, object)
}

pub(super) fn write_line(out: &mut impl Write, object: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, object)?;
    writeln!(out)
}

/// Whether what is printed on stdout may have colours.
pub(super) fn has_colours() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// By their numbers in a terminal.
#[derive(Clone, Copy)]
pub(super) enum Colour {
    Red = 31,
    Green = 32,
    Yellow = 33,
}

pub(super) fn coloured(text: &str, colour: Colour) -> String {
    format!("\u{1b}[{}m{text}\u{1b}[0m", colour as u8)
}

/// A text that is read back as JSON, in an object.
pub(super) fn raw(json: &str) -> Result<Box<serde_json::value::RawValue>, Error> {
    serde_json::value::RawValue::from_string(super::document::one_line(json))
        .map_err(|error| Error::Corrupt(format!("a stored document is no JSON: {error}")))
}
