//! A federation under load, as queues: what is served in time under which balancer and which admission?
//!
//! **Problem.** Balancers and admission are about load, and load needs many clients, many nodes and long runs. Here
//! only what they depend on is simulated; their code is that of [`punctual_federation`].
//!
//! **Terms.** A [`Setup`] is the nodes, the data, the clients and what happens to the nodes. A [`Policy`] is a balancer
//! and a gate. A [`Summary`] is what came of one run. *Executors* are the cores of a node that carry out queries.
//!
//! **Method.** Events in order of time. A query takes a way to the balancer's choice, waits there by the node's intake,
//! runs on one executor for (items x cost), cheaper where its key is cached, and its reply takes the way back. The
//! reply, and nothing earlier, tells the balancer of it. The same setup, policy and seed give the same bytes. The
//! queries of an open loop are the same under every policy.
//!
//! **Left out.** The master and what it commits: a transaction takes a client [`TRANSACTION`] and nothing of a slave.
//! Messages that are lost, which [`super`] has. Contention of executors for anything but their cores.

mod cache;
mod clients;
mod engine;
mod node;
mod summary;
#[cfg(test)]
mod tests;

use punctual_control::{ArxModel, Integration};
use punctual_federation::admission::{Gate, Order, Timely};
use punctual_federation::balancer::{
    Balancer, Bounded, By, FcHash, Home, NODES_MAX, PeakEwma, Prequal, Proportional, RoundRobin,
};
use punctual_loop::backlog::{Backlog, BacklogGround};
use punctual_platform::Machine;
use punctual_units::{Nanos, Share, Time};

pub use summary::{NodeSample, Second, Summary};

/// What a transaction takes its client: the paper's master is never the bottleneck.
pub const TRANSACTION: Nanos = Nanos::from_millis(20);
/// Between two sampling points: the paper's P.
pub const PERIOD: Nanos = Nanos::from_secs(1);
/// Between two heartbeats, which bring reports to balancers that use them at any time.
pub const HEARTBEAT: Nanos = Nanos::from_millis(100);
/// What an intake supposes an item to cost before it has learned: less than anything here, so that it tries.
pub const COST_FIRST: Nanos = Nanos::from_micros(50);

/// What is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The slaves, numbered from 0.
    pub nodes: Vec<NodeModel>,
    /// Balancers that share the queries without knowing of each other: at least 1.
    pub balancers: u32,
    /// What queries are.
    pub work: WorkModel,
    /// Where they come from.
    pub clients: Clients,
    /// Where clients wait before a node has taken their connection.
    pub waiting: Waiting,
    /// The order of service under gates but ours, which has its own.
    pub order: Order,
    /// From sending a query to its deadline.
    pub deadline: Nanos,
    /// One way between balancer and node.
    pub wire: Nanos,
    /// From the death of a node until balancers know.
    pub detection: Nanos,
    /// What happens to nodes, by time.
    pub changes: Vec<(Time, Change)>,
    /// Figures count from here.
    pub judged_from: Time,
    /// The end.
    pub until: Time,
}

/// One slave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeModel {
    /// Cores that carry out queries, at least 1.
    pub executors: usize,
    /// Speed, 1 as the costs say.
    pub speed: f64,
    /// Whether it is there from the start.
    pub present: bool,
}

/// What queries are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkModel {
    /// Items of a query, from and up to.
    pub items: (u32, u32),
    /// Time of one executor for an item that is not cached.
    pub cost: Nanos,
    /// What is saved of it where the data is cached.
    pub saved: Share,
    /// Different keys.
    pub keys: u32,
    /// Keys that a node has cached at most.
    pub cached: u32,
    /// How costs vary from query to query.
    pub spread: Spread,
    /// Keys that are asked for more often.
    pub hot: Option<Hot>,
}

/// How the cost of a query varies around its mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// Evenly, by at most this share of the mean to either side.
    Even(f64),
    /// Exponentially.
    Exponential,
}

/// Some keys have more than their part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hot {
    /// The share of queries that ask for one of them.
    pub share: f64,
    /// How many they are.
    pub keys: u32,
    /// From when on.
    pub from: Time,
}

/// Where queries come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Clients {
    /// Each client thinks, sends, and waits for the answer.
    Closed {
        /// How many there are.
        count: u32,
        /// From when on they think how long, at least and at most; the first from 0 on.
        think: Vec<(Time, Nanos, Nanos)>,
        /// The share of transactions.
        transactions: f64,
    },
    /// Queries come whether earlier ones are answered or not: a Poisson process.
    Open {
        /// From when on how many a second come; the first from 0 on.
        rates: Vec<(Time, f64)>,
    },
}

/// Where a client waits whose query a node has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Every node takes every connection at once, as the paper describes it.
    Taken,
    /// A node has so many places. A client that finds none tries again, as a TCP connection does whose SYN was dropped.
    Places {
        /// Connections that a node has at once.
        places: usize,
        /// After how long the client tries again.
        retry: Nanos,
    },
}

/// What happens to a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// It comes, with an empty cache.
    Join(usize),
    /// It says so and goes: balancers know at once, and it finishes what it has.
    Leave(usize),
    /// It dies: what it has is lost, and balancers learn of it after [`Setup::detection`].
    Crash(usize),
    /// It has another speed from now on.
    Speed(usize, f64),
}

/// A balancer, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BalancerKind {
    /// One after the other.
    RoundRobin,
    /// In proportion to 1 / delay.
    Prop,
    /// In proportion to the bounds.
    FcProp,
    /// Hashed, in proportion to the bounds.
    FcHash,
    /// Power of two choices.
    P2c,
    /// Probes.
    Prequal,
    /// Hashed, with bounded loads.
    Bounded,
    /// Ours.
    Home,
}

