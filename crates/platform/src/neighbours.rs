//! What other programs on the machine have to do with exclusive cores.

use std::path::PathBuf;

use serde::Serialize;

/// What other programs have to do with exclusive cores: which of them stay there, and which have them lent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Neighbours {
    /// Programs that are left where they are, as `ps -o comm` shows them.
    pub spare: Vec<String>,
    /// Whether a core is lent while none of its tasks has a job: to best-effort threads of this process and to
    /// `lend_to`, and to no other.
    pub lend: bool,
    /// Control groups that have the cores while they are lent, as `/proc/<pid>/cgroup` names them, e.g.
    /// `/system.slice/render.service`.
    pub lend_to: Vec<PathBuf>,
}

impl Default for Neighbours {
    /// No program stays, and the cores are lent to best-effort threads of this process.
    fn default() -> Self {
        Neighbours {
            spare: Vec::new(),
            lend: true,
            lend_to: Vec::new(),
        }
    }
}
