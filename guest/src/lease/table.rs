//! Steps of leases in a table `<table>_lease`, a row each: of all inserts under one token the server stores one.

use super::{Made, Step};
use crate::client::{Client, Outside, is_missing};
use crate::error::Error;
use crate::response::code;
use crate::rows;
use crate::sql;
use crate::step::{doubled, may_be_stored};
use crate::tables::inexact_on_replicas;
use crate::version::Version;
use crate::write::TURN;
use crate::writes::{self, Fate, Name, Sent};

impl<O: Outside> Client<'_, O> {
    /// Two requests: a step, and a reading back whether it was stored.
    pub(super) fn make_in_table(&self, step: &Step<'_>) -> Result<Made, Error> {
        let name = self.name();
        match self.insert_step(step, name) {
            Ok(()) => self.confirm_step(step, name).map_err(Error::in_doubt),
            Err(error) if may_be_stored(&error) => match self.confirm_step(step, name) {
                Ok(made @ (Made::At(_) | Made::Lost)) => Ok(made),
                // If an earlier try is still under way, it comes late as well.
                Ok(_) if is_late(&error) => Ok(Made::Late),
                _ => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    /// One request: it does not ask whether the step was stored, only tells whether it came in time.
    pub(super) fn send_to_table(&self, step: &Step<'_>, name: Name) -> Result<bool, Error> {
        match self.insert_step(step, name) {
            Err(error) if is_late(&error) => Ok(false),
            sent => sent.map(|()| true),
        }
    }

    fn insert_step(&self, step: &Step<'_>, name: Name) -> Result<(), Error> {
        let Sent { version, from, .. } = sent(step, name);
        let before = from.map_or_else(String::new, |from| writes::after(from, step.before));
        let of = from.map_or_else(|| "new".to_owned(), |_| version.to_string());
        let token = format!("{}/{of}/{}", step.lease.id, step.generation);
        let writes = writes::add(&before, version, name);
        let request = sql::insert_step(self.connection, step, &writes, &token)?;
        match self.send(&request) {
            Err(Error::Server(error)) if is_missing(&error) => {
                self.create_leases(&error)?;
                self.send(&request).map(drop)
            }
            sent => sent.map(drop),
        }
    }

    fn confirm_step(&self, step: &Step<'_>, name: Name) -> Result<Made, Error> {
        let sent = sent(step, name);
        let look = || {
            let answer = self.send(&sql::confirm_step(self.connection, &step.lease.id)?)?;
            let (rows, made) = rows::confirmed_steps(&answer)?;
            Ok((writes::fate(&rows, sent), made.get(&sent.version).copied()))
        };
        let mut seen = look()?;
        if seen.0 == Fate::Dropped {
            // Once more: not that the winner's row was only just on its way.
            self.outside.pause(TURN);
            seen = look()?;
        }
        match seen {
            (Fate::Stored, Some(made_ms)) => Ok(Made::At(made_ms)),
            (Fate::Stored | Fate::Lost | Fate::Covered, _) => Ok(Made::Lost),
            // Another token for this epoch is right only where a row that is stored is also seen.
            (Fate::Dropped, _) => match self.is_on_replicas()? {
                true => Err(inexact_on_replicas()),
                false => Ok(Made::Gone),
            },
            (Fate::Doubled, _) => Err(doubled(&self.connection.table)),
        }
    }
}

/// Epochs are to a chain of steps what versions are to the writes of a state.
fn sent(step: &Step<'_>, name: Name) -> Sent {
    Sent {
        name,
        version: Version::new(step.epoch()),
        from: (!step.first).then(|| Version::new(step.lease.epoch)),
    }
}

fn is_late(error: &Error) -> bool {
    matches!(error, Error::Server(error) if error.code == code::VIOLATED_CONSTRAINT)
}
