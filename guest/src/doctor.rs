//! Looks at the server, the user and the table: what does not work, what could lose states, and what to do.

mod locks;

use std::time::Duration;

use crate::client::{Client, Outside};
use crate::connection::Table;
use crate::error::{Error, Outcome};
use crate::options::Lock;
use crate::rows;
use crate::sql::{self, Request};
use crate::tables::{is_of_replicas, is_yes};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    Fine,
    Note,
    Warning,
    Problem,
}

/// One thing that was looked at.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    pub(crate) subject: &'static str,
    pub(crate) text: String,
    pub(crate) mend: Option<String>,
}

impl Finding {
    fn new(severity: Severity, subject: &'static str, text: impl Into<String>) -> Self {
        Self {
            severity,
            subject,
            text: text.into(),
            mend: None,
        }
    }

    fn mend(mut self, mend: impl Into<String>) -> Self {
        self.mend = Some(mend.into());
        self
    }
}

use Severity::{Fine, Note, Problem, Warning};

/// A clock that is off by more than this makes times of states misleading.
const CLOCK_TOLERANCE_MS: i64 = 2_000;
/// What a pool of connections must be able to wait between two requests.
const SHORT_KEEP_ALIVE: u64 = 3;
/// Older releases may work; they are not tested.
const OLDEST: (u32, u32) = (23, 3);

/// How many round trips are measured.
const ROUND_TRIPS: u32 = 5;

impl<O: Outside> Client<'_, O> {
    pub(crate) fn check(&self) -> Result<Vec<Finding>, Error> {
        let mut findings = Vec::new();
        match self.check_server(&mut findings) {
            Ok(user) => self.check_user(&user, &mut findings),
            Err(error) => {
                findings.push(unreachable(error));
                return Ok(findings);
            }
        }
        self.check_table(&mut findings);
        self.check_locks(&mut findings);
        Ok(findings)
    }

    /// The rows of an answer as texts.
    fn ask(&self, request: Result<Request, Error>) -> Result<Vec<Vec<String>>, Error> {
        rows::texts(&self.send(&request?)?)
    }

    /// Whom the server takes us for.
    fn check_server(&self, findings: &mut Vec<Finding>) -> Result<String, Error> {
        let to = self.connection;
        let response = self.send(&sql::server(to)?)?;
        let here = self.outside.clock_ms();
        let rows = rows::texts(&response)?;
        let [version, zone, now, user] = rows.first().map(Vec::as_slice).unwrap_or_default() else {
            return Err(Error::Corrupt(
                "the server does not tell its version".to_owned(),
            ));
        };
        let trip = self.round_trip()?;
        findings.push(Finding::new(
            Fine,
            "server",
            format!(
                "ClickHouse {version} at {}, time zone {zone}, {:.1} ms away",
                to.origin(),
                trip.as_secs_f64() * 1e3
            ),
        ));
        if release(version).is_some_and(|release| release < OLDEST) {
            let (year, month) = OLDEST;
            findings.push(
                Finding::new(
                    Warning,
                    "server",
                    format!("ClickHouse {version} is older than {year}.{month}, and not tested"),
                )
                .mend("update the server"),
            );
        }
        findings.push(clocks(here, now.parse().unwrap_or_default()));
        findings.push(match self.ask(sql::keep_alive(to)) {
            Ok(rows) => keep_alive(rows.first().and_then(|row| row.first())),
            Err(error) => not_told("keep-alive", &error),
        });
        Ok(user.clone())
    }

    fn round_trip(&self) -> Result<Duration, Error> {
        let request = sql::measure_round_trip(self.connection)?;
        let mut shortest = Duration::MAX;
        for _ in 0..ROUND_TRIPS {
            let start = self.outside.elapsed();
            self.send(&request)?;
            shortest = shortest.min(self.outside.elapsed().saturating_sub(start));
        }
        Ok(shortest)
    }

    fn check_user(&self, user: &str, findings: &mut Vec<Finding>) {
        let to = self.connection;
        match self.ask(sql::privileges(to)) {
            Ok(rows) => findings.extend(profile(user, &rows)),
            Err(error) => findings.push(not_told("privileges", &error)),
        }
        let states = to.table.to_string();
        let mut rights = vec![
            ("SELECT", &states, "reading states"),
            ("INSERT", &states, "writing states"),
            (
                "ALTER DELETE",
                &states,
                "removing what is deleted for the Python backend's readers",
            ),
            ("TRUNCATE", &states, "`clear` of all states"),
            ("CREATE TABLE", &states, "making the tables, once"),
            (
                "ALTER COLUMN, ALTER CONSTRAINT, ALTER SETTINGS",
                &states,
                "`migrate` of a table of the Python backend, once",
            ),
        ];
        let (lease, lease_in_keeper) = (to.table.lease(), to.table.lease_keeper());
        match to.options.lock {
            Lock::None => {}
            Lock::Table => rights.push(("SELECT, INSERT", &lease, "leases")),
            Lock::Keeper => {
                rights.push(("SELECT, INSERT, ALTER UPDATE", &lease_in_keeper, "leases"))
            }
        }
        for (right, table, needed_for) in rights {
            match self.ask(sql::grant(to, right, table)) {
                Ok(rows) => {
                    let given = is_yes(&rows);
                    findings.push(grant(user, table, right, needed_for, given));
                }
                Err(error) => {
                    findings.push(not_told("privileges", &error));
                    return;
                }
            }
        }
    }

    fn check_table(&self, findings: &mut Vec<Finding>) {
        let to = self.connection;
        let facts = match self.ask(sql::table_facts(to)) {
            Ok(rows) => rows,
            Err(error) => return findings.push(not_told("table", &error)),
        };
        let columns = self.ask(sql::columns(to)).unwrap_or_default();
        let Some(facts) = facts.first().map(|row| TableFacts::new(row, &columns)) else {
            return findings.push(
                Finding::new(
                    Note,
                    "table",
                    format!("{} does not exist, or this user may not see it", to.table),
                )
                .mend("the first write makes it, where the user may; `migrate` does so now"),
            );
        };
        findings.extend(facts.check(&to.table));
        match self.ask(sql::clusters(to)) {
            Ok(clusters) => findings.extend(facts.check_clusters(&clusters)),
            Err(error) => findings.push(not_told("clusters", &error)),
        }
        self.check_history(findings);
    }

    fn check_history(&self, findings: &mut Vec<Finding>) {
        let to = self.connection;
        let view = to.table.history_view();
        match (self.exists(&view), to.options.history) {
            (Ok(true), _) => findings.push(Finding::new(
                Fine,
                "history",
                format!("kept in {}", to.table.history()),
            )),
            (Ok(false), Some(_)) => findings.push(
                Finding::new(
                    Warning,
                    "history",
                    "asked for by `history`, and not kept yet: the tables are older",
                )
                .mend("run `migrate`"),
            ),
            (Ok(false), None) => findings.push(
                Finding::new(Note, "history", "not kept: a bad write can't be undone")
                    .mend("set `history` to true and run `migrate`"),
            ),
            (Err(error), _) => findings.push(not_told("history", &error)),
        }
    }
}

