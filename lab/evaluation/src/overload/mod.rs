//! Compares stores under more load than they can serve: `punctual serve`, Redis, and HAProxy before Redis.
//!
//! **Question.** More clients come than a server can serve. Each can use an answer until a deadline and none later. How
//! many get an answer in time?
//!
//! **Method.** Each server gets a number of records with which a request takes the same time on each
//! ([`servers::COMMAND`], which visits all keys): a command of Redis' own, so that no server has code that is special
//! to this comparison. The unloaded throughput of a server is measured first, by clients that wait for their answers.
//! Then multiples of it are offered by requests at random instants, each timed from when it was due ([`driver`]).
//! Servers take turns, on the same cores; the driver has another core, if there is one.
//!
//! Only requests to `punctual serve` state their deadline; the protocols of Redis and HAProxy cannot express one.

pub mod driver;
pub mod servers;

use std::io;
use std::path::PathBuf;

use driver::{Client, LoadCounts, Manner, OfferedLoad};
use punctual_platform::linux::thread::{allowed_cores, pin_to};
use punctual_units::{Nanos, percentile};
use serde::Serialize;
use servers::{Asker, COMMAND, Server, ServerKind, redis_benchmark, version};

/// Number of clients that wait for their answers, in the measurement of the unloaded throughput.
const UNLOADED: usize = 16;
/// Number of requests that redis-benchmark sends.
const CHECKED: u32 = 5_000;

/// Configuration of a comparison.
#[derive(Clone, Debug)]
pub struct OverloadPlan {
    /// Path of the `punctual` program.
    pub program: PathBuf,
    /// Number of connections to each server.
    pub connections: usize,
    /// Loads to offer, as multiples of a server's unloaded throughput.
    pub multiples: Vec<f64>,
    /// Number of times that all multiples are offered.
    pub rounds: u32,
    /// Duration of one load.
    pub length: Nanos,
    /// Time within which a request must be answered.
    pub deadline: Nanos,
    /// Execution time of a request.
    pub work: Nanos,
    /// Seed of the random instants.
    pub seed: u64,
}

/// Result of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct OverloadResult {
    /// Number of connections to each server.
    pub connections: usize,
    /// Time within which a request must be answered, in milliseconds.
    pub deadline_ms: f64,
    /// Cores of the servers, and cores of the driver.
    pub cores: [Vec<usize>; 2],
    /// Time for which each multiple was offered, in seconds, in all rounds together.
    pub offered_s: f64,
    /// Results of each server.
    pub servers: Vec<Row>,
    /// Servers that were left out because they are not installed.
    pub left_out: Vec<String>,
}

/// Results of a server.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub server: &'static str,
    /// First line of the version that the server's program prints.
    pub version: String,
    /// Number of records in the store during the measurement.
    pub records: usize,
    /// Execution time of a request beyond that with an empty store, in microseconds.
    pub work_us: f64,
    /// Throughput and delay with one connection that waits for each answer, below saturation.
    pub one_at_a_time: Check,
    /// Unloaded throughput, in requests per second.
    pub unloaded_per_s: f64,
    /// Results for each multiple.
    pub cells: Vec<Cell>,
}

/// Results of the driver and of redis-benchmark side by side, as a check of the driver.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Check {
    /// Requests per second that the driver measured.
    pub driver_per_s: f64,
    /// Median delay that the driver measured, in milliseconds.
    pub driver_p50_ms: Option<f64>,
    /// Requests per second that redis-benchmark measured; `None`: not installed.
    pub redis_benchmark_per_s: Option<f64>,
    /// Median delay that redis-benchmark measured, in milliseconds.
    pub redis_benchmark_p50_ms: Option<f64>,
}

