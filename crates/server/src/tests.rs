//! Commands on a store in memory, under a clock that moves with each look at it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use punctual_engines::Memory;
use punctual_os::{LinuxOs, Os, Refusal, Scheduling, Thread, Tid};
use punctual_store::{Store, StoreOptions};
use punctual_units::{Clock, Nanos, Time};

use crate::commands;
use crate::cursors::Cursors;
use crate::resp::Version;
use crate::resp::request::Request;
use crate::session::Asked;
use crate::work::{Counts, Done, Handle, Job, Temporal, Work, Worker};

/// Linux, but for its clock, which can tick at each look, and for threads that can be made to panic.
#[derive(Clone, Debug, Default)]
pub(crate) struct TestOs {
    /// One more at each look; 0 for the system's clock.
    ticks: Arc<AtomicU64>,
    /// Whether a look at the clock from the pool panics.
    pub panics: Arc<AtomicBool>,
}

impl TestOs {
    /// A clock that goes on by a nanosecond at each look.
    pub fn ticking() -> TestOs {
        TestOs {
            ticks: Arc::new(AtomicU64::new(1)),
            ..TestOs::default()
        }
    }
}

impl Clock for TestOs {
    fn now(&self) -> Time {
        let is_of_the_pool = || std::thread::current().name().is_some_and(|name| name == "serve-0");
        if self.panics.load(Ordering::SeqCst) && is_of_the_pool() {
            panic!("planted");
        }
        match self.ticks.load(Ordering::SeqCst) {
            0 => LinuxOs.now(),
            _ => Time(self.ticks.fetch_add(1, Ordering::SeqCst)),
        }
    }
}

impl Os for TestOs {
    type Lock<T: Send> = <LinuxOs as Os>::Lock<T>;
    type Parker = <LinuxOs as Os>::Parker;

    fn new_lock<T: Send>(&self, data: T) -> Self::Lock<T> {
        LinuxOs.new_lock(data)
    }

    fn new_parker(&self) -> Self::Parker {
        LinuxOs.new_parker()
    }

    fn sleep_until(&self, wake: Time) {
        LinuxOs.sleep_until(wake);
    }

    fn this_thread(&self) -> Tid {
        LinuxOs.this_thread()
    }

    fn scheduling(&self, thread: Tid) -> Result<Scheduling, Refusal> {
        LinuxOs.scheduling(thread)
    }

    fn set_scheduling(&self, thread: Tid, scheduling: Scheduling) -> Result<(), Refusal> {
        LinuxOs.set_scheduling(thread, scheduling)
    }

    fn together(&self, threads: Vec<Thread<'_>>) {
        LinuxOs.together(threads);
    }
}

pub(crate) fn store(os: TestOs) -> Store<Memory, TestOs> {
    let options = StoreOptions {
        created_max: 8,
        ..StoreOptions::default()
    };
    Store::open(Memory::default(), os, options).expect("a store in memory")
}

/// A command, in words.
pub(crate) fn asked(words: &str) -> Asked {
    asked_with(words.split(' '))
}

fn asked_with<A: AsRef<[u8]>>(words: impl IntoIterator<Item = A>) -> Asked {
    let request = Request::of(words);
    Asked {
        command: commands::find(request.argument(0)).expect("a command"),
        request,
        deadline: Time::MAX,
        arrived: Time(0),
    }
}

pub(crate) fn job(place: usize, asked: Vec<Asked>) -> Job {
    Job {
        connection: Handle {
            place,
            id: place as u64,
        },
        version: Version::Two,
        queued: Time(0),
        work: Work::Run(asked),
    }
}

/// What carries out work, with its counts.
#[derive(Default)]
struct Bench {
    cursors: Cursors,
    counts: Counts,
}

impl Bench {
    fn carry_out(&self, store: &Store<Memory, TestOs>, jobs: Vec<Job>) -> Vec<Done> {
        let worker = Worker {
            store,
            cursors: &self.cursors,
            counts: &self.counts,
            temporal: Temporal {
                validity: Nanos::from_secs(1),
                max_len: 64,
            },
            listen: &|| Ok(()),
        };
        let mut done = Vec::new();
        worker.carry_out(jobs, &mut done);
        done
    }

