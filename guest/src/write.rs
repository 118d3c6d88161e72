//! Sets, updates and deletes states.
//!
//! Every write reads the head first: what is stored, at which version. Then it inserts one row.
//!
//! - A write that expects nothing lies on top of all that is there (`Version::top`): a read and an insert.
//! - One that expects something, and an update, is a *step* from the head (`Version::step`): a read, an insert under a token
//!   that all steps from this head share, and a reading back of which of them was stored (`writes::fate`). One that
//!   lost reads anew, and fails if it finds something else than it expects.
//! - Where nothing is there, not even a tombstone, every write is like a step, with a token that all creations share.
//!
//! Why that is exact is told in `version` and `writes`. A table of the Python backend lacks the columns for it: it gets
//! them at the first write that needs them, and is written as the Python backend does until then.

use std::time::Duration;

use crate::client::{Client, Outside, is_missing};
use crate::document;
use crate::error::{Error, Failure, Outcome, ServerError};
use crate::id::check_id;
use crate::merge::merge;
use crate::response::{Response, code};
use crate::rows::{self, Head, Layout, Stored};
use crate::sql::{self, Removal};
use crate::version::Version;
use crate::writes::{self, Fate, Name};

/// What a write expects to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expectation {
    Any,
    Absent,
    Version(Version),
}

impl Expectation {
    fn check(self, stored: Option<&Stored>) -> Result<(), Error> {
        let version = stored.map(|stored| stored.version);
        let met = match self {
            Self::Any => true,
            Self::Absent => version.is_none(),
            Self::Version(expected) => version == Some(expected),
        };
        match met {
            true => Ok(()),
            false => Err(Error::Conflict(version)),
        }
    }
}

/// The documents of a state, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Documents {
    pub(crate) partial: Option<String>,
    pub(crate) completed: Option<String>,
}

impl Documents {
    pub(crate) fn check(partial: Option<String>, completed: Option<String>) -> Result<Self, Error> {
        Ok(Self {
            partial: document::check("partial", partial)?,
            completed: document::check("completed", completed)?,
        })
    }
}

/// What a write makes of what is stored.
enum Change {
    Keep(Version),
    Put(Documents),
    Delete,
}

/// How one try of a write went.
enum Try {
    Stored(Version),
    /// Another write was stored in its place.
    Lost,
    /// See `Fate`.
    Covered,
    Dropped,
}

/// How often a write that lost is made anew at most.
const TRIES: u32 = 200;
/// A writer that lost waits for a part of this time before it tries again, so that many come through one by one.
const TURN: Duration = Duration::from_millis(8);
/// How many turns a writer waits at most.
const MOST_TURNS: u32 = 6;

