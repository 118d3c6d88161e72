//! Sets, updates and deletes states.
//!
//! Every write reads the head first: what is stored, at which version. Then it inserts one row.
//!
//! - A write that expects nothing lies on top of all that is there (`Version::top`): a read and an insert.
//! - One that expects something, and an update, is a *step* from the head (`Version::step`): a read, an insert under a token
//!   that all steps from this head share, and a reading back of which of them was stored (`writes::fate`). One that
//!   lost reads anew, and fails if it finds something else than it expects.
//! - Where nothing is there, not even a tombstone, it goes on from the version of the last deletion, which is kept beside the
//!   table. A state that was never there is made under a token that all its creations share, also those that expect nothing.
//!
//! Why that is exact is told in `version` and `writes`. A table of the Python backend lacks the columns for it: it gets
//! them at the first write that needs them, and is written as the Python backend does until then.

use std::hash::Hasher;
use std::time::Duration;

use siphasher::sip::SipHasher24;

use crate::client::{Client, Outside, is_missing};
use crate::document;
use crate::error::{Error, Failure, Outcome, ServerError};
use crate::id::check_id;
use crate::merge::merge;
use crate::response::code;
use crate::rows::{self, Content, Layout, Stored};
use crate::sql::{self, Removal, Request};
use crate::version::Version;
use crate::writes::{self, Fate, Name, Sent};

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

    /// What is stored, where it was read whole.
    fn of(content: &Content) -> Self {
        match content {
            Content::Documents { partial, completed } => Self {
                partial: partial.clone(),
                completed: completed.clone(),
            },
            Content::Hashes { .. } => Self {
                partial: None,
                completed: None,
            },
        }
    }

    fn size(&self) -> usize {
        [&self.partial, &self.completed]
            .into_iter()
            .flatten()
            .map(String::len)
            .sum()
    }

    /// Whether no bookmark is in any of them.
    fn is_empty(&self) -> bool {
        [&self.partial, &self.completed]
            .into_iter()
            .flatten()
            .all(|document| document::holds_nothing(document))
    }

    /// Whether they are what is stored. `key` is that of the hashes, so that nobody can make two documents alike.
    fn is_stored(&self, content: &Content, key: Option<(u64, u64)>) -> bool {
        match (content, key) {
            (Content::Documents { partial, completed }, _) => {
                *partial == self.partial && *completed == self.completed
            }
            (Content::Hashes { partial, completed }, Some(key)) => {
                let hash = |document: &Option<String>| hash(document.as_deref().unwrap_or(""), key);
                *partial == hash(&self.partial) && *completed == hash(&self.completed)
            }
            (Content::Hashes { .. }, None) => false,
        }
    }
}

