//! `punctual-lab experiment chronos-* --platform linux`: the trials of `punctual_evaluation::chronos::measured`, with
//! nodes and balancers as processes and the stock trading service as their load.

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
/// Failure of an experiment that a signal ended: some of its runs are missing.
pub const ENDED: &str = "ended by a signal before all runs were measured";
/// First seconds of a run that are not counted, and at most a third of it: servers that refuse nothing answer in time
/// until their queues have grown, and laws have not settled.
const SETTLED: Duration = Duration::from_secs(5);

/// Measures trials with processes.
pub struct Measuring {
    /// Duration of each run.
    duration: Duration,
    folder: tempfile::TempDir,
    ends: Arc<AtomicBool>,
    /// Capacity by the number of slaves, as measured on the first cluster of that size.
    capacities: RefCell<BTreeMap<u32, Capacity>>,
}

/// Requests, and items of queries, a second.
#[derive(Clone, Copy, Debug, Default)]
struct Capacity {
    requests: f64,
    items: f64,
}

/// A cluster with its market.
struct Market {
    cluster: LocalCluster,
    slaves: u32,
    ends: Arc<AtomicBool>,
    /// Balancers, by their index among them.
    balancers: Vec<BalancerKind>,
    writer: Line,
    capacity: Capacity,
}

