//! Clock frequency.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A clock frequency in hertz.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hertz(pub u64);

impl Hertz {
    /// Converts megahertz to hertz.
    pub const fn from_mhz(mhz: u64) -> Self {
        Hertz(mhz * 1_000_000)
    }

    /// Converts kilohertz, the unit of the kernel's cpufreq files, to hertz.
    pub const fn from_khz(khz: u64) -> Self {
        Hertz(khz * 1_000)
    }

    /// The frequency in megahertz.
    pub fn as_mhz_f64(self) -> f64 {
        self.0 as f64 * 1e-6
    }

    /// Speed of this clock relative to `top`: `self / top`, 1 at the same speed.
    pub fn ratio(self, top: Hertz) -> f64 {
        self.0 as f64 / top.0 as f64
    }

    /// The frequency multiplied by a non-negative factor.
    pub fn scaled(self, factor: f64) -> Hertz {
        Hertz((self.0 as f64 * factor).round() as u64)
    }
}

impl fmt::Display for Hertz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} MHz", self.as_mhz_f64())
    }
}
