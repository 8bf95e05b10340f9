//! Commands on a store in memory, under a clock that moves with each look at it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use punctual_engines::Memory;
use punctual_os::{LinuxOs, Os, Refusal, Scheduling, Thread, Tid};
use punctual_store::{Store, StoreOptions};
use punctual_units::{Clock, Nanos, Time};

use crate::commands::{self, Verb};
use crate::figures::prometheus;
use crate::info::{late_requests, outcomes};
use crate::pool::{Pool, PoolOptions, PoolState};
use crate::resp::Resp;
use crate::resp::request::Request;
use crate::session::Call;
use crate::work::{Handle, Job, JobReply, LateStage, REPLIES_PAUSE, Temporal, Work, Worker};

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

/// A pool without threads, with room for one piece of work.
struct Bench<O: Os>(Arc<PoolState<Memory, O>>);

impl<O: Os> Deref for Bench<O> {
    type Target = PoolState<Memory, O>;

    fn deref(&self) -> &PoolState<Memory, O> {
        &self.0
    }
}

impl<O: Os> Bench<O> {
    fn of(store: Store<Memory, O>) -> Bench<O> {
        let pool = PoolState::new(Arc::new(store), &pool_options(0, 1), Arc::new(|| ()));
        Bench(Arc::new(pool))
    }

    fn carry_out(&self, jobs: Vec<Job>) -> Vec<JobReply> {
        let mut done = Vec::new();
        Worker::new(&self.0).carry_out(jobs, &mut done);
        done
    }

    /// The reply to one command.
    fn answer(&self, words: &str) -> String {
        let done = self.carry_out(vec![job(0, vec![asked(words)])]);
        String::from_utf8(done.into_iter().next().expect("done").reply).expect("text")
    }
}

