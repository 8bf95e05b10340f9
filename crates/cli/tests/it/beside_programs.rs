//! `punctual run` beside another program of punctual: this test, which announces real-time work or has a core alone.

#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use punctual_platform::linux::journal::Journal;
use punctual_platform::linux::{AnnouncedTask, KernelTree, cores, recovery};
use punctual_units::{CoreId, Nanos};

use crate::common;

/// A task of 20 Hz that needs a tenth of a core.
const SCENARIO: &str = "duration = \"1s\"\n[goal]\nmin_fresh = 0.0\n[control]\ncontroller = \"open\"\nwarm_up = \"0s\"\n\
    [store]\nobjects = 100\n[trace]\nsensors = 4\nperiod = [\"20ms\", \"50ms\"]\n[[task]]\nname = \"steer\"\nclass = \
    \"real-time\"\nperiod = \"50ms\"\ndeadline = \"40ms\"\ncompute = \"4ms\"\ndata = \"1ms\"\n";

/// Runs the scenario with the ledger in `folder`.
fn run(folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    let command = command.args(["run", "x.toml", "--plain"]).current_dir(folder);
    punctual_testing::output(command.env(recovery::FOLDER, folder), common::BOUND).expect("the program starts")
}

/// A task that needs `share` per cent of each of `cores`.
fn filling(cores: &[CoreId], share: u64) -> Vec<AnnouncedTask> {
    let one = |core: &CoreId| AnnouncedTask {
        core: *core,
        execution: Some(Nanos::from_millis(share)),
        deadline: Nanos::from_millis(100),
        period: Nanos::from_millis(100),
    };
    cores.iter().map(one).collect()
}

fn announce(journal: &Journal, tasks: Vec<AnnouncedTask>) {
    let done: Result<_, ()> = journal.announce(|_| Ok((tasks, ())));
    assert_eq!(done, Ok(((), None)));
}

#[test]
fn a_run_takes_another_core_shares_one_that_has_room_or_is_refused_with_the_name_of_its_holder() {
    let _cores = punctual_testing::shared_machine();
    let folder = common::folder_with(&[("x.toml", SCENARIO)]);
    let journal = Journal::open_in(folder.path(), false).expect("a ledger");
    let usable = cores::usable(&KernelTree::default());
    let Some(last) = usable.last() else { panic!("no core") };
    let own = format!("(process {})", std::process::id());

    announce(&journal, filling(&usable, 97));
    let refused = run(folder.path());
    let error = String::from_utf8(refused.stderr).expect("text");
    assert_eq!(refused.status.code(), Some(2), "{error}");
    assert!(error.contains("steer") && error.contains(&own), "{error}");

    announce(&journal, filling(&usable, 10));
    let (shared, _) = common::told(run(folder.path()));
    assert!(shared.contains(&own), "{shared}");
    let joined = journal
        .joined()
        .expect("the run began beside this test's tasks")
        .to_string();
    assert!(joined.contains("punctual"), "{joined}");

    if usable.len() < 2 {
        return eprintln!("skipped: there is no other core to be taken");
    }
    announce(&journal, filling(&[*last], 97));
    let (apart, _) = common::told(run(folder.path()));
    assert!(!apart.contains(&format!("steer: on core {last}")), "{apart}");
    assert!(apart.contains("steer: on core"), "{apart}");
}

#[test]
fn stages_and_exclusive_tasks_of_a_file_are_not_put_on_one_core() {
    let _cores = punctual_testing::shared_machine();
    let usable = cores::usable(&KernelTree::default());
    if usable.len() < 2 {
        return eprintln!("skipped: there is one core only");
    }
    let listed: Vec<String> = usable.iter().map(CoreId::to_string).collect();
    let text = format!(
        "{}[pipeline]\ncores = [{}]\n[[stage]]\nname = \"a\"\nprogram = [\"true\"]\n[[stage]]\nname = \"b\"\nprogram = \
         [\"cat\"]\n[[edge]]\nfrom = \"a\"\nto = \"b\"\nframe_bytes = 8\n",
        SCENARIO.replace("real-time", "exclusive"),
        listed.join(", ")
    );
    let folder = common::folder_with(&[("x.toml", &text)]);
    let refused = run(folder.path());
    let error = String::from_utf8(refused.stderr).expect("text");
    assert_eq!(refused.status.code(), Some(2), "{error}");
    let line = 1 + text
        .lines()
        .position(|line| line.starts_with("cores"))
        .expect("the key");
    assert!(error.starts_with(&format!("x.toml:{line}: pipeline.cores")), "{error}");
    assert!(error.contains("\"steer\""), "{error}");
}

/// Also the thread that draws, and the one that waits for the run, are not to disturb a core of its own.
#[test]
fn no_other_thread_of_a_run_may_use_its_exclusive_core() {
    let _machine = punctual_testing::machine();
    let text = SCENARIO.replace("real-time", "exclusive").replace("1s", "60s");
    let folder = common::folder_with(&[("x.toml", &text)]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    command.args(["run", "x.toml", "--plain"]).current_dir(folder.path());
    command.env(recovery::FOLDER, folder.path()).stderr(Stdio::piped());
    let mut run = punctual_testing::start(&mut command, common::BOUND).expect("the program starts");
    let mut told = BufReader::new(run.stderr().expect("standard error"))
        .lines()
        .map_while(Result::ok);
    assert!(told.any(|line| line.contains("tardiness")), "the run ended early");
    let held = recovery::look(folder.path()).expect("a ledger").holders;
    let Some(core) = held.iter().find_map(|holder| holder.exclusive.first()) else {
        return eprintln!("skipped: no exclusive core is to be had");
    };
    let mut seen = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{}/task", run.id())).expect("it runs") {
        let thread = thread.expect("an entry").path();
        let read = |file: &str| std::fs::read_to_string(thread.join(file)).unwrap_or_default();
        let (name, status) = (read("comm").trim().to_string(), read("status"));
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let allowed = cores::parse_list(allowed.unwrap_or_default().trim());
        if !["steer", &format!("gap-probe-{core}")].contains(&name.as_str()) {
            assert!(!allowed.contains(core), "{name} may use core {core}");
        }
        seen.push(name);
    }
    assert!(seen.iter().any(|name| name == "display"), "{seen:?}");
    // SAFETY: plain system call; the child has not been waited for, so the id is still its own.
    assert_eq!(unsafe { libc::kill(run.id() as libc::pid_t, libc::SIGINT) }, 0);
    assert_eq!(run.wait().expect("an end").code(), Some(0));
}
