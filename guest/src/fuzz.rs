//! What must hold of any input whatever: of URIs, answers, documents and passwords that nobody thought of.
//!
//! Each of these tests takes a moment under `cargo test`. They go on for longer with
//! `BOLERO_RANDOM_TEST_TIME_MS=600000 cargo test -p pipeline-state-clickhouse fuzz`, and guided by what the inputs reach with
//! `cargo bolero test -p pipeline-state-clickhouse --profile dev --sanitizer NONE fuzz::<name>`, which keeps what it found
//! in `guest/src/__fuzz__`.
//!
//! All input comes as bytes, which `Choices` makes something of: so a fuzzer can change and shorten it as it likes.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use bolero::{check, produce};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use pipeline_state_secret::Password;
use serde_json::Value as Json;
use serde_json::value::RawValue;

use crate::connection::Connection;
use crate::document::{self, holds_nothing, is_plausible};
use crate::error::{Effect, Error};
use crate::escape::{Identifier, array, parameter};
use crate::gzip;
use crate::merge::merge;
use crate::network::Broken;
use crate::pattern::Pattern;
use crate::response::{self, Ending, Response};
use crate::rowbinary::{put_nullable_string, put_string};
use crate::rows::{self, Change, Content, Heads, Layout, Row, Stored};
use crate::sql::Answer;
use crate::uri::Uri;
use crate::version::Version;
use crate::writes::{self, Fate, Name, Sent, UNNAMED};

/// How long each test takes.
const MOMENT: Duration = Duration::from_secs(1);

/// So many bytes are enough to choose anything from.
const LONGEST: usize = 1024;

/// Checks that something holds of all bytes. The macro must stand in the test itself, whose name it takes.
macro_rules! always {
    ($check:expr) => {
        check!()
            .with_test_time(MOMENT)
            // Left to itself, it would try no more than 64 bytes.
            .with_generator(produce::<Vec<u8>>().with().len(0..=LONGEST))
            .for_each(|bytes: &Vec<u8>| $check(bytes))
    };
}

/// Makes choices of bytes. Where those are used up, the first choice is taken.
struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn number(&mut self) -> u64 {
        let bytes = [(); 8].map(|()| self.byte());
        u64::from_le_bytes(bytes)
    }

    fn integer(&mut self) -> i64 {
        match self.below(6) {
            0 => self.byte().into(),
            1 => self.of(&[-1, i64::MIN, i64::MAX]),
            2 => i64::from(self.byte()) * 1_000_000_000_000,
            _ => self.number().cast_signed(),
        }
    }

    fn below(&mut self, count: usize) -> usize {
        let high = if count > 256 { self.byte() } else { 0 };
        (usize::from(high) << 8 | usize::from(self.byte())) % count
    }

    fn yes(&mut self) -> bool {
        self.below(2) == 1
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn some<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.yes().then(|| make(self))
    }

    fn list<T>(&mut self, longest: usize, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let length = self.below(longest + 1);
        (0..length).map(|_| make(self)).collect()
    }

    fn character(&mut self) -> char {
        const ODD: &str = "\0\t\n\r\u{8}\u{b}\u{c}\u{1b}\u{7f}\u{85}\u{a0}\u{2028}\u{feff} '\"`\\/?#@:[]{}()%&=+,;*!-_.^~|<>N";
        match self.below(8) {
            0..=2 => char::from(b'a' + self.byte() % 26),
            3 | 4 => {
                let at = self.below(ODD.chars().count());
                ODD.chars().nth(at).unwrap()
            }
            5 => char::from(self.byte() & 0x7f),
            6 => char::from(self.byte()),
            _ => char::from_u32(self.number() as u32 % 0x11_0000).unwrap_or('😀'),
        }
    }

    fn text(&mut self, longest: usize) -> String {
        self.list(longest, Self::character).into_iter().collect()
    }

    /// One of the words of a list, that has bars between them.
    fn word<'b>(&mut self, words: &'b str) -> &'b str {
        let index = self.below(words.split('|').count());
        words.split('|').nth(index).unwrap()
    }

    /// Words that mean something, in an order that need not, and characters between them.
    fn soup(&mut self, words: &str, longest: usize) -> String {
        self.list(longest, |choices| match choices.below(16) {
            0 => choices.character().to_string(),
            _ => choices.word(words).to_owned(),
        })
        .concat()
    }
}

/// The message of an error, which is one line that is not too long.
fn message(error: &Error) -> &str {
    let message = match error {
        Error::InvalidInput(message)
        | Error::MissingSetting(message)
        | Error::Unauthenticated(message)
        | Error::AccessDenied(message)
        | Error::Corrupt(message) => message,
        Error::Unavailable(failure) | Error::TimedOut(failure) => &failure.message,
        Error::Server(error) => {
            assert!(error.name.len() <= 100, "{}", error.name.len());
            &error.message
        }
        Error::Conflict(_) | Error::Locked(_) => "",
    };
    assert!(message.chars().count() < 1500, "{message}");
    assert!(!message.contains(char::is_control), "{message:?}");
    message
}

// ---- URIs ----

const URI_PARTS: &str = r"clickhouse://|clickhouse:|://|//|/|?|#|@|:|[::1]|[|]|%|%40|%2F|%FF|%00|%zz|\|..|localhost|8123|99999|db|user|&host=x|?port=1|?secure=|?schema=|=";

fn settings(choices: &mut Choices<'_>) -> Vec<(String, String)> {
    const NAMES: &str = "host|port|user|database|secure|schema|table|engine|cluster|insert_quorum|request_timeout|history_days|setting_x|setting_";
    const VALUES: &str = "1|true|h|0|1e-300|NaN|::1|a b";
    choices.list(3, |choices| {
        (choices.soup(NAMES, 1), choices.soup(VALUES, 1))
    })
}

#[test]
fn no_uri_makes_it_panic() {
    always!(|bytes: &[u8]| {
        let _ = Uri::parse(&String::from_utf8_lossy(bytes));
        let mut choices = Choices(bytes);
        let settings = settings(&mut choices);
        let start = choices.of(&["clickhouse://", "clickhouse://u:p@h/db", ""]);
        let uri = start.to_owned() + &choices.soup(URI_PARTS, 20);
        if let Err(error) = Connection::new(&uri, &settings) {
            message(&error);
        }
    });
}

