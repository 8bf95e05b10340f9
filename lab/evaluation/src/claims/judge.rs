//! Judges a claim by its replications; the result is a row of the table.

use serde::Serialize;

use super::reason::{explained, figure as shown};
use super::{Claim, Formula, Paper, Premise, Reasons, Role, Rule, Verdict};
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
    /// The verdict. A structural claim holds in every replication, a quantitative one by the median and in half of them
    /// or more.
    pub outcome: Verdict,
    /// The premise that failed, with the figure; `None`: none did.
    pub failed_premise: Option<Premise>,
    /// Number of replications that satisfy the claim by themselves.
    pub held: usize,
    /// Number of all replications.
    pub of: usize,
    /// The values and counts, separately for each machine.
    pub machines: Vec<ByMachine>,
    /// The reason for the verdict, computed from the figures; `None` where the claim holds.
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
    let against = Spread::of(&rights).map(|spread| spread.median);
    let premise = failed_premise(claim, replications, &seen, &ours);
    let outcome = match Verdict::of(holds, premise.as_ref()) {
        Verdict::Holds if claim.role == Role::Setting => Verdict::Setting,
        outcome => outcome,
    };
    let why = match outcome {
        Verdict::DoesNotHold => { reasons.get(&claim.id) }
            .and_then(|text| explained(text, replications))
            .or_else(|| spread.map(|spread| by_figures(claim, spread.median, against))),
        _ => premise.as_ref().map(Premise::to_string),
    };
    ClaimResult {
        claim: claim.clone(),
        ours: spread.map(|spread| spread.median),
        ours_range: spread.map(|spread| [spread.low, spread.high]),
        against,
        outcome,
        failed_premise: premise,
        held,
        of,
        machines: by_machine(&seen),
        why,
        missing: seen.iter().find_map(|one| one.sides.as_ref().err().cloned()),
        note: None,
    }
}

/// A claim about runs that there are not: `why` says what is missing.
pub fn left_out(claim: &Claim, why: String) -> ClaimResult {
    ClaimResult {
        outcome: Verdict::LeftOut,
        failed_premise: None,
        why: Some(why),
        ..judge(claim, &[], &Reasons::new())
    }
}

/// The first premise that fails; none fails where all replications could be evaluated, within what is plausible.
fn failed_premise(
    claim: &Claim,
    replications: &[Replication],
    seen: &[ClaimEvaluation],
    ours: &[f64],
) -> Option<Premise> {
    let unmeasured = || match seen.iter().find_map(|one| one.sides.as_ref().err()) {
        Some(missing) => missing.clone(),
        None => "no finite figure".into(),
    };
    let of_figures = || Premise::unless(!ours.is_empty(), "a measured figure", unmeasured);
    let of_range = || {
        let range = claim.plausible?;
        ours.iter().find_map(|value| Premise::within(*value, range, shown))
    };
    let of_runs = || {
        claim
            .premises
            .iter()
            .find_map(|premise| failed_in(premise, replications))
    };
    of_runs().or_else(of_figures).or_else(of_range)
}

/// Whether a premise fails in a replication; the figures are those of the first one.
fn failed_in(premise: &Formula, replications: &[Replication]) -> Option<Premise> {
    let failed = |one: &&Replication| premise.evaluate(&one.runs) != Ok(1.0);
    let count = replications.iter().filter(failed).count();
    let first = replications.iter().find(failed)?;
    Premise::unless(false, premise.text(), || match premise.sides(&first.runs) {
        Ok((left, right)) => {
            let right = right.map_or(String::new(), |right| format!(" against {}", shown(right)));
            format!("{}{right}, in {count} of {} runs", shown(left), replications.len())
        }
        Err(missing) => missing.to_string(),
    })
}

