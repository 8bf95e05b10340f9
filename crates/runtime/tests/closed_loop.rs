//! The loop closed around the simulated machine: identified there, it reaches its goal there, and a law of the wrong
//! sign does not.

mod common;

use common::{request, unwatched};
use punctual_runtime::report::RunReport;
use punctual_runtime::{ControllerSource, Mismatch, ModelDocument, PlatformChoice, RunError, Unfit, identify, run};
use punctual_workload::ControllerKind;

fn model() -> ModelDocument {
    let request = request(PlatformChoice::Sim, ControllerKind::Open, 80);
    let (model, _) = identify(&request, &mut unwatched).expect("identification runs");
    model
}

fn controlled(kind: ControllerKind, model: &ModelDocument) -> RunReport {
    let mut request = request(PlatformChoice::Sim, kind, 40);
    request.controller = Some(ControllerSource::Model(model.clone()));
    run(&request, &mut unwatched).expect("the run ends in order").report
}

/// Whether the goal is held within `0.05`, the minimum with it, and nothing lost.
fn reaches_the_goal(report: &RunReport) -> Result<(), String> {
    let (goal, summary) = (&report.header.goal, &report.summary);
    let off = (summary.tardiness_mean - goal.tardiness).abs();
    let fresh = summary.fresh_share_min >= goal.min_fresh.get();
    if off <= 0.05 && fresh && summary.updates_lost == 0 {
        return Ok(());
    }
    Err(format!(
        "tardiness {}, fresh at least {}",
        summary.tardiness_mean, summary.fresh_share_min
    ))
}

#[test]
fn open_is_tardy_while_qod_and_mimo_reach_the_goal() {
    let model = model();
    model.check_fit().expect("the model explains its record");
    let open = controlled(ControllerKind::Open, &model);
    assert!(
        open.summary.tardiness_mean > 1.1,
        "open: {}",
        open.summary.tardiness_mean
    );
    for kind in [ControllerKind::Qod, ControllerKind::Mimo] {
        let report = controlled(kind, &model);
        assert_eq!(
            reaches_the_goal(&report),
            Ok(()),
            "{kind:?}, seed {}",
            report.header.seed
        );
        assert!(report.samples.iter().all(|sample| sample.fallback.is_none()));
    }
}

#[test]
fn a_law_of_the_wrong_sign_is_caught() {
    let mut planted = model();
    let flipped = serde_json::to_value(&planted.tardiness).unwrap();
    let mut flipped = flipped;
    for row in flipped["b"][0].as_array_mut().unwrap() {
        for gain in row.as_array_mut().unwrap() {
            *gain = serde_json::json!(-gain.as_f64().unwrap());
        }
    }
    planted.tardiness = serde_json::from_value(flipped).unwrap();
    assert!(
        matches!(planted.check_fit(), Err(Unfit::Backwards { .. })),
        "and identification would refuse it"
    );
    let report = controlled(ControllerKind::Qod, &planted);
    assert!(
        reaches_the_goal(&report).is_err(),
        "a law that pushes the wrong way cannot hold the goal"
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

#[test]
fn a_controller_for_something_else_is_refused() {
    let model = model();
    let mut other = request(PlatformChoice::Sim, ControllerKind::Qod, 4);
    other.scenario.name = "another".into();
    other.controller = Some(ControllerSource::Model(model));
    let error = run(&other, &mut unwatched).unwrap_err();
    assert!(
        matches!(error, RunError::Mismatch(Mismatch::MadeForElse { .. })),
        "{error}"
    );

    let without = request(PlatformChoice::Sim, ControllerKind::Mimo, 4);
    let error = run(&without, &mut unwatched).unwrap_err();
    assert!(
        matches!(error, RunError::Mismatch(Mismatch::NoDesign { .. })),
        "{error}"
    );
}
