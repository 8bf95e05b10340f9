//! What a mapped partition has acknowledged is there after a kill, and, where the medium promises it, after a power
//! cut.
//!
//! A child writes numbered records into partitions and says so after each one, until it is killed; then the partitions
//! are read. The planted faults are a child that says so too early, and, for the power cut, a file that was never
//! synced. Power is cut by `.ci/vm`, which starts the child itself and checks after the next boot, by the variables
//! below.

#![cfg(target_os = "linux")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use punctual_os::linux::mapped::{MappedPartition, Medium};

/// Partitions that the child writes, with colons between.
const WRITE: &str = "PUNCTUAL_TEST_WRITE";
/// A file that the child writes as often, and never syncs.
const UNSYNCED: &str = "PUNCTUAL_TEST_UNSYNCED";
/// By how many records the child says so too early.
const EARLY: &str = "PUNCTUAL_TEST_EARLY";
/// "NUMBER PATH": up to which record the file must be complete.
const CHECK: &str = "PUNCTUAL_TEST_CHECK";

/// A record in each cache line, the newest instead of the one that is this many older.
const LINE: usize = 64;
const RECORDS: usize = 64;
const BYTES: usize = LINE * RECORDS;
/// How many records a child writes before it is killed: several rounds.
const ENOUGH: u64 = 300;

fn place(number: u64) -> usize {
    number as usize % RECORDS * LINE
}

/// The number, and its complement, so that a torn record is no record.
fn record(number: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..].copy_from_slice(&(!number).to_le_bytes());
    bytes
}

/// The checker: which of the records that had to be there are not, one that is overwritten by a later one being there.
fn lost(content: &[u8], acknowledged: u64) -> Vec<u64> {
    let found = |number: u64| {
        let line = &content[place(number)..][..16];
        let held = u64::from_le_bytes(line[..8].try_into().unwrap());
        (line == record(held)).then_some(held)
    };
    let first = acknowledged.saturating_sub(RECORDS as u64 - 1).max(1);
    // The record that was being written when the end came may have torn the one that it replaces, and that one only.
    let torn = (acknowledged + 1).saturating_sub(RECORDS as u64);
    (first..=acknowledged)
        .filter(|number| *number != torn && found(*number).is_none_or(|held| held < *number))
        .collect()
}

/// The child's part; a test of its own name only when told so.
#[test]
fn child() {
    let Ok(paths) = std::env::var(WRITE) else { return };
    let early: u64 = std::env::var(EARLY).map_or(0, |early| early.parse().unwrap());
    let unsynced = std::env::var(UNSYNCED).map(|path| {
        let file = fs::File::create(path).unwrap();
        file.write_all_at(&[0; BYTES], 0).unwrap();
        file.sync_all().unwrap();
        file
    });
    let mut partitions: Vec<MappedPartition> = paths
        .split(':')
        .map(|path| {
            let partition = MappedPartition::create(Path::new(path), BYTES as u64).unwrap();
            println!("\nMEDIUM {:?} {path}", partition.medium());
            partition
        })
        .collect();
    // The test harness may have begun a line.
    println!();
    for number in 1.. {
        let written: u64 = number - early.min(number);
        if written > 0 {
            for partition in &mut partitions {
                partition.write(place(written), &record(written)).unwrap();
            }
            if let Ok(file) = &unsynced {
                file.write_all_at(&record(written), place(written) as u64).unwrap();
            }
        }
        println!("ACK {number}");
        std::io::stdout().flush().unwrap();
    }
}

/// Starts a child on the partition at `path` and kills it in the middle; the last record that it has acknowledged, and
/// its medium.
fn written_until_killed(path: &Path, early: u64) -> (u64, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "data_survives::child", "--nocapture", "--test-threads=1"])
        .env(WRITE, path)
        .env(EARLY, early.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = punctual_testing::start(&mut command, punctual_testing::CHILD_MAX).unwrap();
    let (mut acknowledged, mut medium) = (0, String::new());
    let mut lines = BufReader::new(child.stdout().unwrap()).lines();
    let mut read_until = |acknowledged: &mut u64, enough: u64| {
        for line in lines.by_ref().map_while(Result::ok) {
            if let Some(named) = line.strip_prefix("MEDIUM ") {
                medium = named.split(' ').next().unwrap().to_owned();
            }
            if let Some(number) = line.strip_prefix("ACK ") {
                *acknowledged = number.parse().unwrap();
                if *acknowledged >= enough {
                    return;
                }
            }
        }
    };
    read_until(&mut acknowledged, ENOUGH);
    child.kill().unwrap();
    child.wait().unwrap();
    read_until(&mut acknowledged, u64::MAX); // what is still in the pipe has been acknowledged, too
    assert!(acknowledged >= ENOUGH, "the child ended before it was killed");
    (acknowledged, medium)
}

/// A folder in memory, one on a device (or wherever `TMPDIR` says).
fn folders() -> [tempfile::TempDir; 2] {
    let memory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    [memory.unwrap(), tempfile::tempdir().unwrap()]
}

#[test]
fn after_a_kill_what_was_acknowledged_is_there() {
    for folder in folders() {
        let path = folder.path().join("partition");
        let (acknowledged, medium) = written_until_killed(&path, 0);
        eprintln!("{medium}: {acknowledged} records acknowledged before the kill");
        assert_eq!(lost(&fs::read(&path).unwrap(), acknowledged), [0_u64; 0]);
    }
}

#[test]
fn planted_fault_an_acknowledgement_that_comes_too_early_is_noticed() {
    let [folder, _] = folders();
    let path = folder.path().join("partition");
    let (acknowledged, _) = written_until_killed(&path, 2);
    assert!(!lost(&fs::read(&path).unwrap(), acknowledged).is_empty());
}

#[test]
fn the_checker_sees_a_record_that_is_missing_torn_or_old() {
    let mut content = vec![0; BYTES];
    (1..=100).for_each(|number| content[place(number)..][..16].copy_from_slice(&record(number)));
    assert_eq!(lost(&content, 100), [0_u64; 0]);
    assert_eq!(lost(&content, 101), [101]);
    let mut torn = content.clone();
    torn[place(77)] ^= 1;
    assert_eq!(lost(&torn, 100), [77]);
    content[place(90)..][..16].copy_from_slice(&record(90 - RECORDS as u64));
    assert_eq!(lost(&content, 100), [90]);
}

/// After the next boot; a test of its own name only when told so.
#[test]
fn after_a_power_cut_what_was_acknowledged_is_there() {
    let Ok(check) = std::env::var(CHECK) else { return };
    let (acknowledged, path) = check.split_once(' ').unwrap();
    let acknowledged = acknowledged.parse().unwrap();
    assert!(acknowledged >= ENOUGH);
    let content = fs::read(PathBuf::from(path)).unwrap();
    assert_eq!(lost(&content, acknowledged), [0_u64; 0]);
    let partition = MappedPartition::create(Path::new(path), BYTES as u64).unwrap();
    assert_eq!(partition.as_slice(), content);
    assert_ne!(partition.medium(), Medium::SharedMemory);
}
