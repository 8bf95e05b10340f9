//! State of a client's conversation with a node, and the translation of its requests for the federation. Pure.
//!
//! The commands are those of a store that is served alone (`punctual_server::commands`), as far as they concern
//! records. A command that changes nothing is a query outside of `MULTI`, which any node answers; all others are
//! transactions, which the master executes. Unknown commands are refused. `TSET` and `GETFRESH` outside of `MULTI` are
//! about temporal objects, which are in the memory of each node.
//!
//! A client gets a session of the federation with its first transaction. Its transactions are numbered from there, each
//! by the next number. So a client that has asked for its `SESSION` knows, when its connection breaks, the name of the
//! request without an answer, and asks for its `OUTCOME` on another node. A refused request with a number is answered
//! `-REFUSED`, one without `-ERR`.

mod connection;
mod reply;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use punctual_federation::ids::{RequestId, Revision, SessionId};
use punctual_federation::message::{ClientCommand, ClientReading, Key, Operation, Request, Work, check_key};
use punctual_federation::session::ClientSession;
use punctual_server::commands::{self, Class, Scope, Verb};
use punctual_server::cursors::{Cursors, spell};
use punctual_server::login::{Login, LoginClaim, NO_HTTP, is_http};
use punctual_server::resp::request::Request as Words;
use punctual_server::resp::{Reply, Resp, Writer};
use punctual_server::session::ServerSettings;
use punctual_units::{Nanos, Time};

use crate::whereabouts::Inquiry;

/// Time that a request has, unless its client sets a deadline.
pub const TIME_LEFT: Nanos = Nanos::from_secs(1);
/// The longest deadline, in milliseconds: `federation::message::TIME_LEFT_MAX`.
pub const DEADLINE_MS_MAX: u64 = 3_600_000;
/// The most commands between MULTI and EXEC.
pub const QUEUED_MAX: usize = 128;
/// The most channels and patterns that a client subscribes to.
pub const SUBSCRIPTIONS_MAX: usize = 256;
/// The most keys that a client watches.
pub const WATCHED_MAX: usize = 16;
/// The most bytes of the values of watched keys.
pub const WATCHED_BYTES_MAX: usize = 4 << 20;
/// The most bytes of arguments between MULTI and EXEC: more than an entry of the log takes.
pub const QUEUED_BYTES_MAX: usize = 2 << 20;

/// How the result of a request becomes a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// The value is the reply.
    Reply,
    /// The value is a reply to `SCAN`, whose cursor is a key.
    Scan,
    /// The value is a record that EXEC compares.
    Watched,
    /// The value is a reading, which may have this age at most.
    Fresh(Nanos),
}

/// A request that was sent to the node, with the form of its reply.
#[derive(Clone, Debug)]
struct Pending {
    work: Work,
    deadline: Time,
    /// The shape of each value in the answer.
    shapes: Vec<Shape>,
    /// Whether the reply is an array of replies, as EXEC answers.
    several: bool,
    /// The keys of WATCH.
    watches: Vec<Key>,
    id: RequestId,
}

/// The answer or result for which the client waits, if any.
#[derive(Clone, Debug, Default)]
enum Stage {
    #[default]
    Idle,
    /// A session is being opened, then the request is sent. `None`: the client asked for the session itself.
    Opening(Option<Box<Pending>>),
    Asked(Box<Pending>),
    /// A subscription waits until changes can be reported.
    Subscribing,
    /// The password in the request is being checked.
    Checked(Box<Words>),
}

/// How the event loop goes on with a client's request.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Nothing is left to do: the reply is written.
    Answered,
    /// The reply is written; close the connection once it is sent.
    Close,
    /// Send a request to the node.
    Ask(Request),
    /// Reply with these sections of INFO; all, if there are none.
    Info(Vec<String>),
    /// Subscribe to channels (`true`: patterns).
    Subscribe(Words, bool),
    /// Unsubscribe from channels (`true`: patterns); from all, if the request names none.
    Unsubscribe(Words, bool),
    /// Reply with the number of other nodes that have applied this revision.
    Wait(Revision),
    /// Reply with the addresses of the federation's nodes, as a Redis sentinel would.
    Whereabouts(Inquiry),
    /// Check a password, then call [`Conversation::judged`].
    Check(LoginClaim),
}

