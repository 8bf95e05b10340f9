//! A clock knob for machines without one: real extra work in proportion.
//!
//! **Problem.** A virtual machine has no cpufreq, and CPU quotas stop a thread for milliseconds instead of slowing it
//! down. **Method.** Let *top* be the CPU's frequency and *f* the wanted clock. Work that takes *w* at top takes
//! *w·top/f* at *f*; so after *w* of real work the thread executes another *w·(top/f - 1)* of arithmetic, data path
//! included ([`EmulatedClock::stretch`]), and pure computation is scaled from the start ([`EmulatedClock::compute`]).
//! The extra work is a number of loop iterations fixed beforehand by a calibration: it watches no clock and never
//! sleeps, so preemption, interference and cache misses hit it as they hit real work.
//!
//! Limits: it does not emulate energy, and it must not stretch time spent waiting for memory (memory does not slow down
//! with the core's clock; the caller decides which part of its time it passes to `stretch`).

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_units::{Clock, Hertz, Nanos};

use super::KernelTree;
use super::cores::cpuinfo_field;
use crate::{ClockOffer, Provenance};

/// Speed of the arithmetic loop on this machine at its real clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    iterations_per_nano: f64,
}

impl Calibration {
    /// Number of calibration runs. The fastest one counts: a preemption, an interrupt or steal only makes a run slower.
    const RUNS: usize = 40;
    /// Least duration of a calibration run: thousands of times the cost and the resolution of reading a clock.
    const RUN_AT_LEAST: Nanos = Nanos::from_micros(50);
    /// Most iterations of a run, for a clock that does not move.
    const ITERATIONS_MAX: u64 = 1 << 22;

    /// Measures the loop on the calling thread; takes a few milliseconds.
    pub fn measure(clock: &impl Clock) -> Calibration {
        let time = |iterations| {
            let start = clock.now();
            spin(iterations);
            clock.now().since(start)
        };
        let mut iterations = 1 << 10;
        while time(iterations) < Self::RUN_AT_LEAST && iterations < Self::ITERATIONS_MAX {
            iterations *= 2;
        }
        let fastest = (0..Self::RUNS).map(|_| time(iterations)).min().unwrap_or(Nanos::ZERO);
        Calibration {
            iterations_per_nano: iterations as f64 / fastest.0.max(1) as f64,
        }
    }

    /// A given speed of the loop, in iterations per nanosecond: for tests and replays.
    pub const fn given(iterations_per_nano: f64) -> Calibration {
        Calibration { iterations_per_nano }
    }

    /// Number of iterations that take `work` at the real clock, rounded.
    pub fn iterations(&self, work: Nanos) -> u64 {
        (work.0 as f64 * self.iterations_per_nano).round() as u64
    }
}

