//! Report of a run as one HTML page that loads nothing from elsewhere: style, curves and figures are in it.
//!
//! The curves are SVG of our own rather than a plotting crate's: such crates write colours into the picture, and these
//! take theirs from the style sheet, so that one page is right in light and in dark mode.

pub mod chart;
mod figures;
mod tasks;

use std::fmt::Write;

use punctual_runtime::report::{KnobReport, PlatformChoice, Protection, RunReport, StageReport};

use crate::protection::told;
use crate::summary::{count, figure as figure_of, percent, rows, share};
use crate::verdict::Verdict;
use figures::{CaptionedChart, figures};

pub const STYLE: &str = include_str!("style.css");

/// Page of `report`; `command` is the command line that produced it.
pub fn page(report: &RunReport, command: &str) -> String {
    let header = &report.header;
    let verdict = Verdict::of(report);
    let good = match verdict.is_good() {
        true => " good",
        false if verdict.is_open() => " open",
        false => "",
    };
    let scenario = escape(&header.scenario);
    let sentences = verdict.sentences(report);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{scenario} · punctual</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    );
    let _ = writeln!(
        page,
        "<h1><b>{scenario}</b> · {} on {}{}</h1>\n<p class=\"verdict{good}\">{}</p>",
        header.controller.name(),
        escape(&header.machine),
        if header.platform == PlatformChoice::Sim {
            " · <span class=\"badge stand-in\">simulated</span>"
        } else {
            ""
        },
        escape(&sentences[0])
    );
    if let Some(more) = sentences.get(1..).filter(|more| !more.is_empty()) {
        let _ = writeln!(page, "<p class=\"why\">{}</p>", escape(&more.join(" ")));
    }
    tiles(&mut page, report, &verdict);
    tasks::tasks(&mut page, &report.tasks);
    stages(&mut page, &report.stages);
    page += "<h2>Curves</h2>\n<div class=\"charts\">\n";
    figures(report).iter().for_each(|shown| figure(&mut page, shown));
    let _ = writeln!(
        page,
        "</div>\n<p class=\"note\">Shaded: the start-up of {:.0} s, which the figures leave out. Red shade: fallback. Red strokes: windows with late jobs.</p>",
        header.settle_s
    );
    page += "<h2>Figures</h2>\n<div class=\"sheet\"><table>\n";
    for (name, cells) in rows(report) {
        let cells: Vec<String> = cells.iter().map(|cell| escape(cell)).collect();
        let _ = writeln!(page, "<tr><th>{name}</th><td>{}</td></tr>", cells.join("<br>"));
    }
    page += "</table></div>\n";
    knobs(&mut page, &header.knobs);
    protections(&mut page, &header.protection);
    if !report.summary.notes.is_empty() {
        let notes: Vec<String> = report.summary.notes.iter().map(|note| escape(note)).collect();
        let _ = writeln!(
            page,
            "<h2>Notes</h2>\n<div class=\"sheet\"><pre>{}</pre></div>",
            notes.join("\n")
        );
    }
    let _ = writeln!(
        page,
        "<h2>Run it again</h2>\n<div class=\"sheet\"><pre>{}</pre></div>\n<p class=\"note\">punctual {}, seed {}, on {} ({}).</p>\n</main>\n</body>\n</html>",
        escape(command),
        env!("CARGO_PKG_VERSION"),
        header.seed,
        escape(&header.machine),
        header.platform.name()
    );
    page
}

/// Table of the scenario's stages; nothing without stages.
pub fn stages(page: &mut String, stages: &[StageReport]) {
    if stages.is_empty() {
        return;
    }
    let heads = crate::stages::heads().map(|head| format!("<th>{head}</th>")).concat();
    let _ = write!(
        page,
        "<h2>Stages</h2>\n<div class=\"sheet\"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n"
    );
    for stage in stages {
        let [name, rest @ ..] = crate::stages::cells(stage);
        let rest = rest
            .map(|cell| format!("<td class=\"figure\">{}</td>", escape(&cell)))
            .concat();
        let _ = writeln!(page, "<tr><th>{}</th>{rest}</tr>", escape(&name));
    }
    *page += "</tbody></table></div>\n";
    let _ = writeln!(
        page,
        "<p class=\"note\">{}</p>",
        escape(&crate::stages::sentence(stages))
    );
}

