//! What the ClickHouse plugin does to a real server: its tables, and what it shares with the Python package
//! `meltano-state-backend-clickhouse`, whose statements are written out here.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests break off to fail"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use harness::{ClickHouse, Faults, Proxy, fresh_name};
use pipeline_state::{Backend, Error, Expectation, Finding, Outcome, Settings, Severity, State};
use support::{Place, completed, id, open, partial, place, plugins, server};

/// The Python backend's `get`.
const PYTHON_GET: &str = "SELECT partial_state, completed_state FROM {table} FINAL WHERE state_id = 'a' LIMIT 1 FORMAT TSVRaw";
/// The Python backend's `set`.
const PYTHON_SET: &str = "INSERT INTO {table} (state_id, partial_state, completed_state) VALUES ('a', NULL, '{\"singer_state\": {\"n\": 1}}')";

#[tokio::test]
async fn reads_create_nothing() {
    let place = place().await;
    let store = &place.backend;
    assert_eq!(store.get(&id("a")).await.unwrap(), None);
    store.get_ids("*", None, 10).await.unwrap();
    store.get_page("*", None, 10).await.unwrap();
    store.delete(&id("a")).await.unwrap();
    store.clear().await.unwrap();
    let count = place.sql(&format!(
        "SELECT count() FROM system.databases WHERE name = '{}'",
        place.schema
    ));
    assert_eq!(count, "0\n");
}

#[tokio::test]
async fn the_first_write_makes_the_table_as_specified() {
    let place = place().await;
    place
        .backend
        .set(&id("a"), completed("{\"a\":1}"))
        .await
        .unwrap();
    let columns =
        place.sql(&format!(
        "SELECT name, type, default_expression FROM system.columns WHERE database = '{}' AND table = 'state' ORDER BY position FORMAT TSV",
        place.schema
    ));
    assert_eq!(
        columns,
        "state_id\tString\t\n\
         partial_state\tNullable(String)\t\n\
         completed_state\tNullable(String)\t\n\
         updated_at\tDateTime64(9)\tnow64(9)\n\
         written_at\tDateTime64(3)\tupdated_at\n\
         deleted\tBool\tfalse\n\
         writes\tString\t\\'\\'\n"
    );
    let made = place.sql("SHOW CREATE TABLE {table} FORMAT TSVRaw");
    for part in [
        "ENGINE = ReplacingMergeTree(updated_at)",
        "ORDER BY state_id",
        "index_granularity = 256",
        "index_granularity_bytes = 65536",
        "non_replicated_deduplication_window = 10000",
    ] {
        assert!(made.contains(part), "{part}: {made}");
    }
    assert!(!made.contains("TTL"), "{made}");
}

#[tokio::test]
async fn a_table_in_a_database_that_is_there_needs_no_new_database() {
    let place = place().await;
    place.sql(&format!("CREATE DATABASE `{}`", place.schema));
    place
        .backend
        .set(&id("a"), completed("{\"a\":1}"))
        .await
        .unwrap();
    assert_eq!(place.sql("SELECT count() FROM {table}"), "1\n");
}

#[tokio::test]
async fn the_database_of_the_uri_need_not_exist() {
    let schema = fresh_name("suite");
    let store = open(&server().uri(&fresh_name("nowhere")), &schema).await;
    store.set(&id("a"), completed("{\"a\":1}")).await.unwrap();
    assert!(store.get(&id("a")).await.unwrap().is_some());
}

#[tokio::test]
async fn what_the_python_backend_wrote_is_read() {
    let place = place().await;
    place.create_as_the_python_backend();
    place.sql(PYTHON_SET);
    let entry = place.backend.get(&id("a")).await.unwrap().unwrap();
    assert_eq!(entry.state, completed("{\"singer_state\": {\"n\": 1}}"));
    place.sql("INSERT INTO {table} (state_id) VALUES ('null')");
    place.sql(
        "INSERT INTO {table} (state_id, partial_state, completed_state) VALUES ('empty', '', '')",
    );
    for name in ["null", "empty"] {
        let entry = place.backend.get(&id(name)).await.unwrap().unwrap();
        assert_eq!(entry.state, State::default());
    }
    assert_eq!(
        place.backend.get_ids("*", None, 10).await.unwrap().ids,
        ["a", "empty", "null"].map(id)
    );
}

#[tokio::test]
async fn what_we_write_is_read_by_the_python_backend() {
    for theirs in [true, false] {
        let place = place().await;
        if theirs {
            place.create_as_the_python_backend();
        }
        place
            .backend
            .set(&id("a"), completed("{\"a\": 1}"))
            .await
            .unwrap();
        assert_eq!(place.sql(PYTHON_GET), "\\N\t{\"a\": 1}\n");
        place.sql(PYTHON_SET);
        let entry = place.backend.get(&id("a")).await.unwrap().unwrap();
        assert_eq!(entry.state, completed("{\"singer_state\": {\"n\": 1}}"));
        assert!(place.backend.delete(&id("a")).await.unwrap());
        assert_eq!(removed(&place).await, "", "theirs: {theirs}");
    }
}

/// What the Python backend reads once the removal is done: at once where the server is not busy, else when `migrate` has
/// tidied up.
async fn removed(place: &Place) -> String {
    let mut left = place.sql(PYTHON_GET);
    for _ in 0..100 {
        if left.is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        place.backend.migrate().await.unwrap();
        left = place.sql(PYTHON_GET);
    }
    left
}

