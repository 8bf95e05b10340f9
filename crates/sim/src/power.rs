//! Power and energy, separately for each part.
//!
//! ```text
//! cores:   for every core g V^2, for every busy one C f V^2
//! uncore:  g V^2, while any core is busy C f V^2, and (accesses to the shared cache per second) e
//! memory:  a constant, and (accesses per second) e
//! E = integral of P
//! ```
//!
//! with coefficients of each part's own. A busy core draws its full dynamic power while it waits for memory: its clock
//! runs on. An idle core is clock-gated and keeps its voltage. P is constant between two events, so the integral is a
//! sum.

use punctual_platform::Parts;
use punctual_units::Time;

use crate::model::{ClockStep, PowerModel};

/// Activity of the machine that determines its power.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Activity {
    /// Number of busy cores.
    pub busy: usize,
    /// Accesses to the shared cache per nanosecond, of all cores.
    pub cache_per_ns: f64,
    /// Accesses to memory per nanosecond, of all cores.
    pub memory_per_ns: f64,
}

impl PowerModel {
    /// Watts drawn by a machine of `cores` cores at `step`.
    pub(crate) fn watts(&self, step: ClockStep, cores: usize, activity: Activity) -> Parts {
        let v2 = step.volt * step.volt;
        let leakage = |mw_per_v2: f64| mw_per_v2 * 1e-3 * v2;
        let dynamic = |uw_per_mhz_v2: f64| uw_per_mhz_v2 * 1e-6 * step.clock.as_mhz_f64() * v2;
        let awake = if activity.busy > 0 { 1.0 } else { 0.0 };
        // nJ per access * accesses per ns = W
        Parts {
            cores: cores as f64 * leakage(self.core.static_mw_per_v2)
                + activity.busy as f64 * dynamic(self.core.dynamic_uw_per_mhz_v2),
            uncore: leakage(self.uncore.static_mw_per_v2)
                + awake * dynamic(self.uncore.dynamic_uw_per_mhz_v2)
                + activity.cache_per_ns * self.uncore.access_nj,
            memory: self.memory.static_mw * 1e-3 + activity.memory_per_ns * self.memory.access_nj,
        }
    }
}

/// The integral of power. Reading changes nothing, so an observed run is the same run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EnergyMeter {
    joules: Parts,
    since: Time,
    watts: Parts,
}

impl EnergyMeter {
    /// Energy in joules up to `now`, which is not before the latest change of power.
    pub(crate) fn joules(&self, now: Time) -> Parts {
        self.joules + self.watts * now.since(self.since).as_secs_f64()
    }

    /// Sets the power drawn from `now` on, in watts.
    pub(crate) fn draw(&mut self, watts: Parts, now: Time) {
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

    fn busy(busy: usize) -> Activity {
        Activity {
            busy,
            ..Activity::default()
        }
    }

    #[test]
    fn a_core_at_2_ghz_and_1_3125_v_is_busy_at_1068_mw() {
        let model = MachineModel::exynos5422_a15();
        let watts = |n| model.power.watts(model.top(), 4, busy(n)).cores;
        assert!((watts(1) - watts(0) - 1.068).abs() < 0.001);
        assert!((watts(4) - watts(0) - 4.0 * 1.068).abs() < 0.004);
    }

    #[test]
    fn an_idle_machine_leaks_and_refreshes() {
        let model = MachineModel::exynos5422_a15();
        let v2 = 1.3125 * 1.3125;
        let idle = model.power.watts(model.top(), 4, busy(0));
        assert!((idle.cores - 4.0 * 10.8e-3 * v2).abs() < 1e-12);
        assert!((idle.uncore - 14.4e-3 * v2).abs() < 1e-12);
        assert_eq!(idle.memory, 0.06);
    }

    #[test]
    fn traffic_is_paid_for_where_it_goes() {
        let power = MachineModel::exynos5422_a15().power;
        let top = MachineModel::exynos5422_a15().top();
        let quiet = power.watts(top, 4, busy(1));
        let traffic = Activity {
            busy: 1,
            cache_per_ns: 0.1,
            memory_per_ns: 0.01,
        };
        let loud = power.watts(top, 4, traffic);
        assert_eq!(loud.cores, quiet.cores);
        assert!((loud.uncore - quiet.uncore - 0.1 * power.uncore.access_nj).abs() < 1e-12);
        assert!((loud.memory - quiet.memory - 0.01 * power.memory.access_nj).abs() < 1e-12);
    }

    #[test]
    fn energy_is_the_sum_of_power_times_time() {
        let watts = |cores| Parts {
            cores,
            uncore: 1.0,
            memory: 0.25,
        };
        let mut meter = EnergyMeter::default();
        meter.draw(watts(2.0), Time(0));
        meter.draw(watts(0.5), Time(1_000_000_000));
        let joules = Parts {
            cores: 3.0,
            uncore: 3.0,
            memory: 0.75,
        };
        assert_eq!(meter.joules(Time(3_000_000_000)), joules);
        assert_eq!(meter.joules(Time(3_000_000_000)), joules);
        assert_eq!(joules.total(), 6.75);
    }
}
