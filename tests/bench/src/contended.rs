//! Many writers of one state at once.

use std::time::{Duration, Instant};

use pipeline_state::{Backend, StateId};
use serde_json::Value;

use crate::Failure;
use crate::client::partial;
use crate::measure::{Report, Row, Series};
use crate::scale::Scale;
use crate::stores::Stores;

const WRITERS: usize = 8;

/// What one writer did. It counts up a key of its own.
struct Written {
    times: Vec<Duration>,
    /// The last number that was acknowledged, and the last one that was sent.
    acknowledged: u64,
    sent: u64,
    failed: u32,
    /// What the first failed call said.
    error: Option<String>,
}

pub(crate) async fn update(
    stores: &Stores,
    report: &mut Report,
    scale: Scale,
) -> Result<(), Failure> {
    let backend = stores.make("contended").await?;
    let id = StateId::from("contended");
    let start = Instant::now();
    let until = start + scale.contention();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(backend.clone(), id.clone(), writer, until)))
        .collect();
    let mut written = Vec::new();
    for writer in writers {
        written.push(writer.await?);
    }
    let seconds = start.elapsed().as_secs_f64();

    let entry = backend.get(&id).await?.ok_or("nothing was stored")?;
    let stored: Value = serde_json::from_str(&entry.state.partial.unwrap_or_default())?;
    let mut series = Series::new("ours");
    let (mut updates, mut failed) = (0, 0);
    for (writer, written) in written.into_iter().enumerate() {
        let found = stored
            .pointer(&format!("/singer_state/{}", key(writer)))
            .and_then(Value::as_u64)
            .unwrap_or_default();
        if !(written.acknowledged..=written.sent).contains(&found) {
            return Err(format!(
                "writer {writer} was told that {} is stored, and {found} is",
                written.acknowledged
            )
            .into());
        }
        updates += written.acknowledged;
        failed += written.failed;
        if let Some(error) = written.error {
            eprintln!("writer {writer}: {error}");
        }
        written.times.into_iter().for_each(|time| series.add(time));
    }
    let name = format!("update, {WRITERS} writers of one, none lost");
    let row = Row::new(name, vec![series])
        .figure("updates a second", updates as f64 / seconds)
        .figure("calls that failed", f64::from(failed));
    report.push(row);
    Ok(())
}

fn key(writer: usize) -> String {
    format!("writer_{writer}")
}

async fn write(backend: Backend, id: StateId, writer: usize, until: Instant) -> Written {
    let mut written = Written {
        times: Vec::new(),
        acknowledged: 0,
        sent: 0,
        failed: 0,
        error: None,
    };
    while Instant::now() < until {
        written.sent = written.acknowledged + 1;
        let document = format!(
            "{{\"singer_state\": {{\"{}\": {}}}}}",
            key(writer),
            written.sent
        );
        let start = Instant::now();
        let result = backend.update(&id, partial(document)).await;
        written.times.push(start.elapsed());
        match result {
            Ok(_) => written.acknowledged = written.sent,
            // Whatever became of it, the same number is sent once more.
            Err(error) => {
                written.failed += 1;
                written.error.get_or_insert_with(|| error.to_string());
            }
        }
    }
    written
}