fn unreachable(error: Error) -> Finding {
    let (text, mend) = match error {
        Error::Unauthenticated(text) => (
            text,
            "check the user and the password, in the URI and the settings",
        ),
        Error::AccessDenied(text) => (text, "give the user the right that is named"),
        Error::TimedOut(failure) => (
            failure.message,
            "check the host, firewalls, and `connect_timeout`",
        ),
        Error::Unavailable(failure) => (
            failure.message,
            "check the host, the port and `secure`, and that the server runs",
        ),
        Error::Server(error) => (error.message, "see the server's words"),
        Error::InvalidInput(text) | Error::MissingSetting(text) | Error::Corrupt(text) => {
            (text, "check the URI and the settings")
        }
        Error::Conflict(_) | Error::Locked(_) => ("a read met a conflict".to_owned(), "try again"),
    };
    Finding::new(Problem, "server", text).mend(mend)
}

fn not_told(subject: &'static str, error: &Error) -> Finding {
    let why = match error {
        Error::AccessDenied(text)
        | Error::InvalidInput(text)
        | Error::MissingSetting(text)
        | Error::Unauthenticated(text)
        | Error::Corrupt(text) => text.clone(),
        Error::Unavailable(failure) | Error::TimedOut(failure) => {
            debug_assert_eq!(failure.outcome, Outcome::NotApplied, "it was a read");
            failure.message.clone()
        }
        Error::Server(error) => error.message.clone(),
        Error::Conflict(_) | Error::Locked(_) => String::new(),
    };
    Finding::new(Note, subject, format!("the server does not tell: {why}"))
}

