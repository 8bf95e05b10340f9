//! What an experiment gives: figures to draw, claims to judge by, and samples.

use serde::Serialize;

use crate::claims::ClaimResult;
use crate::samples::{Labels, Replication};
use crate::stats::Spread;

/// An experiment's result.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// The experiment's name.
    pub name: String,
    /// Where it ran: `sim` or `linux`.
    pub platform: String,
    /// What claims were judged on.
    pub testbed: Testbed,
    /// The machines, or the sets of profiles, by name.
    pub machines: Vec<String>,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// What was set, for people: name and value.
    pub setting: Vec<(String, String)>,
    /// Every claim beside what came out.
    pub claims: Vec<ClaimResult>,
    /// What was measured without a claim.
    pub measures: Vec<Measure>,
    /// Figures of every run, where an experiment is about them.
    pub tables: Vec<Table>,
    /// What to draw.
    pub figures: Vec<Figure>,
    /// The means of each run over all replications: labels, and the spread of the mean of each series.
    pub means: Vec<(Labels, Vec<(String, Spread)>)>,
    /// The samples of one replication per machine, that of the first seed.
    pub samples: Vec<Replication>,
    /// What could not be run, and why.
    pub failures: Vec<String>,
}

/// What claims are judged on, with every seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Testbed {
    /// Machines.
    #[default]
    Machine,
    /// Programs on one machine.
    ProfileSet,
}

impl Testbed {
    /// One of them, for people.
    pub fn one(self) -> &'static str {
        match self {
            Testbed::Machine => "machine",
            Testbed::ProfileSet => "set of profiles",
        }
    }

    /// Several of them, for people.
    pub fn many(self) -> &'static str {
        match self {
            Testbed::Machine => "machines",
            Testbed::ProfileSet => "sets of profiles",
        }
    }
}

impl Outcome {
    /// On how many testbeds with how many seeds it ran, for people.
    pub fn extent(&self) -> (String, String) {
        let counted = |count: usize, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
        (
            counted(self.machines.len(), self.testbed.one(), self.testbed.many()),
            counted(self.seeds.len(), "seed", "seeds"),
        )
    }
}

/// Figures of runs, a line each.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// What the figures are.
    pub columns: Vec<String>,
    /// A run and its figures; none where nothing was measured.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
}

/// A figure without a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measure {
    /// What it is.
    pub name: String,
    /// Its formula.
    pub formula: String,
    /// Over all replications; `None` where it could not be evaluated.
    pub spread: Option<Spread>,
}

/// One picture.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The experiment that it belongs to.
    pub experiment: String,
    /// What it shows, with the unit of its values.
    pub title: String,
    /// The picture.
    pub chart: Chart,
}

/// What is drawn.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Chart {
    /// Values over time, or over another quantity.
    Curves {
        /// The unit of the horizontal axis.
        x_unit: String,
        /// The length of the horizontal axis.
        length: f64,
        /// The curves.
        curves: Vec<Curve>,
        /// Horizontal lines with their names.
        levels: Vec<(String, f64)>,
        /// A stretch with a meaning.
        band: Option<(f64, f64)>,
    },
    /// Medians with their ranges, in groups.
    Bars {
        /// The names of the groups.
        groups: Vec<String>,
        /// One series of bars, a bar per group.
        bars: Vec<Bars>,
    },
}

/// One curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// In the legend.
    pub name: String,
    /// Place and value; none where nothing was measured.
    pub points: Vec<(f64, Option<f64>)>,
}

/// One series of bars.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bars {
    /// In the legend.
    pub name: String,
    /// One per group; none where nothing was measured.
    pub values: Vec<Option<Spread>>,
}
