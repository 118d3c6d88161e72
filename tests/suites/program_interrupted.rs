//! Commands on many states that are killed, or broken off with Ctrl-C, in the middle: nothing is lost, and a second run completes.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests break off to fail"
)]

mod support;

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use harness::{Faults, Proxy};
use rusqlite::Connection;
use serde_json::Value;
use support::server;
use support::shell::{Shell, at_a_terminal, text};

/// More than fit into one request.
const STATES: usize = 6_000;
const SIGKILL: i32 = 9;
/// Long enough to stop a command between two requests.
const DELAY: Duration = Duration::from_millis(100);

fn state(number: usize) -> String {
    format!(r#"{{"completed": {{"singer_state": {{"n": {number}}}}}, "partial": {{}}}}"#)
}

fn member(number: usize) -> String {
    format!("\"s{number:05}\": {}", state(number))
}

/// As `export` prints it.
fn exported() -> String {
    let members: Vec<_> = (0..STATES).map(member).collect();
    format!("{{\n{}\n}}\n", members.join(",\n"))
}

fn stored(shell: &Shell) -> usize {
    shell.ok(&["list"]).lines().count()
}

/// Waits until something has happened.
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "it never comes");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-s", name, &pid]).status();
    assert!(sent.unwrap().success());
}

/// An import that has stored a part of the states, and waits for the others.
fn half_an_import(shell: &Shell) -> (Child, ChildStdin) {
    let mut child = shell
        .command(&["import"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let half: Vec<_> = (0..STATES / 2).map(member).collect();
    write!(stdin, "{{{}", half.join(",")).unwrap();
    stdin.flush().unwrap();
    until(|| (stored(shell) > 0).then_some(()));
    (child, stdin)
}

/// One request may be on its way, and come.
fn is_told(message: &str, stored: usize) {
    let (_, rest) = message.split_once("; at least ").unwrap();
    let (count, _) = rest.split_once(" states were ").unwrap();
    let told: usize = count.parse().unwrap();
    assert!(
        told <= stored && stored <= told + 1_000,
        "{message}, but {stored}"
    );
}

fn import(shell: &Shell, all: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("states.json");
    fs::write(&file, all).unwrap();
    shell.ok(&["import", "--quiet", file.to_str().unwrap()]);
}

#[test]
fn an_import_that_is_killed_has_stored_whole_states_and_is_completed_by_another() {
    let shell = Shell::new();
    let (mut child, _stdin) = half_an_import(&shell);
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(SIGKILL));
    let partly: Value = serde_json::from_str(&shell.ok(&["export"])).unwrap();
    let partly = partly.as_object().unwrap();
    assert!((1..STATES).contains(&partly.len()), "{}", partly.len());
    for (id, found) in partly {
        let number: usize = id[1..].parse().unwrap();
        assert_eq!(found["completed"]["singer_state"]["n"], number);
    }
    import(&shell, &exported());
    assert_eq!(shell.ok(&["export"]), exported());
}

#[test]
fn an_import_that_is_broken_off_tells_how_much_it_has_stored() {
    let shell = Shell::new();
    let (child, stdin) = half_an_import(&shell);
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    assert_eq!(output.status.code(), Some(130));
    is_told(text(&output.stderr), stored(&shell));
    import(&shell, &exported());
    assert_eq!(shell.ok(&["export"]), exported());
}

/// The store of the shell, whose server gets each request late.
fn slow(shell: &Shell) -> (Proxy, String) {
    let faults = Faults {
        delay: Some((1.0, DELAY)),
        ..Faults::none(1)
    };
    let proxy = Proxy::start(server().address().parse().unwrap(), faults).unwrap();
    let uri = server()
        .uri("default")
        .replace(&server().address(), &proxy.address().to_string());
    (proxy, format!("{uri}?schema={}", shell.schema))
}

/// A run that is slow.
fn syncing(shell: &Shell, from: &str, to: &str) -> Child {
    let mut command = shell.command(&["sync", "--json", "env:FROM", "env:TO"]);
    command
        .env("FROM", from)
        .env("TO", to)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// One from the start to the end: how many states were created, and were the same.
fn sync(shell: &Shell, from: &str, to: &str) -> (usize, usize) {
    let output = syncing(shell, from, to).wait_with_output().unwrap();
    assert_eq!(text(&output.stderr), "");
    let counts: Value = serde_json::from_slice(&output.stdout).unwrap();
    let count = |name: &str| usize::try_from(counts[name].as_u64().unwrap()).unwrap();
    assert_eq!((count("replaced"), count("not_newer")), (0, 0));
    (count("created"), count("same"))
}

fn database(path: &Path, states: usize) -> Connection {
    let mut database = Connection::open(path).unwrap();
    let table = "CREATE TABLE state (state_id VARCHAR(900) NOT NULL, partial_state VARCHAR, completed_state VARCHAR, \
         updated_at DATETIME, PRIMARY KEY (state_id), UNIQUE (state_id))";
    database.execute_batch(table).unwrap();
    let transaction = database.transaction().unwrap();
    for number in 0..states {
        let values = [
            format!("s{number:05}"),
            format!(r#"{{"singer_state": {{"n": {number}}}}}"#),
        ];
        let insert = "INSERT INTO state VALUES (?1, '{}', ?2, NULL)";
        transaction.execute(insert, values).unwrap();
    }
    transaction.commit().unwrap();
    database
}

#[test]
fn a_sync_that_is_killed_or_broken_off_is_completed_by_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("meltano.db");
    database(&path, STATES);
    let uri = format!("sqlite://{}", path.display());
    for (name, ending) in [("KILL", None), ("INT", Some(130))] {
        let shell = Shell::new();
        let (_proxy, to) = slow(&shell);
        let child = syncing(&shell, &uri, &to);
        until(|| (stored(&shell) > 0).then_some(()));
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), ending);
        let before = stored(&shell);
        assert!((1..STATES).contains(&before), "{before}");
        if name == "INT" {
            is_told(text(&output.stderr), before);
        }
        let quick = format!("{}?schema={}", server().uri("default"), shell.schema);
        assert_eq!(sync(&shell, &uri, &quick), (STATES - before, before));
        assert_eq!(shell.ok(&["export"]), exported());
    }
}