/// ClickHouse's `sipHash64Keyed`, as the bits of a signed number.
fn hash(text: &str, (first, second): (u64, u64)) -> i64 {
    let mut hasher = SipHasher24::new_with_keys(first, second);
    hasher.write(text.as_bytes());
    i64::from_le_bytes(hasher.finish().to_le_bytes())
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

/// What a write asks for, beside what it stores.
#[derive(Clone, Copy, Debug)]
struct Wish {
    expectation: Expectation,
    /// Whether it must know what it is written over: it expects something, or is made of what is stored.
    exact: bool,
}

/// That a table lacks the columns for what was tried; nothing was written.
struct PlainTable;
const PLAIN: PlainTable = PlainTable;

/// How often a write that lost is made anew at most.
const TRIES: u32 = 200;
/// A writer that lost waits for a part of this time before it tries again, so that many come through one by one.
const TURN: Duration = Duration::from_millis(8);
/// How often that is doubled at most.
const MOST_DOUBLINGS: u32 = 5;
/// How old what was read may be when something is written over it. The server remembers the tokens of 10,000 inserts, which
/// no server takes in that time.
const FRESH: Duration = Duration::from_secs(20);
/// The version of the last deletion of a state that was never deleted.
const NEVER: Version = Version::ZERO;
/// How long a deletion waits before it looks whether the hidden rows are gone; each time twice as long, up to the last.
const FIRST_LOOK: Duration = Duration::from_millis(8);
const LAST_LOOK: Duration = Duration::from_millis(64);
/// A state of more bytes is compared on the server.
const LARGE: usize = 64 * 1024;

impl<O: Outside> Client<'_, O> {
    /// Meltano's `set`.
    pub(crate) fn set(
        &self,
        id: &str,
        state: &Documents,
        expectation: Expectation,
    ) -> Result<Version, Error> {
        let options = &self.connection.options;
        let empties = options.refuse_empty && state.is_empty();
        // A large state that is only compared is not fetched for that.
        let key = (state.size() > LARGE && !empties)
            .then(|| (self.outside.random(), self.outside.random()));
        let head = || match key {
            Some(key) => sql::head_by_hash(self.connection, id, key),
            None => sql::head(self.connection, id),
        };
        let wish = Wish {
            expectation,
            exact: expectation != Expectation::Any,
        };
        let version = self.write(id, wish, head, |stored| {
            if let Some(stored) = stored {
                if options.skip_unchanged && state.is_stored(&stored.content, key) {
                    return Ok(Some(Change::Keep(stored.version)));
                }
                if empties {
                    refuse_to_empty(&Documents::of(&stored.content))?;
                }
            }
            Ok(Some(Change::Put(state.clone())))
        })?;
        version.ok_or_else(nothing_written)
    }

    /// Meltano's `update`.
    pub(crate) fn update(&self, id: &str, new: &Documents) -> Result<Version, Error> {
        let options = &self.connection.options;
        let wish = Wish {
            expectation: Expectation::Any,
            exact: true,
        };
        let head = || sql::head(self.connection, id);
        let version = self.write(id, wish, head, |stored| {
            let Some(stored) = stored else {
                return Ok(Some(Change::Put(new.clone())));
            };
            let old = Documents::of(&stored.content);
            let updated = match &new.completed {
                Some(_) => new.clone(),
                None => Documents {
                    partial: merge_partial(old.partial.as_deref(), new.partial.as_deref())?,
                    completed: old.completed.clone(),
                },
            };
            if options.skip_unchanged && updated == old {
                return Ok(Some(Change::Keep(stored.version)));
            }
            if options.refuse_empty && updated.is_empty() {
                refuse_to_empty(&old)?;
            }
            Ok(Some(Change::Put(updated)))
        })?;
        version.ok_or_else(nothing_written)
    }

    /// Meltano's `delete`. False where there is no state.
    pub(crate) fn delete(&self, id: &str, expectation: Expectation) -> Result<bool, Error> {
        let wish = Wish {
            expectation,
            exact: expectation != Expectation::Any,
        };
        let head = || sql::head_by_hash(self.connection, id, (0, 0));
        let found = self.write(id, wish, head, |stored| Ok(stored.map(|_| Change::Delete)))?;
        Ok(found.is_some())
    }

    /// Writes what `decide` makes of the state that is stored; none where it wants nothing written.
    fn write(
        &self,
        id: &str,
        wish: Wish,
        head: impl Fn() -> Result<Request, Error>,
        decide: impl Fn(Option<&Stored>) -> Result<Option<Change>, Error>,
    ) -> Result<Option<Version>, Error> {
        check_id(id)?;
        let start = self.outside.elapsed();
        let mut last = None;
        let mut generation = 0;
        for attempt in 1..=TRIES {
            let read = self.outside.elapsed();
            let stored = match self.send(&head()?) {
                Err(Error::Server(error)) if is_missing(&error) => {
                    wish.expectation.check(None)?;
                    if decide(None)?.is_none() {
                        return Ok(None);
                    }
                    self.create_tables(&error)?;
                    continue;
                }
                answer => rows::head(id, &answer?)?,
            };
            let live = stored.as_ref().filter(|stored| !stored.deleted);
            wish.expectation.check(live)?;
            let change = match decide(live)? {
                None => return Ok(None),
                Some(Change::Keep(version)) => return Ok(Some(version)),
                Some(change) => change,
            };
            // Whoever was held up reads once more: what it expects may have been long ago.
            if self.outside.elapsed().saturating_sub(read) > FRESH {
                continue;
            }
            let from = stored.as_ref().map(|stored| stored.version);
            generation = match attempt > 1 && last == Some(from) {
                true => generation,
                false => 0,
            };
            last = Some(from);
            let done = match &stored {
                Some(Stored {
                    layout: Layout::Plain,
                    ..
                }) => Err(PLAIN),
                Some(stored) if wish.exact => Ok(self.step(id, stored, &change, generation)?),
                Some(stored) => Ok(self.put_on_top(id, stored, &change)?),
                None => match self.create_state(id, &change, wish.exact, generation) {
                    Err(Error::Server(error)) if error.code == code::NO_SUCH_COLUMN => Err(PLAIN),
                    done => Ok(done?),
                },
            };
            match done {
                Ok(Try::Stored(version)) => {
                    if matches!(change, Change::Delete) {
                        self.remove_rows(id, version);
                    }
                    return Ok(Some(version));
                }
                // Another write took effect after it, so it may be made once more; but not with an expectation, which
                // was met perhaps.
                Ok(Try::Covered) if wish.expectation != Expectation::Any => return Err(covered()),
                Ok(Try::Lost | Try::Covered) => {}
                Ok(Try::Dropped) => generation += 1,
                Err(PlainTable) if wish.exact => {
                    self.upgrade()?;
                    continue;
                }
                Err(PlainTable) => {
                    return self.write_plain(id, stored.as_ref(), &change).map(Some);
                }
            }
            let spent = self.outside.elapsed().saturating_sub(start);
            if spent > self.connection.options.request_timeout {
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

    /// The longer, the more often a writer has lost: then there are many.
    fn wait_for_a_turn(&self, attempt: u32) {
        let chance = self.outside.random() as f64 / u64::MAX as f64;
        let longest = TURN * 2_u32.pow(attempt.min(MOST_DOUBLINGS));
        self.outside.pause(longest.mul_f64(chance));
    }

    /// Whatever else is written at this moment: either it lies below, or it was not there yet.
    fn put_on_top(&self, id: &str, stored: &Stored, change: &Change) -> Result<Try, Error> {
        let sent = self.sent(
            stored.version.top(stored.now, self.outside.random()),
            Some(stored),
        );
        let before = writes::after(stored.version, &stored.writes);
        // A token of its own: the server drops what is sent again.
        let token = format!("{id}/{}", sent.name);
        match self.insert(id, change, sent, &before, stored.now, &token) {
            Ok(()) => Ok(Try::Stored(sent.version)),
            Err(error) => self.settle(id, sent, error),
        }
    }

    fn step(
        &self,
        id: &str,
        stored: &Stored,
        change: &Change,
        generation: u32,
    ) -> Result<Try, Error> {
        let sent = self.sent(stored.version.step(), Some(stored));
        let before = writes::after(stored.version, &stored.writes);
        let token = format!("{id}/{}/{generation}", sent.version);
        match self.insert(id, change, sent, &before, stored.now, &token) {
            Ok(()) => self.confirm(id, sent),
            Err(error) => self.settle(id, sent, error),
        }
    }

    fn create_state(
        &self,
        id: &str,
        change: &Change,
        exact: bool,
        generation: u32,
    ) -> Result<Try, Error> {
        let (deleted, now) = match self.read(&sql::last_deletion(self.connection, id)?)? {
            Some(answer) => rows::last_deletion(&answer)?,
            None => (NEVER, self.clock()?),
        };
        if deleted != NEVER {
            // As if the tombstone were still there: for another writer it may be, and of the two one must lose.
            let tombstone = Stored {
                content: Content::Documents {
                    partial: None,
                    completed: None,
                },
                deleted: true,
                version: deleted,
                writes: String::new(),
                now,
                layout: Layout::Ours,
            };
            return match exact {
                true => self.step(id, &tombstone, change, generation),
                false => self.put_on_top(id, &tombstone, change),
            };
        }
        let version = match exact {
            true => now.creation(),
            false => now,
        };
        let sent = self.sent(version, None);
        let token = format!("{id}/new/{generation}");
        match self.insert(id, change, sent, "", now, &token) {
            Ok(()) => self.confirm(id, sent),
            Err(error) => self.settle(id, sent, error),
        }
    }

    fn sent(&self, version: Version, from: Option<&Stored>) -> Sent {
        Sent {
            name: Name::new(self.outside.random()),
            version,
            from: from.map(|stored| stored.version),
        }
    }

    fn insert(
        &self,
        id: &str,
        change: &Change,
        sent: Sent,
        before: &str,
        now: Version,
        token: &str,
    ) -> Result<(), Error> {
        let writes = writes::add(before, sent.version, sent.name);
        let row = row(id, change, sent.version, now, &writes);
        self.send(&sql::insert(self.connection, &[row], token)?)?;
        Ok(())
    }

    /// What became of a write that ended with an error. It may be stored all the same: the answer was lost, or a
    /// materialized view behind the table failed.
    fn settle(&self, id: &str, sent: Sent, error: Error) -> Result<Try, Error> {
        let open = match &error {
            Error::Unavailable(failure) | Error::TimedOut(failure) => {
                failure.outcome == Outcome::Unknown
            }
            Error::Server(error) => error.code != code::NO_SUCH_COLUMN,
            _ => false,
        };
        match open.then(|| self.confirm(id, sent)) {
            Some(Ok(found @ (Try::Stored(_) | Try::Lost))) => Ok(found),
            // If it was under way, it may still come.
            _ => Err(error),
        }
    }

    pub(crate) fn clock(&self) -> Result<Version, Error> {
        rows::clock(&self.send(&sql::clock(self.connection)?)?)
    }

    /// Reads back whether the write was stored.
    fn confirm(&self, id: &str, sent: Sent) -> Result<Try, Error> {
        let fate = || {
            let answer = self.send(&sql::confirm(self.connection, id)?);
            // The insert was answered: it is stored, or another one is.
            let rows = rows::confirmed(&answer.map_err(Error::in_doubt)?)?;
            Ok(writes::fate(&rows, sent))
        };
        let mut seen = fate()?;
        if seen == Fate::Dropped {
            // Once more: not that the winner's row was only just on its way.
            self.outside.pause(TURN);
            seen = fate()?;
        }
        match seen {
            Fate::Stored => Ok(Try::Stored(sent.version)),
            Fate::Lost => Ok(Try::Lost),
            Fate::Covered => Ok(Try::Covered),
            // Behind a load balancer the replica that answers may not have the row yet.
            Fate::Dropped if self.connection.options.engine.is_replicated() => Err(covered()),
            Fate::Dropped => Ok(Try::Dropped),
            Fate::Doubled => Err(doubled(&self.connection.table)),
        }
    }

    fn write_plain(
        &self,
        id: &str,
        stored: Option<&Stored>,
        change: &Change,
    ) -> Result<Version, Error> {
        let (stored, now) = match stored {
            Some(stored) => (stored.version, stored.now),
            None => (Version::new(0), self.clock()?),
        };
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
    /// tombstone stays, until `migrate` removes it.
    fn remove_rows(&self, id: &str, tombstone: Version) {
        let _stays = self.try_to_remove_rows(id, tombstone);
    }

    fn try_to_remove_rows(&self, id: &str, tombstone: Version) -> Result<(), Error> {
        let to = self.connection;
        self.send(&sql::remove(to, id, tombstone, Removal::BeforeTombstone)?)?;
        let rows = || rows::count(&self.send(&sql::count_rows(to, id)?)?);
        let mut pause = FIRST_LOOK;
        while rows()? > 1 {
            if pause > LAST_LOOK {
                return Ok(());
            }
            self.outside.pause(pause);
            pause *= 2;
        }
        self.with_deleted_table(|| self.send(&sql::note_deletion(to, id, tombstone)?))?;
        self.send(&sql::remove(to, id, tombstone, Removal::Tombstone)?)?;
        Ok(())
    }
}

fn row<'a>(
    id: &'a str,
    change: &'a Change,
    version: Version,
    written: Version,
    writes: &'a str,
) -> sql::Row<'a> {
    let (partial, completed) = match change {
        Change::Put(documents) => (documents.partial.as_deref(), documents.completed.as_deref()),
        // See `sql::Mark`.
        Change::Keep(_) | Change::Delete => (Some(""), Some("")),
    };
    sql::Row {
        id,
        partial,
        completed,
        version,
        written,
        deleted: matches!(change, Change::Delete),
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

fn refuse_to_empty(stored: &Documents) -> Result<(), Error> {
    match stored.is_empty() {
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

    fn documents(completed: &str) -> Documents {
        Documents {
            partial: None,
            completed: Some(completed.to_owned()),
        }
    }

    fn stored(version: i64) -> Stored {
        Stored {
            content: Content::Documents {
                partial: None,
                completed: Some(r#"{"singer_state": {"a": 1}}"#.to_owned()),
            },
            deleted: false,
            version: Version::new(version),
            writes: String::new(),
            now: Version::new(9),
            layout: Layout::Ours,
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
        for empty in [
            "{\"singer_state\": {}}",
            "{\"singer_state\": {\"bookmarks\": {}}}",
            "{\"a\": null}",
        ] {
            assert!(documents(empty).is_empty(), "{empty}");
        }
        assert!(!documents("{\"a\": 0}").is_empty());
        assert!(refuse_to_empty(&Documents::of(&stored(1).content)).is_err());
        assert!(refuse_to_empty(&documents("{}")).is_ok());
    }

    #[test]
    fn a_state_is_compared_by_its_text_or_by_its_hash() {
        let state = documents(r#"{"singer_state": {"a": 1}}"#);
        let other = documents(r#"{"singer_state": {"a":1}}"#);
        let content = stored(1).content;
        assert!(state.is_stored(&content, None) && !other.is_stored(&content, None));
        // As `SELECT sipHash64Keyed((toUInt64(1), toUInt64(2)), ...)` says.
        let hashes = Content::Hashes {
            partial: -8_779_574_827_602_434_181,
            completed: 1_182_425_998_186_676_093,
        };
        assert!(state.is_stored(&hashes, Some((1, 2))));
        assert!(!other.is_stored(&hashes, Some((1, 2))) && !state.is_stored(&hashes, Some((2, 1))));
        assert!(!state.is_stored(&hashes, None));
    }
}
