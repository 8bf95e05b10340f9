//! The loop closed around the simulated machine: identified there, it reaches its goal there, and a law of the wrong
//! sign does not.

use crate::common;
use crate::learnt;
use crate::user::User;

use common::{request, unwatched};
use punctual_loop::{Decision, Mismatch, ModelDocument, Unfit, replay};
use punctual_platform::KnobId;
use punctual_runtime::FinishedRun;
use punctual_runtime::report::RunReport;
use punctual_scenario::{ControllerSource, MachineModel, PlatformChoice, RunError, RunRequest, identify, run};
use punctual_units::{Nanos, Share};
use punctual_workload::{Active, Arrival, ControllerKind, Pace, Surge, TaskGoal, UpdateMode, Volume};

fn controlled(kind: ControllerKind, model: &ModelDocument) -> RunReport {
    let mut request = request(PlatformChoice::Sim, kind, 40);
    request.controller = Some(ControllerSource::Model(model.clone()));
    run(&request, &mut unwatched).expect("the run ends in order").report
}

/// Whether the goal is held within `0.05`, the minimum with it, and nothing lost.
fn reaches_the_goal(report: &RunReport) -> Result<(), String> {
    let (goal, summary) = (&report.header.goal, &report.summary);
    let [tardiness, fresh_min] =
        [summary.tardiness_mean, summary.fresh_share_min].map(|figure| figure.unwrap_or(f64::NAN));
    let off = (tardiness - goal.tasks.nominal()).abs();
    let fresh = fresh_min >= goal.min_fresh.get();
    if off <= 0.05 && fresh && summary.updates.lost == 0 {
        return Ok(());
    }
    Err(format!("tardiness {tardiness}, fresh at least {fresh_min}",))
}

#[test]
fn open_is_tardy_while_qod_and_mimo_reach_the_goal() {
    let model = learnt::model();
    let open = controlled(ControllerKind::Open, model);
    assert!(
        open.summary.tardiness_mean > Some(1.0),
        "open: {:?}",
        open.summary.tardiness_mean
    );
    for kind in [ControllerKind::Qod, ControllerKind::Mimo] {
        let report = controlled(kind, model);
        assert_eq!(
            reaches_the_goal(&report),
            Ok(()),
            "{kind:?}, seed {}",
            report.header.seed
        );
        assert!(report.samples.iter().all(|sample| sample.fallback.is_none()));
        explains_the_admitted_share(&report);
    }
    assert!(
        open.settings.iter().all(|setting| setting.refused.is_some()),
        "{:?}",
        open.settings
    );
}

/// A row says from where the loop has turned the share, and each job of the tasks it names counts once.
fn explains_the_admitted_share(report: &RunReport) {
    let row = report.settings.iter().find(|row| row.what == "admitted-share");
    let row = row.unwrap_or_else(|| panic!("{:?}", report.settings));
    let named = report.tasks.iter().filter(|task| row.tasks.contains(&task.name));
    let all: u64 = named.map(|task| task.jobs + task.start_up.jobs).sum();
    assert!(all > 0 && row.jobs_with + row.jobs_without == all, "{row:?}");
    assert!(row.why.contains("furthest from its goal"), "{row:?}");
    assert!(
        row.until_s.is_none_or(|until| until > row.since_s) && row.now != row.before,
        "{row:?}"
    );
}

/// `model` with every effect of a knob turned round.
fn turned_round(model: &ModelDocument) -> ModelDocument {
    let mut json = serde_json::to_value(model).unwrap();
    for part in ["mimo", "tardiness"] {
        for row in json[part]["b"][0].as_array_mut().unwrap() {
            for gain in row.as_array_mut().unwrap() {
                *gain = serde_json::json!(-gain.as_f64().unwrap());
            }
        }
    }
    serde_json::from_value(json).unwrap()
}

fn request_with(kind: ControllerKind, seconds: u64, pace: Pace, source: ControllerSource) -> RunRequest {
    let mut request = request(PlatformChoice::Sim, kind, seconds);
    request.scenario.control.pace = pace;
    request.controller = Some(source);
    request
}

fn is_backwards<T>(refused: Result<T, RunError>) -> bool {
    matches!(refused, Err(RunError::Unfit(Unfit(why))) if why.contains("more of `admitted` makes jobs earlier"))
}

