//! What goes over the wire: how many requests and connections a call takes, and what the plugin makes of a server that
//! lies. A stub stands for the server here; everything else is real.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests break off to fail"
)]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::{Received, Stub};
use pipeline_state::{Backend, Error, Outcome, Plugins, Settings};
use support::{completed, id, open, plugins};

const CLICKHOUSE: [&str; 2] = [
    "X-ClickHouse-Query-Id: 1",
    "X-ClickHouse-Exception-Tag: abcdefgh",
];

type Expected = fn(&Error) -> bool;

/// An answer of one row in the format `Native`: the name, the type and the value of each column.
fn answer(columns: &[(&str, &str, &[u8])]) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let mut body = vec![columns.len() as u8, 1];
    for (name, kind, value) in columns {
        body.extend([text(name), text(kind), value.to_vec()].concat());
    }
    body
}

const SEVEN: [u8; 8] = 7_i64.to_le_bytes();
const NINE: [u8; 8] = 9_i64.to_le_bytes();

/// `{"a":1}` at version 7.
const STATE: [(&str, &str, &[u8]); 4] = [
    ("partial_state", "Nullable(String)", b"\x01\x00"),
    ("completed_state", "Nullable(String)", b"\x00\x07{\"a\":1}"),
    ("updated_at", "DateTime64(9)", &SEVEN),
    ("deleted", "Bool", b"\x00"),
];

/// An answer to a `get`.
fn row() -> Vec<u8> {
    answer(&STATE)
}

/// An answer to what a write asks first: the same state.
fn head() -> Vec<u8> {
    let more: [(&str, &str, &[u8]); 2] = [("writes", "String", b"\x00"), ("now", "Int64", &NINE)];
    answer(&[&STATE[..], &more].concat())
}

/// A server that holds one state, answers reads, and lets `insert` answer inserts.
fn server(
    insert: impl Fn(&Received) -> Option<Vec<u8>> + Send + Sync + 'static,
) -> std::io::Result<Stub> {
    Stub::start(move |request| {
        if request.line.contains("query=INSERT") {
            return insert(request);
        }
        let body = match String::from_utf8_lossy(&request.body).contains("writes") {
            true => head(),
            false => row(),
        };
        Some(Stub::response("200 OK", &CLICKHOUSE, &body))
    })
}

fn ok() -> Vec<u8> {
    Stub::response("200 OK", &CLICKHOUSE, b"")
}

async fn backend(stub: &Stub) -> Backend {
    open(
        &format!("clickhouse://app:sekret@{}/db", stub.address()),
        "schema",
    )
    .await
}

#[tokio::test]
async fn a_get_is_one_request_a_set_is_two_and_all_share_a_connection() {
    let stub = server(|_| Some(ok())).unwrap();
    let store = backend(&stub).await;
    for round in 0..5 {
        assert_eq!(store.get(&id("a")).await.unwrap().unwrap().version.get(), 7);
        assert_eq!(stub.received().len(), 3 * round + 1);
        let version = store.set(&id("a"), completed("{\"a\":2}")).await.unwrap();
        assert!(version.get() > 7);
        assert_eq!(stub.received().len(), 3 * round + 3);
    }
    let received = stub.received();
    assert!(received.iter().all(|request| request.connection == 0));
    assert!(
        received
            .iter()
            .all(|request| request.line.starts_with("POST /?"))
    );
    assert!(received.iter().all(|request| {
        request
            .headers
            .contains(&"authorization: Basic YXBwOnNla3JldA==".to_owned())
    }));
    assert!(
        received
            .iter()
            .all(|request| !request.line.contains("sekret"))
    );
}

/// Parts are what ClickHouse dies of.
#[tokio::test]
async fn what_is_stored_already_is_not_stored_again() {
    let stub = server(|_| Some(ok())).unwrap();
    let version = backend(&stub)
        .await
        .set(&id("a"), completed("{\"a\":1}"))
        .await;
    assert_eq!(version.unwrap().get(), 7);
    assert_eq!(stub.received().len(), 1);

    let uri = format!("clickhouse://app@{}/db?skip_unchanged=no", stub.address());
    let store = open(&uri, "schema").await;
    assert!(
        store
            .set(&id("a"), completed("{\"a\":1}"))
            .await
            .unwrap()
            .get()
            > 7
    );
    assert_eq!(stub.received().len(), 3);
}

