//! Share of each core in a split cache and memory, and the resulting waits of its jobs.

use punctual_allocation::policy::equal;
use punctual_allocation::{CoreShares, Grid, Pool, Share, SplitError, WayMask};
use punctual_platform::{KnobId, KnobOffer, Plan as Knobs, Provenance, Range, Refusal, Value};
use punctual_units::{CoreId, Nanos, Time};

use super::error::Overdrawn;
use super::instant::slices;
use super::model::{Refill, Slice, SplitModel};
use super::program::RunnableProfile;
use crate::cores::Segment;
use crate::engine::Simulation;
use crate::model::Effort;

/// Slice of one core, and how much of it is cold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Holding {
    slice: Option<Slice>,
    /// Bytes of the core's ways that are not filled yet.
    cold: f64,
}

/// The split resources, and the programs that run on them.
#[derive(Clone, Debug)]
pub(crate) struct SplitResources {
    pub model: SplitModel,
    pub programs: Vec<RunnableProfile>,
    /// Whether slices were handed out before; the first ways need no filling.
    begun: bool,
}

impl SplitResources {
    pub fn new(model: SplitModel, programs: Vec<RunnableProfile>) -> SplitResources {
        SplitResources {
            model,
            programs,
            begun: false,
        }
    }

    /// Work of a phase with all ways and bandwidth, in cycles at this clock.
    pub fn effort(&self, program: usize, phase: usize, top_hz: f64) -> Effort {
        Effort::new(self.programs[program].best(phase) * top_hz, 0.0)
    }

    /// Nanoseconds that a whole phase waits with this core's share; infinite without a share.
    pub fn waits_ns(&self, program: usize, phase: usize, holding: Holding) -> f64 {
        let waits = |slice: Slice| self.programs[program].waits(phase, slice.share) * 1e9;
        holding.slice.map_or(f64::INFINITY, waits)
    }

    /// Segment in which the ways of this core are filled, if any are cold.
    pub fn fill(&self, holding: Holding) -> Option<Segment> {
        let slice = holding.slice.filter(|_| holding.cold > 0.0)?;
        let seconds = holding.cold / self.model.bandwidth(slice.share.partitions);
        // A fill that is shorter than the clock's resolution takes no time.
        let span = Nanos::from_secs_f64(seconds);
        (span > Nanos::ZERO).then(|| Segment::lasting(span))
    }
}

impl Holding {
    /// Makes the holding of `slice`, with every way filled.
    pub fn new(slice: Option<Slice>) -> Holding {
        Holding { slice, cold: 0.0 }
    }

    /// Replaces the slice and returns how many ways are new; they are cold if `charged`.
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

    /// Reduces the cold bytes to this part.
    pub fn keep_cold(&mut self, part: f64) {
        self.cold *= part;
    }
}

impl SplitModel {
    /// The even split among all cores.
    pub(crate) fn even(&self) -> Result<Vec<Option<Slice>>, SplitError> {
        let one = Share { ways: 1, partitions: 1 };
        let pool = Pool {
            grid: self.grid,
            least: one,
            idle: one,
        };
        pool.check(self.cores)?;
        Ok(slices(&CoreShares::side_by_side(equal(pool, self.cores))))
    }

    /// Offers of the ways and bandwidth knobs of each core.
    pub(crate) fn offers(&self) -> impl Iterator<Item = KnobOffer> {
        let Grid { ways, partitions } = self.grid;
        let knob = |knob, range| KnobOffer { knob, range };
        let of = move |core| {
            [
                knob(KnobId::Ways(core), Range::Ways(ways, Provenance::Simulated)),
                knob(KnobId::Bandwidth(core), Range::Parts(partitions, Provenance::Simulated)),
            ]
        };
        (0..self.cores as u32).flat_map(move |core| of(CoreId(core)))
    }
}

impl Simulation {
    /// Sets the knobs of the split that `plan` names: all together, because a way that one core gains another loses.
    pub(crate) fn turn_split(&mut self, plan: &Knobs) -> Result<(), Refusal> {
        let mut slices: Vec<Option<Slice>> = self.cores.iter().map(|core| core.holding.slice).collect();
        let mut known = true;
        for (knob, value) in plan.iter() {
            let (KnobId::Ways(core) | KnobId::Bandwidth(core)) = knob else {
                continue;
            };
            let slice = slices.get_mut(core.0 as usize).and_then(Option::as_mut);
            match (slice, value) {
                (Some(slice), Value::Parts(partitions)) => slice.share.partitions = partitions,
                (Some(slice), Value::Ways(bits)) => match WayMask::from_bits(bits) {
                    Some(ways) => *slice = Slice::of(ways, slice.share.partitions),
                    None => known = false,
                },
                _ => known = false,
            }
        }
        let refusal = |why: String| Refusal {
            what: "splitting ways and bandwidth".into(),
            why,
            remedy: "give each core ways that lie side by side, each way to one core, and no more than there is".into(),
        };
        if !known {
            return Err(refusal(format!("{plan:?} names what this machine cannot split")));
        }
        self.hand_out(&slices)
            .map(drop)
            .map_err(|error| refusal(error.to_string()))
    }

    /// Restores the even split, if the machine has a split.
    pub(crate) fn restore_split(&mut self) {
        let even = self.split.as_ref().map(|split| split.model.even());
        if let Some(Ok(even)) = even {
            // The split at the machine's start, which is always accepted.
            let _ = self.hand_out(&even);
        }
    }

    /// Work of a phase of this program with all ways and bandwidth.
    pub(crate) fn phase_effort(&self, program: Option<usize>, phase: usize) -> Effort {
        let top_hz = self.model.top().clock.0 as f64;
        let effort = program
            .zip(self.split.as_ref())
            .map(|(program, split)| split.effort(program, phase, top_hz));
        effort.unwrap_or_default()
    }

    /// Hands out ways and bandwidth, a slice for each core. Returns the number of ways that cores gained, `None` if no
    /// slice changed. The first ways handed out need no filling and do not count.
    ///
    /// # Errors
    /// [`Overdrawn`] where the slices exceed the resources, or give a way to two cores, or no split exists.
    pub fn hand_out(&mut self, slices: &[Option<Slice>]) -> Result<Option<u32>, Overdrawn> {
        let overdrawn = || Overdrawn {
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

    /// When the next event is, if no slices are handed out before.
    pub fn next_change(&mut self) -> Time {
        self.settle();
        self.next_event()
    }
}
