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

use std::sync::atomic::{AtomicBool, Ordering};

use punctual_os::Os;
use punctual_store::engine::Engine;
use punctual_store::{Deadline, Store, StoreError, WriteTransaction};
use punctual_units::{Nanos, ObjectId, Time};

pub use self::alone::Flushing;
use self::counts::CommandTimes;
pub use self::counts::{BatchTimes, Counts, LateStage};
pub use self::job::{Handle, Job, JobReply, Work};
use self::job::{JobKind, kind_of};
use crate::commands::{Failure, Verb};
use crate::cursors::Cursors;
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

/// Carries out jobs on a store, on one thread of the pool.
pub struct Worker<'s, E: Engine, O: Os> {
    /// The store that the commands read and change.
    pub store: &'s Store<E, O>,
    /// Cursors of all scans, shared by all workers.
    pub cursors: &'s Cursors,
    /// Counters of the server, shared by all workers.
    pub counts: &'s Counts,
    /// Settings of objects that TSET makes.
    pub temporal: Temporal,
    /// Lock around "is this value the newest?" and its installation, so that TSET never replaces a newer value.
    pub newest: &'s O::Lock<()>,
    /// Whether the server ends; no further command begins then.
    pub ending: &'s AtomicBool,
    /// Starts the thread that reports changes of keys, if it does not run yet.
    pub listen: &'s dyn Fn() -> Result<(), StoreError>,
    /// Called with the key of each temporal object that TSET has made.
    pub made: &'s dyn Fn(&[u8], ObjectId),
    /// Where the time of the present batch went.
    pub spent: BatchTimes,
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
    fn end(mut self) -> JobReply {
        JobReply {
            rest: self.asked.split_off(self.answered),
            ..JobReply::of(self.connection, self.reply)
        }
    }
}

type Writing<'s, E, O> = WriteTransaction<'s, E, O>;

impl<E: Engine, O: Os> Worker<'_, E, O> {
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
        for Job {
            connection,
            version,
            work,
            queued,
        } in jobs
        {
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
                    group.push(RunningJob {
                        queued,
                        connection,
                        version,
                        asked,
                        answered: 0,
                        reply: Vec::new(),
                    });
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
                    if let Err(error) = (self.listen)() {
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
    pub fn read_at_once(
        &self,
        asked: Vec<Call>,
        (connection, version): (Handle, Resp),
        reply: &mut Vec<u8>,
    ) -> Vec<Call> {
        let now = self.store.os().now();
        self.spent.taken.set(now);
        self.spent.is_alone.set(asked.len() == 1);
        self.counts.waited.store(0, Ordering::Relaxed);
        let mut running = RunningJob {
            queued: now,
            connection,
            version,
            asked,
            answered: 0,
            reply: std::mem::take(reply),
        };
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
        reply.len() >= REPLIES_PAUSE || together >= REPLIES_TOGETHER || self.ending.load(Ordering::Relaxed)
    }

    fn say(&self, error: StoreError, begun: CommandTimes, out: &mut Writer<'_>) {
        match error {
            StoreError::DeadlinePassed { .. } => self.say_late(begun, out),
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

/// Writes a command's reply, or its error. An error of the store is returned, and nothing is written.
pub fn bounded(
    reply: &mut Vec<u8>,
    version: Resp,
    max: usize,
    command: impl FnOnce(&mut Writer<'_>) -> Result<(), Failure>,
) -> Option<StoreError> {
    let length = reply.len();
    let mut out = Writer::bounded(reply, version, max);
    let answer = command(&mut out);
    let error = match (answer, out.is_over()) {
        (Ok(()), false) => return None,
        (Ok(()), true) => format!("ERR the reply would take more than {max} bytes: ask for less"),
        (Err(Failure::Reply(error)), _) => error,
        (Err(Failure::Store(error)), _) => {
            reply.truncate(length);
            return Some(error);
        }
    };
    reply.truncate(length);
    Writer::new(reply, version).error(&error);
    None
}
