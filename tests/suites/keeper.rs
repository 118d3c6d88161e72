//! Leases in ZooKeeper: two servers share them, and ZooKeeper ends and comes back.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests break off to fail"
)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use harness::{ClickHouse, ZooKeeper, fresh_name};
use pipeline_state::{Backend, Error};
use support::{completed, id, partial, server, with_settings};

/// The shortest that there is.
const SHORT: Duration = Duration::from_secs(2);

async fn on(server: &ClickHouse, schema: &str) -> Backend {
    with_settings(&server.uri("default"), schema, &[("lock", "keeper")]).await
}

fn owner(result: Result<impl Sized, Error>) -> Option<String> {
    match result {
        Err(Error::Locked { holder }) => holder.map(|holder| holder.owner),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it is not locked"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_share_leases_in_a_zookeeper_that_ends_and_comes_back() {
    let mut zookeeper = ZooKeeper::start().unwrap();
    let servers = ["r1", "r2"].map(|name| ClickHouse::start_replica(&zookeeper, name).unwrap());
    let schema = fresh_name("keeper");
    let (first, second) = (
        on(&servers[0], &schema).await,
        on(&servers[1], &schema).await,
    );
    for store in [&first, &second] {
        assert_eq!(store.holders("*").await.unwrap(), []);
        store.set(&id("a"), completed("{\"n\":0}")).await.unwrap();
    }

    one_holder_on_both(&first, &second).await;
    many_at_once_one_after_the_other(&first, &second).await;
    who_is_gone_is_followed(&first, &second).await;

    let lease = first
        .lock(&id("a"))
        .owner("one")
        .ttl(Duration::from_secs(20))
        .await
        .unwrap();
    zookeeper.stop().unwrap();
    let start = Instant::now();
    let error = second.lock(&id("a")).await.map(drop).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Server { .. } | Error::Unavailable { .. } | Error::TimedOut { .. }
        ),
        "{error:?}"
    );
    assert!(
        start.elapsed() < Duration::from_secs(90),
        "{:?}",
        start.elapsed()
    );
    zookeeper.start_again().unwrap();
    let recovery = Instant::now();
    let found = loop {
        match second.lock(&id("a")).await {
            Err(Error::Locked { holder }) => break holder,
            Err(_) if recovery.elapsed() < Duration::from_secs(30) => {
                tokio::time::sleep(Duration::from_millis(200)).await
            }
            other => panic!("{:?}", other.map(drop)),
        }
    };
    // It was held all the time, or its holder knows that it is lost.
    assert!(lease.is_lost() || found.is_some_and(|holder| holder.owner == "one"));
    lease.release().await.unwrap();
    let next = second.lock(&id("a")).wait(SHORT * 10).await.unwrap();
    next.release().await.unwrap();
}

async fn one_holder_on_both(first: &Backend, second: &Backend) {
    let lease = first.lock(&id("a")).owner("one").await.unwrap();
    for store in [first, second] {
        assert_eq!(owner(store.lock(&id("a")).await).as_deref(), Some("one"));
        assert_eq!(store.holders("*").await.unwrap()[0].token, lease.token());
        assert_eq!(store.holders("a").await.unwrap().len(), 1);
        assert_eq!(store.holders("b*").await.unwrap().len(), 0);
    }
    lease
        .backend()
        .update(&id("a"), partial("{\"m\":1}"))
        .await
        .unwrap();
    assert!(!second.break_lease(&id("a"), "another").await.unwrap());
    assert!(second.break_lease(&id("a"), lease.token()).await.unwrap());
    let next = second.lock(&id("a")).owner("two").await.unwrap();
    let refused = lease.backend().update(&id("a"), partial("{\"m\":2}")).await;
    assert_eq!(owner(refused).as_deref(), Some("two"));
    lease.release().await.unwrap();
    assert_eq!(first.holders("*").await.unwrap()[0].token, next.token());
    next.release().await.unwrap();
    assert_eq!(first.holders("*").await.unwrap(), []);
}

async fn many_at_once_one_after_the_other(first: &Backend, second: &Backend) {
    let inside = Arc::new(AtomicU32::new(0));
    let runs: Vec<_> = (0..10)
        .map(|number| {
            let store = if number % 2 == 0 { first } else { second }.clone();
            let inside = Arc::clone(&inside);
            tokio::spawn(async move {
                let work = async |_: Backend| {
                    assert_eq!(inside.fetch_add(1, SeqCst), 0, "two are inside");
                    tokio::time::sleep(Duration::from_millis(3)).await;
                    inside.fetch_sub(1, SeqCst);
                    Ok::<_, Error>(())
                };
                store
                    .lock(&id("many"))
                    .wait(Duration::from_secs(60))
                    .hold(work)
                    .await
            })
        })
        .collect();
    for run in runs {
        run.await.unwrap().unwrap();
    }
}

async fn who_is_gone_is_followed(first: &Backend, second: &Backend) {
    let lease = first.lock(&id("gone")).ttl(SHORT).await.unwrap();
    let token = lease.token().to_owned();
    tokio::time::sleep(SHORT * 2).await;
    assert!(!lease.is_lost(), "it is renewed");
    assert!(second.break_lease(&id("gone"), &token).await.unwrap());
    // A lease that nobody renews.
    let dead = second.clone();
    let acquire = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime
            .block_on(async { std::mem::forget(dead.lock(&id("gone")).ttl(SHORT).await.unwrap()) });
    };
    tokio::task::spawn_blocking(acquire).await.unwrap();
    let start = Instant::now();
    let next = first
        .lock(&id("gone"))
        .owner("next")
        .wait(SHORT * 5)
        .await
        .unwrap();
    let waited = start.elapsed();
    assert!(waited > SHORT / 2 && waited < SHORT * 3, "{waited:?}");
    let late = first
        .under_lease(&token)
        .set(&id("gone"), completed("{}"))
        .await;
    assert_eq!(owner(late).as_deref(), Some("next"));
    next.release().await.unwrap();
}

#[tokio::test]
async fn where_there_is_no_keeper_that_is_what_is_told() {
    let store = on(server(), &fresh_name("keeper")).await;
    let error = store.lock(&id("a")).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("eeper"), "{error}");
    let replicated = with_settings(
        &server().uri("default"),
        &fresh_name("keeper"),
        &[("engine", "ReplicatedReplacingMergeTree")],
    )
    .await;
    let error = replicated.lock(&id("a")).await.map(drop).unwrap_err();
    assert!(
        matches!(error, Error::InvalidInput(ref text) if text.contains("`keeper`")),
        "{error}"
    );
}
