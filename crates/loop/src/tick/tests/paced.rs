//! Jobs paced from within, and a loop at every job that is asked although none has ended: all from values.

use punctual_platform::{Measure, Readings};
use punctual_units::TaskId;
use punctual_workload::{JobOutcome, Split};

use super::super::*;
use super::{LEAST, TOP, is_safe, options, read_only};

const DEADLINE: Nanos = Nanos::from_millis(50);
/// Checkpoints of a job, its end included.
const PARTS: u32 = 16;
/// What a job computes at the top clock: 42.5 ms, its goal, at half of it.
const WORK_MS: f64 = 21.25;

/// A machine that runs one job after the other under a regulator.
struct Bench {
    regulator: Regulator,
    now: Time,
    job: u64,
    clock: f64,
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
            job: 0,
            clock,
        }
    }

    fn apply(&mut self, plan: Plan) {
        let applied = Applied {
            obtained: plan,
            ..Applied::default()
        };
        self.clock = plan.clock().unwrap().ratio(TOP);
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

    /// Runs a job that is `slow` times as long; its tardiness, and the step at its end.
    fn job(&mut self, slow: f64) -> (f64, Step) {
        let released = Time(self.now.0.next_multiple_of(100_000_000));
        self.now = released;
        for done in 1..=PARTS {
            let part_ms = slow * WORK_MS / f64::from(PARTS) / self.clock;
            self.now = self.now + Nanos::from_secs_f64(part_ms * 1e-3);
            if done == PARTS {
                break;
            }
            let progress = JobProgress {
                task: TaskId(0),
                job: self.job,
                released,
                deadline: DEADLINE,
                at: self.now,
                done,
                of: PARTS,
            };
            if let Some(Answer::Turn(plan)) = self.regulator.step(&Event::Progressed(progress), self.now) {
                self.apply(plan);
            }
        }
        let response = self.now.since(released);
        let outcome = JobOutcome {
            task: TaskId(0),
            job: self.job,
            released,
            deadline: Some(DEADLINE),
            finished: self.now,
            split: Split {
                data: response.scaled(0.6),
                computation: response - response.scaled(0.6),
                ..Split::default()
            },
        };
        self.job += 1;
        self.regulator.step(&Event::Completed(outcome), self.now);
        (response.ratio(DEADLINE), self.period())
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
