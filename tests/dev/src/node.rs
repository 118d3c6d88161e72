//! `cargo dev node`: the npm package, from the component to its example.

use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{ClickHouse, GIVEN_VARIABLE, workspace};

use crate::components;
use crate::run::{capture, step};

/// What the package's build script and its tests read.
const COMPONENT_VARIABLE: &str = "PIPELINE_STATE_COMPONENT";
const HOSTILE_VARIABLE: &str = "PIPELINE_STATE_TEST_HOSTILE";

pub(crate) fn node(bench: bool) -> Result<(), String> {
    build()?;
    let hostile = components::hostile()?;

    let server = ClickHouse::start().map_err(|error| error.to_string())?;
    let given = url(&server);
    step(
        npm(&["test"])
            .env(GIVEN_VARIABLE, &given)
            .env(HOSTILE_VARIABLE, hostile),
    )?;
    // Databases of their own, since the server may be the user's.
    let schema = harness::fresh_name("pipeline_state_node");
    let run = |script: &str| {
        let mut node = Command::new("node");
        node.arg(script)
            .current_dir(workspace().join("host/node"))
            .env("PIPELINE_STATE_URI", server.uri("default"))
            .env("PIPELINE_STATE_CLICKHOUSE_SCHEMA", &schema);
        step(&mut node)
    };
    let done = run("examples/bookmarks.js").and_then(|()| match bench {
        true => run("bench.js"),
        false => Ok(()),
    });
    server
        .query(&format!("DROP DATABASE IF EXISTS {schema}"))
        .map_err(|error| error.to_string())?;
    done
}

/// Builds the package and puts it as one file into `out`.
pub(crate) fn tarball(out: &Path) -> Result<PathBuf, String> {
    build()?;
    let mut pack = npm(&["pack", "--silent", "--pack-destination"]);
    let packed = capture(pack.arg(out))?;
    // It prints the file's name.
    match (packed.code, packed.stdout.trim()) {
        (Some(0), name) if !name.is_empty() => Ok(out.join(name)),
        _ => Err(format!("npm pack: {}", packed.stderr)),
    }
}

/// The package alone.
pub(crate) fn build() -> Result<(), String> {
    let plugin = components::plugin()?;
    step(&mut npm(&["ci", "--no-audit", "--no-fund"]))?;
    step(npm(&["run", "build"]).env(COMPONENT_VARIABLE, plugin))
}

/// As [`GIVEN_VARIABLE`] wants it.
fn url(server: &ClickHouse) -> String {
    server
        .uri("")
        .replacen("clickhouse://", "http://", 1)
        .trim_end_matches('/')
        .to_owned()
}

/// npm, in the package's folder.
fn npm(args: &[&str]) -> Command {
    let mut npm = Command::new("npm");
    npm.args(args).current_dir(workspace().join("host/node"));
    npm
}
