//! The statements, as values: what goes into the URL and what into the body of one request.
//!
//! Parameters travel as `param_...` and are named `{name:Type}` in the SQL; documents travel in the body.
//! A read sends no settings, so that a user with `readonly=1` may read: such a user may send `param_...` and
//! `wait_end_of_query`, and nothing else.

use url::form_urlencoded;

use crate::connection::Table;
use crate::error::{Effect, Error};
use crate::escape::parameter;
use crate::pattern::Pattern;
use crate::rowbinary::{put_nullable_string, put_string};

/// One request: a POST to `/`, since ClickHouse takes a GET for read-only.
#[derive(Debug, PartialEq, Eq)]
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
    /// The rows that came whole: the rest can be asked for again. Such an answer is sent as the rows are found,
    /// so that the server need not hold it.
    Rows,
}

const ROOT: &str = "/?";

/// HTTP libraries hold a URL's path in 16 bits; ClickHouse itself would take 1 MiB (`http_max_uri_size`).
const MAX_PATH: usize = 65_000;

/// How many rows a page has at most: some megabytes of IDs.
pub(crate) const MAX_LIMIT: u32 = 100_000;

/// That an error is told by the status, before anything of the answer.
const WAIT: &str = "wait_end_of_query";
/// A write must be stored when it is acknowledged. Servers from 26.2 on put inserts into a queue by default.
const SYNCHRONOUS: (&str, &str) = ("async_insert", "0");
/// The table keeps a log of blocks (`non_replicated_deduplication_window`), in which a block that equals an
/// older one is dropped without a word.
const NO_DEDUPLICATION: (&str, &str) = ("insert_deduplicate", "0");

struct Parameter<'a>(&'a str, &'a str);

fn request(
    effect: Effect,
    answer: Answer,
    settings: &[(&str, &str)],
    parameters: &[Parameter<'_>],
    body: Vec<u8>,
) -> Result<Request, Error> {
    let mut path = form_urlencoded::Serializer::for_suffix(String::from(ROOT), ROOT.len());
    path.append_pair(WAIT, if answer == Answer::Whole { "1" } else { "0" });
    path.extend_pairs(settings);
    for Parameter(name, value) in parameters {
        path.append_pair(&format!("param_{name}"), &parameter(value));
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
        effect,
        answer,
    })
}

fn read(sql: String, parameters: &[Parameter<'_>]) -> Result<Request, Error> {
    request(
        Effect::Read,
        Answer::Whole,
        &[],
        parameters,
        sql.into_bytes(),
    )
}

/// `COLUMNS` lets one statement serve a table that has `deleted` and one, made by the Python backend, that has not.
const STATE: &str = "COLUMNS('^(state_id|partial_state|completed_state|deleted)$'), toUnixTimestamp64Milli(updated_at) AS version";
const ID: &str = "COLUMNS('^(state_id|deleted)$')";
const FORMAT: &str = "FORMAT RowBinaryWithNamesAndTypes";

/// The last version of one state.
pub(crate) fn get(table: &Table, id: &str) -> Result<Request, Error> {
    read(
        format!(
            "SELECT {STATE} FROM {table} FINAL WHERE state_id = {{id:String}} LIMIT 1 {FORMAT}"
        ),
        &[Parameter("id", id)],
    )
}

/// Whether the documents are wanted with the IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    States,
    Ids,
}

/// Some rows in the order of their IDs. A page goes on behind the last ID of the one before, so that the
/// millionth costs what the first does.
pub(crate) fn page(
    table: &Table,
    what: What,
    pattern: &Pattern,
    after: Option<&str>,
    rows: u32,
) -> Result<Request, Error> {
    let mut conditions = Vec::new();
    let mut parameters = Vec::new();
    let limit = rows.to_string();
    parameters.push(Parameter("limit", &limit));
    if let Some(after) = after {
        conditions.push("state_id > {after:String}");
        parameters.push(Parameter("after", after));
    }
    match pattern {
        Pattern::All => {}
        Pattern::Exact(id) => {
            conditions.push("state_id = {id:String}");
            parameters.push(Parameter("id", id));
        }
        Pattern::Like { prefix, regex } => {
            if !prefix.is_empty() {
                conditions.push("startsWith(state_id, {prefix:String})");
                parameters.push(Parameter("prefix", prefix));
            }
            conditions.push("match(state_id, {regex:String})");
            parameters.push(Parameter("regex", regex));
        }
    }
    let columns = match what {
        What::States => STATE,
        What::Ids => ID,
    };
    let condition = match conditions.is_empty() {
        true => String::new(),
        false => format!("WHERE {} ", conditions.join(" AND ")),
    };
    // One row must come whole: there is nothing less to ask for.
    let answer = match rows {
        1 => Answer::Whole,
        _ => Answer::Rows,
    };
    let sql = format!(
        "SELECT {columns} FROM {table} FINAL {condition}ORDER BY state_id LIMIT {{limit:UInt32}} {FORMAT}"
    );
    request(Effect::Read, answer, &[], &parameters, sql.into_bytes())
}

