//! A probe for time that the hypervisor, firmware or the kernel itself took from a core.
//!
//! **Problem.** A late job may be late because no thread ran on its core at all. That excuses it, but only with
//! evidence. **Method.** A thread with a priority above all real-time work wakes periodically on the same core and does
//! nothing. It is late only if the core was taken from all threads, so it records each *oversleep* (the delay of a
//! wake-up) above a floor as a *gap*: from the requested instant to the instant at which it ran. A late job is excused
//! only by a gap of a probe on the same core at least as long as its overrun ([`GapProbe::longest_gap`]).
//!
//! A gap may have begun up to one period before it is seen: it is underestimated, never overestimated. The distribution
//! of all oversleeps is the no-op control of a latency run: differences below it mean nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;

use hdrhistogram::Histogram;
use punctual_units::{Clock, CoreId, Nanos, Time};
use serde::{Deserialize, Serialize};

use super::exclusive::ExclusiveCore;
use super::starvation::{self, STARVES_AFTER, StarvationGuard};
use super::thread::Tid;
use super::{refused, thread};
use crate::Refusal;
use punctual_os::LinuxOs;
use punctual_os::linux::sync::PiMutex;

/// A common choice of period: well below the deadlines that it judges, at well below 1 % of a core.
pub const PERIOD: Nanos = Nanos::from_millis(1);
/// Shortest period: a shorter one could keep everything else off the core.
const PERIOD_MIN: Nanos = Nanos::from_micros(100);
/// Least oversleep that counts as a gap: below it lies the ordinary delay of a timer.
const GAP_AT_LEAST: Nanos = Nanos::from_micros(100);
/// Number of latest gaps that are kept: 4 s with a gap in every period of 1 ms. An older gap excuses nothing.
const GAPS_MAX: usize = 4096;
/// Upper bound on recorded oversleeps; longer ones count as this.
const OVERSLEEP_MAX: Nanos = Nanos::from_secs(100);

/// An interval in which the probe could not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Instant at which the probe should have run.
    pub start: Time,
    /// Instant at which the probe ran again.
    pub end: Time,
    /// Whether the probe was stopped with its process, by a signal or a freezer, and other threads had the core.
    #[serde(default)]
    pub stopped: bool,
}

/// Delays of the probe's wake-ups, over all its periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Oversleep {
    /// Number of wake-ups of the probe.
    pub wakes: u64,
    /// Delay that half of the wake-ups did not exceed.
    pub p50: Nanos,
    /// Delay that 99 % of the wake-ups did not exceed.
    pub p99: Nanos,
    /// Longest delay of a wake-up.
    pub max: Nanos,
}

/// Gaps and oversleeps of a probe: the pure part.
#[derive(Debug)]
pub struct GapLog {
    /// The latest gaps, oldest first; they do not overlap.
    gaps: VecDeque<Gap>,
    oversleeps: Histogram<u64>,
    max: Nanos,
    /// When the probe woke last; before, when it was made.
    woke: Time,
}

impl Default for GapLog {
    /// Allocates all the memory that it will ever use.
    fn default() -> Self {
        const EXACT_TO_DIGITS: u8 = 2;
        GapLog {
            gaps: VecDeque::with_capacity(GAPS_MAX),
            oversleeps: Histogram::new_with_bounds(1, OVERSLEEP_MAX.0, EXACT_TO_DIGITS)
                .expect("bounds and digits are constants in the histogram's range"),
            max: Nanos::ZERO,
            woke: LinuxOs.now(),
        }
    }
}

impl GapLog {
    /// Records a wake-up: requested for `asked`, obtained at `woke`; `stopped`: the process was stopped meanwhile.
    /// Calls come in order of time.
    pub fn note(&mut self, asked: Time, woke: Time, stopped: bool) {
        let oversleep = woke.since(asked);
        self.oversleeps.saturating_record(oversleep.0);
        self.max = self.max.max(oversleep);
        self.woke = woke;
        if oversleep >= GAP_AT_LEAST {
            if self.gaps.len() == GAPS_MAX {
                self.gaps.pop_front();
            }
            self.gaps.push_back(Gap {
                start: asked,
                end: woke,
                stopped,
            });
        }
    }

    /// The longest part of a gap within `from` to `to`, of those in which the process was `stopped` or of the others;
    /// zero if there was none.
    pub fn longest_gap(&self, from: Time, to: Time, stopped: bool) -> Nanos {
        self.gaps
            .iter()
            .rev()
            .take_while(|gap| gap.end > from)
            .filter(|gap| gap.stopped == stopped)
            .map(|gap| gap.end.min(to).since(gap.start.max(from)))
            .max()
            .unwrap_or(Nanos::ZERO)
    }

