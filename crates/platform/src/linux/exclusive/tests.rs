//! Moving one helper program of ours: all other programs here are left alone, by name. A core is taken as a whole in
//! `tests/exclusive_put_back.rs`, a program of its own: a partition takes it from the tests beside as well.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};

use punctual_testing::{CHILD_MAX, machine, wait_for, wait_until};

use punctual_custody::core_mask::{CoreMask, affinity_of, set_affinity};
use punctual_custody::groups::PEN;

use super::affinity::Affinity;
use super::fence::Sweep;
use super::fence::judge;
use super::population::Identity;
use super::*;
use crate::CoreChoice;
use crate::linux::testing;

/// A program that sleeps, under a name that no other has.
struct Helper {
    _folder: tempfile::TempDir,
    child: Child,
}

impl Helper {
    fn start() -> Helper {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("to-be-moved");
        punctual_testing::copy_program("/bin/sleep".as_ref(), &program);
        let child = Command::new(program).arg("60").spawn().unwrap();
        // The kernel lets the parent go on before it gives the child the program's name (execve(2)).
        let name = format!("/proc/{}/comm", child.id());
        wait_until("the helper has its name", || {
            std::fs::read_to_string(&name).is_ok_and(|name| name == "to-be-moved\n")
        });
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

/// All programs but the helper stay.
fn all_other_programs(tree: &KernelTree) -> StayRules {
    let name = |tid: Tid| std::fs::read_to_string(format!("/proc/{tid}/comm")).ok();
    let names: BTreeSet<String> = population::threads(&KernelTree::default())
        .into_iter()
        .filter_map(name)
        .map(|name| name.trim_end().to_owned())
        .filter(|name| name != "to-be-moved")
        .collect();
    let neighbours = Neighbours {
        spare: names.into_iter().collect(),
        ..Neighbours::default()
    };
    StayRules::new(tree, &neighbours)
}

#[test]
fn affinity_alone_moves_and_gives_back_what_was_chosen_before() {
    let _machine = machine();
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
    let journal = testing::journal();
    let spared = all_other_programs(&tree);
    let affinity = match Affinity::new(&tree, &journal, &wanted(&[*core], others, &spared)) {
        Ok(affinity) => affinity,
        Err(refusal) => {
            assert!(refusal.remedy.contains("CAP_SYS_NICE"), "{refusal}");
            return eprintln!("skipped: {refusal}");
        }
    };
    let confined = affinity.confine(Identity::of(&tree, helper.tid()).unwrap(), None);
    confined.unwrap();
    assert!(
        !helper.may_use(*core) && helper.may_use(others[0]),
        "a thread with this core alone gets the others"
    );
    assert_eq!(journal.restore(), []);
    assert_eq!(affinity_of(helper.tid()).unwrap(), narrow);
    // A guest that has left the core with its whole mask is confined like others.
    affinity.admit(helper.tid()).unwrap();
    affinity.dismiss(helper.tid());
    affinity
        .confine(Identity::of(&tree, helper.tid()).unwrap(), None)
        .unwrap();
    assert!(!helper.may_use(*core));
    assert_eq!(journal.restore(), []);
}

fn wanted<'w>(exclusive: &'w [CoreId], others: &'w [CoreId], spared: &'w StayRules) -> FenceRequest<'w> {
    FenceRequest {
        exclusive,
        others,
        spared,
        isolated: false,
        lend: true,
        lend_to: &[],
        share_with: &[],
        guests: false,
    }
}

/// A shell that starts the helper program once for every line it gets, and tells its number.
struct Shell {
    _folder: tempfile::TempDir,
    child: Child,
    told: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
    started: Vec<Tid>,
}

