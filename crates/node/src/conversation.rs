//! Translation of a client's requests for the federation, and of its answers for the client. Pure.
//!
//! The client's session (`punctual_server::session`) parses and refuses requests as on a store that is served alone,
//! and passes those of the backend here. A command that changes nothing is a query outside of `MULTI`, which any node
//! answers; all others are transactions, which the master executes. `TSET` and `GETFRESH` outside of `MULTI` are about
//! temporal objects, which are in the memory of each node; `TSET`s that a client sends ahead are under way together.
//!
//! A client gets a session of the federation with its first transaction. Its transactions are numbered from there, each
//! by the next number. So a client that has asked for its `SESSION` knows, when its connection breaks, the name of the
//! request without an answer, and asks for its `OUTCOME` on another node. A refused request with a number is answered
//! `-REFUSED`, one without `-ERR`.

mod reply;

use std::sync::Arc;

use punctual_federation::ids::{RequestId, Revision, SessionId};
use punctual_federation::message::{self, ClientCommand, ClientReading, Key, Operation, Request, check_key};
use punctual_federation::session::ClientSession;
use punctual_server::commands::{self, Class, Verb, wrong_number_of_arguments};
use punctual_server::cursors::{Cursors, spell};
use punctual_server::resp::request::Request as Words;
use punctual_server::resp::{Bounds, Reply, Resp, Writer};
use punctual_server::session::{Call, Limits, ServerSettings, Session, TOO_MUCH_WATCHED};
use punctual_server::work::Work;
use punctual_units::{Nanos, Time};

use crate::whereabouts::Inquiry;

/// Time that a request has, unless its client sets a deadline.
pub const TIME_LEFT: Nanos = Nanos::from_secs(1);

/// Limits of each connection.
pub const LIMITS: Limits = Limits {
    queued: 128,
    // More than an entry of the log takes.
    queued_bytes: 2 << 20,
    watched: 16,
    watched_bytes: 4 << 20,
    subscriptions: 256,
    // `federation::message::TIME_LEFT_MAX`.
    deadline_ms: 3_600_000,
    time_left: Some(TIME_LEFT),
    // A transaction has the same bounds.
    request: &Bounds {
        arguments: 32_768,
        bulk: 1 << 20,
        request: 2 << 20,
        inline: 16 << 10,
        depth: 2,
    },
    // The master would visit all keys, again and again, and execute no other client's transaction meanwhile.
    scans_in_multi: false,
    is_federation: true,
};

/// Settings of sessions in a process that takes at most `clients_max` clients.
pub fn settings(clients_max: usize) -> ServerSettings {
    let own = [("appendonly", "yes".into()), ("maxclients", clients_max.to_string())];
    ServerSettings::of(LIMITS, own)
}

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
    work: message::Work,
    deadline: Time,
    /// The shape of each value in the answer.
    shapes: Vec<Shape>,
    /// Whether the reply is an array of replies, as EXEC answers.
    several: bool,
    /// The keys of WATCH, and the most bytes of them with their values.
    watches: (Vec<Key>, usize),
    id: RequestId,
}

/// The answer for which the client waits, if any.
#[derive(Clone, Debug, Default)]
enum Stage {
    #[default]
    Idle,
    /// A session is being opened, then the request is sent. `None`: the client asked for the session itself.
    Opening(Option<Box<Pending>>),
    Asked(Box<Pending>),
    /// A run of readings that are set together, each with its request or its reply.
    Setting(Vec<Result<Box<Pending>, Vec<u8>>>),
}

/// How the event loop goes on with a client's request.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Nothing is left to do: the reply is written.
    Answered,
    /// Send a request to the node.
    Ask(Request),
    /// Send these requests together; each has its place among the replies.
    Set(Vec<(usize, Request)>),
    /// Other answers have to come before the reply is written.
    Waits,
    /// Reply with the addresses of the federation's nodes, as a Redis sentinel would.
    Whereabouts(Inquiry),
}

/// A client's side of the federation.
#[derive(Clone, Debug)]
pub struct Conversation {
    session: ClientSession,
    /// Cursors of all clients' scans.
    cursors: Arc<Cursors>,
    stage: Stage,
    /// Protocol version of the reply to the present request.
    version: Resp,
    /// Number of the last request outside of a session; each request of a node has another one.
    unnamed: u64,
}

