//! Keeps the samples of a run in bounded memory.
//!
//! **Problem.** A loop that steps 200 times per second makes 17 million samples a day; the report must show the whole
//! day with at most a fixed number of samples. **Method.** When the list is full, every pair of neighbours is merged,
//! and from then on each sample covers twice as many steps, as if the loop had half the pace. Nothing is dropped, so
//! counts and sums stay exact, and the least fresh share and every fallback stay visible.

use punctual_loop::ModeName;

use crate::report::Sample;

/// Greatest number of samples in a report: more than a screen has columns, and about 4 MB of JSON. Even, so that
/// halving leaves no sample over.
pub const SAMPLES_MAX: usize = 10_000;

/// Greatest number of samples of a run that teaches a model: its windows must stay as long as the loop's. An hour and a
/// half at 20 per second, of which identification needs a few hundred.
pub const LEARNING_SAMPLES_MAX: usize = 100_000;

/// Greatest number of samples of a run without an end: reached after minutes, so that memory is constant from then on.
pub const LASTING_SAMPLES_MAX: usize = 2_000;

/// Policy for a list of samples that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Merge every two neighbours into one.
    Halve,
    /// Discard all later samples.
    Stop,
}

/// List of samples with a bounded length.
#[derive(Clone, Debug)]
pub struct Samples {
    kept: Vec<Sample>,
    max: usize,
    when_full: WhenFull,
    /// Number of steps in each of `kept`: a power of two.
    steps_each: u64,
    /// The sample being gathered, and its number of steps so far; fewer than `steps_each`.
    gathering: Option<(Sample, u64)>,
}

impl Samples {
    /// An empty list that holds up to `max` samples, rounded up to an even number.
    pub fn new(max: usize, when_full: WhenFull) -> Samples {
        Samples {
            kept: Vec::new(),
            max: max.max(2).next_multiple_of(2),
            when_full,
            steps_each: 1,
            gathering: None,
        }
    }

    /// Reserves all memory that the list will ever use, so that later pushes do not look like growth.
    pub fn with_room(mut self) -> Samples {
        self.kept.reserve_exact(self.max);
        self
    }

    /// Adds the sample of one step.
    pub fn push(&mut self, sample: Sample) {
        if self.kept.len() == self.max {
            match self.when_full {
                WhenFull::Halve => self.halve(),
                WhenFull::Stop => return,
            }
        }
        let (gathered, steps) = match self.gathering.take() {
            Some((before, steps)) => (merged(self.began(), before, steps, &sample, 1), steps + 1),
            None => (sample, 1),
        };
        if steps == self.steps_each {
            self.kept.push(gathered);
        } else {
            self.gathering = Some((gathered, steps));
        }
    }

    /// Number of steps in each sample, except perhaps the last: 1 until the list is first full.
    pub fn steps_each(&self) -> u64 {
        self.steps_each
    }

    /// The samples in order of time, numbered from 0; the last one may have fewer steps.
    pub fn into_vec(mut self) -> Vec<Sample> {
        self.kept.extend(self.gathering.take().map(|(sample, _)| sample));
        (0..).zip(&mut self.kept).for_each(|(k, sample)| sample.k = k);
        self.kept
    }

    /// When the sample being gathered began, in seconds since the start of the run.
    fn began(&self) -> f64 {
        self.kept.last().map_or(0.0, |last| last.t_s)
    }

    /// Merges in place: the control thread does it, and must not wait for memory.
    fn halve(&mut self) {
        let mut began = 0.0;
        for i in 0..self.kept.len() / 2 {
            let first = std::mem::take(&mut self.kept[2 * i]);
            let one = merged(began, first, self.steps_each, &self.kept[2 * i + 1], self.steps_each);
            began = one.t_s;
            self.kept[i] = one;
        }
        self.kept.truncate(self.kept.len() / 2);
        self.steps_each *= 2;
    }
}

