//! Judges a claim by its replications; the result is a row of the table.

use serde::Serialize;

use super::{Claim, Paper, Reasons, Rule};
use crate::samples::Replication;
use crate::stats::Spread;

/// A claim with its values in the replications and the verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClaimResult {
    #[serde(flatten)]
    pub claim: Claim,
    /// The median over all replications; for a comparison, the median of its left side.
    pub ours: Option<f64>,
    /// The smallest and the largest value over all replications.
    pub ours_range: Option<[f64; 2]>,
    /// The median of a comparison's right side.
    pub against: Option<f64>,
    /// Whether the claim holds. Structural: in every replication. Quantitative: by the median, and in at least half of
    /// the replications.
    pub holds: bool,
    /// Number of replications that satisfy the claim by themselves.
    pub held: usize,
    /// Number of all replications.
    pub of: usize,
    /// The values and counts, separately for each machine.
    pub machines: Vec<ByMachine>,
    /// The reason why the claim does not hold, as far as known.
    pub why: Option<String>,
    /// The first samples that were missing, with the failure that explains it; `None`: all replications could be
    /// evaluated.
    pub missing: Option<String>,
    /// The origin of our value, where it is not the origin of the experiment's other figures.
    pub note: Option<String>,
}

/// Our values on one machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ByMachine {
    pub machine: String,
    /// Spread of our values over the seeds; `None` where none could be evaluated.
    pub ours: Option<Spread>,
    /// Number of replications that satisfy the claim by themselves.
    pub held: usize,
    /// Number of replications on this machine.
    pub of: usize,
}

/// Evaluation of a claim in one replication.
struct ClaimEvaluation<'r> {
    machine: &'r str,
    sides: Result<(f64, Option<f64>), String>,
    holds: bool,
}

/// Judges `claim` by its values in `replications`.
pub fn judge(claim: &Claim, replications: &[Replication], reasons: &Reasons) -> ClaimResult {
    let seen: Vec<ClaimEvaluation> = replications.iter().map(|replication| see(claim, replication)).collect();
    let ours: Vec<f64> = lefts(seen.iter());
    let spread = Spread::of(&ours);
    let rights: Vec<f64> = seen.iter().filter_map(|one| one.sides.as_ref().ok()?.1).collect();
    let (held, of) = held(seen.iter());
    let holds = match claim.rule {
        Rule::Comparison => of > 0 && held == of,
        // With an even number, the median is the mean of two values: it may keep the rule although neither value does.
        rule => {
            let keeps = |(ours, paper): (Spread, f64)| rule.keeps(ours.median, paper);
            2 * held >= of && spread.zip(figure(claim)).is_some_and(keeps)
        }
    };
    ClaimResult {
        claim: claim.clone(),
        ours: spread.map(|spread| spread.median),
        ours_range: spread.map(|spread| [spread.low, spread.high]),
        against: Spread::of(&rights).map(|spread| spread.median),
        holds,
        held,
        of,
        machines: by_machine(&seen),
        why: reasons.get(&claim.id).filter(|_| !holds).cloned(),
        missing: seen.iter().find_map(|one| one.sides.as_ref().err().cloned()),
        note: None,
    }
}

fn see<'r>(claim: &Claim, replication: &'r Replication) -> ClaimEvaluation<'r> {
    let sides = claim.formula.sides(&replication.runs);
    let holds = match (&sides, claim.rule) {
        // For a comparison, the formula's own value says whether it holds.
        (Ok(_), Rule::Comparison) => claim.formula.evaluate(&replication.runs) == Ok(1.0),
        (Ok((ours, _)), rule) => figure(claim).is_some_and(|paper| rule.keeps(*ours, paper)),
        (Err(_), _) => false,
    };
    ClaimEvaluation {
        machine: &replication.machine,
        sides: sides.map_err(|missing| match replication.failures.first() {
            Some(failure) => format!("{missing}: {failure}"),
            None => missing.to_string(),
        }),
        holds,
    }
}

fn figure(claim: &Claim) -> Option<f64> {
    match claim.paper {
        Paper::Figure(figure) => Some(figure),
        Paper::Finding(_) => None,
    }
}

fn lefts<'s, 'r: 's>(seen: impl Iterator<Item = &'s ClaimEvaluation<'r>>) -> Vec<f64> {
    seen.filter_map(|one| one.sides.as_ref().ok().map(|sides| sides.0))
        .filter(|value| value.is_finite())
        .collect()
}

