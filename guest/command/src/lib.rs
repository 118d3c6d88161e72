//! The commands of `pipeline-state` as a WebAssembly component.
//!
//! It imports the contract and exports `wasi:cli/run`. Composed with a plugin, which gives it what it imports, it is one file
//! that any runtime for WASI 0.2 runs, without a host of ours: `wasmtime run -S http pipeline-state-clickhouse.wasm get ID`.
//! It knows no store. What it is told, prints and ends with is that of the native program, of which it is a part:
//! see the help text in `args`.
//!
//! What decides something is pure and is tested natively; `bindings`, `component`, `streams` and `command` are for WebAssembly alone.
#![cfg_attr(
    not(target_arch = "wasm32"),
    allow(dead_code, reason = "only the component uses all of it")
)]

mod args;
#[cfg(target_arch = "wasm32")]
mod bindings;
#[cfg(target_arch = "wasm32")]
mod command;
#[cfg(target_arch = "wasm32")]
mod component;
mod document;
mod failure;
mod pattern;
#[cfg(target_arch = "wasm32")]
mod streams;
mod target;
mod time;
