//! Real runs of the ways that change nothing on the machine, in a process of their own: they lock its memory. Nothing
//! is judged that depends on time.
#![cfg(target_os = "linux")]

use std::ops::ControlFlow;

use punctual_evaluation::control_loop::{JobCounts, LoopPlan, LoopReport, Way, compare};
use punctual_platform::linux::thread::{allowed_cores, pin};
use punctual_testing::shared_machine;
use punctual_units::Nanos;

fn plan(ways: &[Way]) -> LoopPlan {
    let ms = Nanos::from_millis;
    LoopPlan {
        period: ms(10),
        compute: ms(1),
        reserved: ms(5),
        lasts: ms(100),
        hogs_per_core: 1,
        busy_disk: false,
        repetitions: 1,
        ways: ways.to_vec(),
    }
}

fn run(plan: &LoopPlan) -> LoopReport {
    compare(plan, &mut |_| ControlFlow::Continue(())).expect("a comparison")
}

#[test]
fn runs_account_for_every_release() {
    let _machine = shared_machine();
    let plan = plan(&[Way::Alone, Way::Ordinary, Way::Fifo, Way::ByHand]);
    let report = run(&plan);
    assert_eq!((report.runs.len(), report.ways.len()), (4, 4));
    for summary in &report.ways {
        let JobCounts {
            jobs,
            in_time,
            late,
            dropped,
            ..
        } = summary.tally;
        let expected = match (summary.way, &summary.refused) {
            (Way::Alone, _) | (_, Some(_)) => 0,
            _ => plan.jobs(),
        };
        assert_eq!((jobs, in_time + late + dropped), (expected, expected), "{summary:?}");
    }
    let ordinary = &report.ways[1];
    assert!(ordinary.refused.is_none() && ordinary.wake.max >= ordinary.wake.p50);
}

/// A thread of one core gets no reservation (sched-deadline.rst): the way is left out and says why; the others run.
#[test]
fn a_refused_reservation_is_named_and_the_others_run() {
    let _machine = shared_machine();
    let cores = allowed_cores();
    if cores.len() < 2 {
        return eprintln!("skipped: one core only, so that no thread is of fewer");
    }
    let plan = plan(&[Way::Alone, Way::Deadline, Way::Ordinary]);
    let pinned = || pin(cores[0]).map(|()| run(&plan));
    let report = std::thread::scope(|scope| scope.spawn(pinned).join());
    let report = report.expect("no panic").expect("a pinned thread");
    let [_, deadline, ordinary] = report.ways.as_slice() else {
        panic!("{:?}", report.ways)
    };
    let refused = deadline.refused.as_ref().expect("planted");
    assert!(refused.contains("SCHED_DEADLINE"), "{refused}");
    assert_eq!(deadline.tally, JobCounts::default());
    assert!(
        deadline.interactive.work.is_empty(),
        "what did not run is held against nothing"
    );
    assert_eq!((ordinary.tally.jobs, &ordinary.refused), (plan.jobs(), &None));
}
