//! The lease protocol as a model: how much of it is searched, what can happen, and what must never.

use super::contender::confirm_write;
use super::search::{Model, Step};
use super::table::{Row, Table, Tick};
use super::world::{
    Answer, Contender, Insert, PERSON, Stage, Work, World, name_of_step, sender, token_of,
};
use crate::lease::FRESH_MS;
use crate::version::Version;

/// How much is searched. Time has no end, nor has what contenders do, but for writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) contenders: usize,
    pub(super) tick_ms: i64,
    /// How long a lease lasts.
    pub(super) ttl: Tick,
    /// How many messages of each contender are on their way at once.
    pub(super) messages: usize,
    /// By how many steps a contender is overtaken at most between a reading and what comes of it.
    pub(super) overtaken: i64,
    /// How many writes each contender sends.
    pub(super) writes: u8,
    pub(super) crashes: bool,
    /// Whether a person ends leases.
    pub(super) breaks: bool,
    pub(super) releases: Releases,
    /// Whether rows that lie below others may go.
    pub(super) merges: bool,
    /// Whether tokens are forgotten, once they are as old as `FRESH_MS`, and messages come twice.
    pub(super) forgets: bool,
    /// Whether a row may be stored long after the server looked whether it is in time.
    pub(super) slow: bool,
    /// Whether a step is read for, sent, stored and read back at once, and a holder knows at once that it has lost its lease.
    /// For writes that makes no difference: they see of a lease what is stored. So there are fewer worlds with more writes.
    pub(super) steps_at_once: bool,
    /// Whether worlds are alike where contenders have changed places. A trace then can't tell who is who.
    pub(super) any_order: bool,
    pub(super) defect: Option<Defect>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Releases {
    /// Not while a write is on its way, or may be.
    Orderly,
    Anytime,
}

/// What may be wrong with the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defect {
    /// Every step and write is stored.
    NoTokens,
    /// Steps may come at any time.
    NoLimitOfSteps,
    /// Writes may.
    NoLimitOfWrites,
    /// Writes may come until the lease ends, however long ago the state was read.
    LimitOfWritesByLeaseAlone,
    /// The holder counts from when it learns that it holds.
    CountsFromAnswer,
    /// A write checks its lease, then reads the state.
    LeaseBeforeState,
    /// A write lies on top of whatever is there.
    WriteOnTop,
    /// Renewals and releases take the next epoch when they come, whatever they were made of.
    NoEpochs,
    /// A break does not tell the names of the steps before.
    BreakWithoutNames,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    // What must never happen.
    /// Two contenders believe that they hold, and nobody has broken the lease of either.
    TwoHolders,
    /// A row was stored although the lease of its writer had ended.
    StoredWithoutLease,
    /// A write under an older lease lies above one under a newer lease.
    OutOfOrder,
    /// A write that was reported as stored is not in the state.
    LostWrite,
    /// A contender is told that the server takes no notice of tokens, or that its row was deleted.
    FalseAlarm,
    // What must be possible.
    TakenOver,
    TakenOverFromCrashed,
    LateRenewalRefused,
    RenewalLost,
    LateWriteRefused,
    WriteLost,
    WriteReported,
    LeaseBroken,
    TokenForgotten,
}

/// Contenders by their number, messages by their name: that of contender 0 are 16 for the step that it waits for, 17 for the
/// write, and 18 and so on for what it has given up; 32 and so on are those of contender 1.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    Tick,
    MergeLeases,
    MergeStates,
    ForgetStep,
    ForgetWrite,
    /// The server finds a message in time.
    Begin(u64),
    Arrive(u64),
    /// A person ends the lease that is held.
    Break,
    Crash(usize),
    ReadLease(usize),
    SendStep(usize),
    ConfirmStep(usize, Heard),
    Renew(usize),
    Release(usize),
    CheckLease(usize),
    ReadState(usize),
    SendWrite(usize),
    ConfirmWrite(usize, Heard),
}

/// Whether a contender reads back with the answer to its insert, or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Answer,
    Nothing,
}

/// The state is there, and was never written under a lease.
const FIRST: Version = Version::from_nanoseconds(1);

impl Model for Setup {
    type State = World;
    type Action = Action;
    type Event = Event;

    fn start(&self) -> World {
        World {
            leases: Table::new(Vec::new()),
            states: Table::new(vec![Row {
                version: FIRST,
                writes: Vec::new(),
                content: 0,
            }]),
            messages: Vec::new(),
            contenders: vec![Contender::default(); self.contenders],
            reported: 0,
            firsts: Vec::new(),
        }
    }

    fn steps(&self, world: &World) -> Vec<Step<Self>> {
        let mut steps = Vec::new();
        self.for_each_action(world, |action| {
            let mut state = world.clone();
            let mut events = Vec::new();
            if !self.take(action, &mut state, &mut events) {
                return;
            }
            judge(&state, &mut events);
            if self.tidy(&mut state) {
                steps.push(Step {
                    action,
                    state,
                    events,
                });
            }
        });
        steps
    }
}

/// What must never be, whatever came before.
fn judge(world: &World, events: &mut Vec<Event>) {
    let believers = world
        .contenders
        .iter()
        .filter(|contender| contender.believes_until > 0 && !contender.broken);
    if believers.count() > 1 {
        events.push(Event::TwoHolders);
    }
    let stored = world.states.last().map_or(0, |row| row.content);
    if world.reported & !stored != 0 {
        events.push(Event::LostWrite);
    }
}

impl Setup {
    pub(super) fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    pub(super) fn ms(&self, tick: Tick) -> i64 {
        tick * self.tick_ms
    }

    /// `FRESH_MS` in ticks.
    pub(super) fn fresh(&self) -> Tick {
        FRESH_MS / self.tick_ms
    }

