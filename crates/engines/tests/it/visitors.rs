//! Processes that read a store while another one writes it: each snapshot shows one commit, the owner is never stopped,
//! and a visitor whose snapshot was ended is told.
//!
//! The owner is this test binary again. Each of its transactions writes all records anew, with the number of the round
//! in each, so that a mixture of two commits is seen.

#![cfg(target_os = "linux")]

use crate::common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use common::{Choices, seed};
use punctual_engines::AnyEngine;
use punctual_engines::lmdb::transfer::{self, TransferError};
use punctual_engines::lmdb::{LmdbOptions, Verify, Visiting, Visitor, last_check};
use punctual_os::{LinuxOs, Os};
use punctual_store::engine::{Durability, EndedBecause, Engine, EngineError, Table, Write};
use punctual_store::readers::HELD_AFTER;
use punctual_store::temporal::{ClockOrigin, ObjectSpec};
use punctual_store::{Deadline, Freshness, Store, StoreError, StoreOptions, Value};
use punctual_testing::{CHILD_MAX, TestChild, shared_folder, start, wait_for, wait_until};
use punctual_units::{Clock, Nanos, SensorId, Seq, Share};

const CHILD: &str = "VISITORS_TEST_CHILD";
const EXPORTER: &str = "VISITORS_TEST_EXPORTER";
const RECORDS: u64 = 200;

fn options(quota: usize) -> LmdbOptions {
    LmdbOptions {
        durability: Durability::NoMetaSync,
        quota,
        ..LmdbOptions::default()
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("record/{number:04}").into_bytes()
}

/// A value of a length that changes from round to round, so that pages are split, joined and used again.
fn value(number: u64, round: u64) -> Vec<u8> {
    let len = Choices::new(number ^ round << 20).below(if number.is_multiple_of(37) { 12_000 } else { 400 }) as usize;
    [&round.to_le_bytes()[..], &vec![number as u8; len]].concat()
}

fn write_round(store: &Store<punctual_engines::Lmdb, LinuxOs>, round: u64) {
    let mut transaction = store.write_transaction(Deadline::NONE).unwrap();
    for number in 0..RECORDS {
        // Some are there in every other round only.
        if number % 11 == 3 && round % 2 == 1 {
            transaction.delete(key(number)).unwrap();
        } else {
            transaction.put(key(number), value(number, round)).unwrap();
        }
    }
    transaction.commit().unwrap();
}

/// Not a test: the owner. Writes round after round until its input ends, or until it is killed; then says how many
/// there were, and how many visitors it has ended.
#[test]
fn child() {
    let Ok(settings) = std::env::var(CHILD) else { return };
    let (directory, quota) = settings.rsplit_once('|').unwrap();
    let engine = options(quota.parse().unwrap()).open(directory).unwrap();
    let store = Store::open(engine, LinuxOs, StoreOptions::default()).unwrap();
    write_round(&store, 1);
    println!("\nready");
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let mut round = 1;
        while !over.load(std::sync::atomic::Ordering::Relaxed) {
            round += 1;
            write_round(&store, round);
        }
        println!("rounds {round} ended {}", store.readers_ended().count);
    });
}

