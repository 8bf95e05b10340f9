//! Computes the gains of the published control law from an identified model.
//!
//! **Problem.** The paper says that K_P and K_I were "tuned to support the stability of the closed loop", and states
//! neither. Its plant is
//!
//! ```text
//! s(k) = a1 s(k-1) + a2 s(k-2) + b1 d(k-1) + b2 d(k-2),     P(z) = (b1 z + b2) / (z^2 - a1 z - a2)
//! ```
//!
//! and its law from e to d, with p = K_P (K_I + 1) and q = K_P,
//!
//! ```text
//! C(z) = (p z - q) / (z (z - 1))          one integrator
//! C(z) = (p z - q) / (z - 1)^2            two
//! ```
//!
//! **Method.** The closed loop has four poles and two gains, so the poles cannot be placed one by one. We take the p
//! and q that make the largest pole smallest: the loop then settles as fast as it can. The characteristic polynomial is
//! linear in p and q. The Schur-Cohn recursion (E. I. Jury, "Theory and Application of the z-Transform Method", 1964,
//! chapter 3) decides whether all its roots lie within a circle, so that no root has to be computed. The search is a
//! grid that closes in on its best point, with a fixed number of rounds.

use serde::{Deserialize, Serialize};

use crate::error::{ControlError, refused};

/// The two readings of the paper's law.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Integration {
    /// One integrator: d accumulates the error, a PI law.
    Once,
    /// Two integrators: d accumulates a sum of errors, as equations 5 and d(k+1) = d(k) + delta(k) are printed.
    Twice,
}

/// An identified model of order 2, around its operating point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plant {
    /// a1, a2: effect of the delay one and two periods ago, without unit.
    pub a: [f64; 2],
    /// b1, b2: seconds of delay per item of bound, one and two periods ago.
    pub b: [f64; 2],
}

/// Gains of the law, and how fast the loop settles under them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gains {
    /// K_P, in items of bound per second of delay.
    pub proportional: f64,
    /// K_I, a number without unit.
    pub integral: f64,
    /// The reading of the law that the gains are for.
    pub integration: Integration,
    /// Modulus of the largest pole of the closed loop, below 1.
    pub radius: f64,
}

/// Grid points on each side of the middle.
const HALF: i32 = 20;
/// Rounds of the search: each makes the grid three times finer.
const ROUNDS: u32 = 12;
/// Reach of the first grid, in gains that would by themselves undo an error in one period.
const REACH: f64 = 3.0;
/// The least proportional gain, as a part of the gain that would undo an error in one period: without a proportional
/// part the law would not be PI.
const PROPORTIONAL_MIN: f64 = 0.05;
/// Bisections of the radius: accurate to 2^-24 of the interval.
const BISECTIONS: u32 = 24;

impl Plant {
    /// Change of the delay per item of bound in the long run, in seconds.
    pub fn steady(&self) -> f64 {
        (self.b[0] + self.b[1]) / (1.0 - self.a[0] - self.a[1])
    }

    /// Computes the gains with which the closed loop settles fastest.
    ///
    /// # Errors
    /// [`ControlError`] where the loop settles under none.
    pub fn gains(&self, integration: Integration) -> Result<Gains, ControlError> {
        let steady = self.steady();
        let unit = 1.0 / steady;
        let none = || {
            refused(format!(
                "no gains hold this plant (steady gain {steady}): its bound has no effect on its delay, or its numbers \
                 are not finite; identify it again with the bound moved over a wider range"
            ))
        };
        if !unit.is_finite() || unit == 0.0 {
            return none();
        }
        let (mut best, mut middle, mut reach) = (f64::INFINITY, [0.0; 2], REACH);
        for _ in 0..ROUNDS {
            let from = middle;
            for i in -HALF..=HALF {
                for j in -HALF..=HALF {
                    let at = [
                        from[0] + step(i, reach),
                        (from[1] + step(j, reach)).max(PROPORTIONAL_MIN),
                    ];
                    // Most points are worse than the best so far, which one recursion shows.
                    let closed = self.closed(integration, at[0] * unit, at[1] * unit);
                    if !best.is_finite() || within(&closed, best) {
                        let radius = radius(&closed);
                        if radius < best {
                            (best, middle) = (radius, at);
                        }
                    }
                }
            }
            reach /= 3.0;
        }
        let [p, q] = middle.map(|gain| gain * unit);
        if best >= 1.0 || q == 0.0 {
            return none();
        }
        Ok(Gains {
            proportional: q,
            integral: p / q - 1.0,
            integration,
            radius: best,
        })
    }

