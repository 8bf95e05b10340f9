//! The load generator: requests at random instants (Poisson), each timed from the instant at which it was due, over
//! many connections in one thread.
//!
//! A connection has one request at a time, like a client that waits for its answer. Where all connections are busy,
//! requests queue here, and their time keeps running; a request whose deadline passes before it was sent is abandoned.
//! So late answers and unsent requests show a server that answers late; the load does not wait for it.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use punctual_os::LinuxOs;
use punctual_server::resp::reply::ReplyParser;
use punctual_server::resp::{Bounds, Reply, Resp, Writer};
use punctual_units::{Clock, GOLDEN_GAMMA, Nanos, Time, mix};

/// Size of the buffer of one read, in bytes.
const READ_AT_ONCE: usize = 16 << 10;
/// Time to wait for answers after the last request was offered.
const GRACE: Nanos = Nanos::from_secs(30);

/// Arrival process of the requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Manner {
    /// Requests per second, independent of the answers.
    Open(f64),
    /// Number of requests in flight: each answer is followed by another request.
    Closed(usize),
}

/// Parameters of a load.
#[derive(Clone, Debug)]
pub struct OfferedLoad {
    /// Words of the command.
    pub command: Vec<Vec<u8>>,
    /// Whether a request states its remaining time: `DEADLINE MS COMMAND ..`.
    pub tells: bool,
    /// Arrival of the requests.
    pub manner: Manner,
    /// Time during which requests arrive.
    pub length: Nanos,
    /// Time to answer a request, from the instant at which it was due.
    pub deadline: Nanos,
    /// Seed of the random instants.
    pub seed: u64,
    /// Whether this thread has an exclusive core, and so may poll for events without sleeping.
    pub spins: bool,
}

/// Counts of the requests of a load by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadCounts {
    /// Number of requests that were due.
    pub offered: u64,
    /// Number of requests answered in time.
    pub timely: u64,
    /// Number of requests answered too late.
    pub late: u64,
    /// Number of requests answered `LATE`, which means: not executed.
    pub refused: u64,
    /// Number of requests abandoned before they were sent: no connection was free in time.
    pub unsent: u64,
    /// Number of requests that were sent but not answered, or were answered by another error.
    pub failed: u64,
    /// Delays of answered requests, from the instant at which each was due, in microseconds.
    pub delays_us: Vec<u32>,
    /// Text of the first failure.
    pub error: Option<String>,
}

impl LoadCounts {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: LoadCounts) {
        self.offered += other.offered;
        self.timely += other.timely;
        self.late += other.late;
        self.refused += other.refused;
        self.unsent += other.unsent;
        self.failed += other.failed;
        self.delays_us.extend(other.delays_us);
        self.error = self.error.take().or(other.error);
    }

    /// Counts the answer to a request that was due at `at`.
    fn answered(&mut self, at: Time, now: Time, deadline: Nanos, reply: &Reply) {
        match reply {
            Reply::Error(text) if text.starts_with("LATE ") => self.refused += 1,
            Reply::Error(text) => self.fail(text),
            _ => {
                let delay = now.since(at);
                self.delays_us.push(u32::try_from(delay.0 / 1_000).unwrap_or(u32::MAX));
                match delay <= deadline {
                    true => self.timely += 1,
                    false => self.late += 1,
                }
            }
        }
    }

    fn fail(&mut self, why: &str) {
        self.failed += 1;
        self.error.get_or_insert_with(|| why.to_owned());
    }
}

struct Connection {
    stream: TcpStream,
    parser: ReplyParser,
    out: Vec<u8>,
    /// Instant at which the current request was due; `None`: no request is in flight.
    asked: Option<Time>,
}

/// Connections to one server.
pub struct Client {
    poll: Poll,
    connections: Vec<Connection>,
    /// Indices of the connections without a request.
    idle: VecDeque<usize>,
    /// Number of connections that wait for an answer.
    under_way: usize,
    scratch: Box<[u8]>,
}