    /// Summary of the wake-up delays so far.
    pub fn summary(&self) -> Oversleep {
        let quantile = |quantile| Nanos(self.oversleeps.value_at_quantile(quantile)).min(self.max);
        Oversleep {
            wakes: self.oversleeps.len(),
            p50: quantile(0.5),
            p99: quantile(0.99),
            max: self.max,
        }
    }
}

/// A running probe. It stops when dropped.
#[derive(Debug)]
pub struct GapProbe {
    core: CoreId,
    tid: Tid,
    shared: Arc<ProbeState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct ProbeState {
    stop: AtomicBool,
    /// With priority inheritance: a thread that reads the log cannot delay the probe for longer than the reading takes.
    log: PiMutex<GapLog>,
}

impl GapProbe {
    /// Starts a probe on `core` at the real-time `priority`, which must be above that of all work there, waking every
    /// `period` ([`PERIOD`] is a good one).
    ///
    /// # Errors
    /// [`Refusal`] without permission for real-time scheduling, for a missing core, or for a period below 100 us.
    pub fn start(core: CoreId, priority: u8, period: Nanos) -> Result<GapProbe, Refusal> {
        GapProbe::start_placed(core, move || thread::pin(core), priority, period)
    }

    /// As [`GapProbe::start`], on an exclusive core: the probe enters it before it is pinned there, because the kernel
    /// pins no thread to a core of a partition from outside of it.
    ///
    /// # Errors
    /// Those of [`GapProbe::start`]; also if the core does not admit the probe.
    pub fn start_within(core: &ExclusiveCore, priority: u8, period: Nanos) -> Result<GapProbe, Refusal> {
        let (number, core) = (core.obtained().core, core.clone());
        let place = move || core.enter(Tid::current()).and_then(|()| thread::pin(number));
        GapProbe::start_placed(number, place, priority, period)
    }

    fn start_placed(
        core: CoreId,
        place: impl FnOnce() -> Result<(), Refusal> + Send + 'static,
        priority: u8,
        period: Nanos,
    ) -> Result<GapProbe, Refusal> {
        let what = || format!("probing core {core} for gaps every {period}");
        if period < PERIOD_MIN {
            let why = "so short a period could keep everything else off the core";
            let remedy = format!("choose at least {PERIOD_MIN}; {PERIOD} is a good choice");
            return Err(refused(what(), why, remedy));
        }
        let shared = Arc::new(ProbeState::default());
        let (tell, told) = mpsc::sync_channel(1);
        let (tell_thread, thread_told) = mpsc::sync_channel(1);
        let probe = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("gap-probe-{core}"))
            .spawn(move || {
                let _ = tell_thread.send(Tid::current());
                let ready = place().and_then(|()| thread::real_time(priority));
                let may_run = ready.is_ok();
                let ready = ready.map(|()| Tid::current());
                if tell.send(ready).is_ok() && may_run {
                    wake_and_note(&probe, period);
                }
            })
            .map_err(|why| refused(what(), why, "raise the limit on threads (ulimit -u)"))?;
        let mut guard = thread_told.recv().ok().map(StarvationGuard::new);
        let tid = loop {
            match told.recv_timeout(STARVES_AFTER) {
                Ok(ready) => break ready?,
                // A probe of other cores is none of this one: the thread ends as soon as it runs.
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(guard) = &mut guard
                        && guard.starves()
                    {
                        starvation::make_ordinary(guard.thread());
                        return Err(starvation::refusal(core, priority));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(refused(what(), "its thread ended", "this is a defect worth reporting"));
                }
            }
        };
        Ok(GapProbe {
            core,
            tid,
            shared,
            thread: Some(thread),
        })
    }

    /// The probe's thread: code that reserves the core for a few threads admits this one.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// The core that is probed.
    pub fn core(&self) -> CoreId {
        self.core
    }

    /// The longest part of a gap within `from` to `to`, as far as the probe saw it: at least 100 us, and among the
    /// latest 4096 gaps. Zero if there was none.
    ///
    /// Call this after the job in question has ended on that core: the probe, with its higher priority, has then run
    /// before it.
    pub fn longest_gap(&self, from: Time, to: Time) -> Nanos {
        self.shared.log.lock().longest_gap(from, to, false)
    }

