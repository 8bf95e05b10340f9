//! What a run tells: one value that the live view, the JSON file and the report page all read.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use punctual_cores::{Placement, Unfit};
use punctual_loop::{EventLog, ModeName};
use punctual_os::Scheduling;
pub use punctual_platform::Parts as EnergyParts;
use punctual_platform::{KnobId, Provenance, Refusal, Stay};
use punctual_units::{CoreId, Hertz, Share};
use punctual_workload::{Cause, ControllerKind, Goal, Part, TaskGoal, UpdateMode};
use serde::{Deserialize, Serialize};

/// A finished run.
#[derive(Clone, Debug)]
pub struct Finished {
    /// What it tells.
    pub report: RunReport,
    /// The log, where one was asked for.
    pub log: Option<EventLog>,
}

/// Everything about one run. Its size does not depend on how long the run was.
///
/// All figures of [`tasks`](RunReport::tasks) and of the summary are of one span: from the end of the start-up
/// ([`RunHeader::settle_s`]) to the end of the run, except where a field says that it is of the whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// What ran where, known before the first sample.
    #[serde(flatten)]
    pub header: RunHeader,
    /// One per task with a deadline, in the order of the scenario.
    pub tasks: Vec<TaskReport>,
    /// The run in a few figures.
    pub summary: Summary,
    /// One per stage of the scenario's pipeline, in the order of the scenario, over the whole run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageReport>,
    /// What became of lending each exclusive core.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lending: Vec<LendingReport>,
    /// Steps of the loop in each of `samples`, except perhaps the last: 1, or more in a run so long that neighbours
    /// became one.
    pub steps_per_sample: u64,
    /// The course of the run, start-up included, in order; at most [`SAMPLES_MAX`](crate::samples::SAMPLES_MAX).
    pub samples: Vec<Sample>,
    /// Real-time jobs one by one, in the order of their ends, start-up included; the first
    /// [`JOBS_MAX`](crate::collector::JOBS_MAX). Not in files.
    #[serde(skip)]
    pub jobs: Vec<FinishedJob>,
}

/// What became of lending one exclusive core, over the whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LendingReport {
    /// Which core.
    pub core: CoreId,
    /// How often it was lent.
    pub leases: u64,
    /// For how long in all, in seconds.
    pub lent_s: f64,
    /// The part of the leases in which the core ran something, at least; none where no look was taken.
    pub used_share: Option<f64>,
    /// What taking it back took: median, 99th percentile and maximum of the first 4096 leases, in microseconds.
    pub take_back_us: Option<Quantiles>,
    /// Leases that ended after the release for which the core was called back.
    pub late: u64,
}

/// What became of one stage, over the whole run.
///
/// A frame's tardiness at a stage is the time from its capture to the end of the step that took it, over the time from
/// its capture to its due time; above 1 it is late.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageReport {
    /// The stage's name.
    pub name: String,
    /// The share of the frames that it takes which may be late, 0 to 1, where that is asked.
    pub goal_late: Option<f64>,
    /// The mean tardiness that is asked for, where one is.
    pub goal_tardiness: Option<f64>,
    /// Frames that it took, dropped ones left out.
    pub frames_taken: u64,
    /// Frames that it made, at all outputs.
    pub frames_made: u64,
    /// Frames that were dropped before it, because its edge was full or they were late.
    pub dropped: u64,
    /// Frames that its program did not take, because it had ended.
    pub refused: u64,
    /// Of the frames that it took, those with a due time; the following figures are of these.
    pub timed: u64,
    /// Of these, late.
    pub late: u64,
    /// Their mean tardiness; `None` without such a frame.
    pub tardiness_mean: Option<f64>,
    /// Their tardiness, at most one part in 16 above the true one; the maximum is exact.
    pub tardiness: Option<Quantiles>,
    /// Processes that died while they had it, or programs that were started again.
    pub restarts: u64,
    /// Moves and replacements.
    pub moves: u64,
    /// The core that it was on at the end; `None` where it stayed in the process of the run.
    pub core: Option<CoreId>,
    /// Steps.
    pub steps: u64,
    /// Time in steps, in microseconds; of a program, that of feeding it.
    pub busy_us: f64,
    /// Whether its program went on when all was over, and was killed.
    pub killed: bool,
}

