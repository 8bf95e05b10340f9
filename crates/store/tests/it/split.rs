//! The parts of a transaction's time add up to the elapsed time, exactly, whatever it does.

use std::ops::{Bound, ControlFlow};
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use punctual_engines::Memory;
use punctual_os::{Os, Thread};
use punctual_store::engine::{
    Durability, EndedBecause, Engine, EngineError, KeyRange, OpenSnapshot, Read, Reader, SnapshotId, Space, Table,
    Write,
};
use punctual_store::{Deadline, Split, Store, StoreError, StoreOptions};
use punctual_testing::{VirtualOs, explore};
use punctual_units::{Clock, Nanos, Time};

/// An engine in which every call takes some virtual time.
struct Slow {
    inner: Memory,
    clock: VirtualOs,
}

struct SlowRead<'e, R> {
    inner: R,
    engine: &'e Slow,
}

const BEGIN: Nanos = Nanos(3);
const CALL: Nanos = Nanos(7);
const COMMIT: Nanos = Nanos(100);
const WAIT: Nanos = Nanos(5_000);

impl Engine for Slow {
    type Snapshot<'e> = SlowRead<'e, <Memory as Engine>::Snapshot<'e>>;
    type Write<'e> = SlowRead<'e, <Memory as Engine>::Write<'e>>;

    fn snapshot_for(&self, reader: Reader) -> Result<Self::Snapshot<'_>, EngineError> {
        self.clock.advance(BEGIN);
        Ok(SlowRead {
            inner: self.inner.snapshot_for(reader)?,
            engine: self,
        })
    }

    fn snapshots(&self) -> Vec<OpenSnapshot> {
        self.inner.snapshots()
    }

    fn end(&self, snapshot: SnapshotId, age: Nanos, why: EndedBecause) -> bool {
        self.inner.end(snapshot, age, why)
    }

    fn space(&self) -> Result<Space, EngineError> {
        self.inner.space()
    }

    fn write(&self) -> Result<Self::Write<'_>, EngineError> {
        self.clock.advance(BEGIN);
        Ok(SlowRead {
            inner: self.inner.write()?,
            engine: self,
        })
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.inner.sync()
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }
}

impl<R: Read> Read for SlowRead<'_, R> {
    type Cursor<'t>
        = R::Cursor<'t>
    where
        Self: 't;

    fn get_with<T>(&self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, EngineError> {
        self.engine.clock.advance(CALL);
        self.inner.get_with(table, key, look)
    }

    fn cursor(&self, table: Table, range: KeyRange<'_>, back: bool) -> Result<Self::Cursor<'_>, EngineError> {
        self.engine.clock.advance(CALL);
        self.inner.cursor(table, range, back)
    }
}

impl<W: Write> Write for SlowRead<'_, W> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        self.engine.clock.advance(CALL);
        self.inner.put(table, key, value)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, EngineError> {
        self.engine.clock.advance(CALL);
        self.inner.delete(table, key)
    }

    fn commit(self) -> Result<(), EngineError> {
        self.engine.clock.advance(COMMIT);
        self.inner.commit()
    }
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Compute(u64),
    Get,
    Scan,
    Put,
    Delete,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        (0u64..1_000).prop_map(Action::Compute),
        Just(Action::Get),
        Just(Action::Scan),
        Just(Action::Put),
        Just(Action::Delete),
    ]
}

fn store(clock: &VirtualOs) -> Store<Slow, VirtualOs> {
    let engine = Slow {
        inner: Memory::default(),
        clock: clock.clone(),
    };
    Store::open(engine, clock.clone(), StoreOptions::default()).unwrap()
}

const ALL: KeyRange<'static> = (Bound::Unbounded, Bound::Unbounded);

