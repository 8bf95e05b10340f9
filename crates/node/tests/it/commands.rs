//! A master and a slave with clocks of their own, in memory: whatever clients say, both have the same records, and
//! terms are those of a model.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use punctual_engines::Memory;
use punctual_federation::action::Execution;
use punctual_federation::entry::{KeyEvent, LoggedTransaction};
use punctual_federation::ids::{RequestId, Revision, SessionId};
use punctual_federation::message::{
    BATCH_FOUND_BYTES_MAX, ClientCommand, FOUND_BYTES_MAX, Operation, Output, RESERVED, Request, VALUE_BYTES_MAX, Work,
};
use punctual_federation::replica::Replica;
use punctual_federation::terms::Millis;
use punctual_node::sensing::Temporal;
use punctual_server::commands::events;
use punctual_store::temporal::Creation;
use punctual_store::{Store, StoreOptions};
use punctual_testing::VirtualOs;
use punctual_units::{Nanos, ObjectName};

struct Node {
    replica: Replica<Memory, VirtualOs>,
    clock: Arc<AtomicU64>,
}

impl Node {
    fn new() -> Node {
        let options = StoreOptions {
            replicated: true,
            created_max: 2,
            ..StoreOptions::default()
        };
        let store = Store::open(Memory::default(), VirtualOs::new(1), options).unwrap();
        let clock = Arc::new(AtomicU64::new(1000));
        let shown = Arc::clone(&clock);
        let replica = Replica::new(store, Nanos::from_secs(1));
        let replica = replica.with_clock(move || shown.load(Ordering::SeqCst)).unwrap();
        Node { replica, clock }
    }

    fn look(&self, words: &str) -> String {
        let (_, mut found) = self.replica.look(&command(words, false)).unwrap();
        String::from_utf8(found.remove(0).unwrap()).unwrap()
    }
}

fn command(words: &str, writes: bool) -> ClientCommand {
    ClientCommand {
        words: words.split(' ').map(|word| word.as_bytes().to_vec()).collect(),
        items: 1,
        writes,
        version: 2,
    }
}

/// The first one is the master.
struct Pair {
    nodes: [Node; 2],
    revision: Revision,
    number: u64,
    /// Events of all transactions so far.
    events: Vec<KeyEvent>,
}

impl Pair {
    fn new() -> Pair {
        let mut pair = Pair {
            nodes: [Node::new(), Node::new()],
            revision: Revision::ZERO,
            number: 0,
            events: Vec::new(),
        };
        assert!(matches!(pair.perform(Work::Open), Some(Output::Session(SessionId(1)))));
        pair
    }

    /// The transaction that comes so many behind the last one.
    fn request_of(&self, behind: u64, operations: Vec<Operation>) -> Request {
        Request {
            id: RequestId {
                session: SessionId(1),
                number: self.number + behind,
            },
            work: Work::Transaction(operations),
            time_left: Nanos::from_secs(1),
            seen: Revision::ZERO,
        }
    }

    fn perform(&mut self, work: Work) -> Option<Output> {
        self.number += 1;
        let request = Request {
            id: RequestId {
                session: SessionId(1),
                number: self.number,
            },
            work,
            time_left: Nanos::from_secs(1),
            seen: Revision::ZERO,
        };
        let next = self.revision.next();
        let id = request.id;
        let mut performed = self.nodes[0].replica.execute(next, &[request]).unwrap();
        let Execution::Done { output, set, events } = performed.remove(0) else {
            return None;
        };
        let events = LoggedTransaction {
            id,
            set: set.clone(),
            events,
        };
        self.events.extend(events.events().iter().cloned());
        if !set.changes.is_empty() {
            self.revision = next;
            for node in &self.nodes {
                node.replica.apply_sets(next, std::slice::from_ref(&set)).unwrap();
            }
        }
        Some(output)
    }

    fn say(&mut self, words: &str) -> String {
        let work = Work::Transaction(vec![Operation::Run(command(words, true))]);
        let Some(Output::Values(mut values)) = self.perform(work) else {
            panic!("{words}")
        };
        String::from_utf8(values.remove(0).unwrap()).unwrap()
    }

