//! A profile that was measured: under each share, spans of instructions and how fast they ran.

use super::course::Course;
use super::error::{ReadError, SplitError};
use super::rows::{CsvRow, CsvTable};
use crate::grid::{Grid, Share};

/// The columns of such a file; others are ignored.
pub(super) const COLUMNS: [&str; 6] = [
    "cache_ways",
    "bandwidth_partitions",
    "cluster",
    "start_instr",
    "end_instr",
    "instr_per_s",
];

/// Distinct places in a run, over all shares, where a rate changes.
const BOUNDARIES_MAX: usize = 16_384;

/// Durations, one for each such place and share: as many as 16384 places have on a grid of 20 x 20, 52 MB; 64 x 64
/// shares leave room for 1600 places.
const DURATIONS_MAX: usize = BOUNDARIES_MAX * 400;

/// Instructions by which neighbouring spans may miss each other: rounding by the program that measured.
const SLACK: u64 = 1;

/// Runs of one program, one under each share of a machine.
///
/// A run under one share is not as long as one under another (a program that waits by looping executes more), so what
/// is common to them is progress: the share of a run's own instructions that are done.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredRuns {
    /// Name of the program, from the file's name.
    pub name: String,
    grid: Grid,
    /// In the order of [`Grid::index`]; none is empty, and ends only grow.
    runs: Vec<Vec<Span>>,
}

/// A stretch of a run in which it behaved alike; it begins where the one before ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Which kind of behaviour: the label of its cluster.
    pub cluster: u64,
    /// Instructions done at its end.
    pub ends: u64,
    /// Rate in instructions per second.
    pub rate: f64,
}

/// A row before its neighbours are known.
struct Raw {
    line: usize,
    start: u64,
    end: u64,
    cluster: u64,
    rate: f64,
}

impl MeasuredRuns {
    /// Reads the rows under `table`'s names, in any order, for a machine of `grid` or, if that is not given, for the
    /// one with the most ways and partitions that a row names.
    ///
    /// Rows of one share are sorted; between neighbours one instruction may be left out or counted twice.
    pub(super) fn read(name: &str, table: &mut CsvTable<'_>, grid: Option<Grid>) -> Result<MeasuredRuns, ReadError> {
        let places = table.places(COLUMNS)?;
        let mut rows: Vec<(Share, Raw)> = Vec::new();
        table.each_row(|row| {
            rows.push(raw(row, places, grid)?);
            Ok(())
        })?;
        let grid = grid.unwrap_or_else(|| Grid {
            ways: rows.iter().map(|(share, _)| share.ways).max().unwrap_or(1),
            partitions: rows.iter().map(|(share, _)| share.partitions).max().unwrap_or(1),
        });
        rows.sort_by_key(|(share, raw)| (grid.index(*share), raw.start, raw.end));
        let mut runs = Vec::with_capacity(grid.len());
        let mut rest = rows.as_slice();
        for share in grid.shares() {
            let of_share = rest.iter().take_while(|(other, _)| *other == share).count();
            let (run, others) = rest.split_at(of_share);
            runs.push(joined(table, share, run)?);
            rest = others;
        }
        let missing = runs.iter().filter(|run| run.is_empty()).count();
        if let Some((share, _)) = grid.shares().zip(&runs).find(|(_, run)| run.is_empty()) {
            let Share { ways, partitions } = share;
            return Err(table.refused(
                None,
                format!(
                    "{missing} of {} allocations are missing, the first with {ways} ways and {partitions} partitions; \
                     every one must be profiled",
                    grid.len()
                ),
            ));
        }
        let name = name.to_string();
        Ok(MeasuredRuns { name, grid, runs })
    }

    /// Grid of the machine where it was measured.
    pub fn grid(&self) -> Grid {
        self.grid
    }

    /// The run with `share`.
    pub fn spans(&self, share: Share) -> &[Span] {
        &self.runs[self.grid.index(share)]
    }

    /// Instructions of the run with `share`.
    pub fn instructions(&self, share: Share) -> u64 {
        self.spans(share).last().map_or(0, |span| span.ends)
    }

