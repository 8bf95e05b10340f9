//! One suite that every [`Machine`] passes, so that a policy never learns on which one it runs.

use punctual_units::{Hertz, Share};

use crate::{Machine, Meter, Setting};

/// Checks the contract of [`Machine`] on `machine` and returns what was violated; empty means that it conforms.
///
/// `pass_time` lets about 10 ms pass on that machine (a sleep on Linux, a run of the model in `sim`).
/// The machine's knobs are turned and put back.
pub fn check<M: Machine>(machine: &mut M, mut pass_time: impl FnMut(&mut M)) -> Vec<String> {
    let mut violations = Vec::new();
    let mut require = |holds: bool, what: String| {
        if !holds {
            violations.push(what);
        }
    };
    let offers = machine.offers().clone();
    require(!offers.cores.is_empty(), "a machine has at least one core".into());
    require(
        offers.cores.is_sorted(),
        format!("cores are ascending, not {:?}", offers.cores),
    );

    let found = machine.read();
    match &offers.clock {
        Some(clock) => {
            require(!clock.steps.is_empty(), "a clock knob has at least one step".into());
            require(
                clock.steps.is_sorted(),
                format!("clock steps are ascending, not {:?}", clock.steps),
            );
            let (bottom, top) = (clock.bottom(), clock.top());
            let wanted = [
                bottom,
                top,
                Hertz(bottom.0 / 2),
                top.scaled(2.0),
                Hertz(bottom.0.midpoint(top.0)),
            ];
            for wanted in wanted {
                let expected = clock.nearest(wanted);
                let obtained = machine.apply(Setting::Clock(wanted));
                require(
                    obtained == Ok(Setting::Clock(expected)),
                    format!("asked for {wanted}, the nearest step is {expected}, got {obtained:?}"),
                );
                let read = machine.read().clock;
                require(
                    read == Meter::Value(expected),
                    format!("the clock was set to {expected} but reads {read:?}"),
                );
            }
        }
        None => require(
            machine.apply(Setting::Clock(Hertz::from_mhz(1000))).is_err(),
            "a clock that is not offered is refused".into(),
        ),
    }

    let share = machine.apply(Setting::BestEffortShare(Share::clamped(0.5)));
    require(
        share.is_ok() == offers.best_effort_share.is_some(),
        format!(
            "best-effort share: offered {:?}, but setting it gave {share:?}",
            offers.best_effort_share
        ),
    );

    let before = machine.read();
    pass_time(machine);
    let after = machine.read();
    require(
        after.at > before.at,
        format!("time passes: {:?} then {:?}", before.at, after.at),
    );
    require(
        matches!(after.energy_j, Meter::Absent) == offers.energy.is_none(),
        format!("energy: offered {:?}, read {:?}", offers.energy, after.energy_j),
    );
    if let (Some(before), Some(after)) = (before.energy_j.value(), after.energy_j.value()) {
        require(
            after >= before && *before >= 0.0,
            format!("energy never decreases: {before} then {after}"),
        );
    }
    if let (Some(earlier), Some(later)) = (before.busy.value(), after.busy.value()) {
        require(
            later.len() == offers.cores.len(),
            format!("one busy time per core, not {}", later.len()),
        );
        let elapsed = after.at.since(before.at);
        for (core, (earlier, later)) in offers.cores.iter().zip(earlier.iter().zip(later)) {
            require(later >= earlier, format!("busy time of core {core} never decreases"));
            // Kernel accounting advances in ticks, so allow two 10 ms ticks of slack.
            require(
                later.saturating_sub(*earlier).0 <= elapsed.0 + 20_000_000,
                format!("core {core} cannot be busy for longer than time passed"),
            );
        }
    }

    let left_over = machine.restore();
    require(
        left_over.is_empty(),
        format!("everything can be put back, except {left_over:?}"),
    );
    let restored = machine.read();
    require(
        restored.clock == found.clock,
        format!(
            "restore puts the clock back to {:?}, not {:?}",
            found.clock, restored.clock
        ),
    );
    require(machine.restore().is_empty(), "restoring twice is harmless".into());
    violations
}