impl<O: Outside> Client<'_, O> {
    /// Meltano's `set`.
    pub(crate) fn set(
        &self,
        id: &str,
        state: &Documents,
        expectation: Expectation,
    ) -> Result<Version, Error> {
        let exact = expectation != Expectation::Any;
        let version = self.write(id, expectation, exact, |stored| {
            self.put(stored, state.clone())
        })?;
        version.ok_or_else(nothing_written)
    }

    /// Meltano's `update`.
    pub(crate) fn update(&self, id: &str, state: &Documents) -> Result<Version, Error> {
        let version = self.write(id, Expectation::Any, true, |stored| {
            let updated = match stored {
                Some(stored) if state.completed.is_none() => Documents {
                    partial: merge_partial(stored.partial.as_deref(), state.partial.as_deref())?,
                    completed: stored.completed.clone(),
                },
                _ => state.clone(),
            };
            self.put(stored, updated)
        })?;
        version.ok_or_else(nothing_written)
    }

    /// Meltano's `delete`. False where there is no state.
    pub(crate) fn delete(&self, id: &str, expectation: Expectation) -> Result<bool, Error> {
        let exact = expectation != Expectation::Any;
        let found = self.write(id, expectation, exact, |stored| {
            Ok(stored.map(|_| Change::Delete))
        })?;
        Ok(found.is_some())
    }

    fn put(&self, stored: Option<&Stored>, state: Documents) -> Result<Option<Change>, Error> {
        let options = &self.connection.options;
        if let Some(stored) = stored {
            if options.skip_unchanged
                && stored.partial == state.partial
                && stored.completed == state.completed
            {
                return Ok(Some(Change::Keep(stored.version)));
            }
            if options.refuse_empty && is_empty(&state.partial, &state.completed) {
                refuse_to_empty(stored)?;
            }
        }
        Ok(Some(Change::Put(state)))
    }

    /// Writes what `decide` makes of the state that is stored; none where it wants nothing written.
    fn write(
        &self,
        id: &str,
        expectation: Expectation,
        exact: bool,
        decide: impl Fn(Option<&Stored>) -> Result<Option<Change>, Error>,
    ) -> Result<Option<Version>, Error> {
        check_id(id)?;
        let start = self.outside.elapsed();
        let mut last = None;
        let mut generation = 0;
        for attempt in 1..=TRIES {
            let head = match self.send(&sql::head(self.connection, id)?) {
                Err(Error::Server(error)) if is_missing(&error) => {
                    expectation.check(None)?;
                    if decide(None)?.is_none() {
                        return Ok(None);
                    }
                    self.create_tables(&error)?;
                    continue;
                }
                answer => rows::head(id, &answer?.body)?,
            };
            let live = head.stored.as_ref().filter(|stored| !stored.deleted);
            expectation.check(live)?;
            let change = match decide(live)? {
                None => return Ok(None),
                Some(Change::Keep(version)) => return Ok(Some(version)),
                Some(change) => change,
            };
            if head.layout == Layout::Plain {
                if !exact {
                    return self.write_plain(id, &head, &change).map(Some);
                }
                self.upgrade()?;
                continue;
            }
            let from = head.stored.as_ref().map(|stored| stored.version);
            generation = match attempt > 1 && last == Some(from) {
                true => generation,
                false => 0,
            };
            last = Some(from);
            let done = match (&head.stored, exact) {
                (None, _) => self.create_state(id, &change, exact, generation)?,
                (Some(stored), true) => self.step(id, stored, &change, generation)?,
                (Some(stored), false) => self.put_on_top(id, stored, &change)?,
            };
            match done {
                Try::Stored(version) => {
                    if matches!(change, Change::Delete) {
                        self.remove_rows(id, version);
                    }
                    return Ok(Some(version));
                }
                // Another write took effect after it, so it may be made once more; but not with an expectation, which
                // was met perhaps.
                Try::Covered if expectation != Expectation::Any => return Err(covered()),
                Try::Lost | Try::Covered => {}
                Try::Dropped => generation += 1,
            }
            if self.outside.elapsed().saturating_sub(start)
                > self.connection.options.request_timeout
            {
                break;
            }
            self.wait_for_a_turn(attempt);
        }
        Err(Error::Unavailable(Failure {
            message: "other writers came before this one each time; try again, or have fewer write one state at once"
                .to_owned(),
            outcome: Outcome::NotApplied,
        }))
    }

    fn wait_for_a_turn(&self, attempt: u32) {
        let chance = self.outside.random() as f64 / u64::MAX as f64;
        self.outside
            .pause(TURN.mul_f64(chance * f64::from(attempt.min(MOST_TURNS))));
    }

    /// Whatever else is written at this moment: either it lies below, or it was not there yet.
    fn put_on_top(&self, id: &str, stored: &Stored, change: &Change) -> Result<Try, Error> {
        let name = Name::new(self.outside.random());
        let version = stored.version.top(stored.now, self.outside.random());
        let before = writes::after(stored.version, &stored.writes);
        let writes = writes::add(&before, version, name);
        let row = row(id, change, version, stored.now, &writes);
        // A token of its own: the server drops what is sent again.
        self.send(&sql::insert(
            self.connection,
            &[row],
            &format!("{id}/{name}"),
        )?)?;
        Ok(Try::Stored(version))
    }

    fn step(
        &self,
        id: &str,
        stored: &Stored,
        change: &Change,
        generation: u32,
    ) -> Result<Try, Error> {
        let name = Name::new(self.outside.random());
        let version = stored.version.step();
        let before = writes::after(stored.version, &stored.writes);
        let writes = writes::add(&before, version, name);
        let row = row(id, change, version, stored.now, &writes);
        let token = format!("{id}/{version}/{generation}");
        self.send(&sql::insert(self.connection, &[row], &token)?)?;
        self.confirm(id, version, version, name)
    }

    fn create_state(
        &self,
        id: &str,
        change: &Change,
        exact: bool,
        generation: u32,
    ) -> Result<Try, Error> {
        let (deleted, now) = match self.read(&sql::last_deletion(self.connection, id)?)? {
            Some(answer) => rows::last_deletion(&answer.body)?,
            None => (Version::new(0), self.clock()?),
        };
        let version = match exact {
            true => Version::creation(deleted, now),
            false => deleted.top(now, self.outside.random()),
        };
        let name = Name::new(self.outside.random());
        let writes = writes::add("", version, name);
        let row = row(id, change, version, now, &writes);
        let token = format!("{id}/new/{deleted}/{generation}");
        self.send(&sql::insert(self.connection, &[row], &token)?)?;
        self.confirm(id, Version::new(0), version, name)
    }

    pub(crate) fn clock(&self) -> Result<Version, Error> {
        rows::clock(&self.send(&sql::clock(self.connection)?)?.body)
    }

    /// Reads back whether the write was stored; `from` is its version, or 0 for a creation.
    fn confirm(&self, id: &str, from: Version, version: Version, name: Name) -> Result<Try, Error> {
        let creation = from != version;
        let fate = || {
            let answer = self.send(&sql::confirm(self.connection, id, from)?);
            // The insert was answered: it is stored, or another one is.
            let rows = rows::confirmed(&answer.map_err(Error::in_doubt)?.body)?;
            Ok(writes::fate(&rows, version, name, creation))
        };
        let mut seen = fate()?;
        if seen == Fate::Dropped {
            // Once more: not that the winner's row was only just on its way.
            self.outside.pause(TURN);
            seen = fate()?;
        }
        match seen {
            Fate::Stored => Ok(Try::Stored(version)),
            Fate::Lost => Ok(Try::Lost),
            Fate::Covered => Ok(Try::Covered),
            // Behind a load balancer the replica that answers may not have the row yet.
            Fate::Dropped if self.connection.options.engine.is_replicated() => Err(covered()),
            Fate::Dropped => Ok(Try::Dropped),
            Fate::Doubled => Err(doubled(&self.connection.table)),
        }
    }

    fn write_plain(&self, id: &str, head: &Head, change: &Change) -> Result<Version, Error> {
        let now = match &head.stored {
            Some(stored) => stored.now,
            None => self.clock()?,
        };
        let stored = head
            .stored
            .as_ref()
            .map_or(Version::new(0), |stored| stored.version);
        if let Change::Delete = change {
            return match self.send(&sql::remove(self.connection, id, stored, Removal::UpTo)?) {
                // It is pending, and will be done.
                Err(Error::Server(error)) if error.code == code::UNFINISHED => Ok(stored),
                removed => removed.map(|_| stored),
            };
        }
        let version = stored.plain_top(now);
        let row = row(id, change, version, now, "");
        self.send(&sql::insert_plain(self.connection, &[row])?)?;
        Ok(version)
    }

    /// Removes the rows of a state whose tombstone is stored, for the Python backend's readers, who know no tombstones:
    /// the hidden ones first, and the tombstone only when they are gone, since a removal goes through the table part by
    /// part. Nothing depends on that: where it takes long, or the user has no grant for it (`ALTER DELETE`), the
    /// tombstone stays.
    fn remove_rows(&self, id: &str, tombstone: Version) {
        let to = self.connection;
        let remove = |removal| self.send(&sql::remove(to, id, tombstone, removal)?);
        let note = || self.send(&sql::note_deletion(to, id, tombstone)?);
        let _stays: Result<Response, Error> = remove(Removal::BeforeTombstone)
            .and_then(|_| self.with_deleted_table(note))
            .and_then(|_| remove(Removal::Tombstone));
    }
}

