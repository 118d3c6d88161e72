//! What a store does, whichever it is: the contract's `store` through a plugin in the host. Here it is
//! ClickHouse; nothing in this file knows that.

#![allow(clippy::unwrap_used, reason = "tests break off to fail")]

mod support;

use pipeline_state::{Error, State};
use support::{completed, id, place};

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
