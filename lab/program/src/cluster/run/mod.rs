//! `punctual-lab cluster run`: balancers and nodes as processes of this machine, a load, and the phases of an outage.

mod audit;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(not(feature = "etcd"))]
#[path = "no_etcd.rs"]
mod etcd;
mod load;
mod log;
mod network;
mod outage;
mod report;
pub mod settings;
mod usage;

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use punctual_cli::cluster::run::processes::{NodeNetwork, Part, Processes};
use punctual_cli::cluster::run::{Announcement, Folder, announce, ended_by_signals, random_id};
use punctual_cli::cluster::watch::{self, Watching};
use punctual_cli::commands::print;
use punctual_os::LinuxOs;
use punctual_server::resp::reply::ReplyParser;
use punctual_server::resp::{Bounds, Reply, Resp, Writer};
use punctual_units::{Clock, GOLDEN_GAMMA, Nanos, Time, mix};

pub use self::audit::Disagreements;
use self::audit::compare;
use self::load::LoadProcess;
use self::log::Backing;
use self::network::Network;
pub use self::outage::Outage;
use self::outage::{AFTER, AWAY};
pub use self::settings::{RATE_MAX, TrialSettings};
use self::usage::Usage;
use super::load::{LoadTally, Offer};
use crate::args::{ClusterTrial, Fault, LogKind};
use punctual_files::failure::Failure;
use punctual_report::output::{OutputFile, apart};
use punctual_report::summary::counted;

/// Interval between looks for signals.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Time limit, beyond the run's duration, for restarted processes to serve; the load goes on meanwhile.
const SERVE_MAX: Nanos = Nanos::from_secs(60);
/// Time limit at the end for all nodes to have every write that was acknowledged to clients.
const AGREE_MAX: Duration = Duration::from_secs(60);
/// Most counters that a node is asked for at once.
const COUNTERS_MAX: usize = 100;
/// Most outages that the text lists one by one.
const NAMED_MAX: usize = 20;

/// Result of a run.
#[derive(Clone, Debug)]
pub struct TrialReport {
    /// Settings of the run, from its file and options.
    pub settings: TrialSettings,
    /// Counts of requests by their ending.
    pub tally: LoadTally,
    /// All outages, in order.
    pub outages: Vec<Outage>,
    /// Disagreements between log and answers.
    pub faults: Disagreements,
    /// Memory, descriptors and processor time of each process.
    pub usage: Usage,
    /// Entries of the log.
    pub entries: u64,
    /// Entries of the log that begin a term of a master.
    pub takeovers: u64,
    /// Whether a signal ended the run.
    pub interrupted: bool,
}

/// Carries out `punctual-lab cluster run`.
pub fn run(arguments: &ClusterTrial, command: &str) -> Result<(), Failure> {
    let settings = TrialSettings::of(arguments)?;
    let is_apart = arguments.json.as_deref() != Some(Path::new("-"));
    apart(&[
        ("--json", arguments.json.as_deref()),
        ("--html", arguments.html.as_deref()),
    ])?;
    let json = OutputFile::report(arguments.json.as_ref())?;
    let html = OutputFile::page(arguments.html.as_ref())?;
    // Refused before anything is started.
    if matches!(arguments.fault, Fault::Leader | Fault::Both) && settings.log == LogKind::Local {
        return Err(Failure::of(log::NO_LEADER));
    }
    let faults = match arguments.fault_every {
        None => vec![(Nanos(settings.duration().0 / 2), arguments.fault)],
        Some(every) => now_and_then(every, &settings)?,
    };
    let load = match settings.rate {
        Some(rate) => format!("{rate} requests/s"),
        None => format!("{} times what they serve", settings.times),
    };
    let head = format!(
        "{}, {}, log: {}; {load} for {}, {:.0} % of them \
         write, each takes {} of a node's processor time\n",
        counted(u64::from(settings.cluster.balancers), "balancer"),
        counted(u64::from(settings.cluster.nodes), "node"),
        settings.log.described(),
        settings.duration(),
        settings.writes * 100.0,
        settings.cluster.work,
    );
    let mut watching = None;
    let report = federation(&settings, &faults, |processes| {
        let announcement = Announcement {
            head: &head,
            to_standard_output: is_apart,
            plain: arguments.plain,
            watch: html.is_some(),
            hint: "end the run and report",
        };
        watching = announce(processes, &announcement)?;
        Ok(())
    });
    let past = watching.map(Watching::end).transpose()?;
    let report = report?;
    if is_apart {
        print(&report::text(&report))?;
    }
    let written = [
        json.map(|file| file.json(&report::document(&report))),
        html.zip(past)
            .map(|(file, past)| file.text(&watch::page(&past, command))),
    ];
    Failure::all(written.into_iter().flatten())?;
    report.verdict()
}

