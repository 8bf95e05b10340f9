//! What admission decided, in order: the log from which [`Updates`](super::Updates) replay to the same verdicts.

use punctual_units::{SensorId, Seq, Share, Time};
use serde::{Deserialize, Serialize};

use super::SensorSpec;

/// One event of admission.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdmissionEvent {
    /// The knob was moved.
    Share(Share),
    /// Reads per object since the last ranking, for coldest-first shedding.
    Rebalanced(Vec<u64>),
    /// One sensor more, numbered behind the others.
    Registered(SensorSpec),
    /// An update was admitted whatever the knob said, and went past the queue.
    Direct {
        /// Its sensor.
        sensor: SensorId,
        /// When it was sampled.
        sampled_at: Time,
        /// When it was admitted.
        now: Time,
    },
    /// An update arrived.
    Offered {
        /// Its sensor.
        sensor: SensorId,
        /// Its number within the sensor.
        seq: Seq,
        /// When it was sampled.
        sampled_at: Time,
        /// When it was decided.
        now: Time,
        /// Whether it was let in.
        admitted: bool,
    },
}
