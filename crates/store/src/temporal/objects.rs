//! The temporal objects of a store.

use std::borrow::Cow;

use punctual_units::{Made, Nanos, ObjectId, Share, Time};
use serde::{Deserialize, Serialize};

use super::created::Created;
use super::index::KeyIndex;
use super::{Installs, Overwritten, Sample, Slot};

/// A temporal object, as registered when the store is opened, or created later. Object i of the registered ones is fed
/// by sensor i.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectSpec {
    /// Its key, 1 to 511 bytes, in the one keyspace of the store.
    pub key: Vec<u8>,
    /// Its absolute validity interval: how long a sample is fresh.
    pub avi: Nanos,
    /// How often its sensor speaks.
    pub period: Nanos,
    /// The longest value, in bytes.
    pub max_len: usize,
    /// How many of its last values are kept in memory, see [`Store::history`](crate::Store::history); 1 for none but
    /// the latest, as is 0. Each takes `max_len` and 32 bytes from the start.
    #[serde(skip, default = "the_latest_only")]
    pub history: usize,
}

/// How much of an object's history its record tells: a setting of the run.
fn the_latest_only() -> usize {
    1
}

impl ObjectSpec {
    /// A number (`f64`) whose sensor speaks every `period`, fresh for two of these, so that one reading may be missed.
    ///
    /// ```
    /// use punctual_store::temporal::ObjectSpec;
    /// use punctual_units::Nanos;
    /// let battery = ObjectSpec::number("battery", Nanos::from_millis(100));
    /// assert_eq!((battery.avi, battery.max_len), (Nanos::from_millis(200), 8));
    /// ```
    pub fn number(key: impl AsRef<[u8]>, period: Nanos) -> ObjectSpec {
        ObjectSpec {
            key: key.as_ref().to_vec(),
            avi: period * 2,
            period,
            max_len: size_of::<f64>(),
            history: 1,
        }
    }

    /// The same, of which the last `values` values are kept.
    pub fn keeping(mut self, values: usize) -> ObjectSpec {
        self.history = values;
        self
    }
}

/// A temporal object that was created while the store is open, or was by an earlier run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Creation {
    /// Its name, the same on all nodes.
    pub made: Made,
    /// What it is.
    pub spec: ObjectSpec,
}

#[derive(Debug)]
pub(super) struct Object {
    pub slot: Slot,
    pub avi: Nanos,
    /// The longest value, in bytes, wherever it lives.
    pub value_max: usize,
}

impl Object {
    pub fn new(spec: &ObjectSpec, value_in_memory: bool) -> Object {
        // A history is in memory whatever the update mode.
        let max_len = if value_in_memory || spec.history > 1 {
            spec.max_len
        } else {
            0
        };
        Object {
            slot: Slot::keeping(spec.history, max_len),
            avi: spec.avi,
            value_max: spec.max_len,
        }
    }
}

/// All temporal objects: found by key, read by id. Those that were registered come first, and what is needed to find
/// them never changes; those that are created follow.
#[derive(Debug)]
pub(crate) struct Objects {
    index: KeyIndex,
    objects: Box<[Object]>,
    created: Created,
    installs: Installs,
}

impl Objects {
    /// Empty objects after `specs`, and room for `created_max` more; their slots hold values only if
    /// `values_in_memory`.
    ///
    /// # Errors
    /// A key that occurs twice.
    pub fn new(specs: &[ObjectSpec], values_in_memory: bool, created_max: usize) -> Result<Objects, Box<[u8]>> {
        let index = KeyIndex::new(specs.iter().map(|spec| spec.key.as_slice().into()).collect())?;
        let object = |spec| Object::new(spec, values_in_memory);
        Ok(Objects {
            index,
            objects: specs.iter().map(object).collect(),
            created: Created::new(created_max, values_in_memory),
            installs: Installs::default(),
        })
    }

    pub fn len(&self) -> usize {
        self.objects.len() + self.created.len()
    }

    pub fn ids(&self) -> impl Iterator<Item = ObjectId> + use<> {
        (0..self.len() as u32).map(ObjectId)
    }

    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<ObjectId> {
        match self.index.find(key) {
            None if self.created.len() > 0 => self.created.find(key).map(|at| self.created_id(at)),
            found => found,
        }
    }

