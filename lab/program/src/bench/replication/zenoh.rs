//! Measures readings from a publisher of Zenoh, in this process, to nodes that subscribe. Each node is a federation of
//! its own, because in one federation a single node would be the source of an object.
//!
//! A put is lost if a node never received it: puts sent to all nodes less those received. The age is the time from the
//! put's timestamp until the node sets its object: both are by the same clock here, so it is a latency, not a bound.

use std::time::Instant;

use ::zenoh::bytes::ZBytes;
use ::zenoh::pubsub::Publisher;
use ::zenoh::{Config, Session, Wait};
use punctual_node::zenoh::{Spec, Table};

use super::{
    BUNDLE, Client, Figures, Measured, Outcome, PATIENCE, Quantiles, SETTLES, are_there, figures, spent, spent_all,
};
use crate::args::{Replication, ReplicationWay};
use punctual_cli::cluster::run::Settings;
use punctual_cli::cluster::run::idle::Idle;
use punctual_cli::serve::zenoh::ZenohFile;

type Error = Box<dyn std::error::Error>;

fn of_zenoh(error: ::zenoh::Error) -> Error {
    error.to_string().into()
}

/// A session that listens, and its endpoint.
fn publisher() -> Outcome<(Session, String)> {
    let free = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let endpoint = format!("tcp/{free}");
    let mut config = Config::default();
    for (name, value) in [
        ("mode", "\"peer\""),
        ("listen/endpoints", &format!("[\"{endpoint}\"]")),
        ("scouting/multicast/enabled", "false"),
        ("scouting/gossip/enabled", "false"),
    ] {
        config.insert_json5(name, value).map_err(of_zenoh)?;
    }
    Ok((::zenoh::open(config).wait().map_err(of_zenoh)?, endpoint))
}

pub fn measure(arguments: &Replication, peers: u32) -> Outcome<Measured> {
    let (session, endpoint) = publisher()?;
    let table = Table {
        key: "bench/*".into(),
        object: "object:$1".into(),
    };
    let spec = Spec {
        tables: vec![table],
        connect: vec![endpoint],
        ..Spec::default()
    };
    let settings = Settings {
        nodes: 1,
        zenoh: Some(ZenohFile {
            spec,
            objects_max: arguments.objects as usize,
        }),
        work: punctual_units::Nanos::ZERO,
        ..Settings::default()
    };
    let started = (0..peers).map(|_| Idle::start(&settings));
    let idle: Vec<Idle> = started
        .collect::<Result<_, _>>()
        .map_err(|failure| format!("{failure:?}"))?;
    let pids: Vec<u32> = idle.iter().flat_map(Idle::pids).collect();
    let addresses: Vec<_> = idle.iter().flat_map(Idle::addresses).collect();
    let mut nodes = addresses
        .iter()
        .map(Client::connect)
        .collect::<Outcome<Vec<Client>>>()?;
    let publishers: Vec<Publisher<'_>> = (0..arguments.objects)
        .map(|number| session.declare_publisher(format!("bench/{number}")).wait())
        .collect::<Result<_, _>>()
        .map_err(of_zenoh)?;
    let value = ZBytes::from(vec![b'v'; arguments.bytes as usize]);
    let put = |number: u64| -> Outcome<()> {
        let publisher = &publishers[(number % u64::from(arguments.objects)) as usize];
        let put = publisher.put(value.clone()).timestamp(session.new_timestamp());
        put.wait().map_err(of_zenoh)
    };
    // Puts before a node has subscribed are lost: repeats them until each node has a reading of each object.
    let until = Instant::now() + PATIENCE;
    while !are_there(&mut nodes, arguments.objects)? {
        if Instant::now() > until {
            return Err("the nodes have not got all objects".into());
        }
        (0..u64::from(arguments.objects)).try_for_each(put)?;
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    settled(&mut nodes, 0)?;

    let before = figures(&mut nodes)?;
    let (cpu, own, began) = (spent_all(&pids), spent(std::process::id()), Instant::now());
    let total = (f64::from(arguments.rate) * arguments.duration.as_secs_f64()) as u64;
    let mut sent = 0;
    while sent < total {
        let due = (began.elapsed().as_secs_f64() * f64::from(arguments.rate)) as u64;
        (sent..due.min(total)).try_for_each(put)?;
        sent = sent.max(due.min(total));
        std::thread::sleep(BUNDLE);
    }
    let span = began.elapsed().as_secs_f64();
    let (cpu_after, own_after) = (spent_all(&pids), spent(std::process::id()));
    let offered = total * u64::from(peers);
    let now = settled(&mut nodes, sum(&before, "came") + offered)?;

    let during = |name: &str| sum(&now, name) - sum(&before, name);
    let shares: Vec<f64> = { cpu.iter().zip(&cpu_after) }
        .map(|(before, after)| (after - before) / span)
        .collect();
    let ages = |name: &str| {
        let of_peers = { now.iter() }.filter_map(|figures| figures.get(name)?.parse::<f64>().ok());
        of_peers.fold(0.0, f64::max) / 1e3
    };
    Ok(Measured {
        way: ReplicationWay::Zenoh,
        peers,
        bytes: arguments.bytes,
        rate: arguments.rate,
        set_per_s: total as f64 / span,
        refused: ["too_long", "refused", "elsewhere"].map(during).iter().sum(),
        delivered_per_s: during("set") as f64 / f64::from(peers) / span,
        superseded_share: (during("superseded") + during("older")) as f64 / (offered as f64).max(1.0),
        lost: offered as i64 - during("came") as i64,
        skipped: 0,
        age_ms: Quantiles {
            p50: ages("zenoh_age_us_p50"),
            p99: ages("zenoh_age_us_p99"),
        },
        source_cpu: (own_after - own) / span,
        peer_cpu_mean: shares.iter().sum::<f64>() / f64::from(peers),
        peer_cpu_max: shares.iter().copied().fold(0.0, f64::max),
        // The publisher is the source, so there is no driver.
        driver_cpu: 0.0,
        bytes_per_delivered: 0.0,
    })
}

/// The sum of a figure over all nodes.
fn sum(figures: &Figures, name: &str) -> u64 {
    let name = format!("zenoh_{name}");
    let of_nodes = figures
        .iter()
        .filter_map(|figures| figures.get(&name)?.parse::<u64>().ok());
    of_nodes.sum()
}

/// Waits until `wanted` readings have arrived and none waits, or no further ones arrive; returns the nodes' figures.
fn settled(nodes: &mut [Client], wanted: u64) -> Outcome<Figures> {
    let until = Instant::now() + SETTLES;
    let mut before = u64::MAX;
    loop {
        let now = figures(nodes)?;
        let came = sum(&now, "came");
        if sum(&now, "waiting") == 0 && (came == before || wanted > 0 && came >= wanted) || Instant::now() > until {
            return Ok(now);
        }
        before = came;
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
}
