//! What no node takes: a typed answer each time, and nothing lost.

use std::sync::Arc;

use punctual_federation::action::{Action, Ask, Caller, Event, LogAnswer};
use punctual_federation::admission::Gate;
use punctual_federation::ids::{Boot, Epoch, FederationId, Member, NodeId, RequestId, Revision, SessionId};
use punctual_federation::line::ASK_AGAIN;
use punctual_federation::liveness::HEARTBEAT;
use punctual_federation::message::{
    Answer, Heartbeat, KEY_BYTES_MAX, Message, OPERATIONS_MAX, Operation, Reason, RecordsRequest, Refusal, Reign,
    Report, Request, Standing, Stop, TIME_LEFT_MAX, VALUE_BYTES_MAX, Work,
};
use punctual_federation::node::{NAME_WAIT, Node, Setup};
use punctual_federation::queries::{BEHIND_MAX, Due, Queries};
use punctual_logs::{HistoryId, LogError, LogHistory, LogState};
use punctual_units::{Nanos, Time};

const START: Time = Time(1_000_000_000);

fn member(node: u32, boot: u64) -> Member {
    Member {
        node: NodeId(node),
        boot: Boot(boot),
    }
}

fn setup() -> Setup {
    Setup {
        me: member(0, 1),
        federation: FederationId(1),
        peers: (0..3).map(NodeId).collect(),
        log_entries_max: 100,
        executors: 1,
        gate: Gate::Open,
    }
}

fn node() -> Node {
    Node::new(&setup(), Revision::ZERO, None, Reign::default(), START)
}

/// A log that is there but answers a read without its entries, as one does that bounds its answers, is asked again; one
/// that ends before the store is not the store's.
#[test]
fn an_answer_without_the_entry_that_is_compared_stops_no_node() {
    let reign = Reign {
        epoch: Epoch(1),
        master: Some(member(0, 1)),
        ..Reign::default()
    };
    for (last, stops) in [(Revision(5), false), (Revision(2), true)] {
        let mut node = Node::new(&setup(), Revision(3), None, reign, START);
        let actions = node.step(Event::Wake, START);
        let asked = actions.iter().find_map(|action| match action {
            Action::Log(ticket, Ask::Read { after, .. }) => Some((*ticket, *after)),
            _ => None,
        });
        let (ticket, after) = asked.expect("the log is read");
        assert_eq!(after, Revision(2), "the store's last entry is among what is asked for");
        let answer = LogAnswer::Read {
            entries: Vec::new(),
            last,
        };
        let actions = node.step(Event::Log(ticket, Ok(answer)), START);
        let stopped = Stop::OtherHistory { at: Revision(3) };
        assert_eq!(node.stopped(), stops.then_some(&stopped));
        let reads_again = |action: &Action| matches!(action, Action::Log(_, Ask::Read { after: Revision(2), .. }));
        assert_eq!(actions.iter().any(reads_again), !stops, "{actions:?}");
    }
}

/// The log has trimmed the store's last entry. A store of an older version, which has no number, adopts the log's, but
/// not behind the backup with which the log began; the log of an older version does not say where that was. One with a
/// number refuses a log without.
#[test]
fn a_store_that_cannot_be_compared_is_copied_over_unless_the_histories_deny_it() {
    let history = |id, base| LogHistory {
        id: HistoryId(id),
        base: Revision(base),
        parent: HistoryId(0),
    };
    let at = Revision(3);
    let part = Some(b"m".to_vec());
    for (store, upto, log, is_refused) in [
        (0, None, history(0, 0), false),
        (0, None, history(1, 0), false),
        (0, None, history(1, 3), false),
        (0, None, history(1, 2), true),
        (0, part, history(1, 2), false),
        (1, None, history(1, 2), false),
        (1, None, history(0, 0), true),
    ] {
        let reign = Reign {
            epoch: Epoch(1),
            master: Some(member(0, 1)),
            history: HistoryId(store),
        };
        let mut node = Node::new(&setup(), at, upto, reign, START);
        let opened = LogState {
            last: Revision(9),
            history: log,
            trimmed: Revision(8),
            bytes: 0,
        };
        let actions = node.step(Event::Opened(opened), START);
        let ticket = actions.iter().find_map(|action| match action {
            Action::Log(ticket, Ask::Read { .. }) => Some(*ticket),
            _ => None,
        });
        let trimmed = Err(LogError::Compacted { trimmed: Revision(8) });
        node.step(Event::Log(ticket.expect("the log is read"), trimmed), START);
        let refused = Stop::UnknownHistory { at };
        assert_eq!(node.stopped(), is_refused.then_some(&refused), "store {store}, {log:?}");
        if store == log.id.0 {
            // A copy from an older peer, which gives no number.
            let history = HistoryId(0);
            node.step(Event::Installed(Revision(9), Reign { history, ..reign }), START);
            assert_eq!(node.reign().history, log.id);
        }
    }
}

