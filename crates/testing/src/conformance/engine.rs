//! What every engine must do, checked against a model that is two ordered maps.
//!
//! [`check`] runs a sequence of [`Step`]s on an empty engine and compares each answer with the model's: within the
//! write transaction, in new snapshots, and in old snapshots, several at a time, that another thread holds while the
//! engine moves on, and which may be ended under it.
//! [`check_limits`] tries what lies at the border of the contract. The caller supplies the steps, for example from a
//! property test, which shrinks and replays them.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, Deref, RangeBounds};
use std::sync::mpsc;

use punctual_os::Tid;
use punctual_store::engine::{
    Cursor, EndedBecause, Engine, EngineError, KEY_MAX_LEN, KeyRange, Read, Reader, Table, Write,
};
use punctual_units::{Nanos, Time};

/// Something to do to an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Put a record, in the open write transaction.
    Put(Table, Vec<u8>, Vec<u8>),
    /// Delete a record, in the open write transaction.
    Delete(Table, Vec<u8>),
    /// Get a record, in the open write transaction.
    Get(Table, Vec<u8>),
    /// Scan a range, in the open write transaction.
    Scan(Table, Bound<Vec<u8>>, Bound<Vec<u8>>),
    /// Scan a range in descending order, in the open write transaction.
    ScanBack(Table, Bound<Vec<u8>>, Bound<Vec<u8>>),
    /// Commit the open write transaction, begin the next.
    Commit,
    /// Drop the open write transaction, begin the next.
    Abort,
    /// Let the other thread take a new snapshot, and keep it beside those that it has.
    TakeSnapshot,
    /// Let the other thread read its snapshots again.
    CheckSnapshot,
    /// End the other thread's snapshots, if they have not been ended.
    EndSnapshot,
}

/// What an engine did otherwise than the model.
#[derive(Debug, thiserror::Error)]
pub enum Violation {
    /// A different answer.
    #[error("step {step}, {what}: the engine answered {found}, the model {expected}")]
    Answer {
        /// The number of the step, from 0.
        step: usize,
        /// What was asked.
        what: String,
        /// The engine's answer.
        found: String,
        /// The right one.
        expected: String,
    },
    /// A failure where none is due.
    #[error("step {step}: {error}")]
    Failure {
        /// The number of the step, from 0.
        step: usize,
        /// What the engine reported.
        error: EngineError,
    },
    /// The thread that holds snapshots has ended.
    #[error("the thread that holds the snapshot has ended")]
    ObserverGone,
}

type Records = Vec<(Vec<u8>, Vec<u8>)>;
type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const TABLES: [Table; 2] = [Table::Data, Table::Temporal];

/// How many snapshots the other thread holds at most: it drops the oldest then.
const HELD_MAX: usize = 3;

#[derive(Clone, Default)]
struct Model([Map; 2]);

impl Model {
    fn table(&mut self, table: Table) -> &mut Map {
        &mut self.0[usize::from(table == Table::Temporal)]
    }

    fn records(&self) -> [Records; 2] {
        self.0.clone().map(|map| map.into_iter().collect())
    }
}

/// Runs `steps` on an empty engine and compares it with the model.
///
/// # Errors
/// The first [`Violation`].
pub fn check<E: Engine>(engine: &E, steps: &[Step]) -> Result<(), Violation> {
    std::thread::scope(|scope| {
        let (ask, asked) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        let observer = scope.spawn(move || observe(engine, &asked, &answer));
        let mut run = Run {
            engine,
            committed: Model::default(),
            observed: VecDeque::new(),
            ask,
            answers,
            step: 0,
        };
        let conforms = run.run(steps);
        drop(run); // no caller asks any more
        // A scope does not wait for what a thread leaves behind when it ends (LMDB's reader slot), joining it does.
        observer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        conforms
    })
}

enum Ask {
    TakeSnapshot,
    ReadAll,
}

