//! What a client of a node has said so far, and what each of its requests asks the federation. Pure.
//!
//! The commands are those of Redis that a transaction of a federation can carry out, plain: `GET`, `MGET`, `SET`,
//! `DEL`, `APPEND`, `INCR` and its kin, `MULTI` with these in it. `GET` and `MGET` outside of `MULTI` are queries,
//! which any node answers; all else is a transaction, which the master executes. What is not known is refused. `TSET`
//! and `GETFRESH` outside of `MULTI` are about temporal objects, which are in the memory of each node.
//!
//! A client that asks for its first transaction gets a session of the federation. Its transactions are numbered from
//! there, each by the next number. So a client that has asked for its `SESSION` knows, where its connection breaks, the
//! name of the request that has no answer, and asks for its `OUTCOME` on another node. What had a number and was
//! refused is `-REFUSED`, what had none is `-ERR`.

use punctual_federation::ids::{RequestId, Revision, SessionId};
use punctual_federation::message::{Answer, Fate, Operation, Output, Refusal, Request, Sample, Work};
use punctual_federation::session::Session;
use punctual_server::commands;
use punctual_server::login::{Claimed, Entry, Greeting, Login, NO_HTTP, is_http};
use punctual_server::resp::request::Request as Words;
use punctual_server::resp::{Value, Version, Writer};
use punctual_server::users::Right;
use punctual_units::{Nanos, Time};

use crate::whereabouts::Inquiry;

/// The time that a request has unless its client says otherwise.
pub const TIME_LEFT: Nanos = Nanos::from_secs(1);
/// The longest, in milliseconds: `federation::message::TIME_LEFT_MAX`.
pub const DEADLINE_MS_MAX: u64 = 3_600_000;
/// The most commands between MULTI and EXEC.
pub const QUEUED_MAX: usize = 128;
/// The most bytes of their arguments: more than an entry of the log takes.
pub const QUEUED_BYTES_MAX: usize = 2 << 20;

/// How what a request found becomes a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Nothing was read: OK.
    Done,
    /// One value.
    Value,
    /// So many values.
    Values(usize),
    /// How many of so many records were there.
    Count(usize),
    /// The length of what was read.
    Length,
    /// What was read, as a number.
    Number,
    /// A reading that may be so old.
    Fresh(Nanos),
}

/// One command as operations on records.
#[derive(Clone, Debug, PartialEq)]
struct Command {
    operations: Vec<Operation>,
    shape: Shape,
}

/// What was sent to the node, and what its answer is for.
#[derive(Clone, Debug)]
struct Pending {
    work: Work,
    deadline: Time,
    /// One for each command.
    shapes: Vec<Shape>,
    /// An array of replies, as EXEC answers.
    several: bool,
    id: RequestId,
}

/// What a client is waited for, or waits for.
#[derive(Clone, Debug, Default)]
enum Stage {
    #[default]
    Idle,
    /// A session is being opened; then this. `None`: the client asked for the session itself.
    Opening(Option<Box<Pending>>),
    Asked(Box<Pending>),
    /// The password in it is being checked.
    Checked(Box<Words>),
}

/// What is to be done about a client's request.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing: its reply is written.
    Answered,
    /// Its reply is written, and the connection is to be closed.
    Close,
    /// To ask the node.
    Ask(Request),
    /// To describe the node, in these sections; all where none is named.
    Info(Vec<String>),
    /// To say where the federation's nodes are, as a sentinel would.
    Whereabouts(Inquiry),
    /// To check a password ([`Conversation::judged`]).
    Check(Claimed),
}

/// One client's side of a connection.
#[derive(Clone, Debug)]
pub struct Conversation {
    login: Login,
    version: Version,
    session: Session,
    time_left: Nanos,
    multi: Option<Multi>,
    stage: Stage,
    connection: u32,
    /// The number of the last request that belonged to no session: no two of a node are alike.
    unnamed: u64,
}

