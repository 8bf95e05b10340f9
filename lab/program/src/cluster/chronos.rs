//! `punctual-lab experiment chronos-* --platform linux`: the runs of [`measured`], with nodes and balancers as
//! processes and the stock trading service as their load.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use punctual_cli::cluster::run::processes::Part as Process;
use punctual_cli::cluster::run::{LocalCluster, ended_by_signals};
use punctual_evaluation::chronos::measured::{CLIENTS, ITEM, PATIENCE, PERIOD, Removal, TARGET, Trial};
use punctual_evaluation::samples::Run;
use punctual_federation::admission::AdmissionKind;
use punctual_federation::balancer::BalancerKind;
use punctual_files::failure::Failure;
use punctual_files::local::LocalSettings;
use punctual_files::node::BacklogFile;
use punctual_os::linux::thread::process_cpu_time_of;
use punctual_server::resp::Reply;
use punctual_units::Nanos;

use super::stock::{self, Balance, Ending, Kind, Line, Pace, StockTally, Trade};

/// Stocks of the market: the paper's.
const STOCKS: usize = 3000;
/// Duration of the measurement of what slaves serve.
const CAPACITY: Duration = Duration::from_secs(3);
/// Time limit for a slave to learn its model: 124 periods once it is loaded.
const LEARNING_MAX: Duration = Duration::from_secs(100);
/// Attempts to learn it.
const LEARNINGS: u32 = 3;
/// Time limit for the figures of a node.
const ASK_MAX: Duration = Duration::from_millis(200);
/// Time limit for restarted processes to serve.
const SERVE_MAX: Duration = Duration::from_secs(30);

/// Measures trials with processes.
pub struct Measuring {
    /// Duration of each run.
    duration: Duration,
    folder: tempfile::TempDir,
    ends: Arc<AtomicBool>,
    /// Requests a second that as many slaves serve, as measured on the first cluster of that size.
    capacities: RefCell<BTreeMap<u32, f64>>,
}

/// A cluster with its market.
struct Market {
    cluster: LocalCluster,
    slaves: u32,
    ends: Arc<AtomicBool>,
    /// Balancers, by their index among them.
    balancers: Vec<BalancerKind>,
    writer: Line,
    /// Requests a second that the slaves serve.
    capacity: f64,
}

impl Measuring {
    /// # Errors
    /// Those of the system.
    pub fn new(duration: Nanos) -> Result<Measuring, Failure> {
        let folder = tempfile::tempdir().map_err(|error| Failure::input([error.to_string()]))?;
        let (duration, ends) = (duration.into(), ended_by_signals()?);
        Ok(Measuring {
            duration,
            folder,
            ends,
            capacities: RefCell::default(),
        })
    }

    /// Runs the trials; those with as many slaves and the same admission one after the other on the same nodes.
    pub fn run(&self, trials: &[Trial], seed: u64, tell: &dyn Fn(&str)) -> Vec<Result<Run, String>> {
        let mut runs = Vec::new();
        let group = |trial: &Trial| (trial.slaves, trial.policies().1);
        let mut left: Vec<Trial> = trials.to_vec();
        while let Some(first) = left.first().map(group) {
            let own: Vec<Trial> = left.extract_if(.., |trial| group(trial) == first).collect();
            match self.on_one_cluster(&own, seed, tell) {
                Ok(measured) => runs.extend(measured.into_iter().map(Ok)),
                Err(failure) => runs.push(Err(format!("{} slaves, {}: {failure}", first.0, first.1.name()))),
            }
            if self.ends.load(Ordering::SeqCst) {
                runs.push(Err("ended by a signal".into()));
                break;
            }
        }
        runs
    }

