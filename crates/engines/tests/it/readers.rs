//! Readers that are ended between two of their calls: no byte of a page that was used again is seen, the store does not
//! grow beside them, and each is told.

use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use punctual_engines::lmdb::LmdbOptions;
use punctual_engines::{Lmdb, Memory};
use punctual_os::Os;
use punctual_store::engine::{Cursor, Durability, EndedBecause, Engine, EngineError, Read, Reader, Table, Write};
use punctual_store::readers::{EndedReader, HELD_AFTER, HELD_MIN, LOOK_INTERVAL};
use punctual_store::{Deadline, Store, StoreError, StoreOptions};
use punctual_testing::{SetOnDrop, VirtualOs, wait_until};
use punctual_units::{Clock, Nanos};

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);
const RECORDS: u32 = 200;

fn open(directory: &Path) -> Lmdb {
    let options = LmdbOptions {
        durability: Durability::Volatile,
        quota: 256 << 20,
        readers_max: 8,
        ..LmdbOptions::default()
    };
    options.open(directory).unwrap()
}

/// Sets all records to `content`, in one commit.
fn write_all(engine: &Lmdb, content: u8) {
    let mut transaction = engine.write().unwrap();
    for number in 0..RECORDS {
        let len = if number % 20 == 0 { 9_000 } else { 300 };
        let value = vec![content; len];
        transaction.put(Table::Data, &number.to_be_bytes(), &value).unwrap();
    }
    transaction.commit().unwrap();
}

fn end_all(engine: &impl Engine) -> usize {
    let open = engine.snapshots();
    open.iter()
        .filter(|snapshot| engine.end(snapshot.id, Nanos(5), EndedBecause::Life))
        .count()
}

fn is_ended<T>(answer: Result<T, EngineError>) -> bool {
    matches!(
        answer,
        Err(EngineError::SnapshotEnded {
            age: Nanos(5),
            why: EndedBecause::Life
        })
    )
}

#[test]
fn what_was_read_stays_and_what_comes_next_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    write_all(&engine, 1);
    let snapshot = engine.snapshot().unwrap();
    let value = snapshot.get(Table::Data, &0u32.to_be_bytes()).unwrap().unwrap();
    let mut scan = snapshot.scan(Table::Data, ALL).unwrap();
    let first = scan.next().unwrap().unwrap();
    assert_eq!(end_all(&engine), 1);
    for content in 2..20 {
        write_all(&engine, content); // the pages of the snapshot are used again
    }
    assert_eq!((&*value, &*first.1), (&[1; 9_000][..], &[1; 9_000][..]));
    assert!(is_ended(snapshot.get(Table::Data, b"any")));
    assert!(is_ended(snapshot.scan(Table::Data, ALL).map(drop)));
    assert!(is_ended(scan.next().unwrap()));
    assert!(scan.next().is_none());
    // This thread may read on, beside the snapshot that is over.
    let next = engine.snapshot().unwrap();
    let value = next.get(Table::Data, &0u32.to_be_bytes()).unwrap().unwrap();
    assert_eq!(&*value, &[19; 9_000][..]);
    drop(scan);
    drop(snapshot);
    assert!(
        next.get(Table::Data, b"any").unwrap().is_none(),
        "the old one closes nothing of the new one"
    );
    drop(next);
    assert_eq!(engine.snapshots(), []);
}

/// Ends all snapshots from another thread, and writes until their pages are used again.
fn end_and_write(engine: &Lmdb) {
    thread::scope(|scope| scope.spawn(|| end_all(engine)).join().unwrap());
    for content in 2..20 {
        write_all(engine, content);
    }
}

#[test]
fn a_record_that_is_lent_stays_until_the_next_step() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    write_all(&engine, 1);
    let snapshot = engine.snapshot().unwrap();
    let mut cursor = snapshot.cursor(Table::Data, ALL, false).unwrap();
    let mut beside = snapshot.cursor(Table::Data, ALL, true).unwrap();
    assert!(cursor.step().unwrap() && beside.step().unwrap());
    end_and_write(&engine);
    assert_eq!(cursor.record().1, &[1; 9_000][..]);
    assert_eq!(beside.record().1, &[1; 300][..]);
    let got = snapshot.get(Table::Data, cursor.record().0).unwrap();
    assert_eq!(got.as_deref(), Some(&[1; 9_000][..]), "inside of the same call");
    assert!(cursor.step().unwrap(), "the other one still lends");
    drop(beside);
    assert!(is_ended(cursor.step()));
    assert!(!cursor.step().unwrap());
    assert_eq!(cursor.record(), (&[][..], &[][..]));
    assert!(is_ended(snapshot.get(Table::Data, b"any")));
}

