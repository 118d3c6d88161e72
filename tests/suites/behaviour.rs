//! What a store does, whichever it is: the contract's `store` through a plugin in the host. Here it is
//! ClickHouse; nothing in this file knows that.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests break off to fail"
)]

mod support;

use pipeline_state::{Backend, Error, Expectation, State, StateId, Version};
use support::{completed, id, partial, place};

#[tokio::test]
async fn what_is_set_is_read_back_byte_for_byte() {
    let store = place().await.backend;
    let state = State {
        completed: Some("{ \"b\" : 1.50,\"a\": 123456789012345678901234567890,\n\t\"lone\":\"\\ud800\",\"é\":\"'\\\\\\\"`\" }".to_owned()),
        partial: Some("{\"nul\":\"\\u0000\",\"nested\":[{},[],null]}".to_owned()),
    };
    store.set(&id("a"), state.clone()).await.unwrap();
    let entry = store.get(&id("a")).await.unwrap().unwrap();
    assert_eq!(entry.id, id("a"));
    assert_eq!(entry.state, state);
}

#[tokio::test]
async fn a_store_that_was_never_written_to_is_empty() {
    let store = place().await.backend;
    assert_eq!(store.get(&id("a")).await.unwrap(), None);
    assert_eq!(store.get_ids("*", None, 10).await.unwrap().ids, []);
    assert_eq!(store.get_page("*", None, 10).await.unwrap().entries, []);
    assert!(!store.delete(&id("a")).await.unwrap());
    assert_eq!(store.clear().await.unwrap(), 0);
}

#[tokio::test]
async fn every_write_counts_and_has_a_higher_version() {
    let store = place().await.backend;
    let mut last = None;
    for round in 0..20 {
        let state = completed(&format!("{{\"round\":{round}}}"));
        store.set(&id("a"), state.clone()).await.unwrap();
        let entry = store.get(&id("a")).await.unwrap().unwrap();
        assert_eq!(entry.state, state);
        assert!(Some(entry.version) > last, "{last:?} {:?}", entry.version);
        last = Some(entry.version);
    }
}

#[tokio::test]
async fn an_empty_state_exists() {
    let store = place().await.backend;
    for state in [State::default(), completed("{}"), completed(" { } ")] {
        store.set(&id("a"), state).await.unwrap();
        let entry = store.get(&id("a")).await.unwrap().unwrap();
        assert_eq!(entry.state.to_json(), State::default().to_json());
        assert_eq!(store.get_ids("*", None, 10).await.unwrap().ids, [id("a")]);
    }
}

#[tokio::test]
async fn any_id_is_kept_apart_from_all_others() {
    let store = place().await.backend;
    let long = "x".repeat(5000);
    let ids = [
        "",
        "a",
        "A",
        " a",
        "a ",
        "a\tb",
        "a\nb",
        "a\rb",
        "a'b",
        "a\"b",
        "a\\b",
        "a`b",
        "a\0b",
        "\\N",
        "NULL",
        "é",
        "e\u{301}",
        "😀",
        "\u{2028}",
        "{id:String}",
        "%",
        "_",
        "*",
        "?",
        "[a]",
        "a/b",
        "../a",
        "a&b=c",
        "a+b",
        "a%20b",
        "'; DROP TABLE state; --",
        "') OR 1=1 --",
        "\u{8}\u{c}\u{1b}",
        "\u{feff}",
        &long,
    ];
    for (number, name) in ids.iter().enumerate() {
        store
            .set(&id(name), completed(&format!("{{\"n\":{number}}}")))
            .await
            .unwrap();
    }
    for (number, name) in ids.iter().enumerate() {
        let entry = store.get(&id(name)).await.unwrap().unwrap();
        assert_eq!(
            entry.state,
            completed(&format!("{{\"n\":{number}}}")),
            "{name:?}"
        );
    }
    let mut sorted = ids.map(id);
    sorted.sort();
    assert_eq!(store.get_ids("*", None, 100).await.unwrap().ids, sorted);
    for name in ids {
        assert!(store.delete(&id(name)).await.unwrap(), "{name:?}");
        assert_eq!(store.get(&id(name)).await.unwrap(), None, "{name:?}");
    }
    assert_eq!(store.get_ids("*", None, 100).await.unwrap().ids, []);
}