/// Of a password that was not encoded, a part may end up anywhere: in the host, the port, the path, the query.
#[test]
fn no_error_and_no_connection_shows_a_part_of_a_password() {
    const SECRET: &str = "hunter2sekret";
    always!(|bytes: &[u8]| {
        let mut choices = Choices(bytes);
        let start = choices.of(&[
            "clickhouse://",
            "CLICKHOUSE://",
            "clickhouse:///",
            "clickhouse:/",
            "clickhouse:",
            " clickhouse://",
            "http://",
            "//",
            "",
        ]);
        let user = choices.soup(URI_PARTS, 3);
        let before = choices.soup(URI_PARTS, 4);
        let after = choices.soup(URI_PARTS, 4);
        let place = choices.of(&["h", "h:8123", "h:x", "[::1]", "[fe80::1%25eth0]", "", "a b"]);
        let end = choices.of(&["/db", "", "/", "/db?table=t", "/db?tabel=t", "?x", "/%FF"]);
        let uri = format!("{start}{user}:{before}{SECRET}{after}@{place}{end}");
        let mut settings = settings(&mut choices);
        if choices.yes() {
            settings.push(("password".to_owned(), format!("{before}{SECRET}{after}")));
        }
        let shown = match Connection::new(&uri, &settings) {
            Ok(connection) => format!("{connection:?} {}", connection.origin()),
            Err(error) => format!("{error:?} {}", message(&error)),
        };
        let shown = shown.to_lowercase();
        for part in ["hunter", "sekret"] {
            assert!(!shown.contains(part), "{uri} {shown}");
        }
    });
}

#[test]
fn the_parts_of_a_uri_come_back() {
    /// Other characters may stand for themselves or be encoded.
    fn encode(choices: &mut Choices<'_>, text: &str) -> String {
        text.chars()
            .map(|character| match character {
                'a'..='z' | '-' | '_' | '~' | '+' | '!' if choices.yes() => character.to_string(),
                _ => {
                    let encoded =
                        utf8_percent_encode(character.encode_utf8(&mut [0; 4]), NON_ALPHANUMERIC)
                            .to_string();
                    match choices.yes() {
                        true => encoded,
                        false if character.is_ascii_alphanumeric() => encoded,
                        false => encoded.to_lowercase(),
                    }
                }
            })
            .collect()
    }
    always!(|bytes: &[u8]| {
        let mut choices = Choices(bytes);
        let [user, password, database] = [(); 3].map(|()| choices.text(12));
        // These mean something in a path, encoded or not.
        if matches!(database.as_str(), "." | "..") {
            return;
        }
        let (host, shown_host) = match choices.below(4) {
            0 => ("[::1]".to_owned(), "[::1]".to_owned()),
            1 => (
                "db-1.example_2.com".to_owned(),
                "db-1.example_2.com".to_owned(),
            ),
            _ => {
                let host = format!("h{}", choices.text(8));
                let encoded = encode(&mut choices, &host);
                (host, encoded)
            }
        };
        let port = choices.some(|choices| choices.number() as u16);
        let query = choices.list(3, |choices| (choices.text(6), choices.text(6)));
        let userinfo = format!(
            "{}:{}@",
            encode(&mut choices, &user),
            encode(&mut choices, &password)
        );
        let shown_port = port.map(|port| format!(":{port}")).unwrap_or_default();
        let shown_database = encode(&mut choices, &database);
        let pairs = query.iter().map(|(name, value)| {
            let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
            format!("{}={}", encode(name), encode(value))
        });
        let pairs = pairs.collect::<Vec<_>>().join("&");
        let text =
            format!("clickhouse://{userinfo}{shown_host}{shown_port}/{shown_database}?{pairs}");
        let Ok(uri) = Uri::parse(&text) else {
            panic!("refused: {text}")
        };
        let part = |text: String| Some(text).filter(|text| !text.is_empty());
        assert_eq!(uri.user, part(user), "{text}");
        assert_eq!(uri.password, part(password), "{text}");
        assert_eq!(uri.host, part(host), "{text}");
        assert_eq!(uri.port, port, "{text}");
        assert_eq!(uri.database, part(database), "{text}");
        assert_eq!(uri.query, query, "{text}");
    });
}

// ---- Answers ----

const BROKEN: [Broken; 12] = [
    Broken::Denied,
    Broken::Refused,
    Broken::UnknownName,
    Broken::Unreachable,
    Broken::ConnectTimeout,
    Broken::Certificate,
    Broken::ClientCertificate,
    Broken::Tls,
    Broken::NotSent,
    Broken::AnswerTimeout,
    Broken::Interrupted,
    Broken::TooLarge,
];

/// Hands an answer to all that read one. None has more rows than the answer has bytes.
fn read_all(body: &[u8]) {
    fn rows<T>(body: &[u8], read: Result<Vec<T>, Error>) {
        match read {
            Ok(rows) => assert!(rows.len() <= body.len()),
            Err(error) => corrupt(error),
        }
    }
    fn one<T>(read: Result<T, Error>) {
        if let Err(error) = read {
            corrupt(error);
        }
    }
    for ending in [Ending::Whole, Ending::Cut] {
        rows(body, rows::states(body, ending));
        rows(body, rows::ids(body, ending));
        rows(body, rows::changes(body, ending));
    }
    let native = native(body);
    rows(body, rows::confirmed(&native));
    rows(body, rows::texts(&native));
    one(rows::state_of("id", &native));
    one(rows::head("id", &native));
    one(rows::heads(&native));
    one(rows::last_deletion(&native));
    one(rows::clock(&native));
    one(rows::count(&native));
}

fn native(body: &[u8]) -> Response {
    Response {
        body: body.to_owned(),
        format: Some("Native".to_owned()),
        ..Response::default()
    }
}

fn corrupt(error: Error) {
    message(&error);
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
}

