//! The bound of a node's backlog: once a period, a control law moves it so that the mean delay is the target.
//!
//! **Problem.** A node of a federation that admits too much answers late, one that admits too little wastes its cores.
//! The bound between the two depends on what an item costs there at present.
//!
//! **Method.** That of Chronos-C (Y. Zhou and K.-D. Kang, "A Federated Approach for Increasing the Timely Throughput of
//! Real-Time Data Services", 2012): a model of order 2, identified on the node, gives the gains of
//!
//! ```text
//! e(k)     = S_t - s(k)                    s(k): mean delay of the requests that ended in period k
//! delta(k) = delta(k-1) + K_P [(K_I + 1) e(k) - e(k-1)]     (5)
//! d(k+1)   = d(k) + delta(k)
//! ```
//!
//! As printed, delta accumulates the error and d accumulates delta: two integrators. Equation 5 is what a PI law in its
//! incremental form looks like, whose delta has no past of its own: one integrator. [`Integration`] says which reading
//! a law follows. d(0), which the paper does not state, is the bound at which the model's delay is the target.
//!
//! d is the knob [`KnobId::Backlog`]. The law plans it, the node's machine turns it and says what it obtained, and the
//! law goes on from there. A model with R^2 below [`R2_ACCEPTED`] is refused.
//!
//! The paper has no bounds on d. Here there are two, or the law would never come back: below [`ITEMS_MIN`] no request
//! gets in and no delay is measured any more; above [`TIMES_MAX`] times the first bound the law has run away in a time
//! without load, in which no delay ever reaches S_t.

use punctual_control::{ArxModel, ControlError, Gains, Integration, Plant, R2_ACCEPTED};
use punctual_platform::{Applied, KnobId, Offers, Plan, Range, Value};
use punctual_units::Nanos;
use serde::{Deserialize, Serialize};

/// The least bound, in items: one request of the paper's largest.
pub const ITEMS_MIN: f64 = 100.0;
/// The largest bound, as a multiple of the first one.
pub const TIMES_MAX: f64 = 20.0;
/// Items for one unit of the model's input, so that its numbers are of the order of 1.
pub const MODEL_ITEMS: f64 = 1000.0;

/// Everything that the control law is made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BacklogGround {
    /// The mean delay of a period in seconds, by the bound in thousands of items: of order 2.
    pub model: ArxModel,
    /// Which reading of equation 5.
    pub integration: Integration,
    /// The mean delay that is asked for: the paper's S_t.
    pub target: Nanos,
    /// Knobs and meters that the node offers.
    pub offers: Offers,
}

/// Refusal of a model that says nothing of its fit.
const UNJUDGED: &str = "the model of the delay has no fit, so it was not identified: identify it on the node";

/// The parts of a model that the law is made from.
///
/// # Errors
/// [`ControlError`] where the model is of another order or about more than one delay and bound.
pub fn plant(model: &ArxModel) -> Result<Plant, ControlError> {
    match (model.a(), model.b(), model.inputs().len(), model.outputs().len()) {
        ([a1, a2], [b1, b2], 1, 1) => Ok(Plant {
            a: [a1, a2].map(|a| a[(0, 0)]),
            b: [b1, b2].map(|b| b[(0, 0)] / MODEL_ITEMS),
        }),
        _ => Err(ControlError::Refused(
            "the law is for one delay, one bound and order 2; identify a model of that order".into(),
        )),
    }
}

/// The bound at which the model's delay is `target`, in items.
///
/// # Errors
/// As of [`plant`].
pub fn bound_at(model: &ArxModel, target: Nanos) -> Result<f64, ControlError> {
    let above = (target.as_secs_f64() - model.y0()[0]) / plant(model)?.steady();
    Ok(model.u0()[0] * MODEL_ITEMS + above)
}

/// Measurements of one period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BacklogSeen {
    /// Mean delay of the requests that ended in the period; `None` where none ended.
    pub delay: Option<Nanos>,
    /// The machine's answer to the last plan; `None` before the first.
    pub applied: Option<Applied>,
}

