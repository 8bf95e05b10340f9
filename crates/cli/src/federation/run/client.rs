//! One client of the load: a session of the federation, which counts, and knows what became of each of its requests.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use punctual_federation::ids::{RequestId, SessionId};
use punctual_os::LinuxOs;
use punctual_server::resp::reply::ReplyParser;
use punctual_server::resp::{Bounds, Value, Version, Writer};
use punctual_units::{Clock, Nanos, Time};

use super::audit::{Fate, Request};

/// How long a client waits for an answer beyond the deadline that it gave: a node answers before the deadline, and the
/// rest is for this machine's scheduler.
const GRACE: Nanos = Nanos::from_millis(250);
/// How long a client asks for the outcome of a request before it gives up.
const OUTCOME_MAX: Nanos = Nanos::from_secs(60);
/// How long one question for an outcome, or for a session, may take.
const ASK_MAX: Nanos = Nanos::from_millis(500);
const CONNECT_MAX: Duration = Duration::from_millis(200);
/// The shortest wait before a request is sent again.
const AGAIN: Nanos = Nanos::from_millis(5);

/// Where the nodes are, and which one is the master, as clients believe.
#[derive(Debug)]
pub(super) struct Nodes {
    pub addresses: Mutex<Vec<SocketAddr>>,
    pub master: AtomicUsize,
    /// The run is to end at once.
    pub ends: Arc<AtomicBool>,
}

impl Nodes {
    fn address(&self, node: usize) -> Option<SocketAddr> {
        let addresses = self.addresses.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        addresses.get(node).copied()
    }

