//! What is wrong with a pipeline is told with the line and what to do, and exit code 2; and where a pipeline runs
//! already, no frame that was accepted is lost by it.

#![cfg(target_os = "linux")]

use crate::common;

use std::fs;
use std::process::{Command, Stdio};

use common::{BOUND, folder_with, refused};
use punctual_platform::linux::recovery;
use punctual_testing::workers;

const CHAIN: &str = "\
[[stage]]
name = \"in\"
file = \"from\"
[[stage]]
name = \"one\"
kind = \"copy\"
[[stage]]
name = \"two\"
kind = \"copy\"
[[stage]]
name = \"out\"
file = \"to\"
[[edge]]
from = \"in\"
to = \"one\"
frame_bytes = 64
[[edge]]
from = \"one\"
to = \"two\"
frame_bytes = 64
[[edge]]
from = \"two\"
to = \"out\"
frame_bytes = 64
";

#[test]
fn a_graph_that_cannot_work_is_told_with_its_line() {
    let folder = folder_with(&[("from", "abc"), ("noise.so", "no library")]);
    let cases = [
        // Two stages of one name.
        (
            "name = \"two\"",
            "name = \"one\"",
            8,
            "stage[2].name: \"one\" is taken by an earlier stage",
        ),
        // An unconnected port: the output of the second stage.
        (
            "[[edge]]\nfrom = \"one\"\nto = \"two\"\nframe_bytes = 64\n",
            "",
            4,
            "stage[1].makes: output 0 of stage \"one\" has 0 edges",
        ),
        // A queue that holds nothing.
        (
            "to = \"two\"\nframe_bytes = 64",
            "to = \"two\"\nframe_bytes = 64\nslots = 0",
            21,
            "edge[1].slots",
        ),
        // No room in shared memory: the largest part of it is named.
        (
            "kind = \"copy\"",
            "kind = \"copy\"\nstate_bytes = 1099511627776",
            7,
            "stage[1].state_bytes: making",
        ),
        (
            "to = \"out\"\nframe_bytes = 64",
            "to = \"out\"\nframe_bytes = 1073741824\nslots = 1000",
            24,
            "bytes of shared memory",
        ),
        // A kind that there is not.
        ("kind = \"copy\"", "kind = \"cpoy\"", 6, "kinds are: copy\n"),
        // A library that is none.
        ("kind = \"copy\"", "library = \"noise.so\"", 6, "stage[1].library: "),
    ];
    for (from, to, line, told) in cases {
        let text = CHAIN.replacen(from, to, 1);
        assert_ne!(text, CHAIN, "{from}");
        fs::write(folder.path().join("x.toml"), &text).unwrap();
        let said = refused(folder.path(), &["run", "x.toml"]);
        assert!(said.contains(told), "{to}: {said}");
        assert!(said.starts_with(&format!("x.toml:{line}: ")), "{to}: {said}");
    }
}

#[test]
fn a_cycle_is_told_with_the_stages_that_wait_for_each_other() {
    let folder = folder_with(&[]);
    let stages = ["one", "two"].map(|name| format!("[[stage]]\nname = \"{name}\"\nkind = \"copy\"\n"));
    let edges = [("one", "two"), ("two", "one")]
        .map(|(from, to)| format!("[[edge]]\nfrom = \"{from}\"\nto = \"{to}\"\nframe_bytes = 8\n"));
    fs::write(folder.path().join("x.toml"), stages.concat() + &edges.concat()).unwrap();
    let said = refused(folder.path(), &["run", "x.toml"]);
    assert!(
        said.starts_with("x.toml:7: edge[0]: ") && said.contains("one -> two -> one"),
        "{said}"
    );
}

