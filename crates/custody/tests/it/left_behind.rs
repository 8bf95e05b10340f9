//! Many processes change one machine, and end or are killed at random, with or without their guardians: those
//! that are left have what they want, and in the end the machine is as it was found.
//!
//! The test starts this binary again as children that share a ledger in a folder of the test. The machine is a folder
//! of ordinary files; which process does what is drawn from a seed.

#![cfg(target_os = "linux")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use punctual_custody::journal::Journal;
use punctual_custody::recovery::{self, RUN_SOCKET};
use punctual_testing::neighbours::{Way, draw, end, guardians, kill, rounds, wait_for_guardians};
use punctual_testing::{CHILD_MAX, TestChild, machine, wait_ok, wait_until};
use punctual_units::CoreId;

/// What the child is to do: the folder of the files, the core to take, the value to write.
const ORDER: &str = "PUNCTUAL_TEST_NEIGHBOUR";
const CORES: u32 = 6;
/// Processes at the same time.
const NEIGHBOURS: u64 = 5;

const FILES: [(&str, &str); 5] = [
    ("irq1", "0-5"),
    ("irq2", "1-2"),
    ("irq3", "4"),
    ("workqueue", "3f"),
    ("governor", "ondemand"),
];

/// The child's part; a test of its own name only when told so.
#[test]
fn child() {
    let Ok(order) = std::env::var(ORDER) else { return };
    let [folder, core, value] = order.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{order}")
    };
    let (file, core) = (|name: &str| Path::new(folder).join(name), CoreId(core.parse().unwrap()));
    let journal = Journal::open(true).unwrap();
    let machine: Vec<CoreId> = (0..CORES).map(CoreId).collect();
    match journal.claim(&[core], &machine) {
        Err(refusal) => println!("\nREFUSED {refusal}"),
        Ok(()) => {
            for irq in ["irq1", "irq2", "irq3"] {
                journal.keep_off_list(&file(irq), core).unwrap();
            }
            journal.keep_off_words(&file("workqueue"), core).unwrap();
            journal.write(&file("governor"), value).unwrap();
            println!("\nTAKEN {core}");
        }
    }
    // Ended by the test, by a signal or by the end of its input.
    let _ = std::io::stdin().read_line(&mut String::new());
    assert_eq!(journal.restore(), []);
}

fn snapshot(folder: &Path) -> BTreeMap<String, String> {
    let content = |name: &str| fs::read_to_string(folder.join(name)).unwrap().trim_end().to_owned();
    FILES
        .iter()
        .map(|(name, _)| ((*name).to_owned(), content(name)))
        .collect()
}

/// The files once none is empty. An ordinary file is so for a moment when it is written, and, where a process is killed
/// in that moment, until the next one recovers what the dead have left; the kernel's files are not.
fn written(files: &Path, ledger: &Path) -> BTreeMap<String, String> {
    let mut now = snapshot(files);
    wait_until("a content in every file", || {
        let whole = !now.values().any(String::is_empty);
        if !whole {
            recovery::restore(ledger).unwrap();
            now = snapshot(files);
        }
        whole
    });
    now
}

fn found() -> BTreeMap<String, String> {
    FILES
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect()
}

fn files() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in FILES {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

struct Neighbour {
    child: TestChild,
    /// The core that it has.
    core: Option<u32>,
}

fn start(files: &Path, ledger: &Path, core: u32, value: &str) -> Neighbour {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "left_behind::child", "--nocapture", "--test-threads=1"])
        .env(ORDER, format!("{} {core} {value}", files.display()))
        .env(recovery::FOLDER, ledger)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = punctual_testing::start(&mut command, CHILD_MAX).unwrap();
    let lines = BufReader::new(child.stdout().unwrap()).lines();
    let said = lines
        .map_while(Result::ok)
        .find(|line| line.starts_with("TAKEN") || line.starts_with("REFUSED"));
    let said = said.expect("the child ended before it said anything");
    if let Some(refusal) = said.strip_prefix("REFUSED ") {
        assert!(refusal.contains("claims core"), "{refusal}");
    }
    wait_for_guardians(ledger);
    Neighbour {
        child,
        core: said.starts_with("TAKEN").then_some(core),
    }
}

