//! A store that is open: the contract's functions as methods.

use std::sync::Arc;

use tokio::sync::Notify;
use tracing::Instrument;
use wasmtime::Store;

use crate::bindings::Plugin as Instance;
use crate::bindings::exports::pipeline::state::locks;
use crate::bindings::pipeline::state::types as wit;
use crate::call::{self, CallState, Limits};
use crate::observe::{Observed, Operation};
use crate::outbound::{Allowed, Outbound};
use crate::plugins::Loaded;
use crate::target::Target;
use crate::text;
use crate::{
    Change, Entry, Error, Expectation, Finding, Holder, IdPage, Lock, Page, State, StateId, Version,
};

/// Leases in one page.
const HOLDERS_AT_ONCE: u32 = 1_000;
/// More than will ever be held at one time.
const MOST_HOLDERS: usize = 100_000;

/// A store of pipeline state. Cheap to clone; clones share one pool of connections.
///
/// Each call runs on a fresh instance of the plugin, so calls may overlap in any number, and one that fails or
/// is dropped leaves nothing behind in this process. Dropping the future of a write leaves open whether
/// the store has it. Calls need a tokio runtime with I/O and time.
#[derive(Clone)]
pub struct Backend {
    inner: Arc<Inner>,
    /// The lease under which writes are made.
    lease: Option<Under>,
}

/// What a store knows of the lease under which it writes.
#[derive(Clone)]
struct Under {
    token: Arc<str>,
    /// Told when a write is refused, where the holder is in this process.
    refused: Option<Arc<Notify>>,
}

struct Inner {
    loaded: Arc<Loaded>,
    target: Target,
    /// Where calls may go: to the target's origin, if it names one.
    allowed: Option<Arc<Allowed>>,
    limits: Limits,
}

impl Backend {
    pub(crate) fn new(loaded: Arc<Loaded>, target: Target, limits: Limits) -> Backend {
        let allowed = target.origin.as_ref().map(|origin| {
            Arc::new(Allowed {
                origin: origin.clone(),
                route: loaded.client.route(origin),
                sealed: !loaded.plugin.description.needs_credentials,
                authorization: target.secrets.authorization().cloned(),
            })
        });
        Backend {
            inner: Arc::new(Inner {
                loaded,
                target,
                allowed,
                limits,
            }),
            lease: None,
        }
    }

    /// The same store, with writes under the lease of this token: they fail with [`Error::Locked`], and nothing is written, once
    /// that lease has ended, also when it ends while they are on their way. See [`Lease::backend`](crate::Lease::backend).
    ///
    /// A lease is of one state, so no other one can be written through this, nor many at once.
    pub fn under_lease(&self, token: &str) -> Backend {
        self.under(token, None)
    }

    /// Likewise; `refused` is told of each write that is refused since the lease has ended.
    pub(crate) fn under_held_lease(&self, token: &str, refused: &Arc<Notify>) -> Backend {
        self.under(token, Some(Arc::clone(refused)))
    }

    fn under(&self, token: &str, refused: Option<Arc<Notify>>) -> Backend {
        Backend {
            inner: Arc::clone(&self.inner),
            lease: Some(Under {
                token: Arc::from(token),
                refused,
            }),
        }
    }

    fn lease(&self) -> Option<&str> {
        self.lease.as_ref().map(|lease| &*lease.token)
    }

    fn refuse_under_lease(&self) -> Result<(), Error> {
        match self.lease {
            None => Ok(()),
            Some(_) => Err(Error::InvalidInput(String::from(
                "a lease is of one state: many can't be written under it",
            ))),
        }
    }

    /// The one origin that calls may reach, for example `http://localhost:8123`; none where the URI and the
    /// settings name no host.
    pub fn origin(&self) -> Option<String> {
        self.inner.target.origin.as_ref().map(ToString::to_string)
    }

    /// Reads one state; none where there is none. Meltano's `get`.
    ///
    /// # Errors
    ///
    /// All but those of loading plugins; see [`Error`].
    pub async fn get(&self, id: &StateId) -> Result<Option<Entry>, Error> {
        let entry = self
            .call(Operation::read("get"), async |store, plugin, target| {
                plugin
                    .pipeline_state_store()
                    .call_get(store, target, &id.0)
                    .await
            })
            .await?;
        Ok(entry.map(Entry::from))
    }

