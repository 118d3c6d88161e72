//! Statements that make tables, and bring old ones up to date.

use super::{NATIVE, Request, Statement};
use crate::connection::Connection;
use crate::error::{Effect, Error};
use crate::options::Days;

pub(super) fn on_cluster(to: &Connection) -> String {
    match &to.options.cluster {
        Some(cluster) => format!(" ON CLUSTER {cluster}"),
        None => String::new(),
    }
}

pub(super) fn define(to: &Connection, sql: String) -> Result<Request, Error> {
    Statement::new(Effect::Repeatable).sql(to, sql)
}

pub(crate) fn create_database(to: &Connection) -> Result<Request, Error> {
    let sql = format!(
        "CREATE DATABASE IF NOT EXISTS {}{}",
        to.table.schema,
        on_cluster(to)
    );
    define(to, sql)
}

/// Insert tokens are remembered for this many inserts (`non_replicated_deduplication_window`).
pub(super) const WINDOW: &str = "non_replicated_deduplication_window = 10000";

/// A row that comes after its `valid_until` is refused (error 469). Older clients and the Python backend leave that at 0: their
/// rows are always in time.
///
/// `now64` is the moment when the statement began, which is long past when a large body comes slowly; `nowInBlock` is the
/// present one, in whole seconds. (`nowInBlock64` is known to releases from 25.8 on only.)
pub(super) const IN_TIME: &str = "in_time CHECK valid_until = toDateTime64(0, 3) \
    OR greatest(now64(3), toDateTime64(nowInBlock(), 3)) < valid_until";

/// `updated_at` is the version. The Python backend leaves it to its default.
const UPDATED_AT: &str = "updated_at DateTime64(9) DEFAULT now64(9)";

/// What the Python backend's table has not; with defaults, so that its inserts fit:
/// - `written_at` is when the row was written, where `updated_at` only counts on;
/// - `deleted` marks a tombstone;
/// - `writes` names this write and the ones before it;
/// - `valid_until` is when a write under a lease must have come.
const COLUMNS: [&str; 4] = [
    "written_at DateTime64(3) DEFAULT updated_at",
    "deleted Bool DEFAULT false",
    "writes String DEFAULT ''",
    "valid_until DateTime64(3) DEFAULT toDateTime64(0, 3)",
];

/// The Python backend's table, and more.
///
/// A read of one key reads one granule: 256 rows or 64 KiB, instead of 8,192 or 10 MiB. It can't be altered later.
pub(crate) fn create_table(to: &Connection) -> Result<Request, Error> {
    let sql = format!(
        "CREATE TABLE IF NOT EXISTS {}{} (\
         state_id String, \
         partial_state Nullable(String), \
         completed_state Nullable(String), \
         {UPDATED_AT}, {}, CONSTRAINT {IN_TIME}\
         ) ENGINE = {} ORDER BY state_id \
         SETTINGS index_granularity = 256, index_granularity_bytes = 65536, {WINDOW}",
        to.table,
        on_cluster(to),
        COLUMNS.join(", "),
        to.options.engine.replacing("updated_at"),
    );
    define(to, sql)
}

/// Makes the server remember insert tokens on a table of the Python backend. It comes before the columns, which show writers
/// that they may rely on it; and in a statement of its own: the server takes no notice of the setting while a
/// change of columns in the same one is pending.
pub(crate) fn remember_tokens(to: &Connection) -> Result<Request, Error> {
    alter(to, &format!("MODIFY SETTING {WINDOW}"))
}

/// Brings a table of the Python backend up to ours, but for its granularity. May be sent again.
pub(crate) fn add_columns(to: &Connection) -> Result<Request, Error> {
    let columns = COLUMNS.map(|column| format!("ADD COLUMN IF NOT EXISTS {column}"));
    alter(
        to,
        &format!(
            "MODIFY COLUMN {UPDATED_AT}, {}, ADD CONSTRAINT IF NOT EXISTS {IN_TIME}",
            columns.join(", ")
        ),
    )
}

fn alter(to: &Connection, change: &str) -> Result<Request, Error> {
    let sql = format!("ALTER TABLE {}{} {change}", to.table, on_cluster(to));
    Statement::new(Effect::Repeatable)
        // It takes what it takes: what was begun goes on in any case.
        .setting("max_execution_time", "0")
        .sql(to, sql)
}

/// Where the versions of deleted states are kept, so that a state that is made again goes on from there.
pub(crate) fn create_deleted(to: &Connection) -> Result<Request, Error> {
    let sql = format!(
        "CREATE TABLE IF NOT EXISTS {}{} (state_id String, version Int64) \
         ENGINE = {} ORDER BY state_id SETTINGS index_granularity = 256",
        to.table.deleted(),
        on_cluster(to),
        to.options.engine.replacing_elsewhere("version"),
    );
    define(to, sql)
}

/// Every write of every state, for some days.
pub(crate) fn create_history(to: &Connection, Days(days): Days) -> Result<Request, Error> {
    let sql = format!(
        "CREATE TABLE IF NOT EXISTS {}{} (\
         state_id String, \
         partial_state Nullable(String) CODEC(ZSTD), \
         completed_state Nullable(String) CODEC(ZSTD), \
         updated_at DateTime64(9), \
         written_at DateTime64(3), \
         deleted Bool, \
         writes String\
         ) ENGINE = {} ORDER BY (state_id, updated_at) \
         TTL toDateTime(written_at) + INTERVAL {days} DAY \
         SETTINGS index_granularity = 256, index_granularity_bytes = 65536",
        to.table.history(),
        on_cluster(to),
        to.options.engine.keeping(),
    );
    define(to, sql)
}

/// Fills the history at each insert, whoever makes it.
pub(crate) fn create_history_view(to: &Connection) -> Result<Request, Error> {
    let sql = format!(
        "CREATE MATERIALIZED VIEW IF NOT EXISTS {}{} TO {} AS SELECT {} FROM {}",
        to.table.history_view(),
        on_cluster(to),
        to.table.history(),
        super::ROW_COLUMNS,
        to.table,
    );
    define(to, sql)
}

/// Puts what is stored now into a history that begins.
pub(crate) fn copy_to_history(to: &Connection) -> Result<Request, Error> {
    let sql = format!(
        "INSERT INTO {} ({columns}) SELECT {columns} FROM {} FINAL",
        to.table.history(),
        to.table,
        columns = super::ROW_COLUMNS,
    );
    Statement::new(Effect::Repeatable)
        .setting("async_insert", "0")
        .sql(to, sql)
}

/// Whether there is a table of this quoted name.
pub(crate) fn exists(to: &Connection, table: &str) -> Result<Request, Error> {
    Statement::read().sql(to, format!("EXISTS TABLE {table} {NATIVE}"))
}