impl Shell {
    fn start() -> Shell {
        use std::io::BufRead;
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("to-be-moved");
        punctual_testing::copy_program("/bin/sleep".as_ref(), &program);
        // "orphan" starts it by a shell between, which is gone at once.
        let script = r#"while read way; do
            if [ "$way" = orphan ]; then ("$0" 60 >/dev/null & echo $!); else "$0" 60 >/dev/null & echo $!; fi
        done"#;
        let mut child = Command::new("sh")
            .args(["-c", script])
            .arg(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let told = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        Shell {
            _folder: folder,
            child,
            told,
            started: Vec::new(),
        }
    }

    fn tid(&self) -> Tid {
        Tid(self.child.id() as i32)
    }

    fn starts(&mut self, way: &str) -> Tid {
        use std::io::Write;
        writeln!(self.child.stdin.as_mut().unwrap(), "{way}").unwrap();
        let tid = Tid(self.told.next().unwrap().unwrap().parse().unwrap());
        self.started.push(tid);
        // Until it has its own name, it has the shell's, which others on this machine may have too.
        wait_until("its own name", || {
            let name = std::fs::read_to_string(format!("/proc/{tid}/comm"));
            name.is_ok_and(|name| name.trim_end() == "to-be-moved")
        });
        tid
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        for tid in &self.started {
            // SAFETY: plain numbers of processes that this test has started.
            unsafe { libc::kill(tid.0, libc::SIGKILL) };
        }
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn masks(tids: &[Tid]) -> Vec<CoreMask> {
    tids.iter().map(|tid| affinity_of(*tid).unwrap()).collect()
}

#[test]
fn what_confined_programs_start_is_confined_and_freed_with_them() {
    let _machine = machine();
    let tree = KernelTree::default();
    let all = cores::usable(&tree);
    let [others @ .., core] = all.as_slice() else { return };
    if others.is_empty() {
        return eprintln!("skipped: one core only");
    }
    let mut shell = Shell::start();
    let journal = testing::journal();
    journal.claim(&[*core], &all).unwrap();
    let spared = all_other_programs(&tree);
    let affinity = match Affinity::new(&tree, &journal, &wanted(&[*core], others, &spared)) {
        Ok(affinity) => affinity,
        Err(refusal) => return eprintln!("skipped: {refusal}"),
    };
    let had = affinity_of(shell.tid()).unwrap();
    let confined = affinity.confine(Identity::of(&tree, shell.tid()).unwrap(), None);
    confined.unwrap();
    let narrow = affinity_of(shell.tid()).unwrap();
    let [child, orphan] = ["child", "orphan"].map(|way| shell.starts(way));
    assert_eq!(masks(&[child, orphan]), [narrow; 2], "inherited");
    affinity.sweep();
    assert_eq!(masks(&[shell.tid(), child, orphan]), [narrow; 3]);
    // A choice of its own is not taken for an inheritance, nor lifted.
    let own = CoreMask::from_iter([*core]);
    let chooses = shell.starts("child");
    set_affinity(chooses, &own).unwrap();
    let [late, late_orphan] = ["child", "orphan"].map(|way| shell.starts(way));
    drop(affinity);
    assert_eq!(journal.restore(), []);
    assert_eq!(masks(&[shell.tid(), child, orphan, late, late_orphan]), [had; 5]);
    assert_eq!(affinity_of(chooses).unwrap(), own);
}

/// Which thread a child process of the test below confines.
const CONFINES: &str = "PUNCTUAL_TEST_CONFINES";

/// The part of the child process; a test of its own name only when told so.
#[test]
fn confines_a_thread_until_it_is_killed() {
    let Ok(thread) = std::env::var(CONFINES) else { return };
    let (tree, thread) = (KernelTree::default(), Tid(thread.parse().unwrap()));
    let all = cores::usable(&tree);
    let (core, others) = all.split_last().unwrap();
    let journal = Journal::open(true).unwrap();
    journal.claim(&[*core], &all).unwrap();
    let spared = all_other_programs(&tree);
    let affinity = Affinity::new(&tree, &journal, &wanted(&[*core], others, &spared)).unwrap();
    affinity.confine(Identity::of(&tree, thread).unwrap(), None).unwrap();
    println!("\nCONFINED");
    loop {
        std::thread::park();
    }
}

#[test]
fn what_confined_programs_start_is_freed_after_a_kill_although_no_sweep_has_seen_it() {
    use std::io::BufRead;
    let _machine = machine();
    if cores::usable(&KernelTree::default()).len() < 2 || !crate::linux::thread::may_move_others() {
        return eprintln!("skipped: one core only, or threads of others may not be moved");
    }
    let (mut shell, folder) = (Shell::start(), testing::folder());
    let had = affinity_of(shell.tid()).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "linux::exclusive::tests::confines_a_thread_until_it_is_killed",
            "--nocapture",
        ])
        .env(CONFINES, shell.tid().to_string())
        .env(punctual_custody::recovery::FOLDER, folder.path())
        .stdout(Stdio::piped());
    let mut keeper = punctual_testing::start(&mut command, CHILD_MAX).unwrap();
    let mut lines = std::io::BufReader::new(keeper.stdout().unwrap()).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line == "CONFINED")));
    assert_ne!(affinity_of(shell.tid()).unwrap(), had);
    let mut heirs: Vec<Tid> = ["child", "orphan"].map(|way| shell.starts(way)).into();
    assert!(masks(&heirs).iter().all(|mask| *mask != had), "inherited");
    keeper.kill().unwrap();
    // While the guardian puts all back.
    heirs.extend(["child", "orphan", "child", "orphan"].map(|way| shell.starts(way)));
    keeper.wait().unwrap();
    heirs.push(shell.tid());
    wait_for(
        || format!("{:?}", masks(&heirs)),
        || (masks(&heirs) == vec![had; heirs.len()]).then_some(()),
    );
}

