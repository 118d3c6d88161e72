//! `sync`: between two stores, and from and to those that Meltano has itself.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests break off to fail"
)]

mod support;

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use support::server;
use support::shell::{Shell, failure, text};

const ONE: &str = r#"{"completed":{"singer_state":{"n":1}}}"#;
const TWO: &str = r#"{"completed":{"singer_state":{"n":2}}}"#;

/// The result, as a JSON object.
fn sync(shell: &Shell, args: &[&str]) -> serde_json::Value {
    let output = shell
        .command(&[&["sync", "--json", "--quiet"], args].concat())
        .output()
        .unwrap();
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(0), ""),
        "{args:?}"
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Created, replaced, the same, not newer.
fn counts(result: &serde_json::Value) -> [u64; 4] {
    ["created", "replaced", "same", "not_newer"].map(|name| result[name].as_u64().unwrap())
}

/// As Meltano 4.4 makes it.
fn database(path: &Path) -> Connection {
    let database = Connection::open(path).unwrap();
    database
        .execute_batch(
            "CREATE TABLE state (state_id VARCHAR(900) NOT NULL, partial_state VARCHAR, completed_state VARCHAR, \
             updated_at DATETIME, PRIMARY KEY (state_id), UNIQUE (state_id));
             INSERT INTO state VALUES ('dev:a', '{\"singer_state\": {\"x\": 1.0}}', '{\"singer_state\": {\"n\": 18446744073709551617}}', '2026-12-02 21:21:25.656042');
             INSERT INTO state VALUES ('dev:b', '{}', '{\"singer_state\": {\"n\": 1}}', NULL);
             INSERT INTO state VALUES ('prod:c', NULL, 'null', NULL);",
        )
        .unwrap();
    database
}

const OF_DATABASE: &str = "{\n\"dev:a\": {\"completed\": {\"singer_state\": {\"n\": 18446744073709551617}}, \"partial\": {\"singer_state\": {\"x\": 1.0}}},\n\
     \"dev:b\": {\"completed\": {\"singer_state\": {\"n\": 1}}, \"partial\": {}},\n\
     \"prod:c\": {\"completed\": {}, \"partial\": {}}\n}\n";

