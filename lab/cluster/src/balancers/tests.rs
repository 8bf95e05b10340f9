//! What holds of every balancer, and of each by itself.

use proptest::prelude::*;
use punctual_federation::admission::BacklogReport;
use punctual_federation::balancer::{Period, QueryReply, mixed};
use punctual_units::Nanos;

use super::*;

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

fn answer(query: &Query) -> QueryReply {
    QueryReply {
        items: query.items,
        latency: Nanos::from_millis(20),
        late: None,
        report: report(0, 8000.0),
    }
}

#[derive(Clone, Debug)]
enum Happens {
    Join(u32),
    Leave(u32),
    Query(u64),
    Answer,
    Period(Vec<u32>),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        1 => (0u32..12).prop_map(Happens::Join),
        1 => (0u32..12).prop_map(Happens::Leave),
        8 => any::<u64>().prop_map(Happens::Query),
        4 => Just(Happens::Answer),
        1 => prop::collection::vec(0u32..20_000, 12).prop_map(Happens::Period),
    ]
}

/// What a balancer answers to a history; checks that each answer is a node that is there, and that there is one exactly
/// if there is any node.
fn played(balancer: &mut Balancing, history: &[Happens]) -> Vec<Option<NodeId>> {
    let (mut there, mut sent, mut chosen) = (Vec::<u32>::new(), Vec::new(), Vec::new());
    for (at, happens) in history.iter().enumerate() {
        let now = Time(at as u64 * 3_000_000);
        match happens {
            Happens::Join(node) => {
                balancer.policy().join(NodeId(*node), now).unwrap();
                there.retain(|known| known != node);
                there.push(*node);
            }
            Happens::Leave(node) => {
                balancer.policy().leave(NodeId(*node), now);
                there.retain(|known| known != node);
                sent.retain(|(to, _): &(NodeId, Query)| to.0 != *node);
            }
            Happens::Query(number) => {
                let query = query(*number);
                let node = balancer.policy().choose(&query, now);
                assert_eq!(node.is_some(), !there.is_empty());
                assert!(node.is_none_or(|node| there.contains(&node.0)), "{node:?} of {there:?}");
                sent.extend(node.map(|node| (node, query)));
                chosen.push(node);
                let mut asked = Vec::new();
                balancer.probes(&query, &mut asked);
                assert!(asked.iter().all(|node| there.contains(&node.0)));
                for node in asked {
                    let latency = Nanos::from_millis(u64::from(node.0));
                    let in_flight = sent.iter().filter(|(to, _)| *to == node).count() as u32;
                    balancer.probed(node, Probe { in_flight, latency }, now);
                }
            }
            Happens::Answer => {
                if let Some((node, query)) = sent.pop() {
                    balancer.policy().answered(node, &answer(&query), now);
                }
            }
            Happens::Period(bounds) => {
                let said = |node: &u32| Period {
                    node: NodeId(*node),
                    delay: Some(Nanos::from_micros(1 + u64::from(bounds[*node as usize]))),
                    report: report(u64::from(bounds[*node as usize]), f64::from(bounds[*node as usize])),
                };
                balancer
                    .policy()
                    .period(&there.iter().map(said).collect::<Vec<_>>(), now);
            }
        }
    }
    chosen
}

proptest! {
    #[test]
    fn only_nodes_that_are_there_are_chosen(history in prop::collection::vec(happens(), 0..60)) {
        for choice in BalancerChoice::ALL {
            let chosen = played(&mut choice.balancer(), &history);
            prop_assert_eq!(&chosen, &played(&mut choice.balancer(), &history), "{} twice", choice.name());
        }
    }
}

#[test]
fn numbers_beyond_the_table_are_refused() {
    for choice in BalancerChoice::ALL {
        let (name, mut balancer) = (choice.name(), choice.balancer());
        let error = balancer
            .policy()
            .join(NodeId(u32::MAX), Time(0))
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("node 4294967295: "), "{name}: {error}");
        assert_eq!(balancer.policy().choose(&query(1), Time(0)), None, "{name}");
    }
}