/// The control law with its state.
#[derive(Clone, Debug, PartialEq)]
pub struct Backlog {
    target: f64,
    gains: Gains,
    /// Least and most, in items.
    range: (f64, f64),
    bound: f64,
    delta: f64,
    error: f64,
}

impl Backlog {
    /// Creates the law without measurements.
    ///
    /// # Errors
    /// [`ControlError`], above all for a model with R^2 below [`R2_ACCEPTED`].
    pub fn new(ground: &BacklogGround) -> Result<Backlog, ControlError> {
        let BacklogGround {
            model,
            integration,
            target,
            offers,
        } = ground;
        let Some(Range::Items(least, most, _)) = offers.range(KnobId::Backlog) else {
            return Err(ControlError::Refused(format!(
                "the machine `{}` offers no bound of a backlog: run the law on a node of a federation",
                offers.machine
            )));
        };
        model.fit().ok_or_else(|| ControlError::Refused(UNJUDGED.into()))?;
        model.check_fit(R2_ACCEPTED)?;
        let gains = plant(model)?.gains(*integration)?;
        let first = bound_at(model, *target)?.max(ITEMS_MIN);
        let least = ITEMS_MIN.max(*least as f64);
        let most = (TIMES_MAX * first).min(*most as f64).max(least);
        Ok(Backlog {
            target: target.as_secs_f64(),
            gains,
            range: (least, most),
            bound: first.clamp(least, most),
            delta: 0.0,
            error: 0.0,
        })
    }

    /// Returns the bound for the next period. Where no request ended there is no delay, and the bound stays.
    pub fn step(&mut self, seen: &BacklogSeen) -> Plan {
        self.settle(seen);
        if let Some(delay) = seen.delay {
            self.move_by(self.target - delay.as_secs_f64());
        }
        self.plan()
    }

    /// The plan in force.
    pub fn plan(&self) -> Plan {
        Plan::of(KnobId::Backlog, Value::Items(self.bound as u64))
    }

    fn move_by(&mut self, error: f64) {
        let Gains {
            proportional,
            integral,
            integration,
            ..
        } = self.gains;
        let change = proportional * ((integral + 1.0) * error - self.error);
        self.delta = match integration {
            Integration::Once => change,
            Integration::Twice => self.delta + change,
        };
        self.bound = (self.bound + self.delta).clamp(self.range.0, self.range.1);
        self.error = error;
    }

