//! Carries out remedies of the doctor in place of a person: writes to kernel files, mounts, modules, restoration.
//!
//! **Rule.** Every step is announced before it is taken, with the value that it replaces. A step that this user may not
//! take changes nothing. No file of the system's configuration is written, so all steps last until the next boot.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use punctual_custody::recovery;
use punctual_custody::tree::{writable, write_existing};
use serde::{Deserialize, Serialize};

use super::KernelTree;
use super::cgroup::{CgroupVersion, Location, of_this_process};
use super::doctor::{Facility, Finding, Status, examine};
use crate::Refusal;

/// Step of a remedy that a program can take.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemedyStep {
    /// Write `value` to a kernel file, named as on a running machine.
    Write { path: PathBuf, value: String },
    /// Mount a file system of the kernel.
    Mount { kind: String, at: PathBuf },
    /// Load a module of the kernel.
    Load { module: String },
    /// Restore what dead programs of this user have left changed.
    Restore,
}

/// A step that was taken, or refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepOutcome {
    /// Facility whose finding asked for the step.
    pub facility: Facility,
    /// The step in words, with the former value of a file.
    pub step: String,
    /// Reason why nothing was changed; `None`: done.
    pub refused: Option<String>,
}

/// Takes the steps of all findings, and of those that only show after others; `tell` gets each one before it is taken,
/// and then why it was refused. Returns the steps, and the findings that remain.
pub fn fix(tree: &KernelTree, tell: &mut dyn FnMut(&str)) -> (Vec<StepOutcome>, Vec<Finding>) {
    let (mut outcomes, mut tried) = (Vec::new(), BTreeSet::new());
    loop {
        let findings = examine(tree);
        let before = outcomes.len();
        let steps = findings
            .iter()
            .flat_map(|finding| finding.steps.iter().map(|step| (finding.facility, step)));
        for (facility, step) in steps.filter(|(_, step)| tried.insert((*step).clone())) {
            let shown = step.shown(tree);
            tell(&shown);
            let refused = step.take(tree).err();
            if let Some(why) = &refused {
                tell(&format!("  refused: {why}"));
            }
            outcomes.push(StepOutcome {
                facility,
                step: shown,
                refused,
            });
        }
        if outcomes.len() == before {
            return (outcomes, findings);
        }
    }
}

/// Steps that carry the remedy of a finding out; none if it takes a person, or nothing is wanted. What protects the
/// machine (throttling of real-time threads, the fair server, a disabled io_uring) is switched off by a person alone.
pub(super) fn steps(tree: &KernelTree, finding: &Finding) -> Vec<RemedyStep> {
    let debugfs = || mount_of(tree, "debugfs", "/sys/kernel/debug");
    let preempt = "/sys/kernel/debug/sched/preempt";
    let version = || tree.text("/proc/sys/kernel/version");
    let is_dynamic = || version().contains("PREEMPT_DYNAMIC");
    let step = match finding.facility {
        _ if finding.remedy.is_empty() => None,
        Facility::CpuShare => cpu_controller(tree),
        Facility::Preemption if is_dynamic() => switch(tree, preempt.into(), "full").or_else(debugfs),
        Facility::CachePartitions => mount_of(tree, "resctrl", "/sys/fs/resctrl"),
        Facility::Energy => rapl(tree).filter(|_| finding.status == Status::Missing),
        Facility::AsFound => Some(RemedyStep::Restore).filter(|_| finding.status == Status::Missing),
        _ => None,
    };
    step.into_iter().collect()
}

/// Write of `value` to a file that exists and holds another one.
fn switch(tree: &KernelTree, path: PathBuf, value: &str) -> Option<RemedyStep> {
    let value = value.to_owned();
    let holds_other = tree.read(&path).is_ok_and(|now| now != value);
    holds_other.then_some(RemedyStep::Write { path, value })
}