#[test]
fn a_library_without_the_symbols_of_a_stage_is_told_by_their_name() {
    let folder = folder_with(&[("from", "abc"), ("none.c", "int nothing(void) { return 0; }\n")]);
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"])
        .arg(folder.path().join("none.so"))
        .arg(folder.path().join("none.c"));
    assert!(cc.status().expect("a C compiler, cc: install gcc or clang").success());
    fs::write(
        folder.path().join("x.toml"),
        CHAIN.replacen("kind = \"copy\"", "library = \"none.so\"", 1),
    )
    .unwrap();
    let said = refused(folder.path(), &["run", "x.toml"]);
    assert!(said.starts_with("x.toml:6: stage[1].library: "), "{said}");
    assert!(said.contains("has no function punctual_stage_"), "{said}");
}

/// Process 1 is that of no pipeline.
#[test]
fn a_process_without_a_pipeline_is_none() {
    let folder = folder_with(&[]);
    let said = refused(folder.path(), &["pipeline", "--process", "1", "list"]);
    assert!(said.starts_with("process 1 has no pipeline"), "{said}");
}

/// Waits until `found` answers something.
fn wait_for<T>(what: &str, found: impl Fn() -> Option<T>) -> T {
    punctual_testing::wait_for(|| what.to_owned(), found)
}

/// A scenario that is written anew while it runs: processes that start later are of the graph that runs.
#[test]
fn a_scenario_that_changes_while_it_runs_loses_no_frame() {
    let slow = "program = [\"sh\", \"-c\", \"for i in $(seq 50); do echo line $i; sleep 0.01; done; : >middle; until [ -e \
                go ]; do sleep 0.02; done; for i in $(seq 51 100); do echo line $i; sleep 0.01; done\"]";
    let text = CHAIN.replacen("file = \"from\"", slow, 1);
    let folder = folder_with(&[("x.toml", &text)]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    command
        .args(["run", "x.toml", "--plain"])
        .env(recovery::FOLDER, folder.path())
        .current_dir(folder.path())
        .stdin(Stdio::null());
    let mut run = punctual_testing::start(&mut command, BOUND).unwrap();
    let middle = folder.path().join("middle");
    punctual_testing::wait_until("the middle of the stream", || middle.exists());
    fs::write(folder.path().join("x.toml"), CHAIN.replacen("\"two\"", "\"drum\"", 3)).unwrap();
    // The kernel may leave out children while others come and go (proc(5), /proc/PID/task/TID/children).
    let before = wait_for("workers", || {
        Some(workers(run.id())).filter(|workers| !workers.is_empty())
    });
    for (pid, _) in &before {
        // SAFETY: plain numbers; the worker is a child of a process that has not ended.
        unsafe { libc::kill(*pid, libc::SIGKILL) };
    }
    fs::write(folder.path().join("go"), "").unwrap();
    assert!(run.wait().unwrap().success());
    let lines: String = (1..=100).map(|number| format!("line {number}\n")).collect();
    assert_eq!(fs::read_to_string(folder.path().join("to")).unwrap(), lines);
}

/// A table of too many mappings.
#[test]
fn a_table_for_other_stages_is_told() {
    let _cores = punctual_testing::shared_machine();
    let copies: String = (0..14)
        .map(|number| format!("[[stage]]\nname = \"{number}\"\nkind = \"copy\"\n"))
        .collect();
    let names: Vec<String> = { ["in".to_string()].into_iter() }
        .chain((0..14).map(|number| number.to_string()))
        .chain(["out".to_string()])
        .collect();
    let edge = |pair: &[String]| {
        format!(
            "[[edge]]\nfrom = \"{}\"\nto = \"{}\"\nframe_bytes = 64\n",
            pair[0], pair[1]
        )
    };
    let ends = "[[stage]]\nname = \"in\"\nfile = \"from\"\n[[stage]]\nname = \"out\"\nfile = \"to\"\n";
    let edges: String = names.windows(2).map(edge).collect();
    let text = format!("[pipeline]\npolicy = \"table\"\n{ends}{copies}{edges}");
    let folder = folder_with(&[("from", "abc"), ("x.toml", &text)]);
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
        let said = refused(folder.path(), &["run", "x.toml"]);
        assert!(said.starts_with("x.toml:2: pipeline.policy: 14 stages on "), "{said}");
        assert!(said.contains("balance"), "{said}");
    }
}