    fn set(&self, node: usize, clock: Millis) {
        self.nodes[node].clock.store(clock, Ordering::SeqCst);
    }

    fn agree(&self) {
        let [one, other] = self.nodes.each_ref().map(|node| node.replica.image().unwrap());
        assert_eq!(one.records, other.records);
    }

    /// The events since the last call, by name.
    fn told(&mut self) -> Vec<String> {
        let told = self.events.drain(..);
        told.map(|event| {
            let name = events::name(event.name).unwrap();
            format!("{name} {}", String::from_utf8_lossy(&event.key))
        })
        .collect()
    }

    /// The latest time that a master has written down.
    fn written(&self) -> Millis {
        let image = self.nodes[0].replica.image().unwrap();
        let clock = image.records.iter().find(|(key, _)| *key == [RESERVED, b'c']);
        clock.map_or(0, |(_, time)| Millis::from_be_bytes(*time.first_chunk().unwrap()))
    }

    /// The records of the federation itself that are about terms.
    fn kept_of_terms(&self) -> usize {
        let image = self.nodes[1].replica.image().unwrap();
        let of_terms = |key: &[u8]| key.starts_with(&[RESERVED, b'd']) || key.starts_with(&[RESERVED, b't']);
        image.records.iter().filter(|(key, _)| of_terms(key)).count()
    }
}

#[test]
fn a_term_is_the_masters_and_no_node_shows_a_record_beyond_it() {
    let mut pair = Pair::new();
    assert_eq!(pair.say("SET k v PX 100"), "+OK\r\n");
    assert_eq!(pair.nodes[1].look("GET k"), "$1\r\nv\r\n");
    assert_eq!(pair.nodes[1].look("PTTL k"), ":100\r\n");
    // Each by its own clock; the transaction by the master's.
    pair.set(1, 1100);
    assert_eq!(pair.nodes[1].look("GET k"), "$-1\r\n");
    assert_eq!(pair.nodes[1].look("KEYS *"), "*0\r\n");
    let seen = pair.nodes[1].replica.query(&[b"k".to_vec()], Nanos::MAX).unwrap();
    assert_eq!(seen.1, [None], "nor does WATCH");
    pair.set(0, 1099);
    assert_eq!(pair.say("APPEND k w"), ":2\r\n");
    assert!(!pair.nodes[0].replica.is_due());
    pair.set(0, 1100);
    assert!(pair.nodes[0].replica.is_due());
    let work = Work::Transaction(vec![Operation::Expect(b"k".to_vec(), None)]);
    assert!(pair.perform(work).is_some(), "it is not there any more");
    pair.perform(Work::Sweep);
    assert_eq!((pair.nodes[0].replica.is_due(), pair.kept_of_terms()), (false, 0));
    pair.agree();
    // Hashes and all that keeps or ends a term.
    pair.say("HSET h f 1");
    assert_eq!(pair.say("PEXPIRE h 50"), ":1\r\n");
    assert_eq!(pair.say("HINCRBY h f 2"), ":3\r\n");
    assert_eq!(pair.nodes[0].look("PTTL h"), ":50\r\n");
    assert_eq!(pair.say("PERSIST h"), ":1\r\n");
    assert_eq!(
        (pair.nodes[0].look("PTTL h"), pair.kept_of_terms()),
        (":-1\r\n".into(), 0)
    );
    pair.say("SET s 1 PX 50");
    pair.say("SET s 2");
    assert_eq!(
        (pair.nodes[0].look("PTTL s"), pair.kept_of_terms()),
        (":-1\r\n".into(), 0)
    );
    // What is due is removed by the next transaction of any client that writes.
    pair.say("SET t 1 PX 50");
    pair.set(0, 2000);
    pair.say("SET other 1");
    assert_eq!(pair.kept_of_terms(), 0);
    pair.agree();
}

