//! Which engine keeps which promise: each cell of the table in docs/guide/store.md is what a probe found just now.
//!
//! `cargo test -p punctual-engines --features redb --test it promises:: -- --nocapture` prints the table.

#![cfg(target_os = "linux")]

use crate::common;

use std::fs;
use std::ops::Bound;
use std::path::Path;

use common::{Choices, alone, seed};
use punctual_engines::lmdb::LmdbOptions;
use punctual_engines::{Lmdb, Memory};
use punctual_store::engine::{Durability, EndedBecause, Engine, EngineError, Read, Table, Write};
use punctual_testing::conformance::engine::{Step, check, check_limits};
use punctual_testing::shared_folder;
use punctual_units::Nanos;

const QUOTA: usize = 4 << 20;
/// Bits that are flipped in each engine's file, where `CORRUPTIONS` does not say.
const FLIPS: u64 = 200;

/// An engine in a directory.
trait Kind {
    const NAME: &str;
    /// The file with its records; none for one in memory.
    const FILE: Option<&str>;
    type Engine: Engine;

    fn open(durability: Durability, directory: &Path) -> Result<Self::Engine, EngineError>;
}

struct OnLmdb;

impl Kind for OnLmdb {
    const NAME: &str = "LMDB";
    const FILE: Option<&str> = Some("data.mdb");
    type Engine = Lmdb;

    fn open(durability: Durability, directory: &Path) -> Result<Lmdb, EngineError> {
        let options = LmdbOptions {
            durability,
            quota: QUOTA,
            readers_max: 8,
            ..LmdbOptions::default()
        };
        options.open(directory)
    }
}

struct InMemory;

impl Kind for InMemory {
    const NAME: &str = "memory";
    const FILE: Option<&str> = None;
    type Engine = Memory;

    fn open(_: Durability, _: &Path) -> Result<Memory, EngineError> {
        Ok(Memory::default())
    }
}

#[cfg(feature = "redb")]
struct OnRedb;

#[cfg(feature = "redb")]
impl Kind for OnRedb {
    const NAME: &str = "redb";
    const FILE: Option<&str> = Some("data.redb");
    type Engine = punctual_engines::Redb;

    fn open(durability: Durability, directory: &Path) -> Result<Self::Engine, EngineError> {
        let options = punctual_engines::redb::RedbOptions {
            durability,
            cache_bytes: 1 << 20,
            ..Default::default()
        };
        options.open(directory)
    }
}

/// Whether a promise is kept; none where there is nothing to keep it with.
type Cell = Option<bool>;

