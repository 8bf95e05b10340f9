//! Balancers at 100 to 10,000 nodes, all with our admission. What does not grow with the nodes stays as it is: a run is
//! shorter the more nodes there are, and the data grows with them. Labels: `nodes`, `load`, `balancer`.

use punctual_sim::cluster::load::{BalancerKind, Clients, GateKind, NodeModel, Policy, Setup, Summary};
use punctual_units::{Nanos, Time};

use super::overload::short;
use super::rows::{Capacity, row, run};
use crate::samples::{Labels, Run, labels as labelled};

/// So many nodes under such a load, how long it is judged, and under which balancers.
struct Size {
    nodes: u32,
    load: &'static str,
    judged: Nanos,
    balancers: &'static [BalancerKind],
}

/// Before the judged part: a node serves 138 queries a second, so it has served each of the 409 keys that it is the
/// home of more than three times.
const STARTING: Nanos = Nanos::from_secs(10);
/// The same with 10,000 nodes, of which this is about the start.
const STARTING_OF_MOST: Nanos = Nanos::from_secs(2);
const SOME: &[BalancerKind] = &[
    BalancerKind::RoundRobin,
    BalancerKind::P2c,
    BalancerKind::Prequal,
    BalancerKind::Bounded,
    BalancerKind::Home,
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
        size(10_000, "0.95", 500, &[BalancerKind::P2c, BalancerKind::Home]),
    ]
}

impl Size {
    fn labels(&self, balancer: BalancerKind) -> Labels {
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
        setup.clients = Clients::Open {
            rates: vec![(Time(0), times * setup.capacity())],
        };
        setup
    }

    fn runs(&self, seed: u64) -> Vec<Result<Run, String>> {
        let setup = self.setup();
        let summary = |balancer: &BalancerKind| {
            let policy = Policy {
                balancer: *balancer,
                gate: GateKind::Timely,
            };
            setup.run(&policy, seed).map_err(|error| error.to_string())
        };
        let summaries: Vec<Result<Summary, String>> = self.balancers.iter().map(summary).collect();
        let capacity = Capacity::of(summaries.iter().filter_map(|one| one.as_ref().ok()));
        let result = |(balancer, summary): (&BalancerKind, Result<Summary, String>)| {
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
