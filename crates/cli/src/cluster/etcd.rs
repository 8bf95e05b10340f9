//! Logs in etcd: a bridge for a node, and the first entry of a federation.

use std::path::Path;
use std::time::{Duration, Instant};

use punctual_federation::ids::Revision;
use punctual_logs::etcd::{Address, EtcdError, bridge};
use punctual_logs::socket::LogServer;
use punctual_logs::{CommitLog, Etcd, Identity, LogError, LogState};

use punctual_files::failure::Failure;

/// Time limit for an answer of etcd, where there is time.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Bridges the log at `address` to a socket at `path`, for this process's node.
pub fn log_in_etcd(address: &str, path: &Path) -> Result<LogServer, String> {
    bridge(address, path).map_err(|error| error.to_string())
}

/// Creates a federation's log at `address`, and returns its last revision. If `is_new`, the log must not exist yet.
pub fn found(address: &str, identity: Identity, is_new: bool) -> Result<Revision, Failure> {
    let address: Address = address.parse().map_err(|error: EtcdError| Failure::of(error))?;
    let mut log = Etcd::new(&address, true).map_err(Failure::of)?;
    log.check().map_err(Failure::of)?;
    let opened = answered(|| log.open(identity));
    let LogState { last, history, .. } = opened.map_err(|error| Failure::of(format!("{address}: {error}")))?;
    if is_new && history != identity.history {
        return Err(Failure::of(format!(
            "{address}: there is a log already, up to revision {last}: name another place, or remove its keys"
        )));
    }
    Ok(last)
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
