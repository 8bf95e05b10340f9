//! Measures how late frames are when a stage takes them.
//!
//! Tardiness of a frame: the time from its capture to the end of the step that took it, divided by the time from its
//! capture to its due time; above 1 the frame is late. A stage counts its frames in a histogram in shared memory, so
//! that the figures outlive its process. Bins are linear within octaves (as in G. Tene's HdrHistogram): a figure is at
//! most one part in 16 above the true one.

use std::sync::atomic::{AtomicU64, Ordering};

use punctual_units::{Nanos, Time};

use crate::Head;

/// Resolution: histogram units per tardiness of 1.
const UNIT: f64 = 4096.0;
/// Bins per octave, and the binary logarithm of that number.
const PARTS: u64 = 16;
const PART_BITS: u32 = 4;
/// Octaves above the linear part: up to a tardiness of 4096; the last bin also counts everything above.
const OCTAVES: usize = 20;
const BINS: usize = PARTS as usize * (OCTAVES + 1);
/// Indices of the words before the bins.
const FRAMES: usize = 0;
const TIMED: usize = 1;
const LATE: usize = 2;
const MAX: usize = 3;
const SUM: usize = 4;
const DROPPED: usize = 5;
const FIXED: usize = 8;
/// Words of shared memory for one stage.
pub(crate) const WORDS: usize = FIXED + BINS;

/// Histogram of one stage's frames by their tardiness.
#[derive(Clone, Copy, Debug)]
pub struct Tardiness<'m>(&'m [AtomicU64]);

/// Statistics of one stage's tardiness.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TardinessFigures {
    /// Frames that were taken from all inputs.
    pub frames: u64,
    /// Of these, frames with a due time after their capture, and missing ones.
    pub timed: u64,
    /// Of the timed frames, those taken after their due time, and missing ones.
    pub late: u64,
    /// Late frames that were not taken ([`Missing`](crate::Missing)); the other figures are of the rest.
    pub missing: u64,
    /// Mean tardiness; like the following figures, 0 without a timed frame.
    pub mean: f64,
    /// Median of the tardiness.
    pub p50: f64,
    /// 99th percentile of the tardiness.
    pub p99: f64,
    /// Greatest tardiness of a frame.
    pub max: f64,
}

impl TardinessFigures {
    /// Mean tardiness of the timed frames that were taken; `None` without such a frame.
    pub fn mean_taken(&self) -> Option<f64> {
        (self.timed > self.missing).then_some(self.mean)
    }
}

impl<'m> Tardiness<'m> {
    pub(crate) fn over(words: &'m [AtomicU64]) -> Tardiness<'m> {
        Tardiness(words)
    }

    /// Counts a frame taken by a step that ended at `now`. Only the process that owns the stage counts.
    pub(crate) fn count(&self, head: Head, now: Time) {
        self.add(FRAMES, 1);
        let allowed = head.due_by.since(head.captured_at);
        if allowed == Nanos::ZERO {
            return;
        }
        let tardiness = (now.since(head.captured_at).ratio(allowed) * UNIT) as u64;
        self.add(TIMED, 1);
        self.add(LATE, u64::from(now > head.due_by));
        self.add(SUM, tardiness);
        self.add(FIXED + bin(tardiness), 1);
        self.0[MAX].store(self.word(MAX).max(tardiness), Ordering::Relaxed);
    }

    /// Counts frames with a due time that were dropped before the stage. Only the process that owns the stage counts.
    pub(crate) fn add_dropped(&self, frames: u64) {
        self.add(DROPPED, frames);
    }

    /// Number of dropped frames with a due time.
    pub(crate) fn dropped(&self) -> u64 {
        self.word(DROPPED)
    }

    /// The figures since `words` were copied, or of all frames if there are none; all frames count as taken. A frame
    /// that is being counted may be in some figures and not yet in others.
    pub fn figures(&self, words: &[u64]) -> TardinessFigures {
        let since = |at: usize| self.word(at).saturating_sub(words.get(at).copied().unwrap_or(0));
        let timed = since(TIMED);
        let at_most = |bin: usize| match bin + 1 {
            BINS => self.word(MAX) as f64 / UNIT,
            _ => above(bin).min(self.word(MAX)) as f64 / UNIT,
        };
        let quantile = |share: f64| match timed {
            0 => 0.0,
            _ => at_most(bin_of((timed as f64 * share).ceil() as u64, |bin| since(FIXED + bin))),
        };
        TardinessFigures {
            frames: self.word(FRAMES),
            timed,
            late: since(LATE),
            missing: 0,
            mean: since(SUM) as f64 / UNIT / timed.max(1) as f64,
            p50: quantile(0.5),
            p99: quantile(0.99),
            max: quantile(1.0),
        }
    }

    /// A copy of the words, for [`figures`](Self::figures).
    pub(crate) fn words(&self) -> Vec<u64> {
        (0..WORDS).map(|at| self.word(at)).collect()
    }

    fn word(&self, at: usize) -> u64 {
        self.0[at].load(Ordering::Relaxed)
    }

    fn add(&self, at: usize, count: u64) {
        self.0[at].store(self.word(at).saturating_add(count), Ordering::Relaxed);
    }
}

/// Statistic of the tardiness that a goal limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TardinessOf {
    /// Mean over all frames.
    Mean,
    /// Tardiness that this share of the frames exceeds, 0 to 1.
    Exceeded(f64),
}

