//! What is kept: state IDs, states, entries, and Meltano's JSON form of a state.

use std::convert::Infallible;
use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use serde_json::value::RawValue;

use crate::Error;
use crate::bindings::exports::pipeline::state::history;
use crate::bindings::pipeline::state::types as wit;

/// The name of one pipeline's state. Any text; the plugin says how long it may be.
///
/// ```
/// use pipeline_state::StateId;
///
/// let id = StateId::from("dev:tap-github-to-target-jsonl");
/// assert_eq!(id.as_str(), "dev:tap-github-to-target-jsonl");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateId(pub(crate) String);

impl StateId {
    /// The ID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for StateId {
    fn from(id: &str) -> StateId {
        StateId(id.to_owned())
    }
}

impl From<String> for StateId {
    fn from(id: String) -> StateId {
        StateId(id)
    }
}

impl FromStr for StateId {
    type Err = Infallible;

    fn from_str(id: &str) -> Result<StateId, Infallible> {
        Ok(StateId::from(id))
    }
}

impl fmt::Display for StateId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Which write of a state an entry is from. It grows with each write of one ID, and means nothing but its order.
///
/// ```
/// use pipeline_state::Version;
///
/// let version: Version = "1796199517390704202".parse()?;
/// assert_eq!(version, Version::from(1796199517390704202));
/// # Ok::<(), std::num::ParseIntError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u64);

impl Version {
    /// The number behind it.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl From<u64> for Version {
    fn from(number: u64) -> Version {
        Version(number)
    }
}

impl FromStr for Version {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Version, ParseIntError> {
        text.parse().map(Version)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// What a write expects to find. Where it finds something else, nothing is written, and it fails with
/// [`Error::Conflict`].
///
/// This holds exactly, whatever other writers do at the same moment: of all writes that expect the same version, and
/// would store something else than is stored, one at most succeeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expectation {
    /// Whatever there is.
    #[default]
    Any,
    /// No state.
    Absent,
    /// The state as it was at this version.
    Version(Version),
}

/// What a pipeline remembers: Meltano's `MeltanoState`.
///
/// Each document is one JSON object as text, and is kept byte for byte. An absent one and an empty one
/// (`{}`) are the same; a state whose documents are both empty exists all the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The state of the last run that ended well.
    pub completed: Option<String>,
    /// What runs that were interrupted left behind.
    pub partial: Option<String>,
}

impl State {
    /// Reads Meltano's form, `{"completed": {...}, "partial": {...}}`, where either may be missing.
    ///
    /// The documents keep their text, white space and all.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] where the text is not JSON, not an object, has another member or one of
    /// them twice, or where a document is not an object.
    ///
    /// ```
    /// use pipeline_state::State;
    ///
    /// let state = State::from_json(r#"{"completed": {"singer_state": {"id": 18446744073709551617}}}"#)?;
    /// assert_eq!(state.completed.as_deref(), Some(r#"{"singer_state": {"id": 18446744073709551617}}"#));
    /// assert_eq!(state.partial, None);
    /// assert_eq!(state.to_json(), r#"{"completed": {"singer_state": {"id": 18446744073709551617}}, "partial": {}}"#);
    /// # Ok::<(), pipeline_state::Error>(())
    /// ```
    pub fn from_json(text: &str) -> Result<State, Error> {
        let no_state = |why: &str| {
            Error::InvalidInput(format!(
                "not a state: {why}; a state looks like {{\"completed\": {{\"singer_state\": {{}}}}}}"
            ))
        };
        // Without this, serde would take an array for the members in their order.
        if !text.trim_start().starts_with('{') {
            return Err(no_state("not a JSON object"));
        }
        let documents: Documents<'_> =
            serde_json::from_str(text).map_err(|error| no_state(&error.to_string()))?;
        Ok(State {
            completed: object("completed", documents.completed)?,
            partial: object("partial", documents.partial)?,
        })
    }

    /// Writes Meltano's form, on one line unless a document has line breaks of its own.
    pub fn to_json(&self) -> String {
        format!(
            "{{\"completed\": {}, \"partial\": {}}}",
            self.completed.as_deref().unwrap_or("{}"),
            self.partial.as_deref().unwrap_or("{}"),
        )
    }
}

/// Borrows from the text, so that a large document is copied once.
#[derive(serde::Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an object with the members `completed` and `partial`"
)]
struct Documents<'a> {
    #[serde(borrow, default)]
    completed: Option<&'a RawValue>,
    #[serde(borrow, default)]
    partial: Option<&'a RawValue>,
}

