//! Interference emerges from memory traffic: more of it delays accesses more, computation delays nothing.

use crate::common;

use common::*;
use proptest::prelude::*;
use punctual_platform::{KnobId, Machine, Plan, Value};
use punctual_sim::MachineModel;
use punctual_units::{Hertz, Nanos};
use punctual_workload::{Op, Split};

/// The split of a job of gets and computation, with `interfering` cores busy with these ops, at this clock.
fn split(interfering: u32, ops: &[Op], mhz: u64) -> Split {
    let trace = silence();
    let model = MachineModel {
        cores: interfering + 1,
        ..MachineModel::exynos5422_a15()
    };
    let mut tasks = vec![real_time(&[get(2000), compute(10_000_000)])];
    if interfering > 0 {
        tasks.push(interferer(ops));
    }
    let mut machine = machine(model, load(&trace, tasks));
    machine.apply(&Plan::of(KnobId::CLOCK, Value::Clock(Hertz::from_mhz(mhz))));
    jobs(&mut machine, PERIOD * 2)[1].split
}

#[test]
fn computation_delays_no_other() {
    let alone = split(0, &[], 2000);
    for cores in 1..8 {
        assert_eq!(split(cores, &[compute(5_000_000)], 2000), alone);
    }
}

#[test]
fn each_interfering_core_delays_accesses_more_and_computation_never() {
    let splits: Vec<Split> = (0..8).map(|cores| split(cores, &[get(100)], 2000)).collect();
    for pair in splits.windows(2) {
        assert!(pair[0].data < pair[1].data, "{:?}", splits);
        assert_eq!(pair[0].computation, pair[1].computation);
    }
}

#[test]
fn interference_grows_as_the_clock_falls() {
    // The data part against alone at the same clock: the paper's normalised response.
    let added = |mhz| split(3, &[get(100)], mhz).data.0 - split(0, &[], mhz).data.0;
    assert!(added(1000) > added(2000), "{} and {} ns", added(1000), added(2000));
}

proptest! {
    #[test]
    fn more_data_intensive_interferers_delay_more(
        cores in 1u32..4,
        cycles in 0u64..2_000_000,
        gets in 50u32..400,
        mhz in 2u64..=20,
    ) {
        // The interferer's own mix changes with time; long stretches of each part would decide by luck which one meets
        // the job, so the parts are kept short.
        let ops = |gets, cycles| [get(gets / 50), compute(cycles / 50 + 1)].repeat(50);
        let less = split(cores, &ops(gets, 2 * cycles), 100 * mhz).data.0 as f64;
        let more = split(cores, &ops(gets, cycles), 100 * mhz).data.0 as f64;
        // A part of a round may meet the job's end by luck: 2 %.
        prop_assert!(
            more >= less * 0.98,
            "{} ns of data beside the more data-intensive interferer, {} ns beside the other",
            more,
            less
        );
    }
}

#[test]
fn throttled_interferers_delay_less() {
    let trace = silence();
    let mean_data = |share: f64| {
        let tasks = vec![real_time(&[get(5000)]), interferer(&[get(1000)])];
        let mut machine = machine(MachineModel::exynos5422_a15(), load(&trace, tasks));
        machine.apply(&Plan::of(
            KnobId::BestEffortShare,
            Value::Share(punctual_units::Share::clamped(share)),
        ));
        let end = Nanos::from_secs(1);
        let jobs = jobs(&mut machine, end);
        let busy = busy(&mut machine)[0].ratio(end);
        assert!((busy - share).abs() < 0.01, "{busy} of the core, {share} allowed");
        jobs.iter().map(|job| job.split.data.0).sum::<u64>() / jobs.len() as u64
    };
    let data = [0.0, 0.3, 0.6, 1.0].map(mean_data);
    assert!(data.is_sorted() && data[0] < data[3], "{data:?}");
}