/// Commands between MULTI and EXEC.
#[derive(Clone, Debug, Default)]
struct Multi {
    commands: Vec<Command>,
    bytes: usize,
    broken: bool,
}

impl Conversation {
    /// A client that has just come, on the connection of that number; no two connections of a process have one. The
    /// numbers of requests that belong to no session begin at `first`, drawn at random when the process starts: an
    /// answer to a query of an earlier start, still under way, has a name that no query of this one has.
    pub fn new(login: Login, first: u64, connection: u32) -> Conversation {
        Conversation {
            login,
            version: Version::Two,
            session: Session::default(),
            time_left: TIME_LEFT,
            multi: None,
            stage: Stage::Idle,
            connection,
            unnamed: first.wrapping_add(u64::from(connection) << 32),
        }
    }

    /// Which user it is.
    pub fn login(&self) -> &Login {
        &self.login
    }

    /// The protocol that it speaks.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether a request waits for the node's answer: the next one comes after it.
    pub fn is_waiting(&self) -> bool {
        !matches!(self.stage, Stage::Idle)
    }

    /// The number of its connection.
    pub fn connection(&self) -> u32 {
        self.connection
    }

    /// Takes a request that was read at `arrived`; its deadline counts from there.
    pub fn take(&mut self, words: &Words, arrived: Time, now: Time, out: &mut Vec<u8>) -> Step {
        match self.interpret(words, arrived, now, out) {
            Ok(step) => step,
            Err(error) => {
                if let Some(multi) = &mut self.multi {
                    multi.broken = true;
                }
                Writer::new(out, self.version).error(&error);
                Step::Answered
            }
        }
    }

    fn interpret(&mut self, words: &Words, arrived: Time, now: Time, out: &mut Vec<u8>) -> Result<Step, String> {
        let rest;
        let (mut words, mut time_left) = (words, self.time_left);
        if words.argument(0).eq_ignore_ascii_case(b"deadline") {
            if words.len() < 3 {
                return Err("ERR syntax error: DEADLINE MS COMMAND ..".into());
            }
            time_left = millis(words.argument(1))?;
            let mut skipped = words.clone();
            skipped.skip(2);
            rest = skipped;
            words = &rest;
        }
        let deadline = arrived + time_left;
        if is_http(words) {
            Writer::new(out, self.version).error(NO_HTTP);
            return Ok(Step::Close);
        }
        self.allow(words)?;
        if self.multi.is_none()
            && let Some((work, shape)) = of_memory(words, now.since(arrived))?
        {
            return Ok(self.send(work, deadline, vec![shape], false, now));
        }
        if let Some(step) = self.entry(words, out)? {
            return Ok(step);
        }
        if let Some(step) = self.connection_command(words, out)? {
            return Ok(step);
        }
        match name(words).as_str() {
            "TSET" => return Err("ERR TSET is no part of a transaction: send it outside of MULTI".into()),
            "EXEC" => {
                expect(words, words.len() == 1)?;
                let multi = self.multi.take().ok_or("ERR EXEC without MULTI")?;
                if multi.broken {
                    return Err("EXECABORT Transaction discarded because of previous errors.".into());
                }
                let shapes = multi.commands.iter().map(|command| command.shape).collect();
                let operations = multi.commands.into_iter().flat_map(|command| command.operations);
                let work = Work::Transaction(operations.collect());
                return Ok(self.send(work, deadline, shapes, true, now));
            }
            "SENTINEL" => return Inquiry::read(words).map(Step::Whereabouts),
            "SESSION" => return self.session_command(words, deadline, now, out),
            "OUTCOME" => {
                expect(words, words.len() == 2 && self.multi.is_none())?;
                let id = request_id(words.argument(1))?;
                return Ok(self.send(Work::Outcome(id), deadline, Vec::new(), false, now));
            }
            _ => {}
        }
        let command = command(words)?;
        if let Some(multi) = &mut self.multi {
            multi.bytes += words.bytes();
            if multi.commands.len() >= QUEUED_MAX || multi.bytes > QUEUED_BYTES_MAX {
                let most = format!("{QUEUED_MAX} commands and {QUEUED_BYTES_MAX} bytes");
                return Err(format!(
                    "ERR at most {most} between MULTI and EXEC: split the transaction"
                ));
            }
            multi.commands.push(command);
            Writer::new(out, self.version).simple("QUEUED");
            return Ok(Step::Answered);
        }
        let reads = |operation: &Operation| matches!(operation, Operation::Get(_));
        let work = match command.operations.iter().all(reads) {
            true => Work::Query {
                keys: command.operations.iter().map(|get| get.key().clone()).collect(),
                latest: false,
                max_age: Nanos::MAX,
            },
            false => Work::Transaction(command.operations),
        };
        Ok(self.send(work, deadline, vec![command.shape], false, now))
    }

