//! Event loop of the load: requests at random instants, each assigned to an idle client.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, Read, Write};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};
use punctual_os::LinuxOs;
use punctual_server::resp::reply::ReplyParser;
use punctual_server::resp::{Bounds, Reply};
use punctual_server::stream::Stream;
use punctual_units::{Clock, GOLDEN_GAMMA, Nanos, Time, mix};

use super::client::{AGAIN, Client, ClientResult, RequestKind, RequestOutcome, Then};
use super::{Dial, EndedRequest, LoadMessage, Offer};

/// Most arrivals that wait for a client; those beyond are not sent.
const WAITING_MAX: usize = 10_000;
/// Interval between reports of the driver.
const TELL_EVERY: Nanos = Nanos::from_millis(20);
/// Clients that are busy while the capacity is measured: enough for every executor and a batch.
const BUSY_CLIENTS: usize = 64;
/// Duration of the measurement of the capacity, and of the warm-up before it.
const MEASURED: Nanos = Nanos::from_millis(2000);
/// Deadline of requests during the measurement.
const BUSY_DEADLINE: Nanos = Nanos::from_secs(5);
/// Time limit for clients to open their sessions at the start.
const CONNECT_MAX: Nanos = Nanos::from_secs(20);
/// Time limit for clients at the end to learn the outcomes of their requests.
const SETTLE_MAX: Nanos = Nanos::from_secs(70);

const WAKER: Token = Token(0);
const FIRST: usize = 1;

/// Phases of the load.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Clients open their sessions.
    Connecting { until: Time },
    /// Busy clients measure the capacity: the phase's start, and the number served since the warm-up.
    Busy { from: Time, served: u64 },
    /// Requests come at random instants; `next` is the next one.
    Open { rate: f64, next: Time },
    /// No new requests; clients learn the outcomes of earlier ones.
    Settling { until: Time },
}

/// A client's connection and its buffers.
struct Line {
    stream: Option<Stream<TcpStream>>,
    /// Whether the answer to AUTH is still pending.
    logs_in: bool,
    parser: ReplyParser,
    out: Vec<u8>,
    sent: usize,
    /// Index of the address that it is connected to, or will be.
    place: usize,
    connected: bool,
    retry_at: Time,
}

/// The load with all its clients.
pub(super) struct Driver<'t> {
    offer: Offer,
    dial: Dial,
    poll: Poll,
    clients: Vec<(Client, Line)>,
    /// Instants at which clients act by themselves, ordered; each client is in here under its own [`due`].
    due: BTreeSet<(Time, usize)>,
    idle: VecDeque<usize>,
    /// Whether each client is in `idle`.
    is_idle: Vec<bool>,
    waiting: VecDeque<(Time, RequestKind)>,
    phase: Phase,
    /// Instant from which requests came at random.
    began: Time,
    random: u64,
    scratch: Vec<u8>,
    ended: Vec<EndedRequest>,
    fates: Vec<(u64, u64, super::Fate)>,
    wrong_reads: u64,
    told: Time,
    /// Reason why no server accepts this load.
    refused: Option<String>,
    /// Whether any server has answered.
    is_answered: bool,
    /// Instant by which a server must have answered; `None`: a load without an answer goes on.
    answer_by: Option<Time>,
    tell: &'t mut dyn FnMut(LoadMessage),
}

/// Instant at which a client or its connection acts by itself.
fn due(client: &Client, line: &Line) -> Time {
    match line.stream {
        Some(_) => client.due(),
        None => line.retry_at,
    }
}

