//! Hosts in virtual time, on one thread: the event loops of stores, nodes and balancers as the product has them, a log,
//! and clients. All that happens follows from a seed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use punctual_units::{Nanos, Time, mix};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::net::{Host, HostNet, NetSettings, Network};
use super::os::{HostOs, WorldClock};

/// The longest time that a turn of a loop takes.
const TURN_MAX: Nanos = Nanos::from_micros(20);
/// The most steps until something that a test waits for.
const STEPS_MAX: usize = 20_000_000;

/// A process that the world turns.
pub trait Actor {
    /// Goes on as far as it can; returns the time until the next turn, unless news come before. `None`: it has ended.
    fn turn(&mut self) -> Option<Nanos>;
}

struct Place {
    actor: Option<Box<dyn Actor>>,
    os: HostOs,
    due: Time,
}

/// All hosts, their network and their clock.
pub struct World {
    pub clock: WorldClock,
    pub network: Network,
    pub random: ChaCha8Rng,
    places: BTreeMap<Host, Place>,
    hosts: Host,
    digest: u64,
}

/// A handle of a world, for its tests and its clients.
#[derive(Clone)]
pub struct Sim(Rc<RefCell<World>>);

impl Sim {
    pub fn new(seed: u64, settings: NetSettings) -> Sim {
        let clock = WorldClock::default();
        // No clock shows zero.
        clock.set(Time(1_000_000_000));
        Sim(Rc::new(RefCell::new(World {
            network: Network::new(&clock, settings, mix(seed)),
            clock,
            random: ChaCha8Rng::seed_from_u64(seed),
            places: BTreeMap::new(),
            hosts: 0,
            digest: 0,
        })))
    }

    pub fn with<R>(&self, act: impl FnOnce(&mut World) -> R) -> R {
        act(&mut self.0.borrow_mut())
    }

    /// A host without a process, with its operating system and its network.
    pub fn host(&self) -> (Host, HostOs, HostNet) {
        let host = self.with(|world| {
            world.hosts += 1;
            world.hosts
        });
        let (os, net) = self.boot(host);
        (host, os, net)
    }

    /// Makes a host's operating system and network anew.
    pub fn boot(&self, host: Host) -> (HostOs, HostNet) {
        self.with(|world| {
            let os = HostOs::new(&world.clock, world.random.random());
            let place = Place {
                actor: None,
                os: os.clone(),
                due: Time::MAX,
            };
            world.places.insert(host, place);
            (os, world.network.of(host))
        })
    }

    /// Starts the process of a host.
    pub fn run(&self, host: Host, actor: Box<dyn Actor>) {
        self.with(|world| {
            let now = world.clock.now();
            if let Some(place) = world.places.get_mut(&host) {
                (place.actor, place.due) = (Some(actor), now);
            }
        });
    }

    /// Kills the process of a host.
    pub fn kill(&self, host: Host) {
        let gone = self.with(|world| {
            world.network.kill(host);
            world.places.remove(&host)
        });
        end(gone);
    }

    /// Switches a host off.
    pub fn switch_off(&self, host: Host) {
        let gone = self.with(|world| {
            world.network.switch_off(host);
            world.places.remove(&host)
        });
        end(gone);
    }

    pub fn now(&self) -> Time {
        self.with(|world| world.clock.now())
    }

    /// A number that depends on the instants of all turns of processes, and their hosts.
    pub fn digest(&self) -> u64 {
        self.with(|world| world.digest)
    }

    /// Goes on to the next event, and has all that is due happen.
    pub fn step(&self) {
        self.with(World::step);
    }

    /// Lets this much time pass.
    pub fn pass(&self, span: Nanos) {
        let end = self.now() + span;
        // A turn at the end, so that nothing is due before.
        while self.with(World::next_due) <= end {
            self.step();
        }
        self.with(|world| world.clock.set(end));
    }

    /// Goes on until `found` returns something.
    pub fn wait_for<R>(&self, what: &str, mut found: impl FnMut() -> Option<R>) -> R {
        for _ in 0..STEPS_MAX {
            if let Some(found) = found() {
                return found;
            }
            self.step();
        }
        panic!("never {what}")
    }
}

fn end(gone: Option<Place>) {
    if let Some(place) = gone {
        // Threads share what the process has.
        place.os.end();
        drop(place.actor);
        place.os.end();
    }
}

impl World {
    /// When something happens next.
    fn next_due(&mut self) -> Time {
        let mut due = self.network.next_due();
        for place in self.places.values() {
            due = due.min(place.due).min(place.os.next_due(&mut self.random));
        }
        let is_there = |host: &Host| self.places.get(host).is_some_and(|place| place.actor.is_some());
        match self.network.news().iter().any(is_there) {
            true => self.clock.now(),
            false => due,
        }
    }

    fn step(&mut self) {
        let due = self.next_due();
        assert!(due < Time::MAX, "nothing will ever happen");
        self.clock.set(due);
        self.network.arrive();
        let (now, news) = (self.clock.now(), self.network.news());
        for (host, place) in &mut self.places {
            if let Some(actor) = &mut place.actor
                && (place.due <= now || news.contains(host))
            {
                self.digest = mix(self.digest ^ mix(now.0) ^ u64::from(*host));
                let took = Nanos(self.random.random_range(1..TURN_MAX.0));
                match actor.turn() {
                    Some(wait) => place.due = now + wait.max(took),
                    None => (place.due, place.actor) = (Time::MAX, None),
                }
            }
            place.os.turn(&mut self.random);
        }
    }
}