    /// Goes on from the bound that the machine obtained, if it is not the planned one: the law never counts on a
    /// refused plan.
    fn settle(&mut self, seen: &BacklogSeen) {
        let obtained = seen
            .applied
            .as_ref()
            .and_then(|applied| applied.obtained.get(KnobId::Backlog));
        if let Some(items) = obtained
            .and_then(Value::items)
            .filter(|items| *items != self.bound as u64)
        {
            self.bound = items as f64;
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_control::{OperatingPoint, Orders, Recording, identify};
    use punctual_platform::{KnobOffer, Provenance};

    use super::*;

    /// Identified on a node that takes 0.1 s for a thousand items, with noise of so much of a second.
    fn model(noise: f64) -> ArxModel {
        let spread = |number: usize, by: f64| (number as f64 * by).fract() - 0.5;
        let levels: Vec<f64> = (0..400).map(|k| 10.0 + 8.0 * spread(k, 0.618_034)).collect();
        let delay = |k: usize| 0.08 * levels[k.saturating_sub(1)] + 0.02 * levels[k.saturating_sub(2)];
        let record = Recording {
            outputs: vec!["delay".into()],
            inputs: vec!["backlog".into()],
            y: (0..400)
                .map(|k| vec![delay(k) + noise * spread(k, 0.414_214)])
                .collect(),
            u: levels.iter().map(|level| vec![*level]).collect(),
        };
        identify(&record, Orders { na: 2, nb: 2 }, &OperatingPoint::Mean).unwrap()
    }

    fn ground(model: ArxModel, integration: Integration) -> BacklogGround {
        let knob = KnobOffer {
            knob: KnobId::Backlog,
            range: Range::Items(1, 1 << 40, Provenance::Simulated),
        };
        BacklogGround {
            model,
            integration,
            target: Nanos::from_secs(1),
            offers: Offers {
                machine: "a node".into(),
                cores: Vec::new(),
                knobs: vec![knob],
                meters: Vec::new(),
                domains: Vec::new(),
            },
        }
    }

    fn law(integration: Integration) -> Backlog {
        Backlog::new(&ground(model(0.02), integration)).unwrap()
    }

    fn after(law: &mut Backlog, millis: u64) -> u64 {
        let seen = BacklogSeen {
            delay: Some(Nanos::from_millis(millis)),
            applied: None,
        };
        law.step(&seen).get(KnobId::Backlog).and_then(Value::items).unwrap()
    }

    #[test]
    fn a_model_that_explains_too_little_is_refused() {
        let poor = Backlog::new(&ground(model(3.0), Integration::Once));
        assert!(
            matches!(&poor, Err(ControlError::Refused(why)) if why.contains("the model explains `delay`")),
            "{poor:?}"
        );
        // A model from a paper has no fit, and no node vouches for it.
        let printed = |a: &[f64], b: &[f64]| {
            let matrices = |of: &[f64]| {
                of.iter()
                    .map(|one| punctual_control::DMatrix::from_element(1, 1, *one))
                    .collect()
            };
            ArxModel::from_matrices(vec!["backlog".into()], vec!["delay".into()], matrices(a), matrices(b)).unwrap()
        };
        let unjudged = Backlog::new(&ground(printed(&[-0.02, -0.14], &[0.018, 0.008]), Integration::Once));
        assert_eq!(unjudged, Err(ControlError::Refused(UNJUDGED.into())));
        let mut nothing = ground(model(0.02), Integration::Once);
        nothing.offers.knobs.clear();
        let refused = Backlog::new(&nothing).unwrap_err().to_string();
        assert!(refused.starts_with("the machine `a node` offers no bound"), "{refused}");
    }

    #[test]
    fn it_begins_where_the_model_has_the_target() {
        let first = law(Integration::Once)
            .plan()
            .get(KnobId::Backlog)
            .and_then(Value::items)
            .unwrap();
        assert!(first.abs_diff(10_000) < 200, "{first}");
    }

    #[test]
    fn the_bound_falls_where_delays_are_long_and_rises_where_they_are_short() {
        for integration in [Integration::Once, Integration::Twice] {
            for (millis, rises) in [(1500, false), (500, true)] {
                let mut law = law(integration);
                let before = law.plan().get(KnobId::Backlog).and_then(Value::items).unwrap();
                assert_eq!(after(&mut law, millis) > before, rises, "{integration:?} {millis} ms");
            }
        }
    }

    #[test]
    fn it_does_not_run_away_and_stays_where_nothing_ends() {
        let mut law = law(Integration::Twice);
        let first = law.bound;
        for millis in [1, 100_000] {
            for _ in 0..1000 {
                let bound = after(&mut law, millis) as f64;
                assert!((ITEMS_MIN..=first * TIMES_MAX).contains(&bound), "{bound}");
            }
        }
        let before = law.plan();
        assert_eq!(law.step(&BacklogSeen::default()), before);
    }

    #[test]
    fn it_goes_on_from_what_the_node_obtained() {
        let mut law = law(Integration::Once);
        let stuck = BacklogSeen {
            delay: None,
            applied: Some(Applied {
                obtained: Plan::of(KnobId::Backlog, Value::Items(3000)),
                refused: Vec::new(),
            }),
        };
        assert_eq!(law.step(&stuck), Plan::of(KnobId::Backlog, Value::Items(3000)));
    }
}
