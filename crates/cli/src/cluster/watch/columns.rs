//! Figures of watched nodes, each described once, for lines, the live view, the page and JSON.

use punctual_node::figures::help;
use punctual_report::summary::count;

use super::look::{Look, WHY};
use super::past::Moment;

const SKIPPED: &str = "Skipped are readings that a newer one superseded on the way";

/// A figure of a node at present.
pub struct WatchColumn(
    /// Name in lines and in the heads of tables.
    pub &'static str,
    /// Width in the live view, and the narrowest terminal that shows it if all names are as short as a node's; `None`:
    /// neither there nor in lines.
    pub Option<(u16, u16)>,
    /// Whether it is on the page.
    pub bool,
    /// Whether a balancer reports this figure, too.
    pub bool,
    /// Explanation for the page; empty where the name says it all.
    pub &'static str,
    /// The value as text.
    pub fn(&Look, &Moment) -> String,
);

/// All figures at present, in the order in which they are shown.
#[rustfmt::skip] // a figure a line
pub static COLUMNS: [WatchColumn; 15] = [
    WatchColumn("standing", Some((9, 0)), true, false, "", |look, _| look.word("standing").into()),
    WatchColumn("epoch", Some((5, 0)), true, false, help::EPOCH, |look, _| look.word("epoch").into()),
    WatchColumn("applied", Some((8, 0)), true, false, help::APPLIED, |look, _| count(look.count("applied"))),
    WatchColumn("lag", Some((4, 0)), true, false, help::LAG, |look, _| count(look.count("lag_entries"))),
    WatchColumn("d", Some((7, 0)), true, false, help::BOUND, |look, _| bound(look.bound())),
    WatchColumn("waits", Some((5, 91)), false, true, "", |look, _| count(look.waiting())),
    WatchColumn("done/s", Some((7, 0)), false, true, "", |_, now| count(now.done.round() as u64)),
    WatchColumn("late/s", Some((7, 0)), false, true, "", |_, now| count(now.late.round() as u64)),
    WatchColumn("done", None, true, true, "", |look, _| count(look.requests("done"))),
    WatchColumn("not done", None, true, true, "", |look, _| why(look, "0")),
    WatchColumn("readings/s", Some((10, 102)), false, false, "", |_, now| count(now.readings.round() as u64)),
    WatchColumn("readings set, taken, skipped", None, true, false, SKIPPED, |look, _| readings(look)),
    WatchColumn("oldest", Some((8, 79)), true, false, help::OLDEST, |look, _| oldest(look.number("age_ms_max"))),
    WatchColumn("tasks late", Some((10, 113)), false, false, "", |look, _| tasks_late(look)),
    WatchColumn("peers", Some((5, 85)), false, false, "", |look, _| live(look)),
];

impl WatchColumn {
    /// Text for a node or a balancer.
    pub fn cell(&self, look: &Look, now: &Moment) -> String {
        match self.3 || !look.is_balancer() {
            true => (self.5)(look, now),
            false => "-".into(),
        }
    }
}

/// A figure of a node along the watch.
pub struct WatchCurve(
    /// Key in JSON.
    pub &'static str,
    /// Title of its chart, what that shows, unit of its labels, and its part of the value; `None` without a chart.
    pub Option<(&'static str, &'static str, &'static str, f64)>,
    /// Whether balancers have it.
    pub bool,
    /// The value; `None` where there is none.
    pub fn(&Moment) -> Option<f64>,
);

/// All figures along the watch.
#[rustfmt::skip] // a figure a line
pub static CURVES: [WatchCurve; 6] = [
    WatchCurve("done_per_s", Some(("Done", "requests a second", "", 1.0)), true, |now| Some(now.done)),
    WatchCurve("late_per_s", Some(("Late or unknown", "requests a second", "", 1.0)), true, |now| Some(now.late)),
    WatchCurve("lag_entries", Some(("Lag", "entries of the log", "", 1.0)), false, |now| Some(now.lag)),
    WatchCurve("bound_items", None, false, |now| now.bound),
    WatchCurve("readings_per_s", Some(("Readings", "set and taken, a second", "", 1.0)), false, |now| Some(now.readings)),
    WatchCurve("oldest_reading_ms", Some(("Oldest reading", "age at most", " s", 1e-3)), false, |now| now.age_ms),
];

/// Age of the oldest reading in milliseconds, as text.
pub fn oldest(ms: Option<u64>) -> String {
    match ms {
        None => "-".into(),
        Some(ms @ ..10_000) => format!("{} ms", count(ms)),
        Some(ms) => format!("{:.1} s", ms as f64 / 1e3),
    }
}

fn bound(bound: f64) -> String {
    match bound {
        bound if bound.is_finite() && bound < 1e9 => count(bound as u64),
        _ => "open".into(),
    }
}

/// Numbers of requests not done, by reason; `none` without any.
pub fn why(look: &Look, none: &str) -> String {
    let reasons = WHY.iter().zip(look.not_done()).filter(|(_, number)| *number > 0);
    let reasons = reasons.map(|((_, why), number)| format!("{why} {}", count(number)));
    match reasons.collect::<Vec<_>>().join(", ") {
        reasons if reasons.is_empty() => none.into(),
        reasons => reasons,
    }
}

fn readings(look: &Look) -> String {
    let [taken, skipped] = ["readings_taken", "readings_skipped"].map(|name| look.of_peers(name));
    [look.count("readings_set"), taken, skipped].map(count).join(", ")
}

fn tasks_late(look: &Look) -> String {
    look.jobs().map_or("-".into(), |(_, late)| count(late))
}

fn live(look: &Look) -> String {
    let (live, all) = look.live();
    format!("{live}/{all}")
}
