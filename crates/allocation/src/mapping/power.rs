//! Power of a mapping: a straight line over the frame rate, as long as no clock changes.
//!
//! A core that has `m` cycles to do for each frame at clock `f` is busy for the share `m r / f` of the time at frame
//! rate `r`, so that a domain of `n` cores, of which `k` are used, draws
//!
//! ```text
//! k rest + (n - k) low + r (sum of m) (busy - rest) / f
//! ```
//!
//! watts, where `rest` is the idle power of the step (always on) or that of the low-power state (shut down when idle).
//! The step serves rates up to `f / (largest worst case of a core)`.

use smallvec::SmallVec;

use super::model::{CORES_MAX, Configuration, Idle, Mapping, Problem};
use punctual_units::Hertz;

/// Powers that differ by a smaller share are equal.
pub(super) const TIE: f64 = 1e-9;

/// Demand of a mapping on one domain.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Demand {
    /// Cores that have a stage.
    pub used: usize,
    /// Cycles for each frame of all its cores together, on average.
    pub mean: f64,
    /// Cycles for each frame of the core that has the most, at worst.
    pub worst: f64,
}

/// The demands on all domains.
pub(super) type Demands = SmallVec<[Demand; CORES_MAX]>;

/// Watts over the frame rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LinearPower {
    pub watts: f64,
    pub joules_per_frame: f64,
}

impl LinearPower {
    pub fn at(self, fps: f64) -> f64 {
        self.watts + self.joules_per_frame * fps
    }

    pub fn plus(self, other: LinearPower) -> LinearPower {
        LinearPower {
            watts: self.watts + other.watts,
            joules_per_frame: self.joules_per_frame + other.joules_per_frame,
        }
    }
}

/// Rates that a choice must serve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rate {
    /// Exactly this frame rate.
    At(f64),
    /// All rates just above this one.
    Above(f64),
}

impl Rate {
    pub fn fps(self) -> f64 {
        match self {
            Rate::At(fps) | Rate::Above(fps) => fps,
        }
    }

    pub fn is_within(self, limit: f64) -> bool {
        match self {
            Rate::At(fps) => fps <= limit,
            Rate::Above(fps) => fps < limit,
        }
    }
}

/// Whether the first of two powers is less, by more than rounding.
pub(super) fn less(one: f64, other: f64) -> bool {
    one < other - TIE * other.abs()
}

/// Whether `one` draws less than `other`: at the rate, or of equals just above it.
pub(super) fn draws_less(one: LinearPower, other: LinearPower, rate: Rate) -> bool {
    let (here, there) = (one.at(rate.fps()), other.at(rate.fps()));
    match rate {
        Rate::At(_) => less(here, there),
        Rate::Above(_) => {
            less(here, there) || (!less(there, here) && less(one.joules_per_frame, other.joules_per_frame))
        }
    }
}

/// The steps of all domains for one mapping, and what they draw.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PricedSteps {
    pub steps: SmallVec<[u8; CORES_MAX]>,
    pub line: LinearPower,
    /// The highest frame rate that these steps serve.
    pub limit: f64,
}

impl Problem {
    /// Watts that `configuration` draws at `fps` frames per second, by average cycles; `None` where it does not serve
    /// that rate at worst.
    pub fn watts(&self, configuration: &Configuration, fps: f64) -> Option<f64> {
        let demands = self.demands(&configuration.mapping);
        let steps = configuration.steps.iter().map(|step| usize::from(*step));
        let mut watts = 0.0;
        for (domain, (demand, step)) in demands.iter().zip(steps).enumerate() {
            if fps > self.limit(domain, step, demand) {
                return None;
            }
            watts += self.line(domain, step, demand).at(fps);
        }
        Some(watts)
    }

    /// `mapping` with the clocks that draw the least at `fps` frames per second; `None` where none serve that rate.
    pub fn clocked(&self, mapping: &Mapping, fps: f64) -> Option<Configuration> {
        let priced = self.priced(&self.demands(mapping), Rate::At(fps))?;
        Some(Configuration {
            mapping: mapping.clone(),
            steps: priced.steps,
        })
    }

    /// The highest frame rate that `configuration` serves at worst.
    pub fn fps_max(&self, configuration: &Configuration) -> f64 {
        let demands = self.demands(&configuration.mapping);
        let steps = configuration.steps.iter().map(|step| usize::from(*step));
        let limits = demands.iter().zip(steps).enumerate();
        limits
            .map(|(domain, (demand, step))| self.limit(domain, step, demand))
            .fold(f64::INFINITY, f64::min)
    }

