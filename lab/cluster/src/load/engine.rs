//! The simulation under load: handles events in order of time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use punctual_federation::admission::{Ask, BacklogReport, Late, Reason};
use punctual_federation::balancer::{Query, QueryReply};
use punctual_federation::ids::NodeId;
use punctual_loop::backlog::{Backlog, BacklogGround};
use punctual_loop::{DeciderSetup, EventLog};
use punctual_units::{Nanos, Time};

use super::clients::{Draws, QueryDraw};
use super::node::{NodeState, Number};
use super::summary::{AnsweredQuery, Summary, SummaryBuilder};
use super::{ConnectionLimit, GateKind, HEARTBEAT, NodeChange, PERIOD, QueryPolicy, QuerySource, Setup, TRANSACTION};
use crate::balancers::{Balancing, Probe};

/// Kinds of events. Nodes, balancers and changes are numbers here: events are copied often.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A client has thought and sends; in an open loop, one more query arrives.
    Client(u32),
    /// A query reaches its node.
    Arrive {
        number: Number,
        trip: u64,
    },
    /// An executor has finished.
    Finish {
        node: u32,
        executor: u32,
        life: u32,
    },
    /// A reply reaches its balancer.
    Reply(Number),
    /// A query in a queue can no longer end in time.
    Expire(u32),
    /// A probe reaches a node, and its answer the balancer.
    Ask {
        node: u32,
        balancer: u32,
    },
    Said {
        node: u32,
        balancer: u32,
        probe: Probe,
    },
    /// Sampling points of all nodes and balancers.
    Sample,
    Heartbeat,
    /// A node changes as the setup lists.
    Change(u32),
    /// Balancers learn that a node is dead.
    Eject(u32),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Time,
    /// Order of creation, which decides between events of one instant.
    number: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// A query between its sending and its end.
#[derive(Clone, Copy, Debug)]
struct Flight {
    drawn: QueryDraw,
    client: u32,
    balancer: u32,
    /// When the client sent the query, and when it was sent to its present node.
    sent: Time,
    sent_here: Time,
    node: NodeId,
    /// Distinguishes this trip from other uses of the slot.
    trip: u64,
    /// Queries at the node when this one arrived.
    in_flight: u32,
    /// Whether the query was sent to a second node already.
    again: bool,
    state: State,
    report: BacklogReport,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// The slot is free.
    Free,
    /// On the way to a node, waiting there for a connection or an executor, or running.
    Away,
    /// Answered by the node after this long there; the reply is on its way.
    Answered(Nanos),
    /// Refused; the reply is on its way.
    Refused(Late),
}

const NO_REPORT: BacklogReport = BacklogReport {
    backlog: 0,
    requests: 0,
    cost: 0.0,
    executors: 1,
    bound: 0.0,
};

/// State of one run.
pub(super) struct Engine<'s> {
    setup: &'s Setup,
    policy: &'s QueryPolicy,
    held: Vec<u64>,
    now: Time,
    events: BinaryHeap<Reverse<Entry>>,
    made: u64,
    nodes: Vec<NodeState>,
    law: Option<Backlog>,
    /// Number of deaths of each node: queries begun before the last do not finish.
    lives: Vec<u32>,
    balancers: Vec<Balancing>,
    draws: Draws,
    flights: Vec<Flight>,
    free: Vec<Number>,
    counts: SummaryBuilder,
    samples: usize,
    asked: Vec<NodeId>,
}

impl<'s> Engine<'s> {
    /// Starts a run. If a control law sets the nodes' knobs, it is the same for all: `law`, with its inputs.
    pub(super) fn new(
        setup: &'s Setup,
        policy: &'s QueryPolicy,
        law: Option<(BacklogGround, Backlog)>,
        seed: u64,
    ) -> Self {
        let (ground, law) = law.unzip();
        let numbers = 0..setup.nodes.len();
        let balancer = |_| policy.balancer.balancer();
        let mut engine = Engine {
            setup,
            policy,
            held: match &policy.gate {
                GateKind::Held(bounds) => bounds.clone(),
                _ => Vec::new(),
            },
            now: Time(0),
            events: BinaryHeap::new(),
            made: 0,
            nodes: numbers
                .map(|number| NodeState::new(setup, number, &policy.gate, law.clone()))
                .collect(),
            law: law.clone(),
            lives: vec![0; setup.nodes.len()],
            balancers: (0..setup.balancers).map(balancer).collect(),
            draws: Draws::new(seed),
            flights: Vec::new(),
            free: Vec::new(),
            counts: SummaryBuilder::new(setup.judged_from, setup.until, setup.deadline),
            samples: 0,
            asked: Vec::new(),
        };
        if let Some(ground) = ground {
            let setup = DeciderSetup::Backlog(Box::new(ground));
            engine.nodes[0].record(EventLog::of(setup, usize::MAX));
        }
        engine.begin();
        engine
    }

