//! The settings of the plugin, in the words of the Python backend (`state_backend.clickhouse.*`), and the value
//! that each has for a target. What the values mean together is `connection`'s business.

use crate::error::Error;
use crate::uri::Uri;

/// What a value must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Integer,
    Boolean,
}

/// What a setting means to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Host,
    Port,
    Tls,
    User,
    Password,
}

/// One setting.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) role: Option<Role>,
    pub(crate) label: &'static str,
    pub(crate) default: Option<&'static str>,
    pub(crate) sensitive: bool,
}

/// The port of ClickHouse's HTTP interface (`http_port`).
pub(crate) const HTTP_PORT: u16 = 8123;
/// The port of its HTTPS interface (`https_port`).
pub(crate) const HTTPS_PORT: u16 = 8443;

const fn setting(
    name: &'static str,
    kind: Kind,
    role: Option<Role>,
    label: &'static str,
) -> Setting {
    Setting {
        name,
        kind,
        role,
        label,
        default: None,
        sensitive: false,
    }
}

const fn text(name: &'static str, label: &'static str) -> Setting {
    setting(name, Kind::Text, None, label)
}

const fn boolean(name: &'static str, default: &'static str, label: &'static str) -> Setting {
    Setting {
        default: Some(default),
        ..setting(name, Kind::Boolean, None, label)
    }
}

/// What begins so is a setting of ClickHouse itself, handed on by the rest of its name.
pub(crate) const EXTRA_PREFIX: &str = "setting_";

/// All settings: those of the Python backend in its order, then ours.
pub(crate) const SETTINGS: [Setting; 21] = [
    Setting {
        default: Some("localhost"),
        ..setting("host", Kind::Text, Some(Role::Host), "ClickHouse Host")
    },
    setting(
        "port",
        Kind::Integer,
        Some(Role::Port),
        "ClickHouse Port (HTTP interface)",
    ),
    text("database", "ClickHouse Database (of the connection)"),
    setting("user", Kind::Text, Some(Role::User), "ClickHouse User"),
    Setting {
        sensitive: true,
        ..setting(
            "password",
            Kind::Text,
            Some(Role::Password),
            "ClickHouse Password",
        )
    },
    setting(
        "secure",
        Kind::Boolean,
        Some(Role::Tls),
        "ClickHouse Secure (TLS)",
    ),
    Setting {
        default: Some("meltano"),
        ..text(
            "schema",
            "ClickHouse Schema (the database that holds the state)",
        )
    },
    Setting {
        default: Some("state"),
        ..text("table", "ClickHouse Table (the table that holds the state)")
    },
    text(
        "cluster",
        "Cluster on which tables are made (ON CLUSTER); none: on this server",
    ),
    Setting {
        default: Some("ReplacingMergeTree"),
        ..text(
            "engine",
            "Table engine of new tables: ReplacingMergeTree, ReplicatedReplacingMergeTree('path', 'replica') or SharedReplacingMergeTree",
        )
    },
    text(
        "insert_quorum",
        "How many replicas must have a write before it counts: a number or `auto` (insert_quorum)",
    ),
    boolean(
        "select_sequential_consistency",
        "false",
        "Whether a read waits for all writes that a quorum has (select_sequential_consistency)",
    ),
    Setting {
        default: Some("10"),
        ..text("connect_timeout", "Seconds to wait for a connection")
    },
    Setting {
        default: Some("60"),
        ..text(
            "request_timeout",
            "Seconds to wait for an answer, and to try again after passing faults",
        )
    },
    boolean(
        "compress",
        "false",
        "Whether bodies above 1 KiB are sent and asked for as gzip (enable_http_compression)",
    ),
    boolean(
        "skip_unchanged",
        "true",
        "Whether a write of what is stored already writes nothing",
    ),
    boolean(
        "refuse_empty",
        "false",
        "Whether a write that would empty a state is refused",
    ),
    boolean(
        "history",
        "false",
        "Whether new tables keep the history of states, in <table>_history",
    ),
    Setting {
        default: Some("30"),
        ..setting(
            "history_days",
            Kind::Integer,
            None,
            "Days after which a state's history is forgotten (TTL)",
        )
    },
    Setting {
        default: Some("table"),
        ..text(
            "lock",
            "How leases are kept: `table` (in <table>_lease), `keeper` (KeeperMap, for replicas) or `none`",
        )
    },
    text(
        "setting_*",
        "Any other setting of ClickHouse, such as setting_max_memory_usage",
    ),
];