    fn on_one_cluster(&self, trials: &[Trial], seed: u64, tell: &dyn Fn(&str)) -> Result<Vec<Run>, Failure> {
        let [first, ..] = trials else { return Ok(Vec::new()) };
        let admission = first.policies().1;
        if admission == AdmissionKind::Paper && !self.model().exists() {
            self.learn(seed, tell)?;
        }
        let mut balancers: Vec<BalancerKind> = trials.iter().map(|trial| trial.policies().0).collect();
        balancers.dedup();
        balancers.sort_by_key(|kind| kind.name());
        balancers.dedup();
        let mut market = self.open(first.slaves, admission, balancers)?;
        let mut runs = Vec::new();
        for trial in trials {
            let labels: Vec<String> = trial
                .labels()
                .into_iter()
                .map(|(key, value)| format!("{key} {value}"))
                .collect();
            let served = market.capacity;
            tell(&format!("{}; {served:.0} requests/s are served", labels.join(", ")));
            runs.push(market.measure(trial, self.duration, seed)?);
        }
        market.close()?;
        Ok(runs)
    }

    /// File of the model that a slave has learned.
    fn model(&self) -> PathBuf {
        self.folder.path().join("model.json")
    }

    /// Has one slave learn its model, as the paper does for all. A busy machine may spoil the first attempts.
    fn learn(&self, seed: u64, tell: &dyn Fn(&str)) -> Result<(), Failure> {
        let mut found = String::new();
        for attempt in 1..=LEARNINGS {
            tell(&format!("a slave learns its model, attempt {attempt} of {LEARNINGS}"));
            let mut market = self.open(1, AdmissionKind::Paper, vec![BalancerKind::RoundRobin])?;
            let mut line = Line::connect(market.cluster.processes.addresses(true)[0]);
            let over = AtomicBool::new(false);
            let trade = Trade {
                duration: LEARNING_MAX,
                ..market.trade(Pace::Open(2.0 * market.capacity), PATIENCE, PATIENCE, seed)
            };
            trade.run(&over, |_| {
                market.cluster.listen()?;
                found = word(&figures(&mut line), "bound_law").unwrap_or_default();
                let ends = ["law", "rests"].contains(&found.as_str()) || self.ends.load(Ordering::SeqCst);
                over.store(ends, Ordering::SeqCst);
                Ok(())
            })?;
            market.close()?;
            if self.model().exists() {
                return Ok(());
            }
        }
        let why = format!("no model explains a slave's delay; its law {found}, use a machine with less to do");
        Err(Failure::input([why]))
    }

    /// Starts nodes and balancers, makes the market, and measures what is served.
    fn open(&self, slaves: u32, admission: AdmissionKind, balancers: Vec<BalancerKind>) -> Result<Market, Failure> {
        let settings = LocalSettings {
            nodes: slaves,
            balancers: 0,
            more_balancers: balancers.clone(),
            admission,
            backlog: (admission == AdmissionKind::Paper).then(|| BacklogFile {
                target: TARGET,
                period: PERIOD,
                model: Some(self.model()),
            }),
            item: ITEM,
            validity: Nanos::from_secs(10),
            objects_max: STOCKS,
            ..LocalSettings::default()
        };
        let cluster = LocalCluster::start(&settings, &self.ends)?;
        let clients = (CLIENTS * slaves) as usize;
        let addresses = cluster.processes.addresses(false);
        let writer = stock::set_up(&addresses, clients, STOCKS).map_err(|why| Failure::input([why]))?;
        let mut market = Market {
            cluster,
            slaves,
            ends: Arc::clone(&self.ends),
            balancers,
            writer,
            capacity: 0.0,
        };
        if !self.capacities.borrow().contains_key(&slaves) {
            let busy = Trade {
                duration: CAPACITY,
                clients: clients / 4,
                ..market.trade(Pace::Busy, PATIENCE, PATIENCE, 1)
            };
            let served = busy.run(&self.ends, |_| market.cluster.listen())?;
            let capacity = served.ended_per_s(&Kind::ALL, &[Ending::Timely]);
            self.capacities.borrow_mut().insert(slaves, capacity);
        }
        market.capacity = self.capacities.borrow().get(&slaves).copied().unwrap_or_default();
        Ok(market)
    }
}

impl Market {
    fn trade(&self, pace: Pace, deadline: Nanos, told: Nanos, seed: u64) -> Trade {
        Trade {
            addresses: self.cluster.processes.addresses(false),
            clients: (CLIENTS * self.slaves) as usize,
            stocks: STOCKS,
            pace,
            deadline: deadline.into(),
            told: told.into(),
            duration: CAPACITY,
            seed,
        }
    }

