//! Moves the knobs of a running system so that a model can be learnt from it.

use punctual_control::Excitation;
use punctual_platform::KnobId;
use punctual_workload::{self as workload, ControllerKind};

use crate::controller::{Knobs, knobs_of};
use crate::document::Mismatch;

/// The knobs that are moved, in the order of their levels.
const EXCITED: &[KnobId] = knobs_of(ControllerKind::Mimo);

/// Runs the knobs through relatively prime cycles of levels, one sample at a time.
#[derive(Clone, Debug)]
pub struct Exciter {
    excitation: Excitation,
    k: u64,
}

impl Exciter {
    /// An exciter at its first sample.
    ///
    /// # Errors
    /// [`Mismatch`] for levels that teach nothing.
    pub fn new(levels: &workload::Excitation) -> Result<Exciter, Mismatch> {
        let excitation = Excitation::covering(vec![levels.clock.clone(), levels.admitted.clone()], levels.hold)?;
        Ok(Exciter { excitation, k: 0 })
    }

    /// The knobs of the first sample.
    pub fn operating_point(&self) -> Knobs {
        self.level(0)
    }

    /// The knobs of the next sample.
    pub fn step(&mut self) -> Knobs {
        let knobs = self.level(self.k);
        self.k += 1;
        knobs
    }

    /// Samples that cover every combination of levels once.
    pub fn period(&self) -> u64 {
        self.excitation.period()
    }

    fn level(&self, k: u64) -> Knobs {
        let levels = self.excitation.at(k);
        Knobs::each(|knob| {
            let place = EXCITED.iter().position(|excited| *excited == knob)?;
            levels.get(place).copied()
        })
    }
}
