//! The loop without a model of its tasks: around plants with and without an effect of the admitted share.

use punctual_platform::Readings;
use punctual_units::TaskId;
use punctual_workload::{JobOutcome, Split, TaskGoal};

use super::super::*;
use super::{LEAST, STEP, options};
use crate::mode::SILENT_WINDOWS;

/// Jobs that end every 100 ms, and how their tardiness answers to the admitted share.
struct Plant {
    /// Mean tardiness with this share of updates.
    tardiness: fn(f64) -> f64,
    /// Part of the jobs that something else delays beyond their deadline.
    disturbed: f64,
    /// Whether a job that ends after its deadline, which is the next release, delays the next one.
    queues: bool,
    /// By how much the next job begins late, in deadlines.
    behind: f64,
    random: u64,
    /// Windows so far.
    windows: u64,
}

impl Plant {
    fn new(tardiness: fn(f64) -> f64, disturbed: f64, seed: u64) -> Plant {
        Plant {
            tardiness,
            disturbed,
            queues: false,
            behind: 0.0,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            windows: 0,
        }
    }

    fn uniform(&mut self) -> f64 {
        self.random = self
            .random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Tardiness of the next job: scatters by 6 % around its mean.
    fn job(&mut self, admitted: f64) -> f64 {
        let scatter = (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0;
        let delayed = f64::from(u8::from(self.uniform() < self.disturbed));
        let tardiness = self.behind + (self.tardiness)(admitted.max(LEAST)) * (1.0 + 0.06 * scatter) + delayed;
        self.behind = if self.queues { (tardiness - 1.0).max(0.0) } else { 0.0 };
        tardiness
    }

    /// Fresh share of objects that are valid for two periods.
    fn fresh(admitted: f64) -> f64 {
        (admitted.max(LEAST) * 2.0).min(1.0)
    }
}

/// Averages of a run after its first quarter.
#[derive(Clone, Copy, Debug, Default)]
struct Averages {
    late: f64,
    admitted: f64,
    fresh: f64,
}

/// Runs `plant` for so many windows under `regulator`, or at a fixed share.
fn run(plant: &mut Plant, regulator: Result<&mut Regulator, f64>, windows: u64) -> (Averages, Vec<Step>) {
    let (mut sums, mut steps) = (Averages::default(), Vec::new());
    let (mut regulator, fixed) = match regulator {
        Ok(regulator) => (Some(regulator), 1.0),
        Err(fixed) => (None, fixed),
    };
    let mut admitted = regulator.as_ref().map_or(fixed, |regulator| share(&regulator.plan()));
    let counted = (windows - windows / 4) as f64;
    for window in 0..windows {
        let began = Time::ZERO + STEP * plant.windows;
        let first = plant.windows * 2;
        plant.windows += 1;
        let counts = f64::from(u8::from(window >= windows / 4)) / counted;
        for job in 0..2 {
            let tardiness = plant.job(admitted);
            sums.late += f64::from(u8::from(tardiness > 1.0)) * counts / 2.0;
            if let Some(regulator) = &mut regulator {
                complete(regulator, 0, first + job, began + STEP.scaled(0.5) * job, tardiness);
            }
        }
        sums.admitted += admitted * counts;
        sums.fresh += Plant::fresh(admitted) * counts;
        if let Some(regulator) = &mut regulator {
            let step = decide(regulator, began + STEP, Plant::fresh(admitted));
            admitted = share(&step.plan);
            steps.push(step);
        }
    }
    (sums, steps)
}

fn share(plan: &Plan) -> f64 {
    plan.share(KnobId::AdmittedShare).unwrap().get()
}

fn complete(regulator: &mut Regulator, task: u32, job: u64, released: Time, tardiness: f64) {
    let deadline = Nanos::from_millis(50);
    let response = deadline.scaled(tardiness);
    let outcome = JobOutcome {
        task: TaskId(task),
        job,
        released,
        deadline: Some(deadline),
        finished: released + response,
        split: Split {
            computation: response,
            ..Split::default()
        },
    };
    regulator.step(&Event::Completed(outcome), released + response);
}

fn decide(regulator: &mut Regulator, now: Time, fresh: f64) -> Step {
    let vitals = Vitals {
        machine: Readings {
            at: now,
            meters: Vec::new(),
        },
        fresh: Share::clamped(fresh),
        updates_offered: 0,
        updates_admitted: 0,
        updates_for_minimum: 0,
        updates_least: Share::clamped(LEAST),
    };
    let answer = regulator.step(&Event::Period(vitals), now);
    let step = answer.and_then(Answer::step).expect("a period is answered");
    let applied = Applied {
        obtained: step.plan,
        ..Applied::default()
    };
    regulator.step(&Event::Applied(applied), now);
    step
}

/// A regulator of `qod` without a model, for jobs of which 1 % may be late.
fn unlearnt() -> Regulator {
    asked(vec![Some(one_percent())])
}

fn one_percent() -> TaskGoal {
    TaskGoal::Late(Share::clamped(0.01))
}

/// The same for tasks with these goals.
fn asked(goals: Vec<Option<TaskGoal>>) -> Regulator {
    let mut options = options(ControllerKind::Qod);
    options.design = None;
    options.offers.knobs.clear();
    options.goals = goals;
    options.warm_up = STEP * 10;
    Regulator::new(options).unwrap()
}

/// Late jobs and the admitted share come near to those of the best of all fixed shares, whatever the gain is.
#[test]
fn without_a_model_the_admitted_share_comes_near_the_best_fixed_one() {
    let plants: [fn(f64) -> f64; 3] = [
        |admitted| 0.4 + 0.9 * admitted,
        |admitted| 0.72 + 0.5 * admitted,
        |admitted| 0.3 + 4.0 * admitted * admitted,
    ];
    for (which, tardiness) in plants.into_iter().enumerate() {
        let late = |share| run(&mut Plant::new(tardiness, 0.0, 3), Err(share), 4000).0.late;
        let shares = (0..15).map(|step| LEAST + 0.05 * f64::from(step));
        let best = shares.filter(|share| late(*share) <= 0.01).fold(LEAST, f64::max);
        let (law, _) = run(&mut Plant::new(tardiness, 0.0, 1), Ok(&mut unlearnt()), 4000);
        let told = format!(
            "plant {which}: {law:?}, best {best:.2} with {:.4}, open {:.3}",
            late(best),
            late(1.0)
        );
        eprintln!("{told}");
        assert!(late(1.0) > 0.5, "{told}");
        assert!(law.late <= late(best).max(0.01) + 0.01, "{told}");
        assert!((best - 0.15..=best + 0.1).contains(&law.admitted), "{told}");
    }
}

/// Jobs of one second are late, whatever is shed. The updates that were shed for them are admitted again within some
/// seconds, not once each late job is repaid.
#[test]
fn after_a_burst_of_late_jobs_the_law_soon_admits_as_before() {
    for seed in 1..6 {
        let mut options = options(ControllerKind::Qod);
        options.offers.knobs.clear();
        options.goals = vec![Some(one_percent())];
        let mut regulator = Regulator::new(options).unwrap();
        let mut plant = Plant::new(|admitted| 0.375 + 0.75 * admitted, 0.0, seed);
        let mut of = |plant: &mut Plant, windows| run(plant, Ok(&mut regulator), windows).0;
        let before = of(&mut plant, 2000);
        plant.disturbed = 1.0;
        of(&mut plant, 5);
        plant.disturbed = 0.0;
        of(&mut plant, 50);
        let after = of(&mut plant, 50);
        let told = format!("seed {seed}: {before:?}, {after:?}");
        assert!(before.late < 0.015 && after.late < 0.05, "{told}");
        assert!(after.fresh > 0.85 * before.fresh, "{told}");
    }
}

#[test]
fn without_a_model_the_clock_goes_to_its_top_before_updates_are_shed() {
    let mut options = options(ControllerKind::Mimo);
    options.design = None;
    let mut bench = super::Bench {
        regulator: Regulator::new(options).unwrap(),
        now: Time::ZERO,
    };
    let mut period = |tardiness: f64| {
        bench.job(tardiness, 0.6);
        let plan = bench.period(Ok(super::TOP)).plan;
        (plan.clock().unwrap().ratio(super::TOP), share(&plan))
    };
    for _ in 0..200 {
        period(0.3);
    }
    assert_eq!(
        period(0.3),
        (0.4, 1.0),
        "with slack the clock is lowered, and nothing is shed"
    );
    let pressed: Vec<_> = (0..60).map(|_| period(1.2)).collect();
    let first = pressed.iter().position(|(clock, _)| *clock == 1.0).expect("full clock");
    assert!(
        pressed[..=first].iter().all(|(_, admitted)| *admitted == 1.0),
        "{pressed:?}"
    );
    assert!(pressed[59].1 < 0.6, "{pressed:?}");
}

/// A disturbance that shedding does not cure: what was shed is given back, without more late jobs than with the best
/// fixed share, and seldom shed again.
#[test]
fn what_shedding_does_not_help_is_given_back_and_seldom_tried_again() {
    let plant = |seed| Plant::new(|admitted| 0.5 + 0.2 * admitted, 0.07, seed);
    let fixed = run(&mut plant(9), Err(0.54), 4000).0;
    for seed in 1..6 {
        let (law, steps) = run(&mut plant(seed), Ok(&mut unlearnt()), 4000);
        let told = format!("seed {seed}: {law:?}, fixed {fixed:?}");
        assert!(law.fresh > 0.9 && law.late < fixed.late + 0.015, "{told}");
        let reviews: Vec<_> = steps.iter().filter_map(|step| step.shedding).collect();
        assert!(reviews.iter().any(|review| !review.helped), "{told}");
        assert!(reviews.len() <= 12, "{told}: {reviews:?}");
    }
}

/// The same late jobs at the floor, but of a plant that is later with more updates: nothing is given back for long.
#[test]
fn what_shedding_helps_is_not_given_back() {
    let plant = |seed| Plant::new(|admitted| 0.72 + 0.5 * admitted, 0.07, seed);
    let fixed = run(&mut plant(9), Err(LEAST), 4000).0;
    for seed in 1..6 {
        let (law, steps) = run(&mut plant(seed), Ok(&mut unlearnt()), 4000);
        let told = format!("seed {seed}: {law:?}, fixed {fixed:?}");
        assert!(law.late < fixed.late + 0.03, "{told}");
        let reviews: Vec<_> = steps.iter().filter_map(|step| step.shedding).collect();
        assert!(reviews.iter().any(|review| review.helped), "{told}: {reviews:?}");
    }
}

/// Jobs near their deadlines with the least share, of which about as many are late as may be: no trial makes more late.
#[test]
fn where_shedding_holds_the_goal_nothing_is_tried() {
    for seed in 1..6 {
        let mut plant = Plant::new(|admitted| 0.52 + 1.2 * admitted, 0.005, seed);
        let (law, steps) = run(&mut plant, Ok(&mut unlearnt()), 2000);
        let reviews: Vec<_> = steps.iter().filter_map(|step| step.shedding).collect();
        assert!(
            reviews.is_empty() && law.late < 0.02,
            "seed {seed}: {law:?}, {reviews:?}"
        );
    }
}

/// A load that comes to need shedding after it was given back is shed for again, before the pause is over.
#[test]
fn a_load_that_comes_to_need_shedding_is_shed_for() {
    let mut plant = Plant::new(|admitted| 0.5 + 0.2 * admitted, 0.07, 2);
    let mut regulator = unlearnt();
    let (calm, _) = run(&mut plant, Ok(&mut regulator), 600);
    plant.tardiness = |admitted| 0.5 + admitted;
    let (heavy, _) = run(&mut plant, Ok(&mut regulator), 400);
    assert!(
        calm.admitted > 0.45 && heavy.admitted < 0.45,
        "{calm:?}, then {heavy:?}"
    );
}

/// A disturbance beside which twice the updates bring all jobs near their deadlines: the trial ends before many are
/// late.
#[test]
fn a_trial_that_brings_jobs_near_their_deadlines_ends_soon() {
    for seed in 1..6 {
        let mut plant = Plant::new(|admitted| 0.37 + 1.1 * admitted, 0.07, seed);
        let fixed = run(
            &mut Plant::new(|admitted| 0.37 + 1.1 * admitted, 0.07, 9),
            Err(LEAST),
            4000,
        )
        .0;
        let (law, steps) = run(&mut plant, Ok(&mut unlearnt()), 2000);
        let reviews: Vec<_> = steps.iter().filter_map(|step| step.shedding).collect();
        let told = format!("seed {seed}: {law:?}, fixed {fixed:?}: {reviews:?}");
        assert!(reviews.iter().all(|review| review.helped), "{told}");
        assert!(law.late < fixed.late + 0.015, "{told}");
    }
}

/// A core that twice the updates overload, so that jobs queue: a trial ends while it makes few of them late.
#[test]
fn a_trial_near_the_limit_of_the_core_makes_few_jobs_late() {
    let mut trials = Vec::new();
    for seed in 1..9 {
        let mut plant = Plant::new(|admitted| 0.6 + 0.9 * admitted, 0.01, seed);
        plant.queues = true;
        let mut regulator = unlearnt();
        let (mut late, mut ended) = (0.0, None);
        for window in 0..3000 {
            let (averages, steps) = run(&mut plant, Ok(&mut regulator), 1);
            let tries = window > 100 && averages.admitted > LEAST * 1.05;
            if tries || ended.is_some_and(|ended| window < ended + 20) {
                late += averages.late * 2.0;
            } else if ended.take().is_some() {
                trials.push(std::mem::take(&mut late));
            }
            if steps[0].shedding.is_some() {
                ended = Some(window);
            }
        }
    }
    // 19 on average where the share doubles at once.
    let mean = trials.iter().sum::<f64>() / trials.len() as f64;
    assert!(trials.len() > 30 && mean < 9.0, "{mean:.1}: {trials:?}");
}

/// A task that nothing helps: a quarter of its jobs is late.
const LOST: fn(f64) -> f64 = |_| 0.96;
/// A task that is in time with the least share, and late by less than [`LOST`] with twice that.
const HELPED: fn(f64) -> f64 = |admitted| 0.2 + 1.35 * admitted;

/// Runs two tasks for so many windows. Returns the share of late jobs and the mean tardiness of the second one in the
/// last half, and the mean admitted share there.
fn beside(plants: &mut [Plant; 2], regulator: &mut Regulator, windows: u64) -> (f64, f64, f64) {
    let mut admitted = share(&regulator.plan());
    let mut sums = [0.0; 3];
    for window in 0..windows {
        let (first, began) = (plants[0].windows * 2, STEP * plants[0].windows);
        plants[0].windows += 1;
        for (task, job) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            let tardiness = plants[task].job(admitted);
            let released = Time::ZERO + began + STEP.scaled(0.5) * job;
            complete(regulator, task as u32, first + job, released, tardiness);
            if task == 1 && window >= windows / 2 {
                let now = [f64::from(u8::from(tardiness > 1.0)), tardiness, admitted];
                sums.iter_mut().zip(now).for_each(|(sum, now)| *sum += now);
            }
        }
        let step = decide(regulator, Time::ZERO + began + STEP, Plant::fresh(admitted));
        admitted = share(&step.plan);
    }
    let [late, tardiness, admitted] = sums.map(|sum| sum / (windows - windows / 2) as f64 / 2.0);
    (late, tardiness, admitted)
}

/// Twice the updates harm one task, and less than another one is late in any case: they are not given back.
#[test]
fn no_task_hides_that_shedding_helps_another() {
    for seed in 1..4 {
        for goal in [one_percent(), TaskGoal::Tardiness(0.7)] {
            let mut plants = [Plant::new(LOST, 0.0, seed), Plant::new(HELPED, 0.0, seed + 100)];
            let mut regulator = asked(vec![Some(one_percent()), Some(goal)]);
            let (late, tardiness, admitted) = beside(&mut plants, &mut regulator, 2000);
            let told = format!("seed {seed}, {goal}: {late:.3} late, mean {tardiness:.3}, at {admitted:.2}");
            assert!(late < 0.02 && tardiness < 0.65, "{told}");
        }
    }
}

/// Given back, because it helped neither; then one of them comes to need it.
#[test]
fn no_task_hides_that_another_comes_to_need_shedding() {
    let mut plants = [Plant::new(LOST, 0.0, 1), Plant::new(|_| 0.5, 0.0, 2)];
    let mut regulator = asked(vec![Some(one_percent()); 2]);
    let (_, _, calm) = beside(&mut plants, &mut regulator, 600);
    assert_eq!(
        regulator.safe_since, None,
        "updates that were given back are no safe setting"
    );
    plants[1].tardiness = HELPED;
    let (late, _, heavy) = beside(&mut plants, &mut regulator, 400);
    assert!(
        calm > 0.5 && heavy < 0.35 && late < 0.02,
        "{calm:.2}, then {heavy:.2} with {late:.3} late"
    );
}

/// After silence the steps begin at the safe setting, where the knobs stand, and soon come back to where they stood
/// before, however rare failed returns have made them.
#[test]
fn after_a_fallback_the_steps_return_to_where_the_knobs_stood() {
    let mut plant = Plant::new(|admitted| 0.55 + 0.4 * admitted, 0.0, 1);
    let mut regulator = unlearnt();
    let (_, steps) = run(&mut plant, Ok(&mut regulator), 4000);
    let before = share(&steps[3999].plan);
    assert!(before > LEAST + 0.1, "{before}");
    for _ in 0..3 {
        plant.windows += SILENT_WINDOWS;
        let step = decide(&mut regulator, Time::ZERO + STEP * plant.windows, 1.0);
        assert_eq!((step.mode, share(&step.plan)), (ModeName::Fallback, LEAST));
    }
    let (_, steps) = run(&mut plant, Ok(&mut regulator), 150);
    let mut running = steps.iter().filter(|step| step.mode == ModeName::Running);
    assert_eq!(running.next().map(|step| share(&step.plan)), Some(LEAST));
    let most = running.map(|step| share(&step.plan)).fold(0.0, f64::max);
    assert!(
        (before - 0.05..=before + 0.05).contains(&most),
        "{most:.2} after {before:.2}"
    );
}
