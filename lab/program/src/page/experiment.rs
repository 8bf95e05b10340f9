//! The page of an experiment: its settings, every claim beside the measured figure, and the figures.

use std::fmt::Write;

use punctual_evaluation::{Chart as Shape, Figure, Measure, Outcome};

use super::bars;
use crate::claims::{apart, figure, held, paper, predictions, range};
use punctual_report::page::chart::{Band, Chart, Curve, Level};
use punctual_report::page::{STYLE, escape};

/// CSS classes of curves and bars, by their order in a figure.
const CLASSES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// The page of `outcome`; `command` is the command line that produced it.
pub fn experiment(outcome: &Outcome, command: &str) -> String {
    let (name, platform) = (escape(&outcome.name), badge(outcome));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{name} · punctual</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1><b>{name}</b> · {platform}</h1>\n"
    );
    if !outcome.claims.is_empty() {
        verdict(&mut page, outcome);
        claims(&mut page, outcome);
    }
    measures(&mut page, &outcome.measures);
    if !outcome.figures.is_empty() {
        figures(&mut page, outcome);
    }
    page += "<h2>Setting</h2>\n<div class=\"sheet\"><table>\n";
    let machines = (outcome.testbed.many().to_string(), outcome.machines.join("; "));
    for (name, value) in outcome.setting.iter().chain([&machines]) {
        let _ = writeln!(page, "<tr><th>{}</th><td>{}</td></tr>", escape(name), escape(value));
    }
    page += "</table></div>\n";
    if !outcome.failures.is_empty() {
        let _ = writeln!(
            page,
            "<h2>What could not be run</h2>\n<div class=\"sheet\"><pre>{}</pre></div>",
            escape(&outcome.failures.join("\n"))
        );
    }
    let _ = writeln!(
        page,
        "<h2>Run it again</h2>\n<div class=\"sheet\"><pre>{}</pre></div>\n<p class=\"note\">punctual {}</p>\n</main>\n</body>\n</html>",
        escape(command),
        env!("CARGO_PKG_VERSION")
    );
    page
}

fn figures(page: &mut String, outcome: &Outcome) {
    let _ = writeln!(
        page,
        "<h2>Figures</h2>\n<p class=\"note\">Bars are medians over {} and seeds, strokes their ranges; curves over time are those of the first seed. Shaded: the disturbance.</p>\n<div class=\"charts\">",
        outcome.testbed.many()
    );
    outcome.figures.iter().for_each(|figure| draw(page, figure));
    *page += "</div>\n";
}

fn verdict(page: &mut String, outcome: &Outcome) {
    let (held, all) = predictions(outcome);
    let good = if outcome.claims.iter().all(|claim| claim.holds) {
        " good"
    } else {
        ""
    };
    let (testbeds, seeds) = outcome.extent();
    let _ = writeln!(
        page,
        "<p class=\"verdict{good}\">{held} of {all} predictions hold, on {testbeds} with {seeds} each{}</p>",
        apart(outcome)
    );
}

fn measures(page: &mut String, measures: &[Measure]) {
    if measures.is_empty() {
        return;
    }
    *page += "<h2>Measured</h2>\n<div class=\"sheet\"><table>\n<thead><tr><th>what</th><th>median</th><th>range</th></tr></thead>\n<tbody>\n";
    for measure in measures {
        let cell = |value: Option<f64>| figure(value);
        let _ = writeln!(
            page,
            "<tr><th>{}</th><td class=\"figure\">{}</td><td class=\"figure\">{} .. {}</td></tr>",
            escape(&measure.name),
            cell(measure.spread.map(|spread| spread.median)),
            cell(measure.spread.map(|spread| spread.low)),
            cell(measure.spread.map(|spread| spread.high))
        );
    }
    *page += "</tbody></table></div>\n";
}

fn badge(outcome: &Outcome) -> &'static str {
    match outcome.platform.as_str() {
        "sim" => "<span class=\"badge stand-in\">simulated</span>",
        _ => "<span class=\"badge\">measured on Linux</span>",
    }
}

fn claims(page: &mut String, outcome: &Outcome) {
    let _ = writeln!(
        page,
        "<h2>Claims</h2>\n<p class=\"note\">Quantitative: the median over all {} and seeds keeps the tolerance, and half of them or more do. Structural: holds on every {} with every seed.</p>\n<div class=\"sheet\"><table>\n<thead><tr><th>holds</th><th>claim</th><th>paper</th><th>ours</th><th>range</th><th>runs</th></tr></thead>\n<tbody>",
        outcome.testbed.many(),
        outcome.testbed.one()
    );
    for row in &outcome.claims {
        let (class, holds) = if row.holds { ("yes", "yes") } else { ("no", "no") };
        let mut notes = vec![format!("{} · {}", escape(&row.claim.id), escape(&row.claim.source))];
        notes.extend(
            row.note
                .iter()
                .chain(&row.why)
                .chain(&row.missing)
                .map(|note| escape(note)),
        );
        let _ = writeln!(
            page,
            "<tr><th class=\"{class}\">{holds}</th><td class=\"text\">{}<br><span class=\"key\" style=\"white-space:normal\">{}</span></td><td>{}</td><td class=\"figure\">{}</td><td class=\"figure\">{}</td><td class=\"figure\">{}</td></tr>",
            escape(&row.claim.text),
            notes.join("<br>"),
            escape(&paper(row)),
            figure(row.ours),
            range(row),
            held(row)
        );
    }
    *page += "</tbody></table></div>\n";
}

