//! Whatever ends a process, the machine is as it was, on a quiet machine within a second.
//!
//! Each test starts this test binary again as a child that changes an emulated kernel tree, makes a temporary folder
//! and, where allowed, a real cgroup with a thread in it; then the child dies in one of many ways, and a checker
//! compares the machine with what it was. The planted fault is a child without a guardian.

#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use punctual_platform::linux::recovery;
use punctual_platform::linux::thread::Tid;
use punctual_platform::linux::{ClockPreference, KernelTree, LinuxMachine, LinuxOptions, cgroup};
use punctual_platform::{KnobId, Machine, Plan, Value};
use punctual_testing::{CHILD_MAX, TestChild, machine, shared_machine, wait_for};
use punctual_units::{Hertz, Share};

const ORDER: &str = "PUNCTUAL_TEST_ORDER";

/// How the child ends.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Killed,
    KilledWithOrphan,
    Interrupted,
    Panics,
    Aborts,
    ExitsAtOnce,
    Returns,
}

impl End {
    const ALL: [(&'static str, End); 7] = [
        ("killed", End::Killed),
        ("killed-with-orphan", End::KilledWithOrphan),
        ("interrupted", End::Interrupted),
        ("panics", End::Panics),
        ("aborts", End::Aborts),
        ("exits-at-once", End::ExitsAtOnce),
        ("returns", End::Returns),
    ];

    fn name(self) -> &'static str {
        End::ALL.iter().find(|(_, end)| *end == self).unwrap().0
    }

    fn signal(self) -> Option<libc::c_int> {
        match self {
            End::Killed | End::KilledWithOrphan => Some(libc::SIGKILL),
            End::Interrupted => Some(libc::SIGINT),
            _ => None,
        }
    }
}

/// The child's part; a test of its own name only when told so.
#[test]
fn child() {
    let Ok(order) = std::env::var(ORDER) else { return };
    let mut order = order.split(' ');
    let (end, guardian, tree) = (order.next().unwrap(), order.next().unwrap(), order.next().unwrap());
    let (_, end) = *End::ALL.iter().find(|(name, _)| *name == end).unwrap();
    let open = |tree, clock| {
        LinuxMachine::open(LinuxOptions {
            tree,
            clock,
            guardian: guardian == "guarded",
        })
        .unwrap()
    };
    let mut board = open(KernelTree::at(tree), ClockPreference::Auto);
    assert_eq!(board.guarded(), guardian == "guarded");
    board.apply(&Plan::of(KnobId::CLOCK, Value::Clock(Hertz::from_mhz(200))));
    let folder = board.temporary_dir(false).unwrap();
    fs::write(folder.join("scratch"), "scratch").unwrap();
    println!("\nMADE {}", folder.display());

    let mut real = open(KernelTree::default(), ClockPreference::None);
    let half = Plan::of(KnobId::BestEffortShare, Value::Share(Share::clamped(0.5)));
    if real.apply(&half).refused.is_empty() {
        let best_effort = real.best_effort();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            best_effort.adopt(Tid::current()).unwrap();
            tell.send(fs::read_to_string("/proc/thread-self/cgroup").unwrap())
                .unwrap();
            loop {
                std::thread::park();
            }
        });
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        println!(
            "MADE {}",
            cgroup::locate(&told.recv().unwrap(), &mounts).unwrap().folder.display()
        );
    } else {
        println!("SKIPPED the real cgroup: {:?}", real.refusals());
    }
    if end == End::KilledWithOrphan {
        fork_an_orphan();
    }
    println!("READY");
    match end {
        End::Killed | End::KilledWithOrphan | End::Interrupted => loop {
            std::thread::park();
        },
        End::Panics => panic!("as ordered"),
        End::Aborts => std::process::abort(),
        End::ExitsAtOnce => std::process::exit(0),
        End::Returns => {}
    }
}

/// A process that inherits every descriptor, also the guardian's pipe, and outlives the child.
fn fork_an_orphan() {
    // SAFETY: the forked process makes two plain system calls.
    unsafe {
        if libc::fork() == 0 {
            libc::sleep(10);
            libc::_exit(0);
        }
    }
}

/// All files under a folder.
type Snapshot = BTreeMap<PathBuf, String>;

fn snapshot(folder: &Path) -> Snapshot {
    let mut files = Snapshot::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let content = fs::read_to_string(&path).unwrap().trim_end().to_owned();
                files.insert(path, content);
            }
        }
    }
    files
}

/// The checker: what still differs from how the machine was found.
fn left_changed(before: &Snapshot, tree: &Path, made: &[PathBuf]) -> Vec<String> {
    let now = snapshot(tree);
    let differs = |path: &&PathBuf| before.get(*path) != now.get(*path);
    let files = before
        .keys()
        .filter(differs)
        .map(|path| format!("{} changed", path.display()));
    let folders = made
        .iter()
        .filter(|path| path.exists())
        .map(|path| format!("{} exists", path.display()));
    files.chain(folders).collect()
}

/// A board with cpufreq, in memory where possible.
fn board() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap();
    let policy = folder.path().join("sys/devices/system/cpu/cpufreq/policy0");
    fs::create_dir_all(&policy).unwrap();
    for (file, content) in [
        ("scaling_available_frequencies", "200000 600000 1400000"),
        ("cpuinfo_min_freq", "200000"),
        ("cpuinfo_max_freq", "1400000"),
        ("scaling_min_freq", "600000"),
        ("scaling_max_freq", "1400000"),
        ("scaling_available_governors", "ondemand userspace"),
        ("scaling_governor", "ondemand"),
        ("scaling_setspeed", "<unsupported>"),
        ("../../online", "0-1"),
    ] {
        fs::write(policy.join(file), format!("{content}\n")).unwrap();
    }
    folder
}

