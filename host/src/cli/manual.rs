//! `completions` and `man`: what the arguments are, for a shell and for a reader.

use std::io::{self, Write};

use clap::CommandFactory;

use super::args::Args;
use super::failure::{Failure, did_you_mean};
use super::ids;

pub(super) fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "pipeline-state", &mut script);
    Ok(io::stdout().write_all(&script)?)
}

/// The page of the program, or of one of its commands.
pub(super) fn page(name: Option<&str>) -> Result<(), Failure> {
    let mut program = Args::command();
    program.build();
    let command = match name {
        None => program,
        Some(name) => match program.find_subcommand(name) {
            Some(command) => command.clone(),
            None => return Err(unknown(name, &program)),
        },
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(io::stdout().write_all(&page)?)
}

fn unknown(name: &str, program: &clap::Command) -> Failure {
    let known = program.get_subcommands().map(clap::Command::get_name);
    let near = ids::near(name, known);
    let hint = did_you_mean(near.get(..1).unwrap_or_default());
    Failure::Usage(format!("there is no command `{name}`{hint}"))
}
