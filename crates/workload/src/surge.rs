//! A surge: work that comes unannounced.
//!
//! How much a job has to do depends on its data: a fire that spreads is more to analyse. To the control law this is a
//! disturbance like interference, and one that every machine has.

use punctual_units::Nanos;
use serde::{Deserialize, Serialize};

use crate::{Active, Op};

/// For a while, real-time jobs have `factor` times as much to do.
///
/// ```
/// use punctual_units::Nanos;
/// use punctual_workload::{Active, Surge};
/// let active = Active { from: Nanos::from_secs(12), until: Nanos::from_secs(22) };
/// let surge = Surge { active, factor: 1.5 };
/// assert_eq!([11, 12, 21, 22].map(|s| surge.factor_at(Nanos::from_secs(s))), [1.0, 1.5, 1.5, 1.0]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Surge {
    /// Jobs that are released meanwhile have more to do, from their first op to their last.
    pub active: Active,
    /// Factor on the work of each op; finite, above 0.
    pub factor: f64,
}

impl Surge {
    /// Factor on the work of a job that is released this long after the start of the run.
    pub fn factor_at(&self, released: Nanos) -> f64 {
        let meanwhile = (self.active.from..self.active.until).contains(&released);
        if meanwhile { self.factor } else { 1.0 }
    }
}

impl Op {
    /// `factor` times the same: cycles and objects, rounded, an op with some of them keeps at least one.
    pub fn times(self, factor: f64) -> Op {
        if factor == 1.0 {
            return self;
        }
        let objects = |count: u32| (f64::from(count) * factor).round().max(f64::from(count.min(1))) as u32;
        match self {
            Op::Compute { cycles } => Op::Compute {
                cycles: (cycles as f64 * factor).round().max(cycles.min(1) as f64) as u64,
            },
            Op::Get { table, count } => Op::Get {
                table,
                count: objects(count),
            },
            Op::Put { count, bytes } => Op::Put {
                count: objects(count),
                bytes,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObjectSet;

    #[test]
    fn work_is_multiplied_and_never_vanishes() {
        let get = |count| Op::Get {
            table: ObjectSet::Sensors,
            count,
        };
        assert_eq!(get(10).times(1.25), get(13));
        assert_eq!([get(1).times(0.1), get(0).times(3.0)], [get(1), get(0)]);
        assert_eq!(Op::Compute { cycles: 100 }.times(1.5), Op::Compute { cycles: 150 });
    }
}
