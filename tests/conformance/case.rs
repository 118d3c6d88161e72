//! Cases and hosts as data, and how a case is run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use harness::{Behaviour, ClickHouse, Hostile, fresh_name, workspace};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use crate::driver::Driver;
use crate::pattern::{Kept, differs, filled};

/// The operations and their arguments. What is neither that nor the runner's was misspelled, and would be passed over.
const OPERATIONS: [(&str, &[&str]); 18] = [
    ("acquire", &["id", "ttl_ms", "owner"]),
    ("break_lease", &["id", "token"]),
    ("check", &[]),
    ("clear", &[]),
    ("delete", &["id", "expect", "lease"]),
    ("describe", &[]),
    ("get", &["id"]),
    ("get_ids", &["pattern", "after", "limit"]),
    ("get_page", &["pattern", "after", "limit"]),
    ("inspect", &["pattern", "after", "limit"]),
    ("migrate", &[]),
    ("release", &["id", "token"]),
    ("renew", &["id", "token", "ttl_ms"]),
    ("set", &["id", "state", "expect", "lease"]),
    ("set_many", &["states"]),
    ("sql", &["sql"]),
    ("update", &["id", "state", "lease"]),
    ("versions", &["id", "before", "limit"]),
];

/// What one behaviour is, as calls and what they answer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    /// A sentence of behaviour.
    pub(crate) name: String,
    /// Which column of the table it counts in.
    pub(crate) area: String,
    /// What is otherwise than in the target of all cases.
    #[serde(default)]
    target: Target,
    /// Hosts that can't do it, and why.
    #[serde(default)]
    pub(crate) except: BTreeMap<String, String>,
    steps: Vec<Step>,
}

/// A store, or what is otherwise about it.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    uri: Option<Value>,
    #[serde(default)]
    settings: Map<String, Value>,
}

/// A call and its answer.
#[derive(Deserialize)]
struct Step {
    op: String,
    #[serde(default)]
    target: Target,
    /// What it must succeed with; null is something too.
    #[serde(default, deserialize_with = "there")]
    ok: Option<Value>,
    /// What it must fail with.
    #[serde(default, deserialize_with = "there")]
    error: Option<Value>,
    /// The name under which what it answers is kept for later steps.
    keep: Option<String>,
    #[serde(flatten)]
    arguments: Map<String, Value>,
}

fn there<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(value).map(Some)
}

/// A host and its driver.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Host {
    /// Its name in the table.
    pub(crate) host: String,
    /// The driver's command, in the root of the workspace.
    pub(crate) run: Vec<String>,
}

/// What is there for all cases.
pub(crate) struct World {
    pub(crate) server: ClickHouse,
    /// Takes what comes and says nothing.
    silent: Hostile,
}

impl World {
    pub(crate) fn new() -> Result<World, String> {
        Ok(World {
            // One that is given has no users with fewer rights.
            server: ClickHouse::start_on(0).map_err(|error| error.to_string())?,
            silent: Hostile::start(Behaviour::Silent).map_err(|error| error.to_string())?,
        })
    }

    /// What a case may name without having kept it.
    fn names(&self, schema: &str) -> Kept {
        let uri = self.server.uri("default");
        let (user, password) = self.server.user();
        let credentials = uri
            .strip_prefix("clickhouse://")
            .and_then(|rest| rest.rsplit_once('@'))
            .map_or("", |(credentials, _)| credentials);
        let names = [
            ("schema", schema),
            ("uri", &uri),
            (
                "reader",
                &self.server.reader_uri("default").unwrap_or_default(),
            ),
            ("credentials", credentials),
            ("address", &self.server.address()),
            ("user", user),
            ("password", password),
            ("silent", &self.silent.address().to_string()),
        ];
        names
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .into()
    }
}

/// A file of data beside this one.
pub(crate) fn read<T: DeserializeOwned>(file: &str) -> Result<T, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// All cases, or what is wrong with one of them.
pub(crate) fn cases() -> Result<Vec<Case>, String> {
    let cases: Vec<Case> = read("cases.json")?;
    let mut names = BTreeSet::new();
    for case in &cases {
        let step = |step: &Step| step.check().map_err(|why| format!("{}: {why}", case.name));
        case.steps.iter().try_for_each(step)?;
        if !names.insert(&case.name) {
            return Err(format!("two cases are called {}", case.name));
        }
    }
    Ok(cases)
}

impl Case {
    /// Runs it in a database of its own. The error says which step went wrong, and how.
    pub(crate) fn run(&self, world: &World, driver: &mut Driver) -> Result<(), String> {
        let schema = fresh_name("suite_conformance");
        let mut kept = world.names(&schema);
        let done = self.steps.iter().zip(1..).try_for_each(|(step, number)| {
            step.run(&self.target, world, driver, &mut kept)
                .map_err(|why| format!("step {number}, {}: {why}", step.op))
        });
        world
            .server
            .query(&format!("DROP DATABASE IF EXISTS `{schema}` SYNC"))
            .map_err(|error| error.to_string())?;
        done
    }
}

