//! Stages of a pipeline: their frames press as jobs do, and the knobs are turned for them.

use super::*;
use crate::{DeciderSetup, EventLog, replay};

/// Goal of the stage in these tests.
fn goal() -> TaskGoal {
    TaskGoal::Late(Share::clamped(0.01))
}

/// Options with a stage of that goal, and best-effort work that may be cut down to a fifth.
fn with_stage(kind: ControllerKind, goal: Option<TaskGoal>) -> RegulatorOptions {
    let mut options = options(kind);
    options.offers.knobs.push(KnobOffer {
        knob: KnobId::BestEffortShare,
        range: Range::Share(Provenance::Simulated),
    });
    options.stages = goal.into_iter().collect();
    options.best_effort = Some(BestEffortRange {
        most: Share::ONE,
        least: least(),
    });
    options
}

/// Least share of best-effort work.
fn least() -> Share {
    Share::clamped(0.2)
}

fn bench(options: RegulatorOptions) -> Bench {
    Bench {
        regulator: Regulator::new(options).unwrap(),
        now: Time::ZERO,
    }
}

/// A run with one stage, whose events are logged.
struct Run {
    regulator: Regulator,
    log: EventLog,
    now: Time,
    plan: Plan,
    job: u64,
}

impl Run {
    fn new(kind: ControllerKind, learnt: bool) -> Run {
        let mut options = with_stage(kind, Some(goal()));
        options.goal.tasks = goal();
        options.design = options.design.filter(|_| learnt);
        let regulator = Regulator::new(options.clone()).unwrap();
        Run {
            plan: regulator.plan(),
            regulator,
            log: EventLog::of(DeciderSetup::Tasks(Box::new(options)), usize::MAX),
            now: Time::ZERO,
            job: 0,
        }
    }

    fn step(&mut self, event: Event) -> Option<Answer> {
        let answer = self.regulator.step(&event, self.now);
        self.log.note(self.now, event, answer.clone());
        answer
    }

    /// A window: a job in good time, `frames`, and so many missing ones.
    fn window(&mut self, frames: &[f64], missing: u64, oldest: f64) -> Step {
        let (deadline, released) = (Nanos::from_millis(50), self.now);
        self.now = self.now + STEP;
        let response = deadline.scaled(0.4);
        let split = Split {
            computation: response,
            ..Split::default()
        };
        self.step(Event::Completed(JobOutcome {
            task: TaskId(0),
            job: self.job,
            released,
            deadline: Some(deadline),
            finished: released + response,
            split,
        }));
        self.job += 1;
        self.step(Event::Missing {
            stage: 0,
            frames: missing,
            tardiness: oldest,
        });
        for tardiness in frames {
            self.step(Event::Frame {
                stage: 0,
                tardiness: *tardiness,
            });
        }
        let vitals = Vitals {
            machine: Readings {
                at: self.now,
                meters: vec![(MeterId::Clock, Ok(Measure::Clock(TOP)))],
            },
            fresh: Share::ONE,
            updates_offered: 0,
            updates_admitted: 0,
            updates_for_minimum: 0,
            updates_least: Share::clamped(LEAST),
        };
        let step = self.step(Event::Period(vitals)).and_then(Answer::step).expect("a step");
        self.plan = step.plan;
        let applied = Applied {
            obtained: step.plan,
            ..Applied::default()
        };
        self.step(Event::Applied(applied));
        step
    }

    fn share(&self, knob: KnobId) -> f64 {
        self.plan.share(knob).map_or(1.0, Share::get)
    }
}

/// The knobs of every law, learnt or not.
const LAWS: [(ControllerKind, bool); 5] = [
    (ControllerKind::Open, false),
    (ControllerKind::Qod, false),
    (ControllerKind::Mimo, false),
    (ControllerKind::Qod, true),
    (ControllerKind::Mimo, true),
];

/// Frames that sensor updates delay: fewer are admitted until the frames are in time, and no fewer; decisions replay.
#[test]
fn updates_are_shed_for_a_stage_until_its_frames_are_in_time() {
    for (kind, learnt) in LAWS {
        let mut run = Run::new(kind, learnt);
        let (mut late, mut pressure, mut shares) = (0, 0.0_f64, Vec::new());
        for window in 0..1500 {
            let tardiness = 0.3 + 0.9 * run.share(KnobId::AdmittedShare);
            let step = run.window(&[tardiness; 5], 0, 0.0);
            pressure = pressure.max(step.stage_pressure.unwrap_or_default());
            if window >= 500 {
                late += u32::from(tardiness > 1.0);
                shares.push(run.share(KnobId::AdmittedShare));
            }
        }
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        match kind {
            ControllerKind::Open => assert_eq!((late, run.share(KnobId::BestEffortShare)), (1000, least().get())),
            _ => {
                assert!(late <= 30, "{kind:?} {learnt}: late in {late} windows of 1000");
                assert!((0.3..0.8).contains(&mean), "{kind:?} {learnt}: admitted {mean}");
            }
        }
        assert!(pressure > 1.0, "{kind:?} {learnt}: {pressure}");
        assert_eq!(replay(&run.log), Ok(Vec::new()));
    }
}