/// Merges two consecutive samples, the first of which began at `began` seconds; `a_steps` and `b_steps` are their
/// numbers of steps.
///
/// Means of jobs are weighted by jobs, means of positions and loads by time, means of the loop's own time by steps. The
/// fresh share is the lower of the two, and a fallback in either counts: violations stay visible.
fn merged(began: f64, a: Sample, a_steps: u64, b: &Sample, b_steps: u64) -> Sample {
    let jobs = |x: f64, y: f64| weighted(x, f64::from(a.ended), y, f64::from(b.ended));
    let time = |x: f64, y: f64| weighted(x, a.t_s - began, y, b.t_s - a.t_s);
    let steps = |x: f64, y: f64| weighted(x, a_steps as f64, y, b_steps as f64);
    let fell_back = [&a, b].iter().any(|sample| sample.mode == ModeName::Fallback);
    let mut busy = a.busy;
    busy.iter_mut()
        .zip(&b.busy)
        .for_each(|(busy, after)| *busy = time(*busy, *after));
    Sample {
        k: a.k,
        t_s: b.t_s,
        tardiness: either(a.tardiness, b.tardiness, jobs),
        drr: either(a.drr, b.drr, jobs),
        admitted_share: time(a.admitted_share, b.admitted_share),
        admitted_knob: time(a.admitted_knob, b.admitted_knob),
        fresh_share: a.fresh_share.min(b.fresh_share),
        stage_pressure: a.stage_pressure.into_iter().chain(b.stage_pressure).reduce(f64::max),
        best_effort_share: either(a.best_effort_share, b.best_effort_share, time),
        clock_hz: either(hertz(a.clock_hz), hertz(b.clock_hz), time).map(|hz| hz.round() as u64),
        energy_j: either(a.energy_j, b.energy_j, |x, y| x + y),
        celsius: either(a.celsius, b.celsius, f64::max),
        jobs: a.jobs.saturating_add(b.jobs),
        misses: a.misses.saturating_add(b.misses),
        ended: a.ended.saturating_add(b.ended),
        decision_us: either(a.decision_us, b.decision_us, steps),
        actuation_us: either(a.actuation_us, b.actuation_us, steps),
        busy,
        mode: if fell_back { ModeName::Fallback } else { b.mode },
        fallback: b.fallback.clone().or(a.fallback),
    }
}

fn hertz(clock: Option<u64>) -> Option<f64> {
    clock.map(|hz| hz as f64)
}

/// Combines two values with `together`; if only one is present, returns that.
fn either(a: Option<f64>, b: Option<f64>, together: impl Fn(f64, f64) -> f64) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(together(a, b)),
        (one, other) => one.or(other),
    }
}

