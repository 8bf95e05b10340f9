//! The CPU share of best-effort work: a cgroup with a quota around its threads.
//!
//! **Problem.** Best-effort threads on other cores may use the time that is left, but no more than the plan allows.
//! **Method.** A group `punctual-<pid>` below the group that this process is in; best-effort threads are moved into it
//! one by one, the real-time ones stay where they are. CFS bandwidth control then stops the whole group for the rest of
//! a period once it has used its quota (Documentation/scheduler/sched-bwc.rst). That is coarse: within a period the
//! group runs at full speed and then not at all. It throttles throughput; it is no clock.
//!
//! **Version 1** (a `cpu` hierarchy): `tasks` takes single threads, `cpu.cfs_quota_us` the quota. **Version 2**: the
//! group is made *threaded* (Documentation/admin-guide/cgroup-v2.rst, "Threads"): then single threads can be moved,
//! and the rule that forbids processes beside child groups does not apply, because `cpu` is a threaded controller. It
//! asks for the `cpu` controller and for the right to write the current group, which systemd calls delegation.
//!
//! Kernels with group scheduling of real-time threads (they show `cpu.rt_runtime_us`) admit no `SCHED_FIFO` thread to
//! the version 1 group, and give no thread in it `SCHED_FIFO` (EINVAL, EPERM). Best-effort threads do not use it; and a
//! best-effort thread that holds a [`PiMutex`](punctual_os::linux::sync::PiMutex) for which a real-time thread waits
//! still inherits that priority.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use punctual_custody::journal::Journal;
use punctual_custody::mounts::Mount;
use punctual_custody::tree::{has_word, read_trimmed, write_existing};
use punctual_units::Share;

use super::thread::Tid;
use super::{KernelTree, refused};
use crate::Refusal;

pub use punctual_custody::mounts::mount_point;

/// The period of the quota, in microseconds: a fifth of the kernel's default, so that the group is stopped for 20 ms at
/// most. Below 10 ms the kernel's accounting by ticks makes the share inexact.
const PERIOD_US: u64 = 20_000;
/// The kernel's smallest quota, in microseconds (`min_cfs_quota_period`).
const QUOTA_MIN_US: u64 = 1_000;

/// The two versions of the cgroup interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    /// Version 1: a hierarchy per controller.
    V1,
    /// Version 2: one unified hierarchy for all controllers.
    V2,
}

impl CgroupVersion {
    /// The file of a group with the quota of its processor time.
    fn quota(self) -> &'static str {
        match self {
            CgroupVersion::V1 => "cpu.cfs_quota_us",
            CgroupVersion::V2 => "cpu.max",
        }
    }

    /// The file of a group that lists its threads, and accepts new ones.
    pub(super) fn threads(self) -> &'static str {
        match self {
            CgroupVersion::V1 => "tasks",
            CgroupVersion::V2 => "cgroup.threads",
        }
    }
}

/// The control group of a process, as a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The interface version of the hierarchy.
    pub version: CgroupVersion,
    /// The group's folder, named as on a running machine.
    pub folder: PathBuf,
}

/// Locates the `cpu` group of a process, by its `/proc/<pid>/cgroup` and `/proc/<pid>/mountinfo` (cgroups(7), proc(5)):
/// in a version 1 hierarchy that has the controller, else in the unified one. `None` if neither is mounted.
pub fn locate(cgroup: &str, mountinfo: &str) -> Option<Location> {
    locate_controller("cpu", cgroup, mountinfo)
}

/// The group with `controller` that this process is in.
pub fn of_this_process(tree: &KernelTree, controller: &str) -> Option<Location> {
    let (groups, mounts) = (tree.text("/proc/self/cgroup"), tree.text("/proc/self/mountinfo"));
    locate_controller(controller, &groups, &mounts)
}

