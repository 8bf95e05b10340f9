//! Certificates of `punctual serve`: read at the start, and again while it runs.

use std::sync::Arc;
use std::time::SystemTime;

use punctual_server::tls::{Tls, TlsFiles};

use crate::commands::print;
use punctual_files::failure::Failure;
use punctual_files::server::TlsPaths;

/// Reads the files that a node's file names.
pub fn load(paths: &TlsPaths) -> Result<Arc<Tls>, Failure> {
    let files = TlsFiles {
        certificate: paths.certificate.clone(),
        key: paths.key.clone(),
        clients: paths.clients.clone(),
    };
    let tls = Tls::load(files, SystemTime::now()).map_err(Failure::of)?;
    Ok(Arc::new(tls))
}

/// Reads the files again, and prints the result; on an error, the server keeps the former certificates.
pub fn reload(tls: &Tls) {
    let said = print(&match tls.reload(SystemTime::now()) {
        Ok(()) => "certificate read again; connections that begin get it\n".to_owned(),
        Err(error) => format!("certificate kept as it was: {error}\n"),
    });
    // A failing standard output (such as a full disk) must not end the server.
    drop(said);
}
