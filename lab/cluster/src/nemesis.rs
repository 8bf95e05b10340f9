//! Fault injection: kind, place and duration of each fault follow from the seed.

use std::collections::BTreeMap;

use punctual_federation::action::Event;
use punctual_units::{Nanos, Time};
use rand::RngExt;

use super::Mark;
use super::world::{Endpoint, FutureEvent, World};

/// Cuts and losses of the network.
#[derive(Clone, Debug, Default)]
pub(super) struct Weather {
    /// Links that are cut, each in one direction, and until when.
    cuts: BTreeMap<(Endpoint, Endpoint), Time>,
    /// End of a period of heavy loss, and its losses per 1000.
    storm: Option<(Time, u32)>,
}

impl Weather {
    /// Whether the link from one place to another is cut.
    pub(super) fn cut(&self, from: Endpoint, to: Endpoint, now: Time) -> bool {
        self.cuts.get(&(from, to)).is_some_and(|until| *until > now)
    }

    /// Packets of 1000 that are lost because of a storm.
    pub(super) fn loss(&self, now: Time) -> u32 {
        self.storm.filter(|(until, _)| *until > now).map_or(0, |(_, loss)| loss)
    }
}

impl World {
    /// Schedules the next fault, if there are to be faults.
    pub(super) fn next_fault(&mut self) {
        let every = self.settings.fault_every.0 / 1000;
        if every > 0 {
            let span = self.micros(every / 4, every * 2);
            self.after(span, FutureEvent::Fault);
        }
    }

    /// Injects a random fault, or ends all faults when the calm begins.
    pub(super) fn fault(&mut self) {
        if self.calm() {
            self.heal();
            return;
        }
        let host = self.random.random_range(0..self.hosts.len());
        match self.random.random_range(0..100) {
            0..20 => self.cut_one_way(host),
            20..35 => self.isolate(host),
            35..50 => self.pause(host),
            50..70 => self.crash_for_a_while(host),
            70..81 => {
                self.note_fault("log silent", Endpoint::Log, Mark::Pause);
                self.deafen();
            }
            81..86 => self.jump(host),
            86..90 => self.storm(),
            90..92 => self.front_dies(),
            92..96 => self.pauses_by_hand(host),
            _ => self.leave(host),
        }
        self.next_fault();
    }

    fn heal(&mut self) {
        self.weather = Weather::default();
        self.log.deaf = None;
    }

    fn cut_one_way(&mut self, host: usize) {
        let (hosts, fronts) = (self.hosts.len(), self.fronts.len());
        let other = match self.random.random_range(0..hosts + fronts + 2) {
            number if number < hosts => Endpoint::Host(number),
            number if number < hosts + fronts => Endpoint::Front(number - hosts),
            number if number == hosts + fronts => Endpoint::Log,
            _ => Endpoint::Client(self.random.random_range(0..self.clients.len().max(1))),
        };
        let until = self.now + self.micros(30_000, 900_000);
        let way = match self.random.random_bool(0.5) {
            true => (Endpoint::Host(host), other),
            false => (other, Endpoint::Host(host)),
        };
        self.weather.cuts.insert(way, until);
        self.note_fault("one-way cut", way.0, Mark::Cut);
    }

    /// Cuts a host off from all other hosts, and in half of the cases from the log.
    fn isolate(&mut self, host: usize) {
        let until = self.now + self.micros(30_000, 900_000);
        let hosts = (0..self.hosts.len()).map(Endpoint::Host);
        let log = self.random.random_bool(0.5).then_some(Endpoint::Log);
        for other in hosts.chain(log) {
            self.weather.cuts.insert((Endpoint::Host(host), other), until);
            self.weather.cuts.insert((other, Endpoint::Host(host)), until);
        }
        self.note_fault("isolated", Endpoint::Host(host), Mark::Cut);
    }

