//! Stores that cannot be opened or written: each says what is wrong and where, and loses nothing.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use punctual_engines::Lmdb;
use punctual_engines::lmdb::transfer::{self, TransferError};
use punctual_engines::lmdb::{FORMAT, LmdbOptions, Verify, VerifyProgress};
use punctual_store::engine::{Durability, Engine, EngineError, Read, Table, Write};
use punctual_store::temporal::ObjectSpec;
use punctual_store::{Store, StoreError, StoreOptions, UpdateMode};
use punctual_testing::{VirtualOs, wait_until};
use punctual_units::{Nanos, SensorId, Seq, Share, Time};

const OPTIONS: LmdbOptions = LmdbOptions {
    durability: Durability::Volatile,
    quota: 64 << 20,
    readers_max: 8,
    checksums: true,
    quota_max: None,
    verify: Verify::Full,
};

fn open(directory: &Path) -> Result<Lmdb, EngineError> {
    OPTIONS.open(directory)
}

fn put(engine: &Lmdb, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
    let mut transaction = engine.write()?;
    transaction.put(Table::Data, key, value)?;
    transaction.commit()
}

/// A store with trees of some depth, large values, and pages to reuse.
fn write_some(directory: &Path) {
    let engine = open(directory).unwrap();
    for round in 0..4u32 {
        let mut transaction = engine.write().unwrap();
        for number in 0..600u32 {
            let len = if number % 97 == 0 { 9_000 } else { 60 };
            transaction
                .put(Table::Data, &number.to_be_bytes(), &vec![round as u8; len])
                .unwrap();
            transaction
                .put(Table::Temporal, &[number as u8; 300], b"value")
                .unwrap();
        }
        for number in (round..600).step_by(5) {
            transaction.delete(Table::Data, &number.to_be_bytes()).unwrap();
        }
        transaction.commit().unwrap();
    }
}

/// Reads everything and writes something: whatever LMDB would do to a damaged file, it does now.
fn exercise(engine: &Lmdb) -> Result<usize, EngineError> {
    let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    let mut bytes = 0;
    {
        let snapshot = engine.snapshot()?;
        for table in [Table::Data, Table::Temporal] {
            for record in snapshot.scan(table, all)? {
                let (key, value) = record?;
                bytes += value.iter().map(|byte| usize::from(*byte)).sum::<usize>();
                snapshot.get(table, &key)?;
            }
        }
    }
    for number in 0..40u32 {
        put(engine, &(number * 13).to_be_bytes(), &vec![9; 5_000])?;
    }
    Ok(bytes)
}

#[test]
fn a_second_instance_is_refused_and_the_error_names_the_holder() {
    let directory = punctual_testing::shared_folder();
    let first = open(directory.path()).unwrap();
    let error = open(directory.path()).map(drop).unwrap_err();
    assert!(
        matches!(error, EngineError::InUse { pid: Some(pid), .. } if pid == std::process::id()),
        "{error}"
    );
    assert!(
        error.to_string().contains(&directory.path().display().to_string()),
        "{error}"
    );
    drop(first);
    open(directory.path()).unwrap();
}

#[test]
fn a_store_of_another_version_is_refused_and_left_alone() {
    let directory = punctual_testing::shared_folder();
    put(&open(directory.path()).unwrap(), b"key", b"value").unwrap();
    let data = directory.path().join("data.mdb");
    let own = fs::read(&data).unwrap();
    set_format(directory.path(), &(FORMAT + 41).to_le_bytes());
    let before = fs::read(directory.path().join("data.mdb")).unwrap();
    let error = open(directory.path()).map(drop).unwrap_err();
    let expected = (FORMAT + 41, FORMAT);
    assert!(
        matches!(error, EngineError::Version { found, expected: own, .. } if (found, own) == expected),
        "{error}"
    );
    assert_eq!(fs::read(directory.path().join("data.mdb")).unwrap(), before);
    fs::write(&data, own).unwrap();
    assert_eq!(
        open(directory.path())
            .unwrap()
            .snapshot()
            .unwrap()
            .get(Table::Data, b"key")
            .unwrap()
            .as_deref(),
        Some(&b"value"[..])
    );
}

/// Writes the format as another version of this crate would.
fn set_format(directory: &Path, format: &[u8]) {
    use heed::types::Bytes;
    let mut options = heed::EnvOpenOptions::new();
    options.max_dbs(2).map_size(OPTIONS.quota);
    // SAFETY: no other process has the store open.
    let env = unsafe { options.open(directory) }.unwrap();
    let transaction = env.write_txn().unwrap();
    env.create_databases_and_commit(transaction, |opener, transaction| {
        let main = opener.create_database::<Bytes, Bytes>(transaction, None)?;
        main.put(transaction, b"format", format)?;
        Ok::<_, heed::Error>(heed::CommitOrAbort::<_, std::convert::Infallible>::Commit(main))
    })
    .unwrap();
}

