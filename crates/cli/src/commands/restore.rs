//! `punctual doctor --restore`: restores settings that dead programs of punctual left changed.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use punctual_platform::Refusal;
use punctual_platform::linux::recovery::{self, RecoveryReport};

use punctual_files::failure::Failure;
use punctual_report::output::OutputFile;

/// Restores this machine, and writes the result to `json`. Settings that could not be restored are reported as the
/// user's to fix.
pub fn restore(json: Option<&PathBuf>) -> Result<(), Failure> {
    let json = OutputFile::report(json)?;
    let folder = recovery::folder();
    let recovered = recovery::restore(&folder).map_err(Failure::of)?;
    let out_of_reach = recovery::out_of_reach().map_err(Failure::of)?;
    super::print(&told(&recovered, &folder))?;
    json.map_or(Ok(()), |file| file.json(&recovered))?;
    let left = recovered.left.iter().chain(&out_of_reach);
    Failure::refuse(left.map(Refusal::to_string))
}

fn told(recovered: &RecoveryReport, folder: &Path) -> String {
    let mut text = String::new();
    for dead in &recovered.dead {
        let _ = writeln!(text, "found     {dead}");
    }
    for path in &recovered.undone {
        let _ = writeln!(text, "restored  {path}");
    }
    for changed in &recovered.changed_since {
        let _ = writeln!(text, "left      {changed}");
    }
    if recovered.undone.is_empty() && recovered.changed_since.is_empty() && recovered.left.is_empty() {
        text.push_str("nothing to restore: no dead program has left anything changed ");
        let _ = writeln!(text, "({})", folder.display());
    }
    text
}

#[cfg(test)]
mod tests {
    use punctual_platform::linux::recovery::Holding;
    use punctual_units::CoreId;

    use super::*;

    #[test]
    fn what_was_found_and_undone_is_told() {
        let mut recovered = RecoveryReport::default();
        let nothing = told(&recovered, Path::new("/run/punctual"));
        assert!(
            nothing.contains("nothing to restore") && nothing.contains("/run/punctual"),
            "{nothing}"
        );
        recovered.dead.push(Holding {
            name: "robot".into(),
            process: 12,
            alive: false,
            exclusive: vec![CoreId(1), CoreId(3)],
            shared: vec![],
            changes: 1,
        });
        recovered.undone.push("/proc/irq/4/smp_affinity_list".into());
        recovered.changed_since.push(Refusal {
            what: "putting /proc/irq/5/smp_affinity_list back".into(),
            why: "changed".into(),
            remedy: "by hand".into(),
        });
        let text = told(&recovered, Path::new("/run/punctual"));
        let [found, restored, left] = text.lines().collect::<Vec<_>>()[..] else {
            panic!("{text}")
        };
        assert!(found.contains("robot (process 12, ended)"), "{found}");
        assert!(found.contains("core 1,3") && found.ends_with("1 change"), "{found}");
        assert_eq!(restored, "restored  /proc/irq/4/smp_affinity_list");
        assert!(left.starts_with("left") && left.contains("/proc/irq/5"), "{left}");
    }
}
