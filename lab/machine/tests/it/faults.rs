//! Knobs and meters that fail on the simulated machine: what the loop notices, what it does then, what it says, and
//! that it comes back. And what it cannot notice: a plausible lie.

use crate::common;
use crate::learnt;

use common::{request, unwatched};
use punctual_loop::{GOOD_WINDOWS, ModeName};
use punctual_machine::{Failing, Fault, Faults, Surroundings};
use punctual_platform::MeterId;
use punctual_runtime::report::{RunReport, Sample};
use punctual_scenario::{ControllerSource, PlatformChoice, RunRequest};
use punctual_units::Nanos;
use punctual_workload::{Active, ControllerKind, Surge};

const SECONDS: u64 = 40;
/// When every fault of these tests begins and ends, in seconds.
const FROM: f64 = 15.0;
const UNTIL: f64 = 25.0;
/// From the end of a fault to the end of the mistrust: the window under way, the good windows, and one of grace.
const TRUST: f64 = 0.2 * (GOOD_WINDOWS as f64 + 2.0);

/// A run under `mimo` with this failing between [`FROM`] and [`UNTIL`].
fn run_with(failing: &[Failing]) -> RunReport {
    run(request_with(failing))
}

fn run(request: RunRequest) -> RunReport {
    punctual_scenario::run(&request, &mut unwatched)
        .expect("the run ends in order")
        .report
}

fn request_with(failing: &[Failing]) -> RunRequest {
    let mut request = request(PlatformChoice::Sim, ControllerKind::Mimo, SECONDS);
    request.controller = Some(ControllerSource::Model(learnt::model().clone()));
    let [from, until] = [FROM, UNTIL].map(Nanos::from_secs_f64);
    let list = failing.iter().map(|failing| Fault {
        failing: *failing,
        from,
        until,
    });
    let faults = Faults {
        seed: 1,
        list: list.collect(),
    };
    request.environment = Box::new(Surroundings::new(None, faults));
    request
}

fn between(report: &RunReport, from: f64, until: f64) -> Vec<&Sample> {
    let samples = report.samples.iter();
    samples.filter(|sample| (from..until).contains(&sample.t_s)).collect()
}

/// What holds whatever fails: knobs within their limits, the minimum kept, nothing lost.
fn keeps_its_promises(report: &RunReport) -> Result<(), String> {
    let knobs = report
        .samples
        .iter()
        .all(|sample| (0.0..=1.0).contains(&sample.admitted_knob));
    let fresh = report.summary.fresh_share_min >= Some(report.header.goal.min_fresh.get());
    let reconciled = report.summary.updates.lost == 0 && report.summary.updates.sensors_unreconciled == 0;
    match knobs && fresh && reconciled {
        true => Ok(()),
        false => Err(format!("knobs {knobs}, fresh {fresh}, reconciled {reconciled}")),
    }
}

/// Whether the loop was running before, fell back for this reason within `notice` seconds of the fault and stayed there
/// at the safe setting, and runs again after it, with the goal in reach.
fn falls_back_and_recovers(report: &RunReport, reason: &str, notice: f64) -> Result<(), String> {
    keeps_its_promises(report)?;
    let all = |from, until, holds: &dyn Fn(&Sample) -> bool, what: &str| {
        let samples = between(report, from, until);
        match samples.iter().find(|sample| !holds(sample)) {
            None if !samples.is_empty() => Ok(()),
            wrong => Err(format!("{what}, but {wrong:?}")),
        }
    };
    let running = |sample: &Sample| sample.mode == ModeName::Running;
    let told = |sample: &Sample| sample.fallback.as_ref().is_some_and(|told| told.contains(reason));
    // The knob of a sample was in force before it: the safe setting shows from the second sample of a fallback on.
    // Values are valid for two periods: half of them are fresh with little more than a quarter of the updates.
    let safe = |sample: &Sample| (0.25..0.35).contains(&sample.admitted_knob);
    all(3.0, FROM, &running, "running before the fault")?;
    all(
        FROM + notice,
        UNTIL,
        &told,
        "fallback during the fault, with the reason",
    )?;
    all(FROM + notice + 0.4, UNTIL, &safe, "at the safe setting")?;
    all(UNTIL + TRUST, SECONDS as f64, &running, "running after the fault")?;
    reaches_the_goal(report, UNTIL + 7.0)?;
    match report
        .summary
        .notes
        .iter()
        .any(|note| note.contains("fallback") && note.contains(reason))
    {
        true => Ok(()),
        false => Err(format!("the report says why: {:?}", report.summary.notes)),
    }
}

fn mean_tardiness(report: &RunReport, from: f64, until: f64) -> f64 {
    let seen: Vec<f64> = between(report, from, until)
        .iter()
        .filter_map(|sample| sample.tardiness)
        .collect();
    seen.iter().sum::<f64>() / seen.len() as f64
}

fn reaches_the_goal(report: &RunReport, from: f64) -> Result<(), String> {
    let (mean, goal) = (
        mean_tardiness(report, from, SECONDS as f64),
        report.header.goal.tasks.nominal(),
    );
    match (mean - goal).abs() <= 0.08 {
        true => Ok(()),
        false => Err(format!("mean tardiness {mean} from {from} s on, {goal} wanted")),
    }
}

fn never_falls_back(report: &RunReport) -> Result<(), String> {
    match report.samples.iter().find(|sample| sample.mode == ModeName::Fallback) {
        None => keeps_its_promises(report),
        Some(sample) => Err(format!("{sample:?}")),
    }
}

