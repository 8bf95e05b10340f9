//! Learning a model of running tasks: the knob levels to visit, the record of their effects, and the controller
//! designed from it. Pure.
//!
//! **Method.** The loop steps at a period. Its knobs visit the levels of an excitation ([`Exciter`]); each window gives
//! a row of mean tardiness and data response ratio against the knobs in force. A first-order model is fitted by least
//! squares, and a control law is designed from it. The control law reads tardiness and sets the admitted share; where
//! the machine has a real clock, it reads both outputs and sets both knobs.

use punctual_loop::{ControllerDocument, Exciter, MadeFor, ModeName, ModelDocument};
use punctual_units::{Hertz, Nanos, Share};
use punctual_workload::{ControllerKind, Excitation};

use crate::report::Sample;

/// Least number of rows for fitting a model, however short a round of the excitation is.
const ROWS_MIN: u64 = 100;

/// Clock levels for a machine without an adjustable clock: no plan names them.
const NO_CLOCK: [f64; 2] = [0.9, 1.0];

/// Options for learning a model of the running tasks: the range of the knobs, and the pace.
#[derive(Clone, Debug, PartialEq)]
pub struct Learning {
    /// Least share of sensor readings to admit, 0 to 1.
    pub admitted_min: Share,
    /// Lowest clock, as a share of the top one, 0 to 1; ignored where the clock is not adjustable.
    pub clock_min: f64,
    /// Period of the loop while it learns and afterwards: several jobs of each task should end within one.
    pub period: Nanos,
    /// Number of periods for which a level is held.
    pub hold: u32,
}

impl Default for Learning {
    fn default() -> Self {
        Learning {
            admitted_min: Share::clamped(0.25),
            clock_min: 0.6,
            period: Nanos::from_millis(100),
            hold: 3,
        }
    }
}

impl Learning {
    /// The levels that the knobs visit.
    pub fn levels(&self, clock: bool) -> Excitation {
        let three = |low: f64| vec![low, (low + 1.0) / 2.0, 1.0];
        Excitation {
            clock: if clock {
                three(self.clock_min)
            } else {
                NO_CLOCK.to_vec()
            },
            admitted: three(self.admitted_min.get()),
            hold: self.hold,
        }
    }

    /// Begins an empty record, which is complete after whole rounds of the levels. `top` is the top clock of a machine
    /// whose clock is adjustable.
    ///
    /// # Errors
    /// The reason, if the levels teach nothing.
    pub fn record(&self, top: Option<Hertz>) -> Result<Record, String> {
        let exciter = Exciter::new(&self.levels(top.is_some())).map_err(|error| error.to_string())?;
        let round = exciter.period().max(1);
        Ok(Record {
            needed: round * ROWS_MIN.div_ceil(round),
            top,
            before: None,
            y: Vec::new(),
            u: Vec::new(),
        })
    }
}

/// Rows for identification: the means of one window, and the knobs in force in the next.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    needed: u64,
    /// Top clock in hertz; `None`: the clock is not adjusted.
    top: Option<Hertz>,
    /// Tardiness and data response ratio of the last window in which a job ended.
    before: Option<[f64; 2]>,
    y: Vec<[f64; 2]>,
    u: Vec<[f64; 2]>,
}

impl Record {
    /// Adds the sample of one window; returns the record once it is complete.
    ///
    /// A window in which no job ended repeats the row before: its jobs still run, so nothing new is known.
    pub fn take(&mut self, sample: &Sample) -> Option<Record> {
        if sample.mode != ModeName::Running {
            return None;
        }
        if let Some(y) = self.before {
            let clock = self.top.zip(sample.clock_hz).map(|(top, hz)| hz as f64 / top.0 as f64);
            self.y.push(y);
            self.u.push([clock.unwrap_or(1.0), sample.admitted_share]);
        }
        self.before = sample.tardiness.zip(sample.drr).map(<[f64; 2]>::from).or(self.before);
        let complete = self.y.len() as u64 >= self.needed;
        complete.then(|| {
            std::mem::replace(
                self,
                Record {
                    y: Vec::new(),
                    u: Vec::new(),
                    ..self.clone()
                },
            )
        })
    }

