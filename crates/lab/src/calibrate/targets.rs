//! The figures that a machine is fitted to: what the paper prints, how it is read, and how far a machine is from it.

use punctual_units::{Hertz, Nanos};
use serde::{Deserialize, Serialize};

use super::microbenchmark::{Condition, Response};

/// The microbenchmark's fixed setting and its figures. A file; see `data/qedb-calibration.toml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Targets {
    /// Between two releases of the job, in milliseconds.
    pub period_ms: u64,
    /// The job's relative deadline, in milliseconds, by which all times are divided.
    pub deadline_ms: u64,
    /// How many sensors report.
    pub sensors: u32,
    /// The shortest interval between two reports of a sensor, in seconds.
    pub report_min_s: f64,
    /// The longest interval between two reports of a sensor, in seconds.
    pub report_max_s: f64,
    /// The figures.
    #[serde(rename = "target")]
    pub figures: Vec<Target>,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Target {
    /// A name of its own.
    pub id: String,
    /// Where the paper has it.
    pub figure: String,
    /// What the paper says, in our words.
    pub says: String,
    /// How that is read.
    pub reading: String,
    /// Which time.
    pub quantity: Quantity,
    /// How the figure binds.
    pub kind: Kind,
    /// The clock at which it was measured.
    pub clock_mhz: u64,
    /// How many cores interfered.
    pub interferers: u32,
    /// The sensors' rate as a share of the full one, 0 to 1.
    pub qod: f64,
    /// The time, divided by the deadline; above 0.
    pub value: f64,
}

/// A part of the job's response time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Inside store calls: d.
    Data,
    /// The whole of it: r.
    Response,
}

/// How a figure binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The time is this.
    Equals,
    /// The time is more than this.
    Above,
}

/// What is wrong with a file of targets: which key, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct TargetError {
    /// The key, e.g. `target[3].value`.
    pub key: String,
    /// What is wrong, and what is expected.
    pub what: String,
}

impl Target {
    /// Under which circumstances the figure was measured.
    pub fn condition(&self) -> Condition {
        Condition {
            clock: Hertz::from_mhz(self.clock_mhz),
            interferers: self.interferers,
            qod: self.qod,
        }
    }

    /// Our figure beside this one.
    pub fn of(&self, response: &Response) -> f64 {
        match self.quantity {
            Quantity::Data => response.data,
            Quantity::Response => response.data + response.computation,
        }
    }

    /// How far `ours` is off, relative to the paper's figure: positive where ours is longer; 0 where a bound is kept.
    pub fn residual(&self, ours: f64) -> f64 {
        let off = ours / self.value - 1.0;
        match self.kind {
            Kind::Equals => off,
            Kind::Above => off.min(0.0),
        }
    }
}

impl Targets {
    /// Between two releases of the job.
    pub fn period(&self) -> Nanos {
        Nanos::from_millis(self.period_ms)
    }

    /// The job's relative deadline.
    pub fn deadline(&self) -> Nanos {
        Nanos::from_millis(self.deadline_ms)
    }

    /// Every condition that a figure asks for, once, in the order of the file.
    pub fn conditions(&self) -> Vec<Condition> {
        let mut conditions: Vec<Condition> = Vec::new();
        for target in &self.figures {
            if !conditions.contains(&target.condition()) {
                conditions.push(target.condition());
            }
        }
        conditions
    }

    /// The figure with this id.
    pub fn get(&self, id: &str) -> Option<&Target> {
        self.figures.iter().find(|target| target.id == id)
    }

