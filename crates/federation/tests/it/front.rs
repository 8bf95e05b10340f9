//! A front gives each request one answer by its deadline, whatever nodes say or do, and sends it where it may.

use std::collections::BTreeMap;

use proptest::prelude::*;
use punctual_federation::admission::BacklogReport;
use punctual_federation::balancer::{BUDGET, BUDGET_MAX, BalancerKind, Home};
use punctual_federation::front::{Front, FrontAction, FrontEvent, HOLD, WAY};
use punctual_federation::ids::{Boot, Epoch, Member, NodeId, RequestId, Revision, SessionId};
use punctual_federation::liveness::HEARTBEAT;
use punctual_federation::message::{
    Answer, ClientReading, Heartbeat, Operation, Output, Position, Reason, Reply, Report, Request, Standing, Work,
};
use punctual_federation::node::MARGIN;
use punctual_units::{Nanos, Time};

const NODES: u32 = 3;
const START: Time = Time(10_000_000_000);

fn said(standing: Standing) -> Report {
    Report {
        standing,
        serving_for: Nanos::from_secs(3600),
        report: BacklogReport {
            executors: 1,
            cost: 1e-5,
            bound: if standing == Standing::Serving { 1e4 } else { 0.0 },
            ..BacklogReport::default()
        },
        ..Report::default()
    }
}

fn heartbeat(node: u32, standing: Standing, master: bool) -> FrontEvent {
    FrontEvent::Heartbeat(Heartbeat {
        from: Member {
            node: NodeId(node),
            boot: Boot(1),
        },
        epoch: Epoch(u64::from(node)),
        master,
        applied: Revision::ZERO,
        durable: Revision::ZERO,
        said: said(standing),
    })
}

fn request(number: u64, query: bool, time_left: Nanos) -> Request {
    let key = b"key".to_vec();
    Request {
        id: RequestId {
            session: SessionId(1),
            number,
        },
        work: match query {
            true => Work::Query {
                keys: vec![key],
                latest: false,
                max_age: Nanos::MAX,
            },
            false => Work::Transaction(vec![Operation::Delete(key)]),
        },
        time_left,
        seen: Revision::ZERO,
    }
}

fn late(reason: Reason, node: Option<NodeId>) -> Answer {
    Answer::Late {
        reason,
        retry_after: Nanos::ZERO,
        node,
    }
}

fn done() -> Answer {
    Answer::Done {
        output: Output::Values(Vec::new()),
        position: Position::default(),
        revision: Revision::ZERO,
    }
}

/// What happens to a front.
#[derive(Clone, Copy, Debug)]
enum FrontStep {
    Asks {
        query: bool,
        millis: u64,
    },
    Says {
        node: u32,
        standing: Standing,
        master: bool,
    },
    /// One of what is under way is answered.
    Answers {
        which: usize,
        refused: bool,
        named: Option<u32>,
        standing: Standing,
    },
    Dies(u32),
    Passes(u64),
}

fn standing() -> impl Strategy<Value = Standing> {
    prop_oneof![
        5 => Just(Standing::Serving),
        1 => Just(Standing::Joining),
        1 => Just(Standing::Paused),
        1 => Just(Standing::Leaving),
    ]
}

fn happens() -> impl Strategy<Value = FrontStep> {
    let node = 0..NODES;
    prop_oneof![
        5 => (any::<bool>(), 0..300_u64).prop_map(|(query, millis)| FrontStep::Asks { query, millis }),
        5 => (node.clone(), standing(), any::<bool>())
            .prop_map(|(node, standing, master)| FrontStep::Says { node, standing, master }),
        5 => (any::<usize>(), any::<bool>(), prop::option::of(node.clone()), standing())
            .prop_map(|(which, refused, named, standing)| FrontStep::Answers { which, refused, named, standing }),
        1 => node.prop_map(FrontStep::Dies),
        4 => (0..60_u64).prop_map(FrontStep::Passes),
    ]
}

/// A front, and what a test knows of its requests.
struct Play {
    front: Front,
    now: Time,
    asked: BTreeMap<u64, (Request, Time)>,
    answers: BTreeMap<u64, (Answer, Time)>,
    sent: BTreeMap<u64, Vec<NodeId>>,
    under_way: Vec<(u64, NodeId, u64)>,
    standings: BTreeMap<NodeId, Standing>,
}

impl Play {
    fn new() -> Play {
        Play {
            front: Front::new(Box::new(Home::default()), 7),
            now: START,
            asked: BTreeMap::new(),
            answers: BTreeMap::new(),
            sent: BTreeMap::new(),
            under_way: Vec::new(),
            standings: BTreeMap::new(),
        }
    }

