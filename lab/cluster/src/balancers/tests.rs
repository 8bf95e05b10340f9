//! What holds of every balancer, and of each by itself.

use proptest::prelude::*;
use punctual_federation::admission::BacklogReport;
use punctual_federation::balancer::{Period, QueryReply, mixed};
use punctual_units::Nanos;

use super::fc_hash::least_32_bits;
use super::*;

fn all() -> Vec<(&'static str, Box<dyn ProbingBalancer>)> {
    vec![
        ("rr", Box::new(RoundRobin::default())),
        ("prop", Box::new(Proportional::new(By::Delay))),
        ("fc-prop", Box::new(Proportional::new(By::Bound))),
        ("fc-hash", Box::new(FcHash::default())),
        ("p2c", Box::new(PeakEwma::default())),
        ("prequal", Box::new(Prequal::default())),
        ("bounded", Box::new(BoundedLoads::default())),
        ("ours", Box::new(Home::default())),
    ]
}

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
fn played(balancer: &mut dyn ProbingBalancer, history: &[Happens]) -> Vec<Option<NodeId>> {
    let (mut there, mut sent, mut chosen) = (Vec::<u32>::new(), Vec::new(), Vec::new());
    for (at, happens) in history.iter().enumerate() {
        let now = Time(at as u64 * 3_000_000);
        match happens {
            Happens::Join(node) => {
                balancer.join(NodeId(*node), now).unwrap();
                there.retain(|known| known != node);
                there.push(*node);
            }
            Happens::Leave(node) => {
                balancer.leave(NodeId(*node), now);
                there.retain(|known| known != node);
                sent.retain(|(to, _): &(NodeId, Query)| to.0 != *node);
            }
            Happens::Query(number) => {
                let query = query(*number);
                let node = balancer.choose(&query, now);
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
                    balancer.answered(node, &answer(&query), now);
                }
            }
            Happens::Period(bounds) => {
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
        for ((name, mut once), (_, mut again)) in all().into_iter().zip(all()) {
            let chosen = played(once.as_mut(), &history);
            prop_assert_eq!(&chosen, &played(again.as_mut(), &history), "{} twice", name);
        }
    }

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

#[test]
fn numbers_beyond_the_table_are_refused() {
    for (name, mut balancer) in all() {
        let error = balancer.join(NodeId(u32::MAX), Time(0)).unwrap_err().to_string();
        assert!(error.starts_with("node 4294967295: "), "{name}: {error}");
        assert_eq!(balancer.choose(&query(1), Time(0)), None, "{name}");
    }
}
