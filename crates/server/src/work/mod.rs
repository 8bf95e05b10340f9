//! How a thread of the pool carries out jobs: one transaction for as many as belong together.
//!
//! Commands that one connection has sent ahead, without waiting for replies, are one job. Jobs that only read share a
//! snapshot; jobs that only write share a commit, because a commit costs as much for one record as for many. A group
//! that fails as a whole (a deadline passes before its commit, a record is refused) is undone, and each of its commands
//! is tried alone: so no command suffers for another one.

mod alone;
mod counts;
mod exec;
mod group;
mod job;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use punctual_os::Os;
use punctual_store::engine::Engine;
use punctual_store::{Deadline, StoreError, WriteTransaction};
use punctual_units::{Nanos, Time};

pub use self::alone::Flushing;
use self::counts::CommandTimes;
pub use self::counts::{BatchTimes, Counts, LateStage};
pub use self::job::{Handle, Job, JobReply, Work};
use self::job::{JobKind, kind_of};
use crate::commands::Verb;
use crate::pool::PoolState;
use crate::resp::{Resp, Writer};
use crate::session::Call;

/// The longest reply to one request, in bytes.
pub const REPLY_MAX: usize = 32 << 20;
/// Pauses a job once its replies reach this many bytes; it resumes when they are sent.
pub const REPLIES_PAUSE: usize = 1 << 20;
/// Pauses the remaining jobs of a batch until the next turn once all its replies reach this many bytes.
pub const REPLIES_TOGETHER: usize = 8 << 20;
/// The most commands that one thread takes from the queue at a time.
pub(crate) const TAKEN_MAX: usize = 64;

/// Settings of the temporal objects that TSET makes of new keys.
#[derive(Clone, Copy, Debug)]
pub struct Temporal {
    /// How long a value counts as fresh.
    pub validity: Nanos,
    /// Length of the longest value, in bytes.
    pub max_len: usize,
}

/// Carries out jobs of a pool, on one of its threads or on the event loop.
pub(crate) struct Worker<'p, E: Engine, O: Os> {
    pool: &'p Arc<PoolState<E, O>>,
    /// Where the time of the present batch went.
    pub spent: BatchTimes,
}

impl<'p, E: Engine, O: Os> Worker<'p, E, O> {
    /// Makes a worker that has no batch yet.
    pub fn new(pool: &'p Arc<PoolState<E, O>>) -> Worker<'p, E, O> {
        let spent = BatchTimes::default();
        Worker { pool, spent }
    }
}

impl<E: Engine, O: Os> Deref for Worker<'_, E, O> {
    type Target = PoolState<E, O>;

    fn deref(&self) -> &PoolState<E, O> {
        self.pool
    }
}

/// A job being carried out.
struct RunningJob {
    queued: Time,
    connection: Handle,
    version: Resp,
    asked: Vec<Call>,
    /// Number of `asked` that have their reply.
    answered: usize,
    reply: Vec<u8>,
}

impl RunningJob {
    /// Begins a job whose replies go behind `reply`.
    fn new((connection, version): (Handle, Resp), queued: Time, asked: Vec<Call>, reply: Vec<u8>) -> RunningJob {
        RunningJob {
            queued,
            connection,
            version,
            asked,
            answered: 0,
            reply,
        }
    }

    fn end(mut self) -> JobReply {
        JobReply {
            rest: self.asked.split_off(self.answered),
            ..JobReply::of(self.connection, self.reply)
        }
    }
}

type Writing<'s, E, O> = WriteTransaction<'s, E, O>;

