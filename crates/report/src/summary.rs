//! Summary at the end of a run: whether the goal was met, at what cost, and what stood in the way.

use std::fmt::Write;

use punctual_loop::ModeName;
use punctual_platform::KnobId;
use punctual_runtime::report::{KnobReport, RunHeader, RunReport, Sample, Summary};
use punctual_units::Hertz;
use punctual_workload::ControllerKind;

use crate::protection::{ProtectionLine, told};
use crate::settings::sentence;
use crate::verdict::Verdict;
use crate::{stages, tasks};

/// Column at which the text of a row begins.
const INDENT: usize = 14;
/// Mode of a live line until figures count.
pub(crate) const START_UP: &str = "start-up";

/// Summary of `report`; every line ends in a newline. The verdict comes last, where it is seen on a small screen.
pub fn summary(report: &RunReport) -> String {
    let mut text = String::new();
    let header = &report.header;
    let lasted = report.samples.last().map_or(0.0, |last| last.t_s);
    let seed = has_data(report).then(|| format!(", seed {}", header.seed));
    let (title, seed) = (headline(header), seed.unwrap_or_default());
    let _ = writeln!(text, "\n{title}, {lasted:.1} s{seed}\n");
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
    let knobs: Vec<_> = header.knobs.iter().map(knob).collect();
    let protection: Vec<_> = told(&header.protection).iter().map(protection).collect();
    row(&mut text, "knobs", &knobs);
    row(&mut text, "protection", &protection);
    let settings = report.settings.iter().filter(|it| it.now != it.before);
    row(&mut text, "settings", &settings.map(sentence).collect::<Vec<_>>());
    let notes = { report.summary.notes.iter().cloned() }.chain(stages::notes(&report.stages));
    row(&mut text, "notes", &notes.collect::<Vec<_>>());
    text += "\n";
    for sentence in Verdict::of(report).sentences(report) {
        let _ = writeln!(text, "{sentence}");
    }
    text
}

/// Scenario, platform and controller of a run.
pub fn headline(header: &RunHeader) -> String {
    let (platform, controller) = (header.platform.name(), header.controller.name());
    format!(
        "{} on {platform} ({}), controller {controller}",
        header.scenario, header.machine
    )
}

/// Mode of the loop at `sample`, on live lines, in a run with a start-up of `settle_s` seconds.
pub(crate) fn mode(sample: &Sample, settle_s: f64) -> &'static str {
    match sample.mode {
        ModeName::Fallback => ModeName::Fallback.as_str(),
        _ if sample.t_s <= settle_s => START_UP,
        mode => mode.as_str(),
    }
}

/// Whether the run had a load of its own: the jobs of other programs use none of its data.
fn has_data(report: &RunReport) -> bool {
    let load = &report.header.load;
    load.sensors > 0 || load.get_ns > 0.0 || report.summary.updates.offered > 0
}

