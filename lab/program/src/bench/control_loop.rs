//! `punctual-lab bench loop`: a loop of 1 kHz beside background load and a busy disk, under each method of keeping it
//! in time.

use std::fmt::Write;

use punctual_evaluation::control_loop::{LoopPlan, LoopReport, Way, WaySummary, compare};
use punctual_evaluation::stats;

use super::series::{Interrupt, tell};
use crate::args::Loop;
use crate::movie::{IN_MEMORY, lending, under_head};
use punctual_cli::commands::print;
use punctual_files::failure::Failure;
use punctual_report::columns::columns;
use punctual_report::output::OutputFile;
use punctual_report::summary::percent;

/// Default reservation of `SCHED_DEADLINE`, as a share of a period: far more than a job computes, and as much as the
/// kernel grants on one core beside its fair server (95 % of a core, less 5 %). Time that a job leaves goes to other
/// threads.
const RESERVED: f64 = 0.8;

/// Carries out `punctual-lab bench loop`.
pub fn control_loop(arguments: &Loop) -> Result<(), Failure> {
    let json = OutputFile::report(arguments.json.as_ref())?;
    let plan = plan(arguments);
    let wrong = |refusal: punctual_platform::Refusal| Failure::of(format!("{}: {}", refusal.why, refusal.remedy));
    plan.check().map_err(wrong)?;
    let interrupt = Interrupt::listen()?;
    let report = compare(&plan, &mut |what| {
        tell(what);
        interrupt.answer()
    });
    let report = report.map_err(Failure::of)?;
    print(&told(&report))?;
    json.map_or(Ok(()), |file| file.json(&report))
}

fn plan(arguments: &Loop) -> LoopPlan {
    let Loop { period, compute, .. } = *arguments;
    let mut ways: Vec<Way> = Vec::new();
    for way in &arguments.ways {
        if !ways.contains(way) {
            ways.push(*way);
        }
    }
    LoopPlan {
        period,
        compute,
        reserved: arguments
            .reserve
            .unwrap_or_else(|| period.scaled(RESERVED).max(compute)),
        lasts: arguments.duration,
        hogs_per_core: arguments.hogs,
        busy_disk: !arguments.idle_disk,
        repetitions: arguments.repetitions,
        ways,
    }
}

/// The whole report, for a terminal.
fn told(report: &LoopReport) -> String {
    let plan = &report.plan;
    let mut text = format!(
        "{} repetitions of {} in each way; a job every {} computes {}, due before the next; {} reserved under SCHED_DEADLINE; {} hogs on {} cores, disk {}: {}{}\n\n",
        plan.repetitions,
        plan.lasts,
        plan.period,
        plan.compute,
        plan.reserved,
        plan.hogs_per_core as usize * report.cores,
        report.cores,
        if plan.busy_disk { "busy" } else { "idle" },
        report.medium.name,
        if report.medium.in_memory { IN_MEMORY } else { "" }
    );
    for way in &plan.ways {
        if let Some(run) = report.runs.iter().find(|run| run.way == *way) {
            let _ = writeln!(text, "{}: {}", way.name(), run.protection.join("\n    "));
        }
    }
    text.push('\n');
    text += &columns(&table(report));
    for summary in &report.ways {
        if let Some(why) = &summary.refused {
            let _ = writeln!(text, "\n{} left out: {why}", summary.way.name());
        }
    }
    text +=
        "\nmissed: late or dropped (not begun before the next release); unexplained: no gap of the probe is as long\n";
    text +=
        "of equal share: of what hogs or the disk's writer would do in the share of the machine that the loop left\n";
    if let Some(measured) = &report.lending {
        text += &lending(measured, "between jobs");
    }
    if let Some(probe) = report.probe {
        let _ = writeln!(
            text,
            "control: an idle probe above all others on the last core wakes p50 {} p99 {} max {} late",
            probe.p50, probe.p99, probe.max
        );
    }
    text
}