#[test]
fn a_scan_that_begins_within_a_look_may_outlast_it() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    write_all(&engine, 1);
    let snapshot = engine.snapshot().unwrap();
    let begun = snapshot.get_with(Table::Data, &0u32.to_be_bytes(), |_| {
        let mut cursor = snapshot.cursor(Table::Data, ALL, false).unwrap();
        assert!(cursor.step().unwrap());
        cursor
    });
    let mut cursor = begun.unwrap().unwrap();
    end_and_write(&engine);
    assert_eq!(cursor.record().1, &[1; 9_000][..]);
    assert!(is_ended(cursor.step()));
}

#[test]
fn a_forgotten_scan_keeps_nothing_longer_than_its_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    write_all(&engine, 1);
    let snapshot = engine.snapshot().unwrap();
    let mut cursor = snapshot.cursor(Table::Data, ALL, false).unwrap();
    assert!(cursor.step().unwrap());
    std::mem::forget(cursor);
    drop(snapshot);
    assert_eq!(engine.snapshots(), []);
    write_all(&engine, 2);
    assert_eq!(
        engine.snapshot().unwrap().scan(Table::Data, ALL).unwrap().count(),
        RECORDS as usize
    );
}

#[test]
fn what_a_reader_looks_at_stays_until_it_has_looked() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    write_all(&engine, 1);
    let snapshot = engine.snapshot().unwrap();
    let key = 0u32.to_be_bytes();
    let end_and_write = || {
        thread::scope(|scope| scope.spawn(|| end_all(&engine)).join().unwrap());
        for content in 2..20 {
            write_all(&engine, content);
        }
    };
    let look = |shown: &[u8]| {
        end_and_write();
        assert_eq!(shown, &[1; 9_000][..], "kept from reuse until this returns");
        let again = snapshot.get_with(Table::Data, &key, <[u8]>::to_vec).unwrap();
        assert_eq!(
            again.as_deref(),
            Some(shown),
            "a call within a call sees the same commit"
        );
    };
    assert_eq!(snapshot.get_with(Table::Data, &key, look).unwrap(), Some(()));
    assert!(is_ended(snapshot.get_with(Table::Data, &key, |_| ())));
    assert_eq!(engine.snapshots(), []);
}

#[test]
fn a_look_that_panics_leaves_its_call() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    write_all(&engine, 1);
    let snapshot = engine.snapshot().unwrap();
    let look = || snapshot.get_with(Table::Data, &0u32.to_be_bytes(), |_| panic!("planted"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(look)).is_err());
    assert_eq!(end_all(&engine), 1, "no reader is inside of a call");
    assert!(is_ended(snapshot.get(Table::Data, b"any")));
}

#[test]
fn pages_are_used_again_as_soon_as_a_snapshot_is_ended() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    write_all(&engine, 0);
    let _forgotten = engine.snapshot().unwrap();
    for content in 1..10 {
        write_all(&engine, content);
    }
    let kept = engine.space().unwrap();
    let commit = engine.snapshots()[0].commit;
    assert!(kept.held_by(commit) > kept.data, "{kept:?}");
    assert_eq!(end_all(&engine), 1);
    for content in 10..60 {
        write_all(&engine, content);
    }
    let after = engine.space().unwrap();
    assert!(after.taken <= kept.taken + kept.data, "grew from {kept:?} to {after:?}");
}

