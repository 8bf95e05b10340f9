//! Figures of one run.

use punctual_loop::EventLog;
use punctual_units::{Nanos, Time};

/// Counts of queries and their delays, in the judged part of a run unless stated otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Length of the judged part, in seconds.
    pub seconds: f64,
    /// Queries that clients sent.
    pub offered: u64,
    /// Queries that were answered, in time or not.
    pub served: u64,
    /// Served queries answered by the deadline, as the client sees it.
    pub timely: u64,
    /// Queries that were refused.
    pub refused: u64,
    /// Queries that died with their node.
    pub lost: u64,
    /// Queries that were refused once and sent to another node.
    pub again: u64,
    /// Refusals after the deadline: must be 0.
    pub late_refusals: u64,
    /// Items of the answered queries.
    pub items: u64,
    /// Items of queries with a delay within the bound, as the node sees it: from the connection to the end, as the
    /// paper measures it.
    pub items_timely: u64,
    /// Queries answered by a node after it had announced that it leaves; also counted in `served`.
    pub served_gone: u64,
    /// Part of `served_gone` that was answered by the deadline.
    pub timely_gone: u64,
    /// Items of the queries answered by nodes that had not announced that they leave.
    pub items_here: u64,
    /// Items of those answered by the deadline, as the client sees it.
    pub items_timely_here: u64,
    /// Seconds that executors spent on queries that were begun in the judged part.
    pub busy: f64,
    /// Sum of the delays as nodes see them, in seconds.
    pub node_delay_sum: f64,
    /// Started queries whose key was cached.
    pub cached: u64,
    /// Queries that were started on an executor.
    pub started: u64,
    /// Delays as clients see them, in seconds, rising.
    pub delays: Vec<f32>,
    /// Figures of each second of the whole run.
    pub second_by_second: Vec<Second>,
    /// Sampling points of the first node, of the whole run.
    pub first_node: Vec<NodeSample>,
    /// Decisions about the first node's bound, if a control law sets it.
    pub log: Option<EventLog>,
    /// For the whole run: offered queries; and answered, refused, lost or unfinished ones. Both are equal.
    pub balance: (u64, u64),
}

/// Counts of one second of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    /// Number of queries sent.
    pub offered: u32,
    /// Number of queries answered.
    pub served: u32,
    /// Queries answered in time, as clients see it.
    pub timely: u32,
    /// Queries answered by a node that had announced that it leaves; also counted in `served`.
    pub served_gone: u32,
    /// Part of `served_gone` that was answered in time.
    pub timely_gone: u32,
    /// Items of the answered queries.
    pub items: u32,
    /// Items of queries with a delay within the bound, as nodes see it.
    pub items_timely: u32,
}

/// Figures of one period of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodeSample {
    /// Mean delay of the queries that ended in the period, in seconds; `None` if none did.
    pub delay: Option<f64>,
    /// Mean backlog in the period, in items.
    pub backlog: f64,
    /// Bound of the backlog in the period, in items.
    pub bound: f64,
}

impl Summary {
    /// Converts a count of the judged part to a rate per second.
    pub fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.seconds
    }

    /// Share of timely queries among the served ones; 1 without any.
    pub fn timely_of_served(&self) -> f64 {
        if self.served == 0 {
            1.0
        } else {
            self.timely as f64 / self.served as f64
        }
    }

    /// Share of refused queries among the offered ones.
    pub fn refused_share(&self) -> f64 {
        if self.offered == 0 {
            0.0
        } else {
            self.refused as f64 / self.offered as f64
        }
    }

    /// Mean delay as clients see it, in seconds; `None` without served queries.
    pub fn mean_delay(&self) -> Option<f64> {
        punctual_units::mean(self.delays.iter().map(|delay| f64::from(*delay)))
    }

    /// Mean delay as nodes see it, in seconds; `None` without served queries.
    pub fn node_delay(&self) -> Option<f64> {
        (self.served > 0).then(|| self.node_delay_sum / self.served as f64)
    }

    /// Queries answered by nodes that had not announced that they leave.
    pub fn served_here(&self) -> u64 {
        self.served - self.served_gone
    }

    /// Queries of `served_here` that were answered by the deadline.
    pub fn timely_here(&self) -> u64 {
        self.timely - self.timely_gone
    }

    /// Mean number of busy executors.
    pub fn busy_executors(&self) -> f64 {
        self.busy / self.seconds
    }

    /// Percentile of the delays, in seconds; `None` without served queries.
    pub fn percentile(&self, share: f64) -> Option<f64> {
        punctual_units::percentile_of_rising(&self.delays, share).map(f64::from)
    }
}

