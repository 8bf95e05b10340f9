//! A step of the loop allocates nothing, with eight tasks under goals of their own and jobs paced from within: a
//! decision must not wait for the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use punctual_loop::{Event, MadeFor, ModelDocument, Regulator, RegulatorOptions, Vitals};
use punctual_platform::{Applied, ClockOffer, KnobId, KnobOffer, Meter, Offers, Provenance, Range, Readings};
use punctual_units::{CoreId, Hertz, Nanos, Share, TaskId, Time};
use punctual_workload::{ControllerKind, Goal, JobOutcome, JobProgress, Pace, Split, TaskGoal, UpdateMode};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; counting touches a thread-local without a destructor,
// which itself allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`, which is the same here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer comes from `alloc` above, that is from the system, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const TASKS: u32 = 8;

fn regulator() -> Regulator {
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
    Regulator::new(RegulatorOptions {
        kind: ControllerKind::Mimo,
        goal: Goal {
            tasks: TaskGoal::default(),
            drr: 0.6,
            min_fresh: Share::clamped(0.5),
        },
        goals: Vec::new(),
        offers: Offers {
            machine: "test".into(),
            cores: vec![CoreId(0)],
            knobs: vec![KnobOffer {
                knob: KnobId::CLOCK,
                range: Range::Clock(ClockOffer {
                    steps: (8..=20).map(|hundreds| Hertz::from_mhz(hundreds * 100)).collect(),
                    provenance: Provenance::Simulated,
                }),
            }],
            energy: None,
        },
        start: Time::ZERO,
        warm_up: Nanos::ZERO,
        silence: Nanos::from_secs(10),
        impatient: false,
        within: true,
        design: Some(design),
        best_effort: None,
        excite: None,
    })
    .unwrap()
}

fn vitals(at: Time) -> Vitals {
    Vitals {
        machine: Readings {
            at,
            clock: Meter::Value(Hertz::from_mhz(2000)),
            busy: Meter::Absent,
            energy_j: Meter::Absent,
        },
        fresh: Share::ONE,
        updates_offered: 0,
        updates_admitted: 0,
        updates_for_minimum: 0,
    }
}

/// One job of each task, with a checkpoint and a decision.
fn round(regulator: &mut Regulator, number: u64) {
    for task in 0..TASKS {
        let released = Time(1 + (number * 8 + u64::from(task)) * 10_000_000);
        let deadline = Nanos::from_millis(10);
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
        regulator.step(&Event::Period(vitals(finished)), finished);
        let applied = Applied {
            obtained: regulator.plan(),
            ..Applied::default()
        };
        regulator.step(&Event::Applied(applied), finished);
    }
}

#[test]
fn a_step_of_the_loop_allocates_nothing() {
    let mut regulator = regulator();
    // A task's pacer is made at its first checkpoint.
    (0..2).for_each(|number| round(&mut regulator, number));
    let before = ALLOCATIONS.with(Cell::get);
    (2..200).for_each(|number| round(&mut regulator, number));
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
    assert_eq!(regulator.task_windows().len(), 1);
}