/// Changes some bytes, if there are any.
fn spoil(choices: &mut Choices<'_>, body: &mut Vec<u8>) {
    for _ in 0..choices.below(4) {
        if body.is_empty() {
            return;
        }
        let at = choices.below(body.len());
        match choices.below(3) {
            0 => body[at] = choices.byte(),
            1 => body.insert(at, choices.byte()),
            _ => drop(body.remove(at)),
        }
    }
}

#[test]
fn no_bytes_that_are_read_as_rows_make_it_panic() {
    always!(|bytes: &[u8]| {
        read_all(bytes);
        let mut choices = Choices(bytes);
        // Blocks, mostly without columns.
        let blocks = choices.list(12, |choices| {
            let columns = choices.of(&[0, 0, 0, 0, 0, 1, 0xff]);
            [columns, choices.of(&[0, 1, 2, 8, 0x7f])]
        });
        read_all(&blocks.concat());
        // A valid one, somewhat changed.
        let mut body = Table::any(&mut choices).encode();
        spoil(&mut choices, &mut body);
        read_all(&body);
        // The same in blocks.
        let (mut body, _) = Table::any(&mut choices).encode_native(&mut choices);
        spoil(&mut choices, &mut body);
        read_all(&body);
        // Columns alone, and anything behind.
        let mut body = Table::any(&mut choices).header();
        body.extend(choices.rest());
        read_all(&body);
    });
}

#[test]
fn no_answer_makes_it_panic_or_show_the_password() {
    const PARTS: &str = "Code: |60|516|497|164|159|99999999999|. |DB::Exception: |Exception: | (UNKNOWN_TABLE)|(|)| (version 26.9.1.1)|\r\n__exception__\r\n|abcdefgh|\r\n|Port 9000 is for clickhouse-client program|sekret|app:sekret|Basic YXBwOnNla3JldA==|YXBwOnNla3JldA|c2VrcmV0|[redacted]|A|word ";
    let parts = format!("{PARTS}| ({})", "NAME_".repeat(30));
    let connection = Connection::new("clickhouse://app:sekret@h/db", &[]).unwrap();
    always!(|bytes: &[u8]| {
        let mut choices = Choices(bytes);
        let times = [1, 1, 1, 1, 2, 300, 2000];
        let mut body = Vec::new();
        for _ in 0..choices.below(4) {
            let part = choices.soup(&parts, 12);
            body.extend(part.repeat(choices.of(&times)).bytes());
        }
        let response = |choices: &mut Choices<'_>| Response {
            status: match choices.below(8) {
                0..=2 => 200,
                3 => choices.number() as u16,
                _ => choices.of(&[400, 401, 403, 404, 500, 502, 503, 504]),
            },
            exception_code: choices.some(|choices| choices.soup(PARTS, 1)),
            exception_tag: choices.some(|choices| choices.soup(PARTS, 1)),
            from_clickhouse: choices.yes(),
            ending: match choices.below(3) {
                0 => Ending::Whole,
                1 => Ending::Cut,
                _ => Ending::Broken(choices.of(&BROKEN)),
            },
            ..Response::default()
        };
        let mut response = response(&mut choices);
        let effect = choices.of(&[Effect::Read, Effect::Repeatable, Effect::Once]);
        let answer = choices.of(&[Answer::Whole, Answer::Rows]);
        body.extend(choices.rest());
        // What a message has half of was shortened before it was redacted, unless the fuzzer has sent half of it.
        let halves = ["sekre", "YXBwOn", "c2Vrcm"];
        let sent = (["sekret", "YXBwOnNla3JldA", "c2VrcmV0"].iter()).fold(
            String::from_utf8_lossy(&body).into_owned(),
            |sent, whole| sent.replace(whole, " "),
        );
        if halves.iter().any(|half| sent.contains(half)) {
            return;
        }
        response.body = body;
        let _ = response::is_passing(&response, effect);
        match response::check(response, effect, answer, &connection) {
            Ok(response) => {
                assert_eq!((response.status, response.from_clickhouse), (200, true));
                assert_ne!((response.ending, answer), (Ending::Cut, Answer::Whole));
                read_all(&response.body);
            }
            Err(error) => {
                message(&error);
                let shown = format!("{error:?}");
                for half in halves {
                    assert!(!shown.contains(half), "{shown}");
                }
            }
        }
    });
}

/// What stands in a row.
#[derive(Clone, Debug)]
enum Cell {
    Text(String),
    Nullable(Option<String>),
    Byte(u8),
    /// The number, and how many nanoseconds it counts.
    Integer(i64, i64),
}

impl Cell {
    fn encode(&self, body: &mut Vec<u8>) {
        match self {
            Self::Text(text) => put_string(body, text),
            Self::Nullable(text) => put_nullable_string(body, text.as_deref()),
            Self::Byte(byte) => body.push(*byte),
            Self::Integer(number, _) => body.extend(number.to_le_bytes()),
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Nullable(text) => text.as_deref(),
            _ => panic!("{self:?}"),
        }
    }

    fn integer(&self) -> i64 {
        match self {
            Self::Byte(byte) => i64::from(*byte),
            Self::Integer(number, unit) => number.saturating_mul(*unit),
            _ => panic!("{self:?}"),
        }
    }
}

/// An answer with all columns that anything here asks for, in any order and of any type that they may have.
#[derive(Debug)]
struct Table {
    columns: Vec<(&'static str, String)>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    fn any(choices: &mut Choices<'_>) -> Self {
        let mut names = vec![
            "state_id",
            "partial_state",
            "completed_state",
            "updated_at",
            "writes",
            "version",
            "now",
            "rows",
            "completed_hash",
        ];
        for name in [
            "partial_hash",
            "deleted",
            "written_at",
            "sum(deleted)",
            "something else",
        ] {
            if choices.yes() {
                names.push(name);
            }
        }
        for at in 0..names.len() {
            let other = choices.below(names.len());
            names.swap(at, other);
        }
        let columns: Vec<_> = (names.into_iter())
            .map(|name| (name, Self::kind(choices, name)))
            .collect();
        let rows = choices.list(4, |choices| {
            (columns.iter())
                .map(|(name, kind)| Self::cell(choices, name, kind))
                .collect()
        });
        Self { columns, rows }
    }

