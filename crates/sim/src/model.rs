//! The machine as numbers: clock steps, power, cache, memory, and what store calls cost in cycles and accesses.
//!
//! Nothing here says how long anything takes while other cores run: that emerges in `cache.rs` and `memory.rs`. Where
//! the physics of a machine is not known, it is a number here, never a rule there:
//!
//! - how memory service splits between a part that follows the clock and one that does not: [`MemoryModel`];
//! - how fast other cores' traffic takes the cache away, and how hits suffer: [`CacheModel::lines_per_miss`],
//!   [`CacheModel::locality`], and the working sets of [`StoreModel`];
//! - what an update costs what is shared: accesses and uncached lines of [`StoreModel::put`] and its neighbours.

use std::ops::{Add, Mul};

use punctual_units::Hertz;
use serde::{Deserialize, Serialize};

/// The most cores that a model may have. Bounds the work of one scheduling decision.
pub const CORES_MAX: u32 = 64;

/// The most ways that a shared cache may have: a mask of them is a 32-bit number.
pub const WAYS_MAX: u32 = 32;

/// A machine to simulate. All cores are alike and share one clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MachineModel {
    /// A name for people.
    pub name: String,
    /// Cores, 1 to [`CORES_MAX`]. The last one is the real-time core.
    pub cores: u32,
    /// How long a change of the clock takes, in microseconds: the kernel derives its governors' sampling periods from
    /// it. Here the clock changes at once.
    pub transition_us: f64,
    /// Clock steps, ascending. The machine is found at the highest.
    pub steps: Vec<ClockStep>,
    /// What the machine draws.
    pub power: PowerModel,
    /// The cache that all cores share.
    pub cache: CacheModel,
    /// The memory behind it.
    pub memory: MemoryModel,
    /// What store calls need.
    pub store: StoreModel,
}

/// One step of the clock and the voltage that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockStep {
    /// The frequency of every core; whole megahertz in files.
    #[serde(rename = "mhz", with = "megahertz")]
    pub clock: Hertz,
    /// Supply voltage in volts, above 0.
    pub volt: f64,
}

/// Coefficients of the power drawn, each part metered for itself; see `power.rs` for the formulas.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PowerModel {
    /// The cores.
    pub core: CorePower,
    /// The shared cache and what joins it to the cores.
    pub uncore: UncorePower,
    /// The memory.
    pub memory: MemoryPower,
}

/// Power of one core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CorePower {
    /// Dynamic power of one busy core, in microwatts per megahertz and square volt (the kernel's
    /// `dynamic-power-coefficient`).
    pub dynamic_uw_per_mhz_v2: f64,
    /// Static power of one core, busy or idle, in milliwatts per square volt.
    pub static_mw_per_v2: f64,
}

/// Power of the uncore, which runs at the cores' clock and voltage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct UncorePower {
    /// Dynamic power while any core is busy, in microwatts per megahertz and square volt.
    pub dynamic_uw_per_mhz_v2: f64,
    /// Static power, in milliwatts per square volt.
    pub static_mw_per_v2: f64,
    /// Energy of one access to the shared cache, in nanojoules.
    pub access_nj: f64,
}

/// Power of the memory, which has a clock and voltage of its own.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MemoryPower {
    /// Refresh and standby, in milliwatts.
    pub static_mw: f64,
    /// Energy of one access, in nanojoules.
    pub access_nj: f64,
}

/// The last-level cache, shared by all cores: random replacement within the ways that a core may fill.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CacheModel {
    /// Size in KiB. Without a cache (0) every access goes to memory.
    pub size_kib: f64,
    /// Ways, 1 to [`WAYS_MAX`], all of the same size.
    pub ways: u32,
    /// Bytes of a line, above 0.
    pub line_bytes: f64,
    /// What an access costs a core before it is known to miss, and in all if it hits, in core cycles.
    pub hit_cycles: f64,
    /// Lines that a miss brings into the cache, above 0: 1 is the line itself; a prefetcher brings more, and pollutes faster;
    /// replacement that protects lines in use pollutes more slowly, like less than 1.
    pub lines_per_miss: f64,
    /// How the hit ratio h follows from the part o / w of the working set that is held: h = (o / w)^locality, above 0.
    /// 1: all lines are read alike. Below 1: few lines get most of the reads, and a small part of the cache serves well.
    pub locality: f64,
    /// The ways that each core may fill, one mask of bits per core; empty: all may fill all. Hits count anywhere, as with
    /// the kernel's resctrl.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masks: Vec<u32>,
}

/// One path to memory, shared by all cores: one access is served at a time, the others queue, and a core waits for each
/// of its accesses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MemoryModel {
    /// The part of an access for which nobody else waits, in nanoseconds.
    pub latency_ns: f64,
    /// The part of the shared service of one access that takes the same time at every clock, in nanoseconds.
    pub service_ns: f64,
    /// The part of the shared service of one access that runs at the cores' clock, in cycles: interference grows as the
    /// clock falls.
    pub service_cycles: f64,
}

