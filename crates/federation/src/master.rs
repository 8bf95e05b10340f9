//! The master: transactions in batches, one batch in the log at a time.
//!
//! ```text
//!            execute            append                  in the log          apply
//!   queue ──────────► Executing ──────► Appending ──────────────────► Applying ──────► replies
//!                        │ nothing to log   │  ▲                 ▲
//!                        ▼                  │  │ the log has     │ the log has it
//!                    Confirming             ▼  │ not moved       │
//!                                        Reading ───────────────┘
//!                                           │ another entry is there
//!                                           ▼
//!                                     no longer master; nothing of the batch was executed
//! ```
//!
//! **Unknown.** An append that was not answered, or that lost its race, is read back before anything else is done. As
//! long as the log has not moved, the same entry is appended at the same revision again: of all copies that are under
//! way, one can arrive. Once the log has moved, the entry at that revision decides the outcome of the batch finally.
//!
//! **Too long.** A log always refuses an entry of a length that it has refused once. So nothing of that batch is or
//! will be in the log. It is appended again without the events of keys. If it has none, half of it is executed again,
//! the rest is queued again, and a transaction that is too long alone is refused.
//!
//! **Reads.** A batch that writes nothing is answered once the log confirms that it has not moved since: then no
//! acknowledged write can be missing.

use std::sync::Arc;

use punctual_logs::{AppendResult, ENTRY_BYTES_MAX, LogError};
use punctual_units::{Nanos, Time};

use crate::action::{Action, Ask, Caller, Execution, LogAnswer};
use crate::admission::{self, Gate, Intake, ServiceOrder, Start};
use crate::entry::{Body, Entry, LoggedTransaction, fit_events};
use crate::follower::NumberedEntry;
use crate::ids::{BatchId, Epoch, Member, Revision};
use crate::line::LogCalls;
use crate::message::{Answer, Output, Position, Reason, Refusal, Request};
use crate::node::MARGIN;
use crate::outbox::Outbox;

/// Most transactions of a batch: with more, the share of each in the cost of an append hardly falls.
pub const BATCH_MAX: usize = 64;
/// Most bytes of a batch's write sets: those of a log's entry, less the overhead around them.
pub const BATCH_BYTES_MAX: usize = ENTRY_BYTES_MAX - BATCH_MAX * 64 - 1024;
/// Assumed time of a batch before any was measured: an append to a log of three nodes, as measured with etcd.
pub const BATCH_TAKES: Nanos = Nanos::from_millis(2);
/// Most transactions that wait or are in a batch.
pub const QUEUE_MAX: usize = 1024;
/// Most entries that one read returns.
pub const READ_MAX: usize = 64;

/// A transaction that waits, or is part of a batch.
#[derive(Clone, Debug)]
struct WaitingTransaction {
    caller: Caller,
    request: Request,
    deadline: Time,
}

/// A transaction of a batch, with its result.
#[derive(Clone, Debug)]
struct BatchedRequest {
    queued: WaitingTransaction,
    /// Executor of the transaction in the intake: batches count as parallel execution.
    executor: usize,
    /// Result of the execution; `None` before.
    done: Option<Execution>,
    /// Number of the batch's logged transactions before this one.
    index: u32,
    answered: bool,
}

/// Progress of a batch.
#[derive(Clone, Debug)]
enum Phase {
    /// The store executes the batch.
    Executing,
    /// The batch has nothing to log; a read checks whether the log has moved.
    Confirming,
    /// An append of the entry is under way.
    Appending(Arc<Entry>),
    /// A read checks which entry the log has in place of this one.
    Reading(Arc<Entry>),
    /// The entry is in the log, and the store applies it.
    Applying,
}

#[derive(Clone, Debug)]
struct Batch {
    id: BatchId,
    taken: Vec<BatchedRequest>,
    phase: Phase,
    /// Whether the log did not answer at once: then the batch's time says nothing about the next.
    doubted: bool,
}

