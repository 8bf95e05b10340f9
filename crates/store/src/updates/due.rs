//! A min-heap of sensors by the instant at which their next reading is due. At most one entry per sensor, found by
//! sensor.
//!
//! The heap is binary, stored as an array; `place` finds a sensor's entry, so that it can be moved or taken out in
//! O(log N). Everything is allocated at construction.

use punctual_units::Time;

/// The value in `place` for a sensor that is not in the heap.
const ABSENT: u32 = u32::MAX;

/// Sensors by due time, earliest first.
#[derive(Clone, Debug)]
pub(super) struct DueHeap {
    entries: Vec<(Time, u32)>,
    place: Vec<u32>,
}

impl DueHeap {
    /// An empty heap for sensors `0..sensors`.
    pub fn new(sensors: usize) -> Self {
        DueHeap {
            entries: Vec::with_capacity(sensors),
            place: vec![ABSENT; sensors],
        }
    }

    /// How many sensors are in the heap.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// When `sensor` is due; `None` if it is not in the heap. O(1).
    #[cfg(test)]
    pub fn get(&self, sensor: usize) -> Option<Time> {
        let place = self.place[sensor];
        (place != ABSENT).then(|| self.entries[place as usize].0)
    }

    /// Puts `sensor` in the heap, or changes its due time. O(log N).
    pub fn set(&mut self, sensor: usize, due: Time) {
        let entry = (due, sensor as u32);
        let at = match self.place[sensor] {
            ABSENT => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
            place => {
                self.entries[place as usize] = entry;
                place as usize
            }
        };
        self.settle(at);
    }

    /// Removes `sensor` from the heap, if it is there. O(log N).
    pub fn remove(&mut self, sensor: usize) {
        let place = self.place[sensor];
        if place == ABSENT {
            return;
        }
        self.place[sensor] = ABSENT;
        self.entries.swap_remove(place as usize);
        if (place as usize) < self.entries.len() {
            self.settle(place as usize);
        }
    }

    /// Removes and returns the sensor that is due first, if that is before `now`. O(log N).
    pub fn pop_before(&mut self, now: Time) -> Option<usize> {
        let (due, sensor) = *self.entries.first()?;
        (due < now).then(|| {
            self.remove(sensor as usize);
            sensor as usize
        })
    }

    /// Restores the heap order around the one entry that changed.
    fn settle(&mut self, at: usize) {
        let at = self.sift_up(at);
        self.sift_down(at);
    }

    fn sift_up(&mut self, mut at: usize) -> usize {
        let entry = self.entries[at];
        while at > 0 && entry < self.entries[(at - 1) / 2] {
            self.store(at, self.entries[(at - 1) / 2]);
            at = (at - 1) / 2;
        }
        self.store(at, entry);
        at
    }

    fn sift_down(&mut self, mut at: usize) {
        let entry = self.entries[at];
        while let Some(child) = self.earlier_child(at).filter(|&child| self.entries[child] < entry) {
            self.store(at, self.entries[child]);
            at = child;
        }
        self.store(at, entry);
    }

    fn earlier_child(&self, at: usize) -> Option<usize> {
        let (left, right) = (2 * at + 1, 2 * at + 2);
        match self.entries.get(left..=right) {
            Some(children) if children[1] < children[0] => Some(right),
            _ => (left < self.entries.len()).then_some(left),
        }
    }

    fn store(&mut self, at: usize, entry: (Time, u32)) {
        self.entries[at] = entry;
        self.place[entry.1 as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Op {
        Set(usize, u64),
        Remove(usize),
        PopBefore(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (0..20usize, 0..50u64).prop_map(|(sensor, due)| Op::Set(sensor, due)),
            1 => (0..20usize).prop_map(Op::Remove),
            1 => (0..50u64).prop_map(Op::PopBefore),
        ]
    }

    proptest! {
        #[test]
        fn the_heap_is_a_map_that_yields_its_least(ops in prop::collection::vec(op(), 0..300)) {
            let mut heap = DueHeap::new(20);
            let capacity = heap.entries.capacity();
            let mut model = BTreeMap::new();
            for op in ops {
                match op {
                    Op::Set(sensor, due) => {
                        heap.set(sensor, Time(due));
                        model.insert(sensor, Time(due));
                    }
                    Op::Remove(sensor) => {
                        heap.remove(sensor);
                        model.remove(&sensor);
                    }
                    Op::PopBefore(now) => {
                        let least = model.iter().map(|(sensor, due)| (*due, *sensor)).min();
                        let expected = least.filter(|(due, _)| *due < Time(now)).map(|(_, sensor)| sensor);
                        prop_assert_eq!(heap.pop_before(Time(now)), expected);
                        expected.map(|sensor| model.remove(&sensor));
                    }
                }
                prop_assert_eq!(heap.len(), model.len());
                for sensor in 0..20 {
                    prop_assert_eq!(heap.get(sensor), model.get(&sensor).copied());
                }
            }
            prop_assert_eq!(heap.entries.capacity(), capacity);
        }
    }
}
