//! The certificates of a server, and of a program that dials others: read, checked, and reloaded while it runs.
//!
//! rustls speaks TLS 1.2 and 1.3, with the cryptography of ring. Open connections keep the certificate that they began
//! with; new ones get the newest.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

/// The largest file of certificates or keys, in bytes.
const FILE_MAX: u64 = 1 << 20;
/// The most bytes of replies that a connection has encrypted but not sent.
pub(crate) const UNSENT_MAX: usize = 16 << 10;

/// The files of a server's certificate, and whether its clients need one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate first, then those between it and its authority, in PEM.
    pub certificate: PathBuf,
    /// Private key of the certificate, in PEM.
    pub key: PathBuf,
    /// Authorities, in PEM. If given, each client needs a certificate of one of them, and so does each server that is
    /// dialled.
    pub clients: Option<PathBuf>,
}

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file holds no PEM block of the expected kind.
    #[error("{path}: there is no {wanted} in it: expected PEM, `-----BEGIN ..`")]
    Missing {
        /// The file without the block.
        path: PathBuf,
        /// The kind of block, for the message.
        wanted: &'static str,
    },
    /// A key is no secret on this machine.
    #[error("{path}: other users of this machine may read this key: chmod o= {path}")]
    Exposed {
        /// The file of the key.
        path: PathBuf,
    },
    /// The certificate's validity has ended.
    #[error("{path}: the certificate expired {days} days ago: renew it, or set this machine's clock")]
    Expired {
        /// The file of the certificate.
        path: PathBuf,
        /// Days since the certificate expired.
        days: i64,
    },
    /// The certificate's validity has not begun.
    #[error("{path}: the certificate is valid in {days} days only: set this machine's clock")]
    NotYet {
        /// The file of the certificate.
        path: PathBuf,
        /// Days until the certificate becomes valid, rounded up.
        days: i64,
    },
    /// A file cannot be read, or rustls refused its content.
    #[error("{path}: {what}")]
    Refused {
        /// The file that was refused.
        path: PathBuf,
        /// The error of the system or of rustls.
        what: String,
    },
}

/// The certificate of a server, which can be reloaded.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    config: Arc<ServerConfig>,
    /// Configuration for dialling others, if authorities are given.
    dials: Option<Arc<ClientConfig>>,
    /// State of the files when they were read.
    stamps: Vec<Stamp>,
}

/// Time of a file's last change, and its length; `None` if unknown.
type Stamp = Option<(SystemTime, u64)>;

impl Tls {
    /// Reads and checks the files.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn load(files: TlsFiles, now: SystemTime) -> Result<Tls, TlsError> {
        let current = Mutex::new(read_all(&files, now)?);
        Ok(Tls { files, current })
    }

    /// Reads the files again. If that fails, the former certificate stays.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn reload(&self, now: SystemTime) -> Result<(), TlsError> {
        self.reload_by(|files| read_all(files, now))
    }

    fn reload_by(&self, read: impl FnOnce(&TlsFiles) -> Result<Current, TlsError>) -> Result<(), TlsError> {
        // Taken before reading, so that a change during the reading leads to another one.
        let before = stamps(&self.files);
        let read = read(&self.files);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(read) => *current = read,
            Err(error) => {
                // A failed read is not repeated before the files change again.
                current.stamps = before;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether a file has changed since it was read.
    pub fn has_changed(&self) -> bool {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        stamps(&self.files) != current.stamps
    }

    /// Begins a connection to the server `name`: shows this certificate, and requires one of these authorities.
    ///
    /// # Errors
    /// No authorities are given, or `name` is neither a name nor an address.
    pub fn dial(&self, name: &str) -> Result<ClientConnection, rustls::Error> {
        let config = self
            .current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .dials
            .clone();
        let config = config.ok_or_else(|| rustls::Error::General("there are no authorities to believe".into()))?;
        connect(config, name)
    }

    /// Begins a connection with a client that has connected.
    ///
    /// # Errors
    /// An error of rustls.
    pub fn begin(&self) -> Result<ServerConnection, rustls::Error> {
        let config = Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner).config);
        let mut connection = ServerConnection::new(config)?;
        connection.set_buffer_limit(Some(UNSENT_MAX));
        Ok(connection)
    }
}

/// Dials others on behalf of a program that is no server: trusts one authority, and shows a certificate if it has one.
#[derive(Clone, Debug)]
pub struct Dialler(Arc<ClientConfig>);

