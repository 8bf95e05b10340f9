//! `punctual attach` around programs in C and Python that report their jobs.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use punctual_os::{Scheduling, Tid};
use punctual_platform::linux::recovery::{self, Holding};
use punctual_platform::linux::thread::scheduling;
use punctual_testing::{machine, shared_machine, wait_until};
use serde_json::Value;

use crate::common::{BOUND, folder_with, refused, told};

/// A control loop of 50 Hz, as the examples have it.
fn control(folder: &Path) -> Option<PathBuf> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let program = folder.join("control");
    let built = Command::new("cc")
        .args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-I"])
        .args([&format!("{root}/include"), "-o"])
        .arg(&program)
        .arg(format!("{root}/examples/attach/control.c"))
        .status();
    match built {
        Ok(status) => assert!(status.success(), "the example is built"),
        Err(_) => {
            eprintln!("skipped: no C compiler");
            return None;
        }
    }
    Some(program)
}

/// Whether this user may give threads real-time priorities.
fn may_seat() -> bool {
    let tried = std::thread::spawn(|| punctual_platform::linux::thread::real_time(1)).join();
    match tried.expect("no panic") {
        Ok(()) => true,
        Err(refusal) => {
            eprintln!("skipped: {refusal}");
            false
        }
    }
}

/// Children that are killed when dropped.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Children {
    fn start(command: &mut Command) -> Children {
        Children(vec![command.spawn().expect("the program starts")])
    }

    /// Two loops that never wait, for each core.
    fn hogs() -> Children {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let hog = |_| {
            Command::new("sh")
                .args(["-c", "while :; do :; done"])
                .spawn()
                .expect("a shell")
        };
        Children((0..2 * cores).map(hog).collect())
    }

    fn tid(&self) -> Tid {
        Tid(self.0[0].id() as i32)
    }
}

/// The control loop, which yields to all other work.
fn started(program: &Path, folder: &Path) -> Children {
    let mut command = Command::new("nice");
    command
        .args(["-n", "19"])
        .arg(program)
        .arg("600")
        .env("PUNCTUAL_RUN_DIR", folder.join(".run"));
    Children::start(&mut command)
}

/// The cores of a thread, as the kernel lists them.
fn affinity(thread: Tid) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status
        .lines()
        .find(|line| line.starts_with("Cpus_allowed_list"))
        .map(String::from)
}

fn file(more: &str) -> String {
    format!("[[task]]\nname = \"control\"\ndeadline = \"10ms\"\nlate = \"1 %\"\n{more}")
}

fn attached(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = crate::common::program(folder);
    command.arg("attach").args(arguments);
    command
}

/// Report of the task in a run with this file.
fn report(folder: &Path, name: &str) -> (Value, Value) {
    let mut command = attached(folder, &[name, "--duration", "4s", "--plain", "--json", "report.json"]);
    told(punctual_testing::output(&mut command, BOUND).expect("the program starts"));
    let text = std::fs::read_to_string(folder.join("report.json")).expect("a report");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    (report["tasks"][0].clone(), report)
}

fn count(task: &Value, key: &str) -> u64 {
    task[key].as_u64().unwrap_or_else(|| panic!("no {key} in {task}"))
}

#[test]
fn a_program_that_is_late_beside_others_is_held_when_attached_and_given_back() {
    let _machine = machine();
    let files = [("seen.toml", file("")), ("held.toml", file("class = \"real-time\"\n"))];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let folder = folder_with(&files);
    let Some(program) = control(folder.path()) else { return };
    let control = started(&program, folder.path());
    let _hogs = Children::hogs();
    let before = Scheduling::Other { nice: 19 };
    wait_until("nice has run", || scheduling(control.tid()) == Ok(before));
    if !may_seat() {
        return;
    }
    let (seen, _) = report(folder.path(), "seen.toml");
    assert!(
        count(&seen, "jobs") > 20 && count(&seen, "late") * 2 > count(&seen, "jobs"),
        "{seen}"
    );
    assert!(scheduling(control.tid()).is_ok_and(|now| now == before));

    let mut last = Value::Null;
    // Another test's program may have the core at one time, but not at three.
    let held = (0..3).any(|_| {
        let (task, whole) = report(folder.path(), "held.toml");
        let obtained = whole["protection"].as_array().expect("a list");
        let seated = |it: &Value| it["what"] == "control: SCHED_FIFO 80" && it["refused"].is_null();
        last = task;
        obtained.iter().any(seated) && count(&last, "jobs") > 20 && count(&last, "late") * 4 < count(&last, "jobs")
    });
    assert!(held, "{last}");
    assert_eq!(scheduling(control.tid()), Ok(before), "as it was found");
}