    /// Time from the probe's last wake-up to `now`: far above its period while a thread of a higher priority has the
    /// core.
    pub fn since_wake(&self, now: Time) -> Nanos {
        now.since(self.shared.log.lock().woke)
    }

    /// The longest time within `from` to `to` for which this process was stopped, as far as the probe saw it; zero if
    /// it was not. Such a time is no gap of the core.
    pub fn longest_stop(&self, from: Time, to: Time) -> Nanos {
        self.shared.log.lock().longest_gap(from, to, true)
    }

    /// Summary of the wake-up delays so far: the no-op control of a latency run.
    pub fn summary(&self) -> Oversleep {
        self.shared.log.lock().summary()
    }
}

impl Drop for GapProbe {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread ends within a period. A panic in it has been printed already.
            let _ = starvation::join(thread, self.tid);
        }
    }
}

/// Runs the probe's thread until it is stopped.
fn wake_and_note(shared: &ProbeState, period: Nanos) {
    let mut asked = LinuxOs.now() + period;
    while !shared.stop.load(Ordering::Relaxed) {
        let before = thread::voluntary_switches();
        LinuxOs.sleep_until(asked);
        let woke = LinuxOs.now();
        // A sleep is one switch; the kernel lets a thread that is stopped switch once more.
        let stopped = thread::voluntary_switches() > before + 1;
        shared.log.lock().note(asked, woke, stopped);
        asked = next_wake(asked, woke, period);
    }
}

