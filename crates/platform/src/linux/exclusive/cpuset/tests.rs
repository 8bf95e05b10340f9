//! Emulated hierarchies of cgroup version 1; the real one has its tests in `tests/exclusive_cpuset.rs`.

use std::fs;

use super::*;
use crate::Neighbours;
use crate::linux::exclusive::ExclusiveCore;
use crate::linux::testing;

/// A hierarchy below `/cpuset` on a machine with these `files`, with pens in the groups of `way`.
fn hierarchy(way: &[&str], files: &[(&str, &str)]) -> (tempfile::TempDir, KernelTree) {
    let mounted = (
        "/proc/self/mountinfo",
        "30 24 0:27 / /cpuset rw - cgroup cgroup rw,cpuset",
    );
    let all: Vec<(&str, &str)> = files.iter().copied().chain([mounted]).collect();
    let (folder, tree) = testing::tree(&all);
    for group in way {
        // The kernel makes these files with a folder.
        let pen = tree.path(group).join(PEN);
        fs::create_dir_all(&pen).unwrap();
        for file in ["cpuset.mems", CPUS, "cpuset.sched_load_balance", "tasks"] {
            fs::write(pen.join(file), "").unwrap();
        }
    }
    (folder, tree)
}

/// What `/proc` says of a thread 7000n of its own, started at `started`.
fn thread(tree: &KernelTree, tid: u32, name: &str, started: u32) {
    let folder = tree.path(format!("/proc/{tid}"));
    fs::create_dir_all(&folder).unwrap();
    fs::write(
        folder.join("status"),
        format!("Name:\t{name}\nTgid:\t{tid}\nPPid:\t1\n"),
    )
    .unwrap();
    let stat = format!("{tid} ({name}) S 1{} {started} 0\n", " 0".repeat(17));
    fs::write(folder.join("stat"), stat).unwrap();
}

fn keep(tree: &KernelTree, journal: &Journal, core: u32, spare: &[String]) -> Cpuset {
    create(tree, journal, &[CoreId(core)], &[CoreId(0)], spare, &[]).unwrap()
}

fn create(
    tree: &KernelTree,
    journal: &Journal,
    exclusive: &[CoreId],
    others: &[CoreId],
    spare: &[String],
    lend_to: &[PathBuf],
) -> Result<Cpuset, Refusal> {
    let machine: Vec<CoreId> = others.iter().chain(exclusive).copied().collect();
    let neighbours = Neighbours {
        spare: spare.to_vec(),
        ..Neighbours::default()
    };
    journal.claim(exclusive, &machine).unwrap();
    let wanted = FenceRequest {
        exclusive,
        others,
        spared: &StayRules::new(tree, &neighbours),
        isolated: false,
        lend: true,
        lend_to,
        share_with: &[],
        guests: false,
    };
    Cpuset::create(tree, journal, &wanted)
}

/// Ordinary files do not vanish with a folder as the kernel's do.
fn remove_pens(cpuset: &Cpuset) {
    cpuset
        .pens
        .iter()
        .for_each(|pen| fs::remove_dir_all(&pen.folder).unwrap());
}

fn ours(pen: &Pen, file: &str) -> String {
    read_trimmed(&pen.folder.join(file)).unwrap()
}

/// A container has both cores, and one holds the exclusive core alone.
const CONTAINERS: [(&str, &str); 5] = [
    ("/cpuset/cpuset.mems", "0"),
    ("/cpuset/tasks", "70001\n70002"),
    ("/cpuset/box/cpuset.cpus", "0-1"),
    ("/cpuset/box/inner/cpuset.cpus", "0,1"),
    ("/cpuset/holder/cpuset.cpus", "1"),
];

