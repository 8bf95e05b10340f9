//! The running laws on simulated plants: goals, limits, recovery, refused and rounded settings, bad measurements.

use proptest::prelude::*;
use punctual_control::{ArxModel, DMatrix, Design, Knob, LqrPi, StepError, Weights, design};

use crate::truths::systems::{Plant, Uniform, free_run, names, refused_for, stable_arx};

/// What limits may add to the samples that a law needs to recover: they slow down its first answers.
const RECOVERY_SAMPLES: usize = 10;

fn unit_weights(model: &ArxModel) -> Weights {
    let (ny, nu) = (model.outputs().len(), model.inputs().len());
    Weights {
        error: vec![1.0; ny],
        accumulated: vec![1.0; ny],
        effort: vec![1.0; nu],
    }
}

/// Unlimited in practice.
fn wide(nu: usize) -> Vec<Knob> {
    vec![Knob::new(-1e9, 1e9, 0.0).unwrap(); nu]
}

fn range(nu: usize, limit: f64) -> Vec<Knob> {
    vec![Knob::new(-limit, limit, 0.0).unwrap(); nu]
}

/// A law for a model whose knobs reach every output; others are no test of a law.
fn law_for(model: &ArxModel) -> Result<Design, TestCaseError> {
    let law = design(model, &unit_weights(model)).map_err(|e| TestCaseError::reject(e.to_string()))?;
    if law.ki.amax() > 1e3 || law.verdict.spectral_radius() > 0.98 {
        return Err(TestCaseError::reject("the knobs hardly reach an output"));
    }
    Ok(law)
}

fn worst(y: &[f64], goal: &[f64]) -> f64 {
    y.iter().zip(goal).map(|(y, goal)| (y - goal).abs()).fold(0.0, f64::max)
}

/// Tardiness and data response ratio against clock and admitted share, as in QeDB: the clock and the share drive the
/// tardiness in different directions.
fn qedb() -> ArxModel {
    ArxModel::from_matrices(
        vec!["clock".into(), "share".into()],
        vec!["tardiness".into(), "drr".into()],
        vec![DMatrix::from_row_slice(2, 2, &[0.3, 0.1, 0.05, 0.4])],
        vec![DMatrix::from_row_slice(2, 2, &[-0.6, 0.4, 0.1, 0.3])],
    )
    .unwrap()
}

fn qedb_weights() -> Weights {
    Weights {
        error: vec![10.0, 1.0],
        accumulated: vec![10.0, 1.0],
        effort: vec![1.0, 1.0],
    }
}

/// Lets `law` work on `plant` for some samples.
fn run(law: &mut LqrPi, plant: &mut Plant, goal: &[f64], samples: usize) {
    for _ in 0..samples {
        let u = law.step(&plant.y, goal).unwrap();
        plant.advance(u);
    }
}

/// The last of 500 samples after which the output is more than 0.02 from the goal 0.1.
fn settling(law: &mut LqrPi, plant: &mut Plant) -> usize {
    let mut last_outside = 0;
    for sample in 1..=500 {
        run(law, plant, &[0.1], 1);
        if (plant.y[0] - 0.1).abs() > 0.02 {
            last_outside = sample;
        }
    }
    last_outside
}

fn siso(a: f64, b: f64) -> ArxModel {
    ArxModel::from_matrices(
        names("u", 1),
        names("y", 1),
        vec![DMatrix::from_element(1, 1, a)],
        vec![DMatrix::from_element(1, 1, b)],
    )
    .unwrap()
}