#[test]
fn a_stuck_clock_is_noticed_when_it_does_not_follow_the_plan() {
    // A law at rest asks for the step that the clock is stuck at. Jobs with less to do make it ask for another one.
    let mut request = request_with(&[Failing::StuckClock]);
    let [from, until] = [FROM, UNTIL].map(Nanos::from_secs_f64);
    let active = Active { from, until };
    request.surge = Some(Surge { active, factor: 0.7 });
    assert_eq!(falls_back_and_recovers(&run(request), "and stayed at", 3.0), Ok(()));
}

#[test]
fn a_refused_clock_is_noticed_at_once() {
    let report = run_with(&[Failing::RefusedClock]);
    assert_eq!(
        falls_back_and_recovers(&report, "the knob does not answer", 0.4),
        Ok(())
    );
}

#[test]
fn a_lost_clock_meter_is_noticed_at_once() {
    let report = run_with(&[Failing::Lost(MeterId::Clock, 1.0)]);
    assert_eq!(
        falls_back_and_recovers(&report, "clock meter: the reading was lost", 0.2),
        Ok(())
    );
}

#[test]
fn a_clock_meter_that_mostly_fails_is_mistrusted_until_it_has_not_for_a_while() {
    let report = run_with(&[Failing::Lost(MeterId::Clock, 0.8)]);
    assert_eq!(
        falls_back_and_recovers(&report, "clock meter: the reading was lost", 1.6),
        Ok(())
    );
}

#[test]
fn lost_response_times_are_noticed_once_they_were_silent_for_long() {
    let report = run_with(&[Failing::Lost(MeterId::Response, 1.0)]);
    assert_eq!(falls_back_and_recovers(&report, "no real-time job ended", 2.4), Ok(()));
}

#[test]
fn response_times_that_come_too_late_are_silence_first() {
    // Those of the fault's first seconds arrive 5 s later, when silence was noticed; the loop then acts on old news.
    let report = run_with(&[Failing::Late(MeterId::Response, Nanos::from_secs(5))]);
    let silent = between(&report, FROM + 2.4, FROM + 5.0);
    assert!(silent.iter().all(|sample| sample.mode == ModeName::Fallback));
    assert_eq!(keeps_its_promises(&report), Ok(()));
    assert_eq!(reaches_the_goal(&report, UNTIL + 10.0), Ok(()));
}

#[test]
fn half_of_the_response_times_are_enough() {
    let report = run_with(&[Failing::Lost(MeterId::Response, 0.5)]);
    assert_eq!(never_falls_back(&report), Ok(()));
    assert_eq!(reaches_the_goal(&report, FROM), Ok(()));
}

#[test]
fn a_response_meter_two_windows_late_is_not_noticed_and_does_no_harm_that_lasts() {
    let report = run_with(&[Failing::Late(MeterId::Response, Nanos::from_millis(400))]);
    assert_eq!(never_falls_back(&report), Ok(()));
    assert_eq!(reaches_the_goal(&report, UNTIL + 5.0), Ok(()));
}

#[test]
fn a_response_meter_that_flatters_is_believed() {
    let report = run_with(&[Failing::Wrong(MeterId::Response, 0.7)]);
    assert_eq!(
        never_falls_back(&report),
        Ok(()),
        "nothing tells a plausible lie from the truth"
    );
    // The loop slows down until the reported tardiness is the goal, so jobs are late in truth: the price of the lie.
    let sound = run_with(&[]);
    assert!(
        report.summary.misses > sound.summary.misses,
        "{} misses",
        report.summary.misses
    );
    assert_eq!(reaches_the_goal(&report, UNTIL + 5.0), Ok(()));
}

#[test]
fn a_frozen_response_meter_is_believed_and_the_integrators_stay_bounded() {
    let report = run_with(&[Failing::Frozen(MeterId::Response)]);
    assert_eq!(never_falls_back(&report), Ok(()));
    assert_eq!(
        reaches_the_goal(&report, UNTIL + 5.0),
        Ok(()),
        "no wind-up outlives the fault"
    );
}

/// All that the loop decided.
fn decisions(report: &RunReport) -> Vec<(f64, ModeName)> {
    let decided = |sample: &Sample| (sample.admitted_knob, sample.mode);
    report.samples.iter().map(decided).collect()
}

#[test]
fn meters_that_no_decision_reads_change_no_decision() {
    let sound = run_with(&[]);
    let report = run_with(&[
        Failing::Wrong(MeterId::Energy, 3.0),
        Failing::Lost(MeterId::Energy, 0.5),
        Failing::Late(MeterId::Busy, Nanos::from_secs(1)),
        Failing::Wrong(MeterId::Clock, 0.5),
        Failing::Frozen(MeterId::Clock),
    ]);
    assert_eq!(decisions(&report), decisions(&sound));
    assert_eq!(report.summary.misses, sound.summary.misses);
    // What the meters said is in the report, as they said it.
    let clocks: Vec<_> = between(&report, FROM + 0.2, UNTIL)
        .iter()
        .map(|sample| sample.clock_hz)
        .collect();
    assert!(clocks.iter().all(|clock| *clock == clocks[0]), "{clocks:?}");
}

#[test]
fn faults_come_from_their_seed() {
    let bytes = || serde_json::to_vec(&run_with(&[Failing::Lost(MeterId::Clock, 0.5)])).unwrap();
    assert_eq!(bytes(), bytes());
}

/// The planted fault of the checkers themselves.
#[test]
fn the_checkers_see_what_is_not_there() {
    let sound = run_with(&[]);
    assert_eq!(never_falls_back(&sound), Ok(()));
    assert!(falls_back_and_recovers(&sound, "the knob does not answer", 0.4).is_err());
    let lost = run_with(&[Failing::Lost(MeterId::Clock, 1.0)]);
    assert!(never_falls_back(&lost).is_err());
    assert!(falls_back_and_recovers(&lost, "another reason", 0.4).is_err());
}
