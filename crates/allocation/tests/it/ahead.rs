//! Looking ahead, on tasks whose answer is known.

use punctual_allocation::ahead::{Ahead, Foresight, HORIZON};
use punctual_allocation::{
    Allocator, AllocatorSettings, Grid, Objective, PeriodicTask, Phase, Policy, Pool, Profile, Programs, RateTable,
    Refill, RunningJob,
};
use punctual_units::{Nanos, Time};

/// Programs of 100 ms with everything: one that wants bandwidth in its first half, one that wants it in its second, and
/// one that wants it always.
fn programs() -> Programs {
    let hungry = |share: punctual_allocation::Share| 1e9 * f32::from(share.partitions.min(16)) / 16.0;
    let program = |name: &str, halves: [bool; 2]| Profile {
        name: name.into(),
        grid: Grid::PAPER,
        instructions: 1e8,
        phases: halves
            .iter()
            .zip([0.5, 1.0])
            .map(|(wants, ends)| Phase {
                ends,
                rates: RateTable::new(Grid::PAPER, |share| if *wants { hungry(share) } else { 1e9 }),
            })
            .collect(),
    };
    let all = [
        program("first", [true, false]),
        program("second", [false, true]),
        program("always", [true, true]),
    ];
    Programs::new(&all, Objective::Speed).unwrap()
}

fn settings() -> AllocatorSettings {
    AllocatorSettings {
        pool: Pool {
            least: punctual_allocation::Share { ways: 1, partitions: 1 },
            ..Pool::PAPER
        },
        cores: 2,
        refill: Some(Refill::PAPER),
        ..AllocatorSettings::paper(Policy::Dna)
    }
}

fn foreseen(tasks: &[PeriodicTask]) -> Foresight {
    Allocator::new(&programs(), tasks, settings())
        .unwrap()
        .forecast()
        .cloned()
        .unwrap()
}

fn task(program: usize, millis: u64, core: usize) -> PeriodicTask {
    PeriodicTask::new(program, Nanos::from_millis(millis), core)
}

#[test]
fn bandwidth_is_lent_where_it_saves_deadlines() {
    // By turns each can have nearly all; halved, half of each run takes 1.6 times as long.
    let forecast = foreseen(&[task(0, 120, 0), task(1, 120, 1)]);
    assert!(forecast.lends, "{forecast:?}");
    assert_eq!(
        forecast.cores.iter().map(|core| core.late).sum::<u64>(),
        0,
        "{forecast:?}"
    );
    assert!(forecast.seen >= HORIZON, "{forecast:?}");
}

#[test]
fn nothing_is_lent_where_lending_does_not_help() {
    // Both want the same at the same time, and never rest.
    let forecast = foreseen(&[task(2, 90, 0), task(2, 90, 1)]);
    assert!(!forecast.lends, "{forecast:?}");
    assert!(forecast.cores.iter().any(|core| core.late > 0), "{forecast:?}");
}

#[test]
fn a_task_without_a_deadline_gives_way() {
    // One core can be in time, not both.
    for heavy in [0, 1] {
        let tasks = [0, 1].map(|core| PeriodicTask {
            weight: if core == heavy { 1.0 } else { 0.0 },
            ..task(2, 110, core)
        });
        let forecast = foreseen(&tasks);
        assert_eq!(forecast.cores[heavy].late, 0, "{forecast:?}");
        assert!(forecast.cores[heavy].due > 200, "{forecast:?}");
    }
}

#[test]
fn priorities_and_deadlines_are_those_of_the_tasks() {
    // By deadline all jobs are in time; where the rarer task comes first, it makes one of 190 ms late.
    let late = |ranks: [Option<u32>; 2]| {
        let tasks = [(190, ranks[0]), (400, ranks[1])].map(|(millis, rank)| PeriodicTask {
            rank,
            ..task(2, millis, 0)
        });
        foreseen(&tasks).cores[0].late
    };
    assert_eq!((late([None; 2]), late([Some(0), Some(1)])), (0, 0));
    assert!(late([Some(1), Some(0)]) > 10);
    // A job takes 100 ms.
    let due = |millis| {
        let deadline = Some(Nanos::from_millis(millis));
        foreseen(&[PeriodicTask {
            deadline,
            ..task(2, 300, 0)
        }])
    };
    assert_eq!(due(110).cores[0].late, 0);
    let late = due(90);
    assert_eq!(late.cores[0].late, late.cores[0].due);
    let data = Nanos::from_millis(20);
    let beside = PeriodicTask {
        data,
        ..task(2, 110, 0)
    };
    assert_eq!(foreseen(&[beside]).cores[0].late, foreseen(&[beside]).cores[0].due);
    let alone = PeriodicTask {
        weight: 0.0,
        deadline: Some(Nanos::MAX),
        ..task(2, 110, 0)
    };
    let foreseen = foreseen(&[alone]).to_string();
    assert!(foreseen.ends_with("has a deadline in that time"), "{foreseen}");
    let unseen = Foresight {
        seen: Nanos::ZERO,
        ..late.clone()
    };
    assert!(unseen.to_string().ends_with("late jobs are not foreseen"), "{unseen}");
    assert_eq!(
        late.to_string(),
        "ways and bandwidth split as static-fewest, nothing is lent; foreseen for 30 s at full clock: core 0: 100 % of its \
         jobs will be late"
    );
}

/// Jobs without deadlines that follow each other never wait in a queue, and never before others.
#[test]
fn best_effort_work_that_never_ends_makes_no_job_late() {
    let endless = PeriodicTask {
        deadline: Some(Nanos::MAX),
        rank: Some(u32::MAX),
        weight: 0.0,
        ..task(2, 1, 0)
    };
    let steady = PeriodicTask {
        rank: Some(0),
        ..task(2, 300, 0)
    };
    let forecast = foreseen(&[steady, endless]);
    assert_eq!(
        (forecast.cores[0].due, forecast.cores[0].late),
        (100, 0),
        "{forecast:?}"
    );
    assert!(forecast.seen >= HORIZON, "{forecast:?}");
}