proptest! {
    #[test]
    fn a_constant_disturbance_leaves_no_error(model in stable_arx(1..=3, 0..=1, 1..=1), seed: u64) {
        let mut law = LqrPi::new(&law_for(&model)?, wide(model.inputs().len())).unwrap();
        let (mut plant, mut uniform) = (Plant::new(&model), Uniform::new(seed));
        let goal = uniform.row(plant.y.len());
        plant.disturbance = uniform.row(plant.y.len());
        run(&mut law, &mut plant, &goal, 1500);
        prop_assert!(worst(&plant.y, &goal) < 1e-6, "{:?} is not {:?}", plant.y, goal);
    }

    #[test]
    fn higher_orders_reach_their_goals_too(model in stable_arx(1..=2, 0..=1, 2..=3), seed: u64) {
        let law = law_for(&model)?;
        prop_assert!(law.verdict.is_stable());
        prop_assert_eq!((law.kp_past.len(), law.ku_past.len()), (model.a().len() - 1, model.b().len() - 1));
        let mut law = LqrPi::new(&law, wide(model.inputs().len())).unwrap();
        let mut uniform = Uniform::new(seed);
        let goal = uniform.row(model.outputs().len());
        let mut y: Vec<Vec<f64>> = (0..model.order()).map(|_| uniform.row(goal.len())).collect();
        let mut u = vec![vec![0.0; model.inputs().len()]; model.order() - 1];
        for _ in 0..1500 {
            u.push(law.step(y.last().unwrap(), &goal).unwrap().to_vec());
            let k = u.len() - model.order();
            let next = free_run(&model, &y[y.len() - model.order()..], &with_row(&u[k..]));
            y.push(next.last().unwrap().clone());
        }
        prop_assert!(worst(y.last().unwrap(), &goal) < 1e-6);
    }

    #[test]
    fn settings_stay_within_their_limits_whatever_is_measured(
        model in stable_arx(1..=3, 0..=1, 1..=2), seed: u64, limit in 0.01..2.0,
    ) {
        let mut law = LqrPi::new(&law_for(&model)?, range(model.inputs().len(), limit)).unwrap();
        let mut uniform = Uniform::new(seed);
        for k in 0..300 {
            let size = if k % 7 == 0 { 1e3 } else { 1.0 };
            let y: Vec<f64> = uniform.row(model.outputs().len()).iter().map(|v| v * size).collect();
            let goal = uniform.row(y.len());
            let u = law.step(&y, &goal).unwrap().to_vec();
            prop_assert!(u.iter().all(|u| u.abs() <= limit), "{u:?}");
            let applied: Vec<f64> = u.iter().map(|u| if k % 11 == 0 { 0.0 } else { *u }).collect();
            law.applied(&applied).unwrap();
        }
        prop_assert!(law.accumulated().iter().all(|v| v.is_finite()));
    }

    /// What anti-windup is for: after any time spent with a goal out of reach, the law is back about as quickly as
    /// one without limits that takes over at the same point.
    #[test]
    fn recovery_from_saturation_does_not_depend_on_its_length(
        a in 0.0..0.9f64, b in 0.2..2.0f64, stuck in 1usize..2000,
    ) {
        let model = siso(a, b);
        let law = law_for(&model)?;
        let (mut limited, mut plant) = (LqrPi::new(&law, range(1, 1.0)).unwrap(), Plant::new(&model));
        run(&mut limited, &mut plant, &[1e3], stuck);
        let (mut free, mut same_plant) =
            (LqrPi::new(&law, wide(1)).unwrap(), Plant { y: plant.y.clone(), ..Plant::new(&model) });
        free.resume(limited.settings()).unwrap();
        let (limited, free) = (settling(&mut limited, &mut plant), settling(&mut free, &mut same_plant));
        prop_assert!(limited <= free + RECOVERY_SAMPLES, "{limited} samples against {free}");
    }

    #[test]
    fn several_knobs_recover_from_goals_out_of_reach(model in stable_arx(2..=3, 0..=1, 1..=1), seed: u64) {
        let law = law_for(&model)?;
        prop_assume!(law.pinned.iter().all(|pinned| pinned.verdict.spectral_radius() < 0.98));
        let (mut law, mut plant) = (LqrPi::new(&law, range(model.inputs().len(), 1.0)).unwrap(), Plant::new(&model));
        let out_of_reach: Vec<f64> = Uniform::new(seed).row(plant.y.len()).iter().map(|v| 100.0 * v).collect();
        run(&mut law, &mut plant, &out_of_reach, 1000);
        let goal = vec![0.0; plant.y.len()];
        run(&mut law, &mut plant, &goal, 1500);
        prop_assert!(worst(&plant.y, &goal) < 1e-6, "{:?}", plant.y);
    }

    /// The law once more as its formula, with all of its past written down. Coarse knobs round every setting, which
    /// the law hears of but does not correct v for.
    #[test]
    fn a_step_is_the_formula(
        model in stable_arx(1..=2, 0..=1, 1..=3), u0 in prop::collection::vec(-2.0..2.0f64, 3), seed: u64,
    ) {
        let mut law = law_for(&model)?;
        let (nu, ny) = (model.inputs().len(), model.outputs().len());
        law.u0 = u0[..nu].to_vec();
        let mut running = LqrPi::new(&law, vec![Knob::new(-1e9, 1e9, 1.0).unwrap(); nu]).unwrap();
        let mut uniform = Uniform::new(seed);
        let column = |values: &[f64]| DMatrix::from_column_slice(values.len(), 1, values);
        let (mut errors, mut past, mut v) = (Vec::new(), Vec::new(), DMatrix::zeros(ny, 1));
        for k in 0..20 {
            let (y, goal) = (uniform.row(ny), uniform.row(ny));
            errors.insert(0, column(&goal) - column(&y));
            let mut u = -&law.kp * &errors[0] - &law.ki * &v;
            law.kp_past.iter().zip(&errors[1..]).for_each(|(gain, e)| u -= gain * e);
            law.ku_past.iter().zip(&past).for_each(|(gain, deviation)| u -= gain * deviation);
            u += column(&law.u0);
            if u.amax() > 1e9 {
                // A law whose memory grows by itself, driven by measurements of no plant: the formula has no limits.
                break;
            }
            v += &errors[0];
            let stepped = running.step(&y, &goal).unwrap().to_vec();
            prop_assert!(worst(&stepped, u.as_slice()) < 1e-9 * (1.0 + u.amax()), "{:?} {:?} at {}", stepped, u, k);
            let rounded: Vec<f64> = stepped.iter().map(|u| u + 0.4 * uniform.draw()).collect();
            past.insert(0, if k % 3 == 0 { column(&stepped) } else { column(&rounded) } - column(&law.u0));
            if k % 3 != 0 {
                running.applied(&rounded).unwrap();
            }
        }
    }

    /// What the design says of a loop with pinned knobs is what becomes of it.
    #[test]
    fn the_verdict_on_pinned_knobs_comes_true(
        model in stable_arx(1..=2, 0..=2, 1..=1), which: prop::sample::Index, seed: u64,
    ) {
        let law = law_for(&model)?;
        prop_assume!(!law.pinned.is_empty());
        let pinned = &law.pinned[which.index(law.pinned.len())];
        let radius = pinned.verdict.spectral_radius();
        prop_assume!(!(0.95..1.05).contains(&radius));
        let free = Knob::new(-1e6, 1e6, 0.0).unwrap();
        let held = Knob::new(-1e-9, 1e-9, 0.0).unwrap();
        let knobs = law.inputs.iter().map(|name| if pinned.knobs.contains(name) { held } else { free }).collect();
        let (mut running, mut plant) = (LqrPi::new(&law, knobs).unwrap(), Plant::new(&model));
        let goal = Uniform::new(seed).row(plant.y.len());
        run(&mut running, &mut plant, &goal, 1000);
        let before = plant.y.clone();
        run(&mut running, &mut plant, &goal, 1);
        let moved = worst(&plant.y, &before);
        prop_assert_eq!(moved < 1e-5, radius < 1.0, "moves by {} with radius {}", moved, radius);
    }

    #[test]
    fn taking_over_a_running_machine_gives_no_jolt(model in stable_arx(1..=3, 0..=0, 1..=3), seed: u64) {
        let mut law = LqrPi::new(&law_for(&model)?, wide(model.inputs().len())).unwrap();
        let mut uniform = Uniform::new(seed);
        let (now, goal) = (uniform.row(model.inputs().len()), uniform.row(model.outputs().len()));
        law.resume(&now).unwrap();
        prop_assert_eq!(law.settings(), now.as_slice());
        for _ in 0..5 {
            let u = law.step(&goal, &goal).unwrap();
            prop_assert!(worst(u, &now) < 1e-6, "{u:?} is not {now:?}");
        }
    }

    #[test]
    fn the_delta_form_is_the_one_knob_law(a in 0.0..0.95f64, b in 0.1..2.0f64, limit in 0.05..1.0f64, seed: u64) {
        let model = siso(a, b);
        let law = design(&model, &unit_weights(&model)).unwrap();
        let knob = Knob::new(-limit, limit, 0.0).unwrap();
        let mut lqr = LqrPi::new(&law, vec![knob]).unwrap();
        // u(k) = u(k-1) + K_P [(K_I + 1) e(k) - e(k-1)], with which Chronos-C bounds its backlog.
        let (kp, ki) = (law.ki[(0, 0)] - law.kp[(0, 0)], law.ki[(0, 0)] / (law.kp[(0, 0)] - law.ki[(0, 0)]));
        let (mut u, mut before) = (0.0, 0.0);
        // Both begin at rest: the first error is zero.
        let mut uniform = Uniform::new(seed);
        for k in 0..100 {
            let y = if k == 0 { 0.5 } else { uniform.draw() };
            let x = lqr.step(&[y], &[0.5]).unwrap()[0];
            let e = 0.5 - y;
            u = (u + kp * ((ki + 1.0) * e - before)).clamp(-limit, limit);
            before = e;
            prop_assert!((x - u).abs() < 1e-9, "{x} against {u} at sample {k}");
            let refused = if k % 9 == 4 { 0.0 } else { u };
            lqr.applied(&[refused]).unwrap();
            u = refused;
        }
    }

    /// The closed loop of a first-order design is the one that the paper writes down.
    #[test]
    fn first_order_gains_are_those_of_the_paper(model in stable_arx(1..=3, 0..=1, 1..=1)) {
        let law = law_for(&model)?;
        // Equation (6) of the paper, written out block by block: e(k+1) = (A + B K_P) e + B K_I v, v(k+1) = v + e.
        let (a, b, ny) = (&model.a()[0], &model.b()[0], model.outputs().len());
        let mut moves = DMatrix::zeros(2 * ny, 2 * ny);
        moves.view_mut((0, 0), (ny, ny)).copy_from(&(a + b * &law.kp));
        moves.view_mut((0, ny), (ny, ny)).copy_from(&(b * &law.ki));
        moves.view_mut((ny, 0), (ny, ny)).fill_with_identity();
        moves.view_mut((ny, ny), (ny, ny)).fill_with_identity();
        let trace: f64 = law.poles.iter().map(|pole| pole.re).sum();
        prop_assert!((trace - moves.trace()).abs() < 1e-9);
        let mut z = DMatrix::from_element(2 * ny, 1, 1.0);
        for _ in 0..2000 {
            z = &moves * z;
        }
        prop_assert!(z.norm() < 1e-6);
    }
}

