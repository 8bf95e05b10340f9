//! Acting: turning the machine's knobs as planned, and saying what came of it.

use punctual_loop::{Applied, Plan};
use punctual_platform::{Machine, Setting};

/// Turns the clock as `plan` says. The admitted share belongs to the store and is set there.
///
/// A plan names a step of the machine, so a machine that stays elsewhere has a knob that is stuck: as good as refused,
/// except that the clock in force is known.
pub fn turn_clock(machine: &mut impl Machine, plan: Plan) -> Applied {
    let Some(clock) = plan.clock else {
        return Applied {
            clock: None,
            refused: None,
        };
    };
    match machine.apply(Setting::Clock(clock)) {
        Ok(Setting::Clock(obtained)) => Applied {
            clock: Some(obtained),
            refused: (obtained != clock).then(|| format!("the clock was set to {clock} and stayed at {obtained}")),
        },
        Ok(other) => Applied {
            clock: None,
            refused: Some(format!("asked for {clock}, the machine set {other:?}")),
        },
        Err(refusal) => Applied {
            clock: None,
            refused: Some(refusal.to_string()),
        },
    }
}
