//! A step of a running law allocates nothing: a decision must not wait for the allocator.

use punctual_control::{Actuator, ArxModel, DMatrix, Effect, Knob, LqrPi, Supervisor, Weights, design};
use punctual_testing::{CountingAllocator, allocations_of};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn a_step_allocates_nothing_within_limits_at_them_and_on_errors() {
    let model = ArxModel::from_matrices(
        vec!["clock".into(), "share".into()],
        vec!["tardiness".into(), "drr".into()],
        vec![
            DMatrix::from_row_slice(2, 2, &[0.3, 0.1, 0.05, 0.4]),
            DMatrix::identity(2, 2) * 0.1,
        ],
        vec![
            DMatrix::from_row_slice(2, 2, &[-0.6, 0.4, 0.1, 0.3]),
            DMatrix::identity(2, 2) * 0.1,
        ],
    )
    .unwrap();
    let weights = Weights {
        error: vec![10.0, 1.0],
        accumulated: vec![10.0, 1.0],
        effort: vec![1.0, 1.0],
    };
    let knobs = vec![Knob::new(-1.0, 1.0, 0.0).unwrap(); 2];
    let mut law = LqrPi::new(&design(&model, &weights).unwrap(), knobs).unwrap();
    let steps = allocations_of(|| {
        for k in 0..100 {
            let far = if k % 10 == 0 { 50.0 } else { 0.1 };
            law.step(&[far, 0.3], &[0.85, 0.3]).unwrap();
            law.applied(&[0.2, -0.2]).unwrap();
            law.step(&[f64::NAN, 0.3], &[0.85, 0.3]).unwrap_err();
        }
    });
    assert_eq!(steps, 0);
    assert_eq!(allocations_of(|| drop(vec![1u8])), 1, "the counter counts");
}

#[test]
fn nor_do_feed_forward_and_the_supervisor() {
    let model = ArxModel::from_matrices(
        vec!["clock".into(), "share".into()],
        vec!["tardiness".into(), "drr".into()],
        vec![DMatrix::from_row_slice(2, 2, &[0.3, 0.1, 0.05, 0.4])],
        vec![DMatrix::from_row_slice(2, 2, &[-0.6, 0.4, 0.1, 0.3])],
    )
    .unwrap();
    let clock = Actuator::on_steps((0..=20).map(|i| f64::from(i) * 0.1 - 1.0).collect()).unwrap();
    let share = Knob::new(-1.0, 1.0, 0.0).unwrap();
    let actuators = vec![clock, Actuator::from(share)];
    let weights = Weights {
        error: vec![10.0, 1.0],
        accumulated: vec![10.0, 1.0],
        effort: vec![1.0, 1.0],
    };
    let gains = design(&model, &weights).unwrap();
    let pi = LqrPi::on_actuators(&gains, actuators).unwrap();
    let mut pi = pi.with_model(&model, &gains).unwrap();
    let mut supervisor = Supervisor::new(&model, vec![share; 2], vec![Effect::Lowers, Effect::Raises], 0.1).unwrap();
    let steps = allocations_of(|| {
        for k in 0..100 {
            let y = [if k % 10 == 0 { 50.0 } else { 0.1 }, 0.3];
            let goal = [0.2 + 0.01 * f64::from(k), 0.3];
            pi.step(&y, &goal).unwrap();
            supervisor.observe(&y, goal[0], pi.settings(), pi.settings());
        }
    });
    assert_eq!(steps, 0);
}
