//! The ARX model: outputs explained by their own past and by past inputs.
//!
//! ```text
//! y(k) = A_1 y(k-1) + ... + A_na y(k-na) + B_1 u(k-1) + ... + B_nb u(k-nb) + drift
//! ```
//!
//! y and u are deviations from the operating point (`y0`, `u0`): the machine is not linear, but near the point where
//! it works it moves as if it were. With ny outputs and nu inputs the A_i are ny x ny and the B_j ny x nu; 1x1
//! matrices make it a SISO model, one row a MISO model. The model in Kang and Chung's QeDB is na = nb = 1, that in
//! Chronos-C na = nb = 2 with one input and one output.
//!
//! The *drift* is the change of the outputs per sample at the operating point itself: zero if that point is an
//! equilibrium. The means of a record are an equilibrium only as far as the record begins and ends alike, hence the
//! term. No controller here uses it, because the integral part of a controller finds every constant by itself.

use nalgebra::DMatrix;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{ControlError, refused, require};
use crate::fingerprint::{Fingerprint, Hasher};
use crate::rows;

/// Smallest R^2 with which an identified model is commonly considered valid (Hellerstein et al., "Feedback Control of
/// Computing Systems", 2004; also QeDB, section 4.3.1).
pub const R2_ACCEPTED: f64 = 0.8;

/// An ARX model, by construction consistent in its dimensions and free of NaN and infinities.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct ArxModel {
    inputs: Vec<String>,
    outputs: Vec<String>,
    #[serde(with = "rows::many")]
    a: Vec<DMatrix<f64>>,
    #[serde(with = "rows::many")]
    b: Vec<DMatrix<f64>>,
    u0: Vec<f64>,
    y0: Vec<f64>,
    drift: Vec<f64>,
    fit: Option<Fit>,
}

/// How well a model explains its record; one entry per output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// R^2 = 1 - var(one-step prediction error) / var(output); 1 is perfect, 0 no better than the mean.
    pub r2: Vec<f64>,
    /// Standard deviation of the one-step prediction error, in the output's unit.
    pub residual_std: Vec<f64>,
    /// Rows of the record.
    pub samples: usize,
}

impl ArxModel {
    /// Makes a model from known matrices, for a system in a textbook or a paper: operating point zero, no drift, no
    /// fit.
    ///
    /// ```
    /// use punctual_control::{ArxModel, DMatrix};
    /// // Chronos-C: service delay (s) against the backlog bound (items).
    /// let [a1, a2, b1, b2] = [-0.0228, -0.1371, 0.0179, 0.0084].map(|v| DMatrix::from_element(1, 1, v));
    /// let model = ArxModel::from_matrices(vec!["backlog".into()], vec!["delay".into()], vec![a1, a2], vec![b1, b2]);
    /// assert_eq!(model.unwrap().order(), 2);
    /// ```
    ///
    /// # Errors
    /// [`ControlError`] if a part is missing, of the wrong size, or not finite.
    pub fn from_matrices(
        inputs: Vec<String>,
        outputs: Vec<String>,
        a: Vec<DMatrix<f64>>,
        b: Vec<DMatrix<f64>>,
    ) -> Result<ArxModel, ControlError> {
        let (nu, ny) = (inputs.len(), outputs.len());
        let (u0, y0, drift) = (vec![0.0; nu], vec![0.0; ny], vec![0.0; ny]);
        ArxModel {
            inputs,
            outputs,
            a,
            b,
            u0,
            y0,
            drift,
            fit: None,
        }
        .checked()
    }

    /// Replaces operating point, drift and fit.
    ///
    /// # Errors
    /// [`ControlError`] if a length does not fit or a number is not finite.
    pub(crate) fn identified(
        self,
        u0: Vec<f64>,
        y0: Vec<f64>,
        drift: Vec<f64>,
        fit: Fit,
    ) -> Result<ArxModel, ControlError> {
        ArxModel {
            u0,
            y0,
            drift,
            fit: Some(fit),
            ..self
        }
        .checked()
    }

    /// Returns the model with the effects of all inputs times `factor`: a wrong model, to test a loop around it. A
    /// factor that makes an effect infinite changes nothing.
    pub fn with_gain(&self, factor: f64) -> ArxModel {
        let scaled = ArxModel {
            b: self.b.iter().map(|b| b * factor).collect(),
            ..self.clone()
        };
        scaled.checked().unwrap_or_else(|_| self.clone())
    }

    /// Replaces the dynamics by first-order ones around an equilibrium: no drift.
    ///
    /// # Errors
    /// [`ControlError`] if a size does not fit or a number is not finite.
    pub(crate) fn with_dynamics(
        &self,
        a: DMatrix<f64>,
        b: DMatrix<f64>,
        y0: Vec<f64>,
        fit: Option<Fit>,
    ) -> Result<ArxModel, ControlError> {
        ArxModel {
            a: vec![a],
            b: vec![b],
            drift: vec![0.0; y0.len()],
            y0,
            fit,
            ..self.clone()
        }
        .checked()
    }

    /// Returns the model with one knob only, the others held at the operating point. The fit remains that of the
    /// identification with all knobs.
    ///
    /// # Errors
    /// [`ControlError`] if there is no such input.
    pub fn with_input(&self, input: usize) -> Result<ArxModel, ControlError> {
        let inputs = self.inputs.len();
        require(input < inputs, || {
            format!("the model has {inputs} inputs, none of them number {input} (counted from 0)")
        })?;
        ArxModel {
            inputs: vec![self.inputs[input].clone()],
            u0: vec![self.u0[input]],
            b: self.b.iter().map(|b| b.columns(input, 1).into_owned()).collect(),
            ..self.clone()
        }
        .checked()
    }