#[tokio::test]
async fn calls_at_the_same_time_each_have_a_connection_which_is_used_again() {
    let stub = Stub::start(|_| Some(Stub::response("200 OK", &CLICKHOUSE, &row()))).unwrap();
    let store = backend(&stub).await;
    for _ in 0..3 {
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move { store.get(&id("a")).await.unwrap() })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    }
    let connections = stub
        .received()
        .iter()
        .map(|request| request.connection)
        .max()
        .unwrap()
        + 1;
    assert!(
        connections <= 16,
        "{connections} connections for 24 requests, 8 at a time"
    );
}

#[tokio::test]
async fn a_connection_that_the_server_closed_while_idle_is_replaced() {
    let stub = Stub::closing(|_| Some(Stub::response("200 OK", &CLICKHOUSE, &row()))).unwrap();
    let store = backend(&stub).await;
    for _ in 0..3 {
        assert!(store.get(&id("a")).await.is_ok());
        // Long enough for the end of the connection to arrive.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(stub.received().last().unwrap().connection, 2);
}

#[tokio::test]
async fn more_calls_than_run_at_once_wait_for_their_turn() {
    let stub = Stub::start(|_| {
        std::thread::sleep(Duration::from_millis(200));
        Some(Stub::response("200 OK", &CLICKHOUSE, &row()))
    })
    .unwrap();
    let store = backend(&stub).await;
    let tasks: Vec<_> = (0..600)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.get(&id("a")).await.map(|entry| entry.is_some()) })
        })
        .collect();
    for task in tasks {
        assert!(task.await.unwrap().unwrap());
    }
}

/// The host reads a target to know where a call may go, and the plugin to know where to go. Were they not to agree,
/// the request would be denied.
#[tokio::test]
async fn the_host_and_the_plugin_read_a_target_alike() {
    let stub = Stub::start(|_| Some(Stub::response("200 OK", &CLICKHOUSE, &row()))).unwrap();
    let port = stub.address().port().to_string();
    for (uri, settings) in [
        (format!("clickhouse://u:p@127.0.0.1:{port}/db"), &[][..]),
        (format!("CLICKHOUSE://u:p@LOCALHOST:{port}/db"), &[]),
        (format!("clickhouse://u:p@ss@127.0.0.1:{port}/db"), &[]),
        (format!("clickhouse://u:p@:{port}/db"), &[]),
        (format!("clickhouse://u:p@/db?port={port}"), &[]),
        (
            format!("clickhouse:///db?user=u&host=127.0.0.1&port={port}"),
            &[],
        ),
        (
            format!("clickhouse://u@other:1/db?host=third&host=127.0.0.1&port={port}"),
            &[],
        ),
        (
            format!("clickhouse://u@other:{port}/db?host=third"),
            &[("host", "127.0.0.1")],
        ),
        (
            format!("clickhouse://u@127.0.0.1:{port}/db"),
            &[("port", ""), ("host", "")],
        ),
        (
            "clickhouse://u@127.0.0.1:1/db?port=2&secure=1".to_owned(),
            &[("port", &*port), ("secure", "False")],
        ),
        (
            format!("clickhouse://u@127.0.0.1:{port}/db"),
            &[("host", " 127.0.0.1 ")],
        ),
    ] {
        let settings = settings
            .iter()
            .fold(Settings::new(), |settings, (name, value)| {
                settings.set(*name, *value)
            });
        let store = plugins().await.open(&uri, &settings).unwrap();
        let result = store.get(&id("a")).await;
        assert!(
            result.is_ok(),
            "{uri} {settings:?} {:?}: {result:?}",
            store.origin()
        );
    }
}