impl StageReport {
    /// What is asked of it.
    pub fn goal(&self) -> Option<TaskGoal> {
        match (self.goal_late, self.goal_tardiness) {
            (Some(late), _) => Some(TaskGoal::Late(Share::clamped(late))),
            (None, mean) => mean.map(TaskGoal::Tardiness),
        }
    }
}

/// A distribution in three figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The maximum.
    pub max: f64,
}

/// A real-time job that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FinishedJob {
    /// When, in seconds since the start of the run.
    pub t_s: f64,
    /// Response time over deadline.
    pub tardiness: f64,
}

/// What became of one task with a deadline. Its figures are none where no job gave one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskReport {
    /// The task's name.
    pub name: String,
    /// The share of its jobs that may be late, 0 to 1; `None` where a mean tardiness is asked for.
    pub goal_late: Option<f64>,
    /// The mean tardiness that is asked for, instead of `goal_late`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal_tardiness: Option<f64>,
    /// The relative deadline, in microseconds.
    pub deadline_us: f64,
    /// Jobs that ended, and releases that were skipped; failed jobs are counted apart.
    pub jobs: u64,
    /// Of those, late: ended after the deadline, or skipped.
    pub late: u64,
    /// `late` / `jobs`.
    pub late_share: Option<f64>,
    /// Jobs that ended with an error.
    pub failed: u64,
    /// Releases without a job, because too many jobs were waiting; they count as late.
    pub skipped: u64,
    /// Of a task that events release: events without a job of their own, because several were waiting. They are no
    /// jobs: the one that served them counts from the first of them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub merged: u64,
    /// Of a task that events release: events that came more than a gap too early. Their jobs count from the instant to
    /// which they were put off.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub put_off: u64,
    /// Late jobs that a gap of the probe on the same core explains; they count as late.
    pub excused: u64,
    /// Response times, from release to end.
    pub response_us: Option<ResponseTimes>,
    /// Mean of response time / deadline.
    pub tardiness_mean: Option<f64>,
    /// Where a job's time goes, on average.
    pub where_us: Option<WhereTimeWent>,
    /// Where a late job's time goes, on average.
    pub where_late_us: Option<WhereTimeWent>,
    /// Where the time of a job on time goes, on average.
    pub where_on_time_us: Option<WhereTimeWent>,
    /// Why late jobs were late: each of `late` is counted under one cause, the most frequent first.
    #[serde(default)]
    pub causes: Vec<CauseReport>,
    /// The late jobs that exceeded their deadline most, at most [`LATE_JOBS_MAX`](crate::causes::LATE_JOBS_MAX), the
    /// worst first, with the evidence.
    #[serde(default)]
    pub late_jobs: Vec<LateJob>,
    /// What the figures leave out.
    pub start_up: StartUp,
    /// Response times on a logarithmic axis, ascending, without empty bins; the deadline is an edge.
    pub histogram: Vec<Bin>,
    /// What the first job that failed said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<String>,
    /// How the task ended, where it ended before the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// The late jobs of a task that have one cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CauseReport {
    /// The cause.
    pub cause: Cause,
    /// How many late jobs have it.
    pub jobs: u64,
    /// Their part of all late jobs, 0 to 1.
    pub share: f64,
    /// What the cause took of each on average, in microseconds; 0 for skipped releases.
    pub us_mean: f64,
    /// What it takes of a job that ends in time, in microseconds; `None` where there was no such job, and for
    /// throttled and stolen time, for which only late jobs are looked into.
    pub usual_us: Option<f64>,
    /// The threads that are to blame, as far as they are known: the one of each job that took most of it, those with
    /// the most jobs first, at most [`NAMES_MAX`](crate::causes::NAMES_MAX).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<Culprit>,
}

