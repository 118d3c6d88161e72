//! The program on very many states: what it takes of memory does not grow with them.
//!
//! Some ten thousand unless `PIPELINE_STATE_MANY_STATES` says how many.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests break off to fail")]

mod support;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use harness::Memory;
use rusqlite::Connection;
use support::server;
use support::shell::Shell;

const MANY: usize = 30_000;
/// A tenth of them is some pages already, so that what one page takes is not told apart.
const FEW_OF_MANY: usize = 10;
/// What a program may take more on ten times the states: allocators keep what was free once.
const SLACK_KIB: usize = 8 * 1024;

/// Runs a command that must succeed, and returns the most memory that it had, in KiB.
fn peak(mut command: Command, to: &Path) -> usize {
    let mut child = command.stdout(File::create(to).unwrap()).spawn().unwrap();
    let mut most = 0;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        // It may have ended since, and tells no more then.
        most = Memory::Peak.kib(Some(child.id())).unwrap_or(most);
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(status.success(), "{command:?}");
    most
}

/// A table of so many states of half a KB.
fn filled(count: usize) -> Shell {
    let shell = Shell::new();
    shell.ok(&["migrate"]);
    server()
        .query(&format!(
            "INSERT INTO `{}`.state (state_id, completed_state) SELECT concat('dev:tap-', leftPad(toString(number), 7, '0')), \
             concat('{{\"singer_state\": {{\"n\": ', toString(number), ', \"filler\": \"', repeat('x', 450), '\"}}}}') \
             FROM numbers({count})",
            shell.schema
        ))
        .unwrap();
    shell
}

/// What each command takes at most, by its name.
fn peaks(count: usize) -> Vec<(&'static str, usize)> {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let from = filled(count);
    let (imported, synced) = (Shell::new(), Shell::new());
    let uri = |shell: &Shell| format!("{}?schema={}", server().uri("default"), shell.schema);
    let database = format!("sqlite://{}", file("meltano.db").display());
    Connection::open(file("meltano.db"))
        .unwrap()
        .execute_batch(
            "CREATE TABLE state (state_id VARCHAR(900) NOT NULL, partial_state VARCHAR, completed_state VARCHAR, \
             updated_at DATETIME, PRIMARY KEY (state_id), UNIQUE (state_id))",
        )
        .unwrap();
    let quiet = |shell: &Shell, args: &[&str]| {
        let mut command = shell.command(args);
        command.arg("--quiet").stdin(Stdio::null());
        command
    };

    let mut import = quiet(&imported, &["import"]);
    let list = peak(quiet(&from, &["list", "--long"]), &file("list"));
    let export = peak(quiet(&from, &["export"]), &file("export"));
    import.stdin(File::open(file("export")).unwrap());
    let import = peak(import, &file("none"));
    let mut sync = quiet(&from, &["sync", ".", "env:TO"]);
    sync.env("TO", uri(&synced));
    let sync = peak(sync, &file("none"));
    let to_sqlite = peak(quiet(&from, &["sync", ".", &database]), &file("none"));
    let again = quiet(&synced, &["sync", &database, "."]);
    let again = peak(again, &file("none"));

    let lines = |name: &str| fs::read_to_string(file(name)).unwrap().lines().count();
    assert_eq!((lines("list"), lines("export")), (count, count + 2));
    for shell in [&imported, &synced] {
        assert_eq!(shell.ok(&["list"]).lines().count(), count);
    }
    for shell in [from, imported, synced] {
        let drop = format!("DROP DATABASE `{}`", shell.schema);
        server().query(&drop).unwrap();
    }
    vec![
        ("list", list),
        ("export", export),
        ("import", import),
        ("sync to a server", sync),
        ("sync to SQLite", to_sqlite),
        ("sync of what is the same", again),
    ]
}

#[test]
fn many_states_take_no_more_memory_than_few() {
    let many = std::env::var("PIPELINE_STATE_MANY_STATES")
        .ok()
        .map_or(MANY, |many| many.parse().unwrap());
    // Compiles the plugin, which takes memory once.
    Shell::new().ok(&["list"]);
    let few = peaks(many / FEW_OF_MANY);
    let many = peaks(many);
    for ((name, few), (_, many)) in few.into_iter().zip(many) {
        println!("{name}: {few} KiB, of ten times as many {many} KiB");
        assert!(
            many <= few + SLACK_KIB,
            "{name}: {few} KiB, of ten times as many {many} KiB"
        );
    }
}
