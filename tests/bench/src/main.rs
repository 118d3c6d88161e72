//! What a call costs through the plugin, side by side with a native client on the same server, in one run.
//!
//! The ways of doing one thing take turns, since a machine's speed drifts; only their ratio is to be trusted. The native
//! client is hyper with the same settings of its pool, sending the statements that a person would write for the job.
//!
//! `--quick`, or `PIPELINE_STATE_BENCH_QUICK=1`, makes a tenth of the rounds, and 100,000 IDs where it would be a million.

mod bulk;
mod client;
mod contended;
mod crowd;
mod ids;
mod leases;
mod many;
mod measure;
mod meltano;
mod native;
mod one;
mod plot;
mod program;
mod scale;
mod start;
mod stores;

use std::time::Instant;

use harness::ClickHouse;
use measure::Report;
use scale::Scale;
use serde_json::json;
use stores::Stores;
use tokio::runtime::Builder;

/// For tasks on several threads.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let scale = Scale::from_process()?;
    let start = Instant::now();
    let server = ClickHouse::start()?;
    let version = server.query("SELECT version()")?.trim().to_owned();
    println!("ClickHouse {version}; ratios are ours / the other's, of medians");
    let mut report = Report::new();

    // One thread, so that no time goes into waking another one.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let plugins = runtime.block_on(start::load(&mut report, scale))?;
    let stores = Stores::new(server, plugins)?;
    let in_turn = runtime.block_on(measure_in_turn(&stores, &mut report, scale));
    let stores = stores.reconnected();
    let measured = in_turn.and_then(|()| {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        runtime.block_on(async {
            crowd::get(&stores, &mut report, scale).await?;
            contended::update(&stores, &mut report, scale).await?;
            leases::contended(&stores, &mut report, scale).await
        })
    });
    let removed = stores.remove();
    measured.and(removed)?;

    let seconds = start.elapsed().as_secs();
    println!("{}; {seconds} s in all", report.verdict());
    let json = json!({
        "server": version,
        "quick": scale.is_quick(),
        "seconds": seconds,
        "rows": report.json(),
    });
    let target = harness::workspace().join("target");
    std::fs::write(
        target.join("bench.json"),
        serde_json::to_string_pretty(&json)? + "\n",
    )?;
    std::fs::write(target.join("bench.svg"), plot::svg(report.rows(), &version))?;
    Ok(())
}

/// What is large comes last: the memory that it leaves in this process would hide how much a listing takes.
async fn measure_in_turn(
    stores: &Stores,
    report: &mut Report,
    scale: Scale,
) -> Result<(), Failure> {
    start::sandbox(stores, report, scale).await?;
    program::get(stores, report, scale).await?;
    meltano::state(stores, report, scale).await?;
    bulk::bulk(stores, report, scale).await?;
    ids::list(stores, report, scale).await?;
    many::read(stores, report, scale).await?;
    many::set_many(stores, report, scale).await?;
    one::set_and_get(stores, report, "1 KB", 1_000, scale.rounds(500)).await?;
    one::set_and_get(stores, report, "10 KB", 10_000, scale.rounds(500)).await?;
    one::set_unchanged(stores, report, scale).await?;
    one::update(stores, report, scale).await?;
    one::delete(stores, report, scale).await?;
    leases::uncontended(stores, report, scale).await?;
    one::set_and_get(stores, report, "10 MB", 10_000_000, scale.rounds(15)).await
}
