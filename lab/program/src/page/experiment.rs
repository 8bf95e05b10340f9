//! The page of an experiment: its settings, every claim beside the measured figure, and the figures.

use maud::{Markup, html};
use punctual_evaluation::claims::{ClaimResult, Verdict};
use punctual_evaluation::stats::Spread;
use punctual_evaluation::{Chart as Shape, Figure, Measure, Outcome};

use super::bars;
use crate::claims::{apart, figure, held, paper, predictions, range};
use punctual_report::page::chart::{Band, CLASSES, Chart, Curve, Level};
use punctual_report::page::{self, framed, lines, table};

/// The page of `outcome`; `command` is the command line that produced it.
pub fn experiment(outcome: &Outcome, command: &str) -> String {
    let head = html! {
        b { (outcome.name) } " · "
        @match outcome.platform.as_str() {
            "sim" => span class="badge stand-in" { "simulated" },
            _ => span class="badge" { "measured on Linux" },
        }
    };
    let machines = (outcome.testbed.many().to_string(), outcome.machines.join("; "));
    let body = html! {
        @if !outcome.claims.is_empty() { (verdict(outcome)) (claims(outcome)) }
        @if !outcome.measures.is_empty() { (measures(&outcome.measures)) }
        @if !outcome.figures.is_empty() {
            h2 { "Figures" }
            p class="note" {
                "Bars are medians over " (outcome.testbed.many()) " and seeds, strokes their ranges; curves over time are "
                "those of the first seed. Shaded: the disturbance."
            }
            div class="charts" { @for figure in &outcome.figures { (draw(figure)) } }
        }
        h2 { "Setting" }
        (table(outcome.setting.iter().chain([&machines]).map(|(name, value)| (name, value))))
        @if !outcome.failures.is_empty() {
            h2 { "What could not be run" }
            div class="sheet" tabindex="0" { pre { (outcome.failures.join("\n")) } }
        }
    };
    framed(&outcome.name, &head, &body, command)
}

fn verdict(outcome: &Outcome) -> Markup {
    let held = |claim: &ClaimResult| matches!(claim.outcome, Verdict::Holds | Verdict::Setting);
    let good = if outcome.claims.iter().all(held) { " good" } else { "" };
    let (held, all) = predictions(outcome);
    let (testbeds, seeds) = outcome.extent();
    html! {
        p class={ "verdict" (good) } {
            (held) " of " (all) " predictions hold, on " (testbeds) " with " (seeds) " each" (apart(outcome))
        }
    }
}

fn measures(measures: &[Measure]) -> Markup {
    html! {
        h2 { "Measured" }
        div class="sheet" tabindex="0" { table {
            thead { tr { th { "what" } th { "median" } th { "range" } } }
            tbody { @for Measure { name, spread, .. } in measures {
                @let [median, low, high] = [|it: &Spread| it.median, |it: &Spread| it.low, |it: &Spread| it.high];
                tr {
                    th { (name) }
                    td class="figure" { (figure(spread.as_ref().map(median))) }
                    td class="figure" { (figure(spread.as_ref().map(low))) " .. " (figure(spread.as_ref().map(high))) }
                }
            } }
        } }
    }
}

fn claims(outcome: &Outcome) -> Markup {
    html! {
        h2 { "Claims" }
        p class="note" {
            "Quantitative: the median over all " (outcome.testbed.many()) " and seeds keeps the tolerance, and half of them "
            "or more do. Structural: holds on every " (outcome.testbed.one()) " with every seed. Not judged: a premise failed. "
            "Setting: restates what the runs were given."
        }
        div class="sheet" tabindex="0" { table {
            thead { tr { @for head in ["holds", "claim", "paper", "ours", "range", "runs"] { th { (head) } } } }
            tbody { @for row in &outcome.claims {
                @let class = match row.outcome { Verdict::Holds => "yes", Verdict::DoesNotHold => "no", _ => "" };
                @let mut notes = vec![format!("{} · {}", row.claim.id, row.claim.source)];
                @let () = notes.extend(row.note.iter().chain(&row.why).chain(&row.missing).cloned());
                tr {
                    th class=(class) { (row.outcome.word()) }
                    td class="text" {
                        (row.claim.text) br; span class="key" style="white-space:normal" { (lines(&notes)) }
                    }
                    td { (paper(row)) }
                    @for cell in [figure(row.ours), range(row), held(row)] { td class="figure" { (cell) } }
                }
            } }
        } }
    }
}

fn draw(figure: &Figure) -> Markup {
    let names: Vec<&str> = match &figure.chart {
        Shape::Curves { curves, .. } => curves.iter().map(|curve| curve.name.as_str()).collect(),
        Shape::Bars { bars, .. } => bars.iter().map(|bar| bar.name.as_str()).collect(),
    };
    let keys = names.iter().zip(CLASSES.iter().cycle());
    let keys: Vec<(String, &str)> = keys.map(|(name, class)| ((*name).to_owned(), *class)).collect();
    let description = format!("{}: {}", figure.title, names.join(", "));
    let svg = match &figure.chart {
        Shape::Bars { groups, bars } => bars::svg(&description, groups, bars, &CLASSES),
        Shape::Curves { .. } => curves(description, &figure.chart).svg(),
    };
    page::figure(&figure.title, &Markup::default(), &keys, &svg)
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
        let claims = Claims::parse(claim, "x").unwrap();
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
            "2000</text><text class=\"tick\" x=\"504\" y=\"221.0\">MHz</text>",
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
