//! The lock of the Python backend, for comparison.
//!
//! Each candidate inserts a row with a random ID, waits for one settle, and reads all rows that are not stale: the lowest ID
//! wins. The table keeps one row for each state, the youngest, when its parts are merged.

use super::search::{Model, Step, search};

/// What goes wrong, each of which alone is enough.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    /// A row comes when another candidate has settled already.
    late: bool,
    /// Rows are merged.
    merges: bool,
    /// A holder holds for longer than a row counts.
    outlives: bool,
}

/// After so many settles a row does not count any more.
const STALE: u8 = 3;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    /// The ages of the rows, in settles, in the order in which they were inserted.
    rows: Vec<(usize, u8)>,
    /// In the order of their IDs.
    candidates: [Candidate; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Candidate {
    Outside,
    Sent,
    Settles { age: u8 },
    Holds,
    Loses,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Tick,
    Merge,
    Send(usize),
    Arrive(usize),
    Read(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    TwoHolders,
}

impl Model for Faults {
    type State = World;
    type Action = Action;
    type Event = Event;

    fn start(&self) -> World {
        World {
            rows: Vec::new(),
            candidates: [Candidate::Outside; 2],
        }
    }

    fn steps(&self, world: &World) -> Vec<Step<Self>> {
        let of_candidates = [0, 1]
            .into_iter()
            .flat_map(|who| [Action::Send(who), Action::Arrive(who), Action::Read(who)]);
        let actions = [Action::Tick, Action::Merge]
            .into_iter()
            .chain(of_candidates);
        let mut steps = Vec::new();
        for action in actions {
            let mut state = world.clone();
            if self.take(action, &mut state) {
                let both = state.candidates == [Candidate::Holds; 2];
                steps.push(Step {
                    action,
                    state,
                    events: if both {
                        vec![Event::TwoHolders]
                    } else {
                        Vec::new()
                    },
                });
            }
        }
        steps
    }
}

impl Faults {
    fn take(self, action: Action, world: &mut World) -> bool {
        match action {
            Action::Tick => {
                for (_, age) in &mut world.rows {
                    *age = (*age + 1).min(STALE);
                }
                for candidate in &mut world.candidates {
                    if let Candidate::Settles { age } = candidate {
                        *age = (*age + 1).min(STALE);
                    }
                }
                let held = world.candidates.contains(&Candidate::Holds);
                let stale = world.rows.iter().any(|(_, age)| *age == STALE);
                self.outlives || !(held && stale)
            }
            Action::Merge => {
                // Of equal ones the last.
                let youngest = world.rows.iter().rev().min_by_key(|(_, age)| *age).copied();
                world.rows = youngest.into_iter().collect();
                self.merges
            }
            Action::Send(who) => {
                let before = std::mem::replace(&mut world.candidates[who], Candidate::Sent);
                before == Candidate::Outside
            }
            Action::Arrive(who) => {
                let sent = Candidate::Settles { age: 0 };
                let before = std::mem::replace(&mut world.candidates[who], sent);
                let mut live = live(world);
                let late = live.any(|(_, age)| age > 0);
                drop(live);
                world.rows.push((who, 0));
                before == Candidate::Sent && (self.late || !late)
            }
            Action::Read(who) => {
                let lowest = live(world).map(|(who, _)| who).min();
                let before = world.candidates[who];
                world.candidates[who] = match lowest == Some(who) {
                    true => Candidate::Holds,
                    false => Candidate::Loses,
                };
                matches!(before, Candidate::Settles { age: 1.. })
            }
        }
    }
}

fn live(world: &World) -> impl Iterator<Item = (usize, u8)> {
    let rows = world.rows.iter().copied();
    rows.filter(|(_, age)| *age < STALE)
}

#[test]
fn the_lock_of_the_python_backend_has_two_holders_for_each_of_three_reasons() {
    let none = Faults::default();
    let found = search(&none, None);
    println!("{none:?}: {} states", found.states);
    assert!(found.trace(Event::TwoHolders).is_none());
    for faults in [
        Faults { late: true, ..none },
        Faults {
            merges: true,
            ..none
        },
        Faults {
            outlives: true,
            ..none
        },
    ] {
        let found = search(&faults, Some(Event::TwoHolders));
        let trace = found.trace(Event::TwoHolders).expect("two holders");
        println!("{faults:?}: {} steps, {trace:?}", trace.len());
    }
}
