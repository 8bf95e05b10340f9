//! The real store in virtual time: three stores in one process, from one seed.
//!
//! Each store has writers, readers, a feeder and an updater, on an engine whose calls take time. What must hold is
//! checked as it happens; what happened is written down, so that one seed can be held against itself.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_engines::Memory;
use punctual_engines::lmdb::LmdbOptions;
use punctual_os::{Os, Thread};
use punctual_store::engine::{
    Durability, EndedBecause, Engine, EngineError, KeyRange, OpenSnapshot, Read, Reader, SnapshotId, Space, Table,
    Write,
};
use punctual_store::sensors::TOGETHER;
use punctual_store::temporal::ObjectSpec;
use punctual_store::updates::Receipt;
use punctual_store::{Deadline, Store, StoreError, StoreOptions, UpdateMode};
use punctual_testing::{VirtualOs, explore};
use punctual_units::{Clock, Nanos, ObjectId, SensorId, Seq, Time};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const STORES: u64 = 3;
const SENSORS: u32 = 2;
const WRITERS: u64 = 2;
const READERS: u64 = 2;
const ROUNDS: u64 = 5;
const PERIOD: Nanos = Nanos::from_millis(2);
const LOCK_WAIT_MAX: Nanos = Nanos::from_millis(3);

/// How long calls of the engine take, in microseconds.
const READ_US: Range<u64> = 1..40;
const WRITE_US: Range<u64> = 1..60;
const COMMIT_US: Range<u64> = 50..900;

/// What an engine does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Every fifth commit says that it is done, and is not.
    LosesCommits,
    /// A read of the second of two records sees a later commit than that of the first.
    SnapshotMovesOn,
}

/// An engine whose calls take virtual time.
struct TimedEngine<E> {
    engine: E,
    os: VirtualOs,
    choices: Mutex<ChaCha8Rng>,
    fault: Fault,
    commits: AtomicU64,
}

struct TimedCalls<'e, E, R> {
    calls: R,
    engine: &'e TimedEngine<E>,
}

impl<E> TimedEngine<E> {
    fn takes(&self, micros: Range<u64>) {
        let micros = self.choices.lock().unwrap().random_range(micros);
        self.os.sleep(Nanos::from_micros(micros));
    }
}

impl<E: Engine> Engine for TimedEngine<E> {
    type Snapshot<'e>
        = TimedCalls<'e, E, E::Snapshot<'e>>
    where
        Self: 'e;
    type Write<'e>
        = TimedCalls<'e, E, E::Write<'e>>
    where
        Self: 'e;

    fn snapshot_for(&self, reader: Reader) -> Result<Self::Snapshot<'_>, EngineError> {
        self.takes(READ_US);
        let calls = self.engine.snapshot_for(reader)?;
        Ok(TimedCalls { calls, engine: self })
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
        self.takes(WRITE_US);
        let calls = self.engine.write()?;
        Ok(TimedCalls { calls, engine: self })
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.takes(COMMIT_US);
        self.engine.sync()
    }

    fn durability(&self) -> Durability {
        self.engine.durability()
    }

    fn path(&self) -> &Path {
        self.engine.path()
    }
}

impl<E: Engine, R: Read> Read for TimedCalls<'_, E, R> {
    type Cursor<'t>
        = R::Cursor<'t>
    where
        Self: 't;

    fn get_with<T>(&self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, EngineError> {
        self.engine.takes(READ_US);
        if self.engine.fault == Fault::SnapshotMovesOn && key == RIGHT {
            return self.engine.engine.snapshot()?.get_with(table, key, look);
        }
        self.calls.get_with(table, key, look)
    }

    fn cursor(&self, table: Table, range: KeyRange<'_>, back: bool) -> Result<Self::Cursor<'_>, EngineError> {
        self.engine.takes(READ_US);
        self.calls.cursor(table, range, back)
    }
}

impl<E: Engine, W: Write> Write for TimedCalls<'_, E, W> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        self.engine.takes(WRITE_US);
        self.calls.put(table, key, value)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, EngineError> {
        self.engine.takes(WRITE_US);
        self.calls.delete(table, key)
    }

    fn commit(self) -> Result<(), EngineError> {
        self.engine.takes(COMMIT_US);
        let number = self.engine.commits.fetch_add(1, Ordering::Relaxed);
        match self.engine.fault {
            Fault::LosesCommits if number % 5 == 4 => Ok(()),
            _ => self.calls.commit(),
        }
    }
}

