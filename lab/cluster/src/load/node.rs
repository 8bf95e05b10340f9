//! A simulated replica: the real intake in front of executors that take time.

use punctual_federation::admission::{BacklogMachine, Intake, ServiceOrder, Start};
use punctual_federation::balancer::Period;
use punctual_federation::ids::NodeId;
use punctual_loop::EventLog;
use punctual_loop::backlog::{Backlog, BacklogSeen};
use punctual_platform::{Applied, KnobId, Machine, Plan, Provenance, Value};
use punctual_units::{Nanos, Time};

use super::cache::KeyCache;
use super::summary::NodeSample;
use super::{COST_FIRST, GateKind, NodeModel, PERIOD, Setup};
use crate::balancers::ProbeMeter;

/// A query at a node, by its number in the engine.
pub(super) type Number = u32;

/// State of one replica.
#[derive(Clone, Debug)]
pub(super) struct NodeState {
    pub(super) id: NodeId,
    pub(super) alive: bool,
    /// Whether the node has announced that it leaves: it finishes its queries.
    pub(super) leaving: bool,
    pub(super) speed: f64,
    machine: BacklogMachine<Number>,
    /// Control law of the node's knob; result of the last plan; log of decisions. `None`: no law, no plan yet, not
    /// recorded.
    law: Option<Backlog>,
    applied: Option<Applied>,
    log: Option<EventLog>,
    pub(super) meter: ProbeMeter,
    /// The query on each executor.
    pub(super) running: Vec<Number>,
    /// When to look for expired queries next.
    pub(super) wake: Time,
    cache: KeyCache,
    delays: Nanos,
    ended: u32,
    /// Items of backlog times seconds, since the last sampling point.
    area: f64,
    since: Time,
    bound: f64,
}

/// Name of a simulated node as a machine.
fn machine_name(number: usize) -> String {
    format!("simulated node {number}")
}

/// The machine of a node: intake and gate, without executors.
pub(super) fn machine(setup: &Setup, number: usize, gate: &GateKind) -> BacklogMachine<Number> {
    let order = match gate {
        GateKind::Timely | GateKind::Limited(_) => ServiceOrder::Deadline,
        GateKind::Open | GateKind::Published { .. } | GateKind::Held(_) => setup.order,
    };
    let id = NodeId(number as u32);
    let executors = setup.nodes[number].executors;
    let intake = Intake::new(id, executors, COST_FIRST, gate.gate(setup.deadline), order);
    BacklogMachine::new(machine_name(number), intake, Provenance::Simulated)
}

impl NodeState {
    /// Makes a node; `law` sets its knob, if given.
    pub(super) fn new(setup: &Setup, number: usize, gate: &GateKind, law: Option<Backlog>) -> NodeState {
        let NodeModel {
            executors,
            speed,
            present,
        } = setup.nodes[number];
        let mut node = NodeState {
            id: NodeId(number as u32),
            alive: present,
            leaving: false,
            speed,
            machine: machine(setup, number, gate),
            applied: None,
            log: None,
            law: None,
            meter: ProbeMeter::default(),
            running: vec![0; executors],
            wake: Time(u64::MAX),
            cache: KeyCache::new(setup.work.cached),
            delays: Nanos::ZERO,
            ended: 0,
            area: 0.0,
            since: Time(0),
            bound: f64::INFINITY,
        };
        let first = match (&law, gate) {
            (Some(law), _) => Some(law.plan()),
            (None, GateKind::Limited(items)) => Some(bound(*items)),
            (None, _) => None,
        };
        node.law = law;
        node.bound = node.intake().report().bound;
        if let Some(plan) = first {
            node.turn(&plan);
        }
        node
    }

    /// Records the decisions about the knob from now on.
    pub(super) fn record(&mut self, log: EventLog) {
        self.log = Some(log);
    }

    pub(super) fn take_log(&mut self) -> Option<EventLog> {
        self.log.take()
    }

    pub(super) fn intake(&self) -> &Intake<Number> {
        self.machine.intake()
    }

    pub(super) fn intake_mut(&mut self) -> &mut Intake<Number> {
        self.machine.intake_mut()
    }

    /// Sets the knob; every change goes through here.
    fn turn(&mut self, plan: &Plan) {
        self.applied = Some(self.machine.apply(plan));
        self.bound = self.intake().report().bound;
    }

    /// Lets the control law set the knob at a sampling point.
    fn regulate(&mut self, delay: Option<Nanos>, now: Time) {
        let Some(law) = &mut self.law else { return };
        self.machine.at(now);
        let seen = BacklogSeen {
            delay,
            applied: self.applied.take(),
        };
        let plan = law.step(&seen);
        if let Some(log) = &mut self.log {
            log.note(now, seen, plan);
        }
        self.turn(&plan);
    }

    /// Executes a query: returns whether its data was cached, and the time of the executor.
    pub(super) fn serve(
        &mut self,
        setup: &Setup,
        start: &Start<Number>,
        key: u32,
        factor: f32,
        draw: u64,
    ) -> (bool, Nanos) {
        let cached = self.cache.touch(key, draw);
        let saved = if cached { setup.work.saved.get() } else { 0.0 };
        let cost = setup.work.cost.as_secs_f64() * (1.0 - saved) * f64::from(factor) / self.speed;
        self.running[start.executor] = start.work;
        (cached, Nanos::from_secs_f64(cost * f64::from(start.ask.items)))
    }

    /// Must be called before the backlog changes.
    pub(super) fn account(&mut self, now: Time) {
        self.area += self.intake().backlog() as f64 * now.since(self.since).as_secs_f64();
        self.since = now;
    }

    pub(super) fn ended(&mut self, delay: Nanos) {
        self.delays += delay;
        self.ended += 1;
    }

    /// Ends a period: returns its figures, and lets the control law set the bound for the next.
    pub(super) fn sample(&mut self, now: Time) -> (Period, NodeSample) {
        self.account(now);
        let delay = (self.ended > 0).then(|| Nanos(self.delays.0 / u64::from(self.ended)));
        let sample = NodeSample {
            delay: delay.map(Nanos::as_secs_f64),
            backlog: self.area / PERIOD.as_secs_f64(),
            bound: self.bound,
        };
        self.regulate(delay, now);
        (self.delays, self.ended, self.area) = (Nanos::ZERO, 0, 0.0);
        let report = self.intake().report();
        self.bound = report.bound;
        let period = Period {
            node: self.id,
            delay,
            report,
        };
        (period, sample)
    }

    /// Contents of a heartbeat.
    pub(super) fn beat(&self) -> Period {
        Period {
            node: self.id,
            delay: None,
            report: self.intake().report(),
        }
    }

    /// Sets the knob to a bound given by hand.
    pub(super) fn hold(&mut self, items: u64) {
        self.turn(&bound(items));
    }
}

/// A plan that sets the bound of the backlog.
fn bound(items: u64) -> Plan {
    Plan::of(KnobId::Backlog, Value::Items(items))
}