#[test]
fn a_file_that_is_no_store_or_of_another_lmdb_is_refused() {
    let directory = punctual_testing::shared_folder();
    let path = directory.path().join("data.mdb");
    for content in [&b"x"[..], &[0; 10_000], b"SQLite format 3"] {
        fs::write(&path, content).unwrap();
        let error = open(directory.path()).map(drop).unwrap_err();
        assert!(matches!(error, EngineError::Corrupt { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), content, "the file was changed");
    }
    fs::remove_file(&path).unwrap();
    write_some(directory.path());
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&2u32.to_ne_bytes(), 20).unwrap(); // `mm_version` of the first meta page
    let error = open(directory.path()).map(drop).unwrap_err();
    assert!(matches!(error, EngineError::Version { found: 2, .. }), "{error}");
}

#[test]
fn how_much_is_verified_is_chosen_and_how_far_it_is_is_told() {
    let directory = tempfile::tempdir().unwrap();
    write_some(directory.path());
    let path = directory.path().join("data.mdb");
    let len = fs::metadata(&path).unwrap().len();
    let told = |verify| {
        let (mut steps, mut last) = (0, None);
        let options = LmdbOptions { verify, ..OPTIONS };
        let opened = options.open_telling(directory.path(), |progress: VerifyProgress| {
            steps += 1;
            last = Some(progress);
        });
        opened.map(|engine| {
            exercise(&engine).unwrap();
            (steps, last)
        })
    };
    for verify in [Verify::Structure, Verify::Full] {
        let (steps, last) = told(verify).unwrap();
        let last = last.expect("told at least once");
        assert!(
            last.read == last.all && last.all >= len,
            "{verify:?}: {steps} steps, {last:?}"
        );
    }
    assert_eq!(told(Verify::None).unwrap(), (0, None));
    // A file that was cut off is refused all the same: a missing page would end the program.
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    for verify in [Verify::None, Verify::Structure, Verify::Full] {
        assert!(matches!(told(verify), Err(EngineError::Corrupt { .. })), "{verify:?}");
    }
    // A value that was changed: found at open, or when it is read.
    let mut changed = bytes.clone();
    let at = changed
        .windows(50)
        .rposition(|window| window.iter().all(|byte| *byte == 3))
        .expect("a value");
    changed[at + 20] ^= 1;
    fs::write(&path, &changed).unwrap();
    assert!(matches!(told(Verify::Full), Err(EngineError::Corrupt { .. })));
    let engine = LmdbOptions {
        verify: Verify::Structure,
        ..OPTIONS
    }
    .open(directory.path());
    let found = engine.and_then(|engine| exercise(&engine));
    assert!(matches!(found, Ok(_) | Err(EngineError::Corrupt { .. })), "{found:?}");
}

