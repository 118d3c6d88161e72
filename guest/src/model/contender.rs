//! What contenders do, as `lease` and `write` have it: one request after the other, and any time between them.

use super::leases::{Defect, Event, Heard, Setup};
use super::table::{Row, Writes, writes_of};
use super::world::{
    Answer, Contender, Insert, Kind, Known, Lease, Message, PERSON, Plan, Stage, Under, Work,
    World, name_of_step, name_of_write, token_of,
};
use crate::lease::{FRESH_MS, MARGIN_MS};
use crate::version::Version;
use crate::writes::{Fate, Name, Sent};

impl Setup {
    /// To acquire it, or after a renewal that lost or came late.
    pub(super) fn read_lease(&self, who: usize, world: &mut World) -> bool {
        let reading = self.reading(world);
        let contender = &mut world.contenders[who];
        let fresh_ms = reading.now_ms + FRESH_MS;
        let valid_until_ms = match &contender.known {
            None => reading.held().is_none().then_some(fresh_ms),
            Some(_) => {
                let held = reading.held_by(&token_of(who).to_string());
                held.ok().map(|held| held.expires_ms.min(fresh_ms))
            }
        };
        let Some(valid_until_ms) = valid_until_ms else {
            // Locked.
            return !contender.crashed && leave(contender);
        };
        if contender.crashed {
            leave(contender);
            contender.crashed = false;
        }
        let (from, before) = match world.leases.last() {
            None => (None, Writes::new()),
            Some(last) => (Some(last.version), last.writes.clone()),
        };
        contender.stage = Stage::Ready(Plan {
            from,
            before,
            valid_until_ms,
        });
        true
    }

    pub(super) fn send_step(&self, who: usize, world: &mut World) -> bool {
        let contender = &mut world.contenders[who];
        let Stage::Ready(plan) = std::mem::take(&mut contender.stage) else {
            return false;
        };
        contender.has_token = true;
        let what = match contender.known {
            None => Kind::Acquire,
            Some(_) => Kind::Renew,
        };
        contender.stage = Stage::Sent {
            from: plan.from,
            version: plan.version(),
            at: 0,
            answer: Answer::None,
        };
        self.send(name_of_step(who), token_of(who), &plan, what, world)
    }

    /// Of what its holder knows.
    pub(super) fn renew(&self, who: usize, world: &mut World) -> bool {
        let contender = &mut world.contenders[who];
        match self.plan_of_known(who, contender) {
            Some(plan) => {
                contender.stage = Stage::Ready(plan);
                self.send_step(who, world)
            }
            None => false,
        }
    }

    /// It does not ask whether the step was stored. (If it comes late, its holder breaks its own lease, as a person does.)
    pub(super) fn release(&self, who: usize, world: &mut World) -> bool {
        let contender = &mut world.contenders[who];
        let Some(plan) = self.plan_of_known(who, contender) else {
            return false;
        };
        leave(contender);
        self.send(
            name_of_step(who),
            token_of(who),
            &plan,
            Kind::Release,
            world,
        )
    }

    fn plan_of_known(&self, who: usize, contender: &Contender) -> Option<Plan> {
        let known = contender.known.as_ref()?;
        let lease = self.lease(token_of(who), known.epoch, known.made);
        Some(Plan {
            from: Some(known.epoch),
            before: Writes::new(),
            valid_until_ms: lease.fresh_until(),
        })
    }

    pub(super) fn break_lease(&self, world: &mut World) -> bool {
        let reading = self.reading(world);
        let (Some(held), Some(last)) = (reading.held(), world.leases.last()) else {
            return false;
        };
        let plan = Plan {
            from: Some(last.version),
            before: match self.has(Defect::BreakWithoutNames) {
                true => Writes::new(),
                false => last.writes.clone(),
            },
            valid_until_ms: held.expires_ms.min(reading.now_ms + FRESH_MS),
        };
        let token = last.content.token;
        self.send(name_of_step(PERSON), token, &plan, Kind::Break, world)
    }

    fn send(&self, name: u64, token: u64, plan: &Plan, what: Kind, world: &mut World) -> bool {
        let version = plan.version();
        let row = Row {
            version,
            writes: writes_of(plan.from, &plan.before, version, name),
            content: Lease {
                token,
                what,
                made: 0,
            },
        };
        self.put_on_its_way(name, Insert::Step(row), plan.valid_until_ms, world);
        true
    }

    fn put_on_its_way(&self, name: u64, insert: Insert, valid_until_ms: i64, world: &mut World) {
        world.messages.push(Message {
            name,
            insert,
            valid_until_ms: valid_until_ms.max(0),
            copies: if self.forgets { 2 } else { 1 },
            begun: None,
        });
    }

    pub(super) fn confirm_step(
        &self,
        who: usize,
        heard: Heard,
        world: &mut World,
        events: &mut Vec<Event>,
    ) -> bool {
        let contender = &mut world.contenders[who];
        let Stage::Sent {
            from,
            version,
            at,
            answer,
        } = contender.stage
        else {
            return false;
        };
        let fate = world.leases.fate(Sent {
            name: Name::new(name_of_step(who)),
            version,
            from,
        });
        match (fate, world.leases.at(version)) {
            (Fate::Stored, Some(row)) => {
                let since = contender.known.as_ref().map(|known| known.since);
                contender.known = Some(Known {
                    epoch: version,
                    made: row.content.made,
                    since: since.unwrap_or(version.get()),
                });
                contender.stage = Stage::Holds;
                let counted = match self.has(Defect::CountsFromAnswer) {
                    true => 0,
                    false => at,
                };
                contender.believes_until = (counted + self.ttl).max(0);
            }
            (Fate::Stored | Fate::Lost | Fate::Covered, _) => again(contender),
            (Fate::Dropped, _) if heard == Heard::Answer && answer == Answer::Refused => {
                again(contender);
            }
            (Fate::Dropped, _) => {
                if answer == Answer::Accepted {
                    events.push(Event::FalseAlarm);
                }
                give_up(contender);
            }
            (Fate::Doubled, _) => {
                events.push(Event::FalseAlarm);
                give_up(contender);
            }
        }
        true
    }

