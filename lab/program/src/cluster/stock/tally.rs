//! Counts of a stock trading load.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use punctual_server::resp::Reply;
use punctual_units::Nanos;
use serde_json::{Value, json};

use super::market::{Balance, Kind};
use crate::cluster::load::Histogram;
use punctual_report::summary::count;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// Answered before its deadline.
    Timely,
    /// Answered after its deadline.
    Overdue,
    /// Not executed: `LATE`.
    Late,
    /// Not executed: another order came first.
    Conflict,
    /// Not executed for another reason.
    Refused,
    /// No answer: the connection broke, or it took too long.
    Unknown,
    /// Not sent: no client was free before its deadline.
    Unsent,
}

impl Ending {
    pub const ALL: [(Ending, &'static str); 7] = [
        (Ending::Timely, "timely"),
        (Ending::Overdue, "overdue"),
        (Ending::Late, "late"),
        (Ending::Conflict, "conflicts"),
        (Ending::Refused, "refused"),
        (Ending::Unknown, "unknown"),
        (Ending::Unsent, "unsent"),
    ];

    /// The ending that an error tells.
    pub fn of_error(text: &str) -> Ending {
        match text.split(' ').next() {
            Some("LATE") => Ending::Late,
            Some("UNKNOWN") => Ending::Unknown,
            _ => Ending::Refused,
        }
    }

    /// The ending that the last error of these replies tells.
    pub fn of_replies(replies: &[Reply]) -> Ending {
        let errors = replies.iter().rev().filter_map(|reply| match reply {
            Reply::Error(text) => Some(Ending::of_error(text)),
            _ => None,
        });
        errors.into_iter().next().unwrap_or(Ending::Refused)
    }
}

/// Requests of one kind.
#[derive(Clone, Debug, Default)]
struct OfKind {
    endings: BTreeMap<Ending, u64>,
    /// Items of answers in time, and of all answers; of these, prices that were not fresh.
    items_timely: u64,
    items: u64,
    stale: u64,
    answered: Histogram,
    /// Sum of the times of all answers.
    took: Nanos,
}

/// Counts of a load, or of one of its clients.
#[derive(Clone, Debug, Default)]
pub struct StockTally {
    deadline: Nanos,
    kinds: BTreeMap<Kind, OfKind>,
    /// Timely items of queries of each second, from the begin on.
    by_second: Vec<u64>,
    /// Time for which requests were counted: without the first seconds that are not.
    lasted: Nanos,
    /// Time from the begin to the end of the load.
    ran: Nanos,
    updates: u64,
    at_first: Balance,
    found: Balance,
}

impl StockTally {
    pub fn new(deadline: Nanos) -> StockTally {
        StockTally {
            deadline,
            ..StockTally::default()
        }
    }

    /// Counts a request that took so long.
    pub fn ended(&mut self, kind: Kind, ending: Ending, items: u64, stale: u64, took: Nanos) {
        let of = self.kinds.entry(kind).or_default();
        *of.endings.entry(ending).or_default() += 1;
        if let Ending::Timely | Ending::Overdue = ending {
            of.answered.add(took);
            of.took += took;
            of.items += items;
            of.stale += stale;
            of.items_timely += if ending == Ending::Timely { items } else { 0 };
        }
    }

    /// Adds the counts of a client.
    pub fn join(&mut self, client: StockTally) {
        for (kind, other) in client.kinds {
            let of = self.kinds.entry(kind).or_default();
            for (ending, times) in other.endings {
                *of.endings.entry(ending).or_default() += times;
            }
            of.items += other.items;
            of.items_timely += other.items_timely;
            of.stale += other.stale;
            of.answered.join(&other.answered);
            of.took += other.took;
        }
        for (second, items) in client.by_second.into_iter().enumerate() {
            self.timely_at(Duration::from_secs(second as u64), items);
        }
    }

    /// Counts timely items of a request that ended `after` the begin.
    pub fn timely_at(&mut self, after: Duration, items: u64) {
        let second = after.as_secs() as usize;
        self.by_second.resize(self.by_second.len().max(second + 1), 0);
        self.by_second[second] += items;
    }

    /// Timely items of queries a second, of the seconds in `range`: 0 if none was answered in time; `None` if the load
    /// ended before these seconds did.
    pub fn timely_in(&self, range: std::ops::Range<usize>) -> Option<f64> {
        let measured = !range.is_empty() && range.end as f64 <= self.ran.as_secs_f64();
        let items = self.by_second.iter().take(range.end).skip(range.start).sum::<u64>();
        measured.then(|| items as f64 / range.len() as f64)
    }

    /// Items of queries a second: in time, and all that were served.
    pub fn items_per_s(&self) -> [f64; 2] {
        let sum = |of: fn(&OfKind) -> u64| -> u64 {
            let kinds = Kind::QUERIES.iter().filter_map(|kind| self.kinds.get(kind));
            kinds.map(of).sum()
        };
        [sum(|of| of.items_timely), sum(|of| of.items)].map(|items| self.a_second(items))
    }

    /// Requests of some kinds a second that ended so.
    pub fn ended_per_s(&self, kinds: &[Kind], endings: &[Ending]) -> f64 {
        let of = |kind: &Kind| {
            let of = self.kinds.get(kind)?;
            Some(endings.iter().filter_map(|ending| of.endings.get(ending)).sum::<u64>())
        };
        self.a_second(kinds.iter().filter_map(of).sum())
    }

