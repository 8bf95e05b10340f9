//! The machine as numbers: clock steps, power, memory, and what store calls cost in cycles and memory accesses.
//!
//! Nothing here says how long anything takes while other cores run: that emerges in `memory.rs`.

use std::ops::{Add, Mul};

use punctual_units::Hertz;
use serde::{Deserialize, Serialize};

/// The most cores that a model may have. Bounds the work of one scheduling decision.
pub const CORES_MAX: u32 = 64;

/// A machine to simulate. All cores are alike and share one clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MachineModel {
    /// A name for people.
    pub name: String,
    /// Cores, 1 to [`CORES_MAX`]. The last one is the real-time core.
    pub cores: u32,
    /// Clock steps, ascending. The machine is found at the highest.
    pub steps: Vec<ClockStep>,
    /// What the machine draws.
    pub power: PowerModel,
    /// What the cores share.
    pub memory: MemoryModel,
    /// What store calls need.
    pub store: StoreModel,
}

/// One step of the clock and the voltage that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockStep {
    /// The frequency of every core.
    pub clock: Hertz,
    /// Supply voltage in volts, above 0.
    pub volt: f64,
}

/// Coefficients of the power drawn: g V^2 for every core, C f V^2 for every busy one, and the energy of each memory
/// access.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PowerModel {
    /// Dynamic power of one busy core, in microwatts per megahertz and square volt (the kernel's
    /// `dynamic-power-coefficient`).
    pub dynamic_uw_per_mhz_v2: f64,
    /// Static power of one core, busy or idle, in milliwatts per square volt.
    pub static_mw_per_v2: f64,
    /// Energy of one memory access, in nanojoules.
    pub access_nj: f64,
}

/// One path to memory, shared by all cores: one access is served at a time, the others queue, and a core waits for each
/// of its accesses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MemoryModel {
    /// The part of an access that a core has to itself, in core cycles.
    pub private_cycles: f64,
    /// The part of the shared service of one access that takes the same time at every clock, in nanoseconds.
    pub service_ns: f64,
    /// The part of the shared service of one access that runs at the cores' clock, in cycles: interference grows as the
    /// clock falls.
    pub service_cycles: f64,
}

/// What a piece of work needs: core cycles, and memory accesses spread evenly among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Effort {
    /// Cycles of the core's clock.
    pub cycles: f64,
    /// Accesses to the shared memory.
    pub accesses: f64,
}

/// What store calls need. The size of a value makes no difference: values are a few cache lines.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct StoreModel {
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
    /// So many cycles and accesses.
    pub const fn new(cycles: f64, accesses: f64) -> Effort {
        Effort { cycles, accesses }
    }
}

impl Add for Effort {
    type Output = Effort;
    fn add(self, other: Effort) -> Effort {
        Effort::new(self.cycles + other.cycles, self.accesses + other.accesses)
    }
}

