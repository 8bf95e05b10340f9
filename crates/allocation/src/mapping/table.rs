//! The best configuration for every frame rate.
//!
//! **Method.** The power of a configuration is a line over the frame rate, from 0 to the highest rate that it serves.
//! The table is the lower envelope of all these lines. A walk goes up from rate 0: the best configuration just above
//! the rate at hand stays the best until its own limit, or until the line of another one that is served there crosses
//! below. As the rate rises, configurations drop out and none comes in, so that nothing else can end a row.

use super::model::{Configuration, Mapping};
use super::power::{LinearPower, Rate, less};
use super::search::{Search, SearchEntry};

/// Most rows of a table. Every row ends at a limit or a crossing; ordinary machines have tens.
pub const ROWS_MAX: usize = 4096;

/// Best configuration for a range of frame rates.
#[derive(Clone, Debug, PartialEq)]
pub struct MappingRow {
    /// The range begins above this rate, in frames per second.
    pub above: f64,
    /// The range ends with this rate.
    pub up_to: f64,
    /// Configuration that draws the least within the range.
    pub configuration: Configuration,
}

/// The best configuration for every frame rate that can be served.
#[derive(Clone, Debug, PartialEq)]
pub struct MappingTable {
    rows: Vec<MappingRow>,
}

impl MappingTable {
    /// Table of a search. Where several mappings draw the same, a row takes the one with the fewest moves from the row
    /// before it, the first row with the fewest moves from `from`.
    pub fn new(search: &Search, from: Option<&Mapping>) -> MappingTable {
        let mut rows: Vec<MappingRow> = Vec::new();
        while rows.len() < ROWS_MAX {
            let above = rows.last().map_or(0.0, |row| row.up_to);
            let before = rows.last().map(|row| &row.configuration.mapping).or(from);
            let Some(configuration) = search.choose(Rate::Above(above), before) else {
                break;
            };
            rows.push(MappingRow {
                above,
                up_to: end(search, &configuration, above),
                configuration,
            });
        }
        MappingTable { rows }
    }

    /// The rows, by rising rate, without a gap.
    pub fn rows(&self) -> &[MappingRow] {
        &self.rows
    }

    /// The row of a frame rate; `None` for rates that no configuration serves.
    pub fn row(&self, fps: f64) -> Option<&MappingRow> {
        self.rows.get(self.rows.partition_point(|row| row.up_to < fps))
    }

    /// The highest frame rate that can be served.
    pub fn fps_max(&self) -> f64 {
        self.rows.last().map_or(0.0, |row| row.up_to)
    }
}

/// Rate up to which `configuration` is the best one; it is the best one just above the rate `above`.
fn end(search: &Search, configuration: &Configuration, above: f64) -> f64 {
    let problem = search.problem();
    let demands = problem.demands(&configuration.mapping);
    let steps = configuration.steps.iter().map(|step| usize::from(*step));
    let lines = demands.iter().zip(steps).enumerate();
    let line = lines
        .map(|(domain, (demand, step))| problem.line(domain, step, demand))
        .fold(LinearPower::default(), LinearPower::plus);
    let mut end = problem.fps_max(configuration);
    // A round that finds no earlier crossing is the last.
    for _ in 0..ROWS_MAX {
        let crossings = search
            .entries()
            .iter()
            .filter_map(|entry| crossing(search, entry, line, above, end));
        match crossings.reduce(f64::min) {
            Some(earlier) if earlier < end => end = earlier,
            _ => break,
        }
    }
    end
}

/// Rate at which a mapping crosses below `line` between `above` and `end`; at the latest the rate where it is seen
/// below: the range's end, or one of its own limits.
fn crossing(search: &Search, entry: &SearchEntry, line: LinearPower, above: f64, end: f64) -> Option<f64> {
    let problem = search.problem();
    let limits = entry.demands.iter().enumerate().flat_map(|(domain, demand)| {
        let steps = 0..problem.cores().domains[domain].steps.len();
        steps.map(move |step| problem.limit(domain, step, demand))
    });
    let seen = limits.filter(|limit| above < *limit && *limit < end).chain([end]);
    let below = seen.filter_map(|fps| {
        let other = problem.cheapest(&entry.demands, Rate::At(fps))?;
        less(other.at(fps), line.at(fps)).then(|| {
            let crossing = (other.watts - line.watts) / (line.joules_per_frame - other.joules_per_frame);
            // Rounding may put a crossing outside of the range.
            if crossing > above && crossing < fps {
                crossing
            } else {
                fps
            }
        })
    });
    below.reduce(f64::min)
}
