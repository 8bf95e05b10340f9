//! The balancer process (`Front`) between clients and nodes, which passes requests on.
//!
//! **Problem.** Clients should not have to know which node is the master, which nodes join, pause or are gone, and
//! which one has their data cached and time for them.
//!
//! **Method.** The balancer gets the state of nodes with heartbeats and with replies. Its policy, a [`Balancer`],
//! chooses the nodes for queries; transactions go to the master. Each client gets exactly one answer, by the deadline.
//! A request that was refused or whose node is gone is sent once more, while there is time and [`BUDGET`] for it: a
//! query by the policy's choice, a transaction to the node that the refusal names. A transaction is not sent again if
//! its node is gone: its client asks for the outcome.
//!
//! **Between two masters** it keeps transactions for [`HOLD`] at most, and sends them to the next one: when a node
//! leaves or dies, the transactions there cost their clients the time of a takeover. A kept transaction was sent to no
//! node, or refused, so it can still be answered as late.
//!
//! **Temporal objects** have a home among the nodes, which all balancers compute from the key alone: it is the source
//! of objects that are set through balancers. Through a balancer, an age that a node reports grows by the whole
//! transport to the client, and a reading that a client sets by the transport to the node: the node counts from the
//! last instant of its clock that the balancer knew.
//!
//! **Stateless.** All knowledge of a balancer is from the last 200 ms, so any other one can take its place, and several
//! work beside each other. A client of a balancer that dies goes to another, as when a connection breaks.
//!
//! **Joining.** A node reports for how long it has served. So a balancer that has just begun knows as well as any other
//! which nodes are new, and its policy gives them their load gradually.

use std::collections::{BTreeMap, BTreeSet};

use punctual_units::{Nanos, Time, fnv1a};

use crate::admission::Late;
use crate::balancer::{self, BUDGET, BUDGET_MAX, Balancer, PERIOD, Period, Query, mixed};
use crate::ids::{NodeId, RequestId};
use crate::liveness::{NODES_MAX, SUSPECT_AFTER};
use crate::message::{Answer, ClientReading, Heartbeat, Key, Output, Reason, Reply, Report, Request, Standing, Work};
use crate::node::MARGIN;
use crate::temporal::{DRIFT_PPM_MAX, true_at_most};

/// Most requests that a balancer has under way. As many as policies allow at one node's gate.
pub const FLIGHTS_MAX: usize = 65_536;
/// Part of a request's time reserved for the transport to a node and back; the node gets the rest.
pub const WAY: Nanos = Nanos::from_millis(1);

/// Time without a master for which transactions are kept for the next one: twice the wait before a takeover (four
/// missed heartbeats, or [`LISTEN`](crate::takeover::LISTEN)), and some head starts. Beyond, transactions are late at
/// once.
pub const HOLD: Nanos = Nanos(SUSPECT_AFTER.0 * 5 / 2);

/// An event of a balancer.
#[derive(Clone, Debug)]
pub enum FrontEvent {
    /// An instant has come, for example [`Front::wake_at`].
    Wake,
    /// A client sent a request. The process numbers clients' connections.
    Request(u64, Request),
    /// A node reported its state.
    Heartbeat(Heartbeat),
    /// A node answered the request that was sent to it under this number.
    Reply(NodeId, u64, Reply),
    /// The connection to a node was reset, or refused.
    Reset(NodeId),
}

/// An action that a balancer wants carried out.
#[derive(Clone, Debug)]
pub enum FrontAction {
    /// Send a request to a node; [`FrontEvent::Reply`] answers, with the same number.
    Send(NodeId, u64, Request),
    Answer(u64, RequestId, Answer),
}

/// Knowledge about a node.
#[derive(Clone, Copy, Debug)]
struct NodeStatus {
    heartbeat: Heartbeat,
    at: Time,
    /// Number of the node's last join to the policy, different each time: requests in flight from before do not count.
    joins: u64,
    /// Whether the policy may choose the node.
    joined: bool,
    /// Sum of the times that queries took since the last sampling point, and their number.
    delays: (Nanos, u64),
}

impl NodeStatus {
    /// State at a sampling point; the next period begins.
    fn sample(&mut self, node: NodeId) -> Period {
        let (sum, count) = std::mem::take(&mut self.delays);
        Period {
            node,
            delay: sum.0.checked_div(count).map(Nanos),
            report: self.heartbeat.said.report,
        }
    }
}

