//! The player's trace: the pages that it references for each frame, and those that the cache misses.
//!
//! **Frame sizes.** Groups of 12 frames, I B B P B B P B B P B B, of 3.5 : 1 : 1.9 in size for I, B and P, which is the
//! usual order; the size of a whole group is lognormal. The coefficients of variation, 0.38 for groups and 0.66 for
//! frames, are those of a public trace of the same film (F. Fitzek and M. Reisslein, MPEG-4 trace of "Star Wars IV" in
//! high quality, 2001); only the mean is ours ([`Film`]).
//!
//! **Pages.** A frame's part of the file is read in order and never again. While it is decoded, the player refers to
//! its other pages, independently of each other. Both go through one cache.

use std::num::NonZeroUsize;

use crate::dual::compute;
use punctual_machine::media::{Lookup, PageCache};
use punctual_sim::{Access, PageRequest, Step};
use punctual_units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::setting::{FRAMES, FRAMES_BEFORE, Film, Play, REFERENCES, WORKING_SET, ZIPF};

/// Frame sizes within a group, relative to each other.
const GROUP: [f64; 12] = [3.5, 1.0, 1.0, 1.9, 1.0, 1.0, 1.9, 1.0, 1.0, 1.9, 1.0, 1.0];
/// Coefficient of variation of the size of a group.
const GROUP_VARIATION: f64 = 0.38;
/// First number of the player's other pages, beyond the pages of any film.
const OTHER_PAGES: u64 = 1 << 40;

/// References and computation of the player for one frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Pages of the file, in order.
    pub stream: Vec<u64>,
    /// Pages other than the file's, in order of reference.
    pub others: Vec<u64>,
    /// Time to decode the frame...
    pub decode: Nanos,
    /// ...and to display it.
    pub display: Nanos,
}

/// The frames of a random stretch of `film`, with [`FRAMES_BEFORE`] frames before it that warm the cache.
pub fn frames(play: &Play, film: Film, page_bytes: u32, seed: u64) -> Vec<Frame> {
    let (unit, decodes) = play.decodes();
    let mut draws = ChaCha8Rng::seed_from_u64(seed);
    let popularity = popularity();
    let mean_part = GROUP.iter().sum::<f64>() / GROUP.len() as f64;
    let (mut group, mut byte, mut frames) = (1.0, 0.0, Vec::new());
    // The stretch may begin in the middle of a group.
    let phase = draws.random_range(0..GROUP.len());
    for i in phase..phase + FRAMES_BEFORE + FRAMES {
        if i % GROUP.len() == 0 || i == phase {
            group = lognormal(GROUP_VARIATION, &mut draws);
        }
        let bytes = film.frame_bytes(play.period) * group * GROUP[i % GROUP.len()] / mean_part;
        let page = |byte: f64| (byte / f64::from(page_bytes)) as u64;
        // A page that two frames share is referenced for both.
        let stream = (page(byte)..=page(byte + bytes)).collect();
        byte += bytes;
        let other = |draws: &mut ChaCha8Rng| {
            let drawn = draws.random::<f64>();
            OTHER_PAGES + popularity.partition_point(|sum| *sum < drawn) as u64
        };
        frames.push(Frame {
            stream,
            others: (0..REFERENCES).map(|_| other(&mut draws)).collect(),
            decode: unit.scaled(draws.random_range(decodes[0]..=decodes[1])),
            display: play.display(),
        });
    }
    frames
}

/// The jobs that play the last [`FRAMES`] of `frames` with a cache of `cache` pages: pages that miss are read from
/// `device`, up to `ahead` successive pages of the file in one request.
pub fn jobs(frames: &[Frame], cache: NonZeroUsize, ahead: u32, device: usize) -> Vec<Vec<Step>> {
    let mut cache = PageCache::new(cache);
    let mut missed = |pages: &[u64]| -> Vec<u64> {
        let misses = pages.iter().copied().filter(|page| cache.touch(*page) == Lookup::Miss);
        misses.collect()
    };
    let mut jobs = Vec::new();
    for frame in frames {
        let (stream, others) = (missed(&frame.stream), missed(&frame.others));
        jobs.push(steps(frame, &stream, &others, ahead, device));
    }
    jobs.split_off(frames.len().saturating_sub(FRAMES))
}