/// A stage that hangs takes no frame, and is not on time: every knob goes to its safe end, and comes back afterwards.
#[test]
fn a_stage_that_hangs_presses_on_every_knob() {
    for (kind, learnt) in LAWS {
        let mut run = Run::new(kind, learnt);
        (0..300).for_each(|_| drop(run.window(&[0.3; 5], 0, 0.0)));
        let eased = run.plan;
        let mut oldest = 0.0;
        for window in 0..60 {
            oldest += 4.0;
            run.window(&[], (4 * window).min(14), oldest);
        }
        assert_eq!(run.share(KnobId::BestEffortShare), least().get(), "{kind:?} {learnt}");
        if kind != ControllerKind::Open {
            assert!(
                run.share(KnobId::AdmittedShare) <= LEAST + 1e-9,
                "{kind:?} {learnt}: {:?}",
                run.plan
            );
        }
        if kind == ControllerKind::Mimo {
            assert_eq!(run.plan.clock(), Some(TOP), "{learnt}");
        }
        // The frames that were missing come late, and count no second time.
        run.window(&[oldest; 14], 0, 0.0);
        (0..1500).for_each(|_| drop(run.window(&[0.3; 5], 0, 0.0)));
        assert_eq!(run.plan.clock(), eased.clock(), "{kind:?} {learnt}");
        for knob in [KnobId::AdmittedShare, KnobId::BestEffortShare] {
            let [before, after] = [eased, run.plan].map(|plan| plan.share(knob).map_or(1.0, Share::get));
            assert!(
                (before - after).abs() < 1e-9,
                "{kind:?} {learnt}: {knob} {before}, then {after}"
            );
        }
        assert_eq!(replay(&run.log), Ok(Vec::new()));
    }
}

/// Frames that are dropped press as late ones, whether others come in time or none comes at all.
#[test]
fn dropped_frames_press_on_every_knob() {
    for ((kind, learnt), taken) in LAWS.into_iter().flat_map(|law| [(law, &[0.3][..]), (law, &[])]) {
        let mut run = Run::new(kind, learnt);
        (0..300).for_each(|_| drop(run.window(&[0.3; 5], 0, 0.0)));
        let last = (1..=100).map(|window| run.window(taken, 9 * window, 0.0)).last();
        let pressure = last.and_then(|step| step.stage_pressure);
        assert!(pressure > Some(1.0), "{kind:?} {learnt} {taken:?}: {pressure:?}");
        assert_eq!(run.share(KnobId::BestEffortShare), least().get(), "{kind:?} {learnt}");
        assert!(
            kind == ControllerKind::Open || run.share(KnobId::AdmittedShare) <= LEAST + 1e-9,
            "{kind:?} {learnt}"
        );
        assert_eq!(replay(&run.log), Ok(Vec::new()));
    }
}

/// A stage in time does not stand before a late task whose jobs are rarer than its frames.
#[test]
fn best_effort_work_yields_to_a_late_task_beside_a_stage_in_time() {
    let mut bench = bench(with_stage(ControllerKind::Open, Some(goal())));
    let mut share = None;
    for number in 0..120 {
        if number % 3 == 0 {
            bench.job(1.4, 0.6);
        }
        let frame = Event::Frame {
            stage: 0,
            tardiness: 0.3,
        };
        assert_eq!(bench.regulator.step(&frame, bench.now), None);
        share = bench
            .period(Ok(Hertz::from_mhz(2000)))
            .plan
            .share(KnobId::BestEffortShare);
    }
    assert_eq!(share, Some(least()));
}

/// Best-effort work yields to a stage as to a task, without a controller too, and gets its share back. Missing frames
/// are not reported here, as in logs before version 10.
#[test]
fn best_effort_work_yields_to_a_stage_that_is_late() {
    // Every how many windows there are frames: a camera is slower than the jobs whose ends may be windows.
    for (kind, asked, every) in [
        (ControllerKind::Open, Some(goal()), 1),
        (ControllerKind::Open, Some(goal()), 5),
        (ControllerKind::Open, Some(goal()), 2 * SILENT_WINDOWS as usize),
        (ControllerKind::Clock, Some(TaskGoal::Tardiness(0.8)), 1),
        (ControllerKind::Open, None, 1),
    ] {
        let mut bench = bench(with_stage(kind, asked));
        let mut shares = |tardiness: f64, windows: usize| -> Option<Share> {
            let window = |number: usize| {
                bench.job(0.5, 0.6);
                let now = bench.now;
                for _ in 0..if number.is_multiple_of(every) { 5 } else { 0 } {
                    let frame = Event::Frame { stage: 0, tardiness };
                    assert_eq!(bench.regulator.step(&frame, now), None);
                }
                bench
                    .period(Ok(Hertz::from_mhz(2000)))
                    .plan
                    .share(KnobId::BestEffortShare)
            };
            (0..windows).map(window).last().flatten()
        };
        let expected = if asked.is_some() { least() } else { Share::ONE };
        assert_eq!(
            shares(1.4, 40 * every),
            Some(expected),
            "{kind:?} {asked:?}: frames are late"
        );
        assert_eq!(
            shares(0.3, 600 * every),
            Some(Share::ONE),
            "{kind:?} {asked:?}: frames are in time"
        );
    }
}
