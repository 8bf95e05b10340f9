//! `punctual-lab run fm`: the radio's stages in a scenario.

#![cfg(target_os = "linux")]

use crate::common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{BOUND, folder_with, kill_stage, lab, refused};
use punctual_radio::{Options, Recording, SCENARIO, STATION, receive};
use punctual_testing::wait_until;
use serde_json::Value;

/// The true sound of the shipped recording, as the scenario's last stage gets it.
fn true_sound() -> Vec<u8> {
    let mut recording = Recording::open(Path::new(STATION)).unwrap();
    let mut plain = Vec::new();
    recording.copy_to(&mut plain).unwrap();
    let (samples, _) = plain.as_chunks();
    let sound = receive(samples, &Options::default()).unwrap();
    sound.iter().flat_map(|sample| sample.to_le_bytes()).collect()
}

/// The shipped radio, whose stages are killed while it plays.
#[test]
fn the_shipped_radio_loses_nothing_when_its_stages_are_killed() {
    let folder = folder_with(&[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual-lab"));
    command
        .args(["run", "fm", "--json", "r.json"])
        .args(["--set", "stage.sound.program=[\"sh\", \"-c\", \"cat > sound\"]"])
        .current_dir(folder.path())
        .stdout(Stdio::piped());
    let mut run = punctual_testing::start(&mut command, BOUND).expect("the program starts");
    let process = run.id().to_string();
    let mut kills = 0;
    wait_until("the run ends", || {
        let stage = ["demodulator", "sum", "band-2"][kills % 3];
        let arguments = ["pipeline", "--process", &process, "list", "--json", "-"];
        // Not there before it runs, and at its end.
        kills += usize::from(kill_stage(&lab(folder.path(), &arguments), stage));
        // Lets stages go on between two kills.
        std::thread::sleep(Duration::from_millis(50));
        run.ended().expect("a child").is_some()
    });
    assert!(run.wait().unwrap().success());
    assert!(kills > 0, "no stage was killed");
    let report = fs::read_to_string(folder.path().join("r.json")).expect("the report");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let rows = report["stages"].as_array().unwrap();
    assert_eq!(rows.len(), 9);
    assert_eq!(rows[8]["frames_taken"], 1000);
    let restarts: u64 = rows.iter().map(|row| row["restarts"].as_u64().unwrap()).sum();
    // One that is killed while the pipeline ends does not start again.
    assert!(restarts > 0, "no restart after {kills} kills");
    assert!(
        fs::read(folder.path().join("sound")).unwrap() == true_sound(),
        "the sound is another one"
    );
}

/// A kind that there is not, one that has more inputs than edges, and one that makes longer frames than its edge has.
#[test]
fn wrong_kinds_are_told_with_their_line() {
    let folder = folder_with(&[("station", "")]);
    let station = fs::read_to_string(SCENARIO)
        .unwrap()
        .replace("data/station.cu8.zst", "station");
    for (from, to, key, told) in [
        ("\"fm-band-1\"", "\"fm-band-9\"", "stage[3].kind", "fm-band-1-of-6"),
        (
            "\"fm-sum\"",
            "\"fm-sum-of-5\"",
            "stage[7].takes",
            "input 4 of stage \"sum\" has 0 edges",
        ),
        (
            "frame_bytes = 20000",
            "frame_bytes = 5000",
            "edge[1].frame_bytes",
            "makes 20000",
        ),
    ] {
        let text = station.replacen(from, to, 1);
        assert_ne!(text, station, "{from}");
        fs::write(folder.path().join("x.toml"), text).unwrap();
        let said = refused(folder.path(), &["run", "x.toml"]);
        assert!(said.starts_with("x.toml:") && said.contains(key), "{to}: {said}");
        assert!(said.contains(told), "{to}: {said}");
    }
}
