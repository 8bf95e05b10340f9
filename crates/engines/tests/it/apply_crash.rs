//! Entries of a log that a store has applied survive SIGKILL, whole and in their order; and a node that acknowledges
//! one before it is applied is caught.
//!
//! What an entry writes follows from its revision. So after each kill the store's records must be those of all entries
//! up to the revision that is inside of it, no matter where it was killed, and that revision must be one that was
//! acknowledged, or a later one.

use crate::common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Choices, seed};
use punctual_engines::Lmdb;
use punctual_engines::lmdb::LmdbOptions;
use punctual_os::LinuxOs;
use punctual_store::batch::WriteSet;
use punctual_store::{Store, StoreOptions};
use punctual_testing::{CHILD_MAX, WAIT_MAX};
use punctual_units::Revision;

const KILLS: u64 = 20;
/// How long the child works at least and at most before it is killed.
const LIFE_US: std::ops::Range<u64> = 1_000..100_000;
/// Few records, so that entries overwrite and delete what others wrote.
const RECORDS: u64 = 40;
const SETS_MAX: u64 = 5;
const CHILD: &str = "APPLY_CRASH_TEST_CHILD";

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(directory: &Path) -> Store<Lmdb, LinuxOs> {
    let engine = LmdbOptions::default().open(directory).unwrap();
    let options = StoreOptions {
        replicated: true,
        ..StoreOptions::default()
    };
    Store::open(engine, LinuxOs, options).unwrap()
}

/// What the entry at `revision` does.
fn entry(revision: u64) -> Vec<WriteSet> {
    let mut choices = Choices::new(revision);
    let set = |choices: &mut Choices| {
        let changes = (0..=choices.below(4)).map(|_| {
            let key = format!("record {}", choices.below(RECORDS)).into_bytes();
            let value = (choices.below(4) > 0).then(|| vec![revision as u8; choices.below(2_000) as usize]);
            (key, value)
        });
        WriteSet {
            changes: changes.collect(),
            ..WriteSet::default()
        }
    };
    (0..choices.below(SETS_MAX)).map(|_| set(&mut choices)).collect()
}

/// The records of all entries up to `revision`.
fn records(revision: u64) -> Records {
    let mut records = Records::new();
    for (key, value) in (1..=revision).flat_map(entry).flat_map(|set| set.changes) {
        match value {
            Some(value) => records.insert(key, value),
            None => records.remove(&key),
        };
    }
    records
}

/// Not a test: what the child runs. Applies entries until it is killed.
#[test]
fn child() {
    let Ok(setup) = std::env::var(CHILD) else { return };
    // SAFETY: plain numbers. The child must not outlive the test.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let (early, directory) = setup.split_once('|').unwrap();
    let store = open(Path::new(directory));
    println!("\nready");
    for revision in store.revision().0 + 1.. {
        let acknowledge = || {
            // The parent is gone: then no process is left that relies on a promise.
            if std::io::stdout()
                .write_all(format!("ack {revision}\n").as_bytes())
                .is_err()
            {
                std::process::exit(0);
            }
        };
        if early == "early" {
            acknowledge();
            // Time for a kill in between.
            std::thread::sleep(Duration::from_millis(2));
        }
        store.apply(Revision(revision), &entry(revision)).unwrap();
        acknowledge();
    }
}

/// Starts the child, kills it after `life` and one acknowledgement at least, and tells the last revision that it has
/// acknowledged.
fn run_and_kill(early: &str, directory: &Path, life: Duration) -> u64 {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "apply_crash::child", "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{early}|{}", directory.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    let mut process = punctual_testing::start(&mut command, CHILD_MAX).unwrap();
    let mut lines = BufReader::new(process.stdout().unwrap()).split(b'\n');
    assert!(
        lines.any(|line| line.is_ok_and(|line| line == b"ready")),
        "the child ended before it was ready"
    );
    let (tell, told) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut last = 0;
        for line in lines.map_while(Result::ok) {
            // A last line that is cut off is a smaller number: that is true as well.
            let number = std::str::from_utf8(&line)
                .ok()
                .and_then(|line| line.strip_prefix("ack ")?.parse().ok());
            last = number.unwrap_or(0).max(last);
            let _ = tell.send(());
        }
        last
    });
    // The kill comes at any moment of the child's work.
    std::thread::sleep(life);
    told.recv_timeout(WAIT_MAX).expect("an acknowledgement");
    assert_eq!(process.ended().unwrap(), None, "the child ended before it was killed");
    process.kill().unwrap();
    process.wait().unwrap();
    reader.join().unwrap()
}

/// Reopens the store and compares; the revision that it is at, or what is not right.
fn check(directory: &Path, acknowledged: u64) -> Result<u64, String> {
    let store = open(directory);
    let (at, image) = (store.revision().0, store.image().unwrap());
    if at < acknowledged {
        return Err(format!("revision {acknowledged} was acknowledged, {at} is there"));
    }
    match image.records.into_iter().collect::<Records>() == records(at) {
        true => Ok(at),
        false => Err(format!("the records are not those of revision {at}")),
    }
}

fn life(choices: &mut Choices) -> Duration {
    Duration::from_micros(LIFE_US.start + choices.below(LIFE_US.end - LIFE_US.start))
}

#[test]
fn entries_that_were_applied_survive_being_killed() {
    let mut choices = Choices::new(seed());
    let root = tempfile::tempdir().unwrap();
    let mut at = 0;
    for kill in 0..KILLS {
        let acknowledged = run_and_kill("", root.path(), life(&mut choices));
        at = check(root.path(), acknowledged.max(at)).unwrap_or_else(|loss| panic!("kill {kill}: {loss}"));
    }
    assert!(at >= KILLS, "revision {at} after {KILLS} kills");
}

#[test]
fn a_node_that_acknowledges_before_it_applies_is_caught() {
    let mut choices = Choices::new(seed());
    let root = tempfile::tempdir().unwrap();
    let caught = (0..KILLS).any(|_| {
        let acknowledged = run_and_kill("early", root.path(), life(&mut choices));
        check(root.path(), acknowledged).is_err()
    });
    assert!(caught, "{KILLS} kills, and no loss was seen");
}