impl Step {
    fn check(&self) -> Result<(), String> {
        let known = OPERATIONS.iter().find(|(op, _)| *op == self.op);
        let (op, arguments) = known.ok_or_else(|| format!("there is no operation {}", self.op))?;
        if self.ok.is_some() && self.error.is_some() {
            return Err(format!("{op} has both `ok` and `error`"));
        }
        let unknown = self
            .arguments
            .keys()
            .find(|name| !arguments.contains(&name.as_str()));
        unknown.map_or(Ok(()), |name| Err(format!("{op} has no argument {name}")))
    }

    fn run(
        &self,
        base: &Target,
        world: &World,
        driver: &mut Driver,
        kept: &mut Kept,
    ) -> Result<(), String> {
        let arguments = filled(&Value::Object(self.arguments.clone()), kept)?;
        let answer = match (self.op.as_str(), &arguments) {
            ("sql", arguments) => sql(&world.server, arguments)?,
            (_, Value::Object(arguments)) => {
                let mut request = arguments.clone();
                request.insert("op".to_owned(), json!(self.op));
                request.insert("target".to_owned(), self.target(base, kept)?);
                driver.ask(&Value::Object(request))?
            }
            _ => return Err("arguments are members of the step".to_owned()),
        };
        let member = if self.error.is_some() { "error" } else { "ok" };
        let found = answer.get(member);
        let found = found.ok_or_else(|| format!("no `{member}`: {}", short(&answer)))?;
        // A step that says nothing of its answer must succeed, whatever that is.
        if let Some(expected) = self.error.as_ref().or(self.ok.as_ref())
            && let Some(why) = differs(expected, found, kept)?
        {
            return Err(format!("{why}, in {}", short(found)));
        }
        if let Some(name) = &self.keep {
            kept.insert(name.clone(), found.clone());
        }
        Ok(())
    }

    fn target(&self, base: &Target, kept: &Kept) -> Result<Value, String> {
        let uri = [&self.target.uri, &base.uri]
            .into_iter()
            .find_map(Option::clone)
            .unwrap_or_else(|| json!("$uri"));
        let mut settings = Map::from_iter([("schema".to_owned(), json!("$schema"))]);
        settings.extend(base.settings.clone());
        settings.extend(self.target.settings.clone());
        // One that is null is not given.
        settings.retain(|_, value| !value.is_null());
        filled(&json!({"uri": uri, "settings": settings}), kept)
    }
}

/// What some other program does to the table.
fn sql(server: &ClickHouse, arguments: &Value) -> Result<Value, String> {
    let text = arguments.get("sql").and_then(Value::as_str);
    let text = text.ok_or("it has no `sql`")?;
    match server.query(text) {
        Ok(answer) => Ok(json!({"ok": answer})),
        Err(error) => Err(error.to_string()),
    }
}

/// Enough of a value to see what is wrong.
fn short(value: &Value) -> String {
    const LONGEST: usize = 1_000;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", text.split_at(end).0),
        None => text,
    }
}

/// The command of a driver, whose paths are those of the workspace.
pub(crate) fn command(host: &Host) -> Result<std::process::Command, String> {
    let (program, arguments) = host
        .run
        .split_first()
        .ok_or_else(|| format!("{}: there is no command", host.host))?;
    let root = workspace();
    let mut command = match program.contains('/') {
        true => std::process::Command::new(root.join(program)),
        false => std::process::Command::new(program),
    };
    command.args(arguments).current_dir(root);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(text: &str) -> Step {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_step_that_expects_null_expects_something() {
        assert_eq!(step(r#"{"op": "get", "ok": null}"#).ok, Some(Value::Null));
        assert_eq!(step(r#"{"op": "get"}"#).ok, None);
    }

    #[test]
    fn what_is_misspelled_is_told() {
        for bad in [
            r#"{"op": "gett"}"#,
            r#"{"op": "get", "id": "a", "eror": {}}"#,
            r#"{"op": "get", "id": "a", "ok": 1, "error": {}}"#,
        ] {
            assert!(step(bad).check().is_err(), "{bad}");
        }
        assert_eq!(
            step(r#"{"op": "get", "id": "a", "ok": null, "keep": "x"}"#).check(),
            Ok(())
        );
    }

    #[test]
    fn the_cases_are_whole_and_the_hosts_that_they_except_exist() {
        let cases = cases().unwrap();
        let hosts: Vec<Host> = read("hosts.json").unwrap();
        for name in cases.iter().flat_map(|case| case.except.keys()) {
            assert!(hosts.iter().any(|host| host.host == *name), "{name}");
        }
    }
}
