//! Statements that write and delete states.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::{Request, Statement};
use crate::connection::Connection;
use crate::error::{Effect, Error};
use crate::escape::tab_separated;
use crate::rowbinary::{put_nullable_string, put_string};
use crate::version::Version;

/// A write must be stored when it is acknowledged. Servers from 26.2 on put inserts into a queue by default.
const SYNCHRONOUS: (&str, &str) = ("async_insert", "0");

/// What a write stores.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    pub(crate) id: &'a str,
    pub(crate) partial: Option<&'a str>,
    pub(crate) completed: Option<&'a str>,
    pub(crate) version: Version,
    /// The server's clock when the write was made.
    pub(crate) written: Version,
    pub(crate) deleted: bool,
    /// This write and those before it.
    pub(crate) writes: &'a str,
    /// Until when it must have come, in milliseconds since 1970, if at all.
    pub(crate) valid_until_ms: Option<i64>,
}

/// The columns of `Row` in their order.
pub(crate) const COLUMNS: &str =
    "state_id, partial_state, completed_state, updated_at, written_at, deleted, writes";

/// Rows under an insert token: of all inserts of one token the server stores one, and drops the others without a
/// word. So the request may be sent again, and of writers that choose the same token one alone is heard.
///
/// The rows are inserted as they are, not by a SELECT: releases before 26.3 take no notice of a token there.
pub(crate) fn insert(to: &Connection, rows: &[Row<'_>], token: &str) -> Result<Request, Error> {
    let in_time = rows.iter().any(|row| row.valid_until_ms.is_some());
    let until = if in_time { ", valid_until" } else { "" };
    let sql = format!(
        "INSERT INTO {} ({COLUMNS}{until}) FORMAT RowBinary",
        to.table
    );
    let mut body = Vec::with_capacity(rows.iter().map(Row::size).sum());
    for row in rows {
        put_string(&mut body, row.id);
        put_nullable_string(&mut body, row.partial);
        put_nullable_string(&mut body, row.completed);
        body.extend_from_slice(&row.version.get().to_le_bytes());
        // `DateTime64(3)`.
        body.extend_from_slice(&(row.written.get() / 1_000_000).to_le_bytes());
        body.push(row.deleted.into());
        put_string(&mut body, row.writes);
        if in_time {
            body.extend_from_slice(&row.valid_until_ms.unwrap_or_default().to_le_bytes());
        }
    }
    insertion_under(to, token).rows_to(to, &sql, body)
}

impl Row<'_> {
    /// In bytes, or a little more.
    fn size(&self) -> usize {
        self.id.len()
            + self.writes.len()
            + self.partial.map_or(0, str::len)
            + self.completed.map_or(0, str::len)
            + ROW_OVERHEAD
    }
}

/// Lengths, markers, numbers.
const ROW_OVERHEAD: usize = 56;

/// An insert of which the server stores one of all that come under this token.
pub(super) fn insertion_under<'a>(to: &'a Connection, token: &'a str) -> Statement<'a> {
    insertion(to, Effect::Repeatable)
        .setting("insert_deduplicate", "1")
        .setting("insert_deduplication_token", token)
}

fn insertion(to: &Connection, effect: Effect) -> Statement<'_> {
    let (name, value) = SYNCHRONOUS;
    let mut statement = Statement::new(effect).setting(name, value);
    if let Some(quorum) = &to.options.insert_quorum {
        statement = statement.setting("insert_quorum", quorum);
        if to.options.sequential {
            // Sequential reads see only what quorums wrote one after the other.
            statement = statement.setting("insert_quorum_parallel", "0");
        }
    }
    statement
}