fn is_mismatch(refused: &RunError, words: &str) -> bool {
    matches!(refused, RunError::Mismatch(Mismatch(why)) if why.contains(words))
}

#[test]
fn a_model_of_the_wrong_sign_is_refused_and_its_law_misses_the_goal() {
    let planted = turned_round(learnt::model());
    assert!(
        is_backwards(planted.check_fit(ControllerKind::Qod).map_err(RunError::from)),
        "and identification would refuse it"
    );
    let pace = Pace::Period(Nanos::from_millis(200));
    let source = ControllerSource::Model(planted.clone());
    let refused = run(&request_with(ControllerKind::Qod, 40, pace, source), &mut unwatched);
    assert!(is_backwards(refused));

    // Gains that were designed from it are refused as well, unless the user insists.
    let source = ControllerSource::Controller(planted.design().unwrap());
    let mut request = request_with(ControllerKind::Qod, 40, pace, source);
    let refused = run(&request, &mut unwatched);
    assert!(is_backwards(refused));
    request.force = true;
    let report = run(&request, &mut unwatched).unwrap().report;
    assert!(
        report.summary.notes[0].starts_with("forced to run"),
        "{:?}",
        report.summary.notes
    );
    assert!(
        reaches_the_goal(&report).is_err(),
        "a law that pushes the wrong way cannot hold the goal"
    );
}

/// The same planted gains beyond the paper's period: noticed, and the safe setting keeps jobs on time.
#[test]
fn beyond_the_paper_a_law_of_the_wrong_sign_falls_back_and_is_safe() {
    let planted = turned_round(learnt::model())
        .for_every_job(2.0)
        .unwrap()
        .design()
        .unwrap();
    let source = ControllerSource::Controller(planted);
    let mut request = request_with(ControllerKind::Mimo, 120, Pace::Job, source);
    request.force = true;
    let report = run(&request, &mut unwatched).unwrap().report;
    let fallen = report.samples.iter().find_map(|sample| sample.fallback.as_ref());
    let reason = fallen.expect("a law that makes jobs late is noticed");
    assert!(reason.contains("the model is wrong here"), "{reason}");
    let last = &report.samples[report.samples.len() / 2..];
    let (jobs, late) = last.iter().fold((0, 0), |(jobs, late), sample| {
        (jobs + sample.jobs, late + sample.misses)
    });
    assert!(late * 4 < jobs, "{late} of {jobs} jobs late");
}

/// At the pace of jobs, with the model of a period of two jobs: the law holds the goal, and nothing is held against the
/// model.
#[test]
fn at_every_job_mimo_reaches_the_goal() {
    let source = ControllerSource::Model(learnt::model().clone());
    let report = run(
        &request_with(ControllerKind::Mimo, 40, Pace::Job, source),
        &mut unwatched,
    )
    .unwrap()
    .report;
    assert_eq!(reaches_the_goal(&report), Ok(()), "seed {}", report.header.seed);
    let fallback = report.samples.iter().find_map(|sample| sample.fallback.as_ref());
    assert_eq!(fallback, None);
}

/// A step of work that came unannounced: late for some jobs at every other pace, on the goal from the first job on
/// where jobs are paced from within; and the log of such a run replays.
#[test]
fn within_jobs_a_surge_of_work_is_met_by_the_first_job() {
    let model = learnt::model();
    let surge = Surge {
        active: Active {
            from: Nanos::from_secs(20),
            until: Nanos::from_secs(30),
        },
        factor: 1.15,
    };
    let worst = |within: bool| {
        let mut request = request_with(
            ControllerKind::Mimo,
            40,
            Pace::Job,
            ControllerSource::Model(model.clone()),
        );
        (request.scenario.control.within, request.surge, request.record) = (within, Some(surge), true);
        let FinishedRun { report, log } = run(&request, &mut unwatched).unwrap();
        assert_eq!(replay(&log.unwrap()).unwrap(), []);
        assert_eq!(report.summary.controller.clock_changes_within_jobs > 0, within);
        let surged = report.jobs.iter().filter(|job| (20.0..21.0).contains(&job.t_s));
        surged.map(|job| job.tardiness).fold(0.0, f64::max)
    };
    let (paced, at_ends) = (worst(true), worst(false));
    assert!(paced < at_ends && paced < 0.95, "{paced}, without {at_ends}");
}

