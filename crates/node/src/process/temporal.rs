//! Temporal objects in the loop: what clients set and ask for, and objects that are being made.

use std::sync::Arc;

use punctual_federation::action::Event;
use punctual_federation::message::Message;
use punctual_federation::replica::Replica;
use punctual_os::Os;
use punctual_server::resp::Writer;
use punctual_store::engine::Engine;
use punctual_units::{Nanos, Time};

use super::{MAKER, Process};
use crate::conversation::{Local, Setting};
use crate::making::Maker;
use crate::seen::Seen;
use crate::sensing::{Latest, Sensing, Set};

/// A reading whose object is being made, and whose client waits.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    place: usize,
    /// The number of the client's connection: another one may have its place by then.
    connection: u32,
    setting: Setting,
}

/// What the loop needs to answer a client about temporal objects.
pub(super) struct Here<'p, E: Engine, O: Os> {
    pub replica: &'p Arc<Replica<E, O>>,
    pub sensing: &'p mut Sensing,
    pub maker: &'p mut Maker,
    pub waiting: &'p mut Vec<Waiting>,
    pub place: usize,
    pub applied: punctual_federation::ids::Revision,
    pub now: Time,
}

impl<E: Engine, O: Os> Here<'_, E, O> {
    /// Answers; false where the reply comes later.
    pub fn answer(&mut self, connection: u32, local: Local, out: &mut Writer<'_>) -> bool {
        match local {
            Local::Fresh(key, max_age) => self.fresh(&key, max_age, out),
            Local::Set(setting) => match set(self.sensing, self.replica, &setting, self.now) {
                Set::Unmade => {
                    self.maker.want(&setting.key, self.applied);
                    self.waiting.push(Waiting {
                        place: self.place,
                        connection,
                        setting,
                    });
                    return false;
                }
                set => reply(&set, out),
            },
        }
        true
    }

    fn fresh(&mut self, key: &[u8], max_age: Nanos, out: &mut Writer<'_>) {
        match self.sensing.latest(self.replica, key) {
            Ok(Latest::Reading(age, value)) if age <= max_age && age < Nanos::MAX => {
                out.array(2);
                out.bulk(value);
                out.integer(i64::try_from(age.0.div_ceil(1_000_000)).unwrap_or(i64::MAX));
            }
            Ok(Latest::Reading(Nanos::MAX, _)) => out.error("STALE age-ms=unknown"),
            Ok(Latest::Reading(age, _)) => out.error(&format!("STALE age-ms={}", age.0.div_ceil(1_000_000))),
            Ok(Latest::NoReading) => out.null_array(),
            Ok(Latest::NoObject) => out.error(&format!(
                "ERR key {}: this is no temporal object here, so it has no age: set it by TSET, or use GET",
                key.escape_ascii()
            )),
            Err(error) => out.error(&format!("ERR {error}")),
        }
    }
}

fn set<E: Engine, O: Os>(sensing: &mut Sensing, replica: &Replica<E, O>, setting: &Setting, now: Time) -> Set {
    let age = setting.age + now.since(setting.arrived);
    sensing.set(replica, &setting.key, &setting.value, age, now)
}

fn reply(set: &Set, out: &mut Writer<'_>) {
    match set {
        Set::Done => out.simple("OK"),
        Set::Younger => out.null(),
        Set::Refused(error) => out.error(&format!("ERR {error}")),
        Set::Unmade => {}
    }
}

impl<E: Engine + 'static, O: Os, T: FnMut(Seen)> Process<E, O, T> {
    /// Asks for objects that are wanted, of the master, as a client would.
    pub(super) fn make(&mut self, now: Time) {
        let Some((request, named)) = self.maker.next(now) else {
            return;
        };
        if self.node.is_master() {
            self.events.push_back(Event::Request(MAKER, request));
        } else if let Some(peer) = self.node.master(now).and_then(|master| self.peers.get_mut(&master)) {
            peer.outgoing.push(Message::PassedOn(request), now);
        } else {
            self.maker.unsent(now);
            return;
        }
        for (key, made) in named {
            self.sensing.names(key, made);
        }
    }

    /// Answers clients whose objects are made by now, or whose time is over.
    pub(super) fn settle(&mut self, now: Time) {
        let mut replies = Vec::new();
        let applied = self.node.applied();
        self.waiting.retain(|waiting| {
            let setting = &waiting.setting;
            match set(&mut self.sensing, &self.replica, setting, now) {
                Set::Unmade if setting.deadline > now => {
                    self.maker.want(&setting.key, applied);
                    return true;
                }
                set => replies.push((waiting.place, waiting.connection, set)),
            }
            false
        });
        let has_master = self.node.master(now).is_some();
        for (place, connection, set) in replies {
            self.clients.has_set(place, connection, |out| match set {
                Set::Unmade => {
                    let reason = if has_master { "expired" } else { "no-master" };
                    out.error(&format!("LATE reason={reason} retry-after-ms=0"));
                }
                set => reply(&set, out),
            });
        }
    }

    /// Sets what tasks of this process have left.
    pub(super) fn set_own(&mut self, now: Time) {
        for own in self.own.iter().filter(|own| !own.is_refused()) {
            let Some((number, at)) = own.take() else {
                continue;
            };
            let setting = Setting {
                key: own.key.clone(),
                value: number.to_string().into_bytes(),
                age: Nanos::ZERO,
                arrived: at,
                deadline: Time::MAX,
            };
            // Asked for until it is made; what a task leaves meanwhile takes its place.
            if let Set::Unmade = set(&mut self.sensing, &self.replica, &setting, now) {
                self.maker.want(&setting.key, self.node.applied());
                own.put_back(number, at);
            }
        }
    }

    /// An object cannot be made.
    pub(super) fn unmade(&mut self, key: &[u8], why: &str) {
        let own = { self.own.iter() }.find(|own| own.key == key);
        if own.is_some_and(|own| own.refuse()) {
            self.note(format!("a task sets {}, and cannot: {why}", key.escape_ascii()));
        }
        let (refused, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|waiting| waiting.setting.key == key);
        self.waiting = waiting;
        let refused: Vec<Waiting> = refused;
        for waiting in refused {
            let text = format!("ERR {why}");
            self.clients
                .has_set(waiting.place, waiting.connection, |out| out.error(&text));
        }
    }

    /// The first instant at which a client is to be told that it is late.
    pub(super) fn settle_by(&self) -> Time {
        let deadlines = self.waiting.iter().map(|waiting| waiting.setting.deadline);
        deadlines.min().unwrap_or(Time::MAX)
    }
}
