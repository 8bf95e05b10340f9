//! What the threads of the pool do with a piece of work: one transaction for as much of it as belongs together.
//!
//! Commands of one connection that wait one behind the other are one piece. Pieces that only read share a snapshot;
//! pieces that only write share a commit, because a commit costs as much for one record as for many. A group that fails
//! as a whole (a deadline passes before its commit, a record is refused) is undone, and each command of it is tried
//! alone: so no command suffers for another one.

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
/// Once the replies of one piece take so many bytes, what is left of it waits until they are sent.
pub const REPLIES_PAUSE: usize = 1 << 20;
/// Once the replies of pieces that are carried out together take so many bytes, the others wait for the next turn.
pub const REPLIES_TOGETHER: usize = 8 << 20;
/// The records that one step of FLUSHDB looks at: others have their turn in between.
const FLUSHED_TOGETHER: usize = 512;
/// The most commands that one thread takes at a time.
pub(crate) const TAKEN_MAX: usize = 64;

/// Which connection: its place, and its number, because places are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    /// The place.
    pub place: usize,
    /// The number.
    pub id: u64,
}

/// A piece of work.
#[derive(Debug)]
pub struct Job {
    /// For which connection.
    pub connection: Handle,
    /// The protocol of its reply.
    pub version: Version,
    /// When it was queued.
    pub queued: Time,
    /// What.
    pub work: Work,
}

/// What is to be done.
#[derive(Debug)]
pub enum Work {
    /// Commands, one after the other.
    Run(Vec<Asked>),
    /// Commands in one transaction, if what was watched is as it was.
    Exec(Vec<Asked>, Vec<Watched>, Time),
    /// To read keys; at most so many, and so many bytes.
    Watch(Request, Time, (usize, usize)),
    /// To see to it that changes are told; no reply where they are.
    Listen,
}

/// What a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    /// Something else, or both.
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
    /// Its deadline: that of its most urgent command, because the others come before or with it.
    pub fn deadline(&self) -> Time {
        match self {
            Work::Run(asked) => asked.iter().map(|asked| asked.deadline).min().unwrap_or(Time::MAX),
            Work::Exec(.., deadline) | Work::Watch(_, deadline, _) => *deadline,
            Work::Listen => Time::MAX,
        }
    }

    /// The deadline after which all of it is late: [`Time::MAX`] where a part of it has none.
    pub fn last_deadline(&self) -> Time {
        match self {
            Work::Run(asked) => asked.iter().map(|asked| asked.deadline).max().unwrap_or(Time::MAX),
            Work::Exec(.., deadline) | Work::Watch(_, deadline, _) => *deadline,
            Work::Listen => Time::MAX,
        }
    }

    /// What it is forecast to take from the time of its lane, where so many threads read.
    pub(crate) fn cost(&self, costs: &Costs, threads: usize) -> Nanos {
        match (self.lane(), self) {
            // Of a turn that takes as many as it may.
            (Lane::Write, _) => Nanos(costs.turn().0.saturating_mul(self.commands() as u64) / TAKEN_MAX as u64),
            (Lane::Read, Work::Run(asked) | Work::Exec(asked, ..)) => {
                let each = asked.iter().map(|asked| costs.of(asked.command.verb).0);
                Nanos(each.fold(0, u64::saturating_add) / threads.max(1) as u64)
            }
            (Lane::Read, _) => Nanos::ZERO,
        }
    }

    /// The lane that it waits in.
    pub fn lane(&self) -> Lane {
        let (asked, others) = match self {
            Work::Run(asked) | Work::Exec(asked, ..) => (asked.as_slice(), Lane::Read),
            Work::Watch(..) => return Lane::Read,
            Work::Listen => return Lane::Write, // it waits for the transaction that is open
        };
        let writes = |asked: &Asked| asked.command.class == Class::Write && asked.command.verb != Verb::TSet;
        if asked.iter().any(writes) { Lane::Write } else { others }
    }

    /// How many commands it has.
    pub fn commands(&self) -> usize {
        match self {
            Work::Run(asked) => asked.len(),
            // Alone, because the replies of several could take any amount of memory.
            Work::Exec(..) => TAKEN_MAX,
            Work::Watch(..) | Work::Listen => 1,
        }
    }

    /// Whether a part of it is done already, so that it cannot be refused any more.
    pub(crate) fn has_begun(&self) -> bool {
        matches!(self, Work::Run(asked) if asked.first().is_some_and(|asked| asked.flushing.is_some()))
    }

    /// How many bytes its arguments take.
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

/// What came of a piece of work.
#[derive(Debug)]
pub struct Done {
    /// For which connection.
    pub connection: Handle,
    /// What it is told.
    pub reply: Vec<u8>,
    /// What has not been done yet.
    pub rest: Vec<Asked>,
    /// What WATCH read.
    pub watched: Vec<Watched>,
}