impl Mul<f64> for Effort {
    type Output = Effort;
    fn mul(self, times: f64) -> Effort {
        Effort::new(self.cycles * times, self.accesses * times)
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

impl MachineModel {
    /// Four Cortex-A15 cores of the Exynos 5422 (Odroid-XU3), the first paper's board with its A7 cores off.
    ///
    /// - Steps, voltages and dynamic coefficient: Linux, `exynos5800.dtsi` and `exynos5422-cpus.dtsi`. Some steps are
    ///   dominated: 1.6 and 1.7 GHz need a higher voltage than 1.8 GHz.
    /// - Static power: the line through two measured points of the whole cluster (200 MHz at 0.9162 V: 159.7 mW; 500 MHz
    ///   at 0.9138 V: 325.5 mW; Linux ARM mailing list, 2018) meets f V^2 = 0 at 48.2 mW, that is 14.4 mW per core
    ///   and square volt. Two points make a coarse estimate.
    /// - Memory latency on an A15 is 21 cycles + 110 ns (7-cpu.com, measured at 1.7 GHz). The 21 cycles are private
    ///   here. How much of the 110 ns is shared, and how much of that follows the clock, is not known: all of it is taken as
    ///   shared and a part as clocked, by hand, so that interference grows as the clock falls as the paper's QoD experiment
    ///   shows. At 2 GHz the two parts make 110 ns.
    /// - Energy of an access: 20 nJ, by hand; the order of magnitude of a 64-byte line of mobile DRAM.
    /// - Store calls: by hand, orders of magnitude for a B+tree store on a core of this kind, with most of the time
    ///   in memory, as the paper's figures show. Not measured.
    pub fn exynos5422_a15() -> MachineModel {
        const MHZ_VOLT: [(u64, f64); 19] = [
            (200, 0.9),
            (300, 0.9),
            (400, 0.9),
            (500, 0.9),
            (600, 0.9),
            (700, 0.9),
            (800, 0.9),
            (900, 1.0),
            (1000, 1.0),
            (1100, 1.0),
            (1200, 1.0),
            (1300, 1.1),
            (1400, 1.1),
            (1500, 1.1),
            (1600, 1.25),
            (1700, 1.25),
            (1800, 1.2375),
            (1900, 1.2625),
            (2000, 1.3125),
        ];
        let step = |(mhz, volt)| ClockStep {
            clock: Hertz::from_mhz(mhz),
            volt,
        };
        MachineModel {
            name: "Exynos 5422, 4 x Cortex-A15".into(),
            cores: 4,
            steps: MHZ_VOLT.map(step).to_vec(),
            power: PowerModel {
                dynamic_uw_per_mhz_v2: 310.0,
                static_mw_per_v2: 14.4,
                access_nj: 20.0,
            },
            memory: MemoryModel {
                private_cycles: 21.0,
                service_ns: 60.0,
                service_cycles: 100.0,
            },
            store: StoreModel {
                read_txn: Effort::new(600.0, 4.0),
                get: Effort::new(500.0, 8.0),
                write_begin: Effort::new(4_000.0, 20.0),
                put: Effort::new(2_000.0, 12.0),
                commit: Effort::new(8_000.0, 40.0),
                slot_write: Effort::new(150.0, 2.0),
            },
        }
    }

    /// The same machine with two cores: one real-time core and one neighbour.
    pub fn duo() -> MachineModel {
        MachineModel {
            name: "Exynos 5422, 2 x Cortex-A15".into(),
            cores: 2,
            ..MachineModel::exynos5422_a15()
        }
    }

    /// The highest clock.
    pub(crate) fn top(&self) -> ClockStep {
        self.steps[self.steps.len() - 1]
    }

    /// Whether the model can be simulated.
    ///
    /// # Errors
    /// [`ModelError`] names the first key that is out of range.
    pub fn check(&self) -> Result<(), ModelError> {
        let require = |holds: bool, key: &str, what: &str| match holds {
            true => Ok(()),
            false => Err(ModelError {
                key: key.into(),
                what: what.into(),
            }),
        };
        let cores = (1..=CORES_MAX).contains(&self.cores);
        require(cores, "cores", &format!("must lie between 1 and {CORES_MAX}"))?;
        require(!self.steps.is_empty(), "steps", "a clock has at least one step")?;
        for (i, step) in self.steps.iter().enumerate() {
            let ascending = i == 0 || self.steps[i - 1].clock < step.clock;
            let key = |field: &str| format!("steps[{i}].{field}");
            require(
                step.clock.0 > 0 && ascending,
                &key("clock"),
                "steps are above 0 and ascending, none twice",
            )?;
            let sound = step.volt.is_finite() && step.volt > 0.0;
            require(sound, &key("volt"), "every step needs a voltage above 0")?;
        }
        for (key, value) in self.quantities() {
            require(value.is_finite() && value >= 0.0, key, "must be a number of at least 0")?;
        }
        let service = self.memory.service_ns + self.memory.service_cycles;
        require(
            service > 0.0,
            "memory.service-ns",
            "an access takes some time: raise service-ns or service-cycles",
        )
    }

    /// Every coefficient with its key.
    fn quantities(&self) -> [(&'static str, f64); 18] {
        let MachineModel {
            power, memory, store, ..
        } = self;
        [
            ("power.dynamic-uw-per-mhz-v2", power.dynamic_uw_per_mhz_v2),
            ("power.static-mw-per-v2", power.static_mw_per_v2),
            ("power.access-nj", power.access_nj),
            ("memory.private-cycles", memory.private_cycles),
            ("memory.service-ns", memory.service_ns),
            ("memory.service-cycles", memory.service_cycles),
            ("store.read-txn.cycles", store.read_txn.cycles),
            ("store.read-txn.accesses", store.read_txn.accesses),
            ("store.get.cycles", store.get.cycles),
            ("store.get.accesses", store.get.accesses),
            ("store.write-begin.cycles", store.write_begin.cycles),
            ("store.write-begin.accesses", store.write_begin.accesses),
            ("store.put.cycles", store.put.cycles),
            ("store.put.accesses", store.put.accesses),
            ("store.commit.cycles", store.commit.cycles),
            ("store.commit.accesses", store.commit.accesses),
            ("store.slot-write.cycles", store.slot_write.cycles),
            ("store.slot-write.accesses", store.slot_write.accesses),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_models_are_sound() {
        assert_eq!(MachineModel::exynos5422_a15().check(), Ok(()));
        assert_eq!(MachineModel::duo().check(), Ok(()));
        assert_eq!(MachineModel::exynos5422_a15().steps.len(), 19);
    }

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
        assert_eq!(key(|m| m.steps.swap(2, 3)), "steps[3].clock");
        assert_eq!(key(|m| m.steps[1].volt = 0.0), "steps[1].volt");
        assert_eq!(key(|m| m.store.get.accesses = f64::NAN), "store.get.accesses");
        assert_eq!(key(|m| m.power.access_nj = -1.0), "power.access-nj");
        let no_service = |m: &mut MachineModel| (m.memory.service_ns, m.memory.service_cycles) = (0.0, 0.0);
        assert_eq!(key(no_service), "memory.service-ns");
    }
}
