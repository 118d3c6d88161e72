//! The HTTP client: for each plugin one pool of connections, of which each origin has its share.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderMap, Request, Response};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::AlertDescription;
use tokio::runtime;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody};

use super::body::{LimitedBody, Traffic};
use super::dial::{self, Dialer, Network, Within};
use crate::origin::Origin;

/// A connection that was idle for longer is not used again. ClickHouse as shipped closes one after 3 s,
/// and a request that meets the closing fails, though it may have been sent.
const POOL_IDLE: Duration = Duration::from_secs(2);
/// How long it may take at most to get a connection: a place in the pool, the name, TCP, TLS.
const CONNECT: Duration = Duration::from_secs(10);
/// The longest that any connection is waited for, whatever a plugin asks for.
const LONGEST_CONNECT: Duration = Duration::from_secs(60);
/// What a plugin that sets no time-outs gets. It must be shorter than the deadline of a call to be seen at all.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// A process has one runtime as a rule, and a test program one for each test.
const MOST_POOLS: usize = 16;
/// The most that the head of a response may have, in bytes: servers send some hundreds.
const LONGEST_HEAD: usize = 64 * 1024;

type Connector = Within<HttpsConnector<Dialer>>;
type Pool = legacy::Client<Connector, WasiBody>;

/// Cheap to clone; clones share the pool.
#[derive(Clone)]
pub(crate) struct Client {
    connector: Connector,
    /// One for each runtime that calls are made on: a connection lives on the runtime that made it, and hangs while nobody drives
    /// that. The last one is the newest.
    pools: Arc<Mutex<Vec<(runtime::Id, Pool)>>>,
    /// How many requests may be on their way to each origin.
    turns: Arc<Mutex<HashMap<Origin, Arc<Semaphore>>>>,
    limits: Limits,
}

/// What a client may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How many connections to each origin.
    pub(crate) connections: usize,
    /// How many bytes of one response.
    pub(crate) response: u64,
}

/// The way to one origin.
#[derive(Clone)]
pub(crate) struct Route {
    client: Client,
    turns: Arc<Semaphore>,
}

impl Client {
    pub(crate) fn new(network: Network, tls: rustls::ClientConfig, limits: Limits) -> Client {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .enable_http2()
            .wrap_connector(Dialer {
                network,
                // Shared among the addresses of a name: when one does not answer, there is time for the others.
                limit: CONNECT,
            });
        let connector = Within {
            connector,
            limit: LONGEST_CONNECT,
        };
        Client {
            connector,
            pools: Arc::default(),
            turns: Arc::default(),
            limits,
        }
    }

    /// That of the runtime that this is called on.
    fn pool(&self) -> Pool {
        let here = runtime::Handle::current().id();
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, pool)) = pools.iter().find(|(id, _)| *id == here) {
            return pool.clone();
        }
        let pool = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .pool_max_idle_per_host(self.limits.connections)
            .http1_max_buf_size(LONGEST_HEAD)
            .build(self.connector.clone());
        if pools.len() == MOST_POOLS {
            pools.remove(0);
        }
        pools.push((here, pool.clone()));
        pool
    }

    pub(crate) fn route(&self, origin: &Origin) -> Route {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = turns
            .entry(origin.clone())
            .or_insert_with(|| Arc::new(Semaphore::new(self.limits.connections)));
        Route {
            client: self.clone(),
            turns: Arc::clone(turns),
        }
    }
}

impl Route {
    /// Sends one request. Only one of which nothing was sent, because the pooled connection turned out to be
    /// closed, is sent again on another connection.
    pub(super) async fn send(
        &self,
        mut request: Request<WasiBody>,
        options: RequestOptions,
        traffic: &Traffic,
    ) -> Result<Response<LimitedBody>, Error> {
        let connect = options.connect_timeout.unwrap_or(CONNECT);
        let first_byte = options.first_byte_timeout.unwrap_or(DEFAULT_TIMEOUT);
        let between_bytes = options.between_bytes_timeout.unwrap_or(DEFAULT_TIMEOUT);
        let start = Instant::now();
        let method = request.method().clone();
        let authority = request.uri().authority().map(ToString::to_string);

        // In the order of their coming.
        let turn = timeout(connect, Arc::clone(&self.turns).acquire_owned());
        let Ok(Ok(turn)) = turn.await else {
            return Err(Error::ConnectionLimitReached);
        };
        let connection = capture_connection(&mut request);
        let mut waiting = connection.clone();
        let connected = async { drop(waiting.wait_for_connection_metadata().await) };
        let response = self.client.pool().request(request);
        tokio::pin!(connected, response);
        let early = tokio::select! {
            biased;
            response = &mut response => Some(response),
            () = &mut connected => None,
            () = sleep(connect.saturating_sub(start.elapsed())) => return Err(Error::ConnectionTimeout),
        };
        let response = match early {
            Some(response) => response,
            None => timeout(first_byte, response)
                .await
                .map_err(|_elapsed| Error::ConnectionReadTimeout)?,
        };
        let response = response.map_err(|error| match causes(&error).find_map(dial::denied) {
            Some(denied) => {
                tracing::warn!(%denied, "denied");
                traffic.denied.get_or_init(|| denied.clone());
                Error::DestinationIpProhibited
            }
            None => explain(&error),
        })?;
        if closes_early(response.headers())
            && let Some(connection) = connection.connection_metadata().as_ref()
        {
            connection.poison();
        }
        // Not the path: its parameters say whose state it is.
        tracing::debug!(%method, authority, status = response.status().as_u16(), elapsed = ?start.elapsed(), "request");
        let most = self.client.limits.response;
        Ok(response.map(|body| LimitedBody::new(body, between_bytes, most, turn)))
    }
}