struct Owner {
    child: TestChild,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Owner {
    fn of(directory: &Path, quota: usize) -> Owner {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "visitors::child", "--nocapture", "--test-threads=1"])
            .env(CHILD, format!("{}|{quota}", directory.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = start(&mut command, CHILD_MAX).unwrap();
        let lines = BufReader::new(child.stdout().unwrap()).lines();
        let mut owner = Owner { child, lines };
        owner.said("ready");
        owner
    }

    /// Its next line that begins so.
    fn said(&mut self, begin: &str) -> String {
        let found = self
            .lines
            .find_map(|line| line.ok().filter(|line| line.starts_with(begin)));
        found.unwrap_or_else(|| panic!("the owner ended without {begin:?}"))
    }

    /// Ends it; how many rounds it wrote, and how many visitors it ended.
    fn end(mut self) -> [u64; 2] {
        drop(self.child.stdin());
        let said = self.said("rounds");
        let numbers: Vec<u64> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
        assert!(self.child.wait().unwrap().success(), "{said}");
        numbers.try_into().unwrap()
    }
}

fn all(visitor: &Visitor<'_>) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, EngineError> {
    let mut records = BTreeMap::new();
    visitor.visit::<EngineError>(Table::Data, &mut |key, value| {
        records.insert(key.to_vec(), value.to_vec());
        Ok(())
    })?;
    Ok(records)
}

/// The round that all records are of.
fn round_of(records: &BTreeMap<Vec<u8>, Vec<u8>>) -> u64 {
    let (first, _) = records.values().next().unwrap().split_first_chunk().unwrap();
    let round = u64::from_le_bytes(*first);
    let there = (0..RECORDS).filter(|number| number % 11 != 3 || round.is_multiple_of(2));
    let expected: BTreeMap<_, _> = there.map(|number| (key(number), value(number, round))).collect();
    assert!(*records == expected, "records of more than one commit");
    round
}

/// Whether the owner ended the snapshot of a visitor by its rules: one that a busy machine has put off.
fn was_put_off<T>(read: &Result<T, EngineError>) -> bool {
    matches!(read, Err(EngineError::SnapshotEnded { age, why, .. }) if *age > HELD_AFTER || *why == EndedBecause::Quota)
}

/// A result whose error is the engine's.
fn of_engine<T>(read: Result<T, StoreError>) -> Result<T, EngineError> {
    read.map_err(|error| match error {
        StoreError::Engine(error) => error,
        error => panic!("{error}"),
    })
}

/// Transfers anew while the owner has ended each of the snapshots: a busy machine has put all attempts off.
fn transferring<T>(transfer: impl Fn() -> Result<T, TransferError>) -> T {
    wait_for(
        || "a transfer that the owner does not outrun".into(),
        || match transfer() {
            Err(TransferError::Outrun { .. }) => None,
            done => Some(done.unwrap()),
        },
    )
}

/// A visitor, and what it reads. The owner writes without rest, and so it ends the snapshot of a visitor that a busy
/// machine puts off; then another one comes.
fn visiting<T>(directory: &Path, read: impl Fn(&Visitor<'_>) -> Result<T, EngineError>) -> (Visitor<'static>, T) {
    wait_for(
        || "a visitor that the owner does not end".into(),
        || {
            let visitor = Visitor::open(directory).unwrap();
            let found = read(&visitor);
            (!was_put_off(&found)).then(|| (visitor, found.unwrap()))
        },
    )
}

/// Reads until the snapshot, which is of this round, is lost; what the visitor is told.
fn until_lost(visitor: &Visitor<'_>, round: u64) -> EngineError {
    wait_for(
        || "the snapshot is lost".into(),
        || {
            let read = all(visitor).map(|records| assert_eq!(round_of(&records), round));
            read.err()
        },
    )
}

#[test]
fn each_snapshot_of_another_process_shows_one_commit_while_the_owner_writes() {
    let folder = shared_folder();
    let owner = Owner::of(folder.path(), 64 << 20);
    let mut choices = Choices::new(seed());
    let (mut rounds, mut kept) = (Vec::new(), 0);
    for _ in 0..150 {
        let pause = Duration::from_micros(choices.below(3_000));
        let (visitor, (is_kept, records, again)) = visiting(folder.path(), |visitor| {
            let is_kept = visitor.is_kept();
            // The owner goes on meanwhile.
            std::thread::sleep(pause);
            Ok((is_kept, all(visitor)?, all(visitor)?))
        });
        kept += u32::from(is_kept);
        assert_eq!(visitor.owner(), Some(owner.child.id()));
        rounds.push(round_of(&records));
        assert_eq!(round_of(&again), rounds[rounds.len() - 1], "the same once more");
        assert_eq!(visitor.records(Table::Data), records.len() as u64);
    }
    assert_eq!(kept, 150, "each has a place in the table of readers");
    assert!(rounds.is_sorted(), "{rounds:?}");
    wait_until("the owner goes on", || {
        round_of(&visiting(folder.path(), all).1) > rounds[0]
    });
    let [written, _] = owner.end();
    assert!(written >= rounds[149]);
}

#[test]
fn checks_and_copies_are_made_while_the_owner_writes() {
    let (folder, copies) = (shared_folder(), shared_folder());
    let owner = Owner::of(folder.path(), 64 << 20);
    wait_until("the owner writes", || round_of(&visiting(folder.path(), all).1) > 1);
    let mut last = 0;
    for number in 0..20 {
        visiting(folder.path(), |visitor| visitor.verify(Verify::Full, |_| ()));
        let copy = copies.path().join(format!("copy {number}"));
        let share = if number % 2 == 0 {
            Share::ONE
        } else {
            Share::clamped(0.5)
        };
        let transferred = transferring(|| transfer::backup(folder.path(), &copy, share, &mut |_| ()));
        // Opened as a store, and checked as one.
        drop(options(64 << 20).open(&copy).unwrap());
        let records = all(&Visitor::open(&copy).unwrap()).unwrap();
        assert_eq!(transferred.records, records.len() as u64);
        let round = round_of(&records);
        assert!(round >= last, "{round} after {last}");
        last = round;
    }
    assert!(last > 1);
    let [written, _] = owner.end();
    assert!(written >= last);
    let left: Vec<_> = fs::read_dir(copies.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 20, "nothing is left beside the copies: {left:?}");
}

/// Takes an export, and at its first bytes waits until the owner has ended a snapshot younger than the export's.
struct SlowReader<'f> {
    folder: &'f Path,
    text: Vec<u8>,
}

impl std::io::Write for SlowReader<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.text.is_empty() {
            let (younger, records) = visiting(self.folder, all);
            until_lost(&younger, round_of(&records));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The round of a store that is made of the text of an export.
fn round_of_export(text: &[u8]) -> u64 {
    let folder = shared_folder();
    let copy = folder.path().join("copy");
    transfer::import(&mut &*text, &copy, &mut |_| ()).unwrap();
    round_of(&all(&Visitor::open(&copy).unwrap()).unwrap())
}

#[test]
fn an_export_to_a_slow_reader_keeps_its_snapshot_while_the_owner_writes() {
    let folder = shared_folder();
    let owner = Owner::of(folder.path(), 8 << 20);
    for _ in 0..3 {
        let text = transferring(|| {
            let (folder, text) = (folder.path(), Vec::new());
            let mut to = SlowReader { folder, text };
            transfer::export(folder, &mut to, &mut |_| ()).map(|_| to.text)
        });
        assert!(round_of_export(&text) > 0);
    }
    owner.end();
}

/// Not a test: exports a store to its own memory, and cannot write a file of more than a page.
#[test]
fn exporter() {
    let Ok(folder) = std::env::var(EXPORTER) else { return };
    let page = libc::rlimit {
        rlim_cur: 4096,
        rlim_max: 4096,
    };
    // SAFETY: changes this process only, which is the test's own; the limit is valid for the call.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &page), 0);
    }
    let mut text = Vec::new();
    let exported = transfer::export(folder.as_ref(), &mut text, &mut |_| ()).unwrap();
    println!("\nexported {}", exported.records);
}

#[test]
fn an_export_whose_pages_cannot_be_copied_is_written_from_its_snapshot() {
    let folder = shared_folder();
    let engine = options(8 << 20).open(folder.path()).unwrap();
    let store = Store::open(engine, LinuxOs, StoreOptions::default()).unwrap();
    write_round(&store, 2);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "visitors::exporter", "--nocapture", "--test-threads=1"])
        .env(EXPORTER, folder.path())
        .stdout(Stdio::piped());
    let mut child = start(&mut command, CHILD_MAX).unwrap();
    let mut said = String::new();
    child.stdout().unwrap().read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
    assert!(said.contains(&format!("\nexported {RECORDS}\n")), "{said}");
}

