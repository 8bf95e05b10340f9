//! Overload: an open loop of 0.5 to 3 times what five slaves serve at most, eight balancers with three gates.
//!
//! Labels: `scenario`, `spread` of costs (`even`: 20 % to either side; `exponential`), `load` (in times of
//! [`Setup::capacity`]), `balancer`, `gate` (`none`, `published`, `ours`; before three of the balancers also `limit`).
//! Scenarios: `steady`; `burst`, the paper's clients and burst in a tenth of the time; `half`, one slave at half speed;
//! `slow`, all of them at half speed from [`CHANGE`] on; `hot`, half of the queries for three keys; `join`, a sixth
//! slave from [`CHANGE`] on; `leave` and `crash`, one of five goes at [`CHANGE`].
//!
//! The queries of an open loop are the same under every policy. *Capacity* is the most queries that any policy served
//! in the same scenario with the same seed, without those that a node answers after it has announced that it leaves. A
//! gate that prefers short queries when time is scarce serves more queries: that raises the capacity for all.

use punctual_cluster_sim::balancers::BalancerChoice;
use punctual_cluster_sim::load::{
    ConnectionLimit, GateKind, Hot, NodeChange, NodeModel, QueryPolicy, QuerySource, Setup, Spread, Summary,
};
use punctual_federation::admission::ServiceOrder;
use punctual_federation::balancer::BalancerKind;
use punctual_units::{Nanos, Time};

use super::identify::{LearnedModel, learn};
use super::paper::recovered;
use super::rows::{Capacity, KEYS, row, run};
use crate::samples::{Labels, Run, labels as labelled};

pub const GATES: [&str; 3] = ["none", "published", "ours"];
/// A fourth gate, a fixed limit, before our balancer and those that a careful engineer would choose.
const BY_HAND: &str = "limit";
const WITH_LIMIT: [BalancerKind; 3] = [BalancerKind::P2c, BalancerKind::Bounded, BalancerKind::Home];
/// Limit of the fourth gate, in items, for a deadline of 1 s: a slave at full speed serves 9,756 items in a second
/// where nothing is cached, so 8000 leave a fifth for chance. Of eight numbers from 6000 to 12,000, 8000 is the largest
/// with which next to nothing was late, on seeds from 1000 on.
const LIMIT: u64 = 8000;
pub const LOADS: [&str; 7] = ["0.5", "0.8", "0.95", "1", "1.5", "2", "3"];
const SPREADS: [&str; 2] = ["even", "exponential"];
/// Scenarios in which the slaves or the data are not as usual.
const OTHERS: [&str; 6] = ["half", "slow", "hot", "join", "leave", "crash"];
const OTHER_LOAD: &str = "1.5";
/// Instant at which a slave changes, in seconds.
const CHANGE: u64 = 13;
const JUDGED_FROM: u64 = 10;
const UNTIL: u64 = 25;
/// End of the runs whose delays are compared, in seconds: the slowest hundredth of the queries of 15 s is too few to
/// tell balancers apart.
const UNTIL_OF_DELAYS: u64 = 100;
const LOADS_OF_DELAYS: [&str; 2] = ["0.8", "0.95"];

/// The series of the table; `leave` and `crash` also have `recovered`: see [`recovered`].
pub fn series() -> Vec<&'static str> {
    KEYS.into_iter().chain(["recovered"]).collect()
}

/// A load under which all policies are compared: its runs have the same queries.
#[derive(Clone, Copy, Debug)]
struct Load {
    scenario: &'static str,
    spread: &'static str,
    load: &'static str,
}

fn loads() -> Vec<Load> {
    let mut all = Vec::new();
    for spread in SPREADS {
        all.extend(LOADS.map(|load| Load {
            scenario: "steady",
            spread,
            load,
        }));
        all.push(Load {
            scenario: "burst",
            spread,
            load: "1",
        });
    }
    for scenario in OTHERS {
        all.push(Load {
            scenario,
            spread: "even",
            load: OTHER_LOAD,
        });
    }
    all
}

fn policies() -> impl Iterator<Item = (BalancerChoice, &'static str)> {
    let by_hand = WITH_LIMIT.map(|balancer| (balancer.into(), BY_HAND));
    let all = BalancerChoice::ALL.into_iter();
    all.flat_map(|balancer| GATES.map(|gate| (balancer, gate)))
        .chain(by_hand)
}

