//! `punctual doctor`: reports what this machine offers, what is missing, and how to get it.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use punctual_platform::linux::KernelTree;
use punctual_platform::linux::doctor::{Facility, Finding, Status, examine};
use punctual_platform::linux::fix::{StepOutcome, fix};
use punctual_profiler::{Emulator, ProfilerError};
use serde_json::json;

use crate::args::Doctor;
use crate::store::health;
use punctual_files::failure::Failure;
use punctual_files::toml::{ProblemList, Section};
use punctual_report::output::OutputFile;

/// Most files in this folder that are searched for stores, and their greatest length in bytes.
const FILES_MAX: usize = 64;
const FILE_MAX: u64 = 1 << 20;

/// Carries out `punctual doctor`. A missing feature is a finding, not a failure; so is a broken store that a file in
/// this folder names, but not one that the command line names.
pub fn doctor(arguments: &Doctor) -> Result<(), Failure> {
    if arguments.restore {
        return super::restore::restore(arguments.json.as_ref());
    }
    let json = OutputFile::report(arguments.json.as_ref())?;
    let tree = KernelTree::default();
    let (steps, mut findings) = match arguments.fix {
        // A closed output does not keep a step from being taken.
        true => fix(&tree, &mut |line| drop(super::print(&format!("{line}\n")))),
        false => (Vec::new(), examine(&tree)),
    };
    findings.push(cache_profiles());
    let (named, failures): (Vec<Finding>, Vec<_>) =
        { arguments.store.iter() }.map(|folder| health::examine(folder)).unzip();
    findings.extend(named);
    findings.extend(named_here().iter().map(|folder| health::examine(folder).0));
    let told = match arguments.fix {
        true => fixed(&steps, &findings, json),
        false => super::print(&told(&findings)).and_then(|()| json.map_or(Ok(()), |file| file.json(&findings))),
    };
    Failure::all(failures.into_iter().chain([told]))
}

/// Reports the outcome of `--fix`, and the findings that remain.
fn fixed(steps: &[StepOutcome], findings: &[Finding], json: Option<OutputFile>) -> Result<(), Failure> {
    let left: Vec<&Finding> = findings.iter().filter(|finding| !finding.remedy.is_empty()).collect();
    let (taken, failed): (Vec<&StepOutcome>, Vec<&StepOutcome>) = steps.iter().partition(|step| step.refused.is_none());
    super::print(&outcome(&taken, &failed, &left))?;
    json.map_or(Ok(()), |file| file.json(&json!({"steps": steps, "left": left})))?;
    let helpless = left.iter().filter(|finding| !finding.steps.is_empty()).count();
    match (failed.len(), helpless) {
        (0, 0) => Ok(()),
        (0, _) => Err(Failure::Refuted(format!(
            "as before, the steps did not help: facilities {helpless}"
        ))),
        (failed, _) => Err(Failure::Refuted(format!("{failed} of {} steps failed", steps.len()))),
    }
}

fn outcome(taken: &[&StepOutcome], failed: &[&StepOutcome], left: &[&Finding]) -> String {
    let mut text = match taken.len() + failed.len() {
        0 => "nothing that a program can mend\n".into(),
        steps => format!("{} of {steps} steps taken\n", taken.len()),
    };
    if !left.is_empty() {
        text += "\nwhat remains:\n";
    }
    for finding in left {
        let _ = writeln!(text, "{:<31} -> {}", finding.facility, finding.remedy);
    }
    text
}

/// Existing stores that scenarios and nodes in this folder name.
fn named_here() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(".") else {
        return Vec::new();
    };
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<PathBuf> = files.filter(|path| path.extension() == Some("toml".as_ref())).collect();
    files.sort();
    let mut stores: Vec<PathBuf> = files.iter().take(FILES_MAX).filter_map(|file| named_by(file)).collect();
    stores.sort();
    stores.dedup();
    stores
}

