//! This project's gate: a request is admitted if it will end in time.
//!
//! ```text
//! wait  = backlog x cost / executors      0 while an executor is free
//! own   = items x cost
//! admit iff (wait + own) (1 + bias) + margin x scale <= time left
//! ```
//!
//! *Feed-forward first.* Backlog, items and cost are known before the request runs, so the forecast is right from the
//! first request of a burst on. A feedback from finished delays learns of a burst only after the burst has waited.
//!
//! *Feedback on the rest.* Where forecasts are off on average (another program takes part of the processor, the cost of
//! an item depends on the cache), a PI control law trims the *bias*. Its process is a pure delay: a forecast is checked
//! when its request ends, up to one deadline later. The gains are those for a process of pure delay theta: proportional
//! 0.25, integral time theta / 2 (S. Skogestad, "Simple analytic rules for model reduction and PID controller tuning",
//! Journal of Process Control 13, 2003, has the integral gain 1 / (2 theta) for it).
//!
//! *The margin is learned.* A wait is a sum over many requests, so its error grows with the root of their number:
//!
//! ```text
//! scale^2 = wait x (time of a request) / executors + own^2 + pause^2
//! ```
//!
//! is the variance of such a sum where the times of requests have a relative spread of 1 (exponential). The errors of
//! the forecasts over their scales are then comparable, short waits and long ones, and the margin is their quantile.
//! With costs that vary little the quantile comes out small. A margin that is too wide costs next to nothing: the
//! executors are busy as long as any request waits, and the length of the queue does not matter for their throughput.
//!
//! *The pause* is a delay that a machine adds to any request, long or short: its scheduler lets another thread run
//! first, for some milliseconds. Without it a request of 0.1 ms that such a pause hit would count as an error of thirty
//! scales, and a margin of thirty scales refuses requests at a third of the load that the node can serve. Nor do rare
//! long pauses make the margin there ([`QUANTILE_LINUX`]): they hit requests regardless of the queue, so that refusing
//! others prevents none of them. A pause counts as at least the time of a mean request. A simulated machine has none.

use punctual_units::{Nanos, Time};

/// Number of recent forecasts whose errors make the margin.
pub const ERRORS: usize = 1024;
/// The quantile of the errors that is the margin: one admitted request in 500 ends later than forecast and margin
/// predict.
pub const QUANTILE: f64 = 0.998;
/// The margin before [`ERRORS_MIN`] requests have ended, in scales: three standard deviations of exponential times.
pub const MARGIN_FIRST: f64 = 3.0;
/// Least number of errors for a meaningful quantile.
pub const ERRORS_MIN: usize = 64;
/// The pause of a thread among others on Linux: about the time for which its scheduler lets one thread run before the
/// next (`base_slice_ns` of Linux 6.12: 0.75 ms times 1 to 4, by the number of cores).
pub const PAUSE_LINUX: Nanos = Nanos::from_millis(1);
/// The quantile on Linux: a pause that hits fewer than one request in 100 does not count.
pub const QUANTILE_LINUX: f64 = 0.99;
/// Number of errors that make the margin on Linux: as many lie beyond the quantile, and the effect of a burst fades
/// sooner.
pub const ERRORS_LINUX: usize = 256;
/// Steps of the control law on the bias per `goal`, the usual time of a request.
const STEPS_PER_GOAL: u32 = 8;
/// Dead time in steps: a step late, because the mean of a step is on average half a step old, and acts for another
/// half.
const DEAD_STEPS: f64 = STEPS_PER_GOAL as f64 + 1.0;
/// Gains of the control law on the bias, see above; the integral one per step.
const PROPORTIONAL: f64 = 0.25;
const INTEGRAL: f64 = 0.5 / DEAD_STEPS;
/// Bounds of the bias: forecasts are corrected by factors from 0.5 to 5. Beyond, the cost itself is learned soon.
const BIAS_MIN: f64 = -0.5;
const BIAS_MAX: f64 = 4.0;

