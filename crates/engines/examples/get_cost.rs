//! Costs of the store per get and put, in nanoseconds and, under callgrind, instructions.
//!
//! ```text
//! # Each get by itself, all kinds interleaved:
//! cargo run --release -p punctual-engines --example get_cost
//! # Twice, with different numbers of gets; their difference counts, the set-up cancels out:
//! valgrind --tool=callgrind target/release/examples/get_cost KIND GETS
//! # With values of 1000 bytes instead of 100:
//! valgrind --tool=callgrind target/release/examples/get_cost KIND GETS 1000
//! ```
//!
//! `NO_CHECKSUMS=1` makes the store without checksums of plain records.
//!
//! Kinds with `look` show the value to a closure, as bare heed shows its own memory; the others copy it. Those without
//! `untimed` in a long transaction of the store's have a deadline, and stamp the clock twice for each get.
//!
//! The no-op kind shows the cost of the loop itself. On a loaded machine, differences below that mean nothing.

use std::hint::black_box;
use std::ops::Bound;

use heed::types::Bytes;
use heed::{CommitOrAbort, EnvFlags, EnvOpenOptions};
use punctual_engines::lmdb::LmdbOptions;
use punctual_os::LinuxOs;
use punctual_store::engine::{Durability, Engine, Read, Table, Write};
use punctual_store::temporal::ObjectSpec;
use punctual_store::{Deadline, Store, StoreOptions};
use punctual_units::{Clock, Nanos, SensorId, Seq};

/// All values together, in bytes: 100,000 records of 100 bytes.
const VALUES: usize = 10_000_000;
const VALUE_LEN: usize = 100;
const OBJECTS: usize = 1_024;
/// Records of a scan, and puts of a transaction of several.
const SCANNED: usize = 1_000;
const PUTS: usize = 100;
const ROUNDS: usize = 15;
const GETS_PER_ROUND: usize = 5_000;
/// Odd, and not a divisor of the number of records: visits them all in an order that caches cannot guess.
const STRIDE: usize = 61_803;

type AnyError = Box<dyn std::error::Error>;

fn main() -> Result<(), AnyError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let len = match arguments.get(2) {
        Some(len) => len.parse::<usize>()?.clamp(1, VALUES),
        None => VALUE_LEN,
    };
    let records = VALUES / len;
    let directory = tempfile::tempdir()?;
    let bare = bare(&directory.path().join("bare"), records, len)?;
    let store = store(&directory.path().join("store"), records, len)?;
    let keys: Vec<Vec<u8>> = (0..records).map(key).collect();
    let (content, mut value) = (vec![7; len], Vec::with_capacity(len));
    let mut next = 0;
    let mut step = |places: usize| {
        next = (next + STRIDE) % places;
        next
    };

    let mut run = |kind: &str, gets: usize| -> Result<(), AnyError> {
        match kind {
            "no-op" => (0..gets).for_each(|_| {
                black_box(&keys[step(records)]);
            }),
            "bare-transaction" => {
                for _ in 0..gets {
                    let transaction = bare.env.read_txn()?;
                    black_box(bare.table.get(&transaction, &keys[step(records)])?);
                }
            }
            "engine-transaction" => {
                for _ in 0..gets {
                    let snapshot = store.engine().snapshot()?;
                    black_box(snapshot.get(Table::Data, &keys[step(records)])?);
                }
            }
            "engine-look-transaction" => {
                for _ in 0..gets {
                    let snapshot = store.engine().snapshot()?;
                    snapshot.get_with(Table::Data, &keys[step(records)], look)?;
                }
            }
            "store-look-transaction" => {
                for _ in 0..gets {
                    store.get_with(&keys[step(records)], look)?;
                }
            }
            "store-transaction" => {
                for _ in 0..gets {
                    let transaction = store.read_transaction(Deadline::soft(store_deadline()))?;
                    black_box(transaction.get(&keys[step(records)])?);
                    black_box(transaction.finish());
                }
            }
            "bare-get" => {
                let transaction = bare.env.read_txn()?;
                for _ in 0..gets {
                    black_box(bare.table.get(&transaction, &keys[step(records)])?);
                }
            }
            "store-get" => {
                let transaction = store.read_transaction(Deadline::soft(store_deadline()))?;
                for _ in 0..gets {
                    black_box(transaction.get(&keys[step(records)])?);
                }
                black_box(transaction.finish());
            }
            "store-look" => {
                let transaction = store.read_transaction(Deadline::NONE)?;
                for _ in 0..gets {
                    transaction.get_with(&keys[step(records)], look)?;
                }
            }
            "store-get-untimed" => {
                let transaction = store.read_transaction(Deadline::NONE)?;
                for _ in 0..gets {
                    black_box(transaction.get(&keys[step(records)])?);
                }
            }
            "temporal-read" => {
                for _ in 0..gets {
                    black_box(store.read(punctual_units::ObjectId(step(OBJECTS) as u32), &mut value)?);
                }
            }
            // Scans of 1000 records, each byte read.
            "bare-scan" => {
                for _ in 0..gets {
                    let transaction = bare.env.read_txn()?;
                    let range = (Bound::Included(&keys[step(records)][..]), Bound::Unbounded);
                    for record in bare.table.range(&transaction, &range)?.take(SCANNED) {
                        let (key, value) = record?;
                        read_through(key);
                        read_through(value);
                    }
                }
            }
            "store-scan" => {
                for _ in 0..gets {
                    let transaction = store.begin_read()?;
                    let mut range = transaction.range(&keys[step(records)][..]..)?;
                    for _ in 0..SCANNED {
                        let Some((key, value)) = range.lend()? else { break };
                        read_through(key);
                        read_through(value);
                    }
                }
            }
            "store-scan-copied" => {
                for _ in 0..gets {
                    let transaction = store.begin_read()?;
                    for record in transaction.range(&keys[step(records)][..]..)?.take(SCANNED) {
                        let (key, value) = record?;
                        read_through(&key);
                        read_through(&value);
                    }
                }
            }
            // 100 puts in one transaction.
            "bare-puts" => {
                for _ in 0..gets {
                    let mut transaction = bare.env.write_txn()?;
                    for _ in 0..PUTS {
                        bare.table.put(&mut transaction, &keys[step(records)], &content)?;
                    }
                    transaction.commit()?;
                }
            }
            "store-puts" => {
                for _ in 0..gets {
                    store.update(|tx| (0..PUTS).try_for_each(|_| tx.put(&keys[step(records)], &content)))?;
                }
            }
            "bare-put" => {
                for _ in 0..gets {
                    let mut transaction = bare.env.write_txn()?;
                    bare.table.put(&mut transaction, &keys[step(records)], &content)?;
                    transaction.commit()?;
                }
            }
            "store-put" => {
                for _ in 0..gets {
                    store.put(&keys[step(records)], &content)?;
                }
            }
            other => return Err(format!("{other}: choose one of {KINDS:?}").into()),
        }
        Ok(())
    };

    if let [kind, gets, ..] = arguments.as_slice() {
        return run(kind, gets.parse()?);
    }
    // One get at a time, as in a job: the clock around a get waits for it to finish, and keeps the processor from
    // overlapping it with the next one.
    let mut spans: [Vec<u64>; KINDS.len()] = Default::default();
    for _ in 0..ROUNDS {
        for (kind, spans) in KINDS.into_iter().zip(&mut spans) {
            for _ in 0..GETS_PER_ROUND {
                let began = LinuxOs.now();
                run(kind, 1)?;
                spans.push(LinuxOs.now().since(began).0);
            }
        }
    }
    for (kind, mut spans) in KINDS.into_iter().zip(spans) {
        spans.sort_unstable();
        let at = |share: f64| spans[(share * (spans.len() - 1) as f64) as usize];
        println!(
            "{kind:<20} median {:>6} ns, p10 {:>6}, p99 {:>6}",
            at(0.5),
            at(0.1),
            at(0.99)
        );
    }
    Ok(())
}