    /// Seconds of the run with `share`.
    pub fn seconds(&self, share: Share) -> f64 {
        let mut before = 0;
        let each = self.spans(share).iter().map(|span| {
            let instructions = span.ends - before;
            before = span.ends;
            instructions as f64 / span.rate
        });
        each.sum()
    }

    /// How long each stretch of progress takes under each share: the stretches are as short as it takes for every rate
    /// to be constant in each.
    ///
    /// # Errors
    /// More places where a rate changes than a profile may have.
    pub(super) fn course(&self) -> Result<Course, SplitError> {
        let mut ends: Vec<f64> = Vec::new();
        for run in &self.runs {
            let whole = whole(run);
            ends.extend(run.iter().map(|span| span.ends as f64 / whole));
        }
        ends.sort_by(f64::total_cmp);
        ends.dedup();
        let shares = self.grid.len();
        let most = BOUNDARIES_MAX.min(DURATIONS_MAX / shares);
        if ends.len() > most {
            let found = ends.len();
            return Err(SplitError(format!(
                "rates change at {found} places, at most {most} are read; merge short spans"
            )));
        }
        let mut seconds = vec![0.0; ends.len() * shares];
        for (share, run) in self.runs.iter().enumerate() {
            let whole = whole(run);
            let (mut span, mut before) = (0, 0.0);
            for (piece, end) in ends.iter().enumerate() {
                seconds[piece * shares + share] = (end - before) * whole / run[span].rate;
                before = *end;
                if run[span].ends as f64 / whole <= *end {
                    span += 1;
                }
            }
        }
        let instructions = self.instructions(self.grid.all()) as f64;
        Ok(Course::new(self.grid, instructions, ends, seconds))
    }
}

fn whole(run: &[Span]) -> f64 {
    run.last().map_or(1, |span| span.ends) as f64
}

fn raw(row: &CsvRow<'_>, places: [usize; 6], grid: Option<Grid>) -> Result<(Share, Raw), ReadError> {
    let [ways, partitions, cluster, start, end, rate] = places;
    let share = Share {
        ways: row.number(ways, 1..=64, "a whole number, 1..=64")?,
        partitions: row.number(partitions, 1..=64, "a whole number, 1..=64")?,
    };
    if let Some(grid) = grid.filter(|grid| !grid.holds(share)) {
        return Err(row.refused(format!(
            "is for {} ways and {} partitions; the machine has {} and {}: \
             leave such rows out, or profile for this machine",
            share.ways, share.partitions, grid.ways, grid.partitions
        )));
    }
    let raw = Raw {
        line: row.line,
        start: row.count(start)?,
        end: row.count(end)?,
        cluster: row.count(cluster)?,
        // Range of single precision.
        rate: row.number(rate, 1e-3..=1e30, "instructions per second, a number of at least 0.001")?,
    };
    if raw.end < raw.start {
        let (start, end) = (raw.start, raw.end);
        return Err(row.refused(format!("ends at instruction {end}, before its start {start}")));
    }
    Ok((share, raw))
}

/// The spans of a run, each beginning where the one before ends. A span names its first and its last instruction, the
/// first of a program being 1 (or 0, which the slack allows for).
fn joined(table: &CsvTable<'_>, share: Share, rows: &[(Share, Raw)]) -> Result<Vec<Span>, ReadError> {
    let mut spans: Vec<Span> = Vec::with_capacity(rows.len());
    let mut before = 0;
    for (_, raw) in rows {
        let expected = before + 1;
        let apart = raw.start.abs_diff(expected);
        if apart > SLACK {
            let what = match raw.start > expected {
                true => format!("leaves a gap of {apart} instructions before it"),
                false => format!("overlaps the span before it by {apart} instructions"),
            };
            let Share { ways, partitions } = share;
            return Err(table.refused(
                Some(raw.line),
                format!("{what}, with {ways} ways and {partitions} partitions; at most one is tolerated"),
            ));
        }
        // A span of one instruction may lie wholly in the slack.
        if raw.end > before {
            spans.push(Span {
                cluster: raw.cluster,
                ends: raw.end,
                rate: raw.rate,
            });
            before = raw.end;
        }
    }
    Ok(spans)
}