/// Mount of a file system that the kernel has, on a folder that exists and has none.
fn mount_of(tree: &KernelTree, kind: &str, at: &str) -> Option<RemedyStep> {
    let is_known = tree.text("/proc/filesystems").split_whitespace().any(|it| it == kind);
    let mounts = tree.text("/proc/self/mountinfo");
    let is_mounted = mounts.lines().any(|mount| mount.split(' ').nth(4) == Some(at));
    let (kind, path) = (kind.to_owned(), PathBuf::from(at));
    (is_known && !is_mounted && tree.path(at).is_dir()).then_some(RemedyStep::Mount { kind, at: path })
}

/// Step by which the group above offers the cpu controller (version 2) to the group of this process.
fn cpu_controller(tree: &KernelTree) -> Option<RemedyStep> {
    let Some(Location { version, folder }) = of_this_process(tree, "cpu") else {
        return mount_of(tree, "cgroup2", "/sys/fs/cgroup");
    };
    let above = folder.parent()?;
    let offers = |group: &Path| {
        let controllers = tree.read(group.join("cgroup.controllers"));
        controllers.is_ok_and(|all| all.split(' ').any(|it| it == "cpu"))
    };
    let is_withheld = version == CgroupVersion::V2 && !offers(&folder) && offers(above);
    is_withheld
        .then(|| switch(tree, above.join("cgroup.subtree_control"), "+cpu"))
        .flatten()
}

/// Module that counts the energy of processors of this kind; virtual machines have no counters.
fn rapl(tree: &KernelTree) -> Option<RemedyStep> {
    let cpuinfo = tree.text("/proc/cpuinfo");
    let has_counters = cpuinfo.contains("vendor_id") && !cpuinfo.contains(" hypervisor");
    let module = "intel_rapl_msr".to_owned();
    has_counters.then_some(RemedyStep::Load { module })
}

impl RemedyStep {
    fn shown(&self, tree: &KernelTree) -> String {
        match self {
            RemedyStep::Write { path, value } => {
                let former = tree.read(path).unwrap_or_else(|_| "unreadable".into());
                format!("write {value} to {} (was {former})", path.display())
            }
            RemedyStep::Mount { kind, at } => format!("mount {kind} at {}", at.display()),
            RemedyStep::Load { module } => format!("load the module {module}"),
            RemedyStep::Restore => "restore what dead programs have left changed".into(),
        }
    }

    /// The error is the reason why nothing was changed.
    fn take(&self, tree: &KernelTree) -> Result<(), String> {
        if !tree.is_live() && !matches!(self, RemedyStep::Write { .. }) {
            return Err("this tree is a record".into());
        }
        match self {
            RemedyStep::Write { path, value } => {
                let path = tree.path(path);
                writable(&path).and_then(|()| write_existing(&path, value)).map_err(why)
            }
            RemedyStep::Mount { kind, at } => mount(kind, at).map_err(why),
            RemedyStep::Load { module } => {
                let mut command = Command::new("modprobe");
                let output = command.arg(module).stdin(Stdio::null()).output();
                let output = output.map_err(|error| format!("modprobe: {}", why(error)))?;
                let said = String::from_utf8_lossy(&output.stderr);
                let error = || format!("modprobe: {}: {}", output.status, said.trim_end());
                output.status.success().then_some(()).ok_or_else(error)
            }
            RemedyStep::Restore => {
                let text = |refusal: Refusal| refusal.to_string();
                let recovered = recovery::restore(&recovery::folder()).map_err(text)?;
                let out_of_reach = recovery::out_of_reach().map_err(text)?;
                let left: Vec<String> = recovered.left.into_iter().chain(out_of_reach).map(text).collect();
                left.is_empty().then_some(()).ok_or_else(|| left.join("; "))
            }
        }
    }
}