#[test]
fn the_owner_copies_and_exports_its_own_store_while_it_writes() {
    let (folder, copies) = (shared_folder(), shared_folder());
    let engine = options(64 << 20).open(folder.path()).unwrap();
    let store = Store::open(engine, LinuxOs, StoreOptions::default()).unwrap();
    write_round(&store, 1);
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let rounds = (2..).take_while(|_| !over.load(std::sync::atomic::Ordering::Relaxed));
            rounds.for_each(|round| write_round(&store, round));
        });
        for number in 0..5 {
            let copy = copies.path().join(format!("copy {number}"));
            let transferred = store.backup(&copy, Share::ONE).unwrap();
            let records = all(&Visitor::open(&copy).unwrap()).unwrap();
            assert_eq!(transferred.records, records.len() as u64);
            round_of(&records);
            let mut text = Vec::new();
            store.export(&mut text).unwrap();
            round_of_export(&text);
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(store.engine().snapshots().is_empty());
}

#[test]
fn a_copy_has_the_values_of_temporal_objects_that_were_in_memory() {
    let (folder, copies) = (shared_folder(), shared_folder());
    let open = |folder: &Path| {
        let pose = ObjectSpec::number("pose").period(Nanos::from_secs(1));
        Store::open(
            options(8 << 20).open(folder).unwrap(),
            LinuxOs,
            StoreOptions::from([pose]),
        )
        .unwrap()
    };
    let store = open(folder.path());
    store.put("door", "open").unwrap();
    store.offer(SensorId(0), Seq(1), LinuxOs.now(), b"north").unwrap();
    let copy = copies.path().join("copy");
    assert_eq!(store.backup(&copy, Share::clamped(0.5)).unwrap().records, 2);
    let copied = open(&copy);
    assert_eq!(copied.get("pose").unwrap().as_deref(), Some(&b"north"[..]));
    let mut text = Vec::new();
    store.offer(SensorId(0), Seq(2), LinuxOs.now(), b"south").unwrap();
    assert_eq!(store.export(&mut text).unwrap().records, 2);
    assert!(text.windows(5).any(|word| word == b"south"));
    let taken = store.backup(&copy, Share::ONE).unwrap_err();
    assert!(
        matches!(&taken, StoreError::Transfer(why) if matches!(**why, TransferError::Taken { .. })),
        "{taken}"
    );
}