/// `simulate` wants a row of inputs for every row of outputs; the one of the row to come does not matter.
fn with_row(u: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut rows = u.to_vec();
    rows.push(u[u.len() - 1].clone());
    rows
}

/// Planted fault: the sign of B. The checker must notice, and the loop must run away.
#[test]
fn a_law_for_the_opposite_machine_diverges_and_is_noticed() {
    for model in [siso(0.5, 1.0), qedb()] {
        let opposite = ArxModel::from_matrices(
            model.inputs().to_vec(),
            model.outputs().to_vec(),
            model.a().to_vec(),
            model.b().iter().map(|b| -b).collect(),
        )
        .unwrap();
        let law = design(&opposite, &unit_weights(&model)).unwrap();
        assert!(law.verdict.is_stable() && law.verdict_on(&opposite).unwrap().is_stable());
        assert!(!law.verdict_on(&model).unwrap().is_stable());
        assert!(law.check_model(&opposite).is_ok() && law.check_model(&model).is_err());
        let (mut running, mut plant) = (
            LqrPi::new(&law, wide(model.inputs().len())).unwrap(),
            Plant::new(&model),
        );
        let goal = vec![0.5; plant.y.len()];
        run(&mut running, &mut plant, &goal, 200);
        assert!(worst(&plant.y, &goal) > 1e3);
    }
}

