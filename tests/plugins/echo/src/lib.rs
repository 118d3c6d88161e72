//! A plugin for tests, of another kind than the one that comes with the host: it keeps nothing, and answers with what
//! it was given. Some IDs make it misbehave:
//!
//! | ID | what it does |
//! |---|---|
//! | a URL | asks for it, and answers with the status of the response |
//! | `trap` | traps |
//! | `spin` | computes for ever |
//! | `memory` | takes memory until there is no more |
#![cfg(target_arch = "wasm32")]

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

    use super::Echo;
    export!(Echo);
}

use bindings::exports::pipeline::state::registration::{
    DefaultPorts, Guest as Registration, PluginInfo, Setting, SettingKind, SettingRole,
};
use bindings::exports::pipeline::state::store::{
    Entry, Error, Expectation, Guest as Store, IdPage, Page, State, StateId, Target,
};
use bindings::exports::pipeline::state::{history, locks, maintenance};
use bindings::pipeline::state::types::{Failure, Lease, Outcome};
use bindings::wasi::http::outgoing_handler;
use bindings::wasi::http::types::{Fields, OutgoingRequest, Scheme};

struct Echo;

impl Registration for Echo {
    fn describe() -> PluginInfo {
        PluginInfo {
            name: "echo".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schemes: vec!["echo".to_owned()],
            settings: vec![Setting {
                name: "host".to_owned(),
                kind: SettingKind::Text,
                role: Some(SettingRole::Host),
                label: "Host".to_owned(),
                default: None,
                sensitive: false,
                env: "MELTANO_STATE_BACKEND_ECHO_HOST".to_owned(),
            }],
            default_ports: DefaultPorts {
                plain: 80,
                tls: 443,
            },
            needs_credentials: false,
        }
    }
}

impl Store for Echo {
    fn get(target: Target, id: StateId) -> Result<Option<Entry>, Error> {
        let answer = match id.as_str() {
            "trap" => core::arch::wasm32::unreachable(),
            "spin" => loop {
                core::hint::spin_loop();
            },
            "memory" => {
                let mut held: Vec<Vec<u8>> = Vec::new();
                loop {
                    held.push(vec![1; 1 << 20]);
                }
            }
            url if url.contains("://") => ask(url)?.to_string(),
            _ => target.uri.clone(),
        };
        let mut completed = serde_json::Map::new();
        completed.insert("answer".to_owned(), answer.into());
        for (name, value) in target.settings {
            completed.insert(name, value.into());
        }
        Ok(Some(Entry {
            id,
            state: State {
                completed: Some(serde_json::Value::Object(completed).to_string()),
                partial: None,
            },
            version: 1,
            updated_at_ms: 0,
        }))
    }

    fn get_page(_: Target, _: String, _: Option<StateId>, _: u32) -> Result<Page, Error> {
        Ok(Page {
            entries: Vec::new(),
            next: None,
        })
    }

    fn get_ids(
        target: Target,
        pattern: String,
        _: Option<StateId>,
        _: u32,
    ) -> Result<IdPage, Error> {
        Ok(IdPage {
            ids: vec![target.uri, pattern],
            next: None,
        })
    }

    fn set(
        _: Target,
        id: StateId,
        _: State,
        _: Expectation,
        _: Option<String>,
    ) -> Result<u64, Error> {
        match id.as_str() {
            "trap" => core::arch::wasm32::unreachable(),
            url if url.contains("://") => ask(url).map(u64::from),
            _ => Err(keeps_nothing()),
        }
    }

    fn set_many(_: Target, _: Vec<(StateId, State)>) -> Result<u32, Error> {
        Err(keeps_nothing())
    }

    fn update(_: Target, _: StateId, _: State, _: Option<String>) -> Result<u64, Error> {
        Err(keeps_nothing())
    }

    fn delete(_: Target, _: StateId, _: Expectation, _: Option<String>) -> Result<bool, Error> {
        Ok(false)
    }

    fn clear(_: Target) -> Result<u64, Error> {
        Ok(0)
    }
}

impl locks::Guest for Echo {
    fn acquire(_: Target, _: StateId, _: locks::Request) -> Result<Lease, Error> {
        Err(keeps_nothing())
    }

    fn renew(_: Target, _: Lease, _: u64) -> Result<Lease, Error> {
        Err(keeps_nothing())
    }

    fn release(_: Target, _: Lease) -> Result<(), Error> {
        Ok(())
    }

    fn inspect(
        _: Target,
        _: String,
        _: Option<StateId>,
        _: u32,
    ) -> Result<locks::LeasePage, Error> {
        Ok(locks::LeasePage {
            leases: Vec::new(),
            next: None,
        })
    }

    fn break_lease(_: Target, _: StateId, _: String) -> Result<bool, Error> {
        Ok(false)
    }
}

impl history::Guest for Echo {
    fn versions(
        _: Target,
        _: StateId,
        _: Option<u64>,
        _: u32,
    ) -> Result<Vec<history::Change>, Error> {
        Err(keeps_nothing())
    }
}

impl maintenance::Guest for Echo {
    fn check(_: Target) -> Result<Vec<maintenance::Finding>, Error> {
        Ok(Vec::new())
    }

    fn migrate(_: Target) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }
}

fn keeps_nothing() -> Error {
    Error::InvalidInput("echo keeps nothing".to_owned())
}

/// Asks for a URL, whatever it is, and says with which status it was answered.
fn ask(url: &str) -> Result<u16, Error> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let scheme = match scheme {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        other => Scheme::Other(other.to_owned()),
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let refused = |what: &str| {
        Error::Unavailable(Failure {
            message: format!("echo was refused: {what}"),
            outcome: Outcome::NotApplied,
        })
    };
    let request = OutgoingRequest::new(Fields::new());
    request
        .set_scheme(Some(&scheme))
        .map_err(|()| refused("scheme"))?;
    request
        .set_authority(Some(authority))
        .map_err(|()| refused("authority"))?;
    request
        .set_path_with_query(Some(&format!("/{path}")))
        .map_err(|()| refused("path"))?;
    let response =
        outgoing_handler::handle(request, None).map_err(|code| refused(&code.to_string()))?;
    response.subscribe().block();
    match response.get() {
        Some(Ok(Ok(response))) => Ok(response.status()),
        Some(Ok(Err(code))) => Err(refused(&code.to_string())),
        _ => Err(refused("no response")),
    }
}
