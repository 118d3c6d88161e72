//! `cargo dev setup`: finds out what this machine lacks, says what it will do, and does it.
//!
//! Plugins are built for WebAssembly, for which Rust needs the target's standard library. rustup can
//! add it in a second or two, where it may download. Elsewhere Debian's Rust builds it from its own sources.

use std::env;
use std::process::Command;
use std::time::Duration;

use component_build::{
    TARGET, TOOLCHAIN_VARIABLE, Toolchain, debian, linker, linker_package, rustup, toolchain,
};
use harness::ZooKeeper;

use crate::run::{capture, step, within};

/// Long enough for a slow line; a machine that may not download says so much sooner, or never.
const RUSTUP_LIMIT: Duration = Duration::from_secs(120);

/// What Debian's way takes, beside a linker where rustup has none.
const DEBIAN_PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];
/// Debian's Python can make no environments without it.
const PYTHON_PACKAGE: &str = "python3-venv";

/// What `engines` in the package's manifest says.
const OLDEST_NODE: (u32, u32) = (20, 8);
const NODE_PACKAGES: [&str; 2] = ["nodejs", "npm"];

pub(crate) fn setup() -> Result<(), String> {
    let forced = env::var(TOOLCHAIN_VARIABLE).unwrap_or_default();
    match toolchain() {
        Ok(Toolchain::Rustup) => println!("WebAssembly: this Rust has the target {TARGET}"),
        Ok(Toolchain::Debian) => {
            println!("WebAssembly: Debian's Rust builds the standard library for {TARGET}")
        }
        Err(missing) if !matches!(&*forced, "" | "rustup" | "debian") => {
            return Err(missing.to_string());
        }
        Err(_) => install(&forced)?,
    }
    println!(
        "ClickHouse: preparing one for tests and the demo, unless {} names one",
        harness::GIVEN_VARIABLE
    );
    match harness::prepare() {
        Err(harness::Error::NoVenv(why)) => {
            println!("  {why}");
            apt_install(&[PYTHON_PACKAGE])?;
            harness::prepare()
        }
        prepared => prepared,
    }
    .map_err(|error| error.to_string())
}

/// [`setup`], and another host for components.
pub(crate) fn for_smoke() -> Result<(), String> {
    setup()?;
    println!("wasmtime: preparing one for tests, unless a new one is on the PATH");
    match harness::wasmtime() {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// [`for_smoke`], and what some tests need beside that.
pub(crate) fn for_tests() -> Result<(), String> {
    for_smoke()?;
    if ZooKeeper::is_installed() {
        println!("ZooKeeper: this machine has one for tests");
        return Ok(());
    }
    println!("ZooKeeper: installing one for tests, from Debian's packages");
    if let Err(why) = apt_install(&ZooKeeper::PACKAGES) {
        // The tests that take one fail and say what to install; all others can run.
        println!("  {why}");
    }
    Ok(())
}

/// [`setup`], and Node, and what its tests make certificates with.
pub(crate) fn for_node() -> Result<(), String> {
    setup()?;
    if capture(Command::new("openssl").arg("version")).is_err() {
        apt_install(&["openssl"])?;
    }
    match node_version() {
        Some(version) if version >= OLDEST_NODE => return Ok(()),
        Some((major, minor)) => {
            println!("Node: this machine has {major}.{minor}, which is too old")
        }
        None => println!("Node: this machine has none"),
    }
    apt_install(&NODE_PACKAGES)?;
    match node_version() {
        Some(version) if version >= OLDEST_NODE => Ok(()),
        _ => Err(format!(
            "Debian's Node is older than {}.{}; install a newer one, with npm",
            OLDEST_NODE.0, OLDEST_NODE.1
        )),
    }
}

/// None where it, or npm, is not there.
fn node_version() -> Option<(u32, u32)> {
    capture(Command::new("npm").arg("--version")).ok()?;
    let version = capture(Command::new("node").arg("--version")).ok()?.stdout;
    let mut numbers = version.trim().strip_prefix('v')?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn install(forced: &str) -> Result<(), String> {
    if forced != "debian" {
        match add_target() {
            Ok(()) if rustup() => return Ok(()),
            Ok(()) => {
                println!("  rustup has added the target to another toolchain than the one in use")
            }
            Err(why) => println!("  {why}"),
        }
        if forced == "rustup" {
            return Err(format!(
                "rustup can't add {TARGET} here, and {TOOLCHAIN_VARIABLE} allows no other way"
            ));
        }
    }
    install_debian()?;
    match debian() {
        true => Ok(()),
        false => Err(
            "Debian's packages are installed, but its Rust still lacks its sources or a linker"
                .to_owned(),
        ),
    }
}

fn add_target() -> Result<(), String> {
    println!("WebAssembly: adding the target {TARGET} with rustup");
    let mut rustup = Command::new("rustup");
    rustup.args(["target", "add", TARGET]);
    // The toolchain that this very build runs on, whatever the default one is.
    if let Ok(active) = env::var("RUSTUP_TOOLCHAIN") {
        rustup.args(["--toolchain", &active]);
    }
    within(RUSTUP_LIMIT, &mut rustup)
}

fn install_debian() -> Result<(), String> {
    println!(
        "WebAssembly: installing Debian's Rust, which builds the target's standard library itself"
    );
    if capture(Command::new("apt-get").arg("--version")).is_err() {
        return Err(format!(
            "neither rustup nor apt-get can give this machine the target {TARGET}; \
             run `rustup target add {TARGET}` where rustup may download"
        ));
    }
    apt_install(&DEBIAN_PACKAGES)?;
    match (linker(), linker_package()) {
        (None, Some(package)) => apt_install(&[&package]),
        _ => Ok(()),
    }
}

fn apt_install(packages: &[&str]) -> Result<(), String> {
    apt_get(&["update"])?;
    apt_get(&[&["install", "--yes", "--no-install-recommends"], packages].concat())
}

/// As root, or with sudo where that asks for no password; else says what to run.
fn apt_get(args: &[&str]) -> Result<(), String> {
    let by_hand = format!(
        "run as root: apt-get {}; then run `cargo dev setup` again",
        args.join(" ")
    );
    let succeeds = |command: &mut Command| capture(command).is_ok_and(|done| done.code == Some(0));
    let mut command = if capture(Command::new("id").arg("-u"))?.stdout.trim() == "0" {
        Command::new("apt-get")
    } else if succeeds(Command::new("sudo").args(["-n", "true"])) {
        let mut sudo = Command::new("sudo");
        sudo.args(["-n", "apt-get"]);
        sudo
    } else {
        return Err(by_hand);
    };
    command.args(args).env("DEBIAN_FRONTEND", "noninteractive");
    step(&mut command).map_err(|why| format!("{why}; {by_hand}"))
}
