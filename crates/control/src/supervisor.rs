//! Detects signs in a loop that its model is wrong.
//!
//! **Problem.** A law is as good as its model. On a machine that answers otherwise than the model predicts (another
//! workload, a file from elsewhere, a sign reversed by a noisy record) the loop may push the wrong way or swing from
//! limit to limit. The limits bound the damage; the supervisor detects it.
//!
//! **What must not raise an alarm.** A disturbance, however large: it also misses every prediction once. More noise
//! than in the record. Gains that are off by a factor with which the loop still settles. So none of the tests asks
//! whether the model is *exact*; each asks for a pattern that a settling loop does not show for long.
//!
//! **Tests.** After each sample, with D for the difference from the sample before:
//! - *Misprediction.* The innovation of the differenced model, in which constant disturbances, drift and operating
//!   point cancel, against that of assuming that the knobs do nothing:
//!
//!   ```text
//!   model    Dy(k) - A Dy(k-1) - B Du(k-1)           naive    Dy(k)
//!   ```
//!
//!   A prediction of the first output is *bad* while that output is off its goal by more than a margin and the model
//!   - misses by [`BAD_BY`] residuals of its record more than the naive one: it said that the output would move, and
//!     that was worse than to say nothing, or
//!   - said that it would move, by as many residuals, and misses by more than twice of that: the machine does three
//!     times what the model says, or goes the other way.
//!
//!   Alarm if over a memory of [`MEMORY`] samples (exponential weights) more than [`BAD_MAX`] predictions are bad.
//!   Noise enters both innovations alike. A step of the disturbance makes one prediction bad, at most two, whatever its
//!   size. And a law that holds its goal with a wrong model is left in peace.
//! - *Swinging.* A knob turns back [`SWINGS_MAX`] times within [`SWING_SAMPLES`] samples, each time by more than
//!   [`SWING_PART`] of its range, and finds the output off its goal, now above it and now below. The gains are so large
//!   that the loop overshoots ever more, up to the limits.
//! - *Backwards.* The first output stays off its goal, on one side and by more than a margin, while knobs are asked to
//!   be where their nature puts it furthest off, at the limit, and the others have nothing left to give. A settling law
//!   with an integrator cannot do that for long; one with the wrong sign ends there. How far it is off is summed up
//!   over successive samples, in margins and at most [`OFF_SAMPLE_MAX`] for one; alarm from [`OFF_MAX`] on. So a little
//!   too late is noticed after eight samples, and much too late after two: then jobs outlive their periods, and samples
//!   are rare. The nature of a knob is what its effect must be whatever a record says (a faster clock makes no job
//!   later).
//!
//! A step takes a few multiplications and allocates nothing.

use nalgebra::DMatrix;

use crate::arx::ArxModel;
use crate::knob::Knob;

/// Memory of the misprediction test, in samples: the sum of its exponential weights.
pub const MEMORY: f64 = 20.0;
/// Least excess of a bad prediction's error over that of predicting no change, in residuals of the record.
pub const BAD_BY: f64 = 4.0;
/// Bad predictions within the memory that a disturbance does not explain: it would have to come or go every third
/// sample.
pub const BAD_MAX: f64 = 6.0;
/// Samples over which swings are counted.
pub const SWING_SAMPLES: u32 = 30;
/// Number of swings within [`SWING_SAMPLES`] that no settling loop makes.
pub const SWINGS_MAX: u32 = 8;
/// Least width of a swing, as part of the knob's range.
pub const SWING_PART: f64 = 0.5;
/// Sum of margins, over successive samples, by which the first output may be off its goal while no knob works against
/// that.
pub const OFF_MAX: f64 = 8.0;
/// Most that one of these samples adds above the goal, where haste is needed; 1 below the goal. Bounded because a
/// single disturbance can be of any size.
pub const OFF_SAMPLE_MAX: f64 = 4.0;
/// Distance from a limit, as part of the range, up to which a knob counts as at the limit.
const AT_LIMIT: f64 = 0.01;

/// Direction in which a knob moves the first output by its nature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// More of the knob makes the output smaller: the clock, to tardiness.
    Lowers,
    /// More of the knob makes the output larger: admitted updates, to tardiness.
    Raises,
}

