//! How a thread of the pool carries out jobs: one transaction for as many as belong together.
//!
//!
//! Commands that one connection has sent ahead, without waiting for replies, are one job. Jobs that only read share a
//! snapshot; jobs that only write share a commit, because a commit costs as much for one record as for many. A group
//! that fails as a whole (a deadline passes before its commit, a record is refused) is undone, and each of its commands
//! is tried alone: so no command suffers for another one.

use std::cell::Cell;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use punctual_os::{Lock, Os};
use punctual_store::engine::Engine;
use punctual_store::temporal::ObjectSpec;
use punctual_store::{Deadline, Store, StoreError, Together, WriteTransaction};
use punctual_units::{Nanos, ObjectId, Time};

use crate::commands::{self, Class, Look, Place, Refused, Verb};
use crate::cursors::Cursors;
use crate::forecast::Costs;
use crate::queue::Lane;
use crate::resp::request::Request;
use crate::resp::{Version, Writer};
use crate::session::{Asked, Watched, late};

/// The longest reply to one request, in bytes.
pub const REPLY_MAX: usize = 32 << 20;
/// Pauses a job once its replies reach this many bytes; it resumes when they are sent.
pub const REPLIES_PAUSE: usize = 1 << 20;
/// Pauses the remaining jobs of a batch until the next turn once all its replies reach this many bytes.
pub const REPLIES_TOGETHER: usize = 8 << 20;
/// Records that one step of FLUSHDB visits; other jobs run between two steps.
const FLUSHED_TOGETHER: usize = 512;
/// The most commands that one thread takes from the queue at a time.
pub(crate) const TAKEN_MAX: usize = 64;

/// Identifies a connection: its index, and its number, because indexes are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    /// Index in the event loop's table of connections.
    pub place: usize,
    /// Number of the connection since the server began, never reused.
    pub id: u64,
}

/// Commands of one connection for a thread of the pool.
#[derive(Debug)]
pub struct Job {
    /// The connection that gets the reply.
    pub connection: Handle,
    /// Protocol version of the reply.
    pub version: Version,
    /// When the job was put into the queue.
    pub queued: Time,
    /// The commands to carry out.
    pub work: Work,
}

/// The commands of a job.
#[derive(Debug)]
pub enum Work {
    /// Independent commands, carried out in their order.
    Run(Vec<Asked>),
    /// MULTI's commands in one transaction, carried out if the watched records are unchanged; the deadline of EXEC.
    Exec(Vec<Asked>, Vec<Watched>, Time),
    /// WATCH: reads keys, until the deadline; at most the given numbers of keys and of bytes.
    Watch(Request, Time, (usize, usize)),
    /// Starts the thread that reports changes of keys. Without reply, unless that fails.
    Listen,
}

/// The kind of transaction that a job needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    /// Reads and writes mixed, or commands that need the whole store.
    Other,
}

fn kind_of(asked: &Asked) -> Kind {
    match (asked.command.class, asked.command.place) {
        (_, Place::Store) => Kind::Other,
        (Class::Write, _) => Kind::Write,
        _ => Kind::Read,
    }
}

impl Work {
    /// Deadline of the most urgent command, because the others come before or with it.
    pub fn deadline(&self) -> Time {
        match self {
            Work::Run(asked) => asked.iter().map(|asked| asked.deadline).min().unwrap_or(Time::MAX),
            Work::Exec(.., deadline) | Work::Watch(_, deadline, _) => *deadline,
            Work::Listen => Time::MAX,
        }
    }

    /// The deadline after which the whole job is late; [`Time::MAX`] if any command has none.
    pub fn last_deadline(&self) -> Time {
        match self {
            Work::Run(asked) => asked.iter().map(|asked| asked.deadline).max().unwrap_or(Time::MAX),
            Work::Exec(.., deadline) | Work::Watch(_, deadline, _) => *deadline,
            Work::Listen => Time::MAX,
        }
    }

    /// Forecast of the time that this job takes of its lane, where `threads` threads read.
    pub(crate) fn cost(&self, costs: &Costs, threads: usize) -> Nanos {
        match (self.lane(), self) {
            // A share of a turn of `TAKEN_MAX` commands.
            (Lane::Write, _) => Nanos(costs.turn().0.saturating_mul(self.commands() as u64) / TAKEN_MAX as u64),
            (Lane::Read, Work::Run(asked) | Work::Exec(asked, ..)) => {
                let each = asked.iter().map(|asked| costs.of(asked.command.verb).0);
                Nanos(each.fold(0, u64::saturating_add) / threads.max(1) as u64)
            }
            (Lane::Read, _) => Nanos::ZERO,
        }
    }