/// What is noted of the other thread's snapshots.
const OBSERVER: Reader = Reader {
    thread: Some(Tid(77)),
    taken_at: Some(Time(11)),
    firm_until: Some(Time(22)),
    process: None,
};
/// What the other thread is told when its snapshot was ended.
const ENDED: (Nanos, EndedBecause) = (Nanos(33), EndedBecause::Held);

/// Holds snapshots and reads them when asked. Ends when no caller can ask any more.
fn observe<E: Engine>(engine: &E, asked: &mpsc::Receiver<Ask>, answer: &mpsc::Sender<Vec<Observation>>) {
    let mut held = VecDeque::new();
    for ask in asked {
        if matches!(ask, Ask::TakeSnapshot) {
            held.push_back(engine.snapshot_for(OBSERVER));
            held.drain(..held.len().saturating_sub(HELD_MAX));
        }
        let read = |snapshot: &Result<E::Snapshot<'_>, EngineError>| match snapshot {
            Ok(snapshot) => read_all(snapshot),
            Err(refused) => Err(EngineError::Io {
                path: engine.path().to_path_buf(),
                action: "take another snapshot",
                source: std::io::Error::other(refused.to_string()),
            }),
        };
        if answer.send(held.iter().map(read).collect()).is_err() {
            return;
        }
    }
}

/// What a snapshot of the other thread's shows.
type Observation = Result<[Records; 2], EngineError>;

struct Run<'e, E> {
    engine: &'e E,
    committed: Model,
    /// What each of the other thread's snapshots must show, the oldest first; nothing once it was ended.
    observed: VecDeque<Option<Model>>,
    ask: mpsc::Sender<Ask>,
    answers: mpsc::Receiver<Vec<Observation>>,
    step: usize,
}

