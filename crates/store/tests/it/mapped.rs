//! Temporal objects in a mapped file: an acknowledged offer is there after a kill and, on persistent memory, after a
//! power cut.
//!
//! A child offers numbered values and says so after each one, until it is killed; then the file is opened again. The
//! planted faults are a child that says so too early, and, for the power cut, a file that was never synced. Power is
//! cut by `.ci/vm`, which starts the child itself and checks after the next boot, by the variables below.

#![cfg(target_os = "linux")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use punctual_engines::Memory;
use punctual_os::{LinuxOs, MappedMedium};
use punctual_store::engine::Engine;
use punctual_store::temporal::{ClockOrigin, ObjectSpec, ReadingBuffer};
use punctual_store::{Store, StoreError, StoreOptions, Together, UpdateMode};
use punctual_testing::shared_folder;
use punctual_units::{Nanos, ObjectId, SensorId, Seq};

/// File that the child maps.
const MAP: &str = "PUNCTUAL_TEST_MAP";
/// File that the child writes as often, and never syncs.
const UNSYNCED: &str = "PUNCTUAL_TEST_UNSYNCED";
/// By how many offers the child says so too early.
const EARLY: &str = "PUNCTUAL_TEST_EARLY";
/// "NUMBER PATH": up to which offer the file must be complete.
const CHECK: &str = "PUNCTUAL_TEST_CHECK";

/// Where persistent memory is mounted, if anywhere.
const PERSISTENT: &str = "PUNCTUAL_TEST_DAX";

/// Objects that are offered in turns; two more are always installed together.
const SINGLE: u64 = 5;
/// Bytes of a value: several cache lines.
const LEN: usize = 200;
/// How many numbers a child acknowledges before it is killed.
const ENOUGH: u64 = 300;

fn options(path: &Path) -> StoreOptions {
    let spec = |number| ObjectSpec::bytes(format!("object {number}"), LEN).valid_for(Nanos::from_secs(3600));
    StoreOptions {
        objects: (0..SINGLE + 2).map(spec).collect(),
        mapped: Some(path.to_path_buf()),
        clock_origin: ClockOrigin::named(b"one origin for all runs"),
        ..StoreOptions::default()
    }
}

fn open_with(options: StoreOptions) -> Result<Store<Memory, LinuxOs>, StoreError> {
    Store::open(Memory::default(), LinuxOs, options)
}

fn open(path: &Path) -> Store<Memory, LinuxOs> {
    open_with(options(path)).unwrap()
}

/// Words that all hold the number.
fn value(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(LEN / 8)
}

fn offer<E: Engine>(store: &Store<E, LinuxOs>, number: u64) {
    let value = value(number);
    if number.is_multiple_of(3) {
        let both = [SINGLE, SINGLE + 1].map(|object| Together {
            object: ObjectId(object as u32),
            sampled_at: None,
            value: &value,
        });
        return store.install_together(&both).unwrap();
    }
    store
        .offer_next(SensorId((number % SINGLE) as u32), None, &value)
        .unwrap();
}

/// The number that each object holds; 0 without a value.
fn numbers(store: &Store<Memory, LinuxOs>) -> Vec<u64> {
    let number = |object| {
        let mut held = Vec::new();
        let sample = store.read(ObjectId(object), &mut held).unwrap();
        let number = held.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        assert!(sample.is_none() || held == value(number), "object {object} is torn");
        number
    };
    (0..SINGLE as u32 + 2).map(number).collect()
}

/// Objects whose acknowledged value is not there, nor a newer one.
fn lost(held: &[u64], acknowledged: u64) -> Vec<usize> {
    let last = |object: u64| {
        let is_its = |number: &u64| match object < SINGLE {
            true => !number.is_multiple_of(3) && number % SINGLE == object,
            false => number.is_multiple_of(3),
        };
        (1..=acknowledged).rev().find(is_its).unwrap_or(0)
    };
    let is_lost = |object: &usize| held[*object] < last(*object as u64);
    (0..held.len()).filter(is_lost).collect()
}

/// The child's part; a test of its own name only when told so.
#[test]
fn child() {
    let Ok(path) = std::env::var(MAP) else { return };
    let early: u64 = std::env::var(EARLY).map_or(0, |early| early.parse().unwrap());
    let unsynced = std::env::var(UNSYNCED).map(|path| {
        let file = fs::File::create(path).unwrap();
        file.write_all_at(&[0; 8], 0).unwrap();
        file.sync_all().unwrap();
        file
    });
    let store = open(Path::new(&path));
    // The test harness may have begun a line.
    println!("\nMEDIUM {:?}", store.medium().unwrap());
    for number in 1.. {
        if number > early {
            offer(&store, number - early);
        }
        if let Ok(file) = &unsynced {
            file.write_all_at(&number.to_le_bytes(), 0).unwrap();
        }
        println!("ACK {number}");
        std::io::stdout().flush().unwrap();
    }
}

