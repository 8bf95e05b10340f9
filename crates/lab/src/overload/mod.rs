//! A store under more load than it can serve, beside Redis, and HAProxy before Redis.
//!
//! **Question.** More clients come than a server can serve, each of which can use an answer within a deadline and none
//! later. How many get one?
//!
//! **Method.** Each server gets as many records as make a request take the same time on each ([`servers::COMMAND`],
//! which looks at all keys): a command of Redis' own, so that no server has anything for this comparison. What a server
//! serves unloaded is measured first, by clients that wait for their answers. Then multiples of that are offered by
//! requests at random instants, each timed from when it was to be sent ([`driver`]). Servers take turns, on the same
//! cores; the driver has another one, where there is one.
//!
//! Only requests to `punctual serve` say their deadline. Redis and HAProxy have no word for one.

pub mod driver;
pub mod servers;

use std::io;
use std::path::PathBuf;

use driver::{Client, Load, Manner, Tally};
use punctual_platform::linux::thread::{allowed_cores, pin_to};
use punctual_units::{Nanos, percentile};
use serde::Serialize;
use servers::{Asker, COMMAND, Kind, Server, redis_benchmark, version};

/// What is served unloaded is what so many clients get that wait for their answers.
const UNLOADED: usize = 16;
/// Requests of redis-benchmark.
const CHECKED: u32 = 5_000;

/// What is compared, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program of `punctual`.
    pub program: PathBuf,
    /// Connections to each server.
    pub connections: usize,
    /// Multiples of what a server serves unloaded.
    pub multiples: Vec<f64>,
    /// How often all are offered.
    pub rounds: u32,
    /// How long each is.
    pub length: Nanos,
    /// The time that a request has.
    pub deadline: Nanos,
    /// The work of a request.
    pub work: Nanos,
    /// Where instants are drawn from.
    pub seed: u64,
}

/// A comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Connections to each server.
    pub connections: usize,
    /// The time that a request has, in milliseconds.
    pub deadline_ms: f64,
    /// Cores of the servers, and of the driver.
    pub cores: [Vec<usize>; 2],
    /// How long each multiple was offered, in seconds, in all rounds.
    pub offered_s: f64,
    /// By server.
    pub servers: Vec<Row>,
    /// What is not installed.
    pub left_out: Vec<String>,
}

/// A server.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub server: &'static str,
    /// What it says that it is.
    pub version: String,
    /// Its records.
    pub records: usize,
    /// What a request takes beyond one to an empty store, in microseconds.
    pub work_us: f64,
    /// One connection that waits for each answer, below saturation.
    pub one_at_a_time: Check,
    /// Requests per second that it serves unloaded.
    pub unloaded_per_s: f64,
    /// By multiple.
    pub cells: Vec<Cell>,
}

/// The driver beside redis-benchmark.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Check {
    /// Requests per second of the driver.
    pub driver_per_s: f64,
    /// Its median in milliseconds.
    pub driver_p50_ms: Option<f64>,
    /// Requests per second of redis-benchmark.
    pub redis_benchmark_per_s: Option<f64>,
    /// Its median in milliseconds.
    pub redis_benchmark_p50_ms: Option<f64>,
}

/// A server at one multiple, all rounds together. Rates are per second.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// Of what it serves unloaded.
    pub multiple: f64,
    /// Requests that were to be sent.
    pub offered_per_s: f64,
    /// Answered in time.
    pub timely_per_s: f64,
    /// Answered, too late.
    pub late_per_s: f64,
    /// Told at once or later that they were not carried out.
    pub refused_per_s: f64,
    /// Given up, as all connections waited for answers.
    pub unsent_per_s: f64,
    /// Answered by an error, or never.
    pub failed_per_s: f64,
    /// The first such error.
    pub error: Option<String>,
    /// From when a request was to be sent to its answer, of those that were served, in milliseconds.
    pub p50_ms: Option<f64>,
    /// See above.
    pub p99_ms: Option<f64>,
    /// Timely ones over what is served unloaded.
    pub timely_share: f64,
}

/// A server on its way through a comparison.
struct Subject {
    server: Server,
    row: Row,
    tallies: Vec<Tally>,
}

