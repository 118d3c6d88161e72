//! The table of hosts and areas, and its place in the README.

use std::fs;

use harness::workspace;

use crate::case::{Case, Host};

const BEGIN: &str = "<!-- What `cargo dev conformance` gives: -->\n";
const END: &str = "<!-- until here -->\n";

/// What a host did, case by case.
pub(crate) struct Column<'a> {
    pub(crate) host: &'a Host,
    /// In the order of the cases.
    pub(crate) results: Vec<Outcome>,
}

/// What became of a case.
pub(crate) enum Outcome {
    Passed,
    Failed,
    /// The host can't do it, and the case says why.
    Excepted,
}

/// The table as Markdown, with what hosts can't do below it.
pub(crate) fn table(cases: &[Case], hosts: &[Column]) -> String {
    let mut areas: Vec<&str> = Vec::new();
    for case in cases {
        if !areas.contains(&case.area.as_str()) {
            areas.push(&case.area);
        }
    }
    let mut text = format!("| host | {} | all |\n", areas.join(" | "));
    text += &format!("|---|{}\n", "---|".repeat(areas.len() + 1));
    for host in hosts {
        let count = |area: Option<&str>| {
            let (mut passed, mut all) = (0, 0);
            for (case, outcome) in cases.iter().zip(&host.results) {
                if area.is_none_or(|area| area == case.area) {
                    passed += usize::from(matches!(outcome, Outcome::Passed));
                    all += 1;
                }
            }
            format!("{passed}/{all}")
        };
        let cells = areas.iter().map(|area| count(Some(area)));
        let cells: Vec<_> = cells.chain([count(None)]).collect();
        text += &format!("| {} | {} |\n", host.host.host, cells.join(" | "));
    }
    for case in cases {
        for (host, why) in &case.except {
            text += &format!("\n{host} can't do \"{}\": {why}.\n", case.name);
        }
    }
    text
}

/// Puts the table into the README in place of the one that is there.
pub(crate) fn write(table: &str) -> Result<(), String> {
    let (path, text) = readme()?;
    let text = replaced(&text, table)?;
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Whether the README has this table.
pub(crate) fn check(table: &str) -> Result<(), String> {
    let (_, text) = readme()?;
    match replaced(&text, table)? == text {
        true => Ok(()),
        false => Err(
            "the table in README.md is another one; `cargo dev conformance` writes it".to_owned(),
        ),
    }
}

fn readme() -> Result<(std::path::PathBuf, String), String> {
    let path = workspace().join("README.md");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok((path, text))
}

fn replaced(text: &str, table: &str) -> Result<String, String> {
    let parts = text
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) =
        parts.ok_or_else(|| format!("README.md lacks the lines {BEGIN:?} and {END:?}"))?;
    Ok(format!("{before}{BEGIN}\n{table}\n{END}{after}"))
}
