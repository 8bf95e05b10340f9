//! The evaluation of the fourth paper: tasks of a software radio that move between cores (A. Acquaviva, A. Alimonda, S.
//! Carta and M. Pittau, "Assessing Task Migration Impact on Embedded Soft Real-Time Streaming Multimedia Applications",
//! EURASIP Journal on Embedded Systems, 2008), Figs. 2, 6, 7 and 10 to 16, simulated.
//!
//! `radio` is the paper's application, with parameters that were chosen where it is silent. `map` searches for the best
//! mappings on an ensemble of clock grids, because the paper does not state its clock steps. `queues` moves tasks while
//! frames are due, `cost` moves tasks of many sizes, `overhead` measures daemons and checkpoints, `policies` tries our
//! policies on random machines. `figures` lists the charts. The machine is a file ([`Mpsoc`]).

mod cost;
mod figures;
mod map;
#[cfg(target_os = "linux")]
pub mod measured;
mod overhead;
mod policies;
mod queues;
mod radio;
#[cfg(test)]
mod tests;

use punctual_mpsoc::Mpsoc;

use crate::claims::judge;
use crate::parallel::in_order;
use crate::qedb::{means, of_first_seed};
use crate::samples::{Labels, Replication, Run, failures};
use crate::{Experiment, ExperimentError, Outcome, Progress, Settings, Testbed};

/// The claims of the paper, as written before the first run.
pub const CLAIMS: &str = include_str!("../../data/mig-claims.toml");
/// Reasons why some claims do not hold, as far as known.
pub const REASONS: &str = include_str!("../../data/mig-reasons.toml");

/// One experiment for each part, and one for all parts together.
pub const EXPERIMENTS: [Experiment; 7] = [
    Experiment {
        name: "mig-cost",
        about: "Figs. 2, 7: what a move costs by size, task replication against recreation",
        run: |settings, progress| run(&[Part::Cost], &Mpsoc::paper(), settings, progress),
    },
    Experiment {
        name: "mig-daemons",
        about: "Fig. 6: what the daemons take of a core",
        run: |settings, progress| run(&[Part::Daemons], &Mpsoc::paper(), settings, progress),
    },
    Experiment {
        name: "mig-map",
        about: "Figs. 10 to 14: the best mapping and clocks for each frame rate, on an ensemble of clock grids",
        run: |settings, progress| run(&[Part::Map], &Mpsoc::paper(), settings, progress),
    },
    Experiment {
        name: "mig-queues",
        about: "Fig. 15: late frames during a move by the size of queues",
        run: |settings, progress| run(&[Part::Queues], &Mpsoc::paper(), settings, progress),
    },
    Experiment {
        name: "mig-checkpoint",
        about: "Fig. 16: what a checkpoint at the end of each frame costs each task",
        run: |settings, progress| run(&[Part::Checkpoint], &Mpsoc::paper(), settings, progress),
    },
    Experiment {
        name: "mig-policies",
        about: "ours: energy and temperature under the policies, on random machines",
        run: |settings, progress| run(&[Part::Policies], &Mpsoc::paper(), settings, progress),
    },
    Experiment {
        name: "mig",
        about: "all six of them",
        run: |settings, progress| run(&Part::ALL, &Mpsoc::paper(), settings, progress),
    },
];

punctual_units::named! {
    /// A part of the evaluation; each is one experiment: the paper's in its order, then ours.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Part by name {
        /// Figs. 2 and 7.
        Cost = "mig-cost",
        /// Fig. 6.
        Daemons = "mig-daemons",
        /// Figs. 10 to 14.
        Map = "mig-map",
        /// Fig. 15.
        Queues = "mig-queues",
        /// Fig. 16.
        Checkpoint = "mig-checkpoint",
        /// Not in the paper: our policies on random machines.
        Policies = "mig-policies",
    }
}

