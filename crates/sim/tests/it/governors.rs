//! Governors inside the machine: when they sample, what follows, and which callers outrank them.

use crate::common;

use common::*;
use punctual_platform::{KnobId, Machine, Plan, Value};
use punctual_sim::{Governor, KernelGovernor, MachineModel, Simulation};
use punctual_units::{Hertz, Nanos};
use punctual_workload::Trace;

fn mhz(machine: &Simulation) -> u64 {
    machine.clone().read().clock().unwrap().0 / 1_000_000
}

fn started(governor: &str) -> Box<dyn Governor> {
    governor.parse::<KernelGovernor>().unwrap().start()
}

/// A machine under this governor, with a job of so many cycles every 100 ms and perhaps an interferer that never rests.
fn under<'t>(trace: &'t Trace, governor: &str, cycles: u64, crowd: bool) -> Simulation<'t> {
    let tasks = [
        Some(real_time(&[compute(cycles)])),
        crowd.then(|| interferer(&[compute(1_000_000)])),
    ];
    let mut machine = machine(
        MachineModel::exynos5422_a15(),
        load(trace, tasks.into_iter().flatten().collect()),
    );
    machine.govern_with(started(governor));
    machine
}

#[test]
fn fixed_governors_set_their_clock_at_once() {
    let trace = silence();
    assert_eq!(mhz(&under(&trace, "performance", 1, false)), 2000);
    assert_eq!(mhz(&under(&trace, "userspace:1000MHz", 1, false)), 1000);
    assert_eq!(
        mhz(&under(&trace, "userspace:1040MHz", 1, false)),
        1000,
        "the nearest step"
    );
}

#[test]
fn a_machine_that_never_rests_is_driven_to_the_top() {
    let trace = silence();
    for governor in ["ondemand-old", "ondemand-old:20..90", "ondemand", "schedutil"] {
        let mut machine = under(&trace, governor, 1_000_000, true);
        // From the bottom, as if it had been idle for long.
        machine.apply(&Plan::of(KnobId::CLOCK, Value::Clock(Hertz::from_mhz(200))));
        machine.govern_with(started(governor));
        run(&mut machine, Nanos::from_secs(1));
        assert_eq!(mhz(&machine), 2000, "{governor}");
    }
}

#[test]
fn a_machine_that_mostly_rests_comes_down() {
    let trace = silence();
    // 2 million cycles in 100 ms: 1 ms at the top, 10 ms at the bottom.
    for (governor, expected) in [("ondemand-old", 200), ("ondemand-old:20..90", 200)] {
        let mut machine = under(&trace, governor, 2_000_000, false);
        run(&mut machine, Nanos::from_secs(5));
        assert_eq!(mhz(&machine), expected, "{governor}");
    }
}

#[test]
fn the_old_rule_lands_where_its_load_is_between_the_thresholds() {
    let trace = silence();
    // Half a core at 1 GHz: load * clock = 500 MHz.
    let mut machine = under(&trace, "ondemand-old", 50_000_000, false);
    run(&mut machine, Nanos::from_secs(10));
    let clock = mhz(&machine);
    // Samples are 140 ms, jobs 100 ms apart: a sample holds one or two of them, so the load seen wavers.
    assert!((500..=2000).contains(&clock), "{clock}");
    let mut wide = under(&trace, "ondemand-old:20..90", 50_000_000, false);
    run(&mut wide, Nanos::from_secs(10));
    assert_eq!(mhz(&wide), 2000, "25 % and more at the top is within 20 and 90 %");
}

#[test]
fn schedutil_runs_real_time_jobs_at_the_top() {
    let trace = silence();
    let mut machine = under(&trace, "schedutil", 10_000_000, false);
    let responses: Vec<Nanos> = jobs(&mut machine, Nanos::from_secs(1))
        .iter()
        .map(|job| job.response())
        .collect();
    assert_eq!(responses[5], Nanos::from_millis(5), "10 million cycles at 2 GHz");
}

#[test]
fn an_idle_machine_is_not_sampled() {
    let trace = silence();
    let mut machine = machine(MachineModel::duo(), load(&trace, vec![]));
    machine.govern_with(started("ondemand"));
    run(&mut machine, Nanos::from_secs(5));
    assert_eq!(mhz(&machine), 2000, "nothing ran that could have lowered the clock");
}

#[test]
fn a_caller_that_sets_the_clock_outranks_the_governor_until_the_machine_is_restored() {
    let trace = silence();
    let mut machine = under(&trace, "ondemand", 1_000_000, true);
    machine.apply(&Plan::of(KnobId::CLOCK, Value::Clock(Hertz::from_mhz(700))));
    run(&mut machine, Nanos::from_secs(1));
    assert_eq!(mhz(&machine), 700);
    machine.restore();
    run(&mut machine, Nanos::from_secs(2));
    assert_eq!(mhz(&machine), 2000);
}
