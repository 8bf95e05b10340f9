//! What store calls cost on a machine that does nothing else.

use punctual_workload::{Costs, UpdateMode};

use crate::model::{ClockStep, Effort, MachineModel, MemoryModel, ModelError};

impl MemoryModel {
    /// The shared service of one access at this clock, in nanoseconds.
    pub(crate) fn service_at(&self, step: ClockStep) -> f64 {
        self.service_ns + self.service_cycles * ns_per_cycle(step)
    }
}

/// The length of a clock cycle in nanoseconds.
pub(crate) fn ns_per_cycle(step: ClockStep) -> f64 {
    1e9 / step.clock.0 as f64
}

/// How long `effort` takes on an otherwise idle machine, in nanoseconds.
fn alone_ns(model: &MachineModel, step: ClockStep, effort: Effort) -> f64 {
    let access = model.memory.private_cycles * ns_per_cycle(step) + model.memory.service_at(step);
    effort.cycles * ns_per_cycle(step) + effort.accesses * access
}

/// What accesses cost at the top clock with nothing else running: what programs are compiled with.
///
/// In memory-first mode an update costs its slot write; group commits come on top, as a load of their own.
///
/// # Errors
/// [`ModelError`] where the model is not sound.
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
