//! TLS in front of a server that speaks none, with certificates that are made for the test.

use crate::certificates::{Certificate, Certificates};
use crate::http2;
use rustls::crypto::ring;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::error::Error;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use tokio::io::{AsyncWriteExt, copy, copy_bidirectional, sink};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

/// Ends TLS on loopback and passes what is in it on to a server and back, until it is dropped, which closes all its
/// connections. It speaks TLS 1.2 and 1.3, and offers `http/1.1` alone, or HTTP/2 alone.
///
/// A connection that the server resets ends without TLS's farewell, so that a client can tell it from one that
/// the server has closed.
///
/// ```
/// use harness::{Certificate, Stub, TlsFront};
/// use ureq::tls::{RootCerts, TlsConfig};
/// let stub = Stub::start(|_| Some(Stub::ok(b"hello")))?;
/// let front = TlsFront::start(stub.address(), Certificate::Valid)?;
/// let ca = ureq::tls::Certificate::from_pem(front.ca_pem().as_bytes())?;
/// let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&[ca]));
/// let agent = ureq::Agent::config_builder().tls_config(tls.build()).build().new_agent();
/// for _ in 0..2 {
///     let mut answer = agent.get(format!("https://{}/", front.address())).call()?;
///     assert_eq!(answer.body_mut().read_to_string()?, "hello");
/// }
/// // The second request went over the connection of the first.
/// assert_eq!(front.handshakes(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TlsFront {
    address: SocketAddr,
    handshakes: Arc<AtomicUsize>,
    certificates: Certificates,
    /// Letting go of it ends the thread.
    end: Option<oneshot::Sender<()>>,
    running: Option<JoinHandle<()>>,
}

/// What is offered to clients.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

impl TlsFront {
    /// Starts one in front of a server. The server needn't be there yet.
    ///
    /// # Errors
    ///
    /// Where no port is free, or the system has no randomness.
    pub fn start(upstream: SocketAddr, certificate: Certificate) -> io::Result<TlsFront> {
        TlsFront::offering(Protocol::Http1, upstream, certificate)
    }

    /// Starts one that speaks HTTP/2 with its clients. With the server it speaks HTTP/1.1, a connection for each request.
    ///
    /// # Errors
    ///
    /// As for [`TlsFront::start`].
    pub fn http2(upstream: SocketAddr, certificate: Certificate) -> io::Result<TlsFront> {
        TlsFront::offering(Protocol::Http2, upstream, certificate)
    }

