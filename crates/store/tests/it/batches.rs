//! Updates in transaction mode are taken together and written one by one: what fails or must make way is given back.

use std::path::PathBuf;
use std::sync::Mutex;

use punctual_os::{LinuxOs, Os};
use punctual_store::engine::{Engine, EngineError};
use punctual_store::temporal::ObjectSpec;
use punctual_store::{Deadline, Store, StoreError, StoreOptions, UpdateMode};
use punctual_testing::{WAIT_MAX, explore, wait_until};
use punctual_units::{Clock, Nanos, SensorId, Seq};

use crate::witnessed::{Step, Witness, WitnessedEngine};

const SENSORS: u32 = 50;

/// Bound of waits that no other bound ends.
const PATIENCE: Nanos = Nanos::from_secs(WAIT_MAX.as_secs());

/// Function that gets the key of each put before it is done, and may fail it.
struct BeforePut<F>(F);

impl<F: Fn(&[u8]) -> Result<(), EngineError> + Send + Sync + 'static> Witness for BeforePut<F> {
    fn before(&self, step: Step<'_>) -> Result<(), EngineError> {
        match step {
            Step::Put(key) => (self.0)(key),
            _ => Ok(()),
        }
    }
}

fn store<F: Fn(&[u8]) -> Result<(), EngineError> + Send + Sync + 'static, O: Os>(
    os: O,
    before: F,
    helping: bool,
) -> Store<WitnessedEngine<BeforePut<F>>, O> {
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
    let engine = WitnessedEngine::new(BeforePut(before));
    let store = Store::open(engine, os.clone(), options).unwrap();
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
