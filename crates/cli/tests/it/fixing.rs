//! `punctual doctor --fix` by a user without rights: each step is announced, and nothing is changed.

#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use punctual_platform::linux::recovery;

use crate::common;

/// Number of a user without rights.
const UNPRIVILEGED: u32 = 65_534;

#[test]
fn without_rights_each_step_is_announced_and_refused_and_the_machine_stays_as_it_is() {
    let folder = common::folder_with(&[]);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("own folder");
    let program = folder.path().join("punctual");
    punctual_testing::copy_program(Path::new(env!("CARGO_BIN_EXE_punctual")), &program);
    let settings = || {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let mounts = text("/proc/self/mountinfo");
        let mounts = mounts
            .lines()
            .filter(|line| line.contains("debugfs") || line.contains("resctrl"));
        let preempt = text("/sys/kernel/debug/sched/preempt");
        (mounts.map(str::to_owned).collect::<Vec<_>>(), preempt)
    };
    let before = settings();
    let mut command = Command::new(&program);
    command
        .args(["doctor", "--fix", "--json", "fixed.json"])
        .env(recovery::FOLDER, folder.path().join("run"))
        .current_dir(folder.path());
    if recovery::is_superuser() {
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
    let output = punctual_testing::output(&mut command, common::BOUND).expect("the program starts");
    let said = String::from_utf8(output.stdout).expect("text");
    assert_eq!(settings(), before, "{said}");
    let json = fs::read_to_string(folder.path().join("fixed.json")).expect("a report");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let steps = json["steps"].as_array().expect("a list");
    for step in steps {
        let shown = step["step"].as_str().expect("the step in words");
        assert!(said.contains(shown), "{shown} is not announced: {said}");
        assert!(step["refused"].is_string(), "{shown} was taken without rights");
    }
    assert!(json["left"].as_array().is_some_and(|left| !left.is_empty()), "{json}");
    let code = if steps.is_empty() { 0 } else { 1 };
    assert_eq!(output.status.code(), Some(code), "{said}");
}
