//! Identities that hold on any split machine, and faults that a run refuses.

use proptest::prelude::*;
use punctual_allocation::{Grid, PeriodicTask, Phase, Profile, RateTable, Share};
use punctual_machine::split::{SplitError, SplitResult, run};
use punctual_sim::split::{Instant, Refill, RunnableProfile, Slice, SplitModel};
use punctual_units::{Nanos, Time};
use punctual_workload::JobOutcome;

const GRID: Grid = Grid { ways: 6, partitions: 6 };

const MACHINE: SplitModel = SplitModel {
    grid: GRID,
    cores: 2,
    way_bytes: 1e6,
    partition_bandwidth: 1e8,
    refill: Refill::Charged,
    decision_gap: Nanos::from_millis(1),
};

fn seconds(seconds: f64) -> Nanos {
    Nanos::from_secs_f64(seconds)
}

fn response(job: &JobOutcome) -> f64 {
    job.response().as_secs_f64()
}

fn share(ways: u8, partitions: u8) -> Share {
    Share { ways, partitions }
}

fn slice(first: u8, ways: u8, partitions: u8) -> Option<Slice> {
    Some(Slice {
        first,
        share: share(ways, partitions),
    })
}

/// A program of 1e9 instructions with equal phases: phase k gains `gains[k]` per way and partition over 1e9 per second.
fn program(gains: &[f32]) -> RunnableProfile {
    let phase = |(k, gain): (usize, &f32)| Phase {
        ends: (k + 1) as f64 / gains.len() as f64,
        rates: RateTable::new(GRID, |share| {
            1e9 * (1.0 + gain * (f32::from(share.ways) + f32::from(share.partitions)))
        }),
    };
    RunnableProfile::new(Profile {
        name: "synthetic".into(),
        grid: GRID,
        instructions: 1e9,
        phases: gains.iter().enumerate().map(phase).collect(),
    })
    .unwrap()
}

fn halves(_: &Instant) -> Option<Vec<Option<Slice>>> {
    Some(vec![slice(0, 3, 3), slice(3, 3, 3)])
}

#[test]
fn a_job_alone_takes_what_its_profile_says() {
    let programs = [program(&[0.0, 0.5, 0.1])];
    let tasks = [PeriodicTask::new(0, seconds(10.0), 0)];
    let finished = run(&MACHINE, &programs, &tasks, seconds(25.0), halves).unwrap();
    assert_eq!((finished.jobs.len(), finished.too_fast), (3, 0));
    for job in &finished.jobs {
        let whole = programs[0].profile().duration(share(3, 3));
        assert!((response(job) - whole).abs() < 1e-6, "{job:?} {whole}");
    }
}

#[test]
fn the_earlier_deadline_runs_first_and_late_jobs_run_to_their_end() {
    let programs = [program(&[0.0])];
    let task = |period| PeriodicTask::new(0, seconds(period), 1);
    // One second of work each: the short one is due after 1.5 s, the long one waits for it and is late.
    let tasks = [task(1.9), task(1.5)];
    let finished = run(&MACHINE, &programs, &tasks, seconds(1.0), halves).unwrap();
    let ended: Vec<(usize, bool)> = finished
        .jobs
        .iter()
        .map(|job| (job.task.index(), job.overrun().is_some()))
        .collect();
    assert_eq!(ended, [(1, false), (0, true)]);
    assert_eq!(finished.ended, Time(2_000_000_000));
}

#[test]
fn gained_ways_cost_their_size_at_the_cores_bandwidth_and_returned_ones_again() {
    let programs = [program(&[0.0, 0.0])];
    let tasks = [0, 1].map(|core| PeriodicTask::new(0, seconds(10.0), core));
    // At the phase boundary, core 0 gains two ways and core 1 loses them.
    let move_two = |moment: &Instant| {
        let late = moment.cores()[0].is_none_or(|job| job.progress >= 0.5);
        Some(if late {
            vec![slice(0, 5, 2), slice(5, 1, 2)]
        } else {
            vec![slice(0, 3, 2), slice(3, 3, 2)]
        })
    };
    let run = |refill| {
        run(
            &SplitModel { refill, ..MACHINE },
            &programs,
            &tasks,
            seconds(1.0),
            move_two,
        )
        .unwrap()
    };
    let (free, charged) = (run(Refill::Free), run(Refill::Charged));
    let response =
        |finished: &SplitResult, task| response(finished.jobs.iter().find(|job| job.task.index() == task).unwrap());
    let cost = 2.0 * 1e6 / (2.0 * 1e8);
    assert!((response(&charged, 0) - response(&free, 0) - cost).abs() < 1e-6);
    assert!((response(&charged, 1) - response(&free, 1)).abs() < 1e-6);
    assert!((charged.refilling.as_secs_f64() - cost).abs() < 1e-6);
    assert_eq!((free.ways_moved, charged.ways_moved), (2, 2));
}

