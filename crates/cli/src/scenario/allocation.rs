//! `[allocation]`: which cache ways and how much bandwidth each core gets, and the profiles of tasks that decide it.

use std::path::PathBuf;

use punctual_allocation::{Grid, Policy};
use punctual_scenario::Changes;
use punctual_workload::TaskSpec;

use super::section::Section;

/// Most ways, and most bandwidth partitions: what a profile may speak of.
const PARTS_MAX: u8 = 64;
/// Largest cache way in KiB.
pub const WAY_KIB_MAX: u32 = 1 << 20;
/// Size of a way where nothing says otherwise, in KiB: the fifth paper's machine.
const WAY_KIB: u32 = 2048;

/// What is split among tasks with profiles, and by which policy. Only the simulated machine does it so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allocation {
    /// The policy that decides; `None` only where no task has a profile.
    pub policy: Option<Policy>,
    /// When another split is taken up.
    pub changes: Changes,
    /// What the machine splits. Profiles must be for it.
    pub grid: Grid,
    /// Size of a cache way in KiB; 0 where a way that is gained costs nothing.
    pub way_kib: u32,
}

/// The file with a task's profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileFile {
    /// The task's name.
    pub task: String,
    /// The file.
    pub path: PathBuf,
    /// Where it was named and by which key, such as `scenarios/x.toml:12: task[0].profile`.
    pub place: String,
}

/// The policy of this name.
///
/// # Errors
/// A sentence with the names that there are.
pub fn parse_policy(name: &str) -> Result<Policy, String> {
    let names = || Policy::ALL.map(Policy::name).join(", ");
    Policy::named(name).ok_or_else(|| format!("no such policy; there are {}", names()))
}

/// Reads the table; `profiled` is a task with a profile, if there is one.
pub fn allocation(section: &mut Section<'_, '_>, profiled: Option<&TaskSpec>) -> Allocation {
    for key in ["changes", "ways", "partitions", "way_kib"] {
        if profiled.is_none() && section.has(key) {
            section.complain(
                key,
                "has no effect: no task has a profile, so nothing is split; remove it",
            );
        }
    }
    let changes = [("paying", Changes::Paying), ("every", Changes::Every)];
    Allocation {
        policy: policy(section, profiled),
        changes: section.choice("changes", &changes).unwrap_or(Changes::Paying),
        grid: Grid {
            ways: parts(section, "ways").unwrap_or(Grid::PAPER.ways),
            partitions: parts(section, "partitions").unwrap_or(Grid::PAPER.partitions),
        },
        way_kib: way_kib(section),
    }
}

fn policy(section: &mut Section<'_, '_>, profiled: Option<&TaskSpec>) -> Option<Policy> {
    let name = section.text("policy");
    match (profiled, section.has("policy")) {
        (Some(task), false) => section.complain(
            "policy",
            format!(
                "missing: the task \"{}\" has a profile, so which policy splits ways and bandwidth? write \"equal\", \"dna\" or \"exact\", or give --allocate",
                task.name
            ),
        ),
        (None, true) => section.complain(
            "policy",
            "no task has a profile to decide by: give one a `profile`, or --profile TASK=FILE",
        ),
        _ => {}
    }
    match parse_policy(&name?) {
        Ok(policy) => Some(policy),
        Err(what) => {
            section.complain("policy", what);
            None
        }
    }
}

fn parts(section: &mut Section<'_, '_>, key: &'static str) -> Option<u8> {
    let count: u8 = section.count(key)?;
    if !(1..=PARTS_MAX).contains(&count) {
        section.complain(key, format!("{count} is out of range: 1 to {PARTS_MAX}"));
    }
    Some(count)
}

fn way_kib(section: &mut Section<'_, '_>) -> u32 {
    let kib = section.count("way_kib").unwrap_or(WAY_KIB);
    if kib > WAY_KIB_MAX {
        section.complain(
            "way_kib",
            format!("{kib} is out of range: at most {WAY_KIB_MAX}; 0 makes a way that is gained free"),
        );
    }
    kib
}
