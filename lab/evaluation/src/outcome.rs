//! Result of an experiment: charts, judged claims, and samples.

use serde::Serialize;

use crate::claims::ClaimResult;
use crate::samples::{Labels, Replication};
use crate::stats::Spread;

/// Result of an experiment, which `cli` prints, writes and draws.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    pub name: String,
    /// Platform of the runs: `sim` or `linux`.
    pub platform: String,
    /// Kind of testbed on which claims were judged.
    pub testbed: Testbed,
    /// Names of the machines, or of the sets of profiles.
    pub machines: Vec<String>,
    pub seeds: Vec<u64>,
    /// The setting as (name, value) pairs for the report.
    pub setting: Vec<(String, String)>,
    /// Every claim with its values and the verdict.
    pub claims: Vec<ClaimResult>,
    /// Measured values without a claim.
    pub measures: Vec<Measure>,
    /// Figures of every run, in experiments that report them.
    pub tables: Vec<FigureTable>,
    pub figures: Vec<Figure>,
    /// The means of each run over all replications: labels, and the spread of the mean of each series.
    pub means: Vec<(Labels, Vec<(String, Spread)>)>,
    /// The samples of one replication per machine: that of the first seed.
    pub samples: Vec<Replication>,
    /// Messages of failed runs, each with its cause.
    pub failures: Vec<String>,
}

/// Kind of testbed; claims are judged on every testbed with every seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Testbed {
    /// Simulated or real machines.
    #[default]
    Machine,
    /// Sets of profiles of programs, on one simulated machine.
    ProfileSet,
}

impl Testbed {
    /// Name of one testbed, for reports.
    pub fn one(self) -> &'static str {
        match self {
            Testbed::Machine => "machine",
            Testbed::ProfileSet => "set of profiles",
        }
    }

    /// Name of several testbeds, for reports.
    pub fn many(self) -> &'static str {
        match self {
            Testbed::Machine => "machines",
            Testbed::ProfileSet => "sets of profiles",
        }
    }
}

impl Outcome {
    /// Numbers of testbeds and of seeds, as texts for reports.
    pub fn extent(&self) -> (String, String) {
        let counted = |count: usize, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
        (
            counted(self.machines.len(), self.testbed.one(), self.testbed.many()),
            counted(self.seeds.len(), "seed", "seeds"),
        )
    }
}

/// A table of figures with one row for each run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FigureTable {
    pub title: String,
    /// Names of the figures.
    pub columns: Vec<String>,
    /// Rows: a run with its figures; `None` where nothing was measured.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
}

/// A measured value without a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measure {
    pub name: String,
    /// Formula of the value, or the file that computes it.
    pub formula: String,
    /// Spread over all replications; `None` where none could be evaluated.
    pub spread: Option<Spread>,
}

/// A chart with its title.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Name of the experiment.
    pub experiment: String,
    /// Title, with the unit of the values.
    pub title: String,
    pub chart: Chart,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Chart {
    /// Values over time, or over another quantity.
    Curves {
        /// Unit of the horizontal axis.
        x_unit: String,
        /// Length of the horizontal axis.
        length: f64,
        curves: Vec<Curve>,
        /// Horizontal lines with their names.
        levels: Vec<(String, f64)>,
        /// Highlighted range of the horizontal axis, for example a disturbance.
        band: Option<(f64, f64)>,
    },
    /// Medians with their ranges, in groups.
    Bars {
        /// Names of the groups.
        groups: Vec<String>,
        /// Series of bars, with one bar per group.
        bars: Vec<Bars>,
    },
}

/// A curve of a chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// Name in the legend.
    pub name: String,
    /// Horizontal position and value; `None` where nothing was measured.
    pub points: Vec<(f64, Option<f64>)>,
}

/// A series of bars.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bars {
    /// Name in the legend.
    pub name: String,
    /// Value for each group; `None` where nothing was measured.
    pub values: Vec<Option<Spread>>,
}
