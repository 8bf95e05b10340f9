//! The event loop, turn by turn, with real sockets: what stays, what is dropped, and what is counted.

use std::io::{Read, Write};
use std::net::TcpStream as Client;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::Events;
use punctual_engines::Memory;
use punctual_store::{Deadline, Store};
use punctual_testing::WAIT_MAX;
use punctual_units::{Clock, Nanos, Time};

use super::{EventLoop, HEARD_MAX, Listening, Options};
use crate::pool::{KeyNotice, Pool};
use crate::resp::request::Request;
use crate::session::WatchedKey;
use crate::tests::{TestOs, store};
use crate::users::{PasswordHash, Right, User, Users};

const PATTERN_TOO_LONG: &str = "-ERR a pattern has at most 1024 bytes\r\n";

/// An event loop that a test turns, and its threads.
struct TestLoop {
    inner: EventLoop<Memory, TestOs>,
    events: Events,
    store: Arc<Store<Memory, TestOs>>,
    pool: Option<Pool>,
}

impl TestLoop {
    fn new(options: &Options) -> TestLoop {
        let store = Arc::new(store(TestOs::default()));
        let listening = Listening::bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let (inner, pool) = listening.event_loop(Arc::clone(&store), options).expect("threads");
        TestLoop {
            inner,
            events: Events::with_capacity(64),
            store,
            pool: Some(pool),
        }
    }

    /// Turns until `is_done`. Each turn waits for events, so there is no pause between two.
    fn until(&mut self, mut is_done: impl FnMut(&mut EventLoop<Memory, TestOs>) -> bool) {
        let begin = Instant::now();
        while begin.elapsed() < WAIT_MAX {
            if is_done(&mut self.inner) {
                return;
            }
            self.inner.accept |= self.inner.listener.is_some();
            self.inner.round(&mut self.events).expect("events");
        }
        panic!("not within {WAIT_MAX:?}");
    }

    /// A client, and its place.
    fn client(&mut self) -> (Client, usize) {
        let open = self.inner.open;
        let client = Client::connect(self.inner.address).expect("it listens");
        client
            .set_read_timeout(Some(Duration::from_millis(1)))
            .expect("a bound");
        self.until(|inner| inner.open > open);
        let newest = self
            .inner
            .connections
            .iter()
            .flatten()
            .map(|c| c.client.session.id)
            .max();
        let is_it = |c: &Option<Box<super::Connection>>| c.as_ref().map(|c| c.client.session.id) == newest;
        let place = self.inner.connections.iter().position(is_it);
        (client, place.expect("a place"))
    }

    /// What `client` is told, once that has so many bytes.
    fn told(&mut self, client: &mut Client, length: usize) -> String {
        let mut all = Vec::new();
        self.until(|_| {
            let mut bytes = [0; 4096];
            if let Ok(count) = client.read(&mut bytes) {
                all.extend_from_slice(&bytes[..count]);
            }
            all.len() >= length
        });
        String::from_utf8(all).expect("text")
    }

    fn connection(&mut self, place: usize) -> &mut super::Connection {
        self.inner.connections[place].as_mut().expect("a connection")
    }
}

impl Drop for TestLoop {
    fn drop(&mut self) {
        self.inner.shared.stop();
        if let Some(pool) = self.pool.take() {
            self.inner.shared.join(pool);
        }
    }
}

