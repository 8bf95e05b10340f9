//! What exclusive cores have to do with the rest of the machine.

use std::path::PathBuf;

use punctual_units::CoreId;
use serde::Serialize;

/// What exclusive cores have to do with the rest of the machine: which cores they may be, which other programs stay
/// there or have them lent, and which interrupts belong there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Neighbours {
    /// Which cores may become exclusive.
    pub cores: CoreChoice,
    /// Programs that are left where they are, as `ps -o comm` shows them.
    pub spare: Vec<String>,
    /// Whether a core is lent while none of its tasks has a job: to best-effort threads of this process and to
    /// `lend_to`, and to no other.
    pub lend: bool,
    /// Control groups that have the cores while they are lent, as `/proc/<pid>/cgroup` names them, e.g.
    /// `/system.slice/render.service`.
    pub lend_to: Vec<PathBuf>,
    /// Interrupts that are steered onto the first exclusive core, the highest one: numbers, or names from the last
    /// column of `/proc/interrupts`. `eth0` stands for its queues (`eth0-rx-0`), too.
    pub interrupts: Vec<String>,
}

impl Default for Neighbours {
    /// Any core, no program stays, the cores are lent to best-effort threads of this process, and interrupts leave.
    fn default() -> Self {
        Neighbours {
            cores: CoreChoice::Any,
            spare: Vec::new(),
            lend: true,
            lend_to: Vec::new(),
            interrupts: Vec::new(),
        }
    }
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
