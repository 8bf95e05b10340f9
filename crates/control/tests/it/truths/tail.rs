//! The tail estimate: reached shares of late jobs, bounds that hold whatever the jobs do, and a check that notices an
//! estimate that is stuck.

use proptest::prelude::*;
use punctual_control::{AIM, HEADROOM_MAX, SURPLUS_MAX, SURPLUS_MIN, Tail};

use crate::truths::systems::Uniform;

/// The relative scatter of jobs around the mean that the law holds.
#[derive(Clone, Copy, Debug)]
enum Scatter {
    Normal,
    Laplace,
    /// One job in fifty is longer by half.
    Rare,
    /// As jobs are that are paced from within: shortly before their goal, or well before it.
    Early,
}

impl Scatter {
    const ALL: [Scatter; 4] = [Scatter::Normal, Scatter::Laplace, Scatter::Rare, Scatter::Early];

    /// T / r of a job; the standard deviation of the first two is `scale`.
    fn draw(self, scale: f64, uniform: &mut Uniform) -> f64 {
        // A draw lies in -1..1.
        let mut unit = || (0.5 * (uniform.draw() + 1.0)).clamp(1e-12, 1.0 - 1e-12);
        let u = unit();
        let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * unit()).cos();
        match self {
            Scatter::Normal => 1.0 + scale * normal,
            Scatter::Laplace => {
                let side = if unit() < 0.5 { -1.0 } else { 1.0 };
                1.0 - side * scale / std::f64::consts::SQRT_2 * u.ln()
            }
            Scatter::Early => 1.0 + scale * (0.3 * normal + 0.5 + 0.5 * unit().ln()),
            Scatter::Rare => 1.0 + 0.4 * scale * normal + if unit() < 0.02 { 0.5 } else { 0.0 },
        }
    }
}

/// Runs `jobs` jobs whose mean a law holds at the set point, which `set_point` reads from the estimate; how many were
/// late after the first `skip`.
fn late(tail: &mut Tail, jobs: u32, skip: u32, mut job: impl FnMut() -> f64, set_point: impl Fn(&Tail) -> f64) -> u32 {
    let mut late = 0;
    for k in 0..jobs {
        let tardiness = set_point(tail) * job();
        tail.observe(tardiness, false);
        late += u32::from(k >= skip && tardiness > 1.0);
    }
    late
}

/// From 0.1 to 5 %, for light and heavy tails: the share that is reached lies within a factor of 1.5 of the one asked
/// for.
#[test]
fn the_reached_share_is_near_the_asked_one_for_every_tail() {
    for asked in [0.001, 0.01, 0.05] {
        for scatter in Scatter::ALL {
            for seed in 0..4 {
                let mut uniform = Uniform::new(seed);
                let mut tail = Tail::new(asked).unwrap();
                let (jobs, skip) = ((100.0 / asked) as u32, (20.0 / asked) as u32);
                let count = late(
                    &mut tail,
                    jobs,
                    skip,
                    || scatter.draw(0.05, &mut uniform),
                    Tail::set_point,
                );
                let reached = f64::from(count) / f64::from(jobs - skip) / asked;
                assert!(
                    (1.0 / 1.5..1.5).contains(&reached),
                    "{asked} {scatter:?} seed {seed}: {reached}"
                );
            }
        }
    }
}

proptest! {
    /// The same for any seed and width of the scatter. Rare large deviations, whose tail is no exponential, have a
    /// wider bound below: in 6000 cases they came down to 0.50 times the asked share, once to 0.45; the others to 0.71.
    #[test]
    fn the_reached_share_is_near_the_asked_one_for_any_seed(
        seed: u64, scale in 0.01..0.15f64, asked in 0.005..0.1f64, scatter in prop::sample::select(&Scatter::ALL[..]),
    ) {
        let mut uniform = Uniform::new(seed);
        let mut tail = Tail::new(asked).unwrap();
        let (jobs, skip) = ((100.0 / asked) as u32, (20.0 / asked) as u32);
        let count = late(&mut tail, jobs, skip, || scatter.draw(scale, &mut uniform), Tail::set_point);
        let reached = f64::from(count) / f64::from(jobs - skip) / asked;
        let least = if matches!(scatter, Scatter::Rare) { 0.35 } else { 1.0 / 1.5 };
        prop_assert!((least..1.5).contains(&reached), "{reached}");
    }
}

/// What [`AIM`] is for: a run of 600 jobs at 1 % exceeds it in one of twenty runs at most, start-up included.
#[test]
fn a_run_of_600_jobs_seldom_exceeds_one_percent() {
    for scatter in [Scatter::Normal, Scatter::Laplace] {
        let exceeds = |seed: u64| {
            let mut uniform = Uniform::new(seed);
            let mut tail = Tail::new(0.01).unwrap();
            late(&mut tail, 600, 0, || scatter.draw(0.05, &mut uniform), Tail::set_point) > 6
        };
        let exceeded = (0..200).filter(|seed| exceeds(*seed)).count();
        assert!(exceeded <= 10, "{scatter:?}: {exceeded} of 200");
    }
}

/// A planted fault: the same check notices a set point that does not move.
#[test]
fn an_estimate_that_is_stuck_is_noticed() {
    let asked = 0.01;
    for stuck in [0.6, 0.98] {
        let mut uniform = Uniform::new(1);
        let mut tail = Tail::new(asked).unwrap();
        let count = late(
            &mut tail,
            10_000,
            2000,
            || Scatter::Normal.draw(0.05, &mut uniform),
            |_| stuck,
        );
        let reached = f64::from(count) / 8000.0 / asked;
        assert!(!(1.0 / 1.5..1.5).contains(&reached), "{stuck}: {reached}");
    }
}