#[derive(Clone, Debug)]
struct Flight {
    client: u64,
    request: Request,
    deadline: Time,
    node: NodeId,
    /// Value of [`NodeStatus::joins`] when the request was sent.
    joins: u64,
    sent: Time,
    /// Whether the request was sent a second time.
    again: bool,
}

/// A balancer, as a value: the process around it passes events and its own time, and carries out the actions.
#[derive(Debug)]
pub struct Front {
    balancer: Box<dyn Balancer>,
    nodes: BTreeMap<NodeId, NodeStatus>,
    flights: BTreeMap<u64, Flight>,
    due: BTreeSet<(Time, u64)>,
    /// Transactions that wait for the next master, by the instant at which they are late.
    held: BTreeMap<(Time, u64), Flight>,
    /// End of that wait: set while there is no master, after there was one.
    hold_until: Option<Time>,
    tickets: u64,
    joins: u64,
    /// Next sampling point of the policy.
    samples_at: Time,
    /// Requests that may still be sent a second time, beside those that the policy sends again.
    budget: f64,
}

impl Front {
    /// A balancer that knows no node yet. `balancer` is the policy for queries; `draw` is a random number.
    pub fn new(balancer: Box<dyn Balancer>, draw: u64) -> Front {
        Front {
            balancer,
            nodes: BTreeMap::new(),
            flights: BTreeMap::new(),
            due: BTreeSet::new(),
            held: BTreeMap::new(),
            hold_until: None,
            tickets: draw >> 8, // far from overflow
            joins: 0,
            samples_at: Time::ZERO,
            budget: BUDGET_MAX / 10.0,
        }
    }

    /// Number of requests under way, kept ones included.
    pub fn under_way(&self) -> usize {
        self.flights.len() + self.held.len()
    }

    /// Takes an event at the balancer's own time `now`; returns the actions to carry out.
    pub fn step(&mut self, event: FrontEvent, now: Time) -> Vec<FrontAction> {
        let mut out = Vec::new();
        let had_master = self.master().is_some();
        match event {
            FrontEvent::Wake => {}
            FrontEvent::Request(client, request) => self.request(client, request, now, &mut out),
            FrontEvent::Heartbeat(heartbeat) => self.heartbeat(heartbeat, now),
            FrontEvent::Reply(node, ticket, reply) => self.replied(node, ticket, reply, now, &mut out),
            FrontEvent::Reset(node) => {
                self.forget(node, now);
                self.give_up(node, FailureSign::Reset, now, &mut out);
            }
        }
        self.suspect(now, &mut out);
        match self.master() {
            Some(master) => self.release(master, now, &mut out),
            None if had_master => self.hold_until = Some(now + HOLD),
            None => {}
        }
        self.expire(now, &mut out);
        out
    }

    /// The next instant at which it needs [`FrontEvent::Wake`], unless another event comes before.
    pub fn wake_at(&self) -> Time {
        let silence = self.nodes.values().map(|known| known.at + SUSPECT_AFTER);
        let due = self.due.first().map(|(at, _)| *at);
        let held = self.held.first_key_value().map(|((at, _), _)| *at);
        silence.chain(due).chain(held).min().unwrap_or(Time::MAX)
    }

    fn request(&mut self, client: u64, request: Request, now: Time, out: &mut Vec<FrontAction>) {
        let id = request.id;
        if let Err(refusal) = request.check() {
            out.push(FrontAction::Answer(client, id, Answer::Refused(refusal)));
        } else if request.time_left <= WAY + MARGIN {
            out.push(FrontAction::Answer(client, id, Answer::late(Reason::Expired, None)));
        } else if self.under_way() >= FLIGHTS_MAX {
            out.push(FrontAction::Answer(client, id, Answer::late(Reason::Backlog, None)));
        } else {
            self.budget = (self.budget + BUDGET).min(BUDGET_MAX);
            let deadline = now + request.time_left;
            let flight = Flight {
                client,
                request,
                deadline,
                node: NodeId::default(),
                joins: 0,
                sent: now,
                again: false,
            };
            match self.choose(&flight, now) {
                Some(node) => self.send(flight, node, now, out),
                None => self.hold(flight, now, out),
            }
        }
    }

    /// Keeps a transaction for the next master, if there was one until just now; answers any other request as late.
    fn hold(&mut self, flight: Flight, now: Time, out: &mut Vec<FrontAction>) {
        let (until, last) = (self.hold_until.unwrap_or(now), flight.deadline - flight.needs());
        if flight.request.work.for_master() && until.min(last) > now {
            self.tickets += 1;
            self.held.insert((until.min(last), self.tickets), flight);
        } else {
            let id = flight.request.id;
            out.push(FrontAction::Answer(flight.client, id, self.nowhere(&flight)));
        }
    }

