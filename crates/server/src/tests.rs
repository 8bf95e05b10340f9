//! Commands on a store in memory, under a clock that moves with each look at it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use punctual_engines::Memory;
use punctual_os::{LinuxOs, Os, Refusal, Scheduling, Thread, Tid};
use punctual_store::{Store, StoreOptions};
use punctual_units::{Clock, Nanos, Time};

use crate::commands::{self, Verb};
use crate::cursors::Cursors;
use crate::figures::prometheus;
use crate::info::{late_requests, outcomes};
use crate::pool::{Pool, PoolOptions, PoolState};
use crate::resp::Resp;
use crate::resp::request::Request;
use crate::session::Call;
use crate::work::{BatchTimes, Counts, Handle, Job, JobReply, LateStage, REPLIES_PAUSE, Temporal, Work, Worker};

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

pub(crate) fn store<O: Os>(os: O) -> Store<Memory, O> {
    let options = StoreOptions {
        created_max: 8,
        ..StoreOptions::default()
    };
    Store::open(Memory::default(), os, options).expect("a store in memory")
}

/// A command, in words.
pub(crate) fn asked(words: &str) -> Call {
    asked_with(words.split(' '))
}

fn asked_with<A: AsRef<[u8]>>(words: impl IntoIterator<Item = A>) -> Call {
    let request = Request::of(words);
    let command = commands::find(request.argument(0)).expect("a command");
    Call::new(command, request, Time::MAX, Time(0))
}

pub(crate) fn job(place: usize, asked: Vec<Call>) -> Job {
    Job {
        connection: Handle {
            place,
            id: place as u64,
        },
        version: Resp::Two,
        queued: Time(0),
        work: Work::Run(asked),
    }
}

/// What carries out work, with its counts.
#[derive(Default)]
struct Bench {
    cursors: Cursors,
    counts: Counts,
    ending: AtomicBool,
}

impl Bench {
    fn carry_out<O: Os>(&self, store: &Store<Memory, O>, jobs: Vec<Job>) -> Vec<JobReply> {
        self.carry_out_beside(store, jobs, &store.os().new_lock(()))
    }

    fn carry_out_beside<O: Os>(&self, store: &Store<Memory, O>, jobs: Vec<Job>, newest: &O::Lock<()>) -> Vec<JobReply> {
        let mut done = Vec::new();
        self.worker(store, newest).carry_out(jobs, &mut done);
        done
    }

    fn worker<'s, O: Os>(&'s self, store: &'s Store<Memory, O>, newest: &'s O::Lock<()>) -> Worker<'s, Memory, O> {
        Worker {
            store,
            cursors: &self.cursors,
            counts: &self.counts,
            temporal: Temporal {
                validity: Nanos::from_secs(1),
                max_len: 64,
            },
            newest,
            ending: &self.ending,
            listen: &|| Ok(()),
            made: &|_, _| (),
            spent: BatchTimes::default(),
        }
    }

    /// The reply to one command.
    fn answer<O: Os>(&self, store: &Store<Memory, O>, words: &str) -> String {
        let done = self.carry_out(store, vec![job(0, vec![asked(words)])]);
        String::from_utf8(done.into_iter().next().expect("done").reply).expect("text")
    }
}

/// The event loop answers reads as the pool does; what long replies leave over comes back, in order.
#[test]
fn reads_at_once_are_answered_as_jobs_are() {
    let (bench, store) = (Bench::default(), store(TestOs::default()));
    bench.answer(&store, &format!("SET long {}", "x".repeat(REPLIES_PAUSE)));
    bench.answer(&store, "SET short 1");
    let words = ["GET short", "GET none", "HGET short f", "GET long", "GET short"];
    let asked_all = || words.iter().map(|words| asked(words)).collect::<Vec<_>>();
    let newest = store.os().new_lock(());
    let (mut reply, place) = (Vec::new(), 0);
    let handle = job(place, Vec::new()).connection;
    let rest = bench
        .worker(&store, &newest)
        .read_at_once(asked_all(), (handle, Resp::Two), &mut reply);
    let as_job = bench.carry_out(&store, vec![job(place, asked_all())]).remove(0);
    assert_eq!(reply, as_job.reply);
    assert_eq!(
        (rest.len(), as_job.rest.len()),
        (1, 1),
        "the reply to the fourth is long"
    );
}

