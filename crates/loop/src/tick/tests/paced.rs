//! Jobs paced from within, and a loop at every job that is asked although none has ended: all from values.

use punctual_platform::{Measure, Readings};
use punctual_units::TaskId;
use punctual_workload::{JobOutcome, Split, TaskGoal};

use super::super::*;
use super::{LEAST, TOP, is_safe, options, read_only};
use crate::idle::JobRelease;

const DEADLINE: Nanos = Nanos::from_millis(50);
/// Checkpoints of a job, its end included.
const PARTS: u32 = 16;
/// What a job computes at the top clock: 42.5 ms, its goal, at half of it.
const WORK_MS: f64 = 21.25;

/// A machine that runs jobs under a regulator.
struct Bench {
    regulator: Regulator,
    now: Time,
    /// By task.
    jobs: [u64; 2],
    clock: f64,
    /// Whether checkpoints that come as forecast are not reported.
    spares: bool,
    /// By task: of the job under way, and of later ones.
    forecasts: [[Option<Forecast>; 2]; 2],
    /// Checkpoints that were reported.
    reports: u64,
}

impl Bench {
    fn new(within: bool, impatient: bool) -> Bench {
        let model = super::design().model.unwrap().for_every_job(1.0).unwrap();
        let options = RegulatorOptions {
            within,
            impatient,
            silence: Nanos::from_millis(200),
            design: Some(model.design().unwrap()),
            ..options(ControllerKind::Mimo)
        };
        let regulator = Regulator::new(options).unwrap();
        let clock = regulator.plan().clock().unwrap().ratio(TOP);
        Bench {
            regulator,
            now: Time::ZERO,
            jobs: [0; 2],
            clock,
            spares: false,
            forecasts: [[None; 2]; 2],
            reports: 0,
        }
    }

    fn apply(&mut self, plan: Plan) {
        let applied = Applied {
            obtained: plan,
            ..Applied::default()
        };
        let clock = plan.clock().unwrap().ratio(TOP);
        if std::mem::replace(&mut self.clock, clock) != clock {
            self.forecasts = [[None; 2]; 2];
        }
        assert_eq!(self.regulator.step(&Event::Applied(applied), self.now), None);
    }

    fn period(&mut self) -> Step {
        let machine = Readings {
            at: self.now,
            meters: vec![(MeterId::Clock, Ok(Measure::Clock(TOP.scaled(self.clock))))],
        };
        let vitals = Vitals {
            machine,
            fresh: Share::ONE,
            updates_offered: 0,
            updates_admitted: 0,
            updates_for_minimum: 0,
            updates_least: Share::clamped(LEAST),
        };
        let answer = self.regulator.step(&Event::Period(vitals), self.now);
        let step = answer.and_then(Answer::step).expect("a period is answered");
        self.apply(step.plan);
        step
    }

    /// Runs a job of the first task that is `slow` times as long; its tardiness, and the step at its end.
    fn job(&mut self, slow: f64) -> (f64, Step) {
        self.job_of(0, slow)
    }

    fn job_of(&mut self, task: usize, slow: f64) -> (f64, Step) {
        self.now = Time(self.now.0.next_multiple_of(100_000_000));
        let released = self.now;
        let begun = JobRelease {
            task: TaskId(task as u32),
            job: self.jobs[task],
            released,
            deadline: DEADLINE,
            pending: 0,
        };
        if let Some(Answer::Turn(plan)) = self.regulator.step(&Event::Begun(begun), released) {
            self.apply(plan);
            let next = self.regulator.forecast_next(begun.task);
            self.forecasts[task] = [self.regulator.forecast_begun(&begun), next];
        }
        self.parts(task, released, slow, 1..=PARTS);
        self.end(task, released)
    }

