//! What `maintenance.check` finds on real servers, tables and users.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests break off to fail"
)]

mod support;

use harness::fresh_name;
use pipeline_state::{Backend, Error, Finding, Severity, State};
use support::{id, of_started, open, place, python_place, server};

async fn findings(store: &Backend) -> Vec<Finding> {
    store.check().await.unwrap()
}

fn about<'a>(findings: &'a [Finding], subject: &str) -> Vec<&'a Finding> {
    findings
        .iter()
        .filter(|finding| finding.subject == subject)
        .collect()
}

fn worst(findings: &[Finding]) -> Severity {
    findings
        .iter()
        .map(|finding| finding.severity)
        .max()
        .unwrap()
}

#[tokio::test]
async fn a_check_tells_what_is_and_what_to_do() {
    let place = place().await;
    // A server that was never written to.
    let fresh = findings(&place.backend).await;
    assert!(worst(&fresh) < Severity::Warning, "{fresh:#?}");
    assert!(about(&fresh, "server")[0].text.starts_with("ClickHouse "));
    assert!(
        about(&fresh, "table")[0].text.contains("does not exist"),
        "{fresh:#?}"
    );
    assert_eq!(about(&fresh, "clock")[0].severity, Severity::Fine);
    assert_eq!(
        about(&fresh, "keep-alive")[0].severity,
        Severity::Fine,
        "{fresh:#?}"
    );

    // Our table.
    place.backend.set(&id("a"), State::default()).await.unwrap();
    let ours = findings(&place.backend).await;
    assert!(
        about(&ours, "table")
            .iter()
            .all(|finding| finding.severity == Severity::Fine),
        "{ours:#?}"
    );

    // The Python backend's.
    let python = python_place().await;
    let found = findings(&python.backend).await;
    assert!(worst(&found) < Severity::Warning, "{found:#?}");
    let mends: Vec<_> = about(&found, "table")
        .iter()
        .filter_map(|finding| finding.mend.clone())
        .collect();
    assert!(
        mends.iter().any(|mend| mend.contains("migrate")),
        "{found:#?}"
    );

    // A table that loses states.
    let bad = fresh_name("suite");
    server().query(&format!("CREATE DATABASE `{bad}`")).unwrap();
    server().query(&format!("CREATE TABLE `{bad}`.state (state_id String, partial_state Nullable(String), completed_state Nullable(String), updated_at DateTime64(3)) ENGINE = MergeTree ORDER BY updated_at")).unwrap();
    let found = findings(&open(&server().uri("default"), &bad).await).await;
    let problems = about(&found, "table");
    let problems = problems
        .iter()
        .filter(|finding| finding.severity == Severity::Problem);
    assert_eq!(problems.count(), 2, "{found:#?}");
}

#[tokio::test]
async fn a_check_tells_what_a_user_may_do() {
    let place = place().await;
    place.backend.set(&id("a"), State::default()).await.unwrap();
    let (Some(reader), Some(writer)) = (
        of_started(server().reader_uri("default")),
        of_started(server().writer_uri("default")),
    ) else {
        return;
    };
    let found = findings(&open(&reader, &place.schema).await).await;
    let texts: Vec<_> = about(&found, "privileges")
        .iter()
        .map(|finding| finding.text.clone())
        .collect();
    assert!(
        texts.iter().any(|text| text.contains("may only read")),
        "{found:#?}"
    );
    assert!(worst(&found) < Severity::Problem, "{found:#?}");

    let found = findings(&open(&writer, &place.schema).await).await;
    let mends: Vec<_> = about(&found, "privileges")
        .iter()
        .filter_map(|finding| finding.mend.clone())
        .collect();
    assert!(
        mends
            .iter()
            .any(|mend| mend.starts_with("GRANT ALTER DELETE ON")),
        "{found:#?}"
    );
    assert!(
        !mends.iter().any(|mend| mend.starts_with("GRANT INSERT")),
        "{found:#?}"
    );
}

#[tokio::test]
async fn a_check_of_a_server_that_can_not_be_reached_says_why() {
    let address = server().address();
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    for (uri, words) in [
        (
            format!("clickhouse://app:secret@{closed}/db"),
            "nothing listens",
        ),
        (
            format!("clickhouse://app:hunter2sekret@{address}/db"),
            "does not accept this user",
        ),
        (
            format!("clickhouse://app:secret@{address}/db?secure=1&connect_timeout=2"),
            "TLS",
        ),
    ] {
        let found = findings(&open(&uri, "suite").await).await;
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(found[0].severity, Severity::Problem);
        assert!(found[0].text.contains(words), "{words}: {found:#?}");
        assert!(found[0].mend.is_some());
        assert!(!format!("{found:?}").contains("sekret"));
    }
    let error = open("clickhouse://app@h:9000/db", "suite")
        .await
        .check()
        .await
        .unwrap_err();
    assert!(matches!(error, Error::InvalidInput(_)), "{error:?}");
}
