//! The log of admission, in order of its decisions: from it [`Updates`] replay to the same verdicts.

use punctual_units::{SensorId, Seq, Share, Time};
use serde::{Deserialize, Serialize};

use super::least::InstallDelays;
use super::{Receipt, SensorSpec, Updates};

/// A call that changed admission's state, with its arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdmissionEvent {
    /// The knob was set to this share.
    Share(Share),
    /// Installations take this long, which changes the least share and the readings that cannot be fresh.
    Delay(InstallDelays),
    /// Reads per object since the last ranking, for coldest-first shedding.
    Rebalanced(Vec<u64>),
    /// A sensor was registered, numbered behind the others.
    Registered(SensorSpec),
    /// An update was admitted regardless of the knob, and bypassed the queue.
    Direct {
        /// Number of the update's sensor.
        sensor: SensorId,
        /// Instant at which the value was sampled.
        sampled_at: Time,
    },
    /// An update arrived, which the knob and the minimum decide on.
    Offered {
        /// Number of the update's sensor.
        sensor: SensorId,
        /// The update's number within the sensor.
        seq: Seq,
        /// Instant at which the value was sampled.
        sampled_at: Time,
    },
}

/// A logged event of admission.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionStep {
    /// Instant of the event, of a decision the one that was decided for; instants ascend.
    pub now: Time,
    /// The call that was logged.
    pub event: AdmissionEvent,
    /// Whether the event admitted an update.
    pub admitted: bool,
}

impl Updates {
    /// Takes a logged event, without the values of updates; returns whether it admitted an update.
    pub fn step(&mut self, event: &AdmissionEvent, now: Time) -> bool {
        match event {
            AdmissionEvent::Share(share) => self.set_admitted_share(*share),
            AdmissionEvent::Delay(delay) => self.set_delay(*delay),
            // A log that was tampered with may hold too few reads.
            AdmissionEvent::Rebalanced(reads) => {
                self.rebalance(|sensor| reads.get(sensor.index()).copied().unwrap_or(0));
            }
            AdmissionEvent::Registered(spec) => self.add_sensor(*spec),
            AdmissionEvent::Direct { sensor, sampled_at } => {
                // A sensor that such a log names may not exist.
                let update = self.admit_directly(*sensor, *sampled_at, now);
                return update.map(|update| self.installed(&update, now)).is_ok();
            }
            AdmissionEvent::Offered {
                sensor,
                seq,
                sampled_at,
            } => return self.offer(*sensor, *seq, *sampled_at, &[], now) == Ok(Receipt::Admitted),
        }
        false
    }
}
