//! Moving one helper program of ours: whoever else runs here is left alone, by name. A core is taken as a whole in
//! `tests/exclusive_put_back.rs`, a program of its own: a partition takes it from the tests beside as well.

use std::collections::BTreeSet;
use std::process::{Child, Command};

use super::super::thread::affinity_of;
use super::*;

/// A program that sleeps, under a name that nobody else has.
struct Helper {
    _folder: tempfile::TempDir,
    child: Child,
}

impl Helper {
    fn start() -> Helper {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("to-be-moved");
        std::fs::copy("/bin/sleep", &program).unwrap();
        let child = Command::new(program).arg("60").spawn().unwrap();
        Helper { _folder: folder, child }
    }

    fn tid(&self) -> Tid {
        Tid(self.child.id() as i32)
    }

    fn may_use(&self, core: CoreId) -> bool {
        affinity_of(self.tid()).unwrap().has(core)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Everybody's programs but the helper's.
fn everybody_else() -> Vec<String> {
    let name = |tid: Tid| std::fs::read_to_string(format!("/proc/{tid}/comm")).ok();
    let names: BTreeSet<String> = population::everybody(&KernelTree::default())
        .into_iter()
        .filter_map(name)
        .map(|name| name.trim_end().to_owned())
        .filter(|name| name != "to-be-moved")
        .collect();
    names.into_iter().collect()
}

#[test]
fn affinity_alone_moves_lends_and_gives_back_what_was_chosen_before() {
    let tree = KernelTree::default();
    let all = cores::usable(&tree);
    let [others @ .., core] = all.as_slice() else { return };
    if others.is_empty() {
        return eprintln!("skipped: one core only");
    }
    let helper = Helper::start();
    let mut narrow = super::super::thread::CoreMask::default();
    narrow.set(*core, true);
    super::super::thread::set_affinity(helper.tid(), &narrow).unwrap();
    let journal = Journal::open(false).unwrap();
    let spared = Spared::new(&tree, &everybody_else());
    let affinity = match Affinity::new(&tree, &journal, &[*core], others, spared) {
        Ok(affinity) => affinity,
        Err(refusal) => {
            assert!(refusal.remedy.contains("CAP_SYS_NICE"), "{refusal}");
            return eprintln!("skipped: {refusal}");
        }
    };
    affinity.confine(helper.tid()).unwrap();
    assert!(
        !helper.may_use(*core) && helper.may_use(others[0]),
        "who had this core only gets the others"
    );
    affinity.set_lent(*core, true);
    assert_eq!(affinity_of(helper.tid()).unwrap(), narrow);
    affinity.set_lent(*core, false);
    assert!(!helper.may_use(*core));
    assert_eq!(journal.restore(), []);
    assert_eq!(affinity_of(helper.tid()).unwrap(), narrow);
}

fn bound_by_the_kernel() -> Option<Tid> {
    let bound = |tid: &Tid| {
        std::fs::read_to_string(format!("/proc/{tid}/comm"))
            .is_ok_and(|name| name.starts_with("ksoftirqd/") || name.starts_with("cpuhp/"))
    };
    population::everybody(&KernelTree::default()).into_iter().find(bound)
}

#[test]
fn a_thread_that_the_kernel_binds_leaves_no_record() {
    let Some(thread) = bound_by_the_kernel() else {
        return eprintln!("skipped: no kernel thread is to be seen");
    };
    let journal = Journal::open(false).unwrap();
    assert!(journal.remember_affinity(thread).is_err());
    assert_eq!(journal.restore(), []);
}

#[test]
fn a_choice_that_the_kernel_forgets_is_put_back_and_who_kept_his_is_left_alone() {
    let all = cores::usable(&KernelTree::default());
    let (helper, journal) = (Helper::start(), Journal::open(false).unwrap());
    let mut narrow = super::super::thread::CoreMask::default();
    narrow.set(all[0], true);
    let found = affinity_of(helper.tid()).unwrap();
    super::super::thread::set_affinity(helper.tid(), &narrow).unwrap();
    journal.remember_mask(helper.tid(), &narrow).unwrap();
    // One that the kernel binds takes no setting, and needs none.
    if let Some(thread) = bound_by_the_kernel() {
        journal.remember_mask(thread, &affinity_of(thread).unwrap()).unwrap();
    }
    super::super::thread::set_affinity(helper.tid(), &found).unwrap();
    assert_eq!(journal.restore(), []);
    assert_eq!(affinity_of(helper.tid()).unwrap(), narrow);
}

#[test]
fn a_core_that_is_not_there_and_the_only_one_are_refused() {
    let journal = Journal::open(false).unwrap();
    let (_folder, tree) = crate::linux::testing::tree(&[("/sys/devices/system/cpu/online", "0")]);
    let only = ExclusiveCore::take(&tree, &journal, CoreId(0), &[]).unwrap_err();
    assert!(only.why.contains("only one"), "{only}");
    let absent = ExclusiveCore::take(&tree, &journal, CoreId(7), &[]).unwrap_err();
    assert!(absent.why.contains("may use cores 0"), "{absent}");
}

#[test]
fn several_cores_are_taken_as_one_and_lent_one_by_one() {
    let group = format!("/cpuset/{}", group_name(CoreId(2)));
    let files = [
        ("/sys/devices/system/cpu/online".to_owned(), "0-3"),
        (
            "/proc/self/mountinfo".into(),
            "30 24 0:27 / /cpuset rw - cgroup cgroup rw,cpuset",
        ),
        ("/proc/irq/24/smp_affinity_list".into(), "0-3"),
        ("/proc/irq/25/smp_affinity_list".into(), "3"),
        ("/cpuset/cpuset.mems".into(), "0"),
        ("/cpuset/tasks".into(), ""),
        (format!("{group}/cpuset.mems"), ""),
        (format!("{group}/cpuset.cpus"), ""),
        (format!("{group}/cpuset.sched_load_balance"), "1"),
        (format!("{group}/tasks"), ""),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let (_folder, tree) = crate::linux::testing::tree(&files);
    let journal = Journal::open(false).unwrap();
    let none_left: Vec<CoreId> = (0..4).map(CoreId).collect();
    let refusal = ExclusiveCore::take_all(&tree, &journal, &none_left, &[]).unwrap_err();
    assert!(
        refusal.what.contains("cores 0-3") && refusal.why.contains("no others"),
        "{refusal}"
    );
    let cores = ExclusiveCore::take_all(&tree, &journal, &[CoreId(3), CoreId(2)], &[]).unwrap();
    let kept: Vec<(CoreId, Mechanism)> = cores
        .iter()
        .map(|core| (core.obtained().core, core.obtained().mechanism))
        .collect();
    assert_eq!(kept, [(CoreId(3), Mechanism::Cpuset), (CoreId(2), Mechanism::Cpuset)]);
    let text = |file: &str| tree.read(file).unwrap();
    let irq = |number: u32| text(&format!("/proc/irq/{number}/smp_affinity_list"));
    assert_eq!((irq(24), irq(25)), ("0-1".into(), "0-1".into()));
    let others = || text(&format!("{group}/cpuset.cpus"));
    assert_eq!(others(), "0-1");
    cores[0].lend().unwrap();
    assert_eq!(others(), "0-1,3");
    cores[1].lend().unwrap();
    cores[0].take_back().unwrap();
    assert_eq!(others(), "0-2");
    drop(cores);
    std::fs::remove_dir_all(tree.path(&group)).unwrap(); // ordinary files do not vanish with a folder as the kernel's do
    assert_eq!(journal.restore(), []);
    assert_eq!((irq(24), irq(25)), ("0-3".into(), "3".into()));
}

#[test]
fn lists_are_written_as_the_kernel_reads_them() {
    let written = |numbers: &[u32]| list(&numbers.iter().map(|number| CoreId(*number)).collect::<Vec<_>>());
    assert_eq!(written(&[0, 1, 2, 5]), "0-2,5");
    assert_eq!(written(&[7, 3, 4]), "3-4,7");
    assert_eq!(written(&[1]), "1");
    let (_folder, tree) = crate::linux::testing::tree(&[("/sys/devices/system/cpu/online", "0-3,8")]);
    assert_eq!(list(&cores::usable(&tree)), "0-3,8");
}

#[test]
fn what_this_machine_seems_to_offer_is_told() {
    let offers_partition = |group: &str, release: &str| {
        let (_folder, tree) = crate::linux::testing::tree(&[
            ("/proc/self/mountinfo", "29 23 0:26 / /cg rw - cgroup2 cgroup2 rw"),
            ("/proc/self/cgroup", &format!("0::/{group}")),
            ("/proc/sys/kernel/osrelease", release),
            ("/cg/cgroup.controllers", "cpu cpuset"),
            ("/cg/cgroup.subtree_control", ""),
            ("/cg/user.slice/cgroup.subtree_control", ""),
        ]);
        likely(&tree) == Ok(Mechanism::Partition)
    };
    assert!(offers_partition("", "6.1.0-56-amd64"));
    assert!(offers_partition("user.slice", "6.12.1"));
    assert!(
        !offers_partition("user.slice", "6.6.0"),
        "no partition below a group that is none"
    );
    assert!(!offers_partition("absent", "6.12.1"), "not to be written");
}