impl Dialler {
    /// Reads and checks the file of the authority, and a certificate with its key.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn load(authority: &Path, own: Option<(&Path, &Path)>, now: SystemTime) -> Result<Dialler, TlsError> {
        let roots = Arc::new(roots(authority)?);
        let own = own.map(|(certificate, key)| Ok((shown(certificate, now)?, private_key(key)?)));
        let config = dialling(roots, own.transpose()?).map_err(|error| TlsError::Refused {
            path: authority.into(),
            what: error.to_string(),
        })?;
        Ok(Dialler(Arc::new(config)))
    }

    /// Begins a connection to the server `name`.
    ///
    /// # Errors
    /// `name` is neither a name nor an address.
    pub fn dial(&self, name: &str) -> Result<ClientConnection, rustls::Error> {
        connect(Arc::clone(&self.0), name)
    }
}

fn connect(config: Arc<ClientConfig>, name: &str) -> Result<ClientConnection, rustls::Error> {
    let name = ServerName::try_from(name.to_owned());
    let name = name.map_err(|_| rustls::Error::General("no name of a server, and no address".into()))?;
    let mut connection = ClientConnection::new(config, name)?;
    connection.set_buffer_limit(Some(UNSENT_MAX));
    Ok(connection)
}

type Own = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn dialling(roots: Arc<RootCertStore>, own: Option<Own>) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    match own {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key),
        None => Ok(builder.with_no_client_auth()),
    }
}

fn paths(files: &TlsFiles) -> impl Iterator<Item = &Path> {
    let both = [files.certificate.as_path(), files.key.as_path()];
    both.into_iter().chain(files.clients.as_deref())
}

fn stamps(files: &TlsFiles) -> Vec<Stamp> {
    let stamp = |path: &Path| {
        let found = fs::metadata(path).ok()?;
        Some((found.modified().ok()?, found.len()))
    };
    paths(files).map(stamp).collect()
}

fn bytes(path: &Path) -> Result<Vec<u8>, TlsError> {
    let refused = |why| TlsError::Refused {
        path: path.into(),
        what: format!("cannot be read: {why}; name a file in PEM that this user may read"),
    };
    let found = fs::metadata(path).map_err(refused)?;
    if !found.is_file() || found.len() > FILE_MAX {
        let what = format!("expected a file of at most {FILE_MAX} bytes");
        return Err(refused(std::io::Error::other(what)));
    }
    fs::read(path).map_err(refused)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = bytes(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(TlsError::Missing {
            path: path.into(),
            wanted: "certificate",
        }),
    }
}

/// Reads a chain of certificates: the program's own first, then those between it and its authority.
fn shown(path: &Path, now: SystemTime) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = certificates(path)?;
    check_time(path, &chain[0], now)?;
    Ok(chain)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    if fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o007 != 0) {
        return Err(TlsError::Exposed { path: path.into() });
    }
    PrivateKeyDer::from_pem_slice(&bytes(path)?).map_err(|_| TlsError::Missing {
        path: path.into(),
        wanted: "private key",
    })
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(path)? {
        roots.add(authority).map_err(|error| TlsError::Refused {
            path: path.into(),
            what: error.to_string(),
        })?;
    }
    Ok(roots)
}