    fn measure(&mut self, trial: &Trial, duration: Duration, seed: u64) -> Result<Run, Failure> {
        let (kind, admission) = trial.policies();
        let place = self
            .balancers
            .iter()
            .position(|other| *other == kind)
            .unwrap_or_default();
        let told = if admission == AdmissionKind::Timely {
            TARGET
        } else {
            PATIENCE
        };
        let mut trade = Trade {
            duration,
            ..self.trade(Pace::Open(trial.load * self.capacity), TARGET, told, seed)
        };
        trade.addresses = vec![trade.addresses[place]];
        let nodes = self.cluster.processes.addresses(true);
        let mut lines: Vec<Line> = nodes.iter().map(|address| Line::connect(*address)).collect();
        let mut delays: Vec<Vec<Option<f64>>> = vec![Vec::new(); lines.len()];
        let cpu = |market: &Market| {
            let balancer = market.cluster.processes.nodes() + place;
            let id = { market.cluster.processes.ids() }
                .find(|(part, ..)| *part == balancer)?
                .2;
            process_cpu_time_of(id)
        };
        let before = (cpu(self), law_cpu(&mut lines));
        let ends = Arc::clone(&self.ends);
        let (mut struck, mut asked) = (Vec::new(), Duration::ZERO);
        let tally = trade.run(&ends, |elapsed| {
            if struck.is_empty() && elapsed * 2 >= duration {
                struck = self.strike(trial.removed);
            }
            if elapsed >= asked + Duration::from_secs(1) {
                asked = elapsed;
                for (place, line) in lines
                    .iter_mut()
                    .enumerate()
                    .filter(|(place, _)| !struck.contains(place))
                {
                    delays[place].push(word(&figures(line), "delay_mean_us").and_then(|us| us.parse().ok()));
                }
            }
            self.cluster.listen()
        })?;
        let seconds = duration.as_secs_f64();
        let share = |before: Option<Nanos>, after: Option<Nanos>| Some((after? - before?).as_secs_f64() / seconds);
        let alive = lines.len() - struck.len();
        let law = { law_cpu(&mut lines).zip(before.1) }.filter(|_| admission == AdmissionKind::Paper && alive > 0);
        let law = law.map(|(after, before)| (after - before) / 1e6 / seconds / alive as f64);
        let balancer = share(before.0, cpu(self));
        self.restore(&struck)?;
        Ok(run_of(trial, duration, &tally, &delays, [balancer, law]))
    }

    /// Kills what is to be removed; returns the numbers of the nodes.
    fn strike(&mut self, removed: Removal) -> Vec<Process> {
        let processes = &mut self.cluster.processes;
        let master = processes.master.map(|(node, _)| node.0 as usize);
        let parts: Vec<Process> = match removed {
            Removal::Master => master.into_iter().collect(),
            // Slaves in the paper's sense: the master stays.
            Removal::Slaves(count) => {
                let slaves = (0..processes.nodes()).rev().filter(|part| Some(*part) != master);
                slaves.take(count as usize).collect()
            }
        };
        parts.iter().for_each(|part| _ = processes.kill(*part));
        parts
    }

    fn restore(&mut self, struck: &[Process]) -> Result<(), Failure> {
        struck
            .iter()
            .try_for_each(|part| self.cluster.processes.restart(*part))?;
        let until = Instant::now() + SERVE_MAX;
        while !self.cluster.processes.all_serve() && Instant::now() < until {
            self.cluster.listen()?;
        }
        Ok(())
    }

    /// Counts the market, and ends the nodes in order.
    fn close(mut self) -> Result<(), Failure> {
        let clients = (CLIENTS * self.slaves) as usize;
        let found = stock::count(&mut self.writer, clients, STOCKS).map_err(|why| Failure::input([why]))?;
        self.cluster.processes.leave();
        match found == Balance::at_first(clients, STOCKS) {
            true => Ok(()),
            false => Err(Failure::Refuted(format!(
                "money or shares were lost, made or negative: {found:?}"
            ))),
        }
    }
}

