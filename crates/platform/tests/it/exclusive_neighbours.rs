//! Several programs want the same core for real, and end or are killed at random, with or without their guardians: one
//! has it at a time, and after the last one the machine is as it was found: the affinity, policy and groups of every
//! thread that was there before, interrupts, unbound kernel work, groups, system settings, mounts.
//!
//! Every thread of this machine is moved, as by a program in use. For so long the test claims the core in the ledger of
//! the machine, so that other programs leave it alone; its own children share a ledger of their own.

#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use punctual_platform::Neighbours;
use punctual_platform::linux::journal::Journal;
use punctual_platform::linux::thread::{self, Tid};
use punctual_platform::linux::{ClockPreference, KernelTree, LinuxMachine, LinuxOptions, cores, recovery};
use punctual_testing::neighbours::{Way, draw, end, rounds, wait_for_guardians};
use punctual_testing::{CHILD_MAX, MachineGuard, TestChild, free_cores, machine, wait_ok, wait_until};

/// What a child is to do: take the core to lend it, or [`FOR_ITSELF`]. Where a partition can be had, that is the way
/// of the latter alone.
const ORDER: &str = "PUNCTUAL_TEST_WANTS_A_CORE";
const FOR_ITSELF: &str = "for itself";
/// Set where a child is to do without the cpusets of cgroup version 1, as if they were not mounted: by affinity.
const BY_AFFINITY: &str = "PUNCTUAL_TEST_WITHOUT_CPUSETS";
/// Programs at the same time: two in every other round, five in the others.
const NEIGHBOURS: [usize; 2] = [2, 5];
/// How long a program takes to begin and to take the core, and longer.
const BEGINNING_MS: u64 = 60;

/// The child's part; a test of its own name only when told so.
#[test]
fn child() {
    let Ok(order) = std::env::var(ORDER) else { return };
    if std::env::var_os(BY_AFFINITY).is_some() {
        unmount_cpusets();
    }
    let neighbours = Neighbours {
        lend: order != FOR_ITSELF,
        ..Neighbours::default()
    };
    let machine = LinuxMachine::open(LinuxOptions {
        clock: ClockPreference::None,
        ..LinuxOptions::default()
    })
    .unwrap();
    // Not of those that this process may use: another child may have it in its fence.
    let core = *cores::online(&KernelTree::default()).last().unwrap();
    match machine
        .exclusive_cores(&[core], &neighbours)
        .map(|mut cores| cores.remove(0))
    {
        Ok(exclusive) => {
            let pinned = exclusive.enter(Tid::current()).and_then(|()| thread::pin(core));
            println!("\nTAKEN {pinned:?}");
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        Err(refusal) => {
            println!("\nREFUSED {refusal}");
            let _ = std::io::stdin().read_line(&mut String::new());
        }
    }
}

const CPUSETS: &CStr = c"/sys/fs/cgroup/cpuset";

/// Takes the cpusets of cgroup version 1 from the mounts of this process alone, where there are any.
fn unmount_cpusets() {
    // SAFETY: plain system calls; every text ends with a zero.
    unsafe {
        assert_eq!(libc::unshare(libc::CLONE_NEWNS), 0);
        let (root, none) = (c"/".as_ptr(), std::ptr::null());
        let private = libc::MS_REC | libc::MS_PRIVATE;
        assert_eq!(libc::mount(none, root, none, private, std::ptr::null()), 0);
        libc::umount2(CPUSETS.as_ptr(), libc::MNT_DETACH);
    }
}

/// What is to be as it was: by name, and threads by number and start.
type Snapshot = BTreeMap<String, String>;

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default().trim_end().to_owned()
}

fn numbers(folder: impl AsRef<Path>) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .collect()
}

/// The flag of a thread whose affinity only the kernel changes, as its workers' with the work that they are given
/// (PF_NO_SETAFFINITY in include/linux/sched.h).
const PLACED_BY_THE_KERNEL: u64 = 0x0400_0000;

/// Affinity, policy, priority and groups of a thread; `None` of one that has ended, or that the kernel places.
fn thread_now(process: &str, tid: &str) -> Option<(String, String)> {
    let folder = PathBuf::from(format!("/proc/{process}/task/{tid}"));
    let (stat, status, groups) = (
        read(folder.join("stat")),
        read(folder.join("status")),
        read(folder.join("cgroup")),
    );
    let (name, fields) = stat.rsplit_once(") ")?;
    // proc_pid_stat(5): flags, nice, start time, priority and policy are fields 9, 19, 22, 40 and 41.
    let fields: Vec<&str> = fields.split(' ').collect();
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or_default();
    // A thread of an interrupt goes with that (irq_thread_check_affinity() in kernel/irq/manage.c), which is compared.
    if field(9).parse::<u64>().ok()? & PLACED_BY_THE_KERNEL != 0 || name.contains("(irq/") {
        return None;
    }
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let key = format!("thread {tid} started {} {}", field(22), name.split_once('(')?.1);
    let groups = groups.replace('\n', " ");
    let now = format!(
        "on {} nice {} priority {} policy {} in {groups}",
        allowed.trim(),
        field(19),
        field(40),
        field(41)
    );
    Some((key, now))
}

