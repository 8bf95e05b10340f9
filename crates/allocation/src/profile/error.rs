//! What is wrong with a profile's file.

use std::fmt;

use thiserror::Error;

use super::ProfileError;
use crate::grid::{Grid, Share};

/// Why a file is no profile: where, what, and what to do.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadError {
    /// The file, as the caller named it.
    pub file: String,
    /// The line, from 1, where it is the fault of one.
    pub line: Option<usize>,
    /// What is wrong.
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

/// What can be wrong with a profile's file.
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
    /// A cell that is no such number.
    #[error("{column} is \"{text}\"; it must be {expected}")]
    Number {
        /// The column.
        column: String,
        /// What stands there.
        text: String,
        /// What should.
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
        /// Places.
        found: usize,
        /// As many as are read.
        most: usize,
    },
    /// A share that the machine does not have.
    #[error(
        "is for {} ways and {} partitions; the machine has {} and {}: leave such rows out, or profile for this machine",
        share.ways, share.partitions, grid.ways, grid.partitions
    )]
    BeyondGrid {
        /// The share.
        share: Share,
        /// What the machine has.
        grid: Grid,
    },
    /// Shares without a row.
    #[error(
        "{missing} of {} allocations are missing, the first with {} ways and {} partitions; every one must be profiled",
        grid.len(), share.ways, share.partitions
    )]
    MissingShares {
        /// The first.
        share: Share,
        /// How many.
        missing: usize,
        /// What the machine has.
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
        /// Whose run.
        share: Share,
        /// How many.
        instructions: u64,
    },
    /// More than one instruction that two spans cover.
    #[error(
        "overlaps the span before it by {instructions} instructions, {}; at most one is tolerated",
        with(share)
    )]
    Overlap {
        /// Whose run.
        share: Share,
        /// How many.
        instructions: u64,
    },
    /// A span whose end is before its start.
    #[error("ends at instruction {end}, before its start {start}")]
    Backwards {
        /// Its first instruction.
        start: u64,
        /// Its last instruction.
        end: u64,
    },
    /// Windows in order, from 0.
    #[error("window_index is {found}, expected {expected}; rows must be in order and none left out")]
    Index {
        /// What stands there.
        found: u64,
        /// What should.
        expected: u64,
    },
    /// A window must begin where the one before ends.
    #[error("instr_start is {found}, but the windows before it have {expected} instructions")]
    Start {
        /// What stands there.
        found: u64,
        /// What should.
        expected: u64,
    },
    /// More ways must not miss more.
    #[error(
        "{column} is {misses}, more than the {before} before it: more ways cannot miss more, nor miss what was not asked for"
    )]
    MoreMisses {
        /// The column.
        column: String,
        /// What stands there.
        misses: u64,
        /// What stands before it.
        before: u64,
    },
    /// More than can be counted exactly.
    #[error("has more than {0} instructions or requests; profile a part of the run")]
    TooLong(u64),
    /// Remarks that do not agree, in a file or in those of a set.
    #[error(
        "says {key}: {found}, but {before} was said before: profiles of one set are of one machine and of one kind"
    )]
    OtherFact {
        /// Which remark.
        key: String,
        /// What it says.
        found: String,
        /// What was said before.
        before: String,
    },
    /// A figure of the timing model.
    #[error("cannot be timed: {figure} is {value}; it must be finite and positive (cycles of a wait may be 0)")]
    Timing {
        /// Its name.
        figure: &'static str,
        /// What it is.
        value: f64,
    },
    /// A grid that no machine has.
    #[error("cannot be read for {} ways and {} partitions; both must be 1..=64", .0.ways, .0.partitions)]
    NoGrid(Grid),
    /// What came out is no profile.
    #[error("{0}")]
    Profile(#[from] ProfileError),
}

fn with(share: &Share) -> String {
    format!("with {} ways and {} partitions", share.ways, share.partitions)
}