    fn kind(choices: &mut Choices<'_>, name: &str) -> String {
        match name {
            "state_id" => "String".to_owned(),
            "partial_state" | "completed_state" | "writes" | "something else" => {
                choices.of(&["String", "Nullable(String)"]).to_owned()
            }
            "deleted" => choices.of(&["Bool", "UInt8"]).to_owned(),
            _ => match choices.below(4) {
                0 => "Int64".to_owned(),
                1 => "UInt64".to_owned(),
                2 => format!("DateTime64({})", choices.below(10)),
                _ => format!("DateTime64({}, 'Europe/Berlin')", choices.of(&[3, 9])),
            },
        }
    }

    fn cell(choices: &mut Choices<'_>, name: &str, kind: &str) -> Cell {
        let text = |choices: &mut Choices<'_>| match name {
            // What is no document is another test's business.
            "partial_state" | "completed_state" => match choices.below(4) {
                0 => String::new(),
                1 => "{}".to_owned(),
                2 => format!(" {{\"{}\" : 1}}\n", "a".repeat(200)),
                _ => format!("{{{}}}", choices.text(8)),
            },
            _ => choices.text(8),
        };
        match kind {
            "String" => Cell::Text(text(choices)),
            "Nullable(String)" => Cell::Nullable(choices.some(text)),
            "Bool" | "UInt8" => Cell::Byte(choices.byte()),
            "Int64" | "UInt64" => Cell::Integer(choices.integer(), 1),
            time => Cell::Integer(choices.integer(), unit_of_time(time).unwrap()),
        }
    }

    fn header(&self) -> Vec<u8> {
        let mut body = vec![u8::try_from(self.columns.len()).unwrap()];
        for (name, _) in &self.columns {
            put_string(&mut body, name);
        }
        for (_, kind) in &self.columns {
            put_string(&mut body, kind);
        }
        body
    }

    fn encode(&self) -> Vec<u8> {
        self.encode_rows(self.rows.len())
    }

    /// Of the first `count` rows.
    fn encode_rows(&self, count: usize) -> Vec<u8> {
        let mut body = self.header();
        for cell in self.rows.iter().take(count).flatten() {
            cell.encode(&mut body);
        }
        body
    }

    /// In the format `Native`, with where each block ends, and how many rows there are up to there.
    fn encode_native(&self, choices: &mut Choices<'_>) -> (Vec<u8>, Vec<(usize, usize)>) {
        let (mut body, mut ends) = (Vec::new(), vec![(0, 0)]);
        let mut rest = &self.rows[..];
        while !rest.is_empty() {
            let count = match choices.yes() {
                true => 0,
                false => 1 + choices.below(rest.len()),
            };
            let (rows, after) = rest.split_at(count);
            rest = after;
            body.extend([self.columns.len() as u8, count as u8]);
            for (at, (name, kind)) in self.columns.iter().enumerate() {
                put_string(&mut body, name);
                put_string(&mut body, kind);
                let cells = || rows.iter().map(|row| &row[at]);
                if kind == "Nullable(String)" {
                    body.extend(cells().map(|cell| u8::from(cell.text().is_none())));
                    cells().for_each(|cell| put_string(&mut body, cell.text().unwrap_or_default()));
                } else {
                    cells().for_each(|cell| cell.encode(&mut body));
                }
            }
            ends.push((body.len(), self.rows.len() - rest.len()));
        }
        (body, ends)
    }

    fn get<'a>(&self, row: &'a [Cell], name: &str) -> Option<&'a Cell> {
        let at = self.columns.iter().position(|(known, _)| *known == name)?;
        row.get(at)
    }

    fn text(&self, row: &[Cell], name: &str) -> Option<String> {
        self.get(row, name).unwrap().text().map(str::to_owned)
    }

    fn document(&self, row: &[Cell], name: &str) -> Option<String> {
        self.text(row, name).filter(|text| !text.is_empty())
    }

    fn version(&self, row: &[Cell], name: &str) -> Version {
        Version::new(self.get(row, name).unwrap().integer())
    }

    fn deleted(&self, row: &[Cell]) -> bool {
        (self.get(row, "deleted")).is_some_and(|cell| cell.integer() != 0)
    }

    fn written_ms(&self, row: &[Cell]) -> i64 {
        let cell = self
            .get(row, "written_at")
            .or_else(|| self.get(row, "updated_at"));
        cell.unwrap().integer() / 1_000_000
    }

    fn states(&self, rows: &[Vec<Cell>]) -> Vec<Row> {
        (rows.iter())
            .map(|row| Row {
                id: self.text(row, "state_id").unwrap(),
                partial: self.document(row, "partial_state"),
                completed: self.document(row, "completed_state"),
                deleted: self.deleted(row),
                blank: ["partial_state", "completed_state"]
                    .iter()
                    .all(|name| self.text(row, name).as_deref() == Some("")),
                version: self.version(row, "updated_at"),
                written_ms: self.written_ms(row),
            })
            .collect()
    }

    fn ids(&self, rows: &[Vec<Cell>]) -> Vec<(String, bool)> {
        (rows.iter())
            .map(|row| (self.text(row, "state_id").unwrap(), self.deleted(row)))
            .collect()
    }

    fn changes(&self, rows: &[Vec<Cell>]) -> Vec<Change> {
        (rows.iter())
            .map(|row| Change {
                partial: self.document(row, "partial_state"),
                completed: self.document(row, "completed_state"),
                deleted: self.deleted(row),
                version: self.version(row, "updated_at"),
                written_ms: self.written_ms(row),
                writes: self.text(row, "writes").unwrap_or_default(),
            })
            .collect()
    }

    fn confirmed(&self, rows: &[Vec<Cell>]) -> Vec<(Version, String)> {
        (rows.iter())
            .map(|row| {
                let writes = self.text(row, "writes").unwrap_or_default();
                (self.version(row, "updated_at"), writes)
            })
            .collect()
    }

    fn texts(&self, rows: &[Vec<Cell>]) -> Vec<Vec<String>> {
        let text = |cell: &Cell| match cell {
            Cell::Text(_) | Cell::Nullable(_) => cell.text().unwrap_or_default().to_owned(),
            Cell::Byte(_) | Cell::Integer(..) => cell.integer().to_string(),
        };
        (rows.iter())
            .map(|row| row.iter().map(text).collect())
            .collect()
    }

    fn has(&self, name: &str) -> bool {
        self.columns.iter().any(|(known, _)| *known == name)
    }

    fn layout(&self) -> Layout {
        let updated_at = self.columns.iter().find(|(name, _)| *name == "updated_at");
        match unit_of_time(&updated_at.unwrap().1) == Some(1) && self.has("deleted") {
            true => Layout::Ours,
            false => Layout::Plain,
        }
    }

    fn writes(&self, row: &[Cell]) -> String {
        match self.layout() {
            Layout::Ours => self.text(row, "writes").unwrap_or_default(),
            Layout::Plain => String::new(),
        }
    }

    fn head(&self, row: &[Cell]) -> Stored {
        let number = |name| self.get(row, name).unwrap().integer();
        Stored {
            content: match self.has("partial_hash") {
                true => Content::Hashes {
                    partial: number("partial_hash"),
                    completed: number("completed_hash"),
                },
                false => Content::Documents {
                    partial: self.document(row, "partial_state"),
                    completed: self.document(row, "completed_state"),
                },
            },
            deleted: self.deleted(row),
            version: self.version(row, "updated_at"),
            writes: self.writes(row),
            now: self.version(row, "now"),
            layout: self.layout(),
        }
    }

    fn heads(&self, rows: &[Vec<Cell>]) -> (Option<Layout>, Heads) {
        let heads = rows.iter().map(|row| {
            let head = (self.version(row, "updated_at"), self.writes(row));
            (self.text(row, "state_id").unwrap(), head)
        });
        (rows.first().map(|_| self.layout()), heads.collect())
    }

    fn count(&self, row: &[Cell]) -> u64 {
        let number = |name| self.get(row, name).map_or(0, Cell::integer);
        let count = i128::from(number("rows")) - i128::from(number("sum(deleted)"));
        u64::try_from(count.clamp(0, i64::MAX.into())).unwrap()
    }
}

