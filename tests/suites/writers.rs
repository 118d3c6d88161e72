//! Many writers of one state at once, each a process of its own: whatever the network does, no write is lost, and none
//! is made twice.
//!
//! Each writer counts up a number in the document. With an expectation it is one number for all of them, read, raised by
//! one and stored where nobody else was faster; with `update` each has its own. In the end the sum must be exact.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests break off to fail"
)]

mod support;

use std::process::{Command, Stdio};
use std::time::Duration;

use harness::{Faults, Proxy, fresh_name};
use pipeline_state::{Backend, Error, Expectation, Outcome, State, StateId};
use support::{completed, id, open, partial, server};

/// What a process is told by its environment to do instead of testing.
const JOB: &str = "PIPELINE_STATE_TEST_WRITER";
const WRITERS: usize = 8;
const ROUNDS: u32 = 100;
/// Behind a proxy that breaks every tenth request.
const ROUNDS_WITH_FAULTS: u32 = 25;

/// One of the processes, when the test program is started by `run`; of itself it does nothing.
#[tokio::test]
async fn writer() {
    let Ok(job) = std::env::var(JOB) else { return };
    let job: serde_json::Value = serde_json::from_str(&job).unwrap();
    let text = |name: &str| job[name].as_str().unwrap().to_owned();
    let store = open(&text("uri"), &text("schema")).await;
    let rounds = job["rounds"].as_u64().unwrap() as u32;
    match text("way").as_str() {
        "update" => update(&store, &text("name"), rounds).await,
        "set_if" => set_if(&store, rounds).await,
        way => panic!("{way}"),
    }
}

/// An update that may have been made is made again: it says what the number is, not that it grows.
async fn update(store: &Backend, name: &str, rounds: u32) {
    for round in 1..=rounds {
        let document = format!("{{\"{name}\": {round}}}");
        while let Err(error) = store.update(&id("counter"), partial(&document)).await {
            assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        }
    }
}

async fn set_if(store: &Backend, rounds: u32) {
    for _ in 0..rounds {
        loop {
            let (count, expected) = match store.get(&id("counter")).await {
                Ok(Some(entry)) => (count(&entry.state), Expectation::Version(entry.version)),
                Ok(None) => (0, Expectation::Absent),
                Err(_) => continue,
            };
            let state = completed(&format!("{{\"count\": {}}}", count + 1));
            match store.set_if(&id("counter"), state, expected).await {
                Ok(_) => break,
                // Whoever comes late leaves the others some time.
                Err(Error::Conflict { .. }) => {
                    let wait = Duration::from_millis(u64::from(std::process::id() % 7) * 4);
                    tokio::time::sleep(wait).await;
                }
                Err(error) => assert_eq!(error.outcome(), Outcome::NotApplied, "{error:?}"),
            }
        }
    }
}

fn count(state: &State) -> u64 {
    let document: serde_json::Value =
        serde_json::from_str(state.completed.as_ref().unwrap()).unwrap();
    document["count"].as_u64().unwrap()
}

/// Runs the writers, and returns what is stored in the end. None where one of them failed.
async fn run(
    way: &str,
    rounds: u32,
    proxy: Option<&Proxy>,
    prepare: impl AsyncFnOnce(&Backend, &str),
) -> Option<State> {
    let schema = fresh_name("writers");
    let store = open(&server().uri("default"), &schema).await;
    prepare(&store, &schema).await;
    let uri = match proxy {
        Some(proxy) => server()
            .uri("default")
            .replace(&server().address(), &proxy.address().to_string()),
        None => server().uri("default"),
    };
    let children: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let job = serde_json::json!({"uri": uri, "schema": schema, "way": way, "name": format!("w{writer}"), "rounds": rounds});
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "writer", "--nocapture"])
                .env(JOB, job.to_string())
                .stdout(Stdio::null())
                .stderr(if proxy.is_some() { Stdio::inherit() } else { Stdio::null() })
                .spawn()
                .unwrap()
        })
        .collect();
    let ended = tokio::task::spawn_blocking(move || {
        children
            .into_iter()
            .map(|mut child| child.wait().unwrap().success())
            .collect::<Vec<_>>()
    });
    let all_well = ended.await.unwrap().into_iter().all(|well| well);
    let entry = store.get(&StateId::from("counter")).await.unwrap();
    entry.map(|entry| entry.state).filter(|_| all_well)
}

fn sum_of_updates(state: &State) -> u64 {
    let document: serde_json::Value =
        serde_json::from_str(state.partial.as_ref().unwrap()).unwrap();
    (0..WRITERS)
        .map(|writer| document[format!("w{writer}")].as_u64().unwrap())
        .sum()
}

fn faults(seed: u64) -> Faults {
    Faults {
        before: 0.05,
        after: 0.05,
        delay: Some((0.05, Duration::from_millis(5))),
        duplicate: 0.05,
        ..Faults::none(seed)
    }
}

fn proxy(seed: u64) -> Proxy {
    Proxy::start(server().address().parse().unwrap(), faults(seed)).unwrap()
}

#[tokio::test]
async fn no_update_of_many_processes_is_lost() {
    let state = run("update", ROUNDS, None, async |_, _| {}).await.unwrap();
    assert_eq!(sum_of_updates(&state), WRITERS as u64 * u64::from(ROUNDS));
}

#[tokio::test]
async fn of_writes_that_expect_one_version_one_takes_effect() {
    let state = run("set_if", ROUNDS, None, async |_, _| {}).await.unwrap();
    assert_eq!(count(&state), WRITERS as u64 * u64::from(ROUNDS));
}

/// Requests are lost on the way, answers on the way back, some come late and some twice.
#[tokio::test]
async fn the_network_neither_loses_nor_doubles_a_write() {
    for way in ["set_if", "update"] {
        let proxy = proxy(7);
        let state = run(way, ROUNDS_WITH_FAULTS, Some(&proxy), async |_, _| {})
            .await
            .unwrap();
        let sum = match way {
            "set_if" => count(&state),
            _ => sum_of_updates(&state),
        };
        assert_eq!(sum, WRITERS as u64 * u64::from(ROUNDS_WITH_FAULTS), "{way}");
        assert!(proxy.count() > 100, "{way}: {} faults", proxy.count());
    }
}

/// That the tests above can fail: on a server that takes no notice of tokens they do.
#[tokio::test]
async fn without_tokens_writes_are_lost_or_found_to_be_inexact() {
    for way in ["set_if", "update"] {
        let state = run(way, 20, None, async |store, schema| {
            let empty = if way == "set_if" { completed("{\"count\": 0}") } else { partial("{\"x\": 0}") };
            store.set(&id("counter"), empty).await.unwrap();
            let sql = format!("ALTER TABLE `{schema}`.state MODIFY SETTING non_replicated_deduplication_window = 0");
            server().query(&sql).unwrap();
        })
        .await;
        let exact = state.is_some_and(|state| match way {
            "set_if" => count(&state) == WRITERS as u64 * 20,
            _ => sum_of_updates(&state) == WRITERS as u64 * 20,
        });
        assert!(
            !exact,
            "{way}: eight writers met no one, or were exact by chance"
        );
    }
}