    /// Sends the kept transactions to the present master.
    fn release(&mut self, master: NodeId, now: Time, out: &mut Vec<FrontAction>) {
        self.hold_until = None;
        for flight in std::mem::take(&mut self.held).into_values() {
            self.send(flight, master, now, out);
        }
    }

    /// The node for a request; `None` if no node can take it.
    fn choose(&mut self, flight: &Flight, now: Time) -> Option<NodeId> {
        match &flight.request.work {
            Work::Fresh(key) | Work::Sample(ClientReading { key, .. }) => self.home(key),
            work if work.for_master() => self.master(),
            _ => self.balancer.choose(&flight.query(self.tickets), now),
        }
    }

    /// The source of a temporal object: of the nodes that serve, the one with the highest hash of key and node. So a
    /// node that comes or goes moves no other node's objects.
    fn home(&self, key: &[u8]) -> Option<NodeId> {
        let serving = self.nodes.iter().filter(|(_, known)| known.joined);
        let drawn = |node: &NodeId| mixed(hashed(key) ^ mixed(u64::from(node.0)));
        serving.map(|(node, _)| *node).max_by_key(drawn)
    }

    /// The last heartbeat of each node, and its age.
    pub fn nodes(&self, now: Time) -> impl Iterator<Item = (Heartbeat, Nanos)> {
        let known = self.nodes.values();
        known.map(move |known| (known.heartbeat, now.since(known.at)))
    }

    /// The node that reports that it is the master, and takes requests; of two, the one of the later term.
    pub fn master(&self) -> Option<NodeId> {
        let masters = self.nodes.values().map(|known| known.heartbeat);
        let masters = masters.filter(|heartbeat| heartbeat.master && heartbeat.may_reign() && heartbeat.serves());
        masters
            .max_by_key(|heartbeat| heartbeat.epoch)
            .map(|heartbeat| heartbeat.from.node)
    }

    fn send(&mut self, mut flight: Flight, node: NodeId, now: Time, out: &mut Vec<FrontAction>) {
        self.tickets += 1;
        let ticket = self.tickets;
        flight.node = node;
        flight.joins = self.nodes.get(&node).map_or(0, |known| known.joins);
        flight.sent = now;
        let time_left = flight.deadline.since(now) - WAY;
        let mut request = Request {
            time_left,
            ..flight.request.clone()
        };
        if let Work::Sample(sample) = &mut request.work {
            let kept = now.since(flight.came());
            sample.age = Nanos(sample.age.0.saturating_add(true_at_most(kept, DRIFT_PPM_MAX).0));
            sample.since = self.nodes.get(&node).map(|known| known.heartbeat.said.at);
        }
        out.push(FrontAction::Send(node, ticket, request));
        self.due.insert((flight.deadline, ticket));
        self.flights.insert(ticket, flight);
    }

    fn remove(&mut self, ticket: u64) -> Option<Flight> {
        let flight = self.flights.remove(&ticket)?;
        self.due.remove(&(flight.deadline, ticket));
        Some(flight)
    }

    fn heartbeat(&mut self, heartbeat: Heartbeat, now: Time) {
        let node = heartbeat.from.node;
        if !self.nodes.contains_key(&node) && self.nodes.len() >= NODES_MAX {
            return;
        }
        let begin = NodeStatus {
            heartbeat,
            at: now,
            joins: 0,
            joined: false,
            delays: (Nanos::ZERO, 0),
        };
        let known = self.nodes.entry(node).or_insert(begin);
        (known.heartbeat, known.at) = (heartbeat, now);
        self.obey(node, heartbeat.said, now);
        if self.balancer.at_once() {
            let sampled = self.nodes.get_mut(&node).map(|known| known.sample(node));
            self.balancer.period(sampled.as_slice(), now);
        } else if now >= self.samples_at {
            self.samples_at = now + PERIOD;
            let known = self.nodes.iter_mut().filter(|(_, known)| known.joined);
            let sampled: Vec<Period> = known.map(|(node, known)| known.sample(*node)).collect();
            self.balancer.period(&sampled, now);
        }
    }