/// The environment variable of a setting: Meltano's rule for `state_backend.clickhouse.<name>`.
pub(crate) fn variable(setting: &Setting) -> String {
    format!(
        "MELTANO_STATE_BACKEND_CLICKHOUSE_{}",
        setting.name.to_uppercase()
    )
}

/// The values that a target gives, by the rule of `types.target` in the contract.
pub(crate) struct Values<'a> {
    given: &'a [(String, String)],
    uri: &'a Uri,
}

impl<'a> Values<'a> {
    /// Refuses settings that there are not, in either place.
    pub(crate) fn new(given: &'a [(String, String)], uri: &'a Uri) -> Result<Self, Error> {
        let names = given.iter().map(|(name, _)| ("setting", name));
        let parameters = uri.query.iter().map(|(name, _)| ("URI parameter", name));
        for (what, name) in names.chain(parameters) {
            if !is_known(name) {
                return Err(Error::InvalidInput(format!(
                    "there is no {what} `{}`; {}",
                    crate::error::one_line(name),
                    suggestion(name)
                )));
            }
        }
        Ok(Self { given, uri })
    }

    /// The text of a setting, not yet its default. An empty one counts as none, as in Meltano.
    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        let part = match name {
            "host" => self.uri.host.as_deref(),
            "user" => self.uri.user.as_deref(),
            "password" => self.uri.password.as_deref(),
            "database" => self.uri.database.as_deref(),
            _ => None,
        };
        last(self.given, name)
            .or_else(|| last(&self.uri.query, name))
            .or(part)
    }

    /// The text of a setting or its default.
    pub(crate) fn text_or_default(&self, name: &str) -> &'a str {
        let default = || {
            let setting = SETTINGS.iter().find(|setting| setting.name == name);
            setting.and_then(|setting| setting.default)
        };
        self.text(name).or_else(default).unwrap_or_default()
    }

    /// The settings of ClickHouse itself, by their own names, each once.
    pub(crate) fn extra(&self) -> Vec<(&'a str, &'a str)> {
        let given = self.given.iter().chain(&self.uri.query);
        let mut names: Vec<&str> = given
            .filter_map(|(name, _)| name.strip_prefix(EXTRA_PREFIX))
            .filter(|name| *name != "*")
            .collect();
        names.sort_unstable();
        names.dedup();
        names
            .into_iter()
            .filter_map(|name| Some((name, self.text(&format!("{EXTRA_PREFIX}{name}"))?)))
            .collect()
    }

    /// A boolean, or its default.
    pub(crate) fn boolean_or_default(&self, name: &str) -> Result<bool, Error> {
        match self.boolean(name)? {
            Some(value) => Ok(value),
            None => Ok(self.text_or_default(name) == "true"),
        }
    }

    /// A port; 0 counts as none, as in the Python backend.
    pub(crate) fn port(&self) -> Result<Option<u16>, Error> {
        let port = match self.text("port") {
            None => self.uri.port,
            Some(text) => Some(text.trim().parse().map_err(|_| {
                Error::InvalidInput(
                    "the setting `port` must be a whole number from 1 to 65535".to_owned(),
                )
            })?),
        };
        Ok(port.filter(|port| *port != 0))
    }

    /// A boolean in any of the forms in which Meltano and people write one.
    pub(crate) fn boolean(&self, name: &str) -> Result<Option<bool>, Error> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        match text.trim().to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Ok(Some(true)),
            "false" | "0" | "no" | "off" => Ok(Some(false)),
            _ => Err(Error::InvalidInput(format!(
                "the setting `{name}` must be `true` or `false`"
            ))),
        }
    }
}

fn is_known(name: &str) -> bool {
    SETTINGS.iter().any(|setting| setting.name == name)
        || name
            .strip_prefix(EXTRA_PREFIX)
            .is_some_and(|rest| !rest.is_empty())
}

fn last<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    pairs
        .iter()
        .rev()
        .find(|(known, value)| known == name && !value.is_empty())
        .map(|(_, value)| value.as_str())
}

fn suggestion(name: &str) -> String {
    let nearest = SETTINGS
        .iter()
        .map(|setting| (distance(setting.name, name), setting.name))
        .min();
    match nearest {
        Some((distance, known)) if distance <= 2 => format!("did you mean `{known}`?"),
        _ => {
            let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
            format!("there are: {}", names.join(", "))
        }
    }
}

