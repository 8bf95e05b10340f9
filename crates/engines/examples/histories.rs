//! Histories of threads that use one store at the same time, for a linearizability checker that is not ours
//! (`.ci/linearizable store`): the requests of each thread, their begin and end, and their answers.
//!
//! ```sh
//! cargo run -p punctual-engines --features redb --example histories -- [SEEDS [FIRST [PLANT]]]
//! ```
//!
//! One line for each request, and one at the end of each history, in the format of `punctual-lab cluster sim --export
//! requests`. A seed draws what the threads ask, the engine and how temporal objects are updated; how the threads
//! interleave is the kernel's choice. `PLANT` is a fault that the checker must find: `split` reads in one transaction
//! and writes in another, `stale` reads from a snapshot that is older than the request.

#[allow(dead_code, reason = "seeds come from the arguments")]
#[path = "../tests/it/common/mod.rs"]
mod common;

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Barrier;

use common::Choices;
use punctual_engines::Memory;
#[cfg(target_os = "linux")]
use punctual_engines::lmdb::LmdbOptions;
use punctual_os::LinuxOs;
use punctual_store::engine::{Durability, Engine};
use punctual_store::temporal::{ObjectSpec, ReadingBuffer};
use punctual_store::together::Together;
use punctual_store::{Deadline, Store, StoreError, StoreOptions, UpdateMode};
use punctual_units::{Clock, Nanos, ObjectId, Time};