/// Steps of a frame: read, decode, display. Reads of other pages are spread evenly over the decoding.
fn steps(frame: &Frame, stream: &[u64], others: &[u64], ahead: u32, device: usize) -> Vec<Step> {
    let read = |page: u64, pages: u32| Step::Io {
        device,
        request: PageRequest {
            access: Access::Read,
            page,
            pages,
        },
    };
    let mut steps: Vec<Step> = Vec::new();
    for run in stream.chunk_by(|a, b| a + 1 == *b) {
        let requests = run.chunks(ahead.max(1) as usize);
        steps.extend(requests.filter_map(|pages| Some(read(*pages.first()?, pages.len() as u32))));
    }
    let part = Nanos(frame.decode.0 / (others.len() as u64 + 1));
    for page in others {
        steps.extend([compute(part), read(*page, 1)]);
    }
    let rest = frame.decode - part * others.len() as u64;
    steps.extend([compute(rest), compute(frame.display)]);
    steps
}

/// Cumulative probabilities of the ranks from 0.
fn popularity() -> Vec<f64> {
    let weights: Vec<f64> = (1..=WORKING_SET).map(|rank| (rank as f64).powf(-ZIPF)).collect();
    let total: f64 = weights.iter().sum();
    let mut sum = 0.0;
    let sums = weights.iter().map(|weight| {
        sum += weight / total;
        sum
    });
    let mut sums: Vec<f64> = sums.collect();
    // Removes the rounding error, so that every draw below 1 finds a rank.
    if let Some(last) = sums.last_mut() {
        *last = 1.0;
    }
    sums
}

/// Lognormal with mean 1 and this coefficient of variation.
fn lognormal(variation: f64, draws: &mut ChaCha8Rng) -> f64 {
    let variance = (1.0 + variation * variation).ln();
    (variance.sqrt() * normal(draws) - variance / 2.0).exp()
}

/// Standard normal (G. Box and M. Muller, 1958).
fn normal(draws: &mut ChaCha8Rng) -> f64 {
    let (u, v): (f64, f64) = (draws.random(), draws.random());
    (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes of frames in small pages, over many stretches.
    const SMALL_PAGE: u32 = 64;

    fn sizes(film: Film) -> Vec<f64> {
        let frames = (0..200).flat_map(|seed| frames(&Play::default(), film, SMALL_PAGE, seed).into_iter().take(12));
        frames.map(|frame| frame.stream.len() as f64).collect()
    }

    #[test]
    fn frames_vary_as_published() {
        let mean = Film::Dvd.frame_bytes(Play::default().period) / f64::from(SMALL_PAGE);
        let sizes: Vec<f64> = sizes(Film::Dvd).into_iter().map(|pages| pages / mean).collect();
        let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
        let variance = sizes.iter().map(|size| (size - mean).powi(2)).sum::<f64>() / sizes.len() as f64;
        assert!((mean - 1.0).abs() < 0.1, "mean {mean}");
        assert!(
            (variance.sqrt() / mean - 0.66).abs() < 0.08,
            "variation {}",
            variance.sqrt() / mean
        );
    }

    #[test]
    fn what_is_read_is_what_misses() {
        let frames = frames(&Play::default(), Film::Hd, 4096, 3);
        let cache = |pages| NonZeroUsize::new(pages).unwrap();
        let pages = |jobs: &[Vec<Step>]| -> u32 {
            let pages = |step: &Step| {
                if let Step::Io { request, .. } = step {
                    request.pages
                } else {
                    0
                }
            };
            jobs.iter().flatten().map(pages).sum()
        };
        let small = jobs(&frames, cache(100), 1, 0);
        assert_eq!(small.len(), FRAMES);
        let large = jobs(&frames, cache(8000), 1, 0);
        assert!(pages(&large) < pages(&small));
        // The film itself is never in the cache, but for pages that two frames share.
        let stream: usize = frames[FRAMES_BEFORE..].iter().map(|frame| frame.stream.len() - 1).sum();
        assert!(pages(&large) as usize >= stream);
        // Read-ahead changes the requests, not the pages; computation is that of the frames.
        let ahead = jobs(&frames, cache(100), 32, 0);
        assert_eq!(pages(&ahead), pages(&small));
        assert!(ahead.iter().flatten().count() < small.iter().flatten().count());
        let computed = |steps: &[Step]| -> Nanos { steps.iter().filter_map(crate::dual::computes).sum() };
        for (frame, steps) in frames[FRAMES_BEFORE..].iter().zip(&small) {
            assert_eq!(computed(steps), frame.decode + frame.display);
        }
    }
}
