//! Ctrl-C in the middle of many steps: what is open is closed, and it is told how far it got.

use super::failure::Failure;

/// Of a piece of work that may be dropped at any moment.
pub(super) async fn or<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::select! {
        done = work => Ok(done),
        signal = tokio::signal::ctrl_c() => match signal {
            Ok(()) => Err(Failure::Interrupted),
            Err(error) => Err(Failure::Io(error)),
        },
    }
}