#[test]
fn the_work_is_bounded_and_the_rest_is_resumed() {
    let (programs, tasks, settings) = (programs(), [task(0, 120, 0), task(1, 121, 1)], settings());
    let none = [None, None];
    let ahead = || Ahead::new(&programs, &tasks, (&settings, Refill::PAPER), None, &none, Time::ZERO);
    let whole = ahead().advance(&programs, u64::MAX).unwrap();
    let mut pieces = ahead();
    let (mut found, mut count) = (None, 0);
    while found.is_none() {
        (found, count) = (pieces.advance(&programs, 777), count + 1);
    }
    assert_eq!(found, Some(whole.clone()));
    assert!(
        count as u64 >= whole.work / 900 && count > 10,
        "{count} pieces of {} units",
        whole.work
    );
    let cut = ahead().within(whole.work / 3).advance(&programs, u64::MAX).unwrap();
    assert!(
        cut.work <= whole.work / 3 + 64 && cut.seen < whole.seen && cut.seen > Nanos::ZERO,
        "{cut:?}"
    );
}

/// A task that comes at 10 s is looked ahead for in the steps from there on.
#[test]
fn a_task_that_comes_is_looked_ahead_for() {
    let programs = programs();
    let from = Time::ZERO + Nanos::from_secs(10);
    let tasks = [task(0, 120, 0), PeriodicTask { from, ..task(2, 90, 1) }];
    let mut allocator = Allocator::new(&programs, &tasks, settings()).unwrap();
    let first = allocator.forecast().cloned();
    let mut steps = 0;
    while allocator.forecast() == first.as_ref() {
        let now = Time::ZERO + Nanos::from_millis(9_000 + steps);
        let job = |program, core: usize| {
            (core == 0 || now >= from).then_some(RunningJob {
                program,
                progress: 0.25,
                deadline: now + Nanos::from_millis(80),
                waiting: &[],
            })
        };
        allocator.look(&programs, now);
        allocator.step(&programs, &[job(0, 0), job(2, 1)], now);
        steps += 1;
        assert!(steps < 100_000, "no other forecast");
    }
    assert!(steps > 1_000, "looked ahead before the task came: {steps}");
}

/// The task set is another one before the look at its end: no forecast follows for tasks that are gone.
#[test]
fn a_look_ahead_ends_with_its_task_set() {
    let programs = programs();
    let at = |millis| Time::ZERO + Nanos::from_millis(millis);
    let short = PeriodicTask {
        from: at(10_000),
        until: at(10_001),
        ..task(1, 120, 1)
    };
    let until = at(10_001);
    let tasks = [
        PeriodicTask {
            until,
            ..task(0, 120, 0)
        },
        short,
    ];
    let mut allocator = Allocator::new(&programs, &tasks, settings()).unwrap();
    let first = allocator.forecast().cloned();
    for millis in 9_999..60_000 {
        allocator.look(&programs, at(millis));
        allocator.step(&programs, &[None, None], at(millis));
    }
    assert_eq!(allocator.forecast(), first.as_ref());
}

/// A job that is there when the look begins has the time for its data to spend, too.
#[test]
fn a_job_that_is_there_needs_time_for_its_data() {
    let (programs, settings) = (programs(), settings());
    let late = |millis| {
        let tasks = [PeriodicTask {
            data: Nanos::from_millis(millis),
            ..task(2, 300, 0)
        }];
        let job = RunningJob {
            program: 2,
            progress: 0.0,
            deadline: Time::ZERO + Nanos::from_millis(110),
            waiting: &[],
        };
        let cores = [Some(job), None];
        let mut ahead = Ahead::new(&programs, &tasks, (&settings, Refill::PAPER), None, &cores, Time::ZERO);
        ahead.advance(&programs, u64::MAX).unwrap().cores[0].late
    };
    assert_eq!((late(0), late(20)), (0, 1));
}

/// Nothing was lent before: until the end of the look ahead, for which it asks to be asked again, bandwidth is.
#[test]
fn lending_decides_while_a_look_ahead_is_under_way() {
    let programs = programs();
    let from = Time::ZERO + Nanos::from_secs(10);
    let late = |core| PeriodicTask {
        from,
        ..task(core, 120, core)
    };
    let tasks = [task(2, 90, 0), late(1)];
    let mut allocator = Allocator::new(&programs, &tasks, settings()).unwrap();
    let first = allocator.forecast().cloned().unwrap();
    assert!(!first.lends, "{first:?}");
    let job = |program, now| {
        Some(RunningJob {
            program,
            progress: 0.25,
            deadline: now + Nanos::from_millis(80),
            waiting: &[],
        })
    };
    let before = Time::ZERO + Nanos::from_secs(9);
    assert!(allocator.step(&programs, &[job(2, before), None], before).is_none());
    assert_eq!(allocator.due(), Some(from));
    let (mut now, mut decided) = (from, false);
    while allocator.forecast() == Some(&first) {
        allocator.look(&programs, now);
        allocator.step(&programs, &[job(2, now), job(1, now)], now);
        decided |= allocator.decided().is_some();
        if allocator.forecast() == Some(&first) {
            now = allocator.due().expect("asked again while it looks ahead");
        }
    }
    assert!(decided, "nothing decided until {now:?}");
    assert_eq!(allocator.forecast().unwrap().begun, from);
    assert!(now.since(from) < Nanos::from_secs(2), "{}", now.since(from));
}
