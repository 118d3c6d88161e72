//! Which toolchain of this machine can build for WebAssembly.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The target that plugins are built for.
pub const TARGET: &str = "wasm32-unknown-unknown";

/// The variable that chooses a toolchain where both would do: `rustup` or `debian`.
pub const TOOLCHAIN_VARIABLE: &str = "PIPELINE_STATE_WASM_TOOLCHAIN";

/// The Rust of Debian's `rustc-web` and `cargo-web`, whatever stands first on the PATH.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_CARGO: &str = "/usr/bin/cargo";
/// The linker that every rustup toolchain has. Debian's is a package of its own, see [`linker_package`].
const RUSTUP_LINKER: &str = "bin/rust-lld";

/// A way to build for [`TARGET`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toolchain {
    /// The Rust that runs this build has the target's standard library.
    Rustup,
    /// Debian's Rust builds the standard library from its own sources, for where rustup can download nothing.
    Debian,
}

/// No toolchain of this machine can build for WebAssembly. Its text is one line and says what to run.
#[derive(Debug, PartialEq, Eq)]
pub struct Missing(String);

impl fmt::Display for Missing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// Finds the toolchain to build with: the one that [`TOOLCHAIN_VARIABLE`] names, else the first that is there.
///
/// # Errors
///
/// [`Missing`] where it is not there, or where the variable says something else.
///
/// ```
/// match component_build::toolchain() {
///     Ok(toolchain) => println!("plugins are built with {toolchain:?}"),
///     Err(missing) => println!("{missing}"),
/// }
/// ```
pub fn toolchain() -> Result<Toolchain, Missing> {
    choose(env::var(TOOLCHAIN_VARIABLE).ok().as_deref(), rustup, debian)
}

/// Whether [`Toolchain::Rustup`] is there.
pub fn rustup() -> bool {
    sysroot(&rustc()).is_some_and(|sysroot| has_target(&sysroot))
}

/// Whether [`Toolchain::Debian`] is there: compiler, cargo, sources and linker.
pub fn debian() -> bool {
    Path::new(DEBIAN_CARGO).exists()
        && sysroot(Path::new(DEBIAN_RUSTC))
            .is_some_and(|sysroot| sysroot.join("lib/rustlib/src/rust/library/std").exists())
        && linker().is_some()
}

/// The linker for [`Toolchain::Debian`]: that of the Rust that runs this build, else that of [`linker_package`].
pub fn linker() -> Option<PathBuf> {
    let in_rustlib = |sysroot: PathBuf| {
        std::fs::read_dir(sysroot.join("lib/rustlib"))
            .ok()?
            .filter_map(Result::ok)
            .map(|target| target.path().join(RUSTUP_LINKER))
            .find(|linker| linker.exists())
    };
    sysroot(&rustc())
        .and_then(in_rustlib)
        .or_else(|| Some(PathBuf::from(format!("/usr/bin/wasm-ld-{}", llvm()?))))
        .filter(|linker| linker.exists())
}

/// The Debian package with a linker for its Rust: `lld-22` where that stands on LLVM 22. None where Debian's Rust
/// is not installed yet.
pub fn linker_package() -> Option<String> {
    Some(format!("lld-{}", llvm()?))
}

/// The major version of LLVM that Debian's Rust stands on.
fn llvm() -> Option<String> {
    let output = Command::new(DEBIAN_RUSTC).arg("-vV").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let version = text
        .lines()
        .find_map(|line| line.strip_prefix("LLVM version: "))?;
    version.split('.').next().map(str::to_owned)
}