#[test]
fn every_movable_thread_is_moved_and_other_groups_lose_the_core() {
    let (_folder, tree) = hierarchy(&["/cpuset"], &CONTAINERS);
    thread(&tree, 70_001, "browser", 1);
    thread(&tree, 70_002, "chronyd", 1);
    let journal = testing::journal();
    let cpuset = keep(&tree, &journal, 1, &["chronyd".into()]);
    let content = |file: &str| tree.read(format!("/cpuset/{file}")).unwrap();
    let boxes = || (content("box/cpuset.cpus"), content("box/inner/cpuset.cpus"));
    let [pen] = cpuset.pens.as_slice() else {
        panic!("{:?}", cpuset.pens)
    };
    assert_eq!(boxes(), ("0".into(), "0".into()));
    assert_eq!(content("holder/cpuset.cpus"), "1", "it has no other");
    let census = cpuset.sweep();
    assert_eq!((census.moved, census.spared, census.kept), (1, 1, 0));
    assert_eq!(
        (ours(pen, "tasks"), ours(pen, CPUS), ours(pen, "cpuset.mems")),
        ("70001".into(), "0".into(), "0".into())
    );
    remove_pens(&cpuset);
    assert_eq!(journal.restore(), []);
    assert_eq!(boxes(), ("0-1".into(), "0,1".into()));
}

#[test]
fn a_group_that_is_made_meanwhile_loses_the_core_too() {
    let (_folder, tree) = hierarchy(&["/cpuset"], &CONTAINERS);
    let journal = testing::journal();
    let cpuset = keep(&tree, &journal, 1, &[]);
    let late = tree.path("/cpuset/late");
    fs::create_dir(&late).unwrap();
    fs::write(late.join(CPUS), "0-1\n").unwrap();
    cpuset.sweep();
    assert_eq!(read_trimmed(&late.join(CPUS)).unwrap(), "0");
    fs::remove_dir_all(&late).unwrap();
    cpuset.sweep();
    assert!(!cpuset.shrunk().contains_key(&late));
}

#[test]
fn the_group_of_this_process_keeps_the_core_and_its_other_members_do_not() {
    let files = [
        ("/proc/self/cgroup", "3:cpuset:/box"),
        ("/cpuset/cpuset.cpus", "0-3"),
        ("/cpuset/cpuset.mems", "0"),
        ("/cpuset/tasks", "70001"),
        ("/cpuset/box/cpuset.cpus", "0-1"),
        ("/cpuset/box/cpuset.mems", "0"),
        ("/cpuset/box/tasks", "70002"),
        ("/cpuset/box/inner/cpuset.cpus", "0-1"),
    ];
    let (_folder, tree) = hierarchy(&["/cpuset", "/cpuset/box"], &files);
    thread(&tree, 70_001, "browser", 1);
    thread(&tree, 70_002, "neighbour", 1);
    let journal = testing::journal();
    let cpuset = keep(&tree, &journal, 1, &[]);
    assert_eq!(cpuset.sweep().moved, 2);
    let [outer, inner] = cpuset.pens.as_slice() else {
        panic!("{:?}", cpuset.pens)
    };
    assert_eq!(
        (ours(outer, "tasks"), ours(outer, CPUS)),
        ("70001".into(), "0,2-3".into())
    );
    assert_eq!((ours(inner, "tasks"), ours(inner, CPUS)), ("70002".into(), "0".into()));
    let content = |file: &str| tree.read(format!("/cpuset/{file}")).unwrap();
    assert_eq!(
        content("box/cpuset.cpus"),
        "0-1",
        "else this process could not be pinned"
    );
    assert_eq!(content("box/inner/cpuset.cpus"), "0");
    let (outer, inner) = (outer.folder.clone(), inner.folder.clone());
    fs::write(tree.path("/cpuset/box/tasks"), "").unwrap();
    let left_over = journal.restore(); // the folders have ordinary files in them
    assert_eq!(left_over.len(), 2, "{left_over:?}");
    assert_eq!(content("box/tasks"), "70002", "back to where it was");
    assert!(inner.is_dir() && outer.is_dir());
}