/// Where a request was when its deadline had passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Read, behind others of its connection.
    Before,
    /// In the queue.
    Queue,
    /// With a thread that waited for the store's one permit to write.
    Lock,
    /// With a thread that worked on it, or on what was taken with it.
    Store,
}

impl Stage {
    /// All, by their names.
    pub const ALL: [(&'static str, Stage); 4] = [
        ("before", Stage::Before),
        ("queue", Stage::Queue),
        ("lock", Stage::Lock),
        ("store", Stage::Store),
    ];
}

/// Where the time of the work that a thread has now went.
#[derive(Debug, Default)]
pub struct Spent {
    /// When the thread took it.
    taken: Cell<Time>,
    /// How long it has waited for the permit to write since.
    locked: Cell<Nanos>,
    /// Whether nothing else waited when the thread took it.
    pub is_alone: Cell<bool>,
}

impl Spent {
    /// When the thread took its work.
    pub fn taken(&self) -> Time {
        self.taken.get()
    }
}

/// What is counted.
#[derive(Debug, Default)]
pub struct Counts {
    /// Commands with a deadline that were carried out in time.
    pub timely: AtomicU64,
    late_at: [AtomicU64; 4],
    late_spent: [AtomicU64; 4],
    /// Commands that were carried out on the pool.
    pub carried_out: AtomicU64,
    /// Commands that were late.
    pub expired: AtomicU64,
    /// Commands for which there was no room in the queue.
    pub backlog: AtomicU64,
    /// Commits of the store.
    pub commits: AtomicU64,
    /// How long work has waited in the queue lately, in nanoseconds.
    pub waited: AtomicU64,
    /// What commands take.
    pub costs: Costs,
}

impl Counts {
    /// How many commands were late at this stage.
    pub fn late_at(&self, stage: Stage) -> &AtomicU64 {
        &self.late_at[stage as usize]
    }

    /// How long late commands were at this stage, in nanoseconds, all together.
    pub fn late_spent(&self, stage: Stage) -> &AtomicU64 {
        &self.late_spent[stage as usize]
    }

    /// A command was late at `stage`, and had been so long at each.
    pub(crate) fn expire(&self, stage: Stage, spent: [Nanos; 4]) {
        self.expired.fetch_add(1, Ordering::Relaxed);
        self.late_at(stage).fetch_add(1, Ordering::Relaxed);
        for (sum, spent) in self.late_spent.iter().zip(spent) {
            sum.fetch_add(spent.0, Ordering::Relaxed);
        }
    }
}

/// What TSET makes of a key that is new.
#[derive(Clone, Copy, Debug)]
pub struct Temporal {
    /// How long a value is believed.
    pub validity: Nanos,
    /// The longest value, in bytes.
    pub max_len: usize,
}

/// What carries out work.
pub struct Worker<'s, E: Engine, O: Os> {
    /// On this store.
    pub store: &'s Store<E, O>,
    /// Cursors of all scans.
    pub cursors: &'s Cursors,
    /// What is counted.
    pub counts: &'s Counts,
    /// What TSET makes.
    pub temporal: Temporal,
    /// One TSET at a time looks whether its value is the newest, and installs it.
    pub newest: &'s O::Lock<()>,
    /// Whether the server ends: no further command is begun then.
    pub ending: &'s AtomicBool,
    /// Has changes told from now on.
    pub listen: &'s dyn Fn() -> Result<(), StoreError>,
    /// Is told of a temporal object that was made.
    pub made: &'s dyn Fn(&[u8], ObjectId),
    /// Where the time of its present work went.
    pub spent: Spent,
}

/// A run under way.
struct Running {
    queued: Time,
    connection: Handle,
    version: Version,
    asked: Vec<Asked>,
    /// How many of them are answered.
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

/// How far FLUSHDB has come. It removes what was there as it began; what is set meanwhile stays or goes.
#[derive(Debug)]
pub struct Flushing {
    /// The last key that was looked at.
    behind: Vec<u8>,
    /// The last key that there was at the beginning.
    last: Vec<u8>,
}

/// Commands that were to be committed together and were not.
struct Undone {
    error: StoreError,
    /// How many of them came before the one that the store refused; `None` where it refused no single one.
    before: Option<usize>,
}

type Writing<'s, E, O> = WriteTransaction<'s, E, O>;

/// When a command was read and queued, and until when it has to be done.
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
    /// Carries out pieces of work, in their order, and puts what came of them into `done`.
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

