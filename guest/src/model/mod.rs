//! Searches all interleavings of the lease protocol, and of writes under leases.
//!
//! What decides is the code itself: what a reading says of a lease (`Reading`), until when a step may come that is made of what
//! its holder knows, and what the rows say of a step or write (`writes`). What is modelled is who sends what and when (`lease`,
//! `write`), and the server. In the model a request comes at any later moment, or never, or twice; an answer is lost; rows are
//! merged, tokens forgotten; contenders crash, or stop for any time; a person breaks leases.
//!
//! Time has no end, and leases are acquired and renewed without end, since worlds that differ in the clock and in the numbers of
//! epochs alone are one (`alike`). Each `Setup` says what is bounded. A tick is half of a lease.
//!
//! Not modelled: replicas and Keeper, how a state is made or deleted, rows that somebody deletes, and writers without a lease.
//!
//! | module | what it knows |
//! |---|---|
//! | `search` | the search |
//! | `table`, `world` | what there is at one moment |
//! | `server`, `contender` | what they do |
//! | `leases` | what can happen, and what must never |
//! | `alike` | which worlds need not be searched twice |
//! | `python` | the lock of the Python backend |

mod alike;
mod contender;
mod leases;
mod python;
mod search;
mod server;
mod table;
mod world;

use leases::{Defect, Event, Releases, Setup};
use search::search;

/// A lease of 20 s, as long as a token is remembered at least.
const LEASES: Setup = Setup {
    contenders: 2,
    tick_ms: 10_000,
    ttl: 2,
    messages: 1,
    overtaken: 2,
    writes: 0,
    crashes: false,
    breaks: false,
    releases: Releases::Orderly,
    merges: false,
    forgets: false,
    slow: false,
    steps_at_once: false,
    any_order: true,
    defect: None,
};

/// The same, and a write by each.
const WRITES: Setup = Setup {
    writes: 1,
    messages: 2,
    merges: true,
    steps_at_once: true,
    any_order: false,
    ..LEASES
};

/// A lease of 40 s, which lasts for longer than a token is remembered.
const fn forgetting(setup: Setup) -> Setup {
    Setup {
        tick_ms: 20_000,
        forgets: true,
        merges: true,
        ..setup
    }
}

const LEASES_FORGETTING: Setup = forgetting(LEASES);
const WRITES_FORGETTING: Setup = forgetting(WRITES);

/// Searches everything.
fn holds(setup: Setup, possible: &[Event]) {
    let found = search(&setup, None);
    println!("{} states: {setup:?}", found.states);
    // Then a write may be stored for which the lease has ended since it was found in time.
    let unsteady = setup.breaks || setup.slow || setup.releases == Releases::Anytime;
    for event in [
        Event::TwoHolders,
        Event::StoredWithoutLease,
        Event::OutOfOrder,
        Event::LostWrite,
        Event::FalseAlarm,
    ] {
        if event == Event::StoredWithoutLease && unsteady {
            continue;
        }
        if found.trace(event).is_some() {
            let in_order = Setup {
                any_order: false,
                ..setup
            };
            let found = search(&in_order, Some(event));
            panic!("{event:?} in {setup:?}: {:?}", found.trace(event));
        }
    }
    for event in possible {
        assert!(found.trace(*event).is_some(), "{event:?} in {setup:?}");
    }
}

/// Searches until that happens.
fn breaks(defect: Defect, setup: Setup, event: Event) {
    let broken = Setup {
        defect: Some(defect),
        any_order: false,
        ..setup
    };
    let found = search(&broken, Some(event));
    let trace = found.trace(event);
    println!("{defect:?}, {event:?}, {} states: {trace:?}", found.states);
    assert!(trace.is_some(), "{event:?} in {broken:?}");
}

/// Searches everything, and that does not happen in spite of the defect.
fn bears(defect: Defect, setup: Setup, event: Event) {
    let broken = Setup {
        defect: Some(defect),
        ..setup
    };
    let found = search(&broken, None);
    println!("{defect:?}, no {event:?}, {} states", found.states);
    assert!(found.trace(event).is_none(), "{event:?} in {broken:?}");
}

#[test]
fn a_lease_has_one_holder_where_contenders_crash() {
    let setup = Setup {
        messages: 2,
        crashes: true,
        ..LEASES
    };
    holds(
        setup,
        &[
            Event::TakenOver,
            Event::TakenOverFromCrashed,
            Event::LateRenewalRefused,
            Event::RenewalLost,
        ],
    );
}

#[test]
fn a_lease_has_one_holder_of_three_contenders() {
    let setup = Setup {
        contenders: 3,
        overtaken: 1,
        ..LEASES
    };
    holds(setup, &[Event::TakenOver, Event::LateRenewalRefused]);
}

#[test]
fn a_lease_has_one_holder_where_it_is_broken_and_rows_are_merged() {
    let setup = Setup {
        breaks: true,
        merges: true,
        ..LEASES
    };
    holds(setup, &[Event::LeaseBroken, Event::RenewalLost]);
}

#[test]
fn a_lease_has_one_holder_where_tokens_are_forgotten() {
    holds(
        LEASES_FORGETTING,
        &[Event::TokenForgotten, Event::LateRenewalRefused],
    );
}

