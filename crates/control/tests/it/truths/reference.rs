//! Agreement with SciPy and NumPy (tests/fixtures, made by make_fixtures.py).

use punctual_control::{DMatrix, OperatingPoint, Orders, Recording, dlqr, identify};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::truths::systems::names;

/// Largest accepted distance, relative to the reference.
const RELATIVE: f64 = 1e-8;

#[derive(Deserialize)]
struct Fixtures<T> {
    cases: Vec<T>,
}

#[derive(Deserialize)]
struct RiccatiCase {
    name: String,
    a: Rows,
    b: Rows,
    q: Rows,
    r: Rows,
    x: Rows,
    k: Rows,
    spectral_radius: f64,
}

#[derive(Deserialize)]
struct ArxCase {
    name: String,
    y: Rows,
    u: Rows,
    na: usize,
    nb: usize,
    given: bool,
    u0: Vec<f64>,
    y0: Vec<f64>,
    a: Vec<Rows>,
    b: Vec<Rows>,
    drift: Vec<f64>,
    r2: Vec<f64>,
    residual_std: Vec<f64>,
}

type Rows = Vec<Vec<f64>>;

fn cases<T: DeserializeOwned>(json: &str) -> Vec<T> {
    serde_json::from_str::<Fixtures<T>>(json).unwrap().cases
}

fn matrix(rows: &Rows) -> DMatrix<f64> {
    DMatrix::from_row_iterator(rows.len(), rows[0].len(), rows.iter().flatten().copied())
}

fn distance(ours: &DMatrix<f64>, reference: &DMatrix<f64>) -> f64 {
    (ours - reference).norm() / reference.norm().max(f64::MIN_POSITIVE)
}

fn vector_distance(ours: &[f64], reference: &[f64]) -> f64 {
    distance(
        &DMatrix::from_row_slice(1, ours.len(), ours),
        &DMatrix::from_row_slice(1, reference.len(), reference),
    )
}

#[test]
fn riccati_solutions_and_gains_agree() {
    let cases: Vec<RiccatiCase> = cases(include_str!("../../fixtures/riccati.json"));
    assert!(cases.len() >= 12);
    for case in cases {
        let law = dlqr(&matrix(&case.a), &matrix(&case.b), &matrix(&case.q), &matrix(&case.r)).unwrap();
        let (x, k) = (distance(&law.x, &matrix(&case.x)), distance(&law.k, &matrix(&case.k)));
        let radius = (law.verdict.spectral_radius() - case.spectral_radius).abs();
        println!(
            "{}: X {x:.1e}, K {k:.1e}, radius {radius:.1e}, residual {:.1e}",
            case.name, law.residual
        );
        assert!(x < RELATIVE && k < RELATIVE, "{}: X {x:e}, K {k:e}", case.name);
        // Multiple poles carry a root of the rounding error, in SciPy as here.
        assert!(radius < 1e-5, "{}: radius {radius:e}", case.name);
    }
}

#[test]
fn least_squares_models_agree() {
    for case in cases::<ArxCase>(include_str!("../../fixtures/arx.json")) {
        let around = match case.given {
            true => OperatingPoint::Equilibrium {
                u0: case.u0.clone(),
                y0: case.y0.clone(),
            },
            false => OperatingPoint::Mean,
        };
        let (outputs, inputs) = (names("y", case.y[0].len()), names("u", case.u[0].len()));
        let record = Recording {
            outputs,
            inputs,
            y: case.y,
            u: case.u,
        };
        let model = identify(
            &record,
            Orders {
                na: case.na,
                nb: case.nb,
            },
            &around,
        )
        .unwrap();
        for (ours, reference) in model.a().iter().zip(&case.a).chain(model.b().iter().zip(&case.b)) {
            let distance = distance(ours, &matrix(reference));
            assert!(distance < RELATIVE, "{}: {distance:e}", case.name);
        }
        let fit = model.fit().unwrap();
        let parts = [
            (model.u0(), &case.u0),
            (model.y0(), &case.y0),
            (&fit.r2, &case.r2),
            (&fit.residual_std, &case.residual_std),
        ];
        for (ours, reference) in parts {
            assert!(
                vector_distance(ours, reference) < RELATIVE,
                "{}: {ours:?} {reference:?}",
                case.name
            );
        }
        for (ours, reference) in model.drift().iter().zip(&case.drift) {
            assert!(
                (ours - reference).abs() < RELATIVE,
                "{}: drift {ours} {reference}",
                case.name
            );
        }
    }
}
