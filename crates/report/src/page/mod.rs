//! Report of a run as one HTML page that loads nothing from elsewhere: style, curves and figures are in it.
//!
//! The curves are SVG of our own rather than a plotting crate's: such crates write colours into the picture, and these
//! take theirs from the style sheet, so that one page is right in light and in dark mode.

pub mod chart;
mod figures;
pub mod live;
mod tasks;

use maud::{DOCTYPE, Markup, PreEscaped, Render, html};
use punctual_runtime::report::{
    KnobReport, PlatformChoice, Protection, RunMark, RunReport, SettingReport, StageReport,
};

use crate::protection::told;
use crate::settings::{COLUMNS, cells};
use crate::stages::{self, sentence};
use crate::summary::{count, figure as figure_of, percent, rows, share};
use crate::verdict::Verdict;
use figures::figures;

const STYLE: &str = include_str!("style.css");

/// Page of `report`; `command` is the command line that produced it.
pub fn page(report: &RunReport, command: &str) -> String {
    let header = &report.header;
    let verdict = Verdict::of(report);
    let good = match verdict.is_good() {
        true => " good",
        false if verdict.is_open() => " open",
        false => "",
    };
    let sentences = verdict.sentences(report);
    let whole = [0.0, report.samples.last().map_or(0.0, |last| last.t_s)];
    let head = html! {
        b { (header.scenario) } " · " (header.controller.name()) " on " (header.machine)
        @if header.platform == PlatformChoice::Sim { " · " span class="badge stand-in" { "simulated" } }
    };
    let body = html! {
        p class={ "verdict" (good) } { (sentences[0]) }
        @if sentences.len() > 1 { p class="why" { (sentences[1..].join(" ")) } }
        (tiles(&run_tiles(report, &verdict)))
        (tasks::tasks(&report.tasks))
        (stages(&report.stages))
        h2 { "Curves" }
        div class="charts" { @for shown in figures(header, &report.samples, whole) { (shown) } }
        p class="note" {
            "Shaded: the start-up of " (format!("{:.0}", header.settle_s)) " s, which the figures leave out. Red shade: "
            "fallback. Red strokes: windows with late jobs."
        }
        h2 { "Figures" }
        (table(rows(report).iter().map(|(name, cells)| (*name, lines(cells)))))
        (knobs(&header.knobs))
        (protections(&header.protection))
        (settings(&report.settings))
        (marks(&report.marks))
        @if !report.summary.notes.is_empty() {
            h2 { "Notes" }
            div class="sheet" tabindex="0" { pre { (report.summary.notes.join("\n")) } }
        }
        (again("Run it again", command))
        p class="note" {
            "punctual " (env!("CARGO_PKG_VERSION")) ", seed " (header.seed) ", on " (header.machine) " ("
            (header.platform.name()) ")."
        }
    };
    document(&header.scenario, &head, &body)
}

/// Table of the scenario's stages; nothing without stages.
pub fn stages(stages: &[StageReport]) -> Markup {
    html! {
        @if !stages.is_empty() {
            h2 { "Stages" }
            div class="sheet" tabindex="0" { table {
                thead { tr { @for (head, _) in stages::COLUMNS { th { (head) } } } }
                tbody { @for stage in stages {
                    @let [name, rest @ ..] = stages::COLUMNS.map(|(_, text)| text(stage));
                    tr { th { (name) } @for cell in rest { td class="figure" { (cell) } } }
                } }
            } }
            p class="note" { (sentence(stages)) }
        }
    }
}

fn run_tiles(report: &RunReport, verdict: &Verdict) -> [(String, String); 5] {
    let summary = &report.summary;
    let shed = summary.updates.shed as f64 / summary.updates.offered.max(1) as f64;
    let held = format!("{} of {}", verdict.held(), verdict.tasks.len());
    let offered = count(summary.updates.offered);
    let minimum = report.header.goal.min_fresh;
    let (mean, fresh) = (figure_of(summary.tardiness_mean), share(summary.fresh_share_min));
    [
        (held, "tasks hold their goal".into()),
        (mean, "mean tardiness over all tasks".into()),
        (fresh, format!("fresh at worst, minimum {minimum}")),
        (percent(shed), format!("of {offered} updates shed")),
        (count(summary.updates.lost), "updates lost".into()),
    ]
}

fn knobs(knobs: &[KnobReport]) -> Markup {
    let row = |knob: &KnobReport| {
        let used = if knob.used { "turned" } else { "left alone" };
        let [offered, used, range] = match knob.offered {
            Some(provenance) => [provenance.to_string(), used.into(), knob.range.clone()].map(|cell| html! { (cell) }),
            None => [
                html! { "not offered" },
                html! { "-" },
                html! { "see " code { "punctual doctor" } },
            ],
        };
        vec![html! { (knob.knob.to_string()) }, offered, used, range]
    };
    let head = ["knob", "how real", "in this run", "range"].map(|name| html! { (name) });
    let rows: Vec<Vec<Markup>> = std::iter::once(head.to_vec()).chain(knobs.iter().map(row)).collect();
    html! { h2 { "Knobs" } (sheet(&rows)) }
}

fn protections(protections: &[Protection]) -> Markup {
    html! {
        @if !protections.is_empty() {
            h2 { "Protection" }
            div class="sheet" tabindex="0" { table { @for told in told(protections) {
                tr {
                    @match told.refused {
                        None => th class="yes" { "obtained" },
                        Some(_) => th class="no" { "refused" },
                    }
                    td { (told.what.join(", ")) @if let Some((why, remedy)) = told.refused { br; (why) "; " (remedy) } }
                }
            } } }
        }
    }
}

