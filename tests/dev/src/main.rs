//! `cargo dev <task>`: what cargo alone cannot do for this workspace.

mod clickhouse;
mod components;
mod conformance;
mod crates;
mod demo;
mod node;
mod package;
mod python;
mod run;
mod server;
mod setup;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Sets the machine up, starts a real ClickHouse, shows and tests the product
#[derive(Parser)]
#[command(name = "cargo dev", bin_name = "cargo dev")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what the builds and tests need, if anything is missing
    Setup,
    /// Start a ClickHouse for you and print its URI; it ends with Ctrl-C
    Clickhouse {
        /// The port to listen on
        #[arg(long, default_value_t = 8123)]
        port: u16,
    },
    /// Show the main job against a real ClickHouse, each command with its output
    Demo,
    /// Measure what a call costs, side by side with a native client, in a release build
    Bench {
        /// A tenth of the rounds
        #[arg(long)]
        quick: bool,
    },
    /// Build the plugin as a file for other hosts, target/components/clickhouse.wasm, and with commands in it for `wasmtime run`,
    /// pipeline-state-clickhouse.wasm
    Components,
    /// Run both of these with the wasmtime program against a real ClickHouse: every function and every command
    Smoke,
    /// Build the npm package of `host/node`, run its tests against a real ClickHouse, and its example
    Node {
        /// Measure too what a call costs, side by side with a plain request
        #[arg(long)]
        bench: bool,
    },
    /// Build the Python package of `host/python`, check it, run its tests against a real ClickHouse and in a real Meltano
    /// project, and its example
    Python {
        /// Measure too what a first get and each further one cost
        #[arg(long)]
        bench: bool,
    },
    /// Run the conformance suite through every host, and put its table into README.md
    Conformance,
    /// Build everything that is given away into target/package/out (components, contract, wheel, npm package, crates, digests), and
    /// try each as its user would
    Package,
    /// Run every check: formatting, lints, tests, documentation
    Test {
        /// Formatting and tests alone
        #[arg(long)]
        quick: bool,
        /// Passed on to `cargo test`, which is then all that is run of the tests
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// Run the tests that take long: the larger searches of the model of leases, their fault test for ten minutes,
    /// 100,000 gets, and the program on a million states
    TestLong,
}

fn main() -> ExitCode {
    let result = match Args::parse().task {
        Task::Setup => setup::for_tests(),
        Task::Clickhouse { port } => clickhouse::clickhouse(port),
        Task::Demo => setup::setup().and_then(|()| demo::demo()),
        Task::Bench { quick } => setup::setup().and_then(|()| {
            // With the program, which the bench runs too.
            let built = [
                "--release",
                "--locked",
                "--package",
                "bench",
                "--package",
                "pipeline-state",
            ];
            run::step(run::cargo(&["build"]).args(built))?;
            let mut bench =
                run::cargo(&["run", "--release", "--locked", "--package", "bench", "--"]);
            bench.env("PIPELINE_STATE_BENCH_MELTANO", python::meltano()?);
            run::step(bench.args(quick.then_some("--quick")))
        }),
        Task::Components => setup::setup().and_then(|()| {
            components::plugin()?;
            components::command().map(drop)
        }),
        Task::Smoke => setup::for_smoke().and_then(|()| test::smoke()),
        Task::Node { bench } => setup::for_node().and_then(|()| node::node(bench)),
        Task::Python { bench } => setup::setup().and_then(|()| python::python(bench)),
        Task::Conformance => setup::for_node().and_then(|()| conformance::conformance()),
        Task::Package => setup::for_smoke()
            .and_then(|()| setup::for_node())
            .and_then(|()| package::package()),
        Task::Test { quick, args } => setup::for_tests()
            .and_then(|()| setup::for_node())
            .and_then(|()| test::test(quick, &args)),
        Task::TestLong => setup::for_tests().and_then(|()| test::long()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("cargo dev: {why}");
            ExitCode::FAILURE
        }
    }
}
