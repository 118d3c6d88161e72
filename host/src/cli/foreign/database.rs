//! Meltano's system database, as SQLite has it: the table `state`.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use pipeline_state::{State, StateId};
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};

use super::{Access, Found, pattern, read};
use crate::cli::failure::Failure;

/// How long to wait where Meltano is writing.
const PATIENCE: Duration = Duration::from_secs(10);

pub(in super::super) struct Database {
    path: PathBuf,
    connection: Connection,
}

impl Database {
    /// It is not made: to do that is Meltano's business.
    pub(super) fn open(path: PathBuf, access: Access) -> Result<Database, Failure> {
        let flags = match access {
            Access::Write => OpenFlags::SQLITE_OPEN_READ_WRITE,
            Access::Read | Access::Pretend => OpenFlags::SQLITE_OPEN_READ_ONLY,
        };
        let connection = Connection::open_with_flags(&path, flags)
            .and_then(|connection| connection.busy_timeout(PATIENCE).map(|()| connection));
        match connection {
            Ok(connection) => Ok(Database { path, connection }),
            Err(error) => Err(failed(&path, error)),
        }
    }

    pub(super) fn page(
        &self,
        wanted: &str,
        after: Option<&StateId>,
        limit: usize,
    ) -> Result<Vec<Found>, Failure> {
        self.rows(wanted, after, limit)
            .map_err(|error| failed(&self.path, error))?
            .into_iter()
            .map(|row| {
                let document = |text: Option<String>| text.unwrap_or_else(|| String::from("null"));
                let (completed, partial) = (document(row.completed), document(row.partial));
                let text = format!("{{\"completed\": {completed}, \"partial\": {partial}}}");
                Ok(Found {
                    state: read(&row.id, &text)?,
                    id: row.id,
                    updated_at_ms: row.updated_at_ms,
                })
            })
            .collect()
    }

    fn rows(
        &self,
        wanted: &str,
        after: Option<&StateId>,
        limit: usize,
    ) -> rusqlite::Result<Vec<Row>> {
        // Meltano writes the time of this machine's zone.
        let mut select = self.connection.prepare_cached(
            "SELECT state_id, completed_state, partial_state, CAST(strftime('%s', updated_at, 'utc') AS INTEGER) \
             FROM state WHERE ?1 IS NULL OR state_id > ?1 ORDER BY state_id",
        )?;
        let rows = select.query_map([after.map(StateId::as_str)], |row| {
            let seconds: Option<u64> = row.get(3)?;
            Ok(Row {
                id: StateId::from(row.get::<_, String>(0)?),
                completed: row.get(1)?,
                partial: row.get(2)?,
                updated_at_ms: seconds.map(|seconds| seconds.saturating_mul(1_000)),
            })
        })?;
        let is_wanted = |row: &rusqlite::Result<Row>| {
            row.as_ref()
                .map_or(true, |row| pattern::matches(wanted, row.id.as_str()))
        };
        rows.filter(is_wanted).take(limit).collect()
    }

    /// All of them or none.
    pub(super) fn write(&mut self, states: &[(StateId, State)]) -> Result<(), Failure> {
        let mut write = || {
            let transaction = self
                .connection
                .transaction_with_behavior(TransactionBehavior::Immediate)?;
            for (id, state) in states {
                let document = |text: &Option<String>| text.clone().unwrap_or_else(|| "{}".into());
                transaction
                    .prepare_cached(
                        "INSERT INTO state (state_id, updated_at, completed_state, partial_state) \
                         VALUES (?1, strftime('%Y-%m-%d %H:%M:%f000', 'now', 'localtime'), ?2, ?3) \
                         ON CONFLICT (state_id) DO UPDATE SET updated_at = excluded.updated_at, \
                         completed_state = excluded.completed_state, partial_state = excluded.partial_state",
                    )?
                    .execute(params![
                        id.as_str(),
                        document(&state.completed),
                        document(&state.partial)
                    ])?;
            }
            transaction.commit()
        };
        write().map_err(|error| failed(&self.path, error))
    }
}

struct Row {
    id: StateId,
    completed: Option<String>,
    partial: Option<String>,
    updated_at_ms: Option<u64>,
}

fn failed(path: &std::path::Path, error: rusqlite::Error) -> Failure {
    Failure::file(path)(io::Error::other(error))
}
