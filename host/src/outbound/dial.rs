//! Dialling: names are resolved once, what they stand for is checked, and the same addresses are dialled. So a name that stands
//! for another address a moment later (DNS rebinding) gains nothing.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service;

use crate::origin::Origin;
use crate::policy::{Denied, Policy};

type Boxed = Box<dyn StdError + Send + Sync>;
type Dialled<T> = Pin<Box<dyn Future<Output = Result<T, Boxed>> + Send>>;

/// What is beyond this machine: how names are resolved, and which of the addresses may be dialled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Network {
    pub(crate) policy: Arc<Policy>,
    pub(crate) resolve: Resolve,
}

type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// How names are resolved: by the operating system, unless somebody else is to be asked.
#[derive(Clone, Default)]
pub(crate) struct Resolve(Option<Arc<dyn Fn(String) -> Resolving + Send + Sync>>);

impl fmt::Debug for Resolve {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self.0 {
            None => "Resolve(system)",
            Some(_) => "Resolve(other)",
        })
    }
}

impl Resolve {
    pub(crate) fn by<F>(ask: impl Fn(String) -> F + Send + Sync + 'static) -> Resolve
    where
        F: Future<Output = io::Result<Vec<IpAddr>>> + Send + 'static,
    {
        Resolve(Some(Arc::new(move |name| Box::pin(ask(name)))))
    }

    async fn addresses(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        match &self.0 {
            Some(ask) => ask(name.to_owned()).await,
            None => {
                let found = tokio::net::lookup_host((name, 0)).await?;
                Ok(found.map(|address| address.ip()).collect())
            }
        }
    }
}

/// Opens TCP connections.
#[derive(Clone, Debug)]
pub(super) struct Dialer {
    pub(super) network: Network,
    /// For all addresses of a name together.
    pub(super) limit: Duration,
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<TcpStream>;
    type Error = Boxed;
    type Future = Dialled<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Boxed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Dialer { network, limit } = self.clone();
        Box::pin(async move {
            let Some(origin) = Origin::of_request(&uri) else {
                return Err("no origin".into());
            };
            // An address is dialled as it is, without the resolver below.
            network.policy.check_origin(&origin)?;
            let mut tcp = HttpConnector::new_with_resolver(Resolver { network, origin });
            tcp.enforce_http(false);
            tcp.set_connect_timeout(Some(limit));
            // A request is two writes, headers and body. Without this the second one waits for the
            // server's delayed acknowledgement of the first: 40 ms for each request.
            tcp.set_nodelay(true);
            Ok(tcp.call(uri).await?)
        })
    }
}

/// Resolves the name of one origin to the addresses that may be dialled for it.
#[derive(Clone)]
struct Resolver {
    network: Network,
    origin: Origin,
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Boxed;
    type Future = Dialled<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Boxed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let Resolver { network, origin } = self.clone();
        Box::pin(async move {
            let (mut allowed, mut denied) = (Vec::new(), None);
            for address in network.resolve.addresses(name.as_str()).await? {
                match network.policy.check_address(&origin, address) {
                    // The connector sets the port.
                    Ok(()) => allowed.push(SocketAddr::new(address, 0)),
                    Err(error) => denied = Some(error),
                }
            }
            match (allowed.is_empty(), denied) {
                (true, Some(denied)) => Err(Boxed::from(denied)),
                (true, None) => Err("the name stands for no address".into()),
                (false, _) => Ok(allowed.into_iter()),
            }
        })
    }
}

/// A connector that does not take longer than this, TLS handshake included.
#[derive(Clone)]
pub(super) struct Within<C> {
    pub(super) connector: C,
    pub(super) limit: Duration,
}

impl<C> Service<Uri> for Within<C>
where
    C: Service<Uri, Error = Boxed>,
    C::Future: Send + 'static,
    C::Response: Send,
{
    type Response = C::Response;
    type Error = Boxed;
    type Future = Dialled<C::Response>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Boxed>> {
        self.connector.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connected = timeout(self.limit, self.connector.call(uri));
        Box::pin(async move {
            match connected.await {
                Ok(connected) => connected,
                Err(_elapsed) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            }
        })
    }
}

/// Why an address was not dialled, if that is what an error is about.
pub(super) fn denied<'a>(cause: &'a (dyn StdError + 'static)) -> Option<&'a Denied> {
    cause.downcast_ref()
}
