//! Pipes without a writer and devices without an end, in place of each file that a command takes: refused in bounded
//! time and memory, with 2.

#![cfg(unix)]

use crate::common;

use std::path::Path;

use common::{folder_with, refused};

const SCENARIO: &str = "\
duration = \"1s\"
[control]
controller = \"open\"
warm_up = \"200ms\"
[trace]
dir = \"trace\"
[[task]]
name = \"answer\"
class = \"real-time\"
period = \"100ms\"
deadline = \"50ms\"
compute = \"2ms\"
";

/// Where the file that is none goes, and the command that is to read it.
const COMMANDS: [(&str, &[&str]); 12] = [
    ("x", &["run", "x"]),
    (
        "x",
        &[
            "run",
            "s.toml",
            "--platform",
            "sim",
            "--controller",
            "qod",
            "--model",
            "x",
        ],
    ),
    ("trace/sensors.csv", &["run", "s.toml", "--platform", "sim"]),
    ("trace/readings.csv", &["run", "s.toml", "--platform", "sim"]),
    ("trace/readings.csv.zst", &["run", "s.toml", "--platform", "sim"]),
    ("p.csv", &["run", "profiled.toml", "--platform", "sim"]),
    ("x", &["model", "learn", "x", "-o", "model.json"]),
    ("x", &["model", "design", "x", "-o", "gains.json"]),
    ("x", &["replay", "x"]),
    ("x", &["profile", "x"]),
    ("x", &["profile", "--", "./x"]),
    ("x", &["store", "import", "new", "x"]),
];

fn put_pipe(path: &Path) {
    let name = std::ffi::CString::new(path.to_str().expect("text")).expect("no zero");
    // SAFETY: a path.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o700) }, 0);
}

fn put_zero(path: &Path) {
    std::os::unix::fs::symlink("/dev/zero", path).expect("a link");
}

#[test]
fn a_pipe_without_a_writer_and_a_device_without_an_end_are_refused_by_each_command() {
    for put in [put_pipe as fn(&Path), put_zero] {
        for (place, command) in COMMANDS {
            let profiled = SCENARIO.replace("compute = \"2ms\"", "compute = \"2ms\"\nprofile = \"p.csv\"");
            let profiled =
                format!("{profiled}[allocation]\npolicy = \"exact\"\nways = 4\npartitions = 4\nway_kib = 64\n");
            let folder = folder_with(&[
                ("s.toml", SCENARIO),
                ("profiled.toml", &profiled),
                ("trace/sensors.csv", "id,period_s,avi_s\n0,1,2\n"),
                ("trace/readings.csv", "time_s,sensor_id,value\n0.1,0,20\n0.2,0,21\n"),
            ]);
            let path = folder.path().join(place);
            if place.ends_with(".zst") {
                std::fs::remove_file(folder.path().join("trace/readings.csv")).expect("it was there");
            }
            let _ = std::fs::remove_file(&path);
            put(&path);
            let said = refused(folder.path(), command);
            assert!(
                said.contains(place.trim_start_matches("trace/")),
                "{command:?} with {place}: {said}"
            );
            println!("{command:?}: {said}");
        }
    }
}
