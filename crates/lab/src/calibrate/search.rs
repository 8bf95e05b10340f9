//! Minimisation without derivatives, in a box: Nelder and Mead's simplex (The Computer Journal 7(4), 1965) with the
//! dimension-dependent coefficients of Gao and Han (Computational Optimization and Applications 51, 2012), begun
//! anew around the best point whenever it has contracted.
//!
//! **Why this one.** A candidate is judged by simulated runs, whose events make the sum of squares jump a little everywhere:
//! differences for a gradient would measure those jumps. There are few free parameters, and a run costs milliseconds.
//!
//! **The box.** The simplex moves in the whole space, and the objective is mirrored at the faces of the box: a point beyond
//! a face is asked as its mirror image. Clamping would flatten the simplex into a face, and no step raises it from there.

/// Edge of the first simplex of a search that knows nothing, as a share of the box. Each further round begins with half of
/// the edge before.
pub const EDGE: f64 = 0.25;
/// The smallest edge that a round begins with.
const EDGE_MIN: f64 = 0.01;
/// A round ends when its simplex is this small.
const SIZE_MIN: f64 = 1e-4;
/// The search ends when this many rounds in succession have lowered the best value by less than [`GAIN_MIN`] of it.
const ROUNDS_IDLE: usize = 2;
/// See [`ROUNDS_IDLE`].
const GAIN_MIN: f64 = 1e-4;

/// What a search has found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The best point, each coordinate in [0, 1].
    pub at: Vec<f64>,
    /// The objective there.
    pub value: f64,
    /// How often the objective was asked.
    pub evaluations: usize,
}

/// A point, not yet folded into the box, and the objective's value there.
#[derive(Clone, Debug, PartialEq)]
struct Vertex {
    at: Vec<f64>,
    value: f64,
}

/// Looks for the minimum of `objective` over the unit box from `start`, with a first simplex of this `edge` (0 to 1), asking at
/// most `evaluations_max` times (at least once). What is not a number counts as infinitely bad.
///
/// The same objective and start give the same answer, to the last bit.
pub fn minimise(objective: impl FnMut(&[f64]) -> f64, start: &[f64], edge: f64, evaluations_max: usize) -> Found {
    let mut judge = Judge {
        objective,
        evaluations: 0,
        evaluations_max,
    };
    let mut best = judge.vertex(start.to_vec());
    let (mut edge, mut idle) = (edge, 0);
    while !start.is_empty() && idle < ROUNDS_IDLE && judge.may_ask() {
        let found = round(&mut judge, &best, edge);
        let gained = best.value - found.value > GAIN_MIN * best.value.abs();
        idle = if gained { 0 } else { idle + 1 };
        if found.value < best.value {
            best = found;
        }
        edge = (edge / 2.0).max(EDGE_MIN);
    }
    Found {
        at: fold(&best.at),
        value: best.value,
        evaluations: judge.evaluations,
    }
}

/// The objective and what may still be asked of it.
struct Judge<F> {
    objective: F,
    evaluations: usize,
    evaluations_max: usize,
}

impl<F: FnMut(&[f64]) -> f64> Judge<F> {
    fn may_ask(&self) -> bool {
        self.evaluations < self.evaluations_max
    }

    /// The vertex at this point.
    fn vertex(&mut self, at: Vec<f64>) -> Vertex {
        self.evaluations += 1;
        let value = (self.objective)(&fold(&at));
        let value = if value.is_nan() { f64::INFINITY } else { value };
        Vertex { at, value }
    }
}

/// Mirrors a point at the faces of the unit box, as often as it takes to be inside.
fn fold(at: &[f64]) -> Vec<f64> {
    let mirrored = |x: &f64| {
        let x = x.rem_euclid(2.0);
        if x > 1.0 { 2.0 - x } else { x }
    };
    at.iter().map(mirrored).collect()
}

/// One simplex, from its first size until it has contracted or nothing more may be asked; its best vertex.
fn round<F: FnMut(&[f64]) -> f64>(judge: &mut Judge<F>, best: &Vertex, edge: f64) -> Vertex {
    let n = best.at.len();
    let mut simplex = vec![best.clone()];
    for axis in 0..n {
        if !judge.may_ask() {
            break;
        }
        let mut at = best.at.clone();
        at[axis] += if at[axis] < 0.5 { edge } else { -edge };
        simplex.push(judge.vertex(at));
    }
    sort(&mut simplex);
    while simplex.len() == n + 1 && judge.may_ask() && size(&simplex) > SIZE_MIN {
        step(judge, &mut simplex);
        sort(&mut simplex);
    }
    simplex.swap_remove(0)
}

