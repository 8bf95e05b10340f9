//! `punctual run` beside another program of punctual: this test, which announces real-time work or has a core alone.

#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Command, Output};

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
