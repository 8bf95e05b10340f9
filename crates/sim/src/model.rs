//! The machine as numbers: clock steps, power, cache, memory, and the costs of store calls in cycles and accesses.
//!
//! No number here is the duration of work beside other cores: that emerges in `cache.rs` and `memory.rs`. Unknown
//! physics of a machine is a number here, never a rule there:
//!
//! - the parts of memory service that do and do not scale with the clock: [`MemoryModel`];
//! - how fast other cores' traffic takes the cache away, and how hits suffer: [`CacheModel::lines_per_miss`],
//!   [`CacheModel::locality`], and the working sets of [`StoreModel`];
//! - the cost of an update for shared resources: accesses and uncached lines of [`StoreModel::put`] and its neighbours.

use std::ops::{Add, Mul};

use punctual_units::Hertz;

/// Bound on the cores of a model; it bounds the work of one scheduling decision.
pub const CORES_MAX: u32 = 64;

/// Bound on the ways of a shared cache: a mask of them is a 32-bit number.
pub const WAYS_MAX: u32 = 32;

/// A machine to simulate. All cores are alike and share one clock.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineModel {
    /// Name for messages and reports.
    pub name: String,
    /// Cores, 1 to [`CORES_MAX`]. The last one is the real-time core.
    pub cores: u32,
    /// Transition time of the clock as the kernel reports it, in microseconds; governors derive their sampling periods
    /// from it.
    pub transition_us: f64,
    /// Delay from setting the clock to its change, in microseconds; until then all cores go on at the old clock. The
    /// papers' machines leave it at 0.
    pub clock_change_us: f64,
    /// Clock steps, ascending. The machine starts at the highest.
    pub steps: Vec<ClockStep>,
    /// Power drawn by cores, uncore and memory.
    pub power: PowerModel,
    /// The last-level cache that all cores share.
    pub cache: CacheModel,
    /// The memory behind the cache.
    pub memory: MemoryModel,
    /// Costs of store calls.
    pub store: StoreModel,
}

/// A step of the clock and its voltage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockStep {
    /// The frequency of every core; whole megahertz in files.
    pub clock: Hertz,
    /// Supply voltage in volts, above 0.
    pub volt: f64,
}

/// Coefficients of the power drawn; each part has a meter of its own. See `power.rs` for the formulas.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PowerModel {
    /// Coefficients of each core.
    pub core: CorePower,
    /// Coefficients of the shared cache and its interconnect with the cores.
    pub uncore: UncorePower,
    /// Coefficients of the memory.
    pub memory: MemoryPower,
}

/// Power of one core.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CorePower {
    /// Dynamic power of one busy core, in microwatts per megahertz and square volt (the kernel's
    /// `dynamic-power-coefficient`).
    pub dynamic_uw_per_mhz_v2: f64,
    /// Static power of one core, busy or idle, in milliwatts per square volt.
    pub static_mw_per_v2: f64,
}

/// Power of the uncore, which runs at the cores' clock and voltage.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UncorePower {
    /// Dynamic power while any core is busy, in microwatts per megahertz and square volt.
    pub dynamic_uw_per_mhz_v2: f64,
    /// Static power, in milliwatts per square volt.
    pub static_mw_per_v2: f64,
    /// Energy of one access to the shared cache, in nanojoules.
    pub access_nj: f64,
}

/// Power of the memory, which has a clock and voltage of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryPower {
    /// Refresh and standby, in milliwatts.
    pub static_mw: f64,
    /// Energy of one access, in nanojoules.
    pub access_nj: f64,
}

