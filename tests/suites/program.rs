//! The program, as a person or a script runs it: output, exit codes, where the URI comes from, bad input.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests break off to fail"
)]

mod support;

use std::io::Write;
use std::process::Stdio;

use harness::fresh_name;
use support::shell::{Shell, failure, program, text};
use support::{echo_plugin, server};

const ID: &str = "dev:tap-a-to-target-b";
const STATE: &str = r#"{"completed":{"singer_state":{"bookmarks":{}}}}"#;
const BAD: &str = r#"{"completed":{"bad":1}}"#;
const PRINTED: &str = "{\"completed\": {\"singer_state\":{\"bookmarks\":{}}}, \"partial\": {}}\n";

#[test]
fn the_main_job() {
    let shell = Shell::new();
    assert_eq!(shell.ok(&["list"]), "");
    assert_eq!(shell.ok(&["set", ID, STATE]), "");
    assert_eq!(shell.ok(&["get", ID]), PRINTED);
    assert_eq!(shell.ok(&["set", "prod:x", STATE]), "");
    assert_eq!(shell.ok(&["list", "--pattern", "dev:*"]), format!("{ID}\n"));
    assert_eq!(shell.ok(&["list"]), format!("{ID}\nprod:x\n"));
    assert_eq!(shell.ok(&["delete", ID, "--force"]), "");
    let (code, message) = failure(&shell.command(&["get", ID]).output().unwrap());
    assert_eq!(
        (code, &*message),
        (3, "error: there is no state `dev:tap-a-to-target-b`\n")
    );
    let gone = shell.command(&["delete", ID, "--force"]).output().unwrap();
    assert_eq!(failure(&gone).0, 3);
}

#[test]
fn what_get_prints_set_takes() {
    let shell = Shell::new();
    shell.ok(&[
        "set",
        "a",
        r#"{"partial": {"x": [1.0, "\ud800"]}, "completed": {"b": 18446744073709551617}}"#,
        "--no-validate",
    ]);
    let printed = shell.ok(&["get", "a"]);
    shell.ok(&["set", "b", &printed, "--no-validate"]);
    assert_eq!(shell.ok(&["get", "b"]), printed);
}