    /// Reads the states whose whole ID matches a pattern, up to `limit` of them, ordered by the bytes of
    /// their IDs, from the first one after `after`.
    ///
    /// A pattern is one of Python's `fnmatch`: `*`, `?`, `[abc]`, `[!abc]`. Go on with [`Page::next`] until it
    /// is none; a page may be short or empty before that.
    ///
    /// # Errors
    ///
    /// As for [`Backend::get`]; [`Error::InvalidInput`] for a limit of 0.
    pub async fn get_page(
        &self,
        pattern: &str,
        after: Option<&StateId>,
        limit: u32,
    ) -> Result<Page, Error> {
        let after = after.map(|id| &id.0);
        let page = self
            .call(
                Operation::read("get-page"),
                async |store, plugin, target| {
                    plugin
                        .pipeline_state_store()
                        .call_get_page(store, target, pattern, after, limit)
                        .await
                },
            )
            .await?;
        Ok(Page {
            entries: page.entries.into_iter().map(Entry::from).collect(),
            next: page.next.map(StateId::from),
        })
    }

    /// Reads IDs alone, like [`Backend::get_page`]. Meltano's `get_state_ids`.
    ///
    /// # Errors
    ///
    /// As for [`Backend::get_page`].
    pub async fn get_ids(
        &self,
        pattern: &str,
        after: Option<&StateId>,
        limit: u32,
    ) -> Result<IdPage, Error> {
        let after = after.map(|id| &id.0);
        let page = self
            .call(Operation::read("get-ids"), async |store, plugin, target| {
                plugin
                    .pipeline_state_store()
                    .call_get_ids(store, target, pattern, after, limit)
                    .await
            })
            .await?;
        Ok(IdPage {
            ids: page.ids.into_iter().map(StateId::from).collect(),
            next: page.next.map(StateId::from),
        })
    }

    /// Stores a state in place of what is there, and says its version. Meltano's `set`.
    ///
    /// Once this is `Ok`, the state is stored. One that is stored already may be left as it is, at its version.
    ///
    /// # Errors
    ///
    /// As for [`Backend::get`]. [`Error::outcome`] tells whether it may have been stored all the same.
    pub async fn set(&self, id: &StateId, state: State) -> Result<Version, Error> {
        self.set_if(id, state, Expectation::Any).await
    }

    /// Stores a state where the stored one is what is expected.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = harness::ClickHouse::start()?;
    /// # let plugins = pipeline_state::Plugins::builder().build().await?;
    /// # let backend = plugins.open(&server.uri("x"), &pipeline_state::Settings::new())?;
    /// use pipeline_state::{Error, Expectation, State, StateId};
    ///
    /// let id = StateId::from("dev:tap-a-to-target-b");
    /// let state = |n: u32| State { completed: Some(format!("{{\"n\": {n}}}")), partial: None };
    /// let first = backend.set_if(&id, state(1), Expectation::Absent).await?;
    /// backend.set_if(&id, state(2), Expectation::Version(first)).await?;
    /// let late = backend.set_if(&id, state(3), Expectation::Version(first)).await;
    /// assert!(matches!(late, Err(Error::Conflict { stored: Some(version) }) if version > first));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Backend::set`], and [`Error::Conflict`].
    pub async fn set_if(
        &self,
        id: &StateId,
        state: State,
        expect: Expectation,
    ) -> Result<Version, Error> {
        let state = wit::State::from(state);
        let expect = wit::Expectation::from(expect);
        self.call(Operation::write("set"), async |store, plugin, target| {
            let guest = plugin.pipeline_state_store();
            guest
                .call_set(store, target, &id.0, &state, expect, self.lease())
                .await
        })
        .await
        .inspect_err(|error| self.tell_holder(error))
        .map(Version::from)
    }

    /// Stores many states in place of what is there, and says how many. Meltano's `set_all`.
    ///
    /// Of two of one ID the later one counts. All of them are in the plugin's memory at once: some
    /// thousand states of a few kilobytes are a good number.
    ///
    /// # Errors
    ///
    /// As for [`Backend::set`]; some of them may be stored then.
    pub async fn set_many(&self, states: Vec<(StateId, State)>) -> Result<u32, Error> {
        self.refuse_under_lease()?;
        let states: Vec<(String, wit::State)> = states
            .into_iter()
            .map(|(id, state)| (id.0, state.into()))
            .collect();
        self.call(
            Operation::write("set-many"),
            async |store, plugin, target| {
                let guest = plugin.pipeline_state_store();
                guest.call_set_many(store, target, &states).await
            },
        )
        .await
    }

