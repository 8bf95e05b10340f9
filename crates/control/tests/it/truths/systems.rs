//! Random systems and simulated plants for the tests.

use proptest::prelude::*;
use punctual_control::{ArxModel, ControlError, DMatrix};

/// A matrix with entries in -1..1.
pub fn matrix(rows: usize, columns: usize) -> impl Strategy<Value = DMatrix<f64>> {
    prop::collection::vec(-1.0..1.0, rows * columns).prop_map(move |v| DMatrix::from_vec(rows, columns, v))
}

/// A matrix L'L, symmetric positive semidefinite.
pub fn semidefinite(n: usize) -> impl Strategy<Value = DMatrix<f64>> {
    matrix(n, n).prop_map(|l| l.transpose() * l)
}

/// Names `prefix0`, `prefix1`, ..
pub fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{prefix}{i}")).collect()
}

/// A stable ARX model: the norms of the A_i sum up to less than 1, which is sufficient.
pub fn stable_arx(
    ny: std::ops::RangeInclusive<usize>,
    extra_inputs: std::ops::RangeInclusive<usize>,
    orders: std::ops::RangeInclusive<usize>,
) -> impl Strategy<Value = ArxModel> {
    (ny, extra_inputs, orders.clone(), orders).prop_flat_map(|(ny, extra, na, nb)| {
        let nu = ny + extra;
        let a = prop::collection::vec(matrix(ny, ny), na);
        let b = prop::collection::vec(matrix(ny, nu), nb);
        (a, b, 0.3..0.9).prop_map(move |(a, b, size)| {
            let total: f64 = a.iter().map(|m| m.norm()).sum::<f64>().max(1e-3);
            let a = a.iter().map(|m| m * (size / total)).collect();
            ArxModel::from_matrices(names("u", nu), names("y", ny), a, b).unwrap()
        })
    })
}

/// y(k) as `model` foretells it from the outputs and inputs before k, most recent last; absolute values.
pub fn foretold(model: &ArxModel, y: &[Vec<f64>], u: &[Vec<f64>]) -> Vec<f64> {
    let mut next: Vec<f64> = model
        .y0()
        .iter()
        .zip(model.drift())
        .map(|(y0, drift)| y0 + drift)
        .collect();
    for (matrices, past, origin) in [(model.a(), y, model.y0()), (model.b(), u, model.u0())] {
        for (matrix, row) in matrices.iter().zip(past.iter().rev()) {
            for (o, sum) in next.iter_mut().enumerate() {
                let products = row.iter().zip(origin).enumerate();
                *sum += products.map(|(i, (x, x0))| matrix[(o, i)] * (x - x0)).sum::<f64>();
            }
        }
    }
    next
}

/// One-step predictions of every row of `y` but the first ones, which cannot be foretold.
pub fn one_step_predictions(model: &ArxModel, y: &[Vec<f64>], u: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let rows = model.order()..y.len();
    rows.map(|k| foretold(model, &y[..k], &u[..k])).collect()
}

/// The outputs that follow from the first rows of `start` and the inputs alone, as many as `u`.
pub fn free_run(model: &ArxModel, start: &[Vec<f64>], u: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut y = start[..model.order()].to_vec();
    while y.len() < u.len() {
        y.push(foretold(model, &y, &u[..y.len()]));
    }
    y
}

/// Uniform numbers in -1..1 from a seed (xorshift64), for excitations and noise much longer than a shrinkable input.
pub struct Uniform(u64);

impl Uniform {
    pub fn new(seed: u64) -> Uniform {
        Uniform(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn draw(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    pub fn row(&mut self, length: usize) -> Vec<f64> {
        (0..length).map(|_| self.draw()).collect()
    }
}

/// y(k+1) = A y(k) + B u(k) + disturbance, absolute values: the plant that laws are tried on.
pub struct Plant {
    pub a: DMatrix<f64>,
    pub b: DMatrix<f64>,
    pub disturbance: Vec<f64>,
    pub y: Vec<f64>,
}

impl Plant {
    pub fn new(model: &ArxModel) -> Plant {
        let ny = model.outputs().len();
        Plant {
            a: model.a()[0].clone(),
            b: model.b()[0].clone(),
            disturbance: vec![0.0; ny],
            y: vec![0.0; ny],
        }
    }

    pub fn advance(&mut self, u: &[f64]) {
        let ny = self.y.len();
        let row = |o: usize| {
            let past: f64 = (0..ny).map(|j| self.a[(o, j)] * self.y[j]).sum();
            let moved: f64 = u.iter().enumerate().map(|(j, u)| self.b[(o, j)] * u).sum();
            past + moved + self.disturbance[o]
        };
        self.y = (0..ny).map(row).collect();
    }
}

/// Asserts that there is an error whose message has `words` in it.
#[track_caller]
pub fn refused_for<T: std::fmt::Debug>(words: &str, result: Result<T, ControlError>) {
    let message = result.unwrap_err().to_string();
    assert!(message.contains(words), "{message}");
}