const THREADS: u64 = 4;
/// Requests of each thread: more make the checker's search long.
const REQUESTS: u64 = 60;
const KEYS: u64 = 4;
/// Temporal objects, which are installed and read together or one by one.
const OBJECTS: [&[u8]; 2] = [b"pose", b"covariance"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plant {
    Nothing,
    Split,
    Stale,
}

/// One step of a request, and the value that it read.
enum Step {
    Get(Vec<u8>, Option<Vec<u8>>),
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
}

/// A thread's request and its answer.
struct Request {
    invoked: Time,
    returned: Time,
    writes: bool,
    steps: Vec<Step>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Request {
    fn line(&self, client: u64) -> String {
        let step = |step: &Step| match step {
            Step::Get(key, None) => format!(r#"{{"op":"get","key":"{}","seen":null}}"#, hex(key)),
            Step::Get(key, Some(seen)) => format!(r#"{{"op":"get","key":"{}","seen":"{}"}}"#, hex(key), hex(seen)),
            Step::Put(key, value) => format!(r#"{{"op":"put","key":"{}","value":"{}"}}"#, hex(key), hex(value)),
            Step::Delete(key) => format!(r#"{{"op":"delete","key":"{}"}}"#, hex(key)),
        };
        let steps: Vec<String> = self.steps.iter().map(step).collect();
        format!(
            r#"{{"client":{client},"kind":"{}","outcome":"answer","invoked_ns":{},"returned_ns":{},"operations":[{}]}}"#,
            if self.writes { "transaction" } else { "latest" },
            self.invoked.0,
            self.returned.0,
            steps.join(",")
        )
    }
}

/// Draws the requests of one thread.
struct RequestDraw<'s, E: Engine> {
    store: &'s Store<E, LinuxOs>,
    choices: Choices,
    plant: Plant,
    readings: ReadingBuffer,
}

impl<E: Engine> RequestDraw<'_, E> {
    fn key(&mut self) -> Vec<u8> {
        format!("key {}", self.choices.below(KEYS)).into_bytes()
    }

    /// Draws some steps, which write `value` if they write.
    fn request(&mut self, value: &[u8]) -> Result<Vec<Step>, StoreError> {
        let (one, other) = (self.key(), self.key());
        let store = self.store;
        match self.choices.below(9) {
            0 => Ok(vec![Step::Get(one.clone(), store.get(&one)?)]),
            1 => {
                store.put(&one, value)?;
                Ok(vec![Step::Put(one, value.to_vec())])
            }
            2 => {
                let seen = store.delete(&one)?;
                // A delete reveals only whether there was a value.
                let before = if seen {
                    Vec::new()
                } else {
                    vec![Step::Get(one.clone(), None)]
                };
                Ok(before.into_iter().chain([Step::Delete(one)]).collect())
            }
            3 => {
                let transaction = store.read_transaction(Deadline::NONE)?;
                let read = |key: Vec<u8>| {
                    let seen = transaction.get(&key)?.map(|value| value.to_vec());
                    Ok(Step::Get(key, seen))
                };
                [one, other].into_iter().map(read).collect()
            }
            4 | 5 => self.transaction(one, other, value),
            6 => self.install(value),
            7 => {
                let objects = [ObjectId(0), ObjectId(1)];
                store.read_together(&objects, &mut self.readings)?;
                let seen = |at: usize| self.readings.get(at).map(|(_, value)| value.to_vec());
                Ok((0..2).map(|at| Step::Get(OBJECTS[at].to_vec(), seen(at))).collect())
            }
            _ => {
                let (object, mut value) = (self.choices.below(2) as usize, Vec::new());
                let found = store.read(ObjectId(object as u32), &mut value)?;
                Ok(vec![Step::Get(OBJECTS[object].to_vec(), found.map(|_| value))])
            }
        }
    }

    /// Steps that read one object, write the other, and read that again.
    fn transaction(&mut self, one: Vec<u8>, other: Vec<u8>, value: &[u8]) -> Result<Vec<Step>, StoreError> {
        let mut steps = Vec::new();
        if self.plant == Plant::Split {
            steps.push(Step::Get(one.clone(), self.store.get(&one)?));
            std::thread::yield_now();
        }
        let mut transaction = self.store.write_transaction(Deadline::NONE)?;
        if self.plant != Plant::Split {
            let seen = transaction.get(&one)?.map(|value| value.to_vec());
            steps.push(Step::Get(one, seen));
        }
        transaction.put(&other, value)?;
        steps.push(Step::Put(other.clone(), value.to_vec()));
        let seen = transaction.get(&other)?.map(|value| value.to_vec());
        steps.push(Step::Get(other, seen));
        transaction.commit()?;
        Ok(steps)
    }

    /// Installs the values of both objects, or of one.
    fn install(&mut self, value: &[u8]) -> Result<Vec<Step>, StoreError> {
        let which = match self.choices.below(4) {
            0 => 0..1,
            1 => 1..2,
            _ => 0..2,
        };
        let together = |at: usize| Together {
            object: ObjectId(at as u32),
            sampled_at: None,
            value,
        };
        let values: Vec<Together<'_>> = which.clone().map(together).collect();
        self.store.install_together(&values)?;
        Ok(which
            .map(|at| Step::Put(OBJECTS[at].to_vec(), value.to_vec()))
            .collect())
    }
}

/// Runs one history; returns its lines.
fn history<E: Engine>(engine: E, update_mode: UpdateMode, seed: u64, plant: Plant) -> Result<String, StoreError> {
    let objects = OBJECTS.map(|key| ObjectSpec {
        max_len: 16,
        ..ObjectSpec::number(key).period(Nanos::from_millis(10))
    });
    let options = StoreOptions {
        objects: objects.into(),
        update_mode,
        ..StoreOptions::default()
    };
    let store = Store::open(engine, LinuxOs, options)?;
    let start = Barrier::new(THREADS as usize);
    let thread = |client: u64| -> Result<Vec<Request>, StoreError> {
        let mut asking = RequestDraw {
            store: &store,
            choices: Choices::new(seed << 8 | client),
            plant,
            readings: ReadingBuffer::default(),
        };
        start.wait();
        let old = match plant {
            Plant::Stale => Some(store.read_transaction(Deadline::NONE)?),
            _ => None,
        };
        let mut requests = Vec::new();
        for number in 0..REQUESTS {
            let invoked = LinuxOs.now();
            let steps = if let Some(old) = old.as_ref().filter(|_| number % 10 == 9) {
                let key = asking.key();
                let seen = old.get(&key)?.map(|value| value.to_vec());
                vec![Step::Get(key, seen)]
            } else {
                asking.request(&[&client.to_le_bytes()[..1], &number.to_le_bytes()[..2]].concat())?
            };
            let returned = LinuxOs.now();
            let writes = steps.iter().any(|step| !matches!(step, Step::Get(..)));
            requests.push(Request {
                invoked,
                returned,
                writes,
                steps,
            });
            if asking.choices.below(4) == 0 {
                std::thread::yield_now(); // on few cores the threads would otherwise run one after the other
            }
        }
        Ok(requests)
    };
    let mut lines = String::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|client| scope.spawn(move || thread(client))).collect();
        for (client, thread) in threads.into_iter().enumerate() {
            for request in thread.join().expect("no thread panics")? {
                let _ = writeln!(lines, "{}", request.line(client as u64));
            }
        }
        Ok::<(), StoreError>(())
    })?;
    let _ = writeln!(lines, r#"{{"history":{seed}}}"#);
    Ok(lines)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, usual: u64| arguments.get(at).map_or(Ok(usual), |number| number.parse());
    let (seeds, first) = (number(0, 200)?, number(1, 1)?);
    let plant = match arguments.get(2).map(String::as_str) {
        None => Plant::Nothing,
        Some("split") => Plant::Split,
        Some("stale") => Plant::Stale,
        Some(other) => return Err(format!("no fault {other:?}: `split` or `stale`").into()),
    };
    for seed in first..first + seeds {
        let folder = tempfile::tempdir()?;
        let update_mode = match seed / 4 % 2 {
            0 => UpdateMode::MemoryFirst,
            _ => UpdateMode::Transaction,
        };
        let durability = if seed % 4 == 0 {
            Durability::Durable
        } else {
            Durability::Volatile
        };
        let lines = match seed % 4 {
            #[cfg(target_os = "linux")]
            0 | 1 => {
                let options = LmdbOptions {
                    durability,
                    quota: 16 << 20,
                    ..LmdbOptions::default()
                };
                history(options.open(folder.path())?, update_mode, seed, plant)?
            }
            #[cfg(feature = "redb")]
            2 => {
                let options = punctual_engines::redb::RedbOptions {
                    durability,
                    cache_bytes: 1 << 20,
                    ..Default::default()
                };
                history(options.open(folder.path())?, update_mode, seed, plant)?
            }
            _ => history(Memory::default(), update_mode, seed, plant)?,
        };
        std::io::stdout().write_all(lines.as_bytes())?;
    }
    Ok(())
}
