//! Creation of a temporal object when a client sets one that does not exist, or that has another source. A transaction
//! of the federation creates it, which this node requests as a client of its own. Pure.

use std::collections::{HashSet, VecDeque};

use punctual_federation::ids::{NodeId, RequestId, Revision, SessionId};
use punctual_federation::message::{Answer, Key, Operation, Refusal, Request, Work};
use punctual_federation::session::ClientSession;
use punctual_store::temporal::Creation;
use punctual_units::{Nanos, ObjectName, Time};

use crate::sensing::Temporal;

/// The most objects that one transaction creates.
const TOGETHER_MAX: usize = 32;
/// Time limit of such a transaction; a request without an answer for twice as long is repeated under another name.
const TIME_LEFT: Nanos = Nanos::from_millis(500);
/// The shortest wait before a request is repeated.
const AGAIN: Nanos = Nanos::from_millis(5);

/// The request that is under way.
#[derive(Clone, Debug)]
struct CreationRequest {
    id: RequestId,
    keys: Vec<Key>,
    until: Time,
}

/// Creates objects, one transaction after the other.
#[derive(Clone, Debug, Default)]
pub struct Maker {
    me: NodeId,
    kind: Temporal,
    /// Number of names given so far.
    sequence: u64,
    session: ClientSession,
    /// Number of the last request outside of a session.
    unnamed: u64,
    /// Keys that wait, each once; each client causes at most one.
    waiting: VecDeque<Key>,
    /// Keys in `waiting`, and those of the request under way.
    wanted: HashSet<Key>,
    /// Objects created so far exist once this revision is applied.
    made_at: Revision,
    /// Number of keys in front that are requested one by one, because their common request was refused.
    alone: usize,
    asked: Option<CreationRequest>,
    retry_at: Time,
}

impl Maker {
    /// Makes a maker of objects whose source is `me`. Requests outside of a session are numbered from `first`.
    pub fn new(me: NodeId, kind: Temporal, first: u64) -> Maker {
        Maker {
            me,
            kind,
            unnamed: first,
            ..Maker::default()
        }
    }

    /// Asks for the creation of an object that does not exist at revision `applied`. To be called again as long as it
    /// does not: calls are ignored until the last creation is applied.
    pub fn want(&mut self, key: &[u8], applied: Revision) {
        if applied >= self.made_at && !self.wanted.contains(key) {
            self.wanted.insert(key.to_vec());
            self.waiting.push_back(key.to_vec());
        }
    }

    /// The next instant at which `next` has something to do.
    pub fn next_due(&self) -> Time {
        match &self.asked {
            Some(asked) => asked.until,
            None if self.waiting.is_empty() => Time::MAX,
            None => self.retry_at,
        }
    }

    /// Returns the next request, and the names that it gives to the objects.
    pub fn next(&mut self, now: Time) -> Option<(Request, Vec<(Key, ObjectName)>)> {
        if self.asked.as_ref().is_some_and(|asked| asked.until <= now) {
            self.again(AGAIN, now);
        }
        if self.asked.is_some() || self.waiting.is_empty() || self.retry_at > now {
            return None;
        }
        if self.session.id() == SessionId(0) {
            self.unnamed = self.unnamed.wrapping_add(1);
            let id = RequestId {
                session: SessionId(0),
                number: self.unnamed,
            };
            let request = Request {
                id,
                work: Work::Open,
                time_left: TIME_LEFT,
                seen: self.session.seen(),
            };
            self.ask(id, Vec::new(), now);
            return Some((request, Vec::new()));
        }
        let count = match self.alone {
            0 => self.waiting.len().min(TOGETHER_MAX),
            _ => 1,
        };
        self.alone = self.alone.saturating_sub(1);
        let keys: Vec<Key> = self.waiting.drain(..count).collect();
        let named: Vec<(Key, ObjectName)> = keys.iter().map(|key| (key.clone(), self.name())).collect();
        let create = |(key, made): &(Key, ObjectName)| {
            let (made, spec) = (*made, self.kind.spec(key));
            Operation::Create(Creation { made, spec })
        };
        let work = Work::Transaction(named.iter().map(create).collect());
        let request = self.session.request(work, TIME_LEFT);
        self.ask(request.id, keys, now);
        Some((request, named))
    }

    fn ask(&mut self, id: RequestId, keys: Vec<Key>, now: Time) {
        let until = now + TIME_LEFT + TIME_LEFT;
        self.asked = Some(CreationRequest { id, keys, until });
    }

    /// Makes a name that no object ever had.
    fn name(&mut self) -> ObjectName {
        self.sequence += 1;
        ObjectName {
            source: self.me.0,
            boot: self.kind.boot,
            sequence: self.sequence,
        }
    }

    /// Repeats a request later that could not be sent.
    pub fn unsent(&mut self, now: Time) {
        self.again(AGAIN, now);
    }

    /// Puts the keys of the request back in front; an object that was created after all gets its next name then.
    fn again(&mut self, after: Nanos, now: Time) {
        self.retry_at = now + after.max(AGAIN);
        for key in self.asked.take().into_iter().flat_map(|asked| asked.keys).rev() {
            self.waiting.push_front(key);
        }
    }

