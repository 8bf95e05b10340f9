//! The log of a run, and its replay: the same events through a fresh policy must give the same decisions.
//!
//! Two policies decide during a run, each in one thread: the [`Regulator`] where the knobs go, and admission
//! ([`Updates`]) which sensor updates are let in. Their logs are kept apart; neither holds anything but values.

use punctual_store::updates::{AdmissionOptions, SensorSpec, Updates, Verdict};
use punctual_units::{SensorId, Seq, Share, Time};
use serde::{Deserialize, Serialize};

use crate::document::Mismatch;
use crate::event::{Answer, Event};
use crate::tick::{Regulator, RegulatorOptions};

/// The version of logs: raised whenever an event, a decision or an option of the policies changes. Logs from before there was
/// a number are the first.
pub const LOG_VERSION: u32 = 2;

/// What a log file says first.
pub const LOG_KIND: &str = "punctual-log";

/// All events of one run with the decisions they led to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventLog {
    /// What the regulator was made from.
    pub regulator: RegulatorOptions,
    /// Every event it saw, when, and its answer.
    pub steps: Vec<Decision>,
    /// What admission was made from.
    pub admission: AdmissionSetup,
    /// Every event that admission saw, and its verdict.
    pub updates: Vec<AdmissionEvent>,
}

/// One event of the regulator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// When the regulator was stepped.
    pub now: Time,
    /// What happened.
    pub event: Event,
    /// What it answered.
    pub answer: Option<Answer>,
}

/// What admission is made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AdmissionSetup {
    /// Period and validity of each sensor.
    pub sensors: Vec<SensorSpec>,
    /// Minimum, shedding, margin.
    pub options: AdmissionOptions,
}

/// One event of admission.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdmissionEvent {
    /// The knob was moved.
    Share(Share),
    /// Reads per object since the start, for coldest-first shedding.
    Rebalanced(Vec<u64>),
    /// An update arrived.
    Offered {
        /// Whose.
        sensor: SensorId,
        /// Which.
        seq: Seq,
        /// When it was sampled.
        sampled_at: Time,
        /// When it was decided.
        now: Time,
        /// Whether it was let in.
        admitted: bool,
    },
}

impl EventLog {
    /// How many decisions the log holds: the regulator's answers, and the verdicts of admission.
    pub fn decisions(&self) -> usize {
        let offered = |event: &&AdmissionEvent| matches!(event, AdmissionEvent::Offered { .. });
        self.steps.len() + self.updates.iter().filter(offered).count()
    }
}

/// A decision that the replay takes differently.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Index into [`EventLog::steps`] or [`EventLog::updates`].
    pub index: usize,
    /// What was logged and what the replay decided.
    pub what: String,
}

/// Replays `log` through fresh policies and returns every decision that differs; empty means that all are identical.
///
/// # Errors
/// [`Mismatch`] where the logged options make no regulator.
pub fn replay(log: &EventLog) -> Result<Vec<Difference>, Mismatch> {
    let mut differences = Vec::new();
    let mut regulator = Regulator::new(log.regulator.clone())?;
    for (index, logged) in log.steps.iter().enumerate() {
        let answer = regulator.step(&logged.event, logged.now);
        if answer != logged.answer {
            differences.push(Difference {
                index,
                what: format!("logged {:?}, replayed {answer:?}", logged.answer),
            });
        }
    }
    let mut admission = Updates::new(&log.admission.sensors, log.admission.options);
    for (index, event) in log.updates.iter().enumerate() {
        match event {
            AdmissionEvent::Share(share) => admission.set_admitted_share(*share),
            AdmissionEvent::Rebalanced(reads) => {
                // A log that was tampered with may hold too few.
                admission.rebalance(|sensor| reads.get(sensor.index()).copied().unwrap_or(0));
            }
            AdmissionEvent::Offered {
                sensor,
                seq,
                sampled_at,
                now,
                admitted,
            } => {
                let verdict = admission.offer(*sensor, *seq, *sampled_at, &[], *now);
                if verdict != Ok(if *admitted { Verdict::Admitted } else { Verdict::Shed }) {
                    let what =
                        format!("sensor {sensor} update {seq}: logged admitted={admitted}, replayed {verdict:?}");
                    differences.push(Difference { index, what });
                }
            }
        }
    }
    Ok(differences)
}
