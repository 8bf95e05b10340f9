//! What a finished run says about its goal: computed once, told by the summary and by the page.

use punctual_runtime::report::RunReport;
use punctual_workload::ControllerKind;

/// Distance from the set point within which a mean counts as on it.
pub const TOLERANCE: f64 = 0.05;

/// How the mean tardiness stands to its set point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tardiness {
    /// The run ended before means are taken.
    TooShort,
    /// Within [`TOLERANCE`] of the set point.
    OnGoal,
    /// Earlier than asked for: there was nothing to give up.
    Below,
    /// Later than asked for.
    Above,
}

/// What a finished run says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Against its set point.
    pub tardiness: Tardiness,
    /// The fresh share never fell under the user's minimum after warm-up.
    pub fresh_kept: bool,
    /// Every update is accounted for, sensor by sensor.
    pub accounted: bool,
    /// The machine was too disturbed to conclude anything.
    pub inconclusive: bool,
}

impl Verdict {
    /// Judges `report` by its own goal.
    pub fn of(report: &RunReport) -> Verdict {
        let (goal, summary) = (&report.header.goal, &report.summary);
        let settled = report
            .samples
            .last()
            .is_some_and(|last| last.t_s >= report.header.settle_s);
        let off = summary.tardiness_mean - goal.tasks.nominal();
        Verdict {
            tardiness: match off {
                _ if !settled || summary.jobs == 0 => Tardiness::TooShort,
                off if off > TOLERANCE => Tardiness::Above,
                off if off < -TOLERANCE => Tardiness::Below,
                _ => Tardiness::OnGoal,
            },
            fresh_kept: summary.fresh_share_min >= goal.min_fresh.get(),
            accounted: summary.updates_lost == 0 && summary.sensors_unreconciled == 0,
            inconclusive: summary.inconclusive,
        }
    }

    /// Everything that was asked for was achieved.
    pub fn is_good(&self) -> bool {
        matches!(self.tardiness, Tardiness::OnGoal | Tardiness::Below)
            && self.fresh_kept
            && self.accounted
            && !self.inconclusive
    }

    /// The verdict in a sentence, for `report`.
    pub fn sentence(&self, report: &RunReport) -> String {
        let (goal, summary) = (&report.header.goal, &report.summary);
        if self.tardiness == Tardiness::TooShort {
            let settle = report.header.settle_s;
            return format!("Too short to judge: means are taken from {settle:.0} s on.");
        }
        if self.inconclusive {
            return "Inconclusive: something else kept interrupting the real-time core; repeat on a quieter machine."
                .into();
        }
        let mean = summary.tardiness_mean;
        let set_point = goal.tasks.nominal();
        let mut sentence = match (self.tardiness, report.header.controller) {
            (Tardiness::Above, ControllerKind::Open) => {
                format!("Tardy without control: {mean:.2} on average, where {set_point:.2} was asked for")
            }
            (Tardiness::Above, _) => format!("Goal missed: tardiness {mean:.2} on average, goal {set_point:.2}"),
            (Tardiness::Below, _) => {
                format!("Earlier than asked for: tardiness {mean:.2} on average, goal {set_point:.2}")
            }
            _ => format!("Goal held: tardiness {mean:.2} on average, goal {set_point:.2}"),
        };
        if !self.fresh_kept {
            let (least, minimum) = (summary.fresh_share_min * 100.0, goal.min_fresh);
            sentence +=
                &format!("; but only {least:.1} % of the data was fresh at worst, under the minimum of {minimum}");
        }
        if !self.accounted {
            sentence += &format!("; but {} updates were lost", summary.updates_lost);
        }
        sentence + "."
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn judged(change: impl FnOnce(&mut RunReport)) -> (Verdict, String) {
        let mut report = fixture::report();
        change(&mut report);
        let verdict = Verdict::of(&report);
        (verdict, verdict.sentence(&report))
    }

    #[test]
    fn a_mean_near_the_set_point_is_on_goal() {
        let (verdict, sentence) = judged(|report| report.summary.tardiness_mean = 0.88);
        assert!(verdict.is_good());
        assert_eq!(sentence, "Goal held: tardiness 0.88 on average, goal 0.85.");
    }

    #[test]
    fn every_way_to_fail_is_told() {
        for (change, expected) in [
            (
                (|report: &mut RunReport| report.summary.tardiness_mean = 1.3) as fn(&mut RunReport),
                "Goal missed: tardiness 1.30 on average, goal 0.85.",
            ),
            (
                |report| report.summary.fresh_share_min = 0.42,
                "Goal held: tardiness 0.86 on average, goal 0.85; but only 42.0 % of the data was fresh at worst, under the minimum of 50.0 %.",
            ),
            (
                |report| report.summary.updates_lost = 3,
                "Goal held: tardiness 0.86 on average, goal 0.85; but 3 updates were lost.",
            ),
            (
                |report| report.summary.inconclusive = true,
                "Inconclusive: something else kept interrupting the real-time core; repeat on a quieter machine.",
            ),
            (
                |report| report.samples.truncate(10),
                "Too short to judge: means are taken from 7 s on.",
            ),
        ] {
            let (verdict, sentence) = judged(change);
            assert!(!verdict.is_good());
            assert_eq!(sentence, expected);
        }
    }
}
