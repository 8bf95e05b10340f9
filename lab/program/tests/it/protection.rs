//! Little protection or none: one core, no permission, less memory than the data. Each time it is said what was refused
//! and what helps, and the player plays all the same.
#![cfg(target_os = "linux")]

use crate::common;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use common::{lab, refused, told};
use punctual_platform::linux::{KernelTree, cores, thread};
use punctual_testing::{free_cores, machine};

const OTHER_USER: u32 = 65534;

/// Two frames in each way of a film of 4 MiB, once.
const MOVIE: [&str; 12] = [
    "bench",
    "movie",
    "movie.toml",
    "--repetitions",
    "1",
    "--json",
    "m.json",
    "--set",
    "movie.frames=2",
    "--set",
    "movie.file_bytes=4194304",
    "--set=movie.disk=idle",
];

fn folder() -> tempfile::TempDir {
    let text = include_str!("../../../../scenarios/movie.toml");
    let folder = common::folder_with(&[("movie.toml", text)]);
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).expect("a mode");
    folder
}

/// Runs the program as a user without any right that may lock 64 KiB.
fn without_rights(folder: &Path, arguments: &[&str]) -> Output {
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "ulimit -l 64; exec \"$0\" \"$@\"",
        env!("CARGO_BIN_EXE_punctual-lab"),
    ]);
    // SAFETY: plain system call that cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        shell.uid(OTHER_USER).gid(OTHER_USER);
    }
    punctual_testing::output(shell.args(arguments).current_dir(folder), common::BOUND).expect("the program starts")
}

/// What the way "dual" obtained and did not, and what became of its goals.
fn dual(folder: &Path) -> (String, String) {
    let text = std::fs::read_to_string(folder.join("m.json")).expect("a file");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let runs = json["runs"].as_array().expect("runs");
    let run = runs.iter().find(|run| run["arm"] == "dual").expect("a run");
    assert_eq!(run["frames"].as_array().map(Vec::len), Some(2), "it played");
    assert_eq!(run["wrong"], 0);
    assert_eq!(run["exclusive"], false);
    (run["protection"].to_string(), json["goals"].to_string())
}

/// Nothing is said of dual management that had no core of its own.
fn assert_not_judged(goals: &str) {
    let goals: serde_json::Value = serde_json::from_str(goals).expect("goals");
    let of_dual = |goal: &&serde_json::Value| {
        goal["what"]
            .as_str()
            .is_some_and(|what| what.starts_with("dual management"))
    };
    let goal = goals
        .as_array()
        .and_then(|goals| goals.iter().find(of_dual))
        .expect("the goal");
    assert_eq!(goal["outcome"], "not-judged", "{goals}");
    let found = goal["failed_premise"]["found"].as_str().unwrap_or_default();
    assert!(found.contains("no exclusive core in repetition 1"), "{goals}");
}

#[test]
fn without_rights_the_film_plays_and_everything_refused_is_named() {
    // While another program has a core, other things are refused than here.
    let _machine = machine();
    if let Err(holder) = free_cores() {
        return eprintln!("skipped: {holder}");
    }
    let folder = folder();
    let output = without_rights(folder.path(), &MOVIE);
    if !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("Permission denied") {
        return eprintln!("skipped: that user cannot reach the program");
    }
    let (table, _) = told(output);
    assert!(
        table.contains("no exclusive core: ") && table.contains("CAP_SYS_NICE"),
        "{table}"
    );
    let (obtained, goals) = dual(folder.path());
    for refused in [
        "not memory locked",
        "no exclusive core",
        "film mapped on ",
        "not obtained: ",
    ] {
        assert!(obtained.contains(refused), "no \"{refused}\" in {obtained}");
    }
    assert_not_judged(&goals);
}

#[test]
fn on_one_core_the_film_plays_and_referees_are_refused() {
    // While another program has a core, other things are refused than here.
    let _machine = machine();
    if let Err(holder) = free_cores() {
        return eprintln!("skipped: {holder}");
    }
    let folder = folder();
    let first = cores::usable(&KernelTree::default())[0];
    let (movie, referees) = std::thread::scope(|scope| {
        let on_one_core = scope.spawn(|| {
            thread::pin(first).expect("a core that this process has");
            (
                lab(folder.path(), &MOVIE),
                refused(
                    folder.path(),
                    &["bench", "referees", "--repetitions", "1", "--duration", "1s"],
                ),
            )
        });
        on_one_core.join().expect("no panic")
    });
    let (table, _) = told(movie);
    assert!(table.contains("it is the only one"), "{table}");
    let (obtained, goals) = dual(folder.path());
    assert!(
        obtained.contains("run on a machine with two cores or more"),
        "{obtained}"
    );
    assert_not_judged(&goals);
    assert!(
        referees.contains("it is the only one") || referees.contains("apt install"),
        "{referees}"
    );
}

#[test]
fn a_run_without_rights_says_which_task_has_no_core() {
    // While another program has a core, other things are refused than here.
    let _machine = machine();
    if let Err(holder) = free_cores() {
        return eprintln!("skipped: {holder}");
    }
    let folder = folder();
    let output = without_rights(
        folder.path(),
        &["run", "movie.toml", "--duration", "5s", "--json", "r.json", "--plain"],
    );
    if !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("Permission denied") {
        return eprintln!("skipped: that user cannot reach the program");
    }
    told(output);
    let text = std::fs::read_to_string(folder.path().join("r.json")).expect("a file");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let told = json["protection"].as_array().expect("protections");
    // Of the player, where the analysis of a busy machine has no room for it: "player: on a core of its own or ..".
    let core = told
        .iter()
        .find(|it| {
            it["what"]
                .as_str()
                .is_some_and(|what| what.contains("a core of its own"))
        })
        .expect("what became of the core");
    assert!(
        core["refused"]["remedy"]
            .as_str()
            .is_some_and(|remedy| !remedy.is_empty()),
        "{core}"
    );
}
