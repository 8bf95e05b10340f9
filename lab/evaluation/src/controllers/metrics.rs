//! Measures the effect of a disturbance on a loop, in the same way for every pace.
//!
//! Control laws with different samples cannot be compared by their own samples: the mean over a second hides a job that
//! is 40 % late among nine that are not. So all figures here are computed from single jobs, however often a law
//! decides.
//!
//! - *IAE*: the integral of |tardiness - goal| over time since the onset, in seconds; each job stands for the time
//!   until the next one.
//!   A clock that alternates between two steps to meet the goal on average counts here, job by job.
//! - *Second's mean*: over the jobs of one second, the paper's sample, wherever it begins. The *first* begins at the
//!   onset; the *overshoot* is the largest since; both are relative to the goal. *IAE of means* is the integral of
//!   their absolute error. The *first job* is reported apart: no feedback can help it.
//! - *Settled*: after job n, if the means of every [`SMOOTHED`] jobs that begin within the [`STEADY`] jobs from there
//!   stay within [`BAND`] of the goal: three of the paper's samples in a row, as in the claims on the paper. Means look
//!   ahead, so smoothing delays nothing; it keeps a job's noise from being taken for the loop's.

use punctual_runtime::report::FinishedJob;

/// Number of jobs in a second: one sample of the paper.
pub const JOBS_PER_SAMPLE: usize = 10;
/// Number of jobs over which settling is smoothed: half of the paper's sample.
pub const SMOOTHED: usize = 5;
/// Number of successive jobs that count as steady: three samples of the paper.
pub const STEADY: usize = 3 * JOBS_PER_SAMPLE;
/// Largest error that counts as settled, as a share of the goal.
pub const BAND: f64 = 0.1;

/// The effect of one disturbance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transient {
    /// Integral of the absolute error of single jobs, tardiness times seconds.
    pub iae: f64,
    /// Integral of the absolute error of the second's means: the error that is left when the jobs of a second
    /// compensate for each other.
    pub iae_means: f64,
    /// The first job's error, relative to the goal; positive is late.
    pub first_job: f64,
    /// The first second's mean error, relative to the goal.
    pub first_second: f64,
    /// The largest second's mean error since, relative to the goal.
    pub overshoot: f64,
    /// Jobs until settled; `None` if the loop never settled.
    pub settled_jobs: Option<usize>,
    /// Seconds until settled: from the onset to the end of the last unsettled job; `None` if the loop never settled.
    pub settled_s: Option<f64>,
    /// Share of late jobs during the disturbance, 0 to 1.
    pub misses: f64,
}

/// Measures a disturbance between `onset_s` and `end_s` against `goal`, by `jobs`. `None` if too few jobs ended then.
pub fn transient(jobs: &[FinishedJob], goal: f64, onset_s: f64, end_s: f64) -> Option<Transient> {
    let from = jobs.partition_point(|job| job.t_s < onset_s);
    let until = jobs.partition_point(|job| job.t_s < end_s);
    let jobs = jobs.get(from..until).filter(|jobs| jobs.len() >= 2 * JOBS_PER_SAMPLE)?;
    let error: Vec<f64> = jobs.iter().map(|job| job.tardiness - goal).collect();
    let seconds: Vec<f64> = means(&error, JOBS_PER_SAMPLE).collect();
    let settled_jobs = settled(&error, BAND * goal);
    let last_unsettled = |count: usize| count.checked_sub(1).map_or(0.0, |last| jobs[last].t_s - onset_s);
    Some(Transient {
        iae: iae(jobs, goal, end_s),
        iae_means: seconds.iter().map(|mean| mean.abs()).sum::<f64>() / seconds.len() as f64 * (end_s - onset_s),
        first_job: error[0] / goal,
        first_second: seconds[0] / goal,
        overshoot: seconds.iter().copied().fold(f64::NEG_INFINITY, f64::max) / goal,
        settled_jobs,
        settled_s: settled_jobs.map(last_unsettled),
        misses: error.iter().filter(|e| **e + goal > 1.0).count() as f64 / error.len() as f64,
    })
}

/// The integral of |tardiness - goal|, each job standing for the time until the next one, the last one until `end_s`.
pub fn iae(jobs: &[FinishedJob], goal: f64, end_s: f64) -> f64 {
    let ends = jobs.iter().skip(1).map(|job| job.t_s).chain([end_s]);
    jobs.iter()
        .zip(ends)
        .map(|(job, end)| (job.tardiness - goal).abs() * (end - job.t_s))
        .sum()
}

/// Index of the first job from which on [`STEADY`] smoothed errors in a row stay within `band`.
fn settled(error: &[f64], band: f64) -> Option<usize> {
    let smooth: Vec<f64> = means(error, SMOOTHED).collect();
    let steady = |window: &[f64]| window.iter().all(|mean| mean.abs() <= band);
    smooth.windows(STEADY).position(steady)
}

/// Means of every `width` successive values.
fn means(values: &[f64], width: usize) -> impl Iterator<Item = f64> {
    values
        .windows(width)
        .map(move |window| window.iter().sum::<f64>() / width as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job every 100 ms with these tardinesses, the first at 0.1 s.
    fn jobs(tardiness: impl Iterator<Item = f64>) -> Vec<FinishedJob> {
        let job = |(k, tardiness): (usize, f64)| FinishedJob {
            task: 0,
            job: k as u64,
            t_s: 0.1 * (k as f64 + 1.0),
            tardiness,
        };
        tardiness.enumerate().map(job).collect()
    }

    fn step(late: usize, by: f64) -> Transient {
        let late = (0..100).map(|k| if (20..20 + late).contains(&k) { 1.0 + by } else { 1.0 });
        transient(&jobs(late), 1.0, 2.05, 10.0).unwrap()
    }

    #[test]
    fn a_stretch_of_late_jobs_is_measured_as_it_is() {
        let three = step(3, 0.5);
        assert!((three.iae - 0.15).abs() < 1e-9, "{three:?}");
        assert!((three.first_job - 0.5).abs() < 1e-9 && (three.first_second - 0.15).abs() < 1e-9);
        assert!((three.overshoot - 0.15).abs() < 1e-9 && (three.misses - 3.0 / 79.0).abs() < 1e-9);
        // Five jobs with one late by a half are 0.1 late on average, and that is within the band.
        assert_eq!(three.settled_jobs, Some(2));
        assert!((three.settled_s.unwrap() - 0.15).abs() < 1e-9, "{three:?}");
        assert_eq!(step(10, 0.5).settled_jobs, Some(9));
        assert!((step(20, 0.5).overshoot - 0.5).abs() < 1e-9);
        assert_eq!(step(0, 0.5).settled_jobs, Some(0));
        assert_eq!(step(1000, 0.5).settled_jobs, None);
    }

    #[test]
    fn too_few_jobs_say_nothing() {
        assert_eq!(transient(&jobs([1.0; 100].into_iter()), 1.0, 9.0, 10.0), None);
        assert_eq!(transient(&[], 1.0, 0.0, 10.0), None);
    }
}
