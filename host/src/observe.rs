//! What is told of calls: spans and events of `tracing`, and a report of each call for metrics. Nothing of it holds an ID, a
//! document, a parameter of a statement, or a secret.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tracing::Span;

use crate::Error;
use crate::call::Access;
use crate::outbound::Traffic;

/// A function of the contract.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    pub(crate) access: Access,
}

impl Operation {
    pub(crate) const fn read(name: &'static str) -> Operation {
        Operation {
            name,
            access: Access::Read,
        }
    }

    pub(crate) const fn write(name: &'static str) -> Operation {
        Operation {
            name,
            access: Access::Write,
        }
    }
}

/// A call that has ended: what [`Builder::observer`](crate::Builder::observer) is told.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CallReport<'a> {
    /// The plugin's name.
    pub plugin: &'a str,
    /// The function of the contract: `get`, `set`, `get-page` ...
    pub operation: &'static str,
    /// From the call to its end, waiting for a turn included.
    pub elapsed: Duration,
    /// How many requests the plugin has sent, repeated ones included.
    pub requests: u32,
    /// How many bytes the bodies of requests had, as far as their length was known.
    pub bytes_sent: u64,
    /// How many bytes the bodies of responses had, before they were unpacked.
    pub bytes_received: u64,
    /// Why it failed, if it did.
    pub error: Option<&'a Error>,
}

type Listener = dyn Fn(&CallReport<'_>) + Send + Sync;

/// Who is told of each call.
#[derive(Clone)]
pub(crate) struct Observer(Arc<Listener>);

impl Observer {
    pub(crate) fn new(listener: impl Fn(&CallReport<'_>) + Send + Sync + 'static) -> Observer {
        Observer(Arc::new(listener))
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Observer")
    }
}

/// A call that is being made.
pub(crate) struct Observed<'a> {
    plugin: &'a str,
    operation: Operation,
    traffic: Arc<Traffic>,
    start: Instant,
}

impl<'a> Observed<'a> {
    pub(crate) fn new(plugin: &'a str, operation: Operation, traffic: Arc<Traffic>) -> Self {
        Observed {
            plugin,
            operation,
            traffic,
            start: Instant::now(),
        }
    }

    pub(crate) fn span(&self) -> Span {
        tracing::debug_span!(
            "call",
            plugin = self.plugin,
            operation = self.operation.name
        )
    }

    pub(crate) fn end(self, error: Option<&Error>, observer: Option<&Observer>) {
        let report = CallReport {
            plugin: self.plugin,
            operation: self.operation.name,
            elapsed: self.start.elapsed(),
            requests: self.traffic.requests.load(Relaxed),
            bytes_sent: self.traffic.sent.load(Relaxed),
            bytes_received: self.traffic.received.load(Relaxed),
            error,
        };
        tracing::debug!(
            plugin = report.plugin,
            operation = report.operation,
            elapsed = ?report.elapsed,
            requests = report.requests,
            sent = report.bytes_sent,
            received = report.bytes_received,
            failed = error.is_some(),
            "call"
        );
        if let Some(Observer(listener)) = observer {
            listener(&report);
        }
    }
}