    /// The reply to one command.
    fn answer(&self, store: &Store<Memory, TestOs>, words: &str) -> String {
        let done = self.carry_out(store, vec![job(0, vec![asked(words)])]);
        String::from_utf8(done.into_iter().next().expect("done").reply).expect("text")
    }
}

/// Whenever a term ends, before, within or after a command that keeps it: what the command has kept has a term still,
/// and what it began anew has none.
#[test]
fn no_record_loses_its_term_as_that_ends() {
    let cases = [
        ("SET a 5", "INCR a", "GET a", "$1\r\n6\r\n"),
        ("SET a 5", "APPEND a 6", "GET a", "$2\r\n56\r\n"),
        ("SET a 5", "SET a 6 XX KEEPTTL", "GET a", "$1\r\n6\r\n"),
        ("HSET a f 5", "HSET a g 6", "HGET a f", "$1\r\n5\r\n"),
        ("HSET a f 5 g 6", "HDEL a g", "HGET a f", "$1\r\n5\r\n"),
    ];
    for (set, change, look, kept) in cases {
        let (mut kept_some, mut lost_some) = (false, false);
        for life in 1..200 {
            let bench = Bench::default();
            let store = store(TestOs::ticking());
            bench.answer(&store, set);
            let mut transaction = store
                .write_transaction(punctual_store::Deadline::NONE)
                .expect("one writer");
            transaction.set_life(b"a", Some(Nanos(life))).expect("a term");
            transaction.commit().expect("a commit");
            bench.answer(&store, change);
            let found = bench.answer(&store, look);
            let term = bench.answer(&store, "PTTL a");
            assert!(
                term != ":-1\r\n" || found != kept,
                "{change}, {life} ticks before the end: {found:?} for ever"
            );
            kept_some |= term == ":0\r\n";
            lost_some |= term != ":0\r\n";
        }
        assert!(
            kept_some && lost_some,
            "{change}: the term never ended before, or never after"
        );
    }
}

/// As many fields as a hash can have, each named twice, and taken away again: a list that is searched for each of them
/// would take minutes. The reply and what is left are as a map has it.
#[test]
fn a_hash_takes_as_many_fields_as_fit() {
    const FIELDS: usize = 60_000;
    let bench = Bench::default();
    let store = store(TestOs::default());
    let name = |field: usize| format!("{field:x}");
    let with = |command: &str, fields: Vec<String>| {
        let words = [command.to_owned(), "h".into()].into_iter().chain(fields);
        let done = bench.carry_out(&store, vec![job(0, vec![asked_with(words)])]);
        String::from_utf8(done.into_iter().next().expect("done").reply).expect("text")
    };
    let twice = (0..FIELDS).chain(0..FIELDS).flat_map(|field| [name(field), "v".into()]);
    // 131,072 arguments are the bound of a request; this is below the store, so that it may have more.
    assert_eq!(with("HSET", twice.collect()), format!(":{FIELDS}\r\n"));
    assert_eq!(
        with("HSET", vec![name(7), "w".into(), "new".into(), "n".into()]),
        ":1\r\n"
    );
    let read = with("HMGET", (0..FIELDS).map(name).collect());
    assert_eq!(read.matches("$1\r\nv\r\n").count(), FIELDS - 1);
    assert!(read.contains("$1\r\nw\r\n"));
    let even = (0..FIELDS).step_by(2).flat_map(|field| [name(field), name(field)]);
    assert_eq!(with("HDEL", even.collect()), format!(":{}\r\n", FIELDS / 2));
    assert_eq!(bench.answer(&store, "HLEN h"), format!(":{}\r\n", FIELDS / 2 + 1));
    // In the order in which they were set first.
    assert!(
        bench
            .answer(&store, "HGETALL h")
            .starts_with(&format!("*{}\r\n$1\r\n1\r\n$1\r\nv\r\n$1\r\n3\r\n", FIELDS + 2))
    );
}
