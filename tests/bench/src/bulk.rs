//! The program on many states at once: all of them into a file, and from it into an empty table.

use crate::Failure;
use crate::measure::{Report, Row, Series, grouped};
use crate::program::{self, MEMORY, MOST_MEMORY};
use crate::scale::Scale;
use crate::stores::{BOOKMARKS_OF_1_KB, Stores};

const RATE: &str = "states a second";
const FROM: &str = "bulk";

pub(crate) async fn bulk(
    stores: &Stores,
    report: &mut Report,
    scale: Scale,
) -> Result<(), Failure> {
    let count = scale.bulk();
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("states.json");
    let file = file
        .to_str()
        .ok_or("the temporary folder has no name in UTF-8")?;
    stores.make(FROM).await?;
    stores.fill(FROM, count, BOOKMARKS_OF_1_KB).await?;

    let (mut export, mut import) = (Series::new("ours"), Series::new("ours"));
    for round in 0..scale.rounds(30).min(3) {
        let into = format!("bulk_{round}");
        stores.make(&into).await?;
        let of_export = program::command(stores, FROM, &["export", "--output", file])?;
        export.time(program::output(of_export)).await?;
        let of_import = program::command(stores, &into, &["import", file])?;
        import.time(program::output(of_import)).await?;
        let there = stores.count(&into)?;
        if there != count {
            return Err(format!("{there} of {count} states were imported").into());
        }
    }
    for (name, series, args) in [
        ("export", export, ["export", "--output", file].as_slice()),
        ("import", import, &["import", file]),
    ] {
        let memory = program::peak_memory(program::command(stores, FROM, args)?).await?;
        let row = Row::new(
            format!("the program: {name} of {} states of 1 KB", grouped(count)),
            vec![series],
        );
        let rate = per_second(count, row.median());
        report.push(
            row.figure(RATE, rate)
                .figure_with(MEMORY, memory, MOST_MEMORY),
        );
    }
    Ok(())
}

fn per_second(count: u64, ms: f64) -> f64 {
    count as f64 / (ms / 1e3)
}