/// As [`locate`], for any controller.
pub fn locate_controller(controller: &str, cgroup: &str, mountinfo: &str) -> Option<Location> {
    let groups = cgroup.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        Some((fields.next()?, fields.next()?, fields.next()?))
    });
    let has_it = |controllers: &str| controllers.split(',').any(|it| it == controller);
    let mounts = || mountinfo.lines().filter_map(Mount::parse);
    let v1 = groups
        .clone()
        .find(|(_, controllers, _)| has_it(controllers))
        .and_then(|(_, _, group)| {
            let mount = mounts().find(|mount| mount.kind == "cgroup" && has_it(mount.options))?;
            Some((CgroupVersion::V1, mount.folder_of(group)))
        });
    let v2 = || {
        let (_, _, group) = groups
            .clone()
            .find(|(hierarchy, controllers, _)| *hierarchy == "0" && controllers.is_empty())?;
        let mount = mounts().find(|mount| mount.kind == "cgroup2")?;
        Some((CgroupVersion::V2, mount.folder_of(group)))
    };
    v1.or_else(v2).map(|(version, folder)| Location { version, folder })
}

/// The quota per period for `share` of `cores` cores, in microseconds; `None`: no limit.
fn quota_us(share: Share, cores: usize) -> Option<u64> {
    let whole = PERIOD_US * cores.max(1) as u64;
    let quota = (whole as f64 * share.get()).round() as u64;
    (quota < whole).then_some(quota.max(QUOTA_MIN_US))
}

/// The share that a quota amounts to; the inverse of `quota_us`.
fn share_of(quota_us: Option<u64>, cores: usize) -> Share {
    let whole = PERIOD_US * cores.max(1) as u64;
    quota_us.map_or(Share::ONE, |quota| Share::clamped(quota as f64 / whole as f64))
}

/// The group around best-effort threads. The journal removes it when it restores.
#[derive(Debug)]
pub struct CpuGroup {
    version: CgroupVersion,
    /// The group that this process is in.
    home: PathBuf,
    /// This process's own group, below `home`.
    folder: PathBuf,
    journal: Journal,
    /// Whether another program made the group: its files are recorded before they are written.
    is_foreign: bool,
    /// Quota that another program gave the group, per [`PERIOD_US`]: ours is never larger.
    found: Option<u64>,
}

impl CpuGroup {
    /// The group `named` in `/proc/PID/cgroup`, of other programs.
    ///
    /// # Errors
    /// [`Refusal`] where there is no such group with a `cpu` controller, or this process is in it.
    pub fn named(tree: &KernelTree, journal: &Journal, named: &Path) -> Result<CpuGroup, Refusal> {
        let text = |file: &str| tree.read(file).unwrap_or_default();
        let refusal =
            |why: &str, remedy: &str| refused(format!("bounding the control group {}", named.display()), why, remedy);
        let home = locate(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"));
        let home = home.ok_or_else(|| refusal("no cpu hierarchy is mounted", "leave best_effort out"))?;
        let controller = Some("cpu").filter(|_| home.version == CgroupVersion::V1);
        let root = mount_point(controller, &text("/proc/self/mountinfo")).unwrap_or_default();
        let folder = tree.path(root).join(named.strip_prefix("/").unwrap_or(named));
        let group = CpuGroup {
            version: home.version,
            home: tree.path(home.folder),
            folder,
            journal: journal.clone(),
            is_foreign: true,
            found: None,
        };
        if group.home.starts_with(&group.folder) {
            return Err(refusal("this program is in it", "name a group of other programs"));
        }
        if !group.folder.join(group.version.quota()).exists() {
            let remedy =
                "name a group as /proc/PID/cgroup shows it, with the cpu controller enabled in the group above";
            return Err(refusal("there is no such group, or it has no cpu controller", remedy));
        }
        let found = group.quota_found();
        Ok(CpuGroup { found, ..group })
    }

    /// Makes the group below the one that this process is in, without a limit and without threads.
    ///
    /// # Errors
    /// [`Refusal`] where there is no `cpu` controller or the current group may not be written.
    pub fn create(tree: &KernelTree, journal: &Journal) -> Result<CpuGroup, Refusal> {
        let location = of_this_process(tree, "cpu").ok_or_else(|| {
            refuse(
                "neither a cpu hierarchy of cgroup version 1 nor version 2 is mounted",
                "mount -t cgroup2 none /sys/fs/cgroup; in a container, share the host's /sys/fs/cgroup",
            )
        })?;
        CpuGroup::create_at(location.version, tree.path(location.folder), journal)
    }

    fn create_at(version: CgroupVersion, home: PathBuf, journal: &Journal) -> Result<CpuGroup, Refusal> {
        if version == CgroupVersion::V2 {
            enable_below(&home, "cpu", journal)?;
        }
        let group = CpuGroup {
            version,
            folder: home.join(name()),
            home,
            journal: journal.clone(),
            is_foreign: false,
            found: None,
        };
        group.set_up().inspect_err(|_| drop(group.restore()))?;
        Ok(group)
    }

    /// The quota that the group has, in microseconds per [`PERIOD_US`]; `None`: no limit.
    fn quota_found(&self) -> Option<u64> {
        let read = |file| read_trimmed(&self.folder.join(file)).unwrap_or_default();
        let text = match self.version {
            CgroupVersion::V1 => format!("{} {}", read("cpu.cfs_quota_us"), read("cpu.cfs_period_us")),
            CgroupVersion::V2 => read("cpu.max"),
        };
        let (quota, period) = text.split_once(' ')?;
        let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?); // not "-1", not "max"
        Some((quota * PERIOD_US).checked_div(period)?.max(QUOTA_MIN_US))
    }

