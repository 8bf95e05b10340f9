//! Nodes without balancers and load, for measurements.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use punctual_federation::ids::FederationId;

use super::log::{self, Backing};
use super::processes::Processes;
use super::{Settings, Sweeper};
use crate::cluster::node::FOLDER_PREFIX;
use punctual_files::failure::Failure;

/// Nodes that run until this is dropped.
pub struct Idle {
    // Dropped in this order: processes, their log, its folder.
    processes: Processes,
    _log: Box<dyn Backing>,
    _folder: tempfile::TempDir,
    _sweeper: Sweeper,
}

impl Idle {
    /// Starts the nodes, and waits until one is the master.
    ///
    /// # Errors
    /// [`Failure`] if they cannot start.
    pub fn start(settings: &Settings) -> Result<Idle, Failure> {
        let input = |error: &dyn std::fmt::Display| Failure::input([error.to_string()]);
        let folder = tempfile::Builder::new().prefix(FOLDER_PREFIX).tempdir();
        let folder = folder.map_err(|error| input(&format!("a folder for the nodes' stores: {error}")))?;
        let sweeper = Sweeper::start(folder.path()).map_err(|error| input(&error))?;
        let federation = FederationId(RandomState::new().hash_one(std::process::id()));
        let socket = folder.path().join("log.socket");
        let log = log::open(&settings.log, folder.path(), &socket, federation)?;
        let place = (socket, log.address());
        let settings = Settings {
            balancers: 0,
            ..settings.clone()
        };
        let ends = Arc::new(AtomicBool::new(false));
        let processes = Processes::start(federation, folder.path(), place, &settings, None, &ends)?;
        Ok(Idle {
            processes,
            _log: log,
            _folder: folder,
            _sweeper: sweeper,
        })
    }

    /// Client addresses of the nodes, by node number.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.processes.addresses(true)
    }

    /// Process ids of the nodes.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.ids().map(|(_, _, process)| process).collect()
    }
}
