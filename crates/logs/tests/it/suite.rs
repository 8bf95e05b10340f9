//! The behaviour that every log must have, checked against the answers that its callers got.
//!
//! [`check`] runs two appenders and a reader on an empty log. A call may end without an answer, so the suite keeps two
//! lists: entries known to be in the log, and entries that may come into it at one revision each. Every answer must
//! agree with both. The caller supplies the steps, for example from a property test, which shrinks and replays them.

use punctual_logs::{
    AppendResult, CommitLog, FORMAT, FederationId, HistoryId, Identity, LogError, LogHistory, LogRecord, LogState,
    Revision, Stretch,
};

/// Number of appenders in a run.
pub const APPENDERS: usize = 2;

/// Most calls that the suite makes at the end to get one answer; a log that answers less often is useless.
const CALLS_AT_THE_END: usize = 10_000;

/// A call of the log, made by the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogCall {
    /// An appender appends a new entry at the revision where it believes the end to be.
    Append(usize),
    /// An appender without an answer appends the same entry at the same revision again.
    Again(usize),
    /// An appender reads from its own end of the log on.
    Read(usize),
    /// Read from this many entries before the end; up to this many entries.
    ReadBack(u8, u8),
    /// Watch from this many entries before the end; up to this many entries.
    Watch(u8, u8),
    /// Trim up to this many entries before the end.
    Trim(u8),
}

/// Behaviour that no log may have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// An answer contradicts an earlier one.
    #[error("step {step}, {what}: {found}")]
    Answer {
        /// The number of the step, from 0.
        step: usize,
        /// The kind of call.
        what: &'static str,
        /// Description of the fault in the answer.
        found: String,
    },
    /// A log was accepted that should have been refused, or refused that should have been accepted.
    #[error("opening a log {what}: {found}")]
    Opening {
        /// The owner and format with which it was opened.
        what: &'static str,
        /// The answer of the log, as text.
        found: String,
    },
}

/// Knowledge about the entry at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
enum EntryKnowledge {
    /// No caller has seen the entry.
    Unseen,
    /// The entry has this number, in all later answers.
    Entry(u64),
}

/// The belief of one appender.
#[derive(Clone, Copy, Debug, Default)]
struct Appender {
    /// Revision at which it believes the log to end.
    last: Revision,
    /// The entry appended at `last` for which it got no answer.
    pending: Option<u64>,
}

struct Suite<'l, L> {
    log: &'l mut L,
    /// The entries from revision 1 on.
    known: Vec<EntryKnowledge>,
    /// Entries without an answer, with the one revision at which each may be.
    maybe: Vec<(Revision, u64)>,
    /// The highest revision up to which a trim was asked for.
    trimmed: Revision,
    appenders: [Appender; APPENDERS],
    entries: u64,
    step: usize,
}

/// Checks openings, then runs `steps` on a log that is empty and not yet opened.
///
/// # Errors
/// The first [`Violation`].
pub fn check<L: CommitLog>(log: &mut L, steps: &[LogCall]) -> Result<(), Violation> {
    check_opening(log)?;
    let mut suite = Suite {
        log,
        known: Vec::new(),
        maybe: Vec::new(),
        trimmed: Revision::ZERO,
        appenders: [Appender::default(); APPENDERS],
        entries: 0,
        step: 0,
    };
    for step in steps {
        suite.take(*step)?;
        suite.step += 1;
    }
    suite.end()
}

/// Checks that a log accepts only the federation that opened it first, and formats that are at least its own; and that
/// it keeps the history with which it was claimed.
fn check_opening<L: CommitLog>(log: &mut L) -> Result<(), Violation> {
    let ours = Identity {
        federation: FederationId(1),
        format: FORMAT,
        history: history(1),
    };
    let other = Identity {
        federation: FederationId(2),
        ..ours
    };
    let again = Identity {
        history: history(2),
        ..ours
    };
    let older = Identity {
        format: FORMAT - 1,
        ..ours
    };
    let mut open = |what, identity, right: fn(&Result<LogState, LogError>) -> bool| {
        let answer = (0..CALLS_AT_THE_END)
            .map(|_| log.open(identity))
            .find(|answer| *answer != Err(LogError::NoAnswer));
        match answer {
            Some(answer) if right(&answer) => Ok(()),
            answer => Err(Violation::Opening {
                what,
                found: format!("{answer:?}"),
            }),
        }
    };
    open("that is new", ours, |answer| *answer == Ok(claimed()))?;
    open("of another federation", other, |answer| {
        matches!(answer, Err(LogError::OtherFederation { .. }))
    })?;
    open("of a newer format", older, |answer| {
        matches!(answer, Err(LogError::NewerFormat { .. }))
    })?;
    open("of one's own", again, |answer| *answer == Ok(claimed()))
}