/// Year and month of a release.
fn release(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn clocks(here_ms: i64, server_ns: i64) -> Finding {
    let difference = server_ns / 1_000_000 - here_ms;
    let ahead = if difference < 0 { "behind" } else { "ahead of" };
    let text = format!(
        "the server's clock is {:.1} s {ahead} this machine's",
        difference.unsigned_abs() as f64 / 1e3
    );
    match difference.abs() <= CLOCK_TOLERANCE_MS {
        true => Finding::new(Fine, "clock", text),
        false => Finding::new(Warning, "clock", text).mend(
            "set both by NTP: versions do not suffer, but the times of states are the server's",
        ),
    }
}

fn keep_alive(setting: Option<&String>) -> Finding {
    let seconds = setting.and_then(|seconds| seconds.parse::<u64>().ok());
    match seconds {
        Some(seconds) if seconds >= SHORT_KEEP_ALIVE => Finding::new(
            Fine,
            "keep-alive",
            format!("the server keeps idle connections for {seconds} s"),
        ),
        Some(seconds) => Finding::new(
            Warning,
            "keep-alive",
            format!("the server closes idle connections after {seconds} s already"),
        )
        .mend("raise keep_alive_timeout in the server's configuration to 3 s or more"),
        None => Finding::new(
            Note,
            "keep-alive",
            "the server does not tell how long it keeps idle connections",
        ),
    }
}

/// Rows of name, value, and whether the user may not change it.
fn profile(user: &str, rows: &[Vec<String>]) -> Vec<Finding> {
    let value = |wanted: &str| {
        rows.iter().find_map(|row| match row.as_slice() {
            [name, value, fixed] if name == wanted => Some((value.as_str(), fixed == "1")),
            _ => None,
        })
    };
    let mut findings = Vec::new();
    let read_only = value("readonly").is_some_and(|(value, _)| value != "0");
    findings.push(match read_only {
        true => Finding::new(
            Note,
            "privileges",
            format!("the user `{user}` may only read (`readonly`)"),
        )
        .mend("that is all a reader needs; pipelines need a user who may write"),
        false => Finding::new(
            Fine,
            "privileges",
            format!("the user `{user}` may send statements that write"),
        ),
    });
    // The newer one wins over what the plugin sends.
    let off = value("insert_deduplicate").is_some_and(|(value, fixed)| value == "0" && fixed)
        || value("deduplicate_insert").is_some_and(|(value, _)| value == "disable");
    if !read_only && off {
        findings.push(
            Finding::new(
                Problem,
                "privileges",
                "the profile switches the deduplication of inserts off: updates and expectations are not exact, or fail",
            )
            .mend("leave `insert_deduplicate` and `deduplicate_insert` as they are in the user's profile"),
        );
    }
    findings
}

fn grant(user: &str, table: &str, right: &str, needed_for: &str, given: bool) -> Finding {
    match given {
        true => Finding::new(
            Fine,
            "privileges",
            format!("{right}: granted, for {needed_for}"),
        ),
        false => Finding::new(
            Note,
            "privileges",
            format!("{right}: not granted, for {needed_for}"),
        )
        .mend(format!("GRANT {right} ON {table} TO {user}")),
    }
}

/// What `system.tables` and `system.columns` tell.
struct TableFacts<'a> {
    engine: &'a str,
    definition: &'a str,
    sorting_key: &'a str,
    partition_key: &'a str,
    rows: &'a str,
    columns: &'a [Vec<String>],
}

impl<'a> TableFacts<'a> {
    fn new(row: &'a [String], columns: &'a [Vec<String>]) -> Self {
        let text = |at: usize| row.get(at).map(String::as_str).unwrap_or_default();
        Self {
            engine: text(0),
            definition: text(1),
            sorting_key: text(2),
            partition_key: text(3),
            rows: text(4),
            columns,
        }
    }

    fn column(&self, wanted: &str) -> Option<&str> {
        self.columns
            .iter()
            .find_map(|column| match column.as_slice() {
                [name, kind] if name == wanted => Some(kind.as_str()),
                _ => None,
            })
    }

    fn is_distributed(&self) -> bool {
        self.engine == "Distributed"
    }

    fn is_replicated(&self) -> bool {
        is_of_replicas(self.engine)
    }