/// Our figure beside what it is held against.
fn by_figures(claim: &Claim, ours: f64, against: Option<f64>) -> String {
    match (figure(claim).filter(|_| claim.rule != Rule::Comparison), against) {
        (Some(paper), _) if paper != 0.0 => {
            let off = (ours / paper - 1.0) * 100.0;
            format!("ours is {}, off from {} by {} %", shown(ours), shown(paper), shown(off))
        }
        (_, Some(against)) => format!("the left side is {}, the right one {}", shown(ours), shown(against)),
        _ => format!("ours is {}", shown(ours)),
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
        assert!(good.outcome == Verdict::Holds && good.held == 2 && good.of == 3 && good.why.is_none());
        assert_eq!((good.ours, good.ours_range), (Some(2.4), Some([2.0, 9.0])));
        assert_eq!((good.machines.len(), good.machines[1].held), (2, 0));
        // The planted fault: a median outside of the tolerance.
        let bad = judged(&claims, &[Some(2.0), Some(2.6), Some(9.0)]);
        assert!(bad.outcome == Verdict::DoesNotHold);
        assert_eq!(bad.why.as_deref(), Some("because"));
    }

    #[test]
    fn a_median_that_no_replication_comes_near_does_not_hold() {
        let claims = claims("quantitative", "2", "mean(power)", "tolerance = 0.25");
        // Their mean is the paper's figure.
        let apart = judged(&claims, &[Some(1.0), Some(3.0)]);
        assert!(apart.outcome == Verdict::DoesNotHold && apart.ours == Some(2.0) && apart.held == 0);
        assert!(
            judged(&claims, &[Some(2.0), Some(2.8)]).outcome == Verdict::Holds,
            "one of two is half"
        );
        // One of three within is less than half, though it is the median.
        assert!(judged(&claims, &[Some(1.0), Some(2.0), Some(3.0)]).outcome == Verdict::DoesNotHold);
    }

    #[test]
    fn a_bound_is_taken_at_its_word() {
        let claims = claims("quantitative", "2", "mean(power)", "bound = \"at-most\"");
        assert!(judged(&claims, &[Some(2.0)]).outcome == Verdict::Holds);
        assert!(judged(&claims, &[Some(2.01)]).outcome == Verdict::DoesNotHold);
    }

    #[test]
    fn one_replication_breaks_a_comparison() {
        let claims = claims("structural", "\"falls\"", "mean(power) < 3", "");
        let good = judged(&claims, &[Some(2.0), Some(2.9)]);
        assert!(good.outcome == Verdict::Holds && good.against == Some(3.0));
        let bad = judged(&claims, &[Some(2.0), Some(3.0)]);
        assert!(bad.outcome == Verdict::DoesNotHold && bad.held == 1);
    }

    #[test]
    fn what_was_not_measured_does_not_hold() {
        let claims = claims("structural", "\"falls\"", "mean(power) < 3", "");
        let result = judged(&claims, &[Some(2.0), None]);
        assert!(result.outcome == Verdict::DoesNotHold);
        assert!(result.missing.unwrap().contains("no samples of `power`"));
        for nothing in [&[][..], &[None, None]] {
            let result = judged(&claims, nothing);
            assert_eq!(result.outcome, Verdict::NotJudged);
            assert!(result.why.unwrap().contains("a measured figure"));
        }
    }

    /// The planted faults: a load below its rate, a share of 9.3, in one replication of two.
    #[test]
    fn a_claim_whose_premise_fails_is_not_judged() {
        let slow = claims(
            "quantitative",
            "3",
            "mean(power)",
            "bound = \"at-most\"\npremise = [\"mean(power) >= 2\"]",
        );
        assert_eq!(judged(&slow, &[Some(2.0), Some(2.5)]).outcome, Verdict::Holds);
        let result = judged(&slow, &[Some(2.0), Some(0.38)]);
        assert_eq!((result.outcome, result.held), (Verdict::NotJudged, 2));
        let why = result.why.unwrap();
        assert!(
            why.contains("mean(power) >= 2") && why.contains("0.380 against 2.00, in 1 of 2 runs"),
            "{why}"
        );
        let share = claims(
            "quantitative",
            "0.95",
            "mean(power)",
            "bound = \"at-least\"\nplausible = [0, 1.2]",
        );
        assert_eq!(judged(&share, &[Some(0.99)]).outcome, Verdict::Holds);
        let result = judged(&share, &[Some(0.99), Some(9.345)]);
        assert_eq!(result.outcome, Verdict::NotJudged);
        assert_eq!(result.failed_premise.unwrap().found, "9.35");
    }

    #[test]
    fn what_restates_the_setting_is_no_finding() {
        let set = claims(
            "quantitative",
            "2",
            "mean(power)",
            "bound = \"at-most\"\nrole = \"setting\"",
        );
        assert_eq!(judged(&set, &[Some(2.0)]).outcome, Verdict::Setting);
        assert_eq!(
            judged(&set, &[Some(3.0)]).outcome,
            Verdict::DoesNotHold,
            "the setting is another one"
        );
    }

    #[test]
    fn reasons_are_computed_from_the_runs() {
        let claims = claims("quantitative", "2", "mean(power)", "bound = \"at-most\"");
        let claim = claims.iter().next().unwrap();
        let of = |text: &str, power: f64| {
            let reasons = Reasons::from([("c".to_string(), text.to_string())]);
            judge(claim, &[replication("a", 1, Some(power))], &reasons).why
        };
        let text = "if mean(power) > 2.5: it is {mean(power)}, {mean(power) / 4 %} of 4";
        assert_eq!(of(text, 3.0).unwrap(), "it is 3.00, 75.0 % of 4");
        let other = of(text, 2.2).unwrap();
        assert_eq!(
            other, "ours is 2.20, off from 2.00 by 10.0 %",
            "another machine refutes the text"
        );
        assert_eq!(
            of("{mean(clock)} MHz", 3.0).unwrap(),
            "ours is 3.00, off from 2.00 by 50.0 %"
        );
        assert_eq!(of(text, 1.0), None, "it holds");
        let told = crate::claims::reasons("c = \"{mean(power\"", "x").unwrap_err();
        assert!(told[0].starts_with("x:1: c: "), "{told:?}");
    }

    #[test]
    fn a_claim_without_runs_is_listed() {
        let claims = claims("quantitative", "2", "mean(power)", "bound = \"at-most\"");
        let row = left_out(claims.iter().next().unwrap(), "no profile".into());
        assert_eq!(
            (row.outcome, row.of, row.why.as_deref()),
            (Verdict::LeftOut, 0, Some("no profile"))
        );
        assert!(
            serde_json::to_string(&row)
                .unwrap()
                .contains("\"outcome\":\"left-out\"")
        );
    }
}
