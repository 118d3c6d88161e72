//! `cargo dev components`: plugins as files, for hosts in other languages.

use std::path::PathBuf;

use harness::workspace;

use crate::run::{cargo, step};

/// The ClickHouse plugin.
pub(crate) fn plugin() -> Result<PathBuf, String> {
    build(&["pipeline-state-clickhouse"], "clickhouse.wasm")
}

/// The plugin of the tests that means harm.
pub(crate) fn hostile() -> Result<PathBuf, String> {
    build(&["hostile-plugin"], "hostile.wasm")
}

/// The ClickHouse plugin with the commands around it.
pub(crate) fn command() -> Result<PathBuf, String> {
    build(
        &["pipeline-state-clickhouse", "pipeline-state-command"],
        "pipeline-state-clickhouse.wasm",
    )
}

/// The contract, as one file.
pub(crate) fn contract() -> Result<PathBuf, String> {
    build(&["--wit"], "pipeline-state.wit.wasm")
}

/// `what` is packages, or an option.
fn build(what: &[&str], file: &str) -> Result<PathBuf, String> {
    let path = workspace().join("target/components").join(file);
    let mut build = cargo(&["run", "--quiet", "--locked", "--package", "component-build"]);
    step(
        build
            .args(["--features", "compose", "--"])
            .args(what)
            .arg(&path),
    )?;
    Ok(path)
}
