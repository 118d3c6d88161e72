//! Which statements make up each operation of the contract's `store`.
//!
//! Nothing is created for a read: a table that is not there is one without states. A write that finds no table
//! makes it, and is sent once more: the server has said that it did nothing the first time.

use crate::connection::Connection;
use crate::document;
use crate::error::{Error, ServerError};
use crate::id::{check_id, check_pattern};
use crate::pattern::Pattern;
use crate::response::{self, Ending, Response, code};
use crate::rows::{self, Row};
use crate::sql::{self, MAX_LIMIT, Removal, Request, What};

/// A body from which on a server that refuses it closes the connection before it has read all: then the
/// client learns no more than that. Below, all of it is in the sockets' buffers.
const LARGE_BODY: usize = 64 * 1024;

/// Entries, and the ID behind which the next page starts; none where this is the last.
pub(crate) type Page<T> = (Vec<T>, Option<String>);

/// A table on a server, and the function that sends requests there.
pub(crate) struct Store<'a, F> {
    connection: &'a Connection,
    send: F,
}

impl<'a, F> Store<'a, F>
where
    F: Fn(&Connection, &Request) -> Result<Response, Error>,
{
    pub(crate) fn new(connection: &'a Connection, send: F) -> Self {
        Self { connection, send }
    }

    pub(crate) fn get(&self, id: &str) -> Result<Option<Row>, Error> {
        check_id(id)?;
        let Some(answer) = self.read(&sql::get(&self.connection.table, id)?)? else {
            return Ok(None);
        };
        let row = rows::states(&answer.body, answer.ending)?
            .into_iter()
            .next();
        Ok(row.filter(|row| !row.deleted))
    }

    pub(crate) fn get_page(
        &self,
        pattern: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Row>, Error> {
        let Some(page) = self.page(What::States, pattern, after, limit)? else {
            return Ok((Vec::new(), None));
        };
        let mut rows = rows::states(&page.body, page.ending)?;
        if rows.is_empty() && page.ending == Ending::Cut {
            // Not even one state fits into a part of an answer.
            return self.get_page(pattern, after, 1);
        }
        let next = page.next(rows.len(), rows.last().map(|row| &row.id));
        rows.retain(|row| !row.deleted);
        Ok((rows, next))
    }

    pub(crate) fn get_ids(
        &self,
        pattern: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<String>, Error> {
        let Some(page) = self.page(What::Ids, pattern, after, limit)? else {
            return Ok((Vec::new(), None));
        };
        let ids = rows::ids(&page.body, page.ending)?;
        let next = page.next(ids.len(), ids.last().map(|(id, _)| id));
        let live = ids.into_iter().filter(|(_, deleted)| !deleted);
        Ok((live.map(|(id, _)| id).collect(), next))
    }

    fn page(
        &self,
        what: What,
        pattern: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Option<RawPage>, Error> {
        check_pattern(pattern)?;
        if let Some(after) = after {
            check_id(after)?;
        }
        if limit == 0 {
            return Err(Error::InvalidInput(
                "the limit of a page must be at least 1".to_owned(),
            ));
        }
        let limit = limit.min(MAX_LIMIT);
        let request = sql::page(
            &self.connection.table,
            what,
            &Pattern::parse(pattern),
            after,
            limit,
        )?;
        let response = self.read(&request)?;
        Ok(response.map(|Response { body, ending, .. }| RawPage {
            body,
            ending,
            limit,
        }))
    }

    pub(crate) fn set(
        &self,
        id: &str,
        partial: Option<String>,
        completed: Option<String>,
    ) -> Result<(), Error> {
        check_id(id)?;
        let partial = document::check("partial", partial)?;
        let completed = document::check("completed", completed)?;
        let table = &self.connection.table;
        let request = sql::set(table, id, partial.as_deref(), completed.as_deref())?;
        if request.body.len() > LARGE_BODY {
            self.write(&sql::probe_set(table, id)?)?;
        }
        self.write(&request)
    }

    /// First a tombstone, which hides the state from our readers at once. Then the rows are removed for the
    /// Python backend's readers, who know no tombstones: the hidden ones first, and the tombstone only when they are
    /// gone, since a removal goes through the table part by part. Nothing depends on that: where it takes long,
    /// or the user has no grant for it (`ALTER DELETE`), the tombstone stays.
    ///
    /// On a table without tombstones the removal is all there is.
    pub(crate) fn delete(&self, id: &str) -> Result<bool, Error> {
        check_id(id)?;
        let table = &self.connection.table;
        let Some(answer) = self.read(&sql::find(table, id)?)? else {
            return Ok(false);
        };
        let Some(found) = rows::found(&answer.body)?.filter(|found| !found.deleted) else {
            return Ok(false);
        };
        if found.has_tombstones {
            let version = found.now.max(found.version.saturating_add(1));
            self.send(&sql::tombstone(table, id, version)?)?;
            let remove = |removal| self.send(&sql::remove(table, id, version, removal)?);
            let _stays = remove(Removal::BeforeTombstone).and_then(|_| remove(Removal::Tombstone));
            return Ok(true);
        }
        match self.send(&sql::remove(table, id, found.version, Removal::UpTo)?) {
            // It is pending, and will be done.
            Err(Error::Server(error)) if error.code == code::UNFINISHED => Ok(true),
            removed => removed.map(|_| true),
        }
    }

    pub(crate) fn clear(&self) -> Result<u64, Error> {
        let table = &self.connection.table;
        let Some(answer) = self.read(&sql::count(table)?)? else {
            return Ok(0);
        };
        let count = rows::count(&answer.body)?;
        match self.send(&sql::truncate(table)?) {
            // Somebody has dropped the table in between.
            Err(Error::Server(error)) if is_missing(&error) => Ok(count),
            emptied => emptied.map(|_| count),
        }
    }

    fn send(&self, request: &Request) -> Result<Response, Error> {
        let response = (self.send)(self.connection, request)?;
        response::check(response, request.effect, request.answer, self.connection)
    }

    /// None where there is no table.
    fn read(&self, request: &Request) -> Result<Option<Response>, Error> {
        match self.send(request) {
            Err(Error::Server(error)) if is_missing(&error) => Ok(None),
            result => result.map(Some),
        }
    }

    fn write(&self, request: &Request) -> Result<(), Error> {
        match self.send(request) {
            Err(Error::Server(error)) if is_missing(&error) => {
                self.create(&error)?;
                self.send(request).map(drop)
            }
            result => result.map(drop),
        }
    }

    /// Creates the table, and its database only where that is what is missing: a user may have the right to
    /// the one and not to the other.
    fn create(&self, missing: &ServerError) -> Result<(), Error> {
        let table = &self.connection.table;
        if missing.code == code::UNKNOWN_DATABASE {
            self.create_one(&sql::create_database(table)?)?;
        }
        self.create_one(&sql::create_table(table)?)
    }

    /// Another writer may be creating the same at this moment; then IF NOT EXISTS can fail.
    fn create_one(&self, request: &Request) -> Result<(), Error> {
        const EXISTS: [i32; 2] = [code::TABLE_ALREADY_EXISTS, code::DATABASE_ALREADY_EXISTS];
        match self.send(request) {
            Err(Error::Server(error)) if EXISTS.contains(&error.code) => Ok(()),
            result => result.map(drop),
        }
    }
}

fn is_missing(error: &ServerError) -> bool {
    matches!(error.code, code::UNKNOWN_TABLE | code::UNKNOWN_DATABASE)
}

/// A page as it came.
struct RawPage {
    body: Vec<u8>,
    ending: Ending,
    limit: u32,
}

impl RawPage {
    /// A page that is full, or was cut, may have another one behind it.
    fn next(&self, rows: usize, last: Option<&String>) -> Option<String> {
        let full = u32::try_from(rows).is_ok_and(|rows| rows >= self.limit);
        last.filter(|_| full || self.ending == Ending::Cut).cloned()
    }
}
