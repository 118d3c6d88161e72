//! Statements that look at the server and the table, for `maintenance.check`.

use super::{NATIVE, NOW, Request, Statement};
use crate::connection::Connection;
use crate::error::Error;

/// The server's version, time zone and clock, and whom it takes us for: a host may keep the user's name from plugins.
pub(crate) fn server(to: &Connection) -> Result<Request, Error> {
    let sql = format!(
        "SELECT version() AS version, timezone() AS zone, {NOW}, currentUser() AS user {NATIVE}"
    );
    Statement::read().sql(to, sql)
}

/// The least that a server can be asked.
pub(crate) fn measure_round_trip(to: &Connection) -> Result<Request, Error> {
    Statement::read().sql(to, format!("SELECT 'x' AS x {NATIVE}"))
}

/// How many seconds the server keeps an idle connection. It tells each answer too, in a header that hosts keep from plugins.
pub(crate) fn keep_alive(to: &Connection) -> Result<Request, Error> {
    let sql = format!(
        "SELECT value FROM system.server_settings WHERE name = 'keep_alive_timeout' {NATIVE}"
    );
    Statement::read().sql(to, sql)
}

/// The settings of the user's profile on which writes depend, and their values.
pub(crate) fn privileges(to: &Connection) -> Result<Request, Error> {
    let sql = format!(
        "SELECT name, value, toString(readonly) AS fixed FROM system.settings \
         WHERE name IN ('readonly', 'insert_deduplicate', 'deduplicate_insert') ORDER BY name {NATIVE}"
    );
    Statement::read().sql(to, sql)
}

/// Whether the user has a right on a table, as `1` or `0`. Servers before 24.10 do not know the question.
pub(crate) fn grant(to: &Connection, right: &str, table: &str) -> Result<Request, Error> {
    // Its grammar has no place for a format.
    let sql = format!("CHECK GRANT {right} ON {table}");
    Statement::read()
        .setting("default_format", "Native")
        .sql(to, sql)
}

/// Engine, definition, sorting key and partition key of the table; no row where there is none.
pub(crate) fn table_facts(to: &Connection) -> Result<Request, Error> {
    let sql = format!(
        "SELECT engine, engine_full, sorting_key, partition_key, toString(ifNull(total_rows, 0)) AS rows FROM system.tables \
         WHERE database = {{schema:String}} AND name = {{table:String}} {NATIVE}"
    );
    named(to, sql)
}

/// The definition of the table of leases; no row where there is none.
pub(crate) fn lease_definition(to: &Connection) -> Result<Request, Error> {
    let sql = format!(
        "SELECT create_table_query FROM system.tables \
         WHERE database = {{schema:String}} AND name = concat({{table:String}}, '_lease') {NATIVE}"
    );
    named(to, sql)
}

/// The engines of the database and of the tables of states and of leases, as far as they are there.
pub(crate) fn engines(to: &Connection) -> Result<Request, Error> {
    let sql = format!(
        "SELECT engine FROM system.databases WHERE name = {{schema:String}} \
         UNION ALL SELECT engine FROM system.tables \
         WHERE database = {{schema:String}} AND name IN ({{table:String}}, concat({{table:String}}, '_lease')) {NATIVE}"
    );
    named(to, sql)
}

/// Names and types of the columns of the table; no row where there is none.
pub(crate) fn columns(to: &Connection) -> Result<Request, Error> {
    let sql = format!(
        "SELECT name, type FROM system.columns \
         WHERE database = {{schema:String}} AND table = {{table:String}} {NATIVE}"
    );
    named(to, sql)
}

fn named(to: &Connection, sql: String) -> Result<Request, Error> {
    Statement::read()
        .parameter("schema", &to.table.schema_name)
        .parameter("table", &to.table.table_name)
        .sql(to, sql)
}

/// The clusters that the server knows with more than one shard or replica, and how many of each.
pub(crate) fn clusters(to: &Connection) -> Result<Request, Error> {
    let sql = format!(
        "SELECT cluster, toString(max(shard_num)) AS shards, toString(max(replica_num)) AS replicas \
         FROM system.clusters GROUP BY cluster HAVING max(shard_num) > 1 OR max(replica_num) > 1 ORDER BY cluster {NATIVE}"
    );
    Statement::read().sql(to, sql)
}