    /// Runs these parts of a job that was released then.
    fn parts(&mut self, task: usize, released: Time, slow: f64, parts: std::ops::RangeInclusive<u32>) {
        for done in parts {
            let part_ms = slow * WORK_MS / f64::from(PARTS) / self.clock;
            self.now = self.now + Nanos::from_secs_f64(part_ms * 1e-3);
            let progress = JobProgress {
                task: TaskId(task as u32),
                job: self.jobs[task],
                released,
                deadline: DEADLINE,
                at: self.now,
                done,
                of: PARTS,
            };
            let is_forecast = self.forecasts[task].iter().flatten().any(|it| it.holds(&progress));
            if done == PARTS || self.spares && is_forecast {
                continue;
            }
            self.reports += 1;
            if let Some(Answer::Turn(plan)) = self.regulator.step(&Event::Progressed(progress), self.now) {
                self.apply(plan);
            }
            let next = self.regulator.forecast_next(progress.task);
            self.forecasts[task] = [self.regulator.forecast(&progress), next];
        }
    }

    /// A decision, behind which further jobs are forecast.
    fn tick(&mut self) -> Step {
        let step = self.period();
        for (task, forecasts) in (0..).zip(&mut self.forecasts) {
            forecasts[1] = self.regulator.forecast_next(TaskId(task));
        }
        step
    }

    /// Ends a job that was released then; its tardiness, and the step at its end.
    fn end(&mut self, task: usize, released: Time) -> (f64, Step) {
        let response = self.now.since(released);
        let outcome = JobOutcome {
            task: TaskId(task as u32),
            job: self.jobs[task],
            released,
            deadline: Some(DEADLINE),
            finished: self.now,
            split: Split {
                data: response.scaled(0.6),
                computation: response - response.scaled(0.6),
                ..Split::default()
            },
        };
        self.jobs[task] += 1;
        self.regulator.step(&Event::Completed(outcome), self.now);
        (response.ratio(DEADLINE), self.tick())
    }
}

/// The first job that is disturbed is late where nothing is done within it, and on its goal where it is paced.
#[test]
fn a_paced_job_is_rescued_and_the_loop_goes_on_from_its_clock() {
    for within in [false, true] {
        let mut bench = Bench::new(within, false);
        for _ in 0..30 {
            bench.job(1.0);
        }
        let (before, _) = bench.job(1.0);
        assert!((before - 0.85).abs() < 0.06, "{within}: {before}");
        let (first, step) = bench.job(1.5);
        if within {
            assert!((first - 0.85).abs() < 0.04, "{first}");
            let mean = step.window.clock.unwrap();
            // The mean clock is what the job needed, and where the next one begins.
            assert!((mean - 1.5 * 0.5).abs() < 0.05, "{mean}");
            assert!((step.plan.clock().unwrap().ratio(TOP) - mean).abs() < 0.08, "{step:?}");
            assert_eq!(step.mode.as_str(), "running");
        } else {
            assert!(first > 1.1, "{first}");
            assert_eq!(step.window.clock, None);
        }
    }
}

/// A job that begins at a clock which another task raised, and needs it, keeps it when the other's job has ended: also
/// where it reports no checkpoint that comes as forecast.
#[test]
fn a_job_keeps_the_clock_that_another_task_raised() {
    let clock = |usual, spares| {
        let mut bench = Bench::new(true, false);
        for _ in 0..5 {
            bench.job_of(0, 1.0);
            bench.job_of(1, 1.0);
        }
        bench.spares = spares;
        let (_, step) = bench.job_of(1, 1.0);
        let other = bench.now;
        bench.parts(1, other, 8.0, 1..=1);
        assert!(step.plan.clock() < Some(TOP) && bench.clock == 1.0, "{step:?}");
        // As at the end of a third task's job.
        bench.tick();
        let own = bench.now;
        bench.parts(0, own, 1.0, 1..=usual);
        bench.parts(0, own, 8.0, usual + 1..=usual + 1);
        bench.end(1, other);
        bench.clock
    };
    for usual in [0, 1] {
        assert_eq!(
            [false, true].map(|spares| clock(usual, spares)),
            [1.0; 2],
            "after {usual}"
        );
    }
}