impl TrialReport {
    /// Checks that all guarantees held, and that no process grew.
    ///
    /// # Errors
    /// [`Failure::Refuted`] otherwise.
    pub fn verdict(&self) -> Result<(), Failure> {
        if self.faults.any() {
            return Err(Failure::Refuted("a promise was broken, see above".into()));
        }
        match self.usage.growth(self.settings.clients()) {
            grew if grew.is_empty() => Ok(()),
            grew => Err(Failure::Refuted(grew.join("\n"))),
        }
    }
}

/// Plans a random fault every `every`. Cuts are left out, because with them no other program would reach the run's
/// balancers; so are faults of the log, which the run may not have started.
fn now_and_then(every: Nanos, settings: &TrialSettings) -> Result<Vec<(Nanos, Fault)>, Failure> {
    if every < AWAY {
        return Err(Failure::of(format!(
            "--fault-every: at least {AWAY}, for as long as a fault lasts"
        )));
    }
    let kinds: Vec<Fault> = Fault::ALL
        .into_iter()
        .filter(|fault| !matches!(fault, Fault::Cut | Fault::Leader | Fault::Both))
        .collect();
    let mut random = settings.seed;
    let fault = |number: u64| {
        (
            Nanos(every.0 * number),
            kinds[drawn(&mut random) as usize % kinds.len()],
        )
    };
    Ok((1..settings.duration().0.div_ceil(every.0)).map(fault).collect())
}

/// Next random number (SplitMix64).
fn drawn(random: &mut u64) -> u64 {
    *random = random.wrapping_add(GOLDEN_GAMMA);
    mix(*random)
}

/// Runs a federation under load, with faults at instants counted from the load's beginning.
///
/// # Errors
/// If it cannot start, or a process ends by itself.
pub fn federation(
    settings: &TrialSettings,
    faults: &[(Nanos, Fault)],
    began: impl FnOnce(&Processes) -> Result<(), Failure>,
) -> Result<TrialReport, Failure> {
    let ends = ended_by_signals()?;
    let cuts = faults.iter().any(|(_, fault)| *fault == Fault::Cut);
    // The network comes first, so that every later process is in it.
    if cuts && settings.log != LogKind::Local {
        let why = "cuts: the log would be cut off with its node, by a network that no etcd is in: leave out --log";
        return Err(Failure::of(why));
    }
    let network = match cuts {
        true => {
            let network = Network::start().map_err(|error| Failure::of(format!("cuts: {error}")))?;
            Some(Box::new(network) as Box<dyn NodeNetwork>)
        }
        false => None,
    };
    let folder = Folder::new()?;
    let federation = random_id();
    let socket = folder.path().join("log.socket");
    let mut log = log::open(&settings.log, folder.path(), &socket, federation)?;
    let place = (socket, log.address());
    let mut processes = Processes::start(federation, folder.path(), place, &settings.cluster, network, &ends)?;
    began(&processes)?;
    let mut load = LoadProcess::start(&Offer {
        addresses: processes.addresses(false),
        rate: settings.rate,
        times: settings.times,
        writes: settings.writes,
        clients: settings.clients(),
        deadline: settings.deadline,
        seed: settings.seed,
    })?;
    let is_over = || ends.load(Ordering::SeqCst);
    load.begins(|| {
        processes.listen(LOOK_EVERY)?;
        healthy(&mut *log).map(|()| !is_over())
    })?;
    let mut run = Run {
        settings,
        start: LinuxOs.now(),
        processes,
        load,
        log,
        usage: Usage::default(),
        away: Vec::new(),
        outages: Vec::new(),
        random: settings.seed,
    };
    let troubled = run.trouble(faults, &is_over);
    // With an immediate end, clients ask for no outcomes.
    let ended = run.load.end(&|| is_over() || troubled.is_err());
    troubled.and(ended)?;
    run.explain(true);
    let Run {
        mut processes,
        load,
        mut log,
        outages,
        usage,
        ..
    } = run;
    let audit = log.audit()?;
    let mut faults = compare(&audit, &load.clients);
    if !is_over() {
        faults.nodes_that_differ = differ(&mut processes, &load.counters, &ends)?;
    }
    healthy(&mut *log)?;
    let interrupted = is_over();
    if interrupted {
        // Clients did not ask to the end, and nodes were not waited for: these two figures say nothing then.
        (faults.answers_missing, faults.nodes_that_differ) = (0, 0);
    }
    processes.leave();
    Ok(TrialReport {
        settings: settings.clone(),
        tally: load.tally.clone(),
        outages,
        faults,
        usage,
        entries: audit.entries,
        takeovers: audit.reigns,
        interrupted,
    })
}

