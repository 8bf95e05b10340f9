//! Goals of a scenario: one per real-time task, and how fresh data must be.

use std::fmt;

use punctual_units::Share;
use serde::{Deserialize, Serialize};

/// Goal of one real-time task.
///
/// ```
/// use punctual_workload::TaskGoal;
/// assert_eq!(TaskGoal::default().to_string(), "late 1 %");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskGoal {
    /// The share of its jobs that may end after their deadline, above 0 and below 1.
    Late(Share),
    /// The mean of response time / deadline over its jobs, above 0 and at most 10: the set point of the first paper. At
    /// 1 about half of the jobs are late.
    Tardiness(f64),
}

impl TaskGoal {
    /// The largest mean tardiness that may be asked for: far beyond what any user wants, small enough for the
    /// arithmetic of control laws.
    pub const TARDINESS_MAX: f64 = 10.0;
    /// The set point of mean tardiness with which a control law serves a goal of late jobs before any job has been
    /// seen; the first paper's experiments beyond its own figures use it as well.
    pub const NOMINAL: f64 = 0.85;

    /// Key of a scenario file that states such a goal.
    pub const fn key(self) -> &'static str {
        match self {
            TaskGoal::Late(_) => "late",
            TaskGoal::Tardiness(_) => "tardiness",
        }
    }

    /// Set point of mean tardiness for the control law.
    pub const fn nominal(self) -> f64 {
        match self {
            TaskGoal::Late(_) => TaskGoal::NOMINAL,
            TaskGoal::Tardiness(mean) => mean,
        }
    }

    /// The share of jobs that may be late; `None` for a goal of mean tardiness.
    pub const fn late(self) -> Option<Share> {
        match self {
            TaskGoal::Late(share) => Some(share),
            TaskGoal::Tardiness(_) => None,
        }
    }
}

/// By default, one job of a hundred may be late.
impl Default for TaskGoal {
    fn default() -> TaskGoal {
        TaskGoal::Late(Share::clamped(0.01))
    }
}

/// The goal as a user writes it: `late 1 %`, `tardiness 0.85`.
impl fmt::Display for TaskGoal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Six digits: a share in percent is a product of two numbers, and must not show its rounding.
            TaskGoal::Late(share) => write!(f, "late {} %", (share.get() * 100.0 * 1e6).round() / 1e6),
            TaskGoal::Tardiness(mean) => write!(f, "tardiness {mean}"),
        }
    }
}

/// Goals of a scenario.
///
/// In JSON the tasks' goal is a key of this table (`late` or `tardiness`), as in a scenario file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// Goal of each real-time task that has none of its own ([`crate::TaskSpec::goal`]).
    #[serde(flatten)]
    pub tasks: TaskGoal,
    /// Data response ratio (data response time / response time), 0 to 1; only `mimo` controls it.
    pub drr: f64,
    /// The least share of temporal objects that must be fresh in every period (QoD in the paper).
    pub min_fresh: Share,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_written_as_in_a_scenario_file() {
        let goal = |tasks| Goal {
            tasks,
            drr: 0.5,
            min_fresh: Share::ONE,
        };
        for (tasks, json) in [
            (TaskGoal::default(), r#"{"late":0.01,"drr":0.5,"min_fresh":1.0}"#),
            (
                TaskGoal::Tardiness(0.85),
                r#"{"tardiness":0.85,"drr":0.5,"min_fresh":1.0}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&goal(tasks)).unwrap(), json);
            assert_eq!(serde_json::from_str::<Goal>(json).unwrap(), goal(tasks));
        }
        assert_eq!(TaskGoal::Late(Share::clamped(0.001)).to_string(), "late 0.1 %");
        assert_eq!(TaskGoal::Late(Share::clamped(0.07)).to_string(), "late 7 %");
    }
}
