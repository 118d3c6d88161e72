//! One state that is written again and again.

use pipeline_state::StateId;
use serde_json::Value;

use crate::Failure;
use crate::client::{completed, partial};
use crate::measure::{Contest, Report, Row, Series};
use crate::scale::Scale;
use crate::stores::{BOOKMARKS_OF_1_KB, Stores, document, id};

/// Another document each time: ours leaves one that is stored already as it is.
fn sized_document(size: usize, round: usize) -> String {
    format!(
        "{{\"singer_state\": {{\"round\": {round}, \"bookmark\": \"{}\"}}}}",
        "x".repeat(size)
    )
}

/// Writes documents of one size, and then reads the last one.
pub(crate) async fn set_and_get(
    stores: &Stores,
    report: &mut Report,
    name: &str,
    size: usize,
    rounds: usize,
) -> Result<(), Failure> {
    let table = &format!("one_{size}");
    stores.make(table).await?;
    let written = StateId::from("ours");
    let mut contest = Contest::of((stores.ours(table)?, written.clone()))
        .against(
            "plain insert, nothing looked up",
            (stores.plain(table), StateId::from("plain")),
        )
        .against(
            "version read, insert above it",
            (stores.careful(table), StateId::from("careful")),
        );
    // The first write makes a state, which costs more.
    for round in 0..=rounds {
        for entrant in contest.round(round) {
            let (client, id) = &entrant.client;
            let set = client.set(id, sized_document(size, round));
            match round {
                0 => set.await?,
                _ => entrant.series.time(set).await?,
            }
        }
    }
    let stored = Some(sized_document(size, rounds));
    for entrant in contest.round(0) {
        let (client, id) = &entrant.client;
        if client.get(id).await? != stored {
            return Err(format!("the last write of `{id}` is not what is stored").into());
        }
    }
    report.push(contest.row(format!("set {name}")));

    let mut contest = Contest::of(stores.ours(table)?).against("plain query", stores.plain(table));
    for round in 0..rounds {
        for entrant in contest.round(round) {
            let read = entrant.series.time(entrant.client.get(&written)).await?;
            if read != stored {
                return Err("what was read is not what was stored".into());
            }
        }
    }
    report.push(contest.row(format!("get {name}")));
    Ok(())
}

/// Writes what is stored already.
pub(crate) async fn set_unchanged(
    stores: &Stores,
    report: &mut Report,
    scale: Scale,
) -> Result<(), Failure> {
    let backend = stores.make("unchanged").await?;
    let id = StateId::from("unchanged");
    let state = completed(document(0, BOOKMARKS_OF_1_KB));
    let first = backend.set(&id, state.clone()).await?;
    let mut series = Series::new("ours");
    for _ in 0..scale.rounds(500) {
        let version = series.time(backend.set(&id, state.clone())).await?;
        if version != first {
            return Err("a state that had not changed was written".into());
        }
    }
    report.push(Row::new("set 1 KB, unchanged", vec![series]));
    Ok(())
}

/// Moves one bookmark of a partial document of 1 KB on.
pub(crate) async fn update(
    stores: &Stores,
    report: &mut Report,
    scale: Scale,
) -> Result<(), Failure> {
    let backend = stores.make("updated").await?;
    let id = StateId::from("updated");
    let whole = document(0, BOOKMARKS_OF_1_KB);
    let step = |round: usize| {
        format!(
            "{{\"singer_state\": {{\"bookmarks\": {{\"stream_3\": {{\"replication_key_value\": \"{round}\"}}}}}}}}"
        )
    };
    backend.update(&id, partial(whole.clone())).await?;
    let mut series = Series::new("ours");
    let rounds = scale.rounds(500);
    for round in 1..=rounds {
        series
            .time(backend.update(&id, partial(step(round))))
            .await?;
    }

    let mut expected: Value = serde_json::from_str(&whole)?;
    let moved = expected.pointer_mut("/singer_state/bookmarks/stream_3/replication_key_value");
    *moved.ok_or("the document has no third bookmark")? = rounds.to_string().into();
    let entry = backend.get(&id).await?;
    let stored = entry.and_then(|entry| entry.state.partial);
    if serde_json::from_str::<Value>(&stored.unwrap_or_default())? != expected {
        return Err("the updates did not make what they should".into());
    }
    let row = Row::new("update, one writer", vec![series])
        .at_most(10.0)
        .figure("ms that the Python backend took", 1_072.0);
    report.push(row);
    Ok(())
}

/// Deletes some of 1,000 states, one by one.
pub(crate) async fn delete(
    stores: &Stores,
    report: &mut Report,
    scale: Scale,
) -> Result<(), Failure> {
    const COUNT: u64 = 1_000;
    // A table each: deletions in one table wait for one another.
    let (table, python) = ("deleted", "deleted_python");
    stores.make(table).await?;
    stores.fill(table, COUNT, BOOKMARKS_OF_1_KB).await?;
    stores.make_as_python(python).await?;
    stores.fill(python, COUNT, BOOKMARKS_OF_1_KB).await?;
    let mut contest = Contest::of(stores.ours(table)?)
        .against("plain DELETE FROM, Python's table", stores.plain(python));
    for round in 0..scale.rounds(50) {
        let id = id(round as u64);
        for entrant in contest.round(round) {
            entrant.series.time(entrant.client.delete(&id)).await?;
            if entrant.client.get(&id).await?.is_some() {
                return Err(format!("`{id}` was deleted, and is there").into());
            }
        }
    }
    report.push(contest.row("delete, of 1,000 ids of 1 KB"));
    Ok(())
}