impl BalancerKind {
    /// All of them: the paper's, others', ours.
    pub const ALL: [BalancerKind; 8] = [
        BalancerKind::RoundRobin,
        BalancerKind::Prop,
        BalancerKind::FcProp,
        BalancerKind::FcHash,
        BalancerKind::P2c,
        BalancerKind::Prequal,
        BalancerKind::Bounded,
        BalancerKind::Home,
    ];

    /// Its name in tables and labels.
    pub const fn name(self) -> &'static str {
        match self {
            BalancerKind::RoundRobin => "rr",
            BalancerKind::Prop => "prop",
            BalancerKind::FcProp => "fc-prop",
            BalancerKind::FcHash => "fc-hash",
            BalancerKind::P2c => "p2c",
            BalancerKind::Prequal => "prequal",
            BalancerKind::Bounded => "bounded",
            BalancerKind::Home => "ours",
        }
    }

    /// One without nodes.
    pub fn balancer(self) -> Box<dyn Balancer> {
        match self {
            BalancerKind::RoundRobin => Box::new(RoundRobin::default()),
            BalancerKind::Prop => Box::new(Proportional::new(By::Delay)),
            BalancerKind::FcProp => Box::new(Proportional::new(By::Bound)),
            BalancerKind::FcHash => Box::new(FcHash::default()),
            BalancerKind::P2c => Box::new(PeakEwma::default()),
            BalancerKind::Prequal => Box::new(Prequal::default()),
            BalancerKind::Bounded => Box::new(Bounded::default()),
            BalancerKind::Home => Box::new(Home::default()),
        }
    }
}

/// A gate, by name.
#[derive(Clone, Debug, PartialEq)]
pub enum GateKind {
    /// Everything is let in.
    Open,
    /// The paper's law turns the bound of each node's backlog once a period.
    Published {
        /// Identified on a node: [`BacklogGround::model`].
        model: Box<ArxModel>,
        /// Which reading of equation 5.
        integration: Integration,
    },
    /// A bound of the backlog in items, chosen by hand, and expired queries dropped.
    Limited(u64),
    /// Ours.
    Timely,
    /// The knob is turned by hand, a bound of the backlog for each period, over and over: identification.
    Held(Vec<u64>),
}

impl GateKind {
    /// Its name in tables and labels.
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
            GateKind::Open | GateKind::Held(_) | GateKind::Published { .. } => Gate::Open,
            GateKind::Limited(_) => Gate::Dropping,
            GateKind::Timely => Gate::Timely(Timely::new(goal)),
        }
    }
}

/// A balancer and a gate.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Which node gets a query.
    pub balancer: BalancerKind,
    /// Whether the node takes it.
    pub gate: GateKind,
}

/// A setup that cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct SetupError {
    /// The field.
    pub what: &'static str,
    /// What is wrong, and what would do.
    pub why: String,
}

impl Setup {
    /// The paper's testbed (Chronos-C, section 5.1) with so many slaves: 2 cores each, queries of 60 to 100 items, 1500
    /// clients for each slave that think 3.5 to 4 s, from 200 s on 1 to 1.5 s; 90 % queries; 600 s, of which the first
    /// 100 do not count.
    ///
    /// What the paper does not state: an item costs 205 us and 12 % less where it is cached, which puts the totals of
    /// FC-Prop and FC-Hash in its Table 1; a node caches a quarter of the data; costs vary by 20 %; 300 connections a
    /// node and a new try after 3 s, or its numbers contradict Little's law; threads are served in no order.
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
            clients: Clients::Closed {
                count: 1500 * slaves as u32,
                think: vec![
                    (Time(0), Nanos::from_millis(3500), Nanos::from_millis(4000)),
                    (second(200), Nanos::from_millis(1000), Nanos::from_millis(1500)),
                ],
                transactions: 0.1,
            },
            waiting: Waiting::Places {
                places: 300,
                retry: Nanos::from_secs(3),
            },
            order: Order::Random,
            deadline: Nanos::from_secs(1),
            wire: Nanos::from_micros(100),
            detection: Nanos::from_millis(200),
            changes: Vec::new(),
            judged_from: second(100),
            until: second(600),
        }
    }

    /// Queries a second that the present nodes can serve at most: everything cached, no executor ever idle.
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
    /// [`SetupError`] names the field that makes no simulation, or says why the gate's model makes no law.
    pub fn run(&self, policy: &Policy, seed: u64) -> Result<Summary, SetupError> {
        self.check()?;
        let law = self.law(&policy.gate)?;
        Ok(engine::Engine::new(self, policy, law, seed).run())
    }

    /// What turns the nodes' knobs, and what it is made from.
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
        let changed = |change: &Change| match *change {
            Change::Join(node) | Change::Leave(node) | Change::Crash(node) => node,
            Change::Speed(node, _) => node,
        };
        if self
            .changes
            .iter()
            .any(|(_, change)| changed(change) >= self.nodes.len())
        {
            return refuse("changes", "each is about one of the nodes, which count from 0");
        }
        match &self.clients {
            Clients::Closed { think, .. } if think.is_empty() => refuse("clients", "they think for some time"),
            Clients::Open { rates } if rates.is_empty() => refuse("clients", "queries come at some rate"),
            _ => Ok(()),
        }
    }
}

impl NodeModel {
    /// The paper's: two cores.
    pub const PAPER: NodeModel = NodeModel {
        executors: 2,
        speed: 1.0,
        present: true,
    };
}