const KINDS: [&str; 18] = [
    "no-op",
    "bare-transaction",
    "engine-transaction",
    "engine-look-transaction",
    "store-look-transaction",
    "store-transaction",
    "bare-get",
    "store-look",
    "store-get-untimed",
    "store-get",
    "temporal-read",
    "bare-put",
    "store-put",
    "bare-scan",
    "store-scan",
    "store-scan-copied",
    "bare-puts",
    "store-puts",
];

/// Returns the value's address and length, as a caller of bare heed sees it.
fn look(value: &[u8]) {
    black_box((value.as_ptr(), value.len()));
}

/// Reads each byte, as a caller does that needs the value.
fn read_through(bytes: &[u8]) {
    black_box(bytes.iter().fold(0, |all, byte| all ^ byte));
}

fn store_deadline() -> punctual_units::Time {
    black_box(punctual_units::Time::MAX)
}

fn key(number: usize) -> Vec<u8> {
    format!("key/{number:012}").into_bytes()
}

struct Bare {
    env: &'static heed::Env,
    table: heed::Database<'static, Bytes, Bytes>,
}

/// LMDB through heed alone, with the same records.
fn bare(directory: &std::path::Path, records: usize, len: usize) -> Result<Bare, AnyError> {
    std::fs::create_dir_all(directory)?;
    let mut options = EnvOpenOptions::new();
    options.map_size(1 << 30).max_dbs(3);
    // SAFETY: the directory is this process's own; losing it in a crash of the machine is no harm.
    let env = unsafe { options.flags(EnvFlags::NO_SYNC).open(directory)? };
    let env: &'static heed::Env = Box::leak(Box::new(env)); // for the whole run
    let transaction = env.write_txn()?;
    let created = env.create_databases_and_commit(transaction, |opener, transaction| {
        let table = opener.create_database::<Bytes, Bytes>(transaction, Some("data"))?;
        Ok::<_, heed::Error>(CommitOrAbort::<_, std::convert::Infallible>::Commit(table))
    })?;
    let CommitOrAbort::Commit(table) = created;
    let mut transaction = env.write_txn()?;
    for number in 0..records {
        table.put(&mut transaction, &key(number), &vec![7; len])?;
    }
    transaction.commit()?;
    Ok(Bare { env, table })
}

fn store(
    directory: &std::path::Path,
    records: usize,
    len: usize,
) -> Result<Store<punctual_engines::Lmdb, LinuxOs>, AnyError> {
    let options = LmdbOptions {
        durability: Durability::Volatile,
        checksums: std::env::var_os("NO_CHECKSUMS").is_none(),
        ..LmdbOptions::default()
    };
    let engine = options.open(directory)?;
    let mut transaction = engine.write()?;
    for number in 0..records {
        transaction.put(Table::Data, &key(number), &vec![7; len])?;
    }
    transaction.commit()?;
    let (avi, period) = (Nanos::from_secs(10), Nanos::from_secs(5));
    let object = |number: usize| ObjectSpec {
        key: format!("sensor/{number:04}").into(),
        avi,
        period,
        max_len: len,
        history: 1,
    };
    let objects = (0..OBJECTS).map(object).collect();
    let store = Store::open(
        engine,
        LinuxOs,
        StoreOptions {
            objects,
            ..StoreOptions::default()
        },
    )?;
    for sensor in 0..OBJECTS {
        store.offer(SensorId(sensor as u32), Seq(1), LinuxOs.now(), &vec![7; len])?;
    }
    store.install_pending(OBJECTS)?;
    Ok(store)
}
