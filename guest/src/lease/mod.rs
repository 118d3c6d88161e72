//! Leases: at most one holder of a state.
//!
//! The lease of a state is a chain of steps, each with the next epoch: acquired, renewed, released, broken. Of all
//! steps to one epoch one is stored, which `table` and `keeper` see to in their ways. So a takeover and a late renewal can't both
//! succeed, and a step that was made of an old reading loses: its epoch is taken. Nothing depends on how old a reading is.
//!
//! **When it ends.** A lease ends at `made_at` + `ttl_ms` of its last step, by the server's clock, which sets `made_at` when it
//! gets the step. The holder counts from the moment before it sent that, so it stops before the server lets
//! anybody else in. No clock of another machine matters, only that it runs at the same speed. (On replicas there are several
//! servers, whose clocks must not differ by more than a second.)
//!
//! **A step that comes late** is refused: the server lets it in until `valid_until` alone. So a
//! renewal never comes after the lease's end, and no step when its token may be forgotten.
//!
//! **Fencing.** A holder that was paused does not know that its lease has ended. A write under a lease reads the state, then
//! checks that the lease is live, then makes a step from the version that it read, which the server refuses when the lease has
//! ended (`valid_until` again, with a margin). If the lease was broken before its end and another one has written
//! since, the step loses, since its version is taken. If the other one has not written yet, it will find this write.
//! So no write of an old holder lies on top of one of a newer holder, and none is lost.
//!
//! `model` searches all interleavings of this.

mod keeper;
mod table;

use crate::client::{Client, Outside};
use crate::error::{Error, Failure, Outcome};
use crate::id::check_id;
use crate::options::Lock;
use crate::pattern::Pattern;
use crate::rows;
use crate::sql;
use crate::store::{Page, check_page};
use crate::tables::inexact_on_replicas;
use crate::writes::Name;

/// A lease that is or was held: what its holder keeps, and what others see of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) id: String,
    pub(crate) token: String,
    /// The number of the last step.
    pub(crate) epoch: i64,
    pub(crate) owner: String,
    pub(crate) acquired_ms: i64,
    /// When the last step was made.
    pub(crate) renewed_ms: i64,
    pub(crate) expires_ms: i64,
}

/// The last step of a lease, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Last {
    pub(crate) lease: Lease,
    pub(crate) released: bool,
    /// The names of the steps before: see `writes`.
    pub(crate) writes: String,
}

/// What was read of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) last: Option<Last>,
    /// The server's clock, in milliseconds since 1970.
    pub(crate) now_ms: i64,
}

impl Reading {
    /// The lease that is held, if any is.
    pub(crate) fn held(&self) -> Option<&Lease> {
        self.held_at(self.now_ms)
    }

    fn held_at(&self, now_ms: i64) -> Option<&Lease> {
        let last = self.last.as_ref()?;
        let live = now_ms < last.lease.expires_ms;
        (live && !last.released).then_some(&last.lease)
    }

    /// The names of the steps.
    fn names(&self) -> &str {
        self.last.as_ref().map_or("", |last| &last.writes)
    }

    /// The lease that is held, if it is that of this token; else the error that says who holds it.
    pub(crate) fn held_by(&self, token: &str) -> Result<&Lease, Error> {
        match self.held() {
            Some(lease) if lease.token == token => Ok(lease),
            other => Err(Error::Locked(other.cloned())),
        }
    }
}

/// A step that is to be made.
#[derive(Debug)]
pub(crate) struct Step<'a> {
    /// The lease as it was before, but for its new holder where it is acquired.
    pub(crate) lease: &'a Lease,
    /// Whether it is the first one of its chain. Its epoch is the clock, so that it lies above all steps of a chain whose rows
    /// somebody has deleted, also above those that its last holder still makes.
    pub(crate) first: bool,
    /// The names of the steps before, where they are known.
    pub(crate) before: &'a str,
    pub(crate) ttl_ms: i64,
    pub(crate) released: bool,
    pub(crate) valid_until_ms: i64,
    /// How many steps to this epoch were stored and are gone: somebody has deleted rows.
    pub(crate) generation: u32,
}

/// How a step went.
#[derive(Debug)]
enum Made {
    /// It was stored at this time, by the server's clock.
    At(i64),
    /// Another one was stored in its place.
    Lost,
    /// Nothing is there: the epoch was used up by a step that is gone.
    Gone,
    /// It came after `valid_until`.
    Late,
}

/// How long a lease may last, in milliseconds.
const SHORTEST: u64 = 2_000;
const LONGEST: u64 = 24 * 60 * 60 * 1_000;
const LONGEST_OWNER: usize = 1024;
/// A UUID fits, and nothing that two might choose by chance.
const SHORTEST_TOKEN: usize = 16;
const LONGEST_TOKEN: usize = 64;

