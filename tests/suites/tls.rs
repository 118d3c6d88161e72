//! HTTPS to a real server: whom the host trusts, whom it does not, and how it identifies itself.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests break off to fail"
)]

mod support;

use std::net::{SocketAddr, ToSocketAddrs};

use harness::{Certificate, TlsFront, fresh_name};
use pipeline_state::{Backend, Error, Outcome, Plugins, Settings, Tls};
use support::{completed, id, server};
use tokio::task::JoinSet;

/// The server, as a socket's address and as the URI's part before it.
fn behind() -> (SocketAddr, String) {
    let uri = server().uri("default");
    let (scheme_and_user, rest) = uri.split_once('@').unwrap();
    let authority = rest.split(['/', '?']).next().unwrap();
    let address = authority.to_socket_addrs().unwrap().next().unwrap();
    (address, scheme_and_user.to_owned())
}

fn front(certificate: Certificate) -> TlsFront {
    TlsFront::start(behind().0, certificate).unwrap()
}

fn trusting(front: &TlsFront) -> Tls {
    Tls::new().authority(front.ca_pem()).unwrap()
}

/// A schema of its own at `localhost`, behind the front.
async fn open(front: &TlsFront, tls: Tls) -> Backend {
    open_at("127.0.0.1", front, tls).await
}

async fn open_at(host: &str, front: &TlsFront, tls: Tls) -> Backend {
    let plugins = Plugins::builder().tls(tls).build().await.unwrap();
    let settings = Settings::new()
        .set("schema", fresh_name("tls"))
        .set("secure", "true");
    let uri = format!("{}@{host}:{}/default", behind().1, front.address().port());
    plugins.open(&uri, &settings).unwrap()
}

