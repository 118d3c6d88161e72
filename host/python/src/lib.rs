//! What the Python package `pipeline_state` stands on: the Rust host, with tuples for records. What Python people see is made of
//! this in `python/pipeline_state/`.
//!
//! The interpreter is free while a call waits, so any number of threads may use one store.

mod backend;
mod errors;
mod lease;
mod plugins;
mod waiting;

/// The module `pipeline_state._native`.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::backend::Backend;
    #[pymodule_export]
    use crate::lease::Lease;
    #[pymodule_export]
    use crate::plugins::Plugins;
}
