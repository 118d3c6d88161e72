//! From arguments to an exit code: data on stdout, everything else on stderr.

mod args;
mod ask;
mod clear;
mod commands;
mod copy;
mod diff;
mod document;
mod edit;
mod export;
mod failure;
mod foreign;
mod history;
mod ids;
mod import;
mod interrupt;
mod list;
mod lock;
mod manual;
mod merge;
mod output;
mod pages;
mod progress;
mod project;
mod set;
mod sync;
mod time;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use pipeline_state::{Backend, Error, Plugins, Settings};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use args::{Args, Command, LockCommand, PluginsCommand, Uri};
use failure::{Failure, plain};
use foreign::Access;
use output::Output;
use project::Variable;

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
            let _ = writeln!(std::io::stderr(), "error: {}", plain(&failure.to_string()));
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
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(dispatch(args));
    // Nobody waits for what still reads from stdin.
    runtime.shutdown_background();
    result
}

async fn dispatch(args: Args) -> Result<ExitCode, Failure> {
    match &args.command {
        // They end as their command does.
        Command::Lock(LockCommand::Run(run)) => lock::run(&open(&args).await?, run).await,
        Command::Lock(LockCommand::Guard { parent, command }) => {
            lock::guard(*parent, command).await
        }
        command => execute(&args, command).await.map(|()| ExitCode::SUCCESS),
    }
}

async fn execute(args: &Args, command: &Command) -> Result<(), Failure> {
    let output = Output {
        json: args.json,
        quiet: args.quiet,
    };
    let writing = async |id, lease| lock::for_writing(open(args).await?, id, lease).await;
    match command {
        Command::Plugins(PluginsCommand::List) => {
            commands::plugins_list(&load(args).await?, output)
        }
        Command::Plugins(PluginsCommand::Inspect { file }) => {
            commands::plugins_inspect(Plugins::builder().inspect(file).await?, output)
        }
        Command::Completions { shell } => manual::completions(*shell),
        Command::Man { command } => manual::page(command.as_deref()),
        Command::List(list) => list::list(&open(args).await?, list, output).await,
        Command::Get(get) => list::get(&open(args).await?, get, output).await,
        Command::Set(set) => {
            let state = set.state()?;
            set::run(&writing(&set.id, &set.lease).await?, set, state, output).await
        }
        Command::Merge(merge) => {
            merge::run(&writing(&merge.id, &merge.lease).await?, merge, output).await
        }
        Command::Copy(copy) => {
            copy::copy(&writing(&copy.target, &copy.lease).await?, copy, output).await
        }
        Command::Move(copy) => {
            let source = writing(&copy.source, &copy.lease).await?;
            let target = writing(&copy.target, &copy.lease).await?;
            copy::rename(&source, &target, copy, output).await
        }
        Command::Clear(clear) => clear::run(open(args).await?, clear, output).await,
        Command::Edit(edit) => {
            edit::run(&writing(&edit.id, &edit.lease).await?, edit, output).await
        }
        Command::Export(export) => export::run(&open(args).await?, export, output).await,
        Command::Import(import) => import::run(&open(args).await?, import, output).await,
        Command::Sync(sync) => {
            let access = match sync.dry_run {
                true => Access::Pretend,
                false => Access::Write,
            };
            let from = store(args, &sync.from, Access::Read).await?;
            let to = store(args, &sync.to, access).await?;
            sync::run(&from, to, sync, output).await
        }
        Command::Diff(diff) => diff::run(&open(args).await?, diff).await,
        Command::History { id, limit } => {
            history::show(&open(args).await?, id, *limit, output).await
        }
        Command::Restore { id, version, lease } => {
            history::restore(&writing(id, lease).await?, id, *version, output).await
        }
        Command::Lock(LockCommand::Show { pattern }) => {
            lock::show(&open(args).await?, pattern, output).await
        }
        Command::Lock(LockCommand::Break { id, token }) => {
            lock::end(&open(args).await?, id, token).await
        }
        // They are not for here: see `dispatch` and `run`.
        Command::Lock(
            LockCommand::Run(_) | LockCommand::Guard { .. } | LockCommand::Exec { .. },
        ) => Ok(()),
        Command::Doctor => {
            let (target, variables) = args.target()?;
            let places = places(args, &target, &variables);
            let backend = open_at(args, &target, variables).await?;
            commands::doctor(&backend.check().await?, &places, output)
        }
        Command::Migrate => commands::migrate(&open(args).await?, output).await,
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
    if let Some(file) = &args.plugins_file {
        builder = builder.plugins_file(file);
    }
    args.network.apply(builder)?.build().await
}

async fn open(args: &Args) -> Result<Backend, Error> {
    let (target, variables) = args.target()?;
    open_at(args, &target, variables).await
}

async fn open_at(args: &Args, target: &Uri, variables: Vec<Variable>) -> Result<Backend, Error> {
    let read = variables.into_iter().map(|one| (one.name, one.value));
    let settings = args
        .setting
        .iter()
        .fold(Settings::from_variables(read), |settings, (name, value)| {
            settings.set(name, value)
        });
    load(args).await?.open(&target.uri, &settings)
}

/// Where the URI and each of the settings are from: never what they are.
fn places(args: &Args, target: &Uri, variables: &[Variable]) -> Vec<String> {
    let scheme = target.uri.split(':').next().unwrap_or_default();
    let of_scheme = format!("{}_", scheme.to_ascii_uppercase());
    let mut places = vec![format!("the URI is from {}", target.place)];
    let given = args.setting.iter();
    places.extend(given.map(|(name, _)| format!("`{name}` is from --setting")));
    places.extend(variables.iter().filter_map(|variable| {
        let name = variable.subject().strip_prefix(&of_scheme)?;
        let name = name.to_ascii_lowercase();
        Some(format!("`{name}` is from {}", variable.place))
    }));
    places
}

/// A store of `sync`.
async fn store(args: &Args, name: &str, access: Access) -> Result<sync::Store, Failure> {
    if name == "." {
        return Ok(sync::Store::Plugin(open(args).await?));
    }
    let uri = match name.strip_prefix("env:") {
        None => name.to_owned(),
        Some(variable) => std::env::var(variable)
            .map_err(|_| Error::MissingSetting(format!("the variable {variable} holds no URI")))?,
    };
    if let Some(foreign) = foreign::Foreign::open(&uri, access)? {
        return Ok(sync::Store::Foreign(foreign));
    }
    let plugins = load(args).await?;
    Ok(sync::Store::Plugin(plugins.open(&uri, &Settings::new())?))
}