/// Starts a child, waits until it has changed everything, and returns it with the folders that it made.
fn start(end: End, guardian: &str, tree: &Path, ledger: &Path) -> (TestChild, Vec<PathBuf>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "put_back::child", "--nocapture", "--test-threads=1"])
        .env(ORDER, format!("{} {guardian} {}", end.name(), tree.display()))
        .env(recovery::FOLDER, ledger) // so that no other test recovers what is to be seen here
        .env("RUST_BACKTRACE", "0") // printing one takes longer than what is measured
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = punctual_testing::start(&mut command, CHILD_MAX).unwrap();
    let mut made = Vec::new();
    for line in BufReader::new(child.stdout().unwrap()).lines() {
        let line = line.unwrap();
        if let Some(what) = line.strip_prefix("SKIPPED ") {
            eprintln!("skipped {what}");
        }
        match line.strip_prefix("MADE ") {
            Some(path) => made.push(PathBuf::from(path)),
            None if line == "READY" => return (child, made),
            None => {}
        }
    }
    panic!("the child ended before it was ready");
}

/// A machine after the end of the child that changed it.
struct Left {
    tree: tempfile::TempDir,
    before: Snapshot,
    made: Vec<PathBuf>,
    _ledger: tempfile::TempDir,
}

impl Left {
    fn changed(&self) -> Vec<String> {
        left_changed(&self.before, self.tree.path(), &self.made)
    }
}

/// Starts the child and ends it.
fn run(end: End, guardian: &str) -> Left {
    let tree = board();
    let before = snapshot(tree.path());
    let ledger = tempfile::tempdir().unwrap();
    let (mut child, made) = start(end, guardian, tree.path(), ledger.path());
    if let Some(signal) = end.signal() {
        let left = left_changed(&before, tree.path(), &made);
        assert!(
            left.len() >= 4,
            "the child has changed the clock and made folders: {left:?}"
        );
        // SAFETY: plain numbers; the child has not been waited for, so its id is its own.
        unsafe { libc::kill(child.id() as libc::pid_t, signal) };
    }
    child.wait().unwrap();
    Left {
        tree,
        before,
        made,
        _ledger: ledger,
    }
}

/// The child also makes a real group, which tests that compare all groups must not meet.
fn is_put_back_after(end: End, guardian: &str) {
    let _machine = shared_machine();
    is_put_back(end, &run(end, guardian));
}

fn is_put_back(end: End, left: &Left) {
    wait_for(
        || format!("{}: {:?}", end.name(), left.changed()),
        || left.changed().is_empty().then_some(()),
    );
}

#[test]
fn after_a_kill() {
    is_put_back_after(End::Killed, "guarded");
}

#[test]
#[ignore = "needs a quiet machine: .ci/nightly ignored"]
fn within_a_second_of_a_kill() {
    let _machine = machine();
    for _ in 0..10 {
        let left = run(End::Killed, "guarded");
        let killed = Instant::now();
        is_put_back(End::Killed, &left);
        assert!(killed.elapsed() < Duration::from_secs(1), "{:?}", killed.elapsed());
    }
}

#[test]
fn after_a_kill_while_a_forked_process_holds_the_line() {
    is_put_back_after(End::KilledWithOrphan, "guarded");
}

#[test]
fn after_ctrl_c() {
    is_put_back_after(End::Interrupted, "guarded");
}

#[test]
fn after_a_panic() {
    is_put_back_after(End::Panics, "guarded");
}

#[test]
fn after_an_abort() {
    is_put_back_after(End::Aborts, "guarded");
}

#[test]
fn after_an_exit_without_destructors() {
    is_put_back_after(End::ExitsAtOnce, "guarded");
}

#[test]
fn after_a_return() {
    is_put_back_after(End::Returns, "guarded");
}

#[test]
fn destructors_alone_put_back_after_a_panic_and_a_return() {
    for end in [End::Panics, End::Returns] {
        is_put_back_after(end, "unguarded");
    }
}

#[test]
fn planted_fault_without_a_guardian_the_checker_sees_what_a_kill_leaves_changed() {
    let enabled = || {
        let text = |file| fs::read_to_string(file).unwrap_or_default();
        let group = cgroup::locate(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"));
        let control = group.map(|group| group.folder.join("cgroup.subtree_control"))?;
        let list = fs::read_to_string(&control).ok()?; // version 1 has none
        Some((control, list.split_whitespace().any(|it| it == "cpu")))
    };
    let _machine = shared_machine();
    let before = enabled();
    let machine = run(End::Killed, "unguarded");
    let (left, made) = (machine.changed(), &machine.made);
    assert!(left.iter().any(|what| what.contains("scaling_governor")), "{left:?}");
    for folder in made {
        assert!(
            left.iter().any(|what| what.contains(&folder.display().to_string())),
            "{left:?}"
        );
    }
    // Put back by hand what the fault left.
    for folder in made {
        if folder.join("scratch").exists() {
            fs::remove_dir_all(folder).unwrap();
        } else {
            fs::remove_dir(folder).unwrap();
        }
    }
    if let (Some((control, false)), Some((_, true))) = (before, enabled()) {
        fs::write(control, "-cpu").unwrap();
    }
}
