//! What every log must do, checked against what its callers were told.
//!
//! [`check`] lets two appenders and a reader loose on an empty log. A call may end without an answer, so the suite
//! keeps two lists: what is known to be in the log, and what may come into it at one place. Whatever an answer says
//! must agree with both. The caller supplies the steps, for example from a property test, which shrinks and replays
//! them.

use crate::{Appended, CommitLog, FORMAT, FederationId, Identity, LogError, Record, Revision, Stretch};

/// The appenders.
pub const APPENDERS: usize = 2;

/// The calls that the suite makes at the end for one answer; a log that answers less often than that is no use.
const CALLS_AT_THE_END: usize = 10_000;

/// Something to do to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An appender appends a new entry where it believes the end to be.
    Append(usize),
    /// An appender that had no answer appends the same entry at the same place again.
    Again(usize),
    /// An appender reads on from where it is.
    Read(usize),
    /// Read from so far before the end, up to so many entries.
    ReadBack(u8, u8),
    /// Watch from so far before the end, up to so many entries.
    Watch(u8, u8),
    /// Trim up to so far before the end.
    Trim(u8),
}

/// What a log did that no log may do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// An answer that contradicts what callers know.
    #[error("step {step}, {what}: {found}")]
    Answer {
        /// The number of the step, from 0.
        step: usize,
        /// What was asked.
        what: &'static str,
        /// What is wrong with the answer.
        found: String,
    },
    /// A log that should have been refused, or taken.
    #[error("opening a log {what}: {found}")]
    Opening {
        /// Whose log, of which format.
        what: &'static str,
        /// The answer.
        found: String,
    },
}

/// What is known of the entry at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    /// No caller has seen it.
    Unseen,
    /// This one, for ever.
    Entry(u64),
}

/// What one appender believes.
#[derive(Clone, Copy, Debug, Default)]
struct Appender {
    /// The end of the log.
    last: Revision,
    /// The entry that it has had no answer for, appended at `last`.
    pending: Option<u64>,
}

struct Suite<'l, L> {
    log: &'l mut L,
    /// From revision 1 on.
    known: Vec<Known>,
    /// Entries without an answer, and the one revision at which each may be.
    maybe: Vec<(Revision, u64)>,
    /// The furthest that a trim was asked for.
    trimmed: Revision,
    appenders: [Appender; APPENDERS],
    entries: u64,
    step: usize,
}

/// Checks whose log is taken, and runs `steps` on a log that is empty and not yet opened.
///
/// # Errors
/// The first [`Violation`].
pub fn check<L: CommitLog>(log: &mut L, steps: &[Step]) -> Result<(), Violation> {
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

/// A log takes the federation that opened it first, and formats that are at least its own.
fn check_opening<L: CommitLog>(log: &mut L) -> Result<(), Violation> {
    let ours = Identity {
        federation: FederationId(1),
        format: FORMAT,
    };
    let other = Identity {
        federation: FederationId(2),
        ..ours
    };
    let older = Identity {
        format: FORMAT - 1,
        ..ours
    };
    let mut open = |what, identity, right: fn(&Result<Revision, LogError>) -> bool| {
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
    open("that is new", ours, |answer| *answer == Ok(Revision::ZERO))?;
    open("of another federation", other, |answer| {
        matches!(answer, Err(LogError::OtherFederation { .. }))
    })?;
    open("of a newer format", older, |answer| {
        matches!(answer, Err(LogError::NewerFormat { .. }))
    })?;
    open("of one's own", ours, |answer| *answer == Ok(Revision::ZERO))
}

impl<L: CommitLog> Suite<'_, L> {
    fn take(&mut self, step: Step) -> Result<(), Violation> {
        match step {
            Step::Append(appender) => self.append(appender % APPENDERS, false),
            Step::Again(appender) => self.append(appender % APPENDERS, true),
            Step::Read(appender) => self.read_on(appender % APPENDERS),
            Step::ReadBack(back, max) => self.read(self.before_end(back), usize::from(max)).map(drop),
            Step::Watch(back, max) => self.watch(self.before_end(back), usize::from(max)),
            Step::Trim(back) => self.trim(self.before_end(back)),
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

    /// Appends a new entry, or `again` the one that had no answer.
    fn append(&mut self, appender: usize, again: bool) -> Result<(), Violation> {
        let Appender { last, pending } = self.appenders[appender];
        // An appender whose last call had no answer must not append anything else at that place.
        let entry = match (pending, again) {
            (Some(entry), _) => entry,
            (None, true) => return Ok(()),
            (None, false) => {
                self.entries += 1;
                self.entries
            }
        };
        match self.log.append(last, &entry.to_be_bytes()) {
            Ok(Appended::At(at)) => {
                if at != last.next() {
                    return self.wrong("append", format!("appended at {at}, asked for the place after {last}"));
                }
                self.learn("append", at, entry)?;
                self.appenders[appender] = Appender {
                    last: at,
                    pending: None,
                };
            }
            Ok(Appended::Lost { last: end }) => {
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

    /// `None`: no answer, or nothing is left there; then the appenders go on from the end.
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

    /// Appenders that are where the log no longer is go on from where it begins, as if they had got a copy.
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
        records: &[Record],
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

    /// The log says that `entry` is at `at`: for the first time only if it was on its way there.
    fn learn(&mut self, what: &'static str, at: Revision, entry: u64) -> Result<(), Violation> {
        let index = at.0 as usize - 1;
        if self.known.len() <= index {
            self.known.resize(index + 1, Known::Unseen);
        }
        match self.known[index].clone() {
            Known::Entry(known) if known == entry => Ok(()),
            Known::Entry(known) => self.wrong(what, format!("{entry} at {at}, where {known} was")),
            Known::Unseen if what == "append" || self.maybe.contains(&(at, entry)) => {
                self.known[index] = Known::Entry(entry);
                Ok(())
            }
            Known::Unseen => self.wrong(what, format!("{entry} at {at}, where it was never appended")),
        }
    }

    /// All that was acknowledged is still there, but for what was trimmed.
    fn end(&mut self) -> Result<(), Violation> {
        for _ in 0..CALLS_AT_THE_END {
            if self.read(self.trimmed, usize::MAX)?.is_some() {
                return Ok(());
            }
        }
        self.wrong("read at the end", "no answer")
    }
}
