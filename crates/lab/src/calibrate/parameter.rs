//! What the figures leave open about the machine: names, bounds, and what they change.
//!
//! Costs are given as the time that something takes alone at the highest clock and how that time divides, and turned into
//! cycles and accesses. So each parameter moves one thing that the figures show and leaves the others where they are, which
//! is what a search along axes needs; and what the job takes alone is set by [`Work`] whatever the rest.

use punctual_sim::{Effort, MachineModel};
use serde::Serialize;

use super::microbenchmark::Work;

/// One thing that is left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Parameter {
    /// The job's computation.
    Compute,
    /// The job's data accesses, without updates.
    Data,
    /// How much of the time of a get, all hits, is spent reading the shared cache.
    CachedShare,
    /// What the job's store accesses range over.
    WorkingSet,
    /// What those of each interfering core range over.
    Neighbours,
    /// How hits follow from what is held.
    Locality,
    /// How many lines a miss brings, and pushes out.
    LinesPerMiss,
    /// How much of a miss other cores have to wait for.
    SharedService,
    /// How much of that follows the clock.
    ClockedService,
    /// What an update transaction takes.
    Update,
    /// How much of the time of an update transaction goes to lines that are used once, and so to the memory.
    UncachedShare,
}

/// How a parameter's range is walked.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    /// Equal steps.
    Linear,
    /// Equal factors.
    Logarithmic,
}

/// A parameter's name, range and meaning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Description {
    /// The name in tables and files.
    pub name: &'static str,
    /// The unit, or what it is a share of.
    pub unit: &'static str,
    /// The least value.
    pub low: f64,
    /// The greatest value.
    pub high: f64,
    scale: Scale,
}

/// A value for every parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Point([f64; Parameter::ALL.len()]);

/// A machine, and the job that the microbenchmark runs on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The machine.
    pub machine: MachineModel,
    /// The job.
    pub job: Work,
}

impl Parameter {
    /// All of them.
    pub const ALL: [Parameter; 11] = [
        Parameter::Compute,
        Parameter::Data,
        Parameter::CachedShare,
        Parameter::WorkingSet,
        Parameter::Neighbours,
        Parameter::Locality,
        Parameter::LinesPerMiss,
        Parameter::SharedService,
        Parameter::ClockedService,
        Parameter::Update,
        Parameter::UncachedShare,
    ];

    /// Name, unit and range.
    pub const fn description(self) -> Description {
        use Scale::{Linear, Logarithmic};
        let (name, unit, low, high, scale) = match self {
            Parameter::Compute => ("compute", "ms alone at the top clock", 6.0, 11.0, Linear),
            Parameter::Data => ("data", "ms alone at the top clock", 0.25, 4.0, Logarithmic),
            Parameter::CachedShare => ("cached-share", "of a get that hits", 0.02, 0.9, Logarithmic),
            Parameter::WorkingSet => ("working-set", "KiB", 64.0, 4096.0, Logarithmic),
            Parameter::Neighbours => ("neighbours", "of the working set, each", 0.1, 2.0, Logarithmic),
            Parameter::Locality => ("locality", "exponent", 0.25, 4.0, Logarithmic),
            Parameter::LinesPerMiss => ("lines-per-miss", "lines", 0.05, 10.0, Logarithmic),
            Parameter::SharedService => ("shared-service", "of a miss at the top clock", 0.05, 0.95, Linear),
            Parameter::ClockedService => (
                "clocked-service",
                "of the shared part at the top clock",
                0.0,
                1.0,
                Linear,
            ),
            Parameter::Update => ("update", "us alone at the top clock", 10.0, 2000.0, Logarithmic),
            Parameter::UncachedShare => ("uncached-share", "of an update", 0.01, 0.9, Logarithmic),
        };
        Description {
            name,
            unit,
            low,
            high,
            scale,
        }
    }
}

impl Description {
    /// The value at `x` of the way through the range, 0 to 1.
    pub fn value_at(&self, x: f64) -> f64 {
        let value = match self.scale {
            Scale::Linear => self.low + x * (self.high - self.low),
            Scale::Logarithmic => self.low * (self.high / self.low).powf(x),
        };
        value.clamp(self.low, self.high)
    }

    /// Where in the range `value` lies, 0 to 1: the inverse of [`Description::value_at`].
    pub fn place_of(&self, value: f64) -> f64 {
        let x = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Logarithmic => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        x.clamp(0.0, 1.0)
    }

    /// Whether the value lies at an end of the range: then the range, not the figures, has decided.
    pub fn is_at_bound(&self, value: f64) -> bool {
        !(1e-3..=1.0 - 1e-3).contains(&self.place_of(value))
    }
}

impl Point {
    /// The middle of every range.
    pub fn middle() -> Point {
        Point(Parameter::ALL.map(|parameter| parameter.description().value_at(0.5)))
    }

