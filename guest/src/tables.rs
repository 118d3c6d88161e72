//! Makes tables, and brings those of the Python backend up to date.

use crate::client::{Client, Outside, is_missing};
use crate::error::{Error, ServerError};
use crate::options::Lock;
use crate::response::{Response, code};
use crate::rows;
use crate::sql::{self, Request};

impl<O: Outside> Client<'_, O> {
    /// Creates the tables, and their database only where that is what is missing: a user may have the right to
    /// the one and not to the other.
    pub(crate) fn create_tables(&self, missing: &ServerError) -> Result<(), Error> {
        let to = self.connection;
        if missing.code == code::UNKNOWN_DATABASE {
            self.create(&sql::create_database(to)?)?;
        }
        self.create(&sql::create_table(to)?)?;
        self.create(&sql::create_deleted(to)?)?;
        self.create_history()
    }

    /// Creates the table of leases, and its database only where that is missing.
    pub(crate) fn create_leases(&self, missing: &ServerError) -> Result<(), Error> {
        if missing.code == code::UNKNOWN_DATABASE {
            self.create(&sql::create_database(self.connection)?)?;
        }
        if self.connection.options.lock == Lock::Table && self.is_on_replicas()? {
            return Err(inexact_on_replicas());
        }
        self.create(&sql::create_leases(self.connection)?)
    }

    /// Whether several servers have the tables: then the one that answers may lack a row that is stored.
    ///
    /// In ClickHouse Cloud, or in a database of engine Replicated, that is so whatever the setting `engine` says. It costs a
    /// request, so it is asked only where something depends on it.
    pub(crate) fn is_on_replicas(&self) -> Result<bool, Error> {
        if self.connection.options.engine.is_replicated() {
            return Ok(true);
        }
        let engines = rows::texts(&self.send(&sql::engines(self.connection)?)?)?;
        Ok(engines
            .iter()
            .flatten()
            .any(|engine| is_of_replicas(engine)))
    }

    fn create_history(&self) -> Result<(), Error> {
        if let Some(days) = self.connection.options.history {
            self.create(&sql::create_history(self.connection, days)?)?;
            self.create(&sql::create_history_view(self.connection)?)?;
        }
        Ok(())
    }

    /// Another writer may be creating the same at this moment; then IF NOT EXISTS can fail.
    fn create(&self, request: &Request) -> Result<(), Error> {
        const EXISTS: [i32; 2] = [code::TABLE_ALREADY_EXISTS, code::DATABASE_ALREADY_EXISTS];
        match self.send(request) {
            Err(Error::Server(error)) if EXISTS.contains(&error.code) => Ok(()),
            result => result.map(drop),
        }
    }

    /// Sends what needs the table of deletions, which tables of the Python backend do not have beside them.
    pub(crate) fn with_deleted_table(
        &self,
        send: impl Fn() -> Result<Response, Error>,
    ) -> Result<Response, Error> {
        match send() {
            Err(Error::Server(error)) if is_missing(&error) => {
                self.create(&sql::create_deleted(self.connection)?)?;
                send()
            }
            result => result,
        }
    }

    /// Gives a table of the Python backend the columns and the window on which expectations stand.
    pub(crate) fn upgrade(&self) -> Result<(), Error> {
        let remember = self.send(&sql::remember_tokens(self.connection)?);
        match remember.and_then(|_| self.send(&sql::add_columns(self.connection)?)) {
            Ok(_) => Ok(()),
            Err(Error::AccessDenied(text)) => Err(Error::AccessDenied(format!(
                "the table {} is one of the Python backend, and lacks what `update` and expectations need to be exact; \
                 let a user who may ALTER it run `migrate` once ({text})",
                self.connection.table
            ))),
            Err(error) => Err(error),
        }
    }

    /// Brings everything up to date, and says what was done.
    pub(crate) fn migrate(&self) -> Result<Vec<String>, Error> {
        let to = self.connection;
        let mut done = Vec::new();
        let columns = rows::texts(&self.send(&sql::columns(to)?)?)?;
        if columns.is_empty() {
            self.create(&sql::create_database(to)?)?;
            self.create(&sql::create_table(to)?)?;
            done.push(format!("created the table {}", to.table));
        } else if !is_ours(&columns) {
            self.upgrade()?;
            done.push(format!(
                "gave the table {} the columns written_at, deleted, writes and valid_until, versions in nanoseconds, and a deduplication window",
                to.table
            ));
        }
        let deleted = to.table.deleted();
        if !self.exists(&deleted)? {
            self.create(&sql::create_deleted(to)?)?;
            done.push(format!("created the table {deleted}"));
        }
        let lease = match to.options.lock {
            Lock::Keeper => to.table.lease_keeper(),
            _ => to.table.lease(),
        };
        let exact = match to.options.lock {
            Lock::None => false,
            Lock::Keeper => true,
            Lock::Table => !self.is_on_replicas()?,
        };
        if exact && !self.exists(&lease)? {
            self.create(&sql::create_leases(to)?)?;
            done.push(format!("created the table {lease}"));
        }
        let tombstones = rows::count(&self.send(&sql::count_tombstones(to)?)?)?;
        if tombstones > 0 {
            self.send(&sql::note_tombstones(to)?)?;
            self.send(&sql::remove_noted(to)?)?;
            done.push(format!("removed the marks of {tombstones} deleted states"));
        }
        let (history, view) = (to.table.history(), to.table.history_view());
        if to.options.history.is_some() && !self.exists(&view)? {
            self.create_history()?;
            self.send(&sql::copy_to_history(to)?)?;
            done.push(format!(
                "created the table {history} and the view {view}, and put what is stored now into it"
            ));
        }
        Ok(done)
    }

    pub(crate) fn exists(&self, table: &str) -> Result<bool, Error> {
        let answer = self.send(&sql::exists(self.connection, table)?)?;
        Ok(is_yes(&rows::texts(&answer)?))
    }
}

