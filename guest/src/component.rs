//! The exports of the component: the contract's words for what the other modules do.

use crate::bindings::exports::pipeline::state::registration::{
    self, DefaultPorts, PluginInfo, SettingKind, SettingRole,
};
use crate::bindings::exports::pipeline::state::store::{
    self as contract, Entry, IdPage, Page, State, StateId, Target,
};
use crate::bindings::exports::pipeline::state::{history, locks, maintenance};
use crate::bindings::pipeline::state::types as wit;
use crate::client::Client;
use crate::connection::Connection;
use crate::doctor::{Finding, Severity};
use crate::error::{Error, Failure, Outcome};
use crate::http::Wasi;
use crate::lease::Lease;
use crate::rows::{Change, Row};
use crate::settings::{self, HTTP_PORT, HTTPS_PORT, Kind, Role, SETTINGS};
use crate::state::Documents;
use crate::uri;
use crate::version::Version;
use crate::write::Expectation;

pub(crate) struct ClickHouse;

impl registration::Guest for ClickHouse {
    fn describe() -> PluginInfo {
        PluginInfo {
            name: "clickhouse".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schemes: vec![uri::SCHEME.to_owned()],
            settings: SETTINGS.iter().map(registration::Setting::from).collect(),
            default_ports: DefaultPorts {
                plain: HTTP_PORT,
                tls: HTTPS_PORT,
            },
            needs_credentials: false,
        }
    }
}

impl contract::Guest for ClickHouse {
    fn get(target: Target, id: StateId) -> Result<Option<Entry>, wit::Error> {
        let row = connect(target)?.client().get(&id)?;
        Ok(row.map(Entry::from))
    }

    fn get_page(
        target: Target,
        pattern: String,
        after: Option<StateId>,
        limit: u32,
    ) -> Result<Page, wit::Error> {
        let connection = connect(target)?;
        let (rows, next) = connection
            .client()
            .get_page(&pattern, after.as_deref(), limit)?;
        Ok(Page {
            entries: rows.into_iter().map(Entry::from).collect(),
            next,
        })
    }

    fn get_ids(
        target: Target,
        pattern: String,
        after: Option<StateId>,
        limit: u32,
    ) -> Result<IdPage, wit::Error> {
        let connection = connect(target)?;
        let (ids, next) = connection
            .client()
            .get_ids(&pattern, after.as_deref(), limit)?;
        Ok(IdPage { ids, next })
    }

    fn set(
        target: Target,
        id: StateId,
        state: State,
        expect: contract::Expectation,
        lease: Option<String>,
    ) -> Result<u64, wit::Error> {
        let connection = connect(target)?;
        let state = Documents::check(state.partial, state.completed)?;
        let version =
            connection
                .client()
                .set(&id, &state, expectation(expect)?, lease.as_deref())?;
        Ok(version.to_contract())
    }

    fn set_many(target: Target, states: Vec<(StateId, State)>) -> Result<u32, wit::Error> {
        let connection = connect(target)?;
        let states = states
            .into_iter()
            .map(|(id, state)| (id, state.partial, state.completed))
            .collect();
        Ok(connection.client().set_many(states)?)
    }

    fn update(
        target: Target,
        id: StateId,
        state: State,
        lease: Option<String>,
    ) -> Result<u64, wit::Error> {
        let connection = connect(target)?;
        let state = Documents::check(state.partial, state.completed)?;
        Ok(connection
            .client()
            .update(&id, &state, lease.as_deref())?
            .to_contract())
    }

    fn delete(
        target: Target,
        id: StateId,
        expect: contract::Expectation,
        lease: Option<String>,
    ) -> Result<bool, wit::Error> {
        let connection = connect(target)?;
        Ok(connection
            .client()
            .delete(&id, expectation(expect)?, lease.as_deref())?)
    }

    fn clear(target: Target) -> Result<u64, wit::Error> {
        Ok(connect(target)?.client().clear()?)
    }
}

impl locks::Guest for ClickHouse {
    fn acquire(
        target: Target,
        id: StateId,
        request: locks::Request,
    ) -> Result<wit::Lease, wit::Error> {
        let connection = connect(target)?;
        let lease =
            connection
                .client()
                .acquire(&id, &request.token, request.ttl_ms, &request.owner)?;
        Ok(lease.into())
    }

    fn renew(target: Target, lease: wit::Lease, ttl_ms: u64) -> Result<wit::Lease, wit::Error> {
        let connection = connect(target)?;
        Ok(connection
            .client()
            .renew(&lease.try_into()?, ttl_ms)?
            .into())
    }

    fn release(target: Target, lease: wit::Lease) -> Result<(), wit::Error> {
        let connection = connect(target)?;
        Ok(connection.client().release(&lease.try_into()?)?)
    }

    fn inspect(
        target: Target,
        pattern: String,
        after: Option<StateId>,
        limit: u32,
    ) -> Result<locks::LeasePage, wit::Error> {
        let connection = connect(target)?;
        let (leases, next) = connection
            .client()
            .inspect(&pattern, after.as_deref(), limit)?;
        let leases = leases.into_iter().map(wit::Lease::from).collect();
        Ok(locks::LeasePage { leases, next })
    }

    fn break_lease(target: Target, id: StateId, token: String) -> Result<bool, wit::Error> {
        Ok(connect(target)?.client().break_lease(&id, &token)?)
    }
}

impl TryFrom<wit::Lease> for Lease {
    type Error = Error;

