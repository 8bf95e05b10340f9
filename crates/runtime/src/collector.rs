//! Turns the steps of a run into its report: the same on both machines.

use punctual_loop::{Plan, Step, Window};
use punctual_platform::Readings;
use punctual_store::updates::{Counts, Reconciliation};
use punctual_units::{Nanos, Time};
use punctual_workload::JobOutcome;

use crate::report::{EnergyParts, FinishedJob, Protection, RunHeader, RunReport, Sample, Summary};

/// After warm-up the loop is given this long to reach its goal before means are taken.
pub const SETTLING: Nanos = Nanos::from_secs(5);

/// Late jobs that are kept for the comparison with the probe: an hour of nothing but late jobs at 100 ms.
const LATE_JOBS_MAX: usize = 36_000;

/// Busy share of a core from which the kernel's real-time throttle (95 %) must be reckoned with.
const FULL_CORE: f64 = 0.94;

/// A share of excused jobs above which a run concludes nothing.
const EXCUSED_MAX: f64 = 0.01;

/// What a step took, where the machine takes time to decide.
#[derive(Clone, Copy, Debug, Default)]
pub struct Took {
    /// The decision.
    pub decision: Option<Nanos>,
    /// Turning the knobs.
    pub actuation: Option<Nanos>,
}

/// What only the end of a run knows.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    /// Sensor updates in sum.
    pub counts: Counts,
    /// Sensor updates, sensor by sensor.
    pub reconciliation: Reconciliation,
    /// Whether a late job is explained by a gap at least as long as its overrun.
    pub excused: u64,
    /// Energy of the run.
    pub energy_j: Option<f64>,
    /// The same by parts of the machine, where they are metered.
    pub energy_parts_j: Option<EnergyParts>,
    /// CPU time of the control thread as a share of one core.
    pub controller_core_share: Option<f64>,
    /// Oversleep of the probe: median, p99, maximum.
    pub probe_us: Option<[f64; 3]>,
    /// Host time for which the hypervisor ran something else.
    pub steal_share: Option<f64>,
}

/// Gathers a run.
#[derive(Debug)]
pub struct Collector {
    header: RunHeader,
    start: Time,
    plan: Plan,
    last: Option<Readings>,
    samples: Vec<Sample>,
    finished: Vec<FinishedJob>,
    tardiness: Vec<f64>,
    drr_sum: f64,
    late: Vec<JobOutcome>,
    jobs: u64,
    misses: u64,
    skipped: u64,
    best_effort_jobs: u64,
    /// Times that the clock was changed within a job, and what deciding that took, in microseconds.
    paced: u64,
    pacing_us: Vec<f64>,
    notes: Vec<String>,
    /// The last core is lent between jobs.
    lent: bool,
}

impl Collector {
    /// Begins a run at `start` with `plan` in force.
    pub fn new(header: RunHeader, start: Time, plan: Plan) -> Collector {
        Collector {
            header,
            start,
            plan,
            last: None,
            samples: Vec::new(),
            finished: Vec::new(),
            tardiness: Vec::new(),
            drr_sum: 0.0,
            late: Vec::new(),
            jobs: 0,
            misses: 0,
            skipped: 0,
            best_effort_jobs: 0,
            paced: 0,
            pacing_us: Vec::new(),
            notes: Vec::new(),
            lent: false,
        }
    }

    /// Takes note that the last core is lent between jobs: whoever has it then keeps it busy, and busy time does not tell of real-time work any more.
    pub fn lends(&mut self) {
        self.lent = true;
    }

    /// Takes the readings at the start, from which the first window's busy times count.
    pub fn begin(&mut self, readings: Readings) {
        self.last = Some(readings);
    }

    /// Takes a finished job.
    pub fn job(&mut self, job: &JobOutcome) {
        let Some(tardiness) = job.tardiness() else {
            self.best_effort_jobs += 1;
            return;
        };
        self.jobs += 1;
        self.finished.push(FinishedJob {
            t_s: job.finished.since(self.start).as_secs_f64(),
            tardiness,
        });
        if job.overrun().is_some() {
            self.misses += 1;
            if self.late.len() < LATE_JOBS_MAX {
                self.late.push(*job);
            }
        }
        if self.settled(job.finished) {
            self.tardiness.push(tardiness);
            self.drr_sum += job.drr();
        }
    }

    /// Takes a change of the clock within a job, and how long that took from the checkpoint on, where that takes time.
    pub fn paced(&mut self, took: Option<Nanos>) {
        self.paced += 1;
        self.pacing_us.extend(took.map(Nanos::as_micros_f64));
    }

    /// Takes releases that were dropped because too many jobs were waiting.
    pub fn skipped(&mut self, jobs: u64) {
        self.skipped += jobs;
    }

    /// Takes what protection was obtained after the header was written.
    pub fn protected(&mut self, obtained: Vec<Protection>) {
        self.header.protection.extend(obtained);
    }