#[test]
fn a_store_in_memory_has_no_file_to_copy() {
    let copies = shared_folder();
    let store = Store::open(AnyEngine::Memory(Default::default()), LinuxOs, StoreOptions::default()).unwrap();
    for refused in [
        store.backup(copies.path().join("copy"), Share::ONE).unwrap_err(),
        store.export(&mut Vec::new()).unwrap_err(),
    ] {
        assert!(
            matches!(refused, StoreError::Engine(EngineError::Io { .. })),
            "{refused}"
        );
        let told = refused.to_string();
        assert!(told.ends_with("it is in memory; open one in a folder"), "{told}");
    }
}

#[test]
fn planted_fault_a_plain_copy_of_a_file_that_is_written_is_caught() {
    let (folder, copies) = (shared_folder(), shared_folder());
    let owner = Owner::of(folder.path(), 64 << 20);
    let file = folder.path().join("data.mdb");
    // Both pages that name the newest commits.
    let metas = || fs::read(&file).unwrap()[..2 * 4096].to_vec();
    wait_until("a copy of more than one commit", || {
        // As a copy that is put off behind its first pages.
        let begun = metas();
        for _ in 0..4 {
            let before = metas();
            wait_until("a commit", || metas() != before);
        }
        let mut copy = fs::read(&file).unwrap();
        copy[..begun.len()].copy_from_slice(&begun);
        fs::write(copies.path().join("data.mdb"), copy).unwrap();
        let visitor = Visitor::open(copies.path());
        visitor
            .and_then(|visitor| visitor.verify(Verify::Full, |_| ()))
            .is_err()
    });
    owner.end();
}

