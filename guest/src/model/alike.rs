//! Which worlds are alike, so that one of them is searched for all: those that nothing tells apart which may follow.

use super::contender::leave;
use super::leases::{Defect, Setup};
use super::table::{Row, Writes};
use super::world::{
    Insert, Lease, PERSON, Stage, Work, World, name_of_step, name_of_write, sender, token_of,
};
use crate::version::Version;
use crate::writes::UNNAMED;

/// A write that nobody asks for any more.
const ANYBODY: u64 = 1;
/// The first token of a lease that no contender has.
const NOBODYS: u64 = name_of_step(PERSON + 1);

impl Setup {
    /// False where the search goes no further.
    pub(super) fn tidy(&self, world: &mut World) -> bool {
        if self.steps_at_once {
            self.tell_holders(world);
        }
        self.drop_messages(world);
        drop_rows_and_tokens(world);
        if !self.forgets {
            let tokens = world.leases.tokens.iter_mut();
            for token in tokens.chain(&mut world.states.tokens) {
                token.stored = 0;
            }
        }
        self.number_epochs(world) && {
            let places = self.sort_contenders(world);
            number_names(&places, world);
            number_tokens(&places, world);
            sort_messages(world);
            true
        }
    }

    fn tell_holders(&self, world: &mut World) {
        let reading = self.reading(world);
        for (who, contender) in world.contenders.iter_mut().enumerate() {
            contender.believes_until = 0;
            if reading.held_by(&token_of(who).to_string()).is_err() {
                leave(contender);
            }
        }
    }

    /// Those that nobody waits for, and that change nothing when they come.
    fn drop_messages(&self, world: &mut World) {
        let tokens = match self.defect {
            Some(Defect::NoTokens | Defect::WriteOnTop | Defect::NoEpochs) => false,
            _ => !self.forgets,
        };
        for message in std::mem::take(&mut world.messages) {
            let late = message.begun.is_none() && !self.in_time(&message);
            let taken = tokens
                && match &message.insert {
                    Insert::Step(row) => world.leases.remembers(row.version),
                    Insert::Write(row, _) => world.states.remembers(row.version),
                };
            if world.waiting(message.name).is_some() || !(late || taken) {
                world.messages.push(message);
            }
        }
    }

    /// The new place of each.
    fn sort_contenders(&self, world: &mut World) -> Vec<usize> {
        let mut order: Vec<usize> = (0..world.contenders.len()).collect();
        if !self.any_order {
            return order;
        }
        order.sort_by_key(|who| &world.contenders[*who]);
        let mut places = vec![0; order.len()];
        for (place, who) in order.iter().enumerate() {
            places[*who] = place;
        }
        world.contenders.sort();
        places
    }

    /// Counts them from the lowest one that is still there. False where that is too far back.
    fn number_epochs(&self, world: &mut World) -> bool {
        let (mut lowest, mut highest) = (i64::MAX, 0);
        for_each_epoch(world, |epoch| {
            lowest = lowest.min(epoch.get());
            highest = highest.max(epoch.get());
        });
        let down = match lowest {
            i64::MAX => 0,
            lowest => lowest - 1,
        };
        for_each_epoch(world, |epoch| *epoch = Version::new(epoch.get() - down));
        // Of those that are gone the order alone counts.
        let mut gone = Vec::new();
        for_each_since(world, |since| {
            *since -= down;
            if *since < 1 {
                gone.push(*since);
            }
        });
        gone.sort_unstable();
        gone.dedup();
        for_each_since(world, |since| {
            if self.writes == 0 {
                *since = 0;
            } else if let Ok(place) = gone.binary_search(since) {
                *since = place as i64 + 1 - gone.len() as i64;
            }
        });
        lowest == i64::MAX || highest - lowest <= self.overtaken
    }
}

/// Rows below the last one that nobody reads back, names of writes before those, tokens that nobody sends again.
fn drop_rows_and_tokens(world: &mut World) {
    let nobody = Version::new(i64::MAX);
    let (mut step_read, mut write_read) = (nobody, nobody);
    for contender in &mut world.contenders {
        if let Some(known) = &contender.known {
            step_read = step_read.min(known.epoch.step());
        }
        match &contender.stage {
            Stage::Ready(plan) => step_read = step_read.min(plan.version()),
            Stage::Sent { version, .. } => step_read = step_read.min(*version),
            Stage::Out | Stage::Holds | Stage::Doubts => {}
        }
        match &contender.work {
            Work::Read { version, .. } => write_read = write_read.min(version.step()),
            Work::Sent { version, .. } => write_read = write_read.min(*version),
            Work::Rests | Work::Checked { .. } => {}
        }
    }
    let (mut step_sent, mut write_sent) = (step_read, write_read);
    for message in &world.messages {
        match &message.insert {
            Insert::Step(row) => step_sent = step_sent.min(row.version),
            Insert::Write(row, _) => write_sent = write_sent.min(row.version),
        }
    }
    world.leases.tidy(step_read, step_sent);
    world.states.tidy(write_read, write_sent);
}