impl<E: Engine> Run<'_, E> {
    fn run(&mut self, steps: &[Step]) -> Result<(), Violation> {
        self.take_snapshot()?;
        let mut rest = steps.iter();
        while rest.len() > 0 {
            self.transaction(&mut rest)?;
            self.engine_shows_committed()?;
        }
        self.look(Ask::ReadAll)
    }

    /// One write transaction: up to the next commit or abort.
    fn transaction<'s>(&mut self, steps: &mut impl Iterator<Item = &'s Step>) -> Result<(), Violation> {
        let engine = self.engine;
        let mut transaction = self.sound(engine.write())?;
        let mut model = self.committed.clone();
        for step in steps {
            self.step += 1;
            match step {
                Step::Put(table, key, value) => {
                    self.sound(transaction.put(*table, key, value))?;
                    model.table(*table).insert(key.clone(), value.clone());
                }
                Step::Delete(table, key) => {
                    let found = self.sound(transaction.delete(*table, key))?;
                    self.same("delete", &found, &model.table(*table).remove(key).is_some())?;
                }
                Step::Get(table, key) => {
                    let found = self.sound(transaction.get(*table, key))?;
                    self.same(
                        "get",
                        &found.as_deref(),
                        &model.table(*table).get(key).map(Vec::as_slice),
                    )?;
                }
                Step::Scan(table, low, high) => {
                    let range = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
                    let found = self.sound(collect(&transaction, *table, range))?;
                    self.same("scan", &found, &model_range(model.table(*table), range))?;
                }
                Step::ScanBack(table, low, high) => {
                    let range = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
                    let found = self.sound(transaction.scan_back(*table, range).and_then(owned))?;
                    let mut expected = model_range(model.table(*table), range);
                    expected.reverse();
                    self.same("scan in descending order", &found, &expected)?;
                }
                Step::Commit => {
                    self.sound(transaction.commit())?;
                    self.committed = model;
                    return Ok(());
                }
                Step::Abort => return Ok(()),
                Step::TakeSnapshot => self.take_snapshot()?,
                Step::CheckSnapshot => self.look(Ask::ReadAll)?,
                Step::EndSnapshot => self.end_snapshot()?,
            }
        }
        Ok(()) // the last transaction is dropped: an abort
    }

    fn engine_shows_committed(&mut self) -> Result<(), Violation> {
        let snapshot = self.sound(self.engine.snapshot())?;
        let found = self.sound(read_all(&snapshot))?;
        self.same("a new snapshot", &found, &self.committed.records())
    }

    /// One more snapshot of the other thread's.
    fn take_snapshot(&mut self) -> Result<(), Violation> {
        self.observed.push_back(Some(self.committed.clone()));
        self.observed.drain(..self.observed.len().saturating_sub(HELD_MAX));
        self.look(Ask::TakeSnapshot)
    }

    /// Compares the other thread's snapshots with what they must show.
    fn look(&mut self, ask: Ask) -> Result<(), Violation> {
        self.ask.send(ask).map_err(|_| Violation::ObserverGone)?;
        let found = self.answers.recv().map_err(|_| Violation::ObserverGone)?;
        self.same(
            "how many snapshots one thread holds",
            &found.len(),
            &self.observed.len(),
        )?;
        for (found, observed) in found.into_iter().zip(&self.observed) {
            let Some(observed) = observed else {
                let told = match found {
                    Err(EngineError::SnapshotEnded { age, why }) => Some((age, why)),
                    _ => None,
                };
                self.same("the other thread's ended snapshot", &told, &Some(ENDED))?;
                continue;
            };
            let found = self.sound(found)?;
            self.same("the other thread's snapshot", &found, &observed.records())?;
        }
        Ok(())
    }

    /// Ends the snapshots of the other thread, which is told so from then on.
    fn end_snapshot(&mut self) -> Result<(), Violation> {
        let open = self.engine.snapshots();
        let noted: Vec<_> = open.iter().map(|snapshot| snapshot.reader).collect();
        let expected = vec![OBSERVER; self.observed.iter().flatten().count()];
        self.same("the open snapshots", &noted, &expected)?;
        let (age, why) = ENDED;
        for snapshot in open {
            self.same("an end", &self.engine.end(snapshot.id, age, why), &true)?;
            self.same("a second end", &self.engine.end(snapshot.id, age, why), &false)?;
        }
        self.observed.iter_mut().for_each(|observed| *observed = None);
        self.look(Ask::ReadAll)
    }

    fn sound<T>(&self, answer: Result<T, EngineError>) -> Result<T, Violation> {
        answer.map_err(|error| Violation::Failure { step: self.step, error })
    }

    fn same<T: PartialEq + std::fmt::Debug>(&self, what: &str, found: &T, expected: &T) -> Result<(), Violation> {
        same(self.step, what, found, expected)
    }
}

fn same<T: PartialEq + std::fmt::Debug>(step: usize, what: &str, found: &T, expected: &T) -> Result<(), Violation> {
    if found == expected {
        return Ok(());
    }
    let (found, expected) = (format!("{found:?}"), format!("{expected:?}"));
    Err(Violation::Answer {
        step,
        what: what.to_owned(),
        found,
        expected,
    })
}

fn collect(read: &impl Read, table: Table, range: KeyRange<'_>) -> Result<Records, EngineError> {
    owned(read.scan(table, range)?)
}

fn owned<B: Deref<Target = [u8]>>(
    records: impl Iterator<Item = Result<(B, B), EngineError>>,
) -> Result<Records, EngineError> {
    records
        .map(|record| record.map(|(key, value)| (key.to_vec(), value.to_vec())))
        .collect()
}

