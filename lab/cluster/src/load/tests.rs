//! Identities, queues whose answer is known, and what ours is to achieve, on short runs.

use punctual_control::{OperatingPoint, Orders, Recording, identify};
use punctual_federation::balancer::BalancerKind;
use punctual_loop::{EventLog, replay};
use punctual_platform::{KnobId, Plan, Value};
use punctual_testing::conformance::machine::check;
use punctual_units::{Clock, Time};

use super::*;

fn seconds(at: u64) -> Time {
    Time(at * 1_000_000_000)
}

/// The paper's five slaves in an open loop at so many times of what they serve at most, for 20 s.
fn open(load: f64) -> Setup {
    let mut setup = Setup::paper(5);
    let rate = load * setup.capacity();
    setup.clients = QuerySource::Open {
        rates: vec![(Time(0), rate)],
    };
    setup.waiting = ConnectionLimit::Taken;
    setup.judged_from = seconds(5);
    setup.until = seconds(20);
    setup
}

/// The model of a node on which the delay follows the bound of the last period, 0.1 s for a thousand items.
fn model() -> ArxModel {
    let level = |k: usize| 6.0 + 4.0 * (k as f64 * 0.618_034).fract();
    let record = Recording {
        outputs: vec!["delay".into()],
        inputs: vec!["backlog".into()],
        y: (0..200)
            .map(|k| vec![0.1 * level(k.max(1) - 1) + 1e-3 * (k % 7) as f64])
            .collect(),
        u: (0..200).map(|k| vec![level(k)]).collect(),
    };
    identify(&record, Orders { na: 2, nb: 2 }, &OperatingPoint::Mean).unwrap()
}

fn published() -> GateKind {
    GateKind::Published {
        model: Box::new(model()),
        integration: Integration::Once,
    }
}

fn policies() -> Vec<QueryPolicy> {
    let gates = [GateKind::Open, published(), GateKind::Timely];
    let of = |balancer| gates.clone().map(|gate| QueryPolicy { balancer, gate });
    BalancerChoice::ALL.into_iter().flat_map(of).collect()
}

fn ours_policy() -> QueryPolicy {
    QueryPolicy {
        balancer: BalancerKind::Home.into(),
        gate: GateKind::Timely,
    }
}

#[test]
fn every_query_ends_once() {
    for policy in policies() {
        for seed in 1..2 {
            let mut setup = open(1.5);
            setup.balancers = 2;
            setup.changes = vec![
                (seconds(6), NodeChange::Crash(0)),
                (seconds(8), NodeChange::Leave(1)),
                (seconds(9), NodeChange::Join(0)),
                (seconds(10), NodeChange::Speed(2, 0.5)),
                (seconds(11), NodeChange::Join(1)),
            ];
            let summary = setup.run(&policy, seed).unwrap();
            assert_eq!(summary.balance.0, summary.balance.1, "{policy:?}, seed {seed}");
            assert_eq!(
                summary,
                setup.run(&policy, seed).unwrap(),
                "{policy:?}, seed {seed} twice"
            );
            if policy.gate == GateKind::Timely {
                assert_eq!(summary.late_refusals, 0, "{policy:?}, seed {seed}");
            }
        }
    }
}

/// The bound is a knob of the loop's list: what was decided about it is in the log, through a file and back, and the
/// same sights lead to the same decisions. One that was changed is found.
#[test]
fn the_bound_of_the_backlog_is_decided_by_the_loop_and_replays() {
    let policy = QueryPolicy {
        balancer: BalancerKind::FcProp.into(),
        gate: published(),
    };
    let summary = open(1.5).run(&policy, 1).unwrap();
    let log = summary.log.expect("a log");
    assert_eq!(log.decisions.len(), 20);
    let bounds: Vec<_> = log.decisions.iter().map(|decision| &decision.answer).collect();
    assert!(bounds.windows(2).any(|pair| pair[0] != pair[1]), "{bounds:?}");
    let mut log: EventLog = serde_json::from_str(&serde_json::to_string(&log).unwrap()).unwrap();
    assert_eq!(replay(&log), Ok(Vec::new()));
    log.decisions[7].answer = Plan::of(KnobId::Backlog, Value::Items(1)).into();
    assert_eq!(replay(&log).unwrap().len(), 1);
}

/// A node as a machine, beyond its range and with knobs that it has not.
#[test]
fn a_node_conforms_as_a_machine() {
    let mut machine = node::machine(&open(1.0), 0, &GateKind::Open);
    let violations = check(&mut machine, |machine| {
        let now = machine.now() + Nanos::from_millis(10);
        machine.at(now);
    });
    assert_eq!(violations, Vec::<String>::new());
}

