//! Task sets for the properties of the admission test.

use proptest::prelude::*;

use super::Sporadic;
use punctual_units::Nanos;

/// A small task; its deadline may be shorter or longer than its period.
pub fn task() -> impl Strategy<Value = Sporadic> {
    (1u64..8, 1u64..24, 1u64..16).prop_map(|(c, d, t)| Sporadic {
        execution: Nanos(c),
        deadline: Nanos(d),
        period: Nanos(t),
    })
}

/// Length of the schedule that must be played, unit by unit, to see every miss: twice the hyperperiod plus the longest
/// deadline. `None` where the tasks overload the core.
pub fn horizon(tasks: &[Sporadic]) -> Option<u64> {
    let gcd = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let hyper = tasks
        .iter()
        .fold(1, |h, task| h / gcd(h, task.period.0) * task.period.0);
    let need: u64 = tasks.iter().map(|task| hyper / task.period.0 * task.execution.0).sum();
    let longest = tasks.iter().map(|task| task.deadline.0).max().unwrap_or(0);
    (need <= hyper).then_some(2 * hyper + longest)
}
