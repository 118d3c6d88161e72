//! `cargo dev demo`: the main job on a real ClickHouse. Each command is shown as a reader can type it,
//! and each answer is checked: a demo that shows something wrong fails.

use std::process::Command;

use harness::{ClickHouse, workspace};

use crate::run::{capture, cargo, shown, step};

/// What a tap writes: a Singer state of tap-github, inside what Meltano stores.
const STATE: &str = r#"{"completed": {"singer_state": {"bookmarks": {"issues": {"starting_replication_value": null, "replication_key": "updated_at", "replication_key_value": "2026-11-30T21:14:07Z"}, "stargazers": {"since": 18446744073709551617}}}}}"#;
/// The same as it is printed: the documents byte for byte, and the one that is absent as empty.
const PRINTED: &str = r#"{"completed": {"singer_state": {"bookmarks": {"issues": {"starting_replication_value": null, "replication_key": "updated_at", "replication_key_value": "2026-11-30T21:14:07Z"}, "stargazers": {"since": 18446744073709551617}}}}, "partial": {}}"#;
const ID: &str = "dev:tap-github-to-target-jsonl";
const NO_SUCH_STATE: i32 = 3;

pub(crate) fn demo() -> Result<(), String> {
    step(&mut cargo(&["build", "--locked"]))?;
    let server = ClickHouse::start().map_err(|error| error.to_string())?;
    // A database of its own, since the server may be the user's.
    let schema = harness::fresh_name("pipeline_state_demo");
    let demo = Demo {
        uri: server.uri("default"),
        schema: schema.clone(),
    };
    let result = demo.run(&server);
    server
        .query(&format!("DROP DATABASE IF EXISTS {schema}"))
        .map_err(|error| error.to_string())?;
    result?;
    println!("\nState was set, read back, listed and deleted in a real ClickHouse.");
    Ok(())
}

struct Demo {
    uri: String,
    schema: String,
}

impl Demo {
    fn run(&self, server: &ClickHouse) -> Result<(), String> {
        println!("\n$ export PATH=$PWD/target/debug:$PATH");
        println!("$ export MELTANO_STATE_BACKEND_URI={}", self.uri);
        println!(
            "$ export MELTANO_STATE_BACKEND_CLICKHOUSE_SCHEMA={}",
            self.schema
        );

        self.expect(&["list"], 0, "")?;
        self.expect(&["set", ID, STATE], 0, "")?;
        self.expect(&["get", ID], 0, &format!("{PRINTED}\n"))?;
        self.expect(&["list", "--pattern", "dev:*"], 0, &format!("{ID}\n"))?;

        let sql = format!(
            "SELECT state_id, partial_state, left(completed_state, 30), updated_at FROM {}.state FINAL FORMAT Vertical",
            self.schema
        );
        println!(
            "$ curl -u USER:PASSWORD http://{}/ --data-binary \"{sql}\"",
            server.address()
        );
        let rows = server.query(&sql).map_err(|error| error.to_string())?;
        print!("{rows}");
        if !rows.contains(ID) {
            return Err("the table does not hold the state".to_owned());
        }

        self.expect(&["delete", ID, "--force"], 0, "")?;
        self.expect(&["get", ID], NO_SUCH_STATE, "")?;
        self.expect(&["list"], 0, "")
    }

    /// Runs the program, shows what it was told and says, and holds that against what it should say.
    fn expect(&self, args: &[&str], code: i32, stdout: &str) -> Result<(), String> {
        let mut program = Command::new(workspace().join("target/debug/pipeline-state"));
        program
            .args(args)
            .env("MELTANO_STATE_BACKEND_URI", &self.uri)
            .env("MELTANO_STATE_BACKEND_CLICKHOUSE_SCHEMA", &self.schema);
        let shown = shown(&program);
        println!("$ {shown}");
        let output = capture(&mut program)?;
        print!("{}{}", output.stdout, output.stderr);
        if output.code == Some(code) && output.stdout == stdout {
            return Ok(());
        }
        Err(format!(
            "{shown} ended with {:?} and the output above; it should end with {code} and print:\n{stdout}",
            output.code
        ))
    }
}