    /// Mean time of the answers to some kinds of requests, and its 99th percentile, in milliseconds.
    pub fn took_ms(&self, kinds: &[Kind]) -> [Option<f64>; 2] {
        let (mut all, mut took) = (Histogram::default(), Nanos::ZERO);
        let mut count = 0;
        for of in kinds.iter().filter_map(|kind| self.kinds.get(kind)) {
            all.join(&of.answered);
            took += of.took;
            count += of.endings.get(&Ending::Timely).unwrap_or(&0) + of.endings.get(&Ending::Overdue).unwrap_or(&0);
        }
        let mean = (count > 0).then(|| took.as_millis_f64() / count as f64);
        [mean, all.quantile(0.99).map(|took| took.as_millis_f64())]
    }

    /// Share of the items read that were not fresh, and updates a second.
    pub fn freshness(&self) -> (Option<f64>, f64) {
        let items = self.sum(|of| of.items);
        let stale = (items > 0).then(|| self.sum(|of| of.stale) as f64 / items as f64);
        (stale, self.a_second(self.updates))
    }

    /// Notes how long the load ran, for how much of it requests were not counted, and how many updates of prices were
    /// acknowledged in the rest.
    pub fn ran(&mut self, ran: Nanos, uncounted: Nanos, updates: u64) {
        (self.ran, self.lasted, self.updates) = (ran, ran - uncounted, updates);
    }

    /// Notes the sums of money and shares, as they must be and as they are.
    pub fn balances(&mut self, at_first: Balance, found: Balance) {
        (self.at_first, self.found) = (at_first, found);
    }

    /// Whether no money and no share was lost, made or negative.
    pub fn is_conserved(&self) -> bool {
        self.at_first == self.found
    }

    fn sum(&self, of: impl Fn(&OfKind) -> u64) -> u64 {
        self.kinds.values().map(of).sum()
    }

    fn a_second(&self, count: u64) -> f64 {
        count as f64 / self.lasted.as_secs_f64().max(1e-9)
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        for (kind, of) in &self.kinds {
            let offered: u64 = of.endings.values().sum();
            let endings: Vec<String> = Ending::ALL
                .iter()
                .filter_map(|(ending, name)| Some(format!("{} {name}", count(*of.endings.get(ending)?))))
                .collect();
            let ms = |share| of.answered.quantile(share).map_or("-".into(), |took| took.to_string());
            let _ = writeln!(
                text,
                "  {:15} {}: {}; answered within {} (p50), {} (p99)",
                kind.name(),
                count(offered),
                endings.join(", "),
                ms(0.5),
                ms(0.99)
            );
        }
        let _ = writeln!(
            text,
            "  {:.0} items of queries a second in time (deadline {}), {:.0} in all; {} of {} prices and holdings were not \
             fresh; {:.0} updates a second",
            self.items_per_s()[0],
            self.deadline,
            self.items_per_s()[1],
            count(self.sum(|of| of.stale)),
            count(self.sum(|of| of.items)),
            self.a_second(self.updates),
        );
        let Balance { cash, shares, wrong } = self.found;
        let _ = writeln!(
            text,
            "  at the end {} of {} cents, {} of {} shares, {wrong} records negative or missing: {}",
            count(cash.unsigned_abs()),
            count(self.at_first.cash.unsigned_abs()),
            count(shares.unsigned_abs()),
            count(self.at_first.shares.unsigned_abs()),
            if self.is_conserved() {
                "conserved"
            } else {
                "NOT conserved"
            }
        );
        text
    }

    pub fn document(&self) -> Value {
        let kind = |(kind, of): (&Kind, &OfKind)| {
            let ms = |share| of.answered.quantile(share).map(|took| took.as_millis_f64());
            let mut value = json!({
                "items": of.items,
                "items_timely": of.items_timely,
                "items_stale": of.stale,
                "answered_p50_ms": ms(0.5),
                "answered_p99_ms": ms(0.99),
            });
            for (ending, name) in Ending::ALL {
                value[name] = json!(of.endings.get(&ending).copied().unwrap_or(0));
            }
            (kind.name().to_owned(), value)
        };
        let balance = |of: &Balance| json!({ "cash": of.cash, "shares": of.shares, "wrong": of.wrong });
        json!({
            "workload": "stock",
            "deadline_ms": self.deadline.as_millis_f64(),
            "lasted_s": self.lasted.as_secs_f64(),
            "kinds": self.kinds.iter().map(kind).collect::<serde_json::Map<String, Value>>(),
            "items_timely_per_s": self.items_per_s()[0],
            "items_per_s": self.items_per_s()[1],
            "updates_per_s": self.a_second(self.updates),
            "at_first": balance(&self.at_first),
            "at_end": balance(&self.found),
            "conserved": self.is_conserved(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_without_a_timely_item_count_as_zero_and_seconds_that_were_not_run_are_not_measured() {
        let mut tally = StockTally::new(Nanos::from_millis(500));
        tally.timely_at(Duration::from_millis(1500), 80);
        tally.ran(Nanos::from_secs(6), Nanos::ZERO, 0);
        let found = [0..2, 3..6, 4..8, 3..3].map(|seconds| tally.timely_in(seconds));
        assert_eq!(found, [Some(40.0), Some(0.0), None, None]);
    }

    #[test]
    fn items_a_second_are_of_queries_and_of_the_counted_time() {
        let mut tally = StockTally::new(Nanos::from_millis(500));
        let took = Nanos::from_millis(10);
        tally.ended(Kind::ViewStock, Ending::Timely, 80, 0, took);
        tally.ended(Kind::ViewPortfolio, Ending::Overdue, 60, 0, took);
        tally.ended(Kind::Purchase, Ending::Timely, 3, 0, took);
        tally.ran(Nanos::from_secs(5), Nanos::from_secs(3), 0);
        assert_eq!(tally.items_per_s(), [40.0, 70.0]);
    }
}