/// Names and texts of the figures that the summary and the page both show.
pub fn rows(report: &RunReport) -> Vec<(&'static str, Vec<String>)> {
    let (header, summary, load) = (&report.header, &report.summary, &report.header.load);
    let [mean, p99] = [summary.tardiness_mean, summary.tardiness_p99].map(figure);
    let drr = figure(summary.drr_mean);
    let [worst, usual] = [summary.fresh_share_min, summary.fresh_share_mean].map(share);
    let energy = metered(summary.energy_j, |joules| format!("{joules:.1} J"));
    let hottest = |celsius| format!("{celsius:.1} °C at most, in the hottest zone");
    let (goal, minimum) = (header.goal.drr, header.goal.min_fresh);
    let tardiness = format!("{mean} on average, {p99} at p99, over the jobs of all tasks");
    let aim = match (header.controller, header.prices) {
        (ControllerKind::Mimo, Some(prices)) => prices.to_string(),
        (ControllerKind::Mimo, None) => format!("goal {goal:.2}"),
        _ => format!("goal {goal:.2}, which only mimo controls"),
    };
    let drr = format!("{drr} on average; {aim}");
    let fresh = format!("{worst} at worst, {usual} on average; minimum {minimum}");
    let mut rows = vec![
        ("tardiness", vec![tardiness]),
        ("drr", vec![drr]),
        ("fresh", vec![fresh]),
        ("jobs", jobs(summary)),
        ("updates", updates(report)),
        ("paid by", paid(report)),
        ("clock", vec![clock(report)]),
        ("energy", vec![energy]),
        ("temperature", vec![metered(summary.celsius_max, hottest)]),
    ];
    rows.retain(|(_, cells)| !cells.is_empty());
    let mut row = |name, text| rows.push((name, vec![text]));
    let controller = &summary.controller;
    if let Some(decision) = controller.decision_us_median {
        let share = { controller.core_share }.map(|share| format!(", {:.2} % of a core", share * 100.0));
        let share = share.unwrap_or_default();
        row("controller", format!("{decision:.1} us per decision (median){share}"));
    }
    if controller.clock_changes_within_jobs > 0 {
        let per_job = controller.clock_changes_within_jobs as f64 / summary.jobs.max(1) as f64;
        let took =
            { controller.pacing_us_median }.map(|us| format!(", in force {us:.0} us after a checkpoint (median)"));
        let took = took.unwrap_or_default();
        let told = format!("{per_job:.1} changes of the clock within a job{took}");
        row("pacing", told);
    }
    if let Some([median, p99, max]) = summary.probe_us {
        let control = format!("an idle probe woke {median:.0} us late (median), {p99:.0} us (p99), {max:.0} us (max)");
        row("no-op control", control + "; no latency below that means anything");
    }
    if let Some(steal) = summary.steal_share {
        let steal = percent(steal);
        let told = format!("{steal} of the cores' time went to other guests of the host");
        row("stolen", told);
    }
    let (sensors, updates) = (count(load.sensors.into()), count(load.updates_per_s.round() as u64));
    let (mode, replicas) = (load.update_mode.name(), load.replicas);
    let (update, get) = (load.update_us, load.get_ns);
    let each = format!("{update:.1} us each alone ({mode}), {get:.0} ns a get");
    let told = format!("{sensors} sensors ({replicas} x), {updates} updates/s, {each}");
    row("load", told);
    let is_of_data =
        |name| matches!(name, "fresh" | "updates" | "load") || name == "drr" && summary.drr_mean <= Some(0.0);
    rows.retain(|(name, _)| has_data(report) || !is_of_data(*name));
    rows
}

fn jobs(summary: &Summary) -> Vec<String> {
    let late = summary.misses as f64 / summary.jobs.max(1) as f64;
    let (jobs, misses, late) = (count(summary.jobs), count(summary.misses), percent(late));
    let (excused, skipped) = (count(summary.excused), count(summary.skipped));
    let mut of_all = format!("{jobs} in real time, {misses} late ({late}), {excused} of these excused");
    of_all += &format!(", {skipped} not released");
    if summary.overdue > 0 {
        of_all += &format!(", {} not ended", count(summary.overdue));
    }
    if summary.failed > 0 {
        of_all += &format!("; {} failed", count(summary.failed));
    }
    let start_up = &summary.start_up;
    let (seconds, jobs, late) = (start_up.seconds, count(start_up.jobs), count(start_up.late));
    let at_first = format!("start-up, {seconds:.0} s, not counted: {jobs} in real time, {late} late");
    let best_effort = format!("{} best-effort", count(summary.best_effort_jobs));
    vec![of_all, best_effort, at_first]
}

fn updates(report: &RunReport) -> Vec<String> {
    let summary = &report.summary;
    let all = &summary.updates;
    let under_way = (all.unfinished > 0).then(|| format!(" + {} under way at the end", count(all.unfinished)));
    let under_way = under_way.unwrap_or_default();
    let [offered, installed, shed] = [all.offered, all.installed, all.shed].map(count);
    let [superseded, lost] = [all.superseded, all.lost].map(count);
    let mut lines = vec![format!(
        "{offered} offered = {installed} installed + {shed} shed + {superseded} superseded{under_way}; {lost} lost"
    )];
    lines.push(format!("{} admitted on average", share(summary.admitted_share_mean)));
    if summary.updates.sensors_unreconciled > 0 {
        let sensors = count(all.sensors_unreconciled);
        lines.push(format!("{sensors} sensors do not reconcile"));
    }
    lines
}