#[test]
fn a_model_of_another_simulated_machine_is_refused() {
    let mut other = request(PlatformChoice::Sim, ControllerKind::Mimo, 4);
    other.controller = Some(ControllerSource::Model(learnt::model().clone()));
    let mut machine = MachineModel::exynos5422_a15();
    machine.name = "another".into();
    other.machine = Some(machine);
    let error = run(&other, &mut unwatched).unwrap_err().to_string();
    assert!(
        error.contains("made for the simulated machine \"") && error.contains("this run has \"another\""),
        "{error}"
    );
}

#[test]
fn the_same_seed_gives_the_same_report_and_another_one_does_not() {
    let bytes = |seed| {
        let mut request = request(PlatformChoice::Sim, ControllerKind::Open, 4);
        request.scenario.seed = seed;
        serde_json::to_vec(&run(&request, &mut unwatched).unwrap().report).unwrap()
    };
    assert_eq!(bytes(1), bytes(1));
    assert_ne!(bytes(1), bytes(2));
}

/// The loop of a simulated run learns of a changed goal, and its log replays.
#[test]
fn requests_of_the_user_are_carried_out() {
    let mut request = request(PlatformChoice::Sim, ControllerKind::Mimo, 8);
    request.controller = Some(ControllerSource::Model(learnt::model().clone()));
    request.record = true;
    let mut user = User::of(&request);
    let finished = run(&request, &mut |progress| user.watch(progress)).unwrap();
    user.check(&finished);
    assert_eq!(replay(&finished.log.unwrap()).unwrap(), []);
}

/// With the controller that fits, and before the knobs visit their levels.
#[test]
fn controllers_of_a_fixed_clock_are_refused_before_they_learn() {
    for kind in [ControllerKind::Mimo, ControllerKind::Clock] {
        let mut request = request(PlatformChoice::Sim, kind, 80);
        { request.machine.iter_mut() }.for_each(|machine| machine.steps.truncate(1));
        for refused in [
            identify(&request, &mut unwatched).map(drop),
            run(&request, &mut unwatched).map(drop),
        ] {
            let error = refused.unwrap_err();
            assert!(is_mismatch(&error, "offers no clock knob: use `qod`"), "{error}");
        }
    }
}

#[test]
fn a_controller_for_something_else_is_refused() {
    let model = learnt::model();
    let mut other = request(PlatformChoice::Sim, ControllerKind::Qod, 4);
    other.scenario.name = "another".into();
    other.controller = Some(ControllerSource::Model(model.clone()));
    let error = run(&other, &mut unwatched).unwrap_err();
    assert!(is_mismatch(&error, "the model was made for the scenario"), "{error}");

    let mut without = request(PlatformChoice::Sim, ControllerKind::Mimo, 4);
    let mut lacking = model.design().expect("gains");
    lacking.mimo = None;
    without.controller = Some(ControllerSource::Controller(lacking));
    let error = run(&without, &mut unwatched).unwrap_err();
    assert!(is_mismatch(&error, "no gains for the controller `mimo`"), "{error}");
}

/// Without a model the knobs move by the signs of their effects: far fewer late jobs than without control.
#[test]
fn without_a_model_jobs_come_into_time_and_the_report_says_how() {
    for kind in [ControllerKind::Qod, ControllerKind::Mimo] {
        let late = |kind| {
            let mut request = request(PlatformChoice::Sim, kind, 40);
            request.scenario.goal.tasks = TaskGoal::Late(Share::clamped(0.01));
            let report = run(&request, &mut unwatched).expect("the run ends in order").report;
            (report.tasks[0].late as f64 / report.tasks[0].jobs as f64, report)
        };
        let ((open, _), (stepped, report)) = (late(ControllerKind::Open), late(kind));
        assert!(open > 0.5 && stepped < 0.05, "{kind:?}: {stepped} late, open {open}");
        assert!(report.summary.notes.iter().any(|note| note.contains("without a model")));
    }
}

