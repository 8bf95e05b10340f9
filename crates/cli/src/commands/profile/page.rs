//! Page of a program's profile: rate and misses along a run, phases, and their error.

use std::fmt::Write;

use punctual_allocation::profile::ProfileRecording;

use punctual_report::page::chart::{Band, Chart, Curve};
use punctual_report::page::{STYLE, escape};

use super::{ProfileView, Steps, named, ways};

/// Classes of curves, by their order in a figure.
const CLASSES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Page of `shown`; `command` is the command line that produced it.
pub fn profile(shown: &ProfileView, command: &str) -> String {
    let (name, badge) = match &shown.recording {
        ProfileRecording::Measured(_) => (shown.recording.name(), "<span class=\"badge\">measured</span>"),
        ProfileRecording::Windows(_) => (
            shown.recording.name(),
            "<span class=\"badge stand-in\">traced, timed by a model</span>",
        ),
    };
    let name = escape(name);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{name} · punctual</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1><b>{name}</b> · {badge}</h1>\n<p class=\"note\">{}</p>\n",
        escape(&shown.title())
    );
    for line in shown.provenance() {
        let _ = writeln!(page, "<p class=\"note\">{}</p>", escape(&line));
    }
    page += "<h2>Along a run</h2>\n<div class=\"charts\">\n";
    let rates = shown.shares.iter().map(|share| (named(*share), shown.rate(*share)));
    figure(
        &mut page,
        shown,
        "Rate, million instructions per second",
        &rates.collect::<Vec<_>>(),
        false,
    );
    let kept = shown
        .shares
        .iter()
        .map(|share| (named(*share), shown.phase_rate(*share)));
    figure(
        &mut page,
        shown,
        "The same of the phases that are kept",
        &kept.collect::<Vec<_>>(),
        true,
    );
    let misses = shown.misses().into_iter().map(|(of, steps)| (ways(of), steps));
    figure(
        &mut page,
        shown,
        "Misses per 1000 instructions",
        &misses.collect::<Vec<_>>(),
        true,
    );
    page += "</div>\n<p class=\"note\">Shaded and not: phases, in turn; they are the same for all shares.</p>\n";
    page += "<h2>A whole run</h2>\n<div class=\"charts\">\n";
    durations(&mut page, shown);
    indices(&mut page, shown);
    page += "</div>\n<h2>Figures</h2>\n<div class=\"sheet\"><table>\n";
    for (name, what) in shown.figures() {
        let _ = writeln!(page, "<tr><th>{name}</th><td>{}</td></tr>", escape(&what));
    }
    for (share, seconds, _) in shown.durations() {
        let _ = writeln!(
            page,
            "<tr><th>{}</th><td>{seconds:.3} s</td></tr>",
            escape(&named(share))
        );
    }
    let _ = writeln!(
        page,
        "</table></div>\n<h2>Show it again</h2>\n<div class=\"sheet\"><pre>{}</pre></div>\n<p class=\"note\">punctual {}</p>\n</main>\n</body>\n</html>",
        escape(command),
        env!("CARGO_PKG_VERSION")
    );
    page
}

/// A chart of curves over percent of a run; with `phases`, alternate phases are shaded.
fn figure(page: &mut String, shown: &ProfileView, title: &str, curves: &[(String, Steps)], phases: bool) {
    if curves.is_empty() {
        return;
    }
    let curves = curves
        .iter()
        .map(|(name, steps)| (name.clone(), steps.corners()))
        .collect();
    let bands = if phases { bands(shown) } else { Vec::new() };
    draw(page, title, curves, bands, 100.0, "%");
}

fn bands(shown: &ProfileView) -> Vec<Band> {
    let ends: Vec<f64> = shown.compiled.profile.phases.iter().map(|phase| phase.ends).collect();
    let pairs = ends.chunks_exact(2);
    let band = |pair: &[f64]| Band {
        class: "unsettled",
        from: 100.0 * pair[0],
        to: 100.0 * pair[1],
    };
    pairs.map(band).collect()
}