    /// Until when a write may come, if its lease is live. (`lease_for_a_write` renews one that ends soon, as its holder does
    /// here at any other time.)
    fn limit_of_write(&self, token: u64, world: &World) -> Option<i64> {
        let reading = self.reading(world);
        let held = reading.held_by(&token.to_string());
        held.ok().map(|held| held.expires_ms - MARGIN_MS)
    }

    /// Only by those that do so too early.
    pub(super) fn check_lease(&self, who: usize, world: &mut World) -> bool {
        let Some(under) = under(who, &world.contenders[who]) else {
            return false;
        };
        let Some(valid_until_ms) = self.limit_of_write(under.token, world) else {
            return false;
        };
        world.contenders[who].work = Work::Checked {
            under,
            valid_until_ms,
        };
        true
    }

    pub(super) fn read_state(&self, who: usize, world: &mut World) -> bool {
        let contender = &mut world.contenders[who];
        let (under, checked) = match contender.work {
            Work::Checked {
                under,
                valid_until_ms,
            } => (Some(under), Some(valid_until_ms)),
            _ => (under(who, contender), None),
        };
        let (Some(under), Some(last)) = (under, world.states.last()) else {
            return false;
        };
        contender.work = Work::Read {
            under,
            version: last.version,
            writes: last.writes.clone(),
            document: last.content,
            at: 0,
        };
        match checked {
            Some(valid_until_ms) => self.send_write_until(who, valid_until_ms, world),
            None => true,
        }
    }

    pub(super) fn send_write(&self, who: usize, world: &mut World) -> bool {
        let Work::Read { under, at, .. } = world.contenders[who].work else {
            return false;
        };
        let fresh_ms = self.ms(at) + FRESH_MS;
        match self.limit_of_write(under.token, world) {
            Some(limit) if fresh_ms >= 0 => {
                let limit = match self.has(Defect::LimitOfWritesByLeaseAlone) {
                    true => limit,
                    false => limit.min(fresh_ms),
                };
                self.send_write_until(who, limit, world)
            }
            // Locked; or it was held up, and reads once more.
            _ => {
                world.contenders[who].work = Work::Rests;
                true
            }
        }
    }

    fn send_write_until(&self, who: usize, valid_until_ms: i64, world: &mut World) -> bool {
        let name = name_of_write(who);
        let contender = &mut world.contenders[who];
        let Work::Read {
            under,
            version: from,
            writes: before,
            document,
            ..
        } = std::mem::take(&mut contender.work)
        else {
            return false;
        };
        let bit = 1 << (who as u8 * self.writes + contender.writes);
        let version = match self.has(Defect::WriteOnTop) {
            // As `Version::top` has it, but for the size of the jump.
            true => Version::new(from.get() + 10),
            false => from.step(),
        };
        contender.writes += 1;
        contender.work = Work::Sent {
            bit,
            from,
            version,
            answer: Answer::None,
        };
        let row = Row {
            version,
            writes: writes_of(Some(from), &before, version, name),
            content: document | bit,
        };
        self.put_on_its_way(name, Insert::Write(row, under), valid_until_ms, world);
        true
    }
}

pub(super) fn confirm_write(
    who: usize,
    heard: Heard,
    world: &mut World,
    events: &mut Vec<Event>,
) -> bool {
    let contender = &mut world.contenders[who];
    let Work::Sent {
        bit,
        from,
        version,
        answer,
    } = contender.work
    else {
        return false;
    };
    contender.work = Work::Rests;
    let fate = world.states.fate(Sent {
        name: Name::new(name_of_write(who)),
        version,
        from: Some(from),
    });
    match fate {
        Fate::Stored => {
            events.push(Event::WriteReported);
            world.reported |= bit;
        }
        Fate::Doubled => events.push(Event::FalseAlarm),
        Fate::Dropped if heard == Heard::Answer && answer == Answer::Accepted => {
            events.push(Event::FalseAlarm);
        }
        // It is made anew, or its fate is not known.
        Fate::Lost | Fate::Covered | Fate::Dropped => {}
    }
    true
}

/// The lease is lost or given back, or somebody else holds it. Whether that is news.
pub(super) fn leave(contender: &mut Contender) -> bool {
    let news = contender.has_token || contender.stage != Stage::Out;
    contender.stage = Stage::Out;
    contender.has_token = false;
    contender.known = None;
    contender.believes_until = 0;
    contender.broken = false;
    news
}

/// The step lost, or came late: it reads, and tries once more.
fn again(contender: &mut Contender) {
    contender.stage = match contender.known {
        None => Stage::Out,
        Some(_) => Stage::Doubts,
    };
}

/// After an error: who would acquire it does not hold it, and who holds it may renew it once more.
fn give_up(contender: &mut Contender) {
    match contender.known {
        None => drop(leave(contender)),
        Some(_) => contender.stage = Stage::Holds,
    }
}

fn under(who: usize, contender: &Contender) -> Option<Under> {
    let known = contender.known.as_ref()?;
    Some(Under {
        token: token_of(who),
        since: known.since,
    })
}
