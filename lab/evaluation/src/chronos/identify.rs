//! Section 3.1: identifies the model of a node by measuring it, and derives the control law from it.
//!
//! There are two methods (label `method`). `described` is the paper's: one slave, 1500 clients that think 1 to 3.5 s,
//! one hour, no admission; the input is the measured backlog. Nothing but chance excites the backlog there: the clients
//! outnumber what the node serves. `moved` is ours, with the same clients: the knob (the bound of the backlog) gets
//! another level each second.
//!
//! Row k of a record is the mean delay of the queries that ended in period k, and the backlog (or the bound) in the
//! same period, in thousands of items; the paper defines d(k) so.

use punctual_cluster_sim::load::{GateKind, NodeSample, QueryPolicy, QuerySource, Setup};
use punctual_control::{ArxModel, Integration, OperatingPoint, Orders, R2_ACCEPTED, Recording, identify};
use punctual_federation::balancer::BalancerKind;
use punctual_loop::backlog::{MODEL_ITEMS, bound_at, plant};
use punctual_units::{Nanos, Time};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::rows::run;
use crate::samples::{Labels, Run, labels as labelled};

/// Series of the runs. Each `method` and `order` has `r2`; order 2 also has the coefficients, for thousands of items,
/// and the steady gain. Each `method` and `reading` has the law's gains and the largest pole of the loop; each `method`
/// has the bound at which the model's delay is 1 s.
pub const SERIES: [&str; 10] = [
    "r2",
    "a1",
    "a2",
    "b1",
    "b2",
    "steady",
    "kp",
    "ki",
    "radius",
    "bound-at-target",
];

const METHODS: [&str; 2] = ["described", "moved"];
const ORDERS: [usize; 4] = [1, 2, 3, 4];
pub const READINGS: [(&str, Integration); 2] = [("once", Integration::Once), ("twice", Integration::Twice)];

/// Length of an identification run, as in the paper.
const HOUR: Time = Time(3600 * 1_000_000_000);
/// Periods at the start that are dropped, until the clients' queries have spread over the queues.
const STARTING: usize = 20;
/// Levels of the moved bound, in items: from a fifth of a second's work to more than a second's.
const LEVELS: [u64; 6] = [2000, 4000, 6000, 8000, 10_000, 12_000];
/// Length of the random sequence of levels, in periods.
const MOVES: usize = 1024;
/// The delay set point, S_t in the paper.
const TARGET: Nanos = Nanos::from_secs(1);

/// The identified model that the runs with the paper's law use; it explains enough of the delay.
#[derive(Clone, Debug)]
pub struct LearnedModel {
    model: ArxModel,
}

impl LearnedModel {
    /// The paper's gate, with equation 5 read as `reading` says.
    pub fn gate(&self, reading: &str) -> GateKind {
        let integration = READINGS.iter().find(|(name, _)| *name == reading);
        GateKind::Published {
            model: Box::new(self.model.clone()),
            integration: integration.map_or(Integration::Once, |(_, integration)| *integration),
        }
    }
}

pub fn labels() -> Vec<Labels> {
    METHODS.into_iter().flat_map(of_method).collect()
}

fn of_method(method: &'static str) -> impl Iterator<Item = Labels> {
    let orders = ORDERS.map(|order| labelled([("method", method), ("order", &order.to_string())]));
    let readings = READINGS.map(|(reading, _)| labelled([("method", method), ("reading", reading)]));
    orders
        .into_iter()
        .chain(readings)
        .chain([labelled([("method", method), ("what", "bound")])])
}

pub fn runs(seed: u64) -> Vec<Result<Run, String>> {
    METHODS.into_iter().flat_map(|method| by_method(method, seed)).collect()
}

