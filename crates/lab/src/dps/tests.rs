use super::*;
use crate::claims::{Claims, Reasons};

fn settings(seeds: u32) -> Settings {
    Settings {
        machines: Vec::new(),
        seed: 1,
        seeds,
        profiles: Vec::new(),
        sets: 1,
        claims: Claims::parse(CLAIMS).unwrap(),
        reasons: toml::from_str(REASONS).unwrap(),
        workers: None,
    }
}

#[test]
fn the_shipped_claims_name_what_there_is() {
    let settings = settings(1);
    assert_eq!(check_claims(&settings), Ok(()));
    let known: Vec<&str> = settings.claims.iter().map(|claim| claim.id.as_str()).collect();
    let reasons: Reasons = toml::from_str(REASONS).unwrap();
    let orphan = reasons.keys().find(|id| !known.contains(&id.as_str()));
    assert_eq!(orphan, None, "a reason for no claim");
}

#[test]
fn claims_about_unknown_runs_are_refused_before_anything_runs() {
    let mut settings = settings(1);
    settings.claims = Claims::parse(&CLAIMS.replacen("wait=20", "wait=25", 1)).unwrap();
    let progress = |_: &str| panic!("something ran");
    let error = run(&[Part::Timeline], &Ground::paper(), &settings, &progress)
        .unwrap_err()
        .to_string();
    assert!(error.contains("no run has wait=25; there are 0, 100, 20"), "{error}");
}

#[test]
fn the_same_settings_give_the_same_outcome_on_any_number_of_threads() {
    let mut settings = settings(2);
    let mut of = |workers| {
        settings.workers = std::num::NonZeroUsize::new(workers);
        run(&[Part::Timeline], &Ground::paper(), &settings, &|_| {}).unwrap()
    };
    let one = of(1);
    assert_eq!(one, of(3));
    assert!(one.failures.is_empty(), "{:?}", one.failures);
    assert_eq!(one.samples.len(), 1, "the first seed's");
    assert_eq!(one.samples[0].runs.len(), plan(&[Part::Timeline]).len());
    let names: Vec<&String> = one.samples[0].runs[0].series.keys().collect();
    let mut expected: Vec<&str> = FRAME_SERIES.into_iter().chain(RUN_SERIES).collect();
    expected.sort_unstable();
    assert_eq!(names, expected);
    assert!(one.measures.iter().all(|measure| measure.spread.is_some()));
}

#[test]
fn a_ground_that_cannot_be_is_refused() {
    let mut ground = Ground::paper();
    ground.media.flash.erase_us = 0.0;
    let error = run(&[Part::Timeline], &ground, &settings(1), &|_| {})
        .unwrap_err()
        .to_string();
    assert!(error.contains("flash.erase-us"), "{error}");
}