    fn check(&self, table: &Table) -> Vec<Finding> {
        let mut findings = vec![Finding::new(
            Fine,
            "table",
            format!("{table}: {}, {} rows", self.engine, self.rows),
        )];
        if self.is_distributed() {
            // `Distributed('cluster', 'database', 'table', key)`
            if !self
                .definition
                .split(',')
                .nth(3)
                .is_some_and(|key| key.contains("state_id"))
            {
                findings.push(
                    Finding::new(
                        Problem,
                        "table",
                        "it is Distributed and not sharded by state_id: FINAL does not see rows of one state on two shards as one",
                    )
                    .mend("make it Distributed(..., cityHash64(state_id)), or name the local table"),
                );
            }
            findings.push(
                Finding::new(Warning, "table", "insert tokens do not pass a Distributed table: updates and expectations are not exact")
                    .mend("let `table` name the table under it"),
            );
            return findings;
        }
        if !self.engine.ends_with("ReplacingMergeTree") {
            findings.push(
                Finding::new(
                    Problem,
                    "table",
                    format!("its engine {} keeps every row of a state, or not the last one", self.engine),
                )
                .mend("it must be ReplacingMergeTree(updated_at) ORDER BY state_id; let `migrate` make one under another name"),
            );
        } else if !self.definition.contains("updated_at") {
            findings.push(
                Finding::new(
                    Problem,
                    "table",
                    "its engine has no version column: which row is the last is left to chance",
                )
                .mend("it must be ReplacingMergeTree(updated_at)"),
            );
        }
        if self.sorting_key != "state_id" {
            findings.push(
                Finding::new(
                    Problem,
                    "table",
                    format!(
                        "it is sorted by `{}`, not by state_id alone",
                        self.sorting_key
                    ),
                )
                .mend("make it anew with ORDER BY state_id"),
            );
        }
        if !self.partition_key.is_empty() {
            findings.push(
                Finding::new(
                    Problem,
                    "table",
                    format!("it is partitioned by `{}`: rows of one state in two partitions are never merged", self.partition_key),
                )
                .mend("make it anew without PARTITION BY"),
            );
        }
        findings.extend(self.check_columns());
        findings
    }

    fn check_columns(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (name, kind) in [
            ("state_id", "String"),
            ("partial_state", "Nullable(String)"),
            ("completed_state", "Nullable(String)"),
            ("updated_at", "DateTime64("),
        ] {
            if !self
                .column(name)
                .is_some_and(|found| found.starts_with(kind))
            {
                let found = self.column(name).unwrap_or("missing");
                findings.push(
                    Finding::new(
                        Problem,
                        "table",
                        format!("its column {name} is {found}, not {kind}"),
                    )
                    .mend("check that `schema` and `table` name a state table"),
                );
            }
        }
        let ours = ["written_at", "deleted", "writes"]
            .iter()
            .all(|name| self.column(name).is_some())
            && self
                .column("updated_at")
                .is_some_and(|kind| kind.starts_with("DateTime64(9"));
        let window = self.is_replicated()
            || self
                .definition
                .contains("non_replicated_deduplication_window");
        findings.push(match ours && window {
            true => Finding::new(Fine, "table", "it has what exact updates and expectations need"),
            false => Finding::new(
                Note,
                "table",
                "it is as the Python backend makes it: `update` and expectations need more columns and a deduplication window",
            )
            .mend("run `migrate`; the first write that needs them does so too, where the user may ALTER the table"),
        });
        if !self.definition.contains("index_granularity = 256") {
            findings.push(Finding::new(
                Note,
                "table",
                "its granularity is coarse, so that a read costs a quarter more than it could; it can't be altered",
            ));
        }
        findings
    }