#[test]
fn a_truncated_store_is_refused_wherever_it_is_cut() {
    let whole = punctual_testing::shared_folder();
    write_some(whole.path());
    let bytes = fs::read(whole.path().join("data.mdb")).unwrap();
    let cut = punctual_testing::shared_folder();
    let mut refused = 0;
    for len in (1..bytes.len()).step_by(4_096 * 3 + 100) {
        fs::write(cut.path().join("data.mdb"), &bytes[..len]).unwrap();
        match open(cut.path()) {
            Err(EngineError::Corrupt { .. }) => refused += 1,
            Err(other) => panic!("cut to {len} bytes: {other}"),
            // Only free pages were cut off.
            Ok(engine) => drop(exercise(&engine).unwrap()),
        }
    }
    assert!(refused > 10, "{refused} refused");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Opened or refused, never a crash: bytes anywhere in the file are overwritten.
    #[test]
    fn a_damaged_store_never_ends_the_program(
        damages in vec((any::<prop::sample::Index>(), vec(any::<u8>(), 1..80)), 1..6), headers_only: bool,
    ) {
        let directory = punctual_testing::shared_folder();
        write_some(directory.path());
        let path = directory.path().join("data.mdb");
        let mut bytes = fs::read(&path).unwrap();
        for (place, garbage) in &damages {
            // Page headers and node tables are where the structure is: hit them more often than chance would.
            let at = if headers_only { place.index(bytes.len() / 4_096) * 4_096 } else { place.index(bytes.len()) };
            let len = garbage.len().min(bytes.len() - at);
            bytes[at..at + len].copy_from_slice(&garbage[..len]);
        }
        fs::write(&path, &bytes).unwrap();
        match open(directory.path()) {
            Err(EngineError::Corrupt { path, .. } | EngineError::Version { path, .. }) => {
                prop_assert!(path.starts_with(directory.path()));
            }
            Err(other) => prop_assert!(false, "{}", other),
            // The damage was in a value, a key, or a page out of use.
            Ok(engine) => drop(exercise(&engine)),
        }
    }

    /// The check refuses no intact store, whatever its history left in the file.
    #[test]
    fn an_intact_store_always_opens(
        transactions in vec((vec((any::<u8>(), 0usize..30_000, any::<bool>()), 1..20), any::<bool>()), 1..12),
    ) {
        let directory = punctual_testing::shared_folder();
        let mut model = std::collections::BTreeMap::new();
        for (changes, commits) in transactions {
            let engine = open(directory.path()).unwrap();
            let mut transaction = engine.write().unwrap();
            let mut changed = model.clone();
            for (key, len, deletes) in changes {
                transaction.put(Table::Data, &[key], &vec![key; len]).unwrap();
                changed.insert(key, len);
                if deletes {
                    transaction.delete(Table::Data, &[key]).unwrap();
                    changed.remove(&key);
                }
            }
            if commits {
                transaction.commit().unwrap();
                model = changed;
            }
        }
        let engine = open(directory.path()).unwrap();
        let snapshot = engine.snapshot().unwrap();
        for key in 0..=u8::MAX {
            let len = snapshot.get(Table::Data, &[key]).unwrap().map(|value| value.len());
            prop_assert_eq!(len, model.get(&key).copied());
        }
    }
}

#[test]
fn a_full_map_undoes_the_transaction_and_keeps_the_rest() {
    let directory = punctual_testing::shared_folder();
    let small = LmdbOptions {
        quota: 1 << 20,
        ..OPTIONS
    };
    let engine = small.open(directory.path()).unwrap();
    let acknowledged = fill(&engine, |error| {
        matches!(
            error,
            EngineError::QuotaFull {
                quota: 0x10_0000,
                holder: None,
                ..
            }
        )
    });
    drop(engine);
    // The remedy that the message names.
    let engine = OPTIONS.open(directory.path()).unwrap();
    put(&engine, b"more", &[0; 4_000]).unwrap();
    assert_holds(&engine, acknowledged);
}

/// Puts records until one is refused; how many were acknowledged. They are all there, and no other.
fn fill(engine: &Lmdb, is_expected: impl Fn(&EngineError) -> bool) -> u32 {
    for number in 0..100_000u32 {
        if let Err(error) = put(engine, &number.to_be_bytes(), &[number as u8; 3_000]) {
            assert!(is_expected(&error), "{error:?}");
            assert_holds(engine, number);
            assert_eq!(
                engine
                    .snapshot()
                    .unwrap()
                    .get(Table::Data, &number.to_be_bytes())
                    .unwrap(),
                None
            );
            return number;
        }
    }
    panic!("never full");
}

fn assert_holds(engine: &Lmdb, records: u32) {
    let snapshot = engine.snapshot().unwrap();
    for number in 0..records {
        assert_eq!(
            snapshot.get(Table::Data, &number.to_be_bytes()).unwrap().as_deref(),
            Some(&[number as u8; 3_000][..])
        );
    }
}

#[test]
fn settings_that_cannot_work_are_named() {
    let directory = punctual_testing::shared_folder();
    for (options, name) in [
        (
            LmdbOptions {
                readers_max: 0,
                ..OPTIONS
            },
            "readers_max",
        ),
        (LmdbOptions { quota: 0, ..OPTIONS }, "quota"),
        (
            LmdbOptions {
                quota: usize::MAX,
                ..OPTIONS
            },
            "quota",
        ),
    ] {
        let error = options.open(directory.path()).map(drop).unwrap_err();
        assert!(
            matches!(error, EngineError::Setting { setting, .. } if setting == name),
            "{error}"
        );
    }
    let file = directory.path().join("file");
    fs::write(&file, b"").unwrap();
    let error = open(&file).map(drop).unwrap_err();
    assert!(error.to_string().starts_with(&file.display().to_string()), "{error}");
}

