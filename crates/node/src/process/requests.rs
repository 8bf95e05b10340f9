//! Requests of clients and balancers, from their connections to their replies.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use punctual_federation::action::{Event, Ticket};
use punctual_federation::ids::{NodeId, RequestId, Revision};
use punctual_federation::message::{Answer, Reply, Request, Work};
use punctual_os::Os;
use punctual_server::commands::Verb;
use punctual_server::door::{Asker, Backend, Door, DoorState};
use punctual_server::work::{JobReply, Work as ClientWork};
use punctual_store::engine::Engine;
use punctual_units::Time;

use super::clients::{READINGS_MAX, REPLIES_MAX, SHORT_MAX, is_run, unkept};
use super::{FRONT_REPLIES_MAX, MAKER, Process, SWEEP_WITHIN, SWEEPER};
use crate::seen::TimedNotice;
use crate::spans::{SpanStage, Spans};
use crate::wire::Packet;

/// A request that a balancer has passed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct ForwardedRequest {
    pub(super) place: usize,
    /// Number of the connection, because slots are reused.
    pub(super) connection: u32,
    pub(super) ticket: u64,
    /// Whether the request may be called late although it was executed.
    pub(super) leaves_nothing: bool,
}

/// Requests that wait for an answer, and where each answer goes.
#[derive(Default)]
pub(super) struct Requests {
    /// Requests that balancers have passed on, by their tickets here.
    pub(super) passed: BTreeMap<u64, ForwardedRequest>,
    pub(super) spans: Spans,
    /// Tickets of the master's present batch that belong to clients and balancers of this node.
    pub(super) batch: Vec<u64>,
    /// The client's ticket of each query at the store.
    pub(super) querying: BTreeMap<Ticket, u64>,
    /// Number of answers to balancers that were dropped for lack of room.
    pub(super) unkept: u64,
    /// Whether a request to remove expired records is under way.
    pub(super) sweeps: bool,
}

impl<E: Engine + 'static, O: Os, T: FnMut(TimedNotice)> Backend for Process<E, O, T> {
    const RUN_MAX: usize = READINGS_MAX;

    fn joins(first: Verb, next: Verb) -> bool {
        is_run(first, next)
    }

    fn now(&self) -> Time {
        self.os.now()
    }

    fn take(&mut self, work: ClientWork, mut asker: Asker<'_>) -> bool {
        let follows = self.clients.take(work, &mut asker).unwrap_or_else(|inquiry| {
            let (master, others) = self.whereabouts(asker.here(), asker.now);
            inquiry.answer(master, &others, &mut asker.out());
            false
        });
        // At once, so that a pipeline of readings takes one turn.
        let readings = self.clients.of_memory();
        let Some((first, _)) = readings.first() else {
            return follows;
        };
        let first = *first;
        for (ticket, request) in readings {
            self.sense(ticket, request, asker.now);
        }
        let reply = self.clients.reply_to(first, asker.now);
        let is_answered = reply.is_some();
        asker.link.out.append(&mut reply.unwrap_or_default());
        !is_answered
    }

    fn next_done(&mut self, room: usize) -> Option<JobReply> {
        self.clients.next_done(room, self.os.now())
    }

    fn copies(&mut self, id: u64, now: Time) -> usize {
        let seen = self.clients.of(id).seen();
        self.node.have(seen, now)
    }

    fn replicates(&mut self, now: Time) -> Option<(Option<SocketAddr>, u64)> {
        let (master, _) = self.whereabouts(None, now);
        (!self.node.is_master()).then(|| (master, self.node.applied().0))
    }

    fn info(&mut self, door: &DoorState, sections: &[String], now: Time) -> String {
        self.figures(door, now).info(sections)
    }

    fn resets(&mut self, id: u64) {
        self.clients.resets(id);
    }

    fn ends(&mut self, id: u64) -> bool {
        self.clients.ends(id);
        false
    }
}

