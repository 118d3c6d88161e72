//! Everything at one moment: the server, what is on its way to it, and the contenders.

use super::table::{Row, Table, Tick, Writes};
use crate::version::Version;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) leases: Table<Lease>,
    pub(super) states: Table<Document>,
    /// What was sent and has not come yet. It may come at any later moment, or never.
    pub(super) messages: Vec<Message>,
    pub(super) contenders: Vec<Contender>,
    /// The writes that were reported as stored.
    pub(super) reported: Document,
    /// The lowest version that was written under each lease, of which the epoch tells when it was acquired.
    pub(super) firsts: Vec<(i64, Version)>,
}

/// A step of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Lease {
    pub(super) token: u64,
    pub(super) what: Kind,
    pub(super) made: Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Kind {
    Acquire,
    Renew,
    Release,
    Break,
}

impl Kind {
    pub(super) fn ends(self) -> bool {
        matches!(self, Self::Release | Self::Break)
    }
}

/// A state: a bit for each write that went into it. So it shows every write that was lost.
pub(super) type Document = u16;

/// The lease under which a write is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Under {
    pub(super) token: u64,
    /// The epoch at which it was acquired. No part of the protocol: it tells which of two leases is the older one.
    pub(super) since: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Message {
    pub(super) insert: Insert,
    pub(super) valid_until_ms: i64,
    /// How often it comes at most.
    pub(super) copies: u8,
    /// When the server began with it, where it does not store it at once.
    pub(super) begun: Option<Tick>,
    /// The name of the step or write.
    pub(super) name: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Insert {
    Step(Row<Lease>),
    Write(Row<Document>, Under),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Contender {
    /// Since when it has not begun anew.
    pub(super) crashed: bool,
    /// How many writes it has sent.
    pub(super) writes: u8,
    /// Whether it has a token, of the lease that it acquires or holds: see `token_of`.
    pub(super) has_token: bool,
    pub(super) stage: Stage,
    /// The lease as it was acquired or renewed last.
    pub(super) known: Option<Known>,
    pub(super) believes_until: Tick,
    /// Its lease was broken, and it has not been told.
    pub(super) broken: bool,
    pub(super) work: Work,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Known {
    pub(super) epoch: Version,
    pub(super) made: Tick,
    /// See `Under`.
    pub(super) since: i64,
}

/// How far a contender is with its lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Stage {
    #[default]
    Out,
    /// It has read, and will send a step.
    Ready(Plan),
    /// See `name_of_step`.
    Sent {
        from: Option<Version>,
        version: Version,
        at: Tick,
        answer: Answer,
    },
    Holds,
    /// Its renewal lost or came late: it will read.
    Doubts,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Plan {
    /// None for the first step of a chain.
    pub(super) from: Option<Version>,
    pub(super) before: Writes,
    pub(super) valid_until_ms: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Answer {
    None,
    /// 200: it is stored, or another one is.
    Accepted,
    /// 469: too late.
    Refused,
}

/// How far a holder is with a write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Work {
    #[default]
    Rests,
    /// The lease was checked before the state is read, which is wrong.
    Checked { under: Under, valid_until_ms: i64 },
    Read {
        under: Under,
        version: Version,
        writes: Writes,
        document: Document,
        at: Tick,
    },
    /// See `name_of_write`.
    Sent {
        bit: Document,
        from: Version,
        version: Version,
        answer: Answer,
    },
}

/// Names of steps and writes, and tokens of leases. Real ones are random and never come again; here one that is not in use any
/// more is used again, so that there are few worlds.
const NAMES: u64 = 16;
/// The number of whoever is no contender.
pub(super) const PERSON: usize = 15;

/// Of the step that a contender waits for.
pub(super) const fn name_of_step(who: usize) -> u64 {
    (who as u64 + 1) * NAMES
}

/// Of the write that it waits for. Messages that it has given up have the names after that.
pub(super) const fn name_of_write(who: usize) -> u64 {
    name_of_step(who) + 1
}

pub(super) fn sender(name: u64) -> usize {
    (name / NAMES - 1) as usize
}

/// Of the lease that a contender has.
pub(super) fn token_of(who: usize) -> u64 {
    name_of_step(who)
}

impl Plan {
    pub(super) fn version(&self) -> Version {
        self.from.map_or(FIRST_EPOCH, Version::step)
    }
}

/// The same for all first steps, as is their token. (It is the clock, really.)
const FIRST_EPOCH: Version = Version::from_nanoseconds(1);

impl World {
    /// Where the answer to a message is waited for.
    pub(super) fn waiting(&mut self, name: u64) -> Option<&mut Answer> {
        let who = sender(name);
        let contender = self.contenders.get_mut(who)?;
        match (&mut contender.stage, &mut contender.work) {
            (Stage::Sent { answer, .. }, _) if name == name_of_step(who) => Some(answer),
            (_, Work::Sent { answer, .. }) if name == name_of_write(who) => Some(answer),
            _ => None,
        }
    }

    pub(super) fn place_of(&self, name: u64) -> usize {
        let place = self
            .messages
            .iter()
            .position(|message| message.name == name);
        place.expect("only messages on their way come")
    }

    /// The clock goes on by one tick, of so many milliseconds. What is as old as a lease lasts, or as a token is remembered,
    /// grows no older.
    pub(super) fn tick(&mut self, tick_ms: i64, ttl: Tick, fresh: Tick) {
        let before = |tick: &mut Tick| *tick = (*tick - 1).max(-ttl);
        let limit = |limit_ms: &mut i64| *limit_ms = (*limit_ms - tick_ms).max(0);
        for row in &mut self.leases.rows {
            before(&mut row.content.made);
        }
        let tokens = self.leases.tokens.iter_mut();
        for token in tokens.chain(&mut self.states.tokens) {
            token.stored = (token.stored - 1).max(-fresh);
        }
        for message in &mut self.messages {
            limit(&mut message.valid_until_ms);
            message.begun.iter_mut().for_each(before);
        }
        for contender in &mut self.contenders {
            contender.believes_until = (contender.believes_until - 1).max(0);
            if let Some(known) = &mut contender.known {
                before(&mut known.made);
            }
            match &mut contender.stage {
                Stage::Ready(plan) => limit(&mut plan.valid_until_ms),
                Stage::Sent { at, .. } => before(at),
                Stage::Out | Stage::Holds | Stage::Doubts => {}
            }
            match &mut contender.work {
                Work::Checked { valid_until_ms, .. } => limit(valid_until_ms),
                Work::Read { at, .. } => *at = (*at - 1).max(-fresh - 1),
                Work::Rests | Work::Sent { .. } => {}
            }
        }
    }
}