#[test]
fn a_refused_protection_of_the_map_is_told_and_the_store_works() {
    let directory = punctual_testing::shared_folder();
    write_some(directory.path());
    let engine = open(directory.path()).unwrap();
    let protection = engine.protection();
    println!("{protection:?}");
    if let Ok(bytes) = protection.prefaulted {
        assert!(bytes > 0 && bytes <= OPTIONS.quota, "{bytes}");
    }
    if let Ok(bytes) = protection.locked {
        assert_eq!(bytes, OPTIONS.quota);
    }
    exercise(&engine).unwrap();
}

#[test]
fn more_readers_than_slots_are_refused() {
    let directory = punctual_testing::shared_folder();
    let engine = LmdbOptions {
        readers_max: 2,
        ..OPTIONS
    }
    .open(directory.path())
    .unwrap();
    let (enough, turn) = (std::sync::Barrier::new(3), std::sync::Mutex::new(()));
    let refused = std::thread::scope(|scope| {
        let read = || {
            let snapshot = {
                let _one_by_one = turn.lock().unwrap();
                engine.snapshot()
            };
            enough.wait();
            matches!(snapshot, Err(EngineError::ReadersFull { max: 2, .. }))
        };
        let threads = [scope.spawn(read), scope.spawn(read), scope.spawn(read)];
        threads
            .map(|thread| usize::from(thread.join().unwrap()))
            .iter()
            .sum::<usize>()
    });
    assert!(refused >= 1, "{refused} refused");
}

/// Runs `test` in a mount namespace of its own on a small file system in memory; false where that is not permitted.
pub fn on_small_disk(bytes: usize, test: impl FnOnce(&Path) + Send) -> bool {
    let directory = punctual_testing::shared_folder();
    let path = directory.path();
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                let mounted = unshare() && mount(path, 0, &format!("size={bytes}"));
                if mounted {
                    test(path);
                }
                mounted // the namespace, and all that is mounted in it, ends with the thread
            })
            .join()
            .unwrap()
    })
}

/// Gives this thread mounts of its own.
fn unshare() -> bool {
    // SAFETY: both calls change the view of this thread on the file system, nothing in memory.
    unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                c"none".as_ptr(),
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) == 0
    }
}

fn mount(path: &Path, flags: libc::c_ulong, data: &str) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    let data = std::ffi::CString::new(data).unwrap();
    // SAFETY: all strings end in NUL and outlive the call.
    let answer = unsafe {
        libc::mount(
            c"tmpfs".as_ptr(),
            path.as_ptr(),
            c"tmpfs".as_ptr(),
            flags,
            data.as_ptr().cast(),
        )
    };
    answer == 0
}

fn skipped() {
    eprintln!("skipped: mounting a file system needs CAP_SYS_ADMIN");
}

