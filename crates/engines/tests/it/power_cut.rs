//! What each durability promises, after power cuts: each promise is a sentence, a test, and a planted fault that the
//! test catches.
//!
//! A store is loaded while all its writes and syncs are recorded. From the record come images of the medium as power
//! cuts at random instants leave it, under four models of loss (`punctual_testing::power`). Each image is opened and
//! compared with the commits that may be there.
//!
//! `POWER_IMAGES=10000 cargo test --release -p punctual-engines --test it power_cut:: -- --nocapture` makes so many
//! images for each durability.

#![cfg(target_os = "linux")]

use crate::common;

use std::collections::BTreeMap;
use std::fs;
use std::marker::PhantomData;
use std::ops::Bound;
use std::path::Path;

use common::{Choices, seed};
use punctual_engines::Lmdb;
use punctual_engines::lmdb::LmdbOptions;
use punctual_os::LinuxOs;
use punctual_store::batch::BatchBounds;
use punctual_store::engine::{Durability, Engine, EngineError, Read, Table, Write};
use punctual_store::temporal::ObjectSpec;
use punctual_store::{Deadline, Store, StoreError, StoreOptions};
use punctual_testing::power::{Disk, Event, FileId, Image, Loss, fail_syncs, mark, record};
use punctual_testing::shared_folder;
use punctual_units::{Clock, Nanos, ObjectId, Revision, SensorId, Seq};

punctual_testing::record_files!();

/// Images for each durability, where the environment does not say.
const IMAGES: u64 = 120;
const COMMITS: u64 = 160;
const KEYS: u64 = 60;
const SENSORS: u32 = 3;
const READING_LEN: usize = 24;
/// A sync, and a flush of the sensors, after so many commits.
const COMMITS_PER_SYNC: u64 = 5;
const NUMBER: &[u8] = b"number";

/// The marks of a record: a commit began, a commit is promised to survive, an update of a sensor is.
const BEGUN: &str = "begun";
const PROMISED: &str = "promised";
const SENSOR: [&str; SENSORS as usize] = ["sensor 0", "sensor 1", "sensor 2"];

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// One test at a time: the record is the process's.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn options(durability: Durability) -> LmdbOptions {
    LmdbOptions {
        durability,
        quota: 16 << 20,
        ..LmdbOptions::default()
    }
}

/// An engine in a directory.
trait Kind {
    type Engine: Engine;
    /// Whether it refuses to sync a volatile store, and to open one that was open when the power was cut.
    const VOLATILE_IS_REFUSED: bool;
    /// Whether commits are entries of a log, each of several transactions.
    const BATCHES: bool = false;

    fn open(durability: Durability, directory: &Path) -> Result<Self::Engine, EngineError>;
}

struct OnLmdb;

impl Kind for OnLmdb {
    type Engine = Lmdb;
    const VOLATILE_IS_REFUSED: bool = true;

    fn open(durability: Durability, directory: &Path) -> Result<Lmdb, EngineError> {
        options(durability).open(directory)
    }
}

/// The same engine, with batches.
struct InBatches<K>(PhantomData<K>);

impl<K: Kind> Kind for InBatches<K> {
    type Engine = K::Engine;
    const VOLATILE_IS_REFUSED: bool = K::VOLATILE_IS_REFUSED;
    const BATCHES: bool = true;

    fn open(durability: Durability, directory: &Path) -> Result<K::Engine, EngineError> {
        K::open(durability, directory)
    }
}

fn open<K: Kind>(durability: Durability, directory: &Path) -> Result<Store<K::Engine, LinuxOs>, StoreError> {
    let spec = |sensor| ObjectSpec {
        key: format!("sensor/{sensor}").into(),
        avi: Nanos::from_secs(1),
        period: Nanos::from_secs(1),
        max_len: READING_LEN,
        history: 1,
    };
    let objects = (0..SENSORS).map(spec).collect();
    let options_of_store = StoreOptions {
        objects,
        replicated: K::BATCHES,
        ..StoreOptions::default()
    };
    Store::open(K::open(durability, directory)?, LinuxOs, options_of_store)
}

/// What commit `number` changes: a few records, some of them large, some deleted.
fn changes(number: u64) -> Records {
    let mut choices = Choices::new(number);
    let mut changed: Records = (0..1 + choices.below(8))
        .map(|_| {
            let key = format!("key {:03}", choices.below(KEYS)).into_bytes();
            let len = match choices.below(12) {
                0 => 9_000,
                1..4 => 0,
                _ => 200 + choices.below(300),
            };
            (key, (0..len).map(|at| (number * 31 + at) as u8).collect())
        })
        .collect();
    changed.insert(NUMBER.to_vec(), number.to_le_bytes().to_vec());
    changed
}

