//! The report of a run: one value that the live view, the JSON file and the report page all read.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use punctual_cores::{Placement, Unfit};
use punctual_loop::{EventLog, ModeName};
use punctual_os::Scheduling;
pub use punctual_platform::Parts as EnergyParts;
use punctual_platform::{KnobId, Provenance, Refusal, Stay};
use punctual_units::{CoreId, Hertz, Share};
use punctual_workload::{Cause, ControllerKind, Goal, Part, Prices, TaskGoal, UpdateMode};
use serde::{Deserialize, Serialize};

/// A finished run, with its report.
#[derive(Clone, Debug)]
pub struct FinishedRun {
    /// Report of the run, complete.
    pub report: RunReport,
    /// Event log of the run, if requested.
    pub log: Option<EventLog>,
}

/// Everything that is known about one run. Its size does not depend on the length of the run.
///
/// All figures of [`tasks`](RunReport::tasks) and of the summary describe one span: from the end of the start-up
/// ([`RunHeader::settle_s`]) to the end of the run, unless a field says that it covers the whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// Configuration of the run, known before the first sample.
    #[serde(flatten)]
    pub header: RunHeader,
    /// Reports of the tasks with a deadline, in the order of the scenario.
    pub tasks: Vec<TaskReport>,
    /// Figures of all tasks together.
    pub summary: Summary,
    /// Reports of the pipeline's stages, in the order of the scenario, over the whole run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageReport>,
    /// How each exclusive core was lent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lending: Vec<LendingReport>,
    /// Settings of the machine that the run changed, or was refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SettingReport>,
    /// Instants that a user marked, in order; at most 1,000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<RunMark>,
    /// Number of steps of the loop in each of `samples`, except perhaps the last: 1, or more after a run so long that
    /// neighbours were merged.
    pub steps_per_sample: u64,
    /// The run over time, start-up included, in order; at most [`SAMPLES_MAX`](crate::samples::SAMPLES_MAX).
    pub samples: Vec<Sample>,
    /// Real-time jobs one by one, in the order of their ends, start-up included; the first
    /// [`JOBS_MAX`](crate::collector::JOBS_MAX). Not written to files.
    #[serde(skip)]
    pub jobs: Vec<FinishedJob>,
    /// Late jobs after the start-up, each with the index of its task in `tasks`; the first
    /// [`LATE_JOBS_MAX`](crate::collector::LATE_JOBS_MAX). Not written to files.
    #[serde(skip)]
    pub late_jobs: Vec<(usize, LateJob)>,
}

/// An instant that a user marked while the run went on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunMark {
    /// Time of the mark, in seconds since the start of the run.
    pub t_s: f64,
    /// Text of the user, perhaps empty.
    pub text: String,
}

/// Most things of a setting that a text or a viewer names; the report in JSON has all.
pub const NAMED_MAX: usize = 3;

/// A setting of the machine that the run changed, or that was refused to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SettingReport {
    /// Property or knob, as in "class and priority"; of a refused one the request.
    pub what: String,
    /// Threads, cores, groups and files that have the property; empty for knobs of the run.
    pub of: Vec<String>,
    /// Number of further ones, whose names a viewer of a run does not get.
    #[serde(default)]
    pub more: usize,
    /// Value before, which is restored at the end; of a knob the one at the start.
    pub before: String,
    /// Value that stands or, once `until_s` says so, stood.
    pub now: String,
    /// Time since which it stands, in seconds since the start of the run; infinite while it is only planned.
    pub since_s: f64,
    /// Time until which it stood; `None` if it does, or did to the end of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_s: Option<f64>,
    /// Names of the tasks for which it was made; of a knob all with a deadline.
    pub tasks: Vec<String>,
    /// Key of the file that asks for it, or the reason of the last decision.
    pub why: String,
    /// Why it was not obtained; `None` if it was.
    pub refused: Option<Refusal>,
    /// Jobs of `tasks` that ended while the setting stood, start-up included.
    pub jobs_with: u64,
    /// Of `jobs_with`, those that were late.
    pub late_with: u64,
    /// Jobs of `tasks` at any other time of the run.
    pub jobs_without: u64,
    /// Of `jobs_without`, those that were late.
    pub late_without: u64,
}

