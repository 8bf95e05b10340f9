//! The experiments as a whole, on a small scale.

use crate::claims::Claims;

use super::*;

fn settings(claims: &str) -> Settings {
    Settings {
        machines: Vec::new(),
        profiles: shipped().unwrap(),
        seed: 1,
        seeds: 1,
        sets: 1,
        claims: Claims::parse(claims).unwrap(),
        reasons: toml::from_str(REASONS).unwrap(),
        workers: None,
    }
}

#[test]
fn the_shipped_claims_name_what_there_is() {
    check_claims(&settings(CLAIMS)).unwrap();
}

#[test]
fn reasons_are_of_claims_that_there_are() {
    let settings = settings(CLAIMS);
    for id in settings.reasons.keys() {
        assert!(settings.claims.iter().any(|claim| claim.id == *id), "{id}");
    }
}

#[test]
fn the_motivation_is_the_same_twice_and_judges_programs_where_they_are() {
    let settings = settings(CLAIMS);
    let outcome = run(&[Part::Motivation], &settings, &|_| {}).unwrap();
    assert_eq!(outcome, run(&[Part::Motivation], &settings, &|_| {}).unwrap());
    let of = |id: &str| outcome.claims.iter().find(|claim| claim.claim.id == id).map(|claim| claim.of);
    assert_eq!((of("fft-late-gains"), of("canneal-starves")), (Some(2), None));
}
