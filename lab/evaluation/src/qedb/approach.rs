//! The approaches that the paper compares (Table 2), and the two set points of Fig. 10.

use punctual_workload::ControllerKind;

/// The approaches of Figs. 7 to 9, by label.
pub const APPROACHES: [(&str, Approach); 5] = [
    ("open", Approach::Open),
    ("dvfs-only", Approach::DvfsOnly),
    ("qod1000", Approach::Qod(1000)),
    ("qod1800", Approach::Qod(1800)),
    ("mimo", Approach::Mimo(DrrGoal::Nominal)),
];

/// The controller of a run, with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Approach {
    /// Open: no QoS management, under the `ondemand` governor.
    Open,
    /// DVFSonly: the clock follows tardiness.
    DvfsOnly,
    /// QoDxxx: the admitted share follows tardiness; the clock is pinned (MHz).
    Qod(u64),
    /// MIMO: clock and admitted share follow tardiness and the data response ratio (drr).
    Mimo(DrrGoal),
    /// No control at a pinned clock (MHz), for the microbenchmarks.
    Pinned(u64),
}

/// The set point of the data response ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrrGoal {
    /// The job's nominal drr, profiled with every other core idle: 0.28 in the paper.
    Nominal,
    /// 0.40 / 0.28 of the nominal drr: as far above as the paper's second set point.
    High,
}

impl DrrGoal {
    /// The set point for a job with the drr `nominal`.
    pub fn of(self, nominal: f64) -> f64 {
        match self {
            DrrGoal::Nominal => nominal,
            DrrGoal::High => nominal * 0.40 / 0.28,
        }
    }
}

impl Approach {
    /// The controller, and its set point of the data response ratio for a job with the ratio `nominal_drr`.
    pub fn controller(self, nominal_drr: f64) -> (ControllerKind, f64) {
        match self {
            Approach::Open | Approach::Pinned(_) => (ControllerKind::Open, nominal_drr),
            Approach::DvfsOnly => (ControllerKind::Clock, nominal_drr),
            Approach::Qod(_) => (ControllerKind::Qod, nominal_drr),
            Approach::Mimo(goal) => (ControllerKind::Mimo, goal.of(nominal_drr)),
        }
    }
}
