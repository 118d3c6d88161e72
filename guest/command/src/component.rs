//! The export: from arguments to an exit code.

use crate::args::{Args, Command, HELP};
use crate::bindings::exports::wasi::cli::run::Guest;
use crate::bindings::pipeline::state::registration;
use crate::bindings::wasi::cli::{environment, exit};
use crate::command::Store;
use crate::failure::Code;
use crate::streams::{End, Output, tell};
use crate::target::{Plugin, Target};

pub(crate) struct Program;

impl Guest for Program {
    fn run() -> Result<(), ()> {
        match run() {
            Ok(()) | Err(End::Closed) => Ok(()),
            Err(End::Failed(failure)) => {
                tell(&failure.line());
                if failure.code != Code::Failed {
                    exit::exit_with_code(failure.code as u8);
                }
                // That is code 1.
                Err(())
            }
        }
    }
}

fn run() -> Result<(), End> {
    let mut arguments = environment::get_arguments();
    // The first one is the program's name.
    arguments.drain(..arguments.len().min(1));
    let args = Args::parse(&arguments)?;
    let output = Output::new(args.json, args.quiet);
    match args.command {
        Command::Help => output.write(HELP),
        Command::Version => {
            let plugin = registration::describe();
            output.line(&format!(
                "pipeline-state {} with {} {}",
                env!("CARGO_PKG_VERSION"),
                plugin.name,
                plugin.version
            ))
        }
        command => {
            let variables = environment::get_environment();
            let plugin = registration::describe();
            let plugin = Plugin {
                schemes: plugin.schemes,
                settings: plugin
                    .settings
                    .into_iter()
                    .map(|setting| (setting.name, setting.env))
                    .collect(),
            };
            let target = Target::new(args.uri.as_deref(), &args.settings, &variables, &plugin)?;
            Store::new(target, variables).run(&command, &output)
        }
    }
}
