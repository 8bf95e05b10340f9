//! What exclusive cores have to do with the rest of the machine.

use std::path::PathBuf;

use punctual_units::CoreId;
use serde::{Deserialize, Serialize};

/// What exclusive cores have to do with the rest of the machine: which cores they may be, which other programs stay
/// there or have them lent, and which interrupts belong there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Neighbours {
    /// Which cores may become exclusive.
    pub cores: CoreChoice,
    /// Programs that are left where they are, as `ps -o comm` shows them.
    pub spare: Vec<String>,
    /// Whether process 1 is moved off the cores like any other program. What it starts meanwhile is confined as well,
    /// until the cores are given back.
    pub move_init: bool,
    /// Whether a core is lent while none of its tasks has a job: to best-effort threads of this process and to
    /// `lend_to`, and to no other.
    pub lend: bool,
    /// Control groups that have the cores while they are lent, as `/proc/<pid>/cgroup` names them, e.g.
    /// `/system.slice/render.service`.
    pub lend_to: Vec<PathBuf>,
    /// Control groups that share the cores all the time, named likewise: exclusive tasks preempt them there, and the
    /// affinity of no thread in them changes.
    pub share_with: Vec<PathBuf>,
    /// Interrupts that are steered onto the first exclusive core, the highest one: numbers, or names from the last
    /// column of `/proc/interrupts`. `eth0` stands for its queues (`eth0-rx-0`), too.
    pub interrupts: Vec<String>,
}

impl Default for Neighbours {
    /// Any core, no program but process 1 stays, the cores are lent to best-effort threads of this process, and
    /// interrupts leave.
    fn default() -> Self {
        Neighbours {
            cores: CoreChoice::Any,
            spare: Vec::new(),
            move_init: false,
            lend: true,
            lend_to: Vec::new(),
            share_with: Vec::new(),
            interrupts: Vec::new(),
        }
    }
}

/// A program of which threads may still run on an exclusive core. Where there are very many, the last one stands for
/// the rest: its number is 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stay {
    /// Which core.
    pub core: CoreId,
    /// As `ps -o comm` shows the program.
    pub name: String,
    /// Its number.
    pub process: i32,
    /// How many threads of it.
    pub threads: usize,
    /// Why they were not moved.
    pub why: Why,
}

/// Why a thread may still run on an exclusive core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// It is one of a child of the program that has the core, which places its children itself.
    Own,
    /// Its control group shares the core, as the user said.
    Shares,
    /// It is one of process 1, which is moved on request only.
    Init,
    /// The user named its program as one to be left alone.
    Spared,
    /// It is not this user's to move.
    NotPermitted,
    /// The kernel binds it where it runs, or its control group has no other core.
    Bound,
}

/// Which cores may become exclusive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CoreChoice {
    /// Any: first those that the kernel was booted to keep free (`isolcpus`), then from the end.
    #[default]
    Any,
    /// Only these.
    These(Vec<CoreId>),
    /// Only those that the kernel was booted to keep free.
    Isolated,
}
