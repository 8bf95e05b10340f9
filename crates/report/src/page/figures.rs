//! Figures of the page: curves along a run.

use punctual_loop::ModeName;
use punctual_platform::KnobId;
use punctual_runtime::report::{RunReport, Sample};
use punctual_workload::TaskGoal;

use super::chart::{Band, Chart, Curve, Level};
use crate::summary::provenance;

/// Classes of curves, by their order in a chart.
const CLASSES: [&str; 4] = ["a", "b", "c", "d"];

/// A chart with its caption.
pub struct CaptionedChart {
    /// Title in the caption.
    pub title: &'static str,
    /// Provenance, such as simulated or no knob; `None` if it needs no mention.
    pub badge: Option<String>,
    /// Chart with its curves.
    pub chart: Chart,
}

/// Figures of `report`; those without any value are left out.
pub fn figures(report: &RunReport) -> Vec<CaptionedChart> {
    let mut figures = vec![
        tardiness(report),
        shares(report),
        drr(report),
        clock(report),
        cores(report),
        own_time(report),
    ];
    let known = |curve: &Curve| curve.points.iter().any(|(_, value)| value.is_some());
    figures.retain(|figure| figure.chart.curves.iter().any(known));
    let length_s = report.samples.last().map_or(0.0, |last| last.t_s);
    for CaptionedChart { title, chart, .. } in &mut figures {
        let names: Vec<&str> = chart.curves.iter().map(|curve| curve.name.as_str()).collect();
        chart.description = format!("{title} over time: {}", names.join(", "));
        chart.length_s = length_s;
        chart.bands = bands(report);
    }
    figures
}

fn tardiness(report: &RunReport) -> CaptionedChart {
    let samples = &report.samples;
    let goal = match report.header.goal.tasks {
        TaskGoal::Tardiness(goal) => Some(level(&format!("goal {goal:.2}"), "goal", goal)),
        TaskGoal::Late(_) => None,
    };
    let late = samples.iter().filter(|sample| sample.misses > 0);
    let chart = Chart {
        curves: curves(samples, &[("response time / deadline", &|sample| sample.tardiness)]),
        levels: std::iter::once(level("deadline", "late", 1.0)).chain(goal).collect(),
        marks: late.map(|sample| sample.t_s).collect(),
        at_least: (0.5, 1.2),
        ..Chart::default()
    };
    CaptionedChart {
        title: "Tardiness",
        badge: None,
        chart,
    }
}

fn shares(report: &RunReport) -> CaptionedChart {
    let minimum = report.header.goal.min_fresh.get() * 100.0;
    let picks: [(&str, Pick); 2] = [
        ("updates admitted", &|sample| Some(sample.admitted_share * 100.0)),
        ("data fresh", &|sample| Some(sample.fresh_share * 100.0)),
    ];
    let chart = Chart {
        curves: curves(&report.samples, &picks),
        levels: vec![level(&format!("minimum {minimum:.0} %"), "goal", minimum)],
        at_least: (0.0, 100.0),
        unit: " %",
        ..Chart::default()
    };
    let badge = provenance(report, KnobId::AdmittedShare).filter(|provenance| provenance != "real");
    CaptionedChart {
        title: "Admitted and fresh",
        badge,
        chart,
    }
}

fn drr(report: &RunReport) -> CaptionedChart {
    let goal = report.header.goal.drr;
    let chart = Chart {
        curves: curves(
            &report.samples,
            &[("time in the store / response time", &|sample| sample.drr)],
        ),
        levels: vec![level(&format!("goal {goal:.2}"), "goal", goal)],
        at_least: ((goal - 0.2).max(0.0), (goal + 0.2).min(1.0)),
        ..Chart::default()
    };
    CaptionedChart {
        title: "Data response ratio",
        badge: None,
        chart,
    }
}

fn clock(report: &RunReport) -> CaptionedChart {
    let top = report.header.load.top_clock.as_mhz_f64();
    let chart = Chart {
        curves: curves(
            &report.samples,
            &[("MHz", &|sample| sample.clock_hz.map(|hz| hz as f64 * 1e-6))],
        ),
        at_least: (0.5 * top, top),
        ..Chart::default()
    };
    let badge = provenance(report, KnobId::CLOCK).unwrap_or("no knob".into());
    CaptionedChart {
        title: "Clock",
        badge: Some(badge),
        chart,
    }
}

fn cores(report: &RunReport) -> CaptionedChart {
    let chart = Chart {
        curves: core_load(&report.samples),
        at_least: (0.0, 100.0),
        unit: " %",
        ..Chart::default()
    };
    CaptionedChart {
        title: "Core load",
        badge: None,
        chart,
    }
}

fn own_time(report: &RunReport) -> CaptionedChart {
    let picks: [(&str, Pick); 2] = [
        ("deciding, us", &|sample| sample.decision_us),
        ("turning knobs, us", &|sample| sample.actuation_us),
    ];
    let chart = Chart {
        curves: curves(&report.samples, &picks),
        at_least: (0.0, 10.0),
        ..Chart::default()
    };
    CaptionedChart {
        title: "The loop's own time",
        badge: None,
        chart,
    }
}

fn level(name: &str, class: &'static str, value: f64) -> Level {
    Level {
        name: name.into(),
        class,
        value,
    }
}

/// Function that picks one figure of a sample.
type Pick<'f> = &'f dyn Fn(&Sample) -> Option<f64>;

fn curves(samples: &[Sample], figures: &[(&str, Pick<'_>)]) -> Vec<Curve> {
    let curve = |((name, figure), class): (&(&str, Pick<'_>), &&'static str)| Curve {
        name: (*name).into(),
        class,
        points: samples.iter().map(|sample| (sample.t_s, figure(sample))).collect(),
    };
    figures.iter().zip(&CLASSES).map(curve).collect()
}

/// A curve per core; for many cores, only the most and the least loaded.
fn core_load(samples: &[Sample]) -> Vec<Curve> {
    let cores = samples.iter().map(|sample| sample.busy.len()).max().unwrap_or(0);
    if cores > CLASSES.len() {
        let of = |pick: fn(f64, f64) -> f64| {
            move |sample: &Sample| sample.busy.iter().copied().reduce(pick).map(|busy| busy * 100.0)
        };
        return curves(
            samples,
            &[("busiest core", &of(f64::max)), ("idlest core", &of(f64::min))],
        );
    }
    (0..cores)
        .flat_map(|core| {
            let busy = move |sample: &Sample| sample.busy.get(core).map(|busy| busy * 100.0);
            let mut curve = curves(samples, &[(&format!("core {core}"), &busy)]);
            curve.iter_mut().for_each(|curve| curve.class = CLASSES[core]);
            curve
        })
        .collect()
}

/// Bands for the start-up, and for every stretch of fallback.
fn bands(report: &RunReport) -> Vec<Band> {
    let mut bands = vec![Band {
        class: "unsettled",
        from: 0.0,
        to: report.header.settle_s,
    }];
    let mut before = 0.0;
    for sample in &report.samples {
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
        let bands = bands(&report);
        assert_eq!(bands.len(), 3);
        assert!((bands[1].from - 10.0).abs() < 1e-9 && (bands[1].to - 10.4).abs() < 1e-9);
    }
}
