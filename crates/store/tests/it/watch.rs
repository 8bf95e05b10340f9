//! Watches against a model, in virtual time and beside real threads.

use std::collections::{BTreeMap, VecDeque};

use proptest::collection::vec;
use proptest::prelude::*;
use punctual_engines::Memory;
use punctual_os::{LinuxOs, Os, Thread};
use punctual_store::batch::BatchBounds;
use punctual_store::temporal::{ObjectSpec, Sample};
use punctual_store::watch::{Change, WATCHES_MAX, Watch, WatchTarget};
use punctual_store::{Deadline, Store, StoreError, StoreOptions, Together, UpdateMode, WriteTransaction};
use punctual_testing::VirtualOs;
use punctual_units::{Clock, Nanos, ObjectId, Revision, SensorId, Seq, Time};

fn options(update_mode: UpdateMode) -> StoreOptions {
    let spec = |key: &str| ObjectSpec::number(key).period(Nanos::from_millis(10));
    StoreOptions {
        objects: vec![spec("b/object"), spec("c")],
        update_mode,
        ..StoreOptions::default()
    }
}

/// What a watch tells, owned.
#[derive(Clone, Debug, PartialEq)]
enum OwnedChange {
    Put(Vec<u8>),
    Deleted(Vec<u8>),
    Updated(Vec<u8>, Seq),
    Missed(u64),
}

impl From<Change<'_>> for OwnedChange {
    fn from(change: Change<'_>) -> OwnedChange {
        match change {
            Change::Put { key } => OwnedChange::Put(key.to_vec()),
            Change::Deleted { key } | Change::Expired { key } => OwnedChange::Deleted(key.to_vec()),
            Change::Expiry { key, .. } => unreachable!("{key:?} gets no expiry"),
            Change::Updated { key, sample } => OwnedChange::Updated(key.to_vec(), sample.seq),
            Change::Missed { changes } => OwnedChange::Missed(changes),
        }
    }
}

#[derive(Clone, Debug)]
enum Act {
    Put(Vec<u8>),
    Delete(Vec<u8>),
    Commit(bool),
    Update(u8),
    Drain(usize),
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![&b"a"[..], b"b", b"b/1", b"b/2", b"d"]).prop_map(<[u8]>::to_vec)
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => key().prop_map(Act::Put),
        2 => key().prop_map(Act::Delete),
        3 => prop::bool::weighted(0.8).prop_map(Act::Commit),
        3 => (0u8..2).prop_map(Act::Update),
        2 => (0usize..3).prop_map(Act::Drain),
    ]
}

/// A queue of one kind, as its rules are written: what does not fit is counted where it is missing.
#[derive(Default)]
struct Queue {
    told: VecDeque<OwnedChange>,
    held: usize,
}

impl Queue {
    fn put(&mut self, told: OwnedChange, capacity: usize) {
        if self.held < capacity {
            self.held += 1;
            self.told.push_back(told);
        } else if let Some(OwnedChange::Missed(count)) = self.told.back_mut() {
            *count += 1;
        } else {
            self.told.push_back(OwnedChange::Missed(1));
        }
    }

    fn take(&mut self) -> Option<OwnedChange> {
        let told = self.told.pop_front()?;
        self.held -= usize::from(!matches!(told, OwnedChange::Missed(_)));
        Some(told)
    }
}

type Wants = fn(&[u8]) -> bool;
type Keys = BTreeMap<Vec<u8>, ()>;

