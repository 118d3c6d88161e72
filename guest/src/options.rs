//! The settings beyond those of the Python backend, as what they mean.

use std::time::Duration;

use crate::error::Error;
use crate::escape::Identifier;
use crate::settings::Values;

/// How tables are made, written and read.
#[derive(Debug)]
pub(crate) struct Options {
    /// `ON CLUSTER`.
    pub(crate) cluster: Option<Identifier>,
    pub(crate) engine: Engine,
    /// `insert_quorum`: a number, or `auto`.
    pub(crate) insert_quorum: Option<String>,
    /// `select_sequential_consistency`.
    pub(crate) sequential: bool,
    pub(crate) connect_timeout: Duration,
    /// Until an answer begins, between two pieces of it, and for all tries of one request together.
    pub(crate) request_timeout: Duration,
    pub(crate) compress: bool,
    pub(crate) skip_unchanged: bool,
    pub(crate) refuse_empty: bool,
    /// How long new tables keep their history, if they do.
    pub(crate) history: Option<Days>,
    pub(crate) lock: Lock,
    /// Settings of ClickHouse that go with every statement.
    pub(crate) extra: Vec<(String, String)>,
}

/// How leases are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// In a table, by insert tokens.
    Table,
    /// In Keeper or ZooKeeper, by a KeeperMap table.
    Keeper,
    None,
}

/// A number of days, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Days(pub(crate) u16);

/// The engine of new tables, without the version column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Engine {
    name: &'static str,
    /// The path in Keeper and the name of the replica, quoted, where they are given.
    replica: Option<String>,
}

const ENGINES: [&str; 3] = [
    "ReplacingMergeTree",
    "ReplicatedReplacingMergeTree",
    "SharedReplacingMergeTree",
];

impl Options {
    pub(crate) fn new(values: &Values<'_>) -> Result<Self, Error> {
        let cluster = values
            .text("cluster")
            .map(|name| Identifier::new("cluster", name))
            .transpose()?;
        let days = days(values.text_or_default("history_days"))?;
        Ok(Self {
            cluster,
            engine: Engine::parse(values.text_or_default("engine"))?,
            insert_quorum: values.text("insert_quorum").map(quorum).transpose()?,
            sequential: values.boolean_or_default("select_sequential_consistency")?,
            connect_timeout: seconds(values, "connect_timeout")?,
            request_timeout: seconds(values, "request_timeout")?,
            compress: values.boolean_or_default("compress")?,
            skip_unchanged: values.boolean_or_default("skip_unchanged")?,
            refuse_empty: values.boolean_or_default("refuse_empty")?,
            history: values.boolean_or_default("history")?.then_some(days),
            lock: lock(values.text_or_default("lock"))?,
            extra: extra(values)?,
        })
    }
}

impl Engine {
    fn parse(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        let (name, arguments) = match text.split_once('(') {
            Some((name, rest)) => (name.trim(), rest.strip_suffix(')')),
            None => (text, Some("")),
        };
        let name = ENGINES.into_iter().find(|known| *known == name);
        let (Some(name), Some(arguments)) = (name, arguments) else {
            return Err(bad_engine());
        };
        let replica = match arguments.trim() {
            "" => None,
            _ if name == "ReplacingMergeTree" => return Err(bad_engine()),
            arguments => Some(replica(arguments).ok_or_else(bad_engine)?),
        };
        Ok(Self { name, replica })
    }

    /// With the column `version` as what tells which row is the last.
    pub(crate) fn replacing(&self, version: &str) -> String {
        match &self.replica {
            None => format!("{}({version})", self.name),
            Some(replica) => format!("{}({replica}, {version})", self.name),
        }
    }

    /// Of the same kind, for a table whose rows all stay.
    pub(crate) fn keeping(&self) -> String {
        // A second table can't have the first one's path in Keeper: the server's default path is used.
        format!("{}()", self.name.replace("Replacing", ""))
    }

