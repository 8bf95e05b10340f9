//! Figures of watched nodes, each described once, for lines, the live view, the page and JSON.

use punctual_node::figures::help;
use punctual_report::summary::count;

use super::look::{Look, WHY};
use super::past::{Moment, Node};

const SKIPPED: &str = "Skipped are readings that a newer one superseded on the way";

/// A figure of a node at present.
pub struct WatchColumn {
    /// Name in lines and in the heads of tables.
    pub title: &'static str,
    /// Width in the live view, and the narrowest terminal that shows it if all names are as short as a node's; `None`:
    /// neither there nor in lines.
    pub live: Option<(u16, u16)>,
    /// Explanation for the page, empty where the name says it all; `None`: not on the page.
    pub page: Option<&'static str>,
    /// Whether a balancer reports this figure, too.
    is_of_balancers: bool,
    /// The value as text.
    pub value: fn(&Look, &Moment) -> String,
}

const BALANCERS: bool = true;
const NODES: bool = false;

/// All figures at present, in the order in which they are shown.
#[rustfmt::skip] // a figure a line
pub static COLUMNS: [WatchColumn; 15] = {
    type Live = Option<(u16, u16)>;
    type Page = Option<&'static str>;
    type Cell = fn(&Look, &Moment) -> String;
    const fn column(title: &'static str, live: Live, page: Page, is_of_balancers: bool, value: Cell) -> WatchColumn {
        WatchColumn { title, live, page, is_of_balancers, value }
    }
    [
        column("standing", Some((9, 0)), Some(""), NODES, |look, _| look.word("standing").into()),
        column("epoch", Some((5, 0)), Some(help::EPOCH), NODES, |look, _| look.word("epoch").into()),
        column("applied", Some((8, 0)), Some(help::APPLIED), NODES, |look, _| count(look.count("applied"))),
        column("lag", Some((4, 0)), Some(help::LAG), NODES, |look, _| count(look.count("lag_entries"))),
        column("d", Some((7, 0)), Some(help::BOUND), NODES, |look, _| bound(look.bound())),
        column("waits", Some((5, 91)), None, BALANCERS, |look, _| count(look.waiting())),
        column("done/s", Some((7, 0)), None, BALANCERS, |_, now| count(now.done.round() as u64)),
        column("late/s", Some((7, 0)), None, BALANCERS, |_, now| count(now.late.round() as u64)),
        column("done", None, Some(""), BALANCERS, |look, _| count(look.requests("done"))),
        column("not done", None, Some(""), BALANCERS, |look, _| why(look, "0")),
        column("readings/s", Some((10, 102)), None, NODES, |_, now| count(now.readings.round() as u64)),
        column("readings set, taken, skipped", None, Some(SKIPPED), NODES, |look, _| readings(look)),
        column("oldest", Some((8, 79)), Some(help::OLDEST), NODES, |look, _| oldest(look.number("age_ms_max"))),
        column("tasks late", Some((10, 113)), None, NODES, |look, _| tasks_late(look)),
        column("peers", Some((5, 85)), None, NODES, |look, _| live(look)),
    ]
};

impl WatchColumn {
    /// Whether `look`'s process reports this figure.
    pub fn is_of(&self, look: &Look) -> bool {
        self.is_of_balancers || !look.is_balancer()
    }

    /// Text for a node or a balancer.
    pub fn cell(&self, look: &Look, now: &Moment) -> String {
        match self.is_of(look) {
            true => (self.value)(look, now),
            false => "-".into(),
        }
    }
}

/// A figure of a node along the watch.
pub struct WatchCurve {
    /// Key in JSON.
    pub key: &'static str,
    /// Chart on the page, if it has one: title, the quantity and the unit of its vertical axis, and the factor from the
    /// value to the unit.
    pub chart: Option<(&'static str, &'static str, &'static str, f64)>,
    is_of_balancers: bool,
    value: fn(&Moment) -> Option<f64>,
}

impl WatchCurve {
    /// Whether `node` has this figure.
    pub fn is_of(&self, node: &Node) -> bool {
        self.is_of_balancers || !node.is_balancer()
    }

    /// The value of `node` at `moment`; `None` where there is none.
    pub fn value(&self, node: &Node, moment: &Moment) -> Option<f64> {
        (self.value)(moment).filter(|_| self.is_of(node))
    }
}

/// All figures along the watch.
#[rustfmt::skip] // a figure a line
pub static CURVES: [WatchCurve; 6] = {
    type Chart = Option<(&'static str, &'static str, &'static str, f64)>;
    type Point = fn(&Moment) -> Option<f64>;
    const fn curve(key: &'static str, chart: Chart, is_of_balancers: bool, value: Point) -> WatchCurve {
        WatchCurve { key, chart, is_of_balancers, value }
    }
    [
        curve("done_per_s", Some(("Done", "requests a second", "", 1.0)), BALANCERS, |now| Some(now.done)),
        curve("late_per_s", Some(("Late or unknown", "requests a second", "", 1.0)), BALANCERS, |now| Some(now.late)),
        curve("lag_entries", Some(("Lag", "entries of the log", "", 1.0)), NODES, |now| Some(now.lag)),
        curve("bound_items", None, NODES, |now| now.bound),
        curve("readings_per_s", Some(("Readings", "set and taken, a second", "", 1.0)), NODES, |now| Some(now.readings)),
        curve("oldest_reading_ms", Some(("Oldest reading", "age at most", " s", 1e-3)), NODES, |now| now.age_ms),
    ]
};

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