fn snapshot() -> Snapshot {
    let processes = numbers("/proc");
    let threads = processes.iter().flat_map(|process| {
        let tids = numbers(format!("/proc/{process}/task"));
        tids.into_iter().filter_map(move |tid| thread_now(process, &tid))
    });
    let irqs = numbers("/proc/irq").into_iter();
    let irqs = irqs.map(|irq| format!("/proc/irq/{irq}/smp_affinity_list"));
    let files = irqs.chain([
        "/sys/devices/virtual/workqueue/cpumask".into(),
        "/proc/self/mounts".into(),
    ]);
    let files = files.chain(SETTINGS.iter().flat_map(files_of));
    let files = files.map(|file| (file.clone(), read(&file)));
    threads.chain(files).chain(groups()).collect()
}

/// Settings of the whole system (proc_sys(5)).
const SETTINGS: [&str; 2] = ["/proc/sys/kernel", "/proc/sys/vm"];
/// What is among them and tells what happened last; the kernel changes it.
const NEWS: [&str; 5] = [
    "ns_last_pid",
    "perf_event_max_sample_rate",
    "tainted",
    "hung_task_warnings",
    "hung_task_detect_count",
];

fn files_of(folder: &&str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let settings = files.filter(|entry| !NEWS.iter().any(|news| entry.file_name() == *news));
    settings.map(|entry| entry.path().display().to_string()).collect()
}

/// What each group has of [`OF_A_GROUP`].
fn groups() -> Vec<(String, String)> {
    let (mut groups, mut next) = (vec![PathBuf::from("/sys/fs/cgroup")], 0);
    while let Some(group) = groups.get(next) {
        let below = fs::read_dir(group).into_iter().flatten().flatten();
        let below: Vec<PathBuf> = below.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
        groups.extend(below);
        next += 1;
    }
    let files = groups.iter().flat_map(|group| OF_A_GROUP.map(|file| group.join(file)));
    let there = files.filter_map(|file| Some((file.display().to_string(), fs::read_to_string(&file).ok()?)));
    there.collect()
}

/// Its cores, and in version 2 what it is and hands down.
const OF_A_GROUP: [&str; 5] = [
    "cpuset.cpus",
    "cpuset.cpus.exclusive",
    "cpuset.cpus.partition",
    "cgroup.type",
    "cgroup.subtree_control",
];

/// What differs, but for what has ended or begun since: threads, and groups of other programs.
fn differences(before: &Snapshot, now: &Snapshot) -> Vec<String> {
    let changed = before.iter().filter_map(|(key, was)| {
        let is = now.get(key)?;
        (is != was).then(|| format!("{key}: {is}, was {was}"))
    });
    let new = now
        .keys()
        .filter(|key| key.contains("/punctual") && !before.contains_key(*key));
    changed.chain(new.map(|key| format!("{key} is new"))).collect()
}

/// Where programs meet, and how they keep the core.
struct Place {
    folder: tempfile::TempDir,
    by_affinity: bool,
}

impl Place {
    fn new(by_affinity: bool) -> Place {
        let folder = tempfile::tempdir().unwrap();
        Place { folder, by_affinity }
    }

    fn ledger(&self) -> &Path {
        self.folder.path()
    }
}

/// Puts the machine back when a test fails: its ledger goes with it.
impl Drop for Place {
    fn drop(&mut self) {
        let _ = recovery::restore(self.ledger());
    }
}

struct Wanting(TestChild);