    /// Adds the node to the policy's choice or removes it, by the node's standing.
    fn obey(&mut self, node: NodeId, said: Report, now: Time) {
        let Some(known) = self.nodes.get_mut(&node) else {
            return;
        };
        known.heartbeat.said = said;
        let serves = said.standing == Standing::Serving;
        if serves && !known.joined {
            let since = Time(now.0.saturating_sub(said.serving_for.0));
            self.joins += 1;
            known.joins = self.joins;
            known.joined = self.balancer.join(node, since).is_ok();
        } else if !serves && known.joined {
            known.joined = false;
            self.balancer.leave(node, now);
        }
    }

    /// Passes a node's answer to its client, or the request to another node.
    fn replied(&mut self, node: NodeId, ticket: u64, reply: Reply, now: Time, out: &mut Vec<FrontAction>) {
        let Reply { id, mut answer, said } = reply;
        let ours = self.flights.get(&ticket).is_some_and(|flight| flight.node == node);
        let flight = if ours { self.remove(ticket) } else { None };
        let late = match answer {
            Answer::Late {
                reason, retry_after, ..
            } => Some(Late {
                reason,
                retry_after,
                node,
            }),
            _ => None,
        };
        if let Some(flight) = &flight {
            self.learn(flight, late, said, now);
            flight.age(&mut answer, now);
        }
        self.obey(node, said, now);
        let Some(flight) = flight else {
            return; // it was abandoned
        };
        let is_no_master = late.is_some_and(|late| late.reason == Reason::NoMaster);
        if is_no_master && let Some(known) = self.nodes.get_mut(&node) {
            known.heartbeat.master = false; // whatever its heartbeat said
        }
        match self.elsewhere(&flight, &answer, late, now) {
            Some(other) => self.send(Flight { again: true, ..flight }, other, now, out),
            None if is_no_master && self.may_hold(&flight, now) => {
                self.hold(Flight { again: true, ..flight }, now, out);
            }
            None => out.push(FrontAction::Answer(flight.client, id, answer)),
        }
    }

    /// Whether a transaction refused by a node that is not the master is kept for the next master.
    fn may_hold(&mut self, flight: &Flight, now: Time) -> bool {
        let may = !flight.again && flight.request.work.for_master() && flight.has_time(now) && self.once_more();
        if may && self.master().is_none() {
            // The refusal is the first sign that there is no master.
            self.hold_until.get_or_insert(now + HOLD);
        }
        may
    }

    fn learn(&mut self, flight: &Flight, late: Option<Late>, said: Report, now: Time) {
        let joined = |known: &&mut NodeStatus| known.joins == flight.joins;
        let known = self.nodes.get_mut(&flight.node).filter(joined);
        if let (true, Some(known)) = (flight.is_query() && !flight.request.work.for_master(), known) {
            let latency = now.since(flight.sent);
            known.delays = (known.delays.0 + latency, known.delays.1 + 1);
            let answer = balancer::QueryReply {
                items: flight.items(),
                latency,
                late,
                report: said.report,
            };
            self.balancer.answered(flight.node, &answer, now);
        }
    }

    /// Another node for a request that was refused, if there is time for it.
    fn elsewhere(&mut self, flight: &Flight, answer: &Answer, late: Option<Late>, now: Time) -> Option<NodeId> {
        let late = late.filter(|late| !flight.again && late.reason != Reason::Expired)?;
        if !flight.has_time(now) || flight.request.work.is_of_memory() {
            return None;
        }
        if !flight.request.work.for_master() {
            let query = flight.query(self.tickets);
            // A node that takes no requests is not a full one: another node is chosen as for a new query.
            let paused = self.nodes.get(&flight.node).is_none_or(|known| !known.joined);
            return match paused {
                true => self.once_more().then(|| self.balancer.choose(&query, now)).flatten(),
                false => self.balancer.again(&query, &late, now),
            };
        }
        let Answer::Late { node: named, .. } = answer else {
            return None;
        };
        let other = named.or(self.master()).filter(|other| *other != flight.node)?;
        self.once_more().then_some(other)
    }

    /// Takes one resend from the budget; false if the budget is used up.
    fn once_more(&mut self) -> bool {
        let there = self.budget >= 1.0;
        if there {
            self.budget -= 1.0;
        }
        there
    }

    /// Forgets nodes that have been silent for too long, and resends or answers their requests.
    fn suspect(&mut self, now: Time, out: &mut Vec<FrontAction>) {
        let silent = |known: &NodeStatus| now.since(known.at) >= SUSPECT_AFTER;
        let silent: Vec<NodeId> = self
            .nodes
            .iter()
            .filter(|(_, known)| silent(known))
            .map(|(node, _)| *node)
            .collect();
        for node in silent {
            self.forget(node, now);
            self.give_up(node, FailureSign::Silent, now, out);
        }
    }