/// Planted fault: a law that is not told of the machine's limits. What the tests of recovery look for is there.
#[test]
fn a_law_that_does_not_know_the_limits_winds_up() {
    let model = siso(0.5, 1.0);
    let mut law = LqrPi::new(&design(&model, &unit_weights(&model)).unwrap(), wide(1)).unwrap();
    let mut plant = Plant::new(&model);
    let mut overshoot = 0;
    for sample in 0..600 {
        let goal = if sample < 500 { 10.0 } else { 0.1 };
        let asked = law.step(&plant.y, &[goal]).unwrap()[0];
        plant.advance(&[asked.clamp(-1.0, 1.0)]);
        overshoot += usize::from(sample >= 500 && plant.y[0] > 0.12);
    }
    assert_eq!(overshoot, 100, "still at the limit a hundred samples later");
}

#[test]
fn with_the_share_at_its_limit_the_clock_alone_holds_the_tardiness() {
    let law = design(&qedb(), &qedb_weights()).unwrap();
    assert_eq!(law.pinned.len(), 2);
    assert!(
        law.pinned.iter().all(|pinned| pinned.verdict.is_stable()),
        "{:?}",
        law.pinned
    );
    let knobs = vec![Knob::new(-5.0, 5.0, 0.0).unwrap(), Knob::new(-0.1, 0.1, 0.0).unwrap()];
    let (mut running, mut plant) = (LqrPi::new(&law, knobs).unwrap(), Plant::new(&qedb()));
    // Interference that the share cannot undo within its limits.
    plant.disturbance = vec![0.5, 0.5];
    run(&mut running, &mut plant, &[0.0, 0.0], 200);
    let (tardiness, drr) = (plant.y[0], plant.y[1]);
    assert!(
        (running.settings()[1] + 0.1).abs() < 1e-9,
        "the share is at its minimum"
    );
    assert!(drr > 0.3, "the data response ratio is given up: {drr}");
    assert!(tardiness.abs() < 0.1 * drr, "the tardiness is not: {tardiness}");
}

