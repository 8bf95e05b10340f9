//! This project's policy: the node that has the data cached, unless another one would answer earlier by a margin.
//!
//! **Method.** A key has [`HOMES`] homes on a circle. The balancer computes for each node
//!
//! ```text
//! answer after = backlog x cost / executors + (items of a mean query) x cost       no wait while an executor is free
//! backlog      = own in flight + what others had there when the node last replied
//! ```
//!
//! and takes the first home that answers no later than the mean of all nodes plus [`SLACK`] of their mean wait, else
//! the node that would answer first. That is consistent hashing with bounded loads (V. Mirrokni, M. Thorup and M.
//! Zadimoghaddam, SODA 2018) where a load is a time: a node that is slower, or whose queries are longer, is full
//! earlier. The busier all nodes are, the more the saving by cached data counts, and the less an early answer.
//!
//! *Why the mean and not the least.* The least of many waits falls with their number: of 1000 nodes one is idle by
//! chance, and compared to it every home is too slow. Queries then leave their homes, find nothing cached elsewhere,
//! and evict other data there. The mean of all nodes does not depend on their number.
//!
//! Its own count in flight is exact at every instant: a reply is old when it comes, and later queries are not in it. So
//! a burst is spread while it comes, and nodes that are slower or busy with other work get less.
//!
//! *Overflow stays together.* The second home of a key gets the queries that the first has no time for, so a hot key is
//! cached on two nodes and not on all.
//!
//! *One more try.* A refused query is sent once more, if another node would answer in time with the same slack and has
//! as much room below its bound d_i. At most [`BUDGET`] of the queries are sent twice: with every node full, retries
//! would only add load, and take the room of queries whose data is cached there.
//!
//! *A joiner is cold.* It gets its points on the circle over [`RAMP`], beside nodes that are older: the shares of
//! points are proportional to ages, of [`RAMP`] at most. So a balancer that has just begun ramps a joiner as any other
//! does, if [`Balancer::join`] gets the instant at which the node came.

use punctual_units::{Nanos, Time};

use super::least::Least;
use super::ring::{HashRing, place};
use super::table::{NodeTable, TooLarge};
use super::{Balancer, Period, Query, QueryReply};
use crate::admission::{BacklogReport, Late};
use crate::ids::NodeId;

/// Homes of a key.
pub const HOMES: usize = 2;
/// Part of the mean wait of all nodes by which a home may answer later than the mean: the quarter of bounded loads.
pub const SLACK: f64 = 0.25;
/// Queries sent a second time, as a share of all.
pub const BUDGET: f64 = 0.1;
/// Most queries sent a second time in a row.
pub const BUDGET_MAX: f64 = 100.0;
/// Time in which a joiner gets all of its keys.
pub const RAMP: Nanos = Nanos::from_secs(5);
/// Points of a node on the circle.
const POINTS: u64 = 64;
/// Queries over which the mean size fades.
const SIZES: f64 = 256.0;
/// Seconds of an executor for an item before the first report: less than any real cost, so that a new node is tried.
const COST_FIRST: f64 = 1e-5;
/// Points visited in search of the homes of a key: neighbours on the circle may belong to one node.
const WALK_MAX: usize = 16;

#[derive(Clone, Copy, Debug)]
struct NodeLoad {
    own_items: u64,
    own: u32,
    /// Load by other balancers at the last report.
    others_items: u64,
    others: u32,
    /// Seconds of an executor for an item.
    cost: f64,
    executors: u32,
    /// d of the last report, in items.
    bound: f64,
    joined: Time,
}

impl NodeLoad {
    fn hear(&mut self, report: &BacklogReport) {
        self.others_items = report.backlog.saturating_sub(self.own_items);
        self.others = report.requests.saturating_sub(self.own);
        self.cost = report.cost;
        self.executors = report.executors.max(1);
        self.bound = report.bound;
    }

    /// Whether the node has room for `items`, with [`SLACK`] of its backlog to spare.
    fn has_room(&self, items: u32) -> bool {
        let backlog = (self.own_items + self.others_items) as f64;
        backlog * (1.0 + SLACK) + f64::from(items) <= self.bound
    }

    /// Seconds until a query of `items` would be answered.
    fn answer_after(&self, items: f64) -> f64 {
        let wait = if self.own + self.others < self.executors {
            0.0
        } else {
            (self.own_items + self.others_items) as f64 / f64::from(self.executors)
        };
        (wait + items) * self.cost
    }
}

/// The policy of this project.
#[derive(Clone, Debug)]
pub struct Home {
    nodes: NodeTable<NodeLoad>,
    ring: HashRing,
    /// Seconds until a mean query would be answered, by number of node.
    expected: Least,
    size: f64,
    budget: f64,
    /// Whether nodes have come or gone, or are on the ramp: then the circle is rebuilt before the next query.
    stale: bool,
    ramping: bool,
}