/// Two records that every writer keeps equal.
const LEFT: &[u8] = b"left";
const RIGHT: &[u8] = b"right";

/// One store, and what is known of it.
struct Subject<'w, E: Engine> {
    name: u64,
    store: Store<TimedEngine<E>, VirtualOs>,
    os: &'w VirtualOs,
    log: &'w Mutex<Vec<String>>,
    seed: u64,
    mode: UpdateMode,
    /// How many increments have been acknowledged.
    committed: AtomicU64,
    /// The latest update of each sensor that was admitted, and the latest that is on its way.
    admitted: Vec<AtomicU64>,
    offered: Vec<AtomicU64>,
}

fn number_in(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()))
}

fn sensor_key(sensor: u32) -> Vec<u8> {
    format!("sensor/{sensor}").into_bytes()
}

impl<'w, E: Engine> Subject<'w, E> {
    fn new(name: u64, engine: E, fault: Fault, os: &'w VirtualOs, log: &'w Mutex<Vec<String>>, seed: u64) -> Self {
        let mut choices = ChaCha8Rng::seed_from_u64(seed * STORES + name);
        let object = |sensor| ObjectSpec {
            key: sensor_key(sensor),
            avi: PERIOD * 2,
            period: PERIOD,
            max_len: 8,
            history: 1,
        };
        let mode = match choices.random_range(0..2) {
            0 => UpdateMode::MemoryFirst,
            _ => UpdateMode::Transaction,
        };
        let options = StoreOptions {
            objects: (0..SENSORS).map(object).collect(),
            update_mode: mode,
            lock_wait_max: LOCK_WAIT_MAX,
            ..StoreOptions::default()
        };
        let engine = TimedEngine {
            engine,
            os: os.clone(),
            choices: Mutex::new(choices),
            fault,
            commits: AtomicU64::new(0),
        };
        let numbers = || (0..SENSORS).map(|_| AtomicU64::new(0)).collect();
        Subject {
            name,
            store: Store::open(engine, os.clone(), options).unwrap(),
            os,
            log,
            seed,
            mode,
            committed: AtomicU64::new(0),
            admitted: numbers(),
            offered: numbers(),
        }
    }

    fn tell(&self, thread: &str, what: &str) {
        let line = format!("{:?} store {} {thread}: {what}", self.os.now(), self.name);
        self.log.lock().unwrap().push(line);
    }