proptest! {
    #[test]
    fn a_write_transaction_accounts_for_every_nanosecond(actions in vec(action(), 0..30), commits: bool) {
        let clock = VirtualOs::new(0);
        let store = store(&clock);
        let began = clock.now();
        let mut transaction = store.write_transaction(Deadline::NONE).unwrap();
        let (mut calls, mut computed) = (0, Nanos::ZERO);
        for action in actions {
            calls += u64::from(!matches!(action, Action::Compute(_)));
            match action {
                Action::Compute(span) => {
                    clock.advance(Nanos(span));
                    computed += Nanos(span);
                }
                Action::Get => drop(transaction.get(b"key").unwrap()),
                Action::Scan => transaction.scan(ALL, |_, _| ControlFlow::Continue(())).unwrap(),
                Action::Put => transaction.put(b"key", b"value").unwrap(),
                Action::Delete => drop(transaction.delete(b"key").unwrap()),
            }
        }
        let split = if commits { transaction.commit().unwrap() } else { transaction.abort() };
        let expected = Split {
            data: BEGIN + CALL * calls,
            computation: computed,
            commit: if commits { COMMIT } else { Nanos::ZERO },
            ..Split::default()
        };
        prop_assert_eq!(split, expected);
        prop_assert_eq!(split.response(), clock.now().since(began));
    }

    /// It lasts from its first call to the return of its last.
    #[test]
    fn a_read_transaction_accounts_for_every_nanosecond(
        before: u16, spans in vec(0u64..1_000, 0..30), after: u16, firm: bool,
    ) {
        let clock = VirtualOs::new(0);
        let store = store(&clock);
        // Without any deadline a read transaction is not timed.
        let late = Time(u64::MAX - 1);
        let deadline = if firm { Deadline::firm(late) } else { Deadline::soft(late) };
        let transaction = store.read_transaction(deadline).unwrap();
        clock.advance(Nanos(before.into()));
        let mut began = None;
        for span in &spans {
            began.get_or_insert(clock.now());
            transaction.get(b"key").unwrap();
            clock.advance(Nanos(*span));
        }
        clock.advance(Nanos(after.into()));
        let split = transaction.finish();
        let data = began.map_or(Nanos::ZERO, |_| BEGIN + CALL * spans.len() as u64);
        // A firm one begins when it is admitted.
        let first = if firm && began.is_some() { Nanos(before.into()) } else { Nanos::ZERO };
        let between = spans.iter().rev().skip(1).sum();
        let expected = Split { data, computation: first + Nanos(between), ..Split::default() };
        prop_assert_eq!(split, expected);
        prop_assert_eq!(split.data_response(), split.data);
    }
}

#[test]
fn waiting_for_the_write_lock_is_told_apart() {
    explore(0..20, |os| {
        let store = store(os);
        let holds = || {
            let held = store.write_transaction(Deadline::NONE).unwrap();
            os.sleep(WAIT);
            drop(held);
        };
        let waits = || {
            os.sleep(Nanos(1)); // the other one comes first
            let began = os.now();
            let mut transaction = store.write_transaction(Deadline::NONE).unwrap();
            transaction.put(b"key", b"value").unwrap();
            let split = transaction.commit().unwrap();
            assert_eq!(split.response(), os.now().since(began));
            assert_eq!(split.lock, BEGIN + WAIT - Nanos(1));
            assert_eq!((split.data, split.commit), (BEGIN + CALL, COMMIT));
        };
        os.together(vec![Thread::new("holds", holds), Thread::new("waits", waits)]);
    });
}

#[test]
fn firm_deadlines_are_checked_at_each_call_and_soft_ones_never() {
    let clock = VirtualOs::new(0);
    let store = store(&clock);
    let passed = |result: Result<(), StoreError>| matches!(result, Err(StoreError::DeadlinePassed { .. }));
    let mut firm = store.write_transaction(Deadline::firm(Time(1_000))).unwrap();
    let reading = store.read_transaction(Deadline::firm(Time(1_000))).unwrap();
    firm.put(b"key", b"value").unwrap();
    clock.sleep_until(Time(1_001));
    assert!(passed(firm.put(b"key", b"value")));
    assert!(passed(firm.get(b"key").map(drop)));
    assert!(passed(reading.get(b"key").map(drop)));
    assert!(passed(firm.commit().map(drop)));
    assert!(passed(store.write_transaction(Deadline::firm(Time(1_000))).map(drop)));
    assert!(passed(store.read_transaction(Deadline::firm(Time(1_000))).map(drop)));
    assert_eq!(
        store.get(b"key").unwrap(),
        None,
        "a late transaction leaves nothing behind"
    );

    let mut soft = store.write_transaction(Deadline::soft(Time(1_000))).unwrap();
    soft.put(b"key", b"value").unwrap();
    soft.commit().unwrap();
    assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
}
