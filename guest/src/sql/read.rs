//! Statements that read states.
//!
//! `COLUMNS` lets one statement serve a table that has our columns and one, made by the Python backend, that has
//! not. The condition on the ID stands in a PREWHERE: with FINAL the server does not move it there by itself,
//! and would read the documents of a whole granule.

use super::write::ALONE;
use super::{NATIVE, NOW, PAGE, Request, Statement};
use crate::connection::Connection;
use crate::error::Error;
use crate::pattern::Pattern;
use crate::version::Version;

const STATE: &str = "COLUMNS('^(partial_state|completed_state|updated_at|written_at|deleted)$')";
/// Without the mark of a tombstone: a column more or less is a twentieth of a `get`.
const UNMARKED: &str = "COLUMNS('^(partial_state|completed_state|updated_at|written_at)$')";
const ID: &str = "COLUMNS('^(state_id|deleted)$')";
const BY_ID: &str = "PREWHERE state_id = {id:String}";

/// Whether the answer to `get` is to tell a tombstone by its mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Read,
    /// A tombstone has two empty texts, which no state has that we or the Python backend wrote.
    Guess,
}

/// The last version of one state.
pub(crate) fn get(to: &Connection, id: &str, mark: Mark) -> Result<Request, Error> {
    let columns = match mark {
        Mark::Read => STATE,
        Mark::Guess => UNMARKED,
    };
    let sql = format!("SELECT {columns} FROM {} FINAL {BY_ID} {NATIVE}", to.table);
    Statement::read().parameter("id", id).sql(to, sql)
}

/// The last version of one state, and all that a write must know of it.
pub(crate) fn head(to: &Connection, id: &str) -> Result<Request, Error> {
    let sql = format!(
        "SELECT COLUMNS('^(partial_state|completed_state|updated_at|deleted|writes)$'), {NOW} \
         FROM {} FINAL {BY_ID} {NATIVE}",
        to.table
    );
    Statement::read().parameter("id", id).sql(to, sql)
}

/// The same without the documents, but with a hash of each: for one that is only to be compared, and large.
pub(crate) fn head_by_hash(
    to: &Connection,
    id: &str,
    (first, second): (u64, u64),
) -> Result<Request, Error> {
    let hash = |column: &str| {
        format!(
            "sipHash64Keyed((toUInt64({first}), toUInt64({second})), ifNull({column}_state, '')) AS {column}_hash"
        )
    };
    let sql = format!(
        "SELECT COLUMNS('^(updated_at|deleted|writes)$'), {}, {}, {NOW} FROM {} FINAL {BY_ID} {NATIVE}",
        hash("partial"),
        hash("completed"),
        to.table
    );
    Statement::read().parameter("id", id).sql(to, sql)
}

/// The last versions of many states, without their documents.
pub(crate) fn heads(to: &Connection, ids: &[&str]) -> Result<Request, Error> {
    let sql = format!(
        "SELECT COLUMNS('^(state_id|updated_at|deleted|writes)$') FROM {} FINAL \
         PREWHERE state_id IN {{ids:Array(String)}} {NATIVE}",
        to.table
    );
    Statement::read().texts("ids", ids).sql(to, sql)
}

/// The version of the last deletion of a state, 0 if there was none, and the server's clock.
pub(crate) fn last_deletion(to: &Connection, id: &str) -> Result<Request, Error> {
    let sql = format!(
        "SELECT toInt64(max(version)) AS version, {NOW} FROM {} {BY_ID} {NATIVE}",
        to.table.deleted()
    );
    Statement::read().parameter("id", id).sql(to, sql)
}

/// The server's clock.
pub(crate) fn clock(to: &Connection) -> Result<Request, Error> {
    Statement::read().sql(to, format!("SELECT {NOW} {NATIVE}"))
}

/// Every row of a state that is still there, hidden ones too: which writes were stored.
pub(crate) fn confirm(to: &Connection, id: &str) -> Result<Request, Error> {
    let sql = format!(
        "SELECT updated_at, writes FROM {} {BY_ID} {NATIVE}",
        to.table
    );
    Statement::read().parameter("id", id).sql(to, sql)
}