fn request(work: Work, time_left: Nanos) -> Request {
    Request {
        id: RequestId {
            session: SessionId(1),
            number: 1,
        },
        work,
        time_left,
        seen: Revision::ZERO,
    }
}

fn query() -> Work {
    Work::Query {
        keys: vec![b"key".to_vec()],
        latest: false,
        max_age: Nanos::MAX,
    }
}

fn heartbeat(from: Member) -> Event {
    let heartbeat = Heartbeat {
        from,
        epoch: Epoch(0),
        master: false,
        applied: Revision::ZERO,
        durable: Revision::ZERO,
        said: Report {
            standing: Standing::Serving,
            ..Report::default()
        },
    };
    Event::Message(from.node, Message::Heartbeat(heartbeat))
}

/// The answers among actions.
fn answers(actions: Vec<Action>) -> Vec<Answer> {
    let answer = |action| match action {
        Action::Reply(_, reply) => Some(reply.answer),
        _ => None,
    };
    actions.into_iter().filter_map(answer).collect()
}

fn answer_to(work: Work, time_left: Nanos) -> Vec<Answer> {
    answers(node().step(Event::Request(1, request(work, time_left)), START))
}

#[test]
fn no_time_left_is_late_at_once() {
    let late = answer_to(query(), Nanos::ZERO);
    assert!(
        matches!(
            late[..],
            [Answer::Late {
                reason: Reason::Expired,
                ..
            }]
        ),
        "{late:?}"
    );
}

#[test]
fn more_time_than_makes_sense_is_refused() {
    for asked in [TIME_LEFT_MAX + Nanos(1), Nanos::MAX] {
        let refused = Answer::Refused(Refusal::TimeTooLong { asked });
        assert_eq!(answer_to(query(), asked), [refused]);
    }
}

/// A client may name any revision, and close its connection.
#[test]
fn a_query_for_a_revision_that_never_comes_is_late_long_before_its_deadline() {
    let mut queries = Queries::new(NodeId(0), 1, Gate::Open);
    let asked = Request {
        seen: Revision(u64::MAX),
        ..request(query(), TIME_LEFT_MAX)
    };
    queries.take(1, Caller::Client(1), asked, START).unwrap();
    let half = START + Nanos(BEHIND_MAX.0 / 2);
    assert_eq!(queries.next_due(), half);
    assert!(matches!(queries.due(half), Some(Due::Pass(1))));
    queries.keep(1);
    let end = START + BEHIND_MAX;
    assert_eq!(queries.next_due(), end);
    assert!(queries.due(Time(end.0 - 1)).is_none());
    assert!(matches!(queries.due(end), Some(Due::Late(_, late)) if late.reason == Reason::Expired));
    assert_eq!((queries.count(), queries.next_due()), (0, Time::MAX));
}

#[test]
fn what_is_too_long_is_refused_by_any_node() {
    let second = Nanos::from_secs(1);
    let transaction = |operation| Work::Transaction(vec![operation]);
    let refused = |work, refusal| assert_eq!(answer_to(work, second), [Answer::Refused(refusal)]);
    for len in [0, KEY_BYTES_MAX + 1] {
        refused(transaction(Operation::Get(vec![b'k'; len])), Refusal::KeyLength { len });
    }
    let len = VALUE_BYTES_MAX + 1;
    let put = Operation::Put(b"key".to_vec(), vec![0; len]);
    refused(transaction(put), Refusal::ValueTooLong { len });
    refused(transaction(Operation::Get(vec![0, b's'])), Refusal::ReservedKey);
    let count = OPERATIONS_MAX + 1;
    let keys = vec![b"key".to_vec(); count];
    refused(
        Work::Query {
            keys,
            latest: false,
            max_age: Nanos::MAX,
        },
        Refusal::TooManyOperations { count },
    );
}

