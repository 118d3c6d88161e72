//! What a state was before: reads the history, and leaves out of it the writes that were never stored.

use crate::client::{Client, Outside};
use crate::error::Error;
use crate::id::check_id;
use crate::rows::{self, Change};
use crate::sql;
use crate::version::Version;
use crate::writes::{self, Name};

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
        let mut changes = stored_only(rows::changes(&answer.body, answer.ending)?);
        changes.truncate(limit as usize);
        Ok(changes)
    }
}

/// The materialized view sees an insert before the server decides whether to drop it for its token. So where writers
/// met, several rows have one version, or stand for one creation; the rows after them tell which one was stored. Where they don't,
/// all of that version are left out: a state that never was must not be restored.
fn stored_only(changes: Vec<Change>) -> Vec<Change> {
    let name = |change: &Change| writes::parse(&change.writes).next().map(|(_, name)| name);
    let mut kept: Vec<Change> = Vec::with_capacity(changes.len());
    let mut later: Vec<(Version, Name)> = Vec::new();
    let mut rest = changes.into_iter().peekable();
    while let Some(change) = rest.next() {
        let version = change.version;
        let mut group = vec![change];
        while let Some(next) = rest.next_if(|next| next.version == version) {
            // The same write, sent twice.
            if group.iter().all(|known| name(known) != name(&next)) {
                group.push(next);
            }
        }
        let known = later.iter().find(|(at, _)| *at == version);
        if let Some((_, winner)) = known {
            group.retain(|change| name(change).is_none_or(|name| name == *winner));
        }
        if let [_] = group.as_slice()
            && let Some(change) = group.pop()
        {
            later = writes::parse(&change.writes).collect();
            kept.push(change);
        }
    }
    kept
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
        stored_only(changes)
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
    fn a_write_that_was_sent_twice_is_one() {
        assert_eq!(names(vec![change(2, 2, ""), change(2, 2, "")]), [Name(2)]);
    }

    #[test]
    fn a_write_of_the_python_backend_is_kept() {
        let mut python = change(2, 2, "");
        python.writes = String::new();
        assert_eq!(stored_only(vec![python]).len(), 1);
    }
}
