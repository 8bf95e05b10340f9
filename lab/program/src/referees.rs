//! The results of the referees, as a table.

use std::fmt::Write;

use punctual_evaluation::referees::{Histogram, Referee, RefereeRun};

use punctual_report::columns::columns;

/// The whole report, for a terminal.
pub fn told(runs: &[RefereeRun], absent: &[String]) -> String {
    let mut text = columns(&table(runs));
    if let Some(obtained) = protection(runs) {
        let _ = writeln!(text, "\ninside: {obtained}");
    }
    text.push_str("outside: the same core, priority and hogs, no thread moved\n");
    if runs.iter().any(|run| run.referee == Referee::Oslat) {
        let _ = writeln!(text, "{THROTTLED}");
    }
    for absent in absent {
        let _ = writeln!(text, "not heard: {absent}");
    }
    text
}

/// A caveat about the results of `oslat`.
pub const THROTTLED: &str =
    "oslat never sleeps: where real-time threads are throttled, its longest gap is that, on both sides";

/// The protection obtained by the first run inside of one.
pub fn protection(runs: &[RefereeRun]) -> Option<&str> {
    runs.iter().find_map(|run| run.protection.as_deref())
}

/// A row of column names, and a row for each run: outside before inside, so that the two can be compared.
pub fn table(runs: &[RefereeRun]) -> Vec<Vec<String>> {
    let head = ["", "repetition", "min", "average", "p99", "max", "late", "least slack"];
    let mut rows = vec![head.map(String::from).to_vec()];
    for (referee, protected) in sides() {
        rows.extend(of(runs, referee, protected).map(row));
    }
    rows
}

/// All pairs of a referee and a side, outside before inside.
pub fn sides() -> impl Iterator<Item = (Referee, bool)> {
    let both = |referee| [(referee, false), (referee, true)];
    Referee::ALL.into_iter().flat_map(both)
}

/// The runs of one side.
pub fn of(runs: &[RefereeRun], referee: Referee, protected: bool) -> impl Iterator<Item = &RefereeRun> {
    let wanted = move |run: &&RefereeRun| run.referee == referee && run.protected == protected;
    runs.iter().filter(wanted)
}

/// The histogram of one side over all its repetitions, and its longest time in microseconds.
pub fn together(runs: &[RefereeRun], referee: Referee, protected: bool) -> (Histogram, f64) {
    let side = || of(runs, referee, protected);
    let max = side().map(|run| run.verdict.max_us).fold(0.0, f64::max);
    (Histogram::merged(side().map(|run| &run.verdict.histogram)), max)
}

fn row(run: &RefereeRun) -> Vec<String> {
    let us = |figure: f64| format!("{figure:.0} us");
    let verdict = &run.verdict;
    let loops = verdict.loops;
    vec![
        format!("{} {}", run.referee.program(), side(run.protected)),
        (run.repetition + 1).to_string(),
        us(verdict.min_us),
        us(verdict.average_us),
        verdict.p99_us.map_or_else(|| beyond(&verdict.histogram), us),
        us(verdict.max_us),
        loops.map_or("-".into(), |loops| format!("{} of {}", loops.late, loops.all)),
        loops.map_or("-".into(), |loops| us(loops.slack_min_us)),
    ]
}

/// Text for a quantile beyond the histogram: more than its last bin, or unknown.
fn beyond(histogram: &Histogram) -> String {
    let last = histogram.bins.last().filter(|_| histogram.beyond > 0);
    last.map_or("-".into(), |(last, _)| format!("> {last:.0} us"))
}

pub const fn side(protected: bool) -> &'static str {
    if protected { "inside" } else { "outside" }
}

#[cfg(test)]
pub(crate) mod tests {
    use punctual_evaluation::referees::{Latencies, Loops};

    use super::*;

    /// A run that saw 3 us, and `max_us` once.
    pub(crate) fn run(referee: Referee, protected: bool, max_us: f64) -> RefereeRun {
        RefereeRun {
            referee,
            repetition: 0,
            protected,
            verdict: Latencies {
                min_us: 3.0,
                average_us: 10.0,
                p99_us: None,
                max_us,
                loops: (referee == Referee::RtApp).then_some(Loops {
                    all: 120,
                    late: 7,
                    slack_min_us: -26_012.0,
                }),
                histogram: Histogram {
                    bins: vec![(3.0, 99)],
                    beyond: 1,
                },
            },
            protection: protected.then(|| "core 1 kept by <us>".into()),
        }
    }

    #[test]
    fn outside_and_inside_stand_under_each_other_and_absent_tools_are_named() {
        let runs = [
            run(Referee::RtApp, true, 90.0),
            run(Referee::RtApp, false, 900.0),
            run(Referee::Oslat, true, 5.0),
        ];
        let text = told(&runs, &["running cyclictest: not found; install rt-tests".into()]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[1].starts_with("oslat inside") && lines[1].ends_with('-'),
            "{text}"
        );
        assert!(
            lines[2].starts_with("rt-app outside") && lines[2].contains("900 us") && lines[2].contains("7 of 120"),
            "{text}"
        );
        assert!(
            lines[3].starts_with("rt-app inside") && lines[3].ends_with("-26012 us"),
            "{text}"
        );
        let p99 = lines[1].split("  ").any(|cell| cell.trim() == "> 3 us");
        assert!(p99, "beyond the histogram, not unknown: {text}");
        assert!(text.contains("inside: core 1 kept") && text.contains("not heard: running cyclictest"));
        assert_eq!(together(&runs, Referee::RtApp, false).1, 900.0);
        assert_eq!(together(&runs, Referee::Cyclictest, false), (Histogram::default(), 0.0));
    }
}
