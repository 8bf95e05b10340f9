//! Governors inside the machine: when they sample, what follows, and which callers outrank them.

use crate::loads::*;

use proptest::prelude::*;
use punctual_machine::KernelGovernor;
use punctual_platform::{KnobId, Machine, Plan, Value};
use punctual_sim::{Governor, MachineModel, Simulation};
use punctual_units::{Clock, Hertz, Nanos, Time};
use punctual_workload::Trace;

fn mhz(machine: &Simulation) -> u64 {
    machine.clone().read().clock().unwrap().0 / 1_000_000
}

fn started(governor: &str) -> Box<dyn Governor> {
    governor.parse::<KernelGovernor>().unwrap().start()
}

/// A machine under this governor, with a job of so many cycles every 100 ms and perhaps an interferer that never rests.
fn under(trace: &Trace, governor: &str, cycles: u64, crowd: bool) -> Simulation {
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_governor_keeps_the_bytes_however_a_run_is_sliced(
        which in 0usize..4,
        cycles in 1_000_000u64..80_000_000,
        crowd in any::<bool>(),
        slice_us in 50u64..30_000,
    ) {
        let end = Nanos::from_millis(900);
        let trace = silence();
        let governor = ["ondemand-old:20..90", "ondemand", "schedutil", "userspace:900MHz"][which];
        let [mut whole, mut sliced] = [(); 2].map(|()| under(&trace, governor, cycles, crowd));
        let mut events = Vec::new();
        while sliced.now() < Time::ZERO + end {
            let next = (sliced.now() + Nanos::from_micros(slice_us)).min(Time::ZERO + end);
            events.extend(run(&mut sliced, next.since(Time::ZERO)));
            sliced.read();
            // A copy has a governor of its own.
            run(&mut sliced.clone(), end);
        }
        prop_assert_eq!(run(&mut whole, end), events);
        prop_assert_eq!(whole.read(), sliced.read());
        prop_assert_eq!(whole.energy(), sliced.energy());
    }
}