impl Default for Home {
    fn default() -> Home {
        Home {
            nodes: NodeTable::default(),
            ring: HashRing::default(),
            expected: Least::default(),
            size: 0.0,
            budget: BUDGET_MAX / 10.0,
            stale: false,
            ramping: false,
        }
    }
}

impl Home {
    fn expect(&mut self, node: NodeId) {
        if let Some(known) = self.nodes.get(node) {
            self.expected.set(node.0 as usize, known.answer_after(self.size));
        }
    }

    fn send(&mut self, node: NodeId, query: &Query) {
        if let Some(known) = self.nodes.get_mut(node) {
            known.own_items += u64::from(query.items);
            known.own += 1;
        }
        self.expect(node);
    }

    /// `expected`, in seconds until a mean query is answered, plus [`SLACK`] of the part that is wait.
    fn with_slack(&self, expected: f64, cost: f64) -> f64 {
        expected + SLACK * (expected - self.size * cost).max(0.0)
    }

    /// The first home that is not too far behind the mean of all nodes; `first` is the node that would answer first.
    fn home(&self, query: &Query, first: usize) -> Option<NodeId> {
        let cost = self.nodes.get(NodeId(first as u32)).map_or(0.0, |known| known.cost);
        let most = self.with_slack(self.expected.mean()?, cost);
        let mut seen = [None; HOMES];
        let mut count = 0;
        for node in self.ring.from(place(query.key)).take(WALK_MAX) {
            if seen.contains(&Some(node)) {
                continue;
            }
            if self.expected.get(node.0 as usize) <= most {
                return Some(node);
            }
            seen[count] = Some(node);
            count += 1;
            if count == HOMES {
                break;
            }
        }
        None
    }

    /// Rebuilds the circle. A node's part of its points is the ratio of its age to the oldest node's, both [`RAMP`] at
    /// most.
    fn rebuild(&mut self, now: Time) {
        let age = |node: NodeId| {
            self.nodes
                .get(node)
                .map_or(Nanos::ZERO, |known| now.since(known.joined).min(RAMP))
        };
        let nodes = self.nodes.nodes();
        let oldest = nodes.iter().map(|node| age(*node)).max().unwrap_or_default();
        // At a cold start all nodes are equally young.
        let share = |node| {
            if oldest == Nanos::ZERO {
                1.0
            } else {
                age(node).ratio(oldest)
            }
        };
        self.ring = HashRing::with_points(nodes, |node| ((share(node) * POINTS as f64) as u64).max(1));
        self.ramping = nodes.iter().any(|node| share(*node) < 1.0);
        self.stale = false;
    }
}

impl Balancer for Home {
    fn choose(&mut self, query: &Query, now: Time) -> Option<NodeId> {
        if self.stale {
            self.rebuild(now);
        }
        let items = f64::from(query.items);
        self.size = if self.size == 0.0 {
            items
        } else {
            self.size + (items - self.size) / SIZES
        };
        self.budget = (self.budget + BUDGET).min(BUDGET_MAX);
        let first = self.expected.least()?;
        let node = self.home(query, first).unwrap_or(NodeId(first as u32));
        self.send(node, query);
        Some(node)
    }

    fn answered(&mut self, node: NodeId, answer: &QueryReply, _now: Time) {
        if let Some(known) = self.nodes.get_mut(node) {
            known.own_items = known.own_items.saturating_sub(u64::from(answer.items));
            known.own = known.own.saturating_sub(1);
            known.hear(&answer.report);
        }
        self.expect(node);
    }

    fn again(&mut self, query: &Query, late: &Late, now: Time) -> Option<NodeId> {
        let first = self.expected.least()?;
        let node = NodeId(first as u32);
        let left = query.deadline.since(now).as_secs_f64();
        let known = self.nodes.get(node)?;
        let after = self.with_slack(self.expected.get(first), known.cost);
        if self.budget < 1.0 || node == late.node || !known.has_room(query.items) || after > left {
            return None;
        }
        self.budget -= 1.0;
        self.send(node, query);
        Some(node)
    }

    fn at_once(&self) -> bool {
        true
    }

    fn period(&mut self, nodes: &[Period], _now: Time) {
        for said in nodes {
            if let Some(known) = self.nodes.get_mut(said.node) {
                known.hear(&said.report);
            }
            self.expect(said.node);
        }
        self.stale |= self.ramping;
    }

    fn join(&mut self, node: NodeId, now: Time) -> Result<(), TooLarge> {
        let known = NodeLoad {
            own_items: 0,
            own: 0,
            others_items: 0,
            others: 0,
            cost: COST_FIRST,
            executors: 1,
            bound: f64::INFINITY,
            joined: now,
        };
        if self.nodes.join(node, known)? {
            self.expect(node);
            self.stale = true;
        }
        Ok(())
    }

    fn leave(&mut self, node: NodeId, _now: Time) {
        if self.nodes.leave(node) {
            self.expected.set(node.0 as usize, f64::INFINITY);
            self.stale = true;
        }
    }
}