fn draw(page: &mut String, figure: &Figure) {
    let _ = write!(page, "<figure><figcaption><b>{}</b>", escape(&figure.title));
    let names: Vec<&str> = match &figure.chart {
        Shape::Curves { curves, .. } => curves.iter().map(|curve| curve.name.as_str()).collect(),
        Shape::Bars { bars, .. } => bars.iter().map(|bar| bar.name.as_str()).collect(),
    };
    for (name, class) in names.iter().zip(CLASSES.iter().cycle()) {
        let _ = write!(page, "<span class=\"key {class}\">{}</span>", escape(name));
    }
    let description = format!("{}: {}", figure.title, names.join(", "));
    let svg = match &figure.chart {
        Shape::Bars { groups, bars } => bars::svg(&description, groups, bars, &CLASSES),
        Shape::Curves { .. } => curves(description, &figure.chart).svg(),
    };
    let _ = writeln!(page, "</figcaption>\n{svg}\n</figure>");
}

fn curves(description: String, shape: &Shape) -> Chart {
    let Shape::Curves {
        x_unit,
        length,
        curves,
        levels,
        band,
    } = shape
    else {
        return Chart::default();
    };
    let curve = |(curve, class): (&punctual_evaluation::Curve, &&'static str)| Curve {
        name: curve.name.clone(),
        class,
        points: curve.points.clone(),
    };
    let level = |(name, value): &(String, f64)| Level {
        name: name.clone(),
        class: "goal",
        value: *value,
    };
    let stretch = |(from, to): (f64, f64)| Band {
        class: "unsettled",
        from,
        to,
    };
    Chart {
        description,
        curves: curves.iter().zip(CLASSES.iter().cycle()).map(curve).collect(),
        levels: levels.iter().map(level).collect(),
        bands: band.map(stretch).into_iter().collect(),
        length_s: *length,
        x_unit: Some(x_unit.clone()),
        ..Chart::default()
    }
}

#[cfg(test)]
mod tests {
    use punctual_evaluation::claims::{Claims, Reasons, judge};
    use punctual_evaluation::samples::{Replication, Run, labels};
    use punctual_evaluation::stats::Spread;
    use punctual_evaluation::{Bars, Curve as Line, Testbed};

    use super::*;

    fn outcome() -> Outcome {
        let claim = "[[claim]]\nid = \"c\"\nexperiment = \"e\"\nkind = \"structural\"\nsource = \"Fig. 1\"\ntext = \"a < b\"\npaper = \"less\"\nformula = \"mean(power) < 1\"\n";
        let claims = Claims::parse(claim).unwrap();
        let run = Run {
            labels: labels([("approach", "mimo")]),
            settled_from: 0,
            series: [("power".to_string(), vec![Some(2.0)])].into(),
        };
        let replication = Replication {
            machine: "m & n".into(),
            seed: 1,
            runs: vec![run],
            failures: Vec::new(),
        };
        let reasons = Reasons::from([("c".to_string(), "because <of> that".to_string())]);
        let figure = |chart| Figure {
            experiment: "e".into(),
            title: "x".into(),
            chart,
        };
        let spread = Spread {
            median: 1.0,
            low: 0.5,
            high: 2.0,
        };
        Outcome {
            name: "e".into(),
            platform: "sim".into(),
            testbed: Testbed::ProfileSet,
            machines: vec!["m & n".into()],
            seeds: vec![1],
            setting: vec![("goal".into(), "1".into())],
            claims: claims
                .iter()
                .map(|claim| judge(claim, std::slice::from_ref(&replication), &reasons))
                .collect(),
            tables: Vec::new(),
            measures: Vec::new(),
            figures: vec![
                figure(Shape::Bars {
                    groups: vec!["none".into()],
                    bars: vec![Bars {
                        name: "open".into(),
                        values: vec![Some(spread)],
                    }],
                }),
                figure(Shape::Curves {
                    x_unit: "MHz".into(),
                    length: 2000.0,
                    curves: vec![Line {
                        name: "m".into(),
                        points: vec![(800.0, Some(1.0)), (2000.0, None)],
                    }],
                    levels: vec![("goal".into(), 1.0)],
                    band: Some((100.0, 200.0)),
                }),
            ],
            means: Vec::new(),
            samples: vec![replication],
            failures: vec!["m, seed 2: too slow".into()],
        }
    }

    #[test]
    fn the_page_is_whole_labelled_and_loads_nothing() {
        let page = experiment(&outcome(), "punctual-lab experiment e");
        punctual_report::fixture::check_nesting(&page);
        for part in [
            "simulated",
            "0 of 1 predictions hold",
            "a &lt; b",
            "because &lt;of&gt; that",
            "m &amp; n",
            "2000 MHz",
            "too slow",
        ] {
            assert!(page.contains(part), "no {part}");
        }
        assert_eq!(page.matches("<svg").count(), 2);
        for outside in ["http", "src=", "url(", "@import", "<link", "<script"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
