//! Programs alone, with few and with many partitions (Figs. 1 and 2).

use std::collections::BTreeMap;

use punctual_allocation::Share;

use super::profiles::RunSet;
use crate::samples::{Labels, Run, labels as of};

/// Columns of these runs.
pub const SERIES: [&str; 6] = ["runtime", "phases", "instructions", "few", "many", "gain"];

/// Programs that claims are about, on whichever set of profiles has them.
const PROGRAMS: [&str; 5] = ["fft", "canneal", "freqmine", "fluidanimate", "ocean"];

/// Partitions of both resources, few and many (section III-C).
const FEW: u8 = 2;
const MANY: u8 = 18;

/// Number of places of a run at which its rate is sampled.
const PLACES: usize = 100;

/// Labels of all runs that may exist.
pub fn labels() -> Vec<Labels> {
    let of_program = |program: &&str| {
        let both = (1..=20).map(|partitions| partitions_labels(program, partitions));
        both.chain([progress_labels(program)]).collect::<Vec<_>>()
    };
    PROGRAMS.iter().flat_map(of_program).collect()
}

fn partitions_labels(program: &str, partitions: u8) -> Labels {
    of([
        ("part", "partitions"),
        ("program", program),
        ("partitions", &partitions.to_string()),
    ])
}

fn progress_labels(program: &str) -> Labels {
    of([("part", "progress"), ("program", program)])
}

fn on(prepared: &RunSet, mut labels: Labels) -> Labels {
    labels.insert("profiles".into(), prepared.name.clone());
    labels
}

/// Runs each program with 1 to 20 partitions of both resources, and samples its rate with few and with many.
pub fn runs(prepared: &RunSet) -> Vec<Run> {
    let mut runs = Vec::new();
    for (program, phases) in prepared.programs.iter().zip(&prepared.phases_found) {
        let profile = program.profile();
        let both = |partitions| Share {
            ways: partitions,
            partitions,
        };
        for partitions in 1..=profile.grid.ways.min(profile.grid.partitions) {
            let values = [
                ("runtime", profile.duration(both(partitions))),
                ("phases", *phases as f64),
                ("instructions", profile.instructions),
            ];
            runs.push(Run {
                labels: on(prepared, partitions_labels(&profile.name, partitions)),
                settled_from: 0,
                series: values.map(|(name, value)| (name.to_string(), vec![Some(value)])).into(),
            });
        }
        let rate = |place: usize, partitions| {
            let progress = (place as f64 + 0.5) / PLACES as f64;
            program.rate(profile.phase_at(progress), both(partitions))
        };
        let column = |value: &dyn Fn(usize) -> f64| (0..PLACES).map(|place| Some(value(place))).collect();
        let series = BTreeMap::from([
            ("few".to_string(), column(&|place| rate(place, FEW))),
            ("many".to_string(), column(&|place| rate(place, MANY))),
            (
                "gain".to_string(),
                column(&|place| rate(place, MANY) / rate(place, FEW)),
            ),
        ]);
        runs.push(Run {
            labels: on(prepared, progress_labels(&profile.name)),
            settled_from: 0,
            series,
        });
    }
    runs
}