impl Conversation {
    /// Makes the conversation of a new client, on the connection of that number, which no other connection of the
    /// process has. The numbers of requests outside of a session begin at `first`, drawn at random when the process
    /// starts: a late answer to a query of an earlier start then has a name that no query of this start has.
    pub fn new(cursors: Arc<Cursors>, first: u64, connection: u32) -> Conversation {
        Conversation {
            session: ClientSession::default(),
            cursors,
            stage: Stage::Idle,
            version: Resp::Two,
            unnamed: first.wrapping_add(u64::from(connection) << 32),
        }
    }

    /// Forgets the session of the federation, as RESET does.
    pub fn reset(&mut self) {
        self.session = ClientSession::default();
    }

    /// Whether the present request leaves no trace at the node; then its answer may be left out, and the request called
    /// late.
    pub fn leaves_nothing(&self) -> bool {
        matches!(&self.stage, Stage::Asked(pending) if pending.work.leaves_nothing())
    }

    /// The last revision that the client has seen.
    pub fn seen(&self) -> Revision {
        self.session.seen()
    }

    /// Takes work of the client whose session is `client`.
    pub fn take(&mut self, work: Work, client: &Session, now: Time, out: &mut Vec<u8>) -> Next {
        self.version = client.version;
        self.translate(work, client, now, out).unwrap_or_else(|error| {
            Writer::new(out, client.version).error(&error);
            Next::Answered
        })
    }

    fn translate(&mut self, work: Work, client: &Session, now: Time, out: &mut Vec<u8>) -> Result<Next, String> {
        match work {
            Work::Run(calls) if calls.len() > 1 => Ok(self.set_all(&calls, now, out)),
            Work::Run(calls) => {
                let call = calls.first().ok_or("ERR no command")?;
                self.call(call, now, out)
            }
            Work::Exec(calls, watched, deadline) => {
                let expected = watched.into_iter().map(|read| Operation::Expect(read.key, read.value));
                let mut operations: Vec<_> = expected.collect();
                for call in &calls {
                    operations.push(Operation::Run(self.command(call)?));
                }
                let shapes = vec![Shape::Reply; calls.len()];
                Ok(self.send(message::Work::Transaction(operations), deadline, shapes, true, now))
            }
            Work::Watch(words, deadline, room) => self.watch(&words, deadline, room, client, now, out),
            // Changes of keys are reported in any case.
            Work::Listen => Ok(Next::Answered),
        }
    }

    fn call(&mut self, call: &Call, now: Time, out: &mut Vec<u8>) -> Result<Next, String> {
        let (words, deadline) = (&call.request, call.deadline);
        let (work, shape) = match call.command.verb {
            Verb::Sentinel => return Inquiry::read(words).map(Next::Whereabouts),
            Verb::Session => return self.session_command(words, deadline, now, out),
            Verb::Outcome => {
                let work = message::Work::Outcome(request_id(words.argument(1))?);
                return Ok(self.send(work, deadline, Vec::new(), false, now));
            }
            Verb::FlushAll | Verb::FlushDb => {
                let name = call.command.name.to_uppercase();
                return Err(format!(
                    "ERR {name} is not taken in a federation, because it is no transaction: remove what SCAN finds"
                ));
            }
            Verb::TSet => {
                let (age, waited) = (commands::sample_age(words)?, now.since(call.arrived));
                let reading = ClientReading {
                    key: words.argument(1).to_vec(),
                    value: words.argument(2).to_vec(),
                    age: Nanos(age.0.saturating_add(waited.0)),
                    since: None,
                };
                (message::Work::Sample(reading), Shape::Reply)
            }
            Verb::GetFresh => {
                let max_age = commands::age(words.argument(2))?;
                (message::Work::Fresh(words.argument(1).to_vec()), Shape::Fresh(max_age))
            }
            verb => {
                let command = self.command(call)?;
                let work = match command.writes {
                    true => message::Work::Transaction(vec![Operation::Run(command)]),
                    false => message::Work::Look(command),
                };
                let shape = match verb {
                    Verb::Scan => Shape::Scan,
                    _ => Shape::Reply,
                };
                (work, shape)
            }
        };
        Ok(self.send(work, deadline, vec![shape], false, now))
    }

    /// Sets a run of readings, so that none waits for the answer to the one before: that way the source of many would
    /// be as slow as the nodes' answers.
    fn set_all(&mut self, calls: &[Call], now: Time, out: &mut Vec<u8>) -> Next {
        let (mut all, mut requests) = (Vec::with_capacity(calls.len()), Vec::with_capacity(calls.len()));
        for (place, call) in calls.iter().enumerate() {
            let mut reply = Vec::new();
            match self.call(call, now, &mut reply) {
                Ok(Next::Ask(request)) => requests.push((place, request)),
                Ok(_) => {}
                Err(error) => Writer::new(&mut reply, self.version).error(&error),
            }
            all.push(match std::mem::take(&mut self.stage) {
                Stage::Asked(pending) => Ok(pending),
                _ => Err(reply),
            });
        }
        if requests.is_empty() {
            out.extend(all.into_iter().filter_map(Result::err).flatten());
            return Next::Answered;
        }
        self.stage = Stage::Setting(all);
        Next::Set(requests)
    }