#[test]
fn a_user_that_may_move_no_thread_obtains_nothing() {
    let _machine = machine();
    let tree = KernelTree::default();
    let core = *cores::usable(&tree).last().unwrap();
    let taken = testing::as_user_without_rights(move || {
        let journal = testing::journal();
        let taken = ExclusiveCore::take(&KernelTree::default(), &journal, core, &Neighbours::default());
        taken.map(|exclusive| exclusive.obtained().to_string())
    });
    match taken {
        None => eprintln!("skipped: not root"),
        Some(taken) => {
            let refusal = taken.unwrap_err();
            assert!(!refusal.remedy.is_empty(), "{refusal}");
        }
    }
}

#[test]
fn a_way_by_which_no_thread_moves_is_no_way() {
    let census = |moved, not_ours| Census {
        moved,
        not_ours,
        kept: 80,
        spared: 5,
    };
    assert!(judge(Mechanism::Cpuset, census(0, 3)).is_err());
    assert_eq!(
        judge(Mechanism::Cpuset, census(0, 0)),
        Ok(()),
        "there was no thread to move"
    );
    assert_eq!(judge(Mechanism::Affinity, census(7, 3)), Ok(()));
    let told = census(7, 3).to_string();
    assert!(
        told.contains("80 bound") && told.contains("3 not this user's"),
        "{told}"
    );
}

fn bound_by_the_kernel() -> Option<Tid> {
    let bound = |tid: &Tid| {
        std::fs::read_to_string(format!("/proc/{tid}/comm"))
            .is_ok_and(|name| name.starts_with("ksoftirqd/") || name.starts_with("cpuhp/"))
    };
    population::threads(&KernelTree::default()).into_iter().find(bound)
}

#[test]
fn a_thread_that_the_kernel_binds_leaves_no_record() {
    let Some(thread) = bound_by_the_kernel() else {
        return eprintln!("skipped: no kernel thread is to be seen");
    };
    let journal = testing::journal();
    assert!(journal.remember_affinity(thread).is_err());
    assert_eq!(journal.restore(), []);
}

#[test]
fn a_choice_that_the_kernel_forgets_is_put_back() {
    let _machine = machine();
    let all = cores::usable(&KernelTree::default());
    let (helper, journal) = (Helper::start(), testing::journal());
    let mut narrow = CoreMask::default();
    narrow.set(all[0], true);
    let found = affinity_of(helper.tid()).unwrap();
    set_affinity(helper.tid(), &narrow).unwrap();
    journal.remember_affinity(helper.tid()).unwrap();
    set_affinity(helper.tid(), &found).unwrap();
    assert_eq!(journal.restore(), []);
    assert_eq!(affinity_of(helper.tid()).unwrap(), narrow);
}

#[test]
fn a_core_that_is_not_there_and_the_only_one_are_refused() {
    let journal = testing::journal();
    let (_folder, tree) = testing::tree(&[("/sys/devices/system/cpu/online", "0")]);
    let only = ExclusiveCore::take(&tree, &journal, CoreId(0), &Neighbours::default()).unwrap_err();
    assert!(only.why.contains("only one"), "{only}");
    let absent = ExclusiveCore::take(&tree, &journal, CoreId(7), &Neighbours::default()).unwrap_err();
    assert!(absent.why.contains("may use cores 0"), "{absent}");
}

