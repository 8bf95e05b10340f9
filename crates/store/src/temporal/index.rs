//! The index from keys to temporal objects, which costs next to nothing for the keys of plain records.
//!
//! Every `get` must know whether its key is a temporal object's. The keys are fixed when the store is opened, so a
//! table with open addressing, at most half full, answers with one multiplication per eight bytes of key and one load.
//! No key that arrives later can lengthen a probe: no need for a keyed hash. Before that, the length and the first byte
//! rule out most plain keys: the keys of sensors often begin with a word of their own.

use punctual_units::ObjectId;

const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15; // 2^64 / golden ratio: Knuth's multiplicative hashing (TAOCP 3, 6.4)

/// The keys of all objects that were registered when the store was opened.
#[derive(Debug)]
pub(crate) struct KeyIndex {
    keys: Box<[Box<[u8]>]>,
    /// Ids in ascending order of keys.
    ordered: Box<[ObjectId]>,
    /// Entries: hash and id of a key, or nothing. The length is a power of two.
    table: Box<[Option<(u32, u32)>]>,
    /// Bit sets: the lengths of all keys, modulo 64, and their first bytes.
    lengths: u64,
    firsts: [u64; 4],
}

impl KeyIndex {
    /// An index of `keys`; the i-th key belongs to object i.
    ///
    /// # Errors
    /// The first key that occurs twice.
    pub fn new(keys: Box<[Box<[u8]>]>) -> Result<KeyIndex, Box<[u8]>> {
        let mut ordered: Box<[ObjectId]> = (0..keys.len() as u32).map(ObjectId).collect();
        ordered.sort_unstable_by_key(|id| &keys[id.index()]);
        if let Some(pair) = ordered
            .windows(2)
            .find(|pair| keys[pair[0].index()] == keys[pair[1].index()])
        {
            return Err(keys[pair[0].index()].clone());
        }
        let mut table = vec![None; (2 * keys.len() + 1).next_power_of_two()].into_boxed_slice();
        for (id, key) in keys.iter().enumerate() {
            let hash = hash(key);
            let mut at = hash as usize & (table.len() - 1);
            while table[at].is_some() {
                at = (at + 1) & (table.len() - 1);
            }
            table[at] = Some((hash, id as u32));
        }
        let (mut lengths, mut firsts) = (0, [0; 4]);
        for key in &keys {
            lengths |= 1 << (key.len() % 64);
            if let Some(first) = key.first() {
                firsts[usize::from(first / 64)] |= 1 << (first % 64);
            }
        }
        Ok(KeyIndex {
            keys,
            ordered,
            table,
            lengths,
            firsts,
        })
    }

    /// Whether `key` may be an object's, by its length and first byte. False positives are possible.
    #[inline]
    fn may_have(&self, key: &[u8]) -> bool {
        let first = key.first().copied().unwrap_or_default();
        let begins = key.is_empty() || self.firsts[usize::from(first / 64)] >> (first % 64) & 1 == 1;
        self.lengths >> (key.len() % 64) & 1 == 1 && begins
    }

    /// The object with `key`; `None` if it is not a registered object's.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<ObjectId> {
        if self.may_have(key) { self.look_up(key) } else { None }
    }

    fn look_up(&self, key: &[u8]) -> Option<ObjectId> {
        let hash = hash(key);
        let mut at = hash as usize & (self.table.len() - 1);
        // Ends at an empty entry: at least half of the table is empty.
        while let Some((entry, id)) = self.table[at] {
            if entry == hash && *self.keys[id as usize] == *key {
                return Some(ObjectId(id));
            }
            at = (at + 1) & (self.table.len() - 1);
        }
        None
    }

    #[inline]
    pub fn key(&self, object: ObjectId) -> &[u8] {
        &self.keys[object.index()]
    }

    /// All objects in ascending order of their keys.
    pub fn ordered(&self) -> &[ObjectId] {
        &self.ordered
    }
}

#[inline]
pub(super) fn hash(key: &[u8]) -> u32 {
    let (words, rest) = key.as_chunks::<8>();
    let mut hash = key.len() as u64;
    for word in words {
        hash = mix(hash, u64::from_le_bytes(*word));
    }
    for byte in rest {
        hash = hash << 8 ^ hash >> 56 ^ u64::from(*byte);
    }
    (mix(hash, 0) >> 32) as u32
}

#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(MULTIPLIER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn finds_what_a_map_finds(
            keys in prop::collection::btree_set(prop::collection::vec(0u8..4, 1..20), 0..50),
            others in prop::collection::vec(prop::collection::vec(0u8..4, 0..20), 0..50),
        ) {
            let keys: Box<[Box<[u8]>]> = keys.into_iter().rev().map(Into::into).collect();
            let index = KeyIndex::new(keys.clone()).unwrap();
            let ids = (0..).map(ObjectId);
            let model: BTreeMap<_, _> = keys.iter().map(|key| key.to_vec()).zip(ids).collect();
            for key in others.iter().chain(model.keys()) {
                prop_assert_eq!(index.find(key), model.get(key).copied());
            }
            prop_assert!(model.values().eq(index.ordered()));
        }
    }

    #[test]
    fn a_key_that_occurs_twice_is_named() {
        let keys = [&b"a"[..], b"b", b"a"].map(Box::from);
        assert_eq!(KeyIndex::new(Box::new(keys)).unwrap_err(), b"a"[..].into());
    }
}
