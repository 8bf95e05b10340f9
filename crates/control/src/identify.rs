//! Identification: fits the ARX model that explains a record best.
//!
//! **Problem.** The knobs of a running system were moved (see [`Excitation`](crate::Excitation)) and its meters read
//! once per sample. Find the matrices for which the one-step predictions miss the record by the least sum of squares.
//!
//! **Method.** Every row k of the record from max(na, nb) on is one linear equation for each output, in the
//! *regressors* y(k-1) .. y(k-na), u(k-1) .. u(k-nb); the outputs share the regressors, so one factorisation serves
//! them all. The columns are scaled to length 1 and factored X = QR by Householder reflections: the normal equations
//! X'X would square the condition number, and half of the digits would be gone. If the operating point is the mean of
//! the record, each column is centred by its own mean, which is the same as fitting a constant; it becomes the
//! model's drift.
//!
//! **Diagnosis.** The singular values of R are those of X. A tiny one means that some regressors are (almost) a
//! combination of others, so the record does not determine their coefficients; the right singular vector says which
//! regressors they are (Belsley, Kuh and Welsch, "Regression Diagnostics", 1980, chapter 3).

use nalgebra::{DMatrix, DVector};
use serde::{Deserialize, Serialize};

use crate::arx::{ArxModel, Fit};
use crate::error::{ControlError, refused, require};

/// Equations needed per coefficient of an output. With hardly more equations than coefficients every model fits, and
/// R^2 says nothing.
const EQUATIONS_PER_COEFFICIENT: usize = 2;

/// A column that varies by less than this, relative to its largest value, does not move.
const MOVES_FROM: f64 = 1e-12;

/// Scaled regressors with a singular value ratio below this are collinear: the coefficients would keep fewer than half
/// of their digits.
const INDEPENDENT_FROM: f64 = 1.5e-8;

/// Regressors with at least this part of the largest entry in the singular vector are named as collinear.
const NAMED_FROM: f64 = 0.05;

/// Bound on the iterations of the singular value decomposition, per column.
const ITERATIONS_PER_COLUMN: usize = 100;

/// Inputs applied to a system and outputs measured; one row per sample, equally spaced and without gaps.
///
/// Row k of `y` is measured at instant k; row k of `u` is applied from then until instant k + 1. So y(k+1) is the first
/// measurement to show u(k). Give the inputs that the machine really applied, not those requested.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// Names of the columns of `y`.
    pub outputs: Vec<String>,
    /// Names of the columns of `u`.
    pub inputs: Vec<String>,
    /// Measured outputs, absolute, one row per sample.
    pub y: Vec<Vec<f64>>,
    /// Applied inputs, absolute, one row per sample.
    pub u: Vec<Vec<f64>>,
}

/// Number of past samples that a model uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// Past outputs, at least 1.
    pub na: usize,
    /// Past inputs, at least 1.
    pub nb: usize,
}

impl Orders {
    /// First order, one past output and one past input: the model of QeDB.
    pub const FIRST: Orders = Orders { na: 1, nb: 1 };
}

/// The point around which the system is taken to be linear.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperatingPoint {
    /// The means of the record; a drift is fitted, because they need not be an equilibrium.
    Mean,
    /// A known equilibrium: no drift is fitted.
    Equilibrium {
        /// Inputs at the equilibrium.
        u0: Vec<f64>,
        /// Outputs at the equilibrium.
        y0: Vec<f64>,
    },
}

