//! A federation under every fault: nodes, a network and a log in virtual time, reproducible by seed.
//!
//! **Problem.** A federation must keep its promises whatever is lost, repeated, delayed or dead, and in whatever order.
//! No test on machines reaches the rare orders, and none can be repeated.
//!
//! **Method.** The nodes are those of [`punctual_federation`], each with a real store. Between them a network loses,
//! repeats and reorders messages, and links are cut in one direction. Nodes stand still, crash with and without their
//! unwritten records, leave, and join with an empty disk; clocks are skewed, drift and jump; the log at times does not
//! answer. Clients open sessions and send transactions, list appends and queries. Everything follows from a seed: the
//! same seed gives the same run, to the last bit.
//!
//! **Check.** The log is the serial order, so it is replayed, and every answer and every node's records are compared
//! ([`check`]). Faults visible in a single event are reported at once: a request that is answered twice, or answered
//! `LATE` after its deadline. In the end faults stop, and the federation must come to rest: one master, all nodes at
//! the log's end, every request answered. [`Plant`]ed faults prove that the check finds violations.
//!
//! **Left out.** Bytes that change on their way or on disk, and a log that forgets acknowledged entries: no order of
//! messages compensates for these (docs/guide/cluster-safety.md lists the assumptions). Clocks that run backwards.

pub mod balancers;
pub mod check;
mod client;
mod clock;
mod front;
pub mod history;
mod host;
mod label;
pub mod load;
mod log;
mod market;
mod nemesis;
mod plant;
mod sensing;
mod trace;
mod world;

use std::collections::BTreeMap;

use punctual_federation::entry::Body;
use punctual_federation::ids::NodeId;
use punctual_federation::message::{Answer, Reason, Standing, Stop};
use punctual_logs::ENTRY_BYTES_MAX;
use punctual_units::{Nanos, Time};

pub use plant::Plant;
pub use trace::{EventTrace, Mark, TRACE_ROWS_MAX, TraceRow, What};

use history::{Deed, History};
use host::Open;
use world::World;

/// Bound on the nodes, joiners included, and on the clients of a simulated cluster.
pub const PLACES_MAX: u32 = 32;
/// Least bound on entries, in bytes: a log must accept the record of a new term.
pub const ENTRY_BYTES_MIN: usize = 64;
/// The longest run: its history is stored in memory.
pub const DURATION_MAX: Nanos = Nanos::from_secs(3600);

/// Size of a simulated cluster, and rates of its faults.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterSettings {
    /// Number of nodes at the beginning.
    pub nodes: u32,
    /// Number of nodes that join later, with empty disks.
    pub joiners: u32,
    /// Number of fronts (balancing processes) between clients and nodes. Every fourth client asks nodes directly; all
    /// do without fronts.
    pub fronts: u32,
    /// Number of clients, each with one request at a time.
    pub clients: u32,
    /// Time with faults; some time without follows.
    pub duration: Nanos,
    /// Mean time between two faults; zero: none.
    pub fault_every: Nanos,
    /// Messages lost of 1000 between nodes, or to and from the log.
    pub loss_per_mille: u32,
    /// Messages of 1000 that arrive twice.
    pub repeat_per_mille: u32,
    /// Messages of 1000 that take up to 60 ms.
    pub slow_per_mille: u32,
    /// Whether every other crash loses the records not yet written to disk.
    pub unsynced_loss: bool,
    /// Largest rate error of a clock to either side, in parts per million.
    pub drift_ppm_max: u32,
    /// Number of entries that the log keeps for nodes that are behind.
    pub log_entries_max: u64,
    /// Largest entry that the log accepts, in bytes.
    pub entry_bytes_max: usize,
    /// Approximate size of an image with which a node copies its records to another, in bytes.
    pub image_bytes_max: usize,
    /// Whether node 0 crashes a moment after each start, while there are faults.
    pub restless: bool,
    /// Whether another process with the name of node 0 starts after a while.
    pub namesake: bool,
    /// Whether clients also trade stocks, so that sums of records stay.
    pub trades: bool,
    /// From when on the log answers nothing until faults end, as if most of its own nodes were down.
    pub log_gone_from: Option<Nanos>,
}