/// Fails if the log no longer answers, as far as this process knows.
fn healthy(log: &mut dyn Backing) -> Result<(), Failure> {
    log.failure().map_or(Ok(()), |failure| Err(Failure::of(failure)))
}

/// A run in progress.
struct Run<'s> {
    settings: &'s TrialSettings,
    /// Instant at which the load began.
    start: Time,
    processes: Processes,
    load: LoadProcess,
    log: Box<dyn Backing>,
    usage: Usage,
    /// Processes that are still away, with the instant at which to bring each back.
    away: Vec<(Time, Part, Fault)>,
    outages: Vec<Outage>,
    random: u64,
}

impl Run<'_> {
    /// Injects the planned faults until the run ends, or a signal comes.
    fn trouble(&mut self, faults: &[(Nanos, Fault)], is_over: &dyn Fn() -> bool) -> Result<(), Failure> {
        let mut planned = faults.iter();
        let mut next = planned.next();
        loop {
            healthy(&mut *self.log)?;
            let now = LinuxOs.now();
            let after = now.since(self.start);
            if self.usage.is_due(after) {
                self.look(after);
            }
            // A restarted process is waited for until it serves, however long that takes on a busy machine; one that
            // never does is counted by `differ`.
            let served = self.processes.all_serve() || after >= self.settings.duration() + SERVE_MAX;
            let settled = self.outages.last().is_none_or(|outage| outage.is_settled(now)) || served && is_over();
            let all = next.is_none() && self.away.is_empty() && served && settled;
            let ends = is_over() || after >= self.settings.duration() && all;
            self.bring_back(now, ends)?;
            if ends {
                return Ok(());
            }
            if let Some((_, fault)) = next.filter(|(at, _)| self.start + *at <= now)
                && self.away.is_empty()
                && served
                && settled
            {
                self.strike(*fault)?;
                next = planned.next();
            }
            self.processes.listen(LOOK_EVERY)?;
            self.load.take()?;
            self.explain(false);
        }
    }

    fn strike(&mut self, fault: Fault) -> Result<(), Failure> {
        let draw = drawn(&mut self.random);
        let Some(part) = fault.victim(&self.processes, &self.load, draw) else {
            return Ok(());
        };
        let at = match fault {
            Fault::Kill | Fault::ReplicaKill | Fault::BalancerKill => self.processes.kill(part),
            Fault::Stop => signal(&self.processes, part, libc::SIGSTOP),
            Fault::Cut => network::cut(part, true)?,
            Fault::Upgrade => self.processes.drain(part),
            Fault::Leader => self.log.kill_leader()?,
            Fault::Both => {
                let at = self.log.kill_leader()?;
                self.processes.kill(part);
                at
            }
        };
        // A process that is upgraded stays away only until it has ended.
        let until = if fault == Fault::Upgrade { at } else { at + AWAY };
        self.away.push((until, part, fault));
        let name = self.processes.name(part);
        self.outages.push(Outage::new(fault, part, name, at));
        Ok(())
    }

    /// Brings back the processes that are due; at the end, all of them.
    fn bring_back(&mut self, now: Time, ends: bool) -> Result<(), Failure> {
        let Run {
            away, processes, log, ..
        } = self;
        let has_left = |part: Part, fault| fault != Fault::Upgrade || has_ended(processes, part);
        let due = away.extract_if(.., |(until, part, fault)| {
            ends || *until <= now && has_left(*part, *fault)
        });
        for (_, part, fault) in due.collect::<Vec<_>>() {
            match fault {
                Fault::Kill | Fault::ReplicaKill | Fault::BalancerKill => processes.spawn(part)?,
                Fault::Stop => _ = signal(processes, part, libc::SIGCONT),
                Fault::Cut => _ = network::cut(part, false)?,
                Fault::Leader => log.restart()?,
                Fault::Both => {
                    log.restart()?;
                    processes.spawn(part)?;
                }
                Fault::Upgrade if has_ended(processes, part) => processes.spawn(part)?,
                Fault::Upgrade => {}
            }
        }
        Ok(())
    }

    /// Explains the last outage; each one is settled before the next begins.
    fn explain(&mut self, is_last: bool) {
        let now = LinuxOs.now();
        let Some(outage) = self
            .outages
            .last_mut()
            .filter(|outage| is_last || !outage.is_settled(now))
        else {
            return;
        };
        let is_away = self.away.iter().any(|(_, part, _)| *part == outage.part);
        if outage.back.is_none() && !is_away {
            outage.back = match outage.fault {
                // A stopped, cut or leaderless process never reported that it stopped serving.
                Fault::Stop | Fault::Cut | Fault::Leader => Some(outage.at + AWAY),
                _ => self.processes.serves(outage.part),
            };
        }
        // Keeps the former explanation if the kept requests no longer reach back to the fault.
        if self.load.reaches(outage.at) {
            outage.explain(&self.processes.seen, &self.load, self.processes.nodes(), now);
        }
        outage.log_gap = self.log.own_gap(outage.at, outage.at + AWAY);
    }

    /// Samples the usage of each process.
    fn look(&mut self, after: Nanos) {
        for (part, _, id) in self.processes.ids().collect::<Vec<_>>() {
            self.usage.look(self.processes.name(part), id, after);
        }
        self.usage.look("load".into(), self.load.id(), after);
        self.usage.look("run".into(), std::process::id(), after);
    }
}

