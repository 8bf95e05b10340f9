//! Measures the effect of an exclusive core on unrelated programs.
//!
//! The unrelated programs (*strangers*: short programs in a loop, whose failures are counted; and CPU-bound *hogs*) run
//! under three arms in turn:
//!
//! | arm         | cores of the strangers                           | the exclusive tasks   |
//! |-------------|--------------------------------------------------|-----------------------|
//! | `alone`     | all cores                                        | do not run            |
//! | `by-hand`   | all cores but the last (`taskset`)               | do not run            |
//! | `exclusive` | the cores that [`punctual_scenario::run`] leaves and lends | run; cores are lent to hogs, to programs if asked |
//!
//! `by-hand` is a setup that a careful engineer would choose without this project. The report has for each arm the work
//! per second, and its ratio to an equal share: work divided by the rest of the machine (all cores less the core time
//! of this process, or the cores that `by-hand` leaves), against the same quotient of `alone` in the same repetition.
//! After each arm the machine is compared with its state before the first. Many sleeping programs, in control groups of
//! their own, can be present all the time.

mod snapshot;
mod strangers;

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use punctual_os::LinuxOs;
use punctual_platform::linux::journal::Journal;
use punctual_platform::linux::{KernelTree, cores};
use punctual_runtime::RuntimeError;
use punctual_runtime::report::{Progress, Protection, Quantiles, RunReport};
use punctual_scenario::{RunError, RunRequest, run};
use punctual_units::{Clock, CoreId, Nanos};
use serde::Serialize;

pub use snapshot::{Difference, Snapshot};
pub use strangers::Stranger;
use strangers::{Crowd, Hog, LoopCounts, Looping};

use crate::stats::median;

/// Time between the start of the strangers and their first count.
const SETTLE: Duration = Duration::from_secs(1);
/// Interval at which `watch` is called to ask whether to go on.
const ASKED_EVERY: Duration = Duration::from_millis(100);

/// Configuration of a comparison.
#[derive(Clone, Debug)]
pub struct NeighboursPlan {
    /// The exclusive tasks; their duration must be that of each arm.
    pub request: RunRequest,
    /// Duration of each arm.
    pub lasts: Nanos,
    /// Number of runs of each arm.
    pub repetitions: u32,
    /// The short programs to run in a loop.
    pub strangers: Vec<Stranger>,
    /// Number of CPU-bound programs, in a control group of their own to which the cores are lent.
    pub hogs: u32,
    /// Whether the programs in a loop are in that group, too.
    pub lend_programs: bool,
    /// Whether the group shares the cores all the time, instead of borrowing them.
    pub shares: bool,
    /// Number of programs that sleep all the time.
    pub sleepers: u32,
    /// Number of control groups, with one of the sleepers in each.
    pub groups: u32,
}

/// A setup of the machine; the table above has the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    Alone,
    /// Strangers only, excluded from the last core by `taskset`.
    ByHand,
    Exclusive,
}

/// Results of one arm in one repetition.
#[derive(Clone, Debug, Serialize)]
pub struct ArmRun {
    pub arm: Arm,
    /// The repetition, from 1.
    pub repetition: u32,
    /// Mean number of cores that were left to strangers.
    pub left: f64,
    /// Core time of the hogs per second, in cores.
    pub hogs: f64,
    /// Results of each program in a loop.
    pub strangers: Vec<StrangerRun>,
    /// Figures of the exclusive tasks; `None` for the other arms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunFigures>,
    /// Differences from the machine before the first arm.
    pub differences: Vec<Difference>,
}

/// Results of a program in a loop.
#[derive(Clone, Debug, Serialize)]
pub struct StrangerRun {
    pub stranger: Stranger,
    /// Successful runs per second.
    pub per_second: f64,
    /// Number of successful runs.
    pub runs: u64,
    /// Core time of the program per second, in cores.
    pub cores: f64,
    /// Number of failed runs.
    pub failed: u64,
    /// Exit of the first failed run, and the last line of its output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<String>,
}

