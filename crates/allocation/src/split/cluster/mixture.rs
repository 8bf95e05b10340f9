//! A mixture of Gaussians, fitted by expectation-maximisation.
//!
//! **Method** (Dempster, Laird and Rubin, JRSS B 39, 1977). With weights w, means mu and covariances S, the
//! *expectation* r(i, j) = w_j N(x_i; mu_j, S_j) / sum over l of w_l N(x_i; mu_l, S_l) is the probability that point i
//! is of kind j; the *maximisation* takes weights, means and covariances of the points weighted by it. Densities are
//! kept as logarithms and summed by their largest term: a point far from every kind has a density that underflows, and
//! would otherwise be of no kind or of any. To every covariance a small multiple of the identity is added, so that a
//! kind whose points coincide keeps a density.

use std::f64::consts::PI;

use super::points::Points;

/// Added to the diagonal of every covariance; features have variance 1.
const FLOOR: f64 = 1e-6;
/// The mean log-likelihood of a point has converged when a step changes it by less.
const CONVERGED: f64 = 1e-3;
/// Steps of a fit, at most; one that has not converged by then is as good a candidate as its likelihood says.
const STEPS_MAX: usize = 100;
/// The exponential of less than this is 0 in a double.
const UNDERFLOWS: f64 = -746.0;
/// Weight that a kind without points keeps: its mean is then defined, and its density next to nothing.
const EMPTY: f64 = 10.0 * f64::EPSILON;

/// Kinds of points with their shares, means and covariances.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixture {
    pub(super) kinds: Vec<MixtureComponent>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct MixtureComponent {
    pub(super) weight: f64,
    pub(super) mean: Vec<f64>,
    /// The inverse of the covariance's lower Cholesky factor, by rows: it turns distances into standard deviations.
    pub(super) whitening: Vec<f64>,
    /// ln(weight) - ln(det(covariance)) / 2 - ln(2 pi) dimensions / 2.
    offset: f64,
}

/// Result of fitting a mixture.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    pub mixture: Mixture,
    /// Mean logarithm of the points' density before the last step.
    pub log_likelihood: f64,
    /// Steps of the fit, 1..=`STEPS_MAX`.
    pub steps: usize,
    /// Whether the last step changed `log_likelihood` by less than `CONVERGED`.
    pub converged: bool,
}

impl Mixture {
    /// Fits a mixture of `kinds` kinds to `points`, beginning with a first guess of each point's kind.
    ///
    /// # Panics
    /// If a label is not below `kinds`, or there is not one for each point.
    pub fn fit(points: &Points, labels: &[usize], kinds: usize) -> Fit {
        assert_eq!(labels.len(), points.len(), "a label for each point");
        // By kind, and then by point: both steps go through the points of one kind after the other.
        let mut responsibilities = vec![0.0; points.len() * kinds];
        for (i, label) in labels.iter().enumerate() {
            responsibilities[label * points.len() + i] = 1.0;
        }
        let mut labels = labels.to_vec();
        let mut mixture = Mixture::maximise(points, &responsibilities, kinds);
        let mut likelihood = f64::NEG_INFINITY;
        for step in 1..=STEPS_MAX {
            let before = likelihood;
            likelihood = mixture.expect(points, &mut labels, &mut responsibilities);
            mixture = Mixture::maximise(points, &responsibilities, kinds);
            if (likelihood - before).abs() < CONVERGED {
                return Fit {
                    mixture,
                    log_likelihood: likelihood,
                    steps: step,
                    converged: true,
                };
            }
        }
        Fit {
            mixture,
            log_likelihood: likelihood,
            steps: STEPS_MAX,
            converged: false,
        }
    }

    /// The most likely kind of `point`; of equally likely ones the first.
    pub fn label(&self, point: &[f64]) -> usize {
        let mut best = (0, f64::NEG_INFINITY);
        for (number, kind) in self.kinds.iter().enumerate() {
            let density = kind.log_density(point, best.1);
            if density > best.1 {
                best = (number, density);
            }
        }
        best.0
    }

    /// The most likely kind of each point.
    pub fn labels(&self, points: &Points) -> Vec<usize> {
        points.iter().map(|point| self.label(point)).collect()
    }

    /// Writes each point's probabilities, and returns the mean logarithm of the points' density:
    /// ln(sum of exp(a_j)) = m + ln(sum of exp(a_j - m)), with m the largest a_j. `labels` are guesses of the likeliest
    /// kinds, and become these: most kinds are so far from a point that a part of the distance tells that their
    /// probability is 0 in a double, beside that of a near one.
    pub(super) fn expect(&self, points: &Points, labels: &mut [usize], responsibilities: &mut [f64]) -> f64 {
        let count = points.len().max(1);
        let near = points.iter().zip(&*labels);
        let near = near.map(|(point, label)| self.kinds[*label].log_density(point, f64::NEG_INFINITY));
        let mut largest: Vec<f64> = near.collect();
        for (number, row) in responsibilities.chunks_exact_mut(count).enumerate() {
            let kind = &self.kinds[number];
            let known = largest.iter_mut().zip(&mut *labels);
            for ((point, density), (largest, label)) in points.iter().zip(row).zip(known) {
                *density = kind.log_density(point, *largest + UNDERFLOWS);
                if *density > *largest {
                    (*largest, *label) = (*density, number);
                }
            }
        }
        let mut sums = vec![0.0; points.len()];
        for row in responsibilities.chunks_exact_mut(count) {
            for ((density, largest), sum) in row.iter_mut().zip(&largest).zip(&mut sums) {
                let log = *density - largest;
                *density = if log < UNDERFLOWS { 0.0 } else { log.exp() };
                *sum += *density;
            }
        }
        for row in responsibilities.chunks_exact_mut(count) {
            row.iter_mut().zip(&sums).for_each(|(density, sum)| *density /= sum);
        }
        let densities = largest.iter().zip(&sums).map(|(largest, sum)| largest + sum.ln());
        densities.sum::<f64>() / count as f64
    }

