//! What decides in a run: the approaches that the paper compares (Table 2), and the two set points of Fig. 10.

use punctual_workload::ControllerKind;

/// The approaches of Figs. 7 to 9, by label.
pub const APPROACHES: [(&str, Approach); 5] = [
    ("open", Approach::Open),
    ("dvfs-only", Approach::DvfsOnly),
    ("qod1000", Approach::Qod(1000)),
    ("qod1800", Approach::Qod(1800)),
    ("mimo", Approach::Mimo(DrrGoal::Nominal)),
];

/// What decides in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Approach {
    /// No QoS management under the `ondemand` governor: Open.
    Open,
    /// The clock from tardiness: DVFSonly.
    DvfsOnly,
    /// The admitted share from tardiness, the clock pinned (MHz): QoDxxx.
    Qod(u64),
    /// Both from tardiness and drr.
    Mimo(DrrGoal),
    /// Nothing decides; the clock is pinned (MHz): the microbenchmarks.
    Pinned(u64),
}

/// The set point of the data response ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrrGoal {
    /// The job's nominal drr, profiled with every other core idle: 0.28 in the paper.
    Nominal,
    /// 0.40 / 0.28 of it, as far above as the paper's second set point.
    High,
}

impl DrrGoal {
    /// The set point where the nominal drr is this one.
    pub fn of(self, nominal: f64) -> f64 {
        match self {
            DrrGoal::Nominal => nominal,
            DrrGoal::High => nominal * 0.40 / 0.28,
        }
    }
}

impl Approach {
    /// The controller, and its set point of the data response ratio where the job's nominal one is this.
    pub fn controller(self, nominal_drr: f64) -> (ControllerKind, f64) {
        match self {
            Approach::Open | Approach::Pinned(_) => (ControllerKind::Open, nominal_drr),
            Approach::DvfsOnly => (ControllerKind::Clock, nominal_drr),
            Approach::Qod(_) => (ControllerKind::Qod, nominal_drr),
            Approach::Mimo(goal) => (ControllerKind::Mimo, goal.of(nominal_drr)),
        }
    }
}