    /// Adds to a state what a pipeline has got to, and says the version. Meltano's `update`.
    ///
    /// A state whose completed document has members replaces what is there; any other one's partial document is
    /// merged into the stored partial one. No concurrent write is lost, and no lock is needed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = harness::ClickHouse::start()?;
    /// # let plugins = pipeline_state::Plugins::builder().build().await?;
    /// # let backend = plugins.open(&server.uri("x"), &pipeline_state::Settings::new())?;
    /// use pipeline_state::{State, StateId};
    ///
    /// let id = StateId::from("dev:tap-a-to-target-b");
    /// let partial = |document: &str| State { completed: None, partial: Some(document.to_owned()) };
    /// backend.update(&id, partial(r#"{"singer_state": {"a": 1}}"#)).await?;
    /// backend.update(&id, partial(r#"{"singer_state": {"b": 2}}"#)).await?;
    /// let entry = backend.get(&id).await?.expect("it was stored");
    /// assert_eq!(entry.state, partial(r#"{"singer_state": {"a": 1,"b": 2}}"#));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Backend::set`]; [`Error::InvalidInput`] where an object would be merged into something that is none.
    pub async fn update(&self, id: &StateId, state: State) -> Result<Version, Error> {
        let state = wit::State::from(state);
        self.call(Operation::write("update"), async |store, plugin, target| {
            let guest = plugin.pipeline_state_store();
            guest
                .call_update(store, target, &id.0, &state, self.lease())
                .await
        })
        .await
        .inspect_err(|error| self.tell_holder(error))
        .map(Version::from)
    }

    /// Deletes a state; false where there was none. Meltano's `delete`.
    ///
    /// # Errors
    ///
    /// As for [`Backend::set`].
    pub async fn delete(&self, id: &StateId) -> Result<bool, Error> {
        self.delete_if(id, Expectation::Any).await
    }

    /// Deletes a state where the stored one is what is expected.
    ///
    /// # Errors
    ///
    /// As for [`Backend::set_if`].
    pub async fn delete_if(&self, id: &StateId, expect: Expectation) -> Result<bool, Error> {
        let expect = wit::Expectation::from(expect);
        self.call(Operation::write("delete"), async |store, plugin, target| {
            let guest = plugin.pipeline_state_store();
            guest
                .call_delete(store, target, &id.0, expect, self.lease())
                .await
        })
        .await
        .inspect_err(|error| self.tell_holder(error))
    }

    /// So that the holder learns at once that the lease is lost, not at the next renewal.
    fn tell_holder(&self, error: &Error) {
        if let (Error::Locked { .. }, Some(refused)) = (
            error,
            self.lease.as_ref().and_then(|lease| lease.refused.as_ref()),
        ) {
            refused.notify_one();
        }
    }

    /// A lease of a state, to be acquired: see [`Lock`].
    pub fn lock(&self, id: &StateId) -> Lock {
        Lock::new(self.clone(), id.clone())
    }

    pub(crate) async fn acquire_lease(
        &self,
        id: &StateId,
        request: &locks::Request,
    ) -> Result<wit::Lease, Error> {
        self.call(
            Operation::write("acquire"),
            async |store, plugin, target| {
                let guest = plugin.pipeline_state_locks();
                guest.call_acquire(store, target, &id.0, request).await
            },
        )
        .await
    }

    pub(crate) async fn renew_lease(
        &self,
        lease: &wit::Lease,
        ttl_ms: u64,
    ) -> Result<wit::Lease, Error> {
        self.call(Operation::write("renew"), async |store, plugin, target| {
            let guest = plugin.pipeline_state_locks();
            guest.call_renew(store, target, lease, ttl_ms).await
        })
        .await
    }

    pub(crate) async fn release_lease(&self, lease: &wit::Lease) -> Result<(), Error> {
        self.call(
            Operation::write("release"),
            async |store, plugin, target| {
                plugin
                    .pipeline_state_locks()
                    .call_release(store, target, lease)
                    .await
            },
        )
        .await
    }

