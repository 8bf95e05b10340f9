//! Temporal objects that are created, or registered, while the store is open.
//!
//! The table has a fixed number of entries. An entry is filled once and never emptied, so readers need no lock: they
//! find a key in a table of words, as they do in the index of the registered objects.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use punctual_units::ObjectName;

use super::index::hash;
use super::objects::{Creation, Object, ObjectSpec};

/// The created and registered objects, by index.
#[derive(Debug)]
pub(crate) struct CreatedObjects {
    len: AtomicUsize,
    places: Box<[OnceLock<CreatedObject>]>,
    /// A key's hash above its index plus one; 0: empty. At most half full, the length is a power of two.
    table: Box<[AtomicU64]>,
    names: Mutex<BTreeMap<ObjectName, usize>>,
    values_in_memory: bool,
}

#[derive(Debug)]
struct CreatedObject {
    spec: ObjectSpec,
    object: Object,
    /// Base of the object's update numbers: when another boot of its source creates the object again, it goes on in the
    /// same slot, and its updates begin at 1.
    first_seq: AtomicU64,
}

impl CreatedObjects {
    pub fn new(room: usize, values_in_memory: bool) -> CreatedObjects {
        CreatedObjects {
            len: AtomicUsize::new(0),
            places: (0..room).map(|_| OnceLock::new()).collect(),
            table: (0..(2 * room + 1).next_power_of_two())
                .map(|_| AtomicU64::new(0))
                .collect(),
            names: Mutex::default(),
            values_in_memory,
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// Most objects that may be created.
    pub fn room(&self) -> usize {
        self.places.len()
    }

    pub fn find(&self, key: &[u8]) -> Option<usize> {
        let hash = hash(key);
        let mut at = hash as usize & (self.table.len() - 1);
        // Ends at an empty entry: at least half of the table is empty.
        loop {
            let entry = self.table[at].load(Ordering::Acquire);
            let place = (entry as u32).checked_sub(1)? as usize;
            if (entry >> 32) as u32 == hash && self.key(place) == key {
                return Some(place);
            }
            at = (at + 1) & (self.table.len() - 1);
        }
    }

    pub fn key(&self, at: usize) -> &[u8] {
        self.places[at].get().map_or(&[], |place| &place.spec.key)
    }

    pub(super) fn object(&self, at: usize) -> Option<&Object> {
        self.places.get(at)?.get().map(|place| &place.object)
    }

    pub fn first_seq(&self, at: usize) -> u64 {
        let place = self.places.get(at).and_then(OnceLock::get);
        place.map_or(0, |place| place.first_seq.load(Ordering::Acquire))
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.places
            .iter()
            .map_while(|place| place.get().map(|place| &place.object))
    }

    /// Index of the object with this name.
    pub fn made(&self, made: ObjectName) -> Option<usize> {
        self.names().get(&made).copied()
    }

    /// Name and specification of the object with `key`.
    pub fn creation(&self, key: &[u8]) -> Option<Creation> {
        let at = self.find(key)?;
        let names = self.names();
        let (made, _) = names.iter().find(|(_, place)| **place == at)?;
        Some(Creation {
            made: *made,
            spec: self.places[at].get()?.spec.clone(),
        })
    }

    /// Key and name of each created object.
    pub fn names_by_key(&self) -> Vec<(Vec<u8>, ObjectName)> {
        let names = self.names();
        names.iter().map(|(made, at)| (self.key(*at).to_vec(), *made)).collect()
    }

    /// All created objects, by index.
    pub fn all(&self) -> Vec<Creation> {
        let keys = (0..self.len()).map(|at| self.key(at));
        keys.filter_map(|key| self.creation(key)).collect()
    }

    /// Adds an object, or gives the object with that key its next name. One caller at a time, which has checked that
    /// there is room.
    pub fn add(&self, creation: &Creation) {
        let Creation { made, spec } = creation;
        let mut names = self.names();
        if let Some(at) = self.find(&spec.key) {
            names.retain(|_, place| *place != at);
            names.insert(*made, at);
            if let Some(place) = self.places[at].get() {
                let last = place.object.slot.sample().map_or(0, |sample| sample.seq.0);
                place.first_seq.store(last, Ordering::Release);
            }
            return;
        }
        let at = self.add_unnamed(spec);
        names.insert(*made, at);
    }

    /// Adds an object that has no name beside its key; returns its index. One caller at a time, which has checked that
    /// there is room, and that the key is new.
    pub fn add_unnamed(&self, spec: &ObjectSpec) -> usize {
        let at = self.len();
        let place = CreatedObject {
            spec: spec.clone(),
            object: Object::new(spec, self.values_in_memory),
            first_seq: AtomicU64::new(0),
        };
        if self.places[at].set(place).is_err() {
            unreachable!("places are filled in order, by one thread at a time");
        }
        let hash = hash(&spec.key);
        let mut entry = hash as usize & (self.table.len() - 1);
        while self.table[entry].load(Ordering::Relaxed) != 0 {
            entry = (entry + 1) & (self.table.len() - 1);
        }
        self.table[entry].store(u64::from(hash) << 32 | (at as u64 + 1), Ordering::Release);
        self.len.store(at + 1, Ordering::Release);
        at
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<ObjectName, usize>> {
        // A hold makes a single insertion or removal: a panic elsewhere leaves nothing half done.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