impl<'t> Driver<'t> {
    /// A load for the addresses of an offer, whose host names `dial` has in the same order; results go to `tell`.
    pub fn new(offer: Offer, dial: Dial, poll: Poll, tell: &'t mut dyn FnMut(LoadMessage)) -> Driver<'t> {
        let now = LinuxOs.now();
        let client = |number: usize| {
            let line = Line {
                stream: None,
                logs_in: false,
                parser: ReplyParser::default(),
                out: Vec::new(),
                sent: 0,
                place: number % offer.addresses.len().max(1),
                connected: false,
                retry_at: now,
            };
            (Client::new(format!("counter:{number}")), line)
        };
        let clients: Vec<_> = (0..offer.clients).map(client).collect();
        Driver {
            due: (0..clients.len()).map(|number| (now, number)).collect(),
            is_idle: vec![false; clients.len()],
            idle: VecDeque::new(),
            waiting: VecDeque::new(),
            random: offer.seed,
            offer,
            dial,
            poll,
            clients,
            phase: Phase::Connecting {
                until: now + CONNECT_MAX,
            },
            began: now,
            scratch: vec![0; 64 << 10],
            ended: Vec::new(),
            fates: Vec::new(),
            wrong_reads: 0,
            told: now,
            refused: None,
            is_answered: false,
            answer_by: None,
            tell,
        }
    }

    /// Ends the load with an error if no server answers within `span` of its start, or none opens a session.
    pub fn answered_within(mut self, span: Nanos) -> Self {
        self.answer_by = Some(self.began + span);
        self
    }

    /// Waker that makes the loop check `ends`.
    ///
    /// # Errors
    /// Those of the system.
    pub fn waker(poll: &Poll) -> io::Result<Waker> {
        Waker::new(poll.registry(), WAKER)
    }

    /// Offers requests until `ends` is true, then waits for their outcomes; `ends_now` stops at once.
    ///
    /// # Errors
    /// Those of the system.
    pub fn run(mut self, ends: &dyn Fn() -> bool, ends_now: &dyn Fn() -> bool) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        loop {
            let now = LinuxOs.now();
            if ends() && !matches!(self.phase, Phase::Settling { .. }) {
                self.phase = Phase::Settling {
                    until: now + SETTLE_MAX,
                };
                for (at, kind) in std::mem::take(&mut self.waiting) {
                    self.end(now, kind, at, RequestOutcome::Unsent, None);
                }
            }
            if self.has_settled(now) || ends_now() {
                break;
            }
            self.expect_answers(now);
            self.arrive(now);
            self.wake(now);
            if now.since(self.told) >= TELL_EVERY {
                self.tell_learned(now);
            }
            let wait = self.wait(now);
            if let Err(error) = self.poll.poll(&mut events, Some(wait.into()))
                && error.kind() != io::ErrorKind::Interrupted
            {
                return Err(error);
            }
            let now = LinuxOs.now();
            for event in &events {
                if event.token() != WAKER {
                    self.ready(event.token().0 - FIRST, now);
                }
            }
            if let Some(refused) = self.refused.take() {
                return Err(io::Error::other(refused));
            }
        }
        let now = LinuxOs.now();
        self.tell_learned(now);
        let counters = self.clients.iter().map(|(client, _)| client.counted()).collect();
        (self.tell)(LoadMessage::Done(counters));
        Ok(())
    }

    /// Whether no requests are offered any more, and no outcome is still to be learned.
    fn has_settled(&self, now: Time) -> bool {
        match self.phase {
            Phase::Settling { until } => until <= now || !self.clients.iter().any(|(client, _)| client.is_open()),
            Phase::Connecting { .. } | Phase::Busy { .. } | Phase::Open { .. } => false,
        }
    }

    /// Refuses the load where it reaches no server that takes it.
    fn expect_answers(&mut self, now: Time) {
        let Some(by) = self.answer_by else { return };
        let Phase::Connecting { until } = self.phase else {
            return;
        };
        let places: Vec<String> = self.offer.addresses.iter().map(ToString::to_string).collect();
        let places = places.join(", ");
        if !self.is_answered && by <= now {
            self.refused = Some(format!(
                "no answer from {places}: start a node or a balancer there (`punctual cluster run`), or name the address \
                 for clients of one that runs"
            ));
        } else if self.idle.is_empty() && until <= now {
            self.refused = Some(format!(
                "no session was opened at {places} within {CONNECT_MAX}: name nodes or balancers of a federation that \
                 has a master"
            ));
        }
    }

