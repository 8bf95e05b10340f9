//! The temporal objects of a store.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_units::{Nanos, ObjectId, ObjectName, Share, Time};
use serde::{Deserialize, Serialize};

use super::created::CreatedObjects;
use super::index::KeyIndex;
use super::{Installs, Overwritten, Sample, Slot};

/// Specification of a temporal object that is registered when the store is opened, or created later. Sensor i feeds
/// object i of the registered ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectSpec {
    /// Key in the one keyspace of the store, 1 to 511 bytes.
    pub key: Vec<u8>,
    /// Absolute validity interval: how long a sample is fresh.
    pub avi: Nanos,
    /// Time between two readings of its sensor.
    pub period: Nanos,
    /// The longest value, in bytes.
    pub max_len: usize,
    /// Number of last values kept in memory, see [`Store::history`](crate::Store::history); 0 and 1 keep the latest
    /// only. Each takes `max_len` and 32 bytes from the start.
    #[serde(skip, default = "the_latest_only")]
    pub history: usize,
}

/// The history of an object read from a record: how much is kept is a setting of the run.
fn the_latest_only() -> usize {
    1
}

impl ObjectSpec {
    /// A number (`f64`). Say how long a reading is valid, how often its sensor reports, or both. Without the former, it
    /// is valid for two periods, so that one reading may be missed; without the latter, the sensor reports twice in
    /// that time.
    ///
    /// ```
    /// use punctual_store::temporal::ObjectSpec;
    /// use punctual_units::Nanos;
    /// let ms = Nanos::from_millis;
    /// let battery = ObjectSpec::number("battery").period(ms(100));
    /// assert_eq!((battery.avi, battery.max_len), (ms(200), 8));
    /// let lidar = ObjectSpec::number("lidar").valid_for(ms(200)).period(ms(50));
    /// assert_eq!((lidar.avi, lidar.period), (ms(200), ms(50)));
    /// ```
    pub fn number(key: impl AsRef<[u8]>) -> ObjectSpec {
        ObjectSpec::bytes(key, size_of::<f64>())
    }

    /// As [`number`](ObjectSpec::number), for values of at most `max_len` bytes.
    pub fn bytes(key: impl AsRef<[u8]>, max_len: usize) -> ObjectSpec {
        ObjectSpec {
            key: key.as_ref().to_vec(),
            avi: Nanos::ZERO,
            period: Nanos::ZERO,
            max_len,
            history: 1,
        }
    }

    /// Sets for how long a reading is fresh.
    pub fn valid_for(mut self, avi: Nanos) -> ObjectSpec {
        self.avi = avi;
        if self.period == Nanos::ZERO {
            self.period = Nanos(avi.0 / 2);
        }
        self
    }

    /// Sets the time between two readings of the sensor.
    pub fn period(mut self, period: Nanos) -> ObjectSpec {
        self.period = period;
        if self.avi == Nanos::ZERO {
            self.avi = period * 2;
        }
        self
    }

    /// This object with the last `values` values kept.
    pub fn keeping(mut self, values: usize) -> ObjectSpec {
        self.history = values;
        self
    }
}

/// A temporal object that was created while the store is open, or by an earlier run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Creation {
    /// The object's name, the same on all nodes.
    pub made: ObjectName,
    /// Key, validity, period and length.
    pub spec: ObjectSpec,
}

#[derive(Debug)]
pub(super) struct Object {
    pub slot: Slot,
    pub avi: Nanos,
    /// The longest value, in bytes, whether kept in the slot or in the engine.
    pub value_max: usize,
}

