//! The composed component: `wasmtime run -S http --env NAME pipeline-state-clickhouse.wasm COMMAND`.

use std::net::TcpListener;

use crate::{Output, Schema, command, components, server, wasmtime};

const STATE: &str =
    r#"{"completed": {"singer_state": {"n": 18446744073709551617}}, "partial": {}}"#;

/// How a test runs commands.
struct Store {
    variables: Vec<(&'static str, String)>,
    _schema: Schema,
}

impl Store {
    fn new() -> Store {
        Store::at(&server().uri("default"))
    }

    fn at(uri: &str) -> Store {
        let schema = Schema::new();
        let variables = vec![
            ("PIPELINE_STATE_URI", uri.to_owned()),
            ("PIPELINE_STATE_CLICKHOUSE_SCHEMA", schema.0.clone()),
        ];
        Store {
            variables,
            _schema: schema,
        }
    }

    /// The same with one more variable.
    fn with(mut self, name: &'static str, value: &str) -> Store {
        self.variables.push((name, value.to_owned()));
        self
    }

    /// Variables are handed on by their names alone, so that no value is an argument of a process.
    fn run(&self, args: &[&str], stdin: &str) -> Output {
        let variables: Vec<(&str, &str)> = self
            .variables
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let mut all = Vec::new();
        for (name, _) in &variables {
            all.extend(["--env", name]);
        }
        all.push(components().command.to_str().unwrap());
        all.extend(args);
        let output = wasmtime(&all, &variables, stdin);
        assert!(!output.stderr.contains("secret"), "{}", output.stderr);
        output
    }

    /// What a command prints that succeeds and says nothing else.
    fn prints(&self, args: &[&str]) -> String {
        let output = self.run(args, "");
        assert_eq!(
            (output.code, output.stderr.as_str()),
            (Some(0), ""),
            "{args:?}"
        );
        output.stdout
    }

