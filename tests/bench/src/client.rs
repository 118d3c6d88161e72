//! The ways of doing one thing that take turns.

use pipeline_state::{Backend, State, StateId};

use crate::Failure;
use crate::native::Native;

/// How many states or IDs one call asks for where it wants all or many.
pub(crate) const PAGE: u32 = 10_000;

#[derive(Clone)]
pub(crate) enum Client {
    /// Through the plugin.
    Ours(Backend),
    /// The plain statements.
    Plain(Native),
    /// The same, but a `set` reads the version first.
    Careful(Native),
}

impl Client {
    /// The completed document of a state.
    pub(crate) async fn get(&self, id: &StateId) -> Result<Option<String>, Failure> {
        match self {
            Client::Ours(backend) => {
                let entry = backend.get(id).await?;
                Ok(entry.and_then(|entry| entry.state.completed))
            }
            Client::Plain(native) | Client::Careful(native) => native.get(id.as_str()).await,
        }
    }

    /// Every completed document, and how many calls that took.
    pub(crate) async fn states(&self) -> Result<(Vec<String>, u32), Failure> {
        let backend = match self {
            Client::Ours(backend) => backend,
            Client::Plain(native) | Client::Careful(native) => {
                return Ok((native.states().await?, 1));
            }
        };
        let mut documents = Vec::new();
        let (mut after, mut calls) = (None, 0);
        loop {
            let page = backend.get_page("*", after.as_ref(), PAGE).await?;
            calls += 1;
            let states = page.entries.into_iter().map(|entry| entry.state);
            documents.extend(states.filter_map(|state| state.completed));
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok((documents, calls)),
            }
        }
    }

    /// One page of IDs, from the first one after `after`.
    pub(crate) async fn ids(&self, after: Option<&StateId>) -> Result<Vec<String>, Failure> {
        match self {
            Client::Ours(backend) => {
                let page = backend.get_ids("*", after, PAGE).await?;
                Ok(page.ids.into_iter().map(|id| id.to_string()).collect())
            }
            Client::Plain(native) | Client::Careful(native) => {
                native.ids(after.map_or("", StateId::as_str), PAGE).await
            }
        }
    }

    pub(crate) async fn set(&self, id: &StateId, document: String) -> Result<(), Failure> {
        match self {
            Client::Ours(backend) => {
                backend.set(id, completed(document)).await?;
                Ok(())
            }
            Client::Plain(native) => {
                let state = (id.as_str(), document.as_str());
                native.insert([state].into_iter()).await
            }
            Client::Careful(native) => native.insert_above(id.as_str(), &document).await,
        }
    }

    pub(crate) async fn set_many(&self, states: Vec<(StateId, String)>) -> Result<(), Failure> {
        match self {
            Client::Ours(backend) => {
                let states = states
                    .into_iter()
                    .map(|(id, document)| (id, completed(document)));
                backend.set_many(states.collect()).await?;
                Ok(())
            }
            Client::Plain(native) | Client::Careful(native) => {
                let states = states
                    .iter()
                    .map(|(id, document)| (id.as_str(), document.as_str()));
                native.insert(states).await
            }
        }
    }

    pub(crate) async fn delete(&self, id: &StateId) -> Result<(), Failure> {
        match self {
            Client::Ours(backend) => match backend.delete(id).await? {
                true => Ok(()),
                false => Err(format!("there was no `{id}` to delete").into()),
            },
            Client::Plain(native) | Client::Careful(native) => native.delete(id.as_str()).await,
        }
    }
}

pub(crate) fn completed(document: String) -> State {
    State {
        completed: Some(document),
        partial: None,
    }
}

pub(crate) fn partial(document: String) -> State {
    State {
        completed: None,
        partial: Some(document),
    }
}
