//! The cases: the same operations on each contender, and operations that only our store has.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use punctual_os::LinuxOs;
use punctual_store::engine::Engine;
use punctual_store::{Deadline, Freshness, Store};
use punctual_units::{Clock, Nanos, ObjectId, SensorId};

use super::contender::{CaseError, Contender, DRAWN, Records, Session, Values, drawn, failed, key};
use super::ours::{Ours, TEMPORAL_BYTES, TEMPORAL_OBJECTS, temporal_key};
use super::rounds::{Case, Sink};

pub const GET: &str = "get";
pub const GETS: &str = "100 gets in one transaction";
const SCAN: &str = "scan of 100 records";
pub const SCAN_LONG: &str = "scan of 1000 records";
const PUT: &str = "put, not synced";
pub const PUTS: &str = "100 puts in one transaction, not synced";
pub const PUT_DURABLE: &str = "put, durable";
pub const PUT_DURABLE_EIGHT: &str = "put, durable, by eight threads at once";
pub const COPIED: &str = "get, copied";
pub const TEMPORAL: &str = "temporal get by handle";
pub const OFFER: &str = "offer of a reading";
pub const OFFER_FOUR: &str = "offer of a reading, four threads";
pub const OFFER_PAPER: &str = "offer of a reading, by a transaction";
const GET_BESIDE: &str = "get, 8 readers beside a writer";
const PUT_BESIDE: &str = "put, a writer beside 8 readers";

/// Number of keys in the long cases.
const MANY: usize = 100;
/// Number of records in the long scan.
const LONG: usize = 1000;
const READERS: usize = 8;
/// Gets of each reader, and puts of the writer meanwhile, in one round.
const GETS_BESIDE: usize = 100;
const PUTS_BESIDE: usize = 20;
/// Durable puts of each of as many threads in one round.
const PUTS_EACH: usize = 4;
/// Threads that offer readings at the same time, and readings of each in a round.
const OFFERING: usize = 4;
const OFFERS: usize = 2000;
/// Readings of each that are timed one by one.
const OFFERED_ALONE: usize = 20;

/// Keys in the order of their use, and values for puts.
pub struct KeySequence {
    keys: Vec<Vec<u8>>,
    values: Values,
    puts: AtomicUsize,
}

impl KeySequence {
    /// Draws keys among these records.
    pub fn of(records: Records) -> KeySequence {
        let mut keys: Vec<Vec<u8>> = drawn(records.objects, 1).into_iter().map(key).collect();
        keys.extend_from_within(..MANY); // so that MANY keys from any position on are consecutive
        KeySequence {
            keys,
            values: records.values(4),
            puts: AtomicUsize::new(0),
        }
    }

    /// The value of the next put.
    fn value(&self) -> &[u8] {
        self.values.of(self.puts.fetch_add(1, Ordering::Relaxed))
    }
}

/// The cases of `contender` without syncs.
///
/// # Errors
/// [`CaseError`].
pub fn visible<'s>(contender: &'s dyn Contender, drawn: &'s KeySequence) -> Result<Vec<Case<'s>>, CaseError> {
    type Operation = fn(&mut (dyn Session + '_), &KeySequence, usize) -> Result<(), CaseError>;
    let operations: [(_, usize, usize, Operation); 6] = [
        (GET, 2000, 50, |session, drawn, at| session.gets(&drawn.keys[at..=at])),
        (GETS, 20, 20, |session, drawn, at| {
            session.gets(&drawn.keys[at..at + MANY])
        }),
        (SCAN, 20, 20, |session, drawn, at| session.scan(&drawn.keys[at], MANY)),
        (SCAN_LONG, 5, 5, |session, drawn, at| {
            session.scan(&drawn.keys[at], LONG)
        }),
        (PUT, 50, 50, |session, drawn, at| {
            session.puts(&drawn.keys[at..=at], drawn.value())
        }),
        (PUTS, 5, 5, |session, drawn, at| {
            session.puts(&drawn.keys[at..at + MANY], drawn.value())
        }),
    ];
    let mut cases = vec![beside(contender, drawn)];
    for (operation, batch, singles, run) in operations {
        let mut session = contender.session()?;
        let one = move |at| run(&mut *session, drawn, at);
        cases.push(alone(contender.name(), operation, batch, singles, one));
    }
    Ok(cases)
}

/// The case of `contender` in which each put survives a power cut.
///
/// # Errors
/// [`CaseError`].
pub fn durable<'s>(contender: &'s dyn Contender, drawn: &'s KeySequence) -> Result<Case<'s>, CaseError> {
    let mut session = contender.session()?;
    let one = move |at: usize| session.puts(&drawn.keys[at..=at], drawn.value());
    Ok(alone(contender.name(), PUT_DURABLE, 2, 8, one))
}

/// Eight threads that each put durably, again and again; timed as one batch.
pub fn durable_by_eight<'s>(contender: &'s dyn Contender, drawn: &'s KeySequence) -> Case<'s> {
    let mut began = 0;
    let round = move |sinks: &mut [Sink]| {
        began = (began + PUTS_EACH) % DRAWN;
        let (begin, over) = (Barrier::new(READERS + 1), Barrier::new(READERS + 1));
        let put = |thread: usize| {
            let session = contender.session();
            begin.wait(); // before a failure is returned: the other threads wait here
            let put = session.and_then(|mut session| {
                (0..PUTS_EACH).try_for_each(|i| {
                    let at = (began + i + thread * DRAWN / READERS) % DRAWN;
                    session.puts(&drawn.keys[at..=at], drawn.value())
                })
            });
            over.wait();
            put
        };
        let put = &put;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..READERS).map(|thread| scope.spawn(move || put(thread))).collect();
            begin.wait();
            let start = Instant::now();
            over.wait();
            let all = start.elapsed();
            sinks[0].batch(all, READERS * PUTS_EACH);
            sinks[0].one(all / (READERS * PUTS_EACH) as u32);
            let panicked = |_| CaseError::Figures("a thread panicked".into());
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(panicked)?)
        })
    };
    Case {
        contender: contender.name(),
        operations: vec![PUT_DURABLE_EIGHT],
        round: Box::new(round),
    }
}