/// Store of a file: `[store] path` of a scenario or a node; `None` for other files. Errors in a file are left to the
/// command that uses it.
fn named_by(file: &Path) -> Option<PathBuf> {
    let about = fs::metadata(file).ok()?;
    if !about.is_file() || about.len() > FILE_MAX {
        return None;
    }
    let mut report = ProblemList::default();
    let document = report.document(&fs::read_to_string(file).ok()?)?;
    let path = Section::top(&document, &mut report).table("store", |store| store.text("path"));
    path.map(PathBuf::from)
        .filter(|folder| folder.join("data.mdb").exists())
}

/// Finding on whether `punctual profile` can run, and in which emulator.
fn cache_profiles() -> Finding {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let detail = match Emulator::find(&search) {
        Ok(Emulator { path, version }) => {
            let detail = format!("in QEMU {version} ({})", path.display());
            return Facility::CacheProfiles.found(Status::Offered, detail, "");
        }
        Err(ProfilerError::NoEmulator { emulator }) => format!("no {emulator} in PATH"),
        Err(ProfilerError::NoPlugins { version, .. }) => format!("QEMU {version} takes no plugins"),
        Err(error) => error.to_string(),
    };
    let remedy = "put QEMU's user-mode emulation with plugins into PATH (Debian 12: apt-get install qemu-user; \
        docs/guide/profiling.md)";
    Facility::CacheProfiles.found(Status::Missing, detail, remedy)
}

fn told(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let status = match finding.status {
            Status::Offered => "offered",
            Status::Emulated => "emulated",
            Status::Missing => "missing",
            Status::Refused => "refused",
        };
        let _ = writeln!(text, "{status:<9} {:<31} {}", finding.facility, finding.detail);
        if !finding.remedy.is_empty() {
            let _ = writeln!(text, "{:<42}-> {}", "", finding.remedy);
        }
    }
    let wanting = findings.iter().filter(|finding| !finding.remedy.is_empty()).count();
    let _ = writeln!(
        text,
        "\n{} of {} facilities could be better; `punctual run` uses what there is and says what it got.",
        wanting,
        findings.len()
    );
    let mendable = findings.iter().filter(|finding| !finding.steps.is_empty()).count();
    if mendable > 0 {
        let _ = writeln!(
            text,
            "`punctual doctor --fix` does what a program can: {mendable} of them."
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_told_with_their_remedy() {
        let findings = [
            Facility::BusyTime.found(Status::Offered, "/proc/stat", ""),
            Facility::RealTime.found(Status::Refused, "not permitted", "ulimit -r 99"),
        ];
        let text = told(&findings);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("offered   busy time per core"), "{text}");
        assert!(lines[1].starts_with("refused   real-time scheduling"), "{text}");
        assert!(lines[2].ends_with("-> ulimit -r 99"), "{text}");
        assert!(lines[4].starts_with("1 of 2 facilities"), "{text}");
    }

    #[test]
    fn the_outcome_of_a_fix_is_told_and_its_exit_code_says_whether_it_helped() {
        let files = [
            ("/proc/sys/kernel/osrelease", "6.1.0"),
            ("/proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC"),
            ("/sys/kernel/debug/sched/preempt", "(none) voluntary full"),
        ];
        let folder = punctual_testing::kernel_files(&files);
        let tree = KernelTree::at(folder.path());
        let (steps, findings) = fix(&tree, &mut |_| {});
        assert!(matches!(fixed(&steps, &findings, None), Ok(())));
        let left = Facility::RealTime.found(Status::Refused, "not permitted", "ulimit -r 99");
        let text = outcome(&steps.iter().collect::<Vec<_>>(), &[], &[&left]);
        assert!(text.starts_with("1 of 1 "), "{text}");
        let row = text.lines().find(|line| line.starts_with("real-time scheduling"));
        assert!(row.is_some_and(|row| row.ends_with("-> ulimit -r 99")), "{text}");
        assert!(matches!(fix(&tree, &mut |_| {}), (steps, _) if steps.is_empty()));
        assert_eq!(outcome(&[], &[], &[]).lines().count(), 1);
        let refused = StepOutcome {
            refused: Some("read-only".into()),
            ..steps[0].clone()
        };
        assert!(matches!(fixed(&[refused], &findings, None), Err(Failure::Refuted(_))));
    }
}