/// Tardiness of the frames since the last look.
#[derive(Clone, Debug, Default)]
pub struct TardinessSince {
    /// Copy of the words at the last look.
    words: Vec<u64>,
    /// Offset of the last sample, from 0 to 1.
    offset: f64,
}

/// Most frames that one look samples.
pub const FRAMES_MAX: u64 = 64;
/// Fractional part of the golden ratio: its multiples are evenly spread.
const GOLDEN: f64 = 0.618_033_988_749_895;

impl TardinessSince {
    /// Adds the tardiness of the frames since the last call. Of more than [`FRAMES_MAX`] it takes that many evenly
    /// spaced ranks, with another offset each time, so that rare late frames are in as many samples as in frames.
    pub fn frames(&mut self, tardiness: Tardiness<'_>, into: &mut Vec<f64>) {
        let (since, frames) = self.since(tardiness);
        let step = frames as f64 / frames.min(FRAMES_MAX) as f64;
        self.offset = (self.offset + GOLDEN).fract();
        let (mut seen, mut rank) = (0, self.offset * step);
        for (bin, since) in since[FIXED..].iter().enumerate() {
            seen += since;
            while rank < seen as f64 {
                into.push(above(bin) as f64 / UNIT);
                rank += step;
            }
        }
    }

    /// Computes the statistic over the frames since the last call; `None` if no frame with a due time was counted
    /// since. A frame that is being counted may fall into the next call.
    pub fn look(&mut self, tardiness: Tardiness<'_>, of: TardinessOf) -> Option<f64> {
        let (since, frames) = self.since(tardiness);
        if frames == 0 {
            return None;
        }
        Some(match of {
            TardinessOf::Mean => since[SUM] as f64 / UNIT / frames as f64,
            TardinessOf::Exceeded(share) => {
                let rank = frames - (frames as f64 * share.clamp(0.0, 1.0)) as u64;
                above(bin_of(rank, |bin| since[FIXED + bin])) as f64 / UNIT
            }
        })
    }

    /// The increase of each word since the last call, and the frames with a due time among them.
    fn since(&mut self, tardiness: Tardiness<'_>) -> (Vec<u64>, u64) {
        self.words.resize(WORDS, 0);
        let words = self.words.iter_mut().enumerate();
        let increase = |(at, before): (usize, &mut u64)| {
            let now = tardiness.word(at);
            now.saturating_sub(std::mem::replace(before, now))
        };
        let since: Vec<u64> = words.map(increase).collect();
        let frames = since[FIXED..].iter().sum();
        (since, frames)
    }
}

/// Bin that contains the frame of that rank, from 1, where `count` frames are in each.
fn bin_of(rank: u64, count: impl Fn(usize) -> u64) -> usize {
    let mut seen = 0;
    let reaches = |bin: &usize| {
        seen += count(*bin);
        seen >= rank
    };
    (0..BINS).find(reaches).unwrap_or(BINS - 1)
}

/// Bin of a tardiness, in histogram units.
fn bin(tardiness: u64) -> usize {
    if tardiness < PARTS {
        return tardiness as usize;
    }
    let octave = tardiness.ilog2() - PART_BITS;
    let part = (tardiness >> octave) - PARTS;
    ((u64::from(octave) + 1) * PARTS + part).min(BINS as u64 - 1) as usize
}