    /// Whether a machine can be fitted to these.
    ///
    /// # Errors
    /// [`TargetError`] names the first key that is out of range.
    pub fn check(&self) -> Result<(), TargetError> {
        let require = |holds: bool, key: String, what: &str| match holds {
            true => Ok(()),
            false => Err(TargetError { key, what: what.into() }),
        };
        require(self.period_ms > 0, "period-ms".into(), "must be at least 1")?;
        let deadline = (1..=self.period_ms).contains(&self.deadline_ms);
        require(deadline, "deadline-ms".into(), "must lie between 1 and period-ms")?;
        let sensors = (1..=1_000_000).contains(&self.sensors);
        require(sensors, "sensors".into(), "must lie between 1 and 1000000")?;
        let least = self.report_min_s.is_finite() && self.report_min_s > 0.0;
        require(least, "report-min-s".into(), "must be a number of seconds above 0")?;
        let most = self.report_max_s.is_finite() && self.report_max_s >= self.report_min_s;
        require(most, "report-max-s".into(), "must be at least report-min-s")?;
        require(
            !self.figures.is_empty(),
            "target".into(),
            "nothing to fit to: add a [[target]]",
        )?;
        for (i, target) in self.figures.iter().enumerate() {
            let key = |field: &str| format!("target[{i}].{field}");
            let first = self.figures[..i].iter().all(|other| other.id != target.id);
            require(first, key("id"), "is taken by another target: choose one of its own")?;
            require(target.clock_mhz > 0, key("clock-mhz"), "must be at least 1")?;
            require(target.interferers <= 63, key("interferers"), "must be at most 63")?;
            let qod = target.qod.is_finite() && (0.0..=1.0).contains(&target.qod);
            require(qod, key("qod"), "must lie between 0 and 1")?;
            let value = target.value.is_finite() && target.value > 0.0;
            require(value, key("value"), "must be a time over the deadline, above 0")?;
        }
        Ok(())
    }
}

/// Root of the mean of the squares; 0 of nothing.
pub fn rms(residuals: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) = residuals.into_iter().fold((0.0, 0usize), |(sum, count), residual| {
        (sum + residual * residual, count + 1)
    });
    (sum / count.max(1) as f64).sqrt()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A small sound set.
    pub(crate) fn example() -> Targets {
        let target = |id: &str, quantity, interferers, value| Target {
            id: id.into(),
            figure: "Fig. 3".into(),
            says: "so long".into(),
            reading: "as printed".into(),
            quantity,
            kind: Kind::Equals,
            clock_mhz: 2000,
            interferers,
            qod: 1.0,
            value,
        };
        Targets {
            period_ms: 100,
            deadline_ms: 50,
            sensors: 64,
            report_min_s: 1.0,
            report_max_s: 10.0,
            figures: vec![
                target("d-2000-alone", Quantity::Data, 0, 0.05),
                target("d-2000-three", Quantity::Data, 3, 0.1),
                target("r-2000-alone", Quantity::Response, 0, 0.21),
            ],
        }
    }

    #[test]
    fn residuals_are_relative_and_bounds_cost_nothing_where_kept() {
        let mut target = example().figures[0].clone();
        assert!((target.residual(0.06) - 0.2).abs() < 1e-12);
        assert!((target.residual(0.04) + 0.2).abs() < 1e-12);
        target.kind = Kind::Above;
        assert_eq!(target.residual(0.06), 0.0);
        assert!((target.residual(0.04) + 0.2).abs() < 1e-12);
        assert!((rms([3.0, 4.0]) - 12.5f64.sqrt()).abs() < 1e-12);
        assert_eq!(rms([]), 0.0);
    }

    #[test]
    fn figures_measured_together_share_a_condition() {
        assert_eq!(example().conditions().len(), 2);
    }

    #[test]
    fn each_fault_names_its_key() {
        let key = |change: fn(&mut Targets)| {
            let mut targets = example();
            change(&mut targets);
            targets.check().unwrap_err().key
        };
        assert_eq!(example().check(), Ok(()));
        assert_eq!(key(|t| t.deadline_ms = 101), "deadline-ms");
        assert_eq!(key(|t| t.report_max_s = 0.5), "report-max-s");
        assert_eq!(key(|t| t.figures.clear()), "target");
        assert_eq!(key(|t| t.figures[1].id = t.figures[0].id.clone()), "target[1].id");
        assert_eq!(key(|t| t.figures[2].qod = f64::NAN), "target[2].qod");
        assert_eq!(key(|t| t.figures[1].value = 0.0), "target[1].value");
    }
}
