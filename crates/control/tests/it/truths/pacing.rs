//! The pacer: jobs end at their goal whatever slows them down, as far as the clock reaches; and it is silent where
//! there is nothing to do.

use proptest::prelude::*;
use punctual_control::{Pacer, TOLERANCE};

use crate::truths::systems::Uniform;

const GOAL: f64 = 0.85;

/// The clock's steps: 0.1 to 1 of the top.
fn steps() -> Vec<f64> {
    (2..=20).map(|twentieths| f64::from(twentieths) * 0.05).collect()
}

/// A job's parts: their time at the top clock, and which share of it does not go with the clock.
struct Parts {
    times: Vec<f64>,
    memory: f64,
}

impl Parts {
    /// So many, unequal, 0.4 of the deadline in all.
    fn new(count: usize, memory: f64, seed: u64) -> Parts {
        let mut uniform = Uniform::new(seed);
        let times: Vec<f64> = (0..count).map(|_| 1.0 + 0.6 * uniform.draw()).collect();
        let all: f64 = times.iter().sum();
        Parts {
            times: times.iter().map(|time| 0.4 * time / all).collect(),
            memory,
        }
    }

    /// Runs a job whose part i is slowed down by `slow(i)`, from this clock on; when it ended, and how often the clock
    /// changed.
    fn run(&self, pacer: &mut Pacer, acts: bool, mut clock: f64, slow: impl Fn(usize) -> f64) -> (f64, u32) {
        let (mut elapsed, mut work, mut changes) = (0.0, 0.0, 0);
        pacer.begin();
        for (i, time) in self.times.iter().enumerate() {
            let took = slow(i) * time * (self.memory + (1.0 - self.memory) / clock);
            elapsed += took;
            work += clock * took;
            pacer.reach(i + 1, work);
            if acts && i + 1 < self.times.len() {
                let next = pacer.clock(elapsed, GOAL, clock).unwrap();
                changes += u32::from(next != clock);
                clock = next;
            }
        }
        (elapsed, changes)
    }

    /// A pacer that has seen some jobs as they usually are, at this clock.
    fn taught(&self, clock: f64) -> Pacer {
        let mut pacer = Pacer::new(steps(), self.times.len()).unwrap();
        for _ in 0..3 {
            self.run(&mut pacer, false, clock, |_| 1.0);
        }
        pacer
    }
}

proptest! {
    /// Slowed down, or sped up, from its beginning on: unpaced it is as far off as that, paced it is on its goal.
    #[test]
    fn a_slowed_job_ends_at_its_goal(seed: u64, count in 12usize..32, memory in 0.0..0.4f64, slow in 0.6..1.8f64) {
        let parts = Parts::new(count, memory, seed);
        let mut pacer = parts.taught(0.5);
        let (unpaced, _) = parts.run(&mut pacer.clone(), false, 0.5, |_| slow);
        let (paced, _) = parts.run(&mut pacer, true, 0.5, |_| slow);
        prop_assert!((paced - GOAL).abs() < 0.05 * GOAL, "{paced}, unpaced {unpaced}");
    }

    /// Slowed down in the middle: on its goal, or as early as the top clock allows from there on, but for what it takes
    /// to see it.
    #[test]
    fn a_disturbance_within_the_job_is_met_within_the_job(
        seed: u64,
        count in 12usize..32,
        slow in 1.0..3.0f64,
        at in 0.0..0.7f64,
    ) {
        let parts = Parts::new(count, 0.0, seed);
        let from = (at * count as f64) as usize;
        let disturbed = |i: usize| if i >= from { slow } else { 1.0 };
        let (paced, _) = parts.run(&mut parts.taught(0.5), true, 0.5, disturbed);
        let done: f64 = parts.times[..from].iter().sum::<f64>() / 0.5;
        let best = done + slow * parts.times[from..].iter().sum::<f64>();
        let blind = 4.0 * slow * 0.4 / count as f64 / 0.5;
        prop_assert!(paced < (1.05 * GOAL).max(best + blind), "{paced}, at best {best}");
        prop_assert!(paced > 0.95 * GOAL, "not early either: {paced}");
    }

    /// A job that runs as usual, at the clock that suits it, is left alone; and what lasts becomes usual.
    #[test]
    fn what_is_usual_changes_nothing(seed: u64, count in 2usize..32, slow in 0.5..1.6f64) {
        let parts = Parts::new(count, 0.0, seed);
        let suits = 0.4 / GOAL;
        let mut pacer = parts.taught(suits);
        let (end, changes) = parts.run(&mut pacer, true, suits, |_| 1.0);
        prop_assert!(changes == 0 && (end - GOAL).abs() < TOLERANCE, "{changes} changes, {end}");
        for _ in 0..60 {
            parts.run(&mut pacer, false, suits, |_| slow);
        }
        prop_assert!((pacer.slow_down() - 1.0).abs() < 0.01, "{}", pacer.slow_down());
    }

    /// Whatever it is told, it asks for a step of the clock or for nothing.
    #[test]
    fn nonsense_in_is_a_step_out(
        told in prop::collection::vec((0usize..40, any::<f64>()), 0..60),
        elapsed: f64,
        goal: f64,
        known: bool,
    ) {
        let parts = Parts::new(8, 0.0, 1);
        let mut pacer = if known { parts.taught(0.5) } else { Pacer::new(steps(), 8).unwrap() };
        pacer.begin();
        for (done, work) in told {
            pacer.reach(done, work);
        }
        let asked = pacer.clock(elapsed, goal, 0.5);
        prop_assert!(asked.is_none_or(|clock| steps().contains(&clock)), "{asked:?}");
    }
}