impl Default for ClusterSettings {
    fn default() -> ClusterSettings {
        ClusterSettings {
            nodes: 3,
            joiners: 1,
            fronts: 2,
            clients: 4,
            duration: Nanos::from_millis(2500),
            fault_every: Nanos::from_millis(150),
            loss_per_mille: 10,
            repeat_per_mille: 10,
            slow_per_mille: 20,
            unsynced_loss: true,
            drift_ppm_max: 10_000,
            log_entries_max: 60,
            entry_bytes_max: ENTRY_BYTES_MAX,
            image_bytes_max: 250,
            restless: false,
            namesake: false,
            trades: false,
            log_gone_from: None,
        }
    }
}

impl ClusterSettings {
    /// Checks that every setting is within its bounds.
    ///
    /// # Errors
    /// The key that is wrong; the reason, and the remedy.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let within = |key, value: u64, least: u64, most: u64| match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err((
                key,
                format!("{value} is not within {least} and {most}: choose a value between them"),
            )),
        };
        within("nodes", self.nodes.into(), 1, PLACES_MAX.into())?;
        within("joiners", self.joiners.into(), 0, (PLACES_MAX - self.nodes).into())?;
        within("fronts", self.fronts.into(), 0, PLACES_MAX.into())?;
        within("clients", self.clients.into(), 1, PLACES_MAX.into())?;
        let span = |key, value: Nanos, least: Nanos| match (least..=DURATION_MAX).contains(&value) {
            true => Ok(()),
            false => Err((
                key,
                format!("{value} is not within {least} and {DURATION_MAX}: choose a span between them"),
            )),
        };
        span("duration", self.duration, Nanos::from_millis(1))?;
        span("fault_every", self.fault_every, Nanos::ZERO)?;
        within("loss_per_mille", self.loss_per_mille.into(), 0, 1000)?;
        within("repeat_per_mille", self.repeat_per_mille.into(), 0, 1000)?;
        within("slow_per_mille", self.slow_per_mille.into(), 0, 1000)?;
        within("drift_ppm_max", self.drift_ppm_max.into(), 0, 100_000)?;
        within("log_entries_max", self.log_entries_max, 1, 1 << 20)?;
        let (least, most) = (ENTRY_BYTES_MIN as u64, ENTRY_BYTES_MAX as u64);
        within("entry_bytes_max", self.entry_bytes_max as u64, least, most)?;
        within("image_bytes_max", self.image_bytes_max as u64, 1, most)
    }
}

/// Whether a run records a trace that a person can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceMode {
    /// Record only the history that the check needs.
    Nothing,
    /// Record the last rows of events.
    Trace,
    /// Record the last rows of events up to this instant.
    TraceUntil(Time),
}

/// A broken promise of the federation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Violation {
    /// When the violation was detected, in the simulation's time.
    pub at: Time,
    /// The broken promise and the evidence, in words.
    pub what: String,
}

/// Counts, history and violation of a run.
#[derive(Debug)]
pub struct ClusterReport {
    /// Seed of the run; with the same settings it gives the same run.
    pub seed: u64,
    /// Number of faults of each kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Number of requests by kind of ending.
    pub requests: BTreeMap<&'static str, u64>,
    /// Number of terms in the log.
    pub takeovers: u64,
    /// Longest span in which no running node was the master.
    pub longest_without_master: Nanos,
    /// Number of complete copies of all records to a node, image by image.
    pub copies: u64,
    /// Number of images before the last image of each copy.
    pub images: u64,
    /// Number of starts of a node with only a part of the records.
    pub parts: u64,
    /// Number of sensor readings that reached another node, each with a bound of its age.
    pub readings: u64,
    /// Names of stopped nodes, and the reasons.
    pub stopped: Vec<(NodeId, Stop)>,
    /// The first broken promise, if any.
    pub violation: Option<Violation>,
    /// Trace of the run, if it was recorded.
    pub trace: Option<EventTrace>,
    /// Requests of clients, and all entries of the log.
    pub history: History,
}

