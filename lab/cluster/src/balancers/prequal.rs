//! Prequal (B. Wydrowski, R. Kleinberg, S. Rumble and A. Archer, "Load is not what you should balance: Introducing
//! Prequal", NSDI 2024).
//!
//! As in the paper, with the values of its section 4:
//!
//! - Each query makes [`PROBES`] probes of random nodes, which answer with their requests in flight (RIF) and with the
//!   latency of recent queries that came at such a RIF. The query does not wait for them: they serve later ones.
//! - A pool keeps at most [`POOL`] probes, for at most [`AGE_MAX`], each for `b_reuse` uses:
//!   max(1, (1 + delta) / ((1 - m/n) r_probe - r_remove)) with delta = 1.
//! - A node is *hot* if its RIF is above the quantile [`HOT`] of the RIFs that were probed recently. Of nodes that are
//!   not hot the one with the least latency is taken; if all are hot, the one with the least RIF.
//! - A used probe counts one more in flight. With each query one probe is removed, the oldest and the worst in turn.
//! - With fewer than two probes, a random node is taken.
//!
//! The paper has many more nodes than probes in the pool. With few nodes the formula of `b_reuse` has no positive
//! value; then probes are used until they are too old. The pool keeps only the latest probe of a node.

use std::collections::VecDeque;

use punctual_federation::balancer::{Balancer, NodeTable, Query, QueryReply, TooLarge, below, mixed};
use punctual_federation::ids::NodeId;
use punctual_units::{Nanos, Time};

/// Probes that each query causes.
pub const PROBES: usize = 3;
/// Most probes in the pool.
pub const POOL: usize = 16;
/// Age at which a probe is dropped from the pool.
pub const AGE_MAX: Nanos = Nanos::from_secs(1);
/// The quantile of the requests in flight above which a node is hot: 2^-0.25.
pub const HOT: f64 = 0.840_896_415;
/// Recent probes over which the quantile is taken.
const RECENT: usize = 128;
/// Probes removed per query.
const REMOVED: f64 = 1.0;
/// The excess of probes over uses.
const DELTA: f64 = 1.0;

#[derive(Clone, Copy, Debug)]
struct PooledProbe {
    node: NodeId,
    probe: Probe,
    at: Time,
    uses: f64,
}

/// A node's answer to a probe: how busy it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Probe {
    /// Queries admitted and not finished.
    pub in_flight: u32,
    /// Median latency of recent queries that arrived with as many in flight.
    pub latency: Nanos,
}

/// The policy of the paper.
#[derive(Clone, Debug, Default)]
pub struct Prequal {
    nodes: NodeTable<()>,
    /// Probes, the oldest first.
    pool: VecDeque<PooledProbe>,
    recent: VecDeque<u32>,
    /// Quantile [`HOT`] of `recent`; recomputed before use if `stale`.
    hot_above: u32,
    stale: bool,
    remove_worst: bool,
}

impl Prequal {
    /// Number of queries for which a probe may be used.
    fn uses(&self) -> f64 {
        let nodes = self.nodes.nodes().len() as f64;
        let fresh = (1.0 - POOL as f64 / nodes) * PROBES as f64 - REMOVED;
        if fresh > 0.0 {
            ((1.0 + DELTA) / fresh).max(1.0)
        } else {
            f64::INFINITY
        }
    }

    fn forget_old(&mut self, now: Time) {
        while self.pool.front().is_some_and(|oldest| now.since(oldest.at) > AGE_MAX) {
            self.pool.pop_front();
        }
    }

    /// Whether `one` is better than `other`: not hot and faster, or hot and less busy.
    fn better(&self, one: &PooledProbe, other: &PooledProbe) -> bool {
        let hot = |pooled: &PooledProbe| pooled.probe.in_flight > self.hot_above;
        match (hot(one), hot(other)) {
            (false, true) => true,
            (true, false) => false,
            (false, false) => one.probe.latency < other.probe.latency,
            (true, true) => one.probe.in_flight < other.probe.in_flight,
        }
    }

    fn best(&self) -> Option<usize> {
        (0..self.pool.len()).reduce(|best, at| {
            if self.better(&self.pool[at], &self.pool[best]) {
                at
            } else {
                best
            }
        })
    }

    fn worst(&self) -> Option<usize> {
        (0..self.pool.len()).reduce(|worst, at| {
            if self.better(&self.pool[worst], &self.pool[at]) {
                at
            } else {
                worst
            }
        })
    }

    /// The node of the best probe in the pool, which then counts one more in flight.
    fn used(&mut self) -> Option<NodeId> {
        let best = self.best()?;
        let chosen = &mut self.pool[best];
        chosen.probe.in_flight += 1;
        chosen.uses -= 1.0;
        let node = chosen.node;
        if chosen.uses < 1.0 {
            self.pool.remove(best);
        }
        Some(node)
    }

    fn remove_one(&mut self) {
        if self.remove_worst {
            if let Some(worst) = self.worst() {
                self.pool.remove(worst);
            }
        } else {
            self.pool.pop_front();
        }
        self.remove_worst = !self.remove_worst;
    }

