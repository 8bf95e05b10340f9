//! What a run tells: one value that the live view, the JSON file and the report page all read.

use std::ops::ControlFlow;

use punctual_cores::{Placement, Unfit};
use punctual_loop::EventLog;
pub use punctual_platform::Parts as EnergyParts;
use punctual_platform::{Provenance, Refusal};
use punctual_units::Hertz;
use punctual_workload::{ControllerKind, Goal};
use serde::{Deserialize, Serialize};

/// A finished run.
#[derive(Clone, Debug)]
pub struct Finished {
    /// What it tells.
    pub report: RunReport,
    /// The log, where one was asked for.
    pub log: Option<EventLog>,
}

/// Everything about one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// What ran where, known before the first sample.
    #[serde(flatten)]
    pub header: RunHeader,
    /// One per step of the loop, in order.
    pub samples: Vec<Sample>,
    /// The run in a few figures.
    pub summary: Summary,
    /// Real-time jobs one by one, in the order of their ends; not in files.
    #[serde(skip)]
    pub jobs: Vec<FinishedJob>,
}

/// A real-time job that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FinishedJob {
    /// When, in seconds since the start of the run.
    pub t_s: f64,
    /// Response time over deadline.
    pub tardiness: f64,
}

/// What ran where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunHeader {
    /// The scenario's name.
    pub scenario: String,
    /// `linux` or `sim`.
    pub platform: String,
    /// The machine's name.
    pub machine: String,
    /// The seed of everything that is drawn.
    pub seed: u64,
    /// Who decides.
    pub controller: ControllerKind,
    /// Set points and minimum.
    pub goal: Goal,
    /// What could be turned, and what was.
    pub knobs: Vec<KnobReport>,
    /// What protection was asked for, and whether it was obtained.
    pub protection: Vec<Protection>,
    /// What was compiled for this machine.
    pub load: LoadReport,
    /// Seconds at the start that `summary` leaves out of its means.
    pub settle_s: f64,
}

/// One knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnobReport {
    /// `clock`, `admitted-share` or `best-effort-share`.
    pub knob: String,
    /// How real it is; none where the machine does not offer it.
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
    /// Why it was not obtained; none where it was.
    pub refused: Option<Refusal>,
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
    /// `transaction` or `memory-first`.
    pub update_mode: String,
    /// What one update costs alone at full clock, in microseconds.
    pub update_us: f64,
    /// What one get inside a transaction costs alone at full clock, in nanoseconds.
    pub get_ns: f64,
    /// The top clock of the machine.
    pub top_clock: Hertz,
}

/// One step of the loop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Counts up from 0.
    pub k: u64,
    /// Seconds since the start of the run.
    pub t_s: f64,
    /// Mean tardiness of the real-time jobs that finished in this window; none where none did.
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
    /// Clock in force during the window, in hertz; none where the machine has none to show.
    pub clock_hz: Option<u64>,
    /// Energy drawn in the window, in joules; none where there is no meter.
    pub energy_j: Option<f64>,
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
    /// `warm-up`, `running` or `fallback`.
    pub mode: String,
    /// Why the loop is in fallback.
    pub fallback: Option<String>,
}

/// The run in a few figures. Means leave out the first `settle_s` seconds; counts do not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Real-time jobs that finished.
    pub jobs: u64,
    /// Late ones.
    pub misses: u64,
    /// Late ones that a gap of the probe on the same core explains.
    pub excused: u64,
    /// Jobs that were not released because too many were waiting.
    pub skipped: u64,
    /// More than 1 % of the jobs were excused: the machine was too disturbed to conclude anything.
    pub inconclusive: bool,
    /// Mean tardiness after settling.
    pub tardiness_mean: f64,
    /// 99th percentile of the tardiness of single jobs after settling.
    pub tardiness_p99: f64,
    /// Mean data response ratio after settling.
    pub drr_mean: f64,
    /// Mean fresh share after settling.
    pub fresh_share_mean: f64,
    /// Least fresh share of any sample after settling: before, not every sensor has spoken.
    pub fresh_share_min: f64,
    /// Mean admitted share after settling.
    pub admitted_share_mean: f64,
    /// Mean clock after settling, in hertz.
    pub clock_hz_mean: Option<f64>,
    /// Sensor updates that arrived.
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
    /// Energy of the run in joules, where there is a meter.
    pub energy_j: Option<f64>,
    /// The same by parts of the machine, in joules; simulated machine only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_parts_j: Option<EnergyParts>,
    /// Best-effort jobs that finished.
    pub best_effort_jobs: u64,
    /// Median decision time in microseconds.
    pub decision_us_median: Option<f64>,
    /// Times that the clock was changed within a job.
    #[serde(default)]
    pub clock_changes_within_jobs: u64,
    /// Of those, the median time from the job's checkpoint to the changed clock, in microseconds; Linux only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pacing_us_median: Option<f64>,
    /// CPU time of the control thread as a share of one core.
    pub controller_core_share: Option<f64>,
    /// Oversleep of the probe on the real-time core, median, p99 and maximum, in microseconds: the no-op control
    /// below which no latency of this run means anything.
    pub probe_us: Option<[f64; 3]>,
    /// Host time for which the hypervisor ran something else, as a share of all cores' time.
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
    /// Nothing new; told several times per second on a real machine and about once per simulated second on a simulated one, so
    /// that a run can be ended between two samples.
    Waiting,
}

/// Whoever watches a run; `Break` ends it early, in order, with a report.
pub type Watch<'a> = &'a mut dyn FnMut(Progress<'_>) -> ControlFlow<()>;