/// A node in the role of master.
#[derive(Clone, Debug)]
pub struct Master {
    member: Member,
    epoch: Epoch,
    /// The log's end, as this master knows it; all entries up to it are applied.
    last: Revision,
    /// Waiting transactions, by deadline. The transactions of a batch count as running in parallel, each as one item,
    /// because all take equally long.
    intake: Intake<WaitingTransaction>,
    batch: Option<Batch>,
    batches: u64,
    /// Most transactions of the next batch: fewer than [`BATCH_MAX`] after the log found an entry too long.
    batch_max: usize,
}

/// The consequence of a log's answer for the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Consequence {
    /// The node is still the master, as far as it knows.
    Reigning,
    /// The batch's entry is in the log, and must be applied.
    Committed(NumberedEntry),
    /// Another node has appended to the log.
    Deposed,
}

use Consequence::{Committed, Deposed, Reigning};

impl Master {
    /// The master of `epoch`, whose record is at `last` and applied; this process has named `batches` entries. `gate`
    /// admits transactions, and learns the time of a batch.
    pub fn new(member: Member, epoch: Epoch, last: Revision, batches: u64, gate: Gate) -> Master {
        let mut intake = Intake::new(member.node, BATCH_MAX, BATCH_TAKES, gate, ServiceOrder::Deadline);
        intake.set_backlog_max(QUEUE_MAX as u64);
        Master {
            member,
            epoch,
            last,
            intake,
            batch: None,
            batches,
            batch_max: BATCH_MAX,
        }
    }

    /// Number of entries that this process has named.
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// The log's end, as this master knows it.
    pub fn last(&self) -> Revision {
        self.last
    }

    /// Number of transactions that it has taken and not answered.
    pub fn unanswered(&self) -> u32 {
        let batch = self.batch.iter().flat_map(|batch| &batch.taken);
        let answered = batch.filter(|taken| taken.answered).count();
        (self.intake.requests() - answered) as u32
    }

    /// Whether no batch is under way.
    pub fn idle(&self) -> bool {
        self.batch.is_none()
    }

    /// Takes a request, or answers that it comes too late.
    pub fn request(&mut self, caller: Caller, request: Request, now: Time, out: &mut Outbox) {
        let deadline = now + request.time_left;
        let queued = WaitingTransaction {
            caller,
            request,
            deadline,
        };
        self.admit(queued, now, out);
    }

    fn admit(&mut self, queued: WaitingTransaction, now: Time, out: &mut Outbox) {
        let ask = admission::Ask {
            items: 1,
            deadline: queued.deadline - MARGIN,
        };
        match self.intake.judge(ask, now) {
            Ok(forecast) => self.intake.enter(ask, forecast, queued, now),
            Err(late) => out.refuse(queued.caller, queued.request.id, late),
        }
    }

    /// Begins the next batch, unless one is under way.
    pub fn begin(&mut self, now: Time, out: &mut Outbox) {
        if self.batch.is_some() {
            return;
        }
        let mut taken = Vec::new();
        while taken.len() < self.batch_max
            && let Some(Start { executor, work, .. }) = self.intake.start(now, 0)
        {
            taken.push(BatchedRequest {
                queued: work,
                executor,
                done: None,
                index: 0,
                answered: false,
            });
        }
        if !taken.is_empty() {
            self.execute(taken, out);
        }
    }

    fn execute(&mut self, taken: Vec<BatchedRequest>, out: &mut Outbox) {
        self.batches += 1;
        let id = BatchId {
            member: self.member,
            epoch: self.epoch,
            number: self.batches,
        };
        let requests = taken.iter().map(|taken| taken.queued.request.clone()).collect();
        out.push(Action::Execute(id, self.last.next(), requests));
        self.batch = Some(Batch {
            id,
            taken,
            phase: Phase::Executing,
            doubted: false,
        });
    }

