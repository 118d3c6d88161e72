//! The statements, as values: what goes into the URL and what into the body of one request.
//!
//! Parameters travel as `param_...` and are named `{name:Type}` in the SQL; documents travel in the body.
//! A read sends no settings unless the operator asks for some, so that a user with `readonly=1` may read: such a user may
//! send `param_...` and `wait_end_of_query`, and nothing else.

mod inspect;
mod lease;
mod read;
mod schema;
mod write;

pub(crate) use inspect::{
    clusters, columns, engines, grant, keep_alive, lease_definition, measure_round_trip,
    privileges, server, table_facts,
};
pub(crate) use lease::{
    confirm_step, create_leases, insert_in_keeper, insert_step, lease, leases, update_in_keeper,
};
pub(crate) use read::{
    Mark, What, clock, confirm, count, count_rows, count_tombstones, get, head, head_by_hash,
    heads, history, last_deletion, page,
};
pub(crate) use schema::{
    add_columns, copy_to_history, create_database, create_deleted, create_history,
    create_history_view, create_table, exists, remember_tokens,
};
pub(crate) use write::{
    COLUMNS as ROW_COLUMNS, Removal, Row, insert, insert_plain, note_all, note_deletion,
    note_tombstones, remove, remove_noted, truncate,
};

use std::borrow::Cow;

use url::form_urlencoded;

use crate::connection::Connection;
use crate::error::{Effect, Error};
use crate::escape::{array, parameter};

/// One request: a POST to `/`, since ClickHouse takes a GET for read-only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The path and the query.
    pub(crate) path: String,
    pub(crate) body: Vec<u8>,
    pub(crate) effect: Effect,
    pub(crate) answer: Answer,
}

/// What an answer that is longer than one call can hold is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nothing.
    Whole,
    /// The rows that came whole: the rest can be asked for again.
    Rows,
}

const ROOT: &str = "/?";

/// HTTP libraries hold a URL's path in 16 bits; ClickHouse itself would take 1 MiB (`http_max_uri_size`).
const MAX_PATH: usize = 65_000;

/// How many rows a page has at most: some megabytes of IDs.
pub(crate) const MAX_LIMIT: u32 = 100_000;

/// For answers of a few rows: see `native`.
const NATIVE: &str = "FORMAT Native";
/// For pages, which are cut behind any row.
const PAGE: &str = "FORMAT RowBinaryWithNamesAndTypes";
const NOW: &str = "toUnixTimestamp64Nano(now64(9)) AS now";

/// A statement on its way to become a request.
struct Statement<'a> {
    effect: Effect,
    answer: Answer,
    settings: Vec<(&'a str, &'a str)>,
    /// Names, and values as the server is to be sent them.
    parameters: Vec<(&'a str, Cow<'a, str>)>,
}

impl<'a> Statement<'a> {
    fn new(effect: Effect) -> Self {
        Self {
            effect,
            answer: Answer::Whole,
            settings: Vec::new(),
            parameters: Vec::new(),
        }
    }

    fn read() -> Self {
        Self::new(Effect::Read)
    }

    fn rows(mut self) -> Self {
        self.answer = Answer::Rows;
        self
    }

    fn setting(mut self, name: &'a str, value: &'a str) -> Self {
        self.settings.push((name, value));
        self
    }

    fn parameter(mut self, name: &'a str, value: &'a str) -> Self {
        self.parameters.push((name, parameter(value)));
        self
    }

    fn texts(mut self, name: &'a str, values: &[&str]) -> Self {
        let value = array(values.iter().copied());
        self.parameters.push((name, Cow::Owned(value)));
        self
    }

    /// With the SQL as the body.
    fn sql(self, connection: &Connection, sql: String) -> Result<Request, Error> {
        self.request(connection, sql.into_bytes())
    }

    /// With the SQL in the URL and rows as the body.
    fn rows_to(
        self,
        connection: &Connection,
        sql: &'a str,
        rows: Vec<u8>,
    ) -> Result<Request, Error> {
        self.setting("query", sql).request(connection, rows)
    }

