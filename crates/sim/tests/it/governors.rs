//! A governor in the machine: when it samples, what it is given, and which callers outrank it.

use crate::common;

use common::*;
use punctual_platform::{KnobId, Machine, Plan, Value};
use punctual_sim::{Governor, LoadSample, MachineModel, Simulation};
use punctual_units::{Hertz, Nanos, Time};
use punctual_workload::Trace;

const SAMPLING: Nanos = Nanos::from_millis(7);

/// The clock follows the busiest core: nearest to its share of the time since the last sample. It stays where no core
/// worked before the sample.
#[derive(Clone, Debug, Default)]
pub struct Following {
    /// Whether each core works.
    working: Vec<bool>,
}

impl Governor for Following {
    fn sampling(&self, _: Nanos) -> Option<Nanos> {
        Some(SAMPLING)
    }

    fn decide(&mut self, sample: &LoadSample<'_>) -> Hertz {
        assert!(sample.elapsed >= SAMPLING);
        if !self.working.contains(&true) {
            return sample.current;
        }
        let busiest = sample.loads.iter().map(|load| load.busy).max().unwrap_or_default();
        let top = sample.steps[sample.steps.len() - 1];
        Hertz((top.0 as f64 * busiest.ratio(sample.elapsed)) as u64)
    }

    fn track(&mut self, core: usize, share: f64, _: Time) {
        self.working.resize(self.working.len().max(core + 1), false);
        self.working[core] = share > 0.0;
    }

    fn boxed(&self) -> Box<dyn Governor> {
        Box::new(self.clone())
    }
}

/// One clock, always.
#[derive(Clone, Debug)]
struct Fixed(Hertz);

impl Governor for Fixed {
    fn sampling(&self, _: Nanos) -> Option<Nanos> {
        None
    }

    fn decide(&mut self, _: &LoadSample<'_>) -> Hertz {
        self.0
    }

    fn boxed(&self) -> Box<dyn Governor> {
        Box::new(self.clone())
    }
}

fn mhz(machine: &Simulation) -> u64 {
    machine.clone().read().clock().unwrap().0 / 1_000_000
}

/// A machine whose clock follows the load of a job of so many cycles every 100 ms, and perhaps of one without an end.
fn following(trace: &Trace, cycles: u64, crowd: bool) -> Simulation {
    let tasks = [
        Some(real_time(&[compute(cycles)])),
        crowd.then(|| interferer(&[compute(1_000_000)])),
    ];
    let mut machine = machine(
        MachineModel::exynos5422_a15(),
        load(trace, tasks.into_iter().flatten().collect()),
    );
    machine.govern_with(Box::new(Following::default()));
    machine
}

#[test]
fn a_decision_without_samples_is_in_force_at_once() {
    let trace = silence();
    for (wanted, nearest) in [(1000, 1000), (1040, 1000), (1, 200), (9000, 2000)] {
        let mut machine = machine(MachineModel::exynos5422_a15(), load(&trace, vec![]));
        machine.govern_with(Box::new(Fixed(Hertz::from_mhz(wanted))));
        assert_eq!(mhz(&machine), nearest, "{wanted}");
    }
}

#[test]
fn samples_show_how_busy_the_cores_were() {
    let trace = silence();
    let mut machine = following(&trace, 1_000_000, true);
    run(&mut machine, Nanos::from_millis(500));
    assert_eq!(mhz(&machine), 2000, "a core that never rests");
    // 40 million cycles in 100 ms: 20 ms at the top. Within the job, the core is busy all the time.
    let mut machine = following(&trace, 40_000_000, false);
    run(&mut machine, Nanos::from_millis(415));
    assert_eq!(mhz(&machine), 2000, "in the middle of a job");
}

#[test]
fn an_idle_machine_is_not_sampled() {
    let trace = silence();
    let mut machine = machine(MachineModel::duo(), load(&trace, vec![]));
    machine.govern_with(Box::new(Following::default()));
    run(&mut machine, Nanos::from_secs(5));
    assert_eq!(mhz(&machine), 2000, "nothing ran that could have lowered the clock");
}

#[test]
fn a_caller_that_sets_the_clock_outranks_the_governor_until_the_machine_is_restored() {
    let trace = silence();
    let mut machine = following(&trace, 1_000_000, true);
    machine.apply(&Plan::of(KnobId::CLOCK, Value::Clock(Hertz::from_mhz(700))));
    run(&mut machine, Nanos::from_secs(1));
    assert_eq!(mhz(&machine), 700);
    machine.restore();
    run(&mut machine, Nanos::from_secs(2));
    assert_eq!(mhz(&machine), 2000);
}
