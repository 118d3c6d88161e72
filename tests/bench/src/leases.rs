//! Leases: one that nobody else wants, one that somebody holds, one that many want.

use std::time::{Duration, Instant};

use pipeline_state::{Backend, Error, StateId};

use crate::Failure;
use crate::measure::{Report, Row, Series};
use crate::scale::Scale;
use crate::stores::Stores;

const CONTENDERS: usize = 8;

/// Acquires a lease and gives it back, as the Python backend does beside it: a row, a second of waiting, a look whose
/// row is the lowest, a deletion.
pub(crate) async fn uncontended(
    stores: &Stores,
    report: &mut Report,
    scale: Scale,
) -> Result<(), Failure> {
    let backend = stores.make("leases").await?;
    let id = StateId::from("lease");
    backend.lock(&id).await?.release().await?;
    let mut ours = Series::new("ours");
    for _ in 0..scale.rounds(300) {
        ours.time(async { backend.lock(&id).await?.release().await })
            .await?;
    }
    let mut theirs = Series::new("the Python backend's statements and waiting");
    let lock = stores.make_python_lock("leases_python").await?;
    for round in 0..scale.rounds(10) {
        theirs.time(lock.lock_and_unlock(round)).await?;
    }
    report.push(Row::new("acquire and release a lease", vec![ours, theirs]).at_most(15.0));

    let held = backend.lock(&id).await?;
    let mut series = Series::new("ours");
    for _ in 0..scale.rounds(300) {
        match series.time(async { backend.lock(&id).await }).await {
            Err(Error::Locked { .. }) => {}
            other => return Err(format!("it is held: {:?}", other.map(drop)).into()),
        }
    }
    held.release().await?;
    report.push(Row::new("be told that a lease is held", vec![series]));
    Ok(())
}

/// Hand-overs of a lease that each of many wants again and again.
pub(crate) async fn contended(
    stores: &Stores,
    report: &mut Report,
    scale: Scale,
) -> Result<(), Failure> {
    let backend = stores.make("leases_contended").await?;
    let start = Instant::now();
    let until = start + scale.contention();
    let contenders: Vec<_> = (0..CONTENDERS)
        .map(|_| tokio::spawn(take_turns(backend.clone(), until)))
        .collect();
    let mut series = Series::new("ours, from asking to having");
    let mut turns = Vec::new();
    for contender in contenders {
        let times = contender.await??;
        turns.push(times.len() as f64);
        times.into_iter().for_each(|time| series.add(time));
    }
    let seconds = start.elapsed().as_secs_f64();
    let least = turns.iter().copied().fold(f64::INFINITY, f64::min);
    let most = turns.iter().copied().fold(0.0, f64::max);
    let row = Row::new(format!("a lease that {CONTENDERS} want"), vec![series])
        .figure("hand-overs a second", turns.iter().sum::<f64>() / seconds)
        .figure("turns of the least lucky", least)
        .figure("turns of the luckiest", most);
    report.push(row);
    Ok(())
}

async fn take_turns(backend: Backend, until: Instant) -> Result<Vec<Duration>, Error> {
    let id = StateId::from("wanted");
    let mut times = Vec::new();
    while Instant::now() < until {
        let start = Instant::now();
        let lease = backend.lock(&id).wait(Duration::from_secs(60)).await?;
        times.push(start.elapsed());
        lease.release().await?;
    }
    Ok(times)
}
