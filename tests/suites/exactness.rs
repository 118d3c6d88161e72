//! What could lose a write, bring one back or double one on a real ClickHouse: clocks, tombstones, tokens that are not
//! minded, tables that are being changed, writers who come too late.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests break off to fail"
)]

mod support;

use harness::{ClickHouse, Faults, Proxy, fresh_name};
use pipeline_state::{Error, Expectation, Outcome};
use support::{completed, id, of_started, open, partial, place, python_place, server};

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