/// Shares that background work and exclusive cores gave up for the goals; shed updates have a row of their own.
fn paid(report: &RunReport) -> Vec<String> {
    let mut before = report.header.settle_s;
    let counted = report.samples.iter().filter_map(|it| {
        let took = it.t_s - before;
        before = before.max(it.t_s);
        Some((it.best_effort_share?, took)).filter(|_| took > 0.0)
    });
    let shares: Vec<(f64, f64)> = counted.collect();
    let least = shares.iter().map(|(share, _)| *share).min_by(f64::total_cmp);
    let work = least.filter(|least| *least < 1.0).map(|least| {
        let of_time: f64 = shares.iter().map(|(share, took)| share * took).sum();
        let mean = percent(of_time / shares.iter().map(|(_, took)| took).sum::<f64>());
        format!(
            "background work: kept to {mean} of its cores on average, {} at worst",
            percent(least)
        )
    });
    let lent = report.lending.iter().filter(|lending| lending.leases > 0).map(|lending| {
        let (core, times) = (lending.core, count(lending.leases));
        let used = lending.used_share.map_or_else(String::new, |used| format!(", of which at least {} was used", percent(used)));
        let took = lending.take_back_us.as_ref();
        let took = took.map(|us| format!(", taken back in {:.0} us, p99 {:.0} us, max {:.0} us", us.p50, us.p99, us.max));
        let (seconds, took, late) = (lending.lent_s, took.unwrap_or_default(), count(lending.late));
        format!("exclusive core {core}: lent {times} times, for {seconds:.1} s{used}{took}; {late} leases ended after the release")
    });
    work.into_iter().chain(lent).collect()
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
    use crate::columns::wrapped;
    use crate::fixture;

    #[test]
    fn the_summary_says_all_of_it() {
        insta::assert_snapshot!("summary", summary(&fixture::report()));
    }

    /// A screen of 24 lines of 80 columns shows the whole verdict below whatever is above it.
    #[test]
    fn the_verdict_is_the_last_thing_on_the_screen() {
        let mut report = fixture::report();
        for late in [0, 4_000] {
            report.tasks[1].late = late;
            report.tasks[1].late_share = Some(late as f64 / 5_300.0);
            report.tasks[1].causes = report.tasks[0].causes.clone();
            let (text, sentences) = (summary(&report), Verdict::of(&report).sentences(&report));
            assert!(text.trim_end().ends_with(&sentences.join("\n")), "{text}");
            let shown = wrapped(&text, 80);
            let lines: Vec<&str> = shown.lines().collect();
            let mut prose = lines.iter().filter(|line| line.rfind("  ") <= Some(40));
            assert!(prose.all(|line| line.chars().count() <= 80), "{shown}");
            let screen = lines[lines.len() - 23..].join(" ");
            assert!(screen.ends_with(&sentences.join(" ")), "{shown}");
        }
    }

    #[test]
    fn updates_under_way_at_the_end_are_counted() {
        let mut report = fixture::report();
        report.summary.updates.unfinished = 6;
        let text = summary(&report);
        assert!(text.contains("+ 6 under way at the end"), "{text}");
    }

    #[test]
    fn a_run_without_data_tells_nothing_of_data() {
        let mut report = fixture::report();
        report.header.load = Default::default();
        (report.summary.updates.offered, report.summary.drr_mean) = (0, Some(0.0));
        let text = summary(&report);
        for absent in ["seed", "  drr ", "  fresh ", "  updates ", "  load "] {
            assert!(!text.contains(absent), "{text}");
        }
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
    fn background_work_pays_by_time_after_the_start_up() {
        let paid_by = |shares: [f64; 3]| {
            let mut report = fixture::report();
            report.header.settle_s = 3.0;
            report.samples.truncate(3);
            for ((sample, share), t_s) in report.samples.iter_mut().zip(shares).zip([3.0, 4.0, 7.0]) {
                (sample.best_effort_share, sample.t_s) = (Some(share), t_s);
            }
            paid(&report)
        };
        assert_eq!(paid_by([0.1, 1.0, 1.0]), Vec::<String>::new());
        // 1 s at 1, 3 s at 0.2.
        let kept = "background work: kept to 40.0 % of its cores on average, 20.0 % at worst";
        assert_eq!(paid_by([0.1, 1.0, 0.2]), [kept]);
    }

    #[test]
    fn thousands_stand_apart() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }
}