fn read_all(files: &TlsFiles, now: SystemTime) -> Result<Current, TlsError> {
    // Taken before the contents are read, so that a change in between is noticed.
    let stamps = stamps(files);
    let chain = shown(&files.certificate, now)?;
    let key = private_key(&files.key)?;
    let refused = |path: &Path| {
        let path = path.to_path_buf();
        move |what: String| TlsError::Refused { path, what }
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(&files.certificate)(error.to_string()))?;
    let (builder, roots) = match &files.clients {
        None => (builder.with_no_client_auth(), None),
        Some(path) => {
            let roots = Arc::new(roots(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider)
                .build()
                .map_err(|error| refused(path)(error.to_string()))?;
            (builder.with_client_cert_verifier(verifier), Some(roots))
        }
    };
    let unfit = |error: rustls::Error| {
        let what = format!("certificate and key do not belong together, or cannot be used: {error}");
        refused(&files.key)(what)
    };
    let config = builder
        .with_single_cert(chain.clone(), key.clone_key())
        .map_err(unfit)?;
    let dials = |roots| dialling(roots, Some((chain, key)));
    Ok(Current {
        config: Arc::new(config),
        dials: roots.map(dials).transpose().map_err(unfit)?.map(Arc::new),
        stamps,
    })
}

/// Checks the validity at the start: clients would refuse the certificate later, each with another message. rustls
/// compares the times before it looks for an authority, of which it is given none; all else that is wrong with the
/// certificate is left to the configuration and the connections.
fn check_time(path: &Path, certificate: &CertificateDer<'_>, now: SystemTime) -> Result<(), TlsError> {
    const DAY: u64 = 86_400;
    let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default());
    let roots = RootCertStore::empty();
    let verified = ParsedCertificate::try_from(certificate)
        .and_then(|parsed| verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], now, &[]));
    let days = |from: UnixTime, to: UnixTime| (to.as_secs().saturating_sub(from.as_secs()) / DAY) as i64;
    let path = path.to_path_buf();
    match verified {
        Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { time, not_after })) => {
            let days = days(not_after, time);
            Err(TlsError::Expired { path, days })
        }
        Err(rustls::Error::InvalidCertificate(CertificateError::NotValidYetContext { time, not_before })) => {
            let days = days(time, not_before) + 1;
            Err(TlsError::NotYet { path, days })
        }
        // Times in the wrong order, or that are no times.
        Err(
            error @ rustls::Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::NotValidYet | CertificateError::BadEncoding,
            ),
        ) => Err(TlsError::Refused {
            path,
            what: error.to_string(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A server's certificate for a day of this century, and its authority's.
    pub(crate) struct TestCertificate {
        pub tls: Tls,
        pub authority: CertificateDer<'static>,
        pub folder: tempfile::TempDir,
    }

    impl TestCertificate {
        pub fn new() -> TestCertificate {
            let folder = tempfile::tempdir().expect("a folder");
            let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
            let file = |name: &str, text: String| {
                let path = folder.path().join(name);
                fs::write(&path, text).expect("a file");
                for_group(&path);
                path
            };
            let files = TlsFiles {
                certificate: file("node.pem", made.cert.pem()),
                key: file("node.key", made.signing_key.serialize_pem()),
                clients: None,
            };
            TestCertificate {
                tls: Tls::load(files, SystemTime::now()).expect("certificates"),
                authority: made.cert.der().clone(),
                folder,
            }
        }
    }

    /// Keeps a file from other users.
    fn for_group(path: &Path) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o640)).expect("a file of this user");
    }

    #[test]
    fn a_key_that_others_may_read_is_refused() {
        let shown = TestCertificate::new();
        let files = shown.tls.files.clone();
        for (mode, is_refused) in [(0o644, true), (0o604, true), (0o600, false), (0o440, false)] {
            fs::set_permissions(&files.key, fs::Permissions::from_mode(mode)).expect("a file of this user");
            let read = Tls::load(files.clone(), SystemTime::now());
            assert_eq!(matches!(read, Err(TlsError::Exposed { .. })), is_refused, "{mode:o}");
        }
    }

    /// A client that believes this authority.
    pub(crate) fn client(authority: &CertificateDer<'static>) -> rustls::ClientConnection {
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "localhost".try_into().expect("a name");
        rustls::ClientConnection::new(Arc::new(config), name).expect("a client")
    }

    /// The certificate is renewed, it is read, its key does not fit, and now the key is written.
    #[test]
    fn what_changes_while_it_is_read_is_read_again() {
        let shown = TestCertificate::new();
        assert!(!shown.tls.has_changed());
        let change = |text: &str| fs::write(shown.folder.path().join("node.key"), text).expect("a file");
        let refused = |files: &TlsFiles| {
            Err(TlsError::Missing {
                path: files.key.clone(),
                wanted: "private key",
            })
        };
        change("half");
        shown.tls.reload_by(refused).expect_err("no key");
        assert!(!shown.tls.has_changed(), "tried again for ever");
        let told = shown.tls.reload_by(|files| {
            change("another one");
            refused(files)
        });
        told.expect_err("no key");
        assert!(shown.tls.has_changed(), "the change is lost");
    }

    /// The validity is from 2020 to 2030, in UTC (`date -u -d ... +%s`).
    #[test]
    fn the_validity_includes_its_ends_and_days_outside_of_it_are_counted() {
        const BEGIN: u64 = 1_577_836_800;
        const END: u64 = 1_893_456_000;
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("names");
        [params.not_before, params.not_after] = [2020, 2030].map(|year| rcgen::date_time_ymd(year, 1, 1));
        let made = params
            .self_signed(&rcgen::KeyPair::generate().expect("a key"))
            .expect("a certificate");
        let at = |seconds| {
            let now = UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            match check_time(Path::new("node.pem"), made.der(), now) {
                Ok(()) => None,
                Err(TlsError::Expired { days, .. }) => Some(("expired", days)),
                Err(TlsError::NotYet { days, .. }) => Some(("not yet", days)),
                Err(other) => panic!("{other}"),
            }
        };
        assert_eq!([BEGIN, END].map(at), [None, None]);
        assert_eq!(
            [BEGIN - 1, BEGIN - 86_400].map(at),
            [Some(("not yet", 1)), Some(("not yet", 2))]
        );
        assert_eq!(
            [END + 1, END + 86_400].map(at),
            [Some(("expired", 0)), Some(("expired", 1))]
        );
        let broken = CertificateDer::from(vec![0x30, 0x82, 0x00, 0x04]);
        let refused = check_time(Path::new("node.pem"), &broken, UNIX_EPOCH);
        assert!(matches!(refused, Err(TlsError::Refused { .. })), "{refused:?}");
    }
}
