//! `cargo dev package`: everything that is given away, as files in `target/package/out`, and each of them tried as its user would.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::workspace;

use crate::components;
use crate::crates::{self, copy};
use crate::node;
use crate::python;
use crate::run::{capture, step};
use crate::server::Server;

const SUMS: &str = "SHA256SUMS";
/// What each of them is asked to keep.
const ID: &str = "dev:tap-github-to-target-jsonl";
const STATE: &str =
    r#"{"completed": {"singer_state": {"n": 18446744073709551617}}, "partial": {}}"#;

pub(crate) fn package() -> Result<(), String> {
    let home = workspace().join("target/package");
    let out = home.join("out");
    emptied(&out)?;

    let plugin = given(&components::plugin()?, &out)?;
    let command = given(&components::command()?, &out)?;
    given(&components::contract()?, &out)?;
    let tarball = node::tarball(&out)?;
    let crates = crates::package(&plugin, &home)?;
    for file in &crates.files {
        given(file, &out)?;
    }
    let wheel = python::wheel(&out)?;
    sums(&out)?;

    Server::with("pipeline_state_package", |server| {
        let home = home.join("trial");
        emptied(&home)?;
        let trial = Trial { home, server };
        trial.program(&crates.program, &plugin)?;
        trial.command(&command)?;
        trial.tarball(&tarball)?;
        trial.wheel(&wheel)
    })?;

    step(
        Command::new("sha256sum")
            .args(["--check", SUMS])
            .current_dir(&out),
    )?;
    println!("\nAll of {} was tried.", out.display());
    Ok(())
}

/// Puts a file among the others, and returns where it is there.
fn given(file: &Path, out: &Path) -> Result<PathBuf, String> {
    let name = file
        .file_name()
        .ok_or_else(|| format!("{} is no file", file.display()))?;
    let to = out.join(name);
    copy(file, &to)?;
    Ok(to)
}

fn emptied(folder: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(failed)?;
    }
    fs::create_dir_all(folder).map_err(failed)
}

/// Writes the digests of all files of a folder into one more, as `sha256sum --check` reads them.
fn sums(folder: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut names = fs::read_dir(folder)
        .and_then(|files| {
            files
                .map(|file| Ok(file?.file_name()))
                .collect::<Result<Vec<_>, _>>()
        })
        .map_err(failed)?;
    names.sort();
    let summed = capture(Command::new("sha256sum").args(&names).current_dir(folder))?;
    match summed.code {
        Some(0) => fs::write(folder.join(SUMS), summed.stdout).map_err(failed),
        _ => Err(format!("sha256sum: {}", summed.stderr)),
    }
}

/// What somebody would do who has these files, and nothing of this workspace.
struct Trial<'a> {
    home: PathBuf,
    server: &'a Server,
}

impl Trial<'_> {
    /// The packaged crate's program, with the plugin inside, and with the one that is a file.
    fn program(&self, program: &Path, plugin: &Path) -> Result<(), String> {
        step(Command::new(program).args(["plugins", "list"]))?;
        let inspect = ["plugins", "inspect"];
        step(Command::new(program).args(inspect).arg(plugin))?;
        step(
            self.server
                .told(Command::new(program).args(["set", ID, STATE])),
        )?;
        self.prints_the_state(self.server.told(Command::new(program).args(["get", ID])))
    }

    /// It finds what the program has set.
    fn command(&self, command: &Path) -> Result<(), String> {
        let wasmtime = harness::wasmtime().map_err(|error| error.to_string())?;
        let mut run = Command::new(wasmtime);
        run.args(["run", "-S", "http", "--env", "PIPELINE_STATE_URI"]);
        run.args(["--env", "PIPELINE_STATE_CLICKHOUSE_SCHEMA"]);
        run.arg(command).args(["get", ID]);
        self.prints_the_state(self.server.told(&mut run))
    }

    /// In a project that has nothing else.
    fn tarball(&self, tarball: &Path) -> Result<(), String> {
        let project = self.home.join("node");
        emptied(&project)?;
        // Beside the script, so that it finds the package of this project, and not of the workspace.
        let script = project.join("bookmarks.mjs");
        copy(
            &workspace().join("host/node/examples/bookmarks.js"),
            &script,
        )?;
        let mut init = Command::new("npm");
        step(
            init.args(["init", "--yes", "--silent"])
                .current_dir(&project),
        )?;
        let mut install = Command::new("npm");
        install
            .args(["install", "--no-audit", "--no-fund"])
            .arg(tarball);
        step(install.current_dir(&project))?;
        step(
            self.server
                .told(Command::new("node").arg(script).current_dir(&project)),
        )
    }

    /// In an environment that has nothing else: Meltano comes as the wheel asks for it.
    fn wheel(&self, wheel: &Path) -> Result<(), String> {
        let env = self.home.join("python");
        step(Command::new("python3").args(["-m", "venv"]).arg(&env))?;
        let mut install = Command::new(env.join("bin/pip"));
        step(install.args(["install", "--quiet"]).arg(wheel))?;
        let script = workspace().join("host/python/examples/bookmarks.py");
        let mut python = Command::new(env.join("bin/python"));
        step(self.server.told(python.arg(script)))?;
        // Meltano knows it too.
        step(Command::new(env.join("bin/meltano")).arg("--version"))
    }

    fn prints_the_state(&self, command: &mut Command) -> Result<(), String> {
        let said = capture(command)?;
        print!("{}{}", said.stdout, said.stderr);
        match said.code == Some(0) && said.stdout.trim_end() == STATE {
            true => Ok(()),
            false => Err(format!("{STATE} was set, and is not what was read")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_does_not_pass_for_what_was_summed() {
        let folder = std::env::temp_dir().join(harness::fresh_name("sums"));
        emptied(&folder).unwrap();
        fs::write(folder.join("a"), "1").unwrap();
        fs::write(folder.join("b"), "2").unwrap();
        sums(&folder).unwrap();
        let check = || {
            let mut check = Command::new("sha256sum");
            check.args(["--check", SUMS]).current_dir(&folder);
            capture(&mut check).unwrap().code
        };
        let before = check();
        fs::write(folder.join("b"), "3").unwrap();
        let after = check();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((before, after), (Some(0), Some(1)));
    }
}
