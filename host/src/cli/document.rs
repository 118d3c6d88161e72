//! JSON documents as texts: what is no part of a change keeps its bytes, large numbers, escapes and all.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use pipeline_state::{Error, State};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::failure::Failure;

/// What a state must have at the top of each of its documents: Meltano reads nothing else.
const SINGER_STATE: &str = "singer_state";
/// Far more than any state has, and far less than what the stack bears.
const DEEPEST: usize = 500;

/// Whether a state must be one that Meltano reads, with `singer_state` at the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readable {
    Needed,
    NotNeeded,
}

impl Readable {
    /// As `--no-validate` says.
    pub(super) fn unless(no_validate: bool) -> Readable {
        match no_validate {
            true => Readable::NotNeeded,
            false => Readable::Needed,
        }
    }
}

/// The state that a command was given, as an argument or in a file, where `-` is stdin.
///
/// Beside `{"completed": {...}, "partial": {...}}` it may be `{"singer_state": {...}}`, as for `meltano state set`: `alone` says
/// what that becomes.
pub(super) fn read_state(
    text: Option<&str>,
    file: Option<&Path>,
    alone: fn(String) -> State,
    readable: Readable,
) -> Result<State, Failure> {
    let from_file = file.map(read_file).transpose()?;
    let text = from_file.as_deref().or(text).unwrap_or_default();
    parse_state(text, alone, readable)
}

pub(super) fn read_file(path: &Path) -> Result<String, Failure> {
    let read = match path.to_str() {
        Some("-") => io::read_to_string(io::stdin()),
        _ => fs::read_to_string(path),
    };
    read.map_err(Failure::file(path))
}

fn parse_state(
    text: &str,
    alone: fn(String) -> State,
    readable: Readable,
) -> Result<State, Failure> {
    let is_alone = |object: &Object<'_>| {
        let none_of_both = !object.has("completed") && !object.has("partial");
        object.has(SINGER_STATE)
            || readable == Readable::NotNeeded && none_of_both && !object.0.is_empty()
    };
    match Object::read(text) {
        Some(object) if is_alone(&object) => Ok(alone(text.trim().to_owned())),
        _ => Ok(State::from_json(text)?),
    }
}

pub(super) fn completed(document: String) -> State {
    State {
        completed: Some(document),
        partial: None,
    }
}

pub(super) fn partial(document: String) -> State {
    State {
        completed: None,
        partial: Some(document),
    }
}

/// The names and the documents of a state that have members.
fn documents(state: &State) -> impl Iterator<Item = (&'static str, &str)> {
    [("completed", &state.completed), ("partial", &state.partial)]
        .into_iter()
        .filter_map(|(name, document)| Some((name, document.as_deref()?)))
        .filter(|(_, document)| !is_empty(document))
}

fn is_empty(document: &str) -> bool {
    let inner = document.trim().strip_prefix('{');
    inner.is_none_or(|inner| inner.trim_start() == "}")
}

/// What Meltano takes a state for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Valid,
    /// A document has no `singer_state`.
    Invalid,
    /// No document has members.
    Empty,
}

impl Kind {
    pub(super) fn of(state: &State) -> Kind {
        match (documents(state).next(), check(state)) {
            (None, _) => Kind::Empty,
            (Some(_), Ok(())) => Kind::Valid,
            (Some(_), Err(_)) => Kind::Invalid,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Valid => "valid",
            Kind::Invalid => "invalid",
            Kind::Empty => "empty",
        }
    }
}

/// Refuses a state that Meltano would not read.
pub(super) fn check(state: &State) -> Result<(), Failure> {
    let invalid = documents(state).find(|(_, document)| {
        !Object::read(document).is_some_and(|object| object.has(SINGER_STATE))
    });
    match invalid {
        None => Ok(()),
        Some((name, _)) => Err(Failure::NotSinger(name)),
    }
}