    /// Whether its user may say this.
    fn allow(&self, words: &Words) -> Result<(), String> {
        match (commands::find(words.argument(0)), name(words).as_str()) {
            // What these ask is a transaction's, whatever it wrote.
            (_, name @ ("SESSION" | "OUTCOME")) => self.login.has(Right::Write, &name.to_lowercase()),
            (Some(command), _) => self.login.allowed(command, words),
            // It is refused as unknown, but to no stranger.
            (None, name) if self.login.is_stranger() => self.login.has(Right::Server, name),
            (None, _) => Ok(()),
        }
    }

    /// `AUTH` and `HELLO`.
    fn entry(&mut self, words: &Words, out: &mut Vec<u8>) -> Result<Option<Step>, String> {
        let entry = match name(words).as_str() {
            "AUTH" => self.login.auth(words)?,
            "HELLO" => self.login.hello(&Greeting::read(words, self.version)?)?,
            _ => return Ok(None),
        };
        Ok(Some(match entry {
            Entry::Admitted => {
                self.admitted(words, out);
                Step::Answered
            }
            Entry::ToCheck(claimed) => {
                self.stage = Stage::Checked(Box::new(words.clone()));
                Step::Check(claimed)
            }
        }))
    }

    /// What was to be checked is the password of the user of that number, or it is wrong.
    pub fn judged(&mut self, user: Option<usize>, out: &mut Vec<u8>) {
        let Stage::Checked(words) = &self.stage else {
            return;
        };
        let words = words.clone();
        self.stage = Stage::Idle;
        match self.login.judged(user) {
            Ok(()) => self.admitted(&words, out),
            Err(error) => Writer::new(out, self.version).error(&error),
        }
    }

    /// It cannot be checked now.
    pub fn not_checked(&mut self, why: &str, out: &mut Vec<u8>) {
        self.stage = Stage::Idle;
        Writer::new(out, self.version).error(why);
    }

    fn admitted(&mut self, words: &Words, out: &mut Vec<u8>) {
        if name(words) == "HELLO" {
            self.greet(words, out);
        } else {
            Writer::new(out, self.version).simple("OK");
        }
    }

