//! A plugin for tests that means harm. It keeps nothing, and does what the ID of a state tells it to: JSON is a request, see
//! [`Attack`]; a word, perhaps with `:` and an argument, is something else:
//!
//! | ID | what it does |
//! |---|---|
//! | `trap` | traps |
//! | `spin` | computes for ever |
//! | `memory` | takes memory until there is no more |
//! | `recursion` | calls itself for ever |
//! | `sleep` | waits for ever |
//! | `polls:N` | waits for N clocks at once, of which none ever strikes |
//! | `fields`, `full-fields`, `requests`, `clocks` | takes resources, and gives none back |
//! | `chance:N` | asks for N random bytes at once |
//! | `huge:N` | answers with a document of N bytes |
//! | `error:KIND:WORDS` | fails with these words |
//! | `odd` | answers with what no store would |
//! | `credentials` | answers with all that it was given |
//!
//! Any other ID is an ordinary one: the answer is a document without members.
#![cfg(target_arch = "wasm32")]

mod attack;
mod bindings {
    #![allow(
        missing_docs,
        unsafe_code,
        unreachable_pub,
        clippy::all,
        reason = "generated"
    )]
    wit_bindgen::generate!({
        path: "../../../wit",
        world: "pipeline:state/plugin",
        generate_all,
    });

    use super::Hostile;
    export!(Hostile);
}

use std::hint::black_box;

use serde_json::{Value, json};

use attack::Attack;
use bindings::exports::pipeline::state::registration::{
    DefaultPorts, Guest as Registration, PluginInfo, Setting, SettingKind, SettingRole,
};
use bindings::exports::pipeline::state::store::{
    Entry, Error, Expectation, Guest as Store, IdPage, Page, State, StateId, Target,
};
use bindings::exports::pipeline::state::{history, locks, maintenance};
use bindings::pipeline::state::types::{Failure, Lease, Outcome, ServerError};
use bindings::wasi::clocks::monotonic_clock;
use bindings::wasi::http::types::{Fields, OutgoingRequest};
use bindings::wasi::io::poll;
use bindings::wasi::random::random;

struct Hostile;

impl Registration for Hostile {
    fn describe() -> PluginInfo {
        let setting = |name: &str, role, sensitive| Setting {
            name: name.to_owned(),
            kind: match role {
                Some(SettingRole::Port) => SettingKind::Integer,
                Some(SettingRole::Tls) => SettingKind::Boolean,
                _ => SettingKind::Text,
            },
            role,
            label: name.to_owned(),
            default: None,
            sensitive,
            env: format!(
                "MELTANO_STATE_BACKEND_HOSTILE_{}",
                name.to_ascii_uppercase()
            ),
        };
        PluginInfo {
            name: "hostile".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schemes: vec!["hostile".to_owned()],
            settings: vec![
                setting("host", Some(SettingRole::Host), false),
                setting("port", Some(SettingRole::Port), false),
                setting("secure", Some(SettingRole::Tls), false),
                setting("user", Some(SettingRole::User), false),
                setting("password", Some(SettingRole::Password), true),
            ],
            default_ports: DefaultPorts {
                plain: 80,
                tls: 443,
            },
            needs_credentials: false,
        }
    }
}

/// What an ID asks for, and the answer to it.
fn obey(target: &Target, id: &str) -> Result<Value, Error> {
    if id.starts_with('{') {
        return Attack::parse(id)?.run();
    }
    let (word, argument) = id.split_once(':').unwrap_or((id, ""));
    let number = argument.parse().unwrap_or_default();
    match word {
        "trap" => core::arch::wasm32::unreachable(),
        "spin" => loop {
            core::hint::spin_loop();
        },
        "memory" => for_ever(|| vec![1_u8; 1 << 20]),
        "recursion" => Ok(dive(1).into()),
        "sleep" => {
            monotonic_clock::subscribe_duration(u64::MAX).block();
            Ok(json!({}))
        }
        "polls" => {
            let clocks: Vec<_> = (0..number)
                .map(|_| monotonic_clock::subscribe_duration(u64::MAX))
                .collect();
            Ok(poll::poll(&clocks.iter().collect::<Vec<_>>()).into())
        }
        "fields" => for_ever(Fields::new),
        "full-fields" => for_ever(|| {
            let fields = Fields::new();
            let full = fields.set("x-full", &[vec![b'x'; 30_000]]);
            (fields, full)
        }),
        "requests" => for_ever(|| OutgoingRequest::new(Fields::new())),
        "clocks" => for_ever(|| monotonic_clock::subscribe_duration(u64::MAX)),
        "chance" => Ok(random::get_random_bytes(number).len().into()),
        "huge" => {
            let length = usize::try_from(number).unwrap_or(usize::MAX);
            Ok(json!({ "x": "x".repeat(length) }))
        }
        "error" => Err(error(argument)),
        "credentials" => Ok(json!({"uri": target.uri, "settings": target.settings})),
        _ => Ok(json!({})),
    }
}