#[test]
fn meltanos_database_moves_over_and_back() {
    let shell = Shell::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("meltano.db");
    let database = database(&path);
    let uri = format!("sqlite://{}", path.display());

    assert_eq!(
        counts(&sync(&shell, &[&uri, ".", "--dry-run"])),
        [3, 0, 0, 0]
    );
    assert_eq!(shell.ok(&["list"]), "");
    assert_eq!(
        counts(&sync(&shell, &[&uri, ".", "--pattern", "dev:*"])),
        [2, 0, 0, 0]
    );
    assert_eq!(counts(&sync(&shell, &[&uri, "."])), [1, 0, 2, 0]);
    assert_eq!(counts(&sync(&shell, &[&uri, "."])), [0, 0, 3, 0]);
    assert_eq!(shell.ok(&["export"]), OF_DATABASE);

    shell.ok(&["set", "--force", "dev:b", TWO]);
    shell.ok(&["set", "new", ONE]);
    assert_eq!(counts(&sync(&shell, &[".", &uri])), [1, 1, 2, 0]);
    let row = |id: &str| -> (String, String, String) {
        database
            .query_row(
                "SELECT completed_state, partial_state, updated_at FROM state WHERE state_id = ?1",
                [id],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .unwrap()
    };
    let (completed, partial, time) = row("dev:b");
    assert_eq!(
        (&*completed, &*partial),
        (r#"{"singer_state":{"n":2}}"#, "{}")
    );
    // As Python's datetime writes it.
    assert_eq!(
        (time.len(), &time[10..11], &time[19..20]),
        (26, " ", "."),
        "{time}"
    );
    assert_eq!(row("new").0, r#"{"singer_state":{"n":1}}"#);
    // It is not ours to make.
    let missing = format!("sqlite://{}/none.db", folder.path().display());
    let (code, message) = failure(&shell.command(&["sync", ".", &missing]).output().unwrap());
    assert_eq!(code, 1, "{message}");
    assert!(message.contains("none.db"), "{message}");
}

#[test]
fn meltanos_folder_moves_over_and_back() {
    let shell = Shell::new();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("state");
    let uri = format!("file://{}", root.display());
    shell.ok(&["set", "dev:a", ONE]);
    shell.ok(&["set", "dev:b", TWO]);
    assert_eq!(counts(&sync(&shell, &[".", &uri])), [2, 0, 0, 0]);
    let file = root.join("dev:a").join("state.json");
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        r#"{"completed": {"singer_state":{"n":1}}, "partial": {}}"#
    );
    // Neither a lock nor half a file is left.
    assert_eq!(fs::read_dir(root.join("dev:a")).unwrap().count(), 1);

    fs::write(
        &file,
        r#"{"completed": {"singer_state": {"n": 3}}, "partial": null}"#,
    )
    .unwrap();
    assert_eq!(counts(&sync(&shell, &[&uri, "."])), [0, 1, 1, 0]);
    assert!(shell.ok(&["get", "dev:a"]).contains("\"n\": 3"));

    // While Meltano writes; a lock that it has left behind does not count.
    shell.ok(&["set", "--force", "dev:a", ONE]);
    let lock = root.join("dev:a").join("lock");
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    fs::write(&lock, now.as_secs_f64().to_string()).unwrap();
    let (code, message) = failure(&shell.command(&["sync", ".", &uri]).output().unwrap());
    assert_eq!(code, 1);
    assert!(
        message.contains("`dev:a`") && message.contains("run it again"),
        "{message}"
    );
    fs::write(&lock, (now.as_secs_f64() - 60.0).to_string()).unwrap();
    assert_eq!(counts(&sync(&shell, &[".", &uri])), [0, 1, 1, 0]);

    // An ID must not lead out of the folder.
    shell.ok(&["set", "../x", ONE]);
    let (code, message) = failure(&shell.command(&["sync", ".", &uri]).output().unwrap());
    assert_eq!(code, 2);
    assert!(
        message.contains("can't be the name of a folder"),
        "{message}"
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

    fs::write(&file, "{\"completed\": ").unwrap();
    let (code, message) = failure(&shell.command(&["sync", &uri, "."]).output().unwrap());
    assert_eq!(code, 10);
    assert!(message.contains("`dev:a`"), "{message}");
}

#[test]
fn of_two_states_the_newer_one_stays_if_that_is_asked_for() {
    let (old, new) = (Shell::new(), Shell::new());
    old.ok(&["set", "a", ONE]);
    new.ok(&["set", "a", TWO]);
    let uri = |shell: &Shell| format!("{}?schema={}", server().uri("default"), shell.schema);
    let run = |from: &Shell, to: &Shell| {
        let mut command = old.command(&["sync", "--json", "--only-newer", "env:FROM", "env:TO"]);
        let output = command
            .env("FROM", uri(from))
            .env("TO", uri(to))
            .output()
            .unwrap();
        assert_eq!(text(&output.stderr), "");
        counts(&serde_json::from_slice(&output.stdout).unwrap())
    };
    assert_eq!(run(&old, &new), [0, 0, 0, 1]);
    assert!(new.ok(&["get", "a"]).contains("\"n\":2"));
    assert_eq!(run(&new, &old), [0, 1, 0, 0]);
    assert_eq!(run(&new, &old), [0, 0, 1, 0]);
    assert!(old.ok(&["get", "a"]).contains("\"n\":2"));
}

/// More than are in memory at once, with gaps on either side.
#[test]
fn stores_of_many_pages_are_held_side_by_side() {
    let shell = Shell::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("meltano.db");
    let mut database = database(&path);
    let transaction = database.transaction().unwrap();
    for n in 0..2_300 {
        let values = [
            format!("s{n:04}"),
            format!("{{\"singer_state\": {{\"n\": {n}}}}}"),
        ];
        transaction
            .execute("INSERT INTO state VALUES (?1, NULL, ?2, NULL)", values)
            .unwrap();
    }
    transaction.commit().unwrap();
    let uri = format!("sqlite://{}", path.display());
    assert_eq!(
        counts(&sync(&shell, &[&uri, ".", "--pattern", "s*[13579]"])),
        [1_150, 0, 0, 0]
    );
    shell.ok(&["set", "r", ONE]);
    shell.ok(&["set", "s0000+", ONE]);
    shell.ok(&["set", "--force", "s1111", TWO]);
    assert_eq!(counts(&sync(&shell, &[&uri, "."])), [1_153, 1, 1_149, 0]);
    assert_eq!(counts(&sync(&shell, &[&uri, "."])), [0, 0, 2_303, 0]);
    assert_eq!(shell.ok(&["list"]).lines().count(), 2_305);
}
