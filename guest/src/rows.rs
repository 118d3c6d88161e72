//! What the columns of an answer mean.

use std::collections::HashMap;

use crate::document::is_plausible;
use crate::error::{Error, one_line};
use crate::lease::{Last, Lease, Reading};
use crate::native;
use crate::response::{Ending, Response};
use crate::rowbinary::Reader;
use crate::values::{Type, Value, corrupt};
use crate::version::Version;

/// A state, or the mark that there was one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) partial: Option<String>,
    pub(crate) completed: Option<String>,
    pub(crate) deleted: bool,
    /// Whether both documents are empty texts, as those of a tombstone are.
    pub(crate) blank: bool,
    pub(crate) version: Version,
    /// In milliseconds since 1970.
    pub(crate) written_ms: i64,
}

/// What is stored, a state or a tombstone: what a write must know before it is made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) content: Content,
    pub(crate) deleted: bool,
    pub(crate) version: Version,
    pub(crate) writes: String,
    /// The server's clock at the reading.
    pub(crate) now: Version,
    pub(crate) layout: Layout,
}

/// The documents of a state, or, where they need not be known but only compared, what stands for them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Documents {
        partial: Option<String>,
        completed: Option<String>,
    },
    /// See `sql::head_by_hash`.
    Hashes { partial: i64, completed: i64 },
    /// What can't be a state, and the words for that.
    Corrupt(String),
}

/// Which table it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One that we made or brought up to date.
    Ours,
    /// One as the Python backend makes it: without tombstones, and without what makes an expectation exact.
    Plain,
}

/// A write that the history has, or one that lost against another of its version.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) partial: Option<String>,
    pub(crate) completed: Option<String>,
    pub(crate) deleted: bool,
    pub(crate) version: Version,
    pub(crate) written_ms: i64,
    pub(crate) writes: String,
}

/// An answer in either format, and the row of it that was read last.
struct Answer<'a> {
    source: Source<'a>,
    columns: Vec<(&'a str, Type)>,
    row: Vec<Value<'a>>,
}

