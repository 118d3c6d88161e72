//! Whom HTTPS connections trust, and how they identify themselves.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::Error;

/// Whom HTTPS connections trust, and how they identify themselves: by default the certificate authorities of Mozilla's list
/// (`webpki-roots`), and not at all.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let front = harness::TlsFront::start("127.0.0.1:1".parse()?, harness::Certificate::Valid)?;
/// # let (ca, chain, key) = (front.ca_pem(), front.client_pem(), front.client_key_pem());
/// use pipeline_state::{Plugins, Tls};
///
/// let tls = Tls::new().authority(ca)?.client_certificate(chain, key)?;
/// let builder = Plugins::builder().tls(tls);
/// # let _ = builder;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Tls {
    only_given: bool,
    native: bool,
    authorities: Vec<CertificateDer<'static>>,
    client: Option<Arc<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>>,
}

impl Tls {
    /// Mozilla's list, and no client certificate.
    pub fn new() -> Tls {
        Tls::default()
    }

    /// Trusts the certificate authorities of the operating system too.
    pub fn native_roots(mut self) -> Tls {
        self.native = true;
        self
    }

    /// Leaves Mozilla's list out: only those are trusted that are named otherwise.
    pub fn without_public_roots(mut self) -> Tls {
        self.only_given = true;
        self
    }

    /// Trusts a certificate authority too: one or more certificates as PEM.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] where there is none in it.
    pub fn authority(mut self, pem: &str) -> Result<Tls, Error> {
        self.authorities.extend(certificates(pem)?);
        Ok(self)
    }

    /// Likewise, from a file.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] where it can't be read, or holds no certificate.
    pub fn authority_file(self, path: impl AsRef<Path>) -> Result<Tls, Error> {
        let path = path.as_ref();
        in_file(path, |pem| self.authority(&pem))
    }

    /// Identifies itself with a certificate where a server asks for one: the chain, its own first, and the key, both as PEM.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] where there is no certificate or no key. Whether they fit shows when plugins are loaded.
    pub fn client_certificate(mut self, chain_pem: &str, key_pem: &str) -> Result<Tls, Error> {
        let chain = certificates(chain_pem)?;
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(|_| {
            Error::InvalidInput("there is no private key, as PEM without a password".to_owned())
        })?;
        self.client = Some(Arc::new((chain, key)));
        Ok(self)
    }

    /// Likewise, from two files.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] where one can't be read, or does not hold what it should.
    pub fn client_certificate_files(
        self,
        chain: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Result<Tls, Error> {
        let (chain, key) = (chain.as_ref(), key.as_ref());
        in_file(chain, |chain| {
            in_file(key, |key| self.client_certificate(&chain, &key))
        })
    }

    /// Made once for all connections: it takes some milliseconds.
    pub(crate) fn config(&self) -> Result<ClientConfig, Error> {
        let invalid = |what: String| Error::InvalidInput(format!("TLS can't be used so: {what}"));
        let mut roots = RootCertStore::empty();
        if !self.only_given {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        if self.native {
            let found = rustls_native_certs::load_native_certs();
            for error in &found.errors {
                tracing::warn!(%error, "a certificate authority of the system is left out");
            }
            roots.add_parsable_certificates(found.certs);
        }
        for certificate in &self.authorities {
            roots
                .add(certificate.clone())
                .map_err(|error| invalid(error.to_string()))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid(error.to_string()))?
            .with_root_certificates(roots);
        match &self.client {
            None => Ok(config.with_no_client_auth()),
            Some(client) => config
                .with_client_auth_cert(client.0.clone(), client.1.clone_key())
                .map_err(|error| invalid(error.to_string())),
        }
    }
}

/// It tells nothing of a key.
impl std::fmt::Debug for Tls {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Tls")
            .field("public_roots", &!self.only_given)
            .field("native_roots", &self.native)
            .field("authorities", &self.authorities.len())
            .field("client_certificate", &self.client.is_some())
            .finish()
    }
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(Error::InvalidInput(
            "there is no certificate as PEM (-----BEGIN CERTIFICATE-----)".to_owned(),
        )),
    }
}

fn in_file<T>(path: &Path, read: impl FnOnce(String) -> Result<T, Error>) -> Result<T, Error> {
    let named = |what: String| Error::InvalidInput(format!("{}: {what}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
    read(text).map_err(|error| match error {
        Error::InvalidInput(what) => named(what),
        other => other,
    })
}
