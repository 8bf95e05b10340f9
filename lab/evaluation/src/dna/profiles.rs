//! The sets of profiles that the experiments run on.

use punctual_allocation::{Objective, Profile, Programs};
use punctual_sim::split::{RunnableProfile, SplitModel};

use super::facts::{ProfileOrigin, SetError};
use super::policy::Policy;
use super::sets::{read, size};

/// Size of a way where no profile of a set states it, in bytes: that of the fifth paper's machine.
pub const WAY_BYTES: f64 = 2.0 * 1024.0 * 1024.0;

/// Limit of the phases of each program: half of what an allocator could hold, because every phase of every job is an
/// event of every run. With 64, all experiments together would take about the three minutes that they may. The error in
/// rates that 32 phases cause is part of the experiments' setting.
pub const PHASES: usize = 32;

/// Profiles of programs on one machine.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileSet {
    /// Name of the set: `full`, `scaled`; `modelled` or `measured` where the files do not name a set.
    pub name: String,
    /// Origin of the figures: a model, or counters.
    pub kind: ProfileOrigin,
    /// Size of a way of the set's machine, in bytes.
    pub way_bytes: f64,
    /// Assumptions about facts that the files do not state: a sentence for each.
    pub assumed: Vec<String>,
    /// Profiles of the set's programs.
    pub profiles: Vec<Profile>,
    /// Number of phases that were found, for each program, before the least different neighbours were joined.
    pub phases_found: Vec<usize>,
    /// Mean of |rate / recorded rate - 1| over progress and shares, for each program.
    pub rate_errors: Vec<f64>,
}

/// The trace-driven profiles that are shipped with the program.
const SHIPPED: [(&str, &[u8]); 6] = [
    ("fft.full.csv", include_bytes!("../../../../data/profiles/fft.full.csv")),
    (
        "ocean.full.csv",
        include_bytes!("../../../../data/profiles/ocean.full.csv"),
    ),
    (
        "fluidanimate.full.csv",
        include_bytes!("../../../../data/profiles/fluidanimate.full.csv"),
    ),
    (
        "fft.scaled.csv",
        include_bytes!("../../../../data/profiles/fft.scaled.csv"),
    ),
    (
        "ocean.scaled.csv",
        include_bytes!("../../../../data/profiles/ocean.scaled.csv"),
    ),
    (
        "fluidanimate.scaled.csv",
        include_bytes!("../../../../data/profiles/fluidanimate.scaled.csv"),
    ),
];

/// The sets `full` and `scaled`.
///
/// # Errors
/// None for the shipped files; tests read them.
pub fn shipped() -> Result<Vec<ProfileSet>, SetError> {
    read(&SHIPPED)
}

impl ProfileSet {
    /// Summary of the set, such as `scaled: modelled, ways of 64 KiB`.
    pub fn about(&self) -> String {
        let assumed = if self.assumed.is_empty() {
            ""
        } else {
            " (in part assumed)"
        };
        format!(
            "{}: {}, ways of {}{assumed}",
            self.name,
            self.kind.name(),
            size(self.way_bytes)
        )
    }
}

/// A set of profiles, ready to run and to decide by.
#[derive(Clone, Debug)]
pub struct RunSet {
    /// Name of the set.
    pub name: String,
    /// The machine of the set, with refill charged.
    pub machine: SplitModel,
    /// The programs for the simulated machine.
    pub programs: Vec<RunnableProfile>,
    /// Number of phases that were found in its file, for each program.
    pub phases_found: Vec<usize>,
    /// The programs for our allocators.
    pub by_speed: Programs,
    /// The programs for the paper's.
    by_instructions: Programs,
}

impl RunSet {
    /// Checks and compiles `set`.
    ///
    /// # Errors
    /// A message that names the profile and the error.
    pub fn new(set: &ProfileSet) -> Result<RunSet, String> {
        let programs = set.profiles.iter().cloned().map(RunnableProfile::new);
        let compiled = |objective| Programs::new(&set.profiles, objective).map_err(|error| error.to_string());
        Ok(RunSet {
            name: set.name.clone(),
            phases_found: set.phases_found.clone(),
            machine: SplitModel {
                way_bytes: set.way_bytes,
                ..SplitModel::PAPER
            },
            programs: programs.collect::<Result<_, _>>().map_err(|error| error.to_string())?,
            by_speed: compiled(Objective::Speed)?,
            by_instructions: compiled(Objective::Instructions)?,
        })
    }

    /// The programs, compiled for `policy`.
    pub fn compiled(&self, policy: Policy) -> &Programs {
        match policy.objective() {
            Objective::Speed => &self.by_speed,
            Objective::Instructions => &self.by_instructions,
        }
    }
}
