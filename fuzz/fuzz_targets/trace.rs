//! Sensor traces: a table of sensors, a zero byte, and readings as text or packed by zstd. Read, or refused with a
//! line.
#![no_main]

use std::fs;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use punctual_files::failure::Failure;
use punctual_files::{scenario, trace};
use punctual_workload::{Scenario, SensorSource};

/// Where the trace lies, and a scenario that names it.
static PLACE: OnceLock<(tempfile::TempDir, Scenario)> = OnceLock::new();
/// How a file begins that zstd has packed.
const PACKED: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

fuzz_target!(|bytes: &[u8]| {
    let (folder, scenario) = PLACE.get_or_init(|| {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
        let mut scenario = scenario::load(None, &[]).expect("the shipped scenario").scenario;
        scenario.sensors.source = SensorSource::Trace {
            dir: folder.path().display().to_string(),
        };
        (folder, scenario)
    });
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (sensors, readings) = (&bytes[..end], bytes.get(end + 1..).unwrap_or_default());
    let [plain, packed] = ["readings.csv", "readings.csv.zst"].map(|name| folder.path().join(name));
    let (file, other) = if readings.starts_with(&PACKED) {
        (packed, plain)
    } else {
        (plain, packed)
    };
    let _ = fs::remove_file(other);
    fs::write(folder.path().join("sensors.csv"), sensors).expect("room in memory");
    fs::write(file, readings).expect("room in memory");
    match trace::load(scenario, None) {
        Ok(trace) => {
            let known = |sensor: usize| sensor < trace.sensors.len();
            assert!(trace.readings.iter().all(|reading| known(reading.sensor as usize)));
            let _ = (trace.length(), trace.rate());
        }
        Err(Failure::Input(lines)) => assert!(!lines.is_empty(), "refused without a reason"),
        Err(other) => panic!("not the user's fault: {other}"),
    }
});