    fn begin(&mut self, rate: f64) {
        let now = LinuxOs.now();
        self.phase = Phase::Open { rate, next: now };
        self.began = now;
        (self.tell)(LoadMessage::Begins { at: now, rate });
    }

    /// Creates the arrivals that are due, and assigns them to clients.
    fn arrive(&mut self, now: Time) {
        match self.phase {
            Phase::Connecting { until } => {
                if self.idle.len() == self.clients.len() || until <= now {
                    match self.offer.rate {
                        Some(rate) => self.begin(rate),
                        None => self.phase = Phase::Busy { from: now, served: 0 },
                    }
                }
            }
            Phase::Busy { from, served } => {
                if now.since(from) >= MEASURED * 2 {
                    let capacity = served as f64 / MEASURED.as_secs_f64();
                    (self.tell)(LoadMessage::Capacity(capacity));
                    self.begin((capacity * self.offer.times).max(1.0));
                    return;
                }
                let busy = self.clients.len() - self.idle.len();
                for _ in busy..BUSY_CLIENTS.min(self.clients.len()) {
                    let kind = self.kind();
                    self.waiting.push_back((now, kind));
                    self.give(now);
                }
                // Clients that are not connected yet do not count as busy.
                self.waiting.clear();
            }
            Phase::Open { rate, mut next } => {
                while next <= now {
                    let kind = self.kind();
                    match self.waiting.len() < WAITING_MAX {
                        true => self.waiting.push_back((next, kind)),
                        false => self.end(now, kind, next, RequestOutcome::Unsent, None),
                    }
                    next = next + Nanos((-self.uniform().ln() / rate * 1e9) as u64);
                }
                self.phase = Phase::Open { rate, next };
                self.give(now);
            }
            Phase::Settling { .. } => {}
        }
    }

    fn kind(&mut self) -> RequestKind {
        match self.uniform() <= self.offer.writes {
            true => RequestKind::Count,
            false => RequestKind::Read,
        }
    }

    /// Assigns waiting arrivals to idle clients.
    fn give(&mut self, now: Time) {
        let deadline = match self.phase {
            Phase::Busy { .. } => BUSY_DEADLINE,
            _ => self.offer.deadline,
        };
        while let Some((at, kind)) = self.waiting.front().copied() {
            if at + deadline <= now {
                self.waiting.pop_front();
                self.end(now, kind, at, RequestOutcome::Unsent, None);
                continue;
            }
            let Some(number) = self.idle.pop_front() else {
                return;
            };
            self.is_idle[number] = false;
            if !self.clients[number].0.is_idle() {
                continue; // the client has lost its connection meanwhile
            }
            self.waiting.pop_front();
            self.change(number, now, |client, line| {
                client.ask(kind, at, at + deadline, now, &mut line.out);
            });
            self.flush(number, now);
        }
    }

    /// Changes a client, and updates its entries in `due` and `idle`.
    fn change<R>(&mut self, number: usize, now: Time, change: impl FnOnce(&mut Client, &mut Line) -> R) -> R {
        let (client, line) = &mut self.clients[number];
        self.due.remove(&(due(client, line), number));
        let changed = change(client, line);
        self.due.insert((due(client, line), number));
        let place = line.place;
        let learned = std::mem::take(&mut client.learned);
        if client.is_idle() && !self.is_idle[number] {
            self.is_idle[number] = true;
            self.idle.push_back(number);
        }
        for learned in learned {
            match learned {
                ClientResult::Ended { kind, at, ending } => self.end(now, kind, at, ending, Some((number, place))),
                ClientResult::Fate(session, number, fate) => self.fates.push((session, number, fate)),
                ClientResult::WrongRead => self.wrong_reads += 1,
            }
        }
        changed
    }

