//! A profile by window: requests to the last-level cache, and misses for each number of ways.

use super::course::Course;
use super::error::ReadError;
use super::rows::{COUNT_MAX, CsvRow, CsvTable};
use super::timing::Timing;
use crate::grid::Grid;

/// The columns of such a file before `miss_w1`, `miss_w2`, ...; others are ignored.
pub(super) const COLUMNS: [&str; 4] = ["window_index", "instr_start", "instr_count", "llc_requests"];
/// Prefix of a column of misses; the number of ways follows.
const MISSES: &str = "miss_w";
/// The most ways that a [`Grid`] has.
const WAYS_MAX: usize = 64;

/// Run of one program, window by window.
#[derive(Clone, Debug, PartialEq)]
pub struct Windows {
    /// Name of the program, from the file's name.
    pub name: String,
    ways: u8,
    windows: Vec<ProfileWindow>,
}

/// Counts over a stretch of instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileWindow {
    /// Instructions before the window.
    pub start: u64,
    /// Instructions in the window; positive.
    pub instructions: u64,
    /// Lines requested from the last-level cache.
    pub requests: u64,
    /// Misses with 1, 2, ... ways.
    pub misses: Box<[u64]>,
}

impl ProfileWindow {
    /// Misses with `ways` ways.
    ///
    /// # Panics
    /// If `ways` is 0, or more than the window knows.
    pub fn misses(&self, ways: u8) -> u64 {
        self.misses[usize::from(ways) - 1]
    }
}

impl Windows {
    /// Reads the rows under `table`'s names. They are in order; a window begins where the one before ends; more ways
    /// never miss more.
    pub(super) fn read(name: &str, table: &mut CsvTable<'_>, ways: Option<u8>) -> Result<Windows, ReadError> {
        let places = table.places(COLUMNS)?;
        let misses = misses(table)?;
        let found = misses.len() as u8;
        if let Some(expected) = ways.filter(|ways| *ways != found) {
            return Err(table.refused(
                None,
                format!(
                    "has misses for {found} ways; the machine has {expected}: profile again with --ways {expected}"
                ),
            ));
        }
        let mut windows: Vec<ProfileWindow> = Vec::new();
        let (mut start, mut requests) = (0, 0);
        table.each_row(|row| {
            let window = window(row, places, &misses, windows.len() as u64, start)?;
            start += window.instructions;
            requests += window.requests;
            windows.push(window);
            if start.max(requests) > COUNT_MAX {
                let what = format!("has more than {COUNT_MAX} instructions or requests; profile a part of the run");
                return Err(row.of_file(what));
            }
            Ok(())
        })?;
        Ok(Windows {
            name: name.to_string(),
            ways: found,
            windows,
        })
    }

    /// Most ways for which misses are known.
    pub fn ways(&self) -> u8 {
        self.ways
    }

    /// The windows in order, at least one.
    pub fn windows(&self) -> &[ProfileWindow] {
        &self.windows
    }

    /// Instructions of the whole run.
    pub fn instructions(&self) -> u64 {
        self.windows.iter().map(|window| window.instructions).sum()
    }

    /// Joins neighbouring windows, as many at a time as it takes to leave at most `most`.
    #[must_use]
    pub fn coarser(&self, most: usize) -> Windows {
        let each = self.windows.len().div_ceil(most.max(1));
        let windows = self.windows.chunks(each).map(|part| ProfileWindow {
            start: part[0].start,
            instructions: part.iter().map(|window| window.instructions).sum(),
            requests: part.iter().map(|window| window.requests).sum(),
            misses: (0..usize::from(self.ways))
                .map(|way| part.iter().map(|window| window.misses[way]).sum())
                .collect(),
        });
        Windows {
            name: self.name.clone(),
            ways: self.ways,
            windows: windows.collect(),
        }
    }

    /// Seconds of each window under each share of a machine with this number of bandwidth partitions.
    pub(super) fn course(&self, timing: &Timing, partitions: u8) -> Course {
        let grid = Grid {
            ways: self.ways,
            partitions,
        };
        let whole = self.instructions();
        let ends = self
            .windows
            .iter()
            .map(|window| (window.start + window.instructions) as f64 / whole as f64);
        let seconds = self
            .windows
            .iter()
            .flat_map(|window| grid.shares().map(|share| timing.seconds(window, share)));
        Course::new(grid, whole as f64, ends.collect(), seconds.collect())
    }
}

/// Indices of the columns of misses with 1, 2, ... ways.
fn misses(table: &CsvTable<'_>) -> Result<Vec<usize>, ReadError> {
    let mut places = vec![table.column(&format!("{MISSES}1"))?];
    while let Ok(place) = table.column(&format!("{MISSES}{}", places.len() + 1)) {
        places.push(place);
        if places.len() == WAYS_MAX {
            break;
        }
    }
    // A column beyond a missing one would be ignored in silence.
    let named = table
        .columns()
        .iter()
        .filter(|column| column.starts_with(MISSES))
        .count();
    if named > places.len() {
        let next = places.len() + 1;
        return Err(table.lacks(&format!("{MISSES}{next} (1..={WAYS_MAX} without a gap)")));
    }
    Ok(places)
}

fn window(
    row: &CsvRow<'_>,
    places: [usize; 4],
    misses: &[usize],
    index: u64,
    begins: u64,
) -> Result<ProfileWindow, ReadError> {
    let [number, start, instructions, requests] = places;
    let found = row.count(number)?;
    if found != index {
        return Err(row.refused(format!(
            "window_index is {found}, expected {index}; rows must be in order and none left out"
        )));
    }
    let found = row.count(start)?;
    if found != begins {
        return Err(row.refused(format!(
            "instr_start is {found}, but the windows before it have {begins} instructions"
        )));
    }
    let requests = row.count(requests)?;
    let mut before = requests;
    let mut known = Vec::with_capacity(misses.len());
    for (way, place) in misses.iter().enumerate() {
        let misses = row.count(*place)?;
        if misses > before {
            return Err(row.refused(format!(
                "{MISSES}{} is {misses}, more than the {before} before it: misses cannot grow with the ways, nor \
                 exceed the requests",
                way + 1
            )));
        }
        known.push(misses);
        before = misses;
    }
    Ok(ProfileWindow {
        start: begins,
        instructions: row.number(instructions, 1..=COUNT_MAX, "a whole number, 1..=2^53")?,
        requests,
        misses: known.into(),
    })
}
