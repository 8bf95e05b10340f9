//! Observations, and the scale on which their features are compared.

/// A list of points in as many dimensions as there are features.
#[derive(Clone, Debug, PartialEq)]
pub struct Points {
    dimensions: usize,
    values: Vec<f64>,
}

impl Points {
    /// The points whose features stand in `values` one after the other; an incomplete last one is left out.
    pub fn new(dimensions: usize, mut values: Vec<f64>) -> Points {
        let whole = values.len().checked_div(dimensions).unwrap_or(0);
        values.truncate(whole * dimensions);
        Points { dimensions, values }
    }

    /// Features of a point.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// How many points there are.
    pub fn len(&self) -> usize {
        self.values.len().checked_div(self.dimensions).unwrap_or(0)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The features of point `i`.
    ///
    /// # Panics
    /// If there are not as many points.
    pub fn point(&self, i: usize) -> &[f64] {
        &self.values[i * self.dimensions..(i + 1) * self.dimensions]
    }

    /// All points in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[f64]> {
        self.values.chunks_exact(self.dimensions.max(1))
    }

    /// The mean of the points whose numbers `which` gives, by feature; 0 if it gives none.
    pub(super) fn mean(&self, which: impl Iterator<Item = usize>) -> Vec<f64> {
        let mut mean = vec![0.0; self.dimensions];
        let mut count = 0.0;
        for i in which {
            count += 1.0;
            mean.iter_mut()
                .zip(self.point(i))
                .for_each(|(mean, value)| *mean += value);
        }
        mean.iter_mut().for_each(|mean| *mean /= f64::max(count, 1.0));
        mean
    }
}

pub(super) fn square_distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// A feature whose deviation is below this part of its mean does not change: what is left is rounding.
const CONSTANT: f64 = 1e-9;

/// From features in their own units to features with mean 0 and variance 1, without those that do not change.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// Feature, mean and standard deviation (over all points, not an estimate from a sample of them).
    kept: Vec<(usize, f64, f64)>,
}

impl Scale {
    /// The scale of `points`.
    pub fn of(points: &Points) -> Scale {
        let means = points.mean(0..points.len());
        let count = points.len().max(1) as f64;
        let deviation = |feature: usize| {
            let squares = points.iter().map(|point| (point[feature] - means[feature]).powi(2));
            (squares.sum::<f64>() / count).sqrt()
        };
        let features = (0..points.dimensions()).map(|feature| (feature, means[feature], deviation(feature)));
        Scale {
            kept: features
                .filter(|(_, mean, deviation)| deviation.is_finite() && *deviation > CONSTANT * mean.abs())
                .collect(),
        }
    }

    /// How many features change.
    pub fn dimensions(&self) -> usize {
        self.kept.len()
    }

    /// `points` on this scale.
    #[must_use]
    pub fn apply(&self, points: &Points) -> Points {
        let scaled = |point: &[f64]| -> Vec<f64> { self.scaled(point).collect() };
        Points::new(self.kept.len(), points.iter().flat_map(scaled).collect())
    }

    /// The features of one point on this scale.
    pub fn scaled(&self, point: &[f64]) -> impl Iterator<Item = f64> {
        self.kept
            .iter()
            .map(move |(feature, mean, deviation)| (point[*feature] - mean) / deviation)
    }
}
