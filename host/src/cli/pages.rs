//! Going through a store page by page, so that any number of states takes little memory.

use pipeline_state::{Backend, Entry, StateId};

use super::failure::Failure;

/// How many IDs are asked for at once: a few hundred kilobytes.
const IDS_AT_ONCE: u32 = 10_000;
/// How many states: some megabytes.
const STATES_AT_ONCE: u32 = 1_000;

/// Hands on all IDs that match, in order.
pub(super) async fn of_ids(
    backend: &Backend,
    pattern: &str,
    mut take: impl FnMut(Vec<StateId>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut after = None;
    loop {
        let page = backend
            .get_ids(pattern, after.as_ref(), IDS_AT_ONCE)
            .await?;
        take(page.ids)?;
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}

/// Hands on all states whose IDs match, in the order of those.
pub(super) async fn of_states(
    backend: &Backend,
    pattern: &str,
    mut take: impl FnMut(Vec<Entry>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut after = None;
    loop {
        let page = backend
            .get_page(pattern, after.as_ref(), STATES_AT_ONCE)
            .await?;
        take(page.entries)?;
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}
