//! The page of the movie: goals, distributions of each way of playing, work done by the other programs, and the
//! protection that each way obtained.

use std::collections::BTreeMap;

use maud::{Markup, html};
use punctual_evaluation::Bars;
use punctual_evaluation::claims::{Goal, Verdict};
use punctual_evaluation::movie::{Arm, ArmSummary, Frame, MovieReport};
use punctual_evaluation::stats::Spread;
use punctual_units::Nanos;

use super::bars;
use super::tail::{Tail, Tails};
use crate::movie::{median, protections, setting, table};
use punctual_report::page::{self, figure, framed, lines, sheet, tiles};
use punctual_report::summary::percent;

/// The page of `report`; `command` is the command line that produced it.
pub fn movie(scenario: &str, report: &MovieReport, goals: &[Goal], command: &str) -> String {
    let held = goals.iter().filter(|goal| goal.outcome == Verdict::Holds).count();
    let good = if held == goals.len() { " good" } else { "" };
    let head = html! { b { (scenario) } " · movie · " span class="badge" { "measured on Linux" } };
    let body = html! {
        p class={ "verdict" (good) } {
            (held) " of " (goals.len()) " goals hold"
        }
        p class="note" { (setting(report)) }
        (tiles(&sums(report)))
        (judged(goals))
        h2 { "Distributions" }
        div class="charts" { @for drawn in tails(report) { (drawn) } }
        p class="note" {
            "The share of frames that took longer than so long, over all repetitions; both axes logarithmic. A dropped "
            "frame is never displayed: its way stays level to the right edge. Dashed: the deadline."
        }
        h2 { "By repetition" }
        div class="charts" { (spreads(report)) }
        p class="note" { "Bars are medians over the repetitions, strokes their ranges." }
        h2 { "Each way" }
        (sheet(&transposed(table(report))))
        p class="note" {
            "unexplained: late, and no gap of the probe on the player's core is as long as the overrun. player: CPU "
            "time of the player's thread. hogs' work: what the hogs do against what they do alone; disk written: what "
            "the disk's writer writes, likewise; of equal share: against what they would do in the share of the "
            "machine that the player left."
        }
        (probe(report))
        h2 { "What each way obtained" }
        (page::table(protections(report).into_iter().map(|(arm, told)| (arm.to_string(), lines(told)))))
    };
    framed("movie", &head, &body, command)
}

fn sums(report: &MovieReport) -> [(String, &'static str); 6] {
    let late = |arm: Arm| {
        let late = |of: &ArmSummary| of.late as f64 / of.frames.max(1) as f64;
        report.arm(arm).map_or("-".into(), |of| percent(late(of)))
    };
    let dual = report.arm(Arm::Dual);
    [
        (late(Arm::Fair), "late under the fair class"),
        (late(Arm::Fifo), "late as SCHED_FIFO"),
        (late(Arm::Dual), "late with a core of its own"),
        (
            dual.map_or("-".into(), |dual| dual.wake.p99.to_string()),
            "wakes with a core of its own, p99",
        ),
        (
            dual.map_or("-".into(), |dual| {
                let share = |shares: &[f64]| percent(median(shares));
                format!(
                    "{}, {}",
                    share(&dual.interactive.work_of_equal_share),
                    share(&dual.interactive.disk_of_equal_share)
                )
            }),
            "of an equal share done by the hogs, and by the disk's writer",
        ),
        (
            report
                .lending
                .map_or("-".into(), |lending| lending.above_control_p99.to_string()),
            "to take the core back, p99 above the control",
        ),
    ]
}

fn judged(goals: &[Goal]) -> Markup {
    let row = |goal: &Goal| {
        let (class, holds) = match goal.outcome {
            Verdict::Holds => ("yes", "yes"),
            Verdict::DoesNotHold => ("no", "no"),
            outcome => ("", outcome.word()),
        };
        let measured: Vec<String> = std::iter::once(goal.measured.clone())
            .chain(goal.failed_premise.as_ref().map(ToString::to_string))
            .collect();
        html! { tr { th class=(class) { (holds) } td class="text" { (goal.what) } td { (lines(&measured)) } } }
    };
    html! {
        h2 { "Goals" }
        p class="note" {
            "Written down before the first run; that hogs and the disk's writer are judged each, and taking back in "
            "the runs as well, came later and is stricter."
        }
        div class="sheet" tabindex="0" { table {
            thead { tr { th { "holds" } th { "goal" } th { "measured" } } }
            tbody { @for goal in goals { (row(goal)) } }
        } }
    }
}

/// Turns rows into columns, so that the ways of playing are side by side.
fn transposed(rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let columns = rows.first().map_or(0, Vec::len);
    let column = |at: usize| {
        rows.iter()
            .map(|row| row.get(at).cloned().unwrap_or_default())
            .collect()
    };
    (0..columns).map(column).collect()
}

/// CSS class of each way's curve.
const fn class(arm: Arm) -> &'static str {
    match arm {
        Arm::Alone => "f",
        Arm::Fair => "d",
        Arm::Fifo => "b",
        Arm::Dual => "a",
        Arm::DualDisk => "c",
    }
}

