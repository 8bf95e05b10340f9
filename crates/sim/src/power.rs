//! Power and energy.
//!
//! ```text
//! P = sum over cores of (static: g V^2) + sum over busy cores of (dynamic: C f V^2) + (accesses per second) * e
//! E = integral of P
//! ```
//!
//! A busy core draws its full dynamic power while it waits for memory: its clock runs on. An idle core is clock-gated
//! and keeps its voltage. P is constant between two events, so the integral is a sum.

use punctual_units::Time;

use crate::model::{ClockStep, PowerModel};

impl PowerModel {
    /// Watts drawn by `cores` cores at `step`, `busy` of them working, with `accesses_per_ns` memory accesses per
    /// nanosecond together.
    pub(crate) fn watts(&self, step: ClockStep, cores: usize, busy: usize, accesses_per_ns: f64) -> f64 {
        let v2 = step.volt * step.volt;
        let leakage = self.static_mw_per_v2 * 1e-3 * v2;
        let dynamic = self.dynamic_uw_per_mhz_v2 * 1e-6 * step.clock.as_mhz_f64() * v2;
        // nJ per access * accesses per ns = W
        cores as f64 * leakage + busy as f64 * dynamic + accesses_per_ns * self.access_nj
    }
}

/// The integral of power. Reading it changes nothing, so a run that is watched is the same run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EnergyMeter {
    joules: f64,
    since: Time,
    watts: f64,
}

impl EnergyMeter {
    /// Energy up to `now`, which is not before the latest change of power.
    pub(crate) fn joules(&self, now: Time) -> f64 {
        self.joules + self.watts * now.since(self.since).as_secs_f64()
    }

    /// From `now` on, so many watts are drawn.
    pub(crate) fn draw(&mut self, watts: f64, now: Time) {
        if watts != self.watts {
            self.joules = self.joules(now);
            self.since = now;
            self.watts = watts;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MachineModel;

    #[test]
    fn a_core_at_2_ghz_and_1_3125_v_is_busy_at_1068_mw() {
        let model = MachineModel::exynos5422_a15();
        let idle = model.power.watts(model.top(), 4, 0, 0.0);
        let busy = model.power.watts(model.top(), 4, 1, 0.0);
        assert!((busy - idle - 1.068).abs() < 0.001, "{}", busy - idle);
    }

    #[test]
    fn energy_is_the_sum_of_power_times_time() {
        let mut meter = EnergyMeter::default();
        meter.draw(2.0, Time(0));
        meter.draw(0.5, Time(1_000_000_000));
        assert_eq!(meter.joules(Time(3_000_000_000)), 3.0);
        assert_eq!(meter.joules(Time(3_000_000_000)), 3.0);
    }
}
