//! Trace of a simulated cluster: rows of events for a person to read.
//!
//! A run adds every fault and every message, except for heartbeats and readings that arrive normally; the last
//! [`TRACE_ROWS_MAX`] rows are stored, so a trace that [ends](EventTrace::until) at a violation shows its causes. All
//! instants are those of the simulation, not of a node's clock.

use std::collections::VecDeque;

use punctual_units::Time;

/// Bound on the rows of a trace: some screens' worth.
pub const TRACE_ROWS_MAX: usize = 400;

/// The latest rows of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventTrace {
    columns: Vec<String>,
    rows: VecDeque<TraceRow>,
    omitted: u64,
    /// Events after this instant are ignored.
    until: Option<Time>,
}

/// Event at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRow {
    /// Instant in simulated time.
    pub at: Time,
    pub what: What,
}

/// Kinds of events. Columns are numbered from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A message was sent.
    Sent {
        /// Column of the sender.
        from: usize,
        /// Column of the receiver.
        to: usize,
        /// When the message arrives; `None`: the network lost it.
        arrives: Option<Time>,
        /// Contents in a few words.
        label: String,
    },
    /// An event of one column.
    Noted {
        /// Column of the event.
        column: usize,
        /// Kind of the event.
        mark: Mark,
        /// Description in a few words.
        label: String,
    },
}

punctual_units::named! {
    /// Kinds of events of one column.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Mark by name {
        /// The process of the column crashes.
        Crash = "crash",
        /// The process starts again.
        Restart = "restart",
        /// The process stands still.
        Pause = "pause",
        /// The process resumes after a pause.
        Resume = "resume",
        /// The place is cut off, in one direction or both.
        Cut = "cut",
        /// The end of a cut.
        Heal = "heal",
        /// The node's clock jumps.
        Jump = "clock jumps",
        /// The node starts or ends its time as master.
        Takeover = "takeover",
        /// A promise is broken.
        Violation = "violation",
        /// Any other kind of event.
        Note = "note",
    }
}

impl EventTrace {
    /// Makes an empty trace of these columns.
    pub fn new(columns: Vec<String>) -> EventTrace {
        EventTrace {
            columns,
            ..EventTrace::default()
        }
    }

    /// Limits the trace: events after `until` are ignored.
    #[must_use]
    pub fn until(self, until: Time) -> EventTrace {
        EventTrace {
            until: Some(until),
            ..self
        }
    }

    /// Adds a message that leaves `from` at `at`; `arrives` is `None` where the message is lost.
    pub fn sent(&mut self, at: Time, from: usize, to: usize, arrives: Option<Time>, label: impl Into<String>) {
        let label = label.into();
        self.push(
            at,
            What::Sent {
                from,
                to,
                arrives,
                label,
            },
        );
    }

    /// Adds an event of a column.
    pub fn noted(&mut self, at: Time, column: usize, mark: Mark, label: impl Into<String>) {
        let label = label.into();
        self.push(at, What::Noted { column, mark, label });
    }

    /// Names of the columns.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The stored rows, the oldest first.
    pub fn rows(&self) -> impl DoubleEndedIterator<Item = &TraceRow> + ExactSizeIterator {
        self.rows.iter()
    }

    /// Number of rows before the first stored one.
    pub fn omitted(&self) -> u64 {
        self.omitted
    }

    fn push(&mut self, at: Time, what: What) {
        if self.until.is_some_and(|until| at > until) {
            return;
        }
        if self.rows.len() == TRACE_ROWS_MAX {
            self.rows.pop_front();
            self.omitted += 1;
        }
        self.rows.push_back(TraceRow { at, what });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_after_the_end_is_left_out() {
        let mut trace = EventTrace::new(vec!["node 0".into()]).until(Time(5));
        for at in [4, 5, 6, 5] {
            trace.noted(Time(at), 0, Mark::Note, "x");
        }
        let kept: Vec<Time> = trace.rows().map(|row| row.at).collect();
        assert_eq!(kept, [4, 5, 5].map(Time));
    }

    #[test]
    fn the_last_rows_are_kept_and_the_others_counted() {
        let mut trace = EventTrace::new(vec!["node 0".into()]);
        for at in 0..TRACE_ROWS_MAX as u64 + 3 {
            trace.noted(Time(at), 0, Mark::Note, "x");
        }
        assert_eq!((trace.rows().len(), trace.omitted()), (TRACE_ROWS_MAX, 3));
        assert_eq!(trace.rows().next().map(|row| row.at), Some(Time(3)));
    }
}
