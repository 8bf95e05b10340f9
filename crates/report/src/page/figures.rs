//! Charts of the page: curves along a run.

use maud::{Markup, html};
use punctual_loop::ModeName;
use punctual_runtime::report::{RunHeader, Sample};

use super::chart::{Band, Chart, Curve, Level};
use super::figure;
use crate::curves::{ChartLevel, RunChart, charts};

/// Classes of curves, by their order in a chart.
const CLASSES: [&str; 4] = ["a", "b", "c", "d"];

/// Charts of a run with their captions, between two seconds of it; those without any value are left out.
pub fn figures(header: &RunHeader, samples: &[Sample], [begin_s, end_s]: [f64; 2]) -> Vec<Markup> {
    let samples = &samples[samples.partition_point(|sample| sample.t_s < begin_s)..];
    let mut all: Vec<Drawn> = { charts(header, samples.last()).into_iter() }
        .map(|chart| drawn(samples, chart))
        .collect();
    let late = samples.iter().filter(|sample| sample.misses > 0);
    all[0].2.marks = late.map(|sample| sample.t_s).collect();
    all.insert(all.len() - 1, ("Core load", None, cores(samples)));
    let known = |curve: &Curve| curve.points.iter().any(|(_, value)| value.is_some());
    let known = all.into_iter().filter(|(.., chart)| chart.curves.iter().any(known));
    let shown = known.map(|(title, badge, chart)| {
        let names: Vec<&str> = chart.curves.iter().map(|curve| curve.name.as_str()).collect();
        let chart = Chart {
            description: format!("{title} over time: {}", names.join(", ")),
            begin_s,
            length_s: end_s - begin_s,
            bands: bands(header.settle_s, samples),
            ..chart
        };
        let mut keys = chart.keys();
        keys.extend((!chart.marks.is_empty()).then(|| ("late jobs".to_owned(), "mark")));
        let badge = html! { @if let Some(badge) = badge {
            @let stand_in = if badge == "real" { "" } else { " stand-in" };
            span class={ "badge" (stand_in) } { (badge) }
        } };
        figure(title, &badge, &keys, &chart.svg())
    });
    shown.collect()
}

/// Title, badge and drawing of a chart.
type Drawn = (&'static str, Option<String>, Chart);

fn drawn(samples: &[Sample], shown: RunChart) -> Drawn {
    let curves = shown
        .figures
        .iter()
        .map(|figure| (figure.names[1].to_owned(), figure.of));
    let level = |ChartLevel {
                     names: [_, name],
                     class,
                     value,
                 }| Level { name, class, value };
    let chart = Chart {
        curves: curves_of(samples, curves),
        levels: shown.levels.into_iter().map(level).collect(),
        at_least: shown.at_least,
        unit: shown.unit,
        ..Chart::default()
    };
    (shown.title, shown.badge, chart)
}

/// A curve per core; for many cores, only the most and the least loaded.
fn cores(samples: &[Sample]) -> Chart {
    let cores = samples.iter().map(|sample| sample.busy.len()).max().unwrap_or(0);
    let percent = |busy: &f64| busy * 100.0;
    let curves = match cores > CLASSES.len() {
        true => {
            let of = |pick: fn(f64, f64) -> f64| move |it: &Sample| it.busy.iter().map(percent).reduce(pick);
            let named = [
                ("busiest core".to_owned(), of(f64::max)),
                ("idlest core".to_owned(), of(f64::min)),
            ];
            curves_of(samples, named)
        }
        false => {
            let busy = |core| move |it: &Sample| it.busy.get(core).map(percent);
            let of = |core| (format!("core {core}"), busy(core));
            curves_of(samples, (0..cores).map(of))
        }
    };
    Chart {
        curves,
        at_least: (0.0, 100.0),
        unit: " %",
        ..Chart::default()
    }
}

fn curves_of<F: Fn(&Sample) -> Option<f64>>(
    samples: &[Sample],
    figures: impl IntoIterator<Item = (String, F)>,
) -> Vec<Curve> {
    let curve = |((name, of), class): ((String, F), &&'static str)| Curve {
        name,
        class,
        points: samples.iter().map(|sample| (sample.t_s, of(sample))).collect(),
    };
    figures.into_iter().zip(&CLASSES).map(curve).collect()
}

/// Bands for the start-up, and for every stretch of fallback.
fn bands(settle_s: f64, samples: &[Sample]) -> Vec<Band> {
    let mut bands = vec![Band {
        class: "unsettled",
        from: 0.0,
        to: settle_s,
    }];
    let mut before = 0.0;
    for sample in samples {
        if sample.mode == ModeName::Fallback {
            match bands.last_mut() {
                Some(band) if band.class == "fallback" && band.to == before => band.to = sample.t_s,
                _ => bands.push(Band {
                    class: "fallback",
                    from: before,
                    to: sample.t_s,
                }),
            }
        }
        before = sample.t_s;
    }
    bands
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn fallback_is_shaded_where_it_was() {
        let mut report = fixture::report();
        for k in [50, 51, 90] {
            report.samples[k].mode = ModeName::Fallback;
        }
        let bands = bands(report.header.settle_s, &report.samples);
        assert_eq!(bands.len(), 3);
        assert!((bands[1].from - 10.0).abs() < 1e-9 && (bands[1].to - 10.4).abs() < 1e-9);
    }
}