    fn next(&self, from: usize) {
        let addresses = self.addresses.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let next = (from + 1) % addresses.len().max(1);
        // Another client may have found the master meanwhile.
        let _ = self
            .master
            .compare_exchange(from, next, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// How an arrival ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Acknowledged before its deadline.
    Timely,
    /// Acknowledged after it.
    Overdue,
    /// It was not executed: there was no time left.
    Late,
    /// The node said that the outcome is unknown, or its connection broke.
    Unknown,
    /// It cannot be executed.
    Refused,
}

/// A client.
pub(super) struct Client<'n> {
    nodes: &'n Nodes,
    /// The name of its counter.
    counter: String,
    session: SessionId,
    number: u64,
    /// What its counter is.
    count: i64,
    connection: Option<(usize, TcpStream, ReplyParser)>,
    pub requests: Vec<Request>,
}

impl<'n> Client<'n> {
    pub fn new(nodes: &'n Nodes, number: usize) -> Client<'n> {
        Client {
            nodes,
            counter: format!("counter:{number}"),
            session: SessionId(0),
            number: 0,
            count: 0,
            connection: None,
            requests: Vec::new(),
        }
    }

    /// The name of its counter, and what it is to be.
    pub fn counted(&self) -> (String, i64) {
        (self.counter.clone(), self.count)
    }

    /// Counts once, by `deadline`: sends a request, and sends another one where that was not executed, as long as there
    /// is time.
    pub fn count(&mut self, deadline: Time) -> Ending {
        loop {
            let left = deadline.since(LinuxOs.now());
            if left < AGAIN || self.nodes.ends.load(Ordering::SeqCst) {
                return Ending::Late;
            }
            match self.try_count(deadline, left) {
                Attempt::Ended(ending) => return ending,
                Attempt::Again(after) => {
                    let after = after.max(AGAIN).min(deadline.since(LinuxOs.now()));
                    std::thread::sleep(after.into());
                }
            }
        }
    }

    fn try_count(&mut self, deadline: Time, left: Nanos) -> Attempt {
        if let Err(again) = self.connect(left) {
            return again;
        }
        self.number += 1;
        let id = RequestId {
            session: self.session,
            number: self.number,
        };
        let ms = (left.0 / 1_000_000).max(1).to_string();
        let answer = self.ask(&["DEADLINE", &ms, "INCR", &self.counter.clone()], left + GRACE);
        let ended = LinuxOs.now();
        match answer {
            Ok(Value::Integer(returned)) => {
                let right = self.count + 1;
                self.count = right;
                let fate = Fate::Acknowledged { returned, right };
                self.requests.push(Request { id, fate, ended });
                Attempt::Ended(match ended <= deadline {
                    true => Ending::Timely,
                    false => Ending::Overdue,
                })
            }
            Ok(Value::Error(text)) if text.starts_with("UNKNOWN") => {
                self.resolve(id);
                Attempt::Ended(Ending::Unknown)
            }
            Ok(Value::Error(text)) => {
                let fate = Fate::NotExecuted;
                self.requests.push(Request { id, fate, ended });
                self.told_late(&text)
            }
            Ok(_) | Err(_) => {
                self.lose();
                self.resolve(id);
                Attempt::Ended(Ending::Unknown)
            }
        }
    }

    /// What to do about an error that says that nothing was executed.
    fn told_late(&mut self, text: &str) -> Attempt {
        let Some(told) = text.strip_prefix("LATE ") else {
            return Attempt::Ended(Ending::Refused);
        };
        let word = |name: &str| told.split(' ').find_map(|word| word.strip_prefix(name));
        let after = word("retry-after-ms=").and_then(|ms| ms.parse().ok());
        let after = Nanos::from_millis(after.unwrap_or(0));
        if word("reason=") == Some("no-master") {
            let from = self.connection.take().map(|(node, ..)| node);
            match (word("node=").and_then(|node| node.parse().ok()), from) {
                (Some(node), _) => self.nodes.master.store(node, Ordering::SeqCst),
                (None, Some(from)) => self.nodes.next(from),
                (None, None) => {}
            }
        }
        Attempt::Again(after)
    }

    /// A connection to the master as it is believed, with this client's session.
    fn connect(&mut self, left: Nanos) -> Result<(), Attempt> {
        let master = self.nodes.master.load(Ordering::SeqCst);
        if self.connection.as_ref().is_some_and(|(node, ..)| *node == master) {
            return Ok(());
        }
        self.connection = None;
        let opened = self.open(master, left);
        let again = match opened {
            Ok(Value::Array(numbers)) => {
                if let Some(Value::Integer(session)) = numbers.first() {
                    self.session = SessionId(*session as u64);
                }
                return Ok(());
            }
            Ok(Value::Error(text)) => self.told_late(&text),
            Ok(_) | Err(_) => {
                self.nodes.next(master);
                Attempt::Again(AGAIN)
            }
        };
        // Without this client's session on it, a connection would number requests as this client does not.
        self.connection = None;
        Err(again)
    }

    fn open(&mut self, node: usize, left: Nanos) -> io::Result<Value> {
        let address = self.nodes.address(node).ok_or(io::ErrorKind::NotFound)?;
        let stream = TcpStream::connect_timeout(&address, CONNECT_MAX)?;
        stream.set_nodelay(true)?;
        self.connection = Some((node, stream, ReplyParser::default()));
        let (session, number) = (self.session.0.to_string(), self.number.to_string());
        match self.session {
            SessionId(0) => {
                let ms = (left.0 / 1_000_000).max(1).to_string();
                self.ask(&["DEADLINE", &ms, "SESSION"], left + GRACE)
            }
            _ => self.ask(&["SESSION", &session, &number, "0"], ASK_MAX),
        }
    }

    fn lose(&mut self) {
        if let Some((node, ..)) = self.connection.take() {
            self.nodes.next(node);
        }
    }

    /// Learns what became of a request that got no answer.
    fn resolve(&mut self, id: RequestId) {
        let until = LinuxOs.now() + OUTCOME_MAX;
        let mut fate = Fate::Missing;
        while fate == Fate::Missing && LinuxOs.now() < until && !self.nodes.ends.load(Ordering::SeqCst) {
            let answer = match self.connect(ASK_MAX) {
                Ok(()) => {
                    let ms = (ASK_MAX.0 / 1_000_000).to_string();
                    self.ask(&["DEADLINE", &ms, "OUTCOME", &id.to_string()], ASK_MAX + GRACE)
                }
                Err(_) => Err(io::ErrorKind::NotConnected.into()),
            };
            match answer {
                Ok(Value::Simple(text)) if text.starts_with("committed") => {
                    self.count += 1;
                    fate = Fate::Committed;
                }
                Ok(Value::Simple(text)) if text == "not-executed" => fate = Fate::NeverExecuted,
                Ok(Value::Simple(_)) => break,
                Ok(Value::Error(text)) => _ = self.told_late(&text),
                Ok(_) | Err(_) => self.lose(),
            }
            if fate == Fate::Missing {
                std::thread::sleep(AGAIN.into());
            }
        }
        let ended = LinuxOs.now();
        self.requests.push(Request { id, fate, ended });
    }

    fn ask(&mut self, words: &[&str], patience: Nanos) -> io::Result<Value> {
        let (_, stream, parser) = self.connection.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        ask(stream, parser, words, patience)
    }
}

/// How one request of an arrival ended.
enum Attempt {
    Ended(Ending),
    /// It was not executed: another one after this long.
    Again(Nanos),
}

/// Sends a request, and waits for its reply.
pub(super) fn ask(
    stream: &mut TcpStream,
    parser: &mut ReplyParser,
    words: &[&str],
    patience: Nanos,
) -> io::Result<Value> {
    let until = LinuxOs.now() + patience;
    let mut out = Vec::new();
    let words = Value::Array(words.iter().map(Value::bulk).collect());
    Writer::new(&mut out, Version::Two).value(&words);
    stream.set_write_timeout(Some(patience.into()))?;
    stream.write_all(&out)?;
    let mut bytes = [0; 4096];
    loop {
        let reply = parser.next(&Bounds::ADMITTED);
        if let Some(reply) = reply.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
            return Ok(reply);
        }
        let left = until.since(LinuxOs.now());
        if left == Nanos::ZERO {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left.into()))?;
        match stream.read(&mut bytes)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => parser.feed(&bytes[..count]),
        }
    }
}
