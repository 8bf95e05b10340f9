//! Table `[allocation]`: the cache ways and memory bandwidth of each core, and the profiles of tasks that decide them.

use std::path::PathBuf;

use punctual_allocation::{Grid, Policy};
use punctual_scenario::Changes;
use punctual_toml::Section;
use punctual_workload::TaskSpec;

/// Most cache ways, and most bandwidth partitions: the limits of a profile.
const PARTS_MAX: u8 = 64;
/// Largest cache way in KiB.
pub const WAY_KIB_MAX: u32 = 1 << 20;
/// Default size of a way in KiB: that of the fifth paper's machine.
const WAY_KIB: u32 = 2048;

/// Split of cache ways and bandwidth among tasks with profiles; on Linux that of the start stays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allocation {
    /// Policy of the split; `None` only if no task has a profile.
    pub policy: Option<Policy>,
    /// Instants at which the split may change.
    pub changes: Changes,
    /// Ways and partitions of the machine, for which profiles must be.
    pub grid: Grid,
    /// Size of a cache way in KiB; 0: gained ways are full at once.
    pub way_kib: u32,
}

/// File with a task's profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileFile {
    /// Name of the task in the scenario.
    pub task: String,
    /// Path, not resolved yet.
    pub path: PathBuf,
    /// File, line and key that name it, such as `scenarios/x.toml:12: task[0].profile`.
    pub place: String,
}

/// Policy of this name.
///
/// # Errors
/// A sentence with all names.
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
            format!("{kib} is out of range: at most {WAY_KIB_MAX}; at 0, gained ways are filled at once"),
        );
    }
    kib
}
