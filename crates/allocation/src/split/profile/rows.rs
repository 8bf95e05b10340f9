//! A table of numbers as text: a line of names, then lines of as many numbers.
//!
//! Nothing in a profile needs quotes, so a line is what stands between commas. Lines that begin with `#` are remarks,
//! and empty ones are skipped.

use std::ops::RangeInclusive;
use std::str::FromStr;

use super::error::ReadError;

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
    /// Lines that are neither empty nor remarks, and their numbers, from 1.
    lines: Box<dyn Iterator<Item = (usize, &'a [u8])> + 'a>,
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
        let lines = (1..).zip(bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii));
        let mut lines = lines.filter(|(_, line)| !line.is_empty() && line[0] != b'#');
        let (line, text) = lines.next().unwrap_or((1, b""));
        // Spreadsheets begin a file with a mark of its byte order.
        let columns = cells(file, line, text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text))?;
        for (i, column) in columns.iter().enumerate() {
            if columns[..i].contains(column) {
                let what = format!("has two columns {}; leave one", shown(column));
                return Err(refused(file, Some(line), what));
            }
        }
        let lines = Box::new(lines);
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
        found.ok_or_else(|| self.lacks(name))
    }

    /// Indices of the columns `names`.
    ///
    /// # Errors
    /// A column is missing.
    pub(super) fn places<const N: usize>(&self, names: [&str; N]) -> Result<[usize; N], ReadError> {
        let mut places = [0; N];
        for (place, name) in places.iter_mut().zip(names) {
            *place = self.column(name)?;
        }
        Ok(places)
    }

    /// Error of a table without the column `name`.
    pub(super) fn lacks(&self, name: &str) -> ReadError {
        self.refused(
            None,
            format!("has no column {name}; add it to the first line and to every row"),
        )
    }

    /// Reads all rows, at least one and at most [`ROWS_MAX`].
    ///
    /// # Errors
    /// A line that is no text or has not a cell for each column; those of `take`; too few or too many rows.
    pub(super) fn each_row(
        &mut self,
        mut take: impl FnMut(&CsvRow<'_>) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        let mut rows = 0;
        for (line, text) in self.lines.by_ref() {
            let (file, columns) = (self.file, self.columns.as_slice());
            let cells = cells(file, line, text)?;
            let row = CsvRow {
                file,
                columns,
                line,
                cells,
            };
            let (found, needed) = (row.cells.len(), columns.len());
            if found != needed {
                return Err(row.refused(format!(
                    "has {found} cells under {needed} columns; is the file cut short here?"
                )));
            }
            take(&row)?;
            rows += 1;
            if rows > ROWS_MAX {
                let what = format!("has more than {ROWS_MAX} rows; profile with larger windows");
                return Err(refused(file, None, what));
            }
        }
        match rows {
            0 => Err(self.refused(None, "has no rows under its first line; profile the program again")),
            _ => Ok(()),
        }
    }

    /// An error of this file.
    pub(super) fn refused(&self, line: Option<usize>, what: impl Into<String>) -> ReadError {
        refused(self.file, line, what)
    }
}

impl CsvRow<'_> {
    /// A number within `range`, which is `expected` in words.
    ///
    /// # Errors
    /// The cell is not such a number.
    pub(super) fn number<T: FromStr + PartialOrd>(
        &self,
        column: usize,
        range: RangeInclusive<T>,
        expected: &str,
    ) -> Result<T, ReadError> {
        let parsed = self.cells[column].parse().ok().filter(|number| range.contains(number));
        parsed.ok_or_else(|| {
            let (name, text) = (shown(self.columns[column]), shown(self.cells[column]));
            self.refused(format!("{name} is \"{text}\"; it must be {expected}"))
        })
    }

    /// A whole number of at most [`COUNT_MAX`].
    ///
    /// # Errors
    /// The cell is not such a number.
    pub(super) fn count(&self, column: usize) -> Result<u64, ReadError> {
        self.number(column, 0..=COUNT_MAX, "a whole number, 0..=2^53")
    }

    /// An error of the whole file.
    pub(super) fn of_file(&self, what: impl Into<String>) -> ReadError {
        refused(self.file, None, what)
    }

    /// An error of this row.
    pub(super) fn refused(&self, what: impl Into<String>) -> ReadError {
        refused(self.file, Some(self.line), what)
    }
}

fn cells<'a>(file: &str, line: usize, text: &'a [u8]) -> Result<Vec<&'a str>, ReadError> {
    let what = "is not text; a profile is a table in comma-separated values, not compressed";
    let text = std::str::from_utf8(text).map_err(|_| refused(file, Some(line), what))?;
    Ok(text.split(',').map(str::trim).collect())
}

fn refused(file: &str, line: Option<usize>, what: impl Into<String>) -> ReadError {
    ReadError {
        file: file.into(),
        line,
        what: what.into(),
    }
}

/// As much of `text` as an error repeats.
pub(super) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text.to_string(),
    }
}
