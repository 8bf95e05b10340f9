//! What several experiments sum up alike: values in, values out.

use punctual_runtime::linux::tenancy::{LendingMeasured, quantile};
use punctual_units::Nanos;
use serde::Serialize;

/// What the load got done in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// Over how long the hogs' work was counted.
    pub window: Nanos,
    /// Units of work that the hogs got done in it.
    pub interactive_units: u64,
    /// Bytes that the disk took in it.
    pub disk_bytes: u64,
}

/// A distribution in four figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// The least.
    pub min: Nanos,
    /// Half are not above this.
    pub p50: Nanos,
    /// 99 % are not above this.
    pub p99: Nanos,
    /// The largest.
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

/// What lending costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LendingSummary {
    /// Handing the core over.
    pub hand_over: Quantiles,
    /// Waking up and taking it back.
    pub take_back: Quantiles,
    /// Waking up and taking back what was not lent.
    pub control: Quantiles,
    /// Waking up and taking it back between jobs, in the runs themselves.
    pub in_play: Quantiles,
    /// The 99th percentile of taking back above the control's; the larger one of the measurement's and of the runs'.
    pub above_control_p99: Nanos,
}

impl LendingSummary {
    /// Of what was measured before each run, and of what taking back took in all runs; `None` where nothing was
    /// measured.
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

/// What the load got done against what it does alone, a figure for each repetition in which it did something there.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Interactive {
    /// The hogs' work.
    pub work: Vec<f64>,
    /// The same against an equally large share: what they do alone, times the share of the machine that the real-time
    /// thread left.
    pub work_of_equal_share: Vec<f64>,
    /// What the disk's writer wrote, as `work`.
    pub disk: Vec<f64>,
    /// The same, as `work_of_equal_share`.
    pub disk_of_equal_share: Vec<f64>,
}

impl Interactive {
    /// Of runs on so many cores: what the load did, the CPU time of the real-time thread, and what the load did alone
    /// in the same repetition.
    pub(crate) fn of<'r>(runs: impl Iterator<Item = (&'r Counted, Nanos, &'r Counted)>, cores: usize) -> Interactive {
        let mut all = Interactive::default();
        for (counted, cpu, alone) in runs {
            let left = 1.0 - cpu.ratio(counted.window) / cores as f64;
            let against = |what: fn(&Counted) -> u64| {
                let rate = |counted: &Counted| what(counted) as f64 / counted.window.as_secs_f64();
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

    fn counted(units: u64) -> Counted {
        Counted {
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
