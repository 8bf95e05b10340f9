//! One task set under one variant, in figures.

use punctual_sim::partitioned::Finished;
use punctual_units::percentile_of_rising;

/// What a run of one task set came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Response times of all jobs (s), rising.
    pub responses: Vec<f32>,
    /// Response time over deadline of all jobs, rising.
    pub relative: Vec<f32>,
    /// Jobs that were late.
    pub late: usize,
    /// Decisions, changes and moved ways per second.
    pub decisions: f64,
    /// Splits that were different from the one before, per second.
    pub changes: f64,
    /// Ways that cores gained, per second.
    pub ways_moved: f64,
    /// Share of busy time in which cores stood still for refilling.
    pub refilling: f64,
    /// Jobs faster than the uncontended machine.
    pub too_fast: u64,
}

impl Measured {
    /// The figures of a run.
    pub fn of(finished: &Finished) -> Measured {
        let rising = |mut values: Vec<f32>| {
            values.sort_by(f32::total_cmp);
            values
        };
        let jobs = &finished.jobs;
        let per_second = |count: u64| count as f64 / finished.ended.max(f64::MIN_POSITIVE);
        Measured {
            responses: rising(jobs.iter().map(|job| job.response as f32).collect()),
            relative: rising(jobs.iter().map(|job| (job.response / job.deadline) as f32).collect()),
            late: jobs.iter().filter(|job| job.is_late()).count(),
            decisions: per_second(finished.decisions),
            changes: per_second(finished.changes),
            ways_moved: per_second(finished.ways_moved),
            refilling: finished.refilling / finished.busy.max(f64::MIN_POSITIVE),
            too_fast: finished.too_fast,
        }
    }

    /// Whether no job was late.
    pub fn is_schedulable(&self) -> bool {
        self.late == 0
    }

    /// Share of jobs that were late.
    pub fn misses(&self) -> f64 {
        self.late as f64 / self.responses.len().max(1) as f64
    }
}

/// The mean of what was measured; not a number, of nothing.
pub fn mean(values: &[f32]) -> f64 {
    punctual_units::mean(values.iter().map(|value| f64::from(*value))).unwrap_or(f64::NAN)
}

/// The quantile of rising values; not a number, of nothing.
pub fn quantile(rising: &[f32], share: f64) -> f64 {
    percentile_of_rising(rising, share).map_or(f64::NAN, f64::from)
}

#[cfg(test)]
mod tests {
    use punctual_sim::partitioned::Done;

    use super::*;

    #[test]
    fn late_jobs_are_counted() {
        let job = |response| Done {
            task: 0,
            released: 0.0,
            response,
            deadline: 1.0,
        };
        let finished = Finished {
            jobs: vec![job(1.5), job(0.5), job(1.0), job(0.2)],
            ended: 2.0,
            changes: 8,
            ..Finished::default()
        };
        let measured = Measured::of(&finished);
        assert_eq!((measured.late, measured.misses(), measured.changes), (1, 0.25, 4.0));
        assert!(!measured.is_schedulable() && measured.responses[0] == 0.2);
    }
}
