//! The clocks beneath a pipeline: a table's rows set them on a kernel tree with two cpufreq policies, the log replays,
//! and they are put back at the end and after a kill. The tree is emulated: no work becomes slower by it.

#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use punctual_platform::linux::recovery;
use punctual_testing::{CHILD_MAX, MachineGuard, TestChild, free_cores, shared_machine, wait_for};
use serde_json::Value;

const POLICIES: &str = "sys/devices/system/cpu/cpufreq";

/// A machine with a policy for each of two cores.
fn machine() -> tempfile::TempDir {
    let policy = |number: u32| {
        [
            ("affected_cpus", ["0", "1"][number as usize]),
            ("scaling_available_frequencies", "200000 600000 1000000 1400000"),
            ("cpuinfo_min_freq", "200000"),
            ("cpuinfo_max_freq", "1400000"),
            ("scaling_min_freq", "200000"),
            ("scaling_max_freq", "1400000"),
            ("scaling_available_governors", "ondemand userspace"),
            ("scaling_governor", "ondemand"),
            ("scaling_setspeed", "<unsupported>"),
        ]
        .map(|(file, content)| (format!("/{POLICIES}/policy{number}/{file}"), content))
    };
    let online = [("/sys/devices/system/cpu/online".to_owned(), "0-1")];
    let files: Vec<(String, &str)> = (0..2).flat_map(policy).chain(online).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, content)| (path.as_str(), *content)).collect();
    punctual_testing::kernel_files(&files)
}

/// What the files of both policies say that are written.
fn written(tree: &Path) -> Vec<String> {
    let files = [
        "scaling_governor",
        "scaling_setspeed",
        "scaling_min_freq",
        "scaling_max_freq",
    ];
    let paths = (0..2).flat_map(|policy| files.map(|file| tree.join(format!("{POLICIES}/policy{policy}/{file}"))));
    paths
        .map(|path| fs::read_to_string(path).unwrap().trim().to_owned())
        .collect()
}

struct PlayedRadio {
    tree: tempfile::TempDir,
    folder: tempfile::TempDir,
    found: Vec<String>,
    radio: TestChild,
    _cores: MachineGuard,
}

fn play(arguments: &[&str]) -> Option<PlayedRadio> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        eprintln!("skipped: the tree has two cores, and this machine one");
        return None;
    }
    let all = shared_machine();
    if let Err(holder) = free_cores() {
        eprintln!("skipped: {holder}");
        return None;
    }
    let (tree, folder) = (machine(), tempfile::tempdir().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual-lab"));
    command
        .args(["radio", "--plain", "--cores", "0,1", "--kernel-tree"])
        .arg(tree.path())
        .args(arguments)
        .env(recovery::FOLDER, folder.path())
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .stdout(Stdio::piped());
    let found = written(tree.path());
    let radio = punctual_testing::start(&mut command, CHILD_MAX).unwrap();
    Some(PlayedRadio {
        found,
        tree,
        folder,
        radio,
        _cores: all,
    })
}

/// Waits until the files say this.
fn wait_until(tree: &Path, what: &str, holds: impl Fn(&[String]) -> bool) {
    wait_for(
        || format!("{what}: {:?}", written(tree)),
        || holds(&written(tree)).then_some(()),
    );
}

fn is_set(files: &[String]) -> bool {
    files
        .chunks(4)
        .all(|policy| policy[0] == "userspace" && policy[1].parse::<u64>().is_ok())
}

#[test]
fn rows_of_a_table_set_the_clocks_which_are_put_back_and_replayed() {
    let log = tempfile::tempdir().unwrap();
    let log = log.path().join("log.json");
    let path = log.to_str().unwrap();
    let arguments = ["--policy", "table", "--rate", "50", "--json", "-", "--record", path];
    let Some(mut played) = play(&arguments) else { return };
    wait_until(played.tree.path(), "the clocks are set", is_set);
    // SAFETY: plain numbers, of a child that has not been waited for.
    unsafe { libc::kill(played.radio.id() as i32, libc::SIGINT) };
    let mut said = String::new();
    std::io::Read::read_to_string(&mut played.radio.stdout().unwrap(), &mut said).unwrap();
    assert!(played.radio.wait().unwrap().success(), "{said}");
    assert_eq!(written(played.tree.path()), played.found, "clocks are put back");
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["audio_sha256"], report["audio_sha256_one_thread"], "{report}");
    let steps = [200.0, 600.0, 1000.0, 1400.0];
    let set = report["clocks_mhz"].as_object().unwrap_or_else(|| panic!("{report}"));
    assert_eq!(
        set.keys().collect::<Vec<_>>(),
        ["clock of domain 1", "clock of domain 2"]
    );
    assert!(
        set.values().all(|mhz| steps.contains(&mhz.as_f64().unwrap())),
        "{set:?}"
    );

    let replay = |log: &Path| {
        Command::new(env!("CARGO_BIN_EXE_punctual-lab"))
            .arg("replay")
            .arg(log)
            .output()
            .unwrap()
    };
    let output = replay(&log);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(told.contains("about the clocks beneath stages"), "{told}");

    let mut file: Value = serde_json::from_slice(&fs::read(&log).unwrap()).unwrap();
    let decisions = file["log"]["decisions"].as_array_mut().unwrap();
    let mut planned = { decisions.iter_mut().rev() }.filter_map(|one| one.pointer_mut("/answer/plan"));
    let last = planned.find(|plan| plan[0].is_array()).unwrap();
    last[0][1] = serde_json::json!({ "clock": 123_000_000 });
    fs::write(&log, file.to_string()).unwrap();
    let output = replay(&log);
    assert_eq!(output.status.code(), Some(1), "a planted difference: {output:?}");
    drop(played.folder);
}

#[test]
fn clocks_are_put_back_after_a_kill() {
    let arguments = ["--policy", "table-off", "--rate", "200", "--frames", "20000"];
    let Some(mut played) = play(&arguments) else { return };
    wait_until(played.tree.path(), "the clocks are set", is_set);
    played.radio.kill().unwrap();
    wait_until(played.tree.path(), "they are restored", |files| files == played.found);
}

#[test]
fn a_machine_without_clocks_is_told_once_and_the_radio_plays() {
    let empty = punctual_testing::kernel_files(&[("/sys/devices/system/cpu/online", "0-1")]);
    let output = Command::new(env!("CARGO_BIN_EXE_punctual-lab"))
        .args([
            "radio",
            "--plain",
            "--policy",
            "table",
            "--frames",
            "300",
            "--json",
            "-",
            "--kernel-tree",
        ])
        .arg(empty.path())
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(report["frames_delivered"], 300, "{report}");
    let refused = report["refused"].as_array().unwrap();
    let clocks = refused.iter().filter(|it| it.as_str().unwrap().contains("clocks"));
    assert_eq!(clocks.count(), 1, "{report}");
}