impl Measuring {
    /// # Errors
    /// Those of the system.
    pub fn new(duration: Nanos) -> Result<Measuring, Failure> {
        let folder = tempfile::tempdir().map_err(Failure::of)?;
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
                runs.push(Err(ENDED.into()));
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
            let served = market.capacity.requests;
            tell(&format!("{}; {served:.0} requests/s are served", labels.join(", ")));
            let run = market.measure(trial, self.duration, seed)?;
            if self.ends.load(Ordering::SeqCst) {
                break; // the run is shorter than the others
            }
            runs.push(run);
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
                ..market.trade(Pace::Open(2.0 * market.capacity.requests), PATIENCE, PATIENCE, seed)
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
        Err(Failure::of(why))
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
        let writer = stock::set_up(&addresses, clients, STOCKS).map_err(Failure::of)?;
        let mut market = Market {
            cluster,
            slaves,
            ends: Arc::clone(&self.ends),
            balancers,
            writer,
            capacity: Capacity::default(),
        };
        if !self.capacities.borrow().contains_key(&slaves) {
            let busy = Trade {
                duration: CAPACITY,
                clients: clients / 4,
                ..market.trade(Pace::Busy, PATIENCE, PATIENCE, 1)
            };
            let served = busy.run(&self.ends, |_| market.cluster.listen())?;
            let capacity = Capacity {
                requests: served.ended_per_s(&Kind::ALL, &[Ending::Timely]),
                items: served.items_per_s()[0],
            };
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
            settled: Duration::ZERO,
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
            settled: settled(duration),
            ..self.trade(Pace::Open(trial.load * self.capacity.requests), TARGET, told, seed)
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
        let law = of_law(&before.1, &law_cpu(&mut lines), &struck).filter(|_| admission == AdmissionKind::Paper);
        let law = law.map(|us| us / 1e6 / seconds);
        let balancer = share(before.0, cpu(self));
        self.restore(&struck)?;
        Ok(run_of(trial, duration, &tally, self.capacity, &delays, [balancer, law]))
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
        struck.iter().try_for_each(|part| self.cluster.processes.spawn(*part))?;
        let cluster = &mut self.cluster;
        until_served(SERVE_MAX, || {
            cluster.listen()?;
            Ok(cluster.processes.all_serve())
        })
    }

    /// Counts the market, and ends the nodes in order.
    fn close(mut self) -> Result<(), Failure> {
        let clients = (CLIENTS * self.slaves) as usize;
        let found = stock::count(&mut self.writer, clients, STOCKS).map_err(Failure::of)?;
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

/// Waits until all processes serve.
///
/// # Errors
/// That of `serve`, and after `max`: the next run would have fewer nodes than its label says.
fn until_served(max: Duration, mut serve: impl FnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
    let until = Instant::now() + max;
    while !serve()? {
        if Instant::now() >= until {
            let why = format!("a node that was killed does not serve {max:?} after its restart; run it again");
            return Err(Failure::of(why));
        }
    }
    Ok(())
}

/// The first time of a run of this duration that is not counted, in whole seconds.
fn settled(duration: Duration) -> Duration {
    Duration::from_secs((duration / 3).min(SETTLED).as_secs())
}

/// Microseconds of processor time that the law of each node has taken.
fn law_cpu(lines: &mut [Line]) -> Vec<Option<f64>> {
    let each = lines
        .iter_mut()
        .map(|line| word(&figures(line), "bound_law_cpu_us")?.parse().ok());
    each.collect()
}

/// Microseconds that the law of a node took between two looks, in the mean of all that were not killed; `None` if one
/// of these did not answer.
fn of_law(before: &[Option<f64>], after: &[Option<f64>], struck: &[Process]) -> Option<f64> {
    let alive = { before.iter().zip(after).enumerate() }.filter(|(place, _)| !struck.contains(place));
    let taken: Option<Vec<f64>> = alive.map(|(_, (before, after))| Some((*after)? - (*before)?)).collect();
    taken.and_then(|taken| (!taken.is_empty()).then(|| taken.iter().sum::<f64>() / taken.len() as f64))
}

/// The largest difference of a node's mean delay from that of all, relative; `None` if a node has told none, or is
/// alone.
fn nodes_off(delays: &[Vec<Option<f64>>], settled: usize) -> Option<f64> {
    let mean = |delays: &Vec<Option<f64>>| {
        let known: Vec<f64> = delays.iter().skip(settled).flatten().copied().collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    let of_nodes: Vec<f64> = delays.iter().map(mean).collect::<Option<_>>()?;
    let of_all = of_nodes.iter().sum::<f64>() / of_nodes.len().max(1) as f64;
    let off = of_nodes.iter().map(|delay| (delay / of_all - 1.0).abs());
    (of_nodes.len() > 1 && of_all > 0.0).then(|| off.fold(0.0, f64::max))
}

fn run_of(
    trial: &Trial,
    duration: Duration,
    tally: &StockTally,
    capacity: Capacity,
    delays: &[Vec<Option<f64>>],
    [balancer, law]: [Option<f64>; 2],
) -> Run {
    let all: Vec<Ending> = Ending::ALL.iter().map(|(ending, _)| *ending).collect();
    let rate = |kinds: &[Kind], endings: &[Ending]| tally.ended_per_s(kinds, endings);
    let offered = rate(&Kind::QUERIES, &all);
    let share = |kinds: &[Kind], endings: &[Ending]| {
        let offered = rate(kinds, &all);
        (offered > 0.0).then(|| rate(kinds, endings) / offered)
    };
    let of_offered = |endings: &[Ending]| share(&Kind::QUERIES, endings);
    let answered = [Ending::Timely, Ending::Overdue];
    let [timely, served] = tally.items_per_s();
    let [delay, p99] = tally.took_ms(&Kind::QUERIES);
    let (stale, updates) = tally.freshness();
    let [settled, half, end] = [settled(duration), duration / 2, duration].map(|at| at.as_secs() as usize);
    let is_struck = trial.removed != Removal::Slaves(0);
    let first: Vec<_> = delays
        .first()
        .into_iter()
        .flatten()
        .map(|us| us.map(|us| us / 1e3))
        .collect();
    let told = first.iter().skip(settled).flatten().count() as f64;
    let single = [
        ("offered_per_s", Some(offered)),
        ("unsent_share", of_offered(&[Ending::Unsent])),
        ("items_per_s", Some(served)),
        ("items_timely_per_s", Some(timely)),
        ("capacity_items_per_s", Some(capacity.items)),
        ("of_capacity", (capacity.items > 0.0).then(|| timely / capacity.items)),
        ("answered_share", of_offered(&answered)),
        ("orders_share", share(&Kind::ORDERS, &answered)),
        (
            "told_share",
            Some(told / (end.saturating_sub(settled + 1)).max(1) as f64),
        ),
        ("of_served", (served > 0.0).then(|| timely / served)),
        ("refused_share", of_offered(&[Ending::Late, Ending::Refused])),
        ("delay_ms", delay),
        ("delay_ms.p99", p99),
        ("stale_share", stale),
        ("updates_per_s", Some(updates)),
        ("master_ms", tally.took_ms(&Kind::ORDERS)[0]),
        ("node_off", nodes_off(delays, settled)),
        ("balancer_cpu", balancer),
        ("law_cpu", law),
        ("timely_before", tally.timely_in(settled..half).filter(|_| is_struck)),
        // From a second after the removal on.
        ("timely_after", tally.timely_in(half + 1..end).filter(|_| is_struck)),
    ];
    let mut run = Run {
        labels: trial.labels(),
        settled_from: 0,
        series: single.map(|(name, value)| (name.to_owned(), vec![value])).into(),
    };
    run.series.insert("transient_ms".into(), first);
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
            "counted",
            format!(
                "from {:?} on, once queues and laws have settled",
                settled(duration.into())
            ),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_does_not_serve_again_is_an_error() {
        assert!(until_served(Duration::ZERO, || Ok(true)).is_ok());
        let failed = until_served(Duration::ZERO, || Ok(false)).unwrap_err();
        assert!(failed.to_string().contains("does not serve"), "{failed}");
    }

    #[test]
    fn a_law_is_measured_on_all_nodes_that_live_or_not_at_all() {
        let (before, after) = ([Some(10.0), Some(100.0), None], [Some(30.0), Some(140.0), None]);
        assert_eq!(of_law(&before, &after, &[2]), Some(30.0));
        assert_eq!(of_law(&before, &after, &[]), None);
        assert_eq!(of_law(&before, &[None, Some(140.0), None], &[2]), None);
        assert_eq!(of_law(&before, &after, &[0, 1, 2]), None);
    }

    #[test]
    fn nodes_are_compared_where_all_have_told_their_delay() {
        let told = |delays: [f64; 3]| delays.map(Some).to_vec();
        let (one, other) = (told([900.0, 90.0, 110.0]), told([0.0, 300.0, 300.0]));
        assert_eq!(nodes_off(&[one.clone(), other], 1), Some(0.5));
        assert_eq!(nodes_off(&[one.clone(), vec![Some(100.0), None]], 1), None);
        assert_eq!(nodes_off(&[one], 1), None);
    }

    /// Whatever the duration, servers that refuse nothing are counted after their queues have grown.
    #[test]
    fn the_first_seconds_are_not_counted() {
        let trial = Trial {
            slaves: 2,
            policy: "rr",
            load: 2.0,
            removed: Removal::Slaves(1),
        };
        for seconds in [12, 60] {
            let duration = Duration::from_secs(seconds);
            let mut tally = StockTally::new(TARGET);
            tally.timely_at(Duration::from_millis(900), 1000);
            tally.ended(Kind::ViewStock, Ending::Overdue, 80, 0, PATIENCE);
            tally.ran(duration.into(), settled(duration).into(), 0);
            let capacity = Capacity {
                requests: 10.0,
                items: 800.0,
            };
            let run = run_of(&trial, duration, &tally, capacity, &[], [None; 2]);
            let first = |series: &str| run.series[series][0];
            assert_eq!(
                ["of_capacity", "timely_before", "timely_after"].map(first),
                [Some(0.0); 3]
            );
            assert_eq!((first("answered_share"), first("orders_share")), (Some(1.0), None));
        }
    }
}
