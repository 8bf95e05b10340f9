//! A federation under load, as queues: the queries served in time under each balancer and admission policy.
//!
//! **Problem.** Balancers and admission are about load, and load needs many clients, many nodes and long runs. Only the
//! parts that they depend on are simulated here; their own code is that of [`punctual_federation`].
//!
//! **Terms.** A [`Setup`] holds the nodes, the data, the clients and the changes of nodes. A [`QueryPolicy`] is a
//! balancer and a gate (admission policy). A [`Summary`] is the result of one run. *Executors* are the cores of a node
//! that execute queries.
//!
//! **Method.** Events are handled in order of time. A query travels to the balancer's choice, waits there in the node's
//! intake, runs on one executor for (items x cost), cheaper where its key is cached, and its reply travels back. Only
//! the reply, and nothing earlier, informs the balancer of it. The same setup, policy and seed give the same bytes. The
//! queries of an open loop are the same under every policy.
//!
//! **Left out.** The master and its commits: a transaction takes a client [`TRANSACTION`], and no time of a replica.
//! Lost messages, which [`super`] simulates. Contention of executors for anything but their cores.

mod cache;
mod clients;
mod engine;
mod node;
mod summary;
#[cfg(test)]
mod tests;

use punctual_control::{ArxModel, Integration};
use punctual_federation::admission::{AdmissionKind, Gate, ServiceOrder, Timely};
use punctual_federation::balancer::NODES_MAX;
use punctual_loop::backlog::{Backlog, BacklogGround};
use punctual_platform::Machine;
use punctual_units::{Nanos, Share, Time};

use crate::balancers::BalancerChoice;

pub use summary::{NodeSample, Second, Summary};

/// Time of a transaction for its client: the paper's master is never the bottleneck.
pub const TRANSACTION: Nanos = Nanos::from_millis(20);
/// Time between two sampling points: the paper's P.
pub const PERIOD: Nanos = Nanos::from_secs(1);
/// Time between two heartbeats, which bring reports to balancers that use them at any time.
pub const HEARTBEAT: Nanos = Nanos::from_millis(100);
/// Cost of an item that an intake assumes before it has learned: less than any real cost here, so that it admits
/// queries.
pub const COST_FIRST: Nanos = Nanos::from_micros(50);

/// Nodes, data, clients and changes of a simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The replicas, numbered from 0.
    pub nodes: Vec<NodeModel>,
    /// Number of balancers, which share the queries but no state: at least 1.
    pub balancers: u32,
    /// Sizes, costs and keys of queries.
    pub work: WorkModel,
    /// Source of the queries.
    pub clients: QuerySource,
    /// Place where clients wait until a node has accepted their connection.
    pub waiting: ConnectionLimit,
    /// Order of service under all gates except `GateKind::Timely` and `GateKind::Limited`, which serve by deadline.
    pub order: ServiceOrder,
    /// Time from sending a query to its deadline.
    pub deadline: Nanos,
    /// One-way delay between balancer and node.
    pub wire: Nanos,
    /// Time from the death of a node until balancers know.
    pub detection: Nanos,
    /// Changes of nodes, by time.
    pub changes: Vec<(Time, NodeChange)>,
    /// Figures count from this instant on.
    pub judged_from: Time,
    /// End of the run.
    pub until: Time,
}

/// A replica that executes queries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeModel {
    /// Number of cores that execute queries, at least 1.
    pub executors: usize,
    /// Speed relative to the costs, which are for 1.
    pub speed: f64,
    /// Whether the node is present from the start.
    pub present: bool,
}

/// Sizes, costs and keys of queries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkModel {
    /// Least and largest number of items of a query.
    pub items: (u32, u32),
    /// Time of one executor for an item that is not cached.
    pub cost: Nanos,
    /// Share of the cost saved where the data is cached.
    pub saved: Share,
    /// Number of different keys.
    pub keys: u32,
    /// Number of keys that a node caches at most.
    pub cached: u32,
    /// Variation of costs from query to query.
    pub spread: Spread,
    /// Keys that are asked for more often; `None`: all alike.
    pub hot: Option<Hot>,
}

/// Variation of a query's cost around its mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// Uniform, by at most this share of the mean to either side.
    Even(f64),
    /// Exponentially distributed.
    Exponential,
}