/// A thread has no reader slot of LMDB's: what it leaves behind is as it was, and no thread after it gets its slot.
#[test]
fn a_snapshot_forgotten_by_a_thread_that_ended_harms_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    write_all(&engine, 1);
    thread::scope(|scope| {
        let forgets = scope.spawn(|| std::mem::forget(engine.snapshot().unwrap()));
        forgets.join().unwrap();
        let reads = scope.spawn(|| {
            // Places of threads have no order: the other snapshot may come first in the list.
            let forgotten = engine.snapshots()[0].id;
            let snapshot = engine.snapshot().unwrap();
            assert_eq!(engine.snapshots().len(), 2);
            assert!(engine.end(forgotten, Nanos(5), EndedBecause::Life));
            for content in 2..20 {
                write_all(&engine, content);
            }
            let value = snapshot.get(Table::Data, &7u32.to_be_bytes()).unwrap().unwrap();
            assert_eq!(&*value, &[1; 300][..]);
        });
        reads.join().unwrap();
    });
    // And a store is closed with forgotten snapshots in it.
    std::mem::forget(engine.snapshot().unwrap());
    std::mem::forget(engine.snapshot().unwrap());
    assert_eq!(end_all(&engine), 2);
    std::mem::forget(engine.snapshot().unwrap());
}

/// More than there are seats, were those of forgotten snapshots lost.
#[test]
fn seats_of_ended_snapshots_are_taken_again() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    write_all(&engine, 1);
    for _ in 0..40 {
        std::mem::forget(engine.snapshot().unwrap());
        assert_eq!(end_all(&engine), 1);
    }
}

/// Snapshots of several commits in one thread, dropped in any order; others move to another thread.
#[test]
fn a_thread_has_several_snapshots_and_may_pass_them_on() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let mut held = Vec::new();
    for content in 0..8 {
        write_all(&engine, content);
        held.push((content, engine.snapshot().unwrap()));
    }
    let full = engine.snapshot().map(drop);
    assert!(matches!(full, Err(EngineError::ReadersFull { max: 8, .. })), "{full:?}");
    assert!(engine.space().is_ok(), "room can be looked at all the same");
    assert_eq!(engine.snapshots().len(), 8);
    let shows = |(content, snapshot): &(u8, <Lmdb as Engine>::Snapshot<'_>)| {
        let value = snapshot.get(Table::Data, &7u32.to_be_bytes()).unwrap().unwrap();
        assert_eq!(&*value, &[*content; 300][..]);
    };
    drop(held.swap_remove(3));
    write_all(&engine, 100);
    held.iter().for_each(shows);
    let (kept, passed_on) = (held.split_off(4), held);
    let store = &engine;
    thread::scope(|scope| {
        scope.spawn(move || {
            passed_on.iter().for_each(shows);
            write_all(store, 101);
            drop(passed_on);
            store.snapshot().unwrap();
        });
    });
    kept.iter().for_each(shows);
}

/// Readers, a writer and a thread that ends readers at random moments: all that a snapshot shows is of one commit.
#[test]
fn readers_that_are_ended_at_any_moment_see_one_commit_or_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    write_all(&engine, 0);
    let over = AtomicBool::new(false);
    let (whole, ended) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    match contents(&engine) {
                        Ok(contents) => {
                            assert!(contents.iter().all(|content| *content == contents[0]), "{contents:?}");
                            whole.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => {
                            assert!(is_ended::<()>(Err(error)));
                            ended.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                end_all(&engine);
                thread::yield_now();
            }
        });
        let _over = SetOnDrop(&over);
        // All contents, and on until a reader has been ended: a machine may let none read meanwhile.
        wait_until("a reader is ended", || {
            (0..=255).for_each(|content| write_all(&engine, content));
            ended.load(Ordering::Relaxed) > 0
        });
    });
    println!("{whole:?} whole, {ended:?} ended");
}

/// The first byte of each value; each value is checked to be of one byte.
fn contents(engine: &Lmdb) -> Result<Vec<u8>, EngineError> {
    let snapshot = engine.snapshot()?;
    let mut contents = Vec::new();
    for record in snapshot.scan(Table::Data, ALL)? {
        let (key, value) = record?;
        assert!(value.iter().all(|byte| *byte == value[0]), "a value of several commits");
        contents.push(value[0]);
        if key[3] % 50 == 0 {
            let again = snapshot.get(Table::Data, &key)?.expect("the record is there");
            assert_eq!(again, value);
        }
    }
    assert_eq!(contents.len(), RECORDS as usize);
    Ok(contents)
}

/// A store in virtual time, and what its alarm was told.
fn watched<E: Engine>(
    engine: E,
    options: StoreOptions,
) -> (Store<E, VirtualOs>, VirtualOs, Arc<Mutex<Vec<EndedReader>>>) {
    let os = VirtualOs::new(1);
    let store = Store::open(engine, os.clone(), options).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let alarm = Arc::clone(&told);
    store.set_reader_alarm(move |ended| alarm.lock().unwrap().push(ended));
    (store, os, told)
}