#[test]
fn a_coarse_knob_alternates_around_the_goal() {
    let model = siso(0.5, 1.0);
    let law = design(&model, &unit_weights(&model)).unwrap();
    let quantum = 0.25;
    let mut running = LqrPi::new(&law, vec![Knob::new(-5.0, 5.0, quantum).unwrap()]).unwrap();
    let (mut plant, goal, mut sum) = (Plant::new(&model), 0.7, 0.0);
    for k in 0..1200 {
        let asked = running.step(&plant.y, &[goal]).unwrap()[0];
        let set = (asked / quantum).round() * quantum;
        running.applied(&[set]).unwrap();
        plant.advance(&[set]);
        if k >= 200 {
            sum += plant.y[0];
        }
    }
    // The goal needs 0.35, which the knob does not have; the mean is on it all the same.
    assert!((sum / 1000.0 - goal).abs() < 0.01, "mean {}", sum / 1000.0);
}

#[test]
fn a_refused_knob_does_not_wind_up() {
    let model = siso(0.5, 1.0);
    let law = design(&model, &unit_weights(&model)).unwrap();
    let (mut running, mut plant) = (LqrPi::new(&law, wide(1)).unwrap(), Plant::new(&model));
    for _ in 0..1000 {
        running.step(&plant.y, &[3.0]).unwrap();
        running.applied(&[0.0]).unwrap();
        plant.advance(&[0.0]);
    }
    // The knob obeys again, and the goal is where the plant already is: nothing of the past may show.
    let mut highest = 0.0f64;
    for _ in 0..50 {
        run(&mut running, &mut plant, &[0.0], 1);
        highest = highest.max(plant.y[0].abs());
    }
    assert!(plant.y[0].abs() < 1e-6 && highest < 4.0, "highest {highest}");
}

#[test]
fn a_measurement_that_is_missing_changes_nothing() {
    let law = design(&qedb(), &qedb_weights()).unwrap();
    let mut running = LqrPi::new(&law, range(2, 1.0)).unwrap();
    running.step(&[1.2, 0.4], &[0.85, 0.3]).unwrap();
    let before = running.clone();
    for (y, goal) in [
        ([f64::NAN, 0.4], [0.85, 0.3]),
        ([1.0, f64::INFINITY], [0.85, 0.3]),
        ([1.0, 1.0], [0.85, f64::NAN]),
    ] {
        assert!(matches!(running.step(&y, &goal), Err(StepError::NotUsable { .. })));
        assert_eq!(running, before);
    }
    assert_eq!(
        running.step(&[1.0], &[1.0, 1.0]),
        Err(StepError::Count {
            what: "measurement",
            got: 1,
            needed: 2
        })
    );
    assert!(running.applied(&[f64::NAN, 0.0]).is_err() && running.resume(&[0.0]).is_err());
    assert_eq!(running, before);
}

