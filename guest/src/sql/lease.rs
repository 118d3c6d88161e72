//! Statements about leases in a table.

use super::schema::{IN_TIME, WINDOW, define, on_cluster};
use super::write::insertion;
use super::{NATIVE, NOW, Request, Statement};
use crate::connection::Connection;
use crate::error::{Effect, Error};
use crate::lease::Step;
use crate::pattern::Pattern;
use crate::rowbinary::put_string;

/// The steps of all leases. When a step was made is the server's to say: `made_at`.
pub(crate) fn create_leases(to: &Connection) -> Result<Request, Error> {
    let sql = format!(
        "CREATE TABLE IF NOT EXISTS {}{} (\
         state_id String, \
         epoch Int64, \
         token String, \
         owner String, \
         acquired_at DateTime64(3), \
         ttl_ms Int64, \
         released Bool, \
         writes String, \
         made_at DateTime64(3) DEFAULT now64(3), \
         valid_until DateTime64(3), \
         CONSTRAINT {IN_TIME}\
         ) ENGINE = {} ORDER BY state_id SETTINGS index_granularity = 256, {WINDOW}",
        to.table.lease(),
        on_cluster(to),
        to.options.engine.replacing_elsewhere("epoch"),
    );
    define(to, sql)
}

/// The last step of the lease of one state, and the server's clock: one row, also where there is none; then `epoch` is 0.
///
/// An aggregate, which has a row in any case, costs half a millisecond more than FINAL; to ask for the clock alone costs a request.
pub(crate) fn lease(to: &Connection, id: &str) -> Result<Request, Error> {
    let sql = format!(
        "SELECT max(s.epoch) AS epoch, {}, {NOW} FROM {} AS s PREWHERE state_id = {{id:String}} {NATIVE}",
        LAST.map(|column| format!("argMax(s.{column}, s.epoch) AS {column}"))
            .join(", "),
        to.table.lease()
    );
    Statement::read().parameter("id", id).sql(to, sql)
}

/// What a step says of its lease.
const LAST: [&str; 7] = [
    "token",
    "owner",
    "acquired_at",
    "ttl_ms",
    "released",
    "writes",
    "made_at",
];

/// The last steps of the leases that are held, of the states that match a pattern.
pub(crate) fn leases(to: &Connection, pattern: &Pattern, rows: u32) -> Result<Request, Error> {
    let limit = rows.to_string();
    let (statement, condition) = super::read::those(pattern, None);
    let sql = format!(
        "SELECT state_id, epoch, {} FROM {} FINAL {condition}\
         WHERE NOT released AND now64(3) < made_at + toIntervalMillisecond(ttl_ms) \
         ORDER BY state_id LIMIT {{limit:UInt32}} {NATIVE}",
        LAST.join(", "),
        to.table.lease()
    );
    statement.parameter("limit", &limit).sql(to, sql)
}

/// Every step of a lease that is still there.
pub(crate) fn confirm_step(to: &Connection, id: &str) -> Result<Request, Error> {
    let sql = format!(
        "SELECT epoch, writes, made_at FROM {} PREWHERE state_id = {{id:String}} {NATIVE}",
        to.table.lease()
    );
    Statement::read().parameter("id", id).sql(to, sql)
}

/// One step, under a token that all steps to its epoch share. `writes` are the names of this one and of those before.
pub(crate) fn insert_step(
    to: &Connection,
    step: &Step<'_>,
    writes: &str,
    token: &str,
) -> Result<Request, Error> {
    let sql = format!(
        "INSERT INTO {} (state_id, epoch, token, owner, acquired_at, ttl_ms, released, writes, valid_until) \
         FORMAT RowBinary",
        to.table.lease()
    );
    let lease = step.lease;
    let mut body = Vec::with_capacity(lease.id.len() + lease.owner.len() + writes.len() + 96);
    put_string(&mut body, &lease.id);
    body.extend_from_slice(&step.epoch().to_le_bytes());
    put_string(&mut body, &lease.token);
    put_string(&mut body, &lease.owner);
    body.extend_from_slice(&lease.acquired_ms.to_le_bytes());
    body.extend_from_slice(&step.ttl_ms.to_le_bytes());
    body.push(step.released.into());
    put_string(&mut body, writes);
    body.extend_from_slice(&step.valid_until_ms.to_le_bytes());
    insertion(to, Effect::Repeatable)
        .setting("insert_deduplicate", "1")
        .setting("insert_deduplication_token", token)
        .rows_to(to, &sql, body)
}
