//! From arguments to an exit code: data on stdout, everything else on stderr.

mod args;
mod commands;
mod failure;
mod lock;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use pipeline_state::{Backend, Error, Plugins, Settings};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use args::{Args, Command, LockCommand, PluginsCommand};
use failure::Failure;

pub(crate) fn main() -> ExitCode {
    let args = Args::parse();
    log(args.verbose);
    match run(args) {
        Ok(code) => code,
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

fn run(args: Args) -> Result<ExitCode, Failure> {
    if let Command::Lock(LockCommand::Exec { parent, command }) = &args.command {
        return Err(lock::exec(*parent, command));
    }
    // One thread is enough for one call at a time, and starts faster than several.
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(dispatch(args))
}

async fn dispatch(args: Args) -> Result<ExitCode, Failure> {
    match &args.command {
        // It ends as its command does.
        Command::Lock(LockCommand::Run(run)) => lock::run(&open(&args).await?, run).await,
        command => execute(&args, command).await.map(|()| ExitCode::SUCCESS),
    }
}

async fn execute(args: &Args, command: &Command) -> Result<(), Failure> {
    match command {
        Command::Plugins(PluginsCommand::List) => commands::plugins_list(&load(args).await?),
        Command::Plugins(PluginsCommand::Inspect { file }) => {
            commands::plugins_inspect(Plugins::builder().inspect(file).await?)
        }
        Command::List { pattern } => commands::list(&open(args).await?, pattern).await,
        Command::Get { id } => commands::get(&open(args).await?, id).await,
        Command::Set {
            id,
            state,
            input_file,
            lease,
        } => {
            // Before the store is opened: bad input is told without a server.
            let state = commands::read_state(state.as_deref(), input_file.as_deref())?;
            let backend = lock::for_writing(open(args).await?, id, lease).await?;
            commands::set(&backend, id, state).await
        }
        Command::Delete { id, lease } => {
            let backend = lock::for_writing(open(args).await?, id, lease).await?;
            commands::delete(&backend, id).await
        }
        Command::History { id, limit } => commands::history(&open(args).await?, id, *limit).await,
        Command::Restore { id, version, lease } => {
            let backend = lock::for_writing(open(args).await?, id, lease).await?;
            commands::restore(&backend, id, *version).await
        }
        Command::Lock(LockCommand::Show { pattern }) => {
            lock::show(&open(args).await?, pattern).await
        }
        Command::Lock(LockCommand::Break { id, token }) => {
            lock::end(&open(args).await?, id, token).await
        }
        // They are not for here: see `dispatch` and `run`.
        Command::Lock(LockCommand::Run(_) | LockCommand::Exec { .. }) => Ok(()),
        Command::Doctor => commands::doctor(&open(args).await?).await,
        Command::Migrate => commands::migrate(&open(args).await?).await,
        Command::Clear { force, lease } => {
            let backend = open(args).await?;
            if *force && !lease.ignore_lock {
                lock::refuse_held(&backend, "*").await?;
            }
            commands::clear(&backend, *force).await
        }
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
