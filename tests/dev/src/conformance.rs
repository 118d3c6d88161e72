//! `cargo dev conformance`: one suite of cases through every host.

use std::process::Command;

use harness::workspace;

use crate::run::{build, step};
use crate::{components, node, python};

/// Builds all hosts, runs the cases, and puts the table into the README.
pub(crate) fn conformance() -> Result<(), String> {
    node::build()?;
    python::build()?;
    run("--write")
}

/// The hosts of other languages are built already. Whether the README has the table that comes out.
pub(crate) fn check() -> Result<(), String> {
    run("--check")
}

fn run(what: &str) -> Result<(), String> {
    components::plugin()?;
    build(&["conformance", "conformance-invoke"])?;
    let runner = workspace().join("target/debug/conformance");
    step(Command::new(runner).arg(what).current_dir(workspace()))
}