/// A promise in words, and what finds out about it.
type Row<K> = (&'static str, fn(&K) -> Cell);

fn rows<K: Kind>() -> [Row<K>; 10] {
    [
        (
            "order, isolation, ended snapshots, limits (`conformance::engine`)",
            contract,
        ),
        ("several snapshots on one thread", several_snapshots),
        ("a snapshot that is ended keeps nothing from reuse", ended_keeps_nothing),
        ("what a reader keeps is told in bytes", held_is_told),
        ("a quota bounds what puts take, and deletes go on at it", quota),
        ("a second opening is refused", second_opening),
        ("a forked child is refused", fork),
        ("a durable commit survives a kill", |_| {
            survives::<K>(Durability::Durable)
        }),
        ("a volatile commit survives a kill", |_| {
            survives::<K>(Durability::Volatile)
        }),
        ("no flipped bit of a closed store is read as data", flipped_bits),
    ]
}

fn put(engine: &impl Engine, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
    let mut transaction = engine.write()?;
    transaction.put(Table::Data, key, value)?;
    transaction.commit()
}

fn fresh<K: Kind>(durability: Durability) -> (tempfile::TempDir, K::Engine) {
    let folder = shared_folder();
    let engine = K::open(durability, folder.path()).unwrap();
    (folder, engine)
}

fn contract<K: Kind>(_: &K) -> Cell {
    let (_folder, engine) = fresh::<K>(Durability::Durable);
    let limits = check_limits(&engine);
    drop(engine);
    let (_folder, engine) = fresh::<K>(Durability::Durable);
    let number = |number: u8| vec![number % 5 + 1];
    let steps: Vec<Step> = (0..120u8)
        .map(|at| match at % 12 {
            0..5 => Step::Put(Table::Data, number(at), vec![at; usize::from(at) * 20]),
            5 => Step::Delete(Table::Data, number(at)),
            6 => Step::Scan(Table::Data, Bound::Included(vec![2]), Bound::Unbounded),
            7 => Step::Commit,
            8 => Step::TakeSnapshot,
            9 => Step::Abort,
            10 => Step::CheckSnapshot,
            _ => Step::EndSnapshot,
        })
        .collect();
    let answers = (limits, check(&engine, &steps));
    Some(matches!(answers, (Ok(()), Ok(()))))
}

fn several_snapshots<K: Kind>(_: &K) -> Cell {
    let (_folder, engine) = fresh::<K>(Durability::Durable);
    put(&engine, b"key", b"old").unwrap();
    let first = engine.snapshot().unwrap();
    put(&engine, b"key", b"new").unwrap();
    let second = engine.snapshot();
    let read =
        |read: &<K::Engine as Engine>::Snapshot<'_>| read.get(Table::Data, b"key").unwrap().map(|it| it.to_vec());
    Some(second.is_ok_and(|second| read(&first).unwrap() == b"old" && read(&second).unwrap() == b"new"))
}

fn rewrite(engine: &impl Engine, content: u8) {
    let mut transaction = engine.write().unwrap();
    for number in 0..50u8 {
        transaction.put(Table::Data, &[number], &vec![content; 2_000]).unwrap();
    }
    transaction.commit().unwrap();
}

fn ended_keeps_nothing<K: Kind>(_: &K) -> Cell {
    let (_folder, engine) = fresh::<K>(Durability::Durable);
    (0..20).for_each(|content| rewrite(&engine, content));
    let before = engine.space().unwrap().taken;
    let _held = engine.snapshot().unwrap();
    for snapshot in engine.snapshots() {
        engine.end(snapshot.id, Nanos(1), EndedBecause::Life);
    }
    (0..60).for_each(|content| rewrite(&engine, content));
    // Twice: copy on write needs room for one more version.
    Some(engine.space().unwrap().taken <= 2 * before)
}

fn held_is_told<K: Kind>(_: &K) -> Cell {
    let (_folder, engine) = fresh::<K>(Durability::Durable);
    rewrite(&engine, 0);
    let _held = engine.snapshot().unwrap();
    (0..5).for_each(|content| rewrite(&engine, content));
    let commit = engine.snapshots()[0].commit;
    Some(engine.space().unwrap().held_by(commit) > 100_000)
}

fn quota<K: Kind>(_: &K) -> Cell {
    let (_folder, engine) = fresh::<K>(Durability::Volatile);
    let Some(quota) = engine.space().unwrap().quota else {
        return Some(false);
    };
    let value = vec![7; 10_000];
    let full = (0..quota / 5_000).find_map(|number| put(&engine, &number.to_be_bytes(), &value).err());
    let delete = |number: u64| {
        let mut transaction = engine.write()?;
        let was_there = transaction.delete(Table::Data, &number.to_be_bytes())?;
        transaction.commit().map(|()| was_there)
    };
    let deleted = (0..50).all(|number| delete(number).is_ok_and(|was_there| was_there));
    let again = put(&engine, b"again", &value).is_ok();
    Some(matches!(full, Some(EngineError::QuotaFull { .. })) && deleted && again)
}

fn second_opening<K: Kind>(_: &K) -> Cell {
    K::FILE?;
    let (folder, _engine) = fresh::<K>(Durability::Durable);
    let second = K::open(Durability::Durable, folder.path());
    Some(matches!(second, Err(EngineError::InUse { .. })))
}

/// The child reads, writes and drops what it inherited; the parent goes on.
fn fork<K: Kind>(_: &K) -> Cell {
    K::FILE?;
    let (folder, engine) = fresh::<K>(Durability::Durable);
    put(&engine, b"key", b"old").unwrap();
    let snapshot = engine.snapshot().unwrap();
    let forked = |answer: Result<(), EngineError>| matches!(answer, Err(EngineError::Forked { .. }));
    // SAFETY: the child calls what is under test, and ends without running anything else of the test.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let told = forked(engine.snapshot().map(drop))
            && forked(engine.write().map(drop))
            && forked(engine.sync())
            && forked(snapshot.get(Table::Data, b"key").map(drop));
        drop(snapshot);
        drop(engine);
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!told)) }
    }
    assert!(child > 0, "no child");
    let mut status = 0;
    // SAFETY: `status` is valid for the call.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    let told = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
    let unharmed = snapshot.get(Table::Data, b"key").is_ok_and(|value| value.is_some());
    drop(snapshot);
    put(&engine, b"key", b"new").unwrap();
    drop(engine);
    let engine = K::open(Durability::Durable, folder.path()).unwrap();
    let kept = engine.snapshot().unwrap().get(Table::Data, b"key").unwrap().as_deref() == Some(b"new");
    Some(told && unharmed && kept)
}

