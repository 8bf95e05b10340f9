//! Updates in transaction mode are taken together and written one by one: what fails or must make way is given back.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use punctual_engines::Memory;
use punctual_os::{LinuxOs, Os};
use punctual_store::engine::{
    Durability, EndedBecause, Engine, EngineError, KeyRange, OpenSnapshot, Read, Reader, SnapshotId, Space, Table,
    Write,
};
use punctual_store::temporal::ObjectSpec;
use punctual_store::{Deadline, Store, StoreError, StoreOptions, UpdateMode};
use punctual_testing::{WAIT_MAX, explore, wait_until};
use punctual_units::{Clock, Nanos, SensorId, Seq};

const SENSORS: u32 = 50;

/// Bound of waits that no other bound ends.
const PATIENCE: Nanos = Nanos::from_secs(WAIT_MAX.as_secs());

/// An engine that tells `before` the key of each put.
struct ProbedEngine<F> {
    engine: Memory,
    before: F,
}

struct WatchedWrite<'e, F> {
    write: <Memory as Engine>::Write<'e>,
    before: &'e F,
}

impl<F: Fn(&[u8]) -> Result<(), EngineError> + Send + Sync + 'static> Engine for ProbedEngine<F> {
    type Snapshot<'e> = <Memory as Engine>::Snapshot<'e>;
    type Write<'e> = WatchedWrite<'e, F>;

    fn snapshot_for(&self, reader: Reader) -> Result<Self::Snapshot<'_>, EngineError> {
        self.engine.snapshot_for(reader)
    }

    fn snapshots(&self) -> Vec<OpenSnapshot> {
        self.engine.snapshots()
    }

    fn end(&self, snapshot: SnapshotId, age: Nanos, why: EndedBecause) -> bool {
        self.engine.end(snapshot, age, why)
    }

    fn space(&self) -> Result<Space, EngineError> {
        self.engine.space()
    }

    fn write(&self) -> Result<Self::Write<'_>, EngineError> {
        Ok(WatchedWrite {
            write: self.engine.write()?,
            before: &self.before,
        })
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.engine.sync()
    }

    fn durability(&self) -> Durability {
        self.engine.durability()
    }

    fn path(&self) -> &Path {
        self.engine.path()
    }
}

impl<F> Read for WatchedWrite<'_, F> {
    type Bytes<'t>
        = &'t [u8]
    where
        Self: 't;
    type Scan<'t>
        = <<Memory as Engine>::Write<'t> as Read>::Scan<'t>
    where
        Self: 't;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>, EngineError> {
        self.write.get(table, key)
    }

    fn scan(&self, table: Table, range: KeyRange<'_>) -> Result<Self::Scan<'_>, EngineError> {
        self.write.scan(table, range)
    }

    fn scan_back(&self, table: Table, range: KeyRange<'_>) -> Result<Self::Scan<'_>, EngineError> {
        self.write.scan_back(table, range)
    }
}

impl<F: Fn(&[u8]) -> Result<(), EngineError>> Write for WatchedWrite<'_, F> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        (self.before)(key)?;
        self.write.put(table, key, value)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, EngineError> {
        self.write.delete(table, key)
    }

    fn commit(self) -> Result<(), EngineError> {
        self.write.commit()
    }
}

fn store<F: Fn(&[u8]) -> Result<(), EngineError> + Send + Sync + 'static, O: Os>(
    os: O,
    before: F,
    helping: bool,
) -> Store<ProbedEngine<F>, O> {
    let spec = |sensor| ObjectSpec {
        key: format!("sensor/{sensor:02}").into(),
        avi: Nanos::from_secs(10),
        period: Nanos::from_secs(1),
        max_len: 8,
        history: 1,
    };
    let options = StoreOptions {
        objects: (0..SENSORS).map(spec).collect(),
        update_mode: UpdateMode::Transaction,
        helping,
        lock_wait_max: PATIENCE,
        ..StoreOptions::default()
    };
    let engine = Memory::default();
    let store = Store::open(ProbedEngine { engine, before }, os.clone(), options).unwrap();
    for sensor in 0..SENSORS {
        store.offer(SensorId(sensor), Seq(1), os.now(), b"reading").unwrap();
    }
    store
}