/// Whether the server closes idle connections before the pool does (`Keep-Alive: timeout=1`): then a request could meet the closing.
fn closes_early(headers: &HeaderMap) -> bool {
    headers
        .get_all("keep-alive")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|parameter| parameter.trim().strip_prefix("timeout="))
        .filter_map(|seconds| seconds.trim_matches('"').parse().ok())
        .any(|seconds| Duration::from_secs(seconds) <= POOL_IDLE)
}

/// The plugin tells by the kind of an error whether anything was sent, so a failure to connect must be
/// none of the kinds that come later.
fn explain(error: &legacy::Error) -> Error {
    tracing::debug!(error = error as &dyn StdError, "request failed");
    // With TLS 1.3 it comes after the first request was sent, of which the server has read nothing then.
    if let Some(alert) = causes(error).find_map(refused_certificate) {
        return Error::TlsAlertReceived {
            alert_id: Some(u8::from(alert)),
            alert_message: None,
        };
    }
    if !error.is_connect() {
        return match causes(error).find_map(|cause| cause.downcast_ref::<hyper::Error>()) {
            Some(cause) if cause.is_parse_too_large() => {
                Error::HttpResponseHeaderSectionSize(u32::try_from(LONGEST_HEAD).ok())
            }
            Some(cause) if cause.is_parse() => Error::HttpProtocolError,
            _ => Error::ConnectionTerminated,
        };
    }
    // It may be inside an error of the resolver.
    if let Some(denied) = causes(error).find_map(dial::denied) {
        tracing::warn!(%denied, "denied");
        return Error::DestinationIpProhibited;
    }
    for cause in causes(error) {
        if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
            return match tls {
                rustls::Error::InvalidCertificate(_) => Error::TlsCertificateError,
                _ => Error::TlsProtocolError,
            };
        }
        // The resolver's error has no type of its own.
        if cause.to_string().starts_with("dns error") {
            return Error::DnsError {
                rcode: None,
                info_code: None,
            };
        }
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            match io.kind() {
                io::ErrorKind::ConnectionRefused => return Error::ConnectionRefused,
                io::ErrorKind::TimedOut => return Error::ConnectionTimeout,
                // TLS errors travel inside one of the kind Other or InvalidData.
                _ => continue,
            }
        }
    }
    Error::DestinationUnavailable
}

/// What a server says that wants another certificate of its client, or any: its handshake has not come to an end.
fn refused_certificate(cause: &(dyn StdError + 'static)) -> Option<AlertDescription> {
    use AlertDescription::*;
    match cause.downcast_ref()? {
        rustls::Error::AlertReceived(
            alert @ (BadCertificate
            | UnsupportedCertificate
            | CertificateRevoked
            | CertificateExpired
            | CertificateUnknown
            | UnknownCA
            | AccessDenied
            | CertificateRequired),
        ) => Some(*alert),
        _ => None,
    }
}

/// An error and what caused it, through the layers, those inside an I/O error included.
fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| cause(error))
}

fn cause<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    match error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref)
    {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_closes_before_the_pool_does_is_heard() {
        for (value, early) in [
            ("timeout=1", true),
            ("timeout=2, max=100", true),
            ("max=100, timeout=\"0\"", true),
            ("timeout=3", false),
            ("timeout=10, max=9999", false),
            ("timeout=x", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("keep-alive", value.parse().unwrap());
            assert_eq!(closes_early(&headers), early, "{value}");
        }
        assert!(!closes_early(&HeaderMap::new()));
    }
}
