//! `cargo dev test`: every check that a change must pass; `cargo dev smoke`: a part of it; `cargo dev test-long`: what takes too long for
//! that.

use crate::run::{cargo, step};
use crate::{conformance, node, python};

pub(crate) fn test(quick: bool, args: &[String]) -> Result<(), String> {
    step(&mut cargo(&["fmt", "--all", "--check"]))?;
    if !quick {
        step(&mut cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--locked",
            "--",
            "-D",
            "warnings",
        ]))?;
    }
    step(cargo(&["test", "--workspace", "--locked"]).args(args))?;
    // Arguments choose among the tests of the crates, so the rest is not asked for.
    if args.is_empty() {
        node::node(false)?;
        python::python(false)?;
        conformance::check()?;
    }
    if !quick {
        let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
        step(doc.env("RUSTDOCFLAGS", "-D warnings"))?;
    }
    println!("\nEvery check has passed.");
    Ok(())
}

pub(crate) fn smoke() -> Result<(), String> {
    let package = "pipeline-state-command";
    step(&mut cargo(&[
        "test",
        "--locked",
        "--package",
        package,
        "--test",
        "smoke",
    ]))
}

pub(crate) fn long() -> Result<(), String> {
    for (suite, variable, value) in [
        ("holders", "PIPELINE_STATE_HOLDERS_SECONDS", "600"),
        ("soak", "PIPELINE_STATE_SOAK_GETS", "100000"),
        ("program_memory", "PIPELINE_STATE_MANY_STATES", "1000000"),
    ] {
        let mut test = cargo(&["test", "--locked", "--package", "pipeline-state"]);
        test.args(["--test", suite, "--", "--nocapture"]);
        step(test.env(variable, value))?;
    }
    step(&mut cargo(&[
        "test",
        "--release",
        "--locked",
        "--package",
        "pipeline-state-clickhouse",
        "--",
        "--ignored",
    ]))
}