    /// Takes an answer; returns `None` if it belongs to another request, else a key that cannot be created, with the
    /// reason.
    pub fn answered(&mut self, id: RequestId, answer: &Answer, now: Time) -> Option<Option<(Key, Refusal)>> {
        let asked = self.asked.as_ref().filter(|asked| asked.id == id)?;
        let count = asked.keys.len();
        self.session.answered(answer);
        match answer {
            Answer::Done { revision, .. } => {
                self.made_at = self.made_at.max(*revision);
                for key in self.asked.take().into_iter().flat_map(|asked| asked.keys) {
                    self.wanted.remove(&key);
                }
            }
            Answer::Late { retry_after, .. } => self.again(*retry_after, now),
            Answer::Unknown => self.again(AGAIN, now),
            Answer::Refused(Refusal::NoSession { .. }) => {
                self.session = ClientSession::resumed(SessionId(0), 0, self.session.seen());
                self.again(AGAIN, now);
            }
            Answer::Refused(refusal) if count == 1 => {
                let key = self.asked.take().and_then(|asked| asked.keys.into_iter().next());
                key.iter().for_each(|key| _ = self.wanted.remove(key));
                return Some(key.map(|key| (key, refusal.clone())));
            }
            // Any of the keys may be the one that cannot be created.
            Answer::Refused(_) => {
                self.again(AGAIN, now);
                self.alone = count;
            }
        }
        Some(None)
    }
}

#[cfg(test)]
mod tests {
    use punctual_federation::message::{Output, Position, Reason};

    use super::*;

    fn done(output: Output) -> Answer {
        Answer::Done {
            output,
            position: Position::default(),
            revision: Revision(1),
        }
    }

    fn opened() -> Maker {
        let mut maker = Maker::new(NodeId(3), Temporal::default(), 7);
        maker.want(b"a", Revision(0));
        let (open, named) = maker.next(Time(0)).unwrap();
        assert!(open.work == Work::Open && named.is_empty());
        assert_eq!(
            maker.answered(open.id, &done(Output::Session(SessionId(9))), Time(0)),
            Some(None)
        );
        maker
    }

    #[test]
    fn what_waits_is_made_together_and_each_name_is_given_once() {
        let mut maker = opened();
        ["b", "a", "c"]
            .iter()
            .for_each(|key| maker.want(key.as_bytes(), Revision(1)));
        let (request, named) = maker.next(Time(1)).unwrap();
        assert_eq!(named.len(), 3);
        maker.want(b"b", Revision(1));
        assert!(maker.next(Time(1)).is_none(), "one at a time");
        let late = Answer::late(Reason::NoMaster, None);
        assert_eq!(maker.answered(request.id, &late, Time(1)), Some(None));
        let due = maker.next_due();
        assert!(due > Time(1) && maker.next(Time(1)).is_none());
        let (again, names) = maker.next(due).unwrap();
        assert!(again.id > request.id, "the session goes on");
        let keys = |named: &[(Key, ObjectName)]| named.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
        assert_eq!(keys(&names), keys(&named));
        assert!(names.iter().zip(&named).all(|((_, next), (_, first))| next > first));
        assert_eq!(maker.answered(request.id, &Answer::Unknown, due), None, "of the past");
        assert_eq!(
            maker.answered(again.id, &done(Output::Values(Vec::new())), due),
            Some(None)
        );
        assert_eq!(maker.next_due(), Time::MAX);
        maker.want(b"a", Revision(0));
        assert_eq!(maker.next_due(), Time::MAX, "it may be made, and not applied here");
        maker.want(b"a", Revision(1));
        assert!(maker.next_due() < Time::MAX, "another node has taken it over");
    }

    #[test]
    fn of_those_refused_together_each_is_asked_for_alone() {
        let mut maker = opened();
        maker.want(b"b", Revision(1));
        let refusal = Refusal::KeyLength { len: 600 };
        let (request, _) = maker.next(Time(1)).unwrap();
        let refused = Answer::Refused(refusal.clone());
        assert_eq!(maker.answered(request.id, &refused, Time(1)), Some(None));
        let (first, named) = maker.next(maker.next_due()).unwrap();
        assert_eq!(named[0].0, b"a");
        let told = maker.answered(first.id, &refused, Time(1));
        assert_eq!(told, Some(Some((b"a".to_vec(), refusal))));
        let (second, named) = maker.next(maker.next_due()).unwrap();
        assert_eq!(named[0].0, b"b");
        assert_eq!(
            maker.answered(second.id, &done(Output::Values(Vec::new())), Time(1)),
            Some(None)
        );
    }

    #[test]
    fn no_answer_for_long_is_asked_again() {
        let mut maker = opened();
        let (first, _) = maker.next(Time(1)).unwrap();
        let due = maker.next_due();
        assert!(maker.next(due).is_none(), "it rests a little");
        let (second, _) = maker.next(maker.next_due()).unwrap();
        assert_eq!(second.id.number, first.id.number + 1);
    }
}