/// How one exclusive core was lent, over the whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LendingReport {
    /// Number of the exclusive core.
    pub core: CoreId,
    /// Number of times that the core was lent.
    pub leases: u64,
    /// Total time for which the core was lent, in seconds.
    pub lent_s: f64,
    /// Least share of the lent time in which the core ran something; `None` if it was never measured.
    pub used_share: Option<f64>,
    /// Time to take the core back: median, 99th percentile and maximum of the first 4096 leases, in microseconds.
    pub take_back_us: Option<Quantiles>,
    /// Number of leases that ended after the release for which the core was called back.
    pub late: u64,
}

/// Report on one stage, over the whole run.
///
/// A frame's tardiness at a stage is the time from its capture to the end of the step that took it, divided by the time
/// from its capture to its due time; above 1 it is late.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageReport {
    /// Name of the stage in the scenario.
    pub name: String,
    /// Goal: share of the stage's frames that may be late, 0 to 1; `None` without such a goal.
    pub goal_late: Option<f64>,
    /// Goal: mean tardiness; `None` without such a goal.
    pub goal_tardiness: Option<f64>,
    /// Frames that the stage took, without dropped ones.
    pub frames_taken: u64,
    /// Frames that the stage made, at all outputs.
    pub frames_made: u64,
    /// Frames that were dropped before the stage, because its edge was full or they were late.
    pub dropped: u64,
    /// Frames that the stage's program did not take, because it had ended.
    pub refused: u64,
    /// Frames that still waited before the stage when the run ended.
    pub left: u64,
    /// Of the frames taken, beside tasks after the start-up, those with a due time; and `missing` ones.
    pub timed: u64,
    /// Of the timed frames, those that were late.
    pub late: u64,
    /// Of `late`, frames that were not taken: dropped on their way to the stage, or past their due time and under way.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missing: u64,
    /// Mean tardiness of the timed frames that were taken; `None` without such a frame. A goal of a mean is about it.
    pub tardiness_mean: Option<f64>,
    /// Quantiles of the tardiness, at most one part in 16 above the true ones; the maximum is exact.
    pub tardiness: Option<Quantiles>,
    /// Number of processes that died while they owned the stage, or of restarts of its program.
    pub restarts: u64,
    /// Of these, processes killed because they stood still for longer than a step may take.
    pub hung: u64,
    /// Number of migrations and replacements.
    pub moves: u64,
    /// Core of the stage at the end; `None` if it stayed in the process of the run.
    pub core: Option<CoreId>,
    /// Number of steps done.
    pub steps: u64,
    /// Time in steps, in microseconds; for a program, the time spent feeding it.
    pub busy_us: f64,
    /// Whether the stage's program still ran when all was over, and was killed.
    pub killed: bool,
}

impl StageReport {
    /// Goal of the stage; `None` without one.
    pub fn goal(&self) -> Option<TaskGoal> {
        match (self.goal_late, self.goal_tardiness) {
            (Some(late), _) => Some(TaskGoal::Late(Share::clamped(late))),
            (None, mean) => mean.map(TaskGoal::Tardiness),
        }
    }
}

/// Median, 99th percentile and maximum of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Median of the distribution.
    pub p50: f64,
    /// 99th percentile of the distribution.
    pub p99: f64,
    /// Greatest value of the distribution.
    pub max: f64,
}

/// A real-time job that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FinishedJob {
    /// Index of its task in [`RunReport::tasks`].
    pub task: usize,
    /// Number of the job within its task.
    pub job: u64,
    /// Time of the job's end, in seconds since the start of the run.
    pub t_s: f64,
    /// Response time divided by the deadline.
    pub tardiness: f64,
}

