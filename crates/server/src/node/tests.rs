//! The event loop with real sockets and the pool of threads.

use std::io::{Read, Write};
use std::net::TcpStream as Client;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use punctual_engines::Memory;
use punctual_testing::WAIT_MAX;
use punctual_units::{Nanos, Time};

use super::{Backend, EventLoop, Options};
use crate::Listening;
use crate::commands::Verb;
use crate::tests::{TestOs, store};
use crate::users::Users;

const PATTERN_TOO_LONG: &str = "-ERR a pattern has at most 1024 bytes\r\n";

/// An event loop that a test turns, and its threads.
struct TestLoop {
    inner: Option<EventLoop<Memory, TestOs>>,
}

impl Deref for TestLoop {
    type Target = EventLoop<Memory, TestOs>;

    fn deref(&self) -> &Self::Target {
        self.inner.as_ref().expect("a loop that has not ended")
    }
}

impl DerefMut for TestLoop {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.inner.as_mut().expect("a loop that has not ended")
    }
}

impl TestLoop {
    fn new() -> TestLoop {
        let store = Arc::new(store(TestOs::default()));
        let listening = Listening::bind("127.0.0.1:0".parse().expect("an address"), &Users::default()).expect("a port");
        let inner = listening.event_loop(store, &Options::default(), None).expect("threads");
        TestLoop { inner: Some(inner) }
    }

    fn client(&mut self) -> Client {
        let client = Client::connect(self.backend.address).expect("it listens");
        client
            .set_read_timeout(Some(Duration::from_millis(1)))
            .expect("a bound");
        client
    }

    /// What `client` is told, once that has so many bytes.
    fn told(&mut self, client: &mut Client, length: usize) -> String {
        let (mut all, begin) = (Vec::new(), Instant::now());
        while all.len() < length {
            assert!(begin.elapsed() < WAIT_MAX, "not within {WAIT_MAX:?}");
            let wait = self.wait();
            self.round(wait).expect("events");
            let mut bytes = vec![0; 1 << 20];
            if let Ok(count) = client.read(&mut bytes) {
                all.extend_from_slice(&bytes[..count]);
            }
        }
        String::from_utf8(all).expect("text")
    }
}

impl Drop for TestLoop {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            inner.backend.shared.stop();
            inner.backend.shared.join(inner.pool);
        }
    }
}

/// With the time that work waits in the queue.
#[test]
fn what_is_late_before_it_begins_is_counted() {
    let mut turned = TestLoop::new();
    let backend = &mut turned.backend;
    backend.shared.counts.waited.store(7_000_001, Ordering::SeqCst);
    assert_eq!(backend.late(Time(1), Time(5)), Nanos(7_000_001));
    assert_eq!(backend.shared.counts.expired.load(Ordering::SeqCst), 1);
}

/// Whether the loop, the pool or both carry out the reads of a pipeline: replies come in the order of requests.
#[test]
fn a_pipeline_is_answered_in_order_wherever_it_is_carried_out() {
    let mut turned = TestLoop::new();
    let mut client = turned.client();
    let long = "v".repeat(1 << 20);
    let set = format!("*3\r\n$3\r\nSET\r\n$1\r\nl\r\n${}\r\n{long}\r\n", long.len());
    client.write_all(set.as_bytes()).expect("it takes bytes");
    assert_eq!(turned.told(&mut client, 5), "+OK\r\n");
    for length in [1, 3, 16, 40] {
        for learned in [Nanos::ZERO, Nanos(1_000), Nanos::from_millis(1)] {
            let costs = &turned.backend.shared.counts.costs;
            (0..200).for_each(|_| costs.learn(Verb::Get, learned));
            let requests = (0..length).map(|at| match at % 6 {
                3 => ("GET l".to_owned(), format!("${}\r\n{long}\r\n", long.len())),
                4 => ("EXISTS l l none".to_owned(), ":2\r\n".to_owned()),
                5 => (format!("ECHO {at}"), format!("${}\r\n{at}\r\n", at.to_string().len())),
                _ => ("GET none".to_owned(), "$-1\r\n".to_owned()),
            });
            let (requests, replies): (Vec<_>, Vec<_>) = requests.unzip();
            let mut sent = client.try_clone().expect("a socket");
            let text = requests.join("\r\n") + "\r\n";
            sent.write_all(text.as_bytes()).expect("it takes bytes");
            let expected = replies.concat();
            let found = turned.told(&mut client, expected.len());
            assert!(found == expected, "{length} requests, {learned:?} learned");
        }
    }
}

/// What the loop matches has bounds.
#[test]
fn long_names_are_refused() {
    let mut turned = TestLoop::new();
    let mut client = turned.client();
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