    fn choices(&self, thread: u64) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64((self.seed * STORES + self.name) * 16 + thread)
    }

    fn threads(&self) -> Vec<Thread<'_>> {
        let name = |what: &str, number: u64| format!("{what} {number} of store {}", self.name);
        let writers = (0..WRITERS).map(|number| Thread::new(name("writer", number), move || self.write(number)));
        let readers = (0..READERS).map(|number| Thread::new(name("reader", number), move || self.read(number)));
        let feeder = Thread::new(name("feeder", 0), || self.feed());
        let updater = Thread::new(name("updater", 0), || self.update());
        writers.chain(readers).chain([feeder, updater]).collect()
    }

    /// A deadline that is sometimes firm, and sometimes too early.
    fn deadline(&self, choices: &mut ChaCha8Rng) -> Deadline {
        let at = self.os.now() + Nanos::from_micros(choices.random_range(200..4_000));
        match choices.random_range(0..3) {
            0 => Deadline::firm(at),
            1 => Deadline::soft(at),
            _ => Deadline::NONE,
        }
    }

    fn write(&self, number: u64) {
        let mut choices = self.choices(number);
        let thread = format!("writer {number}");
        for _ in 0..ROUNDS {
            self.os.sleep(Nanos::from_micros(choices.random_range(0..1_500)));
            let deadline = self.deadline(&mut choices);
            let asked = self.os.now();
            match self.increment(deadline) {
                Ok(value) => self.tell(&thread, &format!("{deadline:?} wrote {value}")),
                Err(StoreError::LockTimeout { waited, .. }) => {
                    assert!(waited <= LOCK_WAIT_MAX);
                    assert_eq!(
                        self.os.now().since(asked),
                        waited,
                        "the wait for the permit keeps its bound"
                    );
                    self.tell(&thread, "gave up");
                }
                Err(StoreError::DeadlinePassed { late }) => {
                    assert_eq!(self.os.now().since(deadline.at()), late);
                    self.tell(&thread, &format!("{late} late"));
                }
                Err(other) => panic!("{thread}: {other}"),
            }
        }
    }

    fn increment(&self, deadline: Deadline) -> Result<u64, StoreError> {
        let mut transaction = self.store.write_transaction(deadline)?;
        let value = number_in(transaction.get(LEFT)?.as_deref()) + 1;
        for key in [LEFT, RIGHT] {
            transaction.put(key, value.to_le_bytes())?;
        }
        let before = self.os.now();
        let split = transaction.commit()?;
        assert!(
            !deadline.is_firm() || before <= deadline.at(),
            "committed after a firm deadline"
        );
        assert_eq!(split.commit, self.os.now().since(before));
        self.committed.fetch_add(1, Ordering::Relaxed);
        Ok(value)
    }

    fn read(&self, number: u64) {
        let mut choices = self.choices(WRITERS + number);
        let thread = format!("reader {number}");
        let mut seen = [0; SENSORS as usize];
        for _ in 0..ROUNDS {
            self.os.sleep(Nanos::from_micros(choices.random_range(0..1_500)));
            let deadline = self.deadline(&mut choices);
            match self.look(deadline, &mut seen) {
                Ok(what) => self.tell(&thread, &what),
                Err(StoreError::DeadlinePassed { late }) => self.tell(&thread, &format!("{late} late")),
                // Its deadline passed within a call, and a writer ended the snapshot before the call had.
                Err(StoreError::Engine(EngineError::SnapshotEnded {
                    why: EndedBecause::Deadline,
                    ..
                })) => self.tell(&thread, "late, and ended"),
                Err(other) => panic!("{thread}: {other}"),
            }
        }
    }

    /// One read transaction. Both records are of one commit, none older than was acknowledged before; each object is a
    /// linearizable register: not older than what was admitted before the transaction began (in memory-first mode,
    /// where a transaction can always install it) or than this reader has seen, not newer than what was offered.
    fn look(&self, deadline: Deadline, seen: &mut [u64]) -> Result<String, StoreError> {
        let load = |numbers: &[AtomicU64]| numbers.iter().map(|number| number.load(Ordering::Relaxed)).collect();
        let (acknowledged, admitted): (u64, Vec<u64>) = (self.committed.load(Ordering::Relaxed), load(&self.admitted));
        let transaction = self.store.read_transaction(deadline)?;
        let left = number_in(transaction.get(LEFT)?.as_deref());
        let mut found = Vec::new();
        for sensor in 0..SENSORS {
            found.push(number_in(transaction.get(sensor_key(sensor))?.as_deref()));
        }
        let right = number_in(transaction.get(RIGHT)?.as_deref());
        let offered: Vec<u64> = load(&self.offered);
        assert_eq!(left, right, "a snapshot of two commits");
        assert!(left >= acknowledged, "acknowledged {acknowledged}, and read {left}");
        for (sensor, number) in found.iter().enumerate() {
            let least = match self.mode {
                UpdateMode::MemoryFirst => admitted[sensor].max(seen[sensor]),
                UpdateMode::Transaction => seen[sensor],
            };
            let range = least..=offered[sensor];
            assert!(
                range.contains(number),
                "sensor {sensor}: read {number}, not in {range:?}"
            );
            seen[sensor] = *number;
        }
        Ok(format!(
            "{deadline:?} read {left}, {found:?}, {:?}",
            transaction.finish()
        ))
    }

    fn feed(&self) {
        let mut choices = self.choices(WRITERS + READERS);
        for seq in 1..=ROUNDS * 2 {
            for sensor in 0..SENSORS {
                self.os.sleep(Nanos::from_micros(choices.random_range(0..800)));
                let at = sensor as usize;
                self.offered[at].store(seq, Ordering::Relaxed);
                let now = self.os.now();
                let verdict = self
                    .store
                    .offer(SensorId(sensor), Seq(seq), now, &seq.to_le_bytes())
                    .unwrap();
                self.tell("feeder", &format!("sensor {sensor} {seq} {verdict:?}"));
                if verdict == Receipt::Admitted {
                    self.admitted[at].store(seq, Ordering::Relaxed);
                }
            }
        }
    }

    fn update(&self) {
        for _ in 0..ROUNDS * 3 {
            self.os.sleep(Nanos::from_micros(700));
            match self
                .store
                .install_pending(3)
                .and_then(|installed| Ok((installed, self.store.commit_group()?)))
            {
                Ok((installed, flushed)) => self.tell("updater", &format!("{installed} installed, {flushed:?}")),
                Err(StoreError::LockTimeout { .. }) => self.tell("updater", "gave up"),
                Err(other) => panic!("updater: {other}"),
            }
        }
    }

    /// What must hold when all have ended.
    fn settle(&self) {
        self.store.install_pending(usize::MAX).unwrap();
        let last = number_in(self.store.get(LEFT).unwrap().as_deref());
        assert_eq!(
            last,
            self.committed.load(Ordering::Relaxed),
            "increments that were acknowledged"
        );
        let (counts, balance) = (self.store.counts(), self.store.reconcile());
        assert_eq!(counts.offered, ROUNDS * 2 * u64::from(SENSORS));
        assert_eq!(counts.offered, counts.installed + counts.shed + counts.superseded);
        assert!(balance.balances(), "{balance:?}");
        let newest = self.store.sample(ObjectId(0)).unwrap();
        self.tell("end", &format!("{last} {counts:?} {newest:?}"));
    }
}