/// Report on one task with a deadline. Figures are `None` if no job gave a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskReport {
    /// Name of the task in the scenario.
    pub name: String,
    /// Goal: share of jobs that may be late, 0 to 1; `None`: the goal is a mean tardiness.
    pub goal_late: Option<f64>,
    /// Goal: mean tardiness, instead of `goal_late`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal_tardiness: Option<f64>,
    /// Relative deadline, in microseconds.
    pub deadline_us: f64,
    /// Jobs that ended, and releases that were skipped or are overdue; failed jobs are counted separately. The states
    /// of a release are in [`crate::under_way`].
    pub jobs: u64,
    /// Of `jobs`, those that ended after the deadline, were skipped, or are overdue.
    pub late: u64,
    /// Share of late jobs: `late` / `jobs`.
    pub late_share: Option<f64>,
    /// Jobs that ended with an error.
    pub failed: u64,
    /// Releases without a job, because too many jobs were waiting; they count as late.
    pub skipped: u64,
    /// Of `late`, releases past their deadline whose job has not ended: under way, waiting, or never begun.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub overdue: u64,
    /// The oldest open job, if `overdue` or `skipped` count releases that wait behind it or are it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<OpenJob>,
    /// Events without a job of their own, because several were waiting; only for a task that events release. The job
    /// that served them counts from the first of them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub merged: u64,
    /// Events that came more than a gap too early; only for a task that events release. Their jobs count from the
    /// instant to which they were put off.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub put_off: u64,
    /// Late jobs that a gap of the probe on the same core explains; they still count as late.
    pub excused: u64,
    /// Response times, from release to end.
    pub response_us: Option<ResponseTimes>,
    /// Mean of response time / deadline.
    pub tardiness_mean: Option<f64>,
    /// Mean split of a job's response time.
    pub where_us: Option<WhereTimeWent>,
    /// Mean split of a late job's response time.
    pub where_late_us: Option<WhereTimeWent>,
    /// Mean split of the response time of a job that was on time.
    pub where_on_time_us: Option<WhereTimeWent>,
    /// Causes of lateness, the most frequent first; each of `late` is counted under one cause.
    #[serde(default)]
    pub causes: Vec<CauseReport>,
    /// The jobs that exceeded their deadline most, at most [`LATE_JOBS_MAX`](crate::causes::LATE_JOBS_MAX), the worst
    /// first, with the evidence.
    #[serde(default)]
    pub late_jobs: Vec<LateJob>,
    /// Jobs of the start-up, which the other figures exclude.
    pub start_up: StartUp,
    /// Response times on a logarithmic axis, ascending, without empty bins; the deadline is an edge.
    pub histogram: Vec<Bin>,
    /// Error message of the first failed job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<String>,
    /// How the task ended, if it ended before the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// A released job that has not ended, at the end of the run or at the moment of the report.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenJob {
    /// Time of the release, in seconds since the start of the run.
    pub released_s: f64,
    /// Time since the release, in microseconds.
    pub for_us: f64,
    /// Whether its thread has begun it; `None` if unknown, as on a simulated machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_begun: Option<bool>,
}

/// The late jobs of a task that have the same cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CauseReport {
    /// Cause of all these jobs.
    pub cause: Cause,
    /// Number of late jobs with this cause.
    pub jobs: u64,
    /// Of these, jobs that waited behind a job with the cause, and releases that were skipped behind one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub behind: u64,
    /// Share of these jobs among all late jobs, 0 to 1.
    pub share: f64,
    /// Mean time that each job lost by the cause, in microseconds; 0 for skipped releases. For jobs that have not
    /// ended: the time since the release of the oldest.
    pub us_mean: f64,
    /// Mean time that a job on time loses by the cause, in microseconds. `None` without such a job, and for throttled
    /// and stolen time, which are examined for late jobs only.
    pub usual_us: Option<f64>,
    /// The threads to blame, as far as they are known: of each job, the one that took most time. Those with the most
    /// jobs come first, at most [`NAMES_MAX`](crate::causes::NAMES_MAX).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<Culprit>,
}

/// A thread that delayed jobs; on a simulated machine, a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Culprit {
    /// Name of the thread, or of the task.
    pub name: String,
    /// Thread id; `None` on a simulated machine. If several threads share the name, the id of the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<i32>,
    /// Process id, if the thread belongs to another process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<i32>,
    /// Name of that process, if it still runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Scheduling policy of the thread, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Scheduling>,
    /// Activity of the thread while it held the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doing: Option<Activity>,
    /// Whether threads of several processes share the name: `thread` and `process` then describe the last one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub several: bool,
    /// Late jobs that the thread is to blame for; an upper bound if more threads were to blame than are counted by
    /// name.
    pub jobs: u64,
    /// Number of these jobs that may belong to other threads: the thread is to blame for at least `jobs - others`.
    #[serde(default)]
    pub others: u64,
    /// Total delay of the jobs that are certainly its own, in microseconds.
    pub us: f64,
}

