//! Approximates which keys a node has cached.

/// Number of places that a key may have: the ways of a cache set.
const WAYS: u32 = 8;

/// A set-associative cache with random replacement: one number per place, however many keys there are.
#[derive(Clone, Debug)]
pub(super) struct KeyCache {
    /// Key + 1; 0 is empty.
    places: Vec<u32>,
    sets: u32,
}

impl KeyCache {
    /// Makes an empty cache with room for about `keys` keys.
    pub(super) fn new(keys: u32) -> KeyCache {
        let sets = (keys / WAYS).max(1);
        KeyCache {
            places: vec![0; (sets * WAYS) as usize],
            sets,
        }
    }

    /// Puts `key` into the cache, and returns whether it was there before. `draw` chooses the key to be replaced.
    pub(super) fn touch(&mut self, key: u32, draw: u64) -> bool {
        // Keys count up from 0, so all sets get equally many keys.
        let first = ((key % self.sets) * WAYS) as usize;
        let set = &mut self.places[first..first + WAYS as usize];
        if set.contains(&(key + 1)) {
            return true;
        }
        let place = set.iter().position(|place| *place == 0);
        set[place.unwrap_or((draw % u64::from(WAYS)) as usize)] = key + 1;
        false
    }
}
