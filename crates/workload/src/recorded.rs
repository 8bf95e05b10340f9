//! Recorded traces: their two tables in CSV files.

use std::io::Read;

use punctual_units::Nanos;

use crate::trace::{Reading, Sensor, Trace};

/// Fault of a trace file, and its line (1 is the header).
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct TraceError {
    /// Line number in the unpacked file.
    pub line: u64,
    /// Description of the fault.
    pub what: String,
}

impl TraceError {
    fn at(line: u64, what: impl Into<String>) -> TraceError {
        let what = what.into();
        TraceError { line, what }
    }
}

/// Most readings per second, as a multiple of what the sensors' periods promise; a trace with more is not of these
/// sensors.
const BUNCHED: f64 = 100.0;

impl Trace {
    /// Reads `sensors.csv` (columns `id`, `period_s`, `avi_s`; others are ignored). Ids count up from 0.
    ///
    /// # Errors
    /// [`TraceError`] with the line of the first row that is malformed.
    pub fn parse_sensors(file: impl Read) -> Result<Vec<Sensor>, TraceError> {
        let mut rows = csv::Reader::from_reader(file);
        let columns = columns(&mut rows, ["id", "period_s", "avi_s"])?;
        let mut sensors = Vec::new();
        each_row(&mut rows, |row, fail| {
            let id: usize = field(row, columns[0], "id", fail)?;
            if id != sensors.len() {
                return Err(fail(format!(
                    "sensor ids count up from 0: expected {}, found {id}",
                    sensors.len()
                )));
            }
            let period = seconds(field(row, columns[1], "period_s", fail)?, "period_s", fail)?;
            let avi = seconds(field(row, columns[2], "avi_s", fail)?, "avi_s", fail)?;
            sensors.push(Sensor { period, avi });
            Ok(())
        })?;
        if sensors.is_empty() {
            return Err(TraceError::at(1, "no sensors: the file has no rows"));
        }
        Ok(sensors)
    }

    /// Reads `readings.csv` (columns `time_s`, `sensor_id`, `value`) of the given sensors, sorted by time.
    ///
    /// # Errors
    /// [`TraceError`] with the line of the first row that is malformed, out of order, or of an unknown sensor.
    pub fn parse_readings(sensors: Vec<Sensor>, file: impl Read) -> Result<Trace, TraceError> {
        let mut rows = csv::Reader::from_reader(file);
        let columns = columns(&mut rows, ["time_s", "sensor_id", "value"])?;
        let mut readings: Vec<Reading> = Vec::new();
        each_row(&mut rows, |row, fail| {
            let seconds: f64 = field(row, columns[0], "time_s", fail)?;
            if !(seconds.is_finite() && seconds >= 0.0) {
                return Err(fail(format!("time_s is {seconds}: expected seconds of at least 0")));
            }
            let at = Nanos::from_secs_f64(seconds);
            let sensor: u32 = field(row, columns[1], "sensor_id", fail)?;
            if sensor as usize >= sensors.len() {
                return Err(fail(format!(
                    "unknown sensor {sensor}: the trace has sensors 0 to {}",
                    sensors.len() - 1
                )));
            }
            let value: f64 = field(row, columns[2], "value", fail)?;
            if !value.is_finite() {
                return Err(fail(format!("value is {value}: expected a finite number")));
            }
            if readings.last().is_some_and(|last| last.at > at) {
                return Err(fail(format!(
                    "rows are sorted by time, but {at} comes after a later row"
                )));
            }
            readings.push(Reading { at, sensor, value });
            Ok(())
        })?;
        if readings.is_empty() {
            return Err(TraceError::at(1, "no readings: the file has no rows"));
        }
        let trace = Trace { sensors, readings };
        let per_second = trace.readings.len() as f64 / trace.length().as_secs_f64();
        if per_second > BUNCHED * trace.rate() {
            let what = format!(
                "the readings end after {} and come {:.0} times as often as the sensors' periods say: a replay, which starts \
                 over at the end, would be nothing but bursts; record for longer",
                trace.length(),
                per_second / trace.rate()
            );
            return Err(TraceError::at(trace.readings.len() as u64 + 1, what));
        }
        Ok(trace)
    }
}