impl Culprit {
    /// A thread of this name, to blame for one job.
    pub fn named(name: impl Into<String>) -> Culprit {
        Culprit {
            name: name.into(),
            jobs: 1,
            ..Culprit::default()
        }
    }
}

/// Activity of a thread for most of the time in which it held the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// Reading, writing and computing in its transaction.
    Working,
    /// Committing, but not waiting for the medium.
    Committing,
    /// Committing, and waiting for the medium.
    Syncing,
}

/// A late job, and the cause of its lateness.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LateJob {
    /// Number of the job within its task.
    pub job: u64,
    /// Time of release, in seconds since the start of the run.
    pub released_s: f64,
    /// Time from the deadline to the job's end, in microseconds.
    pub late_us: f64,
    /// The cause whose excess over the usual time made the job late.
    pub cause: Cause,
    /// Whether the cause is that of an earlier job, behind which this one waited.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub behind: bool,
    /// Time that the cause took, in microseconds; for a job behind another, the time until that one ended.
    pub us: f64,
    /// Time that the cause usually takes in a job on time, in microseconds. `None` without such a job, and for
    /// throttled and stolen time, which are examined for late jobs only.
    pub usual_us: Option<f64>,
    /// The threads to blame, as far as they are known, the longest delay first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<Culprit>,
    /// Response time split by cause, in microseconds; the parts add up to all of it.
    pub spans_us: BTreeMap<Cause, f64>,
    /// Page faults that had to wait for the medium; 0 if unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub major_faults: u64,
    /// Page faults that did not wait for the medium; 0 if unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub minor_faults: u64,
    /// Time that the hypervisor took from the core since the previous check, in microseconds, in ticks of 10 ms; `None`
    /// if unknown, as for a task on another core than the probe's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stolen_us: Option<f64>,
    /// Time that interrupts took from the core since the previous check, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupts_us: Option<f64>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl TaskReport {
    /// Goal of the task; the default if the report names none.
    pub fn goal(&self) -> TaskGoal {
        match (self.goal_late, self.goal_tardiness) {
            (Some(late), _) => TaskGoal::Late(Share::clamped(late)),
            (None, Some(mean)) => TaskGoal::Tardiness(mean),
            (None, None) => TaskGoal::default(),
        }
    }

    /// Mean tardiness of all `jobs`, at least: those without an end count by the time since the release of the oldest,
    /// and 1 for each other, since its deadline has passed. `None` without a job.
    pub fn tardiness_at_least(&self) -> Option<f64> {
        let without_end = self.skipped + self.overdue;
        let oldest = self
            .unfinished
            .map_or(0.0, |open| (open.for_us / self.deadline_us - 1.0).max(0.0));
        let ended = self.jobs.saturating_sub(without_end) as f64 * self.tardiness_mean.unwrap_or(0.0);
        (self.jobs > 0).then(|| (ended + without_end as f64 + oldest) / self.jobs as f64)
    }

    /// Share of jobs that were late or failed, 0 to 1; `None` without a job. The goal is judged by this share.
    pub fn missed_share(&self) -> Option<f64> {
        let all = self.jobs + self.failed;
        (all > 0).then(|| (self.late + self.failed) as f64 / all as f64)
    }
}

/// Response times of a task in microseconds, to three digits; the maximum is exact.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResponseTimes {
    /// Median: half of the jobs took no longer.
    pub p50: f64,
    /// 99 % of the jobs took no longer.
    pub p99: f64,
    /// 99.9 % of the jobs took no longer.
    pub p999: f64,
    /// Longest response time, exact.
    pub max: f64,
}

/// Parts of [`punctual_workload::Split`] in microseconds, which add up to the response time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WhereTimeWent {
    /// Time from the release to the first instruction.
    pub released_late: f64,
    /// Time after the first instruction in which the job was ready but not running.
    pub preempted: f64,
    /// Time spent waiting for the write lock.
    pub lock: f64,
    /// Time spent inside store calls.
    pub data: f64,
    /// Time of the job's own computation.
    pub computation: f64,
    /// Time spent committing the transaction.
    pub commit: f64,
}

