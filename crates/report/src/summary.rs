//! Summary at the end of a run: whether the goal was met, at what cost, and what stood in the way.

use std::fmt::Write;

use punctual_platform::KnobId;
use punctual_runtime::report::{KnobReport, RunReport, Summary};
use punctual_units::Hertz;
use punctual_workload::UpdateMode;

use crate::protection::{ProtectionLine, told};
use crate::verdict::Verdict;
use crate::{stages, tasks};

/// Column at which the text of a row begins.
const INDENT: usize = 14;

/// Summary of `report`; every line ends in a newline. The verdict comes last, where it is seen on a small screen.
pub fn summary(report: &RunReport) -> String {
    let mut text = String::new();
    let header = &report.header;
    let lasted = report.samples.last().map_or(0.0, |last| last.t_s);
    let _ = writeln!(
        text,
        "\n{} on {} ({}), controller {}, {lasted:.1} s, seed {}",
        header.scenario,
        header.platform.name(),
        header.machine,
        header.controller.name(),
        header.seed
    );
    text += "\n";
    for line in tasks::table(&report.tasks) {
        let _ = writeln!(text, "  {line}");
    }
    if !report.stages.is_empty() {
        text += "\n";
        stages::table(&report.stages)
            .iter()
            .for_each(|line| text += &format!("  {line}\n"));
    }
    text += "\n";
    for (name, cells) in rows(report) {
        row(&mut text, name, &cells);
    }
    row(&mut text, "knobs", &header.knobs.iter().map(knob).collect::<Vec<_>>());
    row(
        &mut text,
        "protection",
        &told(&header.protection).iter().map(protection).collect::<Vec<_>>(),
    );
    let notes = report
        .summary
        .notes
        .iter()
        .cloned()
        .chain(stages::notes(&report.stages));
    row(&mut text, "notes", &notes.collect::<Vec<_>>());
    text += "\n";
    for sentence in Verdict::of(report).sentences(report) {
        let _ = writeln!(text, "{sentence}");
    }
    if !report.stages.is_empty() {
        let _ = writeln!(text, "{}", stages::sentence(&report.stages));
    }
    text
}

/// Names and texts of the figures that the summary and the page both show.
pub fn rows(report: &RunReport) -> Vec<(&'static str, Vec<String>)> {
    let (header, summary) = (&report.header, &report.summary);
    let load = &header.load;
    let mut rows = vec![
        (
            "tardiness",
            vec![format!(
                "{} on average, {} at p99, over the jobs of all tasks",
                figure(summary.tardiness_mean),
                figure(summary.tardiness_p99)
            )],
        ),
        (
            "drr",
            vec![format!(
                "{} on average; goal {:.2}{}",
                figure(summary.drr_mean),
                header.goal.drr,
                if header.controller.name() == "mimo" {
                    ""
                } else {
                    ", which only mimo controls"
                }
            )],
        ),
        (
            "fresh",
            vec![format!(
                "{} at worst, {} on average; minimum {}",
                share(summary.fresh_share_min),
                share(summary.fresh_share_mean),
                header.goal.min_fresh
            )],
        ),
        ("jobs", jobs(summary)),
        ("updates", updates(report)),
        ("clock", vec![clock(report)]),
        (
            "energy",
            vec![metered(summary.energy_j, |joules| format!("{joules:.1} J"))],
        ),
        (
            "temperature",
            vec![metered(summary.celsius_max, |celsius| {
                format!("{celsius:.1} °C at most, in the hottest zone")
            })],
        ),
    ];
    if let Some(decision) = summary.controller.decision_us_median {
        let share = summary
            .controller
            .core_share
            .map_or(String::new(), |share| format!(", {:.2} % of a core", share * 100.0));
        rows.push((
            "controller",
            vec![format!("{decision:.1} us per decision (median){share}")],
        ));
    }
    if summary.controller.clock_changes_within_jobs > 0 {
        let per_job = summary.controller.clock_changes_within_jobs as f64 / summary.jobs.max(1) as f64;
        let took = summary.controller.pacing_us_median.map_or(String::new(), |us| {
            format!(", in force {us:.0} us after a checkpoint (median)")
        });
        rows.push((
            "pacing",
            vec![format!("{per_job:.1} changes of the clock within a job{took}")],
        ));
    }
    if let Some([median, p99, max]) = summary.probe_us {
        let control = format!("an idle probe woke {median:.0} us late (median), {p99:.0} us (p99), {max:.0} us (max)");
        rows.push((
            "no-op control",
            vec![control + "; no latency below that means anything"],
        ));
    }
    if let Some(steal) = summary.steal_share {
        rows.push((
            "stolen",
            vec![format!(
                "{} of the cores' time went to other guests of the host",
                percent(steal)
            )],
        ));
    }
    rows.push((
        "load",
        vec![format!(
            "{} sensors ({} x), {} updates/s, {:.1} us each alone ({}), {:.0} ns a get",
            count(load.sensors.into()),
            load.replicas,
            count(load.updates_per_s.round() as u64),
            load.update_us,
            update_mode(load.update_mode),
            load.get_ns
        )],
    ));
    rows
}