impl Client {
    /// Opens all connections.
    ///
    /// # Errors
    /// The error of a socket: the system has no further descriptor, or the server accepts no further connection.
    pub fn connect(address: SocketAddr, connections: usize) -> io::Result<Client> {
        let poll = Poll::new()?;
        let mut all = Vec::with_capacity(connections);
        for place in 0..connections {
            let stream = std::net::TcpStream::connect(address)?;
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let mut stream = TcpStream::from_std(stream);
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut stream, Token(place), interest)?;
            all.push(Connection {
                stream,
                parser: ReplyParser::default(),
                out: Vec::new(),
                asked: None,
            });
        }
        Ok(Client {
            poll,
            connections: all,
            idle: (0..connections).collect(),
            under_way: 0,
            scratch: vec![0; READ_AT_ONCE].into(),
        })
    }

    /// Offers a load, and waits until all sent requests are answered, at most `GRACE`.
    ///
    /// # Errors
    /// The error of poll.
    pub fn offer(&mut self, load: &OfferedLoad) -> io::Result<LoadCounts> {
        let mut tally = LoadCounts::default();
        let mut events = Events::with_capacity(1024);
        let mut waiting: VecDeque<Time> = VecDeque::new();
        let mut random = load.seed;
        let begin = LinuxOs.now();
        let end = begin + load.length;
        let mut next = match load.manner {
            Manner::Open(rate) => begin + gap(&mut random, rate),
            Manner::Closed(_) => Time::MAX,
        };
        loop {
            let now = LinuxOs.now();
            if let Manner::Open(rate) = load.manner {
                while next <= now && next < end {
                    tally.offered += 1;
                    waiting.push_back(next);
                    next = next + gap(&mut random, rate);
                }
            }
            while waiting.front().is_some_and(|at| now > *at + load.deadline) {
                waiting.pop_front();
                tally.unsent += 1;
            }
            if let Manner::Closed(at_once) = load.manner
                && now < end
            {
                for _ in self.connections.len() - self.idle.len()..at_once {
                    tally.offered += 1;
                    waiting.push_back(now);
                }
            }
            while !waiting.is_empty()
                && let Some(place) = self.idle.pop_front()
            {
                if let Some(at) = waiting.pop_front() {
                    self.ask(place, at, load, &mut tally);
                }
            }
            let is_over = now >= end && waiting.is_empty();
            if is_over && (self.under_way == 0 || now > end + GRACE) {
                break;
            }
            self.poll.poll(&mut events, Some(pause(load, next, end, now)))?;
            for event in &events {
                let place = event.token().0;
                if event.is_writable() {
                    self.send(place, &mut tally);
                }
                if event.is_readable() || event.is_read_closed() {
                    self.read(place, load, &mut tally);
                }
            }
        }
        let lost = self.connections.iter().filter(|connection| connection.asked.is_some());
        (0..lost.count()).for_each(|_| tally.fail("no answer"));
        Ok(tally)
    }

    fn ask(&mut self, place: usize, at: Time, load: &OfferedLoad, tally: &mut LoadCounts) {
        let connection = &mut self.connections[place];
        connection.asked = Some(at);
        self.under_way += 1;
        let left = (at + load.deadline).since(LinuxOs.now()).0 / 1_000_000;
        let told = [b"DEADLINE".to_vec(), left.max(1).to_string().into_bytes()];
        let told = load.tells.then_some(told).into_iter().flatten();
        let words: Vec<Reply> = told.chain(load.command.iter().cloned()).map(Reply::Bulk).collect();
        Writer::new(&mut connection.out, Resp::Two).value(&Reply::Array(words));
        self.send(place, tally);
    }

    fn send(&mut self, place: usize, tally: &mut LoadCounts) {
        let connection = &mut self.connections[place];
        while !connection.out.is_empty() {
            match connection.stream.write(&connection.out) {
                Ok(count) => drop(connection.out.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => return self.lose(place, &error.to_string(), tally),
            }
        }
    }

    fn read(&mut self, place: usize, load: &OfferedLoad, tally: &mut LoadCounts) {
        loop {
            let connection = &mut self.connections[place];
            match connection.stream.read(&mut self.scratch) {
                Ok(0) => return self.lose(place, "the connection was closed", tally),
                Ok(count) => connection.parser.feed(&self.scratch[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => return self.lose(place, &error.to_string(), tally),
            }
            match connection.parser.next(&Bounds::ADMITTED) {
                Ok(Some(reply)) => {
                    if let Some(at) = connection.asked.take() {
                        self.under_way -= 1;
                        tally.answered(at, LinuxOs.now(), load.deadline, &reply);
                        self.idle.push_back(place);
                    }
                }
                Ok(None) => {}
                Err(error) => return self.lose(place, &error.to_string(), tally),
            }
        }
    }

    /// Ends a connection that was closed or failed, and counts its request as failed.
    fn lose(&mut self, place: usize, why: &str, tally: &mut LoadCounts) {
        let connection = &mut self.connections[place];
        connection.out.clear();
        if connection.asked.take().is_some() {
            self.under_way -= 1;
            tally.fail(why);
        }
        self.idle.retain(|other| *other != place);
        drop(self.poll.registry().deregister(&mut self.connections[place].stream));
    }
}

/// Timeout of the next wait for events. The kernel's wait ends at whole milliseconds, so it may miss a request's
/// instant: a thread with an exclusive core polls instead.
fn pause(load: &OfferedLoad, next: Time, end: Time, now: Time) -> Duration {
    const TICK: Nanos = Nanos::from_millis(1);
    let ahead = next.min(end).since(now);
    match () {
        () if now >= end => Duration::from_millis(50),
        () if load.spins && ahead < TICK + TICK => Duration::ZERO,
        () if ahead < TICK => Duration::from_millis(1),
        () => Nanos(ahead.0 - TICK.0).min(Nanos::from_millis(50)).into(),
    }
}

/// Random time to the next request, for `rate` requests per second.
fn gap(random: &mut u64, rate: f64) -> Nanos {
    Nanos((-uniform(random).ln() / rate * 1e9) as u64)
}

/// A random number above 0, at most 1 (SplitMix64).
fn uniform(random: &mut u64) -> f64 {
    *random = random.wrapping_add(GOLDEN_GAMMA);
    ((mix(*random) >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A server that answers each request on a line of its own thread with what `answers` gives, in turn.
    fn served(answers: &'static [&'static str], connections: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        for _ in 0..connections {
            let listener = listener.try_clone().expect("a listener");
            std::thread::spawn(move || {
                let Ok((mut stream, _)) = listener.accept() else { return };
                let mut parser = punctual_server::resp::request::RequestParser::default();
                let mut bytes = [0; 4096];
                let mut answers = answers.iter().cycle();
                while let Ok(count @ 1..) = stream.read(&mut bytes) {
                    parser.feed(&bytes[..count]);
                    while let Ok(Some(request)) = parser.next(&Bounds::ADMITTED) {
                        assert!(request.argument(0) == b"DEADLINE" || request.argument(0) == b"GET");
                        let Some(answer) = answers.next() else { return };
                        if *answer == "end" || stream.write_all(answer.as_bytes()).is_err() {
                            return;
                        }
                    }
                }
            });
        }
        address
    }

    fn load(manner: Manner, deadline: Nanos) -> OfferedLoad {
        OfferedLoad {
            command: vec![b"GET".to_vec(), b"a".to_vec()],
            tells: true,
            manner,
            length: Nanos::from_millis(200),
            deadline,
            seed: 1,
            spins: false,
        }
    }

    #[test]
    fn each_request_ends_in_one_way() {
        let address = served(
            &[
                "$1\r\n1\r\n",
                "-LATE reason=backlog retry-after-ms=1\r\n",
                "-ERR no\r\n",
            ],
            4,
        );
        let mut client = Client::connect(address, 4).expect("it listens");
        let tally = client
            .offer(&load(Manner::Open(2000.0), Nanos::from_secs(1000)))
            .expect("events");
        assert!(tally.offered > 0);
        // However slow the machine is, nothing is late within a quarter of an hour.
        assert_eq!((tally.late, tally.unsent), (0, 0), "{tally:?}");
        assert_eq!(tally.offered, tally.timely + tally.refused + tally.failed, "{tally:?}");
        assert!(
            tally.timely >= tally.refused && tally.refused >= tally.failed,
            "{tally:?}"
        );
        assert_eq!(tally.delays_us.len() as u64, tally.timely);
        assert_eq!(tally.error.is_some(), tally.failed > 0);
    }

    #[test]
    fn what_is_answered_too_late_or_never_sent_is_told_apart() {
        let address = served(&["$1\r\n1\r\n"], 1);
        let mut client = Client::connect(address, 1).expect("it listens");
        // No time at all: each is late, and most are never sent.
        let tally = client.offer(&load(Manner::Open(1000.0), Nanos::ZERO)).expect("events");
        assert_eq!((tally.timely, tally.failed, tally.refused), (0, 0, 0), "{tally:?}");
        assert_eq!(tally.offered, tally.late + tally.unsent, "{tally:?}");
        let mut tally = LoadCounts::default();
        for ended in [1_000, 1_001] {
            tally.answered(Time(0), Time(ended * 1_000), Nanos::from_millis(1), &Reply::Null);
        }
        assert_eq!((tally.timely, tally.late, tally.delays_us), (1, 1, vec![1_000, 1_001]));
    }

    #[test]
    fn a_server_that_ends_is_told() {
        // The first answer of a slow machine may come when no second request is sent any more.
        let mut tallies = (0..100).map(|_| {
            let address = served(&["$1\r\n1\r\n", "end"], 1);
            let mut client = Client::connect(address, 1).expect("it listens");
            client
                .offer(&load(Manner::Closed(1), Nanos::from_millis(100)))
                .expect("events")
        });
        let tally = tallies.find(|tally| tally.offered > 1).expect("a second request");
        assert_eq!((tally.timely + tally.late, tally.failed), (1, 1), "{tally:?}");
        assert_eq!(tally.error.as_deref(), Some("the connection was closed"));
    }

    #[test]
    fn instants_come_at_the_rate() {
        let (mut random, mut sum) = (7, 0);
        for _ in 0..10_000 {
            sum += gap(&mut random, 1000.0).0;
        }
        assert!((sum as f64 / 1e10 - 1.0).abs() < 0.05, "{sum}");
    }
}
