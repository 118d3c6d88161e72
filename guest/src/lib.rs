//! The ClickHouse plugin of `pipeline-state`: it keeps states in one ClickHouse table, over HTTP.
//!
//! It is a component of the world `plugin` (see `wit/`), and shares its table with the Python
//! package `meltano-state-backend-clickhouse`: each reads what the other wrote.
//!
//! Everything that decides something is pure and is built and tested natively. Only three modules
//! touch WebAssembly: `bindings` is generated, `component` binds the exports, `http` sends one request.
//!
//! | module | what it knows |
//! |---|---|
//! | `uri`, `settings`, `options`, `connection` | which server, user and table a target means, and how they are used |
//! | `id`, `document`, `pattern` | which IDs, documents and patterns are accepted |
//! | `escape`, `rowbinary`, `gzip`, `sql` | what is sent to the server |
//! | `response`, `network`, `values`, `native`, `rowbinary`, `rows`, `error` | what comes back, and what it means |
//! | `client` | what is sent again after a fault |
//! | `version`, `writes` | why no write is lost, and no expectation inexact |
//! | `store`, `state`, `merge`, `write`, `step`, `removal`, `write_many`, `lease`, `history`, `tables`, `doctor` | which statements make up each operation |
#![cfg_attr(
    not(target_arch = "wasm32"),
    allow(dead_code, reason = "only the component uses all of it")
)]

#[cfg(target_arch = "wasm32")]
mod bindings;
mod client;
#[cfg(target_arch = "wasm32")]
mod component;
mod connection;
mod doctor;
mod document;
mod error;
mod escape;
#[cfg(test)]
mod fuzz;
mod gzip;
mod history;
#[cfg(target_arch = "wasm32")]
mod http;
mod id;
mod lease;
mod merge;
#[cfg(test)]
mod model;
mod native;
mod network;
mod options;
mod pattern;
mod removal;
mod response;
mod rowbinary;
mod rows;
mod settings;
mod sql;
mod state;
mod step;
mod store;
mod tables;
mod uri;
mod values;
mod version;
mod write;
mod write_many;
mod writes;
