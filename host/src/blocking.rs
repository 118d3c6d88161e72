//! The same for programs that are not asynchronous: each method waits for its answer.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = harness::ClickHouse::start()?;
//! # let uri = server.uri("x");
//! use pipeline_state::{Settings, State, StateId, blocking};
//!
//! let plugins = blocking::Plugins::load(pipeline_state::Plugins::builder())?;
//! let store = plugins.open(&uri, &Settings::new())?;
//! let id = StateId::from("dev:tap-a-to-target-b");
//! store.set(&id, State::from_json(r#"{"completed": {"a": 1}}"#)?)?;
//!
//! let held = store.hold(store.inner().lock(&id).owner("run 7"), |store| store.delete(&id))?;
//! assert!(held);
//! assert_eq!(store.get(&id)?, None);
//! # Ok(())
//! # }
//! ```
//!
//! None of it may be called from asynchronous code: it would block the runtime, and tokio panics then.

use std::sync::Arc;

use tokio::runtime::{Builder as RuntimeBuilder, Runtime};

use crate::{
    Builder, Change, Entry, Error, Expectation, Finding, Holder, IdPage, Lock, Page, Settings,
    State, StateId, Version,
};

/// [`crate::Plugins`], and a runtime for their calls. Cheap to clone.
#[derive(Clone)]
pub struct Plugins {
    inner: crate::Plugins,
    runtime: Arc<Runtime>,
}

/// [`crate::Backend`], of which each method waits for its answer. Cheap to clone; any number of threads may use it at once.
#[derive(Clone)]
pub struct Backend {
    inner: crate::Backend,
    runtime: Arc<Runtime>,
}

impl Plugins {
    /// Loads plugins, and starts two threads that serve their connections.
    ///
    /// # Errors
    ///
    /// As for [`Builder::build`]; [`Error::PluginFailed`] where no thread can be started.
    pub fn load(builder: Builder) -> Result<Plugins, Error> {
        let runtime = RuntimeBuilder::new_multi_thread()
            .worker_threads(2)
            .thread_name("pipeline-state")
            .enable_all()
            .build()
            .map_err(|error| Error::PluginFailed {
                reason: format!("no thread can be started: {error}"),
                outcome: crate::Outcome::NotApplied,
            })?;
        Ok(Plugins {
            inner: runtime.block_on(builder.build())?,
            runtime: Arc::new(runtime),
        })
    }

    /// Opens a store.
    ///
    /// # Errors
    ///
    /// As for [`crate::Plugins::open`].
    pub fn open(&self, uri: &str, settings: &Settings) -> Result<Backend, Error> {
        Ok(Backend {
            inner: self.inner.open(uri, settings)?,
            runtime: Arc::clone(&self.runtime),
        })
    }
}

/// Methods that wait for those of the same name.
macro_rules! waiting {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {
        impl Backend {
            $(
                #[doc = concat!("Waits for [`crate::Backend::", stringify!($name), "`].")]
                ///
                /// # Errors
                ///
                #[doc = concat!("As for [`crate::Backend::", stringify!($name), "`].")]
                pub fn $name(&self, $($argument: $kind),*) -> Result<$answer, Error> {
                    self.runtime.block_on(self.inner.$name($($argument),*))
                }
            )*
        }
    };
}

waiting! {
    get(id: &StateId) -> Option<Entry>;
    get_page(pattern: &str, after: Option<&StateId>, limit: u32) -> Page;
    get_ids(pattern: &str, after: Option<&StateId>, limit: u32) -> IdPage;
    set(id: &StateId, state: State) -> Version;
    set_if(id: &StateId, state: State, expect: Expectation) -> Version;
    set_many(states: Vec<(StateId, State)>) -> u32;
    update(id: &StateId, state: State) -> Version;
    delete(id: &StateId) -> bool;
    delete_if(id: &StateId, expect: Expectation) -> bool;
    clear() -> u64;
    versions(id: &StateId, before: Option<Version>, limit: u32) -> Vec<Change>;
    holders(pattern: &str) -> Vec<Holder>;
    break_lease(id: &StateId, token: &str) -> bool;
    check() -> Vec<Finding>;
    migrate() -> Vec<String>;
}

impl Backend {
    /// The asynchronous store behind it, for [`crate::Backend::lock`] and the like.
    pub fn inner(&self) -> &crate::Backend {
        &self.inner
    }

    /// Acquires a lease, does some work with the store under it, and gives the lease back. The work is not stopped when the lease
    /// is lost meanwhile, but what it writes is refused then.
    ///
    /// # Errors
    ///
    /// As for [`Lock::hold`].
    pub fn hold<T, E: From<Error>>(
        &self,
        lock: Lock,
        work: impl FnOnce(Backend) -> Result<T, E>,
    ) -> Result<T, E> {
        let lease = self.runtime.block_on(lock.into_future())?;
        let done = work(Backend {
            inner: lease.backend(),
            runtime: Arc::clone(&self.runtime),
        });
        let _ends_by_itself = self.runtime.block_on(lease.release());
        done
    }
}
