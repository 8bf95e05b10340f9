//! The experiments as a whole, on a small scale.

use std::sync::LazyLock;

use punctual_allocation::Base;

use super::policy::Policy;
use super::*;
use crate::claims::{Claims, Verdict, reasons};

/// Reading them takes seconds without optimisation.
pub static SHIPPED: LazyLock<Vec<ProfileSet>> = LazyLock::new(|| shipped().unwrap());

fn settings(claims: &str) -> Settings {
    Settings {
        machines: Vec::new(),
        profiles: SHIPPED.clone(),
        seed: 1,
        seeds: 1,
        sets: 1,
        claims: Claims::parse(claims, "x").unwrap(),
        reasons: reasons(REASONS, "x").unwrap(),
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
            .map(|claim| (claim.of, claim.outcome == Verdict::LeftOut))
    };
    assert_eq!(of("fft-late-gains"), Some((2, false)));
    assert_eq!(of("canneal-starves"), Some((0, true)), "no profile has its runs");
}

/// In overload with refill charged: the same twice, nothing faster than the uncontended machine, and with hysteresis no
/// more late jobs than under the split that it starts from, and shorter latencies; fewer late jobs than under the split
/// of the least largest utilisation, where the paper's rule has more, and longer latencies.
#[test]
#[ignore = "takes long: .ci/nightly ignored"]
fn hysteresis_beats_the_static_split_that_the_papers_rule_loses_to() {
    let full = SHIPPED.iter().find(|set| set.name == "full").unwrap();
    let prepared = RunSet::new(full).unwrap();
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
        let refill = punctual_sim::split::Refill::Charged;
        let found = results.of(Variant { policy, refill, rule }).unwrap();
        assert_eq!(found.too_fast, 0);
        (found.late, measured::mean(&found.responses))
    };
    let fixed = of(Policy::StaticBest, variant::Rule::Static);
    let fewest = of(Policy::StaticFewest, variant::Rule::Static);
    for policy in [Policy::Dna, Policy::Dadna, Policy::Exact] {
        let kept = of(policy, variant::Rule::Hysteresis);
        assert!(kept.0 <= fewest.0 && kept.1 < fewest.1, "{kept:?} against {fewest:?}");
        assert!(kept.0 < fixed.0, "{kept:?} against {fixed:?}");
    }
    for policy in [Policy::DnaPaper, Policy::DadnaPaper] {
        let every = of(policy, variant::Rule::EveryChange);
        assert!(every.0 > fixed.0 && every.1 > fixed.1, "{every:?} against {fixed:?}");
    }
}

/// Under a split that never changes every job of a task takes the same time, and EDF on one core is all that is left to
/// simulate: the machine and the schedulability analysis (`edf`) must say the same of every set.
#[test]
#[ignore = "takes long: .ci/nightly ignored"]
fn the_machine_agrees_with_edf_by_itself_where_nothing_changes() {
    use crate::dna::edf::{Schedulability, Timing, run};
    use punctual_units::Nanos;

    let full = SHIPPED.iter().find(|set| set.name == "full").unwrap();
    let prepared = RunSet::new(full).unwrap();
    let cores = prepared.machine.cores;
    let even = punctual_allocation::policy::equal(decide::POOL, cores)[0];
    let variant = Variant {
        policy: Policy::Equal,
        refill: punctual_sim::split::Refill::Charged,
        rule: variant::Rule::Static,
    };
    let mut verdicts = [0, 0];
    for (utilisation, number) in [2.4, 2.6, 2.8].into_iter().flat_map(|at| (0..4).map(move |k| (at, k))) {
        let tasks = draw(&prepared.programs, cores, utilisation, 1, number).unwrap().tasks;
        let keeps = |core: usize| {
            let timing = |task: &punctual_allocation::PeriodicTask| Timing {
                wcet: Nanos::from_secs_f64(prepared.by_speed.time_left(task.program, 0.0, even)),
                period: task.period,
            };
            let timings: Vec<Timing> = tasks.iter().filter(|task| task.core == core).map(timing).collect();
            let verdict = run(&timings, carry::DURATION, |task, _| timings[task].wcet);
            matches!(verdict, Schedulability::Schedulable { .. })
        };
        let schedulable = (0..cores).all(keeps);
        let (measured, _) = carry::carry(&prepared, prepared.machine, &tasks, (variant, Base::Ahead)).unwrap();
        assert_eq!(measured.is_schedulable(), schedulable, "set {number} of {utilisation}");
        verdicts[usize::from(schedulable)] += 1;
    }
    assert!(verdicts.iter().all(|count| *count > 0), "both verdicts: {verdicts:?}");
}

/// The planted fault: a machine that no run can take place on.
#[test]
fn a_timed_run_that_fails_is_told_and_its_claims_stay_in_the_table() {
    let settings = settings(CLAIMS);
    let mut prepared = RunSet::new(&settings.profiles[0]).unwrap();
    prepared.machine.way_bytes = -1.0;
    let costs = cost::runs(&[prepared], 1);
    assert_eq!((costs[0].runs.len(), costs[0].failures.len()), (0, 6));
    let claims = judged(&[Part::Overhead], &settings, &[], &costs);
    let (timed, others): (Vec<_>, Vec<_>) = claims.into_iter().partition(|row| row.note.is_some());
    assert_eq!(timed.len(), 6, "those about the cost of a decision");
    assert!(
        others
            .iter()
            .all(|row| row.outcome == Verdict::LeftOut && row.why.as_ref().unwrap().contains("no profile"))
    );
    for claim in timed {
        assert_eq!(claim.outcome, Verdict::NotJudged);
        let why = claim.missing.unwrap();
        assert!(why.contains("decisions of ") && why.contains(" timed"), "{why}");
    }
}
