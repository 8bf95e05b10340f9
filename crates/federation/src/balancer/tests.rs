//! Properties of the balancer [`Home`].

use proptest::prelude::*;
use punctual_units::{Nanos, Time};

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

#[derive(Clone, Debug)]
enum BalancerEvent {
    Join(u32),
    Leave(u32),
    Query(u64),
    Answer,
    Period(Vec<u32>),
}

fn happens() -> impl Strategy<Value = BalancerEvent> {
    prop_oneof![
        1 => (0u32..12).prop_map(BalancerEvent::Join),
        1 => (0u32..12).prop_map(BalancerEvent::Leave),
        8 => any::<u64>().prop_map(BalancerEvent::Query),
        4 => Just(BalancerEvent::Answer),
        1 => prop::collection::vec(0u32..20_000, 12).prop_map(BalancerEvent::Period),
    ]
}

/// What a balancer answers to a history; checks that each answer is a node that is there, and that there is one exactly
/// if there is any node.
fn played(balancer: &mut dyn Balancer, history: &[BalancerEvent]) -> Vec<Option<NodeId>> {
    let (mut there, mut sent, mut chosen) = (Vec::<u32>::new(), Vec::new(), Vec::new());
    for (at, happens) in history.iter().enumerate() {
        let now = Time(at as u64 * 3_000_000);
        match happens {
            BalancerEvent::Join(node) => {
                balancer.join(NodeId(*node), now).unwrap();
                there.retain(|known| known != node);
                there.push(*node);
            }
            BalancerEvent::Leave(node) => {
                balancer.leave(NodeId(*node), now);
                there.retain(|known| known != node);
                sent.retain(|(to, _): &(NodeId, Query)| to.0 != *node);
            }
            BalancerEvent::Query(number) => {
                let query = query(*number);
                let node = balancer.choose(&query, now);
                assert_eq!(node.is_some(), !there.is_empty());
                assert!(node.is_none_or(|node| there.contains(&node.0)), "{node:?} of {there:?}");
                sent.extend(node.map(|node| (node, query)));
                chosen.push(node);
            }
            BalancerEvent::Answer => {
                if let Some((node, query)) = sent.pop() {
                    balancer.answered(node, &answer(&query, None), now);
                }
            }
            BalancerEvent::Period(bounds) => {
                let said = |node: &u32| Period {
                    node: NodeId(*node),
                    delay: Some(Nanos::from_micros(1 + u64::from(bounds[*node as usize]))),
                    report: report(u64::from(bounds[*node as usize]), f64::from(bounds[*node as usize])),
                };
                balancer.period(&there.iter().map(said).collect::<Vec<_>>(), now);
            }
        }
    }
    chosen
}

proptest! {
    #[test]
    fn only_nodes_that_are_there_are_chosen(history in prop::collection::vec(happens(), 0..150)) {
        let chosen = played(&mut Home::default(), &history);
        prop_assert_eq!(&chosen, &played(&mut Home::default(), &history), "twice");
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
