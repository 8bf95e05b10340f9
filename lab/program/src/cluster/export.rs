//! Export of a simulated history for external checkers.
//!
//! `list-append` is the format of Elle (K. Kingsbury and P. Alvaro, "Elle: Inferring Isolation Anomalies from
//! Experimental Observations", VLDB 2020): operations in EDN, each an invocation and a completion, over lists that are
//! appended to. `requests` has a JSON object a line for each request with all of its operations; `.ci/linearizable`
//! feeds it to porcupine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use punctual_cluster_sim::history::{Deed, History, is_sensor};
use punctual_federation::entry::{Body, LoggedTransaction};
use punctual_federation::ids::RequestId;
use punctual_federation::message::{Answer, Operation, Output, Refusal, Work};
use punctual_units::{Nanos, Time};
use serde_json::{Value, json};

/// Bytes of a list item; appends add whole items.
const ITEM: usize = 8;

/// End of a request, as far as a checker may know it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ending {
    /// Executed; with the values that its reads returned.
    Done(Time, Vec<Option<Vec<u8>>>),
    /// Executed up to an expectation that failed, then rolled back.
    Undone(Time),
    /// Not executed, and never will be.
    Not(Time),
    /// Possibly executed, now or later.
    Unknown,
}

/// Request of a client, which may have sent it several times under the same id.
struct ClientRequest<'d> {
    id: RequestId,
    client: u32,
    invoked: Time,
    work: &'d Work,
    ending: Ending,
}

fn ending(deed: &Deed) -> Ending {
    match &deed.returned {
        None => Ending::Unknown,
        Some((at, answer)) => match answer {
            Answer::Done {
                output: Output::Values(values),
                ..
            } => Ending::Done(*at, values.clone()),
            Answer::Done { .. } => Ending::Done(*at, Vec::new()),
            Answer::Refused(Refusal::Unexpected { .. }) => Ending::Undone(*at),
            Answer::Late { .. } | Answer::Refused(_) => Ending::Not(*at),
            Answer::Unknown => Ending::Unknown,
        },
    }
}

/// Transactions and queries, in the order of their first sending. Repetitions under the same id count as one request,
/// because that is executed at most once.
fn asked(deeds: &[Deed]) -> Vec<ClientRequest<'_>> {
    let mut all: Vec<ClientRequest<'_>> = Vec::new();
    let mut named: BTreeMap<RequestId, usize> = BTreeMap::new();
    for deed in deeds {
        let work = &deed.request.work;
        if !matches!(work, Work::Transaction(_) | Work::Query { .. }) {
            continue;
        }
        let ending = ending(deed);
        let id = deed.request.id;
        let before = (id.session.0 != 0 && matches!(work, Work::Transaction(_)))
            .then(|| named.insert(id, all.len()))
            .flatten();
        match before {
            Some(at) => {
                named.insert(id, at);
                all[at].ending = together(std::mem::replace(&mut all[at].ending, Ending::Unknown), ending);
            }
            None => all.push(ClientRequest {
                id,
                client: deed.client,
                invoked: deed.invoked,
                work,
                ending,
            }),
        }
    }
    all
}

/// Combines the endings of two tries of one request: if either was executed, the request was; a refusal of one try says
/// nothing about the other.
fn together(one: Ending, other: Ending) -> Ending {
    use Ending::{Done, Not, Undone, Unknown};
    match (one, other) {
        (done @ (Done(..) | Undone(_)), _) | (_, done @ (Done(..) | Undone(_))) => done,
        (Unknown, _) | (_, Unknown) => Unknown,
        (Not(one), Not(other)) => Not(one.max(other)),
    }
}

/// Operations of a request; those of a query are reads.
fn operations(work: &Work) -> Vec<Operation> {
    let read = |key: &Vec<u8>, max_age: Nanos| match is_sensor(key) {
        true => Operation::Fresh(key.clone(), max_age),
        false => Operation::Get(key.clone()),
    };
    match work {
        Work::Transaction(operations) => operations.clone(),
        Work::Query { keys, max_age, .. } => keys.iter().map(|key| read(key, *max_age)).collect(),
        _ => Vec::new(), // reads no record
    }
}