#[test]
fn a_visitor_that_keeps_too_much_is_ended_and_told_and_the_owner_goes_on() {
    let folder = shared_folder();
    // The quota is met before 16 MiB are kept, and before a reserve is used up.
    let owner = Owner::of(folder.path(), 8 << 20);
    let (visitor, records) = visiting(folder.path(), all);
    let begun = round_of(&records);
    let told = until_lost(&visitor, begun);
    assert!(matches!(told, EngineError::SnapshotEnded { .. }), "{told}");
    assert!(!visitor.is_kept());
    let [_, ended] = owner.end();
    assert!(ended >= 1, "{ended}");
}

#[test]
fn a_visitor_that_was_killed_keeps_nothing() {
    let folder = shared_folder();
    let engine = options(64 << 20).open(folder.path()).unwrap();
    let put = |round: u64| {
        let mut transaction = engine.write().unwrap();
        transaction.put(Table::Data, b"key", &value(37, round)).unwrap();
        transaction.commit().unwrap();
    };
    put(1);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "visitors::visiting_child", "--nocapture", "--test-threads=1"])
        .env(CHILD, folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = start(&mut command, CHILD_MAX).unwrap();
    let lines = BufReader::new(child.stdout().unwrap()).lines();
    assert!({ lines.map_while(Result::ok) }.any(|line| line == "kept"));
    let open = engine.snapshots();
    assert_eq!(open.len(), 1);
    assert_eq!(open[0].reader.process, Some(child.id()));
    put(2);
    assert_eq!(engine.snapshots()[0].commit, open[0].commit);
    child.kill().unwrap();
    let _ = child.wait();
    assert!(engine.snapshots().is_empty());
}

