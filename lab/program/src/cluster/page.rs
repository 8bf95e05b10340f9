//! The result of a simulation as one HTML page, with the message chart of a failing seed.

use maud::html;
use punctual_cluster_sim::{ClusterSettings, Plant};

use super::drawing::drawing;
use super::{Failed, Sum, rows, settings, verdict};
use punctual_report::page::{framed, sheet, tiles};
use punctual_report::summary::count;

/// The page; `command` is the command line that produced it.
pub fn page(
    settings: &ClusterSettings,
    sum: &Sum,
    first: u64,
    plant: Option<Plant>,
    failed: Option<&Failed>,
    command: &str,
) -> String {
    let good = if failed.is_none() { " good" } else { "" };
    let sums = [
        (count(sum.seeds), "seeds"),
        (count(sum.faults.values().sum()), "faults"),
        (count(sum.requests.values().sum()), "requests"),
        (count(sum.takeovers), "takeovers"),
        (sum.longest_without_master.to_string(), "without a master at most"),
    ];
    let document = settings::document(settings);
    let entries = document.as_object().into_iter().flatten();
    let values = entries.map(|(key, value)| [key.clone(), value.to_string()]);
    let figures = rows(sum).map(|(name, value)| [name.to_owned(), value]);
    let table = |name: &str, rows: &mut dyn Iterator<Item = [String; 2]>| {
        let head = [name, "value"].map(str::to_owned);
        sheet(&{ [head].into_iter() }.chain(rows).map(Vec::from).collect::<Vec<_>>())
    };
    let body = html! {
        p class={ "verdict" (good) } { (verdict(sum, first, plant, failed)) }
        @if let Some(failed) = failed { p class="why" { (failed.violation.what) } }
        (tiles(&sums))
        @if let Some(failed) = failed { h2 { "What led to it" } (drawing(&failed.trace)) }
        h2 { "Figures" }
        (table("figure", &mut figures.into_iter()))
        h2 { "Settings" }
        (table("setting", &mut { values }))
    };
    let head = html! { b { "federation" } " · " span class="badge stand-in" { "simulated" } };
    framed("federation", &head, &body, command)
}

#[cfg(test)]
mod tests {
    use punctual_cluster_sim::{EventTrace, Mark, Violation};
    use punctual_units::Time;

    use super::*;

    #[test]
    fn the_page_is_whole_with_and_without_a_failure() {
        let sum = Sum {
            seeds: 1_000,
            faults: [("crash", 2)].into(),
            ..Sum::default()
        };
        let mut trace = EventTrace::new(vec!["node 0".into()]);
        trace.noted(Time(5), 0, Mark::Violation, "read <nothing>");
        let failed = Failed {
            seed: 17,
            violation: Violation {
                at: Time(5),
                what: "read <nothing>".into(),
            },
            trace,
        };
        let plant = Some(Plant::NoFence);
        for failed in [None, Some(&failed)] {
            let page = page(
                &ClusterSettings::default(),
                &sum,
                1,
                plant,
                failed,
                "punctual-lab cluster sim",
            );
            punctual_report::fixture::check_nesting(&page);
            assert!(page.contains("simulated") && page.contains("crash 2"));
            assert_eq!(page.contains("<svg"), failed.is_some());
            assert_eq!(
                page.contains("Seed 17 breaks a promise, with no-fence planted"),
                failed.is_some()
            );
        }
    }
}
