//! A store that is open: the contract's functions as methods.

use std::sync::Arc;

use wasmtime::Store;

use crate::bindings::Plugin as Instance;
use crate::bindings::exports::pipeline::state::store::Guest;
use crate::bindings::pipeline::state::types as wit;
use crate::call::{self, Access, CallState, Limits};
use crate::outbound::{Client, Outbound};
use crate::plugin::Plugin;
use crate::target::Target;
use crate::{Entry, Error, IdPage, Page, State, StateId};

/// A store of pipeline state. Cheap to clone; clones share one pool of connections.
///
/// Each call runs on a fresh instance of the plugin, so calls may overlap in any number, and one that fails or
/// is dropped leaves nothing behind in this process. Dropping the future of a write leaves open whether
/// the store has it. Calls need a tokio runtime with I/O and time.
#[derive(Clone)]
pub struct Backend {
    inner: Arc<Inner>,
}

struct Inner {
    plugin: Arc<Plugin>,
    target: Target,
    client: Client,
    limits: Limits,
}

impl Backend {
    pub(crate) fn new(
        plugin: Arc<Plugin>,
        target: Target,
        limits: Limits,
    ) -> Result<Backend, Error> {
        let client = Client::new()
            .map_err(|error| Error::InvalidInput(format!("no TLS on this machine: {error}")))?;
        Ok(Backend {
            inner: Arc::new(Inner {
                plugin,
                target,
                client,
                limits,
            }),
        })
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
            .call(Access::Read, async |store, guest, target| {
                guest.call_get(store, target, &id.0).await
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
            .call(Access::Read, async |store, guest, target| {
                guest
                    .call_get_page(store, target, pattern, after, limit)
                    .await
            })
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
            .call(Access::Read, async |store, guest, target| {
                guest
                    .call_get_ids(store, target, pattern, after, limit)
                    .await
            })
            .await?;
        Ok(IdPage {
            ids: page.ids.into_iter().map(StateId::from).collect(),
            next: page.next.map(StateId::from),
        })
    }

    /// Stores a state, whatever was there before. Meltano's `set`.
    ///
    /// Once this is `Ok`, the state is stored.
    ///
    /// # Errors
    ///
    /// As for [`Backend::get`]. [`Error::outcome`] tells whether it may have been stored all the same.
    pub async fn set(&self, id: &StateId, state: State) -> Result<(), Error> {
        let state = wit::State::from(state);
        self.call(Access::Write, async |store, guest, target| {
            guest.call_set(store, target, &id.0, &state).await
        })
        .await
    }

    /// Deletes a state; false where there was none. Meltano's `delete`.
    ///
    /// # Errors
    ///
    /// As for [`Backend::set`].
    pub async fn delete(&self, id: &StateId) -> Result<bool, Error> {
        self.call(Access::Write, async |store, guest, target| {
            guest.call_delete(store, target, &id.0).await
        })
        .await
    }

    /// Deletes every state, and says how many there were. Meltano's `clear_all`.
    ///
    /// # Errors
    ///
    /// As for [`Backend::set`].
    pub async fn clear(&self) -> Result<u64, Error> {
        self.call(Access::Write, async |store, guest, target| {
            guest.call_clear(store, target).await
        })
        .await
    }

    async fn call<T>(
        &self,
        access: Access,
        function: impl AsyncFnOnce(
            &mut Store<CallState>,
            &Guest,
            &wit::Target,
        ) -> wasmtime::Result<Result<T, wit::Error>>,
    ) -> Result<T, Error> {
        let Inner {
            plugin,
            target,
            client,
            limits,
        } = &*self.inner;
        let outbound = match &target.origin {
            Some(origin) => Outbound::to(origin.clone(), client.clone()),
            None => Outbound::closed(),
        };
        call::call(
            &plugin.pre,
            limits,
            outbound,
            access,
            async |instance: &Instance, store: &mut Store<CallState>| {
                function(store, instance.pipeline_state_store(), &target.contract).await
            },
        )
        .await
    }
}
