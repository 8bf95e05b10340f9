//! Balancers at 100 to 10,000 nodes, all with our admission. The total work of a run is kept constant: the more nodes,
//! the shorter the run; the data grows with the nodes. Labels: `nodes`, `load`, `balancer`.

use punctual_cluster_sim::balancers::BalancerChoice;
use punctual_cluster_sim::load::{GateKind, NodeModel, QueryPolicy, QuerySource, Setup, Summary};
use punctual_federation::balancer::BalancerKind;
use punctual_units::{Nanos, Time};

use super::overload::short;
use super::rows::{Capacity, row, run};
use crate::samples::{Labels, Run, labels as labelled};

/// A point of the experiment: number of nodes, load, judged time, and the balancers compared.
struct Size {
    nodes: u32,
    load: &'static str,
    judged: Nanos,
    balancers: &'static [BalancerChoice],
}

/// Time before the judged part: a node serves 138 queries a second, so in 10 s it has served each of its 409 home keys
/// more than three times.
const STARTING: Nanos = Nanos::from_secs(10);
/// Time before the judged part with 10,000 nodes, where the start itself is of interest.
const STARTING_OF_MOST: Nanos = Nanos::from_secs(2);
const SOME: &[BalancerChoice] = &[
    BalancerChoice::Of(BalancerKind::RoundRobin),
    BalancerChoice::Of(BalancerKind::P2c),
    BalancerChoice::Prequal,
    BalancerChoice::Of(BalancerKind::Bounded),
    BalancerChoice::Of(BalancerKind::Home),
];

fn sizes() -> [Size; 5] {
    let size = |nodes, load, millis, balancers| Size {
        nodes,
        load,
        judged: Nanos::from_millis(millis),
        balancers,
    };
    [
        size(100, "0.95", 5000, SOME),
        size(100, "1.5", 5000, SOME),
        size(1000, "0.95", 2000, SOME),
        size(1000, "1.5", 2000, SOME),
        size(
            10_000,
            "0.95",
            500,
            &[
                BalancerChoice::Of(BalancerKind::P2c),
                BalancerChoice::Of(BalancerKind::Home),
            ],
        ),
    ]
}

impl Size {
    fn labels(&self, balancer: BalancerChoice) -> Labels {
        labelled([
            ("nodes", self.nodes.to_string().as_str()),
            ("load", self.load),
            ("balancer", balancer.name()),
        ])
    }

    fn setup(&self) -> Setup {
        let mut setup = Setup::paper(5);
        setup.work.keys = setup.work.keys / 5 * self.nodes;
        setup.nodes = vec![NodeModel::PAPER; self.nodes as usize];
        let starting = if self.nodes < 10_000 {
            STARTING
        } else {
            STARTING_OF_MOST
        };
        short(&mut setup, starting, starting + self.judged);
        let times: f64 = self.load.parse().unwrap_or(1.0);
        setup.clients = QuerySource::Open {
            rates: vec![(Time(0), times * setup.capacity())],
        };
        setup
    }

    fn runs(&self, seed: u64) -> Vec<Result<Run, String>> {
        let setup = self.setup();
        let summary = |balancer: &BalancerChoice| {
            let policy = QueryPolicy {
                balancer: *balancer,
                gate: GateKind::Timely,
            };
            setup.run(&policy, seed).map_err(|error| error.to_string())
        };
        let summaries: Vec<Result<Summary, String>> = self.balancers.iter().map(summary).collect();
        let capacity = Capacity::of(summaries.iter().filter_map(|one| one.as_ref().ok()));
        let result = |(balancer, summary): (&BalancerChoice, Result<Summary, String>)| {
            Ok(run(self.labels(*balancer), row(&summary?, capacity)))
        };
        self.balancers.iter().zip(summaries).map(result).collect()
    }
}

pub fn labels() -> Vec<Labels> {
    let of = |size: &Size| {
        size.balancers
            .iter()
            .map(|balancer| size.labels(*balancer))
            .collect::<Vec<_>>()
    };
    sizes().iter().flat_map(of).collect()
}

pub fn runs(seed: u64) -> Vec<Result<Run, String>> {
    sizes().iter().flat_map(|size| size.runs(seed)).collect()
}