#[test]
fn a_program_that_reports_nothing_is_observed_or_refused_with_the_reason() {
    let name = format!("drive{}", std::process::id());
    let task = |task: &str, program: &str| {
        format!(
            "[[task]]\nname = \"{task}\"\nprogram = \"{program}\"\nobserve = \"clock_nanosleep\"\ndeadline = \"10s\"\n"
        )
    };
    let text = task("drive", &name) + &task("ghost", "no-program");
    let folder = folder_with(&[("observed.toml", &text)]);
    let Some(program) = control(folder.path()) else { return };
    let drive = folder.path().join(&name);
    std::fs::rename(program, &drive).expect("another name");
    let _drive = Children::start(
        Command::new(drive)
            .arg("600")
            .env("PUNCTUAL_RUN_DIR", folder.path().join("none")),
    );
    let files = ["--json", "report.json", "--html", "page.html"];
    let mut command = attached(folder.path(), &["observed.toml", "--duration", "4s", "--plain"]);
    let output = punctual_testing::output(command.args(files), BOUND).expect("the program starts");
    if output.status.code() == Some(2) {
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(why.contains("observing threads"), "{why}");
        return eprintln!("skipped: {why}");
    }
    let (text, _) = told(output);
    let read = |file: &str| std::fs::read_to_string(folder.path().join(file)).expect("a file");
    let report: Value = serde_json::from_str(&read("report.json")).expect("JSON");
    assert!(count(&report["tasks"][0], "jobs") > 20, "{text}");
    assert_eq!(count(&report["tasks"][1], "jobs"), 0, "{text}");
    let said = [
        "drive is observed: a job ends when its thread calls clock_nanosleep",
        "ghost: not observable",
    ];
    for whole in [text, read("report.json"), read("page.html")] {
        assert!(said.iter().all(|said| whole.contains(said)), "{whole}");
    }
    let (planned, _) = told(crate::common::punctual(
        folder.path(),
        &["attach", "observed.toml", "--dry-run"],
    ));
    assert!(
        planned.contains(&format!("observed: {name} (process")) && planned.contains("no thread matches"),
        "{planned}"
    );
}

/// A folder with `held.toml`, which gives `control` a real-time priority, and that program; `None` where it cannot be
/// built or may have none.
fn to_be_held() -> Option<(tempfile::TempDir, Children)> {
    let text = file("class = \"real-time\"\n");
    let folder = folder_with(&[("held.toml", &text)]);
    let program = control(folder.path())?;
    may_seat().then(|| {
        let control = started(&program, folder.path());
        (folder, control)
    })
}

#[test]
fn threads_are_given_back_after_a_kill() {
    let _cores = shared_machine();
    let Some((folder, control)) = to_be_held() else { return };
    let before = affinity(control.tid());
    let mut attach = Children::start(attached(folder.path(), &["held.toml", "--plain"]).stderr(Stdio::null()));
    wait_until("the thread is seated", || {
        matches!(scheduling(control.tid()), Ok(Scheduling::Fifo(_)))
    });
    // The epoch of the page: 0 while no runtime listens (docs/guide/attach.md).
    let listens = || std::fs::read(folder.path().join(".run/jobs")).expect("a page")[12..16] != [0; 4];
    assert!(listens());
    attach.0[0].kill().expect("it runs");
    wait_until("the guardian gives it back", || {
        scheduling(control.tid()) == Ok(Scheduling::Other { nice: 19 }) && affinity(control.tid()) == before
    });
    wait_until("programs report to no dead listener", || !listens());
}