    /// Takes the results of a batch from the store.
    pub fn executed(&mut self, id: BatchId, done: Vec<Execution>, line: &mut LogCalls, now: Time, out: &mut Outbox) {
        let Some(mut batch) = self
            .batch
            .take_if(|batch| batch.id == id && matches!(batch.phase, Phase::Executing))
        else {
            return;
        };
        // A client was answered that its transaction was not executed, but others may have read its writes: execute the
        // others again without it.
        if batch.taken.iter().any(|taken| taken.answered) {
            let answered = batch.taken.extract_if(.., |taken| taken.answered);
            answered.for_each(|taken| self.intake.abandon(taken.executor));
            match batch.taken.is_empty() {
                true => self.begin(now, out),
                false => self.execute(batch.taken, out),
            }
            return;
        }
        let logged = self.book(&mut batch, done, now, out);
        if logged.is_empty() {
            batch.phase = Phase::Confirming;
            line.ask(
                Ask::Read {
                    after: self.last,
                    max: 0,
                },
                now,
                out,
            );
        } else {
            let body = Body::Batch(logged);
            let entry = Arc::new(Entry { id, body });
            batch.phase = Phase::Appending(Arc::clone(&entry));
            line.ask(Ask::Append { last: self.last, entry }, now, out);
        }
        self.batch = Some(batch);
    }

    /// Enters the results of the transactions, queues those that were not run again, and returns the transactions to
    /// log.
    fn book(&mut self, batch: &mut Batch, done: Vec<Execution>, now: Time, out: &mut Outbox) -> Vec<LoggedTransaction> {
        let mut logged = Vec::new();
        let taken = std::mem::take(&mut batch.taken);
        let done = done.into_iter().chain(std::iter::repeat(Execution::NotRun));
        for (mut taken, mut done) in taken.into_iter().zip(done) {
            if done == Execution::NotRun {
                self.intake.abandon(taken.executor);
                self.admit(taken.queued, now, out);
                continue;
            }
            taken.index = logged.len() as u32;
            if let Execution::Done { set, events, .. } = &mut done
                && !set.changes.is_empty()
            {
                let (id, set, events) = (taken.queued.request.id, set.clone(), std::mem::take(events));
                logged.push(LoggedTransaction { id, set, events });
            }
            taken.done = Some(done);
            batch.taken.push(taken);
        }
        fit_events(&mut logged);
        logged
    }

    /// Takes the log's answer, or its absence ([`LogError::NoAnswer`]).
    pub fn log(
        &mut self,
        answer: Result<LogAnswer, LogError>,
        line: &mut LogCalls,
        now: Time,
        out: &mut Outbox,
    ) -> Consequence {
        let Some(batch) = &mut self.batch else {
            return Reigning;
        };
        let last = self.last;
        match (&mut batch.phase, answer) {
            (Phase::Confirming, Ok(LogAnswer::Read { last: end, .. })) if end == last => self.confirmed(now, out),
            (Phase::Confirming, Ok(_) | Err(LogError::Compacted { .. })) => return Deposed,
            (Phase::Confirming, Err(_)) => line.ask_later(Ask::Read { after: last, max: 0 }, now),
            (Phase::Appending(entry), Ok(LogAnswer::Appended(AppendResult::At(_)))) => {
                let placed = (last.next(), Arc::clone(entry));
                batch.phase = Phase::Applying;
                return Committed(placed);
            }
            (Phase::Appending(entry), Err(LogError::EntryTooLong { len })) => {
                match Arc::make_mut(entry).clear_events() {
                    true => line.ask(
                        Ask::Append {
                            last,
                            entry: Arc::clone(entry),
                        },
                        now,
                        out,
                    ),
                    false => self.too_long(len, now, out),
                }
            }
            (Phase::Appending(entry), _) => {
                batch.doubted = true;
                batch.phase = Phase::Reading(Arc::clone(entry));
                line.ask(Ask::Read { after: last, max: 1 }, now, out);
            }
            (Phase::Reading(entry), Ok(LogAnswer::Read { entries, last: end })) => {
                let entry = Arc::clone(entry);
                match entries.first() {
                    Some((_, there)) if there.id == entry.id => {
                        batch.phase = Phase::Applying;
                        return Committed((last.next(), entry));
                    }
                    Some(_) => return Deposed,
                    // The log has moved, and the read does not show the entry at our revision: that decides nothing.
                    None if end != last => line.ask_later(Ask::Read { after: last, max: 1 }, now),
                    None => {
                        batch.phase = Phase::Appending(Arc::clone(&entry));
                        line.ask_later(Ask::Append { last, entry }, now);
                    }
                }
            }
            (Phase::Reading(_), Err(LogError::Compacted { .. })) => {
                self.cannot_tell(out);
                return Deposed;
            }
            (Phase::Reading(_), _) => line.ask_later(Ask::Read { after: last, max: 1 }, now),
            (Phase::Executing | Phase::Applying, _) => {}
        }
        Reigning
    }