#[tokio::test]
async fn a_write_counts_also_when_the_last_one_is_from_the_future() {
    for theirs in [true, false] {
        let place = place().await;
        if theirs {
            place.create_as_the_python_backend();
        } else {
            place
                .backend
                .set(&id("a"), completed("{\"a\":1}"))
                .await
                .unwrap();
        }
        place.sql("INSERT INTO {table} (state_id, completed_state, updated_at) VALUES ('a', '{\"a\":2}', now64(3) + INTERVAL 1 YEAR)");
        let before = place.backend.get(&id("a")).await.unwrap().unwrap();
        place
            .backend
            .set(&id("a"), completed("{\"a\":3}"))
            .await
            .unwrap();
        let after = place.backend.get(&id("a")).await.unwrap().unwrap();
        assert_eq!(after.state, completed("{\"a\":3}"));
        assert!(after.version > before.version);
        assert!(place.backend.delete(&id("a")).await.unwrap());
        assert_eq!(place.backend.get(&id("a")).await.unwrap(), None);
    }
}

#[tokio::test]
async fn equal_states_are_all_stored_though_the_table_knows_equal_blocks() {
    let place = place().await;
    for name in ["a", "b", "a"] {
        place
            .backend
            .set(&id(name), completed("{\"a\":1}"))
            .await
            .unwrap();
    }
    place.backend.delete(&id("a")).await.unwrap();
    place
        .backend
        .set(&id("a"), completed("{\"a\":1}"))
        .await
        .unwrap();
    assert_eq!(
        place.backend.get_ids("*", None, 10).await.unwrap().ids,
        ["a", "b"].map(id)
    );
}