/// A client's side of a connection.
#[derive(Clone, Debug)]
pub struct Conversation {
    login: Login,
    version: Resp,
    session: ClientSession,
    time_left: Nanos,
    multi: Option<Multi>,
    /// The watched records, which EXEC compares.
    watched: Vec<(Key, Option<Vec<u8>>)>,
    /// The channels, then the patterns, that the client subscribes to.
    heard: [BTreeSet<Vec<u8>>; 2],
    /// Name given by CLIENT SETNAME; empty at first.
    name: String,
    settings: ServerSettings,
    /// Cursors of all clients' scans.
    cursors: Arc<Cursors>,
    stage: Stage,
    connection: u32,
    /// Number of the last request outside of a session; each request of a node has another one.
    unnamed: u64,
}

/// Commands between MULTI and EXEC.
#[derive(Clone, Debug, Default)]
struct Multi {
    commands: Vec<(ClientCommand, Shape)>,
    bytes: usize,
    broken: bool,
}

impl Conversation {
    /// Makes the conversation of a new client, on the connection of that number, which no other connection of the
    /// process has. The numbers of requests outside of a session begin at `first`, drawn at random when the process
    /// starts: a late answer to a query of an earlier start then has a name that no query of this start has.
    pub fn new(login: Login, cursors: Arc<Cursors>, first: u64, connection: u32) -> Conversation {
        Conversation {
            login,
            version: Resp::Two,
            session: ClientSession::default(),
            time_left: TIME_LEFT,
            multi: None,
            watched: Vec::new(),
            heard: Default::default(),
            name: String::new(),
            settings: ServerSettings {
                config: BTreeMap::from([("databases", "1".into())]),
            },
            cursors,
            stage: Stage::Idle,
            connection,
            unnamed: first.wrapping_add(u64::from(connection) << 32),
        }
    }

    /// The user of the connection.
    pub fn login(&self) -> &Login {
        &self.login
    }

    /// The protocol version of replies.
    pub fn version(&self) -> Resp {
        self.version
    }

    /// Whether a request waits for the node's answer; the next request begins after it.
    pub fn is_waiting(&self) -> bool {
        !matches!(self.stage, Stage::Idle)
    }

    /// Whether the present request leaves no trace at the node; then its answer may be left out, and the request called
    /// late.
    pub fn leaves_nothing(&self) -> bool {
        matches!(&self.stage, Stage::Asked(pending) if pending.work.leaves_nothing())
    }

    /// The channels (`patterns`: the patterns) that the client subscribes to.
    pub fn heard(&self, patterns: bool) -> &BTreeSet<Vec<u8>> {
        &self.heard[usize::from(patterns)]
    }

    /// Number of channels and patterns that the client subscribes to.
    pub fn subscriptions(&self) -> usize {
        self.heard.iter().map(BTreeSet::len).sum()
    }

    /// Adds (`begins`) or removes a subscription to a channel (`patterns`: to a pattern).
    pub fn hears(&mut self, name: &[u8], patterns: bool, begins: bool) {
        let heard = &mut self.heard[usize::from(patterns)];
        match begins {
            true => heard.insert(name.to_vec()),
            false => heard.remove(name),
        };
    }

    /// Makes a subscription wait until changes can be reported.
    pub fn waits_to_hear(&mut self) {
        self.stage = Stage::Subscribing;
    }

    /// Ends the wait of a subscription; returns whether one waited.
    pub fn has_waited_to_hear(&mut self) -> bool {
        let waited = matches!(self.stage, Stage::Subscribing);
        if waited {
            self.stage = Stage::Idle;
        }
        waited
    }

    /// Time that each request has, unless `DEADLINE` gives another.
    pub fn time_left(&self) -> Nanos {
        self.time_left
    }

    /// Number of the client's connection.
    pub fn connection(&self) -> u32 {
        self.connection
    }

    /// Takes a request that was read at `arrived`; its deadline counts from there.
    pub fn take(&mut self, words: &Words, arrived: Time, now: Time, out: &mut Vec<u8>) -> Next {
        match self.interpret(words, arrived, now, out) {
            Ok(step) => step,
            Err(error) => {
                if let Some(multi) = &mut self.multi {
                    multi.broken = true;
                }
                Writer::new(out, self.version).error(&error);
                Next::Answered
            }
        }
    }

