//! `wasmtime run --invoke`: each function of the contract, with its arguments and its result as text (WAVE).

use std::cell::RefCell;
use std::collections::BTreeSet;

use harness::workspace;

use crate::{Output, Schema, components, server, wasmtime};

const TOKEN: &str = "0123456789abcdef";

/// A target, and which functions were called with it.
struct Plugin {
    target: String,
    called: RefCell<BTreeSet<String>>,
}

impl Plugin {
    fn new(uri: &str, schema: &Schema) -> Plugin {
        let schema = &schema.0;
        Plugin {
            target: format!(
                r#"{{uri: "{uri}", settings: [("schema", "{schema}"), ("history", "true")]}}"#
            ),
            called: RefCell::default(),
        }
    }

    fn run(&self, call: &str) -> Output {
        let component = components().plugin.to_str().unwrap();
        wasmtime(&["--invoke", call, component], &[], "")
    }

    /// Calls a function with the target and `arguments`, and returns what is printed. An error of the contract is no error of wasmtime.
    fn call(&self, function: &str, arguments: &str) -> String {
        self.called.borrow_mut().insert(function.to_owned());
        let comma = if arguments.is_empty() { "" } else { ", " };
        let output = self.run(&format!("{function}({}{comma}{arguments})", self.target));
        assert_eq!(output.code, Some(0), "{function}: {}", output.stderr);
        output.stdout.trim_end().to_owned()
    }

    /// The same for a function whose result is a number in `ok(...)`.
    fn number(&self, function: &str, arguments: &str) -> u64 {
        let printed = self.call(function, arguments);
        let number = printed
            .strip_prefix("ok(")
            .and_then(|rest| rest.strip_suffix(')'));
        number.unwrap_or(&printed).parse().expect(&printed)
    }
}

/// The functions in `wit/`, apart from those of the systems that it stands on.
fn contract() -> BTreeSet<String> {
    let mut functions = BTreeSet::new();
    for file in std::fs::read_dir(workspace().join("wit")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "wit") {
            let text = std::fs::read_to_string(&path).unwrap();
            let names = text.lines().filter_map(|line| line.split_once(": func("));
            functions.extend(names.map(|(name, _)| name.trim().to_owned()));
        }
    }
    functions
}

#[test]
fn every_function_of_the_contract_can_be_invoked() {
    let schema = Schema::new();
    let plugin = Plugin::new(&server().uri("default"), &schema);

    let described = plugin.run("describe()").stdout;
    assert!(described.starts_with(r#"{name: "clickhouse", version: "#));
    plugin.called.borrow_mut().insert("describe".to_owned());

    // A store that was never written to.
    assert_eq!(plugin.call("get", r#""a""#), "ok(none)");
    assert_eq!(plugin.call("get-ids", r#""*", none, 10"#), "ok({ids: []})");

    let document = r#"{completed: some("{\"singer_state\":{\"n\":18446744073709551617}}")}"#;
    let set = plugin.number("set", &format!(r#""a", {document}, absent, none"#));
    let got = plugin.call("get", r#""a""#);
    let entry = format!(r#"ok(some({{id: "a", state: {document}, version: {set}, updated-at-ms: "#);
    assert!(got.starts_with(&entry), "{got}");
    let again = plugin.call("set", r#""a", {completed: some("{}")}, absent, none"#);
    assert_eq!(again, format!("err(conflict(some({set})))"));

    let partial = r#"{partial: some("{\"singer_state\":{\"m\":2}}")}"#;
    let updated = plugin.number("update", &format!(r#""a", {partial}, none"#));
    assert!(updated > set);
    let many = format!(r#"[("b", {document}), ("c", {partial})]"#);
    assert_eq!(plugin.number("set-many", &many), 2);
    assert_eq!(
        plugin.call("get-ids", r#""*", none, 2"#),
        r#"ok({ids: ["a", "b"], next: some("b")})"#
    );
    let page = plugin.call("get-page", r#""[bc]", none, 10"#);
    assert!(page.starts_with(r#"ok({entries: [{id: "b", "#), "{page}");
    assert!(page.contains(r#"{id: "c", "#), "{page}");
    let expected = format!(r#""a", version({updated}), none"#);
    assert_eq!(plugin.call("delete", &expected), "ok(true)");
    assert_eq!(plugin.call("delete", r#""a", any, none"#), "ok(false)");

    // Each call is another process: a lease is what was printed.
    let request = format!(r#"{{token: "{TOKEN}", ttl-ms: 60000, owner: "a test"}}"#);
    let acquired = plugin.call("acquire", &format!(r#""b", {request}"#));
    let lease = acquired.strip_prefix("ok(").unwrap();
    let lease = lease.strip_suffix(')').unwrap();
    let held = plugin.call("set", &format!(r#""b", {partial}, any, some("{TOKEN}")"#));
    assert!(held.starts_with("ok("), "{held}");
    let other = plugin.call(
        "acquire",
        &format!(r#""b", {}"#, request.replace("0123", "4567")),
    );
    assert!(
        other.starts_with(r#"err(locked(some({id: "b", "#),
        "{other}"
    );
    let renewed = plugin.call("renew", &format!("{lease}, 50000"));
    let lease = renewed.strip_prefix("ok(").unwrap();
    let lease = lease.strip_suffix(')').unwrap();
    let leases = plugin.call("inspect", r#""*", none, 10"#);
    assert_eq!(leases, format!("ok({{leases: [{lease}]}})"));
    assert_eq!(plugin.call("release", lease), "ok");
    assert_eq!(
        plugin.call("inspect", r#""*", none, 10"#),
        "ok({leases: []})"
    );
    plugin.call("acquire", &format!(r#""c", {request}"#));
    let token = format!(r#""c", "{TOKEN}""#);
    assert_eq!(plugin.call("break-lease", &token), "ok(true)");
    assert_eq!(plugin.call("break-lease", &token), "ok(false)");

    let versions = plugin.call("versions", r#""a", none, 10"#);
    for version in [updated, set] {
        assert!(
            versions.contains(&format!("{{version: {version}, ")),
            "{versions}"
        );
    }
    let findings = plugin.call("check", "");
    assert!(
        findings.starts_with(r#"ok([{severity: fine, subject: "server", "#),
        "{findings}"
    );
    assert_eq!(plugin.call("migrate", ""), "ok([])");
    assert_eq!(plugin.number("clear", ""), 2);

    assert_eq!(plugin.called.take(), contract());
}

#[test]
fn an_error_is_a_result_that_is_printed_without_the_password() {
    let schema = Schema::new();
    let address = server().address();
    for (uri, kind) in [
        (
            format!("clickhouse://nobody:hidden@{address}/db"),
            "unauthenticated",
        ),
        (
            String::from("clickhouse://app:hidden@127.0.0.1:1/db"),
            "unavailable",
        ),
        (
            String::from("clickhouse://:hidden@127.0.0.1/db"),
            "missing-setting",
        ),
        (
            String::from("clickhouse://app:hidden@127.0.0.1:9000/db"),
            "invalid-input",
        ),
    ] {
        let printed = Plugin::new(&uri, &schema).call("get", r#""a""#);
        assert!(printed.starts_with(&format!("err({kind}(")), "{printed}");
        assert!(!printed.contains("hidden"), "{printed}");
    }
}
