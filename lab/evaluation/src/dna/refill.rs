//! Dependence of the rules' ranking on the price of a way that changes hands, and on the objective.
//!
//! **Problem.** Refilling is charged by an upper bound, at which reallocating at every change loses to a split that
//! never changes; if refilling is free, it wins. A real machine lies between the two.
//!
//! **Method.** Runs the task sets of one utilisation with a way holding only a share of its bytes, both for the machine
//! and for the rule that weighs the cost. Also compares the paper's DNA, which sums instructions per second, with ours
//! at every change, which sums the speeds of the programs, each relative to its best.

use punctual_allocation::Base;
use punctual_sim::split::{Refill, SplitModel};

use super::carry::{DURATION, carry};
use super::measured::{SetFigures, mean as mean_of};
use super::policy::Policy;
use super::profiles::RunSet;
use super::tasksets;
use super::variant::{Rule, Variant};
use crate::outcome::{Measure, Testbed};
use crate::parallel::in_order;
use crate::stats::{Spread, mean};
use crate::{ExperimentError, Outcome, Progress, Settings};

/// The utilisation of the task sets: the first at which all three rules differ on both shipped sets of profiles.
const UTILISATION: f64 = 3.2;

/// Costs of refilling, as a share of the upper bound, with their names.
const SHARES: [(f64, &str); 5] = [(0.0, "0"), (0.125, "1/8"), (0.25, "1/4"), (0.5, "1/2"), (1.0, "1")];

punctual_units::named! {
    /// A policy with its rule and objective.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Contender by title {
        /// The static split with the least largest utilisation; refilling makes no difference.
        Static = "static-best",
        /// The static split that overloads the fewest cores; refilling makes no difference.
        Fewest = "static-fewest",
        /// DNA, recomputed at every change.
        EveryChange = "dna, every change",
        /// DNA as published, at every change and every millisecond.
        Published = "dna-paper",
        /// Bandwidth is lent, and ways move where it pays.
        Hysteresis = "dna, hysteresis",
    }
}

impl Contender {
    fn variant(self) -> Variant {
        let (policy, rule) = match self {
            Contender::Static => (Policy::StaticBest, Rule::Static),
            Contender::Fewest => (Policy::StaticFewest, Rule::Static),
            Contender::EveryChange => (Policy::Dna, Rule::EveryChange),
            Contender::Published => (Policy::DnaPaper, Rule::EveryChange),
            Contender::Hysteresis => (Policy::Dna, Rule::Hysteresis),
        };
        Variant {
            policy,
            refill: Refill::Charged,
            rule,
        }
    }
}

/// A run. `ground` and `share` are indices into the list of grounds and into `SHARES`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Job {
    ground: usize,
    seed: u64,
    share: usize,
    contender: Contender,
    number: usize,
}

/// Late jobs (share) and mean latency (s) of one run.
type RefillResult = Result<(f64, f64), String>;

/// Runs the sets of every seed with refilling at each share of its cost.
///
/// # Errors
/// [`ExperimentError`] before any run starts. A run that fails is part of the outcome.
pub fn run(settings: &Settings, progress: Progress) -> Result<Outcome, ExperimentError> {
    if settings.profiles.is_empty() || settings.seeds == 0 || settings.sets == 0 {
        return Err(ExperimentError::Settings(
            "an experiment needs at least one set of profiles, one seed and one task set".into(),
        ));
    }
    let grounds: Vec<RunSet> = settings
        .profiles
        .iter()
        .map(RunSet::new)
        .collect::<Result<_, _>>()
        .map_err(ExperimentError::Settings)?;
    let jobs = jobs(grounds.len(), settings);
    let done = |count: usize| progress(&format!("{count} of {} runs", jobs.len()));
    let came: Vec<RefillResult> = in_order(&jobs, settings.workers(), |job| carry_out(&grounds, job), &done);
    let runs: Vec<(Job, RefillResult)> = jobs.iter().copied().zip(came).collect();
    Ok(Outcome {
        name: "dna-refill".into(),
        platform: "sim".into(),
        testbed: Testbed::ProfileSet,
        machines: settings.profiles.iter().map(|set| set.name.clone()).collect(),
        seeds: settings.seeds().collect(),
        setting: vec![(
            "task sets".into(),
            format!(
                "{} of utilisation {UTILISATION}, jobs released for {} s",
                settings.sets,
                DURATION.as_secs_f64()
            ),
        )],
        tables: Vec::new(),
        measures: measures(&runs, settings),
        failures: runs.into_iter().filter_map(|(_, came)| came.err()).collect(),
        ..Outcome::default()
    })
}

