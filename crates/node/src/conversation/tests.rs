use std::sync::Arc;

use proptest::prelude::*;
use punctual_federation::ids::NodeId;
use punctual_federation::message::{Position, Reason};
use punctual_server::resp::Bounds;
use punctual_server::resp::reply::ReplyParser;
use punctual_server::users::{Hashed, User, Users};

use super::*;

const NOW: Time = Time(5_000_000_000);

/// A client, and what it was told.
struct Table {
    conversation: Conversation,
    out: Vec<u8>,
}

impl Table {
    fn new() -> Table {
        Table {
            conversation: Conversation::new(Login::default(), u64::MAX - 1, 7),
            out: Vec::new(),
        }
    }

    fn say(&mut self, words: &str) -> Step {
        let words = Words::of(words.split(' '));
        self.conversation.take(&words, NOW, NOW, &mut self.out)
    }

    /// What is asked of the node.
    fn asks(&mut self, words: &str) -> Request {
        match self.say(words) {
            Step::Ask(request) => request,
            other => panic!("{words}: {other:?}, {:?}", self.told()),
        }
    }

    fn answer(&mut self, answer: Answer) -> Step {
        self.conversation.answered(answer, NOW, &mut self.out)
    }

    fn told(&mut self) -> Vec<Value> {
        let mut parser = ReplyParser::default();
        parser.feed(&std::mem::take(&mut self.out));
        std::iter::from_fn(|| parser.next(&Bounds::ADMITTED).expect("RESP")).collect()
    }

    /// With a session that is open.
    fn with_session() -> Table {
        let mut table = Table::new();
        assert_eq!(table.say("SESSION 3 10 4"), Step::Answered);
        table.told();
        table
    }
}

fn done(output: Output) -> Answer {
    Answer::Done {
        output,
        position: Position::default(),
        revision: Revision(9),
    }
}

fn values(values: &[Option<&str>]) -> Answer {
    let values = values.iter().map(|value| value.map(|value| value.as_bytes().to_vec()));
    done(Output::Values(values.collect()))
}

#[test]
fn the_first_transaction_opens_a_session_and_goes_on_with_what_time_is_left() {
    let mut table = Table::new();
    let opening = table.asks("DEADLINE 300 SET light on");
    assert_eq!(
        (&opening.work, opening.time_left),
        (&Work::Open, Nanos::from_millis(300))
    );
    let next = table.conversation.answered(
        done(Output::Session(SessionId(12))),
        NOW + Nanos::from_millis(100),
        &mut table.out,
    );
    let Step::Ask(request) = next else { panic!("{next:?}") };
    assert_eq!(request.id.to_string(), "12.1");
    assert_eq!(request.time_left, Nanos::from_millis(200));
    assert_eq!(
        request.work,
        Work::Transaction(vec![Operation::Put(b"light".into(), b"on".into())])
    );
    assert_eq!(table.answer(values(&[])), Step::Answered);
    assert_eq!(table.told(), [Value::ok()]);
    assert_eq!(table.asks("INCR n").id.to_string(), "12.2");
}

#[test]
fn a_query_needs_no_session_and_sees_what_the_client_has_seen() {
    let mut table = Table::with_session();
    let request = table.asks("MGET a b");
    assert!(matches!(request.work, Work::Query { latest: false, .. }), "{request:?}");
    assert_eq!((request.id.session, request.seen), (SessionId(0), Revision(4)));
    table.answer(values(&[Some("1"), None]));
    assert_eq!(table.told(), [Value::Array(vec![Value::bulk("1"), Value::Null])]);
    assert_ne!(table.asks("GET a").id, request.id, "no two queries of a node are alike");
}

#[test]
fn queries_of_two_starts_of_a_node_have_no_name_in_common() {
    let name = |first| {
        let words = Words::of(["GET", "a"]);
        match Conversation::new(Login::default(), first, 3).take(&words, NOW, NOW, &mut Vec::new()) {
            Step::Ask(request) => request.id,
            other => panic!("{other:?}"),
        }
    };
    assert_ne!(name(0x1234_5678_9abc_def0), name(0xfedc_ba98_7654_3210));
}

/// A client that counts what had a number is at the node's count, whatever it was told.
#[test]
fn what_had_a_number_says_so() {
    let mut table = Table::with_session();
    let mut counted = 10;
    let refused = || Answer::Refused(Refusal::NoInteger { key: b"n".into() });
    for words in ["INCR n", "INCRBY n x", "GET", "INCR n", "ZADD a", "GET n"] {
        if let Step::Ask(_) = table.say(words) {
            table.answer(refused());
        }
        let told = table.told().remove(0);
        let Value::Error(text) = told else {
            panic!("{words}: {told:?}")
        };
        counted += u64::from(text.starts_with("REFUSED"));
        assert_eq!(table.conversation.session.numbers(), counted, "{words}: {text}");
    }
    assert_eq!(counted, 12);
}