/// Each answer is a lie of another kind: none may pass for a state, and none may panic or hang.
#[tokio::test]
async fn a_server_that_lies_is_found_out() {
    let exception = "Code: 241. DB::Exception: too much (MEMORY_LIMIT_EXCEEDED) (version 1)";
    let in_trailer = [
        &row()[..],
        format!("\r\n__exception__\r\nabcdefgh\r\n{exception}\r\n").as_bytes(),
    ]
    .concat();
    let whole = Stub::response("200 OK", &CLICKHOUSE, &row());
    let mut absurd = row();
    absurd[0] = 0xff;
    let server: Expected = |error| matches!(error, Error::Server { code: 241, .. });
    let corrupt: Expected = |error| matches!(error, Error::Corrupt(_));
    let unavailable: Expected = |error| matches!(error, Error::Unavailable { .. });
    let other: Expected = |error| matches!(error, Error::Server { code: 0, .. });
    let cases: Vec<(&str, Vec<u8>, Expected)> = vec![
        (
            "a 200 with an exception's code",
            Stub::response(
                "200 OK",
                &[&CLICKHOUSE[..], &["X-ClickHouse-Exception-Code: 241"]].concat(),
                exception.as_bytes(),
            ),
            server,
        ),
        (
            "an exception behind the rows",
            Stub::response("200 OK", &CLICKHOUSE, &in_trailer),
            server,
        ),
        (
            "a row that is cut",
            Stub::response("200 OK", &CLICKHOUSE, &row()[..row().len() - 1]),
            corrupt,
        ),
        (
            "an absurd header",
            Stub::response("200 OK", &CLICKHOUSE, &absurd),
            corrupt,
        ),
        (
            "JSON",
            Stub::response("200 OK", &CLICKHOUSE, b"{\"state_id\":\"a\"}"),
            corrupt,
        ),
        (
            "nothing",
            Stub::response("200 OK", &CLICKHOUSE, b""),
            corrupt,
        ),
        (
            "a body that ends before its length",
            whole[..whole.len() - 4].to_vec(),
            unavailable,
        ),
        (
            "half a head",
            b"HTTP/1.1 200 OK\r\nX-Click".to_vec(),
            unavailable,
        ),
        (
            "no HTTP at all",
            b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
            unavailable,
        ),
        (
            "a page of something else",
            Stub::response(
                "200 OK",
                &["Content-Type: text/html"],
                b"<html>hello</html>",
            ),
            other,
        ),
        (
            "a server error without words",
            Stub::response("500 Internal Server Error", &[], b""),
            other,
        ),
        (
            "a gateway",
            Stub::response("502 Bad Gateway", &[], b"<html>"),
            unavailable,
        ),
    ];
    for (what, answer, expected) in cases {
        let stub = Stub::closing(move |_| Some(answer.clone())).unwrap();
        let store = backend(&stub).await;
        let error = store.get(&id("a")).await.unwrap_err();
        assert!(expected(&error), "{what}: {error:?}");
        assert_eq!(error.outcome(), Outcome::NotApplied, "{what}");
        assert!(
            !format!("{error:?}").contains("sekret"),
            "{what}: {error:?}"
        );
    }
}

#[tokio::test]
async fn a_request_whose_connection_broke_is_sent_again() {
    let stub = Stub::start(|request| {
        (request.connection > 0).then(|| Stub::response("200 OK", &CLICKHOUSE, &row()))
    })
    .unwrap();
    assert!(backend(&stub).await.get(&id("a")).await.unwrap().is_some());
    assert_eq!(stub.received().len(), 2);
}

/// The server has the token of a write, and drops what comes a second time.
#[tokio::test]
async fn a_write_whose_answer_never_came_is_sent_again_under_its_token() {
    let stub = server(|request| (request.connection > 0).then(ok)).unwrap();
    let store = backend(&stub).await;
    store.set(&id("a"), completed("{\"a\":2}")).await.unwrap();
    let inserts: Vec<_> = stub
        .received()
        .into_iter()
        .filter(|request| request.line.contains("insert_deduplication_token="))
        .collect();
    assert_eq!(inserts.len(), 2);
    assert_eq!(
        (&inserts[0].line, &inserts[0].body),
        (&inserts[1].line, &inserts[1].body)
    );
}

