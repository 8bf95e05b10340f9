//! The plain PI law in delta form, for one knob and one meter and gains from elsewhere.
//!
//! ```text
//! u(k) = u(k-1) + K_P [(K_I + 1) e(k) - e(k-1)],     e = goal - y
//! ```
//!
//! This is how Chronos-C writes its controller of the backlog bound. The law remembers its last setting instead of an
//! accumulated error, so keeping that setting within the limits is all the anti-windup there is: it is the 1x1 case
//! of what [`LqrPi`](crate::LqrPi) does. In fact a first-order, one-knob [`LqrPi`](crate::LqrPi) with gains k_p and
//! k_i moves by -k_p [e(k) - e(k-1)] - k_i e(k-1) per sample, which is the formula above with K_P = k_i - k_p and K_I
//! = k_i / (k_p - k_i); [`PiGains::from_design`] makes use of it. Controllers designed here run as `LqrPi`; this law
//! is for gains from a paper or an operator.

use serde::{Deserialize, Serialize};

use crate::knob::Knob;
use crate::lqr_pi::{StepError, check};
use crate::mimo::Design;

/// Gains of the delta form.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PiGains {
    /// K_P, in units of the knob per unit of the meter. Its sign is that of the knob's effect on the meter.
    pub kp: f64,
    /// K_I, the part of K_P that is accumulated per sample; no unit.
    pub ki: f64,
}

/// A PI law at work.
#[derive(Clone, Debug, PartialEq)]
pub struct Pi {
    gains: PiGains,
    knob: Knob,
    /// Last setting, before rounding.
    u: f64,
    /// Last error; none before the first step.
    e: Option<f64>,
}

/// Why there is no PI law.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum PiError {
    /// A gain or the starting setting is not finite.
    #[error("the {what} of a PI law is {value}: it must be finite")]
    NotFinite {
        /// `K_P`, `K_I` or `start`.
        what: &'static str,
        /// The value.
        value: f64,
    },
    /// The design has several knobs, several meters, or an order above one.
    #[error("the design is not for one knob, one meter and first order: run it as an LqrPi")]
    NotFirstOrder,
    /// Both gains of the design are equal: the delta form weighs e(k-1) with their difference and cannot express it.
    #[error("both gains of the design are {gain}, which the delta form cannot express: run it as an LqrPi")]
    EqualGains {
        /// The gain.
        gain: f64,
    },
}

impl PiGains {
    /// The gains with which the delta form moves as the law of `design` does.
    ///
    /// # Errors
    /// [`PiError`] unless the design is for one knob, one meter and first order, with two different gains.
    pub fn from_design(design: &Design) -> Result<PiGains, PiError> {
        let is_siso = design.kp.shape() == (1, 1) && design.ki.shape() == (1, 1);
        if !is_siso || !design.kp_past.is_empty() || !design.ku_past.is_empty() {
            return Err(PiError::NotFirstOrder);
        }
        let (kp, ki) = (design.kp[(0, 0)], design.ki[(0, 0)]);
        if kp == ki {
            Err(PiError::EqualGains { gain: kp })
        } else {
            Ok(PiGains {
                kp: ki - kp,
                ki: ki / (kp - ki),
            })
        }
    }
}

impl Pi {
    /// A law that goes on from the setting `start` without a jolt: at first only its integral part acts.
    ///
    /// ```
    /// use punctual_control::{Knob, Pi, PiGains};
    /// let backlog = Knob::new(10.0, 1000.0, 1.0).unwrap();
    /// let mut law = Pi::new(PiGains { kp: 40.0, ki: 0.5 }, backlog, 100.0).unwrap();
    /// assert_eq!(law.step(0.8, 1.0), Ok(104.0)); // 0.2 s to spare: let more in
    /// ```
    ///
    /// # Errors
    /// [`PiError::NotFinite`].
    pub fn new(gains: PiGains, knob: Knob, start: f64) -> Result<Pi, PiError> {
        for (what, value) in [("K_P", gains.kp), ("K_I", gains.ki), ("start", start)] {
            if !value.is_finite() {
                return Err(PiError::NotFinite { what, value });
            }
        }
        Ok(Pi {
            gains,
            knob,
            u: knob.clamp(start),
            e: None,
        })
    }

    /// The setting for the coming sample, within the knob's limits, from the output just measured and its goal.
    ///
    /// # Errors
    /// [`StepError`] for a value that cannot be used; the law is unchanged, and [`setting`](Self::setting) is held.
    pub fn step(&mut self, y: f64, goal: f64) -> Result<f64, StepError> {
        check("measurement", &[y], 1)?;
        check("goal", &[goal], 1)?;
        let e = goal - y;
        let PiGains { kp, ki } = self.gains;
        self.u = self.knob.clamp(self.u + kp * ((ki + 1.0) * e - self.e.unwrap_or(e)));
        self.e = Some(e);
        Ok(self.u)
    }

    /// Tells what the machine did. A refused or cut setting is where the law goes on from; rounding is not (see
    /// [`LqrPi`](crate::LqrPi)).
    ///
    /// # Errors
    /// [`StepError`] if `u` cannot be used; the law then goes on as if its setting had been applied.
    pub fn applied(&mut self, u: f64) -> Result<(), StepError> {
        check("applied setting", &[u], 1)?;
        if !self.knob.is_rounding(self.u, u) {
            self.u = u;
        }
        Ok(())
    }

    /// The setting of the last good step (or start).
    pub fn setting(&self) -> f64 {
        self.u
    }
}
