use std::sync::Arc;

use proptest::prelude::*;
use punctual_federation::ids::NodeId;
use punctual_federation::message::{Answer, Fate, Output, Position, Reason, Refusal};
use punctual_server::commands::Scope;
use punctual_server::resp::Bounds;
use punctual_server::resp::reply::ReplyParser;
use punctual_server::session;
use punctual_server::users::{PasswordHash, Right, User, Users};

use super::*;

const NOW: Time = Time(5_000_000_000);

/// A client, and what it was told.
struct Table {
    client: Session,
    settings: ServerSettings,
    conversation: Conversation,
    out: Vec<u8>,
}

/// How the event loop goes on with a request: as the session or the conversation says.
#[derive(Debug)]
enum Said {
    Session(session::Next),
    Conversation(Next),
}

impl Said {
    fn is_answered(&self) -> bool {
        matches!(
            self,
            Said::Session(session::Next::Answered) | Said::Conversation(Next::Answered)
        )
    }

    fn is_asked(&self) -> bool {
        matches!(self, Said::Conversation(Next::Ask(_)))
    }

    fn is_closed(&self) -> bool {
        matches!(self, Said::Session(session::Next::Close))
    }
}

impl Table {
    fn of(users: Users, first: u64) -> Table {
        Table {
            client: Session::of(7, Arc::new(users)),
            settings: settings(1),
            conversation: Conversation::new(Arc::default(), first, 7),
            out: Vec::new(),
        }
    }

    fn new() -> Table {
        Table::of(Users::default(), u64::MAX - 1)
    }

    fn say(&mut self, words: &str) -> Said {
        let words = Words::of(words.split(' '));
        match self.client.step(words, NOW, NOW, &self.settings, &mut self.out) {
            session::Next::Call(call) => self.take(Work::Run(vec![call])),
            session::Next::Ask(work) => self.take(work),
            step => Said::Session(step),
        }
    }

    fn take(&mut self, work: Work) -> Said {
        Said::Conversation(self.conversation.take(work, &self.client, NOW, &mut self.out))
    }

    fn is_waiting(&self) -> bool {
        !matches!(self.conversation.stage, Stage::Idle) || self.client.is_claiming()
    }

    /// What is asked of the node.
    fn asks(&mut self, words: &str) -> Request {
        match self.say(words) {
            Said::Conversation(Next::Ask(request)) => request,
            other => panic!("{words}: {other:?}, {:?}", self.told()),
        }
    }

    fn answer(&mut self, answer: Answer) -> Next {
        let mut watched = Vec::new();
        let next = self.conversation.answered(0, answer, &mut watched, NOW, &mut self.out);
        self.client.watch(watched);
        next
    }

    fn told(&mut self) -> Vec<Reply> {
        let mut parser = ReplyParser::default();
        parser.feed(&std::mem::take(&mut self.out));
        std::iter::from_fn(|| parser.next(&Bounds::ADMITTED).expect("RESP")).collect()
    }