/// How many nanoseconds one of a `DateTime64` has.
fn unit_of_time(kind: &str) -> Option<i64> {
    let precision = kind.strip_prefix("DateTime64(")?.chars().next()?;
    Some(10_i64.pow(9 - precision.to_digit(10)?))
}

#[test]
fn rows_come_back_as_they_were_sent() {
    always!(|bytes: &[u8]| {
        let table = Table::any(&mut Choices(bytes));
        let (body, rows) = (table.encode(), &table.rows[..]);
        for ending in [Ending::Whole, Ending::Cut] {
            assert_eq!(rows::states(&body, ending), Ok(table.states(rows)));
            assert_eq!(rows::ids(&body, ending), Ok(table.ids(rows)));
            assert_eq!(rows::changes(&body, ending), Ok(table.changes(rows)));
        }
    });
}

#[test]
fn an_answer_that_is_cut_is_corrupt_or_has_its_first_rows() {
    always!(|bytes: &[u8]| {
        let mut choices = Choices(bytes);
        let cuts = [(); 8].map(|()| choices.number() as usize);
        let table = Table::any(&mut choices);
        let body = table.encode();
        let ends: Vec<usize> = (0..=table.rows.len())
            .map(|count| table.encode_rows(count).len())
            .collect();
        for end in cuts.map(|cut| cut % body.len()) {
            let cut = &body[..end];
            // How many rows are whole, where the header is.
            let whole = ends.iter().rposition(|known| *known <= end);
            let rows = whole.map(|whole| &table.rows[..whole]);
            let expected = |ending| match (rows, ending) {
                (None, _) => None,
                (Some(_), Ending::Whole) if !ends.contains(&end) => None,
                (rows, _) => rows,
            };
            for ending in [Ending::Whole, Ending::Cut] {
                let rows = expected(ending);
                let read = rows::states(cut, ending);
                assert_eq!(known(read), rows.map(|rows| table.states(rows)), "{end}");
                let read = rows::ids(cut, ending);
                assert_eq!(known(read), rows.map(|rows| table.ids(rows)), "{end}");
                let read = rows::changes(cut, ending);
                assert_eq!(known(read), rows.map(|rows| table.changes(rows)), "{end}");
            }
        }
    });
}

#[test]
fn the_rows_of_an_answer_in_blocks_come_back_or_are_corrupt_where_it_is_cut() {
    always!(|bytes: &[u8]| {
        let mut choices = Choices(bytes);
        let cuts = [(); 8].map(|()| choices.number() as usize);
        let table = Table::any(&mut choices);
        let (body, ends) = table.encode_native(&mut choices);
        for end in cuts
            .iter()
            .map(|cut| cut % (body.len() + 1))
            .chain([body.len()])
        {
            let answer = native(&body[..end]);
            let whole = ends.iter().find(|(known, _)| *known == end);
            let rows = whole.map(|(_, count)| &table.rows[..*count]);
            let read = known(rows::confirmed(&answer));
            assert_eq!(read, rows.map(|rows| table.confirmed(rows)), "{end}");
            let read = known(rows::texts(&answer));
            assert_eq!(read, rows.map(|rows| table.texts(rows)), "{end}");
            let read = known(rows::heads(&answer));
            assert_eq!(read, rows.map(|rows| table.heads(rows)), "{end}");

            // These read the first row alone, and so its block.
            let block = ends.iter().find(|(_, count)| *count > 0);
            let row = block.filter(|(known, _)| *known <= end);
            let row = row.and_then(|_| table.rows.first());
            let number = |name| row.map(|row| table.version(row, name));
            assert_eq!(known(rows::clock(&answer)), number("now"), "{end}");
            let read = known(rows::last_deletion(&answer));
            assert_eq!(read, number("version").zip(number("now")), "{end}");
            let read = known(rows::count(&answer));
            assert_eq!(read, row.map(|row| table.count(row)), "{end}");
            // These may find none.
            let none = rows.is_some() && row.is_none();
            let read = known(rows::head("id", &answer));
            let expected = row.map(|row| table.head(row));
            assert_eq!(read, expected.map(Some).or(none.then_some(None)), "{end}");
            let read = known(rows::state_of("id", &answer));
            let expected = row.map(|row| Row {
                id: "id".to_owned(),
                ..table.states(std::slice::from_ref(row)).remove(0)
            });
            assert_eq!(read, expected.map(Some).or(none.then_some(None)), "{end}");
        }
    });
}

