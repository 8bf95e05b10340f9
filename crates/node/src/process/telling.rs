//! Figures of the loop, and the stages of requests.

use std::sync::PoisonError;

use punctual_federation::action::{Action, Caller, Event};
use punctual_federation::message::{Answer, Message, Output};
use punctual_federation::temporal::{DRIFT_PPM_MAX, true_at_most};
use punctual_os::Os;
use punctual_os::linux::thread::thread_cpu_time;
use punctual_server::door::DoorState;
use punctual_store::engine::Engine;
use punctual_units::{Nanos, Time};

use super::Process;
use crate::bound::{BoundNotice, Outcome as Learned};
use crate::figures::{BoundFigures, Figures, Objects, Peer};
use crate::seen::TimedNotice;
use crate::spans::SpanStage;
use crate::stores::TaskResult;

impl<E: Engine + 'static, O: Os, T: FnMut(TimedNotice)> Process<E, O, T> {
    /// Ends the span of a client's request that has an answer.
    pub(super) fn ends(&mut self, ticket: u64, answer: &Answer, now: Time) {
        let ended = self.requests.spans.ends(ticket, answer, now);
        // Readings are answered from memory; the bound of the backlog does not delay them.
        if let (
            Some(turned),
            Some((false, took)),
            Answer::Done {
                output: Output::Values(_),
                ..
            },
        ) = (&mut self.turned, ended, answer)
        {
            turned.bound.ended(took);
        }
    }

    /// Moves requests to the stage that an action of the node puts them at.
    pub(super) fn trace(&mut self, action: &Action, now: Time) {
        match action {
            Action::Query(asked, ..) | Action::Look(asked, _) => {
                if let Some((Caller::Client(ticket), _)) = self.node.asked_by(*asked) {
                    self.requests.spans.moves(ticket, SpanStage::Lock, now);
                    self.requests.querying.insert(*asked, ticket);
                }
            }
            Action::Execute(_, _, requests) => {
                let tickets = requests
                    .iter()
                    .filter_map(|request| self.requests.spans.ticket(request.id));
                self.requests.batch = tickets.collect();
                self.batch_moves(SpanStage::Lock, now);
            }
            Action::Apply(..) if self.node.is_master() => self.batch_moves(SpanStage::Lock, now),
            Action::Send(_, Message::PassedOn(request)) => {
                if let Some(ticket) = self.requests.spans.ticket(request.id) {
                    self.requests.spans.moves(ticket, SpanStage::Network, now);
                }
            }
            _ => {}
        }
    }

    fn batch_moves(&mut self, to: SpanStage, at: Time) {
        for ticket in &self.requests.batch {
            self.requests.spans.moves(*ticket, to, at);
        }
    }

    /// Moves requests to their next stage when a thread of the store has finished a task.
    pub(super) fn worked(&mut self, done: &TaskResult) {
        match &done.result {
            Ok(Event::Queried(asked, ..)) => {
                if let Some(ticket) = self.requests.querying.remove(asked) {
                    self.requests.spans.moves(ticket, SpanStage::Store, done.begun);
                    self.requests.spans.moves(ticket, SpanStage::Queue, done.ended);
                }
            }
            Ok(Event::Executed(..)) => {
                self.batch_moves(SpanStage::Store, done.begun);
                self.batch_moves(SpanStage::Log, done.ended);
            }
            Ok(Event::Applied(_)) if self.node.is_master() => {
                self.batch_moves(SpanStage::Store, done.begun);
                self.batch_moves(SpanStage::Queue, done.ended);
            }
            _ => {}
        }
    }

    /// The figures for INFO and for the page.
    pub(super) fn figures(&self, door: &DoorState, now: Time) -> Figures {
        let live: Vec<_> = self.node.live(now).collect();
        let peer = |(node, peer): (&_, &super::PeerOut)| Peer {
            node: *node,
            address: peer.way.address.socket,
            is_live: live.contains(node),
            lost: peer.outgoing.lost(),
            written: peer.written,
            exchanged: self.objects.sensing.exchanged(*node),
        };
        Figures {
            node: self.setup.me.node,
            federation: self.setup.federation,
            page: self.page.address,
            at: now,
            uptime: now.since(self.started),
            is_master: self.node.is_master(),
            master: self.node.master(now),
            epoch: self.node.reign().epoch.0,
            applied: self.node.applied().0,
            lag: self.node.lag(now),
            said: self.node.said(now),
            commits: self.node.commits(now),
            queries_waiting: self.node.queries(),
            copied: self.last_report.copied,
            account: self.requests.spans.account.clone(),
            objects: self.objects(),
            peers: self.peers.outgoing.iter().map(peer).collect(),
            door: *door,
            unkept: self.clients.unkept + self.requests.unkept,
            peer_bytes: self.peers.bytes,
            bound: self.turned.as_ref().map(|turned| BoundFigures {
                mode: turned.bound.mode(),
                target: turned.bound.target(),
                delay: turned.bound.delay(),
                cpu: turned.cpu,
            }),
            tasks: self.tasks.as_ref().map(|tasks| tasks.now()),
        }
    }

    /// Closes a period of the control law that sets the backlog's bound, if one is due.
    pub(super) fn turn_bound(&mut self, now: Time) {
        let Some(turned) = self.turned.as_mut().filter(|turned| turned.bound.due() <= now) else {
            return;
        };
        let report = self.node.said(now).report;
        let began = thread_cpu_time();
        let told = turned.bound.close(self.node.machine(now), &report, now);
        turned.cpu += thread_cpu_time() - began;
        if turned.bound.learned().is_some() && matches!(told, Some(BoundNotice::Follows)) {
            *turned.outcome.lock().unwrap_or_else(PoisonError::into_inner) = turned.bound.outcome();
        }
        let target = turned.bound.target();
        self.seen_of_bound(told, target);
    }

    fn seen_of_bound(&mut self, told: Option<BoundNotice>, target: Nanos) {
        let Some(told) = told else { return };
        self.note(match told {
            BoundNotice::Learns => {
                "the node is loaded, and learns how its delay follows the bound of its backlog".into()
            }
            BoundNotice::Follows => format!("the bound of the backlog is turned so that the mean delay is {target}"),
            BoundNotice::Rests(why) => {
                format!("the bound of the backlog stays as it is: {why}; the node admits as before")
            }
        });
    }

    /// Leaves the control law's decisions for the process that started the node.
    pub(super) fn leave_decisions(&self) {
        if let Some(turned) = &self.turned {
            let outcome: Learned = turned.bound.outcome();
            *turned.outcome.lock().unwrap_or_else(PoisonError::into_inner) = outcome;
        }
    }

    fn objects(&self) -> Objects {
        let (mut ages, mut without) = (Vec::new(), 0);
        for (key, _) in self.replica.created() {
            match self.replica.age(&key) {
                Ok(Some(age)) => ages.push((key, true_at_most(age, DRIFT_PPM_MAX))),
                _ => without += 1,
            }
        }
        Objects {
            ages,
            without,
            own: self.objects.sensing.own() as u64,
            sets: self.objects.sensing.sets,
            rejected: self.objects.sensing.rejected,
            arrival_ages: [0.5, 0.99].map(|share| self.objects.sensing.ages.at(share)),
        }
    }

    /// Leaves figures for the page's thread.
    pub(super) fn publish(&self, door: &DoorState, now: Time) {
        self.page.publish(|| self.figures(door, now));
    }
}
