//! Ctrl-C and the end of a terminal: the first ends a run in order, the second leaves at once.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{ChildStderr, Command, Stdio};

use punctual_testing::{CHILD_MAX, TestChild, wait_ok};

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
        "--metrics",
        "127.0.0.1:0",
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

/// As a later one does: 0, or 1 with `--check`, as no goal was met.
#[test]
fn an_interrupt_before_the_run_begins_is_no_wrong_input() {
    for (check, code) in [(None, 0), (Some("--check"), 1)] {
        // With a ledger of its own: other tests may have real-time work on every core.
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = crate::common::program(folder.path());
        command.args(["run", SCENARIO, "--duration", "10s"]).args(check);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut run = punctual_testing::start(&mut command, CHILD_MAX).expect("the program starts");
        let mut told = BufReader::new(run.stderr().expect("standard error"));
        let mut rest = String::new();
        assert!(
            told.read_line(&mut rest).expect("text") > 0,
            "it measures what accesses cost"
        );
        signal(&run, libc::SIGINT);
        told.read_to_string(&mut rest).expect("text");
        // Where the run had begun meanwhile, its goals may have been met.
        let begun = !rest.contains("nothing was measured");
        let ended = run.wait().expect("an end").code();
        assert!(ended == Some(code) || begun && ended == Some(0), "{ended:?}: {rest}");
    }
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
    // Where a busy machine puts the run off between the two, it may have ended in order.
    wait_ok("it leaves at once", || {
        let (mut run, mut told) = long_run();
        // Stopped meanwhile, so that it seldom does.
        signal(&run, libc::SIGSTOP);
        signal(&run, libc::SIGINT);
        signal(&run, libc::SIGTERM);
        signal(&run, libc::SIGCONT);
        let mut rest = String::new();
        told.read_to_string(&mut rest).expect("text");
        let code = run.wait().expect("an end").code();
        if code == Some(130) { Ok(()) } else { Err((code, rest)) }
    });
}

/// The page of a run that goes on, and that of one whose port is taken.
#[test]
fn a_run_shows_its_figures_while_it_goes_on() {
    let (mut run, _told) = long_run();
    let mut line = String::new();
    let mut printed = BufReader::new(run.stdout().expect("standard output"));
    printed.read_line(&mut line).expect("text");
    let address = line.trim().strip_prefix("figures on http://");
    let address = address
        .and_then(|rest| rest.strip_suffix("/metrics"))
        .expect("its address");
    let mut page = String::new();
    punctual_testing::wait_until("the page has jobs", || {
        // The server drops a reader that asks nothing for half a second; a busy machine may delay this test longer.
        page.clear();
        let mut stream = TcpStream::connect(address).expect("it listens");
        let asked = stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n");
        let answered = asked.and_then(|()| stream.read_to_string(&mut page));
        answered.is_ok() && page.contains("punctual_task_response_seconds")
    });
    for family in [
        "punctual_task_late_total{task=\"balance\"} 0\n",
        "punctual_task_deadline_seconds{task=\"balance\"} 0.015\n",
        "punctual_task_response_seconds{task=\"balance\",quantile=\"0.99\"} ",
        "# TYPE punctual_fresh_share gauge\n",
        "# TYPE punctual_admitted_share gauge\n",
    ] {
        assert!(page.contains(family), "no {family} in {page}");
    }
    let mut second = Command::new(env!("CARGO_BIN_EXE_punctual"));
    let second = second
        .args(["run", SCENARIO, "--platform", "sim", "--metrics", address])
        .output();
    let second = second.expect("the program starts");
    assert_eq!(second.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&second.stderr).contains("name a free port"),
        "{second:?}"
    );
    signal(&run, libc::SIGINT);
    let mut rest = String::new();
    printed.read_to_string(&mut rest).expect("text");
    assert_eq!(run.wait().expect("an end").code(), Some(0));
}

/// Reads lines up to one with `part`, which is returned; an error has what there was without one.
fn line_with(lines: impl Read, part: &str) -> Result<String, String> {
    let (mut lines, mut line, mut all) = (BufReader::new(lines), String::new(), String::new());
    while !line.contains(part) {
        line.clear();
        if !lines.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            return Err(all);
        }
        all += &line;
    }
    Ok(line)
}

/// Two views of a run that was started without an option for them, in a terminal and in a browser.
#[test]
fn top_shows_a_run_of_another_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let run_in = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        command.args(words).env("PUNCTUAL_RUN_DIR", folder.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        punctual_testing::start(&mut command, CHILD_MAX).expect("the program starts")
    };
    // Repeated: a run that is put off for long gives no greeting.
    let refused = |words: &[&str], part: &str| {
        wait_ok(part, || {
            let (mut child, mut text) = (run_in(words), String::new());
            child
                .stderr()
                .expect("standard error")
                .read_to_string(&mut text)
                .expect("text");
            assert_eq!(child.wait().expect("an end").code(), Some(2), "{text}");
            if text.contains(part) { Ok(()) } else { Err(text) }
        });
    };
    refused(&["top", "no-such-run"], "no run of this user");
    let long = [
        "run",
        SCENARIO,
        "--platform",
        "sim",
        "--controller",
        "open",
        "--duration",
        "20h",
    ];
    let mut run = run_in(&long);
    line_with(run.stderr().expect("standard error"), "tardiness").expect("a run that goes on");
    refused(&["top", "no-such-run"], "robot (process");

    let mut lines = wait_ok("lines of the run", || {
        let mut top = run_in(&["top", "robot", "--plain"]);
        line_with(top.stderr().expect("standard error"), "tardiness").map(|_| top)
    });
    signal(&lines, libc::SIGINT);
    assert_eq!(lines.wait().expect("an end").code(), Some(0));

    let process = run.id().to_string();
    let (mut page, line) = wait_ok("a page of the run", || {
        let mut top = run_in(&["top", &process, "--serve", "127.0.0.1:0"]);
        line_with(top.stdout().expect("standard output"), "http://").map(|line| (top, line))
    });
    let address = line
        .split("http://")
        .nth(1)
        .and_then(|rest| rest.trim().strip_suffix('/'))
        .expect("its address");
    // Repeated, as the page above.
    let ask = |path: &str, part: &str| {
        wait_ok(part, || {
            let mut stream = TcpStream::connect(address).expect("it listens");
            let asked = stream.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes());
            asked.map_err(|why| why.to_string())?;
            line_with(stream, part)
        })
    };
    ask("/", "new EventSource('events')");
    ask("/events", "tasks hold their goals");
    refused(&["top", "robot", "--serve", address], "name a free port");
    refused(&["top", "robot", "--json", "-"], "--json has no effect");

    drop(run);
    let mut told = String::new();
    page.stderr()
        .expect("standard error")
        .read_to_string(&mut told)
        .expect("text");
    assert_eq!(page.wait().expect("an end").code(), Some(2));
    assert!(told.contains("has died"), "{told}");
    refused(&["top"], "no run of this user");
}
