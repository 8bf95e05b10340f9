//! Law or chance: of a claim that fails in some replications, what the machine does and what noise does.
//!
//! **Terms.** The *margin* of a comparison is how far its larger side is ahead: positive where it holds. A *placebo* is the
//! same formula put to a stretch of the same run in which nothing begins.
//!
//! **Method.** Seeds are repetitions. The *mean course* of a machine has the same formula without most of the noise. And on one
//! machine, the mean of the margin over seeds has a standard error. Where it lies more
//! than [`BEYOND`] errors from zero, the machine decides, else chance may. A claim about settling is compared with its
//! placebo: a law that has long settled still leaves the band now and then, because a sample is a mean of ten jobs. With p_i the
//! share of placebo starts that fail in replication i, the number of failures by chance alone is the sum of independent
//! trials with these p_i; its distribution is worked out exactly.

use serde::Serialize;

use crate::claims::{Claim, ClaimResult};
use crate::samples::{Replication, Run};
use crate::stats::mean;

/// Standard errors from zero beyond which a mean is no chance; of ten seeds, 3 leave 1.5 % (Student's t).
pub const BEYOND: f64 = 3.0;
/// Samples from one placebo start to the next, so that starts share none: a claim about settling looks at six.
const APART: usize = 6;
/// The first placebo start, in samples behind the true one: by then the loop has settled.
const SETTLED_AFTER: usize = 24;

/// What is law and what is chance of one claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Chance {
    /// The claim, by id.
    pub claim: String,
    /// Replications in which it fails.
    pub failed: usize,
    /// Replications.
    pub of: usize,
    /// Machines on which it holds of the mean course: each sample the mean of that sample over seeds, so that most of the noise
    /// is gone.
    pub on_mean: usize,
    /// Machines on which its mean margin is positive by more than [`BEYOND`] standard errors.
    pub hold: usize,
    /// Machines on which it is negative by more than that.
    pub fail: usize,
    /// Machines on which it is neither.
    pub undecided: usize,
    /// What the same formula does where nothing happens; of claims about settling only.
    pub placebo: Option<Placebo>,
}

/// How often a formula fails where nothing happens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Placebo {
    /// Failures to be expected of as many replications.
    pub expected: f64,
    /// The probability that at least as many fail by chance as did.
    pub probability: f64,
}

/// What is law and what is chance of every comparison that fails in some replications.
pub fn chances(results: &[ClaimResult], replications: &[Replication]) -> Vec<Chance> {
    let failing = |result: &&ClaimResult| result.claim.formula.is_comparison() && result.held < result.of;
    let machines = by_machine(replications);
    results
        .iter()
        .filter(failing)
        .map(|result| chance(result, replications, &machines))
        .collect()
}

/// One machine's replications, and their mean course.
struct Machine<'r> {
    name: &'r str,
    replications: Vec<&'r Replication>,
    mean: Vec<Run>,
}

fn by_machine(replications: &[Replication]) -> Vec<Machine<'_>> {
    let mut machines: Vec<Machine> = Vec::new();
    for replication in replications {
        match machines.iter_mut().find(|machine| machine.name == replication.machine) {
            Some(machine) => machine.replications.push(replication),
            None => machines.push(Machine {
                name: &replication.machine,
                replications: vec![replication],
                mean: Vec::new(),
            }),
        }
    }
    for machine in &mut machines {
        machine.mean = mean_course(&machine.replications);
    }
    machines
}

/// Every run of the first replication, each sample the mean of that sample in all replications that measured it.
fn mean_course(replications: &[&Replication]) -> Vec<Run> {
    let of_run = |run: &Run| {
        let same = |replication: &&Replication| {
            replication
                .runs
                .iter()
                .find(|other| other.labels == run.labels)
                .cloned()
        };
        let runs: Vec<Run> = replications.iter().filter_map(same).collect();
        let column = |name: &String, length: usize| {
            let sample = |k: usize| {
                let here = runs.iter().filter_map(|run| *run.series.get(name)?.get(k)?);
                mean(here)
            };
            (name.clone(), (0..length).map(sample).collect())
        };
        Run {
            series: run
                .series
                .iter()
                .map(|(name, samples)| column(name, samples.len()))
                .collect(),
            ..run.clone()
        }
    };
    replications
        .first()
        .map_or_else(Vec::new, |first| first.runs.iter().map(of_run).collect())
}

