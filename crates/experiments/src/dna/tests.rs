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
    let of = |id: &str| {
        outcome
            .claims
            .iter()
            .find(|claim| claim.claim.id == id)
            .map(|claim| claim.of)
    };
    assert_eq!((of("fft-late-gains"), of("canneal-starves")), (Some(2), None));
}

/// In overload with refill charged: the same twice, nothing faster than the uncontended machine, and with hysteresis fewer
/// late jobs and shorter latencies than under the best static split, where the paper's rule has more and longer ones.
#[test]
fn hysteresis_beats_the_static_split_that_the_papers_rule_loses_to() {
    let sets = shipped().unwrap();
    let full = sets.iter().find(|set| set.name == "full").unwrap();
    let prepared = Prepared::new(full).unwrap();
    let set = Set {
        prepared: &prepared,
        utilisation: 3.4,
        number: 0,
        seed: 1,
    };
    let results = set.carry_out();
    assert_eq!(results, set.carry_out());
    assert!(results.failures.is_empty(), "{:?}", results.failures);
    let of = |policy, rule| {
        let refill = punctual_sim::partitioned::Refill::Charged;
        let found = results.of(Variant { policy, refill, rule }).unwrap();
        assert_eq!(found.too_fast, 0);
        (found.late, measured::mean(&found.responses))
    };
    let fixed = of(variant::Policy::StaticBest, variant::Rule::Static);
    for policy in [variant::Policy::Dna, variant::Policy::Dadna, variant::Policy::Exact] {
        let kept = of(policy, variant::Rule::Hysteresis);
        assert!(kept.0 < fixed.0 && kept.1 < fixed.1, "{kept:?} against {fixed:?}");
        let every = of(policy, variant::Rule::EveryChange);
        assert!(every.0 > fixed.0 && every.1 > fixed.1, "{every:?} against {fixed:?}");
    }
}
