//! Figures that several experiments compute from the raw measurements of their runs. Pure: values in, values out.

use punctual_runtime::linux::tenancy::{LendingMeasured, quantile};
use punctual_units::Nanos;
use serde::Serialize;

/// Work of the background load during one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Effort {
    /// Time over which the work was counted.
    pub window: Nanos,
    /// Units of work done by the CPU-bound background threads in `window`; `load.rs` says how long a unit is.
    pub interactive_units: u64,
    /// Bytes written to the disk in `window`.
    pub disk_bytes: u64,
}

/// A distribution as four figures: extremes, median and 99th percentile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    pub min: Nanos,
    /// Median of the distribution.
    pub p50: Nanos,
    /// 99th percentile of the distribution.
    pub p99: Nanos,
    pub max: Nanos,
}

impl Quantiles {
    pub(crate) fn of(mut figures: Vec<Nanos>) -> Quantiles {
        figures.sort_unstable();
        Quantiles {
            min: figures.first().copied().unwrap_or_default(),
            p50: quantile(&figures, 0.5),
            p99: quantile(&figures, 0.99),
            max: figures.last().copied().unwrap_or_default(),
        }
    }
}

/// Delays of lending an exclusive core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LendingSummary {
    /// Handing the core over to the borrowers.
    pub hand_over: Quantiles,
    /// Waking up and taking the core back.
    pub take_back: Quantiles,
    /// Control measurement: waking up and taking back a core that was not lent.
    pub control: Quantiles,
    /// Waking up and taking the core back between jobs, in the runs themselves.
    pub in_play: Quantiles,
    /// The 99th percentile of taking the core back, minus the control's; the larger of the measurement's and the runs'.
    pub above_control_p99: Nanos,
}

impl LendingSummary {
    /// Combines the measurements made before each run with the delays of taking the core back in all runs; `None` where
    /// nothing was measured.
    pub(crate) fn of<'m>(
        measured: impl Iterator<Item = &'m LendingMeasured>,
        in_play: Vec<Nanos>,
    ) -> Option<LendingSummary> {
        let lending = LendingMeasured::merged(measured);
        let in_play = Quantiles::of(in_play);
        let summary = LendingSummary {
            in_play,
            above_control_p99: lending
                .take_back_above_control()
                .max(in_play.p99.saturating_sub(lending.waking())),
            hand_over: Quantiles::of(lending.hand_over),
            take_back: Quantiles::of(lending.take_back),
            control: Quantiles::of(lending.control),
        };
        (summary.take_back.max > Nanos::ZERO).then_some(summary)
    }
}

/// Work of the background load relative to its work when it runs alone, one figure per repetition. Repetitions in which
/// the load did nothing alone are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Interactive {
    /// Work of the CPU-bound threads, as a ratio.
    pub work: Vec<f64>,
    /// `work`, divided by the share of the machine that the real-time thread left: 1 means that the load lost only the
    /// time that the real-time thread used.
    pub work_of_equal_share: Vec<f64>,
    /// Bytes written to the disk, as a ratio like `work`.
    pub disk: Vec<f64>,
    /// `disk`, divided by the same share as `work_of_equal_share`.
    pub disk_of_equal_share: Vec<f64>,
}

impl Interactive {
    /// Takes for each run on `cores` cores: the work of the load, the CPU time of the real-time thread, and the work of
    /// the load alone in the same repetition.
    pub(crate) fn of<'r>(runs: impl Iterator<Item = (&'r Effort, Nanos, &'r Effort)>, cores: usize) -> Interactive {
        let mut all = Interactive::default();
        for (counted, cpu, alone) in runs {
            let left = 1.0 - cpu.ratio(counted.window) / cores as f64;
            let against = |what: fn(&Effort) -> u64| {
                let rate = |counted: &Effort| what(counted) as f64 / counted.window.as_secs_f64();
                Some(rate(alone))
                    .filter(|rate| *rate > 0.0)
                    .map(|alone| rate(counted) / alone)
            };
            let work = against(|counted| counted.interactive_units);
            let disk = against(|counted| counted.disk_bytes);
            all.work.extend(work);
            all.work_of_equal_share.extend(work.map(|share| share / left));
            all.disk.extend(disk);
            all.disk_of_equal_share.extend(disk.map(|share| share / left));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(units: u64) -> Effort {
        Effort {
            window: Nanos::from_secs(1),
            interactive_units: units,
            disk_bytes: units / 2,
        }
    }

    #[test]
    fn work_is_held_against_an_equal_share_of_the_same_repetition() {
        // The real-time thread takes 0.4 of one of two cores, a fifth of the machine.
        let cpu = Nanos::from_millis(400);
        let runs = [(counted(760), counted(1000)), (counted(1600), counted(2000))];
        let all = Interactive::of(runs.iter().map(|(run, alone)| (run, cpu, alone)), 2);
        assert_eq!(all.work, [0.76, 0.8]);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(near(all.work_of_equal_share[0], 0.95) && near(all.work_of_equal_share[1], 1.0));
        assert_eq!(
            (&all.disk, &all.disk_of_equal_share),
            (&all.work, &all.work_of_equal_share)
        );
        let idle = [(counted(0), counted(0))];
        let none = Interactive::of(idle.iter().map(|(run, alone)| (run, cpu, alone)), 2);
        assert_eq!(none, Interactive::default(), "an idle program is not held against it");
    }

    #[test]
    fn taking_back_is_judged_by_the_worse_of_the_measurement_and_the_runs() {
        let measured = LendingMeasured {
            hand_over: vec![Nanos(1)],
            take_back: vec![Nanos(50)],
            control: vec![Nanos(20)],
        };
        let above = |in_play: u64| {
            let summary = LendingSummary::of([&measured].into_iter(), vec![Nanos(in_play)]);
            summary.map(|lending| lending.above_control_p99)
        };
        assert_eq!((above(30), above(90)), (Some(Nanos(30)), Some(Nanos(70))));
        assert_eq!(LendingSummary::of([].into_iter(), Vec::new()), None);
    }
}
