//! Statements about leases in a table.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::schema::{IN_TIME, WINDOW, define, on_cluster};
use super::write::insertion_under;
use super::{NATIVE, NOW, Request, Statement};
use crate::connection::Connection;
use crate::error::{Effect, Error};
use crate::lease::Step;
use crate::options::Lock;
use crate::pattern::Pattern;
use crate::rowbinary::put_string;

/// The columns of a step, in a table and in Keeper.
const COLUMNS: &str = "state_id String, epoch Int64, token String, owner String, acquired_at DateTime64(3), \
    ttl_ms Int64, released Bool, writes String, made_at DateTime64(3) DEFAULT now64(3)";

/// Those that `put_step` fills.
const STEP: &str = "state_id, epoch, token, owner, acquired_at, ttl_ms, released, writes";

/// The steps of all leases. When a step was made is the server's to say: `made_at`.
pub(crate) fn create_leases(to: &Connection) -> Result<Request, Error> {
    if to.options.lock == Lock::Keeper {
        return create_leases_in_keeper(to);
    }
    let sql = format!(
        "CREATE TABLE IF NOT EXISTS {}{} (\
         {COLUMNS}, \
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
    let (statement, from) = match to.options.lock {
        Lock::Keeper => (in_keeper(Statement::read()), to.table.lease_keeper()),
        _ => (Statement::read(), to.table.lease()),
    };
    let sql = format!(
        "SELECT max(s.epoch) AS epoch, {}, {NOW} FROM {from} AS s WHERE state_id = {{id:String}} {NATIVE}",
        LAST.map(|column| format!("argMax(s.{column}, s.epoch) AS {column}"))
            .join(", "),
    );
    statement.parameter("id", id).sql(to, sql)
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
pub(crate) fn leases(
    to: &Connection,
    pattern: &Pattern,
    after: Option<&str>,
    limit: u32,
) -> Result<Request, Error> {
    let limit = limit.to_string();
    let (statement, mut conditions) = super::read::those(pattern, after);
    conditions.push("NOT released AND now64(3) < made_at + toIntervalMillisecond(ttl_ms)");
    let (statement, from) = match to.options.lock {
        Lock::Keeper => (in_keeper(statement), to.table.lease_keeper()),
        _ => (statement, format!("{} FINAL", to.table.lease())),
    };
    let sql = format!(
        "SELECT state_id, epoch, {} FROM {from} WHERE {} ORDER BY state_id LIMIT {{limit:UInt32}} {NATIVE}",
        LAST.join(", "),
        conditions.join(" AND "),
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
        "INSERT INTO {} ({STEP}, valid_until) \
         FORMAT RowBinary",
        to.table.lease()
    );
    let mut body = Vec::new();
    put_step(&mut body, step, writes);
    body.extend_from_slice(&step.valid_until_ms.to_le_bytes());
    insertion_under(to, token).rows_to(to, &sql, body)
}

fn put_step(body: &mut Vec<u8>, step: &Step<'_>, writes: &str) {
    let lease = step.lease;
    put_string(body, &lease.id);
    body.extend_from_slice(&step.epoch().to_le_bytes());
    put_string(body, &lease.token);
    put_string(body, &lease.owner);
    body.extend_from_slice(&lease.acquired_ms.to_le_bytes());
    body.extend_from_slice(&step.ttl_ms.to_le_bytes());
    body.push(step.released.into());
    put_string(body, writes);
}

fn create_leases_in_keeper(to: &Connection) -> Result<Request, Error> {
    // Below `keeper_map_path_prefix`; the same on all replicas.
    let path = utf8_percent_encode(
        &format!("{}.{}", to.table.schema, to.table.lease()),
        NON_ALPHANUMERIC,
    )
    .to_string()
    .replace('%', "_");
    let sql = format!(
        "CREATE TABLE IF NOT EXISTS {}{} (\
         {COLUMNS}\
         ) ENGINE = KeeperMap('/pipeline-state/{path}') PRIMARY KEY state_id",
        to.table.lease_keeper(),
        on_cluster(to),
    );
    define(to, sql)
}

/// A compare-and-set, that is: refused where the key is there, or has another value by now.
const STRICT: (&str, &str) = ("keeper_map_strict_mode", "1");
/// The server tries so often to reach Keeper, for some tenths of a second; by default it does for minutes.
const RETRIES: [(&str, &str); 2] = [
    ("keeper_max_retries", "2"),
    ("insert_keeper_max_retries", "2"),
];

fn in_keeper<'a>(statement: Statement<'a>) -> Statement<'a> {
    RETRIES
        .into_iter()
        .fold(statement, |statement, (name, value)| {
            statement.setting(name, value)
        })
}

/// The first step of a lease.
pub(crate) fn insert_in_keeper(
    to: &Connection,
    step: &Step<'_>,
    writes: &str,
) -> Result<Request, Error> {
    let sql = format!(
        "INSERT INTO {} ({STEP}) FORMAT RowBinary",
        to.table.lease_keeper()
    );
    let mut body = Vec::new();
    put_step(&mut body, step, writes);
    let (name, value) = STRICT;
    in_keeper(Statement::new(Effect::Once))
        .setting("async_insert", "0")
        .setting(name, value)
        .rows_to(to, &sql, body)
}

/// A step from the last one, if that is still there, and in time. To give a lease back is never too late.
pub(crate) fn update_in_keeper(
    to: &Connection,
    step: &Step<'_>,
    writes: &str,
) -> Result<Request, Error> {
    let sql = format!(
        "ALTER TABLE {} UPDATE epoch = {{to:Int64}}, token = {{token:String}}, owner = {{owner:String}}, \
         acquired_at = fromUnixTimestamp64Milli({{acquired:Int64}}), ttl_ms = {{ttl:Int64}}, \
         released = {{released:Bool}}, writes = {{writes:String}}, made_at = now64(3) \
         WHERE state_id = {{id:String}} AND epoch = {{from:Int64}} \
         AND ({{released:Bool}} OR now64(3) < fromUnixTimestamp64Milli({{until:Int64}}))",
        to.table.lease_keeper()
    );
    let lease = step.lease;
    let [epoch, from, acquired, ttl, until] = [
        step.epoch(),
        lease.epoch,
        lease.acquired_ms,
        step.ttl_ms,
        step.valid_until_ms,
    ]
    .map(|number| number.to_string());
    let (name, value) = STRICT;
    in_keeper(Statement::new(Effect::Once))
        .setting(name, value)
        .parameter("id", &lease.id)
        .parameter("from", &from)
        .parameter("to", &epoch)
        .parameter("token", &lease.token)
        .parameter("owner", &lease.owner)
        .parameter("acquired", &acquired)
        .parameter("ttl", &ttl)
        .parameter("released", if step.released { "true" } else { "false" })
        .parameter("writes", writes)
        .parameter("until", &until)
        .sql(to, sql)
}
