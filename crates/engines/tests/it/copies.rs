//! A store that is given another one's records, image by image, has at each instant what the log says of the keys that
//! it has, whatever is written meanwhile and wherever it is opened again; images that would break this are refused.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use punctual_engines::lmdb::LmdbOptions;
use punctual_engines::{Lmdb, Memory};
use punctual_store::batch::{Image, WriteSet};
use punctual_store::engine::{Durability, Engine};
use punctual_store::{Store, StoreError, StoreOptions};
use punctual_testing::VirtualOs;
use punctual_units::Revision;

type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;
type Records = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    /// An entry comes into the log, and the source applies it.
    Entry(Changes),
    /// The joiner applies one entry that it lacks.
    Follow,
    /// The joiner is given the next image, of about so many bytes, after the entries before it.
    Image(usize),
    /// The joiner begins anew: its next image is from the first record on.
    Anew(usize),
    /// The joiner is closed and opened.
    Reopen,
}

fn changes() -> impl Strategy<Value = Changes> {
    let value = prop::option::weighted(0.7, vec(any::<u8>(), 0..20));
    btree_map(vec(0u8..4, 1..4), value, 0..6)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = || 1_usize..300;
    let step = prop_oneof![
        8 => changes().prop_map(Step::Entry),
        3 => Just(Step::Follow),
        6 => bytes().prop_map(Step::Image),
        1 => bytes().prop_map(Step::Anew),
        1 => Just(Step::Reopen),
    ];
    vec(step, 0..60)
}

fn replica<E: Engine>(engine: E) -> Store<E, VirtualOs> {
    let options = StoreOptions {
        replicated: true,
        ..StoreOptions::default()
    };
    Store::open(engine, VirtualOs::new(1), options).unwrap()
}

fn set(changes: &Changes) -> Vec<WriteSet> {
    vec![WriteSet {
        changes: changes.clone(),
        ..WriteSet::default()
    }]
}

/// A log, a source that is at its end, and what the records are at each revision.
struct Federation {
    source: Store<Memory, VirtualOs>,
    log: Vec<Changes>,
    states: Vec<Records>,
}

impl Federation {
    fn append(&mut self, changes: Changes) {
        let mut records = self.states.last().cloned().unwrap_or_default();
        for (key, value) in &changes {
            match value {
                Some(value) => records.insert(key.clone(), value.clone()),
                None => records.remove(key),
            };
        }
        self.states.push(records);
        self.log.push(changes);
        let at = Revision(self.log.len() as u64);
        self.source.apply(at, &set(&self.log[self.log.len() - 1])).unwrap();
    }

    /// Applies the entries that a store lacks up to `end`.
    fn follow<E: Engine>(&self, joiner: &Store<E, VirtualOs>, end: Revision) {
        for revision in joiner.revision().0 + 1..=end.0 {
            let changes = &self.log[revision as usize - 1];
            joiner.apply(Revision(revision), &set(changes)).unwrap();
        }
    }

    fn end(&self) -> Revision {
        Revision(self.log.len() as u64)
    }

    /// What a store shows is what the log says of the keys that it has.
    fn check<E: Engine>(&self, joiner: &Store<E, VirtualOs>) -> Result<(), TestCaseError> {
        let Image {
            revision,
            upto,
            records,
            ..
        } = joiner.image().unwrap();
        prop_assert_eq!(&upto, &joiner.upto());
        prop_assert_eq!(revision, joiner.revision());
        let state = match revision.0 {
            0 => Records::new(),
            at => self.states[at as usize - 1].clone(),
        };
        let here = state
            .into_iter()
            .filter(|(key, _)| upto.as_ref().is_none_or(|upto| key <= upto));
        prop_assert_eq!(records, here.collect::<Vec<_>>());
        Ok(())
    }
}