fn row<'a>(
    id: &'a str,
    change: &'a Change,
    version: Version,
    written: Version,
    writes: &'a str,
) -> sql::Row<'a> {
    let documents = match change {
        Change::Put(documents) => Some(documents),
        Change::Keep(_) | Change::Delete => None,
    };
    sql::Row {
        id,
        partial: documents.and_then(|documents| documents.partial.as_deref()),
        completed: documents.and_then(|documents| documents.completed.as_deref()),
        version,
        written,
        deleted: documents.is_none(),
        writes,
    }
}

/// The stored partial document with the members of another one.
fn merge_partial(stored: Option<&str>, new: Option<&str>) -> Result<Option<String>, Error> {
    let Some(new) = new else {
        return Ok(stored.map(str::to_owned));
    };
    let Some(stored) = stored else {
        return Ok(Some(new.to_owned()));
    };
    let merged = merge(stored, new).map_err(|mismatch| {
        Error::InvalidInput(format!(
            "the partial state can't be merged into the one that is stored: `{}` is an object in the new one and none \
             in the stored one; nothing was written",
            mismatch.path
        ))
    })?;
    let merged = merged.unwrap_or_else(|| stored.to_owned());
    document::check("merged partial", Some(merged))
}

/// Whether no bookmark is in any of the documents.
fn is_empty(partial: &Option<String>, completed: &Option<String>) -> bool {
    let nothing =
        |document: &Option<String>| document.as_deref().is_none_or(document::holds_nothing);
    nothing(partial) && nothing(completed)
}