/// Values are counted one by one, within a transaction as well.
#[test]
fn values_that_are_found_are_counted() {
    let (bench, store) = (Bench::default(), store(TestOs::default()));
    bench.answer(&store, "MSET a 12 b $-1");
    bench.answer(&store, "MGET a none b nor");
    bench.answer(&store, "GET a");
    bench.answer(&store, "HGET none f");
    bench.answer(&store, "EXISTS a none");
    let counted = || [&bench.counts.found, &bench.counts.missed].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counted(), [3, 3]);
    for words in [["GET a", "MGET b none"], ["GET none", "SET b 1"]] {
        let queued = words.iter().map(|words| asked(words)).collect();
        let exec = Job {
            work: Work::Exec(queued, Vec::new(), Time::MAX),
            ..job(0, Vec::new())
        };
        bench.carry_out(&store, vec![exec]);
    }
    assert_eq!(counted(), [5, 5]);
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

fn texts(done: Vec<JobReply>) -> Vec<String> {
    done.into_iter()
        .map(|done| String::from_utf8(done.reply).expect("text"))
        .collect()
}

/// A command that the store refuses costs its neighbours one commit more, not one each.
#[test]
fn a_refused_write_leaves_the_others_together() {
    let bench = Bench::default();
    let store = store(TestOs::default());
    let long = "k".repeat(600);
    let words = |at: usize| match at {
        3 | 20 => format!("SET {long} 1"),
        at => format!("SET key{at} 1"),
    };
    let jobs = (0..32).map(|at| job(at, vec![asked(&words(at))])).collect();
    for (at, reply) in texts(bench.carry_out(&store, jobs)).into_iter().enumerate() {
        match at {
            3 | 20 => assert!(reply.starts_with("-ERR a key has 1 to 511 bytes"), "{reply}"),
            _ => assert_eq!(reply, "+OK\r\n", "{at}"),
        }
    }
    assert_eq!(bench.answer(&store, "DBSIZE"), ":30\r\n");
    assert_eq!(bench.counts.commits.load(Ordering::SeqCst), 3);
    assert_eq!(bench.counts.carried_out.load(Ordering::SeqCst), 33);
    // All of them: each is told, and it ends.
    let jobs = (0..8)
        .map(|at| job(at, vec![asked(&words(3)), asked(&words(20))]))
        .collect();
    let refused = texts(bench.carry_out(&store, jobs));
    assert!(
        refused.iter().all(|reply| reply.matches("-ERR a key has").count() == 2),
        "{refused:?}"
    );
}

/// One step for each turn in the queue, in place of the whole with the lane of writes.
#[test]
fn flushdb_lets_others_have_their_turn_and_removes_all_that_was_there() {
    let bench = Bench::default();
    let store = store(TestOs::default());
    assert_eq!(bench.answer(&store, "TSET pose 1"), "+OK\r\n");
    for from in 0..20 {
        let pairs = (0..100).flat_map(|key| [format!("key/{from}/{key}"), "x".into()]);
        bench.carry_out(
            &store,
            vec![job(0, vec![asked_with(["MSET".to_owned()].into_iter().chain(pairs))])],
        );
    }
    let mut rest = vec![asked("FLUSHDB"), asked("DBSIZE")];
    rest[0].arrived = store.os().now();
    rest[0].deadline = rest[0].arrived + Nanos::from_secs(1000);
    let (mut steps, mut reply) = (0, Vec::new());
    while !rest.is_empty() {
        let before = bench.counts.commits.load(Ordering::SeqCst);
        let done = bench.carry_out(&store, vec![job(0, rest)]).remove(0);
        assert!(
            bench.counts.commits.load(Ordering::SeqCst) <= before + 1,
            "more than one transaction in a turn"
        );
        reply.extend(done.reply);
        rest = done.rest;
        steps += 1;
        if let Some(first) = rest.first() {
            assert_eq!((first.command.name, first.deadline), ("flushdb", Time::MAX));
        }
        // Others write meanwhile, behind what was there and before it.
        bench.answer(&store, &format!("SET zzz{steps} 1"));
        bench.answer(&store, &format!("SET aaa{steps} 1"));
    }
    assert!((4..=6).contains(&steps), "{steps}");
    let reply = String::from_utf8(reply).expect("text");
    assert!(reply.starts_with("+OK\r\n:"), "{reply}");
    let left = bench.answer(&store, "KEYS *");
    assert!(
        !left.contains("key/") && left.contains("pose") && left.contains("zzz1"),
        "{left}"
    );
    assert!(bench.answer(&store, "FLUSHDB now").starts_with("-ERR syntax"));
}