/// What a kill leaves: the files as the kernel has them, of a store that is open.
fn survives<K: Kind>(durability: Durability) -> Cell {
    K::FILE?;
    let (folder, engine) = fresh::<K>(durability);
    let killed = shared_folder();
    for number in 0..20u8 {
        put(&engine, b"key", &[number]).unwrap();
    }
    for entry in fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        // Readers and owners end with the process.
        if path.is_file() && name != "lock.mdb" && name != "owner.pid" {
            fs::copy(&path, killed.path().join(name)).unwrap();
        }
    }
    let engine = K::open(durability, killed.path()).unwrap();
    let snapshot = engine.snapshot().unwrap();
    Some(snapshot.get(Table::Data, b"key").unwrap().as_deref() == Some(&[19]))
}

type Records = Vec<(Vec<u8>, Vec<u8>)>;

fn read_all(engine: &impl Engine) -> Result<Records, EngineError> {
    let snapshot = engine.snapshot()?;
    let all = snapshot.scan(Table::Data, (Bound::Unbounded, Bound::Unbounded))?;
    all.map(|record| record.map(|(key, value)| (key.to_vec(), value.to_vec())))
        .collect()
}

fn flipped_bits<K: Kind>(_: &K) -> Cell {
    let file = K::FILE?;
    let (folder, engine) = fresh::<K>(Durability::Durable);
    (0..5).for_each(|content| rewrite(&engine, content));
    let expected = read_all(&engine).unwrap();
    drop(engine);
    let bytes = fs::read(folder.path().join(file)).unwrap();
    let (seed, mut wrong) = (seed(), 0);
    let times = std::env::var("CORRUPTIONS")
        .ok()
        .and_then(|times| times.parse().ok())
        .unwrap_or(FLIPS);
    let mut choices = Choices::new(seed);
    for _ in 0..times {
        let folder = shared_folder();
        let mut damaged = bytes.clone();
        // One in four in the first pages, which say where all else is.
        let end = if choices.below(4) == 0 {
            4 << 10
        } else {
            bytes.len() as u64
        };
        damaged[choices.below(end) as usize] ^= 1 << choices.below(8);
        fs::write(folder.path().join(file), &damaged).unwrap();
        let read = || read_all(&K::open(Durability::Durable, folder.path())?);
        // A panic is no answer, either.
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read));
        wrong += u64::from(!matches!(read, Ok(Err(_))) && !matches!(read, Ok(Ok(found)) if found == expected));
    }
    println!(
        "{}: {wrong} of {times} flipped bits were read as data, or ended in a panic",
        K::NAME
    );
    Some(wrong == 0)
}

fn column<K: Kind>(kind: &K) -> Vec<String> {
    let cell = |(_, probe): &Row<K>| match probe(kind) {
        Some(true) => "yes".to_owned(),
        Some(false) => "no".to_owned(),
        None => "-".to_owned(),
    };
    [K::NAME.to_owned()]
        .into_iter()
        .chain(rows::<K>().iter().map(cell))
        .collect()
}

#[test]
fn the_table_in_the_docs_is_what_the_probes_find() {
    alone("promises::the_table_in_the_docs_is_what_the_probes_find", || {
        let promises = rows::<OnLmdb>().map(|(promise, _)| promise.to_owned());
        let first: Vec<String> = ["promise".to_owned()].into_iter().chain(promises).collect();
        let columns = [
            first,
            column(&OnLmdb),
            #[cfg(feature = "redb")]
            column(&OnRedb),
            column(&InMemory),
        ];
        let docs = include_str!("../../../../docs/guide/store.md");
        for at in 0..columns[0].len() {
            let cells: Vec<&str> = columns.iter().map(|column| column[at].as_str()).collect();
            let line = format!("| {} |", cells.join(" | "));
            println!("{line}");
            let known = docs
                .lines()
                .find(|known| known.starts_with(&format!("| {} |", cells[0])));
            let known = known.unwrap_or_else(|| panic!("docs/guide/store.md lacks the row: {line}"));
            if cfg!(feature = "redb") {
                assert_eq!(known, line, "docs/guide/store.md says otherwise");
            } else {
                // Without redb's column.
                let known: Vec<&str> = known.trim_matches('|').split('|').map(str::trim).collect();
                assert_eq!(
                    [known[0], known[1], known[3]],
                    cells[..],
                    "docs/guide/store.md says otherwise"
                );
            }
        }
    });
}