    pub fn key(&self, object: ObjectId) -> &[u8] {
        match self.created_at(object) {
            None => self.index.key(object),
            Some(at) => self.created.key(at),
        }
    }

    /// The objects whose keys are `within`, in ascending order of keys. `within` tells of a key whether it lies before
    /// the range, in it or behind it.
    pub fn ordered(&self, within: impl Fn(&[u8]) -> std::cmp::Ordering) -> Cow<'_, [ObjectId]> {
        let place = |object: &ObjectId| within(self.key(*object));
        let registered = self.index.ordered();
        let begin = registered.partition_point(|object| place(object).is_lt());
        let end = registered.partition_point(|object| place(object).is_le());
        let registered = &registered[begin..end];
        if self.created.len() == 0 {
            return Cow::Borrowed(registered);
        }
        let created = (0..self.created.len()).map(|at| self.created_id(at));
        let created = created.filter(|object| place(object).is_eq());
        let mut all: Vec<ObjectId> = registered.iter().copied().chain(created).collect();
        all.sort_unstable_by_key(|object| self.key(*object));
        Cow::Owned(all)
    }

    #[inline]
    pub fn slot(&self, object: ObjectId) -> Option<&Slot> {
        Some(&self.get(object)?.slot)
    }

    #[inline]
    fn get(&self, object: ObjectId) -> Option<&Object> {
        match self.objects.get(object.index()) {
            Some(object) => Some(object),
            None => self.created.object(object.index() - self.objects.len()),
        }
    }

    /// How long its samples are fresh.
    pub fn avi(&self, object: ObjectId) -> Option<Nanos> {
        Some(self.get(object)?.avi)
    }

    /// The longest value that it takes, in bytes.
    pub fn value_max(&self, object: ObjectId) -> Option<usize> {
        Some(self.get(object)?.value_max)
    }

    /// What has been installed, and what reads are to see of it. One install at a time: within the mutex of the
    /// sensors.
    #[inline]
    pub fn installs(&self) -> &Installs {
        &self.installs
    }

    /// The latest value of a slot, counted as a read.
    #[inline]
    pub fn read(&self, slot: &Slot, value: &mut Vec<u8>) -> Option<Sample> {
        slot.count_read();
        self.at_some_cut(|cut| slot.read_at(cut, value))
    }

    /// What is known of the latest value of a slot.
    #[inline]
    pub fn sample(&self, slot: &Slot) -> Option<Sample> {
        self.at_some_cut(|cut| slot.sample_at(cut))
    }

    /// Repeats as often as two newer values are installed meanwhile.
    #[inline]
    fn at_some_cut<T>(&self, mut read: impl FnMut(u64) -> Result<T, Overwritten>) -> T {
        loop {
            if let Ok(found) = read(self.installs.cut()) {
                return found;
            }
        }
    }

    /// The part of all objects that are fresh at `now`; one if there are none.
    pub fn fresh_share(&self, now: Time) -> Share {
        let fresh = |object: &&Object| object.slot.sample().is_some_and(|sample| sample.age(now) <= object.avi);
        let all = self.objects.iter().chain(self.created.objects());
        Share::of(all.filter(fresh).count(), self.len())
    }

    /// The objects that were created.
    pub fn created(&self) -> &Created {
        &self.created
    }

    /// What `seq` of `object` counts from in its slot.
    pub fn first_seq(&self, object: ObjectId) -> u64 {
        self.created_at(object).map_or(0, |at| self.created.first_seq(at))
    }

    /// The object of that name.
    pub fn made(&self, made: Made) -> Option<ObjectId> {
        self.created.made(made).map(|at| self.created_id(at))
    }

    fn created_at(&self, object: ObjectId) -> Option<usize> {
        object.index().checked_sub(self.objects.len())
    }

    pub fn created_id(&self, at: usize) -> ObjectId {
        ObjectId((self.objects.len() + at) as u32)
    }
}

impl Sample {
    /// How old the sample is at `now`; [`Nanos::MAX`] where its instant is not known.
    pub fn age(&self, now: Time) -> Nanos {
        self.sampled_at.map_or(Nanos::MAX, |at| now.since(at))
    }
}
