//! The least share of updates that keeps a minimum of the objects fresh.
//!
//! With the share q of a sensor's updates admitted by error diffusion, the distance from one admitted reading to the
//! next is n = 1/q on average: floor(n) readings, or one more in the part n - floor(n) of the cases. After k readings
//! the next admitted one is in the store k periods plus the margin after the last one was sampled, so the object is
//! stale for `max(0, k * period + margin - avi)` of these k periods. It is fresh for the rest; the mean of that over
//! all objects is the fresh share that q gives. It grows with q, so bisection finds the least q that gives the minimum.
//!
//! The margin is the agreed one or, where that is more, the delay that installations are measured to have
//! ([`InstallDelay`]): a job or a program of higher priority may keep the updater waiting for longer than was agreed.
//!
//! The fresh share so found is a mean over time: at single instants fewer objects may be fresh. The rule of
//! `admission.rs` admits the updates that these instants need.

use punctual_units::{Nanos, Share, Time};
use serde::{Deserialize, Serialize};

use super::SensorSpec;
use super::admission::stale_max;
use super::freshness::within_reach;

/// Halvings of the range 0..1: finds the share to one in 4096, from above. It took a sixth of the control thread's time
/// to find it to one in a million.
const HALVINGS: u32 = 12;

/// Least interval between two looks at the delay of installations.
const LOOK_EVERY: Nanos = Nanos::from_millis(100);
/// Part of the way by which the delay moves to the longest of an interval: the mean of some eight. Chosen by hand.
const LEARNT: f64 = 0.125;
/// Bound on the delay of an interval that counts, in delays so far: one standstill moves the share little.
const CLIP: f64 = 4.0;
/// Change of the delay, relative to it, from which the share is computed anew.
const NEWS: f64 = 0.1;

/// Computes the least share of updates that keeps the minimum of some sensors' objects fresh on average.
#[derive(Clone, Debug)]
pub(super) struct LeastShare {
    /// The sensors of equal period and validity, and their number.
    kinds: Box<[(SensorSpec, u32)]>,
    minimum: Share,
    margin: Nanos,
    /// Longest delay that is made up for: half of what the most patient objects that the minimum needs can wait beyond
    /// their period. A longer one comes from overload, which more updates would only add to.
    delay_max: Nanos,
    /// The margin of the last answer, and that answer.
    known: Option<(Nanos, f64)>,
}

impl LeastShare {
    /// O(N log N).
    pub fn new(sensors: &[SensorSpec], margin: Nanos, minimum: Share) -> LeastShare {
        let mut sorted: Vec<SensorSpec> = sensors.to_vec();
        sorted.sort_by_key(|spec| (spec.period, spec.avi));
        let equal = sorted.chunk_by(|one, other| (one.period, one.avi) == (other.period, other.avi));
        let kinds = equal.map(|chunk| (chunk[0], chunk.len() as u32)).collect();
        let mut patience: Vec<Nanos> = sensors
            .iter()
            .map(|spec| spec.avi - spec.period.min(spec.avi))
            .collect();
        patience.sort_unstable();
        let least_patient = patience.get(stale_max(minimum, sensors.len()));
        LeastShare {
            kinds,
            minimum,
            margin,
            delay_max: least_patient.map_or(Nanos::ZERO, |patience| patience.scaled(0.5)),
            known: None,
        }
    }

    /// The share where installations take this long, or the agreed margin if that is longer; 1 if no share is enough.
    /// O(K) for K kinds of sensors.
    pub fn with_delay(&mut self, delay: Nanos) -> f64 {
        let margin = delay.min(self.delay_max).max(self.margin);
        match self.known {
            Some((known, share)) if known == margin => share,
            _ => self.known.insert((margin, self.with_margin(margin))).1,
        }
    }

    fn with_margin(&self, margin: Nanos) -> f64 {
        let enough = |share: f64| self.mean_fresh(margin, share) >= self.minimum.get();
        if enough(0.0) {
            return 0.0;
        }
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..HALVINGS {
            let middle = (low + high) / 2.0;
            if enough(middle) {
                high = middle;
            } else {
                low = middle;
            }
        }
        high
    }

