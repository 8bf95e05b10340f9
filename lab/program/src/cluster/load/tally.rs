//! Counts of requests by their ending, and their response times.

use std::collections::BTreeMap;
use std::fmt::Write;

use punctual_units::{Nanos, Time};
use serde_json::{Value, json};

use super::client::{Fate, RequestOutcome};
use super::{EndedRequest, LoadMessage};
use punctual_report::summary::count;

/// Steps of a histogram per doubling.
const STEPS: f64 = 32.0;
/// First step of a histogram in nanoseconds; shorter times count as this.
const LEAST: f64 = 10_000.0;

/// Histogram of times, exact to 2 %; its memory does not grow with the run.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
}

impl Histogram {
    /// Counts a span.
    pub fn add(&mut self, span: Nanos) {
        let place = ((span.0 as f64 / LEAST).max(1.0).log2() * STEPS) as usize;
        if self.counts.len() <= place {
            self.counts.resize(place + 1, 0);
        }
        self.counts[place] += 1;
    }

    /// Adds the counts of another histogram.
    pub fn join(&mut self, other: &Histogram) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.counts
            .iter_mut()
            .zip(&other.counts)
            .for_each(|(sum, more)| *sum += more);
    }

    /// Middle of the step that holds the quantile `share`.
    pub fn quantile(&self, share: f64) -> Option<Nanos> {
        let all: u64 = self.counts.iter().sum();
        let rank = (share * all as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        let place = self.counts.iter().position(|count| {
            below += count;
            below >= rank
        })?;
        Some(Nanos((LEAST * ((place as f64 + 0.5) / STEPS).exp2()) as u64))
    }
}

/// Totals of a load.
#[derive(Clone, Debug)]
pub struct LoadTally {
    deadline: Nanos,
    /// Measured capacity, in requests a second; `None` if not measured.
    pub capacity: Option<f64>,
    rate: f64,
    began: Option<Time>,
    last: Time,
    endings: BTreeMap<RequestOutcome, u64>,
    timely: Histogram,
    wrong: u64,
}

impl LoadTally {
    /// A tally without requests yet.
    pub fn new(deadline: Nanos) -> LoadTally {
        LoadTally {
            deadline,
            capacity: None,
            rate: 0.0,
            began: None,
            last: Time::ZERO,
            endings: BTreeMap::new(),
            timely: Histogram::default(),
            wrong: 0,
        }
    }

    /// Adds a report of the load.
    pub fn take(&mut self, told: &LoadMessage) {
        match told {
            LoadMessage::Capacity(capacity) => self.capacity = Some(*capacity),
            LoadMessage::Begins { at, rate } => (self.began, self.rate) = (Some(*at), *rate),
            LoadMessage::Learned {
                ended,
                fates,
                wrong_reads,
            } => {
                ended.iter().for_each(|ended| self.end(ended));
                let wrong = |fate: &Fate| matches!(fate, Fate::Acknowledged { returned, right } if returned != right);
                self.wrong += wrong_reads + fates.iter().filter(|(.., fate)| wrong(fate)).count() as u64;
            }
            LoadMessage::Done(_) => {}
        }
    }

    fn end(&mut self, ended: &EndedRequest) {
        *self.endings.entry(ended.ending).or_default() += 1;
        if ended.ending == RequestOutcome::Timely {
            self.timely.add(ended.took);
        }
        // An arrival counts at its scheduled instant.
        self.last = self.last.max(Time(ended.at.0.saturating_sub(ended.took.0)));
    }

    /// Number of requests with this ending.
    pub fn count(&self, ending: RequestOutcome) -> u64 {
        self.endings.get(&ending).copied().unwrap_or(0)
    }

    /// Requests that were offered, and have ended.
    pub fn offered(&self) -> u64 {
        self.endings.values().sum()
    }

    /// Answers that differ from the client's count.
    pub fn wrong(&self) -> u64 {
        self.wrong
    }

    /// Time during which requests were offered.
    pub fn offered_for(&self) -> Nanos {
        self.began.map_or(Nanos::ZERO, |began| self.last.since(began))
    }

    /// Timely answers a second.
    pub fn timely_per_s(&self) -> f64 {
        match self.offered_for().as_secs_f64() {
            0.0 => 0.0,
            seconds => self.count(RequestOutcome::Timely) as f64 / seconds,
        }
    }

    /// Timely answers as a share of the measured capacity.
    pub fn timely_of_capacity(&self) -> Option<f64> {
        self.capacity
            .filter(|capacity| *capacity > 0.0)
            .map(|capacity| self.timely_per_s() / capacity)
    }