    /// Takes something that went wrong and was worked around; said once.
    pub fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Takes one step of the loop; the plan it decided is in force from now on.
    pub fn step(&mut self, step: &Step, readings: &Readings, took: Took) -> &Sample {
        let window = &step.window;
        let micros = |span: Option<Nanos>| span.map(Nanos::as_micros_f64);
        let sample = Sample {
            k: self.samples.len() as u64,
            t_s: readings.at.since(self.start).as_secs_f64(),
            tardiness: window.tardiness,
            drr: window.drr,
            admitted_share: window.admitted.unwrap_or(self.plan.admitted.get()),
            admitted_knob: self.plan.admitted.get(),
            fresh_share: window.fresh,
            clock_hz: self.clock_over(window, readings),
            energy_j: self.energy_since(readings),
            jobs: window.jobs,
            misses: window.misses,
            decision_us: micros(took.decision),
            actuation_us: micros(took.actuation),
            busy: self.busy_since(readings),
            mode: step.mode.as_str().into(),
            fallback: step.fallback.clone(),
        };
        if let Some(reason) = &step.fallback {
            self.note(format!("fallback: {reason}"));
        }
        self.plan = step.plan;
        self.last = Some(readings.clone());
        self.samples.push(sample);
        &self.samples[self.samples.len() - 1]
    }

    /// The late jobs so far in whose window, or the second before its end, the real-time core had slack.
    pub fn late_with_slack(&self) -> impl Iterator<Item = &JobOutcome> {
        let full = self.full_windows();
        self.late.iter().filter(move |job| {
            let finished = job.finished.since(self.start).as_secs_f64();
            let window = self.samples.partition_point(|sample| sample.t_s < finished);
            !full.get(window).or(full.last()).is_some_and(|full| *full)
        })
    }

    /// Ends the run.
    pub fn finish(mut self, ending: Ending) -> RunReport {
        if let (Some(note), "linux") = (self.saturated(), self.header.platform.as_str()) {
            self.note(note);
        }
        let summary = self.summary(ending);
        RunReport {
            header: self.header,
            samples: self.samples,
            summary,
            jobs: self.finished,
        }
    }

    /// [`full_windows`] of this run; none where the core is lent.
    fn full_windows(&self) -> Vec<bool> {
        if self.lent {
            return vec![false; self.samples.len()];
        }
        full_windows(&self.samples)
    }

    fn saturated(&self) -> Option<String> {
        let full = self.full_windows().into_iter().filter(|full| *full).count();
        (full > 0).then(|| {
            format!(
                "the real-time core was busy for over 94 % of a second, in {full} of {} windows: if that was this run's own work, the kernel throttled it (at 95 % by default); ask for less, or raise /proc/sys/kernel/sched_rt_runtime_us",
                self.samples.len()
            )
        })
    }

    fn busy_since(&self, readings: &Readings) -> Vec<f64> {
        let Some(now) = readings.busy.value() else {
            return Vec::new();
        };
        let Some(last) = &self.last else {
            return vec![0.0; now.len()];
        };
        let elapsed = readings.at.since(last.at);
        let before = last.busy.value();
        let share = |core: usize, busy: Nanos| {
            let before = before.and_then(|before| before.get(core)).copied().unwrap_or(busy);
            if elapsed == Nanos::ZERO {
                0.0
            } else {
                busy.saturating_sub(before).ratio(elapsed).min(1.0)
            }
        };
        now.iter().enumerate().map(|(core, busy)| share(core, *busy)).collect()
    }

    /// The clock in force, in hertz: where jobs are paced from within, what they had on average.
    fn clock_over(&self, window: &Window, readings: &Readings) -> Option<u64> {
        let read = readings.clock.value()?.0;
        let top = self.header.load.top_clock;
        Some(window.clock.map_or(read, |share| top.scaled(share).0))
    }

    fn energy_since(&self, readings: &Readings) -> Option<f64> {
        let before = self.last.as_ref()?.energy_j.value()?;
        Some(readings.energy_j.value()? - before)
    }

    fn settled(&self, at: Time) -> bool {
        at.since(self.start).as_secs_f64() >= self.header.settle_s
    }

