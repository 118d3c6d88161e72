//! Steps of leases in a KeeperMap table `<table>_lease_keeper`, where Keeper or ZooKeeper is configured: one row for each
//! state, changed by compare-and-set (`keeper_map_strict_mode`). So they are exact on any number of replicas.
//!
//! Nobody is told whether a compare-and-set has found what it expected: the row says so, by the name of the step in `writes`.

use super::{Made, Step};
use crate::client::{Client, Outside, is_missing};
use crate::error::Error;
use crate::rows;
use crate::sql;
use crate::step::may_be_stored;
use crate::writes::Name;

impl<O: Outside> Client<'_, O> {
    /// Two requests: a step, and a reading back whether it was stored.
    pub(super) fn make_in_keeper(&self, step: &Step<'_>) -> Result<Made, Error> {
        let name = self.name();
        let sent = self.send_to_keeper(step, name);
        if let Err(error) = &sent
            && !may_be_stored(error)
        {
            return sent.map(|()| Made::Lost);
        }
        match (self.look_for(step, name), sent) {
            (Ok(made @ Made::At(_)), _) | (Ok(made), Ok(())) => Ok(made),
            // Another one is there, or its epoch would be taken by now.
            (Ok(Made::Lost), Err(_)) => Ok(Made::Lost),
            (_, Err(error)) => Err(error),
            (Err(error), Ok(())) => Err(error.in_doubt()),
        }
    }

    /// One request.
    pub(super) fn send_to_keeper(&self, step: &Step<'_>, name: Name) -> Result<(), Error> {
        let writes = name.to_string();
        let request = match step.first {
            true => sql::insert_in_keeper(self.connection, step, &writes)?,
            false => sql::update_in_keeper(self.connection, step, &writes)?,
        };
        match self.send(&request) {
            Err(Error::Server(error)) if is_missing(&error) && step.first => {
                self.create_leases(&error)?;
                self.send(&request).map(drop)
            }
            sent => sent.map(drop),
        }
    }

    fn look_for(&self, step: &Step<'_>, name: Name) -> Result<Made, Error> {
        let answer = self.send(&sql::lease(self.connection, &step.lease.id)?)?;
        let reading = rows::lease(&step.lease.id, &answer)?;
        Ok(match reading.last {
            Some(last) if last.writes == name.to_string() => Made::At(last.lease.renewed_ms),
            Some(last) if !step.first && last.lease.epoch == step.lease.epoch => Made::Late,
            Some(_) => Made::Lost,
            None => Made::Gone,
        })
    }
}