/// A step that is to go on has its place, though the queue be full: it could not be told that nothing was done.
#[test]
fn what_has_begun_is_not_refused() {
    let bench = Bench::default();
    let store = store(TestOs::default());
    let pairs = (0..600).flat_map(|key| [format!("key/{key}"), "x".into()]);
    bench.carry_out(
        &store,
        vec![job(0, vec![asked_with(["MSET".to_owned()].into_iter().chain(pairs))])],
    );
    let rest = bench
        .carry_out(&store, vec![job(0, vec![asked("FLUSHDB")])])
        .remove(0)
        .rest;
    let (shared, _pool) = pool(store, 0);
    let refused = shared.submit(&mut vec![
        job(1, vec![asked("GET a")]),
        job(2, vec![asked("GET a")]),
        job(0, rest),
    ]);
    let refused: Vec<_> = refused.iter().map(|(job, _)| job.connection.place).collect();
    assert_eq!((refused, shared.waiting()), (vec![2], 2));
    // What waits as the server ends is not begun.
    shared.stop();
    assert_eq!(shared.waiting(), 0);
}

/// Reads of which each takes 100 ms, and a second for each: those behind the tenth are told at once.
#[test]
fn what_cannot_end_in_time_is_refused_as_it_comes() {
    let (shared, _pool) = pool_for(store(TestOs::ticking()), 0, 100);
    let costs = &shared.counts.costs;
    (0..1000).for_each(|_| costs.learn(Verb::Get, Nanos::from_millis(100)));
    (0..1000).for_each(|_| costs.learn_turn(Nanos::from_millis(6400)));
    let with = |place, words: &str, deadline: Nanos| {
        let mut asked = asked(words);
        asked.deadline = Time(0) + deadline;
        job(place, vec![asked])
    };
    let second = Nanos::from_secs(1);
    for words in ["GET a", "SET a 1"] {
        let mut jobs: Vec<_> = (0..20).map(|place| with(place, words, second)).collect();
        // These have more time, all they need, or begin a run that has no deadline.
        jobs.push(with(20, words, Nanos::from_secs(1000)));
        jobs.push(with(21, words, Nanos::from_millis(1)));
        let mut mixed = with(22, words, second);
        if let Work::Run(run) = &mut mixed.work {
            run.push(asked(words));
        }
        jobs.push(mixed);
        jobs.push(job(23, vec![asked(words)]));
        let refused = shared.submit(&mut jobs);
        let places: Vec<_> = refused.iter().map(|(job, _)| job.connection.place).collect();
        assert_eq!(places, (9..20).collect::<Vec<_>>(), "{words}");
        let after: Vec<_> = refused.iter().map(|(_, after)| after.0 / 1_000_000).collect();
        assert!(after.iter().all(|after| (1..200).contains(after)), "{after:?}");
    }
    shared.stop();
    assert_eq!(shared.waiting(), 0);
}

/// A pool with room for one piece of work.
fn pool(store: Store<Memory, TestOs>, threads: usize) -> (Arc<PoolState<Memory, TestOs>>, Pool) {
    pool_for(store, threads, 1)
}

fn pool_for(store: Store<Memory, TestOs>, threads: usize, queue_max: usize) -> (Arc<PoolState<Memory, TestOs>>, Pool) {
    let options = PoolOptions {
        threads,
        queue_max,
        temporal: Temporal {
            validity: Nanos::from_secs(1),
            max_len: 64,
        },
        objects: Vec::new(),
    };
    PoolState::start(Arc::new(store), &options, Box::new(|| ())).expect("threads")
}

#[test]
fn nothing_is_begun_once_the_server_ends() {
    let bench = Bench::default();
    let store = store(TestOs::default());
    bench.ending.store(true, Ordering::SeqCst);
    for words in ["GET a", "SET a 1", "TSET a 1"] {
        let done = bench
            .carry_out(&store, vec![job(0, vec![asked(words), asked("GET a")])])
            .remove(0);
        assert_eq!((done.reply.len(), done.rest.len()), (0, 2), "{words}");
    }
}

/// The lane of writes would stay taken for ever, and clients would wait for ever.
#[test]
fn a_panic_of_the_pool_is_told() {
    let os = TestOs::default();
    let (shared, pool) = pool(store(os.clone()), 1);
    assert!(!shared.has_failed());
    os.panics.store(true, Ordering::SeqCst);
    assert!(shared.submit(&mut vec![job(0, vec![asked("SET a 1")])]).is_empty());
    punctual_testing::wait_until("the panic is noticed", || shared.has_failed());
    shared.stop();
    shared.join(pool);
}