#[test]
fn several_cores_are_taken_as_one_and_lent_one_by_one() {
    let group = format!("/cpuset/{}", PEN);
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
        ("/cpuset/render/cpuset.cpus".into(), "0-3"),
        ("/cpuset/render/inner/cpuset.cpus".into(), "1-3"),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let (_folder, tree) = testing::tree(&files);
    let journal = testing::journal();
    let none_left: Vec<CoreId> = (0..4).map(CoreId).collect();
    let refusal = ExclusiveCore::take_all(&tree, &journal, &none_left, &Neighbours::default()).unwrap_err();
    assert!(
        refusal.what.contains("cores 0-3") && refusal.why.contains("no others"),
        "{refusal}"
    );
    let neighbours = Neighbours {
        lend_to: vec!["/render".into()],
        ..Neighbours::default()
    };
    let cores = ExclusiveCore::take_all(&tree, &journal, &[CoreId(3), CoreId(2)], &neighbours).unwrap();
    let kept: Vec<(CoreId, Mechanism)> = cores
        .iter()
        .map(|core| (core.obtained().core, core.obtained().mechanism))
        .collect();
    assert_eq!(kept, [(CoreId(3), Mechanism::Cpuset), (CoreId(2), Mechanism::Cpuset)]);
    let text = |file: &str| tree.read(file).unwrap();
    let irq = |number: u32| text(&format!("/proc/irq/{number}/smp_affinity_list"));
    assert_eq!((irq(24), irq(25)), ("0-1".into(), "0-1".into()));
    let others = || text(&format!("{group}/cpuset.cpus"));
    // The kernel takes a whole write for the list; an ordinary file keeps what was behind it.
    let first_line = |file: &str| text(file).lines().next().unwrap_or_default().to_owned();
    let lendees = || ["", "inner/"].map(|group| first_line(&format!("/cpuset/render/{group}cpuset.cpus")));
    assert_eq!((others(), lendees()), ("0-1".into(), ["0-1".into(), "1".into()]));
    assert!(cores[0].lendable());
    cores[0].lend().unwrap();
    assert_eq!(lendees(), ["0,1,3", "1,3"]);
    cores[1].lend().unwrap();
    cores[0].take_back().unwrap();
    assert_eq!(lendees(), ["0,1,2", "1,2"]);
    assert_eq!(others(), "0-1", "all other threads lost the cores once");
    cores[1].take_back().unwrap();
    assert_eq!(lendees(), ["0,1", "1"]);
    drop(cores);
    // Ordinary files do not vanish with a folder as the kernel's do.
    std::fs::remove_dir_all(tree.path(&group)).unwrap();
    assert_eq!(journal.restore(), []);
    assert_eq!((irq(24), irq(25)), ("0-3".into(), "3".into()));
    assert_eq!(text("/cpuset/render/cpuset.cpus"), "0-3");
}

/// Two exclusive cores of four, which the kernel was booted to keep free (`isolcpus=2-3`).
#[test]
fn isolated_cores_need_no_fence_and_a_devices_interrupt_comes_to_the_first() {
    let (_folder, tree) = testing::tree(&[
        ("/sys/devices/system/cpu/online", "0-3"),
        ("/sys/devices/system/cpu/isolated", "2-3"),
        ("/proc/self/status", "Cpus_allowed_list:\t0-1"),
        (
            "/proc/self/mountinfo",
            "30 24 0:27 / /cpuset rw - cgroup cgroup rw,cpuset",
        ),
        ("/cpuset/tasks", "1"),
        (
            "/proc/interrupts",
            "     CPU0\n 24:  0  PCI-MSI 1-edge      uio0\n 25:  0  PCI-MSI 2-edge      disk",
        ),
        ("/proc/irq/24/smp_affinity_list", "0-3"),
        ("/proc/irq/25/smp_affinity_list", "0-3"),
    ]);
    assert_eq!(likely(&tree), Ok(Mechanism::Isolated));
    let open = candidates(&tree, &CoreChoice::Any).unwrap();
    assert_eq!(open, [3, 2, 1, 0].map(CoreId), "isolated cores count, and come first");
    let journal = testing::journal();
    let neighbours = Neighbours {
        interrupts: vec!["uio0".into()],
        ..Neighbours::default()
    };
    let cores = ExclusiveCore::take_all(&tree, &journal, &open[..2], &neighbours).unwrap();
    let [first, second] = [0, 1].map(|core| cores[core].obtained().clone());
    assert_eq!([first.mechanism, second.mechanism], [Mechanism::Isolated; 2]);
    assert_eq!(
        (first.steered.as_slice(), second.steered.len()),
        (&["24 (uio0)".into()][..], 0)
    );
    assert!(first.to_string().contains("isolcpus") && first.to_string().contains("24 (uio0) steered here"));
    let irq = |number: u32| tree.read(format!("/proc/irq/{number}/smp_affinity_list")).unwrap();
    assert_eq!((irq(24), irq(25)), ("3".into(), "0-1".into()));
    assert!(
        !tree.path("/cpuset").join(PEN).exists(),
        "no thread is moved into a pen"
    );
    drop(cores);
    assert_eq!(journal.restore(), []);
    assert_eq!((irq(24), irq(25)), ("0-3".into(), "0-3".into()));
    let unknown = Neighbours {
        interrupts: vec!["eth0".into()],
        ..Neighbours::default()
    };
    let refusal = ExclusiveCore::take_all(&tree, &journal, &open[..1], &unknown).unwrap_err();
    assert!(refusal.remedy.contains("24 (uio0), 25 (disk)"), "{refusal}");
}