#[test]
fn several_cores_are_kept_by_one_group_and_lent_to_a_group_whose_parents_keep_them() {
    let files = [
        ("/cpuset/box/cpuset.mems", "0"),
        ("/cpuset/box/tasks", ""),
        ("/cpuset/box/render/cpuset.cpus", "2,1"),
        ("/cpuset/cpuset.mems", "0"),
        ("/cpuset/tasks", ""),
        ("/cpuset/box/cpuset.cpus", "1-3"),
        ("/cpuset/holder/cpuset.cpus", "2-3"),
    ];
    let (_folder, tree) = hierarchy(&["/cpuset", "/cpuset/box"], &files);
    let journal = testing::journal();
    let [exclusive, others] = [[CoreId(2), CoreId(3)], [CoreId(0), CoreId(1)]];
    let render = tree.path("/cpuset/box/render");
    let cpuset = create(&tree, &journal, &exclusive, &others, &[], std::slice::from_ref(&render)).unwrap();
    let content = |file: &str| tree.read(format!("/cpuset/{file}")).unwrap();
    let [outer, inner] = cpuset.pens.as_slice() else {
        panic!("{:?}", cpuset.pens)
    };
    assert_eq!((ours(outer, CPUS), ours(inner, CPUS)), ("0-1".into(), "1".into()));
    assert_eq!(content("box/cpuset.cpus"), "1-3", "bounds the borrowing group");
    assert_eq!(content("box/render/cpuset.cpus"), "1");
    assert_eq!(
        cpuset.groups(std::slice::from_ref(&render)),
        [(render.join(CPUS), vec![CoreId(1), CoreId(2)])]
    );
    let holder = tree.read("/cpuset/holder/cpuset.cpus").unwrap();
    assert_eq!(holder, "2-3", "it has no others");
}

#[test]
fn a_process_that_may_use_few_cores_leaves_other_threads_all_others() {
    let files = [
        ("/sys/devices/system/cpu/online", "0-7"),
        (
            "/proc/self/status",
            "Name:\tpunctual\nTgid:\t1\nPPid:\t1\nCpus_allowed_list:\t2-3",
        ),
        ("/proc/irq/24/smp_affinity_list", "3"),
        ("/cpuset/cpuset.cpus", "0-7"),
        ("/cpuset/cpuset.mems", "0"),
        ("/cpuset/tasks", ""),
    ];
    let (_folder, tree) = hierarchy(&["/cpuset"], &files);
    let journal = testing::journal();
    let _exclusive = ExclusiveCore::take(&tree, &journal, CoreId(3), &Neighbours::default()).unwrap();
    let pen = tree.path("/cpuset").join(PEN);
    let has = || read_trimmed(&pen.join(CPUS)).unwrap();
    assert_eq!(has(), "0-2,4-7");
    assert_eq!(tree.read("/proc/irq/24/smp_affinity_list").unwrap(), "0-2,4-7");
    let elsewhere = ExclusiveCore::take(&tree, &journal, CoreId(5), &Neighbours::default()).unwrap_err();
    assert!(elsewhere.why.contains("may use cores 2-3"), "{elsewhere}");
}

#[test]
fn a_number_that_is_given_again_is_another_thread() {
    let (_folder, tree) = hierarchy(&["/cpuset"], &CONTAINERS);
    thread(&tree, 70_001, "chronyd", 1);
    let journal = testing::journal();
    let cpuset = keep(&tree, &journal, 1, &["chronyd".into()]);
    assert_eq!(cpuset.sweep().spared, 1);
    assert_eq!(cpuset.sweep(), Census::default(), "told once");
    let tasks = tree.path("/cpuset/tasks");
    let listed = fs::read(&tasks).unwrap();
    fs::write(&tasks, "").unwrap();
    assert_eq!(cpuset.sweep(), Census::default(), "it has ended");
    thread(&tree, 70_001, "browser", 2);
    fs::write(&tasks, listed).unwrap();
    assert_eq!(cpuset.sweep().moved, 1);
}

