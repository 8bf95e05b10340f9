//! Clustering against scikit-learn (fixtures/make_fixtures.py), and identities that hold for any points.

use proptest::prelude::*;
use serde::Deserialize;

use super::mixture::{MixtureComponent, inverse_lower};
use super::*;

#[derive(Deserialize)]
struct Fixtures {
    fits: Vec<FitCase>,
    chosen: Vec<ChoiceCase>,
    far: Far,
    scaled: ScalingCase,
}

#[derive(Deserialize)]
struct FitCase {
    name: String,
    points: Vec<Vec<f64>>,
    start: Vec<usize>,
    kinds: usize,
    steps: usize,
    converged: bool,
    log_likelihood: f64,
    weights: Vec<f64>,
    means: Vec<Vec<f64>>,
    covariances: Vec<Vec<Vec<f64>>>,
    labels: Vec<usize>,
    davies_bouldin: f64,
    calinski_harabasz: f64,
}

#[derive(Deserialize)]
struct ChoiceCase {
    name: String,
    points: Vec<Vec<f64>>,
    most: usize,
    kinds: usize,
    labels: Vec<usize>,
}

#[derive(Deserialize)]
struct Far {
    weights: Vec<f64>,
    means: Vec<Vec<f64>>,
    covariances: Vec<Vec<Vec<f64>>>,
    point: Vec<f64>,
    probabilities: Vec<f64>,
}

#[derive(Deserialize)]
struct ScalingCase {
    points: Vec<Vec<f64>>,
    scaled: Vec<Vec<f64>>,
}

fn fixtures() -> Fixtures {
    serde_json::from_str(include_str!("../../../tests/fixtures/clusters.json")).unwrap()
}

fn points(rows: &[Vec<f64>]) -> Points {
    Points::new(rows[0].len(), rows.concat())
}

fn near(what: &str, ours: f64, theirs: f64) {
    assert!(
        (ours - theirs).abs() <= 1e-6 * theirs.abs().max(1.0),
        "{what}: {ours}, not {theirs}"
    );
}

/// Labels by order of appearance: two labellings are the same partition if these are equal.
fn partition(labels: &[usize]) -> Vec<usize> {
    let mut seen = Vec::new();
    let number = |label: &usize| {
        let known = seen.iter().position(|other| other == label);
        known.unwrap_or_else(|| {
            seen.push(*label);
            seen.len() - 1
        })
    };
    labels.iter().map(number).collect()
}

/// L L' for the Cholesky factor L of a kind's covariance, by rows.
fn covariance(kind: &MixtureComponent) -> Vec<f64> {
    let n = kind.mean.len();
    let factor = inverse_lower(&kind.whitening, n);
    let entry = |(row, column)| (0..n).map(|k| factor[row * n + k] * factor[column * n + k]).sum();
    (0..n)
        .flat_map(|row| (0..n).map(move |column| (row, column)))
        .map(entry)
        .collect()
}

/// The probability of each kind at `point`; they sum to 1.
fn probabilities(mixture: &Mixture, point: &[f64]) -> Vec<f64> {
    let mut probabilities = vec![0.0; mixture.kinds.len()];
    mixture.expect(&Points::new(point.len(), point.to_vec()), &mut [0], &mut probabilities);
    probabilities
}

#[test]
fn a_fit_from_the_same_start_is_the_same_fit() {
    for case in fixtures().fits {
        let points = points(&case.points);
        let fit = Mixture::fit(&points, &case.start, case.kinds);
        let name = &case.name;
        assert_eq!((fit.steps, fit.converged), (case.steps, case.converged), "{name}");
        near(name, fit.log_likelihood, case.log_likelihood);
        for (number, kind) in fit.mixture.kinds.iter().enumerate() {
            near(name, kind.weight, case.weights[number]);
            let means = kind.mean.iter().zip(&case.means[number]);
            means.for_each(|(ours, theirs)| near(name, *ours, *theirs));
            let theirs = case.covariances[number].concat();
            covariance(kind)
                .iter()
                .zip(&theirs)
                .for_each(|(ours, theirs)| near(name, *ours, *theirs));
        }
        assert_eq!(fit.mixture.labels(&points), case.labels, "{name}");
    }
}

#[test]
fn indices_are_those_of_the_reference() {
    for case in fixtures().fits {
        let points = points(&case.points);
        near(
            &case.name,
            davies_bouldin(&points, &case.labels).unwrap(),
            case.davies_bouldin,
        );
        near(
            &case.name,
            calinski_harabasz(&points, &case.labels).unwrap(),
            case.calinski_harabasz,
        );
    }
}

/// From our own starts, over all numbers of kinds.
#[test]
fn kinds_well_apart_are_found() {
    for case in fixtures().chosen {
        let points = points(&case.points);
        for seed in [1, 100, 200] {
            let settings = ClusteringSettings {
                kinds: 2..=case.most,
                starts: 5,
                seed,
            };
            let choice = choose(&points, &settings).unwrap();
            assert_eq!(choice.best().kinds, case.kinds, "{}, seed {seed}", case.name);
            let labels = choice.best().fit.mixture.labels(&points);
            assert_eq!(
                partition(&labels),
                partition(&case.labels),
                "{}, seed {seed}",
                case.name
            );
        }
    }
}

