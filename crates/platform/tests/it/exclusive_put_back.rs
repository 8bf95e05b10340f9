//! A core is taken, lent and given back for real; also after a kill: by the guardian, with every thread, interrupt and
//! mask where it was.
//!
//! The test starts this binary again as a child that takes the last core for real; then the child is killed. Only one
//! helper program of ours is moved: all others are named as to be left alone.

#![cfg(target_os = "linux")]

use crate::common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{ScopedChild, all_programs_but};
use punctual_platform::linux::exclusive::{ExclusiveCore, SPARE};
use punctual_platform::linux::journal::Journal;
use punctual_platform::linux::probe::{self, GapProbe};
use punctual_platform::linux::thread::{self, Tid};
use punctual_platform::linux::{ClockPreference, KernelTree, LinuxMachine, LinuxOptions, cores};
use punctual_platform::{Machine, Neighbours};
use punctual_testing::{CHILD_MAX, TestChild, machine, wait_for, wait_until};

const ORDER: &str = "PUNCTUAL_TEST_CORE_FOR";
/// Whether the child lends the core and takes it back without end.
const LENDING: &str = "PUNCTUAL_TEST_LENDING";
/// Kills in the middle of lending: each meets another moment.
const KILLS: usize = 5;
const HELPER: &str = "to-be-moved";

/// The child's part; a test of its own name only when told so.
#[test]
fn child() {
    if std::env::var_os(ORDER).is_none() {
        return;
    }
    let machine = LinuxMachine::open(LinuxOptions {
        clock: ClockPreference::None,
        ..LinuxOptions::default()
    })
    .unwrap();
    let core = *machine.offers().cores.last().unwrap();
    match machine
        .exclusive_cores(&[core], &Neighbours::default())
        .map(|mut cores| cores.remove(0))
    {
        Ok(exclusive) => {
            let _lendee = exclusive.lend_to(Tid::current()).unwrap();
            println!("\nTAKEN {}", exclusive.obtained());
            while std::env::var_os(LENDING).is_none() {
                std::thread::park();
            }
            loop {
                exclusive.lend().unwrap();
                exclusive.take_back().unwrap();
            }
        }
        Err(refusal) => println!("\nREFUSED {refusal}"),
    }
}

/// What taking a core changes on this machine.
fn observed(helper: u32) -> BTreeMap<PathBuf, String> {
    let read = |path: PathBuf| Some((path.clone(), fs::read_to_string(path).ok()?));
    let interrupts = fs::read_dir("/proc/irq").into_iter().flatten().flatten();
    let interrupts = interrupts.map(|entry| entry.path().join("smp_affinity_list"));
    let mut seen: BTreeMap<PathBuf, String> = interrupts
        .chain(["/sys/devices/virtual/workqueue/cpumask".into()])
        .filter_map(read)
        .collect();
    let status = fs::read_to_string(format!("/proc/{helper}/status")).unwrap_or_default();
    let allowed = status.lines().find(|line| line.starts_with("Cpus_allowed_list"));
    seen.insert("helper".into(), allowed.unwrap_or_default().into());
    let (mut groups, mut next) = (vec![PathBuf::from("/sys/fs/cgroup")], 0);
    while let Some(group) = groups.get(next) {
        let below = fs::read_dir(group).into_iter().flatten().flatten();
        let below: Vec<PathBuf> = below.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
        groups.extend(below);
        next += 1;
    }
    let shared = ["cgroup.subtree_control", "cpuset.cpus.exclusive"];
    seen.extend(
        groups
            .iter()
            .flat_map(|group| shared.map(|file| group.join(file)))
            .filter_map(read),
    );
    let names = groups.iter().map(|path| path.display().to_string());
    let ours: Vec<String> = names
        .filter(|path| path.contains("/punctual-pen") || path.contains("-core-"))
        .collect();
    seen.insert("groups".into(), ours.join(" "));
    seen
}

/// The program to be moved, under a name that no other has.
fn start_helper(folder: &Path) -> ScopedChild {
    let program = folder.join(HELPER);
    punctual_testing::copy_program(Path::new("/bin/sleep"), &program);
    let helper = ScopedChild(Command::new(&program).arg("120").spawn().unwrap());
    wait_for_its_name(&helper.0.id().to_string());
    helper
}

/// Until it has its own name it is taken for the program that starts it.
fn wait_for_its_name(pid: &str) {
    let comm = format!("/proc/{pid}/comm");
    wait_until("its own name", || {
        fs::read_to_string(&comm).is_ok_and(|name| name.trim_end() == HELPER)
    });
}