impl Wanting {
    /// One that takes the core to lend it, or for itself.
    fn start(place: &Place, lend: bool) -> Wanting {
        let mut command = Command::new(std::env::current_exe().unwrap());
        if place.by_affinity {
            command.env(BY_AFFINITY, "");
        }
        command
            .args([
                "--exact",
                "exclusive_neighbours::child",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(ORDER, if lend { "to lend it" } else { FOR_ITSELF })
            .env(recovery::FOLDER, place.ledger())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        Wanting(punctual_testing::start(&mut command, CHILD_MAX).unwrap())
    }

    /// Whether it has got the core; it says so once it has tried.
    fn has_it(&mut self) -> bool {
        let lines = BufReader::new(self.0.stdout().unwrap()).lines();
        let said =
            { lines.map_while(Result::ok) }.find(|line| line.starts_with("TAKEN") || line.starts_with("REFUSED"));
        let said = said.unwrap_or_else(|| panic!("the child said nothing and ended: {:?}", self.0.wait()));
        if said.starts_with("REFUSED") {
            // A fork that a busy machine held up for longer than heirs are looked for (see `heirs.rs`).
            let is_late_heir = said.contains("this process may use cores");
            assert!(is_late_heir || said.contains("claims core"), "{said}");
            return false;
        }
        assert_eq!(said, "TAKEN Ok(())");
        true
    }
}

/// Claims the last core in the ledger of the machine; `None` where that is refused.
fn claim_of_the_machine() -> Option<(Journal, MachineGuard)> {
    let alone = machine();
    if let Err(holder) = free_cores() {
        eprintln!("skipped: {holder}");
        return None;
    }
    let tree = KernelTree::default();
    let all = cores::usable(&tree);
    let last = *all.last()?;
    let journal = Journal::open(false).unwrap();
    if let Err(refusal) = journal.claim(&[last], &all) {
        eprintln!("skipped: {refusal}");
        return None;
    }
    Some((journal, alone))
}

#[test]
fn programs_that_want_one_core_and_are_killed_at_random_leave_no_difference() {
    play(&Place::new(false));
}

#[test]
fn programs_that_are_killed_at_random_leave_no_difference_where_there_are_no_cpusets() {
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: only the superuser may unmount cpusets for a process");
    }
    play(&Place::new(true));
}

fn play(place: &Place) {
    let Some(_claimed) = claim_of_the_machine() else { return };
    let mut tried = Wanting::start(place, true);
    let possible = tried
        .0
        .stdout()
        .map(BufReader::new)
        .unwrap()
        .lines()
        .map_while(Result::ok);
    let said = { possible }
        .find(|line| line.starts_with("TAKEN") || line.starts_with("REFUSED"))
        .unwrap();
    end(tried.0, Way::Returns, place.ledger());
    if said.starts_with("REFUSED") {
        return eprintln!("skipped: {said}");
    }
    let before = snapshot();
    for round in 0..rounds() {
        let mut seed = u64::from(round);
        play_round(
            &mut seed,
            NEIGHBOURS[round as usize % 2],
            place,
            &format!("round {round}"),
        );
        recovery::restore(place.ledger()).unwrap();
    }
    settle(&before, place.ledger(), "after the last round");
    eprintln!("{} rounds, {} things compared: 0 differences", rounds(), before.len());
}

/// Programs want the core at the same time; they end one after the other, and others start in between.
fn play_round(seed: &mut u64, count: usize, place: &Place, round: &str) {
    let mut all: Vec<Wanting> = (0..count).map(|_| Wanting::start(place, draw(seed, 2) == 0)).collect();
    let owners = all.iter_mut().filter_map(|it| it.has_it().then_some(())).count();
    assert_eq!(owners, 1, "{round}: each core has one owner");
    while !all.is_empty() {
        let at = draw(seed, all.len() as u64) as usize;
        let way = Way::draw(seed);
        end(all.swap_remove(at).0, way, place.ledger());
        match draw(seed, 6) {
            0 | 1 => {
                let mut late = Wanting::start(place, draw(seed, 2) == 0);
                late.has_it();
                all.push(late);
            }
            // Killed while it begins, takes the core, or has just taken it.
            2 => {
                let late = Wanting::start(place, draw(seed, 2) == 0);
                std::thread::sleep(Duration::from_millis(draw(seed, BEGINNING_MS)));
                end(late.0, Way::Killed, place.ledger());
            }
            _ => {}
        }
    }
    let looked = recovery::look(place.ledger()).unwrap();
    assert!(looked.holders.iter().all(|holder| !holder.alive), "{round}: {looked:?}");
}

/// Waits for 0 differences; guardians may be at work still, and other programs may change what is theirs.
fn settle(before: &Snapshot, ledger: &Path, when: &str) {
    wait_ok(when, || {
        let recovered = recovery::restore(ledger).unwrap();
        let different = differences(before, &snapshot());
        if different.is_empty() && recovered.left.is_empty() {
            Ok(())
        } else {
            Err((different, recovered))
        }
    });
}

#[test]
fn planted_fault_the_snapshot_shows_what_a_program_that_has_the_core_changes() {
    let Some(_claimed) = claim_of_the_machine() else { return };
    let place = Place::new(false);
    let ledger = place.ledger();
    let before = snapshot();
    let mut program = Wanting::start(&place, true);
    let lines = BufReader::new(program.0.stdout().unwrap()).lines();
    let said = { lines.map_while(Result::ok) }.find(|line| line.starts_with("TAKEN") || line.starts_with("REFUSED"));
    if said.as_deref().is_none_or(|said| said.starts_with("REFUSED")) {
        return eprintln!("skipped: {said:?}");
    }
    let moved = differences(&before, &snapshot());
    assert!(moved.iter().any(|it| it.starts_with("thread")), "{moved:#?}");
    assert!(moved.iter().any(|it| it.contains("smp_affinity_list")), "{moved:#?}");
    // Killed with its guardian: only a recovery puts the machine back.
    wait_for_guardians(ledger);
    end(program.0, Way::KilledWithGuardians, ledger);
    let left = differences(&before, &snapshot());
    assert!(left.len() > moved.len() / 2, "{left:#?}");
    settle(&before, ledger, "after punctual doctor --restore");
    wait_until("nothing left", || !recovery::look(ledger).unwrap().has_leftovers());
}
