//! The one-step law on simulated plants: goals, limits, rates, disturbances, wrong models, bad measurements.

use proptest::prelude::*;
use punctual_control::{
    Actuator, ArxModel, DMatrix, Knob, OneStep, OneStepError, OneStepTuning, StepError, quasi_static,
};

use crate::systems::{Plant, Uniform, names, stable_arx};

fn tuning(ny: usize, nu: usize, moves: f64, filter: f64) -> OneStepTuning {
    OneStepTuning {
        error: vec![1.0; ny],
        moves: vec![moves; nu],
        filter: vec![filter; ny],
    }
}

fn range(nu: usize, limit: f64) -> Vec<Actuator> {
    vec![Actuator::from(Knob::new(-limit, limit, 0.0).unwrap()); nu]
}

fn worst(y: &[f64], goal: &[f64]) -> f64 {
    y.iter().zip(goal).map(|(y, goal)| (y - goal).abs()).fold(0.0, f64::max)
}

fn siso(a: f64, b: f64) -> ArxModel {
    let [a, b] = [a, b].map(|v| vec![DMatrix::from_element(1, 1, v)]);
    ArxModel::from_matrices(names("u", 1), names("y", 1), a, b).unwrap()
}

/// Square models whose knobs reach every output.
fn invertible() -> impl Strategy<Value = ArxModel> {
    stable_arx(1..=3, 0..=0, 1..=1).prop_filter("the knobs hardly reach an output", |model| {
        let b = &model.b()[0];
        b.clone().svd(false, false).singular_values.min() > 0.1
    })
}

fn law(model: &ArxModel, limit: f64, moves: f64, filter: f64) -> OneStep {
    let (ny, nu) = (model.outputs().len(), model.inputs().len());
    OneStep::new(model, range(nu, limit), tuning(ny, nu, moves, filter)).unwrap()
}

