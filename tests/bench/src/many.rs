//! Tables of many states: one of them read, all of them read, all of them written.

use crate::Failure;
use crate::client::Client;
use crate::measure::{Contest, Measure, Report, grouped};
use crate::scale::Scale;
use crate::stores::{BOOKMARKS_OF_1_KB, BOOKMARKS_OF_10_KB, Stores, document, id};

/// What the Python backend takes, as it was measured before, on a machine with two cores.
const PYTHON_TAKES: &str = "ms that the Python backend took";

/// Reads in tables of 1,000 states of 1 KB and of 10,000 states of 10 KB.
pub(crate) async fn read(
    stores: &Stores,
    report: &mut Report,
    scale: Scale,
) -> Result<(), Failure> {
    for (count, bookmarks, size) in [
        (1_000, BOOKMARKS_OF_1_KB, "1 KB"),
        (10_000, BOOKMARKS_OF_10_KB, "10 KB"),
    ] {
        let (table, python) = (format!("get_{count}"), format!("get_{count}_python"));
        stores.make(&table).await?;
        stores.fill(&table, count, bookmarks).await?;
        stores.make_as_python(&python).await?;
        stores.fill(&python, count, bookmarks).await?;

        let contest = Contest::of((stores.ours(&table)?, count))
            .against("plain query", (stores.plain(&table), count))
            .at_most(Measure::Ratio, 1.05)
            .at_most(Measure::RatioOfP99, 1.2)
            .against(
                "plain query, Python's table",
                (stores.plain(&python), count),
            )
            .at_most(Measure::Ratio, 0.8)
            .against("ours, Python's table", (stores.ours(&python)?, count));
        let contest = get(contest, bookmarks, scale.rounds(500)).await?;
        report.push(contest.row(format!("get, of {} ids of {size}", grouped(count))));
    }
    read_all(stores, report, scale).await
}

/// Reads one state after the other from tables that `Stores::fill` has filled with as many as each number says.
pub(crate) async fn get(
    mut contest: Contest<(Client, u64)>,
    bookmarks: u64,
    rounds: usize,
) -> Result<Contest<(Client, u64)>, Failure> {
    /// A prime, so that all of them have their turn, and neighbours do not follow one another.
    const STRIDE: usize = 617;
    for round in 0..rounds {
        for entrant in contest.round(round) {
            let (client, count) = &entrant.client;
            let number = (round * STRIDE) as u64 % count;
            let id = id(number);
            let read = entrant.series.time(client.get(&id)).await?;
            if read != Some(document(number, bookmarks)) {
                return Err(format!("what was read of `{id}` is not what was stored").into());
            }
        }
    }
    Ok(contest)
}

/// What Meltano does by one query for each of them.
async fn read_all(stores: &Stores, report: &mut Report, scale: Scale) -> Result<(), Failure> {
    const COUNT: usize = 1_000;
    let mut contest =
        Contest::of(stores.ours("get_1000")?).against("plain query", stores.plain("get_1000"));
    let mut calls_of_ours = 0;
    for round in 0..scale.rounds(100) {
        for entrant in contest.round(round) {
            let (documents, calls) = entrant.series.time(entrant.client.states()).await?;
            if documents.len() != COUNT {
                return Err(format!("{} of {COUNT} states were read", documents.len()).into());
            }
            if matches!(entrant.client, Client::Ours(_)) {
                calls_of_ours = calls;
            }
        }
    }
    let row = contest
        .row("get_page, all 1,000 states of 1 KB")
        .figure("calls", f64::from(calls_of_ours))
        .figure(PYTHON_TAKES, 4_203.0);
    report.push(row);
    Ok(())
}

/// Writes 1,000 states of 1 KB in one call, new ones each time.
pub(crate) async fn set_many(
    stores: &Stores,
    report: &mut Report,
    scale: Scale,
) -> Result<(), Failure> {
    const TABLE: &str = "set_many";
    const COUNT: u64 = 1_000;
    let backend = stores.make(TABLE).await?;
    let mut contest =
        Contest::of(Client::Ours(backend.clone())).against("plain insert", stores.plain(TABLE));
    let rounds = scale.rounds(50);
    let new = |round: usize, n: u64| document(round as u64 * COUNT + n, BOOKMARKS_OF_1_KB);
    for round in 0..rounds {
        for entrant in contest.round(round) {
            let states = (0..COUNT).map(|n| (id(n), new(round, n))).collect();
            let set = entrant.client.set_many(states);
            entrant.series.time(set).await?;
        }
    }
    let last = backend.get(&id(COUNT - 1)).await?;
    let expected = new(rounds - 1, COUNT - 1);
    if last.and_then(|entry| entry.state.completed) != Some(expected) {
        return Err("of many states that were set, the last one was not".into());
    }
    report.push(contest.row("set_many, 1,000 states of 1 KB"));
    Ok(())
}