/// INFO of a node about its admission.
fn figures(line: &mut Line) -> String {
    match line.ask(&["INFO".to_owned(), "admission".to_owned()], ASK_MAX) {
        Some(Reply::Bulk(text)) => String::from_utf8_lossy(&text).into_owned(),
        Some(Reply::Verbatim(text)) => text,
        _ => String::new(),
    }
}

/// A figure of INFO.
fn word(told: &str, key: &str) -> Option<String> {
    let lines = told.lines().filter_map(|line| line.split_once(':'));
    { lines }
        .find(|(name, _)| *name == key)
        .map(|(_, value)| value.to_owned())
}

/// Microseconds of processor time that the laws of all nodes have taken.
fn law_cpu(lines: &mut [Line]) -> Option<f64> {
    let each = lines
        .iter_mut()
        .map(|line| word(&figures(line), "bound_law_cpu_us")?.parse::<f64>().ok());
    let known: Vec<f64> = each.flatten().collect();
    (!known.is_empty()).then(|| known.iter().sum())
}

fn run_of(
    trial: &Trial,
    duration: Duration,
    tally: &StockTally,
    delays: &[Vec<Option<f64>>],
    [balancer, law]: [Option<f64>; 2],
) -> Run {
    let all: Vec<Ending> = Ending::ALL.iter().map(|(ending, _)| *ending).collect();
    let rate = |endings: &[Ending]| tally.ended_per_s(&Kind::QUERIES, endings);
    let offered = rate(&all);
    let of_offered = |endings: &[Ending]| (offered > 0.0).then(|| rate(endings) / offered);
    let [timely, served] = tally.items_per_s();
    let [delay, p99] = tally.took_ms(&Kind::QUERIES);
    let (stale, updates) = tally.freshness();
    let mean = |delays: &Vec<Option<f64>>| {
        let known: Vec<f64> = delays.iter().flatten().copied().collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    let of_nodes: Vec<f64> = delays.iter().filter_map(mean).collect();
    let of_all = of_nodes.iter().sum::<f64>() / of_nodes.len().max(1) as f64;
    let off = of_nodes
        .iter()
        .map(|delay| (delay / of_all - 1.0).abs())
        .fold(0.0, f64::max);
    let half = duration.as_secs() as usize / 2;
    let is_struck = trial.removed != Removal::Slaves(0);
    let single = [
        ("offered_per_s", Some(offered)),
        ("unsent_share", of_offered(&[Ending::Unsent])),
        ("items_per_s", Some(served)),
        ("items_timely_per_s", Some(timely)),
        ("of_served", (served > 0.0).then(|| timely / served)),
        ("refused_share", of_offered(&[Ending::Late, Ending::Refused])),
        ("delay_ms", delay),
        ("delay_ms.p99", p99),
        ("stale_share", stale),
        ("updates_per_s", Some(updates)),
        ("master_ms", tally.took_ms(&Kind::ORDERS)[0]),
        ("node_off", (of_all > 0.0).then_some(off)),
        ("balancer_cpu", balancer),
        ("law_cpu", law),
        ("timely_before", tally.timely_in(0..half).filter(|_| is_struck)),
        // From a second after the removal on.
        (
            "timely_after",
            tally
                .timely_in(half + 1..duration.as_secs() as usize)
                .filter(|_| is_struck),
        ),
    ];
    let mut run = Run {
        labels: trial.labels(),
        settled_from: 0,
        series: single.map(|(name, value)| (name.to_owned(), vec![value])).into(),
    };
    let first = delays.first().into_iter().flatten().map(|us| us.map(|us| us / 1e3));
    run.series.insert("transient_ms".into(), first.collect());
    run
}

/// The setting as (name, value) pairs for the report.
pub fn setting(duration: Nanos) -> Vec<(String, String)> {
    [
        ("item", format!("{ITEM} of a thread of its slave, of two")),
        (
            "clients",
            format!("{CLIENTS} a slave, arrivals at random instants for {duration}"),
        ),
        (
            "timely",
            format!("within {TARGET}; the paper's policies are told {PATIENCE}"),
        ),
        (
            "period",
            format!("{PERIOD}; the paper's law has the model of one slave"),
        ),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}
