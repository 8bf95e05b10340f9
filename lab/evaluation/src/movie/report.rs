//! Statistics of the runs. Pure: values in, values out.

use punctual_platform::linux::probe::Oversleep;
use punctual_units::Nanos;
use serde::Serialize;

use super::{Arm, Frame, Medium, MoviePlan, Run};
use crate::beside::{Interactive, LendingSummary, Quantiles};

/// The report of the movie experiment.
#[derive(Clone, Debug, Serialize)]
pub struct MovieReport {
    pub plan: MoviePlan,
    /// Number of cores that this process may use.
    pub cores: usize,
    /// Medium of the film and of the busy disk's file.
    pub medium: Medium,
    /// Summaries of the arms, each over all repetitions.
    pub arms: Vec<ArmSummary>,
    /// Measured costs of lending, over all runs; `None` where no core was lent.
    pub lending: Option<LendingSummary>,
    /// Lateness of the probe's wake-ups: the no-op control of all latencies.
    pub probe: Option<Oversleep>,
    /// All runs, in the order in which they ran.
    pub runs: Vec<Run>,
}

/// Statistics of one arm over all repetitions.
#[derive(Clone, Debug, Serialize)]
pub struct ArmSummary {
    pub arm: Arm,
    /// Number of frames released.
    pub frames: u64,
    /// Number of late frames, dropped ones included.
    pub late: u64,
    /// Number of dropped frames: they could not begin in time.
    pub dropped: u64,
    /// Number of late frames that no gap of the probe explains.
    pub unexplained: u64,
    /// Number of frames with wrong bytes.
    pub wrong: u64,
    /// Time from a release until the player ran.
    pub wake: Quantiles,
    /// Time from a release until a frame was displayed; dropped frames are left out.
    pub completion: Quantiles,
    /// CPU time of the player's thread, as a share of one core.
    pub player_share: f64,
    /// Share of the time for which the core was lent.
    pub lent_share: f64,
    /// Share of late frames in each repetition.
    pub late_by_repetition: Vec<f64>,
    /// Work of the background load against its work alone.
    #[serde(flatten)]
    pub interactive: Interactive,
}

impl MovieReport {
    /// Computes the statistics of `runs` on a machine of `cores` cores.
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

    /// The summary of `arm`; `None`: the plan does not have it.
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

/// The run without a player in this repetition.
fn alone(runs: &[Run], repetition: u32) -> Option<&Run> {
    runs.iter()
        .find(|run| run.arm == Arm::Alone && run.repetition == repetition)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beside::Effort;

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
            counted: Effort {
                window: Nanos::from_secs(1),
                ..Effort::default()
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
