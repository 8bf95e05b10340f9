//! Certificates for tests.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::BOUND;

/// A client's connection by TLS.
pub type Tls = StreamOwned<ClientConnection, TcpStream>;

/// Connects to a server of this machine, and believes the authority of a folder; shows the certificate of that name.
pub fn connect(address: &str, folder: &Path, own: Option<&str>) -> Tls {
    let pem = fs::read(folder.join("authority.pem")).expect("a file");
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(&pem).expect("a certificate"))
        .expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let read = |end: &str| fs::read(folder.join(format!("{name}.{end}"))).expect("a file");
            let certificate = CertificateDer::from_pem_slice(&read("pem")).expect("a certificate");
            let key = PrivateKeyDer::from_pem_slice(&read("key")).expect("a key");
            builder
                .with_client_auth_cert(vec![certificate], key)
                .expect("a certificate")
        }
    };
    let name = "127.0.0.1".try_into().expect("a name");
    let socket = TcpStream::connect(address).expect("it listens");
    socket.set_read_timeout(Some(BOUND)).expect("a bound");
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).expect("a client"), socket)
}

/// An authority, whose certificate is in `authority.pem`.
pub struct Authority(Issuer<'static, KeyPair>);

impl Authority {
    pub fn new(folder: &Path) -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate");
        fs::write(folder.join("authority.pem"), certificate.pem()).expect("a file");
        Authority(Issuer::new(params, key))
    }

    /// A certificate for this machine, in `NAME.pem` and `NAME.key`, valid in these years.
    pub fn sign(&self, folder: &Path, name: &str, years: [i32; 2]) {
        let key = KeyPair::generate().expect("a key");
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("names");
        [params.not_before, params.not_after] = years.map(|year| rcgen::date_time_ymd(year, 1, 1));
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        fs::write(folder.join(format!("{name}.pem")), certificate.pem()).expect("a file");
        let file = folder.join(format!("{name}.key"));
        fs::write(&file, key.serialize_pem()).expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("a file of this user");
    }
}
