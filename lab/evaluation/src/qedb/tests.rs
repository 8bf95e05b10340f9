use punctual_sim::MachineModel;

use super::*;
use crate::claims::{Claims, reasons};

fn settings(claims: &str) -> Settings {
    Settings {
        machines: vec![Subject {
            machine: MachineModel::exynos5422_a15(),
            job: JobTimes::PAPER,
        }],
        profiles: Vec::new(),
        seed: 1,
        seeds: 2,
        sets: 1,
        claims: Claims::parse(claims, "x").unwrap(),
        reasons: reasons(REASONS, "x").unwrap(),
        workers: None,
    }
}

#[test]
fn the_shipped_claims_name_what_there_is() {
    let settings = settings(CLAIMS);
    assert_eq!(check_claims(&[Part::Qod], &settings, &plan(&[Part::Qod])), Ok(()));
    let known: Vec<&str> = settings.claims.iter().map(|claim| claim.id.as_str()).collect();
    let reasons = reasons(REASONS, "x").unwrap();
    let orphan = reasons.keys().find(|id| !known.contains(&id.as_str()));
    assert_eq!(orphan, None, "a reason for no claim");
}

#[test]
fn claims_about_unknown_runs_are_refused_before_anything_runs() {
    let wrong = CLAIMS.replacen("workload=c90-d10", "workload=c90-d11", 1);
    let progress = |_: &str| panic!("something ran");
    let error = run(&[Part::Qod], &settings(&wrong), &progress).unwrap_err().to_string();
    assert!(error.contains("no run has workload=c90-d11"), "{error}");
}

#[test]
fn two_machines_of_one_name_are_refused() {
    let mut settings = settings(CLAIMS);
    settings.machines.push(settings.machines[0].clone());
    let error = run(&[Part::Qod], &settings, &|_| {}).unwrap_err().to_string();
    assert!(error.contains("two machines are called"), "{error}");
}

#[test]
fn the_same_settings_give_the_same_outcome_on_any_number_of_threads() {
    let mut settings = settings(CLAIMS);
    let mut of = |workers| {
        settings.workers = std::num::NonZeroUsize::new(workers);
        run(&[Part::Qod], &settings, &|_| {}).unwrap()
    };
    let one = of(1);
    assert_eq!(one, of(3));
    assert_eq!(one.samples.len(), 1, "the first seed's");
    assert_eq!(one.samples[0].runs.len(), plan(&[Part::Qod]).len());
    assert!(one.failures.is_empty(), "{:?}", one.failures);
    assert!(
        one.claims
            .iter()
            .all(|row| row.claim.experiment == "qedb-qod" && row.of == 2)
    );
}

/// The evaluation's own scenario with three interfering cores, on the simulated machine.
fn request() -> punctual_scenario::RunRequest {
    let place = SeededSubject {
        subject: Arc::new(settings(CLAIMS).machines.remove(0)),
        seed: 1,
        trace: Arc::new(setting::trace(punctual_units::Nanos::from_secs(20), 1)),
    };
    let mut ask = plan::identify_ask(JobTimes::PAPER, 1);
    ask.interference = Some(Interference {
        mix: Mix(90),
        cores: 3,
        active: punctual_workload::Active::ALWAYS,
        dense: false,
    });
    request::request(&place, &ask, request::Clocking::Law)
}

#[test]
fn a_disturbance_is_felt_while_it_lasts() {
    let seconds = punctual_units::Nanos::from_secs;
    let course = Course {
        duration: seconds(30),
        disturbance: punctual_workload::Active {
            from: seconds(15),
            until: seconds(22),
        },
        identification: seconds(60),
    };
    let outcome = disturbed(&request(), course, 2, &|_| {}).unwrap();
    assert_eq!(
        (outcome.platform.as_str(), outcome.seeds.as_slice()),
        ("sim", &[1, 2][..])
    );
    assert_eq!(outcome.samples.len(), 2, "every repetition's samples are kept");
    assert!(
        outcome.measures.iter().all(|measure| measure.spread.is_some()),
        "{:?}",
        outcome.measures
    );
    let open = |from, to| {
        let formula = format!("mean(tardiness, approach=open, from={from}, to={to})");
        let formula = crate::claims::Formula::parse(&formula).unwrap();
        formula.evaluate(&outcome.samples[0].runs).unwrap()
    };
    let (before, during, after) = (open(5, 15), open(15, 22), open(24, 30));
    assert!(during > 1.03 * before, "it is felt: {before} before, {during} during");
    assert!(after < (before + during) / 2.0, "it ends: {before}, {during}, {after}");
}