/// Upper end of a bin, in histogram units.
fn above(bin: usize) -> u64 {
    let (octave, part) = (bin as u64 / PARTS, bin as u64 % PARTS);
    match octave {
        0 => part + 1,
        octave => (PARTS + part + 1) << (octave - 1),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn figures(latencies: &[u64], allowed: u64) -> TardinessFigures {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let tardiness = Tardiness::over(&words);
        for latency in latencies {
            let (captured_at, due_by) = (Time(1000), Time(1000 + allowed));
            let head = Head {
                captured_at,
                due_by,
                sequence: 0,
            };
            tardiness.count(head, Time(1000 + latency));
        }
        tardiness.figures(&[])
    }

    #[test]
    fn figures_after_a_start_up_leave_its_frames_out() {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let tardiness = Tardiness::over(&words);
        let count = |latency: u64, times: usize| {
            let head = Head {
                sequence: 0,
                captured_at: Time(1000),
                due_by: Time(2000),
            };
            (0..times).for_each(|_| tardiness.count(head, Time(1000 + latency)));
        };
        count(3000, 5);
        let start_up = tardiness.words();
        assert_eq!(tardiness.figures(&start_up).timed, 0);
        count(500, 99);
        count(1500, 1);
        let all = tardiness.figures(&[]);
        let told = tardiness.figures(&start_up);
        assert_eq!((all.timed, all.late, all.max), (105, 6, 3.0));
        assert_eq!((told.frames, told.timed, told.late), (105, 100, 1));
        assert!(
            (1.5..1.6).contains(&told.max) && (told.mean - 0.51).abs() < 1e-3,
            "{told:?}"
        );
    }

    #[test]
    fn a_frame_without_a_due_time_is_not_late() {
        let told = figures(&[5, 50_000], 0);
        assert_eq!((told.frames, told.timed, told.late, told.max), (2, 0, 0, 0.0));
    }

    #[test]
    fn a_look_is_about_the_frames_since_the_last_one() {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let (tardiness, mut since) = (Tardiness::over(&words), TardinessSince::default());
        let count = |latency: u64, times: usize| {
            let head = Head {
                captured_at: Time(1000),
                due_by: Time(1_001_000),
                sequence: 0,
            };
            (0..times).for_each(|_| tardiness.count(head, Time(1000 + latency)));
        };
        assert_eq!(since.look(tardiness, TardinessOf::Mean), None);
        count(500_000, 100);
        assert_eq!(since.look(tardiness, TardinessOf::Mean), Some(0.5));
        count(250_000, 98);
        count(2_000_000, 2);
        let one_percent = TardinessSince {
            words: since.words.clone(),
            ..TardinessSince::default()
        }
        .look(tardiness, TardinessOf::Exceeded(0.01));
        let five_percent = since.look(tardiness, TardinessOf::Exceeded(0.05));
        assert!(one_percent.is_some_and(|it| it >= 2.0), "{one_percent:?}");
        assert!(
            five_percent.is_some_and(|it| (0.25..0.27).contains(&it)),
            "{five_percent:?}"
        );
        assert_eq!(since.look(tardiness, TardinessOf::Mean), None, "no frame since");
    }

    #[test]
    fn a_sample_of_frames_has_the_share_of_late_ones() {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let (tardiness, mut since) = (Tardiness::over(&words), TardinessSince::default());
        let head = Head {
            captured_at: Time(1000),
            due_by: Time(1_001_000),
            sequence: 0,
        };
        let count = |latency: u64, times: usize| (0..times).for_each(|_| tardiness.count(head, Time(1000 + latency)));
        let mut taken = Vec::new();
        since.frames(tardiness, &mut taken);
        assert!(taken.is_empty(), "no frame came");
        count(500_000, 9);
        count(1_500_000, 1);
        since.frames(tardiness, &mut taken);
        assert_eq!((taken.len(), taken.iter().filter(|it| **it > 1.0).count()), (10, 1));
        taken.clear();
        for _ in 0..100 {
            count(500_000, 990);
            count(1_500_000, 10);
            since.frames(tardiness, &mut taken);
        }
        let late = taken.iter().filter(|it| **it > 1.0).count();
        assert_eq!(taken.len(), 100 * FRAMES_MAX as usize);
        assert!((60..=68).contains(&late), "{late} of 6400, 1 % of the frames");
    }

    #[test]
    fn bins_follow_each_other() {
        for bin_number in 0..BINS - 1 {
            assert_eq!(bin(above(bin_number)), bin_number + 1);
            assert_eq!(bin(above(bin_number) - 1), bin_number);
        }
    }

    proptest! {
        #[test]
        fn quantiles_are_near_those_of_the_sorted_list(latencies in prop::collection::vec(1u64..50_000_000, 1..200)) {
            let allowed = 1_000_000;
            let told = figures(&latencies, allowed);
            let mut sorted = latencies.clone();
            sorted.sort_unstable();
            let exact = |share: f64| {
                let rank = (sorted.len() as f64 * share).ceil() as usize;
                sorted[rank - 1] as f64 / allowed as f64
            };
            prop_assert_eq!(told.late, sorted.iter().filter(|latency| **latency > allowed).count() as u64);
            for (told, exact) in [(told.p50, exact(0.5)), (told.p99, exact(0.99))] {
                let near = told >= exact - 1.0 / UNIT && told <= exact * 17.0 / 16.0 + 2.0 / UNIT;
                prop_assert!(near, "{told} for {exact}");
            }
            prop_assert!((told.max - exact(1.0)).abs() <= 1.0 / UNIT);
        }
    }
}
