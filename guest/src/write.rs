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

use std::time::Duration;

use crate::client::{Client, Outside, is_missing};
use crate::error::{Error, Failure, Outcome};
use crate::id::check_id;
use crate::lease::FRESH_MS;
use crate::removal::SWIFT;
use crate::response::code;
use crate::rows::{self, Content, Layout, Stored};
use crate::sql::{self, Removal, Request};
use crate::state::{Documents, merge_partial, refuse_to_empty};
use crate::step::{Change, Put, Try, covered, row};
use crate::version::Version;

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

/// What a write asks for, beside what it stores.
#[derive(Clone, Copy, Debug)]
struct Wish<'a> {
    expectation: Expectation,
    /// Whether it must know what it is written over: it expects something, is made of what is stored, or under a lease.
    exact: bool,
    /// The token of the lease under which it is made.
    lease: Option<&'a str>,
}

impl<'a> Wish<'a> {
    fn new(expectation: Expectation, lease: Option<&'a str>) -> Self {
        Self {
            expectation,
            exact: expectation != Expectation::Any || lease.is_some(),
            lease,
        }
    }
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

    /// An error as the caller is to see it.
    fn judge(&self, error: Error) -> Error {
        match error {
            Error::Conflict(_) if self.doubt => covered(),
            Error::Locked(_) if self.doubt => Error::Unavailable(Failure {
                message: "the lease ended while a write under it was on its way, and nobody knows whether it came in time; \
                          read the state"
                    .to_owned(),
                outcome: Outcome::Unknown,
            }),
            error if self.doubt => error.in_doubt(),
            error => error,
        }
    }
}

/// How often a write that lost is made anew at most.
const TRIES: u32 = 200;
/// A writer that lost waits for a part of this time before it tries again, so that many come through one by one.
pub(crate) const TURN: Duration = Duration::from_millis(8);
/// How often that is doubled at most.
const MOST_DOUBLINGS: u32 = 5;
/// How old what was read may be when something is written over it. The server remembers the tokens of 10,000 inserts, which
/// no server takes in that time.
const FRESH: Duration = Duration::from_millis(FRESH_MS.unsigned_abs());
/// The same for nothing: half of what a creation lies below the clock (see `Version::creation`).
const FRESH_ABSENCE: Duration = Duration::from_millis(500);
/// A state of more bytes is compared on the server.
const LARGE: usize = 64 * 1024;

impl<O: Outside> Client<'_, O> {
    /// Meltano's `set`.
    pub(crate) fn set(
        &self,
        id: &str,
        state: &Documents,
        expectation: Expectation,
        lease: Option<&str>,
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
        let wish = Wish::new(expectation, lease);
        let version = self.write(id, wish, head, |stored| {
            if let Some(stored) = stored {
                if options.skip_unchanged && state.is_stored(&stored.content, key) {
                    return Ok(Some(Change::Keep(stored.version)));
                }
                if empties {
                    refuse_to_empty(&Documents::of(&stored.content)?)?;
                }
            }
            Ok(Some(Change::Put(state.clone())))
        })?;
        version.ok_or_else(nothing_written)
    }

    /// Meltano's `update`.
    pub(crate) fn update(
        &self,
        id: &str,
        new: &Documents,
        lease: Option<&str>,
    ) -> Result<Version, Error> {
        let options = &self.connection.options;
        let wish = Wish {
            expectation: Expectation::Any,
            exact: true,
            lease,
        };
        let head = || sql::head(self.connection, id);
        let version = self.write(id, wish, head, |stored| {
            let Some(stored) = stored else {
                return Ok(Some(Change::Put(new.clone())));
            };
            let old = Documents::of(&stored.content)?;
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
    pub(crate) fn delete(
        &self,
        id: &str,
        expectation: Expectation,
        lease: Option<&str>,
    ) -> Result<bool, Error> {
        let wish = Wish::new(expectation, lease);
        let head = || sql::head_by_hash(self.connection, id, (0, 0));
        let found = self.write(id, wish, head, |stored| Ok(stored.map(|_| Change::Delete)))?;
        Ok(found.is_some())
    }

    /// Writes what `decide` makes of the state that is stored; none where it wants nothing written.
    fn write(
        &self,
        id: &str,
        wish: Wish<'_>,
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
                Err(error) => return Err(memory.judge(error)),
            }
            let spent = self.outside.elapsed().saturating_sub(start);
            if spent > self.connection.options.request_timeout {
                break;
            }
            self.wait_for_a_turn(attempt);
        }
        Err(memory.judge(Error::Unavailable(Failure {
            message: "other writers came before this one each time; try again, or have fewer write one state at once"
                .to_owned(),
            outcome: Outcome::NotApplied,
        })))
    }

    /// None where it is to be tried again.
    fn try_to_write(
        &self,
        id: &str,
        wish: Wish<'_>,
        head: &impl Fn() -> Result<Request, Error>,
        decide: &impl Fn(Option<&Stored>) -> Result<Option<Change>, Error>,
        memory: &mut Memory,
    ) -> Result<Option<Option<Version>>, Error> {
        let mut read_at = self.outside.elapsed();
        let stored = match self.send(&head()?) {
            Err(Error::Server(error)) if is_missing(&error) => {
                self.valid_until(id, wish)?;
                wish.expectation.check(None)?;
                if decide(None)?.is_none() {
                    return Ok(Some(None));
                }
                self.create_tables(&error)?;
                return Ok(None);
            }
            answer => rows::head(id, &answer?)?,
        };
        // After the reading: what somebody else writes under the next lease is then above what was read.
        let valid_until_ms = self.valid_until(id, wish)?;
        // A creation counts on an absence of just now: where the way is long, that was before the lease was looked at.
        if stored.is_none() && valid_until_ms.is_some() {
            read_at = self.outside.elapsed();
            if rows::head(id, &self.send(&head()?)?)?.is_some() {
                return Ok(None);
            }
        }
        let age = || self.outside.elapsed().saturating_sub(read_at);
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
        // A token is remembered for that long, so a row must not come later, however long the lease lasts.
        let read_ms = match &base {
            Base::Row(row) => row.now.milliseconds(),
            Base::Nothing { now } => now.milliseconds(),
        };
        let valid_until_ms =
            valid_until_ms.map(|until| until.min(read_ms.saturating_add(FRESH_MS)));
        let put = Put {
            id,
            change: &change,
            valid_until_ms,
            generation: memory.generation,
        };
        let done = match &base {
            Base::Row(row) if wish.exact => self.step(&put, row),
            Base::Row(row) => self.put_on_top(&put, row),
            Base::Nothing { now } => self.create_state(&put, *now, wish.exact),
        };
        match done {
            // The lease has ended, or nearly: the next try finds out which.
            Err(Error::Server(error)) if error.code == code::VIOLATED_CONSTRAINT => {
                memory.doubt |= error.outcome == Outcome::Unknown;
            }
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

    fn valid_until(&self, id: &str, wish: Wish<'_>) -> Result<Option<i64>, Error> {
        let until = wish.lease.map(|token| self.lease_for_a_write(id, token));
        until.transpose().map_err(Error::before_the_write)
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

    /// Writes to a table of the Python backend, or brings it up to date first where the write must be exact.
    fn write_to_plain(
        &self,
        id: &str,
        wish: Wish<'_>,
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

    pub(crate) fn clock(&self) -> Result<Version, Error> {
        rows::clock(&self.send(&sql::clock(self.connection)?)?)
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
}
