//! The log of a run: a file behind this process, or an etcd.

use std::path::Path;

use punctual_federation::ids::FederationId;
use punctual_logs::Local;
use punctual_logs::socket::{LogServer, Shared};
use punctual_units::{Nanos, Time};

use super::audit::{Audit, Audited};
use crate::args::LogKind;
use crate::failure::Failure;

impl LogKind {
    /// In a few words, for people.
    pub fn described(&self) -> String {
        match self {
            LogKind::Local => "local (one file of this machine, not replicated)".into(),
            LogKind::Members => "etcd (three members, all on this machine)".into(),
            LogKind::Etcd(address) => address.clone(),
        }
    }

    /// In a word.
    pub fn name(&self) -> &'static str {
        match self {
            LogKind::Local => "local",
            LogKind::Members | LogKind::Etcd(_) => "etcd",
        }
    }

    /// Whether it is there without this machine, or at least without one of the processes that keep it.
    pub fn is_replicated(&self) -> bool {
        !matches!(self, LogKind::Local)
    }
}

/// Why no leader of a log in a file can be killed.
pub(super) const NO_LEADER: &str = "a log in one file has no leader to be killed: run it with --log etcd";

/// What a run does with its log.
pub(super) trait Backing {
    /// Where nodes ask it themselves; `None`: at the socket of the run.
    fn address(&self) -> Option<String>;

    /// Why it answers no more, if it does not.
    fn failure(&mut self) -> Option<String>;

    /// All that was appended to it.
    ///
    /// # Errors
    /// Where it cannot be read to its end.
    fn audit(&mut self) -> Result<Audit, Failure>;

    /// Kills the process that leads it; when.
    ///
    /// # Errors
    /// Where there is none that this run has started.
    fn kill_leader(&mut self) -> Result<Time, Failure>;

    /// Starts again what was killed.
    ///
    /// # Errors
    /// Those of the system.
    fn restart(&mut self) -> Result<(), Failure>;

    /// For how long it acknowledged nothing to a client of its own, at most, between two instants; `None` where there
    /// is no such client.
    fn own_gap(&self, from: Time, to: Time) -> Option<Nanos>;
}

/// A file, served at a socket.
struct File {
    log: Shared<Audited>,
    _server: LogServer,
}

/// Makes the log of a run, with its files in `folder` and its socket at `socket`.
///
/// # Errors
/// Where it cannot start.
pub(super) fn open(
    kind: &LogKind,
    folder: &Path,
    socket: &Path,
    federation: FederationId,
) -> Result<Box<dyn Backing>, Failure> {
    if *kind != LogKind::Local {
        return super::etcd::open(kind, folder, federation);
    }
    let input = |error: &dyn std::fmt::Display| Failure::input([error.to_string()]);
    let log = Local::open(&folder.join("log")).map_err(|error| input(&error))?;
    let log = Shared::new(Audited::new(log, federation));
    let served = log.clone();
    let server = LogServer::start(socket, move || Some(served.clone())).map_err(|error| input(&error))?;
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
        Err(Failure::input([NO_LEADER]))
    }

    fn restart(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn own_gap(&self, _: Time, _: Time) -> Option<Nanos> {
        None
    }
}
