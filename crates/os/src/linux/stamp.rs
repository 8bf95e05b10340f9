//! Stamps for short spans: the time-stamp counter where it is reliable, else the clock.
//!
//! **Why.** A store stamps the clock twice for each get. `clock_gettime` waits for all loads before it, which ends the
//! overlap of a read with what follows; the plain `rdtsc` does not. Its price: a stamp may be off by the work in flight
//! around it, some tens of nanoseconds.
//!
//! **When.** The counter is used if the CPU declares that it ticks at one rate in all power states (CPUID 8000_0007H,
//! EDX bit 8: "invariant TSC"; Intel SDM vol. 3, 17.17.1), and the kernel itself keeps time by it, having checked that
//! the cores agree.
//!
//! **Scale.** Ticks are converted to nanoseconds by a factor measured once against `CLOCK_MONOTONIC`, over
//! [`CALIBRATED_OVER`]; the ends of that span are known to some 50 ns, so that the factor is good to about 20 ppm.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use punctual_units::{Nanos, Time};

use super::clock::now;

/// Time of the calibration in the first stamp of a process.
const CALIBRATED_OVER: Duration = Duration::from_millis(5);
/// Number of bits after the binary point of the factor.
const SHIFT: u32 = 32;

/// Nanoseconds per tick, times 2^[`SHIFT`]; `None` where the counter cannot be trusted.
static SCALE: OnceLock<Option<u64>> = OnceLock::new();

/// A stamp; see [`Clock::stamp`](punctual_units::Clock::stamp). The first stamp of a process calibrates, which takes 5
/// ms.
#[inline]
pub(super) fn stamp() -> Time {
    match SCALE.get_or_init(calibrate) {
        Some(scale) => Time(scaled(ticks(), *scale)),
        None => now(),
    }
}

#[inline]
fn scaled(ticks: u64, scale: u64) -> u64 {
    ((u128::from(ticks) * u128::from(scale)) >> SHIFT) as u64
}

#[cold]
fn calibrate() -> Option<u64> {
    if !reliable(Path::new(ROOT)) {
        return None;
    }
    let (began, first) = both();
    std::thread::sleep(CALIBRATED_OVER);
    let (ended, last) = both();
    scale(ended.since(began), last.checked_sub(first)?)
}

/// Reads the time and the counter. Of eight pairs it returns the one that was read in the shortest time: preemption
/// between the two would falsify the factor.
fn both() -> (Time, u64) {
    let readings = [(); 8].map(|()| {
        let (at, ticks) = (now(), ticks());
        (now().since(at), at, ticks)
    });
    let (_, at, ticks) = readings.into_iter().min().expect("eight readings");
    (at, ticks)
}

/// The factor for a counter that ticked `ticks` times in `span`; `None` for a counter that stands still, or is slower
/// than 1 MHz.
fn scale(span: Nanos, ticks: u64) -> Option<u64> {
    let scale = (u128::from(span.0) << SHIFT).checked_div(u128::from(ticks))?;
    u64::try_from(scale)
        .ok()
        .filter(|scale| (1..1000 << SHIFT).contains(scale))
}

/// Root of the kernel's own files.
const ROOT: &str = "/";

/// Whether the kernel under `root` keeps time by the counter.
fn kernel_trusts(root: &Path) -> bool {
    let source = root.join("sys/devices/system/clocksource/clocksource0/current_clocksource");
    std::fs::read_to_string(source).is_ok_and(|source| source.trim() == "tsc")
}

#[cfg(target_arch = "x86_64")]
fn reliable(root: &Path) -> bool {
    use std::arch::x86_64::__cpuid;
    const POWER_MANAGEMENT: u32 = 0x8000_0007;
    let invariant = __cpuid(0x8000_0000).eax >= POWER_MANAGEMENT && __cpuid(POWER_MANAGEMENT).edx & (1 << 8) != 0;
    invariant && kernel_trusts(root)
}

#[cfg(not(target_arch = "x86_64"))]
fn reliable(_: &Path) -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn ticks() -> u64 {
    // SAFETY: every x86_64 CPU has the instruction, and Linux lets user space run it unless it was forbidden (prctl
    // PR_SET_TSC), in which case the vDSO of the very clock would fault as well.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ticks_become_the_span_in_which_they_were_counted(mhz in 2u64..6000, millis in 1u64..1000) {
            let (span, ticks) = (Nanos::from_millis(millis), mhz * 1000 * millis);
            let back = scaled(ticks, scale(span, ticks).unwrap());
            prop_assert!(span.0.abs_diff(back) <= 1 + span.0 / 1_000_000, "{} became {back}", span.0);
        }
    }

    #[test]
    fn a_counter_that_stands_still_is_not_trusted() {
        assert_eq!(scale(Nanos::from_millis(5), 0), None);
        assert_eq!(scale(Nanos::ZERO, 1000), None);
    }

    #[test]
    fn a_kernel_that_keeps_time_by_something_else_is_believed() {
        let folder = tempfile::tempdir().unwrap();
        let sources = folder.path().join("sys/devices/system/clocksource/clocksource0");
        std::fs::create_dir_all(&sources).unwrap();
        for (source, trusted) in [("tsc\n", true), ("kvm-clock\n", false), ("hpet\n", false)] {
            std::fs::write(sources.join("current_clocksource"), source).unwrap();
            assert_eq!(kernel_trusts(folder.path()), trusted, "{source}");
        }
        assert!(!kernel_trusts(&folder.path().join("empty")));
    }

    #[test]
    fn stamps_measure_what_the_clock_measures() {
        // The span in between is bracketed by the clock, so that a busy machine cannot make this fail.
        stamp();
        let outer = now();
        let first = stamp();
        let inner = now();
        std::thread::sleep(Duration::from_millis(20));
        let inner = now().since(inner);
        let stamped = stamp().since(first);
        let outer = now().since(outer);
        let slack = Nanos(1000 + inner.0 / 1000);
        assert!(
            inner <= stamped + slack && stamped <= outer + slack,
            "{inner} <= {stamped} <= {outer}"
        );
    }
}