impl Object {
    pub fn new(spec: &ObjectSpec, value_in_memory: bool) -> Object {
        // A history is kept in memory in every update mode.
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

/// All temporal objects: found by key, read by id. The registered ones come first, and their index never changes; the
/// created ones follow.
#[derive(Debug)]
pub(crate) struct Objects {
    index: KeyIndex,
    objects: Box<[Object]>,
    /// When each registered object's latest value ceases to be fresh; 0 without one. A scan of these touches a tenth of
    /// the memory that one of the slots does.
    stale_from: Box<[AtomicU64]>,
    created: CreatedObjects,
    installs: Installs,
}

impl Objects {
    /// Empty objects for `specs`, and room for `created_max` more; their slots hold values only if `values_in_memory`.
    ///
    /// # Errors
    /// The key that occurs twice.
    pub fn new(specs: &[ObjectSpec], values_in_memory: bool, created_max: usize) -> Result<Objects, Box<[u8]>> {
        let index = KeyIndex::new(specs.iter().map(|spec| spec.key.as_slice().into()).collect())?;
        let object = |spec| Object::new(spec, values_in_memory);
        Ok(Objects {
            index,
            objects: specs.iter().map(object).collect(),
            stale_from: specs.iter().map(|_| AtomicU64::new(0)).collect(),
            created: CreatedObjects::new(created_max, values_in_memory),
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

    #[inline]
    pub fn key(&self, object: ObjectId) -> &[u8] {
        match self.created_at(object) {
            None => self.index.key(object),
            Some(at) => self.created.key(at),
        }
    }

    /// The objects whose keys are `within`, in ascending order of keys. `within` says whether a key lies before the
    /// range, in it or behind it.
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

    /// How long the object's samples are fresh.
    pub fn avi(&self, object: ObjectId) -> Option<Nanos> {
        Some(self.get(object)?.avi)
    }

    /// The longest value of the object, in bytes.
    pub fn value_max(&self, object: ObjectId) -> Option<usize> {
        Some(self.get(object)?.value_max)
    }

    /// The counter of installs of several objects, which are made one at a time: within the sensors' mutex.
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

    /// Sample of the latest value of a slot; not counted as a read.
    #[inline]
    pub fn sample(&self, slot: &Slot) -> Option<Sample> {
        self.at_some_cut(|cut| slot.sample_at(cut))
    }

    /// Repeats the read when two newer values are installed meanwhile, at a newer cut.
    #[inline]
    fn at_some_cut<T>(&self, mut read: impl FnMut(u64) -> Result<T, Overwritten>) -> T {
        loop {
            if let Ok(found) = read(self.installs.cut()) {
                return found;
            }
        }
    }

    /// Takes note of the sample that was installed in an object. One caller at a time for each object.
    #[inline]
    pub fn note(&self, object: ObjectId, sample: Sample) {
        let registered = self.objects.get(object.index());
        if let Some((Object { avi, .. }, stale_from)) = registered.zip(self.stale_from.get(object.index())) {
            let end = |at: Time| at.0.saturating_add(avi.0).saturating_add(1);
            stale_from.store(sample.sampled_at.map_or(0, end), Ordering::Relaxed);
        }
    }

    /// The share of all objects that are fresh at `now`; 1 if there are none.
    pub fn fresh_share(&self, now: Time) -> Share {
        let registered = self.stale_from.iter();
        let registered = registered.filter(|end| now.0 < end.load(Ordering::Relaxed));
        let fresh = |object: &&Object| object.slot.sample().is_some_and(|sample| sample.age(now) <= object.avi);
        let created = self.created.objects().filter(fresh);
        Share::of(registered.count() + created.count(), self.len())
    }

    pub fn created(&self) -> &CreatedObjects {
        &self.created
    }

    /// Base that is added to the numbers of the object's updates in its slot.
    pub fn first_seq(&self, object: ObjectId) -> u64 {
        self.created_at(object).map_or(0, |at| self.created.first_seq(at))
    }

    /// The object with that name.
    pub fn made(&self, made: ObjectName) -> Option<ObjectId> {
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
    /// Age of the sample at `now`; [`Nanos::MAX`] if its instant is unknown.
    pub fn age(&self, now: Time) -> Nanos {
        self.sampled_at.map_or(Nanos::MAX, |at| now.since(at))
    }
}
