//! Leases, against a real ClickHouse: who gets one, who loses it, and what may be written under it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests break off to fail"
)]

mod support;

use std::time::{Duration, Instant};

use harness::{Faults, Proxy};
use pipeline_state::{Backend, Error, Expectation, Holder, Outcome};
use support::{
    Place, completed, id, of_started, open, partial, place, python_place, server, with_settings,
};

/// The shortest that there is.
const SHORT: Duration = Duration::from_secs(2);

fn holder(result: Result<impl Sized, Error>) -> Option<Holder> {
    match result {
        Err(Error::Locked { holder }) => holder,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it is not locked"),
    }
}

/// Acquires the lease in a process of its own, so to say, that ends without a word.
fn acquire_and_die(uri: String, schema: String, ttl: Duration) -> String {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let plugins = pipeline_state::Plugins::builder().build().await.unwrap();
            let settings = pipeline_state::Settings::new().set("schema", &schema);
            let store = plugins.open(&uri, &settings).unwrap();
            let lease = store
                .lock(&id("a"))
                .owner("the dead")
                .ttl(ttl)
                .await
                .unwrap();
            let token = lease.token().to_owned();
            std::mem::forget(lease);
            token
        })
    };
    std::thread::spawn(run).join().unwrap()
}

/// A store behind a proxy with faults.
async fn behind(place: &Place, faults: Faults) -> (Proxy, Backend) {
    let upstream = server().address().parse().unwrap();
    let proxy = Proxy::start(upstream, faults).unwrap();
    let uri = server()
        .uri("default")
        .replace(&server().address(), &proxy.address().to_string());
    (proxy, open(&uri, &place.schema).await)
}

/// A store that gets each request late. The proxy counts them.
async fn slow(place: &Place, delay: Duration) -> (Proxy, Backend) {
    let faults = Faults {
        delay: Some((1.0, delay)),
        ..Faults::none(1)
    };
    behind(place, faults).await
}

#[tokio::test]
async fn a_lease_has_one_holder_whom_everybody_sees() {
    let store = place().await.backend;
    assert_eq!(store.holders("*").await.unwrap(), []);
    let lease = store.lock(&id("a")).owner("first").await.unwrap();
    let other = holder(store.lock(&id("a")).owner("second").await).unwrap();
    assert_eq!(
        (other.owner.as_str(), other.token.as_str()),
        ("first", lease.token())
    );
    assert_eq!(other.expires_at_ms - other.renewed_at_ms, 30_000);
    // Another state's is another lease.
    let b = store.lock(&id("b")).await.unwrap();
    let held: Vec<_> = store
        .holders("*")
        .await
        .unwrap()
        .into_iter()
        .map(|holder| holder.id)
        .collect();
    assert_eq!(held, ["a", "b"].map(id));
    assert_eq!(store.holders("b*").await.unwrap().len(), 1);
    assert_eq!(store.holders("a").await.unwrap(), [other]);
    lease.release().await.unwrap();
    b.release().await.unwrap();
    assert_eq!(store.holders("*").await.unwrap(), []);
    let lease = store.lock(&id("a")).owner("second").await.unwrap();
    assert_eq!(store.holders("*").await.unwrap()[0].owner, "second");
    // Dropped is released, in the background.
    drop(lease);
    let lease = store
        .lock(&id("a"))
        .wait(Duration::from_secs(5))
        .await
        .unwrap();
    lease.release().await.unwrap();
}

