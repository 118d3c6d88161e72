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

use harness::{ClickHouse, fresh_name};
use pipeline_state::{Error, Expectation, Outcome, Settings, State};
use support::{
    PYTHON_GET, PYTHON_SET, Place, completed, id, of_started, open, partial, place, plugins,
    python_place, server, with_settings,
};

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
         writes\tString\t\\'\\'\n\
         valid_until\tDateTime64(3)\ttoDateTime64(0, 3)\n"
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
    let update = place.backend.update(&id("bad"), partial("{\"a\":1}")).await;
    assert!(matches!(update, Err(Error::Corrupt(_))), "{update:?}");
    // What the error says to do.
    place
        .backend
        .set(&id("bad"), completed("{\"a\":1}"))
        .await
        .unwrap();
    let entry = place.backend.get(&id("bad")).await.unwrap().unwrap();
    assert_eq!(entry.state, completed("{\"a\":1}"));
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

#[tokio::test]
async fn a_table_of_the_python_backend_is_brought_up_to_date_by_the_first_write_that_needs_it() {
    for migrate in [false, true] {
        let place = python_place().await;
        let before = place.backend.get(&id("a")).await.unwrap().unwrap();
        if migrate {
            let done = place.backend.migrate().await.unwrap();
            assert_eq!(done.len(), 3, "{done:?}");
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
    // What a tombstone hides is never shown by tidying up. The table of leases is all that is made.
    assert_eq!(place.backend.migrate().await.unwrap().len(), 1);
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
