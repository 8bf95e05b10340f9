//! The two files that outlive a run: an identified model, and the controller designed from it.

use punctual_control::{
    ArxModel, ControlError, Design, OperatingPoint, Orders, R2_ACCEPTED, Recording, Weights, design, identify,
    quasi_static, steady_gain,
};
use punctual_workload::{ControllerKind, Pace, Prices, Scenario, UpdateMode};
use serde::{Deserialize, Serialize};

use crate::controller::check_names;

/// Name of the tardiness meter in models.
pub const TARDINESS: &str = "tardiness";
/// Name of the data response ratio in models.
pub const DRR: &str = "drr";
/// Name of the clock knob in models: a share of the top clock.
pub const CLOCK: &str = "clock";
/// Name of the admission knob in models.
pub const ADMITTED: &str = "admitted";

/// Conditions that a model or controller was made for. Used elsewhere, its gains mean nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MadeFor {
    /// Name of the scenario.
    pub scenario: String,
    /// Either `linux` or `sim`.
    pub platform: String,
    /// When the loop steps.
    pub pace: Pace,
    /// How updates reach the store.
    pub update_mode: UpdateMode,
    /// The machine: the name in a simulated one's file, or processor and cores of the computer. `None` in files of
    /// earlier versions, which count as made for any machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Whether the file is part of `punctual`: a start on any machine, which the run's report mentions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shipped: bool,
}

impl MadeFor {
    /// Conditions of a run of `scenario` on this `machine` of this `platform`.
    pub fn of(scenario: &Scenario, platform: &str, machine: Option<&str>) -> MadeFor {
        MadeFor {
            scenario: scenario.name.clone(),
            platform: platform.into(),
            pace: scenario.control.pace,
            update_mode: scenario.store.update_mode,
            machine: machine.map(String::from),
            shipped: false,
        }
    }
}

/// File with identified models.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename = "punctual-model")]
pub struct ModelDocument {
    /// Conditions under which they were identified.
    pub made_for: MadeFor,
    /// Tardiness and drr against clock and admitted share; `None` where the record of drr gives no model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mimo: Option<ArxModel>,
    /// Tardiness alone against both knobs: the controllers with one knob are designed from it.
    pub tardiness: ArxModel,
}

/// File with the designed controllers: those for which the model gives gains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename = "punctual-controller")]
pub struct ControllerDocument {
    /// Conditions under which the model was identified.
    pub made_for: MadeFor,
    /// Gains of the controller `mimo`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mimo: Option<Design>,
    /// Gains of the controller `qod`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qod: Option<Design>,
    /// Gains of the controller `clock`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Design>,
    /// The model that the gains come from: `one-step` inverts it, and a supervisor that watches a law compares with it.
    /// `None` in files of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<ModelDocument>>,
}

/// Reason why a model gives no gains, with the remedy.
const NO_GAINS: &str = "the record of the model does not show what its knobs do to all that it reads; choose another \
                        controller, or identify again with wider levels under [identify]";

/// Reason why a controller cannot run here, with the remedy.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct Mismatch(pub String);

impl Mismatch {
    /// The model gives no gains for this controller.
    pub(crate) fn no_design(controller: ControllerKind) -> Mismatch {
        let controller = controller.name();
        Mismatch(format!(
            "there are no gains for the controller `{controller}`: {NO_GAINS}"
        ))
    }

    /// The machine has no clock knob, or a fixed clock.
    pub(crate) fn no_clock(controller: ControllerKind) -> Mismatch {
        Mismatch(format!(
            "the controller `{}` turns the clock, but this machine offers no clock knob: use `qod` or `open`",
            controller.name()
        ))
    }
}

/// The gains do not fit together, the clock's steps make no range, or the levels of an excitation teach nothing.
impl From<ControlError> for Mismatch {
    fn from(error: ControlError) -> Mismatch {
        Mismatch(error.to_string())
    }
}

/// Reason why a model that was identified is not to be used, with the remedy.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct Unfit(pub String);

impl Unfit {
    /// R^2 is too low.
    fn poor(fit: ControlError) -> Unfit {
        Unfit(format!(
            "{fit}; record for longer (--duration), or widen the levels under [identify]"
        ))
    }

    /// More of `knob` makes jobs `effect` (`later` or `earlier`), at once or `when`: against its nature.
    fn backwards(knob: &str, effect: &str, when: &str) -> Unfit {
        Unfit(format!(
            "the model says that more of `{knob}` makes jobs {effect}{when}, which cannot be: something else moved the \
             jobs; identify again while nothing else uses the real-time core"
        ))
    }

