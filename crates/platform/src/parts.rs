//! Energy and power, of each part of a machine for itself.

use std::ops::{Add, Mul};

use serde::{Deserialize, Serialize};

/// Something of each part of the machine: joules, or watts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// The cores.
    pub cores: f64,
    /// The shared cache and what joins it to the cores.
    pub uncore: f64,
    /// The memory.
    pub memory: f64,
}

impl Parts {
    /// Of the whole machine.
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
