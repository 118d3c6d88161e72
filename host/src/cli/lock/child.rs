//! A command under a lease where there is no way to find what it starts: it is on its own.

use std::ffi::OsString;
use std::io;
use std::process::{ExitCode, ExitStatus};

use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::signals::Signal;
use super::{Failure, GRACE};

pub(super) struct Running {
    child: Child,
}

impl Running {
    pub(super) fn start(
        program: &OsString,
        args: &[OsString],
        environment: [(&str, String); 3],
    ) -> io::Result<Running> {
        let mut command = Command::new(program);
        let child = command.args(args).envs(environment).spawn()?;
        Ok(Running { child })
    }

    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// To a child that has not been waited for: its number can't be another process's.
    #[cfg(unix)]
    pub(super) async fn pass_on(&mut self, signal: Signal) {
        use rustix::process::{Pid, kill_process};

        let pid = self.child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            let _has_ended = kill_process(pid, signal);
        }
    }

    #[cfg(not(unix))]
    pub(super) async fn pass_on(&mut self, signal: Signal) {
        match signal {}
    }

    pub(super) async fn stop(&mut self) -> io::Result<()> {
        #[cfg(unix)]
        self.pass_on(Signal::TERM).await;
        // There is no other way to ask it.
        #[cfg(not(unix))]
        self.child.start_kill()?;
        match timeout(GRACE, self.child.wait()).await {
            Ok(ended) => ended.map(drop),
            Err(_) => self.child.kill().await,
        }
    }
}

pub(in super::super) async fn guard(_: u32, _: &[OsString]) -> Result<ExitCode, Failure> {
    Err(Failure::Io(io::Error::from(io::ErrorKind::Unsupported)))
}

pub(in super::super) fn exec(_: u32, _: &[OsString]) -> Failure {
    Failure::Io(io::Error::from(io::ErrorKind::Unsupported))
}
