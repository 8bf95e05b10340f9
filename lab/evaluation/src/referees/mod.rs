//! Measures an exclusive core with independent tools (*referees*), which this project did not write, with and without
//! the protection.
//!
//! `cyclictest` measures how late a real-time thread wakes, `oslat` the gaps in a loop that never sleeps (both are of
//! the rt-tests), `rt-app` how late a player of 24 frames per second wakes and whether each frame is done in its
//! period. Each runs pinned to the last core beside CPU-bound load on all cores, alternately without and with an
//! exclusive core: A, B, A, B. Command line, priority, and the placement of threads and load are the same on both
//! sides, so that they differ in the protection only (but for the main threads in a partition of cgroup version 2,
//! which has one core). The comparison is of one machine with itself, minutes apart at most; no figure is a bound.
//! `oslat` is a real-time loop that never sleeps. Where the kernel throttles such threads (`sched_rt_runtime_us`, 950
//! ms of each second unless changed), its largest gap is the throttling, on both sides.

mod tool;
mod verdict;

use std::io::Write;
use std::ops::ControlFlow;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use punctual_cores::first_set_apart;
use punctual_os::LinuxOs;
use punctual_platform::Neighbours;
use punctual_platform::linux::emulated::EmulatedClock;
use punctual_platform::linux::exclusive::{ExclusiveCore, Mechanism, spared};
use punctual_platform::linux::journal::Journal;
use punctual_platform::linux::thread::{self, Tid};
use punctual_platform::linux::{KernelTree, cores};
use serde::Serialize;

use self::tool::Setting;
pub use self::tool::{Referee, present};
pub use self::verdict::{Histogram, Latencies, Loops};
use super::beside::BesideError;
use super::beside::load::Load;

/// Turns of the inner loop of `rt-app`, in thousands, for timing the loop once: some milliseconds, and a small part of
/// its period.
const TIMED_TURNS: u64 = 500;

/// Results of one run of a tool.
#[derive(Clone, Debug, Serialize)]
pub struct RefereeRun {
    pub referee: Referee,
    /// The repetition, from 0.
    pub repetition: u32,
    /// Whether the core was exclusive.
    pub protected: bool,
    /// Latencies that the tool reported.
    pub verdict: Latencies,
    /// The protection that was obtained; `None`: a run without.
    pub protection: Option<String>,
}

/// Runs each tool `repetitions` times without and with the protection, for `seconds` each. Calls `say` before each run;
/// it returns whether to go on.
///
/// # Errors
/// [`BesideError`]; the machine has been restored except for what the error names.
pub fn hear(
    referees: &[Referee],
    repetitions: u32,
    seconds: u32,
    hogs_per_core: u32,
    say: &mut dyn FnMut(&str) -> ControlFlow<()>,
) -> Result<Vec<RefereeRun>, BesideError> {
    referees.iter().try_for_each(|referee| present(*referee))?;
    let (tree, journal, files) = (KernelTree::default(), Journal::open(true)?, Journal::open(true)?);
    let cores = cores::usable(&tree);
    let core = first_set_apart(&cores).unwrap_or_default();
    // Tries the protection first, so that a refusal is reported before any measurement.
    let neighbours = Neighbours {
        spare: spared(),
        ..Neighbours::default()
    };
    let tried = ExclusiveCore::take(&tree, &journal, core, &neighbours).map(drop);
    let left = journal.restore().pop();
    tried?;
    left.map_or(Ok(()), |left| Err(BesideError::NotPutBack(left)))?;
    let folder = files.temporary_dir(&std::env::temp_dir())?;
    let mut setting = Setting {
        core,
        other: cores.first().copied().unwrap_or(core),
        seconds,
        folder: &folder,
        thousand_turns_us: 0.0,
    };
    // Timed before any load disturbs it.
    if referees.contains(&Referee::RtApp) {
        setting.thousand_turns_us = thousand_turns_us(&setting)?;
    }
    let clock = Arc::new(EmulatedClock::of(&tree, &LinuxOs));
    let load = Load::start(hogs_per_core as usize * cores.len(), None, &clock)?;
    let mut runs = Vec::new();
    for repetition in 0..repetitions {
        for referee in referees {
            for protected in [false, true] {
                let what = format!(
                    "repetition {} of {repetitions}: {} {} the protection",
                    repetition + 1,
                    referee.program(),
                    if protected { "inside" } else { "outside" }
                );
                if say(&what).is_break() {
                    return Err(BesideError::Interrupted);
                }
                let heard = hear_once(*referee, &setting, protected, &tree, &journal, &load);
                if let Some(left) = journal.restore().pop() {
                    return Err(BesideError::NotPutBack(left));
                }
                let (verdict, protection) = heard?;
                runs.push(RefereeRun {
                    referee: *referee,
                    repetition,
                    protected,
                    verdict,
                    protection,
                });
            }
        }
    }
    Ok(runs)
}

