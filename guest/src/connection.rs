//! What a target means: the server, the user, the table.

use std::net::{IpAddr, Ipv6Addr};

use pipeline_state_secret::Password;

use crate::error::Error;
use crate::escape::Identifier;
use crate::options::Options;
use crate::settings::{HTTP_PORT, HTTPS_PORT, Values};
use crate::uri::Uri;

/// A server, a user and a table.
///
/// The database of the URI is required, as in the Python backend, but not used: every statement names the database
/// that holds the state, so it does not matter whether the connection's own exists.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) tls: bool,
    /// `host:port`, an IPv6 address in brackets.
    pub(crate) authority: String,
    pub(crate) user: String,
    pub(crate) password: Password,
    pub(crate) table: Table,
    pub(crate) options: Options,
}

/// The table that holds the state, and those beside it.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// The names as they are, for values in SQL.
    pub(crate) schema_name: String,
    pub(crate) table_name: String,
    /// The same quoted, for SQL.
    pub(crate) schema: Identifier,
    name: Identifier,
    /// `<table>_deleted`: the last version of each state that was deleted.
    deleted: Identifier,
    /// `<table>_lease`: the steps of leases.
    lease: Identifier,
    /// `<table>_lease_keeper`: the last step of each lease, where they are kept in Keeper.
    lease_keeper: Identifier,
    /// `<table>_history`: every write.
    history: Identifier,
    /// `<table>_history_mv`: what fills the history.
    history_view: Identifier,
}

impl Table {
    pub(crate) fn new(schema: &str, table: &str) -> Result<Self, Error> {
        let beside = |suffix: &str| Identifier::new("table", &format!("{table}{suffix}"));
        Ok(Self {
            schema_name: schema.to_owned(),
            table_name: table.to_owned(),
            schema: Identifier::new("schema", schema)?,
            name: Identifier::new("table", table)?,
            deleted: beside("_deleted")?,
            lease: beside("_lease")?,
            lease_keeper: beside("_lease_keeper")?,
            history: beside("_history")?,
            history_view: beside("_history_mv")?,
        })
    }

    pub(crate) fn deleted(&self) -> String {
        format!("{}.{}", self.schema, self.deleted)
    }

    pub(crate) fn lease(&self) -> String {
        format!("{}.{}", self.schema, self.lease)
    }

    pub(crate) fn lease_keeper(&self) -> String {
        format!("{}.{}", self.schema, self.lease_keeper)
    }

    pub(crate) fn history(&self) -> String {
        format!("{}.{}", self.schema, self.history)
    }

    pub(crate) fn history_view(&self) -> String {
        format!("{}.{}", self.schema, self.history_view)
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.schema, self.name)
    }
}

impl Connection {
    pub(crate) fn new(uri: &str, settings: &[(String, String)]) -> Result<Self, Error> {
        let uri = Uri::parse(uri)?;
        let values = Values::new(settings, &uri)?;
        let Some(user) = values.text("user") else {
            return Err(Error::MissingSetting(
                "ClickHouse user is required: give it in the URI, clickhouse://user:password@host/database, or as the setting `user`"
                    .to_owned(),
            ));
        };
        if values.text("database").is_none() {
            return Err(Error::MissingSetting(
                "ClickHouse database is required: give it in the URI, clickhouse://user:password@host/database, or as the setting `database`"
                    .to_owned(),
            ));
        }
        let tls = values.boolean("secure")?.unwrap_or(false);
        let port = values
            .port()?
            .unwrap_or(if tls { HTTPS_PORT } else { HTTP_PORT });
        refuse_native(port)?;
        Ok(Self {
            tls,
            authority: format!("{}:{port}", host(values.text_or_default("host"))?),
            user: user.to_owned(),
            password: Password::new(values.text_or_default("password").to_owned()),
            table: Table::new(
                values.text_or_default("schema"),
                values.text_or_default("table"),
            )?,
            options: Options::new(&values)?,
        })
    }

    /// For messages: `http://host:port`.
    pub(crate) fn origin(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }
}

