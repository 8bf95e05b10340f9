//! Settings of a run under load, from a file and the command line.

use punctual_cli::cluster::run::settings;
use punctual_units::Nanos;
use punctual_workload::Problems;

use crate::args::{ClusterTrial, LogKind};
use punctual_files::failure::Failure;
use punctual_files::local::{LocalSettings, load};
use punctual_files::toml::Section;

/// Most requests a second: as many as the process of the load can send.
pub const RATE_MAX: f64 = 50_000.0;
/// Most clients: as many as one balancer takes, because all move to it if the others are gone.
const CLIENTS_MAX: usize = 1000;
/// Duration of the load, if neither file nor command line has one.
const DURATION: Nanos = Nanos::from_secs(10);

/// Settings of a run; the default is two balancers, three nodes, twice their capacity, 10 s.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialSettings {
    /// Nodes and balancers.
    pub cluster: LocalSettings,
    /// Requests a second; `None`: `times` the capacity, which is measured first.
    pub rate: Option<f64>,
    /// Load as a multiple of the measured capacity; unused if `rate` is given.
    pub times: f64,
    /// Share of requests that write, 0 to 1.
    pub writes: f64,
    /// Number of clients, each with one request at a time; `None`: enough ([`TrialSettings::clients`]).
    pub clients: Option<usize>,
    /// Deadline of each request, counted from its scheduled instant.
    pub deadline: Nanos,
    /// Seed of the load's random instants.
    pub seed: u64,
    /// Log that orders the commits.
    pub log: LogKind,
}

impl Default for TrialSettings {
    fn default() -> TrialSettings {
        TrialSettings {
            cluster: LocalSettings {
                work: Nanos::from_millis(1),
                ..LocalSettings::default()
            },
            rate: None,
            times: 2.0,
            writes: 0.2,
            clients: None,
            deadline: Nanos::from_millis(500),
            seed: 1,
            log: LogKind::Local,
        }
    }
}

impl TrialSettings {
    /// Settings of the file and the command line, which wins.
    ///
    /// # Errors
    /// [`Failure::Input`] for an unusable file or value.
    pub fn of(arguments: &ClusterTrial) -> Result<TrialSettings, Failure> {
        let mut settings = match &arguments.file {
            Some(file) => load(file, settings_of, TrialSettings::faults)?,
            None => TrialSettings::default(),
        };
        settings::take(
            &mut settings.cluster,
            arguments.nodes,
            arguments.balancers,
            arguments.duration,
        );
        settings::take_policies(&mut settings.cluster, &arguments.policies);
        settings.cluster.work = arguments.work.unwrap_or(settings.cluster.work);
        settings.rate = arguments.rate.or(settings.rate);
        settings.log = arguments.log.clone();
        Failure::refuse(settings.faults().0)?;
        Ok(settings)
    }

    /// Duration of the load.
    pub fn duration(&self) -> Nanos {
        self.cluster.duration.unwrap_or(DURATION)
    }

    /// Number of clients: twice as many as have a request pending if each takes its whole deadline, at least 16.
    pub fn clients(&self) -> usize {
        let usual = |rate: f64| (2.0 * rate * self.deadline.as_secs_f64()) as usize;
        let usual = self.rate.map_or(CLIENTS_MAX, usual).clamp(16, CLIENTS_MAX);
        self.clients.unwrap_or(usual)
    }

    fn faults(&self) -> Problems {
        let mut faults = self.cluster.faults();
        let rate = self.rate.is_none_or(|rate| (1.0..=RATE_MAX).contains(&rate));
        faults.require(rate, "rate", format!("the load has 1 to {RATE_MAX} requests a second"));
        let times = (0.1..=100.0).contains(&self.times);
        faults.require(times, "times", "0.1 to 100 times of what is served are offered");
        faults.require(
            (0.0..=1.0).contains(&self.writes),
            "writes",
            "a share of the requests, 0 to 1",
        );
        let clients = (1..=CLIENTS_MAX).contains(&self.clients());
        faults.require(clients, "clients", format!("1 to {CLIENTS_MAX} clients send the load"));
        let deadlines = Nanos::from_millis(10)..=Nanos::from_secs(60);
        faults.require(
            deadlines.contains(&self.deadline),
            "deadline",
            "a request has 10 ms to 60 s",
        );
        faults
    }
}

fn settings_of(top: &mut Section<'_, '_>) -> TrialSettings {
    let usual = TrialSettings::default();
    TrialSettings {
        cluster: usual.cluster.or_of(top),
        rate: top.number("rate").or(usual.rate),
        times: top.number("times").unwrap_or(usual.times),
        writes: top.number("writes").unwrap_or(usual.writes),
        clients: top.count("clients").or(usual.clients),
        deadline: top.time("deadline").unwrap_or(usual.deadline),
        seed: top.count("seed").unwrap_or(usual.seed),
        log: usual.log,
    }
}