fn object(name: &str, document: Option<&RawValue>) -> Result<Option<String>, Error> {
    match document.map(RawValue::get) {
        None => Ok(None),
        // A raw value is well-formed already, so its first character tells what it is.
        Some(text) if text.starts_with('{') => Ok(Some(text.to_owned())),
        Some(_) => Err(Error::InvalidInput(format!(
            "not a state: `{name}` must be a JSON object, as in {{\"completed\": {{\"singer_state\": {{}}}}}}"
        ))),
    }
}

/// A state as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Whose state it is.
    pub id: StateId,
    /// The state.
    pub state: State,
    /// Which write it is from.
    pub version: Version,
    /// When it was written, by the store's clock, in milliseconds since 1970-01-01T00:00:00Z.
    pub updated_at_ms: u64,
}

/// A write that was made: what the history has of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// Its version.
    pub version: Version,
    /// When it was made, by the store's clock, in milliseconds since 1970-01-01T00:00:00Z.
    pub written_at_ms: u64,
    /// What was stored; none where the state was deleted.
    pub state: Option<State>,
}

/// Some entries in the order of their IDs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// The entries. There may be fewer than were asked for, or none, though more follow.
    pub entries: Vec<Entry>,
    /// What to ask for next; none where this is the last page.
    pub next: Option<StateId>,
}

/// Some IDs in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdPage {
    /// The IDs. There may be fewer than were asked for, or none, though more follow.
    pub ids: Vec<StateId>,
    /// What to ask for next; none where this is the last page.
    pub next: Option<StateId>,
}

impl From<State> for wit::State {
    fn from(state: State) -> wit::State {
        wit::State {
            completed: state.completed,
            partial: state.partial,
        }
    }
}

impl From<wit::State> for State {
    fn from(state: wit::State) -> State {
        State {
            completed: state.completed,
            partial: state.partial,
        }
    }
}

impl From<Expectation> for wit::Expectation {
    fn from(expectation: Expectation) -> wit::Expectation {
        match expectation {
            Expectation::Any => wit::Expectation::Any,
            Expectation::Absent => wit::Expectation::Absent,
            Expectation::Version(version) => wit::Expectation::Version(version.0),
        }
    }
}

impl From<history::Change> for Change {
    fn from(change: history::Change) -> Change {
        Change {
            version: Version(change.version),
            written_at_ms: change.written_at_ms,
            state: change.state.map(State::from),
        }
    }
}

impl From<wit::Entry> for Entry {
    fn from(entry: wit::Entry) -> Entry {
        Entry {
            id: StateId(entry.id),
            state: State::from(entry.state),
            version: Version(entry.version),
            updated_at_ms: entry.updated_at_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        State::from_json(text).unwrap_err().to_string()
    }

    #[test]
    fn documents_keep_their_text() {
        let text = "{ \"partial\" : {\n  \"b\": 1.0,\"a\":\"\\ud800\", \"a\":99999999999999999999999} , \"completed\":{} }";
        let state = State::from_json(text).unwrap();
        assert_eq!(state.completed.as_deref(), Some("{}"));
        assert_eq!(
            state.partial.as_deref(),
            Some("{\n  \"b\": 1.0,\"a\":\"\\ud800\", \"a\":99999999999999999999999}")
        );
    }

    #[test]
    fn what_is_printed_is_read_again() {
        let state = State::from_json(r#"{"completed":{"a":[1]},"partial":{"b":{}}}"#).unwrap();
        assert_eq!(State::from_json(&state.to_json()).unwrap(), state);
    }

    #[test]
    fn null_is_an_absent_document() {
        assert_eq!(
            State::from_json(r#"{"completed":null}"#).unwrap(),
            State::default()
        );
    }

    #[test]
    fn what_is_no_state_is_refused_in_one_line_with_an_example() {
        for text in [
            "",
            "nonsense",
            "[]",
            "1",
            "\"text\"",
            "{",
            r#"{"singer_state":{}}"#,
            r#"{"completed":{},"completed":{}}"#,
            r#"{"completed":[]}"#,
            r#"{"partial":"{}"}"#,
            r#"{"completed":{}} x"#,
        ] {
            let message = refused(text);
            assert!(message.starts_with("not a state: "), "{text}: {message}");
            assert!(message.contains("singer_state"), "{text}: {message}");
            assert_eq!(message.lines().count(), 1, "{text}: {message}");
        }
    }
}
