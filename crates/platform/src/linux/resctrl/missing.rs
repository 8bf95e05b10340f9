//! The missing part of resctrl on this machine: a flag of the CPU, an option of the kernel, or the mount.

use std::fmt;

use super::super::KernelTree;
use super::super::cores::cpuinfo_field;
use super::super::real_time::configuration;
use super::{MOUNT, SCHEMATA};

/// The kernel's options, of x86 and of ARM.
const OPTIONS: [&str; 2] = ["CONFIG_X86_CPU_RESCTRL", "CONFIG_ARM64_MPAM"];

/// The first missing part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Lack {
    /// No flag of the CPU says that it can; `hypervisor`: one may hide them.
    Flags { hypervisor: bool },
    /// The kernel has no resctrl, although the CPU has these flags; `built`: whether it was built with the option, if
    /// that can be read.
    Kernel { flags: String, built: Option<bool> },
    /// The parameter of the kernel's command line that switches it off.
    SwitchedOff(String),
    /// The kernel has it, but it is not mounted.
    Mount,
}

/// Whether resctrl is mounted; if not, the first missing part.
pub(in super::super) fn look(tree: &KernelTree) -> Result<(), Lack> {
    if tree.path(format!("{MOUNT}/{SCHEMATA}")).exists() {
        return Ok(());
    }
    if tree
        .text("/proc/filesystems")
        .split_whitespace()
        .any(|it| it == "resctrl")
    {
        return Err(Lack::Mount);
    }
    let cpuinfo = tree.text("/proc/cpuinfo");
    let flags = cpuinfo_field(&cpuinfo, "flags").unwrap_or_default();
    let has = |flag: &&str| flags.split_whitespace().any(|it| it == *flag);
    let there: Vec<&str> = ["cat_l3", "cat_l2", "mba", "smba"].into_iter().filter(has).collect();
    // The kernel uses none of the others without the first one.
    if !has(&"rdt_a") || there.is_empty() {
        let hypervisor = has(&"hypervisor");
        return Err(Lack::Flags { hypervisor });
    }
    let command_line = tree.text("/proc/cmdline");
    let off = |word: &&str| word.strip_prefix("rdt=").is_some_and(|list| list.contains('!'));
    if let Some(off) = command_line.split_whitespace().find(off) {
        return Err(Lack::SwitchedOff(off.to_owned()));
    }
    let built = configuration(tree).map(|configuration| {
        let option = |line: &str| OPTIONS.iter().any(|option| line == format!("{option}=y"));
        configuration.lines().any(option)
    });
    let flags = there.join(", ");
    Err(Lack::Kernel { flags, built })
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lack::Flags { .. } => {
                f.write_str("CPU: it lacks the flags rdt_a with cat_l3, cat_l2 or mba (/proc/cpuinfo shows none)")
            }
            Lack::Kernel { flags, built } => {
                let built = match built {
                    Some(false) => "it was built without the option",
                    Some(true) => "it was built with the option and does not offer it here",
                    None => "whether it was built with the option cannot be read",
                };
                write!(
                    f,
                    "kernel: it has no resctrl for the CPU's flags {flags}; {built} {}",
                    OPTIONS[0]
                )
            }
            Lack::SwitchedOff(parameter) => write!(f, "kernel: the boot parameter {parameter} switches it off"),
            Lack::Mount => f.write_str("mount: resctrl is not mounted"),
        }
    }
}

impl Lack {
    pub(in super::super) fn remedy(&self) -> String {
        match self {
            Lack::Flags { hypervisor: true } => {
                "let the hypervisor pass these flags on, or use a machine without one; its CPU needs RDT, QoS or MPAM"
                    .into()
            }
            Lack::Flags { hypervisor: false } => "use a CPU with RDT (Intel), QoS (AMD) or MPAM (ARM)".into(),
            Lack::Kernel { .. } => format!("boot a kernel that is built with {}=y", OPTIONS[0]),
            Lack::SwitchedOff(parameter) => format!("boot without {parameter}"),
            Lack::Mount => format!("as root: mount -t resctrl resctrl {MOUNT}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::testing;

    const FLAGS: (&str, &str) = ("/proc/cpuinfo", "processor : 0\nflags : fpu rdt_a cat_l3 mba tsc");
    const RELEASE: (&str, &str) = ("/proc/sys/kernel/osrelease", "6.12.1");

    fn found(files: &[(&str, &str)]) -> Result<(), Lack> {
        let (_folder, tree) = testing::tree(files);
        let found = look(&tree);
        if let Err(lack) = &found {
            assert!(!lack.to_string().is_empty() && !lack.remedy().is_empty());
        }
        found
    }

    #[test]
    fn the_first_missing_part_is_named() {
        let hidden = [("/proc/cpuinfo", "flags : fpu hypervisor")];
        assert_eq!(found(&hidden), Err(Lack::Flags { hypervisor: true }));
        assert_eq!(found(&[]), Err(Lack::Flags { hypervisor: false }));
        let monitors = [("/proc/cpuinfo", "flags : cqm_llc cat_l3")];
        assert_eq!(found(&monitors), Err(Lack::Flags { hypervisor: false }));
        let kernel = |built| {
            let flags = "cat_l3, mba".into();
            Err(Lack::Kernel { flags, built })
        };
        assert_eq!(found(&[FLAGS]), kernel(None));
        let without = ("/boot/config-6.12.1", "# CONFIG_X86_CPU_RESCTRL is not set");
        assert_eq!(found(&[FLAGS, RELEASE, without]), kernel(Some(false)));
        let with = ("/lib/modules/6.12.1/config", "CONFIG_X86_CPU_RESCTRL=y");
        assert_eq!(found(&[FLAGS, RELEASE, with]), kernel(Some(true)));
        let off = ("/proc/cmdline", "quiet rdt=!l3cat,!mba");
        assert_eq!(found(&[FLAGS, off]), Err(Lack::SwitchedOff("rdt=!l3cat,!mba".into())));
        assert_eq!(found(&[("/proc/filesystems", "nodev\tresctrl")]), Err(Lack::Mount));
        assert_eq!(found(&[("/sys/fs/resctrl/schemata", "L3:0=fff")]), Ok(()));
    }
}
