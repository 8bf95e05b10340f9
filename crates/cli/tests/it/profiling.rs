//! `punctual profile -- PROGRAM`: what is written, and what is said where nothing can be.

use crate::common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn profile(folder: &Path, arguments: &[&str]) -> Output {
    common::punctual(folder, &[&["profile"], arguments].concat())
}

/// What a refused command says; checks that it ended with 2.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = profile(folder, arguments);
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    error
}

fn emulator_is_here() -> bool {
    let emulator = format!("qemu-{}", std::env::consts::ARCH);
    let here = Command::new(&emulator).arg("--version").output().is_ok();
    if !here {
        eprintln!("skipped: no {emulator} here; install qemu-user");
    }
    here
}

fn files(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder)
        .expect("a folder")
        .map(|file| file.expect("a file").file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_profile_is_a_row_per_window_and_the_output_is_the_programs() {
    if !emulator_is_here() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let output = profile(
        folder.path(),
        &["--ways", "4", "--window", "10000", "--", "sh", "-c", "echo hello"],
    );
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    assert_eq!(output.stdout, b"hello\n");
    assert!(error.contains("written to sh.profile.csv: "), "{error}");
    assert_eq!(files(folder.path()), ["sh.profile.csv"]);
    let text = fs::read_to_string(folder.path().join("sh.profile.csv")).expect("the profile");
    let mut lines = text.lines();
    let head = "window_index,instr_start,instr_count,llc_requests,miss_w1,miss_w2,miss_w3,miss_w4";
    assert_eq!(lines.next(), Some(head));
    let remarks: Vec<&str> = lines.by_ref().take(6).collect();
    let told = [
        "# kind: modelled",
        "# ways: 4",
        "# way-bytes: 2097152",
        "# l1: 32768",
        "# l2: 262144",
        "# window: 10000",
    ];
    assert_eq!(remarks, told);
    let mut start = 0;
    for (index, line) in lines.enumerate() {
        let row: Vec<u64> = line.split(',').map(|cell| cell.parse().expect("a number")).collect();
        assert_eq!((row[0], row[1]), (index as u64, start), "{line}");
        assert!(row[3..].is_sorted_by(|more, fewer| more >= fewer), "{line}");
        start += row[2];
    }
    assert!(start > 10_000, "{start} instructions");
}

#[test]
fn a_program_that_fails_leaves_a_partial_profile() {
    if !emulator_is_here() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("p.csv"), "window_index,old").expect("a file");
    let error = refused(folder.path(), &["-o", "p.csv", "--", "sh", "-c", "exit 3"]);
    assert!(
        error.starts_with("sh: ended with exit code 3") && error.contains("\np.csv.partial: "),
        "{error}"
    );
    assert_eq!(files(folder.path()), ["p.csv", "p.csv.partial"]);
    let kept = fs::read_to_string(folder.path().join("p.csv")).expect("a file");
    assert_eq!(kept, "window_index,old", "what was there stays");
    let killed = refused(folder.path(), &["--", "sh", "-c", "kill -9 $$"]);
    assert!(killed.starts_with("sh: was killed by signal 9 (SIGKILL)\n"), "{killed}");
    let replaced = refused(folder.path(), &["--", "sh", "-c", "exec true"]);
    assert!(
        replaced.starts_with("sh: became another program (execve), "),
        "{replaced}"
    );
}

#[test]
fn an_interrupt_ends_the_program_and_keeps_what_was_counted() {
    if !emulator_is_here() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    // The program tells when it runs, and would never end.
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    command
        .args([
            "profile",
            "-o",
            "p.csv",
            "--",
            "sh",
            "-c",
            "echo runs; while :; do :; done",
        ])
        .current_dir(folder.path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut run = punctual_testing::start(&mut command, common::BOUND).expect("the program starts");
    let mut told = [0; 5];
    let mut stdout = run.stdout().expect("standard output");
    std::io::Read::read_exact(&mut stdout, &mut told).expect("runs");
    let pid = libc::pid_t::try_from(run.id()).expect("a process id");
    // SAFETY: plain system call; the child has not been waited for, so the id is still its own.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGINT) }, 0);
    drop(stdout);
    let output = run.output().expect("an end");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.starts_with("sh: was stopped\np.csv.partial: "), "{error}");
    assert_eq!(files(folder.path()), ["p.csv.partial"]);
}

#[test]
fn what_cannot_be_profiled_is_said() {
    let folder = common::folder_with(&[("plain", "#!/bin/sh\n"), ("script", "#!/bin/sh\n")]);
    let here = folder.path();
    let mut foreign = b"\x7fELF\x02\x02\x01".to_vec();
    foreign.resize(18, 0);
    foreign.extend([0, 22]);
    fs::write(here.join("foreign"), foreign).expect("a file");
    use std::os::unix::fs::PermissionsExt;
    for name in ["script", "foreign"] {
        fs::set_permissions(here.join(name), fs::Permissions::from_mode(0o755)).expect("permissions");
    }
    let cases = [
        ("profile -- no-such-program", "no-such-program: no such program"),
        ("profile -- ./plain", "./plain: cannot be run"),
        ("profile -- ./script", "./script: a script, run by /bin/sh"),
        ("profile -- ./foreign", "./foreign: is for s390x"),
        ("profile --way-size 100 -- ls", "a way has 100 bytes"),
    ];
    let list = common::refusals(here, &cases);
    insta::assert_snapshot!("profiling", list.replace(std::env::consts::ARCH, "ARCH"));
    assert!(refused(here, &["--ways", "4"]).contains("<PROGRAM>"));
    assert!(refused(here, &["--way-size", "2kb", "--", "ls"]).contains("such as 64KiB"));
}

#[test]
fn without_an_emulator_it_is_said_what_to_install() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    command
        .args(["profile", "--", "/bin/ls"])
        .current_dir(folder.path())
        .env("PATH", folder.path());
    let output = punctual_testing::output(&mut command, common::BOUND).expect("the program starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("is not in PATH") && error.contains("apt-get install qemu-user"),
        "{error}"
    );
    assert!(files(folder.path()).is_empty());
}

#[test]
fn an_emulator_without_plugins_is_told_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let emulator = folder.path().join(format!("qemu-{}", std::env::consts::ARCH));
    // What Debian 13's says of itself.
    let says = "#!/bin/sh\ncase $1 in --version) echo 'qemu-x86_64 version 10.0.2 (Debian)';; *) echo '-strace  log system calls';; esac\n";
    fs::write(&emulator, says).expect("a file");
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&emulator, fs::Permissions::from_mode(0o755)).expect("permissions");
    let told = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        command
            .args(arguments)
            .current_dir(folder.path())
            .env("PATH", folder.path());
        punctual_testing::output(&mut command, common::BOUND).expect("the program starts")
    };
    let output = told(&["profile", "-o", "p.csv", "--", "/bin/ls"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("(QEMU 10.0.2) takes no plugins"), "{error}");
    assert!(!folder.path().join("p.csv").exists());
    let doctor = String::from_utf8(told(&["doctor"]).stdout).expect("text");
    assert!(doctor.contains("QEMU 10.0.2 takes no plugins"), "{doctor}");
}

#[test]
fn caches_that_cannot_be_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = refused(folder.path(), &["--ways", "65", "--", "ls"]);
    assert!(error.contains("65") && error.contains("64"), "{error}");
    assert!(files(folder.path()).is_empty());
}
