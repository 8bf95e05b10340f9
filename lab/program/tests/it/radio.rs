//! `punctual-lab radio`: no frame is lost or doubled while stages move and die, the sound is that of one thread, and
//! bad input is told with exit code 2.

#![cfg(target_os = "linux")]

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::common::kill_stage;
use punctual_platform::linux::recovery;
use punctual_testing::{CHILD_MAX, MachineGuard, TestChild, free_cores, shared_machine, wait_until};
use serde_json::Value;

/// Waits until a radio may have all cores of the machine; `None` unless there are two to move stages between.
fn two_cores() -> Option<MachineGuard> {
    let cores = shared_machine();
    if let Err(holder) = free_cores() {
        eprintln!("{holder}");
    }
    let are_two = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
    are_two.then_some(cores)
}

fn radio(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual-lab"));
    command
        .arg("radio")
        .args(arguments)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    punctual_testing::output(&mut command, CHILD_MAX).unwrap()
}

#[test]
fn stages_that_move_and_die_lose_no_frame() {
    let Some(_cores) = two_cores() else {
        return eprintln!("skipped: stages are moved between two cores");
    };
    let arguments = "--frames 10000 --rate 2000 --migrate-every 2ms --kill-every 40ms --json -";
    let output = radio(&arguments.split(' ').collect::<Vec<_>>());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |key: &str| report[key].as_u64().unwrap_or_else(|| panic!("{key}: {report}"));
    assert_eq!(
        (number("frames_offered"), number("frames_delivered")),
        (10_000, 10_000),
        "{errors}"
    );
    assert_eq!((number("frames_lost"), number("frames_duplicated")), (0, 0), "{errors}");
    assert_eq!(report["audio_sha256"], report["audio_sha256_one_thread"], "{errors}");
    // On a busy machine fewer are carried out than asked for.
    assert!(number("migrations") > 0 && number("kills") > 0, "{errors}");
    assert!(report["correlation"].as_f64().unwrap() > 0.9999, "{errors}");
    assert!(report["snr_db"].as_f64().unwrap() > 40.0, "{errors}");
}

#[test]
fn what_cannot_be_played_is_told() {
    let cases: [(&[&str], &str); 9] = [
        (&["/nowhere.cu8"], "/nowhere.cu8"),
        (&["--cores", "4000"], "this process may not use core 4000"),
        (&["--cores", "x"], "give auto, or a list"),
        (&["--rate", "-1"], "--rate"),
        (&["--when-full", "drop-late"], "a recording that is a file waits"),
        (&["--gains", "1,2", "--bands", "3"], "2 gains for 3 bands"),
        (&["--slots", "0"], "0 slots"),
        (&["--frame", "7"], "a multiple of 10"),
        (&["--mechanism", "magic"], "affinity, replica, announced"),
    ];
    for (arguments, told) in cases {
        let output = radio(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(told), "{arguments:?}: {errors}");
    }
}

/// A radio that plays beside, in a folder of run-time data of its own.
struct SideRadio {
    folder: tempfile::TempDir,
    radio: TestChild,
}

impl SideRadio {
    fn start(arguments: &[&str]) -> SideRadio {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual-lab"));
        command
            .arg("radio")
            .args(arguments)
            .env(recovery::FOLDER, folder.path());
        command
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
            .stdout(Stdio::piped());
        let radio = punctual_testing::start(&mut command, CHILD_MAX).unwrap();
        SideRadio { folder, radio }
    }

    fn pipeline(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual-lab"));
        command
            .arg("pipeline")
            .args(arguments)
            .env(recovery::FOLDER, self.folder.path());
        punctual_testing::output(&mut command, CHILD_MAX).unwrap()
    }

    fn stages(&self) -> Vec<Value> {
        let listed: Value = serde_json::from_slice(&self.pipeline(&["list", "--json", "-"]).stdout).unwrap();
        listed[0]["stages"].as_array().cloned().unwrap_or_default()
    }
}