/// Not a test: a visitor that waits to be killed.
#[test]
fn visiting_child() {
    let Ok(directory) = std::env::var(CHILD) else { return };
    let visitor = Visitor::open(directory).unwrap();
    assert!(visitor.is_kept());
    println!("\nkept");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

#[test]
fn a_visitor_outlives_its_owner_and_is_told_when_another_owner_writes() {
    let folder = shared_folder();
    let outlives = || {
        let mut first = Owner::of(folder.path(), 64 << 20);
        let (visitor, records) = visiting(folder.path(), all);
        first.child.kill().unwrap();
        let _ = first.child.wait();
        let round = round_of(&records);
        let again = all(&visitor);
        // Before the kill, that is.
        (!was_put_off(&again)).then(|| {
            assert_eq!(round_of(&again.unwrap()), round, "no process writes");
            (visitor, round)
        })
    };
    let (visitor, round) = wait_for(|| "a visitor that no owner ends".into(), outlives);
    let second = Owner::of(folder.path(), 64 << 20);
    let told = until_lost(&visitor, round);
    assert!(matches!(told, EngineError::Overtaken { .. }), "{told}");
    let (again, (is_kept, records)) = visiting(folder.path(), |again| Ok((again.is_kept(), all(again)?)));
    assert!(is_kept);
    round_of(&records);
    drop(again);
    second.end();
}

#[test]
fn four_visitors_are_kept_and_a_fifth_reads_as_long_as_nothing_is_written_over() {
    let folder = shared_folder();
    let owner = Owner::of(folder.path(), 64 << 20);
    let kept_visitors = || {
        let visitors: Vec<_> = (0..5).map(|_| Visitor::open(folder.path()).unwrap()).collect();
        let kept: Vec<_> = visitors.iter().map(Visitor::is_kept).collect();
        let read = { visitors[..4].iter() }.map(all).collect::<Result<Vec<_>, _>>();
        (!was_put_off(&read)).then(|| {
            assert_eq!(kept, [true, true, true, true, false]);
            let rounds: Vec<u64> = read.unwrap().iter().map(round_of).collect();
            assert!(rounds.is_sorted(), "{rounds:?}");
            visitors
        })
    };
    let visitors = wait_for(|| "visitors that the owner does not end".into(), kept_visitors);
    let told = all(&visitors[4]).map_or_else(|told| told, |records| until_lost(&visitors[4], round_of(&records)));
    assert!(matches!(told, EngineError::Overtaken { .. }), "{told}");
    owner.end();
}

#[test]
fn a_process_does_not_visit_its_own_store_and_does_not_compact_one_that_is_open() {
    let folder = shared_folder();
    let engine = options(64 << 20).open(folder.path()).unwrap();
    let refused = Visitor::open(folder.path()).unwrap_err();
    assert!(
        matches!(refused, EngineError::InUse { pid: Some(pid), .. } if pid == std::process::id()),
        "{refused}"
    );
    drop(engine);
    let owner = Owner::of(folder.path(), 64 << 20);
    let refused = transfer::compact(folder.path(), &mut |_| ()).unwrap_err();
    let pid = owner.child.id();
    assert!(
        matches!(&refused, TransferError::Engine(EngineError::InUse { pid: Some(holder), .. }) if *holder == pid),
        "{refused}"
    );
    owner.end();
}

/// LMDB's own number is the largest map that there ever was, and none is less than `quota_max`.
#[test]
fn the_quota_that_a_visitor_sees_is_the_owners() {
    let folder = shared_folder();
    let path = folder.path().join("store");
    let quota_of = |path: &Path| Visitor::open(path).unwrap().space().unwrap().quota;
    let options = |quota, quota_max| LmdbOptions {
        durability: Durability::Volatile,
        quota,
        quota_max,
        ..LmdbOptions::default()
    };
    drop(options(64 << 20, None).open(&path).unwrap());
    assert_eq!(quota_of(&path), Some(64 << 20));
    let engine = options(8 << 20, Some(32 << 20)).open(&path).unwrap();
    engine.grow_quota(16 << 20).unwrap();
    let mut transaction = engine.write().unwrap();
    transaction.put(Table::Data, b"door", b"open").unwrap();
    transaction.commit().unwrap();
    drop(engine);
    assert_eq!(quota_of(&path), Some(16 << 20));
    let copy = folder.path().join("copy");
    transfer::backup(&path, &copy, Share::ONE, &mut |_| ()).unwrap();
    assert_eq!(quota_of(&copy), Some(16 << 20));
}

#[test]
fn a_store_is_compacted_whole_and_takes_less() {
    let folder = shared_folder();
    Owner::of(folder.path(), 64 << 20).end();
    let before = Visitor::open(folder.path()).unwrap();
    let records = all(&before).unwrap();
    let (medium, _) = before.on_medium().unwrap();
    let commit = before.commit();
    before.verify(Verify::Full, |_| ()).unwrap();
    drop(before);
    assert!(last_check(folder.path()).is_some());
    let done = transfer::compact(folder.path(), &mut |_| ()).unwrap();
    assert_eq!(done.records, records.len() as u64);
    assert_eq!(last_check(folder.path()), None, "of another file");
    let after = Visitor::open(folder.path()).unwrap();
    assert_eq!(after.space().unwrap().quota, Some(64 << 20));
    assert!(after.on_medium().unwrap().0 < medium, "{medium} before commit {commit}");
    assert!(all(&after).unwrap() == records);
    drop(after);
    drop(options(64 << 20).open(folder.path()).unwrap());
    assert!(!folder.path().join("new").exists());
}

#[test]
fn an_export_is_imported_whole_and_none_that_was_cut_off_or_changed() {
    let (folder, to) = (shared_folder(), shared_folder());
    let engine = options(8 << 20).open(folder.path()).unwrap();
    let mut transaction = engine.write().unwrap();
    let mut choices = Choices::new(seed());
    for number in 0..40_u64 {
        let bytes: Vec<u8> = (0..choices.below(60)).map(|_| choices.next() as u8).collect();
        transaction
            .put(Table::Data, &[&number.to_be_bytes()[..], b" %\n"].concat(), &bytes)
            .unwrap();
    }
    transaction.put(Table::Data, b"large", &vec![b'x'; 9_000]).unwrap();
    transaction.put(Table::Temporal, b"sensor", &[9; 30]).unwrap();
    transaction.commit().unwrap();
    drop(engine);
    let mut text = Vec::new();
    let done = transfer::export(folder.path(), &mut text, &mut |_| ()).unwrap();
    assert_eq!(done.records, 42);
    let place = to.path().join("copy");
    let import = |text: &[u8]| transfer::import(&mut &*text, &place, &mut |_| ());
    assert_eq!(import(&text).unwrap(), done);
    let [before, after] = [folder.path(), &place].map(|store| Visitor::open(store).unwrap());
    assert!(all(&before).unwrap() == all(&after).unwrap());
    assert_eq!(after.records(Table::Temporal), 1);
    let taken = import(&text).unwrap_err();
    assert!(matches!(taken, TransferError::Taken { .. }), "{taken}");
    drop(after);
    let redb = to.path().join("redb");
    fs::create_dir(&redb).unwrap();
    fs::write(redb.join("data.redb"), "").unwrap();
    let within = "folder of a store";
    for (place, why) in [("copy/x", within), ("redb/x", within), ("none/x", "none")] {
        let place = to.path().join(place);
        let refused = transfer::import(&mut &*text, &place, &mut |_| ()).unwrap_err();
        assert!(
            matches!(refused, TransferError::Engine(_)) && refused.to_string().contains(why),
            "{refused}"
        );
        assert!(!place.exists());
    }
    fs::remove_dir_all(&place).unwrap();
    fs::remove_dir_all(&redb).unwrap();
    let refused = |text: &[u8]| {
        let error = import(text).unwrap_err();
        assert!(matches!(error, TransferError::Damaged { .. }), "{error}");
        assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0, "nothing is left: {error}");
    };
    let ends = (0..200).map(|_| choices.below(text.len() as u64) as usize);
    for end in ends.chain([0, 1, text.len() - 1]) {
        refused(&text[..end]);
    }
    for _ in 0..200 {
        let mut changed = text.clone();
        let at = choices.below(text.len() as u64) as usize;
        changed[at] ^= 1 << choices.below(8);
        refused(&changed);
    }
    refused(&[&text[..], b"x"].concat());
    // Whole lines that are gone.
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    refused(&[&lines[..4].concat(), &lines[5..].concat()[..]].concat());
}