#[test]
fn a_state_comes_from_a_file_or_stdin() {
    let shell = Shell::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.json");
    std::fs::write(&file, STATE).unwrap();
    shell.ok(&["set", "file", "--input-file", file.to_str().unwrap()]);
    assert_eq!(shell.ok(&["get", "file"]), PRINTED);

    let mut child = shell
        .command(&["set", "stdin", "--input-file", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(STATE.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(shell.ok(&["get", "stdin"]), PRINTED);

    let missing = folder.path().join("missing.json");
    let (code, message) = failure(
        &shell
            .command(&["set", "x", "--input-file", missing.to_str().unwrap()])
            .output()
            .unwrap(),
    );
    assert_eq!(code, 1);
    assert!(message.contains("missing.json"), "{message}");
}

#[test]
fn clear_needs_force() {
    let shell = Shell::new();
    shell.ok(&["set", "a", STATE]);
    let (code, message) = failure(&shell.command(&["clear", "--all"]).output().unwrap());
    assert_eq!(code, 2);
    assert!(message.contains("--force"), "{message}");
    assert_eq!(shell.ok(&["list"]), "a\n");
    let output = shell
        .command(&["clear", "--all", "--force"])
        .output()
        .unwrap();
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(0), "deleted 1 states\n")
    );
    assert_eq!(shell.ok(&["list"]), "");
}

#[test]
fn the_uri_and_settings_come_from_flags_then_our_variables_then_meltanos() {
    let [flag, ours, meltano] = ["flag", "ours", "meltano"].map(fresh_name);
    let uri = server().uri("default");
    for schema in [&flag, &ours, &meltano] {
        let output = program(&[
            "--uri",
            &uri,
            "--setting",
            &format!("schema={schema}"),
            "set",
            schema,
            STATE,
        ])
        .output()
        .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let schema_setting = format!("schema={flag}");
    let list = |args: &[&str], variables: &[(&str, &str)]| {
        let output = program(args)
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout).trim_end().to_owned()
    };
    let wrong = "clickhouse://nobody@127.0.0.1:1/x";
    let meltano_uri = ("MELTANO_STATE_BACKEND_URI", &*uri);
    let meltano_schema = ("MELTANO_STATE_BACKEND_CLICKHOUSE_SCHEMA", &*meltano);
    let our_schema = ("PIPELINE_STATE_CLICKHOUSE_SCHEMA", &*ours);
    assert_eq!(list(&["list"], &[meltano_uri, meltano_schema]), meltano);
    assert_eq!(
        list(&["list"], &[meltano_uri, meltano_schema, our_schema]),
        ours
    );
    assert_eq!(
        list(
            &["--setting", &schema_setting, "list"],
            &[meltano_uri, meltano_schema, our_schema]
        ),
        flag
    );
    assert_eq!(
        list(
            &["list"],
            &[
                ("MELTANO_STATE_BACKEND_URI", wrong),
                ("PIPELINE_STATE_URI", &uri),
                meltano_schema
            ]
        ),
        meltano
    );
    assert_eq!(
        list(
            &["list", "--uri", &uri],
            &[("PIPELINE_STATE_URI", wrong), meltano_schema]
        ),
        meltano
    );
    // A setting wins over the URI, also one of Meltano's over the flag's URI.
    assert_eq!(
        list(
            &["list", "--uri", &format!("{uri}?schema={ours}")],
            &[meltano_schema]
        ),
        meltano
    );
    assert_eq!(
        list(&["list", "--uri", &format!("{uri}?schema={ours}")], &[]),
        ours
    );
}

/// Each kind of bad input: its exit code, and a word of the mend.
#[test]
fn bad_input_is_told_in_one_line_with_its_own_exit_code() {
    let address = server().address();
    let good = server().uri("default");
    let wrong_password = format!("clickhouse://app:hunter2sekret@{address}/db");
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().to_str().unwrap();
    let core = folder.path().join("core.bin");
    std::fs::write(&core, b"\0asm\x01\0\0\0").unwrap();
    let core = core.to_str().unwrap();
    for (args, code, mend) in [
        (&["list"][..], 4, "--uri"),
        (&["--uri", "", "list"], 4, "--uri"),
        (&["--uri", "sekret", "list"], 2, "clickhouse://"),
        (
            &["--uri", "clickhouse://app:1/sekret@h/db", "list"],
            2,
            "%2F",
        ),
        (
            &["--uri", "clickhouse://app:sekret@h:x/db", "list"],
            2,
            "port",
        ),
        (
            &["--uri", "clickhouse://app:sekret@h:9000/db", "list"],
            2,
            "8123",
        ),
        (
            &["--uri", "clickhouse://app:sekret@h:9440/db", "list"],
            2,
            "8443",
        ),
        (
            &["--uri", "clickhouse://app:sekret@h/db?tabel=x", "list"],
            2,
            "`table`",
        ),
        (
            &["--uri", &good, "--setting", "port=sekret", "list"],
            2,
            "whole number",
        ),
        (
            &["--uri", "clickhouse://:sekret@h/db", "list"],
            4,
            "user is required",
        ),
        (
            &["--uri", "clickhouse://app:sekret@h", "list"],
            4,
            "database is required",
        ),
        (
            &["--uri", "clickhouse://app:sekret@127.0.0.1:1/db", "list"],
            7,
            "check the host",
        ),
        (
            &[
                "--uri",
                "clickhouse://app:sekret@no-such-host.invalid/db",
                "list",
            ],
            7,
            "not known",
        ),
        (&["--uri", &wrong_password, "list"], 5, "password"),
        (
            &["--uri", &format!("{good}?secure=true"), "list"],
            7,
            "`secure`",
        ),
        (
            &["--uri", "mysql://app:sekret@h/db", "list"],
            11,
            "clickhouse",
        ),
        (&["--uri", &good, "set", "x", "nonsense"], 2, "singer_state"),
        (&["--uri", &good, "set", "x", "[]"], 2, "singer_state"),
        (
            &["--uri", &good, "set", "x", "{\"completed\":1}"],
            2,
            "singer_state",
        ),
        (
            &["--uri", &good, "--plugin-dir", empty, "list"],
            12,
            ".wasm",
        ),
        (&["plugins", "inspect", core], 12, "wasm-tools"),
        (&["plugins", "inspect", "missing.wasm"], 12, "missing.wasm"),
    ] {
        let (actual, message) = failure(&program(args).output().unwrap());
        assert_eq!(actual, code, "{args:?}: {message}");
        assert!(message.contains(mend), "{args:?}: {message}");
        assert!(
            !message.contains("sekret") && !message.contains("panicked"),
            "{message}"
        );
    }
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for args in [
        &["nonsense"][..],
        &[],
        &["get"],
        &["set", "x"],
        &["list", "--timeout", "0"],
        &["list", "--setting", "sekret"],
    ] {
        let output = program(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn a_timeout_may_be_as_long_as_one_likes() {
    let shell = Shell::new();
    assert_eq!(shell.ok(&["--timeout", "1e18", "list"]), "");
}

#[test]
fn another_plugin_serves_its_scheme() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(echo_plugin(), folder.path().join("echo.wasm")).unwrap();
    let folder = folder.path().to_str().unwrap();
    let output = program(&["--plugin-dir", folder, "--uri", "echo://x/", "get", "a"])
        .output()
        .unwrap();
    assert_eq!(
        text(&output.stdout),
        "{\"completed\": {\"answer\":\"echo://x/\"}, \"partial\": {}}\n"
    );
    let output = program(&["--plugin-dir", folder, "plugins", "list"])
        .output()
        .unwrap();
    let listed = text(&output.stdout);
    assert!(
        listed.contains("clickhouse\t") && listed.contains("echo\t") && listed.contains("sha256:"),
        "{listed}"
    );
    let (code, message) = failure(
        &program(&[
            "--plugin-dir",
            folder,
            "--uri",
            "echo://127.0.0.1:5/",
            "get",
            "http://127.0.0.1:6/",
        ])
        .output()
        .unwrap(),
    );
    assert_eq!(code, 13);
    assert!(
        message.contains("GET http://127.0.0.1:6") && message.contains("http://127.0.0.1:5"),
        "{message}"
    );
    let (code, message) = failure(
        &program(&[
            "--plugin-dir",
            folder,
            "--uri",
            "echo://x/",
            "set",
            "trap",
            STATE,
            "--force",
        ])
        .output()
        .unwrap(),
    );
    assert_eq!(code, 14);
    assert!(message.contains("may have been stored or not"), "{message}");
}

#[test]
fn inspecting_a_plugin_prints_what_it_imports_and_says() {
    let output = program(&["plugins", "inspect", echo_plugin().to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success());
    let printed = text(&output.stdout);
    for part in [
        "digest   sha256:",
        "  wasi:http/types@0.2.12\n",
        "  pipeline:state/store@0.1.0\n",
        "plugin   echo 0.1.0\n",
        "MELTANO_STATE_BACKEND_ECHO_HOST",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
}

#[test]
fn a_pipe_that_is_closed_is_no_error() {
    let shell = Shell::new();
    shell.ok(&["set", "a", STATE]);
    let mut child = shell
        .command(&["list"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

#[test]
fn verbose_tells_of_requests_and_shows_no_secret() {
    let shell = Shell::new();
    let output = shell.command(&["-vv", "list"]).output().unwrap();
    let log = text(&output.stderr);
    assert!(
        log.contains("POST") && log.contains(&server().address()),
        "{log}"
    );
    let (_, password) = server().user();
    assert!(!log.contains(password) && !log.contains("Basic"), "{log}");
}

#[test]
fn a_bad_write_is_seen_in_the_history_and_undone() {
    let shell = Shell::new();
    let (code, message) = failure(&shell.command(&["history", ID]).output().unwrap());
    assert_eq!(code, 2);
    assert!(message.contains("`migrate`"), "{message}");

    let on = ["--setting", "history=true"];
    let run = |args: &[&str]| shell.ok(&[&on[..], args].concat());
    run(&["set", ID, STATE]);
    run(&["set", ID, BAD, "--no-validate", "--force"]);
    run(&["delete", ID, "--force"]);
    let history = run(&["history", ID]);
    let lines: Vec<Vec<&str>> = history
        .lines()
        .map(|line| line.split('\t').collect())
        .collect();
    let [deleted, bad, good] = lines.as_slice() else {
        panic!("{history}")
    };
    assert_eq!(deleted[2], "deleted");
    assert!(bad[2].contains("bad"));
    assert_eq!(good[2], PRINTED.trim_end());
    assert!(
        good[1].ends_with('Z') && good[1].starts_with("20"),
        "{history}"
    );

    run(&["restore", ID, good[0]]);
    assert_eq!(run(&["get", ID]), PRINTED);
    // It is a new version: what was before is still there.
    assert_eq!(run(&["history", ID, "--limit", "9"]).lines().count(), 4);
    run(&["restore", ID, deleted[0]]);
    assert_eq!(failure(&shell.command(&["get", ID]).output().unwrap()).0, 3);
    let (code, message) = failure(&shell.command(&["restore", ID, "7"]).output().unwrap());
    assert_eq!(code, 3);
    assert!(message.contains("no version 7"), "{message}");
}

#[test]
fn the_doctor_looks_at_everything_and_tables_are_brought_up_to_date() {
    let shell = Shell::new();
    let fresh = shell.ok(&["doctor"]);
    assert!(
        fresh.contains("fine     server      ClickHouse "),
        "{fresh}"
    );
    assert!(fresh.contains("does not exist"), "{fresh}");
    let done = shell.ok(&["--setting", "history=1", "migrate"]);
    assert_eq!(done.lines().count(), 4, "{done}");
    assert_eq!(
        shell.ok(&["--setting", "history=1", "migrate"]),
        "nothing to do\n"
    );
    let well = shell.ok(&["doctor"]);
    assert!(
        !well.contains("warning") && well.contains("history"),
        "{well}"
    );

    let output = shell
        .command(&["doctor", "--uri", "clickhouse://app:hunter2@127.0.0.1:1/db"])
        .output()
        .unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(
        (output.status.code(), err),
        (Some(1), "error: there is a problem\n")
    );
    assert!(
        out.contains("problem  server      nothing listens"),
        "{out}"
    );
    assert!(out.contains("-> check the host"), "{out}");
    assert!(!out.contains("hunter2"));
}

/// The environment wins over `.env`, that over `meltano.yml`, and all of them say so to the doctor, but not what they hold.
#[test]
fn a_meltano_project_says_where_its_state_is() {
    let shell = Shell::new();
    shell.ok(&["set", "here", STATE]);
    let project = tempfile::tempdir().unwrap();
    let (user, password) = server().user();
    let file = |name: &str, text: String| std::fs::write(project.path().join(name), text).unwrap();
    file(
        "meltano.yml",
        format!(
            "state_backend:\n  uri: clickhouse://{user}:${{SEKRET}}@{}/default\n  clickhouse: {{schema: {}, table: wrong}}\n",
            server().address(),
            shell.schema
        ),
    );
    file(
        ".env",
        format!("SEKRET={password}\nMELTANO_STATE_BACKEND_CLICKHOUSE_TABLE=state\n"),
    );
    let below = project.path().join("a/b");
    std::fs::create_dir_all(&below).unwrap();
    let run = |args: &[&str], schema: &str| {
        let mut command = program(args);
        command.env("PIPELINE_STATE_CLICKHOUSE_SCHEMA", schema);
        let output = command.current_dir(&below).output().unwrap();
        assert_eq!(text(&output.stderr), "", "{args:?}");
        text(&output.stdout).to_owned()
    };
    assert_eq!(run(&["list"], ""), "here\n");
    assert_eq!(run(&["list"], &fresh_name("suite")), "");
    let doctor = run(&["doctor"], "");
    assert!(
        doctor.contains("the URI is from state_backend.uri in "),
        "{doctor}"
    );
    assert!(
        doctor.contains("`table` is from MELTANO_STATE_BACKEND_CLICKHOUSE_TABLE in "),
        "{doctor}"
    );
    assert!(!doctor.contains(password), "{doctor}");
}