/// What a piece of work needs: core cycles, and accesses spread evenly among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Effort {
    /// Cycles of the core's clock.
    pub cycles: f64,
    /// Accesses to the working set, through the shared cache.
    pub accesses: f64,
    /// Accesses to lines that are used once, such as a log's or a new value's: they go to memory whatever the cache holds,
    /// and leave dead lines in it.
    #[serde(default)]
    pub uncached: f64,
}

/// What store calls need. The size of a value makes no difference: values are a few cache lines.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct StoreModel {
    /// What the store accesses of the real-time core and of updates range over, in KiB.
    pub working_set_kib: f64,
    /// What those of best-effort tasks range over, on each core, in KiB: they have databases of their own.
    pub others_working_set_kib: f64,
    /// Beginning and ending a read transaction.
    pub read_txn: Effort,
    /// One get.
    pub get: Effort,
    /// Beginning a write transaction.
    pub write_begin: Effort,
    /// One put.
    pub put: Effort,
    /// Committing a write transaction.
    pub commit: Effort,
    /// Writing one temporal object's memory slot.
    pub slot_write: Effort,
}

/// What is wrong with a model: which key, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("machine model: {key}: {what}")]
pub struct ModelError {
    /// The key, e.g. `steps[3].volt`.
    pub key: String,
    /// What is wrong, and what is expected.
    pub what: String,
}

impl Effort {
    /// So many cycles and accesses to the working set.
    pub const fn new(cycles: f64, accesses: f64) -> Effort {
        Effort {
            cycles,
            accesses,
            uncached: 0.0,
        }
    }
}

impl Add for Effort {
    type Output = Effort;
    fn add(self, other: Effort) -> Effort {
        Effort {
            cycles: self.cycles + other.cycles,
            accesses: self.accesses + other.accesses,
            uncached: self.uncached + other.uncached,
        }
    }
}

impl Mul<f64> for Effort {
    type Output = Effort;
    fn mul(self, times: f64) -> Effort {
        Effort {
            cycles: self.cycles * times,
            accesses: self.accesses * times,
            uncached: self.uncached * times,
        }
    }
}

impl StoreModel {
    /// One update as a write transaction of its own.
    pub fn update_txn(&self) -> Effort {
        self.write_txn(1.0)
    }

    /// A whole write transaction of `puts` puts.
    pub fn write_txn(&self, puts: f64) -> Effort {
        self.write_begin + self.put * puts + self.commit
    }
}

impl CacheModel {
    /// Lines of the whole cache.
    pub(crate) fn lines(&self) -> f64 {
        self.lines_of(self.size_kib)
    }

    /// Lines of so many KiB.
    pub(crate) fn lines_of(&self, kib: f64) -> f64 {
        kib * 1024.0 / self.line_bytes
    }

    /// The ways that this core may fill.
    pub(crate) fn mask(&self, core: usize) -> u32 {
        self.masks.get(core).copied().unwrap_or(u32::MAX) & self.all_ways()
    }

    pub(crate) fn all_ways(&self) -> u32 {
        u32::MAX >> (WAYS_MAX - self.ways.clamp(1, WAYS_MAX))
    }
}

impl MachineModel {
    /// The highest clock.
    pub(crate) fn top(&self) -> ClockStep {
        self.steps[self.steps.len() - 1]
    }

    /// Whether the model can be simulated: the one judge of machines, whether they come from a file or from a program.
    ///
    /// # Errors
    /// [`ModelError`] names the first key that is out of range.
    pub fn check(&self) -> Result<(), ModelError> {
        let cores = (1..=CORES_MAX).contains(&self.cores);
        require(cores, "cores", &format!("must lie between 1 and {CORES_MAX}"))?;
        self.check_steps()?;
        for (key, value) in self.quantities() {
            require(value.is_finite() && value >= 0.0, key, "must be a number of at least 0")?;
        }
        self.check_cache()?;
        let service = self.memory.service_ns + self.memory.service_cycles;
        require(
            service > 0.0,
            "memory.service-ns",
            "an access takes some time: raise service-ns or service-cycles",
        )
    }

    fn check_steps(&self) -> Result<(), ModelError> {
        require(!self.steps.is_empty(), "steps", "a clock has at least one step")?;
        for (i, step) in self.steps.iter().enumerate() {
            let ascending = i == 0 || self.steps[i - 1].clock < step.clock;
            let key = |field: &str| format!("steps[{i}].{field}");
            require(
                step.clock.0 > 0 && ascending,
                &key("mhz"),
                "steps are above 0 and ascending, none twice",
            )?;
            let sound = step.volt.is_finite() && step.volt > 0.0;
            require(sound, &key("volt"), "every step needs a voltage above 0")?;
        }
        Ok(())
    }

