//! Commands of several jobs in one transaction: reads in one snapshot, writes in one commit.

use std::sync::atomic::Ordering;

use punctual_os::Os;
use punctual_store::engine::Engine;
use punctual_store::{Deadline, StoreError};
use punctual_units::{Nanos, Time};

use super::{REPLY_MAX, RunningJob, Worker, Writing, firm};
use crate::commands::{self, Verb, bounded};
use crate::resp::{Resp, Writer};
use crate::session::{Call, late};

/// A common commit that failed; the store is unchanged.
struct FailedCommit {
    error: StoreError,
    /// Number of commands before the one that the store refused; `None` where it refused no single one.
    before: Option<usize>,
}

impl<E: Engine + 'static, O: Os> Worker<'_, E, O> {
    /// Carries out reading commands in one snapshot, up to number `until` of each job.
    pub(super) fn reads(&self, group: &mut [RunningJob], until: usize) {
        let begin = || self.store.read_transaction(Deadline::NONE);
        let mut transaction = begin();
        let mut replies = 0;
        let mut since = self.store.os().now();
        for running in group {
            let (queued, version, asked) = (running.queued, running.version, &running.asked);
            let (answered, reply) = (&mut running.answered, &mut running.reply);
            let (from, length) = (*answered, reply.len());
            for one in &asked[from..until.min(asked.len())] {
                let Call { command, request, .. } = one;
                if self.pauses(reply, replies + reply.len() - length) {
                    break;
                }
                *answered += 1;
                if self.is_late(one.begun(queued), &mut Writer::new(reply, version)) {
                    continue;
                }
                self.note_timely(one.deadline);
                let start = reply.len();
                let failed = match &transaction {
                    Ok(transaction) => bounded(reply, version, REPLY_MAX, |out| {
                        commands::read(transaction, command, request, &self.cursors, out)
                    }),
                    Err(_) => None,
                };
                // A snapshot that failed stays so; the commands that follow get a new one.
                let failed = match (failed, &mut transaction) {
                    (None, Ok(_)) => {
                        self.note_found(command.verb, &reply[start..]);
                        continue;
                    }
                    (failed, transaction) => match (failed, std::mem::replace(transaction, begin())) {
                        (Some(failed), _) | (None, Err(failed)) => failed,
                        (None, Ok(_)) => continue,
                    },
                };
                self.say(failed, one.begun(queued), &mut Writer::new(reply, version));
            }
            replies += reply.len() - length;
            self.count(*answered - from);
            let now = self.store.os().now();
            self.learn(&asked[from..*answered], now.since(since));
            since = now;
        }
    }

    /// Counts how many values GET, HGET or MGET has found.
    pub(super) fn note_found(&self, verb: Verb, mut reply: &[u8]) {
        if !matches!(verb, Verb::Get | Verb::HGet | Verb::MGet) {
            return;
        }
        while let Some(end) = reply.windows(2).position(|end| end == b"\r\n") {
            let (head, rest) = (&reply[..end], &reply[end + 2..]);
            let length = head
                .get(1..)
                .and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<usize>().ok());
            let (counted, skipped) = match (head.first(), length) {
                (Some(b'*'), Some(_)) => (None, 0),
                (Some(b'$'), Some(length)) => (Some(&self.counts.found), length + 2),
                (Some(b'$' | b'_'), None) => (Some(&self.counts.missed), 0),
                _ => return,
            };
            if let Some(counted) = counted {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            reply = rest.get(skipped..).unwrap_or_default();
        }
    }

    /// Learns the cost of one command from the time of several, if all have the same verb.
    fn learn(&self, asked: &[Call], taken: Nanos) {
        if let Some(first) = asked.first()
            && asked.iter().all(|one| one.command.verb == first.command.verb)
        {
            let each = Nanos(taken.0 / asked.len() as u64);
            self.counts.costs.learn(first.command.verb, each);
        }
    }

