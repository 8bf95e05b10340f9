//! A slave: applies the log in its order, and looks out for a master.

use std::sync::Arc;

use punctual_logs::{Appended, LogError};
use punctual_store::batch::Image;
use punctual_units::{Nanos, Time};

use crate::action::{Action, Ask, LogAnswer};
use crate::ids::{Epoch, NodeId};
use crate::master::READ_MAX;
use crate::message::Message;
use crate::node::Core;
use crate::outbox::Outbox;
use crate::takeover::{Suspicion, Takeover};

/// After so long without a word from the log, a slave reads it: a watch may have ended in silence.
pub const SILENCE_MAX: Nanos = Nanos::from_millis(250);
/// How long a slave waits for a copy before it asks another node.
pub const COPY_MAX: Nanos = Nanos::from_millis(500);

/// A node as slave.
#[derive(Clone, Debug)]
pub struct Slave {
    suspicion: Suspicion,
    takeover: Option<Takeover>,
    /// When the log was heard last; `None`: it should be read at once.
    heard: Option<Time>,
    /// The log has been trimmed beyond what is applied.
    copy_needed: bool,
    /// The node that was asked for a copy, and when.
    copy_asked: Option<(NodeId, Time)>,
    installing: bool,
}

impl Slave {
    /// A slave from `now` on.
    pub fn new(now: Time) -> Slave {
        Slave {
            suspicion: Suspicion::new(now),
            takeover: None,
            heard: None,
            copy_needed: false,
            copy_asked: None,
            installing: false,
        }
    }

    /// The log told something without being asked.
    pub fn watched(&mut self, now: Time) {
        self.heard = Some(now);
    }

    /// The log has answered, or has not ([`LogError::NoAnswer`]).
    pub fn log(&mut self, core: &mut Core, answer: Result<LogAnswer, LogError>, now: Time) {
        match answer {
            Ok(LogAnswer::Read { entries, last }) => {
                self.heard = Some(now);
                core.follower.reaches(last);
                entries.into_iter().for_each(|placed| core.follower.offer(placed));
                if let Some(takeover) = &mut self.takeover {
                    takeover.read();
                }
            }
            Ok(LogAnswer::Appended(Appended::At(revision))) => {
                if let Some((_, record)) = self.takeover.as_ref().and_then(Takeover::record) {
                    core.follower.offer((revision, Arc::clone(record)));
                }
            }
            Err(LogError::Compacted { .. }) => self.copy_needed = true,
            Ok(LogAnswer::Appended(Appended::Lost { .. }) | LogAnswer::Trimmed) | Err(_) => {
                self.heard = None;
                if let Some(takeover) = &mut self.takeover {
                    takeover.unresolved();
                }
            }
        }
    }

    /// Does what there is to do.
    pub fn go_on(&mut self, core: &mut Core, now: Time, out: &mut Outbox) {
        self.consider_takeover(core, now);
        if self.installing {
            return;
        }
        if let Some((revision, entry)) = core.follower.next_to_apply() {
            out.push(Action::Apply(revision, entry));
        }
        if self.copy_needed {
            self.ask_for_copy(core, now, out);
        } else if core.line.idle() {
            self.ask_log(core, now, out);
        }
    }

    fn consider_takeover(&mut self, core: &Core, now: Time) {
        let trusted = core.master(now).is_some();
        self.suspicion.observe(trusted, now);
        if trusted || !core.serves() {
            self.takeover = None; // if its record is in the log all the same, this node will be the master
        } else if self.takeover.is_none() && self.takeover_due(core, now) <= now {
            self.takeover = Some(Takeover::default());
        }
    }

    fn takeover_due(&self, core: &Core, now: Time) -> Time {
        self.suspicion.due(core.liveness.rank(core.follower.applied(), now))
    }

    fn ask_log(&mut self, core: &mut Core, now: Time, out: &mut Outbox) {
        if let Some(takeover) = &mut self.takeover {
            let next = Epoch(core.reign.epoch.0 + 1);
            if let Some((last, entry)) = takeover.append(&core.follower, core.me, next, &mut core.names) {
                core.line.ask(Ask::Append { last, entry }, now, out);
                return;
            }
        }
        let reads = self.takeover.as_ref().is_some_and(Takeover::reads);
        let silent = self.heard.is_none_or(|heard| now.since(heard) >= SILENCE_MAX);
        if (reads || silent || core.follower.lacks()) && !core.follower.busy() {
            let after = core.follower.applied();
            core.line.ask(Ask::Read { after, max: READ_MAX }, now, out);
        }
    }

    fn ask_for_copy(&mut self, core: &Core, now: Time, out: &mut Outbox) {
        if self.copy_asked.is_some_and(|(_, asked)| now.since(asked) < COPY_MAX) {
            return;
        }
        let before = self.copy_asked.map(|(node, _)| node);
        let source = core.liveness.source(before, now).or(core.liveness.source(None, now));
        self.copy_asked = source.map(|source| (source, now)); // `None`: the next heartbeat tells of one
        if let Some(source) = source {
            out.push(Action::Send(source, Message::CopyWanted));
        }
    }

    /// A peer sent a copy.
    pub fn copy(&mut self, core: &Core, image: Arc<Image>, out: &mut Outbox) {
        if !self.copy_needed || self.installing || core.follower.busy() {
            return;
        }
        if image.revision > core.follower.applied() {
            self.installing = true;
            out.push(Action::Install(image));
        } else {
            self.installed(); // the log has been faster
        }
    }

    /// The copy is installed, or no longer needed.
    pub fn installed(&mut self) {
        self.installing = false;
        self.copy_needed = false;
        self.copy_asked = None;
        self.heard = None;
    }

    /// Whether it is at the log's end, as far as it knows, or an entry behind: the next one is always coming.
    pub fn is_at_end(&self, core: &Core) -> bool {
        let behind = core.follower.end().0 - core.follower.applied().0;
        self.heard.is_some() && !self.copy_needed && behind <= 1
    }

    /// When there may be something to do.
    pub fn next_due(&self, core: &Core, now: Time) -> Time {
        // While the log or the store is at work, their answer comes first.
        let free = core.line.idle() && !core.follower.busy() && !self.installing;
        let log = match (self.copy_needed, self.heard) {
            (true, _) if self.installing => Time::MAX,
            (true, _) => self.copy_asked.map_or(Time::MAX, |(_, asked)| asked + COPY_MAX),
            (false, Some(heard)) if free => heard + SILENCE_MAX,
            (false, _) => Time::MAX,
        };
        let takeover = match self.takeover {
            None if core.serves() => self.takeover_due(core, now),
            _ => Time::MAX,
        };
        log.min(takeover)
    }
}
