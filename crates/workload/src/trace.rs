//! Sensor traces: a table of sensors and their readings in time order.

use punctual_units::Nanos;

/// A sensor of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sensor {
    /// Time between two readings, in trace time.
    pub period: Nanos,
    /// Absolute validity interval, in trace time.
    pub avi: Nanos,
}

/// A reading of one sensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// Time since the start of the trace.
    pub at: Nanos,
    /// Index of the sensor in [`Trace::sensors`].
    pub sensor: u32,
    /// In the sensor's unit.
    pub value: f64,
}

/// Sensors and their readings, in time order.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// The sensors; readings refer to them by index.
    pub sensors: Vec<Sensor>,
    /// The readings, by time. At least one.
    pub readings: Vec<Reading>,
}

impl Trace {
    /// The trace's length: after it, a replay starts over. One nanosecond past the last reading.
    pub fn length(&self) -> Nanos {
        self.readings.last().map_or(Nanos::ZERO, |last| last.at + Nanos(1))
    }

    /// Mean readings per second of trace time: the sum of 1 / period.
    pub fn rate(&self) -> f64 {
        self.sensors
            .iter()
            .map(|sensor| 1.0 / sensor.period.as_secs_f64())
            .sum()
    }
}
