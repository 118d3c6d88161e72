//! ClickHouse from a Python wheel, in an environment of its own below the workspace's target folder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::clickhouse::Error;

/// The environment's Python, after the wheel was installed into it if need be: half a minute the first time.
///
/// The wheel is pinned by version and hash in `tests/clickhouse/requirements.txt`.
pub(crate) fn python(workspace: &Path) -> Result<PathBuf, Error> {
    let requirements = workspace.join("tests/clickhouse/requirements.txt");
    let home = workspace.join("target/clickhouse");
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
        // The engine is one library: what the package would like beside it is not used.
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

fn run(command: &mut Command) -> Result<(), Error> {
    let program = PathBuf::from(command.get_program());
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::file(&program, error))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let last = words.lines().next_back().unwrap_or("it failed");
    Err(Error::Setup(format!("{}: {last}", program.display())))
}