    /// The lane in which this job waits.
    pub fn lane(&self) -> Lane {
        let (asked, others) = match self {
            Work::Run(asked) | Work::Exec(asked, ..) => (asked.as_slice(), Lane::Read),
            Work::Watch(..) => return Lane::Read,
            Work::Listen => return Lane::Write, // waits for the transaction that is open
        };
        let writes = |asked: &Asked| asked.command.class == Class::Write && asked.command.verb != Verb::TSet;
        if asked.iter().any(writes) { Lane::Write } else { others }
    }

    /// Number of commands, as they count towards `TAKEN_MAX`.
    pub fn commands(&self) -> usize {
        match self {
            Work::Run(asked) => asked.len(),
            // Counts as a whole turn, because the replies of several transactions could take any amount of memory.
            Work::Exec(..) => TAKEN_MAX,
            Work::Watch(..) | Work::Listen => 1,
        }
    }

    /// Whether a part of the job is done already, so that it can no longer be refused.
    pub(crate) fn has_begun(&self) -> bool {
        matches!(self, Work::Run(asked) if asked.first().is_some_and(|asked| asked.flushing.is_some()))
    }

    /// Bytes of all arguments.
    pub fn bytes(&self) -> usize {
        match self {
            Work::Run(asked) | Work::Exec(asked, ..) => asked.iter().map(Asked::bytes).sum(),
            Work::Watch(request, ..) => request.bytes(),
            Work::Listen => 0,
        }
    }

    fn kind(&self) -> Kind {
        let Work::Run(asked) = self else { return Kind::Other };
        let first = asked.first().map_or(Kind::Other, kind_of);
        if asked.iter().all(|asked| kind_of(asked) == first) {
            first
        } else {
            Kind::Other
        }
    }
}

/// Result of a job.
#[derive(Debug)]
pub struct Done {
    /// The connection that gets the reply.
    pub connection: Handle,
    /// The replies, RESP-encoded, in the order of the commands.
    pub reply: Vec<u8>,
    /// Commands left over because replies reached `REPLIES_PAUSE`, or because FLUSHDB goes on.
    pub rest: Vec<Asked>,
    /// Records that WATCH read, as EXEC will compare them.
    pub watched: Vec<Watched>,
}

/// Stage that a request had reached when its deadline passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Read, but not queued: behind others of its connection.
    Before,
    /// In the queue of the pool.
    Queue,
    /// With a thread that waited for the store's write lock.
    Lock,
    /// With a thread that worked on it, or on jobs of the same batch.
    Store,
}

impl Stage {
    /// All stages with their names, in the order in which a request passes them.
    pub const ALL: [(&'static str, Stage); 4] = [
        ("before", Stage::Before),
        ("queue", Stage::Queue),
        ("lock", Stage::Lock),
        ("store", Stage::Store),
    ];
}

/// Where the time of a thread's present batch went.
#[derive(Debug, Default)]
pub struct Spent {
    /// When the thread took the batch.
    taken: Cell<Time>,
    /// Time spent since then waiting for the write lock.
    locked: Cell<Nanos>,
    /// Whether the queue was empty once the thread had taken its first job.
    pub is_alone: Cell<bool>,
}

impl Spent {
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
    /// Commits of the store for requests.
    pub commits: AtomicU64,
    /// Time in the queue of the job that a thread took last, in nanoseconds.
    pub waited: AtomicU64,
    /// How long commands take, learned.
    pub costs: Costs,
}

impl Counts {
    /// Number of commands that were late at this stage.
    pub fn late_at(&self, stage: Stage) -> &AtomicU64 {
        &self.late_at[stage as usize]
    }

    /// Time that late commands spent at this stage in total, in nanoseconds.
    pub fn late_spent(&self, stage: Stage) -> &AtomicU64 {
        &self.late_spent[stage as usize]
    }

    /// Counts a command as late at `stage`, with its time at each stage.
    pub(crate) fn expire(&self, stage: Stage, spent: [Nanos; 4]) {
        self.expired.fetch_add(1, Ordering::Relaxed);
        self.late_at(stage).fetch_add(1, Ordering::Relaxed);
        for (sum, spent) in self.late_spent.iter().zip(spent) {
            sum.fetch_add(spent.0, Ordering::Relaxed);
        }
    }
}

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
    pub spent: Spent,
}

