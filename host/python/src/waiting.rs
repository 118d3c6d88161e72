//! Waiting for the asynchronous host, so that other Python threads run meanwhile and Ctrl-C works.

use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pipeline_state::{Error, Outcome};
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::errors::raised;

/// How soon an interrupt is noticed.
const SIGNALS: Duration = Duration::from_millis(100);

/// Where the host's connections and heartbeats live: one for each process, until its end.
#[derive(Clone, Copy)]
pub(crate) struct Home {
    process: u32,
    runtime: &'static Runtime,
}

impl Home {
    /// The one of this process.
    pub(crate) fn get() -> Result<Home, Error> {
        static HOME: Mutex<Option<Home>> = Mutex::new(None);
        let mut home = HOME.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(home) = *home
            && home.is_here()
        {
            return Ok(home);
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("pipeline-state")
            .enable_all()
            .build()
            .map_err(|error| Error::PluginFailed {
                reason: format!("no thread can be started: {error}"),
                outcome: Outcome::NotApplied,
            })?;
        let here = Home {
            process: std::process::id(),
            // For ever: a lease that is dropped while the interpreter ends may still be given back.
            runtime: Box::leak(Box::new(runtime)),
        };
        *home = Some(here);
        Ok(here)
    }

    fn is_here(self) -> bool {
        self.process == std::process::id()
    }

    /// Waits for an answer. An interrupt (or whatever else a Python signal handler raises) gives it up.
    pub(crate) fn wait<T: Send>(
        self,
        py: Python<'_>,
        work: impl Future<Output = Result<T, Error>> + Send,
    ) -> PyResult<T> {
        if !self.is_here() {
            // A fork copies no threads: it would wait for ever.
            return Err(raised(
                py,
                Error::InvalidInput(
                    "this was opened in the process that this one was forked from; open it here anew"
                        .to_owned(),
                ),
            ));
        }
        let mut work = pin!(work);
        loop {
            let turn = py.detach(|| {
                self.runtime
                    .block_on(async { timeout(SIGNALS, work.as_mut()).await })
            });
            match turn {
                Ok(done) => return done.map_err(|error| raised(py, error)),
                Err(_) => py.check_signals()?,
            }
        }
    }

    /// Drops what starts work of its own when it is dropped.
    pub(crate) fn drop<T>(self, value: T) {
        if self.is_here() {
            let _inside = self.runtime.enter();
            drop(value);
        } else {
            // Nothing of it works in a forked process.
            std::mem::forget(value);
        }
    }
}
