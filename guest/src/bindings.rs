//! The contract and `wasi:http` as Rust, made from `wit/`.

#![allow(
    missing_docs,
    unreachable_pub,
    unsafe_code,
    clippy::all,
    clippy::restriction,
    reason = "generated"
)]

wit_bindgen::generate!({
    path: "../wit",
    world: "pipeline:state/plugin",
    generate_all,
});

use crate::component::ClickHouse;
export!(ClickHouse);
