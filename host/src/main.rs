//! The program `pipeline-state`: pipeline state on the command line. See its `--help` and the README.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