#[test]
fn stages_of_a_running_pipeline_are_listed_moved_killed_and_upgraded() {
    // Not over before all is asked of it, on the busiest machine: a signal ends it.
    let mut beside = SideRadio::start(&["--rate", "50", "--json", "-"]);
    wait_until("the radio plays", || {
        assert_eq!(beside.radio.ended().unwrap(), None, "the radio has ended");
        let stages = beside.stages();
        let sink = stages.iter().find(|stage| stage["name"] == "sink");
        sink.is_some_and(|sink| sink["steps"].as_u64() > Some(10))
    });
    let own = env!("CARGO_BIN_EXE_punctual-lab");
    wait_until("sum is killed", || {
        kill_stage(&beside.pipeline(&["list", "--json", "-"]), "sum")
    });
    let upgraded = beside.pipeline(&["upgrade", "band-2", own]);
    assert!(
        String::from_utf8_lossy(&upgraded.stdout).contains("band-2: process"),
        "{upgraded:?}"
    );
    for (arguments, told) in [
        (["upgrade", "band-1", "/bin/false"], "kept its process"),
        (["upgrade", "band-1", "/nowhere"], "/nowhere"),
        (["move", "sink", "0"], "is pinned"),
        (["move", "drum", "0"], "stages are: source, low-pass"),
        (["move", "sum", "4000"], "none of the pipeline's"),
    ] {
        let output = beside.pipeline(&arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(told), "{arguments:?}: {errors}");
    }
    // SAFETY: plain numbers, of a child that has not been waited for.
    unsafe { libc::kill(beside.radio.id() as i32, libc::SIGINT) };
    let mut said = String::new();
    beside.radio.stdout().unwrap().read_to_string(&mut said).unwrap();
    assert!(beside.radio.wait().unwrap().success());
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&report["frames_lost"], &report["frames_duplicated"]),
        (&0.into(), &0.into()),
        "{report}"
    );
    assert_eq!(report["audio_sha256"], report["audio_sha256_one_thread"], "{report}");
    let output = beside.pipeline(&["upgrade", "sum", own]);
    assert_eq!(output.status.code(), Some(2), "it has ended: {output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("no pipeline"),
        "{output:?}"
    );
}

/// The radio on a pipe or file of its own, with its report in a file.
struct PipedRadio {
    folder: tempfile::TempDir,
    radio: TestChild,
}

impl PipedRadio {
    fn start(arguments: &[&str], input: Stdio) -> PipedRadio {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual-lab"));
        command
            .args(["radio", "--json"])
            .arg(folder.path().join("report.json"))
            .args(arguments)
            .env(recovery::FOLDER, folder.path())
            .current_dir(folder.path())
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // As a shell does: the terminal's signals go to all of the group.
        command.process_group(0);
        let radio = punctual_testing::start(&mut command, CHILD_MAX).unwrap();
        PipedRadio { folder, radio }
    }

    /// Waits until stages play.
    fn wait_for_sound(&mut self) {
        self.wait_for_steps(20);
    }