    /// A run of which parts read and parts write.
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
                Kind::Other => return, // others have their turn before it goes on
            }
        }
    }

    /// Whether a command is late, and what it is told then.
    fn is_late(&self, begun: Begun, out: &mut Writer<'_>) -> bool {
        let is_late = begun.deadline < Time::MAX && self.is_late_at(begun, self.store.os().now());
        if is_late {
            self.say_late(begun, out);
        }
        is_late
    }

    /// Whether it is too late to begin a command.
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

    /// Where a late command is, and how long it was at each stage. With a thread, it is where most of the time went.
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

    /// The permit to write, and how long the thread has waited for it.
    fn writing(&self, deadline: Deadline) -> Result<Writing<'_, E, O>, StoreError> {
        let begin = self.store.os().now();
        let transaction = self.store.write_transaction(deadline);
        let waited = self.store.os().now().since(begin);
        self.spent.locked.set(self.spent.locked.get() + waited);
        transaction
    }

    /// A command was carried out; in time, if it had a deadline.
    fn note_timely(&self, deadline: Time) {
        if deadline < Time::MAX {
            self.counts.timely.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How long work waits in the queue lately.
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

    /// Commands that read, in one snapshot, up to number `until` of each run.
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
                // A snapshot that was ended stays so: another one for the commands that follow.
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

    /// Commands took so long together: what one takes is known where all are of one kind.
    fn learn(&self, asked: &[Asked], taken: Nanos) {
        if let Some(first) = asked.first()
            && asked.iter().all(|one| one.command.verb == first.command.verb)
        {
            let each = Nanos(taken.0 / asked.len() as u64);
            self.counts.costs.learn(first.command.verb, each);
        }
    }

    /// Whether a piece leaves what it has not done yet for another turn: its replies are long, or those of all pieces
    /// that are carried out with it, or the server ends.
    fn pauses(&self, reply: &[u8], together: usize) -> bool {
        reply.len() >= REPLIES_PAUSE || together >= REPLIES_TOGETHER || self.ending.load(Ordering::Relaxed)
    }

    /// Commands that write, in one commit if nothing goes wrong, up to number `until` of each run. Where the store
    /// refuses one of them, all are undone: those before it are committed together, it is told why, and those behind it
    /// go on together. So each refused command costs two commits, however many it stood among.
    fn writes(&self, group: &mut [Running], until: usize) {
        let left = |group: &[Running]| -> usize {
            let left = |running: &Running| until.min(running.asked.len()).saturating_sub(running.answered);
            group.iter().map(left).sum()
        };
        // How many commands the next attempt takes.
        let mut most = usize::MAX;
        // Two for each command, if the store refuses all; a few more for deadlines that pass meanwhile.
        for _ in 0..2 * left(group) + 8 {
            let before: Vec<_> = group
                .iter()
                .map(|running| (running.answered, running.reply.len()))
                .collect();
            let Err(Undone { error, before: behind }) = self.writes_together(group, until, most) else {
                if most == usize::MAX || left(group) == 0 {
                    return;
                }
                most = usize::MAX; // the refused one is the first of the next attempt
                continue;
            };
            for (running, (answered, reply)) in group.iter_mut().zip(before) {
                running.reply.truncate(reply);
                running.answered = answered;
            }
            match (behind, error) {
                // Those that are late by now are told so by the next attempt.
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
        // Nothing can be committed together, or deadlines pass faster than commits are made.
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

    /// Commits at most `most` commands together.
    fn writes_together(&self, group: &mut [Running], until: usize, most: usize) -> Result<(), Undone> {
        let whole = |error| Undone { error, before: None };
        let now = self.store.os().now();
        let is_late = |asked: &Asked, queued| self.is_late_at(asked.begun(queued), now);
        let asked = group.iter().flat_map(|running| {
            let left = &running.asked[running.answered..until.min(running.asked.len())];
            left.iter().map(|asked| (asked, running.queued))
        });
        // Those that are late already are told so, and do not count.
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

    /// A command that is no transaction; whether it is done.
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
            // Another thread was first.
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

    /// One step of FLUSHDB; whether it was the last.
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
        // Once something is removed, it is too late to say that it was too late.
        asked.deadline = Time::MAX;
        asked.flushing = Some(flushing);
        Ok(false)
    }

    /// A transaction of MULTI.
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
                return Ok(()); // undone
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

/// Writes what a command answers, or why it does not; an error of the store is returned, and nothing written.
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

/// The replies of a transaction have a bound together.
fn too_long(reply: &mut Vec<u8>, version: Version) -> bool {
    let is_too_long = reply.len() > REPLY_MAX;
    if is_too_long {
        reply.clear();
        let error = format!("ERR the replies would take more than {REPLY_MAX} bytes: nothing was done, ask for less");
        Writer::new(reply, version).error(&error);
    }
    is_too_long
}

/// The record of `key` as clients see it.
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