    /// Of the same kind, for another table than the one that `replica` is for.
    pub(crate) fn replacing_elsewhere(&self, version: &str) -> String {
        format!("{}({version})", self.name)
    }

    pub(crate) fn is_replicated(&self) -> bool {
        self.name != "ReplacingMergeTree"
    }
}

/// `'path', 'replica'` of characters that need no escapes in SQL, as it is.
fn replica(arguments: &str) -> Option<String> {
    let (path, name) = arguments.split_once(',')?;
    let quoted = |text: &str| {
        let inside = text.trim().strip_prefix('\'')?.strip_suffix('\'')?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "/_-.:{}".contains(c);
        (!inside.is_empty() && inside.chars().all(plain)).then(|| format!("'{inside}'"))
    };
    Some(format!("{}, {}", quoted(path)?, quoted(name)?))
}

fn bad_engine() -> Error {
    Error::InvalidInput(format!(
        "the setting `engine` must be one of {}, the last two with ('path', 'replica') or without",
        ENGINES.join(", ")
    ))
}

fn quorum(text: &str) -> Result<String, Error> {
    match text.trim() {
        "auto" => Ok("auto".to_owned()),
        number => number
            .parse::<u16>()
            .map(|number| number.to_string())
            .map_err(|_| {
                Error::InvalidInput(
                    "the setting `insert_quorum` must be a number of replicas or `auto`".to_owned(),
                )
            }),
    }
}

fn lock(text: &str) -> Result<Lock, Error> {
    match text.trim() {
        "table" => Ok(Lock::Table),
        "keeper" => Ok(Lock::Keeper),
        "none" => Ok(Lock::None),
        _ => Err(Error::InvalidInput(
            "the setting `lock` must be `table`, `keeper` or `none`".to_owned(),
        )),
    }
}

fn days(text: &str) -> Result<Days, Error> {
    match text.trim().parse() {
        Ok(days) if days > 0 => Ok(Days(days)),
        _ => Err(Error::InvalidInput(
            "the setting `history_days` must be a whole number from 1 to 65535".to_owned(),
        )),
    }
}

/// Meltano passes seconds as whole numbers or with a fraction.
fn seconds(values: &Values<'_>, name: &str) -> Result<Duration, Error> {
    /// An hour is more than anybody waits for one answer.
    const LONGEST: f64 = 3600.0;
    let number = values.text_or_default(name).trim().parse::<f64>();
    match number {
        Ok(number) if number > 0.0 && number <= LONGEST => Ok(Duration::from_secs_f64(number)),
        _ => Err(Error::InvalidInput(format!(
            "the setting `{name}` must be a number of seconds above 0 and up to {LONGEST}"
        ))),
    }
}

/// Parameters of ClickHouse's HTTP interface that are no settings, and settings on which the plugin itself stands: another
/// value would break it.
const RESERVED: [&str; 24] = [
    "async_insert",
    "async_insert_deduplicate",
    "buffer_size",
    "compress",
    "database",
    "decompress",
    "deduplicate_insert",
    "deduplicate_insert_select",
    "default_format",
    "enable_http_compression",
    "final",
    "format",
    "insert_deduplicate",
    "insert_deduplication_token",
    "output_format",
    "password",
    "query",
    "query_id",
    "readonly",
    "role",
    "session_id",
    "session_timeout",
    "user",
    "wait_end_of_query",
];