/// None of what is corrupt.
fn known<T>(read: Result<T, Error>) -> Option<T> {
    read.map_err(corrupt).ok()
}

// ---- Documents ----

const JSON_PARTS: &str = "{|}|{|}|[|]|:|,|\"|\\|\\u|\\\"|\"a\"|\"a\":|\"a\":{|\"b\":|\"\\u0061\":|null|true|1|-0|1.5e|\"x\"|\"\\ud800\"| |\n|\u{1}|\u{a0}|é|😀";

const KEYS: &str = r#"a|b|c|\u0061||é|\u00e9|\"|\\|\ud800|😀|\ud83d\ude00|}:,{|\n"#;

const SCALARS: &str = r#"null|null|0|1|-0.0e+1|1e400|18446744073709551617|1.50|true|false|""|"x"|"}"|"\"{"|"\ud800"|"😀\u0000""#;

/// Writes an object, with scalars of these, and with lists of these where there is more than one.
fn object(choices: &mut Choices<'_>, scalars: &str, depth: usize) -> String {
    fn space(choices: &mut Choices<'_>) -> &'static str {
        choices.of(&["", "", "", " ", "\n  ", "\t\r\n"])
    }
    let members = choices.list(4, |choices| {
        let key = match choices.below(8) {
            0 => "long".repeat(choices.below(100)),
            _ => choices.word(KEYS).to_owned(),
        };
        let value = match choices.below(6) {
            0..=2 if depth > 0 => object(choices, scalars, depth - 1),
            3 if scalars.contains('|') => {
                let items = choices.list(3, |choices| match choices.below(3) {
                    0 if depth > 0 => object(choices, scalars, depth - 1),
                    _ => choices.word(scalars).to_owned(),
                });
                format!("[{}{}]", space(choices), items.join(" ,"))
            }
            _ => choices.word(scalars).to_owned(),
        };
        let [s, t, u, v] = [(); 4].map(|()| space(choices));
        format!("{s}\"{key}\"{t}:{u}{value}{v}")
    });
    format!("{{{}{}}}", members.join(","), space(choices))
}

/// An object, often: or such a one with a fault, or anything.
fn document(choices: &mut Choices<'_>) -> String {
    let mut text = object(choices, SCALARS, 4);
    match choices.below(6) {
        0 => text = choices.soup(JSON_PARTS, 24),
        1 => {
            let at = choices.below(text.len());
            if text.is_char_boundary(at) {
                text.insert_str(at, &choices.soup(JSON_PARTS, 2));
            }
        }
        2 => {
            let at = choices.below(text.len());
            if text.is_char_boundary(at) {
                text.truncate(at);
            }
        }
        _ => {}
    }
    text
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
}

fn is_object(text: &str) -> bool {
    let text = text.trim_start_matches([' ', '\t', '\n', '\r']);
    is_json(text) && text.starts_with('{')
}

#[test]
fn documents_that_are_merged_are_json_and_not_merged_again() {
    always!(|bytes: &[u8]| {
        let mut choices = Choices(bytes);
        let (stored, new) = (document(&mut choices), document(&mut choices));
        let valid = is_object(&stored) && is_object(&new);
        match merge(&stored, &new) {
            Ok(Some(merged)) => {
                if valid {
                    assert!(is_object(&merged), "{stored} {new} {merged}");
                    assert_ne!(merged, stored);
                    assert_eq!(merge(&merged, &new), Ok(None), "{stored} {new}");
                    assert_eq!(merge(&merged, &merged), Ok(None), "{merged}");
                }
            }
            Ok(None) => {}
            Err(mismatch) => {
                let path = mismatch.path;
                assert!(!path.contains(char::is_control), "{path:?}");
                assert!(path.chars().count() < 17 * 700);
                // It is empty where one of the texts is no object, or where the key is empty.
                assert!(
                    !valid || !path.is_empty() || new.contains("\"\""),
                    "{stored} {new}"
                );
            }
        }
        if is_object(&new) {
            assert_eq!(merge(&new, &new), Ok(None), "{new}");
        }
    });
}

#[test]
fn no_text_that_is_merged_makes_it_panic() {
    always!(|bytes: &[u8]| {
        let (first, second) = bytes.split_at(bytes.len() / 2);
        let _ = merge(
            &String::from_utf8_lossy(first),
            &String::from_utf8_lossy(second),
        );
        let mut choices = Choices(bytes);
        let stored = choices.soup(JSON_PARTS, 30);
        let new = choices.soup(JSON_PARTS, 30);
        let _ = merge(&stored, &new);
        let _ = merge(&format!("{{{stored}}}"), &format!("{{{new}}}"));
    });
}

#[test]
fn a_document_is_accepted_where_serde_json_accepts_an_object() {
    fn nothing(value: &Json) -> bool {
        match value {
            Json::Null => true,
            Json::Object(members) => members.values().all(nothing),
            _ => false,
        }
    }
    always!(|bytes: &[u8]| {
        let mut choices = Choices(bytes);
        let text = match choices.below(8) {
            0 => String::from_utf8_lossy(choices.rest()).into_owned(),
            1 => choices.word(SCALARS).to_owned(),
            _ => document(&mut choices),
        };
        let value = serde_json::from_str::<Json>(&text);
        match document::check("partial", Some(text.clone())) {
            Ok(kept) => {
                assert!(is_object(&text) && is_plausible(&text), "{text}");
                assert!(kept.as_ref().is_none_or(|kept| *kept == text), "{text}");
                // Of keys that are no text, serde_json makes none.
                match serde_json::from_str::<BTreeMap<String, &RawValue>>(&text) {
                    Ok(members) => assert_eq!(kept.is_none(), members.is_empty(), "{text}"),
                    Err(_) => assert!(text.contains("\\ud"), "{text}"),
                }
                if let Ok(value) = value {
                    assert!(value.is_object(), "{text}");
                    assert!(!holds_nothing(&text) || nothing(&value), "{text}");
                }
            }
            Err(error) => {
                let message = message(&error);
                assert!(message.starts_with("the partial state is "), "{message}");
                if message.contains("not valid JSON") {
                    assert!(value.is_err() && !is_json(&text), "{text}");
                } else {
                    assert!(message.contains("not an object"), "{message}");
                    assert!(is_json(&text), "{text}");
                    assert!(!value.is_ok_and(|value| value.is_object()), "{text}");
                }
            }
        }
        // They are asked about no other texts, but must not panic.
        let _ = (holds_nothing(&text), is_plausible(&text));
    });
}

#[test]
fn objects_and_nulls_alone_hold_nothing() {
    always!(|bytes: &[u8]| {
        let text = object(&mut Choices(bytes), "null", 6);
        assert!(is_json(&text) && holds_nothing(&text), "{text}");
    });
}

// ---- What is sent ----

/// A text as ClickHouse reads it between backticks or in a field of TSV (`parseComplexEscapeSequence`).
fn unescape(text: &str, ends: &[char]) -> String {
    let mut read = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        assert!(!ends.contains(&character), "it ends too soon: {text:?}");
        if character != '\\' {
            read.push(character);
            continue;
        }
        match characters.next() {
            Some('a') => read.push('\u{7}'),
            Some('b') => read.push('\u{8}'),
            Some('e') => read.push('\u{1b}'),
            Some('f') => read.push('\u{c}'),
            Some('n') => read.push('\n'),
            Some('r') => read.push('\r'),
            Some('t') => read.push('\t'),
            Some('v') => read.push('\u{b}'),
            Some('0') => read.push('\0'),
            // NULL, which is empty in a text.
            Some('N') => {}
            Some('x') => {
                let digits: String = characters.by_ref().take(2).collect();
                read.push(char::from(u8::from_str_radix(&digits, 16).unwrap()));
            }
            Some(quoted @ ('\\' | '`' | '"' | '\'' | '/' | '=')) => read.push(quoted),
            Some(other) => read.extend(['\\', other]),
            None => panic!("a backslash is last: {text:?}"),
        }
    }
    read
}

