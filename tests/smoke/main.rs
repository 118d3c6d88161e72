//! The components under a runtime that knows nothing of this project: the wasmtime program, with a real ClickHouse.
//!
//! The functions of the plugin one by one, and the commands of the component that has the plugin inside.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "tests break off to fail"
)]

mod commands;
mod invoke;
mod readme;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use harness::{ClickHouse, fresh_name, workspace};

/// The server of this test program. It ends with the program.
fn server() -> &'static ClickHouse {
    static SERVER: OnceLock<ClickHouse> = OnceLock::new();
    SERVER.get_or_init(|| ClickHouse::start().expect("a ClickHouse starts"))
}

/// The files that run.
struct Components {
    plugin: PathBuf,
    command: PathBuf,
}

/// Built once, from what is in the workspace now.
fn components() -> &'static Components {
    static BUILT: OnceLock<Components> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = workspace().join("target/components/build");
        let build = |package| component_build::build(package, &folder).expect("it builds");
        let plugin = build("pipeline-state-clickhouse");
        let command = folder.join("clickhouse-command.wasm");
        component_build::compose(&plugin, &build("pipeline-state-command"), &command)
            .expect("they fit");
        Components { plugin, command }
    })
}

/// What a finished run said.
#[derive(Debug)]
struct Output {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// `wasmtime run -S http`, and more arguments.
fn command(args: &[&str]) -> Command {
    let mut command = Command::new(harness::wasmtime().expect("there is a wasmtime"));
    command.args(["run", "-S", "http"]).args(args);
    command
}

/// Runs that to its end.
fn wasmtime(args: &[&str], variables: &[(&str, &str)], stdin: &str) -> Output {
    let mut child = command(args)
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let sent = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = child.wait_with_output().unwrap();
    // One that does not read has ended before it was sent.
    assert!(sent.is_ok() || stdin.is_empty());
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Output {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// A database that no other test uses; it is not there yet, and goes with this.
struct Schema(String);

impl Schema {
    fn new() -> Schema {
        Schema(fresh_name("smoke"))
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        // The server may be the user's.
        let _ = server().query(&format!("DROP DATABASE IF EXISTS {}", self.0));
    }
}