#[tokio::test]
async fn a_pattern_is_matched_against_the_whole_id() {
    let store = place().await.backend;
    for name in [
        "dev:tap-a-to-b",
        "dev:tap_a-to-b",
        "prod:tap-a-to-b",
        "dev",
        "a\nb",
        "é",
        "[x]",
    ] {
        store.set(&id(name), completed("{\"a\":1}")).await.unwrap();
    }
    for (pattern, expected) in [
        (
            "*",
            &[
                "[x]",
                "a\nb",
                "dev",
                "dev:tap-a-to-b",
                "dev:tap_a-to-b",
                "prod:tap-a-to-b",
                "é",
            ][..],
        ),
        ("dev:*", &["dev:tap-a-to-b", "dev:tap_a-to-b"]),
        ("dev", &["dev"]),
        ("dev:tap_a*", &["dev:tap_a-to-b"]),
        (
            "*:tap?a-to-b",
            &["dev:tap-a-to-b", "dev:tap_a-to-b", "prod:tap-a-to-b"],
        ),
        ("[dp]*:*-a*", &["dev:tap-a-to-b", "prod:tap-a-to-b"]),
        ("[!dp]*", &["[x]", "a\nb", "é"]),
        ("?", &["é"]),
        ("a?b", &["a\nb"]),
        ("[[]x]", &["[x]"]),
        ("DEV*", &[]),
        ("%", &[]),
    ] {
        let expected: Vec<_> = expected.iter().map(|name| id(name)).collect();
        let ids = store.get_ids(pattern, None, 100).await.unwrap().ids;
        assert_eq!(ids, expected, "{pattern}");
        let page = store.get_page(pattern, None, 100).await.unwrap();
        let of_page: Vec<_> = page.entries.into_iter().map(|entry| entry.id).collect();
        assert_eq!(of_page, expected, "{pattern}");
    }
}

