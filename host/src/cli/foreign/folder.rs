//! A folder as Meltano's backend for local files keeps it: `<folder>/<state ID>/state.json`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pipeline_state::{Error, State, StateId};

use super::{Access, Found, pattern, read};
use crate::cli::failure::Failure;

const STATE: &str = "state.json";
const LOCK: &str = "lock";
/// After which time Meltano takes a lock for one that was left behind.
const STALE: Duration = Duration::from_secs(10);

pub(in super::super) struct Folder {
    root: PathBuf,
    /// In order. They are read once: what comes later is not seen.
    ids: Vec<StateId>,
}

impl Folder {
    pub(super) fn open(root: PathBuf, access: Access) -> Result<Folder, Failure> {
        if access == Access::Write {
            fs::create_dir_all(&root).map_err(Failure::file(&root))?;
        }
        let mut ids = Vec::new();
        let folders = match fs::read_dir(&root) {
            Err(error) if access == Access::Pretend && error.kind() == ErrorKind::NotFound => {
                return Ok(Folder { root, ids });
            }
            folders => folders.map_err(Failure::file(&root))?,
        };
        for folder in folders {
            let folder = folder.map_err(Failure::file(&root))?;
            if folder.path().join(STATE).is_file() {
                let name = folder.file_name().into_string().map_err(|name| {
                    Error::Corrupt(format!("the folder {} is no state ID", name.display()))
                })?;
                ids.push(StateId::from(name));
            }
        }
        ids.sort();
        Ok(Folder { root, ids })
    }

    pub(super) fn page(
        &self,
        wanted: &str,
        after: Option<&StateId>,
        limit: usize,
    ) -> Result<Vec<Found>, Failure> {
        let start = after.map_or(0, |after| self.ids.partition_point(|id| id <= after));
        let ids = self.ids.iter().skip(start);
        let wanted = ids.filter(|id| pattern::matches(wanted, id.as_str()));
        let mut page = Vec::new();
        for id in wanted.take(limit) {
            let path = self.root.join(id.as_str()).join(STATE);
            match fs::read_to_string(&path) {
                Ok(text) => page.push(Found {
                    id: id.clone(),
                    state: read(id, &text)?,
                    updated_at_ms: modified(&path),
                }),
                // It was deleted meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(Failure::file(&path)(error)),
            }
        }
        Ok(page)
    }

    /// Each under Meltano's lock, and in one step: a reader finds the old state or the new one.
    pub(super) fn write(&self, states: &[(StateId, State)]) -> Result<(), Failure> {
        for (id, state) in states {
            let folder = self.folder(id)?;
            fs::create_dir_all(&folder).map_err(Failure::file(&folder))?;
            let lock = Lock::acquire(&folder, id)?;
            let written = replace(&folder.join(STATE), &state.to_json());
            drop(lock);
            written.map_err(Failure::file(&folder))?;
        }
        Ok(())
    }

    fn folder(&self, id: &StateId) -> Result<PathBuf, Error> {
        let name = id.as_str();
        let is_name = !name.is_empty() && name != "." && name != "..";
        match is_name && !name.contains(['/', '\\', '\0']) {
            true => Ok(self.root.join(name)),
            false => Err(Error::InvalidInput(format!(
                "the ID `{name}` can't be the name of a folder; leave it out with --pattern"
            ))),
        }
    }
}

fn modified(path: &Path) -> Option<u64> {
    let time = fs::metadata(path).and_then(|file| file.modified()).ok()?;
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// A file with the time at which it was made.
struct Lock(PathBuf);

impl Lock {
    fn acquire(folder: &Path, id: &StateId) -> Result<Lock, Failure> {
        let path = folder.join(LOCK);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        if let Ok(text) = fs::read_to_string(&path) {
            let since: f64 = text.trim().parse().unwrap_or_default();
            if since + STALE.as_secs_f64() < now.as_secs_f64() {
                let _is_gone = fs::remove_file(&path);
            }
        }
        let made = OpenOptions::new().write(true).create_new(true).open(&path);
        let write = |mut file: File| write!(file, "{}", now.as_secs_f64());
        match made {
            Ok(file) => {
                let lock = Lock(path);
                write(file).map_err(Failure::file(&lock.0))?;
                Ok(lock)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(Failure::Foreign(format!(
                    "Meltano is writing the state `{id}` just now; run it again when that is done"
                )))
            }
            Err(error) => Err(Failure::file(&path)(error)),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _is_gone = fs::remove_file(&self.0);
    }
}