/// Table of the settings; nothing without any.
fn settings(settings: &[SettingReport]) -> Markup {
    let mut rows = vec![COLUMNS.map(String::from).to_vec()];
    rows.extend(settings.iter().map(|setting| cells(setting).to_vec()));
    html! { @if !settings.is_empty() { h2 { "Settings" } (sheet(&rows)) } }
}

/// Table of the user's marks; nothing without any.
fn marks<'m>(marks: impl IntoIterator<Item = &'m RunMark>) -> Markup {
    let mut rows = marks
        .into_iter()
        .map(|mark| (format!("{:.1} s", mark.t_s), mark.text.as_str()))
        .peekable();
    html! { @if rows.peek().is_some() { h2 { "Marks" } (table(rows)) } }
}

/// A page around `body`, with `head` as its headline.
pub fn document(title: &str, head: &Markup, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " · punctual" }
                style { (PreEscaped(STYLE)) }
            }
            body { main { h1 { (head) } (body) } }
        }
    };
    page.into_string() + "\n"
}

/// A page around `body` that ends with the command line that produced it.
pub fn framed(title: &str, head: &Markup, body: &Markup, command: &str) -> String {
    let version = html! { p class="note" { "punctual " (env!("CARGO_PKG_VERSION")) } };
    let body = html! { (body) (again("Run it again", command)) (version) };
    document(title, head, &body)
}

/// The command line that produced a page.
pub fn again(title: &str, command: &str) -> Markup {
    html! { h2 { (title) } div class="sheet" tabindex="0" { pre { (command) } } }
}

/// Figures in large type: value and name of each.
pub fn tiles<N: Render>(tiles: &[(String, N)]) -> Markup {
    html! {
        div class="tiles" { @for (figure, name) in tiles { div class="tile" { b { (figure) } span { (name) } } } }
    }
}

/// A drawing with its caption: title, what follows it, and the keys of its classes.
pub fn figure(title: &str, caption: &Markup, keys: &[(String, &str)], svg: &Markup) -> Markup {
    html! {
        figure {
            figcaption {
                b { (title) } (caption) @for (name, class) in keys { span class={ "key " (class) } { (name) } }
            }
            (svg)
        }
    }
}

/// Caption after a title.
pub fn what(what: &str) -> Markup {
    html! { @if !what.is_empty() { span class="what" { (what) } } }
}

/// Lines of text, one below the other.
pub fn lines(lines: &[String]) -> Markup {
    html! { @for (number, line) in lines.iter().enumerate() { @if number > 0 { br; } (line) } }
}

/// A table of names and values, without a head.
pub fn table<N: Render, C: Render>(rows: impl IntoIterator<Item = (N, C)>) -> Markup {
    html! {
        div class="sheet" tabindex="0" { table { @for (name, cell) in rows { tr { th { (name) } td { (cell) } } } } }
    }
}

/// Rows of cells as a table; the first row is its head.
pub fn sheet<C: Render>(rows: &[Vec<C>]) -> Markup {
    let [head, rows @ ..] = rows else {
        return Markup::default();
    };
    html! {
        div class="sheet" tabindex="0" { table {
            thead { tr { @for cell in head { th { (cell) } } } }
            tbody { @for row in rows {
                tr { @for (at, cell) in row.iter().enumerate() {
                    @if at == 0 { th { (cell) } } @else { td { (cell) } }
                } }
            } }
        } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::fixture::check_nesting;

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let page = page(&fixture::report(), "punctual run");
        check_nesting(&page);
        for outside in ["http", "src=", "url(", "@import", "<link", "<script"] {
            assert!(!page.contains(outside), "{outside}");
        }
        for part in [
            "All 2 tasks hold their goals",
            "2 of 2</b><span>tasks hold their goal",
            "emulated",
            "deadline",
            "minimum 50 %",
            "core 1",
            "SCHED_FIFO 80",
            "raise the limit",
            "not offered",
            "punctual run</pre>",
            "5,000 superseded",
            "<th>30.0 s</th><td>door &lt;opened&gt;",
            "<td>0</td><td>0-1</td><td>0.5 s, to 55.0 s</td><td>steer</td><td>class = &quot;exclusive&quot;</td>",
        ] {
            assert!(page.contains(part), "no {part}");
        }
        assert_eq!(page.matches("<svg").count(), 8);
    }

    #[test]
    fn names_are_text_and_not_markup() {
        let mut report = fixture::report();
        report.header.scenario = "<script>alert(\"x\")</script>".into();
        report.header.machine = "a & b".into();
        let page = page(&report, "punctual run 'a<b'");
        check_nesting(&page);
        assert!(!page.contains("<script"));
        assert!(page.contains("a &amp; b") && page.contains("a&lt;b"));
    }

    #[test]
    fn an_empty_run_gives_a_page_without_curves() {
        let mut report = fixture::report();
        report.samples.clear();
        report.tasks.clear();
        report.summary = Default::default();
        let page = page(&report, "punctual run");
        check_nesting(&page);
        assert_eq!(page.matches("<svg").count(), 0);
    }

    #[test]
    fn many_cores_become_two_curves_and_a_machine_without_clock_none() {
        let mut report = fixture::report();
        report.samples.iter_mut().for_each(|sample| {
            sample.busy = vec![0.5; 64];
            sample.clock_hz = None;
        });
        let page = page(&report, "punctual run");
        assert!(page.contains("busiest core") && !page.contains("core 63"));
        assert!(!page.contains("<b>Clock</b>"));
    }
}