#[tokio::test]
async fn pages_follow_one_another_without_gap_or_overlap() {
    let store = place().await.backend;
    let mut expected = Vec::new();
    for number in 0..25 {
        let name = id(&format!("id-{number:02}"));
        store.set(&name, completed("{\"a\":1}")).await.unwrap();
        expected.push(name);
    }
    store.delete(&id("id-07")).await.unwrap();
    expected.retain(|name| *name != id("id-07"));
    for limit in [1, 7, 25, 100] {
        let (mut ids, mut after) = (Vec::new(), None);
        loop {
            let page = store.get_ids("id-*", after.as_ref(), limit).await.unwrap();
            ids.extend(page.ids);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(ids, expected, "{limit}");
    }
    let error = store.get_ids("*", None, 0).await.unwrap_err();
    assert!(matches!(error, Error::InvalidInput(_)), "{error}");
}

#[tokio::test]
async fn a_state_that_was_deleted_can_be_set_again() {
    let store = place().await.backend;
    for round in 0..5 {
        let state = completed(&format!("{{\"round\":{round}}}"));
        store.set(&id("a"), state.clone()).await.unwrap();
        assert_eq!(store.get(&id("a")).await.unwrap().unwrap().state, state);
        assert!(store.delete(&id("a")).await.unwrap());
        assert_eq!(store.get(&id("a")).await.unwrap(), None);
        assert!(!store.delete(&id("a")).await.unwrap());
    }
}

#[tokio::test]
async fn clear_deletes_all_and_says_how_many() {
    let store = place().await.backend;
    for name in ["a", "b", "c"] {
        store.set(&id(name), completed("{\"a\":1}")).await.unwrap();
    }
    store.delete(&id("b")).await.unwrap();
    assert_eq!(store.clear().await.unwrap(), 2);
    assert_eq!(store.get_ids("*", None, 10).await.unwrap().ids, []);
    assert_eq!(store.clear().await.unwrap(), 0);
    store.set(&id("a"), completed("{\"a\":2}")).await.unwrap();
    assert_eq!(
        store.get(&id("a")).await.unwrap().unwrap().state,
        completed("{\"a\":2}")
    );
}

#[tokio::test]
async fn a_document_that_is_no_object_is_refused_and_nothing_is_written() {
    let store = place().await.backend;
    store.set(&id("a"), completed("{\"a\":1}")).await.unwrap();
    for document in ["", "[]", "null", "1", "{", "{} {}", "{'a':1}"] {
        let error = store.set(&id("a"), completed(document)).await.unwrap_err();
        assert!(
            matches!(error, Error::InvalidInput(_)),
            "{document}: {error}"
        );
        assert_eq!(error.to_string().lines().count(), 1);
    }
    assert_eq!(
        store.get(&id("a")).await.unwrap().unwrap().state,
        completed("{\"a\":1}")
    );
}

#[tokio::test]
async fn large_states_are_kept_also_as_the_first_write_ever() {
    let store = place().await.backend;
    let large = completed(&format!("{{\"a\":\"{}\"}}", "ä\\n".repeat(2_600_000)));
    store.set(&id("large"), large.clone()).await.unwrap();
    let entry = store.get(&id("large")).await.unwrap().unwrap();
    assert!(entry.state == large, "10 MB differ");
}

#[tokio::test]
async fn a_page_of_large_states_comes_in_parts() {
    let store = place().await.backend;
    let large = completed(&format!("{{\"a\":\"{}\"}}", "x".repeat(10_000_000)));
    for name in ["a", "b", "c", "d", "e"] {
        store.set(&id(name), large.clone()).await.unwrap();
    }
    let (mut ids, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = store.get_page("*", after.as_ref(), 1000).await.unwrap();
        assert!(page.entries.iter().all(|entry| entry.state == large));
        ids.extend(page.entries.into_iter().map(|entry| entry.id));
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(ids, ["a", "b", "c", "d", "e"].map(id));
    assert!(pages > 1, "50 MB came at once");
}

#[tokio::test]
async fn calls_may_overlap() {
    let store = place().await.backend;
    store.set(&id("0"), completed("{\"a\":1}")).await.unwrap();
    let tasks: Vec<_> = (0..64)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let name = id(&number.to_string());
                let state = completed(&format!("{{\"n\":{number}}}"));
                store.set(&name, state.clone()).await.unwrap();
                assert_eq!(store.get(&name).await.unwrap().unwrap().state, state);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(store.get_ids("*", None, 1000).await.unwrap().ids.len(), 64);
}

#[tokio::test]
async fn first_writes_at_the_same_moment_all_succeed() {
    let store = place().await.backend;
    let tasks: Vec<_> = (0..8)
        .map(|number| {
            let store = store.clone();
            let name = id(&number.to_string());
            tokio::spawn(async move { store.set(&name, completed("{\"a\":1}")).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(store.get_ids("*", None, 100).await.unwrap().ids.len(), 8);
}

async fn state_of(store: &Backend, name: &StateId) -> State {
    store.get(name).await.unwrap().unwrap().state
}

/// Meltano's `update()`: what is stored, what comes, what is stored then.
#[tokio::test]
async fn an_update_adds_to_the_partial_document_and_a_complete_one_replaces_both() {
    let store = place().await.backend;
    let both = |completed: Option<&str>, partial: Option<&str>| State {
        completed: completed.map(str::to_owned),
        partial: partial.map(str::to_owned),
    };
    for (number, (before, update, after)) in [
        // Onto nothing.
        (
            None,
            both(None, Some("{\"a\": 1}")),
            both(None, Some("{\"a\": 1}")),
        ),
        (
            None,
            both(Some("{\"a\": 1}"), None),
            both(Some("{\"a\": 1}"), None),
        ),
        (None, both(None, None), both(None, None)),
        // A partial one keeps what is completed, and is merged into what is partial.
        (
            Some(both(Some("{\"a\": 1}"), None)),
            both(None, Some("{\"b\": 2}")),
            both(Some("{\"a\": 1}"), Some("{\"b\": 2}")),
        ),
        (
            Some(both(
                Some("{\"a\": 1}"),
                Some("{ \"x\": {\"y\": 1.50, \"z\": [1]},  \"w\": 1e400 }"),
            )),
            both(None, Some("{\"x\": {\"z\": [2], \"n\": null}}")),
            both(
                Some("{\"a\": 1}"),
                Some("{ \"x\": {\"y\": 1.50, \"z\": [2], \"n\": null},  \"w\": 1e400 }"),
            ),
        ),
        (
            Some(both(None, Some("{\"a\": \"\\ud800\"}"))),
            both(Some("{}"), Some("{\"b\": 123456789012345678901234567890}")),
            both(
                None,
                Some("{\"a\": \"\\ud800\",\"b\": 123456789012345678901234567890}"),
            ),
        ),
        // A complete one replaces both.
        (
            Some(both(Some("{\"a\": 1}"), Some("{\"b\": 2}"))),
            both(Some("{\"c\": 3}"), None),
            both(Some("{\"c\": 3}"), None),
        ),
        (
            Some(both(None, Some("{\"b\": 2}"))),
            both(Some("{\"c\": 3}"), Some("{\"d\": 4}")),
            both(Some("{\"c\": 3}"), Some("{\"d\": 4}")),
        ),
        // Nothing adds nothing.
        (
            Some(both(Some("{\"a\": 1}"), Some("{\"b\": 2}"))),
            both(None, None),
            both(Some("{\"a\": 1}"), Some("{\"b\": 2}")),
        ),
        (
            Some(both(None, None)),
            both(None, Some("{\"a\": 1}")),
            both(None, Some("{\"a\": 1}")),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let name = id(&number.to_string());
        if let Some(before) = before {
            store.set(&name, before).await.unwrap();
        }
        let version = store.update(&name, update.clone()).await.unwrap();
        let entry = store.get(&name).await.unwrap().unwrap();
        assert_eq!(entry.version, version, "{update:?}");
        assert_eq!(entry.state, after, "{update:?}");
    }
}

#[tokio::test]
async fn an_object_is_not_merged_into_something_else_and_nothing_is_written_then() {
    let store = place().await.backend;
    let before = partial("{\"a\": {\"b\": 1}, \"c\": [1], \"d\": null}");
    store.set(&id("a"), before.clone()).await.unwrap();
    for (update, path) in [
        ("{\"a\": {\"b\": {}}}", "`a.b`"),
        ("{\"new\": 1, \"c\": {\"x\": 1}}", "`c`"),
        ("{\"d\": {}}", "`d`"),
    ] {
        let error = store.update(&id("a"), partial(update)).await.unwrap_err();
        assert!(matches!(error, Error::InvalidInput(_)), "{error:?}");
        assert!(error.to_string().contains(path), "{error}");
        assert_eq!(state_of(&store, &id("a")).await, before);
    }
}

#[tokio::test]
async fn a_write_takes_effect_only_where_it_finds_what_it_expects() {
    let store = place().await.backend;
    let name = id("a");
    let conflict = |result: Result<Version, Error>| match result {
        Err(Error::Conflict { stored }) => stored,
        other => panic!("{other:?}"),
    };
    let state = |n: u32| completed(&format!("{{\"n\":{n}}}"));
    let version = |version| Expectation::Version(version);

    let nowhere = version(Version::from(7));
    assert_eq!(conflict(store.set_if(&name, state(0), nowhere).await), None);
    assert_eq!(store.get(&name).await.unwrap(), None);

    let first = store
        .set_if(&name, state(1), Expectation::Absent)
        .await
        .unwrap();
    assert_eq!(
        conflict(store.set_if(&name, state(0), Expectation::Absent).await),
        Some(first)
    );
    let second = store.set_if(&name, state(2), version(first)).await.unwrap();
    assert!(second > first);
    for stale in [
        first,
        Version::from(first.get() - 1),
        Version::from(second.get() + 1),
    ] {
        assert_eq!(
            conflict(store.set_if(&name, state(0), version(stale)).await),
            Some(second)
        );
        let error = store.delete_if(&name, version(stale)).await.unwrap_err();
        assert!(matches!(error, Error::Conflict { stored: Some(found) } if found == second));
    }
    assert_eq!(state_of(&store, &name).await, state(2));

    let third = store.set(&name, state(3)).await.unwrap();
    assert_eq!(
        conflict(store.set_if(&name, state(0), version(second)).await),
        Some(third)
    );
    let error = store
        .delete_if(&name, Expectation::Absent)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Conflict { .. }), "{error:?}");
    assert!(store.delete_if(&name, version(third)).await.unwrap());
    assert_eq!(store.get(&name).await.unwrap(), None);
    assert_eq!(
        conflict(store.set_if(&name, state(0), version(third)).await),
        None
    );
    let error = store.delete_if(&name, version(third)).await.unwrap_err();
    assert!(
        matches!(error, Error::Conflict { stored: None }),
        "{error:?}"
    );

    let again = store
        .set_if(&name, state(4), Expectation::Absent)
        .await
        .unwrap();
    assert!(again > third);
    assert_eq!(state_of(&store, &name).await, state(4));
}

/// Whichever way it is written, deleted and made again.
#[tokio::test]
async fn versions_of_one_state_always_grow() {
    let store = place().await.backend;
    let name = id("a");
    let mut last = Version::from(0);
    for round in 0..24_u32 {
        let state = completed(&format!("{{\"round\":{round}}}"));
        let version = match round % 4 {
            0 => store.set(&name, state).await.unwrap(),
            1 => store.update(&name, state).await.unwrap(),
            2 => store
                .set_if(&name, state, Expectation::Version(last))
                .await
                .unwrap(),
            _ => store
                .update(&name, partial(&format!("{{\"p\":{round}}}")))
                .await
                .unwrap(),
        };
        assert!(version > last, "{round}: {version} after {last}");
        let entry = store.get(&name).await.unwrap().unwrap();
        assert_eq!(entry.version, version);
        last = version;
        match round % 12 {
            3 | 5 | 6 => assert!(store.delete(&name).await.unwrap()),
            11 => assert_eq!(store.clear().await.unwrap(), 1),
            _ => continue,
        }
        if round % 12 == 5 {
            // What follows expects the last version.
            last = store.set(&name, completed("{}")).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_state_tells_when_it_was_written_whichever_way() {
    let store = place().await.backend;
    let now = || {
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        time.unwrap().as_millis() as u64
    };
    store.set(&id("a"), completed("{\"n\":0}")).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    for name in ["a", "new"] {
        let before = now();
        store.update(&id(name), partial("{\"n\":1}")).await.unwrap();
        let written = store.get(&id(name)).await.unwrap().unwrap().updated_at_ms;
        // The server is this machine.
        assert!(
            written + 200 >= before && written <= now() + 200,
            "{name}: {written} {before}"
        );
    }
}

#[tokio::test]
async fn a_write_of_what_is_stored_already_leaves_it_at_its_version() {
    let store = place().await.backend;
    let state = State {
        completed: Some("{\"a\": 1}".to_owned()),
        partial: Some("{\"b\": {\"c\": 2}}".to_owned()),
    };
    let version = store.set(&id("a"), state.clone()).await.unwrap();
    assert_eq!(store.set(&id("a"), state.clone()).await.unwrap(), version);
    assert_eq!(
        store
            .update(&id("a"), partial("{\"b\":{\"c\":2}}"))
            .await
            .unwrap(),
        version
    );
    let expected = Expectation::Version(version);
    assert_eq!(
        store
            .set_if(&id("a"), state.clone(), expected)
            .await
            .unwrap(),
        version
    );
    let other = State {
        partial: None,
        ..state
    };
    assert!(store.set(&id("a"), other).await.unwrap() > version);
}

#[tokio::test]
async fn many_states_are_set_at_once() {
    let store = place().await.backend;
    assert_eq!(store.set_many(Vec::new()).await.unwrap(), 0);
    let states: Vec<_> = (0..1000)
        .map(|n| {
            (
                id(&format!("id-{n:04}")),
                completed(&format!("{{\"n\":{n}}}")),
            )
        })
        .collect();
    assert_eq!(store.set_many(states.clone()).await.unwrap(), 1000);
    let page = store.get_page("*", None, 2000).await.unwrap();
    let stored: Vec<_> = page
        .entries
        .into_iter()
        .map(|entry| (entry.id, entry.state))
        .collect();
    assert_eq!(stored, states);

    // Over what is there, deleted, and twice in one call.
    let before = store
        .update(&id("id-0000"), completed("{\"n\":-1}"))
        .await
        .unwrap();
    store.delete(&id("id-0001")).await.unwrap();
    let again = vec![
        (id("id-0000"), completed("{\"first\":1}")),
        (id("id-0001"), completed("{\"n\":1}")),
        (id("id-0000"), State::default()),
    ];
    assert_eq!(store.set_many(again).await.unwrap(), 2);
    let entry = store.get(&id("id-0000")).await.unwrap().unwrap();
    assert_eq!(entry.state, State::default());
    assert!(entry.version > before);
    assert_eq!(
        state_of(&store, &id("id-0001")).await,
        completed("{\"n\":1}")
    );

    let bad = vec![
        (id("x"), completed("{\"n\":1}")),
        (id("y"), completed("[]")),
    ];
    let error = store.set_many(bad).await.unwrap_err();
    assert!(matches!(error, Error::InvalidInput(_)), "{error:?}");
    assert_eq!(store.get(&id("x")).await.unwrap(), None);
}

/// Each task adds its own members; were one update made of an old state, members would be missing.
#[tokio::test]
async fn updates_at_the_same_moment_are_all_kept() {
    const TASKS: usize = 6;
    const ROUNDS: usize = 15;
    let store = place().await.backend;
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let store = store.clone();
            tokio::spawn(async move {
                for round in 0..ROUNDS {
                    let document = format!("{{\"t{task}\": {{\"r{round}\": {round}}}}}");
                    store.update(&id("a"), partial(&document)).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let state = state_of(&store, &id("a")).await.partial.unwrap();
    let members: serde_json::Value = serde_json::from_str(&state).unwrap();
    for task in 0..TASKS {
        let count = members[format!("t{task}")].as_object().unwrap().len();
        assert_eq!(count, ROUNDS, "task {task}");
    }
}

#[tokio::test]
async fn of_creations_at_the_same_moment_one_succeeds_also_after_a_deletion() {
    let store = place().await.backend;
    for round in 0..15 {
        let tasks: Vec<_> = (0..6)
            .map(|task| {
                let (store, state) = (store.clone(), completed(&format!("{{\"task\":{task}}}")));
                tokio::spawn(
                    async move { store.set_if(&id("a"), state, Expectation::Absent).await },
                )
            })
            .collect();
        let mut winners = Vec::new();
        for (number, task) in tasks.into_iter().enumerate() {
            match task.await.unwrap() {
                Ok(version) => winners.push((number, version)),
                Err(Error::Conflict { stored: Some(_) }) => {}
                Err(error) => panic!("round {round}: {error:?}"),
            }
        }
        let entry = store.get(&id("a")).await.unwrap().unwrap();
        let [(winner, version)] = winners.as_slice() else {
            panic!("round {round}: {winners:?}")
        };
        assert_eq!(entry.version, *version);
        assert_eq!(entry.state, completed(&format!("{{\"task\":{winner}}}")));
        assert!(store.delete(&id("a")).await.unwrap());
    }
}

#[tokio::test]
async fn large_states_are_updated() {
    let store = place().await.backend;
    let large = |tail: &str| partial(&format!("{{\"a\":\"{}\"{tail}}}", "x".repeat(10_000_000)));
    store.update(&id("a"), large("")).await.unwrap();
    store.update(&id("a"), partial("{\"b\":1}")).await.unwrap();
    assert!(
        state_of(&store, &id("a")).await == large(",\"b\":1"),
        "10 MB differ"
    );
}
