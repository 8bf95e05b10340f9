//! A radio that is given bad input or loses a worker: what is wrong is told with exit code 2, and no frame that was
//! accepted is lost.

#![cfg(target_os = "linux")]

use crate::common;

use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};

use common::BOUND;
use punctual_platform::linux::recovery;
use punctual_testing::{ROLE, workers};
use serde_json::Value;

fn radio(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual-lab"));
    command
        .arg("radio")
        .args(arguments)
        .env(recovery::FOLDER, folder)
        .current_dir(folder)
        .stdin(Stdio::null());
    command
}

/// Half a sample at the end: what comes before is heard to its end, and the exit code tells.
#[test]
fn a_truncated_recording_is_played_as_far_as_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let samples: Vec<u8> = (0..100 * 500u32 + 1).map(|at| (at * at % 251) as u8).collect();
    fs::write(folder.path().join("cut.cu8"), samples).unwrap();
    let output = radio(folder.path(), &["cut.cu8", "--rate", "max", "--wav", "sound.wav"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("cut.cu8"), "{said}");
    let sound = punctual_radio::sound::read(&folder.path().join("sound.wav")).unwrap();
    assert_eq!(sound.len(), 100 * 25, "all whole frames are heard");
}

#[test]
fn silence_is_played_as_silence() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("silent.cu8"), [127u8; 200 * 500]).unwrap();
    let arguments = [
        "silent.cu8",
        "--rate",
        "max",
        "--json",
        "-",
        "--check",
        "--wav",
        "sound.wav",
    ];
    let output = radio(folder.path(), &arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let sound = punctual_radio::sound::read(&folder.path().join("sound.wav")).unwrap();
    assert!(sound.len() == 200 * 25 && sound.iter().all(|it| it.abs() < 1e-6));
}

#[test]
fn moves_on_one_core_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = radio(folder.path(), &["--cores", "0", "--migrate-every", "1ms"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("core 0 is the only one") && said.contains("--cores"),
        "{said}"
    );
}

/// Waits until `found` answers something.
fn wait_for<T>(what: &str, found: impl Fn() -> Option<T>) -> T {
    punctual_testing::wait_for(|| what.to_owned(), found)
}

/// Memory that is gone, too short, no pipeline's, or of another graph: the process that is given it says so and ends,
/// and the pipeline whose memory it is loses nothing.
#[test]
fn a_mapping_that_is_stale_foreign_or_of_another_graph_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    // Until the last one is refused, and then to its end by a signal.
    let arguments = ["--plain", "--rate", "50", "--json", "-"];
    let mut command = radio(folder.path(), &arguments);
    command
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .stdout(Stdio::piped());
    let mut playing = punctual_testing::start(&mut command, BOUND).unwrap();
    let role = wait_for("a worker", || workers(playing.id()).pop()).1;
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let own = std::process::id();
    let memory = |bytes: u64| {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes).unwrap();
        let role = format!("{own} {} {own} 0 0", file.as_raw_fd());
        (file, role)
    };
    let ((_short, short), (_foreign, foreign)) = (memory(4096), memory(1 << 22));
    for (role, arguments, said) in [
        (role.as_str(), ["--bands", "6"].as_slice(), "other stages or edges"),
        (&foreign, &[], "of no pipeline of this version"),
        (&short, &[], "4096 bytes of shared memory"),
        (&format!("{} 3 {own} 0 0", gone.id()), &[], "fd/3: No such file"),
    ] {
        let output = radio(folder.path(), arguments).env(ROLE, role).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{role}: {errors}");
        assert!(errors.contains(said), "{role}: {errors}");
    }
    // SAFETY: plain numbers, of a child that has not been waited for.
    unsafe { libc::kill(playing.id() as i32, libc::SIGINT) };
    let mut text = String::new();
    std::io::Read::read_to_string(&mut playing.stdout().unwrap(), &mut text).unwrap();
    assert!(playing.wait().unwrap().success(), "{text}");
    let report: Value = serde_json::from_str(&text).unwrap();
    let lost = (&report["frames_lost"], &report["frames_duplicated"]);
    assert_eq!(lost, (&0.into(), &0.into()), "{report}");
    assert_eq!(report["audio_sha256"], report["audio_sha256_one_thread"], "{report}");
}

