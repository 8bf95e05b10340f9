//! The bound of a node's backlog is a knob of the loop's list, on the node itself.

use punctual_federation::action::{Action, Event};
use punctual_federation::admission::Gate;
use punctual_federation::ids::{Boot, FederationId, Member, NodeId, RequestId, Revision, SessionId};
use punctual_federation::message::{Answer, Reason, Reign, Request, Work};
use punctual_federation::node::{Node, Setup};
use punctual_platform::{KnobId, Machine, Plan, Value};
use punctual_testing::conformance::machine::check;
use punctual_units::{Clock, Nanos, Time};

const START: Time = Time(1_000_000_000);

fn node() -> Node {
    let setup = Setup {
        me: Member {
            node: NodeId(0),
            boot: Boot(1),
        },
        federation: FederationId(1),
        peers: (0..3).map(NodeId).collect(),
        log_entries_max: 100,
        executors: 2,
        gate: Gate::Open,
    };
    Node::new(&setup, Revision::ZERO, None, Reign::default(), START)
}

/// Whether the node refuses a query of two items, because of its backlog.
fn refuses(node: &mut Node) -> bool {
    let request = Request {
        id: RequestId {
            session: SessionId(1),
            number: 1,
        },
        work: Work::Query {
            keys: vec![b"one".to_vec(), b"two".to_vec()],
            latest: false,
            max_age: Nanos::MAX,
        },
        time_left: Nanos::from_secs(1),
        seen: Revision::ZERO,
    };
    let actions = node.step(Event::Request(1, request), START);
    let backlog = |action: &Action| {
        let Action::Reply(_, reply) = action else {
            return false;
        };
        matches!(
            reply.answer,
            Answer::Late {
                reason: Reason::Backlog,
                ..
            }
        )
    };
    actions.iter().any(backlog)
}

#[test]
fn a_plan_bounds_what_a_node_admits() {
    for (items, refused) in [(1, true), (2, false)] {
        let mut node = node();
        let plan = Plan::of(KnobId::Backlog, Value::Items(items));
        assert_eq!(node.machine(START).apply(&plan).failed(&plan), None);
        assert_eq!(refuses(&mut node), refused, "{items}");
    }
    let mut node = node();
    node.machine(START).apply(&Plan::of(KnobId::Backlog, Value::Items(1)));
    assert!(node.machine(START).restore().is_empty());
    assert!(!refuses(&mut node), "put back");
}

#[test]
fn a_node_conforms_as_a_machine() {
    let mut node = node();
    let violations = check(node.machine(START), |machine| {
        let later = machine.now() + Nanos::from_millis(10);
        machine.at(later);
    });
    assert_eq!(violations, Vec::<String>::new());
}
