//! Figures of one task set under one variant.

use punctual_machine::split::SplitResult;
use punctual_units::percentile_of_rising;

/// Measurements of a run of one task set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SetFigures {
    /// Response times of all jobs, in seconds, ascending.
    pub responses: Vec<f32>,
    /// Response time divided by deadline, of all jobs, ascending.
    pub relative: Vec<f32>,
    /// Number of jobs that were late.
    pub late: usize,
    /// Number of decisions per second.
    pub decisions: f64,
    /// Decisions that changed the split, per second.
    pub changes: f64,
    /// Ways that cores gained, per second.
    pub ways_moved: f64,
    /// Share of busy time during which cores stalled for refilling.
    pub refilling: f64,
    /// Number of jobs that were faster than on the uncontended machine: always 0 unless the simulator is at fault.
    pub too_fast: u64,
}

impl SetFigures {
    /// The figures of a run.
    pub fn of(finished: &SplitResult) -> SetFigures {
        let rising = |mut values: Vec<f32>| {
            values.sort_by(f32::total_cmp);
            values
        };
        let jobs = &finished.jobs;
        let per_second = |count: u64| count as f64 / finished.ended.as_secs_f64().max(f64::MIN_POSITIVE);
        SetFigures {
            responses: rising(jobs.iter().map(|job| job.response().as_secs_f64() as f32).collect()),
            relative: rising(jobs.iter().filter_map(|job| Some(job.tardiness()? as f32)).collect()),
            late: jobs.iter().filter(|job| job.overrun().is_some()).count(),
            decisions: per_second(finished.decisions),
            changes: per_second(finished.changes),
            ways_moved: per_second(finished.ways_moved),
            refilling: finished.refilling.ratio(finished.busy),
            too_fast: finished.too_fast,
        }
    }

    /// Whether no job was late.
    pub fn is_schedulable(&self) -> bool {
        self.late == 0
    }

    /// Share of jobs that were late, 0 to 1.
    pub fn misses(&self) -> f64 {
        self.late as f64 / self.responses.len().max(1) as f64
    }
}

/// The mean; NaN for no values.
pub fn mean(values: &[f32]) -> f64 {
    punctual_units::mean(values.iter().map(|value| f64::from(*value))).unwrap_or(f64::NAN)
}

/// The quantile `share` (0 to 1) of ascending values; NaN for no values.
pub fn quantile(rising: &[f32], share: f64) -> f64 {
    percentile_of_rising(rising, share).map_or(f64::NAN, f64::from)
}

#[cfg(test)]
mod tests {
    use punctual_units::{Nanos, TaskId, Time};
    use punctual_workload::{JobOutcome, Split};

    use super::*;

    #[test]
    fn late_jobs_are_counted() {
        let job = |response| JobOutcome {
            task: TaskId(0),
            job: 0,
            released: Time::ZERO,
            deadline: Some(Nanos::from_secs(1)),
            finished: Time::ZERO + Nanos::from_secs_f64(response),
            split: Split::default(),
        };
        let finished = SplitResult {
            jobs: vec![job(1.5), job(0.5), job(1.0), job(0.2)],
            ended: Time(2_000_000_000),
            changes: 8,
            ..SplitResult::default()
        };
        let measured = SetFigures::of(&finished);
        assert_eq!((measured.late, measured.misses(), measured.changes), (1, 0.25, 4.0));
        assert!(!measured.is_schedulable() && measured.responses[0] == 0.2);
    }
}
