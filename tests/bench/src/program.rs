//! The program as a whole process: `pipeline-state get`, from its start to its end.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use harness::Memory;
use tokio::process::{Child, Command};

use crate::Failure;
use crate::measure::{Goal, Measure, Report, Row, Series};
use crate::scale::Scale;
use crate::stores::{BOOKMARKS_OF_1_KB, Stores, document, id};

/// What the program may take, in MB.
pub(crate) const MOST_MEMORY: Goal = Goal::AtMost(60.0);
pub(crate) const MEMORY: &str = "MB of memory at most";

/// Beside a plain query over a connection that is open already, which is the server's time.
pub(crate) async fn get(stores: &Stores, report: &mut Report, scale: Scale) -> Result<(), Failure> {
    let table = "program";
    stores.make(table).await?;
    stores.fill(table, 1_000, BOOKMARKS_OF_1_KB).await?;
    let plain = stores.plain(table);
    let mut ours = Series::new("ours");
    let mut theirs = Series::new("plain query").at_most(Measure::Added, 25.0);
    let get = || command(stores, table, &["get", id(7).as_str()]);
    // The first time fills the cache of compiled plugins.
    for round in 0..=scale.rounds(200) {
        let run = output(get()?);
        let printed = match round {
            0 => run.await?,
            _ => ours.time(run).await?,
        };
        if !printed.contains(&document(7, BOOKMARKS_OF_1_KB)) {
            return Err(format!("the program printed `{printed}`").into());
        }
        theirs.time(plain.get(&id(7))).await?;
    }
    let mut most = 0.0_f64;
    for _ in 0..scale.rounds(50) {
        most = most.max(peak_memory(get()?).await?);
    }
    report.push(
        Row::new(
            "the program: pipeline-state get, as a process",
            vec![ours, theirs],
        )
        .figure_with(MEMORY, most, MOST_MEMORY),
    );
    Ok(())
}

/// The program on one of the tables.
pub(crate) fn command<S: AsRef<OsStr>>(
    stores: &Stores,
    table: &str,
    args: &[S],
) -> Result<Command, Failure> {
    let mut command = Command::new(program()?);
    let (uri, schema) = stores.target();
    command
        .args(args)
        .env("PIPELINE_STATE_URI", uri)
        .env("PIPELINE_STATE_CLICKHOUSE_SCHEMA", schema)
        .env("PIPELINE_STATE_CLICKHOUSE_TABLE", table)
        .stdin(Stdio::null());
    Ok(command)
}

/// What a command prints that must succeed.
pub(crate) async fn output(mut command: Command) -> Result<String, Failure> {
    let output = command.output().await?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?} failed: {errors}").into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The most memory that a command has had which must succeed, in MB, as far as a look at it each half of a millisecond finds
/// it. What it prints is not kept.
pub(crate) async fn peak_memory(mut command: Command) -> Result<f64, Failure> {
    let mut child: Child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let pid = child.id().ok_or("the program has no process ID")?;
    let mut most = 0;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        // It may have ended since, and tells no more then.
        most = Memory::Peak.kib(Some(pid)).unwrap_or(most);
        tokio::time::sleep(Duration::from_micros(500)).await;
    };
    match status.success() {
        true => Ok(most as f64 / 1024.0),
        false => Err(format!("{command:?} failed").into()),
    }
}

/// It is built beside this one.
fn program() -> Result<PathBuf, Failure> {
    let name = format!("pipeline-state{}", std::env::consts::EXE_SUFFIX);
    let path = std::env::current_exe()?.with_file_name(name);
    match path.exists() {
        true => Ok(path),
        false => Err(format!(
            "{} is not built; `cargo dev bench` builds it",
            path.display()
        )
        .into()),
    }
}