/// It works for reads and writes.
async fn works(backend: &Backend) {
    backend
        .set(&id("a"), completed(r#"{"x":1}"#))
        .await
        .unwrap();
    let entry = backend.get(&id("a")).await.unwrap().unwrap();
    assert_eq!(entry.state, completed(r#"{"x":1}"#));
}

/// Twenty reads of what [`works`] has written.
async fn works_twenty_times_at_once(backend: &Backend) {
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let backend = backend.clone();
        calls.spawn(async move { backend.get(&id("a")).await });
    }
    while let Some(entry) = calls.join_next().await {
        assert!(entry.unwrap().unwrap().is_some());
    }
}

#[tokio::test]
async fn a_server_is_trusted_by_name_and_by_address_whose_authority_is() {
    for host in ["localhost", "127.0.0.1"] {
        let front = front(Certificate::Valid);
        works(&open_at(host, &front, trusting(&front)).await).await;
        let only = trusting(&front).without_public_roots();
        works(&open_at(host, &front, only).await).await;
    }
}

#[tokio::test]
async fn an_authority_comes_from_a_file_too() {
    let front = front(Certificate::Valid);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), front.ca_pem()).unwrap();
    let tls = Tls::new().authority_file(file.path()).unwrap();
    works(&open(&front, tls).await).await;
}

#[tokio::test]
async fn a_certificate_that_proves_nothing_is_refused_before_anything_is_sent() {
    use Certificate::*;
    for (certificate, trusted) in [
        (Valid, false),
        (Expired, true),
        (WrongName, true),
        (UnknownAuthority, true),
        (SelfSigned, true),
    ] {
        let front = front(certificate);
        let tls = match trusted {
            true => trusting(&front),
            false => Tls::new(),
        };
        let backend = open(&front, tls).await;
        let read = backend.get(&id("a")).await.unwrap_err();
        let write = backend.set(&id("a"), completed("{}")).await.unwrap_err();
        for error in [read, write] {
            assert!(
                matches!(error, Error::Unavailable { .. }),
                "{certificate:?}: {error:?}"
            );
            assert!(
                error
                    .to_string()
                    .contains("the certificate of https://127.0.0.1:"),
                "{certificate:?}: {error}"
            );
            assert_eq!(error.outcome(), Outcome::NotApplied, "{certificate:?}");
        }
        assert_eq!(front.handshakes(), 0, "{certificate:?}");
    }
}

#[tokio::test]
async fn a_server_that_wants_to_know_its_client_gets_its_certificate() {
    let front = front(Certificate::Mutual);
    let tls = trusting(&front)
        .client_certificate(front.client_pem(), front.client_key_pem())
        .unwrap();
    works(&open(&front, tls).await).await;
}

#[tokio::test]
async fn a_client_without_the_right_certificate_gets_nowhere_and_has_written_nothing() {
    let front = front(Certificate::Mutual);
    let other = trusting(&front)
        .client_certificate(front.other_client_pem(), front.other_client_key_pem())
        .unwrap();
    for (what, tls) in [("none", trusting(&front)), ("another one's", other)] {
        let backend = open(&front, tls).await;
        let read = backend.get(&id("a")).await.unwrap_err();
        assert!(
            matches!(read, Error::Unavailable { .. }),
            "{what}: {read:?}"
        );
        let write = backend.set(&id("a"), completed("{}")).await.unwrap_err();
        assert!(
            matches!(write, Error::Unavailable { .. }),
            "{what}: {write:?}"
        );
        assert!(
            write.to_string().contains("client's certificate"),
            "{what}: {write}"
        );
        assert_eq!(write.outcome(), Outcome::NotApplied, "{what}: {write}");
    }
    assert_eq!(front.handshakes(), 0);
}

#[tokio::test]
async fn a_key_that_is_not_the_certificates_is_told_when_plugins_are_loaded() {
    let front = front(Certificate::Mutual);
    let tls = trusting(&front)
        .client_certificate(front.client_pem(), front.other_client_key_pem())
        .unwrap();
    let error = Plugins::builder().tls(tls).build().await.err().unwrap();
    assert!(matches!(error, Error::InvalidInput(_)), "{error:?}");
    assert!(
        error.to_string().starts_with("TLS can't be used so"),
        "{error}"
    );
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let front = front(Certificate::Valid);
    let backend = open(&front, trusting(&front)).await;
    for _ in 0..5 {
        works(&backend).await;
    }
    assert_eq!(front.handshakes(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_calls_at_once_share_some_connections() {
    let front = front(Certificate::Valid);
    let backend = open(&front, trusting(&front)).await;
    works(&backend).await;
    for _ in 0..3 {
        works_twenty_times_at_once(&backend).await;
    }
    // Sixty calls: most of them found a connection.
    assert!(front.handshakes() <= 30, "{}", front.handshakes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_offers_http2_gets_it_and_all_calls_share_one_connection() {
    let front = TlsFront::http2(behind().0, Certificate::Valid).unwrap();
    let backend = open(&front, trusting(&front)).await;
    works(&backend).await;
    // More than the windows of a connection hold.
    let large = completed(&format!("{{\"x\":\"{}\"}}", "y".repeat(10_000_000)));
    backend.set(&id("large"), large.clone()).await.unwrap();
    let entry = backend.get(&id("large")).await.unwrap().unwrap();
    assert!(entry.state == large);

    works_twenty_times_at_once(&backend).await;
    assert_eq!(front.handshakes(), 1);

    let wrong = format!(
        "clickhouse://nobody:x@127.0.0.1:{}/default",
        front.address().port()
    );
    let plugins = Plugins::builder()
        .tls(trusting(&front))
        .build()
        .await
        .unwrap();
    let store = plugins
        .open(&wrong, &Settings::new().set("secure", "true"))
        .unwrap();
    let error = store.get(&id("a")).await.unwrap_err();
    assert!(matches!(error, Error::Unauthenticated(_)), "{error:?}");
}

#[tokio::test]
async fn plain_http_to_a_port_of_tls_and_tls_to_one_of_plain_http_say_what_to_check() {
    let front = front(Certificate::Valid);
    let plugins = Plugins::builder().build().await.unwrap();
    let fast = Settings::new().set("request_timeout", "1");
    for (port, secure) in [
        (front.address().port(), "false"),
        (behind().0.port(), "true"),
    ] {
        let uri = format!("{}@127.0.0.1:{port}/default", behind().1);
        let store = plugins
            .open(&uri, &fast.clone().set("secure", secure))
            .unwrap();
        let error = store.get(&id("a")).await.unwrap_err();
        assert!(error.to_string().contains("`secure`"), "{error}");
    }
}
