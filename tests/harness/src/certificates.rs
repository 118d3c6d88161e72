//! Certificates that are made for a test, good ones and bad ones, each with a new key.

#[cfg(doc)]
use crate::TlsFront;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, Error, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::CertificateDer;

/// What a [`TlsFront`] shows of itself, and wants to see of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// For `localhost` and 127.0.0.1, of the authority that [`TlsFront::ca_pem`] gives.
    Valid,
    /// As the valid one, but over since 2001.
    Expired,
    /// As the valid one, but for `other.example`.
    WrongName,
    /// As the valid one, but of another authority.
    UnknownAuthority,
    /// As the valid one, but signed with its own key.
    SelfSigned,
    /// The valid one, and clients must show one too: that of [`TlsFront::client_pem`].
    Mutual,
}

/// All that has to do with a front.
pub(crate) struct Certificates {
    pub(crate) ca: Identity,
    pub(crate) server: Identity,
    pub(crate) client: Identity,
    pub(crate) other_client: Identity,
}

impl Certificates {
    pub(crate) fn make(kind: Certificate) -> Result<Certificates, Error> {
        let ca = authority("the authority of the test")?;
        let other = authority("another authority")?;
        Ok(Certificates {
            ca: Identity::new(ca.as_ref(), ca.key()),
            server: server(kind, &ca, &other)?,
            client: client(&ca)?,
            other_client: client(&other)?,
        })
    }
}

/// A certificate and its key.
pub(crate) struct Identity {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) pem: String,
    /// As PKCS #8.
    pub(crate) key: Vec<u8>,
    pub(crate) key_pem: String,
}

impl Identity {
    fn new(certificate: &rcgen::Certificate, key: &KeyPair) -> Identity {
        Identity {
            certificate: certificate.der().clone(),
            pem: certificate.pem(),
            key: key.serialize_der(),
            key_pem: key.serialize_pem(),
        }
    }
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Result<Authority, Error> {
    let mut params = params(name, &[])?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Authority::self_signed(params, KeyPair::generate()?)
}

fn server(kind: Certificate, ca: &Authority, other: &Authority) -> Result<Identity, Error> {
    let hosts = match kind {
        Certificate::WrongName => &["other.example"][..],
        _ => &["localhost", "127.0.0.1"],
    };
    let mut params = params("server", hosts)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    if kind == Certificate::Expired {
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(2001, 1, 1);
    }
    let key = KeyPair::generate()?;
    let certificate = match kind {
        Certificate::SelfSigned => params.self_signed(&key)?,
        Certificate::UnknownAuthority => params.signed_by(&key, other)?,
        _ => params.signed_by(&key, ca)?,
    };
    Ok(Identity::new(&certificate, &key))
}

fn client(ca: &Authority) -> Result<Identity, Error> {
    let mut params = params("client", &[])?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate()?;
    Ok(Identity::new(&params.signed_by(&key, ca)?, &key))
}

/// The names tell the authorities apart: with the same one, a client would find a bad signature and no unknown issuer.
fn params(name: &str, hosts: &[&str]) -> Result<CertificateParams, Error> {
    let hosts: Vec<_> = hosts.iter().copied().map(String::from).collect();
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}