    fn set_up(&self) -> Result<(), Refusal> {
        self.journal.make_dir(&self.folder).map_err(|refusal| Refusal {
            remedy: delegate(self.version).into(),
            ..refusal
        })?;
        self.journal
            .move_tasks_back(&self.threads(), &self.home.join(self.version.threads()))?;
        match self.version {
            CgroupVersion::V1 => self.write("cpu.cfs_period_us", &PERIOD_US.to_string()),
            CgroupVersion::V2 => self.write("cgroup.type", "threaded"),
        }
    }

    /// Limits all threads of the group together to `share` of `cores` cores, and returns the obtained share: at least 1
    /// ms per 20 ms, the kernel's smallest quota. The whole share removes the limit, but never that of another program.
    ///
    /// # Errors
    /// [`Refusal`] if the kernel refuses the quota; the former one stays in force.
    pub fn set_share(&self, share: Share, cores: usize) -> Result<Share, Refusal> {
        let quota = quota_us(share, cores).into_iter().chain(self.found).min();
        match self.version {
            CgroupVersion::V1 => {
                let quota = quota.map_or("-1".to_owned(), |quota| quota.to_string());
                if self.is_foreign {
                    self.write("cpu.cfs_period_us", &PERIOD_US.to_string())?;
                }
                self.write(self.version.quota(), &quota)?;
            }
            CgroupVersion::V2 => {
                let quota = quota.map_or("max".to_owned(), |quota| quota.to_string());
                self.write(self.version.quota(), &format!("{quota} {PERIOD_US}"))?;
            }
        }
        Ok(share_of(quota, cores))
    }

    /// Moves `thread` of this process into the group.
    ///
    /// # Errors
    /// [`Refusal`] where there is no such thread, or the kernel does not move it.
    pub fn adopt(&self, thread: Tid) -> Result<(), Refusal> {
        let what = || format!("moving thread {thread} into {}", self.folder.display());
        write_existing(&self.threads(), &thread.0.to_string()).map_err(|why| match why.raw_os_error() {
            Some(libc::ESRCH) => refused(what(), why, "name a thread that is alive"),
            Some(libc::EINVAL) => refused(what(), why, "give the thread ordinary scheduling (SCHED_OTHER) first"),
            _ => refused(what(), why, delegate(self.version)),
        })
    }

    /// Moves the threads back and removes the group; returns the failures.
    pub fn restore(&self) -> Vec<Refusal> {
        let mut left_over = self.journal.restore_below(&self.folder);
        left_over.extend(self.journal.restore_below(&self.home.join(SUBTREE_CONTROL)));
        left_over
    }

    /// The interface version in use.
    pub fn version(&self) -> CgroupVersion {
        self.version
    }

    fn threads(&self) -> PathBuf {
        self.folder.join(self.version.threads())
    }

    /// Writes a file of the group; recorded only for a foreign group, because another is removed with its files.
    fn write(&self, file: &str, content: &str) -> Result<(), Refusal> {
        let path = self.folder.join(file);
        if self.is_foreign {
            return self.journal.write(&path, content);
        }
        write_existing(&path, content).map_err(|why| {
            let remedy = match why.raw_os_error() {
                Some(libc::EINVAL) => "the group above may have a smaller quota: lift it, or ask for a smaller share",
                _ => delegate(self.version),
            };
            refused(format!("writing '{content}' to {}", path.display()), why, remedy)
        })
    }
}