/// A pattern that shows that the model is wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Doubt {
    /// The model predicts worse than no model.
    Mispredicts {
        /// Error of the last bad prediction of the first output's change, in the output's unit.
        missed: f64,
        /// Residual of the record that the model comes from, in the output's unit.
        residual: f64,
    },
    /// A knob swings to and fro.
    Swings {
        /// Index of the knob, from 0.
        knob: usize,
        /// Number of swings within [`SWING_SAMPLES`].
        times: u32,
    },
    /// The first output stays off its goal, and the knobs are at the limits that drive it off.
    Backwards {
        /// Whether the output is above its goal.
        late: bool,
        /// Number of successive samples off the goal.
        samples: u32,
    },
}

/// Model, knobs and counts of a supervised loop.
#[derive(Clone, Debug, PartialEq)]
pub struct Supervisor {
    a: DMatrix<f64>,
    b: DMatrix<f64>,
    /// Residual of the first output in the record; `None` for a model that was written down.
    residual: Option<f64>,
    nature: Vec<Effect>,
    /// Least distance of the first output from its goal, relative to it, that counts as off.
    margin: f64,
    knobs: Vec<Knob>,
    past: Past,
    /// Weighted number of bad predictions, and the error of the last one.
    bad: f64,
    missed: f64,
    swings: Vec<Swings>,
    off: Off,
}

/// The last sample, and the settings under which it was measured.
#[derive(Clone, Debug, PartialEq)]
struct Past {
    samples: u32,
    y: Vec<f64>,
    dy: Vec<f64>,
    u: Vec<f64>,
}

/// Successive samples off the goal that no knob worked against.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Off {
    /// Whether the output is above the goal.
    late: bool,
    samples: u32,
    /// Sum of the distances from the goal, in margins.
    margins: f64,
}

/// Swings of one knob so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Swings {
    /// The lowest and highest settings since the last swing.
    extremes: Option<(f64, f64)>,
    /// Whether the last swing was upwards.
    up: Option<bool>,
    /// Whether the output was above its goal after the last swing that counts.
    above: Option<bool>,
    times: u32,
    /// Samples since counting began.
    since: u32,
}

impl Swings {
    /// Takes a setting, and the side of its goal on which the output is, if off (`true`: above). A swing is complete
    /// when the knob has returned by `width` from its extreme; it counts if the output is off on the other side than
    /// after the last.
    fn go(&mut self, u: f64, width: f64, off: Option<bool>) {
        self.since += 1;
        if self.since > SWING_SAMPLES {
            (self.since, self.times) = (1, 0);
        }
        let (low, high) = self.extremes.unwrap_or((u, u));
        let (low, high) = (low.min(u), high.max(u));
        self.extremes = Some((low, high));
        let up = if self.up != Some(true) && u - low > width {
            true
        } else if self.up != Some(false) && high - u > width {
            false
        } else {
            return;
        };
        if off.is_some() && off != self.above {
            (self.times, self.above) = (self.times + 1, off);
        }
        (self.up, self.extremes) = (Some(up), Some((u, u)));
    }
}

impl Supervisor {
    /// Makes a supervisor of the loop around `model`'s first inputs, one per knob; of the model, only the first-order
    /// part counts. `nature` is each knob's effect on the first output, `margin` how far that output may be from its
    /// goal, relative to it (0.1: a tenth).
    ///
    /// `None` if there are not as many natures as knobs, or more knobs than inputs.
    pub fn new(model: &ArxModel, knobs: Vec<Knob>, nature: Vec<Effect>, margin: f64) -> Option<Supervisor> {
        let (ny, nu) = (model.outputs().len(), knobs.len());
        if nature.len() != nu || nu > model.inputs().len() {
            return None;
        }
        Some(Supervisor {
            a: model.a()[0].clone(),
            b: model.b()[0].columns(0, nu).into_owned(),
            residual: model.fit().and_then(|fit| fit.residual_std.first().copied()),
            nature,
            margin,
            past: Past {
                samples: 0,
                y: vec![0.0; ny],
                dy: vec![0.0; ny],
                u: vec![0.0; nu],
            },
            bad: 0.0,
            missed: 0.0,
            swings: vec![Swings::default(); nu],
            knobs,
            off: Off::default(),
        })
    }

    /// Forgets all samples: the loop begins anew.
    pub fn reset(&mut self) {
        self.past.samples = 0;
        self.bad = 0.0;
        self.off = Off::default();
        self.swings.fill(Swings::default());
    }

