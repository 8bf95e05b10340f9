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
//! The *drift* is what the outputs move by per sample at the operating point itself: zero if that is an equilibrium.
//! The means of a record are one only as far as the record begins and ends alike, hence the term. No controller
//! here uses it, because the integral part of a controller finds every constant by itself.

use std::fmt;

use nalgebra::DMatrix;
use serde::{Deserialize, Serialize};

use crate::fingerprint::{Fingerprint, Hasher};
use crate::rows;

/// Smallest R^2 with which an identified model is commonly considered valid (Hellerstein et al., "Feedback Control of
/// Computing Systems", 2004; also QeDB, section 4.3.1).
pub const R2_ACCEPTED: f64 = 0.8;

/// An ARX model, by construction consistent in its dimensions and free of NaN and infinities.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
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

/// How well a model explains the record that it comes from. One entry per output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// R^2 = 1 - var(one-step prediction error) / var(output); 1 is perfect, 0 no better than the mean.
    pub r2: Vec<f64>,
    /// Standard deviation of the one-step prediction error, in the output's unit.
    pub residual_std: Vec<f64>,
    /// Rows of the record.
    pub samples: usize,
}

/// The parts of an [`ArxModel`] before they are checked against each other.
#[derive(Deserialize)]
struct Unchecked {
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

/// Parts that do not make up a model, or data that does not fit it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ArxError {
    /// A model needs at least one input, one output, one A and one B.
    #[error("the model has no {what}: it needs at least one")]
    Missing {
        /// What is missing.
        what: &'static str,
    },
    /// Something has the wrong size.
    #[error("{what} is {got} but the model's names ask for {needed}")]
    Size {
        /// What has the wrong size.
        what: String,
        /// Its size.
        got: Size,
        /// The size that fits.
        needed: Size,
    },
    /// A NaN or an infinity.
    #[error("{what} holds {value}: every number of a model must be finite")]
    NotFinite {
        /// Where it was found.
        what: String,
        /// The value found.
        value: f64,
    },
    /// An input that the model does not have.
    #[error("the model has {inputs} inputs, none of them number {input} (counted from 0)")]
    NoInput {
        /// The input asked for, from 0.
        input: usize,
        /// Inputs of the model.
        inputs: usize,
    },
    /// Outputs and inputs given to a prediction are not records of equal length.
    #[error("{got} rows of {what}, but at least {needed} are needed")]
    TooShort {
        /// Rows of what.
        what: &'static str,
        /// Rows given.
        got: usize,
        /// Rows needed.
        needed: usize,
    },
}

/// Rows and columns of a matrix; a vector has one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.rows, self.columns)
    }
}

/// An output that the model does not explain well enough to control it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "the model explains `{output}` with R^2 = {r2:.3}, below {minimum}: excite the knobs over a wider range, record \
     for longer, or raise the order"
)]
pub struct PoorFit {
    /// Name of the output.
    pub output: String,
    /// Its R^2.
    pub r2: f64,
    /// The R^2 asked for.
    pub minimum: f64,
}

