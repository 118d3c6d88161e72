//! Tables of a hundred to a million IDs, with documents of 130 bytes.

use harness::Memory;

use crate::Failure;
use crate::client::{Client, PAGE};
use crate::many;
use crate::measure::{Contest, Measure, Report, Row, Series, grouped};
use crate::scale::Scale;
use crate::stores::{Stores, id};

const FEW: u64 = 100;
const SOME: u64 = 10_000;
const BOOKMARKS: u64 = 1;

/// Lists their IDs, and compares reads in the largest with those in the smallest.
pub(crate) async fn list(
    stores: &Stores,
    report: &mut Report,
    scale: Scale,
) -> Result<(), Failure> {
    let many = scale.many_ids();
    for count in [FEW, SOME, many] {
        let table = table(count);
        stores.make(&table).await?;
        stores.fill(&table, count, BOOKMARKS).await?;
    }
    // The largest first: what it takes of this process's memory must not be there already.
    for (count, rounds) in [(many, 3), (SOME, 30), (FEW, 100)] {
        report.push(whole(stores, count, scale.rounds(rounds)).await?);
    }
    for (count, after) in [
        (FEW, None),
        (SOME, None),
        (many, None),
        (many, Some(many / 2)),
    ] {
        report.push(page(stores, count, after, scale.rounds(100)).await?);
    }
    let client = |count| Ok::<_, Failure>((stores.ours(&table(count))?, count));
    let contest = Contest::of(client(many)?)
        .against(&format!("ours, of {FEW}"), client(FEW)?)
        .at_most(Measure::Ratio, 1.3);
    let contest = many::get(contest, BOOKMARKS, scale.rounds(500)).await?;
    report.push(contest.row(format!("get, of {} ids", grouped(many))));
    Ok(())
}

fn table(count: u64) -> String {
    format!("ids_{count}")
}

/// A whole listing, page by page, of which nothing is kept.
async fn whole(stores: &Stores, count: u64, rounds: usize) -> Result<Row, Failure> {
    let backend = stores.backend(&table(count))?;
    let mut series = Series::new("ours");
    let before = resident_memory()?;
    let mut most = before;
    for _ in 0..rounds {
        let listing = async {
            let (mut after, mut listed) = (None, 0);
            loop {
                let page = backend.get_ids("*", after.as_ref(), PAGE).await?;
                listed += page.ids.len() as u64;
                most = most.max(resident_memory()?);
                match page.next {
                    Some(next) => after = Some(next),
                    None => return Ok::<u64, Failure>(listed),
                }
            }
        };
        let listed = series.time(listing).await?;
        if listed != count {
            return Err(format!("{listed} ids were listed, and there are {count}").into());
        }
    }
    let after = resident_memory()?;
    let name = format!("list all of {} ids", grouped(count));
    Ok(Row::new(name, vec![series])
        .figure("MB that this process has before", before)
        .figure("MB that it grows by at most", most - before)
        .figure("MB that it has grown by afterwards", after - before))
}

/// One page, from the first ID or from behind the ID of a number.
async fn page(
    stores: &Stores,
    count: u64,
    after: Option<u64>,
    rounds: usize,
) -> Result<Row, Failure> {
    let table = table(count);
    let first = after.map_or(0, |after| after + 1);
    let expected = u64::from(PAGE).min(count - first);
    let mut contest: Contest<Client> =
        Contest::of(stores.ours(&table)?).against("plain query", stores.plain(&table));
    let after = after.map(id);
    for round in 0..rounds {
        for entrant in contest.round(round) {
            let ids = entrant.client.ids(after.as_ref());
            let ids = entrant.series.time(ids).await?;
            if ids.len() as u64 != expected || ids.first() != Some(&id(first).to_string()) {
                return Err("a page has other ids than it should".into());
            }
        }
    }
    let which = if after.is_some() {
        "a middle"
    } else {
        "the first"
    };
    Ok(contest.row(format!("{which} page of {} ids", grouped(count))))
}

/// How many MB of memory this process has, not counting what it has set aside.
fn resident_memory() -> Result<f64, Failure> {
    Ok(Memory::Resident.kib(None)? as f64 / 1024.0)
}
