//! Leases on the command line: who holds them, ending one, and holding one while a command runs.

use std::env;
use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use pipeline_state::{Backend, Error, Holder, Lease, StateId};

use super::args::{LeaseArgs, RunArgs};
use super::failure::{Failure, plain};
use super::output::{Output, write_line};
use super::time::utc;
use running::Running;
use signals::Signals;

#[cfg_attr(target_os = "linux", path = "lock/tree.rs")]
#[cfg_attr(not(target_os = "linux"), path = "lock/child.rs")]
mod running;
mod signals;

pub(super) use running::{exec, guard};

/// What tells a command under `lock run` of which state it has the lease, the token of that, and the origin of its store.
const LEASE_ID: &str = "PIPELINE_STATE_LEASE_ID";
const LEASE_TOKEN: &str = "PIPELINE_STATE_LEASE_TOKEN";
const LEASE_ORIGIN: &str = "PIPELINE_STATE_LEASE_ORIGIN";

/// How long a command whose lease is lost has to end by itself.
const GRACE: Duration = Duration::from_secs(5);

/// A line for each lease that is held: the ID, when it was acquired, when it ends, the token, the owner.
pub(super) async fn show(backend: &Backend, pattern: &str, output: Output) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    for holder in backend.holders(pattern).await? {
        if output.json {
            let line = serde_json::json!({
                "id": holder.id.as_str(),
                "acquired_at": utc(holder.acquired_at_ms),
                "expires_at": utc(holder.expires_at_ms),
                "token": holder.token,
                "owner": holder.owner,
            });
            write_line(&mut out, &line)?;
            continue;
        }
        let [id, token, owner] =
            [&holder.id.to_string(), &holder.token, &holder.owner].map(|text| plain(text));
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
    if args.ignore_lock {
        return Ok(backend);
    }
    if let Some(token) = inherited(&backend, id) {
        return Ok(backend.under_lease(&token));
    }
    refuse_held(&backend, &escape(id), args).await?;
    Ok(backend)
}

/// The token of the lease that this process was started with, if it is of this state. Of the store no more than the origin is
/// compared: what else tells two apart only their plugin knows.
fn inherited(backend: &Backend, id: &StateId) -> Option<String> {
    let is_of_another = |name, this: &str| env::var(name).is_ok_and(|held| held != this);
    let held_id = env::var(LEASE_ID).ok()?;
    if held_id != id.to_string() || is_of_another(LEASE_ORIGIN, &origin(backend)) {
        return None;
    }
    env::var(LEASE_TOKEN).ok()
}

fn origin(backend: &Backend) -> String {
    backend.origin().unwrap_or_default()
}

/// For a write to all states whose IDs match: none of them may be held.
pub(super) async fn refuse_held(
    backend: &Backend,
    pattern: &str,
    args: &LeaseArgs,
) -> Result<(), Failure> {
    if args.ignore_lock {
        return Ok(());
    }
    refuse(holders(backend, pattern).await?.into_iter().next())
}

/// For a write to many states: none of them may be held.
pub(super) async fn refuse_held_of(
    backend: &Backend,
    mut ids: impl Iterator<Item = &StateId>,
    args: &LeaseArgs,
) -> Result<(), Failure> {
    if args.ignore_lock {
        return Ok(());
    }
    let holders = holders(backend, "*").await?;
    if holders.is_empty() {
        return Ok(());
    }
    let held = ids.find_map(|id| holders.iter().find(|holder| holder.id == *id));
    refuse(held.cloned())
}

async fn holders(backend: &Backend, pattern: &str) -> Result<Vec<Holder>, Error> {
    backend.holders(pattern).await.map_err(|error| match error {
        Error::AccessDenied(text) => Error::AccessDenied(format!(
            "{text}; grant that, or say --ignore-lock to write whether somebody holds the lease or not"
        )),
        error => error,
    })
}

fn refuse(holder: Option<Holder>) -> Result<(), Failure> {
    match holder {
        None => Ok(()),
        holder => Err(Failure::from(Error::Locked { holder })),
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
    refuse_nested(backend, &args.id).await?;
    let owner = args.owner.clone().unwrap_or_else(owner);
    let lease = backend
        .lock(&args.id)
        .owner(owner)
        .ttl(args.ttl)
        .wait(args.wait)
        .await?;
    let mut signals = Signals::default();
    let ended = run_under(&lease, args, &mut signals).await;
    // Where it is not released, it ends by itself; what the command did is not undone by that.
    tokio::select! {
        released = lease.release() => if let Err(error) = released {
            tell(&format!("warning: the lease could not be released: {error}"));
        },
        // Nobody is made to wait for that.
        _ = signals.next() => {}
    }
    Ok(exit_code(ended?))
}

/// It would wait for itself.
async fn refuse_nested(backend: &Backend, id: &StateId) -> Result<(), Failure> {
    if let Ok(token) = env::var(LEASE_TOKEN)
        && let held = backend.holders(&escape(id)).await?
        && held.iter().any(|holder| holder.token == token)
    {
        return Err(Failure::HeldAlready(id.to_string()));
    }
    Ok(())
}

async fn run_under(
    lease: &Lease,
    args: &RunArgs,
    signals: &mut Signals,
) -> Result<ExitStatus, Failure> {
    let nothing = OsString::new();
    let (program, rest) = args.command.split_first().unwrap_or((&nothing, &[]));
    let environment = [
        (LEASE_ID, lease.id().to_string()),
        (LEASE_TOKEN, lease.token().to_owned()),
        (LEASE_ORIGIN, origin(&lease.backend())),
    ];
    let mut running =
        Running::start(program, rest, environment).map_err(|error| Failure::NotStarted {
            program: program.clone(),
            error,
        })?;
    signals.catch()?;
    loop {
        tokio::select! {
            // Those first: one that the command has ended by must not end the release too.
            biased;
            signal = signals.next_to_pass_on() => running.pass_on(signal).await,
            ended = running.ended() => return Ok(ended?),
            lost = lease.lost() => {
                tell(&format!("error: {lost}; stopping the command"));
                running.stop().await?;
                return Err(Failure::from(lost));
            }
        }
    }
}

/// Also where nobody reads it: that must not change how the command has ended.
fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "{}", plain(text));
}

/// A shell's rule: 128 and the number of the signal that ended it.
fn exit_code(status: ExitStatus) -> ExitCode {
    #[cfg(unix)]
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    #[cfg(not(unix))]
    let signal = None::<i32>;
    code(status.code().or(signal.map(|signal| 128 + signal)))
}

fn code(code: Option<i32>) -> ExitCode {
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// `user@host, process 42`.
fn owner() -> String {
    let variable = |names: [&str; 2]| names.iter().find_map(|name| env::var(name).ok());
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