#[tokio::test]
async fn of_many_at_once_one_gets_it_and_the_others_one_after_the_other() {
    let store = place().await.backend;
    let inside = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let runs = (0..16).map(|number| {
        let (store, inside) = (store.clone(), inside.clone());
        tokio::spawn(async move {
            let lock = store
                .lock(&id("a"))
                .owner(format!("{number}"))
                .wait(Duration::from_secs(60));
            let work = async |_: Backend| {
                use std::sync::atomic::Ordering::SeqCst;
                assert_eq!(inside.fetch_add(1, SeqCst), 0, "two are inside");
                tokio::time::sleep(Duration::from_millis(3)).await;
                inside.fetch_sub(1, SeqCst);
                Ok::<_, Error>(())
            };
            lock.hold(work).await
        })
    });
    for run in runs.collect::<Vec<_>>() {
        run.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_lease_is_renewed_as_long_as_it_is_held_and_ends_soon_after_its_holder() {
    let place = place().await;
    let store = &place.backend;
    let lease = store.lock(&id("a")).ttl(SHORT).await.unwrap();
    tokio::time::sleep(SHORT * 2).await;
    assert!(!lease.is_lost());
    let seen = holder(store.lock(&id("a")).await).unwrap();
    assert_eq!(seen.token, lease.token());
    assert!(seen.renewed_at_ms > seen.acquired_at_ms + 2_000);
    lease.release().await.unwrap();

    let (uri, schema) = (server().uri("default"), place.schema.clone());
    let start = Instant::now();
    let token = tokio::task::spawn_blocking(move || acquire_and_die(uri, schema, SHORT))
        .await
        .unwrap();
    let lease = store.lock(&id("a")).wait(SHORT * 5).await.unwrap();
    let waited = start.elapsed();
    assert!(waited >= SHORT && waited < SHORT * 3, "{waited:?}");
    // What the dead one would still have written.
    let late = store
        .under_lease(&token)
        .update(&id("a"), partial("{}"))
        .await;
    assert_eq!(holder(late).unwrap().token, lease.token());
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_broken_lease_is_known_to_be_lost_at_once_and_can_not_be_written_under() {
    let store = place().await.backend;
    let lease = store
        .lock(&id("a"))
        .owner("old")
        .ttl(SHORT * 2)
        .await
        .unwrap();
    let old = lease.backend();
    old.set(&id("a"), completed("{\"n\":1}")).await.unwrap();
    old.update(&id("a"), partial("{\"m\":1}")).await.unwrap();
    assert!(!store.break_lease(&id("a"), "another").await.unwrap());
    assert!(!store.break_lease(&id("b"), lease.token()).await.unwrap());
    assert!(store.break_lease(&id("a"), lease.token()).await.unwrap());
    assert!(!store.break_lease(&id("a"), lease.token()).await.unwrap());
    let next = store.lock(&id("a")).owner("new").await.unwrap();
    // By its token alone: the newer one is not touched.
    assert!(!store.break_lease(&id("a"), lease.token()).await.unwrap());

    let before = store.get(&id("a")).await.unwrap();
    let refused = [
        old.set(&id("a"), completed("{\"n\":2}")).await.map(drop),
        old.set_if(&id("a"), completed("{\"n\":2}"), Expectation::Any)
            .await
            .map(drop),
        old.update(&id("a"), partial("{\"m\":2}")).await.map(drop),
        old.delete(&id("a")).await.map(drop),
    ];
    for result in refused {
        let error = result.unwrap_err();
        assert_eq!(error.outcome(), Outcome::NotApplied);
        assert_eq!(holder(Err::<(), _>(error)).unwrap().owner, "new");
    }
    assert_eq!(store.get(&id("a")).await.unwrap(), before);
    let start = Instant::now();
    assert_eq!(
        holder(Err::<(), _>(lease.lost().await)).unwrap().owner,
        "new"
    );
    assert!(start.elapsed() < SHORT * 2, "{:?}", start.elapsed());
    assert!(lease.is_lost());
    // Nothing to release, and the next one keeps its own.
    lease.release().await.unwrap();
    assert!(!next.is_lost());
    assert_eq!(store.holders("*").await.unwrap().len(), 1);
    next.backend().delete(&id("a")).await.unwrap();
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_lease_is_of_one_state() {
    let store = place().await.backend;
    let lease = store.lock(&id("a")).await.unwrap();
    let under = lease.backend();
    assert_eq!(holder(under.set(&id("b"), completed("{}")).await), None);
    assert_eq!(store.get(&id("b")).await.unwrap(), None);
    for error in [
        under
            .set_many(vec![(id("a"), completed("{}"))])
            .await
            .unwrap_err(),
        under.clear().await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::InvalidInput(_)), "{error:?}");
    }
    lease.release().await.unwrap();
}

/// Without the pause between the look at the lease and the insert: the server itself refuses what comes late.
#[tokio::test]
async fn the_server_refuses_a_write_that_was_on_its_way_when_the_lease_ended() {
    let place = place().await;
    let store = &place.backend;
    store.set(&id("a"), completed("{\"n\":1}")).await.unwrap();
    let (proxy, slow) = slow(&place, Duration::from_millis(1_500)).await;
    let (dead, schema) = (server().uri("default"), place.schema.clone());
    // The reading and the look at the lease take 3 s of 5.3; the insert comes after 4.5 s, within the margin.
    let ttl = Duration::from_millis(5_300);
    let token = tokio::task::spawn_blocking(move || acquire_and_die(dead, schema, ttl))
        .await
        .unwrap();
    let late = slow.under_lease(&token);
    let error = late
        .set(&id("a"), completed("{\"n\":2}"))
        .await
        .unwrap_err();
    // The insert was sent; the server refused it, and the lease was looked at once more.
    assert!(proxy.count() > 3, "{}", proxy.count());
    assert!(matches!(error, Error::Locked { holder: None }), "{error:?}");
    assert_eq!(
        store.get(&id("a")).await.unwrap().unwrap().state,
        completed("{\"n\":1}")
    );
    assert_eq!(
        place
            .sql("SELECT count() FROM {table} WHERE completed_state LIKE '%2%'")
            .trim(),
        "0"
    );
}

/// A refused write says so already, long before the next renewal.
#[tokio::test]
async fn a_lease_is_known_to_be_lost_once_a_write_under_it_was_refused() {
    let store = place().await.backend;
    let lease = store
        .lock(&id("a"))
        .ttl(Duration::from_secs(3600))
        .await
        .unwrap();
    // Another state's is refused, and no news.
    let refused = lease.backend().set(&id("b"), completed("{}")).await;
    assert_eq!(holder(refused), None);
    assert!(store.break_lease(&id("a"), lease.token()).await.unwrap());
    let refused = lease.backend().set(&id("a"), completed("{}")).await;
    assert_eq!(holder(refused), None);
    let lost = tokio::time::timeout(Duration::from_secs(5), lease.lost()).await;
    assert_eq!(holder(Err::<(), _>(lost.unwrap())), None);
}

/// Nobody could look after it meanwhile: the time alone says so.
#[tokio::test]
async fn a_lease_is_lost_at_its_end_also_when_its_holder_was_held_up() {
    let store = place().await.backend;
    let lease = store.lock(&id("a")).ttl(SHORT).await.unwrap();
    std::thread::sleep(SHORT);
    assert!(lease.is_lost());
    assert_eq!(holder(Err::<(), _>(lease.lost().await)), None);
    // And stays so, whatever the renewal found that was due meanwhile.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(lease.is_lost());
}

/// The plugin renews it then, so the holder's knowledge of it is old.
#[tokio::test]
async fn a_lease_that_a_write_has_renewed_is_given_back_all_the_same() {
    let store = place().await.backend;
    let lease = store.lock(&id("a")).ttl(SHORT).await.unwrap();
    tokio::time::sleep(Duration::from_millis(400)).await;
    let under = lease.backend();
    under.set(&id("a"), completed("{}")).await.unwrap();
    lease.release().await.unwrap();
    assert_eq!(store.holders("*").await.unwrap(), []);
}

/// Its answers are lost as often as not: without the token of the first try it would wait for itself to end.
#[tokio::test]
async fn a_lease_whose_answer_was_lost_is_had_at_the_next_try() {
    let place = place().await;
    place.backend.migrate().await.unwrap();
    let faults = Faults {
        after: 0.5,
        ..Faults::none(7)
    };
    let (proxy, store) = behind(&place, faults).await;
    for number in 0..10 {
        let id = id(&format!("a{number}"));
        let lock = store.lock(&id).ttl(Duration::from_secs(600));
        let lease = lock.wait(Duration::from_secs(30)).await.unwrap();
        assert!(place.backend.break_lease(&id, lease.token()).await.unwrap());
    }
    assert!(proxy.count() >= 10, "{}", proxy.count());
}

/// Who gives up does not hold it, and keeps nobody else out.
#[tokio::test]
async fn a_lease_that_nobody_waits_for_any_more_is_given_back() {
    let place = place().await;
    place.backend.migrate().await.unwrap();
    let delay = Duration::from_millis(300);
    let (proxy, slow) = slow(&place, delay).await;
    // Dropped while it reads back.
    let lock = slow.lock(&id("a")).ttl(Duration::from_secs(600));
    let dropped = tokio::time::timeout(delay * 5 / 2, lock).await;
    assert!(dropped.is_err());
    assert_eq!(proxy.count(), 3);
    let lock = place.backend.lock(&id("a"));
    let next = lock.wait(Duration::from_secs(20)).await.unwrap();
    next.release().await.unwrap();
}

/// An acquisition that takes longer than the lease would last gives none.
#[tokio::test]
async fn a_lease_is_not_had_by_who_hears_of_it_after_its_end() {
    let place = place().await;
    place.backend.migrate().await.unwrap();
    let (_proxy, slow) = slow(&place, SHORT / 2).await;
    let late = slow.lock(&id("a")).ttl(SHORT).await.map(drop).unwrap_err();
    assert!(matches!(late, Error::TimedOut { .. }), "{late:?}");
}

/// The first state under a lease is made also where each request takes long.
#[tokio::test]
async fn a_state_is_made_under_a_lease_far_from_the_server() {
    let place = place().await;
    place.backend.migrate().await.unwrap();
    let (_proxy, slow) = slow(&place, Duration::from_millis(180)).await;
    let lease = slow.lock(&id("a")).await.unwrap();
    let start = Instant::now();
    lease
        .backend()
        .update(&id("a"), partial("{\"n\":1}"))
        .await
        .unwrap();
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
    lease.release().await.unwrap();
}

#[tokio::test]
async fn work_under_a_lease_keeps_its_own_error_and_is_dropped_when_the_lease_is_lost() {
    let store = place().await.backend;
    let failed = store
        .lock(&id("a"))
        .hold(async |_| Err::<(), _>(Error::Corrupt("mine".to_owned())))
        .await;
    assert!(matches!(failed, Err(Error::Corrupt(text)) if text == "mine"));
    assert_eq!(store.holders("*").await.unwrap(), []);

    let breaker = store.clone();
    let lost = store.lock(&id("a")).ttl(SHORT).hold(async |_| {
        let holder = breaker.holders("a").await?.remove(0);
        assert!(breaker.break_lease(&id("a"), &holder.token).await?);
        tokio::time::sleep(Duration::from_secs(60)).await;
        Ok::<_, Error>(())
    });
    assert_eq!(holder(lost.await), None);
}

#[tokio::test]
async fn a_table_of_the_python_backend_can_be_written_under_a_lease() {
    let place = python_place().await;
    let lease = place.backend.lock(&id("a")).await.unwrap();
    lease
        .backend()
        .update(&id("a"), partial("{\"m\":1}"))
        .await
        .unwrap();
    place.sql(support::PYTHON_SET);
    lease.release().await.unwrap();
    let late = place
        .backend
        .under_lease("gone")
        .set(&id("a"), completed("{}"))
        .await;
    assert_eq!(holder(late), None);
}

/// Whoever empties the table of leases, or deletes from it, takes leases from their holders, and nobody is shut out.
#[tokio::test]
async fn leases_go_on_after_their_rows_are_gone() {
    let place = place().await;
    let store = &place.backend;
    let lease_table = format!("`{}`.state_lease", place.schema);
    for way in [
        "DELETE FROM {} WHERE 1",
        "ALTER TABLE {} DELETE WHERE 1 SETTINGS mutations_sync = 1",
        "TRUNCATE TABLE {}",
        "DROP TABLE {} SYNC",
    ] {
        let lease = store.lock(&id("a")).ttl(SHORT).await.unwrap();
        place.sql(&way.replace("{}", &lease_table));
        let next = store.lock(&id("a")).await.unwrap();
        let lost = holder(Err::<(), _>(lease.lost().await)).unwrap();
        assert_eq!(lost.token, next.token(), "{way}");
        assert!(!next.is_lost(), "{way}");
        next.release().await.unwrap();
    }
}

/// As after a server's clock was set back: it keeps others out for longer, until somebody ends it, and never lets two in.
#[tokio::test]
async fn a_lease_from_the_future_is_held_and_can_be_broken() {
    let place = place().await;
    let store = &place.backend;
    let lease = store.lock(&id("a")).await.unwrap();
    place.sql(&format!(
        "INSERT INTO `{schema}`.state_lease (state_id, epoch, token, owner, acquired_at, ttl_ms, released, writes, made_at) \
         SELECT 'a', max(epoch) + 1, 'theirs', 'the future', now64(3) + 3600, 3600000, false, '', now64(3) + 3600 \
         FROM `{schema}`.state_lease",
        schema = place.schema
    ));
    let refused = lease.backend().set(&id("a"), completed("{}")).await;
    assert_eq!(holder(refused).unwrap().owner, "the future");
    let locked = store.lock(&id("a")).owner("me").await;
    assert_eq!(holder(locked).unwrap().owner, "the future");
    assert!(store.break_lease(&id("a"), "theirs").await.unwrap());
    let next = store.lock(&id("a")).owner("me").await.unwrap();
    assert_eq!(holder(store.lock(&id("a")).await).unwrap().owner, "me");
    next.backend().set(&id("a"), completed("{}")).await.unwrap();
    next.release().await.unwrap();
}

#[tokio::test]
async fn where_leases_are_switched_off_nobody_gets_one() {
    let place = place().await;
    let store = with_settings(&server().uri("default"), &place.schema, &[("lock", "none")]).await;
    let refused = store.lock(&id("a")).await.map(drop).unwrap_err();
    assert!(
        matches!(refused, Error::InvalidInput(ref text) if text.contains("`lock`")),
        "{refused:?}"
    );
    assert_eq!(store.holders("*").await.unwrap(), []);
    let refused = store.under_lease("x").set(&id("a"), completed("{}")).await;
    assert!(matches!(refused, Err(Error::InvalidInput(_))));
    assert_eq!(place.backend.get(&id("a")).await.unwrap(), None);
}

#[tokio::test]
async fn what_can_not_be_a_lease_is_refused() {
    let store = place().await.backend;
    for ttl in [
        Duration::ZERO,
        Duration::from_millis(1_999),
        Duration::from_secs(86_401),
        Duration::MAX,
    ] {
        let refused = store.lock(&id("a")).ttl(ttl).await.map(drop);
        assert!(matches!(refused, Err(Error::InvalidInput(_))), "{ttl:?}");
    }
    let refused = store
        .lock(&id("a"))
        .owner("x".repeat(1_025))
        .await
        .map(drop);
    assert!(matches!(refused, Err(Error::InvalidInput(_))));
    let odd = "'; DROP TABLE x --\n\t\\ 💾";
    let lease = store.lock(&id(odd)).owner(odd).await.unwrap();
    let seen = holder(store.lock(&id(odd)).await).unwrap();
    assert_eq!((seen.id, seen.owner.as_str()), (id(odd), odd));
    lease.release().await.unwrap();
}

/// Uncontended: to acquire takes three requests, to renew two, to release one.
#[tokio::test]
async fn leases_cost_few_requests() {
    let place = place().await;
    // The table is made, and the lease was held before.
    place
        .backend
        .lock(&id("a"))
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let (proxy, store) = slow(&place, Duration::ZERO).await;
    let mut before = 0;
    let mut since = || {
        let count = proxy.count();
        std::mem::replace(&mut before, count).abs_diff(count)
    };
    for name in ["a", "never held"] {
        let lease = store
            .lock(&id(name))
            .ttl(Duration::from_secs(3))
            .await
            .unwrap();
        assert_eq!(since(), 3, "acquire {name}");
        tokio::time::sleep(Duration::from_millis(1_300)).await;
        assert_eq!(since(), 2, "renew");
        lease.release().await.unwrap();
        assert_eq!(since(), 1, "release");
    }
}

#[tokio::test]
async fn a_user_who_may_not_make_tables_is_told_what_is_missing() {
    let Some(uri) = of_started(server().writer_uri("default")) else {
        return;
    };
    let place = place().await;
    place.backend.set(&id("a"), completed("{}")).await.unwrap();
    let store = open(&uri, &place.schema).await;
    let refused = store.lock(&id("a")).await.map(drop).unwrap_err();
    assert!(matches!(refused, Error::AccessDenied(_)), "{refused:?}");
    place.backend.migrate().await.unwrap();
    store.lock(&id("a")).await.unwrap().release().await.unwrap();
}