#[tokio::test]
async fn a_deletion_does_not_wait_for_mutations_and_spares_what_comes_after_it() {
    let place = place().await;
    place
        .backend
        .set(&id("a"), completed("{\"a\":1}"))
        .await
        .unwrap();
    place.sql("SYSTEM STOP MERGES {table}");
    let start = std::time::Instant::now();
    assert!(place.backend.delete(&id("a")).await.unwrap());
    assert!(start.elapsed().as_secs() < 30);
    assert_eq!(place.backend.get(&id("a")).await.unwrap(), None);
    place
        .backend
        .set(&id("a"), completed("{\"a\":2}"))
        .await
        .unwrap();
    place.sql("SYSTEM START MERGES {table}");
    for _ in 0..400 {
        if place.sql(&format!(
            "SELECT count() FROM system.mutations WHERE NOT is_done AND database = '{}'",
            place.schema
        )) == "0\n"
        {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    let entry = place.backend.get(&id("a")).await.unwrap().unwrap();
    assert_eq!(entry.state, completed("{\"a\":2}"));
}

/// A removal goes through the table part by part: were the tombstone's part the first, the state would come back.
#[tokio::test]
async fn a_deleted_state_never_comes_back_while_its_rows_are_removed() {
    let place = place().await;
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let store = place.backend.clone();
            tokio::spawn(async move {
                for round in 0..15 {
                    let name = id(&format!("{task}-{round}"));
                    store.set(&name, completed("{\"a\":1}")).await.unwrap();
                    assert!(store.delete(&name).await.unwrap());
                    for _ in 0..20 {
                        assert_eq!(store.get(&name).await.unwrap(), None, "{name}");
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_user_who_may_only_read_reads_and_is_told_so_on_a_write() {
    let place = place().await;
    place
        .backend
        .set(&id("a"), completed("{\"a\":1}"))
        .await
        .unwrap();
    let Some(uri) = server().reader_uri("default") else {
        eprintln!("the server that was given has no such user; see ClickHouse::reader_uri");
        return;
    };
    let reader = open(&uri, &place.schema).await;
    assert!(reader.get(&id("a")).await.unwrap().is_some());
    assert_eq!(reader.get_ids("a*", None, 10).await.unwrap().ids, [id("a")]);
    assert_eq!(
        reader
            .get_page("[a]", None, 10)
            .await
            .unwrap()
            .entries
            .len(),
        1
    );
    for error in [
        reader
            .set(&id("a"), completed("{\"a\":2}"))
            .await
            .unwrap_err(),
        reader
            .set(
                &id("a"),
                completed(&format!("{{\"a\":\"{}\"}}", "x".repeat(10_000_000))),
            )
            .await
            .unwrap_err(),
        reader.delete(&id("a")).await.map(drop).unwrap_err(),
        reader.clear().await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, Error::AccessDenied(_)), "{error:?}");
        assert!(error.to_string().contains("readonly"), "{error}");
        assert_eq!(error.outcome(), Outcome::NotApplied);
    }
    let entry = place.backend.get(&id("a")).await.unwrap().unwrap();
    assert_eq!(entry.state, completed("{\"a\":1}"));
}

#[tokio::test]
async fn any_name_of_a_schema_and_a_table_is_quoted() {
    for name in [
        "my-state",
        "a`b",
        "a\\b",
        "a'b\"c",
        "select",
        "é 😀",
        "a\nb",
        "x; DROP TABLE y",
        "{id:String}",
    ] {
        let schema = format!("{} {name}", fresh_name("suite"));
        let settings = Settings::new().set("schema", &schema).set("table", name);
        let store = plugins()
            .await
            .open(&server().uri("default"), &settings)
            .unwrap();
        store.set(&id("a"), completed("{\"a\":1}")).await.unwrap();
        assert!(store.get(&id("a")).await.unwrap().is_some(), "{name}");
        assert_eq!(store.get_ids("*", None, 10).await.unwrap().ids, [id("a")]);
        assert!(store.delete(&id("a")).await.unwrap());
        assert_eq!(store.clear().await.unwrap(), 0);
        let tables = server()
            .query("SELECT database, name FROM system.tables WHERE database LIKE 'suite%' FORMAT JSONEachRow")
            .unwrap();
        let json = |text: &str| serde_json::Value::from(text).to_string();
        assert!(
            tables.contains(&json(&schema)) && tables.contains(&json(name)),
            "{name}: {tables}"
        );
    }
}

#[tokio::test]
async fn a_wrong_password_is_told_and_never_shown() {
    let address = server().address();
    for uri in [
        format!("clickhouse://app:hunter2sekret@{address}/db"),
        format!("clickhouse://nobody:hunter2sekret@{address}/db"),
    ] {
        let store = open(&uri, "suite").await;
        for error in [
            store.get(&id("a")).await.map(drop).unwrap_err(),
            store
                .set(&id("a"), completed("{\"a\":1}"))
                .await
                .unwrap_err(),
            store
                .set(
                    &id("a"),
                    completed(&format!("{{\"a\":\"{}\"}}", "x".repeat(10_000_000))),
                )
                .await
                .unwrap_err(),
        ] {
            assert!(matches!(error, Error::Unauthenticated(_)), "{error:?}");
            assert!(
                !format!("{error:?} {error}").contains("sekret"),
                "{error:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_table_that_is_no_state_table_is_told() {
    let place = place().await;
    place.sql(&format!("CREATE DATABASE `{}`", place.schema));
    place.sql("CREATE TABLE {table} (state_id String, updated_at DateTime64(3)) ENGINE = ReplacingMergeTree ORDER BY state_id");
    place.sql("INSERT INTO {table} (state_id) VALUES ('a')");
    let error = place.backend.get(&id("a")).await.unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
    let error = place
        .backend
        .set(&id("a"), completed("{\"a\":1}"))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
    assert_eq!(place.sql("SELECT count() FROM {table}"), "1\n");
}

#[tokio::test]
async fn text_that_is_no_object_is_corrupt_and_names_the_state() {
    let place = place().await;
    place.create_as_the_python_backend();
    place.sql("INSERT INTO {table} (state_id, completed_state) VALUES ('bad', 'nonsense')");
    let error = place.backend.get(&id("bad")).await.unwrap_err();
    let Error::Corrupt(message) = error else {
        panic!("{error:?}")
    };
    assert!(message.contains("`bad`"), "{message}");
    assert_eq!(
        place.backend.get_ids("*", None, 10).await.unwrap().ids,
        [id("bad")]
    );
}

#[tokio::test]
async fn a_server_that_is_gone_is_told_and_a_write_was_not_applied() {
    let server = ClickHouse::start_on(0).unwrap();
    let store = open(&server.uri("default"), &fresh_name("suite")).await;
    store.set(&id("a"), completed("{\"a\":1}")).await.unwrap();
    drop(server);
    let error = store
        .set(&id("a"), completed("{\"a\":2}"))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert_eq!(error.outcome(), Outcome::NotApplied, "{error}");
}

/// A place whose table the Python backend made and filled with `a`.
async fn python_place() -> Place {
    let place = place().await;
    place.create_as_the_python_backend();
    place.sql(PYTHON_SET);
    place
}

async fn with_settings(uri: &str, schema: &str, settings: &[(&str, &str)]) -> Backend {
    let settings = settings.iter().fold(
        Settings::new().set("schema", schema),
        |all, (name, value)| all.set(*name, *value),
    );
    plugins().await.open(uri, &settings).unwrap()
}

/// Of a write by the server that was given there are no such users.
fn of_started(uri: Option<String>) -> Option<String> {
    if uri.is_none() {
        eprintln!(
            "skipped: the server that was given has no such user; see ClickHouse::writer_uri"
        );
    }
    uri
}

#[tokio::test]
async fn a_table_of_the_python_backend_is_brought_up_to_date_by_the_first_write_that_needs_it() {
    for migrate in [false, true] {
        let place = python_place().await;
        let before = place.backend.get(&id("a")).await.unwrap().unwrap();
        if migrate {
            let done = place.backend.migrate().await.unwrap();
            assert_eq!(done.len(), 2, "{done:?}");
            assert_eq!(place.backend.migrate().await.unwrap(), [""; 0]);
            let after = place.backend.get(&id("a")).await.unwrap().unwrap();
            assert_eq!(before, after);
        }
        let version = place
            .backend
            .update(&id("a"), partial("{\"p\": 1}"))
            .await
            .unwrap();
        assert!(version > before.version);
        let made = place.sql("SHOW CREATE TABLE {table} FORMAT TSVRaw");
        for part in [
            "DateTime64(9)",
            "written_at",
            "deleted",
            "writes",
            "deduplication_window = 10000",
        ] {
            assert!(made.contains(part), "{part}: {made}");
        }
        assert_eq!(
            place.sql(PYTHON_GET),
            "{\"p\": 1}\t{\"singer_state\": {\"n\": 1}}\n"
        );
        place.sql(PYTHON_SET);
        let entry = place.backend.get(&id("a")).await.unwrap().unwrap();
        assert!(entry.version > version);
        assert_eq!(entry.state, completed("{\"singer_state\": {\"n\": 1}}"));
    }
}

#[tokio::test]
async fn the_server_still_lists_states_of_a_table_that_was_brought_up_to_date() {
    let place = python_place().await;
    place.sql("INSERT INTO {table} (state_id, completed_state) SELECT toString(number), '{\"n\":1}' FROM numbers(1000)");
    place.backend.migrate().await.unwrap();
    assert_eq!(
        place
            .backend
            .get_ids("*", None, 5000)
            .await
            .unwrap()
            .ids
            .len(),
        1001
    );
    assert_eq!(
        place
            .backend
            .get_page("9*", None, 5000)
            .await
            .unwrap()
            .entries
            .len(),
        111
    );
    assert!(place.backend.delete(&id("a")).await.unwrap());
    assert_eq!(place.backend.clear().await.unwrap(), 1000);
}

#[tokio::test]
async fn a_writer_without_other_rights_writes_to_tables_that_are_there() {
    let Some(uri) = of_started(server().writer_uri("default")) else {
        return;
    };
    let place = place().await;
    place
        .backend
        .set(&id("a"), completed("{\"n\":1}"))
        .await
        .unwrap();
    let writer = open(&uri, &place.schema).await;
    writer.set(&id("a"), completed("{\"n\":2}")).await.unwrap();
    writer.update(&id("b"), partial("{\"n\":2}")).await.unwrap();
    writer
        .set_many(vec![(id("c"), State::default())])
        .await
        .unwrap();
    // It may not remove the rows: the tombstone stays, and hides them.
    assert!(writer.delete(&id("a")).await.unwrap());
    assert_eq!(writer.get(&id("a")).await.unwrap(), None);
    assert_eq!(
        place.backend.get_ids("*", None, 10).await.unwrap().ids,
        ["b", "c"].map(id)
    );
    writer.update(&id("a"), partial("{\"n\":3}")).await.unwrap();
    assert_eq!(
        writer.get(&id("a")).await.unwrap().unwrap().state,
        partial("{\"n\":3}")
    );
    let error = writer.clear().await.unwrap_err();
    assert!(matches!(error, Error::AccessDenied(_)), "{error:?}");
    assert!(error.to_string().contains("TRUNCATE"), "{error}");
    // What a tombstone hides is never shown by tidying up.
    assert!(writer.delete(&id("a")).await.unwrap());
    assert_eq!(place.backend.migrate().await.unwrap(), [""; 0]);
    assert_eq!(writer.get(&id("a")).await.unwrap(), None);
    place.sql("OPTIMIZE TABLE {table} FINAL");
    // A mark is left alone while somebody may still rely on it.
    tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
    let done = place.backend.migrate().await.unwrap();
    assert_eq!(done, ["removed the marks of 1 deleted states"]);
    assert_eq!(
        place.sql("SELECT count() FROM {table} WHERE state_id = 'a'"),
        "0\n"
    );
    assert_eq!(writer.get(&id("a")).await.unwrap(), None);
}

#[tokio::test]
async fn what_a_user_may_not_do_is_told_with_the_missing_grant() {
    let Some(uri) = of_started(server().writer_uri("default")) else {
        return;
    };
    // No table, and no right to make one.
    let nowhere = open(&uri, &fresh_name("suite")).await;
    for large in [1, 1_000_000] {
        let state = completed(&format!("{{\"n\":\"{}\"}}", "x".repeat(large)));
        let error = nowhere.set(&id("a"), state).await.unwrap_err();
        assert!(matches!(error, Error::AccessDenied(_)), "{error:?}");
        assert!(error.to_string().contains("CREATE DATABASE"), "{error}");
        assert_eq!(error.outcome(), Outcome::NotApplied);
    }
    // A table of the Python backend, and no right to alter it: what is inexact there is refused.
    let place = python_place().await;
    let writer = open(&uri, &place.schema).await;
    writer.set(&id("b"), completed("{\"n\":1}")).await.unwrap();
    let version = writer.get(&id("a")).await.unwrap().unwrap().version;
    for error in [
        writer
            .update(&id("a"), partial("{\"p\":1}"))
            .await
            .unwrap_err(),
        writer
            .set_if(&id("a"), completed("{}"), Expectation::Version(version))
            .await
            .unwrap_err(),
    ] {
        assert!(matches!(error, Error::AccessDenied(_)), "{error:?}");
        let message = error.to_string();
        assert!(
            message.contains("`migrate`") && message.contains("ALTER"),
            "{message}"
        );
        assert_eq!(error.outcome(), Outcome::NotApplied);
    }
    assert_eq!(
        place.sql(PYTHON_GET),
        "\\N\t{\"singer_state\": {\"n\": 1}}\n"
    );
}

#[tokio::test]
async fn a_history_has_every_write_whoever_made_it() {
    let place = place().await;
    let uri = server().uri("default");
    let store = with_settings(
        &uri,
        &place.schema,
        &[("history", "true"), ("history_days", "7")],
    )
    .await;
    let first = store.set(&id("a"), completed("{\"n\":1}")).await.unwrap();
    let second = store.update(&id("a"), partial("{\"p\":1}")).await.unwrap();
    place.sql(PYTHON_SET);
    let third = store.get(&id("a")).await.unwrap().unwrap().version;
    store.delete(&id("a")).await.unwrap();
    store.set(&id("b"), completed("{\"n\":9}")).await.unwrap();
    store.set(&id("a"), completed("{\"n\":2}")).await.unwrap();

    let changes = store.versions(&id("a"), None, 10).await.unwrap();
    let states: Vec<_> = changes.iter().map(|change| change.state.clone()).collect();
    let with_partial = State {
        partial: Some("{\"p\":1}".to_owned()),
        ..completed("{\"n\":1}")
    };
    assert_eq!(
        states,
        [
            Some(completed("{\"n\":2}")),
            None,
            Some(completed("{\"singer_state\": {\"n\": 1}}")),
            Some(with_partial.clone()),
            Some(completed("{\"n\":1}")),
        ]
    );
    let versions: Vec<_> = changes.iter().map(|change| change.version).collect();
    assert_eq!(versions[2..], [third, second, first]);
    let page = store.versions(&id("a"), Some(third), 1).await.unwrap();
    assert_eq!(page[0].version, second);
    assert_eq!(page.len(), 1);
    assert_eq!(store.versions(&id("nobody"), None, 10).await.unwrap(), []);
    let made = place.sql(&format!(
        "SHOW CREATE TABLE `{}`.state_history FORMAT TSVRaw",
        place.schema
    ));
    assert!(made.contains("toIntervalDay(7)"), "{made}");
}

#[tokio::test]
async fn a_history_begins_with_what_is_stored_when_it_is_switched_on() {
    let place = python_place().await;
    let error = place
        .backend
        .versions(&id("a"), None, 10)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::InvalidInput(_)), "{error:?}");
    assert!(error.to_string().contains("`migrate`"), "{error}");
    let store = with_settings(&server().uri("default"), &place.schema, &[("history", "1")]).await;
    assert_eq!(store.migrate().await.unwrap().len(), 3);
    assert_eq!(store.migrate().await.unwrap(), [""; 0]);
    let changes = store.versions(&id("a"), None, 10).await.unwrap();
    assert_eq!(changes.len(), 1);
    assert_eq!(
        changes[0].state,
        Some(completed("{\"singer_state\": {\"n\": 1}}"))
    );
}

/// The view sees also the inserts that are dropped: what was never stored must not be in the history.
#[tokio::test]
async fn a_history_has_nothing_that_was_never_stored() {
    let place = place().await;
    let store = with_settings(
        &server().uri("default"),
        &place.schema,
        &[("history", "true")],
    )
    .await;
    store.set(&id("a"), partial("{\"n\":0}")).await.unwrap();
    let tasks: Vec<_> = (0..6)
        .map(|task| {
            let store = store.clone();
            tokio::spawn(async move {
                for round in 0..8 {
                    let document = format!("{{\"t{task}\":{round}}}");
                    store.update(&id("a"), partial(&document)).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let rows = place.sql(&format!(
        "SELECT count() FROM `{}`.state_history",
        place.schema
    ));
    let changes = store.versions(&id("a"), None, 1000).await.unwrap();
    assert_eq!(changes.len(), 49, "{rows} rows");
    let parsed = |change: &pipeline_state::Change| -> serde_json::Value {
        let state = change.state.clone().unwrap();
        serde_json::from_str(&state.partial.unwrap()).unwrap()
    };
    // Each one adds one member, or raises one, by one.
    for pair in changes.windows(2) {
        let (newer, older) = (parsed(&pair[0]), parsed(&pair[1]));
        let raised = newer
            .as_object()
            .unwrap()
            .iter()
            .filter(|(key, value)| older.get(*key) != Some(value));
        assert_eq!(raised.count(), 1, "{newer} after {older}");
    }
}

#[tokio::test]
async fn where_the_server_takes_no_notice_of_tokens_that_is_found_out() {
    let place = place().await;
    place
        .backend
        .set(&id("a"), partial("{\"n\":0}"))
        .await
        .unwrap();
    place.sql("ALTER TABLE {table} MODIFY SETTING non_replicated_deduplication_window = 0");
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let store = place.backend.clone();
            tokio::spawn(async move {
                for round in 0..20 {
                    let document = format!("{{\"t{task}\":{round}}}");
                    store.update(&id("a"), partial(&document)).await?;
                }
                Ok::<(), Error>(())
            })
        })
        .collect();
    let mut found = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(()) => {}
            Err(error) => {
                assert!(error.to_string().contains("deduplication"), "{error}");
                assert_eq!(error.outcome(), Outcome::Unknown);
                found += 1;
            }
        }
    }
    assert!(found > 0, "8 writers at once met no one");
}

#[tokio::test]
async fn a_write_that_would_empty_a_state_is_refused_where_that_is_asked_for() {
    let place = place().await;
    let store = with_settings(
        &server().uri("default"),
        &place.schema,
        &[("refuse_empty", "on")],
    )
    .await;
    let full = completed("{\"singer_state\": {\"bookmarks\": {\"a\": 1}}}");
    store.set(&id("a"), full.clone()).await.unwrap();
    for empty in [State::default(), completed("{\"singer_state\": {}}")] {
        let error = store.set(&id("a"), empty.clone()).await.unwrap_err();
        assert!(matches!(error, Error::InvalidInput(_)), "{error:?}");
        assert!(error.to_string().contains("refuse_empty"), "{error}");
        // The same by default is a write like any other.
        assert_eq!(store.get(&id("a")).await.unwrap().unwrap().state, full);
        store.set(&id("new"), empty).await.unwrap();
    }
    let many = vec![(id("b"), full.clone()), (id("a"), State::default())];
    let error = store.set_many(many).await.unwrap_err();
    assert!(matches!(error, Error::InvalidInput(_)), "{error:?}");
    assert_eq!(store.get(&id("b")).await.unwrap(), None);
    let error = store
        .update(&id("a"), completed("{\"singer_state\": {}}"))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::InvalidInput(_)), "{error:?}");
    place.backend.set(&id("a"), State::default()).await.unwrap();
}

#[tokio::test]
async fn other_settings_reach_the_server() {
    let place = place().await;
    let uri = server().uri("default");
    let store = with_settings(&uri, &place.schema, &[("setting_no_such_setting", "1")]).await;
    let error = store.set(&id("a"), State::default()).await.unwrap_err();
    assert!(
        matches!(error, Error::Server { code: 115, .. }),
        "{error:?}"
    );
    let store = with_settings(&uri, &place.schema, &[("setting_max_execution_time", "30")]).await;
    store.set(&id("a"), State::default()).await.unwrap();
    assert!(store.get(&id("a")).await.unwrap().is_some());
    for (name, value) in [
        ("setting_query", "DROP TABLE x"),
        ("tabel", "x"),
        ("engine", "Memory"),
    ] {
        let store = with_settings(&uri, &place.schema, &[(name, value)]).await;
        let error = store.get(&id("a")).await.unwrap_err();
        assert!(matches!(error, Error::InvalidInput(_)), "{name}: {error:?}");
    }
}

#[tokio::test]
async fn compressed_bodies_are_understood_both_ways() {
    let place = place().await;
    let store = with_settings(
        &server().uri("default"),
        &place.schema,
        &[("compress", "1"), ("setting_enable_http_compression", "1")],
    )
    .await;
    let error = store.get(&id("a")).await.unwrap_err();
    assert!(matches!(error, Error::InvalidInput(_)), "{error:?}");
    let store = with_settings(
        &server().uri("default"),
        &place.schema,
        &[("compress", "1")],
    )
    .await;
    for size in [10, 1_000, 100_000, 10_000_000] {
        let state = completed(&format!("{{\"a\":\"{}\"}}", "ä".repeat(size / 2)));
        store.set(&id("a"), state.clone()).await.unwrap();
        assert!(
            store.get(&id("a")).await.unwrap().unwrap().state == state,
            "{size}"
        );
        assert_eq!(
            store.get_page("*", None, 10).await.unwrap().entries.len(),
            1
        );
    }
}

#[tokio::test]
async fn a_time_zone_shifts_nothing() {
    // In that night of 2026 an hour comes twice.
    let server = ClickHouse::start_in("America/New_York").unwrap();
    let schema = fresh_name("suite");
    let store = open(&server.uri("default"), &schema).await;
    let utc = place().await.backend;
    for store in [&store, &utc] {
        store.set(&id("a"), completed("{\"n\":1}")).await.unwrap();
        store.update(&id("a"), partial("{\"n\":1}")).await.unwrap();
    }
    let here = store.get(&id("a")).await.unwrap().unwrap();
    let there = utc.get(&id("a")).await.unwrap().unwrap();
    assert!(
        here.updated_at_ms.abs_diff(there.updated_at_ms) < 10_000,
        "{here:?} {there:?}"
    );
    assert!(here.version.get().abs_diff(there.version.get()) < 10_000_000_000);
    let insert = |seconds: u64| {
        let sql = format!(
            "INSERT INTO `{schema}`.state (state_id, completed_state, updated_at) VALUES ('dst', '{{\"n\":1}}', {seconds}.5)"
        );
        server.query(&sql).unwrap();
    };
    // 2026-11-01 01:30 before and after the clock goes back.
    for seconds in [1_793_511_000, 1_793_514_600] {
        insert(seconds);
        let entry = store.get(&id("dst")).await.unwrap().unwrap();
        assert_eq!(entry.version.get(), seconds * 1_000_000_000 + 500_000_000);
        assert_eq!(entry.updated_at_ms, seconds * 1000 + 500);
    }
    assert!(store.delete(&id("dst")).await.unwrap());
}

async fn findings(store: &Backend) -> Vec<Finding> {
    store.check().await.unwrap()
}

fn about<'a>(findings: &'a [Finding], subject: &str) -> Vec<&'a Finding> {
    findings
        .iter()
        .filter(|finding| finding.subject == subject)
        .collect()
}

fn worst(findings: &[Finding]) -> Severity {
    findings
        .iter()
        .map(|finding| finding.severity)
        .max()
        .unwrap()
}

#[tokio::test]
async fn a_check_tells_what_is_and_what_to_do() {
    let place = place().await;
    // A server that was never written to.
    let fresh = findings(&place.backend).await;
    assert!(worst(&fresh) < Severity::Warning, "{fresh:#?}");
    assert!(about(&fresh, "server")[0].text.starts_with("ClickHouse "));
    assert!(
        about(&fresh, "table")[0].text.contains("does not exist"),
        "{fresh:#?}"
    );
    assert_eq!(about(&fresh, "clock")[0].severity, Severity::Fine);
    assert_eq!(
        about(&fresh, "keep-alive")[0].severity,
        Severity::Fine,
        "{fresh:#?}"
    );

    // Our table.
    place.backend.set(&id("a"), State::default()).await.unwrap();
    let ours = findings(&place.backend).await;
    assert!(
        about(&ours, "table")
            .iter()
            .all(|finding| finding.severity == Severity::Fine),
        "{ours:#?}"
    );

    // The Python backend's.
    let python = python_place().await;
    let found = findings(&python.backend).await;
    assert!(worst(&found) < Severity::Warning, "{found:#?}");
    let mends: Vec<_> = about(&found, "table")
        .iter()
        .filter_map(|finding| finding.mend.clone())
        .collect();
    assert!(
        mends.iter().any(|mend| mend.contains("migrate")),
        "{found:#?}"
    );

    // A table that loses states.
    let bad = fresh_name("suite");
    server().query(&format!("CREATE DATABASE `{bad}`")).unwrap();
    server().query(&format!("CREATE TABLE `{bad}`.state (state_id String, partial_state Nullable(String), completed_state Nullable(String), updated_at DateTime64(3)) ENGINE = MergeTree ORDER BY updated_at")).unwrap();
    let found = findings(&open(&server().uri("default"), &bad).await).await;
    let problems = about(&found, "table");
    let problems = problems
        .iter()
        .filter(|finding| finding.severity == Severity::Problem);
    assert_eq!(problems.count(), 2, "{found:#?}");
}

#[tokio::test]
async fn a_check_tells_what_a_user_may_do() {
    let place = place().await;
    place.backend.set(&id("a"), State::default()).await.unwrap();
    let (Some(reader), Some(writer)) = (
        of_started(server().reader_uri("default")),
        of_started(server().writer_uri("default")),
    ) else {
        return;
    };
    let found = findings(&open(&reader, &place.schema).await).await;
    let texts: Vec<_> = about(&found, "privileges")
        .iter()
        .map(|finding| finding.text.clone())
        .collect();
    assert!(
        texts.iter().any(|text| text.contains("may only read")),
        "{found:#?}"
    );
    assert!(worst(&found) < Severity::Problem, "{found:#?}");

    let found = findings(&open(&writer, &place.schema).await).await;
    let mends: Vec<_> = about(&found, "privileges")
        .iter()
        .filter_map(|finding| finding.mend.clone())
        .collect();
    assert!(
        mends
            .iter()
            .any(|mend| mend.starts_with("GRANT ALTER DELETE ON")),
        "{found:#?}"
    );
    assert!(
        !mends.iter().any(|mend| mend.starts_with("GRANT INSERT")),
        "{found:#?}"
    );
}

#[tokio::test]
async fn a_check_of_a_server_that_can_not_be_reached_says_why() {
    let address = server().address();
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    for (uri, words) in [
        (
            format!("clickhouse://app:secret@{closed}/db"),
            "nothing listens",
        ),
        (
            format!("clickhouse://app:hunter2sekret@{address}/db"),
            "does not accept this user",
        ),
        (
            format!("clickhouse://app:secret@{address}/db?secure=1"),
            "TLS",
        ),
    ] {
        let found = findings(&open(&uri, "suite").await).await;
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(found[0].severity, Severity::Problem);
        assert!(found[0].text.contains(words), "{words}: {found:#?}");
        assert!(found[0].mend.is_some());
        assert!(!format!("{found:?}").contains("sekret"));
    }
    let error = open("clickhouse://app@h:9000/db", "suite")
        .await
        .check()
        .await
        .unwrap_err();
    assert!(matches!(error, Error::InvalidInput(_)), "{error:?}");
}

/// The pairs of a pattern and an ID on which Python's own `fnmatch.fnmatchcase` was run, by this server.
#[tokio::test]
async fn patterns_match_on_the_server_what_pythons_fnmatch_matches() {
    let cases = include_str!("../../guest/tests/fnmatch.tsv");
    let mut expected: BTreeMap<&str, Vec<(&str, bool)>> = BTreeMap::new();
    for line in cases.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        expected
            .entry(fields[0])
            .or_default()
            .push((fields[1], fields[2] == "1"));
    }
    let place = place().await;
    let ids: BTreeSet<&str> = expected.values().flatten().map(|(name, _)| *name).collect();
    let states = ids
        .iter()
        .map(|name| (id(name), State::default()))
        .collect();
    place.backend.set_many(states).await.unwrap();
    // The empty pattern is all here, and nothing but the empty ID there.
    for (pattern, pairs) in expected
        .into_iter()
        .filter(|(pattern, _)| !pattern.is_empty())
    {
        let page = place.backend.get_ids(pattern, None, 10_000).await.unwrap();
        for (name, matches) in pairs {
            assert_eq!(
                page.ids.contains(&id(name)),
                matches,
                "{pattern:?} {name:?}"
            );
        }
    }
}

/// Text of all kinds of characters, always the same.
fn any_text(seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let length = next() % 24;
    (0..length)
        .filter_map(|_| {
            let odd = [
                '\\', '\'', '"', '`', '\t', '\n', '\r', '\0', 'N', ',', '[', ']', '%', '+', '&',
                '{', '}',
            ];
            match next() % 4 {
                0 => odd.get((next() % odd.len() as u64) as usize).copied(),
                1 => char::from_u32((next() % 0x80) as u32),
                2 => char::from_u32((next() % 0x800) as u32),
                _ => char::from_u32((next() % 0x11_0000) as u32),
            }
        })
        .collect()
}

#[tokio::test]
async fn any_text_is_an_id_on_either_table() {
    for theirs in [false, true] {
        let place = place().await;
        if theirs {
            place.create_as_the_python_backend();
        }
        let texts: BTreeSet<String> = (0..400).map(any_text).collect();
        let document =
            |text: &str| completed(&serde_json::json!({"id": text, "raw\t": "\\N\n"}).to_string());
        let states = texts
            .iter()
            .map(|text| (id(text), document(text)))
            .collect();
        let count = place.backend.set_many(states).await.unwrap();
        assert_eq!(count as usize, texts.len());
        let ids = place.backend.get_ids("*", None, 10_000).await.unwrap().ids;
        assert_eq!(ids, texts.iter().map(|text| id(text)).collect::<Vec<_>>());
        for (number, text) in texts
            .iter()
            .enumerate()
            .filter(|(number, _)| number % 8 == 0)
        {
            let entry = place.backend.get(&id(text)).await.unwrap().unwrap();
            assert_eq!(entry.state, document(text), "{text:?}");
            // Again, over what is there, and by the other way.
            let state = completed(&format!("{{\"again\":{number}}}"));
            place.backend.set(&id(text), state.clone()).await.unwrap();
            let entry = place.backend.get(&id(text)).await.unwrap().unwrap();
            assert_eq!(entry.state, state, "{text:?}");
        }
    }
}

/// A view behind the table that fails makes the insert fail, though the row may be stored.
#[tokio::test]
async fn a_write_that_failed_behind_the_table_is_told_as_it_is() {
    let place = place().await;
    let store = &place.backend;
    store.set(&id("a"), completed("{\"n\":0}")).await.unwrap();
    let schema = &place.schema;
    place.sql(&format!(
        "CREATE TABLE `{schema}`.sink (state_id String) ENGINE = MergeTree ORDER BY state_id"
    ));
    place.sql(&format!("CREATE MATERIALIZED VIEW `{schema}`.view TO `{schema}`.sink AS SELECT throwIf(state_id != '', 'no') :: String AS state_id FROM {{table}}"));
    for round in 1..4 {
        let state = completed(&format!("{{\"n\":{round}}}"));
        let before = store.get(&id("a")).await.unwrap().unwrap();
        let results = [
            store.set(&id("a"), state.clone()).await,
            store.update(&id("a"), state.clone()).await,
            store
                .set_if(
                    &id("a"),
                    state.clone(),
                    Expectation::Version(before.version),
                )
                .await,
        ];
        let after = store.get(&id("a")).await.unwrap().unwrap();
        // The rows may be there or not, and nobody can tell afterwards.
        let many = vec![(id("many"), state.clone())];
        if let Err(error) = store.set_many(many).await {
            assert_eq!(error.outcome(), Outcome::Unknown, "{error:?}");
        }
        for result in results {
            match result {
                Ok(version) => assert!(version <= after.version && after.state == state),
                Err(Error::Conflict { .. }) => assert_eq!(after.state, state),
                Err(error) => {
                    assert_eq!(error.outcome(), Outcome::NotApplied, "{error:?}");
                    assert_eq!(after.state, before.state, "{error:?}");
                }
            }
        }
    }
}

/// Several first updates at once: while the server is still busy with the columns, it must know tokens already.
#[tokio::test]
async fn a_table_that_is_being_brought_up_to_date_is_exact_already() {
    let place = python_place().await;
    place.sql("SYSTEM STOP MERGES {table}");
    let tasks: Vec<_> = (0..6)
        .map(|task| {
            let store = place.backend.clone();
            tokio::spawn(async move {
                for round in 1..=10 {
                    let document = format!("{{\"t{task}\": {round}}}");
                    store.update(&id("a"), partial(&document)).await.unwrap();
                }
            })
        })
        .collect();
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    place.sql("SYSTEM START MERGES {table}");
    for task in tasks {
        task.await.unwrap();
    }
    let state = place.backend.get(&id("a")).await.unwrap().unwrap().state;
    let members: serde_json::Value = serde_json::from_str(&state.partial.unwrap()).unwrap();
    for task in 0..6 {
        assert_eq!(members[format!("t{task}")], 10, "{members}");
    }
}

/// It read the state before it was deleted, and comes when the tombstone is gone.
#[tokio::test]
async fn a_write_that_comes_after_a_deletion_does_not_bring_the_state_back() {
    let slow = std::time::Duration::from_millis(500);
    let faults = Faults {
        delay: Some((1.0, slow)),
        ..Faults::none(1)
    };
    let proxy = Proxy::start(server().address().parse().unwrap(), faults).unwrap();
    let uri = server()
        .uri("default")
        .replace(&server().address(), &proxy.address().to_string());
    let place = place().await;
    let late = open(&uri, &place.schema).await;
    let store = &place.backend;
    // So that the table is one part, and the tombstone goes at once.
    for _ in 0..3 {
        let version = store.set(&id("a"), completed("{\"n\":1}")).await.unwrap();
        place.sql("OPTIMIZE TABLE {table} FINAL");
        let writer = late.clone();
        let task = tokio::spawn(async move {
            let expected = Expectation::Version(version);
            writer
                .set_if(&id("a"), completed("{\"n\":2}"), expected)
                .await
        });
        // It has read, and its insert is on the way.
        tokio::time::sleep(slow + slow / 4).await;
        assert!(store.delete(&id("a")).await.unwrap());
        let error = task.await.unwrap().unwrap_err();
        assert!(
            matches!(error, Error::Conflict { stored: None }),
            "{error:?}"
        );
        assert_eq!(store.get(&id("a")).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_history_has_one_creation_of_many_that_met() {
    let place = place().await;
    let store = with_settings(
        &server().uri("default"),
        &place.schema,
        &[("history", "true")],
    )
    .await;
    store.migrate().await.unwrap();
    for round in 0..5 {
        let name = id(&format!("id-{round}"));
        let tasks: Vec<_> = (0..6)
            .map(|task| {
                let (store, name) = (store.clone(), name.clone());
                let state = completed(&format!("{{\"task\":{task}}}"));
                tokio::spawn(async move { store.set_if(&name, state, Expectation::Absent).await })
            })
            .collect();
        for task in tasks {
            let _winner = task.await.unwrap();
        }
        let stored = store.get(&name).await.unwrap().unwrap();
        let changes = store.versions(&name, None, 10).await.unwrap();
        let found: Vec<_> = changes
            .iter()
            .map(|change| (change.version, change.state.clone()))
            .collect();
        assert_eq!(found, [(stored.version, Some(stored.state))]);
    }
}

#[tokio::test]
async fn a_clear_that_was_refused_brings_nothing_back() {
    let Some(uri) = of_started(server().writer_uri("default")) else {
        return;
    };
    let place = place().await;
    let writer = open(&uri, &place.schema).await;
    place
        .backend
        .set(&id("x"), completed("{\"old\":1}"))
        .await
        .unwrap();
    place.sql("SYSTEM STOP MERGES {table}");
    // The writer leaves tombstones: it may remove nothing.
    assert!(writer.delete(&id("x")).await.unwrap());
    place
        .backend
        .set(&id("y"), completed("{\"n\":1}"))
        .await
        .unwrap();
    assert!(writer.delete(&id("y")).await.unwrap());
    assert!(matches!(writer.clear().await, Err(Error::AccessDenied(_))));
    place.sql("SYSTEM START MERGES {table}");
    tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
    place.backend.migrate().await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    for name in ["x", "y"] {
        assert_eq!(place.backend.get(&id(name)).await.unwrap(), None, "{name}");
    }
    assert_eq!(place.backend.get_ids("*", None, 10).await.unwrap().ids, []);
}
