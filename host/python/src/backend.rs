//! A store that is open: each method waits for its answer.

use pipeline_state::{Expectation, Severity, State, StateId, Version};
use pyo3::prelude::*;

use crate::errors::raised;
use crate::lease::{Holder, Lease, holder};
use crate::plugins::duration;
use crate::waiting::Home;

/// completed, partial
type Documents = (Option<String>, Option<String>);
/// id, documents, version, when it was written in milliseconds since 1970
type Entry = (String, Documents, u64, u64);
/// version, when, documents or none where it was deleted
type Change = (u64, u64, Option<Documents>);
/// severity, subject, text, what to do
type Finding = (&'static str, String, String, Option<String>);

/// A store. Threads may share it.
#[pyclass(frozen)]
pub(crate) struct Backend {
    home: Home,
    inner: pipeline_state::Backend,
}

impl Backend {
    pub(crate) fn new(home: Home, inner: pipeline_state::Backend) -> Backend {
        Backend { home, inner }
    }
}

#[pymethods]
impl Backend {
    #[getter]
    fn origin(&self) -> Option<String> {
        self.inner.origin()
    }

    fn under_lease(&self, token: &str) -> Backend {
        Backend::new(self.home, self.inner.under_lease(token))
    }

    fn get(&self, py: Python<'_>, id: String) -> PyResult<Option<Entry>> {
        let found = self.home.wait(py, self.inner.get(&StateId::from(id)))?;
        Ok(found.map(entry))
    }

    fn get_page(
        &self,
        py: Python<'_>,
        pattern: &str,
        after: Option<String>,
        limit: u32,
    ) -> PyResult<(Vec<Entry>, Option<String>)> {
        let after = after.map(StateId::from);
        let page = self
            .home
            .wait(py, self.inner.get_page(pattern, after.as_ref(), limit))?;
        Ok((
            page.entries.into_iter().map(entry).collect(),
            page.next.map(|id| id.to_string()),
        ))
    }

    fn get_ids(
        &self,
        py: Python<'_>,
        pattern: &str,
        after: Option<String>,
        limit: u32,
    ) -> PyResult<(Vec<String>, Option<String>)> {
        let after = after.map(StateId::from);
        let page = self
            .home
            .wait(py, self.inner.get_ids(pattern, after.as_ref(), limit))?;
        Ok((
            page.ids.iter().map(ToString::to_string).collect(),
            page.next.map(|id| id.to_string()),
        ))
    }

    fn set(
        &self,
        py: Python<'_>,
        id: String,
        documents: Documents,
        expect: Expected,
    ) -> PyResult<u64> {
        let id = StateId::from(id);
        let work = self.inner.set_if(&id, state(documents), expect.0);
        self.home.wait(py, work).map(Version::get)
    }

    fn set_many(&self, py: Python<'_>, states: Vec<(String, Documents)>) -> PyResult<u32> {
        let states = states
            .into_iter()
            .map(|(id, documents)| (StateId::from(id), state(documents)))
            .collect();
        self.home.wait(py, self.inner.set_many(states))
    }

    fn update(&self, py: Python<'_>, id: String, documents: Documents) -> PyResult<u64> {
        let id = StateId::from(id);
        let work = self.inner.update(&id, state(documents));
        self.home.wait(py, work).map(Version::get)
    }

    fn delete(&self, py: Python<'_>, id: String, expect: Expected) -> PyResult<bool> {
        let id = StateId::from(id);
        self.home.wait(py, self.inner.delete_if(&id, expect.0))
    }

    fn clear(&self, py: Python<'_>) -> PyResult<u64> {
        self.home.wait(py, self.inner.clear())
    }

    fn lock(
        &self,
        py: Python<'_>,
        id: String,
        owner: String,
        ttl: f64,
        wait: f64,
    ) -> PyResult<Lease> {
        let seconds = |name, value| duration(name, value).map_err(|error| raised(py, error));
        let lock = self
            .inner
            .lock(&StateId::from(id))
            .owner(owner)
            .ttl(seconds("ttl", ttl)?)
            .wait(seconds("wait", wait)?);
        let lease = self.home.wait(py, lock.into_future())?;
        Ok(Lease::new(self.home, lease))
    }

    fn holders(&self, py: Python<'_>, pattern: &str) -> PyResult<Vec<Holder>> {
        let holders = self.home.wait(py, self.inner.holders(pattern))?;
        Ok(holders.into_iter().map(holder).collect())
    }

    fn break_lease(&self, py: Python<'_>, id: String, token: &str) -> PyResult<bool> {
        let id = StateId::from(id);
        self.home.wait(py, self.inner.break_lease(&id, token))
    }

    fn versions(
        &self,
        py: Python<'_>,
        id: String,
        before: Option<u64>,
        limit: u32,
    ) -> PyResult<Vec<Change>> {
        let id = StateId::from(id);
        let work = self.inner.versions(&id, before.map(Version::from), limit);
        let changes = self.home.wait(py, work)?;
        Ok(changes
            .into_iter()
            .map(|change| {
                (
                    change.version.get(),
                    change.written_at_ms,
                    change.state.map(documents),
                )
            })
            .collect())
    }

    fn check(&self, py: Python<'_>) -> PyResult<Vec<Finding>> {
        let findings = self.home.wait(py, self.inner.check())?;
        Ok(findings
            .into_iter()
            .map(|finding| {
                let severity = match finding.severity {
                    Severity::Fine => "fine",
                    Severity::Note => "note",
                    Severity::Warning => "warning",
                    Severity::Problem => "problem",
                };
                (severity, finding.subject, finding.text, finding.mend)
            })
            .collect())
    }

    fn migrate(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.home.wait(py, self.inner.migrate())
    }
}

/// "any", "absent", or a version.
struct Expected(Expectation);

impl<'a, 'py> FromPyObject<'a, 'py> for Expected {
    type Error = PyErr;

    fn extract(expect: Borrowed<'a, 'py, PyAny>) -> PyResult<Expected> {
        if let Ok(version) = expect.extract::<u64>() {
            return Ok(Expected(Expectation::Version(Version::from(version))));
        }
        match expect.extract::<String>()?.as_str() {
            "any" => Ok(Expected(Expectation::Any)),
            "absent" => Ok(Expected(Expectation::Absent)),
            _ => Err(raised(
                expect.py(),
                pipeline_state::Error::InvalidInput(
                    "expect must be \"any\", \"absent\" or a version".to_owned(),
                ),
            )),
        }
    }
}

fn state((completed, partial): Documents) -> State {
    State { completed, partial }
}

fn documents(state: State) -> Documents {
    (state.completed, state.partial)
}

fn entry(entry: pipeline_state::Entry) -> Entry {
    (
        entry.id.to_string(),
        documents(entry.state),
        entry.version.get(),
        entry.updated_at_ms,
    )
}
