//! The core taken for real, from one helper program of ours: whoever else runs here is left alone, by name.

use std::collections::BTreeSet;
use std::process::{Child, Command};

use super::super::core_mask::{CoreMask, affinity_of, set_affinity};
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
fn a_core_is_taken_lent_taken_back_and_given_back_or_refused_with_a_reason() {
    let tree = KernelTree::default();
    let all = cores::usable(&tree);
    let (core, helper) = (*all.last().unwrap(), Helper::start());
    let journal = Journal::open(false).unwrap();
    let exclusive = match ExclusiveCore::take(&tree, &journal, core, &everybody_else()) {
        Ok(exclusive) => exclusive,
        Err(refusal) => {
            eprintln!("skipped taking a core: {refusal}");
            assert!(!refusal.remedy.is_empty());
            return;
        }
    };
    eprintln!("{}", exclusive.obtained());
    exclusive.confine(helper.tid()).unwrap(); // the sweep may have met it before it had its name
    assert!(!helper.may_use(core));
    exclusive.lend().unwrap();
    assert!(helper.may_use(core));
    exclusive.take_back().unwrap();
    assert!(!helper.may_use(core));
    drop(exclusive);
    assert_eq!(journal.restore(), []);
    assert!(helper.may_use(core));
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
    let mut narrow = CoreMask::default();
    narrow.set(*core, true);
    set_affinity(helper.tid(), &narrow).unwrap();
    let journal = Journal::open(false).unwrap();
    let spared = Spared::new(&tree, &everybody_else());
    let affinity = Affinity::new(&tree, &journal, &[*core], others, spared).unwrap();
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

#[test]
fn a_thread_that_the_kernel_binds_leaves_no_record() {
    let bound = |tid: &Tid| {
        std::fs::read_to_string(format!("/proc/{tid}/comm"))
            .is_ok_and(|name| name.starts_with("ksoftirqd/") || name.starts_with("cpuhp/"))
    };
    let Some(thread) = population::everybody(&KernelTree::default()).into_iter().find(bound) else {
        return eprintln!("skipped: no kernel thread is to be seen");
    };
    let journal = Journal::open(false).unwrap();
    assert!(journal.remember_affinity(thread).is_err());
    assert_eq!(journal.restore(), []);
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
fn lists_are_written_as_the_kernel_reads_them() {
    let written = |numbers: &[u32]| list(&numbers.iter().map(|number| CoreId(*number)).collect::<Vec<_>>());
    assert_eq!(written(&[0, 1, 2, 5]), "0-2,5");
    assert_eq!(written(&[7, 3, 4]), "3-4,7");
    assert_eq!(written(&[1]), "1");
    let (_folder, tree) = crate::linux::testing::tree(&[("/sys/devices/system/cpu/online", "0-3,8")]);
    assert_eq!(list(&cores::usable(&tree)), "0-3,8");
}
