//! Is the base that looking ahead has found the right one?
//!
//! **Method.** Task sets of utilisation 3.0 to 3.8, refilling charged, each under four static splits, under the rule
//! that lends from each of them, and under what looking ahead has chosen, which is one of these eight; and the optimum,
//! with refilling free. A set is judged by itself: how much later than under its best static split; and of the way from
//! there to the optimum, how much is covered. A mean over sets would hide the one that lost.

use punctual_allocation::Base;
use punctual_sim::split::Refill;

use super::carry::{DURATION, carry};
use super::policy::Policy;
use super::profiles::RunSet;
use super::tasksets;
use super::variant::{Rule, Variant};
use crate::outcome::{FigureTable, Testbed};
use crate::parallel::in_order;
use crate::stats::mean;
use crate::{ExperimentError, Outcome, Progress, Settings};

/// Utilisations of the task sets, in tenths: from where some split is overloaded to the paper's last.
const TENTHS: [u32; 5] = [30, 32, 34, 36, 38];

/// Columns of the tables, in percent of the jobs; the last two in points and in percent of the gap.
const COLUMNS: [&str; 8] = [
    "best static",
    "lent, from static-fewest",
    "chosen ahead",
    "best in hindsight",
    "optimum, refill free",
    "chosen over best static",
    "of the gap",
    "lends",
];

/// A task set: indices of its profiles, its seed, utilisation and number.
type Job = (usize, u64, u32, usize);

/// Shares of late jobs of one task set, 0 to 1.
#[derive(Clone, Debug)]
struct Late {
    fixed: f64,
    fewest: f64,
    ahead: f64,
    hindsight: f64,
    optimum: f64,
    lends: bool,
}

impl Late {
    fn row(&self) -> [f64; 8] {
        let Late {
            fixed,
            fewest,
            ahead,
            hindsight,
            optimum,
            lends,
        } = *self;
        let covered = (fixed - ahead) / (fixed - optimum).max(f64::MIN_POSITIVE);
        let points = [fixed, fewest, ahead, hindsight, optimum, ahead - fixed, covered];
        let mut row = [f64::from(lends) * 100.0; 8];
        row.iter_mut().zip(points).for_each(|(row, share)| *row = share * 100.0);
        row
    }
}

/// Runs the sets of every seed.
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
    let mut jobs: Vec<Job> = Vec::new();
    for ground in 0..grounds.len() {
        for seed in settings.seeds() {
            for tenths in TENTHS {
                jobs.extend((0..settings.sets as usize).map(|number| (ground, seed, tenths, number)));
            }
        }
    }
    let done = |count: usize| progress(&format!("{count} of {} task sets", jobs.len()));
    let came = in_order(&jobs, settings.workers(), |job| carry_out(&grounds, *job), &done);
    let runs: Vec<(Job, Result<Late, String>)> = jobs.into_iter().zip(came).collect();
    let tables = grounds.iter().enumerate().flat_map(|(ground, set)| {
        let own: Vec<_> = runs.iter().filter(|((of, ..), _)| *of == ground).collect();
        [means(&set.name, &own), every_set(&set.name, &own)]
    });
    Ok(Outcome {
        name: "dna-ahead".into(),
        platform: "sim".into(),
        testbed: Testbed::ProfileSet,
        machines: settings.profiles.iter().map(|set| set.name.clone()).collect(),
        seeds: settings.seeds().collect(),
        setting: vec![(
            "task sets".into(),
            format!(
                "{} of each utilisation 3.0 to 3.8, jobs released for {} s, refill charged; lent after dna",
                settings.sets,
                DURATION.as_secs_f64()
            ),
        )],
        tables: tables.collect(),
        failures: runs
            .iter()
            .filter_map(|(_, came)| came.as_ref().err().cloned())
            .collect(),
        ..Outcome::default()
    })
}

