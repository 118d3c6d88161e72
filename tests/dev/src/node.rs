//! `cargo dev node`: the npm package, from the component to its example.

use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{GIVEN_VARIABLE, workspace};

use crate::components;
use crate::run::{capture, step};
use crate::server::Server;

/// What the package's build script and its tests read.
const COMPONENT_VARIABLE: &str = "PIPELINE_STATE_COMPONENT";
const HOSTILE_VARIABLE: &str = "PIPELINE_STATE_TEST_HOSTILE";

pub(crate) fn node(bench: bool) -> Result<(), String> {
    build()?;
    let hostile = components::hostile()?;

    Server::with("pipeline_state_node", |server| {
        step(
            npm(&["test"])
                .env(GIVEN_VARIABLE, server.given())
                .env(HOSTILE_VARIABLE, hostile),
        )?;
        let scripts = ["examples/bookmarks.js"]
            .into_iter()
            .chain(bench.then_some("bench.js"));
        server.run(scripts.map(|script| {
            let mut node = Command::new("node");
            node.arg(script).current_dir(workspace().join("host/node"));
            node
        }))
    })
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

/// npm, in the package's folder.
fn npm(args: &[&str]) -> Command {
    let mut npm = Command::new("npm");
    npm.args(args).current_dir(workspace().join("host/node"));
    npm
}
