//! Which statements make up each operation that reads, and the emptying of the table.
//!
//! Nothing is created for a read: a table that is not there is one without states.

use crate::client::{Client, Outside, is_missing};
use crate::error::Error;
use crate::id::{check_id, check_pattern};
use crate::pattern::Pattern;
use crate::response::{Ending, Response};
use crate::rows::{self, Row};
use crate::sql::{self, MAX_LIMIT, Mark, What};

/// Entries, and the ID behind which the next page starts; none where this is the last.
pub(crate) type Page<T> = (Vec<T>, Option<String>);

impl<O: Outside> Client<'_, O> {
    pub(crate) fn get(&self, id: &str) -> Result<Option<Row>, Error> {
        check_id(id)?;
        let read = |mark| match self.read(&sql::get(self.connection, id, mark)?)? {
            Some(answer) => rows::state_of(id, &answer),
            None => Ok(None),
        };
        let row = match read(Mark::Guess)? {
            Some(Row { blank: true, .. }) => read(Mark::Read)?,
            row => row,
        };
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
        check_page(pattern, after, limit)?;
        let limit = limit.min(MAX_LIMIT);
        let pattern = Pattern::parse(pattern);
        let request = sql::page(self.connection, what, &pattern, after, limit)?;
        let response = self.read(&request)?;
        Ok(response.map(|Response { body, ending, .. }| RawPage {
            body,
            ending,
            limit,
        }))
    }

    pub(crate) fn clear(&self) -> Result<u64, Error> {
        let Some(answer) = self.read(&sql::count(self.connection)?)? else {
            return Ok(0);
        };
        let count = rows::count(&answer)?;
        self.keep_deletions()?;
        match self.send(&sql::truncate(self.connection)?) {
            // Somebody has dropped the table in between.
            Err(Error::Server(error)) if is_missing(&error) => Ok(count),
            emptied => emptied.map(|_| count),
        }
    }

    /// So that the versions of states that are made again go on from where they were. It is only a precaution against
    /// a clock that steps back: a user who may not do it may empty the table all the same.
    fn keep_deletions(&self) -> Result<(), Error> {
        let kept = self.with_deleted_table(|| self.send(&sql::note_all(self.connection)?));
        match kept {
            Err(Error::AccessDenied(_) | Error::Server(_)) => Ok(()),
            kept => kept.map(drop),
        }
    }
}

/// What a caller asks a page of.
pub(crate) fn check_page(pattern: &str, after: Option<&str>, limit: u32) -> Result<(), Error> {
    check_pattern(pattern)?;
    if let Some(after) = after {
        check_id(after)?;
    }
    match limit {
        0 => Err(Error::InvalidInput(
            "the limit of a page must be at least 1".to_owned(),
        )),
        _ => Ok(()),
    }
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