fn all_installed<E: Engine>(store: &Store<E, LinuxOs>) {
    let (counts, balance) = (store.counts(), store.reconcile());
    assert_eq!(
        (counts.offered, counts.installed),
        (u64::from(SENSORS), u64::from(SENSORS))
    );
    assert!(balance.balances(), "{balance:?}");
    assert_eq!(store.pending(), 0);
}

#[test]
fn an_update_that_cannot_be_written_is_tried_again_first_and_none_is_lost() {
    static ORDER: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
    // The tenth put and the one after it are refused.
    let refusing = |key: &[u8]| {
        let mut order = ORDER.lock().unwrap();
        order.push(key.to_vec());
        match order.len() {
            10 | 11 => Err(EngineError::DiskFull { path: "nowhere".into() }),
            _ => Ok(()),
        }
    };
    let store = store(LinuxOs, refusing, true);
    for installed in [9, 9] {
        let refused = store.install_pending(usize::MAX).unwrap_err();
        assert!(
            matches!(refused, StoreError::Engine(EngineError::DiskFull { .. })),
            "{refused}"
        );
        assert_eq!(store.counts().installed, installed);
        assert_eq!(store.pending() as u64, u64::from(SENSORS) - installed);
    }
    assert_eq!(store.install_pending(usize::MAX).unwrap(), SENSORS as usize - 9);
    all_installed(&store);
    let mut order = ORDER.lock().unwrap().clone();
    assert_eq!(
        (&order[9], &order[9]),
        (&order[10], &order[11]),
        "tried three times in a row"
    );
    order.dedup();
    assert!(order.is_sorted(), "in the order of arrival");
}

#[test]
fn a_waiter_for_the_permit_gets_it_after_one_update() {
    static ORDER: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let (name, named) = std::sync::mpsc::sync_channel::<PathBuf>(1);
    let (told, named) = (Mutex::new(told), Mutex::new(named));
    let go = Mutex::new(Some(()));
    let noting = move |key: &[u8]| {
        ORDER.lock().unwrap().push(key.to_vec());
        if go.lock().unwrap().take().is_some() {
            // Lets the other thread come and wait while the first update is being written.
            tell.send(()).unwrap();
            let stat = named.lock().unwrap().recv_timeout(WAIT_MAX).unwrap().join("stat");
            // It sleeps once it waits (proc(5), the field after the name in brackets).
            wait_until("the other thread waits", || {
                std::fs::read_to_string(&stat).unwrap().contains(") S ")
            });
        }
        Ok(())
    };
    let store = store(LinuxOs, noting, false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            told.lock().unwrap().recv().unwrap();
            let own = std::fs::read_link("/proc/thread-self").unwrap();
            name.send(PathBuf::from("/proc").join(own)).unwrap();
            let mut transaction = store.write_transaction(Deadline::NONE).unwrap();
            transaction.put(b"urgent", b"").unwrap();
            transaction.commit().unwrap();
        });
        while store.pending() > 0 {
            store.install_pending(usize::MAX).unwrap();
        }
    });
    all_installed(&store);
    let mut order = ORDER.lock().unwrap().clone();
    let urgent = order.iter().position(|key| key == b"urgent").unwrap();
    assert_eq!(urgent, 1, "the updates that were in hand had to make way");
    order.remove(urgent);
    assert!(
        order.is_sorted() && order.len() == SENSORS as usize,
        "then they went on in their order"
    );
}

#[test]
fn a_get_inside_of_ones_own_write_transaction_does_not_wait_for_oneself() {
    explore(0..1, |os| {
        let store = store(os.clone(), |_| Ok(()), true);
        let transaction = store.write_transaction(Deadline::NONE).unwrap();
        // Offered after the transaction began, and hence not installed by it.
        store.offer(SensorId(0), Seq(2), os.now(), b"newer").unwrap();
        let begun = os.now();
        assert_eq!(store.get(b"sensor/00").unwrap().as_deref(), Some(&b"reading"[..]));
        assert_eq!(store.pending(), 1, "left to the updater");
        assert_eq!(os.now(), begun, "it waited for the lock that it held");
        drop(transaction);
        store.install_pending(usize::MAX).unwrap();
        assert!(store.reconcile().balances());
    });
}
