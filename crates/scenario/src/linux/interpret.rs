//! Runs a program on Linux: real loops at the emulated clock, real store calls.

use std::sync::Arc;

use punctual_platform::linux::emulated::EmulatedClock;
use punctual_runtime::linux::Job;
use punctual_store::StoreError;
use punctual_store::engine::Engine;
use punctual_workload::{ObjectSet, Op, Program, Surge, checkpoint};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::beside::Reads;

/// The key of sensor `index`'s temporal object.
pub(crate) fn sensor_key(index: u32) -> [u8; 12] {
    key(*b"sens", index)
}

/// The key of ordinary object `index`.
pub(crate) fn object_key(index: u32) -> [u8; 12] {
    key(*b"objt", index)
}

/// Big-endian decimal digits keep the order of keys the order of numbers, and keys readable in a dump.
fn key(prefix: [u8; 4], index: u32) -> [u8; 12] {
    let mut key = *b"....00000000";
    key[..4].copy_from_slice(&prefix);
    let mut rest = index;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// A program, ready to be run again and again.
pub(crate) struct Interpreter {
    program: Program,
    sensors: u32,
    objects: u32,
    emulated: Arc<EmulatedClock>,
    rng: ChaCha8Rng,
    value: Vec<u8>,
    surge: Option<Surge>,
    /// Readings that are read like those of sensors.
    others: Reads,
}

impl Interpreter {
    /// `program` on a store with these many sensors and ordinary objects; `rng` picks the objects.
    pub(crate) fn new(
        program: Program,
        sensors: u32,
        objects: u32,
        emulated: Arc<EmulatedClock>,
        rng: ChaCha8Rng,
    ) -> Self {
        Interpreter {
            program,
            sensors,
            objects,
            emulated,
            rng,
            value: Vec::new(),
            surge: None,
            others: Reads::default(),
        }
    }

    /// Lets jobs have more to do for a while.
    pub(crate) fn surge(&mut self, surge: Option<Surge>) {
        self.surge = surge;
    }

    /// Adds readings that are read like those of sensors.
    pub(crate) fn reads(&mut self, others: &Reads) {
        self.others = Arc::clone(others);
    }

    /// Runs the program once, as `job`.
    pub(crate) fn perform<E: Engine>(&mut self, job: &mut Job<'_, E>) -> Result<(), StoreError> {
        let factor = self.surge.map_or(1.0, |surge| surge.factor_at(job.released_after()));
        for index in 0..self.program.ops.len() {
            match self.program.ops[index].times(factor) {
                Op::Compute { cycles } => self.emulated.compute(cycles),
                Op::Get { table, count } => self.get(job, table, count)?,
                Op::Put { count, bytes } => self.put(job, count, bytes)?,
            }
            if let Some((done, of)) = checkpoint(index + 1, self.program.ops.len()) {
                job.progress(done, of);
            }
        }
        Ok(())
    }

    fn get<E: Engine>(&mut self, job: &mut Job<'_, E>, table: ObjectSet, count: u32) -> Result<(), StoreError> {
        let mut sum = 0u64;
        job.read(|transaction| {
            for _ in 0..count {
                let Some(key) = self.pick(table) else {
                    continue;
                };
                if let Some(value) = transaction.get(key)? {
                    sum = sum.wrapping_add(u64::from(value.first().copied().unwrap_or(0)));
                }
            }
            Ok(())
        })?;
        std::hint::black_box(sum);
        Ok(())
    }

    fn put<E: Engine>(&mut self, job: &mut Job<'_, E>, count: u32, bytes: u32) -> Result<(), StoreError> {
        self.value.resize(bytes as usize, 0x5A);
        let value = std::mem::take(&mut self.value);
        let written = job.write(|transaction| {
            for _ in 0..count {
                let key = object_key(self.rng.random_range(0..self.objects.max(1)));
                transaction.put(key, &value)?;
            }
            Ok(())
        });
        self.value = value;
        written
    }

    /// Draws the key of an object to read; `None` where another reading was drawn, which has been read already.
    fn pick(&mut self, table: ObjectSet) -> Option<[u8; 12]> {
        match table {
            ObjectSet::Sensors => {
                let all = self.sensors as usize + self.others.len();
                let at = self.rng.random_range(0..all.max(1));
                match at.checked_sub(self.sensors as usize).and_then(|at| self.others.get(at)) {
                    Some(read) => {
                        read();
                        None
                    }
                    None => Some(sensor_key(at as u32)),
                }
            }
            ObjectSet::Objects => Some(object_key(self.rng.random_range(0..self.objects.max(1)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_readable_distinct_and_in_order() {
        assert_eq!(&sensor_key(1023), b"sens00001023");
        assert_eq!(&object_key(0), b"objt00000000");
        assert!(sensor_key(9) < sensor_key(10) && sensor_key(99_999_998) < sensor_key(99_999_999));
    }
}