impl WhereTimeWent {
    /// Value of the given part, in microseconds.
    pub const fn part(&self, part: Part) -> f64 {
        match part {
            Part::ReleasedLate => self.released_late,
            Part::Preempted => self.preempted,
            Part::Lock => self.lock,
            Part::Data => self.data,
            Part::Computation => self.computation,
            Part::Commit => self.commit,
        }
    }
}

/// Jobs of the start-up, which no other figure counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StartUp {
    /// Length of the start-up, in seconds.
    pub seconds: f64,
    /// Jobs that ended, and releases that were skipped.
    pub jobs: u64,
    /// Of `jobs`, those that were late.
    pub late: u64,
}

/// A bin of a histogram of response times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// Lower edge, in microseconds.
    pub from_us: f64,
    /// Upper edge, in microseconds.
    pub to_us: f64,
    /// Number of jobs in the bin.
    pub jobs: u64,
}

punctual_units::named! {
    /// Kind of machine that runs a scenario.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum PlatformChoice by name {
        /// The real machine, under Linux.
        Linux = "linux",
        /// A simulated machine, in simulated time.
        Sim = "sim",
    }
}

/// Configuration of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunHeader {
    /// Name of the scenario that ran.
    pub scenario: String,
    /// Kind of machine on which it ran.
    pub platform: PlatformChoice,
    /// Name of the machine model or host.
    pub machine: String,
    /// Seed of all random choices.
    pub seed: u64,
    /// Control law that decides.
    pub controller: ControllerKind,
    /// Set points, and the minimum of the fresh share.
    pub goal: Goal,
    /// Prices of energy and freshness, for `mimo` in place of the goal of drr.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
    /// Every knob, whether the machine offers it, and whether the controller used it.
    pub knobs: Vec<KnobReport>,
    /// Requested protections, and whether each was obtained.
    pub protection: Vec<Protection>,
    /// Scenario as compiled for this machine.
    pub load: LoadReport,
    /// Length of the start-up in seconds, which the figures exclude: warm-up, and the time that the loop has to settle.
    pub settle_s: f64,
}

impl RunHeader {
    /// How real `knob` is in this run; `None` if the machine does not offer it.
    pub fn offered(&self, knob: KnobId) -> Option<Provenance> {
        self.knobs.iter().find(|known| known.knob == knob)?.offered
    }
}

/// A knob of the machine, as reported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnobReport {
    /// Identity of the knob.
    pub knob: KnobId,
    /// How real the knob is; `None` if the machine does not offer it.
    pub offered: Option<Provenance>,
    /// Whether the controller of this run sets the knob.
    pub used: bool,
    /// Range of the knob, as text for people.
    pub range: String,
}

/// A protection that the run requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    /// Description, e.g. "analysis: SCHED_FIFO 80 on core 1".
    pub what: String,
    /// Why the protection was not obtained; `None` if it was.
    pub refused: Option<Refusal>,
    /// For an exclusive core: the programs that may still run there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stays: Vec<Stay>,
}

/// An entry for each exclusive task of `placement` that was refused a core; `names` are the names of all tasks.
pub fn refused(names: &[&str], placement: &Placement) -> Vec<Protection> {
    let one = |(task, why): &(usize, Unfit)| {
        let why = unfit(names, *why);
        let name = names.get(*task).copied().unwrap_or("a task");
        let refusal = Refusal {
            what: format!("an exclusive core for {name}"),
            why,
            remedy: "it runs as a real-time task; shorten it, give it more time, or run on a machine with more cores"
                .into(),
        };
        Protection {
            what: format!("{name}: on a core of its own or with other exclusive tasks"),
            refused: Some(refusal),
            stays: Vec::new(),
        }
    };
    placement.refused.iter().map(one).collect()
}

/// The result of an admission test, with the names of all tasks.
pub(crate) fn unfit(names: &[&str], why: Unfit) -> String {
    let Unfit::Response {
        task,
        response,
        deadline,
    } = why
    else {
        return why.to_string();
    };
    let late = names.get(task).copied().unwrap_or("a task");
    format!("with it, {late} can take {response} or more, its deadline is {deadline}")
}