    fn tell(&mut self, event: FrontEvent) -> Result<(), TestCaseError> {
        for action in self.front.step(event, self.now) {
            match action {
                FrontAction::Send(node, ticket, request) => {
                    let number = request.id.number;
                    if request.work.for_master() {
                        self.sent.entry(number).or_default().push(node);
                    } else {
                        let standing = self.standings.get(&node).copied();
                        prop_assert_eq!(standing, Some(Standing::Serving), "request {} to node {}", number, node);
                        self.sent.entry(number).or_default().push(node);
                    }
                    let (_, deadline) = self.asked[&number];
                    prop_assert_eq!(self.now + request.time_left + WAY, deadline);
                    self.under_way.push((ticket, node, number));
                }
                FrontAction::Answer(client, id, answer) => {
                    prop_assert_eq!(client, 9);
                    let before = self.answers.insert(id.number, (answer, self.now));
                    prop_assert!(before.is_none(), "request {} is answered twice", id);
                }
            }
        }
        prop_assert!(self.front.wake_at() > self.now);
        Ok(())
    }

    fn pass(&mut self, span: Nanos) -> Result<(), TestCaseError> {
        let end = self.now + span;
        while self.front.wake_at() <= end {
            self.now = self.front.wake_at();
            self.tell(FrontEvent::Wake)?;
        }
        self.now = end;
        Ok(())
    }