/// Requests in the log. A checker needs this to decide requests without an answer: otherwise it would have to try too
/// many orders of possible executions.
fn logged(history: &History) -> BTreeMap<RequestId, &LoggedTransaction> {
    let batches = history.log.iter().filter_map(|entry| match &entry.body {
        Body::Batch(transactions) => Some(transactions),
        _ => None,
    });
    let transactions = batches.flatten();
    transactions.map(|logged| (logged.id, logged)).collect()
}

/// JSON object for each request, a line each; the last line ends the history of `seed`.
pub fn requests(history: &History, seed: u64) -> String {
    let logged = logged(history);
    let mut text = String::new();
    for asked in asked(&history.deeds) {
        let kind = match asked.work {
            Work::Query { latest: true, .. } => "latest",
            Work::Query { latest: false, .. } => "query",
            _ => "transaction",
        };
        let committed = logged.get(&asked.id).copied();
        let operations = operations(asked.work);
        // A saved reading is known only from the log. So if a transaction with such a save was undone, the values that
        // its expectations were compared with are unknown; it changed nothing.
        let is_told = committed.is_some() || !operations.iter().any(|it| matches!(it, Operation::Save { .. }));
        let (outcome, returned, mut seen) = match &asked.ending {
            Ending::Done(at, values) => ("answer", Some(at.0), values.iter()),
            Ending::Undone(at) if is_told => ("undone", Some(at.0), [].iter()),
            Ending::Undone(at) => ("refused", Some(at.0), [].iter()),
            Ending::Not(at) => ("refused", Some(at.0), [].iter()),
            Ending::Unknown => ("unknown", None, [].iter()),
        };
        let operations: Vec<Value> = operations
            .iter()
            .filter_map(|operation| described(operation, &mut seen, committed))
            .collect();
        let line = json!({
            "client": asked.client,
            "kind": kind,
            "outcome": outcome,
            "invoked_ns": asked.invoked.0,
            "returned_ns": returned,
            "in_log": (asked.id.session.0 != 0).then_some(committed.is_some()),
            "operations": operations,
        });
        let _ = writeln!(text, "{line}");
    }
    let _ = writeln!(text, "{}", json!({ "history": seed }));
    text
}