fn jobs(summary: &Summary) -> Vec<String> {
    let late = summary.misses as f64 / summary.jobs.max(1) as f64;
    let mut of_all = format!(
        "{} in real time, {} late ({}), {} of these excused, {} not released",
        count(summary.jobs),
        count(summary.misses),
        percent(late),
        count(summary.excused),
        count(summary.skipped)
    );
    if summary.overdue > 0 {
        of_all += &format!(", {} not ended", count(summary.overdue));
    }
    if summary.failed > 0 {
        of_all += &format!("; {} failed", count(summary.failed));
    }
    let start_up = &summary.start_up;
    vec![
        of_all,
        format!("{} best-effort", count(summary.best_effort_jobs)),
        format!(
            "start-up, {:.0} s, not counted: {} in real time, {} late",
            start_up.seconds,
            count(start_up.jobs),
            count(start_up.late)
        ),
    ]
}

fn updates(report: &RunReport) -> Vec<String> {
    let summary = &report.summary;
    let under_way = summary.updates.unfinished;
    let mut lines = vec![format!(
        "{} offered = {} installed + {} shed + {} superseded{}; {} lost",
        count(summary.updates.offered),
        count(summary.updates.installed),
        count(summary.updates.shed),
        count(summary.updates.superseded),
        if under_way > 0 {
            format!(" + {} under way at the end", count(under_way))
        } else {
            String::new()
        },
        count(summary.updates.lost)
    )];
    lines.push(format!("{} admitted on average", share(summary.admitted_share_mean)));
    if summary.updates.sensors_unreconciled > 0 {
        lines.push(format!(
            "{} sensors do not reconcile",
            count(summary.updates.sensors_unreconciled)
        ));
    }
    lines
}

fn clock(report: &RunReport) -> String {
    let top = report.header.load.top_clock;
    match (report.summary.clock_hz_mean, report.header.offered(KnobId::CLOCK)) {
        (Some(mean), Some(provenance)) => format!("{} on average, {provenance}; top {top}", Hertz(mean as u64)),
        (Some(mean), None) => format!("{} on average, not ours to set; top {top}", Hertz(mean as u64)),
        (None, _) => "nothing to read it from on this machine".into(),
    }
}

fn knob(knob: &KnobReport) -> String {
    let name = knob.knob.to_string();
    match knob.offered {
        Some(provenance) => {
            let used = if knob.used { "turned" } else { "left alone" };
            format!("{name:<18} {:<10} {used:<11} {}", provenance.to_string(), knob.range)
        }
        None => format!("{name:<18} not offered by this machine; see punctual doctor"),
    }
}

fn protection(told: &ProtectionLine) -> String {
    let what = told.what.join(", ");
    match told.refused {
        None => format!("obtained   {what}"),
        Some((why, remedy)) => format!("refused    {what}: {why}; {remedy}"),
    }
}

fn row(text: &mut String, name: &str, cells: &[String]) {
    for (i, cell) in cells.iter().enumerate() {
        let name = if i == 0 { name } else { "" };
        let _ = writeln!(text, "  {name:<INDENT$}{cell}");
    }
}

/// A figure to two decimals, or a dash.
pub fn figure(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.2}"))
}

/// Reading of a meter, or a note that the machine has none.
fn metered(value: Option<f64>, told: impl Fn(f64) -> String) -> String {
    value.map_or("no meter on this machine".into(), told)
}

/// A share in percent, or a dash.
pub fn share(value: Option<f64>) -> String {
    value.map_or("-".into(), percent)
}

/// Name of an update mode, as scenarios spell it.
pub const fn update_mode(mode: UpdateMode) -> &'static str {
    match mode {
        UpdateMode::MemoryFirst => "memory-first",
        UpdateMode::Transaction => "transaction",
    }
}

/// A share of 1 in percent, to one decimal.
pub fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// A number with a regular noun, such as `1 window`, `2 windows`, `2 processes`.
pub fn counted(n: u64, noun: &str) -> String {
    let ending = match n {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{} {noun}{ending}", count(n))
}

/// A number with its thousands separated.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn the_summary_says_all_of_it() {
        insta::assert_snapshot!("summary", summary(&fixture::report()));
    }

    /// A screen of 24 lines of 80 columns shows the whole verdict below whatever is above it.
    #[test]
    fn the_verdict_is_the_last_thing_on_the_screen() {
        let report = fixture::report();
        let text = summary(&report);
        let sentences = Verdict::of(&report).sentences(&report);
        assert!(text.trim_end().ends_with(&sentences.join("\n")), "{text}");
        assert!(sentences.iter().map(|sentence| sentence.len() / 80 + 1).sum::<usize>() < 24);
    }

    #[test]
    fn updates_under_way_at_the_end_are_counted() {
        let mut report = fixture::report();
        report.summary.updates.unfinished = 6;
        let text = summary(&report);
        assert!(text.contains("+ 6 under way at the end"), "{text}");
    }

    #[test]
    fn an_empty_run_is_summed_up_too() {
        let mut report = fixture::report();
        report.samples.clear();
        report.summary = Default::default();
        let text = summary(&report);
        assert!(text.contains("Too short to judge"), "{text}");
    }

    #[test]
    fn thousands_stand_apart() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }
}