    /// The model has no resting points, or its gains do not fit it.
    fn unjudged(controller: ControllerKind, why: ControlError) -> Unfit {
        let controller = controller.name();
        Unfit(format!("the loop that `{controller}` closes cannot be judged: {why}"))
    }
}

impl From<Unfit> for ControlError {
    fn from(unfit: Unfit) -> ControlError {
        ControlError::Refused(unfit.0)
    }
}

/// The control law that runs for `kind`: where prices find the admitted share, `mimo` turns the clock alone.
pub fn law_kind(kind: ControllerKind, prices: Option<Prices>) -> ControllerKind {
    match (kind, prices) {
        (ControllerKind::Mimo, Some(_)) => ControllerKind::Clock,
        _ => kind,
    }
}

/// The weights of every design, one Q and R throughout (SYSTEMS.md, section 1: tardiness over drr).
///
/// Knobs are shares of their range and both meters are of order one, so one unit of effort is a whole range. Tardiness
/// counts ten times as much as drr. Effort is weighted like tardiness: samples of two jobs are noisy, and a law that
/// answers noise with knob movements costs energy and freshness for nothing.
fn weights(outputs: usize, inputs: usize) -> Weights {
    let by_output = |tardiness: f64, drr: f64| [tardiness, drr][..outputs].to_vec();
    Weights {
        error: by_output(1.0, 0.1),
        accumulated: by_output(0.1, 0.01),
        effort: vec![1.0; inputs],
    }
}

impl ModelDocument {
    /// Identifies first-order models from a record of the running system: rows of [tardiness, drr] in `y`, and of
    /// [clock share, admitted share] decided at the same instant in `u`.
    ///
    /// Without a model of drr (a meter that stands still has none) only the laws that read it are missing.
    ///
    /// # Errors
    /// [`ControlError`] where the record gives no model of tardiness.
    pub fn identify(made_for: MadeFor, y: &[[f64; 2]], u: &[[f64; 2]]) -> Result<ModelDocument, ControlError> {
        let inputs = vec![CLOCK.to_string(), ADMITTED.to_string()];
        let u: Vec<Vec<f64>> = u.iter().map(|row| row.to_vec()).collect();
        let record = |outputs: &[&str]| Recording {
            outputs: outputs.iter().map(|name| name.to_string()).collect(),
            inputs: inputs.clone(),
            y: y.iter().map(|row| row[..outputs.len()].to_vec()).collect(),
            u: u.clone(),
        };
        let fit = |outputs: &[&str]| identify(&record(outputs), Orders::FIRST, &OperatingPoint::Mean);
        Ok(ModelDocument {
            made_for,
            mimo: fit(&[TARDINESS, DRR]).ok(),
            tardiness: fit(&[TARDINESS])?,
        })
    }

    /// Refuses a model that does not explain its record where this controller reads it, or explains it by something
    /// that cannot be: a faster clock that makes jobs later, or more updates that make them earlier. A law of the wrong
    /// sign drives its knob to the wrong end. `open` reads nothing and takes any model.
    ///
    /// # Errors
    /// [`Unfit`] names the output with R^2 under 0.8, the knob that works backwards, or the controller without a model.
    pub fn check_fit(&self, kind: ControllerKind) -> Result<(), Unfit> {
        if let Some((model, _)) = self.read_by(kind)? {
            model.check_fit(R2_ACCEPTED).map_err(Unfit::poor)?;
        }
        self.check_nature(kind)
    }

    /// Refuses a model in which a knob that this controller turns works against its nature, at once or in the long run,
    /// wherever the model comes from.
    ///
    /// # Errors
    /// [`Unfit`] names the knob, or says that the model has no resting points.
    pub fn check_nature(&self, kind: ControllerKind) -> Result<(), Unfit> {
        let Some((model, turned)) = self.read_by(kind)? else {
            return Ok(());
        };
        let at_rest = steady_gain(model).map_err(|error| Unfit::unjudged(kind, error))?;
        for (effects, when) in [(&model.b()[0], ""), (&at_rest, " in the long run")] {
            let tardiness = |knob: &str| {
                let input = model.inputs().iter().position(|name| name == knob)?;
                effects.get((0, input)).copied()
            };
            for &knob in turned {
                check_effect(knob, tardiness(knob).filter(|effect| effect.abs() >= NO_EFFECT), when)?;
            }
        }
        Ok(())
    }