/// Fits the model of the given orders that explains `record` best.
///
/// ```
/// use punctual_control::{OperatingPoint, Orders, Recording, identify};
/// let (mut y, mut u) = (vec![vec![1.0]], vec![]);
/// for k in 0..40 {
///     u.push(vec![f64::from(k % 3)]);
///     y.push(vec![0.5 * y[k as usize][0] + 0.25 * u[k as usize][0]]);
/// }
/// y.pop(); // one row of each per sample
/// let record = Recording { outputs: vec!["delay".into()], inputs: vec!["load".into()], y, u };
/// let model = identify(&record, Orders::FIRST, &OperatingPoint::Mean).unwrap();
/// assert!((model.a()[0][(0, 0)] - 0.5).abs() < 1e-9 && (model.b()[0][(0, 0)] - 0.25).abs() < 1e-9);
/// assert!(model.check_fit(0.99).is_ok());
/// ```
///
/// # Errors
/// [`ControlError`] describes the defect of the record and where it is; a poor fit is not an error here, see
/// [`ArxModel::check_fit`].
pub fn identify(record: &Recording, orders: Orders, around: &OperatingPoint) -> Result<ArxModel, ControlError> {
    check_record(record, orders)?;
    let (u0, y0) = operating_point(record, around)?;
    let problem = Regression::new(record, orders, &u0, &y0);
    let (means_x, means_y) = match around {
        OperatingPoint::Mean => (column_means(&problem.x), column_means(&problem.y)),
        OperatingPoint::Equilibrium { .. } => (vec![0.0; problem.x.ncols()], vec![0.0; problem.y.ncols()]),
    };
    let x = shifted(&problem.x, &means_x);
    let y = shifted(&problem.y, &means_y);
    let coefficients = least_squares(&x, &y, |column| regressor_name(record, orders, column))?;
    let error = &y - &x * &coefficients;
    let fitted = coefficients.nrows() + usize::from(matches!(around, OperatingPoint::Mean));
    let fit = fit(&error, &problem.y, fitted, record.y.len());
    let explained = coefficients.tr_mul(&DVector::from_vec(means_x));
    let drift = means_y
        .iter()
        .zip(&explained)
        .map(|(mean, explained)| mean - explained)
        .collect();
    model(record, orders, &coefficients)?.identified(u0, y0, drift, fit)
}

/// The equations Y = X C: one row per predicted sample, deviations from the operating point.
struct Regression {
    /// Regressors: y(k-1) .. y(k-na), u(k-1) .. u(k-nb).
    x: DMatrix<f64>,
    /// Outputs to be explained: y(k).
    y: DMatrix<f64>,
}

impl Regression {
    fn new(record: &Recording, orders: Orders, u0: &[f64], y0: &[f64]) -> Regression {
        let (ny, nu) = (record.outputs.len(), record.inputs.len());
        let first = orders.na.max(orders.nb);
        let rows = record.y.len() - first;
        let past_outputs = orders.na * ny;
        let x = DMatrix::from_fn(rows, past_outputs + orders.nb * nu, |row, column| {
            let k = first + row;
            if column < past_outputs {
                let (lag, o) = (1 + column / ny, column % ny);
                record.y[k - lag][o] - y0[o]
            } else {
                let (lag, i) = (1 + (column - past_outputs) / nu, (column - past_outputs) % nu);
                record.u[k - lag][i] - u0[i]
            }
        });
        let y = DMatrix::from_fn(rows, ny, |row, o| record.y[first + row][o] - y0[o]);
        Regression { x, y }
    }
}

fn regressor_name(record: &Recording, orders: Orders, column: usize) -> String {
    let (ny, nu) = (record.outputs.len(), record.inputs.len());
    match column.checked_sub(orders.na * ny) {
        None => regressor(&record.outputs[column % ny], 1 + column / ny),
        Some(column) => regressor(&record.inputs[column % nu], 1 + column / nu),
    }
}

fn regressor(name: &str, lag: usize) -> String {
    format!("{name}(k-{lag})")
}

/// Finds the C with the least |Y - X C|, by QR of the scaled columns.
fn least_squares(
    x: &DMatrix<f64>,
    y: &DMatrix<f64>,
    name: impl Fn(usize) -> String,
) -> Result<DMatrix<f64>, ControlError> {
    let mut scaled = x.clone();
    let mut lengths = Vec::with_capacity(x.ncols());
    for mut column in scaled.column_iter_mut() {
        let length = column.norm();
        if length == 0.0 {
            return Err(badly_scaled());
        }
        column /= length;
        lengths.push(length);
    }
    let qr = scaled.qr();
    let r = qr.r();
    check_independent(&r, name)?;
    let mut projected = y.clone();
    qr.q_tr_mul(&mut projected);
    let mut coefficients = r
        .solve_upper_triangular(&projected.rows(0, x.ncols()).into_owned())
        .ok_or_else(badly_scaled)?;
    for (mut row, length) in coefficients.row_iter_mut().zip(&lengths) {
        row /= *length;
    }
    Ok(coefficients)
}