#[test]
fn a_full_disk_undoes_the_transaction_and_keeps_the_rest() {
    let ran = on_small_disk(4 << 20, |disk| {
        let engine = open(disk).unwrap();
        let acknowledged = fill(&engine, |error| matches!(error, EngineError::DiskFull { .. }));
        // New readers work, too: their slots have their room already.
        std::thread::scope(|scope| {
            let readers = || scope.spawn(|| assert_holds(&engine, acknowledged));
            let readers: Vec<_> = (1..OPTIONS.readers_max).map(|_| readers()).collect();
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
        drop(engine);
        let engine = open(disk).expect("a full disk can be opened");
        assert_holds(&engine, acknowledged);
    });
    if !ran {
        skipped();
    }
}

/// No page is free for the table of readers, which LMDB maps: a store that touches it is ended by SIGBUS.
#[test]
fn a_new_store_and_a_backup_on_a_full_disk_are_refused() {
    let source = punctual_testing::shared_folder();
    write_some(source.path());
    for free_pages in 0..24 {
        let ran = on_small_disk(2 << 20, |disk| {
            let fill = disk.join("fill");
            fs::write(&fill, vec![1; 4 << 20]).unwrap_err();
            let len = fs::metadata(&fill).unwrap().len();
            let shorter = fs::OpenOptions::new().write(true).open(&fill).unwrap();
            shorter.set_len(len - 4_096 * free_pages).unwrap();
            match open(&disk.join("new")).map(drop) {
                Ok(()) | Err(EngineError::DiskFull { .. }) => {}
                other => panic!("{free_pages} free pages: {other:?}"),
            }
            let copied = transfer::backup(source.path(), &disk.join("copy"), Share::ONE, &mut |_| ());
            match copied {
                Ok(_) | Err(TransferError::Engine(EngineError::DiskFull { .. })) => {}
                other => panic!("{free_pages} free pages: {other:?}"),
            }
        });
        if !ran {
            return skipped();
        }
    }
}

#[test]
fn a_store_whose_data_is_gone_is_no_new_store() {
    let folder = punctual_testing::shared_folder();
    write_some(folder.path());
    let data = folder.path().join("data.mdb");
    let lost = || matches!(open(folder.path()), Err(EngineError::DataMissing { .. }));
    let kept = fs::read(&data).unwrap();
    fs::write(&data, b"").unwrap();
    assert!(lost());
    fs::remove_file(&data).unwrap();
    assert!(lost() && !data.exists());
    fs::write(&data, &kept).unwrap();
    exercise(&open(folder.path()).unwrap()).unwrap();
    // What the message asks for:
    fs::remove_file(&data).unwrap();
    fs::remove_file(folder.path().join("lock.mdb")).unwrap();
    assert_eq!(exercise(&open(folder.path()).unwrap()).unwrap(), 0);
}

#[test]
fn an_update_that_meets_a_full_disk_waits_and_is_not_lost() {
    let ran = on_small_disk(4 << 20, |disk| {
        let engine = open(disk).unwrap();
        let ballast = disk.join("ballast");
        let spec = ObjectSpec {
            key: b"sensor".into(),
            avi: Nanos(1_000),
            period: Nanos(500),
            max_len: 8_000,
            history: 1,
        };
        let options = StoreOptions {
            objects: vec![spec],
            update_mode: UpdateMode::Transaction,
            ..StoreOptions::default()
        };
        let store = Store::open(engine, VirtualOs::new(0), options).unwrap();
        store.offer(SensorId(0), Seq(1), Time(0), &[1; 8_000]).unwrap();
        while fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&ballast)
            .and_then(|mut file| std::io::Write::write_all(&mut file, &[0; 4_096]))
            .is_ok()
        {}
        let error = store.install_pending(1).unwrap_err();
        assert!(
            matches!(error, StoreError::Engine(EngineError::DiskFull { .. })),
            "{error:?}"
        );
        assert_eq!(
            store.get(b"sensor").unwrap(),
            None,
            "and reading, which helps, does not fail"
        );
        assert_eq!(store.pending(), 1);
        assert!(store.reconcile().balances());
        // Not removed: a child of another test may have it open for a moment, and keep its blocks.
        fs::File::options().write(true).truncate(true).open(&ballast).unwrap();
        assert_eq!(store.install_pending(8).unwrap(), 1);
        assert_eq!(store.get(b"sensor").unwrap().as_deref(), Some(&[1; 8_000][..]));
        assert!(store.reconcile().balances());
    });
    if !ran {
        skipped();
    }
}

#[test]
fn a_read_only_store_is_refused_with_the_remedy() {
    let ran = on_small_disk(4 << 20, |disk| {
        put(&open(disk).unwrap(), b"key", b"value").unwrap();
        // A child that another test has just forked keeps the store's files open until it begins its program.
        wait_until("remounted read-only", || {
            mount(disk, libc::MS_REMOUNT | libc::MS_RDONLY, "")
        });
        let error = open(disk).map(drop).unwrap_err();
        assert!(matches!(error, EngineError::ReadOnly { .. }), "{error:?}");
        assert!(error.to_string().contains("write permission"), "{error}");
        let error = open(&disk.join("new")).map(drop).unwrap_err();
        assert!(matches!(error, EngineError::ReadOnly { .. }), "{error:?}");
    });
    if !ran {
        skipped();
    }
}

#[test]
fn a_map_for_which_the_process_has_no_addresses_is_refused_by_the_name_of_its_key() {
    let directory = punctual_testing::shared_folder();
    // A process has 2^47 bytes of addresses on x86-64 and 64-bit Arm: three such maps do not fit.
    let huge = |name: &str| {
        let options = LmdbOptions {
            quota: 1 << 46,
            ..OPTIONS
        };
        options.open(directory.path().join(name))
    };
    let opened = ["one", "two", "three"].map(huge);
    let refused = opened.iter().find_map(|opened| opened.as_ref().err());
    let message = refused.expect("no room for three").to_string();
    assert!(
        message.contains("store.map_bytes") && message.contains("ask for fewer"),
        "{message}"
    );
    assert!(message.contains(&*directory.path().to_string_lossy()), "{message}");
    let made = opened.iter().filter(|opened| opened.is_ok()).count();
    let left = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, made, "a store that was not made leaves no folder");
    // A folder that was there stays, empty; one for a deeper store does not.
    fs::create_dir(directory.path().join("there")).unwrap();
    assert!(huge("there").is_err() && huge("deep/er").is_err());
    assert_eq!(fs::read_dir(directory.path().join("there")).unwrap().count(), 0);
    assert!(!directory.path().join("deep").exists());
}
