//! Options of the simulated machine, which the product does not have.

use std::path::{Path, PathBuf};

use clap::Args;
use punctual_allocation::Policy;
use punctual_cli::args::{Change, Platform};
use punctual_cli::commands::run;
use punctual_files::document;
use punctual_files::failure::Failure;
use punctual_files::scenario::{self, Loaded};
use punctual_files::toml::Override;
use punctual_machine::{Fault, Faults, KernelGovernor, Surroundings};
use punctual_scenario::{MachineModel, RunRequest};

use crate::fault;

/// Options of the simulated machine.
#[derive(Clone, Debug, Default, Args)]
pub struct SimulationOptions {
    /// Machine to simulate [default: the built-in machines/exynos5422-a15.toml]
    #[arg(long, value_name = "FILE")]
    pub machine: Option<PathBuf>,
    /// Kernel governor of the simulated clock while no controller sets it: performance, userspace:1000MHz,
    /// ondemand-old, ondemand-old:20..90 (thresholds in percent), ondemand or schedutil
    #[arg(long, value_name = "NAME")]
    pub governor: Option<KernelGovernor>,
    /// Make a knob or a meter fail, repeatable: stuck:clock@10s..20s, refuse:clock@10s..20s, late:METER@10s..20s=500ms,
    /// freeze:METER@10s..20s, wrong:METER@10s..20s=0.5 (a factor), lose:METER@10s..20s=0.3 (a probability); METER is
    /// clock, busy, energy or response
    #[arg(long, value_name = "SPEC", value_parser = fault::parse)]
    pub fault: Vec<Fault>,
    /// Execution profile of a task, in place of the scenario's: its instructions, and their rate for each number of
    /// cache ways and each share of memory bandwidth
    #[arg(long, value_name = "TASK=FILE", value_parser = profile_of)]
    pub profile: Vec<(String, String)>,
    /// Policy that splits cache ways and bandwidth among tasks with profiles, in place of the scenario's
    /// allocation.policy
    #[arg(long, value_name = "POLICY", value_parser = scenario::parse_policy)]
    pub allocate: Option<Policy>,
    /// Size of a cache way in KiB, 0 to 1048576, in place of the scenario's allocation.way_kib: a core that gains a way
    /// fills it first, at 72 MB/s per bandwidth partition; 0: gained ways are full at once
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u32).range(0..=i64::from(scenario::WAY_KIB_MAX)))]
    pub way_kib: Option<u32>,
}

impl SimulationOptions {
    /// Whether any option of the simulated machine was given.
    fn is_some(&self) -> bool {
        self.machine.is_some() || self.governor.is_some() || !self.fault.is_empty() || !self.overrides().is_empty()
    }

    /// Overrides of the scenario's keys by these options.
    fn overrides(&self) -> Vec<Override> {
        let profile = |(task, file): &(String, String)| {
            Override::of_text(format!("--profile {task}={file}"), format!("task.{task}.profile"), file)
        };
        let policy = |policy: Policy| Override::of_option("--allocate", "allocation.policy", policy.name());
        let way = |kib: u32| Override::of_option("--way-kib", "allocation.way_kib", &kib.to_string());
        let profiles = self.profile.iter().map(profile);
        profiles
            .chain(self.allocate.map(policy))
            .chain(self.way_kib.map(way))
            .collect()
    }

    /// Adds the keys of the scenario that these options set to `change`, for a run on the simulated machine.
    pub fn add_to(&self, change: &mut Change) {
        if change.platform == Platform::Sim {
            change.set.extend(self.overrides());
        }
    }

    /// Makes the request of a run, with machine, governor and faults.
    ///
    /// # Errors
    /// Any option for a run on Linux, a task that is named twice, and files that cannot be read, one line per problem.
    pub fn request(&self, loaded: &Loaded, change: &Change) -> Result<RunRequest, Failure> {
        if change.platform == Platform::Linux && self.is_some() {
            let what = "--machine, --governor, --fault, --profile, --allocate and --way-kib are for the simulated machine: add --platform sim";
            return Err(Failure::of(what));
        }
        one_profile_each(&self.profile)?;
        let faults = Faults {
            seed: loaded.scenario.seed,
            list: self.fault.clone(),
        };
        let request = run::request(loaded, change)?;
        Ok(RunRequest {
            machine: self.machine.as_deref().map(load).transpose()?,
            environment: Box::new(Surroundings::new(self.governor, faults)),
            ..request
        })
    }
}

/// Task name and file from `TASK=FILE`.
fn profile_of(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((task, file)) if !task.is_empty() && !file.is_empty() => Ok((task.into(), file.into())),
        _ => Err("expected the name of a task and a file, such as analysis=data/profiles/fft.scaled.csv".into()),
    }
}

/// Refuses a task named twice by `--profile`, because one of the files would be ignored.
fn one_profile_each(given: &[(String, String)]) -> Result<(), Failure> {
    for (number, (task, file)) in given.iter().enumerate() {
        if let Some((_, first)) = given[..number].iter().find(|(other, _)| other == task) {
            return Err(Failure::of(format!(
                "--profile {task}={file}: the task has the profile {first} already; give it one"
            )));
        }
    }
    Ok(())
}

/// Reads a machine file.
///
/// # Errors
/// [`Failure::Input`] with one line per problem: file, line, key, remedy.
pub fn load(path: &Path) -> Result<MachineModel, Failure> {
    let expected = "a machine file, such as machines/exynos5422-a15.toml";
    document::load(path, expected, MachineModel::from_toml)
}