    fn end(&mut self, now: Time, kind: RequestKind, at: Time, ending: RequestOutcome, by: Option<(usize, usize)>) {
        match &mut self.phase {
            Phase::Busy { from, served } => {
                let is_served = matches!(ending, RequestOutcome::Timely | RequestOutcome::Overdue);
                *served += u64::from(is_served && now.since(*from) >= MEASURED);
            }
            // Requests from before belong to the measurement of the capacity.
            _ if at < self.began => {}
            _ => self.ended.push(EndedRequest {
                kind,
                ending,
                took: now.since(at),
                at: now,
                by: by.map(|(client, place)| (client as u32, place as u8)),
            }),
        }
    }

    /// Handles due timeouts of clients, and reconnects those without a connection.
    fn wake(&mut self, now: Time) {
        while let Some((_, number)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            if self.clients[number].1.stream.is_none() {
                self.connect(number, now);
                continue;
            }
            match self.change(number, now, |client, line| client.wake(now, &mut line.out)) {
                Then::Stay => self.flush(number, now),
                Then::Move => self.lose(number, now),
            }
        }
    }

    fn connect(&mut self, number: usize, now: Time) {
        let place = self.clients[number].1.place;
        let host = self.dial.hosts.get(place).map_or("", String::as_str);
        let socket = TcpStream::connect(self.offer.addresses[place]);
        let stream = socket.and_then(|socket| self.dial.begin(socket, host));
        let stream = stream.and_then(|stream| known(stream, self.poll.registry(), Token(FIRST + number)));
        self.change(number, now, |_, line| {
            line.retry_at = now + AGAIN;
            line.connected = false;
            line.out.clear();
            line.sent = 0;
            line.parser = ReplyParser::default();
            line.stream = stream.ok();
        });
        if self.clients[number].1.stream.is_none() {
            self.lose(number, now);
        }
    }

    /// Drops a connection; the next attempt goes to the next address.
    fn lose(&mut self, number: usize, now: Time) {
        let places = self.offer.addresses.len();
        self.change(number, now, |client, line| {
            line.stream = None;
            line.retry_at = now + AGAIN;
            client.disconnected(now);
        });
        let line = &mut self.clients[number].1;
        line.place = (line.place + 1) % places;
    }

    /// Handles an event of a socket.
    fn ready(&mut self, number: usize, now: Time) {
        let (client, line) = &mut self.clients[number];
        let Some(stream) = &mut line.stream else { return };
        if !line.connected {
            if !matches!(stream.socket().take_error(), Ok(None)) {
                return self.lose(number, now);
            }
            if stream.socket().peer_addr().is_err() {
                return; // not yet
            }
            line.connected = true;
            line.logs_in = self.dial.login().is_some();
            line.out.extend_from_slice(self.dial.login().unwrap_or_default());
            debug_assert!(!client.is_idle());
            self.change(number, now, |client, line| client.connected(now, &mut line.out));
        }
        if self.read(number, now).is_err() {
            return self.lose(number, now);
        }
        self.flush(number, now);
    }

