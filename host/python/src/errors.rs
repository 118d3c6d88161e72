//! The host's errors as the exceptions of `pipeline_state._errors`.

use pipeline_state::{Error, Outcome};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::lease::holder;

/// The exception for an error.
pub(crate) fn raised(py: Python<'_>, error: Error) -> PyErr {
    exception(py, &error).unwrap_or_else(|failed| failed)
}

fn exception(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let members = PyDict::new(py);
    let class = match error {
        Error::InvalidInput(_) => "InvalidInputError",
        Error::MissingSetting(_) => "MissingSettingError",
        Error::Unauthenticated(_) => "UnauthenticatedError",
        Error::AccessDenied(_) => "AccessDeniedError",
        Error::Conflict { stored } => {
            members.set_item("stored", stored.map(|version| version.get()))?;
            "ConflictError"
        }
        Error::Locked { holder: held } => {
            members.set_item("holder", held.clone().map(holder))?;
            "LockedError"
        }
        Error::Unavailable { .. } => "UnavailableError",
        Error::TimedOut { .. } => "TimedOutError",
        Error::Server { code, name, .. } => {
            members.set_item("code", code)?;
            members.set_item("name", name)?;
            "ServerError"
        }
        Error::Corrupt(_) => "CorruptError",
        Error::UnknownScheme { .. } => "UnknownSchemeError",
        Error::SchemeTaken { .. } | Error::BadPlugin { .. } => "BadPluginError",
        Error::OriginDenied { .. } | Error::NotAllowed { .. } => "NotAllowedError",
        Error::PluginFailed { .. } => "PluginFailedError",
        _ => "PipelineStateError",
    };
    let outcome = match error.outcome() {
        Outcome::NotApplied => "not-applied",
        Outcome::Unknown => "unknown",
    };
    members.set_item("outcome", outcome)?;
    let class = py.import("pipeline_state._errors")?.getattr(class)?;
    Ok(PyErr::from_value(
        class.call((error.to_string(),), Some(&members))?,
    ))
}
