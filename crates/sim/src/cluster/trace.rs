//! What happened in a simulated cluster, row by row, for a person to read.
//!
//! A run pushes every fault and every message, but for heartbeats and readings that arrive as ever; the last
//! [`TRACE_ROWS_MAX`] rows are kept, so a trace that [ends](Trace::until) at a violation shows what led to it. All
//! instants are those of the simulation, not of a node's clock.

use std::collections::VecDeque;

use punctual_units::Time;

/// The most rows that a trace keeps: some screens' worth.
pub const TRACE_ROWS_MAX: usize = 400;

/// The latest rows of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    columns: Vec<String>,
    rows: VecDeque<Row>,
    omitted: u64,
    /// What happens later is not kept.
    until: Option<Time>,
}

/// What happened at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// When.
    pub at: Time,
    /// What.
    pub what: What,
}

/// What can happen, to columns that are numbered from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A message left.
    Sent {
        /// The column that it left.
        from: usize,
        /// The column that it was for.
        to: usize,
        /// When it arrives; `None`: the network lost it.
        arrives: Option<Time>,
        /// What it says, in a few words.
        label: String,
    },
    /// Something happened to one column.
    Noted {
        /// Whose.
        column: usize,
        /// What kind of thing.
        mark: Mark,
        /// What it was, in a few words.
        label: String,
    },
}

/// A kind of thing that happens to one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It crashes.
    Crash,
    /// It starts again.
    Restart,
    /// It stands still.
    Pause,
    /// It goes on.
    Resume,
    /// It is cut off, in one direction or both.
    Cut,
    /// A cut ends.
    Heal,
    /// Its clock jumps.
    Jump,
    /// It becomes the master.
    Takeover,
    /// A promise is broken.
    Violation,
    /// Anything else.
    Note,
}

impl Mark {
    /// Its name in a chart.
    pub fn name(self) -> &'static str {
        match self {
            Mark::Crash => "crash",
            Mark::Restart => "restart",
            Mark::Pause => "pause",
            Mark::Resume => "resume",
            Mark::Cut => "cut",
            Mark::Heal => "heal",
            Mark::Jump => "clock jumps",
            Mark::Takeover => "takeover",
            Mark::Violation => "violation",
            Mark::Note => "note",
        }
    }
}

impl Trace {
    /// An empty trace of these columns.
    pub fn new(columns: Vec<String>) -> Trace {
        Trace {
            columns,
            ..Trace::default()
        }
    }

    /// The same, and nothing after `until` is kept.
    #[must_use]
    pub fn until(self, until: Time) -> Trace {
        Trace {
            until: Some(until),
            ..self
        }
    }

    /// A message leaves `from` at `at`; `arrives` is when it will arrive, `None` where it is lost.
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

    /// Something happens to a column.
    pub fn noted(&mut self, at: Time, column: usize, mark: Mark, label: impl Into<String>) {
        let label = label.into();
        self.push(at, What::Noted { column, mark, label });
    }

    /// The names of the columns.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The rows that were kept, in their order.
    pub fn rows(&self) -> impl DoubleEndedIterator<Item = &Row> + ExactSizeIterator {
        self.rows.iter()
    }

    /// How many rows were there before the first that was kept.
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
        self.rows.push_back(Row { at, what });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_after_the_end_is_left_out() {
        let mut trace = Trace::new(vec!["node 0".into()]).until(Time(5));
        for at in [4, 5, 6, 5] {
            trace.noted(Time(at), 0, Mark::Note, "x");
        }
        let kept: Vec<Time> = trace.rows().map(|row| row.at).collect();
        assert_eq!(kept, [4, 5, 5].map(Time));
    }

    #[test]
    fn the_last_rows_are_kept_and_the_others_counted() {
        let mut trace = Trace::new(vec!["node 0".into()]);
        for at in 0..TRACE_ROWS_MAX as u64 + 3 {
            trace.noted(Time(at), 0, Mark::Note, "x");
        }
        assert_eq!((trace.rows().len(), trace.omitted()), (TRACE_ROWS_MAX, 3));
        assert_eq!(trace.rows().next().map(|row| row.at), Some(Time(3)));
    }
}
