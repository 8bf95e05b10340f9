//! Tasks of scenarios that tests write by hand.

use punctual_units::Nanos;
use punctual_workload::{Active, Arrival, Class, Demand, ObjectSet, TaskSpec};

/// A task whose program is written by hand: one on each core, always active. Its demand is a stand-in, which is
/// never compiled.
pub fn task_by_hand(name: &str, class: Class, arrival: Arrival) -> TaskSpec {
    TaskSpec {
        name: name.into(),
        class,
        arrival,
        demand: Demand {
            compute: Nanos(1),
            data: Nanos::ZERO,
            rounds: 1,
            reads: ObjectSet::Sensors,
            writes: 0,
            fit: false,
        },
        goal: None,
        per_core: 1,
        cores: None,
        core: None,
        active: Active::ALWAYS,
        profile: None,
    }
}
