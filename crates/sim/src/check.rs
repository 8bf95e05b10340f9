//! Checks that a machine can be simulated: every number within its range; errors name the key.

use crate::model::{CORES_MAX, MachineModel, WAYS_MAX};

/// First fault of a model: its key, and a correct value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("machine model: {key}: {what}")]
pub struct ModelError {
    /// The key, e.g. `steps[3].volt`.
    pub key: String,
    /// The fault, and the values expected.
    pub what: String,
}

impl MachineModel {
    /// Checks that the model can be simulated. The only check of machines, from files and from programs alike.
    ///
    /// # Errors
    /// [`ModelError`] names the first key that is out of range.
    pub fn check(&self) -> Result<(), ModelError> {
        self.faults().into_iter().next().map_or(Ok(()), Err)
    }

    /// All keys that are out of range.
    pub fn faults(&self) -> Vec<ModelError> {
        let mut faults = Vec::new();
        let mut require = |holds, key: &str, what: &str| require(&mut faults, holds, key, what);
        let cores = (1..=CORES_MAX).contains(&self.cores);
        require(cores, "cores", &format!("must lie between 1 and {CORES_MAX}"));
        require(!self.steps.is_empty(), "steps", "a clock has at least one step");
        for (i, step) in self.steps.iter().enumerate() {
            let ascending = step.clock.0 > 0 && (i == 0 || self.steps[i - 1].clock < step.clock);
            let key = |field: &str| format!("steps[{i}].{field}");
            require(ascending, &key("mhz"), "steps are above 0 and ascending, none twice");
            let sound = step.volt.is_finite() && step.volt > 0.0;
            require(sound, &key("volt"), "every step needs a voltage above 0");
        }
        for (key, value) in self.clone().quantities() {
            require(
                value.is_finite() && *value >= 0.0,
                key,
                "must be a number of at least 0",
            );
        }
        let cache = &self.cache;
        let ways = (1..=WAYS_MAX).contains(&cache.ways);
        require(ways, "cache.ways", &format!("must lie between 1 and {WAYS_MAX}"));
        for (key, value) in [
            ("cache.line-bytes", cache.line_bytes),
            ("cache.lines-per-miss", cache.lines_per_miss),
            ("cache.locality", cache.locality),
        ] {
            require(value != 0.0, key, "must be above 0");
        }
        let one_each = cache.masks.is_empty() || cache.masks.len() == self.cores as usize;
        require(one_each, "cache.masks", "one mask of ways per core, or none at all");
        for (core, mask) in cache.masks.iter().enumerate() {
            let within = *mask != 0 && mask & !cache.all_ways() == 0;
            let what = format!("at least one way, of the {} that there are", cache.ways);
            require(within, &format!("cache.masks[{core}]"), &what);
        }
        let service = self.memory.service_ns != 0.0 || self.memory.service_cycles != 0.0;
        let what = "an access takes some time: raise service-ns or service-cycles";
        require(service, "memory.service-ns", what);
        faults
    }

