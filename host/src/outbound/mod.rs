//! What a plugin's HTTP requests go through: first the policy, then the pool.

mod body;
mod client;
mod dial;
mod tls;

use std::collections::HashSet;
use std::future::Future;
use std::sync::{Arc, LazyLock};

use http::header::{AUTHORIZATION, HeaderName};
use http::{HeaderValue, Method, Request, Response};
use http_body_util::BodyExt;
use tokio::sync::Semaphore;
use wasmtime_wasi_http::{
    DEFAULT_FORBIDDEN_HEADERS, Error, RequestOptions, WasiBody, WasiHttpHooks,
};

pub(crate) use body::Traffic;
pub(crate) use client::{Client, Limits, Route};
pub(crate) use dial::{Network, Resolve};
pub use tls::Tls;

use crate::origin::Origin;

/// How many requests of one call are on their way at once. A plugin waits for each, as a rule; one that sends and does not wait
/// must not take all connections of its neighbours.
const REQUESTS_AT_ONCE: usize = 8;

/// The way out for one call: to one origin, or to none.
pub(crate) struct Outbound {
    allowed: Option<Arc<Allowed>>,
    /// What the plugin asked for that it may not have: the first such request.
    denied: Option<String>,
    turns: Arc<Semaphore>,
    traffic: Arc<Traffic>,
}

/// Where a call may go, and as whom.
pub(crate) struct Allowed {
    pub(crate) origin: Origin,
    pub(crate) route: Route,
    /// Whether the header `Authorization` is the host's.
    pub(crate) sealed: bool,
    pub(crate) authorization: Option<HeaderValue>,
}

impl Outbound {
    pub(crate) fn to(allowed: &Arc<Allowed>) -> Outbound {
        Outbound {
            allowed: Some(Arc::clone(allowed)),
            ..Outbound::closed()
        }
    }

    /// For calls that have nothing to reach.
    pub(crate) fn closed() -> Outbound {
        Outbound {
            allowed: None,
            denied: None,
            turns: Arc::new(Semaphore::new(REQUESTS_AT_ONCE)),
            traffic: Arc::default(),
        }
    }

    /// What was denied, and the origin that is allowed.
    pub(crate) fn into_denial(self) -> Option<(String, Option<String>)> {
        let allowed = self.allowed.map(|allowed| allowed.origin.to_string());
        self.denied.map(|asked| (asked, allowed))
    }

    pub(crate) fn traffic(&self) -> Arc<Traffic> {
        Arc::clone(&self.traffic)
    }

    fn deny(&mut self, request: Request<WasiBody>, asked: String) -> Sent {
        tracing::warn!(%asked, "denied");
        self.denied.get_or_insert(asked);
        Box::new(refuse(request, Error::HttpRequestDenied))
    }
}

type Io = Box<dyn Future<Output = Result<(), Error>> + Send>;
type Sent = Box<dyn Future<Output = Result<(Response<WasiBody>, Io), Error>> + Send>;

/// Those of requests to a store: no tunnels, no echoes, and no words of which a server or a proxy may think its own.
const METHODS: [Method; 7] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
];

/// Headers that say who sends a request and on what way it came: the host's to say, beside those that wasmtime knows.
static HOSTS_OWN: LazyLock<HashSet<HeaderName>> = LazyLock::new(|| {
    let names = [
        "forwarded",
        "via",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-proto",
        "x-forwarded-server",
        "x-real-ip",
        "te",
        "trailer",
        "expect",
        "cookie",
    ]
    .map(HeaderName::from_static);
    names
        .into_iter()
        .chain(DEFAULT_FORBIDDEN_HEADERS.iter().cloned())
        .collect()
});

impl WasiHttpHooks for Outbound {
    fn forbidden_header_filter(&mut self) -> Arc<dyn Fn(&HeaderName) -> bool + Send + Sync> {
        Arc::new(|name| HOSTS_OWN.contains(name))
    }

    /// A request says itself whether it is to be encrypted.
    fn default_scheme(&mut self) -> Option<http::uri::Scheme> {
        None
    }

    fn send_request(
        &mut self,
        mut request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _response_error: Io,
    ) -> Sent {
        let asked = Origin::of_request(request.uri());
        let named = |what: &str| format!("{} {what}", request.method());
        let allowed = match (&self.allowed, &asked) {
            (Some(allowed), Some(origin)) if allowed.origin == *origin => allowed,
            (_, Some(origin)) => {
                let asked = named(&origin.to_string());
                return self.deny(request, asked);
            }
            (_, None) => {
                let asked = named("something that is not an HTTP origin");
                return self.deny(request, asked);
            }
        };
        // What a proxy or a server could read as another request than this one.
        if !request.uri().path().starts_with('/') || !METHODS.contains(request.method()) {
            let asked = named(&format!("{} in a form that is not allowed", allowed.origin));
            return self.deny(request, asked);
        }
        if allowed.sealed {
            request.headers_mut().remove(AUTHORIZATION);
            if let Some(value) = &allowed.authorization {
                request.headers_mut().insert(AUTHORIZATION, value.clone());
            }
        }
        let route = allowed.route.clone();
        // Given back when the response has been read, or let go.
        let Ok(turn) = Arc::clone(&self.turns).try_acquire_owned() else {
            return Box::new(refuse(request, Error::ConnectionLimitReached));
        };
        let traffic = Arc::clone(&self.traffic);
        Box::new(async move {
            let request = traffic.count(request);
            let response = route
                .send(request, options.unwrap_or_default(), &traffic)
                .await?
                .map(|body| body.counted(traffic, turn).boxed_unsync());
            Ok((response, Box::new(async { Ok(()) }) as Io))
        })
    }
}

/// Reads the request's body to its end first: a plugin that still writes it would only see a closed stream.
async fn refuse(
    request: Request<WasiBody>,
    error: Error,
) -> Result<(Response<WasiBody>, Io), Error> {
    let mut body = request.into_body();
    while let Some(Ok(_)) = body.frame().await {}
    Err(error)
}
