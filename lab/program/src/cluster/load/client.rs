//! A client of the load: a session of the federation that increments and reads its own counter, and tracks the outcome
//! of each request. Pure: the driver has the socket and the clock.

use punctual_server::resp::{Reply, Resp, Writer};
use punctual_units::{Nanos, Time};
use serde::{Deserialize, Serialize};

/// Time that a client waits for an answer beyond its deadline: a node answers before the deadline, and the rest is for
/// this machine's scheduler.
const GRACE: Nanos = Nanos::from_millis(250);
/// Time after which a client stops asking for the outcome of a request.
const OUTCOME_MAX: Nanos = Nanos::from_secs(60);
/// Time limit of a question for an outcome, or for a session.
const ASK_MAX: Nanos = Nanos::from_millis(500);
/// Shortest wait before a question is repeated.
pub(super) const AGAIN: Nanos = Nanos::from_millis(5);

/// Kinds of requests of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestKind {
    /// `INCR` of the client's own counter.
    Count,
    /// `GET` of the client's own counter.
    Read,
}

/// Ending of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RequestOutcome {
    /// Acknowledged before its deadline.
    Timely,
    /// Acknowledged after its deadline.
    Overdue,
    /// Not executed: admitted work leaves too little time.
    Backlog,
    /// Not executed: its deadline had passed.
    Expired,
    /// Not executed: there was no master.
    NoMaster,
    /// Answered with an unknown outcome, or the connection broke.
    Unknown,
    /// Refused, because it cannot be executed.
    Refused,
    /// Not sent: no client was free in time, so the driver has too few.
    Unsent,
}

/// Outcome of a transaction, as its client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// Acknowledged with a value.
    Acknowledged {
        /// Value that the transaction returned.
        returned: i64,
        /// Value that the client expects.
        right: i64,
    },
    /// Answered as late or refused.
    NotExecuted,
    /// In the log, according to a question for its outcome.
    Committed,
    /// Never to be executed, according to a question for its outcome.
    NeverExecuted,
    /// No answer, and none to the question for its outcome.
    Missing,
}

/// Results that a client reports to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientResult {
    /// An arrival that was due at `at` has ended.
    Ended {
        kind: RequestKind,
        at: Time,
        ending: RequestOutcome,
    },
    /// Outcome of a transaction, with its session and number.
    Fate(u64, u64, Fate),
    /// A read returned a value that it cannot have read.
    WrongRead,
}

/// States of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Waits for a connection.
    Away,
    /// Waits for its session.
    Greeting,
    /// Ready for a request.
    Idle,
    Asked {
        kind: RequestKind,
        at: Time,
        deadline: Time,
    },
    /// Waits for the outcome of its last transaction.
    Resolving,
    /// Waits before it asks for the outcome again.
    Pausing,
}

/// Next step of the driver on a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Keep the connection as it is.
    Stay,
    /// Close the connection, and connect to the next address.
    Move,
}

/// A client's state, without its socket.
#[derive(Clone, Debug)]
pub(super) struct Client {
    /// Key of its counter.
    counter: String,
    session: u64,
    number: u64,
    /// Expected value of its counter.
    count: i64,
    /// Whether its session has seen that value, so that a read must return it: a session that continues on another
    /// connection names no revision.
    has_seen: bool,
    /// Instant since when the outcome of its last transaction is unknown; `None` if known.
    unresolved: Option<Time>,
    stage: Stage,
    /// Instant of its next timeout.
    due: Time,
    pub learned: Vec<ClientResult>,
}

impl Client {
    pub fn new(counter: String) -> Client {
        Client {
            counter,
            session: 0,
            number: 0,
            count: 0,
            has_seen: true,
            unresolved: None,
            stage: Stage::Away,
            due: Time::MAX,
            learned: Vec::new(),
        }
    }

    /// Key and expected value of its counter.
    pub fn counted(&self) -> (String, i64) {
        (self.counter.clone(), self.count)
    }

    /// Whether it can take a request.
    pub fn is_idle(&self) -> bool {
        self.stage == Stage::Idle
    }

    /// Whether a request or an outcome is still pending.
    pub fn is_open(&self) -> bool {
        self.unresolved.is_some() || matches!(self.stage, Stage::Asked { .. })
    }

    /// Instant at which to call [`Client::wake`].
    pub fn due(&self) -> Time {
        self.due
    }

