//! Temporal objects in the loop: requests of clients and balancers to set and read them, and objects that are being
//! created.

use std::sync::Arc;

use punctual_federation::action::Event;
use punctual_federation::ids::{Member, RequestId};
use punctual_federation::message::{
    Answer, ClientReading, Message, Output, Position, Reason, Refusal, Reply, Request, Work,
};
use punctual_os::Os;
use punctual_store::engine::Engine;
use punctual_units::{Nanos, Revision, Time};

use super::{MAKER, Process};
use crate::making::Maker;
use crate::own::OwnReading;
use crate::seen::TimedNotice;
use crate::sensing::{Latest, Sensing, Set, Temporal};

/// Temporal objects that clients and tasks of this node set.
pub(super) struct TemporalObjects {
    pub(super) sensing: Sensing,
    pub(super) maker: Maker,
    /// Clients' readings whose objects are being created.
    pub(super) waiting: Vec<Waiting>,
    /// Objects that tasks of this process set.
    pub(super) own: Vec<Arc<OwnReading>>,
}

impl TemporalObjects {
    pub(super) fn new(me: Member, settings: Temporal, own: Vec<Arc<OwnReading>>) -> TemporalObjects {
        TemporalObjects {
            sensing: Sensing::new(me.node, settings),
            maker: Maker::new(me.node, settings, me.boot.0),
            waiting: Vec::new(),
            own,
        }
    }
}

/// A client's reading whose object is being created.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    ticket: u64,
    id: RequestId,
    sample: ClientReading,
    /// The instant at which the sample had its age.
    came: Time,
    deadline: Time,
}

