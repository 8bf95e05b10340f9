//! The result of a simulation as one HTML page, with the message chart of a failing seed.

use std::fmt::Write;

use punctual_cluster_sim::{ClusterSettings, Plant};

use super::drawing::drawing;
use super::{Failed, Sum, rows, settings, verdict};
use punctual_report::page::{escape, framed, sheet};
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
    let mut body = format!(
        "<p class=\"verdict{good}\">{}</p>\n",
        escape(&verdict(sum, first, plant, failed))
    );
    if let Some(failed) = failed {
        let _ = writeln!(body, "<p class=\"why\">{}</p>", escape(&failed.violation.what));
    }
    let tiles = [
        (count(sum.seeds), "seeds"),
        (count(sum.faults.values().sum()), "faults"),
        (count(sum.requests.values().sum()), "requests"),
        (count(sum.takeovers), "takeovers"),
        (sum.longest_without_master.to_string(), "without a master at most"),
    ];
    body += "<div class=\"tiles\">\n";
    for (figure, what) in tiles {
        let _ = writeln!(body, "<div class=\"tile\"><b>{figure}</b><span>{what}</span></div>");
    }
    body += "</div>\n";
    if let Some(failed) = failed {
        let _ = writeln!(body, "<h2>What led to it</h2>\n{}", drawing(&failed.trace));
    }
    let pair = |(name, value): (&str, String)| vec![name.to_owned(), value];
    body += "<h2>Figures</h2>\n";
    let head = std::iter::once(vec!["figure".to_owned(), "value".to_owned()]);
    sheet(&mut body, &head.chain(rows(sum).map(pair)).collect::<Vec<_>>());
    body += "<h2>Settings</h2>\n";
    let head = std::iter::once(vec!["setting".to_owned(), "value".to_owned()]);
    let document = settings::document(settings);
    let entries = document.as_object().into_iter().flatten();
    let values = entries.map(|(key, value)| vec![key.clone(), value.to_string()]);
    sheet(&mut body, &head.chain(values).collect::<Vec<_>>());
    let head = "<b>federation</b> · <span class=\"badge stand-in\">simulated</span>";
    framed("federation", head, &body, command)
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
