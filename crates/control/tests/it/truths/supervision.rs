//! The supervisor: silent over loops that settle, whatever disturbs them; heard over those that do not.

use proptest::prelude::*;
use punctual_control::{
    ArxModel, Doubt, Effect, Knob, OperatingPoint, Orders, Recording, Supervisor, identify, steady_gain,
};

use crate::truths::systems::Uniform;

/// The true machine: tardiness falls with the clock (0.4 to 1) and rises with the share (0 to 1), plus noise.
struct Machine {
    clock: f64,
    share: f64,
    noise: f64,
    uniform: Uniform,
}

impl Machine {
    fn answer(&mut self, u: &[f64], disturbance: f64) -> f64 {
        1.5 + self.clock * u[0] + self.share * u[1] + disturbance + self.noise * self.uniform.draw()
    }
}

fn machine(clock: f64, share: f64, noise: f64, seed: u64) -> Machine {
    let uniform = Uniform::new(seed);
    Machine {
        clock,
        share,
        noise,
        uniform,
    }
}

fn knobs() -> Vec<Knob> {
    vec![Knob::new(0.4, 1.0, 0.05).unwrap(), Knob::new(0.0, 1.0, 0.0).unwrap()]
}

/// A model from a record of the machine with the usual gains.
fn model(seed: u64) -> ArxModel {
    let mut machine = machine(-1.5, 0.5, 0.03, seed);
    let mut record = Recording {
        inputs: vec!["clock".into(), "share".into()],
        outputs: vec!["tardiness".into()],
        ..Recording::default()
    };
    let mut y = 0.8;
    for k in 0..200u32 {
        let u = vec![0.5 + 0.1 * f64::from(k % 5), 0.3 + 0.2 * f64::from(k % 4)];
        record.y.push(vec![y]);
        y = machine.answer(&u, 0.0);
        record.u.push(u);
    }
    identify(&record, Orders::FIRST, &OperatingPoint::Mean).unwrap()
}

/// Closes a loop around `machine` in which each of both knobs takes up 30 % of the error, as `model` says; the first
/// doubt and its sample, and the outputs.
fn closed(
    model: &ArxModel,
    mut machine: Machine,
    disturbance: impl Fn(usize) -> f64,
) -> (Option<(usize, Doubt)>, Vec<f64>) {
    let gain = steady_gain(model).unwrap();
    let mut supervisor = Supervisor::new(model, knobs(), vec![Effect::Lowers, Effect::Raises], 0.1).unwrap();
    let (mut y, mut u, mut doubt, mut outputs) = (0.8, [0.7, 0.5], None, Vec::new());
    for k in 0..400 {
        if k > 0 {
            doubt = doubt.or(supervisor.observe(&[y], 0.8, &u, &u).map(|doubt| (k, doubt)));
        }
        for (i, (u, knob)) in u.iter_mut().zip(knobs()).enumerate() {
            *u = (*u + 0.3 / gain[(0, i)] * (0.8 - y)).clamp(knob.min(), knob.max());
        }
        y = machine.answer(&u, disturbance(k));
        outputs.push(y);
    }
    (doubt, outputs)
}

proptest! {
    /// Steps, periods and noise that the knobs can counter with ease, and gains off by up to two fifths. Beyond, noise
    /// alone swings a loop now and then, and the pause that follows is the price of noticing.
    #[test]
    fn a_loop_that_settles_raises_no_doubt(
        seed: u64,
        size in 0.0..0.3f64,
        period in 10usize..100,
        noise in 0.0..0.08f64,
        off in 0.6..1.4f64,
    ) {
        let machine = machine(-1.5 * off, 0.5 * off, noise, seed);
        let (doubt, _) = closed(&model(seed), machine, |k| if k / period % 2 == 1 { size } else { 0.0 });
        prop_assert_eq!(doubt, None);
    }

    /// A load that no setting brings back to the goal is not the model's fault.
    #[test]
    fn nor_does_a_goal_out_of_reach(seed: u64) {
        let (doubt, outputs) =
            closed(&model(seed), machine(-1.5, 0.5, 0.05, seed), |k| if k > 100 { 2.0 } else { 0.0 });
        prop_assert!(outputs[200..].iter().all(|y| *y > 1.0));
        prop_assert_eq!(doubt, None);
    }

    /// The planted faults: a machine whose knobs work the other way round.
    #[test]
    fn a_machine_of_the_opposite_sign_is_noticed(seed: u64, size in 0.3..1.5f64) {
        // As the supervisor knows the natures from elsewhere, it is the model that is wrong.
        let right = machine(-1.5, 0.5, 0.03, seed);
        let opposite = negated(&model(seed));
        let (doubt, _) = closed(&opposite, right, |_| size * 0.2);
        let (sample, _) = doubt.expect("a law that pushes the wrong way is noticed");
        prop_assert!(sample <= 60, "at sample {sample}");
    }

    /// Gains so far above the model's that the loop overshoots more each time.
    #[test]
    fn a_machine_that_answers_too_much_is_noticed(seed: u64, off in 5.0..9.0f64) {
        let machine = Machine { clock: -1.5 * off, share: 0.5 * off, ..machine(0.0, 0.0, 0.03, seed) };
        let offset = 0.8 - 1.5 + 1.5 * off * 0.7 - 0.5 * off * 0.5;
        let (doubt, _) = closed(&model(seed), machine, |_| offset);
        let (sample, _) = doubt.expect("a loop that swings is noticed");
        prop_assert!(sample <= 100, "at sample {sample}");
    }
}

fn negated(model: &ArxModel) -> ArxModel {
    let mut json = serde_json::to_value(model).unwrap();
    for row in json["b"][0].as_array_mut().unwrap() {
        for gain in row.as_array_mut().unwrap() {
            *gain = serde_json::json!(-gain.as_f64().unwrap());
        }
    }
    serde_json::from_value(json).unwrap()
}

#[test]
fn what_is_no_number_is_passed_over_and_a_reset_forgets() {
    let model = model(1);
    let fresh = Supervisor::new(&model, knobs(), vec![Effect::Lowers, Effect::Raises], 0.1).unwrap();
    let mut supervisor = fresh.clone();
    assert_eq!(supervisor.observe(&[f64::NAN], 0.8, &[0.5, 0.5], &[0.5, 0.5]), None);
    assert_eq!(supervisor.observe(&[1.0, 1.0], 0.8, &[0.5, 0.5], &[0.5, 0.5]), None);
    assert_eq!(supervisor, fresh);
    let late = (0..20).find_map(|k| {
        supervisor
            .observe(&[2.0], 0.8, &[0.4, 1.0], &[0.4, 1.0])
            .map(|doubt| (k, doubt))
    });
    assert_eq!(late, Some((2, Doubt::Backwards { late: true, samples: 2 })));
    supervisor.reset();
    assert_eq!(supervisor.observe(&[2.0], 0.8, &[0.4, 1.0], &[0.4, 1.0]), None);
    assert!(Supervisor::new(&model, knobs(), vec![Effect::Lowers], 0.1).is_none());
}
