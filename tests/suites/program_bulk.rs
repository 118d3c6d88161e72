//! The program on many states at once, and for scripts: listing, exporting, importing, JSON, help.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests break off to fail"
)]

mod support;

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::process::{Output, Stdio};

use serde_json::Value;
use support::server;
use support::shell::{Shell, failure, program, text};

const ONE: &str = r#"{"completed":{"singer_state":{"n":1}}}"#;

fn import(shell: &Shell, args: &[&str], text: &str) -> Output {
    let mut child = shell
        .command(&[&["import"], args].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let text = text.to_owned();
    // It may stop reading in the middle.
    let writer = std::thread::spawn(move || drop(stdin.write_all(text.as_bytes())));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn what_is_exported_is_imported_byte_for_byte() {
    let shell = Shell::new();
    shell.ok(&[
        "set",
        "a",
        r#"{"completed":{"singer_state":{"n":18446744073709551617,"s":"\ud800"}}}"#,
    ]);
    shell.ok(&[
        "set",
        "b \"x\"\n",
        r#"{"partial":{"singer_state":  {}},"completed":{"singer_state":{"x":1.0}}}"#,
    ]);
    shell.ok(&["set", "c", "{}"]);
    let exported = shell.ok(&["export"]);
    assert_eq!(
        exported,
        "{\n\"a\": {\"completed\": {\"singer_state\":{\"n\":18446744073709551617,\"s\":\"\\ud800\"}}, \"partial\": {}},\n\
         \"b \\\"x\\\"\\n\": {\"completed\": {\"singer_state\":{\"x\":1.0}}, \"partial\": {\"singer_state\":  {}}},\n\
         \"c\": {\"completed\": {}, \"partial\": {}}\n}\n"
    );
    let other = Shell::new();
    assert_eq!(other.ok(&["export"]), "{}\n");
    for _again in 0..2 {
        let output = import(&other, &[], &exported);
        assert_eq!(
            (output.status.code(), text(&output.stderr)),
            (Some(0), "imported 3 states\n")
        );
    }
    assert_eq!(other.ok(&["export"]), exported);
    assert_eq!(
        other.ok(&["export", "--pattern", "[bc]*"]).lines().count(),
        4
    );

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("states.json");
    let file = file.to_str().unwrap();
    let output = shell.command(&["export", "-o", file]).output().unwrap();
    assert_eq!(text(&output.stderr), "exported 3 states\n");
    assert_eq!(fs::read_to_string(file).unwrap(), exported);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    // What fails leaves the file as it is, and nothing beside it.
    let wrong = ["--uri", "clickhouse://app:x@127.0.0.1:1/db"];
    let (code, _) = failure(
        &program(&[&["export", "-o", file], &wrong[..]].concat())
            .output()
            .unwrap(),
    );
    assert_eq!(code, 7);
    assert_eq!(fs::read_to_string(file).unwrap(), exported);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// As Meltano prints it, with null for a document that was never there.
#[test]
fn what_meltano_exports_is_imported() {
    let shell = Shell::new();
    let exported = r#"{"a":{"completed":{"singer_state":{"n":1}},"partial":null},"b":{"completed":null,"partial":{"singer_state":{}}},"a":{"completed":{"singer_state":{"n":2}},"partial":{}}}"#;
    let output = import(&shell, &["--json"], exported);
    assert_eq!(text(&output.stdout), "{\"imported\":3}\n");
    assert_eq!(
        shell.ok(&["export"]),
        "{\n\"a\": {\"completed\": {\"singer_state\":{\"n\":2}}, \"partial\": {}},\n\
         \"b\": {\"completed\": {}, \"partial\": {\"singer_state\":{}}}\n}\n"
    );
}

#[test]
fn a_file_that_is_broken_is_imported_up_to_there() {
    let good = |n: usize| format!("\"s{n:05}\": {ONE}");
    let many: Vec<String> = (0..2_500).map(good).collect();
    for (end, why) in [
        (", nonsense}", "line 1 column"),
        ("", "EOF"),
        (", \"x\": 1}", "the state `x`"),
        (", \"x\": {\"completed\": {\"n\": 1}}}", "singer_state"),
        ("} x", "trailing"),
    ] {
        let shell = Shell::new();
        let output = import(&shell, &[], &format!("{{{}{end}", many.join(", ")));
        let (code, message) = failure(&output);
        assert_eq!(code, 2, "{message}");
        assert!(
            message.contains(why) && message.contains("2500 states were stored"),
            "{message}"
        );
        assert_eq!(shell.ok(&["list"]).lines().count(), 2_500);
    }
    let shell = Shell::new();
    for text in ["", "[]", "1", "nonsense"] {
        let (code, message) = failure(&import(&shell, &[], text));
        assert_eq!(code, 2, "{message}");
        assert!(message.contains("0 states were stored"), "{message}");
    }
    let output = import(&shell, &["--dry-run"], &format!("{{{}}}", many.join(",")));
    assert_eq!(
        text(&output.stderr),
        "2500 states can be imported; nothing was written\n"
    );
    assert_eq!(shell.ok(&["list"]), "");
    let (code, message) = failure(&shell.command(&["import", "missing.json"]).output().unwrap());
    assert_eq!(code, 1);
    assert!(message.contains("missing.json"), "{message}");
}

#[test]
fn states_under_a_lease_are_not_imported() {
    let shell = Shell::new();
    let holder = shell
        .command(&["lock", "run", "a", "--owner", "nightly", "--", "cat"])
        .env("PATH", std::env::var_os("PATH").unwrap())
        .stdin(Stdio::piped())
        .spawn();
    let mut holder = holder.unwrap();
    while shell.ok(&["lock", "show"]).is_empty() {}
    let held = json_lines(&shell.ok(&["lock", "show", "--json"]));
    assert_eq!(
        (&held[0]["id"], &held[0]["owner"]),
        (&"a".into(), &"nightly".into())
    );
    let file = format!("{{\"a\": {ONE}}}");
    let (code, message) = failure(&import(&shell, &[], &file));
    assert_eq!(code, 16, "{message}");
    assert_eq!(
        import(&shell, &["--ignore-lock"], &file).status.code(),
        Some(0)
    );
    let listed = json_lines(&shell.ok(&["list", "--long", "--json"]));
    assert_eq!(listed[0]["holder"], "nightly");
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
}

#[test]
fn listing_tells_what_meltano_reads() {
    let shell = Shell::new();
    shell.ok(&["set", "empty", "{}"]);
    shell.ok(&[
        "set",
        "invalid",
        r#"{"completed":{"n":1}}"#,
        "--no-validate",
    ]);
    shell.ok(&["set", "valid", ONE]);
    let long = shell.ok(&["list", "--long"]);
    let columns: Vec<Vec<&str>> = long
        .lines()
        .map(|line| line.split('\t').collect())
        .collect();
    for line in &columns {
        assert_eq!((line.len(), line[0], line[5]), (6, line[4], "-"), "{long}");
    }
    assert_eq!(columns[2][2], "24");
    let listed = json_lines(&shell.ok(&["list", "-l", "--json"]));
    assert_eq!(listed.len(), 3);
    for (object, line) in listed.iter().zip(&columns) {
        assert_eq!([&object["id"], &object["state"]], [line[0], line[4]]);
        assert_eq!(
            [&object["updated_at"], &object["version"]],
            [line[1], line[3]]
        );
        assert!(object["holder"].is_null());
    }
    assert_eq!(
        shell.ok(&["list", "--json", "--pattern", "v*"]),
        "{\"id\":\"valid\"}\n"
    );
}

#[test]
fn scripts_get_json_from_every_command() {
    let shell = Shell::new();
    let one = |args: &[&str]| {
        let lines =
            json_lines(&shell.ok(&[&["--json", "--setting", "history=true"], args].concat()));
        assert_eq!(lines.len(), 1, "{args:?}");
        lines.into_iter().next().unwrap()
    };
    let version = |args: &[&str]| {
        let object = one(args);
        assert_eq!(object["id"], args[1], "{args:?}");
        object["version"].as_str().unwrap().parse::<u64>().unwrap()
    };
    assert!(one(&["migrate"])["done"].as_array().unwrap().len() > 1);
    let first = version(&["set", "a", ONE]);
    let second = version(&["merge", "a", r#"{"singer_state":{"m":1}}"#]);
    assert!(second > first);
    let got = one(&["get", "a"]);
    assert_eq!(got["version"], second.to_string());
    assert_eq!(got["state"]["partial"]["singer_state"]["m"], 1);
    assert!(version(&["restore", "a", &first.to_string()]) > second);
    let history = json_lines(&shell.ok(&["--json", "--setting", "history=true", "history", "a"]));
    assert_eq!(history[2]["version"], first.to_string());
    assert_eq!(history[2]["state"]["completed"]["singer_state"]["n"], 1);
    assert_eq!(one(&["copy", "a", "b"])["id"], "b");
    assert_eq!(one(&["move", "b", "c"])["id"], "c");
    assert_eq!(one(&["delete", "c", "--force"])["deleted"], 1);
    let findings = json_lines(&shell.ok(&["--json", "doctor"]));
    assert!(
        findings
            .iter()
            .any(|finding| finding["subject"] == "server" && finding["severity"] == "fine")
    );
    assert_eq!(one(&["plugins", "list"])["scheme"], "clickhouse");
    let plugin = support::echo_plugin();
    let inspected = one(&["plugins", "inspect", plugin.to_str().unwrap()]);
    assert_eq!(inspected["plugin"]["name"], "echo");
}

#[test]
fn a_state_is_laid_out_for_people() {
    let shell = Shell::new();
    shell.ok(&["set", "a", ONE]);
    assert_eq!(
        shell.ok(&["get", "a", "--format", "pretty"]),
        "{\n  \"completed\": {\n    \"singer_state\": {\n      \"n\": 1\n    }\n  },\n  \"partial\": {}\n}\n"
    );
    assert_eq!(
        shell.ok(&["get", "a", "--format", "json"]),
        shell.ok(&["get", "a"])
    );
}

#[test]
fn shells_and_readers_are_told_of_every_command() {
    let print = |args: &[&str]| {
        let output = program(args).output().unwrap();
        assert_eq!(
            (output.status.code(), text(&output.stderr)),
            (Some(0), ""),
            "{args:?}"
        );
        text(&output.stdout).to_owned()
    };
    let help = print(&["--help"]);
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    assert!(commands.len() > 18, "{commands:?}");
    let mut missing = String::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = print(&["completions", shell]);
        for command in &commands {
            if !script.contains(command) {
                writeln!(missing, "{shell}: {command}").unwrap();
            }
        }
    }
    assert_eq!(missing, "");
    assert!(print(&["man"]).contains(".TH pipeline-state 1"));
    for command in commands.iter().filter(|command| **command != "help") {
        assert!(print(&["man", command]).contains(&format!(".TH pipeline-state-{command} 1")));
        assert!(print(&[command, "--help"]).contains("Usage: pipeline-state"));
    }
    let (code, message) = failure(&program(&["man", "lst"]).output().unwrap());
    assert_eq!(code, 2);
    assert!(message.contains("did you mean `list`?"), "{message}");
}

/// More leases than fit into one page of them.
#[test]
fn of_thousands_of_holders_none_is_overlooked() {
    let shell = Shell::new();
    shell.ok(&["migrate"]);
    let sql = |sql: &str| server().query(sql).unwrap();
    let schema = &shell.schema;
    sql(&format!(
        "INSERT INTO {schema}.state_lease \
         (state_id, epoch, token, owner, acquired_at, ttl_ms, released, writes, valid_until) \
         SELECT printf('s%04d', number), 1, printf('token-of-lease-%04d', number), 'nightly', now64(3), 60000, false, '', \
         now64(3) + 60 FROM numbers(2500)"
    ));
    let shown = shell.ok(&["lock", "show"]);
    assert_eq!(shown.lines().count(), 2_500);
    assert!(shown.lines().last().unwrap().starts_with("s2499\t"));
    let (code, message) = failure(&import(&shell, &[], &format!("{{\"s2400\": {ONE}}}")));
    assert_eq!(code, 16, "{message}");
    assert!(message.contains("nightly"), "{message}");
    let output = import(&shell, &[], &format!("{{\"s2500\": {ONE}}}"));
    assert_eq!(output.status.code(), Some(0));
}