    /// With a session that is open.
    fn with_session() -> Table {
        let mut table = Table::new();
        assert!(table.say("SESSION 3 10 4").is_answered());
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

fn command(words: &str, writes: bool) -> ClientCommand {
    let words: Vec<Vec<u8>> = words.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    ClientCommand {
        items: 1,
        words,
        writes,
        version: 2,
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
        (&message::Work::Open, Nanos::from_millis(300))
    );
    let next = table.conversation.answered(
        0,
        done(Output::Session(SessionId(12))),
        &mut Vec::new(),
        NOW + Nanos::from_millis(100),
        &mut table.out,
    );
    let Next::Ask(request) = next else { panic!("{next:?}") };
    assert_eq!(request.id.to_string(), "12.1");
    assert_eq!(request.time_left, Nanos::from_millis(200));
    assert_eq!(
        request.work,
        message::Work::Transaction(vec![Operation::Run(command("SET light on", true))])
    );
    assert_eq!(table.answer(values(&[Some("+OK\r\n")])), Next::Answered);
    assert_eq!(table.told(), [Reply::ok()]);
    assert_eq!(table.asks("INCR n").id.to_string(), "12.2");
}

#[test]
fn a_query_needs_no_session_and_sees_what_the_client_has_seen() {
    let mut table = Table::with_session();
    let request = table.asks("MGET a b");
    let mget = ClientCommand {
        items: 2,
        ..command("MGET a b", false)
    };
    assert_eq!(request.work, message::Work::Look(mget));
    assert_eq!((request.id.session, request.seen), (SessionId(0), Revision(4)));
    table.answer(values(&[Some("*2\r\n$1\r\n1\r\n$-1\r\n")]));
    assert_eq!(table.told(), [Reply::Array(vec![Reply::bulk("1"), Reply::Null])]);
    assert_ne!(table.asks("GET a").id, request.id, "no two queries of a node are alike");
}

#[test]
fn queries_of_two_starts_of_a_node_have_no_name_in_common() {
    let name = |first| Table::of(Users::default(), first).asks("GET a").id;
    assert_ne!(name(0x1234_5678_9abc_def0), name(0xfedc_ba98_7654_3210));
}

/// A client that counts what had a number is at the node's count, whatever it was told.
#[test]
fn what_had_a_number_says_so() {
    let mut table = Table::with_session();
    let mut counted = 10;
    let refused = || Answer::Refused(Refusal::NoInteger { key: b"n".into() });
    for words in ["INCR n", "INCRBY n x", "GET", "INCR n", "ZADD a", "GET n"] {
        if table.say(words).is_asked() {
            table.answer(refused());
        }
        let told = table.told().remove(0);
        let Reply::Error(text) = told else {
            panic!("{words}: {told:?}")
        };
        counted += u64::from(text.starts_with("REFUSED"));
        assert_eq!(table.conversation.session.numbers(), counted, "{words}: {text}");
    }
    assert_eq!(counted, 13);
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
        assert!(table.say(&words).is_answered());
        assert!(
            matches!(table.told().remove(0), Reply::Error(text) if text.contains("three numbers")),
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
        assert!(table.say(command).is_answered());
    }
    table.told();
    let request = table.asks("EXEC");
    assert_eq!(request.id.to_string(), "3.11");
    let operations = match &request.work {
        message::Work::Transaction(operations) => operations.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(operations, 6);
    table.answer(values(
        &[Some("+OK\r\n"), Some(":1\r\n"), Some("-ERR no\r\n")].repeat(2),
    ));
    let each = [Reply::ok(), Reply::Integer(1), Reply::Error("ERR no".into())];
    let replies = Reply::Array(each.iter().chain(&each).cloned().collect());
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
    let error = |text: &str| Reply::Error(text.into());
    assert_eq!(told(late), error("LATE reason=no-master retry-after-ms=20 node=2"));
    assert_eq!(told(Answer::Unknown), error("UNKNOWN 3.12"));
    let refused = Answer::Refused(Refusal::NoInteger { key: b"n".into() });
    assert!(matches!(told(refused), Reply::Error(text) if text.starts_with("REFUSED 3.13 record n ")));
    table.asks("OUTCOME 3.12");
    table.answer(done(Output::Fate(Fate::Committed(Revision(8)))));
    assert_eq!(table.told(), [Reply::Simple("committed 8".into())]);
}

#[test]
fn a_session_that_was_forgotten_is_followed_by_another() {
    let mut table = Table::with_session();
    table.asks("INCR n");
    let session = SessionId(3);
    table.answer(Answer::Refused(Refusal::NoSession { session }));
    assert!(matches!(table.told().remove(0), Reply::Error(_)));
    assert_eq!(table.asks("INCR n").work, message::Work::Open);
}

#[test]
fn readings_are_of_a_nodes_memory() {
    let mut table = Table::with_session();
    let set = |ms, value: &[u8]| {
        message::Work::Sample(ClientReading {
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
    assert_eq!(table.told(), [Reply::ok(), Reply::Null]);
    let reading = |age_ms| done(Output::Reading(Some((Nanos::from_millis(age_ms), b"2".to_vec()))));
    for (answer, expected) in [
        (reading(20), Reply::Array(vec![Reply::bulk("2"), Reply::Integer(20)])),
        (reading(21), Reply::Error("STALE age-ms=21".into())),
        (
            done(Output::Reading(Some((Nanos::MAX, Vec::new())))),
            Reply::Error("STALE age-ms=unknown".into()),
        ),
        (done(Output::Reading(None)), Reply::NullArray),
    ] {
        assert_eq!(
            table.asks("GETFRESH pose 20").work,
            message::Work::Fresh(b"pose".to_vec())
        );
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
        assert!(table.say(wrong).is_answered());
        assert!(
            matches!(&table.told()[0], Reply::Error(text) if text.starts_with("ERR")),
            "{wrong}"
        );
    }
    // Within a transaction the state machine reads it, and none is set.
    table.say("MULTI");
    table.say("GETFRESH pose 20");
    let request = table.asks("EXEC");
    let read = Operation::Run(command("GETFRESH pose 20", false));
    assert_eq!(request.work, message::Work::Transaction(vec![read]));
    table.answer(Answer::Unknown);
    table.say("MULTI");
    table.told();
    table.say("TSET pose 1");
    assert!(matches!(&table.told()[0], Reply::Error(text) if text.contains("within MULTI")));
    for words in ["KEYS *", "DBSIZE", "SCAN 0"] {
        table.say(words);
        assert!(matches!(&table.told()[0], Reply::Error(text) if text.contains("outside of MULTI")));
    }
}

/// Neither negative, nor a fraction, nor longer than an hour, nor more than a number holds; a node is asked nothing.
#[test]
fn absurd_spans_are_refused() {
    let absurd = [
        "-1",
        "nan",
        "inf",
        "1e308",
        "1.5",
        "",
        "9223372036854775808",
        "99999999999999999999",
    ];
    let too_long = (LIMITS.deadline_ms + 1).to_string();
    let mut table = Table::with_session();
    for (words, wrong) in [
        ("DEADLINE {} GET a", &[&absurd[..], &["0", &too_long]].concat()),
        ("DEADLINE {} INCR a", &[&absurd[..], &["0", &too_long]].concat()),
        ("CLIENT DEADLINE {}", &[&absurd[..], &[&too_long]].concat()),
        ("GETFRESH a {}", &absurd.to_vec()),
        ("TSET a 1 AGE {}", &absurd.to_vec()),
    ] {
        for span in wrong {
            let words = words.replace("{}", span);
            assert!(table.say(&words).is_answered(), "{words}");
            assert!(
                matches!(&table.told()[..], [Reply::Error(text)] if text.starts_with("ERR ")),
                "{words}"
            );
        }
    }
    assert_eq!(
        (table.client.time_left, table.asks("GET a").time_left),
        (None, TIME_LEFT)
    );
    table.answer(Answer::Unknown);
    // The longest ones that there are. An age that no clock has counted leaves a reading that is never fresh.
    assert_eq!(table.asks("DEADLINE 3600000 GET a").time_left, Nanos::from_secs(3600));
    table.answer(Answer::Unknown);
    let message::Work::Sample(sample) = table.asks("TSET a 1 AGE 18446744073709").work else {
        panic!("a reading")
    };
    assert_eq!(sample.age, Nanos::from_millis(18_446_744_073_709));
}

#[test]
fn a_browser_is_sent_away() {
    for line in ["POST / HTTP/1.1", "Host: 127.0.0.1"] {
        assert!(Table::with_session().say(line).is_closed());
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
        matches!(&told[2], Reply::Error(text) if text.starts_with("EXECABORT")),
        "{told:?}"
    );
    assert!(table.say("GET a").is_asked(), "nothing is queued any more");
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
                Said::Session(session::Next::Claim(_)) => prop_assert!(false, "there are no users"),
                Said::Session(session::Next::Answered | session::Next::Close | session::Next::Reset)
                | Said::Conversation(Next::Answered) => prop_assert_eq!(table.told().len(), 1),
                Said::Conversation(Next::Ask(_)) => {
                    prop_assert!(table.told().is_empty() && table.is_waiting());
                    while let Next::Ask(_) = table.answer(Answer::Unknown) {}
                    prop_assert_eq!(table.told().len(), 1);
                }
                _ => prop_assert_eq!(table.told().len(), 0),
            }
            prop_assert!(!table.is_waiting());
        }
    }
}

/// A client of a node with one user, which may read and write below `arm/`.
fn stranger() -> Table {
    let robot = User {
        name: "robot".into(),
        password: PasswordHash::of(b"secret", [1; 16], 1),
        rights: vec![Right::Read, Right::Write],
        prefixes: vec![b"arm/".to_vec()],
    };
    Table::of(Users::new(vec![robot], [2; 16]), 0)
}

fn only_error(table: &mut Table) -> String {
    match table.told().as_slice() {
        [Reply::Error(error)] => error.clone(),
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
        "DEADLINE 5 GET arm/1",
    ] {
        let mut table = stranger();
        assert!(table.say(words).is_answered(), "{words}");
        assert!(only_error(&mut table).starts_with("NOAUTH"), "{words}");
    }
    let mut table = stranger();
    assert!(table.say("HELLO 3").is_answered());
    assert!(only_error(&mut table).starts_with("NOAUTH"));
    assert_eq!(table.client.version, Resp::Two, "a stranger changes nothing");
    assert!(table.say("QUIT").is_closed());
}

#[test]
fn a_user_may_do_what_its_rights_say() {
    let mut table = stranger();
    let Said::Session(session::Next::Claim(claimed)) = table.say("HELLO 3 AUTH robot secret") else {
        panic!("a password is to be checked");
    };
    assert!(table.is_waiting() && claimed.user == Some(0) && claimed.password == b"secret");
    table.client.judged(None, &mut table.out);
    assert!(only_error(&mut table).starts_with("WRONGPASS"));
    assert!(matches!(
        table.say("AUTH robot secret"),
        Said::Session(session::Next::Claim(_))
    ));
    table.client.judged(Some(0), &mut table.out);
    assert_eq!(table.told(), [Reply::ok()]);
    for words in [
        "GET leg/1",
        "MSET arm/1 a leg/1 b",
        "DEL leg/1",
        "INFO",
        "MGET arm/1 leg/1",
        "HSET leg/1 f 1",
        "HGETALL leg/1",
        "EXPIRE leg/1 5",
        "TSET leg/1 1",
        "GETFRESH leg/1 5",
        "WATCH arm/1 leg/1",
        "SCAN 0",
        "KEYS *",
        "SUBSCRIBE __keyspace@0__:arm/1",
    ] {
        assert!(table.say(words).is_answered(), "{words}");
        assert!(only_error(&mut table).starts_with("NOPERM"), "{words}");
    }
    assert!(table.say("GET arm/1").is_asked());
    // It waits for the node, and the result of no check is for it.
    table.client.judged(None, &mut table.out);
    assert!(table.is_waiting() && table.told().is_empty());
}

#[test]
fn a_page_in_a_browser_writes_nothing() {
    for words in ["POST / HTTP/1.1", "host: here"] {
        assert!(Table::new().say(words).is_closed(), "{words}");
    }
}

#[test]
fn exec_compares_what_was_watched() {
    let mut table = Table::with_session();
    let request = table.asks("WATCH a b a");
    assert!(
        matches!(&request.work, message::Work::Query { keys, .. } if keys.len() == 3),
        "{request:?}"
    );
    table.answer(values(&[Some("1"), None, Some("1")]));
    // It is not read again what is watched already.
    assert!(table.say("WATCH b a").is_answered());
    assert_eq!(table.told(), [Reply::ok(), Reply::ok()]);
    table.say("MULTI");
    table.say("SET a 2");
    assert_eq!(table.told(), [Reply::ok(), Reply::Simple("QUEUED".into())]);
    let request = table.asks("EXEC");
    let message::Work::Transaction(operations) = &request.work else {
        panic!("{request:?}")
    };
    assert_eq!(operations[0], Operation::Expect(b"a".to_vec(), Some(b"1".to_vec())));
    assert_eq!(operations[1], Operation::Expect(b"b".to_vec(), None));
    table.answer(Answer::Refused(Refusal::Unexpected { key: b"a".to_vec() }));
    assert_eq!(table.told(), [Reply::NullArray]);
    // Nothing is watched any more; nor after DISCARD, nor after UNWATCH.
    for end in [&["MULTI", "DISCARD"][..], &["UNWATCH"]] {
        table.asks("WATCH a");
        table.answer(values(&[None]));
        end.iter().for_each(|words| assert!(table.say(words).is_answered()));
        table.say("MULTI");
        table.say("GET a");
        let request = table.asks("EXEC");
        assert_eq!(
            request.work,
            message::Work::Transaction(vec![Operation::Run(command("GET a", false))])
        );
        table.answer(values(&[Some("$-1\r\n")]));
    }
    table.told();
    // Both are told, and EXEC goes on without them.
    table.say("MULTI");
    table.say("WATCH a");
    table.say("MULTI");
    assert!(matches!(table.asks("EXEC").work, message::Work::Transaction(all) if all.is_empty()));
}

#[test]
fn a_cursor_is_a_number_to_the_client_and_a_key_to_the_node() {
    let mut table = Table::with_session();
    assert_eq!(
        table.asks("SCAN 0 COUNT 1").work,
        message::Work::Look(command("SCAN 0 COUNT 1", false))
    );
    table.answer(values(&[Some("*2\r\n$4\r\n6b31\r\n*1\r\n$2\r\nk1\r\n")]));
    let found = |cursor: &str, keys: Vec<Reply>| Reply::Array(vec![Reply::bulk(cursor), Reply::Array(keys)]);
    assert_eq!(table.told(), [found("1", vec![Reply::bulk("k1")])]);
    assert_eq!(
        table.asks("SCAN 1").work,
        message::Work::Look(command("SCAN 6b31", false))
    );
    table.answer(values(&[Some("*2\r\n$1\r\n0\r\n*0\r\n")]));
    assert_eq!(table.told(), [found("0", Vec::new())]);
    for wrong in ["SCAN 9", "SCAN x", "SCAN -1"] {
        assert!(table.say(wrong).is_answered());
        assert!(
            matches!(&table.told()[0], Reply::Error(text) if text.contains("cursor")),
            "{wrong}"
        );
    }
}

/// The table in the docs says of each command whether it is taken here, and on a store that is served alone.
#[test]
fn the_docs_say_where_each_command_is_taken() {
    let docs = include_str!("../../../../docs/guide/redis.md");
    let (_, table) = docs
        .split_once("\n## Where each command is taken\n")
        .expect("the table");
    let table = table.split("\n#").next().expect("its end");
    let mut named = std::collections::BTreeMap::new();
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [commands, alone, node, balancer] = cells.as_slice() else {
            panic!("{row}")
        };
        let takes = |cell: &str| match cell.split([',', ':', ' ']).next() {
            Some("yes") => true,
            Some("no") => false,
            _ => panic!("{cell}"),
        };
        assert_eq!(takes(node), takes(balancer), "both are one conversation: {row}");
        for command in commands.split(", ").map(|name| name.trim_matches('`')) {
            assert!(
                named.insert(command, (takes(alone), takes(node))).is_none(),
                "{command} twice"
            );
        }
    }
    for command in commands::TABLE {
        let name = command.name.to_uppercase();
        assert!(
            named.contains_key(name.as_str()),
            "{name} is not in docs/guide/redis.md"
        );
    }
    for (name, (alone, here)) in named {
        let known = commands::find(name.as_bytes());
        let is_of_both = known.is_some_and(|known| known.place != Scope::Federation);
        assert_eq!(is_of_both, alone, "{name}, on a store alone");
        let arity = known.map_or(0, |known| known.arity.unsigned_abs() as usize);
        let words = match name {
            "DEADLINE" => "DEADLINE 1 PING".into(),
            "SENTINEL" => "SENTINEL masters".into(),
            "OUTCOME" => "OUTCOME 1.1".into(),
            _ => [&[name][..], &vec!["1"; arity.saturating_sub(1)]].concat().join(" "),
        };
        let mut table = Table::with_session();
        let step = table.say(&words);
        let told = table.told();
        let refused = |text: &String| text.contains("unknown command") || text.contains("is not taken");
        let is_refused = matches!(told.as_slice(), [Reply::Error(text)] if refused(text));
        assert_eq!(!is_refused, here, "{words}: {step:?}, {told:?}");
    }
}