fn ended_because<T>(answer: Result<T, StoreError>) -> Option<EndedBecause> {
    match answer {
        Err(StoreError::Engine(EngineError::SnapshotEnded { why, .. })) => Some(why),
        _ => None,
    }
}

fn a_writer_ends_old_readers<E: Engine>(engine: E) {
    let life = Nanos::from_millis(500);
    let options = StoreOptions {
        reader_life_max: Some(life),
        ..StoreOptions::default()
    };
    let (store, os, told) = watched(engine, options);
    store.put(b"key", b"1").unwrap();
    let forgotten = store.read_transaction(Deadline::NONE).unwrap();
    assert_eq!(forgotten.get(b"key").unwrap().as_deref(), Some(&b"1"[..]));
    os.sleep(life);
    store.put(b"key", b"2").unwrap();
    assert_eq!(
        forgotten.get(b"key").unwrap().as_deref(),
        Some(&b"1"[..]),
        "not before its time"
    );
    assert_eq!(
        store
            .readers()
            .unwrap()
            .iter()
            .filter(|reader| reader.age == life)
            .count(),
        1
    );
    os.sleep(LOOK_INTERVAL);
    store.put(b"key", b"3").unwrap();
    assert_eq!(ended_because(forgotten.get(b"key")), Some(EndedBecause::Life));
    assert_eq!(
        ended_because(forgotten.scan(ALL, |_, _| ControlFlow::Continue(()))),
        Some(EndedBecause::Life)
    );
    let ended = told.lock().unwrap().clone();
    assert_eq!(ended.len(), 1);
    assert_eq!(
        (ended[0].why, ended[0].thread),
        (EndedBecause::Life, Some(os.this_thread()))
    );
    assert_eq!(store.readers_ended().count, 1);
    assert_eq!(store.readers_ended().last, Some(ended[0]));
    assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"3"[..]));
    let told = forgotten.get(b"key").unwrap_err().to_string();
    assert!(
        told.contains("reader_life_max") && told.contains("begin another transaction"),
        "{told}"
    );
}

#[test]
fn a_writer_ends_old_readers_of_either_engine() {
    let directory = tempfile::tempdir().unwrap();
    a_writer_ends_old_readers(open(directory.path()));
    a_writer_ends_old_readers(Memory::default());
}

/// The snapshot is asked for while a scan lends a record of it, and given up with the next step; the end counts once.
fn a_scan_that_lends_gives_its_snapshot_up<E: Engine>(engine: E) {
    let life = Nanos::from_millis(500);
    let options = StoreOptions {
        reader_life_max: Some(life),
        ..StoreOptions::default()
    };
    let (store, os, told) = watched(engine, options);
    ["a", "b", "c", "d"].iter().for_each(|key| store.put(key, "1").unwrap());
    let reader = store.read_transaction(Deadline::NONE).unwrap();
    let mut records = reader.records(ALL).unwrap();
    assert_eq!(records.lend().unwrap().unwrap().0, b"a");
    let lent = records.lend_back().unwrap().unwrap();
    os.sleep(life + LOOK_INTERVAL);
    for rewritten in ["2", "3", "4"] {
        store.put("d", rewritten).unwrap();
        os.sleep(LOOK_INTERVAL);
        assert_eq!(lent, (&b"d"[..], &b"1"[..]));
        assert_eq!((store.engine().snapshots().len(), told.lock().unwrap().len()), (1, 1));
    }
    assert_eq!(ended_because(records.lend_back()), Some(EndedBecause::Life));
    assert_eq!(store.engine().snapshots(), []);
    drop(records);
    drop(reader);

    let reader = store.read_transaction(Deadline::NONE).unwrap();
    let mut records = reader.records(ALL).unwrap();
    assert_eq!(records.lend().unwrap().unwrap().0, b"a");
    records.release();
    assert_eq!(records.lend().unwrap().unwrap().0, b"b");
    records.release();
    os.sleep(life + LOOK_INTERVAL);
    store.put("d", "5").unwrap();
    assert_eq!(store.engine().snapshots(), [], "no record was lent");
}

