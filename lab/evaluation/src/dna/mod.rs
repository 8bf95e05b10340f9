//! The evaluation of the fifth paper: DNA and DADNA (R. Gifford et al., RTAS 2021), Figs. 1, 2 and 5 to 7, and Table I.
//!
//! `tasksets` draws task sets as the paper does, `variant` lists the variants under which each is run, `carry` runs a
//! set on the simulated split machine, `columns` reduces it to samples. `motivation` and `cost` are the experiments
//! without task sets; `refill` varies the price of refilling and the objective, on which the ranking of the rules
//! depends. `profiles` has the sets of profiles, with the way size of their machine.

mod ahead;
mod carry;
mod columns;
mod cost;
mod decide;
#[cfg(test)]
mod edf;
mod facts;
mod figures;
mod half;
mod measured;
mod motivation;
mod policy;
mod profiles;
mod published;
mod refill;
mod sets;
mod tasksets;
mod variant;
mod vc2m;

use punctual_allocation::Profile;

use crate::claims::{Claim, ClaimResult, Query, judge, left_out};
use crate::outcome::{Measure, Testbed};
use crate::parallel::in_order;
use crate::qedb::{means, of_first_seed};
use crate::samples::{Labels, Replication, Run, failures};
use crate::stats::Spread;
use crate::{Experiment, ExperimentError, Outcome, Progress, Settings};

use carry::{Set, SetResults};
use profiles::RunSet;
use sets::MEASURED;
use variant::Variant;

pub use facts::{Facts, ProfileOrigin, SetError};
pub use profiles::{ProfileSet, WAY_BYTES, shipped};
pub use sets::{File, read};
pub use tasksets::{SETS, TaskSet, draw};
pub use vc2m::{Leftovers, vc2m};

/// The claims that the paper makes, and our goals, as written before the first run.
pub const CLAIMS: &str = include_str!("../../data/dna-claims.toml");
/// Reasons why some claims do not hold, as far as known.
pub const REASONS: &str = include_str!("../../data/dna-reasons.toml");

/// The paper's experiments, all of them together, and an experiment of our own.
pub const EXPERIMENTS: [Experiment; 7] = [
    Experiment {
        name: "dna-motivation",
        about: "Figs. 1 and 2: programs with few and with many partitions",
        run: |settings, progress| run(&[Part::Motivation], settings, progress),
    },
    Experiment {
        name: "dna-schedulability",
        about: "Fig. 5(a, b): schedulable task sets and late jobs by utilisation",
        run: |settings, progress| run(&[Part::Schedulability], settings, progress),
    },
    Experiment {
        name: "dna-latency",
        about: "Figs. 5(c), 6 and 7: mean, tail and worst latencies",
        run: |settings, progress| run(&[Part::Latency], settings, progress),
    },
    Experiment {
        name: "dna-overhead",
        about: "Table I: what decisions cost, how often they come, what they move",
        run: |settings, progress| run(&[Part::Overhead], settings, progress),
    },
    Experiment {
        name: "dna",
        about: "all four of them, no task set twice",
        run: |settings, progress| run(&Part::ALL, settings, progress),
    },
    Experiment {
        name: "dna-refill",
        about: "what the order hangs on: refilling at shares of its cost, and the paper's objective",
        run: refill::run,
    },
    Experiment {
        name: "dna-ahead",
        about: "the base that looking ahead finds, beside the best of the static splits and the optimum, set by set",
        run: ahead::run,
    },
];

punctual_units::named! {
    /// A part of the evaluation; each is one experiment, in the paper's order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Part by name {
        /// Figs. 1 and 2: programs alone.
        Motivation = "dna-motivation",
        /// Fig. 5(a, b): schedulable sets and late jobs.
        Schedulability = "dna-schedulability",
        /// Figs. 5(c), 6 and 7: latencies.
        Latency = "dna-latency",
        /// Table I: time and frequency of decisions.
        Overhead = "dna-overhead",
    }
}

/// The task sets of one utilisation, for one set of profiles and one seed.
pub(crate) struct Row {
    pub profiles: String,
    pub seed: u64,
    pub utilisation: f64,
    pub sets: Vec<SetResults>,
}