/// Simulates a federation. The same settings, seed and planted fault give the same report.
pub fn run(settings: &ClusterSettings, seed: u64, plant: Option<Plant>, keep: TraceMode) -> ClusterReport {
    let mut world = World::new(settings, seed, plant, keep);
    world.run();
    let violation = world
        .violation
        .take()
        .or_else(|| check::check(&world.history).err())
        .or_else(|| world.unrest());
    if let Some(Violation { at, what }) = &violation {
        world.now = (*at).min(world.now);
        world.note(world::Endpoint::Log, Mark::Violation, || what.clone());
    }
    ClusterReport {
        seed,
        requests: count(&world.history.deeds),
        takeovers: world
            .history
            .log
            .iter()
            .filter(|entry| matches!(entry.body, Body::Reign(_)))
            .count() as u64,
        longest_without_master: world.without_master,
        copies: world.copies,
        images: world.images,
        parts: world.parts,
        readings: world.readings,
        stopped: world.stopped(),
        faults: world.faults,
        violation,
        trace: world.trace,
        history: world.history,
    }
}

fn count(deeds: &[Deed]) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for deed in deeds {
        *counts.entry(ending(deed)).or_default() += 1;
    }
    counts
}

fn ending(deed: &Deed) -> &'static str {
    match &deed.returned {
        None => "no answer",
        Some((_, Answer::Done { .. })) => "done",
        Some((_, Answer::Unknown)) => "unknown",
        Some((_, Answer::Refused(_))) => "refused",
        Some((_, Answer::Late { reason, .. })) => match reason {
            Reason::Backlog => "late: backlog",
            Reason::Expired => "late: expired",
            Reason::NoMaster => "late: no master",
        },
    }
}

impl World {
    /// The first sign that the cluster is not at rest after a time without faults.
    fn unrest(&self) -> Option<Violation> {
        let what = self.restless()?;
        Some(Violation { at: self.now, what })
    }

    fn waiting_front(&self) -> Option<usize> {
        let waits = |place: &front::FrontPlace| place.up.as_ref().is_some_and(|up| up.front.under_way() > 0);
        self.fronts.iter().position(waits)
    }

    fn stopped(&self) -> Vec<(NodeId, Stop)> {
        let stopped = self
            .hosts
            .iter()
            .filter_map(|host| Some((host.node, host.stopped.clone()?)));
        stopped.collect()
    }

    fn restless(&self) -> Option<String> {
        let last = self.log.last();
        let reigning = |host: &&host::Host| host.up.as_ref().is_some_and(|up| up.node.is_master());
        let masters = self.hosts.iter().filter(reigning).count();
        if masters != 1 {
            return Some(format!(
                "{masters} nodes take themselves for the master after a time without faults"
            ));
        }
        for host in self.hosts.iter().filter(|host| host.stopped.is_none()) {
            let Some(up) = &host.up else {
                return Some(format!("node {} is down after a time without faults", host.node));
            };
            if up.node.applied() != last {
                let (node, at) = (host.node, up.node.applied());
                return Some(format!(
                    "node {node} is at {at} after a time without faults, the log at {last}"
                ));
            }
            if let Some(Open { id, .. }) = up.open.values().next() {
                return Some(format!("node {} never answered request {id}", host.node));
            }
            if up.node.standing() != Standing::Serving {
                return Some(format!("node {} does not serve after a time without faults", host.node));
            }
        }
        if let Some(front) = self.waiting_front() {
            return Some(format!(
                "front {front} has not answered all requests after a time without faults"
            ));
        }
        let waits = self.clients.iter().position(client::SimulatedClient::waits)?;
        Some(format!("client {waits} still waits after a time without faults"))
    }
}