/// A record that has expired is reported as one by the transaction that removes it, before that one's own events.
#[test]
fn events_have_redis_names() {
    let mut pair = Pair::new();
    for words in [
        "SET k v PX 100",
        "SET l v",
        "HSET h f 1",
        "GET k",
        "EXPIRE h 100",
        "EXPIRE none 1",
    ] {
        pair.say(words);
    }
    let told = ["set k", "expire k", "set l", "hset h", "expire h"];
    assert_eq!(pair.told(), told);
    pair.set(0, 1100);
    pair.say("INCR n");
    assert_eq!(pair.told(), ["expired k", "incrby n"]);
    pair.say("SET k v PX 100");
    pair.set(0, 1200);
    pair.perform(Work::Sweep);
    assert_eq!(pair.told(), ["set k", "expire k", "expired k"]);
    let both = [command("RENAME l m", true), command("DEL m", true)].map(Operation::Run);
    pair.perform(Work::Transaction(both.into()));
    assert_eq!(pair.told(), ["rename_from l", "rename_to m", "del m"]);
    // More expired records than one transaction sweeps: it reports those that it meets itself.
    for (at, key) in "abcdefghijkl".chars().enumerate() {
        pair.say(&format!("SET {key} 1 PX {}", 100 + at));
    }
    pair.told();
    pair.set(0, 1400);
    let met = ["DEL l", "SET k 1", "INCR j"].map(|words| Operation::Run(command(words, true)));
    let met = met.into_iter().chain([Operation::Put(b"i".to_vec(), b"1".to_vec())]);
    let Some(Output::Values(values)) = pair.perform(Work::Transaction(met.collect())) else {
        panic!("not done")
    };
    assert_eq!(values[0].as_deref(), Some(&b":0\r\n"[..]));
    let told = pair.told();
    let (swept, met) = told.split_at(8);
    assert!(swept.iter().all(|event| event.starts_with("expired ")), "{swept:?}");
    let own = [
        "expired l",
        "expired k",
        "set k",
        "expired j",
        "incrby j",
        "expired i",
        "set i",
    ];
    assert_eq!(met, own);
    pair.agree();
}

/// What a batch has read is kept until the log has it.
#[test]
fn the_transactions_of_a_batch_read_no_more_than_its_bound_together() {
    let mut pair = Pair::new();
    let value = "v".repeat(VALUE_BYTES_MAX - 100);
    assert_eq!(pair.say(&format!("SET k {value}")), "+OK\r\n");
    let most = FOUND_BYTES_MAX / value.len();
    let requests: Vec<Request> = (0..8)
        .map(|at| pair.request_of(at + 1, vec![Operation::Get(b"k".to_vec()); most]))
        .collect();
    let mut left = &requests[..];
    let mut batches = 0;
    while !left.is_empty() {
        let performed = pair.nodes[0].replica.execute(pair.revision.next(), left).unwrap();
        let done = performed
            .iter()
            .take_while(|performed| matches!(performed, Execution::Done { .. }))
            .count();
        let bytes = |performed: &Execution| match performed {
            Execution::Done { output, .. } => output.bytes(),
            _ => 0,
        };
        let found: usize = performed.iter().map(bytes).sum();
        assert!(
            found > FOUND_BYTES_MAX && found <= BATCH_FOUND_BYTES_MAX,
            "{found} bytes are found"
        );
        assert!(
            performed[done..]
                .iter()
                .all(|performed| *performed == Execution::NotRun),
            "the others wait"
        );
        left = &left[done..];
        batches += 1;
    }
    assert_eq!(batches, 4, "two of them fit");
}