/// A thread that kept jobs from going on; of a simulated machine, a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Culprit {
    /// Its name.
    pub name: String,
    /// The thread's number, where it has one; of several threads of this name, that of the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<i32>,
    /// Its process, where that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<i32>,
    /// As what it ran, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Scheduling>,
    /// What it did with the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doing: Option<Doing>,
    /// Whether threads of several processes have this name: `thread` and `process` are those of the last one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub several: bool,
    /// Late jobs that it is to blame for; at most, where more threads were to blame than are counted by name.
    pub jobs: u64,
    /// So many of these jobs may be other threads': it is to blame for `jobs - others` at least.
    #[serde(default)]
    pub others: u64,
    /// For how long it kept those that are surely its own, in microseconds in sum.
    pub us: f64,
}

impl Culprit {
    /// A thread of this name, of one job.
    pub fn named(name: impl Into<String>) -> Culprit {
        Culprit {
            name: name.into(),
            thread: None,
            process: None,
            scheduling: None,
            doing: None,
            several: false,
            jobs: 1,
            others: 0,
            us: 0.0,
        }
    }
}

/// What a thread did for most of the time for which it held the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// Reading, writing and computing in its transaction.
    Working,
    /// Committing, without waiting for the medium.
    Committing,
    /// Committing, and waiting for the medium.
    Syncing,
}

/// A late job, and why it was late.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LateJob {
    /// Its number within the task.
    pub job: u64,
    /// When it was released, in seconds since the start of the run.
    pub released_s: f64,
    /// How long after its deadline it ended, in microseconds.
    pub late_us: f64,
    /// What took so much more than usual that it was late.
    pub cause: Cause,
    /// How long that took, in microseconds.
    pub us: f64,
    /// How long it usually takes in a job that ends in time; `None` where there was no such job, and for
    /// throttled and stolen time, for which only late jobs are looked into.
    pub usual_us: Option<f64>,
    /// The threads that are to blame, as far as they are known, the longest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<Culprit>,
    /// All of its response time, cause by cause, in microseconds.
    pub spans_us: BTreeMap<Cause, f64>,
    /// Pages that it had to wait for; 0 where that is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub major_faults: u64,
    /// Pages that it did not have to wait for; 0 where that is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub minor_faults: u64,
    /// What the hypervisor took from the core since it was looked at before, in microseconds, in ticks of 10 ms; `None`
    /// where that is not known, as for a task on another core than the probe's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stolen_us: Option<f64>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl TaskReport {
    /// What the task asks for.
    pub fn goal(&self) -> TaskGoal {
        match (self.goal_late, self.goal_tardiness) {
            (Some(late), _) => TaskGoal::Late(Share::clamped(late)),
            (None, Some(mean)) => TaskGoal::Tardiness(mean),
            (None, None) => TaskGoal::default(),
        }
    }

    /// The share of jobs that were late or failed, 0 to 1; `None` without a job. The goal is judged by it.
    pub fn missed_share(&self) -> Option<f64> {
        let all = self.jobs + self.failed;
        (all > 0).then(|| (self.late + self.failed) as f64 / all as f64)
    }
}

/// Response times of a task in microseconds, to three digits; the maximum is exact.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResponseTimes {
    /// Half of the jobs took no longer.
    pub p50: f64,
    /// 99 % of the jobs took no longer.
    pub p99: f64,
    /// 99.9 % of the jobs took no longer.
    pub p999: f64,
    /// The longest one.
    pub max: f64,
}

/// The parts of [`punctual_workload::Split`] in microseconds, which add up to the response time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WhereTimeWent {
    /// From the release to the first instruction.
    pub released_late: f64,
    /// Begun and ready, but not running.
    pub preempted: f64,
    /// Waiting for the write lock.
    pub lock: f64,
    /// Inside store calls.
    pub data: f64,
    /// The job's own computation.
    pub computation: f64,
    /// Committing.
    pub commit: f64,
}

impl WhereTimeWent {
    /// One part.
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
    /// How long it was.
    pub seconds: f64,
    /// Jobs that ended, and releases that were skipped.
    pub jobs: u64,
    /// Of those, late.
    pub late: u64,
}

/// A bin of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// Its lower edge in microseconds.
    pub from_us: f64,
    /// Its upper edge in microseconds.
    pub to_us: f64,
    /// Jobs in it.
    pub jobs: u64,
}

/// Which machine runs a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlatformChoice {
    /// This one.
    Linux,
    /// The simulated one.
    Sim,
}