/// The members of an object, with keys and values as they are written.
struct Object<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Object<'a> {
    /// None where the text is no object.
    fn read(text: &'a str) -> Option<Object<'a>> {
        serde_json::from_str(text).ok()
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(key, _)| spelling(key) == name)
    }
}

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Object<'de>;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((key, value)) = map.next_entry::<&RawValue, &RawValue>()? {
                    members.push((key.get(), value.get()));
                }
                Ok(Object(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// A key in its one spelling. One that is no Unicode text (`"\ud800"`) stays as it is written.
fn spelling(key: &str) -> String {
    serde_json::from_str(key).unwrap_or_else(|_| key.to_owned())
}

/// Meltano's `merge(new, stored)`: objects are merged into objects, anything else replaces what is there.
///
/// An object in the place of what is none is an error, as it is for Meltano.
pub(super) fn merge(stored: Option<&str>, new: Option<&str>) -> Result<Option<String>, Error> {
    let stored = stored.filter(|document| !is_empty(document));
    let new = new.filter(|document| !is_empty(document));
    match (stored, new) {
        (stored, None) => Ok(stored.map(str::to_owned)),
        (None, new) => Ok(new.map(str::to_owned)),
        (Some(stored), Some(new)) => merge_objects(stored, new, &mut Vec::new()).map(Some),
    }
}

fn merge_objects<'a>(stored: &str, new: &'a str, path: &mut Vec<&'a str>) -> Result<String, Error> {
    let refused = |why: &str| {
        let place = path.join(".");
        Err(Error::InvalidInput(format!(
            "can't be merged: {why} at `{place}`; nothing was written"
        )))
    };
    if path.len() > DEEPEST {
        return refused("the objects are nested too deep");
    }
    let Some(new) = Object::read(new) else {
        return refused("no object");
    };
    let Some(Object(mut members)) = Object::read(stored) else {
        return refused("an object in the place of something that is none");
    };
    let mut places: HashMap<String, usize> = HashMap::new();
    for (place, (key, _)) in members.iter().enumerate() {
        // Of two values of one key the last one counts.
        places.insert(spelling(key), place);
    }
    let mut merged: HashMap<usize, String> = HashMap::new();
    for (key, value) in new.0 {
        let place = *places.entry(spelling(key)).or_insert_with(|| {
            members.push((key, value));
            members.len() - 1
        });
        let Some((_, before)) = members.get_mut(place) else {
            continue;
        };
        if value.starts_with('{') && *before != value {
            path.push(key.trim_matches('"'));
            let before = merged.get(&place).map_or(*before, String::as_str);
            let after = merge_objects(before, value, path)?;
            path.pop();
            merged.insert(place, after);
        } else {
            merged.remove(&place);
            *before = value;
        }
    }
    let mut text = String::from("{");
    for (place, (key, value)) in members.iter().enumerate() {
        if place > 0 {
            text.push_str(", ");
        }
        let value = merged.get(&place).map_or(*value, String::as_str);
        let _ = write!(text, "{key}: {value}");
    }
    text.push('}');
    Ok(text)
}

/// The same JSON with a line for each member and two spaces for each level, as Python's `json.dumps(..., indent=2)` has it.
pub(super) fn pretty(json: &str) -> String {
    write(json, Some("  "))
}

/// The same JSON on one line, as Python's `json.dumps` has it.
pub(super) fn one_line(json: &str) -> String {
    write(json, None)
}

/// Of well-formed JSON: numbers and strings stay as they are.
fn write(json: &str, indent: Option<&str>) -> String {
    let mut out = String::with_capacity(json.len());
    let mut level = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    let mut chars = json.chars().peekable();
    let new_line = |out: &mut String, level: usize| {
        if let Some(indent) = indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(indent, level));
        }
    };
    while let Some(c) = chars.next() {
        if in_string {
            out.push(c);
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            ' ' | '\t' | '\r' | '\n' => {}
            '{' | '[' => {
                out.push(c);
                while chars.next_if(|c| c.is_ascii_whitespace()).is_some() {}
                match chars.next_if(|next| matches!(next, '}' | ']')) {
                    Some(end) => out.push(end),
                    None => {
                        level += 1;
                        new_line(&mut out, level);
                    }
                }
            }
            '}' | ']' => {
                level = level.saturating_sub(1);
                new_line(&mut out, level);
                out.push(c);
            }
            ',' => {
                out.push(',');
                match indent {
                    Some(_) => new_line(&mut out, level),
                    None => out.push(' '),
                }
            }
            ':' => out.push_str(": "),
            c => {
                in_string = c == '"';
                out.push(c);
            }
        }
    }
    out
}

