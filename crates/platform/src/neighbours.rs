//! Exclusive cores and the rest of the machine: settings, and the programs that stay.

use std::path::PathBuf;

use punctual_units::CoreId;
use serde::{Deserialize, Serialize};

/// Settings of exclusive cores towards the rest of the machine: cores that may become exclusive, programs that stay
/// there or borrow them, and interrupts that belong there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Neighbours {
    /// Which cores may become exclusive.
    pub cores: CoreChoice,
    /// Cores of stages of this program: none of them becomes exclusive.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<CoreId>,
    /// Programs that are not moved, by their names in `ps -o comm`.
    pub spare: Vec<String>,
    /// Whether process 1 is moved off the cores like any other program. Services that it starts meanwhile are then
    /// confined as well, until the cores are released.
    pub move_init: bool,
    /// Whether a core is lent while none of its tasks has a job: only to best-effort threads of this process and to
    /// `lend_to`.
    pub lend: bool,
    /// Control groups that may run on the cores while they are lent, as `/proc/<pid>/cgroup` names them, e.g.
    /// `/system.slice/render.service`.
    pub lend_to: Vec<PathBuf>,
    /// Control groups that share the cores at all times, named likewise. Exclusive tasks preempt them there; the
    /// affinity of their threads does not change.
    pub share_with: Vec<PathBuf>,
    /// Interrupts to steer onto the first exclusive core, the highest one: numbers, or names from the last column of
    /// `/proc/interrupts`. `eth0` includes its queues (`eth0-rx-0`).
    pub interrupts: Vec<String>,
    /// Whether threads of other programs will run on the cores, too: a partition would not admit them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub guests: bool,
}

impl Default for Neighbours {
    /// Any core; only process 1 stays; the cores are lent to best-effort threads of this process; all interrupts leave.
    fn default() -> Self {
        Neighbours {
            cores: CoreChoice::Any,
            stages: Vec::new(),
            spare: Vec::new(),
            move_init: false,
            lend: true,
            lend_to: Vec::new(),
            share_with: Vec::new(),
            interrupts: Vec::new(),
            guests: false,
        }
    }
}

/// A program with threads that may still run on an exclusive core. In a long list, the last entry stands for all
/// others: its `process` is 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stay {
    /// The exclusive core in question.
    pub core: CoreId,
    /// The program's name, as in `ps -o comm`.
    pub name: String,
    /// Process id; 0 for the entry that stands for the rest.
    pub process: i32,
    /// Number of the program's threads that may run there.
    pub threads: usize,
    /// Reason why these threads were not moved.
    pub why: Why,
}

/// Reason why a thread may still run on an exclusive core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// Thread of a child of the core's owner: the owner places its children itself.
    Own,
    /// The control group of the thread shares the core, as the user asked.
    Shares,
    /// Thread of process 1, which is moved on request only.
    Init,
    /// The user named its program in `Neighbours::spare`.
    Spared,
    /// This user may not move the thread.
    NotPermitted,
    /// The kernel binds the thread to its core, or its control group has no other core.
    Bound,
}

/// Which cores may become exclusive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CoreChoice {
    /// Any core: first those that the kernel was booted to keep free (`isolcpus`), then the highest numbers.
    #[default]
    Any,
    /// The listed cores only.
    These(Vec<CoreId>),
    /// Cores that the kernel was booted to keep free (`isolcpus`) only.
    Isolated,
}