/// The figures of the exclusive tasks.
#[derive(Clone, Debug, Serialize)]
pub struct RunFigures {
    /// Number of jobs of all exclusive tasks.
    pub jobs: u64,
    /// Number of late jobs.
    pub late: u64,
    /// Share of the lent time that borrowers used, at least.
    pub used_share: Option<f64>,
    /// Time for which the cores were lent, in seconds.
    pub lent_s: f64,
    /// Time to take a core back, in microseconds.
    pub take_back_us: Option<Quantiles>,
    /// Lateness of an idle probe's wake-ups on the core, as median, p99 and maximum: the control of `take_back_us`.
    pub probe_us: Option<[f64; 3]>,
    /// Messages on how the core was protected, or why not.
    pub protection: Vec<String>,
}

/// The report of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct NeighboursReport {
    /// Duration of each arm, in seconds.
    pub seconds: f64,
    /// Number of failed runs of programs in a loop beside exclusive tasks.
    pub failed_links: u64,
    /// Number of failed runs under the other two arms: the control.
    pub failed_without: u64,
    /// Work of the hogs beside exclusive tasks, relative to an equal share of the rest: the median of the repetitions.
    pub hogs_share: Option<f64>,
    /// Work of each program in a loop, relative to an equal share.
    pub strangers: Vec<StrangerShare>,
    /// Work of the hogs beside exclusive tasks, divided by that under `by-hand`.
    pub hogs_over_by_hand: Option<f64>,
    /// Least used share of the lent time, of all repetitions.
    pub used_share: Option<f64>,
    /// Time to take a core back, in microseconds, in the worst repetition.
    pub take_back_us: Option<Quantiles>,
    /// The 99th percentile of that time minus the probe's, in the worst repetition, in microseconds.
    pub take_back_above_control_us: Option<f64>,
    /// Number of differences from the initial state, after all arms together.
    pub differences: usize,
    /// Messages about parts that were left out.
    pub notes: Vec<String>,
    /// Every arm of every repetition.
    pub arms: Vec<ArmRun>,
}

/// Work of a program in a loop beside exclusive tasks: medians of the repetitions.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StrangerShare {
    pub stranger: Stranger,
    /// Work of the program, relative to an equal share of the rest.
    pub share: Option<f64>,
    /// Core time of the program, relative to an equal share; where it exceeds `share`, a part of that time did not go
    /// into work.
    pub core_time_share: Option<f64>,
    /// Work of the program, divided by that under `by-hand`.
    pub over_by_hand: Option<f64>,
}

