//! Draws queries and their times from a seed.

use punctual_units::{Nanos, Time};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{QuerySource, Setup, Spread, WorkModel};

/// Random properties of a query.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueryDraw {
    pub(super) key: u32,
    pub(super) items: u32,
    /// Cost relative to the mean of its items.
    pub(super) factor: f32,
    /// For all other random choices about the query.
    pub(super) draw: u64,
}

/// Random generators of one run.
#[derive(Clone, Debug)]
pub(super) struct Draws {
    queries: ChaCha8Rng,
    times: ChaCha8Rng,
}

impl Draws {
    pub(super) fn new(seed: u64) -> Draws {
        let stream = |number| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(number);
            rng
        };
        Draws {
            queries: stream(1),
            times: stream(2),
        }
    }

    pub(super) fn query(&mut self, work: &WorkModel, now: Time) -> QueryDraw {
        let rng = &mut self.queries;
        // Always the same number of draws, so that a setting changes no other draw.
        let (place, of_hot, factor) = (unit(rng), unit(rng), unit(rng));
        let key = match work.hot {
            Some(hot) if now >= hot.from && of_hot < hot.share => number(place, hot.keys.min(work.keys)),
            _ => number(place, work.keys),
        };
        let (least, most) = work.items;
        QueryDraw {
            key,
            items: least + number(unit(rng), most - least + 1),
            factor: match work.spread {
                Spread::Even(share) => 1.0 + share * (2.0 * factor - 1.0),
                Spread::Exponential => -(1.0 - factor).ln(),
            } as f32,
            draw: rng.random(),
        }
    }

    /// Draws the time from an arrival to the next, for a rate per second.
    pub(super) fn gap(&mut self, rate: f64) -> Nanos {
        Nanos::from_secs_f64(-(1.0 - unit(&mut self.times)).ln() / rate)
    }

    pub(super) fn between(&mut self, least: Nanos, most: Nanos) -> Nanos {
        least + most.saturating_sub(least).scaled(unit(&mut self.times))
    }

    pub(super) fn happens(&mut self, share: f64) -> bool {
        unit(&mut self.times) < share
    }
}

fn unit(rng: &mut ChaCha8Rng) -> f64 {
    rng.random_range(0.0..1.0)
}

fn number(place: f64, count: u32) -> u32 {
    ((place * f64::from(count)) as u32).min(count.saturating_sub(1))
}

impl Setup {
    /// Least and longest time that a client thinks, from `now` on.
    pub(super) fn think(&self, now: Time) -> (Nanos, Nanos) {
        match &self.clients {
            QuerySource::Closed { think, .. } => {
                let at = think.partition_point(|phase| phase.0 <= now).saturating_sub(1);
                (think[at].1, think[at].2)
            }
            QuerySource::Open { .. } => (Nanos::ZERO, Nanos::ZERO),
        }
    }

    /// Queries per second that arrive at `now` in an open loop.
    pub(super) fn rate(&self, now: Time) -> f64 {
        match &self.clients {
            QuerySource::Open { rates } => {
                let at = rates.partition_point(|phase| phase.0 <= now).saturating_sub(1);
                rates[at].1
            }
            QuerySource::Closed { .. } => 0.0,
        }
    }
}