impl<E: Engine + 'static, O: Os> Worker<'_, E, O> {
    /// Carries out jobs in their order, and appends their results to `done`.
    pub fn carry_out(&self, jobs: Vec<Job>, done: &mut Vec<JobReply>) {
        let now = self.store.os().now();
        self.spent.taken.set(now);
        self.spent.locked.set(Nanos::ZERO);
        if let Some(first) = jobs.first() {
            self.counts.waited.store(now.since(first.queued).0, Ordering::Relaxed);
        }
        let mut group: Vec<RunningJob> = Vec::new();
        let mut group_kind = JobKind::Other;
        for job in jobs {
            let (connection, version, queued, work) = (job.connection, job.version, job.queued, job.work);
            let kind = work.kind();
            if kind != group_kind || kind == JobKind::Other {
                self.run(group_kind, &mut group, done);
                group_kind = kind;
            }
            let begun = |verb, arrived, deadline| CommandTimes {
                verb,
                arrived,
                queued,
                deadline,
            };
            let mut result = JobReply::of(connection, Vec::new());
            let reply = &mut result.reply;
            match work {
                Work::Run(asked) => {
                    group.push(RunningJob::new((connection, version), queued, asked, Vec::new()));
                    continue;
                }
                Work::Exec(asked, watched, deadline) => {
                    let arrived = asked.first().map_or(queued, |asked| asked.arrived);
                    let begun = begun(Verb::Exec, arrived, deadline);
                    self.exec(&asked, &watched, begun, version, reply);
                }
                Work::Watch(request, deadline, room) => {
                    let begun = begun(Verb::Watch, queued, deadline);
                    result.watched = self.watch(&request, begun, room, version, reply);
                }
                Work::Listen => {
                    if let Err(error) = self.pool.listen() {
                        Writer::new(reply, version).error(&format!("ERR {error}"));
                    }
                }
            }
            done.push(result);
        }
        self.run(group_kind, &mut group, done);
    }

    /// Carries out commands that read, in their order, and writes their replies. Returns those left over because the
    /// replies are long.
    pub fn read_at_once(&self, asked: Vec<Call>, client: (Handle, Resp), reply: &mut Vec<u8>) -> Vec<Call> {
        let now = self.store.os().now();
        self.spent.taken.set(now);
        self.spent.is_alone.set(asked.len() == 1);
        self.counts.waited.store(0, Ordering::Relaxed);
        let mut running = RunningJob::new(client, now, asked, std::mem::take(reply));
        self.reads(std::slice::from_mut(&mut running), usize::MAX);
        *reply = running.reply;
        running.asked.split_off(running.answered)
    }

    fn run(&self, kind: JobKind, group: &mut Vec<RunningJob>, done: &mut Vec<JobReply>) {
        match kind {
            JobKind::Read => self.reads(group, usize::MAX),
            JobKind::Write => self.writes(group, usize::MAX),
            JobKind::Other => group.iter_mut().for_each(|running| self.in_turn(running)),
        }
        done.extend(group.drain(..).map(RunningJob::end));
    }

    /// Carries out a job that mixes reads and writes, one stretch of equal kind after the other.
    fn in_turn(&self, running: &mut RunningJob) {
        while let Some(first) = running.asked.get(running.answered)
            && !self.pauses(&running.reply, 0)
        {
            let kind = kind_of(first);
            let alike = running.asked[running.answered..]
                .iter()
                .take_while(|asked| kind_of(asked) == kind);
            let until = running.answered + alike.count();
            let part = std::slice::from_mut(running);
            match kind {
                JobKind::Read => self.reads(part, until),
                JobKind::Write => self.writes(part, until),
                JobKind::Other if self.whole(&mut part[0]) => {}
                JobKind::Other => return, // other jobs have their turn before FLUSHDB goes on
            }
        }
    }

    /// Takes the write lock, and adds the wait for it to the batch's times.
    fn writing(&self, deadline: Deadline) -> Result<Writing<'_, E, O>, StoreError> {
        let begin = self.store.os().now();
        let transaction = self.store.write_transaction(deadline);
        let waited = self.store.os().now().since(begin);
        self.spent.locked.set(self.spent.locked.get() + waited);
        transaction
    }

    /// Whether a job leaves its remaining commands for another turn: its replies are long, or those of the whole batch
    /// are, or the server ends.
    fn pauses(&self, reply: &[u8], together: usize) -> bool {
        reply.len() >= REPLIES_PAUSE || together >= REPLIES_TOGETHER || self.is_stopping()
    }

    fn say(&self, error: StoreError, begun: CommandTimes, out: &mut Writer<'_>) {
        match error {
            StoreError::DeadlinePassed { .. } => self.say_late(begun, out),
            StoreError::Temporal { key } => out.error(&format!(
                "ERR key {}: this is a temporal object: set it by TSET",
                key.escape_ascii()
            )),
            other => out.error(&format!("ERR {other}")),
        }
    }
}

fn firm(deadline: Time) -> Deadline {
    if deadline == Time::MAX {
        Deadline::NONE
    } else {
        Deadline::firm(deadline)
    }
}