    /// Waits until the sink has taken so many frames.
    fn wait_for_steps(&mut self, steps: u64) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual-lab"));
        command
            .args(["pipeline", "list", "--json", "-"])
            .env(recovery::FOLDER, self.folder.path());
        wait_until("the radio plays", || {
            let listed = punctual_testing::output(&mut command, CHILD_MAX).unwrap();
            let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
            let stages = listed[0]["stages"].as_array().cloned().unwrap_or_default();
            let sink = stages.iter().find(|stage| stage["name"] == "sink");
            let plays = sink.is_some_and(|sink| sink["steps"].as_u64() >= Some(steps));
            if !plays && self.radio.ended().unwrap().is_some() {
                let mut errors = String::new();
                self.radio.stderr().unwrap().read_to_string(&mut errors).unwrap();
                panic!("the radio has ended: {errors}");
            }
            plays
        });
    }

    fn signal_group(&self, signal: i32) {
        // SAFETY: plain numbers; the group is the child's.
        assert_eq!(unsafe { libc::kill(-(self.radio.id() as i32), signal) }, 0);
    }

    /// Its report, once it has ended by itself with exit code 0.
    fn report(&mut self) -> Value {
        let mut errors = String::new();
        self.radio.stderr().unwrap().read_to_string(&mut errors).unwrap();
        assert!(self.radio.wait().unwrap().success(), "{errors}");
        let text = std::fs::read(self.folder.path().join("report.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }
}

/// No frame was lost or came twice, and each that was offered is accounted for.
fn check_account(report: &Value) {
    let number = |key: &str| report[key].as_u64().unwrap_or_else(|| panic!("{key}: {report}"));
    assert_eq!((number("frames_lost"), number("frames_duplicated")), (0, 0), "{report}");
    let accounted = number("frames_delivered") + number("frames_dropped") + number("frames_under_way");
    assert_eq!(number("frames_offered"), accounted, "{report}");
}

#[test]
fn ctrl_c_ends_the_radio_in_order() {
    let Some(_cores) = two_cores() else {
        return eprintln!("skipped: stages are moved between two cores");
    };
    let arguments = ["--migrate-every", "5ms", "--kill-every", "50ms", "--wav", "sound.wav"];
    let mut piped = PipedRadio::start(&arguments, Stdio::null());
    piped.wait_for_sound();
    piped.signal_group(libc::SIGINT);
    let report = piped.report();
    check_account(&report);
    assert_eq!(report["ended_by"], "user", "{report}");
    assert_eq!(report["audio_sha256"], report["audio_sha256_one_thread"], "{report}");
    let sound = punctual_radio::sound::read(&piped.folder.path().join("sound.wav")).unwrap();
    let frames = report["frames_delivered"].as_u64().unwrap() as usize;
    assert_eq!(sound.len(), frames * 25, "the header tells the length");
}

#[test]
fn an_input_that_is_silent_does_not_keep_the_radio_from_its_end() {
    let mut piped = PipedRadio::start(&["-"], Stdio::piped());
    let mut input = piped.radio.stdin().unwrap();
    input.write_all(&[127; 100 * 500]).unwrap();
    piped.wait_for_sound();
    piped.signal_group(libc::SIGTERM);
    let report = piped.report();
    check_account(&report);
    assert_eq!(report["ended_by"], "user", "{report}");
    drop(input);
}

#[test]
fn an_input_that_stalls_is_played_on_afterwards() {
    let mut piped = PipedRadio::start(&["-"], Stdio::piped());
    let mut input = piped.radio.stdin().unwrap();
    for piece in 1..=4 {
        input.write_all(&[127; 100 * 500]).unwrap();
        piped.wait_for_steps(piece * 100);
        // Silence: the sink has played all frames, and finds none when the next one is due. Several times, because a
        // sink that a busy machine puts off for all of it does not look.
        std::thread::sleep(Duration::from_millis(300));
    }
    drop(input);
    let report = piped.report();
    check_account(&report);
    assert_eq!(
        (&report["frames_delivered"], &report["ended_by"]),
        (&400.into(), &"input".into())
    );
    assert!(report["input_stalls"].as_u64() >= Some(1), "{report}");
}

#[test]
fn a_reader_of_the_sound_that_goes_away_ends_the_radio() {
    let mut piped = PipedRadio::start(&["-", "--wav", "-"], Stdio::piped());
    let mut input = piped.radio.stdin().unwrap();
    let feeding = std::thread::spawn(move || while input.write_all(&[127; 5000]).is_ok() {});
    let mut some = vec![0; 10_000];
    piped.radio.stdout().unwrap().read_exact(&mut some).unwrap();
    let report = piped.report();
    check_account(&report);
    assert_eq!(report["ended_by"], "reader", "{report}");
    assert_eq!(&some[..4], b"RIFF");
    feeding.join().unwrap();
}

#[test]
fn a_live_input_may_have_its_oldest_frames_dropped() {
    let mut piped = PipedRadio::start(&["-", "--when-full", "drop-oldest", "--frames", "5000"], Stdio::piped());
    let mut input = piped.radio.stdin().unwrap();
    let feeding = std::thread::spawn(move || while input.write_all(&[127; 5000]).is_ok() {});
    let report = piped.report();
    check_account(&report);
    assert_eq!(report["frames_offered"], 5000, "{report}");
    assert!(
        report["frames_dropped"].as_u64() > Some(0),
        "it comes faster than it is played: {report}"
    );
    feeding.join().unwrap();
}