/// Reason why a comparison failed.
#[derive(Debug, thiserror::Error)]
pub enum NeighboursError {
    /// Running the exclusive tasks failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Starting the strangers failed.
    #[error("starting programs to compare: {0}")]
    Strangers(#[from] io::Error),
    /// All strangers were left out, so there is nothing to compare; the text has the reasons.
    #[error("{0}")]
    Nothing(String),
    /// The user interrupted the comparison.
    #[error("interrupted; the machine has been restored")]
    Interrupted,
}

/// Runs the comparison. Calls `watch` with the next step, and regularly with an empty text; it returns whether to go
/// on.
///
/// # Errors
/// [`NeighboursError`]; the machine has been restored.
pub fn compare(
    plan: &NeighboursPlan,
    watch: &mut dyn FnMut(&str) -> ControlFlow<()>,
) -> Result<NeighboursReport, NeighboursError> {
    let folder = tempfile::tempdir()?;
    let (mut notes, mut strangers) = (Vec::new(), Vec::new());
    for stranger in &plan.strangers {
        match stranger.prepare(&folder.path().join(stranger.name())) {
            Ok(()) => strangers.push(*stranger),
            Err(why) => notes.push(format!("{} left out: {why}", stranger.name())),
        }
    }
    if strangers.is_empty() && plan.hogs == 0 {
        return Err(NeighboursError::Nothing(notes.join("; ")));
    }
    let cores = cores::usable(&KernelTree::default());
    let mut ways = vec![Arm::Alone, Arm::Exclusive];
    match Command::new("taskset").arg("--version").output() {
        _ if cores.len() < 2 => notes.push("by-hand left out: there is one core only".into()),
        Err(why) => notes.push(format!("by-hand left out: taskset: {why}")),
        Ok(_) => ways.insert(1, Arm::ByHand),
    }
    let journal = Journal::open(true)
        .map_err(RuntimeError::from)
        .map_err(RunError::from)?;
    let crowd = Gathering::make(plan, folder.path(), &journal)?;
    let lends = match Group::make(&journal, "lent") {
        Ok(group) => group.remove(&journal).map(|()| plan.hogs > 0 || plan.lend_programs)?,
        Err(why) => {
            notes.push(format!("nothing is lent: {why}"));
            false
        }
    };
    let bench = Bench {
        plan,
        strangers,
        folder: folder.path(),
        cores,
        lends,
        journal,
        before: Snapshot::take(),
    };
    let mut arms = Vec::new();
    for repetition in 1..=plan.repetitions {
        for arm in ways.iter().copied() {
            let name = serde_json::to_string(&arm).unwrap_or_default();
            let what = format!("{repetition} of {}: {}", plan.repetitions, name.trim_matches('"'));
            if watch(&what).is_break() {
                return Err(NeighboursError::Interrupted);
            }
            arms.push(bench.run(arm, repetition, watch)?);
        }
    }
    crowd.leave(&bench.journal)?;
    Ok(NeighboursReport::of(plan.lasts.as_secs_f64(), arms, notes))
}

struct Bench<'b> {
    plan: &'b NeighboursPlan,
    strangers: Vec<Stranger>,
    folder: &'b Path,
    cores: Vec<CoreId>,
    /// Whether a group exists to which the cores are lent.
    lends: bool,
    journal: Journal,
    before: Snapshot,
}

/// Work that was done up to an instant.
#[derive(Clone, Debug)]
struct WorkTally {
    at: punctual_units::Time,
    own: Nanos,
    hogs: Nanos,
    loops: Vec<LoopCounts>,
}