/// Whether several servers have a table, or a database, of this engine.
pub(crate) fn is_of_replicas(engine: &str) -> bool {
    engine.starts_with("Replicated") || engine.starts_with("Shared")
}

/// Until 2023 a replica that lagged behind stored the loser's step under the winner's name (ClickHouse#41048).
pub(crate) fn inexact_on_replicas() -> Error {
    Error::InvalidInput(
        "the setting `lock` is `table`, whose leases are exact on one server, and the tables are on replicas; set `lock` to `keeper`"
            .to_owned(),
    )
}

/// Whether the one text of an answer is `1`.
pub(crate) fn is_yes(rows: &[Vec<String>]) -> bool {
    rows.first()
        .and_then(|row| row.first())
        .is_some_and(|text| text == "1")
}

/// Whether the rows of `sql::columns` are those of a table with our columns.
fn is_ours(columns: &[Vec<String>]) -> bool {
    let has = |name: &str, kind: &str| {
        columns.iter().any(|column| {
            column.first().is_some_and(|text| text == name)
                && column.get(1).is_some_and(|text| text.starts_with(kind))
        })
    };
    has("updated_at", "DateTime64(9")
        && has("written_at", "DateTime64(")
        && has("deleted", "Bool")
        && has("writes", "String")
        && has("valid_until", "DateTime64(3")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_of_replicas_are_known_by_their_names() {
        for engine in [
            "Replicated",
            "Shared",
            "ReplicatedReplacingMergeTree",
            "SharedReplacingMergeTree",
        ] {
            assert!(is_of_replicas(engine), "{engine}");
        }
        for engine in [
            "Atomic",
            "Ordinary",
            "Memory",
            "ReplacingMergeTree",
            "MergeTree",
            "Distributed",
            "",
        ] {
            assert!(!is_of_replicas(engine), "{engine}");
        }
    }
}