fn jobs(grounds: usize, settings: &Settings) -> Vec<Job> {
    let mut jobs = Vec::new();
    for ground in 0..grounds {
        for seed in settings.seeds() {
            for share in 0..SHARES.len() {
                // Under a static split no way changes hands, so a single run serves all shares.
                let asked = Contender::ALL
                    .iter()
                    .filter(|one| !one.variant().policy.is_static() || share == 0);
                for &contender in asked {
                    jobs.extend((0..settings.sets as usize).map(|number| Job {
                        ground,
                        seed,
                        share,
                        contender,
                        number,
                    }));
                }
            }
        }
    }
    jobs
}

fn carry_out(grounds: &[RunSet], job: &Job) -> RefillResult {
    let prepared = &grounds[job.ground];
    let (share, name) = SHARES[job.share];
    let variant = job.contender.variant();
    let measured = carried(prepared, variant, share, job.seed, job.number).map_err(|why| {
        let title = job.contender.title();
        format!("{}, refill {name}, set {}, {title}: {why}", prepared.name, job.number)
    })?;
    Ok((measured.misses(), mean_of(&measured.responses)))
}

/// Runs set `number` under `variant`, with a way holding `share` of its bytes.
fn carried(prepared: &RunSet, variant: Variant, share: f64, seed: u64, number: usize) -> Result<SetFigures, String> {
    let machine = SplitModel {
        way_bytes: prepared.machine.way_bytes * share,
        ..prepared.machine
    };
    let set = tasksets::draw(&prepared.programs, machine.cores, UTILISATION, seed, number)?;
    Ok(carry(prepared, machine, &set.tasks, (variant, Base::Ahead))?.0)
}

/// Late jobs, and latency divided by that of the static split: means over the task sets, their spread over seeds.
fn measures(runs: &[(Job, RefillResult)], settings: &Settings) -> Vec<Measure> {
    let of = |ground: usize, seed: u64, share: usize, contender: Contender| {
        let asked = |job: &Job| (job.ground, job.seed, job.share, job.contender) == (ground, seed, share, contender);
        let came: Vec<(f64, f64)> = runs
            .iter()
            .filter(|(job, _)| asked(job))
            .filter_map(|(_, came)| came.as_ref().ok().copied())
            .collect();
        let column = |of: fn(&(f64, f64)) -> f64| mean(came.iter().map(of));
        Some((column(|came| came.0)?, column(|came| came.1)?))
    };
    let mut measures = Vec::new();
    for (ground, set) in settings.profiles.iter().enumerate() {
        for (share, (_, name)) in SHARES.iter().enumerate() {
            for contender in Contender::ALL {
                let beside = |seed| {
                    let fixed = of(ground, seed, 0, Contender::Static)?;
                    let fixed_split = contender.variant().policy.is_static();
                    let own = of(ground, seed, if fixed_split { 0 } else { share }, contender)?;
                    Some((own.0, own.1 / fixed.1))
                };
                let (late, latency): (Vec<f64>, Vec<f64>) = settings.seeds().filter_map(beside).unzip();
                let title = format!("{}, refill {name}, {}", set.name, contender.title());
                measures.push(Measure {
                    name: format!("{title}: late jobs"),
                    formula: format!("share of jobs, mean over the sets of utilisation {UTILISATION}"),
                    spread: Spread::of(&late),
                });
                measures.push(Measure {
                    name: format!("{title}: latency over static-best's"),
                    formula: format!("mean over the sets of utilisation {UTILISATION}, over the same of static-best"),
                    spread: Spread::of(&latency),
                });
            }
        }
    }
    measures
}

#[cfg(test)]
mod tests {
    use super::super::carry::Set;
    use super::super::tests::SHIPPED;
    use super::*;

    /// The ends of the sweep are the two worlds of the other experiments.
    #[test]
    #[ignore = "takes long: .ci/nightly ignored"]
    fn no_share_is_free_and_the_whole_is_charged() {
        let scaled = SHIPPED.iter().find(|set| set.name == "scaled").unwrap();
        let prepared = RunSet::new(scaled).unwrap();
        let set = Set {
            prepared: &prepared,
            utilisation: UTILISATION,
            number: 0,
            seed: 1,
        };
        let charged = Contender::EveryChange.variant();
        let free = Variant {
            refill: Refill::Free,
            ..charged
        };
        let tasks = tasksets::draw(&prepared.programs, prepared.machine.cores, UTILISATION, 1, 0)
            .unwrap()
            .tasks;
        let alone = |variant| set.run(&tasks, variant).unwrap();
        let swept = |share| carried(&prepared, charged, share, 1, 0).unwrap();
        let (none, whole) = (swept(0.0), swept(1.0));
        assert_eq!(none.late, alone(free).late);
        assert_eq!(whole, alone(charged));
        assert!(none.late < whole.late);
    }
}
