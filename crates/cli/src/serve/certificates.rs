//! The certificates of `punctual serve`, as it starts and while it runs.

use std::sync::Arc;
use std::time::SystemTime;

use punctual_server::tls::{Tls, TlsFiles};

use super::file::TlsPaths;
use crate::commands::print;
use crate::failure::Failure;

/// Reads what a node's file names.
pub fn load(paths: &TlsPaths) -> Result<Arc<Tls>, Failure> {
    let files = TlsFiles {
        certificate: paths.certificate.clone(),
        key: paths.key.clone(),
        clients: paths.clients.clone(),
    };
    let tls = Tls::load(files, SystemTime::now()).map_err(|error| Failure::input([error.to_string()]))?;
    Ok(Arc::new(tls))
}

/// Reads them again, and says what came of it; a server that runs goes on with the former ones.
pub fn reload(tls: &Tls) {
    let said = print(&match tls.reload(SystemTime::now()) {
        Ok(()) => "certificate read again; connections that begin get it\n".to_owned(),
        Err(error) => format!("certificate kept as it was: {error}\n"),
    });
    // A full disk under its output ends no server.
    drop(said);
}