/// Before anything is known, and after few jobs, the set point is on the safe side of where it ends.
#[test]
fn the_start_is_on_the_safe_side() {
    for asked in [0.001, 0.01, 0.05] {
        let mut uniform = Uniform::new(3);
        let mut tail = Tail::new(asked).unwrap();
        let start = tail.set_point();
        late(
            &mut tail,
            5000,
            0,
            || Scatter::Normal.draw(0.03, &mut uniform),
            Tail::set_point,
        );
        assert!(
            start < tail.set_point(),
            "{asked}: from {start} to {}",
            tail.set_point()
        );
    }
}

proptest! {
    /// Whatever the jobs do, the set point keeps its bounds, and the late ones among those that count are q n, but for
    /// the bounds of the surplus, as long as it does not stand at its most.
    #[test]
    fn late_jobs_are_those_aimed_at_but_for_the_surplus(
        asked in 0.001..0.2f64,
        jobs in prop::collection::vec(0.5..1.6f64, 1..400),
    ) {
        let mut tail = Tail::new(asked).unwrap();
        let (mut counted, mut late) = (0.0, 0.0);
        for job in jobs {
            let before = tail.surplus();
            tail.observe(job, false);
            let after = tail.surplus();
            if after != before || job > 1.0 {
                counted += 1.0;
                late += f64::from(u8::from(job > 1.0));
            }
            prop_assert!((SURPLUS_MIN..=SURPLUS_MAX).contains(&after));
            let set_point = tail.set_point();
            prop_assert!((1.0 / (1.0 + HEADROOM_MAX)..=1.0).contains(&set_point), "{set_point}");
            if after == SURPLUS_MAX || after == SURPLUS_MIN {
                return Ok(());
            }
        }
        prop_assert!((late - AIM * asked * counted - tail.surplus()).abs() < 1e-9);
    }

    /// Late jobs in a row bring the set point to its least within a bounded number, wherever it was.
    #[test]
    fn a_burst_is_answered_within_a_bounded_number_of_jobs(asked in 0.001..0.1f64, quiet in 0u32..20_000, seed: u64) {
        let mut uniform = Uniform::new(seed);
        let mut tail = Tail::new(asked).unwrap();
        late(&mut tail, quiet, 0, || Scatter::Normal.draw(0.01, &mut uniform), Tail::set_point);
        let bound = (SURPLUS_MAX - SURPLUS_MIN).ceil() as u32 + 1;
        (0..bound).for_each(|_| tail.observe(1.1, false));
        prop_assert!(tail.set_point() <= 1.0 / (1.0 + HEADROOM_MAX) + 1e-9, "{}", tail.set_point());
    }

    /// A late job for which nothing could have been done moves the set point of no later one.
    #[test]
    fn the_safe_setting_is_not_held_against_the_set_point(jobs in prop::collection::vec(1.01..3.0f64, 1..100)) {
        let mut tail = Tail::new(0.01).unwrap();
        for job in jobs {
            tail.observe(job, true);
        }
        prop_assert_eq!(tail.surplus(), 0.0);
    }
}

/// Jobs that scatter by 3 %, and take `times` as long in a disturbance of `burst` jobs, once in `every`, from job 400
/// on.
/// What is late of them after job 400, as a share; and the set point before each burst, and `after` jobs after it.
fn disturbed(times: f64, (every, burst): (u32, u32), after: u32, jobs: u32) -> (f64, Vec<(f64, f64)>) {
    let mut uniform = Uniform::new(7);
    let mut tail = Tail::new(0.01).unwrap();
    let (mut late, mut pairs, mut before) = (0, Vec::new(), 0.0);
    for k in 0..jobs {
        let phase = if k < 400 { every } else { (k - 400) % every };
        if phase == 0 {
            before = tail.set_point();
        }
        if phase == burst + after {
            pairs.push((before, tail.set_point()));
        }
        let longer = if phase < burst { times } else { 1.0 };
        let tardiness = tail.set_point() * longer * Scatter::Normal.draw(0.03, &mut uniform);
        tail.observe(tardiness, false);
        late += u32::from(k >= 400 && tardiness > 1.0);
    }
    (f64::from(late) / f64::from(jobs - 400), pairs)
}

/// A disturbance that comes seldom costs its own jobs, and not the set point of those that follow for 1 / q jobs each.
#[test]
fn the_set_point_returns_soon_after_a_burst() {
    let (late, pairs) = disturbed(1.5, (1500, 6), 80, 6000);
    let returned = pairs.iter().map(|(before, after)| after / before).sum::<f64>() / pairs.len() as f64;
    // 0.52 where each late job is repaid first.
    assert!(
        pairs.len() == 4 && late < 0.01 && returned > 0.7,
        "{late} late, {returned:.2} of the set point: {pairs:.2?}"
    );
}

/// Where bursts come again and again, and a lower set point avoids them, the returns become rarer until the share that
/// is asked for is held.
#[test]
fn returns_that_fail_become_rarer() {
    for every in [50, 100, 200] {
        let (late, pairs) = disturbed(1.5, (every, 4), 0, 20_400);
        assert!(late < 0.015, "every {every}: {late} late, {:.2?}", pairs.last());
    }
}

/// Late jobs that no set point avoids are all that is aimed at: few of the others are late, though the set point
/// returns before these are repaid. 1.29 % where the surplus of bursts falls below 0 meanwhile.
#[test]
fn unavoidable_late_jobs_leave_few_of_the_others_late() {
    let (late, pairs) = disturbed(3.0, (2000, 16), 80, 40_400);
    assert!(pairs.len() == 20 && late < 0.0124, "{late} late, {:.2?}", pairs.last());
}