    fn summary(&self, ending: Ending) -> Summary {
        let settled = || self.samples.iter().filter(|sample| sample.t_s >= self.header.settle_s);
        let decisions: Vec<f64> = self.samples.iter().filter_map(|sample| sample.decision_us).collect();
        let clocks: Vec<f64> = settled()
            .filter_map(|sample| sample.clock_hz.map(|hz| hz as f64))
            .collect();
        Summary {
            jobs: self.jobs,
            misses: self.misses,
            excused: ending.excused,
            skipped: self.skipped,
            inconclusive: ending.excused as f64 > EXCUSED_MAX * self.jobs as f64,
            tardiness_mean: mean(self.tardiness.iter().copied()).unwrap_or(0.0),
            tardiness_p99: percentile(&self.tardiness, 0.99).unwrap_or(0.0),
            drr_mean: if self.tardiness.is_empty() {
                0.0
            } else {
                self.drr_sum / self.tardiness.len() as f64
            },
            fresh_share_mean: mean(settled().map(|sample| sample.fresh_share)).unwrap_or(0.0),
            fresh_share_min: settled().map(|sample| sample.fresh_share).fold(1.0, f64::min),
            admitted_share_mean: mean(settled().map(|sample| sample.admitted_share)).unwrap_or(0.0),
            clock_hz_mean: mean(clocks.into_iter()),
            updates_offered: ending.counts.offered,
            updates_installed: ending.counts.installed,
            updates_shed: ending.counts.shed,
            updates_superseded: ending.counts.superseded,
            updates_lost: ending.reconciliation.lost,
            sensors_unreconciled: ending.reconciliation.unbalanced.len() as u64,
            energy_j: ending.energy_j,
            energy_parts_j: ending.energy_parts_j,
            best_effort_jobs: self.best_effort_jobs,
            decision_us_median: percentile(&decisions, 0.5),
            clock_changes_within_jobs: self.paced,
            pacing_us_median: percentile(&self.pacing_us, 0.5),
            controller_core_share: ending.controller_core_share,
            probe_us: ending.probe_us,
            steal_share: ending.steal_share,
            notes: self.notes.clone(),
        }
    }
}

/// Which windows end a second in which the real-time core, the last one, had no slack left: the kernel's period of
/// real-time throttling. Single windows can be shorter than the 10 ms in which busy time is counted.
fn full_windows(samples: &[Sample]) -> Vec<bool> {
    const SECOND: f64 = 1.0;
    let length = |i: usize| samples[i].t_s - i.checked_sub(1).map_or(0.0, |before| samples[before].t_s);
    let busy_in = |i: usize| samples[i].busy.last().copied().unwrap_or(0.0) * length(i);
    // The shortest run of windows that ends with this one and lasts a second.
    let (mut first, mut busy, mut span) = (0, 0.0, 0.0);
    let ends_full_second = |last: usize| {
        busy += busy_in(last);
        span += length(last);
        while span - length(first) >= SECOND {
            busy -= busy_in(first);
            span -= length(first);
            first += 1;
        }
        span >= SECOND && busy >= FULL_CORE * span
    };
    (0..samples.len()).map(ends_full_second).collect()
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.fold((0.0, 0u64), |(sum, n), value| (sum + value, n + 1));
    (n > 0).then(|| sum / n as f64)
}

/// The nearest-rank percentile, `q` in 0..=1.
fn percentile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_full_by_the_second_not_by_the_window() {
        let sample = |k: u32, busy| Sample {
            t_s: f64::from(k + 1) * 0.1,
            busy: vec![0.0, busy],
            ..Sample::default()
        };
        let alternating: Vec<Sample> = (0..20).map(|k| sample(k, f64::from(k % 2))).collect();
        let count = |samples| full_windows(samples).into_iter().filter(|full| *full).count();
        assert_eq!(count(&alternating), 0);
        let full: Vec<Sample> = (0..20).map(|k| sample(k, 0.96)).collect();
        let ended = count(&full);
        assert!(
            (10..=11).contains(&ended),
            "each window that ends a full second: {ended}"
        );
        assert_eq!(count(&full[..5]), 0, "half a second says nothing");
    }

    #[test]
    fn a_core_that_is_lent_is_busy_without_real_time_work() {
        let header = RunHeader {
            scenario: "lent".into(),
            platform: "linux".into(),
            machine: "test".into(),
            seed: 0,
            controller: punctual_workload::ControllerKind::Open,
            goal: punctual_workload::Goal {
                tasks: punctual_workload::TaskGoal::Tardiness(0.85),
                drr: 0.6,
                min_fresh: punctual_units::Share::ONE,
            },
            knobs: Vec::new(),
            protection: Vec::new(),
            load: crate::report::LoadReport::default(),
            settle_s: 0.0,
        };
        let plan = Plan {
            clock: None,
            admitted: punctual_units::Share::ONE,
        };
        let mut collector = Collector::new(header, Time::ZERO, plan);
        let busy = |k: u32| Sample {
            t_s: f64::from(k + 1) * 0.1,
            busy: vec![0.0, 1.0],
            ..Sample::default()
        };
        collector.samples = (0..20).map(busy).collect();
        collector.job(&JobOutcome {
            task: punctual_units::TaskId(0),
            job: 0,
            released: Time::ZERO + Nanos::from_millis(1900),
            deadline: Some(Nanos::from_millis(5)),
            finished: Time::ZERO + Nanos::from_millis(1910),
            split: punctual_workload::Split::default(),
        });
        let seen = |collector: &Collector| (collector.saturated().is_some(), collector.late_with_slack().count());
        assert_eq!(seen(&collector), (true, 0), "its own work, for all that is known");
        collector.lends();
        assert_eq!(seen(&collector), (false, 1), "a gap of the probe may explain it");
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&values, 0.99), Some(99.0));
        assert_eq!(percentile(&values, 0.5), Some(50.0));
        assert_eq!(percentile(&values[..1], 0.99), Some(100.0));
        assert_eq!(percentile(&[], 0.5), None);
    }
}
