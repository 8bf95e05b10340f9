//! Transactions are serializable: a checker of recorded histories, and careless programs that it catches.
//!
//! **Method** (A. Adya, "Weak Consistency", PhD thesis, MIT 1999; with lists as in K. Kingsbury and P. Alvaro, "Elle",
//! VLDB 2020). Every value is the list of all writes to its key, and every write is unique, so a read tells all
//! versions up to the one it saw, in order. A sensor's object tells the same by its sequence number. From that follow
//! the dependencies between transactions: which transaction wrote what another read (wr), overwrote what another wrote
//! (ww), or overwrote what another read (rw). The history is serializable if that graph has no cycle, every list read
//! is a prefix of the final one, and no committed write is missing.

use crate::common;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};

use common::{Choices, seed};
use punctual_engines::Memory;
use punctual_engines::lmdb::LmdbOptions;
use punctual_os::LinuxOs;
use punctual_store::engine::{Durability, Engine};
use punctual_store::temporal::ObjectSpec;
use punctual_store::{Deadline, Store, StoreError, StoreOptions, UpdateMode};
use punctual_units::{Clock, Nanos, SensorId, Seq};

const THREADS: u64 = 3;
const TRANSACTIONS: u64 = 400;
const KEYS: u64 = 4;
const SENSOR_KEY: &[u8] = b"sensor";

/// A write; also names the transaction that made it: a thread, and a number within it.
type Write = u32;

/// What one committed transaction saw and did.
#[derive(Debug, Default)]
struct Footprint {
    /// Lists as they were read, by key, without the transaction's own appends.
    reads: Vec<(u64, Vec<Write>)>,
    /// Sequence number of the sensor's update that was read; 0 for none.
    sensor: Option<u64>,
    appends: Vec<(u64, Write)>,
}

#[derive(Debug, PartialEq, Eq)]
enum Anomaly {
    NotAPrefix,
    LostWrite,
    Cycle,
}

/// How the program under test runs its transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    /// Reads and writes in one transaction.
    Sound,
    /// Reads in a transaction of its own, then writes what follows from it: updates get lost.
    ReadsBefore,
    /// Appends in one transaction, but decides by what an earlier one read: write skew.
    DecidesBefore,
}

fn key(number: u64) -> Vec<u8> {
    format!("list/{number}").into_bytes()
}

fn list(bytes: Option<&[u8]>) -> Vec<Write> {
    let (words, _) = bytes.unwrap_or_default().as_chunks::<4>();
    words.iter().map(|word| Write::from_le_bytes(*word)).collect()
}

fn bytes(list: &[Write]) -> Vec<u8> {
    list.iter().flat_map(|write| write.to_le_bytes()).collect()
}

