//! Certificates for tests.

use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

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
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).expect("a file");
    }
}