/// The records of a store that another process writes, both ways, from which the round is told.
fn records_of(store: &Store<Visiting, LinuxOs>) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, StoreError> {
    let transaction = store.begin_read()?;
    let read = |record: Result<(Value, Value), StoreError>| record.map(|(key, value)| (key.to_vec(), value.to_vec()));
    let forth: Vec<_> = transaction.range::<&[u8]>(..)?.map(read).collect::<Result<_, _>>()?;
    let mut back: Vec<_> = transaction
        .range::<&[u8]>(..)?
        .rev()
        .map(read)
        .collect::<Result<_, _>>()?;
    back.reverse();
    assert!(forth == back, "records of two commits");
    Ok(forth.into_iter().collect())
}

#[test]
fn a_store_of_another_process_is_read_as_ones_own_while_the_owner_writes() {
    let folder = shared_folder();
    let owner = Owner::of(folder.path(), 64 << 20);
    let undisturbed = || "a snapshot that the owner does not end".into();
    let store = wait_for(undisturbed, || {
        let opened = of_engine(Visiting::store(folder.path(), []));
        (!was_put_off(&opened)).then(|| opened.unwrap())
    });
    let (mut last, mut seen) = (0, store.engine().commit().unwrap());
    for _ in 0..20 {
        wait_until("another commit", || store.engine().commit().unwrap() != seen);
        seen = store.engine().commit().unwrap();
        let records = wait_for(undisturbed, || {
            let found = of_engine(records_of(&store));
            (!was_put_off(&found)).then(|| found.unwrap())
        });
        let round = round_of(&records);
        assert!(round >= last, "{round} after {last}");
        last = round;
    }
    assert!(matches!(
        store.put(b"key", b"1"),
        Err(StoreError::Engine(EngineError::ReadOnly { .. }))
    ));
    owner.end();
}

