//! Updates: what they cost which job, which job waits for the lock, what is fresh, and that none is lost.

use crate::common;

use common::*;
use proptest::prelude::*;
use punctual_sim::{Effort, MachineModel, Simulation, costs};
use punctual_store::updates::Shedding;
use punctual_units::{Nanos, Share, Time};
use punctual_workload::{Class, JobOutcome, Reading, Sensor, SensorStream, Trace, UpdateMode};

fn update_ns() -> u64 {
    costs(&bare_duo(), UpdateMode::Transaction).unwrap().update_ns.round() as u64
}

#[test]
fn an_update_preempted_half_way_holds_the_lock() {
    let update = update_ns();
    let begun = PERIOD.0 - update / 3;
    let trace = readings(&[(begun, 0), (3_600_000_000_000, 0)]);
    for first in [get(10), put(1)] {
        let ops = [compute(1_000_000), first];
        let mut machine = machine(bare_duo(), load(&trace, vec![real_time(&ops)]));
        let jobs = jobs(&mut machine, PERIOD * 2);
        assert_eq!(jobs[0].split.lock, Nanos::ZERO);
        let expected = update - update / 3;
        assert!(
            jobs[1].split.lock.0.abs_diff(expected) <= 1,
            "{} of {expected} ns",
            jobs[1].split.lock
        );
        assert_eq!(
            jobs[1].split.data, jobs[0].split.data,
            "the lock's time is no data time"
        );
    }
}

#[test]
fn a_job_installs_first_what_was_admitted_before_its_transaction_began() {
    // Three arrive while the job computes, one while it is in its first get and one while it helps.
    let at = |micros: u64| PERIOD.0 + micros * 1000;
    let trace = readings(&[
        (at(10), 0),
        (at(20), 1),
        (at(30), 2),
        (at(501), 3),
        (at(600), 4),
        (3_600_000_000_000, 0),
    ]);
    let ops = [compute(1_000_000), get(1000), compute(1_000), get(1000)];
    let mut machine = machine(bare_duo(), load(&trace, vec![real_time(&ops)]));
    let jobs = jobs(&mut machine, PERIOD * 2);
    let helped = jobs[1].split.data.0 - jobs[0].split.data.0;
    assert!(
        helped.abs_diff(5 * update_ns()) <= 5,
        "{helped} ns are not 5 updates of {} ns",
        update_ns()
    );
    assert_eq!(machine.updates().counts().installed, 5);
    assert_eq!(machine.fresh_share(), Share::ONE);
}

/// The rule of a real store ([`punctual_store::updates::Updates::helps`]): a backlog never keeps a job from ending.
#[test]
fn a_job_installs_what_can_be_fresh_until_its_deadline() {
    let (update, deadline) = (update_ns(), Nanos::from_millis(50).0);
    let backlog = (4 * deadline / update) as u32;
    // All arrive at a release; half of them are installed until the next job, which finds the others expired, and ten
    // that arrive with it.
    let mut rows: Vec<(u64, u32)> = (0..backlog).map(|sensor| (PERIOD.0, sensor)).collect();
    rows.extend((0..10).map(|sensor| (PERIOD.0 * 2, sensor)));
    rows.push((3_600_000_000_000, 0));
    let mut trace = readings(&rows);
    trace
        .sensors
        .iter_mut()
        .for_each(|sensor| sensor.avi = Nanos(PERIOD.0 / 2));
    // Jobs of the other core keep the updater from its work between the two.
    let mut machine = machine(bare_duo(), load(&trace, vec![real_time(&[get(1)])]));
    let jobs = jobs(&mut machine, PERIOD * 3);
    let helped = jobs[1].split.data.0 - jobs[0].split.data.0;
    assert!((deadline..deadline + 2 * update).contains(&helped), "{helped} ns");
    let helped = jobs[2].split.data.0 - jobs[0].split.data.0;
    assert!(helped.abs_diff(10 * update) <= 20, "{helped} ns, {update} each");
}

/// While a job runs it also does the updates that arrive meanwhile: r = (c + d) / (1 - rho) with their utilisation rho.
#[test]
fn helping_stretches_a_job_by_the_utilisation_of_updates() {
    let period = Nanos::from_micros(31_360);
    let trace = Trace::synthetic(800, period, period, Nanos::from_secs(1), 1);
    let rho = 800.0 * update_ns() as f64 / period.0 as f64;
    let ops = [get(50), compute(100_000)].repeat(300);
    let mean = |trace: &Trace| {
        let (mut spec, program) = real_time(&ops);
        spec.class = Class::RealTime { deadline: PERIOD }; // no job ends later, so each helps to its end
        let jobs = jobs(&mut machine(bare_duo(), load(trace, vec![(spec, program)])), END);
        jobs.iter().map(|job| job.response().0 as f64).sum::<f64>() / jobs.len() as f64
    };
    let expected = mean(&silence()) / (1.0 - rho);
    let found = mean(&trace);
    assert!(
        (found / expected - 1.0).abs() < 0.02,
        "{found} ns, {expected} ns expected at utilisation {rho}"
    );
}