impl Bench<'_> {
    fn run(
        &self,
        arm: Arm,
        repetition: u32,
        watch: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<ArmRun, NeighboursError> {
        let confined = self.confined(arm);
        let lends = arm == Arm::Exclusive && self.lends;
        let group = lends.then(|| Group::make(&self.journal, "lent")).transpose()?;
        let hogs = (0..self.plan.hogs).map(|hog| Hog::start(&self.folder.join(format!("hog-{hog}")), &confined));
        let hogs: Vec<Hog> = hogs.collect::<io::Result<_>>()?;
        if let Some(group) = &group {
            hogs.iter().try_for_each(|hog| group.take(hog.pid()))?;
        }
        let loops = self.strangers.iter().map(|stranger| {
            let folder = self.folder.join(stranger.name());
            Looping::start(*stranger, &folder, &confined)
        });
        let loops: Vec<Looping> = loops.collect::<io::Result<_>>()?;
        if let Some(group) = group.as_ref().filter(|_| self.plan.lend_programs) {
            loops.iter().try_for_each(|program| group.take(program.pid()))?;
        }
        std::thread::sleep(SETTLE);
        let tally = || WorkTally {
            at: LinuxOs.now(),
            own: own_core_time(),
            hogs: hogs.iter().map(Hog::used).sum(),
            loops: loops.iter().map(Looping::done).collect(),
        };
        let mut began = tally();
        let mut ended = began.clone();
        let mut report = None;
        match arm {
            Arm::Alone | Arm::ByHand => {
                let end = began.at + self.plan.lasts;
                while LinuxOs.now() < end {
                    std::thread::sleep(ASKED_EVERY);
                    if watch("").is_break() {
                        return Err(NeighboursError::Interrupted);
                    }
                }
                ended = tally();
            }
            Arm::Exclusive => {
                let mut request = self.plan.request.clone();
                let named = match self.plan.shares {
                    true => &mut request.neighbours.share_with,
                    false => &mut request.neighbours.lend_to,
                };
                named.extend(group.iter().map(|group| group.name.clone()));
                let mut watched = |progress: Progress<'_>| {
                    match progress {
                        Progress::Started(_) => began = tally(),
                        Progress::Sample(_) => ended = tally(),
                        _ => {}
                    }
                    watch("")
                };
                report = Some(run(&request, &mut watched)?.report);
                if watch("").is_break() {
                    return Err(NeighboursError::Interrupted);
                }
            }
        }
        let first_failures: Vec<Option<String>> = loops.iter().map(Looping::first_failure).collect();
        drop((hogs, loops));
        if let Some(group) = group {
            group.remove(&self.journal)?;
        }
        let after = Snapshot::take();
        let seconds = ended.at.since(began.at).as_secs_f64();
        let done = began.loops.iter().zip(&ended.loops).zip(first_failures);
        let strangers = self.strangers.iter().zip(done);
        let all = self.cores.len();
        Ok(ArmRun {
            arm,
            repetition,
            left: match arm {
                Arm::ByHand => all.saturating_sub(1) as f64,
                Arm::Alone | Arm::Exclusive => all as f64 - ended.own.saturating_sub(began.own).as_secs_f64() / seconds,
            },
            hogs: ended.hogs.saturating_sub(began.hogs).as_secs_f64() / seconds,
            strangers: strangers
                .map(|(stranger, ((before, after), failure))| {
                    StrangerRun::of(*stranger, *after - *before, failure, seconds)
                })
                .collect(),
            run: report.as_ref().map(RunFigures::of),
            differences: self.before.differences(&after),
        })
    }

    /// Shell command with which a program leaves the last core free, in the arm that does this by hand.
    fn confined(&self, arm: Arm) -> String {
        match (arm, self.cores.as_slice()) {
            (Arm::ByHand, [others @ .., _]) => {
                let others: Vec<String> = others.iter().map(CoreId::to_string).collect();
                format!("taskset -p -c {} $$ >/dev/null || exit 1; ", others.join(","))
            }
            _ => String::new(),
        }
    }
}

impl StrangerRun {
    fn of(stranger: Stranger, done: LoopCounts, first_failure: Option<String>, seconds: f64) -> StrangerRun {
        StrangerRun {
            stranger,
            per_second: done.runs as f64 / seconds,
            runs: done.runs,
            cores: done.used.as_secs_f64() / seconds,
            failed: done.failed,
            first_failure,
        }
    }
}

impl RunFigures {
    fn of(report: &RunReport) -> RunFigures {
        let worst = |pick: fn(&Quantiles) -> f64| {
            let all = report
                .lending
                .iter()
                .filter_map(|core| core.take_back_us.as_ref().map(pick));
            all.max_by(f64::total_cmp)
        };
        let quantiles = || Some((worst(|it| it.p50)?, worst(|it| it.p99)?, worst(|it| it.max)?));
        let used = report.lending.iter().filter_map(|core| core.used_share);
        RunFigures {
            jobs: report.tasks.iter().map(|task| task.jobs).sum(),
            late: report.tasks.iter().map(|task| task.late).sum(),
            used_share: used.min_by(f64::total_cmp),
            lent_s: report.lending.iter().map(|core| core.lent_s).sum(),
            take_back_us: quantiles().map(|(p50, p99, max)| Quantiles { p50, p99, max }),
            probe_us: report.summary.probe_us,
            protection: report.header.protection.iter().map(told).collect(),
        }
    }
}