/// Keys, tables with types, lives and ages, as the owner has them.
#[test]
fn tables_lives_and_temporal_objects_are_read_as_the_owner_reads_them() {
    let folder = shared_folder();
    let hour = Nanos::from_secs(3_600);
    let battery = || ObjectSpec::number("battery").period(hour);
    let owner = || {
        let origin = LinuxOs.clock_origin().map(|name| ClockOrigin::named(name.as_bytes()));
        let options = StoreOptions {
            clock_origin: origin.unwrap_or(ClockOrigin::UNKNOWN),
            ..[battery()].into()
        };
        Store::open(self::options(64 << 20).open(folder.path()).unwrap(), LinuxOs, options).unwrap()
    };
    drop(owner());
    // Opened before there is any life, and while no process owns the store.
    let store = Visiting::store(folder.path(), [battery()]).unwrap();
    let first = owner();
    first
        .update(|tx| {
            for number in 0..3_000u32 {
                tx.table("numbers")?
                    .typed::<u32, str>()?
                    .put(number, "x".repeat(number as usize % 90))?;
            }
            tx.table("numbersnear")?.put("a", "b")?;
            tx.put("plain", vec![7; 20_000])?;
            tx.put_for("due", "1", Nanos(1))?;
            tx.put_for("alive", "2", hour)
        })
        .unwrap();
    first.offer_next(SensorId(0), None, b"12.6").unwrap();
    first.flush().unwrap();
    drop(first);
    let seen = store.engine().commit().unwrap();
    store
        .view(|tx| {
            assert_eq!((tx.get("due")?, tx.get("alive")?.as_deref()), (None, Some(&b"2"[..])));
            assert_eq!(tx.get("plain")?.as_deref(), Some(&[7; 20_000][..]));
            let numbers = tx.table("numbers")?.typed::<u32, str>()?;
            assert_eq!(
                (numbers.len()?, numbers.first()?.unwrap().0, numbers.last()?.unwrap().0),
                (3_000, 0, 2_999)
            );
            let some = numbers.range(100..=102)?.rev().collect::<Result<Vec<_>, _>>()?;
            assert_eq!(
                some.iter()
                    .map(|(number, value)| (*number, value.len()))
                    .collect::<Vec<_>>(),
                [(102, 12), (101, 11), (100, 10)]
            );
            assert!(matches!(
                tx.table("numbers")?.typed::<u64, str>(),
                Err(StoreError::TableTypes { .. })
            ));
            let keys = tx.range::<&[u8]>(..)?.map(|record| record.map(|(key, _)| key.to_vec()));
            assert_eq!(
                keys.collect::<Result<Vec<_>, _>>()?,
                [&b"alive"[..], b"battery", b"plain"]
            );
            Ok(())
        })
        .unwrap();
    let reading = store.get_fresh(b"battery", hour).unwrap();
    match LinuxOs.clock_origin() {
        Some(_) => assert!(matches!(reading, Freshness::Fresh { .. }), "{reading:?}"),
        None => assert!(matches!(reading, Freshness::Stale { .. }), "{reading:?}"),
    }
    let second = owner();
    second.put(b"plain", b"new").unwrap();
    drop(second);
    assert_ne!(store.engine().commit().unwrap(), seen);
    assert_eq!(store.get(b"plain").unwrap().as_deref(), Some(&b"new"[..]));
    // This process may not visit the store that it has open.
    let own = owner();
    assert!(matches!(
        store.get(b"plain"),
        Err(StoreError::Engine(EngineError::InUse { .. }))
    ));
    drop(own);
    fs::remove_file(folder.path().join("data.mdb")).unwrap();
    assert!(matches!(store.engine().commit(), Err(EngineError::NoStore { .. })));
}