fn tails(report: &MovieReport) -> Vec<Markup> {
    let arms = || report.arms.iter().map(|arm| arm.arm).filter(|arm| *arm != Arm::Alone);
    let frames = |arm: Arm| {
        let runs = report.runs.iter().filter(move |run| run.arm == arm);
        runs.flat_map(|run| &run.frames)
    };
    let wake = |arm| tail(arm, frames(arm).map(|frame| Some(frame.woken)));
    let shown = |frame: &Frame| frame.read.map(|_| frame.finished);
    let done = |arm| tail(arm, frames(arm).map(shown));
    let deadline = report.plan.deadline;
    let from = "from a frame's release";
    let mut drawn = vec![
        draw("Wake-up", from, arms().map(wake).collect(), Some(deadline)),
        draw("Displayed", from, arms().map(done).collect(), Some(deadline)),
    ];
    let lending = || report.runs.iter().filter_map(|run| run.lending.as_ref());
    let of = |name: &str, class, pick: fn(&punctual_runtime::linux::tenancy::LendingMeasured) -> &Vec<Nanos>| {
        named(name, class, lending().flat_map(pick).map(|it| Some(*it)))
    };
    let played = report.runs.iter().flat_map(|run| &run.take_back).map(|it| Some(*it));
    if lending().next().is_some() {
        let tails = vec![
            of("handing over", "c", |it| &it.hand_over),
            of("taking back", "a", |it| &it.take_back),
            named("taking back between frames", "b", played),
            of("no-op control", "f", |it| &it.control),
        ];
        drawn.push(draw("Lending the core", "from the instant asked for", tails, None));
    }
    drawn
}

fn tail(arm: Arm, times: impl Iterator<Item = Option<Nanos>>) -> Tail {
    named(arm.name(), class(arm), times)
}

/// The distribution of `times`; a `None` never ended, and counts as beyond the longest.
fn named(name: &str, class: &'static str, times: impl Iterator<Item = Option<Nanos>>) -> Tail {
    let (mut counts, mut beyond) = (BTreeMap::new(), 0);
    for time in times {
        match time {
            Some(time) => *counts.entry(time).or_insert(0) += 1,
            None => beyond += 1,
        }
    }
    let bins = counts
        .into_iter()
        .map(|(time, count): (Nanos, u64)| (time.as_micros_f64(), count));
    Tail {
        name: name.into(),
        class,
        bins: bins.collect(),
        beyond,
        max_us: None,
    }
}

fn draw(title: &str, what: &str, tails: Vec<Tail>, mark: Option<Nanos>) -> Markup {
    let names: Vec<&str> = tails.iter().map(|tail| tail.name.as_str()).collect();
    let tails = Tails {
        description: format!("{title}, {what}: {}", names.join(", ")),
        mark_us: mark.map(Nanos::as_micros_f64),
        tails,
    };
    figure(title, &html! { span { (what) } }, &tails.keys(), &tails.svg())
}

/// Selects a share for each repetition.
type Pick = fn(&ArmSummary) -> &[f64];

fn spreads(report: &MovieReport) -> Markup {
    let arms: Vec<&ArmSummary> = report.arms.iter().filter(|arm| arm.arm != Arm::Alone).collect();
    let groups: Vec<String> = arms.iter().map(|arm| arm.arm.name().to_owned()).collect();
    let figures: [(&str, Pick); 3] = [
        ("Late frames, %", |arm| &arm.late_by_repetition),
        ("Work of the hogs, % of an equal share", |arm| {
            &arm.interactive.work_of_equal_share
        }),
        ("Written by the disk's writer, % of an equal share", |arm| {
            &arm.interactive.disk_of_equal_share
        }),
    ];
    let drawn = |(title, pick): (&str, Pick)| {
        let bar = Bars {
            name: title.into(),
            values: arms.iter().map(|arm| spread(pick(arm))).collect(),
        };
        let description = format!("{title}: {}", groups.join(", "));
        let svg = bars::svg(&description, &groups, &[bar], &["a"]);
        figure(title, &Markup::default(), &[], &svg)
    };
    html! { @for shown in figures { (drawn(shown)) } }
}

/// Spread of shares, in percent; `None` for an empty list.
fn spread(shares: &[f64]) -> Option<Spread> {
    Spread::of(&shares.iter().map(|share| share * 100.0).collect::<Vec<_>>())
}

fn probe(report: &MovieReport) -> Markup {
    let Some(probe) = report.probe else {
        return Markup::default();
    };
    let rows = [
        ["probe on the player's core", "p50", "p99", "longest gap"].map(String::from),
        [
            "how late it wakes".to_owned(),
            probe.p50.to_string(),
            probe.p99.to_string(),
            probe.max.to_string(),
        ],
    ];
    html! {
        h2 { "Probe" }
        (sheet(&rows.map(Vec::from)))
        p class="note" {
            "What no task can be blamed for: a thread above all others that sleeps for 1 ms at a time, in all runs "
            "together."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::movie::goals;
    use crate::movie::tests::report;

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let report = report();
        let page = movie("m & n.toml", &report, &goals(&report), "punctual-lab bench movie");
        punctual_report::fixture::check_nesting(&page);
        for part in [
            "of 6 goals hold",
            "m &amp; n.toml",
            "50.0 %",
            "memory &lt;locked&gt;",
            "1 of 2 (50.0 %)",
            "taking back",
            "Written down before",
            "50.0 us",
        ] {
            assert!(page.contains(part), "no {part}");
        }
        assert_eq!(page.matches("<svg").count(), 6);
        assert!(!page.contains("<h2>Probe"), "there was none");
        for outside in ["http", "src=", "url(", "@import", "<link", "<script"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