impl<E: Engine + 'static, O: Os, T: FnMut(TimedNotice)> Process<E, O, T> {
    /// Reads, answers and sends whatever clients' connections can at present.
    pub(super) fn serve(&mut self, door: &mut Door) {
        door.tell(self.clients.told.drain(..));
        door.serve(self);
        let now = self.os.now();
        door.accept(&mut *self.net, now);
        self.clients.hears = door.hears();
        for (ticket, request, arrived) in std::mem::take(&mut self.clients.asks) {
            self.begin(ticket, request, arrived, now);
        }
    }

    /// Begins a request that was read at `arrived`, under its ticket.
    fn begin(&mut self, ticket: u64, request: Request, arrived: Time, now: Time) {
        if request.work.is_of_memory() {
            self.sense(ticket, request, now);
        } else {
            self.requests.spans.begins(ticket, &request, SpanStage::Queue, arrived);
            self.lane.push(ticket, request, now);
        }
    }

    /// Address of the master, if it is known, and of the other nodes, as a client reaches them that has reached this
    /// node at `here`.
    fn whereabouts(&self, here: Option<SocketAddr>, now: Time) -> (Option<SocketAddr>, Vec<SocketAddr>) {
        let (me, master) = (self.setup.me.node, self.node.master(now));
        let mine = here.map(|address| (me, address));
        let live = self.node.live(now);
        let theirs = live.filter_map(|node| Some((node, *self.peers.found_at.get(&node)?)));
        let (masters, others): (Vec<_>, Vec<_>) = mine
            .into_iter()
            .chain(theirs)
            .partition(|(node, _)| Some(*node) == master);
        let addresses = |nodes: Vec<(NodeId, SocketAddr)>| nodes.into_iter().map(|(_, address)| address);
        (addresses(masters).next(), addresses(others).collect())
    }

    /// Requests the removal of expired records, as the master; without clients' transactions nothing else removes them.
    pub(super) fn sweep(&mut self) {
        if !self.requests.sweeps && self.node.is_master() && self.replica.is_due() {
            self.requests.sweeps = true;
            let request = Request {
                id: RequestId::default(),
                work: Work::Sweep,
                time_left: SWEEP_WITHIN,
                seen: Revision::ZERO,
            };
            self.events.push_back(Event::Request(SWEEPER, request));
        }
    }

    pub(super) fn reply(&mut self, ticket: u64, reply: Reply, now: Time) {
        if ticket == SWEEPER {
            self.requests.sweeps = false;
            if let Answer::Done { .. } = reply.answer {
                self.sweep();
            }
            return;
        }
        if ticket == MAKER {
            let answered = self.objects.maker.answered(reply.id, &reply.answer, now);
            if let Some((key, refusal)) = answered.flatten() {
                self.unmade(&key, &refusal.to_string());
            }
            return;
        }
        self.ends(ticket, &reply.answer, now);
        let Some(passed) = self.requests.passed.remove(&ticket) else {
            return self.clients.answered(ticket, reply.answer);
        };
        let mut reply = reply;
        if !self.has_room_for(passed.place, &reply.answer) {
            self.requests.unkept += 1;
            reply.answer = unkept(passed.leaves_nothing);
        }
        let front = self.peers.incoming.get_mut(passed.place);
        if let Some(front) = front.filter(|front| front.number == passed.connection) {
            reply.said.at = self.os.since_boot();
            front.push(&Packet::Reply(passed.ticket, reply));
        }
    }

    /// Whether an answer may wait for a balancer's socket.
    fn has_room_for(&mut self, place: usize, answer: &Answer) -> bool {
        let front = self.peers.incoming.get_mut(place);
        let unsent = front.map_or(0, |front| front.link.unsent());
        let bytes = match answer {
            Answer::Done { output, .. } => output.bytes(),
            _ => return true,
        };
        if bytes <= SHORT_MAX {
            return unsent <= FRONT_REPLIES_MAX;
        }
        let all: usize = self.peers.incoming.iter_mut().map(|(_, peer)| peer.link.unsent()).sum();
        unsent + bytes <= FRONT_REPLIES_MAX && all + bytes <= REPLIES_MAX
    }
}
