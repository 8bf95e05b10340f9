//! Log of a run: a file served by this process, or an etcd.

use std::path::Path;

use punctual_federation::ids::FederationId;
use punctual_logs::Local;
use punctual_logs::socket::{LogServer, SharedLog};
use punctual_units::{Nanos, Time};

use super::audit::{Audit, AuditedLog};
use crate::args::LogKind;
use punctual_files::failure::Failure;

impl LogKind {
    /// Description in a few words.
    pub fn described(&self) -> String {
        match self {
            LogKind::Local => "local (one file of this machine, not replicated)".into(),
            LogKind::Members => "etcd (three members, all on this machine)".into(),
            LogKind::Etcd(address) => address.clone(),
        }
    }

    /// Name of the kind in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            LogKind::Local => "local",
            LogKind::Members | LogKind::Etcd(_) => "etcd",
        }
    }

    /// Whether the log survives the loss of this machine, or at least of one of the processes that keep it.
    pub fn is_replicated(&self) -> bool {
        !matches!(self, LogKind::Local)
    }
}

/// Error for a fault of the leader on a log in a file.
pub(super) const NO_LEADER: &str = "a log in one file has no leader to be killed: run it with --log etcd";

/// Operations of a run on its log.
pub(super) trait Backing {
    /// Address at which nodes reach the log directly; `None`: the socket of the run.
    fn address(&self) -> Option<String>;

    /// Reason why the log no longer answers; `None` while it does.
    fn failure(&mut self) -> Option<String>;

    /// Audit of every entry that was appended.
    ///
    /// # Errors
    /// If the log cannot be read to its end.
    fn audit(&mut self) -> Result<Audit, Failure>;

    /// Kills the log's leader process, and returns the instant.
    ///
    /// # Errors
    /// If this run has not started the log's processes.
    fn kill_leader(&mut self) -> Result<Time, Failure>;

    /// Restarts the killed process.
    ///
    /// # Errors
    /// Those of the system.
    fn restart(&mut self) -> Result<(), Failure>;

    /// Longest time between two instants in which the log acknowledged nothing to the run's witness client; `None`
    /// without such a client.
    fn own_gap(&self, from: Time, to: Time) -> Option<Nanos>;
}

/// Log in a file, served at a socket.
struct File {
    log: SharedLog<AuditedLog>,
    _server: LogServer,
}

/// Creates the log of a run, with its files in `folder` and its socket at `socket`.
///
/// # Errors
/// If the log cannot start.
pub(super) fn open(
    kind: &LogKind,
    folder: &Path,
    socket: &Path,
    federation: FederationId,
) -> Result<Box<dyn Backing>, Failure> {
    if *kind != LogKind::Local {
        return super::etcd::open(kind, folder, federation);
    }
    let log = Local::open(&folder.join("log")).map_err(Failure::of)?;
    let log = SharedLog::new(AuditedLog::new(log, federation));
    let served = log.clone();
    let server = LogServer::start(socket, move || Some(served.clone())).map_err(Failure::of)?;
    Ok(Box::new(File { log, _server: server }))
}

impl Backing for File {
    fn address(&self) -> Option<String> {
        None
    }

    fn failure(&mut self) -> Option<String> {
        self.log.log().failure().map(str::to_owned)
    }

    fn audit(&mut self) -> Result<Audit, Failure> {
        Ok(self.log.log().audit.clone())
    }

    fn kill_leader(&mut self) -> Result<Time, Failure> {
        Err(Failure::of(NO_LEADER))
    }

    fn restart(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn own_gap(&self, _: Time, _: Time) -> Option<Nanos> {
        None
    }
}