/// A job being carried out.
struct Running {
    queued: Time,
    connection: Handle,
    version: Version,
    asked: Vec<Asked>,
    /// Number of `asked` that have their reply.
    answered: usize,
    reply: Vec<u8>,
}

impl Running {
    fn end(mut self) -> Done {
        Done {
            connection: self.connection,
            rest: self.asked.split_off(self.answered),
            reply: self.reply,
            watched: Vec::new(),
        }
    }
}

/// Progress of FLUSHDB. Keys that were there as it began are removed; keys set meanwhile stay or go.
#[derive(Debug)]
pub struct Flushing {
    /// The last key visited.
    behind: Vec<u8>,
    /// The last key of the store when FLUSHDB began.
    last: Vec<u8>,
}

/// A common commit that failed; the store is unchanged.
struct Undone {
    error: StoreError,
    /// Number of commands before the one that the store refused; `None` where it refused no single one.
    before: Option<usize>,
}

type Writing<'s, E, O> = WriteTransaction<'s, E, O>;

/// When a command was read and queued, and its deadline.
#[derive(Clone, Copy)]
struct Begun {
    verb: Verb,
    arrived: Time,
    queued: Time,
    deadline: Time,
}

impl Asked {
    fn begun(&self, queued: Time) -> Begun {
        Begun {
            verb: self.command.verb,
            arrived: self.arrived,
            queued,
            deadline: self.deadline,
        }
    }
}