/// Time of a whole run over equal numbers of both resources (the fifth paper's figure 2).
fn durations(page: &mut String, shown: &ProfileView) {
    let durations = shown.durations();
    let points = durations
        .iter()
        .map(|(share, _, part)| (f64::from(share.ways.max(share.partitions)), Some(100.0 * part)));
    let most = durations
        .last()
        .map_or(1.0, |(share, _, _)| f64::from(share.ways.max(share.partitions)));
    let curves = vec![("of the longest, percent".to_string(), points.collect())];
    draw(
        page,
        "Time, by the number of ways and of partitions",
        curves,
        Vec::new(),
        most,
        "of each",
    );
}

/// Curves of both cluster indices over the number of kinds, each as a share of its largest value.
fn indices(page: &mut String, shown: &ProfileView) {
    let Some(kinds) = &shown.compiled.kinds else {
        return;
    };
    let candidates = &kinds.choice.candidates;
    let curve = |name: &str, of: fn(&punctual_allocation::cluster::Candidate) -> f64| {
        let most = candidates
            .iter()
            .map(of)
            .filter(|value| value.is_finite())
            .fold(0.0, f64::max);
        let points = candidates
            .iter()
            .map(|candidate| (candidate.kinds as f64, Some(100.0 * of(candidate) / most)));
        (name.to_string(), points.collect())
    };
    let curves = vec![
        curve("Davies-Bouldin (lower is better)", |candidate| candidate.davies_bouldin),
        curve("Calinski-Harabasz (higher is better)", |candidate| {
            candidate.calinski_harabasz
        }),
    ];
    let most = candidates.last().map_or(1.0, |candidate| candidate.kinds as f64);
    let title = format!(
        "Indices by the number of kinds, percent of their largest; {} were taken",
        kinds.choice.best().kinds
    );
    draw(page, &title, curves, Vec::new(), most, "");
}

type Line = (String, Vec<(f64, Option<f64>)>);

fn draw(page: &mut String, title: &str, curves: Vec<Line>, bands: Vec<Band>, length: f64, unit: &str) {
    let _ = write!(page, "<figure><figcaption><b>{}</b>", escape(title));
    for ((name, _), class) in curves.iter().zip(CLASSES) {
        let _ = write!(page, "<span class=\"key {class}\">{}</span>", escape(name));
    }
    let names: Vec<&str> = curves.iter().map(|(name, _)| name.as_str()).collect();
    let chart = Chart {
        description: format!("{title}: {}", names.join(", ")),
        curves: curves
            .into_iter()
            .zip(CLASSES)
            .map(|((name, points), class)| Curve { name, class, points })
            .collect(),
        bands,
        at_least: (0.0, 0.0),
        length_s: length,
        x_unit: Some(unit.to_string()),
        ..Chart::default()
    };
    let _ = writeln!(page, "</figcaption>\n{}\n</figure>", chart.svg());
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_allocation::profile::ProfileOptions;

    fn page_of(file: &str, text: &str) -> String {
        let shown = ProfileView::of(file, text.as_bytes(), ProfileOptions::default()).unwrap();
        profile(&shown, "punctual profile x.csv --html 'a<b'")
    }

    #[test]
    fn the_page_is_whole_labelled_and_loads_nothing() {
        let windows: String = (0..40)
            .map(|i| format!("{i},{},1000,{},{},3\n", i * 1000, 20 + i % 4, 9 + i % 4))
            .collect();
        let traced = page_of(
            "<x>.csv",
            &format!("window_index,instr_start,instr_count,llc_requests,miss_w1,miss_w2\n{windows}"),
        );
        let measured = page_of(
            "m.csv",
            "cache_ways,bandwidth_partitions,cluster,start_instr,end_instr,instr_per_s\n1,1,0,1,100,5\n1,1,1,101,200,7\n",
        );
        for (page, charts) in [(&traced, 5), (&measured, 3)] {
            punctual_report::fixture::check_nesting(page);
            for outside in ["http", "src=", "url(", "@import", "<link", "<script"] {
                assert!(!page.contains(outside), "{outside}");
            }
            assert_eq!(page.matches("<svg").count(), charts);
        }
        for part in ["timed by a model", "&lt;x&gt;", "a&lt;b", "rate error", "2 ways"] {
            assert!(traced.contains(part), "no {part}");
        }
        assert!(measured.contains("<span class=\"badge\">measured</span>"));
    }
}