/// Rows into a table that the Python backend made.
///
/// As text, so that a version is understood whichever precision `updated_at` has, also when that changes now.
pub(crate) fn insert_plain(to: &Connection, rows: &[Row<'_>]) -> Result<Request, Error> {
    let sql = format!(
        "INSERT INTO {} (state_id, partial_state, completed_state, updated_at) FORMAT TabSeparated",
        to.table
    );
    let mut body = String::with_capacity(rows.iter().map(Row::size).sum());
    for row in rows {
        body.push_str(&tab_separated(row.id));
        for document in [row.partial, row.completed] {
            body.push('\t');
            body.push_str(&document.map_or(Cow::Borrowed("\\N"), tab_separated));
        }
        let (seconds, rest) = (
            row.version.get() / 1_000_000_000,
            row.version.get() % 1_000_000_000,
        );
        // Writing to a string does not fail.
        let _ = writeln!(body, "\t{seconds}.{rest:09}");
    }
    insertion(to, Effect::Once)
        .setting("insert_deduplicate", "0")
        .rows_to(to, &sql, body.into_bytes())
}

/// Which rows of a state are removed. A state that is written meanwhile has a higher version, and stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// Those before its tombstone. To wait for a mutation takes 20 ms where the table is one part, up to a second where it is
    /// several, and minutes where mutations are held up: so nobody does.
    BeforeTombstone,
    /// The tombstone, when nothing is left that it hides. Nobody waits for that either.
    Tombstone,
    /// A row that came too late, alone.
    Ghost,
    /// Up to a version, waited for as the server has it (`lightweight_deletes_sync`).
    UpTo,
}

/// Removes rows of a state by a lightweight deletion, a mutation that marks them as gone.
pub(crate) fn remove(
    to: &Connection,
    id: &str,
    version: Version,
    removal: Removal,
) -> Result<Request, Error> {
    let statement = Statement::new(Effect::Repeatable);
    let (relation, statement) = match removal {
        Removal::BeforeTombstone => ("<", statement.setting("lightweight_deletes_sync", "0")),
        Removal::Tombstone => ("=", statement.setting("lightweight_deletes_sync", "0")),
        Removal::Ghost => ("=", statement.setting("lightweight_deletes_sync", "1")),
        Removal::UpTo => ("<=", statement),
    };
    let sql = format!(
        "DELETE FROM {} WHERE state_id = {{id:String}} \
         AND updated_at {relation} fromUnixTimestamp64Nano({{version:Int64}})",
        to.table
    );
    statement
        .parameter("id", id)
        .parameter("version", &version.to_string())
        .sql(to, sql)
}

/// Keeps the version of a deletion when its tombstone goes.
pub(crate) fn note_deletion(to: &Connection, id: &str, version: Version) -> Result<Request, Error> {
    let sql = format!(
        "INSERT INTO {} (state_id, version) FORMAT RowBinary",
        to.table.deleted()
    );
    let mut body = Vec::with_capacity(id.len() + 16);
    put_string(&mut body, id);
    body.extend_from_slice(&version.get().to_le_bytes());
    insertion(to, Effect::Repeatable)
        .setting("insert_deduplicate", "0")
        .rows_to(to, &sql, body)
}

/// The same for every state, before the table is emptied: the clock, where that is higher, so that also what is
/// written until then is below.
pub(crate) fn note_all(to: &Connection) -> Result<Request, Error> {
    note(to, "greatest(max(updated_at)::DateTime64(9), now64(9))", "")
}

/// The same for every tombstone that hides nothing any more.
pub(crate) fn note_tombstones(to: &Connection) -> Result<Request, Error> {
    note(to, "max(updated_at)", ALONE)
}

/// For `GROUP BY state_id`: that the only row of a state is a tombstone, and was for some time.
pub(crate) const ALONE: &str =
    "HAVING count() = 1 AND max(deleted) AND max(written_at) < now64(3) - INTERVAL 1 SECOND";

fn note(to: &Connection, version: &str, having: &str) -> Result<Request, Error> {
    let sql = format!(
        "INSERT INTO {} (state_id, version) \
         SELECT state_id, toUnixTimestamp64Nano({version}) FROM {} GROUP BY state_id {having}",
        to.table.deleted(),
        to.table
    );
    insertion(to, Effect::Repeatable).sql(to, sql)
}

/// Removes every tombstone that was noted and hides nothing any more.
pub(crate) fn remove_noted(to: &Connection) -> Result<Request, Error> {
    let sql = format!(
        "DELETE FROM {table} WHERE deleted \
         AND (state_id, updated_at) IN (SELECT state_id, fromUnixTimestamp64Nano(version) FROM {}) \
         AND state_id IN (SELECT state_id FROM {table} GROUP BY state_id HAVING count() = 1)",
        to.table.deleted(),
        table = to.table
    );
    Statement::new(Effect::Repeatable).sql(to, sql)
}

/// Empties the table.
pub(crate) fn truncate(to: &Connection) -> Result<Request, Error> {
    let on_cluster = super::schema::on_cluster(to);
    Statement::new(Effect::Once).sql(to, format!("TRUNCATE TABLE {}{on_cluster}", to.table))
}