/// How many letters must be put in, left out or replaced to make one word of the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut costs: Vec<usize> = (0..=b.chars().count()).collect();
    for (row, x) in a.chars().enumerate() {
        let mut diagonal = row;
        let mut left = row + 1;
        let mut next = vec![left];
        for (y, above) in b.chars().zip(costs.iter().skip(1)) {
            left = (diagonal + usize::from(x != y))
                .min(left + 1)
                .min(above + 1);
            next.push(left);
            diagonal = *above;
        }
        costs = next;
    }
    costs.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect()
    }

    fn check<T>(given: &[(&str, &str)], uri: &str, read: impl Fn(&Values<'_>) -> T) -> T {
        let (given, uri) = (pairs(given), Uri::parse(uri).unwrap());
        read(&Values::new(&given, &uri).unwrap())
    }

    fn refused(given: &[(&str, &str)], uri: &str) -> String {
        let (given, uri) = (pairs(given), Uri::parse(uri).unwrap());
        match Values::new(&given, &uri) {
            Err(Error::InvalidInput(message)) => message,
            _ => panic!("accepted"),
        }
    }

    #[test]
    fn settings_win_over_the_query_which_wins_over_the_parts_of_the_uri() {
        let uri = "clickhouse://u@h/db?host=query";
        assert_eq!(
            check(&[], "clickhouse://u@h/db", |v| v
                .text("host")
                .map(str::to_owned))
            .unwrap(),
            "h"
        );
        assert_eq!(
            check(&[], uri, |v| v.text("host").map(str::to_owned)).unwrap(),
            "query"
        );
        assert_eq!(
            check(&[("host", "s")], uri, |v| v.text("host").map(str::to_owned)).unwrap(),
            "s"
        );
        assert_eq!(
            check(&[("host", "s"), ("host", "")], uri, |v| v
                .text("host")
                .map(str::to_owned))
            .unwrap(),
            "s"
        );
    }

    #[test]
    fn defaults_come_last() {
        assert_eq!(
            check(&[], "clickhouse:///", |v| v
                .text_or_default("host")
                .to_owned()),
            "localhost"
        );
        assert_eq!(
            check(&[], "clickhouse:///", |v| v
                .text_or_default("schema")
                .to_owned()),
            "meltano"
        );
        assert_eq!(
            check(&[], "clickhouse:///", |v| v
                .text_or_default("table")
                .to_owned()),
            "state"
        );
        assert_eq!(
            check(&[], "clickhouse:///", |v| v
                .text_or_default("password")
                .to_owned()),
            ""
        );
    }

    #[test]
    fn a_port_is_a_number_and_0_is_none() {
        let port = |text| check(&[("port", text)], "clickhouse://h:7/", |v| v.port());
        assert_eq!(port("10"), Ok(Some(10)));
        assert_eq!(port(""), Ok(Some(7)));
        assert_eq!(port("0"), Ok(None));
        for nonsense in ["-1", "65536", "1.5", "http", "True"] {
            assert!(port(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn booleans_come_as_meltano_and_people_write_them() {
        let secure = |text| {
            check(&[("secure", text)], "clickhouse://", |v| {
                v.boolean("secure")
            })
        };
        for yes in ["true", "True", "1", "yes", "ON"] {
            assert_eq!(secure(yes), Ok(Some(true)));
        }
        for no in ["false", "False", "0", "no", "off"] {
            assert_eq!(secure(no), Ok(Some(false)));
        }
        assert_eq!(secure(""), Ok(None));
        assert!(secure("2").is_err());
    }

    #[test]
    fn an_unknown_setting_is_told_with_the_nearest_or_all() {
        assert_eq!(
            refused(&[("tabel", "x")], "clickhouse://"),
            "there is no setting `tabel`; did you mean `table`?"
        );
        assert_eq!(
            refused(&[], "clickhouse://h/?shema=x"),
            "there is no URI parameter `shema`; did you mean `schema`?"
        );
        assert!(
            refused(&[("verify_certificates", "x")], "clickhouse://")
                .contains("host, port, database")
        );
    }

    #[test]
    fn distances_count_letters() {
        for (a, b, count) in [
            ("", "", 0),
            ("table", "table", 0),
            ("tabel", "table", 2),
            ("", "ab", 2),
            ("port", "prt", 1),
            ("host", "most", 1),
        ] {
            assert_eq!(distance(a, b), count, "{a} {b}");
            assert_eq!(distance(b, a), count, "{b} {a}");
        }
    }
}
