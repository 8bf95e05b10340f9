//! The evaluation of the third paper: databases that share queries (Y. Zhou and K.-D. Kang, "A Federated Approach for
//! Increasing the Timely Throughput of Real-Time Data Services", 2012: Chronos-C), Figs. 4 to 6 and Table 1, simulated.
//! Compares its policies, others' and ours also under more load than can be served.
//!
//! `identify` learns a node's model on the node, and the paper's law from it. `paper` is the paper's testbed with one
//! to five slaves, and with slaves that are removed. `overload` is an open loop from half to three times the capacity,
//! `many` has up to 10,000 nodes. `figures` lists the charts, `rows` reduces each run to its figures. The simulator is
//! [`punctual_cluster_sim::load`]; balancers and admission are those of the product.

mod figures;
mod identify;
mod many;
pub mod measured;
mod overload;
mod paper;
mod rows;
#[cfg(test)]
mod tests;

use crate::claims::judge;
use crate::parallel::in_order;
use crate::qedb::{means, of_first_seed};
use crate::samples::{Labels, Replication, Run, failures};
use crate::{Experiment, ExperimentError, Outcome, Progress, Settings, Testbed};

/// The claims of the paper and our goals, as written before the first run.
pub const CLAIMS: &str = include_str!("../../data/chronos-claims.toml");
/// Reasons why some claims do not hold, as far as known.
pub const REASONS: &str = include_str!("../../data/chronos-reasons.toml");

/// One experiment for each part, and one for all parts together.
pub const EXPERIMENTS: [Experiment; 7] = [
    Experiment {
        name: "chronos-identify",
        about: "Chronos-C, section 3.1: a node's model learned on the node, orders 1 to 4, and the law's gains",
        run: |settings, progress| run(&[Part::Identify], settings, progress),
    },
    Experiment {
        name: "chronos-scale",
        about: "Fig. 4: timely throughput with one to five slaves",
        run: |settings, progress| run(&[Part::Scale], settings, progress),
    },
    Experiment {
        name: "chronos-delay",
        about: "Figs. 5, 6: delays with five slaves, and where clients wait",
        run: |settings, progress| run(&[Part::Delay], settings, progress),
    },
    Experiment {
        name: "chronos-failure",
        about: "Table 1: one or two of five slaves are removed",
        run: |settings, progress| run(&[Part::Failure], settings, progress),
    },
    Experiment {
        name: "chronos-overload",
        about: "0.5 to 3 times of what can be served: eight balancers with three kinds of admission",
        run: |settings, progress| run(&[Part::Overload], settings, progress),
    },
    Experiment {
        name: "chronos-nodes",
        about: "balancers at 100 to 10,000 nodes",
        run: |settings, progress| run(&[Part::Nodes], settings, progress),
    },
    Experiment {
        name: "chronos",
        about: "all six of them",
        run: |settings, progress| run(&Part::ALL, settings, progress),
    },
];

punctual_units::named! {
    /// A part of the evaluation; each is one experiment: the paper's in its order, then ours.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Part by name {
        /// Section 3.1.
        Identify = "chronos-identify",
        /// Fig. 4.
        Scale = "chronos-scale",
        /// Figs. 5 and 6.
        Delay = "chronos-delay",
        /// Table 1.
        Failure = "chronos-failure",
        /// Not in the paper: loads above capacity.
        Overload = "chronos-overload",
        /// Not in the paper: up to 10,000 nodes.
        Nodes = "chronos-nodes",
    }
}

impl Part {
    /// Names of the samples that the runs of this part have.
    fn series(self) -> Vec<&'static str> {
        match self {
            Part::Identify => identify::SERIES.to_vec(),
            Part::Scale | Part::Delay | Part::Failure => paper::series(),
            Part::Overload | Part::Nodes => overload::series(),
        }
    }

    fn labels(self) -> Vec<Labels> {
        match self {
            Part::Identify => identify::labels(),
            Part::Scale => paper::scale_labels(),
            Part::Delay => paper::delay_labels(),
            Part::Failure => paper::failure_labels(),
            Part::Overload => overload::labels(),
            Part::Nodes => many::labels(),
        }
    }

    fn runs(self, seed: u64) -> Vec<Result<Run, String>> {
        match self {
            Part::Identify => identify::runs(seed),
            Part::Scale => paper::scale_runs(seed),
            Part::Delay => paper::delay_runs(seed),
            Part::Failure => paper::failure_runs(seed),
            Part::Overload => overload::runs(seed),
            Part::Nodes => many::runs(seed),
        }
    }
}

/// The parts of the experiment `name`; `None` for a name that is not in [`EXPERIMENTS`].
pub fn parts(name: &str) -> Option<Vec<Part>> {
    if name == "chronos" {
        return Some(Part::ALL.to_vec());
    }
    let one = Part::ALL.into_iter().find(|part| part.name() == name)?;
    Some(vec![one])
}

/// Runs `parts` with every seed. The machines of `settings` are ignored: these experiments simulate queues.
///
/// # Errors
/// [`ExperimentError`] before any run starts. A run that fails is part of the outcome.
pub fn run(parts: &[Part], settings: &Settings, progress: Progress) -> Result<Outcome, ExperimentError> {
    if settings.seeds == 0 {
        return Err(ExperimentError::Settings(
            "an experiment needs at least one seed".into(),
        ));
    }
    check_claims(settings)?;
    let replications = carry_out(parts, settings, progress);
    let claims = parts.iter().flat_map(|part| settings.claims.of(part.name()));
    Ok(Outcome {
        name: match parts {
            [one] => one.name(),
            _ => "chronos",
        }
        .into(),
        platform: "sim".into(),
        testbed: Testbed::Machine,
        machines: vec![TESTBED.into()],
        seeds: settings.seeds().collect(),
        setting: paper::setting(),
        claims: claims
            .map(|claim| judge(claim, &replications, &settings.reasons))
            .collect(),
        measures: Vec::new(),
        tables: rows::tables(parts, &replications),
        figures: figures::figures(parts, &replications),
        means: means(&replications),
        failures: failures(&replications),
        samples: of_first_seed(replications, settings.seed),
    })
}

/// Name of the simulated testbed in reports.
const TESTBED: &str = "queues";

/// Checks that every formula names existing samples and runs; claims about parts that do not run are checked as well.
fn check_claims(settings: &Settings) -> Result<(), ExperimentError> {
    settings.claims.check_experiments(&Part::ALL.map(Part::name))?;
    for part in Part::ALL {
        settings
            .claims
            .check_names(part.name(), &part.series(), &part.labels())?;
    }
    Ok(())
}

/// Runs each pair of part and seed as a separate job: with one job per seed, one thread would be left with the longest
/// at the end.
fn carry_out(parts: &[Part], settings: &Settings, progress: Progress) -> Vec<Replication> {
    let seeds: Vec<u64> = settings.seeds().collect();
    let work = seeds
        .iter()
        .flat_map(|seed| parts.iter().map(move |part| (*seed, *part)));
    let work: Vec<(u64, Part)> = work.collect();
    let done = |count: usize| progress(&format!("{count} of {} parts of seeds", work.len()));
    let results = in_order(&work, settings.workers(), |(seed, part)| part.runs(*seed), &done);
    let mut results = results.into_iter();
    let replication = |seed: &u64| {
        let own: Vec<_> = results.by_ref().take(parts.len()).flatten().collect();
        Replication::of(TESTBED, *seed, own.into_iter())
    };
    seeds.iter().map(replication).collect()
}
