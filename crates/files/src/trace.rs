//! Finds and loads a sensor trace: `sensors.csv` and `readings.csv` (or `readings.csv.zst`) in one folder.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use punctual_workload::{Scenario, Sensor, SensorSource, Trace, TraceError};
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use crate::builtin;
use crate::failure::Failure;

const SENSORS: &str = "sensors.csv";
/// Folder of the built-in trace.
const BUILT_IN: &str = "data/fire";

const READINGS: &str = "readings.csv";
const READINGS_PACKED: &str = "readings.csv.zst";

/// Most synthetic readings kept in memory (24 MB), but at least two per sensor; a longer run replays them.
const READINGS_MAX: f64 = 1e6;

/// Readings of `scenario`: loaded from its folder, or drawn from its seed. `file` is the scenario's path.
///
/// # Errors
/// [`Failure::Input`] naming the folder that was searched, or the faulty file and line.
pub fn load(scenario: &Scenario, file: Option<&Path>) -> Result<Trace, Failure> {
    match &scenario.sensors.source {
        SensorSource::Synthetic {
            count,
            period_min,
            period_max,
        } => {
            let bounded = period_min.scaled(READINGS_MAX / f64::from(*count));
            let length = scenario.duration.min(bounded);
            Ok(Trace::synthetic(
                *count,
                *period_min,
                *period_max,
                length,
                scenario.seed,
            ))
        }
        SensorSource::Trace { dir } => {
            let beside = if file.is_some() {
                "beside or above the scenario file"
            } else {
                "above the program"
            };
            match (find(Path::new(dir), &bases(file), beside), dir.as_str()) {
                (Err(_), BUILT_IN) => built_in(),
                (folder, _) => read_folder(&folder?),
            }
        }
    }
}

/// Folders that a relative path may start from: the current folder, the scenario file's folder and its parents, and the
/// parents of the program, so that a build in the project's folder finds the shipped trace from anywhere.
fn bases(file: Option<&Path>) -> Vec<PathBuf> {
    let mut bases = vec![PathBuf::new()];
    let program = std::env::current_exe().ok();
    for start in [file.and_then(|file| file.canonicalize().ok()), program]
        .into_iter()
        .flatten()
    {
        bases.extend(start.ancestors().skip(1).map(Path::to_path_buf));
    }
    bases
}

fn find(dir: &Path, bases: &[PathBuf], beside: &str) -> Result<PathBuf, Failure> {
    let found = bases.iter().map(|base| base.join(dir)).find(|folder| folder.is_dir());
    found.ok_or_else(|| {
        let here = std::env::current_dir().unwrap_or_default();
        Failure::of(format!(
            "trace.dir: no folder \"{}\" in {}, nor {beside}; name the folder that holds {SENSORS} and {READINGS_PACKED}: --set trace.dir=FOLDER",
            dir.display(),
            here.display(),
        ))
    })
}

fn read_folder(folder: &Path) -> Result<Trace, Failure> {
    let sensors = folder.join(SENSORS);
    let parsed = Trace::parse_sensors(open(&sensors)?).map_err(|error| at_line(&sensors, &error))?;
    let plain = folder.join(READINGS);
    if plain.exists() {
        return Trace::parse_readings(parsed, open(&plain)?).map_err(|error| at_line(&plain, &error));
    }
    let packed = folder.join(READINGS_PACKED);
    unpack(parsed, open(&packed)?, &packed)
}

/// Loads the built-in trace.
fn built_in() -> Result<Trace, Failure> {
    let folder = Path::new(BUILT_IN);
    let [sensors, readings] = [SENSORS, READINGS_PACKED].map(|name| folder.join(name));
    let content = |path: &Path| path.to_str().and_then(builtin::file).unwrap_or_default();
    let parsed = Trace::parse_sensors(content(&sensors)).map_err(|error| at_line(&sensors, &error))?;
    unpack(parsed, content(&readings), &readings)
}

/// Decompresses and parses the readings in `file`; messages call it `packed`.
fn unpack(parsed: Vec<Sensor>, file: impl Read, packed: &Path) -> Result<Trace, Failure> {
    let decoder = StreamingDecoder::new(file)
        .map_err(|_| unusable(packed, "is not packed by zstd, or its beginning is damaged"))?;
    let mut unpacked = Decompressor { decoder, failed: false };
    let trace = Trace::parse_readings(parsed, &mut unpacked);
    // A damaged file gets an error about the damage, not about the row that it garbles: so read to the end, where the
    // checksum is.
    let _rest = std::io::copy(&mut unpacked, &mut std::io::sink());
    if unpacked.failed {
        return Err(unusable(
            packed,
            "is damaged, or ends too early: it cannot be unpacked to its end",
        ));
    }
    let frame = &unpacked.decoder.decoder;
    let (told, found) = (frame.get_checksum_from_data(), frame.get_calculated_checksum());
    if told.is_some() && frame.is_finished() && told != found {
        return Err(unusable(packed, "is damaged: its checksum is not that of its content"));
    }
    trace.map_err(|error| at_line(packed, &error))
}

/// Reader of a compressed file that records whether decompression failed: a parser of rows would report a bad row
/// instead.
struct Decompressor<R: Read> {
    decoder: StreamingDecoder<R, FrameDecoder>,
    failed: bool,
}

impl<R: Read> Read for Decompressor<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.decoder.read(into);
        self.failed |= read.is_err();
        read
    }
}

fn unusable(path: &Path, what: &str) -> Failure {
    Failure::at(
        path,
        format!("{what}; fetch it again, or name another trace: --set trace.dir=FOLDER"),
    )
}

