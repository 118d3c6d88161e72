//! The exports of the component: the contract's words for what `store` and `settings` do.

use crate::bindings::exports::pipeline::state::registration::{
    self, DefaultPorts, PluginInfo, SettingKind, SettingRole,
};
use crate::bindings::exports::pipeline::state::store::{
    self as contract, Entry, IdPage, Page, State, StateId, Target,
};
use crate::bindings::pipeline::state::types as wit;
use crate::connection::Connection;
use crate::error::{Error, Failure, Outcome};
use crate::rows::Row;
use crate::settings::{self, HTTP_PORT, HTTPS_PORT, Kind, Role, SETTINGS};
use crate::store::Store;
use crate::{http, uri};

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
        }
    }
}

impl contract::Guest for ClickHouse {
    fn get(target: Target, id: StateId) -> Result<Option<Entry>, wit::Error> {
        let connection = connect(target)?;
        let row = Store::new(&connection, http::send).get(&id)?;
        Ok(row.map(Entry::from))
    }

    fn get_page(
        target: Target,
        pattern: String,
        after: Option<StateId>,
        limit: u32,
    ) -> Result<Page, wit::Error> {
        let connection = connect(target)?;
        let (rows, next) =
            Store::new(&connection, http::send).get_page(&pattern, after.as_deref(), limit)?;
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
        let (ids, next) =
            Store::new(&connection, http::send).get_ids(&pattern, after.as_deref(), limit)?;
        Ok(IdPage { ids, next })
    }

    fn set(target: Target, id: StateId, state: State) -> Result<(), wit::Error> {
        let connection = connect(target)?;
        Ok(Store::new(&connection, http::send).set(&id, state.partial, state.completed)?)
    }

    fn delete(target: Target, id: StateId) -> Result<bool, wit::Error> {
        let connection = connect(target)?;
        Ok(Store::new(&connection, http::send).delete(&id)?)
    }

    fn clear(target: Target) -> Result<u64, wit::Error> {
        let connection = connect(target)?;
        Ok(Store::new(&connection, http::send).clear()?)
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

impl From<Row> for Entry {
    fn from(row: Row) -> Self {
        // `updated_at` is the version and the time in one. Before 1970 there were no states.
        let version = u64::try_from(row.version).unwrap_or_default();
        Self {
            id: row.id,
            state: State {
                completed: row.completed,
                partial: row.partial,
            },
            version,
            updated_at_ms: version,
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
