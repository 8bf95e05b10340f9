//! Costs of store calls on an otherwise idle machine.

use punctual_units::CoreId;
use punctual_workload::{Costs, UpdateMode};

use crate::cache::hit_ratio_alone;
use crate::check::ModelError;
use crate::memory::NEVER;
use crate::model::{ClockStep, Effort, MachineModel, MemoryModel};

impl MemoryModel {
    /// Shared service time of one access at this clock, in nanoseconds.
    pub(crate) fn service_at(&self, step: ClockStep) -> f64 {
        self.service_ns + self.service_cycles * ns_per_cycle(step)
    }
}

/// The length of a clock cycle in nanoseconds.
pub(crate) fn ns_per_cycle(step: ClockStep) -> f64 {
    1e9 / step.clock.0 as f64
}

/// Amount of work as the memory sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Traffic {
    /// Nanoseconds in which the core delays no other core: cycles, accesses to the shared cache, latency.
    pub private_ns: f64,
    /// Accesses to the shared memory.
    pub accesses: f64,
}

impl Traffic {
    /// `effort` at this step, where the share `hit_ratio` of its accesses to the working set hit.
    pub fn of(model: &MachineModel, step: ClockStep, effort: Effort, hit_ratio: f64) -> Traffic {
        let looked_up = effort.accesses + effort.uncached;
        let accesses = effort.accesses * (1.0 - hit_ratio) + effort.uncached;
        let cycles = effort.cycles + looked_up * model.cache.hit_cycles;
        Traffic {
            private_ns: cycles * ns_per_cycle(step) + accesses * model.memory.latency_ns,
            accesses,
        }
    }

    /// Private time per access; never-ending without accesses.
    pub fn think_ns(self) -> f64 {
        if self.accesses > 0.0 {
            self.private_ns / self.accesses
        } else {
            NEVER
        }
    }

    /// Duration of all the work where each access takes `residence_ns` in the shared path.
    pub fn duration_ns(self, residence_ns: f64) -> f64 {
        self.private_ns + self.accesses * residence_ns
    }
}

/// Duration of `effort` on an otherwise idle machine, in nanoseconds, with as much of its working set cached as may be.
fn alone_ns(model: &MachineModel, step: ClockStep, effort: Effort) -> f64 {
    let cores: Vec<CoreId> = (0..model.cores).map(CoreId).collect();
    let real_time_core = punctual_cores::first_set_apart(&cores).unwrap_or_default().0 as usize;
    let hits = hit_ratio_alone(&model.cache, real_time_core, model.store.working_set_kib);
    Traffic::of(model, step, effort, hits).duration_ns(model.memory.service_at(step))
}

/// Costs of accesses at the top clock with nothing else running and a warm cache; programs are compiled with them.
///
/// In memory-first mode an update costs its slot write; group commits are added as a load of their own.
///
/// # Errors
/// [`ModelError`] where the model is unsound.
///
/// ```
/// use punctual_sim::{MachineModel, costs};
/// use punctual_workload::UpdateMode;
/// let model = MachineModel::exynos5422_a15();
/// let transaction = costs(&model, UpdateMode::Transaction)?;
/// let memory_first = costs(&model, UpdateMode::MemoryFirst)?;
/// assert!(memory_first.update_ns < transaction.update_ns);
/// # Ok::<(), punctual_sim::ModelError>(())
/// ```
pub fn costs(model: &MachineModel, mode: UpdateMode) -> Result<Costs, ModelError> {
    model.check()?;
    let top = model.top();
    let alone = |effort| alone_ns(model, top, effort);
    let store = &model.store;
    Ok(Costs {
        top: top.clock,
        read_txn_ns: alone(store.read_txn),
        get_ns: alone(store.get),
        write_txn_ns: alone(store.write_txn(0.0)),
        put_ns: alone(store.put),
        update_ns: alone(match mode {
            UpdateMode::Transaction => store.update_txn(),
            UpdateMode::MemoryFirst => store.slot_write,
        }),
    })
}