#[test]
fn a_sync_into_meltanos_own_stores_that_is_killed_leaves_them_whole() {
    let shell = Shell::new();
    import(&shell, &exported());
    let (_proxy, from) = slow(&shell);
    let quick = format!("{}?schema={}", server().uri("default"), shell.schema);
    let folder = tempfile::tempdir().unwrap();

    let path = folder.path().join("meltano.db");
    let connection = database(&path, 0);
    let count = || -> usize {
        let count = "SELECT count(*) FROM state";
        connection.query_row(count, [], |row| row.get(0)).unwrap()
    };
    let to = format!("sqlite://{}", path.display());
    let mut child = syncing(&shell, &from, &to);
    until(|| (count() > 0).then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    let before = count();
    assert!((1..STATES).contains(&before), "{before}");
    let check: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
    assert_eq!(sync(&shell, &quick, &to), (STATES - before, before));
    assert_eq!(sync(&shell, &to, &quick), (0, STATES));

    let root = folder.path().join("state");
    let to = format!("file://{}", root.display());
    let files = || -> Vec<_> {
        let folders = fs::read_dir(&root).into_iter().flatten();
        let files = folders.map(|folder| folder.unwrap().path().join("state.json"));
        files.filter(|file| file.is_file()).collect()
    };
    let mut child = syncing(&shell, &from, &to);
    until(|| (!files().is_empty()).then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    let before = files();
    assert!((1..STATES).contains(&before.len()), "{}", before.len());
    for file in &before {
        let text = fs::read_to_string(file).unwrap();
        let found: Value = serde_json::from_str(&text).unwrap();
        assert!(found["completed"]["singer_state"]["n"].is_u64(), "{text}");
    }
    // The one that was being written has a lock, which is for others to respect until it is 10 seconds old.
    std::thread::sleep(Duration::from_secs(10));
    assert_eq!(
        sync(&shell, &quick, &to),
        (STATES - before.len(), before.len())
    );
    assert_eq!(sync(&shell, &to, &quick), (0, STATES));
}

#[test]
fn a_terminal_sees_how_far_it_is_and_nothing_else_does() {
    let shell = Shell::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("states.json");
    fs::write(&file, exported()).unwrap();
    let file = file.to_str().unwrap();
    let to = format!("file://{}", folder.path().join("state").display());
    for (args, shown) in [
        (&["import", file][..], "left"),
        (&["export", "-o", file], "states, "),
        (&["sync", ".", &to], "states, "),
    ] {
        let (code, screen) = at_a_terminal(&shell, args, &[], "");
        assert_eq!(code, 0, "{screen}");
        assert!(screen.contains(shown), "{screen}");
        let (code, screen) = at_a_terminal(&shell, &[args, &["--quiet"]].concat(), &[], "");
        assert_eq!((code, &*screen), (0, ""));
    }
}