impl Outage {
    /// Whether later events can no longer change this outage.
    fn is_settled(&self, now: Time) -> bool {
        self.back
            .is_some_and(|back| now.since(back) > AFTER + Nanos::from_millis(100))
    }
}

/// Number of nodes whose records still differ from the clients' counters after `AGREE_MAX`. Reads the nodes' lines
/// meanwhile, because a node that came back late still needs its peers' addresses.
fn differ(processes: &mut Processes, counters: &[(String, i64)], ends: &AtomicBool) -> Result<u64, Failure> {
    let until = Instant::now() + AGREE_MAX;
    let agrees = |address: &SocketAddr| -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(address, Duration::from_secs(1))?;
        let mut parser = ReplyParser::default();
        for counters in counters.chunks(COUNTERS_MAX) {
            let names = counters.iter().map(|(counter, _)| counter.as_str());
            let words: Vec<&str> = ["MGET"].into_iter().chain(names).collect();
            let found = ask(&mut stream, &mut parser, &words, Nanos::from_secs(5))?;
            let right = counters.iter().map(|(_, count)| match count {
                0 => Reply::Null,
                count => Reply::bulk(count.to_string()),
            });
            if found != Reply::Array(right.collect()) {
                return Ok(false);
            }
        }
        Ok(true)
    };
    loop {
        let addresses = processes.addresses(true);
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

/// Sends a request, and waits for its reply.
fn ask(stream: &mut TcpStream, parser: &mut ReplyParser, words: &[&str], patience: Nanos) -> std::io::Result<Reply> {
    use std::io::{Error, ErrorKind, Read};
    let until = LinuxOs.now() + patience;
    let mut out = Vec::new();
    let words = Reply::Array(words.iter().map(Reply::bulk).collect());
    Writer::new(&mut out, Resp::Two).value(&words);
    stream.set_write_timeout(Some(patience.into()))?;
    stream.write_all(&out)?;
    let mut bytes = [0; 4096];
    loop {
        let reply = parser.next(&Bounds::ADMITTED);
        if let Some(reply) = reply.map_err(|error| Error::new(ErrorKind::InvalidData, error))? {
            return Ok(reply);
        }
        let left = until.since(LinuxOs.now());
        if left == Nanos::ZERO {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left.into()))?;
        match stream.read(&mut bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => parser.feed(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Number of the process that `part` has now; `None` while it has none.
fn process(processes: &Processes, part: Part) -> Option<u32> {
    { processes.ids() }.find_map(|(of, _, id)| (of == part).then_some(id))
}

/// Whether the process no longer runs.
fn has_ended(processes: &Processes, part: Part) -> bool {
    process(processes, part).is_none()
}

/// Sends a process a signal (SIGSTOP, SIGCONT), and returns the instant.
fn signal(processes: &Processes, part: Part, signal: i32) -> Time {
    let at = LinuxOs.now();
    if let Some(process) = process(processes, part) {
        // SAFETY: plain numbers; the process is a child that was not waited for, so its id is not reused.
        unsafe { libc::kill(process as i32, signal) };
    }
    at
}

#[cfg(test)]
mod tests;
