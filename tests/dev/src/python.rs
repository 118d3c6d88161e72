//! `cargo dev python`: the Python package, from a wheel to a real Meltano project.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{GIVEN_VARIABLE, workspace};

use crate::crates::{LICENSES, copy};
use crate::run::{build as build_programs, capture, forget_this_tool, step};
use crate::server::Server;

/// What `requires-python` in `pyproject.toml` says.
const OLDEST: (u32, u32) = (3, 10);
const PIP_INSTALL: [&str; 4] = [
    "install",
    "--quiet",
    "--disable-pip-version-check",
    "--no-warn-script-location",
];
/// Where the tests find a tap and a target, each in an environment of its own, as Meltano has them.
const PLUGINS_VARIABLE: &str = "PIPELINE_STATE_TEST_PLUGINS";

/// Where they find the program, to hold against Meltano's commands.
const PROGRAM_VARIABLE: &str = "PIPELINE_STATE_TEST_PROGRAM";

pub(crate) fn python(bench: bool) -> Result<(), String> {
    let package = package();
    let home = home();
    let env = environment()?;
    for plugin in ["tap", "target"] {
        let other = Environment {
            bin: home.join("plugins").join(plugin).join("bin"),
        };
        let requirements = package.join(format!("tests/meltano/{plugin}.txt"));
        filled(&other, &env, &requirements)?;
    }
    build_programs(&["pipeline-state"])?;
    install(&env, &package, &home.join("wheels"))?;

    let run = |program: &str, args: &[&str]| {
        let mut command = env.program(program);
        command.args(args).current_dir(&package);
        command
    };
    step(&mut run("ruff", &["check"]))?;
    step(&mut run("ruff", &["format", "--check"]))?;
    step(&mut run("mypy", &[]))?;
    step(&mut run("stubtest", &["pipeline_state._native"]))?;

    Server::with("pipeline_state_python", |server| {
        let mut tests = run("pytest", &["--quiet", "--numprocesses", "auto"]);
        tests.env(GIVEN_VARIABLE, server.given());
        tests.env(PLUGINS_VARIABLE, home.join("plugins"));
        tests.env(
            PROGRAM_VARIABLE,
            workspace().join("target/debug/pipeline-state"),
        );
        step(&mut tests)?;
        let scripts = ["examples/bookmarks.py"]
            .into_iter()
            .chain(bench.then_some("bench.py"));
        server.run(scripts.map(|script| run("python", &[script])))
    })
}

/// The package alone, in the environment of the tests.
pub(crate) fn build() -> Result<(), String> {
    install(&environment()?, &package(), &home().join("wheels"))
}

/// Meltano's program, which is installed for the tests.
pub(crate) fn meltano() -> Result<PathBuf, String> {
    Ok(environment()?.bin.join("meltano"))
}

fn package() -> PathBuf {
    workspace().join("host/python")
}

/// Where everything is installed.
fn home() -> PathBuf {
    workspace().join("target/python")
}

/// The environment of the tests.
fn environment() -> Result<Environment, String> {
    new_enough()?;
    let env = Environment {
        bin: home().join("env/bin"),
    };
    filled(&env, &env, &package().join("tests/requirements.txt"))?;
    Ok(env)
}

fn new_enough() -> Result<(), String> {
    let asked = capture(Command::new("python3").arg("--version"))?.stdout;
    let mut numbers = asked.trim().trim_start_matches("Python ").split('.');
    let mut number = || numbers.next().and_then(|number| number.parse().ok());
    match (number(), number()) {
        (Some(major), Some(minor)) if (major, minor) >= OLDEST => Ok(()),
        _ => Err(format!(
            "`python3` is {}; the Python package wants {}.{} or later",
            asked.trim(),
            OLDEST.0,
            OLDEST.1
        )),
    }
}

/// An environment of Python.
struct Environment {
    bin: PathBuf,
}

impl Environment {
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.join(name));
        // As if it were activated: Meltano and maturin look for other programs.
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut all = OsString::from(&self.bin);
        all.push(":");
        all.push(path);
        command.env("PATH", all);
        if let Some(environment) = self.bin.parent() {
            command.env("VIRTUAL_ENV", environment);
        }
        command
    }
}

/// Makes an environment with what `requirements` pins by version and hash, anew where that has changed. `pip` is the one whose
/// pip does it.
fn filled(environment: &Environment, pip: &Environment, requirements: &Path) -> Result<(), String> {
    let wanted = fs::read_to_string(requirements)
        .map_err(|error| format!("{}: {error}", requirements.display()))?;
    let done = environment.bin.join("installed.txt");
    if fs::read_to_string(&done).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    let home = environment.bin.with_file_name("");
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "--clear"]);
    if environment.bin != pip.bin {
        venv.arg("--without-pip");
    }
    step(venv.arg(&home))?;
    let mut install = pip.program("python");
    install.args(["-m", "pip", "--python"]).arg(&home);
    install.args(PIP_INSTALL);
    // All of them are listed, and of the tap one is newer than it says that it wants.
    install.args(["--no-deps", "--require-hashes", "-r"]);
    step(install.arg(requirements))?;
    fs::write(&done, wanted).map_err(|error| format!("{}: {error}", done.display()))
}

/// Builds the wheel that is given away into `out`.
pub(crate) fn wheel(out: &Path) -> Result<PathBuf, String> {
    let package = package();
    // It carries them, and maturin looks for them here alone.
    for license in LICENSES {
        copy(&workspace().join(license), &package.join(license))?;
    }
    // By way of a folder that holds nothing else.
    let wheels = home().join("release");
    let built = built(&environment()?, &package, &wheels, "release")?;
    let name = built.file_name().unwrap_or(built.as_os_str());
    let to = out.join(name);
    copy(&built, &to)?;
    Ok(to)
}

/// Builds the wheel as everybody else would, only without optimizing, so that it shares what is built already.
fn install(environment: &Environment, package: &Path, wheels: &Path) -> Result<(), String> {
    let wheel = built(environment, package, wheels, "dev")?;
    // Its dependencies are among the requirements.
    let mut pip = environment.program("python");
    pip.args(["-m", "pip"]).args(PIP_INSTALL);
    pip.args(["--no-deps", "--no-index", "--force-reinstall"]);
    step(pip.arg(wheel))
}

/// Builds the wheel in a profile of cargo's, as the only file of `wheels`.
fn built(
    environment: &Environment,
    package: &Path,
    wheels: &Path,
    profile: &str,
) -> Result<PathBuf, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", wheels.display());
    if wheels.exists() {
        fs::remove_dir_all(wheels).map_err(failed)?;
    }
    let mut maturin = environment.program("maturin");
    maturin.args([
        "build",
        "--quiet",
        "--locked",
        "--profile",
        profile,
        "--out",
    ]);
    forget_this_tool(&mut maturin);
    step(maturin.arg(wheels).current_dir(package))?;
    let built = fs::read_dir(wheels).map_err(failed)?.next();
    let wheel = built
        .ok_or_else(|| format!("{}: there is no wheel", wheels.display()))?
        .map_err(failed)?;
    Ok(wheel.path())
}
