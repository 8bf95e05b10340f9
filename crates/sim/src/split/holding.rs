//! What each core holds of a split cache and memory, and how long its job waits for that.

use punctual_units::{Nanos, Time};

use super::error::SplitError;
use super::model::{Refill, Slice, SplitModel};
use super::program::Program;
use crate::cores::{Core, Segment};
use crate::engine::Simulation;
use crate::model::Effort;

/// The part of one core.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Holding {
    slice: Option<Slice>,
    /// Bytes of its ways that are not filled yet.
    cold: f64,
}

/// What is split, and the programs that run under it.
#[derive(Clone, Debug)]
pub(crate) struct Split {
    pub model: SplitModel,
    pub programs: Vec<Program>,
    /// Whether anything was handed out: the first ways are not filled.
    begun: bool,
}

impl Split {
    pub fn new(model: SplitModel, programs: Vec<Program>) -> Split {
        Split {
            model,
            programs,
            begun: false,
        }
    }

    /// What a phase is in cycles at this clock, with everything there is.
    pub fn effort(&self, program: usize, phase: usize, top_hz: f64) -> Effort {
        Effort::new(self.programs[program].best(phase) * top_hz, 0.0)
    }

    /// Nanoseconds that a whole phase waits with what this core holds; for ever with nothing.
    pub fn waits_ns(&self, program: usize, phase: usize, holding: Holding) -> f64 {
        let waits = |slice: Slice| self.programs[program].waits(phase, slice.share) * 1e9;
        holding.slice.map_or(f64::INFINITY, waits)
    }

    /// The time that the ways of this core take to fill, if any must be.
    pub fn fill(&self, holding: Holding) -> Option<Segment> {
        let slice = holding.slice.filter(|_| holding.cold > 0.0)?;
        let seconds = holding.cold / self.model.bandwidth(slice.share.partitions);
        // A fill that is shorter than the clock's resolution takes no time.
        let span = Nanos::from_secs_f64(seconds);
        (span > Nanos::ZERO).then(|| Segment::lasting(span))
    }
}

impl Holding {
    /// Takes `slice`; how many of its ways are new. They are cold if they are charged for.
    fn take(&mut self, slice: Option<Slice>, charged: bool, way_bytes: f64) -> u32 {
        let [old, new] = [self.slice, slice].map(|slice| slice.map_or(0, Slice::mask));
        let gained = (new & !old).count_ones();
        if charged {
            self.cold += f64::from(gained) * way_bytes;
        }
        self.cold = self.cold.min(f64::from(new.count_ones()) * way_bytes);
        self.slice = slice;
        gained
    }

    /// This part of what was cold still is.
    pub fn keep_cold(&mut self, part: f64) {
        self.cold *= part;
    }
}

impl Simulation<'_> {
    /// What a phase of this program is with everything there is.
    pub(crate) fn phase_effort(&self, program: Option<usize>, phase: usize) -> Effort {
        let top_hz = self.model.top().clock.0 as f64;
        let effort = program
            .zip(self.split.as_ref())
            .map(|(program, split)| split.effort(program, phase, top_hz));
        effort.unwrap_or_default()
    }

    /// Hands out ways and bandwidth, a slice for each core; how many ways cores gained, and none where nothing is other
    /// than before. The first ways that are handed out need no filling, and count as none.
    ///
    /// # Errors
    /// [`SplitError::Overdrawn`] where more is handed out than there is, or a way twice, or nothing can be split here.
    pub fn hand_out(&mut self, slices: &[Option<Slice>]) -> Result<Option<u32>, SplitError> {
        let overdrawn = || SplitError::Overdrawn {
            now: self.now,
            slices: format!("{slices:?}"),
        };
        let split = self.split.as_mut().ok_or_else(overdrawn)?;
        if !split.model.holds(slices) {
            return Err(overdrawn());
        }
        if self
            .cores
            .iter()
            .map(|core| core.holding.slice)
            .eq(slices.iter().copied())
        {
            return Ok(None);
        }
        let first = !std::mem::replace(&mut split.begun, true);
        let SplitModel { way_bytes, refill, .. } = split.model;
        let mut gained = 0;
        for (core, slice) in slices.iter().enumerate() {
            self.put_off(core);
            gained += self.cores[core]
                .holding
                .take(*slice, !first && refill == Refill::Charged, way_bytes);
        }
        self.stale = true;
        Ok(Some(if first { 0 } else { gained }))
    }

    /// For how long cores stood still in all until their ways were filled, and for how long they were busy.
    pub(super) fn filling_and_busy(&self) -> (Nanos, Nanos) {
        let times = || self.cores.iter().map(|core: &Core| core.times(self.now));
        (
            times().map(|times| times.filling).sum(),
            times().map(|times| times.busy()).sum(),
        )
    }

    /// When the next event is, if nothing is handed out before.
    pub(super) fn next_change(&mut self) -> Time {
        self.settle();
        self.next_event()
    }
}