fn hear_once(
    referee: Referee,
    setting: &Setting,
    protected: bool,
    tree: &KernelTree,
    journal: &Journal,
    load: &Load,
) -> Result<(Latencies, Option<String>), BesideError> {
    let mut spare = spared();
    spare.push(referee.program().into());
    // The core is not lent here, so it may have the best protection.
    let neighbours = Neighbours {
        spare,
        lend: false,
        ..Neighbours::default()
    };
    let exclusive = protected
        .then(|| ExclusiveCore::take(tree, journal, setting.core, &neighbours))
        .transpose()?;
    let mut off_the_core = Vec::new();
    for core in exclusive.iter() {
        for thread in load.threads() {
            off_the_core.push(core.lend_to(thread)?);
        }
    }
    let partition = exclusive.as_ref().is_some_and(|core| {
        let mechanism = core.obtained().mechanism;
        matches!(mechanism, Mechanism::IsolatedPartition | Mechanism::Partition)
    });
    let setting = &Setting {
        // A process in a partition has no other core, so its main thread shares the measured core.
        other: if partition { setting.core } else { setting.other },
        ..setting.clone()
    };
    let run = || {
        // A program inherits the control group of the thread that starts it.
        exclusive.iter().try_for_each(|core| core.enter(Tid::current()))?;
        start(referee, setting, &referee.input(setting))
    };
    let output = std::thread::scope(|scope| scope.spawn(run).join());
    let output = output.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let verdict = referee
        .verdict(setting, &String::from_utf8_lossy(&output.stdout))
        .map_err(|why| silent(referee, setting, &why, &output))?;
    Ok((verdict, exclusive.map(|core| core.obtained().to_string())))
}

/// Runs `referee` to its end; it inherits the affinity and the group of the calling thread.
fn start(referee: Referee, setting: &Setting, input: &str) -> Result<Output, BesideError> {
    if referee == Referee::RtApp {
        // Where pinning is refused, the main thread, which only sleeps, may be on any core.
        let _ = thread::pin(setting.other);
    }
    let run = || -> std::io::Result<Output> {
        let mut child = Command::new(referee.program())
            .args(referee.arguments(setting))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // A write error is ignored: a program that ended at once reports the reason in its output.
            let _ = stdin.write_all(input.as_bytes());
        }
        child.wait_with_output()
    };
    run().map_err(|why| BesideError::File {
        what: format!("running {}", referee.program()),
        why,
    })
}

/// The error for a tool that printed no figures; contains the first line of its output.
fn silent(referee: Referee, setting: &Setting, why: &str, output: &Output) -> BesideError {
    let [said, printed] = [&output.stderr, &output.stdout].map(|text| String::from_utf8_lossy(text));
    let said = said.lines().chain(printed.lines()).next().unwrap_or("nothing");
    BesideError::File {
        what: format!("running {} {}", referee.program(), referee.arguments(setting).join(" ")),
        why: std::io::Error::other(format!("it gave no figures ({why}) but said: {said}")),
    }
}

/// Time of a thousand turns of the loop of `rt-app` on the core, in microseconds: the shortest within a second.
fn thousand_turns_us(setting: &Setting) -> Result<f64, BesideError> {
    let once = Setting {
        seconds: 1,
        ..setting.clone()
    };
    let input = tool::rt_app(&once, TIMED_TURNS).to_string();
    let output = std::thread::scope(|scope| scope.spawn(|| start(Referee::RtApp, &once, &input)).join());
    let output = output.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let timed = tool::log(&once).and_then(|log| {
        let (run_us, turns) = verdict::rt_app_run(&log).ok_or("no loop is in its log")?;
        Ok(run_us * 1000.0 / turns)
    });
    timed.map_err(|why| silent(Referee::RtApp, &once, &why, &output))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_referee_that_says_nothing_is_quoted() {
        use std::os::unix::process::ExitStatusExt;
        let output = Output {
            status: std::process::ExitStatus::from_raw(256),
            stdout: Vec::new(),
            stderr: b"rt-app: no permission\nmore".to_vec(),
        };
        let setting = Setting {
            core: punctual_units::CoreId(1),
            other: punctual_units::CoreId(0),
            seconds: 1,
            folder: std::path::Path::new("/x"),
            thousand_turns_us: 9.0,
        };
        let told = silent(Referee::RtApp, &setting, "no log", &output).to_string();
        assert!(told.starts_with("running rt-app -: "), "{told}");
        assert!(
            told.contains("no log") && told.ends_with("rt-app: no permission"),
            "{told}"
        );
    }
}
