//! Leases on the command line: who holds them, ending one, and holding one while a command runs.

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use pipeline_state::{Backend, Error, Holder, Lease, StateId};
#[cfg(target_os = "linux")]
use rustix::process::Signal;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::args::{LeaseArgs, RunArgs};
use super::commands::utc;
use super::failure::Failure;

/// What tells a command under `lock run` of which state it has the lease, and the token of that.
const LEASE_ID: &str = "PIPELINE_STATE_LEASE_ID";
const LEASE_TOKEN: &str = "PIPELINE_STATE_LEASE_TOKEN";

/// How long a command whose lease is lost has to end by itself.
const GRACE: Duration = Duration::from_secs(5);

/// A line for each lease that is held: the ID, when it was acquired, when it ends, the token, the owner.
pub(super) async fn show(backend: &Backend, pattern: &str) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    for holder in backend.holders(pattern).await? {
        let Holder {
            id, token, owner, ..
        } = &holder;
        let [acquired, expires] = [holder.acquired_at_ms, holder.expires_at_ms].map(utc);
        writeln!(out, "{id}\t{acquired}\t{expires}\t{token}\t{owner}")?;
    }
    Ok(out.flush()?)
}

pub(super) async fn end(backend: &Backend, id: &StateId, token: &str) -> Result<(), Failure> {
    match backend.break_lease(id, token).await? {
        true => Ok(()),
        false => Err(Failure::NoSuchLease {
            id: id.to_string(),
            token: token.to_owned(),
        }),
    }
}

/// The store for a write to one state: under the lease that this process was started with by `lock run`, if it is of this
/// state; else as it is, unless somebody holds the lease.
pub(super) async fn for_writing(
    backend: Backend,
    id: &StateId,
    args: &LeaseArgs,
) -> Result<Backend, Failure> {
    if let Ok(token) = std::env::var(LEASE_TOKEN)
        && std::env::var(LEASE_ID).is_ok_and(|held| held == id.to_string())
    {
        return Ok(backend.under_lease(&token));
    }
    if !args.ignore_lock {
        refuse_held(&backend, &escape(id)).await?;
    }
    Ok(backend)
}

/// For a write to all states.
pub(super) async fn refuse_held(backend: &Backend, pattern: &str) -> Result<(), Failure> {
    match backend.holders(pattern).await?.into_iter().next() {
        None => Ok(()),
        Some(holder) => Err(Failure::from(Error::Locked {
            holder: Some(holder),
        })),
    }
}

/// The pattern that this ID alone matches.
fn escape(id: &StateId) -> String {
    let mut pattern = String::new();
    for c in id.to_string().chars() {
        match c {
            '*' | '?' | '[' => pattern.extend(['[', c, ']']),
            c => pattern.push(c),
        }
    }
    pattern
}

/// Holds the lease while the command runs, and ends as it does.
pub(super) async fn run(backend: &Backend, args: &RunArgs) -> Result<ExitCode, Failure> {
    let owner = args.owner.clone().unwrap_or_else(owner);
    let lease = backend
        .lock(&args.id)
        .owner(owner)
        .ttl(args.ttl)
        .wait(args.wait)
        .await?;
    let ended = run_under(&lease, args).await;
    // Where it fails, it ends by itself; what the command did is not undone by that.
    if let Err(error) = lease.release().await {
        writeln!(
            io::stderr(),
            "warning: the lease could not be released: {error}"
        )?;
    }
    Ok(exit_code(ended?))
}

async fn run_under(lease: &Lease, args: &RunArgs) -> Result<ExitStatus, Failure> {
    let mut signals = signals::Signals::new()?;
    let mut child = start(lease, args)?;
    loop {
        tokio::select! {
            ended = child.wait() => return Ok(ended?),
            lost = lease.lost() => {
                // Also where nobody reads it.
                let _ = writeln!(io::stderr(), "error: {lost}; stopping the command");
                stop(&mut child).await?;
                return Err(Failure::from(lost));
            }
            signal = signals.next() => signals::send(&child, signal),
        }
    }
}

fn start(lease: &Lease, args: &RunArgs) -> Result<Child, Failure> {
    let mut words = args.command.iter();
    let program = words.next().cloned().unwrap_or_default();
    let mut command;
    if cfg!(target_os = "linux") {
        // By way of `exec`: a command whose holder was killed must not go on when somebody else gets the lease.
        command = Command::new("/proc/self/exe");
        command
            .args(["lock", "exec", &std::process::id().to_string(), "--"])
            .arg(&program);
    } else {
        command = Command::new(&program);
    }
    command
        .args(words)
        .env(LEASE_ID, lease.id().to_string())
        .env(LEASE_TOKEN, lease.token())
        .spawn()
        .map_err(|error| Failure::NotStarted { program, error })
}

