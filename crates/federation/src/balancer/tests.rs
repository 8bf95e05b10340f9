//! Properties of single balancers; histories of all are played in `lab/cluster`.

use proptest::prelude::*;
use punctual_units::{Nanos, Time};

use super::fc_hash::least_32_bits;
use super::*;
use crate::admission::Reason;

fn query(number: u64) -> Query {
    Query {
        key: mixed(number) % 100,
        items: 60 + (number % 41) as u32,
        deadline: Time(u64::MAX),
        draw: mixed(!number),
    }
}

fn report(backlog: u64, bound: f64) -> BacklogReport {
    BacklogReport {
        backlog,
        requests: (backlog / 80) as u32,
        cost: 2e-4,
        executors: 2,
        bound,
    }
}

fn answer(query: &Query, late: Option<Late>) -> QueryReply {
    QueryReply {
        items: query.items,
        latency: Nanos::from_millis(20),
        late,
        report: report(0, 8000.0),
    }
}

#[test]
fn the_home_is_left_where_another_node_answers_earlier() {
    let mut home = Home::default();
    (0..4).for_each(|node| home.join(NodeId(node), Time(0)).unwrap());
    let hot = query(7);
    let mut counts = [0u32; 4];
    for _ in 0..400 {
        counts[home.choose(&hot, Time(0)).unwrap().0 as usize] += 1;
    }
    // One key that is asked for 400 times at once: its homes have a quarter more than the mean of all, and no more.
    let (least, most) = (*counts.iter().min().unwrap(), *counts.iter().max().unwrap());
    assert!(f64::from(most) <= 100.0 * (1.0 + SLACK) + 2.0, "{counts:?}");
    assert!(most > least);
}

/// The balancer has just begun, and is told since when its nodes are there.
#[test]
fn a_joiner_gets_its_keys_over_the_ramp_whichever_balancer_asks() {
    let share_of_joiner = |age: Nanos| {
        let (mut home, now) = (Home::default(), Time(0) + RAMP + RAMP);
        home.join(NodeId(0), Time(0)).unwrap();
        home.join(NodeId(1), now - age).unwrap();
        let mut count = 0;
        for number in 0..2000 {
            // All as large, so that no node is expected to answer earlier: where a query goes is for the circle to say.
            let query = Query {
                items: 80,
                ..query(number)
            };
            let node = home.choose(&query, now).unwrap();
            home.answered(node, &answer(&query, None), now);
            count += u32::from(node == NodeId(1));
        }
        f64::from(count) / 2000.0
    };
    assert!(share_of_joiner(RAMP.scaled(0.1)) < 0.25);
    assert!((share_of_joiner(RAMP) - 0.5).abs() < 0.15);
}

#[test]
fn a_refused_query_has_one_more_try_within_the_budget() {
    let mut home = Home::default();
    (0..2).for_each(|node| home.join(NodeId(node), Time(0)).unwrap());
    let late = |node| Late {
        reason: Reason::Backlog,
        retry_after: Nanos::from_millis(5),
        node,
    };
    let (mut again, mut sent) = (0, 0);
    for number in 0..1000 {
        let query = query(number);
        let node = home.choose(&query, Time(0)).unwrap();
        home.answered(node, &answer(&query, Some(late(node))), Time(0));
        sent += 1;
        if let Some(other) = home.again(&query, &late(node), Time(0)) {
            assert_ne!(other, node);
            home.answered(other, &answer(&query, None), Time(0));
            again += 1;
        }
    }
    let most = BUDGET * f64::from(sent) + BUDGET_MAX / 10.0;
    assert!(again > 0 && f64::from(again) <= most, "{again} of {sent}");
    // Too little time is left for any.
    let hurried = Query {
        deadline: Time(1),
        ..query(1)
    };
    assert_eq!(home.again(&hurried, &late(NodeId(0)), Time(0)), None);
}

#[test]
fn numbers_beyond_the_table_are_refused() {
    let mut home = Home::default();
    let error = home.join(NodeId(u32::MAX), Time(0)).unwrap_err().to_string();
    assert!(error.starts_with("node 4294967295: "), "{error}");
    assert_eq!(home.choose(&query(1), Time(0)), None);
}