/// Each is looked for only where it matters: that runs a compiler or two.
fn choose(
    wanted: Option<&str>,
    rustup: impl Fn() -> bool,
    debian: impl Fn() -> bool,
) -> Result<Toolchain, Missing> {
    let missing = |what: &str| Missing(format!("{what}; run `cargo dev setup` once"));
    match wanted {
        None | Some("") if rustup() => Ok(Toolchain::Rustup),
        None | Some("") if debian() => Ok(Toolchain::Debian),
        None | Some("") => Err(missing(&format!(
            "Rust can't build for {TARGET} on this machine yet"
        ))),
        Some("rustup") if rustup() => Ok(Toolchain::Rustup),
        Some("rustup") => Err(missing(&format!(
            "the Rust toolchain lacks the target {TARGET}"
        ))),
        Some("debian") if debian() => Ok(Toolchain::Debian),
        Some("debian") => Err(missing(
            "Debian's rustc-web, cargo-web, rust-web-src and a linker are not all installed",
        )),
        Some(other) => Err(Missing(format!(
            "{TOOLCHAIN_VARIABLE} is `{other}`; it may be `rustup` or `debian`, or not be set"
        ))),
    }
}

fn has_target(sysroot: &Path) -> bool {
    sysroot
        .join("lib/rustlib")
        .join(TARGET)
        .join("lib")
        .exists()
}

/// The compiler that cargo uses for this build: it tells build scripts.
fn rustc() -> PathBuf {
    env::var_os("RUSTC").map_or_else(|| PathBuf::from("rustc"), PathBuf::from)
}

fn sysroot(rustc: &Path) -> Option<PathBuf> {
    let output = Command::new(rustc)
        .args(["--print", "sysroot"])
        .output()
        .ok()?;
    let path = String::from_utf8(output.stdout).ok()?;
    output
        .status
        .success()
        .then(|| PathBuf::from(path.trim_end()))
}

impl Toolchain {
    /// A `cargo` of this toolchain, with the environment that it needs.
    pub fn cargo(self) -> Command {
        match self {
            Toolchain::Rustup => {
                Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            }
            Toolchain::Debian => {
                let mut cargo = Command::new(DEBIAN_CARGO);
                cargo.env("RUSTC", DEBIAN_RUSTC);
                // Building the standard library is not stable yet; Debian's sources are those of its compiler.
                cargo.env("RUSTC_BOOTSTRAP", "1");
                if let Some(linker) = linker() {
                    cargo.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
                }
                cargo
            }
        }
    }

    /// What `cargo build` needs to be told beside the target.
    pub fn build_flags(self) -> &'static [&'static str] {
        match self {
            Toolchain::Rustup => &[],
            Toolchain::Debian => &["-Zbuild-std=std,panic_abort"],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_is_there_is_taken_unless_told_otherwise() {
        for (wanted, rustup, debian, taken) in [
            (None, true, true, Toolchain::Rustup),
            (None, false, true, Toolchain::Debian),
            (Some(""), false, true, Toolchain::Debian),
            (Some("debian"), true, true, Toolchain::Debian),
            (Some("rustup"), true, false, Toolchain::Rustup),
        ] {
            assert_eq!(
                choose(wanted, || rustup, || debian),
                Ok(taken),
                "{wanted:?}"
            );
        }
    }

    #[test]
    fn what_is_missing_is_told_with_the_command_to_run() {
        for wanted in [None, Some("rustup"), Some("debian")] {
            let message = choose(wanted, || false, || false).unwrap_err().to_string();
            assert!(message.ends_with("run `cargo dev setup` once"), "{message}");
            assert_eq!(message.lines().count(), 1);
        }
        let message = choose(Some("gentoo"), || true, || true)
            .unwrap_err()
            .to_string();
        assert!(message.contains("`gentoo`"), "{message}");
    }

    #[test]
    fn a_target_is_there_when_its_library_is() {
        let sysroot = env::temp_dir().join(format!("component-build-{}", std::process::id()));
        assert!(!has_target(&sysroot));
        std::fs::create_dir_all(sysroot.join("lib/rustlib/wasm32-unknown-unknown/lib")).unwrap();
        assert!(has_target(&sysroot));
        std::fs::remove_dir_all(&sysroot).unwrap();
    }
}
