//! Charts of the evaluation: the paper's figures, with our variants.

use super::plan::{Approach, CACHES, Part, PlannedRun, Source, WAITS};
use super::setting::{FRAMES, Film, READ_AHEAD};
use crate::outcome::{Bars, Chart, Curve, Figure};
use crate::samples::{Replication, Run};
use crate::stats::{Spread, mean, median};

/// The charts of `parts`.
pub fn figures(parts: &[Part], film: Film, replications: &[Replication]) -> Vec<Figure> {
    let seen = &FilmRuns { film, replications };
    let figure = |part: &Part| {
        let (title, chart) = match part {
            Part::Cache => ("Fig. 3(a): share of frames that miss, by cache size", cache(seen)),
            Part::Wait => (
                "Fig. 3(b): share of frames that miss, by the wait in the ready queue",
                wait(seen),
            ),
            Part::Timeline => (
                "Fig. 4: when each frame is done, as a share of its period",
                timeline(seen),
            ),
            Part::Utilisation => ("Fig. 5: CPU utilisation, the player's medium varied", utilisation(seen)),
        };
        Figure {
            experiment: part.name().into(),
            title: title.into(),
            chart,
        }
    };
    parts.iter().map(figure).collect()
}

fn cache(seen: &FilmRuns) -> Chart {
    let curve = |approach: Approach| Curve {
        name: approach.name().into(),
        points: CACHES
            .map(|cache| {
                let run = PlannedRun {
                    cache,
                    ..PlannedRun::of(approach)
                };
                (f64::from(cache), of_median(seen, &run, "missed"))
            })
            .to_vec(),
    };
    let approaches = [Approach::Blocking, Approach::Fair, Approach::Fifo, Approach::Dual];
    Chart::Curves {
        x_unit: "steps of pages".into(),
        length: f64::from(CACHES[CACHES.len() - 1]),
        curves: approaches.map(curve).to_vec(),
        levels: Vec::new(),
        band: None,
    }
}

fn wait(seen: &FilmRuns) -> Chart {
    let curve = |name: String, run: PlannedRun| Curve {
        name: seen.film.named(&name),
        points: WAITS
            .map(|wait| {
                let run = PlannedRun {
                    wait: Some(wait),
                    ..run
                };
                (f64::from(wait), of_median(seen, &run, "missed"))
            })
            .to_vec(),
    };
    let blocking = PlannedRun::of(Approach::Blocking);
    let of_film = |film: Film| curve(format!("blocking, {}", film.name()), PlannedRun { film, ..blocking });
    let mut curves: Vec<Curve> = Film::ALL.map(of_film).to_vec();
    let ahead = PlannedRun {
        ahead: READ_AHEAD,
        ..blocking
    };
    curves.push(curve(format!("blocking, bd, read-ahead of {READ_AHEAD} pages"), ahead));
    curves.push(curve("dual, bd".into(), PlannedRun::of(Approach::Dual)));
    Chart::Curves {
        x_unit: "% of the quantum".into(),
        length: 100.0,
        curves,
        levels: Vec::new(),
        band: None,
    }
}

/// Completion of each frame, for the first seed.
fn timeline(seen: &FilmRuns) -> Chart {
    let curve = |approach: Approach| {
        let samples = seen
            .replications
            .first()
            .and_then(|one| seen.find(one, &PlannedRun::of(approach)));
        let samples = samples.and_then(|run| run.series.get("completion"));
        let points = samples.into_iter().flatten().enumerate();
        Curve {
            name: approach.name().into(),
            points: points.map(|(k, value)| ((k + 1) as f64, *value)).collect(),
        }
    };
    Chart::Curves {
        x_unit: "frames".into(),
        length: FRAMES as f64,
        curves: [Approach::Blocking, Approach::Dual].map(curve).to_vec(),
        levels: vec![("deadline".into(), 1.0)],
        band: None,
    }
}

fn utilisation(seen: &FilmRuns) -> Chart {
    let bars = |approach: Approach| Bars {
        name: approach.name().into(),
        values: Source::ALL
            .map(|source| {
                let run = PlannedRun {
                    source,
                    ..PlannedRun::of(approach)
                };
                Spread::of(&means(seen, &run, "utilisation"))
            })
            .to_vec(),
    };
    Chart::Bars {
        groups: Source::ALL.map(|source| source.name().into()).to_vec(),
        bars: [Approach::Blocking, Approach::Dual, Approach::Computed]
            .map(bars)
            .to_vec(),
    }
}

/// The film that the claims are about, and the replications.
struct FilmRuns<'r> {
    film: Film,
    replications: &'r [Replication],
}

impl<'r> FilmRuns<'r> {
    /// The run that takes the place of `planned` when the claims are about `film`.
    fn find(&self, replication: &'r Replication, planned: &PlannedRun) -> Option<&'r Run> {
        let labels = planned.about(self.film).labels();
        replication.runs.iter().find(|run| run.labels == labels)
    }
}

fn means(seen: &FilmRuns, planned: &PlannedRun, series: &str) -> Vec<f64> {
    let runs = seen.replications.iter().filter_map(|one| seen.find(one, planned));
    runs.filter_map(|run| mean(run.window(series, 0, usize::MAX))).collect()
}

fn of_median(seen: &FilmRuns, planned: &PlannedRun, series: &str) -> Option<f64> {
    median(&means(seen, planned, series))
}