/// Cases that only our store has: copies, deadlines, temporal objects.
pub fn ours<'s, E: Engine>(ours: &'s Ours<E>, drawn: &'s KeySequence) -> Vec<Case<'s>> {
    let (store, fail, name) = (&ours.store, failed(ours.name()), ours.name());
    let objects = self::drawn(TEMPORAL_OBJECTS, 2);
    let keys: Vec<Vec<u8>> = objects.iter().map(|i| temporal_key(*i)).collect();
    let fresh_keys = keys.clone();
    let get = move |at: usize, deadline| -> Result<(), CaseError> {
        let transaction = store.read_transaction(deadline).map_err(fail)?;
        black_box(
            transaction
                .get(&drawn.keys[at])
                .map_err(fail)?
                .ok_or(CaseError::Missing)?,
        );
        black_box(transaction.finish());
        Ok(())
    };
    let (mut value, mut value_by_key) = (Vec::with_capacity(TEMPORAL_BYTES), Vec::with_capacity(TEMPORAL_BYTES));
    let mut read = move |object| -> Result<(), CaseError> {
        black_box(
            store
                .read(object, &mut value)
                .map_err(fail)?
                .ok_or(CaseError::Missing)?,
        );
        Ok(())
    };
    let by_key = move |at: usize| -> Result<(), CaseError> {
        let object = store.object(&keys[at]).ok_or(CaseError::Missing)?;
        black_box(
            store
                .read(object, &mut value_by_key)
                .map_err(fail)?
                .ok_or(CaseError::Missing)?,
        );
        Ok(())
    };
    let fresh = move |at: usize| match store.get_fresh(&fresh_keys[at], Nanos::MAX).map_err(fail)? {
        Freshness::Fresh { value, .. } => {
            black_box(value);
            Ok(())
        }
        Freshness::Stale { .. } | Freshness::NotFound => Err(CaseError::Missing),
    };
    let case = |operation, one: One<'s>| alone_boxed(name, operation, 2000, 50, one);
    vec![
        case(COPIED, Box::new(move |at| get(at, Deadline::NONE))),
        case(
            "get, copied, with a deadline, timed",
            Box::new(move |at| get(at, Deadline::soft(LinuxOs.now()))),
        ),
        case(TEMPORAL, Box::new(move |at| read(ObjectId(objects[at])))),
        case("temporal get by key", Box::new(by_key)),
        case("temporal get_fresh by key", Box::new(fresh)),
    ]
}

