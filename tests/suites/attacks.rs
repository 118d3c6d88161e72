//! What a hostile guest, a hostile server and a hostile URI try, and what becomes of it: each row fails as it should, and harms no
//! neighbour.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests break off to fail"
)]

mod support;

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use harness::{Behaviour, Hostile, Received, Stub};
use pipeline_state::{Backend, Error, Plugins, Settings};
use serde_json::{Value, json};
use support::shell::{program, text};
use support::{completed, hostile_plugin, id, server};
use tempfile::TempDir;
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::JoinSet;

const MIB: usize = 1024 * 1024;
/// Of one call. More than a row needs that does not wait for it, on a machine that is busy.
const DEADLINE: Duration = Duration::from_secs(6);
const MEMORY: usize = 32 * MIB;
/// How many rows run at once.
const AT_ONCE: usize = 10;

const USER: &str = "attacked";
const PASSWORD: &str = "sekret-word-1";

/// Who attacks, and how. In texts `{here}` is the one origin that the target names, and `{there}` another one.
enum By {
    /// The plugin, by a request.
    Request(Value),
    /// The plugin, by what an ID tells it to do.
    Guest(&'static str),
    /// The server, of the ClickHouse plugin with these settings.
    Server(Behaviour, &'static [(&'static str, &'static str)]),
    /// The server, of a plugin that would wait for ever.
    ServerOfGuest(Behaviour),
    /// Whoever writes the URI.
    Uri(&'static str),
    /// Whoever has the domain: see [`resolve`].
    Name(&'static str),
    /// Likewise, where no private address is allowed.
    NameOutside(&'static str),
    /// Likewise, and the ClickHouse plugin.
    NameOfClickHouse(&'static str),
}

/// What must become of it.
enum Then {
    /// An error of this kind, with these words, and no request has come to any server.
    Denied(fn(&Error) -> bool, &'static str),
    /// An error of this kind, with these words.
    Fails(fn(&Error) -> bool, &'static str),
    /// The answer of the plugin, and what has come to the server, are so.
    Holds(fn(&Value, &[Received]) -> bool),
}

use By::*;
use Then::*;

struct Row {
    name: &'static str,
    by: By,
    then: Then,
}

fn row(name: &'static str, by: By, then: Then) -> Row {
    Row { name, by, then }
}

fn denied(error: &Error) -> bool {
    matches!(error, Error::OriginDenied { .. })
}
fn unavailable(error: &Error) -> bool {
    matches!(error, Error::Unavailable { .. })
}
fn late(error: &Error) -> bool {
    matches!(error, Error::TimedOut { .. })
}
fn broke_off(error: &Error) -> bool {
    matches!(error, Error::PluginFailed { .. })
}
fn not_allowed(error: &Error) -> bool {
    matches!(error, Error::NotAllowed { .. })
}
fn invalid(error: &Error) -> bool {
    matches!(error, Error::InvalidInput(_))
}
fn of_server(error: &Error) -> bool {
    matches!(error, Error::Server { .. })
}
fn corrupt(error: &Error) -> bool {
    matches!(error, Error::Corrupt(_))
}

/// A request to the origin that is allowed.
fn request(more: Value) -> By {
    let mut request = json!({"authority": "{here}", "path": "/"});
    request
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    Request(request)
}

fn header(name: &str, value: &str) -> By {
    request(json!({"headers": [[name, value]]}))
}

fn post(headers: Value, body: &str) -> By {
    request(json!({"method": "POST", "headers": headers, "body": body}))
}

/// How many requests were refused, and how many answered.
fn counts(answer: &Value) -> (usize, usize) {
    let answers = answer["answers"].as_array().unwrap();
    let refused = answers.iter().filter(|one| !one["refused"].is_null());
    (refused.clone().count(), answers.len() - refused.count())
}

fn headers_of<'a>(received: &'a Received, name: &str) -> Vec<&'a str> {
    let prefix = format!("{name}: ");
    let headers = received.headers.iter();
    headers
        .filter_map(|header| header.strip_prefix(&prefix))
        .collect()
}

static AUTHORIZATION: LazyLock<String> =
    LazyLock::new(|| format!("Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}"))));

const FAST: &[(&str, &str)] = &[("connect_timeout", "1"), ("request_timeout", "1")];
const FAST_TLS: &[(&str, &str)] = &[
    ("connect_timeout", "1"),
    ("request_timeout", "1"),
    ("secure", "true"),
];
const FAST_GZIP: &[(&str, &str)] = &[
    ("connect_timeout", "1"),
    ("request_timeout", "3"),
    ("compress", "true"),
];

/// Where the plugin goes.
fn places() -> Vec<Row> {
    let to = |authority: &str| request(json!({ "authority": authority }));
    let path = |path: &str| request(json!({ "path": path }));
    let method = |method: &str| request(json!({ "method": method }));
    vec![
        row(
            "another host",
            to("{there}"),
            Denied(denied, "http://127.0.0.1:"),
        ),
        row(
            "another name of the host",
            to("localhost:{port}"),
            Denied(denied, "http://localhost:"),
        ),
        row(
            "the address inside another one",
            to("[::ffff:127.0.0.1]:{port}"),
            Denied(denied, "::ffff:127.0.0.1"),
        ),
        row(
            "the address as a number",
            to("2130706433:{port}"),
            Denied(denied, "http://2130706433:"),
        ),
        row(
            "the address with a dot behind it",
            to("127.0.0.1.:{port}"),
            Denied(denied, "127.0.0.1.:"),
        ),
        row(
            "another port",
            to("127.0.0.1:1"),
            Denied(denied, "http://127.0.0.1:1"),
        ),
        row(
            "the port that a scheme has",
            to("127.0.0.1"),
            Denied(denied, "http://127.0.0.1:80"),
        ),
        row(
            "a port of no digits",
            to("127.0.0.1:"),
            Denied(denied, "not an HTTP origin"),
        ),
        row(
            "metadata of a cloud",
            to("169.254.169.254"),
            Denied(denied, "http://169.254.169.254:80"),
        ),
        row(
            "another scheme",
            request(json!({"scheme": "https"})),
            Denied(denied, "https://127.0.0.1:"),
        ),
        row(
            "a scheme that is not HTTP's",
            request(json!({"scheme": "ftp"})),
            Denied(unavailable, "refused"),
        ),
        row(
            "a user in the authority",
            to("user@{here}"),
            Denied(denied, "not an HTTP origin"),
        ),
        row(
            "the origin as a user of another one",
            to("{here}@{there}"),
            Denied(denied, "not an HTTP origin"),
        ),
        row(
            "a host behind a slash",
            to("{here}/@{there}"),
            Denied(unavailable, "refused: authority"),
        ),
        row("no authority", to(""), Denied(unavailable, "refused")),
        row(
            "an absolute URL as a path",
            path("http://{there}/"),
            Denied(unavailable, "refused"),
        ),
        row(
            "a path that does not begin with a slash",
            path("x"),
            Denied(unavailable, "refused"),
        ),
        row(
            "a path that is an authority",
            path("@{there}/"),
            Denied(unavailable, "refused"),
        ),
        row(
            "a path that begins with two slashes",
            path("//{there}/x"),
            Holds(|answer, received| {
                counts(answer) == (0, 1)
                    && received[0].line.starts_with("GET //127.0.0.1:")
                    && headers_of(&received[0], "host").len() == 1
            }),
        ),
        row(
            "a request line in the path",
            path("/ HTTP/1.1\r\nHost: x\r\n\r\nGET /"),
            Denied(unavailable, "refused: path"),
        ),
        row(
            "a space in the path",
            path("/ HTTP/1.1"),
            Denied(unavailable, "refused: path"),
        ),
        row(
            "a NUL in the path",
            path("/\0"),
            Denied(unavailable, "refused: path"),
        ),
        row("CONNECT", method("CONNECT"), Denied(denied, "CONNECT")),
        row(
            "CONNECT as a method of its own",
            method("!CONNECT"),
            Denied(denied, "CONNECT"),
        ),
        row(
            "CONNECT in other letters",
            method("connect"),
            Denied(denied, "connect"),
        ),
        row("TRACE", method("TRACE"), Denied(denied, "TRACE")),
        row(
            "TRACE in other letters",
            method("Trace"),
            Denied(denied, "Trace"),
        ),
        row(
            "the server as a whole",
            request(json!({"method": "OPTIONS", "path": "*"})),
            Denied(unavailable, "refused"),
        ),
        row(
            "a request line in the method",
            method("GET / HTTP/1.1\r\nX: GET"),
            Denied(unavailable, "refused"),
        ),
    ]
}

/// What the plugin says on the way.
fn headers() -> Vec<Row> {
    let value = |value: &str| header("x-attack", value);
    vec![
        row(
            "Transfer-Encoding",
            header("Transfer-Encoding", "chunked"),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "Transfer-Encoding in other letters",
            header("tRANSFER-eNCODING", "x"),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "Connection",
            header("Connection", "close, authorization"),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "Keep-Alive",
            header("Keep-Alive", "timeout=1000"),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "Upgrade",
            header("Upgrade", "h2c"),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "HTTP2-Settings",
            header("HTTP2-Settings", "AAMAAABk"),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "Host",
            header("Host", "other.example"),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "Expect",
            header("Expect", "100-continue"),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "TE",
            header("TE", "trailers"),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "Trailer",
            header("Trailer", "authorization"),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "Cookie",
            header("Cookie", "a=b"),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "X-Forwarded-For",
            header("X-Forwarded-For", "127.0.0.1"),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "X-Forwarded-Host",
            header("X-Forwarded-Host", "x"),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "X-Real-IP",
            header("X-Real-IP", "127.0.0.1"),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "Forwarded",
            header("Forwarded", "for=127.0.0.1"),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "Via",
            header("Via", "1.1 x"),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "Proxy-Authorization",
            header("Proxy-Authorization", "Basic x"),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "Proxy-Connection",
            header("Proxy-Connection", "close"),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "a line in a value",
            value("a\r\nHost: x"),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "a line feed in a value",
            value("a\nHost: x"),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "a carriage return in a value",
            value("a\rHost: x"),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "a NUL in a value",
            value("a\0b"),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "a line in a name",
            header("x\r\nhost", "x"),
            Denied(unavailable, "refused: header x"),
        ),
        row(
            "a space behind a name",
            header("host ", "x"),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "a colon in a name",
            header("host:", "x"),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "a header of 200 kB",
            value(&"x".repeat(200_000)),
            Denied(broke_off, "size of fields"),
        ),
        row(
            "two lengths",
            post(
                json!([["content-length", "3"], ["content-length", "4"]]),
                "abc",
            ),
            Denied(unavailable, "refused: header"),
        ),
        row(
            "a list of lengths",
            post(json!([["content-length", "3, 3"]]), "abc"),
            Denied(unavailable, "refused"),
        ),
        row(
            "a length with a sign",
            post(json!([["content-length", "+3"]]), "abc"),
            Denied(unavailable, "refused"),
        ),
        row(
            "a length of no number",
            post(json!([["content-length", "0x3"]]), "abc"),
            Denied(unavailable, "refused"),
        ),
        row(
            "a length without a body",
            header("content-length", "3"),
            Denied(unavailable, "refused"),
        ),
        row(
            "a length with a request behind it",
            post(
                json!([["content-length", "3"]]),
                "abcGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n",
            ),
            Fails(unavailable, "refused"),
        ),
        row(
            "a body without a length, with a request in it",
            post(
                json!([]),
                "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n",
            ),
            Holds(|answer, received| counts(answer) == (0, 1) && received.len() == 1),
        ),
        row(
            "an Authorization of its own",
            header("Authorization", "Basic AAAA"),
            Holds(|_, received| headers_of(&received[0], "authorization") == [&**AUTHORIZATION]),
        ),
        row(
            "two of them",
            request(
                json!({"headers": [["authorization", "Bearer a"], ["AUTHORIZATION", "Bearer b"]]}),
            ),
            Holds(|_, received| headers_of(&received[0], "authorization") == [&**AUTHORIZATION]),
        ),
        row(
            "1,000 requests at once",
            request(json!({"times": 1000, "wait": false})),
            Holds(|answer, received| counts(answer) == (992, 8) && received.len() == 8),
        ),
        row(
            "answers that are kept and not read",
            request(json!({"times": 20, "hold": true})),
            Holds(|_, received| received.len() == 8),
        ),
    ]
}

/// What the plugin does besides.
fn guests() -> Vec<Row> {
    vec![
        row("a trap", Guest("trap"), Denied(broke_off, "unreachable")),
        row(
            "an endless loop",
            Guest("spin"),
            Denied(late, "all that a call may take"),
        ),
        row(
            "a memory bomb",
            Guest("memory"),
            Denied(broke_off, "memory"),
        ),
        row(
            "a recursion",
            Guest("recursion"),
            Denied(broke_off, "stack exhausted"),
        ),
        row(
            "a wait without end",
            Guest("sleep"),
            Denied(late, "all that a call may take"),
        ),
        row(
            "a wait for 900 things",
            Guest("polls:900"),
            Denied(late, "all that a call may take"),
        ),
        row(
            "fields without end",
            Guest("fields"),
            Denied(broke_off, "no free keys"),
        ),
        row(
            "full fields without end",
            Guest("full-fields"),
            Denied(broke_off, "no free keys"),
        ),
        row(
            "requests without end",
            Guest("requests"),
            Denied(broke_off, "no free keys"),
        ),
        row(
            "clocks without end",
            Guest("clocks"),
            Denied(broke_off, "no free keys"),
        ),
        row(
            "a terabyte of chance",
            Guest("chance:1000000000000"),
            Denied(broke_off, "limit"),
        ),
        row(
            "an answer of 50 MB",
            Guest("huge:50000000"),
            Denied(broke_off, "growing memory"),
        ),
        row(
            "an error of two lines",
            Guest("error:invalid:one\ntwo"),
            Denied(invalid, "one\\ntwo"),
        ),
        row(
            "an error that commands a terminal",
            Guest("error:corrupt:a\u{1b}[2Jb"),
            Denied(corrupt, "a\\u{1b}[2Jb"),
        ),
        row(
            "an error that reads backwards",
            Guest("error:unavailable:a\u{202e}b"),
            Denied(unavailable, "a\\u{202e}b"),
        ),
        row(
            "an error of a server of two lines",
            Guest("error:server:one\r\ntwo"),
            Denied(of_server, "one\\r\\ntwo"),
        ),
        row(
            "an error of 16 MB",
            Guest("error:invalid:huge"),
            Denied(invalid, "xxx"),
        ),
        row(
            "a holder of two lines",
            Guest("error:locked:one\ntwo"),
            Denied(
                |error| matches!(error, Error::Locked { .. }),
                "`one\\ntwo` is locked by one\\ntwo since",
            ),
        ),
        row(
            "all that the plugin can see",
            Guest("credentials"),
            Holds(|answer, _| {
                let text = answer.to_string();
                text.contains("hostile://sealed:sealed@127.0.0.1:") && !text.contains(USER)
            }),
        ),
    ]
}

/// What servers do.
fn servers() -> Vec<Row> {
    use Behaviour::*;
    vec![
        row(
            "a server that says nothing",
            Server(Silent, FAST),
            Fails(late, "did not answer in time"),
        ),
        row(
            "a server that never accepts",
            Server(NeverAccepts, FAST),
            Fails(late, "did not accept a connection"),
        ),
        row(
            "a handshake that is never answered",
            Server(Silent, FAST_TLS),
            Fails(late, "did not accept a TLS connection"),
        ),
        row(
            "a handshake that is cut off",
            Server(CloseAtOnce, FAST_TLS),
            Fails(unavailable, "can't be reached"),
        ),
        row(
            "a slow head",
            Server(SlowHead, FAST),
            Fails(late, "did not answer in time"),
        ),
        row(
            "a slow body",
            Server(SlowBody, FAST),
            Fails(late, "all that a call may take"),
        ),
        row(
            "a head without end",
            Server(EndlessHead, FAST),
            Fails(unavailable, "broke before"),
        ),
        row(
            "10,000 headers",
            Server(ManyHeaders(10_000), FAST),
            Fails(unavailable, "broke before"),
        ),
        row(
            "a body without end",
            Server(EndlessBody, FAST_GZIP),
            Fails(broke_off, "growing memory"),
        ),
        row(
            "a gzip bomb",
            Server(GzipBomb, FAST_GZIP),
            Fails(broke_off, "growing memory"),
        ),
        row(
            "a body that is cut short",
            Server(Truncated, FAST),
            Fails(unavailable, "broke before"),
        ),
        row(
            "a chunk of no size",
            Server(BadChunk, FAST),
            Fails(unavailable, "broke before"),
        ),
        row(
            "a chunk of 2^64 - 1 bytes",
            Server(HugeChunkSize, FAST),
            Fails(unavailable, "broke before"),
        ),
        row(
            "two lengths that differ",
            Server(TwoLengths, FAST),
            Fails(unavailable, "broke before"),
        ),
        row(
            "a length and chunks",
            Server(LengthAndChunked, FAST),
            Holds(|answer, _| answer.is_null()),
        ),
        row(
            "garbage",
            Server(Garbage, FAST),
            Fails(unavailable, "broke before"),
        ),
        row(
            "a NUL in a header",
            Server(NulInHeader, FAST),
            Fails(unavailable, "broke before"),
        ),
        row(
            "100 Continue for ever",
            Server(Continues, FAST),
            Fails(late, "did not answer in time"),
        ),
        row(
            "another protocol",
            Server(SwitchingProtocols, FAST),
            Fails(of_server, "101"),
        ),
        row(
            "a reset",
            Server(Reset, FAST),
            Fails(unavailable, "broke before"),
        ),
        row(
            "a closed connection",
            Server(CloseAtOnce, FAST),
            Fails(unavailable, "broke before"),
        ),
        row(
            "an echo",
            Server(Echo, FAST),
            Fails(of_server, "SYNTAX_ERROR"),
        ),
        row(
            "a redirect",
            Server(Redirect("http://{there}/".to_owned()), FAST),
            Fails(of_server, "307"),
        ),
        row(
            "silence, to a plugin without patience",
            ServerOfGuest(Silent),
            Fails(late, "all that a call may take"),
        ),
        row(
            "a slow head, likewise",
            ServerOfGuest(SlowHead),
            Fails(late, "all that a call may take"),
        ),
        row(
            "a slow body, likewise",
            ServerOfGuest(SlowBody),
            Fails(late, "all that a call may take"),
        ),
        row(
            "100 Continue for ever, likewise",
            ServerOfGuest(Continues),
            Fails(late, "all that a call may take"),
        ),
        row(
            "a connection that is never accepted, likewise",
            ServerOfGuest(NeverAccepts),
            Fails(late, "all that a call may take"),
        ),
        row(
            "a body without end, likewise",
            ServerOfGuest(EndlessBody),
            Fails(unavailable, "body size exceeds limit"),
        ),
        row(
            "a head without end, likewise",
            ServerOfGuest(EndlessHead),
            Fails(unavailable, "HttpResponseHeaderSectionSize"),
        ),
    ]
}

/// What URIs name, and names stand for.
fn names() -> Vec<Row> {
    vec![
        row(
            "metadata as a literal",
            Uri("hostile://169.254.169.254/"),
            Denied(not_allowed, "link-local"),
        ),
        row(
            "mapped metadata as a literal",
            Uri("hostile://[::ffff:169.254.169.254]/"),
            Denied(not_allowed, "link-local"),
        ),
        row(
            "metadata of another cloud",
            Uri("clickhouse://u@100.100.100.200/db"),
            Denied(not_allowed, "no configuration allows it"),
        ),
        row(
            "the unspecified address",
            Uri("hostile://0.0.0.0/"),
            Denied(not_allowed, "no configuration allows it"),
        ),
        row(
            "metadata in the query",
            Uri("hostile://{here}/?host=169.254.169.254"),
            Denied(not_allowed, "link-local"),
        ),
        row(
            "an `@` behind the host",
            Uri("hostile://u:a@{there}/x@{here}"),
            Denied(invalid, "`@` behind its host"),
        ),
        row(
            "a line in the URI",
            Uri("hostile://{here}/\r\nx"),
            Denied(invalid, "control character"),
        ),
        row(
            "no scheme",
            Uri("//u:sekret-word-1@{here}/"),
            Denied(invalid, "no scheme"),
        ),
        row(
            "a name of metadata",
            Name("169-254-169-254.test"),
            Denied(not_allowed, "no configuration allows it"),
        ),
        row(
            "a name of mapped metadata",
            Name("__ffff_a9fe_a9fe.test"),
            Denied(not_allowed, "no configuration allows it"),
        ),
        row(
            "a name of metadata in IPv6",
            Name("fd00_ec2__254.test"),
            Denied(not_allowed, "no configuration allows it"),
        ),
        row(
            "a name of metadata behind NAT64",
            Name("64_ff9b__a9fe_a9fe.test"),
            Denied(not_allowed, "no configuration allows it"),
        ),
        row(
            "a name of the unspecified address",
            Name("0-0-0-0.test"),
            Denied(not_allowed, "no configuration allows it"),
        ),
        row(
            "a name of this machine",
            NameOutside("127-0-0-1.test"),
            Denied(not_allowed, "allow private addresses"),
        ),
        row(
            "a name of this machine, mapped",
            NameOutside("__ffff_7f00_1.test"),
            Denied(not_allowed, "allow private addresses"),
        ),
        row(
            "a name of this machine in IPv6",
            NameOutside("__1.test"),
            Denied(not_allowed, "allow private addresses"),
        ),
        row(
            "a name of a private network",
            NameOutside("10-0-0-1.test"),
            Denied(not_allowed, "allow private addresses"),
        ),
        row(
            "the name of metadata, to ClickHouse",
            NameOfClickHouse("169-254-169-254.test"),
            Denied(not_allowed, "no configuration allows it"),
        ),
        row(
            "a name of nothing",
            NameOfClickHouse("nothing.test"),
            Denied(unavailable, "not known"),
        ),
        row(
            "a name that is not known",
            NameOfClickHouse("unknown.test"),
            Denied(unavailable, "not known"),
        ),
        row(
            "a name that takes for ever",
            NameOfClickHouse("silent.test"),
            Denied(late, "did not accept a connection"),
        ),
        row(
            "a name of metadata and of this machine",
            Name("169-254-169-254.and.127-0-0-1.test"),
            Holds(|answer, received| counts(answer) == (0, 2) && received.len() == 2),
        ),
        row(
            "a name that is rebound to metadata",
            Name("127-0-0-1.then.169-254-169-254.test"),
            Holds(|answer, received| {
                counts(answer) == (1, 1)
                    && answer["answers"][1]["refused"]
                        .to_string()
                        .contains("DestinationIpProhibited")
                    && received.len() == 1
            }),
        ),
        row(
            "a name that is rebound to nothing",
            Name("127-0-0-1.then.nothing.test"),
            Holds(|answer, received| counts(answer) == (1, 1) && received.len() == 1),
        ),
    ]
}

/// A name says what it stands for, in turn: `10-0-0-1.then.__1.and.nothing.test`.
async fn resolve(name: String) -> io::Result<Vec<IpAddr>> {
    static ASKED: LazyLock<Mutex<HashMap<String, usize>>> = LazyLock::new(Mutex::default);
    let turn = {
        let mut asked = ASKED.lock().unwrap();
        let turn = asked.entry(name.clone()).or_default();
        *turn += 1;
        *turn - 1
    };
    let turns: Vec<_> = name.trim_end_matches(".test").split(".then.").collect();
    let addresses = turns[turn.min(turns.len() - 1)];
    match addresses {
        "nothing" => return Ok(Vec::new()),
        "unknown" => return Err(io::Error::other("no such name")),
        "silent" => std::future::pending().await,
        _ => {}
    }
    let address = |text: &str| text.replace('-', ".").replace('_', ":").parse();
    addresses
        .split(".and.")
        .map(|text| address(text).map_err(io::Error::other))
        .collect()
}

/// A folder with the hostile plugin in it.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(hostile_plugin(), folder.path().join("hostile.wasm")).unwrap();
    folder
}

fn builder(folder: &TempDir) -> pipeline_state::Builder {
    Plugins::builder()
        .directory(folder.path())
        .call_deadline(DEADLINE)
        .memory(MEMORY)
        .resolver(resolve)
}

struct Ground {
    plugins: Plugins,
    outside: Plugins,
    /// A server that means no harm.
    good: Stub,
}

async fn ground() -> &'static Ground {
    static GROUND: OnceCell<Ground> = OnceCell::const_new();
    let make = async || {
        let folder = folder();
        Ground {
            plugins: builder(&folder).build().await.unwrap(),
            outside: builder(&folder).deny_private().build().await.unwrap(),
            good: stub(),
        }
    };
    GROUND.get_or_init(make).await
}

fn stub() -> Stub {
    // So that the next request comes over a new connection.
    Stub::start(|_| Some(Stub::response("200 OK", &["Connection: close"], b"hello"))).unwrap()
}

/// Attacks, and gives the answer of the plugin.
async fn attack(by: &By, here: &Stub, there: &Stub) -> Result<Value, Error> {
    let ground = ground().await;
    let fill = |text: &str| {
        text.replace("{here}", &here.address().to_string())
            .replace("{there}", &there.address().to_string())
            .replace("{port}", &here.address().port().to_string())
    };
    let open = |plugins: &Plugins, scheme: &str, host: &str, settings: &[(&str, &str)]| {
        let settings = settings
            .iter()
            .fold(Settings::new(), |all, (name, value)| all.set(*name, *value));
        plugins.open(
            &format!("{scheme}://{USER}:{PASSWORD}@{host}/db"),
            &settings,
        )
    };
    let plain = json!({"authority": "{here}", "path": "/", "times": 2}).to_string();
    let (backend, asked) = match by {
        Request(request) => (
            open(&ground.plugins, "hostile", &fill("{here}"), &[])?,
            fill(&request.to_string()),
        ),
        Guest(id) => (
            open(&ground.plugins, "hostile", &fill("{here}"), &[])?,
            (*id).to_owned(),
        ),
        Uri(uri) => (ground.plugins.open(&fill(uri), &Settings::new())?, plain),
        Name(name) | NameOutside(name) => {
            let plugins = match by {
                Name(_) => &ground.plugins,
                _ => &ground.outside,
            };
            let host = format!("{name}:{}", here.address().port());
            let request = json!({"authority": host, "path": "/", "times": 2});
            (open(plugins, "hostile", &host, &[])?, request.to_string())
        }
        NameOfClickHouse(name) => {
            let host = format!("{name}:{}", here.address().port());
            (
                open(&ground.plugins, "clickhouse", &host, FAST)?,
                "a".to_owned(),
            )
        }
        Server(behaviour, _) | ServerOfGuest(behaviour) => {
            let behaviour = match behaviour {
                Behaviour::Redirect(to) => Behaviour::Redirect(fill(to)),
                other => other.clone(),
            };
            let hostile = tokio::task::spawn_blocking(|| Hostile::start(behaviour).unwrap())
                .await
                .unwrap();
            let host = hostile.address().to_string();
            let result = match by {
                Server(_, settings) => {
                    let backend = open(&ground.plugins, "clickhouse", &host, settings)?;
                    answer(&backend, "a").await
                }
                _ => {
                    let backend = open(&ground.plugins, "hostile", &host, &[])?;
                    let hour = 3_600_000;
                    let request = json!({
                        "authority": host, "path": "/", "connect": hour, "first": hour, "between": hour,
                    });
                    answer(&backend, &request.to_string()).await
                }
            };
            tokio::task::spawn_blocking(|| drop(hostile)).await.unwrap();
            return result;
        }
    };
    let result = answer(&backend, &asked).await;
    // The same store goes on, too.
    let next = backend.get(&id("next")).await;
    if matches!(by, Request(_) | Guest(_)) {
        assert!(next.is_ok(), "{next:?}");
    }
    result
}

async fn answer(backend: &Backend, asked: &str) -> Result<Value, Error> {
    let entry = backend.get(&id(asked)).await?;
    let document = entry.and_then(|entry| entry.state.completed);
    Ok(document.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap()))
}

/// What others do meanwhile: they notice nothing.
async fn neighbours() -> Result<(), String> {
    let ground = ground().await;
    let say = |what: &str, error: Error| format!("then {what} failed: {error:?}");
    let clickhouse = ground
        .plugins
        .open(&server().uri("default"), &Settings::new())
        .unwrap();
    clickhouse
        .get(&id("a"))
        .await
        .map_err(|error| say("ClickHouse", error))?;
    let address = ground.good.address();
    let hostile = ground
        .plugins
        .open(&format!("hostile://{address}/"), &Settings::new())
        .unwrap();
    let request = json!({"authority": address.to_string(), "path": "/"});
    let answered = answer(&hostile, &request.to_string()).await;
    match answered.map_err(|error| say("the plugin", error))? {
        answer if counts(&answer) == (0, 1) => Ok(()),
        answer => Err(format!("then the plugin got {answer}")),
    }
}

/// What is shown of an error is one short line, without a secret.
fn check_words(error: &Error) -> Result<(), String> {
    let secrets = [PASSWORD, AUTHORIZATION.trim_start_matches("Basic ")];
    for shown in [error.to_string(), format!("{error:?}")] {
        if secrets.iter().any(|secret| shown.contains(secret)) {
            return Err(format!("it tells the password: {shown}"));
        }
    }
    let shown = error.to_string();
    if shown.contains(|c: char| c.is_control() || c == '\u{202e}') {
        return Err(format!("it is more than a line of text: {shown:?}"));
    }
    match shown.len() > 10_000 {
        true => Err(format!("it has {} bytes", shown.len())),
        false => Ok(()),
    }
}

async fn check(row: &Row) -> Result<(), String> {
    let (here, there) = (stub(), stub());
    let result = attack(&row.by, &here, &there).await;
    if !there.received().is_empty() {
        return Err(format!("it got elsewhere: {:?}", there.received()));
    }
    if let Err(error) = &result {
        check_words(error)?;
    }
    let received = here.received();
    if received.iter().any(|one| one.line.contains("smuggled")) {
        return Err(format!("one request became two: {received:?}"));
    }
    let fails = |kind: fn(&Error) -> bool, words: &str| match &result {
        Err(error) if kind(error) && error.to_string().contains(words) => Ok(()),
        other => Err(format!("{other:?}")),
    };
    match &row.then {
        Denied(kind, words) => fails(*kind, words).and_then(|()| match received.is_empty() {
            true => Ok(()),
            false => Err(format!("it was sent: {received:?}")),
        })?,
        Fails(kind, words) => fails(*kind, words)?,
        Holds(holds) => match &result {
            Ok(answer) if holds(answer, &received) => {}
            other => return Err(format!("{other:?}, and {received:?}")),
        },
    }
    neighbours().await
}

// More threads than there are rows that compute: these give way each 10 ms, and each step of the others would wait for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn each_attack_fails_as_it_should_and_harms_no_neighbour() {
    let rows: Vec<Row> = [places(), headers(), guests(), servers(), names()]
        .into_iter()
        .flatten()
        .collect();
    neighbours().await.unwrap();
    let count = rows.len();
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = JoinSet::new();
    for row in rows {
        let turns = Arc::clone(&turns);
        running.spawn(async move {
            let _turn = turns.acquire().await.unwrap();
            let start = Instant::now();
            let result = check(&row).await;
            (row.name, start.elapsed(), result)
        });
    }
    let mut failed = Vec::new();
    let mut slow = Vec::new();
    while let Some(done) = running.join_next().await {
        let (name, elapsed, result) = done.unwrap();
        slow.push((elapsed, name));
        if let Err(why) = result {
            let why: String = why.chars().take(1000).collect();
            failed.push(format!("- {name}: {why}"));
        }
    }
    slow.sort();
    println!(
        "{count} attacks; the longest took {:?}",
        slow.last().unwrap()
    );
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
}