/// The records after each commit; an empty value is a deletion.
fn history() -> Vec<Records> {
    let mut states = vec![Records::new()];
    for number in 1..=COMMITS {
        let mut state = states[number as usize - 1].clone();
        for (key, value) in changes(number) {
            if value.is_empty() {
                state.remove(&key);
            } else {
                state.insert(key, value);
            }
        }
        states.push(state);
    }
    states
}

fn reading(sensor: u32, seq: u64) -> [u8; READING_LEN] {
    std::array::from_fn(|at| match at {
        0..8 => seq.to_le_bytes()[at],
        _ => (seq * 7 + u64::from(sensor)) as u8,
    })
}

/// Loads the store in `directory`, and marks what it promises.
fn load<K: Kind>(durability: Durability, directory: &Path) {
    let store = open::<K>(durability, directory).expect("opens");
    for number in 1..=COMMITS {
        mark(BEGUN, number);
        match K::BATCHES {
            true => apply(&store, number),
            false => commit(&store, number),
        }
        match durability {
            Durability::Durable => mark(PROMISED, number),
            Durability::NoMetaSync => mark(PROMISED, number - 1),
            Durability::Volatile => {}
        }
        if number % COMMITS_PER_SYNC == 0 {
            flush::<K>(&store, durability, number);
        }
    }
}

fn commit(store: &Store<impl Engine, LinuxOs>, number: u64) {
    let mut transaction = store.write_transaction(Deadline::NONE).expect("free");
    for (key, value) in changes(number) {
        match value.as_slice() {
            [] => drop(transaction.delete(&key).expect("deletes")),
            value => transaction.put(&key, value).expect("puts"),
        }
    }
    transaction.commit().expect("commits");
}

/// The same by an entry of three transactions, the middle one of which is undone.
fn apply(store: &Store<impl Engine, LinuxOs>, number: u64) {
    let mut batch = store.batch(BatchBounds::default()).expect("replicated");
    let all: Vec<_> = changes(number).into_iter().collect();
    let (first, last) = all.split_at(all.len() / 2);
    for (changes, kept) in [(first, true), (&all[..], false), (last, true)] {
        let mut transaction = batch.transaction(Deadline::NONE).expect("one at a time");
        for (key, value) in changes {
            match (value.as_slice(), kept) {
                ([], true) => drop(transaction.delete(key).expect("deletes")),
                (value, true) => transaction.put(key, value).expect("puts"),
                (_, false) => transaction.put(key, b"undone").expect("puts"),
            }
        }
        if kept {
            transaction.keep().expect("in time");
        }
    }
    store.apply(Revision(number), &batch.close()).expect("the next one");
}

fn flush<K: Kind>(store: &Store<K::Engine, LinuxOs>, durability: Durability, number: u64) {
    for sensor in 0..SENSORS {
        let value = reading(sensor, number);
        store
            .offer(SensorId(sensor), Seq(number), LinuxOs.now(), &value)
            .expect("offered");
    }
    store.install_pending(SENSORS as usize).expect("installed");
    let (flushed, synced) = (store.flush(), store.sync());
    if durability == Durability::Volatile && K::VOLATILE_IS_REFUSED {
        let refused = |answer| matches!(answer, Err(StoreError::Engine(EngineError::Volatile { .. })));
        assert!(
            refused(flushed.map(drop)) && refused(synced),
            "a volatile store promises nothing"
        );
    } else {
        synced.expect("synced");
        mark(PROMISED, number);
    }
    for sensor in 0..SENSORS {
        let durable = store.durable_seq(ObjectId(sensor)).expect("known").0;
        mark(SENSOR[sensor as usize], durable);
    }
}

/// The record of a store's life, from its creation on. A second life begins where `lives` says so.
fn recorded<K: Kind>(durability: Durability) -> Vec<Event> {
    let root = shared_folder();
    record(root.path(), || load::<K>(durability, &root.path().join("a/store"))).0
}

/// What may be found at an instant.
#[derive(Clone, Debug, Default)]
struct Expected {
    begun: u64,
    promised: u64,
    sensors: [u64; SENSORS as usize],
}

impl Expected {
    fn take(&mut self, event: &Event) {
        let Event::Marked(what, number) = event else { return };
        match *what {
            BEGUN => self.begun = *number,
            PROMISED => self.promised = self.promised.max(*number),
            sensor => {
                let place = SENSOR.iter().position(|name| *name == sensor).expect("a sensor's mark");
                self.sensors[place] = *number;
            }
        }
    }
}

