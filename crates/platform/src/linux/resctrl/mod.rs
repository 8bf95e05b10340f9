//! Cache ways and memory bandwidth of cores, by the kernel's resctrl (Documentation/filesystems/resctrl.rst).
//!
//! **Terms.** A *class* (CLOSID) is a set of ways and a bandwidth in the hardware; the kernel shows each class in use
//! as a *group*, a folder. The default group is the root. A *domain* is one cache, by its id.
//!
//! - `missing`: whether resctrl is mounted, or which flag, option or mount is missing.
//! - [`ResctrlLayout`]: what the mounted one divides, in which units, for which cores.
//! - [`Partitions`]: the knob. A core gets a class by the list of cores of a group of ours.
//! - [`ResctrlGroup`]: all groups, with their tasks and likely owners.
//!
//! The kernel's code, not its documentation, decides where they differ: observed on 6.1.192 and 6.12.117.

mod groups;
mod knob;
mod layout;
mod missing;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use groups::{ResctrlGroup, groups};
pub use knob::{Partitions, Rehearsal, ResctrlAccess};
pub(super) use knob::{carry, remove};
pub use layout::{Bandwidth, CacheWays, ResctrlLayout};
pub(super) use missing::look;

/// Where the file system is mounted.
const MOUNT: &str = "/sys/fs/resctrl";
/// File of a group with its ways and bandwidth, a resource in each line.
const SCHEMATA: &str = "schemata";
/// File of a group with its cores.
const CORES: &str = "cpus_list";
/// File with the kernel's words on what it refused.
const STATUS: &str = "info/last_cmd_status";
/// How names of our groups begin; the number of their process follows.
const PREFIX: &str = "punctual-";

/// Whether resctrl is mounted.
pub fn is_mounted(tree: &super::KernelTree) -> bool {
    look(tree).is_ok()
}

/// Folder of a group, as on a running machine.
pub(super) fn folder(group: &str) -> String {
    format!("{MOUNT}/{group}")
}
