//! What a plugin's HTTP requests go through: first the policy, then the pool.

mod body;
mod client;

use std::future::Future;

use http::{Request, Response};
use http_body_util::BodyExt;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

pub(crate) use client::Client;

use crate::origin::Origin;

/// The way out for one call: to one origin, or to none.
pub(crate) struct Outbound {
    allowed: Option<(Origin, Client)>,
    /// What the plugin asked for that it may not have: the first such request.
    denied: Option<String>,
}

impl Outbound {
    pub(crate) fn to(origin: Origin, client: Client) -> Outbound {
        Outbound {
            allowed: Some((origin, client)),
            denied: None,
        }
    }

    /// For calls that have nothing to reach.
    pub(crate) fn closed() -> Outbound {
        Outbound {
            allowed: None,
            denied: None,
        }
    }

    /// What was denied, and the origin that is allowed.
    pub(crate) fn into_denial(self) -> Option<(String, Option<String>)> {
        let allowed = self.allowed.map(|(origin, _)| origin.to_string());
        self.denied.map(|asked| (asked, allowed))
    }
}

type Io = Box<dyn Future<Output = Result<(), Error>> + Send>;

impl WasiHttpHooks for Outbound {
    /// A request says itself whether it is to be encrypted.
    fn default_scheme(&mut self) -> Option<http::uri::Scheme> {
        None
    }

    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _response_error: Io,
    ) -> Box<dyn Future<Output = Result<(Response<WasiBody>, Io), Error>> + Send> {
        let asked = Origin::of_request(request.uri());
        match &self.allowed {
            Some((origin, client)) if asked.as_ref() == Some(origin) => {
                let client = client.clone();
                Box::new(async move {
                    let response = client.send(request, options.unwrap_or_default()).await?;
                    Ok((response, Box::new(async { Ok(()) }) as Io))
                })
            }
            _ => {
                let asked = format!(
                    "{} {}",
                    request.method(),
                    asked.map_or("something that is not an HTTP origin".to_owned(), |o| o
                        .to_string())
                );
                tracing::warn!(%asked, "denied");
                self.denied.get_or_insert(asked);
                Box::new(deny(request))
            }
        }
    }
}

/// Reads the request's body to its end first: a plugin that still writes it would only see a closed stream.
async fn deny(request: Request<WasiBody>) -> Result<(Response<WasiBody>, Io), Error> {
    let mut body = request.into_body();
    while let Some(Ok(_)) = body.frame().await {}
    Err(Error::HttpRequestDenied)
}