/// M/M/1 at half load: a mean delay of twice the service time, and P(delay > t) = exp(-t / mean).
#[test]
fn a_queue_is_as_the_formula_says() {
    let mut setup = open(0.5);
    setup.nodes = vec![NodeModel {
        executors: 1,
        ..NodeModel::PAPER
    }];
    setup.work.items = (80, 80);
    setup.work.saved = Share::clamped(0.0);
    setup.work.spread = Spread::Exponential;
    setup.order = ServiceOrder::Arrival;
    setup.wire = Nanos::ZERO;
    setup.clients = QuerySource::Open {
        rates: vec![(Time(0), 0.5 * setup.capacity())],
    };
    setup.until = seconds(2000);
    let policy = QueryPolicy {
        balancer: BalancerKind::RoundRobin.into(),
        gate: GateKind::Open,
    };
    let summary = setup.run(&policy, 1).unwrap();
    let mean = 2.0 * 80.0 * 205e-6;
    let off = |ours: Option<f64>, formula: f64| (ours.unwrap() / formula - 1.0).abs();
    assert!(
        off(summary.mean_delay(), mean) < 0.03,
        "{:?} {mean}",
        summary.mean_delay()
    );
    let p99 = mean * 100f64.ln();
    assert!(
        off(summary.percentile(0.99), p99) < 0.06,
        "{:?} {p99}",
        summary.percentile(0.99)
    );
}

/// Little's law: clients = throughput x (delay + thinking).
#[test]
fn clients_are_conserved() {
    let mut setup = Setup::paper(2);
    setup.waiting = ConnectionLimit::Taken;
    setup.clients = QuerySource::Closed {
        count: 300,
        think: vec![(Time(0), Nanos::from_millis(1000), Nanos::from_millis(1500))],
        transactions: 0.0,
    };
    setup.judged_from = seconds(20);
    setup.until = seconds(120);
    let policy = QueryPolicy {
        balancer: BalancerKind::RoundRobin.into(),
        gate: GateKind::Open,
    };
    let summary = setup.run(&policy, 1).unwrap();
    let clients = summary.per_second(summary.served) * (summary.mean_delay().unwrap() + 1.25);
    assert!((clients / 300.0 - 1.0).abs() < 0.01, "{clients}");
}

/// A smaller version of `experiment chronos-overload`: one seed, 20 s.
#[test]
fn ours_serves_in_time_what_can_be_served() {
    for (load, spread, of_capacity, of_served) in [
        (1.5, Spread::Exponential, 0.95, 0.99),
        (3.0, Spread::Even(0.2), 0.96, 0.995),
    ] {
        let mut setup = open(load);
        setup.work.spread = spread;
        let summaries: Vec<Summary> = policies().iter().map(|policy| setup.run(policy, 1).unwrap()).collect();
        let capacity = summaries.iter().map(|summary| summary.served).max().unwrap();
        let ours = setup.run(&ours_policy(), 1).unwrap();
        let (share, timely) = (ours.timely as f64 / capacity as f64, ours.timely_of_served());
        assert!(share >= of_capacity, "{spread:?} {load}: {share} of capacity");
        assert!(timely >= of_served, "{spread:?} {load}: {timely}");
    }
}

#[test]
fn ours_refuses_nothing_at_0_8_and_is_back_after_a_crash() {
    let calm = open(0.8).run(&ours_policy(), 1).unwrap();
    assert_eq!((calm.refused, calm.lost), (0, 0));
    let mut setup = open(1.5);
    setup.changes = vec![(seconds(10), NodeChange::Crash(4))];
    let summary = setup.run(&ours_policy(), 1).unwrap();
    let timely = |range: std::ops::Range<usize>| {
        let length = range.len() as f64;
        summary.second_by_second[range]
            .iter()
            .map(|second| f64::from(second.timely))
            .sum::<f64>()
            / length
    };
    let left = timely(11..19) / timely(5..10);
    assert!((left / 0.8 - 1.0).abs() < 0.03, "{left} with four of five");
}

#[test]
fn a_setup_that_makes_no_simulation_is_refused() {
    let mut setup = open(1.0);
    setup.changes = vec![(seconds(1), NodeChange::Crash(5))];
    let error = setup.run(&ours_policy(), 1).unwrap_err().to_string();
    assert!(error.starts_with("changes: "), "{error}");
    let none = Setup {
        nodes: Vec::new(),
        ..open(1.0)
    };
    assert_eq!(none.run(&ours_policy(), 1).unwrap_err().what, "nodes");
}
