//! Which keys a node has cached.

/// Places that a key may have: as a set of a cache.
const WAYS: u32 = 8;

/// A set-associative cache with random replacement: one number a place, whatever the number of keys.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    /// Key + 1; 0 is empty.
    places: Vec<u32>,
    sets: u32,
}

impl Cache {
    /// Room for about `keys`.
    pub(super) fn new(keys: u32) -> Cache {
        let sets = (keys / WAYS).max(1);
        Cache {
            places: vec![0; (sets * WAYS) as usize],
            sets,
        }
    }

    /// Whether `key` was there; now it is. `draw` says which one goes for it.
    pub(super) fn touch(&mut self, key: u32, draw: u64) -> bool {
        // Keys count up from 0: each set has as many of them.
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
