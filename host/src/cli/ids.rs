//! Looking up states by their IDs, and what may have been meant by one that is not there.

use pipeline_state::{Backend, Entry, StateId};

use super::failure::Failure;

/// How many IDs are looked at for one that is spelled nearly so.
const LOOKED_AT: u32 = 10_000;
/// From 0 (nothing in common) to 1 (the same).
const NEAR: f64 = 0.7;

/// The state that is stored, which a command needs.
pub(super) async fn stored(backend: &Backend, id: &StateId) -> Result<Entry, Failure> {
    match backend.get(id).await? {
        Some(entry) => Ok(entry),
        None => Err(missing(backend, id).await),
    }
}

/// That there is no such state, with the IDs that are spelled nearly so.
pub(super) async fn missing(backend: &Backend, id: &StateId) -> Failure {
    // A hint is not worth an error of its own.
    let page = backend.get_ids("*", None, LOOKED_AT).await.ok();
    let known = page.map(|page| page.ids).unwrap_or_default();
    Failure::NoSuchState {
        id: id.to_string(),
        near: near(id.as_str(), known.iter().map(StateId::as_str)),
    }
}

/// The nearest ones first, three at most.
pub(super) fn near<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut found: Vec<(f64, &str)> = known
        .filter(|known| known.len().abs_diff(name.len()) <= name.len() / 2)
        .map(|known| (strsim::normalized_damerau_levenshtein(name, known), known))
        .filter(|(nearness, _)| *nearness >= NEAR)
        .collect();
    found.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    found
        .into_iter()
        .take(3)
        .map(|(_, known)| known.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spelled_nearly_so_is_found() {
        let known = ["dev:tap-a-to-target-b", "dev:tap-a-to-target-c", "prod:x"];
        assert_eq!(
            near("dev:tap-a-to-targte-b", known.into_iter()),
            ["dev:tap-a-to-target-b", "dev:tap-a-to-target-c"]
        );
        assert!(near("nothing", known.into_iter()).is_empty());
    }
}