/// Starts a child on the file at `path` and kills it in the middle; the last number that it has acknowledged.
fn offered_until_killed(path: &Path, early: u64) -> u64 {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "mapped::child", "--nocapture", "--test-threads=1"])
        .env(MAP, path)
        .env(EARLY, early.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = punctual_testing::start(&mut command, punctual_testing::CHILD_MAX).unwrap();
    let mut acknowledged = 0;
    let mut lines = BufReader::new(child.stdout().unwrap()).lines();
    let mut read_until = |enough: u64| {
        for line in lines.by_ref().map_while(Result::ok) {
            if let Some(number) = line.strip_prefix("ACK ") {
                acknowledged = number.parse().unwrap();
                if acknowledged >= enough {
                    return acknowledged;
                }
            }
        }
        acknowledged
    };
    read_until(ENOUGH);
    child.kill().unwrap();
    child.wait().unwrap();
    let acknowledged = read_until(u64::MAX); // what is still in the pipe has been acknowledged, too
    assert!(acknowledged >= ENOUGH, "the child ended before it was killed");
    acknowledged
}

#[test]
fn after_a_kill_every_acknowledged_value_is_there_or_a_newer_one() {
    let persistent = std::env::var(PERSISTENT).map(|folder| tempfile::tempdir_in(folder).unwrap());
    for folder in [shared_folder()]
        .into_iter()
        .chain(persistent)
        .flat_map(|folder| std::iter::repeat_n(Arc::new(folder), 5))
    {
        let path = folder.path().join("mapped");
        let acknowledged = offered_until_killed(&path, 0);
        let store = open(&path);
        let held = numbers(&store);
        eprintln!(
            "{:?}: {acknowledged} offers acknowledged before the kill",
            store.medium()
        );
        assert_eq!(lost(&held, acknowledged), [0_usize; 0], "{acknowledged}: {held:?}");
        assert_eq!(held[SINGLE as usize], held[SINGLE as usize + 1], "installed together");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn planted_fault_an_acknowledgement_that_comes_too_early_is_noticed() {
    let folder = shared_folder();
    let path = folder.path().join("mapped");
    let acknowledged = offered_until_killed(&path, 30);
    assert!(!lost(&numbers(&open(&path)), acknowledged).is_empty());
}

/// After the next boot; a test of its own name only when told so.
#[test]
fn after_a_power_cut_every_acknowledged_value_is_there() {
    let Ok(check) = std::env::var(CHECK) else { return };
    let (acknowledged, path) = check.split_once(' ').unwrap();
    let acknowledged: u64 = acknowledged.parse().unwrap();
    assert!(acknowledged >= ENOUGH);
    if let Ok(file) = std::env::var(UNSYNCED) {
        let number = u64::from_le_bytes(fs::read(file).unwrap().try_into().unwrap());
        assert!(
            number < acknowledged,
            "the planted fault: a cut loses what was never synced"
        );
    }
    let store = open(Path::new(path));
    assert_eq!(store.medium(), Some(MappedMedium::PersistentMemory));
    assert_eq!(lost(&numbers(&store), acknowledged), [0_usize; 0]);
}

#[test]
fn the_next_run_has_values_and_ages_and_counts_from_one() {
    let folder = shared_folder();
    let path = folder.path().join("mapped");
    let store = open(&path);
    assert_eq!(
        (store.medium(), store.group_interval()),
        (Some(MappedMedium::SharedMemory), None)
    );
    (1..=60).for_each(|number| offer(&store, number));
    let before = store.sample(ObjectId(1)).unwrap().unwrap();
    // Only a flush brings values to the engine.
    assert_eq!(store.durable_seq(ObjectId(1)).unwrap(), Seq(0));
    drop(store);
    let store = open(&path);
    assert_eq!(numbers(&store), [55, 56, 52, 58, 59, 60, 60]);
    let after = store.sample(ObjectId(1)).unwrap().unwrap();
    assert_eq!((after.seq, after.sampled_at), (Seq(0), before.sampled_at));
    // The engine of this run has none of them.
    assert_eq!(store.commit_group().unwrap().objects, SINGLE as usize + 2);
    assert_eq!(store.commit_group().unwrap().objects, 0);
    offer(&store, 61);
    assert_eq!(store.sample(ObjectId(1)).unwrap().unwrap().seq, Seq(1));
    assert_eq!(store.commit_group().unwrap().objects, 1);
    drop(store);
    let mut other_boot = options(&path);
    other_boot.clock_origin = ClockOrigin::named(b"another");
    let store = open_with(other_boot).unwrap();
    assert_eq!(store.sample(ObjectId(1)).unwrap().unwrap().sampled_at, None);
    let mut readings = ReadingBuffer::default();
    store.history(ObjectId(1), &mut readings).unwrap();
    assert_eq!(readings.get(0).unwrap().1, value(61));
}

#[test]
fn other_objects_a_second_owner_and_other_modes_are_refused() {
    let folder = shared_folder();
    let path = folder.path().join("mapped");
    let store = open(&path);
    offer(&store, 1);
    let refused = |change: &dyn Fn(&mut StoreOptions)| {
        let mut options = options(&path);
        change(&mut options);
        open_with(options).err().unwrap().to_string()
    };
    let shown = path.display();
    assert!(refused(&|_| ()).starts_with(&format!("mapping {shown}: another program has it mapped; ")));
    drop(store);
    let before = fs::read(&path).unwrap();
    assert!(refused(&|options| options.objects[0].key = b"renamed".into()).contains("it belongs to other objects"));
    assert!(refused(&|options| drop(options.objects.pop())).contains("it belongs to other objects"));
    let cannot = StoreError::CannotMap.to_string();
    assert_eq!(
        refused(&|options| options.update_mode = UpdateMode::Transaction),
        cannot
    );
    assert_eq!(refused(&|options| options.created_max = 1), cannot);
    assert_eq!(refused(&|options| options.replicated = true), cannot);
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(numbers(&open(&path))[1], 1);
}
