//! Properties of the balancer [`Home`]; histories of all balancers are played in `lab/cluster`.

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