proptest::proptest! {
    /// Never more than 1.25 times the mean, rounded up, at the moment of choice.
    #[test]
    fn bounded_loads_are_bounded(history in prop::collection::vec(any::<u64>(), 1..200), nodes in 1u32..9) {
        let mut bounded = BoundedLoads::default();
        (0..nodes).for_each(|node| bounded.join(NodeId(node), Time(0)).unwrap());
        let mut counts = vec![0u32; nodes as usize];
        for (sent, number) in history.iter().enumerate() {
            let node = bounded.choose(&query(*number), Time(0)).unwrap();
            counts[node.0 as usize] += 1;
            let most = (BOUND * (sent + 1) as f64 / f64::from(nodes)).ceil() as u32;
            prop_assert!(counts.iter().all(|count| *count <= most), "{:?}", counts);
        }
    }
}

#[test]
fn shares_are_in_proportion_to_the_bounds() {
    for (name, mut balancer) in [
        ("fc-prop", Box::new(Proportional::new(By::Bound)) as Box<dyn Balancer>),
        ("fc-hash", Box::new(FcHash::default())),
    ] {
        let bounds = [1000.0, 3000.0, 4000.0];
        let said = |(node, bound)| Period {
            node: NodeId(node),
            delay: None,
            report: report(0, bound),
        };
        (0..3).for_each(|node| balancer.join(NodeId(node), Time(0)).unwrap());
        balancer.period(&(0..3).zip(bounds).map(said).collect::<Vec<_>>(), Time(0));
        let mut counts = [0.0; 3];
        for number in 0..40_000u64 {
            let query = Query {
                key: number,
                ..query(number)
            };
            counts[balancer.choose(&query, Time(0)).unwrap().0 as usize] += 1.0;
        }
        for (count, bound) in counts.into_iter().zip(bounds) {
            let (share, asked): (f64, f64) = (count / 40_000.0, bound / 8000.0);
            assert!((share - asked).abs() < 0.02, "{name}: {share} for {asked}");
        }
    }
}

/// Where a bound falls, keys leave that node; where it comes back, so do they.
#[test]
fn few_keys_move_and_they_come_back() {
    let mut balancer = FcHash::default();
    (0..5).for_each(|node| balancer.join(NodeId(node), Time(0)).unwrap());
    let mut places = |first: f64| {
        let said = |node: u32| Period {
            node: NodeId(node),
            delay: None,
            report: report(0, if node == 0 { first } else { 1000.0 }),
        };
        balancer.period(&[0, 1, 2, 3, 4].map(said), Time(0));
        let place = |key| balancer.choose(&Query { key, ..query(key) }, Time(0)).unwrap();
        (0..20_000).map(place).collect::<Vec<NodeId>>()
    };
    let (before, less, after) = (places(1000.0), places(500.0), places(1000.0));
    assert_eq!(before, after);
    let moved = before.iter().zip(&less).filter(|(old, new)| old != new).count();
    // Node 0 has 1/5 and then 1/9 of the points; the others gain what it loses.
    let needed = 20_000.0 * (1.0 / 5.0 - 1.0 / 9.0);
    // Points that the others add take some from each other.
    assert!(
        (moved as f64) < 1.75 * needed && (moved as f64) > 0.75 * needed,
        "{moved} of {needed}"
    );
}

/// RFC 1321: MD5 of nothing is d41d8cd98f00b204e9800998ecf8427e.
#[test]
fn the_least_bits_are_the_last_bytes() {
    assert_eq!(least_32_bits(&[]), 0xecf8_427e);
}

/// Of the names, each makes one.
#[test]
fn each_balancer_has_one_name() {
    for (name, kind) in BalancerKind::NAMED {
        assert_eq!(kind.name(), name);
        let mut balancer = kind.balancer();
        balancer.join(NodeId(3), Time(0)).unwrap();
        assert_eq!(balancer.choose(&query(1), Time(0)), Some(NodeId(3)), "{name}");
    }
    assert_eq!(BalancerKind::default().name(), "home");
}