    /// Who holds leases of the states whose whole ID matches a pattern, ordered by ID.
    ///
    /// They are read page by page, a call each, so that one who begins or ends to hold a lease meanwhile may be among them or not.
    ///
    /// # Errors
    ///
    /// As for [`Backend::get_page`]. [`Error::Corrupt`] where the pages don't go on from one another.
    pub async fn holders(&self, pattern: &str) -> Result<Vec<Holder>, Error> {
        let mut holders = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let page = self
                .call(Operation::read("inspect"), async |store, plugin, target| {
                    plugin
                        .pipeline_state_locks()
                        .call_inspect(store, target, pattern, after.as_ref(), HOLDERS_AT_ONCE)
                        .await
                })
                .await?;
            holders.extend(page.leases.into_iter().map(Holder::from));
            match page.next {
                None => return Ok(holders),
                // A plugin must not make us ask for ever, nor keep more and more.
                Some(next) if after.as_ref() >= Some(&next) || holders.len() > MOST_HOLDERS => {
                    return Err(Error::Corrupt(format!(
                        "the plugin's pages of leases don't end: `{}` follows {} leases",
                        text::line(&next),
                        holders.len(),
                    )));
                }
                next => after = next,
            }
        }
    }

    /// Ends the lease of a holder who will not, by the token that [`Backend::holders`] tells; false where that lease is not
    /// held any more. So it never ends a newer one.
    ///
    /// # Errors
    ///
    /// As for [`Backend::set`].
    pub async fn break_lease(&self, id: &StateId, token: &str) -> Result<bool, Error> {
        self.call(
            Operation::write("break-lease"),
            async |store, plugin, target| {
                plugin
                    .pipeline_state_locks()
                    .call_break_lease(store, target, &id.0, token)
                    .await
            },
        )
        .await
    }

    /// Deletes every state, and says how many there were. Meltano's `clear_all`.
    ///
    /// # Errors
    ///
    /// As for [`Backend::set`].
    pub async fn clear(&self) -> Result<u64, Error> {
        self.refuse_under_lease()?;
        self.call(Operation::write("clear"), async |store, plugin, target| {
            plugin
                .pipeline_state_store()
                .call_clear(store, target)
                .await
        })
        .await
    }

    /// The last writes of one state, the newest first, up to `limit` of them, all before the version `before`
    /// where that is given. To restore a state is to [`Backend::set`] what it was.
    ///
    /// # Errors
    ///
    /// As for [`Backend::get`]; [`Error::InvalidInput`] where the store keeps no history, with what to do.
    pub async fn versions(
        &self,
        id: &StateId,
        before: Option<Version>,
        limit: u32,
    ) -> Result<Vec<Change>, Error> {
        let before = before.map(Version::get);
        let changes = self
            .call(
                Operation::read("versions"),
                async |store, plugin, target| {
                    let guest = plugin.pipeline_state_history();
                    guest
                        .call_versions(store, target, &id.0, before, limit)
                        .await
                },
            )
            .await?;
        Ok(changes.into_iter().map(Change::from).collect())
    }

    /// Looks at the store and at all that could stand between it and a pipeline. Changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] and [`Error::MissingSetting`] for a target that can't be used. What can't be reached is
    /// a [`Finding`].
    pub async fn check(&self) -> Result<Vec<Finding>, Error> {
        let findings = self
            .call(Operation::read("check"), async |store, plugin, target| {
                let guest = plugin.pipeline_state_maintenance();
                guest.call_check(store, target).await
            })
            .await?;
        let redacted = |finding: Finding| Finding {
            subject: self.redact(&finding.subject),
            text: self.redact(&finding.text),
            mend: finding.mend.as_deref().map(|mend| self.redact(mend)),
            ..finding
        };
        Ok(findings
            .into_iter()
            .map(Finding::from)
            .map(redacted)
            .collect())
    }

    /// Brings what an earlier version, or another program, has made up to date. Says what it did, a line each.
    ///
    /// It changes no state, may be run while pipelines write, and may be run again.
    ///
    /// # Errors
    ///
    /// As for [`Backend::set`].
    pub async fn migrate(&self) -> Result<Vec<String>, Error> {
        self.call(
            Operation::write("migrate"),
            async |store, plugin, target| {
                let guest = plugin.pipeline_state_maintenance();
                guest.call_migrate(store, target).await
            },
        )
        .await
        .map(|lines| lines.iter().map(|line| self.redact(line)).collect())
    }

    async fn call<T>(
        &self,
        operation: Operation,
        function: impl AsyncFnOnce(
            &mut Store<CallState>,
            &Instance,
            &wit::Target,
        ) -> wasmtime::Result<Result<T, wit::Error>>,
    ) -> Result<T, Error> {
        let Inner {
            loaded,
            target,
            allowed,
            limits,
        } = &*self.inner;
        let plugin = &loaded.plugin;
        let outbound = match allowed {
            Some(allowed) => Outbound::to(allowed),
            None => Outbound::closed(),
        };
        let observed = Observed::new(&plugin.description.name, operation, outbound.traffic());
        let call = call::call(
            &plugin.pre,
            limits,
            outbound,
            operation.access,
            async |instance: &Instance, store: &mut Store<CallState>| {
                function(store, instance, &target.contract).await
            },
        );
        let result = call
            .instrument(observed.span())
            .await
            // A server, and so a plugin, may echo what it was sent.
            .map_err(|error| error.with_texts(|text| target.secrets.redact(text)));
        observed.end(result.as_ref().err(), loaded.observer.as_ref());
        result
    }

    fn redact(&self, text: &str) -> String {
        self.inner.target.secrets.redact(text)
    }
}
