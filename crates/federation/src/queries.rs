//! Queries on a node: admitted or refused at once, then waiting for the revision that their session has seen, for an
//! executor, and for the store.
//!
//! A query waits for its session's revision for half of its time. If the node has not reached it by then, the query is
//! passed on to the master with the remaining time.

use std::collections::{BTreeMap, BTreeSet};

use punctual_platform::Provenance;
use punctual_units::{Nanos, Time};

use crate::action::{Caller, Ticket};
use crate::admission::{Ask, BacklogMachine, BacklogReport, Gate, Intake, Late, ServiceOrder, Start};
use crate::ids::{NodeId, RequestId, Revision};
use crate::message::{Reason, Request, Value, Work};
use crate::node::MARGIN;
use crate::records::RETRY_AFTER;

/// Most queries that wait on a node. A thousand of 1 ms each is a second of work for one core.
pub const QUERIES_MAX: usize = 1024;
/// The longest wait of a query for its session's revision, whatever time it has: a client may name a revision that will
/// never come.
pub const BEHIND_MAX: Nanos = Nanos::from_secs(10);
/// Assumed time of an item before any was measured.
pub const ITEM_TAKES: Nanos = Nanos::from_micros(10);

pub type Values = Vec<Option<Value>>;

/// The event that a query waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The session's revision: until `pass_at` before it is passed on, until `until` at the latest.
    Behind {
        pass_at: Time,
        until: Time,
    },
    Queued,
    Running {
        executor: usize,
    },
    /// The answer of the master, to which it was passed on.
    Passed,
}

/// A query that waits.
#[derive(Clone, Debug)]
pub struct WaitingQuery {
    /// Destination of the answer.
    pub caller: Caller,
    pub request: Request,
    deadline: Time,
    stage: Stage,
}

impl WaitingQuery {
    /// The query as admission sees it.
    fn ask(&self) -> Ask {
        Ask {
            items: self.request.work.items(),
            deadline: self.deadline - MARGIN,
        }
    }

    /// The next instant at which the query needs an action: [`MARGIN`] before its deadline at the latest.
    fn due(&self) -> Time {
        let last = self.deadline - MARGIN;
        match self.stage {
            Stage::Behind { pass_at, until } => pass_at.min(until).min(last),
            Stage::Queued | Stage::Running { .. } | Stage::Passed => last,
        }
    }
}

/// An action that a query needs.
#[derive(Clone, Debug)]
pub enum Due {
    /// Answer that it is late; the query is no longer kept.
    Late(WaitingQuery, Late),
    /// Pass it on to the master.
    Pass(Ticket),
}

/// The queries of one node.
#[derive(Clone, Debug)]
pub struct Queries {
    waiting: BTreeMap<Ticket, WaitingQuery>,
    due: BTreeSet<(Time, Ticket)>,
    /// The queries before the store; their bound is a knob.
    machine: BacklogMachine<Ticket>,
    node: NodeId,
}

impl Queries {
    /// No queries. The store answers `executors` at once, and `gate` admits the queries that it can answer in time.
    pub fn new(node: NodeId, executors: usize, gate: Gate) -> Queries {
        let intake = Intake::new(node, executors, ITEM_TAKES, gate, ServiceOrder::Deadline);
        Queries {
            waiting: BTreeMap::new(),
            due: BTreeSet::new(),
            machine: BacklogMachine::new(format!("node {}", node.0), intake, Provenance::Real),
            node,
        }
    }

    /// Whether the same request waits already, for the same caller. It may arrive twice: from a balancer that found
    /// another node dead, and from that node, which had passed it on.
    pub fn has(&self, caller: Caller, id: RequestId) -> bool {
        self.waiting
            .values()
            .any(|waiting| waiting.request.id == id && waiting.caller == caller)
    }

    /// Destination of the answer to that query, and its request.
    pub fn asked_by(&self, ticket: Ticket) -> Option<(Caller, RequestId)> {
        let waiting = self.waiting.get(&ticket)?;
        Some((waiting.caller, waiting.request.id))
    }

    pub fn count(&self) -> usize {
        self.waiting.len()
    }

    /// The machine of the queries, whose knob is the bound of their backlog.
    pub fn machine(&mut self) -> &mut BacklogMachine<Ticket> {
        &mut self.machine
    }

    /// The node's report on its backlog.
    pub fn report(&self) -> BacklogReport {
        self.machine.intake().report()
    }

    /// Takes a query, which waits for its session's revision until [`start`](Queries::start).
    ///
    /// # Errors
    /// [`Late`]: the query is not taken.
    pub fn take(&mut self, ticket: Ticket, caller: Caller, request: Request, now: Time) -> Result<(), Late> {
        let pass_at = now + Nanos(request.time_left.min(BEHIND_MAX).0 / 2);
        let until = now + BEHIND_MAX;
        let waiting = WaitingQuery {
            deadline: now + request.time_left,
            stage: Stage::Behind { pass_at, until },
            caller,
            request,
        };
        if self.waiting.len() >= QUERIES_MAX {
            return Err(self.late(Reason::Backlog));
        }
        self.machine.intake().judge(waiting.ask(), now)?;
        self.due.insert((waiting.due(), ticket));
        self.waiting.insert(ticket, waiting);
        Ok(())
    }

    fn late(&self, reason: Reason) -> Late {
        Late {
            reason,
            retry_after: RETRY_AFTER,
            node: self.node,
        }
    }

