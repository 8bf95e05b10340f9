//! `punctual federation run`: nodes as processes of this machine, a load, and what an outage is made of.

mod audit;
mod client;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(not(feature = "etcd"))]
#[path = "no_etcd.rs"]
mod etcd;
mod load;
mod log;
mod processes;
mod report;
pub mod settings;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{PipeWriter, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use punctual_federation::ids::{FederationId, NodeId};
use punctual_node::seen::{Seen, What};
use punctual_os::LinuxOs;
use punctual_server::resp::Value;
use punctual_server::resp::reply::ReplyParser;
use punctual_units::{Clock, Nanos, Time};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

pub use self::audit::Faults;
use self::audit::compare;
use self::client::Nodes;
pub use self::etcd::{found, log_in_etcd};
use self::load::{Load, Offer, Outcome};
use self::log::Backing;
use self::processes::Processes;
pub use self::settings::Settings;
use super::node::FOLDER_PREFIX;
use crate::args::FederationRun;
use crate::commands::print;
use crate::failure::Failure;
use crate::output::Output;

/// How long a killed node stays dead.
const DEAD: Nanos = Nanos::from_secs(1);
/// How often a run looks for signals.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long nodes that came back may take to serve, beyond the run's duration: the load goes on meanwhile.
const SERVE_MAX: Nanos = Nanos::from_secs(60);
/// How long all nodes may take at the end to have what clients were told.
const AGREE_MAX: Duration = Duration::from_secs(60);

/// What becomes of the master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Fault {
    /// Its process is killed, and started again after a second.
    Kill,
    /// Its process stands still (SIGSTOP) for a second.
    Stop,
    /// The process that leads the log is killed, and started again after a second (with --log etcd).
    Leader,
    /// The master is killed with it.
    Both,
}

impl Fault {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Kill => "killed",
            Fault::Stop => "stopped",
            Fault::Leader => "left alone: the log's leader killed",
            Fault::Both => "killed with the log's leader",
        }
    }
}

/// One outage, from the fault on.
#[derive(Clone, Debug)]
pub struct Outage {
    /// The fault, the node that had it, and when.
    pub fault: Fault,
    /// See [`Outage::fault`].
    pub node: NodeId,
    /// See [`Outage::fault`].
    pub at: Time,
    /// When the first other node no longer counted on it.
    pub suspected: Option<Time>,
    /// When the next master had the whole log, and asked for the reign.
    pub caught_up: Option<Time>,
    /// When it had it.
    pub decided: Option<(NodeId, Time)>,
    /// The first acknowledgement after that.
    pub acknowledged: Option<Time>,
    /// The longest time between two acknowledgements from the fault on until that.
    pub gap: Option<Nanos>,
    /// The longest time in which the log itself acknowledged nothing to a client of its own, where there is one.
    pub log_gap: Option<Nanos>,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was asked for.
    pub settings: Settings,
    outcome: Outcome,
    /// For how long the load was offered.
    pub offered_for: Nanos,
    /// Each outage.
    pub outages: Vec<Outage>,
    /// What does not agree.
    pub faults: Faults,
    /// Entries of the log, and takeovers among them.
    pub entries: u64,
    /// See [`Report::entries`].
    pub takeovers: u64,
    /// It was ended by a signal.
    pub interrupted: bool,
}

/// Carries out `punctual federation run`.
pub fn run(arguments: &FederationRun) -> Result<(), Failure> {
    let settings = Settings::of(arguments)?;
    let json = Output::prepare_some(arguments.json.as_ref())?;
    let middle = Nanos(settings.duration.0 / 2);
    let faults = [(middle, arguments.fault)];
    let said = format!(
        "{} nodes, log: {}, {} requests/s for {}\n",
        settings.nodes,
        settings.log.described(),
        settings.rate,
        settings.duration
    );
    let is_apart = arguments.json.as_deref() != Some(Path::new("-"));
    let report = federation(&settings, &faults, |addresses, master| {
        let shown: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let line = format!(
            "redis-cli reaches the nodes at {} (node {master} is the first master; the others refuse writes, and INFO \
             names the master as master_node)\n",
            shown.join(", ")
        );
        match is_apart {
            true => print(&(said + &line)),
            // A closed standard error is no reason to stop.
            false => {
                drop(std::io::stderr().write_all(line.as_bytes()));
                Ok(())
            }
        }
    })?;
    if is_apart {
        print(&report::text(&report))?;
    }
    if let Some(json) = json {
        json.json(&report::document(&report))?;
    }
    match report.faults.any() {
        true => Err(Failure::Refuted("a promise was broken, see above".into())),
        false => Ok(()),
    }
}

