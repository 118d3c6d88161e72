//! What a state was before: reads the history, and leaves out of it the writes that were never stored.

use crate::client::{Client, Outside};
use crate::error::Error;
use crate::id::check_id;
use crate::rows::{self, Change};
use crate::sql;
use crate::version::Version;
use crate::writes::{self, Name, UNNAMED};

/// How many changes one answer has at most.
const MAX_LIMIT: u32 = 1000;
/// Rows that are asked for beyond the limit: those of writes that lost, and of the one before the first.
const MORE: u32 = 16;

impl<O: Outside> Client<'_, O> {
    /// The last writes of a state, the newest first.
    pub(crate) fn versions(
        &self,
        id: &str,
        before: Option<Version>,
        limit: u32,
    ) -> Result<Vec<Change>, Error> {
        check_id(id)?;
        if limit == 0 {
            return Err(Error::InvalidInput(
                "the limit must be at least 1".to_owned(),
            ));
        }
        let limit = limit.min(MAX_LIMIT);
        let request = sql::history(self.connection, id, before, limit + MORE)?;
        let Some(answer) = self.read(&request)? else {
            return Err(Error::InvalidInput(format!(
                "no history is kept: there is no table {}; set `history` to true, then run `migrate` once",
                self.connection.table.history()
            )));
        };
        // What is stored now tells which of the newest changes were.
        let head = match self.read(&sql::confirm(self.connection, id)?)? {
            Some(answer) => rows::confirmed(&answer)?
                .into_iter()
                .max()
                .unwrap_or_default(),
            None => Default::default(),
        };
        let mut changes = stored_only(rows::changes(&answer.body, answer.ending)?, &head.1);
        changes.truncate(limit as usize);
        Ok(changes)
    }
}

/// The materialized view sees an insert before the server decides whether to drop it for its token. So where writers
/// met, several rows have one version, or several are the first of a state; the writes that are named after them tell which
/// one was stored. Where they don't, all are left out: a state that never was must not be restored.
///
/// `head` is the column `writes` of the last row that is stored.
fn stored_only(changes: Vec<Change>, head: &str) -> Vec<Change> {
    let name = |change: &Change| writes::parse(&change.writes).next().map(|(_, name)| name);
    let mut kept: Vec<Change> = Vec::with_capacity(changes.len());
    // One without a name tells nothing.
    let named_writes = |writes: &str| -> Vec<(Version, Name)> {
        writes::parse(writes)
            .filter(|(_, name)| *name != UNNAMED)
            .collect()
    };
    let mut later = named_writes(head);
    let mut rest = changes.into_iter().peekable();
    while let Some(change) = rest.next() {
        let version = change.version;
        let first = is_first(&change);
        let mut group = vec![change];
        // Rivals: of one version, or all the first of a state.
        while let Some(next) =
            rest.next_if(|next| next.version == version || (first && is_first(next)))
        {
            // The same write, sent twice, is one.
            if group.iter().all(|known| name(known) != name(&next)) {
                group.push(next);
            }
        }
        let rivals = group.len() > 1;
        let named = |change: &Change| {
            name(change).is_some_and(|name| later.iter().any(|(_, known)| *known == name))
        };
        let refuted = |change: &Change| {
            name(change).is_some()
                && later.iter().any(|(at, _)| *at == change.version)
                && !named(change)
        };
        match rivals {
            true => group.retain(named),
            false => group.retain(|change| !refuted(change)),
        }
        for change in group {
            later = named_writes(&change.writes);
            kept.push(change);
        }
    }
    kept
}

/// Whether a write says that the state was never there before.
fn is_first(change: &Change) -> bool {
    writes::parse(&change.writes).count() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(version: i64, name: u64, before: &str) -> Change {
        Change {
            partial: None,
            completed: Some(format!("{{\"by\":{name}}}")),
            deleted: false,
            version: Version::new(version),
            written_ms: 0,
            writes: writes::add(before, Version::new(version), Name::new(name)),
        }
    }

    fn names(changes: Vec<Change>) -> Vec<Name> {
        names_after(changes, "")
    }

    fn names_after(changes: Vec<Change>, head: &str) -> Vec<Name> {
        stored_only(changes, head)
            .iter()
            .filter_map(|change| writes::parse(&change.writes).next())
            .map(|(_, name)| name)
            .collect()
    }

    #[test]
    fn of_writers_that_met_the_one_that_was_stored_is_kept() {
        let first = change(1, 1, "");
        let winner = change(2, 2, &first.writes);
        let loser = change(2, 3, &first.writes);
        let last = change(3, 4, &winner.writes);
        assert_eq!(
            names(vec![last, loser, winner, first]),
            [Name(4), Name(2), Name(1)]
        );
    }

    #[test]
    fn where_nothing_tells_which_one_was_stored_none_is_kept() {
        let first = change(1, 1, "");
        let rivals = [change(2, 2, &first.writes), change(2, 3, &first.writes)];
        let [one, other] = rivals;
        assert_eq!(names(vec![one, other, first]), [Name(1)]);
    }

    #[test]
    fn of_creations_that_met_the_one_that_was_stored_is_kept() {
        let winner = change(5, 1, "");
        let losers = || vec![change(9, 2, ""), change(5, 1, ""), change(4, 3, "")];
        assert_eq!(names_after(losers(), &winner.writes), [Name(1)]);
        let next = change(10, 7, &winner.writes);
        let changes = std::iter::once(next).chain(losers()).collect();
        assert_eq!(names(changes), [Name(7), Name(1)]);
        assert_eq!(names(losers()), []);
    }

    #[test]
    fn a_write_that_was_sent_twice_is_one() {
        assert_eq!(names(vec![change(2, 2, ""), change(2, 2, "")]), [Name(2)]);
    }

    /// What goes on from a deletion knows its version alone.
    #[test]
    fn a_deletion_is_kept_when_the_state_is_made_again() {
        let first = change(1, 1, "");
        let deletion = change(2, 2, &first.writes);
        let again = change(9, 3, &writes::after(Version::new(2), ""));
        let head = again.writes.clone();
        let changes = vec![again, deletion, first];
        assert_eq!(names_after(changes, &head), [Name(3), Name(2), Name(1)]);
    }

    #[test]
    fn a_write_of_the_python_backend_is_kept() {
        let mut python = change(2, 2, "");
        python.writes = String::new();
        assert_eq!(stored_only(vec![python], "").len(), 1);
    }
}
