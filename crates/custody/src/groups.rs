//! Names of the control groups that keep a core: by these names restoring tells them from other groups.

use std::ffi::CStr;

use punctual_units::CoreId;

/// Folder name of a pen: the group of all threads but those of the processes that keep cores.
pub const PEN: &str = "punctual-pen";
/// The part by which names of groups with a single core are recognized.
const CORE: &str = "-core-";

/// Name of the group of a core: unique, because a process keeps each core once.
pub fn group_name(core: CoreId) -> String {
    format!("punctual-{}{CORE}{core}", std::process::id())
}

/// Whether the file at `path` belongs to a group that keeps a core: a partition, or a pen.
pub fn keeps_a_core(path: &CStr) -> bool {
    let mut folders = path.to_bytes().rsplit(|byte| *byte == b'/').skip(1);
    folders.next().is_some_and(|group| {
        let partition = group.starts_with(b"punctual-") && group.windows(CORE.len()).any(|it| it == CORE.as_bytes());
        partition || group == PEN.as_bytes()
    })
}
