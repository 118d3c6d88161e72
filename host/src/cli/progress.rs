//! How far a command has got, on a terminal alone: neither in a log, nor beside `--json`, nor where nobody wants it.

use std::io::{self, IsTerminal};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};

use super::output::Output;

/// Of a file that is read. Its length is known, unless it is a pipe.
pub(super) fn of_file(path: &Path, output: Output) -> ProgressBar {
    let length = std::fs::metadata(path).ok().filter(|file| file.is_file());
    match length {
        Some(file) => shown(
            ProgressBar::new(file.len()),
            "{wide_bar} {bytes} of {total_bytes}, {eta} left",
            output,
        ),
        None => shown(ProgressBar::new_spinner(), "{spinner} {bytes}", output),
    }
}

/// Of states, of which no store says beforehand how many there are.
pub(super) fn of_states(output: Output) -> ProgressBar {
    let template = "{spinner} {human_pos} states, {per_sec}";
    shown(ProgressBar::new_spinner(), template, output)
}

fn shown(bar: ProgressBar, template: &str, output: Output) -> ProgressBar {
    if output.quiet || output.json || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
