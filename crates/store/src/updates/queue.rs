//! Admitted updates that wait to be installed: first in, first out, at most one per sensor.
//!
//! A newer update of a sensor overwrites the waiting one and **keeps its place**: the object is refreshed no later than
//! it would have been, and a fast sensor cannot starve behind its own updates. Hence the bound of the queue is the
//! number of sensors. Every value has a buffer of its own from the start: nothing is allocated afterwards.

use std::collections::VecDeque;

use punctual_units::{SensorId, Seq, Time};

use super::{Pending, SensorSpec};

#[derive(Clone, Debug)]
pub(super) struct UpdateQueue {
    /// Sensors with a waiting update, in order of arrival of their first one that waits.
    order: VecDeque<SensorId>,
    slots: Vec<Slot>,
    /// The buffers of all sensors, end to end.
    values: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Slot {
    waiting: Option<Pending>,
    /// Where the sensor's buffer begins in `values`.
    start: usize,
    /// Bytes of the waiting value.
    len: usize,
}

impl UpdateQueue {
    /// An empty queue with a buffer for each sensor.
    pub fn new(sensors: &[SensorSpec]) -> Self {
        let mut bytes = 0;
        let slots = sensors.iter().map(|spec| {
            let start = bytes;
            bytes += spec.value_bytes_max as usize;
            let (waiting, len) = (None, 0);
            Slot { waiting, start, len }
        });
        let slots = slots.collect();
        UpdateQueue {
            order: VecDeque::with_capacity(sensors.len()),
            slots,
            values: vec![0; bytes],
        }
    }

    /// Adds a buffer for one more sensor, behind the others.
    pub fn add_sensor(&mut self, spec: &SensorSpec) {
        let start = self.values.len();
        self.values.resize(start + spec.value_bytes_max as usize, 0);
        let (waiting, len) = (None, 0);
        self.slots.push(Slot { waiting, start, len });
        self.order.reserve(self.slots.len() - self.order.len());
    }

    /// Adds an update; its value must fit its sensor's buffer. Returns the number of the update that it replaces, if
    /// any. O(1).
    pub fn put(&mut self, update: Pending, value: &[u8]) -> Option<Seq> {
        let slot = &mut self.slots[update.sensor.index()];
        self.values[slot.start..slot.start + value.len()].copy_from_slice(value);
        slot.len = value.len();
        let replaced = slot.waiting.replace(update);
        if replaced.is_none() {
            self.order.push_back(update.sensor);
        }
        replaced.map(|update| update.seq)
    }

    /// Takes out the update whose sensor waits longest; its value replaces the contents of `value`. O(1).
    pub fn take(&mut self, value: &mut Vec<u8>) -> Option<Pending> {
        let slot = &mut self.slots[self.order.pop_front()?.index()];
        value.clear();
        value.extend_from_slice(&self.values[slot.start..slot.start + slot.len]);
        slot.waiting.take()
    }

    /// Puts the first update behind the others if it has expired by `now`; returns whether it did. O(1).
    pub fn defer_expired(&mut self, now: Time) -> bool {
        let first = self.order.front().and_then(|sensor| self.slots[sensor.index()].waiting);
        let expired = first.is_some_and(|update| update.expires < now);
        if expired {
            self.order.rotate_left(1);
        }
        expired
    }

    /// The number of the sensor's waiting update; `None` if none waits.
    pub fn waiting(&self, sensor: usize) -> Option<Seq> {
        self.slots[sensor].waiting.map(|update| update.seq)
    }

    /// Number of waiting updates; at most one per sensor.
    pub fn len(&self) -> usize {
        self.order.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use punctual_units::{Nanos, Time};

    fn queue(sensors: usize) -> UpdateQueue {
        let spec = SensorSpec {
            period: Nanos(1),
            avi: Nanos(2),
            value_bytes_max: 8,
        };
        UpdateQueue::new(&vec![spec; sensors])
    }

    fn update(sensor: u32, seq: u64) -> Pending {
        Pending {
            sensor: SensorId(sensor),
            seq: Seq(seq),
            sampled_at: Time(seq),
            expires: Time(seq + 2),
        }
    }

    proptest! {
        #[test]
        fn the_newest_of_each_sensor_leaves_in_the_order_of_the_first(
            steps in prop::collection::vec(prop_oneof![3 => (0..6u32).prop_map(Some), 1 => Just(None)], 0..200)
        ) {
            let mut queue = queue(6);
            let capacity = queue.order.capacity();
            let mut model: Vec<(u32, u64)> = Vec::new();
            let mut value = Vec::with_capacity(8);
            for (seq, step) in (1u64..).zip(steps) {
                match step {
                    Some(sensor) => {
                        let waiting = model.iter_mut().find(|(of, _)| *of == sensor);
                        let replaced = waiting.map(|(_, number)| std::mem::replace(number, seq));
                        if replaced.is_none() {
                            model.push((sensor, seq));
                        }
                        prop_assert_eq!(queue.put(update(sensor, seq), &seq.to_le_bytes()), replaced.map(Seq));
                    }
                    None => {
                        let expected = (!model.is_empty()).then(|| model.remove(0));
                        let taken = queue.take(&mut value);
                        prop_assert_eq!(taken, expected.map(|(sensor, seq)| update(sensor, seq)));
                        if let Some((_, seq)) = expected {
                            prop_assert_eq!(&value[..], &seq.to_le_bytes()[..]);
                        }
                    }
                }
                prop_assert_eq!(queue.len(), model.len());
            }
            prop_assert_eq!(queue.order.capacity(), capacity);
        }
    }
}
