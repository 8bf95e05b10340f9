//! Energy and power of a machine, part by part.

use std::ops::{Add, Mul};

use serde::{Deserialize, Serialize};

/// A quantity for each part of the machine: joules, or watts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// Sum over all cores.
    pub cores: f64,
    /// The shared cache and its connection to the cores.
    pub uncore: f64,
    /// The memory modules (DRAM).
    pub memory: f64,
}

impl Parts {
    /// Sum over all parts of the machine.
    pub fn total(self) -> f64 {
        self.cores + self.uncore + self.memory
    }
}

impl Add for Parts {
    type Output = Parts;
    fn add(self, other: Parts) -> Parts {
        Parts {
            cores: self.cores + other.cores,
            uncore: self.uncore + other.uncore,
            memory: self.memory + other.memory,
        }
    }
}

impl Mul<f64> for Parts {
    type Output = Parts;
    fn mul(self, times: f64) -> Parts {
        Parts {
            cores: self.cores * times,
            uncore: self.uncore * times,
            memory: self.memory * times,
        }
    }
}