    /// Sends the session over a new connection.
    pub fn connected(&mut self, now: Time, out: &mut Vec<u8>) {
        self.stage = Stage::Greeting;
        self.due = now + ASK_MAX + GRACE;
        match self.session {
            0 => say(out, &["DEADLINE", &millis(ASK_MAX), "SESSION"]),
            session => {
                self.has_seen = false;
                say(out, &["SESSION", &session.to_string(), &self.number.to_string(), "0"]);
            }
        }
    }

    /// Handles the end of the connection, or a failed attempt.
    pub fn disconnected(&mut self, now: Time) {
        if let Stage::Asked { kind, at, .. } = self.stage {
            let ending = RequestOutcome::Unknown;
            self.learned.push(ClientResult::Ended { kind, at, ending });
            if kind == RequestKind::Count {
                self.unresolved = Some(now);
            }
        }
        self.give_up(now);
        (self.stage, self.due) = (Stage::Away, Time::MAX);
    }

    /// Sends a request that was due at `at`; the client must be idle.
    pub fn ask(&mut self, kind: RequestKind, at: Time, deadline: Time, now: Time, out: &mut Vec<u8>) {
        let ms = millis(deadline.since(now));
        let command = match kind {
            RequestKind::Count => {
                self.number += 1;
                "INCR"
            }
            RequestKind::Read => "GET",
        };
        say(out, &["DEADLINE", &ms, command, &self.counter]);
        self.stage = Stage::Asked { kind, at, deadline };
        self.due = deadline + GRACE;
    }

    /// Handles a timeout that is due.
    pub fn wake(&mut self, now: Time, out: &mut Vec<u8>) -> Then {
        if now < self.due {
            return Then::Stay;
        }
        self.give_up(now);
        match self.stage {
            Stage::Pausing => {
                self.settle(now, out);
                Then::Stay
            }
            // There was no answer in time.
            Stage::Greeting | Stage::Asked { .. } | Stage::Resolving => Then::Move,
            Stage::Away | Stage::Idle => {
                self.due = Time::MAX;
                Then::Stay
            }
        }
    }

    /// Handles a reply in the client's present state.
    pub fn hear(&mut self, reply: &Reply, now: Time, out: &mut Vec<u8>) -> Then {
        match self.stage {
            Stage::Greeting => self.greeted(reply, now, out),
            Stage::Asked { kind, at, deadline } => self.answered(kind, at, deadline, reply, now, out),
            Stage::Resolving => self.resolved(reply, now, out),
            Stage::Away | Stage::Idle | Stage::Pausing => Then::Move, // a reply without a request
        }
    }

    fn greeted(&mut self, reply: &Reply, now: Time, out: &mut Vec<u8>) -> Then {
        let Reply::Array(numbers) = reply else {
            return Then::Move; // there is no master, or the server knows no sessions
        };
        if let Some(Reply::Integer(session)) = numbers.first() {
            self.session = *session as u64;
        }
        self.settle(now, out);
        Then::Stay
    }

    /// Asks for the outcome of the last transaction, if that is unknown; otherwise becomes idle.
    fn settle(&mut self, now: Time, out: &mut Vec<u8>) {
        match self.unresolved {
            None => (self.stage, self.due) = (Stage::Idle, Time::MAX),
            Some(_) => {
                let id = format!("{}.{}", self.session, self.number);
                say(out, &["DEADLINE", &millis(ASK_MAX), "OUTCOME", &id]);
                (self.stage, self.due) = (Stage::Resolving, now + ASK_MAX + GRACE);
            }
        }
    }

    fn answered(
        &mut self,
        kind: RequestKind,
        at: Time,
        deadline: Time,
        reply: &Reply,
        now: Time,
        out: &mut Vec<u8>,
    ) -> Then {
        let served = if now <= deadline {
            RequestOutcome::Timely
        } else {
            RequestOutcome::Overdue
        };
        let mut then = Then::Stay;
        let ending = match (kind, reply) {
            (RequestKind::Count, Reply::Integer(returned)) => {
                self.count += 1;
                self.has_seen = true;
                let (returned, right) = (*returned, self.count);
                self.fate(Fate::Acknowledged { returned, right });
                served
            }
            (RequestKind::Read, Reply::Bulk(_) | Reply::Null) => {
                self.read(reply);
                served
            }
            (_, Reply::Error(text)) if text.starts_with("UNKNOWN") => {
                self.unresolved = Some(now);
                RequestOutcome::Unknown
            }
            (_, Reply::Error(text)) => {
                match kind {
                    // The request did not consume its number.
                    RequestKind::Count if text.starts_with("ERR") => self.number -= 1,
                    RequestKind::Count => self.fate(Fate::NotExecuted),
                    RequestKind::Read => {}
                }
                if text.contains("there is no session") {
                    self.session = 0;
                    self.number = 0;
                    then = Then::Move;
                }
                late(text).unwrap_or(RequestOutcome::Refused)
            }
            // The reply does not fit the question.
            _ => return Then::Move,
        };
        self.learned.push(ClientResult::Ended { kind, at, ending });
        self.settle(now, out);
        then
    }