/// A group of keys with more than their proportion of queries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hot {
    /// Share of the queries that ask for one of these keys.
    pub share: f64,
    /// Number of these keys.
    pub keys: u32,
    /// Begin of the preference.
    pub from: Time,
}

/// Source of the queries.
#[derive(Clone, Debug, PartialEq)]
pub enum QuerySource {
    /// Each client thinks, sends, and waits for the answer.
    Closed {
        /// Number of clients.
        count: u32,
        /// Phases by begin, with the least and the longest time to think; the first begins at 0.
        think: Vec<(Time, Nanos, Nanos)>,
        /// Share of transactions among the requests.
        transactions: f64,
    },
    /// Queries arrive whether earlier ones are answered or not: a Poisson process.
    Open {
        /// Phases by begin, with the number of queries per second; the first begins at 0.
        rates: Vec<(Time, f64)>,
    },
}

/// Place where a client waits whose query finds no room at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionLimit {
    /// Every node accepts every connection at once, as the paper describes it.
    Taken,
    /// Connections of a node are limited. A client that finds none free tries again, as a TCP connection does whose SYN
    /// was dropped.
    Places {
        /// Number of connections of a node at once.
        places: usize,
        /// Time after which the client tries again.
        retry: Nanos,
    },
}

/// Change of a node during the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NodeChange {
    /// The node joins, with an empty cache.
    Join(usize),
    /// The node announces that it leaves: balancers know at once, and it finishes its queries.
    Leave(usize),
    /// The node dies: its queries are lost, and balancers learn of it after [`Setup::detection`].
    Crash(usize),
    /// The node has another speed from now on.
    Speed(usize, f64),
}

/// A gate (admission policy), by name.
#[derive(Clone, Debug, PartialEq)]
pub enum GateKind {
    /// Every query is admitted.
    Open,
    /// The paper's control law sets the bound of each node's backlog once a period.
    Published {
        /// Model identified on a node: [`BacklogGround::model`].
        model: Box<ArxModel>,
        /// Reading of equation 5.
        integration: Integration,
    },
    /// A bound of the backlog in items, chosen by hand; expired queries are dropped.
    Limited(u64),
    /// The project's own gate.
    Timely,
    /// The bound of the backlog is set by hand, one for each period, over and over: identification.
    Held(Vec<u64>),
}

impl GateKind {
    /// Name in tables and labels.
    pub fn name(&self) -> &'static str {
        match self {
            GateKind::Open => "none",
            GateKind::Published { .. } => "published",
            GateKind::Limited(_) => "limit",
            GateKind::Timely => "ours",
            GateKind::Held(_) => "held",
        }
    }

    fn gate(&self, goal: Nanos) -> Gate {
        match self {
            GateKind::Limited(_) => Gate::Dropping,
            GateKind::Open | GateKind::Held(_) => AdmissionKind::Open.gate(Timely::new(goal)),
            GateKind::Published { .. } => AdmissionKind::Paper.gate(Timely::new(goal)),
            GateKind::Timely => AdmissionKind::Timely.gate(Timely::new(goal)),
        }
    }
}

/// A balancer and a gate.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryPolicy {
    /// Chooses the node of each query.
    pub balancer: BalancerChoice,
    /// Decides whether the node admits the query.
    pub gate: GateKind,
}

/// A setup that cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct SetupError {
    /// Name of the faulty field.
    pub what: &'static str,
    /// The fault, and a remedy.
    pub why: String,
}

