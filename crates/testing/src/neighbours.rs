//! What tests of several processes on one machine share: how they end, and waiting with a bound.

use std::fs;
use std::path::Path;

use punctual_custody::recovery;

use crate::{TestChild, campaign, wait_until};

/// The environment variable that says how many rounds to try.
const ROUNDS: &str = "PUNCTUAL_TEST_ROUNDS";

/// How many rounds to try: more in `.ci/nightly` and in a virtual machine.
pub fn rounds() -> u32 {
    std::env::var(ROUNDS).map_or_else(|_| campaign(8, 20), |rounds| rounds.parse().unwrap())
}

/// The guardians that have the ledger in `folder` mapped.
pub fn guardians(folder: &Path) -> Vec<i32> {
    let ledger = folder.join("ledger").display().to_string();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let guards = |pid: &i32| {
        let text = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        text("comm").trim_end() == "punctual-guard" && text("maps").contains(&ledger)
    };
    numbers.filter(guards).collect()
}

/// Waits until every living holder in that ledger has a guardian that is known by its name: it takes that as it first
/// runs.
pub fn wait_for_guardians(ledger: &Path) {
    wait_until("every guardian under its name", || {
        let holders = recovery::look(ledger).unwrap().holders;
        guardians(ledger).len() >= holders.iter().filter(|holder| holder.alive).count()
    });
}

pub fn kill(pid: i32) {
    // SAFETY: plain numbers.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// The next number of a sequence that a seed begins (the multiplier is Knuth's: The Art of Computer Programming,
/// section 3.3.4).
pub fn draw(seed: &mut u64, below: u64) -> u64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % below
}

fn all_stopped(process: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    let stat = |task: fs::DirEntry| fs::read_to_string(task.path().join("stat")).unwrap_or_default();
    { tasks }.map(stat).all(|stat| stat.contains(") T "))
}

/// How a process ends.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    Returns,
    Killed,
    /// And all guardians before it.
    KilledWithGuardians,
}

impl Way {
    pub fn draw(seed: &mut u64) -> Way {
        [Way::Returns, Way::Killed, Way::KilledWithGuardians][draw(seed, 3) as usize]
    }
}

/// Ends `child`, whose ledger is in that folder.
pub fn end(mut child: TestChild, way: Way, ledger: &Path) {
    match way {
        Way::Returns => drop(child.stdin()),
        Way::Killed => child.kill().unwrap(),
        Way::KilledWithGuardians => {
            // Stopped, so that it starts no other guardian in between.
            // SAFETY: plain numbers; the child has not been waited for.
            unsafe { libc::kill(child.id() as i32, libc::SIGSTOP) };
            wait_until("every thread stopped", || all_stopped(child.id()));
            guardians(ledger).into_iter().for_each(kill);
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
}