    pub(super) fn run(mut self) -> Summary {
        while let Some(Reverse(entry)) = self.events.pop() {
            if entry.at > self.setup.until {
                break;
            }
            self.now = entry.at;
            self.happens(entry.event);
        }
        let under_way = self.flights.iter().filter(|flight| flight.state != State::Free);
        let under_way = under_way.count() as u64;
        let log = self.nodes[0].take_log();
        self.counts.end(under_way, log)
    }

    fn begin(&mut self) {
        for number in 0..self.nodes.len() {
            if self.nodes[number].alive {
                self.joined(number);
            }
            self.hold(number);
        }
        match &self.setup.clients {
            QuerySource::Closed { count, .. } => {
                let most = self.setup.think(self.now).1;
                for client in 0..*count {
                    let first = self.draws.between(Nanos::ZERO, most);
                    self.after(first, Event::Client(client));
                }
            }
            QuerySource::Open { .. } => self.next_arrival(),
        }
        for (number, (at, _)) in self.setup.changes.iter().enumerate() {
            self.at(*at, Event::Change(number as u32));
        }
        self.after(PERIOD, Event::Sample);
        self.after(HEARTBEAT, Event::Heartbeat);
    }

    fn at(&mut self, at: Time, event: Event) {
        self.made += 1;
        let number = self.made;
        self.events.push(Reverse(Entry { at, number, event }));
    }

