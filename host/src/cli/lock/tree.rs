//! A command under a lease, with all that it starts, on Linux.
//!
//! `lock run` starts a guard, and that the command. Both are subreapers: a process whose parent ends becomes a child of the
//! guard, or where that is killed, of `lock run`. So each of them finds all that the command has started, also what has made
//! itself a daemon, and ends it when the other one is killed. All stay in one process group: the terminal is the command's
//! as it is without `lock run`.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, parent_id};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use rustix::process::{
    Pid, WaitOptions, getpid, kill_process, set_child_subreaper, set_parent_process_death_signal,
    waitpid,
};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

use super::signals::{Signal, Signals};
use super::{Failure, GRACE};

/// How often it is looked who is there still.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Running {
    guard: Child,
    /// What a shell had started before it became this process (`log & exec pipeline-state ...`). Nobody has waited for these, so
    /// their numbers can't be other processes'.
    not_ours: Vec<Pid>,
}

impl Running {
    pub(super) fn start(
        program: &OsString,
        args: &[OsString],
        environment: [(&str, String); 3],
    ) -> io::Result<Running> {
        let not_ours = processes()
            .filter(|process| process.parent == Some(getpid()))
            .map(|process| process.pid)
            .collect();
        set_child_subreaper(Some(getpid()))?;
        let mut command = Command::from(ourselves("guard", program));
        let guard = command.args(args).envs(environment).spawn()?;
        Ok(Running { guard, not_ours })
    }

    /// The guard ends as the command does.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        let status = self.guard.wait().await?;
        // It was killed.
        if status.code().is_none() {
            kill_all(&self.not_ours).await;
        }
        Ok(status)
    }

    /// To the command alone, as if it had been started without us.
    pub(super) async fn pass_on(&mut self, signal: Signal) {
        // Unless it has ended, there will be a command.
        while let Ok(None) = self.guard.try_wait() {
            let id = self.guard.id().and_then(|id| i32::try_from(id).ok());
            let guard = id.and_then(Pid::from_raw);
            let command = processes()
                .filter(|process| guard.is_some() && process.parent == guard)
                .min_by_key(|process| process.started);
            if let Some(command) = command {
                let _has_ended = kill_process(command.pid, signal);
                return;
            }
            sleep(PAUSE).await;
        }
    }

    pub(super) async fn stop(&mut self) -> io::Result<()> {
        for pid in descendants(&self.not_ours) {
            let _has_ended = kill_process(pid, Signal::TERM);
        }
        let all_ended = async {
            // The guard is one of them, and has to be waited for.
            while self.guard.try_wait()?.is_none() || !descendants(&self.not_ours).is_empty() {
                sleep(PAUSE).await;
            }
            Ok(())
        };
        match timeout(GRACE, all_ended).await {
            Ok(ended) => ended,
            Err(_) => {
                kill_all(&self.not_ours).await;
                self.guard.wait().await.map(drop)
            }
        }
    }
}

/// This program in another way, also where its file was replaced meanwhile.
fn ourselves(mode: &str, program: &OsStr) -> std::process::Command {
    let mut command = std::process::Command::new("/proc/self/exe");
    command
        .arg0("pipeline-state")
        .args(["lock", mode, &std::process::id().to_string(), "--"])
        .arg(program);
    command
}

/// Kills what this process has started, and what that has started, until nothing is left of it.
async fn kill_all(not_ours: &[Pid]) {
    let killed = async {
        // Some may not be ours to kill (sudo).
        while descendants(not_ours)
            .into_iter()
            .filter(|pid| kill_process(*pid, Signal::KILL).is_ok())
            .count()
            > 0
        {
            sleep(PAUSE).await;
        }
    };
    // What a broken disk holds up ends when that lets go.
    let _hangs = timeout(GRACE, killed).await;
}

