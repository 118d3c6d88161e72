//! What each command does.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use pipeline_state::{
    Backend, Description, Finding, Inspection, Plugins, Severity, State, StateId, Version,
};

use super::failure::Failure;

/// How many IDs are asked for at once: a few hundred kilobytes.
const IDS_AT_ONCE: u32 = 10_000;

pub(super) async fn list(backend: &Backend, pattern: &str) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut after = None;
    loop {
        let page = backend
            .get_ids(pattern, after.as_ref(), IDS_AT_ONCE)
            .await?;
        for id in &page.ids {
            writeln!(out, "{id}")?;
        }
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    Ok(out.flush()?)
}

pub(super) async fn get(backend: &Backend, id: &StateId) -> Result<(), Failure> {
    let Some(entry) = backend.get(id).await? else {
        return Err(Failure::NoSuchState(id.to_string()));
    };
    Ok(writeln!(io::stdout(), "{}", entry.state.to_json())?)
}

pub(super) async fn set(backend: &Backend, id: &StateId, state: State) -> Result<(), Failure> {
    backend.set(id, state).await?;
    Ok(())
}

pub(super) async fn delete(backend: &Backend, id: &StateId) -> Result<(), Failure> {
    match backend.delete(id).await? {
        true => Ok(()),
        false => Err(Failure::NoSuchState(id.to_string())),
    }
}

/// A line for each version: the version, the time, and the state, or that it was deleted.
pub(super) async fn history(backend: &Backend, id: &StateId, limit: u32) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    for change in backend.versions(id, None, limit).await? {
        let state = match &change.state {
            Some(state) => state.to_json(),
            None => String::from("deleted"),
        };
        let time = utc(change.written_at_ms);
        writeln!(out, "{}\t{time}\t{state}", change.version)?;
    }
    Ok(out.flush()?)
}

pub(super) fn utc(milliseconds: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_millis(milliseconds);
    humantime::format_rfc3339_millis(time).to_string()
}

pub(super) async fn restore(
    backend: &Backend,
    id: &StateId,
    version: Version,
) -> Result<(), Failure> {
    let missing = || Failure::NoSuchVersion {
        id: id.to_string(),
        version,
    };
    // The newest one before the version after it.
    let before = Version::from(version.get().saturating_add(1));
    let changes = backend.versions(id, Some(before), 1).await?;
    let change = changes
        .into_iter()
        .find(|change| change.version == version)
        .ok_or_else(missing)?;
    match change.state {
        Some(state) => drop(backend.set(id, state).await?),
        None => drop(backend.delete(id).await?),
    }
    Ok(())
}

/// Prints every finding; fails if one is a problem.
pub(super) async fn doctor(backend: &Backend) -> Result<(), Failure> {
    let findings = backend.check().await?;
    let mut out = io::stdout().lock();
    for finding in &findings {
        writeln!(
            out,
            "{:<8} {:<11} {}",
            finding.severity, finding.subject, finding.text
        )?;
        if let Some(mend) = &finding.mend {
            writeln!(out, "{:<20} -> {mend}", "")?;
        }
    }
    let problems = |finding: &&Finding| finding.severity == Severity::Problem;
    match findings.iter().filter(problems).count() {
        0 => Ok(()),
        count => Err(Failure::Problems(count)),
    }
}

pub(super) async fn migrate(backend: &Backend) -> Result<(), Failure> {
    let done = backend.migrate().await?;
    let mut out = io::stdout().lock();
    if done.is_empty() {
        writeln!(out, "nothing to do")?;
    }
    Ok(done.iter().try_for_each(|line| writeln!(out, "{line}"))?)
}

pub(super) async fn clear(backend: &Backend, force: bool) -> Result<(), Failure> {
    if !force {
        return Err(Failure::NotForced);
    }
    let count = backend.clear().await?;
    Ok(writeln!(io::stderr(), "deleted {count} states")?)
}

/// The state that `set` was given, on the command line or in a file.
pub(super) fn read_state(text: Option<&str>, file: Option<&Path>) -> Result<State, Failure> {
    let read = |file: &Path| match file.to_str() {
        Some("-") => io::read_to_string(io::stdin()),
        _ => {
            let mut text = String::new();
            File::open(file)?.read_to_string(&mut text).map(|_| text)
        }
    };
    let from_file = file
        .map(|path| {
            read(path).map_err(|error| Failure::File {
                path: path.to_owned(),
                error,
            })
        })
        .transpose()?;
    let text = from_file.as_deref().or(text).unwrap_or_default();
    Ok(State::from_json(text)?)
}

pub(super) fn plugins_list(plugins: &Plugins) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    for plugin in plugins.iter() {
        let Description { name, version, .. } = plugin.description;
        writeln!(
            out,
            "{}\t{name} {version}\t{}\t{}",
            plugin.scheme, plugin.source, plugin.digest
        )?;
    }
    Ok(())
}

/// Prints all that can be known, then fails if the file is no plugin.
pub(super) fn plugins_inspect(inspection: Inspection) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "digest   {}", inspection.digest)?;
    writeln!(out, "size     {} bytes", inspection.size)?;
    print_list(&mut out, "imports", &inspection.imports)?;
    print_list(&mut out, "exports", &inspection.exports)?;
    let description = inspection.description?;
    writeln!(out, "plugin   {} {}", description.name, description.version)?;
    print_list(&mut out, "schemes", &description.schemes)?;
    writeln!(
        out,
        "ports    {} for HTTP, {} for HTTPS",
        description.plain_port, description.tls_port
    )?;
    let settings: Vec<String> = description
        .settings
        .iter()
        .map(|setting| {
            let default = match &setting.default {
                Some(default) => format!(", default {default}"),
                None => String::new(),
            };
            let sensitive = if setting.sensitive { ", sensitive" } else { "" };
            format!(
                "{} ({}{default}{sensitive}): {}; {}",
                setting.name, setting.kind, setting.label, setting.env
            )
        })
        .collect();
    Ok(print_list(&mut out, "settings", &settings)?)
}

fn print_list(out: &mut impl Write, title: &str, items: &[String]) -> io::Result<()> {
    writeln!(out, "{title}")?;
    items.iter().try_for_each(|item| writeln!(out, "  {item}"))
}