/// Results of a server at one multiple, all rounds together. Rates are per second.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// Offered load divided by the unloaded throughput.
    pub multiple: f64,
    /// Requests that were due.
    pub offered_per_s: f64,
    /// Requests answered in time.
    pub timely_per_s: f64,
    /// Requests answered too late.
    pub late_per_s: f64,
    /// Requests answered `LATE`, at once or later: not executed.
    pub refused_per_s: f64,
    /// Requests abandoned because all connections waited for answers.
    pub unsent_per_s: f64,
    /// Requests answered by another error, or never.
    pub failed_per_s: f64,
    /// Text of the first failure.
    pub error: Option<String>,
    /// Median delay of answered requests, from the instant at which each was due, in milliseconds.
    pub p50_ms: Option<f64>,
    /// The 99th percentile of that delay, in milliseconds.
    pub p99_ms: Option<f64>,
    /// Timely answers per second divided by the unloaded throughput.
    pub timely_share: f64,
}

/// A server during a comparison.
struct Subject {
    server: Server,
    row: Row,
    tallies: Vec<LoadCounts>,
}

/// Runs the comparison; reports progress to `note`.
///
/// # Errors
/// The error of starting a server, or of a socket.
pub fn overload(plan: &OverloadPlan, note: &mut dyn FnMut(&str)) -> io::Result<OverloadResult> {
    let cores = allowed_cores();
    // The driver has a core of its own, so that its cost affects no server.
    let (for_servers, for_driver) = match cores.split_last() {
        Some((last, others @ [_, ..])) => (others.to_vec(), vec![*last]),
        _ => (cores.clone(), cores.clone()),
    };
    let has_own = for_servers != for_driver;
    let pin = |cores: &[_]| pin_to(cores).map_err(|refusal| io::Error::other(refusal.to_string()));
    let folder = tempfile::tempdir()?;
    // Servers inherit the affinity of this thread.
    pin(&for_servers)?;
    let (mut servers, mut left_out) = (Vec::new(), Vec::new());
    for kind in ServerKind::ALL {
        let version = match kind.program() {
            None => Some(env!("CARGO_PKG_VERSION").to_owned()),
            Some((program, argument)) => version(program, argument),
        };
        let redis = servers
            .iter()
            .find(|(server, _): &&(Server, String)| server.kind == ServerKind::Redis);
        let redis = redis.map(|(server, _)| server.address);
        let server = match (kind, version, redis) {
            (ServerKind::Ours, Some(version), _) => {
                Some((Server::ours(&plan.program, folder.path(), plan.connections)?, version))
            }
            (ServerKind::Redis, Some(version), _) => Some((Server::redis(folder.path(), plan.connections)?, version)),
            (ServerKind::Haproxy, Some(version), Some(redis)) => {
                Some((Server::haproxy(folder.path(), redis, plan.connections)?, version))
            }
            _ => None,
        };
        match server {
            Some(server) => servers.push(server),
            None => left_out.push(format!("{}: not installed", kind.name())),
        }
    }
    pin(&for_driver)?;
    left_out
        .iter()
        .for_each(|left_out| note(&format!("left out: {left_out}")));
    let mut subjects: Vec<Subject> = Vec::new();
    for (server, version) in servers {
        note(&format!("{}: records, and what is served unloaded", server.kind.name()));
        // HAProxy forwards to the same Redis, so the records are there already.
        let before = subjects.last().filter(|_| server.kind == ServerKind::Haproxy);
        let (records, work) = match before.map(|subject| &subject.row) {
            Some(redis) => (redis.records, Nanos((redis.work_us * 1e3) as u64)),
            None => Asker::connect(server.address)?.work(plan.work)?,
        };
        subjects.push(unloaded(plan, server, version, (records, work), has_own)?);
    }
    for round in 0..plan.rounds {
        for (number, multiple) in plan.multiples.iter().enumerate() {
            let count = subjects.len();
            for at in 0..count {
                // The first server rotates.
                let subject = &mut subjects[(at + number + round as usize) % count];
                let name = subject.server.kind.name();
                note(&format!(
                    "round {} of {}: {name}, {multiple} times",
                    round + 1,
                    plan.rounds
                ));
                let rate = multiple * subject.row.unloaded_per_s;
                let load = OfferedLoad {
                    length: plan.length,
                    seed: plan.seed + u64::from(round) * 1_000 + number as u64,
                    ..load(plan, subject.server.kind, Manner::Open(rate), has_own)
                };
                let mut client = Client::connect(subject.server.address, plan.connections)?;
                subject.tallies[number].add(client.offer(&load)?);
            }
        }
    }
    let offered = plan.length.as_secs_f64() * f64::from(plan.rounds);
    let rows = subjects.into_iter().map(|subject| {
        let Subject { mut row, tallies, .. } = subject;
        let cells = plan.multiples.iter().zip(tallies);
        row.cells = cells
            .map(|(multiple, tally)| cell(*multiple, tally, offered, row.unloaded_per_s))
            .collect();
        row
    });
    Ok(OverloadResult {
        connections: plan.connections,
        deadline_ms: plan.deadline.as_millis_f64(),
        cores: [for_servers, for_driver].map(|cores| cores.iter().map(|core| core.index()).collect()),
        offered_s: offered,
        servers: rows.collect(),
        left_out,
    })
}