/// What came of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ImageResult {
    Whole,
    /// Of a volatile store that was open.
    Refused,
}

/// Opens an image and compares; what is wrong with it.
fn check<K: Kind>(
    image: &Image,
    durability: Durability,
    expected: &Expected,
    history: &[Records],
) -> Result<ImageResult, String> {
    let folder = shared_folder();
    for (path, content) in image {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("below the folder")).expect("made");
        // The machine has started again since.
        let content = if path.ends_with("unsynced") {
            b"another boot"
        } else {
            content.as_slice()
        };
        fs::write(path, content).expect("written");
    }
    let store = match open::<K>(durability, &folder.path().join("a/store")) {
        Ok(store) => store,
        Err(StoreError::Engine(EngineError::Unsynced { .. })) if durability == Durability::Volatile => {
            assert!(K::VOLATILE_IS_REFUSED);
            return Ok(ImageResult::Refused);
        }
        Err(error) => return Err(format!("does not open: {error}")),
    };
    let found = records(store.engine()).map_err(|error| format!("does not read: {error}"))?;
    let number = found
        .get(NUMBER)
        .and_then(|value| value.as_slice().try_into().ok())
        .map_or(0, u64::from_le_bytes);
    if !(expected.promised..=expected.begun).contains(&number) {
        return Err(format!("is at commit {number}"));
    }
    if found != history[number as usize] {
        return Err(format!("says it is at commit {number}, and is not"));
    }
    if K::BATCHES && store.revision() != Revision(number) {
        return Err(format!("is at commit {number}, and says {:?}", store.revision()));
    }
    for sensor in 0..SENSORS {
        let mut value = Vec::new();
        let known = store
            .read(ObjectId(sensor), &mut value)
            .map_err(|error| error.to_string())?;
        let seq = known.map_or(0, |_| u64::from_le_bytes(value[..8].try_into().expect("8 bytes")));
        if seq < expected.sensors[sensor as usize] || (seq > 0 && value != reading(sensor, seq)) {
            return Err(format!("has update {seq} of sensor {sensor}: {value:?}"));
        }
    }
    Ok(ImageResult::Whole)
}

fn records(engine: &impl Engine) -> Result<Records, EngineError> {
    let snapshot = engine.snapshot()?;
    let all = snapshot.scan(Table::Data, (Bound::Unbounded, Bound::Unbounded))?;
    all.map(|record| record.map(|(key, value)| (key.to_vec(), value.to_vec())))
        .collect()
}

/// Cuts the power `images` times at random instants; the outcomes, and what was wrong.
///
/// Ends at the first thing that is wrong if `one` is enough.
fn cut<K: Kind>(
    events: &[Event],
    durability: Durability,
    images: u64,
    seed: u64,
    one: bool,
) -> (BTreeMap<ImageResult, u64>, Vec<String>) {
    let mut choices = Choices::new(seed);
    let history = history();
    let mut instants: Vec<u64> = (0..images).map(|_| choices.below(events.len() as u64 + 1)).collect();
    instants.sort_unstable();
    let (mut disk, mut expected, mut taken) = (Disk::default(), Expected::default(), 0);
    let (mut outcomes, mut wrong) = (BTreeMap::new(), Vec::new());
    for (number, instant) in instants.into_iter().enumerate() {
        if one && !wrong.is_empty() {
            break;
        }
        for event in &events[taken..instant as usize] {
            disk.take(event);
            expected.take(event);
        }
        taken = instant as usize;
        let loss = Loss::EVERY[number % Loss::EVERY.len()];
        let image = disk.image(loss, &mut |end| choices.below(end));
        match check::<K>(&image, durability, &expected, &history) {
            Ok(found) => *outcomes.entry(found).or_default() += 1,
            Err(what) => wrong.push(format!(
                "image {number} after event {instant}, {loss:?}: {what}; {expected:?}"
            )),
        }
    }
    (outcomes, wrong)
}

fn images() -> u64 {
    std::env::var("POWER_IMAGES")
        .ok()
        .and_then(|images| images.parse().ok())
        .unwrap_or(IMAGES)
}

/// Cuts the power and expects all promises to be kept.
fn keeps_its_promises<K: Kind>(durability: Durability) -> BTreeMap<ImageResult, u64> {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (events, seed) = (recorded::<K>(durability), seed());
    let (outcomes, wrong) = cut::<K>(&events, durability, images(), seed, false);
    println!(
        "{durability:?}: {} events, {outcomes:?}, wrong: {}",
        events.len(),
        wrong.len()
    );
    assert_eq!(wrong, Vec::<String>::new(), "{} wrong, TEST_SEED={seed}", wrong.len());
    outcomes
}