    fn note(&mut self, in_flight: u32) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(in_flight);
        self.stale = true;
    }

    fn find_hot(&mut self) {
        let mut sorted = [0; RECENT];
        let sorted = &mut sorted[..self.recent.len()];
        for (to, from) in sorted.iter_mut().zip(&self.recent) {
            *to = *from;
        }
        let at = ((sorted.len() as f64 * HOT) as usize).min(sorted.len() - 1);
        self.hot_above = *sorted.select_nth_unstable(at).1;
        self.stale = false;
    }
}

impl Balancer for Prequal {
    fn choose(&mut self, query: &Query, now: Time) -> Option<NodeId> {
        self.forget_old(now);
        let nodes = self.nodes.nodes();
        let random = *nodes.get(below(query.draw, nodes.len()))?;
        if self.pool.len() < 2 {
            return Some(random);
        }
        if self.stale {
            self.find_hot();
        }
        let node = self.used();
        // With few nodes the pool has one probe of each, and after removals chance alone would choose.
        if self.pool.len() + 1 >= POOL.min(self.nodes.nodes().len()) && self.uses().is_finite() {
            self.remove_one();
        }
        node.or(Some(random))
    }

    fn answered(&mut self, _node: NodeId, _answer: &QueryReply, _now: Time) {}

    fn join(&mut self, node: NodeId, _now: Time) -> Result<(), TooLarge> {
        self.nodes.join(node, ()).map(|_| ())
    }

    fn leave(&mut self, node: NodeId, _now: Time) {
        self.nodes.leave(node);
        self.pool.retain(|known| known.node != node);
    }
}

impl Prequal {
    /// Adds the nodes to probe because of this query to `asked`.
    pub fn probes(&mut self, query: &Query, asked: &mut Vec<NodeId>) {
        let nodes = self.nodes.nodes();
        let first = asked.len();
        let mut draw = query.draw;
        // A few draws suffice for different nodes; with few nodes there may be fewer probes.
        for _ in 0..2 * PROBES {
            draw = mixed(draw);
            let Some(node) = nodes.get(below(draw, nodes.len())) else {
                return;
            };
            if !asked[first..].contains(node) {
                asked.push(*node);
            }
            if asked.len() - first == PROBES {
                return;
            }
        }
    }

    /// Notes a node's answer to a probe.
    pub fn probed(&mut self, node: NodeId, probe: Probe, now: Time) {
        if self.nodes.get(node).is_none() {
            return;
        }
        self.note(probe.in_flight);
        self.pool.retain(|known| known.node != node);
        if self.pool.len() == POOL {
            self.pool.pop_front();
        }
        let uses = self.uses();
        self.pool.push_back(PooledProbe {
            node,
            probe,
            at: now,
            uses,
        });
    }
}

/// The node's part: it measures the answers to probes.
#[derive(Clone, Debug, Default)]
pub struct ProbeMeter {
    /// The last latencies by requests in flight at arrival, a ring for each number.
    latencies: Vec<Latencies>,
}

/// Distinct numbers of requests in flight; larger ones count as the last.
const IN_FLIGHT_MAX: usize = 256;
/// Latencies kept for each number.
const LATENCIES: usize = 9;

#[derive(Clone, Copy, Debug, Default)]
struct Latencies {
    ring: [Nanos; LATENCIES],
    count: u32,
}

impl Latencies {
    fn median(&self) -> Nanos {
        let count = (self.count as usize).min(LATENCIES);
        let mut sorted = self.ring;
        let sorted = &mut sorted[..count];
        sorted.sort_unstable();
        sorted.get(count / 2).copied().unwrap_or_default()
    }
}

impl ProbeMeter {
    /// Notes that a query that arrived with `in_flight` at the node ended after `latency`.
    pub fn ended(&mut self, in_flight: usize, latency: Nanos) {
        let at = in_flight.min(IN_FLIGHT_MAX - 1);
        if self.latencies.len() <= at {
            self.latencies.resize_with(at + 1, Latencies::default);
        }
        let of = &mut self.latencies[at];
        of.ring[of.count as usize % LATENCIES] = latency;
        // From the length of the ring on only the position in it counts.
        of.count = if of.count as usize >= 2 * LATENCIES - 1 {
            LATENCIES as u32
        } else {
            of.count + 1
        };
    }

    /// The answer to a probe: the median latency at the number in flight nearest to the present one that has latencies.
    pub fn probe(&self, in_flight: usize) -> Probe {
        let at = in_flight.min(IN_FLIGHT_MAX - 1);
        let has = |at: &usize| self.latencies.get(*at).is_some_and(|of| of.count > 0);
        let nearest = (0..IN_FLIGHT_MAX).find_map(|off| {
            let below = at.checked_sub(off).filter(has);
            below.or_else(|| Some(at + off).filter(has))
        });
        Probe {
            in_flight: in_flight as u32,
            latency: nearest.map_or(Nanos::ZERO, |at| self.latencies[at].median()),
        }
    }
}
