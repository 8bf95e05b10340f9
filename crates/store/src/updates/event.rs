//! The log of admission, in order of its decisions: from it [`Updates`](super::Updates) replay to the same verdicts.

use punctual_units::{SensorId, Seq, Share, Time};
use serde::{Deserialize, Serialize};

use super::SensorSpec;
use super::least::InstallDelays;

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
        /// Instant at which the update was admitted.
        now: Time,
    },
    /// An update arrived, and was admitted or shed.
    Offered {
        /// Number of the update's sensor.
        sensor: SensorId,
        /// The update's number within the sensor.
        seq: Seq,
        /// Instant at which the value was sampled.
        sampled_at: Time,
        /// Instant of the decision.
        now: Time,
        /// Whether the update was admitted.
        admitted: bool,
    },
}