fn load(plan: &OverloadPlan, kind: ServerKind, manner: Manner, spins: bool) -> OfferedLoad {
    OfferedLoad {
        command: COMMAND.iter().map(|word| word.as_bytes().to_vec()).collect(),
        tells: kind == ServerKind::Ours,
        manner,
        length: Nanos(plan.length.0 / 2),
        deadline: plan.deadline,
        seed: plan.seed,
        spins,
    }
}

/// Measures the unloaded throughput of a server with `records` records, whose requests take `work`.
fn unloaded(
    plan: &OverloadPlan,
    server: Server,
    version: String,
    (records, work): (usize, Nanos),
    spins: bool,
) -> io::Result<Subject> {
    let one = load(plan, server.kind, Manner::Closed(1), spins);
    let per_s = |tally: &LoadCounts, load: &OfferedLoad| (tally.timely + tally.late) as f64 / load.length.as_secs_f64();
    let alone = Client::connect(server.address, 1)?.offer(&one)?;
    let benchmark = redis_benchmark(server.address, CHECKED);
    let one_at_a_time = Check {
        driver_per_s: per_s(&alone, &one),
        driver_p50_ms: delay(&alone, 0.5),
        redis_benchmark_per_s: benchmark.map(|(per_s, _)| per_s),
        redis_benchmark_p50_ms: benchmark.map(|(_, median)| median),
    };
    let several = OfferedLoad {
        length: plan.length,
        ..load(plan, server.kind, Manner::Closed(UNLOADED), spins)
    };
    let together = Client::connect(server.address, UNLOADED)?.offer(&several)?;
    let unloaded_per_s = per_s(&together, &several);
    if unloaded_per_s == 0.0 {
        let why = together.error.unwrap_or_else(|| "no answer".into());
        return Err(io::Error::other(format!(
            "{} serves nothing: {why}",
            server.kind.name()
        )));
    }
    let row = Row {
        server: server.kind.name(),
        version,
        records,
        work_us: work.as_micros_f64(),
        one_at_a_time,
        unloaded_per_s,
        cells: Vec::new(),
    };
    Ok(Subject {
        server,
        row,
        tallies: vec![LoadCounts::default(); plan.multiples.len()],
    })
}

fn delay(tally: &LoadCounts, share: f64) -> Option<f64> {
    percentile(tally.delays_us.iter().map(|us| f64::from(*us) * 1e-3), share)
}

fn cell(multiple: f64, tally: LoadCounts, seconds: f64, unloaded_per_s: f64) -> Cell {
    let per_s = |count: u64| count as f64 / seconds;
    Cell {
        multiple,
        offered_per_s: per_s(tally.offered),
        timely_per_s: per_s(tally.timely),
        late_per_s: per_s(tally.late),
        refused_per_s: per_s(tally.refused),
        unsent_per_s: per_s(tally.unsent),
        failed_per_s: per_s(tally.failed),
        p50_ms: delay(&tally, 0.5),
        p99_ms: delay(&tally, 0.99),
        timely_share: per_s(tally.timely) / unloaded_per_s,
        error: tally.error,
    }
}
