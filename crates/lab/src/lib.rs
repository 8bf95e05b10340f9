//! What does a paper claim, and what comes out here? Its evaluation on the simulated machine, and measurements on this
//! one.
//!
//! **Problem.** A paper's evaluation is a set of runs and a set of sentences about them. Here both are data: a plan of
//! runs for every machine of an ensemble and every seed, and a file of claims that was written before the runs
//! (`claims`).
//!
//! **Terms.** An *experiment* is a named plan with its claims. A *replication* is the whole plan on one machine with
//! one seed. All figures are simulated and are labelled so.
//!
//! **Method.** [`experiments`] lists what there is; each takes [`Settings`] and returns an [`Outcome`], which `cli`
//! prints, writes and draws. The same settings give the same outcome, whatever the number of threads.

#[cfg(target_os = "linux")]
pub mod beside;
pub mod chronos;
pub mod claims;
pub mod completion;
#[cfg(target_os = "linux")]
pub mod control_loop;
pub mod controllers;
#[cfg(target_os = "linux")]
pub mod data_path;
pub mod dna;
pub mod dps;
pub mod dual;
pub mod goals;
#[cfg(target_os = "linux")]
mod instructions;
pub mod mig;
#[cfg(target_os = "linux")]
pub mod migration;
pub mod movie;
#[cfg(target_os = "linux")]
pub mod neighbours;
mod outcome;
#[cfg(target_os = "linux")]
pub mod overload;
pub mod packing;
mod parallel;
pub mod qedb;
#[cfg(target_os = "linux")]
pub mod referees;
pub mod samples;
pub mod stats;

use std::num::NonZeroUsize;

use claims::{ClaimError, Claims, Reasons};
use punctual_sim::MachineModel;

pub use outcome::{Bars, Chart, Curve, Figure, Measure, Outcome, Table, Testbed};

/// What an experiment runs on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The ensemble: at least one machine, each with a name of its own.
    pub machines: Vec<Subject>,
    /// Profiles of programs for the experiments about cache and bandwidth, by set.
    pub profiles: Vec<dna::ProfileSet>,
    /// The first seed.
    pub seed: u64,
    /// How many seeds, counting up from the first.
    pub seeds: u32,
    /// Task sets of each utilisation and seed, of the experiments that draw some.
    pub sets: u32,
    /// What is claimed.
    pub claims: Claims,
    /// Why claims do not hold, as far as known.
    pub reasons: Reasons,
    /// On how many threads; as many as there are cores, if none is given.
    pub workers: Option<NonZeroUsize>,
}

/// A machine to experiment on.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    /// The machine.
    pub machine: MachineModel,
    /// The job of the microbenchmarks on it: what they show is calibrated together with the machine.
    pub job: qedb::Work,
}

/// Hears how far an experiment is, in words.
pub type Progress<'p> = &'p (dyn Fn(&str) + Sync);

/// A named plan with its claims.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows, in a line.
    pub about: &'static str,
    /// Runs it.
    pub run: fn(&Settings, Progress) -> Result<Outcome, ExperimentError>,
}

impl Experiment {
    /// The claims and the reasons that are shipped with it, as TOML.
    pub fn shipped(&self) -> [&'static str; 2] {
        if dna::EXPERIMENTS.iter().any(|other| other.name == self.name) {
            [dna::CLAIMS, dna::REASONS]
        } else if self.name == controllers::EXPERIMENT.name {
            [controllers::CLAIMS, controllers::REASONS]
        } else if self.name == goals::EXPERIMENT.name {
            [goals::CLAIMS, goals::REASONS]
        } else if mig::parts(self.name).is_some() {
            [mig::CLAIMS, mig::REASONS]
        } else if chronos::parts(self.name).is_some() {
            [chronos::CLAIMS, chronos::REASONS]
        } else if dps::parts(self.name).is_some() {
            // Its reasons are computed.
            [dps::CLAIMS, ""]
        } else {
            [qedb::CLAIMS, qedb::REASONS]
        }
    }
}

/// Why an experiment did not take place.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ExperimentError {
    /// Its name is not one.
    #[error("there is no experiment \"{name}\"; there are\n{known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is, a line each.
        known: String,
    },
    /// The claims cannot be used.
    #[error(transparent)]
    Claims(#[from] ClaimError),
    /// No machine, no seed, or two machines of one name.
    #[error("{0}")]
    Settings(String),
}

/// Every experiment that there is.
pub fn experiments() -> Vec<Experiment> {
    let others = [controllers::EXPERIMENT, goals::EXPERIMENT]
        .into_iter()
        .chain(dna::EXPERIMENTS)
        .chain(dps::EXPERIMENTS)
        .chain(mig::EXPERIMENTS)
        .chain(chronos::EXPERIMENTS);
    qedb::EXPERIMENTS.into_iter().chain(others).collect()
}

/// The experiment with this name.
///
/// # Errors
/// [`ExperimentError::Unknown`] with the list of those that there are.
///
/// ```
/// let error = punctual_lab::find("qebd").unwrap_err().to_string();
/// assert!(error.starts_with("there is no experiment \"qebd\"; there are") && error.contains("qedb-transient"));
/// ```
pub fn find(name: &str) -> Result<Experiment, ExperimentError> {
    let all = experiments();
    all.iter()
        .find(|experiment| experiment.name == name)
        .copied()
        .ok_or_else(|| {
            let line = |experiment: &Experiment| format!("  {:<18} {}", experiment.name, experiment.about);
            ExperimentError::Unknown {
                name: name.into(),
                known: all.iter().map(line).collect::<Vec<_>>().join("\n"),
            }
        })
}

impl Settings {
    /// The seeds.
    pub fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        let first = self.seed;
        (0..u64::from(self.seeds)).map(move |i| first.wrapping_add(i))
    }

    /// The machines, by name.
    fn machine_names(&self) -> Vec<String> {
        self.machines
            .iter()
            .map(|subject| subject.machine.name.clone())
            .collect()
    }

    /// Refuses settings that make no experiment.
    fn check(&self) -> Result<(), ExperimentError> {
        let refuse = |what: String| Err(ExperimentError::Settings(what));
        if self.machines.is_empty() || self.seeds == 0 {
            return refuse("an experiment needs at least one machine and one seed".into());
        }
        for (i, Subject { machine, .. }) in self.machines.iter().enumerate() {
            if let Err(error) = machine.check() {
                return refuse(format!("machine \"{}\": {error}", machine.name));
            }
            if self.machines[..i]
                .iter()
                .any(|other| other.machine.name == machine.name)
            {
                return refuse(format!(
                    "two machines are called \"{}\": give each a name of its own",
                    machine.name
                ));
            }
        }
        Ok(())
    }

    fn workers(&self) -> usize {
        self.workers.map_or_else(parallel::workers, NonZeroUsize::get)
    }
}
