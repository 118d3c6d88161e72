//! The history of states, on a real server: what is in it, and what must not be.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests break off to fail"
)]

mod support;

use pipeline_state::{Error, Expectation, State};
use support::{PYTHON_SET, completed, id, partial, place, python_place, server, with_settings};

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
    assert_eq!(store.migrate().await.unwrap().len(), 4);
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
