//! What was acknowledged as durable survives SIGKILL, 200 times under load; and a store that acknowledges too early
//! is caught.
//!
//! `KILLS=10000 cargo test -p punctual-engines --test it crash:: -- --nocapture` kills so many times.
//!
//! A child process, this test binary again, loads a store from several threads and prints a line for each
//! acknowledgement. The parent kills it at a random moment, reopens the store and compares: every acknowledged
//! number, or a later one, must be there, every value must be whole, and two records written by one transaction must
//! agree. The child then goes on with the same store.
//!
//! SIGKILL ends the process, not the machine: it shows that acknowledgements come after the commit, that commits are
//! atomic, and that no state in memory was relied upon. That a commit reaches the medium is the file system's part,
//! behind fdatasync.

use crate::common;

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Choices, seed};
use punctual_engines::Lmdb;
use punctual_engines::lmdb::LmdbOptions;
use punctual_os::LinuxOs;
use punctual_store::engine::{Durability, EngineError};
use punctual_store::temporal::ObjectSpec;
use punctual_store::{Deadline, Store, StoreOptions, UpdateMode};
use punctual_testing::{CHILD_MAX, TestChild, wait_until};
use punctual_units::{Clock, Nanos, ObjectId, SensorId, Seq};

/// How many, where the environment does not say.
const KILLS: u64 = 60;
const WRITERS: u64 = 2;
const SENSORS: u32 = 4;
/// Threads that put single records, in shared commits.
const PUTTERS: u64 = 3;
/// Places where a child acknowledges.
const PLACES: u64 = WRITERS + PUTTERS + SENSORS as u64;
const VALUE_MAX: u64 = 3_000;
const READING_MAX: u64 = 100;
/// How long the child works at least and at most before it is killed.
const LIFE_US: std::ops::Range<u64> = 1_000..250_000;

const CHILD: &str = "CRASH_TEST_CHILD";

/// A way to run the store; each has a directory of its own and is killed in turn.
#[derive(Clone, Copy, Debug)]
struct Setup {
    update_mode: UpdateMode,
    durability: Durability,
    /// The planted fault: acknowledge before the commit.
    acknowledges_early: bool,
}

const SETUPS: [Setup; 4] = {
    const fn sound(update_mode: UpdateMode, durability: Durability) -> Setup {
        Setup {
            update_mode,
            durability,
            acknowledges_early: false,
        }
    }
    [
        sound(UpdateMode::MemoryFirst, Durability::Durable),
        sound(UpdateMode::Transaction, Durability::Durable),
        sound(UpdateMode::MemoryFirst, Durability::NoMetaSync),
        sound(UpdateMode::Transaction, Durability::NoMetaSync),
    ]
};

fn open(setup: Setup, directory: &Path) -> Store<Lmdb, LinuxOs> {
    let engine = LmdbOptions {
        durability: setup.durability,
        ..LmdbOptions::default()
    }
    .open(directory)
    .unwrap();
    let spec = |sensor| ObjectSpec {
        key: format!("sensor/{sensor}").into(),
        // As urgent as the writers below: otherwise these would always be served first.
        avi: Nanos::from_millis(5),
        period: Nanos::from_millis(5),
        max_len: READING_MAX as usize,
        history: 1,
    };
    let objects = (0..SENSORS).map(spec).collect();
    let options = StoreOptions {
        objects,
        update_mode: setup.update_mode,
        // A busy machine may put off the holder of the lock for seconds.
        lock_wait_max: Nanos::from_secs(60),
        ..StoreOptions::default()
    };
    Store::open(engine, LinuxOs, options).unwrap()
}

/// A value from which its number can be read, and any damage seen.
fn value_of(number: u64, len_max: u64) -> Vec<u8> {
    let mut bytes = Choices::new(number);
    let len = bytes.below(len_max - 8) as usize;
    number
        .to_le_bytes()
        .into_iter()
        .chain((0..len).map(|_| bytes.next() as u8))
        .collect()
}

/// The number in a value; 0 for none.
fn number_in(value: Option<&[u8]>, len_max: u64) -> Result<u64, String> {
    let Some(value) = value else { return Ok(0) };
    let number = value.first_chunk().copied().map_or(0, u64::from_le_bytes);
    if value == value_of(number, len_max) {
        Ok(number)
    } else {
        Err(format!("damaged value: {value:?}"))
    }
}

/// Says that `number`, or a later one, will be found in `place`, come what may. One line in one write: it is whole or
/// not there.
fn acknowledge(place: &str, number: u64) {
    let line = format!("ack {place} {number}\n");
    // The parent is gone: then no process is left that relies on a promise.
    if std::io::stdout().write_all(line.as_bytes()).is_err() {
        std::process::exit(0);
    }
}

