//! Fronts in the cluster: processes that forward clients' requests, each by its own `Balancer`. Fronts do not know of
//! each other, and a restarted front has no memory.

use std::collections::BTreeSet;

use punctual_federation::balancer::{Balancer, Home, PeakEwma};
use punctual_federation::front::{Front, FrontAction, FrontEvent};
use punctual_federation::ids::RequestId;
use punctual_federation::message::{Answer, Message, Reason};
use punctual_units::{Nanos, Time};
use rand::RngExt;

use super::clock::NodeClock;
use super::world::{Endpoint, FutureEvent, Packet, World};
use super::{ClusterSettings, Mark, Plant};

/// State of a running front.
#[derive(Debug)]
pub(super) struct FrontUp {
    pub(super) front: Front,
    /// Next instant at which the front is woken.
    wake: Time,
    /// Unanswered requests of clients.
    open: BTreeSet<(usize, RequestId)>,
}

/// A front with its clock, running or not.
#[derive(Debug)]
pub(super) struct FrontPlace {
    clock: NodeClock,
    starts: u64,
    pub(super) up: Option<FrontUp>,
}

impl FrontPlace {
    pub(super) fn new(settings: &ClusterSettings, random: &mut impl rand::Rng) -> FrontPlace {
        let drift = i64::from(settings.drift_ppm_max);
        let offset = Nanos::from_micros(random.random_range(0..1_000_000_000));
        FrontPlace {
            clock: NodeClock::new(offset, random.random_range(-drift..=drift)),
            starts: 0,
            up: None,
        }
    }
}

impl World {
    /// Starts a front, which knows no node yet.
    pub(super) fn front_starts(&mut self, number: usize) {
        if self.fronts[number].up.is_some() {
            return;
        }
        let balancer: Box<dyn Balancer> = match self.random.random_bool(0.75) {
            true => Box::new(Home::default()),
            false => Box::new(PeakEwma::default()),
        };
        let place = &mut self.fronts[number];
        place.starts += 1;
        place.up = Some(FrontUp {
            front: Front::new(balancer, self.random.random()),
            wake: Time::MAX,
            open: BTreeSet::new(),
        });
        self.note(Endpoint::Front(number), Mark::Restart, || "starts".to_owned());
    }

    /// Stops a front at once and breaks the connections of its clients.
    pub(super) fn front_ends(&mut self, number: usize) {
        let Some(up) = self.fronts[number].up.take() else {
            return;
        };
        for (client, id) in up.open {
            self.send(Endpoint::Front(number), Endpoint::Client(client), Packet::Broken(id));
        }
    }

    pub(super) fn front_wakes(&mut self, number: usize, starts: u64) {
        let now = self.now;
        let place = &mut self.fronts[number];
        if place.starts == starts
            && let Some(up) = &mut place.up
            && up.wake <= now
        {
            up.wake = Time::MAX;
            self.tell_front(number, FrontEvent::Wake);
        }
    }

    /// Handles a packet that arrives at a front.
    pub(super) fn front_hears(&mut self, number: usize, from: Endpoint, packet: Packet) {
        let Some(up) = &mut self.fronts[number].up else {
            if let (Endpoint::Client(client), Packet::Request(_, request)) = (from, packet) {
                self.send(
                    Endpoint::Front(number),
                    Endpoint::Client(client),
                    Packet::Broken(request.id),
                );
            }
            return;
        };
        match (from, packet) {
            (Endpoint::Client(client), Packet::Request(_, request)) => {
                up.open.insert((client, request.id));
                self.tell_front(number, FrontEvent::Request(client as u64, request));
            }
            (_, Packet::Peer(_, Message::Heartbeat(heartbeat))) => {
                self.tell_front(number, FrontEvent::Heartbeat(heartbeat));
            }
            (Endpoint::Host(host), Packet::Reply(ticket, reply)) => {
                let node = self.hosts[host].node;
                self.tell_front(number, FrontEvent::Reply(node, ticket, reply));
            }
            (_, Packet::Reset(node)) => self.tell_front(number, FrontEvent::Reset(node)),
            _ => {}
        }
    }

    fn tell_front(&mut self, number: usize, event: FrontEvent) {
        let (now, place) = (self.now, &mut self.fronts[number]);
        let local = place.clock.local(now);
        let Some(up) = &mut place.up else {
            return;
        };
        let actions = up.front.step(event, local);
        let wanted = up.front.wake_at();
        if wanted <= local {
            self.broken(format!("front {number} wants to be woken when it is woken"));
            return;
        }
        if wanted < Time::MAX {
            let at = place.clock.when(wanted, now);
            if at < up.wake {
                up.wake = at;
                let starts = place.starts;
                self.at(at, FutureEvent::FrontWakes(number, starts));
            }
        }
        for action in actions {
            self.front_acts(number, action);
        }
    }

    fn front_acts(&mut self, number: usize, action: FrontAction) {
        let here = Endpoint::Front(number);
        match action {
            FrontAction::Send(node, ticket, request) => {
                // If two processes have the same name, a connection leads to either.
                let named = self.named(node);
                if !named.is_empty() {
                    let host = named[self.random.random_range(0..named.len())];
                    self.send(here, Endpoint::Host(host), Packet::Request(ticket, request));
                }
            }
            FrontAction::Answer(client, id, answer) => {
                let client = client as usize;
                let answer = self.planted_front_answer(answer);
                let up = self.fronts[number].up.as_mut();
                match up.is_some_and(|up| up.open.remove(&(client, id))) {
                    true => self.send(here, Endpoint::Client(client), Packet::Answer(id, answer)),
                    false => self.broken(format!("front {number} answered request {id} twice")),
                }
            }
        }
    }

    /// Plants a fault: the front answers "not executed" for a transaction whose node is gone.
    fn planted_front_answer(&self, answer: Answer) -> Answer {
        match answer {
            Answer::Unknown if self.plant == Some(Plant::GoneTakenForLate) => Answer::late(Reason::NoMaster, None),
            answer => answer,
        }
    }
}