    /// The characteristic polynomial of the closed loop, highest power first.
    fn closed(&self, integration: Integration, p: f64, q: f64) -> [f64; 5] {
        let [a1, a2] = self.a;
        let [b1, b2] = self.b;
        // The law's denominator is z^2 - z or z^2 - 2 z + 1; times the plant's z^2 - a1 z - a2.
        let (c1, c0) = match integration {
            Integration::Once => (-1.0, 0.0),
            Integration::Twice => (-2.0, 1.0),
        };
        [
            1.0,
            c1 - a1,
            c0 - c1 * a1 - a2 + p * b1,
            -c0 * a1 - c1 * a2 + p * b2 - q * b1,
            -c0 * a2 - q * b2,
        ]
    }
}

fn step(number: i32, reach: f64) -> f64 {
    reach * f64::from(number) / f64::from(HALF)
}

/// Radius of the least circle around 0 that holds all roots, up to 2; infinite beyond, where differences do not matter.
fn radius(polynomial: &[f64; 5]) -> f64 {
    let (mut inside, mut outside) = (0.0, 2.0);
    if !within(polynomial, outside) {
        return f64::INFINITY;
    }
    for _ in 0..BISECTIONS {
        let middle = 0.5 * (inside + outside);
        if within(polynomial, middle) {
            outside = middle;
        } else {
            inside = middle;
        }
    }
    outside
}

/// Whether all roots lie within `circle`. The roots of the polynomial in z circle lie within 1 exactly if each step of
/// the recursion has a last coefficient smaller than its first.
fn within(polynomial: &[f64; 5], circle: f64) -> bool {
    let mut left = *polynomial;
    let mut power = 1.0;
    for coefficient in left.iter_mut().rev() {
        *coefficient *= power;
        power *= circle;
    }
    for degree in (1..left.len()).rev() {
        let reflection = left[degree] / left[0];
        // A NaN counts as outside.
        if reflection.is_nan() || reflection.abs() >= 1.0 {
            return false;
        }
        let before = left;
        for (at, coefficient) in left.iter_mut().enumerate().take(degree) {
            *coefficient = before[at] - reflection * before[degree - at];
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The paper's plant (equation 3), whose unit of d is not stated.
    const PAPER: Plant = Plant {
        a: [-0.0228, -0.1371],
        b: [0.0179, 0.0084],
    };

    /// Another search, by simplex, found 0.48 with one integrator and 0.67 with two, in a slightly different loop.
    #[test]
    fn the_papers_plant_is_held_under_both_readings() {
        for (integration, known) in [(Integration::Once, 0.48), (Integration::Twice, 0.67)] {
            let gains = PAPER.gains(integration).unwrap();
            assert!(gains.radius < known + 0.03, "{gains:?}");
            assert!(gains.proportional > 0.0 && gains.integral > 0.0, "{gains:?}");
            assert!(settles(&PAPER, &gains), "{gains:?}");
        }
    }

    #[test]
    fn a_plant_whose_bound_does_nothing_is_refused() {
        for b in [[0.0, 0.0], [f64::NAN, 0.1]] {
            let plant = Plant { a: [0.1, 0.1], b };
            assert!(plant.gains(Integration::Once).is_err(), "{plant:?}");
        }
    }

    /// The loop itself, from a delay of 1.5 s to one of 1 s: s(k) follows d(k-1), and e(k) makes d(k+1).
    fn settles(plant: &Plant, gains: &Gains) -> bool {
        let (mut s, mut d) = ([1.5, 1.5], [1.5 / plant.steady(); 3]);
        let (mut delta, mut before) = (0.0, -0.5);
        for _ in 0..200 {
            let delay = plant.a[0] * s[0] + plant.a[1] * s[1] + plant.b[0] * d[1] + plant.b[1] * d[2];
            let error = 1.0 - delay;
            let change = gains.proportional * ((gains.integral + 1.0) * error - before);
            delta = match gains.integration {
                Integration::Once => change,
                Integration::Twice => delta + change,
            };
            (s, d, before) = ([delay, s[0]], [d[0] + delta, d[0], d[1]], error);
        }
        (s[0] - 1.0).abs() < 1e-3
    }

    proptest! {
        /// A polynomial made of known roots.
        #[test]
        fn the_radius_is_that_of_the_largest_root(roots in prop::array::uniform4(-1.5f64..1.5)) {
            let mut polynomial = [1.0, 0.0, 0.0, 0.0, 0.0];
            for root in roots {
                for at in (1..5).rev() {
                    polynomial[at] -= root * polynomial[at - 1];
                }
            }
            let largest = roots.iter().fold(0.0f64, |most, root| most.max(root.abs()));
            prop_assert!((radius(&polynomial) - largest).abs() < 1e-3, "{} {}", radius(&polynomial), largest);
        }
    }
}