    /// Handles the log's refusal of an entry of `len` bytes, which is final.
    fn too_long(&mut self, len: usize, now: Time, out: &mut Outbox) {
        let Some(mut batch) = self.batch.take() else {
            return;
        };
        // Clients that got `Unknown` ask for the outcome: their transactions were not executed.
        let told = batch.taken.extract_if(.., |taken| taken.answered);
        told.for_each(|taken| self.intake.abandon(taken.executor));
        let writing = batch.taken.iter().filter(|taken| taken.writes()).count();
        match writing {
            0 | 1 => self.refuse_alone(&mut batch, len, out),
            _ => self.put_back_half(&mut batch, writing / 2, now, out),
        }
        match batch.taken.is_empty() {
            true => self.begin(now, out),
            false => self.execute(batch.taken, out),
        }
    }

    /// Refuses the transactions of a batch that write; there is one at most.
    fn refuse_alone(&mut self, batch: &mut Batch, len: usize, out: &mut Outbox) {
        for taken in batch.taken.extract_if(.., |taken| taken.writes()) {
            self.intake.abandon(taken.executor);
            let refused = Answer::Refused(Refusal::WritesTooLong { len });
            out.answer(taken.queued.caller, taken.queued.request.id, refused);
        }
    }

    /// Keeps the transactions of a batch up to the one after the first `kept` that write; queues the others again.
    fn put_back_half(&mut self, batch: &mut Batch, kept: usize, now: Time, out: &mut Outbox) {
        self.batch_max = kept;
        let next = |(index, taken): (usize, &BatchedRequest)| taken.writes().then_some(index);
        let first = batch.taken.iter().enumerate().filter_map(next).nth(kept);
        let rest = batch.taken.split_off(first.unwrap_or(batch.taken.len()));
        for taken in rest {
            self.intake.abandon(taken.executor);
            self.admit(taken.queued, now, out);
        }
    }

    /// Answers `Unknown` to the batch under way: the log no longer shows its outcome, or this node no longer reads the
    /// log. The requests' sessions record the outcome.
    pub fn cannot_tell(&mut self, out: &mut Outbox) {
        for taken in self.batch.iter_mut().flat_map(|batch| &mut batch.taken) {
            if !taken.answered {
                taken.answered = true;
                out.answer(taken.queued.caller, taken.queued.request.id, unresolved(taken));
            }
        }
    }

    /// Answers the batch after a read showed that the log has not moved, so that its reads are the latest.
    fn confirmed(&mut self, now: Time, out: &mut Outbox) {
        let last = self.last;
        self.reply(last, |_| Position::after(last), now, out);
    }

    /// Notes that the store has applied the batch at `revision`.
    pub fn applied(&mut self, revision: Revision, now: Time, out: &mut Outbox) {
        self.last = revision;
        self.batch_max = (self.batch_max + 1).min(BATCH_MAX);
        self.reply(revision, |index| Position { revision, index }, now, out);
    }