/// One state over whatever is there. The server finds its version: its clock, or one more than the last version
/// where the clock is behind that (`ReplacingMergeTree` ignores a row whose version is no higher).
pub(crate) fn set(
    table: &Table,
    id: &str,
    partial: Option<&str>,
    completed: Option<&str>,
) -> Result<Request, Error> {
    let mut row = Vec::with_capacity(
        partial.map_or(0, str::len) + completed.map_or(0, str::len) + ROW_OVERHEAD,
    );
    put_nullable_string(&mut row, partial);
    put_nullable_string(&mut row, completed);
    set_row(table, id, row)
}

/// Two markers and two lengths of at most 5 bytes.
const ROW_OVERHEAD: usize = 12;

/// The statement of `set` without a row: it writes nothing, and fails where `set` would.
pub(crate) fn probe_set(table: &Table, id: &str) -> Result<Request, Error> {
    set_row(table, id, Vec::new())
}

fn set_row(table: &Table, id: &str, row: Vec<u8>) -> Result<Request, Error> {
    let sql = format!(
        "INSERT INTO {table} (state_id, partial_state, completed_state, updated_at) \
         SELECT {{id:String}}, partial, completed, greatest(now64(3), \
         (SELECT max(updated_at) FROM {table} WHERE state_id = {{id:String}}) + INTERVAL 1 MILLISECOND) \
         FROM input('partial Nullable(String), completed Nullable(String)') FORMAT RowBinary"
    );
    request(
        Effect::Write,
        Answer::Whole,
        &[("query", &sql), SYNCHRONOUS, NO_DEDUPLICATION],
        &[Parameter("id", id)],
        row,
    )
}

/// What `delete` must know: whether there is a state, its version, and the server's clock.
pub(crate) fn find(table: &Table, id: &str) -> Result<Request, Error> {
    read(
        format!(
            "SELECT {ID}, toUnixTimestamp64Milli(updated_at) AS version, toUnixTimestamp64Milli(now64(3)) AS now \
             FROM {table} FINAL WHERE state_id = {{id:String}} LIMIT 1 {FORMAT}"
        ),
        &[Parameter("id", id)],
    )
}

/// A row that says that the state was deleted, at `version`.
pub(crate) fn tombstone(table: &Table, id: &str, version: i64) -> Result<Request, Error> {
    let sql = format!("INSERT INTO {table} (state_id, updated_at, deleted) FORMAT RowBinary");
    let mut row = Vec::with_capacity(id.len() + 16);
    put_string(&mut row, id);
    row.extend_from_slice(&version.to_le_bytes());
    row.push(1);
    request(
        Effect::Write,
        Answer::Whole,
        &[("query", &sql), SYNCHRONOUS, NO_DEDUPLICATION],
        &[],
        row,
    )
}

/// Which rows of a state are removed. A state that is written meanwhile has a higher version, and stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// Those before its tombstone, waited for, but not long: mutations can be held up for minutes.
    BeforeTombstone,
    /// The tombstone, when nothing is left that it hides. Nobody waits for that.
    Tombstone,
    /// Up to a version, waited for as the server has it (`lightweight_deletes_sync`).
    UpTo,
}

/// Removes rows of a state by a lightweight deletion, a mutation that marks them as gone.
pub(crate) fn remove(
    table: &Table,
    id: &str,
    version: i64,
    removal: Removal,
) -> Result<Request, Error> {
    let (relation, settings): (_, &[_]) = match removal {
        Removal::BeforeTombstone => (
            "<",
            // After this many seconds the server answers with 159, and goes on.
            &[
                ("lightweight_deletes_sync", "1"),
                ("max_execution_time", "5"),
            ],
        ),
        Removal::Tombstone => ("=", &[("lightweight_deletes_sync", "0")]),
        Removal::UpTo => ("<=", &[]),
    };
    let sql = format!(
        "DELETE FROM {table} WHERE state_id = {{id:String}} \
         AND updated_at {relation} fromUnixTimestamp64Milli({{version:Int64}})"
    );
    request(
        Effect::Write,
        Answer::Whole,
        settings,
        &[
            Parameter("id", id),
            Parameter("version", &version.to_string()),
        ],
        sql.into_bytes(),
    )
}

/// How many rows there are, and, in a second column where the table has `deleted`, how many of them are tombstones.
pub(crate) fn count(table: &Table) -> Result<Request, Error> {
    read(
        format!(
            "SELECT count() AS rows, COLUMNS('^deleted$') APPLY(sum) FROM {table} FINAL {FORMAT}"
        ),
        &[],
    )
}

/// Empties the table.
pub(crate) fn truncate(table: &Table) -> Result<Request, Error> {
    statement(format!("TRUNCATE TABLE {table}"))
}

pub(crate) fn create_database(table: &Table) -> Result<Request, Error> {
    statement(format!("CREATE DATABASE IF NOT EXISTS {}", table.schema))
}