/// Not a test: what the child runs. Loads the store until it is killed.
#[test]
fn child() {
    let Ok(setup) = std::env::var(CHILD) else { return };
    // SAFETY: plain numbers. The child must not outlive the test.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let [directory, number, early] = setup.split('|').collect::<Vec<_>>().try_into().unwrap();
    let setup = Setup {
        acknowledges_early: early == "true",
        ..SETUPS[number.parse::<usize>().unwrap()]
    };
    let store = open(setup, Path::new(directory));
    println!("\nready");
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = &store;
            scope.spawn(move || write(store, setup, writer));
        }
        for putter in 0..PUTTERS {
            let store = &store;
            scope.spawn(move || put(store, setup, putter));
        }
        scope.spawn(|| update(&store, setup));
    });
}

/// Puts one record again and again.
fn put(store: &Store<Lmdb, LinuxOs>, setup: Setup, putter: u64) {
    let key = format!("putter/{putter}");
    let begin = store.get(&key).unwrap();
    for number in number_in(begin.as_deref(), VALUE_MAX).unwrap() + 1.. {
        if setup.acknowledges_early {
            acknowledge(&key, number);
        }
        store.put(&key, value_of(number, VALUE_MAX)).unwrap();
        if store.durability() == Durability::Durable {
            acknowledge(&key, number);
        } else if number % 4 == 0 {
            store.sync().unwrap();
            acknowledge(&key, number);
        }
    }
}

/// Writes the same number to two records in each transaction.
fn write(store: &Store<Lmdb, LinuxOs>, setup: Setup, writer: u64) {
    let keys = ["a", "b"].map(|side| format!("writer/{writer}/{side}"));
    let begin = store.get(keys[0].as_bytes()).unwrap();
    for number in number_in(begin.as_deref(), VALUE_MAX).unwrap() + 1.. {
        let deadline = Deadline::soft(LinuxOs.now() + Nanos::from_millis(number % 7));
        let mut transaction = store.write_transaction(deadline).unwrap();
        for key in &keys {
            transaction.put(key.as_bytes(), value_of(number, VALUE_MAX)).unwrap();
        }
        if setup.acknowledges_early {
            acknowledge(&format!("writer/{writer}"), number);
            // Time for a kill in between.
            std::thread::sleep(Duration::from_millis(2));
        }
        transaction.commit().unwrap();
        if store.durability() == Durability::Durable {
            acknowledge(&format!("writer/{writer}"), number);
        } else if number % 4 == 0 {
            store.sync().unwrap();
            acknowledge(&format!("writer/{writer}"), number);
        }
    }
}

/// Offers updates of all sensors, installs them, and acknowledges what the store says is durable.
fn update(store: &Store<Lmdb, LinuxOs>, setup: Setup) {
    let mut value = Vec::new();
    let begin: Vec<u64> = (0..SENSORS)
        .map(|sensor| {
            let found = store.read(ObjectId(sensor), &mut value).unwrap();
            number_in(found.map(|_| value.as_slice()), READING_MAX).unwrap()
        })
        .collect();
    for seq in 1.. {
        for sensor in 0..SENSORS {
            let number = begin[sensor as usize] + seq;
            store
                .offer(
                    SensorId(sensor),
                    Seq(seq),
                    LinuxOs.now(),
                    &value_of(number, READING_MAX),
                )
                .unwrap();
        }
        store.install_pending(SENSORS as usize).unwrap();
        match (setup.update_mode, setup.durability) {
            (UpdateMode::MemoryFirst, _) if seq % 3 == 0 => drop(store.flush().unwrap()),
            (UpdateMode::Transaction, Durability::NoMetaSync) if seq % 3 == 0 => store.sync().unwrap(),
            _ => {}
        }
        for sensor in 0..SENSORS {
            let durable = store.durable_seq(ObjectId(sensor)).unwrap().0;
            if durable > 0 {
                acknowledge(&format!("sensor/{sensor}"), begin[sensor as usize] + durable);
            }
        }
    }
}

/// Starts the child; returns when it has opened the store.
fn start(child: &str) -> (TestChild, BufReader<ChildStdout>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "crash::child", "--nocapture", "--test-threads=1"])
        .env(CHILD, child)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    let mut process = punctual_testing::start(&mut command, CHILD_MAX).unwrap();
    let mut output = BufReader::new(process.stdout().unwrap());
    let mut line = String::new();
    while line != "ready\n" {
        line.clear();
        assert!(
            output.read_line(&mut line).unwrap() > 0,
            "the child ended before it was ready"
        );
    }
    (process, output)
}