/// A row for each method, below a row of column names.
fn table(report: &LoopReport) -> Vec<Vec<String>> {
    under_head(report.ways.iter().map(row).collect())
}

fn row(summary: &WaySummary) -> Vec<(&'static str, String)> {
    let WaySummary {
        tally,
        wake,
        interactive,
        ..
    } = summary;
    let of = |text: String| if tally.jobs > 0 { text } else { "-".into() };
    let middle = |shares: &[f64]| stats::median(shares).map_or("-".into(), percent);
    vec![
        ("", summary.way.name().into()),
        ("jobs", of(tally.jobs.to_string())),
        ("late", of(tally.late.to_string())),
        ("dropped", of(tally.dropped.to_string())),
        ("missed", of(format!("{:.3} %", 100.0 * summary.missed))),
        ("unexplained", of(tally.unexplained.to_string())),
        ("wake p50", of(wake.p50.to_string())),
        ("wake p99", of(wake.p99.to_string())),
        ("wake max", of(wake.max.to_string())),
        ("loop", of(percent(summary.loop_share))),
        ("lent", of(percent(summary.lent_share))),
        ("of it used", summary.used_share.map_or("-".into(), percent)),
        ("hogs' work", middle(&interactive.work)),
        ("of equal share", of(middle(&interactive.work_of_equal_share))),
        ("disk written", middle(&interactive.disk)),
        ("of equal share", of(middle(&interactive.disk_of_equal_share))),
    ]
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use punctual_evaluation::beside::Medium;

    use punctual_units::Nanos;

    use super::*;

    #[derive(Parser)]
    struct TestArguments {
        #[command(flatten)]
        arguments: Loop,
    }

    fn asked(arguments: &[&str]) -> Result<LoopPlan, String> {
        let all = std::iter::once("loop").chain(arguments.iter().copied());
        let asked = TestArguments::try_parse_from(all).map_err(|error| error.to_string())?;
        Ok(plan(&asked.arguments))
    }

    #[test]
    fn options_make_the_plan() {
        let shipped = asked(&[]).unwrap();
        assert_eq!((shipped.jobs(), shipped.ways.as_slice()), (10_000, &Way::ALL[..]));
        assert_eq!(shipped.reserved, Nanos::from_micros(800));
        assert!(shipped.busy_disk && shipped.check().is_ok());
        let arguments = [
            "--period",
            "2ms",
            "--compute",
            "1700us",
            "--ways",
            "fifo,lent,fifo",
            "--idle-disk",
        ];
        let other = asked(&arguments).unwrap();
        assert_eq!(
            (other.reserved, other.ways),
            (Nanos::from_micros(1700), vec![Way::Fifo, Way::Lent])
        );
        assert!(!other.busy_disk);
        for (arguments, words) in [
            (["--period", "1"], "has no unit"),
            (["--compute", "-1ms"], "is negative"),
            (["--hogs", "65"], "65 is not in"),
            (["--duration", "0s"], "give a time from 1s"),
            (["--ways", "all"], "possible values: alone"),
        ] {
            let error = asked(&arguments).unwrap_err();
            assert!(error.contains(words), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn a_way_that_was_refused_has_a_row_without_figures_and_a_reason() {
        let plan = LoopPlan {
            ways: vec![Way::Deadline],
            ..asked(&[]).unwrap()
        };
        let medium = Medium {
            name: "tmpfs".into(),
            in_memory: true,
        };
        let mut report = LoopReport::of(&plan, 2, medium, Vec::new(), None);
        report.ways[0].refused = Some("SCHED_DEADLINE: Device or resource busy".into());
        let text = told(&report);
        let rest = table(&report)[1][1..].to_vec();
        assert!(rest.iter().all(|cell| cell == "-"), "{rest:?}");
        assert!(text.contains("deadline left out: SCHED_DEADLINE: "), "{text}");
        assert!(text.contains("WHICH IS MEMORY") && !text.contains("NaN"), "{text}");
    }
}