/// Replaces the worst vertex, or shrinks the whole simplex; `simplex` is sorted, the best first.
///
/// With x_w the worst vertex and x_o the centroid of the others, the candidates lie at x_o + t (x_o - x_w).
fn step<F: FnMut(&[f64]) -> f64>(judge: &mut Judge<F>, simplex: &mut [Vertex]) {
    let n = simplex.len() - 1;
    let dimension = n as f64;
    // Gao and Han, section 3. In one dimension their contraction would be to the centroid itself; Nelder and Mead's is used.
    let expansion = 1.0 + 2.0 / dimension;
    let contraction = if n == 1 { 0.5 } else { 0.75 - 0.5 / dimension };
    let shrinkage = if n == 1 { 0.5 } else { 1.0 - 1.0 / dimension };

    let (worst, others) = (&simplex[n], &simplex[..n]);
    let centroid: Vec<f64> = (0..n)
        .map(|axis| others.iter().map(|vertex| vertex.at[axis]).sum::<f64>() / dimension)
        .collect();
    let along = |t: f64| -> Vec<f64> {
        let from_worst = centroid.iter().zip(&worst.at);
        from_worst
            .map(|(centre, worst)| centre + t * (centre - worst))
            .collect()
    };

    let reflected = judge.vertex(along(1.0));
    let better = if reflected.value < simplex[0].value && judge.may_ask() {
        let expanded = judge.vertex(along(expansion));
        let further = expanded.value < reflected.value;
        Some(if further { expanded } else { reflected })
    } else if reflected.value < simplex[n - 1].value {
        Some(reflected)
    } else if judge.may_ask() {
        let outside = reflected.value < worst.value;
        let contracted = judge.vertex(along(if outside { contraction } else { -contraction }));
        (contracted.value < reflected.value.min(worst.value)).then_some(contracted)
    } else {
        None
    };
    if let Some(better) = better {
        simplex[n] = better;
        return;
    }
    let best = simplex[0].at.clone();
    for vertex in &mut simplex[1..] {
        if !judge.may_ask() {
            return;
        }
        let towards = best.iter().zip(&vertex.at);
        let at = towards.map(|(best, own)| best + shrinkage * (own - best)).collect();
        *vertex = judge.vertex(at);
    }
}

/// The best first; equal values keep their order.
fn sort(simplex: &mut [Vertex]) {
    simplex.sort_by(|a, b| a.value.total_cmp(&b.value));
}

/// The greatest distance of a vertex from the best one along an axis.
fn size(simplex: &[Vertex]) -> f64 {
    let (best, others) = (&simplex[0], &simplex[1..]);
    let distances = others.iter().flat_map(|vertex| vertex.at.iter().zip(&best.at));
    distances.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Squared distance from `minimum`, stretched differently along each axis.
    fn bowl(minimum: &[f64]) -> impl Fn(&[f64]) -> f64 + '_ {
        move |at| {
            let axes = at.iter().zip(minimum).enumerate();
            axes.map(|(i, (x, m))| (1.0 + i as f64) * (x - m) * (x - m)).sum()
        }
    }

    /// Rosenbrock's curved valley (The Computer Journal 3(3), 1960) over [-2, 2] squared: its minimum, 0, is at (1, 1).
    fn rosenbrock(at: &[f64]) -> f64 {
        let [x, y] = [4.0 * at[0] - 2.0, 4.0 * at[1] - 2.0];
        (1.0 - x).powi(2) + 100.0 * (y - x * x).powi(2)
    }

    #[test]
    fn the_curved_valley_is_followed_to_its_end() {
        let found = minimise(rosenbrock, &[0.2, 0.75], EDGE, 2000);
        assert!(found.value < 1e-6, "{found:?}");
        assert!(found.at.iter().all(|x| (x - 0.75).abs() < 1e-3), "{found:?}");
    }

    #[test]
    fn a_minimum_on_the_edge_of_the_box_is_found() {
        // The slope leads out of the box at x = 1 and y = 0; along z there is a minimum within.
        let slope = |at: &[f64]| 2.0 - at[0] + at[1] + (at[2] - 0.3).powi(2);
        let found = minimise(slope, &[0.5, 0.5, 0.5], EDGE, 1000);
        assert!((found.value - 1.0).abs() < 1e-4, "{found:?}");
    }

    #[test]
    fn small_jumps_everywhere_do_not_stop_it() {
        let stairs = |at: &[f64]| (bowl(&[0.37, 0.62])(at) / 1e-4).floor() * 1e-4;
        let found = minimise(stairs, &[0.9, 0.1], EDGE, 1000);
        assert!(found.value <= 2e-4, "{found:?}");
    }

    #[test]
    fn what_is_not_a_number_is_avoided() {
        let cliff = |at: &[f64]| if at[0] < 0.4 { f64::NAN } else { at[0] };
        let found = minimise(cliff, &[0.9], EDGE, 300);
        assert!(found.value < 0.41, "{found:?}");
        assert_eq!(minimise(|_| f64::NAN, &[0.5], EDGE, 10).value, f64::INFINITY);
    }

    #[test]
    fn nothing_to_choose_is_one_question() {
        let found = minimise(|_| 7.0, &[], EDGE, 100);
        assert_eq!((found.value, found.evaluations), (7.0, 1));
    }

    proptest! {
        #[test]
        fn a_bowl_has_its_minimum_where_it_is(minimum in prop::collection::vec(0.0f64..=1.0, 1..=6), start in prop::array::uniform6(0.0f64..=1.0)) {
            let found = minimise(bowl(&minimum), &start[..minimum.len()], EDGE, 4000);
            prop_assert!(found.value < 1e-5, "{found:?} for {minimum:?}");
        }

        #[test]
        fn the_best_of_all_that_was_asked_is_returned_within_box_and_budget(
            minimum in prop::collection::vec(-0.5f64..1.5, 1..=5), start in prop::array::uniform5(0.0f64..=1.0), budget in 1usize..200,
        ) {
            let mut asked: Vec<(Vec<f64>, f64)> = Vec::new();
            let objective = |at: &[f64]| {
                let value = bowl(&minimum)(at);
                asked.push((at.to_vec(), value));
                value
            };
            let found = minimise(objective, &start[..minimum.len()], EDGE, budget);
            prop_assert!(asked.len() <= budget && asked.len() == found.evaluations);
            prop_assert!(asked.iter().all(|(at, _)| at.iter().all(|x| (0.0..=1.0).contains(x))));
            let least = asked.iter().map(|(_, value)| *value).fold(f64::INFINITY, f64::min);
            prop_assert_eq!(found.value, least);
            prop_assert!(asked.contains(&(found.at, found.value)));
        }
    }
}