/// An array of texts in quotes.
fn unescape_array(array: &str) -> Vec<String> {
    let mut rest = array.strip_prefix('[').unwrap().strip_suffix(']').unwrap();
    let mut texts = Vec::new();
    while let Some(quoted) = rest.strip_prefix('\'') {
        // A quote ends it that no backslash stands before, or an even number of them.
        let is_end = |at: &usize| {
            let backslashes = quoted[..*at]
                .bytes()
                .rev()
                .take_while(|byte| *byte == b'\\');
            backslashes.count() % 2 == 0
        };
        let end = quoted.match_indices('\'').map(|(at, _)| at).find(is_end);
        texts.push(unescape(&quoted[..end.unwrap()], &['\t', '\n', '\r', '\0']));
        rest = &quoted[end.unwrap() + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    assert_eq!(rest, "");
    texts
}

#[test]
fn parameters_and_identifiers_are_read_as_they_were_meant() {
    const PARTS: &str = "\\N|\\|\\\\|\\t|\\x41|\t|\r\n|`|\\`|'|\\'|\0";
    always!(|bytes: &[u8]| {
        let mut choices = Choices(bytes);
        let text = match choices.yes() {
            true => choices.soup(PARTS, 12),
            false => choices.text(40),
        };
        let escaped = parameter(&text);
        assert_eq!(unescape(&escaped, &['\t', '\n', '\r', '\0']), text);
        let other = choices.soup(PARTS, 4);
        let texts = [text.as_str(), &other, &text];
        let listed = array(texts);
        assert_eq!(unescape_array(&listed), texts, "{listed}");
        let Ok(quoted) = Identifier::new("table", &text) else {
            assert!(text.is_empty() || text.contains('\0'), "{text:?}");
            return;
        };
        let quoted = quoted.to_string();
        let inside = quoted
            .strip_prefix('`')
            .and_then(|rest| rest.strip_suffix('`'));
        // Backticks inside are skipped with their backslash.
        assert_eq!(unescape(inside.unwrap(), &['`']), text);
    });
}

#[test]
fn no_text_that_was_redacted_holds_the_password() {
    const PARTS: &str = r"[redacted]|[|]|redacted|a|aa|ab|\|\'|%|=|é";
    always!(|bytes: &[u8]| {
        let mut choices = Choices(bytes);
        let mut plain = match choices.yes() {
            true => choices.soup(PARTS, 8),
            false => choices.text(12),
        };
        while plain.chars().count() < 4 {
            plain.push(choices.character());
        }
        // What overlaps with the mark that stands in its place can be found there, and tells nobody anything.
        if plain.contains(['[', ']']) || "redacted".contains(&plain) {
            return;
        }
        let user = choices.text(6);
        let password = Password::new(plain.clone());
        let quoted = |quote: char| {
            let escape = |c: char| match c == quote || c == '\\' {
                true => vec!['\\', c],
                false => vec![c],
            };
            plain.chars().flat_map(escape).collect::<String>()
        };
        let encoded = utf8_percent_encode(&plain, NON_ALPHANUMERIC).to_string();
        let form: String = url::form_urlencoded::byte_serialize(plain.as_bytes()).collect();
        let forms = [
            plain.clone(),
            quoted('\''),
            quoted('"'),
            encoded,
            form,
            STANDARD.encode(&plain),
            STANDARD_NO_PAD.encode(&plain),
            STANDARD_NO_PAD.encode(format!("{user}:{plain}")),
            password.authorization(&user).to_string(),
        ];
        let mut text = String::new();
        for _ in 0..=choices.below(4) {
            text += &choices.soup(PARTS, 3);
            text += &forms[choices.below(forms.len())];
            // A part of the password may make another one with what stands before it.
            let start = choices.below(plain.len());
            text += plain.get(start..).unwrap_or_default();
        }
        let redacted = password.redact(&text, &user);
        for form in &forms {
            assert!(
                !redacted.contains(form),
                "{form:?} in {redacted:?} of {text:?}"
            );
        }
    });
}

#[test]
fn what_is_packed_is_unpacked() {
    always!(|bytes: &[u8]| {
        let mut choices = Choices(bytes);
        let times = choices.of(&[1, 2, 3, 10, 100]);
        let spare = choices.below(3);
        let cut = choices.number() as usize;
        let (at, byte) = (choices.number() as usize, choices.byte());
        let body = choices.rest().repeat(times);
        let Some(mut packed) = gzip::pack(&body) else {
            return;
        };
        assert!(packed.len() < body.len());
        let unpack = |packed: &[u8], limit| gzip::unpack(packed, Ending::Whole, limit);
        let whole = unpack(&packed, body.len() + spare);
        assert_eq!(whole, (body.clone(), Ending::Whole));
        // To a limit, all that is said is that there is more.
        let limit = cut % body.len();
        let (first, ending) = unpack(&packed, limit);
        assert_eq!((&first[..], ending), (&body[..=limit], Ending::Cut));
        // What broke off is the beginning of it. Nothing at all is the whole of nothing.
        let (first, ending) = unpack(&packed[..cut % packed.len()], body.len());
        assert!(body.starts_with(&first));
        assert!(ending != Ending::Whole || first.is_empty());
        let at = at % packed.len();
        packed[at] = byte;
        assert!(unpack(&packed, body.len()).0.len() <= body.len() + 1);
    });
}

#[test]
fn no_bytes_that_are_unpacked_make_it_panic_or_take_more_room_than_they_may() {
    always!(|bytes: &[u8]| {
        let mut choices = Choices(bytes);
        let limit = choices.of(&[0, 1, 10, 1000, 100_000]);
        let ending = choices.of(&[Ending::Whole, Ending::Cut]);
        let start: &[u8] = choices.of(&[
            &b""[..],
            b"\x1f\x8b\x08\0\0\0\0\0\0\xff",
            b"\x1f\x8b\x08\x1f",
        ]);
        let body = [start, choices.rest()].concat();
        let (unpacked, ending) = gzip::unpack(&body, ending, limit);
        assert!(unpacked.len() <= limit + 1);
        assert!(unpacked.len() <= limit || ending == Ending::Cut);
    });
}

// ---- IDs and writes ----

#[test]
fn a_pattern_is_a_regular_expression_whatever_it_holds() {
    const PARTS: &str = r"*|?|[|]|[!|-|!|^|\|z-a|a-z|&&";
    always!(|bytes: &[u8]| {
        let mut choices = Choices(bytes);
        // RE2 takes these for themselves with a backslash before them, `regex` does not.
        let text = choices.soup(PARTS, 16).replace(['<', '>'], "");
        match Pattern::parse(&text) {
            Pattern::All => assert!(text.chars().all(|c| c == '*'), "{text}"),
            Pattern::Exact(id) => assert_eq!(id, text),
            Pattern::Like { prefix, regex } => {
                assert!(text.starts_with(&prefix), "{text} {prefix}");
                let regex = regex::Regex::new(&regex).unwrap();
                let id = format!("{prefix}{}", choices.text(6));
                for id in [&id, &text] {
                    assert!(
                        !regex.is_match(id) || id.starts_with(&prefix),
                        "{text} {id}"
                    );
                }
            }
        }
    });
}

#[test]
fn whatever_stands_in_the_column_of_writes_does_no_harm() {
    /// How many writes a row names.
    const KEPT: usize = 8;
    /// A version, a colon, a name, and the space before.
    const ENTRY: usize = 19 + 1 + 16 + 1;
    const PARTS: &str = " | |:|-5:1|1:1|10:0000000000000001|12:ffffffffffffffff|7:0|+1:+1|99999999999999999999:1|1:10000000000000000|x|0|é";
    fn writes(choices: &mut Choices<'_>) -> String {
        let text = choices.soup(PARTS, 12);
        match choices.below(3) {
            0 => text,
            1 => text.repeat(choices.below(200)),
            _ => (0..choices.below(12)).fold(text, |before, _| {
                let version = Version::new(choices.below(20) as i64);
                writes::add(&before, version, Name(choices.below(4) as u64))
            }),
        }
    }
    always!(|bytes: &[u8]| {
        let mut choices = Choices(bytes);
        let before = writes(&mut choices);
        let version = Version::new(choices.integer());
        let name = Name::new(choices.number());
        let entries = before.split(' ').count();
        assert!(writes::parse(&before).count() <= entries);

        let after = writes::after(version, &before);
        match before.is_empty() {
            true => assert_eq!(
                writes::parse(&after).collect::<Vec<_>>(),
                [(version, UNNAMED)]
            ),
            false => assert_eq!(after, before),
        }
        let added = writes::add(&before, version, name);
        assert_eq!(writes::parse(&added).next(), Some((version, name)));
        assert!(added.len() <= before.len() + ENTRY);
        assert!(added.split(' ').count() <= KEPT);
        // What was strange is forgotten.
        let later = (0..KEPT).fold(before, |before, _| writes::add(&before, version, name));
        assert!(later.len() < KEPT * ENTRY, "{later}");
        assert_eq!(writes::parse(&later).count(), KEPT);

        let rows = choices.list(4, |choices| {
            let version = Version::new(choices.below(20) as i64);
            (version, writes(choices))
        });
        let name = choices.of(&[name, Name(1), Name(2), Name(u64::MAX)]);
        let is_named =
            (rows.iter()).any(|(_, row)| writes::parse(row).any(|(_, known)| known == name));
        let sent = Sent {
            name,
            version: Version::new(choices.below(20) as i64),
            from: choices.some(|choices| Version::new(choices.below(20) as i64)),
        };
        let fate = writes::fate(&rows, sent);
        assert!(fate == Fate::Dropped || !rows.is_empty(), "{rows:?}");
        let is_stored = matches!(fate, Fate::Stored | Fate::Doubled);
        assert!(is_named || !is_stored, "{rows:?}");
    });
}