    fn interpret(&mut self, words: &Words, arrived: Time, now: Time, out: &mut Vec<u8>) -> Result<Next, String> {
        let rest;
        let (mut words, mut time_left) = (words, self.time_left);
        if words.argument(0).eq_ignore_ascii_case(b"deadline") {
            if words.len() < 3 {
                return Err("ERR syntax error: DEADLINE MS COMMAND ..".into());
            }
            if self.multi.is_some() && !words.argument(2).eq_ignore_ascii_case(b"exec") {
                return Err("ERR within MULTI, give the deadline to EXEC".into());
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
            return Ok(Next::Close);
        }
        self.allow(words)?;
        let known = commands::find(words.argument(0));
        if let Some(step) = self.channel_command(known, words, out)? {
            return Ok(step);
        }
        if let Some(known) = known.filter(|_| self.multi.is_some()) {
            if !known.takes(words.len()) {
                return Err(commands::wrong_number_of_arguments(known.name));
            }
            let refused = match (known.verb, known.place) {
                // As in Redis, these two get an error, and EXEC still carries out the other commands.
                (Verb::Multi, _) => "ERR MULTI calls can not be nested",
                (Verb::Watch, _) => "ERR WATCH inside MULTI is not allowed",
                (Verb::Exec | Verb::Discard | Verb::Quit, _) => "",
                (_, Scope::Anywhere | Scope::Transaction) => return self.queue(known, words, out),
                _ => {
                    return Err(format!(
                        "ERR {} is not taken within MULTI here",
                        known.name.to_uppercase()
                    ));
                }
            };
            if !refused.is_empty() {
                Writer::new(out, self.version).error(refused);
                return Ok(Next::Answered);
            }
        }
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
            "EXEC" => {
                expect(words, words.len() == 1)?;
                let multi = self.multi.take().ok_or("ERR EXEC without MULTI")?;
                let watched = std::mem::take(&mut self.watched);
                if multi.broken {
                    return Err("EXECABORT Transaction discarded because of previous errors.".into());
                }
                let (commands, shapes): (Vec<_>, Vec<_>) = multi.commands.into_iter().unzip();
                let expected = watched.into_iter().map(|(key, value)| Operation::Expect(key, value));
                let operations = expected.chain(commands.into_iter().map(Operation::Run));
                let work = Work::Transaction(operations.collect());
                return Ok(self.send(work, deadline, shapes, true, now));
            }
            "WATCH" => {
                expect(words, words.len() > 1)?;
                return self.watch(words, deadline, now, out);
            }
            "SENTINEL" => return Inquiry::read(words).map(Next::Whereabouts),
            "SESSION" => return self.session_command(words, deadline, now, out),
            "OUTCOME" => {
                expect(words, words.len() == 2 && self.multi.is_none())?;
                let id = request_id(words.argument(1))?;
                return Ok(self.send(Work::Outcome(id), deadline, Vec::new(), false, now));
            }
            _ => {}
        }
        let Some(known) = known.filter(|known| known.place == Scope::Transaction) else {
            let shown: String = name(words).chars().take(64).collect();
            return Err(format!(
                "ERR unknown command '{shown}' of a federation (docs/commands.md)"
            ));
        };
        let (command, shape) = self.command(known, words)?;
        let work = match command.writes {
            true => Work::Transaction(vec![Operation::Run(command)]),
            false => Work::Look(command),
        };
        Ok(self.send(work, deadline, vec![shape], false, now))
    }

    /// Translates a command on records for a node.
    fn command(&self, known: &commands::Command, words: &Words) -> Result<(ClientCommand, Shape), String> {
        if !known.takes(words.len()) {
            return Err(commands::wrong_number_of_arguments(known.name));
        }
        let mut items = 0;
        for key in known.keys_of(words) {
            items += 1;
            check_key(key).map_err(|refusal| format!("ERR {refusal}"))?;
        }
        let (mut each, mut shape): (Vec<Vec<u8>>, _) = (words.from(0).map(<[u8]>::to_vec).collect(), Shape::Reply);
        if known.verb == Verb::Scan {
            shape = Shape::Scan;
            if let Some(last) = self.cursors.find(words.argument(1))? {
                each[1] = spell(&last);
            }
        }
        let command = ClientCommand {
            words: each,
            items: items.max(1),
            writes: known.class == Class::Write,
            version: if self.version == Resp::Three { 3 } else { 2 },
        };
        Ok((command, shape))
    }

    fn queue(&mut self, known: &commands::Command, words: &Words, out: &mut Vec<u8>) -> Result<Next, String> {
        if matches!(known.verb, Verb::Keys | Verb::DbSize | Verb::Scan) {
            // The master would visit all keys, again and again, and execute no other client's transaction meanwhile.
            return Err(format!(
                "ERR {} looks at all keys: say it outside of MULTI",
                known.name.to_uppercase()
            ));
        }
        let command = self.command(known, words)?;
        let Some(multi) = &mut self.multi else {
            return Ok(Next::Answered);
        };
        multi.bytes += words.bytes();
        if multi.commands.len() >= QUEUED_MAX || multi.bytes > QUEUED_BYTES_MAX {
            let most = format!("{QUEUED_MAX} commands and {QUEUED_BYTES_MAX} bytes");
            return Err(format!(
                "ERR at most {most} between MULTI and EXEC: split the transaction"
            ));
        }
        multi.commands.push(command);
        Writer::new(out, self.version).simple("QUEUED");
        Ok(Next::Answered)
    }