fn extra(values: &Values<'_>) -> Result<Vec<(String, String)>, Error> {
    let pairs = values.extra().into_iter();
    pairs
        .map(|(name, value)| {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            if !name.chars().all(plain) || name.starts_with("param_") || RESERVED.contains(&name) {
                return Err(Error::InvalidInput(format!(
                    "the setting `setting_{}` can't be handed to ClickHouse: it is none, or the plugin sets it itself",
                    crate::error::one_line(name)
                )));
            }
            Ok((name.to_owned(), value.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uri::Uri;

    fn options(given: &[(&str, &str)]) -> Result<Options, Error> {
        let given: Vec<_> = given
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let uri = Uri::parse("clickhouse://u@h/db").unwrap();
        Options::new(&Values::new(&given, &uri)?)
    }

    fn refused(name: &str, value: &str) -> String {
        match options(&[(name, value)]) {
            Err(Error::InvalidInput(message)) => message,
            other => panic!("{name}={value}: {other:?}"),
        }
    }

    #[test]
    fn without_settings_unchanged_writes_are_skipped_and_all_else_is_off() {
        let options = options(&[]).unwrap();
        assert!(options.skip_unchanged);
        assert!(!options.compress && !options.refuse_empty && !options.sequential);
        assert_eq!(options.history, None);
        assert_eq!(options.connect_timeout, Duration::from_secs(10));
        assert_eq!(options.request_timeout, Duration::from_secs(60));
        assert_eq!(options.engine.replacing("v"), "ReplacingMergeTree(v)");
    }

    #[test]
    fn numbers_and_booleans_come_as_meltano_passes_them() {
        for value in ["10", "10.0", " 10 "] {
            let options = options(&[("request_timeout", value)]).unwrap();
            assert_eq!(options.request_timeout, Duration::from_secs(10));
        }
        for value in ["1", "true", "True"] {
            let options = options(&[("history", value), ("history_days", "7")]).unwrap();
            assert_eq!(options.history, Some(Days(7)));
        }
        for value in ["0", "-1", "ten", "inf", "NaN", "1e9"] {
            assert!(refused("request_timeout", value).contains("`request_timeout`"));
        }
        for value in ["0", "-1", "1.5", "70000"] {
            assert!(refused("history_days", value).contains("`history_days`"));
        }
        assert!(refused("compress", "gzip").contains("`compress`"));
    }

    #[test]
    fn an_engine_is_one_of_three_and_can_not_carry_sql() {
        let replicated =
            "ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/state', '{replica}')";
        let engine = options(&[("engine", replicated)]).unwrap().engine;
        assert_eq!(
            engine.replacing("v"),
            "ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/state', '{replica}', v)"
        );
        assert!(engine.is_replicated());
        assert_eq!(engine.keeping(), "ReplicatedMergeTree()");
        for bad in [
            "MergeTree",
            "ReplacingMergeTree('a', 'b')",
            "ReplacingMergeTree() ORDER BY 1; DROP TABLE x",
            "ReplicatedReplacingMergeTree('a', 'b') x",
            "ReplicatedReplacingMergeTree('a\\', 'b')",
            "ReplicatedReplacingMergeTree(a, b)",
            "",
        ] {
            if !bad.is_empty() {
                assert!(refused("engine", bad).contains("`engine`"), "{bad}");
            }
        }
    }

    #[test]
    fn other_settings_of_clickhouse_are_handed_on_but_not_those_that_the_plugin_needs() {
        let extra = options(&[
            ("setting_max_memory_usage", "1"),
            ("setting_log_comment", "x y"),
        ])
        .unwrap()
        .extra;
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            extra,
            [pair("log_comment", "x y"), pair("max_memory_usage", "1")]
        );
        for name in [
            "query",
            "insert_deduplicate",
            "user",
            "param_id",
            "a-b",
            "A",
        ] {
            assert!(
                refused(&format!("setting_{name}"), "1").contains("setting_"),
                "{name}"
            );
        }
    }

    #[test]
    fn a_quorum_is_a_number_or_auto() {
        let quorum = |value| options(&[("insert_quorum", value)]).unwrap().insert_quorum;
        assert_eq!(quorum("auto").as_deref(), Some("auto"));
        assert_eq!(quorum(" 2").as_deref(), Some("2"));
        assert!(refused("insert_quorum", "all").contains("`insert_quorum`"));
    }
}
