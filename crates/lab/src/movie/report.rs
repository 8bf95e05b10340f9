//! What the runs amount to: values in, values out.

use punctual_platform::linux::probe::Oversleep;
use punctual_units::Nanos;
use serde::Serialize;

use super::{Arm, Frame, Medium, MoviePlan, Run};
use crate::beside::{Interactive, LendingSummary, Quantiles};

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
    /// What hogs and the disk's writer got done.
    #[serde(flatten)]
    pub interactive: Interactive,
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
            lending: LendingSummary::of(
                runs.iter().filter_map(|run| run.lending.as_ref()),
                runs.iter().flat_map(|run| run.take_back.iter().copied()).collect(),
            ),
            probe,
            runs,
        }
    }

    /// The summary of one arm.
    pub fn arm(&self, arm: Arm) -> Option<&ArmSummary> {
        self.arms.iter().find(|summary| summary.arm == arm)
    }
}

impl ArmSummary {
    fn of(arm: Arm, cores: usize, runs: &[Run]) -> ArmSummary {
        let ours: Vec<&Run> = runs.iter().filter(|run| run.arm == arm).collect();
        let frames: Vec<&Frame> = ours.iter().flat_map(|run| &run.frames).collect();
        let count = |wanted: fn(&Frame) -> bool| frames.iter().filter(|frame| wanted(frame)).count() as u64;
        let window: Nanos = ours.iter().map(|run| run.counted.window).sum();
        let share = |part: fn(&Run) -> Nanos| ours.iter().map(|run| part(run)).sum::<Nanos>().ratio(window);
        let beside_alone = ours.iter().filter_map(|run| {
            let alone = alone(runs, run.repetition)?;
            Some((&run.counted, run.player_cpu, &alone.counted))
        });
        let interactive = Interactive::of(beside_alone, cores);
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
            interactive,
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
    use crate::beside::Counted;

    fn run(arm: Arm, repetition: u32, player_ms: u64, finished_ms: &[u64]) -> Run {
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
            counted: Counted {
                window: Nanos::from_secs(1),
                ..Counted::default()
            },
            lending: None,
            take_back: Vec::new(),
            exclusive: arm.exclusive(),
            protection: Vec::new(),
        }
    }

    #[test]
    fn late_dropped_and_explained_frames_are_told_apart() {
        let runs = [
            run(Arm::Dual, 0, 400, &[20, 30, 50, 60, 90]),
            run(Arm::Dual, 1, 400, &[20; 5]),
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
}
