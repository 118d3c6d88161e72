//! `cargo dev test`: every check that a change must pass.

use crate::run::{cargo, step};

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
    if !quick {
        let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
        step(doc.env("RUSTDOCFLAGS", "-D warnings"))?;
    }
    println!("\nEvery check has passed.");
    Ok(())
}