    /// What may be tried. `take` tells whether it can be done.
    fn for_each_action(&self, world: &World, mut act: impl FnMut(Action)) {
        act(Action::Tick);
        if self.merges {
            act(Action::MergeLeases);
            act(Action::MergeStates);
        }
        if self.forgets {
            act(Action::ForgetStep);
            act(Action::ForgetWrite);
        }
        if self.breaks && self.may_send(PERSON, world) {
            act(Action::Break);
        }
        for message in &world.messages {
            match self.slow && message.begun.is_none() {
                true => act(Action::Begin(message.name)),
                false => act(Action::Arrive(message.name)),
            }
        }
        for (who, contender) in world.contenders.iter().enumerate() {
            self.for_each_action_of(world, who, contender, &mut act);
        }
    }

    fn for_each_action_of(
        &self,
        world: &World,
        who: usize,
        contender: &Contender,
        act: &mut impl FnMut(Action),
    ) {
        let may_send = self.may_send(who, world);
        match &contender.stage {
            Stage::Out | Stage::Doubts => act(Action::ReadLease(who)),
            Stage::Ready(_) if may_send => act(Action::SendStep(who)),
            Stage::Sent { answer, .. } => {
                for_each_heard(*answer, |heard| act(Action::ConfirmStep(who, heard)));
            }
            Stage::Holds if may_send => {
                act(Action::Renew(who));
                if self.may_release(world, who, contender) {
                    act(Action::Release(who));
                }
            }
            Stage::Ready(_) | Stage::Holds => {}
        }
        if self.crashes && contender.stage != Stage::Out {
            act(Action::Crash(who));
        }
        match &contender.work {
            Work::Rests if contender.known.is_some() && contender.writes < self.writes => {
                match self.has(Defect::LeaseBeforeState) {
                    true => act(Action::CheckLease(who)),
                    false => act(Action::ReadState(who)),
                }
            }
            Work::Rests => {}
            Work::Checked { .. } => act(Action::ReadState(who)),
            Work::Read { .. } if may_send => act(Action::SendWrite(who)),
            Work::Read { .. } => {}
            Work::Sent { answer, .. } => {
                for_each_heard(*answer, |heard| act(Action::ConfirmWrite(who, heard)));
            }
        }
    }

    /// The step that was sent just now comes, and is read back.
    fn at_once(&self, who: usize, world: &mut World, events: &mut Vec<Event>) -> bool {
        if self.steps_at_once {
            self.arrive(name_of_step(who), world, events);
            let stages = world.contenders.get(who).map(|contender| &contender.stage);
            if matches!(stages, Some(Stage::Sent { .. })) {
                self.confirm_step(who, Heard::Answer, world, events);
            }
        }
        true
    }

    fn may_send(&self, who: usize, world: &World) -> bool {
        let messages = world.messages.iter();
        let own = messages.filter(|message| sender(message.name) == who);
        own.count() < self.messages
    }

    fn may_release(&self, world: &World, who: usize, contender: &Contender) -> bool {
        match self.releases {
            Releases::Orderly => {
                let mut messages = world.messages.iter();
                let on_its_way = messages.any(|message| match &message.insert {
                    Insert::Write(_, under) => under.token == token_of(who),
                    Insert::Step(_) => false,
                });
                contender.work == Work::Rests && !on_its_way
            }
            Releases::Anytime => true,
        }
    }

    /// False where it can't be done, or nothing comes of it.
    fn take(&self, action: Action, world: &mut World, events: &mut Vec<Event>) -> bool {
        match action {
            Action::Tick => {
                world.tick(self.tick_ms, self.ttl, self.fresh());
                true
            }
            Action::MergeLeases => world.leases.merge(),
            Action::MergeStates => world.states.merge(),
            Action::ForgetStep | Action::ForgetWrite => {
                let forgotten = match action {
                    Action::ForgetStep => world.leases.forget(-self.fresh()),
                    _ => world.states.forget(-self.fresh()),
                };
                if forgotten {
                    events.push(Event::TokenForgotten);
                }
                forgotten
            }
            Action::Begin(name) => self.begin(name, world, events),
            Action::Arrive(name) => self.arrive(name, world, events),
            Action::Break => self.break_lease(world) && self.at_once(PERSON, world, events),
            Action::Crash(who) => {
                let contender = &mut world.contenders[who];
                *contender = Contender {
                    crashed: true,
                    has_token: contender.has_token,
                    writes: contender.writes,
                    ..Contender::default()
                };
                true
            }
            Action::ReadLease(who) if self.steps_at_once => {
                let read = self.read_lease(who, world);
                let ready = matches!(world.contenders[who].stage, Stage::Ready(_));
                read && (!ready || self.send_step(who, world) && self.at_once(who, world, events))
            }
            Action::ReadLease(who) => self.read_lease(who, world),
            Action::SendStep(who) => self.send_step(who, world),
            Action::ConfirmStep(who, heard) => self.confirm_step(who, heard, world, events),
            Action::Renew(who) => self.renew(who, world) && self.at_once(who, world, events),
            Action::Release(who) => self.release(who, world) && self.at_once(who, world, events),
            Action::CheckLease(who) => self.check_lease(who, world),
            Action::ReadState(who) => self.read_state(who, world),
            Action::SendWrite(who) => self.send_write(who, world),
            Action::ConfirmWrite(who, heard) => confirm_write(who, heard, world, events),
        }
    }
}

fn for_each_heard(answer: Answer, mut act: impl FnMut(Heard)) {
    match answer {
        Answer::None => act(Heard::Nothing),
        Answer::Accepted => act(Heard::Answer),
        Answer::Refused => {
            act(Heard::Answer);
            act(Heard::Nothing);
        }
    }
}