    fn request(self, connection: &Connection, body: Vec<u8>) -> Result<Request, Error> {
        let mut path = form_urlencoded::Serializer::for_suffix(String::from(ROOT), ROOT.len());
        path.extend_pairs(&connection.options.extra);
        if self.effect == Effect::Read {
            if connection.options.sequential {
                path.append_pair("select_sequential_consistency", "1");
            }
        } else {
            // Then an error is told by the status, before anything of the answer. A read would pay half a
            // millisecond for it, and finds an error that comes later all the same.
            path.append_pair("wait_end_of_query", "1");
        }
        path.extend_pairs(&self.settings);
        for (name, value) in &self.parameters {
            path.append_pair(&format!("param_{name}"), value);
        }
        let path = path.finish();
        if path.len() > MAX_PATH {
            return Err(Error::InvalidInput(format!(
                "the state ID or the pattern takes {} bytes in a URL, and there is room for {MAX_PATH}; use a shorter one",
                path.len()
            )));
        }
        Ok(Request {
            path,
            body,
            effect: self.effect,
            answer: self.answer,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Lease, Step};
    use crate::pattern::Pattern;
    use crate::version::Version;

    fn connection(settings: &str) -> Connection {
        let uri = format!("clickhouse://u@h/db?schema=my-db&table=st%60ate{settings}");
        Connection::new(&uri, &[]).unwrap()
    }

    fn parameters(request: &Request) -> Vec<(String, String)> {
        form_urlencoded::parse(request.path.strip_prefix("/?").unwrap().as_bytes())
            .into_owned()
            .collect()
    }

    fn value(request: &Request, name: &str) -> Option<String> {
        parameters(request)
            .into_iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value)
    }

    fn sql(request: &Request) -> String {
        value(request, "query").unwrap_or_else(|| String::from_utf8(request.body.clone()).unwrap())
    }

    const VERSION: Version = Version::from_nanoseconds(7);

    fn row<'a>(id: &'a str, completed: Option<&'a str>) -> Row<'a> {
        Row {
            id,
            partial: None,
            completed,
            version: VERSION,
            written: Version::from_nanoseconds(5_000_000),
            deleted: false,
            writes: "w",
            valid_until_ms: None,
        }
    }

    fn lease_of(id: &str) -> Lease {
        Lease {
            id: id.to_owned(),
            token: id.to_owned(),
            epoch: 1,
            owner: id.to_owned(),
            acquired_ms: 2,
            renewed_ms: 3,
            expires_ms: 4,
        }
    }

    fn step(lease: &Lease) -> Step<'_> {
        Step {
            lease,
            first: false,
            before: "",
            ttl_ms: 5,
            released: false,
            valid_until_ms: 6,
            generation: 0,
        }
    }

    /// Every statement that names a state, for the state `id`.
    fn about(to: &Connection, id: &str) -> Vec<Request> {
        let pattern = Pattern::parse(&format!("{id}*"));
        let lease_of_it = lease_of(id);
        let step = step(&lease_of_it);
        [
            lease(to, id),
            leases(to, &pattern, None, 3),
            confirm_step(to, id),
            insert_step(to, &step, "w", &format!("{id}/2/0")),
            insert_in_keeper(to, &step, "w"),
            update_in_keeper(to, &step, "w"),
            get(to, id, Mark::Guess),
            get(to, id, Mark::Read),
            head(to, id),
            count_rows(to, id),
            last_deletion(to, id),
            confirm(to, id),
            head_by_hash(to, id, (1, 2)),
            history(to, id, Some(VERSION), 3),
            page(to, What::States, &pattern, Some(id), 1),
            page(to, What::Ids, &pattern, Some(id), 2),
            heads(to, &[id, "other"]),
            insert(to, &[row(id, None)], &format!("{id}/7")),
            insert_plain(to, &[row(id, None)]),
            remove(to, id, VERSION, Removal::BeforeTombstone),
            remove(to, id, VERSION, Removal::Tombstone),
            remove(to, id, VERSION, Removal::UpTo),
            note_deletion(to, id, VERSION),
        ]
        .into_iter()
        .map(Result::unwrap)
        .collect()
    }

    fn others(to: &Connection) -> Vec<Request> {
        [
            count(to),
            truncate(to),
            note_all(to),
            note_tombstones(to),
            remove_noted(to),
            count_tombstones(to),
            create_database(to),
            create_table(to),
            create_leases(to),
            add_columns(to),
            remember_tokens(to),
            create_deleted(to),
            create_history(to, crate::options::Days(3)),
            create_history_view(to),
            copy_to_history(to),
        ]
        .into_iter()
        .map(Result::unwrap)
        .collect()
    }

    /// Whatever an ID or a pattern holds, the SQL is the same.
    #[test]
    fn values_never_become_a_part_of_the_sql() {
        let to = connection("");
        let hostile = "'; DROP TABLE x; -- \\ ` {id:String}\n\t\0";
        for (hostile, harmless) in about(&to, hostile).iter().zip(about(&to, "a")) {
            assert_eq!(sql(hostile), sql(&harmless));
        }
    }