    /// Answers every transaction of the batch, and begins the next batch.
    fn reply(&mut self, revision: Revision, position: impl Fn(u32) -> Position, now: Time, out: &mut Outbox) {
        if let Some(batch) = self.batch.take() {
            for taken in batch.taken {
                match batch.doubted || taken.answered {
                    true => self.intake.abandon(taken.executor),
                    false => _ = self.intake.finish(taken.executor, now),
                }
                let position = position(taken.index);
                taken.reply(position, revision, out);
            }
        }
        self.begin(now, out);
    }

    /// Answers requests that cannot wait any longer: [`MARGIN`] before the deadline.
    pub fn expire(&mut self, now: Time, out: &mut Outbox) {
        while let Some((queued, late)) = self.intake.expired(now) {
            out.refuse(queued.caller, queued.request.id, late);
        }
        let Some(batch) = &mut self.batch else {
            return;
        };
        for taken in &mut batch.taken {
            if taken.answered || taken.queued.deadline > now + MARGIN {
                continue;
            }
            let answer = match batch.phase {
                Phase::Executing | Phase::Confirming => Answer::late(Reason::Expired, None),
                Phase::Appending(_) | Phase::Reading(_) => unresolved(taken),
                Phase::Applying => continue, // the batch is in the log, and its answer is coming
            };
            taken.answered = true;
            out.answer(taken.queued.caller, taken.queued.request.id, answer);
        }
    }

    /// The next instant at which [`expire`](Master::expire) has something to do.
    pub fn next_due(&self) -> Time {
        let applying = |batch: &&Batch| !matches!(batch.phase, Phase::Applying);
        let batch = self.batch.iter().filter(applying).flat_map(|batch| &batch.taken);
        let open = batch
            .filter(|taken| !taken.answered)
            .map(|taken| taken.queued.deadline - MARGIN);
        self.intake
            .next_expiry()
            .into_iter()
            .chain(open)
            .min()
            .unwrap_or(Time::MAX)
    }

    /// Answers every waiting request that it was not executed. For a former master whose batch is not in the log and
    /// cannot arrive there.
    pub fn dismiss(&mut self, out: &mut Outbox) {
        for taken in self.batch.take().into_iter().flat_map(|batch| batch.taken) {
            self.intake.abandon(taken.executor);
            if !taken.answered {
                out.late(taken.queued.caller, taken.queued.request.id, Reason::NoMaster, None);
            }
        }
        let mut taken = Vec::new();
        loop {
            while let Some(Start { executor, work, .. }) = self.intake.start(Time::ZERO, 0) {
                taken.push(executor);
                out.late(work.caller, work.request.id, Reason::NoMaster, None);
            }
            if taken.is_empty() {
                return;
            }
            taken.drain(..).for_each(|executor| self.intake.abandon(executor));
        }
    }
}

/// The answer to a transaction while the log does not answer: without changes it counts as not executed.
fn unresolved(taken: &BatchedRequest) -> Answer {
    match taken.writes() {
        true => Answer::Unknown,
        false => Answer::late(Reason::Expired, None),
    }
}

impl BatchedRequest {
    /// Whether the transaction has changes to log.
    fn writes(&self) -> bool {
        matches!(&self.done, Some(Execution::Done { set, .. }) if !set.changes.is_empty())
    }

    fn reply(self, position: Position, revision: Revision, out: &mut Outbox) {
        if self.answered {
            return;
        }
        let answer = match self.done {
            Some(Execution::Done { output, .. }) => done(output, position, revision),
            Some(Execution::Refused(refusal)) => Answer::Refused(refusal),
            Some(Execution::NotRun) | None => Answer::late(Reason::NoMaster, None),
        };
        out.answer(self.queued.caller, self.queued.request.id, answer);
    }
}

fn done(output: Output, position: Position, revision: Revision) -> Answer {
    Answer::Done {
        output,
        position,
        revision,
    }
}