fn refuse_to_empty(stored: &Stored) -> Result<(), Error> {
    match is_empty(&stored.partial, &stored.completed) {
        true => Ok(()),
        false => Err(Error::InvalidInput(
            "the new state is empty and the stored one is not, and `refuse_empty` is on: nothing was written; delete the \
             state if it is to go"
                .to_owned(),
        )),
    }
}

fn covered() -> Error {
    Error::Unavailable(Failure {
        message: "another write came over this one before it was confirmed; read the state, and try again if need be"
            .to_owned(),
        outcome: Outcome::Unknown,
    })
}

fn doubled(table: &crate::connection::Table) -> Error {
    Error::Server(ServerError {
        code: 0,
        name: String::new(),
        message: format!(
            "the server stored two writes of {table} that exclude each other: deduplication of inserts is switched off, by a \
             profile or for the table; run `doctor`"
        ),
        outcome: Outcome::Unknown,
    })
}

/// `set` and `update` always decide for something.
fn nothing_written() -> Error {
    Error::Corrupt("nothing was written".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(version: i64) -> Stored {
        Stored {
            partial: None,
            completed: Some(r#"{"singer_state": {"a": 1}}"#.to_owned()),
            deleted: false,
            version: Version::new(version),
            writes: String::new(),
            now: Version::new(9),
        }
    }

    #[test]
    fn an_expectation_is_met_by_what_it_names_alone() {
        let seven = Expectation::Version(Version::new(7));
        let conflict = |found: Option<i64>| Err(Error::Conflict(found.map(Version::new)));
        assert_eq!(Expectation::Any.check(None), Ok(()));
        assert_eq!(Expectation::Any.check(Some(&stored(7))), Ok(()));
        assert_eq!(Expectation::Absent.check(None), Ok(()));
        assert_eq!(
            Expectation::Absent.check(Some(&stored(7))),
            conflict(Some(7))
        );
        assert_eq!(seven.check(Some(&stored(7))), Ok(()));
        assert_eq!(seven.check(Some(&stored(8))), conflict(Some(8)));
        assert_eq!(seven.check(None), conflict(None));
    }

    #[test]
    fn a_partial_document_is_merged_and_the_error_of_one_that_can_not_be_names_the_place() {
        let merged = merge_partial(Some(r#"{"a": {"b": 1}}"#), Some(r#"{"a": {"c": 2}}"#));
        assert_eq!(merged.unwrap().unwrap(), r#"{"a": {"b": 1,"c": 2}}"#);
        assert_eq!(
            merge_partial(Some("{\"a\": 1}"), None).unwrap().unwrap(),
            "{\"a\": 1}"
        );
        assert_eq!(
            merge_partial(None, Some("{\"a\": 1}")).unwrap().unwrap(),
            "{\"a\": 1}"
        );
        let Err(Error::InvalidInput(message)) = merge_partial(
            Some(r#"{"a": {"b": "hunter2"}}"#),
            Some(r#"{"a": {"b": {}}}"#),
        ) else {
            panic!()
        };
        assert!(
            message.contains("`a.b`") && !message.contains("hunter2"),
            "{message}"
        );
    }

    #[test]
    fn a_state_without_bookmarks_is_empty() {
        let document = |text: &str| Some(text.to_owned());
        for empty in [
            "{\"singer_state\": {}}",
            "{\"singer_state\": {\"bookmarks\": {}}}",
            "{\"a\": null}",
        ] {
            assert!(is_empty(&None, &document(empty)), "{empty}");
        }
        assert!(is_empty(&None, &None));
        assert!(!is_empty(&document("{\"a\": 0}"), &None));
        assert!(refuse_to_empty(&stored(1)).is_err());
    }
}