fn by_method(method: &'static str, seed: u64) -> Vec<Result<Run, String>> {
    let record = match record(method, seed) {
        Ok(record) => record,
        Err(why) => return vec![Err(format!("{method}: {why}"))],
    };
    let orders = ORDERS.into_iter().map(|order| {
        let labels = labelled([("method", method), ("order", &order.to_string())]);
        let model = model(&record, order)?;
        let mut values = vec![("r2", model.fit().map(|fit| fit.r2[0]))];
        if let Ok(plant) = plant(&model) {
            let ([a1, a2], [b1, b2]) = (plant.a, plant.b.map(|b| b * MODEL_ITEMS));
            let steady = plant.steady() * MODEL_ITEMS;
            values.extend([("a1", a1), ("a2", a2), ("b1", b1), ("b2", b2), ("steady", steady)].map(some));
        }
        Ok(run(labels, values))
    });
    let mut runs: Vec<Result<Run, String>> = orders.collect();
    let second = model(&record, 2);
    runs.extend(READINGS.map(|(reading, integration)| {
        let labels = labelled([("method", method), ("reading", reading)]);
        let plant = plant(second.as_ref().map_err(String::clone)?).map_err(|error| error.to_string())?;
        // Where no gains stabilize the plant, no radius below 1 exists to report.
        let gains = plant.gains(integration).map_err(|none| format!("{method}: {none}"))?;
        let values = [
            ("kp", gains.proportional),
            ("ki", gains.integral),
            ("radius", gains.radius),
        ];
        Ok(run(labels, values.map(some)))
    }));
    let labels = labelled([("method", method), ("what", "bound")]);
    let bound = second.and_then(|model| bound_at(&model, TARGET).map_err(|error| error.to_string()));
    runs.push(bound.map(|bound| run(labels, [some(("bound-at-target", bound))])));
    runs
}

fn some((name, value): (&'static str, f64)) -> (&'static str, Option<f64>) {
    (name, Some(value))
}

/// Identifies a node with this seed for the paper's law. Returns an error message where the model explains too little.
pub fn learn(seed: u64) -> Result<LearnedModel, String> {
    let model = model(&record("moved", seed)?, 2)?;
    model.check_fit(R2_ACCEPTED).map_err(|poor| poor.to_string())?;
    Ok(LearnedModel { model })
}

/// Simulates one hour with one slave and records delay and input.
fn record(method: &str, seed: u64) -> Result<Recording, String> {
    let mut setup = Setup::paper(1);
    let think = (Time(0), Nanos::from_secs(1), Nanos::from_millis(3500));
    setup.clients = QuerySource::Closed {
        count: 1500,
        think: vec![think],
        transactions: 0.1,
    };
    setup.until = HOUR;
    let gate = match method {
        "moved" => GateKind::Held(moves(seed)),
        _ => GateKind::Open,
    };
    let policy = QueryPolicy {
        balancer: BalancerKind::RoundRobin.into(),
        gate,
    };
    let summary = setup.run(&policy, seed).map_err(|error| error.to_string())?;
    let of = |sample: &NodeSample| match method {
        "moved" => sample.bound,
        _ => sample.backlog,
    };
    // A period without a delay is skipped; a node with a backlog has none.
    let rows = summary.first_node.iter().skip(STARTING);
    let rows: Vec<(f64, f64)> = rows.filter_map(|s| Some((s.delay?, of(s) / MODEL_ITEMS))).collect();
    Ok(Recording {
        outputs: vec!["delay".into()],
        inputs: vec!["backlog".into()],
        y: rows.iter().map(|row| vec![row.0]).collect(),
        u: rows.iter().map(|row| vec![row.1]).collect(),
    })
}

fn moves(seed: u64) -> Vec<u64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..MOVES).map(|_| LEVELS[rng.random_range(0..LEVELS.len())]).collect()
}

fn model(record: &Recording, order: usize) -> Result<ArxModel, String> {
    let orders = Orders { na: order, nb: order };
    identify(record, orders, &OperatingPoint::Mean).map_err(|error| error.to_string())
}
