//! Settings of a run, from a file and the command line.

use std::path::Path;

use punctual_units::Nanos;

use crate::args::{ClusterRun, LogKind};
use crate::cluster::membership::{LOG_ENTRIES_MAX, STORE_BYTES, STORE_BYTES_USUAL, WORK_MAX};
use punctual_files::failure::Failure;
use punctual_files::scenario::{Section, read_document};

/// Most nodes of a run on one machine.
const NODES_MAX: u32 = 16;
/// Most balancers of a run.
const BALANCERS_MAX: u32 = 8;
/// Most requests a second: as many as the process of the load can send.
pub const RATE_MAX: f64 = 50_000.0;
/// Most clients: as many as one balancer takes, because all move to it if the others are gone.
const CLIENTS_MAX: usize = 1000;

/// Settings of a run; the default is two balancers, three nodes, twice their capacity, 10 s.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Number of nodes, at most `NODES_MAX`.
    pub nodes: u32,
    /// Number of balancers between nodes and clients, at most `BALANCERS_MAX`.
    pub balancers: u32,
    /// Duration of the load, 1 s to 24 h.
    pub duration: Nanos,
    /// Requests a second; `None`: `times` the capacity, which is measured first.
    pub rate: Option<f64>,
    /// Load as a multiple of the measured capacity; unused if `rate` is given.
    pub times: f64,
    /// Processor time that a node spends on each request, in addition to its own cost.
    pub work: Nanos,
    /// Share of requests that write, 0 to 1.
    pub writes: f64,
    /// Number of clients, each with one request at a time; `None`: enough ([`Settings::clients`]).
    pub clients: Option<usize>,
    /// Deadline of each request, counted from its scheduled instant.
    pub deadline: Nanos,
    /// Most entries that the log keeps for nodes that are behind.
    pub log_entries_max: u64,
    /// Size limit of each node's store, in bytes.
    pub store_bytes_max: u64,
    /// Seed of the load's random instants.
    pub seed: u64,
    /// Log that orders the commits.
    pub log: LogKind,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            nodes: 3,
            balancers: 2,
            duration: Nanos::from_secs(10),
            rate: None,
            times: 2.0,
            work: Nanos::from_millis(1),
            writes: 0.2,
            clients: None,
            deadline: Nanos::from_millis(500),
            log_entries_max: LOG_ENTRIES_MAX,
            store_bytes_max: STORE_BYTES_USUAL,
            seed: 1,
            log: LogKind::Local,
        }
    }
}

impl Settings {
    /// Settings of the file and the command line, which wins.
    ///
    /// # Errors
    /// [`Failure::Input`] for an unusable file or value.
    pub fn of(arguments: &ClusterRun) -> Result<Settings, Failure> {
        let mut settings = match &arguments.file {
            Some(file) => load(file)?,
            None => Settings::default(),
        };
        settings.nodes = arguments.nodes.unwrap_or(settings.nodes);
        settings.balancers = arguments.balancers.unwrap_or(settings.balancers);
        settings.rate = arguments.rate.or(settings.rate);
        settings.work = arguments.work.unwrap_or(settings.work);
        if let Some(duration) = arguments.duration {
            settings.duration = duration;
        }
        settings.log = arguments.log.clone();
        settings
            .check()
            .map_err(|(key, what)| Failure::input([format!("{key}: {what}")]))?;
        Ok(settings)
    }

    /// Number of clients: twice as many as have a request pending if each takes its whole deadline, at least 16.
    pub fn clients(&self) -> usize {
        let usual = |rate: f64| (2.0 * rate * self.deadline.as_secs_f64()) as usize;
        let usual = self.rate.map_or(CLIENTS_MAX, usual).clamp(16, CLIENTS_MAX);
        self.clients.unwrap_or(usual)
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        if !(1..=NODES_MAX).contains(&self.nodes) {
            return Err(("nodes", format!("1 to {NODES_MAX} nodes run on one machine")));
        }
        if !(Nanos::from_secs(1)..=Nanos::from_secs(86_400)).contains(&self.duration) {
            return Err(("duration", "a run takes 1 s to 24 h".into()));
        }
        if !(1..=BALANCERS_MAX).contains(&self.balancers) {
            return Err((
                "balancers",
                format!("1 to {BALANCERS_MAX} balancers run on one machine"),
            ));
        }
        if self.rate.is_some_and(|rate| !(1.0..=RATE_MAX).contains(&rate)) {
            return Err(("rate", format!("the load has 1 to {RATE_MAX} requests a second")));
        }
        if !(0.1..=100.0).contains(&self.times) {
            return Err(("times", "0.1 to 100 times of what is served are offered".into()));
        }
        if self.work > WORK_MAX {
            return Err(("work", format!("a request costs a node at most {WORK_MAX}")));
        }
        if !(0.0..=1.0).contains(&self.writes) {
            return Err(("writes", "a share of the requests, 0 to 1".into()));
        }
        if !(1..=CLIENTS_MAX).contains(&self.clients()) {
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
    let text = punctual_files::bounded::text(file)
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
        balancers: top.count("balancers").unwrap_or(usual.balancers),
        rate: top.number("rate").or(usual.rate),
        times: top.number("times").unwrap_or(usual.times),
        work: top.time("work").unwrap_or(usual.work),
        writes: top.number("writes").unwrap_or(usual.writes),
        clients: top.count("clients").or(usual.clients),
        deadline: top.time("deadline").unwrap_or(usual.deadline),
        log_entries_max: top.count("log_entries_max").unwrap_or(usual.log_entries_max),
        store_bytes_max: top.count("store_bytes_max").unwrap_or(usual.store_bytes_max),
        seed: top.count("seed").unwrap_or(usual.seed),
        log: usual.log,
    }
}