#[test]
fn a_clock_that_is_set_back_stands_still() {
    let mut pair = Pair::new();
    pair.set(0, 5000);
    pair.say("SET early 1 PX 10");
    pair.set(0, 5010);
    assert_eq!(pair.nodes[0].look("GET early"), "$-1\r\n");
    pair.set(0, 200);
    assert_eq!(
        pair.nodes[0].look("GET early"),
        "$-1\r\n",
        "what was not shown is not shown again"
    );
    pair.say("SET k v PX 100");
    assert_eq!(pair.nodes[0].look("PTTL k"), ":100\r\n");
    // The slave's clock is far behind, too; it knows the master's time by the log.
    pair.set(1, 0);
    assert_eq!(pair.nodes[1].look("PTTL k"), ":100\r\n");
    pair.set(0, 5109);
    assert_eq!(pair.nodes[0].look("PTTL k"), ":1\r\n");
    pair.set(0, 5110);
    assert_eq!(pair.nodes[0].look("GET k"), "$-1\r\n");
    // A copy of a store has its terms and its time.
    let other = Node::new();
    other.clock.store(0, Ordering::SeqCst);
    pair.say("SET l v PX 100");
    other.replica.install(&pair.nodes[0].replica.image().unwrap()).unwrap();
    assert_eq!(other.look("PTTL l"), ":100\r\n");
}

#[test]
fn a_mistake_is_told_and_no_node_ends() {
    let mut pair = Pair::new();
    for words in ["NONE a", "GET", "EXPIRE k x", "SCAN zz", "INCR", "GETFRESH nothing 5"] {
        let told = pair.nodes[0].look(words);
        assert!(told.starts_with("-ERR"), "{words}: {told}");
        // Within a transaction it is told, or has that undone, whatever a client makes of it.
        for writes in [false, true] {
            let work = Work::Transaction(vec![Operation::Run(command(words, writes))]);
            if let Some(Output::Values(values)) = pair.perform(work) {
                assert!(
                    values[0].as_ref().is_some_and(|told| told.starts_with(b"-ERR")),
                    "{words}"
                );
            }
        }
    }
    // Keys of the federation's own are no client's.
    let long = "k".repeat(600);
    for key in ["\0c", "\0punctual/x", &long] {
        let work = Work::Transaction(vec![Operation::Run(command(&format!("SET {key} 1"), true))]);
        drop(pair.perform(work));
        assert!(
            pair.nodes[0].look(&format!("GET {key}")).starts_with(['$', '-']),
            "{key:?}"
        );
    }
    pair.agree();
    assert_eq!(pair.nodes[1].look("DBSIZE"), ":0\r\n");
    assert_eq!(pair.nodes[1].look("SCAN 0"), "*2\r\n$1\r\n0\r\n*0\r\n");
}

/// What clients do; numbers choose among four keys.
#[derive(Clone, Debug)]
enum Deed {
    Set(u8),
    SetFor(u8, u64),
    Expire(u8, u64),
    Persist(u8),
    Append(u8),
    Delete(u8),
    /// A transaction that only reads.
    Read(u8),
    Sweep,
    /// The slave is the master from now on.
    Takeover,
    /// The clock of a node goes on, or is set back.
    Clock(usize, u64),
}

fn deed() -> impl Strategy<Value = Deed> {
    let key = || 0..4_u8;
    prop_oneof![
        2 => key().prop_map(Deed::Set),
        4 => (key(), 1..40_u64).prop_map(|(key, ms)| Deed::SetFor(key, ms)),
        2 => (key(), 0..40_u64).prop_map(|(key, ms)| Deed::Expire(key, ms)),
        1 => key().prop_map(Deed::Persist),
        2 => key().prop_map(Deed::Append),
        1 => key().prop_map(Deed::Delete),
        2 => key().prop_map(Deed::Read),
        1 => Just(Deed::Sweep),
        1 => Just(Deed::Takeover),
        4 => (0..2_usize, 1000..1100_u64).prop_map(|(node, clock)| Deed::Clock(node, clock)),
    ]
}

