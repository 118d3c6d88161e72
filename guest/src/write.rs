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
    pub(crate) fn is_empty(&self) -> bool {
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

/// What a write goes on from.
enum Base {
    /// A state or a tombstone.
    Row(Stored),
    /// The state was never there.
    Nothing { now: Version },
}

impl Base {
    fn version(&self) -> Version {
        match self {
            Self::Row(row) => row.version,
            Self::Nothing { .. } => Version::ZERO,
        }
    }
}

/// What a write remembers of its tries.
#[derive(Default)]
struct Memory {
    base: Option<Version>,
    /// How many tokens from this base were found used up by rows that are gone.
    generation: u32,
    /// Whether a try may have been stored, and covered by another write since.
    doubt: bool,
}

impl Memory {
    fn turn_to(&mut self, base: Version) {
        if self.base.replace(base) != Some(base) {
            self.generation = 0;
        }
    }
}

/// How often a write that lost is made anew at most.
const TRIES: u32 = 200;
/// A writer that lost waits for a part of this time before it tries again, so that many come through one by one.
const TURN: Duration = Duration::from_millis(8);
/// How often that is doubled at most.
const MOST_DOUBLINGS: u32 = 5;
/// How old what was read may be when something is written over it. The server remembers the tokens of 10,000 inserts, which
/// no server takes in that time.
const FRESH: Duration = Duration::from_secs(20);
/// The same for nothing: half of what a creation lies below the clock (see `Version::creation`).
const FRESH_ABSENCE: Duration = Duration::from_millis(500);
/// How long a write takes at most, from the reading to the confirm, that need not ask whether the state was deleted meanwhile.
const SWIFT: Duration = Duration::from_millis(100);
/// How long a tombstone stays at least: longer, since clocks differ in speed.
const TOMBSTONE_AGE: Duration = Duration::from_millis(150);
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
        let mut memory = Memory::default();
        for attempt in 1..=TRIES {
            match self.try_to_write(id, wish, &head, &decide, &mut memory) {
                Ok(Some(done)) => return Ok(done),
                Ok(None) => {}
                // An earlier try may have been stored, and covered since.
                Err(Error::Conflict(_)) if memory.doubt => return Err(covered()),
                Err(error) if memory.doubt => return Err(error.in_doubt()),
                Err(error) => return Err(error),
            }
            let spent = self.outside.elapsed().saturating_sub(start);
            if spent > self.connection.options.request_timeout {
                break;
            }
            self.wait_for_a_turn(attempt);
        }
        let error = Error::Unavailable(Failure {
            message: "other writers came before this one each time; try again, or have fewer write one state at once"
                .to_owned(),
            outcome: Outcome::NotApplied,
        });
        Err(if memory.doubt {
            error.in_doubt()
        } else {
            error
        })
    }

    /// None where it is to be tried again.
    fn try_to_write(
        &self,
        id: &str,
        wish: Wish,
        head: &impl Fn() -> Result<Request, Error>,
        decide: &impl Fn(Option<&Stored>) -> Result<Option<Change>, Error>,
        memory: &mut Memory,
    ) -> Result<Option<Option<Version>>, Error> {
        let read_at = self.outside.elapsed();
        let age = || self.outside.elapsed().saturating_sub(read_at);
        let stored = match self.send(&head()?) {
            Err(Error::Server(error)) if is_missing(&error) => {
                wish.expectation.check(None)?;
                if decide(None)?.is_none() {
                    return Ok(Some(None));
                }
                self.create_tables(&error)?;
                return Ok(None);
            }
            answer => rows::head(id, &answer?)?,
        };
        let live = stored.as_ref().filter(|stored| !stored.deleted);
        wish.expectation.check(live)?;
        let change = match decide(live)? {
            None => return Ok(Some(None)),
            Some(Change::Keep(version)) => return Ok(Some(Some(version))),
            Some(change) => change,
        };
        if let Some(plain) = stored
            .as_ref()
            .filter(|stored| stored.layout == Layout::Plain)
        {
            return self.write_to_plain(id, wish, Some(plain), &change);
        }
        let was_there = stored.is_some();
        let base = match stored {
            Some(stored) => Base::Row(stored),
            None => self.base_of_nothing(id)?,
        };
        // Whoever was held up reads once more: what it expects may have been long ago.
        let fresh = match base {
            Base::Row(_) => FRESH,
            Base::Nothing { .. } => FRESH_ABSENCE,
        };
        if age() > fresh {
            return Ok(None);
        }
        memory.turn_to(base.version());
        let done = match &base {
            Base::Row(row) if wish.exact => self.step(id, row, &change, memory.generation),
            Base::Row(row) => self.put_on_top(id, row, &change),
            Base::Nothing { now } => {
                self.create_state(id, *now, &change, wish.exact, memory.generation)
            }
        };
        match done {
            Err(Error::Server(error)) if error.code == code::NO_SUCH_COLUMN && !was_there => {
                return self.write_to_plain(id, wish, None, &change);
            }
            Err(error) => return Err(error),
            Ok(Try::Stored(version)) => {
                if age() > SWIFT && self.came_after_a_deletion(id, version)? {
                    return Ok(None);
                }
                if matches!(change, Change::Delete) {
                    self.remove_rows(id, version);
                }
                return Ok(Some(Some(version)));
            }
            // Another write took effect after it, so it may be made once more; but not with an expectation, which
            // was met perhaps.
            Ok(Try::Covered) if wish.expectation != Expectation::Any => return Err(covered()),
            Ok(Try::Covered) => memory.doubt = true,
            Ok(Try::Dropped) => memory.generation += 1,
            Ok(Try::Lost) => {}
        }
        Ok(None)
    }

    /// What to go on from where no row is: the last deletion, as if its tombstone were still there. For another writer
    /// it may be, and of the two one must lose.
    fn base_of_nothing(&self, id: &str) -> Result<Base, Error> {
        let (deleted, now) = match self.last_deletion(id)? {
            Some(noted) => noted,
            None => (Version::ZERO, self.clock()?),
        };
        if deleted == Version::ZERO {
            return Ok(Base::Nothing { now });
        }
        Ok(Base::Row(Stored {
            content: Content::Documents {
                partial: None,
                completed: None,
            },
            deleted: true,
            version: deleted,
            writes: String::new(),
            now,
            layout: Layout::Ours,
        }))
    }

    /// The version of the last deletion of a state, 0 if there was none, and the server's clock; none without the table.
    fn last_deletion(&self, id: &str) -> Result<Option<(Version, Version)>, Error> {
        match self.read(&sql::last_deletion(self.connection, id)?)? {
            Some(answer) => rows::last_deletion(&answer).map(Some),
            None => Ok(None),
        }
    }

    /// Whether a write was stored when the state had been deleted since it was read, and the tombstone, which would lie above
    /// it, was gone already. Then the row is removed: it never took effect.
    ///
    /// A tombstone stays for longer than `SWIFT`, so a write that took less need not ask.
    fn came_after_a_deletion(&self, id: &str, version: Version) -> Result<bool, Error> {
        let noted = self.last_deletion(id).map_err(Error::in_doubt)?;
        if noted.is_none_or(|(deleted, _)| deleted < version) {
            return Ok(false);
        }
        let ghost = sql::remove(self.connection, id, version, Removal::Ghost)?;
        self.send(&ghost).map_err(Error::in_doubt)?;
        Ok(true)
    }

    /// Writes to a table of the Python backend, or brings it up to date first where the write must be exact.
    fn write_to_plain(
        &self,
        id: &str,
        wish: Wish,
        stored: Option<&Stored>,
        change: &Change,
    ) -> Result<Option<Option<Version>>, Error> {
        if wish.exact {
            self.upgrade()?;
            return Ok(None);
        }
        self.write_plain(id, stored, change)
            .map(|version| Some(Some(version)))
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

    /// Makes a state that was never there.
    fn create_state(
        &self,
        id: &str,
        now: Version,
        change: &Change,
        exact: bool,
        generation: u32,
    ) -> Result<Try, Error> {
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
        if !may_be_stored(&error) {
            return Err(error);
        }
        match self.confirm(id, sent) {
            Ok(found @ (Try::Stored(_) | Try::Lost)) => Ok(found),
            // If it was under way, it may still come: that is left as the error has it.
            Ok(Try::Dropped) => Err(error),
            _ => Err(error.in_doubt()),
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
        self.send_rows(&sql::insert_plain(self.connection, &[row])?)?;
        Ok(version)
    }

    /// Sends rows whose fate can't be read back.
    pub(crate) fn send_rows(&self, request: &Request) -> Result<(), Error> {
        match self.send(request) {
            Err(error) if may_be_stored(&error) => Err(error.in_doubt()),
            sent => sent.map(drop),
        }
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
        self.outside.pause(TOMBSTONE_AGE);
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

pub(crate) fn refuse_to_empty(stored: &Documents) -> Result<(), Error> {
    match stored.is_empty() {
        true => Ok(()),
        false => Err(Error::InvalidInput(
            "the new state is empty and the stored one is not, and `refuse_empty` is on: nothing was written; delete the \
             state if it is to go"
                .to_owned(),
        )),
    }
}

/// Whether a row of an insert that failed so may be stored all the same.
pub(crate) fn may_be_stored(error: &Error) -> bool {
    match error {
        Error::Unavailable(failure) | Error::TimedOut(failure) => {
            failure.outcome == Outcome::Unknown
        }
        Error::Server(error) => !code::BEFORE_ANY_ROW.contains(&error.code),
        _ => false,
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