    /// What is about the connection, and asks no node.
    fn connection_command(&mut self, words: &Words, out: &mut Vec<u8>) -> Result<Option<Step>, String> {
        let mut writer = Writer::new(out, self.version);
        match name(words).as_str() {
            "PING" if words.len() > 1 => writer.bulk(words.argument(1)),
            "PING" => writer.simple("PONG"),
            "ECHO" => {
                expect(words, words.len() == 2)?;
                writer.bulk(words.argument(1));
            }
            "QUIT" => {
                writer.simple("OK");
                return Ok(Some(Step::Close));
            }
            "INFO" => {
                let sections = (1..words.len()).map(|at| word(words, at).to_lowercase());
                return Ok(Some(Step::Info(sections.collect())));
            }
            "SELECT" => match words.argument(1) {
                b"0" => writer.simple("OK"),
                _ => return Err("ERR there is database 0".into()),
            },
            "READONLY" | "READWRITE" => writer.simple("OK"),
            "COMMAND" => writer.array(0),
            "CONFIG" if word(words, 1) == "GET" => writer.map(0),
            "CLIENT" => match word(words, 1).as_str() {
                "DEADLINE" => {
                    expect(words, words.len() == 3)?;
                    self.time_left = match words.argument(2) {
                        b"0" => TIME_LEFT,
                        text => millis(text)?,
                    };
                    writer.simple("OK");
                }
                "SETINFO" | "SETNAME" => writer.simple("OK"),
                "ID" => writer.integer(i64::from(self.connection)),
                _ => return Err("ERR CLIENT knows DEADLINE, ID, SETINFO and SETNAME here".into()),
            },
            "MULTI" => {
                if self.multi.is_some() {
                    return Err("ERR MULTI calls can not be nested".into());
                }
                self.multi = Some(Multi::default());
                writer.simple("OK");
            }
            "DISCARD" => {
                self.multi.take().ok_or("ERR DISCARD without MULTI")?;
                writer.simple("OK");
            }
            _ => return Ok(None),
        }
        Ok(Some(Step::Answered))
    }

    fn greet(&mut self, words: &Words, out: &mut Vec<u8>) {
        // It was read before.
        if let Ok(greeting) = Greeting::read(words, self.version) {
            self.version = greeting.version;
        }
        let proto = if self.version == Version::Three { 3 } else { 2 };
        let pairs = [
            ("server", Value::bulk("redis")),
            ("version", Value::bulk("7.0.0")),
            ("proto", Value::Integer(proto)),
            ("id", Value::Integer(i64::from(self.connection))),
            ("mode", Value::bulk("standalone")),
            ("role", Value::bulk("master")),
            ("modules", Value::Array(Vec::new())),
        ];
        let pairs = pairs.map(|(name, value)| (Value::bulk(name), value)).to_vec();
        Writer::new(out, self.version).value(&Value::Map(pairs));
    }

    /// `SESSION`: opens one if there is none, and tells it. `SESSION ID NUMBER REVISION` goes on with one.
    fn session_command(&mut self, words: &Words, deadline: Time, now: Time, out: &mut Vec<u8>) -> Result<Step, String> {
        expect(words, (words.len() == 1 || words.len() == 4) && self.multi.is_none())?;
        if words.len() == 4 {
            // They are answered as numbers of 64 bits with a sign, and a larger one was never told.
            let told = |number: &u64| *number <= i64::MAX as u64;
            let number = |at| number(words.argument(at)).filter(told);
            let number = |at| number(at).ok_or("ERR SESSION [ID NUMBER REVISION], three numbers as SESSION tells them");
            self.session = Session::resumed(SessionId(number(1)?), number(2)?, Revision(number(3)?));
        }
        if self.session.id() == SessionId(0) {
            self.stage = Stage::Opening(None);
            return Ok(Step::Ask(self.request(Work::Open, deadline, now)));
        }
        self.write_session(out);
        Ok(Step::Answered)
    }

    fn write_session(&self, out: &mut Vec<u8>) {
        let numbers = [self.session.id().0, self.session.numbers(), self.session.seen().0];
        let numbers = numbers.map(|number| Value::Integer(number as i64)).to_vec();
        Writer::new(out, self.version).value(&Value::Array(numbers));
    }

    /// A request that belongs to no session.
    fn request(&mut self, work: Work, deadline: Time, now: Time) -> Request {
        self.unnamed = self.unnamed.wrapping_add(1);
        Request {
            id: RequestId {
                session: SessionId(0),
                number: self.unnamed,
            },
            work,
            time_left: deadline.since(now),
            seen: self.session.seen(),
        }
    }

    fn send(&mut self, work: Work, deadline: Time, shapes: Vec<Shape>, several: bool, now: Time) -> Step {
        let pending = Box::new(Pending {
            work,
            deadline,
            shapes,
            several,
            id: RequestId::default(),
        });
        let opens = matches!(pending.work, Work::Transaction(_)) && self.session.id() == SessionId(0);
        match opens {
            true => {
                self.stage = Stage::Opening(Some(pending));
                Step::Ask(self.request(Work::Open, deadline, now))
            }
            false => self.send_now(pending, now),
        }
    }