/// Names go with the contenders; those that nobody waits for become one.
fn number_names(places: &[usize], world: &mut World) {
    let mut waited_for = Vec::new();
    for (who, place) in places.iter().enumerate() {
        let contender = &world.contenders[*place];
        if matches!(contender.stage, Stage::Sent { .. }) {
            waited_for.push((name_of_step(who), name_of_step(*place)));
        }
        if matches!(contender.work, Work::Sent { .. }) {
            waited_for.push((name_of_write(who), name_of_write(*place)));
        }
    }
    for_each_written_name(world, |name| {
        if *name != UNNAMED.0 {
            *name = new_number(&waited_for, *name).unwrap_or(ANYBODY);
        }
    });
    for message in &mut world.messages {
        message.name = new_number(&waited_for, message.name).unwrap_or_else(|| {
            let who = sender(message.name);
            given_up(places.get(who).copied().unwrap_or(who))
        });
    }
}

/// The first name of a message that its sender has given up.
fn given_up(who: usize) -> u64 {
    name_of_write(who) + 1
}

fn sort_messages(world: &mut World) {
    world.messages.sort_unstable();
    let mut names = Vec::new();
    for message in &mut world.messages {
        let who = sender(message.name);
        if message.name >= given_up(who) {
            let others = names.iter().filter(|other| **other == who);
            message.name = given_up(who) + others.count() as u64;
            names.push(who);
        }
    }
}

/// Tokens go with the contenders, too. Those of leases that nobody holds are numbered as they come.
fn number_tokens(places: &[usize], world: &mut World) {
    let hidden = world.leases.rows.len().saturating_sub(1);
    for row in world.leases.rows.iter_mut().take(hidden) {
        row.content.token = 0;
    }
    let mut tokens = Vec::new();
    for (who, place) in places.iter().enumerate() {
        if world.contenders[*place].has_token {
            tokens.push((token_of(who), token_of(*place)));
        }
    }
    for_each_token(world, |token| {
        *token = new_number(&tokens, *token).unwrap_or_else(|| {
            let new = NOBODYS + tokens.len() as u64;
            tokens.push((*token, new));
            new
        });
    });
}

fn new_number(numbers: &[(u64, u64)], old: u64) -> Option<u64> {
    let number = numbers.iter().find(|(number, _)| *number == old);
    number.map(|(_, new)| *new)
}

fn for_each_epoch(world: &mut World, mut act: impl FnMut(&mut Version)) {
    fn of_writes(writes: &mut Writes, act: &mut impl FnMut(&mut Version)) {
        writes.iter_mut().for_each(|(version, _)| act(version));
    }
    fn of_row(row: &mut Row<Lease>, act: &mut impl FnMut(&mut Version)) {
        act(&mut row.version);
        of_writes(&mut row.writes, act);
    }
    for row in &mut world.leases.rows {
        of_row(row, &mut act);
    }
    for token in &mut world.leases.tokens {
        act(&mut token.version);
    }
    for message in &mut world.messages {
        match &mut message.insert {
            Insert::Step(row) => of_row(row, &mut act),
            Insert::Write(..) => {}
        }
    }
    for contender in &mut world.contenders {
        if let Some(known) = &mut contender.known {
            act(&mut known.epoch);
        }
        match &mut contender.stage {
            Stage::Ready(plan) => {
                plan.from.iter_mut().for_each(&mut act);
                of_writes(&mut plan.before, &mut act);
            }
            Stage::Sent { from, version, .. } => {
                from.iter_mut().for_each(&mut act);
                act(version);
            }
            Stage::Out | Stage::Holds | Stage::Doubts => {}
        }
    }
}

/// When each lease was acquired.
fn for_each_since(world: &mut World, mut act: impl FnMut(&mut i64)) {
    for message in &mut world.messages {
        match &mut message.insert {
            Insert::Step(_) => {}
            Insert::Write(_, under) => act(&mut under.since),
        }
    }
    for contender in &mut world.contenders {
        if let Some(known) = &mut contender.known {
            act(&mut known.since);
        }
        match &mut contender.work {
            Work::Checked { under, .. } | Work::Read { under, .. } => act(&mut under.since),
            Work::Rests | Work::Sent { .. } => {}
        }
    }
    for (since, _) in &mut world.firsts {
        act(since);
    }
}

/// In the column `writes`, wherever that is.
fn for_each_written_name(world: &mut World, mut act: impl FnMut(&mut u64)) {
    let mut of_writes = |writes: &mut Writes| writes.iter_mut().for_each(|(_, name)| act(name));
    for row in &mut world.leases.rows {
        of_writes(&mut row.writes);
    }
    for row in &mut world.states.rows {
        of_writes(&mut row.writes);
    }
    for message in &mut world.messages {
        match &mut message.insert {
            Insert::Step(row) => of_writes(&mut row.writes),
            Insert::Write(row, _) => of_writes(&mut row.writes),
        }
    }
    for contender in &mut world.contenders {
        if let Stage::Ready(plan) = &mut contender.stage {
            of_writes(&mut plan.before);
        }
        if let Work::Read { writes, .. } = &mut contender.work {
            of_writes(writes);
        }
    }
}

/// But for those of contenders.
fn for_each_token(world: &mut World, mut act: impl FnMut(&mut u64)) {
    for message in &mut world.messages {
        match &mut message.insert {
            Insert::Step(row) => act(&mut row.content.token),
            Insert::Write(_, under) => act(&mut under.token),
        }
    }
    for contender in &mut world.contenders {
        match &mut contender.work {
            Work::Checked { under, .. } | Work::Read { under, .. } => act(&mut under.token),
            Work::Rests | Work::Sent { .. } => {}
        }
    }
    if let Some(last) = world.leases.rows.last_mut() {
        act(&mut last.content.token);
    }
}