/// All records, by scans from both ends; and each once more, by a get in the middle of a scan.
fn read_all(read: &impl Read) -> Result<[Records; 2], EngineError> {
    let all = (Bound::Unbounded, Bound::Unbounded);
    let mut found = [Records::new(), Records::new()];
    for (table, records) in TABLES.into_iter().zip(&mut found) {
        let mut cursor = read.cursor(table, all, false)?;
        while cursor.step()? {
            let lent = cursor.record();
            let (key, mut value) = (lent.0.to_vec(), lent.1.to_vec());
            // Three ways to the same value, the third within a call: should they differ, the record shows it.
            let got = read.get(table, &key)?;
            let shown = read.get_with(table, &key, |shown| {
                Ok((shown.to_vec(), read.get(table, &key)?.as_deref() == Some(shown)))
            });
            let shown = shown?.transpose()?;
            let got = got.as_deref();
            if got != Some(lent.1) || shown != Some((value.clone(), true)) {
                value = format!("scan, get and get_with differ: {value:?}, {got:?}, {shown:?}").into_bytes();
            }
            records.push((key, value));
        }
        let mut back = owned(read.scan_back(table, all)?)?;
        back.reverse();
        if cursor.step()? || back != *records {
            records.push((
                b"the scan from the end differs".to_vec(),
                format!("{back:?}").into_bytes(),
            ));
        }
    }
    Ok(found)
}

fn model_range(map: &Map, range: KeyRange<'_>) -> Records {
    // By filtering, because `BTreeMap::range` panics on a range that ends before it begins.
    let inside = map
        .iter()
        .filter(|(key, _)| RangeBounds::<[u8]>::contains(&range, key.as_slice()));
    inside.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Tries keys and values at, and beyond, the limits of the contract, on an engine whose tables are empty.
///
/// # Errors
/// The first [`Violation`].
pub fn check_limits<E: Engine>(engine: &E) -> Result<(), Violation> {
    let sound = |step| move |error| Violation::Failure { step, error };
    let longest = vec![b'k'; KEY_MAX_LEN];
    let impossible = [vec![], vec![b'k'; KEY_MAX_LEN + 1]];
    let large = vec![7; 1 << 20];
    let mut transaction = engine.write().map_err(sound(0))?;
    for key in &impossible {
        let refused = matches!(
            transaction.put(Table::Data, key, b"v"),
            Err(EngineError::KeyLength { len }) if len == key.len()
        );
        same(1, "refuses a key of impossible length", &refused, &true)?;
        same(
            2,
            "get of it",
            &transaction.get(Table::Data, key).map_err(sound(2))?.as_deref(),
            &None,
        )?;
        same(
            3,
            "delete of it",
            &transaction.delete(Table::Data, key).map_err(sound(3))?,
            &false,
        )?;
    }
    transaction.put(Table::Data, &longest, b"").map_err(sound(4))?;
    transaction.put(Table::Data, b"large", &large).map_err(sound(5))?;
    let all = vec![(longest.clone(), vec![]), (b"large".to_vec(), large.clone())];
    for (low, expected) in [
        (Bound::Included(&[][..]), all.as_slice()),
        (Bound::Excluded(&impossible[1]), &all[1..]),
    ] {
        let found = collect(&transaction, Table::Data, (low, Bound::Unbounded)).map_err(sound(6))?;
        same(6, "a scan from a key that cannot exist", &found.as_slice(), &expected)?;
        let back = transaction
            .scan_back(Table::Data, (low, Bound::Unbounded))
            .and_then(owned);
        let expected: Records = expected.iter().rev().cloned().collect();
        same(6, "and from the end", &back.map_err(sound(6))?, &expected)?;
    }
    let none = collect(&transaction, Table::Data, (Bound::Unbounded, Bound::Included(&[]))).map_err(sound(7))?;
    same(7, "a scan up to the empty key", &none, &vec![])?;
    transaction.commit().map_err(sound(8))?;
    let snapshot = engine.snapshot().map_err(sound(9))?;
    same(
        9,
        "the longest key",
        &snapshot.get(Table::Data, &longest).map_err(sound(9))?.as_deref(),
        &Some(&[][..]),
    )?;
    same(
        10,
        "a large value",
        &snapshot.get(Table::Data, b"large").map_err(sound(10))?.as_deref(),
        &Some(&large[..]),
    )?;
    same(
        11,
        "the other table",
        &snapshot.get(Table::Temporal, b"large").map_err(sound(11))?.as_deref(),
        &None,
    )
}