    fn send_now(&mut self, mut pending: Box<Pending>, now: Time) -> Step {
        let (work, deadline) = (pending.work.clone(), pending.deadline);
        let request = match work {
            Work::Transaction(_) => self.session.request(work, deadline.since(now)),
            _ => self.request(work, deadline, now),
        };
        pending.id = match &request.work {
            Work::Outcome(of) => *of,
            _ => request.id,
        };
        self.stage = Stage::Asked(pending);
        Step::Ask(request)
    }

    /// Takes the node's answer to what was asked; what is to be done next.
    pub fn answered(&mut self, answer: Answer, now: Time, out: &mut Vec<u8>) -> Step {
        match std::mem::take(&mut self.stage) {
            // No node was asked.
            stage @ (Stage::Idle | Stage::Checked(_)) => {
                self.stage = stage;
                Step::Answered
            }
            Stage::Opening(pending) => self.opened(pending, answer, now, out),
            Stage::Asked(pending) => {
                self.session.answered(&answer);
                if let Answer::Refused(Refusal::NoSession { .. }) = answer {
                    self.session = Session::resumed(SessionId(0), 0, self.session.seen());
                }
                self.reply(&pending, answer, out);
                Step::Answered
            }
        }
    }

    fn opened(&mut self, pending: Option<Box<Pending>>, answer: Answer, now: Time, out: &mut Vec<u8>) -> Step {
        self.session.answered(&answer);
        match (answer, pending) {
            (Answer::Done { .. }, Some(pending)) => return self.send_now(pending, now),
            (Answer::Done { .. }, None) => self.write_session(out),
            // Nothing of the client's own was asked for yet, so nothing of it was done.
            (Answer::Unknown, _) => Writer::new(out, self.version).error("LATE reason=expired retry-after-ms=0"),
            (answer, _) => self.refuse(&answer, None, out),
        }
        Step::Answered
    }

    fn reply(&self, pending: &Pending, answer: Answer, out: &mut Vec<u8>) {
        let output = match answer {
            Answer::Done { output, .. } => output,
            answer => return self.refuse(&answer, Some(pending), out),
        };
        match output {
            Output::Values(values) => {
                let mut values = values.into_iter();
                if pending.several {
                    Writer::new(out, self.version).array(pending.shapes.len());
                }
                for shape in &pending.shapes {
                    shape.write(&mut values, &mut Writer::new(out, self.version));
                }
            }
            Output::Fate(fate) => {
                let fate = match fate {
                    Fate::Committed(revision) => format!("committed {revision}"),
                    Fate::NotExecuted => "not-executed".into(),
                    Fate::Forgotten => "forgotten".into(),
                };
                match pending.work {
                    Work::Outcome(_) => Writer::new(out, self.version).simple(&fate),
                    // A number that was used before: a client that resumed a session with too small a one.
                    _ => Writer::new(out, self.version).error(&format!("REFUSED {} was used: {fate}", pending.id)),
                }
            }
            Output::Session(session) => Writer::new(out, self.version).integer(session.0 as i64),
            Output::Reading(reading) => {
                let max_age = match pending.shapes.first() {
                    Some(Shape::Fresh(max_age)) => *max_age,
                    _ => Nanos::ZERO,
                };
                write_reading(reading, max_age, &mut Writer::new(out, self.version));
            }
            Output::Sampled(true) => Writer::new(out, self.version).simple("OK"),
            Output::Sampled(false) => Writer::new(out, self.version).null(),
        }
    }