/// Gives `joiner` the next image, if it lacks records, or one from the first record on.
fn give<E: Engine>(federation: &Federation, joiner: &Store<E, VirtualOs>, anew: bool, bytes: usize) {
    let upto = joiner.upto();
    if upto.is_none() && (!anew || joiner.revision() >= federation.end()) {
        return;
    }
    let after = upto.filter(|_| !anew);
    let image = federation.source.image_from(after.as_deref(), bytes).unwrap();
    if after.is_some() {
        if image.revision > joiner.revision() {
            let early = joiner.install_image(&image);
            assert!(matches!(early, Err(StoreError::NotNext { .. })), "{early:?}");
        }
        federation.follow(joiner, image.revision);
    }
    joiner.install_image(&image).unwrap();
    if image.after.is_some() {
        let twice = joiner.install_image(&image);
        assert!(matches!(twice, Err(StoreError::Elsewhere { .. })), "{twice:?}");
    }
}

fn lmdb(directory: &std::path::Path) -> Lmdb {
    let options = LmdbOptions {
        durability: Durability::Volatile,
        quota: 4 << 20,
        readers_max: 8,
        ..LmdbOptions::default()
    };
    options.open(directory).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { ..ProptestConfig::default() })]

    #[test]
    fn what_is_here_is_what_the_log_says(steps in steps()) {
        let directory = punctual_testing::shared_folder();
        let mut federation = Federation { source: replica(Memory::default()), log: Vec::new(), states: Vec::new() };
        let mut joiner = replica(lmdb(directory.path()));
        federation.append(BTreeMap::from([(vec![3], Some(vec![1]))]));
        // It has been away: what it has is old, and the log no longer has what follows.
        for step in [Step::Anew(1)].into_iter().chain(steps) {
            match step {
                Step::Entry(changes) => federation.append(changes),
                Step::Follow if joiner.revision() < federation.end() => {
                    federation.follow(&joiner, joiner.revision().next());
                }
                Step::Follow => {}
                Step::Image(bytes) => give(&federation, &joiner, false, bytes),
                Step::Anew(bytes) => give(&federation, &joiner, true, bytes),
                Step::Reopen => {
                    drop(joiner);
                    joiner = replica(lmdb(directory.path()));
                }
            }
            federation.check(&joiner)?;
        }
        // A byte more than a record each time: the copy ends.
        for _ in 0..200 {
            give(&federation, &joiner, false, 1);
        }
        prop_assert_eq!(joiner.upto(), None);
        federation.follow(&joiner, federation.end());
        federation.check(&joiner)?;
        prop_assert_eq!(joiner.image().unwrap(), federation.source.image().unwrap());
    }
}

#[test]
fn a_part_is_no_store_of_its_own() {
    let directory = punctual_testing::shared_folder();
    let (source, joiner) = (replica(Memory::default()), replica(lmdb(directory.path())));
    let entry = BTreeMap::from([
        (b"a".to_vec(), Some(b"1".to_vec())),
        (b"b".to_vec(), Some(b"2".to_vec())),
    ]);
    source.apply(Revision(1), &set(&entry)).unwrap();
    joiner.install_image(&source.image_from(None, 1).unwrap()).unwrap();
    assert_eq!(joiner.upto().as_deref(), Some(&b"a"[..]));
    drop(joiner);
    let opened = Store::open(lmdb(directory.path()), VirtualOs::new(1), StoreOptions::default());
    let error = opened.map(drop).unwrap_err();
    assert!(matches!(error, StoreError::Part { .. }), "{error}");
    // As a replica it goes on where it was.
    let joiner = replica(lmdb(directory.path()));
    let rest = source.image_from(joiner.upto().as_deref(), usize::MAX).unwrap();
    assert_eq!(rest.records, [(b"b".to_vec(), b"2".to_vec())]);
    joiner.install_image(&rest).unwrap();
    assert_eq!(joiner.image().unwrap(), source.image().unwrap());
    drop(joiner);
    Store::open(lmdb(directory.path()), VirtualOs::new(1), StoreOptions::default()).unwrap();
}