fn held<'s, 'r: 's>(seen: impl Iterator<Item = &'s ClaimEvaluation<'r>>) -> (usize, usize) {
    seen.fold((0, 0), |(held, of), one| (held + usize::from(one.holds), of + 1))
}

fn by_machine(seen: &[ClaimEvaluation]) -> Vec<ByMachine> {
    let mut machines: Vec<&str> = Vec::new();
    for one in seen {
        if !machines.contains(&one.machine) {
            machines.push(one.machine);
        }
    }
    let row = |machine: &str| {
        let here = || seen.iter().filter(|one| one.machine == machine);
        let (held, of) = held(here());
        ByMachine {
            machine: machine.into(),
            ours: Spread::of(&lefts(here())),
            held,
            of,
        }
    };
    machines.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::Claims;
    use crate::samples::{Run, labels};

    fn replication(machine: &str, seed: u64, power: Option<f64>) -> Replication {
        let run = Run {
            labels: labels([("approach", "mimo")]),
            settled_from: 0,
            series: [("power".to_string(), vec![power])].into(),
        };
        Replication {
            machine: machine.into(),
            seed,
            runs: vec![run],
            failures: Vec::new(),
        }
    }

    fn claims(kind: &str, paper: &str, formula: &str, rule: &str) -> Claims {
        let text = format!(
            "[[claim]]\nid = \"c\"\nexperiment = \"e\"\nkind = \"{kind}\"\nsource = \"s\"\ntext = \"t\"\npaper = {paper}\nformula = \"{formula}\"\n{rule}\n"
        );
        Claims::parse(&text, "x").unwrap()
    }

    fn judged(claims: &Claims, powers: &[Option<f64>]) -> ClaimResult {
        let replications: Vec<Replication> = (0..)
            .zip(powers)
            .map(|(seed, power)| replication(if seed < 2 { "a" } else { "b" }, seed, *power))
            .collect();
        let reasons = Reasons::from([("c".to_string(), "because".to_string())]);
        judge(claims.iter().next().unwrap(), &replications, &reasons)
    }

    #[test]
    fn the_median_decides_a_figure() {
        let claims = claims("quantitative", "2", "mean(power)", "tolerance = 0.25");
        let good = judged(&claims, &[Some(2.0), Some(2.4), Some(9.0)]);
        assert!(good.holds && good.held == 2 && good.of == 3 && good.why.is_none());
        assert_eq!((good.ours, good.ours_range), (Some(2.4), Some([2.0, 9.0])));
        assert_eq!((good.machines.len(), good.machines[1].held), (2, 0));
        // The planted fault: a median outside of the tolerance.
        let bad = judged(&claims, &[Some(2.0), Some(2.6), Some(9.0)]);
        assert!(!bad.holds);
        assert_eq!(bad.why.as_deref(), Some("because"));
    }

    #[test]
    fn a_median_that_no_replication_comes_near_does_not_hold() {
        let claims = claims("quantitative", "2", "mean(power)", "tolerance = 0.25");
        // Their mean is the paper's figure.
        let apart = judged(&claims, &[Some(1.0), Some(3.0)]);
        assert!(!apart.holds && apart.ours == Some(2.0) && apart.held == 0);
        assert!(judged(&claims, &[Some(2.0), Some(2.8)]).holds, "one of two is half");
        // One of three within is less than half, though it is the median.
        assert!(!judged(&claims, &[Some(1.0), Some(2.0), Some(3.0)]).holds);
    }

    #[test]
    fn a_bound_is_taken_at_its_word() {
        let claims = claims("quantitative", "2", "mean(power)", "bound = \"at-most\"");
        assert!(judged(&claims, &[Some(2.0)]).holds);
        assert!(!judged(&claims, &[Some(2.01)]).holds);
    }

    #[test]
    fn one_replication_breaks_a_comparison() {
        let claims = claims("structural", "\"falls\"", "mean(power) < 3", "");
        let good = judged(&claims, &[Some(2.0), Some(2.9)]);
        assert!(good.holds && good.against == Some(3.0));
        let bad = judged(&claims, &[Some(2.0), Some(3.0)]);
        assert!(!bad.holds && bad.held == 1);
    }

    #[test]
    fn what_was_not_measured_does_not_hold() {
        let claims = claims("structural", "\"falls\"", "mean(power) < 3", "");
        let result = judged(&claims, &[Some(2.0), None]);
        assert!(!result.holds);
        assert!(result.missing.unwrap().contains("no samples of `power`"));
        assert!(!judged(&claims, &[]).holds, "of nothing, nothing holds");
    }
}