/// Readings of temporal objects, from their offer until a read finds them: installed by the offering thread, by four
/// threads, and each in a transaction, as in the first paper.
pub fn offers<'s, E: Engine>(store: &'s Store<E, LinuxOs>, by_transactions: &'s Store<E, LinuxOs>) -> [Case<'s>; 3] {
    let (fail, name) = (failed(super::ours::NAME), super::ours::NAME);
    let objects = self::drawn(TEMPORAL_OBJECTS, 5);
    let (sensors, threads) = (objects.clone(), objects.clone());
    let value = [7; TEMPORAL_BYTES];
    let offer = move |store: &Store<E, LinuxOs>, sensor: u32| -> Result<(), CaseError> {
        store.offer_next(SensorId(sensor), None, &value).map(drop).map_err(fail)
    };
    let alone = move |at: usize| offer(store, objects[at]);
    let in_transaction = move |at: usize| {
        offer(by_transactions, sensors[at])?;
        by_transactions.install_pending(1).map(drop).map_err(fail)
    };
    let round = move |sinks: &mut [Sink]| {
        let (begin, offered) = (Barrier::new(OFFERING + 1), Barrier::new(OFFERING + 1));
        let some = |of: usize| {
            begin.wait();
            let mut sensors = threads[of * DRAWN / OFFERING..].iter();
            let answer = sensors
                .by_ref()
                .take(OFFERS)
                .try_for_each(|sensor| offer(store, *sensor));
            offered.wait();
            answer?;
            let timed = |sensor: &u32| -> Result<Duration, CaseError> {
                let start = Instant::now();
                offer(store, *sensor)?;
                Ok(start.elapsed())
            };
            sensors.take(OFFERED_ALONE).map(timed).collect::<Result<Vec<_>, _>>()
        };
        let some = &some;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..OFFERING).map(|of| scope.spawn(move || some(of))).collect();
            begin.wait();
            let start = Instant::now();
            offered.wait();
            sinks[0].batch(start.elapsed(), OFFERING * OFFERS);
            let panicked = |_| CaseError::Figures("a thread panicked".into());
            threads.into_iter().try_for_each(|thread| {
                let spans = thread.join().map_err(panicked)??;
                spans.into_iter().for_each(|span| sinks[0].one(span));
                Ok(())
            })
        })
    };
    let many = Case {
        contender: name,
        operations: vec![OFFER_FOUR],
        round: Box::new(round),
    };
    [
        self::alone(name, OFFER, 2000, 50, alone),
        self::alone(name, OFFER_PAPER, 200, 50, in_transaction),
        many,
    ]
}

type One<'s> = Box<dyn FnMut(usize) -> Result<(), CaseError> + 's>;

fn alone<'s>(
    contender: &'static str,
    operation: &'static str,
    batch: usize,
    singles: usize,
    one: impl FnMut(usize) -> Result<(), CaseError> + 's,
) -> Case<'s> {
    alone_boxed(contender, operation, batch, singles, Box::new(one))
}

/// A case with one thread: a batch of operations, then some that are timed one by one. `one` carries out the operation
/// with the key at its argument.
fn alone_boxed<'s>(
    contender: &'static str,
    operation: &'static str,
    batch: usize,
    singles: usize,
    mut one: One<'s>,
) -> Case<'s> {
    let mut at = 0;
    let mut next = move || {
        at = (at + 1) % DRAWN;
        one(at)
    };
    let round = move |sinks: &mut [Sink]| {
        let start = Instant::now();
        for _ in 0..batch {
            next()?;
        }
        sinks[0].batch(start.elapsed(), batch);
        for _ in 0..singles {
            let start = Instant::now();
            next()?;
            sinks[0].one(start.elapsed());
        }
        Ok(())
    };
    Case {
        contender,
        operations: vec![operation],
        round: Box::new(round),
    }
}

/// Eight threads that get, and one thread that puts, each operation timed.
fn beside<'s>(contender: &'s dyn Contender, drawn: &'s KeySequence) -> Case<'s> {
    let mut began = 0;
    let round = move |sinks: &mut [Sink]| {
        began = (began + GETS_BESIDE) % DRAWN;
        let begin = Barrier::new(READERS + 1);
        let timed = |from: usize, count: usize, one: &dyn Fn(&mut dyn Session, usize) -> Result<(), CaseError>| {
            let session = contender.session();
            begin.wait(); // before a failure is returned: the other threads wait here
            let mut session = session?;
            let span = |i| {
                let start = Instant::now();
                one(&mut *session, (from + i) % DRAWN)?;
                Ok(start.elapsed())
            };
            (0..count).map(span).collect::<Result<Vec<_>, CaseError>>()
        };
        let timed = &timed;
        let (gets, puts) = std::thread::scope(|scope| {
            let reader = |i: usize| {
                let from = began + i * DRAWN / READERS;
                let get = |session: &mut dyn Session, at: usize| session.gets(&drawn.keys[at..=at]);
                scope.spawn(move || timed(from, GETS_BESIDE, &get))
            };
            let readers: Vec<_> = (0..READERS).map(reader).collect();
            let put = |session: &mut dyn Session, at: usize| session.puts(&drawn.keys[at..=at], drawn.value());
            let puts = timed(began, PUTS_BESIDE, &put);
            let panicked = |_| CaseError::Figures("a thread panicked".into());
            let gets: Vec<_> = readers
                .into_iter()
                .map(|reader| reader.join().map_err(panicked))
                .collect();
            (gets, puts)
        });
        for span in puts? {
            sinks[1].one(span);
        }
        for reader in gets {
            for span in reader?? {
                sinks[0].one(span);
            }
        }
        Ok(())
    };
    Case {
        contender: contender.name(),
        operations: vec![GET_BESIDE, PUT_BESIDE],
        round: Box::new(round),
    }
}