fn carry_out(grounds: &[RunSet], (ground, seed, tenths, number): Job) -> Result<Late, String> {
    let prepared = &grounds[ground];
    let utilisation = f64::from(tenths) / 10.0;
    let named = |why: String| format!("{}, seed {seed}, {utilisation}, set {number}: {why}", prepared.name);
    let set = tasksets::draw(&prepared.programs, prepared.machine.cores, utilisation, seed, number).map_err(named)?;
    let late = |policy: Policy, refill, rule, base| {
        let variant = Variant { policy, refill, rule };
        let carried = carry(prepared, prepared.machine, &set.tasks, (variant, base)).map_err(named)?;
        Ok::<_, String>((carried.0.misses(), carried.1))
    };
    let (mut fixed, mut hindsight, mut fewest) = (f64::INFINITY, f64::INFINITY, f64::NAN);
    for (policy, base) in [
        (Policy::StaticFewest, Base::StaticFewest),
        (Policy::StaticOverload, Base::StaticOverload),
        (Policy::StaticBest, Base::StaticBest),
        (Policy::Equal, Base::Even),
    ] {
        let stays = late(policy, Refill::Free, Rule::Static, base)?.0;
        let lent = late(Policy::Dna, Refill::Charged, Rule::Hysteresis, base)?.0;
        // The even split is no contender of the published comparison.
        if base != Base::Even {
            fixed = fixed.min(stays);
        }
        if base == Base::StaticFewest {
            fewest = lent;
        }
        hindsight = hindsight.min(stays).min(lent);
    }
    let (ahead, forecast) = late(Policy::Dna, Refill::Charged, Rule::Hysteresis, Base::Ahead)?;
    let optimum = late(Policy::Exact, Refill::Free, Rule::EveryChange, Base::Ahead)?.0;
    Ok(Late {
        fixed,
        fewest,
        ahead,
        hindsight,
        optimum,
        lends: forecast.is_none_or(|forecast| forecast.lends),
    })
}

/// Means over the sets of each utilisation and of all, and the set that lost most.
fn means(profiles: &str, runs: &[&(Job, Result<Late, String>)]) -> FigureTable {
    let came = |tenths: Option<u32>| -> Vec<[f64; 8]> {
        let of = runs
            .iter()
            .filter(|(job, _)| tenths.is_none_or(|tenths| job.2 == tenths));
        of.filter_map(|(_, late)| Some(late.as_ref().ok()?.row())).collect()
    };
    let row = |name: String, sets: &[[f64; 8]]| {
        let mut row: Vec<Option<f64>> = (0..8).map(|column| mean(sets.iter().map(|set| set[column]))).collect();
        // Of the gap between the means: sets without a gap have no share of it.
        row[6] = row[0]
            .zip(row[2])
            .zip(row[4])
            .map(|((fixed, ahead), least)| (fixed - ahead) / (fixed - least) * 100.0);
        row.push(sets.iter().map(|set| set[5]).reduce(f64::max));
        (name, row)
    };
    let mut rows: Vec<_> = TENTHS
        .iter()
        .map(|&at| row(format!("{:.1}", f64::from(at) / 10.0), &came(Some(at))))
        .collect();
    rows.push(row("all".into(), &came(None)));
    FigureTable {
        title: format!("{profiles}: late jobs, mean over the task sets, % (simulated)"),
        columns: COLUMNS
            .iter()
            .copied()
            .chain(["worst set over best static"])
            .map(String::from)
            .collect(),
        rows,
    }
}

fn every_set(profiles: &str, runs: &[&(Job, Result<Late, String>)]) -> FigureTable {
    let row = |((_, seed, tenths, number), late): &(Job, Result<Late, String>)| {
        let name = format!("{:.1}, seed {seed}, set {number}", f64::from(*tenths) / 10.0);
        Some((name, late.as_ref().ok()?.row().map(Some).to_vec()))
    };
    FigureTable {
        title: format!("{profiles}: late jobs of every task set, % (simulated)"),
        columns: COLUMNS.map(String::from).to_vec(),
        rows: runs.iter().copied().filter_map(row).collect(),
    }
}