fn check_independent(r: &DMatrix<f64>, name: impl Fn(usize) -> String) -> Result<(), ControlError> {
    let svd = r
        .clone()
        .try_svd(false, true, f64::EPSILON, ITERATIONS_PER_COLUMN * r.ncols())
        .ok_or_else(badly_scaled)?;
    let v_t = svd.v_t.ok_or_else(badly_scaled)?;
    let smallest = svd.singular_values.imin();
    if svd.singular_values[smallest] >= INDEPENDENT_FROM * svd.singular_values.max() {
        return Ok(());
    }
    let direction = v_t.row(smallest);
    let named = NAMED_FROM * direction.amax();
    let regressors: Vec<String> = (0..r.ncols())
        .filter(|&j| direction[j].abs() >= named)
        .map(name)
        .collect();
    collinear(&regressors.join(", "))
}

/// Refuses `regressors` that are a combination of each other, or a single one that is constant.
fn collinear(regressors: &str) -> Result<(), ControlError> {
    refused(format!(
        "the effects of {regressors} cannot be distinguished from each other, or from a constant, in this record: \
         move the inputs independently, or lower the orders"
    ))
}

/// The numbers differ too much in size for a factorisation.
fn badly_scaled() -> ControlError {
    let what = "the least-squares problem is too badly scaled to be solved: bring the units of knobs and meters closer \
                to 1";
    ControlError::Refused(what.into())
}

/// Splits the coefficient columns (one per output) into A_i and B_j.
fn model(record: &Recording, orders: Orders, coefficients: &DMatrix<f64>) -> Result<ArxModel, ControlError> {
    let (ny, nu) = (record.outputs.len(), record.inputs.len());
    let block = |start: usize, width: usize| coefficients.rows(start, width).transpose();
    let a = (0..orders.na).map(|i| block(i * ny, ny)).collect();
    let b = (0..orders.nb).map(|j| block(orders.na * ny + j * nu, nu)).collect();
    ArxModel::from_matrices(record.inputs.clone(), record.outputs.clone(), a, b)
}

/// Measures the fit. `fitted` numbers per output were chosen to make `error` small, so the residual has that many
/// degrees of freedom less than rows.
fn fit(error: &DMatrix<f64>, y: &DMatrix<f64>, fitted: usize, samples: usize) -> Fit {
    let r2 = error
        .column_iter()
        .zip(y.column_iter())
        .map(|(e, y)| 1.0 - e.variance() / y.variance())
        .collect();
    let freedom = (error.nrows() - fitted) as f64;
    let residual_std = error
        .column_iter()
        .map(|e| (e.norm_squared() / freedom).sqrt())
        .collect();
    Fit {
        r2,
        residual_std,
        samples,
    }
}

fn column_means(m: &DMatrix<f64>) -> Vec<f64> {
    m.column_iter().map(|column| column.mean()).collect()
}

fn shifted(m: &DMatrix<f64>, by: &[f64]) -> DMatrix<f64> {
    DMatrix::from_fn(m.nrows(), m.ncols(), |i, j| m[(i, j)] - by[j])
}

fn operating_point(record: &Recording, around: &OperatingPoint) -> Result<(Vec<f64>, Vec<f64>), ControlError> {
    let OperatingPoint::Equilibrium { u0, y0 } = around else {
        return Ok((row_mean(&record.u), row_mean(&record.y)));
    };
    for (what, values, names) in [
        ("the operating point u0", u0, &record.inputs),
        ("the operating point y0", y0, &record.outputs),
    ] {
        check_row(what, values, names)?;
        check_finite(0, values, names)?;
    }
    Ok((u0.clone(), y0.clone()))
}

