//! Settings of the Meltano project that the program is run in: its `.env`, and `state_backend` of its `meltano.yml`.

use std::collections::HashSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use pipeline_state::Error;
use serde_yaml_ng::Value;

/// Where variables of ours and of Meltano's begin. What comes after names the same thing in both.
const OURS: &str = "PIPELINE_STATE_";
const MELTANOS: &str = "MELTANO_STATE_BACKEND_";
const ROOT: &str = "MELTANO_PROJECT_ROOT";

/// A variable that counts, and where it is from.
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) place: String,
}

impl Variable {
    /// What it sets: `URI`, `CLICKHOUSE_HOST`.
    pub(super) fn subject(&self) -> &str {
        subject(&self.name).unwrap_or_default()
    }
}

fn subject(name: &str) -> Option<&str> {
    name.strip_prefix(OURS)
        .or_else(|| name.strip_prefix(MELTANOS))
        .filter(|subject| !subject.is_empty())
}

/// All that count: those of the environment, and what the project sets beside them.
pub(super) fn variables() -> Result<Vec<Variable>, Error> {
    let mut all = of_environment();
    if let Some(root) = root()? {
        let dotenv = dotenv(&root.join(".env"))?;
        let yml = meltano_yml(&root.join("meltano.yml"), &dotenv)?;
        add(&mut all, dotenv);
        add(&mut all, yml);
    }
    Ok(all)
}

pub(super) fn of_environment() -> Vec<Variable> {
    let set = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .map(|(name, value)| Variable {
            place: name.clone(),
            name,
            value,
        });
    let mut all = Vec::new();
    add(&mut all, set.collect());
    all
}

/// A source that comes later counts for what no earlier one sets.
fn add(all: &mut Vec<Variable>, more: Vec<Variable>) {
    let known: HashSet<String> = all.iter().map(|one| one.subject().to_owned()).collect();
    let counts = |one: &Variable| {
        subject(&one.name).is_some_and(|subject| !known.contains(subject)) && !one.value.is_empty()
    };
    all.extend(more.into_iter().filter(counts));
}

/// The nearest folder upward that has a `meltano.yml`, unless `MELTANO_PROJECT_ROOT` names one.
fn root() -> Result<Option<PathBuf>, Error> {
    if let Some(root) = env::var_os(ROOT).filter(|root| !root.is_empty()) {
        return Ok(Some(PathBuf::from(root)));
    }
    let Ok(here) = env::current_dir() else {
        return Ok(None);
    };
    let found = here
        .ancestors()
        .find(|folder| folder.join("meltano.yml").is_file());
    match found {
        Some(folder) if !is_ours(&folder.join("meltano.yml")) => Err(Error::InvalidInput(format!(
            "{} belongs to another user, who must not say where your passwords go; give --uri, or set {ROOT} if you trust it",
            folder.join("meltano.yml").display()
        ))),
        found => Ok(found.map(Path::to_owned)),
    }
}

/// In a folder that anybody can write to (`/tmp`), anybody can lay a project around us.
#[cfg(unix)]
fn is_ours(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let user = rustix::process::geteuid().as_raw();
    fs::metadata(path).is_ok_and(|file| file.uid() == user || file.uid() == 0)
}

#[cfg(not(unix))]
fn is_ours(_: &Path) -> bool {
    true
}

fn dotenv(path: &Path) -> Result<Vec<Variable>, Error> {
    if !path.is_file() {
        return Ok(Vec::new());
    }
    // Its own words quote the line, and that may be a password.
    let failed = || Error::InvalidInput(format!("{}: not a list of NAME=value", path.display()));
    let mut variables = Vec::new();
    for line in dotenvy::from_path_iter(path).map_err(|_| failed())? {
        let (name, value) = line.map_err(|_| failed())?;
        variables.push(Variable {
            place: format!("{name} in {}", path.display()),
            name,
            value,
        });
    }
    Ok(variables)
}

/// `state_backend` as Meltano reads it: nested, or with dots in its keys.
fn meltano_yml(path: &Path, dotenv: &[Variable]) -> Result<Vec<Variable>, Error> {
    let failed = |why: String| Error::InvalidInput(format!("{}: {why}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let document: Value = serde_yaml_ng::from_str(&text).map_err(|error| {
        let place = error.location();
        failed(match place {
            Some(place) => format!("no YAML at line {} column {}", place.line(), place.column()),
            None => String::from("no YAML"),
        })
    })?;
    let mut found = Vec::new();
    flatten(&document, String::new(), &mut found);
    let variables = found.into_iter().filter_map(|(key, value)| {
        let rest = key.strip_prefix("state_backend.")?;
        let name = rest.to_ascii_uppercase().replace(['.', '-'], "_");
        Some(Variable {
            name: format!("{MELTANOS}{name}"),
            value: expanded(&value, dotenv),
            place: format!("{key} in {}", path.display()),
        })
    });
    Ok(variables.collect())
}

/// Numbers and truth values too: all settings are text.
fn flatten(value: &Value, key: String, found: &mut Vec<(String, String)>) {
    match value {
        Value::Mapping(members) => {
            for (name, value) in members {
                let Some(name) = name.as_str() else { continue };
                let key = match key.is_empty() {
                    true => name.to_owned(),
                    false => format!("{key}.{name}"),
                };
                // A project has much else, and some of it is large.
                if key.starts_with("state_backend") {
                    flatten(value, key, found);
                }
            }
        }
        Value::String(text) => found.push((key, text.clone())),
        Value::Number(number) => found.push((key, number.to_string())),
        Value::Bool(truth) => found.push((key, truth.to_string())),
        Value::Null | Value::Sequence(_) | Value::Tagged(_) => {}
    }
}

/// With `$NAME` and `${NAME}` as Meltano has them: from the environment, else from `.env`, else nothing.
fn expanded(text: &str, dotenv: &[Variable]) -> String {
    let variable = |name: &str| {
        let of_dotenv = || dotenv.iter().rev().find(|one| one.name == name);
        env::var(name)
            .ok()
            .or_else(|| of_dotenv().map(|one| one.value.clone()))
            .unwrap_or_default()
    };
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let braced = after
            .strip_prefix('{')
            .and_then(|inner| inner.split_once('}'));
        let end = after.find(|c| !is_of_name(c)).unwrap_or(after.len());
        let (name, next) = braced.unwrap_or_else(|| after.split_at(end));
        match !name.is_empty() && name.chars().all(is_of_name) {
            true => {
                out.push_str(&variable(name));
                rest = next;
            }
            false => {
                out.push('$');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_variables_stand_for_their_values() {
        let dotenv = [Variable {
            name: String::from("A_1"),
            value: String::from("x"),
            place: String::new(),
        }];
        for (text, expected) in [
            ("plain", "plain"),
            ("$A_1", "x"),
            ("${A_1}b$A_1-", "xbx-"),
            ("a$none_such_here.b", "a.b"),
            ("5$ and $", "5$ and $"),
            ("${A 1}${", "${A 1}${"),
        ] {
            assert_eq!(expanded(text, &dotenv), expected);
        }
    }
}