fn chance(result: &ClaimResult, replications: &[Replication], machines: &[Machine]) -> Chance {
    let claim = &result.claim;
    let failed = result.of - result.held;
    let mut chance = Chance {
        claim: claim.id.clone(),
        failed,
        of: result.of,
        on_mean: 0,
        hold: 0,
        fail: 0,
        undecided: 0,
        placebo: placebo(claim, replications, failed),
    };
    for machine in machines {
        chance.on_mean += usize::from(claim.formula.evaluate(&machine.mean) == Ok(1.0));
        let margin = |replication: &&Replication| claim.formula.margin(&replication.runs).ok().flatten();
        let margins: Vec<f64> = machine.replications.iter().filter_map(margin).collect();
        match decided(&margins) {
            Some(true) => chance.hold += 1,
            Some(false) => chance.fail += 1,
            None => chance.undecided += 1,
        }
    }
    chance
}

/// Whether the mean is above zero, where it is not by chance on either side.
fn decided(margins: &[f64]) -> Option<bool> {
    let count = margins.len() as f64;
    let middle = mean(margins)?;
    let squares: f64 = margins.iter().map(|margin| (margin - middle).powi(2)).sum();
    let error = (squares / (count - 1.0) / count).sqrt();
    // Of one margin alone the error is not a number, and nothing is decided.
    (middle.abs() > BEYOND * error).then_some(middle > 0.0)
}

fn placebo(claim: &Claim, replications: &[Replication], failed: usize) -> Option<Placebo> {
    let shares: Vec<f64> = replications
        .iter()
        .map(|replication| failing(claim, replication))
        .collect::<Option<_>>()?;
    Some(Placebo {
        expected: shares.iter().sum(),
        probability: at_least(failed, &shares),
    })
}

/// The share of placebo starts at which the claim fails; none where it is not about settling.
fn failing(claim: &Claim, replication: &Replication) -> Option<f64> {
    let starts = (SETTLED_AFTER..).step_by(APART);
    let at = |by: usize| claim.formula.begun_later(by, APART);
    let held: Vec<f64> = starts
        .map_while(at)
        .map(|formula| f64::from(formula.evaluate(&replication.runs) != Ok(1.0)))
        .collect();
    mean(&held)
}