/// Starts the child, kills it after `life` and once it has acknowledged something in so many places, and notes what it
/// has acknowledged.
fn run_and_kill(child: &str, life: Duration, places: u64, acknowledged: &mut HashMap<String, u64>) {
    let (mut process, mut output) = start(child);
    let mut line = String::new();
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let sees = Arc::clone(&seen);
    let reader = std::thread::spawn(move || {
        let mut acks = Vec::new();
        // The last line may be cut off: it has no end, and counts for nothing.
        while output.read_line(&mut line).is_ok_and(|len| len > 0) && line.ends_with('\n') {
            if let Some((place, number)) = line.trim_end().strip_prefix("ack ").and_then(|ack| ack.split_once(' ')) {
                acks.push((place.to_owned(), number.parse::<u64>().unwrap()));
                sees.lock().unwrap().insert(place.to_owned());
            }
            line.clear();
        }
        acks
    });
    // The kill comes at any moment of the child's work.
    std::thread::sleep(life);
    wait_until("acknowledgements", || seen.lock().unwrap().len() as u64 >= places);
    assert_eq!(process.ended().unwrap(), None, "the child ended before it was killed");
    process.kill().unwrap();
    process.wait().unwrap();
    for (place, number) in reader.join().unwrap() {
        let last = acknowledged.entry(place).or_insert(0);
        *last = number.max(*last);
    }
}

/// Reopens the store and looks for all that was acknowledged; the first thing that is not right.
fn check(setup: Setup, directory: &Path, acknowledged: &HashMap<String, u64>) -> Result<(), String> {
    let store = open(setup, directory);
    let at_least = |place: String, found: u64| match acknowledged.get(&place) {
        Some(promised) if found < *promised => Err(format!("{place}: promised {promised}, found {found}")),
        _ => Ok(()),
    };
    for writer in 0..WRITERS {
        let number = |side| {
            let value = store.get(format!("writer/{writer}/{side}").as_bytes()).unwrap();
            number_in(value.as_deref(), VALUE_MAX)
        };
        let (a, b) = (number("a")?, number("b")?);
        if a != b {
            return Err(format!("writer {writer}: half of a transaction, {a} and {b}"));
        }
        at_least(format!("writer/{writer}"), a)?;
    }
    for putter in 0..PUTTERS {
        let place = format!("putter/{putter}");
        let value = store.get(&place).unwrap();
        at_least(place, number_in(value.as_deref(), VALUE_MAX)?)?;
    }
    for sensor in 0..SENSORS {
        let value = store.get(format!("sensor/{sensor}").as_bytes()).unwrap();
        at_least(format!("sensor/{sensor}"), number_in(value.as_deref(), READING_MAX)?)?;
    }
    Ok(())
}

#[test]
fn what_was_acknowledged_survives_being_killed() {
    let mut choices = Choices::new(seed());
    let root = tempfile::tempdir().unwrap();
    let mut acknowledged: [HashMap<String, u64>; SETUPS.len()] = Default::default();
    let kills = std::env::var("KILLS").map_or(KILLS, |kills| kills.parse().expect("KILLS is a number"));
    for kill in 0..kills {
        let number = kill as usize % SETUPS.len();
        let directory = root.path().join(number.to_string());
        let life = Duration::from_micros(LIFE_US.start + choices.below(LIFE_US.end - LIFE_US.start));
        // A busy machine may let a child do little before it is killed; the first one of each directory does something
        // in each place.
        let places = if acknowledged[number].is_empty() { PLACES } else { 0 };
        run_and_kill(
            &format!("{}|{number}|false", directory.display()),
            life,
            places,
            &mut acknowledged[number],
        );
        if let Err(loss) = check(SETUPS[number], &directory, &acknowledged[number]) {
            panic!("kill {kill}, {:?}: {loss}", SETUPS[number]);
        }
        if (kill + 1) % 1000 == 0 {
            println!("{} kills, nothing lost", kill + 1);
        }
    }
    for (setup, acknowledged) in SETUPS.iter().zip(&acknowledged) {
        println!("{setup:?}: {acknowledged:?}");
        assert_eq!(acknowledged.len() as u64, PLACES, "something was never acknowledged");
    }
}

#[test]
fn a_store_that_acknowledges_before_the_commit_is_caught() {
    let mut choices = Choices::new(seed());
    let root = tempfile::tempdir().unwrap();
    let mut acknowledged = HashMap::new();
    let setup = Setup {
        acknowledges_early: true,
        ..SETUPS[0]
    };
    let caught = (0..KILLS).any(|_| {
        let life = Duration::from_micros(LIFE_US.start + choices.below(LIFE_US.end - LIFE_US.start));
        let child = format!("{}|0|true", root.path().display());
        run_and_kill(&child, life, 1, &mut acknowledged);
        check(setup, root.path(), &acknowledged).is_err()
    });
    assert!(caught, "{KILLS} kills, and no loss was seen");
}

#[test]
fn another_process_is_refused_until_the_named_holder_is_killed() {
    let root = tempfile::tempdir().unwrap();
    let (mut process, _output) = start(&format!("{}|0|false", root.path().display()));
    let error = LmdbOptions::default().open(root.path()).map(drop).unwrap_err();
    assert!(
        matches!(error, EngineError::InUse { pid: Some(pid), .. } if pid == process.id()),
        "{error}"
    );
    process.kill().unwrap();
    process.wait().unwrap();
    drop(open(SETUPS[0], root.path()));
}
