//! Removes what a tombstone hides, and then the tombstone, and finds the rows of writers who came too late for it.

use std::time::Duration;

use crate::client::{Client, Outside};
use crate::error::Error;
use crate::rows;
use crate::sql::{self, Removal};
use crate::version::Version;

/// How long a write takes at most, from the reading to the confirm, that need not ask whether the state was deleted meanwhile.
pub(crate) const SWIFT: Duration = Duration::from_millis(100);
/// How long a tombstone stays at least: longer, since clocks differ in speed.
const TOMBSTONE_AGE: Duration = Duration::from_millis(150);
/// How long a deletion waits before it looks whether the hidden rows are gone; each time twice as long, up to the last.
const FIRST_LOOK: Duration = Duration::from_millis(8);
const LAST_LOOK: Duration = Duration::from_millis(64);

impl<O: Outside> Client<'_, O> {
    /// The version of the last deletion of a state, 0 if there was none, and the server's clock; none without the table.
    pub(crate) fn last_deletion(&self, id: &str) -> Result<Option<(Version, Version)>, Error> {
        match self.read(&sql::last_deletion(self.connection, id)?)? {
            Some(answer) => rows::last_deletion(&answer).map(Some),
            None => Ok(None),
        }
    }

    /// Whether a write was stored when the state had been deleted since it was read, and the tombstone, which would lie above
    /// it, was gone already. Then the row is removed: it never took effect.
    ///
    /// A tombstone stays for longer than `SWIFT`, so a write that took less need not ask.
    pub(crate) fn came_after_a_deletion(&self, id: &str, version: Version) -> Result<bool, Error> {
        let noted = self.last_deletion(id).map_err(Error::in_doubt)?;
        if noted.is_none_or(|(deleted, _)| deleted < version) {
            return Ok(false);
        }
        let ghost = sql::remove(self.connection, id, version, Removal::Ghost)?;
        self.send(&ghost).map_err(Error::in_doubt)?;
        Ok(true)
    }

    /// Removes the rows of a state whose tombstone is stored, for the Python backend's readers, who know no tombstones:
    /// the hidden ones first, and the tombstone only when they are gone, since a removal goes through the table part by
    /// part. Nothing depends on that: where it takes long, or the user has no grant for it (`ALTER DELETE`), the
    /// tombstone stays, until `migrate` removes it.
    pub(crate) fn remove_rows(&self, id: &str, tombstone: Version) {
        let _stays = self.try_to_remove_rows(id, tombstone);
    }

    fn try_to_remove_rows(&self, id: &str, tombstone: Version) -> Result<(), Error> {
        let to = self.connection;
        self.send(&sql::remove(to, id, tombstone, Removal::BeforeTombstone)?)?;
        self.outside.pause(TOMBSTONE_AGE);
        let rows = || rows::count(&self.send(&sql::count_rows(to, id)?)?);
        let mut pause = FIRST_LOOK;
        while rows()? > 1 {
            if pause > LAST_LOOK {
                return Ok(());
            }
            self.outside.pause(pause);
            pause *= 2;
        }
        self.with_deleted_table(|| self.send(&sql::note_deletion(to, id, tombstone)?))?;
        self.send(&sql::remove(to, id, tombstone, Removal::Tombstone)?)?;
        Ok(())
    }
}
