//! A first guess of which points are alike: k-means from seeded centres.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::points::{Points, square_distance};

/// Rounds of k-means, at most; it is a start, not a result.
const ROUNDS_MAX: usize = 50;

/// A label for each point, below `kinds`: k-means (Lloyd) from centres that are drawn one by one with a probability in
/// proportion to the squared distance from those before (k-means++: Arthur and Vassilvitskii, SODA 2007).
///
/// `None` where fewer than `kinds` points differ.
pub fn start(points: &Points, kinds: usize, seed: u64) -> Option<Vec<usize>> {
    let mut centres = centres(points, kinds, seed)?;
    let mut labels = vec![usize::MAX; points.len()];
    for _ in 0..ROUNDS_MAX {
        let nearest: Vec<usize> = points.iter().map(|point| nearest(point, &centres)).collect();
        if nearest == labels {
            break;
        }
        labels = nearest;
        for (kind, centre) in centres.iter_mut().enumerate() {
            let mut members = (0..points.len()).filter(|i| labels[*i] == kind).peekable();
            // A centre without points stays where it is.
            if members.peek().is_some() {
                *centre = points.mean(members);
            }
        }
    }
    Some(labels)
}

fn centres(points: &Points, kinds: usize, seed: u64) -> Option<Vec<Vec<f64>>> {
    if points.is_empty() || kinds == 0 {
        return None;
    }
    let mut draws = ChaCha8Rng::seed_from_u64(seed);
    let mut centres = vec![points.point(draws.random_range(0..points.len())).to_vec()];
    let mut distances: Vec<f64> = points.iter().map(|point| square_distance(point, &centres[0])).collect();
    while centres.len() < kinds {
        let sum: f64 = distances.iter().sum();
        if !(sum > 0.0 && sum.is_finite()) {
            return None;
        }
        let mut left = draws.random_range(0.0..sum);
        // Rounding may leave a rest after all points: then the last point that is no centre yet is drawn.
        let mut drawn = distances.iter().rposition(|distance| *distance > 0.0)?;
        for (i, distance) in distances.iter().enumerate() {
            if left < *distance {
                drawn = i;
                break;
            }
            left -= distance;
        }
        let centre = points.point(drawn).to_vec();
        for (distance, point) in distances.iter_mut().zip(points.iter()) {
            *distance = distance.min(square_distance(point, &centre));
        }
        centres.push(centre);
    }
    Some(centres)
}

/// Index of the centre nearest to `point`; of equally near ones the first.
fn nearest(point: &[f64], centres: &[Vec<f64>]) -> usize {
    let mut best = (0, f64::INFINITY);
    for (number, centre) in centres.iter().enumerate() {
        let distance = square_distance(point, centre);
        if distance < best.1 {
            best = (number, distance);
        }
    }
    best.0
}