/// Runs the arithmetic loop: a chain of dependent one-cycle steps (Marsaglia's xorshift), so that its cost does not
/// depend on how wide the core is, touches no memory, and cannot be folded into a formula by the compiler.
#[inline(never)]
fn spin(iterations: u64) {
    let mut state: u64 = black_box(0x9E37_79B9_7F4A_7C15);
    for _ in 0..iterations {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
}

/// The emulated clock, shared by all threads that it slows down.
///
/// ```
/// use punctual_platform::linux::emulated::{Calibration, EmulatedClock};
/// use punctual_units::{Hertz, Nanos};
/// let clock = EmulatedClock::new(Hertz::from_mhz(2000), Calibration::given(1.0));
/// assert_eq!(clock.set(Hertz::from_mhz(990)), Hertz::from_mhz(1000));
/// // At half the clock, 1000 ns of real work are followed by 1000 ns more.
/// assert_eq!(clock.extra_iterations(Nanos(1000)), 1000);
/// clock.stretch(Nanos(1000));
/// ```
#[derive(Debug)]
pub struct EmulatedClock {
    offer: ClockOffer,
    calibration: Calibration,
    /// The clock in force, in hertz; one of the offered steps.
    clock_hz: AtomicU64,
}

impl EmulatedClock {
    /// Steps of the clock, in percent of the top. About as many as the A15 of the paper has (19, from 200 MHz to 2
    /// GHz), but the slowest is a fifth of the top instead of a tenth; chosen by hand.
    const STEPS_PERCENT: std::ops::RangeInclusive<u64> = 20..=100;
    const STEP_PERCENT: usize = 5;
    /// Cycles after which [`EmulatedClock::compute`] reads the clock again (50 us at 2 GHz), so that a turn of the knob
    /// also slows down work in progress.
    const CHUNK_CYCLES: u64 = 100_000;

    /// Makes a clock at `top`, in steps of 5 % from 20 % to 100 % of it. It starts at the top.
    pub fn new(top: Hertz, calibration: Calibration) -> Self {
        let steps = Self::STEPS_PERCENT
            .step_by(Self::STEP_PERCENT)
            .map(|percent| top.scaled(percent as f64 / 100.0))
            .collect();
        EmulatedClock {
            offer: ClockOffer::new(steps, Provenance::Emulated),
            calibration,
            clock_hz: AtomicU64::new(top.0),
        }
    }

    /// Makes a clock for the CPU that `tree` describes, calibrated on this machine.
    pub fn of(tree: &KernelTree, clock: &impl Clock) -> Self {
        let cpuinfo = tree.text("/proc/cpuinfo");
        EmulatedClock::new(nominal_frequency(&cpuinfo), Calibration::measure(clock))
    }

    /// The offered steps, labelled as emulated.
    pub fn offer(&self) -> &ClockOffer {
        &self.offer
    }

    /// Sets the clock to the nearest step, and returns that. Takes effect at the next work of every thread.
    pub fn set(&self, wanted: Hertz) -> Hertz {
        let obtained = self.offer.nearest(wanted);
        self.clock_hz.store(obtained.0, Ordering::Relaxed);
        obtained
    }

    /// The clock in force, one of the steps.
    pub fn clock(&self) -> Hertz {
        Hertz(self.clock_hz.load(Ordering::Relaxed))
    }

    /// The clock in force divided by the top, 0.2 to 1.
    pub fn ratio(&self) -> f64 {
        self.clock().ratio(self.offer.top())
    }

    /// Number of loop iterations after `real_work`: those that take `real_work * (top/f - 1)`.
    pub fn extra_iterations(&self, real_work: Nanos) -> u64 {
        self.calibration.iterations(real_work.scaled(1.0 / self.ratio() - 1.0))
    }

    /// Slows down work that took `real_work` of CPU time at the real clock, by real extra work after it. Does nothing
    /// at the top clock.
    ///
    /// Pass CPU time instead of elapsed time if the thread may have been preempted meanwhile.
    pub fn stretch(&self, real_work: Nanos) {
        spin(self.extra_iterations(real_work));
    }

    /// Number of loop iterations for `cycles` at the clock in force: those that take `cycles / f`.
    pub fn compute_iterations(&self, cycles: u64) -> u64 {
        self.calibration
            .iterations(Nanos::from_secs_f64(cycles as f64 / self.clock().0 as f64))
    }

    /// Computes for `cycles` at the clock in force, and follows changes of the clock meanwhile.
    pub fn compute(&self, cycles: u64) {
        let mut left = cycles;
        while left > 0 {
            let chunk = left.min(Self::CHUNK_CYCLES);
            spin(self.compute_iterations(chunk));
            left -= chunk;
        }
    }
}

/// Plausible CPU frequencies in MHz; other figures mean something else (on ARM, BogoMIPS are those of a timer).
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 300.0..=10_000.0;
/// Assumed frequency of a CPU that does not report one.
const UNKNOWN_CPU: Hertz = Hertz::from_mhz(1000);

/// The frequency of the first CPU in the text of `/proc/cpuinfo`: "cpu MHz", else half of its BogoMIPS (the delay loop
/// runs twice per cycle), else 1 GHz.
///
/// The absolute figure only names the steps; the emulation depends on ratios to it alone.
pub fn nominal_frequency(cpuinfo: &str) -> Hertz {
    let field = |name: &str| cpuinfo_field(cpuinfo, name)?.parse::<f64>().ok();
    let mhz = [field("cpu MHz"), field("bogomips").map(|bogomips| bogomips / 2.0)]
        .into_iter()
        .flatten()
        .find(|mhz| PLAUSIBLE.contains(mhz));
    mhz.map_or(UNKNOWN_CPU, |mhz| Hertz::from_mhz(mhz.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::thread::thread_cpu_time;
    use proptest::prelude::*;
    use punctual_os::LinuxOs;
    use punctual_units::{ManualClock, Time};

    fn clock_of(mhz: u64, iterations_per_nano: f64) -> EmulatedClock {
        EmulatedClock::new(Hertz::from_mhz(mhz), Calibration::given(iterations_per_nano))
    }

    proptest! {
        #[test]
        fn stretching_makes_work_take_top_over_f_as_long(
            mhz in 300u64..10_000, rate in 0.05f64..2.0, work_us in 1u64..1_000_000, wanted in 0u64..10_000,
        ) {
            let clock = clock_of(mhz, rate);
            let f = clock.set(Hertz::from_mhz(wanted));
            let work = Nanos::from_micros(work_us);
            let extra = clock.extra_iterations(work) as f64;
            let expected = work.0 as f64 * rate * (Hertz::from_mhz(mhz).0 as f64 / f.0 as f64 - 1.0);
            // Rounded twice: to a nanosecond (here at most two iterations) and to an iteration.
            prop_assert!((extra - expected).abs() <= 2.0 + expected * 1e-9, "{extra} for {expected}");
        }

        #[test]
        fn stretching_at_the_top_clock_does_nothing(mhz in 300u64..10_000, rate in 0.05f64..2.0, work in any::<u64>()) {
            prop_assert_eq!(clock_of(mhz, rate).extra_iterations(Nanos(work)), 0);
        }

        #[test]
        fn a_slower_clock_never_computes_less(
            mhz in 300u64..10_000, cycles in 0u64..10_000_000_000, one in 0u64..10_000, other in 0u64..10_000,
        ) {
            let clock = clock_of(mhz, 0.3);
            let iterations_at = |mhz| {
                clock.set(Hertz::from_mhz(mhz));
                clock.compute_iterations(cycles)
            };
            prop_assert!(iterations_at(one.min(other)) >= iterations_at(one.max(other)));
        }

        #[test]
        fn the_clock_obtained_is_the_nearest_step_and_the_one_in_force(mhz in 300u64..10_000, wanted in 0u64..20_000) {
            let clock = clock_of(mhz, 1.0);
            let obtained = clock.set(Hertz::from_mhz(wanted));
            prop_assert_eq!(obtained, clock.offer().nearest(Hertz::from_mhz(wanted)));
            prop_assert_eq!(clock.clock(), obtained);
        }

        #[test]
        fn no_cpuinfo_is_too_strange(text in "\\PC*(\n(cpu MHz|BogoMIPS)[\t :]*\\PC*)*") {
            let mhz = nominal_frequency(&text).as_mhz_f64();
            prop_assert!(PLAUSIBLE.contains(&mhz));
        }
    }

    #[test]
    fn the_ladder_runs_from_a_fifth_to_the_top_in_steps_of_a_twentieth() {
        let clock = clock_of(2000, 1.0);
        let steps: Vec<_> = clock.offer().steps.iter().map(|step| step.0 / 1_000_000).collect();
        assert_eq!(steps.len(), 17);
        assert_eq!((steps[0], steps[1], steps[16]), (400, 500, 2000));
        assert!(clock.offer().steps.is_sorted());
    }

    #[test]
    fn cycles_at_half_the_clock_take_twice_the_iterations() {
        let clock = clock_of(2000, 0.5);
        assert_eq!(clock.compute_iterations(2_000_000), 500_000); // 1 ms at 2 GHz, 0.5 iterations per ns
        clock.set(Hertz::from_mhz(1000));
        assert_eq!(clock.compute_iterations(2_000_000), 1_000_000);
    }

    #[test]
    fn the_loop_is_really_executed() {
        let cost = |iterations: u64| {
            let cost_once = || {
                let start = thread_cpu_time();
                spin(iterations);
                thread_cpu_time() - start
            };
            (0..20).map(|_| cost_once()).min().unwrap()
        };
        // The least of many runs; a loop that was optimised away would cost the same at any length.
        assert!(cost(1_000_000) > cost(100_000) * 2);
    }

    /// A clock under which every run of the calibration is "preempted" for 1 s, but for one.
    struct PreemptedClock {
        reads: std::cell::Cell<u64>,
        time: ManualClock,
    }
    impl Clock for PreemptedClock {
        fn now(&self) -> Time {
            let read = self.reads.get();
            self.reads.set(read + 1);
            // Reads come in pairs around a run; the run of pair 20 is left in peace.
            let ends_run = read % 2 == 1;
            let span = if read / 2 == 20 {
                Nanos::from_micros(100)
            } else {
                Nanos::from_secs(1)
            };
            if ends_run {
                self.time.advance(span);
            }
            self.time.now()
        }
    }

    #[test]
    fn one_undisturbed_run_is_enough_to_calibrate() {
        let clock = PreemptedClock {
            reads: 0.into(),
            time: ManualClock::default(),
        };
        // The pilot stops at its first run, which seems to take 1 s: 1024 iterations in 100 us.
        assert_eq!(Calibration::measure(&clock).iterations(Nanos::from_micros(100)), 1024);
    }

    #[test]
    fn a_clock_that_stands_still_does_not_hang_the_calibration() {
        assert!(Calibration::measure(&ManualClock::default()).iterations(Nanos(1)) > 0);
    }

    #[test]
    fn this_machine_can_be_calibrated() {
        let calibration = Calibration::measure(&LinuxOs);
        // Six dependent one-cycle steps: between 0.03 (200 MHz) and 2 (12 GHz) iterations per nanosecond.
        let per_micro = calibration.iterations(Nanos::from_micros(1000)) as f64 / 1000.0;
        eprintln!("{per_micro} iterations per us");
        assert!((1.0..4000.0).contains(&per_micro), "{per_micro} iterations per us");
    }

    #[test]
    fn the_frequency_is_taken_from_what_the_cpu_tells() {
        assert_eq!(
            nominal_frequency("cpu MHz\t\t: 2399.998\nbogomips\t: 100.0\n"),
            Hertz::from_mhz(2400)
        );
        assert_eq!(nominal_frequency("bogomips\t: 4000.00\n"), Hertz::from_mhz(2000));
        assert_eq!(nominal_frequency("BogoMIPS\t: 108.00\n"), UNKNOWN_CPU); // an ARM timer, not a clock
        assert_eq!(nominal_frequency(""), UNKNOWN_CPU);
    }
}