#[test]
fn one_absurd_measurement_is_forgotten() {
    let law = design(&qedb(), &qedb_weights()).unwrap();
    let (mut running, mut plant) = (LqrPi::new(&law, range(2, 2.0)).unwrap(), Plant::new(&qedb()));
    for absurd in [1e6, -1e99] {
        running.step(&[absurd, 0.3], &[0.1, 0.1]).unwrap();
        run(&mut running, &mut plant, &[0.1, 0.1], 100);
        assert!(worst(&plant.y, &[0.1, 0.1]) < 1e-6, "{:?} after {absurd}", plant.y);
    }
}

#[test]
fn designs_that_cannot_work_say_why() {
    let model = qedb();
    let weights = |error: &[f64], accumulated: &[f64], effort: &[f64]| Weights {
        error: error.to_vec(),
        accumulated: accumulated.to_vec(),
        effort: effort.to_vec(),
    };
    let with =
        |error: &[f64], accumulated: &[f64], effort: &[f64]| design(&model, &weights(error, accumulated, effort));
    let one = [1.0, 1.0];
    refused_for("1 error weights are given", with(&[1.0], &one, &one));
    refused_for("error weight of `tardiness` is -1", with(&[-1.0, 1.0], &one, &one));
    refused_for("accumulated weight of `drr` is 0", with(&one, &[1.0, 0.0], &one));
    refused_for("effort weight of `share` is NaN", with(&one, &one, &[1.0, f64::NAN]));
    assert!(with(&[0.0, 0.0], &one, &one).unwrap().verdict.is_stable());

    let part = |ny: usize, nu: usize, b: &[f64]| {
        let a = vec![DMatrix::identity(ny, ny) * 0.5];
        ArxModel::from_matrices(
            names("u", nu),
            names("y", ny),
            a,
            vec![DMatrix::from_row_slice(ny, nu, b)],
        )
        .unwrap()
    };
    let of = |model: &ArxModel| design(model, &unit_weights(model));
    refused_for("1 knobs cannot hold 2 outputs", of(&part(2, 1, &[1.0, 0.5])));
    refused_for("up to a factor", of(&part(2, 2, &[1.0, 2.0, 0.5, 1.0])));
    refused_for("7 knobs, more than the 6", of(&part(1, 7, &[1.0; 7])));
    let runaway = ArxModel::from_matrices(
        names("u", 2),
        names("y", 2),
        vec![DMatrix::from_row_slice(2, 2, &[0.5, 0.0, 0.0, 1.5])],
        vec![DMatrix::from_row_slice(2, 2, &[1.0, 1.0, 0.0, 0.0])],
    )
    .unwrap();
    let message = of(&runaway).unwrap_err().to_string();
    assert!(
        [
            "up to a factor",
            "no law for this model and these weights: not stabilisable"
        ]
        .iter()
        .any(|words| message.contains(words)),
        "{message}"
    );
}

#[test]
fn laws_and_knobs_that_do_not_fit_are_refused() {
    let law = design(&qedb(), &qedb_weights()).unwrap();
    refused_for("1 knob ranges are given but the law moves 2", LqrPi::new(&law, wide(1)));
    let edited = |edit: fn(&mut Design)| {
        let mut law = law.clone();
        edit(&mut law);
        LqrPi::new(&law, wide(2))
    };
    refused_for("K_I of the controller", edited(|law| law.ki = DMatrix::zeros(2, 3)));
    refused_for("K_P of the controller", edited(|law| law.kp[(0, 0)] = f64::NAN));
    refused_for("operating point does not fit", edited(|law| law.u0 = vec![0.0]));
    refused_for(
        "weights does not fit",
        edited(|law| law.weights.accumulated = vec![1.0, 0.0]),
    );
    for (min, max, quantum) in [
        (1.0, 1.0, 0.0),
        (2.0, 1.0, 0.0),
        (f64::NAN, 1.0, 0.0),
        (0.0, f64::INFINITY, 0.0),
        (0.0, 1.0, -1.0),
    ] {
        assert!(Knob::new(min, max, quantum).is_err());
    }
}
