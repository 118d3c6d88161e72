//! What the ClickHouse plugin does to a real server: its tables, and what it shares with the Python package
//! `meltano-state-backend-clickhouse`, whose statements are written out here.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests break off to fail")]

mod support;

use harness::{ClickHouse, fresh_name};
use pipeline_state::{Error, Outcome, Settings, State};
use support::{Place, completed, id, open, place, plugins, server};

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
        "SELECT name, type, default_expression FROM system.columns WHERE database = '{}' ORDER BY position FORMAT TSV",
        place.schema
    ));
    assert_eq!(
        columns,
        "state_id\tString\t\n\
         partial_state\tNullable(String)\t\n\
         completed_state\tNullable(String)\t\n\
         updated_at\tDateTime64(3)\tnow64(3)\n\
         nonce\tString\t\\'\\'\n\
         deleted\tBool\tfalse\n"
    );
    let made = place.sql("SHOW CREATE TABLE {table} FORMAT TSVRaw");
    for part in [
        "ENGINE = ReplacingMergeTree(updated_at)",
        "ORDER BY state_id",
        "index_granularity = 256",
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

/// What the Python backend reads once the removal is done. On our table that happens in the background, and not at
/// all where the server is too busy to begin within some seconds: then the next deletion does it.
async fn removed(place: &Place) -> String {
    let mut left = String::new();
    for _ in 0..3 {
        for _ in 0..200 {
            left = place.sql(PYTHON_GET);
            if left.is_empty() {
                return left;
            }
            tokio::time::sleep(std::time::Duration::from_millis(25)).await;
        }
        place.sql(PYTHON_SET);
        place.backend.delete(&id("a")).await.unwrap();
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
    assert!(matches!(error, Error::Server { code: 16, .. }), "{error:?}");
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