    fn offering(
        protocol: Protocol,
        upstream: SocketAddr,
        certificate: Certificate,
    ) -> io::Result<TlsFront> {
        let certificates = Certificates::make(certificate).map_err(io::Error::other)?;
        let config = config(protocol, certificate, &certificates).map_err(io::Error::other)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let handshakes = Arc::new(AtomicUsize::new(0));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()?;
        let (end, ended) = oneshot::channel();
        let running = thread::spawn({
            let handshakes = Arc::clone(&handshakes);
            move || {
                runtime.block_on(async {
                    tokio::spawn(accept(listener, (protocol, upstream), acceptor, handshakes));
                    // There is no message, only its end.
                    let _ = ended.await;
                });
            }
        });
        Ok(TlsFront {
            address,
            handshakes,
            certificates,
            end: Some(end),
            running: Some(running),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many handshakes have come to their end. One that either side refused is none.
    pub fn handshakes(&self) -> usize {
        self.handshakes.load(Ordering::SeqCst)
    }

    /// The certificate of the authority that clients should trust.
    pub fn ca_pem(&self) -> &str {
        &self.certificates.ca.pem
    }

    /// A client's certificate that [`Certificate::Mutual`] accepts.
    pub fn client_pem(&self) -> &str {
        &self.certificates.client.pem
    }

    /// Its key, as PKCS #8.
    pub fn client_key_pem(&self) -> &str {
        &self.certificates.client.key_pem
    }

    /// A client's certificate that [`Certificate::Mutual`] refuses: another authority has signed it.
    pub fn other_client_pem(&self) -> &str {
        &self.certificates.other_client.pem
    }

    /// Its key, as PKCS #8.
    pub fn other_client_key_pem(&self) -> &str {
        &self.certificates.other_client.key_pem
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(running) = self.running.take() {
            let _ = running.join();
        }
    }
}

async fn accept(
    listener: TcpListener,
    upstream: (Protocol, SocketAddr),
    acceptor: TlsAcceptor,
    handshakes: Arc<AtomicUsize>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        // A client that goes away is no fault of the test.
        let Ok((client, _)) = listener.accept().await else {
            continue;
        };
        tokio::spawn(serve(
            client,
            upstream,
            acceptor.clone(),
            Arc::clone(&handshakes),
        ));
    }
}

async fn serve(
    client: TcpStream,
    (protocol, upstream): (Protocol, SocketAddr),
    acceptor: TlsAcceptor,
    handshakes: Arc<AtomicUsize>,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut client = match acceptor.accept(client).into_fallible().await {
        Ok(client) => client,
        Err((_, mut client)) => {
            // The client learns why from the alert, which a reset could cost it: so it closes first.
            client.shutdown().await?;
            return copy(&mut client, &mut sink()).await.map(drop);
        }
    };
    handshakes.fetch_add(1, Ordering::SeqCst);
    if protocol == Protocol::Http2 {
        return http2::serve(client, upstream).await;
    }
    let Ok(mut server) = TcpStream::connect(upstream).await else {
        return client.shutdown().await;
    };
    server.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}

fn config(
    protocol: Protocol,
    kind: Certificate,
    certificates: &Certificates,
) -> Result<ServerConfig, Box<dyn Error + Send + Sync>> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let builder = match kind {
        Certificate::Mutual => {
            let mut roots = RootCertStore::empty();
            roots.add(certificates.ca.certificate.clone())?;
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
            builder.with_client_cert_verifier(verifier)
        }
        _ => builder.with_no_client_auth(),
    };
    let server = &certificates.server;
    let key = PrivatePkcs8KeyDer::from(server.key.clone());
    let mut config = builder.with_single_cert(vec![server.certificate.clone()], key.into())?;
    config.alpn_protocols = vec![match protocol {
        Protocol::Http1 => b"http/1.1".to_vec(),
        Protocol::Http2 => b"h2".to_vec(),
    }];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Behaviour, Hostile, Stub};
    use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
    use rustls::{ClientConfig, ClientConnection, Stream};
    use std::io::{Read, Write};
    use std::time::Duration;
    use ureq::Agent;
    use ureq::tls::{ClientCert, PrivateKey, RootCerts, TlsConfig};

    fn hello() -> Stub {
        Stub::start(|_| Some(Stub::ok(b"hello"))).unwrap()
    }

