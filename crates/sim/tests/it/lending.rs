//! Whenever an exclusive core is lent and taken back: its own jobs wait no longer than taking back takes, guests are on
//! one core at a time, and what they work is what the cores that they may use worked.

use crate::common;

use common::{compute, interferer, load, silence};
use proptest::prelude::*;
use punctual_platform::{KnobId, Machine, Plan, Value};
use punctual_sim::{LENDING_COSTS, MachineModel, Simulation, SimulationEvent};
use punctual_testing::task_by_hand;
use punctual_units::{Clock, CoreId, Nanos, Time};
use punctual_workload::{Arrival, Class, Program, TaskSpec};

/// The core that the exclusive task has.
const CORE: CoreId = CoreId(3);
/// 2 ms at 2 GHz.
const OWN: Nanos = Nanos::from_millis(2);

fn tasks(guests: u32) -> Vec<(TaskSpec, Program)> {
    let period = Nanos::from_millis(10);
    let mut own = task_by_hand(
        "own",
        Class::Exclusive { deadline: period },
        Arrival::Periodic { period },
    );
    own.demand.compute = OWN;
    let own = (
        own,
        Program {
            ops: vec![compute(4_000_000)],
        },
    );
    let mut guest = interferer(&[compute(600_000)]);
    guest.0.per_core = guests;
    vec![own, guest]
}

proptest! {
    #[test]
    fn a_core_that_is_lent_and_taken_back_at_any_time(
        flips in prop::collection::vec(1u64..4_000_000, 0..60),
        guests in 0u32..4,
    ) {
        let trace = silence();
        let mut machine = Simulation::new(MachineModel::exynos5422_a15(), load(&trace, tasks(guests))).unwrap();
        let end = Time::ZERO + Nanos::from_millis(200);
        let mut flips = flips.into_iter().scan(Time::ZERO, |at, gap| {
            *at = *at + Nanos(gap);
            Some(*at)
        });
        let (mut lent, mut next) = (false, flips.next().unwrap_or(end));
        let mut outcomes = Vec::new();
        while machine.now() < end {
            match machine.run_until(next.min(end)) {
                SimulationEvent::Completed(outcome) if outcome.deadline.is_some() => outcomes.push(outcome),
                SimulationEvent::Reached if machine.now() == next && next < end => {
                    lent = !lent;
                    machine.apply(&Plan::of(KnobId::Lease(CORE), Value::Lent(lent)));
                    next = flips.next().unwrap_or(end);
                }
                _ => {}
            }
        }
        prop_assert!(outcomes.len() >= 18);
        for outcome in outcomes {
            // Each time that a job goes on, what is left of it is rounded to a nanosecond.
            let (response, rounding) = (outcome.response(), Nanos(20));
            let bound = OWN + LENDING_COSTS.take_back + rounding;
            prop_assert!(response + rounding >= OWN && response <= bound, "{response}");
        }
        let worked: Nanos = machine.worked().into_iter().fold(Nanos::ZERO, |sum, one| sum + one);
        let cores = machine.core_times().iter().fold(Nanos::ZERO, |sum, core| sum + core.working);
        prop_assert_eq!(worked, cores);
    }
}

/// With a hog for each core of the others, a lent core has nothing to do; with two it works as long as it is lent.
#[test]
fn guests_come_only_where_their_own_core_is_taken() {
    let worked = |guests: u32| {
        let trace = silence();
        let mut machine = Simulation::new(MachineModel::exynos5422_a15(), load(&trace, tasks(guests))).unwrap();
        machine.apply(&Plan::of(KnobId::Lease(CORE), Value::Lent(true)));
        let end = Time::ZERO + Nanos::from_millis(100);
        while machine.now() < end {
            machine.run_until(end);
        }
        machine.core_times()[CORE.index()].working
    };
    let own = OWN * 10;
    assert_eq!(worked(1), own);
    let with_two = worked(2);
    assert!(
        with_two > Nanos::from_millis(99),
        "{with_two}: all but the hand-over and pauses"
    );
}
