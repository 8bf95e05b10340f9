//! How well a labelling separates points.
//!
//! Both indices compare how close points are to their own cluster's mean with how far the means are from each other.
//! They differ in what they weigh: Davies and Bouldin look at each cluster's worst neighbour, Calinski and Harabasz at
//! all points at once.

use super::points::{Points, square_distance};

/// The index of Davies and Bouldin (A cluster separation measure, PAMI 1(2), 1979): the mean over clusters of the
/// largest (s_i + s_j) / d_ij, where s is the mean distance of a cluster's points from their mean, and d the distance
/// of two means. 0 or more; lower is better. `None` with fewer than two clusters.
pub fn davies_bouldin(points: &Points, labels: &[usize]) -> Option<f64> {
    let clusters = clusters(labels);
    if clusters.len() < 2 {
        return None;
    }
    let means: Vec<Vec<f64>> = clusters
        .iter()
        .map(|cluster| points.mean(cluster.iter().copied()))
        .collect();
    let spreads: Vec<f64> = clusters
        .iter()
        .zip(&means)
        .map(|(cluster, mean)| {
            let distances = cluster.iter().map(|i| square_distance(points.point(*i), mean).sqrt());
            distances.sum::<f64>() / cluster.len() as f64
        })
        .collect();
    let worst = |i: usize| {
        let others = (0..clusters.len()).filter(|j| *j != i);
        let ratios = others.map(|j| {
            let apart = square_distance(&means[i], &means[j]).sqrt();
            // Two clusters with one mean are as badly separated as can be, unless both are single points.
            let spread = spreads[i] + spreads[j];
            if spread == 0.0 { 0.0 } else { spread / apart }
        });
        ratios.fold(0.0, f64::max)
    };
    let sum: f64 = (0..clusters.len()).map(worst).sum();
    Some(sum / clusters.len() as f64)
}

/// The index of Calinski and Harabasz (A dendrite method for cluster analysis, Communications in Statistics 3(1),
/// 1974): the variance between clusters for each degree of freedom, over that within. Higher is better; infinite where
/// every point is its cluster's mean. `None` with fewer than two clusters, or as many as points.
pub fn calinski_harabasz(points: &Points, labels: &[usize]) -> Option<f64> {
    let clusters = clusters(labels);
    let (k, n) = (clusters.len(), points.len());
    if k < 2 || k >= n {
        return None;
    }
    let middle = points.mean(0..n);
    let (mut between, mut within) = (0.0, 0.0);
    for cluster in &clusters {
        let mean = points.mean(cluster.iter().copied());
        between += cluster.len() as f64 * square_distance(&mean, &middle);
        within += cluster
            .iter()
            .map(|i| square_distance(points.point(*i), &mean))
            .sum::<f64>();
    }
    Some((between / (k - 1) as f64) / (within / (n - k) as f64))
}

/// The points of each label that has any, by label.
fn clusters(labels: &[usize]) -> Vec<Vec<usize>> {
    let mut clusters: Vec<Vec<usize>> = vec![Vec::new(); labels.iter().max().map_or(0, |most| most + 1)];
    for (i, label) in labels.iter().enumerate() {
        clusters[*label].push(i);
    }
    clusters.retain(|cluster| !cluster.is_empty());
    clusters
}