/// Runs the command, ends as it does, and ends everything when `lock run` is killed.
pub(in super::super) async fn guard(
    parent: u32,
    command: &[OsString],
) -> Result<ExitCode, Failure> {
    let mut words = command.iter();
    let program = words.next().cloned().unwrap_or_default();
    let start = || {
        // As long as no signal is caught.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        set_child_subreaper(Some(getpid()))?;
        ourselves("exec", &program).args(words).spawn()
    };
    let command = start().map_err(|error| Failure::NotStarted { program, error })?;
    // Those for the command must not end this.
    let mut signals = Signals::default();
    signals.catch()?;
    let mut child_ended = signal(SignalKind::child())?;
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(io::Error::from)?;
    loop {
        while let Ok(Some((pid, status))) = waitpid(None, WaitOptions::NOHANG) {
            if pid == Pid::from_child(&command) {
                let signal = status.terminating_signal().map(|signal| 128 + signal);
                return Ok(super::code(status.exit_status().or(signal)));
            }
        }
        if parent_id() != parent {
            kill_all(&[]).await;
            return Ok(ExitCode::FAILURE);
        }
        tokio::select! {
            _ = child_ended.recv() => {}
            _ = signals.next() => {}
        }
    }
}

/// Becomes the command, which is killed when its guard is. Returns only if that fails.
pub(in super::super) fn exec(parent: u32, command: &[OsString]) -> Failure {
    let mut words = command.iter();
    let program = words.next().cloned().unwrap_or_default();
    let error = match set_parent_process_death_signal(Some(Signal::KILL)) {
        Err(error) => error.into(),
        // It was killed before that.
        Ok(()) if parent_id() != parent => io::Error::other("its parent has ended"),
        Ok(()) => std::process::Command::new(&program).args(words).exec(),
    };
    Failure::NotStarted { program, error }
}

struct Process {
    pid: Pid,
    parent: Option<Pid>,
    started: u64,
}

impl Process {
    /// From `/proc/<pid>/stat`: `42 (name) S 1 ...`, where the name may hold anything. None where it has ended.
    fn parse(pid: &str, stat: &[u8]) -> Option<Process> {
        let stat = String::from_utf8_lossy(stat);
        let mut words = stat.rsplit_once(") ")?.1.split(' ');
        if matches!(words.next()?, "Z" | "X") {
            return None;
        }
        Some(Process {
            pid: Pid::from_raw(pid.parse().ok()?)?,
            parent: Pid::from_raw(words.next()?.parse().ok()?),
            started: words.nth(17)?.parse().ok()?,
        })
    }
}

fn processes() -> impl Iterator<Item = Process> {
    let folders = fs::read_dir("/proc").into_iter().flatten().flatten();
    folders.filter_map(|folder| {
        let stat = fs::read(folder.path().join("stat")).ok()?;
        Process::parse(folder.file_name().to_str()?, &stat)
    })
}

/// What this process has started, and what that has started.
fn descendants(not_ours: &[Pid]) -> Vec<Pid> {
    let mut others: Vec<Process> = processes()
        .filter(|process| !not_ours.contains(&process.pid))
        .collect();
    let mut parents = VecDeque::from([getpid()]);
    let mut found = Vec::new();
    while let Some(parent) = parents.pop_front() {
        let (children, rest): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|process| process.parent == Some(parent));
        others = rest;
        let children = children.iter().map(|child| child.pid);
        parents.extend(children.clone());
        found.extend(children);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name_is() {
        let stat = |state| {
            format!("7 (a) S 1 \u{1b}) {state} 5 7 7 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 9\n")
        };
        let process = Process::parse("7", stat("S").as_bytes()).unwrap();
        assert_eq!(process.pid.as_raw_pid(), 7);
        assert_eq!(process.parent.map(Pid::as_raw_pid), Some(5));
        assert_eq!(process.started, 4711);
        assert!(Process::parse("7", stat("Z").as_bytes()).is_none());
        assert!(Process::parse("self", stat("S").as_bytes()).is_none());
        let own = format!("{}", std::process::id());
        assert!(processes().any(|process| process.pid.as_raw_pid().to_string() == own));
    }
}
