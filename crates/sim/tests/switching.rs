//! Tasks that are switched on and off, and that run on some of the cores only.

mod common;

use common::{busy, compute, interferer, load, machine, run, silence};
use proptest::prelude::*;
use punctual_sim::{Happening, MachineModel};
use punctual_units::{Nanos, Time};
use punctual_workload::Active;

proptest! {
    #[test]
    fn jobs_are_released_only_while_the_task_is_active(from_ms in 0u64..300, length_ms in 1u64..300) {
        let trace = silence();
        let (mut spec, program) = interferer(&[compute(1_000_000)]);
        let [from, until] = [from_ms, from_ms + length_ms].map(Nanos::from_millis);
        spec.active = Active { from, until };
        let mut machine = machine(MachineModel::duo(), load(&trace, vec![(spec, program)]));
        let released: Vec<Time> = run(&mut machine, Nanos::from_millis(700))
            .into_iter()
            .filter_map(|happening| match happening {
                Happening::Released { at, .. } => Some(at),
                _ => None,
            })
            .collect();
        prop_assert!(!released.is_empty());
        let [from, until] = [from, until].map(|span| Time::ZERO + span);
        prop_assert!(released.iter().all(|at| (from..until).contains(at)), "{released:?}");
    }
}

#[test]
fn a_task_runs_on_as_many_cores_as_it_is_given() {
    for (cores, expected) in [(None, 3), (Some(1), 1), (Some(2), 2), (Some(9), 3)] {
        let trace = silence();
        let (mut spec, program) = interferer(&[compute(1_000_000)]);
        spec.cores = cores;
        let mut machine = machine(MachineModel::exynos5422_a15(), load(&trace, vec![(spec, program)]));
        run(&mut machine, Nanos::from_millis(20));
        let at_work = busy(&mut machine)
            .into_iter()
            .filter(|busy| *busy > Nanos::ZERO)
            .count();
        assert_eq!(at_work, expected, "{cores:?}");
    }
}