impl Setup {
    /// The paper's testbed (Chronos-C, section 5.1) with this many slaves: 2 cores each, queries of 60 to 100 items,
    /// 1500 clients for each slave that think 3.5 to 4 s, from 200 s on 1 to 1.5 s; 90 % queries; 600 s, of which the
    /// first 100 do not count.
    ///
    /// Assumed, because the paper does not state them: an item costs 205 us and 12 % less where it is cached, which
    /// puts the totals of FC-Prop and FC-Hash in its Table 1; a node caches a quarter of the data; costs vary by 20 %;
    /// 300 connections a node and a new try after 3 s, or its numbers contradict Little's law; threads are served in no
    /// order.
    pub fn paper(slaves: usize) -> Setup {
        let second = |at: u64| Time(at * 1_000_000_000);
        Setup {
            nodes: vec![NodeModel::PAPER; slaves],
            balancers: 1,
            work: WorkModel {
                items: (60, 100),
                cost: Nanos::from_micros(205),
                saved: Share::clamped(0.12),
                keys: 2048,
                cached: 512,
                spread: Spread::Even(0.2),
                hot: None,
            },
            clients: QuerySource::Closed {
                count: 1500 * slaves as u32,
                think: vec![
                    (Time(0), Nanos::from_millis(3500), Nanos::from_millis(4000)),
                    (second(200), Nanos::from_millis(1000), Nanos::from_millis(1500)),
                ],
                transactions: 0.1,
            },
            waiting: ConnectionLimit::Places {
                places: 300,
                retry: Nanos::from_secs(3),
            },
            order: ServiceOrder::Random,
            deadline: Nanos::from_secs(1),
            wire: Nanos::from_micros(100),
            detection: Nanos::from_millis(200),
            changes: Vec::new(),
            judged_from: second(100),
            until: second(600),
        }
    }

    /// Largest number of queries per second that the present nodes can serve: everything cached, no executor ever idle.
    pub fn capacity(&self) -> f64 {
        let present = self.nodes.iter().filter(|node| node.present);
        let executors: f64 = present.map(|node| node.executors as f64 * node.speed).sum();
        let items = f64::from(self.work.items.0 + self.work.items.1) / 2.0;
        let cost = self.work.cost.as_secs_f64() * (1.0 - self.work.saved.get());
        executors / (items * cost)
    }

    /// Simulates one run.
    ///
    /// # Errors
    /// [`SetupError`] names the field that cannot be simulated, or the reason why the gate's model gives no law.
    pub fn run(&self, policy: &QueryPolicy, seed: u64) -> Result<Summary, SetupError> {
        self.check()?;
        let law = self.law(&policy.gate)?;
        Ok(engine::Engine::new(self, policy, law, seed).run())
    }

    /// Makes the control law for the nodes' knobs, with its inputs; `None` for gates without one.
    fn law(&self, gate: &GateKind) -> Result<Option<(BacklogGround, Backlog)>, SetupError> {
        let GateKind::Published { model, integration } = gate else {
            return Ok(None);
        };
        let ground = BacklogGround {
            model: (**model).clone(),
            integration: *integration,
            target: self.deadline,
            offers: node::machine(self, 0, gate).offers().clone(),
        };
        let law = Backlog::new(&ground).map_err(|error| SetupError {
            what: "gate",
            why: error.to_string(),
        })?;
        Ok(Some((ground, law)))
    }

    fn check(&self) -> Result<(), SetupError> {
        let refuse = |what, why: &str| Err(SetupError { what, why: why.into() });
        if self.nodes.is_empty() || self.nodes.len() > NODES_MAX {
            return refuse("nodes", "from 1 to 65536 of them");
        }
        let fast = |node: &NodeModel| node.speed > 0.0 && node.speed.is_finite() && node.executors > 0;
        if !self.nodes.iter().all(fast) {
            return refuse("nodes", "each has an executor and a speed above 0");
        }
        if self.balancers == 0 {
            return refuse("balancers", "at least 1");
        }
        let WorkModel {
            items,
            cost,
            keys,
            cached,
            ..
        } = self.work;
        if items.0 == 0 || items.0 > items.1 || cost == Nanos::ZERO {
            return refuse("work", "queries have at least one item, and items a cost");
        }
        if keys == 0 || cached == 0 {
            return refuse("work", "there is at least one key, and room for one in a cache");
        }
        let changed = |change: &NodeChange| match *change {
            NodeChange::Join(node) | NodeChange::Leave(node) | NodeChange::Crash(node) => node,
            NodeChange::Speed(node, _) => node,
        };
        if self
            .changes
            .iter()
            .any(|(_, change)| changed(change) >= self.nodes.len())
        {
            return refuse("changes", "each is about one of the nodes, which count from 0");
        }
        match &self.clients {
            QuerySource::Closed { think, .. } if think.is_empty() => refuse("clients", "they think for some time"),
            QuerySource::Open { rates } if rates.is_empty() => refuse("clients", "queries come at some rate"),
            _ => Ok(()),
        }
    }
}

impl NodeModel {
    /// The paper's node: two cores.
    pub const PAPER: NodeModel = NodeModel {
        executors: 2,
        speed: 1.0,
        present: true,
    };
}