/// So much before the end of its lease a write must have come: the server judges by whole seconds at worst (see
/// `sql::IN_TIME`), and stores it a moment after that.
pub(crate) const MARGIN_MS: i64 = 1_250;
/// A lease that lasts for less than this beyond the margin is renewed before a write.
const ROOM_MS: i64 = 500;
/// How old a reading may be when a step that was made of it comes: the server remembers the tokens of 10,000 steps, which it can't
/// take in that time.
pub(crate) const FRESH_MS: i64 = 20_000;
/// So far the clocks of replicas may be apart: nobody else gets a lease before it has ended by all of them.
const SKEW_MS: i64 = 1_000;
/// How often a step that lost is made again: for a holder, whose renewal was stored although it was told otherwise.
const TRIES: u32 = 5;
/// In one page: each may have an owner of 1,024 bytes.
const MOST_LEASES: u32 = 1_000;

impl<O: Outside> Client<'_, O> {
    /// Three requests where nobody holds it: a reading, a step, a reading back.
    ///
    /// `token` is the caller's, who may ask once more with the same one where the answer was lost.
    pub(crate) fn acquire(
        &self,
        id: &str,
        token: &str,
        ttl_ms: u64,
        owner: &str,
    ) -> Result<Lease, Error> {
        check_id(id)?;
        check_token(token)?;
        let ttl_ms = check_ttl(ttl_ms)?;
        if owner.len() > LONGEST_OWNER {
            return Err(Error::InvalidInput(format!(
                "the owner of a lease has {} bytes, and may have {LONGEST_OWNER}",
                owner.len()
            )));
        }
        self.check_mode()?;
        let mut generation = 0;
        for _ in 0..TRIES {
            let reading = self.read_lease(id)?;
            if let Ok(own) = reading.held_by(token) {
                return self.go_on(own, reading.names(), ttl_ms, false);
            }
            let Reading { last, now_ms } = self.free(reading)?;
            let first = last.is_none();
            let (epoch, before) = match last {
                Some(last) => (last.lease.epoch, last.writes),
                None => (now_ms, String::new()),
            };
            let lease = Lease {
                id: id.to_owned(),
                token: token.to_owned(),
                epoch,
                owner: owner.to_owned(),
                acquired_ms: now_ms,
                renewed_ms: now_ms,
                expires_ms: now_ms,
            };
            let step = Step {
                lease: &lease,
                first,
                before: &before,
                ttl_ms,
                released: false,
                valid_until_ms: now_ms.saturating_add(FRESH_MS),
                generation,
            };
            match self.make(&step)? {
                Made::At(made_ms) => return Ok(step.made(made_ms)),
                Made::Gone => generation += 1,
                Made::Lost | Made::Late => {}
            }
        }
        Err(busy())
    }

    /// Two requests, where nothing has happened to the lease since, and that is not long ago; else the lease is read first.
    pub(crate) fn renew(&self, lease: &Lease, ttl_ms: u64) -> Result<Lease, Error> {
        let ttl_ms = check_ttl(ttl_ms)?;
        self.go_on(lease, "", ttl_ms, false)
    }

    /// One request as a rule. Where the lease is lost, its epoch is taken, and nothing happens.
    pub(crate) fn release(&self, lease: &Lease) -> Result<(), Error> {
        self.check_mode()?;
        let end = Step {
            lease,
            first: false,
            before: "",
            ttl_ms: 0,
            released: true,
            valid_until_ms: lease.fresh_until(),
            generation: 0,
        };
        let in_time = match self.connection.options.lock {
            Lock::Keeper => self.send_to_keeper(&end, self.name()).map(|()| true)?,
            _ => self.send_to_table(&end, self.name())?,
        };
        match in_time {
            true => Ok(()),
            false => self.break_lease(&lease.id, &lease.token).map(drop),
        }
    }

    /// Terraform's `force-unlock`. False where that lease has ended already.
    pub(crate) fn break_lease(&self, id: &str, token: &str) -> Result<bool, Error> {
        check_id(id)?;
        self.check_mode()?;
        let reading = self.read_lease(id)?;
        let Ok(lease) = reading.held_by(token) else {
            return Ok(false);
        };
        match self.go_on(lease, reading.names(), 0, true) {
            Ok(_) => Ok(true),
            Err(Error::Locked(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The leases that are held, in the order of their IDs.
    pub(crate) fn inspect(
        &self,
        pattern: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Lease>, Error> {
        check_page(pattern, after, limit)?;
        if self.connection.options.lock == Lock::None {
            return Ok((Vec::new(), None));
        }
        let limit = limit.min(MOST_LEASES);
        let pattern = Pattern::parse(pattern);
        let request = sql::leases(self.connection, &pattern, after, limit)?;
        let leases = match self.read(&request)? {
            Some(answer) => rows::leases(&answer)?,
            None => Vec::new(),
        };
        let full = u32::try_from(leases.len()).is_ok_and(|count| count >= limit);
        let next = leases.last().filter(|_| full).map(|last| last.id.clone());
        Ok((leases, next))
    }

    /// Until when a write under this lease may come, by the server's clock in milliseconds since 1970.
    pub(crate) fn lease_for_a_write(&self, id: &str, token: &str) -> Result<i64, Error> {
        self.check_mode()?;
        let reading = self.read_lease(id)?;
        let lease = reading.held_by(token)?;
        let rest = lease.expires_ms.saturating_sub(reading.now_ms);
        if rest > MARGIN_MS + ROOM_MS {
            return Ok(lease.expires_ms - MARGIN_MS);
        }
        let ttl_ms = lease.expires_ms.saturating_sub(lease.renewed_ms);
        let renewed = self.go_on(lease, reading.names(), ttl_ms, false)?;
        Ok(renewed.expires_ms - MARGIN_MS)
    }

    /// Renews or ends a lease that its holder knows as it was, `ttl_ms` from now; `Locked` where it is lost. `before` are the
    /// names of its steps, where they are known: whoever has only just read them may have been overtaken by others that have.
    fn go_on(
        &self,
        lease: &Lease,
        before: &str,
        ttl_ms: i64,
        released: bool,
    ) -> Result<Lease, Error> {
        self.check_mode()?;
        let (mut lease, mut before) = (lease.clone(), before.to_owned());
        let mut valid_until_ms = lease.fresh_until();
        let mut generation = 0;
        for _ in 0..TRIES {
            let step = Step {
                lease: &lease,
                first: false,
                before: &before,
                ttl_ms,
                released,
                valid_until_ms,
                generation,
            };
            match self.make(&step)? {
                Made::At(made_ms) => return Ok(step.made(made_ms)),
                Made::Gone => generation += 1,
                Made::Lost | Made::Late => {}
            }
            // It may be its holder's still: a renewal whose answer was lost, or long ago.
            let reading = self.read_lease(&lease.id)?;
            let held = reading.held_by(&lease.token)?.clone();
            let fresh_ms = reading.now_ms.saturating_add(FRESH_MS);
            valid_until_ms = held.expires_ms.min(fresh_ms);
            before = reading.names().to_owned();
            lease = held;
        }
        Err(busy())
    }

    /// Lets a reading pass of a lease that nobody holds.
    fn free(&self, reading: Reading) -> Result<Reading, Error> {
        let grace_ms = match self.connection.options.lock {
            Lock::Keeper => SKEW_MS,
            _ => 0,
        };
        match reading.held_at(reading.now_ms.saturating_sub(grace_ms)) {
            Some(holder) => Err(Error::Locked(Some(holder.clone()))),
            None => Ok(reading),
        }
    }

    fn check_mode(&self) -> Result<(), Error> {
        let options = &self.connection.options;
        match options.lock {
            Lock::Keeper => Ok(()),
            Lock::Table if !options.engine.is_replicated() => Ok(()),
            Lock::Table => Err(inexact_on_replicas()),
            Lock::None => Err(Error::InvalidInput(
                "leases are switched off by the setting `lock`".to_owned(),
            )),
        }
    }

    fn read_lease(&self, id: &str) -> Result<Reading, Error> {
        match self.read(&sql::lease(self.connection, id)?)? {
            Some(answer) => rows::lease(id, &answer),
            None => Ok(Reading {
                last: None,
                now_ms: self.clock()?.milliseconds(),
            }),
        }
    }

    fn make(&self, step: &Step<'_>) -> Result<Made, Error> {
        match self.connection.options.lock {
            Lock::Keeper => self.make_in_keeper(step),
            _ => self.make_in_table(step),
        }
    }

    fn name(&self) -> Name {
        Name::new(self.outside.random())
    }
}

impl Lease {
    /// Until when a step may come that is made of what the holder knows.
    pub(crate) fn fresh_until(&self) -> i64 {
        let fresh_ms = self.renewed_ms.saturating_add(FRESH_MS);
        self.expires_ms.min(fresh_ms)
    }
}

impl Step<'_> {
    pub(crate) fn epoch(&self) -> i64 {
        self.lease.epoch.saturating_add(1)
    }

    /// The lease after this step.
    fn made(&self, made_ms: i64) -> Lease {
        Lease {
            epoch: self.epoch(),
            renewed_ms: made_ms,
            expires_ms: made_ms.saturating_add(self.ttl_ms),
            ..self.lease.clone()
        }
    }
}

fn check_token(token: &str) -> Result<(), Error> {
    let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
    match (SHORTEST_TOKEN..=LONGEST_TOKEN).contains(&token.len()) && token.bytes().all(plain) {
        true => Ok(()),
        false => Err(Error::InvalidInput(format!(
            "the token of a lease has {SHORTEST_TOKEN} to {LONGEST_TOKEN} characters of A-Z, a-z, 0-9, - and _"
        ))),
    }
}

fn check_ttl(ttl_ms: u64) -> Result<i64, Error> {
    match i64::try_from(ttl_ms) {
        Ok(ttl) if (SHORTEST..=LONGEST).contains(&ttl_ms) => Ok(ttl),
        _ => Err(Error::InvalidInput(format!(
            "a lease lasts from {SHORTEST} to {LONGEST} ms, not {ttl_ms}"
        ))),
    }
}

fn busy() -> Error {
    Error::Unavailable(Failure {
        message: "others came before this one each time; try again".to_owned(),
        outcome: Outcome::NotApplied,
    })
}