    fn happen(&mut self, happens: FrontStep) -> Result<(), TestCaseError> {
        match happens {
            FrontStep::Asks { query, millis } => {
                let number = self.asked.len() as u64 + 1;
                let request = request(number, query, Nanos::from_millis(millis));
                let deadline = self.now + request.time_left;
                self.asked.insert(number, (request.clone(), deadline));
                self.tell(FrontEvent::Request(9, request))
            }
            FrontStep::Says { node, standing, master } => {
                self.standings.insert(NodeId(node), standing);
                self.tell(heartbeat(node, standing, master))
            }
            FrontStep::Answers {
                which,
                refused,
                named,
                standing,
            } => {
                if self.under_way.is_empty() {
                    return Ok(());
                }
                let (ticket, node, number) = self.under_way.remove(which % self.under_way.len());
                // What an answer says counts only of a node that is not taken for dead.
                if self.standings.contains_key(&node) {
                    self.standings.insert(node, standing);
                }
                let answer = match refused {
                    true => late(Reason::Backlog, named.map(NodeId)),
                    false => done(),
                };
                let id = self.asked[&number].0.id;
                let reply = Reply {
                    id,
                    answer,
                    said: said(standing),
                };
                self.tell(FrontEvent::Reply(node, ticket, reply))
            }
            FrontStep::Dies(node) => {
                self.standings.remove(&NodeId(node));
                self.tell(FrontEvent::Reset(NodeId(node)))
            }
            FrontStep::Passes(millis) => self.pass(Nanos::from_millis(millis)),
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let mut again = 0;
        for (number, (request, deadline)) in &self.asked {
            let Some((answer, at)) = self.answers.get(number) else {
                return Err(TestCaseError::fail(format!("request {number} was never answered")));
            };
            prop_assert!(at <= deadline, "request {} is answered after its deadline", number);
            let sent = self.sent.get(number).map_or(0, Vec::len);
            prop_assert!(sent <= 2, "request {} is sent {} times", number, sent);
            again += sent.saturating_sub(1);
            let query = !request.work.for_master();
            prop_assert!(!query || *answer != Answer::Unknown, "a query is never unknown");
            prop_assert!(sent > 0 || matches!(answer, Answer::Late { .. }), "{:?}", answer);
        }
        // The balancer's budget and the front's own.
        let most = 2.0 * (BUDGET_MAX / 10.0 + BUDGET * self.asked.len() as f64);
        prop_assert!(
            again as f64 <= most,
            "{} of {} are sent once more",
            again,
            self.asked.len()
        );
        prop_assert_eq!(self.front.under_way(), 0);
        Ok(())
    }
}

proptest! {
    #[test]
    fn each_request_has_one_answer_by_its_deadline(steps in prop::collection::vec(happens(), 0..150)) {
        let mut play = Play::new();
        for step in steps {
            play.happen(step)?;
        }
        play.pass(Nanos::from_secs(2))?;
        play.check()?;
    }
}

/// A front that knows of three nodes that serve; node 0 is the master.
fn front() -> Play {
    let mut play = Play::new();
    for node in 0..NODES {
        let step = FrontStep::Says {
            node,
            standing: Standing::Serving,
            master: node == 0,
        };
        play.happen(step).expect("a heartbeat is heard");
    }
    play
}

#[test]
fn a_transaction_whose_node_is_gone_is_unknown_and_a_query_goes_elsewhere() {
    let mut play = front();
    play.happen(FrontStep::Asks {
        query: false,
        millis: 100,
    })
    .unwrap();
    play.happen(FrontStep::Asks {
        query: true,
        millis: 100,
    })
    .unwrap();
    let node = play.sent[&2][0];
    play.happen(FrontStep::Dies(0)).unwrap();
    assert_eq!(play.answers[&1].0, Answer::Unknown);
    assert_eq!(play.sent[&1], [NodeId(0)]);
    if node != NodeId(0) {
        play.happen(FrontStep::Dies(node.0)).unwrap();
    }
    assert_eq!(play.sent[&2].len(), 2);
    assert!(!play.answers.contains_key(&2));
}

#[test]
fn a_transaction_that_was_refused_goes_to_the_master_that_the_refusal_names() {
    let mut play = front();
    play.happen(FrontStep::Asks {
        query: false,
        millis: 100,
    })
    .unwrap();
    let (refused, named, standing) = (true, Some(1), Standing::Paused);
    play.happen(FrontStep::Answers {
        which: 0,
        refused,
        named,
        standing,
    })
    .unwrap();
    assert_eq!(play.sent[&1], [NodeId(0), NodeId(1)]);
    // A second refusal is for the client.
    play.happen(FrontStep::Answers {
        which: 0,
        refused,
        named: Some(2),
        standing,
    })
    .unwrap();
    assert_eq!(play.answers[&1].0, late(Reason::Backlog, Some(NodeId(2))));
}

fn late_without_master() -> Answer {
    Answer::late(Reason::NoMaster, None)
}

fn asks_to_count(play: &mut Play, millis: u64) {
    let query = false;
    play.happen(FrontStep::Asks { query, millis }).unwrap();
}

fn says(play: &mut Play, node: u32, standing: Standing, master: bool) {
    play.happen(FrontStep::Says { node, standing, master }).unwrap();
}

#[test]
fn between_two_masters_transactions_wait_for_the_next_one_and_not_for_ever() {
    let mut play = front();
    play.happen(FrontStep::Dies(0)).unwrap();
    asks_to_count(&mut play, 2000);
    play.pass(HEARTBEAT).unwrap();
    assert!(!play.sent.contains_key(&1) && !play.answers.contains_key(&1));
    says(&mut play, 1, Standing::Serving, true);
    assert_eq!(play.sent[&1], [NodeId(1)]);
    // Where none comes, what waits is late when the hold is over, and what comes then at once.
    let mut play = front();
    play.happen(FrontStep::Dies(0)).unwrap();
    let since = play.now;
    asks_to_count(&mut play, 2000);
    play.pass(HOLD).unwrap();
    assert_eq!(play.answers[&1], (late_without_master(), since + HOLD));
    asks_to_count(&mut play, 2000);
    assert_eq!(play.answers[&2].0, late_without_master());
}

#[test]
fn a_master_that_leaves_refuses_no_transaction_of_a_client() {
    let mut play = front();
    asks_to_count(&mut play, 500);
    // The one under way crosses the word that it leaves.
    play.standings.insert(NodeId(0), Standing::Leaving);
    let id = play.asked[&1].0.id;
    let (ticket, node, _) = play.under_way.remove(0);
    let (answer, said) = (late_without_master(), said(Standing::Leaving));
    play.tell(FrontEvent::Reply(node, ticket, Reply { id, answer, said }))
        .unwrap();
    asks_to_count(&mut play, 500);
    assert!(play.answers.is_empty() && play.sent.len() == 1, "{:?}", play.answers);
    says(&mut play, 2, Standing::Serving, true);
    assert_eq!(
        (&play.sent[&1][..], &play.sent[&2][..]),
        (&[NodeId(0), NodeId(2)][..], &[NodeId(2)][..])
    );
}

#[test]
fn a_silent_node_is_sent_nothing_and_what_has_no_time_is_late_at_once() {
    let mut play = front();
    play.pass(HEARTBEAT * 5).unwrap();
    play.happen(FrontStep::Asks {
        query: true,
        millis: 100,
    })
    .unwrap();
    play.happen(FrontStep::Asks {
        query: false,
        millis: 100,
    })
    .unwrap();
    assert_eq!(play.answers[&1].0, late_without_master(), "nothing waits anywhere");
    // A transaction waits for the next master as long as it can.
    assert!(!play.answers.contains_key(&2));
    play.pass(Nanos::from_millis(100)).unwrap();
    assert_eq!(play.answers[&2].0, late_without_master());
    let mut play = front();
    let no_time = request(1, true, WAY + MARGIN);
    play.asked.insert(1, (no_time.clone(), play.now + no_time.time_left));
    play.tell(FrontEvent::Request(9, no_time)).unwrap();
    assert!(matches!(
        play.answers[&1].0,
        Answer::Late {
            reason: Reason::Expired,
            ..
        }
    ));
}

/// Readings have one home on all fronts, and are told as old as the whole way makes them.
#[test]
fn a_reading_has_a_home_and_gets_older_on_its_way() {
    let front = |draw| {
        let mut front = Front::new(Box::new(Home::default()), draw);
        for node in 0..NODES {
            let FrontEvent::Heartbeat(mut beat) = heartbeat(node, Standing::Serving, node == 0) else {
                unreachable!()
            };
            beat.said.at = Time(u64::from(node) + 7);
            front.step(FrontEvent::Heartbeat(beat), START);
        }
        front
    };
    let asks = |front: &mut Front, work, at| {
        let request = Request {
            work,
            ..request(1, true, Nanos::from_secs(1))
        };
        let sent = front.step(FrontEvent::Request(1, request), at);
        match sent.as_slice() {
            [FrontAction::Send(node, ticket, request)] => (*node, *ticket, request.work.clone()),
            other => panic!("{other:?}"),
        }
    };
    let (mut one, mut other) = (front(1), front(99));
    let mut homes = std::collections::BTreeSet::new();
    for number in 0..64_u8 {
        let key = vec![b'k', number];
        let sample = ClientReading {
            key: key.clone(),
            value: b"v".to_vec(),
            age: Nanos::from_millis(5),
            since: None,
        };
        let (home, _, work) = asks(&mut one, Work::Sample(sample), START);
        let Work::Sample(sent) = work else { panic!("{work:?}") };
        assert_eq!(
            sent.since,
            Some(Time(u64::from(home.0) + 7)),
            "an instant of that node's clock"
        );
        assert!(sent.age >= Nanos::from_millis(5));
        let (again, ticket, _) = asks(&mut other, Work::Fresh(key), START);
        assert_eq!(home, again, "two fronts agree");
        homes.insert(home);
        let reply = Reply {
            id: request(1, true, Nanos::ZERO).id,
            answer: Answer::Done {
                output: Output::Reading(Some((Nanos::from_millis(10), b"v".to_vec()))),
                position: Position::default(),
                revision: Revision::ZERO,
            },
            said: said(Standing::Serving),
        };
        let told = other.step(FrontEvent::Reply(again, ticket, reply), START + Nanos::from_millis(30));
        let [FrontAction::Answer(_, _, Answer::Done { output, .. })] = told.as_slice() else {
            panic!("{told:?}")
        };
        let Output::Reading(Some((age, _))) = output else {
            panic!("{output:?}")
        };
        assert!(*age >= Nanos::from_millis(40) && *age < Nanos::from_millis(41), "{age}");
    }
    assert_eq!(homes.len(), NODES as usize, "each node is the home of some");
    // Where it is not known whether a reading was set, no other answer is given.
    let sample = ClientReading {
        key: b"k".to_vec(),
        value: b"v".to_vec(),
        age: Nanos::ZERO,
        since: None,
    };
    asks(&mut one, Work::Sample(sample), START);
    let told = one.step(FrontEvent::Wake, START + Nanos::from_secs(2));
    let unknown = |action: &FrontAction| matches!(action, FrontAction::Answer(1, _, Answer::Unknown));
    assert!(told.iter().any(unknown), "{told:?}");
}

/// Prop distributes queries by the delays that the front has measured in the last second: a node that answers four
/// times as fast gets four times as many.
#[test]
fn delays_of_the_last_second_decide_where_a_policy_of_periods_sends() {
    let mut front = Front::new(BalancerKind::Prop.balancer(), 1);
    let mut counts = [0u32; 2];
    for number in 0..4000 {
        let now = START + Nanos::from_millis(number);
        if number % 50 == 0 {
            (0..2).for_each(|node| drop(front.step(heartbeat(node, Standing::Serving, node == 0), now)));
        }
        let sent = front.step(FrontEvent::Request(1, request(number, true, Nanos::from_secs(1))), now);
        let [FrontAction::Send(node, ticket, request)] = sent.as_slice() else {
            panic!("{sent:?}")
        };
        let reply = Reply {
            id: request.id,
            answer: done(),
            said: said(Standing::Serving),
        };
        let took = Nanos::from_micros([100, 400][node.0 as usize]);
        front.step(FrontEvent::Reply(*node, *ticket, reply), now + took);
        // In the first second nothing was measured.
        counts[node.0 as usize] += u32::from(number > 1100);
    }
    let share = f64::from(counts[0]) / f64::from(counts[0] + counts[1]);
    assert!((share - 0.8).abs() < 0.03, "{counts:?}");
}
