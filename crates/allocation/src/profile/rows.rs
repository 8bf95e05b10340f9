//! A table of numbers as text: a line of names, then lines of as many numbers.
//!
//! Nothing in a profile needs quotes, so a line is what stands between commas. Lines that begin with `#` are remarks,
//! and empty ones are skipped.

use super::error::{Problem, ReadError};

/// Rows that are read at most: a million windows are three days of a program at a million instructions each.
pub(super) const ROWS_MAX: usize = 1_000_000;
/// The largest instruction count: beyond it a 64-bit float no longer tells neighbours apart.
pub(super) const COUNT_MAX: u64 = 1 << 53;
/// Characters of a faulty cell that an error repeats.
const SHOWN_MAX: usize = 40;

/// A table that is being read.
pub(super) struct CsvTable<'a> {
    file: &'a str,
    columns: Vec<&'a str>,
    lines: Lines<'a>,
}

/// A row of the table.
pub(super) struct CsvRow<'t> {
    file: &'t str,
    columns: &'t [&'t str],
    /// Line in the file, from 1.
    pub(super) line: usize,
    cells: Vec<&'t str>,
}

impl<'a> CsvTable<'a> {
    /// Reads the line of names.
    ///
    /// # Errors
    /// No text, or the same name twice.
    pub(super) fn new(file: &'a str, bytes: &'a [u8]) -> Result<CsvTable<'a>, ReadError> {
        let mut lines = Lines { rest: bytes, number: 0 };
        let (line, text) = lines.following().unwrap_or((1, b""));
        let refused = |problem| ReadError {
            file: file.to_string(),
            line: Some(line),
            problem,
        };
        let text = std::str::from_utf8(text).map_err(|_| refused(Problem::NotText))?;
        // Spreadsheets begin a file with a mark of its byte order.
        let text = text.trim_start_matches('\u{feff}');
        let columns: Vec<&str> = text.split(',').map(str::trim).collect();
        for (i, column) in columns.iter().enumerate() {
            if columns[..i].contains(column) {
                return Err(refused(Problem::DoubleColumn(shown(column))));
            }
        }
        Ok(CsvTable { file, columns, lines })
    }

    pub(super) fn columns(&self) -> &[&'a str] {
        &self.columns
    }

    /// Index of the column `name`.
    ///
    /// # Errors
    /// The column is missing.
    pub(super) fn column(&self, name: &str) -> Result<usize, ReadError> {
        let found = self.columns.iter().position(|column| *column == name);
        found.ok_or_else(|| self.refused(None, Problem::MissingColumn(name.to_string())))
    }

    /// The next row, if there is one.
    ///
    /// # Errors
    /// No text, or not a cell for each column.
    pub(super) fn next(&mut self) -> Result<Option<CsvRow<'_>>, ReadError> {
        let Some((line, text)) = self.lines.following() else {
            return Ok(None);
        };
        let text = std::str::from_utf8(text).map_err(|_| self.refused(Some(line), Problem::NotText))?;
        let cells: Vec<&str> = text.split(',').map(str::trim).collect();
        if cells.len() != self.columns.len() {
            let problem = Problem::Cells {
                found: cells.len(),
                columns: self.columns.len(),
            };
            return Err(self.refused(Some(line), problem));
        }
        Ok(Some(CsvRow {
            file: self.file,
            columns: &self.columns,
            line,
            cells,
        }))
    }

    /// An error of this file.
    pub(super) fn refused(&self, line: Option<usize>, problem: Problem) -> ReadError {
        ReadError {
            file: self.file.to_string(),
            line,
            problem,
        }
    }
}

impl CsvRow<'_> {
    /// A whole number of at most [`COUNT_MAX`].
    ///
    /// # Errors
    /// The cell is not such a number.
    pub(super) fn count(&self, column: usize) -> Result<u64, ReadError> {
        let parsed = self.cells[column].parse().ok().filter(|count| *count <= COUNT_MAX);
        parsed.ok_or_else(|| self.no_number(column, "a whole number, 0..=2^53"))
    }

    /// A whole number of at least 1 and at most [`COUNT_MAX`].
    ///
    /// # Errors
    /// The cell is not such a number.
    pub(super) fn positive(&self, column: usize) -> Result<u64, ReadError> {
        let parsed = self.cells[column].parse().ok();
        let sensible = |count: &u64| (1..=COUNT_MAX).contains(count);
        parsed
            .filter(sensible)
            .ok_or_else(|| self.no_number(column, "a whole number, 1..=2^53"))
    }

    /// A number of partitions of a resource.
    ///
    /// # Errors
    /// The cell is not such a number.
    pub(super) fn partitions(&self, column: usize) -> Result<u8, ReadError> {
        let parsed = self.cells[column].parse().ok().filter(|part| (1..=64).contains(part));
        parsed.ok_or_else(|| self.no_number(column, "a whole number, 1..=64"))
    }

    /// A positive number that single precision can hold.
    ///
    /// # Errors
    /// The cell is not such a number.
    pub(super) fn rate(&self, column: usize) -> Result<f64, ReadError> {
        let parsed = self.cells[column].parse().ok();
        let sensible = |rate: &f64| (1e-3..=1e30).contains(rate);
        let refused = || self.no_number(column, "instructions per second, a number of at least 0.001");
        parsed.filter(sensible).ok_or_else(refused)
    }

    /// An error of this row.
    pub(super) fn refused(&self, problem: Problem) -> ReadError {
        ReadError {
            file: self.file.to_string(),
            line: Some(self.line),
            problem,
        }
    }

    fn no_number(&self, column: usize, expected: &'static str) -> ReadError {
        self.refused(Problem::Number {
            column: shown(self.columns[column]),
            text: shown(self.cells[column]),
            expected,
        })
    }
}

/// Lines that are neither empty nor remarks, and their numbers.
struct Lines<'a> {
    rest: &'a [u8],
    number: usize,
}

impl<'a> Lines<'a> {
    fn following(&mut self) -> Option<(usize, &'a [u8])> {
        while !self.rest.is_empty() {
            let end = self.rest.iter().position(|byte| *byte == b'\n');
            let (line, rest) = match end {
                Some(end) => (&self.rest[..end], &self.rest[end + 1..]),
                None => (self.rest, &[][..]),
            };
            self.rest = rest;
            self.number += 1;
            let line = line.trim_ascii();
            if !line.is_empty() && line[0] != b'#' {
                return Some((self.number, line));
            }
        }
        None
    }
}

/// As much of `text` as an error repeats.
pub(super) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text.to_string(),
    }
}
