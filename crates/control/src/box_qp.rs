//! Exact minimum of a small convex quadratic within limits.
//!
//! ```text
//! minimise 1/2 u'H u - g'u   subject to   lower <= u <= upper,   H symmetric positive definite
//! ```
//!
//! **Method.** Each knob is at its lower limit, at its upper limit, or free: for n knobs 3^n *faces* of the box, nine
//! for two. On each face the free knobs solve H_ff u_f = g_f - H_fp u_p. The minimiser of the whole problem lies inside
//! of one face and is the minimiser of that face's plane, so it is among the candidates; every candidate inside of the
//! box costs at least as much as it. So the cheapest candidate inside is the solution: no tolerance on multipliers, no
//! iteration that could fail to end. The corners are always candidates, so there is one.

/// Bound on the knobs: 27 faces.
pub(crate) const QP_KNOBS_MAX: usize = 3;

/// A candidate may leave the box by this part of the box's width, and is moved back: otherwise rounding would lose a
/// face's solution that lies on a limit.
const ROUNDING: f64 = 1e-12;

/// Values by knob; entries beyond the number of knobs are not used.
pub(crate) type Vector = [f64; QP_KNOBS_MAX];
/// Rows and columns by knob.
pub(crate) type Square = [Vector; QP_KNOBS_MAX];

/// Position of a knob on a face of the box.
#[derive(Clone, Copy, PartialEq)]
enum BoxFace {
    Lower,
    Upper,
    Free,
}

const PLACES: [BoxFace; 3] = [BoxFace::Free, BoxFace::Lower, BoxFace::Upper];

/// The minimiser for the first `n` knobs; n is at most [`QP_KNOBS_MAX`], `lower` nowhere above `upper`.
pub(crate) fn minimise(n: usize, h: &Square, g: &Vector, lower: &Vector, upper: &Vector) -> Vector {
    let mut best = *lower;
    let mut least = f64::INFINITY;
    for face in 0..3usize.pow(n as u32) {
        let Some(u) = on_face(n, face, h, g, lower, upper) else {
            continue;
        };
        let price = price(n, h, g, &u);
        if price < least {
            (best, least) = (u, price);
        }
    }
    best
}

/// The minimiser of the face's plane, if it lies within the box.
fn on_face(n: usize, face: usize, h: &Square, g: &Vector, lower: &Vector, upper: &Vector) -> Option<Vector> {
    let place = |i: usize| PLACES[face / 3usize.pow(i as u32) % 3];
    let mut u = [0.0; QP_KNOBS_MAX];
    let (mut free, mut count) = ([0; QP_KNOBS_MAX], 0);
    for i in 0..n {
        match place(i) {
            BoxFace::Lower => u[i] = lower[i],
            BoxFace::Upper => u[i] = upper[i],
            BoxFace::Free => {
                free[count] = i;
                count += 1;
            }
        }
    }
    let free = &free[..count];
    let mut rest = [0.0; QP_KNOBS_MAX];
    for (r, &i) in rest.iter_mut().zip(free) {
        *r = g[i]
            - (0..n)
                .filter(|&j| place(j) != BoxFace::Free)
                .map(|j| h[i][j] * u[j])
                .sum::<f64>();
    }
    solve(free, h, &mut rest)?;
    for (r, &i) in rest.iter().zip(free) {
        let slack = ROUNDING * (upper[i] - lower[i]);
        if !(*r >= lower[i] - slack && *r <= upper[i] + slack) {
            return None;
        }
        u[i] = r.clamp(lower[i], upper[i]);
    }
    Some(u)
}

/// Replaces x by the solution of H_ff x = x for the free knobs, by Cholesky's H = L L'. `None` if H is not positive
/// definite.
fn solve(free: &[usize], h: &Square, x: &mut Vector) -> Option<()> {
    let mut l: Square = [[0.0; QP_KNOBS_MAX]; QP_KNOBS_MAX];
    for r in 0..free.len() {
        for c in 0..=r {
            let left = h[free[r]][free[c]] - (0..c).map(|k| l[r][k] * l[c][k]).sum::<f64>();
            if r > c {
                l[r][c] = left / l[c][c];
            } else if left > 0.0 {
                l[r][r] = left.sqrt();
            } else {
                return None;
            }
        }
    }
    for r in 0..free.len() {
        x[r] = (x[r] - (0..r).map(|k| l[r][k] * x[k]).sum::<f64>()) / l[r][r];
    }
    for r in (0..free.len()).rev() {
        x[r] = (x[r] - (r + 1..free.len()).map(|k| l[k][r] * x[k]).sum::<f64>()) / l[r][r];
    }
    Some(())
}

/// The objective at `u`: 1/2 u'H u - g'u.
fn price(n: usize, h: &Square, g: &Vector, u: &Vector) -> f64 {
    (0..n)
        .map(|i| u[i] * (0.5 * (0..n).map(|j| h[i][j] * u[j]).sum::<f64>() - g[i]))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// H = L L' + 0.01 I and a box around anywhere.
    fn problem() -> impl Strategy<Value = (usize, Square, Vector, Vector, Vector)> {
        let vector = || prop::array::uniform3(-2.0..2.0f64);
        (
            1..=QP_KNOBS_MAX,
            prop::array::uniform3(vector()),
            vector(),
            vector(),
            prop::array::uniform3(0.0..2.0f64),
        )
            .prop_map(|(n, l, g, lower, width)| {
                let mut h: Square = [[0.0; 3]; 3];
                let mut upper = lower;
                for i in 0..3 {
                    upper[i] += width[i];
                    for j in 0..3 {
                        h[i][j] = (0..3).map(|k| l[i][k] * l[j][k]).sum::<f64>() + if i == j { 0.01 } else { 0.0 };
                    }
                }
                (n, h, g, lower, upper)
            })
    }

    proptest! {
        /// The conditions of Karush, Kuhn and Tucker, which for a convex problem say all: the slope is zero in a free
        /// knob, and points out of the box in one at a limit.
        #[test]
        fn the_slope_points_out_of_the_box((n, h, g, lower, upper) in problem()) {
            let u = minimise(n, &h, &g, &lower, &upper);
            for i in 0..n {
                let slope = (0..n).map(|j| h[i][j] * u[j]).sum::<f64>() - g[i];
                prop_assert!(u[i] >= lower[i] && u[i] <= upper[i]);
                if u[i] > lower[i] {
                    prop_assert!(slope < 1e-6, "could go down in {i}: {slope}");
                }
                if u[i] < upper[i] {
                    prop_assert!(slope > -1e-6, "could go up in {i}: {slope}");
                }
            }
        }

        #[test]
        fn nothing_else_in_the_box_is_cheaper(
            (n, h, g, lower, upper) in problem(),
            at in prop::array::uniform3(0.0..1.0f64),
        ) {
            let u = minimise(n, &h, &g, &lower, &upper);
            let other = [0, 1, 2].map(|i| lower[i] + at[i] * (upper[i] - lower[i]));
            prop_assert!(price(n, &h, &g, &u) <= price(n, &h, &g, &other) + 1e-9);
        }
    }
}
