//! Keeps the state of pipelines in any store, through a sandboxed plugin that the scheme of a URI chooses.
//!
//! A pipeline (Meltano, Singer, any extract and load) must remember where it stopped. This crate keeps that in
//! ClickHouse, in the tables of the Python package `meltano-state-backend-clickhouse`, or in any other
//! store for which there is a plugin: a WebAssembly component of the world `pipeline:state/plugin`. A plugin can do one
//! thing outside itself: HTTP to the one origin that the URI and the settings name.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = harness::ClickHouse::start()?;
//! # let uri = server.uri("analytics");
//! use pipeline_state::{Plugins, Settings, State, StateId};
//!
//! // Once for each process: loads the plugins, here the one for ClickHouse.
//! let plugins = Plugins::builder().build().await?;
//! // uri is "clickhouse://user:password@localhost:8123/analytics"; settings may come from the environment too.
//! let backend = plugins.open(&uri, &Settings::from_env().set("table", "state_of_example"))?;
//!
//! let id = StateId::from("dev:tap-github-to-target-jsonl");
//! let state = State::from_json(r#"{"completed": {"singer_state": {"bookmarks": {"issues": 42}}}}"#)?;
//! backend.set(&id, state.clone()).await?;
//!
//! let entry = backend.get(&id).await?.expect("it was stored");
//! assert_eq!(entry.state, state);
//! assert_eq!(backend.get_ids("dev:*", None, 100).await?.ids, [id.clone()]);
//!
//! assert!(backend.delete(&id).await?);
//! assert_eq!(backend.get(&id).await?, None);
//! # Ok(())
//! # }
//! ```
//!
//! # How it fits together
//!
//! | type | what it is | how long it lives |
//! |---|---|---|
//! | [`Plugins`] | the engine and the plugins, loaded and checked, by scheme | the process |
//! | [`Backend`] | one store: a plugin, a target, a pool of connections | as long as you use the store |
//! | a call | a fresh instance of the plugin, with limits and a deadline | one method of [`Backend`] |
//!
//! Each method fails with an [`Error`] that says what went wrong and what to do, and for a write
//! [`Error::outcome`] says whether it may have been stored all the same.

mod address;
mod audit;
mod backend;
mod bindings;
pub mod blocking;
mod builder;
mod call;
mod ceiling;
mod credentials;
mod engine;
mod error;
mod lock;
mod observe;
mod origin;
mod outbound;
mod plugin;
mod plugins;
mod policy;
mod report;
mod settings;
mod source;
mod state;
mod target;
mod text;

pub use backend::Backend;
pub use builder::Builder;
pub use ceiling::{Ceiling, CeilingError};
pub use error::{Error, Outcome};
pub use lock::{Holder, Lease, Lock};
pub use observe::CallReport;
pub use outbound::Tls;
pub use plugin::{Description, Inspection, Role, SettingInfo};
pub use plugins::{Plugins, Served};
pub use report::{Finding, Severity};
pub use settings::Settings;
pub use state::{Change, Entry, Expectation, IdPage, Page, State, StateId, Version};

/// The README's examples are compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
