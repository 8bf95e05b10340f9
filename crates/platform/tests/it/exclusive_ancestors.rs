//! The shell that started a program with an exclusive core is moved off that core, with what it starts meanwhile, and
//! all of it is where it was once the program has ended, or was killed.
//!
//! A shell under a name of its own starts this binary again, which takes the last core for real. All programs but these
//! are named as to be left alone.

#![cfg(target_os = "linux")]

use crate::common;

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::process::parent_id;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use common::all_programs_but;
use punctual_platform::linux::exclusive::SPARE;
use punctual_platform::linux::{ClockPreference, LinuxMachine, LinuxOptions};
use punctual_platform::{Machine, Neighbours, Why};
use punctual_testing::{CHILD_MAX, TestChild, free_cores, machine, wait_for, wait_until};

/// The child ends when this file is there.
const END: &str = "PUNCTUAL_TEST_END";
const SHELL: &str = "shell-above";

/// The child's part; a test of its own name only when told so.
#[test]
fn child() {
    let Some(end) = std::env::var_os(END) else { return };
    let machine = LinuxMachine::open(LinuxOptions {
        clock: ClockPreference::None,
        ..LinuxOptions::default()
    })
    .unwrap();
    let core = *machine.offers().cores.last().unwrap();
    match machine.exclusive_cores(&[core], &Neighbours::default()) {
        Ok(cores) => {
            let named = |why| cores[0].obtained().stays.iter().any(|stay| stay.why == why);
            println!(
                "\nTAKEN core {core} init {} spared {}",
                named(Why::Init),
                named(Why::Spared)
            );
            // A test that fails takes the folder away, and one that is killed its shell: the core must not stay taken.
            let (folder, parent) = (Path::new(&end).parent().unwrap(), parent_id());
            wait_until("the order to end", || {
                !folder.exists() || parent_id() != parent || Path::new(&end).exists()
            });
        }
        Err(refusal) => println!("\nREFUSED {refusal}"),
    }
}

/// The shell above the child, and what it says.
struct Above {
    shell: TestChild,
    orders: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
    child: String,
    /// Whether the child got its core.
    taken: String,
}

impl Above {
    fn start(folder: &Path, end: &Path) -> Above {
        for (program, name) in [("/bin/sh", SHELL), ("/bin/sleep", "late-child")] {
            punctual_testing::copy_program(Path::new(program), &folder.join(name));
        }
        // On lines of their own, whatever the child has begun to write.
        let script = concat!(
            r#""$@" & printf '\n%s\n' "$!"; "#,
            r#"while read line; do "${0%/*}/late-child" 60 >/dev/null & printf '\n%s\n' "$!"; done"#
        );
        let mut shell = Command::new(folder.join(SHELL));
        shell
            .args(["-c", script])
            .arg(folder.join(SHELL))
            .arg(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "exclusive_ancestors::child",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(END, end)
            .env(SPARE, all_programs_but(SHELL).join(","))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut shell = punctual_testing::start(&mut shell, CHILD_MAX).unwrap();
        let mut said = BufReader::new(shell.stdout().unwrap()).lines();
        // The child may speak before the shell does.
        let (mut child, mut taken) = (None, None);
        while child.is_none() || taken.is_none() {
            let line = said.next().expect("the child ended before it said anything").unwrap();
            if line.starts_with("TAKEN") || line.starts_with("REFUSED") {
                taken = Some(line);
            } else if line.parse::<u32>().is_ok() {
                child = Some(line);
            }
        }
        Above {
            orders: shell.stdin().unwrap(),
            shell,
            said,
            child: child.unwrap(),
            taken: taken.unwrap(),
        }
    }

    /// Starts a program that goes on.
    fn starts(&mut self) -> String {
        writeln!(self.orders, "go").unwrap();
        // The child's own lines come in between.
        { self.said.by_ref().map_while(Result::ok) }
            .find(|line| line.parse::<u32>().is_ok())
            .expect("the shell says which process it has started")
    }
}

/// On which cores, and in which group, a process is.
fn place(process: &str) -> (String, String) {
    let text = |file: &str| fs::read_to_string(format!("/proc/{process}/{file}")).unwrap_or_default();
    let status = text("status");
    let cores = status.lines().find(|line| line.starts_with("Cpus_allowed_list"));
    let groups = text("cgroup");
    let group = groups
        .lines()
        .find(|line| line.contains("cpuset") || line.starts_with("0::"));
    (cores.unwrap_or_default().into(), group.unwrap_or_default().into())
}

fn is_moved_and_put_back(end: impl FnOnce(&str, &Path)) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("end");
    let own = place("self");
    let mut above = Above::start(folder.path(), &file);
    let taken = above.taken.clone();
    if taken.starts_with("REFUSED") {
        return eprintln!("skipped: {taken}");
    }
    eprintln!("{taken}");
    let shell = above.shell.id().to_string();
    assert_ne!(place(&shell).0, own.0, "the shell was moved");
    let late = above.starts();
    wait_until("what it starts is moved at the next sweep at the latest", || {
        place(&late).0 != own.0
    });
    end(&above.child, &file);
    let latest = above.starts();
    let all = [shell.as_str(), &late, &latest];
    wait_for(
        || format!("{:?}, not {own:?}", all.map(place)),
        || all.iter().all(|process| place(process) == own).then_some(()),
    );
    for process in [&late, &latest] {
        let _ = Command::new("kill").args(["-KILL", process]).status();
    }
}

#[test]
fn the_shell_and_what_it_starts_are_put_back_after_the_end_and_after_a_kill() {
    let _machine = machine();
    if let Err(holder) = free_cores() {
        return eprintln!("skipped: {holder}");
    }
    is_moved_and_put_back(|_, file| fs::write(file, "").unwrap());
    is_moved_and_put_back(|child, _| {
        assert!(Command::new("kill").args(["-KILL", child]).status().unwrap().success());
    });
}