fn sensor_seq(bytes: Option<&[u8]>) -> u64 {
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

fn run_transaction<E: Engine>(
    store: &Store<E, LinuxOs>,
    program: Program,
    choices: &mut Choices,
    write: Write,
) -> Result<Footprint, StoreError> {
    let mut footprint = Footprint::default();
    let (first, second) = (choices.below(KEYS), choices.below(KEYS));
    if choices.below(4) == 0 {
        let transaction = store.read_transaction(Deadline::NONE)?;
        for number in [first, second] {
            footprint
                .reads
                .push((number, list(transaction.get(key(number))?.as_deref())));
        }
        footprint.sensor = Some(sensor_seq(transaction.get(SENSOR_KEY)?.as_deref()));
        return Ok(footprint);
    }
    let read_before = match program {
        Program::Sound => None,
        Program::ReadsBefore | Program::DecidesBefore => {
            let transaction = store.read_transaction(Deadline::NONE)?;
            let lists = [first, second].map(|number| Ok(list(transaction.get(key(number))?.as_deref())));
            drop(transaction);
            std::thread::yield_now();
            Some(lists.into_iter().collect::<Result<Vec<_>, StoreError>>()?)
        }
    };
    let deadline = Deadline::soft(LinuxOs.now() + Nanos(choices.below(1_000_000)));
    let mut transaction = store.write_transaction(deadline)?;
    let now = [first, second].map(|number| Ok(list(transaction.get(key(number))?.as_deref())));
    let now = now.into_iter().collect::<Result<Vec<_>, StoreError>>()?;
    footprint.sensor = (program == Program::Sound).then_some(sensor_seq(transaction.get(SENSOR_KEY)?.as_deref()));
    // The list to append to: what is there, or what the program believes to be there.
    let mut target = match (program, &read_before) {
        (Program::ReadsBefore, Some(before)) => before[1].clone(),
        _ => now[1].clone(),
    };
    let seen = read_before.unwrap_or(now);
    footprint.reads = [first, second].into_iter().zip(seen).collect();
    if choices.below(8) == 0 {
        drop(transaction); // undone: its reads were consistent all the same
        return Ok(footprint);
    }
    target.push(write);
    transaction.put(key(second), bytes(&target))?;
    footprint.appends.push((second, write));
    transaction.commit()?;
    Ok(footprint)
}

/// Runs the program on several threads, with sensor updates in between; the footprints, and the final lists.
fn record<E: Engine>(engine: E, program: Program, seed: u64) -> (Vec<Footprint>, HashMap<u64, Vec<Write>>) {
    let sensor = ObjectSpec {
        key: SENSOR_KEY.into(),
        avi: Nanos(1_000_000),
        period: Nanos(1_000_000),
        max_len: 8,
        history: 1,
    };
    let options = StoreOptions {
        objects: vec![sensor],
        update_mode: UpdateMode::Transaction,
        lock_wait_max: Nanos::from_secs(60),
        ..StoreOptions::default()
    };
    let store = Store::open(engine, LinuxOs, options).unwrap();
    let history = Mutex::new(Vec::new());
    let (start, done) = (Barrier::new(THREADS as usize), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let updates = scope.spawn(|| {
            for seq in 1.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                let seq: u64 = seq;
                store
                    .offer(SensorId(0), Seq(seq), LinuxOs.now(), &seq.to_le_bytes())
                    .unwrap();
                store.install_pending(1).unwrap();
                std::thread::yield_now();
            }
        });
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (store, history, start) = (&store, &history, &start);
                scope.spawn(move || {
                    let mut choices = Choices::new(seed ^ thread);
                    start.wait();
                    for number in 0..TRANSACTIONS {
                        let write = (thread * TRANSACTIONS + number + 1) as Write;
                        let footprint = run_transaction(store, program, &mut choices, write).unwrap();
                        history.lock().unwrap().push(footprint);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        done.store(true, Ordering::Relaxed);
        updates.join().unwrap();
    });
    let finals = (0..KEYS)
        .map(|number| (number, list(store.get(key(number)).unwrap().as_deref())))
        .collect();
    (history.into_inner().unwrap(), finals)
}

/// Transactions and sensor updates, with an edge from each to those that must come after it.
#[derive(Default)]
struct Dependencies(Vec<Vec<usize>>);

impl Dependencies {
    fn node(&mut self) -> usize {
        self.0.push(Vec::new());
        self.0.len() - 1
    }

    fn edge(&mut self, before: Option<usize>, after: Option<usize>) {
        if let (Some(before), Some(after)) = (before, after)
            && before != after
        {
            self.0[before].push(after);
        }
    }

    /// By removing what nothing comes before (A. Kahn, 1962): what is left is on, or behind, a cycle.
    fn has_cycle(&self) -> bool {
        let mut before = vec![0; self.0.len()];
        self.0.iter().flatten().for_each(|after| before[*after] += 1);
        let mut free: Vec<usize> = (0..self.0.len()).filter(|node| before[*node] == 0).collect();
        let mut removed = 0;
        while let Some(node) = free.pop() {
            removed += 1;
            for after in &self.0[node] {
                before[*after] -= 1;
                if before[*after] == 0 {
                    free.push(*after);
                }
            }
        }
        removed < self.0.len()
    }
}

fn check(history: &[Footprint], finals: &HashMap<u64, Vec<Write>>) -> Result<(), Anomaly> {
    let mut graph = Dependencies::default();
    let nodes: Vec<usize> = history.iter().map(|_| graph.node()).collect();
    let mut writer = HashMap::new();
    for (footprint, node) in history.iter().zip(&nodes) {
        for (number, write) in &footprint.appends {
            if !finals[number].contains(write) {
                return Err(Anomaly::LostWrite);
            }
            writer.insert(*write, *node);
        }
    }
    let writer_of = |write: Option<&Write>| write.and_then(|write| writer.get(write).copied());
    for versions in finals.values() {
        versions
            .windows(2)
            .for_each(|pair| graph.edge(writer_of(pair.first()), writer_of(pair.get(1))));
    }
    let last_update = history
        .iter()
        .filter_map(|footprint| footprint.sensor)
        .max()
        .unwrap_or(0);
    let updates: Vec<usize> = (0..=last_update + 1).map(|_| graph.node()).collect();
    updates
        .windows(2)
        .for_each(|pair| graph.edge(Some(pair[0]), Some(pair[1])));
    for (footprint, node) in history.iter().zip(&nodes) {
        for (number, seen) in &footprint.reads {
            if !finals[number].starts_with(seen) {
                return Err(Anomaly::NotAPrefix);
            }
            graph.edge(writer_of(seen.last()), Some(*node));
            graph.edge(Some(*node), writer_of(finals[number].get(seen.len())));
        }
        if let Some(seq) = footprint.sensor {
            graph.edge(Some(updates[seq as usize]), Some(*node));
            graph.edge(Some(*node), Some(updates[seq as usize + 1]));
        }
    }
    if graph.has_cycle() { Err(Anomaly::Cycle) } else { Ok(()) }
}

#[test]
fn transactions_are_serializable() {
    let seed = seed();
    let directory = punctual_testing::shared_folder();
    let lmdb = LmdbOptions {
        durability: Durability::Volatile,
        ..LmdbOptions::default()
    };
    let (history, finals) = record(lmdb.open(directory.path()).unwrap(), Program::Sound, seed);
    assert_eq!(check(&history, &finals), Ok(()));
    let written: usize = finals.values().map(Vec::len).sum();
    assert!(written > 100, "{written} writes are no history");
    let (history, finals) = record(Memory::default(), Program::Sound, seed);
    assert_eq!(check(&history, &finals), Ok(()));
}

#[test]
fn careless_programs_are_caught() {
    let seed = seed();
    for (program, expected) in [
        (Program::ReadsBefore, [Anomaly::LostWrite, Anomaly::NotAPrefix]),
        (Program::DecidesBefore, [Anomaly::Cycle, Anomaly::Cycle]),
    ] {
        // On a busy machine the threads may run one after the other, and do no harm: up to as many attempts.
        let found = (0..50).find_map(|attempt| {
            let (history, finals) = record(Memory::default(), program, seed ^ attempt << 32);
            check(&history, &finals).err()
        });
        let found = found.unwrap_or_else(|| panic!("{program:?} was not caught"));
        assert!(expected.contains(&found), "{program:?}: {found:?}");
    }
}