fn history(id: u64) -> LogHistory {
    let id = HistoryId(id);
    LogHistory {
        id,
        ..LogHistory::default()
    }
}

fn claimed() -> LogState {
    LogState {
        history: history(1),
        ..LogState::default()
    }
}

impl<L: CommitLog> Suite<'_, L> {
    fn take(&mut self, step: LogCall) -> Result<(), Violation> {
        match step {
            LogCall::Append(appender) => self.append(appender % APPENDERS, false),
            LogCall::Again(appender) => self.append(appender % APPENDERS, true),
            LogCall::Read(appender) => self.read_on(appender % APPENDERS),
            LogCall::ReadBack(back, max) => self.read(self.before_end(back), usize::from(max)).map(drop),
            LogCall::Watch(back, max) => self.watch(self.before_end(back), usize::from(max)),
            LogCall::Trim(back) => self.trim(self.before_end(back)),
        }
    }

    fn before_end(&self, back: u8) -> Revision {
        Revision((self.known.len() as u64).saturating_sub(u64::from(back)))
    }

    fn wrong<T>(&self, what: &'static str, found: impl Into<String>) -> Result<T, Violation> {
        Err(Violation::Answer {
            step: self.step,
            what,
            found: found.into(),
        })
    }

    /// Appends a new entry, or with `again` the one without an answer.
    fn append(&mut self, appender: usize, again: bool) -> Result<(), Violation> {
        let Appender { last, pending } = self.appenders[appender];
        // An appender whose last call had no answer must not append another entry at that revision.
        let entry = match (pending, again) {
            (Some(entry), _) => entry,
            (None, true) => return Ok(()),
            (None, false) => {
                self.entries += 1;
                self.entries
            }
        };
        match self.log.append(last, &entry.to_be_bytes()) {
            Ok(AppendResult::At(at)) => {
                if at != last.next() {
                    return self.wrong("append", format!("appended at {at}, asked for the place after {last}"));
                }
                self.learn("append", at, entry)?;
                self.appenders[appender] = Appender {
                    last: at,
                    pending: None,
                };
            }
            Ok(AppendResult::Lost { last: end }) => {
                if end == last || end < Revision(self.known.len() as u64) {
                    return self.wrong("append", format!("lost at {last}, the end said to be {end}"));
                }
                // A copy of the same append may have been faster.
                self.maybe.push((last.next(), entry));
                self.appenders[appender].pending = Some(entry);
            }
            Err(LogError::NoAnswer) => {
                self.maybe.push((last.next(), entry));
                self.appenders[appender].pending = Some(entry);
            }
            Err(error) => return self.wrong("append", error.to_string()),
        }
        Ok(())
    }

    fn read_on(&mut self, appender: usize) -> Result<(), Violation> {
        let from = self.appenders[appender].last;
        let Some(stretch) = self.read(from, usize::MAX)? else {
            return Ok(()); // no answer, or trimmed
        };
        if stretch.last > from {
            self.appenders[appender] = Appender {
                last: stretch.last,
                pending: None,
            };
        }
        Ok(())
    }

    /// Reads and checks. `None`: no answer, or trimmed; then the appenders go on from the end.
    fn read(&mut self, after: Revision, max: usize) -> Result<Option<Stretch>, Violation> {
        match self.log.read_from(after, max) {
            Ok(stretch) => {
                self.check_records("read", after, max, &stretch.records)?;
                self.check_end(after, max, &stretch)?;
                Ok(Some(stretch))
            }
            Err(LogError::NoAnswer) => Ok(None),
            Err(LogError::Compacted { trimmed }) => {
                self.check_compacted("read", after, trimmed)?;
                self.jump(after, trimmed);
                Ok(None)
            }
            Err(error) => self.wrong("read", error.to_string()),
        }
    }

    /// Moves appenders whose revision was trimmed to the beginning of the log, as if they had got a copy.
    fn jump(&mut self, after: Revision, trimmed: Revision) {
        for appender in &mut self.appenders {
            if appender.last <= after {
                *appender = Appender {
                    last: trimmed,
                    pending: None,
                };
            }
        }
    }

    fn check_end(&self, after: Revision, max: usize, stretch: &Stretch) -> Result<(), Violation> {
        let known = Revision(self.known.len() as u64);
        if stretch.last < known {
            return self.wrong("read", format!("ends at {}, but {known} is known", stretch.last));
        }
        let due = stretch.last.0.saturating_sub(after.0).min(max as u64);
        if stretch.records.len() as u64 != due {
            return self.wrong("read", format!("{} entries, {due} are due", stretch.records.len()));
        }
        Ok(())
    }

    fn watch(&mut self, after: Revision, max: usize) -> Result<(), Violation> {
        match self.log.watch_from(after, max) {
            Ok(records) => self.check_records("watch", after, max, &records),
            Err(LogError::NoAnswer) => Ok(()),
            Err(LogError::Compacted { trimmed }) => self.check_compacted("watch", after, trimmed),
            Err(error) => self.wrong("watch", error.to_string()),
        }
    }

    fn trim(&mut self, upto: Revision) -> Result<(), Violation> {
        self.trimmed = self.trimmed.max(upto);
        match self.log.trim(upto) {
            Ok(()) | Err(LogError::NoAnswer) => Ok(()),
            Err(error) => self.wrong("trim", error.to_string()),
        }
    }

    fn check_compacted(&self, what: &'static str, after: Revision, trimmed: Revision) -> Result<(), Violation> {
        if after >= trimmed || trimmed > self.trimmed {
            let asked = self.trimmed;
            return self.wrong(what, format!("from {after}: trimmed to {trimmed}, asked for {asked}"));
        }
        Ok(())
    }

    fn check_records(
        &mut self,
        what: &'static str,
        after: Revision,
        max: usize,
        records: &[LogRecord],
    ) -> Result<(), Violation> {
        if records.len() > max {
            return self.wrong(what, format!("{} entries, at most {max} were asked for", records.len()));
        }
        for (due, record) in (after.0 + 1..).map(Revision).zip(records) {
            let Ok(entry) = <[u8; 8]>::try_from(&*record.bytes) else {
                return self.wrong(what, "an entry that no appender made");
            };
            if record.revision != due {
                return self.wrong(what, format!("revision {} where {due} is due", record.revision));
            }
            self.learn(what, due, u64::from_be_bytes(entry))?;
        }
        Ok(())
    }

    /// Enters that `entry` is at `at`: for the first time only if an append may have put it there.
    fn learn(&mut self, what: &'static str, at: Revision, entry: u64) -> Result<(), Violation> {
        let index = at.0 as usize - 1;
        if self.known.len() <= index {
            self.known.resize(index + 1, EntryKnowledge::Unseen);
        }
        match self.known[index].clone() {
            EntryKnowledge::Entry(known) if known == entry => Ok(()),
            EntryKnowledge::Entry(known) => self.wrong(what, format!("{entry} at {at}, where {known} was")),
            EntryKnowledge::Unseen if what == "append" || self.maybe.contains(&(at, entry)) => {
                self.known[index] = EntryKnowledge::Entry(entry);
                Ok(())
            }
            EntryKnowledge::Unseen => self.wrong(what, format!("{entry} at {at}, where it was never appended")),
        }
    }

    /// Checks that all acknowledged entries are still there, except trimmed ones.
    fn end(&mut self) -> Result<(), Violation> {
        for _ in 0..CALLS_AT_THE_END {
            if self.read(self.trimmed, usize::MAX)?.is_some() {
                return Ok(());
            }
        }
        self.wrong("read at the end", "no answer")
    }
}
