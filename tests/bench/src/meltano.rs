//! The program beside `meltano state`, each as a whole process. Meltano has its states where it is fastest: in a database of its
//! own, which is a file.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

use crate::Failure;
use crate::measure::{Contest, Measure, Report};
use crate::program::{self, MEMORY, MOST_MEMORY};
use crate::scale::Scale;
use crate::stores::{BOOKMARKS_OF_1_KB, Stores, document, id};

/// Names Meltano's program.
const VARIABLE: &str = "PIPELINE_STATE_BENCH_MELTANO";
/// A fiftieth of what Meltano takes.
const PART_OF_MELTANO: f64 = 0.02;
const STATES: u64 = 1_000;
const TABLE: &str = "beside_meltano";

pub(crate) async fn state(
    stores: &Stores,
    report: &mut Report,
    scale: Scale,
) -> Result<(), Failure> {
    let Some(meltano) = std::env::var_os(VARIABLE) else {
        println!(
            "meltano state: not measured, since {VARIABLE} does not name its program; `cargo dev bench` installs it"
        );
        return Ok(());
    };
    stores.make(TABLE).await?;
    stores.fill(TABLE, STATES, BOOKMARKS_OF_1_KB).await?;
    let folder = tempfile::tempdir()?;
    let project = Project::new(meltano, folder.path(), stores).await?;

    let (id, new) = (id(7).to_string(), document(STATES, BOOKMARKS_OF_1_KB));
    for (name, args, printed) in [
        ("get", vec!["get", &id], document(7, BOOKMARKS_OF_1_KB)),
        ("list", vec!["list"], id.clone()),
        // Of what it prints nothing is the same.
        ("set", vec!["set", "--force", &id, &new], String::new()),
    ] {
        let mut contest = Contest::of(None)
            .against("meltano state", Some(&project))
            .at_most(Measure::Ratio, PART_OF_MELTANO);
        let command = |project: Option<&Project>| match project {
            Some(project) => Ok(project.state(&args)),
            None => program::command(stores, TABLE, &args),
        };
        for round in 0..scale.rounds(30) {
            for entrant in contest.round(round) {
                let run = program::output(command(entrant.client)?);
                let output = entrant.series.time(run).await?;
                if !without_spaces(&output).contains(&without_spaces(&printed)) {
                    return Err(format!("`{name}` printed `{output}`").into());
                }
            }
        }
        let ours = program::peak_memory(command(None)?).await?;
        let theirs = program::peak_memory(command(Some(&project))?).await?;
        let row = contest
            .row(format!("the program: {name}, of 1,000 states of 1 KB"))
            .figure_with(MEMORY, ours, MOST_MEMORY)
            .figure("MB of memory that Meltano has", theirs);
        report.push(row);
    }
    Ok(())
}

/// Meltano writes a document as it writes JSON, not as it was given.
fn without_spaces(text: &str) -> String {
    text.split_whitespace().collect()
}

/// A project of Meltano that holds the states of the table.
struct Project<'a> {
    meltano: OsString,
    folder: &'a Path,
}

impl<'a> Project<'a> {
    async fn new(
        meltano: OsString,
        folder: &'a Path,
        stores: &Stores,
    ) -> Result<Project<'a>, Failure> {
        let project = Project { meltano, folder };
        fs::write(
            folder.join("meltano.yml"),
            "send_anonymous_usage_stats: false\nproject_id: bench\n",
        )?;
        let states = folder.join("states.json");
        let export = program::command(stores, TABLE, &["export"])?;
        fs::write(&states, program::output(export).await?)?;
        let import = project.state(&["import".as_ref(), states.as_os_str()]);
        program::output(import).await?;
        Ok(project)
    }

    fn state<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(&self.meltano);
        command.arg("state").args(args);
        command.current_dir(self.folder).stdin(Stdio::null());
        command
    }
}
