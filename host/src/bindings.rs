//! The contract as Rust, made from `wit/`. What a plugin imports of WASI is wasmtime's own.

#![allow(
    missing_docs,
    unreachable_pub,
    reason = "generated; the WIT files hold the documentation"
)]

wasmtime::component::bindgen!({
    path: "../wit",
    world: "pipeline:state/plugin",
    imports: { default: async | trappable },
    exports: { default: async },
    with: {
        "wasi:clocks": wasmtime_wasi::p2::bindings::clocks,
        "wasi:http": wasmtime_wasi_http::p2::bindings::http,
        "wasi:random": wasmtime_wasi::p2::bindings::random,
        "wasi:io": wasmtime_wasi::p2::bindings::io,
    },
});