    /// An answer that says that the request was not executed, or may not have been.
    fn refuse(&self, answer: &Answer, pending: Option<&Pending>, out: &mut Vec<u8>) {
        let id = pending.map_or(RequestId::default(), |pending| pending.id);
        let has_number = pending.is_some_and(|pending| matches!(pending.work, Work::Transaction(_)));
        let text = match answer {
            Answer::Late {
                reason,
                retry_after,
                node,
            } => {
                let node = node.map_or(String::new(), |node| format!(" node={node}"));
                let ms = retry_after.0.div_ceil(1_000_000);
                format!("LATE reason={reason} retry-after-ms={ms}{node}")
            }
            Answer::Unknown if pending.is_some_and(|pending| pending.work.is_of_memory()) => {
                "UNKNOWN it may be set or not: set the next reading".into()
            }
            Answer::Unknown => format!("UNKNOWN {id}"),
            // A client that counts its numbers must know that this was one.
            Answer::Refused(refusal) if has_number => format!("REFUSED {id} {refusal}"),
            Answer::Refused(refusal) => format!("ERR {refusal}"),
            Answer::Done { .. } => return,
        };
        Writer::new(out, self.version).error(&text);
    }
}

impl Shape {
    fn write(self, values: &mut impl Iterator<Item = Option<Vec<u8>>>, writer: &mut Writer<'_>) {
        let one = |value: Option<Vec<u8>>, writer: &mut Writer<'_>| match value {
            Some(value) => writer.bulk(&value),
            None => writer.null(),
        };
        match self {
            Shape::Done => writer.simple("OK"),
            Shape::Value | Shape::Fresh(_) => one(values.next().flatten(), writer),
            Shape::Values(count) => {
                writer.array(count);
                values.take(count).for_each(|value| one(value, writer));
            }
            Shape::Count(count) => writer.integer(values.take(count).flatten().count() as i64),
            Shape::Length => writer.integer(values.next().flatten().map_or(0, |value| value.len() as i64)),
            Shape::Number => {
                let text = values.next().flatten().unwrap_or_default();
                let number = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
                writer.integer(number.unwrap_or(0));
            }
        }
    }
}

/// A command on records.
fn command(words: &Words) -> Result<Command, String> {
    let key = |at: usize| words.argument(at).to_vec();
    let keys = || (1..words.len()).map(key);
    let get = |key| Operation::Get(key);
    let has = |right: bool| expect(words, right);
    let (operations, shape) = match name(words).as_str() {
        "GET" => {
            has(words.len() == 2)?;
            (vec![get(key(1))], Shape::Value)
        }
        "MGET" => {
            has(words.len() > 1)?;
            (keys().map(get).collect(), Shape::Values(words.len() - 1))
        }
        "GETFRESH" => {
            has(words.len() == 3)?;
            (vec![Operation::Fresh(key(1), span(words.argument(2))?)], Shape::Value)
        }
        "SET" => {
            has(words.len() >= 3)?;
            if words.len() > 3 {
                return Err("ERR SET KEY VALUE takes no options in a federation".into());
            }
            (vec![Operation::Put(key(1), key(2))], Shape::Done)
        }
        "MSET" => {
            has(words.len() >= 3 && words.len() % 2 == 1)?;
            let pairs = (1..words.len()).step_by(2);
            (
                pairs.map(|at| Operation::Put(key(at), key(at + 1))).collect(),
                Shape::Done,
            )
        }
        "DEL" => {
            has(words.len() > 1)?;
            let each = keys().flat_map(|key| [get(key.clone()), Operation::Delete(key)]);
            (each.collect(), Shape::Count(words.len() - 1))
        }
        "APPEND" => {
            has(words.len() == 3)?;
            (vec![Operation::Append(key(1), key(2)), get(key(1))], Shape::Length)
        }
        "INCR" | "DECR" => {
            has(words.len() == 2)?;
            let by = if name(words) == "INCR" { 1 } else { -1 };
            (vec![Operation::Add(key(1), by)], Shape::Number)
        }
        "INCRBY" | "DECRBY" => {
            has(words.len() == 3)?;
            let text = std::str::from_utf8(words.argument(2)).ok();
            let by = text.and_then(|text| text.parse::<i64>().ok());
            let by = match name(words).as_str() {
                "INCRBY" => by,
                _ => by.and_then(i64::checked_neg),
            };
            let by = by.ok_or("ERR value is not an integer or out of range")?;
            (vec![Operation::Add(key(1), by)], Shape::Number)
        }
        other => {
            let shown: String = other.chars().take(64).collect();
            return Err(format!(
                "ERR unknown command '{shown}' of a federation (docs/commands.md)"
            ));
        }
    };
    Ok(Command { operations, shape })
}