impl Part {
    /// Names of the samples that the runs of this part have.
    fn series(self) -> Vec<&'static str> {
        match self {
            Part::Cost => cost::SERIES.to_vec(),
            Part::Daemons | Part::Checkpoint => overhead::SERIES.to_vec(),
            Part::Map => map::SERIES.to_vec(),
            Part::Queues => queues::SERIES.to_vec(),
            Part::Policies => policies::SERIES.to_vec(),
        }
    }

    fn labels(self) -> Vec<Labels> {
        match self {
            Part::Cost => cost::labels(),
            Part::Daemons => overhead::daemon_labels(),
            Part::Map => map::labels(),
            Part::Queues => queues::labels(),
            Part::Checkpoint => overhead::checkpoint_labels(),
            Part::Policies => policies::labels(),
        }
    }

    fn runs(self, machine: &Mpsoc, seed: u64) -> Vec<Result<Run, String>> {
        match self {
            Part::Cost => cost::runs(machine, seed),
            Part::Daemons => overhead::daemon_runs(machine, seed),
            Part::Map => map::runs(machine, seed),
            Part::Queues => queues::runs(machine, seed),
            Part::Checkpoint => overhead::checkpoint_runs(machine, seed),
            Part::Policies => policies::runs(machine, seed),
        }
    }
}

/// The parts of the experiment `name`; `None` for a name that is not in [`EXPERIMENTS`].
pub fn parts(name: &str) -> Option<Vec<Part>> {
    if name == "mig" {
        return Some(Part::ALL.to_vec());
    }
    let one = Part::ALL.into_iter().find(|part| part.name() == name)?;
    Some(vec![one])
}

/// Runs `parts` on `machine` with every seed. The machines of `settings` are ignored: they are of another kind.
///
/// # Errors
/// [`ExperimentError`] before any run starts. A run that fails is part of the outcome.
pub fn run(
    parts: &[Part],
    machine: &Mpsoc,
    settings: &Settings,
    progress: Progress,
) -> Result<Outcome, ExperimentError> {
    if settings.seeds == 0 {
        return Err(ExperimentError::Settings(
            "an experiment needs at least one seed".into(),
        ));
    }
    let checked = machine.check().map_err(|error| error.to_string());
    checked
        .and_then(|()| radio::check(machine))
        .map_err(ExperimentError::Settings)?;
    check_claims(settings)?;
    let replications = carry_out(parts, machine, settings, progress);
    let claims = parts.iter().flat_map(|part| settings.claims.of(part.name()));
    Ok(Outcome {
        name: match parts {
            [one] => one.name(),
            _ => "mig",
        }
        .into(),
        platform: "sim".into(),
        testbed: Testbed::Machine,
        machines: vec![machine.name.clone()],
        seeds: settings.seeds().collect(),
        setting: radio::setting(machine),
        claims: claims
            .map(|claim| judge(claim, &replications, &settings.reasons))
            .collect(),
        tables: Vec::new(),
        measures: queues::measures(parts, &replications),
        figures: figures::figures(parts, &replications),
        means: means(&replications),
        failures: failures(&replications),
        samples: of_first_seed(replications, settings.seed),
    })
}

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

fn carry_out(parts: &[Part], machine: &Mpsoc, settings: &Settings, progress: Progress) -> Vec<Replication> {
    let seeds: Vec<u64> = settings.seeds().collect();
    let done = |count: usize| progress(&format!("{count} of {} seeds", seeds.len()));
    let replicate = |seed: &u64| {
        let results = parts.iter().flat_map(|part| part.runs(machine, *seed));
        Replication::of(&machine.name, *seed, results)
    };
    in_order(&seeds, settings.workers(), replicate, &done)
}

/// A run with one sample of each series.
fn single<'s>(labels: Labels, values: impl IntoIterator<Item = (&'s str, f64)>) -> Run {
    let series = values
        .into_iter()
        .map(|(name, value)| (name.to_string(), vec![Some(value)]));
    Run {
        labels,
        settled_from: 0,
        series: series.collect(),
    }
}