    /// Carries out writing commands up to number `until` of each job, in one commit if the store accepts all. Where it
    /// refuses one, all are undone: those before it are committed together, it gets the error, and those behind it go
    /// on together. So each refused command costs two commits, however many commands surround it.
    pub(super) fn writes(&self, group: &mut [RunningJob], until: usize) {
        let left = |group: &[RunningJob]| -> usize {
            let left = |running: &RunningJob| until.min(running.asked.len()).saturating_sub(running.answered);
            group.iter().map(left).sum()
        };
        // Number of commands that the next attempt takes.
        let mut most = usize::MAX;
        // Two attempts for each command, if the store refuses all; a few more for deadlines that pass meanwhile.
        for _ in 0..2 * left(group) + 8 {
            let before: Vec<_> = group
                .iter()
                .map(|running| (running.answered, running.reply.len()))
                .collect();
            let Err(FailedCommit { error, before: behind }) = self.writes_together(group, until, most) else {
                if most == usize::MAX || left(group) == 0 {
                    return;
                }
                most = usize::MAX; // the refused command is the first of the next attempt
                continue;
            };
            for (running, (answered, reply)) in group.iter_mut().zip(before) {
                running.reply.truncate(reply);
                running.answered = answered;
            }
            match (behind, error) {
                // The next attempt answers `LATE` to the commands that are late by now.
                (_, StoreError::DeadlinePassed { .. }) => {}
                (Some(0), error) => {
                    let first = group
                        .iter_mut()
                        .find(|running| running.answered < until.min(running.asked.len()));
                    if let Some(running) = first {
                        let begun = running.asked[running.answered].begun(running.queued);
                        running.answered += 1;
                        self.say(error, begun, &mut Writer::new(&mut running.reply, running.version));
                        self.count(1);
                    }
                    most = usize::MAX;
                }
                (Some(before), _) => most = before,
                (None, _) => break,
            }
        }
        // No commit of several commands succeeds, or deadlines pass faster than commits are made: one by one.
        for running in group {
            let from = running.answered;
            while running.answered < until.min(running.asked.len()) && !self.pauses(&running.reply, 0) {
                let (asked, version) = (&running.asked[running.answered], running.version);
                running.answered += 1;
                match self.write_alone(asked, version, &mut running.reply) {
                    Ok(()) => self.note_timely(asked.deadline),
                    Err(error) => {
                        let begun = asked.begun(running.queued);
                        self.say(error, begun, &mut Writer::new(&mut running.reply, version));
                    }
                }
            }
            self.count(running.answered - from);
        }
    }

    /// Commits at most `most` commands together, or none.
    fn writes_together(&self, group: &mut [RunningJob], until: usize, most: usize) -> Result<(), FailedCommit> {
        let whole = |error| FailedCommit { error, before: None };
        let now = self.store.os().now();
        let is_late = |asked: &Call, queued| self.is_late_at(asked.begun(queued), now);
        let asked = group.iter().flat_map(|running| {
            let left = &running.asked[running.answered..until.min(running.asked.len())];
            left.iter().map(|asked| (asked, running.queued))
        });
        // Commands that are late already get `LATE`; their deadlines do not count.
        let deadline = asked
            .take(most)
            .filter(|(asked, queued)| !is_late(asked, *queued))
            .map(|(asked, _)| asked.deadline)
            .min()
            .unwrap_or(Time::MAX);
        let mut transaction = self.writing(firm(deadline)).map_err(whole)?;
        let (mut taken, mut timely, mut replies) = (0, 0, 0);
        let mut expired = Vec::new();
        for running in group {
            let length = running.reply.len();
            while taken < most
                && running.answered < until.min(running.asked.len())
                && !self.pauses(&running.reply, replies + running.reply.len() - length)
            {
                let asked = &running.asked[running.answered];
                running.answered += 1;
                taken += 1;
                if is_late(asked, running.queued) {
                    let error = late("expired", self.waited());
                    Writer::new(&mut running.reply, running.version).error(&error);
                    expired.push(self.spent_on(asked.begun(running.queued)));
                    continue;
                }
                timely += u64::from(asked.deadline < Time::MAX);
                self.change(&mut transaction, asked, running.version, &mut running.reply)
                    .map_err(|error| FailedCommit {
                        error,
                        before: Some(taken - 1),
                    })?;
            }
            replies += running.reply.len() - length;
        }
        transaction.commit().map_err(whole)?;
        self.counts.commits.fetch_add(1, Ordering::Relaxed);
        self.counts.timely.fetch_add(timely, Ordering::Relaxed);
        expired
            .into_iter()
            .for_each(|(stage, spent)| self.counts.expire(stage, spent));
        self.count(taken);
        Ok(())
    }

    pub(super) fn change(
        &self,
        transaction: &mut Writing<'_, E, O>,
        asked: &Call,
        version: Resp,
        reply: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let Call { command, request, .. } = asked;
        let start = reply.len();
        let failed = bounded(reply, version, REPLY_MAX, |out| {
            commands::change(transaction, command, request, &self.cursors, out)
        });
        self.note_found(command.verb, &reply[start..]);
        failed.map_or(Ok(()), Err)
    }

    fn write_alone(&self, asked: &Call, version: Resp, reply: &mut Vec<u8>) -> Result<(), StoreError> {
        let length = reply.len();
        let mut write = || {
            let mut transaction = self.writing(firm(asked.deadline))?;
            self.change(&mut transaction, asked, version, reply)?;
            transaction.commit()
        };
        match write() {
            Ok(_) => {
                self.counts.commits.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                reply.truncate(length);
                Err(error)
            }
        }
    }
}