/// It has heard nothing for longer than a client may leave replies unread; then it hears something, and the loop looks
/// for slow readers before it has sent that.
#[test]
fn a_quiet_subscriber_stays() {
    let mut turned = TestLoop::new(&Options::default());
    let (mut client, place) = turned.client();
    client.write_all(b"SUBSCRIBE news\r\n").expect("it takes bytes");
    turned.told(&mut client, 30);
    turned.connection(place).client.times.taken = Time(1);
    let now = turned.inner.shared.os.now();
    assert!(
        now.since(Time(1)) > turned.inner.options.stalled_max,
        "the machine has just begun"
    );
    turned.inner.tell_one(place, None, b"news", b"1", now);
    turned.inner.look(now);
    assert_eq!(turned.inner.totals.dropped, 0);
    assert!(turned.told(&mut client, 1).contains("news"));
    // One that does not read is dropped.
    turned.inner.tell_one(place, None, b"news", b"2", now);
    turned.inner.look(now + turned.inner.options.stalled_max + Nanos(1));
    assert_eq!((turned.inner.totals.dropped, turned.inner.open), (1, 0));
}

/// Without a turn of its in between, however much is said.
#[test]
fn what_a_subscriber_does_not_read_is_bounded_within_a_turn() {
    let mut turned = TestLoop::new(&Options::default());
    let (mut client, place) = turned.client();
    client.write_all(b"SUBSCRIBE news\r\n").expect("it takes bytes");
    turned.told(&mut client, 30);
    let message = vec![b'm'; 1 << 20];
    let now = turned.inner.shared.os.now();
    for _ in 0..100 {
        turned.inner.tell_one(place, None, b"news", &message, now);
    }
    let unsent = turned.connection(place).client.link.unsent();
    assert!(unsent <= HEARD_MAX + message.len() + 100, "{unsent}");
    assert!(
        turned.inner.memory.bytes >= unsent,
        "{} bytes are counted",
        turned.inner.memory.bytes
    );
    turned.until(|inner| inner.open == 0);
    assert_eq!((turned.inner.totals.dropped, turned.inner.memory.bytes), (1, 0));
}

/// Patterns that take long leave others their turn, and nothing is lost.
#[test]
fn changes_are_told_in_turns() {
    let mut turned = TestLoop::new(&Options::default());
    let (mut client, place) = turned.client();
    let costly = format!("*{}", "?".repeat(1000));
    let patterns: String = (0..30).map(|at| format!(" {costly}{at}")).collect();
    client
        .write_all(format!("PSUBSCRIBE __keyevent@0__:set{patterns}\r\n").as_bytes())
        .expect("it takes bytes");
    turned.until(|inner| inner.subscribers.counts().1 == 31);
    turned.connection(place).client.link.out.clear();
    let changes: Vec<_> = (0..100).map(|key| KeyNotice::Set(vec![b'k'; 400 + key % 2])).collect();
    turned.inner.telling.extend(changes);
    turned.inner.tell();
    assert!(!turned.inner.telling.is_empty(), "all in one turn");
    let mut turns = 1;
    while !turned.inner.telling.is_empty() {
        turned.inner.tell();
        turns += 1;
    }
    assert!(turns > 10, "{turns}");
    let told = String::from_utf8_lossy(&turned.connection(place).client.link.out)
        .matches("pmessage")
        .count();
    assert_eq!(told, 100);
}