/// The Python backend's table, and more:
/// - `nonce` says which write a row is from, and `deleted` marks a tombstone. Both have defaults, so that the
///   Python backend's inserts fit.
/// - A read of one key reads one granule: 256 rows instead of 8,192. It can't be altered later.
/// - The window makes insert tokens work (`insert_deduplication_token`), on which exact compare-and-set stands.
pub(crate) fn create_table(table: &Table) -> Result<Request, Error> {
    statement(format!(
        "CREATE TABLE IF NOT EXISTS {table} (\
         state_id String, \
         partial_state Nullable(String), \
         completed_state Nullable(String), \
         updated_at DateTime64(3) DEFAULT now64(3), \
         nonce String DEFAULT '', \
         deleted Bool DEFAULT false\
         ) ENGINE = ReplacingMergeTree(updated_at) ORDER BY state_id \
         SETTINGS index_granularity = 256, non_replicated_deduplication_window = 10000"
    ))
}

fn statement(sql: String) -> Result<Request, Error> {
    request(Effect::Write, Answer::Whole, &[], &[], sql.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::escape::Identifier;

    fn table() -> Table {
        Table {
            schema: Identifier::new("schema", "my-db").unwrap(),
            name: Identifier::new("table", "st`ate").unwrap(),
        }
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

    fn body(request: &Request) -> &str {
        std::str::from_utf8(&request.body).unwrap()
    }

    /// Whatever an ID or a pattern holds, the SQL is the same.
    #[test]
    fn values_never_become_a_part_of_the_sql() {
        let hostile = "'; DROP TABLE x; -- \\ ` {id:String}\n\t\0";
        let pattern = Pattern::parse(&format!("{hostile}*"));
        for (hostile, harmless) in [
            (get(&table(), hostile), get(&table(), "a")),
            (find(&table(), hostile), find(&table(), "a")),
            (
                remove(&table(), hostile, 1, Removal::Tombstone),
                remove(&table(), "a", 1, Removal::Tombstone),
            ),
            (
                page(&table(), What::Ids, &pattern, Some(hostile), 1),
                page(&table(), What::Ids, &Pattern::parse("a*"), Some("a"), 1),
            ),
        ] {
            assert_eq!(hostile.unwrap().body, harmless.unwrap().body);
        }
        let sql = |id| value(&set(&table(), id, None, None).unwrap(), "query");
        assert_eq!(sql(hostile), sql("a"));
    }

    #[test]
    fn the_table_is_quoted_in_every_statement() {
        let requests = [
            get(&table(), "a"),
            page(&table(), What::States, &Pattern::All, None, 1),
            set(&table(), "a", None, None),
            find(&table(), "a"),
            tombstone(&table(), "a", 1),
            remove(&table(), "a", 1, Removal::UpTo),
            count(&table()),
            truncate(&table()),
            create_table(&table()),
        ];
        for request in requests.map(Result::unwrap) {
            let sql = value(&request, "query").unwrap_or_else(|| body(&request).to_owned());
            assert!(sql.contains(r"`my-db`.`st\`ate`"), "{sql}");
        }
    }

    #[test]
    fn a_read_sends_nothing_that_a_read_only_user_may_not_send() {
        for request in [
            get(&table(), "a"),
            find(&table(), "a"),
            count(&table()),
            page(&table(), What::States, &Pattern::parse("a*"), Some("a"), 1),
        ] {
            let request = request.unwrap();
            assert_eq!(request.effect, Effect::Read);
            for (name, _) in parameters(&request) {
                assert!(
                    name.starts_with("param_") || name == "wait_end_of_query",
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn a_write_is_acknowledged_when_it_is_stored() {
        for request in [set(&table(), "a", None, None), tombstone(&table(), "a", 1)] {
            let request = request.unwrap();
            assert_eq!(request.effect, Effect::Write);
            assert_eq!(value(&request, "async_insert").unwrap(), "0");
            assert_eq!(value(&request, "insert_deduplicate").unwrap(), "0");
            assert_eq!(value(&request, "wait_end_of_query").unwrap(), "1");
        }
    }

    #[test]
    fn a_document_travels_in_the_body_as_it_is() {
        let request = set(&table(), "a", None, Some("{\"a\":'\\`\n}")).unwrap();
        assert_eq!(request.body, b"\x01\x00\x0a{\"a\":'\\`\n}");
        assert!(probe_set(&table(), "a").unwrap().body.is_empty());
        assert_eq!(probe_set(&table(), "a").unwrap().path, request.path);
    }

    #[test]
    fn a_page_has_no_more_conditions_than_it_needs() {
        let sql = |pattern, after| {
            let request = page(&table(), What::Ids, &Pattern::parse(pattern), after, 7).unwrap();
            body(&request).to_owned()
        };
        assert!(!sql("*", None).contains("WHERE"));
        assert!(sql("*", Some("a")).contains("WHERE state_id > {after:String} ORDER"));
        assert!(sql("a", None).contains("WHERE state_id = {id:String} ORDER"));
        assert!(sql("a*", None).contains("WHERE startsWith(state_id, {prefix:String}) AND match("));
        assert!(sql("*a", None).contains("WHERE match("));
    }

    #[test]
    fn what_does_not_fit_into_a_url_is_refused_before_it_is_sent() {
        let long = "\t".repeat(20_000);
        assert!(matches!(get(&table(), &long), Err(Error::InvalidInput(_))));
    }
}