#[test]
fn decisions_are_a_gap_apart() {
    let programs = [program(&[0.0; 50])];
    let tasks = [0, 1].map(|core| PeriodicTask::new(0, seconds(1.5), core));
    let wide = SplitModel {
        decision_gap: Nanos::from_millis(100),
        ..MACHINE
    };
    let mut asked = Vec::new();
    let ask = |moment: &Instant| {
        asked.push(moment.now);
        halves(moment)
    };
    run(&wide, &programs, &tasks, seconds(3.0), ask).unwrap();
    assert!(asked.windows(2).all(|pair| pair[1].since(pair[0]) >= wide.decision_gap));
    assert!(asked.len() > 10);
}

#[test]
fn what_is_handed_out_twice_is_refused() {
    let programs = [program(&[0.0])];
    let tasks = [PeriodicTask::new(0, seconds(1.0), 0)];
    let run = |slices: Vec<Option<Slice>>| {
        run(&MACHINE, &programs, &tasks, seconds(1.0), |_: &Instant| {
            Some(slices.clone())
        })
    };
    for wrong in [
        vec![slice(0, 4, 3), slice(3, 3, 3)],
        vec![slice(0, 3, 4), slice(3, 3, 3)],
        vec![slice(0, 3, 3), slice(4, 3, 3)],
        vec![slice(0, 3, 3)],
    ] {
        assert!(matches!(run(wrong), Err(SplitError::Overdrawn(_))));
    }
}

#[test]
fn a_task_that_gets_nothing_never_ends() {
    let programs = [program(&[0.0])];
    let tasks = [0, 1].map(|core| PeriodicTask::new(0, seconds(1.0), core));
    let starved = run(&MACHINE, &programs, &tasks, seconds(2.0), |_: &Instant| {
        Some(vec![slice(0, 6, 6), None])
    });
    assert!(matches!(starved, Err(SplitError::NeverEnds { task: 1, .. })));
    let slow = [RunnableProfile::new(Profile {
        instructions: 1e15,
        ..program(&[0.0]).profile().clone()
    })
    .unwrap()];
    assert!(matches!(
        run(&MACHINE, &slow, &tasks, seconds(2.0), halves),
        Err(SplitError::NeverEnds { .. })
    ));
}

#[test]
fn tasks_of_nothing_are_refused() {
    let programs = [program(&[0.0])];
    let good = PeriodicTask::new(0, seconds(1.0), 0);
    for (wrong, word) in [
        (PeriodicTask { program: 1, ..good }, "no program"),
        (
            PeriodicTask {
                period: Nanos::ZERO,
                ..good
            },
            "a period of 0",
        ),
        (PeriodicTask { core: 2, ..good }, "core 2 of 2"),
    ] {
        let error = run(&MACHINE, &programs, &[good, wrong], seconds(1.0), halves).unwrap_err();
        assert!(
            error.to_string().starts_with("task 1: ") && error.to_string().contains(word),
            "{error}"
        );
    }
}

#[test]
fn what_would_not_end_is_refused() {
    let programs = [program(&[0.0])];
    let task = |period| PeriodicTask::new(0, seconds(period), 0);
    let run = |period| run(&MACHINE, &programs, &[task(period)], seconds(120.0), halves);
    assert!(matches!(run(1e-9), Err(SplitError::Jobs { .. })));
}

proptest! {
    /// Whatever is handed out and whenever, nothing is faster than the uncontended machine, every job ends, and busy
    /// time is what jobs needed and refilling took.
    #[test]
    fn no_split_beats_the_envelope(
        gains in prop::collection::vec(prop::collection::vec(0.0f32..2.0, 1..6), 1..4),
        periods in prop::collection::vec((0usize..3, 0.2f64..2.0, 0usize..2), 1..6),
        cuts in prop::collection::vec((1u8..6, 1u8..6), 1..40),
        charged in any::<bool>(),
    ) {
        let programs: Vec<RunnableProfile> = gains.iter().map(|gains| program(gains)).collect();
        let tasks: Vec<PeriodicTask> = periods.iter()
            .map(|(program, period, core)| PeriodicTask::new(program % programs.len(), seconds(*period), *core))
            .collect();
        let refill = if charged { Refill::Charged } else { Refill::Free };
        let mut turn = cuts.iter().cycle();
        let finished = run(&SplitModel { refill, ..MACHINE }, &programs, &tasks, seconds(4.0), |_: &Instant| {
            let (ways, partitions) = *turn.next()?;
            Some(vec![slice(0, ways, partitions), slice(ways, 6 - ways, 6 - partitions)])
        });
        let finished = finished.unwrap();
        prop_assert_eq!(finished.too_fast, 0);
        let releases: f64 = tasks.iter().map(|task| (4.0 / task.period.as_secs_f64()).ceil()).sum();
        prop_assert!((finished.jobs.len() as f64 - releases).abs() <= tasks.len() as f64);
        let least: f64 = finished.jobs.iter().map(|job| programs[tasks[job.task.index()].program].envelope()).sum();
        prop_assert!((finished.busy - finished.refilling).as_secs_f64() >= least * (1.0 - 1e-6));
        prop_assert!(charged || finished.refilling == Nanos::ZERO);
    }
}