enum Source<'a> {
    RowBinary(Reader<'a>),
    Native(native::Rows<'a>),
}

impl<'a> Answer<'a> {
    /// A page.
    fn page(body: &'a [u8]) -> Result<Self, Error> {
        let reader = Reader::new(body)?;
        Ok(Self {
            columns: reader.columns().collect(),
            source: Source::RowBinary(reader),
            row: Vec::new(),
        })
    }

    /// An answer of a few rows. One without rows is empty, and must say at least that it is in this format.
    fn native(response: &'a Response) -> Result<Self, Error> {
        if response.body.is_empty() && response.format.as_deref() != Some("Native") {
            return Err(corrupt("it is empty"));
        }
        let rows = native::Rows::new(&response.body)?;
        Ok(Self {
            columns: rows.columns().collect(),
            source: Source::Native(rows),
            row: Vec::new(),
        })
    }

    fn next(&mut self) -> Result<bool, Error> {
        match &mut self.source {
            Source::RowBinary(reader) => reader.read(&mut self.row),
            Source::Native(rows) => rows.read(&mut self.row),
        }
    }

    /// Like `next`; the row in which a cut answer ends counts as none.
    fn next_whole(&mut self, ending: Ending) -> Result<bool, Error> {
        match (self.next(), ending) {
            (Err(_), Ending::Cut) => Ok(false),
            (next, _) => next,
        }
    }

    fn value(&self, name: &str) -> Option<Value<'a>> {
        let place = self.columns.iter().position(|(known, _)| *known == name)?;
        self.row.get(place).copied()
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>, Error> {
        match self.value(name) {
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(Value::Null) => Ok(None),
            _ => Err(missing(name)),
        }
    }

    fn integer(&self, name: &str) -> Result<i64, Error> {
        match self.value(name) {
            Some(Value::Integer(number)) => Ok(number),
            _ => Err(missing(name)),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.columns.iter().any(|(known, _)| *known == name)
    }

    fn layout(&self) -> Layout {
        let nanoseconds = self.columns.contains(&("updated_at", Type::Time(1)));
        match nanoseconds && self.has("writes") && self.has("deleted") {
            true => Layout::Ours,
            false => Layout::Plain,
        }
    }

    fn writes(&self) -> Result<String, Error> {
        match self.layout() {
            Layout::Ours => Ok(self.text("writes")?.unwrap_or_default().to_owned()),
            Layout::Plain => Ok(String::new()),
        }
    }

    fn version(&self, name: &str) -> Result<Version, Error> {
        Ok(Version::new(self.integer(name)?))
    }

    /// When a row was written. On a table without the column, every write has the clock as its version.
    fn written_ms(&self) -> Result<i64, Error> {
        let name = if self.has("written_at") {
            "written_at"
        } else {
            "updated_at"
        };
        Ok(self.integer(name)? / 1_000_000)
    }

    fn state_document(&self, id: &str, name: &str) -> Result<Option<String>, Error> {
        document(id, self.text(name)?).map_err(Error::Corrupt)
    }

    fn state(&self, id: &str) -> Result<Row, Error> {
        Ok(Row {
            partial: self.state_document(id, "partial_state")?,
            completed: self.state_document(id, "completed_state")?,
            deleted: self.deleted(),
            blank: ["partial_state", "completed_state"]
                .iter()
                .all(|name| self.value(name) == Some(Value::Text(""))),
            version: self.version("updated_at")?,
            written_ms: self.written_ms()?,
            id: id.to_owned(),
        })
    }

    fn id(&self) -> Result<&'a str, Error> {
        self.text("state_id")?.ok_or_else(|| missing("state_id"))
    }

    fn deleted(&self) -> bool {
        self.is_set("deleted")
    }

    fn is_set(&self, name: &str) -> bool {
        matches!(self.value(name), Some(Value::Integer(mark)) if mark != 0)
    }

    /// Of a `DateTime64` of any precision, since 1970.
    fn milliseconds(&self, name: &str) -> Result<i64, Error> {
        Ok(self.version(name)?.milliseconds())
    }

    fn lease(&self, id: &str, epoch: i64) -> Result<Lease, Error> {
        let text = |name: &str| {
            self.text(name)
                .map(|text| text.unwrap_or_default().to_owned())
        };
        let made_ms = self.milliseconds("made_at")?;
        Ok(Lease {
            id: id.to_owned(),
            token: text("token")?,
            epoch,
            owner: text("owner")?,
            acquired_ms: self.milliseconds("acquired_at")?,
            renewed_ms: made_ms,
            expires_ms: made_ms.saturating_add(self.integer("ttl_ms")?),
        })
    }
}

fn missing(column: &str) -> Error {
    Error::Corrupt(format!(
        "the table has no fitting column `{column}`; check that the settings `schema` and `table` name a state table"
    ))
}

/// Reads an answer to `sql::get` of the state `id`; none where there is none.
pub(crate) fn state_of(id: &str, response: &Response) -> Result<Option<Row>, Error> {
    let mut answer = Answer::native(response)?;
    match answer.next()? {
        true => answer.state(id).map(Some),
        false => Ok(None),
    }
}

/// Reads an answer to `sql::page` of states.
pub(crate) fn states(body: &[u8], ending: Ending) -> Result<Vec<Row>, Error> {
    let mut answer = Answer::page(body)?;
    let mut rows = Vec::new();
    while answer.next_whole(ending)? {
        let id = answer.id()?;
        rows.push(answer.state(id)?);
    }
    Ok(rows)
}

/// What is stored, also where it can't be a state: a set replaces it all the same.
fn content(id: &str, partial: Option<&str>, completed: Option<&str>) -> Content {
    match (document(id, partial), document(id, completed)) {
        (Ok(partial), Ok(completed)) => Content::Documents { partial, completed },
        (Err(why), _) | (_, Err(why)) => Content::Corrupt(why),
    }
}

/// NULL and empty text are an empty document, as the Python backend reads them.
fn document(id: &str, text: Option<&str>) -> Result<Option<String>, String> {
    match text {
        None | Some("") => Ok(None),
        Some(text) if is_plausible(text) => Ok(Some(text.to_owned())),
        Some(_) => Err(format!(
            "what is stored for `{}` is not a JSON object; set the state anew, or look at the table",
            one_line(id)
        )),
    }
}

/// Reads an answer to `sql::page` of IDs: each ID, and whether it is a tombstone's.
pub(crate) fn ids(body: &[u8], ending: Ending) -> Result<Vec<(String, bool)>, Error> {
    let mut answer = Answer::page(body)?;
    let mut ids = Vec::new();
    while answer.next_whole(ending)? {
        ids.push((answer.id()?.to_owned(), answer.deleted()));
    }
    Ok(ids)
}

/// Reads an answer to `sql::head` for the state `id`; none where nothing is stored.
pub(crate) fn head(id: &str, response: &Response) -> Result<Option<Stored>, Error> {
    let mut answer = Answer::native(response)?;
    if !answer.next()? {
        return Ok(None);
    }
    let content = match answer.has("partial_hash") {
        true => Content::Hashes {
            partial: answer.integer("partial_hash")?,
            completed: answer.integer("completed_hash")?,
        },
        false => content(
            id,
            answer.text("partial_state")?,
            answer.text("completed_state")?,
        ),
    };
    Ok(Some(Stored {
        content,
        deleted: answer.deleted(),
        version: answer.version("updated_at")?,
        writes: answer.writes()?,
        now: answer.version("now")?,
        layout: answer.layout(),
    }))
}

/// What is stored of each state, by its ID: its version and `writes`.
pub(crate) type Heads = HashMap<String, (Version, String)>;

/// Reads an answer to `sql::heads`; with the layout, which an answer without rows does not tell.
pub(crate) fn heads(response: &Response) -> Result<(Option<Layout>, Heads), Error> {
    let mut answer = Answer::native(response)?;
    let mut layout = None;
    let mut heads = HashMap::new();
    while answer.next()? {
        layout = Some(answer.layout());
        let writes = answer.writes()?;
        heads.insert(
            answer.id()?.to_owned(),
            (answer.version("updated_at")?, writes),
        );
    }
    Ok((layout, heads))
}

/// Reads an answer to `sql::confirm`: versions, and the `writes` of each.
pub(crate) fn confirmed(response: &Response) -> Result<Vec<(Version, String)>, Error> {
    let mut answer = Answer::native(response)?;
    let mut rows = Vec::new();
    while answer.next()? {
        let writes = answer.text("writes")?.unwrap_or_default();
        rows.push((answer.version("updated_at")?, writes.to_owned()));
    }
    Ok(rows)
}

/// Reads an answer to `sql::last_deletion`: the version of the deletion, and the server's clock.
pub(crate) fn last_deletion(response: &Response) -> Result<(Version, Version), Error> {
    let mut answer = Answer::native(response)?;
    match answer.next()? {
        true => Ok((answer.version("version")?, answer.version("now")?)),
        false => Err(missing("version")),
    }
}

/// Reads an answer to `sql::clock`.
pub(crate) fn clock(response: &Response) -> Result<Version, Error> {
    let mut answer = Answer::native(response)?;
    match answer.next()? {
        true => answer.version("now"),
        false => Err(missing("now")),
    }
}

/// Reads an answer to `sql::lease`.
pub(crate) fn lease(id: &str, response: &Response) -> Result<Reading, Error> {
    let mut answer = Answer::native(response)?;
    if !answer.next()? {
        return Err(corrupt("it is empty"));
    }
    let last = match answer.integer("epoch")? {
        0 => None,
        epoch => Some(Last {
            lease: answer.lease(id, epoch)?,
            released: answer.is_set("released"),
            writes: answer.text("writes")?.unwrap_or_default().to_owned(),
        }),
    };
    Ok(Reading {
        last,
        now_ms: answer.version("now")?.milliseconds(),
    })
}

/// Reads an answer to `sql::leases`.
pub(crate) fn leases(response: &Response) -> Result<Vec<Lease>, Error> {
    let mut answer = Answer::native(response)?;
    let mut leases = Vec::new();
    while answer.next()? {
        leases.push(answer.lease(answer.id()?, answer.integer("epoch")?)?);
    }
    Ok(leases)
}

/// Epochs and the `writes` of each step, and when each was made.
pub(crate) type Steps = (Vec<(Version, String)>, HashMap<Version, i64>);

/// Reads an answer to `sql::confirm_step`.
pub(crate) fn confirmed_steps(response: &Response) -> Result<Steps, Error> {
    let mut answer = Answer::native(response)?;
    let (mut rows, mut made) = (Vec::new(), HashMap::new());
    while answer.next()? {
        let epoch = answer.version("epoch")?;
        let writes = answer.text("writes")?.unwrap_or_default();
        rows.push((epoch, writes.to_owned()));
        made.insert(epoch, answer.milliseconds("made_at")?);
    }
    Ok((rows, made))
}

/// Reads an answer to `sql::history`. What is stored there and is no document is left out: it can't be restored.
pub(crate) fn changes(body: &[u8], ending: Ending) -> Result<Vec<Change>, Error> {
    let mut answer = Answer::page(body)?;
    let mut changes = Vec::new();
    while answer.next_whole(ending)? {
        changes.push(Change {
            partial: answer
                .state_document("", "partial_state")
                .unwrap_or_default(),
            completed: answer
                .state_document("", "completed_state")
                .unwrap_or_default(),
            deleted: answer.deleted(),
            version: answer.version("updated_at")?,
            written_ms: answer.written_ms()?,
            writes: answer.text("writes")?.unwrap_or_default().to_owned(),
        });
    }
    Ok(changes)
}

/// Reads an answer of texts, whatever its columns are called.
pub(crate) fn texts(response: &Response) -> Result<Vec<Vec<String>>, Error> {
    let mut answer = Answer::native(response)?;
    let mut rows = Vec::new();
    while answer.next()? {
        let text = |value: &Value<'_>| match value {
            Value::Text(text) => (*text).to_owned(),
            Value::Integer(number) => number.to_string(),
            Value::Null => String::new(),
        };
        rows.push(answer.row.iter().map(text).collect());
    }
    Ok(rows)
}

