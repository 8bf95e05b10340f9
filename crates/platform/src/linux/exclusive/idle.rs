//! Keeps an exclusive core out of idle states that take long to leave, so that a released job starts sooner.
//!
//! One core's bound is `power/pm_qos_resume_latency_us` of the core's device
//! (Documentation/ABI/testing/sysfs-devices-power); the idle governor keeps to it. Where a kernel has no such file, the
//! bound of the whole machine is held as long as `/dev/cpu_dma_latency` is open
//! (Documentation/admin-guide/pm/cpuidle.rst).

use std::fs::File;
use std::io::Write;

use punctual_custody::journal::Journal;
use punctual_units::CoreId;

use super::super::{KernelTree, refused};
use crate::Refusal;

/// Longest exit latency of permitted idle states, in microseconds: as long as a usual wake-up takes here; deeper states
/// take a hundred and more.
pub const IDLE_EXIT_MAX_US: u32 = 20;
const ALL_CORES: &str = "/dev/cpu_dma_latency";

/// The bound of one core, which the journal undoes, or of all cores, which ends with this value.
#[derive(Debug)]
pub(super) enum IdleBound {
    OneCore,
    AllCores { _held: File },
}

/// Bounds the exit latency of `core`'s idle states.
pub(super) fn bound(tree: &KernelTree, journal: &Journal, core: CoreId) -> Result<IdleBound, Refusal> {
    let of_the_core = tree.path(format!(
        "/sys/devices/system/cpu/cpu{core}/power/pm_qos_resume_latency_us"
    ));
    if of_the_core.exists() {
        return journal
            .write(&of_the_core, &IDLE_EXIT_MAX_US.to_string())
            .map(|()| IdleBound::OneCore);
    }
    let hold = || {
        let mut file = File::options().write(true).open(tree.path(ALL_CORES))?;
        file.write_all(&IDLE_EXIT_MAX_US.to_ne_bytes())?;
        Ok(file)
    };
    let held: std::io::Result<File> = hold();
    held.map(|held| IdleBound::AllCores { _held: held }).map_err(|why| {
        let what = format!("keeping core {core} out of deep idle states ({ALL_CORES})");
        let remedy = "run as root, or give this user the right to write the file";
        refused(what, why, remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::testing;

    const OF_CORE_1: &str = "/sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us";

    #[test]
    fn one_core_is_bounded_where_the_kernel_can_and_all_of_them_else() {
        let (_folder, tree) = testing::tree(&[(OF_CORE_1, "0"), (ALL_CORES, "")]);
        let journal = testing::journal();
        assert!(matches!(bound(&tree, &journal, CoreId(1)), Ok(IdleBound::OneCore)));
        assert_eq!(tree.read(OF_CORE_1).unwrap(), "20");
        assert_eq!(journal.restore(), []);
        assert_eq!(tree.read(OF_CORE_1).unwrap(), "0");

        let all = bound(&tree, &journal, CoreId(0)).unwrap();
        assert!(matches!(all, IdleBound::AllCores { .. }));
        let written = std::fs::read(tree.path(ALL_CORES)).unwrap();
        assert_eq!(written, IDLE_EXIT_MAX_US.to_ne_bytes());
    }

    #[test]
    fn a_machine_without_either_is_told_so() {
        let (_folder, tree) = testing::tree(&[("/proc/self/status", "")]);
        let refusal = bound(&tree, &testing::journal(), CoreId(1)).unwrap_err();
        assert!(refusal.what.contains("deep idle states"), "{refusal}");
    }
}