proptest! {
    #[test]
    fn watches_tell_what_a_model_tells(capacity in 1usize..4, acts in vec(act(), 0..80), memory_first: bool) {
        let update_mode = if memory_first { UpdateMode::MemoryFirst } else { UpdateMode::Transaction };
        let store = Store::open(Memory::default(), VirtualOs::new(1), options(update_mode)).unwrap();
        let watched: [(WatchTarget<'_>, Wants); 4] = [
            (WatchTarget::Key(b"b"), |key| key == b"b"),
            (WatchTarget::Prefix(b"b/"), |key| key.starts_with(b"b/")),
            (WatchTarget::Prefix(b""), |_| true),
            (WatchTarget::Object(ObjectId(1)), |key| key == b"c"),
        ];
        let watches = watched.map(|(watched, wants)| (store.watch(watched, capacity).unwrap(), wants));
        // Plain and temporal apart; the order between them is open.
        let mut watches = watches.map(|(watch, wants)| (watch, wants, [Queue::default(), Queue::default()]));
        let mut records: Keys = BTreeMap::new();
        let mut open: Option<(_, Vec<OwnedChange>, Keys)> = None;
        let mut seqs = [0u64; 2];
        let begin = |records: &Keys| {
            (store.write_transaction(Deadline::NONE).unwrap(), Vec::new(), records.clone())
        };
        for act in acts {
            match act {
                Act::Put(key) => {
                    let (transaction, changes, view) = open.get_or_insert_with(|| begin(&records));
                    transaction.put(&key, b"1").unwrap();
                    changes.push(OwnedChange::Put(key.clone()));
                    view.insert(key, ());
                }
                Act::Delete(key) => {
                    let (transaction, changes, view) = open.get_or_insert_with(|| begin(&records));
                    if transaction.delete(&key).unwrap() {
                        changes.push(OwnedChange::Deleted(key.clone()));
                    }
                    view.remove(&key);
                }
                Act::Commit(commit) => {
                    let Some((transaction, changes, view)) = open.take() else { continue };
                    if !commit {
                        transaction.abort();
                        continue;
                    }
                    transaction.commit().unwrap();
                    records = view;
                    for told in changes {
                        let (OwnedChange::Put(key) | OwnedChange::Deleted(key)) = &told else { continue };
                        for (_, wants, queues) in &mut watches {
                            if wants(key) {
                                queues[0].put(told.clone(), capacity);
                            }
                        }
                    }
                }
                Act::Update(object) => {
                    // An update is a write transaction there.
                    if !memory_first && open.is_some() {
                        continue;
                    }
                    store.offer_next(SensorId(u32::from(object)), None, b"1").unwrap();
                    store.install_pending(1).unwrap();
                    let seq = &mut seqs[usize::from(object)];
                    *seq += 1;
                    let key = [&b"b/object"[..], b"c"][usize::from(object)];
                    for (_, wants, queues) in &mut watches {
                        if wants(key) {
                            queues[1].put(OwnedChange::Updated(key.to_vec(), Seq(*seq)), capacity);
                        }
                    }
                }
                Act::Drain(changes) => {
                    for (watch, _, queues) in &mut watches {
                        for _ in 0..changes {
                            prop_assert!(takes_one_of(watch, queues)?);
                        }
                    }
                }
            }
        }
        drop(open);
        for (watch, _, queues) in &mut watches {
            for _ in 0..acts_max(queues) {
                prop_assert!(takes_one_of(watch, queues)?);
            }
            prop_assert_eq!(watch.take(), None);
        }
    }
}

fn acts_max(queues: &[Queue; 2]) -> usize {
    queues[0].told.len() + queues[1].told.len()
}

/// Takes one change, which must be the next of one of the model's queues.
fn takes_one_of(watch: &mut Watch<VirtualOs>, queues: &mut [Queue; 2]) -> Result<bool, TestCaseError> {
    let Some(told) = watch.take().map(OwnedChange::from) else {
        return Ok(acts_max(queues) == 0);
    };
    let next = queues.iter().position(|queue| queue.told.front() == Some(&told));
    prop_assert!(next.is_some(), "{:?} is not the next of either kind", told);
    next.map(|next| queues[next].take());
    Ok(true)
}

/// Virtual time: a watch sleeps until the very install, or until its deadline.
#[test]
fn a_watch_is_woken_by_the_install_and_not_before() {
    for seed in 0..50 {
        let os = VirtualOs::new(seed);
        let store = Store::open(Memory::default(), os.clone(), options(UpdateMode::MemoryFirst)).unwrap();
        let at = |ms: u64| Time(ms * 1_000_000);
        let watches = || {
            let mut watch = store.watch(WatchTarget::Object(ObjectId(0)), 4).unwrap();
            assert_eq!(watch.wait(at(5)), None, "nothing has changed");
            assert!(os.now() >= at(5));
            let told = watch.wait(Time::MAX).map(OwnedChange::from);
            assert_eq!(told, Some(OwnedChange::Updated(b"b/object".to_vec(), Seq(1))));
            assert!(os.now() >= at(10));
        };
        let installs = || {
            os.sleep_until(at(10));
            let value = [1];
            let pair = [ObjectId(0), ObjectId(1)].map(|object| Together {
                object,
                sampled_at: None,
                value: &value,
            });
            store.install_together(&pair).unwrap();
        };
        os.together(vec![Thread::new("watches", watches), Thread::new("installs", installs)]);
    }
}

/// Virtual time: a wait without bound ends as the watch does, and the notes before that are taken first.
#[test]
fn a_watch_ends_from_another_thread_behind_its_notes() {
    for seed in 0..50 {
        let os = VirtualOs::new(seed);
        let store = Store::open(Memory::default(), os.clone(), StoreOptions::default()).unwrap();
        let mut watch = store.watch(WatchTarget::Key(b"key"), 4).unwrap();
        let end = watch.ender();
        let watches = || {
            let told = watch.wait(Time::MAX).map(OwnedChange::from);
            assert_eq!(told, Some(OwnedChange::Put(b"key".to_vec())));
            assert_eq!(watch.wait(Time::MAX), None);
            assert!(watch.is_ended());
        };
        let ends = || {
            store.put(b"key", b"1").unwrap();
            os.sleep(Nanos(seed % 2));
            end();
            store.put(b"key", b"2").unwrap();
        };
        os.together(vec![Thread::new("watches", watches), Thread::new("ends", ends)]);
    }
}

/// A transaction that had begun before the watch is over when the watch begins.
#[test]
fn no_change_falls_between_a_read_and_the_watch_before_it() {
    for seed in 0..50 {
        let os = VirtualOs::new(seed);
        let store = Store::open(Memory::default(), os.clone(), StoreOptions::default()).unwrap();
        let writes = || {
            let mut transaction = store.write_transaction(Deadline::NONE).unwrap();
            os.sleep(Nanos::from_millis(3));
            transaction.put(b"key", b"1").unwrap();
            os.sleep(Nanos::from_millis(3));
            transaction.commit().unwrap();
        };
        let watches = || {
            os.sleep(Nanos::from_millis(1));
            let mut watch = store.watch(WatchTarget::Key(b"key"), 1).unwrap();
            let seen = store.get(b"key").unwrap().is_some();
            let told = watch.wait(os.now() + Nanos::from_millis(100)).is_some();
            assert!(seen || told, "the change was neither read nor told");
        };
        os.together(vec![Thread::new("writes", writes), Thread::new("watches", watches)]);
    }
}

/// Beside real threads: each install is told or missed, and the last value is read after the last note.
#[test]
fn each_install_is_told_or_missed() {
    const INSTALLS: u64 = 20_000;
    let store = Store::open(Memory::default(), LinuxOs, options(UpdateMode::MemoryFirst)).unwrap();
    let watch = || store.watch(WatchTarget::Prefix(b"c"), 16).unwrap();
    let watches = [watch(), watch()];
    std::thread::scope(|scope| {
        for mut watch in watches {
            let store = &store;
            scope.spawn(move || {
                let (mut accounted, mut last, mut value) = (0, 0, Vec::new());
                while accounted < INSTALLS {
                    match watch.wait(Time::MAX).unwrap() {
                        Change::Updated {
                            key,
                            sample: Sample { seq, .. },
                        } => {
                            assert_eq!(key, b"c");
                            accounted += 1;
                            assert_eq!(seq.0, accounted, "in order, after what was missed");
                            let read = store.read(ObjectId(1), &mut value).unwrap().unwrap().seq;
                            assert!(read >= seq && read.0 >= last, "a note of a value that is not there yet");
                            last = read.0;
                        }
                        Change::Missed { changes } => accounted += changes,
                        other => panic!("{other:?}"),
                    }
                }
                assert_eq!(store.read(ObjectId(1), &mut value).unwrap().unwrap().seq, Seq(INSTALLS));
                assert_eq!(watch.take(), None);
            });
        }
        for number in 1..=INSTALLS {
            store.offer(SensorId(1), Seq(number), Time(number), b"1").unwrap();
            store.install_pending(1).unwrap();
        }
    });
}

#[test]
fn there_are_so_many_watches_and_no_more_until_one_is_dropped() {
    let store = Store::open(Memory::default(), VirtualOs::new(1), StoreOptions::default()).unwrap();
    let mut watches: Vec<_> = (0..WATCHES_MAX)
        .map(|_| store.watch(WatchTarget::Key(b"a"), 1).unwrap())
        .collect();
    assert!(matches!(
        store.watch(WatchTarget::Key(b"a"), 1),
        Err(StoreError::TooManyWatches)
    ));
    drop(watches.swap_remove(7));
    let mut late = store.watch(WatchTarget::Key(b"b"), 0).unwrap();
    store.put(b"b", b"1").unwrap();
    store.put(b"a", b"1").unwrap();
    assert_eq!(late.take(), Some(Change::Put { key: b"b" }));
    assert!(
        watches
            .iter_mut()
            .all(|watch| watch.take() == Some(Change::Put { key: b"a" }))
    );
    assert!(matches!(
        store.watch(WatchTarget::Object(ObjectId(0)), 1),
        Err(StoreError::UnknownObject(_))
    ));
}

#[test]
fn a_replica_tells_what_is_applied() {
    let replica = StoreOptions {
        replicated: true,
        ..StoreOptions::default()
    };
    let store = Store::open(Memory::default(), VirtualOs::new(1), replica).unwrap();
    let mut watch = store.watch(WatchTarget::Prefix(b""), 8).unwrap();
    let mut batch = store.batch(BatchBounds::default()).unwrap();
    for value in [b"1", b"2"] {
        let mut transaction = batch.transaction(Deadline::NONE).unwrap();
        transaction.put(b"a", value).unwrap();
        transaction.put(b"b", value).unwrap();
        transaction.keep().unwrap();
    }
    let sets = batch.close();
    assert_eq!(watch.take(), None);
    store.apply(Revision(1), &sets).unwrap();
    assert_eq!(watch.take(), Some(Change::Put { key: b"a" }));
    assert_eq!(watch.take(), Some(Change::Put { key: b"b" }));
    let mut image = store.image().unwrap();
    image.revision = Revision(2);
    store.install_image(&image).unwrap();
    assert_eq!(watch.take(), Some(Change::Missed { changes: 1 }));
    assert_eq!(watch.take(), None);
}

/// A record that is over is noted as expired before its key is used again, and changes have their transaction's label.
#[test]
fn expiries_and_labels_are_noted() {
    let os = VirtualOs::new(1);
    let store = Store::open(Memory::default(), os.clone(), options(UpdateMode::Transaction)).unwrap();
    let mut watch = store.watch(WatchTarget::Prefix(b""), 16).unwrap();
    let mut labelled = |label, act: &dyn Fn(&mut WriteTransaction<'_, Memory, VirtualOs>)| {
        let mut transaction = store.write_transaction(Deadline::NONE).unwrap();
        transaction.label(label);
        act(&mut transaction);
        transaction.commit().unwrap();
        let mut notes = Vec::new();
        while let Some((change, label)) = watch.wait_labelled(Time::ZERO) {
            let kind = format!("{change:?}");
            let kind = kind.split(' ').next().unwrap_or_default();
            notes.push((
                format!("{kind} {label}"),
                matches!(change, Change::Expiry { expires: true, .. }),
            ));
        }
        notes
    };
    let second = Nanos::from_secs(1);
    let note = |kind: &str, expires| (kind.to_owned(), expires);
    let notes = labelled(7, &|transaction| transaction.put_for(b"a", b"1", second).unwrap());
    assert_eq!(notes, [note("Put 7", false), note("Expiry 7", true)]);
    let notes = labelled(8, &|transaction| {
        assert!(transaction.set_life(b"a", None).unwrap());
        assert!(transaction.set_life(b"a", Some(second)).unwrap());
        assert!(!transaction.set_life(b"b", None).unwrap());
    });
    assert_eq!(notes, [note("Expiry 8", false), note("Expiry 8", true)]);
    os.sleep(second);
    let notes = labelled(9, &|transaction| transaction.put(b"a", b"2").unwrap());
    assert!(
        notes.ends_with(&[note("Expired 0", false), note("Put 9", false)]),
        "{notes:?}"
    );
    let notes = labelled(0, &|transaction| assert!(transaction.delete(b"a").unwrap()));
    assert_eq!(notes, [note("Deleted 0", false)]);
}
