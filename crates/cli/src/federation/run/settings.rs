//! What is run: a file, and what the command line changes of it.

use std::path::Path;

use punctual_units::Nanos;

use crate::args::{FederationRun, LogKind};
use crate::failure::Failure;
use crate::scenario::{Section, read_document};

/// The most nodes of a run on one machine.
const NODES_MAX: u32 = 16;
/// The most requests a second: what the load's own threads make.
const RATE_MAX: f64 = 20_000.0;
/// The most clients, a thread each.
const CLIENTS_MAX: usize = 256;

/// What a store may be given, in bytes; the log has entries of 1 MiB.
pub const STORE_BYTES: std::ops::RangeInclusive<u64> = 16 << 20..=1 << 40;

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Nodes.
    pub nodes: u32,
    /// For how long the load is offered.
    pub duration: Nanos,
    /// Requests a second.
    pub rate: f64,
    /// Clients, each with one request at a time.
    pub clients: usize,
    /// The time that each request has.
    pub deadline: Nanos,
    /// The most entries that the log keeps for nodes that are behind.
    pub log_entries_max: u64,
    /// The most bytes of each node's store.
    pub store_bytes_max: u64,
    /// Of the load's instants.
    pub seed: u64,
    /// Where the order of commits is kept.
    pub log: LogKind,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            nodes: 3,
            duration: Nanos::from_secs(10),
            rate: 200.0,
            clients: 128,
            deadline: Nanos::from_millis(500),
            log_entries_max: 10_000,
            store_bytes_max: 1 << 30,
            seed: 1,
            log: LogKind::Local,
        }
    }
}

impl Settings {
    /// Those that were asked for.
    ///
    /// # Errors
    /// [`Failure::Input`].
    pub fn of(arguments: &FederationRun) -> Result<Settings, Failure> {
        let mut settings = match &arguments.file {
            Some(file) => load(file)?,
            None => Settings::default(),
        };
        settings.nodes = arguments.nodes.unwrap_or(settings.nodes);
        settings.rate = arguments.rate.unwrap_or(settings.rate);
        if let Some(seconds) = arguments.seconds {
            settings.duration = Nanos::from_secs(seconds);
        }
        settings.log = arguments.log.clone();
        settings
            .check()
            .map_err(|(key, what)| Failure::input([format!("{key}: {what}")]))?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        if !(1..=NODES_MAX).contains(&self.nodes) {
            return Err(("nodes", format!("1 to {NODES_MAX} nodes run on one machine")));
        }
        if !(Nanos::from_secs(1)..=Nanos::from_secs(86_400)).contains(&self.duration) {
            return Err(("duration", "a run takes 1 s to 24 h".into()));
        }
        if !(self.rate >= 1.0 && self.rate <= RATE_MAX) {
            return Err(("rate", format!("the load has 1 to {RATE_MAX} requests a second")));
        }
        if !(1..=CLIENTS_MAX).contains(&self.clients) {
            return Err(("clients", format!("1 to {CLIENTS_MAX} clients send the load")));
        }
        if !(Nanos::from_millis(10)..=Nanos::from_secs(60)).contains(&self.deadline) {
            return Err(("deadline", "a request has 10 ms to 60 s".into()));
        }
        if self.log_entries_max == 0 {
            return Err(("log_entries_max", "the log keeps at least 1 entry".into()));
        }
        if !STORE_BYTES.contains(&self.store_bytes_max) {
            return Err((
                "store_bytes_max",
                "a store has 16777216 (16 MiB) to 1099511627776 (1 TiB) bytes".into(),
            ));
        }
        Ok(())
    }
}

fn load(file: &Path) -> Result<Settings, Failure> {
    let shown = file.display();
    let text = crate::bounded::text(file)
        .map_err(|error| Failure::input([format!("{shown}: cannot be read: {error}; name a file of settings")]))?;
    let read = read_document(&text, &shown.to_string(), |top| {
        let settings = settings_of(top);
        if let Err((key, what)) = settings.check() {
            top.complain(key, what);
        }
        settings
    });
    read.map_err(Failure::input)
}

fn settings_of(top: &mut Section<'_, '_>) -> Settings {
    let usual = Settings::default();
    Settings {
        nodes: top.count("nodes").unwrap_or(usual.nodes),
        duration: top.time("duration").unwrap_or(usual.duration),
        rate: top.number("rate").unwrap_or(usual.rate),
        clients: top.count("clients").unwrap_or(usual.clients),
        deadline: top.time("deadline").unwrap_or(usual.deadline),
        log_entries_max: top.count("log_entries_max").unwrap_or(usual.log_entries_max),
        store_bytes_max: top.count("store_bytes_max").unwrap_or(usual.store_bytes_max),
        seed: top.count("seed").unwrap_or(usual.seed),
        log: usual.log,
    }
}
