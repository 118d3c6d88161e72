//! What the server does with an insert, and what everybody reads.

use super::leases::{Defect, Event, Setup};
use super::table::{Row, Tick, text, writes_of};
use super::world::{
    Answer, Contender, Document, Insert, Kind, Lease, Message, Stage, Under, World, sender,
    token_of,
};
use crate::lease::{self, Last, Reading};
use crate::version::Version;

impl Setup {
    /// Where a row is stored some time after it was found in time.
    pub(super) fn begin(&self, name: u64, world: &mut World, events: &mut Vec<Event>) -> bool {
        let place = world.place_of(name);
        match self.in_time(&world.messages[place]) {
            true => world.messages[place].begun = Some(0),
            false => refuse(place, world, events),
        }
        true
    }

    pub(super) fn arrive(&self, name: u64, world: &mut World, events: &mut Vec<Event>) -> bool {
        let place = world.place_of(name);
        let message = world.messages[place].clone();
        if message.begun.is_none() && !self.in_time(&message) {
            refuse(place, world, events);
            return true;
        }
        match message.copies {
            1 => drop(world.messages.remove(place)),
            _ => world.messages[place].copies -= 1,
        }
        if let Some(answer) = world.waiting(name) {
            *answer = Answer::Accepted;
        }
        match message.insert {
            Insert::Step(mut row) => {
                row.content.made = message.begun.unwrap_or(0);
                self.store_step(name, row, world, events);
            }
            Insert::Write(row, under) => self.store_write(row, under, world, events),
        }
        true
    }

    /// The CHECK constraint.
    pub(super) fn in_time(&self, message: &Message) -> bool {
        let limited = match message.insert {
            Insert::Step(_) => !self.has(Defect::NoLimitOfSteps),
            Insert::Write(..) => !self.has(Defect::NoLimitOfWrites),
        };
        !limited || message.valid_until_ms > 0
    }

    fn store_step(&self, name: u64, row: Row<Lease>, world: &mut World, events: &mut Vec<Event>) {
        let Lease { token, what, .. } = row.content;
        let last = world.leases.last().map(|last| last.content.clone());
        let stored = match self.defect {
            Some(Defect::NoEpochs) if what != Kind::Acquire => store_blindly(name, row, world),
            Some(Defect::NoTokens) => world.leases.insert_without_token(row),
            _ => world.leases.insert(row),
        };
        match (stored, what) {
            (true, Kind::Break) => {
                events.push(Event::LeaseBroken);
                if let Some(holder) = holder_of(token, world) {
                    holder.broken = true;
                }
            }
            (true, Kind::Acquire) => {
                let Some(last) = last.filter(|last| !last.what.ends()) else {
                    return;
                };
                events.push(Event::TakenOver);
                if holder_of(last.token, world).is_some_and(|holder| holder.crashed) {
                    events.push(Event::TakenOverFromCrashed);
                }
            }
            (false, Kind::Renew) => events.push(Event::RenewalLost),
            _ => {}
        }
    }

    fn store_write(
        &self,
        row: Row<Document>,
        under: Under,
        world: &mut World,
        events: &mut Vec<Event>,
    ) {
        let version = row.version;
        let live = self.reading(world);
        let live = live.held_by(&under.token.to_string()).is_ok();
        let stored = match self.defect {
            Some(Defect::NoTokens | Defect::WriteOnTop) => world.states.insert_without_token(row),
            _ => world.states.insert(row),
        };
        if !stored {
            events.push(Event::WriteLost);
            return;
        }
        if !live {
            events.push(Event::StoredWithoutLease);
        }
        let mut firsts = world.firsts.iter();
        if firsts.any(|(since, first)| *since > under.since && *first <= version) {
            events.push(Event::OutOfOrder);
        }
        let mut firsts = world.firsts.iter_mut();
        match firsts.find(|(since, _)| *since == under.since) {
            Some((_, first)) => *first = version.min(*first),
            None => world.firsts.push((under.since, version)),
        }
        world.firsts.sort_unstable();
    }

    /// What everybody reads of the lease.
    pub(super) fn reading(&self, world: &World) -> Reading {
        let last = world.leases.last().map(|row| Last {
            lease: self.lease(row.content.token, row.version, row.content.made),
            released: row.content.what.ends(),
            writes: text(&row.writes),
        });
        Reading { last, now_ms: 0 }
    }

    pub(super) fn lease(&self, token: u64, epoch: Version, made: Tick) -> lease::Lease {
        lease::Lease {
            id: String::new(),
            token: token.to_string(),
            epoch: epoch.get(),
            owner: String::new(),
            acquired_ms: 0,
            renewed_ms: self.ms(made),
            expires_ms: self.ms(made + self.ttl),
        }
    }
}

/// At the next epoch.
fn store_blindly(sent: u64, mut row: Row<Lease>, world: &mut World) -> bool {
    if let Some(last) = world.leases.last() {
        row.version = last.version.step();
        row.writes = writes_of(Some(last.version), &last.writes, row.version, sent);
    }
    let who = sender(sent);
    let waiting = world.waiting(sent).is_some();
    if waiting && let Stage::Sent { from, version, .. } = &mut world.contenders[who].stage {
        *from = world.leases.last().map(|last| last.version);
        *version = row.version;
    }
    world.leases.insert_without_token(row)
}

fn holder_of(token: u64, world: &mut World) -> Option<&mut Contender> {
    let contenders = world.contenders.iter_mut().enumerate();
    let mut holders = contenders.filter(|(who, other)| other.has_token && token_of(*who) == token);
    holders.next().map(|(_, holder)| holder)
}

fn refuse(place: usize, world: &mut World, events: &mut Vec<Event>) {
    let message = world.messages.remove(place);
    match message.insert {
        Insert::Write(..) => events.push(Event::LateWriteRefused),
        Insert::Step(row) if row.content.what == Kind::Renew => {
            events.push(Event::LateRenewalRefused);
        }
        Insert::Step(_) => {}
    }
    if let Some(answer) = world.waiting(message.name) {
        *answer = Answer::Refused;
    }
}