    /// Number of requests per ending, by name.
    pub fn answers(&self) -> BTreeMap<&'static str, u64> {
        use RequestOutcome::{Backlog, Expired, NoMaster, Overdue, Refused, Timely, Unknown, Unsent};
        let names = [
            ("timely", Timely),
            ("overdue", Overdue),
            ("late_backlog", Backlog),
            ("late_expired", Expired),
            ("late_no_master", NoMaster),
            ("refused", Refused),
            ("unknown", Unknown),
            ("unsent", Unsent),
        ];
        names.map(|(name, ending)| (name, self.count(ending))).into()
    }

    /// Median and 99th percentile of timely response times.
    pub fn latencies(&self) -> [Option<Nanos>; 2] {
        [0.5, 0.99].map(|share| self.timely.quantile(share))
    }

    /// Summary as lines of text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let number = |ending| count(self.count(ending));
        let _ = writeln!(
            text,
            "offered {} ({:.0} a second for {}), each timed from the instant at which it was to be sent (deadline {}):",
            count(self.offered()),
            self.rate,
            self.offered_for(),
            self.deadline
        );
        let _ = writeln!(
            text,
            "  timely {}, overdue {}, late {} (backlog {}, expired {}, no-master {}), refused {}, unknown {}, unsent {}",
            number(RequestOutcome::Timely),
            number(RequestOutcome::Overdue),
            count(
                self.count(RequestOutcome::Backlog)
                    + self.count(RequestOutcome::Expired)
                    + self.count(RequestOutcome::NoMaster)
            ),
            number(RequestOutcome::Backlog),
            number(RequestOutcome::Expired),
            number(RequestOutcome::NoMaster),
            number(RequestOutcome::Refused),
            number(RequestOutcome::Unknown),
            number(RequestOutcome::Unsent),
        );
        if let (Some(capacity), Some(share)) = (self.capacity, self.timely_of_capacity()) {
            let _ = writeln!(
                text,
                "  timely {:.0} a second, {share:.3} of the capacity ({capacity:.0} a second, measured first)",
                self.timely_per_s()
            );
        }
        if let [Some(half), Some(most)] = self.latencies() {
            let ms = |span: Nanos| span.0 as f64 * 1e-6;
            let _ = writeln!(
                text,
                "  timely answers took {:.1} ms (p50), {:.1} ms (p99)",
                ms(half),
                ms(most)
            );
        }
        text
    }

    /// Totals as a JSON object.
    pub fn document(&self) -> Value {
        let ms = |span: Option<Nanos>| span.map(|span| span.0 as f64 * 1e-6);
        let [half, most] = self.latencies();
        json!({
            "rate_per_s": self.rate,
            "deadline_ms": ms(Some(self.deadline)),
            "offered": self.offered(),
            "offered_for_s": self.offered_for().as_secs_f64(),
            "answers": self.answers(),
            "capacity_per_s": self.capacity,
            "timely_per_s": self.timely_per_s(),
            "timely_of_capacity": self.timely_of_capacity(),
            "timely_ms": {"p50": ms(half), "p99": ms(most)},
            "wrong_answers": self.wrong,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cluster::load::RequestKind;

    proptest! {
        #[test]
        fn a_histogram_is_right_to_a_step(mut spans in prop::collection::vec(10_000u64..100_000_000_000, 1..200)) {
            let mut histogram = Histogram::default();
            spans.iter().for_each(|span| histogram.add(Nanos(*span)));
            spans.sort_unstable();
            for share in [0.01, 0.5, 0.99, 1.0] {
                let right = punctual_units::percentile(spans.iter().copied(), share).unwrap() as f64;
                let found = histogram.quantile(share).unwrap().0 as f64;
                prop_assert!((found / right - 1.0).abs() < 0.025, "{found} for {right}");
            }
        }
    }

    #[test]
    fn each_ending_is_counted_once_and_the_share_is_of_the_capacity() {
        let mut tally = LoadTally::new(Nanos::from_millis(100));
        tally.take(&LoadMessage::Capacity(10.0));
        tally.take(&LoadMessage::Begins {
            at: Time::ZERO,
            rate: 20.0,
        });
        let ended = |ending, took, at| EndedRequest {
            kind: RequestKind::Read,
            ending,
            took: Nanos::from_millis(took),
            at: Time::ZERO + Nanos::from_millis(at),
            by: None,
        };
        let ended = vec![
            ended(RequestOutcome::Timely, 10, 500),
            ended(RequestOutcome::Backlog, 1, 700),
            ended(RequestOutcome::Timely, 20, 1020),
        ];
        tally.take(&LoadMessage::Learned {
            ended,
            fates: vec![(1, 1, Fate::Acknowledged { returned: 2, right: 1 })],
            wrong_reads: 2,
        });
        assert_eq!(
            (tally.offered(), tally.count(RequestOutcome::Timely), tally.wrong()),
            (3, 2, 3)
        );
        assert_eq!(tally.offered_for(), Nanos::from_secs(1));
        assert_eq!(tally.timely_of_capacity(), Some(0.2));
        assert_eq!(tally.answers().values().sum::<u64>(), 3);
    }
}
