//! `punctual-lab bench replication`: a client sets readings on one node at a steady rate; measures how many its peers
//! got, how many newer ones superseded and how many were lost, their age, and the cost.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_server::resp::reply::ReplyParser;
use punctual_server::resp::{Bounds, Reply, Resp, Writer};
use serde::Serialize;

use crate::args::Replication;
use punctual_cli::cluster::run::LocalCluster;
use punctual_cli::commands::print;
use punctual_files::failure::Failure;
use punctual_files::local::LocalSettings;
use punctual_report::output::OutputFile;
use punctual_report::summary::{count, percent};

/// Time between two bundles of readings.
const BUNDLE: Duration = Duration::from_millis(1);
/// Longest wait for readings in transit, at the end.
const SETTLES: Duration = Duration::from_secs(5);
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Names of figures in INFO.
const OFFERED: &str = "readings_offered";
const DELIVERED: &str = "readings_delivered";
const SUPERSEDED: &str = "readings_superseded";

/// Results of a federation with one number of peers.
#[derive(Debug, Serialize)]
struct ReplicationRow {
    peers: u32,
    bytes: u32,
    /// Readings a second: wanted, and acknowledged by the node.
    rate: u32,
    set_per_s: f64,
    /// Readings that the node refused.
    refused: u64,
    /// Readings delivered per second and peer.
    delivered_per_s: f64,
    /// Share of the readings offered to all peers.
    superseded_share: f64,
    /// Readings in no state: the error of the node's account.
    lost: i64,
    /// Numbers that peers skipped: superseded readings, and any that were lost on the way.
    skipped: u64,
    /// Upper bound on the age of readings on arrival, as reported to peers.
    age_ms: Quantiles,
    /// Processor time of each process, in shares of a core.
    source_cpu: f64,
    peer_cpu_mean: f64,
    peer_cpu_max: f64,
    driver_cpu: f64,
    /// Bytes between nodes for each delivered reading.
    bytes_per_delivered: f64,
}

#[derive(Debug, Serialize)]
struct Quantiles {
    p50: f64,
    p99: f64,
}

