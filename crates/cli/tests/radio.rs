//! `punctual radio`: no frame is lost or doubled while stages move and die, the sound is that of one thread, and bad
//! input is told with exit code 2.

#![cfg(target_os = "linux")]

use std::process::{Command, Output};

use serde_json::Value;

fn radio(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    command
        .arg("radio")
        .args(arguments)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    command.output().unwrap()
}

#[test]
fn stages_that_move_and_die_lose_no_frame() {
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() < 2) {
        return eprintln!("skipped: stages are moved between two cores");
    }
    let arguments = "--frames 3000 --rate 2000 --migrate-every 2ms --kill-every 40ms --json";
    let output = radio(&arguments.split(' ').collect::<Vec<_>>());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |key: &str| report[key].as_u64().unwrap_or_else(|| panic!("{key}: {report}"));
    assert_eq!(
        (number("frames_offered"), number("frames_delivered")),
        (3000, 3000),
        "{errors}"
    );
    assert_eq!((number("frames_lost"), number("frames_duplicated")), (0, 0), "{errors}");
    assert_eq!(report["audio_sha256"], report["audio_sha256_one_thread"], "{errors}");
    // On a busy machine fewer are carried out than asked for.
    assert!(number("migrations") > 50 && number("kills") > 5, "{errors}");
    assert!(report["correlation"].as_f64().unwrap() > 0.9999, "{errors}");
    assert!(report["snr_db"].as_f64().unwrap() > 40.0, "{errors}");
}

#[test]
fn what_cannot_be_played_is_told() {
    let cases: [(&[&str], &str); 8] = [
        (&["/nowhere.cu8"], "/nowhere.cu8"),
        (&["--cores", "4000"], "this process may not use core 4000"),
        (&["--cores", "x"], "give auto, or a list"),
        (&["--rate", "-1"], "--rate"),
        (&["--gains", "1,2", "--bands", "3"], "2 gains for 3 bands"),
        (&["--slots", "0"], "needs 1"),
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
