//! Reduces a run to columns of one sample each.

use std::collections::BTreeMap;

use punctual_runtime::report::RunReport;
use punctual_units::Nanos;
use punctual_workload::Active;

use super::metrics::{JOBS_PER_SAMPLE, Transient, transient};

/// Names of the columns, of one sample each. From [`Transient`], from the onset of the disturbance to its end: the
/// first seven. From the onset to the end of the run: misses, the largest tardiness of a job, the mean fresh share, the
/// mean power (watts) and the mean clock (as a share of its top). Then the overshoot of the disturbance's last quarter;
/// windows in fallback; changes of the clock within a job, per job; the medians of the time of a decision, and of the
/// time from a checkpoint to the changed clock, in microseconds (Linux only).
pub const SERIES: [&str; 17] = [
    "iae",
    "iae-means",
    "first-job",
    "first-second",
    "overshoot",
    "settled-jobs",
    "settled-s",
    "misses",
    "worst-job",
    "fresh",
    "power",
    "clock",
    "end-overshoot",
    "fallback",
    "clock-changes",
    "decision-us",
    "pacing-us",
];

/// Computes the columns of `report` for a disturbance at `disturbed`; `None` if too few jobs ended meanwhile.
pub fn columns(report: &RunReport, disturbed: Active) -> Option<BTreeMap<String, Vec<Option<f64>>>> {
    let [from, until] = [disturbed.from, disturbed.until].map(Nanos::as_secs_f64);
    let goal = report.header.goal.tasks.nominal();
    let seen = transient(&report.jobs, goal, from, until)?;
    let last_quarter = transient(&report.jobs, goal, until - (until - from) / 4.0, until);
    let values = values(report, &seen, last_quarter.map(|end| end.overshoot), [from, until]);
    let column = |(name, value): (&str, Option<f64>)| (name.to_string(), vec![value]);
    Some(SERIES.into_iter().zip(values).map(column).collect())
}

/// The values of [`SERIES`], in its order.
fn values(
    report: &RunReport,
    seen: &Transient,
    ending: Option<f64>,
    [from, until]: [f64; 2],
) -> [Option<f64>; SERIES.len()] {
    let since: Vec<_> = report.samples.iter().filter(|sample| sample.t_s > from).collect();
    let count = since.len().max(1) as f64;
    let fresh = since.iter().map(|sample| sample.fresh_share).sum::<f64>() / count;
    let seconds = report.samples.last().map_or(0.0, |sample| sample.t_s) - from;
    let energy: Option<f64> = since.iter().map(|sample| sample.energy_j).sum();
    let clocks: Option<f64> = since.iter().map(|sample| sample.clock_hz.map(|hz| hz as f64)).sum();
    let judged: Vec<_> = report.jobs.iter().filter(|job| job.t_s > from).collect();
    let late = judged.iter().filter(|job| job.tardiness > 1.0).count() as f64;
    let never = (until - from) * JOBS_PER_SAMPLE as f64;
    let fallback = report.samples.iter().filter(|sample| sample.fallback.is_some()).count() as f64;
    let (summary, top) = (&report.summary, report.header.load.top_clock.0 as f64);
    [
        Some(seen.iae),
        Some(seen.iae_means),
        Some(seen.first_job),
        Some(seen.first_second),
        Some(seen.overshoot),
        Some(seen.settled_jobs.map_or(never, |jobs| jobs as f64)),
        Some(seen.settled_s.unwrap_or(until - from)),
        Some(late / judged.len().max(1) as f64),
        judged.iter().map(|job| job.tardiness).reduce(f64::max),
        Some(fresh),
        energy.map(|joules| joules / seconds.max(1e-9)),
        clocks.map(|sum| sum / count / top),
        ending,
        Some(fallback / report.samples.len().max(1) as f64),
        Some(summary.controller.clock_changes_within_jobs as f64 / summary.jobs.max(1) as f64),
        summary.controller.decision_us_median,
        summary.controller.pacing_us_median,
    ]
}
