//! What is run: a file, and what the command line changes of it.

use std::net::SocketAddrV4;
use std::path::Path;

use punctual_units::Nanos;

use crate::args::{FederationRun, LogKind};
use crate::failure::Failure;
use crate::federation::membership::{LOG_ENTRIES_MAX, STORE_BYTES, STORE_BYTES_USUAL, WORK_MAX};
use crate::scenario::{Section, read_document};
use crate::serve::zenoh::ZenohFile;

/// The most nodes of a run on one machine.
const NODES_MAX: u32 = 16;
/// The most balancers.
const BALANCERS_MAX: u32 = 8;
/// The most requests a second: what one process that makes them keeps up with.
pub const RATE_MAX: f64 = 50_000.0;
/// The most clients: what a balancer takes, because all go to one where the others are gone.
const CLIENTS_MAX: usize = 1000;

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Nodes.
    pub nodes: u32,
    /// Balancers between them and clients.
    pub balancers: u32,
    /// For how long the load is offered.
    pub duration: Nanos,
    /// Requests a second; `None`: `times` what was served as fast as it could be, measured first.
    pub rate: Option<f64>,
    /// See [`Settings::rate`].
    pub times: f64,
    /// The processor time that a node spends on each request, besides what it needs.
    pub work: Nanos,
    /// The share of requests that write, 0 to 1.
    pub writes: f64,
    /// Clients, each with one request at a time; `None`: enough ([`Settings::clients`]).
    pub clients: Option<usize>,
    /// The time that each request has.
    pub deadline: Nanos,
    /// The most entries that the log keeps for nodes that are behind.
    pub log_entries_max: u64,
    /// The most bytes of each node's store.
    pub store_bytes_max: u64,
    /// Where readings are told to all nodes at once.
    pub multicast: Option<SocketAddrV4>,
    /// What nodes hear of Zenoh.
    pub zenoh: Option<ZenohFile>,
    /// Of the load's instants.
    pub seed: u64,
    /// Where the order of commits is kept.
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
            multicast: None,
            zenoh: None,
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
        settings.balancers = arguments.balancers.unwrap_or(settings.balancers);
        settings.rate = arguments.rate.or(settings.rate);
        settings.work = arguments.work.unwrap_or(settings.work);
        if let Some(seconds) = arguments.seconds {
            settings.duration = Nanos::from_secs(seconds);
        }
        settings.log = arguments.log.clone();
        settings
            .check()
            .map_err(|(key, what)| Failure::input([format!("{key}: {what}")]))?;
        Ok(settings)
    }

    /// Clients: twice as many as have a request under way if each takes all of its time, 16 at least.
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
        balancers: top.count("balancers").unwrap_or(usual.balancers),
        rate: top.number("rate").or(usual.rate),
        times: top.number("times").unwrap_or(usual.times),
        work: top.time("work").unwrap_or(usual.work),
        writes: top.number("writes").unwrap_or(usual.writes),
        clients: top.count("clients").or(usual.clients),
        deadline: top.time("deadline").unwrap_or(usual.deadline),
        log_entries_max: top.count("log_entries_max").unwrap_or(usual.log_entries_max),
        store_bytes_max: top.count("store_bytes_max").unwrap_or(usual.store_bytes_max),
        multicast: usual.multicast,
        zenoh: usual.zenoh,
        seed: top.count("seed").unwrap_or(usual.seed),
        log: usual.log,
    }
}