    /// What a command says that fails with this code and prints nothing.
    fn fails(&self, args: &[&str], code: i32) -> String {
        let output = self.run(args, "");
        assert_eq!(
            (output.code, output.stdout.as_str()),
            (Some(code), ""),
            "{args:?}: {}",
            output.stderr
        );
        let line = output
            .stderr
            .strip_prefix("error: ")
            .expect("it is an error");
        line.strip_suffix('\n').expect("it is a line").to_owned()
    }
}

/// The members of the object that a command prints with `--json`.
fn member(json: &str, name: &str) -> serde_json::Value {
    let object: serde_json::Value = serde_json::from_str(json).expect(json);
    object.get(name).expect(json).clone()
}

#[test]
fn states_are_set_shown_merged_copied_moved_and_cleared() {
    let store = Store::new();
    assert_eq!(store.prints(&["list"]), "");
    assert_eq!(store.fails(&["get", "a"], 3), "there is no state `a`");

    assert_eq!(store.prints(&["set", "a", STATE]), "");
    assert_eq!(store.prints(&["get", "a"]), format!("{STATE}\n"));
    // The same again replaces nothing; something else does.
    assert_eq!(store.prints(&["set", "a", STATE]), "");
    let other = r#"{"singer_state": {"n": 2}}"#;
    assert_eq!(
        store.fails(&["set", "a", other], 2),
        "This replaces the state `a`, and nobody can be asked here: say --force if you mean it"
    );
    assert_eq!(store.prints(&["set", "--force", "a", other]), "");
    assert_eq!(
        store.prints(&["merge", "a", r#"{"singer_state": {"m": 3}}"#]),
        ""
    );
    let merged =
        r#"{"completed": {"singer_state": {"n": 2}}, "partial": {"singer_state": {"m": 3}}}"#;
    assert_eq!(store.prints(&["get", "a"]), format!("{merged}\n"));
    let json = store.prints(&["get", "a", "--json"]);
    assert_eq!(member(&json, "state").to_string(), merged.replace(' ', ""));

    assert_eq!(store.prints(&["copy", "a", "b"]), "");
    assert_eq!(store.prints(&["move", "b", "c"]), "");
    assert_eq!(store.prints(&["list"]), "a\nc\n");
    assert_eq!(store.prints(&["list", "--pattern", "[!a]"]), "c\n");
    let long = store.prints(&["list", "--long", "--pattern", "c"]);
    let columns: Vec<&str> = long.trim_end().split('\t').collect();
    let version = member(&store.prints(&["get", "c", "--json"]), "version");
    assert!(matches!(&columns[..], ["c", _, "52", shown, "valid", "-"] if *shown == version));

    let refused = store.fails(&["clear", "--pattern", "*"], 2);
    assert!(
        refused.starts_with("This deletes 2 states, `a` the first of them, "),
        "{refused}"
    );
    assert_eq!(store.prints(&["delete", "--force", "a"]), "");
    assert_eq!(
        store.fails(&["delete", "--force", "a"], 3),
        "there is no state `a`"
    );
    let all = store.run(&["clear", "--all", "--force"], "");
    assert_eq!(
        (all.code, all.stderr.as_str()),
        (Some(0), "deleted 1 states\n")
    );
}

#[test]
fn a_large_state_goes_in_and_out_by_pipes() {
    let store = Store::new();
    let document = format!(
        r#"{{"singer_state": {{"text": "{}"}}}}"#,
        "ä💾".repeat(50_000)
    );
    let set = store.run(&["set", "a", "--input-file", "-"], &document);
    assert_eq!((set.code, set.stderr.as_str()), (Some(0), ""));
    let printed = store.prints(&["get", "a"]);
    assert_eq!(
        printed,
        format!("{{\"completed\": {document}, \"partial\": {{}}}}\n")
    );
}

#[test]
fn a_lease_is_seen_and_kept_from() {
    let store = Store::new();
    store.prints(&["set", "a", STATE]);
    let token = "0123456789abcdef";
    let call = format!(
        r#"acquire({{uri: "{}", settings: [("schema", "{}")]}}, "a", {{token: "{token}", ttl-ms: 60000, owner: "a test"}})"#,
        store.variables[0].1, store.variables[1].1
    );
    let plugin = components().plugin.to_str().unwrap();
    assert!(
        wasmtime(&["--invoke", &call, plugin], &[], "")
            .stdout
            .starts_with("ok(")
    );

    let shown = store.prints(&["lock", "show"]);
    assert!(
        shown.starts_with("a\t") && shown.ends_with(&format!("\t{token}\ta test\n")),
        "{shown}"
    );
    assert!(
        store
            .prints(&["list", "--long"])
            .ends_with("\tvalid\ta test\n")
    );
    for command in [
        &["set", "a", "{}", "--force"][..],
        &["merge", "a", r#"{"singer_state": {}}"#],
        &["delete", "a", "--force"],
        &["clear", "--all", "--force"],
        &["move", "a", "b"],
    ] {
        let refused = store.fails(command, 16);
        assert!(
            refused.starts_with("`a` is locked by a test since 20"),
            "{refused}"
        );
        assert!(refused.contains(token), "{refused}");
    }
    assert_eq!(
        store.prints(&["set", "a", "{}", "--force", "--ignore-lock"]),
        ""
    );

    // What `lock run` gives to its command.
    let store = store
        .with("PIPELINE_STATE_LEASE_ID", "a")
        .with("PIPELINE_STATE_LEASE_TOKEN", token);
    assert_eq!(store.prints(&["set", "a", STATE, "--force"]), "");
    assert_eq!(store.prints(&["lock", "break", "a", token]), "");
    let gone = store.fails(&["lock", "break", "a", token], 3);
    assert!(gone.contains("is not held any more"), "{gone}");
    let lost = store.fails(&["set", "a", "{}", "--force"], 16);
    assert!(lost.starts_with("the lease is lost"), "{lost}");
}

#[test]
fn history_is_kept_and_restored_and_the_store_is_looked_at() {
    let store = Store::new().with("MELTANO_STATE_BACKEND_CLICKHOUSE_HISTORY", "true");
    assert!(store.prints(&["migrate"]).contains("state_history"));
    assert_eq!(store.prints(&["migrate"]), "nothing to do\n");
    let set = store.prints(&["set", "a", STATE, "--json"]);
    let version = member(&set, "version");
    store.prints(&["delete", "a", "--force"]);
    let history = store.prints(&["history", "a"]);
    let lines: Vec<&str> = history.lines().collect();
    assert!(lines[0].ends_with("\tdeleted"), "{history}");
    assert!(
        lines[1].starts_with(version.as_str().unwrap()) && lines[1].ends_with(STATE),
        "{history}"
    );
    assert_eq!(
        store.prints(&["restore", "a", version.as_str().unwrap()]),
        ""
    );
    assert_eq!(store.prints(&["get", "a"]), format!("{STATE}\n"));
    assert!(
        store
            .fails(&["restore", "a", "7"], 3)
            .contains("has no version 7")
    );

    let findings = store.prints(&["doctor"]);
    assert!(
        findings.starts_with("fine     server      ClickHouse "),
        "{findings}"
    );
    assert!(
        findings.contains("fine     history     kept in "),
        "{findings}"
    );
    let nobody = Store::at("clickhouse://nobody:hidden@127.0.0.1:1/db").run(&["doctor"], "");
    assert_eq!(
        (nobody.code, nobody.stderr.as_str()),
        (Some(1), "error: there is a problem\n")
    );
}

#[test]
fn what_goes_wrong_has_its_code_and_no_password() {
    let address = server().address();
    // It takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap();
    for (uri, code) in [
        (String::from("redis://app:secret@127.0.0.1/db"), 11),
        (String::from("clickhouse://:secret@127.0.0.1/db"), 4),
        (format!("clickhouse://nobody:secret@{address}/db"), 5),
        (String::from("clickhouse://app:secret@127.0.0.1:1/db"), 7),
        (
            format!("clickhouse://app:secret@{silent}/db?request_timeout=1"),
            8,
        ),
        (
            format!(
                "{}?table=a&setting_max_rows_to_read=x",
                server().uri("default")
            ),
            9,
        ),
    ] {
        Store::at(&uri).fails(&["get", "a"], code);
    }
    if let Some(reader) = server().reader_uri("default") {
        Store::at(&reader).fails(&["set", "a", STATE], 6);
    }
    let store = Store::at("");
    assert!(store.fails(&["list"], 4).starts_with("no URI is given"));
    let store = Store::new();
    for (line, words) in [
        (&["gte"][..], "no command `gte`"),
        (&["set", "a", "[]"], "not a state: "),
        (
            &["set", "a", r#"{"completed": {"x": 1}}"#],
            "has no `singer_state`",
        ),
        (&["copy", "a", "a"], "the same state"),
    ] {
        assert!(store.fails(line, 2).contains(words));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_stream_that_fails_is_told_in_one_line() {
    let full = std::fs::File::options().write(true).open("/dev/full");
    let component = components().command.to_str().unwrap();
    let help = command(&[component, "--help"])
        .stdout(full.unwrap())
        .output();
    let help = help.unwrap();
    let told = String::from_utf8(help.stderr).unwrap();
    assert_eq!(help.status.code(), Some(1));
    assert_eq!(told, "error: No space left on device (os error 28)\n");
}

#[test]
fn it_says_what_it_is() {
    let store = Store::at("");
    assert!(
        store
            .prints(&["--version"])
            .ends_with(" with clickhouse 0.1.0\n")
    );
    assert_eq!(store.prints(&["--help"]), store.prints(&[]));
    assert!(
        store
            .prints(&["--help"])
            .contains("Usage: wasmtime run -S http")
    );
}