/// Carries out `punctual-lab bench replication`.
pub fn replication(arguments: &Replication) -> Result<(), Failure> {
    let json = OutputFile::report(arguments.json.as_ref())?;
    let is_apart = arguments.json.as_deref() != Some(Path::new("-"));
    let mut all = Vec::new();
    if is_apart {
        let (rate, bytes) = (count(u64::from(arguments.rate)), arguments.bytes);
        print(&format!(
            "{rate} readings/s of {bytes} bytes, {} objects\n{HEAD}\n",
            arguments.objects
        ))?;
    }
    for peers in &arguments.peers {
        let measured = measure(arguments, *peers)
            .map_err(|error| Failure::of(format!("bench replication, {peers} peers: {error}")))?;
        if is_apart {
            print(&row(&measured))?;
        }
        all.push(measured);
    }
    json.map_or(Ok(()), |json| json.json(&all))
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn measure(arguments: &Replication, peers: u32) -> Outcome<ReplicationRow> {
    let settings = LocalSettings {
        nodes: peers + 1,
        balancers: 0,
        ..LocalSettings::default()
    };
    let running = LocalCluster::start(&settings, &Arc::default()).map_err(|failure| format!("{failure:?}"))?;
    let addresses = running.addresses();
    let pids: Vec<u32> = running.processes.ids().map(|(_, _, process)| process).collect();
    let mut nodes = addresses
        .iter()
        .map(Client::connect)
        .collect::<Outcome<Vec<Client>>>()?;
    make(&mut nodes, arguments)?;

    let before = figures(&mut nodes)?;
    let (cpu, own, began) = (spent_all(&pids), spent(std::process::id()), Instant::now());
    let (set, refused) = drive(&addresses[0], arguments)?;
    let span = began.elapsed().as_secs_f64();
    let (cpu_after, own_after) = (spent_all(&pids), spent(std::process::id()));
    let (now, during) = settled(&mut nodes, &before)?;

    let shares: Vec<f64> = cpu
        .iter()
        .zip(&cpu_after)
        .map(|(before, after)| (after - before) / span)
        .collect();
    let sent = &during[0];
    let of = |name: &str| sent.get(name).copied().unwrap_or(0);
    let waiting = sum(&now[0], "readings_waiting") + sum(&now[0], "readings_under_way");
    let (offered, delivered, superseded) = (of(OFFERED), of(DELIVERED), of(SUPERSEDED));
    let ages = |name: &str| {
        let of_peers = now[1..]
            .iter()
            .filter_map(|figures| figures.get(name)?.parse::<f64>().ok());
        of_peers.fold(0.0, f64::max) / 1e3
    };
    let of_peers = |name: &str| {
        let found = during[1..]
            .iter()
            .map(|figures| figures.get(name).copied().unwrap_or(0));
        found.sum::<i64>()
    };
    Ok(ReplicationRow {
        peers,
        bytes: arguments.bytes,
        rate: arguments.rate,
        set_per_s: set as f64 / span,
        refused,
        delivered_per_s: delivered as f64 / f64::from(peers) / span,
        superseded_share: superseded as f64 / (offered as f64).max(1.0),
        lost: offered - delivered - superseded - waiting,
        skipped: of_peers("readings_skipped") as u64,
        age_ms: Quantiles {
            p50: ages("came_age_us_p50"),
            p99: ages("came_age_us_p99"),
        },
        source_cpu: shares[0],
        peer_cpu_mean: shares[1..].iter().sum::<f64>() / f64::from(peers),
        peer_cpu_max: shares[1..].iter().copied().fold(0.0, f64::max),
        driver_cpu: (own_after - own) / span,
        bytes_per_delivered: of("written") as f64 / (delivered as f64).max(1.0),
    })
}

/// A connection to a node.
struct Client {
    stream: TcpStream,
    parser: ReplyParser,
    buffer: Vec<u8>,
}

impl Client {
    fn connect(address: &SocketAddr) -> Outcome<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Client {
            stream,
            parser: ReplyParser::default(),
            buffer: vec![0; 64 << 10],
        })
    }

    fn reply(&mut self) -> Outcome<Reply> {
        loop {
            if let Some(reply) = self.parser.next(&Bounds::ADMITTED)? {
                return Ok(reply);
            }
            match self.stream.read(&mut self.buffer)? {
                0 => return Err("the node has ended the connection".into()),
                count => self.parser.feed(&self.buffer[..count]),
            }
        }
    }

    fn ask(&mut self, words: &[&str]) -> Outcome<Reply> {
        let mut out = Vec::new();
        say(&mut out, words);
        self.stream.write_all(&out)?;
        self.reply()
    }

    /// The figures of the node's INFO answer.
    fn figures(&mut self) -> Outcome<BTreeMap<String, String>> {
        match self.ask(&["INFO"])? {
            Reply::Bulk(text) => {
                let text = String::from_utf8_lossy(&text).into_owned();
                let pairs = text.lines().filter_map(|line| line.trim_end().split_once(':'));
                Ok(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
            }
            other => Err(format!("INFO: {other:?}").into()),
        }
    }
}

fn say(out: &mut Vec<u8>, words: &[&str]) {
    let words = Reply::Array(words.iter().map(Reply::bulk).collect());
    Writer::new(out, Resp::Two).value(&words);
}

fn object(number: u32) -> String {
    format!("object:{number}")
}

