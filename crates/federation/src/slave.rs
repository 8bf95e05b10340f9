//! A replica: applies the log in its order, and takes over if the master fails.

use std::sync::Arc;

use punctual_logs::{AppendResult, LogError};
use punctual_units::{Nanos, Time};

use crate::action::{Action, Ask, LogAnswer};
use crate::ids::{Epoch, Revision};
use crate::master::READ_MAX;
use crate::message::Message;
use crate::node::Core;
use crate::outbox::Outbox;
use crate::takeover::{Suspicion, Takeover};

/// After this long without entries or answers from the log, a replica reads it: a watch may have ended silently.
pub const SILENCE_MAX: Nanos = Nanos::from_millis(250);

/// A node in the role of replica.
#[derive(Clone, Debug)]
pub struct Slave {
    suspicion: Suspicion,
    takeover: Option<Takeover>,
    /// Last entry or answer from the log; `None`: the log should be read at once.
    heard: Option<Time>,
}

impl Slave {
    /// A replica from `now` on.
    pub fn new(now: Time) -> Slave {
        Slave {
            suspicion: Suspicion::new(now),
            takeover: None,
            heard: None,
        }
    }

    /// Notes that the watch brought entries.
    pub fn watched(&mut self, now: Time) {
        self.heard = Some(now);
    }

    /// Takes the log's answer, or its absence ([`LogError::NoAnswer`]).
    pub fn log(&mut self, core: &mut Core, answer: Result<LogAnswer, LogError>, now: Time) {
        match answer {
            Ok(LogAnswer::Read { entries, last }) => {
                self.heard = Some(now);
                core.follower.ends(last);
                entries.into_iter().for_each(|placed| core.follower.offer(placed));
                if let Some(takeover) = &mut self.takeover {
                    takeover.read(now);
                }
            }
            Ok(LogAnswer::Appended(AppendResult::At(revision))) => {
                if let Some((_, record)) = self.takeover.as_ref().and_then(Takeover::record) {
                    core.follower.offer((revision, Arc::clone(record)));
                }
            }
            Err(LogError::Compacted { trimmed }) => core.copying.log_trimmed(trimmed, core.follower.applied()),
            Ok(LogAnswer::Appended(AppendResult::Lost { .. }) | LogAnswer::Trimmed) | Err(_) => {
                self.heard = None;
                if let Some(takeover) = &mut self.takeover {
                    takeover.unresolved(matches!(answer, Err(LogError::NoAnswer)));
                }
            }
        }
    }

    /// Starts every action that is due: takeover, installing an image, applying, asking for an image, reading the log.
    pub fn go_on(&mut self, core: &mut Core, now: Time, out: &mut Outbox) {
        self.consider_takeover(core, now);
        let applied = core.follower.applied();
        let may_go_on = core.to_compare.is_none();
        if may_go_on
            && !core.follower.busy()
            && let Some(image) = core.copying.install(applied)
        {
            out.push(Action::Install(image));
        }
        if may_go_on
            && !core.copying.holds(applied)
            && let Some((revision, entry)) = core.follower.next_to_apply()
        {
            out.push(Action::Apply(revision, entry));
        }
        // The entry being applied comes first, so that the peer is asked for nothing older.
        if !core.follower.busy() {
            let source = |except| core.liveness.source(except, now);
            if let Some((peer, wanted)) = core.copying.ask(source, applied, now) {
                out.push(Action::Send(peer, Message::CopyWanted(wanted)));
            }
        }
        if !core.copying.begins_anew(applied) && core.line.idle() {
            self.ask_log(core, now, out);
        }
    }

    fn consider_takeover(&mut self, core: &Core, now: Time) {
        let trusted = core.master(now).is_some();
        self.suspicion.observe(trusted, now);
        if trusted || !core.serves() {
            self.takeover = None; // if its record is in the log nevertheless, this node will be the master
        } else if self.takeover.is_none() && self.takeover_due(core, now) <= now {
            self.takeover = Some(Takeover::default());
        }
    }

    fn takeover_due(&self, core: &Core, now: Time) -> Time {
        self.suspicion.due(core.liveness.rank(core.follower.applied(), now))
    }

    fn ask_log(&mut self, core: &mut Core, now: Time, out: &mut Outbox) {
        if core.to_compare.is_none()
            && let Some(takeover) = &mut self.takeover
            && (takeover.listens_until() <= now || !core.liveness.waits_for_log(core.reign.master, now))
        {
            let next = Epoch(core.reign.epoch.0 + 1);
            if let Some((last, entry)) =
                takeover.append(&core.follower, core.me, (next, core.history.id), &mut core.names)
            {
                core.line.ask(Ask::Append { last, entry }, now, out);
                return;
            }
        }
        let reads = self.takeover.as_ref().is_some_and(Takeover::reads);
        let silent = self.heard.is_none_or(|heard| now.since(heard) >= SILENCE_MAX);
        let comparing = core.to_compare.map(|at| Revision(at.0 - 1).max(core.copying.trimmed()));
        if (reads || silent || comparing.is_some() || core.follower.lacks()) && !core.follower.busy() {
            let after = comparing.unwrap_or(core.follower.applied());
            core.line.ask(Ask::Read { after, max: READ_MAX }, now, out);
        }
    }

    /// Whether the record of its term waits for the log's answer, or for room there.
    pub fn takes_over(&self) -> bool {
        self.takeover.is_some()
    }

    /// Does not count `span`, for which this node itself did not run, as time in which it listened to the master.
    pub fn excuse(&mut self, span: Nanos) {
        if let Some(takeover) = &mut self.takeover {
            takeover.excuse(span);
        }
    }

    /// Notes that an image is installed: the log may have more entries.
    pub fn installed(&mut self) {
        self.heard = None;
    }

    /// Whether the replica is at most one entry behind the log's end, as far as it knows: the next entry is always
    /// coming.
    pub fn is_at_end(&self, core: &Core) -> bool {
        let behind = core.follower.end().0 - core.follower.applied().0;
        self.heard.is_some() && !core.copying.is_needed(core.follower.applied()) && behind <= 1
    }

    /// The next instant at which `go_on` may have something to do.
    pub fn next_due(&self, core: &Core, now: Time) -> Time {
        // While the log or the store is busy, its answer comes first.
        let applied = core.follower.applied();
        let free = core.line.idle() && !core.follower.busy() && !core.copying.begins_anew(applied);
        let log = match self.heard {
            Some(heard) if free => heard + SILENCE_MAX,
            _ => Time::MAX,
        };
        let copy = match core.follower.busy() {
            true => Time::MAX,
            false => core.copying.next_due(applied),
        };
        let takeover = match &self.takeover {
            None if core.serves() => self.takeover_due(core, now),
            Some(takeover) if takeover.listens_until() > now => takeover.listens_until(),
            _ => Time::MAX,
        };
        log.min(copy).min(takeover)
    }
}