#[test]
fn the_report_explains_every_change_that_the_ledger_has() {
    let _cores = shared_machine();
    let Some((folder, control)) = to_be_held() else { return };
    let (planned, _) = told(crate::common::punctual(
        folder.path(),
        &["attach", "held.toml", "--dry-run"],
    ));
    let row = format!(
        "class and priority of control (thread {}): SCHED_FIFO, before ordinary, for control:",
        control.tid()
    );
    assert!(planned.contains(&row), "{planned}");
    let files = ["--json", "report.json", "--html", "page.html"];
    let mut command = attached(folder.path(), &["held.toml", "--plain"]);
    command.args(files).stdout(Stdio::piped()).stderr(Stdio::piped());
    let attach = punctual_testing::start(&mut command, BOUND).expect("the program starts");
    wait_until("the thread is seated", || {
        matches!(scheduling(control.tid()), Ok(Scheduling::Fifo(_)))
    });
    // A view of another process shows them once it has the figures.
    let view = || crate::common::punctual(folder.path(), &["top", "--plain", "--duration", "1s"]).stderr;
    let class = format!(
        "class and priority of control (thread {}): SCHED_FIFO 80, before ordinary;",
        control.tid()
    );
    wait_until("the view explains it", || {
        String::from_utf8_lossy(&view()).contains(&class)
    });
    let ledger = recovery::look(&folder.path().join(".run")).expect("a ledger");
    let of_run = |holder: &&Holding| holder.process == attach.id() as i32;
    let held = ledger.holders.iter().find(of_run).expect("the run is a holder");
    // SAFETY: plain numbers, of a child that has not been waited for.
    unsafe { libc::kill(attach.id() as i32, libc::SIGINT) };
    let (text, _) = told(attach.output().expect("it ends"));
    let read = |file: &str| std::fs::read_to_string(folder.path().join(file)).expect("a file");
    assert!(
        text.contains(&class) && read("page.html").contains("SCHED_FIFO 80</td>"),
        "{text}"
    );
    let report: Value = serde_json::from_str(&read("report.json")).expect("JSON");
    let settings = report["settings"].as_array().expect("a list");
    let things = |row: &Value| row["of"].as_array().map_or(0, Vec::len);
    let standing = settings.iter().filter(|row| row["until_s"].is_null());
    assert_eq!(standing.map(things).sum::<usize>(), held.changes, "{report}");
    let row = settings
        .iter()
        .find(|row| row["now"] == "SCHED_FIFO 80")
        .expect("a row");
    assert_eq!(
        (&row["tasks"][0], &row["why"]),
        (&"control".into(), &"class = \"real-time\"".into())
    );
    assert!(count(row, "jobs_with") > 0, "{row}");
}

#[test]
fn scripts_report_jobs_and_a_task_that_no_program_reports_fails_the_check() {
    let text = file("") + "[[task]]\nname = \"absent\"\ndeadline = \"1s\"\n";
    let folder = folder_with(&[("both.toml", &text)]);
    let report_job = |word: &str| crate::common::punctual(folder.path(), &["job", word, "control"]);
    assert!(report_job("begin").status.success(), "nothing listens");
    let mut command = attached(
        folder.path(),
        &["both.toml", "--plain", "--duration", "600s", "--check"],
    );
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut attach = punctual_testing::start(&mut command, BOUND).expect("the program starts");
    let mut seconds = BufReader::new(attach.stderr().expect("standard error")).lines();
    // The first socket is that of the look for programs; the run listens once it shows a second.
    let mut shows = |part: &str| seconds.any(|line| line.expect("text").contains(part));
    assert!(shows("tardiness"));
    assert!(report_job("begin").status.success() && report_job("end").status.success());
    assert!(shows("tardiness"));
    // SAFETY: plain numbers, of a child that has not been waited for.
    unsafe { libc::kill(attach.id() as i32, libc::SIGINT) };
    let output = attach.output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("absent: no program of this user has reported it"),
        "{text}"
    );
    assert!(!text.contains("control: no program"), "{text}");
}

#[test]
fn bad_files_and_names_are_refused_in_words() {
    let folder = folder_with(&[
        ("x.toml", "[[task]]\nname = \"a\"\n"),
        ("y.toml", "[[task]]\nclass = \"x\"\n"),
        ("core.toml", &file("class = \"exclusive\"\ncore = 4000\n")),
        (
            "groups.toml",
            &file("[best_effort]\ngroups = [\"/nogroup\"]\nshare = \"50 %\"\n"),
        ),
    ]);
    assert!(refused(folder.path(), &["attach", "groups.toml", "--dry-run"]).contains("/nogroup"));
    let run = folder.path().join(".run");
    assert!(!run.join("ledger").exists(), "a dry run takes nothing of the machine");
    let unknown = refused(folder.path(), &["attach", "x.toml"]);
    assert!(
        unknown.contains("start the program first, or give it one, such as deadline = \"5ms\""),
        "{unknown}"
    );
    let absent = refused(folder.path(), &["attach", "core.toml", "--dry-run"]);
    assert!(
        absent.starts_with("core.toml:6: task[0].core: there is no core 4000"),
        "{absent}"
    );
    assert!(refused(folder.path(), &["attach", "y.toml"]).contains("y.toml:2: task[0].class"));
    assert!(refused(folder.path(), &["attach", "z.toml"]).contains("z.toml"));
    assert!(refused(folder.path(), &["job", "begin", &"x".repeat(1 << 16)]).contains("63 bytes"));
}
