//! `cargo dev conformance`: one suite of cases through every host.

use crate::run::{cargo, step};
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
    let driver = [
        "--locked",
        "--package",
        "pipeline-state",
        "--example",
        "driver",
    ];
    step(cargo(&["build"]).args(driver))?;
    // With the driver of wasmtime.
    step(&mut cargo(&[
        "build",
        "--locked",
        "--package",
        "conformance",
    ]))?;
    let runner = ["--package", "conformance", "--bin", "conformance"];
    step(
        cargo(&["run", "--quiet", "--locked"])
            .args(runner)
            .args(["--", what]),
    )
}