/// The last-level cache, shared by all cores: random replacement within the ways that a core may fill.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CacheModel {
    /// Size in KiB; with 0 every access goes to memory.
    pub size_kib: f64,
    /// Number of ways, 1 to [`WAYS_MAX`], all of the same size.
    pub ways: u32,
    /// Bytes of a line, above 0.
    pub line_bytes: f64,
    /// Cost of a lookup for a core, in core cycles: all of a hit, or the time until a miss is known.
    pub hit_cycles: f64,
    /// Lines that a miss brings into the cache, above 0: 1 is the line itself; a prefetcher brings more, and pollutes
    /// faster; replacement that protects lines in use pollutes more slowly, like less than 1.
    pub lines_per_miss: f64,
    /// Exponent of the hit ratio h for the held part o / w of the working set: h = (o / w)^locality, above 0. 1: all
    /// lines are read alike. Below 1: few lines get most of the reads, and a small part of the cache serves well.
    pub locality: f64,
    /// Ways that each core may fill, one mask of bits per core; empty: all may fill all. Hits count anywhere, as with
    /// the kernel's resctrl.
    pub masks: Vec<u32>,
}

/// Path to memory, shared by all cores: a single access is served at a time, the others queue, and a core waits for
/// each of its accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryModel {
    /// The part of an access for which no other core waits, in nanoseconds.
    pub latency_ns: f64,
    /// The part of the shared service of one access that takes the same time at every clock, in nanoseconds.
    pub service_ns: f64,
    /// The part of the shared service of one access that runs at the cores' clock, in cycles: interference grows as the
    /// clock falls.
    pub service_cycles: f64,
}

/// Work in core cycles and accesses, the accesses spread evenly among the cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Effort {
    /// Cycles of the core's clock.
    pub cycles: f64,
    /// Accesses to the working set, through the shared cache.
    pub accesses: f64,
    /// Accesses to lines that are used once, such as a log's or a new value's: they always go to memory, and leave dead
    /// lines in the cache.
    pub uncached: f64,
}

/// Work of store calls. The size of a value makes no difference: values are a few cache lines.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StoreModel {
    /// Working set of store accesses by the real-time core and by updates, in KiB.
    pub working_set_kib: f64,
    /// Working set of best-effort tasks, on each core, in KiB: they have databases of their own.
    pub others_working_set_kib: f64,
    /// Begin and end of a read transaction.
    pub read_txn: Effort,
    /// Lookup of one object.
    pub get: Effort,
    /// Begin of a write transaction.
    pub write_begin: Effort,
    /// Write of one object, before the commit.
    pub put: Effort,
    /// Commit of a write transaction.
    pub commit: Effort,
    /// Write of one temporal object's memory slot.
    pub slot_write: Effort,
}

impl Effort {
    /// Work of this many cycles and accesses to the working set.
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
    /// An update as a write transaction of its own.
    pub fn update_txn(&self) -> Effort {
        self.write_txn(1.0)
    }

    /// A whole write transaction of `puts` puts.
    pub fn write_txn(&self, puts: f64) -> Effort {
        self.write_begin + self.put * puts + self.commit
    }
}

impl CacheModel {
    /// Capacity of the whole cache in lines.
    pub(crate) fn lines(&self) -> f64 {
        self.lines_of(self.size_kib)
    }

    /// Number of lines in `kib` KiB.
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
    /// Cores that only compute: one clock step of 1 GHz, so that a cycle takes a nanosecond, no cache, no power.
    pub fn bare(name: &str, cores: u32) -> MachineModel {
        let clock = Hertz(1_000_000_000);
        MachineModel {
            name: name.into(),
            cores,
            transition_us: 0.0,
            clock_change_us: 0.0,
            steps: vec![ClockStep { clock, volt: 1.0 }],
            power: PowerModel::default(),
            cache: CacheModel {
                ways: 1,
                line_bytes: 64.0,
                lines_per_miss: 1.0,
                locality: 1.0,
                ..CacheModel::default()
            },
            memory: MemoryModel {
                service_ns: 1.0,
                ..MemoryModel::default()
            },
            store: StoreModel::default(),
        }
    }

    /// Step with the highest clock.
    pub(crate) fn top(&self) -> ClockStep {
        self.steps[self.steps.len() - 1]
    }
}