fn cores_in(content: &str, words: bool) -> BTreeSet<u32> {
    if words {
        let word = u32::from_str_radix(content, 16).unwrap();
        return (0..32).filter(|core| word >> core & 1 == 1).collect();
    }
    let list = punctual_platform::linux::cores::parse_list(content);
    list.into_iter().map(|core| core.0).collect()
}

/// Which lists have a core that a process has for itself.
fn trespasses(now: &BTreeMap<String, String>, claimed: &BTreeSet<u32>) -> Vec<String> {
    let lists = now.iter().filter(|(name, _)| *name != "governor");
    let bad = lists.filter(|(name, text)| !cores_in(text, *name == "workqueue").is_disjoint(claimed));
    bad.map(|(name, text)| format!("{name}: {text} has one of {claimed:?}"))
        .collect()
}

#[test]
fn in_whatever_order_processes_end_the_machine_is_in_the_end_as_it_was_found() {
    for round in 0..rounds() {
        let mut seed = u64::from(round);
        play_round(&mut seed, &format!("round {round}"));
    }
}

fn play_round(seed: &mut u64, round: &str) {
    let (files, ledger) = (files(), tempfile::tempdir().unwrap());
    let mut neighbours: Vec<Neighbour> = Vec::new();
    for _ in 0..2 * NEIGHBOURS {
        let full = neighbours.len() as u64 == NEIGHBOURS;
        if full || !neighbours.is_empty() && draw(seed, 3) == 0 {
            let at = draw(seed, neighbours.len() as u64) as usize;
            end(neighbours.swap_remove(at).child, Way::draw(seed), ledger.path());
        } else {
            let (core, value) = (draw(seed, u64::from(CORES)) as u32, format!("value{}", draw(seed, 9)));
            let claimed: BTreeSet<u32> = neighbours.iter().filter_map(|it| it.core).collect();
            let new = start(files.path(), ledger.path(), core, &value);
            assert!(
                new.core.is_none() || !claimed.contains(&core),
                "{round}: core {core} has two owners"
            );
            neighbours.push(new);
        }
        let claimed: BTreeSet<u32> = neighbours.iter().filter_map(|it| it.core).collect();
        let bad = trespasses(&written(files.path(), ledger.path()), &claimed);
        assert!(bad.is_empty(), "{round}: {bad:?}");
    }
    while let Some(last) = neighbours.pop() {
        end(last.child, Way::draw(seed), ledger.path());
    }
    let unchanged = || snapshot(files.path()) == found();
    if !unchanged() {
        // Guardians may be at work still, or dead: then it is the next start of anything that puts the machine back.
        wait_until(&format!("{round}: {:?}", snapshot(files.path())), || {
            let recovered = recovery::restore(ledger.path()).unwrap();
            assert_eq!(recovered.left, [], "{round}");
            unchanged()
        });
    }
}

/// So `punctual top` lists no dead process.
#[test]
fn a_process_that_is_killed_leaves_no_socket() {
    let (files, ledger) = (files(), tempfile::tempdir().unwrap());
    let neighbour = start(files.path(), ledger.path(), 1, "powersave");
    let socket = |process: u32| ledger.path().join(RUN_SOCKET.join(&process.to_string()));
    let [own, other] = [neighbour.child.id(), std::process::id()].map(socket);
    for path in [&own, &other] {
        drop(UnixListener::bind(path).unwrap());
    }
    end(neighbour.child, Way::Killed, ledger.path());
    wait_until("the guardian removes the socket", || !own.exists());
    assert!(other.exists(), "of another process");
}

