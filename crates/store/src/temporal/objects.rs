//! The temporal objects of a store.

use punctual_units::{Nanos, ObjectId, Share, Time};

use super::index::KeyIndex;
use super::{Sample, Slot};

/// A temporal object, as registered when the store is opened. Object i is fed by sensor i.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectSpec {
    /// Its key, 1 to 511 bytes, in the one keyspace of the store.
    pub key: Vec<u8>,
    /// Its absolute validity interval: how long a sample is fresh.
    pub avi: Nanos,
    /// How often its sensor speaks.
    pub period: Nanos,
    /// The longest value, in bytes.
    pub max_len: usize,
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
        }
    }
}

#[derive(Debug)]
struct Object {
    slot: Slot,
    avi: Nanos,
}

/// All temporal objects: found by key, read by id.
#[derive(Debug)]
pub(crate) struct Objects {
    index: KeyIndex,
    objects: Box<[Object]>,
}

impl Objects {
    /// Empty objects after `specs`; their slots hold values only if `values_in_memory`.
    ///
    /// # Errors
    /// A key that occurs twice.
    pub fn new(specs: &[ObjectSpec], values_in_memory: bool) -> Result<Objects, Box<[u8]>> {
        let index = KeyIndex::new(specs.iter().map(|spec| spec.key.as_slice().into()).collect())?;
        let object = |spec: &ObjectSpec| Object {
            slot: Slot::new(if values_in_memory { spec.max_len } else { 0 }),
            avi: spec.avi,
        };
        Ok(Objects {
            index,
            objects: specs.iter().map(object).collect(),
        })
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn ids(&self) -> impl Iterator<Item = ObjectId> + use<> {
        (0..self.objects.len() as u32).map(ObjectId)
    }

    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<ObjectId> {
        self.index.find(key)
    }

    pub fn key(&self, object: ObjectId) -> &[u8] {
        self.index.key(object)
    }

    /// Ids in ascending order of keys.
    pub fn ordered(&self) -> &[ObjectId] {
        self.index.ordered()
    }

    #[inline]
    pub fn slot(&self, object: ObjectId) -> Option<&Slot> {
        self.objects.get(object.index()).map(|object| &object.slot)
    }

    /// The part of all objects that are fresh at `now`; one if there are none.
    pub fn fresh_share(&self, now: Time) -> Share {
        let fresh = |object: &&Object| object.slot.sample().is_some_and(|sample| sample.age(now) <= object.avi);
        Share::of(self.objects.iter().filter(fresh).count(), self.objects.len())
    }
}

impl Sample {
    /// How old the sample is at `now`; [`Nanos::MAX`] where its instant is not known.
    pub fn age(&self, now: Time) -> Nanos {
        self.sampled_at.map_or(Nanos::MAX, |at| now.since(at))
    }
}
