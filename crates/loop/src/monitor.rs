//! The monitor: gathers jobs over a window and closes it into means.

use punctual_workload::JobOutcome;

use crate::event::{Vitals, Window};

/// Gathers the real-time jobs of the current window. Best-effort jobs are ignored.
#[derive(Clone, Debug, Default)]
pub struct Monitor {
    tardiness_sum: f64,
    drr_sum: f64,
    jobs: u32,
    misses: u32,
    offered_before: u64,
    admitted_before: u64,
    forced_before: u64,
}

impl Monitor {
    /// Takes a finished job into the current window.
    pub fn observe(&mut self, job: &JobOutcome) {
        let Some(tardiness) = job.tardiness() else { return };
        self.tardiness_sum += tardiness;
        self.drr_sum += job.drr();
        self.jobs += 1;
        self.misses += u32::from(tardiness > 1.0);
    }

    /// Closes the window and begins the next one.
    pub fn close_window(&mut self, vitals: &Vitals) -> Window {
        let mean = |sum: f64| (self.jobs > 0).then(|| sum / f64::from(self.jobs));
        let offered = vitals.updates_offered.saturating_sub(self.offered_before);
        let admitted = vitals.updates_admitted.saturating_sub(self.admitted_before);
        let forced = vitals.updates_for_minimum.saturating_sub(self.forced_before);
        let window = Window {
            tardiness: mean(self.tardiness_sum),
            drr: mean(self.drr_sum),
            jobs: self.jobs,
            misses: self.misses,
            admitted: (offered > 0).then(|| admitted as f64 / offered as f64),
            forced: if offered > 0 {
                forced as f64 / offered as f64
            } else {
                0.0
            },
            fresh: vitals.fresh.get(),
            clock: None,
        };
        *self = Monitor {
            offered_before: vitals.updates_offered,
            admitted_before: vitals.updates_admitted,
            forced_before: vitals.updates_for_minimum,
            ..Monitor::default()
        };
        window
    }
}
