//! What a decision costs, by the number of nodes: `cargo run --release -p punctual-cluster-sim --example
//! decision_costs`.
//!
//! Each figure is the median over batches, in nanoseconds; the first line is the same loop with a decision that does
//! nothing. Other programs on the machine make them larger: the ratio to the first line is what to compare.

use std::hint::black_box;
use std::time::Instant;

use punctual_cluster_sim::balancers::{BalancerChoice, Balancing, Probe};
use punctual_federation::admission::{Ask, BacklogReport, Gate, Intake, ServiceOrder, Timely};
use punctual_federation::balancer::{Period, Query, QueryReply};
use punctual_federation::ids::NodeId;
use punctual_units::{Nanos, Time};

const BATCHES: usize = 101;
const BATCH: u64 = 500;
const NODES: [u32; 4] = [5, 100, 1000, 10_000];

fn main() {
    let nothing = median(&mut |number| {
        black_box(number);
    });
    println!("nothing: {nothing:.1} ns");
    println!("a decision and its reply, ns, at {NODES:?} nodes");
    for choice in BalancerChoice::ALL {
        let costs: Vec<String> = NODES
            .map(|nodes| format!("{:9.0}", balancing(choice.balancer(), nodes)))
            .into();
        println!("  {:8} {}", choice.name(), costs.join(" "));
    }
    println!("an admission, ns: {:.0}", admitting());
}

fn query(number: u64) -> Query {
    let draw = number
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .rotate_left(31)
        .wrapping_mul(0xBF58_476D_1CE4_E5B9);
    Query {
        key: draw >> 40,
        items: 60 + (number % 41) as u32,
        deadline: Time(1_000_000_000),
        draw,
    }
}

fn report(backlog: u64) -> BacklogReport {
    BacklogReport {
        backlog,
        requests: (backlog / 80) as u32,
        cost: 2e-4,
        executors: 2,
        bound: 8000.0,
    }
}

/// A choice, and the reply to the one that was made 10 choices a node before.
fn balancing(mut balancer: Balancing, nodes: u32) -> f64 {
    let all: Vec<NodeId> = (0..nodes).map(NodeId).collect();
    for node in &all {
        balancer
            .policy()
            .join(*node, Time(0))
            .expect("numbers below the table's");
    }
    let said = |node: &NodeId| Period {
        node: *node,
        delay: Some(Nanos::from_millis(20)),
        report: report(800),
    };
    balancer
        .policy()
        .period(&all.iter().map(said).collect::<Vec<_>>(), Time(0));
    let mut sent = std::collections::VecDeque::new();
    let mut asked = Vec::new();
    for number in 0..10 * u64::from(nodes) {
        let query = query(number);
        sent.extend(balancer.policy().choose(&query, Time(0)).map(|node| (node, query)));
    }
    median(&mut |number| {
        let (query, now) = (query(number), Time(number * 1000));
        if let Some(node) = balancer.policy().choose(&query, now) {
            sent.push_back((node, query));
        }
        asked.clear();
        balancer.probes(&query, &mut asked);
        for node in &asked {
            let probe = Probe {
                in_flight: (number % 20) as u32,
                latency: Nanos::from_millis(number % 50),
            };
            balancer.probed(*node, probe, now);
        }
        if let Some((node, query)) = sent.pop_front() {
            let answer = QueryReply {
                items: query.items,
                latency: Nanos::from_millis(20),
                late: None,
                report: report(800),
            };
            balancer.policy().answered(node, &answer, now);
        }
    })
}

/// A request judged before 100 that wait.
fn admitting() -> f64 {
    let gate = Gate::Timely(Timely::new(Nanos::from_secs(1)));
    let mut intake = Intake::new(NodeId(0), 2, Nanos::from_micros(100), gate, ServiceOrder::Deadline);
    for number in 0..100 {
        let ask = Ask {
            items: 80,
            deadline: Time(1_000_000_000),
        };
        if let Ok(forecast) = intake.judge(ask, Time(0)) {
            intake.enter(ask, forecast, number, Time(0));
        }
        intake.start(Time(0), 0);
    }
    median(&mut |number| {
        let ask = Ask {
            items: 60 + (number % 41) as u32,
            deadline: Time(1_000_000_000),
        };
        let _ = black_box(intake.judge(black_box(ask), Time(number)));
    })
}

/// Nanoseconds of one call, the median over batches.
fn median(work: &mut dyn FnMut(u64)) -> f64 {
    let mut number = 0;
    let mut batch = || {
        let begun = Instant::now();
        for _ in 0..BATCH {
            work(black_box(number));
            number += 1;
        }
        begun.elapsed().as_nanos() as f64 / BATCH as f64
    };
    // The first ones fill caches and tables.
    for _ in 0..BATCHES {
        batch();
    }
    let mut batches: Vec<f64> = (0..BATCHES).map(|_| batch()).collect();
    batches.sort_by(f64::total_cmp);
    batches[BATCHES / 2]
}