#[test]
fn durable_a_commit_that_has_returned_is_there() {
    keeps_its_promises::<OnLmdb>(Durability::Durable);
}

#[test]
fn no_meta_sync_a_commit_is_there_once_another_or_a_sync_has_returned() {
    keeps_its_promises::<OnLmdb>(Durability::NoMetaSync);
}

#[test]
fn volatile_a_store_that_was_open_is_refused_and_never_wrong() {
    let outcomes = keeps_its_promises::<OnLmdb>(Durability::Volatile);
    assert!(outcomes[&ImageResult::Refused] > 0);
}

#[test]
fn batches_keep_the_same_promises() {
    for durability in [Durability::Durable, Durability::NoMetaSync, Durability::Volatile] {
        keeps_its_promises::<InBatches<OnLmdb>>(durability);
    }
    caught::<InBatches<OnLmdb>>(Durability::Durable, EARLY);
}

/// The same promises of redb, where a volatile store is never refused: it is at a commit of its past.
#[cfg(feature = "redb")]
mod redb {
    use punctual_engines::Redb;
    use punctual_engines::redb::RedbOptions;

    use super::*;

    struct OnRedb;

    impl Kind for OnRedb {
        type Engine = Redb;
        const VOLATILE_IS_REFUSED: bool = false;

        fn open(durability: Durability, directory: &Path) -> Result<Redb, EngineError> {
            let options = RedbOptions {
                durability,
                cache_bytes: 1 << 20,
                ..RedbOptions::default()
            };
            options.open(directory)
        }
    }

    #[test]
    fn durable_a_commit_that_has_returned_is_there() {
        keeps_its_promises::<OnRedb>(Durability::Durable);
    }

    #[test]
    fn no_meta_sync_a_commit_is_there_once_another_or_a_sync_has_returned() {
        keeps_its_promises::<OnRedb>(Durability::NoMetaSync);
    }

    #[test]
    fn volatile_what_was_synced_is_there_and_the_store_is_whole() {
        let outcomes = keeps_its_promises::<OnRedb>(Durability::Volatile);
        assert_eq!(outcomes.get(&ImageResult::Refused), None);
    }

    #[test]
    fn batches_keep_the_same_promises() {
        for durability in [Durability::Durable, Durability::NoMetaSync, Durability::Volatile] {
            keeps_its_promises::<InBatches<OnRedb>>(durability);
        }
        caught::<InBatches<OnRedb>>(Durability::Durable, EARLY);
    }

    #[test]
    fn missing_syncs_and_early_acknowledgements_are_caught() {
        caught::<OnRedb>(Durability::Durable, |events| {
            let kept = events.into_iter();
            kept.filter(|event| !matches!(event, Event::Synced(_))).collect()
        });
        caught::<OnRedb>(Durability::Durable, EARLY);
        caught::<OnRedb>(Durability::Volatile, EARLY);
    }
}

/// A fault, planted into a record as a store that has it would have left it.
type Fault = fn(Vec<Event>) -> Vec<Event>;

fn caught<K: Kind>(durability: Durability, fault: Fault) {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (events, seed) = (fault(recorded::<K>(durability)), seed());
    let (outcomes, wrong) = cut::<K>(&events, durability, IMAGES, seed, true);
    assert!(!wrong.is_empty(), "nothing was wrong: {outcomes:?}, TEST_SEED={seed}");
}

fn data_file(events: &[Event]) -> FileId {
    let created = |event: &Event| match event {
        Event::Created(file, path) if path.ends_with("data.mdb") => Some(*file),
        _ => None,
    };
    events.iter().find_map(created).expect("the store has a file")
}

#[test]
fn a_missing_sync_is_caught() {
    let fault: Fault = |events| {
        let data = data_file(&events);
        events
            .into_iter()
            .filter(|event| *event != Event::Synced(data))
            .collect()
    };
    caught::<OnLmdb>(Durability::Durable, fault);
    caught::<OnLmdb>(Durability::NoMetaSync, fault);
}

