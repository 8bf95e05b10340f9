//! Identification finds the model that made the record, and says so when the record cannot tell.

use proptest::prelude::*;
use punctual_control::{ArxModel, ControlError, DMatrix, OperatingPoint, Orders, Recording, identify};

use crate::truths::systems::{Uniform, foretold, free_run, names, one_step_predictions, refused_for, stable_arx};

const SAMPLES: usize = 400;

/// A record of `model` around an operating point, excited at random, with noise of the given size in its equations.
fn record(model: &ArxModel, noise: f64, seed: u64) -> Recording {
    let (nu, ny) = (model.inputs().len(), model.outputs().len());
    let mut uniform = Uniform::new(seed);
    let u: Vec<Vec<f64>> = (0..SAMPLES).map(|_| uniform.row(nu)).collect();
    let mut y: Vec<Vec<f64>> = Vec::new();
    for k in 0..SAMPLES {
        let mut row = if k < model.order() {
            uniform.row(ny)
        } else {
            foretold(model, &y, &u[..k])
        };
        row.iter_mut().for_each(|v| *v += noise * uniform.draw());
        y.push(row);
    }
    let shift = |rows: Vec<Vec<f64>>, by: f64| rows.iter().map(|row| row.iter().map(|v| v + by).collect()).collect();
    Recording {
        outputs: names("y", ny),
        inputs: names("u", nu),
        y: shift(y, 10.0),
        u: shift(u, -3.0),
    }
}

fn orders(model: &ArxModel) -> Orders {
    Orders {
        na: model.a().len(),
        nb: model.b().len(),
    }
}

fn distance(x: &[DMatrix<f64>], y: &[DMatrix<f64>]) -> f64 {
    x.iter().zip(y).map(|(x, y)| (x - y).amax()).fold(0.0, f64::max)
}

proptest! {
    #[test]
    fn a_record_without_noise_gives_back_the_model(model in stable_arx(1..=3, 0..=1, 1..=3), seed: u64) {
        let record = record(&model, 0.0, seed);
        let equilibrium = OperatingPoint::Equilibrium {
            u0: vec![-3.0; model.inputs().len()], y0: vec![10.0; model.outputs().len()],
        };
        for around in [OperatingPoint::Mean, equilibrium] {
            match identify(&record, orders(&model), &around) {
                // A model that hardly uses its last order is one of lower order, and is refused as such.
                Err(error) if collinear(&error) => prop_assume!(false),
                found => {
                    let found = found.unwrap();
                    // Least squares may lose half of the digits before regressors count as collinear.
                    prop_assert!(distance(found.a(), model.a()) < 1e-6);
                    prop_assert!(distance(found.b(), model.b()) < 1e-6);
                    prop_assert!(found.fit().unwrap().r2.iter().all(|r2| (r2 - 1.0).abs() < 1e-9));
                    let free_run = free_run(&found, &record.y, &record.u);
                    let worst = free_run.iter().flatten().zip(record.y.iter().flatten()).map(|(x, y)| (x - y).abs());
                    prop_assert!(worst.fold(0.0, f64::max) < 1e-5);
                }
            }
        }
    }

    #[test]
    fn the_fit_falls_as_noise_grows(model in stable_arx(1..=2, 0..=1, 1..=1), seed: u64) {
        // Where the knobs hardly act, noise drives the output from the start.
        prop_assume!(model.b()[0].row_iter().all(|row| row.norm() > 0.5));
        let mean_r2 = |noise: f64| {
            let fit = identify(&record(&model, noise, seed), orders(&model), &OperatingPoint::Mean)?;
            let r2 = &fit.fit().unwrap().r2;
            Ok::<f64, ControlError>(r2.iter().sum::<f64>() / r2.len() as f64)
        };
        match [0.0, 0.1, 1.0, 10.0].map(mean_r2) {
            [Ok(none), Ok(little), Ok(some), Ok(much)] => {
                prop_assert!(none > little && little > some, "{none} {little} {some} {much}");
                // Once noise is all there is, R^2 is that of the noise driving the model's own dynamics.
                prop_assert!(much < little, "{none} {little} {some} {much}");
            }
            results => prop_assume!(results.iter().all(|r| !matches!(r, Err(error) if collinear(error)))),
        }
    }

    #[test]
    fn the_residual_is_the_noise(model in stable_arx(1..=2, 0..=0, 1..=2), seed: u64) {
        let noise = 0.2;
        let found = identify(&record(&model, noise, seed), orders(&model), &OperatingPoint::Mean).unwrap();
        // Uniform noise in -n..n has the standard deviation n / sqrt(3).
        for std in &found.fit().unwrap().residual_std {
            prop_assert!((std / (noise / 3f64.sqrt()) - 1.0).abs() < 0.15, "residual {std}");
        }
    }

    #[test]
    fn predictions_err_by_what_the_fit_says(model in stable_arx(1..=2, 0..=1, 1..=2), seed: u64) {
        let record = record(&model, 0.3, seed);
        let found = identify(&record, orders(&model), &OperatingPoint::Mean).unwrap();
        let predicted = one_step_predictions(&found, &record.y, &record.u);
        let measured = &record.y[found.order()..];
        prop_assert_eq!(predicted.len(), measured.len());
        for o in 0..found.outputs().len() {
            let variance = |values: &mut dyn Iterator<Item = f64>| {
                let values: Vec<f64> = values.collect();
                let mean = values.iter().sum::<f64>() / values.len() as f64;
                values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64
            };
            let error = variance(&mut predicted.iter().zip(measured).map(|(p, m)| m[o] - p[o]));
            let r2 = 1.0 - error / variance(&mut measured.iter().map(|m| m[o]));
            prop_assert!((r2 - found.fit().unwrap().r2[o]).abs() < 1e-9);
        }
    }
}