/// What changes from one text to another, as `diff -u` prints it; empty where nothing does.
pub(super) fn diff(before: (&str, &str), after: (&str, &str)) -> String {
    similar::TextDiff::from_lines(before.1, after.1)
        .unified_diff()
        .header(before.0, after.0)
        .to_string()
}

/// A state as a person reads it.
pub(super) fn pretty_state(state: &State) -> String {
    pretty(&state.to_json()) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(stored: &str, new: &str) -> Result<String, String> {
        merge(Some(stored), Some(new))
            .map(Option::unwrap)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn objects_merge_and_all_else_replaces() {
        for (stored, new, expected) in [
            (r#"{"a":1}"#, r#"{"b":2}"#, r#"{"a": 1, "b": 2}"#),
            (
                r#"{"a":{"x":1.0,"y":[1]}}"#,
                r#"{"a":{"y":[2]}}"#,
                r#"{"a": {"x": 1.0, "y": [2]}}"#,
            ),
            (r#"{"a":{"x":1}}"#, r#"{"a":null}"#, r#"{"a": null}"#),
            (
                r#"{"a":18446744073709551617}"#,
                r#"{"\u0061":7e400}"#,
                r#"{"a": 7e400}"#,
            ),
            (
                r#"{"a":{"x":1}}"#,
                r#"{"a":{"y":2},"a":{"z":3}}"#,
                r#"{"a": {"x": 1, "y": 2, "z": 3}}"#,
            ),
            (r#"{"\ud800":1}"#, r#"{"\ud800":2}"#, r#"{"\ud800": 2}"#),
            (r#"{"a":{}}"#, "{ }", r#"{"a":{}}"#),
            ("{}", r#"{"a":{}}"#, r#"{"a":{}}"#),
        ] {
            assert_eq!(merged(stored, new).unwrap(), expected);
        }
        let error = merged(r#"{"a":{"b":1}}"#, r#"{"a":{"b":{}}}"#).unwrap_err();
        assert!(error.contains("`a.b`"), "{error}");
    }

    #[test]
    fn too_deep_is_an_error_and_not_the_end() {
        let nested = |end: &str| format!("{}{end}{}", r#"{"a":"#.repeat(600), "}".repeat(600));
        let error = merged(&nested("1"), &nested("2")).unwrap_err();
        assert!(error.contains("too deep"), "{error}");
    }

    #[test]
    fn it_is_laid_out_as_python_does() {
        let text = "{\"a\":[ ],\"b\" : {\"c\":[1.0,\"x: \\\"{, \"]},\n\"d\":{ }}";
        assert_eq!(
            one_line(text),
            r#"{"a": [], "b": {"c": [1.0, "x: \"{, "]}, "d": {}}"#
        );
        assert_eq!(
            pretty(text),
            "{\n  \"a\": [],\n  \"b\": {\n    \"c\": [\n      1.0,\n      \"x: \\\"{, \"\n    ]\n  },\n  \"d\": {}\n}"
        );
        assert_eq!(one_line(&pretty(text)), one_line(text));
    }

    #[test]
    fn a_state_is_valid_by_its_singer_state() {
        let kind = |text: &str| Kind::of(&parse_state(text, completed, Readable::Needed).unwrap());
        for (text, expected) in [
            (r#"{"completed":{"singer_state":{}}}"#, Kind::Valid),
            (r#"{"singer_state":{}}"#, Kind::Valid),
            (
                r#"{"completed":{"singer_state":{}},"partial":{"x":1}}"#,
                Kind::Invalid,
            ),
            (r#"{"completed":{"a":{"singer_state":{}}}}"#, Kind::Invalid),
            (r#"{"completed":{ },"partial":null}"#, Kind::Empty),
        ] {
            assert_eq!(kind(text), expected, "{text}");
        }
    }
}