/// Forecast of a request's time from now to its end, and of its error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    wait: f64,
    own: f64,
    /// Error of the forecast in seconds if the times of requests are exponential.
    pub(super) scale: f64,
}

impl Forecast {
    /// From seconds: the wait until it starts, its own time, the time of a mean request, and the machine's pause.
    pub(super) fn new(wait: f64, own: f64, request: f64, executors: usize, pause: f64) -> Forecast {
        let scale = (wait * request / executors as f64 + own * own + pause * pause).sqrt();
        Forecast { wait, own, scale }
    }

    /// Seconds from now to its end.
    pub fn seconds(self) -> f64 {
        self.wait + self.own
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Timely {
    goal: f64,
    pause: f64,
    quantile: f64,
    errors_max: usize,
    margin: f64,
    bias: f64,
    accumulated: f64,
    /// Sums over the requests that have ended since the last step, in seconds: measured and forecast time.
    taken: f64,
    foretold: f64,
    step_from: Option<Time>,
    /// The last errors over their scales, in a ring.
    errors: Vec<f32>,
    oldest: usize,
    sorted: Vec<f32>,
}

impl Timely {
    /// A gate for requests whose deadline is usually `goal` after their start. Each request is judged by its own
    /// deadline; the goal sets the pace of the control law and the reported bound.
    pub fn new(goal: Nanos) -> Timely {
        Timely {
            goal: goal.as_secs_f64(),
            pause: 0.0,
            quantile: QUANTILE,
            errors_max: ERRORS,
            margin: MARGIN_FIRST,
            bias: 0.0,
            accumulated: 0.0,
            taken: 0.0,
            foretold: 0.0,
            step_from: None,
            errors: Vec::new(),
            oldest: 0,
            sorted: Vec::new(),
        }
    }

    /// This gate, for the threads of a Linux machine, where pauses hit any request now and then: [`PAUSE_LINUX`],
    /// [`QUANTILE_LINUX`], [`ERRORS_LINUX`].
    pub fn on_linux(self) -> Timely {
        Timely {
            pause: PAUSE_LINUX.as_secs_f64(),
            quantile: QUANTILE_LINUX,
            errors_max: ERRORS_LINUX,
            ..self
        }
    }

    /// Seconds for which the machine may delay any request: at least as long as a mean one takes, `request`. Else the
    /// delay of a short request among long ones would count as an error of many scales, and refuse long ones.
    pub(super) fn pause(&self, request: f64) -> f64 {
        match self.pause > 0.0 {
            true => self.pause.max(request),
            false => 0.0,
        }
    }

    /// The learned margin, in scales of the forecast's error.
    pub fn margin(&self) -> f64 {
        self.margin
    }

    /// Relative correction that is added to forecasts.
    pub fn bias(&self) -> f64 {
        self.bias
    }

    pub(super) fn corrected(&self, forecast: Forecast) -> f64 {
        forecast.seconds() * (1.0 + self.bias)
    }

    /// Seconds by which the request would miss the time left, margin included; above 0 it is refused.
    pub(super) fn excess(&self, forecast: Forecast, left: f64) -> f64 {
        self.corrected(forecast) + self.margin * forecast.scale - left
    }

    /// Items of backlog with which a request of the goal's time is still admitted: [`Timely::excess`] at 0, solved for
    /// the wait. `drain` is the node's time for an item and `request` an executor's for a request, in seconds.
    ///
    /// With `spread = request / executors`, `x^2 = wait + pause^2 / spread` makes it a square equation in `x`.
    pub(super) fn bound(&self, drain: f64, request: f64, executors: usize) -> f64 {
        let raised = 1.0 + self.bias;
        let margin = self.margin.max(0.0);
        let spread = request / executors as f64;
        let pause = self.pause(request);
        let wait = if spread > 0.0 {
            let half = margin * spread.sqrt() / (2.0 * raised);
            let paused = pause * pause / spread;
            let root = (half * half + self.goal / raised + paused).sqrt() - half;
            root * root - paused
        } else {
            (self.goal - margin * pause) / raised
        };
        if drain > 0.0 {
            wait.max(0.0) / drain
        } else {
            f64::INFINITY
        }
    }

    /// Learns that a request has ended after `taken` seconds; `foretold` were forecast, with a typical error of
    /// `scale`.
    pub(super) fn finished(&mut self, foretold: f64, scale: f64, taken: f64, now: Time) {
        if scale > 0.0 {
            self.remember(((taken - foretold) / scale) as f32);
        }
        self.taken += taken;
        self.foretold += foretold;
        let from = *self.step_from.get_or_insert(now);
        if now.since(from).as_secs_f64() * f64::from(STEPS_PER_GOAL) >= self.goal {
            self.step();
            self.step_from = Some(now);
        }
    }

    fn remember(&mut self, error: f32) {
        if self.errors.len() < self.errors_max {
            self.errors.push(error);
        } else {
            self.errors[self.oldest] = error;
            self.oldest = (self.oldest + 1) % self.errors_max;
        }
    }

    fn step(&mut self) {
        if self.foretold > 0.0 {
            let error = self.taken / self.foretold - 1.0;
            self.accumulated = (self.accumulated + INTEGRAL * error).clamp(BIAS_MIN, BIAS_MAX);
            self.bias = (self.accumulated + PROPORTIONAL * error).clamp(BIAS_MIN, BIAS_MAX);
        }
        (self.taken, self.foretold) = (0.0, 0.0);
        if self.errors.len() >= ERRORS_MIN {
            self.margin = f64::from(self.quantile()).max(0.0);
        }
    }

    fn quantile(&mut self) -> f32 {
        self.sorted.clear();
        self.sorted.extend_from_slice(&self.errors);
        let last = self.sorted.len() - 1;
        let at = ((self.sorted.len() as f64 * self.quantile) as usize).min(last);
        *self.sorted.select_nth_unstable_by(at, f32::total_cmp).1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOAL: Nanos = Nanos::from_secs(1);

    /// Ends `count` requests a second for `seconds`, a deadline after their forecasts; `taken` of the plain forecast.
    fn ended(law: &mut Timely, seconds: usize, count: usize, mut taken: impl FnMut(usize) -> f64) {
        let forecast = Forecast::new(0.8, 0.02, 0.02, 2, 0.0);
        let mut foretold = std::collections::VecDeque::from(vec![law.corrected(forecast); count]);
        for number in 0..seconds * count {
            let now = Time((number as u64 * 1_000_000_000) / count as u64);
            let before = foretold.pop_front().unwrap_or_default();
            law.finished(before, forecast.scale, taken(number) * forecast.seconds(), now);
            foretold.push_back(law.corrected(forecast));
        }
    }

    #[test]
    fn the_bias_undoes_what_forecasts_are_off() {
        for factor in [0.7, 1.0, 1.3, 2.0] {
            let after = |seconds| {
                let mut law = Timely::new(GOAL);
                ended(&mut law, seconds, 100, |_| factor);
                law.bias() - (factor - 1.0)
            };
            assert!(after(40).abs() < 0.02, "{factor}: off by {}", after(40));
            let most = (1..40).map(|seconds| after(seconds).abs()).fold(0.0, f64::max);
            assert!(most < (factor - 1.0f64).abs() + 0.2, "{factor} swings by {most}");
        }
    }

    #[test]
    fn the_margin_follows_the_spread() {
        let margin = |spread: f64| {
            let mut law = Timely::new(GOAL);
            // A saw tooth: errors spread evenly to both sides.
            ended(&mut law, 40, 100, |number| {
                1.0 + spread * ((number % 64) as f64 / 31.5 - 1.0)
            });
            law.margin()
        };
        let scale = Forecast::new(0.8, 0.02, 0.02, 2, 0.0).scale;
        for spread in [0.01, 0.05, 0.2] {
            let quantile = spread * 0.82 / scale;
            assert!(
                (margin(spread) / quantile - 1.0).abs() < 0.25,
                "{spread}: {} {quantile}",
                margin(spread)
            );
        }
    }

    /// Requests of 0.1 ms; a pause of 3 ms hit one in 50, one of 300 ms one in 200.
    #[test]
    fn pauses_of_the_machine_do_not_make_short_requests_wild_ones() {
        let margin_on_10_ms = |mut law: Timely| {
            let idle = Forecast::new(0.0, 1e-4, 1e-4, 2, law.pause(1e-4));
            for number in 0..2000u64 {
                let paused = match number {
                    number if number % 200 == 7 => 0.3,
                    number if number % 50 == 0 => 3e-3,
                    _ => 0.0,
                };
                law.finished(1e-4, idle.scale, 1e-4 + paused, Time(number * 1_000_000));
            }
            law.margin() * Forecast::new(1e-2, 1e-4, 1e-4, 2, law.pause(1e-4)).scale
        };
        let law = Timely::new(Nanos::from_millis(30));
        assert!(margin_on_10_ms(law.clone()) > 1.0, "{}", margin_on_10_ms(law.clone()));
        assert!(
            margin_on_10_ms(law.clone().on_linux()) < 5e-3,
            "{}",
            margin_on_10_ms(law.on_linux())
        );
    }

    /// One request in ten is of 3 items, the others are of 80; a pause of 30 ms hits half of the short ones.
    #[test]
    fn pauses_of_short_requests_do_not_refuse_long_ones() {
        let (request, long) = (15e-3, 16e-3);
        let mut law = Timely::new(GOAL).on_linux();
        for number in 0..2000u64 {
            let own = if number % 10 == 0 { 6e-4 } else { long };
            let paused = if number % 20 == 0 { 0.03 } else { 0.0 };
            let forecast = Forecast::new(0.0, own, request, 2, law.pause(request));
            law.finished(own, forecast.scale, own + paused, Time(number * 8_000_000));
        }
        let waiting = Forecast::new(0.2, long, request, 2, law.pause(request));
        assert!(law.margin() * waiting.scale < 0.1, "{} s", law.margin() * waiting.scale);
    }

    proptest! {
        /// What is reported as bound is where a request of no items is just admitted.
        #[test]
        fn the_bound_is_where_nothing_is_left(
            margin in 0.0f64..6.0, bias in -0.4f64..3.0, request in prop_oneof![Just(0.0), 1e-3f64..0.2],
            executors in 1usize..9, pause in prop_oneof![Just(0.0), 0.0f64..0.4],
        ) {
            let law = Timely { margin, bias, pause, ..Timely::new(GOAL) };
            let drain = 1e-4;
            let wait = law.bound(drain, request, executors) * drain;
            let pause = law.pause(request);
            let excess = law.excess(Forecast::new(wait, 0.0, request, executors, pause), 1.0);
            // Where the pause alone is too long, nothing may wait.
            prop_assert!(excess.abs() < 1e-9 || (wait == 0.0 && margin * pause > 1.0), "{}", excess);
        }

        /// More backlog or more items are never admitted where less is not.
        #[test]
        fn more_is_never_sooner(wait in 0.0f64..2.0, own in 0.0f64..0.5, more in 0.0f64..0.5, left in 0.0f64..2.0) {
            let law = Timely::new(GOAL);
            let excess = |wait, own| law.excess(Forecast::new(wait, own, 0.02, 2, 0.0), left);
            prop_assert!(excess(wait + more, own) >= excess(wait, own));
            prop_assert!(excess(wait, own + more) >= excess(wait, own));
        }
    }
}
