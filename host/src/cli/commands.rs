//! What the shorter commands do.

use std::io::{self, Write};

use pipeline_state::{Backend, Description, Finding, Inspection, Plugins, Severity};
use serde_json::json;

use super::failure::{Failure, plain};
use super::output::{Output, write_line};

/// Prints every finding; fails if one is a problem.
pub(super) fn doctor(
    findings: &[Finding],
    places: &[String],
    output: Output,
) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    for text in places {
        if output.json {
            let line =
                json!({"severity": "fine", "subject": "setting", "text": text, "mend": null});
            write_line(&mut out, &line)?;
        } else {
            let text = plain(text);
            writeln!(out, "{:<8} {:<11} {text}", "fine", "setting")?;
        }
    }
    for finding in findings {
        if output.json {
            let line = json!({
                "severity": finding.severity.to_string(),
                "subject": finding.subject,
                "text": finding.text,
                "mend": finding.mend,
            });
            write_line(&mut out, &line)?;
            continue;
        }
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

pub(super) async fn migrate(backend: &Backend, output: Output) -> Result<(), Failure> {
    let done = backend.migrate().await?;
    let mut out = io::stdout().lock();
    if output.json {
        return Ok(write_line(&mut out, &json!({"done": done}))?);
    }
    if done.is_empty() {
        writeln!(out, "nothing to do")?;
    }
    Ok(done.iter().try_for_each(|line| writeln!(out, "{line}"))?)
}

pub(super) fn plugins_list(plugins: &Plugins, output: Output) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    for plugin in plugins.iter() {
        let Description { name, version, .. } = plugin.description;
        if output.json {
            let line = json!({
                "scheme": plugin.scheme,
                "name": name,
                "version": version,
                "source": plugin.source,
                "digest": plugin.digest,
            });
            write_line(&mut out, &line)?;
            continue;
        }
        writeln!(
            out,
            "{}\t{name} {version}\t{}\t{}",
            plugin.scheme, plugin.source, plugin.digest
        )?;
    }
    Ok(())
}

/// Prints all that can be known, then fails if the file is no plugin.
pub(super) fn plugins_inspect(inspection: Inspection, output: Output) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if output.json {
        write_line(&mut out, &as_json(&inspection))?;
        return inspection.description.map(drop).map_err(Failure::from);
    }
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

fn as_json(inspection: &Inspection) -> serde_json::Value {
    let plugin = inspection.description.as_ref().ok().map(|description| {
        let settings = description.settings.iter().map(|setting| {
            json!({
                "name": setting.name,
                "kind": setting.kind,
                "label": setting.label,
                "default": setting.default,
                "sensitive": setting.sensitive,
                "env": setting.env,
            })
        });
        json!({
            "name": description.name,
            "version": description.version,
            "schemes": description.schemes,
            "ports": {"http": description.plain_port, "https": description.tls_port},
            "settings": settings.collect::<Vec<_>>(),
        })
    });
    json!({
        "digest": inspection.digest,
        "bytes": inspection.size,
        "imports": inspection.imports,
        "exports": inspection.exports,
        "plugin": plugin,
    })
}
