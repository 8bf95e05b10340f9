//! The contract of machines behind faulty knobs and meters: kept where they are sound, broken where one fails.

use punctual_machine::{Failing, Fault, Faults, Faulty};
use punctual_platform::{Applied, Machine, MeterId, Offers, Plan, Readings, Refusal};
use punctual_sim::{MachineModel, Simulation, SimulationEvent};
use punctual_testing::conformance::machine as conformance;
use punctual_units::{Clock, Nanos, Time};

use crate::loads::{compute, load, machine, real_time, silence};

/// A machine that is seen through its knobs and meters.
struct Seen(Simulation, Faulty);

impl Clock for Seen {
    fn now(&self) -> Time {
        self.0.now()
    }
}

impl Machine for Seen {
    fn offers(&self) -> &Offers {
        self.0.offers()
    }

    fn apply(&mut self, plan: &Plan) -> Applied {
        self.1.apply(&mut self.0, plan)
    }

    fn read(&mut self) -> Readings {
        self.1.read(&mut self.0)
    }

    fn restore(&mut self) -> Vec<Refusal> {
        self.0.restore()
    }
}

/// Breaches of the contract by a machine of which these knobs and meters fail for a second.
fn breaches(failing: &[Failing]) -> Vec<String> {
    let trace = silence();
    let fault = |failing: &Failing| Fault {
        failing: *failing,
        from: Nanos::ZERO,
        until: Nanos::from_secs(1),
    };
    let faults = Faults {
        seed: 1,
        list: failing.iter().map(fault).collect(),
    };
    let tasks = vec![real_time(&[compute(1_000_000)])];
    let mut seen = Seen(machine(MachineModel::duo(), load(&trace, tasks)), Faulty::new(faults));
    conformance::check(&mut seen, |Seen(machine, _): &mut Seen| {
        let end = machine.now() + Nanos::from_millis(10);
        while machine.run_until(end) != SimulationEvent::Reached {}
    })
}

#[test]
fn sound_knobs_and_meters_are_those_of_the_machine() {
    assert_eq!(breaches(&[]), Vec::<String>::new());
}

/// The planted faults.
#[test]
fn the_conformance_suite_sees_faults() {
    let lie = Failing::Wrong(MeterId::Clock, 0.5);
    for failing in [Failing::StuckClock, Failing::RefusedClock, lie] {
        assert!(!breaches(&[failing]).is_empty(), "{failing:?}");
    }
}