fn tiles(page: &mut String, report: &RunReport, verdict: &Verdict) {
    let summary = &report.summary;
    let shed = summary.updates.shed as f64 / summary.updates.offered.max(1) as f64;
    let tiles = [
        (
            format!("{} of {}", verdict.held(), verdict.tasks.len()),
            "tasks hold their goal".to_string(),
        ),
        (
            figure_of(summary.tardiness_mean),
            "mean tardiness over all tasks".to_string(),
        ),
        (
            share(summary.fresh_share_min),
            format!("fresh at worst, minimum {}", report.header.goal.min_fresh),
        ),
        (
            percent(shed),
            format!("of {} updates shed", count(summary.updates.offered)),
        ),
        (count(summary.updates.lost), "updates lost".to_string()),
    ];
    *page += "<div class=\"tiles\">\n";
    for (figure, what) in tiles {
        let _ = writeln!(page, "<div class=\"tile\"><b>{figure}</b><span>{what}</span></div>");
    }
    *page += "</div>\n";
}

fn figure(page: &mut String, figure: &CaptionedChart) {
    let CaptionedChart { title, badge, chart } = figure;
    let _ = write!(page, "<figure><figcaption><b>{title}</b>");
    if let Some(badge) = badge {
        let class = if badge == "real" { "badge" } else { "badge stand-in" };
        let _ = write!(page, "<span class=\"{class}\">{}</span>", escape(badge));
    }
    for curve in &chart.curves {
        let _ = write!(
            page,
            "<span class=\"key {}\">{}</span>",
            curve.class,
            escape(&curve.name)
        );
    }
    for level in &chart.levels {
        let _ = write!(
            page,
            "<span class=\"key {}\">{}</span>",
            level.class,
            escape(&level.name)
        );
    }
    if !chart.marks.is_empty() {
        *page += "<span class=\"key mark\">late jobs</span>";
    }
    let _ = writeln!(page, "</figcaption>\n{}\n</figure>", chart.svg());
}

fn knobs(page: &mut String, knobs: &[KnobReport]) {
    *page += "<h2>Knobs</h2>\n<div class=\"sheet\"><table>\n<thead><tr><th>knob</th><th>how real</th><th>in this run</th><th>range</th></tr></thead>\n<tbody>\n";
    for knob in knobs {
        let (provenance, used, range) = match knob.offered {
            Some(provenance) => (
                provenance.to_string(),
                if knob.used { "turned" } else { "left alone" },
                escape(&knob.range),
            ),
            None => ("not offered".into(), "-", "see <code>punctual doctor</code>".into()),
        };
        let _ = writeln!(
            page,
            "<tr><th>{}</th><td>{provenance}</td><td>{used}</td><td>{range}</td></tr>",
            escape(&knob.knob.to_string())
        );
    }
    *page += "</tbody></table></div>\n";
}

fn protections(page: &mut String, protections: &[Protection]) {
    if protections.is_empty() {
        return;
    }
    *page += "<h2>Protection</h2>\n<div class=\"sheet\"><table>\n";
    for told in told(protections) {
        let (class, state, why) = match told.refused {
            None => ("yes", "obtained", String::new()),
            Some((why, remedy)) => ("no", "refused", format!("<br>{}; {}", escape(why), escape(remedy))),
        };
        let what = escape(&told.what.join(", "));
        let _ = writeln!(page, "<tr><th class=\"{class}\">{state}</th><td>{what}{why}</td></tr>");
    }
    *page += "</table></div>\n";
}

/// A page around `body`, with `head` as its headline; `command` is the command line that produced it.
pub fn framed(title: &str, head: &str, body: &str, command: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{} · punctual</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{head}</h1>\n{body}<h2>Run it again</h2>\n<div class=\"sheet\"><pre>{}</pre></div>\n<p class=\"note\">punctual {}</p>\n</main>\n</body>\n</html>",
        escape(title),
        escape(command),
        env!("CARGO_PKG_VERSION")
    )
}

/// Rows of text as a table; the first row is its head.
pub fn sheet(page: &mut String, rows: &[Vec<String>]) {
    let cells = |row: &[String], tag: &str| {
        let cell = |(at, cell): (usize, &String)| {
            let tag = if at == 0 { "th" } else { tag };
            format!("<{tag}>{}</{tag}>", escape(cell))
        };
        row.iter().enumerate().map(cell).collect::<String>()
    };
    let [head, rows @ ..] = rows else { return };
    let _ = writeln!(
        page,
        "<div class=\"sheet\"><table>\n<thead><tr>{}</tr></thead>\n<tbody>",
        cells(head, "th")
    );
    for row in rows {
        let _ = writeln!(page, "<tr>{}</tr>", cells(row, "td"));
    }
    *page += "</tbody></table></div>\n";
}

/// Escapes text for HTML, also inside attributes.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            c => escaped.push(c),
        }
    }
    escaped
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