impl Load {
    fn labels(self, balancer: BalancerChoice, gate: &str) -> Labels {
        labelled([
            ("scenario", self.scenario),
            ("spread", self.spread),
            ("load", self.load),
            ("balancer", balancer.name()),
            ("gate", gate),
        ])
    }

    fn setup(self) -> Setup {
        let seconds = |at: u64| Time(at * 1_000_000_000);
        let mut setup = Setup::paper(5);
        setup.order = ServiceOrder::Arrival;
        setup.waiting = ConnectionLimit::Taken;
        setup.judged_from = seconds(JUDGED_FROM);
        setup.until = seconds(match LOADS_OF_DELAYS.contains(&self.load) {
            true => UNTIL_OF_DELAYS,
            false => UNTIL,
        });
        if self.spread == "exponential" {
            setup.work.spread = Spread::Exponential;
        }
        if self.scenario == "half" {
            setup.nodes[0].speed = 0.5;
        }
        let at = seconds(CHANGE);
        match self.scenario {
            "hot" => {
                setup.work.hot = Some(Hot {
                    share: 0.5,
                    keys: 3,
                    from: Time(0),
                });
            }
            "join" => {
                setup.nodes.push(NodeModel {
                    present: false,
                    ..NodeModel::PAPER
                });
                setup.changes = vec![(at, NodeChange::Join(5))];
            }
            "slow" => setup.changes = (0..5).map(|slave| (at, NodeChange::Speed(slave, 0.5))).collect(),
            "leave" => setup.changes = vec![(at, NodeChange::Leave(4))],
            "crash" => setup.changes = vec![(at, NodeChange::Crash(4))],
            _ => {}
        }
        if self.scenario == "burst" {
            tenfold(&mut setup);
        } else {
            let times: f64 = self.load.parse().unwrap_or(1.0);
            let rate = times * setup.capacity();
            setup.clients = QuerySource::Open {
                rates: vec![(Time(0), rate)],
            };
        }
        setup
    }
}

/// Compresses the paper's phases to a tenth of their time; think times stay.
fn tenfold(setup: &mut Setup) {
    if let QuerySource::Closed { think, .. } = &mut setup.clients {
        for phase in think {
            phase.0 = Time(phase.0.0 / 10);
        }
    }
    setup.until = Time(60_000_000_000);
}

pub fn labels() -> Vec<Labels> {
    let of = |load: Load| policies().map(move |(balancer, gate)| load.labels(balancer, gate));
    loads().into_iter().flat_map(of).collect()
}

pub fn runs(seed: u64) -> Vec<Result<Run, String>> {
    match learn(seed) {
        Ok(learned) => loads()
            .into_iter()
            .flat_map(|load| under(load, &learned, seed))
            .collect(),
        Err(why) => vec![Err(format!("no law: {why}"))],
    }
}

fn under(load: Load, learned: &LearnedModel, seed: u64) -> Vec<Result<Run, String>> {
    let setup = load.setup();
    let summary = |(balancer, gate): (BalancerChoice, &str)| {
        let gate = match gate {
            "none" => GateKind::Open,
            "published" => learned.gate("once"),
            BY_HAND => GateKind::Limited(LIMIT),
            _ => GateKind::Timely,
        };
        setup
            .run(&QueryPolicy { balancer, gate }, seed)
            .map_err(|error| error.to_string())
    };
    let summaries: Vec<Result<Summary, String>> = policies().map(summary).collect();
    let all: Vec<&Summary> = summaries.iter().filter_map(|one| one.as_ref().ok()).collect();
    let capacity = Capacity::of(all.iter().copied());
    let result = |((balancer, gate), summary): ((BalancerChoice, &str), &Result<Summary, String>)| {
        let summary = summary.as_ref().map_err(String::clone)?;
        let mut values = row(summary, capacity);
        if matches!(load.scenario, "leave" | "crash") {
            values.push(("recovered", recovered(summary, &all, CHANGE as usize)));
        }
        Ok(run(load.labels(balancer, gate), values))
    };
    policies().zip(&summaries).map(result).collect()
}

/// Adapts a setting to a short run, for experiments with other numbers of nodes.
pub fn short(setup: &mut Setup, judged_from: Nanos, until: Nanos) {
    setup.order = ServiceOrder::Arrival;
    setup.waiting = ConnectionLimit::Taken;
    setup.judged_from = Time(judged_from.0);
    setup.until = Time(until.0);
}