    fn forget(&mut self, node: NodeId, now: Time) {
        if self.nodes.remove(&node).is_some_and(|known| known.joined) {
            self.balancer.leave(node, now);
        }
    }

    /// Resends or answers the requests at a node that is gone.
    fn give_up(&mut self, node: NodeId, gone: FailureSign, now: Time, out: &mut Vec<FrontAction>) {
        let there = self.flights.iter().filter(|(_, flight)| flight.node == node);
        let tickets: Vec<u64> = there.map(|(ticket, _)| *ticket).collect();
        for ticket in tickets {
            let query = self.flights[&ticket].is_query();
            if !query && gone == FailureSign::Silent {
                continue; // the node may still answer
            }
            let Some(flight) = self.remove(ticket) else { continue };
            let (client, id) = (flight.client, flight.request.id);
            if !query && !flight.request.work.is_of_memory() {
                out.push(FrontAction::Answer(client, id, Answer::Unknown));
                continue;
            }
            let another = !flight.again && flight.has_time(now) && self.once_more();
            match another.then(|| self.choose(&flight, now)).flatten() {
                Some(other) => self.send(Flight { again: true, ..flight }, other, now, out),
                // The reading may have been set.
                None if matches!(flight.request.work, Work::Sample(_)) => {
                    out.push(FrontAction::Answer(client, id, Answer::Unknown));
                }
                None => out.push(FrontAction::Answer(client, id, self.nowhere(&flight))),
            }
        }
    }

    /// The answer if no node can take the request. Where no node serves, none is the master, whatever was asked.
    fn nowhere(&self, flight: &Flight) -> Answer {
        let serves = self.nodes.values().any(|known| known.joined);
        let reason = match flight.request.work.for_master() || !serves {
            true => Reason::NoMaster,
            false => Reason::Backlog,
        };
        Answer::late(reason, None)
    }

    /// Answers requests that their nodes have not answered by the deadline.
    fn expire(&mut self, now: Time, out: &mut Vec<FrontAction>) {
        while let Some(first) = self.held.first_entry().filter(|first| first.key().0 <= now) {
            let flight = first.remove();
            let (client, id) = (flight.client, flight.request.id);
            out.push(FrontAction::Answer(client, id, self.nowhere(&flight)));
        }
        while let Some((_, ticket)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            let Some(flight) = self.remove(ticket) else { return };
            // A query leaves no effect: without an answer it counts as not executed.
            let answer = match flight.is_query() || matches!(flight.request.work, Work::Fresh(_)) {
                true => Answer::late(Reason::Expired, None),
                false => Answer::Unknown,
            };
            out.push(FrontAction::Answer(flight.client, flight.request.id, answer));
        }
    }
}

/// The sign by which a node counts as gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureSign {
    Reset,
    Silent,
}

impl Flight {
    fn keys(&self) -> &[Key] {
        self.request.work.keys()
    }

    fn is_query(&self) -> bool {
        self.request.work.is_query()
    }

    /// Arrival of the request.
    fn came(&self) -> Time {
        self.deadline - self.request.time_left
    }

    /// Adds the time since the request was sent to an age that its node reported.
    fn age(&self, answer: &mut Answer, now: Time) {
        if let Answer::Done {
            output: Output::Reading(Some((age, _))),
            ..
        } = answer
        {
            *age = Nanos(
                age.0
                    .saturating_add(true_at_most(now.since(self.sent), DRIFT_PPM_MAX).0),
            );
        }
    }

    fn items(&self) -> u32 {
        self.request.work.items()
    }

    /// The query as a policy sees it: where its first record is cached, the others probably are.
    fn query(&self, draw: u64) -> Query {
        Query {
            key: self.keys().first().map_or(0, |key| hashed(key)),
            items: self.items(),
            deadline: self.deadline,
            draw: mixed(draw),
        }
    }

    /// Whether another node could still answer.
    fn has_time(&self, now: Time) -> bool {
        self.deadline.since(now) > self.needs()
    }

    /// The least time that a node needs to answer it.
    fn needs(&self) -> Nanos {
        WAY * 2 + MARGIN
    }
}

/// A hash of a key, equal on all balancers.
fn hashed(key: &[u8]) -> u64 {
    fnv1a(key.iter().copied())
}