/// The scenario as compiled for this machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Number of sensors, replicas included.
    pub sensors: u32,
    /// Number of copies of the trace.
    pub replicas: u32,
    /// Mean sensor updates offered per second.
    pub updates_per_s: f64,
    /// Path of updates to the store: memory first, or a transaction each.
    pub update_mode: UpdateMode,
    /// Cost of one update alone at full clock, in microseconds.
    pub update_us: f64,
    /// Cost of one `get` inside a transaction, alone at full clock, in nanoseconds.
    pub get_ns: f64,
    /// Top clock of the machine, in hertz.
    pub top_clock: Hertz,
}

/// A step of the loop, or several consecutive ones merged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Index of the sample, from 0.
    pub k: u64,
    /// Seconds since the start of the run.
    pub t_s: f64,
    /// Mean tardiness of the real-time jobs that finished in this window; `None` where none did.
    pub tardiness: Option<f64>,
    /// Mean data response ratio of the same jobs.
    pub drr: Option<f64>,
    /// Share of the offered updates that was admitted in this window (the knob, or more where the minimum forces it);
    /// the knob's position if none was offered.
    pub admitted_share: f64,
    /// Position of the admission knob in this window, set by the controller.
    pub admitted_knob: f64,
    /// Share of temporal objects that are fresh at the end of the window.
    pub fresh_share: f64,
    /// Pressure of the stage that the knobs are turned for: 1 at its goal, more beyond it; `None` without frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage_pressure: Option<f64>,
    /// Share of their cores that best-effort work might use in this window; `None` where that is not bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_effort_share: Option<f64>,
    /// Clock in force during the window, in hertz, or mean clock of its jobs if they are paced from within; `None` if
    /// the machine does not show it.
    pub clock_hz: Option<u64>,
    /// Energy drawn in the window, in joules; `None` without a meter.
    pub energy_j: Option<f64>,
    /// Temperature of the hottest thermal zone at the end of the window, in degrees Celsius; `None` without a meter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub celsius: Option<f64>,
    /// Real-time jobs that ended in this window, and releases that became late in it without an end
    /// ([`TaskReport::jobs`]); each release counts in one window.
    pub jobs: u32,
    /// Of `jobs`, those that are late.
    pub misses: u32,
    /// Real-time jobs of whose end the loop heard in this window: those behind `tardiness` and `drr`.
    #[serde(default)]
    pub ended: u32,
    /// Time of the decision, in microseconds; `None` on a simulated machine, whose decisions take no simulated time.
    pub decision_us: Option<f64>,
    /// Time of setting the knobs, in microseconds.
    pub actuation_us: Option<f64>,
    /// Busy share of each core in this window, 0 to 1.
    pub busy: Vec<f64>,
    /// Mode of the loop in this window.
    pub mode: ModeName,
    /// Reason for a fallback; `None` in any other mode.
    pub fallback: Option<String>,
}

/// Figures of all tasks together, over the span after the start-up. A figure is `None` if nothing gave a value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Jobs of the start-up, which the other figures exclude, over all tasks.
    pub start_up: StartUp,
    /// Real-time jobs that ended, and releases that were skipped or are overdue.
    pub jobs: u64,
    /// Of `jobs`, those that are late.
    pub misses: u64,
    /// Real-time jobs that ended with an error; not among `jobs`.
    pub failed: u64,
    /// Of `misses`, releases past their deadline whose job had not ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub overdue: u64,
    /// Late jobs that a gap of the probe on the same core explains.
    pub excused: u64,
    /// Releases without a job, because too many jobs were waiting.
    pub skipped: u64,
    /// Whether more than 1 % of the jobs were excused: the machine was too disturbed to conclude anything.
    pub inconclusive: bool,
    /// Mean tardiness over the jobs of all tasks.
    pub tardiness_mean: Option<f64>,
    /// 99th percentile of the tardiness of single jobs, to three digits.
    pub tardiness_p99: Option<f64>,
    /// Mean data response ratio.
    pub drr_mean: Option<f64>,
    /// Mean over the steps, 0 to 1.
    pub fresh_share_mean: Option<f64>,
    /// Least fresh share of any step after the start-up; earlier, not every sensor has reported.
    pub fresh_share_min: Option<f64>,
    /// Mean over the steps, 0 to 1.
    pub admitted_share_mean: Option<f64>,
    /// Mean clock, in hertz.
    pub clock_hz_mean: Option<f64>,
    /// Sensor updates by outcome.
    #[serde(flatten)]
    pub updates: UpdateTotals,
    /// Energy in joules; `None` without a meter.
    pub energy_j: Option<f64>,
    /// Energy by parts of the machine, in joules; simulated machine only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_parts_j: Option<EnergyParts>,
    /// Highest temperature of any thermal zone, in degrees Celsius; `None` without a meter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub celsius_max: Option<f64>,
    /// Best-effort jobs that finished.
    pub best_effort_jobs: u64,
    /// Time that the loop itself took.
    #[serde(flatten)]
    pub controller: ControllerCosts,
    /// Oversleep of the probe on the real-time core: median, p99 and maximum, in microseconds. It is the no-op control
    /// below which no latency of this run means anything. Over the whole run.
    pub probe_us: Option<[f64; 3]>,
    /// Host time in which the hypervisor ran something else, as a share of all cores' time, over the whole run.
    pub steal_share: Option<f64>,
    /// Cores with threads of this run that real-time threads of other processes filled, over the whole run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filled_cores: Vec<FilledCore>,
    /// Problems that were worked around, in order.
    pub notes: Vec<String>,
}