proptest! {
    #[test]
    fn terms_are_those_of_a_model(deeds in prop::collection::vec(deed(), 0..60)) {
        let mut pair = Pair::new();
        // Each key's value, and when it ends; the latest time of each node.
        let mut model: BTreeMap<u8, (String, Option<Millis>)> = BTreeMap::new();
        let mut times = [1000; 2];
        for deed in deeds {
            let now = times[0].max(pair.written());
            // Each transaction that writes removes what is due by the master's clock; a clock alone removes nothing.
            if !matches!(deed, Deed::Clock(..) | Deed::Takeover | Deed::Read(_)) {
                model.retain(|_, (_, end)| end.is_none_or(|end| end > now));
            }
            match deed {
                Deed::Clock(node, clock) => {
                    pair.set(node, clock);
                    // It is seen by what asks next.
                    pair.nodes[node].look("GET 0");
                    times[node] = times[node].max(clock);
                }
                Deed::Set(key) => {
                    pair.say(&format!("SET {key} v"));
                    model.insert(key, ("v".into(), None));
                }
                Deed::SetFor(key, ms) => {
                    pair.say(&format!("SET {key} v PX {ms}"));
                    model.insert(key, ("v".into(), Some(now + ms)));
                }
                Deed::Expire(key, ms) => {
                    let told = pair.say(&format!("PEXPIRE {key} {ms}"));
                    let found = model.get_mut(&key);
                    prop_assert_eq!(told, format!(":{}\r\n", u8::from(found.is_some())));
                    if let Some((_, end)) = found {
                        *end = Some(now + ms);
                    }
                }
                Deed::Persist(key) => {
                    let told = pair.say(&format!("PERSIST {key}"));
                    let end = model.get_mut(&key).and_then(|(_, end)| end.take());
                    prop_assert_eq!(told, format!(":{}\r\n", u8::from(end.is_some())));
                }
                Deed::Append(key) => {
                    let (value, _) = model.entry(key).or_default();
                    value.push('w');
                    prop_assert_eq!(pair.say(&format!("APPEND {key} w")), format!(":{}\r\n", value.len()));
                }
                Deed::Delete(key) => {
                    let was = u8::from(model.remove(&key).is_some());
                    prop_assert_eq!(pair.say(&format!("DEL {key}")), format!(":{was}\r\n"));
                }
                Deed::Read(key) => {
                    let work = Work::Transaction(vec![Operation::Run(command(&format!("GET {key}"), false))]);
                    prop_assert!(pair.perform(work).is_some());
                }
                Deed::Sweep => drop(pair.perform(Work::Sweep)),
                Deed::Takeover => {
                    pair.nodes.swap(0, 1);
                    times.swap(0, 1);
                    continue;
                }
            }
            pair.agree();
            let now = times[0].max(pair.written());
            for key in 0..4_u8 {
                let held = model.get(&key).filter(|(_, end)| end.is_none_or(|end| end > now));
                let expected = held.map_or("$-1\r\n".into(), |(value, _)| format!("${}\r\n{value}\r\n", value.len()));
                prop_assert_eq!(pair.nodes[0].look(&format!("GET {key}")), expected);
                // A slave may show it longer or shorter, by what its clock differs; never beyond the end by its own.
                let shown = pair.nodes[1].look(&format!("GET {key}")) != "$-1\r\n";
                if let Some((_, Some(end))) = model.get(&key) && *end <= times[1] {
                    prop_assert!(!shown);
                }
            }
        }
        // In the end nothing is left of terms.
        pair.set(0, 5000);
        pair.perform(Work::Sweep);
        prop_assert_eq!(pair.kept_of_terms(), 0);
    }
}

/// No transaction may remove an object. The term that it has of a record which was there before is forgotten by the
/// next sweep, and writes go on.
#[test]
fn the_term_of_an_object_is_forgotten() {
    let mut pair = Pair::new();
    assert_eq!(pair.say("SET pose 1 PX 100"), "+OK\r\n");
    pair.set(0, 2000);
    let made = ObjectName {
        source: 0,
        boot: 1,
        sequence: 1,
    };
    let spec = Temporal::default().spec(b"pose");
    let create = Operation::Create(Creation { made, spec });
    assert!(pair.perform(Work::Transaction(vec![create])).is_some());
    assert!(pair.perform(Work::Sweep).is_some());
    assert_eq!(pair.nodes[0].replica.next_due(), Millis::MAX);
    assert_eq!(pair.say("SET k 1 PX 100"), "+OK\r\n");
    pair.set(0, 4000);
    assert_eq!(pair.say("SET k 2"), "+OK\r\n");
    pair.agree();
}