#[test]
fn numbers_of_a_session_that_were_never_told_are_refused() {
    let most = i64::MAX as u64;
    for words in [
        format!("SESSION 1 {} 0", u64::MAX),
        format!("SESSION 1 0 {}", most + 1),
        format!("SESSION {} 0 0", most + 1),
    ] {
        let mut table = Table::new();
        assert_eq!(table.say(&words), Step::Answered);
        assert!(
            matches!(table.told().remove(0), Value::Error(text) if text.contains("three numbers")),
            "{words}"
        );
    }
    let mut table = Table::new();
    table.say(&format!("SESSION 1 {most} {most}"));
    table.told();
    assert_eq!(table.asks("INCR n").id.number, most + 1);
}

#[test]
fn each_command_of_exec_has_its_reply() {
    let mut table = Table::with_session();
    table.say("MULTI");
    for command in ["SET a 1", "GET a", "DEL a b", "APPEND c xy", "DECRBY d 3", "MGET a c"] {
        assert_eq!(table.say(command), Step::Answered);
    }
    table.told();
    let request = table.asks("EXEC");
    assert_eq!(request.id.to_string(), "3.11");
    table.answer(values(&[
        Some("1"),
        Some("1"),
        None,
        Some("xy"),
        Some("-3"),
        None,
        Some("xy"),
    ]));
    let replies = Value::Array(vec![
        Value::ok(),
        Value::bulk("1"),
        Value::Integer(1),
        Value::Integer(2),
        Value::Integer(-3),
        Value::Array(vec![Value::Null, Value::bulk("xy")]),
    ]);
    assert_eq!(table.told(), [replies]);
}

#[test]
fn late_unknown_and_refused_are_told_in_words_that_clients_read() {
    let mut table = Table::with_session();
    let mut told = |answer| {
        table.asks("INCR n");
        table.answer(answer);
        table.told().remove(0)
    };
    let late = Answer::Late {
        reason: Reason::NoMaster,
        retry_after: Nanos(19_000_001),
        node: Some(NodeId(2)),
    };
    let error = |text: &str| Value::Error(text.into());
    assert_eq!(told(late), error("LATE reason=no-master retry-after-ms=20 node=2"));
    assert_eq!(told(Answer::Unknown), error("UNKNOWN 3.12"));
    let refused = Answer::Refused(Refusal::NoInteger { key: b"n".into() });
    assert!(
        matches!(told(refused), Value::Error(text) if text.starts_with("REFUSED 3.13 record n is no whole number"))
    );
    table.asks("OUTCOME 3.12");
    table.answer(done(Output::Fate(Fate::Committed(Revision(8)))));
    assert_eq!(table.told(), [Value::Simple("committed 8".into())]);
}

#[test]
fn a_session_that_was_forgotten_is_followed_by_another() {
    let mut table = Table::with_session();
    table.asks("INCR n");
    let session = SessionId(3);
    table.answer(Answer::Refused(Refusal::NoSession { session }));
    assert!(matches!(table.told().remove(0), Value::Error(_)));
    assert_eq!(table.asks("INCR n").work, Work::Open);
}

#[test]
fn readings_are_of_a_nodes_memory() {
    let mut table = Table::with_session();
    let set = |ms, value: &[u8]| {
        Work::Sample(Sample {
            key: b"pose".to_vec(),
            value: value.to_vec(),
            age: Nanos::from_millis(ms),
            since: None,
        })
    };
    assert_eq!(table.asks("TSET pose 1").work, set(0, b"1"));
    table.answer(done(Output::Sampled(true)));
    let asked = table.asks("DEADLINE 70 tset pose 2 age 5");
    assert_eq!((asked.work, asked.time_left), (set(5, b"2"), Nanos::from_millis(70)));
    table.answer(done(Output::Sampled(false)));
    assert_eq!(table.told(), [Value::ok(), Value::Null]);
    let reading = |age_ms| done(Output::Reading(Some((Nanos::from_millis(age_ms), b"2".to_vec()))));
    for (answer, expected) in [
        (reading(20), Value::Array(vec![Value::bulk("2"), Value::Integer(20)])),
        (reading(21), Value::Error("STALE age-ms=21".into())),
        (
            done(Output::Reading(Some((Nanos::MAX, Vec::new())))),
            Value::Error("STALE age-ms=unknown".into()),
        ),
        (done(Output::Reading(None)), Value::NullArray),
    ] {
        assert_eq!(table.asks("GETFRESH pose 20").work, Work::Fresh(b"pose".to_vec()));
        table.answer(answer);
        assert_eq!(table.told(), [expected]);
    }
    for wrong in [
        "TSET pose",
        "TSET pose 1 AGE",
        "TSET pose 1 OLD 5",
        "GETFRESH pose",
        "GETFRESH pose -1",
    ] {
        assert_eq!(table.say(wrong), Step::Answered);
        assert!(
            matches!(&table.told()[0], Value::Error(text) if text.starts_with("ERR")),
            "{wrong}"
        );
    }
    // Within a transaction the state machine reads it, and none is set.
    table.say("MULTI");
    table.say("GETFRESH pose 20");
    let request = table.asks("EXEC");
    let read = Operation::Fresh(b"pose".to_vec(), Nanos::from_millis(20));
    assert_eq!(request.work, Work::Transaction(vec![read]));
    table.answer(Answer::Unknown);
    table.say("MULTI");
    table.told();
    table.say("TSET pose 1");
    assert!(matches!(&table.told()[0], Value::Error(text) if text.contains("outside of MULTI")));
}