/// An operation on records; `None` for one that reads temporal objects, which are outside of the log's order. Saving a
/// reading to a record counts as a put of the value that the log has for it.
fn described(
    operation: &Operation,
    seen: &mut std::slice::Iter<'_, Option<Vec<u8>>>,
    committed: Option<&LoggedTransaction>,
) -> Option<Value> {
    Some(match operation {
        Operation::Get(key) => {
            let seen = seen.next().and_then(|value| value.as_deref().map(hex));
            json!({"op": "get", "key": hex(key), "seen": seen})
        }
        Operation::Put(key, value) => json!({"op": "put", "key": hex(key), "value": hex(value)}),
        Operation::Append(key, value) => json!({"op": "append", "key": hex(key), "value": hex(value)}),
        Operation::Delete(key) => json!({"op": "delete", "key": hex(key)}),
        Operation::Add(key, _) => {
            seen.next();
            let sum = committed?.set.changes.get(key)?.as_deref()?;
            json!({"op": "put", "key": hex(key), "value": hex(sum)})
        }
        Operation::Expect(key, value) => {
            json!({"op": "expect", "key": hex(key), "value": value.as_deref().map(hex)})
        }
        Operation::Fresh(..) => {
            seen.next();
            return None;
        }
        Operation::Save { object, record, .. } => {
            let read = committed?.set.read.iter().find(|read| read.key == *object)?;
            json!({"op": "put", "key": hex(record), "value": hex(read.value.as_deref()?)})
        }
        Operation::Create(_) | Operation::Run(_) => return None,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// History of the lists, in the format of Elle. Leaves out records that are not lists.
pub fn list_append(deeds: &[Deed]) -> String {
    let all = asked(deeds);
    let lists = lists(&all);
    // An operation without a known end occupies its process until the end of the history: its client continues as
    // another process.
    let clients = all.iter().map(|asked| asked.client + 1).max().unwrap_or(0);
    let mut process: BTreeMap<u32, u32> = BTreeMap::new();
    let mut events: Vec<(Time, String)> = Vec::new();
    for asked in &all {
        let steps: Vec<Operation> = operations(asked.work)
            .into_iter()
            .filter(|operation| lists.contains(operation.key()))
            .collect();
        if steps.is_empty() || !steps.iter().all(is_list_step) {
            continue;
        }
        let number = process.entry(asked.client).or_insert(asked.client);
        let event = |kind: &str, at: Time, seen: Option<&[Option<Vec<u8>>]>| {
            let value = micro_operations(asked.work, &lists, seen);
            let text = format!(
                ":type :{kind} :f :txn :process {number} :time {} :value [{value}]",
                at.0
            );
            (at, text)
        };
        events.push(event("invoke", asked.invoked, None));
        match &asked.ending {
            Ending::Done(at, seen) => events.push(event("ok", *at, Some(seen))),
            Ending::Undone(at) | Ending::Not(at) => events.push(event("fail", *at, None)),
            Ending::Unknown => {
                let last = all.iter().map(|asked| asked.invoked).max().unwrap_or(asked.invoked);
                events.push(event("info", last, None));
                *number += clients;
            }
        }
    }
    events.sort_by_key(|(at, _)| *at); // stable: an invocation stays before its completion
    let mut text = String::new();
    for (index, (_, event)) in events.iter().enumerate() {
        let _ = writeln!(text, "{{:index {index} {event}}}");
    }
    text
}

/// Keys that are appended to and never set.
fn lists(all: &[ClientRequest<'_>]) -> BTreeSet<Vec<u8>> {
    let operations: Vec<Operation> = all.iter().flat_map(|asked| operations(asked.work)).collect();
    let keys_of = |which: fn(&Operation) -> bool| {
        let found = operations.iter().filter(move |operation| which(operation));
        found.map(|operation| operation.key().clone()).collect::<BTreeSet<_>>()
    };
    let appended = keys_of(|operation| matches!(operation, Operation::Append(_, value) if value.len() == ITEM));
    let other = keys_of(|operation| match operation {
        Operation::Append(_, value) => value.len() != ITEM,
        Operation::Put(..) | Operation::Delete(_) | Operation::Add(..) | Operation::Save { .. } => true,
        // No client here sends commands.
        Operation::Get(_) | Operation::Expect(..) | Operation::Fresh(..) | Operation::Create(_) | Operation::Run(_) => {
            false
        }
    });
    appended.difference(&other).cloned().collect()
}

fn is_list_step(operation: &Operation) -> bool {
    matches!(operation, Operation::Get(_) | Operation::Append(..))
}

fn micro_operations(work: &Work, lists: &BTreeSet<Vec<u8>>, seen: Option<&[Option<Vec<u8>>]>) -> String {
    let mut seen = seen.map(|values| values.iter());
    let mut steps = Vec::new();
    for operation in operations(work) {
        let value = match (&operation, &mut seen) {
            (Operation::Get(_) | Operation::Add(..) | Operation::Fresh(..), Some(values)) => {
                Some(values.next().and_then(Option::as_deref).unwrap_or_default())
            }
            _ => None,
        };
        let key = operation.key();
        if !lists.contains(key) {
            continue;
        }
        steps.push(match &operation {
            Operation::Append(_, item) => format!("[:append {} {}]", name(key), items(item)),
            _ => match value {
                None => format!("[:r {} nil]", name(key)),
                Some(bytes) => format!("[:r {} [{}]]", name(key), items(bytes)),
            },
        });
    }
    steps.join(" ")
}

/// Items of a list, as decimal numbers.
fn items(bytes: &[u8]) -> String {
    let (items, _) = bytes.as_chunks::<ITEM>();
    let numbers: Vec<String> = items.iter().map(|item| u64::from_be_bytes(*item).to_string()).collect();
    numbers.join(" ")
}

/// Key as an EDN string.
fn name(key: &[u8]) -> String {
    format!(
        "\"{}\"",
        String::from_utf8_lossy(key).replace('\\', "\\\\").replace('"', "\\\"")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_federation::ids::{NodeId, Revision, SessionId};
    use punctual_federation::message::{Position, Reason, Request};

    fn deed(client: u32, number: u64, invoked: u64, work: Work, returned: Option<(u64, Answer)>) -> Deed {
        Deed {
            client,
            node: Some(NodeId(0)),
            request: Request {
                id: RequestId {
                    session: SessionId(u64::from(client) + 1),
                    number,
                },
                work,
                time_left: Nanos::from_secs(1),
                seen: Revision::ZERO,
            },
            invoked: Time(invoked),
            returned: returned.map(|(at, answer)| (Time(at), answer)),
        }
    }

    fn done(values: &[Option<&[u8]>]) -> Answer {
        Answer::Done {
            output: Output::Values(values.iter().map(|value| value.map(<[u8]>::to_vec)).collect()),
            position: Position::default(),
            revision: Revision(1),
        }
    }

    fn item(number: u64) -> Vec<u8> {
        number.to_be_bytes().to_vec()
    }

    fn history() -> Vec<Deed> {
        let append = |number| Operation::Append(b"l".to_vec(), item(number));
        let read = || Operation::Get(b"l".to_vec());
        let late = Answer::Late {
            reason: Reason::Backlog,
            retry_after: Nanos::ZERO,
            node: None,
        };
        let query = Work::Query {
            keys: vec![b"l".to_vec()],
            latest: true,
            max_age: Nanos::MAX,
        };
        vec![
            deed(
                0,
                1,
                10,
                Work::Transaction(vec![append(1), read()]),
                Some((40, done(&[Some(&item(1))]))),
            ),
            deed(
                1,
                1,
                20,
                Work::Transaction(vec![append(2)]),
                Some((30, Answer::Unknown)),
            ),
            deed(1, 1, 50, Work::Transaction(vec![append(2)]), Some((60, late.clone()))),
            deed(1, 2, 70, Work::Transaction(vec![append(3)]), Some((80, late))),
            deed(0, 2, 90, query, Some((95, done(&[Some(&[item(1), item(2)].concat())])))),
            deed(
                0,
                3,
                96,
                Work::Transaction(vec![Operation::Put(b"r".to_vec(), b"x".to_vec())]),
                None,
            ),
            deed(0, 4, 97, Work::Open, None),
        ]
    }

    #[test]
    fn lists_are_written_as_elle_reads_them() {
        let expected = r#"{:index 0 :type :invoke :f :txn :process 0 :time 10 :value [[:append "l" 1] [:r "l" nil]]}
{:index 1 :type :invoke :f :txn :process 1 :time 20 :value [[:append "l" 2]]}
{:index 2 :type :ok :f :txn :process 0 :time 40 :value [[:append "l" 1] [:r "l" [1]]]}
{:index 3 :type :invoke :f :txn :process 3 :time 70 :value [[:append "l" 3]]}
{:index 4 :type :fail :f :txn :process 3 :time 80 :value [[:append "l" 3]]}
{:index 5 :type :invoke :f :txn :process 0 :time 90 :value [[:r "l" nil]]}
{:index 6 :type :ok :f :txn :process 0 :time 95 :value [[:r "l" [1 2]]]}
{:index 7 :type :info :f :txn :process 1 :time 96 :value [[:append "l" 2]]}
"#;
        assert_eq!(list_append(&history()), expected);
    }

    #[test]
    fn requests_are_one_object_a_line() {
        let history = History {
            deeds: history(),
            ..History::default()
        };
        let text = requests(&history, 7);
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let outcomes: Vec<_> = lines
            .iter()
            .map(|line| line["outcome"].as_str().unwrap_or("-"))
            .collect();
        assert_eq!(outcomes, ["answer", "unknown", "refused", "answer", "unknown", "-"]);
        assert_eq!(lines[0]["operations"][1]["seen"], hex(&item(1)));
        assert_eq!(
            (&lines[1]["returned_ns"], &lines[1]["in_log"]),
            (&Value::Null, &json!(false))
        );
        assert_eq!((&lines[3]["kind"], &lines[5]["history"]), (&json!("latest"), &json!(7)));
    }

    #[test]
    fn what_is_undone_after_a_reading_was_saved_says_nothing() {
        let expect = || Operation::Expect(b"r".to_vec(), None);
        let save = Operation::Save {
            object: b"sensor".to_vec(),
            max_age: Nanos::MAX,
            record: b"r".to_vec(),
        };
        let unexpected = || Answer::Refused(Refusal::Unexpected { key: b"r".to_vec() });
        let undone = |number, operations| {
            deed(
                0,
                number,
                number,
                Work::Transaction(operations),
                Some((number + 1, unexpected())),
            )
        };
        let history = History {
            deeds: vec![undone(1, vec![expect()]), undone(2, vec![save, expect()])],
            ..History::default()
        };
        let text = requests(&history, 7);
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(
            (&lines[0]["outcome"], &lines[1]["outcome"]),
            (&json!("undone"), &json!("refused"))
        );
    }
}