    /// Queues the queries whose revision has been applied for an executor; returns those that admission now finds late.
    pub fn enter(&mut self, applied: Revision, now: Time) -> Vec<Due> {
        let ready =
            |waiting: &WaitingQuery| matches!(waiting.stage, Stage::Behind { .. }) && waiting.request.seen <= applied;
        let ready = self.waiting.iter().filter(|(_, waiting)| ready(waiting));
        let tickets: Vec<_> = ready.map(|(ticket, waiting)| (*ticket, waiting.ask())).collect();
        let enter = |(ticket, ask)| match self.machine.intake().judge(ask, now) {
            Ok(forecast) => {
                self.machine.intake_mut().enter(ask, forecast, ticket, now);
                self.stage(ticket, Stage::Queued);
                None
            }
            Err(late) => self.remove(ticket).map(|waiting| Due::Late(waiting, late)),
        };
        tickets.into_iter().filter_map(enter).collect()
    }

    /// The next query for a free executor; it counts as running from now on.
    pub fn start(&mut self, now: Time) -> Option<(Ticket, Work)> {
        loop {
            let Start { executor, work, .. } = self.machine.intake_mut().start(now, 0)?;
            match self.stage(work, Stage::Running { executor }) {
                Some(waiting) => return Some((work, waiting.request.work.clone())),
                None => self.machine.intake_mut().abandon(executor), // its deadline has passed
            }
        }
    }

    fn stage(&mut self, ticket: Ticket, stage: Stage) -> Option<&WaitingQuery> {
        let waiting = self.waiting.get_mut(&ticket)?;
        self.due.remove(&(waiting.due(), ticket));
        waiting.stage = stage;
        self.due.insert((waiting.due(), ticket));
        Some(waiting)
    }

    fn remove(&mut self, ticket: Ticket) -> Option<WaitingQuery> {
        let waiting = self.waiting.remove(&ticket)?;
        self.due.remove(&(waiting.due(), ticket));
        Some(waiting)
    }

    /// Notes that the query is passed on to the master; returns it with its remaining time.
    pub fn passed(&mut self, ticket: Ticket, now: Time) -> Option<Request> {
        let waiting = self.stage(ticket, Stage::Passed)?;
        Some(Request {
            time_left: waiting.deadline.since(now),
            ..waiting.request.clone()
        })
    }

    /// Whether a client sent the query, and not a node that passed it on.
    pub fn is_of_client(&self, ticket: Ticket) -> bool {
        let caller = self.waiting.get(&ticket).map(|waiting| waiting.caller);
        matches!(caller, Some(Caller::Client(_)))
    }

    /// Lets a query that could not be passed on wait for its revision, for `BEHIND_MAX` at most.
    pub fn keep(&mut self, ticket: Ticket) {
        if let Some(Stage::Behind { until, .. }) = self.waiting.get(&ticket).map(|waiting| waiting.stage) {
            let pass_at = Time::MAX;
            self.stage(ticket, Stage::Behind { pass_at, until });
        }
    }

    /// The query that the store answered; `None` if its time is over.
    pub fn queried(&mut self, ticket: Ticket, now: Time) -> Option<WaitingQuery> {
        let waiting = self.remove(ticket)?;
        if let Stage::Running { executor } = waiting.stage {
            self.machine.intake_mut().finish(executor, now);
        }
        Some(waiting)
    }

    /// The query that the master answered; `None` if its time is over.
    pub fn answered(&mut self, id: RequestId) -> Option<WaitingQuery> {
        let passed = |waiting: &WaitingQuery| waiting.stage == Stage::Passed && waiting.request.id == id;
        let ticket = *self.waiting.iter().find(|(_, waiting)| passed(waiting))?.0;
        self.remove(ticket)
    }

    /// The next query that needs an action by `now`.
    pub fn due(&mut self, now: Time) -> Option<Due> {
        while let Some((ticket, late)) = self.machine.intake_mut().expired(now) {
            if let Some(waiting) = self.remove(ticket) {
                return Some(Due::Late(waiting, late));
            }
        }
        let (_, ticket) = *self.due.first().filter(|(at, _)| *at <= now)?;
        match self.waiting.get(&ticket)? {
            WaitingQuery {
                stage: Stage::Behind { until, .. },
                ..
            } if *until <= now => self.expire(ticket),
            waiting if waiting.deadline - MARGIN > now => Some(Due::Pass(ticket)),
            _ => self.expire(ticket),
        }
    }

    fn expire(&mut self, ticket: Ticket) -> Option<Due> {
        let waiting = self.remove(ticket)?;
        if let Stage::Running { executor } = waiting.stage {
            self.machine.intake_mut().abandon(executor); // the store still works on it, but no client waits for it
        }
        let late = self.late(Reason::Expired);
        Some(Due::Late(waiting, late))
    }

    /// Removes and returns all queries. Later answers of the store to them are ignored.
    pub fn dismiss(&mut self) -> Vec<WaitingQuery> {
        self.due.clear();
        let dismissed: Vec<WaitingQuery> = std::mem::take(&mut self.waiting).into_values().collect();
        for waiting in &dismissed {
            if let Stage::Running { executor } = waiting.stage {
                self.machine.intake_mut().abandon(executor);
            }
        }
        dismissed
    }

    /// The next instant at which [`due`](Queries::due) may have something to return.
    pub fn next_due(&self) -> Time {
        let first = self.due.first().map(|(at, _)| *at);
        first
            .into_iter()
            .chain(self.machine.intake().next_expiry())
            .min()
            .unwrap_or(Time::MAX)
    }
}
