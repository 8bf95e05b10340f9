//! Which commands were carried out in time, and where the time of the late ones went.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_os::Os;
use punctual_store::engine::Engine;
use punctual_units::{Nanos, Time};

use super::Worker;
use crate::commands::Verb;
use crate::forecast::Costs;
use crate::resp::Writer;
use crate::session::{Call, late};

punctual_units::named! {
    /// Stage that a request had reached when its deadline passed, in the order in which a request passes them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum LateStage by name {
        /// Read, but not queued: behind others of its connection.
        Before = "before",
        /// In the queue of the pool.
        Queue = "queue",
        /// With a thread that waited for the store's write lock.
        Lock = "lock",
        /// With a thread that worked on it, or on jobs of the same batch.
        Store = "store",
    }
}

/// Where the time of a thread's present batch went.
#[derive(Debug, Default)]
pub struct BatchTimes {
    /// When the thread took the batch.
    pub(super) taken: Cell<Time>,
    /// Time spent since then waiting for the write lock.
    pub(super) locked: Cell<Nanos>,
    /// Whether the queue was empty once the thread had taken its first job.
    pub is_alone: Cell<bool>,
}

impl BatchTimes {
    /// When the thread took its batch.
    pub fn taken(&self) -> Time {
        self.taken.get()
    }
}

/// Counters of the server, which its threads share.
#[derive(Debug, Default)]
pub struct Counts {
    /// Commands that were carried out before their deadline.
    pub timely: AtomicU64,
    late_at: [AtomicU64; 4],
    late_spent: [AtomicU64; 4],
    /// Commands that the pool has answered, with a deadline or without.
    pub carried_out: AtomicU64,
    /// Commands that were refused because their deadline had passed.
    pub expired: AtomicU64,
    /// Commands that were refused because the queue was full or could not serve them in time.
    pub backlog: AtomicU64,
    /// Values that GET, HGET and MGET found.
    pub found: AtomicU64,
    /// Values that GET, HGET and MGET did not find.
    pub missed: AtomicU64,
    /// Commits of the store for requests.
    pub commits: AtomicU64,
    /// Time in the queue of the job that a thread took last, in nanoseconds.
    pub waited: AtomicU64,
    /// How long commands take, learned.
    pub costs: Costs,
}

impl Counts {
    /// Number of commands that were late at this stage.
    pub fn late_at(&self, stage: LateStage) -> &AtomicU64 {
        &self.late_at[stage as usize]
    }

    /// Time that late commands spent at this stage in total, in nanoseconds.
    pub fn late_spent(&self, stage: LateStage) -> &AtomicU64 {
        &self.late_spent[stage as usize]
    }

    /// Counts a command as late at `stage`, with its time at each stage.
    pub(crate) fn expire(&self, stage: LateStage, spent: [Nanos; 4]) {
        self.expired.fetch_add(1, Ordering::Relaxed);
        self.late_at(stage).fetch_add(1, Ordering::Relaxed);
        for (sum, spent) in self.late_spent.iter().zip(spent) {
            sum.fetch_add(spent.0, Ordering::Relaxed);
        }
    }
}

/// When a command was read and queued, and its deadline.
#[derive(Clone, Copy)]
pub(super) struct CommandTimes {
    pub(super) verb: Verb,
    pub(super) arrived: Time,
    pub(super) queued: Time,
    pub(super) deadline: Time,
}

impl Call {
    pub(super) fn begun(&self, queued: Time) -> CommandTimes {
        CommandTimes {
            verb: self.command.verb,
            arrived: self.arrived,
            queued,
            deadline: self.deadline,
        }
    }
}

impl<E: Engine + 'static, O: Os> Worker<'_, E, O> {
    /// Returns whether a command is late; if so, writes and counts the `LATE` reply.
    pub(super) fn is_late(&self, begun: CommandTimes, out: &mut Writer<'_>) -> bool {
        let is_late = begun.deadline < Time::MAX && self.is_late_at(begun, self.store.os().now());
        if is_late {
            self.say_late(begun, out);
        }
        is_late
    }

    /// Whether a command can no longer end in time if it begins at `now`.
    pub(super) fn is_late_at(&self, begun: CommandTimes, now: Time) -> bool {
        let is_alone = self.spent.is_alone.get();
        let costs = &self.counts.costs;
        now > costs.begin_by(begun.verb, begun.arrived, begun.deadline, is_alone)
    }

    pub(super) fn say_late(&self, begun: CommandTimes, out: &mut Writer<'_>) {
        let (stage, spent) = self.spent_on(begun);
        self.counts.expire(stage, spent);
        out.error(&late("expired", self.waited()));
    }

    /// The stage of a late command, and its time at each stage. On a thread, the stage that took most of the time.
    pub(super) fn spent_on(&self, begun: CommandTimes) -> (LateStage, [Nanos; 4]) {
        let (taken, locked) = (self.spent.taken.get(), self.spent.locked.get());
        let since = self.store.os().now().since(taken);
        let worked = Nanos(since.0.saturating_sub(locked.0));
        let stage = match () {
            () if self.is_late_at(begun, taken) => LateStage::Queue,
            () if locked > worked => LateStage::Lock,
            () => LateStage::Store,
        };
        let queued = begun.queued.max(begun.arrived);
        let spent = [
            queued.since(begun.arrived),
            taken.max(queued).since(queued),
            locked,
            worked,
        ];
        (stage, spent)
    }

    /// Counts a command that was carried out as timely, if it had a deadline.
    pub(super) fn note_timely(&self, deadline: Time) {
        if deadline < Time::MAX {
            self.counts.timely.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Time that jobs have spent in the queue lately.
    pub(super) fn waited(&self) -> Nanos {
        Nanos(self.counts.waited.load(Ordering::Relaxed))
    }

    pub(super) fn count(&self, commands: usize) {
        self.counts.carried_out.fetch_add(commands as u64, Ordering::Relaxed);
    }
}
