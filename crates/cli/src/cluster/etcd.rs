//! Logs in etcd: a bridge for a node, and the first entry of a federation.

use std::path::Path;
use std::time::{Duration, Instant};

use punctual_federation::ids::Revision;
use punctual_logs::etcd::{Address, EtcdError, bridge};
use punctual_logs::socket::LogServer;
use punctual_logs::{CommitLog, Etcd, Identity, LogError};

use punctual_files::failure::Failure;

/// Time limit for an answer of etcd, where there is time.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Bridges the log at `address` to a socket at `path`, for this process's node.
pub fn log_in_etcd(address: &str, path: &Path) -> Result<LogServer, String> {
    bridge(address, path).map_err(|error| error.to_string())
}

/// Creates a federation's log at `address`, and returns its last revision. With `after`, the log begins behind that
/// revision, and must not exist yet.
pub fn found(address: &str, identity: Identity, after: Option<Revision>) -> Result<Revision, Failure> {
    let input = |error: &dyn std::fmt::Display| Failure::input([error.to_string()]);
    let address: Address = address.parse().map_err(|error: EtcdError| input(&error))?;
    let log = Etcd::new(&address, true).map_err(|error| input(&error))?;
    let mut log = log.beginning_after(after.unwrap_or_default());
    log.check().map_err(|error| input(&error))?;
    let opened = answered(|| log.open(identity));
    let last = opened.map_err(|error| Failure::input([format!("{address}: {error}")]))?;
    match after {
        Some(after) if after != last => Err(Failure::input([format!(
            "{address}: there is a log already, up to revision {last}: name another place, or remove its keys"
        )])),
        _ => Ok(last),
    }
}

/// Repeats a request until it is answered, at most for 30 s.
pub fn answered<T>(mut ask: impl FnMut() -> Result<T, LogError>) -> Result<T, LogError> {
    let until = Instant::now() + ANSWER_MAX;
    loop {
        match ask() {
            Err(LogError::NoAnswer) if Instant::now() < until => {}
            answer => return answer,
        }
    }
}