    /// Names of the knobs, in the order of the columns of B.
    pub fn inputs(&self) -> &[String] {
        &self.inputs
    }

    /// Names of the meters, in the order of the rows of A and B.
    pub fn outputs(&self) -> &[String] {
        &self.outputs
    }

    /// A_1 .. A_na: effects of the outputs one, two .. samples ago. Never empty.
    pub fn a(&self) -> &[DMatrix<f64>] {
        &self.a
    }

    /// B_1 .. B_nb: effects of the inputs one, two .. samples ago. Never empty.
    pub fn b(&self) -> &[DMatrix<f64>] {
        &self.b
    }

    /// Inputs at the operating point, each in its own unit.
    pub fn u0(&self) -> &[f64] {
        &self.u0
    }

    /// Outputs at the operating point, each in its own unit.
    pub fn y0(&self) -> &[f64] {
        &self.y0
    }

    /// Change of the outputs per sample at the operating point; zero if that point is an equilibrium.
    pub fn drift(&self) -> &[f64] {
        &self.drift
    }

    /// How well the model explains its record; `None` if the model was written down rather than identified.
    pub fn fit(&self) -> Option<&Fit> {
        self.fit.as_ref()
    }

    /// Number of past rows that a prediction needs: the larger one of na and nb.
    pub fn order(&self) -> usize {
        self.a.len().max(self.b.len())
    }

    /// Accepts a model whose every output is explained with at least `minimum` (see [`R2_ACCEPTED`]). A model without a
    /// fit is accepted: its author vouches for it.
    ///
    /// # Errors
    /// [`ControlError`] for the worst output below the minimum; a NaN counts as below.
    pub fn check_fit(&self, minimum: f64) -> Result<(), ControlError> {
        let r2 = self.fit.iter().flat_map(|fit| fit.r2.iter().copied());
        match self
            .outputs
            .iter()
            .zip(r2)
            .filter(|(_, r2)| r2.is_nan() || *r2 < minimum)
            .min_by(|x, y| x.1.total_cmp(&y.1))
        {
            Some((output, r2)) => refused(format!(
                "the model explains `{output}` with R^2 = {r2:.3}, below {minimum}: excite the knobs over a wider \
                 range, record for longer, or raise the order"
            )),
            None => Ok(()),
        }
    }

    /// Hashes everything that a controller depends on: names, orders, matrices and operating point. The fit is left
    /// out, so a model judged anew keeps its controllers.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut hasher = Hasher::new();
        for names in [&self.inputs, &self.outputs] {
            hasher.length(names.len());
            names.iter().for_each(|name| hasher.text(name));
        }
        for matrices in [&self.a, &self.b] {
            hasher.length(matrices.len());
            matrices.iter().flat_map(|m| m.iter()).for_each(|v| hasher.number(*v));
        }
        for numbers in [&self.u0, &self.y0, &self.drift] {
            numbers.iter().for_each(|v| hasher.number(*v));
        }
        hasher.finish()
    }

    fn checked(self) -> Result<ArxModel, ControlError> {
        let (nu, ny) = (self.inputs.len(), self.outputs.len());
        for (what, count) in [("input", nu), ("output", ny), ("A", self.a.len()), ("B", self.b.len())] {
            require(count > 0, || format!("the model has no {what}: it needs at least one"))?;
        }
        for (letter, matrices, columns) in [("A", &self.a, ny), ("B", &self.b, nu)] {
            for (i, matrix) in matrices.iter().enumerate() {
                let what = format!("{letter}_{}", i + 1);
                check_part(&what, matrix.iter(), matrix.shape(), (ny, columns))?;
            }
        }
        for (what, values, needed) in [("u0", &self.u0, nu), ("y0", &self.y0, ny), ("drift", &self.drift, ny)] {
            check_part(what, values.iter(), (values.len(), 1), (needed, 1))?;
        }
        if let Some(fit) = &self.fit {
            for (what, values) in [("r2", &fit.r2), ("residual_std", &fit.residual_std)] {
                check_part(what, values.iter(), (values.len(), 1), (ny, 1))?;
            }
        }
        Ok(self)
    }
}

/// Refuses a part `what` whose rows and columns are not those that the model's names ask for, or with a NaN or an
/// infinity.
fn check_part<'a>(
    what: &str,
    mut values: impl Iterator<Item = &'a f64>,
    got: (usize, usize),
    needed: (usize, usize),
) -> Result<(), ControlError> {
    require(got == needed, || {
        let [got, needed] = [got, needed].map(|(rows, columns)| format!("{rows}x{columns}"));
        format!("{what} is {got} but the model's names ask for {needed}")
    })?;
    match values.find(|v| !v.is_finite()) {
        Some(value) => refused(format!("{what} holds {value}: every number of a model must be finite")),
        None => Ok(()),
    }
}

impl Serialize for ArxModel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ArxModel::serialize(self, serializer)
    }
}

/// Refuses a document whose parts do not fit each other.
impl<'de> Deserialize<'de> for ArxModel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ArxModel, D::Error> {
        let model = ArxModel::deserialize(deserializer)?;
        model.checked().map_err(serde::de::Error::custom)
    }
}
