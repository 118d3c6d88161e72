//! A lease that is held, and who holds leases.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;

use crate::backend::Backend;
use crate::errors::raised;
use crate::waiting::Home;

/// id, token, owner, and in milliseconds since 1970: acquired, renewed, expires
pub(crate) type Holder = (String, String, String, u64, u64, u64);

pub(crate) fn holder(holder: pipeline_state::Holder) -> Holder {
    (
        holder.id.to_string(),
        holder.token,
        holder.owner,
        holder.acquired_at_ms,
        holder.renewed_at_ms,
        holder.expires_at_ms,
    )
}

/// A lease that is renewed in the background until it is released, or this is gone.
#[pyclass(frozen)]
pub(crate) struct Lease {
    home: Home,
    token: String,
    backend: pipeline_state::Backend,
    /// None once it is released.
    held: Mutex<Option<Arc<pipeline_state::Lease>>>,
}

impl Lease {
    pub(crate) fn new(home: Home, lease: pipeline_state::Lease) -> Lease {
        Lease {
            home,
            token: lease.token().to_owned(),
            backend: lease.backend(),
            held: Mutex::new(Some(Arc::new(lease))),
        }
    }

    fn held(&self) -> Option<Arc<pipeline_state::Lease>> {
        self.held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn take(&self) -> Option<Arc<pipeline_state::Lease>> {
        self.held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

#[pymethods]
impl Lease {
    #[getter]
    fn token(&self) -> &str {
        &self.token
    }

    /// The store, with writes under this lease.
    fn backend(&self) -> Backend {
        Backend::new(self.home, self.backend.clone())
    }

    /// Whether it is lost or released.
    fn is_lost(&self) -> bool {
        self.held().is_none_or(|lease| lease.is_lost())
    }

    /// Raises why it is lost; nothing where it is held, or released.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        match self.held().filter(|lease| lease.is_lost()) {
            None => Ok(()),
            Some(lease) => {
                let lost = self.home.wait(py, async { Ok(lease.lost().await) })?;
                Err(raised(py, lost))
            }
        }
    }

    fn release(&self, py: Python<'_>) -> PyResult<()> {
        // Whoever looks at it at this moment drops it in a moment, and so gives it back.
        match self.take().map(Arc::try_unwrap) {
            Some(Ok(lease)) => self.home.wait(py, lease.release()),
            Some(Err(shared)) => {
                self.home.drop(shared);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.home.drop(self.take());
    }
}