    fn maximise(points: &Points, responsibilities: &[f64], kinds: usize) -> Mixture {
        let dimensions = points.dimensions();
        let count = points.len() as f64 + kinds as f64 * EMPTY;
        let kind = |number: usize| {
            let row = &responsibilities[number * points.len()..(number + 1) * points.len()];
            let of_kind = || points.iter().zip(row).filter(|(_, share)| **share != 0.0);
            let weight = EMPTY + of_kind().map(|(_, share)| share).sum::<f64>();
            let mut mean = vec![0.0; dimensions];
            for (point, share) in of_kind() {
                mean.iter_mut()
                    .zip(point)
                    .for_each(|(mean, value)| *mean += share * value);
            }
            mean.iter_mut().for_each(|mean| *mean /= weight);
            let mut covariance = vec![0.0; dimensions * dimensions];
            for (point, share) in of_kind() {
                for row in 0..dimensions {
                    let apart = share * (point[row] - mean[row]);
                    for column in 0..=row {
                        covariance[row * dimensions + column] += apart * (point[column] - mean[column]);
                    }
                }
            }
            for row in 0..dimensions {
                for column in 0..=row {
                    let floor = if row == column { FLOOR } else { 0.0 };
                    let value = covariance[row * dimensions + column] / weight + floor;
                    covariance[row * dimensions + column] = value;
                    covariance[column * dimensions + row] = value;
                }
            }
            MixtureComponent::new(weight / count, mean, &covariance)
        };
        Mixture {
            kinds: (0..kinds).map(kind).collect(),
        }
    }
}

impl MixtureComponent {
    /// A kind with this share of the points, and a covariance by rows, symmetric and positive definite.
    pub(super) fn new(weight: f64, mean: Vec<f64>, covariance: &[f64]) -> MixtureComponent {
        let n = mean.len();
        let factor = cholesky(covariance, n);
        let half_log_determinant: f64 = (0..n).map(|i| factor[i * n + i].ln()).sum();
        MixtureComponent {
            weight,
            whitening: inverse_lower(&factor, n),
            offset: weight.ln() - half_log_determinant - 0.5 * n as f64 * (2.0 * PI).ln(),
            mean,
        }
    }

    /// ln(w N(point; mu, S)); minus infinity if it is less than `least`.
    fn log_density(&self, point: &[f64], least: f64) -> f64 {
        let n = self.mean.len();
        let mut square = 0.0;
        for row in 0..n {
            let line = &self.whitening[row * n..row * n + row + 1];
            let apart = point.iter().zip(&self.mean).map(|(value, mean)| value - mean);
            let deviations: f64 = line.iter().zip(apart).map(|(whitening, apart)| whitening * apart).sum();
            square += deviations * deviations;
            if self.offset - 0.5 * square < least {
                return f64::NEG_INFINITY;
            }
        }
        self.offset - 0.5 * square
    }
}

/// The lower factor L of a symmetric positive definite matrix, L L' = `matrix`, by rows.
///
/// The floor under the diagonal makes covariances positive definite; rounding of nearly dependent features may not
/// leave them so, and such a pivot counts as the floor.
fn cholesky(matrix: &[f64], n: usize) -> Vec<f64> {
    let mut factor = vec![0.0; n * n];
    for row in 0..n {
        for column in 0..=row {
            let known: f64 = (0..column).map(|k| factor[row * n + k] * factor[column * n + k]).sum();
            let rest = matrix[row * n + column] - known;
            factor[row * n + column] = if row == column {
                if rest > 0.0 { rest.sqrt() } else { FLOOR.sqrt() }
            } else {
                rest / factor[column * n + column]
            };
        }
    }
    factor
}

/// The inverse of a lower triangular matrix, by rows.
pub(super) fn inverse_lower(factor: &[f64], n: usize) -> Vec<f64> {
    let mut inverse = vec![0.0; n * n];
    for column in 0..n {
        for row in column..n {
            let unit = if row == column { 1.0 } else { 0.0 };
            let known: f64 = (column..row)
                .map(|k| factor[row * n + k] * inverse[k * n + column])
                .sum();
            inverse[row * n + column] = (unit - known) / factor[row * n + row];
        }
    }
    inverse
}
