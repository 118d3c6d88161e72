//! From arguments to an exit code: data on stdout, everything else on stderr.

mod args;
mod commands;
mod failure;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use pipeline_state::{Backend, Error, Plugins, Settings};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use args::{Args, Command, PluginsCommand};
use failure::Failure;

pub(crate) fn main() -> ExitCode {
    let args = Args::parse();
    log(args.verbose);
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of a pipe has seen enough (`pipeline-state list | head`).
        Err(Failure::Io(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(failure) => {
            // With stderr closed as well there is nobody left to tell.
            let _ = writeln!(std::io::stderr(), "error: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Our own events alone: those of the HTTP libraries could hold what is in a request.
fn log(verbose: u8) {
    let level = match verbose {
        0 => return,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::registry()
        .with(Targets::new().with_target("pipeline_state", level))
        .with(
            tracing_subscriber::fmt::layer()
                .with_ansi(colour)
                .with_writer(std::io::stderr),
        )
        .init();
}

fn run(args: Args) -> Result<(), Failure> {
    // One thread is enough for one call at a time, and starts faster than several.
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(dispatch(args))
}

async fn dispatch(args: Args) -> Result<(), Failure> {
    match &args.command {
        Command::Plugins(PluginsCommand::List) => commands::plugins_list(&load(&args).await?),
        Command::Plugins(PluginsCommand::Inspect { file }) => {
            commands::plugins_inspect(Plugins::builder().inspect(file).await?)
        }
        Command::List { pattern } => commands::list(&open(&args).await?, pattern).await,
        Command::Get { id } => commands::get(&open(&args).await?, id).await,
        Command::Set {
            id,
            state,
            input_file,
        } => {
            // Before the store is opened: bad input is told without a server.
            let state = commands::read_state(state.as_deref(), input_file.as_deref())?;
            commands::set(&open(&args).await?, id, state).await
        }
        Command::Delete { id } => commands::delete(&open(&args).await?, id).await,
        Command::History { id, limit } => commands::history(&open(&args).await?, id, *limit).await,
        Command::Restore { id, version } => {
            commands::restore(&open(&args).await?, id, *version).await
        }
        Command::Doctor => commands::doctor(&open(&args).await?).await,
        Command::Migrate => commands::migrate(&open(&args).await?).await,
        Command::Clear { force } => commands::clear(&open(&args).await?, *force).await,
    }
}

async fn load(args: &Args) -> Result<Plugins, Error> {
    let mut builder = Plugins::builder();
    if let Some(deadline) = args.timeout {
        builder = builder.call_deadline(deadline);
    }
    for folder in &args.plugin_dir {
        builder = builder.directory(folder);
    }
    builder.build().await
}

async fn open(args: &Args) -> Result<Backend, Error> {
    let uri = args.uri()?;
    let settings = args
        .setting
        .iter()
        .fold(Settings::from_env(), |settings, (name, value)| {
            settings.set(name, value)
        });
    load(args).await?.open(&uri, &settings)
}
