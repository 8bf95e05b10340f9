//! `punctual federation run`: nodes as processes of this machine, a load, and what an outage is made of.

mod audit;
mod client;
mod load;
mod processes;
mod report;
mod settings;

use std::collections::BTreeMap;
use std::io::PipeWriter;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use punctual_federation::ids::{FederationId, NodeId};
use punctual_logs::Local;
use punctual_logs::socket::LogServer;
use punctual_node::seen::{Seen, What};
use punctual_os::LinuxOs;
use punctual_server::resp::Value;
use punctual_server::resp::reply::ReplyParser;
use punctual_units::{Clock, Nanos, Time};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

pub use self::audit::Faults;
use self::audit::{Audited, compare};
use self::client::Nodes;
use self::load::{Load, Offer, Outcome};
use self::processes::Processes;
pub use self::settings::Settings;
use crate::args::FederationRun;
use crate::commands::print;
use crate::failure::Failure;
use crate::output::Output;

/// How long a killed node stays dead.
const DEAD: Nanos = Nanos::from_secs(1);
/// How often a run looks for signals.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long all nodes may take at the end to have what clients were told.
const AGREE_MAX: Duration = Duration::from_secs(60);

/// What becomes of the master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Fault {
    /// Its process is killed, and started again after a second.
    Kill,
    /// Its process stands still (SIGSTOP) for a second.
    Stop,
}

impl Fault {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Kill => "killed",
            Fault::Stop => "stopped",
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
        "{} nodes, log: local (one file of this machine, not replicated), {} requests/s for {}\n",
        settings.nodes, settings.rate, settings.duration
    );
    let is_apart = arguments.json.as_deref() != Some(Path::new("-"));
    if is_apart {
        print(&said)?;
    }
    let report = federation(&settings, &faults, |addresses| {
        let shown: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        if is_apart {
            print(&format!("redis-cli reaches the nodes at {}\n", shown.join(", ")))?;
        }
        Ok(())
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
    began: impl FnOnce(&[std::net::SocketAddr]) -> Result<(), Failure>,
) -> Result<Report, Failure> {
    let input = |error: &dyn std::fmt::Display| Failure::input([error.to_string()]);
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(|error| input(&error))?;
    let folder = tempfile::Builder::new().prefix("punctual-federation-").tempdir();
    let folder = folder.map_err(|error| input(&format!("a folder for the nodes' stores: {error}")))?;
    let _sweeper = Sweeper::start(folder.path()).map_err(|error| input(&error))?;
    let federation = FederationId(u64::from(std::process::id()));
    let log = Local::open(&folder.path().join("log")).map_err(|error| input(&error))?;
    let socket = folder.path().join("log.socket");
    let server = LogServer::start(&socket, Audited::new(log, federation)).map_err(|error| input(&error))?;
    let mut processes = Processes::start(
        settings.nodes,
        federation,
        folder.path(),
        socket,
        settings.log_entries_max,
    )?;
    began(&processes.addresses())?;
    let nodes = Arc::new(Nodes {
        addresses: Mutex::new(processes.addresses()),
        master: AtomicUsize::new(processes.master.map_or(0, |(node, _)| node.0 as usize)),
    });
    let offer = Offer {
        rate: settings.rate,
        clients: settings.clients,
        deadline: settings.deadline,
        seed: settings.seed,
    };
    let load = Load::start(&nodes, offer);
    let start = LinuxOs.now();
    let troubled = trouble(settings, faults, start, &mut processes, &nodes, &mut signals);
    let offered_for = LinuxOs.now().since(start);
    let outcome = load.end();
    let (mut outages, interrupted) = troubled?;
    processes.listen(LOOK_EVERY)?;

    let log = server.shared().log().audit.clone();
    let mut faults = compare(&log, &outcome.requests);
    if !interrupted {
        faults.nodes_that_differ = differ(&processes.addresses(), &outcome.counters);
    }
    if let Some(failure) = server.shared().log().failure() {
        return Err(Failure::input([failure.to_owned()]));
    }
    let acknowledged = outcome.acknowledged();
    for outage in &mut outages {
        outage.explain(&processes.seen, &acknowledged);
    }
    processes.leave();
    Ok(Report {
        settings: settings.clone(),
        outcome,
        offered_for,
        outages,
        faults,
        entries: log.entries,
        takeovers: log.reigns,
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
    signals: &mut Signals,
) -> Result<(Vec<Outage>, bool), Failure> {
    let mut outages: Vec<Outage> = Vec::new();
    // Nodes that have yet to come back.
    let mut away: Vec<(Time, NodeId, Fault)> = Vec::new();
    let mut planned = faults.iter();
    let mut next = planned.next();
    loop {
        let interrupted = signals.pending().next().is_some();
        let now = LinuxOs.now();
        let is_over = now.since(start) >= settings.duration && next.is_none() && away.is_empty();
        let ends = interrupted || is_over;
        while let Some((_, node, fault)) = away.pop_if(|(back, ..)| ends || *back <= now) {
            match fault {
                Fault::Kill => processes.restart(node)?,
                Fault::Stop => _ = processes.signal(node, libc::SIGCONT),
            }
        }
        if ends {
            return Ok((outages, interrupted));
        }
        if let Some((_, fault)) = next.filter(|(at, _)| start + *at <= now && away.is_empty())
            && let Some((node, _)) = processes.master
        {
            let at = match fault {
                Fault::Kill => processes.kill(node),
                Fault::Stop => processes.signal(node, libc::SIGSTOP),
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
        let Some((_, decided)) = decided else { return };
        let first = acknowledged.partition_point(|at| *at < decided);
        self.acknowledged = acknowledged.get(first).copied();
        let before = acknowledged.partition_point(|at| *at < self.at).saturating_sub(1);
        let around = acknowledged.get(before..=first).unwrap_or_default();
        self.gap = around.windows(2).map(|pair| pair[1].since(pair[0])).max();
    }
}

/// How many nodes do not come to have what clients were told.
fn differ(addresses: &[std::net::SocketAddr], counters: &[(String, i64)]) -> u64 {
    let until = Instant::now() + AGREE_MAX;
    let agrees = |address: &std::net::SocketAddr| -> std::io::Result<bool> {
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
    let comes_to_agree = |address: &std::net::SocketAddr| {
        while !agrees(address).unwrap_or(false) {
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        true
    };
    addresses.iter().filter(|address| !comes_to_agree(address)).count() as u64
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