/// Makes one thing after the other, and keeps them all.
fn for_ever<T>(make: impl Fn() -> T) -> ! {
    let mut held = Vec::new();
    loop {
        held.push(black_box(make()));
    }
}

fn dive(depth: u64) -> u64 {
    match black_box(depth) {
        0 => 0,
        depth => dive(depth + 1).wrapping_mul(3) ^ depth,
    }
}

/// `huge` stands for words of 16 MiB.
fn error(argument: &str) -> Error {
    let (kind, words) = argument.split_once(':').unwrap_or((argument, ""));
    let message = match words {
        "huge" => "x".repeat(16 << 20),
        words => words.to_owned(),
    };
    let outcome = Outcome::NotApplied;
    match kind {
        "invalid" => Error::InvalidInput(message),
        "corrupt" => Error::Corrupt(message),
        "unavailable" => Error::Unavailable(Failure { message, outcome }),
        "locked" => Error::Locked(Some(holder(message))),
        _ => Error::Server(ServerError {
            code: -1,
            name: message.clone(),
            message,
            outcome,
        }),
    }
}

fn holder(words: String) -> Lease {
    Lease {
        id: words.clone(),
        token: words.clone(),
        owner: words,
        epoch: u64::MAX,
        acquired_at_ms: u64::MAX,
        renewed_at_ms: u64::MAX,
        expires_at_ms: u64::MAX,
    }
}

impl Store for Hostile {
    fn get(target: Target, id: StateId) -> Result<Option<Entry>, Error> {
        let odd = id == "odd";
        Ok(Some(Entry {
            state: State {
                completed: Some(match odd {
                    true => "no JSON \u{1b}[2J \0".to_owned(),
                    false => obey(&target, &id)?.to_string(),
                }),
                partial: None,
            },
            id,
            version: match odd {
                true => 0,
                false => 1,
            },
            updated_at_ms: match odd {
                true => u64::MAX,
                false => 0,
            },
        }))
    }

    fn get_page(_: Target, _: String, _: Option<StateId>, _: u32) -> Result<Page, Error> {
        Ok(Page {
            entries: Vec::new(),
            next: None,
        })
    }

    fn get_ids(_: Target, _: String, _: Option<StateId>, _: u32) -> Result<IdPage, Error> {
        Ok(IdPage {
            ids: Vec::new(),
            next: None,
        })
    }

    fn set(
        target: Target,
        id: StateId,
        _: State,
        _: Expectation,
        _: Option<String>,
    ) -> Result<u64, Error> {
        obey(&target, &id).map(|_| 1)
    }

    fn set_many(_: Target, _: Vec<(StateId, State)>) -> Result<u32, Error> {
        Ok(0)
    }

    fn update(_: Target, _: StateId, _: State, _: Option<String>) -> Result<u64, Error> {
        Ok(1)
    }

    fn delete(_: Target, _: StateId, _: Expectation, _: Option<String>) -> Result<bool, Error> {
        Ok(false)
    }

    fn clear(_: Target) -> Result<u64, Error> {
        Ok(0)
    }
}

impl locks::Guest for Hostile {
    fn acquire(_: Target, _: StateId, _: locks::Request) -> Result<Lease, Error> {
        Ok(holder("x".to_owned()))
    }

    fn renew(_: Target, lease: Lease, _: u64) -> Result<Lease, Error> {
        Ok(lease)
    }

    fn release(_: Target, _: Lease) -> Result<(), Error> {
        Ok(())
    }

    fn inspect(
        _: Target,
        pattern: String,
        _: Option<StateId>,
        _: u32,
    ) -> Result<locks::LeasePage, Error> {
        // Pages that never end, where it is asked for them.
        let next = (pattern == "endless").then(|| pattern.clone());
        Ok(locks::LeasePage {
            leases: vec![holder(pattern)],
            next,
        })
    }

    fn break_lease(_: Target, _: StateId, _: String) -> Result<bool, Error> {
        Ok(false)
    }
}

impl history::Guest for Hostile {
    fn versions(
        _: Target,
        _: StateId,
        _: Option<u64>,
        _: u32,
    ) -> Result<Vec<history::Change>, Error> {
        Ok(vec![history::Change {
            version: 0,
            written_at_ms: u64::MAX,
            state: None,
        }])
    }
}

impl maintenance::Guest for Hostile {
    fn check(target: Target) -> Result<Vec<maintenance::Finding>, Error> {
        let all = json!({"uri": target.uri, "settings": target.settings}).to_string();
        Ok(vec![maintenance::Finding {
            severity: maintenance::Severity::Fine,
            subject: "a\nb\u{1b}[2J".to_owned(),
            text: format!("{all}\nerror: \u{1b}[2J"),
            mend: None,
        }])
    }

    fn migrate(_: Target) -> Result<Vec<String>, Error> {
        Ok(vec!["a\nb\u{1b}[2J".to_owned()])
    }
}
