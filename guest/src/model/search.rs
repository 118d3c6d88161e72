//! A breadth-first search through all states of a model. It finds the shortest way to each event.

use std::collections::{HashSet, VecDeque};
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What can happen.
pub(super) trait Model {
    type State: Hash;
    type Action: Copy + Debug;
    /// What is looked for while an action is taken: what must never happen, and what must be possible.
    type Event: Copy + Debug + PartialEq;

    fn start(&self) -> Self::State;

    /// All that may happen next.
    fn steps(&self, state: &Self::State) -> Vec<Step<Self>>;
}

pub(super) struct Step<M: Model + ?Sized> {
    pub(super) action: M::Action,
    pub(super) state: M::State,
    pub(super) events: Vec<M::Event>,
}

/// What was found, with the shortest way to each event.
pub(super) struct Found<M: Model> {
    pub(super) states: usize,
    traces: Vec<(M::Event, Vec<M::Action>)>,
}

impl<M: Model> Found<M> {
    pub(super) fn trace(&self, event: M::Event) -> Option<&[M::Action]> {
        let found = self.traces.iter().find(|(other, _)| *other == event);
        found.map(|(_, trace)| trace.as_slice())
    }
}

/// Takes all states, or stops at the first event of this kind.
///
/// A state is remembered by 64 bits: that two of some million share them, and one is not searched, has a chance of one in a
/// million.
pub(super) fn search<M: Model>(model: &M, until: Option<M::Event>) -> Found<M> {
    let start = model.start();
    let mut seen = HashSet::from([digest(&start)]);
    // How each state was reached: from which one, by which action.
    let mut ways: Vec<Option<(usize, M::Action)>> = vec![None];
    let mut waiting = VecDeque::from([(0, start)]);
    let mut traces: Vec<(M::Event, Vec<M::Action>)> = Vec::new();
    while let Some((from, state)) = waiting.pop_front() {
        for step in model.steps(&state) {
            for event in step.events {
                if traces.iter().all(|(other, _)| *other != event) {
                    traces.push((event, trace(&ways, from, step.action)));
                }
            }
            if seen.insert(digest(&step.state)) {
                waiting.push_back((ways.len(), step.state));
                ways.push(Some((from, step.action)));
            }
        }
        if until.is_some_and(|event| traces.iter().any(|(other, _)| *other == event)) {
            break;
        }
    }
    Found {
        states: seen.len(),
        traces,
    }
}

fn trace<A: Copy>(ways: &[Option<(usize, A)>], mut from: usize, last: A) -> Vec<A> {
    let mut trace = vec![last];
    while let Some((before, action)) = ways[from] {
        trace.push(action);
        from = before;
    }
    trace.reverse();
    trace
}

fn digest(state: &impl Hash) -> u64 {
    let mut bytes = Bytes(Vec::with_capacity(1024));
    state.hash(&mut bytes);
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes.0);
    hasher.finish()
}

/// Collects what is to be hashed: number by number that takes most of the time where it is not optimized.
struct Bytes(Vec<u8>);

impl Hasher for Bytes {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}
