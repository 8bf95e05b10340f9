//! The sets of profiles that the experiments run on.

use punctual_allocation::policy::Exact;
use punctual_allocation::profile::{Kind, ReadError};
use punctual_allocation::{Objective, Profile, Programs};
use punctual_sim::split::{Program, SplitModel};

use super::decide::POOL;
use super::sets::{read, size};

/// The size of a way where no profile of a set says it (bytes): that of the fifth paper's machine.
pub const WAY_BYTES: f64 = 2.0 * 1024.0 * 1024.0;

/// Phases that are kept of each program, at most: half of what an allocator could hold, because every phase of every
/// job is an event of every run: with 64 all experiments together would take about the three minutes that they may.
/// What 32 cost in rates is part of the experiments' setting.
pub const PHASES: usize = 32;

/// Profiles of one machine.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileSet {
    /// What it is called: `full`, `scaled`; `modelled` or `measured` where the files do not name a set.
    pub name: String,
    /// Where its figures come from.
    pub kind: Kind,
    /// The size of a way of the machine that it is for (bytes).
    pub way_bytes: f64,
    /// What was assumed because files do not say it: a sentence for each.
    pub assumed: Vec<String>,
    /// The programs.
    pub profiles: Vec<Profile>,
    /// Phases of each that were found, before the least different neighbours were joined.
    pub phases_found: Vec<usize>,
    /// Mean of |rate / recorded rate - 1| over progress and shares, of each.
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
/// None, as far as tests know.
pub fn shipped() -> Result<Vec<ProfileSet>, ReadError> {
    read(&SHIPPED)
}

impl ProfileSet {
    /// What it is of, such as `scaled: modelled, ways of 64 KiB`.
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
pub struct Prepared {
    /// What the set is called.
    pub name: String,
    /// The machine that it is for, refill charged.
    pub machine: SplitModel,
    /// For the simulated machine.
    pub programs: Vec<Program>,
    /// Phases of each that were found in its file.
    pub phases_found: Vec<usize>,
    /// For allocators.
    pub compiled: Programs,
    /// The tables of the exact optimum, filled.
    pub exact: Exact,
}

impl Prepared {
    /// Checks and compiles `set`.
    ///
    /// # Errors
    /// In words, what is wrong with which profile.
    pub fn new(set: &ProfileSet) -> Result<Prepared, String> {
        let programs = set.profiles.iter().cloned().map(Program::new);
        let compiled = Programs::new(&set.profiles, Objective::Speed).map_err(|error| error.to_string())?;
        let mut exact = Exact::new(&compiled, POOL, SplitModel::PAPER.cores);
        exact.fill(&compiled);
        Ok(Prepared {
            exact,
            name: set.name.clone(),
            phases_found: set.phases_found.clone(),
            machine: SplitModel {
                way_bytes: set.way_bytes,
                ..SplitModel::PAPER
            },
            programs: programs.collect::<Result<_, _>>().map_err(|error| error.to_string())?,
            compiled,
        })
    }
}