/// As a guardian also ends where changes of a process that goes on could not be undone.
#[test]
fn a_process_that_lives_keeps_its_socket() {
    let (files, ledger) = (files(), tempfile::tempdir().unwrap());
    let socket = ledger.path().join(RUN_SOCKET.join(&std::process::id().to_string()));
    let _listener = UnixListener::bind(&socket).unwrap();
    let journal = Journal::open_in(ledger.path(), true).unwrap();
    wait_for_guardians(ledger.path());
    let file = files.path().join("governor");
    journal.write(&file, "powersave").unwrap();
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    drop(journal);
    wait_until("no guardian", || guardians(ledger.path()).is_empty());
    assert!(socket.exists());
}

#[test]
fn planted_fault_a_process_that_is_killed_with_its_guardian_leaves_the_machine_changed_until_it_is_restored() {
    let (files, ledger) = (files(), tempfile::tempdir().unwrap());
    let neighbour = start(files.path(), ledger.path(), 1, "powersave");
    end(neighbour.child, Way::KilledWithGuardians, ledger.path());
    let looked = recovery::look(ledger.path()).unwrap();
    assert!(looked.has_leftovers(), "{looked:?}");
    assert_eq!(snapshot(files.path())["governor"], "powersave");
    let restored = recovery::restore(ledger.path()).unwrap();
    assert_eq!((restored.left.len(), restored.undone.len()), (0, 4), "{restored:?}");
    assert_eq!(snapshot(files.path()), found());
    assert_eq!(
        recovery::restore(ledger.path()).unwrap(),
        recovery::RecoveryReport::default()
    );
}

/// Kills the guardian again and again; calls `replaced` after each kill, once there is another one.
fn kill_guardians(mut replaced: impl FnMut(Instant)) {
    let (files, ledger) = (files(), tempfile::tempdir().unwrap());
    let mut neighbour = start(files.path(), ledger.path(), 1, "powersave");
    for _ in 0..3 {
        let before = guardians(ledger.path());
        assert_eq!(before.len(), 1, "{before:?}");
        let killed = Instant::now();
        kill(before[0]);
        wait_until("another guardian", || {
            let now = guardians(ledger.path());
            now.len() == 1 && now != before
        });
        replaced(killed);
    }
    neighbour.child.kill().unwrap();
    neighbour.child.wait().unwrap();
    wait_until("the machine as it was", || snapshot(files.path()) == found());
    wait_until("no guardian", || guardians(ledger.path()).is_empty());
}

#[test]
fn a_guardian_that_dies_is_replaced() {
    kill_guardians(|_| ());
}

#[test]
#[ignore = "needs a quiet machine: .ci/nightly ignored"]
fn a_guardian_that_dies_is_replaced_within_a_second() {
    let _machine = machine();
    kill_guardians(|killed| assert!(killed.elapsed() < Duration::from_secs(1), "{:?}", killed.elapsed()));
}

#[test]
fn a_guardian_is_in_the_topmost_groups_where_it_may() {
    let (files, ledger) = (files(), tempfile::tempdir().unwrap());
    let _neighbour = start(files.path(), ledger.path(), 1, "powersave");
    // In a container the topmost group may be out of reach.
    let first = fs::read_to_string("/proc/1/cgroup").unwrap_or_default();
    let is_topmost = first
        .lines()
        .any(|line| line.contains(":pids:") && line.ends_with(":/"));
    let has_file = Path::new("/sys/fs/cgroup/pids/cgroup.procs").exists();
    let may_leave = has_file && is_topmost && recovery::is_superuser();
    // A guardian that has just begun is still in the groups of the process that started it.
    let below = wait_ok("it has left the pids group", || {
        let groups = fs::read_to_string(format!("/proc/{}/cgroup", guardians(ledger.path())[0])).unwrap();
        let below: Vec<String> = groups
            .lines()
            .filter(|line| !line.ends_with(":/"))
            .map(String::from)
            .collect();
        let is_left = may_leave && below.iter().any(|line| line.contains(":pids:"));
        if is_left { Err(below) } else { Ok(below) }
    });
    if !below.is_empty() {
        let controllers = below.iter().filter_map(|line| line.split(':').nth(1));
        eprintln!("skipped: refused by {:?}", controllers.collect::<Vec<_>>());
    }
}