    fn try_from(lease: wit::Lease) -> Result<Self, Error> {
        let number = |number: u64| {
            i64::try_from(number)
                .map_err(|_| Error::InvalidInput("the lease is none of this store".to_owned()))
        };
        Ok(Self {
            epoch: number(lease.epoch)?,
            acquired_ms: number(lease.acquired_at_ms)?,
            renewed_ms: number(lease.renewed_at_ms)?,
            expires_ms: number(lease.expires_at_ms)?,
            id: lease.id,
            token: lease.token,
            owner: lease.owner,
        })
    }
}

impl From<Lease> for wit::Lease {
    fn from(lease: Lease) -> Self {
        Self {
            epoch: lease.epoch.unsigned_abs(),
            acquired_at_ms: milliseconds(lease.acquired_ms),
            renewed_at_ms: milliseconds(lease.renewed_ms),
            expires_at_ms: milliseconds(lease.expires_ms),
            id: lease.id,
            token: lease.token,
            owner: lease.owner,
        }
    }
}

impl history::Guest for ClickHouse {
    fn versions(
        target: Target,
        id: StateId,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<history::Change>, wit::Error> {
        let connection = connect(target)?;
        let before = before.map(Version::from_contract).transpose()?;
        let changes = connection.client().versions(&id, before, limit)?;
        Ok(changes.into_iter().map(history::Change::from).collect())
    }
}

impl maintenance::Guest for ClickHouse {
    fn check(target: Target) -> Result<Vec<maintenance::Finding>, wit::Error> {
        let findings = connect(target)?.client().check()?;
        Ok(findings
            .into_iter()
            .map(maintenance::Finding::from)
            .collect())
    }

    fn migrate(target: Target) -> Result<Vec<String>, wit::Error> {
        Ok(connect(target)?.client().migrate()?)
    }
}

fn expectation(expect: contract::Expectation) -> Result<Expectation, Error> {
    Ok(match expect {
        contract::Expectation::Any => Expectation::Any,
        contract::Expectation::Absent => Expectation::Absent,
        contract::Expectation::Version(version) => {
            Expectation::Version(Version::from_contract(version)?)
        }
    })
}

impl Connection {
    fn client(&self) -> Client<'_, Wasi> {
        Client::new(self, Wasi)
    }
}

fn connect(target: Target) -> Result<Connection, Error> {
    Connection::new(&target.uri, &target.settings)
}

impl From<&settings::Setting> for registration::Setting {
    fn from(setting: &settings::Setting) -> Self {
        Self {
            name: setting.name.to_owned(),
            kind: match setting.kind {
                Kind::Text => SettingKind::Text,
                Kind::Integer => SettingKind::Integer,
                Kind::Boolean => SettingKind::Boolean,
            },
            role: setting.role.map(|role| match role {
                Role::Host => SettingRole::Host,
                Role::Port => SettingRole::Port,
                Role::Tls => SettingRole::Tls,
                Role::User => SettingRole::User,
                Role::Password => SettingRole::Password,
            }),
            label: setting.label.to_owned(),
            default: setting.default.map(str::to_owned),
            sensitive: setting.sensitive,
            env: settings::variable(setting),
        }
    }
}

/// Before 1970 there were no states.
fn milliseconds(time: i64) -> u64 {
    u64::try_from(time).unwrap_or_default()
}

impl From<Row> for Entry {
    fn from(row: Row) -> Self {
        Self {
            id: row.id,
            state: State {
                completed: row.completed,
                partial: row.partial,
            },
            version: row.version.to_contract(),
            updated_at_ms: milliseconds(row.written_ms),
        }
    }
}

impl From<Change> for history::Change {
    fn from(change: Change) -> Self {
        Self {
            version: change.version.to_contract(),
            written_at_ms: milliseconds(change.written_ms),
            state: (!change.deleted).then_some(State {
                completed: change.completed,
                partial: change.partial,
            }),
        }
    }
}

impl From<Finding> for maintenance::Finding {
    fn from(finding: Finding) -> Self {
        Self {
            severity: match finding.severity {
                Severity::Fine => maintenance::Severity::Fine,
                Severity::Note => maintenance::Severity::Note,
                Severity::Warning => maintenance::Severity::Warning,
                Severity::Problem => maintenance::Severity::Problem,
            },
            subject: finding.subject.to_owned(),
            text: finding.text,
            mend: finding.mend,
        }
    }
}

impl From<Error> for wit::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::InvalidInput(text) => Self::InvalidInput(text),
            Error::MissingSetting(text) => Self::MissingSetting(text),
            Error::Unauthenticated(text) => Self::Unauthenticated(text),
            Error::AccessDenied(text) => Self::AccessDenied(text),
            Error::Unavailable(failure) => Self::Unavailable(failure.into()),
            Error::TimedOut(failure) => Self::TimedOut(failure.into()),
            Error::Server(error) => Self::Server(wit::ServerError {
                code: error.code,
                name: error.name,
                message: error.message,
                outcome: error.outcome.into(),
            }),
            Error::Corrupt(text) => Self::Corrupt(text),
            Error::Conflict(version) => Self::Conflict(version.map(Version::to_contract)),
            Error::Locked(lease) => Self::Locked(lease.map(wit::Lease::from)),
        }
    }
}

impl From<Failure> for wit::Failure {
    fn from(failure: Failure) -> Self {
        Self {
            message: failure.message,
            outcome: failure.outcome.into(),
        }
    }
}

impl From<Outcome> for wit::Outcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::NotApplied => Self::NotApplied,
            Outcome::Unknown => Self::Unknown,
        }
    }
}
