//! A regulator of eight tasks with goals of their own, whose jobs are paced from within; it turns the clock, the
//! admitted share and the best-effort share.
#![allow(dead_code, reason = "each user takes its part")]

use punctual_loop::{BestEffortRange, Event, JobRelease, MadeFor, ModelDocument, Regulator, RegulatorOptions, Vitals};
use punctual_platform::{Applied, ClockOffer, KnobId, KnobOffer, Offers, Provenance, Range, Readings};
use punctual_units::{CoreId, Hertz, Nanos, Share, TaskId, Time};
use punctual_workload::{ControllerKind, Goal, JobOutcome, JobProgress, Pace, Split, TaskGoal, UpdateMode};

#[cfg(feature = "allocation")]
mod split;
#[cfg(feature = "allocation")]
pub use split::{jobs, split};

pub const TASKS: u32 = 8;

pub fn regulator() -> Regulator {
    Regulator::new(options()).unwrap()
}

pub fn options() -> RegulatorOptions {
    let (mut y, mut u) = (vec![[0.9, 0.6]], Vec::new());
    for k in 0..120u32 {
        let (clock, admitted) = (0.8 + 0.05 * f64::from(k % 4), 0.5 + 0.1 * f64::from(k % 5));
        let before: [f64; 2] = y[k as usize];
        y.push([
            0.2 * before[0] + 1.5 - 1.2 * clock + 0.6 * admitted,
            0.5 - 0.05 * clock + 0.3 * admitted,
        ]);
        u.push([clock, admitted]);
    }
    y.pop();
    let made_for = MadeFor {
        shipped: false,
        scenario: "test".into(),
        platform: "test".into(),
        pace: Pace::Job,
        update_mode: UpdateMode::Transaction,
        machine: None,
    };
    let design = ModelDocument::identify(made_for, &y, &u).unwrap().design().unwrap();
    RegulatorOptions {
        kind: ControllerKind::Mimo,
        goal: Goal {
            tasks: TaskGoal::default(),
            drr: 0.6,
            min_fresh: Share::clamped(0.5),
        },
        goals: Vec::new(),
        stages: Vec::new(),
        offers: Offers {
            machine: "test".into(),
            cores: vec![CoreId(0)],
            knobs: vec![
                KnobOffer {
                    knob: KnobId::CLOCK,
                    range: Range::Clock(ClockOffer::new(
                        (8..=20).map(|hundreds| Hertz::from_mhz(hundreds * 100)).collect(),
                        Provenance::Simulated,
                    )),
                },
                KnobOffer {
                    knob: KnobId::BestEffortShare,
                    range: Range::Share(Provenance::Simulated),
                },
            ],
            domains: Vec::new(),
            meters: Vec::new(),
        },
        start: Time::ZERO,
        warm_up: Nanos::ZERO,
        silence: Nanos::from_secs(10),
        impatient: false,
        within: true,
        design: Some(design),
        best_effort: Some(BestEffortRange {
            most: Share::ONE,
            least: Share::clamped(0.2),
        }),
        split: None,
        prices: None,
        idle_clock: false,
        excite: None,
    }
}

pub fn vitals(at: Time) -> Vitals {
    Vitals {
        machine: Readings { at, meters: Vec::new() },
        fresh: Share::ONE,
        updates_offered: 0,
        updates_admitted: 0,
        updates_for_minimum: 0,
        updates_least: Share::clamped(0.25),
    }
}

/// One job of each task, with a checkpoint and a decision.
pub fn round(regulator: &mut Regulator, number: u64) {
    for task in 0..TASKS {
        let finished = job(regulator, number, task);
        decide(regulator, finished);
    }
}

/// A job of `task`, with a checkpoint; when it ends.
pub fn job(regulator: &mut Regulator, number: u64, task: u32) -> Time {
    let released = Time(1 + (number * 8 + u64::from(task)) * 10_000_000);
    let deadline = Nanos::from_millis(10);
    let begun = JobRelease {
        task: TaskId(task),
        job: number,
        released,
        deadline,
        pending: 0,
    };
    regulator.step(&Event::Begun(begun), released);
    // As the model says, at rest: a law whose model is wrong is told why, in words.
    let (clock, admitted) = (
        regulator.plan().clock().unwrap().0 as f64 / 2e9,
        regulator.plan().share(KnobId::AdmittedShare).unwrap().get(),
    );
    let tardiness = (1.5 - 1.2 * clock + 0.6 * admitted) / 0.8;
    let response = deadline.scaled(tardiness);
    let (half, finished) = (released + response.scaled(0.5), released + response);
    let progress = JobProgress {
        task: TaskId(task),
        job: number,
        released,
        deadline,
        at: half,
        done: 1,
        of: 2,
    };
    regulator.step(&Event::Progressed(progress), half);
    let outcome = JobOutcome {
        task: TaskId(task),
        job: number,
        released,
        deadline: Some(deadline),
        finished,
        split: Split {
            data: response.scaled(0.5),
            computation: response.scaled(0.5),
            ..Split::default()
        },
    };
    regulator.step(&Event::Completed(outcome), finished);
    finished
}

/// The end of a period, and what a machine makes of the plan.
pub fn decide(regulator: &mut Regulator, now: Time) {
    regulator.step(&Event::Period(vitals(now)), now);
    let applied = Applied {
        obtained: regulator.plan(),
        ..Applied::default()
    };
    regulator.step(&Event::Applied(applied), now);
}