    /// The mean share of objects that are fresh with this share of updates admitted; 1 if there are no objects.
    fn mean_fresh(&self, margin: Nanos, share: f64) -> f64 {
        let count = |kind: &(SensorSpec, u32)| f64::from(kind.1);
        // Objects out of reach count as stale by what was agreed, however long installations take.
        let reached = self.kinds.iter().filter(|(spec, _)| within_reach(spec, self.margin));
        let fresh = |kind: &(SensorSpec, u32)| count(kind) * fresh_part(&kind.0, margin, share);
        match self.kinds.iter().map(count).sum::<f64>() {
            0.0 => 1.0,
            objects => reached.map(fresh).sum::<f64>() / objects,
        }
    }
}

/// Time from the sampling of an update to its installation: the longest and the shortest of intervals, averaged over
/// these. In memory-first mode it ends at the decision, which the install follows in the same call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstallDelays {
    /// Mean of the longest delays.
    pub longest: Nanos,
    /// Mean of the shortest delays.
    pub shortest: Nanos,
}

impl InstallDelays {
    /// Widens the span of delays in `since` to one more.
    #[inline]
    pub(crate) fn observe(since: &mut Option<InstallDelays>, delay: Nanos) {
        let since = since.get_or_insert(InstallDelays {
            longest: delay,
            shortest: delay,
        });
        since.longest = since.longest.max(delay);
        since.shortest = since.shortest.min(delay);
    }
}

/// Measures the delays of installations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InstallDelay {
    /// Longest and shortest since the last look; `None` where nothing was installed.
    since: Option<InstallDelays>,
    mean: InstallDelays,
    /// The delays that were last reported.
    reported: InstallDelays,
    /// When the next look is due.
    due: Time,
}

impl InstallDelay {
    pub fn observe(&mut self, delay: Nanos) {
        InstallDelays::observe(&mut self.since, delay);
    }

    /// The delays, where one has changed since they were last reported; `margin` is the one that was agreed. Where
    /// nothing was installed, the shortest falls: admission may have shed all for it.
    pub fn news(&mut self, margin: Nanos, now: Time) -> Option<InstallDelays> {
        if now < self.due {
            return None;
        }
        self.due = now + LOOK_EVERY;
        let learn = |mean: &mut Nanos, delay: Nanos| {
            let most = (*mean).max(margin).scaled(CLIP);
            *mean = mean.scaled(1.0 - LEARNT) + delay.min(most).scaled(LEARNT);
        };
        let since = self.since.take();
        if let Some(since) = since {
            learn(&mut self.mean.longest, since.longest);
        }
        learn(
            &mut self.mean.shortest,
            since.map_or(Nanos::ZERO, |since| since.shortest),
        );
        let changed = |delay: fn(&InstallDelays) -> Nanos| {
            let [before, now] = [&self.reported, &self.mean].map(|all| delay(all).max(margin).as_secs_f64());
            (now - before).abs() > NEWS * before
        };
        (changed(|all| all.longest) || changed(|all| all.shortest)).then(|| {
            self.reported = self.mean;
            self.mean
        })
    }

    /// Takes over the delays that were reported, in a replay.
    pub fn set_reported(&mut self, delays: InstallDelays) {
        self.reported = delays;
    }

    /// The delays that were last reported.
    pub fn reported(&self) -> InstallDelays {
        self.reported
    }
}

/// The least share where installations take as long as was agreed.
#[cfg(test)]
pub(super) fn least_share(sensors: &[SensorSpec], margin: Nanos, minimum: Share) -> f64 {
    LeastShare::new(sensors, margin, minimum).with_delay(Nanos::ZERO)
}