    fn pause(&mut self, host: usize) {
        let until = self.now + self.micros(10_000, 900_000);
        self.hosts[host].disturb();
        self.hosts[host].paused_until = until;
        self.note_fault("pause", Endpoint::Host(host), Mark::Pause);
        self.at(until, FutureEvent::Resumes(host));
    }

    fn crash_for_a_while(&mut self, host: usize) {
        if self.hosts[host].up.is_none() {
            return;
        }
        self.note_fault("crash", Endpoint::Host(host), Mark::Crash);
        self.crash(host);
        let span = self.micros(5_000, 900_000);
        self.after(span, FutureEvent::Starts(host));
    }

    fn jump(&mut self, host: usize) {
        let span = self.micros(1_000, 3_000_000);
        self.hosts[host].disturb();
        self.hosts[host].clock.jump(span);
        self.note_fault("clock jump", Endpoint::Host(host), Mark::Jump);
    }

    fn storm(&mut self) {
        let until = self.now + self.micros(50_000, 500_000);
        self.weather.storm = Some((until, self.random.random_range(100..600)));
        self.note_fault("heavy loss", Endpoint::Log, Mark::Cut);
    }

    fn leave(&mut self, host: usize) {
        if self.hosts[host].up.is_none() || self.paused(host) {
            return;
        }
        self.note_fault("leave", Endpoint::Host(host), Mark::Note);
        self.tell(host, Event::Leave);
    }

    /// Pauses a node as an operator would, and resumes it after a while.
    fn pauses_by_hand(&mut self, host: usize) {
        if self.hosts[host].up.is_none() || self.paused(host) {
            return;
        }
        self.note_fault("told to pause", Endpoint::Host(host), Mark::Pause);
        self.tell(host, Event::Pause);
        let span = self.micros(50_000, 900_000);
        self.after(span, FutureEvent::GoesOn(host));
    }

    /// Orders a node that was paused to resume; if its process stands still, a little later.
    pub(super) fn goes_on(&mut self, host: usize) {
        if self.paused(host) {
            let resumes = self.hosts[host].paused_until;
            self.at(resumes + Nanos(1), FutureEvent::GoesOn(host));
            return;
        }
        self.note(Endpoint::Host(host), Mark::Resume, || "told to go on".to_owned());
        self.tell(host, Event::Resume);
    }

    fn front_dies(&mut self) {
        if self.fronts.is_empty() {
            return;
        }
        let front = self.random.random_range(0..self.fronts.len());
        self.note_fault("front gone", Endpoint::Front(front), Mark::Crash);
        self.front_ends(front);
        let span = self.micros(5_000, 300_000);
        self.after(span, FutureEvent::FrontStarts(front));
    }

    /// Crashes node 0 a moment after each start.
    pub(super) fn ends_again(&mut self) {
        if self.calm() {
            return;
        }
        let span = self.micros(20_000, 300_000);
        self.after(span, FutureEvent::EndsAgain);
        self.crash_for_a_moment(0);
    }

    fn crash_for_a_moment(&mut self, host: usize) {
        if self.hosts[host].up.is_some() {
            self.note_fault("crash", Endpoint::Host(host), Mark::Crash);
            self.crash(host);
            let span = self.micros(1_000, 10_000);
            self.after(span, FutureEvent::Starts(host));
        }
    }

    /// Ends the process of a node that has left, and starts it again later. No client may be waiting for the node.
    pub(super) fn left(&mut self, host: usize) {
        let open = self.hosts[host].up.iter().flat_map(|up| up.open.values());
        if let Some(open) = open.map(|open| open.id).next() {
            let node = self.hosts[host].node;
            self.broken(format!("node {node} left, and request {open} has no answer"));
        }
        self.note_fault("left", Endpoint::Host(host), Mark::Crash);
        self.crash(host);
        let span = self.micros(5_000, 300_000);
        self.after(span, FutureEvent::Starts(host));
    }
}
