//! `punctual calibrate`: fits the simulated machine to the first paper's microbenchmarks, as an ensemble of machines.

mod table;

use std::path::Path;

use punctual_lab::calibrate::{self as ensemble, Calibration, MemberResult, Plan, Progress, Targets};
use punctual_sim::MachineModel;

use crate::commands::print;
use crate::failure::Failure;
use crate::lab::args::Calibrate;
use crate::output::Output;

/// The figures that come with the program.
const SHIPPED_PATH: &str = "crates/lab/data/qedb-calibration.toml";
/// Their text.
const SHIPPED_TEXT: &str = include_str!("../../../../lab/data/qedb-calibration.toml");

/// Carries out `punctual calibrate`.
pub fn calibrate(arguments: &Calibrate, command_line: &str) -> Result<(), Failure> {
    let (targets, shown) = targets(arguments.targets.as_deref())?;
    let plan = Plan {
        targets,
        base: MachineModel::exynos5422_a15(),
        members: ensemble::ensemble(),
        seed: arguments.seed,
        jobs: arguments.jobs,
        evaluations_max: arguments.evaluations as usize,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
    };
    let json = Output::prepare_some(arguments.json.as_ref())?;
    let machines = machine_files(&plan, arguments.output.as_deref())?;
    let result = ensemble::calibrate(&plan, &|progress| tell(&plan, progress))
        .map_err(|error| Failure::input([format!("{shown}: {error}")]))?;
    print(&table::all(&result))?;
    for (file, member) in machines.into_iter().zip(&result.members) {
        file.text(&machine_file(&result, member, command_line)?)?;
    }
    json.map_or(Ok(()), |file| file.json(&result))
}

/// The figures, and where they came from, for messages.
fn targets(path: Option<&Path>) -> Result<(Targets, String), Failure> {
    let (shown, text) = match path {
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                Failure::input([format!(
                    "{}: cannot be read: {error}; name a file such as {SHIPPED_PATH}",
                    path.display()
                )])
            })?;
            (path.display().to_string(), text)
        }
        None => (format!("built-in {SHIPPED_PATH}"), SHIPPED_TEXT.to_string()),
    };
    let targets = parse(&text, &shown).map_err(|line| Failure::input([line]))?;
    Ok((targets, shown))
}

fn parse(text: &str, shown: &str) -> Result<Targets, String> {
    let targets: Targets = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = 1 + text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
        format!("{shown}:{line}: {}", error.message())
    })?;
    targets.check().map_err(|error| format!("{shown}: {error}"))?;
    Ok(targets)
}

/// One file for each machine of the plan, where a folder is given.
fn machine_files(plan: &Plan, folder: Option<&Path>) -> Result<Vec<Output>, Failure> {
    let Some(folder) = folder else { return Ok(Vec::new()) };
    let files = plan.members.iter().map(|member| folder.join(member.file_name()));
    files.map(|path| Output::prepare(&path)).collect()
}

/// The machine as a file, with how it was made at its head.
fn machine_file(result: &Calibration, member: &MemberResult, command_line: &str) -> Result<String, Failure> {
    let machine = toml::to_string(&member.machine)
        .map_err(|error| Failure::Internal(format!("the machine {} as TOML: {error}", member.name)))?;
    Ok(format!("{}\n{machine}", table::head(result, member, command_line)))
}

fn tell(plan: &Plan, progress: Progress) {
    let line = match progress {
        Progress::Searching {
            member,
            evaluations,
            rms,
        } => format!(
            "{member:<18} {evaluations:>5} of {} candidates, rms {rms:.4}",
            plan.evaluations_max
        ),
        Progress::Done {
            member,
            evaluations,
            rms,
        } => format!("{member:<18} fitted after {evaluations} candidates, rms {rms:.4}"),
    };
    // Where standard error is closed, progress has no reader.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("{line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_figures_are_sound() {
        let (targets, shown) = targets(None).unwrap();
        assert_eq!(targets.figures.len(), 10);
        assert_eq!(shown, "built-in crates/lab/data/qedb-calibration.toml");
    }

    #[test]
    fn what_is_wrong_with_figures_is_named_by_line_or_key() {
        let refused = |from: &str, to: &str| parse(&SHIPPED_TEXT.replacen(from, to, 1), "x.toml").unwrap_err();
        let misspelt = refused("\nvalue = 0.16", "\nvalu = 0.16");
        let line = 1 + SHIPPED_TEXT[..SHIPPED_TEXT.find("\nvalue = 0.16").unwrap() + 1]
            .matches('\n')
            .count();
        assert!(
            misspelt.starts_with(&format!("x.toml:{line}: unknown field `valu`")),
            "{misspelt}"
        );
        assert_eq!(
            refused("value = 0.16", "value = -0.16"),
            "x.toml: target[1].value: must be a time over the deadline, above 0"
        );
    }

    #[test]
    fn a_machine_file_is_read_back_as_the_machine() {
        let plan = Plan {
            targets: parse(SHIPPED_TEXT, "x").unwrap(),
            base: MachineModel::exynos5422_a15(),
            members: ensemble::ensemble().into_iter().take(1).collect(),
            seed: 1,
            jobs: 1,
            evaluations_max: 1,
            threads: 1,
        };
        let result = ensemble::calibrate(&plan, &|_| {}).unwrap();
        let member = &result.members[0];
        let text = machine_file(&result, member, "punctual calibrate -o machines").unwrap();
        assert!(text.contains("# made by    punctual calibrate -o machines\n"), "{text}");
        assert_eq!(MachineModel::from_toml(&text).unwrap(), member.machine);
    }
}