fn run(law: &mut OneStep, plant: &mut Plant, goal: &[f64], samples: usize) {
    for _ in 0..samples {
        let u = law.step(&plant.y, goal, &[]).unwrap();
        plant.advance(u);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_constant_disturbance_leaves_no_error(model in invertible(), seed: u64, filter in 0.1..1.0f64) {
        let mut law = law(&model, 1e3, 1e-3, filter);
        prop_assume!(law.verdict().spectral_radius() < 0.98);
        let (mut plant, mut uniform) = (Plant::new(&model), Uniform::new(seed));
        let goal = uniform.row(plant.y.len());
        plant.disturbance = uniform.row(plant.y.len());
        run(&mut law, &mut plant, &goal, 1500);
        prop_assert!(worst(&plant.y, &goal) < 1e-6, "{:?} is not {:?}", plant.y, goal);
    }

    /// The claim of the module's text: after a step d of the disturbance the error is d, (1-l) d, (1-l)^2 d, ..
    #[test]
    fn an_error_shrinks_by_the_filter_per_sample(model in invertible(), seed: u64, filter in 0.2..1.0f64) {
        let mut law = law(&model, 1e3, 1e-12, filter);
        let (mut plant, mut uniform) = (Plant::new(&model), Uniform::new(seed));
        let goal = uniform.row(plant.y.len());
        run(&mut law, &mut plant, &goal, 200);
        prop_assert!(worst(&plant.y, &goal) < 1e-6);
        let d = uniform.row(goal.len());
        plant.disturbance = d.clone();
        let mut left = 1.0;
        for k in 0..6 {
            run(&mut law, &mut plant, &goal, 1);
            for ((y, goal), d) in plant.y.iter().zip(&goal).zip(&d) {
                prop_assert!((y - goal - left * d).abs() < 1e-4, "sample {k}: {y} against {goal} + {left} * {d}");
            }
            left *= 1.0 - filter;
        }
    }

    /// Inside of the limits, nothing but the linear answer: B u = goal - f - d^ for a square B and moves that cost
    /// nothing.
    #[test]
    fn inside_of_the_limits_it_is_the_inverse(model in invertible(), seed: u64) {
        let mut law = law(&model, 1e6, 1e-12, 0.5);
        let mut uniform = Uniform::new(seed);
        let (a, b) = (&model.a()[0], &model.b()[0]);
        let column = |v: &[f64]| DMatrix::from_column_slice(v.len(), 1, v);
        for k in 0..20 {
            let (y, goal) = (uniform.row(model.outputs().len()), uniform.row(model.outputs().len()));
            let u = law.step(&y, &goal, &[]).unwrap().to_vec();
            let foretold = a * column(&y) + b * column(&u) + column(law.disturbance());
            prop_assert!(worst(foretold.as_slice(), &goal) < 1e-5, "sample {k}: {foretold} is not {goal:?}");
        }
    }

    #[test]
    fn limits_and_rates_are_kept_whatever_is_measured(
        model in stable_arx(1..=3, 0..=0, 1..=1), seed: u64, limit in 0.1..2.0f64, part in 0.05..1.0f64,
        moves in 1e-6..1.0f64,
    ) {
        let (ny, nu) = (model.outputs().len(), model.inputs().len());
        let rate = part * limit;
        let knobs = range(nu, limit).into_iter().map(|knob| knob.with_rate(rate).unwrap()).collect();
        let mut law = OneStep::new(&model, knobs, tuning(ny, nu, moves, 0.6)).unwrap();
        let mut uniform = Uniform::new(seed);
        for k in 0..300 {
            let size = if k % 7 == 0 { 1e6 } else { 1.0 };
            let y: Vec<f64> = uniform.row(ny).iter().map(|v| v * size).collect();
            let before = law.settings().to_vec();
            let u = law.step(&y, &uniform.row(ny), &[]).unwrap();
            prop_assert!(u.iter().all(|u| u.abs() <= limit), "{u:?}");
            prop_assert!(worst(u, &before) <= rate * (1.0 + 1e-6), "from {before:?} to {u:?} with a rate of {rate}");
            if k % 11 == 0 {
                law.applied(&vec![0.0; nu]).unwrap();
            }
        }
    }

    #[test]
    fn settings_are_on_the_steps(
        model in stable_arx(1..=1, 0..=0, 1..=1),
        gaps in prop::collection::vec(0.1..1.0f64, 2..19),
        seed: u64,
    ) {
        let steps: Vec<f64> = gaps.iter().scan(0.0, |at, gap| { *at += gap; Some(*at) }).collect();
        prop_assume!(steps.len() >= 2);
        let knob = Actuator::on_steps(steps.clone()).unwrap();
        let mut law = OneStep::new(&model, vec![knob], tuning(1, 1, 1e-3, 0.6)).unwrap();
        let mut uniform = Uniform::new(seed);
        for _ in 0..200 {
            let u = law.step(&[uniform.draw()], &[uniform.draw()], &[]).unwrap()[0];
            prop_assert!(steps.contains(&u), "{u} is no step of {steps:?}");
        }
    }

    /// Under a steady load the knob goes back and forth between two neighbours, and the mean is on the goal.
    #[test]
    fn a_limit_cycle_is_one_step_wide(gaps in prop::collection::vec(0.5..1.0f64, 6..19), goal in -2.0..2.0f64) {
        let total: f64 = gaps.iter().sum();
        let steps: Vec<f64> = std::iter::once(0.0).chain(gaps.iter().scan(0.0, |at, gap| { *at += gap; Some(*at) }))
            .map(|at| 6.0 * at / total - 3.0).collect();
        let model = siso(0.0, -1.0);
        let knob = Actuator::on_steps(steps.clone()).unwrap();
        let mut law = OneStep::new(&model, vec![knob], tuning(1, 1, 1e-3, 0.6)).unwrap();
        let mut plant = Plant::new(&model);
        plant.disturbance = vec![0.3];
        let (mut sum, mut visited) = (0.0, Vec::new());
        for k in 0..3000 {
            run(&mut law, &mut plant, &[goal], 1);
            if k >= 1000 {
                sum += plant.y[0];
                visited.push(steps.iter().position(|step| *step == law.settings()[0]).unwrap());
            }
        }
        let (low, high) = (visited.iter().min().unwrap(), visited.iter().max().unwrap());
        prop_assert!(high - low <= 1, "between {low} and {high} of {steps:?}");
        prop_assert!((sum / 2000.0 - goal).abs() < 0.01, "mean {}", sum / 2000.0);
    }

    /// The claim on robustness: stable for a true gain of 0 < m < 2/l times the model's, and not beyond.
    #[test]
    fn the_gain_margin_is_two_over_the_filter(filter in 0.2..1.0f64, m in 0.02..12.0f64, b in 0.2..2.0f64) {
        prop_assume!((m * filter - 2.0).abs() > 0.1);
        let mut law = law(&siso(0.0, b), 1e3, 1e-9, filter);
        let mut plant = Plant::new(&siso(0.0, m * b));
        run(&mut law, &mut plant, &[1.0], 2000);
        prop_assert_eq!((plant.y[0] - 1.0).abs() < 1e-3, m * filter < 2.0, "ends at {}", plant.y[0]);
    }

    /// The claim on another pace: a quasi-static model of a machine with an unknown pole is never unstable.
    #[test]
    fn an_unresolved_pole_only_slows_it_down(
        a in 0.0..0.95f64,
        gain in 0.2..2.0f64,
        filter in 0.05..1.0f64,
        d in -1.0..1.0f64,
    ) {
        let machine = siso(a, (1.0 - a) * gain);
        let mut law = law(&quasi_static(&machine, 10.0).unwrap(), 1e3, 1e-9, filter);
        let mut plant = Plant::new(&machine);
        plant.disturbance = vec![d];
        run(&mut law, &mut plant, &[0.7], 5000);
        prop_assert!((plant.y[0] - 0.7).abs() < 1e-6, "{}", plant.y[0]);
    }

    /// Any model against any machine, signs included: the limits hold and no number overflows.
    #[test]
    fn a_wrong_model_never_leads_out_of_the_limits(
        model in stable_arx(2..=2, 0..=0, 1..=1), machine in stable_arx(2..=2, 0..=0, 1..=1), seed: u64,
    ) {
        let mut law = law(&model, 1.0, 1e-3, 0.6);
        let mut plant = Plant::new(&machine);
        let goal = Uniform::new(seed).row(2);
        for _ in 0..500 {
            run(&mut law, &mut plant, &goal, 1);
            prop_assert!(law.settings().iter().all(|u| u.abs() <= 1.0));
            prop_assert!(plant.y.iter().all(|y| y.abs() < 100.0), "{:?}", plant.y);
        }
    }

    #[test]
    fn recovery_from_saturation_does_not_depend_on_its_length(b in 0.2..2.0f64, stuck in 1usize..2000) {
        let model = siso(0.2, b);
        let (mut law, mut plant) = (law(&model, 1.0, 1e-6, 0.6), Plant::new(&model));
        run(&mut law, &mut plant, &[1e3], stuck);
        run(&mut law, &mut plant, &[0.1], 15);
        prop_assert!((plant.y[0] - 0.1).abs() < 0.01, "{}", plant.y[0]);
    }

    #[test]
    fn taking_over_a_running_machine_gives_no_jolt(model in invertible(), seed: u64) {
        let mut law = law(&model, 10.0, 1e-3, 0.6);
        let mut uniform = Uniform::new(seed);
        let (now, goal) = (uniform.row(model.inputs().len()), uniform.row(model.outputs().len()));
        prop_assume!({
            // As far as the knobs could do: beyond that the machine was never at rest there.
            let b = &model.b()[0];
            (0..goal.len()).all(|o| (0..now.len()).map(|i| b[(o, i)].abs()).sum::<f64>() * 20.0 > 4.0)
        });
        law.resume(&now).unwrap();
        for _ in 0..5 {
            let u = law.step(&goal, &goal, &[]).unwrap();
            prop_assert!(worst(u, &now) < 1e-6, "{u:?} is not {now:?}");
        }
    }
}

/// The machine keeps the share above a half whatever is asked for, as admission does for freshness: the clock makes up
/// for it, and the mean is on the goal.
#[test]
fn a_knob_that_does_not_follow_leaves_no_error() {
    let b = DMatrix::from_row_slice(1, 2, &[-1.0, 0.8]);
    let model = ArxModel::from_matrices(names("u", 2), names("y", 1), vec![DMatrix::zeros(1, 1)], vec![b]).unwrap();
    let mut law = law(&model, 2.0, 0.01, 0.6);
    let mut plant = Plant::new(&model);
    plant.disturbance = vec![1.5];
    for _ in 0..200 {
        let u = law.step(&plant.y, &[0.0], &[]).unwrap().to_vec();
        let real = [u[0], u[1].max(0.5)];
        plant.advance(&real);
        law.applied(&real).unwrap();
    }
    // The probe of a hundredth of its range is all that is counted on in vain.
    assert!(plant.y[0].abs() < 0.8 * 0.01 * 4.0 * 1.1, "{}", plant.y[0]);
    assert!(law.settings()[0] > 1.7, "{:?}", law.settings());
}

/// A disturbance that is measured is answered before it shows: y never leaves its goal.
#[test]
fn a_measured_disturbance_is_fed_forward() {
    let inputs = ["clock", "busy"].map(String::from).to_vec();
    let b = DMatrix::from_row_slice(1, 2, &[-1.0, 0.5]);
    let model = ArxModel::from_matrices(inputs, names("y", 1), vec![DMatrix::zeros(1, 1)], vec![b]).unwrap();
    let mut law = OneStep::new(&model, range(1, 5.0), tuning(1, 1, 1e-9, 0.6)).unwrap();
    let mut y = 0.0;
    for k in 0..60 {
        let busy = f64::from(k % 4);
        let u = law.step(&[y], &[0.4], &[busy]).unwrap()[0];
        y = -u + 0.5 * busy;
        assert!((y - 0.4).abs() < 1e-6, "{y} at {k}");
    }
    assert!(law.step(&[y], &[0.4], &[]).is_err(), "a meter is missing");
}

/// Planted fault: the sign of B. The loop must run to a limit: what a supervisor has to notice.
#[test]
fn a_law_for_the_opposite_machine_ends_at_a_limit() {
    let mut law = law(&siso(0.0, 1.0), 2.0, 1e-6, 0.6);
    let mut plant = Plant::new(&siso(0.0, -1.0));
    plant.disturbance = vec![0.1];
    run(&mut law, &mut plant, &[0.5], 100);
    assert!(
        law.settings()[0].abs() > 1.99 && (plant.y[0] - 0.5).abs() > 1.0,
        "{plant:?}",
        plant = plant.y
    );
}

#[test]
fn with_one_knob_at_its_limit_the_weights_decide() {
    let b = DMatrix::from_row_slice(2, 2, &[-0.6, 0.4, 0.1, 0.3]);
    let names2 = |a: &str, b: &str| vec![a.to_string(), b.to_string()];
    let model = ArxModel::from_matrices(
        names2("clock", "share"),
        names2("tardiness", "drr"),
        vec![DMatrix::zeros(2, 2)],
        vec![b],
    )
    .unwrap();
    let knobs = vec![
        Actuator::from(Knob::new(-5.0, 5.0, 0.0).unwrap()),
        Actuator::from(Knob::new(-0.1, 0.1, 0.0).unwrap()),
    ];
    let tuning = OneStepTuning {
        error: vec![1.0, 0.1],
        moves: vec![1e-4; 2],
        filter: vec![0.6; 2],
    };
    let mut law = OneStep::new(&model, knobs, tuning).unwrap();
    let mut plant = Plant::new(&model);
    plant.disturbance = vec![0.5, 0.5];
    run(&mut law, &mut plant, &[0.0, 0.0], 100);
    assert_eq!(law.settings()[1], -0.1, "the share is at its minimum");
    assert!(plant.y[1] > 0.3 && plant.y[0].abs() < 0.1 * plant.y[1], "{:?}", plant.y);
}

#[test]
fn values_that_cannot_be_used_change_nothing() {
    let model = siso(0.3, -1.0);
    let mut law = law(&model, 1.0, 1e-3, 0.6);
    law.step(&[1.2], &[0.85], &[]).unwrap();
    let before = law.clone();
    for (y, goal) in [(f64::NAN, 0.85), (f64::INFINITY, 0.85), (1.0, f64::NAN), (1e200, 0.85)] {
        assert!(matches!(law.step(&[y], &[goal], &[]), Err(StepError::NotUsable { .. })));
        assert_eq!(law, before);
    }
    assert!(matches!(
        law.step(&[1.0, 1.0], &[1.0], &[]),
        Err(StepError::Count { .. })
    ));
    assert!(law.applied(&[f64::NAN]).is_err() && law.resume(&[]).is_err());
    assert_eq!(law, before);
}

#[test]
fn one_absurd_measurement_is_forgotten() {
    let model = siso(0.2, -1.0);
    let (mut law, mut plant) = (law(&model, 2.0, 1e-6, 0.6), Plant::new(&model));
    for absurd in [1e6, -1e99] {
        law.step(&[absurd], &[0.1], &[]).unwrap();
        run(&mut law, &mut plant, &[0.1], 30);
        assert!((plant.y[0] - 0.1).abs() < 1e-3, "{} after {absurd}", plant.y[0]);
    }
}

#[test]
fn laws_that_cannot_be_say_why() {
    let model = siso(0.2, -1.0);
    let with = |tuning: OneStepTuning| OneStep::new(&model, range(1, 1.0), tuning).map(drop);
    assert_eq!(with(tuning(1, 1, 1.0, 1.0)), Ok(()));
    for (what, wrong) in [
        ("error prices", tuning(2, 1, 1.0, 1.0)),
        ("move prices", tuning(1, 1, 0.0, 1.0)),
        ("move prices", tuning(1, 1, f64::NAN, 1.0)),
        ("filter gains", tuning(1, 1, 1.0, 0.0)),
        ("filter gains", tuning(1, 1, 1.0, 1.1)),
    ] {
        assert!(matches!(with(wrong), Err(OneStepError::Tuning { what: told, .. }) if told == what));
    }
    assert_eq!(
        OneStep::new(&model, range(2, 1.0), tuning(1, 2, 1.0, 1.0)).map(drop),
        Err(OneStepError::Knobs { knobs: 2, inputs: 1 })
    );
    let second = [0.2, 0.1].map(|v| DMatrix::from_element(1, 1, v)).to_vec();
    let second = ArxModel::from_matrices(names("u", 1), names("y", 1), second.clone(), second).unwrap();
    assert_eq!(
        OneStep::new(&second, range(1, 1.0), tuning(1, 1, 1.0, 1.0)).map(drop),
        Err(OneStepError::Order { na: 2, nb: 2 })
    );
}