/// Decisions of a table for another graph, none of which this table takes.
#[test]
fn decisions_about_other_stages_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "--plain", "--frames", "2000", "--policy", "table", "--record", "log.json", "--rate", "500",
    ];
    let mut command = radio(folder.path(), &arguments);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let path = folder.path().join("log.json");
    let mut log: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let decisions = log["log"]["decisions"].as_array_mut().unwrap();
    for decision in decisions {
        decision["event"]["stages"]["cycles"].as_array_mut().unwrap().pop();
    }
    fs::write(&path, log.to_string()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual-lab"));
    let output = command
        .args(["replay", "log.json"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("where stages run, asked of table: logged"), "{said}");
}

/// A worker that stands still is killed first, and then replaced: its stages go on, and no frame is lost.
#[test]
fn a_worker_that_hangs_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    // One that hangs is noticed after some six seconds, and this takes seventeen.
    let mut command = radio(folder.path(), &["--plain", "--rate", "600", "--json", "-"]);
    command.current_dir(root).stdout(Stdio::piped());
    let mut radio = punctual_testing::start(&mut command, BOUND).unwrap();
    wait_for("sound", || {
        let mut list = Command::new(env!("CARGO_BIN_EXE_punctual-lab"));
        list.args(["pipeline", "list", "--json", "-"])
            .env(recovery::FOLDER, folder.path());
        let listed: Value = serde_json::from_slice(&list.output().unwrap().stdout).unwrap();
        let stages = listed[0]["stages"].as_array()?;
        let sink = stages.iter().find(|stage| stage["name"] == "sink")?;
        (sink["steps"].as_u64() > Some(10)).then_some(())
    });
    // A single read of the kernel's list of children may miss some.
    let (hangs, _) = wait_for("a worker", || workers(radio.id()).into_iter().next());
    // SAFETY: plain numbers; the radio has not reaped it, because it has not ended.
    unsafe { libc::kill(hangs, libc::SIGSTOP) };
    let mut said = String::new();
    std::io::Read::read_to_string(&mut radio.stdout().unwrap(), &mut said).unwrap();
    assert!(radio.wait().unwrap().success(), "{said}");
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&report["frames_lost"], &report["frames_duplicated"]),
        (&0.into(), &0.into()),
        "{report}"
    );
    assert_eq!(report["audio_sha256"], report["audio_sha256_one_thread"], "{report}");
    assert!(
        !Path::new(&format!("/proc/{hangs}/exe")).exists(),
        "the one that hung is still there"
    );
    let stages = report["stages"].as_array().unwrap();
    let restarts: u64 = stages.iter().filter_map(|stage| stage["restarts"].as_u64()).sum();
    assert!(restarts > 0, "its stages have other processes: {report}");
}

/// A recording in another format is played as what it is; one that cannot be played leaves no sound behind.
#[test]
fn other_formats_are_played_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = vec![0; 200 * 500];
    let station = punctual_radio::Recording::open(Path::new(punctual_radio::STATION));
    station.unwrap().read(&mut bytes).unwrap();
    let s16: Vec<u8> = bytes.iter().flat_map(|&byte| [byte, byte ^ 0x80]).collect();
    let file = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    file("x.cu8", &bytes);
    file("x.cs16", &s16);
    file("x.bin", &s16);
    file(
        "x.sigmf-meta",
        br#"{"global":{"core:datatype":"ci16_le","core:sample_rate":250000}}"#,
    );
    file("x.sigmf-data", &s16);
    let play = |arguments: &[&str]| {
        let output = radio(folder.path(), &[arguments, &["--rate", "max", "--json", "-"]].concat())
            .output()
            .unwrap();
        let report: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        (
            report,
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (own, ..) = play(&["x.cu8"]);
    let own = own.unwrap();
    for arguments in [&["x.cs16"][..], &["x.sigmf-meta"], &["x.bin", "--format", "cs16"]] {
        let (report, code, said) = play(arguments);
        let report = report.unwrap_or_else(|| panic!("{arguments:?}: {said}"));
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(report["audio_sha256"], own["audio_sha256"], "{arguments:?}");
        assert_eq!(
            report["audio_sha256"], report["audio_sha256_one_thread"],
            "{arguments:?}"
        );
        assert_eq!(report["input"]["format"], "cs16");
    }
    for (arguments, what) in [
        (&["x.bin", "--wav", "out.wav"][..], "--format cs16"),
        (&["x.cs16", "--format", "cu7"], "give cu8"),
        (&["x.cs16", "--iq-rate", "48k"], "48000 IQ samples"),
        (&["x.sigmf-data", "--format", "cu8"], "SigMF header says cs16"),
    ] {
        let (_, code, said) = play(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {said}");
        assert!(said.contains(what), "{arguments:?}: {said}");
    }
    assert!(!folder.path().join("out.wav").exists());
}
