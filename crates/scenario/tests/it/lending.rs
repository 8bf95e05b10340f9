//! Exclusive cores of the simulated machine are lent while their tasks rest: others get more done, no job is later for
//! it, and the log of the decisions replays.

use crate::common;

use common::{request, unwatched};
use punctual_loop::{DeciderEvent, DeciderSetup, EventLog, replay};
use punctual_runtime::report::RunReport;
use punctual_scenario::{PlatformChoice, run};
use punctual_units::Nanos;
use punctual_workload::{Arrival, Class, ControllerKind};

/// Two exclusive tasks of one core and background load on the others, for four seconds.
fn run_with(lend: bool) -> (RunReport, EventLog) {
    let mut request = request(PlatformChoice::Sim, ControllerKind::Open, 4);
    request.neighbours.lend = lend;
    request.record = true;
    let tasks = &mut request.scenario.tasks;
    let (analysis, background) = (tasks[0].clone(), &mut tasks[1]);
    background.per_core = 2;
    background.arrival = Arrival::AfterCompletion {
        pause_min: Nanos::ZERO,
        pause_max: Nanos::ZERO,
    };
    for (name, period) in [("fast", 40), ("slow", 90)] {
        let mut task = analysis.clone();
        task.name = name.into();
        let period = Nanos::from_millis(period);
        (task.class, task.arrival) = (Class::Exclusive { deadline: period }, Arrival::Periodic { period });
        (task.demand.compute, task.demand.data) = (Nanos::from_millis(5), Nanos::ZERO);
        task.demand.writes = 0;
        tasks.push(task);
    }
    let finished = run(&request, &mut unwatched).expect("the run ends in order");
    (finished.report, finished.log.expect("a log was asked for"))
}

fn jobs(report: &RunReport, task: &str) -> (u64, u64) {
    let task = report.tasks.iter().find(|figures| figures.name == task);
    let task = task.expect("the task is in the summary");
    (task.jobs, task.late)
}

#[test]
fn others_get_more_done_and_no_job_is_late_for_it() {
    let ((kept, kept_log), (lent, log)) = (run_with(false), run_with(true));
    assert_eq!(kept.lending, []);
    let [lending] = &lent.lending[..] else {
        panic!("one core is exclusive: {:?}", lent.lending);
    };
    assert!(lending.leases >= 100, "{lending:?}");
    assert!(lending.lent_s > 2.0 && lending.used_share > Some(0.95), "{lending:?}");
    assert_eq!(lending.late, 0);
    for task in ["fast", "slow"] {
        assert_eq!((jobs(&kept, task).1, jobs(&lent, task).1), (0, 0), "{task}");
    }
    // Four cores, of which the background load had two to itself: at least a third of the lent one comes to them.
    let (before, after) = (kept.summary.best_effort_jobs, lent.summary.best_effort_jobs);
    assert!(
        after > before + before / 6,
        "{before} background jobs, {after} with the lent core"
    );

    let lending = |log: &EventLog| {
        log.decisions_of(|it| matches!(it, DeciderSetup::Lending { .. }))
            .count()
    };
    assert_eq!(lending(&kept_log), 0);
    assert!(lending(&log) >= 200);
    assert_eq!(replay(&log), Ok(vec![]));
    let mut planted = log;
    let mut decisions = planted.decisions.iter_mut();
    let lent = decisions.find(|it| matches!(it.event, DeciderEvent::Lending(..)) && it.answer == true.into());
    lent.expect("a lease").answer = false.into();
    assert_eq!(
        replay(&planted).expect("a log that replays").len(),
        1,
        "the planted answer is found"
    );
}
