//! The HTTP client: one pool of connections for each backend.

use std::error::Error as StdError;
use std::io;
use std::time::{Duration, Instant};

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody};

use super::body::TimedBody;

/// A connection that was idle for longer is not used again. ClickHouse as shipped closes one after 3 s,
/// and a request that meets the closing fails, though it may have been sent.
const POOL_IDLE: Duration = Duration::from_secs(2);
/// How long connecting to one address may take at most.
const CONNECT: Duration = Duration::from_secs(10);
/// What a plugin that sets no time-outs gets. It must be shorter than the deadline of a call to be seen at all.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Cheap to clone; clones share the pool.
#[derive(Clone)]
pub(crate) struct Client(legacy::Client<HttpsConnector<HttpConnector>, WasiBody>);

impl Client {
    pub(crate) fn new() -> Result<Client, rustls::Error> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT));
        // A request is two writes, headers and body. Without this the second one waits for the
        // server's delayed acknowledgement of the first: 40 ms for each request.
        tcp.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(rustls::crypto::ring::default_provider())?
            .https_or_http()
            .enable_http1()
            .enable_http2()
            .wrap_connector(tcp);
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .build(connector);
        Ok(Client(client))
    }

    /// Sends one request. Only one of which nothing was sent, because the pooled connection turned out to be
    /// closed, is sent again on another connection.
    pub(crate) async fn send(
        &self,
        request: Request<WasiBody>,
        options: RequestOptions,
    ) -> Result<Response<WasiBody>, Error> {
        let until_head = options.connect_timeout.unwrap_or(CONNECT)
            + options.first_byte_timeout.unwrap_or(DEFAULT_TIMEOUT);
        let between_bytes = options.between_bytes_timeout.unwrap_or(DEFAULT_TIMEOUT);
        let start = Instant::now();
        let method = request.method().clone();
        let authority = request.uri().authority().map(ToString::to_string);
        let response = tokio::time::timeout(until_head, self.0.request(request))
            .await
            .map_err(|_elapsed| Error::ConnectionReadTimeout)?
            .map_err(|error| explain(&error))?;
        // Not the path: its parameters say whose state it is.
        tracing::debug!(%method, authority, status = response.status().as_u16(), elapsed = ?start.elapsed(), "request");
        Ok(response.map(|body| TimedBody::new(body, between_bytes).boxed_unsync()))
    }
}

/// The plugin tells by the kind of an error whether anything was sent, so a failure to connect must be
/// none of the kinds that come later.
fn explain(error: &legacy::Error) -> Error {
    tracing::debug!(error = error as &dyn StdError, "request failed");
    if !error.is_connect() {
        return Error::ConnectionTerminated;
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
