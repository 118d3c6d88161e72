//! The wasmtime program: another host for components than ours.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::clickhouse::{Error, on_path};
use crate::wheel;

/// The oldest one that runs all that the tests ask of it.
const OLDEST: u32 = 46;

/// The `wasmtime` on the PATH where it is new enough, else the one in a Python wheel, which is installed first if need be.
///
/// # Errors
///
/// Where the installation fails; the error says what is missing.
///
/// ```
/// let wasmtime = harness::wasmtime()?;
/// assert!(std::process::Command::new(wasmtime).arg("--version").status()?.success());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn wasmtime() -> Result<&'static Path, Error> {
    // It takes a moment to ask a Python, and tests ask often.
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(found);
    }
    let installed = on_path("wasmtime").filter(|program| is_recent(program));
    let program = match installed {
        Some(program) => program,
        None => from_wheel()?,
    };
    Ok(FOUND.get_or_init(|| program))
}

fn is_recent(program: &Path) -> bool {
    wheel::run(Command::new(program).arg("--version"))
        .is_ok_and(|answer| major(&answer).is_some_and(|major| major >= OLDEST))
}

/// That of `wasmtime 48.0.2 (e9f1ea232 2026-09-10)`.
fn major(answer: &str) -> Option<u32> {
    let version = answer.strip_prefix("wasmtime ")?;
    version.split('.').next()?.parse().ok()
}

fn from_wheel() -> Result<PathBuf, Error> {
    let python = wheel::python("wasmtime")?;
    let script = "import wasmtime_cli; print(wasmtime_cli.__path__[0])";
    let folder = wheel::run(Command::new(python).args(["-c", script]))?;
    let program = Path::new(folder.trim_end()).join("wasmtime");
    // The wheel does not say that it is a program.
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))
        .map_err(|error| Error::file(&program, error))?;
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_what_it_says() {
        assert_eq!(major("wasmtime 48.0.2 (e9f1ea232 2026-09-10)\n"), Some(48));
        assert_eq!(major("wasmtime-cli 0.40.1"), None);
        assert_eq!(major(""), None);
    }

    #[test]
    fn the_one_in_the_wheel_is_recent() {
        assert!(is_recent(&from_wheel().unwrap()));
    }
}