/// Reads an answer to `sql::count`: how many states there are.
pub(crate) fn count(response: &Response) -> Result<u64, Error> {
    let mut answer = Answer::native(response)?;
    if !answer.next()? {
        return Err(missing("rows"));
    }
    let rows = answer.integer("rows")?;
    let tombstones = match answer.value("sum(deleted)") {
        Some(Value::Integer(count)) => count,
        _ => 0,
    };
    Ok(u64::try_from(rows.saturating_sub(tombstones)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rowbinary::{put_nullable_string, put_string};

    fn answer(columns: &[(&str, &str)], values: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut body = vec![columns.len() as u8];
        columns
            .iter()
            .for_each(|(name, _)| put_string(&mut body, name));
        columns
            .iter()
            .for_each(|(_, kind)| put_string(&mut body, kind));
        values(&mut body);
        body
    }

    const PYTHON: [(&str, &str); 4] = [
        ("state_id", "String"),
        ("partial_state", "Nullable(String)"),
        ("completed_state", "Nullable(String)"),
        ("updated_at", "DateTime64(3)"),
    ];

    fn state(partial: Option<&str>) -> Result<Vec<Row>, Error> {
        states(
            &answer(&PYTHON, |body| {
                put_string(body, "a");
                put_nullable_string(body, partial);
                put_nullable_string(body, None);
                body.extend_from_slice(&7_i64.to_le_bytes());
            }),
            Ending::Whole,
        )
    }

    /// An answer in the format `Native`: one block of columns of a name, a type and the bytes of their values.
    fn native(rows: u8, columns: &[(&str, &str, &[u8])]) -> Response {
        let mut body = vec![columns.len() as u8, rows];
        for (name, kind, values) in columns {
            put_string(&mut body, name);
            put_string(&mut body, kind);
            body.extend_from_slice(values);
        }
        Response {
            body: if rows == 0 { Vec::new() } else { body },
            format: Some("Native".to_owned()),
            ..Response::default()
        }
    }

    #[test]
    fn what_is_stored_tells_the_layout_of_the_table() {
        let (seven, nine) = (7_i64.to_le_bytes(), 9_i64.to_le_bytes());
        let plain: [(&str, &str, &[u8]); 4] = [
            ("partial_state", "Nullable(String)", b"\x01\x00"),
            ("completed_state", "Nullable(String)", b"\x00\x02{}"),
            ("updated_at", "DateTime64(3)", &seven),
            ("now", "Int64", &nine),
        ];
        let stored = head("a", &native(1, &plain)).unwrap().unwrap();
        assert_eq!(
            (stored.layout, stored.version),
            (Layout::Plain, Version::new(7_000_000))
        );
        let mut ours = plain.to_vec();
        ours[2].1 = "DateTime64(9)";
        ours.extend([
            ("deleted", "Bool", &b"\x01"[..]),
            ("writes", "String", b"\x01w"),
        ]);
        let stored = head("a", &native(1, &ours)).unwrap().unwrap();
        assert_eq!(
            (stored.layout, stored.version),
            (Layout::Ours, Version::new(7))
        );
        assert!(stored.deleted && stored.writes == "w" && stored.now == Version::new(9));
        ours[2].1 = "DateTime64(3)";
        assert_eq!(
            head("a", &native(1, &ours)).unwrap().unwrap().layout,
            Layout::Plain
        );
        assert_eq!(head("a", &native(0, &[])), Ok(None));
    }

    /// A proxy may answer with nothing: that is not that there is no state.
    #[test]
    fn an_empty_answer_counts_only_where_it_says_that_it_is_one() {
        let empty = Response::default();
        assert!(matches!(state_of("a", &empty), Err(Error::Corrupt(_))));
        assert_eq!(state_of("a", &native(0, &[])), Ok(None));
    }

    #[test]
    fn null_and_empty_text_are_an_absent_document() {
        for text in [None, Some("")] {
            let rows = state(text).unwrap();
            assert_eq!(rows[0].partial, None);
            assert_eq!(
                (rows[0].version, rows[0].deleted),
                (Version::new(7_000_000), false)
            );
            assert_eq!(rows[0].written_ms, 7);
        }
        assert_eq!(state(Some("{}")).unwrap()[0].partial.as_deref(), Some("{}"));
    }

    #[test]
    fn what_is_no_object_is_corrupt_and_names_the_state() {
        let Err(Error::Corrupt(message)) = state(Some("null")) else {
            panic!()
        };
        assert!(message.contains("`a`"), "{message}");
    }

    #[test]
    fn tombstones_are_told_where_the_table_has_them() {
        let columns = [("state_id", "String"), ("deleted", "Bool")];
        let body = answer(&columns, |body| {
            put_string(body, "a");
            body.push(1);
            put_string(body, "b");
            body.push(0);
        });
        assert_eq!(
            ids(&body, Ending::Whole).unwrap(),
            [("a".to_owned(), true), ("b".to_owned(), false)]
        );
        let body = answer(&columns[..1], |body| put_string(body, "a"));
        assert_eq!(
            ids(&body, Ending::Whole).unwrap(),
            [("a".to_owned(), false)]
        );
    }

    #[test]
    fn a_cut_answer_gives_the_rows_that_came_whole() {
        let body = answer(&[("state_id", "String")], |body| {
            put_string(body, "first");
            put_string(body, "second");
        });
        let cut = &body[..body.len() - 1];
        assert_eq!(
            ids(cut, Ending::Cut).unwrap(),
            [("first".to_owned(), false)]
        );
        assert!(matches!(ids(cut, Ending::Whole), Err(Error::Corrupt(_))));
    }

    #[test]
    fn a_count_leaves_tombstones_out() {
        let (five, two) = (5_u64.to_le_bytes(), 2_u64.to_le_bytes());
        let columns: [(&str, &str, &[u8]); 2] =
            [("rows", "UInt64", &five), ("sum(deleted)", "UInt64", &two)];
        assert_eq!(count(&native(1, &columns)), Ok(3));
        assert_eq!(count(&native(1, &columns[..1])), Ok(5));
    }

    #[test]
    fn a_table_without_the_columns_is_no_state_table() {
        let body = answer(&[("version", "Int64")], |body| {
            body.extend_from_slice(&[0; 8])
        });
        let Err(Error::Corrupt(message)) = states(&body, Ending::Whole) else {
            panic!()
        };
        assert!(message.contains("`state_id`"), "{message}");
    }
}