/// What this process has in memory, in bytes.
#[cfg(target_os = "linux")]
fn resident() -> usize {
    harness::Memory::Resident.kib(None).unwrap() * 1024
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_plugin_makes_the_host_keep_is_bounded() {
    let ground = ground().await;
    let store = ground
        .plugins
        .open("hostile://127.0.0.1/", &Settings::new())
        .unwrap();
    let before = resident();
    let asked = id("full-fields");
    let attack = store.get(&asked);
    tokio::pin!(attack);
    let mut most = 0;
    let error = loop {
        tokio::select! {
            result = &mut attack => break result.unwrap_err(),
            () = tokio::time::sleep(Duration::from_millis(20)) => {
                most = most.max(resident().saturating_sub(before));
                assert!(most < 1024 * MIB, "{} MiB", most / MIB);
            }
        }
    };
    println!("{} MiB at most: {error}", most / MIB);
    assert!(broke_off(&error), "{error:?}");
}

#[tokio::test]
async fn a_server_that_closes_connections_which_are_idle_is_not_met_while_it_does() {
    let ground = ground().await;
    let hostile = Hostile::start(Behaviour::BadKeepAlive).unwrap();
    let uri = format!("clickhouse://u:p@{}/db", hostile.address());
    let store = ground.plugins.open(&uri, &Settings::new()).unwrap();
    for pause in [0, 950, 1000, 1050] {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        assert_eq!(store.get(&id("a")).await.unwrap(), None, "after {pause} ms");
    }
}

/// All that anybody has logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The forms in which a password could be found.
fn secrets() -> [String; 3] {
    [
        PASSWORD.to_owned(),
        AUTHORIZATION.trim_start_matches("Basic ").to_owned(),
        STANDARD.encode(PASSWORD),
    ]
}

fn tells(shown: &str) -> Option<String> {
    secrets().into_iter().find(|secret| shown.contains(secret))
}

// One thread, so that all of it logs to where this test does.
#[tokio::test]
async fn a_server_that_echoes_what_it_was_sent_gets_the_password_into_no_error_and_no_log() {
    use tracing_subscriber::layer::SubscriberExt;

    let log = Log::default();
    let writer = {
        let log = log.clone();
        move || log.clone()
    };
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(writer);
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    let plugins = builder(&folder()).build().await.unwrap();
    let hostile = Hostile::start(Behaviour::Echo).unwrap();
    let address = hostile.address();
    let mut errors = Vec::new();
    for (uri, settings) in [
        (
            format!("clickhouse://{USER}:{PASSWORD}@{address}/db"),
            Settings::new(),
        ),
        (
            format!("clickhouse://{address}/db?user={USER}&password={PASSWORD}"),
            Settings::new(),
        ),
        (
            format!("clickhouse://{address}/db"),
            Settings::new().set("user", USER).set("password", PASSWORD),
        ),
    ] {
        let store = plugins.open(&uri, &settings).unwrap();
        errors.push(store.get(&id("a")).await.unwrap_err());
        errors.push(store.set(&id("a"), completed("{}")).await.unwrap_err());
        errors.push(store.clear().await.unwrap_err());
        let findings = format!("{:?}", store.check().await.unwrap());
        assert_eq!(tells(&findings), None, "{findings}");
    }
    for error in errors {
        // The server did echo it, and the echo was looked at.
        assert!(error.to_string().contains("[redacted]"), "{error}");
        for shown in [
            error.to_string(),
            format!("{error:?}"),
            format!("{error:#?}"),
        ] {
            assert_eq!(tells(&shown), None, "{shown}");
        }
    }
    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(logged.contains("request"), "nothing was logged: {logged}");
    assert_eq!(tells(&logged), None, "{logged}");
}

#[test]
fn the_program_tells_no_password_however_much_it_is_to_say() {
    let echo = Hostile::start(Behaviour::Echo).unwrap();
    let cut = Hostile::start(Behaviour::CloseAtOnce).unwrap();
    for address in [echo.address(), cut.address()] {
        let uri = format!("clickhouse://{USER}:{PASSWORD}@{address}/db?request_timeout=1");
        for command in [
            &["get", "a"][..],
            &["set", "a", "{}"],
            &["list"],
            &["doctor"],
        ] {
            let output = program(&[&["-vv", "--uri", &uri], command].concat())
                .output()
                .unwrap();
            let shown = [text(&output.stdout), text(&output.stderr)].concat();
            assert!(!output.status.success(), "{command:?}: {shown}");
            assert!(shown.contains(&address.to_string()), "{command:?}: {shown}");
            assert_eq!(tells(&shown), None, "{command:?}: {shown}");
        }
    }
}

#[tokio::test]
async fn a_plugin_that_is_not_trusted_with_them_learns_neither_user_nor_password() {
    let ground = ground().await;
    let address = ground.good.address();
    for (uri, settings) in [
        (
            format!("hostile://{USER}:{PASSWORD}@{address}/"),
            Settings::new(),
        ),
        (
            format!("hostile://{address}/?user={USER}&password={PASSWORD}"),
            Settings::new(),
        ),
        (
            format!("hostile://{address}/"),
            Settings::new().set("user", USER).set("password", PASSWORD),
        ),
    ] {
        let store = ground.plugins.open(&uri, &settings).unwrap();
        let seen = answer(&store, "credentials").await.unwrap().to_string();
        assert!(seen.contains("sealed"), "{seen}");
        assert!(!seen.contains(USER) && tells(&seen).is_none(), "{seen}");
        // All the same the server is told who asks.
        let request = json!({"authority": address.to_string(), "path": "/"});
        answer(&store, &request.to_string()).await.unwrap();
        let received = ground.good.received();
        let own = received
            .iter()
            .filter(|one| headers_of(one, "authorization") == [&**AUTHORIZATION]);
        assert!(own.count() > 0, "{received:?}");
    }
}

#[tokio::test]
async fn what_a_plugin_finds_out_is_shown_as_lines_without_a_secret() {
    let ground = ground().await;
    let uri = format!("hostile://{USER}:{PASSWORD}@127.0.0.1/");
    let store = ground.plugins.open(&uri, &Settings::new()).unwrap();
    let findings = store.check().await.unwrap();
    let lines = store.migrate().await.unwrap();
    let shown = findings
        .iter()
        .flat_map(|finding| [&finding.subject, &finding.text])
        .chain(&lines);
    for text in shown {
        assert!(!text.contains(char::is_control), "{text:?}");
    }
}

#[tokio::test]
async fn numbers_and_words_that_no_store_would_give_break_nothing() {
    let ground = ground().await;
    let store = ground
        .plugins
        .open("hostile://127.0.0.1/", &Settings::new())
        .unwrap();
    let changes = store.versions(&id("a"), None, 1).await.unwrap();
    assert_eq!(changes[0].written_at_ms, u64::MAX);
    let holders = store.holders("a\n\u{1b}[2Jb").await.unwrap();
    let shown = holders[0].to_string();
    assert!(!shown.contains(char::is_control), "{shown:?}");
    let endless = store.holders("endless").await.unwrap_err();
    assert!(matches!(endless, Error::Corrupt(_)), "{endless}");
}

#[test]
fn the_program_prints_a_date_that_no_calendar_has() {
    let folder = folder();
    let path = folder.path().to_str().unwrap();
    let output = program(&["--plugin-dir", path, "--uri", "hostile://127.0.0.1/"])
        .args(["history", "a"])
        .output()
        .unwrap();
    assert_eq!(text(&output.stderr), "");
    assert!(output.status.success());
}

#[test]
fn no_command_that_the_program_suggests_holds_words_of_a_plugin() {
    let folder = folder();
    let path = folder.path().to_str().unwrap();
    let output = program(&["--plugin-dir", path, "--uri", "hostile://127.0.0.1/"])
        .args(["get", "error:locked:x';echo harm;'"])
        .output()
        .unwrap();
    let shown = text(&output.stderr);
    let suggested = shown.split_once("pipeline-state lock break").unwrap().1;
    let run = std::process::Command::new("sh")
        .args(["-c", &format!("printf '%s\\n' {suggested}")])
        .output()
        .unwrap();
    assert!(
        !text(&run.stdout).lines().any(|line| line == "harm"),
        "{shown}"
    );
}

/// The last column of its table names what shows a promise: rows of this file in quotes, tests in backticks.
#[test]
fn each_promise_of_the_threat_model_names_attacks_and_tests_that_exist() {
    let model = include_str!("../../host/SECURITY.md");
    let tests = [
        include_str!("attacks.rs"),
        include_str!("plugins.rs"),
        include_str!("tls.rs"),
        include_str!("../../host/src/address.rs"),
        include_str!("../../host/src/ceiling/mod.rs"),
        include_str!("../../host/src/credentials.rs"),
        include_str!("../../host/src/policy.rs"),
    ];
    let rows: Vec<&str> = [places(), headers(), guests(), servers(), names()]
        .into_iter()
        .flatten()
        .map(|row| row.name)
        .collect();
    let promises: Vec<&str> = model
        .lines()
        .filter(|line| line.starts_with("| a"))
        .collect();
    assert!(promises.len() >= 15, "{promises:#?}");
    for promise in promises {
        let shown_by = promise.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let attacks: Vec<_> = shown_by.split('"').skip(1).step_by(2).collect();
        let named: Vec<_> = shown_by.split('`').skip(1).step_by(2).collect();
        assert!(!attacks.is_empty() || !named.is_empty(), "{promise}");
        for attack in attacks {
            assert!(rows.contains(&attack), "{attack}");
        }
        for name in named {
            let function = format!("fn {name}()");
            let found = tests.iter().any(|text| text.contains(&function));
            assert!(found, "{name}");
        }
    }
}