#[test]
fn a_lease_has_one_holder_where_the_server_is_slow() {
    let setup = Setup {
        slow: true,
        ..LEASES
    };
    holds(setup, &[Event::TakenOver, Event::RenewalLost]);
}

#[test]
fn writes_are_stored_under_a_live_lease_alone_and_in_their_order() {
    let possible = [Event::LateWriteRefused, Event::WriteReported];
    holds(WRITES, &possible);
    let three = Setup {
        contenders: 3,
        messages: 1,
        ..WRITES
    };
    holds(three, &possible);
    holds(WRITES_FORGETTING, &possible);
}

/// A broken lease: then a write that was on its way may be stored, but only before the first one under a newer lease. The same
/// holds for a lease that is released while a write is on its way, and where the server takes its time after it has looked at
/// the clock.
#[test]
fn writes_are_in_their_order_whenever_the_lease_ends() {
    let possible = [
        Event::StoredWithoutLease,
        Event::LateWriteRefused,
        Event::WriteLost,
        Event::WriteReported,
    ];
    let broken = Setup {
        breaks: true,
        releases: Releases::Anytime,
        ..WRITES
    };
    holds(broken, &possible);
    holds(
        Setup {
            slow: true,
            ..broken
        },
        &possible,
    );
    let forgetting = Setup {
        breaks: true,
        messages: 1,
        ..WRITES_FORGETTING
    };
    holds(forgetting, &possible);
}

#[test]
fn without_any_of_its_parts_leases_fail() {
    let merging = Setup {
        merges: true,
        ..LEASES
    };
    breaks(Defect::NoTokens, merging, Event::TwoHolders);
    breaks(Defect::NoLimitOfSteps, LEASES_FORGETTING, Event::TwoHolders);
    breaks(Defect::CountsFromAnswer, LEASES, Event::TwoHolders);
    let twice = Setup {
        messages: 2,
        ..LEASES_FORGETTING
    };
    breaks(Defect::NoEpochs, twice, Event::TwoHolders);
    let broken = Setup {
        breaks: true,
        ..LEASES
    };
    breaks(Defect::BreakWithoutNames, broken, Event::FalseAlarm);
}

#[test]
fn without_any_of_its_parts_writes_fail() {
    let broken = Setup {
        breaks: true,
        ..WRITES
    };
    breaks(Defect::NoTokens, broken, Event::OutOfOrder);
    breaks(Defect::NoTokens, broken, Event::LostWrite);
    breaks(Defect::NoTokens, broken, Event::FalseAlarm);
    // The tokens keep the order all the same.
    breaks(Defect::NoLimitOfWrites, WRITES, Event::StoredWithoutLease);
    bears(Defect::NoLimitOfWrites, WRITES, Event::OutOfOrder);
    bears(Defect::NoLimitOfWrites, WRITES, Event::LostWrite);
    // It takes a lease that ends before its time.
    breaks(Defect::LeaseBeforeState, broken, Event::OutOfOrder);
    bears(Defect::LeaseBeforeState, WRITES, Event::OutOfOrder);
    breaks(Defect::WriteOnTop, broken, Event::OutOfOrder);
    bears(Defect::WriteOnTop, WRITES, Event::OutOfOrder);
    let forgetting = Setup {
        breaks: true,
        ..WRITES_FORGETTING
    };
    let too_long = Defect::LimitOfWritesByLeaseAlone;
    breaks(too_long, forgetting, Event::OutOfOrder);
    breaks(too_long, forgetting, Event::LostWrite);
    let twice = Setup {
        writes: 2,
        ..WRITES_FORGETTING
    };
    breaks(too_long, twice, Event::LostWrite);
}

/// The same with more contenders, messages and writes at once: up to some million worlds each.
#[test]
#[ignore = "takes minutes: a part of `cargo dev test-long`"]
fn leases_in_larger_worlds() {
    let three = Setup {
        contenders: 3,
        ..LEASES
    };
    holds(
        Setup {
            overtaken: 3,
            ..three
        },
        &[],
    );
    holds(
        Setup {
            crashes: true,
            merges: true,
            ..three
        },
        &[],
    );
    let broken = Setup {
        breaks: true,
        merges: true,
        ..LEASES
    };
    holds(
        Setup {
            overtaken: 3,
            ..broken
        },
        &[],
    );
    holds(
        Setup {
            slow: true,
            ..broken
        },
        &[],
    );
    holds(
        Setup {
            messages: 2,
            breaks: true,
            ..LEASES_FORGETTING
        },
        &[],
    );
}

#[test]
#[ignore = "takes minutes: a part of `cargo dev test-long`"]
fn writes_in_larger_worlds() {
    let twice = Setup {
        writes: 2,
        merges: false,
        ..WRITES
    };
    holds(twice, &[]);
    holds(
        Setup {
            breaks: true,
            ..twice
        },
        &[],
    );
    let three = Setup {
        contenders: 3,
        breaks: true,
        ..WRITES
    };
    holds(three, &[]);
    holds(
        Setup {
            writes: 2,
            ..WRITES_FORGETTING
        },
        &[],
    );
    // Each step in all its parts, too.
    let whole = Setup {
        overtaken: 1,
        messages: 1,
        steps_at_once: false,
        ..WRITES
    };
    holds(whole, &[]);
}