/// The meta page of a commit is written, and synced, before its data.
#[test]
fn meta_before_data_is_caught() {
    const META_PAGES_END: u64 = 8192;
    let fault: Fault = |events| {
        let data = data_file(&events);
        let mut reordered: Vec<Event> = Vec::new();
        let mut begin = 0; // of the commit under way
        for event in events {
            let meta = matches!(&event, Event::Written(file, at, bytes)
                if *file == data && *at < META_PAGES_END && bytes.len() < 4096);
            let of_meta = matches!(&event, Event::RangeSynced(file, at, _) if *file == data && *at < META_PAGES_END);
            let place = if meta || of_meta { begin } else { reordered.len() };
            reordered.insert(place, event.clone());
            match event {
                Event::Marked(BEGUN, _) => begin = reordered.len(),
                _ if meta || of_meta => begin = place + 1,
                _ => {}
            }
        }
        reordered
    };
    caught::<OnLmdb>(Durability::Durable, fault);
}

const EARLY: Fault = |events| {
    let promise = |event: Event| match event {
        Event::Marked(BEGUN, number) => vec![Event::Marked(BEGUN, number), Event::Marked(PROMISED, number)],
        other => vec![other],
    };
    events.into_iter().flat_map(promise).collect()
};

#[test]
fn an_early_acknowledgement_is_caught() {
    caught::<OnLmdb>(Durability::Durable, EARLY);
    caught::<OnLmdb>(Durability::NoMetaSync, EARLY);
}

#[test]
fn a_directory_that_is_not_synced_is_caught() {
    let fault: Fault = |events| {
        let kept = events
            .into_iter()
            .filter(|event| !matches!(event, Event::DirectorySynced(_)));
        kept.collect()
    };
    caught::<OnLmdb>(Durability::Durable, fault);
}

/// A volatile store without its mark is what it was before: opened, and wrong.
#[test]
fn a_volatile_store_without_a_mark_is_caught() {
    let fault: Fault = |events| {
        let kept = events
            .into_iter()
            .filter(|event| !matches!(event, Event::Renamed(_, to) if to.ends_with("unsynced")));
        kept.collect()
    };
    caught::<OnLmdb>(Durability::Volatile, fault);
}

#[test]
fn after_a_failed_sync_the_store_is_read_only_until_it_is_reopened() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for durability in [Durability::Durable, Durability::NoMetaSync] {
        let root = shared_folder();
        let failed = |answer: Result<(), EngineError>| matches!(answer, Err(EngineError::SyncFailed { .. }));
        let put = |engine: &Lmdb, value: &[u8]| {
            let mut transaction = engine.write()?;
            transaction.put(Table::Data, b"key", value)?;
            transaction.commit()
        };
        let ((), ()) = {
            let work = || {
                let engine = options(durability).open(root.path()).unwrap();
                put(&engine, b"acknowledged").unwrap();
                fail_syncs(1);
                assert!(failed(put(&engine, b"lost")));
                assert!(failed(put(&engine, b"believed")), "a later sync was believed");
                assert!(failed(engine.sync()));
                let read = |engine: &Lmdb| {
                    let snapshot = engine.snapshot().unwrap();
                    snapshot.get(Table::Data, b"key").unwrap().map(|value| value.to_vec())
                };
                assert_eq!(read(&engine).as_deref(), Some(&b"acknowledged"[..]));
                drop(engine);
                let engine = options(durability).open(root.path()).unwrap();
                assert_eq!(
                    engine.snapshot().unwrap().get(Table::Data, b"key").unwrap().as_deref(),
                    Some(&b"acknowledged"[..])
                );
                fail_syncs(1);
                assert!(failed(engine.sync()));
                assert!(failed(put(&engine, b"believed")));
            };
            (record(root.path(), work).1, ())
        };
    }
}

/// A volatile store that was closed is whole, and one that was killed goes on within the same boot.
#[test]
fn the_mark_of_a_volatile_store_goes_when_it_is_closed_or_opened_durably() {
    let root = shared_folder();
    let mark = root.path().join("unsynced");
    let engine = options(Durability::Volatile).open(root.path()).unwrap();
    let this_boot = fs::read(&mark).unwrap();
    drop(engine);
    assert!(!mark.exists());
    fs::write(&mark, &this_boot).unwrap(); // as a kill leaves it
    drop(options(Durability::Volatile).open(root.path()).unwrap());
    fs::write(&mark, &this_boot).unwrap();
    drop(options(Durability::Durable).open(root.path()).unwrap());
    assert!(!mark.exists());
    fs::write(&mark, "another boot").unwrap();
    for durability in [Durability::Volatile, Durability::Durable] {
        let refused = options(durability).open(root.path()).map(drop).unwrap_err();
        assert!(matches!(refused, EngineError::Unsynced { .. }), "{refused}");
    }
}