fn mount(kind: &str, at: &Path) -> io::Result<()> {
    let (kind, at) = (CString::new(kind)?, CString::new(at.as_os_str().as_encoded_bytes())?);
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: three texts that end with a zero; these file systems take no data.
    match unsafe { libc::mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn why(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!("{error}; run as root"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::linux::testing;

    const RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
    const PREEMPT: &str = "/sys/kernel/debug/sched/preempt";
    /// A machine of an old kernel, which throttles, and preempts nothing in the kernel.
    const WANTING: [(&str, &str); 5] = [
        ("/proc/sys/kernel/osrelease", "6.1.0"),
        (RUNTIME, "950000"),
        ("/proc/sys/kernel/sched_rt_period_us", "1000000"),
        ("/proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC"),
        (PREEMPT, "(none) voluntary full"),
    ];

    fn fixed(tree: &KernelTree) -> (Vec<StepOutcome>, Vec<Finding>, Vec<String>) {
        let mut told = Vec::new();
        let (steps, findings) = fix(tree, &mut |line| told.push(line.to_owned()));
        (steps, findings, told)
    }

    #[test]
    fn faults_are_mended_and_each_step_is_told_with_the_former_value() {
        let (_folder, tree) = testing::tree(&WANTING);
        let (steps, findings, told) = fixed(&tree);
        assert_eq!(told, [format!("write full to {PREEMPT} (was (none) voluntary full)")]);
        assert!(steps.iter().all(|step| step.refused.is_none()), "{steps:?}");
        assert_eq!(
            (tree.read(RUNTIME).unwrap(), tree.read(PREEMPT).unwrap()),
            ("950000".into(), "full".into()),
            "a protection stays"
        );
        assert!(findings.iter().all(|finding| finding.steps.is_empty()), "{findings:?}");
        assert_eq!(fixed(&tree).0, [], "nothing is left to do");
    }

    #[test]
    fn a_refused_write_changes_nothing_and_is_told_once() {
        let (folder, tree) = testing::tree(&WANTING);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(tree.path(PREEMPT), fs::Permissions::from_mode(0o444)).unwrap();
        let other = tree.clone();
        let without_rights = testing::as_user_without_rights(move || fixed(&other));
        // SAFETY: plain system call.
        if without_rights.is_none() && unsafe { libc::geteuid() } == 0 {
            return eprintln!("skipped: root may not become another user here");
        }
        let (steps, findings, told) = without_rights.unwrap_or_else(|| fixed(&tree));
        let refused = "Permission denied (os error 13); run as root";
        assert!(
            steps.iter().all(|step| step.refused.as_deref() == Some(refused)),
            "{steps:?}"
        );
        assert_eq!((steps.len(), told.len()), (1, 2), "{told:?}");
        assert_eq!(tree.read(PREEMPT).unwrap(), "(none) voluntary full");
        assert!(findings.iter().any(|finding| !finding.steps.is_empty()));
    }

    #[test]
    fn steps_that_only_show_after_others_are_taken_and_a_record_is_not_mounted() {
        let (_folder, tree) = testing::tree(&[
            ("/proc/sys/kernel/osrelease", "6.12.1"),
            ("/proc/filesystems", "nodev\tresctrl"),
            ("/sys/fs/resctrl/.keep", ""),
            ("/sys/kernel/debug/sched/fair_server/cpu0/runtime", "50000000"),
            ("/sys/kernel/debug/sched/preempt", "none (voluntary) full lazy"),
            ("/proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC"),
        ]);
        let (steps, _, _) = fixed(&tree);
        let of = |facility| {
            let of = steps.iter().filter(|step| step.facility == facility);
            of.map(|step| (step.step.clone(), step.refused.clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(Facility::NoFairServer), [], "a protection stays");
        let preempt = "write full to /sys/kernel/debug/sched/preempt (was none (voluntary) full lazy)";
        assert_eq!(of(Facility::Preemption), [(preempt.to_owned(), None)]);
        let mount = (
            "mount resctrl at /sys/fs/resctrl".to_owned(),
            Some("this tree is a record".to_owned()),
        );
        assert_eq!(of(Facility::CachePartitions), [mount]);
    }
}
