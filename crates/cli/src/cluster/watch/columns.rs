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

/// All figures at present, in the order in which they are shown.
#[rustfmt::skip] // a figure a line
pub static COLUMNS: [WatchColumn; 15] = [
    column("standing", |look, _| look.word("standing").into()).live(9, 0).page(""),
    column("epoch", |look, _| look.word("epoch").into()).live(5, 0).page(help::EPOCH),
    column("applied", |look, _| count(look.count("applied"))).live(8, 0).page(help::APPLIED),
    column("lag", |look, _| count(look.count("lag_entries"))).live(4, 0).page(help::LAG),
    column("d", |look, _| bound(look.bound())).live(7, 0).page(help::BOUND),
    column("waits", |look, _| count(look.waiting())).live(5, 91).of_balancers(),
    column("done/s", |_, now| count(now.done.round() as u64)).live(7, 0).of_balancers(),
    column("late/s", |_, now| count(now.late.round() as u64)).live(7, 0).of_balancers(),
    column("done", |look, _| count(look.requests("done"))).page("").of_balancers(),
    column("not done", |look, _| why(look, "0")).page("").of_balancers(),
    column("readings/s", |_, now| count(now.readings.round() as u64)).live(10, 102),
    column("readings set, taken, skipped", |look, _| readings(look)).page(SKIPPED),
    column("oldest", |look, _| oldest(look.number("age_ms_max"))).live(8, 79).page(help::OLDEST),
    column("tasks late", |look, _| tasks_late(look)).live(10, 113),
    column("peers", |look, _| live(look)).live(5, 85),
];

const fn column(title: &'static str, value: fn(&Look, &Moment) -> String) -> WatchColumn {
    WatchColumn {
        title,
        live: None,
        page: None,
        is_of_balancers: false,
        value,
    }
}

impl WatchColumn {
    const fn live(mut self, width: u16, narrowest: u16) -> Self {
        self.live = Some((width, narrowest));
        self
    }

    const fn page(mut self, help: &'static str) -> Self {
        self.page = Some(help);
        self
    }

    const fn of_balancers(mut self) -> Self {
        self.is_of_balancers = true;
        self
    }

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
    /// Chart on the page, if it has one.
    pub chart: Option<WatchChart>,
    is_of_balancers: bool,
    value: fn(&Moment) -> Option<f64>,
}

/// Texts and scale of a figure's chart.
pub struct WatchChart {
    /// Title on the page.
    pub title: &'static str,
    /// Quantity that the vertical axis shows.
    pub about: &'static str,
    /// Unit after the numbers of the vertical axis.
    pub unit: &'static str,
    /// Factor from the value to the unit.
    pub scale: f64,
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

const BALANCERS: bool = true;
const NODES: bool = false;

const fn chart(title: &'static str, about: &'static str, unit: &'static str, scale: f64) -> Option<WatchChart> {
    Some(WatchChart {
        title,
        about,
        unit,
        scale,
    })
}

const fn curve(
    key: &'static str,
    chart: Option<WatchChart>,
    is_of_balancers: bool,
    value: fn(&Moment) -> Option<f64>,
) -> WatchCurve {
    WatchCurve {
        key,
        chart,
        is_of_balancers,
        value,
    }
}

/// All figures along the watch.
#[rustfmt::skip] // a figure a line
pub static CURVES: [WatchCurve; 6] = [
    curve("done_per_s", chart("Done", "requests a second", "", 1.0), BALANCERS, |now| Some(now.done)),
    curve("late_per_s", chart("Late or unknown", "requests a second", "", 1.0), BALANCERS, |now| Some(now.late)),
    curve("lag_entries", chart("Lag", "entries of the log", "", 1.0), NODES, |now| Some(now.lag)),
    curve("bound_items", None, NODES, |now| now.bound),
    curve("readings_per_s", chart("Readings", "set and taken, a second", "", 1.0), NODES, |now| Some(now.readings)),
    curve("oldest_reading_ms", chart("Oldest reading", "age at most", " s", 1e-3), NODES, |now| now.age_ms),
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