/// The event loop answers reads as the pool does; what long replies leave over comes back, in order.
#[test]
fn reads_at_once_are_answered_as_jobs_are() {
    let bench = Bench::of(store(TestOs::default()));
    bench.answer(&format!("SET long {}", "x".repeat(REPLIES_PAUSE)));
    bench.answer("SET short 1");
    let words = ["GET short", "GET none", "HGET short f", "GET long", "GET short"];
    let asked_all = || words.iter().map(|words| asked(words)).collect::<Vec<_>>();
    let (mut reply, place) = (Vec::new(), 0);
    let handle = job(place, Vec::new()).connection;
    let rest = Worker::new(&bench.0).read_at_once(asked_all(), (handle, Resp::Two), &mut reply);
    let as_job = bench.carry_out(vec![job(place, asked_all())]).remove(0);
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
    let bench = Bench::of(store(TestOs::default()));
    bench.answer("MSET a 12 b $-1");
    bench.answer("MGET a none b nor");
    bench.answer("GET a");
    bench.answer("HGET none f");
    bench.answer("EXISTS a none");
    let counted = || [&bench.counts.found, &bench.counts.missed].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counted(), [3, 3]);
    for words in [["GET a", "MGET b none"], ["GET none", "SET b 1"]] {
        let queued = words.iter().map(|words| asked(words)).collect();
        let exec = Job {
            work: Work::Exec(queued, Vec::new(), Time::MAX),
            ..job(0, Vec::new())
        };
        bench.carry_out(vec![exec]);
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
            let bench = Bench::of(store(TestOs::ticking()));
            bench.answer(set);
            let mut transaction = bench
                .store
                .write_transaction(punctual_store::Deadline::NONE)
                .expect("one writer");
            transaction.set_life(b"a", Some(Nanos(life))).expect("a term");
            transaction.commit().expect("a commit");
            bench.answer(change);
            let found = bench.answer(look);
            let term = bench.answer("PTTL a");
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

#[test]
fn nothing_is_there_under_a_key_that_no_record_can_have() {
    let bench = Bench::of(store(TestOs::default()));
    for key in ["\0punctual/due/a".to_owned(), "a".repeat(512)] {
        let answers = [
            ("GET", "$-1\r\n"),
            ("TYPE", "+none\r\n"),
            ("EXISTS", ":0\r\n"),
            ("PTTL", ":-2\r\n"),
            ("DEL", ":0\r\n"),
        ];
        for (command, answer) in answers {
            assert_eq!(bench.answer(&format!("{command} {key}")), answer, "{command}");
        }
        assert_eq!(bench.answer(&format!("HGET {key} f")), "$-1\r\n");
        assert!(bench.answer(&format!("SET {key} 1")).starts_with('-'));
    }
}

/// As many fields as a hash can have, each named twice, and taken away again: a list that is searched for each of them
/// would take minutes. The reply and what is left are as a map has it.
#[test]
fn a_hash_takes_as_many_fields_as_fit() {
    const FIELDS: usize = 60_000;
    let bench = Bench::of(store(TestOs::default()));
    let name = |field: usize| format!("{field:x}");
    let with = |command: &str, fields: Vec<String>| {
        let words = [command.to_owned(), "h".into()].into_iter().chain(fields);
        let done = bench.carry_out(vec![job(0, vec![asked_with(words)])]);
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
    assert_eq!(bench.answer("HLEN h"), format!(":{}\r\n", FIELDS / 2 + 1));
    // In the order in which they were set first.
    assert!(
        bench
            .answer("HGETALL h")
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
    let bench = Bench::of(store(TestOs::default()));
    let long = "k".repeat(600);
    let words = |at: usize| match at {
        3 | 20 => format!("SET {long} 1"),
        at => format!("SET key{at} 1"),
    };
    let jobs = (0..32).map(|at| job(at, vec![asked(&words(at))])).collect();
    for (at, reply) in texts(bench.carry_out(jobs)).into_iter().enumerate() {
        match at {
            3 | 20 => assert!(reply.starts_with("-ERR a key has 1 to 511 bytes"), "{reply}"),
            _ => assert_eq!(reply, "+OK\r\n", "{at}"),
        }
    }
    assert_eq!(bench.answer("DBSIZE"), ":30\r\n");
    assert_eq!(bench.counts.commits.load(Ordering::SeqCst), 3);
    assert_eq!(bench.counts.carried_out.load(Ordering::SeqCst), 33);
    // All of them: each is told, and it ends.
    let jobs = (0..8)
        .map(|at| job(at, vec![asked(&words(3)), asked(&words(20))]))
        .collect();
    let refused = texts(bench.carry_out(jobs));
    assert!(
        refused.iter().all(|reply| reply.matches("-ERR a key has").count() == 2),
        "{refused:?}"
    );
}

/// One step for each turn in the queue, in place of the whole with the lane of writes.
#[test]
fn flushdb_lets_others_have_their_turn_and_removes_all_that_was_there() {
    let bench = Bench::of(store(TestOs::default()));
    assert_eq!(bench.answer("TSET pose 1"), "+OK\r\n");
    for from in 0..20 {
        let pairs = (0..100).flat_map(|key| [format!("key/{from}/{key}"), "x".into()]);
        bench.carry_out(vec![job(
            0,
            vec![asked_with(["MSET".to_owned()].into_iter().chain(pairs))],
        )]);
    }
    let mut rest = vec![asked("FLUSHDB"), asked("DBSIZE")];
    rest[0].arrived = bench.os.now();
    rest[0].deadline = rest[0].arrived + Nanos::from_secs(1000);
    let (mut steps, mut reply) = (0, Vec::new());
    while !rest.is_empty() {
        let before = bench.counts.commits.load(Ordering::SeqCst);
        let done = bench.carry_out(vec![job(0, rest)]).remove(0);
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
        bench.answer(&format!("SET zzz{steps} 1"));
        bench.answer(&format!("SET aaa{steps} 1"));
    }
    assert!((4..=6).contains(&steps), "{steps}");
    let reply = String::from_utf8(reply).expect("text");
    assert!(reply.starts_with("+OK\r\n:"), "{reply}");
    let left = bench.answer("KEYS *");
    assert!(
        !left.contains("key/") && left.contains("pose") && left.contains("zzz1"),
        "{left}"
    );
    assert!(bench.answer("FLUSHDB now").starts_with("-ERR syntax"));
}

/// A step that is to go on has its place, though the queue be full: it could not be told that nothing was done.
#[test]
fn what_has_begun_is_not_refused() {
    let bench = Bench::of(store(TestOs::default()));
    let pairs = (0..600).flat_map(|key| [format!("key/{key}"), "x".into()]);
    bench.carry_out(vec![job(
        0,
        vec![asked_with(["MSET".to_owned()].into_iter().chain(pairs))],
    )]);
    let rest = bench.carry_out(vec![job(0, vec![asked("FLUSHDB")])]).remove(0).rest;
    let refused = bench.submit(&mut vec![
        job(1, vec![asked("GET a")]),
        job(2, vec![asked("GET a")]),
        job(0, rest),
    ]);
    let refused: Vec<_> = refused.iter().map(|(job, _)| job.connection.place).collect();
    assert_eq!((refused, bench.waiting()), (vec![2], 2));
    // What waits as the server ends is not begun.
    bench.stop();
    assert_eq!(bench.waiting(), 0);
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
    let options = pool_options(threads, queue_max);
    PoolState::start(Arc::new(store), &options, Arc::new(|| ())).expect("threads")
}

fn pool_options(threads: usize, queue_max: usize) -> PoolOptions {
    PoolOptions {
        threads,
        queue_max,
        temporal: Temporal {
            validity: Nanos::from_secs(1),
            max_len: 64,
        },
        objects: Vec::new(),
    }
}

#[test]
fn nothing_is_begun_once_the_server_ends() {
    let bench = Bench::of(store(TestOs::default()));
    bench.stop();
    for words in ["GET a", "SET a 1", "TSET a 1"] {
        let done = bench
            .carry_out(vec![job(0, vec![asked(words), asked("GET a")])])
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
        let bench = Bench::of(store(os.clone()));
        os.advance(Nanos::from_secs(10));
        bench.answer("TSET pose 0 AGE 9000");
        let set = |name: &'static str, at: u64| {
            let bench = &bench;
            punctual_os::Thread::new(name, move || {
                let mut asked = asked(&format!("TSET pose {at}"));
                asked.arrived = Time(at);
                bench.carry_out(vec![job(0, vec![asked])]);
            })
        };
        os.together(vec![set("older", 5_000_000_000), set("newer", 6_000_000_000)]);
        let found = bench.answer("GET pose");
        assert_eq!(found, "$10\r\n6000000000\r\n");
    });
}

/// What many ask for at once does not all become replies at once.
#[test]
fn long_replies_wait_for_another_turn() {
    let bench = Bench::of(store(TestOs::default()));
    let value = "v".repeat(1 << 20);
    bench.answer(&format!("SET a {value}"));
    let mut left: Vec<_> = (0..64).map(|place| job(place, vec![asked("GET a")])).collect();
    let (mut turns, mut answered) = (0, 0);
    while !left.is_empty() {
        let done = bench.carry_out(left);
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
    let bench = Bench::of(store(TestOs::default()));
    let now = bench.os.now();
    let ago = |ms: u64| Time(now.0 - ms * 1_000_000);
    let late = |words: &str, arrived: Time, queued: Time, deadline: Time| {
        let mut asked = asked(words);
        (asked.arrived, asked.deadline) = (arrived, deadline);
        let job = Job {
            queued,
            ..job(0, vec![asked])
        };
        let reply = texts(bench.carry_out(vec![job])).remove(0);
        assert!(reply.starts_with("-LATE reason=expired"), "{reply}");
    };
    late("GET a", ago(50), ago(30), ago(1));
    late("SET a 1", ago(50), ago(30), ago(1));
    late("TSET a 1", ago(50), ago(30), ago(1));
    let count = |stage| bench.counts.late_at(stage).load(Ordering::SeqCst);
    let spent = |stage| bench.counts.late_spent(stage).load(Ordering::SeqCst);
    assert_eq!(LateStage::ALL.map(count), [0, 3, 0, 0]);
    assert_eq!(spent(LateStage::Before), 60_000_000);
    assert!(spent(LateStage::Queue) >= 90_000_000);
    // Behind a writer that has the permit for longer than there is time.
    std::thread::scope(|threads| {
        let writer = bench
            .store
            .write_transaction(punctual_store::Deadline::NONE)
            .expect("the writer");
        let (tell, deadline) = std::sync::mpsc::channel();
        let (late, os) = (&late, &bench.os);
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
    assert_eq!(LateStage::ALL.map(count).iter().sum::<u64>(), 4);
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

/// The guide lists the figures of a server on the page for Prometheus, by name, labels and help.
#[test]
fn the_guide_has_every_figure_of_a_server() {
    let (shared, pool) = pool(store(TestOs::default()), 1);
    assert!(shared.submit(&mut vec![job(0, vec![asked("TSET pose 1")])]).is_empty());
    punctual_testing::wait_until("the object is there", || crate::info::ages(&shared).len() == 3);
    // Stopped first: the pool's keeper counts the keys anew, and would overwrite the number below.
    shared.stop();
    shared.join(pool);
    shared.usage.lock().expect("no panic").keys = 1;
    let task = crate::tasks::TaskFigures {
        response_us: Some([1.0; 3]),
        ..Default::default()
    };
    let tasks = crate::tasks::TasksNow {
        tasks: vec![task],
        admitted: Some(1.0),
        fresh: Some(1.0),
        clock_hz: Some(1),
        ..Default::default()
    };
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    let options = crate::node::Options::default();
    let mut figures = crate::info::figures(&shared, &options, address, &crate::door::DoorState::default());
    figures.extend(crate::info::ages(&shared));
    figures.extend(tasks.figures());
    let page = prometheus("", &figures);
    let open = crate::figures::open_metrics(&page);
    assert_eq!(punctual_testing::open_metrics::check(&open), Ok(()), "{open}");
    let table = punctual_testing::guide::figures(&page);
    punctual_testing::guide::holds("reference/figures.md", "figures of a server", &table);
}