/// Runs a federation under load, with faults at instants from the load's beginning.
///
/// # Errors
/// Where it cannot start, or a node ends by itself.
pub fn federation(
    settings: &Settings,
    faults: &[(Nanos, Fault)],
    began: impl FnOnce(&[SocketAddr], NodeId) -> Result<(), Failure>,
) -> Result<Report, Failure> {
    let input = |error: &dyn std::fmt::Display| Failure::input([error.to_string()]);
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The second one ends this process as if it had no handler.
        flag::register_conditional_default(signal, Arc::clone(&ends)).map_err(|error| input(&error))?;
        flag::register(signal, Arc::clone(&ends)).map_err(|error| input(&error))?;
    }
    let folder = tempfile::Builder::new().prefix(FOLDER_PREFIX).tempdir();
    let folder = folder.map_err(|error| input(&format!("a folder for the nodes' stores: {error}")))?;
    let _sweeper = Sweeper::start(folder.path()).map_err(|error| input(&error))?;
    // Other machines may have processes of the same number as this one.
    let federation = FederationId(RandomState::new().hash_one(std::process::id()));
    let socket = folder.path().join("log.socket");
    let mut log = log::open(&settings.log, folder.path(), &socket, federation)?;
    let place = (socket, log.address());
    let mut processes = Processes::start(settings.nodes, federation, folder.path(), place, settings, &ends)?;
    let first = processes.master.map_or(NodeId(0), |(node, _)| node);
    began(&processes.addresses(), first)?;
    let nodes = Arc::new(Nodes {
        addresses: Mutex::new(processes.addresses()),
        master: AtomicUsize::new(first.0 as usize),
        ends: Arc::clone(&ends),
    });
    let offer = Offer {
        rate: settings.rate,
        clients: settings.clients,
        deadline: settings.deadline,
        seed: settings.seed,
    };
    let load = Load::start(&nodes, offer);
    let start = LinuxOs.now();
    let troubled = trouble(settings, faults, start, &mut processes, &nodes, &mut *log);
    let offered_for = LinuxOs.now().since(start);
    if troubled.is_err() {
        // Clients need not ask for outcomes that are told to none.
        ends.store(true, Ordering::SeqCst);
    }
    let outcome = load.end();
    let mut outages = troubled?;
    processes.listen(LOOK_EVERY)?;

    let audit = log.audit()?;
    let mut faults = compare(&audit, &outcome.requests);
    if ends.load(Ordering::SeqCst) {
        // Clients did not ask to the end: that says nothing of promises.
        faults.answers_missing = 0;
    }
    if !ends.load(Ordering::SeqCst) {
        faults.nodes_that_differ = differ(&mut processes, &outcome.counters, &ends)?;
    }
    if let Some(failure) = log.failure() {
        return Err(Failure::input([failure]));
    }
    let interrupted = ends.load(Ordering::SeqCst);
    if interrupted {
        faults.nodes_that_differ = 0; // nodes were not waited for to the end
    }
    let acknowledged = outcome.acknowledged();
    for outage in &mut outages {
        outage.explain(&processes.seen, &acknowledged);
        outage.log_gap = log.own_gap(outage.at, outage.at + DEAD);
    }
    processes.leave();
    Ok(Report {
        settings: settings.clone(),
        outcome,
        offered_for,
        outages,
        faults,
        entries: audit.entries,
        takeovers: audit.reigns,
        interrupted,
    })
}

/// Waits for the end of the run, or a signal, and does to the master what was planned.
fn trouble(
    settings: &Settings,
    faults: &[(Nanos, Fault)],
    start: Time,
    processes: &mut Processes,
    nodes: &Nodes,
    log: &mut dyn Backing,
) -> Result<Vec<Outage>, Failure> {
    let mut outages: Vec<Outage> = Vec::new();
    // Nodes that have yet to come back.
    let mut away: Vec<(Time, NodeId, Fault)> = Vec::new();
    let mut planned = faults.iter();
    let mut next = planned.next();
    loop {
        let interrupted = nodes.ends.load(Ordering::SeqCst);
        if let Some(failure) = log.failure() {
            return Err(Failure::input([failure]));
        }
        let now = LinuxOs.now();
        // A node that came back serves again, however long that takes on a busy machine; `differ` has the last word on
        // one that does not.
        let serve = processes.all_serve() || now.since(start) >= settings.duration + SERVE_MAX;
        let is_over = now.since(start) >= settings.duration && next.is_none() && away.is_empty() && serve;
        let ends = interrupted || is_over;
        while let Some((_, node, fault)) = away.pop_if(|(back, ..)| ends || *back <= now) {
            match fault {
                Fault::Kill => processes.restart(node)?,
                Fault::Stop => _ = processes.signal(node, libc::SIGCONT),
                Fault::Leader => log.restart()?,
                Fault::Both => {
                    log.restart()?;
                    processes.restart(node)?;
                }
            }
        }
        if ends {
            return Ok(outages);
        }
        if let Some((_, fault)) = next.filter(|(at, _)| start + *at <= now && away.is_empty())
            && let Some((node, _)) = processes.master
        {
            let at = match fault {
                Fault::Kill => processes.kill(node),
                Fault::Stop => processes.signal(node, libc::SIGSTOP),
                Fault::Leader => log.kill_leader()?,
                Fault::Both => {
                    let at = log.kill_leader()?;
                    processes.kill(node);
                    at
                }
            };
            away.push((at + DEAD, node, *fault));
            outages.push(Outage::new(*fault, node, at));
            next = planned.next();
        }
        let before = processes.master;
        processes.listen(LOOK_EVERY)?;
        // As a service would that tells clients where the master is.
        if let Some((master, _)) = processes.master.filter(|_| processes.master != before) {
            nodes.master.store(master.0 as usize, Ordering::SeqCst);
        }
        let addresses = processes.addresses();
        *nodes.addresses.lock().unwrap_or_else(PoisonError::into_inner) = addresses;
    }
}