    /// Every coefficient with its key in the file.
    pub(crate) fn quantities(&mut self) -> [(&'static str, &mut f64); 37] {
        let (cache, memory, store) = (&mut self.cache, &mut self.memory, &mut self.store);
        let (core, uncore, power) = (&mut self.power.core, &mut self.power.uncore, &mut self.power.memory);
        [
            ("transition-us", &mut self.transition_us),
            ("clock-change-us", &mut self.clock_change_us),
            ("power.core.dynamic-uw-per-mhz-v2", &mut core.dynamic_uw_per_mhz_v2),
            ("power.core.static-mw-per-v2", &mut core.static_mw_per_v2),
            ("power.uncore.dynamic-uw-per-mhz-v2", &mut uncore.dynamic_uw_per_mhz_v2),
            ("power.uncore.static-mw-per-v2", &mut uncore.static_mw_per_v2),
            ("power.uncore.access-nj", &mut uncore.access_nj),
            ("power.memory.static-mw", &mut power.static_mw),
            ("power.memory.access-nj", &mut power.access_nj),
            ("cache.size-kib", &mut cache.size_kib),
            ("cache.line-bytes", &mut cache.line_bytes),
            ("cache.hit-cycles", &mut cache.hit_cycles),
            ("cache.lines-per-miss", &mut cache.lines_per_miss),
            ("cache.locality", &mut cache.locality),
            ("memory.latency-ns", &mut memory.latency_ns),
            ("memory.service-ns", &mut memory.service_ns),
            ("memory.service-cycles", &mut memory.service_cycles),
            ("store.working-set-kib", &mut store.working_set_kib),
            ("store.others-working-set-kib", &mut store.others_working_set_kib),
            ("store.read-txn.cycles", &mut store.read_txn.cycles),
            ("store.read-txn.accesses", &mut store.read_txn.accesses),
            ("store.read-txn.uncached", &mut store.read_txn.uncached),
            ("store.get.cycles", &mut store.get.cycles),
            ("store.get.accesses", &mut store.get.accesses),
            ("store.get.uncached", &mut store.get.uncached),
            ("store.write-begin.cycles", &mut store.write_begin.cycles),
            ("store.write-begin.accesses", &mut store.write_begin.accesses),
            ("store.write-begin.uncached", &mut store.write_begin.uncached),
            ("store.put.cycles", &mut store.put.cycles),
            ("store.put.accesses", &mut store.put.accesses),
            ("store.put.uncached", &mut store.put.uncached),
            ("store.commit.cycles", &mut store.commit.cycles),
            ("store.commit.accesses", &mut store.commit.accesses),
            ("store.commit.uncached", &mut store.commit.uncached),
            ("store.slot-write.cycles", &mut store.slot_write.cycles),
            ("store.slot-write.accesses", &mut store.slot_write.accesses),
            ("store.slot-write.uncached", &mut store.slot_write.uncached),
        ]
    }
}

/// Adds a fault of `key` unless the value is right; `what` says which ones are.
pub fn require(faults: &mut Vec<ModelError>, holds: bool, key: &str, what: &str) {
    if !holds {
        faults.push(ModelError {
            key: key.into(),
            what: what.into(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_names_its_key() {
        let key = |change: fn(&mut MachineModel)| {
            let mut model = MachineModel::duo();
            change(&mut model);
            model.check().unwrap_err().key
        };
        assert_eq!(key(|m| m.cores = 0), "cores");
        assert_eq!(key(|m| m.steps.clear()), "steps");
        assert_eq!(key(|m| m.steps.swap(2, 3)), "steps[3].mhz");
        assert_eq!(key(|m| m.steps[1].volt = 0.0), "steps[1].volt");
        assert_eq!(key(|m| m.store.get.accesses = f64::NAN), "store.get.accesses");
        assert_eq!(key(|m| m.store.put.uncached = -1.0), "store.put.uncached");
        assert_eq!(key(|m| m.power.memory.access_nj = -1.0), "power.memory.access-nj");
        assert_eq!(key(|m| m.cache.ways = 33), "cache.ways");
        assert_eq!(key(|m| m.cache.line_bytes = 0.0), "cache.line-bytes");
        assert_eq!(key(|m| m.cache.locality = 0.0), "cache.locality");
        assert_eq!(key(|m| m.cache.masks = vec![1]), "cache.masks");
        assert_eq!(key(|m| m.cache.masks = vec![1, 0]), "cache.masks[1]");
        assert_eq!(key(|m| m.cache.masks = vec![1, 1 << 16]), "cache.masks[1]");
        let no_service = |m: &mut MachineModel| (m.memory.service_ns, m.memory.service_cycles) = (0.0, 0.0);
        assert_eq!(key(no_service), "memory.service-ns");
    }
}
