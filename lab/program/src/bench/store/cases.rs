//! The cases: the same operations on each contender, and operations that only our store has.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use punctual_os::LinuxOs;
use punctual_store::engine::Engine;
use punctual_store::{Deadline, Freshness};
use punctual_units::{Clock, Nanos, ObjectId};

use super::contender::{CaseError, Contender, DRAWN, Records, Session, Values, drawn, failed, key};
use super::ours::{Ours, TEMPORAL_BYTES, TEMPORAL_OBJECTS, temporal_key};
use super::rounds::{Case, Sink};

pub const GET: &str = "get";
pub const GETS: &str = "100 gets in one transaction";
const SCAN: &str = "scan of 100 records";
const PUT: &str = "put, not synced";
const PUT_DURABLE: &str = "put, durable";
const GET_BESIDE: &str = "get, 8 readers beside a writer";
const PUT_BESIDE: &str = "put, a writer beside 8 readers";

/// Number of keys in the long cases.
const MANY: usize = 100;
const READERS: usize = 8;
/// Gets of each reader, and puts of the writer meanwhile, in one round.
const GETS_BESIDE: usize = 100;
const PUTS_BESIDE: usize = 20;

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
    let operations: [(_, usize, usize, Operation); 4] = [
        (GET, 2000, 50, |session, drawn, at| session.gets(&drawn.keys[at..=at])),
        (GETS, 20, 20, |session, drawn, at| {
            session.gets(&drawn.keys[at..at + MANY])
        }),
        (SCAN, 20, 20, |session, drawn, at| session.scan(&drawn.keys[at], MANY)),
        (PUT, 50, 50, |session, drawn, at| {
            session.put(&drawn.keys[at], drawn.value())
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
    let one = move |at: usize| session.put(&drawn.keys[at], drawn.value());
    Ok(alone(contender.name(), PUT_DURABLE, 2, 8, one))
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
        case("get, copied", Box::new(move |at| get(at, Deadline::NONE))),
        case(
            "get, copied, with a deadline, timed",
            Box::new(move |at| get(at, Deadline::soft(LinuxOs.now()))),
        ),
        case(
            "temporal get by handle",
            Box::new(move |at| read(ObjectId(objects[at]))),
        ),
        case("temporal get by key", Box::new(by_key)),
        case("temporal get_fresh by key", Box::new(fresh)),
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
            let put = |session: &mut dyn Session, at: usize| session.put(&drawn.keys[at], drawn.value());
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
