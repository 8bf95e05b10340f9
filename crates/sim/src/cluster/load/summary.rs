//! What came of one run.

use punctual_loop::backlog::BacklogLog;
use punctual_units::{Nanos, Time};

/// Counts of queries and their delays, of the judged part of a run unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Length of the judged part, in seconds.
    pub seconds: f64,
    /// Queries that clients sent.
    pub offered: u64,
    /// Queries that were answered, in time or not.
    pub served: u64,
    /// Of these, by the deadline, as the client sees it.
    pub timely: u64,
    /// Queries that were refused.
    pub refused: u64,
    /// Queries that died with their node.
    pub lost: u64,
    /// Queries that were refused once and sent to another node.
    pub again: u64,
    /// Refusals that were said after the deadline: there must be none.
    pub late_refusals: u64,
    /// Items of the queries that were answered.
    pub items: u64,
    /// Items of those with a delay within the bound, as the node sees it: from the connection to the end, which is
    /// what the paper measures.
    pub items_timely: u64,
    /// Queries that a node answered after it had said that it leaves; they are in `served`, too.
    pub served_gone: u64,
    /// Of these, by the deadline.
    pub timely_gone: u64,
    /// Items of the queries that nodes answered which had not said that they leave.
    pub items_here: u64,
    /// Of these, items of queries that were answered by the deadline, as the client sees it.
    pub items_timely_here: u64,
    /// Seconds that executors spent on queries that were begun in the judged part.
    pub busy: f64,
    /// Sum of the delays as nodes see them, in seconds.
    pub node_delay_sum: f64,
    /// Queries whose key was cached, of all that were started.
    pub cached: u64,
    /// Queries that were started.
    pub started: u64,
    /// Delays as clients see them, in seconds, rising.
    pub delays: Vec<f32>,
    /// Second by second, of the whole run.
    pub second_by_second: Vec<Second>,
    /// Sampling points of the first node, of the whole run.
    pub first_node: Vec<NodeSample>,
    /// What was decided about the first node's bound, where a law turns it.
    pub log: Option<BacklogLog>,
    /// Of the whole run: offered, and answered, refused, lost or still under way at the end. Both are equal.
    pub balance: (u64, u64),
}

/// One second of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    /// Queries sent.
    pub offered: u32,
    /// Queries answered.
    pub served: u32,
    /// Of these in time, as clients see it.
    pub timely: u32,
    /// Queries answered by a node that had said that it leaves, which count as served, too.
    pub served_gone: u32,
    /// Of these in time.
    pub timely_gone: u32,
    /// Items answered.
    pub items: u32,
    /// Of these with a delay within the bound, as nodes see it.
    pub items_timely: u32,
}

/// One period of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodeSample {
    /// Mean delay of the queries that ended in it, in seconds; none if none did.
    pub delay: Option<f64>,
    /// Mean backlog, in items.
    pub backlog: f64,
    /// The bound that held, in items.
    pub bound: f64,
}

impl Summary {
    /// A count of the judged part, for each second.
    pub fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.seconds
    }

    /// Timely queries of the served ones; 1 of none.
    pub fn timely_of_served(&self) -> f64 {
        if self.served == 0 {
            1.0
        } else {
            self.timely as f64 / self.served as f64
        }
    }

    /// Refused queries of the offered ones.
    pub fn refused_share(&self) -> f64 {
        if self.offered == 0 {
            0.0
        } else {
            self.refused as f64 / self.offered as f64
        }
    }

    /// Mean delay as clients see it, in seconds; none of nothing.
    pub fn mean_delay(&self) -> Option<f64> {
        punctual_units::mean(self.delays.iter().map(|delay| f64::from(*delay)))
    }

    /// Mean delay as nodes see it, in seconds; none of nothing.
    pub fn node_delay(&self) -> Option<f64> {
        (self.served > 0).then(|| self.node_delay_sum / self.served as f64)
    }

    /// Queries answered by nodes that were there when they answered, and had not said that they leave.
    pub fn served_here(&self) -> u64 {
        self.served - self.served_gone
    }

    /// Of these, by the deadline.
    pub fn timely_here(&self) -> u64 {
        self.timely - self.timely_gone
    }

    /// Executors that were at work, on average.
    pub fn busy_executors(&self) -> f64 {
        self.busy / self.seconds
    }

    /// A percentile of the delays, in seconds; none of nothing.
    pub fn percentile(&self, share: f64) -> Option<f64> {
        punctual_units::percentile_of_rising(&self.delays, share).map(f64::from)
    }
}

/// A query that was answered.
pub(super) struct Answered {
    pub(super) items: u32,
    /// Whether its node has said that it leaves.
    pub(super) gone: bool,
    /// As the node sees it, and as the client does.
    pub(super) at_node: Nanos,
    pub(super) delay: Nanos,
}

/// Counts while a run goes on.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    summary: Summary,
    from: Time,
    bound: Nanos,
    ended: u64,
}

impl Counts {
    pub(super) fn new(from: Time, until: Time, bound: Nanos) -> Counts {
        let seconds = (until.0 as usize).div_ceil(1_000_000_000);
        Counts {
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

    /// An executor begins with a query whose key was cached or not, for so long.
    pub(super) fn started(&mut self, now: Time, cached: bool, span: Nanos) {
        if now >= self.from {
            self.summary.started += 1;
            self.summary.cached += u64::from(cached);
            self.summary.busy += span.as_secs_f64();
        }
    }

    pub(super) fn answered(&mut self, now: Time, answered: &Answered) {
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

    /// A node has said no, at this instant.
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

    /// The summary, with as many queries under way.
    pub(super) fn end(mut self, under_way: u64, log: Option<BacklogLog>) -> Summary {
        self.summary.log = log;
        self.summary.delays.sort_unstable_by(f32::total_cmp);
        self.summary.balance.1 = self.ended + under_way;
        self.summary
    }
}