    /// Checks that a read returned the count; an earlier value is allowed if the session did not name a revision.
    fn read(&mut self, reply: &Reply) {
        let found = match reply {
            Reply::Bulk(bytes) => std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()),
            _ => Some(0),
        };
        let is_right = found.is_some_and(|found: i64| found == self.count || !self.has_seen && found < self.count);
        if !is_right {
            self.learned.push(ClientResult::WrongRead);
        }
    }

    fn resolved(&mut self, reply: &Reply, now: Time, out: &mut Vec<u8>) -> Then {
        let fate = match reply {
            Reply::Simple(text) if text.starts_with("committed") => {
                self.count += 1;
                self.has_seen = true;
                Fate::Committed
            }
            Reply::Simple(text) if text == "not-executed" => Fate::NeverExecuted,
            Reply::Simple(_) => Fate::Missing,
            Reply::Error(text) => {
                let word = |word: &str| word.strip_prefix("retry-after-ms=").and_then(|ms| ms.parse().ok());
                let after = Nanos::from_millis(text.split(' ').find_map(word).unwrap_or(0));
                (self.stage, self.due) = (Stage::Pausing, now + after.clamp(AGAIN, ASK_MAX));
                return Then::Stay;
            }
            _ => return Then::Move,
        };
        self.fate(fate);
        self.settle(now, out);
        Then::Stay
    }

    fn fate(&mut self, fate: Fate) {
        self.unresolved = None;
        self.learned.push(ClientResult::Fate(self.session, self.number, fate));
    }

    /// Abandons an outcome that was asked for longer than `OUTCOME_MAX`.
    fn give_up(&mut self, now: Time) {
        if self.unresolved.is_some_and(|since| now.since(since) >= OUTCOME_MAX) {
            self.fate(Fate::Missing);
        }
    }
}

/// Kind of lateness in an error; `None` for other errors.
fn late(text: &str) -> Option<RequestOutcome> {
    let told = text.strip_prefix("LATE ")?;
    let reason = told.split(' ').find_map(|word| word.strip_prefix("reason="))?;
    match reason {
        "backlog" => Some(RequestOutcome::Backlog),
        "no-master" => Some(RequestOutcome::NoMaster),
        _ => Some(RequestOutcome::Expired),
    }
}

/// Whole milliseconds of a span, at least one.
fn millis(span: Nanos) -> String {
    (span.0 / 1_000_000).max(1).to_string()
}

