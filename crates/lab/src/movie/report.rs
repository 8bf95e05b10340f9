//! What the runs amount to: values in, values out.

use punctual_platform::linux::probe::Oversleep;
use punctual_runtime::linux::tenancy::{LendingMeasured, quantile};
use punctual_units::Nanos;
use serde::Serialize;

use super::{Arm, Frame, Medium, MoviePlan, Run};

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct MovieReport {
    /// What was played.
    pub plan: MoviePlan,
    /// How many cores the machine has for us.
    pub cores: usize,
    /// What the film and the busy disk are on.
    pub medium: Medium,
    /// Each arm, over all repetitions.
    pub arms: Vec<ArmSummary>,
    /// What lending was measured to cost, over all runs; `None` where no core was lent.
    pub lending: Option<LendingSummary>,
    /// How late the probe woke: the no-op control of all latencies.
    pub probe: Option<Oversleep>,
    /// The runs, in order.
    pub runs: Vec<Run>,
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
    fn of(mut figures: Vec<Nanos>) -> Quantiles {
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
    /// Waking up and taking it back between frames, in the runs themselves.
    pub in_play: Quantiles,
    /// The 99th percentile of taking back above the control's; the larger one of the measurement's and of the runs'.
    pub above_control_p99: Nanos,
}

/// One arm over all repetitions.
#[derive(Clone, Debug, Serialize)]
pub struct ArmSummary {
    /// Which.
    pub arm: Arm,
    /// Frames released.
    pub frames: u64,
    /// Late or dropped ones.
    pub late: u64,
    /// Of those, dropped: they could not begin in time.
    pub dropped: u64,
    /// Late ones that no gap of the probe explains.
    pub unexplained: u64,
    /// Frames whose bytes were wrong.
    pub wrong: u64,
    /// From release until the player ran.
    pub wake: Quantiles,
    /// From release until a frame was displayed; dropped ones are left out.
    pub completion: Quantiles,
    /// CPU time of the player, as a share of one core.
    pub player_share: f64,
    /// Share of the time for which the core was lent.
    pub lent_share: f64,
    /// Late share of each repetition.
    pub late_by_repetition: Vec<f64>,
    /// The hogs' work by repetition, against what they do alone in the same repetition; none where they did nothing
    /// there.
    pub work: Vec<f64>,
    /// The same against an equally large share: what they do alone, times the share of the machine that the player
    /// left.
    pub work_of_equal_share: Vec<f64>,
    /// What the disk's writer wrote, as `work`.
    pub disk: Vec<f64>,
    /// The same, as `work_of_equal_share`.
    pub disk_of_equal_share: Vec<f64>,
}

impl MovieReport {
    /// Sums up `runs` on a machine of so many cores.
    pub fn of(plan: &MoviePlan, cores: usize, medium: Medium, runs: Vec<Run>, probe: Option<Oversleep>) -> MovieReport {
        let arms = plan.arms.iter().map(|arm| ArmSummary::of(*arm, cores, &runs)).collect();
        MovieReport {
            plan: plan.clone(),
            cores,
            medium,
            arms,
            lending: LendingSummary::of(&runs),
            probe,
            runs,
        }
    }

    /// The summary of one arm.
    pub fn arm(&self, arm: Arm) -> Option<&ArmSummary> {
        self.arms.iter().find(|summary| summary.arm == arm)
    }
}

impl LendingSummary {
    /// Over all `runs`; `None` where nothing was measured.
    fn of(runs: &[Run]) -> Option<LendingSummary> {
        let lending = LendingMeasured::merged(runs.iter().filter_map(|run| run.lending.as_ref()));
        let in_play = Quantiles::of(runs.iter().flat_map(|run| run.take_back.iter().copied()).collect());
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

impl ArmSummary {
    fn of(arm: Arm, cores: usize, runs: &[Run]) -> ArmSummary {
        let ours: Vec<&Run> = runs.iter().filter(|run| run.arm == arm).collect();
        let frames: Vec<&Frame> = ours.iter().flat_map(|run| &run.frames).collect();
        let count = |wanted: fn(&Frame) -> bool| frames.iter().filter(|frame| wanted(frame)).count() as u64;
        let window: Nanos = ours.iter().map(|run| run.window).sum();
        let share = |part: fn(&Run) -> Nanos| ours.iter().map(|run| part(run)).sum::<Nanos>().ratio(window);
        let whole: &dyn Fn(&Run) -> f64 = &|_| 1.0;
        let left: &dyn Fn(&Run) -> f64 = &|run| 1.0 - run.player_cpu.ratio(run.window) / cores as f64;
        let done = |what: fn(&Run) -> u64, share: &dyn Fn(&Run) -> f64| {
            let rate = |run: &Run| what(run) as f64 / run.window.as_secs_f64();
            let against = |run: &&Run| {
                let alone = Some(rate(alone(runs, run.repetition)?)).filter(|alone| *alone > 0.0)?;
                Some(rate(run) / alone / share(run))
            };
            ours.iter().filter_map(against).collect()
        };
        let units: fn(&Run) -> u64 = |run| run.interactive_units;
        let bytes: fn(&Run) -> u64 = |run| run.disk_bytes;
        ArmSummary {
            arm,
            frames: frames.len() as u64,
            late: count(|frame| frame.late),
            dropped: count(|frame| frame.read.is_none()),
            unexplained: count(|frame| frame.late && !frame.explained),
            wrong: ours.iter().map(|run| u64::from(run.wrong)).sum(),
            wake: Quantiles::of(frames.iter().map(|frame| frame.woken).collect()),
            completion: Quantiles::of(
                frames
                    .iter()
                    .filter(|frame| frame.read.is_some())
                    .map(|frame| frame.finished)
                    .collect(),
            ),
            player_share: share(|run| run.player_cpu),
            lent_share: share(|run| run.lent),
            late_by_repetition: ours.iter().map(|run| late_share(run)).collect(),
            work: done(units, whole),
            work_of_equal_share: done(units, left),
            disk: done(bytes, whole),
            disk_of_equal_share: done(bytes, left),
        }
    }
}

fn late_share(run: &Run) -> f64 {
    let late = run.frames.iter().filter(|frame| frame.late).count();
    late as f64 / run.frames.len().max(1) as f64
}

/// The run without a player in the same repetition.
fn alone(runs: &[Run], repetition: u32) -> Option<&Run> {
    runs.iter()
        .find(|run| run.arm == Arm::Alone && run.repetition == repetition)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(arm: Arm, repetition: u32, units: u64, player_ms: u64, finished_ms: &[u64]) -> Run {
        let frame = |ms: &u64| Frame {
            woken: Nanos::from_micros(10),
            read: (*ms < 80).then_some(Nanos::from_millis(1)),
            finished: Nanos::from_millis(*ms),
            late: *ms > 40,
            explained: *ms == 50,
        };
        Run {
            repetition,
            arm,
            frames: finished_ms.iter().map(frame).collect(),
            wrong: 0,
            player_cpu: Nanos::from_millis(player_ms),
            lent: Nanos::from_millis(500),
            window: Nanos::from_secs(1),
            interactive_units: units,
            disk_bytes: units / 2,
            lending: None,
            take_back: Vec::new(),
            exclusive: arm.exclusive(),
            protection: Vec::new(),
        }
    }

    #[test]
    fn late_dropped_and_explained_frames_are_told_apart() {
        let runs = [
            run(Arm::Dual, 0, 1, 400, &[20, 30, 50, 60, 90]),
            run(Arm::Dual, 1, 1, 400, &[20; 5]),
        ];
        let dual = ArmSummary::of(Arm::Dual, 2, &runs);
        assert_eq!((dual.frames, dual.late, dual.dropped, dual.unexplained), (10, 3, 1, 2));
        assert_eq!(dual.late_by_repetition, [0.6, 0.0]);
        assert_eq!(
            (dual.completion.min, dual.completion.max),
            (Nanos::from_millis(20), Nanos::from_millis(60))
        );
        assert_eq!((dual.player_share, dual.lent_share), (0.4, 0.5));
    }

    #[test]
    fn work_is_held_against_an_equal_share_of_the_same_repetition() {
        // The player takes 0.4 of one of two cores, a fifth of the machine.
        let runs = [
            run(Arm::Alone, 0, 1000, 0, &[]),
            run(Arm::Dual, 0, 760, 400, &[20]),
            run(Arm::Alone, 1, 2000, 0, &[]),
            run(Arm::Dual, 1, 1600, 400, &[20]),
            run(Arm::Dual, 2, 1600, 400, &[20]),
        ];
        let dual = ArmSummary::of(Arm::Dual, 2, &runs);
        assert_eq!(dual.work, [0.76, 0.8]);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(near(dual.work_of_equal_share[0], 0.95) && near(dual.work_of_equal_share[1], 1.0));
        assert_eq!(
            (&dual.disk, &dual.disk_of_equal_share),
            (&dual.work, &dual.work_of_equal_share)
        );
    }

    #[test]
    fn an_idle_program_is_not_held_against_the_film() {
        let runs = [run(Arm::Alone, 0, 0, 0, &[]), run(Arm::Dual, 0, 0, 400, &[20])];
        let dual = ArmSummary::of(Arm::Dual, 2, &runs);
        assert!(dual.work.is_empty() && dual.disk_of_equal_share.is_empty());
    }

    #[test]
    fn taking_back_is_judged_by_the_worse_of_the_measurement_and_the_runs() {
        let measured = LendingMeasured {
            hand_over: vec![Nanos(1)],
            take_back: vec![Nanos(50)],
            control: vec![Nanos(20)],
        };
        let above = |in_play: u64| {
            let mut dual = run(Arm::Dual, 0, 1, 400, &[20]);
            dual.lending = Some(measured.clone());
            dual.take_back = vec![Nanos(in_play)];
            LendingSummary::of(&[dual]).map(|lending| lending.above_control_p99)
        };
        assert_eq!((above(30), above(90)), (Some(Nanos(30)), Some(Nanos(70))));
        assert_eq!(LendingSummary::of(&[run(Arm::Fifo, 0, 1, 400, &[20])]), None);
    }
}
