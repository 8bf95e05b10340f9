//! The first-order (state-space) form of an ARX model.
//!
//! ```text
//! x(k+1) = A x(k) + B u(k),   y(k) = C x(k),   x(k) = [y(k); ..; y(k-na+1); u(k-1); ..; u(k-nb+1)]
//! ```
//!
//! The state consists of measured and applied values, so it needs no observer; that is worth more here than the minimal
//! dimension. All values are deviations from the operating point, and the drift is left out. For na = nb = 1 the
//! matrices are A_1, B_1 and the identity. The past inputs only pass through: their modes are 0, so they never endanger
//! stability.

use nalgebra::DMatrix;

use crate::arx::ArxModel;

/// A linear system of first order.
#[derive(Clone, Debug, PartialEq)]
pub struct StateSpace {
    /// A, the state's own dynamics; n x n with n = na ny + (nb - 1) nu.
    pub a: DMatrix<f64>,
    /// B, the effect of the inputs on the state; n x nu.
    pub b: DMatrix<f64>,
    /// C, the outputs within the state; ny x n.
    pub c: DMatrix<f64>,
}

impl From<&ArxModel> for StateSpace {
    /// Builds the block companion form: the blocks of the first row come from the model, with shifts below.
    fn from(model: &ArxModel) -> StateSpace {
        let (ny, nu) = (model.outputs().len(), model.inputs().len());
        let (na, nb) = (model.a().len(), model.b().len());
        let past_inputs = na * ny;
        let n = past_inputs + (nb - 1) * nu;
        let (mut a, mut b, mut c) = (DMatrix::zeros(n, n), DMatrix::zeros(n, nu), DMatrix::zeros(ny, n));
        for (i, block) in model.a().iter().enumerate() {
            a.view_mut((0, i * ny), (ny, ny)).copy_from(block);
        }
        for (j, block) in model.b()[1..].iter().enumerate() {
            a.view_mut((0, past_inputs + j * nu), (ny, nu)).copy_from(block);
        }
        // y(k) shifts to y(k-1), and so on; u(k) enters the first past input, which shifts to the second, and so on.
        shift(&mut a, 0, ny, na);
        shift(&mut a, past_inputs, nu, nb - 1);
        b.view_mut((0, 0), (ny, nu)).copy_from(&model.b()[0]);
        if nb > 1 {
            b.view_mut((past_inputs, 0), (nu, nu)).fill_with_identity();
        }
        c.view_mut((0, 0), (ny, ny)).fill_with_identity();
        StateSpace { a, b, c }
    }
}

/// Makes each of the `blocks` blocks of `width` rows from `start` on, but the first, take the value of its predecessor.
fn shift(a: &mut DMatrix<f64>, start: usize, width: usize, blocks: usize) {
    for row in width..width * blocks {
        a[(start + row, start + row - width)] = 1.0;
    }
}