/// A query that was answered.
pub(super) struct AnsweredQuery {
    pub(super) items: u32,
    /// Whether its node has announced that it leaves.
    pub(super) gone: bool,
    /// Delay as the node sees it, and as the client does.
    pub(super) at_node: Nanos,
    pub(super) delay: Nanos,
}

/// Counts while a run goes on.
#[derive(Clone, Debug)]
pub(super) struct SummaryBuilder {
    summary: Summary,
    from: Time,
    bound: Nanos,
    ended: u64,
}

impl SummaryBuilder {
    pub(super) fn new(from: Time, until: Time, bound: Nanos) -> SummaryBuilder {
        let seconds = (until.0 as usize).div_ceil(1_000_000_000);
        SummaryBuilder {
            summary: Summary {
                seconds: until.since(from).as_secs_f64(),
                second_by_second: vec![Second::default(); seconds],
                ..Summary::default()
            },
            from,
            bound,
            ended: 0,
        }
    }

    fn second(&mut self, now: Time) -> Option<&mut Second> {
        self.summary.second_by_second.get_mut((now.0 / 1_000_000_000) as usize)
    }

    pub(super) fn offered(&mut self, now: Time) {
        self.summary.balance.0 += 1;
        self.summary.offered += u64::from(now >= self.from);
        if let Some(second) = self.second(now) {
            second.offered += 1;
        }
    }

    /// Counts a query that an executor begins: whether its key was cached, and its time.
    pub(super) fn started(&mut self, now: Time, cached: bool, span: Nanos) {
        if now >= self.from {
            self.summary.started += 1;
            self.summary.cached += u64::from(cached);
            self.summary.busy += span.as_secs_f64();
        }
    }

    pub(super) fn answered(&mut self, now: Time, answered: &AnsweredQuery) {
        self.ended += 1;
        let items = answered.items;
        let timely = answered.delay <= self.bound;
        let items_timely = if answered.at_node <= self.bound { items } else { 0 };
        if let Some(second) = self.second(now) {
            second.served += 1;
            second.timely += u32::from(timely);
            second.served_gone += u32::from(answered.gone);
            second.timely_gone += u32::from(answered.gone && timely);
            second.items += items;
            second.items_timely += items_timely;
        }
        if now < self.from {
            return;
        }
        let summary = &mut self.summary;
        summary.served += 1;
        summary.timely += u64::from(timely);
        summary.served_gone += u64::from(answered.gone);
        summary.timely_gone += u64::from(answered.gone && timely);
        summary.items += u64::from(items);
        if !answered.gone {
            summary.items_here += u64::from(items);
            summary.items_timely_here += if timely { u64::from(items) } else { 0 };
        }
        summary.items_timely += u64::from(items_timely);
        summary.node_delay_sum += answered.at_node.as_secs_f64();
        summary.delays.push(answered.delay.as_secs_f64() as f32);
    }

    pub(super) fn refused(&mut self, now: Time) {
        self.ended += 1;
        self.summary.refused += u64::from(now >= self.from);
    }

    /// Counts a refusal if it comes after the deadline.
    pub(super) fn said(&mut self, now: Time, deadline: Time) {
        self.summary.late_refusals += u64::from(now >= self.from && now > deadline);
    }

    pub(super) fn lost(&mut self, now: Time) {
        self.ended += 1;
        self.summary.lost += u64::from(now >= self.from);
    }

    pub(super) fn again(&mut self, now: Time) {
        self.summary.again += u64::from(now >= self.from);
    }

    pub(super) fn sampled(&mut self, sample: NodeSample) {
        self.summary.first_node.push(sample);
    }

    /// Completes the summary, with `under_way` queries unfinished.
    pub(super) fn end(mut self, under_way: u64, log: Option<EventLog>) -> Summary {
        self.summary.log = log;
        self.summary.delays.sort_unstable_by(f32::total_cmp);
        self.summary.balance.1 = self.ended + under_way;
        self.summary
    }
}