impl<E: Engine, O: Os> Worker<'_, E, O> {
    /// Carries out jobs in their order, and appends their results to `done`.
    pub fn carry_out(&self, jobs: Vec<Job>, done: &mut Vec<Done>) {
        let now = self.store.os().now();
        self.spent.taken.set(now);
        self.spent.locked.set(Nanos::ZERO);
        if let Some(first) = jobs.first() {
            self.counts.waited.store(now.since(first.queued).0, Ordering::Relaxed);
        }
        let mut group: Vec<Running> = Vec::new();
        let mut group_kind = Kind::Other;
        for Job {
            connection,
            version,
            work,
            queued,
        } in jobs
        {
            let kind = work.kind();
            if kind != group_kind || kind == Kind::Other {
                self.run(group_kind, &mut group, done);
                group_kind = kind;
            }
            match work {
                Work::Run(asked) => group.push(Running {
                    queued,
                    connection,
                    version,
                    asked,
                    answered: 0,
                    reply: Vec::new(),
                }),
                Work::Exec(asked, watched, deadline) => {
                    let mut reply = Vec::new();
                    let begun = Begun {
                        verb: Verb::Exec,
                        arrived: asked.first().map_or(queued, |asked| asked.arrived),
                        queued,
                        deadline,
                    };
                    self.exec(&asked, &watched, begun, version, &mut reply);
                    done.push(finished(connection, reply));
                }
                Work::Watch(request, deadline, room) => {
                    let mut reply = Vec::new();
                    let arrived = queued;
                    let begun = Begun {
                        verb: Verb::Watch,
                        arrived,
                        queued,
                        deadline,
                    };
                    let watched = self.watch(&request, begun, room, version, &mut reply);
                    done.push(Done {
                        watched,
                        ..finished(connection, reply)
                    });
                }
                Work::Listen => {
                    let mut reply = Vec::new();
                    if let Err(error) = (self.listen)() {
                        Writer::new(&mut reply, version).error(&format!("ERR {error}"));
                    }
                    done.push(finished(connection, reply));
                }
            }
        }
        self.run(group_kind, &mut group, done);
    }

    fn run(&self, kind: Kind, group: &mut Vec<Running>, done: &mut Vec<Done>) {
        match kind {
            Kind::Read => self.reads(group, usize::MAX),
            Kind::Write => self.writes(group, usize::MAX),
            Kind::Other => group.iter_mut().for_each(|running| self.in_turn(running)),
        }
        done.extend(group.drain(..).map(Running::end));
    }

    /// Carries out a job that mixes reads and writes, one stretch of equal kind after the other.
    fn in_turn(&self, running: &mut Running) {
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
                Kind::Read => self.reads(part, until),
                Kind::Write => self.writes(part, until),
                Kind::Other if self.whole(&mut part[0]) => {}
                Kind::Other => return, // other jobs have their turn before FLUSHDB goes on
            }
        }
    }

    /// Returns whether a command is late; if so, writes and counts the `LATE` reply.
    fn is_late(&self, begun: Begun, out: &mut Writer<'_>) -> bool {
        let is_late = begun.deadline < Time::MAX && self.is_late_at(begun, self.store.os().now());
        if is_late {
            self.say_late(begun, out);
        }
        is_late
    }

    /// Whether a command can no longer end in time if it begins at `now`.
    fn is_late_at(&self, begun: Begun, now: Time) -> bool {
        let Begun {
            verb,
            arrived,
            deadline,
            ..
        } = begun;
        let is_alone = self.spent.is_alone.get();
        now > self.counts.costs.begin_by(verb, arrived, deadline, is_alone)
    }

    fn say_late(&self, begun: Begun, out: &mut Writer<'_>) {
        let (stage, spent) = self.spent_on(begun);
        self.counts.expire(stage, spent);
        out.error(&late("expired", self.waited()));
    }

    /// The stage of a late command, and its time at each stage. On a thread, the stage that took most of the time.
    fn spent_on(&self, begun: Begun) -> (Stage, [Nanos; 4]) {
        let (taken, locked) = (self.spent.taken.get(), self.spent.locked.get());
        let since = self.store.os().now().since(taken);
        let worked = Nanos(since.0.saturating_sub(locked.0));
        let stage = match () {
            () if self.is_late_at(begun, taken) => Stage::Queue,
            () if locked > worked => Stage::Lock,
            () => Stage::Store,
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

    /// Takes the write lock, and adds the wait for it to the batch's times.
    fn writing(&self, deadline: Deadline) -> Result<Writing<'_, E, O>, StoreError> {
        let begin = self.store.os().now();
        let transaction = self.store.write_transaction(deadline);
        let waited = self.store.os().now().since(begin);
        self.spent.locked.set(self.spent.locked.get() + waited);
        transaction
    }

    /// Counts a command that was carried out as timely, if it had a deadline.
    fn note_timely(&self, deadline: Time) {
        if deadline < Time::MAX {
            self.counts.timely.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Time that jobs have spent in the queue lately.
    fn waited(&self) -> Nanos {
        Nanos(self.counts.waited.load(Ordering::Relaxed))
    }

    fn count(&self, commands: usize) {
        self.counts.carried_out.fetch_add(commands as u64, Ordering::Relaxed);
    }

    fn say(&self, error: StoreError, begun: Begun, out: &mut Writer<'_>) {
        match error {
            StoreError::DeadlinePassed { .. } => self.say_late(begun, out),
            other => out.error(&format!("ERR {other}")),
        }
    }

    /// Carries out reading commands in one snapshot, up to number `until` of each job.
    fn reads(&self, group: &mut [Running], until: usize) {
        let begin = || self.store.read_transaction(Deadline::NONE);
        let mut transaction = begin();
        let mut replies = 0;
        let mut since = self.store.os().now();
        for Running {
            queued,
            version,
            asked,
            answered,
            reply,
            ..
        } in group
        {
            let (from, length) = (*answered, reply.len());
            for one in &asked[from..until.min(asked.len())] {
                let Asked { command, request, .. } = one;
                if self.pauses(reply, replies + reply.len() - length) {
                    break;
                }
                *answered += 1;
                if self.is_late(one.begun(*queued), &mut Writer::new(reply, *version)) {
                    continue;
                }
                self.note_timely(one.deadline);
                let failed = match &transaction {
                    Ok(transaction) => bounded(reply, *version, REPLY_MAX, |out| {
                        commands::read(transaction, command, request, self.cursors, out)
                    }),
                    Err(_) => None,
                };
                // A snapshot that failed stays so; the commands that follow get a new one.
                let failed = match (failed, &mut transaction) {
                    (None, Ok(_)) => continue,
                    (failed, transaction) => match (failed, std::mem::replace(transaction, begin())) {
                        (Some(failed), _) | (None, Err(failed)) => failed,
                        (None, Ok(_)) => continue,
                    },
                };
                self.say(failed, one.begun(*queued), &mut Writer::new(reply, *version));
            }
            replies += reply.len() - length;
            self.count(*answered - from);
            let now = self.store.os().now();
            self.learn(&asked[from..*answered], now.since(since));
            since = now;
        }
    }

    /// Learns the cost of one command from the time of several, if all have the same verb.
    fn learn(&self, asked: &[Asked], taken: Nanos) {
        if let Some(first) = asked.first()
            && asked.iter().all(|one| one.command.verb == first.command.verb)
        {
            let each = Nanos(taken.0 / asked.len() as u64);
            self.counts.costs.learn(first.command.verb, each);
        }
    }

    /// Whether a job leaves its remaining commands for another turn: its replies are long, or those of the whole batch
    /// are, or the server ends.
    fn pauses(&self, reply: &[u8], together: usize) -> bool {
        reply.len() >= REPLIES_PAUSE || together >= REPLIES_TOGETHER || self.ending.load(Ordering::Relaxed)
    }

    /// Carries out writing commands up to number `until` of each job, in one commit if the store accepts all. Where it
    /// refuses one, all are undone: those before it are committed together, it gets the error, and those behind it go
    /// on together. So each refused command costs two commits, however many commands surround it.
    fn writes(&self, group: &mut [Running], until: usize) {
        let left = |group: &[Running]| -> usize {
            let left = |running: &Running| until.min(running.asked.len()).saturating_sub(running.answered);
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
            let Err(Undone { error, before: behind }) = self.writes_together(group, until, most) else {
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
    fn writes_together(&self, group: &mut [Running], until: usize, most: usize) -> Result<(), Undone> {
        let whole = |error| Undone { error, before: None };
        let now = self.store.os().now();
        let is_late = |asked: &Asked, queued| self.is_late_at(asked.begun(queued), now);
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
                    .map_err(|error| Undone {
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

    fn change(
        &self,
        transaction: &mut Writing<'_, E, O>,
        asked: &Asked,
        version: Version,
        reply: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let Asked { command, request, .. } = asked;
        let failed = bounded(reply, version, REPLY_MAX, |out| {
            commands::change(transaction, command, request, self.cursors, out)
        });
        failed.map_or(Ok(()), Err)
    }

    fn write_alone(&self, asked: &Asked, version: Version, reply: &mut Vec<u8>) -> Result<(), StoreError> {
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

    /// Carries out TSET, or a step of FLUSHDB, outside of a common transaction; returns whether the command is done.
    fn whole(&self, running: &mut Running) -> bool {
        let Running {
            queued,
            version,
            asked,
            answered,
            reply,
            ..
        } = running;
        let Some(asked) = asked.get_mut(*answered) else {
            return true;
        };
        let begun = asked.begun(*queued);
        if self.is_late(begun, &mut Writer::new(reply, *version)) {
            *answered += 1;
            self.count(1);
            return true;
        }
        let mut is_done = true;
        let failed = bounded(reply, *version, REPLY_MAX, |out| match asked.command.verb {
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
            Some(error) => self.say(error, begun, &mut Writer::new(reply, *version)),
            None => self.note_timely(begun.deadline),
        }
        *answered += 1;
        self.count(1);
        true
    }

    fn tset(&self, asked: &Asked, out: &mut Writer<'_>) -> Result<(), Refused> {
        let request = &asked.request;
        let (key, value) = (request.argument(1), request.argument(2));
        let age = match request.len() {
            3 => Nanos::ZERO,
            5 if request.argument(3).eq_ignore_ascii_case(b"age") => match commands::millis(request.argument(4)) {
                Some(age) => age,
                None => {
                    return Err(Refused::Reply(
                        "ERR an age is a number of milliseconds, not negative".into(),
                    ));
                }
            },
            _ => return Err(Refused::Reply("ERR syntax error".into())),
        };
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
    fn register(&self, key: &[u8]) -> Result<ObjectId, Refused> {
        if self.store.get_with(key, |_| ())?.is_some() {
            let error = "ERR this key holds an ordinary record: remove it first, or give the object another key";
            return Err(Refused::Reply(error.into()));
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
                found.ok_or_else(|| Refused::Reply("ERR this object is being made: try again".into()))
            }
            answer => {
                let object = answer?;
                (self.made)(key, object);
                Ok(object)
            }
        }
    }

    /// Carries out one step of FLUSHDB; returns whether it was the last.
    fn flush(&self, asked: &mut Asked) -> Result<bool, Refused> {
        let is_known = |word: &[u8]| [&b"sync"[..], b"async"].contains(&&*word.to_ascii_lowercase());
        if asked.request.len() > 2 || !asked.request.from(1).all(is_known) {
            return Err(Refused::Reply("ERR syntax error".into()));
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

    /// Carries out MULTI's commands in one transaction.
    fn exec(&self, asked: &[Asked], watched: &[Watched], begun: Begun, version: Version, reply: &mut Vec<u8>) {
        if self.is_late(begun, &mut Writer::new(reply, version)) {
            return;
        }
        self.count(asked.len());
        let answered = if asked.iter().any(|asked| asked.command.class == Class::Write) {
            self.exec_writes(asked, watched, begun.deadline, version, reply)
        } else {
            self.exec_reads(asked, watched, version, reply)
        };
        match answered {
            Ok(()) => self.note_timely(begun.deadline),
            Err(error) => {
                reply.clear();
                self.say(error, begun, &mut Writer::new(reply, version));
            }
        }
    }

    fn exec_reads(
        &self,
        asked: &[Asked],
        watched: &[Watched],
        version: Version,
        reply: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let transaction = self.store.read_transaction(Deadline::NONE)?;
        if !unchanged(&transaction, watched)? {
            Writer::new(reply, version).null_array();
            return Ok(());
        }
        Writer::new(reply, version).array(asked.len());
        for Asked { command, request, .. } in asked {
            let failed = bounded(reply, version, REPLY_MAX, |out| {
                commands::read(&transaction, command, request, self.cursors, out)
            });
            failed.map_or(Ok(()), Err)?;
            if too_long(reply, version) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn exec_writes(
        &self,
        asked: &[Asked],
        watched: &[Watched],
        deadline: Time,
        version: Version,
        reply: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let mut transaction = self.writing(firm(deadline))?;
        if !unchanged(&transaction, watched)? {
            Writer::new(reply, version).null_array();
            return Ok(());
        }
        Writer::new(reply, version).array(asked.len());
        for asked in asked {
            self.change(&mut transaction, asked, version, reply)?;
            if too_long(reply, version) {
                return Ok(()); // dropping the transaction undoes it
            }
        }
        transaction.commit()?;
        self.counts.commits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn watch(
        &self,
        request: &Request,
        begun: Begun,
        (mut keys, mut bytes): (usize, usize),
        version: Version,
        reply: &mut Vec<u8>,
    ) -> Vec<Watched> {
        let out = &mut Writer::new(reply, version);
        if self.is_late(begun, out) {
            return Vec::new();
        }
        self.count(1);
        self.note_timely(begun.deadline);
        let mut read = || {
            let transaction = self.store.read_transaction(Deadline::NONE)?;
            let mut watched = Vec::new();
            for key in request.from(1) {
                let value = record(&transaction, key)?;
                let key = key.to_vec();
                let read = Watched { key, value };
                if keys == 0 || read.bytes() > bytes {
                    return Ok(None);
                }
                (keys, bytes) = (keys - 1, bytes - read.bytes());
                watched.push(read);
            }
            Ok(Some(watched))
        };
        match read() {
            Ok(Some(watched)) => {
                out.simple("OK");
                return watched;
            }
            Ok(None) => out.error("ERR too many keys are watched, or their values are too long: UNWATCH some"),
            Err(error) => self.say(error, begun, out),
        }
        Vec::new()
    }
}

fn finished(connection: Handle, reply: Vec<u8>) -> Done {
    Done {
        connection,
        reply,
        rest: Vec::new(),
        watched: Vec::new(),
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
    version: Version,
    max: usize,
    command: impl FnOnce(&mut Writer<'_>) -> Result<(), Refused>,
) -> Option<StoreError> {
    let length = reply.len();
    let mut out = Writer::bounded(reply, version, max);
    let answer = command(&mut out);
    let error = match (answer, out.is_over()) {
        (Ok(()), false) => return None,
        (Ok(()), true) => format!("ERR the reply would take more than {max} bytes: ask for less"),
        (Err(Refused::Reply(error)), _) => error,
        (Err(Refused::Store(error)), _) => {
            reply.truncate(length);
            return Some(error);
        }
    };
    reply.truncate(length);
    Writer::new(reply, version).error(&error);
    None
}

/// Replaces the replies by an error if those of one transaction exceed `REPLY_MAX`; returns whether it did.
fn too_long(reply: &mut Vec<u8>, version: Version) -> bool {
    let is_too_long = reply.len() > REPLY_MAX;
    if is_too_long {
        reply.clear();
        let error = format!("ERR the replies would take more than {REPLY_MAX} bytes: nothing was done, ask for less");
        Writer::new(reply, version).error(&error);
    }
    is_too_long
}

/// Returns the record of `key` as clients see it.
fn record(look: &impl Look, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    if look.is_hidden(key)? {
        Ok(None)
    } else {
        look.bytes(key, <[u8]>::to_vec)
    }
}

fn unchanged(look: &impl Look, watched: &[Watched]) -> Result<bool, StoreError> {
    for Watched { key, value } in watched {
        if record(look, key)? != *value {
            return Ok(false);
        }
    }
    Ok(true)
}
