//! Errors of a profile's file.

use std::fmt;

use thiserror::Error;

use super::ProfileError;
use crate::grid::{Grid, Share};

/// Why a file is no profile: where, what, and what to do.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadError {
    /// The file, as the caller named it.
    pub file: String,
    /// The line at fault, from 1; `None` where no single line is.
    pub line: Option<usize>,
    pub problem: Problem,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.problem),
            None => write!(f, "{}: {}", self.file, self.problem),
        }
    }
}

impl std::error::Error for ReadError {}

/// Possible faults of a profile's file.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Problem {
    /// Bytes that are no text.
    #[error("is not text; a profile is a table in comma-separated values, not compressed")]
    NotText,
    /// The first line is not a known one.
    #[error(
        "is no profile: its first line is \"{0}\"; expected cache_ways,bandwidth_partitions,... (measured) or window_index,instr_start,... (by window, as `punctual profile` writes it)"
    )]
    UnknownHeader(String),
    /// A column is missing.
    #[error("has no column {0}; add it to the first line and to every row")]
    MissingColumn(String),
    /// A column is there twice.
    #[error("has two columns {0}; leave one")]
    DoubleColumn(String),
    /// More or fewer cells than columns.
    #[error("has {found} cells under {columns} columns; is the file cut short here?")]
    Cells {
        /// Cells of the row.
        found: usize,
        /// Columns of the first line.
        columns: usize,
    },
    /// A cell that is not the expected number.
    #[error("{column} is \"{text}\"; it must be {expected}")]
    Number {
        column: String,
        /// Content of the cell.
        text: String,
        /// Allowed numbers, in words.
        expected: &'static str,
    },
    /// Only a first line.
    #[error("has no rows under its first line; profile the program again")]
    NoRows,
    /// More rows than a profile may have.
    #[error("has more than {0} rows; profile with larger windows")]
    TooManyRows(usize),
    /// More places where a rate changes than a profile may have.
    #[error("rates change at {found} places, at most {most} are read; merge short spans")]
    TooManyBoundaries {
        /// Number of such places.
        found: usize,
        /// Most that are read.
        most: usize,
    },
    /// A share that the machine does not have.
    #[error(
        "is for {} ways and {} partitions; the machine has {} and {}: leave such rows out, or profile for this machine",
        share.ways, share.partitions, grid.ways, grid.partitions
    )]
    BeyondGrid {
        share: Share,
        /// Grid of the machine.
        grid: Grid,
    },
    /// Shares without a row.
    #[error(
        "{missing} of {} allocations are missing, the first with {} ways and {} partitions; every one must be profiled",
        grid.len(), share.ways, share.partitions
    )]
    MissingShares {
        /// First share without a row.
        share: Share,
        /// Number of shares without a row.
        missing: usize,
        /// Grid of the machine.
        grid: Grid,
    },
    /// A profile by window for another number of ways.
    #[error("has misses for {found} ways; the machine has {expected}: profile again with --ways {expected}")]
    OtherWays {
        /// Ways of the file.
        found: u8,
        /// Ways of the machine.
        expected: u8,
    },
    /// More than one instruction that no span covers.
    #[error(
        "leaves a gap of {instructions} instructions before it, {}; at most one is tolerated",
        with(share)
    )]
    Gap {
        /// Share whose run has the gap.
        share: Share,
        /// Instructions that no span covers.
        instructions: u64,
    },
    /// More than one instruction that two spans cover.
    #[error(
        "overlaps the span before it by {instructions} instructions, {}; at most one is tolerated",
        with(share)
    )]
    Overlap {
        /// Share whose run has the overlap.
        share: Share,
        /// Instructions that two spans cover.
        instructions: u64,
    },
    /// A span whose end is before its start.
    #[error("ends at instruction {end}, before its start {start}")]
    Backwards {
        /// First instruction of the span.
        start: u64,
        /// Last instruction of the span.
        end: u64,
    },
    /// An index out of order; windows count from 0.
    #[error("window_index is {found}, expected {expected}; rows must be in order and none left out")]
    Index {
        /// Index in the file.
        found: u64,
        /// Number of windows before.
        expected: u64,
    },
    /// A window must begin where the one before ends.
    #[error("instr_start is {found}, but the windows before it have {expected} instructions")]
    Start {
        /// First instruction in the file.
        found: u64,
        /// Instructions of the windows before.
        expected: u64,
    },
    /// More ways must not miss more.
    #[error(
        "{column} is {misses}, more than the {before} before it: misses cannot grow with the ways, nor exceed the requests"
    )]
    MoreMisses {
        column: String,
        /// Misses in this column.
        misses: u64,
        /// Misses, or requests, in the column before.
        before: u64,
    },
    /// More than can be counted exactly.
    #[error("has more than {0} instructions or requests; profile a part of the run")]
    TooLong(u64),
    /// A figure of the timing model.
    #[error("cannot be timed: {figure} is {value}; it must be finite and positive (cycles of a wait may be 0)")]
    Timing {
        /// Name of the figure.
        figure: &'static str,
        value: f64,
    },
    /// A grid that no machine has.
    #[error("cannot be read for {} ways and {} partitions; both must be 1..=64", .0.ways, .0.partitions)]
    NoGrid(Grid),
    /// The compiled profile is invalid.
    #[error("{0}")]
    Profile(#[from] ProfileError),
}

fn with(share: &Share) -> String {
    format!("with {} ways and {} partitions", share.ways, share.partitions)
}