    fn parse(pem: &str) -> ureq::tls::Certificate<'static> {
        ureq::tls::Certificate::from_pem(pem.as_bytes()).unwrap()
    }

    /// A client that trusts the test's authority, perhaps with a certificate and its key.
    fn agent(front: &TlsFront, own: Option<(&str, &str)>) -> Agent {
        let own = own.map(|(certificate, key)| {
            let key = PrivateKey::from_pem(key.as_bytes()).unwrap();
            ClientCert::new_with_certs(&[parse(certificate)], key)
        });
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::new_with_certs(&[parse(front.ca_pem())]))
            .client_cert(own)
            .build();
        Agent::config_builder()
            .tls_config(tls)
            // A front that hangs fails a test rather than to hang it.
            .timeout_global(Some(Duration::from_secs(10)))
            .build()
            .new_agent()
    }

    fn get(agent: &Agent, front: &TlsFront, host: &str) -> Result<Vec<u8>, ureq::Error> {
        let url = format!("https://{host}:{}/", front.address().port());
        agent.get(url).call()?.body_mut().read_to_vec()
    }

    /// A connection below HTTP.
    fn connect(front: &TlsFront, protocols: &[&[u8]]) -> (ClientConnection, std::net::TcpStream) {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(front.ca_pem().as_bytes()).unwrap())
            .unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let name = ServerName::try_from("localhost").unwrap();
        let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = std::net::TcpStream::connect(front.address()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        stream.set_nodelay(true).unwrap();
        connection.complete_io(&mut stream).unwrap();
        (connection, stream)
    }

    #[test]
    fn a_valid_certificate_is_taken_for_the_name_and_for_the_address() {
        let stub = hello();
        let front = TlsFront::start(stub.address(), Certificate::Valid).unwrap();
        for (count, host) in [(1, "localhost"), (2, "127.0.0.1")] {
            let agent = agent(&front, None);
            // The second request takes no handshake.
            for _ in 0..2 {
                assert_eq!(get(&agent, &front, host).unwrap(), b"hello");
                assert_eq!(front.handshakes(), count);
            }
        }
    }

    #[test]
    fn bad_certificates_are_refused_for_what_is_bad_about_them() {
        let stub = hello();
        for (certificate, reason) in [
            (Certificate::Expired, "expired"),
            (Certificate::WrongName, "not valid for name"),
            (Certificate::UnknownAuthority, "UnknownIssuer"),
            (Certificate::SelfSigned, "UnknownIssuer"),
        ] {
            let front = TlsFront::start(stub.address(), certificate).unwrap();
            let error = get(&agent(&front, None), &front, "localhost").unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
            assert_eq!(front.handshakes(), 0);
        }
        assert!(stub.received().is_empty());
    }

    #[test]
    fn a_client_needs_a_certificate_of_the_authority_where_one_is_asked_for() {
        let stub = hello();
        let front = TlsFront::start(stub.address(), Certificate::Mutual).unwrap();
        let other = (front.other_client_pem(), front.other_client_key_pem());
        for (own, reason) in [(None, "CertificateRequired"), (Some(other), "UnknownCA")] {
            let error = get(&agent(&front, own), &front, "localhost").unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
            assert_eq!((front.handshakes(), stub.received().len()), (0, 0));
        }
        let agent = agent(&front, Some((front.client_pem(), front.client_key_pem())));
        assert_eq!(get(&agent, &front, "localhost").unwrap(), b"hello");
        assert_eq!((front.handshakes(), stub.received().len()), (1, 1));
    }

    #[test]
    fn bytes_pass_unchanged_both_ways_up_to_their_end() {
        // The server sends back whatever it gets, as it gets it.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut reader, _) = listener.accept().unwrap();
            reader.set_nodelay(true).unwrap();
            let mut writer = reader.try_clone().unwrap();
            io::copy(&mut reader, &mut writer).unwrap();
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let front = TlsFront::start(address, Certificate::Valid).unwrap();
        let (mut connection, mut stream) = connect(&front, &[]);
        let piece: Vec<_> = (0..=u8::MAX).cycle().take(40_000).collect();
        let mut got = vec![0; piece.len()];
        let mut stream = Stream::new(&mut connection, &mut stream);
        for _ in 0..50 {
            stream.write_all(&piece).unwrap();
            stream.read_exact(&mut got).unwrap();
            assert!(got == piece);
        }
        stream.conn.send_close_notify();
        // The end passes as well, and comes back.
        assert_eq!(stream.read(&mut got).unwrap(), 0);
    }

    #[test]
    fn only_http_1_is_offered() {
        let stub = hello();
        let front = TlsFront::start(stub.address(), Certificate::Valid).unwrap();
        let (connection, _) = connect(&front, &[b"h2", b"http/1.1"]);
        assert_eq!(connection.alpn_protocol(), Some(&b"http/1.1"[..]));
        let (connection, _) = connect(&front, &[]);
        assert_eq!(connection.alpn_protocol(), None);
    }

    #[test]
    fn a_reset_or_missing_server_ends_the_connection() {
        let hostile = Hostile::start(Behaviour::Reset).unwrap();
        let front = TlsFront::start(hostile.address(), Certificate::Valid).unwrap();
        let (mut connection, mut stream) = connect(&front, &[]);
        let mut stream = Stream::new(&mut connection, &mut stream);
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let error = stream.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);

        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
        let front = TlsFront::start(nobody.unwrap(), Certificate::Valid).unwrap();
        let (mut connection, mut stream) = connect(&front, &[]);
        let mut stream = Stream::new(&mut connection, &mut stream);
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn a_dropped_front_has_closed_its_connections_and_its_port() {
        let hostile = Hostile::start(Behaviour::Silent).unwrap();
        let front = TlsFront::start(hostile.address(), Certificate::Valid).unwrap();
        let address = front.address();
        let (_connection, mut stream) = connect(&front, &[]);
        // One in its handshake, too.
        let mut early = std::net::TcpStream::connect(address).unwrap();
        drop(front);
        for stream in [&mut stream, &mut early] {
            let _ = stream.read_to_end(&mut Vec::new());
            assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
        }
        let error = std::net::TcpStream::connect(address).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