fn row_mean(rows: &[Vec<f64>]) -> Vec<f64> {
    let columns = rows.first().map_or(0, Vec::len);
    (0..columns)
        .map(|j| rows.iter().map(|row| row[j]).sum::<f64>() / rows.len() as f64)
        .collect()
}

fn check_record(record: &Recording, orders: Orders) -> Result<(), ControlError> {
    for (order, value) in [("na", orders.na), ("nb", orders.nb)] {
        require(value > 0, || {
            format!("{order} is 0: a model looks back on at least one output and one input")
        })?;
    }
    let (outputs, inputs) = (record.y.len(), record.u.len());
    require(outputs == inputs, || {
        format!("the record has {outputs} rows of outputs but {inputs} rows of inputs: one of each per sample")
    })?;
    for (what, names, rows) in [
        ("outputs", &record.outputs, &record.y),
        ("inputs", &record.inputs, &record.u),
    ] {
        require(!names.is_empty(), || {
            format!("the record has no {what}: name at least one")
        })?;
        for (k, row) in rows.iter().enumerate() {
            check_row(&format!("row {k} of the {what}"), row, names)?;
            check_finite(k, row, names)?;
        }
    }
    check_length(record, orders)?;
    check_movement(record, orders)
}

/// Checks that every output varies in the rows to be explained, and every regressor in the rows that explain. Centring
/// turns a constant column into rounding errors, and scaling would blow them up to a regressor.
fn check_movement(record: &Recording, orders: Orders) -> Result<(), ControlError> {
    if let Some(i) = first_constant(&record.u) {
        return refused(format!(
            "the input `{}` never moves: excite it, or leave it out of the model",
            record.inputs[i]
        ));
    }
    let (first, end) = (orders.na.max(orders.nb), record.y.len());
    if let Some(o) = first_constant(&record.y[first..]) {
        return refused(format!(
            "the output `{}` is constant: no knob reaches it at this operating point; move the point, or leave it out \
             of the model",
            record.outputs[o]
        ));
    }
    for (names, rows, lags) in [
        (&record.outputs, &record.y, orders.na),
        (&record.inputs, &record.u, orders.nb),
    ] {
        for lag in 1..=lags {
            if let Some(column) = first_constant(&rows[first - lag..end - lag]) {
                return collinear(&regressor(&names[column], lag));
            }
        }
    }
    Ok(())
}

fn check_length(record: &Recording, orders: Orders) -> Result<(), ControlError> {
    let Orders { na, nb } = orders;
    let coefficients = na
        .saturating_mul(record.outputs.len())
        .saturating_add(nb.saturating_mul(record.inputs.len()))
        .saturating_add(1);
    let needed = coefficients
        .saturating_mul(EQUATIONS_PER_COEFFICIENT)
        .saturating_add(na.max(nb));
    let samples = record.y.len();
    require(samples >= needed, || {
        format!(
            "the record has {samples} samples but orders na = {na}, nb = {nb} need at least {needed}: record for \
             longer, or lower the orders"
        )
    })
}

fn check_row(what: &str, row: &[f64], names: &[String]) -> Result<(), ControlError> {
    let (got, needed) = (row.len(), names.len());
    require(got == needed, || {
        format!("{what} has {got} values but {needed} are named")
    })
}

fn check_finite(row: usize, values: &[f64], names: &[String]) -> Result<(), ControlError> {
    match values.iter().zip(names).find(|(v, _)| !v.is_finite()) {
        Some((value, name)) => refused(format!(
            "`{name}` is {value} in row {row}: drop the periods in which nothing was measured, and record again \
             without gaps"
        )),
        None => Ok(()),
    }
}

fn first_constant(rows: &[Vec<f64>]) -> Option<usize> {
    let columns = rows.first().map_or(0, Vec::len);
    (0..columns).find(|&j| {
        let column = || rows.iter().map(|row| row[j]);
        let (low, high) = (
            column().fold(f64::INFINITY, f64::min),
            column().fold(f64::NEG_INFINITY, f64::max),
        );
        high - low <= MOVES_FROM * low.abs().max(high.abs())
    })
}