fn open(path: &Path) -> Result<impl Read, Failure> {
    let refuse = |what: String| Failure::at(path, what);
    let file = crate::bounded::open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => refuse(format!(
            "missing; a trace folder holds {SENSORS} and {READINGS} (or {READINGS_PACKED}), and --set trace.dir=FOLDER names another one"
        )),
        _ => refuse(format!("cannot be opened: {error}")),
    })?;
    Ok(BufReader::new(file))
}

fn at_line(path: &Path, error: &TraceError) -> Failure {
    Failure::of(format!(
        "{}:{}: {}; correct the row, or name another trace: --set trace.dir=FOLDER",
        path.display(),
        error.line,
        error.what
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Name and content.
    type File<'f> = (&'f str, &'f [u8]);

    const SENSOR_ROWS: &str = "id,period_s,avi_s\n0,1,2\n1,2,4\n";
    const READING_ROWS: &str = "time_s,sensor_id,value\n0.1,0,20\n0.2,1,21.5\n";
    /// Low half of XXH64 of `READING_ROWS`.
    const CHECKSUM: u32 = 0xe85c_a049;
    /// `READING_ROWS` as the zstd program packs it: one raw block.
    fn packed(text: &str) -> Vec<u8> {
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x20, text.len() as u8];
        let header = 1 | (text.len() as u32) << 3;
        frame.extend(&header.to_le_bytes()[..3]);
        frame.extend(text.as_bytes());
        frame
    }

    /// The same with a checksum at its end: the low half of XXH64 of the content.
    fn checked(text: &str) -> Vec<u8> {
        let mut frame = packed(text);
        frame[4] |= 0x04;
        frame.extend(CHECKSUM.to_le_bytes());
        frame
    }

    fn folder(files: &[File<'_>]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        folder
    }

    fn refused(files: &[File<'_>]) -> String {
        let folder = folder(files);
        let text = read_folder(folder.path()).unwrap_err().to_string();
        text.replace(&folder.path().display().to_string(), "DIR")
    }

    #[test]
    fn plain_and_packed_readings_are_the_same() {
        let plain = folder(&[(SENSORS, SENSOR_ROWS.as_bytes()), (READINGS, READING_ROWS.as_bytes())]);
        let packed = folder(&[
            (SENSORS, SENSOR_ROWS.as_bytes()),
            (READINGS_PACKED, &packed(READING_ROWS)),
        ]);
        let trace = read_folder(plain.path()).unwrap();
        assert_eq!(trace.readings.len(), 2);
        assert_eq!(read_folder(packed.path()).unwrap(), trace);
    }

    #[test]
    fn the_program_carries_the_trace_of_the_shipped_scenario() {
        let trace = built_in().unwrap();
        assert_eq!(trace.sensors.len(), 1024);
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(BUILT_IN);
        assert_eq!(trace, read_folder(&folder).unwrap());
    }

    #[test]
    fn mistakes_are_reported_by_file_and_line() {
        let sensors = (SENSORS, SENSOR_ROWS.as_bytes());
        let undamaged = checked(READING_ROWS);
        assert!(read_folder(folder(&[sensors, (READINGS_PACKED, &undamaged)]).path()).is_ok());
        let mut digit = undamaged.clone();
        let at = digit.iter().rposition(|byte| *byte == b'5').unwrap();
        digit[at] = b'6';
        // A damaged file, not a bad row.
        let mut letter = digit.clone();
        let at = letter.iter().position(|byte| *byte == b'0').unwrap();
        letter[at] = b'x';
        let mut cut = packed(READING_ROWS);
        cut.truncate(cut.len() - 4);
        let unknown = b"time_s,sensor_id,value\n0.1,0,20\n0.2,9,1\n";
        let negative = b"id,period_s,avi_s\n0,-1,2\n";
        let cases: [(&str, &[File<'_>], &str); 7] = [
            ("unknown sensor", &[sensors, (READINGS, unknown)], "readings.csv:3"),
            ("negative period", &[(SENSORS, negative)], "sensors.csv:2"),
            ("no readings", &[sensors], "readings.csv.zst"),
            (
                "not packed",
                &[sensors, (READINGS_PACKED, READING_ROWS.as_bytes())],
                "readings.csv.zst",
            ),
            (
                "a changed digit",
                &[sensors, (READINGS_PACKED, &digit)],
                "readings.csv.zst",
            ),
            (
                "a changed letter",
                &[sensors, (READINGS_PACKED, &letter)],
                "readings.csv.zst",
            ),
            ("cut short", &[sensors, (READINGS_PACKED, &cut)], "readings.csv.zst"),
        ];
        let mut list = String::new();
        for (name, files, place) in cases {
            let message = refused(files);
            assert!(message.starts_with(&format!("DIR/{place}: ")), "{name}: {message}");
            list += &format!("{name}\n  => {message}\n");
        }
        insta::assert_snapshot!("trace", list);
    }

    #[test]
    fn a_folder_is_looked_for_in_order() {
        let (first, second) = (folder(&[]), folder(&[]));
        fs::create_dir(second.path().join("data")).unwrap();
        let bases = [first.path().to_path_buf(), second.path().to_path_buf()];
        assert_eq!(
            find(Path::new("data"), &bases, "above").unwrap(),
            second.path().join("data")
        );
        fs::create_dir(first.path().join("data")).unwrap();
        assert_eq!(
            find(Path::new("data"), &bases, "above").unwrap(),
            first.path().join("data")
        );
        let missing = find(Path::new("elsewhere"), &bases, "above").unwrap_err().to_string();
        assert!(
            missing.starts_with("trace.dir: no folder \"elsewhere\" in ")
                && missing.ends_with("--set trace.dir=FOLDER"),
            "{missing}"
        );
    }
}