/// Weighted mean; the plain mean if both weights are zero.
fn weighted(a: f64, a_weight: f64, b: f64, b_weight: f64) -> f64 {
    let weight = a_weight + b_weight;
    if weight > 0.0 {
        (a * a_weight + b * b_weight) / weight
    } else {
        (a + b) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The sample of one step of 5 ms, a different one for every step.
    fn sample(k: u64) -> Sample {
        let noise = ((k * 7919) % 101) as f64 / 101.0;
        let jobs = (k % 3) as u32;
        Sample {
            k,
            t_s: (k + 1) as f64 * 0.005,
            tardiness: (jobs > 0).then_some(0.5 + noise),
            drr: (jobs > 0).then_some(noise),
            admitted_share: noise,
            admitted_knob: 1.0 - noise,
            fresh_share: 0.5 + noise / 2.0,
            stage_pressure: None,
            best_effort_share: None,
            clock_hz: Some(1_000_000_000 + k % 7 * 100_000_000),
            energy_j: Some(noise),
            celsius: Some(40.0 + noise),
            jobs,
            misses: jobs / 2,
            ended: jobs,
            decision_us: Some(noise),
            actuation_us: k.is_multiple_of(2).then_some(noise),
            busy: vec![noise, 1.0 - noise],
            mode: if k.is_multiple_of(37) {
                ModeName::Fallback
            } else {
                ModeName::Running
            },
            fallback: k.is_multiple_of(37).then(|| "a fault".into()),
        }
    }

    /// Plain reading: all samples of `steps` steps each, straight from the single ones.
    fn coarser(singles: &[Sample], steps: usize) -> Vec<Sample> {
        let mut began = 0.0;
        let one = |(k, chunk): (usize, &[Sample])| {
            let end = chunk[chunk.len() - 1].t_s;
            let starts = std::iter::once(began).chain(chunk.iter().map(|sample| sample.t_s));
            let lengths: Vec<f64> = starts.zip(chunk).map(|(from, sample)| sample.t_s - from).collect();
            let mean = |weights: &[f64], of: &dyn Fn(&Sample) -> Option<f64>| {
                let known = || {
                    chunk
                        .iter()
                        .zip(weights)
                        .filter_map(|(sample, weight)| Some((of(sample)?, *weight)))
                };
                let weight: f64 = known().map(|(_, weight)| weight).sum();
                (known().count() > 0).then(|| known().map(|(value, weight)| value * weight).sum::<f64>() / weight)
            };
            let jobs: Vec<f64> = chunk.iter().map(|sample| f64::from(sample.ended)).collect();
            let alike = vec![1.0; chunk.len()];
            began = end;
            Sample {
                k: k as u64,
                t_s: end,
                tardiness: mean(&jobs, &|sample| sample.tardiness),
                drr: mean(&jobs, &|sample| sample.drr),
                admitted_share: mean(&lengths, &|sample| Some(sample.admitted_share)).unwrap(),
                admitted_knob: mean(&lengths, &|sample| Some(sample.admitted_knob)).unwrap(),
                fresh_share: chunk.iter().map(|sample| sample.fresh_share).fold(1.0, f64::min),
                stage_pressure: None,
                best_effort_share: None,
                clock_hz: mean(&lengths, &|sample| hertz(sample.clock_hz)).map(|hz| hz as u64),
                energy_j: chunk.iter().map(|sample| sample.energy_j).sum(),
                celsius: chunk.iter().filter_map(|sample| sample.celsius).reduce(f64::max),
                jobs: chunk.iter().map(|sample| sample.jobs).sum(),
                misses: chunk.iter().map(|sample| sample.misses).sum(),
                ended: chunk.iter().map(|sample| sample.ended).sum(),
                decision_us: mean(&alike, &|sample| sample.decision_us),
                actuation_us: None,
                busy: (0..2)
                    .map(|core| mean(&lengths, &|sample| Some(sample.busy[core])).unwrap())
                    .collect(),
                mode: match chunk.iter().any(|sample| sample.mode == ModeName::Fallback) {
                    true => ModeName::Fallback,
                    false => ModeName::Running,
                },
                fallback: chunk.iter().rev().find_map(|sample| sample.fallback.clone()),
            }
        };
        singles.chunks(steps).enumerate().map(one).collect()
    }

    /// Every figure of a sample, apart from rounding.
    fn near(a: &Sample, b: &Sample) -> bool {
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        let both = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => close(a, b),
            (a, b) => a == b,
        };
        let figures = |s: &Sample| {
            [
                s.t_s,
                s.admitted_share,
                s.admitted_knob,
                s.fresh_share,
                s.busy[0],
                s.busy[1],
            ]
        };
        let means = |s: &Sample| [s.tardiness, s.drr, s.energy_j, s.celsius, s.decision_us];
        figures(a).into_iter().zip(figures(b)).all(|(a, b)| close(a, b))
            && means(a).into_iter().zip(means(b)).all(|(a, b)| both(a, b))
            // Each halving rounds to a hertz.
            && hertz(a.clock_hz).zip(hertz(b.clock_hz)).is_none_or(|(a, b)| (a - b).abs() < 32.0)
            && (a.k, a.jobs, a.misses, a.mode, &a.fallback) == (b.k, b.jobs, b.misses, b.mode, &b.fallback)
    }

    proptest! {
        /// However long the run, what is kept is what a coarser run would have kept, and no more than the bound.
        #[test]
        fn a_full_list_becomes_a_coarser_one(steps in 0u64..3000, max in 2usize..40) {
            let singles: Vec<Sample> = (0..steps).map(sample).collect();
            let mut samples = Samples::new(max, WhenFull::Halve);
            for single in &singles {
                samples.push(single.clone());
                prop_assert!(samples.kept.len() <= samples.max);
            }
            let each = samples.steps_each();
            let kept = samples.into_vec();
            let expected = coarser(&singles, each as usize);
            prop_assert_eq!(kept.len(), expected.len(), "of {} steps each", each);
            for (ours, theirs) in kept.iter().zip(&expected) {
                prop_assert!(near(ours, theirs), "{:?}\n{:?}", ours, theirs);
            }
        }
    }

    /// Hours at 200 steps per second, a day in `.ci/nightly`: the list stays within its bound, and counts stay exact.
    #[test]
    fn a_day_of_samples_takes_constant_memory() {
        let hours = punctual_testing::campaign(3, 24);
        let steps = hours * 3600 * 200;
        let mut samples = Samples::new(SAMPLES_MAX, WhenFull::Halve);
        let mut reserved = 0;
        for k in 0..steps {
            samples.push(Sample {
                t_s: (k + 1) as f64 * 0.005,
                jobs: 5,
                ..Sample::default()
            });
            reserved = reserved.max(samples.kept.capacity());
        }
        assert!(reserved <= 2 * SAMPLES_MAX, "{reserved} samples reserved");
        assert_eq!(samples.steps_each(), 2048 * hours / 24);
        let kept = samples.into_vec();
        assert!(
            kept.len() <= SAMPLES_MAX && kept.len() > SAMPLES_MAX / 2 - 1,
            "{}",
            kept.len()
        );
        assert_eq!(kept.iter().map(|sample| u64::from(sample.jobs)).sum::<u64>(), 5 * steps);
    }

    #[test]
    fn what_teaches_a_model_is_never_merged() {
        let mut samples = Samples::new(4, WhenFull::Stop);
        (0..9).for_each(|k| samples.push(sample(k)));
        assert_eq!(samples.steps_each(), 1);
        assert_eq!(samples.into_vec(), (0..4).map(sample).collect::<Vec<_>>());
    }
}