impl PlatformChoice {
    /// The platform's name in reports and models.
    pub const fn name(self) -> &'static str {
        match self {
            PlatformChoice::Linux => "linux",
            PlatformChoice::Sim => "sim",
        }
    }
}

/// What ran where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunHeader {
    /// The scenario's name.
    pub scenario: String,
    /// On which kind of machine.
    pub platform: PlatformChoice,
    /// The machine's name.
    pub machine: String,
    /// The seed of everything that is drawn.
    pub seed: u64,
    /// The law that decides.
    pub controller: ControllerKind,
    /// Set points and minimum.
    pub goal: Goal,
    /// What could be turned, and what was.
    pub knobs: Vec<KnobReport>,
    /// What protection was asked for, and whether it was obtained.
    pub protection: Vec<Protection>,
    /// What was compiled for this machine.
    pub load: LoadReport,
    /// Seconds of start-up, which the figures leave out: warm-up, and the time that the loop has to settle.
    pub settle_s: f64,
}

impl RunHeader {
    /// How real `knob` is in this run; `None` where it is not offered.
    pub fn offered(&self, knob: KnobId) -> Option<Provenance> {
        self.knobs.iter().find(|known| known.knob == knob)?.offered
    }
}

/// One knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnobReport {
    /// Which one.
    pub knob: KnobId,
    /// How real it is; `None` where the machine does not offer it.
    pub offered: Option<Provenance>,
    /// Whether the controller of this run turns it.
    pub used: bool,
    /// Its range, for people.
    pub range: String,
}

/// One protection that the run asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    /// E.g. "analysis: SCHED_FIFO 80 on core 1".
    pub what: String,
    /// Why it was not obtained; `None` where it was.
    pub refused: Option<Refusal>,
    /// Of an exclusive core: the programs that may still run there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stays: Vec<Stay>,
}

/// One line for each exclusive task of `placement` that is refused a core; `names` are those of the tasks.
pub fn refused(names: &[&str], placement: &Placement) -> Vec<Protection> {
    let name = |task: usize| names.get(task).copied().unwrap_or("a task");
    let one = |(task, why): &(usize, Unfit)| {
        let why = match *why {
            Unfit::Response {
                task: late,
                response,
                deadline,
            } => {
                let late = name(late);
                format!("with it, {late} can take {response} or more, its deadline is {deadline}")
            }
            why => why.to_string(),
        };
        let name = name(*task);
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

/// What the scenario became on this machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Sensors, replicas included.
    pub sensors: u32,
    /// Copies of the trace.
    pub replicas: u32,
    /// Mean sensor updates offered per second.
    pub updates_per_s: f64,
    /// How updates reach the store.
    pub update_mode: UpdateMode,
    /// What one update costs alone at full clock, in microseconds.
    pub update_us: f64,
    /// What one get inside a transaction costs alone at full clock, in nanoseconds.
    pub get_ns: f64,
    /// The top clock of the machine.
    pub top_clock: Hertz,
}

/// One step of the loop, or several that follow each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Counts up from 0.
    pub k: u64,
    /// Seconds since the start of the run.
    pub t_s: f64,
    /// Mean tardiness of the real-time jobs that finished in this window; `None` where none did.
    pub tardiness: Option<f64>,
    /// Mean data response ratio of the same jobs.
    pub drr: Option<f64>,
    /// Share of the offered updates that was admitted in this window (the knob, or more where the minimum forces it);
    /// the knob's position where none was offered.
    pub admitted_share: f64,
    /// Where the controller put the knob for this window.
    pub admitted_knob: f64,
    /// Share of temporal objects that are fresh at the end of the window.
    pub fresh_share: f64,
    /// Clock in force during the window, in hertz; `None` where the machine has none to show.
    pub clock_hz: Option<u64>,
    /// Energy drawn in the window, in joules; `None` where there is no meter.
    pub energy_j: Option<f64>,
    /// Temperature of the hottest thermal zone at the end of the window, in degrees Celsius; `None` where there is no
    /// meter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub celsius: Option<f64>,
    /// Real-time jobs that finished in this window.
    pub jobs: u32,
    /// Of those, late.
    pub misses: u32,
    /// What the decision took, in microseconds; none on the simulated machine, whose decisions take no simulated time.
    pub decision_us: Option<f64>,
    /// What turning the knobs took, in microseconds.
    pub actuation_us: Option<f64>,
    /// Busy share of each core in this window, 0 to 1.
    pub busy: Vec<f64>,
    /// What the loop was doing.
    pub mode: ModeName,
    /// Why the loop is in fallback.
    pub fallback: Option<String>,
}

