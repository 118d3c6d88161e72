//! What it costs to have a sandbox at all.

use std::path::Path;

use harness::Stub;
use pipeline_state::{Plugins, StateId};

use crate::Failure;
use crate::client::Client;
use crate::measure::{Contest, Measure, Report, Row, Series};
use crate::native::Native;
use crate::scale::Scale;
use crate::stores::Stores;

/// Loads the plugins without and with a cache.
pub(crate) async fn load(report: &mut Report, scale: Scale) -> Result<Plugins, Failure> {
    let folder = std::env::temp_dir().join(format!("pipeline-state-bench-{}", std::process::id()));
    let loaded = load_into(&folder, report, scale).await;
    // What is left there is compiled code, of no use to anybody.
    let _ = std::fs::remove_dir_all(&folder);
    loaded
}

async fn load_into(folder: &Path, report: &mut Report, scale: Scale) -> Result<Plugins, Failure> {
    let build = |cache: String| Plugins::builder().cache_folder(folder.join(cache)).build();
    let (mut cold, mut warm) = (Series::new("ours"), Series::new("ours"));
    for round in 0..scale.rounds(30) / 3 {
        // Into a cache of its own, so that the first time is the first time.
        cold.time(build(format!("cold-{round}"))).await?;
    }
    for _ in 0..scale.rounds(30) {
        warm.time(build("cold-0".to_owned())).await?;
    }
    report.push(Row::new("load the plugins, compiled", vec![cold]));
    report.push(Row::new("load the plugins, from the cache", vec![warm]));
    Ok(build("cold-0".to_owned()).await?)
}

/// Against a server that answers at once, for a state that is not there.
pub(crate) async fn sandbox(
    stores: &Stores,
    report: &mut Report,
    scale: Scale,
) -> Result<(), Failure> {
    const HEADERS: [&str; 2] = [
        "X-ClickHouse-Query-Id: 1",
        "X-ClickHouse-Exception-Code: 60",
    ];
    let body =
        b"Code: 60. DB::Exception: Table a.b does not exist. (UNKNOWN_TABLE) (version 26.9.2.1)";
    let stub = Stub::start(|_| Some(Stub::response("404 Not Found", &HEADERS, body)))?;
    let address = stub.address().to_string();
    let ours = stores.open_elsewhere(&format!("clickhouse://u@{address}/db"))?;
    let native = Native::new(&address, ("u", "")).for_table("a.b".to_owned());
    let id = StateId::from("bench");
    let mut contest = Contest::of(Client::Ours(ours))
        .against("native client", Client::Plain(native))
        .at_most(Measure::Added, 0.1);
    for round in 0..scale.rounds(2_000) {
        for entrant in contest.round(round) {
            let answer = entrant.series.time(entrant.client.get(&id)).await;
            // To the native client the answer is an error, as it should be; to ours it is none.
            if matches!(entrant.client, Client::Ours(_)) {
                answer?;
            }
        }
    }
    report.push(contest.row("get, of a server that answers at once"));
    Ok(())
}