/// Its bytes count until it is done, though its connection has ended.
#[test]
fn work_without_a_connection_is_counted() {
    let mut turned = TestLoop::new(&Options::default());
    let (mut client, place) = turned.client();
    let store = Arc::clone(&turned.store);
    let writer = store.write_transaction(Deadline::NONE).expect("the one writer");
    let value = "v".repeat(100_000);
    client
        .write_all(format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$100000\r\n{value}\r\n").as_bytes())
        .expect("bytes");
    turned.until(|inner| {
        inner.connections[place]
            .as_ref()
            .is_some_and(|connection| connection.is_away)
    });
    turned.inner.end(place);
    assert_eq!((turned.inner.open, turned.inner.memory.orphans.len()), (0, 1));
    assert!(
        turned.inner.memory.bytes >= value.len(),
        "{}",
        turned.inner.memory.bytes
    );
    drop(writer);
    turned.until(|inner| inner.memory.orphans.is_empty());
    assert_eq!(turned.inner.memory.bytes, 0);
}

/// Many arguments without bytes, keys that are watched without values, names that are heard: each takes memory.
#[test]
fn what_has_no_bytes_of_its_own_is_counted() {
    let arguments = Request::of(std::iter::repeat_n("", 10_000));
    assert!(arguments.bytes() >= 40_000, "{}", arguments.bytes());
    let mut session = crate::session::Session::new(1);
    let key = |at: usize| [&[b'k'; 500][..], at.to_string().as_bytes()].concat();
    session.watch(
        (0..100)
            .map(|at| WatchedKey {
                key: key(at),
                value: None,
            })
            .collect(),
    );
    assert!(session.kept() >= 50_000, "{}", session.kept());
    let watched = session.kept();
    (0..100).for_each(|at| session.hears(&key(at), at % 2 == 0, true));
    (0..100).for_each(|at| session.hears(&key(at), at % 2 == 0, true));
    assert!(
        (50_000..300_000).contains(&(session.kept() - watched)),
        "{}",
        session.kept()
    );
    (0..100).for_each(|at| session.hears(&key(at), at % 2 == 0, false));
    assert_eq!(session.kept(), watched);
    session.reset();
    assert_eq!(session.kept(), 0);
}

/// Where all have too much, one with more than its share is dropped, and what it asks for is not begun.
#[test]
fn a_share_of_the_bytes_is_kept() {
    let options = Options {
        bytes_max: 1 << 20,
        connections_max: 16,
        ..Options::default()
    };
    let mut turned = TestLoop::new(&options);
    let (mut small, _) = turned.client();
    let mut large: Vec<_> = (0..4).map(|_| turned.client().0).collect();
    let value = "v".repeat(400_000);
    for client in &mut large {
        // All but the end of a request.
        client.set_nonblocking(true).expect("a socket");
        let bytes = format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$500000\r\n{value}");
        let mut sent = 0;
        turned.until(|_| {
            sent += client.write(&bytes.as_bytes()[sent..]).unwrap_or(0);
            sent == bytes.len()
        });
    }
    turned.until(|inner| inner.totals.dropped > 0);
    assert!(
        turned.inner.memory.bytes <= options.bytes_max + 500_000,
        "{}",
        turned.inner.memory.bytes
    );
    small.write_all(b"PING\r\n").expect("it takes bytes");
    assert_eq!(turned.told(&mut small, 7), "+PONG\r\n");
}

/// Told with how long work waits, and counted, as one that is late in the queue is.
#[test]
fn what_is_late_before_it_begins_is_counted() {
    let mut turned = TestLoop::new(&Options::default());
    let (mut client, place) = turned.client();
    let counts = &turned.inner.shared.counts;
    counts.waited.store(7_000_001, Ordering::SeqCst);
    let late = (Request::of(["DEADLINE", "5", "SET", "a", "1"]), Time(1));
    let connection = turned.connection(place);
    connection.client.push(late.0, late.1);
    turned.inner.go_on(place);
    assert_eq!(
        turned.told(&mut client, 10),
        "-LATE reason=expired retry-after-ms=8\r\n"
    );
    assert_eq!(turned.inner.shared.counts.expired.load(Ordering::SeqCst), 1);
}

/// What the loop matches has bounds.
#[test]
fn long_names_are_refused() {
    let mut turned = TestLoop::new(&Options::default());
    let (mut client, _) = turned.client();
    let long = "x".repeat(1025);
    for (request, expected) in [
        (format!("SUBSCRIBE {long}"), "-ERR a channel has at most 1024 bytes\r\n"),
        (format!("PSUBSCRIBE {long}"), PATTERN_TOO_LONG),
        (format!("KEYS {long}"), PATTERN_TOO_LONG),
        (format!("SCAN 0 MATCH {long}"), PATTERN_TOO_LONG),
        (
            format!("PUBLISH {long} 1"),
            "-ERR a channel has at most 1024 bytes, a message 1048576\r\n",
        ),
        (
            format!("CONFIG GET {long}"),
            "-ERR at most 1024 patterns of at most 1024 bytes\r\n",
        ),
    ] {
        client
            .write_all(format!("{request}\r\n").as_bytes())
            .expect("it takes bytes");
        assert_eq!(turned.told(&mut client, expected.len()), expected);
    }
    let message = "m".repeat((1 << 20) + 1);
    client
        .write_all(format!("*3\r\n$7\r\nPUBLISH\r\n$1\r\na\r\n${}\r\n{message}\r\n", message.len()).as_bytes())
        .expect("it takes bytes");
    assert!(turned.told(&mut client, 30).starts_with("-ERR a channel has at most"));
    // Patterns of all clients together.
    let costly = |at: usize| format!(" *{}{at:03}", "?".repeat(1000));
    let patterns: String = (0..40).map(costly).collect();
    client
        .write_all(format!("PSUBSCRIBE{patterns}\r\n").as_bytes())
        .expect("it takes bytes");
    let refused = turned.told(&mut client, 30);
    assert!(refused.starts_with("-ERR the patterns of all clients"), "{refused}");
}

/// It has as long for its next AUTH as one that has just connected, however old it is.
#[test]
fn a_connection_that_is_reset_has_time_for_its_next_auth() {
    let user = User {
        name: "owner".into(),
        password: PasswordHash::of(b"secret", [1; 16], 1_000),
        rights: vec![Right::Read],
        prefixes: vec![Vec::new()],
    };
    let mut turned = TestLoop::new(&Options {
        users: Arc::new(Users::new(vec![user], [2; 16])),
        ..Options::default()
    });
    let (mut client, place) = turned.client();
    let connection = turned.connection(place);
    (connection.client.times.began, connection.client.times.stranger_since) = (Time(1), Time(1));
    connection
        .client
        .session
        .login
        .judged(Some(0))
        .expect("a right password");
    client.write_all(b"RESET\r\n").expect("it takes bytes");
    assert_eq!(turned.told(&mut client, 8), "+RESET\r\n");
    let connection = turned.connection(place);
    assert!(connection.client.session.login.is_stranger() && connection.client.times.began == Time(1));
    assert!(
        connection.client.times.stranger_since > Time(1),
        "its time counts from its begin"
    );
    let end = connection.client.times.stranger_since + turned.inner.options.stalled_max;
    turned.inner.look(end);
    assert_eq!(turned.inner.open, 1);
    turned.inner.look(end + Nanos(1));
    assert_eq!((turned.inner.totals.dropped, turned.inner.open), (1, 0));
}

/// However many connect at once: clients that are admitted have their turn between.
#[cfg(feature = "tls")]
#[test]
fn handshakes_leave_others_their_turn() {
    const CLIENTS: usize = 3 * super::HANDSHAKES_TURN;
    let shown = crate::tls::tests::TestCertificate::new();
    let authority = shown.authority.clone();
    let mut turned = TestLoop::new(&Options {
        tls: Some(Arc::new(shown.tls)),
        ..Options::default()
    });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = Client::connect(turned.inner.address).expect("it listens");
            let mut tls = crate::tls::tests::client(&authority);
            tls.write_tls(&mut client).expect("it takes bytes");
            (client, tls)
        })
        .collect();
    let mut before = 0;
    turned.until(|inner| {
        let has_signed = |stream: &super::Stream| match stream {
            super::Stream::Tls(tls) => tls.conn.negotiated_cipher_suite().is_some(),
            super::Stream::Plain(_) | super::Stream::Dialled(_) => false,
        };
        let signed = inner
            .connections
            .iter()
            .flatten()
            .filter(|c| has_signed(&c.client.link.stream))
            .count();
        assert!(signed <= before + super::HANDSHAKES_TURN, "{before}, then {signed}");
        before = signed;
        signed == CLIENTS
    });
    drop(clients);
}