#[test]
fn updates_in_slack_cost_the_job_nothing() {
    let trace = readings(&[(PERIOD.0 / 2, 0), (PERIOD.0 / 2 + 1, 1), (3_600_000_000_000, 0)]);
    let mut machine = machine(bare_duo(), load(&trace, vec![real_time(&[get(100), put(1)])]));
    let jobs = jobs(&mut machine, PERIOD * 2);
    assert_eq!(jobs[0].split, jobs[1].split);
    assert_eq!(machine.updates().counts().installed, 2);
}

#[test]
fn memory_first_updates_leave_the_job_alone_but_for_a_group_commit() {
    let commit_at = 2 * PERIOD.0;
    // Every object changes just before the commit falls due at the release of the third job.
    let rows: Vec<(u64, u32)> = (0..50)
        .map(|i| (commit_at - 1_000_000 + u64::from(i) * 1000, i))
        .collect();
    let trace = readings(&rows);
    let mut load = load(&trace, vec![real_time(&[put(1)])]);
    load.update_mode = UpdateMode::MemoryFirst;
    load.group_commit = PERIOD;
    let mut machine = machine(bare_duo(), load);
    let jobs = jobs(&mut machine, PERIOD * 3);
    assert_eq!(jobs[1].split.lock, Nanos::ZERO);
    let store = bare_duo().store;
    let alone = |effort: Effort| effort.cycles * 0.5 + (effort.accesses + effort.uncached) * (21.0 * 0.5 + 110.0);
    let expected = alone(store.write_txn(50.0));
    let waited = jobs[2].split.lock.0 as f64;
    assert!((waited - expected).abs() <= 1.0, "{waited} of {expected} ns");
    assert_eq!(machine.updates().counts().installed, 50);
}

#[test]
fn a_version_is_fresh_until_its_interval_ends() {
    let trace = readings(&[(1_000_000, 0), (3_600_000_000_000, 1)]);
    let mut machine = machine(bare_duo(), load(&trace, vec![]));
    let expires = 1_000_000 + Nanos::from_secs(1).0;
    let mut share_at = |at: u64| {
        machine.run_until(Time(at));
        machine.fresh_share().get()
    };
    assert_eq!(share_at(1_000_000), 0.0, "not installed yet");
    assert_eq!(share_at(1_000_000 + update_ns()), 0.5);
    assert_eq!(share_at(expires), 0.5);
    assert_eq!(share_at(expires + 1), 0.0);
}

/// Coldest first: of objects that are read alike, the ones with the longest period gain the most per update.
#[test]
fn what_is_read_decides_what_is_kept_fresh() {
    let sensor = |millis| Sensor {
        period: Nanos::from_millis(millis),
        avi: Nanos::from_millis(2 * millis),
    };
    let mut trace = Trace {
        sensors: [[sensor(10); 5].as_slice(), &[sensor(200)]].concat(),
        readings: Vec::new(),
    };
    for tick in 0..2000u64 {
        let sensors = if tick % 20 == 0 { 0..6 } else { 0..5 };
        trace.readings.extend(sensors.map(|sensor| Reading {
            at: Nanos::from_millis(10 * tick),
            sensor,
            value: 0.0,
        }));
    }
    let mean_fresh = |rebalance: bool| {
        let mut load = load(&trace, vec![real_time(&[get(100)])]);
        load.admission.shedding = Shedding::ColdestFirst;
        let mut machine = machine(bare_duo(), load);
        // Enough for the slow sensor and for no other.
        machine.updates().set_admitted_share(Share::clamped(0.01));
        run(&mut machine, Nanos::from_secs(1));
        if rebalance {
            machine.rebalance();
        }
        let instants = (1000..10_000).step_by(17);
        let shares: Vec<f64> = instants
            .map(|millis| {
                run(&mut machine, Nanos::from_millis(millis));
                machine.fresh_share().get()
            })
            .collect();
        shares.iter().sum::<f64>() / shares.len() as f64
    };
    let (ranked, unranked) = (mean_fresh(true), mean_fresh(false));
    assert!(ranked > 0.9 / 6.0 && unranked < 0.4 / 6.0, "{ranked} and {unranked}");
}