impl NeighboursReport {
    fn of(seconds: f64, arms: Vec<ArmRun>, notes: Vec<String>) -> NeighboursReport {
        let of = |arm: Arm| arms.iter().filter(move |run| run.arm == arm);
        let failed = |run: &ArmRun| run.strangers.iter().map(|it| it.failed).sum::<u64>();
        let in_its_repetition = |arm: Arm, run: &ArmRun| of(arm).find(|other| other.repetition == run.repetition);
        let equal = |work: f64, left: f64, base: f64, all: f64| (base > 0.0).then(|| work / left * all / base);
        let hogs = of(Arm::Exclusive).filter_map(|run| {
            let alone = in_its_repetition(Arm::Alone, run)?;
            equal(run.hogs, run.left, alone.hogs, alone.left)
        });
        let found = |run: &ArmRun, stranger: Stranger, what: fn(&StrangerRun) -> f64| {
            let found = { run.strangers.iter() }.find(|it| it.stranger == stranger);
            found.map_or(0.0, what)
        };
        let per_second = |run: &ArmRun, stranger: Stranger| found(run, stranger, |it| it.per_second);
        let share_of = |stranger: Stranger| {
            let share = |what: fn(&StrangerRun) -> f64| {
                let shares = of(Arm::Exclusive).filter_map(|run| {
                    let alone = in_its_repetition(Arm::Alone, run)?;
                    let (work, base) = (found(run, stranger, what), found(alone, stranger, what));
                    equal(work, run.left, base, alone.left)
                });
                median(&shares.collect::<Vec<_>>())
            };
            let over = of(Arm::Exclusive).filter_map(|run| {
                let by_hand = per_second(in_its_repetition(Arm::ByHand, run)?, stranger);
                (by_hand > 0.0).then(|| per_second(run, stranger) / by_hand)
            });
            StrangerShare {
                stranger,
                share: share(|it| it.per_second),
                core_time_share: share(|it| it.cores),
                over_by_hand: median(&over.collect::<Vec<_>>()),
            }
        };
        let strangers = of(Arm::Exclusive).next().map_or(Vec::new(), |run| {
            run.strangers.iter().map(|it| share_of(it.stranger)).collect()
        });
        let over = of(Arm::Exclusive).filter_map(|run| {
            let by_hand = in_its_repetition(Arm::ByHand, run)?;
            (by_hand.hogs > 0.0).then(|| run.hogs / by_hand.hogs)
        });
        let runs = || of(Arm::Exclusive).filter_map(|run| run.run.as_ref());
        let take_back = runs().filter_map(|run| run.take_back_us);
        let above = runs().filter_map(|run| Some(run.take_back_us?.p99 - run.probe_us?[1]));
        NeighboursReport {
            seconds,
            failed_links: of(Arm::Exclusive).map(failed).sum(),
            failed_without: of(Arm::Alone).chain(of(Arm::ByHand)).map(failed).sum(),
            hogs_share: median(&hogs.collect::<Vec<_>>()),
            strangers,
            hogs_over_by_hand: median(&over.collect::<Vec<_>>()),
            used_share: runs().filter_map(|run| run.used_share).min_by(f64::total_cmp),
            take_back_us: take_back.max_by(|a, b| a.p99.total_cmp(&b.p99)),
            take_back_above_control_us: above.max_by(f64::total_cmp),
            differences: arms.iter().map(|run| run.differences.len()).sum(),
            notes,
            arms,
        }
    }
}

fn told(protection: &Protection) -> String {
    match &protection.refused {
        None => protection.what.clone(),
        Some(refusal) => format!("refused: {refusal}"),
    }
}

/// The core time of all threads of this process, ended ones included.
fn own_core_time() -> Nanos {
    // SAFETY: an all-zero value is valid, and the call fills it in.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time);
        time
    };
    Nanos::from_secs(time.tv_sec as u64) + Nanos(time.tv_nsec as u64)
}

/// The sleeping programs and their control groups.
struct Gathering {
    crowd: Option<Crowd>,
    groups: Vec<Group>,
}