    /// Carries out `WATCH`: reads the keys from one snapshot, for EXEC to compare.
    fn watch(&mut self, words: &Words, deadline: Time, now: Time, out: &mut Vec<u8>) -> Result<Next, String> {
        let new = words
            .from(1)
            .filter(|key| !self.watched.iter().any(|(known, _)| known == key));
        let keys: Vec<Key> = new.map(<[u8]>::to_vec).collect();
        if self.watched.len() + keys.len() > WATCHED_MAX {
            return Err(format!("ERR at most {WATCHED_MAX} keys are watched: UNWATCH some"));
        }
        if keys.is_empty() {
            // All keys are watched already, and keep their first values.
            Writer::new(out, self.version).simple("OK");
            return Ok(Next::Answered);
        }
        let work = Work::Query {
            keys: keys.clone(),
            latest: false,
            max_age: Nanos::MAX,
        };
        let step = self.send(work, deadline, vec![Shape::Watched; keys.len()], false, now);
        if let Stage::Asked(pending) = &mut self.stage {
            pending.watches = keys;
        }
        Ok(step)
    }

    /// Carries out `SESSION`: replies with the session, and opens one if there is none. `SESSION ID NUMBER REVISION`
    /// resumes a session.
    fn session_command(&mut self, words: &Words, deadline: Time, now: Time, out: &mut Vec<u8>) -> Result<Next, String> {
        expect(words, (words.len() == 1 || words.len() == 4) && self.multi.is_none())?;
        if words.len() == 4 {
            // Replies have numbers of 64 bits with a sign, so no larger number was ever shown.
            let told = |number: &u64| *number <= i64::MAX as u64;
            let number = |at| number(words.argument(at)).filter(told);
            let number = |at| number(at).ok_or("ERR SESSION [ID NUMBER REVISION], three numbers as SESSION tells them");
            self.session = ClientSession::resumed(SessionId(number(1)?), number(2)?, Revision(number(3)?));
        }
        if self.session.id() == SessionId(0) {
            self.stage = Stage::Opening(None);
            return Ok(Next::Ask(self.request(Work::Open, deadline, now)));
        }
        self.write_session(out);
        Ok(Next::Answered)
    }

    fn write_session(&self, out: &mut Vec<u8>) {
        let numbers = [self.session.id().0, self.session.numbers(), self.session.seen().0];
        let numbers = numbers.map(|number| Reply::Integer(number as i64)).to_vec();
        Writer::new(out, self.version).value(&Reply::Array(numbers));
    }

    /// Makes a request outside of a session.
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

    fn send(&mut self, work: Work, deadline: Time, shapes: Vec<Shape>, several: bool, now: Time) -> Next {
        let pending = Box::new(Pending {
            work,
            deadline,
            shapes,
            several,
            watches: Vec::new(),
            id: RequestId::default(),
        });
        let opens = matches!(pending.work, Work::Transaction(_)) && self.session.id() == SessionId(0);
        match opens {
            true => {
                self.stage = Stage::Opening(Some(pending));
                Next::Ask(self.request(Work::Open, deadline, now))
            }
            false => self.send_now(pending, now),
        }
    }

    fn send_now(&mut self, mut pending: Box<Pending>, now: Time) -> Next {
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
        Next::Ask(request)
    }
}

/// Translates `TSET` and `GETFRESH`, for a request that was read `waited` ago.
fn of_memory(words: &Words, waited: Nanos) -> Result<Option<(Work, Shape)>, String> {
    let key = || words.argument(1).to_vec();
    if words.argument(0).eq_ignore_ascii_case(b"tset") {
        expect(words, words.len() >= 3)?;
        let age = match words.len() {
            3 => Nanos::ZERO,
            5 if words.argument(3).eq_ignore_ascii_case(b"age") => span(words.argument(4))?,
            _ => return Err("ERR syntax error".into()),
        };
        let sample = ClientReading {
            key: key(),
            value: words.argument(2).to_vec(),
            age: Nanos(age.0.saturating_add(waited.0)),
            since: None,
        };
        return Ok(Some((Work::Sample(sample), Shape::Reply)));
    }
    if words.argument(0).eq_ignore_ascii_case(b"getfresh") {
        expect(words, words.len() == 3)?;
        return Ok(Some((Work::Fresh(key()), Shape::Fresh(span(words.argument(2))?))));
    }
    Ok(None)
}

/// Parses an age in milliseconds.
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