    /// Translates a command on records for a node.
    fn command(&self, call: &Call) -> Result<ClientCommand, String> {
        let words = &call.request;
        let mut items = 0;
        for key in call.command.keys_of(words) {
            items += 1;
            check_key(key).map_err(|refusal| format!("ERR {refusal}"))?;
        }
        let mut each: Vec<Vec<u8>> = words.from(0).map(<[u8]>::to_vec).collect();
        if call.command.verb == Verb::Scan
            && let Some(last) = self.cursors.find(words.argument(1))?
        {
            each[1] = spell(&last);
        }
        Ok(ClientCommand {
            words: each,
            items: items.max(1),
            writes: call.command.class == Class::Write,
            version: if self.version == Resp::Three { 3 } else { 2 },
        })
    }

    /// Carries out `WATCH`: reads the keys from one snapshot, for EXEC to compare.
    fn watch(
        &mut self,
        words: &Words,
        deadline: Time,
        room: (usize, usize),
        client: &Session,
        now: Time,
        out: &mut Vec<u8>,
    ) -> Result<Next, String> {
        let new = words.from(1).filter(|key| !client.watches(key));
        let keys: Vec<Key> = new.map(<[u8]>::to_vec).collect();
        if keys.len() > room.0 {
            return Err(TOO_MUCH_WATCHED.into());
        }
        if keys.is_empty() {
            // All keys are watched already, and keep their first values.
            Writer::new(out, client.version).simple("OK");
            return Ok(Next::Answered);
        }
        let work = message::Work::Query {
            keys: keys.clone(),
            latest: false,
            max_age: Nanos::MAX,
        };
        let step = self.send(work, deadline, vec![Shape::Watched; keys.len()], false, now);
        if let Stage::Asked(pending) = &mut self.stage {
            pending.watches = (keys, room.1);
        }
        Ok(step)
    }

    /// Carries out `SESSION`: replies with the session, and opens one if there is none. `SESSION ID NUMBER REVISION`
    /// resumes a session.
    fn session_command(&mut self, words: &Words, deadline: Time, now: Time, out: &mut Vec<u8>) -> Result<Next, String> {
        match words.len() {
            1 => {}
            4 => {
                // Replies have numbers of 64 bits with a sign, so no larger number was ever shown.
                let told = |number: &u64| *number <= i64::MAX as u64;
                let number = |at| number(words.argument(at)).filter(told);
                let number =
                    |at| number(at).ok_or("ERR SESSION [ID NUMBER REVISION], three numbers as SESSION tells them");
                self.session = ClientSession::resumed(SessionId(number(1)?), number(2)?, Revision(number(3)?));
            }
            _ => return Err(wrong_number_of_arguments("session")),
        }
        if self.session.id() == SessionId(0) {
            self.stage = Stage::Opening(None);
            return Ok(Next::Ask(self.request(message::Work::Open, deadline, now)));
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
    fn request(&mut self, work: message::Work, deadline: Time, now: Time) -> Request {
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

    fn send(&mut self, work: message::Work, deadline: Time, shapes: Vec<Shape>, several: bool, now: Time) -> Next {
        let pending = Box::new(Pending {
            work,
            deadline,
            shapes,
            several,
            watches: Default::default(),
            id: RequestId::default(),
        });
        let opens = matches!(pending.work, message::Work::Transaction(_)) && self.session.id() == SessionId(0);
        match opens {
            true => {
                self.stage = Stage::Opening(Some(pending));
                Next::Ask(self.request(message::Work::Open, deadline, now))
            }
            false => self.send_now(pending, now),
        }
    }

    fn send_now(&mut self, mut pending: Box<Pending>, now: Time) -> Next {
        let (work, deadline) = (pending.work.clone(), pending.deadline);
        let request = match work {
            message::Work::Transaction(_) => self.session.request(work, deadline.since(now)),
            _ => self.request(work, deadline, now),
        };
        pending.id = match &request.work {
            message::Work::Outcome(of) => *of,
            _ => request.id,
        };
        self.stage = Stage::Asked(pending);
        Next::Ask(request)
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
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