impl Gathering {
    fn make(plan: &NeighboursPlan, folder: &Path, journal: &Journal) -> Result<Gathering, NeighboursError> {
        let groups = (0..plan.groups).map(|group| Group::make(journal, &group.to_string()));
        let groups: Vec<Group> = groups.collect::<Result<_, _>>()?;
        let folders: Vec<PathBuf> = groups.iter().map(|group| group.folder.clone()).collect();
        let sleepers = plan.sleepers.max(plan.groups);
        let crowd = (sleepers > 0).then(|| Crowd::start(&folder.join("crowd"), sleepers, &folders));
        Ok(Gathering {
            crowd: crowd.transpose()?,
            groups,
        })
    }

    fn leave(self, journal: &Journal) -> Result<(), NeighboursError> {
        drop(self.crowd);
        self.groups.into_iter().try_for_each(|group| group.remove(journal))
    }
}

/// A control group of programs; the journal removes it.
struct Group {
    folder: PathBuf,
    /// The group's name as `/proc/<pid>/cgroup` shows it.
    name: PathBuf,
}

impl Group {
    fn make(journal: &Journal, of: &str) -> Result<Group, NeighboursError> {
        let name = format!("punctual-neighbours-{}-{of}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/cpuset");
        let version_1 = first.is_dir();
        let root = if version_1 { first } else { Path::new("/sys/fs/cgroup") };
        let group = Group {
            folder: root.join(&name),
            name: Path::new("/").join(&name),
        };
        let made = journal.make_dir(&group.folder);
        made.map_err(RuntimeError::from).map_err(RunError::from)?;
        // A group that borrows cores needs explicit lists of cores (and of memory nodes in version 1).
        let lists: &[(&str, &str)] = match version_1 {
            true => &[("cpuset.cpus", "cpuset.cpus"), ("cpuset.mems", "cpuset.mems")],
            false => &[("cpuset.cpus", "cpuset.cpus.effective")],
        };
        for (list, from) in lists {
            fs::write(group.folder.join(list), fs::read_to_string(root.join(from))?)?;
        }
        Ok(group)
    }

    fn remove(self, journal: &Journal) -> Result<(), NeighboursError> {
        let left = journal.restore_below(&self.folder).pop();
        left.map_or(Ok(()), |left| Err(RunError::from(RuntimeError::from(left)).into()))
    }

    fn take(&self, pid: i32) -> io::Result<()> {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(arm: Arm, left: f64, hogs: f64, per_second: f64, failed: u64) -> ArmRun {
        let take_back_us = Some(Quantiles {
            p50: 40.0,
            p99: 140.0,
            max: 900.0,
        });
        ArmRun {
            arm,
            repetition: 1,
            left,
            hogs,
            strangers: vec![StrangerRun {
                stranger: Stranger::Link,
                per_second,
                runs: 7,
                cores: per_second / 20.0,
                failed,
                first_failure: None,
            }],
            run: (arm == Arm::Exclusive).then(|| RunFigures {
                jobs: 100,
                late: 1,
                used_share: Some(0.9),
                lent_s: 4.0,
                take_back_us,
                probe_us: Some([20.0, 100.0, 700.0]),
                protection: Vec::new(),
            }),
            differences: Vec::new(),
        }
    }

    #[test]
    fn shares_are_of_what_is_left() {
        let arms = vec![
            arm(Arm::Alone, 2.0, 1.0, 10.0, 1),
            arm(Arm::ByHand, 1.0, 0.5, 5.0, 0),
            arm(Arm::Exclusive, 1.6, 0.8, 4.0, 3),
        ];
        let report = NeighboursReport::of(10.0, arms, Vec::new());
        let near = |got: Option<f64>, want: f64| assert!((got.unwrap() - want).abs() < 1e-9, "{got:?}, {want}");
        near(report.hogs_share, 1.0);
        let [link] = report.strangers.as_slice() else {
            panic!("{:?}", report.strangers)
        };
        near(link.share, 0.5);
        near(link.core_time_share, 0.5);
        near(link.over_by_hand, 0.8);
        near(report.hogs_over_by_hand, 1.6);
        near(report.take_back_above_control_us, 40.0);
        assert_eq!(
            (report.failed_links, report.failed_without, report.differences),
            (3, 1, 0)
        );
    }
}