/// The part of the time in which the sensor's object is fresh, 0 to 1.
fn fresh_part(spec: &SensorSpec, margin: Nanos, share: f64) -> f64 {
    if share <= 0.0 {
        return 0.0;
    }
    let period = spec.period.0.max(1) as f64;
    let readings = 1.0 / share;
    let stale_after = |readings: f64| {
        let span = readings * period;
        (span + margin.0 as f64 - spec.avi.0 as f64).clamp(0.0, span)
    };
    let longer = readings.fract();
    let stale = (1.0 - longer) * stale_after(readings.floor()) + longer * stale_after(readings.floor() + 1.0);
    1.0 - (stale / (readings * period)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sensors(periods: &[(u64, f64)]) -> Vec<SensorSpec> {
        let spec = |&(period, factor): &(u64, f64)| SensorSpec {
            period: Nanos(period),
            avi: Nanos((factor * period as f64) as u64),
            value_bytes_max: 0,
        };
        periods.iter().map(spec).collect()
    }

    #[test]
    fn a_value_that_is_valid_for_two_periods_needs_a_quarter_of_its_updates_for_half_of_the_objects() {
        let sensors = sensors(&[(1000, 2.0); 10]);
        let least = |minimum| least_share(&sensors, Nanos::ZERO, Share::clamped(minimum));
        // From above, to one in 4096.
        assert!((0.25..0.2503).contains(&least(0.5)), "{}", least(0.5));
        assert!((0.5..0.5003).contains(&least(1.0)), "{}", least(1.0));
        assert_eq!(least(0.0), 0.0);
    }

    #[test]
    fn a_value_that_is_valid_for_one_period_needs_as_many_updates_as_there_are_fresh_objects() {
        let sensors = sensors(&[(1000, 1.0); 10]);
        let least = |minimum| least_share(&sensors, Nanos::ZERO, Share::clamped(minimum));
        assert!((0.5..0.5003).contains(&least(0.5)), "{}", least(0.5));
        assert!((0.9..0.9003).contains(&least(0.9)), "{}", least(0.9));
    }

    #[test]
    fn a_standstill_moves_the_delay_little_and_a_lasting_one_is_reported() {
        let mut delay = InstallDelay::default();
        let margin = Nanos::from_millis(10);
        let mut look = |k: u64, ms: u64| {
            delay.observe(Nanos::from_millis(ms));
            delay
                .news(margin, Time(0) + LOOK_EVERY * k)
                .map(|delays| delays.longest)
        };
        assert_eq!((0..20).find_map(|k| look(k, 8)), None, "within the margin");
        let after = look(20, 1000).unwrap_or(margin);
        assert!(after < Nanos::from_millis(15), "{after}");
        let last = (21..80).filter_map(|k| look(k, 60)).last().expect("it is reported");
        assert!((50..=60).contains(&(last.0 / 1_000_000)), "{last}");
    }

    proptest! {
        /// However long installations take, what is admitted for the minimum stays bounded: never all where the
        /// agreed margin does not need all.
        #[test]
        fn a_longer_delay_needs_more_updates_up_to_a_bound(delay in 0..2_000_000_000u64, more in 0..2_000_000_000u64) {
            let sensors = sensors(&[(50_000_000, 2.0), (100_000_000, 2.0), (300_000_000, 2.0), (500_000_000, 2.0)]);
            let mut least = LeastShare::new(&sensors, Nanos::from_millis(10), Share::clamped(0.5));
            let [shorter, longer] = [delay, delay + more].map(|delay| least.with_delay(Nanos(delay)));
            prop_assert!(shorter <= longer && longer < 0.9, "{shorter} {longer}");
        }

        #[test]
        fn more_updates_never_make_fewer_objects_fresh(
            periods in prop::collection::vec((10..1000u64, 1.0..5.0f64), 1..10),
            share in 0.01..1.0f64,
            more in 0.0..1.0f64,
        ) {
            let sensors = sensors(&periods);
            let least = LeastShare::new(&sensors, Nanos::ZERO, Share::ONE);
            let fresh = |share| least.mean_fresh(Nanos::ZERO, share);
            let more = share + more * (1.0 - share);
            prop_assert!(
                fresh(more) >= fresh(share) - 1e-9,
                "{} at {}, {} at {}",
                fresh(share),
                share,
                fresh(more),
                more
            );
        }
    }
}