    /// Rows of the name of a cluster, its shards and its replicas.
    fn check_clusters(&self, clusters: &[Vec<String>]) -> Vec<Finding> {
        let names: Vec<&str> = clusters
            .iter()
            .filter_map(|row| row.first())
            .map(String::as_str)
            .collect();
        if names.is_empty() {
            return vec![Finding::new(
                Fine,
                "clusters",
                "a single server: what is written here is read here",
            )];
        }
        let names = names.join(", ");
        if self.is_replicated() {
            return vec![
                Finding::new(
                    Note,
                    "clusters",
                    format!("replicated ({names}): a read may reach a replica that is behind"),
                )
                .mend("set `select_sequential_consistency` and `insert_quorum`, or name one replica as the host"),
            ];
        }
        vec![
            Finding::new(
                Warning,
                "clusters",
                format!("the server knows clusters of several servers ({names}), and the table is on this one alone"),
            )
            .mend("behind a load balancer states would be lost: name one server as the host, or use the Replicated engine"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts<'a>(row: &'a [String], columns: &'a [Vec<String>]) -> Vec<Finding> {
        TableFacts::new(row, columns).check(&Table::new("meltano", "state").unwrap())
    }

    fn texts(row: &[&str]) -> Vec<String> {
        row.iter().map(|text| (*text).to_owned()).collect()
    }

    fn columns(extra: &[(&str, &str)]) -> Vec<Vec<String>> {
        let base = [
            ("state_id", "String"),
            ("partial_state", "Nullable(String)"),
            ("completed_state", "Nullable(String)"),
        ];
        base.iter()
            .chain(extra)
            .map(|(name, kind)| texts(&[name, kind]))
            .collect()
    }

    fn problems(findings: &[Finding]) -> Vec<&str> {
        findings
            .iter()
            .filter(|finding| finding.severity == Problem)
            .map(|finding| finding.text.as_str())
            .collect()
    }

    const OURS: [(&str, &str); 4] = [
        ("updated_at", "DateTime64(9)"),
        ("written_at", "DateTime64(3)"),
        ("deleted", "Bool"),
        ("writes", "String"),
    ];

    #[test]
    fn a_table_of_ours_is_fine() {
        let row = texts(&[
            "ReplacingMergeTree",
            "ReplacingMergeTree(updated_at) ORDER BY state_id SETTINGS index_granularity = 256, non_replicated_deduplication_window = 10000",
            "state_id",
            "",
            "7",
        ]);
        let findings = facts(&row, &columns(&OURS));
        assert!(
            findings.iter().all(|finding| finding.severity == Fine),
            "{findings:?}"
        );
    }

    #[test]
    fn a_table_of_the_python_backend_is_to_be_migrated() {
        let row = texts(&[
            "ReplacingMergeTree",
            "ReplacingMergeTree(updated_at) ORDER BY state_id",
            "state_id",
            "",
            "7",
        ]);
        let findings = facts(&row, &columns(&[("updated_at", "DateTime64(3)")]));
        assert!(problems(&findings).is_empty(), "{findings:?}");
        let mend = findings
            .iter()
            .find_map(|finding| finding.mend.as_deref())
            .unwrap();
        assert!(mend.contains("migrate"), "{mend}");
    }

    #[test]
    fn tables_that_lose_states_are_problems() {
        let ours = columns(&OURS);
        for (row, words) in [
            (
                ["MergeTree", "MergeTree", "state_id", "", "1"],
                "keeps every row",
            ),
            (
                [
                    "ReplacingMergeTree",
                    "ReplacingMergeTree ORDER BY state_id",
                    "state_id",
                    "",
                    "1",
                ],
                "no version column",
            ),
            (
                [
                    "ReplacingMergeTree",
                    "ReplacingMergeTree(updated_at)",
                    "state_id, updated_at",
                    "",
                    "1",
                ],
                "sorted by",
            ),
            (
                [
                    "ReplacingMergeTree",
                    "ReplacingMergeTree(updated_at)",
                    "state_id",
                    "toYYYYMM(updated_at)",
                    "1",
                ],
                "partitioned",
            ),
            (
                [
                    "Distributed",
                    "Distributed('c', 'd', 't', rand())",
                    "",
                    "",
                    "1",
                ],
                "not sharded by state_id",
            ),
            (
                ["Distributed", "Distributed('c', 'd', 't')", "", "", "1"],
                "not sharded by state_id",
            ),
        ] {
            let row = texts(&row);
            let findings = facts(&row, &ours);
            assert!(
                problems(&findings).iter().any(|text| text.contains(words)),
                "{words}: {findings:?}"
            );
        }
        let row = texts(&[
            "Distributed",
            "Distributed('c', 'd', 't', cityHash64(state_id))",
            "",
            "",
            "1",
        ]);
        assert!(problems(&facts(&row, &ours)).is_empty());
    }

    #[test]
    fn a_plain_table_beside_replicas_is_a_warning() {
        let row = texts(&["ReplacingMergeTree", "", "state_id", "", "1"]);
        let facts = TableFacts::new(&row, &[]);
        let cluster = [texts(&["prod", "1", "3"])];
        assert_eq!(facts.check_clusters(&cluster)[0].severity, Warning);
        assert_eq!(facts.check_clusters(&[])[0].severity, Fine);
    }

    #[test]
    fn clocks_and_connections_are_judged() {
        assert_eq!(clocks(1_000, 1_500_000_000).severity, Fine);
        assert_eq!(clocks(10_000, 1_000_000_000).severity, Warning);
        assert!(clocks(10_000, 1_000_000_000).text.contains("9.0 s behind"));
        assert_eq!(keep_alive(Some(&"10".to_owned())).severity, Fine);
        assert_eq!(keep_alive(Some(&"1".to_owned())).severity, Warning);
        assert_eq!(keep_alive(None).severity, Note);
    }

    #[test]
    fn a_profile_that_forbids_deduplication_is_a_problem() {
        let rows = |value: &str, fixed: &str| {
            vec![
                texts(&["insert_deduplicate", value, fixed]),
                texts(&["readonly", "0", "0"]),
            ]
        };
        assert!(problems(&profile("u", &rows("0", "0"))).is_empty());
        assert_eq!(problems(&profile("u", &rows("0", "1"))).len(), 1);
    }
}
