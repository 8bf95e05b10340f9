//! Measures without a claim: comparison with a baseline that the paper did not have, and quantities that help to
//! explain the figures.

use super::plan::Part;
use super::setting::Film;
use crate::claims::Formula;
use crate::outcome::Measure;
use crate::samples::Replication;
use crate::stats::Spread;

const BD: &str = "wait=own, film=bd, ahead=1, cache=7";

/// The managements under which the interactive side is compared.
const INTERACTIVE_SIDES: [(&str, &str); 5] = [
    ("blocking", "flash"),
    ("blocking", "pcm"),
    ("fifo", "flash"),
    ("fifo", "pcm"),
    ("dual", "pcm"),
];

/// Share of the interactive jobs in the time in which the player does not compute. A player that keeps its rate
/// computes more in a second than a late one: that is its work, not a cost of how it is managed.
fn of_the_rest(approach: &str, medium: &str) -> String {
    let mean = |series| format!("mean({series}, approach={approach}, medium={medium}, {BD})");
    let interactive = mean("interactive");
    format!("{interactive} / (1 - {} + {interactive})", mean("utilisation"))
}

/// Computation of the interactive jobs while the film is shown: every run shows the same number of frames.
fn for_a_frame(approach: &str, medium: &str) -> String {
    let mean = |series| format!("mean({series}, approach={approach}, medium={medium}, {BD})");
    format!("{} * {}", mean("interactive"), mean("played"))
}

/// Names and formulas.
type Rows = Vec<(String, String)>;

fn row(name: &str, formula: String) -> (String, String) {
    (name.to_string(), formula)
}

/// Names and formulas of the measures of `part`.
fn rows(part: Part) -> Rows {
    match part {
        Part::Cache => cache_rows(),
        Part::Wait => wait_rows(),
        Part::Timeline => timeline_rows(),
        Part::Utilisation => utilisation_rows(),
    }
}

fn cache_rows() -> Rows {
    let mut rows = Vec::new();
    for (approach, medium) in [
        ("blocking", "flash"),
        ("fair", "flash"),
        ("fifo", "flash"),
        ("dual", "pcm"),
    ] {
        rows.push(row(
            &format!("missed by {approach} on {medium}, all cache sizes"),
            format!("mean(missed, approach={approach}, medium={medium}, wait=own, film=bd, ahead=1)"),
        ));
    }
    for cache in [1, 4, 7, 8] {
        rows.push(row(
            &format!("requests a frame, {cache} steps of cache"),
            format!("mean(requests, approach=blocking, medium=flash, wait=own, film=bd, ahead=1, cache={cache})"),
        ));
    }
    for (what, series) in [
        ("wait for a core a frame, switches included, of the period", "waited"),
        ("wait for flash a frame, of the period", "io"),
        ("time of the flash spent on garbage", "collecting"),
        ("write amplification", "amplification"),
    ] {
        rows.push(row(
            &format!("{what}, blocking"),
            format!("mean({series}, approach=blocking, medium=flash, {BD})"),
        ));
    }
    rows
}

fn wait_rows() -> Rows {
    let mut rows = Vec::new();
    for film in ["bd", "hd", "dvd"] {
        for wait in [20, 100] {
            rows.push(row(
                &format!("missed by blocking, {film}, wait of {wait} %"),
                format!("mean(missed, approach=blocking, film={film}, ahead=1, wait={wait})"),
            ));
        }
    }
    for wait in [20, 100] {
        rows.push(row(
            &format!("missed by blocking, bd, wait of {wait} %, read-ahead of 32 pages"),
            format!("mean(missed, approach=blocking, film=bd, ahead=32, wait={wait})"),
        ));
    }
    for wait in [20, 100] {
        rows.push(row(
            &format!("missed by dual, bd, wait of {wait} %"),
            format!("mean(missed, approach=dual, film=bd, ahead=1, wait={wait})"),
        ));
    }
    rows.push(row(
        "missed by blocking, bd, its own waits, read-ahead of 32 pages",
        "mean(missed, approach=blocking, film=bd, ahead=32, wait=own)".into(),
    ));
    rows
}

fn timeline_rows() -> Rows {
    [("blocking", "flash"), ("dual", "pcm")]
        .into_iter()
        .map(|(approach, medium)| {
            row(
                &format!("the latest frame, {approach}, of its period"),
                format!("max(completion, approach={approach}, medium={medium}, {BD})"),
            )
        })
        .collect()
}

fn utilisation_rows() -> Rows {
    let mut rows = Vec::new();
    for medium in ["pcm", "flash", "hdd"] {
        for approach in ["blocking", "fifo", "dual", "computed"] {
            for series in ["utilisation", "interactive", "polling", "missed"] {
                rows.push(row(
                    &format!("{series}, {approach} on {medium}"),
                    format!("mean({series}, approach={approach}, medium={medium}, {BD})"),
                ));
            }
        }
        for (what, series) in [
            ("core granted in so many of the seeds", "granted"),
            ("longest read rehearsed (ms)", "longest"),
            ("demanded for a frame, of the period", "demanded"),
        ] {
            rows.push(row(
                &format!("{what}, computed on {medium}"),
                format!("mean({series}, approach=computed, medium={medium}, {BD})"),
            ));
        }
    }
    for (approach, medium) in INTERACTIVE_SIDES {
        rows.push(row(
            &format!("interactive, of what the player leaves, {approach} on {medium}"),
            of_the_rest(approach, medium),
        ));
        rows.push(row(
            &format!("interactive time a frame, {approach} on {medium}, to fifo on flash"),
            format!("{} / ({})", for_a_frame(approach, medium), for_a_frame("fifo", "flash")),
        ));
    }
    rows
}

/// The values of a formula, one for each replication in which it can be evaluated.
pub fn over(replications: &[Replication], formula: &str) -> Vec<f64> {
    let parsed = Formula::parse(formula).ok();
    let evaluated = replications.iter().map(|one| parsed.as_ref()?.evaluate(&one.runs).ok());
    evaluated.flatten().collect()
}

/// The measures of `parts` over all replications; the claims are about `film`.
pub fn measures(parts: &[Part], film: Film, replications: &[Replication]) -> Vec<Measure> {
    let measure = |(name, formula): (String, String)| {
        let formula = film.named(&formula);
        Measure {
            name: film.named(&name),
            spread: Spread::of(&over(replications, &formula)),
            formula,
        }
    };
    parts.iter().flat_map(|part| rows(*part)).map(measure).collect()
}

#[cfg(test)]
mod tests {
    use super::super::plan::{PlannedRun, plan};
    use super::super::replicate::{FRAME_SERIES, RUN_SERIES};
    use super::*;

    #[test]
    fn every_measure_names_what_there_is() {
        let series: Vec<&str> = FRAME_SERIES.into_iter().chain(RUN_SERIES).collect();
        for part in Part::ALL {
            let labels: Vec<_> = plan(&[part], Film::Bd).iter().map(PlannedRun::labels).collect();
            for (name, formula) in rows(part) {
                let parsed = Formula::parse(&formula).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(parsed.check(&series, &labels), Ok(()), "{name}");
            }
        }
    }
}
