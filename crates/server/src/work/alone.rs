//! Commands that need the whole store, outside of a common transaction: TSET, and FLUSHDB step by step.

use std::ops::{Bound, ControlFlow};
use std::sync::atomic::Ordering;

use punctual_os::{Lock, Os};
use punctual_store::engine::Engine;
use punctual_store::temporal::ObjectSpec;
use punctual_store::{StoreError, Together};
use punctual_units::{Nanos, ObjectId, Time};

use super::{REPLY_MAX, RunningJob, Temporal, Worker, firm};
use crate::commands::{self, Failure, Verb, bounded};
use crate::resp::Writer;
use crate::session::Call;

/// Records that one step of FLUSHDB visits; other jobs run between two steps.
const FLUSHED_TOGETHER: usize = 512;

/// Progress of FLUSHDB. Keys that were there as it began are removed; keys set meanwhile stay or go.
#[derive(Debug)]
pub struct Flushing {
    /// The last key visited.
    behind: Vec<u8>,
    /// The last key of the store when FLUSHDB began.
    last: Vec<u8>,
}

impl<E: Engine + 'static, O: Os> Worker<'_, E, O> {
    /// Carries out TSET, or a step of FLUSHDB, outside of a common transaction; returns whether the command is done.
    pub(super) fn whole(&self, running: &mut RunningJob) -> bool {
        let (queued, version, answered) = (running.queued, running.version, &mut running.answered);
        let (asked, reply) = (&mut running.asked, &mut running.reply);
        let Some(asked) = asked.get_mut(*answered) else {
            return true;
        };
        let begun = asked.begun(queued);
        if self.is_late(begun, &mut Writer::new(reply, version)) {
            *answered += 1;
            self.count(1);
            return true;
        }
        let mut is_done = true;
        let failed = bounded(reply, version, REPLY_MAX, |out| match asked.command.verb {
            Verb::TSet => self.tset(asked, out),
            _ => {
                is_done = self.flush(asked)?;
                if is_done {
                    out.simple("OK");
                }
                Ok(())
            }
        });
        if !is_done {
            return false;
        }
        match failed {
            Some(error) => self.say(error, begun, &mut Writer::new(reply, version)),
            None => self.note_timely(begun.deadline),
        }
        *answered += 1;
        self.count(1);
        true
    }

    fn tset(&self, asked: &Call, out: &mut Writer<'_>) -> Result<(), Failure> {
        let request = &asked.request;
        let (key, value) = (request.argument(1), request.argument(2));
        let age = commands::sample_age(request).map_err(Failure::Reply)?;
        let object = match self.store.object(key) {
            Some(object) => object,
            None => self.register(key)?,
        };
        let sampled_at = Time(asked.arrived.0.saturating_sub(age.0));
        let _one = self.newest.lock();
        let since = self.store.os().now().since(sampled_at);
        let known = self
            .store
            .sample(object)?
            .map(|sample| sample.age(self.store.os().since_boot()));
        if known.is_some_and(|known| known < since) {
            out.null(); // a newer value is there
            return Ok(());
        }
        self.store.install_together(&[Together {
            object,
            sampled_at: Some(sampled_at),
            value,
        }])?;
        out.simple("OK");
        Ok(())
    }

    /// Makes `key` a temporal object.
    fn register(&self, key: &[u8]) -> Result<ObjectId, Failure> {
        if self.store.get_with(key, |_| ())?.is_some() {
            let error = "ERR this key holds an ordinary record: remove it first, or give the object another key";
            return Err(Failure::Reply(error.into()));
        }
        let Temporal { validity, max_len } = self.temporal;
        let spec = ObjectSpec {
            key: key.to_vec(),
            avi: validity,
            period: Nanos(validity.0 / 2),
            max_len,
            history: 1,
        };
        match self.store.register(&spec) {
            // Another thread has made the same object meanwhile.
            Err(StoreError::DuplicateObject { .. }) => {
                let found = self.store.object(key);
                found.ok_or_else(|| Failure::Reply("ERR this object is being made: try again".into()))
            }
            answer => {
                let object = answer?;
                self.note_object(key, object);
                Ok(object)
            }
        }
    }

    /// Carries out one step of FLUSHDB; returns whether it was the last.
    fn flush(&self, asked: &mut Call) -> Result<bool, Failure> {
        let is_known = |word: &[u8]| [&b"sync"[..], b"async"].contains(&&*word.to_ascii_lowercase());
        if asked.request.len() > 2 || !asked.request.from(1).all(is_known) {
            return Err(Failure::Reply("ERR syntax error".into()));
        }
        let mut transaction = self.writing(firm(asked.deadline))?;
        let mut flushing = match asked.flushing.take() {
            Some(flushing) => flushing,
            None => {
                let last = transaction.records((Bound::Unbounded, Bound::Unbounded))?.next_back();
                let Some(last) = last.transpose()? else {
                    return Ok(true);
                };
                Flushing {
                    behind: Vec::new(),
                    last: last.0.to_vec(),
                }
            }
        };
        let (mut keys, mut looked_at): (Vec<Vec<u8>>, usize) = (Vec::new(), 0);
        let (from, to) = (flushing.behind.clone(), &flushing.last[..]);
        transaction.scan((Bound::Excluded(&from[..]), Bound::Included(to)), |key, _| {
            looked_at += 1;
            flushing.behind.clear();
            flushing.behind.extend_from_slice(key);
            if self.store.object(key).is_none() {
                keys.push(key.to_vec());
            }
            if looked_at < FLUSHED_TOGETHER {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        for key in &keys {
            transaction.delete(key)?;
        }
        transaction.commit()?;
        self.counts.commits.fetch_add(1, Ordering::Relaxed);
        if looked_at < FLUSHED_TOGETHER {
            return Ok(true);
        }
        // Removed keys cannot come back, so the command can no longer be answered `LATE`.
        asked.deadline = Time::MAX;
        asked.flushing = Some(flushing);
        Ok(false)
    }
}