/// Sensor updates by outcome, over the whole run, so that they balance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UpdateTotals {
    /// Sensor updates that arrived.
    #[serde(rename = "updates_offered")]
    pub offered: u64,
    /// Sensor updates installed in the store.
    #[serde(rename = "updates_installed")]
    pub installed: u64,
    /// Sensor updates rejected by admission.
    #[serde(rename = "updates_shed")]
    pub shed: u64,
    /// Sensor updates overtaken by a newer one of the same sensor.
    #[serde(rename = "updates_superseded")]
    pub superseded: u64,
    /// Sensor updates that were admitted and not yet installed when the run ended.
    #[serde(rename = "updates_unfinished", default)]
    pub unfinished: u64,
    /// Sensor updates with none of these outcomes: must be 0, checked sensor by sensor.
    #[serde(rename = "updates_lost")]
    pub lost: u64,
    /// Sensors whose updates do not reconcile.
    pub sensors_unreconciled: u64,
}

/// Time that the loop itself took to decide and to change the clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ControllerCosts {
    /// Median decision time in microseconds, to three digits.
    pub decision_us_median: Option<f64>,
    /// Number of clock changes within jobs.
    #[serde(default)]
    pub clock_changes_within_jobs: u64,
    /// Median time from the job's checkpoint to the changed clock, in microseconds; Linux only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pacing_us_median: Option<f64>,
    /// CPU time of the control thread as a share of one core, over the whole run.
    #[serde(rename = "controller_core_share")]
    pub core_share: Option<f64>,
}

/// A core that real-time threads of another process filled, so that those of this run did not run there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FilledCore {
    /// Number of the core.
    pub core: CoreId,
    /// The thread that had most of it.
    pub by: Culprit,
    /// For how long, in seconds, as far as it was seen.
    pub seconds: f64,
}

/// Request of a user to the run that a view shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum UserRequest {
    /// Add a mark to the report.
    Mark(RunMark),
    /// Change the goal of the task with this name.
    Goal(String, TaskGoal),
}

/// News of a run while it runs.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A phase before or after the run proper, e.g. "calibrating".
    Stage(&'a str),
    /// The run proper begins.
    Started(&'a RunHeader),
    /// A step of the loop is complete.
    Sample(&'a Sample),
    /// Figures of each task so far; about twice per second.
    Tasks(&'a [TaskReport]),
    /// Question for requests of the user, about as often as all others together; a `Break` is ignored.
    Requests(&'a mut Vec<UserRequest>),
    /// Settings so far; as often as figures of tasks.
    Settings(&'a [SettingReport]),
    /// A note that the report has at its end, for the user now.
    Note(&'a str),
    /// Nothing new; several times per second on a real machine and about once per simulated second on a simulated one,
    /// so that a run can be ended between two samples.
    Waiting,
}

/// Callback that watches a run; `Break` ends it early, in order, with a report.
pub type Watch<'a> = &'a mut dyn FnMut(Progress<'_>) -> ControlFlow<()>;