    /// The model as this controller's law sees it: with the knobs that it turns only.
    fn seen_by(&self, kind: ControllerKind) -> Result<Option<ArxModel>, ControlError> {
        match kind {
            ControllerKind::Clock => self.tardiness.with_input(0).map(Some),
            ControllerKind::Qod => self.tardiness.with_input(1).map(Some),
            _ => Ok(self.mimo.clone()),
        }
    }

    /// The model that this controller's gains come from, and the knobs that it turns; `None` for `open`.
    fn read_by(&self, kind: ControllerKind) -> Result<Option<(&ArxModel, &'static [&'static str])>, Unfit> {
        let no_model = || Unfit(format!("no model for the controller `{}`: {NO_GAINS}", kind.name()));
        Ok(match kind {
            ControllerKind::Open => None,
            ControllerKind::Qod => Some((&self.tardiness, &[ADMITTED])),
            ControllerKind::Clock => Some((&self.tardiness, &[CLOCK])),
            ControllerKind::Mimo => {
                let both = self.mimo.as_ref().ok_or_else(no_model)?;
                Some((both, &[CLOCK, ADMITTED]))
            }
        })
    }

    /// The model for a loop that steps at every job, from one for a period of `jobs` jobs: the same resting points,
    /// reached within one job ([`quasi_static`]). Better is a record at that pace, but the machine may be elsewhere.
    ///
    /// # Errors
    /// [`ControlError`] for a model without resting points.
    pub fn for_every_job(&self, jobs: f64) -> Result<ModelDocument, ControlError> {
        Ok(ModelDocument {
            made_for: MadeFor {
                pace: Pace::Job,
                ..self.made_for.clone()
            },
            mimo: self.mimo.as_ref().map(|model| quasi_static(model, jobs)).transpose()?,
            tardiness: quasi_static(&self.tardiness, jobs)?,
        })
    }

    /// Designs the laws that the model gives: not those of a knob without effect.
    ///
    /// # Errors
    /// [`ControlError`] where no law exists.
    pub fn design(&self) -> Result<ControllerDocument, ControlError> {
        self.design_with(weights)
    }

    /// As [`ModelDocument::design`], with other weights, by the number of outputs and inputs: an experiment has a Q and
    /// an R of its own.
    ///
    /// # Errors
    /// The same as of [`ModelDocument::design`].
    pub fn design_with(&self, weights: impl Fn(usize, usize) -> Weights) -> Result<ControllerDocument, ControlError> {
        let one_knob = |input: usize| -> Result<Design, ControlError> {
            design(&self.tardiness.with_input(input)?, &weights(1, 1))
        };
        let (clock, qod) = (one_knob(0), one_knob(1));
        let mimo = self.mimo.as_ref().and_then(|model| design(model, &weights(2, 2)).ok());
        let (clock, qod) = match (clock, qod, &mimo) {
            (Err(error), Err(_), None) => return Err(error),
            (clock, qod, _) => (clock.ok(), qod.ok()),
        };
        Ok(ControllerDocument {
            made_for: self.made_for.clone(),
            mimo,
            clock,
            qod,
            model: Some(Box::new(self.clone())),
        })
    }
}

impl ControllerDocument {
    /// Gains for `qod` alone, from rows of (tardiness, admitted share) of tasks on a machine without another knob. The
    /// gains of `mimo` and `clock` are the same: there is nothing else to turn.
    ///
    /// # Errors
    /// [`ControlError`] where the rows do not fit, or admitting more updates would make jobs earlier.
    pub fn of_admission(
        made_for: MadeFor,
        rows: impl Iterator<Item = (f64, f64)>,
    ) -> Result<ControllerDocument, ControlError> {
        let (y, u) = rows.map(|(y, u)| (vec![y], vec![u])).unzip();
        let record = Recording {
            outputs: vec![TARDINESS.into()],
            inputs: vec![ADMITTED.into()],
            y,
            u,
        };
        let model = identify(&record, Orders::FIRST, &OperatingPoint::Mean)?;
        model.check_fit(R2_ACCEPTED).map_err(Unfit::poor)?;
        if model.b()[0][(0, 0)] <= 0.0 {
            return Err(Unfit::backwards(ADMITTED, "earlier", "").into());
        }
        let gains = design(&model, &weights(1, 1))?;
        Ok(ControllerDocument {
            made_for,
            mimo: Some(gains.clone()),
            clock: Some(gains.clone()),
            qod: Some(gains),
            model: None,
        })
    }