/// The run in a few figures, of the span after the start-up. None where nothing gave a figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// What the figures leave out, of all tasks.
    pub start_up: StartUp,
    /// Real-time jobs that ended, and releases that were skipped.
    pub jobs: u64,
    /// Of those, late.
    pub misses: u64,
    /// Real-time jobs that ended with an error; not among `jobs`.
    pub failed: u64,
    /// Late ones that a gap of the probe on the same core explains.
    pub excused: u64,
    /// Releases without a job, because too many jobs were waiting.
    pub skipped: u64,
    /// More than 1 % of the jobs were excused: the machine was too disturbed to conclude anything.
    pub inconclusive: bool,
    /// Mean tardiness over the jobs of all tasks.
    pub tardiness_mean: Option<f64>,
    /// 99th percentile of the tardiness of single jobs, to three digits.
    pub tardiness_p99: Option<f64>,
    /// Mean data response ratio.
    pub drr_mean: Option<f64>,
    /// Mean fresh share.
    pub fresh_share_mean: Option<f64>,
    /// Least fresh share of any step: before, not every sensor has spoken.
    pub fresh_share_min: Option<f64>,
    /// Mean admitted share.
    pub admitted_share_mean: Option<f64>,
    /// Mean clock, in hertz.
    pub clock_hz_mean: Option<f64>,
    /// Sensor updates that arrived in the whole run; the accounts of updates are of the whole run, because they are to
    /// balance.
    pub updates_offered: u64,
    /// Installed in the store.
    pub updates_installed: u64,
    /// Turned away by admission.
    pub updates_shed: u64,
    /// Overtaken by a newer update of the same sensor.
    pub updates_superseded: u64,
    /// Neither: must be 0, checked sensor by sensor.
    pub updates_lost: u64,
    /// Sensors whose updates do not reconcile.
    pub sensors_unreconciled: u64,
    /// Energy in joules, where there is a meter.
    pub energy_j: Option<f64>,
    /// The same by parts of the machine, in joules; simulated machine only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_parts_j: Option<EnergyParts>,
    /// The highest temperature of any thermal zone, in degrees Celsius, where there is a meter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub celsius_max: Option<f64>,
    /// Best-effort jobs that finished.
    pub best_effort_jobs: u64,
    /// Median decision time in microseconds, to three digits.
    pub decision_us_median: Option<f64>,
    /// Times that the clock was changed within a job.
    #[serde(default)]
    pub clock_changes_within_jobs: u64,
    /// Of those, the median time from the job's checkpoint to the changed clock, in microseconds; Linux only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pacing_us_median: Option<f64>,
    /// CPU time of the control thread as a share of one core, in the whole run.
    pub controller_core_share: Option<f64>,
    /// Oversleep of the probe on the real-time core, median, p99 and maximum, in microseconds: the no-op control
    /// below which no latency of this run means anything. Of the whole run.
    pub probe_us: Option<[f64; 3]>,
    /// Host time for which the hypervisor ran something else, as a share of all cores' time, in the whole run.
    pub steal_share: Option<f64>,
    /// What went wrong and was worked around, in order.
    pub notes: Vec<String>,
}

/// What a run tells while it goes on.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A stage before or after the run proper, e.g. "calibrating".
    Stage(&'a str),
    /// The run proper begins.
    Started(&'a RunHeader),
    /// One step of the loop is complete.
    Sample(&'a Sample),
    /// The figures of each task so far; about twice per second.
    Tasks(&'a [TaskReport]),
    /// Nothing new; several times per second on a real machine and about once per simulated second on a simulated one,
    /// so that a run can be ended between two samples.
    Waiting,
}

/// A caller that watches a run; `Break` ends it early, in order, with a report.
pub type Watch<'a> = &'a mut dyn FnMut(Progress<'_>) -> ControlFlow<()>;