    /// This point with another value for one parameter, moved into its range.
    pub fn with(mut self, parameter: Parameter, value: f64) -> Point {
        let Description { low, high, .. } = parameter.description();
        self.0[parameter as usize] = value.clamp(low, high);
        self
    }

    /// One parameter's value.
    pub fn get(&self, parameter: Parameter) -> f64 {
        self.0[parameter as usize]
    }
}

/// What a get takes at the highest clock when it hits, in nanoseconds, by hand: a search through a B+tree of some thousand
/// objects. The figures do not show it, only how many gets make up a given time.
const GET_NS: f64 = 1500.0;
/// What part of an update transaction goes into its beginning and into its commit, by hand; the rest is the put. The
/// figures show the sum only.
const UPDATE_PARTS: [f64; 2] = [0.3, 0.5];

impl Point {
    /// The machine that these values make of `base`, and the job. What a miss takes in all at the highest clock remains
    /// the base machine's; a new update is a get's work and so many lines that are used once.
    pub fn candidate(&self, base: &MachineModel) -> Candidate {
        let value = |parameter| self.get(parameter);
        let mut machine = base.clone();
        let cycle_ns = 1e9 / machine.steps.last().map_or(1e9, |step| step.clock.0 as f64);

        let miss_ns = base.memory.latency_ns + base.memory.service_ns + base.memory.service_cycles * cycle_ns;
        let shared_ns = miss_ns * value(Parameter::SharedService);
        let clocked = value(Parameter::ClockedService);
        machine.memory.latency_ns = tidy(miss_ns - shared_ns);
        machine.memory.service_ns = tidy(shared_ns * (1.0 - clocked));
        machine.memory.service_cycles = tidy(shared_ns * clocked / cycle_ns);

        machine.cache.locality = tidy(value(Parameter::Locality));
        machine.cache.lines_per_miss = tidy(value(Parameter::LinesPerMiss));
        machine.store.working_set_kib = tidy(value(Parameter::WorkingSet));
        machine.store.others_working_set_kib = tidy(value(Parameter::WorkingSet) * value(Parameter::Neighbours));

        let hit_ns = machine.cache.hit_cycles * cycle_ns;
        let effort = |ns: f64, uncached: f64| {
            let (cached_share, tree_ns) = (value(Parameter::CachedShare), ns * (1.0 - uncached));
            Effort {
                cycles: tidy(tree_ns * (1.0 - cached_share) / cycle_ns),
                accesses: tidy(tree_ns * cached_share / hit_ns),
                uncached: tidy(ns * uncached / (hit_ns + miss_ns)),
            }
        };
        machine.store.get = effort(GET_NS, 0.0);
        let update_ns = value(Parameter::Update) * 1e3;
        let part = |part: f64| effort(update_ns * part, value(Parameter::UncachedShare));
        let [begin, commit] = UPDATE_PARTS;
        machine.store.write_begin = part(begin);
        machine.store.commit = part(commit);
        machine.store.put = part(1.0 - begin - commit);

        let job = Work {
            compute_ms: value(Parameter::Compute),
            data_ms: value(Parameter::Data),
        };
        Candidate { machine, job }
    }
}

/// Four significant digits: what is written into a machine file is what was measured.
fn tidy(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    let scale = 10f64.powi(digits.abs());
    if digits >= 0 {
        (value * scale).round() / scale
    } else {
        (value / scale).round() * scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parameters_are_numbered_as_they_are_listed() {
        for (i, parameter) in Parameter::ALL.into_iter().enumerate() {
            assert_eq!(parameter as usize, i);
            let Description { low, high, .. } = parameter.description();
            assert!(low < high, "{parameter:?}");
        }
    }

    #[test]
    fn four_digits_are_kept() {
        let cases = [
            (123_456.0, 123_500.0),
            (1.23456, 1.235),
            (0.000_123_456, 0.000_123_5),
            (0.0, 0.0),
            (-9.99996, -10.0),
        ];
        for (value, expected) in cases {
            assert_eq!(tidy(value), expected);
        }
    }

    proptest! {
        #[test]
        fn places_and_values_are_inverse(index in 0..Parameter::ALL.len(), x in 0.0f64..=1.0) {
            let description = Parameter::ALL[index].description();
            let value = description.value_at(x);
            prop_assert!((description.low..=description.high).contains(&value));
            prop_assert!((description.place_of(value) - x).abs() < 1e-9);
        }

        #[test]
        fn every_point_of_the_box_is_a_sound_machine(x in prop::collection::vec(0.0f64..=1.0, Parameter::ALL.len())) {
            let point = Parameter::ALL.iter().zip(&x).fold(Point::middle(), |point, (p, x)| {
                point.with(*p, p.description().value_at(*x))
            });
            let candidate = point.candidate(&MachineModel::exynos5422_a15());
            prop_assert_eq!(candidate.machine.check(), Ok(()));
        }
    }
}