/// Makes all objects, and waits until all nodes have a reading of each.
fn make(nodes: &mut [Client], arguments: &Replication) -> Outcome<()> {
    for number in 0..arguments.objects {
        match nodes[0].ask(&[
            "DEADLINE",
            "60000",
            "TSET",
            &object(number),
            &"0".repeat(arguments.bytes as usize),
        ])? {
            Reply::Simple(_) => {}
            other => return Err(format!("TSET: {other:?}").into()),
        }
    }
    let until = Instant::now() + PATIENCE;
    loop {
        if are_there(nodes, arguments.objects)? {
            return Ok(());
        }
        if Instant::now() > until {
            return Err("the peers have not got all objects".into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether each node has a reading of each object.
fn are_there(nodes: &mut [Client], objects: u32) -> Outcome<bool> {
    let mut are_there = true;
    for node in nodes {
        let figures = node.figures()?;
        let is = |name: &str, value: u32| figures.get(name).is_some_and(|found| *found == value.to_string());
        are_there &= is("objects", objects) && is("objects_without_value", 0);
    }
    Ok(are_there)
}

type InfoFields = Vec<BTreeMap<String, String>>;

fn figures(nodes: &mut [Client]) -> Outcome<InfoFields> {
    nodes.iter_mut().map(Client::figures).collect()
}

/// The sum of a figure over a node's peers.
fn sum(figures: &BTreeMap<String, String>, name: &str) -> i64 {
    let peers = figures.iter().filter(|(key, _)| key.starts_with("peer"));
    let part = |line: &String| {
        let found = line
            .split(',')
            .find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        found.and_then(|value| value.parse::<i64>().ok())
    };
    peers.filter_map(|(_, line)| part(line)).sum()
}

/// Waits until no reading is in transit; returns the figures, and their increase since `before`.
#[allow(clippy::type_complexity)]
fn settled(nodes: &mut [Client], before: &InfoFields) -> Outcome<(InfoFields, Vec<BTreeMap<&'static str, i64>>)> {
    let until = Instant::now() + SETTLES;
    let names = [OFFERED, DELIVERED, SUPERSEDED, "readings_skipped", "written"];
    loop {
        let now = figures(nodes)?;
        let open = sum(&now[0], "readings_waiting") + sum(&now[0], "readings_under_way");
        if open == 0 || Instant::now() > until {
            let since = |(now, before): (&BTreeMap<String, String>, &BTreeMap<String, String>)| {
                names.map(|name| (name, sum(now, name) - sum(before, name))).into()
            };
            let during = now.iter().zip(before).map(since).collect();
            return Ok((now, during));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sets objects in turn at the given rate; returns how many readings were accepted and refused.
fn drive(address: &SocketAddr, arguments: &Replication) -> Outcome<(u64, u64)> {
    let mut replies = Client::connect(address)?;
    let mut stream = replies.stream.try_clone()?;
    let total = (f64::from(arguments.rate) * arguments.duration.as_secs_f64()) as u64;
    let counting = std::thread::spawn(move || -> Result<(u64, u64), String> {
        let (mut taken, mut refused) = (0, 0);
        while taken + refused < total {
            match replies.reply().map_err(|error| error.to_string())? {
                Reply::Simple(_) => taken += 1,
                _ => refused += 1,
            }
        }
        Ok((taken, refused))
    });
    let value = "v".repeat(arguments.bytes as usize);
    // Encoded once, to keep the driver's own cost low.
    let encoded: Vec<Vec<u8>> = (0..arguments.objects)
        .map(|number| {
            let mut out = Vec::new();
            say(&mut out, &["TSET", &object(number), &value]);
            out
        })
        .collect();
    let began = Instant::now();
    let (mut sent, mut bundle) = (0_u64, Vec::new());
    while sent < total {
        let due = (began.elapsed().as_secs_f64() * f64::from(arguments.rate)) as u64;
        bundle.clear();
        for number in sent..due.min(total) {
            bundle.extend_from_slice(&encoded[(number % u64::from(arguments.objects)) as usize]);
        }
        sent = sent.max(due.min(total));
        stream.write_all(&bundle)?;
        std::thread::sleep(BUNDLE);
    }
    let counted = counting
        .join()
        .map_err(|_| "the thread that counts replies has panicked")?;
    Ok(counted?)
}

/// Seconds of processor time that a process has used.
fn spent(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let ticks = after_name
        .split(' ')
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse::<u64>().ok());
    // SAFETY: a plain number in, a plain number out.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    ticks.sum::<u64>() as f64 / (per_second.max(1)) as f64
}

fn spent_all(processes: &[u32]) -> Vec<f64> {
    processes.iter().map(|process| spent(*process)).collect()
}

const HEAD: &str = "peers    set/s  to each/s  superseded  lost  age at most p50, p99 ms  of a core: \
                    source  peer (mean)  peer (most)  client  TCP bytes/reading";

fn row(measured: &ReplicationRow) -> String {
    format!(
        "{:5}  {:>7}  {:>9}  {:>10}  {:4}  {:23}  {:>18}  {:>11}  {:>11}  {:>6}  {:17.0}\n",
        measured.peers,
        count(measured.set_per_s.round() as u64),
        count(measured.delivered_per_s.round() as u64),
        percent(measured.superseded_share),
        measured.lost,
        format!("{:.1}, {:.1}", measured.age_ms.p50, measured.age_ms.p99),
        percent(measured.source_cpu),
        percent(measured.peer_cpu_mean),
        percent(measured.peer_cpu_max),
        percent(measured.driver_cpu),
        measured.bytes_per_delivered,
    )
}
