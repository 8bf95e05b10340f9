//! Connections that peers and balancers have dialled: packets that come in on them, and news for balancers.

use punctual_federation::action::Event;
use punctual_federation::ids::Member;
use punctual_federation::message::{Heartbeat, Message};
use punctual_os::Os;
use punctual_server::subscribers::KeyNotice;
use punctual_store::engine::Engine;

use super::peers::{PeerIn, PeerPacket, Sender};
use super::requests::ForwardedRequest;
use super::{BEATS_MAX, PEERS, Process};
use crate::changes;
use crate::seen::TimedNotice;
use crate::spans::SpanStage;
use crate::wire::Packet;

impl<E: Engine + 'static, O: Os, T: FnMut(TimedNotice)> Process<E, O, T> {
    pub(super) fn accept(&mut self) {
        let now = self.os.now();
        let access = &self.access;
        let begun = &mut self.peers.begun;
        let mut begin = |stream, slot: Option<usize>| {
            slot?;
            *begun = begun.wrapping_add(1);
            Some(PeerIn::new(access.accept(stream, false)?, access.versions, *begun, now))
        };
        while self.peers.incoming.accept(&mut *self.net, PEERS, &mut begin) {}
    }

    pub(super) fn peer_turn(&mut self, place: usize) {
        let Some(peer) = self.peers.incoming.get_mut(place) else {
            return;
        };
        let (number, was) = (peer.number, peer.from);
        let (own, events, passed) = (&mut self.clients, &mut self.events, &mut self.requests.passed);
        let lane = &mut self.lane;
        let (sensing, replica, os, spans) = (
            &mut self.objects.sensing,
            &self.replica,
            &self.os,
            &mut self.requests.spans,
        );
        let (mut greets, mut begins_to_hear, mut readings) = (false, false, Vec::new());
        let turn = peer.turn(&mut self.scratch, self.setup.federation, |heard| match heard {
            PeerPacket::Front => greets = true,
            PeerPacket::Hear => begins_to_hear = true,
            PeerPacket::Message(from, message) => events.push_back(Event::Message(from, message)),
            PeerPacket::Readings(from, reports) => sensing.received(replica, from, &reports, os.now(), os.since_boot()),
            PeerPacket::Taken(from, stamp, taken) => sensing.heard(replica, from, stamp, &taken),
            PeerPacket::Request(ticket, request) => {
                let asked = own.ticket();
                let connection = number;
                passed.insert(
                    asked,
                    ForwardedRequest {
                        place,
                        connection,
                        ticket,
                        leaves_nothing: request.work.leaves_nothing(),
                    },
                );
                if request.work.is_of_memory() {
                    readings.push((asked, request));
                    return;
                }
                let now = os.now();
                spans.begins(asked, &request, SpanStage::Queue, now);
                lane.push(asked, request, now);
            }
        });
        self.peers.bytes.read += std::mem::take(&mut peer.link.bytes.read);
        if greets {
            peer.push(&self.peers.hello);
        }
        let clients = peer.clients;
        if begins_to_hear {
            peer.push(&Packet::Changed(self.node.applied(), Vec::new(), Vec::new()));
        }
        let node = match peer.from {
            Some(Sender::Node(from)) => Some(from.node),
            Some(Sender::Front) | None => None,
        };
        if let Some(node) = node.filter(|_| was.is_none()) {
            self.peers.latest.insert(node, number);
            self.peers
                .outgoing
                .get_mut(&node)
                .into_iter()
                .for_each(|peer| peer.way.is_there());
            clients.and_then(|clients| self.peers.found_at.insert(node, clients));
        }
        let now = self.os.now();
        for (ticket, request) in readings {
            self.sense(ticket, request, now);
        }
        match turn {
            Ok(true) => self.peers.incoming.again.push(place),
            Ok(false) => {}
            Err(gone) => {
                self.peers.incoming.remove(place);
                if !gone.is_plain() {
                    self.note(format!("a connection of a peer was ended: {gone}"));
                }
                if let Some(node) = node.filter(|node| self.peers.latest.get(node) == Some(&number)) {
                    self.peers.latest.remove(&node);
                    self.events.push_back(Event::Reset(node));
                }
            }
        }
    }

    /// Reports the changes of an applied entry to subscribed clients and balancers.
    pub(super) fn tell_changes(&mut self, event: &Event) {
        let revision = match event {
            Event::Applied(revision) => *revision,
            Event::Installed(revision, _) => {
                // Balancers find the gap by the revisions.
                let entries = revision.0.saturating_sub(self.node.applied().0);
                self.clients.told.push(KeyNotice::Missed(entries));
                return;
            }
            _ => return,
        };
        let Some(entry) = self.applying.take() else { return };
        let has_room = |peer: &PeerIn| peer.hears && peer.link.unsent() < BEATS_MAX;
        let fronts = self
            .peers
            .incoming
            .iter_mut()
            .map(|(_, peer)| peer)
            .filter(|peer| has_room(peer));
        let mut fronts = fronts.peekable();
        if !self.clients.hears && fronts.peek().is_none() {
            return;
        }
        let packet = changes::of(revision, &entry, true);
        fronts.for_each(|front| match front.reads_names() {
            true => front.push(&packet),
            false => front.push(&changes::of(revision, &entry, false)),
        });
        if let Packet::Changed(_, keys, names) = packet {
            self.clients.told.extend(changes::told(keys, names));
        }
    }

    /// Reports to a process with the same name as another that the name is taken, on the connection that it has
    /// dialled. An address by name would lead to the other process.
    pub(super) fn tell_namesake(&mut self, member: Member, message: &Message) {
        let is_it = |peer: &PeerIn| peer.from == Some(Sender::Node(member)) && peer.link.unsent() == 0;
        for (_, peer) in self.peers.incoming.iter_mut().filter(|(_, peer)| is_it(peer)) {
            peer.push(&Packet::Message(message.clone()));
        }
    }

    /// Sends the node's state and load to each balancer. A balancer that reads too slowly gets a later heartbeat
    /// instead.
    pub(super) fn tell_fronts(&mut self, mut heartbeat: Heartbeat) {
        heartbeat.said.at = self.os.since_boot();
        let is_front = |peer: &PeerIn| peer.from == Some(Sender::Front) && peer.link.unsent() < BEATS_MAX;
        for (_, front) in self.peers.incoming.iter_mut().filter(|(_, peer)| is_front(peer)) {
            front.push(&Packet::Message(Message::Heartbeat(heartbeat)));
        }
    }
}