/// The planted fault: a pacer that learns no slow-down (its parts are told as they usually are) does not rescue the
/// job.
#[test]
fn a_pacer_that_is_told_a_lie_is_found_out() {
    let parts = Parts::new(16, 0.0, 7);
    let mut pacer = parts.taught(0.5);
    let (mut elapsed, mut usual, mut clock) = (0.0, 0.0, 0.5);
    pacer.begin();
    for (i, time) in parts.times.iter().enumerate() {
        elapsed += 1.6 * time / clock;
        usual += time;
        pacer.reach(i + 1, usual);
        clock = pacer.clock(usual / 0.5, GOAL, clock).unwrap();
    }
    assert!(elapsed > 1.2 * GOAL, "{elapsed}");
}

#[test]
fn senseless_pacers_are_not_made() {
    assert_eq!(Pacer::new(vec![], 4), None);
    assert_eq!(Pacer::new(vec![0.5, 0.5], 4), None);
    assert_eq!(Pacer::new(vec![0.0, 0.5], 4), None);
    assert_eq!(Pacer::new(steps(), 0), None);
    assert_eq!(Pacer::new(steps(), punctual_control::PARTS_MAX + 1), None);
}

proptest! {
    /// Within the bounds of a checkpoint the pacer leaves the clock alone, outside of them it does not; also for a job
    /// of which nothing was reported.
    #[test]
    fn a_checkpoint_that_need_not_be_reported_leaves_the_clock(
        reported in 0usize..12,
        slow in 0.5..2.0f64,
        step in 2u32..=20,
        skipped in 1usize..8,
        off in -0.2..0.2f64,
        seed in any::<u64>(),
    ) {
        let parts = Parts::new(20, 0.3, seed);
        let mut pacer = parts.taught(1.0);
        pacer.begin();
        let (mut work, now) = (0.0, f64::from(step) * 0.05);
        for part in 0..reported {
            work += slow * parts.times[part];
            pacer.reach(part + 1, work);
        }
        let (elapsed, done) = (work / now, reported + skipped);
        let stays: Vec<(f64, f64)> = pacer.stays((reported > 0).then_some(elapsed), GOAL, now).collect();
        prop_assert_eq!(stays.len(), 20 - reported);
        let (earliest, latest) = stays[skipped - 1];
        // As usual, or somewhat off.
        let usual: f64 = parts.times[reported..done].iter().sum();
        let at = elapsed + usual * pacer.slow_down() / now * (1.0 + off);
        prop_assume!((at - earliest).abs() > 1e-9 && (at - latest).abs() > 1e-9);
        pacer.reach(done, work + (at - elapsed) * now);
        prop_assume!((0.126..7.9).contains(&pacer.slow_down()));
        let clock = pacer.clock(at, GOAL, now).unwrap();
        prop_assert_eq!(clock == now, (earliest..=latest).contains(&at), "{} {} {}", earliest, at, latest);
    }
}
