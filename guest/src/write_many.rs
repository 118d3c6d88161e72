//! Sets many states at once: one insert of all of them, each on top of what is there.

use std::collections::HashSet;

use crate::client::{Client, Outside, is_missing};
use crate::error::Error;
use crate::id::check_id;
use crate::response::code;
use crate::rows::{self, Heads, Layout};
use crate::sql;
use crate::state::{Documents, refuse_to_empty};
use crate::version::Version;
use crate::writes::{self, Name};

/// How many bytes of IDs are asked for at once: encoded they must fit into a URL.
const IDS_AT_ONCE: usize = 8 * 1024;

impl<O: Outside> Client<'_, O> {
    /// Meltano's `set_all`: says how many states it has stored. Of two of one ID the later one counts.
    pub(crate) fn set_many(
        &self,
        states: Vec<(String, Option<String>, Option<String>)>,
    ) -> Result<u32, Error> {
        let mut new: Vec<(String, Documents)> = Vec::with_capacity(states.len());
        let mut seen = HashSet::with_capacity(states.len());
        for (id, partial, completed) in states.into_iter().rev() {
            check_id(&id)?;
            let documents = Documents::check(partial, completed)?;
            if seen.insert(id.clone()) {
                new.push((id, documents));
            }
        }
        self.refuse_to_empty_any(&new)?;
        if new.is_empty() {
            return Ok(0);
        }
        let ids: Vec<&str> = new.iter().map(|(id, _)| id.as_str()).collect();
        let (layout, heads) = match self.heads(&ids) {
            Err(Error::Server(error)) if is_missing(&error) => {
                self.create_tables(&error)?;
                self.heads(&ids)?
            }
            heads => heads?,
        };
        match self.insert_many(&new, layout.unwrap_or(Layout::Ours), &heads) {
            Err(Error::Server(error)) if error.code == code::NO_SUCH_COLUMN && layout.is_none() => {
                self.insert_many(&new, Layout::Plain, &heads)?;
            }
            inserted => inserted?,
        }
        Ok(u32::try_from(new.len()).unwrap_or(u32::MAX))
    }

    /// One request for each state that is empty, where that is to be refused: there are few.
    fn refuse_to_empty_any(&self, new: &[(String, Documents)]) -> Result<(), Error> {
        if !self.connection.options.refuse_empty {
            return Ok(());
        }
        for (id, _) in new.iter().filter(|(_, documents)| documents.is_empty()) {
            if let Some(row) = self.get(id)? {
                refuse_to_empty(&Documents {
                    partial: row.partial,
                    completed: row.completed,
                })?;
            }
        }
        Ok(())
    }

    /// With the layout of the table, which shows where one of them is stored.
    fn heads(&self, ids: &[&str]) -> Result<(Option<Layout>, Heads), Error> {
        let mut all = (None, Heads::new());
        let mut rest = ids;
        while !rest.is_empty() {
            let mut size = 0;
            let count = rest
                .iter()
                .take_while(|id| {
                    size += id.len() + 3;
                    size <= IDS_AT_ONCE
                })
                .count();
            let (now, later) = rest.split_at(count.clamp(1, rest.len()));
            let answer = self.send(&sql::heads(self.connection, now)?)?;
            let (layout, heads) = rows::heads(&answer)?;
            all.0 = all.0.or(layout);
            all.1.extend(heads);
            rest = later;
        }
        Ok(all)
    }

    fn insert_many(
        &self,
        new: &[(String, Documents)],
        layout: Layout,
        heads: &Heads,
    ) -> Result<(), Error> {
        let now = self.clock()?;
        let name = Name::new(self.outside.random());
        // What the rows borrow.
        let versions: Vec<(Version, String)> = new
            .iter()
            .map(|(id, _)| {
                let head = heads.get(id);
                // What is not there is no creation either, of which there is one alone.
                let (stored, before) =
                    head.map_or((Version::ZERO, ""), |(stored, before)| (*stored, before));
                match layout {
                    Layout::Plain => (stored.plain_top(now), String::new()),
                    Layout::Ours => {
                        let version = stored.top(now, self.outside.random());
                        let before = writes::after(stored, before);
                        (version, writes::add(&before, version, name))
                    }
                }
            })
            .collect();
        let rows: Vec<_> = new
            .iter()
            .zip(&versions)
            .map(|((id, documents), (version, writes))| sql::Row {
                valid_until_ms: None,
                id,
                partial: documents.partial.as_deref(),
                completed: documents.completed.as_deref(),
                version: *version,
                written: now,
                deleted: false,
                writes,
            })
            .collect();
        let request = match layout {
            Layout::Ours => sql::insert(self.connection, &rows, &format!("many/{name}"))?,
            Layout::Plain => sql::insert_plain(self.connection, &rows)?,
        };
        self.send_rows(&request)
    }
}