/// The ports of the native protocol, which no HTTP client can use.
fn refuse_native(port: u16) -> Result<(), Error> {
    let (kind, right) = match port {
        9000 => ("", format!("{HTTP_PORT} is usual")),
        9440 => (" over TLS", format!("{HTTPS_PORT} is usual, with `secure`")),
        _ => return Ok(()),
    };
    Err(Error::InvalidInput(format!(
        "port {port} is for ClickHouse's native protocol{kind}; give the port of its HTTP interface: {right}"
    )))
}

/// A host as it stands in an authority.
fn host(text: &str) -> Result<String, Error> {
    let text = text.trim();
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    if let Ok(address) = bare.parse::<Ipv6Addr>() {
        return Ok(format!("[{address}]"));
    }
    let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.parse::<IpAddr>().is_ok() || (!text.is_empty() && text.chars().all(name)) {
        return Ok(text.to_ascii_lowercase());
    }
    // It is not quoted: a password that was not encoded may have become a part of it.
    Err(Error::InvalidInput(
        "the ClickHouse host is neither a name nor an address; an IPv6 zone can't be used, and a name with other \
         letters than a-z is written in its xn-- form"
            .to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(uri: &str, settings: &[(&str, &str)]) -> Result<Connection, Error> {
        let settings: Vec<_> = settings
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Connection::new(uri, &settings)
    }

    fn origin(uri: &str, settings: &[(&str, &str)]) -> String {
        connect(uri, settings).unwrap().origin()
    }

    #[test]
    fn the_origin_follows_from_the_uri_and_the_settings() {
        for (uri, settings, expected) in [
            ("clickhouse://u@h/db", &[][..], "http://h:8123"),
            ("clickhouse://u@H.Example:9/db", &[], "http://h.example:9"),
            ("clickhouse://u@h:0/db", &[], "http://h:8123"),
            ("clickhouse://u@[::1]:8123/db", &[], "http://[::1]:8123"),
            ("clickhouse://u@/db", &[], "http://localhost:8123"),
            (
                "clickhouse://u@h/db",
                &[("secure", "true")],
                "https://h:8443",
            ),
            ("clickhouse://u@h/db?secure=1", &[], "https://h:8443"),
            (
                "clickhouse://u@h:8123/db",
                &[("secure", "1")],
                "https://h:8123",
            ),
            (
                "clickhouse://u@h:1/db",
                &[("host", "::1"), ("port", "2")],
                "http://[::1]:2",
            ),
            (
                "clickhouse:///",
                &[("user", "u"), ("database", "d")],
                "http://localhost:8123",
            ),
        ] {
            assert_eq!(origin(uri, settings), expected, "{uri} {settings:?}");
        }
    }

    #[test]
    fn the_user_is_required_before_the_database_and_a_password_never() {
        let missing = |uri| match connect(uri, &[]) {
            Err(Error::MissingSetting(message)) => message,
            _ => panic!("{uri}"),
        };
        assert!(missing("clickhouse:///db").starts_with("ClickHouse user is required"));
        assert!(missing("clickhouse://").starts_with("ClickHouse user is required"));
        assert!(missing("clickhouse://u@h").starts_with("ClickHouse database is required"));
        assert!(connect("clickhouse://u@h/db", &[]).is_ok());
    }

    #[test]
    fn the_ports_of_the_native_protocol_are_refused_with_the_right_one() {
        let refused = |uri| match connect(uri, &[]) {
            Err(Error::InvalidInput(message)) => message,
            _ => panic!("{uri}"),
        };
        assert!(refused("clickhouse://u@h:9000/db").contains("8123"));
        assert!(refused("clickhouse://u@h:9440/db").contains("8443"));
    }

    #[test]
    fn a_host_that_is_none_is_refused_and_not_quoted() {
        for host in [
            "a b",
            "a/b",
            "sekret@h",
            "fe80::1%eth0",
            "[::1",
            "h:80",
            "ü",
        ] {
            let Err(Error::InvalidInput(message)) =
                connect("clickhouse://u@h/db", &[("host", host)])
            else {
                panic!("{host}");
            };
            assert!(!message.contains(host), "{message}");
        }
    }

    #[test]
    fn debug_shows_no_password() {
        let shown = format!("{:?}", connect("clickhouse://u:sekret@h/db", &[]).unwrap());
        assert!(!shown.contains("sekret"), "{shown}");
    }
}
