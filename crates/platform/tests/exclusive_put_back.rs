//! A core that was taken is given back after a kill: by the guardian, with every thread, interrupt and mask where it was.
//!
//! The test starts this binary again as a child that takes the last core for real; then the child is killed. Only one helper program
//! of ours is moved: everybody else is named as to be left alone.

#![cfg(target_os = "linux")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use punctual_platform::Machine;
use punctual_platform::linux::exclusive::SPARE;
use punctual_platform::linux::thread::Tid;
use punctual_platform::linux::{ClockPreference, LinuxMachine, LinuxOptions};

const ORDER: &str = "PUNCTUAL_TEST_CORE_FOR";
const HELPER: &str = "to-be-moved";
/// The promise is 1 s; a machine busy with other tests may take longer without the promise being broken by us.
const PATIENCE: Duration = Duration::from_secs(10);

/// The child's part; a test of its own name only when told so.
#[test]
fn child() {
    let Ok(helper) = std::env::var(ORDER) else { return };
    let machine = LinuxMachine::open(LinuxOptions {
        clock: ClockPreference::None,
        ..LinuxOptions::default()
    })
    .unwrap();
    let core = *machine.offers().cores.last().unwrap();
    match machine.exclusive_core(core) {
        Ok(exclusive) => {
            exclusive.confine(Tid(helper.parse().unwrap())).unwrap();
            println!("\nTAKEN {}", exclusive.obtained());
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        Err(refusal) => println!("\nREFUSED {refusal}"),
    }
}

/// A program that sleeps, ended with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
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
    let groups = fs::read_dir("/sys/fs/cgroup/cpuset").into_iter().flatten().flatten();
    let ours = groups.map(|entry| entry.path()).filter(|path| path.is_dir());
    let names: Vec<String> = ours
        .map(|path| path.display().to_string())
        .filter(|path| path.contains("-core-"))
        .collect();
    seen.insert("groups".into(), names.join(" "));
    seen
}

#[test]
fn after_a_kill_everything_is_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join(HELPER);
    fs::copy("/bin/sleep", &program).unwrap();
    let helper = Ended(Command::new(&program).arg("120").spawn().unwrap());
    let before = observed(helper.0.id());
    let mut child = Ended(start_child(helper.0.id()));
    let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let said = lines
        .map_while(Result::ok)
        .find(|line| line.starts_with("TAKEN") || line.starts_with("REFUSED"));
    let said = said.expect("the child ended before it said anything");
    eprintln!("{said}");
    if said.starts_with("REFUSED") {
        return;
    }
    assert_ne!(
        observed(helper.0.id())[Path::new("helper")],
        before[Path::new("helper")],
        "the helper was moved"
    );
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    let killed = Instant::now();
    while observed(helper.0.id()) != before {
        assert!(
            killed.elapsed() < PATIENCE,
            "{:#?}\nwas\n{before:#?}",
            observed(helper.0.id())
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    eprintln!("put back {:?} after the kill", killed.elapsed());
}

fn start_child(helper: u32) -> Child {
    let names: BTreeSet<String> = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.path().join("comm")).ok())
        .map(|name| name.trim_end().to_owned())
        .filter(|name| name != HELPER)
        .collect();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(ORDER, helper.to_string())
        .env(SPARE, names.into_iter().collect::<Vec<_>>().join(","))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}
