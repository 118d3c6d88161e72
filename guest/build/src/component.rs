//! From a package to a component: a cargo inside cargo, then the encoder.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use wit_component::ComponentEncoder;

use crate::toolchain::{Missing, TARGET, TOOLCHAIN_VARIABLE, Toolchain, toolchain};

/// The profile in the workspace's manifest.
const PROFILE: &str = "component";

/// Why a component could not be built.
///
/// Its Debug is its text, since that is what cargo shows of a build script's error.
pub enum Error {
    /// This machine lacks a toolchain for WebAssembly.
    Missing(Missing),
    /// Cargo failed; its own words are on stderr.
    Cargo(String),
    /// The module can't be made a component.
    Encode(String),
    /// Components can't be put together.
    Compose(String),
    /// A file could not be read or written.
    File(PathBuf, std::io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Missing(missing) => missing.fmt(out),
            Error::Cargo(what) => write!(out, "{what}"),
            Error::Encode(what) => write!(out, "the module can't be made a component: {what}"),
            Error::Compose(what) => write!(out, "the components can't be put together: {what}"),
            Error::File(path, error) => write!(out, "{}: {error}", path.display()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl std::error::Error for Error {}

/// Builds a package of this workspace as a component and returns the file's path, `<package>.wasm` in `out`.
///
/// `out` is also the target folder of the cargo that runs inside, so that it does not wait for the outer one's.
///
/// # Errors
///
/// [`Error::Missing`] where the machine is not set up; it names the command to run.
pub fn build(package: &str, out: &Path) -> Result<PathBuf, Error> {
    let toolchain = toolchain().map_err(Error::Missing)?;
    run_cargo(toolchain, package, out)?;
    let module_path = out
        .join(TARGET)
        .join(PROFILE)
        .join(format!("{}.wasm", package.replace('-', "_")));
    let module =
        std::fs::read(&module_path).map_err(|error| Error::File(module_path.clone(), error))?;
    let component = encode(&module).map_err(|error| Error::Encode(format!("{error:#}")))?;
    let path = out.join(format!("{package}.wasm"));
    write(&path, &component).map_err(|error| Error::File(path.clone(), error))?;
    Ok(path)
}

fn encode(module: &[u8]) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    Ok(ComponentEncoder::default()
        .validate(true)
        .module(module)?
        .encode()?)
}

/// Under another name first, since others may read the file meanwhile.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let unfinished = path.with_extension(format!("{}.tmp", std::process::id()));
    std::fs::write(&unfinished, bytes)?;
    std::fs::rename(&unfinished, path)
}

fn run_cargo(toolchain: Toolchain, package: &str, out: &Path) -> Result<(), Error> {
    let mut cargo = toolchain.cargo();
    forget_outer_build(&mut cargo, toolchain);
    cargo
        .current_dir(workspace())
        .args(["build", "--locked", "--package", package])
        .args(["--target", TARGET, "--profile", PROFILE])
        .args(toolchain.build_flags())
        .arg("--target-dir")
        .arg(out)
        .stdout(Stdio::null());
    let status = cargo
        .status()
        .map_err(|error| Error::Cargo(format!("{}: {error}", cargo.get_program().display())))?;
    if !status.success() {
        return Err(Error::Cargo(format!(
            "building {package} for {TARGET} failed: {status}"
        )));
    }
    Ok(())
}

/// Variables by which the outer cargo speaks to its own children, and those of the user that are meant for
/// the machine's own target.
fn forget_outer_build(cargo: &mut Command, toolchain: Toolchain) {
    let set_here: Vec<_> = cargo.get_envs().map(|(name, _)| name.to_owned()).collect();
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let outer = text.starts_with("CARGO_")
            && !matches!(
                &*text,
                "CARGO_HOME" | "CARGO_NET_OFFLINE" | "CARGO_TERM_COLOR"
            );
        let flags = matches!(
            &*text,
            "RUSTFLAGS"
                | "RUSTDOCFLAGS"
                | "RUSTC_WRAPPER"
                | "RUSTC_WORKSPACE_WRAPPER"
                | "RUSTC_LINKER"
        );
        // Cargo sets these for build scripts, about the machine's own target.
        let own_target = matches!(
            &*text,
            "TARGET" | "HOST" | "OUT_DIR" | "NUM_JOBS" | "OPT_LEVEL" | "DEBUG" | "PROFILE"
        );
        let other_rust = toolchain == Toolchain::Debian && text.starts_with("RUSTUP_");
        if (outer || flags || own_target || other_rust) && !set_here.contains(&name) {
            cargo.env_remove(&name);
        }
    }
}

/// The root of the workspace, two folders above this crate.
fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// Tells cargo, from a build script, when [`build`] must run again: when the sources of `folders`, the contract, the
/// locked versions or the choice of the toolchain change. Folders are relative to the workspace.
pub fn rerun_if_changed(folders: &[&str]) {
    let workspace = workspace();
    for path in ["Cargo.toml", "Cargo.lock", "wit"].iter().chain(folders) {
        println!("cargo::rerun-if-changed={}", workspace.join(path).display());
    }
    println!("cargo::rerun-if-env-changed={TOOLCHAIN_VARIABLE}");
}