/// Runs `parts` on every set of profiles with every seed.
///
/// # Errors
/// [`ExperimentError`] before any run starts. A run that fails is part of the outcome.
pub fn run(parts: &[Part], settings: &Settings, progress: Progress) -> Result<Outcome, ExperimentError> {
    if settings.profiles.is_empty() || settings.seeds == 0 || settings.sets == 0 {
        return Err(ExperimentError::Settings(
            "an experiment needs at least one set of profiles, one seed and one task set".into(),
        ));
    }
    check_claims(settings)?;
    let prepared = settings.profiles.iter().map(RunSet::new);
    let prepared: Vec<RunSet> = prepared.collect::<Result<_, _>>().map_err(ExperimentError::Settings)?;
    let rows = if parts == [Part::Motivation] {
        Vec::new()
    } else {
        rows(&prepared, settings, progress)
    };
    let replications = replications(&prepared, &rows, settings);
    let costs = if parts.contains(&Part::Overhead) {
        cost::runs(&prepared, settings.seed)
    } else {
        Vec::new()
    };
    let figures = figures::figures(parts, &replications, &rows);
    let measures = measures(parts, settings, &rows, &costs);
    let claims = judged(parts, settings, &replications, &costs);
    Ok(Outcome {
        name: match parts {
            [one] => one.name(),
            _ => "dna",
        }
        .into(),
        platform: "sim".into(),
        testbed: Testbed::ProfileSet,
        machines: prepared.iter().map(|prepared| prepared.name.clone()).collect(),
        seeds: settings.seeds().collect(),
        setting: setting(settings, &rows),
        claims,
        tables: Vec::new(),
        measures,
        figures,
        means: settings
            .profiles
            .iter()
            .flat_map(|set| means_of(&set.name, &replications))
            .collect(),
        failures: [failures(&replications), failures(&costs)].concat(),
        samples: of_first_seed(replications, settings.seed),
    })
}

/// Checks that every formula names samples and runs that exist on some set of profiles.
fn check_claims(settings: &Settings) -> Result<(), ExperimentError> {
    let known = Part::ALL.map(Part::name);
    settings.claims.check_experiments(&known)?;
    let mut labels: Vec<Labels> = motivation::labels();
    labels.extend(cost::labels());
    // Claims may also name labels of sets of profiles that are not part of this run.
    let names = settings.profiles.iter().map(|set| set.name.as_str());
    for profiles in names.chain(["full", "scaled", "modelled", MEASURED]) {
        for utilisation in tasksets::utilisations() {
            let of = |variant| columns::labels_of(profiles, utilisation, variant);
            labels.extend(Variant::all().into_iter().map(of));
        }
    }
    let mut series: Vec<&str> = columns::PER_SET.to_vec();
    series.extend(columns::FURTHER);
    series.extend(motivation::SERIES);
    series.extend(cost::SERIES);
    for part in known {
        settings.claims.check_names(part, &series, &labels)?;
    }
    Ok(())
}