/// Whether the documents are wanted with the IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    States,
    Ids,
}

/// Some rows in the order of their IDs. A page goes on behind the last ID of the one before, so that the
/// millionth costs what the first does.
pub(crate) fn page(
    to: &Connection,
    what: What,
    pattern: &Pattern,
    after: Option<&str>,
    rows: u32,
) -> Result<Request, Error> {
    let limit = rows.to_string();
    let (statement, conditions) = those(pattern, after);
    let condition = match conditions.is_empty() {
        true => String::new(),
        false => format!("PREWHERE {} ", conditions.join(" AND ")),
    };
    let columns = match what {
        What::States => format!("state_id, {STATE}"),
        What::Ids => ID.to_owned(),
    };
    let sql = format!(
        "SELECT {columns} FROM {} FINAL {condition}ORDER BY state_id LIMIT {{limit:UInt32}} {PAGE}",
        to.table
    );
    let statement = statement.parameter("limit", &limit);
    // One row must come whole: there is nothing less to ask for.
    match rows {
        1 => statement,
        _ => statement.rows(),
    }
    .sql(to, sql)
}

/// A statement with the condition that IDs match a pattern and come behind another one.
pub(super) fn those<'a>(
    pattern: &'a Pattern,
    after: Option<&'a str>,
) -> (Statement<'a>, Vec<&'static str>) {
    let mut statement = Statement::read();
    let mut conditions = Vec::new();
    if let Some(after) = after {
        conditions.push("state_id > {after:String}");
        statement = statement.parameter("after", after);
    }
    match pattern {
        Pattern::All => {}
        Pattern::Exact(id) => {
            conditions.push("state_id = {id:String}");
            statement = statement.parameter("id", id);
        }
        Pattern::Like { prefix, regex } => {
            if !prefix.is_empty() {
                conditions.push("startsWith(state_id, {prefix:String})");
                statement = statement.parameter("prefix", prefix);
            }
            conditions.push("match(state_id, {regex:String})");
            statement = statement.parameter("regex", regex);
        }
    }
    (statement, conditions)
}

/// How many rows there are, and, in a second column where the table has `deleted`, how many of them are tombstones.
pub(crate) fn count(to: &Connection) -> Result<Request, Error> {
    let sql = format!(
        "SELECT count() AS rows, COLUMNS('^deleted$') APPLY(sum) FROM {} FINAL {NATIVE}",
        to.table
    );
    Statement::read().sql(to, sql)
}

/// How many rows of a state are still there, hidden ones too.
pub(crate) fn count_rows(to: &Connection, id: &str) -> Result<Request, Error> {
    let sql = format!("SELECT count() AS rows FROM {} {BY_ID} {NATIVE}", to.table);
    Statement::read().parameter("id", id).sql(to, sql)
}

/// How many states have nothing but a tombstone.
pub(crate) fn count_tombstones(to: &Connection) -> Result<Request, Error> {
    let sql = format!(
        "SELECT count() AS rows FROM (SELECT state_id FROM {} GROUP BY state_id {ALONE}) {NATIVE}",
        to.table
    );
    Statement::read().sql(to, sql)
}

/// The last rows of a state's history, the newest first. A write that lost against another of the same version stands
/// there too: `writes` tells which one was stored.
pub(crate) fn history(
    to: &Connection,
    id: &str,
    before: Option<Version>,
    rows: u32,
) -> Result<Request, Error> {
    let before = before.map_or(i64::MAX, Version::get).to_string();
    let sql = format!(
        "SELECT partial_state, completed_state, updated_at, written_at, deleted, writes FROM {} {BY_ID} \
         WHERE toUnixTimestamp64Nano(updated_at) < {{before:Int64}} ORDER BY updated_at DESC LIMIT {{limit:UInt32}} {PAGE}",
        to.table.history()
    );
    let limit = rows.to_string();
    Statement::read()
        .rows()
        .parameter("id", id)
        .parameter("before", &before)
        .parameter("limit", &limit)
        .sql(to, sql)
}