const SUBTREE_CONTROL: &str = "cgroup.subtree_control";

/// Allows `controller` in the groups below `home` (version 2).
pub(super) fn enable_below(home: &Path, controller: &str, journal: &Journal) -> Result<(), Refusal> {
    let lists_it = |file: &str| has_word(&home.join(file), controller);
    if !lists_it("cgroup.controllers") {
        return Err(refuse(
            format!("{} has no {controller} controller", home.display()),
            delegate(CgroupVersion::V2),
        ));
    }
    let (control, off) = (home.join(SUBTREE_CONTROL), format!("-{controller}"));
    if lists_it(SUBTREE_CONTROL) {
        return journal.stays_on(&control, &off);
    }
    journal
        .switch(&control, &format!("+{controller}"), &off)
        .map_err(|refusal| Refusal {
            remedy: delegate(CgroupVersion::V2).into(),
            ..refusal
        })
}

fn refuse(why: impl std::fmt::Display, remedy: &str) -> Refusal {
    refused("a control group of our own (cgroup)", why, remedy)
}

/// How a user gets the right to make groups.
fn delegate(version: CgroupVersion) -> &'static str {
    match version {
        CgroupVersion::V1 => "run as root, or let the current group of the cpu hierarchy belong to this user",
        CgroupVersion::V2 => {
            "run in a group of your own: systemd-run --user --scope -p Delegate=yes PROGRAM (as root without --user), or \
             Delegate=cpu in the unit; the cpu controller must be enabled in every group above"
        }
    }
}