fn say(out: &mut Vec<u8>, words: &[&str]) {
    let words = Reply::Array(words.iter().map(Reply::bulk).collect());
    Writer::new(out, Resp::Two).value(&words);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = Nanos::from_millis(1);

    /// A client with session 3 that has nothing to do, and what it sends.
    fn idle() -> (Client, Vec<u8>) {
        let (mut client, mut out) = (Client::new("counter:1".into()), Vec::new());
        client.connected(Time::ZERO, &mut out);
        let session = Reply::Array([3, 0, 0].map(Reply::Integer).to_vec());
        assert_eq!(client.hear(&session, Time::ZERO, &mut out), Then::Stay);
        assert!(client.is_idle());
        out.clear();
        (client, out)
    }

    fn counts(client: &mut Client, out: &mut Vec<u8>) {
        client.ask(RequestKind::Count, Time::ZERO, Time::ZERO + MS * 100, Time::ZERO, out);
    }

    fn ended(kind: RequestKind, ending: RequestOutcome) -> ClientResult {
        let at = Time::ZERO;
        ClientResult::Ended { kind, at, ending }
    }

    fn error(text: &str) -> Reply {
        Reply::Error(text.into())
    }

    #[test]
    fn what_is_told_ends_an_arrival_as_it_says() {
        let (mut client, mut out) = idle();
        counts(&mut client, &mut out);
        client.hear(&Reply::Integer(1), Time::ZERO + MS * 100, &mut out);
        let right = Fate::Acknowledged { returned: 1, right: 1 };
        assert_eq!(
            client.learned,
            [
                ClientResult::Fate(3, 1, right),
                ended(RequestKind::Count, RequestOutcome::Timely)
            ]
        );
        for (number, (text, ending)) in [
            ("LATE reason=backlog retry-after-ms=3 node=1", RequestOutcome::Backlog),
            ("LATE reason=expired retry-after-ms=0", RequestOutcome::Expired),
            ("LATE reason=no-master retry-after-ms=20", RequestOutcome::NoMaster),
            ("REFUSED 3.5 record is no number", RequestOutcome::Refused),
        ]
        .into_iter()
        .enumerate()
        {
            client.learned.clear();
            counts(&mut client, &mut out);
            client.hear(&error(text), Time::ZERO, &mut out);
            let fate = ClientResult::Fate(3, number as u64 + 2, Fate::NotExecuted);
            assert_eq!(client.learned, [fate, ended(RequestKind::Count, ending)], "{text}");
        }
        client.learned.clear();
        client.ask(RequestKind::Read, Time::ZERO, Time::ZERO + MS, Time::ZERO, &mut out);
        client.hear(&Reply::bulk("1"), Time::ZERO + MS * 2, &mut out);
        assert_eq!(client.learned, [ended(RequestKind::Read, RequestOutcome::Overdue)]);
    }

    #[test]
    fn an_unknown_one_is_asked_for_before_anything_else_wherever_the_client_goes() {
        let (mut client, mut out) = idle();
        counts(&mut client, &mut out);
        client.hear(&error("UNKNOWN 3.1"), Time::ZERO, &mut out);
        assert!(client.is_open() && !client.is_idle());
        client.hear(&error("LATE reason=no-master retry-after-ms=20"), Time::ZERO, &mut out);
        assert_eq!(client.due(), Time::ZERO + MS * 20);
        client.disconnected(Time::ZERO);
        out.clear();
        client.connected(Time::ZERO, &mut out);
        assert!(
            String::from_utf8_lossy(&out).contains("SESSION\r\n$1\r\n3\r\n$1\r\n1\r\n"),
            "{out:?}"
        );
        client.hear(&Reply::Array(vec![Reply::Integer(3)]), Time::ZERO, &mut out);
        client.hear(&Reply::Simple("committed 9".into()), Time::ZERO, &mut out);
        assert!(client.is_idle());
        assert_eq!(client.learned.last(), Some(&ClientResult::Fate(3, 1, Fate::Committed)));
        assert_eq!(client.counted().1, 1);
    }

    #[test]
    fn a_connection_that_breaks_leaves_a_transaction_unknown_and_a_read_unanswered() {
        for kind in [RequestKind::Count, RequestKind::Read] {
            let (mut client, mut out) = idle();
            client.ask(kind, Time::ZERO, Time::ZERO + MS, Time::ZERO, &mut out);
            client.disconnected(Time::ZERO);
            assert_eq!(client.learned, [ended(kind, RequestOutcome::Unknown)]);
            assert_eq!(client.is_open(), kind == RequestKind::Count);
        }
        // Which no node answers for a minute.
        let (mut client, mut out) = idle();
        counts(&mut client, &mut out);
        client.disconnected(Time::ZERO);
        client.disconnected(Time::ZERO + OUTCOME_MAX);
        assert_eq!(client.learned.last(), Some(&ClientResult::Fate(3, 1, Fate::Missing)));
    }

    #[test]
    fn a_read_of_what_cannot_be_is_told() {
        let (mut client, mut out) = idle();
        counts(&mut client, &mut out);
        client.hear(&Reply::Integer(1), Time::ZERO, &mut out);
        let mut finds = |client: &mut Client, value: Reply| {
            client.learned.clear();
            client.ask(RequestKind::Read, Time::ZERO, Time::ZERO + MS, Time::ZERO, &mut out);
            client.hear(&value, Time::ZERO, &mut out);
            client.learned.contains(&ClientResult::WrongRead)
        };
        assert!(!finds(&mut client, Reply::bulk("1")));
        assert!(finds(&mut client, Reply::Null) && finds(&mut client, Reply::bulk("2")));
        // By another connection it names no revision, and may read the past.
        client.disconnected(Time::ZERO);
        let mut greeting = Vec::new();
        client.connected(Time::ZERO, &mut greeting);
        client.hear(&Reply::Array(vec![Reply::Integer(3)]), Time::ZERO, &mut greeting);
        assert!(!finds(&mut client, Reply::Null) && finds(&mut client, Reply::bulk("2")));
    }
}
