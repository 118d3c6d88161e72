//! Many gets at once: how many a second.

use std::time::{Duration, Instant};

use crate::Failure;
use crate::client::Client;
use crate::measure::{Contest, Goal, Report};
use crate::scale::Scale;
use crate::stores::{BOOKMARKS_OF_1_KB, Stores, id};

const IN_FLIGHT: u64 = 64;
const IDS: u64 = 1_000;

/// Ours and the native client take turns of a moment each.
pub(crate) async fn get(stores: &Stores, report: &mut Report, scale: Scale) -> Result<(), Failure> {
    let table = "crowd";
    stores.make(table).await?;
    stores.fill(table, IDS, BOOKMARKS_OF_1_KB).await?;
    let mut contest =
        Contest::of((stores.ours(table)?, 0.0)).against("plain query", (stores.plain(table), 0.0));
    let slice = scale.contention() / 5;
    // The first time opens the connections.
    for round in 0..=10 {
        for entrant in contest.round(round) {
            let (client, seconds) = &mut entrant.client;
            let start = Instant::now();
            let times = crowd(client, start + slice).await?;
            if round > 0 {
                *seconds += start.elapsed().as_secs_f64();
                times.into_iter().for_each(|time| entrant.series.add(time));
            }
        }
    }
    let rates: Vec<f64> = contest
        .round(0)
        .map(|entrant| entrant.series.count() as f64 / entrant.client.1)
        .collect();
    let [ours, theirs] = *rates else {
        return Err("two were to be measured".into());
    };
    report.push(
        contest
            .row(format!("get 1 KB, {IN_FLIGHT} in flight"))
            .figure("gets a second, ours", ours)
            .figure("gets a second, plain query", theirs)
            .figure_with("of the plain query's", ours / theirs, Goal::AtLeast(0.95)),
    );
    Ok(())
}

async fn crowd(client: &Client, until: Instant) -> Result<Vec<Duration>, Failure> {
    let tasks: Vec<_> = (0..IN_FLIGHT)
        .map(|task| tokio::spawn(read(client.clone(), task, until)))
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await??);
    }
    Ok(all)
}

async fn read(client: Client, task: u64, until: Instant) -> Result<Vec<Duration>, Failure> {
    let mut times = Vec::new();
    let mut number = task;
    while Instant::now() < until {
        let id = id(number % IDS);
        let start = Instant::now();
        if client.get(&id).await?.is_none() {
            return Err(format!("`{id}` is stored, and was not found").into());
        }
        times.push(start.elapsed());
        number += IN_FLIGHT;
    }
    Ok(times)
}