#[test]
fn a_browser_is_sent_away() {
    for line in ["POST / HTTP/1.1", "Host: 127.0.0.1"] {
        assert_eq!(Table::with_session().say(line), Step::Close);
    }
}

#[test]
fn what_is_wrong_within_multi_ends_it() {
    let mut table = Table::with_session();
    table.say("MULTI");
    table.say("SET a");
    table.say("EXEC");
    let told = table.told();
    assert!(
        matches!(&told[2], Value::Error(text) if text.starts_with("EXECABORT")),
        "{told:?}"
    );
    assert!(matches!(table.say("GET a"), Step::Ask(_)), "nothing is queued any more");
}

proptest! {
    /// Whatever comes, each request is answered at once, asks the node one thing, or ends the connection.
    #[test]
    fn any_words_are_answered_or_asked(
        requests in prop::collection::vec(
            prop::collection::vec("[A-Z]{0,9}|[0-9.]{1,22}|MULTI|EXEC|SET|INCRBY", 1..5),
            1..30,
        ),
    ) {
        let mut table = Table::with_session();
        for words in requests {
            let before = table.told().len();
            prop_assert_eq!(before, 0);
            match table.say(&words.join(" ")) {
                Step::Answered | Step::Close => prop_assert_eq!(table.told().len(), 1),
                Step::Info(_) | Step::Whereabouts(_) => prop_assert_eq!(table.told().len(), 0),
                Step::Check(_) => prop_assert!(false, "there are no users"),
                Step::Ask(_) => {
                    prop_assert!(table.told().is_empty() && table.conversation.is_waiting());
                    while let Step::Ask(_) = table.answer(Answer::Unknown) {}
                    prop_assert_eq!(table.told().len(), 1);
                }
            }
            prop_assert!(!table.conversation.is_waiting());
        }
    }
}

/// A client of a node with one user, which may read and write below `arm/`.
fn stranger() -> Table {
    let robot = User {
        name: "robot".into(),
        password: Hashed::of(b"secret", [1; 16], 1),
        rights: vec![Right::Read, Right::Write],
        prefixes: vec![b"arm/".to_vec()],
    };
    let login = Login::new(Arc::new(Users::new(vec![robot], [2; 16])));
    Table {
        conversation: Conversation::new(login, 0, 7),
        out: Vec::new(),
    }
}

fn only_error(table: &mut Table) -> String {
    match table.told().as_slice() {
        [Value::Error(error)] => error.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stranger_may_say_nothing_but_which_user_it_is() {
    for words in [
        "GET arm/1",
        "SESSION",
        "OUTCOME 1.1",
        "INFO",
        "PING",
        "MULTI",
        "ZADD a 1 b",
        "DEADLINE 5 GET arm/1",
    ] {
        let mut table = stranger();
        assert_eq!(table.say(words), Step::Answered, "{words}");
        assert!(only_error(&mut table).starts_with("NOAUTH"), "{words}");
    }
    let mut table = stranger();
    assert_eq!(table.say("HELLO 3"), Step::Answered);
    assert!(only_error(&mut table).starts_with("NOAUTH"));
    assert_eq!(table.conversation.version(), Version::Two, "a stranger changes nothing");
    assert_eq!(table.say("QUIT"), Step::Close);
}

#[test]
fn a_user_may_do_what_its_rights_say() {
    let mut table = stranger();
    let Step::Check(claimed) = table.say("HELLO 3 AUTH robot secret") else {
        panic!("a password is to be checked");
    };
    assert!(table.conversation.is_waiting() && claimed.user == Some(0) && claimed.password == b"secret");
    table.conversation.judged(None, &mut table.out);
    assert!(only_error(&mut table).starts_with("WRONGPASS"));
    assert!(matches!(table.say("AUTH robot secret"), Step::Check(_)));
    table.conversation.judged(Some(0), &mut table.out);
    assert_eq!(table.told(), [Value::ok()]);
    for words in [
        "GET leg/1",
        "MSET arm/1 a leg/1 b",
        "DEL leg/1",
        "INFO",
        "MGET arm/1 leg/1",
    ] {
        assert_eq!(table.say(words), Step::Answered, "{words}");
        assert!(only_error(&mut table).starts_with("NOPERM"), "{words}");
    }
    assert!(matches!(table.say("GET arm/1"), Step::Ask(_)));
    // It waits for the node, and the result of no check is for it.
    table.conversation.judged(None, &mut table.out);
    assert!(table.conversation.is_waiting() && table.told().is_empty());
}

#[test]
fn a_page_in_a_browser_writes_nothing() {
    for words in ["POST / HTTP/1.1", "host: here"] {
        assert_eq!(Table::new().say(words), Step::Close, "{words}");
    }
}
