//! `punctual doctor --restore` and `punctual doctor` after a program was killed together with its guardian.

#![cfg(target_os = "linux")]

use crate::common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use punctual_platform::linux::journal::Journal;
use punctual_platform::linux::recovery;
use punctual_testing::TestChild;

/// Tells the child which file to change.
const ORDER: &str = "PUNCTUAL_TEST_CHANGES";
const FOUND: &str = "schedutil";

/// The child's part; a test of its own name only when told so.
#[test]
fn child() {
    let Ok(file) = std::env::var(ORDER) else { return };
    let journal = Journal::open(false).expect("a ledger");
    journal.write(Path::new(&file), "userspace").expect("a change");
    println!("\nCHANGED");
    let _ = std::io::stdin().read_line(&mut String::new());
}

struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    fn new() -> Machine {
        Machine {
            folder: common::folder_with(&[("governor", FOUND)]),
        }
    }

    fn governor(&self) -> PathBuf {
        self.folder.path().join("governor")
    }

    fn now(&self) -> String {
        fs::read_to_string(self.governor()).expect("the file")
    }

    /// A program that has changed the file, and has no guardian.
    fn changed(&self) -> TestChild {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", "restoring::child", "--nocapture", "--test-threads=1"])
            .env(ORDER, self.governor())
            .env(recovery::FOLDER, self.folder.path().join("run"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = punctual_testing::start(&mut command, common::BOUND).expect("the child starts");
        let lines = BufReader::new(child.stdout().expect("piped")).lines();
        let said = { lines.map_while(Result::ok) }.find(|line| line == "CHANGED");
        assert!(said.is_some(), "the child ended before it changed anything");
        child
    }

    fn killed(&self) {
        let child = self.changed();
        // SAFETY: plain numbers.
        unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGKILL) };
        drop(child);
        assert_eq!(self.now(), "userspace", "a kill without a guardian leaves it changed");
    }

    fn punctual(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        let run = self.folder.path().join("run");
        command.args(arguments).env(recovery::FOLDER, run);
        punctual_testing::output(command.current_dir(self.folder.path()), common::BOUND).expect("the program starts")
    }
}

#[test]
fn what_a_killed_program_left_is_shown_by_doctor_and_put_back_by_restore() {
    let machine = Machine::new();
    machine.killed();
    let (doctor, _) = common::told(machine.punctual(&["doctor"]));
    let row = { doctor.lines() }
        .find(|line| line.contains("machine as it was found"))
        .expect("a row of doctor");
    assert!(row.contains("missing"), "{row}");
    assert_eq!(machine.now(), "userspace", "doctor changes nothing");

    let (json, _) = common::told(machine.punctual(&["doctor", "--restore", "--json", "-"]));
    let told: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(told["undone"][0], machine.governor().display().to_string(), "{json}");
    assert_eq!(told["dead"][0]["alive"], false, "{json}");
    assert_eq!(told["left"].as_array().map(Vec::len), Some(0), "{json}");
    assert_eq!(machine.now(), FOUND);

    let (again, _) = common::told(machine.punctual(&["doctor", "--restore"]));
    assert!(again.starts_with("nothing to restore"), "{again}");
}

#[test]
fn what_a_living_program_wants_stays() {
    let machine = Machine::new();
    let child = machine.changed();
    let (told, _) = common::told(machine.punctual(&["doctor", "--restore"]));
    assert!(told.starts_with("nothing to restore"), "{told}");
    assert_eq!(machine.now(), "userspace");
    drop(child);
    common::told(machine.punctual(&["doctor", "--restore"]));
    assert_eq!(machine.now(), FOUND);
}

#[test]
fn what_cannot_be_put_back_is_named_with_exit_code_2_and_tried_again_the_next_time() {
    let machine = Machine::new();
    machine.killed();
    fs::remove_file(machine.governor()).expect("removed");
    fs::create_dir(machine.governor()).expect("a folder of its name");
    let output = machine.punctual(&["doctor", "--restore"]);
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("governor") && error.contains(FOUND), "{error}");

    fs::remove_dir(machine.governor()).expect("removed");
    fs::write(machine.governor(), "userspace").expect("written");
    common::told(machine.punctual(&["doctor", "--restore"]));
    assert_eq!(machine.now(), FOUND);
}