    fn after(&mut self, span: Nanos, event: Event) {
        self.at(self.now + span, event);
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Client(client) => self.client(client),
            Event::Arrive { number, trip } => {
                // The query may have been sent elsewhere since, or the slot may hold another.
                if self.flights[number as usize].trip == trip {
                    self.arrive(number);
                }
            }
            Event::Finish { node, executor, life } => {
                if self.lives[node as usize] == life {
                    self.finish(node as usize, executor as usize);
                }
            }
            Event::Reply(number) => self.reply(number),
            Event::Expire(node) => {
                self.nodes[node as usize].wake = Time(u64::MAX);
                self.pump(node as usize);
            }
            Event::Ask { node, balancer } => self.ask(node, balancer),
            Event::Said { node, balancer, probe } => {
                self.balancers[balancer as usize].probed(NodeId(node), probe, self.now);
            }
            Event::Sample => self.sample(),
            Event::Heartbeat => self.heartbeat(),
            Event::Change(number) => self.change(self.setup.changes[number as usize].1),
            Event::Eject(node) => self.eject(node as usize),
        }
    }

    // Clients.

    fn next_arrival(&mut self) {
        let rate = self.setup.rate(self.now);
        if rate > 0.0 {
            let gap = self.draws.gap(rate);
            self.after(gap, Event::Client(0));
        }
    }

    fn client(&mut self, client: u32) {
        if let QuerySource::Closed { transactions, .. } = self.setup.clients {
            if self.draws.happens(transactions) {
                self.think(client, TRANSACTION);
                return;
            }
        } else {
            self.next_arrival();
        }
        self.counts.offered(self.now);
        let drawn = self.draws.query(&self.setup.work, self.now);
        let balancer = match self.setup.clients {
            QuerySource::Closed { .. } => client % self.setup.balancers,
            QuerySource::Open { .. } => (drawn.draw % u64::from(self.setup.balancers)) as u32,
        };
        let number = self.take_off(Flight {
            drawn,
            client,
            balancer,
            sent: self.now,
            sent_here: self.now,
            node: NodeId(0),
            trip: 0,
            in_flight: 0,
            again: false,
            state: State::Away,
            report: NO_REPORT,
        });
        let query = self.query(number);
        match self.balancers[balancer as usize].policy().choose(&query, self.now) {
            Some(node) => self.send(number, node),
            None => {
                self.counts.refused(self.now);
                self.land(number);
            }
        }
        self.probe(&query, balancer);
    }

    /// Lets the client think, from `rest` on, and then send its next query.
    fn think(&mut self, client: u32, rest: Nanos) {
        let (least, most) = self.setup.think(self.now);
        let thought = self.draws.between(least, most);
        self.after(rest + thought, Event::Client(client));
    }

    fn take_off(&mut self, flight: Flight) -> Number {
        match self.free.pop() {
            Some(number) => {
                self.flights[number as usize] = flight;
                number
            }
            None => {
                self.flights.push(flight);
                (self.flights.len() - 1) as Number
            }
        }
    }

    /// Ends a query; its client continues.
    fn land(&mut self, number: Number) {
        let flight = &mut self.flights[number as usize];
        flight.state = State::Free;
        flight.trip = u64::MAX;
        let client = flight.client;
        self.free.push(number);
        if let QuerySource::Closed { .. } = self.setup.clients {
            self.think(client, Nanos::ZERO);
        }
    }

    fn deadline(&self, flight: &Flight) -> Time {
        flight.sent + self.setup.deadline
    }

    fn query(&self, number: Number) -> Query {
        let flight = &self.flights[number as usize];
        Query {
            key: u64::from(flight.drawn.key),
            items: flight.drawn.items,
            deadline: self.deadline(flight),
            draw: flight.drawn.draw,
        }
    }

    // Balancers.

    fn send(&mut self, number: Number, node: NodeId) {
        let trip = self.made;
        let flight = &mut self.flights[number as usize];
        flight.node = node;
        flight.sent_here = self.now;
        flight.trip = trip;
        flight.state = State::Away;
        self.after(self.setup.wire, Event::Arrive { number, trip });
    }

    fn probe(&mut self, query: &Query, balancer: u32) {
        let mut asked = std::mem::take(&mut self.asked);
        asked.clear();
        self.balancers[balancer as usize].probes(query, &mut asked);
        for node in &asked {
            let node = node.0;
            self.after(self.setup.wire, Event::Ask { node, balancer });
        }
        self.asked = asked;
    }

    fn ask(&mut self, node: u32, balancer: u32) {
        let asked = &self.nodes[node as usize];
        if asked.alive {
            let probe = asked.meter.probe(asked.intake().requests());
            self.after(self.setup.wire, Event::Said { node, balancer, probe });
        }
    }

    fn reply(&mut self, number: Number) {
        let flight = self.flights[number as usize];
        let late = match flight.state {
            State::Refused(late) => Some(late),
            State::Answered(_) => None,
            State::Free | State::Away => return,
        };
        let answer = QueryReply {
            items: flight.drawn.items,
            latency: self.now.since(flight.sent_here),
            late,
            report: flight.report,
        };
        self.balancers[flight.balancer as usize]
            .policy()
            .answered(flight.node, &answer, self.now);
        match flight.state {
            State::Answered(at_node) => {
                let answered = AnsweredQuery {
                    items: flight.drawn.items,
                    gone: self.nodes[flight.node.0 as usize].leaving,
                    at_node,
                    delay: self.now.since(flight.sent),
                };
                self.counts.answered(self.now, &answered);
                self.land(number);
            }
            _ => self.refused(number, late),
        }
    }

    /// Sends a refused query to another node, or else counts it as refused.
    fn refused(&mut self, number: Number, late: Option<Late>) {
        if !self.send_again(number, late) {
            self.counts.refused(self.now);
            self.land(number);
        }
    }

    fn send_again(&mut self, number: Number, late: Option<Late>) -> bool {
        let flight = self.flights[number as usize];
        let Some(late) = late.filter(|late| !flight.again && late.reason == Reason::Backlog) else {
            return false;
        };
        let query = self.query(number);
        let Some(node) = self.balancers[flight.balancer as usize]
            .policy()
            .again(&query, &late, self.now)
        else {
            return false;
        };
        self.flights[number as usize].again = true;
        self.counts.again(self.now);
        self.send(number, node);
        true
    }

    // Nodes.

    fn arrive(&mut self, number: Number) {
        let (now, flight) = (self.now, self.flights[number as usize]);
        let at = flight.node.0 as usize;
        let node = &mut self.nodes[at];
        if !node.alive {
            // Balancers will learn of the death and send the queries lost here again.
            return;
        }
        if let ConnectionLimit::Places { places, retry } = self.setup.waiting
            && node.intake().requests() >= places
        {
            let trip = flight.trip;
            self.after(retry, Event::Arrive { number, trip });
            return;
        }
        let ask = Ask {
            items: flight.drawn.items,
            deadline: flight.sent + self.setup.deadline,
        };
        node.account(now);
        let in_flight = node.intake().requests() as u32;
        match node.intake().judge(ask, now) {
            Ok(forecast) => {
                node.intake_mut().enter(ask, forecast, number, now);
                self.flights[number as usize].in_flight = in_flight;
                self.pump(at);
            }
            Err(late) => self.refuse(number, late),
        }
    }

    fn refuse(&mut self, number: Number, late: Late) {
        let at = self.flights[number as usize].node.0 as usize;
        let report = self.nodes[at].intake().report();
        let flight = &mut self.flights[number as usize];
        flight.state = State::Refused(late);
        flight.report = report;
        let deadline = flight.sent + self.setup.deadline;
        self.counts.said(self.now, deadline);
        self.after(self.setup.wire, Event::Reply(number));
    }

    /// Drops queries that cannot end in time any more, and starts queries on free executors.
    fn pump(&mut self, at: usize) {
        let now = self.now;
        if !self.nodes[at].alive {
            return;
        }
        self.nodes[at].account(now);
        while let Some((number, late)) = self.nodes[at].intake_mut().expired(now) {
            self.refuse(number, late);
        }
        let mut draw = self.made;
        while let Some(start) = self.nodes[at].intake_mut().start(now, draw) {
            draw = self.flights[start.work as usize].drawn.draw;
            let QueryDraw { key, factor, .. } = self.flights[start.work as usize].drawn;
            let (cached, span) = self.nodes[at].serve(self.setup, &start, key, factor, draw);
            self.counts.started(now, cached, span);
            let life = self.lives[at];
            let (node, executor) = (at as u32, start.executor as u32);
            self.after(span, Event::Finish { node, executor, life });
        }
        if let Some(expiry) = self.nodes[at].intake().next_expiry()
            && expiry < self.nodes[at].wake
        {
            self.nodes[at].wake = expiry;
            self.at(expiry.max(now), Event::Expire(at as u32));
        }
    }

    fn finish(&mut self, at: usize, executor: usize) {
        let node = &mut self.nodes[at];
        node.account(self.now);
        let number = node.running[executor];
        let Some(served) = node.intake_mut().finish(executor, self.now) else {
            return;
        };
        node.ended(served.delay);
        let flight = &mut self.flights[number as usize];
        node.meter.ended(flight.in_flight as usize, served.delay);
        flight.state = State::Answered(served.delay);
        flight.report = node.intake().report();
        self.after(self.setup.wire, Event::Reply(number));
        self.pump(at);
    }

    // Periods and changes.

    fn sample(&mut self) {
        self.samples += 1;
        let mut said = Vec::with_capacity(self.nodes.len());
        for (number, node) in self.nodes.iter_mut().enumerate() {
            let (period, sample) = node.sample(self.now);
            if node.alive {
                said.push(period);
            }
            if number == 0 {
                self.counts.sampled(sample);
            }
        }
        for number in 0..self.nodes.len() {
            self.hold(number);
        }
        let sampled = self.balancers.iter_mut().map(Balancing::policy);
        sampled
            .filter(|policy| !policy.at_once())
            .for_each(|policy| policy.period(&said, self.now));
        self.after(PERIOD, Event::Sample);
    }

    /// Sets the knob for the coming period, where a list of bounds was given.
    fn hold(&mut self, number: usize) {
        if !self.held.is_empty() {
            self.nodes[number].hold(self.held[self.samples % self.held.len()]);
        }
    }

    fn heartbeat(&mut self) {
        if !self.balancers.iter_mut().any(|balancer| balancer.policy().at_once()) {
            return;
        }
        let alive = self.nodes.iter().filter(|node| node.alive);
        let said: Vec<_> = alive.map(NodeState::beat).collect();
        let hearing = self.balancers.iter_mut().map(Balancing::policy);
        hearing.for_each(|policy| policy.period(&said, self.now));
        self.after(HEARTBEAT, Event::Heartbeat);
    }

    fn joined(&mut self, number: usize) {
        let id = self.nodes[number].id;
        for balancer in &mut self.balancers {
            // The setup was checked: there are at most as many nodes as numbers.
            let _ = balancer.policy().join(id, self.now);
        }
    }

    fn change(&mut self, change: NodeChange) {
        match change {
            NodeChange::Join(number) => {
                self.nodes[number].alive = true;
                self.nodes[number].leaving = false;
                self.joined(number);
            }
            NodeChange::Leave(number) => {
                self.nodes[number].leaving = true;
                self.left(number);
            }
            NodeChange::Crash(number) => {
                self.nodes[number] = NodeState::new(self.setup, number, &self.policy.gate, self.law.clone());
                self.nodes[number].alive = false;
                self.lives[number] += 1;
                self.after(self.setup.detection, Event::Eject(number as u32));
            }
            NodeChange::Speed(number, speed) => self.nodes[number].speed = speed,
        }
    }

    fn left(&mut self, number: usize) {
        let id = self.nodes[number].id;
        for balancer in &mut self.balancers {
            balancer.policy().leave(id, self.now);
        }
    }

    /// Removes a dead node from the balancers. Queries only read, so those that died with the node may be sent again.
    fn eject(&mut self, number: usize) {
        self.left(number);
        let id = self.nodes[number].id;
        let there = |flight: &Flight| flight.node == id && flight.state == State::Away;
        let lost: Vec<Number> = (0..self.flights.len() as Number)
            .filter(|at| there(&self.flights[*at as usize]))
            .collect();
        let late = Late {
            reason: Reason::Backlog,
            retry_after: Nanos::ZERO,
            node: id,
        };
        for number in lost {
            if !self.send_again(number, Some(late)) {
                self.counts.lost(self.now);
                self.land(number);
            }
        }
    }
}