fn columns<R: Read, const N: usize>(rows: &mut csv::Reader<R>, wanted: [&str; N]) -> Result<[usize; N], TraceError> {
    let header = rows.headers().map_err(|error| TraceError::at(1, error.to_string()))?;
    let mut found = [0; N];
    for (slot, name) in found.iter_mut().zip(wanted) {
        let mut columns = header.iter();
        let Some(column) = columns.position(|column| column.trim() == name) else {
            let what = format!("no column \"{name}\"; the header needs {}", wanted.join(", "));
            return Err(TraceError::at(1, what));
        };
        *slot = column;
    }
    Ok(found)
}

type Fail<'a> = &'a dyn Fn(String) -> TraceError;

fn each_row<R: Read>(
    rows: &mut csv::Reader<R>,
    mut take: impl FnMut(&csv::StringRecord, Fail) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let mut row = csv::StringRecord::new();
    loop {
        let line = rows.position().line();
        let fail = |what: String| TraceError { line, what };
        match rows.read_record(&mut row) {
            Ok(true) => take(&row, &fail)?,
            Ok(false) => return Ok(()),
            Err(error) => return Err(fail(error.to_string())),
        }
    }
}

fn field<T: std::str::FromStr>(
    row: &csv::StringRecord,
    column: usize,
    name: &str,
    fail: Fail,
) -> Result<T, TraceError> {
    let text = row.get(column).unwrap_or("").trim();
    text.parse()
        .map_err(|_| fail(format!("{name} is \"{text}\": expected a number")))
}

fn seconds(value: f64, name: &str, fail: Fail) -> Result<Nanos, TraceError> {
    if value.is_finite() && value > 0.0 {
        Ok(Nanos::from_secs_f64(value))
    } else {
        Err(fail(format!("{name} is {value}: expected seconds above 0")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SENSORS: &str = "id,kind,period_s,avi_s\n0,temp,1.5,3\n1,co,2,4\n";

    fn readings(rows: &str) -> Result<Trace, TraceError> {
        let sensors = Trace::parse_sensors(SENSORS.as_bytes()).unwrap();
        Trace::parse_readings(sensors, format!("time_s,sensor_id,value\n{rows}").as_bytes())
    }

    #[test]
    fn a_trace_is_read_by_column_name() {
        let trace = readings("0.018,1,20.5\n0.5,0,-1\n").unwrap();
        assert_eq!(trace.sensors[0].avi, Nanos::from_secs(3));
        assert_eq!(
            trace.readings[0],
            Reading {
                at: Nanos::from_millis(18),
                sensor: 1,
                value: 20.5
            }
        );
        assert_eq!(trace.length(), Nanos(500_000_001));
        assert!((trace.rate() - (1.0 / 1.5 + 0.5)).abs() < 1e-12);
    }

    #[test]
    fn malformed_rows_are_named_by_line() {
        for (rows, line, part) in [
            ("0.1,0,1\n0.2,7,1\n", 3, "unknown sensor 7"),
            ("0.1,0,1\n0.05,0,1\n", 3, "sorted by time"),
            ("0.1,0,abc\n", 2, "value is \"abc\""),
            ("0.1,0,NaN\n", 2, "finite"),
            ("-1,0,1\n", 2, "time_s"),
            ("0.1,0\n", 2, "field"),
            ("", 1, "no readings"),
        ] {
            let error = readings(rows).unwrap_err();
            assert_eq!(error.line, line, "{rows:?}: {error}");
            assert!(error.what.contains(part), "{rows:?}: {error}");
        }
        let missing = Trace::parse_sensors("id,period_s\n0,1\n".as_bytes()).unwrap_err();
        assert!(missing.what.contains("avi_s"), "{missing}");
        let gap = Trace::parse_sensors("id,period_s,avi_s\n1,1,2\n".as_bytes()).unwrap_err();
        assert!(gap.what.contains("expected 0"), "{gap}");
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = Trace::parse_sensors(bytes.as_slice());
            let _ = Trace::parse_readings(vec![Sensor { period: Nanos(1), avi: Nanos(2) }], bytes.as_slice());
        }
    }
}