impl<E: Engine + 'static, O: Os, T: FnMut(TimedNotice)> Process<E, O, T> {
    /// Answers from this node's memory; later, if an object has to be created first.
    pub(super) fn sense(&mut self, ticket: u64, request: Request, now: Time) {
        let deadline = now + request.time_left;
        let (id, answer) = match (request.check(), request.work) {
            (Err(refusal), _) => (request.id, Answer::Refused(refusal)),
            (Ok(()), Work::Fresh(key)) => (request.id, self.fresh(&key)),
            (Ok(()), Work::Sample(mut sample)) => {
                let way = match sample.since {
                    None => Nanos::ZERO,
                    // The clock of an earlier start, or no instant: the time on the way is unknown.
                    Some(since) if since == Time::ZERO || since > self.os.since_boot() => Nanos::MAX,
                    Some(since) => self.os.since_boot().since(since),
                };
                sample.age = Nanos(sample.age.0.saturating_add(way.0));
                let waiting = Waiting {
                    ticket,
                    id: request.id,
                    sample,
                    came: now,
                    deadline,
                };
                match self.set(&waiting, now) {
                    Set::Unmade => {
                        self.objects.maker.want(&waiting.sample.key, self.node.applied());
                        self.objects.waiting.push(waiting);
                        return;
                    }
                    set => (request.id, told(&set)),
                }
            }
            (Ok(()), _) => return,
        };
        self.tell_reading(ticket, id, answer, now);
    }

    fn tell_reading(&mut self, ticket: u64, id: RequestId, answer: Answer, now: Time) {
        let said = self.node.said(now);
        self.reply(ticket, Reply { id, answer, said }, now);
    }

    fn fresh(&mut self, key: &[u8]) -> Answer {
        match self.objects.sensing.latest(&self.replica, key) {
            Ok(Latest::Reading(age, value)) => done(Output::Reading(Some((age, value.to_vec())))),
            Ok(Latest::NoReading) => done(Output::Reading(None)),
            Ok(Latest::NoObject) => Answer::Refused(Refusal::NotTemporal { key: key.to_vec() }),
            Err(error) => Answer::Refused(Refusal::NotSet { why: error.to_string() }),
        }
    }

    fn set(&mut self, waiting: &Waiting, now: Time) -> Set {
        let ClientReading { key, value, age, .. } = &waiting.sample;
        let age = Nanos(age.0.saturating_add(now.since(waiting.came).0));
        self.objects.sensing.set(&self.replica, key, value, age, now)
    }

    /// Requests the creation of objects from the master, as a client would.
    pub(super) fn make(&mut self, now: Time) {
        let Some((request, named)) = self.objects.maker.next(now) else {
            return;
        };
        if self.node.is_master() {
            self.events.push_back(Event::Request(MAKER, request));
        } else if let Some(peer) = self
            .node
            .master(now)
            .and_then(|master| self.peers.outgoing.get_mut(&master))
        {
            peer.outgoing.push(Message::PassedOn(request), now);
        } else {
            self.objects.maker.unsent(now);
            return;
        }
        for (key, made) in named {
            self.objects.sensing.names(key, made);
        }
    }

    /// Answers clients whose objects exist by now, or whose deadline has passed.
    pub(super) fn settle(&mut self, now: Time) {
        let applied = self.node.applied();
        let has_master = self.node.master(now).is_some();
        for waiting in std::mem::take(&mut self.objects.waiting) {
            let answer = match self.set(&waiting, now) {
                Set::Unmade if waiting.deadline > now => {
                    self.objects.maker.want(&waiting.sample.key, applied);
                    self.objects.waiting.push(waiting);
                    continue;
                }
                Set::Unmade => {
                    let reason = if has_master { Reason::Expired } else { Reason::NoMaster };
                    let (retry_after, node) = (Nanos::ZERO, None);
                    Answer::Late {
                        reason,
                        retry_after,
                        node,
                    }
                }
                set => told(&set),
            };
            self.tell_reading(waiting.ticket, waiting.id, answer, now);
        }
    }

    /// Sets the numbers that tasks of this process have left.
    pub(super) fn set_own(&mut self, now: Time) {
        for own in self.objects.own.iter().filter(|own| !own.is_refused()) {
            let Some((number, at)) = own.take() else {
                continue;
            };
            let (value, age) = (number.to_string(), now.since(at));
            let set = { &mut self.objects.sensing }.set(&self.replica, &own.key, value.as_bytes(), age, now);
            // The creation is requested until the object exists; newer numbers of the task replace this one meanwhile.
            if let Set::Unmade = set {
                self.objects.maker.want(&own.key, self.node.applied());
                own.put_back(number, at);
            }
        }
    }

    /// Refuses an object that cannot be created, and answers the clients that wait for it.
    pub(super) fn unmade(&mut self, key: &[u8], why: &str) {
        let own = { self.objects.own.iter() }.find(|own| own.key == key);
        if own.is_some_and(|own| own.refuse()) {
            self.note(format!("a task sets {}, and cannot: {why}", key.escape_ascii()));
        }
        let now = self.os.now();
        let (refused, waiting): (Vec<_>, _) = std::mem::take(&mut self.objects.waiting)
            .into_iter()
            .partition(|waiting| waiting.sample.key == key);
        self.objects.waiting = waiting;
        for Waiting { ticket, id, .. } in refused {
            let why = why.to_owned();
            self.tell_reading(ticket, id, Answer::Refused(Refusal::NotSet { why }), now);
        }
    }

    /// The earliest deadline of a client that waits for an object.
    pub(super) fn settle_by(&self) -> Time {
        let deadlines = self.objects.waiting.iter().map(|waiting| waiting.deadline);
        deadlines.min().unwrap_or(Time::MAX)
    }
}

fn told(set: &Set) -> Answer {
    match set {
        Set::Done => done(Output::Sampled(true)),
        Set::Younger => done(Output::Sampled(false)),
        Set::Refused(error) => Answer::Refused(Refusal::NotSet { why: error.to_string() }),
        Set::Unmade => Answer::late(Reason::Expired, None),
    }
}

/// Makes an answer without a revision, because readings are no part of the serial order.
fn done(output: Output) -> Answer {
    Answer::Done {
        output,
        position: Position::default(),
        revision: Revision::ZERO,
    }
}
