//! Statements that read states.
//!
//! `COLUMNS` lets one statement serve a table that has our columns and one, made by the Python backend, that has
//! not. The condition on the ID stands in a PREWHERE: with FINAL the server does not move it there by itself,
//! and would read the documents of a whole granule.

use super::{Answer, FORMAT, NOW, Request, Statement, VERSION};
use crate::connection::Connection;
use crate::error::Error;
use crate::pattern::Pattern;
use crate::version::Version;

const STATE: &str =
    "COLUMNS('^(state_id|partial_state|completed_state|updated_at|written_at|deleted)$')";
const ID: &str = "COLUMNS('^(state_id|deleted)$')";
const BY_ID: &str = "PREWHERE state_id = {id:String}";

/// The last version of one state.
pub(crate) fn get(to: &Connection, id: &str) -> Result<Request, Error> {
    let sql = format!("SELECT {STATE} FROM {} FINAL {BY_ID} {FORMAT}", to.table);
    Statement::read().parameter("id", id).sql(to, sql)
}

/// The last version of one state, and all that a write must know of it. The header of the answer tells also
/// which columns the table has.
pub(crate) fn head(to: &Connection, id: &str) -> Result<Request, Error> {
    let sql = format!(
        "SELECT COLUMNS('^(partial_state|completed_state|updated_at|deleted|writes)$'), {NOW} \
         FROM {} FINAL {BY_ID} {FORMAT}",
        to.table
    );
    Statement::read().parameter("id", id).sql(to, sql)
}

/// The last versions of many states, without their documents.
pub(crate) fn heads(to: &Connection, ids: &[&str]) -> Result<Request, Error> {
    let sql = format!(
        "SELECT COLUMNS('^(state_id|updated_at|deleted|writes)$') FROM {} FINAL \
         PREWHERE state_id IN {{ids:Array(String)}} {FORMAT}",
        to.table
    );
    Statement::read().texts("ids", ids).sql(to, sql)
}

/// The version of the last deletion of a state, 0 if there was none, and the server's clock.
pub(crate) fn last_deletion(to: &Connection, id: &str) -> Result<Request, Error> {
    let sql = format!(
        "SELECT toInt64(max(version)) AS version, {NOW} FROM {} {BY_ID} {FORMAT}",
        to.table.deleted()
    );
    Statement::read().parameter("id", id).sql(to, sql)
}

/// The server's clock.
pub(crate) fn clock(to: &Connection) -> Result<Request, Error> {
    Statement::read().sql(to, format!("SELECT {NOW} {FORMAT}"))
}

/// Every row of a state that is still there from a version on, hidden ones too: which writes were stored.
pub(crate) fn confirm(to: &Connection, id: &str, from: Version) -> Result<Request, Error> {
    let sql = format!(
        "SELECT {VERSION}, writes FROM {} {BY_ID} \
         WHERE updated_at >= fromUnixTimestamp64Nano({{from:Int64}}) {FORMAT}",
        to.table
    );
    Statement::read()
        .parameter("id", id)
        .parameter("from", &from.to_string())
        .sql(to, sql)
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
    let mut statement = Statement::read().parameter("limit", &limit);
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
    let columns = match what {
        What::States => STATE,
        What::Ids => ID,
    };
    let condition = match conditions.is_empty() {
        true => String::new(),
        false => format!("PREWHERE {} ", conditions.join(" AND ")),
    };
    let sql = format!(
        "SELECT {columns} FROM {} FINAL {condition}ORDER BY state_id LIMIT {{limit:UInt32}} {FORMAT}",
        to.table
    );
    // One row must come whole: there is nothing less to ask for.
    match rows {
        1 => statement,
        _ => statement.rows(),
    }
    .sql(to, sql)
}

/// How many rows there are, and, in a second column where the table has `deleted`, how many of them are tombstones.
pub(crate) fn count(to: &Connection) -> Result<Request, Error> {
    let sql = format!(
        "SELECT count() AS rows, COLUMNS('^deleted$') APPLY(sum) FROM {} FINAL {FORMAT}",
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
         WHERE toUnixTimestamp64Nano(updated_at) < {{before:Int64}} ORDER BY updated_at DESC LIMIT {{limit:UInt32}} {FORMAT}",
        to.table.history()
    );
    let limit = rows.to_string();
    let request = Statement::read()
        .parameter("id", id)
        .parameter("before", &before)
        .parameter("limit", &limit)
        .sql(to, sql)?;
    Ok(Request {
        answer: Answer::Rows,
        ..request
    })
}