#[test]
fn a_group_that_cannot_be_lent_to_is_refused_and_nothing_has_changed() {
    let files = [
        ("/sys/devices/system/cpu/online", "0-3"),
        (
            "/proc/self/mountinfo",
            "30 24 0:27 / /cpuset rw - cgroup cgroup rw,cpuset",
        ),
        ("/proc/self/cgroup", "3:cpuset:/box/inner"),
        ("/cpuset/cpuset.mems", "0"),
        ("/cpuset/tasks", ""),
        ("/cpuset/box/cpuset.cpus", "0-3"),
        ("/cpuset/unlisted/cpuset.cpus", "\n"),
        ("/cpuset/unlisted/cpuset.cpus.effective", "0-3"),
    ];
    let (_folder, tree) = testing::tree(&files);
    let journal = testing::journal();
    for (group, why) in [
        ("/gone", "cpuset.cpus: No such file"),
        ("/unlisted", "no list of cores of its own"),
        ("/box", "this program is in it"),
        ("/", "this program is in it"),
    ] {
        let neighbours = Neighbours {
            lend_to: vec![group.into()],
            ..Neighbours::default()
        };
        let refusal = ExclusiveCore::take(&tree, &journal, CoreId(3), &neighbours).unwrap_err();
        assert!(
            refusal.what.contains(group) && refusal.why.contains(why),
            "{group}: {refusal}"
        );
        assert_eq!(tree.read("/cpuset/box/cpuset.cpus").unwrap(), "0-3");
    }
}

/// Where a lease moves threads of this process, and where to.
#[test]
fn residents_run_on_the_lent_core_alone_and_other_lendees_there_as_well() {
    let all = cores::usable(&KernelTree::default());
    let [others @ .., core] = all.as_slice() else { return };
    if others.is_empty() {
        return eprintln!("skipped: one core only");
    }
    let lendees = Arc::new(Lendees::new(&[*core], others, Vec::new()).unwrap());
    assert!(!lendees.any());
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let stopped = std::sync::Mutex::new(stopped);
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        for _ in 0..all.len() + 1 {
            let (tell, stopped) = (tell.clone(), &stopped);
            scope.spawn(move || {
                tell.send(Tid::current()).unwrap();
                let _ = stopped.lock().map(|stopped| stopped.recv());
            });
        }
        let threads: Vec<Tid> = told.iter().take(all.len() + 1).collect();
        let mut guests: Vec<_> = threads.iter().map(|thread| lendees.add(*thread).unwrap()).collect();
        let mask = |cores: &[CoreId]| {
            let mut mask = CoreMask::default();
            cores.iter().for_each(|core| mask.set(*core, true));
            mask
        };
        let masks = || {
            threads
                .iter()
                .map(|thread| affinity_of(*thread).unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(masks(), vec![mask(others); threads.len()]);
        lendees.set_lent(*core, true).unwrap();
        let (residents, visitors) = masks().into_iter().partition::<Vec<_>, _>(|it| *it == mask(&[*core]));
        assert_eq!(
            residents.len(),
            2,
            "of {} threads on {} cores",
            threads.len(),
            all.len()
        );
        assert!(visitors.iter().all(|it| *it == mask(&all)));
        // Another process takes the other cores, all but the first.
        lendees.leave(mask(&others[1..]));
        let left = mask(&[others[0], *core]);
        assert!(masks().into_iter().all(|it| it == mask(&[*core]) || it == left));
        lendees.leave(CoreMask::default());
        // A thread that is none any more runs where it did before.
        drop(guests.remove(0));
        assert_eq!(masks()[0], mask(&all));
        lendees.set_lent(*core, false).unwrap();
        assert_eq!(masks()[0], mask(&all));
        assert_eq!(masks()[1..], vec![mask(others); threads.len() - 1]);
        drop(guests);
        assert!(!lendees.any());
        assert_eq!(masks(), vec![mask(&all); threads.len()]);
        drop(stop);
    });
}

#[test]
fn lists_are_written_as_the_kernel_reads_them() {
    let written = |numbers: &[u32]| list(&numbers.iter().map(|number| CoreId(*number)).collect::<Vec<_>>());
    assert_eq!(written(&[0, 1, 2, 5]), "0-2,5");
    assert_eq!(written(&[7, 3, 4]), "3-4,7");
    assert_eq!(written(&[1]), "1");
    let (_folder, tree) = testing::tree(&[("/sys/devices/system/cpu/online", "0-3,8")]);
    assert_eq!(list(&cores::usable(&tree)), "0-3,8");
}