/// Nothing but a regulator that paces answers a checkpoint: in warm-up and in fallback the plan stands.
#[test]
fn checkpoints_are_answered_while_the_law_runs_only() {
    let mut bench = Bench::new(true, false);
    for _ in 0..30 {
        bench.job(1.0);
    }
    bench.regulator.step(&Event::Applied(read_only()), bench.now);
    let step = bench.period();
    assert!(is_safe(step.plan), "{step:?}");
    bench.job(0.3);
    assert_eq!(bench.clock, 1.0, "an early job would be slowed down");
}

/// A law that lets a job take two periods is asked, falls back to full clock, and is left alone for longer each time.
#[test]
fn silence_under_a_law_s_settings_is_held_against_its_model() {
    let mut bench = Bench::new(false, true);
    for _ in 0..30 {
        bench.job(1.0);
    }
    bench.now = bench.now + Nanos::from_millis(201);
    let step = bench.period();
    assert!(is_safe(step.plan), "{step:?}");
    assert!(step.fallback.unwrap().contains("no real-time job ended"));
    let pauses: Vec<usize> = (0..2)
        .map(|_| {
            let paused = (0..).take_while(|_| bench.job(0.6).1.fallback.is_some()).count();
            bench.job(1.0);
            bench.now = bench.now + Nanos::from_millis(301);
            bench.period();
            paused
        })
        .collect();
    assert!(pauses[0] >= 20 && pauses[1] >= 2 * pauses[0] - 10, "{pauses:?}");

    let mut patient = Bench::new(false, false);
    patient.job(1.0);
    patient.now = patient.now + Nanos::from_millis(150);
    assert_eq!(patient.period().fallback, None, "shorter than the silence");
}

/// Between jobs the clock falls, but not while they miss their goal.
#[test]
fn the_clock_falls_between_jobs_that_keep_their_goal() {
    let design = super::design().model.unwrap().for_every_job(1.0).unwrap().design();
    let mut options = RegulatorOptions {
        within: true,
        silence: Nanos::from_secs(1),
        design: Some(design.unwrap()),
        prices: Some(Prices::default()),
        idle_clock: true,
        ..options(ControllerKind::Mimo)
    };
    options.goal.tasks = TaskGoal::Late(Share::clamped(0.01));
    let mut bench = Bench {
        regulator: Regulator::new(options).unwrap(),
        now: Time::ZERO,
        jobs: [0; 2],
        clock: 1.0,
        spares: true,
        forecasts: [[None; 2]; 2],
        reports: 0,
    };
    let law_clock = |bench: &Bench| bench.regulator.idle.as_ref().unwrap().law_clock();
    (0..60).for_each(|_| drop(bench.job(1.0)));
    assert!(law_clock(&bench) > bench.regulator.plan().clock());
    let before = bench.reports;
    (0..60).for_each(|_| drop(bench.job(1.0)));
    let reports = bench.reports - before;
    assert!(reports < 60, "{reports} checkpoints of 60 usual jobs are reported");
    // Late at any clock.
    let (tardiness, step) = bench.job(3.0);
    assert_eq!(step.mode.as_str(), "running");
    assert_eq!(law_clock(&bench), None, "a job is late by {tardiness}");
    (0..60).for_each(|_| drop(bench.job(1.0)));
    assert!(law_clock(&bench).is_some());
}

/// Releases are reported where the clock between jobs is turned, and nowhere else.
#[test]
fn a_clock_rests_only_where_a_law_turns_it_and_it_may() {
    let rests = |change: &dyn Fn(&mut RegulatorOptions)| {
        let mut options = RegulatorOptions {
            within: true,
            prices: Some(Prices::default()),
            idle_clock: true,
            ..options(ControllerKind::Mimo)
        };
        options.goal.tasks = TaskGoal::Late(Share::clamped(0.01));
        change(&mut options);
        options.rests()
    };
    assert!(rests(&|_| {}));
    assert!(!rests(&|options| options.idle_clock = false));
    assert!(!rests(&|options| options.design = None));
    assert!(!rests(&|options| options.kind = ControllerKind::Qod));
    assert!(!rests(&|options| options.prices = None));
}