/// `punctual-<pid>`, followed by a number from the process's second group on.
fn name() -> String {
    static GROUPS: AtomicU32 = AtomicU32::new(0);
    match GROUPS.fetch_add(1, Ordering::Relaxed) {
        0 => format!("punctual-{}", std::process::id()),
        more => format!("punctual-{}-{more}", std::process::id()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::linux::testing;
    use proptest::prelude::*;

    const HYBRID_MOUNTS: &str = "\
24 1 0:22 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
30 24 0:27 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
31 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
32 24 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
    const UNIFIED_MOUNTS: &str = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";

    fn located(cgroup: &str, mountinfo: &str) -> (CgroupVersion, String) {
        let location = locate(cgroup, mountinfo).unwrap();
        (location.version, location.folder.display().to_string())
    }

    #[test]
    fn the_group_of_a_process_is_found_in_both_versions_and_in_containers() {
        let hybrid = "4:cpuset:/\n3:cpu,cpuacct:/user.slice\n0::/user.slice/session-1.scope\n";
        assert_eq!(
            located(hybrid, HYBRID_MOUNTS),
            (CgroupVersion::V1, "/sys/fs/cgroup/cpu,cpuacct/user.slice".into())
        );
        let unified = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope\n";
        assert_eq!(
            located(unified, UNIFIED_MOUNTS).1,
            "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope"
        );
        // A container sees only its own part, under the path that the host has for it...
        let container = "31 24 0:28 /docker/ab /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu";
        assert_eq!(located("3:cpu:/docker/ab/x\n", container).1, "/sys/fs/cgroup/cpu/x");
        // ...or its group lies outside of what it sees.
        assert_eq!(located("0::/../other\n", UNIFIED_MOUNTS).1, "/sys/fs/cgroup/");
        assert_eq!(locate("3:cpuset:/\n", HYBRID_MOUNTS), None);
        assert_eq!(locate("", ""), None);
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(cgroup in "[0-9a-z:,/.\n]*", mountinfo in "[0-9a-z /\\-\n]*") {
            locate(&cgroup, &mountinfo);
        }

        #[test]
        fn the_quota_is_the_nearest_that_the_kernel_takes(share in 0.0f64..=1.0, cores in 1usize..256) {
            let quota = quota_us(Share::clamped(share), cores);
            prop_assert!(quota.is_none_or(|quota| quota >= QUOTA_MIN_US));
            let obtained = share_of(quota, cores).get();
            let least = QUOTA_MIN_US as f64 / (PERIOD_US * cores as u64) as f64;
            prop_assert!((obtained - share.max(least)).abs() <= 1.0 / PERIOD_US as f64, "{obtained} for {share}");
        }
    }

    #[test]
    fn the_whole_share_lifts_the_limit() {
        assert_eq!(quota_us(Share::ONE, 3), None);
        assert_eq!(quota_us(Share::clamped(0.5), 1), Some(10_000));
        assert_eq!(quota_us(Share::ZERO, 1), Some(QUOTA_MIN_US));
    }

    /// The folder that the next group gets cannot be foreseen, so an emulated kernel fills it in once it is there.
    fn emulate_group(home: &Path, version: CgroupVersion) -> PathBuf {
        let folder = home.join("group");
        fs::create_dir_all(&folder).unwrap();
        for file in [
            "cpu.cfs_period_us",
            "cpu.cfs_quota_us",
            "cpu.max",
            "cgroup.type",
            version.threads(),
        ] {
            fs::write(folder.join(file), "").unwrap();
        }
        fs::write(home.join(version.threads()), "1\n").unwrap();
        folder
    }

    fn emulated(version: CgroupVersion) -> (tempfile::TempDir, CpuGroup) {
        let home = testing::folder();
        let journal = testing::journal();
        let group = CpuGroup {
            is_foreign: false,
            version,
            folder: emulate_group(home.path(), version),
            home: home.path().to_owned(),
            journal,
            found: None,
        };
        group.set_up().unwrap();
        (home, group)
    }

    #[test]
    fn version_1_takes_a_quota_in_microseconds_and_single_threads() {
        let (_home, group) = emulated(CgroupVersion::V1);
        let content = |file| read_trimmed(&group.folder.join(file)).unwrap();
        assert_eq!(content("cpu.cfs_period_us"), "20000");
        assert_eq!(group.set_share(Share::clamped(0.25), 2), Ok(Share::clamped(0.25)));
        assert_eq!(content("cpu.cfs_quota_us"), "10000");
        assert_eq!(group.set_share(Share::ONE, 2), Ok(Share::ONE));
        assert_eq!(content("cpu.cfs_quota_us"), "-1");
        group.adopt(Tid(42)).unwrap();
        assert_eq!(content("tasks"), "42");
    }

    #[test]
    fn version_2_is_made_threaded_and_takes_quota_and_period_at_once() {
        let (_home, group) = emulated(CgroupVersion::V2);
        let content = |file| read_trimmed(&group.folder.join(file)).unwrap();
        assert_eq!(content("cgroup.type"), "threaded");
        assert_eq!(group.set_share(Share::ZERO, 1), Ok(Share::clamped(0.05)));
        assert_eq!(content("cpu.max"), "1000 20000");
        assert_eq!(group.set_share(Share::ONE, 1), Ok(Share::ONE));
        assert_eq!(content("cpu.max"), "max 20000");
        group.adopt(Tid(42)).unwrap();
        assert_eq!(content("cgroup.threads"), "42");
    }

    #[test]
    fn the_quota_that_another_program_gave_its_group_is_never_raised() {
        for (version, file, found) in [
            (CgroupVersion::V1, "cpu.cfs_quota_us", "20000"),
            (CgroupVersion::V2, "cpu.max", "20000 100000"),
        ] {
            let (_home, group) = emulated(version);
            let (quota, period) = (group.folder.join(file), group.folder.join("cpu.cfs_period_us"));
            fs::write(&quota, found).unwrap();
            if version == CgroupVersion::V1 {
                fs::write(&period, "100000").unwrap();
            }
            let group = CpuGroup {
                is_foreign: true,
                found: group.quota_found(),
                ..group
            };
            for (asked, obtained) in [(0.9, 0.2), (1.0, 0.2), (0.1, 0.1)] {
                assert_eq!(group.set_share(Share::clamped(asked), 1), Ok(Share::clamped(obtained)));
            }
            assert_eq!(read_trimmed(&quota).unwrap().split(' ').next(), Some("2000"));
            assert_eq!(group.journal.restore_below(&quota), []);
            assert_eq!(read_trimmed(&quota).unwrap(), found);
            fs::write(&quota, ["-1", "max 100000"][usize::from(version == CgroupVersion::V2)]).unwrap();
            assert_eq!(group.quota_found(), None);
        }
    }

    #[test]
    fn version_2_without_delegation_is_refused_with_a_remedy() {
        let home = testing::folder();
        let journal = testing::journal();
        let refused_at = || CpuGroup::create_at(CgroupVersion::V2, home.path().to_owned(), &journal).unwrap_err();
        fs::write(home.path().join("cgroup.controllers"), "memory pids\n").unwrap();
        assert!(refused_at().why.contains("no cpu controller"));
        fs::write(home.path().join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        assert!(
            refused_at().remedy.contains("Delegate"),
            "subtree_control cannot be written"
        );
        assert_eq!(journal.restore(), []);
    }

    #[test]
    fn version_2_enables_the_controller_below_and_disables_it_again() {
        let home = testing::folder();
        let journal = testing::journal();
        let control = home.path().join(SUBTREE_CONTROL);
        fs::write(home.path().join("cgroup.controllers"), "cpu memory\n").unwrap();
        fs::write(&control, "\n").unwrap();
        enable_below(home.path(), "cpu", &journal).unwrap();
        assert_eq!(read_trimmed(&control).unwrap(), "+cpu");
        journal.restore();
        assert_eq!(read_trimmed(&control).unwrap(), "-cpu");
        fs::write(&control, "cpu\n").unwrap();
        enable_below(home.path(), "cpu", &journal).unwrap();
        assert_eq!(read_trimmed(&control).unwrap(), "cpu", "it was enabled already");
    }

    fn group_of(thread: Tid) -> String {
        fs::read_to_string(format!("/proc/self/task/{thread}/cgroup")).unwrap()
    }

    /// Adopts a living thread, checks where it is, puts it back, checks again.
    fn adopt_and_put_back(group: CpuGroup) {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            tell.send(Tid::current()).unwrap();
            let _ = stopped.recv();
        });
        let tid = told.recv().unwrap();
        let before = group_of(tid);
        group.adopt(tid).unwrap();
        let name = group.folder.file_name().unwrap().to_str().unwrap();
        assert!(group_of(tid).contains(name));
        assert!(group.adopt(Tid(i32::MAX)).unwrap_err().remedy.contains("alive"));
        assert_eq!(group.restore(), []);
        assert_eq!(group_of(tid), before);
        assert!(!group.folder.exists());
        drop(stop);
        thread.join().unwrap();
    }

    #[test]
    fn this_machine_bounds_a_share_or_says_why_not() {
        let journal = testing::journal();
        let group = match CpuGroup::create(&KernelTree::default(), &journal) {
            Ok(group) => group,
            Err(refusal) => {
                eprintln!("skipped a real cgroup: {refusal}");
                assert!(!refusal.remedy.is_empty());
                return;
            }
        };
        assert_eq!(group.set_share(Share::clamped(0.5), 1), Ok(Share::clamped(0.5)));
        if group.version == CgroupVersion::V1 {
            assert_eq!(read_trimmed(&group.folder.join("cpu.cfs_quota_us")).unwrap(), "10000");
        }
        adopt_and_put_back(group);
    }

    #[test]
    fn a_real_unified_hierarchy_lets_threads_in_and_out() {
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let cgroup = fs::read_to_string("/proc/self/cgroup").unwrap();
        let unified: String = cgroup.lines().filter(|line| line.starts_with("0::")).collect();
        let Some(location) = locate(&unified, &mountinfo) else {
            return eprintln!("skipped a real threaded group: no cgroup version 2 is mounted");
        };
        // Threads move whether or not the cpu controller is here, so this also runs on hybrid machines.
        let group = CpuGroup {
            is_foreign: false,
            version: CgroupVersion::V2,
            folder: location.folder.join(name()),
            home: location.folder,
            journal: testing::journal(),
            found: None,
        };
        match group.set_up() {
            Ok(()) => adopt_and_put_back(group),
            Err(refusal) => {
                eprintln!("skipped a real threaded group: {refusal}");
                assert_eq!(group.restore(), []);
            }
        }
    }
}