    /// Cycles for each frame on each core: on average and at worst.
    pub fn loads(&self, mapping: &Mapping) -> SmallVec<[(u64, u64); CORES_MAX]> {
        let mut loads: SmallVec<[(u64, u64); CORES_MAX]> = SmallVec::from_elem((0, 0), self.cores().count());
        for (stage, core) in self.stages().iter().zip(mapping.cores()) {
            loads[core].0 += stage.cycles_mean;
            loads[core].1 += stage.cycles_worst;
        }
        loads
    }

    /// Clock that a core needs for `cycles` per frame at `fps` frames per second.
    pub fn needs(cycles: u64, fps: f64) -> Hertz {
        Hertz((cycles as f64 * fps).ceil() as u64)
    }

    pub(super) fn demands(&self, mapping: &Mapping) -> Demands {
        let loads = self.loads(mapping);
        let mut next = loads.iter();
        let of = |cores: usize| {
            next.by_ref().take(cores).fold(Demand::default(), |sum, load| Demand {
                used: sum.used + usize::from(load.1 > 0),
                mean: sum.mean + load.0 as f64,
                worst: sum.worst.max(load.1 as f64),
            })
        };
        self.cores().domains.iter().map(|domain| domain.cores).map(of).collect()
    }

    /// The highest frame rate that a step serves.
    pub(super) fn limit(&self, domain: usize, step: usize, demand: &Demand) -> f64 {
        if demand.used == 0 {
            return f64::INFINITY;
        }
        self.cores().domains[domain].steps[step].clock.0 as f64 / demand.worst
    }

    pub(super) fn line(&self, domain: usize, step: usize, demand: &Demand) -> LinearPower {
        let low = self.cores().low_power_watts;
        let domain = &self.cores().domains[domain];
        let step = &domain.steps[step];
        let rest = self.rest_watts(step.idle_watts);
        LinearPower {
            watts: demand.used as f64 * rest + (domain.cores - demand.used) as f64 * low,
            joules_per_frame: demand.mean * (step.busy_watts - rest) / step.clock.0 as f64,
        }
    }

    /// Power of a used core while it does nothing, in watts, at a step with this idle power.
    pub(super) fn rest_watts(&self, idle_watts: f64) -> f64 {
        match self.idle() {
            Idle::AlwaysOn => idle_watts,
            Idle::ShutdownWhenIdle => self.cores().low_power_watts,
        }
    }

    /// The best steps for these demands; `None` where no steps serve the rate.
    pub(super) fn priced(&self, demands: &[Demand], rate: Rate) -> Option<PricedSteps> {
        let mut priced = PricedSteps {
            steps: SmallVec::new(),
            line: LinearPower::default(),
            limit: f64::INFINITY,
        };
        for (domain, demand) in demands.iter().enumerate() {
            let (step, line) = self.best_step(domain, demand, rate)?;
            priced.steps.push(step as u8);
            priced.line = priced.line.plus(line);
            priced.limit = priced.limit.min(self.limit(domain, step, demand));
        }
        Some(priced)
    }

    /// Power line of the best steps, without naming them.
    pub(super) fn cheapest(&self, demands: &[Demand], rate: Rate) -> Option<LinearPower> {
        let lines = demands.iter().enumerate();
        lines
            .map(|(domain, demand)| self.best_step(domain, demand, rate))
            .try_fold(LinearPower::default(), |sum, best| Some(sum.plus(best?.1)))
    }

    /// Step that draws the least, and its line; of equal steps the lowest. `None` where no step serves the rate.
    fn best_step(&self, domain: usize, demand: &Demand, rate: Rate) -> Option<(usize, LinearPower)> {
        let mut best: Option<(usize, LinearPower)> = None;
        let count = if demand.used == 0 {
            1
        } else {
            self.cores().domains[domain].steps.len()
        };
        for step in 0..count {
            if !rate.is_within(self.limit(domain, step, demand)) {
                continue;
            }
            let line = self.line(domain, step, demand);
            if best.is_none_or(|(_, best)| draws_less(line, best, rate)) {
                best = Some((step, line));
            }
        }
        best
    }
}