    fn check_cache(&self) -> Result<(), ModelError> {
        let cache = &self.cache;
        let ways = (1..=WAYS_MAX).contains(&cache.ways);
        require(ways, "cache.ways", &format!("must lie between 1 and {WAYS_MAX}"))?;
        require(cache.line_bytes > 0.0, "cache.line-bytes", "must be above 0")?;
        require(cache.lines_per_miss > 0.0, "cache.lines-per-miss", "must be above 0")?;
        require(cache.locality > 0.0, "cache.locality", "must be above 0")?;
        let one_each = cache.masks.is_empty() || cache.masks.len() == self.cores as usize;
        require(one_each, "cache.masks", "one mask of ways per core, or none at all")?;
        for (core, mask) in cache.masks.iter().enumerate() {
            let within = *mask != 0 && mask & !cache.all_ways() == 0;
            let what = format!("at least one way, of the {} that there are", cache.ways);
            require(within, &format!("cache.masks[{core}]"), &what)?;
        }
        Ok(())
    }

    /// Every coefficient with its key.
    fn quantities(&self) -> [(&'static str, f64); 36] {
        let MachineModel {
            power,
            cache,
            memory,
            store,
            ..
        } = self;
        [
            ("transition-us", self.transition_us),
            ("power.core.dynamic-uw-per-mhz-v2", power.core.dynamic_uw_per_mhz_v2),
            ("power.core.static-mw-per-v2", power.core.static_mw_per_v2),
            ("power.uncore.dynamic-uw-per-mhz-v2", power.uncore.dynamic_uw_per_mhz_v2),
            ("power.uncore.static-mw-per-v2", power.uncore.static_mw_per_v2),
            ("power.uncore.access-nj", power.uncore.access_nj),
            ("power.memory.static-mw", power.memory.static_mw),
            ("power.memory.access-nj", power.memory.access_nj),
            ("cache.size-kib", cache.size_kib),
            ("cache.line-bytes", cache.line_bytes),
            ("cache.hit-cycles", cache.hit_cycles),
            ("cache.lines-per-miss", cache.lines_per_miss),
            ("cache.locality", cache.locality),
            ("memory.latency-ns", memory.latency_ns),
            ("memory.service-ns", memory.service_ns),
            ("memory.service-cycles", memory.service_cycles),
            ("store.working-set-kib", store.working_set_kib),
            ("store.others-working-set-kib", store.others_working_set_kib),
            ("store.read-txn.cycles", store.read_txn.cycles),
            ("store.read-txn.accesses", store.read_txn.accesses),
            ("store.read-txn.uncached", store.read_txn.uncached),
            ("store.get.cycles", store.get.cycles),
            ("store.get.accesses", store.get.accesses),
            ("store.get.uncached", store.get.uncached),
            ("store.write-begin.cycles", store.write_begin.cycles),
            ("store.write-begin.accesses", store.write_begin.accesses),
            ("store.write-begin.uncached", store.write_begin.uncached),
            ("store.put.cycles", store.put.cycles),
            ("store.put.accesses", store.put.accesses),
            ("store.put.uncached", store.put.uncached),
            ("store.commit.cycles", store.commit.cycles),
            ("store.commit.accesses", store.commit.accesses),
            ("store.commit.uncached", store.commit.uncached),
            ("store.slot-write.cycles", store.slot_write.cycles),
            ("store.slot-write.accesses", store.slot_write.accesses),
            ("store.slot-write.uncached", store.slot_write.uncached),
        ]
    }
}

fn require(holds: bool, key: &str, what: &str) -> Result<(), ModelError> {
    match holds {
        true => Ok(()),
        false => Err(ModelError {
            key: key.into(),
            what: what.into(),
        }),
    }
}

/// Clocks as whole megahertz.
mod megahertz {
    use punctual_units::Hertz;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(clock: &Hertz, to: S) -> Result<S::Ok, S::Error> {
        (clock.0 / 1_000_000).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Hertz, D::Error> {
        const HIGHEST: u64 = 1_000_000;
        let mhz = u64::deserialize(from)?;
        if mhz > HIGHEST {
            return Err(serde::de::Error::custom(format!("{mhz} MHz: write at most {HIGHEST}")));
        }
        Ok(Hertz::from_mhz(mhz))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_survives_being_written_and_read() {
        let model = MachineModel::exynos5422_a15();
        let text = serde_json::to_string(&model).unwrap();
        assert_eq!(serde_json::from_str::<MachineModel>(&text).unwrap(), model);
        let misspelt = text.replace("service-cycles", "service-cycle");
        let error = serde_json::from_str::<MachineModel>(&misspelt).unwrap_err();
        assert!(error.to_string().contains("unknown field `service-cycle`"), "{error}");
    }

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
