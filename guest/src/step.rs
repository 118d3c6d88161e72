//! One row of a state: inserted under a token, and read back.

use crate::client::{Client, Outside};
use crate::connection::Table;
use crate::error::{Error, Failure, Outcome, ServerError};
use crate::response::code;
use crate::rows::{self, Stored};
use crate::sql::{self, Request};
use crate::state::Documents;
use crate::version::Version;
use crate::write::TURN;
use crate::writes::{self, Fate, Name, Sent};

/// What a write makes of what is stored.
pub(crate) enum Change {
    Keep(Version),
    Put(Documents),
    Delete,
}

/// One try of a write.
pub(crate) struct Put<'a> {
    pub(crate) id: &'a str,
    pub(crate) change: &'a Change,
    /// Until when it must have come, by the server's clock, if under a lease.
    pub(crate) valid_until_ms: Option<i64>,
    /// How many tokens of what it goes on from were found used up.
    pub(crate) generation: u32,
}

/// How one try of a write went.
pub(crate) enum Try {
    Stored(Version),
    /// Another write was stored in its place.
    Lost,
    /// See `Fate`.
    Covered,
    Dropped,
}

impl<O: Outside> Client<'_, O> {
    /// Whatever else is written at this moment: either it lies below, or it was not there yet.
    pub(crate) fn put_on_top(&self, put: &Put<'_>, stored: &Stored) -> Result<Try, Error> {
        let sent = self.sent(
            stored.version.top(stored.now, self.outside.random()),
            Some(stored),
        );
        let before = writes::after(stored.version, &stored.writes);
        // A token of its own: the server drops what is sent again.
        let token = format!("{}/{}", put.id, sent.name);
        match self.insert(put, sent, &before, stored.now, &token) {
            Ok(()) => Ok(Try::Stored(sent.version)),
            Err(error) => self.settle(put.id, sent, error),
        }
    }

    pub(crate) fn step(&self, put: &Put<'_>, stored: &Stored) -> Result<Try, Error> {
        let sent = self.sent(stored.version.step(), Some(stored));
        let before = writes::after(stored.version, &stored.writes);
        let token = format!("{}/{}/{}", put.id, sent.version, put.generation);
        match self.insert(put, sent, &before, stored.now, &token) {
            Ok(()) => self.confirm(put.id, sent),
            Err(error) => self.settle(put.id, sent, error),
        }
    }

    /// Makes a state that was never there.
    pub(crate) fn create_state(
        &self,
        put: &Put<'_>,
        now: Version,
        exact: bool,
    ) -> Result<Try, Error> {
        let version = match exact {
            true => now.creation(),
            false => now,
        };
        let sent = self.sent(version, None);
        let token = format!("{}/new/{}", put.id, put.generation);
        match self.insert(put, sent, "", now, &token) {
            Ok(()) => self.confirm(put.id, sent),
            Err(error) => self.settle(put.id, sent, error),
        }
    }

    fn sent(&self, version: Version, from: Option<&Stored>) -> Sent {
        Sent {
            name: Name::new(self.outside.random()),
            version,
            from: from.map(|stored| stored.version),
        }
    }

    fn insert(
        &self,
        put: &Put<'_>,
        sent: Sent,
        before: &str,
        now: Version,
        token: &str,
    ) -> Result<(), Error> {
        let writes = writes::add(before, sent.version, sent.name);
        let row = sql::Row {
            valid_until_ms: put.valid_until_ms,
            ..row(put.id, put.change, sent.version, now, &writes)
        };
        self.send(&sql::insert(self.connection, &[row], token)?)?;
        Ok(())
    }

    /// What became of a write that ended with an error. It may be stored all the same: the answer was lost, or a
    /// materialized view behind the table failed.
    fn settle(&self, id: &str, sent: Sent, error: Error) -> Result<Try, Error> {
        if !may_be_stored(&error) {
            return Err(error);
        }
        match self.confirm(id, sent) {
            Ok(found @ (Try::Stored(_) | Try::Lost)) => Ok(found),
            // If it was under way, it may still come: that is left as the error has it.
            Ok(Try::Dropped) => Err(error),
            _ => Err(error.in_doubt()),
        }
    }

    /// Reads back whether the write was stored.
    fn confirm(&self, id: &str, sent: Sent) -> Result<Try, Error> {
        let fate = || {
            let answer = self.send(&sql::confirm(self.connection, id)?);
            // The insert was answered: it is stored, or another one is.
            let rows = rows::confirmed(&answer.map_err(Error::in_doubt)?)?;
            Ok(writes::fate(&rows, sent))
        };
        let mut seen = fate()?;
        if seen == Fate::Dropped {
            // Once more: not that the winner's row was only just on its way.
            self.outside.pause(TURN);
            seen = fate()?;
        }
        match seen {
            Fate::Stored => Ok(Try::Stored(sent.version)),
            Fate::Lost => Ok(Try::Lost),
            Fate::Covered => Ok(Try::Covered),
            // Behind a load balancer the replica that answers may not have the row yet.
            Fate::Dropped => match self.is_on_replicas().map_err(Error::in_doubt)? {
                true => Err(covered()),
                false => Ok(Try::Dropped),
            },
            Fate::Doubled => Err(doubled(&self.connection.table)),
        }
    }

    /// Sends rows whose fate can't be read back.
    pub(crate) fn send_rows(&self, request: &Request) -> Result<(), Error> {
        match self.send(request) {
            Err(error) if may_be_stored(&error) => Err(error.in_doubt()),
            sent => sent.map(drop),
        }
    }
}

pub(crate) fn row<'a>(
    id: &'a str,
    change: &'a Change,
    version: Version,
    written: Version,
    writes: &'a str,
) -> sql::Row<'a> {
    let (partial, completed) = match change {
        Change::Put(documents) => (documents.partial.as_deref(), documents.completed.as_deref()),
        // See `sql::Mark`.
        Change::Keep(_) | Change::Delete => (Some(""), Some("")),
    };
    sql::Row {
        id,
        partial,
        completed,
        version,
        written,
        deleted: matches!(change, Change::Delete),
        writes,
        valid_until_ms: None,
    }
}

/// Whether a row of an insert that failed so may be stored all the same.
pub(crate) fn may_be_stored(error: &Error) -> bool {
    match error {
        Error::Unavailable(failure) | Error::TimedOut(failure) => {
            failure.outcome == Outcome::Unknown
        }
        Error::Server(error) => !code::BEFORE_ANY_ROW.contains(&error.code),
        _ => false,
    }
}

pub(crate) fn covered() -> Error {
    Error::Unavailable(Failure {
        message: "another write came over this one before it was confirmed; read the state, and try again if need be"
            .to_owned(),
        outcome: Outcome::Unknown,
    })
}

pub(crate) fn doubled(table: &Table) -> Error {
    Error::Server(ServerError {
        code: 0,
        name: String::new(),
        message: format!(
            "the server stored two writes of {table} that exclude each other: deduplication of inserts is switched off, by a \
             profile or for the table; run `doctor`"
        ),
        outcome: Outcome::Unknown,
    })
}