/// The program to be moved, started by a shell: a child of this process would be left alone.
struct Grandchild {
    _shell: ScopedChild,
    pid: String,
}

impl Grandchild {
    fn start(folder: &Path) -> Grandchild {
        let program = folder.join(HELPER);
        punctual_testing::copy_program(Path::new("/bin/sleep"), &program);
        let script = r#""$0" 120 >/dev/null & echo $!; wait"#;
        let mut shell = Command::new("sh");
        let mut shell = ScopedChild(
            shell
                .args(["-c", script])
                .arg(program)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap(),
        );
        let told = BufReader::new(shell.0.stdout.take().unwrap()).lines().next();
        let pid = told.unwrap().unwrap();
        wait_for_its_name(&pid);
        Grandchild { _shell: shell, pid }
    }
}

impl Drop for Grandchild {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", &self.pid]).status();
    }
}

#[test]
fn a_core_is_taken_lent_taken_back_and_given_back_or_refused_with_a_reason() {
    let _machine = machine();
    let folder = tempfile::tempdir().unwrap();
    let (tree, helper) = (KernelTree::default(), Grandchild::start(folder.path()));
    let core = *cores::usable(&tree).last().unwrap();
    let journal = Journal::alone().unwrap();
    let neighbours = Neighbours {
        spare: all_programs_but(HELPER),
        ..Neighbours::default()
    };
    let exclusive = match ExclusiveCore::take(&tree, &journal, core, &neighbours) {
        Ok(exclusive) => exclusive,
        Err(refusal) => {
            eprintln!("skipped taking a core: {refusal}");
            assert!(!refusal.remedy.is_empty());
            return;
        }
    };
    eprintln!("{}", exclusive.obtained());
    let helper_may_use_it = || {
        let status = fs::read_to_string(format!("/proc/{}/status", helper.pid)).unwrap();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        cores::parse_list(list.unwrap()).contains(&core)
    };
    assert!(!helper_may_use_it());
    match GapProbe::start_within(&exclusive, 90, probe::PERIOD) {
        Ok(probe) => assert_eq!(probe.core(), core),
        Err(refusal) => assert!(refusal.remedy.contains("CAP_SYS_NICE"), "{refusal}"),
    }
    let lendee = exclusive.lend_to(Tid::current()).unwrap();
    assert!(!thread::allowed_cores().contains(&core));
    exclusive.lend().unwrap();
    assert_eq!(thread::current_core(), Some(core), "a lendee is there at once");
    assert!(!helper_may_use_it(), "and no other thread");
    exclusive.take_back().unwrap();
    assert!(!thread::allowed_cores().contains(&core));
    drop(lendee);
    drop(exclusive);
    assert_eq!(journal.restore(), []);
    assert!(helper_may_use_it());
}

#[test]
fn after_a_kill_everything_is_where_it_was() {
    is_put_back_after_a_kill(false);
}

#[test]
fn after_a_kill_in_the_middle_of_lending_everything_is_where_it_was() {
    (0..KILLS).for_each(|_| is_put_back_after_a_kill(true));
}

fn is_put_back_after_a_kill(lending: bool) {
    let _machine = machine();
    let folder = tempfile::tempdir().unwrap();
    let helper = start_helper(folder.path());
    let before = observed(helper.0.id());
    let mut child = start_child(helper.0.id(), lending);
    let lines = BufReader::new(child.stdout().unwrap()).lines();
    let said = lines
        .map_while(Result::ok)
        .find(|line| line.starts_with("TAKEN") || line.starts_with("REFUSED"));
    let said = said.expect("the child ended before it said anything");
    if said.starts_with("REFUSED") {
        return eprintln!("skipped: {said}");
    }
    eprintln!("{said}");
    if lending {
        // Some leases, and then the kill at any moment of one.
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(
        lending || observed(helper.0.id())[Path::new("helper")] != before[Path::new("helper")],
        "the helper was moved"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for(
        || format!("{:#?}\nwas\n{before:#?}", observed(helper.0.id())),
        || (observed(helper.0.id()) == before).then_some(()),
    );
}

fn start_child(helper: u32, lending: bool) -> TestChild {
    let mut command = Command::new(std::env::current_exe().unwrap());
    if lending {
        command.env(LENDING, "1");
    }
    command
        .args([
            "--exact",
            "exclusive_put_back::child",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(ORDER, helper.to_string())
        .env(SPARE, all_programs_but(HELPER).join(","))
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    punctual_testing::start(&mut command, CHILD_MAX).unwrap()
}
