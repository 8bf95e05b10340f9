//! The stream of sensor updates that a run sees: a trace, sped up, repeated and replicated.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use punctual_units::{Nanos, SensorId, Seq};

use crate::trace::{Sensor, Trace};

/// Sensor update as it arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SensorUpdate {
    /// Time of sampling and arrival, since the start of the run.
    pub at: Nanos,
    /// Which sensor: replica * sensors of the trace + sensor of the trace.
    pub sensor: SensorId,
    /// Counts up from 1 within the sensor.
    pub seq: Seq,
    /// In the sensor's unit.
    pub value: f64,
}

/// An endless iterator over updates in time order.
///
/// Replica *r* of *n* runs *r/n* of a second of trace time behind the first, so that copies do not arrive in
/// bursts. At the end of the trace the replay starts over; a sensor's period is broken only there.
#[derive(Clone, Debug)]
pub struct SensorStream {
    trace: Arc<Trace>,
    speedup: f64,
    /// The next reading of each replica, the earliest first.
    heads: BinaryHeap<Reverse<Head>>,
    seqs: Vec<u64>,
}

/// Ordered by when the reading arrives, in trace time, then by replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    at: Nanos,
    replica: u32,
    lap: u64,
    next: usize,
}

impl SensorStream {
    /// The stream of `trace`, `speedup` trace seconds per second (above 0), `replicas` copies (at least 1).
    pub fn new(trace: impl Into<Arc<Trace>>, speedup: f64, replicas: u32) -> SensorStream {
        let trace = trace.into();
        let first = trace.readings.first().map_or(Nanos::ZERO, |reading| reading.at);
        let heads = (0..replicas)
            .map(|replica| {
                let at = first + delay(replica, replicas);
                Reverse(Head {
                    at,
                    replica,
                    lap: 0,
                    next: 0,
                })
            })
            .collect();
        let seqs = vec![0; trace.sensors.len() * replicas as usize];
        SensorStream {
            trace,
            speedup,
            heads,
            seqs,
        }
    }

    /// Period and validity interval of every sensor of the stream, in run time, by [`SensorId`].
    pub fn sensors(&self) -> Vec<Sensor> {
        let shrink = 1.0 / self.speedup;
        let one = self.trace.sensors.iter().map(|s| Sensor {
            period: s.period.scaled(shrink),
            avi: s.avi.scaled(shrink),
        });
        let one: Vec<Sensor> = one.collect();
        one.repeat(self.heads.len())
    }
}

fn delay(replica: u32, replicas: u32) -> Nanos {
    Nanos::from_secs(1).scaled(f64::from(replica) / f64::from(replicas.max(1)))
}

impl Iterator for SensorStream {
    type Item = SensorUpdate;

    fn next(&mut self) -> Option<SensorUpdate> {
        let replicas = self.heads.len() as u32;
        let mut earliest = self.heads.peek_mut()?;
        let Reverse(head) = &mut *earliest;
        let reading = self.trace.readings.get(head.next)?;
        let sensor = SensorId(head.replica * self.trace.sensors.len() as u32 + reading.sensor);
        let seq = &mut self.seqs[sensor.index()];
        *seq += 1;
        let update = SensorUpdate {
            at: head.at.scaled(1.0 / self.speedup),
            sensor,
            seq: Seq(*seq),
            value: reading.value,
        };

        head.next += 1;
        if head.next == self.trace.readings.len() {
            head.next = 0;
            head.lap += 1;
        }
        let lap_start = self.trace.length() * head.lap;
        head.at = lap_start + self.trace.readings[head.next].at + delay(head.replica, replicas);
        Some(update)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn updates_arrive_in_order_with_gapless_sequence_numbers(
            seed in any::<u64>(),
            replicas in 1u32..6,
            speedup in 0.5f64..20.0,
        ) {
            let trace = Trace::synthetic(9, Nanos::from_millis(50), Nanos::from_millis(400), Nanos::from_secs(1), seed);
            let mut stream = SensorStream::new(trace.clone(), speedup, replicas);
            let sensors = stream.sensors();
            prop_assert_eq!(sensors.len(), 9 * replicas as usize);
            let mut seen = vec![0u64; sensors.len()];
            let mut last = Nanos::ZERO;
            for _ in 0..3 * trace.readings.len() * replicas as usize {
                let update = stream.next().unwrap();
                prop_assert!(update.at >= last);
                last = update.at;
                seen[update.sensor.index()] += 1;
                prop_assert_eq!(update.seq, Seq(seen[update.sensor.index()]));
            }
            prop_assert!(seen.iter().all(|n| *n >= 2), "every replica's sensors report: {:?}", seen);
        }
    }

    #[test]
    fn speeding_up_shrinks_periods_and_validity_alike() {
        let trace = Trace {
            sensors: vec![Sensor {
                period: Nanos::from_secs(2),
                avi: Nanos::from_secs(4),
            }],
            readings: vec![crate::Reading {
                at: Nanos::from_secs(2),
                sensor: 0,
                value: 1.0,
            }],
        };
        let mut stream = SensorStream::new(trace, 20.0, 1);
        assert_eq!(
            stream.sensors()[0],
            Sensor {
                period: Nanos::from_millis(100),
                avi: Nanos::from_millis(200)
            }
        );
        assert_eq!(stream.next().unwrap().at, Nanos::from_millis(100));
    }
}
