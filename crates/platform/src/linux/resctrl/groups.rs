//! All groups of the mounted resctrl, with their tasks and likely owners.

use std::collections::BTreeMap;
use std::fmt;

use super::super::KernelTree;
use super::knob::names;
use super::{CORES, MOUNT, PREFIX};

/// Tasks of a group whose names are read at most.
const TASKS_READ: usize = 256;

/// A group beside the default one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResctrlGroup {
    /// Name of its folder.
    pub name: String,
    /// Number of its threads.
    pub tasks: usize,
    /// Cores whose threads of the default group have this class, as a list of the kernel's; empty: none.
    pub cores: String,
    /// Likely owner in words, such as `made by pqos`.
    pub owner: String,
}

/// All groups but the default one, ascending by name.
pub fn groups(tree: &KernelTree) -> Vec<ResctrlGroup> {
    let group = |name: String| {
        let tasks = tree.text(format!("{MOUNT}/{name}/tasks"));
        ResctrlGroup {
            tasks: tasks.lines().count(),
            cores: tree.text(format!("{MOUNT}/{name}/{CORES}")).trim().to_owned(),
            owner: owner(tree, &name, &tasks),
            name,
        }
    };
    names(tree).into_iter().map(group).collect()
}

/// The likely owner of a group: by its name, else the program with most of its threads.
fn owner(tree: &KernelTree, name: &str, tasks: &str) -> String {
    let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
    if let Some(process) = process.and_then(|process| process.parse::<u32>().ok()) {
        let lives = tree.path(format!("/proc/{process}")).exists();
        return format!("punctual, process {process}{}", if lives { "" } else { ", ended" });
    }
    let mut programs: BTreeMap<String, usize> = BTreeMap::new();
    for task in tasks.lines().take(TASKS_READ) {
        if let Ok(program) = tree.read(format!("/proc/{task}/comm")) {
            *programs.entry(program).or_default() += 1;
        }
    }
    let most = programs.into_iter().max_by_key(|(_, count)| *count);
    let numbered = |prefix: &str| {
        name.strip_prefix(prefix)
            .is_some_and(|rest| rest.parse::<u32>().is_ok())
    };
    // Names that these programs give: pqos numbers classes, container runtimes use the container's 64 digits.
    let by_name = match name {
        _ if numbered("COS") => Some("made by pqos"),
        _ if name.starts_with("goresctrl.") => Some("made by goresctrl, of a container runtime"),
        _ if name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) => Some("made for a container"),
        _ => None,
    };
    match (by_name, most) {
        (Some(maker), _) => maker.into(),
        (None, Some((program, _))) => format!("mostly {program}"),
        (None, None) => "owner unknown".into(),
    }
}

/// For people: `COS1 (made by pqos, 0 tasks, cores 0-1)`.
impl fmt::Display for ResctrlGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ResctrlGroup {
            name,
            tasks,
            cores,
            owner,
        } = self;
        let tasks = match tasks {
            1 => "1 task".into(),
            many => format!("{many} tasks"),
        };
        match cores.is_empty() {
            true => write!(f, "{name} ({owner}, {tasks})"),
            false => write!(f, "{name} ({owner}, {tasks}, cores {cores})"),
        }
    }
}