    /// Takes a sample: the outputs `y`, the first one's goal, the settings `asked` for, and the settings `u` in force
    /// during the sample. A sample with a value that is not finite, or of another size, is ignored.
    pub fn observe(&mut self, y: &[f64], goal: f64, asked: &[f64], u: &[f64]) -> Option<Doubt> {
        let fits = y.len() == self.past.y.len() && u.len() == self.knobs.len() && asked.len() == u.len();
        if !fits || !y.iter().chain(u).chain(asked).chain([&goal]).all(|v| v.is_finite()) {
            return None;
        }
        let backwards = self.is_backwards(y[0], goal, asked);
        self.compare(y, goal, u);
        self.count_swings(self.is_off(y[0], goal).then_some(y[0] > goal), u);
        self.remember(y, u);
        let mispredicts = self.mispredicts();
        let swings = self.swings.iter().position(|knob| knob.times >= SWINGS_MAX);
        let swings = swings.map(|knob| Doubt::Swings {
            knob,
            times: self.swings[knob].times,
        });
        backwards.or(swings).or(mispredicts)
    }

    /// Judges this sample's prediction of the first output.
    fn compare(&mut self, y: &[f64], goal: f64, u: &[f64]) {
        let Some(residual) = self.residual.filter(|_| self.past.samples >= 2) else {
            return;
        };
        let naive = y[0] - self.past.y[0];
        let passed: f64 = self.past.dy.iter().enumerate().map(|(j, dy)| self.a[(0, j)] * dy).sum();
        let moved: f64 = (0..u.len()).map(|i| self.b[(0, i)] * (u[i] - self.past.u[i])).sum();
        let model = naive - passed - moved;
        let worse_than_none = model.abs() - naive.abs() > BAD_BY * residual;
        let too_much = moved.abs() > BAD_BY * residual && model.abs() > 2.0 * moved.abs();
        let off = self.is_off(y[0], goal);
        self.bad *= 1.0 - 1.0 / MEMORY;
        if off && (worse_than_none || too_much) {
            self.bad += 1.0;
            self.missed = model.abs();
        }
    }

    fn mispredicts(&self) -> Option<Doubt> {
        let residual = self.residual.filter(|_| self.bad > BAD_MAX)?;
        Some(Doubt::Mispredicts {
            missed: self.missed,
            residual,
        })
    }

    fn count_swings(&mut self, off: Option<bool>, u: &[f64]) {
        for ((swings, knob), u) in self.swings.iter_mut().zip(&self.knobs).zip(u) {
            swings.go(*u, SWING_PART * (knob.max() - knob.min()), off);
        }
    }

    fn is_off(&self, y: f64, goal: f64) -> bool {
        (y - goal).abs() > self.margin * goal.abs()
    }

    /// Counts samples off the goal in which no knob works against that: some knobs are asked to the limit where the
    /// output is furthest off, and all others have reached the opposite limit.
    fn is_backwards(&mut self, y: f64, goal: f64, u: &[f64]) -> Option<Doubt> {
        let off = (y - goal) / (self.margin * goal.abs());
        let late = off > 1.0;
        // Whether raising the knob drives the output further off.
        let raises = |i: usize| (self.nature[i] == Effect::Raises) == late;
        let limits = |i: usize| (self.knobs[i].min(), self.knobs[i].max());
        let worse = |i: usize| is_at(self.knobs[i], u[i], if raises(i) { limits(i).1 } else { limits(i).0 });
        let spent = |i: usize| is_at(self.knobs[i], u[i], if raises(i) { limits(i).0 } else { limits(i).1 });
        let knobs = 0..u.len();
        let given_up = knobs.clone().any(worse) && knobs.clone().all(|i| worse(i) || spent(i));
        let before = if self.off.late == late {
            self.off
        } else {
            Off::default()
        };
        let counts = off.abs() > 1.0 && given_up && self.past.samples > 0;
        self.off = match counts {
            true => Off {
                late,
                samples: before.samples + 1,
                margins: before.margins + off.abs().min(if late { OFF_SAMPLE_MAX } else { 1.0 }),
            },
            false => Off::default(),
        };
        (self.off.margins >= OFF_MAX).then_some(Doubt::Backwards {
            late,
            samples: self.off.samples,
        })
    }

    fn remember(&mut self, y: &[f64], u: &[f64]) {
        for (o, y) in y.iter().enumerate() {
            self.past.dy[o] = y - self.past.y[o];
            self.past.y[o] = *y;
        }
        self.past.u.copy_from_slice(u);
        self.past.samples = self.past.samples.saturating_add(1);
    }
}

fn is_at(knob: Knob, u: f64, limit: f64) -> bool {
    (u - limit).abs() <= AT_LIMIT * (knob.max() - knob.min())
}