    /// Rows recorded so far, and rows needed.
    pub fn progress(&self) -> (u64, u64) {
        (self.y.len() as u64, self.needed)
    }

    /// The controller of the knobs that were moved.
    pub fn kind(&self) -> ControllerKind {
        match self.top {
            Some(_) => ControllerKind::Mimo,
            None => ControllerKind::Qod,
        }
    }

    /// Designs a controller from the rows; returns it with its kind.
    ///
    /// # Errors
    /// The reason, if the rows fit no model, or only an implausible one.
    pub fn learn(&self, made_for: MadeFor) -> Result<(ControllerKind, ControllerDocument), String> {
        let words = |error: &dyn std::fmt::Display| error.to_string();
        if self.top.is_none() {
            let rows = self.y.iter().map(|y| y[0]).zip(self.u.iter().map(|u| u[1]));
            let document = ControllerDocument::of_admission(made_for, rows).map_err(|error| words(&error))?;
            return Ok((self.kind(), document));
        }
        let model = ModelDocument::identify(made_for, &self.y, &self.u).map_err(|error| words(&error))?;
        model.check_fit(self.kind()).map_err(|error| words(&error))?;
        Ok((self.kind(), model.design().map_err(|error| words(&error))?))
    }
}

#[cfg(test)]
mod tests {
    use punctual_platform::KnobId;
    use punctual_units::Nanos;
    use punctual_workload::{Pace, UpdateMode};

    use super::*;

    fn made_for() -> MadeFor {
        MadeFor {
            scenario: "tasks".into(),
            platform: "linux".into(),
            pace: Pace::Period(Nanos::from_millis(100)),
            update_mode: UpdateMode::MemoryFirst,
            machine: None,
            shipped: false,
        }
    }

    /// The record of tasks whose tardiness answers to the admitted share with this gain.
    fn record(gain: f64, learning: &Learning) -> Record {
        let mut record = learning.record(None).unwrap();
        let mut exciter = Exciter::new(&learning.levels(false)).unwrap();
        let (mut tardiness, mut admitted) = (0.5, 1.0);
        for _ in 0..10_000 {
            tardiness = 0.3 * tardiness + gain * admitted + 0.1;
            let sample = Sample {
                tardiness: Some(tardiness),
                drr: Some(0.5),
                admitted_share: admitted,
                mode: ModeName::Running,
                ..Sample::default()
            };
            if let Some(record) = record.take(&sample) {
                return record;
            }
            admitted = exciter.step().get(KnobId::AdmittedShare).unwrap();
        }
        panic!("a record is complete after a bounded number of windows");
    }

    #[test]
    fn a_law_is_learnt_from_tasks_that_answer_to_the_knob() {
        let (kind, document) = record(0.6, &Learning::default()).learn(made_for()).unwrap();
        assert_eq!(kind, ControllerKind::Qod);
        assert_eq!(document.made_for, made_for());
    }

    #[test]
    fn tasks_that_do_not_answer_or_answer_the_wrong_way_teach_nothing_and_it_is_said() {
        for gain in [0.0, -0.6] {
            let told = record(gain, &Learning::default()).learn(made_for()).unwrap_err();
            assert!(!told.is_empty(), "gain {gain}");
        }
    }

    #[test]
    fn the_knobs_stay_within_the_bounds() {
        let learning = Learning {
            admitted_min: Share::clamped(0.7),
            clock_min: 0.8,
            ..Learning::default()
        };
        let levels = learning.levels(true);
        assert!(
            levels.admitted.iter().all(|level| (0.7..=1.0).contains(level)),
            "{levels:?}"
        );
        assert!(
            levels.clock.iter().all(|level| (0.8..=1.0).contains(level)),
            "{levels:?}"
        );
    }
}
