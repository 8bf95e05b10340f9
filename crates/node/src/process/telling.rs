//! Figures of the loop, and the stages of requests.

use std::sync::PoisonError;

use punctual_federation::action::{Action, Caller, Event};
use punctual_federation::message::{Answer, Message, Output};
use punctual_federation::temporal::{InboxBounds, true_at_most};
use punctual_os::Os;
use punctual_os::linux::thread::thread_cpu_time;
use punctual_store::engine::Engine;
use punctual_units::{Nanos, Time};

use super::Process;
use crate::bound::{Outcome as Learned, Told};
use crate::figures::{Figures, Objects, Peer, Turned};
use crate::seen::Seen;
use crate::spans::Place;
use crate::stores::Done;

impl<E: Engine + 'static, O: Os, T: FnMut(Seen)> Process<E, O, T> {
    /// Ends the span of a client's request that has an answer.
    pub(super) fn ends(&mut self, ticket: u64, answer: &Answer, now: Time) {
        let ended = self.spans.ends(ticket, answer, now);
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
                    self.spans.moves(ticket, Place::Lock, now);
                    self.querying.insert(*asked, ticket);
                }
            }
            Action::Execute(_, _, requests) => {
                let tickets = requests.iter().filter_map(|request| self.spans.ticket(request.id));
                self.batch = tickets.collect();
                self.batch_moves(Place::Lock, now);
            }
            Action::Apply(..) if self.node.is_master() => self.batch_moves(Place::Lock, now),
            Action::Send(_, Message::PassedOn(request)) => {
                if let Some(ticket) = self.spans.ticket(request.id) {
                    self.spans.moves(ticket, Place::Network, now);
                }
            }
            _ => {}
        }
    }

    fn batch_moves(&mut self, to: Place, at: Time) {
        for ticket in &self.batch {
            self.spans.moves(*ticket, to, at);
        }
    }

    /// Moves requests to their next stage when a thread of the store has finished a task.
    pub(super) fn worked(&mut self, done: &Done) {
        match &done.result {
            Ok(Event::Queried(asked, ..)) => {
                if let Some(ticket) = self.querying.remove(asked) {
                    self.spans.moves(ticket, Place::Store, done.begun);
                    self.spans.moves(ticket, Place::Queue, done.ended);
                }
            }
            Ok(Event::Executed(..)) => {
                self.batch_moves(Place::Store, done.begun);
                self.batch_moves(Place::Log, done.ended);
            }
            Ok(Event::Applied(_)) if self.node.is_master() => {
                self.batch_moves(Place::Store, done.begun);
                self.batch_moves(Place::Queue, done.ended);
            }
            _ => {}
        }
    }

    /// The figures for INFO and for the page.
    pub(super) fn figures(&self, now: Time) -> Figures {
        let live: Vec<_> = self.node.live(now).collect();
        let peer = |(node, peer): (&_, &super::PeerOut)| Peer {
            node: *node,
            address: peer.way.address.socket,
            is_live: live.contains(node),
            lost: peer.outgoing.lost(),
            written: peer.written,
            exchanged: self.sensing.exchanged(*node),
        };
        Figures {
            node: self.setup.me.node,
            federation: self.setup.federation,
            page: self.page,
            at: now,
            uptime: now.since(self.started),
            is_master: self.node.is_master(),
            master: self.node.master(now),
            epoch: self.node.reign().epoch.0,
            applied: self.node.applied().0,
            lag: self.node.lag(now),
            said: self.node.said(now),
            queries_waiting: self.node.queries(),
            copied: self.copied,
            account: self.spans.account.clone(),
            objects: self.objects(),
            peers: self.peers.iter().map(peer).collect(),
            clients: (self.clients.len(), self.clients.begun()),
            replies: (self.clients.unsent(), self.clients.unkept + self.unkept),
            client_bytes: self.clients.bytes,
            peer_bytes: self.peer_bytes,
            turned: self.turned.as_ref().map(|turned| Turned {
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
        if turned.bound.learned().is_some() && matches!(told, Some(Told::Follows)) {
            *turned.outcome.lock().unwrap_or_else(PoisonError::into_inner) = turned.bound.outcome();
        }
        let target = turned.bound.target();
        self.seen_of_bound(told, target);
    }

    fn seen_of_bound(&mut self, told: Option<Told>, target: Nanos) {
        let Some(told) = told else { return };
        self.note(match told {
            Told::Learns => "the node is loaded, and learns how its delay follows the bound of its backlog".into(),
            Told::Follows => format!("the bound of the backlog is turned so that the mean delay is {target}"),
            Told::Rests(why) => {
                format!("the bound of the backlog stays as it is: {why}; the node admits by forecast as before")
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
        let drift = InboxBounds::default().drift_ppm;
        for (key, _) in self.replica.created() {
            match self.replica.age(&key) {
                Ok(Some(age)) => ages.push((key, true_at_most(age, drift))),
                _ => without += 1,
            }
        }
        Objects {
            ages,
            without,
            own: self.sensing.own() as u64,
            sets: self.sensing.sets,
            turned: self.sensing.turned,
            came: [0.5, 0.99].map(|share| self.sensing.ages.at(share)),
        }
    }

    /// Leaves figures for the page's thread.
    pub(super) fn publish(&self, now: Time) {
        if self.page.is_some() {
            let figures = self.figures(now);
            *self.published.lock().unwrap_or_else(PoisonError::into_inner) = Some(figures);
        }
    }
}