/// Runs every task set under every variant; the heaviest first, so that no core idles at the end.
fn rows(prepared: &[RunSet], settings: &Settings, progress: Progress) -> Vec<Row> {
    let utilisations: Vec<f64> = tasksets::utilisations().collect();
    let mut jobs: Vec<(usize, u64, usize, usize)> = Vec::new();
    for utilisation in (0..utilisations.len()).rev() {
        for place in 0..prepared.len() {
            for seed in settings.seeds() {
                jobs.extend((0..settings.sets as usize).map(|number| (place, seed, utilisation, number)));
            }
        }
    }
    let carry_out = |(place, seed, utilisation, number): &(usize, u64, usize, usize)| {
        let set = Set {
            prepared: &prepared[*place],
            utilisation: utilisations[*utilisation],
            number: *number,
            seed: *seed,
        };
        set.carry_out()
    };
    let done = |count: usize| progress(&format!("{count} of {} task sets, each under every policy", jobs.len()));
    let mut results = in_order(&jobs, settings.workers(), carry_out, &done).into_iter();
    let mut rows = Vec::new();
    for job in jobs.chunks(settings.sets as usize) {
        let (place, seed, utilisation, _) = job[0];
        rows.push((
            (place, seed, utilisation),
            Row {
                profiles: prepared[place].name.clone(),
                seed,
                utilisation: utilisations[utilisation],
                sets: results.by_ref().take(settings.sets as usize).collect(),
            },
        ));
    }
    rows.sort_by_key(|(key, _)| *key);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// One replication for each set of profiles and seed.
fn replications(prepared: &[RunSet], rows: &[Row], settings: &Settings) -> Vec<Replication> {
    let replication = |prepared: &RunSet, seed: u64| {
        let own = || {
            rows.iter()
                .filter(move |row| row.profiles == prepared.name && row.seed == seed)
        };
        let mut runs = motivation::runs(prepared);
        for variant in Variant::all() {
            runs.extend(own().map(|row| {
                let sets: Vec<&SetResults> = row.sets.iter().collect();
                columns::run(&prepared.name, row.utilisation, variant, &sets)
            }));
        }
        Replication {
            machine: prepared.name.clone(),
            seed,
            runs,
            failures: own()
                .flat_map(|row| &row.sets)
                .flat_map(|set| set.failures.clone())
                .collect(),
        }
    };
    prepared
        .iter()
        .flat_map(|prepared| settings.seeds().map(move |seed| (prepared, seed)))
        .map(|(prepared, seed)| replication(prepared, seed))
        .collect()
}

/// Judges each claim on the replications that have the runs that it names.
fn judged(
    parts: &[Part],
    settings: &Settings,
    replications: &[Replication],
    costs: &[Replication],
) -> Vec<ClaimResult> {
    let judged = |claim: &Claim| {
        if cost::judges(claim) {
            // Decisions are timed on every set of profiles: a replication without such a run has failed, and the claim
            // with it.
            let note = Some(cost::NOTE.to_string());
            return ClaimResult {
                note,
                ..judge(claim, costs, &settings.reasons)
            };
        }
        let has = |runs: &[Run]| {
            let queries = claim.formula.queries();
            let answers = |run: &Run, query: &Query| run.is(&query.labels) && run.series.contains_key(&query.series);
            queries.iter().all(|query| runs.iter().any(|run| answers(run, query)))
        };
        let asked: Vec<Replication> = replications.iter().filter(|one| has(&one.runs)).cloned().collect();
        if asked.is_empty() {
            let sets: Vec<&str> = settings.profiles.iter().map(|set| set.name.as_str()).collect();
            let asked = claim.formula.queries().into_iter().flat_map(|query| &query.labels);
            let asked: Vec<String> = asked.map(|(key, value)| format!("{key}={value}")).collect();
            let (asked, sets) = (asked.first().map_or("", String::as_str), sets.join(", "));
            return left_out(
                claim,
                format!("no profile: none of the sets {sets} has the runs of {asked}"),
            );
        }
        judge(claim, &asked, &settings.reasons)
    };
    let claims = parts.iter().flat_map(|part| settings.claims.of(part.name()));
    claims.map(judged).collect()
}

/// Measures without a claim: where half of the sets are schedulable, and the time of a decision.
fn measures(parts: &[Part], settings: &Settings, rows: &[Row], costs: &[Replication]) -> Vec<Measure> {
    let mut measures = Vec::new();
    if parts.contains(&Part::Schedulability) {
        for set in &settings.profiles {
            for variant in Variant::all().into_iter().filter(|variant| variant.is_shown()) {
                let verdicts: Vec<(f64, Vec<bool>)> = tasksets::utilisations()
                    .map(|utilisation| {
                        let rows = rows
                            .iter()
                            .filter(|row| row.profiles == set.name && row.utilisation == utilisation);
                        let sets = rows.flat_map(|row| &row.sets).filter_map(|set| set.of(variant));
                        (utilisation, sets.map(measured::SetFigures::is_schedulable).collect())
                    })
                    .collect();
                let half = half::half(&verdicts, settings.seed);
                measures.push(Measure {
                    name: format!(
                        "{}: half of the sets at utilisation{}, {}",
                        set.name,
                        half.map_or("", half::Half::bound),
                        variant.title()
                    ),
                    formula: format!(
                        "isotonic crossing of 1/2, 90 % interval over {} resamples",
                        half::RESAMPLES
                    ),
                    spread: half.map(|half| Spread {
                        median: half.at,
                        low: half.low,
                        high: half.high,
                    }),
                });
            }
        }
    }
    measures.extend(costs.iter().flat_map(cost::measures));
    measures
}

/// The means of one set of profiles: each set has runs of its own.
fn means_of(profiles: &str, replications: &[Replication]) -> Vec<(Labels, Vec<(String, Spread)>)> {
    let own = replications
        .iter()
        .filter(|replication| replication.machine == profiles);
    means(&own.cloned().collect::<Vec<_>>())
}

fn setting(settings: &Settings, rows: &[Row]) -> Vec<(String, String)> {
    let error = |set: &ProfileSet| {
        let of = |(profile, error): (&Profile, &f64)| format!("{} {:.1} %", profile.name, error * 100.0);
        let programs: Vec<String> = set.profiles.iter().zip(&set.rate_errors).map(of).collect();
        format!("{}: {}", set.name, programs.join(", "))
    };
    let errors: Vec<String> = settings.profiles.iter().map(error).collect();
    let refused: usize = rows.iter().flat_map(|row| &row.sets).map(|set| set.refused).sum();
    let row = |name: &str, value: String| (name.to_string(), value);
    let (least, most) = tasksets::TASK_UTILISATION;
    vec![
        row(
            "machine",
            "4 cores, 20 ways, 20 bandwidth partitions of 72 MB/s; a decision per millisecond at most".into(),
        ),
        row(
            "least share",
            "3 ways and 1 partition while a job runs, 1 and 1 while none does".into(),
        ),
        row(
            "phases",
            format!(
                "at most {} of each program; mean error of a rate: {}",
                profiles::PHASES,
                errors.join("; ")
            ),
        ),
        row(
            "profiles",
            settings
                .profiles
                .iter()
                .map(ProfileSet::about)
                .collect::<Vec<_>>()
                .join("; "),
        ),
        row(
            "task sets",
            format!(
                "{} per utilisation 1.0 to 3.8, task utilisation {least} to {most}; {refused} drawn sets did not fit on four cores",
                settings.sets
            ),
        ),
        row(
            "jobs",
            format!("released for {} s, all run to their end", carry::DURATION.as_secs_f64()),
        ),
        row(
            "refill charged",
            "a core that gained ways stands still until it has fetched them whole at its own bandwidth".into(),
        ),
    ]
}

#[cfg(test)]
mod tests;
