//! A job: commands of one connection for a thread of the pool, and its result.

use punctual_units::{Nanos, Time};

use super::TAKEN_MAX;
use crate::commands::{Class, Scope, Verb};
use crate::forecast::Costs;
use crate::queue::Lane;
use crate::resp::Resp;
use crate::resp::request::Request;
use crate::session::{Call, WatchedKey};

/// The event loop itself carries out reads that are forecast to take less than this each.
const SHORT: Nanos = Nanos::from_micros(20);
/// Limit of the keys that such a read names.
const SHORT_KEYS: usize = 8;
/// Limit of such reads between two looks at the clock.
const SHORT_RUN: usize = 16;

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
    pub version: Resp,
    /// When the job was put into the queue.
    pub queued: Time,
    /// The commands to carry out.
    pub work: Work,
}

/// The commands of a job.
#[derive(Debug)]
pub enum Work {
    /// Independent commands, carried out in their order.
    Run(Vec<Call>),
    /// MULTI's commands in one transaction, carried out if the watched records are unchanged; the deadline of EXEC.
    Exec(Vec<Call>, Vec<WatchedKey>, Time),
    /// WATCH: reads keys, until the deadline; at most the given numbers of keys and of bytes.
    Watch(Request, Time, (usize, usize)),
    /// Starts the thread that reports changes of keys. Without reply, unless that fails.
    Listen,
}

/// The kind of transaction that a job needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobKind {
    Read,
    Write,
    /// Reads and writes mixed, or commands that need the whole store.
    Other,
}

pub(super) fn kind_of(asked: &Call) -> JobKind {
    match (asked.command.class, asked.command.place) {
        (_, Scope::Store) => JobKind::Other,
        (Class::Write, _) => JobKind::Write,
        _ => JobKind::Read,
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

    /// Number of commands, from the first on, that the event loop may carry out itself: reads of few keys, of one verb,
    /// so that its cost is learned, which is known and low.
    pub(crate) fn short_reads(&self, costs: &Costs) -> usize {
        let Work::Run(asked) = self else { return 0 };
        let Some(verb) = asked.first().map(|first| first.command.verb) else {
            return 0;
        };
        let is_low = Nanos::ZERO < costs.of(verb) && costs.of(verb) < SHORT;
        let is_short = |asked: &&Call| {
            let keys = asked.command.keys_of(&asked.request).take(SHORT_KEYS + 1).count();
            asked.command.verb == verb && kind_of(asked) == JobKind::Read && (1..=SHORT_KEYS).contains(&keys)
        };
        let all = asked.iter().take(SHORT_RUN).take_while(is_short);
        if is_low { all.count() } else { 0 }
    }

    /// The lane in which this job waits.
    pub fn lane(&self) -> Lane {
        let (asked, others) = match self {
            Work::Run(asked) | Work::Exec(asked, ..) => (asked.as_slice(), Lane::Read),
            Work::Watch(..) => return Lane::Read,
            Work::Listen => return Lane::Write, // waits for the transaction that is open
        };
        let writes = |asked: &Call| asked.command.class == Class::Write && asked.command.verb != Verb::TSet;
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
            Work::Run(asked) | Work::Exec(asked, ..) => asked.iter().map(Call::bytes).sum(),
            Work::Watch(request, ..) => request.bytes(),
            Work::Listen => 0,
        }
    }

    pub(super) fn kind(&self) -> JobKind {
        let Work::Run(asked) = self else { return JobKind::Other };
        let first = asked.first().map_or(JobKind::Other, kind_of);
        if asked.iter().all(|asked| kind_of(asked) == first) {
            first
        } else {
            JobKind::Other
        }
    }
}

impl JobReply {
    /// The result of a job that is done.
    pub fn of(connection: Handle, reply: Vec<u8>) -> JobReply {
        JobReply {
            connection,
            reply,
            rest: Vec::new(),
            watched: Vec::new(),
        }
    }
}

/// Result of a job.
#[derive(Debug)]
pub struct JobReply {
    /// The connection that gets the reply.
    pub connection: Handle,
    /// The replies, RESP-encoded, in the order of the commands.
    pub reply: Vec<u8>,
    /// Commands left over because replies reached `REPLIES_PAUSE`, or because FLUSHDB goes on.
    pub rest: Vec<Call>,
    /// Records that WATCH read, as EXEC will compare them.
    pub watched: Vec<WatchedKey>,
}