impl ArxModel {
    /// A model from known matrices, for a system in a textbook or a paper: operating point zero, no drift, no fit.
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
    /// [`ArxError`] if something is missing, of the wrong size, or not finite.
    pub fn from_matrices(
        inputs: Vec<String>,
        outputs: Vec<String>,
        a: Vec<DMatrix<f64>>,
        b: Vec<DMatrix<f64>>,
    ) -> Result<ArxModel, ArxError> {
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

    /// The model around another operating point and with what is known about its fit.
    ///
    /// # Errors
    /// [`ArxError`] if a length does not fit or a number is not finite.
    pub(crate) fn identified(
        self,
        u0: Vec<f64>,
        y0: Vec<f64>,
        drift: Vec<f64>,
        fit: Fit,
    ) -> Result<ArxModel, ArxError> {
        ArxModel {
            u0,
            y0,
            drift,
            fit: Some(fit),
            ..self
        }
        .checked()
    }

    /// The same model with the effects of all inputs times `factor`: what a wrong model looks like, for tests of what
    /// becomes of a loop around it. A factor that makes them infinite leaves them as they are.
    pub fn with_gain(&self, factor: f64) -> ArxModel {
        let scaled = ArxModel {
            b: self.b.iter().map(|b| b * factor).collect(),
            ..self.clone()
        };
        scaled.checked().unwrap_or_else(|_| self.clone())
    }

    /// The same machine with other first-order dynamics, around an equilibrium: no drift.
    ///
    /// # Errors
    /// [`ArxError`] if a size does not fit or a number is not finite.
    pub(crate) fn with_dynamics(
        &self,
        a: DMatrix<f64>,
        b: DMatrix<f64>,
        y0: Vec<f64>,
        fit: Option<Fit>,
    ) -> Result<ArxModel, ArxError> {
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

    /// The same model with one knob only, the others held at the operating point. What the fit says stays as it was
    /// identified: with all knobs.
    ///
    /// # Errors
    /// [`ArxError::NoInput`] if there is no such input.
    pub fn with_input(&self, input: usize) -> Result<ArxModel, ArxError> {
        if input >= self.inputs.len() {
            let inputs = self.inputs.len();
            return Err(ArxError::NoInput { input, inputs });
        }
        ArxModel {
            inputs: vec![self.inputs[input].clone()],
            u0: vec![self.u0[input]],
            b: self.b.iter().map(|b| b.columns(input, 1).into_owned()).collect(),
            ..self.clone()
        }
        .checked()
    }

    /// Names of the knobs.
    pub fn inputs(&self) -> &[String] {
        &self.inputs
    }

    /// Names of the meters.
    pub fn outputs(&self) -> &[String] {
        &self.outputs
    }

    /// A_1 .. A_na: what outputs one, two .. samples ago contribute. Never empty.
    pub fn a(&self) -> &[DMatrix<f64>] {
        &self.a
    }

    /// B_1 .. B_nb: what inputs one, two .. samples ago contribute. Never empty.
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

    /// What the outputs move by per sample at the operating point; zero if it is an equilibrium.
    pub fn drift(&self) -> &[f64] {
        &self.drift
    }

    /// How well the model explains its record; `None` if it was written down rather than identified.
    pub fn fit(&self) -> Option<&Fit> {
        self.fit.as_ref()
    }

    /// Rows of the past that a prediction needs: the larger one of na and nb.
    pub fn order(&self) -> usize {
        self.a.len().max(self.b.len())
    }

    /// Accepts a model whose every output is explained with at least `minimum` (see [`R2_ACCEPTED`]). A model without a
    /// fit is accepted: its author vouches for it.
    ///
    /// # Errors
    /// [`PoorFit`] for the worst output below the minimum; a NaN counts as below.
    pub fn check_fit(&self, minimum: f64) -> Result<(), PoorFit> {
        let r2 = self.fit.iter().flat_map(|fit| fit.r2.iter().copied());
        match self
            .outputs
            .iter()
            .zip(r2)
            .filter(|(_, r2)| r2.is_nan() || *r2 < minimum)
            .min_by(|x, y| x.1.total_cmp(&y.1))
        {
            Some((output, r2)) => Err(PoorFit {
                output: output.clone(),
                r2,
                minimum,
            }),
            None => Ok(()),
        }
    }

    /// One-step predictions: row k holds y(k) as foretold from the measured rows before it. Rows are absolute values;
    /// the first [`order`](Self::order) rows, which cannot be foretold, are left out of the result.
    ///
    /// # Errors
    /// [`ArxError`] if a row has the wrong length or there are fewer rows of `u` than of `y`.
    pub fn predict(&self, y: &[Vec<f64>], u: &[Vec<f64>]) -> Result<Vec<Vec<f64>>, ArxError> {
        self.check_rows(y, u)?;
        if u.len() < y.len() {
            return Err(ArxError::TooShort {
                what: "inputs",
                got: u.len(),
                needed: y.len(),
            });
        }
        Ok((self.order()..y.len()).map(|k| self.next(&y[..k], &u[..k])).collect())
    }

    /// Free run: the outputs that follow from `start` (the first [`order`](Self::order) rows) and the inputs alone.
    /// The result begins with `start` and has as many rows as `u`. Rows are absolute values.
    ///
    /// # Errors
    /// [`ArxError`] if a row has the wrong length or `start` or `u` has fewer rows than the order.
    pub fn simulate(&self, start: &[Vec<f64>], u: &[Vec<f64>]) -> Result<Vec<Vec<f64>>, ArxError> {
        self.check_rows(start, u)?;
        let needed = self.order();
        for (what, got) in [("starting outputs", start.len()), ("inputs", u.len())] {
            if got < needed {
                return Err(ArxError::TooShort { what, got, needed });
            }
        }
        let mut y = start[..needed].to_vec();
        while y.len() < u.len() {
            y.push(self.next(&y, &u[..y.len()]));
        }
        Ok(y)
    }

    /// A hash of everything a controller depends on: names, orders, matrices and operating point. The fit is left
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

    /// y(k) from the outputs and inputs before k, most recent last. Both slices end at row k - 1 and are long enough.
    fn next(&self, y: &[Vec<f64>], u: &[Vec<f64>]) -> Vec<f64> {
        let mut next: Vec<f64> = self.y0.iter().zip(&self.drift).map(|(y0, drift)| y0 + drift).collect();
        add_products(&mut next, &self.a, y, &self.y0);
        add_products(&mut next, &self.b, u, &self.u0);
        next
    }

    fn check_rows(&self, y: &[Vec<f64>], u: &[Vec<f64>]) -> Result<(), ArxError> {
        for (what, rows, needed) in [("outputs", y, self.outputs.len()), ("inputs", u, self.inputs.len())] {
            if let Some(k) = rows.iter().position(|row| row.len() != needed) {
                let what = format!("row {k} of the {what}");
                return Err(ArxError::Size {
                    what,
                    got: vector(rows[k].len()),
                    needed: vector(needed),
                });
            }
        }
        Ok(())
    }

    fn checked(self) -> Result<ArxModel, ArxError> {
        let (nu, ny) = (self.inputs.len(), self.outputs.len());
        for (what, count) in [("input", nu), ("output", ny), ("A", self.a.len()), ("B", self.b.len())] {
            if count == 0 {
                return Err(ArxError::Missing { what });
            }
        }
        for (letter, matrices, columns) in [("A", &self.a, ny), ("B", &self.b, nu)] {
            for (i, matrix) in matrices.iter().enumerate() {
                let got = Size {
                    rows: matrix.nrows(),
                    columns: matrix.ncols(),
                };
                check_part(
                    &format!("{letter}_{}", i + 1),
                    matrix.iter(),
                    got,
                    Size { rows: ny, columns },
                )?;
            }
        }
        for (what, values, needed) in [("u0", &self.u0, nu), ("y0", &self.y0, ny), ("drift", &self.drift, ny)] {
            check_part(what, values.iter(), vector(values.len()), vector(needed))?;
        }
        if let Some(fit) = &self.fit {
            for (what, values) in [("r2", &fit.r2), ("residual_std", &fit.residual_std)] {
                check_part(what, values.iter(), vector(values.len()), vector(ny))?;
            }
        }
        Ok(self)
    }
}

/// to += M_1 (x(k-1) - x0) + M_2 (x(k-2) - x0) + ..., where `past` ends with x(k-1).
fn add_products(to: &mut [f64], matrices: &[DMatrix<f64>], past: &[Vec<f64>], x0: &[f64]) {
    for (matrix, x) in matrices.iter().zip(past.iter().rev()) {
        for (row, sum) in to.iter_mut().enumerate() {
            *sum += x
                .iter()
                .zip(x0)
                .enumerate()
                .map(|(j, (x, x0))| matrix[(row, j)] * (x - x0))
                .sum::<f64>();
        }
    }
}

fn vector(rows: usize) -> Size {
    Size { rows, columns: 1 }
}

fn check_part<'a>(
    what: &str,
    mut values: impl Iterator<Item = &'a f64>,
    got: Size,
    needed: Size,
) -> Result<(), ArxError> {
    if got != needed {
        return Err(ArxError::Size {
            what: what.to_owned(),
            got,
            needed,
        });
    }
    match values.find(|v| !v.is_finite()) {
        Some(value) => Err(ArxError::NotFinite {
            what: what.to_owned(),
            value: *value,
        }),
        None => Ok(()),
    }
}

impl TryFrom<Unchecked> for ArxModel {
    type Error = ArxError;

    fn try_from(parts: Unchecked) -> Result<ArxModel, ArxError> {
        let Unchecked {
            inputs,
            outputs,
            a,
            b,
            u0,
            y0,
            drift,
            fit,
        } = parts;
        ArxModel {
            inputs,
            outputs,
            a,
            b,
            u0,
            y0,
            drift,
            fit,
        }
        .checked()
    }
}
