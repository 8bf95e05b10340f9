//! The certificates of a server, and of a program that dials others: read, checked, and reloaded while it runs.
//!
//!
//! rustls speaks TLS 1.2 and 1.3, with the cryptography of ring. Open connections keep the certificate that they began
//! with; new ones get the newest.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

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
    /// A file cannot be read.
    #[error("{path}: cannot be read: {source}; name a file in PEM that this user may read")]
    Read {
        /// The file that was opened.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
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
    /// rustls refused a file's content.
    #[error("{path}: {what}")]
    Refused {
        /// The file that was refused.
        path: PathBuf,
        /// The error of rustls.
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
    let refused = |source| TlsError::Read {
        path: path.into(),
        source,
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

/// Checks the validity at the start: clients would refuse the certificate later, each with another message.
fn check_time(path: &Path, certificate: &[u8], now: SystemTime) -> Result<(), TlsError> {
    const DAY: i64 = 86_400;
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    // A certificate that cannot be parsed is left to rustls.
    let Some((from, to)) = validity(certificate) else {
        return Ok(());
    };
    let path = path.to_path_buf();
    if now > to {
        let days = (now - to) / DAY;
        return Err(TlsError::Expired { path, days });
    }
    if now < from {
        let days = (from - now) / DAY + 1;
        return Err(TlsError::NotYet { path, days });
    }
    Ok(())
}

/// First and last instant of a certificate's validity, in seconds since 1970 (RFC 5280, section 4.1.2.5).
fn validity(certificate: &[u8]) -> Option<(i64, i64)> {
    const SEQUENCE: u8 = 0x30;
    const VERSION: u8 = 0xa0;
    let inside = |bytes, expected| {
        let (tag, content, rest) = element(bytes)?;
        (tag == expected).then_some((content, rest))
    };
    let (whole, _) = inside(certificate, SEQUENCE)?;
    let (mut rest, _) = inside(whole, SEQUENCE)?;
    if rest.first() == Some(&VERSION) {
        rest = element(rest)?.2;
    }
    // Skips serial number, kind of signature and issuer.
    for _ in 0..3 {
        rest = element(rest)?.2;
    }
    let (times, _) = inside(rest, SEQUENCE)?;
    let (kind, from, rest) = element(times)?;
    let from = time(kind, from)?;
    let (kind, to, _) = element(rest)?;
    Some((from, time(kind, to)?))
}

/// Splits an element in DER into its tag, its content and the bytes that follow.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, mut rest) = rest.split_first()?;
    let mut length = usize::from(*first);
    if length >= 0x80 {
        let digits = length - 0x80;
        if digits > 4 {
            return None;
        }
        let (number, behind) = rest.split_at_checked(digits)?;
        length = number.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        rest = behind;
    }
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

/// Parses `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ` into seconds since 1970.
fn time(kind: u8, text: &[u8]) -> Option<i64> {
    const SHORT: u8 = 0x17;
    const LONG: u8 = 0x18;
    let text = text.strip_suffix(b"Z")?;
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |digits: &[u8]| digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    let (year, rest) = match kind {
        SHORT => {
            let (year, rest) = text.split_at_checked(2)?;
            let year = number(year);
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        LONG => {
            let (year, rest) = text.split_at_checked(4)?;
            (number(year), rest)
        }
        _ => return None,
    };
    let [month, day, hour, minute, second] = rest.chunks_exact(2).map(number).collect::<Vec<_>>().try_into().ok()?;
    // H. Hinnant, "chrono-compatible low-level date algorithms": days_from_civil, with years that begin in March.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * month + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
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

    /// `date -u -d ... +%s`.
    #[test]
    fn times_are_seconds_since_1970() {
        assert_eq!(time(0x17, b"700101000000Z"), Some(0));
        assert_eq!(time(0x17, b"491231235959Z"), Some(2_524_607_999));
        assert_eq!(time(0x17, b"500101000000Z"), Some(-631_152_000));
        assert_eq!(time(0x18, b"20000229120000Z"), Some(951_825_600));
        assert_eq!(time(0x18, b"20260301000001Z"), Some(1_772_323_201));
        for (kind, wrong) in [
            (0x17, &b"70010100000Z"[..]),
            (0x18, b"2000"),
            (0x16, b"700101000000Z"),
            (0x17, b""),
        ] {
            assert_eq!(time(kind, wrong), None);
        }
    }

    #[test]
    fn no_bytes_make_the_reader_of_certificates_panic() {
        let made = [0x30, 0x82, 0x00, 0x04, 0x30, 0x02, 0xa0, 0x00];
        for end in 0..made.len() {
            assert_eq!(validity(&made[..end]), None);
        }
        assert_eq!(element(&[0x30, 0x85, 1, 1, 1, 1, 1]), None);
        assert_eq!(element(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 1]), None);
    }
}