fn two_by_two() -> (ArxModel, Recording) {
    let model = ArxModel::from_matrices(
        names("u", 2),
        names("y", 2),
        vec![DMatrix::from_row_slice(2, 2, &[0.5, 0.1, -0.2, 0.3])],
        vec![DMatrix::from_row_slice(2, 2, &[1.0, -0.5, 0.2, 0.7])],
    )
    .unwrap();
    let record = record(&model, 0.01, 7);
    (model, record)
}

fn fit(record: &Recording, na: usize, nb: usize) -> Result<ArxModel, ControlError> {
    identify(record, Orders { na, nb }, &OperatingPoint::Mean)
}

/// Whether a record did not tell regressors apart.
fn collinear(error: &ControlError) -> bool {
    error.to_string().contains("cannot be distinguished")
}

#[test]
fn an_input_that_never_moves_is_named() {
    let (_, mut record) = two_by_two();
    record.u.iter_mut().for_each(|row| row[1] = 2.0e9);
    refused_for("the input `u1` never moves", fit(&record, 1, 1));
}

#[test]
fn an_output_that_is_constant_is_named() {
    let (_, mut record) = two_by_two();
    record.y.iter_mut().skip(1).for_each(|row| row[0] = 1.0);
    refused_for("the output `y0` is constant", fit(&record, 1, 1));
}

/// The planted fault of the excitation: both knobs moved together.
#[test]
fn knobs_that_move_together_are_named() {
    let (_, mut record) = two_by_two();
    record.u.iter_mut().for_each(|row| row[1] = 5.0 - 2.0 * row[0]);
    refused_for(
        "the effects of u0(k-1), u1(k-1) cannot be distinguished",
        fit(&record, 1, 1),
    );
}

#[test]
fn an_input_that_moves_only_in_the_last_sample_is_named() {
    let (_, mut record) = two_by_two();
    let last = record.u.len() - 1;
    record.u.iter_mut().take(last).for_each(|row| row[1] = 0.5);
    refused_for("the effects of u1(k-1) cannot be distinguished", fit(&record, 1, 1));
}

#[test]
fn a_gap_in_the_record_is_located() {
    let (_, mut record) = two_by_two();
    record.y[17][1] = f64::NAN;
    let message = fit(&record, 1, 1).unwrap_err().to_string();
    assert!(
        message.starts_with("`y1` is ") && message.contains("in row 17:"),
        "{message}"
    );
}

#[test]
fn records_of_the_wrong_shape_are_refused() {
    let (_, whole) = two_by_two();
    refused_for("na is 0", fit(&whole, 0, 1));
    refused_for("nb is 0", fit(&whole, 1, 0));
    refused_for("record for longer", fit(&whole, usize::MAX, 1));
    let mut short = whole.clone();
    short.y.truncate(10);
    let words = format!("10 rows of outputs but {SAMPLES} rows of inputs");
    refused_for(&words, fit(&short, 1, 1));
    short.u.truncate(10);
    // Four coefficients and a constant, two equations for each, one row to look back on.
    refused_for(
        "10 samples but orders na = 1, nb = 1 need at least 11",
        fit(&short, 1, 1),
    );
    let mut ragged = whole.clone();
    ragged.u[3].pop();
    refused_for("row 3 of the inputs has 1 values but 2 are named", fit(&ragged, 1, 1));
    refused_for("no outputs", fit(&Recording::default(), 1, 1));
    let elsewhere = OperatingPoint::Equilibrium {
        u0: vec![0.0],
        y0: vec![0.0, 0.0],
    };
    refused_for(
        "point u0 has 1 values but 2 are named",
        identify(&whole, Orders::FIRST, &elsewhere),
    );
}

#[test]
fn a_poor_fit_is_refused_by_name() {
    let (model, mut record) = two_by_two();
    let mut uniform = Uniform::new(3);
    record.y.iter_mut().for_each(|row| row[1] += 10.0 * uniform.draw());
    let found = identify(&record, Orders::FIRST, &OperatingPoint::Mean).unwrap();
    refused_for(
        "the model explains `y1`",
        found.check_fit(punctual_control::R2_ACCEPTED),
    );
    assert!(
        model.check_fit(1.0).is_ok(),
        "a model without a record is vouched for by its author"
    );
}