impl Outage {
    fn new(fault: Fault, node: NodeId, at: Time) -> Outage {
        Outage {
            fault,
            node,
            at,
            suspected: None,
            caught_up: None,
            decided: None,
            acknowledged: None,
            gap: None,
            log_gap: None,
        }
    }

    /// From what nodes have told, and from the instants of acknowledgements, in order.
    fn explain(&mut self, seen: &[(NodeId, Seen)], acknowledged: &[Time]) {
        let after = || {
            seen.iter()
                .filter(|(node, seen)| *node != self.node && seen.at >= self.at)
        };
        let first = |is: fn(&What) -> bool| {
            after()
                .filter(move |(_, seen)| is(&seen.what))
                .min_by_key(|(_, seen)| seen.at)
        };
        self.suspected = first(|what| matches!(what, What::Suspects)).map(|(_, seen)| seen.at);
        let decided = first(|what| matches!(what, What::Reigns(_))).map(|(node, seen)| (*node, seen.at));
        self.caught_up = decided.and_then(|(next, until)| {
            let of_next = after().filter(|(node, seen)| *node == next && seen.at <= until);
            let caught_up = of_next.filter(|(_, seen)| matches!(seen.what, What::CaughtUp(_)));
            caught_up.map(|(_, seen)| seen.at).max()
        });
        self.decided = decided;
        let decided = match (self.fault, decided) {
            // The master may stay; while the log is without a leader, nodes may also ask for the reign one after the
            // other.
            (Fault::Leader, _) => self.at + DEAD,
            (_, Some((_, decided))) => decided,
            (_, None) => return,
        };
        let first = acknowledged.partition_point(|at| *at < decided);
        self.acknowledged = acknowledged.get(first).copied();
        let before = acknowledged.partition_point(|at| *at < self.at).saturating_sub(1);
        let around = acknowledged.get(before..=first).unwrap_or_default();
        self.gap = around.windows(2).map(|pair| pair[1].since(pair[0])).max();
    }
}

/// How many nodes do not come to have what clients were told. Nodes are listened to meanwhile: one that came back late
/// has yet to be told where its peers are.
fn differ(processes: &mut Processes, counters: &[(String, i64)], ends: &AtomicBool) -> Result<u64, Failure> {
    let until = Instant::now() + AGREE_MAX;
    let agrees = |address: &SocketAddr| -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        let mut parser = ReplyParser::default();
        for (counter, count) in counters {
            let found = client::ask(&mut stream, &mut parser, &["GET", counter], Nanos::from_secs(5))?;
            let right = match count {
                0 => Value::Null,
                count => Value::bulk(count.to_string()),
            };
            if found != right {
                return Ok(false);
            }
        }
        Ok(true)
    };
    loop {
        let addresses = processes.addresses();
        let differing = addresses
            .iter()
            .filter(|address| !agrees(address).unwrap_or(false))
            .count();
        if differing == 0 || Instant::now() > until || ends.load(Ordering::SeqCst) {
            return Ok(differing as u64);
        }
        processes.listen(LOOK_EVERY)?;
    }
}

/// A process that removes the run's folder where this one is killed. It lives as long as this process holds the other
/// end of its input, and a moment longer.
struct Sweeper {
    child: Child,
    input: Option<PipeWriter>,
}

impl Sweeper {
    fn start(folder: &Path) -> std::io::Result<Sweeper> {
        let (output, input) = std::io::pipe()?;
        let mut command = Command::new("/proc/self/exe");
        command
            .args(["federation", "sweep"])
            .arg(folder)
            // What a terminal sends to the run's processes (closed, Ctrl-\) must not end what tidies up after them.
            .process_group(0)
            .stdin(output)
            .stdout(Stdio::null());
        Ok(Sweeper {
            child: command.spawn()?,
            input: Some(input),
        })
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.input = None;
        drop(self.child.wait());
    }
}

/// How many endings of each kind there are, by name.
fn endings(outcome: &Outcome) -> BTreeMap<&'static str, u64> {
    use client::Ending::{Late, Overdue, Refused, Timely, Unknown};
    let kinds = [
        ("timely", Timely),
        ("overdue", Overdue),
        ("late", Late),
        ("unknown", Unknown),
        ("refused", Refused),
    ];
    kinds.map(|(name, kind)| (name, outcome.count(kind))).into()
}

#[cfg(test)]
mod tests;