/// A fleet of stores on `os`; what happened, line by line.
fn fleet<E: Engine>(os: &VirtualOs, fault: Fault, engine: impl Fn(u64) -> E) -> Vec<String> {
    let log = Mutex::new(Vec::new());
    let subject = |name| Subject::new(name, engine(name), fault, os, &log, os.seed());
    let stores: Vec<_> = (0..STORES).map(subject).collect();
    os.together(stores.iter().flat_map(Subject::threads).collect());
    stores.iter().for_each(Subject::settle);
    drop(stores);
    log.into_inner().unwrap()
}

fn in_memory(os: &VirtualOs) -> Vec<String> {
    fleet(os, Fault::None, |_| Memory::default())
}

#[test]
fn many_histories_keep_every_promise() {
    let kinds = ["wrote", "gave up", "late", "read", "installed"];
    let found = kinds.map(|_| AtomicU64::new(0));
    explore(0..punctual_testing::campaign(100, 1_000), |os| {
        let log = in_memory(os);
        for (kind, found) in kinds.iter().zip(&found) {
            let lines = log.iter().filter(|line| line.contains(kind)).count();
            found.fetch_add(lines as u64, Ordering::Relaxed);
        }
    });
    // Nothing was kept because nothing was tried.
    for (kind, found) in kinds.iter().zip(found) {
        assert!(found.into_inner() > 20, "{kind}");
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let run = |seed| {
        let os = VirtualOs::new(seed);
        (in_memory(&os), os.now(), os.digest())
    };
    let runs: Vec<_> = (0..10).map(run).collect();
    for (seed, first) in (0..).zip(&runs) {
        assert_eq!(*first, run(seed), "seed {seed}");
    }
    for (seed, pair) in runs.windows(2).enumerate() {
        assert_ne!(pair[0].0, pair[1].0, "seeds {seed} and {}", seed + 1);
    }
}

#[test]
fn stores_on_lmdb_run_in_virtual_time_and_do_as_those_in_memory() {
    for seed in 0..5 {
        let os = VirtualOs::new(seed);
        let directory = punctual_testing::shared_folder();
        let lmdb = |name: u64| {
            let options = LmdbOptions {
                durability: Durability::Volatile,
                quota: 1 << 20,
                ..LmdbOptions::default()
            };
            options.open(directory.path().join(name.to_string())).unwrap()
        };
        let on_disk = fleet(&os, Fault::None, lmdb);
        let other = VirtualOs::new(seed);
        // The engines differ in what they promise, and in nothing else.
        let volatile = |line: &String| line.replace("durable: true", "durable: false");
        let in_memory: Vec<String> = in_memory(&other).iter().map(volatile).collect();
        assert_eq!(on_disk, in_memory, "seed {seed}");
        assert!(os.now() > Time::ZERO + Nanos::from_millis(5));
    }
}

/// A backlog never keeps a transaction from ending: it installs what can still be fresh, until its deadline.
#[test]
fn a_transaction_installs_what_can_be_fresh_until_its_deadline_and_stale_data_count_as_stale() {
    const OBJECTS: u32 = 100;
    let (one, ms) = (Nanos::from_micros(WRITE_US.end * 2 + COMMIT_US.end), Nanos::from_millis);
    let os = VirtualOs::new(7);
    let options = StoreOptions {
        objects: (0..OBJECTS)
            .map(|sensor| ObjectSpec::number(sensor_key(sensor)).period(ms(20)))
            .collect(),
        update_mode: UpdateMode::Transaction,
        ..StoreOptions::default()
    };
    let engine = TimedEngine {
        engine: Memory::default(),
        os: os.clone(),
        choices: Mutex::new(ChaCha8Rng::seed_from_u64(7)),
        fault: Fault::None,
        commits: AtomicU64::new(0),
    };
    let store = Store::open(engine, os.clone(), options).unwrap();
    let offer = |sensors: Range<u32>| {
        for sensor in sensors {
            store.offer_next(SensorId(sensor), None, &[0; 8]).unwrap();
        }
    };
    let fresh = || store.fresh_share(os.now()).get() * f64::from(OBJECTS);
    offer(0..OBJECTS);
    let (began, deadline) = (os.now(), Deadline::soft(os.now() + ms(10)));
    drop(store.read_transaction(deadline).unwrap());
    let took = os.now().since(began);
    assert!((ms(10)..ms(10) + one).contains(&took), "{took}");
    let installed = store.counts().installed;
    assert!((10..u64::from(OBJECTS)).contains(&installed), "{installed} in 10 ms");
    assert_eq!(fresh(), installed as f64);

    // Late from the beginning: nothing more, whether it reads or writes.
    drop(store.read_transaction(deadline).unwrap());
    drop(store.write_transaction(deadline).unwrap());
    assert!(os.now().since(began) < took + one);
    assert_eq!(store.counts().installed, installed);

    // What waits has expired, but for ten readings: these are installed at once, the others stay pending.
    os.sleep(ms(40));
    store.install_pending(TOGETHER).unwrap(); // those that were taken from the queue before the deadline
    let (installed, pending) = (store.counts().installed, store.pending());
    offer(0..10);
    let began = os.now();
    drop(store.read_transaction(Deadline::soft(began + ms(1000))).unwrap());
    assert!(os.now().since(began) < one * 10, "{}", os.now().since(began));
    assert_eq!((store.counts().installed, store.pending()), (installed + 10, pending));
    assert_eq!(fresh(), 10.0, "what was left out is stale");
    assert!(store.install_pending(usize::MAX).unwrap() > 0);
    assert!(store.pending() == 0 && store.reconcile().balances());
}

#[test]
fn planted_faults_of_an_engine_are_caught() {
    for fault in [Fault::LosesCommits, Fault::SnapshotMovesOn] {
        let caught = (0..20).any(|seed| {
            let os = VirtualOs::new(seed);
            catch_unwind(AssertUnwindSafe(|| fleet(&os, fault, |_| Memory::default()))).is_err()
        });
        assert!(caught, "{fault:?}");
    }
}