#[tokio::test]
async fn a_server_that_always_breaks_off_is_given_up_after_some_tries() {
    let stub = Stub::start(|_| None).unwrap();
    let error = backend(&stub).await.get(&id("a")).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert_eq!(error.outcome(), Outcome::NotApplied);
    let tries = stub.received().len();
    assert!((2..=10).contains(&tries), "{tries}");

    let stub = server(|_| None).unwrap();
    let store = backend(&stub).await;
    let error = store
        .set(&id("a"), completed("{\"a\":2}"))
        .await
        .unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown, "{error:?}");
}

#[tokio::test]
async fn a_passing_error_of_the_server_is_followed_by_another_try() {
    for code in [252, 202, 319] {
        let first = AtomicBool::new(true);
        let stub = server(move |_| {
            if !first.swap(false, Ordering::Relaxed) {
                return Some(ok());
            }
            let words = format!("Code: {code}. DB::Exception: words (NAME) (version 1)");
            let header = format!("X-ClickHouse-Exception-Code: {code}");
            let headers = [&CLICKHOUSE[..], &[&header]].concat();
            Some(Stub::response(
                "500 Internal Server Error",
                &headers,
                words.as_bytes(),
            ))
        })
        .unwrap();
        let result = backend(&stub)
            .await
            .set(&id("a"), completed("{\"a\":2}"))
            .await;
        assert!(result.is_ok(), "{code}: {result:?}");
        assert_eq!(stub.received().len(), 3, "{code}");
    }
}

#[tokio::test]
async fn bodies_are_compressed_where_that_is_asked_for() {
    let stub = server(|_| Some(ok())).unwrap();
    let uri = format!("clickhouse://app@{}/db?compress=true", stub.address());
    let store = open(&uri, "schema").await;
    let document = format!("{{\"a\":\"{}\"}}", "x".repeat(10_000));
    store.set(&id("a"), completed(&document)).await.unwrap();
    let received = stub.received();
    let has = |request: &Received, header: &str| request.headers.contains(&header.to_owned());
    assert!(
        received
            .iter()
            .all(|request| has(request, "accept-encoding: gzip"))
    );
    let insert = received.last().unwrap();
    assert!(has(insert, "content-encoding: gzip"));
    assert!(insert.body.len() < 1000, "{}", insert.body.len());
}

#[tokio::test]
async fn a_state_above_the_limit_is_refused_before_anything_is_sent() {
    let stub = server(|_| Some(ok())).unwrap();
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(64 * 1024 * 1024));
    let error = backend(&stub)
        .await
        .set(&id("a"), completed(&large))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::InvalidInput(_)), "{error:?}");
    assert_eq!(stub.received().len(), 0);
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up_at_the_deadline() {
    let stub = Stub::start(|_| {
        std::thread::sleep(Duration::from_secs(60));
        None
    })
    .unwrap();
    let plugins = Plugins::builder()
        .call_deadline(Duration::from_millis(300))
        .build()
        .await
        .unwrap();
    let uri = format!("clickhouse://app:sekret@{}/db", stub.address());
    let store = plugins.open(&uri, &Settings::new()).unwrap();
    let error = store
        .set(&id("a"), completed("{\"a\":1}"))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    assert_eq!(error.outcome(), Outcome::Unknown);
}

#[tokio::test]
async fn an_answer_without_an_end_is_given_up() {
    let endless = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\nX-ClickHouse-Query-Id: 1\r\n\r\n"
            .to_vec(),
        vec![0; 200 * 1024 * 1024],
    ]
    .concat();
    let stub = Stub::start(move |_| Some(endless.clone())).unwrap();
    let error = backend(&stub).await.get(&id("a")).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("more than fits"), "{error}");
}

#[tokio::test]
async fn an_echoed_password_is_redacted() {
    let stub = Stub::start(|request| {
        let headers = request.headers.join("\n");
        Some(Stub::response(
            "500 Internal Server Error",
            &CLICKHOUSE,
            format!("Code: 1. DB::Exception: {headers} sekret").as_bytes(),
        ))
    })
    .unwrap();
    let error = backend(&stub).await.get(&id("a")).await.unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(shown.contains("[redacted]"), "{shown}");
    assert!(
        !shown.contains("sekret") && !shown.contains("YXBwOnNla3JldA"),
        "{shown}"
    );
}
