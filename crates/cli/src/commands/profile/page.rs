//! Page of a program's profile: rate and misses along a run, phases, and their error.

use maud::{Markup, html};
use punctual_allocation::Share;
use punctual_allocation::cluster::Candidate;
use punctual_allocation::profile::ProfileRecording;

use punctual_report::page::chart::{Band, CLASSES, Chart, Curve};
use punctual_report::page::{again, document, figure, table};

use super::{ProfileView, Steps, named, ways};

/// Page of `shown`; `command` is the command line that produced it.
pub fn profile(shown: &ProfileView, command: &str) -> String {
    let name = shown.recording.name();
    let head = html! {
        b { (name) } " · "
        @match &shown.recording {
            ProfileRecording::Measured(_) => span class="badge" { "measured" },
            ProfileRecording::Windows(_) => span class="badge stand-in" { "traced, timed by a model" },
        }
    };
    let rates = shown.shares.iter().map(|share| (named(*share), shown.rate(*share)));
    let kept = { shown.shares.iter() }.map(|share| (named(*share), shown.phase_rate(*share)));
    let misses = shown.misses().into_iter().map(|(of, steps)| (ways(of), steps));
    let durations = shown.durations().into_iter();
    let durations = durations.map(|(share, seconds, _)| (named(share), format!("{seconds:.3} s")));
    let figures = shown.figures().into_iter().map(|(name, what)| (name.to_owned(), what));
    let body = html! {
        p class="note" { (shown.title()) }
        @for line in shown.provenance() { p class="note" { (line) } }
        h2 { "Along a run" }
        div class="charts" {
            (steps("Rate, million instructions per second", rates, Vec::new()))
            (steps("The same of the phases that are kept", kept, bands(shown)))
            (steps("Misses per 1000 instructions", misses, bands(shown)))
        }
        p class="note" { "Shaded and not: phases, in turn; they are the same for all shares." }
        h2 { "A whole run" }
        div class="charts" { (times(shown)) (indices(shown)) }
        h2 { "Figures" }
        (table(figures.chain(durations)))
        (again("Show it again", command))
        p class="note" { "punctual " (env!("CARGO_PKG_VERSION")) }
    };
    document(name, &head, &body)
}

/// A chart of curves over percent of a run; empty without curves.
fn steps(title: &str, curves: impl Iterator<Item = (String, Steps)>, bands: Vec<Band>) -> Markup {
    let curves: Vec<Line> = curves.map(|(name, steps)| (name, steps.corners())).collect();
    match curves.is_empty() {
        true => Markup::default(),
        false => draw(title, curves, bands, 100.0, "%"),
    }
}

/// Alternate phases, which are shaded.
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
fn times(shown: &ProfileView) -> Markup {
    let number = |share: &Share| f64::from(share.ways.max(share.partitions));
    let durations = shown.durations();
    let points = durations
        .iter()
        .map(|(share, _, part)| (number(share), Some(100.0 * part)));
    let curves = vec![("of the longest, percent".to_string(), points.collect())];
    let most = durations.last().map_or(1.0, |(share, ..)| number(share));
    let title = "Time, by the number of ways and of partitions";
    draw(title, curves, Vec::new(), most, "of each")
}

/// Curves of both cluster indices over the number of kinds, each as a share of its largest value.
fn indices(shown: &ProfileView) -> Markup {
    let Some(kinds) = &shown.compiled.kinds else {
        return Markup::default();
    };
    let candidates = &kinds.choice.candidates;
    let curve = |name: &str, of: fn(&Candidate) -> f64| {
        let finite = candidates.iter().map(of).filter(|value| value.is_finite());
        let most = finite.fold(0.0, f64::max);
        let point = |candidate: &Candidate| (candidate.kinds as f64, Some(100.0 * of(candidate) / most));
        (name.to_string(), candidates.iter().map(point).collect())
    };
    let curves = vec![
        curve("Davies-Bouldin (lower is better)", |it| it.davies_bouldin),
        curve("Calinski-Harabasz (higher is better)", |it| it.calinski_harabasz),
    ];
    let most = candidates.last().map_or(1.0, |candidate| candidate.kinds as f64);
    let title = format!(
        "Indices by the number of kinds, percent of their largest; {} were taken",
        kinds.choice.best().kinds
    );
    draw(&title, curves, Vec::new(), most, "")
}

type Line = (String, Vec<(f64, Option<f64>)>);

fn draw(title: &str, curves: Vec<Line>, bands: Vec<Band>, length_s: f64, unit: &str) -> Markup {
    let names: Vec<&str> = curves.iter().map(|(name, _)| name.as_str()).collect();
    let description = format!("{title}: {}", names.join(", "));
    let curves = curves.into_iter().zip(CLASSES);
    let curves = curves.map(|((name, points), class)| Curve { name, class, points });
    let chart = Chart {
        description,
        curves: curves.collect(),
        bands,
        length_s,
        x_unit: Some(unit.to_string()),
        ..Chart::default()
    };
    figure(title, &Markup::default(), &chart.keys(), &chart.svg())
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