#[test]
fn a_slave_says_at_once_that_it_is_not_the_master() {
    let late = answer_to(Work::Transaction(Vec::new()), Nanos::from_secs(1));
    assert!(
        matches!(
            late[..],
            [Answer::Late {
                reason: Reason::NoMaster,
                ..
            }]
        ),
        "{late:?}"
    );
}

#[test]
fn a_node_stops_at_a_log_that_is_not_for_it_and_answers_what_waits() {
    let reasons = [
        LogError::OtherFederation {
            found: FederationId(2),
            expected: FederationId(1),
        },
        LogError::NewerFormat { found: 9, supported: 1 },
    ];
    for reason in reasons {
        let mut node = node();
        let mut waiting = request(query(), Nanos::from_secs(1));
        waiting.seen = Revision(7); // nothing is there yet
        assert!(answers(node.step(Event::Request(1, waiting), START)).is_empty());
        let stop = Stop::Log(reason);
        let actions = node.step(Event::Unreadable(stop.clone()), START);
        assert!(
            actions
                .iter()
                .any(|action| matches!(action, Action::Stop(told) if *told == stop)),
            "{actions:?}"
        );
        assert!(matches!(answers(actions)[..], [Answer::Late { .. }]));
        assert_eq!(node.stopped(), Some(&stop));
        assert!(node.step(Event::Wake, START).is_empty());
        assert_eq!(node.wake_at(START), Time::MAX);
    }
}

#[test]
fn of_two_processes_with_one_name_the_later_one_is_told() {
    let mut node = node();
    node.step(heartbeat(member(1, 5)), START);
    let actions = node.step(heartbeat(member(1, 6)), START + HEARTBEAT);
    let second = member(1, 6);
    let told = |action: &Action| matches!(action, Action::Send(to, Message::NameTaken(member)) if (*to, *member) == (NodeId(1), second));
    assert!(actions.iter().any(told), "{actions:?}");
    // Once the first is silent, the second is the node.
    let later = START + Nanos::from_secs(1);
    let actions = node.step(heartbeat(member(1, 6)), later);
    assert!(!actions.iter().any(told), "{actions:?}");
}

#[test]
fn a_node_whose_name_stays_taken_stops_and_one_that_was_started_again_does_not() {
    let taken = || Event::Message(NodeId(1), Message::NameTaken(member(0, 1)));
    let mut again = node();
    let mut other = node();
    let mut now = START;
    while now.since(START) < NAME_WAIT + HEARTBEAT {
        other.step(taken(), now);
        if now.since(START) < Nanos::from_millis(200) {
            again.step(taken(), now); // until its former process counts as dead
        }
        now = now + HEARTBEAT;
    }
    assert_eq!(again.stopped(), None);
    assert_eq!(other.stopped(), Some(&Stop::NameTaken { node: NodeId(0) }));
}

#[test]
fn a_node_that_asks_for_copies_again_and_again_gets_few() {
    let mut node = node();
    let (mut copies, mut made) = (0, 0);
    let wanted = RecordsRequest {
        after: None,
        revision: Revision::ZERO,
    };
    for step in 0..100 {
        let now = START + Nanos::from_millis(10) * step;
        let mut actions = node.step(Event::Message(NodeId(1), Message::CopyWanted(wanted.clone())), now);
        if step % 10 == 9 {
            made += 1; // the store takes its time
            actions.extend(node.step(Event::Copied(NodeId(1), Arc::default()), now));
        }
        let copied = |action: &&Action| matches!(action, Action::Copy(NodeId(1), None));
        copies += actions.iter().filter(copied).count();
    }
    assert_eq!(copies, 1 + made, "one at a time");
}

/// Its process is gone: each question is answered at the same instant.
#[test]
fn a_slave_asks_a_log_that_is_not_there_every_few_milliseconds_and_no_more() {
    let mut node = node();
    let (mut now, mut asked) = (START, 0);
    let until = START + Nanos::from_secs(1);
    while now < until {
        let mut events = vec![Event::Wake];
        while let Some(event) = events.pop() {
            assert!(asked < 1000, "asked {asked} times after {}", now.since(START));
            for action in node.step(event, now) {
                if let Action::Log(ticket, _) = action {
                    asked += 1;
                    events.push(Event::Log(ticket, Err(LogError::NoAnswer)));
                }
            }
        }
        let next = node.wake_at(now);
        assert!(next > now, "it wants to be woken at once, without an end");
        now = next;
    }
    let most = Nanos::from_secs(1).0 / ASK_AGAIN.0;
    assert!((10..=most).contains(&asked), "{asked}");
}