/// The probability of at least `successes` in independent trials that succeed with these probabilities.
fn at_least(successes: usize, probabilities: &[f64]) -> f64 {
    // exactly[k]: of k successes in the trials so far.
    let mut exactly = vec![1.0];
    for p in probabilities {
        let mut next = vec![0.0; exactly.len() + 1];
        for (k, probability) in exactly.iter().enumerate() {
            next[k] += probability * (1.0 - p);
            next[k + 1] += probability * p;
        }
        exactly = next;
    }
    exactly.iter().skip(successes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::{Claims, Reasons, judge};
    use crate::samples::labels;
    use proptest::prelude::*;

    fn replication(seed: u64, tardiness: Vec<f64>) -> Replication {
        let run = Run {
            labels: labels([("approach", "mimo")]),
            settled_from: 0,
            series: [("tardiness".to_string(), tardiness.into_iter().map(Some).collect())].into(),
        };
        Replication {
            machine: "m".into(),
            seed,
            runs: vec![run],
            failures: Vec::new(),
        }
    }

    fn of(formula: &str, replications: &[Replication]) -> Option<Chance> {
        let text = format!(
            "[[claim]]\nid = \"c\"\nexperiment = \"e\"\nkind = \"structural\"\nsource = \"s\"\ntext = \"t\"\npaper = \"p\"\nformula = \"{formula}\"\n"
        );
        let claims = Claims::parse(&text).unwrap();
        let result = judge(claims.iter().next().unwrap(), replications, &Reasons::new());
        chances(&[result], replications).pop()
    }

    const SETTLED: &str = "settling(tardiness, from=2, to=200, goal=1, band=0.1) <= 3";

    /// 200 samples, the first two before the disturbance, which `slow` samples show; every `noisy`-th one is off the band.
    fn course(slow: usize, noisy: usize) -> Vec<f64> {
        let sample = |k: usize| {
            let disturbed = (2..2 + slow).contains(&k);
            if disturbed || (k > 20 && k.is_multiple_of(noisy)) {
                1.3
            } else {
                1.0
            }
        };
        (0..200).map(sample).collect()
    }

    #[test]
    fn a_law_that_settles_late_is_no_chance() {
        let late: Vec<Replication> = (0..10).map(|seed| replication(seed, course(8, 1000))).collect();
        let chance = of(SETTLED, &late).unwrap();
        assert_eq!((chance.failed, chance.on_mean, chance.hold, chance.fail), (10, 0, 0, 1));
        let placebo = chance.placebo.unwrap();
        assert_eq!((placebo.expected, placebo.probability), (0.0, 0.0));
    }

    #[test]
    fn a_loop_that_never_keeps_the_band_fails_its_placebo_too() {
        // Every third sample is off: three in a row are never found.
        let noisy: Vec<Replication> = (0..10).map(|seed| replication(seed, course(4, 3))).collect();
        let placebo = of(SETTLED, &noisy).unwrap().placebo.unwrap();
        assert_eq!((placebo.expected, placebo.probability), (10.0, 1.0));
    }

    #[test]
    fn noise_is_gone_from_the_mean_course() {
        // Every seed has one bad sample among the first four, each another one.
        let course = |bad: usize| (0..200).map(|k| if k == 2 + bad { 1.3 } else { 1.0 }).collect();
        let noisy: Vec<Replication> = (0..20)
            .map(|seed| replication(seed, course(2 + seed as usize % 8)))
            .collect();
        let chance = of("settling(tardiness, from=2, to=200, goal=1, band=0.1) <= 0", &noisy).unwrap();
        assert!(chance.failed > 0 && chance.on_mean == 1, "{chance:?}");
    }

    #[test]
    fn a_claim_that_holds_everywhere_or_compares_nothing_needs_no_chance() {
        let good = [replication(1, course(1, 1000))];
        assert_eq!(of(SETTLED, &good), None);
    }

    #[test]
    fn one_seed_decides_nothing() {
        let one = [replication(1, vec![2.0; 10])];
        let chance = of("mean(tardiness) < 1", &one).unwrap();
        assert_eq!((chance.undecided, chance.placebo), (1, None));
    }

    proptest! {
        #[test]
        fn alike_trials_are_binomial(p in 0.0f64..=1.0, trials in 0usize..12, successes in 0usize..14) {
            let binomial: f64 = (successes..=trials)
                .map(|k| {
                    let choose = (0..k).fold(1.0, |c, i| c * (trials - i) as f64 / (i + 1) as f64);
                    choose * p.powi(k as i32) * (1.0 - p).powi((trials - k) as i32)
                })
                .sum();
            prop_assert!((at_least(successes, &vec![p; trials]) - binomial).abs() < 1e-12);
        }

        #[test]
        fn means_far_from_zero_are_decided_by_their_sign(middle in 1.0f64..10.0, spread in 0.0f64..0.3, negative in any::<bool>()) {
            let sign = if negative { -1.0 } else { 1.0 };
            let margins: Vec<f64> = (0..10).map(|i| sign * middle + spread * (f64::from(i) - 4.5)).collect();
            prop_assert_eq!(decided(&margins), Some(!negative));
        }
    }
}