/// Densities that underflow leave the nearest kind the likeliest.
#[test]
fn a_point_far_from_every_kind_is_of_the_right_one() {
    let far = fixtures().far;
    let kinds = far.weights.iter().zip(&far.means).zip(&far.covariances);
    let kinds = kinds
        .map(|((weight, mean), covariance)| MixtureComponent::new(*weight, mean.clone(), &covariance.concat()))
        .collect();
    let mixture = Mixture { kinds };
    let probabilities = probabilities(&mixture, &far.point);
    for (ours, theirs) in probabilities.iter().zip(&far.probabilities) {
        near("far", *ours, *theirs);
    }
    assert_eq!(far.probabilities[mixture.label(&far.point)], 1.0);
}

#[test]
fn features_are_scaled_and_constant_ones_dropped() {
    let case = fixtures().scaled;
    let raw = points(&case.points);
    let scale = Scale::of(&raw);
    assert_eq!((raw.dimensions(), scale.dimensions()), (3, 2));
    for (ours, theirs) in scale.apply(&raw).iter().zip(&case.scaled) {
        ours.iter()
            .zip(theirs)
            .for_each(|(ours, theirs)| near("scaled", *ours, *theirs));
    }
}

#[test]
fn points_that_are_alike_are_of_no_kinds() {
    let alike = Points::new(2, [1.0, 2.0].repeat(50));
    assert_eq!(choose(&alike, &ClusteringSettings::default()), None);
    assert_eq!(
        choose(&Points::new(3, Vec::new()), &ClusteringSettings::default()),
        None
    );
    assert_eq!(Scale::of(&alike).dimensions(), 0);
    assert_eq!(
        choose(&Scale::of(&alike).apply(&alike), &ClusteringSettings::default()),
        None
    );
}

fn any_points() -> impl Strategy<Value = Points> {
    prop::collection::vec(-5.0..5.0f64, 24..90).prop_map(|values| Points::new(3, values))
}

fn labelled() -> impl Strategy<Value = (Points, Vec<usize>)> {
    any_points().prop_flat_map(|points| {
        let labels = prop::collection::vec(0..4usize, points.len());
        (Just(points), labels)
    })
}

proptest! {
    /// A mixture that was fitted to points has their mean and, but for the floor, their variance.
    #[test]
    fn a_mixture_keeps_the_moments((points, labels) in labelled()) {
        let fit = Mixture::fit(&points, &labels, 4);
        let count = points.len() as f64;
        for feature in 0..3 {
            let mean = points.iter().map(|point| point[feature]).sum::<f64>() / count;
            let square = points.iter().map(|point| point[feature].powi(2)).sum::<f64>() / count;
            let kinds = fit.mixture.kinds.iter();
            let ours: f64 = kinds.clone().map(|kind| kind.weight * kind.mean[feature]).sum();
            let squares = kinds.map(|kind| {
                let variance = covariance(kind)[feature * 3 + feature] - 1e-6;
                kind.weight * (variance + kind.mean[feature].powi(2))
            });
            prop_assert!((ours - mean).abs() < 1e-9);
            prop_assert!((squares.sum::<f64>() - square).abs() < 1e-9);
        }
    }

    #[test]
    fn probabilities_are_shares_of_one_and_the_label_has_the_largest(
        (points, labels) in labelled(),
        far in -1e6..1e6f64,
    ) {
        let mixture = Mixture::fit(&points, &labels, 4).mixture;
        for point in points.iter().chain([&[far, 0.0, -far][..]]) {
            let probabilities = probabilities(&mixture, point);
            prop_assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            let label = mixture.label(point);
            prop_assert!(probabilities.iter().all(|other| *other <= probabilities[label] + 1e-12));
        }
    }

    /// Neither index knows units, places or names.
    #[test]
    fn indices_do_not_change_with_unit_place_or_name(
        (points, labels) in labelled(),
        unit in 0.1..10.0f64,
        place in -9.0..9.0f64,
    ) {
        let moved = Points::new(3, points.iter().flatten().map(|value| value * unit + place).collect());
        let renamed: Vec<usize> = labels.iter().map(|label| 7 - label).collect();
        for index in [davies_bouldin, calinski_harabasz] {
            match (index(&points, &labels), index(&moved, &renamed)) {
                (Some(here), Some(there)) => prop_assert!((here - there).abs() <= 1e-6 * here.abs(), "{here} {there}"),
                (here, there) => prop_assert_eq!(here, there),
            }
        }
    }

    #[test]
    fn a_start_uses_every_kind_and_repeats(points in any_points(), kinds in 1..6usize, seed in any::<u64>()) {
        let labels = start(&points, kinds, seed).unwrap();
        prop_assert!(labels.iter().all(|label| *label < kinds));
        prop_assert_eq!(Some(labels), start(&points, kinds, seed));
    }

    /// More kinds than different points are refused, whatever the seed.
    #[test]
    fn there_are_no_more_kinds_than_different_points(different in 1..5usize, seed in any::<u64>()) {
        let points = Points::new(1, (0..40).map(|i| (i % different) as f64).collect());
        prop_assert!(start(&points, different, seed).is_some());
        prop_assert_eq!(start(&points, different + 1, seed), None);
    }
}
