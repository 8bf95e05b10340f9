//! Disturbances of a loop: interfering transactions that come and go.

use punctual_units::Nanos;
use punctual_workload::{Active, TaskSpec};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

punctual_units::named! {
    /// Course of the interference over time.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Disturbance by name {
        /// On three cores at once, until the end.
        Step = "step",
        /// On one core, then two, then three, [`RAMP_STEP`] apart; ends on all at once.
        Ramp = "ramp",
        /// Alternately on three cores and off, [`HALF_PERIOD`] each.
        Periodic = "periodic",
        /// Alternately on one to three cores and off, each for a time drawn from [`RANDOM`].
        Random = "random",
    }
}

/// Time between two additional cores of the ramp.
pub const RAMP_STEP: Nanos = Nanos::from_secs(2);
/// Half a period of the periodic disturbance. The period is not a multiple of the paper's sample, so it meets that
/// sample in every phase.
pub const HALF_PERIOD: Nanos = Nanos::from_millis(2300);
/// Shortest and longest stretch of the random disturbance.
pub const RANDOM: [Nanos; 2] = [Nanos::from_millis(500), Nanos::from_secs(5)];

/// Start of the time range in which the onset lies: by then the loop has settled and every sensor has reported (periods
/// of up to 10 s).
pub const SETTLED: Nanos = Nanos::from_secs(20);
/// Duration of a disturbance, and of the rest of the run after it.
pub const LASTS: Nanos = Nanos::from_secs(20);
/// Range over which the onset is drawn: the paper's control law must neither profit nor suffer from a disturbance in
/// step with its samples.
const PHASE: Nanos = Nanos::from_secs(1);

/// Interference on `cores` cores for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub active: Active,
    pub cores: u32,
}

impl Disturbance {
    /// The onset, drawn from the seed, in time since the start of the run.
    pub fn onset(self, seed: u64) -> Nanos {
        let mut draws = ChaCha8Rng::seed_from_u64(seed);
        SETTLED + Nanos(draws.random_range(0..PHASE.0))
    }

    /// The disturbance as successive stretches of interference; all end by the onset plus `LASTS`.
    pub fn stretches(self, seed: u64) -> Vec<Stretch> {
        let onset = self.onset(seed);
        let end = onset + LASTS;
        let stretch = |from: Nanos, until: Nanos, cores: u32| Stretch {
            active: Active {
                from,
                until: until.min(end),
            },
            cores,
        };
        match self {
            Disturbance::Step => vec![stretch(onset, end, 3)],
            Disturbance::Ramp => vec![
                stretch(onset, onset + RAMP_STEP, 1),
                stretch(onset + RAMP_STEP, onset + RAMP_STEP * 2, 2),
                stretch(onset + RAMP_STEP * 2, end, 3),
            ],
            Disturbance::Periodic => (0..)
                .map(|k| onset + HALF_PERIOD * (2 * k))
                .take_while(|from| *from < end)
                .map(|from| stretch(from, from + HALF_PERIOD, 3))
                .collect(),
            Disturbance::Random => {
                let mut draws = ChaCha8Rng::seed_from_u64(seed.wrapping_add(1 << 32));
                let (mut from, mut stretches) = (onset, Vec::new());
                while from < end {
                    let [on, off] = [(); 2].map(|()| Nanos(draws.random_range(RANDOM[0].0..=RANDOM[1].0)));
                    stretches.push(stretch(from, from + on, draws.random_range(1..=3)));
                    from = from + on + off;
                }
                stretches
            }
        }
    }
}

/// Copies the task `interferer` once for each stretch.
pub fn tasks(interferer: &TaskSpec, stretches: &[Stretch]) -> Vec<TaskSpec> {
    let task = |(k, stretch): (usize, &Stretch)| TaskSpec {
        name: format!("{} {k}", interferer.name),
        cores: Some(stretch.cores),
        active: stretch.active,
        profile: None,
        ..interferer.clone()
    };
    stretches.iter().enumerate().map(task).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stretches_follow_each_other_and_end_in_time(seed: u64) {
            for disturbance in Disturbance::ALL {
                let stretches = disturbance.stretches(seed);
                let (onset, mut before) = (disturbance.onset(seed), Nanos::ZERO);
                prop_assert_eq!(stretches[0].active.from, onset);
                for stretch in &stretches {
                    prop_assert!(stretch.active.from >= before && stretch.active.until > stretch.active.from);
                    prop_assert!(stretch.active.until <= onset + LASTS && (1..=3).contains(&stretch.cores));
                    before = stretch.active.until;
                }
                prop_assert_eq!(disturbance.stretches(seed), stretches);
            }
        }
    }
}