/// Two that are sampled one after the other and set at the same time: the newer one is there at the end.
#[test]
fn the_newest_value_stays_whatever_the_order_of_threads() {
    punctual_testing::explore(0..200, |os| {
        let store = store(os.clone());
        let bench = Bench::default();
        os.advance(Nanos::from_secs(10));
        bench.answer(&store, "TSET pose 0 AGE 9000");
        let newest = os.new_lock(());
        let set = |name: &'static str, at: u64| {
            let (store, bench, newest) = (&store, &bench, &newest);
            punctual_os::Thread::new(name, move || {
                let mut asked = asked(&format!("TSET pose {at}"));
                asked.arrived = Time(at);
                bench.carry_out_beside(store, vec![job(0, vec![asked])], newest);
            })
        };
        os.together(vec![set("older", 5_000_000_000), set("newer", 6_000_000_000)]);
        let found = bench.answer(&store, "GET pose");
        assert_eq!(found, "$10\r\n6000000000\r\n");
    });
}

/// What many ask for at once does not all become replies at once.
#[test]
fn long_replies_wait_for_another_turn() {
    let bench = Bench::default();
    let store = store(TestOs::default());
    let value = "v".repeat(1 << 20);
    bench.answer(&store, &format!("SET a {value}"));
    let mut left: Vec<_> = (0..64).map(|place| job(place, vec![asked("GET a")])).collect();
    let (mut turns, mut answered) = (0, 0);
    while !left.is_empty() {
        let done = bench.carry_out(&store, left);
        let bytes: usize = done.iter().map(|done| done.reply.len()).sum();
        assert!(bytes <= crate::work::REPLIES_TOGETHER + value.len() + 100, "{bytes}");
        answered += done.iter().filter(|done| !done.reply.is_empty()).count();
        let rest = done.into_iter().filter(|done| !done.rest.is_empty());
        left = rest.map(|done| job(done.connection.place, done.rest)).collect();
        turns += 1;
    }
    assert_eq!((turns, answered), (8, 64));
}

/// Each at the stage at which its deadline passed, and its time adds up to what passed since it was read.
#[test]
fn a_late_request_says_where_its_time_went() {
    let bench = Bench::default();
    let store = store(TestOs::default());
    let now = store.os().now();
    let ago = |ms: u64| Time(now.0 - ms * 1_000_000);
    let late = |words: &str, arrived: Time, queued: Time, deadline: Time| {
        let mut asked = asked(words);
        (asked.arrived, asked.deadline) = (arrived, deadline);
        let job = Job {
            queued,
            ..job(0, vec![asked])
        };
        let reply = texts(bench.carry_out(&store, vec![job])).remove(0);
        assert!(reply.starts_with("-LATE reason=expired"), "{reply}");
    };
    late("GET a", ago(50), ago(30), ago(1));
    late("SET a 1", ago(50), ago(30), ago(1));
    late("TSET a 1", ago(50), ago(30), ago(1));
    let count = |stage| bench.counts.late_at(stage).load(Ordering::SeqCst);
    let spent = |stage| bench.counts.late_spent(stage).load(Ordering::SeqCst);
    assert_eq!(LateStage::ALL.map(|(_, stage)| count(stage)), [0, 3, 0, 0]);
    assert_eq!(spent(LateStage::Before), 60_000_000);
    assert!(spent(LateStage::Queue) >= 90_000_000);
    // Behind a writer that has the permit for longer than there is time.
    std::thread::scope(|threads| {
        let writer = store
            .write_transaction(punctual_store::Deadline::NONE)
            .expect("the writer");
        let (tell, deadline) = std::sync::mpsc::channel();
        let (late, os) = (&late, store.os());
        let waits = threads.spawn(move || {
            let begin = os.now();
            let deadline = begin + Nanos::from_millis(20);
            tell.send(deadline).expect("the test waits");
            late("SET a 1", begin, begin, deadline);
        });
        // Whenever the thread looks, the writer is there until its deadline has passed.
        let deadline = deadline.recv().expect("a deadline");
        os.sleep_until(deadline + Nanos(1));
        drop(writer);
        waits.join().expect("it is told");
    });
    assert_eq!(LateStage::ALL.map(|(_, stage)| count(stage)).iter().sum::<u64>(), 4);
    assert_eq!(bench.counts.expired.load(Ordering::SeqCst), 4);
    assert_eq!(bench.counts.timely.load(Ordering::SeqCst), 0);
    let mut figures = outcomes(&bench.counts).to_vec();
    figures.extend(late_requests(&bench.counts));
    let page = prometheus("", &figures);
    assert!(
        page.contains("punctual_requests_total{outcome=\"expired\"} 4\n"),
        "{page}"
    );
    assert!(
        page.contains("punctual_late_requests_total{stage=\"queue\"} "),
        "{page}"
    );
}