/// Compares; says to `note` what goes on.
///
/// # Errors
/// Where a server does not start, or a socket cannot be had.
pub fn overload(plan: &Plan, note: &mut dyn FnMut(&str)) -> io::Result<Measured> {
    let cores = allowed_cores();
    // One core for the driver, so that what it costs is taken from no server.
    let (for_servers, for_driver) = match cores.split_last() {
        Some((last, others @ [_, ..])) => (others.to_vec(), vec![*last]),
        _ => (cores.clone(), cores.clone()),
    };
    let has_own = for_servers != for_driver;
    let pin = |cores: &[_]| pin_to(cores).map_err(|refusal| io::Error::other(refusal.to_string()));
    let folder = tempfile::tempdir()?;
    // What is started here runs where this thread does.
    pin(&for_servers)?;
    let (mut servers, mut left_out) = (Vec::new(), Vec::new());
    for kind in Kind::ALL {
        let version = match kind.program() {
            None => Some(env!("CARGO_PKG_VERSION").to_owned()),
            Some((program, argument)) => version(program, argument),
        };
        let redis = servers
            .iter()
            .find(|(server, _): &&(Server, String)| server.kind == Kind::Redis);
        let redis = redis.map(|(server, _)| server.address);
        let server = match (kind, version, redis) {
            (Kind::Ours, Some(version), _) => {
                Some((Server::ours(&plan.program, folder.path(), plan.connections)?, version))
            }
            (Kind::Redis, Some(version), _) => Some((Server::redis(folder.path(), plan.connections)?, version)),
            (Kind::Haproxy, Some(version), Some(redis)) => {
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
        // Behind HAProxy there is the same Redis, with the same records.
        let before = subjects.last().filter(|_| server.kind == Kind::Haproxy);
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
                // Another one begins each time.
                let subject = &mut subjects[(at + number + round as usize) % count];
                let name = subject.server.kind.name();
                note(&format!(
                    "round {} of {}: {name}, {multiple} times",
                    round + 1,
                    plan.rounds
                ));
                let rate = multiple * subject.row.unloaded_per_s;
                let load = Load {
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
    Ok(Measured {
        connections: plan.connections,
        deadline_ms: plan.deadline.as_millis_f64(),
        cores: [for_servers, for_driver].map(|cores| cores.iter().map(|core| core.index()).collect()),
        offered_s: offered,
        servers: rows.collect(),
        left_out,
    })
}

fn load(plan: &Plan, kind: Kind, manner: Manner, spins: bool) -> Load {
    Load {
        command: COMMAND.iter().map(|word| word.as_bytes().to_vec()).collect(),
        tells: kind == Kind::Ours,
        manner,
        length: Nanos(plan.length.0 / 2),
        deadline: plan.deadline,
        seed: plan.seed,
        spins,
    }
}

/// Finds what a server serves unloaded, whose requests take so long with so many records.
fn unloaded(
    plan: &Plan,
    server: Server,
    version: String,
    (records, work): (usize, Nanos),
    spins: bool,
) -> io::Result<Subject> {
    let one = load(plan, server.kind, Manner::Closed(1), spins);
    let per_s = |tally: &Tally, load: &Load| (tally.timely + tally.late) as f64 / load.length.as_secs_f64();
    let alone = Client::connect(server.address, 1)?.offer(&one)?;
    let benchmark = redis_benchmark(server.address, CHECKED);
    let one_at_a_time = Check {
        driver_per_s: per_s(&alone, &one),
        driver_p50_ms: delay(&alone, 0.5),
        redis_benchmark_per_s: benchmark.map(|(per_s, _)| per_s),
        redis_benchmark_p50_ms: benchmark.map(|(_, median)| median),
    };
    let several = Load {
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
        tallies: vec![Tally::default(); plan.multiples.len()],
    })
}

fn delay(tally: &Tally, share: f64) -> Option<f64> {
    percentile(tally.delays_us.iter().map(|us| f64::from(*us) * 1e-3), share)
}

fn cell(multiple: f64, tally: Tally, seconds: f64, unloaded_per_s: f64) -> Cell {
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