/// The next instant to wake: one period after the last requested one; after a gap longer than that, one period after
/// waking, so that the missed wake-ups do not count the gap again.
fn next_wake(asked: Time, woke: Time, period: Nanos) -> Time {
    if woke < asked + period {
        asked + period
    } else {
        woke + period
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;
    use crate::linux::thread::allowed_cores;
    use proptest::prelude::*;

    /// A sequence of wakes as the probe makes them: each with its oversleep, in microseconds.
    fn wakes(oversleeps_us: &[u64]) -> Vec<Gap> {
        let mut asked = Time::ZERO + PERIOD;
        oversleeps_us
            .iter()
            .map(|oversleep| {
                let woke = asked + Nanos::from_micros(*oversleep);
                let wake = Gap {
                    start: asked,
                    end: woke,
                    stopped: false,
                };
                asked = next_wake(asked, woke, PERIOD);
                wake
            })
            .collect()
    }

    proptest! {
        /// The model looks at every microsecond and forgets nothing.
        #[test]
        fn the_longest_gap_is_the_one_of_the_model(
            oversleeps_us in prop::collection::vec(prop_oneof![0u64..90, 80u64..5000], 0..60),
            from_us in 0u64..100_000, length_us in 0u64..100_000,
        ) {
            let wakes = wakes(&oversleeps_us);
            let mut log = GapLog::default();
            wakes.iter().for_each(|wake| log.note(wake.start, wake.end, false));
            let (from, to) = (from_us, from_us + length_us);
            let within = |wake: &Gap| {
                let taken = (wake.start.0 / 1000..wake.end.0 / 1000).filter(|us| (from..to).contains(us)).count();
                Nanos::from_micros(taken as u64)
            };
            let gaps = wakes.iter().filter(|wake| wake.end.since(wake.start) >= GAP_AT_LEAST);
            let expected = gaps.map(within).max().unwrap_or(Nanos::ZERO);
            let micros = |us| Time::ZERO + Nanos::from_micros(us);
            prop_assert_eq!(log.longest_gap(micros(from), micros(to), false), expected);
        }

        #[test]
        fn gaps_never_overlap_and_never_exceed_the_time_that_passed(
            oversleeps_us in prop::collection::vec(0u64..20_000, 1..100),
        ) {
            let wakes = wakes(&oversleeps_us);
            for pair in wakes.windows(2) {
                prop_assert!(pair[0].end < pair[1].start);
            }
        }

        #[test]
        fn the_summary_is_ordered_and_near_the_exact_quantiles(
            mut oversleeps_us in prop::collection::vec(1u64..100_000, 1..300),
        ) {
            let mut log = GapLog::default();
            wakes(&oversleeps_us).iter().for_each(|wake| log.note(wake.start, wake.end, false));
            let summary = log.summary();
            oversleeps_us.sort_unstable();
            let exact =
                |quantile| punctual_units::percentile_of_rising(&oversleeps_us, quantile).unwrap() as f64 * 1000.0;
            prop_assert_eq!(summary.wakes, oversleeps_us.len() as u64);
            prop_assert_eq!(summary.max, Nanos::from_micros(*oversleeps_us.last().unwrap()));
            prop_assert!(summary.p50 <= summary.p99 && summary.p99 <= summary.max);
            for (estimate, quantile) in [(summary.p50, 0.5), (summary.p99, 0.99)] {
                prop_assert!((estimate.0 as f64 / exact(quantile) - 1.0).abs() <= 0.01, "{estimate} at {quantile}");
            }
        }
    }

    #[test]
    fn only_the_latest_gaps_are_remembered() {
        let mut log = GapLog::default();
        let wakes = wakes(&vec![500; GAPS_MAX + 1]);
        wakes.iter().for_each(|wake| log.note(wake.start, wake.end, false));
        assert_eq!(log.gaps.len(), GAPS_MAX);
        assert_eq!(
            log.longest_gap(wakes[0].start, wakes[0].end, false),
            Nanos::ZERO,
            "forgotten: it excuses nothing"
        );
        assert_eq!(
            log.longest_gap(wakes[1].start, wakes[1].end, false),
            Nanos::from_micros(500)
        );
    }

    #[test]
    fn a_stop_of_the_process_is_no_gap() {
        let mut log = GapLog::default();
        let at = |us| Time::ZERO + Nanos::from_micros(us);
        log.note(at(1_000), at(1_500), false);
        log.note(at(2_000), at(9_000), true);
        assert_eq!(log.longest_gap(Time::ZERO, Time::MAX, false), Nanos::from_micros(500));
        assert_eq!(log.longest_gap(Time::ZERO, Time::MAX, true), Nanos::from_micros(7_000));
    }

    #[test]
    fn a_log_without_wakes_says_zero() {
        let log = GapLog::default();
        assert_eq!(log.longest_gap(Time::ZERO, Time::MAX, false), Nanos::ZERO);
        assert_eq!(log.summary().wakes, 0);
        assert_eq!(log.summary().max, Nanos::ZERO);
    }

    #[test]
    fn a_probe_runs_on_this_machine_or_says_why_not() {
        let _machine = punctual_testing::shared_machine();
        let core = *allowed_cores().last().unwrap();
        let start = LinuxOs.now();
        let probe = match GapProbe::start(core, 90, PERIOD) {
            Ok(probe) => probe,
            Err(refusal) => {
                eprintln!("skipped the gap probe: {refusal}");
                assert!(refusal.remedy.contains("CAP_SYS_NICE"), "{refusal}");
                return;
            }
        };
        punctual_testing::wait_until("the probe wakes", || probe.summary().wakes >= 20);
        // In this order, as the probe goes on meanwhile.
        let gap = probe.longest_gap(start, LinuxOs.now());
        let summary = probe.summary();
        assert!(gap <= summary.max);
        assert!(summary.max <= LinuxOs.now().since(start));
        eprintln!("core {}: {summary:?}", probe.core());
    }

    /// The process that is stopped is this test again, as a child.
    #[test]
    fn a_stop_by_a_signal_is_told_from_a_gap() {
        const CHILD: &str = "PUNCTUAL_TEST_STOPPED";
        const STOP: Nanos = Nanos::from_millis(50);
        if std::env::var_os(CHILD).is_some() {
            let Ok(probe) = GapProbe::start(*allowed_cores().last().unwrap(), 90, PERIOD) else {
                return println!("skipped");
            };
            println!("ready");
            let stop = || probe.longest_stop(Time::ZERO, LinuxOs.now());
            return punctual_testing::wait_until("the probe sees a stop", || stop() * 2 >= STOP);
        }
        let name = "linux::probe::tests::a_stop_by_a_signal_is_told_from_a_gap";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(CHILD, "1")
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok);
        let said = lines
            .find(|line| line.contains("ready") || line.contains("skipped"))
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        while said.contains("ready") && child.try_wait().unwrap().is_none() {
            // The injected cause, and time between two stops.
            for signal in [libc::SIGSTOP, libc::SIGCONT] {
                // SAFETY: the child has not been waited for, so the number is still its own.
                unsafe { libc::kill(pid, signal) };
                std::thread::sleep(STOP.into());
            }
        }
        lines.for_each(drop);
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn senseless_probes_are_refused() {
        assert!(GapProbe::start(allowed_cores()[0], 90, Nanos::ZERO).is_err());
        assert!(GapProbe::start(CoreId(1023), 90, PERIOD).is_err());
        assert!(GapProbe::start(allowed_cores()[0], 0, PERIOD).is_err());
    }
}
