//! Evaluations of papers on the simulated machine (claims, and whether they hold here), and measurements on this
//! machine.
//!
//! **Problem.** A paper's evaluation is a set of runs and a set of sentences about them. Here both are data: a plan of
//! runs for every machine of an ensemble and every seed, and a file of claims that was written before the runs
//! (`claims`).
//!
//! **Terms.** An *experiment* is a named plan with its claims. A *replication* is the whole plan on one machine with
//! one seed. *Tardiness* is response time divided by deadline, as in the first paper. All figures are simulated and are
//! labelled so.
//!
//! **Method.** [`experiments`] lists all experiments; each takes [`Settings`] and returns an [`Outcome`], which `cli`
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
pub mod edf;
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

pub use outcome::{Bars, Chart, Curve, Figure, FigureTable, Measure, Outcome, Testbed};

/// Parameters of an experiment.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The ensemble: at least one machine, each with a unique name.
    pub machines: Vec<Subject>,
    /// Profiles of programs for the experiments about cache and bandwidth, by set.
    pub profiles: Vec<dna::ProfileSet>,
    pub seed: u64,
    /// Number of seeds, counting up from the first.
    pub seeds: u32,
    /// Number of task sets for each utilisation and seed, in experiments that draw task sets.
    pub sets: u32,
    /// Claims to judge, of all experiments.
    pub claims: Claims,
    /// Reasons why claims do not hold, by the claim's id.
    pub reasons: Reasons,
    /// Number of threads; `None`: the number of cores.
    pub workers: Option<NonZeroUsize>,
}

/// A machine of the ensemble, with its job.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    pub machine: MachineModel,
    /// The job of the microbenchmarks, calibrated together with the machine.
    pub job: qedb::JobTimes,
}

/// Receives messages about the progress of an experiment.
pub type Progress<'p> = &'p (dyn Fn(&str) + Sync);

/// A named plan with its claims.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Name on the command line.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    pub run: fn(&Settings, Progress) -> Result<Outcome, ExperimentError>,
}

impl Experiment {
    /// The claims and the reasons that are part of the program, as TOML.
    pub fn shipped(&self) -> [&'static str; 2] {
        if dna::EXPERIMENTS.iter().any(|other| other.name == self.name) {
            [dna::CLAIMS, dna::REASONS]
        } else if self.name == controllers::EXPERIMENT.name {
            [controllers::CLAIMS, controllers::REASONS]
        } else if [goals::EXPERIMENT, goals::prices::EXPERIMENT]
            .iter()
            .any(|it| it.name == self.name)
        {
            [goals::CLAIMS, goals::REASONS]
        } else if mig::parts(self.name).is_some() {
            [mig::CLAIMS, mig::REASONS]
        } else if chronos::parts(self.name).is_some() {
            [chronos::CLAIMS, chronos::REASONS]
        } else if dps::parts(self.name).is_some() {
            // The reasons of dps are computed from its runs.
            [dps::CLAIMS, ""]
        } else {
            [qedb::CLAIMS, qedb::REASONS]
        }
    }
}

/// Reason why an experiment did not start.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ExperimentError {
    /// There is no experiment of this name.
    #[error("there is no experiment \"{name}\"; there are\n{known}")]
    Unknown {
        name: String,
        /// Names and descriptions of all experiments, one per line.
        known: String,
    },
    /// An error in the claims file.
    #[error(transparent)]
    Claims(#[from] ClaimError),
    /// No machine, no seed, two machines of one name, or another invalid setting.
    #[error("{0}")]
    Settings(String),
}

/// All experiments, those of the first paper first.
pub fn experiments() -> Vec<Experiment> {
    let others = [controllers::EXPERIMENT, goals::EXPERIMENT, goals::prices::EXPERIMENT]
        .into_iter()
        .chain(dna::EXPERIMENTS)
        .chain(dps::EXPERIMENTS)
        .chain(mig::EXPERIMENTS)
        .chain(chronos::EXPERIMENTS);
    qedb::EXPERIMENTS.into_iter().chain(others).collect()
}

/// Finds the experiment with this name.
///
/// # Errors
/// [`ExperimentError::Unknown`] with the list of all experiments.
///
/// ```
/// let error = punctual_evaluation::find("qebd").unwrap_err().to_string();
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
    /// All seeds, counting up from the first.
    pub fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        let first = self.seed;
        (0..u64::from(self.seeds)).map(move |i| first.wrapping_add(i))
    }

    /// Names of the machines, in their order.
    fn machine_names(&self) -> Vec<String> {
        self.machines
            .iter()
            .map(|subject| subject.machine.name.clone())
            .collect()
    }

    /// Refuses settings without a machine or a seed, and machines that are invalid or share a name.
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
