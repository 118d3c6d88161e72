//! Programs from Python wheels, each in an environment of its own below the workspace's target folder.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::clickhouse::{Error, workspace};

/// The environment's Python, after the wheel was installed into it if need be: half a minute the first time for ClickHouse.
///
/// The wheel is pinned by version and hash in `tests/<name>/requirements.txt`.
pub(crate) fn python(name: &str) -> Result<PathBuf, Error> {
    let requirements = workspace()
        .join("tests")
        .join(name)
        .join("requirements.txt");
    let home = workspace().join("target").join(name);
    let environment = home.join("env");
    let python = environment.join("bin/python");
    let done = home.join("installed.txt");

    fs::create_dir_all(&home).map_err(|error| Error::file(&home, error))?;
    // Test programs run side by side, and each of them comes through here. Closing the file unlocks it.
    let lock_path = home.join("lock");
    let lock = File::create(&lock_path).map_err(|error| Error::file(&lock_path, error))?;
    lock.lock()
        .map_err(|error| Error::file(&lock_path, error))?;

    let wanted =
        fs::read_to_string(&requirements).map_err(|error| Error::file(&requirements, error))?;
    if fs::read_to_string(&done).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    run(Command::new("python3")
        .args(["-m", "venv", "--clear"])
        .arg(&environment))
    .map_err(|error| Error::NoVenv(error.to_string()))?;
    run(Command::new(&python)
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ])
        // What ClickHouse's package would like beside its engine is not used; wasmtime's wants nothing.
        .args([
            "--no-deps",
            "--only-binary",
            ":all:",
            "--require-hashes",
            "-r",
        ])
        .arg(&requirements))?;
    fs::write(&done, wanted).map_err(|error| Error::file(&done, error))?;
    Ok(python)
}

/// What the command prints.
pub(crate) fn run(command: &mut Command) -> Result<String, Error> {
    let program = PathBuf::from(command.get_program());
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::file(&program, error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let last = words.lines().next_back().unwrap_or("it failed");
    Err(Error::Setup(format!("{}: {last}", program.display())))
}