/// Becomes the command, and ends when its parent does. Returns only if that fails.
#[cfg(target_os = "linux")]
pub(super) fn exec(parent: u32, command: &[OsString]) -> Failure {
    use std::os::unix::process::{CommandExt, parent_id};

    let mut words = command.iter();
    let program = words.next().cloned().unwrap_or_default();
    let wish = rustix::process::set_parent_process_death_signal(Some(Signal::TERM));
    let error = match wish {
        Err(error) => error.into(),
        // It was killed before that.
        Ok(()) if parent_id() != parent => io::Error::other("its parent has ended"),
        Ok(()) => std::process::Command::new(&program).args(words).exec(),
    };
    Failure::NotStarted { program, error }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn exec(_: u32, _: &[OsString]) -> Failure {
    Failure::Io(io::Error::from(io::ErrorKind::Unsupported))
}

async fn stop(child: &mut Child) -> Result<(), Failure> {
    signals::ask_to_end(child);
    match timeout(GRACE, child.wait()).await {
        Ok(ended) => drop(ended?),
        Err(_) => child.kill().await?,
    }
    Ok(())
}

/// A shell's rule: 128 and the number of the signal that ended it.
fn exit_code(status: ExitStatus) -> ExitCode {
    #[cfg(unix)]
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    #[cfg(not(unix))]
    let signal = None::<i32>;
    let code = status.code().or(signal.map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// `user@host, process 42`.
fn owner() -> String {
    let variable = |names: [&str; 2]| names.iter().find_map(|name| std::env::var(name).ok());
    let user = variable(["USER", "USERNAME"]);
    let host = variable(["HOSTNAME", "COMPUTERNAME"]).or_else(host_name);
    let place = match (user, host) {
        (Some(user), Some(host)) => format!("{user}@{host}, "),
        (Some(name), None) | (None, Some(name)) => format!("{name}, "),
        (None, None) => String::new(),
    };
    format!("{place}process {}", std::process::id())
}

#[cfg(unix)]
fn host_name() -> Option<String> {
    let system = rustix::system::uname();
    system.nodename().to_str().ok().map(str::to_owned)
}

#[cfg(not(unix))]
fn host_name() -> Option<String> {
    None
}

/// Signals for the command. Those of a terminal it gets from there itself.
#[cfg(unix)]
mod signals {
    use std::io::{self, IsTerminal};

    use rustix::process::{Pid, Signal, kill_process};
    use tokio::process::Child;
    use tokio::signal::unix::{self, SignalKind, signal};

    pub(super) struct Signals {
        all: Vec<(unix::Signal, Signal)>,
    }

    impl Signals {
        pub(super) fn new() -> io::Result<Signals> {
            let from_outside = [
                (SignalKind::terminate(), Signal::TERM),
                (SignalKind::hangup(), Signal::HUP),
                (SignalKind::user_defined1(), Signal::USR1),
                (SignalKind::user_defined2(), Signal::USR2),
                (SignalKind::interrupt(), Signal::INT),
                (SignalKind::quit(), Signal::QUIT),
            ];
            let all = from_outside
                .into_iter()
                .map(|(kind, number)| Ok((signal(kind)?, number)))
                .collect::<io::Result<_>>()?;
            Ok(Signals { all })
        }

        /// The next one that is to be passed on.
        pub(super) async fn next(&mut self) -> Signal {
            std::future::poll_fn(|context| {
                for (signal, number) in &mut self.all {
                    while let std::task::Poll::Ready(Some(())) = signal.poll_recv(context) {
                        let typed = matches!(*number, Signal::INT | Signal::QUIT);
                        if !(typed && io::stdin().is_terminal()) {
                            return std::task::Poll::Ready(*number);
                        }
                    }
                }
                std::task::Poll::Pending
            })
            .await
        }
    }

    /// To a child that has not been waited for: its number can't be another process's.
    pub(super) fn send(child: &Child, signal: Signal) {
        let pid = child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            let _has_ended = kill_process(pid, signal);
        }
    }

    pub(super) fn ask_to_end(child: &mut Child) {
        send(child, Signal::TERM);
    }
}

/// A console passes its signals to the command itself, and there is no other way to ask it to end than to end it.
#[cfg(not(unix))]
mod signals {
    use std::io;

    use tokio::process::Child;

    pub(super) struct Signals;

    pub(super) enum Never {}

    impl Signals {
        pub(super) fn new() -> io::Result<Signals> {
            Ok(Signals)
        }

        pub(super) async fn next(&mut self) -> Never {
            std::future::pending().await
        }
    }

    pub(super) fn send(_: &Child, signal: Never) {
        match signal {}
    }

    pub(super) fn ask_to_end(child: &mut Child) {
        let _has_ended = child.start_kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_of_an_id_matches_nothing_else() {
        for (id, pattern) in [("a", "a"), ("a*[b]?", "a[*][[]b][?]"), ("", "")] {
            assert_eq!(escape(&StateId::from(id)), pattern);
        }
    }
}