const END: Nanos = Nanos::from_secs(1);

/// Jobs and machine at the end of a second, without a cache, with this share of updates admitted, and interferers if
/// wanted.
fn with_share(trace: &Trace, share: f64, mode: UpdateMode, crowd: bool, gets: u32) -> (Vec<JobOutcome>, Simulation) {
    let mut tasks = vec![real_time(&[get(gets), compute(8_000_000), get(gets), put(3)])];
    if crowd {
        tasks.push(interferer(&[get(90), compute(40_000)]));
    }
    let mut load = load(trace, tasks);
    load.update_mode = mode;
    load.stream = SensorStream::new(trace.clone(), 1.0, 2);
    let mut machine = machine(bare(MachineModel::exynos5422_a15()), load);
    machine.updates().set_admitted_share(Share::clamped(share));
    (jobs(&mut machine, END), machine)
}

/// The checker: whether each job took at most as long with fewer updates, within what one update more or less of a
/// preemption's luck can cost, and 2 % for interferers that meet it elsewhere.
fn none_slower(fewer: &[JobOutcome], more: &[JobOutcome]) -> bool {
    let luck = Nanos(update_ns() * 2);
    let slower = |(fewer, more): (&JobOutcome, &JobOutcome)| fewer.response() > more.response().scaled(1.02) + luck;
    fewer.len() >= more.len() && !fewer.iter().zip(more).any(slower)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    // Not so with a cache: updates that run while the job rests fetch lines that the job would have to fetch.
    #[test]
    fn fewer_updates_never_make_jobs_slower(
        seed in any::<u64>(), sensors in 10u32..400, share in 0.0f64..1.0, crowd in any::<bool>(), gets in 10u32..2000
    ) {
        let trace =
            Trace::synthetic(sensors, Nanos::from_millis(15), Nanos::from_millis(90), Nanos::from_secs(1), seed);
        for mode in [UpdateMode::Transaction, UpdateMode::MemoryFirst] {
            let (all, _) = with_share(&trace, 1.0, mode, crowd, gets);
            let (some, _) = with_share(&trace, share, mode, crowd, gets);
            prop_assert!(none_slower(&some, &all), "{:?} against {:?}", some, all);
        }
    }

    #[test]
    fn no_update_is_lost(
        seed in any::<u64>(),
        sensors in 10u32..400,
        share in 0.0f64..1.0,
        stop_us in 0u64..1_000_000,
    ) {
        let trace = Trace::synthetic(sensors, Nanos::from_millis(5), Nanos::from_millis(90), Nanos::from_secs(1), seed);
        for mode in [UpdateMode::Transaction, UpdateMode::MemoryFirst] {
            let mut load = load(&trace, vec![real_time(&[get(100), compute(8_000_000), put(3)])]);
            load.update_mode = mode;
            let mut machine = machine(MachineModel::duo(), load);
            machine.updates().set_admitted_share(Share::clamped(share));
            run(&mut machine, Nanos::from_micros(stop_us));
            let arrived = trace.readings.iter().filter(|reading| reading.at <= Nanos::from_micros(stop_us)).count();
            let (balances, counts) = (machine.updates().reconcile().balances(), machine.updates().counts());
            prop_assert!(balances, "{:?}", counts);
            prop_assert_eq!(counts.offered, arrived as u64);
            prop_assert!(counts.in_flight <= 1);
        }
    }
}

/// The planted fault: a machine on which admitting less makes jobs slower, made by swapping the two runs.
#[test]
fn the_checker_sees_jobs_that_fewer_updates_made_slower() {
    let trace = Trace::synthetic(
        300,
        Nanos::from_millis(15),
        Nanos::from_millis(30),
        Nanos::from_secs(1),
        5,
    );
    let (all, _) = with_share(&trace, 1.0, UpdateMode::Transaction, true, 500);
    let (some, _) = with_share(&trace, 0.3, UpdateMode::Transaction, true, 500);
    assert!(none_slower(&some, &all));
    assert!(!none_slower(&all, &some));
}

#[test]
fn memory_first_updates_are_cheaper_for_the_job() {
    let trace = Trace::synthetic(
        400,
        Nanos::from_millis(15),
        Nanos::from_millis(30),
        Nanos::from_secs(1),
        5,
    );
    let mean = |mode| {
        let (jobs, _) = with_share(&trace, 1.0, mode, false, 500);
        jobs.iter().map(|job| job.response().0).sum::<u64>() / jobs.len() as u64
    };
    assert!(mean(UpdateMode::MemoryFirst) < mean(UpdateMode::Transaction));
}