    /// The control law that runs for `kind` ([`law_kind`]), if there are gains for it.
    ///
    /// # Errors
    /// [`Mismatch`] where there are none.
    pub fn law_of(&self, kind: ControllerKind, prices: Option<Prices>) -> Result<ControllerKind, Mismatch> {
        let law = law_kind(kind, prices);
        match self.design_of(law) {
            None if law != kind => Err(Mismatch(
                "where `control.prices` find the admitted share, `mimo` turns the clock alone, and there are no gains of \
                 `clock`: identify again, or hold a set point by hand (`goal.drr` in place of prices)"
                    .into(),
            )),
            None if law != ControllerKind::Open => Err(Mismatch::no_design(kind)),
            _ => Ok(law),
        }
    }

    /// Refuses gains whose loop around their model is unstable, or whose model has a knob of the wrong sign. Gains
    /// without a model, from files of earlier versions, are judged by the verdict in the file.
    ///
    /// # Errors
    /// [`Unfit`].
    pub fn check_loop(&self, kind: ControllerKind) -> Result<(), Unfit> {
        let Some(design) = self.design_of(kind) else {
            return Ok(());
        };
        let model = self.model.as_deref();
        if let Some(model) = model {
            model.check_nature(kind)?;
        }
        let verdict = match model.map(|model| model.seen_by(kind)).transpose() {
            Ok(Some(Some(model))) => design.verdict_on(&model),
            Ok(_) => Ok(design.verdict),
            Err(error) => Err(error),
        };
        match verdict.map_err(|why| Unfit::unjudged(kind, why))? {
            verdict if verdict.is_stable() => Ok(()),
            verdict => Err(Unfit(format!(
                "the loop that `{}` closes around its model is {verdict}: its knobs would swing ever further; identify \
                 again, or design from another model",
                kind.name()
            ))),
        }
    }

    /// The gains of this controller; `None` for `open`, and for one that the model gives no gains for.
    pub fn design_of(&self, kind: ControllerKind) -> Option<&Design> {
        match kind {
            ControllerKind::Open => None,
            ControllerKind::Qod => self.qod.as_ref(),
            ControllerKind::Clock => self.clock.as_ref(),
            ControllerKind::Mimo => self.mimo.as_ref(),
        }
    }

    /// Note on the origin of the model, for a run's report; `None` where the model was learnt on this run's machine, or
    /// for a simulated one.
    pub fn origin_note(&self, run: &MadeFor) -> Option<String> {
        let made = &self.made_for;
        match (&made.machine, &run.machine) {
            _ if made.platform == "sim" => None,
            (Some(on), Some(run)) if on == run => None,
            _ if made.shipped => Some(
                "the model is the one that comes with punctual, learnt elsewhere: --identify \
                learns one on this machine"
                    .into(),
            ),
            (None, Some(_)) => Some(
                "the model does not say on which machine it was learnt: --identify learns one on \
                this machine"
                    .into(),
            ),
            _ => None,
        }
    }

    /// Refuses a controller that was made for something else.
    ///
    /// # Errors
    /// [`Mismatch`] names the condition that differs.
    pub fn check(&self, run: &MadeFor) -> Result<(), Mismatch> {
        let made = &self.made_for;
        let differs = |what: &str, made_for: String, run: String| {
            Err(Mismatch(format!(
                "the model was made for {what} {made_for}, but this run has {run}: identify again with `punctual model \
                 learn`"
            )))
        };
        if made.scenario != run.scenario {
            return differs("the scenario", quoted(&made.scenario), quoted(&run.scenario));
        }
        if made.platform != run.platform {
            return differs("the platform", quoted(&made.platform), quoted(&run.platform));
        }
        if let (Some(on), Some(run)) = (&made.machine, &run.machine)
            && on != run
            && !made.shipped
        {
            let what = match made.platform.as_str() {
                "sim" => "the simulated machine",
                _ => "the machine",
            };
            return differs(what, quoted(on), quoted(run));
        }
        if made.pace != run.pace {
            return differs("the pace", paced(made.pace), paced(run.pace));
        }
        if made.update_mode != run.update_mode {
            return differs("the update mode", moded(made.update_mode), moded(run.update_mode));
        }
        for design in [&self.mimo, &self.qod, &self.clock].into_iter().flatten() {
            check_names(&design.outputs, &design.inputs)?;
        }
        Ok(())
    }
}

/// A knob whose whole range moves tardiness by less than this has no effect, and the sign of its effect is chance.
const NO_EFFECT: f64 = 0.005;

/// Refuses an effect on tardiness that is against the knob's nature; a model without this knob says nothing.
fn check_effect(knob: &str, effect: Option<f64>, when: &str) -> Result<(), Unfit> {
    let (backwards, says) = match (knob, effect) {
        (CLOCK, Some(effect)) => (effect >= 0.0, "later"),
        (_, Some(effect)) => (effect <= 0.0, "earlier"),
        (_, None) => return Ok(()),
    };
    match backwards {
        true => Err(Unfit::backwards(knob, says, when)),
        false => Ok(()),
    }
}

fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

fn paced(pace: Pace) -> String {
    match pace {
        Pace::Job => "of every job".into(),
        Pace::Period(period) => format!("of a period of {period}"),
    }
}

fn moded(mode: UpdateMode) -> String {
    match mode {
        UpdateMode::MemoryFirst => "memory-first".into(),
        UpdateMode::Transaction => "transaction".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_control::{Pole, Stability};

    const MODEL: &str = include_str!("../../../scenarios/fire-rescue.sim.model.json");
    const LAWS: [ControllerKind; 3] = [ControllerKind::Mimo, ControllerKind::Qod, ControllerKind::Clock];

    fn model() -> ModelDocument {
        serde_json::from_str(MODEL).expect("the shipped model")
    }

    /// Whether a model is refused with these words in the message.
    fn is_for(words: &str, refused: &Result<(), Unfit>) -> bool {
        refused.as_ref().is_err_and(|Unfit(message)| message.contains(words))
    }

    /// The shipped model with a change in its JSON.
    fn changed(change: impl FnOnce(&mut serde_json::Value)) -> ModelDocument {
        let mut json: serde_json::Value = serde_json::from_str(MODEL).expect("JSON");
        change(&mut json);
        serde_json::from_value(json).expect("a model")
    }

    #[test]
    fn the_shipped_model_makes_loops_that_settle() {
        let controller = model().design().expect("gains");
        for kind in LAWS {
            controller.check_loop(kind).expect("a sound loop");
        }
    }

    #[test]
    fn a_planted_loop_that_does_not_settle_is_refused() {
        let mut controller = model().design().expect("gains");
        controller.qod.as_mut().expect("gains").kp *= -40.0;
        let refused = controller.check_loop(ControllerKind::Qod);
        assert!(is_for("swing ever further", &refused), "{refused:?}");
        controller
            .check_loop(ControllerKind::Clock)
            .expect("the other loop is sound");
        // Without its model, gains are judged by the verdict in their file.
        let poles: [Pole; 0] = [];
        controller.model = None;
        controller.qod.as_mut().expect("gains").verdict = Stability::of(&poles);
        controller
            .check_loop(ControllerKind::Qod)
            .expect("no model speaks against it");
    }

    #[test]
    fn a_knob_of_the_wrong_sign_in_the_long_run_is_refused_by_the_laws_that_turn_it() {
        // At once more updates make jobs later; by way of a slow mode of drr, in the long run earlier.
        let planted = changed(|json| {
            json["mimo"]["a"][0] = serde_json::json!([[0.0, -20.0], [0.0, 0.5]]);
        });
        let refused = planted.check_nature(ControllerKind::Mimo);
        assert!(is_for("makes jobs later in the long run", &refused), "{refused:?}");
        planted
            .check_nature(ControllerKind::Qod)
            .expect("it reads the other model");
        planted.check_nature(ControllerKind::Open).expect("it reads none");
    }

    #[test]
    fn a_poor_fit_of_drr_concerns_only_the_laws_that_read_it() {
        let poor = changed(|json| json["mimo"]["fit"]["r2"][1] = serde_json::json!(0.4));
        let refused = poor.check_fit(ControllerKind::Mimo);
        assert!(is_for("record for longer (--duration)", &refused), "{refused:?}");
        poor.check_fit(ControllerKind::Qod).expect("it does not read drr");
        poor.check_fit(ControllerKind::Clock).expect("it does not read drr");
    }

    #[test]
    fn a_model_is_for_the_machine_it_was_learnt_on_unless_it_was_shipped() {
        let mut controller = model().design().expect("gains");
        let mut run = controller.made_for.clone();
        for made in [&mut controller.made_for, &mut run] {
            made.platform = "linux".into();
        }
        (controller.made_for.machine, run.machine) = (Some("A, 4 cores".into()), Some("B, 2 cores".into()));
        let refused = controller.check(&run).expect_err("another machine").to_string();
        assert!(
            refused.contains("\"A, 4 cores\"") && refused.contains("\"B, 2 cores\""),
            "{refused}"
        );
        controller.made_for.shipped = true;
        controller.check(&run).expect("for any machine");
        assert!(
            controller
                .origin_note(&run)
                .is_some_and(|note| note.contains("comes with punctual"))
        );
        controller.made_for.machine = run.machine.clone();
        assert_eq!(controller.origin_note(&run), None);
    }
}