    fn read(&mut self, number: usize, now: Time) -> io::Result<()> {
        loop {
            let line = &mut self.clients[number].1;
            let Some(stream) = &mut line.stream else { return Ok(()) };
            match stream.read(&mut self.scratch) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => line.parser.feed(&self.scratch[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            while let Some(reply) = self.clients[number]
                .1
                .parser
                .next(&Bounds::ADMITTED)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?
            {
                self.is_answered = true;
                if std::mem::take(&mut self.clients[number].1.logs_in) {
                    self.admitted(&reply)?;
                    continue;
                }
                let then = self.change(number, now, |client, line| client.hear(&reply, now, &mut line.out));
                if then == Then::Move {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
            }
        }
    }

    /// Handles the answer to AUTH: a wrong password ends the load.
    fn admitted(&mut self, reply: &Reply) -> io::Result<()> {
        match reply {
            Reply::Simple(_) => return Ok(()),
            Reply::Error(text) if text.starts_with("WRONGPASS") => {
                self.refused
                    .get_or_insert(format!("AUTH was answered {text}: see --user and --password-file"));
            }
            // The server checks too many passwords already: the client reconnects.
            _ => {}
        }
        Err(io::ErrorKind::ConnectionAborted.into())
    }

    fn flush(&mut self, number: usize, now: Time) {
        let line = &mut self.clients[number].1;
        let Some(stream) = line.stream.as_mut().filter(|_| line.connected) else {
            return;
        };
        while line.sent < line.out.len() {
            match stream.write(&line.out[line.sent..]) {
                Ok(0) => return self.lose(number, now),
                Ok(count) => line.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return self.lose(number, now),
            }
        }
        line.out.clear();
        line.sent = 0;
        // Encrypted bytes that the socket did not take go out at its next event.
        match stream.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => self.lose(number, now),
            _ => {}
        }
    }

    fn wait(&self, now: Time) -> Nanos {
        let first = self.due.first().map_or(Time::MAX, |(at, _)| *at);
        let next = match self.phase {
            Phase::Open { next, .. } => next,
            Phase::Connecting { .. } | Phase::Busy { .. } => now + AGAIN,
            Phase::Settling { until } => until,
        };
        first.min(next).min(self.told + TELL_EVERY).since(now)
    }

    fn tell_learned(&mut self, now: Time) {
        self.told = now;
        if !self.ended.is_empty() || !self.fates.is_empty() {
            (self.tell)(LoadMessage::Learned {
                ended: std::mem::take(&mut self.ended),
                fates: std::mem::take(&mut self.fates),
                wrong_reads: std::mem::take(&mut self.wrong_reads),
            });
        }
    }

    /// Uniform between 0 and 1, without 0 (SplitMix64).
    fn uniform(&mut self) -> f64 {
        self.random = self.random.wrapping_add(GOLDEN_GAMMA);
        ((mix(self.random) >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

fn known(mut stream: Stream<TcpStream>, registry: &mio::Registry, token: Token) -> io::Result<Stream<TcpStream>> {
    let socket = stream.socket();
    registry.register(socket, token, Interest::READABLE | Interest::WRITABLE)?;
    // Some systems refuse this before the connection is there; the load works without it.
    drop(socket.set_nodelay(true));
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: &str = "127.0.0.1:7";

    const BOUND: Nanos = Nanos::from_secs(5);

    /// Reason for which a load without a parent, or with one, is refused `after` its start; `change` changes it before.
    fn refused(alone: bool, after: Nanos, change: impl FnOnce(&mut Driver<'_>)) -> Option<String> {
        let offer = Offer {
            addresses: vec![ADDRESS.parse().unwrap()],
            rate: Some(1.0),
            times: 1.0,
            writes: 0.0,
            clients: 2,
            deadline: Nanos::from_millis(5),
            seed: 1,
        };
        let mut tell = |_| {};
        let mut driver = Driver::new(offer, Dial::default(), Poll::new().unwrap(), &mut tell);
        if alone {
            driver = driver.answered_within(BOUND);
        }
        change(&mut driver);
        driver.expect_answers(driver.began + after);
        driver.refused.take()
    }

    #[test]
    fn a_load_without_an_answer_or_without_a_session_is_refused_if_it_has_no_parent() {
        let silent = |_: &mut Driver<'_>| {};
        let answered = |driver: &mut Driver<'_>| driver.is_answered = true;
        let served = |driver: &mut Driver<'_>| {
            driver.is_answered = true;
            driver.idle.push_back(0);
        };
        assert_eq!(refused(true, BOUND.saturating_sub(Nanos(1)), silent), None);
        let told = refused(true, BOUND, silent).unwrap();
        assert!(told.contains(ADDRESS) && told.contains("no answer"), "{told}");
        assert_eq!(refused(true, BOUND, answered), None);
        let told = refused(true, CONNECT_MAX, answered).unwrap();
        assert!(told.contains(ADDRESS) && told.contains("no session"), "{told}");
        assert_eq!(refused(true, CONNECT_MAX, served), None);
        assert_eq!(refused(false, CONNECT_MAX, silent), None);
    }
}
