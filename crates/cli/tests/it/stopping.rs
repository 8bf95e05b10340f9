//! Ctrl-C and the end of a terminal: the first ends a run in order, the second leaves at once.

use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStderr, Command, Stdio};

use punctual_testing::{CHILD_MAX, TestChild};

const SCENARIO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/robot.toml");

/// A simulated run of many hours, once it has told its first second.
fn long_run() -> (TestChild, BufReader<ChildStderr>) {
    let arguments = [
        "run",
        SCENARIO,
        "--platform",
        "sim",
        "--controller",
        "open",
        "--duration",
        "20h",
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = punctual_testing::start(&mut command, CHILD_MAX).expect("the program starts");
    let mut told = BufReader::new(run.stderr().expect("standard error"));
    let mut line = String::new();
    while !line.contains("tardiness") {
        line.clear();
        assert!(told.read_line(&mut line).expect("text") > 0, "the run ended early");
    }
    (run, told)
}

fn signal(run: &TestChild, signal: libc::c_int) {
    let pid = libc::pid_t::try_from(run.id()).expect("a process id");
    // SAFETY: plain system call; the child has not been waited for, so the id is still its own.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

#[test]
fn the_first_interrupt_ends_the_run_with_its_report() {
    ends_with_its_report(libc::SIGINT);
}

#[test]
fn the_end_of_the_terminal_ends_the_run_with_its_report() {
    ends_with_its_report(libc::SIGHUP);
}

fn ends_with_its_report(asked: libc::c_int) {
    let (mut run, mut told) = long_run();
    signal(&run, asked);
    let mut rest = String::new();
    told.read_to_string(&mut rest).expect("text");
    let mut summary = String::new();
    run.stdout()
        .expect("standard output")
        .read_to_string(&mut summary)
        .expect("text");
    assert_eq!(run.wait().expect("an end").code(), Some(0));
    assert!(rest.contains("stopping in order"), "{rest}");
    assert!(
        summary.contains("robot on sim") && summary.contains("updates"),
        "{summary}"
    );
}

#[test]
fn the_second_interrupt_leaves_at_once() {
    let (mut run, mut told) = long_run();
    // Stopped meanwhile, so that the run cannot end in order between the two.
    signal(&run, libc::SIGSTOP);
    signal(&run, libc::SIGINT);
    signal(&run, libc::SIGTERM);
    signal(&run, libc::SIGCONT);
    let mut rest = String::new();
    told.read_to_string(&mut rest).expect("text");
    assert_eq!(run.wait().expect("an end").code(), Some(130), "{rest}");
}