#[test]
fn a_machine_without_the_hierarchy_is_told_so() {
    let (_folder, tree) = testing::tree(&[("/proc/self/mountinfo", "")]);
    let journal = testing::journal();
    let refusal = create(&tree, &journal, &[CoreId(1)], &[CoreId(0)], &[], &[]).unwrap_err();
    assert!(refusal.why.contains("no cpuset hierarchy"), "{refusal}");
}

/// Two processes that keep a core each, of a container among others: by turns the first and the second one to take a
/// core leaves first.
#[test]
fn two_processes_share_a_pen_and_the_last_one_puts_the_groups_back() {
    let files = [
        ("/cpuset/cpuset.cpus", "0-3"),
        ("/cpuset/cpuset.mems", "0"),
        ("/cpuset/tasks", ""),
        ("/cpuset/box/cpuset.cpus", "0-3"),
        ("/cpuset/box/inner/cpuset.cpus", "0,2-3"),
        ("/cpuset/holder/cpuset.cpus", "3"),
    ];
    for first_leaves_first in [true, false] {
        let (_folder, tree) = hierarchy(&["/cpuset"], &files);
        let ledger = testing::folder();
        let journals = [(); 2].map(|()| Journal::open_in(ledger.path(), false).unwrap());
        let content = |file: &str| tree.read(format!("/cpuset/{file}/cpuset.cpus")).unwrap();
        let now = || ["punctual-pen", "box", "box/inner", "holder"].map(content);
        let machine: Vec<CoreId> = (0..4).map(CoreId).collect();
        let take = |journal: &Journal, core: u32| {
            let others: Vec<CoreId> = machine.iter().copied().filter(|other| other.0 != core).collect();
            let taken = create(&tree, journal, &[CoreId(core)], &others, &[], &[]).unwrap();
            taken.sweep();
        };
        take(&journals[0], 3);
        assert_eq!(now(), ["0-2", "0-2", "0,2", "3"]);
        take(&journals[1], 1);
        assert_eq!(now(), ["0,2", "0,2", "0,2", "3"]);
        let [first, second] = journals;
        let (leaving, staying) = if first_leaves_first {
            (first, second)
        } else {
            (second, first)
        };
        assert_eq!(leaving.restore(), []);
        let left = match first_leaves_first {
            true => ["0,2-3", "0,2-3", "0,2-3", "3"],
            false => ["0-2", "0-2", "0,2", "3"],
        };
        assert_eq!(now(), left, "first: {first_leaves_first}");
        assert!(tree.path("/cpuset").join(PEN).is_dir());
        let left_over = staying.restore(); // the folder has ordinary files in it
        assert_eq!(left_over.len(), 1, "{left_over:?}");
        assert_eq!(now(), ["0-3", "0-3", "0,2-3", "3"]);
    }
}

#[test]
fn a_process_in_the_pen_of_another_one_leaves_it_before_it_takes_a_core() {
    let pid = std::process::id();
    let files = [
        ("/proc/self/cgroup", "3:cpuset:/punctual-pen".to_owned()),
        ("/cpuset/cpuset.cpus", "0-3".into()),
        ("/cpuset/cpuset.mems", "0".into()),
        ("/cpuset/tasks", String::new()),
        (&format!("/proc/{pid}/task/{pid}/stat"), String::new()),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let (_folder, tree) = hierarchy(&["/cpuset"], &files);
    fs::write(tree.path("/cpuset").join(PEN).join("tasks"), format!("{pid}\n")).unwrap();
    let cpuset = keep(&tree, &testing::journal(), 1, &[]);
    let [pen] = cpuset.pens.as_slice() else {
        panic!("{:?}", cpuset.pens)
    };
    assert_eq!(pen.above, tree.path("/cpuset"));
    assert_eq!(tree.read("/cpuset/tasks").unwrap(), pid.to_string());
}
