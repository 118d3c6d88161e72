//! The contract, seen from its other side, and what a command has of WASI: arguments, environment and the three streams.

#![allow(
    missing_docs,
    unreachable_pub,
    unsafe_code,
    clippy::all,
    clippy::restriction,
    reason = "generated"
)]

wit_bindgen::generate!({
    inline: "
        package pipeline:command;

        world command {
            import wasi:cli/environment@0.2.12;
            import wasi:cli/exit@0.2.12;
            import wasi:cli/stdin@0.2.12;
            import wasi:cli/stdout@0.2.12;
            import wasi:cli/stderr@0.2.12;

            import pipeline:state/registration@0.1.0;
            import pipeline:state/store@0.1.0;
            import pipeline:state/locks@0.1.0;
            import pipeline:state/history@0.1.0;
            import pipeline:state/maintenance@0.1.0;

            export wasi:cli/run@0.2.12;
        }
    ",
    path: "../../wit",
    generate_all,
});

use crate::component::Program;
export!(Program);