/// A learning that cannot cover the levels is refused at once.
#[test]
fn a_record_that_will_be_too_short_is_refused_before_it_is_made() {
    let request = request(PlatformChoice::Sim, ControllerKind::Qod, 4);
    let refused = identify(&request, &mut |_| panic!("it has begun")).unwrap_err();
    assert!(matches!(refused, RunError::TooShort { .. }), "{refused}");
}

/// A job that reads nothing has a response ratio that stands still: the clock alone is learnt, for `clock`.
#[test]
fn a_meter_that_stands_still_hinders_only_the_laws_that_read_it() {
    let mut learning = request(PlatformChoice::Sim, ControllerKind::Clock, 40);
    let demand = &mut learning.scenario.tasks[0].demand;
    (demand.data, demand.rounds, demand.writes) = (Nanos::ZERO, 1, 0);
    learning.scenario.store.update_mode = UpdateMode::MemoryFirst;
    learning.scenario.sensors.volume = Volume::Replicas(1);
    let (model, _) = punctual_scenario::identify(&learning, &mut unwatched).expect("a record");
    model
        .check_fit(ControllerKind::Clock)
        .expect("the clock moves the jobs");
    let refused = model.check_fit(ControllerKind::Mimo).unwrap_err().to_string();
    assert!(refused.starts_with("no model for the controller `mimo`"), "{refused}");
    let mut controlled = learning;
    controlled.controller = Some(ControllerSource::Model(model));
    run(&controlled, &mut unwatched).expect("gains of the clock alone");
}

/// A data-intensive job beside best-effort tasks that never rest and fill the shared memory's queue.
fn crowded(model: &ModelDocument, least: Option<f64>) -> RunRequest {
    let mut request = request(PlatformChoice::Sim, ControllerKind::Mimo, 40);
    request.controller = Some(ControllerSource::Model(model.clone()));
    request.record = true;
    let scenario = &mut request.scenario;
    scenario.control.best_effort_min = least.map(Share::clamped);
    // So that shedding is soon at its end: stale data would give the law more to shed.
    scenario.goal.min_fresh = Share::clamped(0.95);
    let [analysis, browse] = scenario.tasks.as_mut_slice() else {
        unreachable!("two tasks")
    };
    (analysis.demand.compute, analysis.demand.data) = (Nanos::from_millis(12), Nanos::from_millis(8));
    (browse.demand.compute, browse.demand.data) = (Nanos::ZERO, Nanos::from_millis(10));
    browse.arrival = Arrival::AfterCompletion {
        pause_min: Nanos::ZERO,
        pause_max: Nanos::from_millis(1),
    };
    request
}

/// Where best-effort work makes jobs late and the law's knobs stand at their ends, the third knob brings them back; and
/// the log of that run replays. A run without that knob does not reach the goal: nothing else does it.
#[test]
fn the_best_effort_share_is_lowered_where_the_law_has_no_more_to_give() {
    let model = learnt::model();
    let ran = |least| run(&crowded(model, least), &mut unwatched).expect("the run ends in order");
    let mean = |finished: &FinishedRun| {
        let samples = &finished.report.samples;
        let late: Vec<f64> = samples
            .iter()
            .skip(samples.len() / 2)
            .filter_map(|sample| sample.tardiness)
            .collect();
        late.iter().sum::<f64>() / late.len() as f64
    };
    let (without, with) = (ran(None), ran(Some(0.1)));
    let goal = with.report.header.goal.tasks.nominal();
    assert!(
        mean(&without) > 1.1 * goal,
        "without the knob {} of {goal}",
        mean(&without)
    );
    assert!(mean(&with) < 1.05 * goal, "with it {} of {goal}", mean(&with));
    let log = with.log.expect("a log was asked for");
    let share = |it: &Decision| it.answer.plan()?.share(KnobId::BestEffortShare);
    let least = log
        .decisions
        .iter()
        .filter_map(share)
        .min_by(|a, b| a.get().total_cmp(&b.get()));
    assert!(
        least.is_some_and(|least| (0.1..0.8).contains(&least.get())),
        "{least:?}"
    );
    assert_eq!(replay(&log), Ok(vec![]));
    let none = without.log.expect("a log was asked for");
    assert!(
        none.decisions.iter().all(|step| share(step).is_none()),
        "it is left alone unless asked for"
    );
}