/// `TSET` and `GETFRESH`, of a request that was read `waited` ago.
fn of_memory(words: &Words, waited: Nanos) -> Result<Option<(Work, Shape)>, String> {
    let key = || words.argument(1).to_vec();
    if words.argument(0).eq_ignore_ascii_case(b"tset") {
        expect(words, words.len() >= 3)?;
        let age = match words.len() {
            3 => Nanos::ZERO,
            5 if words.argument(3).eq_ignore_ascii_case(b"age") => span(words.argument(4))?,
            _ => return Err("ERR syntax error".into()),
        };
        let sample = Sample {
            key: key(),
            value: words.argument(2).to_vec(),
            age: Nanos(age.0.saturating_add(waited.0)),
            since: None,
        };
        return Ok(Some((Work::Sample(sample), Shape::Done)));
    }
    if words.argument(0).eq_ignore_ascii_case(b"getfresh") {
        expect(words, words.len() == 3)?;
        return Ok(Some((Work::Fresh(key()), Shape::Fresh(span(words.argument(2))?))));
    }
    Ok(None)
}

/// What `GETFRESH` answers.
fn write_reading(reading: Option<(Nanos, Vec<u8>)>, max_age: Nanos, out: &mut Writer<'_>) {
    match reading {
        None => out.null_array(),
        Some((Nanos::MAX, _)) => out.error("STALE age-ms=unknown"),
        Some((age, value)) => {
            // Rounded up: an age is never told as younger than it is.
            let age_ms = age.0.div_ceil(1_000_000);
            if age > max_age {
                return out.error(&format!("STALE age-ms={age_ms}"));
            }
            out.array(2);
            out.bulk(&value);
            out.integer(i64::try_from(age_ms).unwrap_or(i64::MAX));
        }
    }
}

/// An age in milliseconds.
fn span(text: &[u8]) -> Result<Nanos, String> {
    let ms = number(text).and_then(|ms| ms.checked_mul(1_000_000));
    ms.map(Nanos)
        .ok_or_else(|| "ERR an age is a number of milliseconds, not negative".into())
}

fn name(words: &Words) -> String {
    word(words, 0)
}

fn word(words: &Words, at: usize) -> String {
    String::from_utf8_lossy(words.argument(at)).to_ascii_uppercase()
}

fn expect(words: &Words, right: bool) -> Result<(), String> {
    match right {
        true => Ok(()),
        false => Err(format!(
            "ERR wrong number of arguments for '{}' command",
            name(words).to_lowercase()
        )),
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn millis(text: &[u8]) -> Result<Nanos, String> {
    match number(text) {
        Some(ms @ 1..=DEADLINE_MS_MAX) => Ok(Nanos::from_millis(ms)),
        _ => Err(format!(
            "ERR a deadline is 1 to {DEADLINE_MS_MAX} milliseconds from now"
        )),
    }
}

fn request_id(text: &[u8]) -> Result<RequestId, String> {
    let wrong = "ERR OUTCOME SESSION.NUMBER, as UNKNOWN names it";
    let text = std::str::from_utf8(text).map_err(|_| wrong)?;
    let (session, number) = text.split_once('.').ok_or(wrong)?;
    Ok(RequestId {
        session: SessionId(session.parse().map_err(|_| wrong)?),
        number: number.parse().map_err(|_| wrong)?,
    })
}

#[cfg(test)]
mod tests;