    #[test]
    fn the_table_is_quoted_in_every_statement() {
        let to = connection("");
        for request in about(&to, "a").iter().chain(&others(&to)) {
            let sql = sql(request);
            assert!(sql.contains(r"`my-db`"), "{sql}");
            assert!(
                sql.contains(r"`st\`ate") || sql.contains("DATABASE"),
                "{sql}"
            );
        }
    }

    #[test]
    fn a_read_sends_nothing_that_a_read_only_user_may_not_send() {
        let to = connection("");
        let reads: Vec<_> = about(&to, "a")
            .into_iter()
            .chain(others(&to))
            .filter(|request| request.effect == Effect::Read)
            .collect();
        assert_eq!(reads.len(), 16);
        for request in reads {
            for (name, _) in parameters(&request) {
                assert!(name.starts_with("param_"), "{name}");
            }
        }
    }

    #[test]
    fn an_insert_is_acknowledged_when_it_is_stored() {
        let to = connection("");
        for request in about(&to, "a").iter().chain(&others(&to)) {
            if sql(request).starts_with("INSERT") {
                assert_eq!(value(request, "async_insert").unwrap(), "0");
                assert_eq!(value(request, "wait_end_of_query").unwrap(), "1");
            }
        }
        let request = insert(&to, &[row("a", None)], "token").unwrap();
        assert_eq!(value(&request, "insert_deduplicate").unwrap(), "1");
        assert_eq!(
            value(&request, "insert_deduplication_token").unwrap(),
            "token"
        );
    }

    #[test]
    fn a_document_travels_in_the_body_as_it_is() {
        let request = insert(&connection(""), &[row("a", Some("{\"a\":'\\`\n}"))], "t").unwrap();
        let mut expected = b"\x01a\x01\x00\x0a{\"a\":'\\`\n}".to_vec();
        expected.extend_from_slice(&7_i64.to_le_bytes());
        expected.extend_from_slice(&5_i64.to_le_bytes());
        expected.extend_from_slice(b"\0\x01w");
        assert_eq!(request.body, expected);
    }

    #[test]
    fn a_row_for_a_table_of_the_python_backend_is_text() {
        let mut row = row("a\tb", Some("{\"a\": \"\\n\"}"));
        row.version = Version::from_nanoseconds(1_796_199_517_390_000_007);
        let request = insert_plain(&connection(""), &[row]).unwrap();
        let expected = "a\\tb\t\\N\t{\"a\": \"\\\\n\"}\t1796199517.390000007\n";
        assert_eq!(request.body, expected.as_bytes());
    }

    #[test]
    fn options_reach_the_statements_that_they_are_for() {
        let to = connection(
            "&cluster=my-cluster&insert_quorum=2&select_sequential_consistency=1&setting_max_threads=1",
        );
        let read = get(&to, "a", Mark::Guess).unwrap();
        assert_eq!(value(&read, "select_sequential_consistency").unwrap(), "1");
        assert_eq!(value(&read, "max_threads").unwrap(), "1");
        assert_eq!(value(&read, "insert_quorum"), None);
        let write = insert(&to, &[row("a", None)], "t").unwrap();
        assert_eq!(value(&write, "insert_quorum").unwrap(), "2");
        assert_eq!(value(&write, "insert_quorum_parallel").unwrap(), "0");
        assert_eq!(value(&write, "select_sequential_consistency"), None);
        for request in [
            create_database(&to),
            create_table(&to),
            add_columns(&to),
            truncate(&to),
        ] {
            let sql = sql(&request.unwrap());
            assert!(sql.contains(" ON CLUSTER `my-cluster`"), "{sql}");
        }
    }

    #[test]
    fn a_page_has_no_more_conditions_than_it_needs() {
        let to = connection("");
        let sql = |pattern, after| {
            sql(&page(&to, What::Ids, &Pattern::parse(pattern), after, 7).unwrap())
        };
        assert!(!sql("*", None).contains("WHERE"));
        assert!(sql("*", Some("a")).contains("PREWHERE state_id > {after:String} ORDER"));
        assert!(sql("a", None).contains("PREWHERE state_id = {id:String} ORDER"));
        assert!(
            sql("a*", None).contains("PREWHERE startsWith(state_id, {prefix:String}) AND match(")
        );
        assert!(sql("*a", None).contains("PREWHERE match("));
    }

    #[test]
    fn what_does_not_fit_into_a_url_is_refused_before_it_is_sent() {
        let long = "\t".repeat(20_000);
        assert!(matches!(
            get(&connection(""), &long, Mark::Guess),
            Err(Error::InvalidInput(_))
        ));
    }
}