#[test]
fn a_scan_that_lends_gives_its_snapshot_up_at_the_next_step_from_either_end() {
    let directory = tempfile::tempdir().unwrap();
    a_scan_that_lends_gives_its_snapshot_up(open(directory.path()));
    #[cfg(feature = "redb")]
    {
        let directory = tempfile::tempdir().unwrap();
        let options = punctual_engines::redb::RedbOptions {
            durability: Durability::Volatile,
            ..Default::default()
        };
        a_scan_that_lends_gives_its_snapshot_up(options.open(directory.path()).unwrap());
    }
}

#[test]
fn a_reader_past_its_firm_deadline_keeps_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        reader_life_max: None,
        ..StoreOptions::default()
    };
    let (store, os, told) = watched(open(directory.path()), options);
    store.put(b"key", b"1").unwrap();
    let until = os.now() + Nanos::from_millis(30);
    let late = store.read_transaction(Deadline::firm(until)).unwrap();
    late.get(b"key").unwrap();
    os.sleep(Nanos::from_millis(40));
    store.put(b"key", b"2").unwrap();
    assert_eq!(store.engine().snapshots(), []);
    assert_eq!(told.lock().unwrap()[0].why, EndedBecause::Deadline);
    assert!(matches!(late.get(b"key"), Err(StoreError::DeadlinePassed { .. })));
}

#[test]
fn a_young_reader_that_keeps_more_than_the_data_is_ended_and_an_idle_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let (store, os, told) = watched(open(directory.path()), StoreOptions::default());
    let value = vec![3; 1 << 20];
    store.put(b"large", &value).unwrap();
    let reader = store.read_transaction(Deadline::NONE).unwrap();
    reader.get(b"large").unwrap();
    os.sleep(HELD_AFTER * 3);
    store.put(b"small", b"1").unwrap();
    assert!(reader.get(b"large").is_ok(), "old enough, and keeps little");
    let rounds = 2 * HELD_MIN / value.len() as u64;
    for _ in 0..rounds {
        os.sleep(LOOK_INTERVAL);
        store.put(b"large", &value).unwrap();
    }
    assert_eq!(ended_because(reader.get(b"large")), Some(EndedBecause::Held));
    assert_eq!(told.lock().unwrap().len(), 1);
    let space = store.engine().space().unwrap();
    assert!(space.taken < 2 * HELD_MIN, "{space:?}");
}

/// What an alarm may do: it is called before the permit is asked for.
#[test]
fn an_alarm_may_read_and_write_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let os = VirtualOs::new(1);
    let store = Arc::new(Store::open(engine, os.clone(), StoreOptions::default()).unwrap());
    let (tell, told) = mpsc::channel();
    let own = Arc::downgrade(&store);
    store.set_reader_alarm(move |ended| {
        let store = own.upgrade().expect("a writer has it");
        store.put(b"alarm", ended.to_string().as_bytes()).unwrap();
        tell.send(()).unwrap();
    });
    let reader = store.read_transaction(Deadline::NONE).unwrap();
    reader.get(b"key").unwrap();
    os.sleep(Nanos::from_secs(11));
    store.put(b"key", b"1").unwrap();
    told.try_recv().expect("the alarm was called");
    drop(reader);
    let alarm = store.get(b"alarm").unwrap().expect("written");
    assert!(String::from_utf8(alarm).unwrap().contains("older than reader_life_max"));
    assert!(store.engine().snapshot_for(Reader::UNKNOWN).is_ok());
}

#[test]
fn an_alarm_that_panics_stops_no_writer_and_is_reported_once() {
    let directory = tempfile::tempdir().unwrap();
    let os = VirtualOs::new(1);
    let store = Store::open(open(directory.path()), os.clone(), StoreOptions::default()).unwrap();
    store.set_reader_alarm(|_| panic!("planted"));
    for round in 0..3u8 {
        let reader = store.read_transaction(Deadline::NONE).unwrap();
        reader.get(b"key").unwrap();
        os.sleep(Nanos::from_secs(11));
        store.put(b"key", [round]).unwrap();
        assert_eq!(ended_because(reader.get(b"key")), Some(EndedBecause::Life));
    }
    assert_eq!(store.readers_ended().count, 3);
    let reported = store.look_after_readers().unwrap_err();
    assert!(
        matches!(&reported, StoreError::AlarmPanicked { message } if message == "planted"),
        "{reported}"
    );
    assert_eq!(store.look_after_readers().unwrap(), 0);
    assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&[2][..]));
}
