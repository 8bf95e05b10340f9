//! What every placement keeps: checked on drawn task sets, against brute force, and by a checker that finds planted
//! faults.

use proptest::prelude::*;
use punctual_cores::{Limits, PlaceError, Placement, PlacementRequest, Seat, Sporadic, Unfit, place, responses};
use punctual_units::{CoreId, Nanos};
use punctual_workload::{Arrival, Class};

/// A small task: its class, its execution time, if that is known, and its deadline, which is its period.
fn request(class: u8, execution: Option<u64>, period: u64, core: Option<u32>) -> PlacementRequest {
    let deadline = Nanos(period);
    PlacementRequest {
        class: match class {
            0 => Class::Exclusive { deadline },
            1 => Class::RealTime { deadline },
            _ => Class::BestEffort,
        },
        arrival: Arrival::Periodic { period: Nanos(period) },
        execution: execution.map(Nanos),
        core: core.map(CoreId),
        cores: None,
    }
}

fn any_request() -> impl Strategy<Value = PlacementRequest> {
    let execution = prop::option::weighted(0.9, 1u64..40);
    let core = prop::option::weighted(0.2, 0u32..4);
    (0u8..3, execution, 20u64..60, core)
        .prop_map(|(class, execution, period, core)| request(class, execution, period, core))
}

/// Real-time tasks that leave the choice of their core open.
fn real_time() -> impl Strategy<Value = PlacementRequest> {
    (1u64..40, 20u64..60).prop_map(|(execution, period)| request(1, Some(execution), period, None))
}

fn cores(count: u32) -> Vec<CoreId> {
    (0..count).map(CoreId).collect()
}

fn sporadic(request: &PlacementRequest) -> Option<Sporadic> {
    let deadline = request.class.deadline()?;
    Some(Sporadic {
        execution: request.execution?,
        deadline,
        period: deadline,
    })
}

/// The tasks with a deadline whose seat is on `core`.
fn there(requests: &[PlacementRequest], seats: &[Seat], core: CoreId) -> Vec<PlacementRequest> {
    let on = |(_, seat): &(&PlacementRequest, &Seat)| seat.chair().is_some_and(|chair| chair.core == core);
    requests
        .iter()
        .zip(seats)
        .filter(on)
        .map(|(request, _)| *request)
        .collect()
}

/// Everything that no placement may have; empty means that it is sound.
fn faults(requests: &[PlacementRequest], all: &[CoreId], placement: &Placement) -> Vec<String> {
    let mut faults = Vec::new();
    let mut require = |holds: bool, what: &str| {
        if !holds {
            faults.push(what.to_owned());
        }
    };
    require(placement.seats.len() == requests.len(), "every task has a seat");
    require(
        !placement.rest.is_empty() && !placement.real_time.is_empty(),
        "there is a core for the rest",
    );
    for (task, (request, seat)) in requests.iter().zip(&placement.seats).enumerate() {
        require(!seat.cores().is_empty(), "every task has a core");
        require(
            seat.cores().iter().all(|core| all.contains(core)),
            "every core is there",
        );
        let exclusive = matches!(seat, Seat::Exclusive(_));
        require(
            seat.cores()
                .iter()
                .all(|core| placement.exclusive.contains(core) == exclusive),
            "exclusive cores have exclusive tasks only",
        );
        let refused = placement.refused.iter().any(|(refused, _)| *refused == task);
        let asked = matches!(request.class, Class::Exclusive { .. });
        require(
            exclusive == (asked && !refused),
            "a task that was not refused has what it asked for",
        );
        require(
            (request.class == Class::BestEffort) == matches!(seat, Seat::BestEffort(_)),
            "a task with a deadline is not among best-effort ones",
        );
        if let (Some(core), false) = (request.core, refused) {
            require(seat.cores() == [core], "a task is on the core that it names");
        }
    }
    for core in &placement.exclusive {
        let there = there(requests, &placement.seats, *core);
        let known: Option<Vec<Sporadic>> = there.iter().map(sporadic).collect();
        let held = known.map_or(there.len() == 1, |known| {
            responses(&known, None).is_ok() || known.len() == 1
        });
        require(held, "an exclusive core holds its tasks");
    }
    for core in all {
        let chairs = placement
            .seats
            .iter()
            .filter_map(Seat::chair)
            .filter(|chair| chair.core == *core);
        let mut ranks: Vec<usize> = chairs.map(|chair| chair.rank).collect();
        ranks.sort_unstable();
        require(
            ranks.iter().copied().eq(0..ranks.len()),
            "no two tasks of a core have one rank",
        );
    }
    faults
}

/// Whether `test` holds on every core under some assignment of `tasks` to `cores` cores.
fn can_be(tasks: &[Sporadic], cores: usize, test: &dyn Fn(&[Sporadic]) -> bool) -> bool {
    (0..cores.pow(tasks.len() as u32)).any(|mut number| {
        let mut there = vec![Vec::new(); cores];
        for task in tasks {
            there[number % cores].push(*task);
            number /= cores;
        }
        there.iter().all(|there| test(there))
    })
}

fn utilisation(tasks: &[Sporadic]) -> f64 {
    tasks.iter().map(Sporadic::utilisation).sum()
}

proptest! {
    #[test]
    fn every_placement_is_sound(requests in prop::collection::vec(any_request(), 1..7), count in 1u32..5) {
        let all = cores(count);
        if let Ok(placement) = place(&requests, &all, &Limits::default()) {
            prop_assert_eq!(faults(&requests, &all, &placement), Vec::<String>::new(), "{:?}", placement);
        }
    }

    #[test]
    fn tasks_that_name_no_core_are_always_placed(
        requests in prop::collection::vec(any_request(), 1..7),
        count in 1u32..5,
    ) {
        let open: Vec<PlacementRequest> = requests.into_iter().map(|request| PlacementRequest { core: None, ..request }).collect();
        prop_assert!(place(&open, &cores(count), &Limits::default()).is_ok());
    }

    /// Alike tasks may change seats; nothing else depends on the order of the list.
    #[test]
    fn the_order_of_the_list_does_not_matter(
        requests in prop::collection::vec(any_request(), 1..7),
        count in 1u32..5,
        turn in 0usize..7,
    ) {
        let all = cores(count);
        let mut turned = requests.clone();
        turned.rotate_left(turn % requests.len());
        turned.swap(0, requests.len() - 1);
        let seen = |requests: &[PlacementRequest]| place(requests, &all, &Limits::default()).ok().map(|placement| {
            let key = |(request, seat): (&PlacementRequest, &Seat)| format!("{request:?} {seat:?}");
            let mut seats: Vec<String> = requests.iter().zip(&placement.seats).map(key).collect();
            seats.sort();
            (seats, placement.exclusive, placement.real_time, placement.rest, placement.overloaded.len())
        });
        // Of two tasks that contradict each other either may be named.
        prop_assert_eq!(seen(&requests), seen(&turned));
    }

    /// Real-time tasks are on one core if it holds them, and no core is overloaded, or fails to hold its tasks, that
    /// need not.
    #[test]
    fn no_core_is_overloaded_that_need_not_be(requests in prop::collection::vec(real_time(), 1..6), count in 2u32..5) {
        let tasks: Vec<Sporadic> = requests.iter().filter_map(sporadic).collect();
        let placement = place(&requests, &cores(count), &Limits::default()).expect("no task names a core");
        let most = count as usize - 1;
        let used = placement.real_time.len();
        prop_assert_eq!(used == 1 || !can_be(&tasks, 1, &|there| responses(there, None).is_ok()), true);
        if can_be(&tasks, most, &|there| utilisation(there) <= 1.0) {
            let above = placement.overloaded.iter().any(|(_, load)| *load > 1.0 + 1e-9);
            prop_assert!(!above, "{:?}", placement);
        }
        if can_be(&tasks, most, &|there| responses(there, None).is_ok()) {
            let bounded = placement.seats.iter().all(|seat| seat.chair().is_some_and(|chair| chair.response.is_some()));
            prop_assert!(bounded, "{:?}", placement);
            prop_assert!(
                used == 1 || !can_be(&tasks, used - 1, &|there| responses(there, None).is_ok()),
                "{used} cores"
            );
        }
    }

    /// Exclusive tasks take no more cores than they need, and none is refused that could be admitted with the others.
    #[test]
    fn exclusive_tasks_take_the_fewest_cores(requests in prop::collection::vec(real_time(), 1..6), count in 2u32..5) {
        let tasks: Vec<Sporadic> = requests.iter().filter_map(sporadic).collect();
        let ask = |request: PlacementRequest| PlacementRequest { class: Class::Exclusive { deadline: request.class.deadline().unwrap() }, ..request };
        let requests: Vec<PlacementRequest> = requests.into_iter().map(ask).collect();
        let placement = place(&requests, &cores(count), &Limits::default()).expect("no task names a core");
        let fewest = (1..count as usize).find(|cores| can_be(&tasks, *cores, &|there| responses(there, None).is_ok()));
        match fewest {
            Some(fewest) => prop_assert_eq!((placement.exclusive.len(), placement.refused.len()), (fewest, 0)),
            None => prop_assert!(!placement.refused.is_empty()),
        }
    }
}

#[test]
fn planted_faults_are_found() {
    let requests = [
        request(0, Some(20), 40, None),
        request(1, Some(20), 40, Some(1)),
        request(1, Some(10), 40, None),
        request(2, None, 40, None),
    ];
    let all = cores(4);
    let sound = place(&requests, &all, &Limits::default()).expect("sound");
    assert_eq!(faults(&requests, &all, &sound), Vec::<String>::new());
    let planted = |change: &dyn Fn(&mut Placement), expected: &str| {
        let mut placement = sound.clone();
        change(&mut placement);
        let found = faults(&requests, &all, &placement);
        assert!(found.iter().any(|fault| fault == expected), "{expected}: {found:?}");
    };
    planted(&|it| drop(it.seats.pop()), "every task has a seat");
    planted(&|it| it.seats[3] = Seat::BestEffort(vec![]), "every task has a core");
    planted(
        &|it| it.seats[3] = Seat::BestEffort(vec![CoreId(9)]),
        "every core is there",
    );
    planted(
        &|it| it.seats[3] = Seat::BestEffort(it.exclusive.clone()),
        "exclusive cores have exclusive tasks only",
    );
    planted(
        &|it| it.seats.swap(1, 3),
        "a task with a deadline is not among best-effort ones",
    );
    planted(
        &|it| it.seats[1] = it.seats[2].clone(),
        "a task is on the core that it names",
    );
    planted(
        &|it| it.seats[1] = it.seats[2].clone(),
        "no two tasks of a core have one rank",
    );
    planted(
        &|it| it.refused.push((0, Unfit::NoCore)),
        "a task that was not refused has what it asked for",
    );
}

#[test]
fn two_of_sixty_percent_take_two_cores_and_share_where_one_is_named() {
    let sixty = |core| request(0, Some(60), 100, core);
    let placed = |requests: &[PlacementRequest], count| place(requests, &cores(count), &Limits::default());
    let two = placed(&[sixty(None), sixty(None)], 4).expect("two cores");
    assert_eq!((two.exclusive, two.refused), (vec![CoreId(2), CoreId(3)], vec![]));
    let small = placed(&[sixty(None), sixty(None)], 2).expect("one core is left");
    assert_eq!(small.exclusive, [CoreId(1)]);
    assert_eq!(small.refused, [(1, Unfit::Utilisation)]);
    assert_eq!(
        placed(&[sixty(Some(2)), sixty(Some(2))], 4),
        Err(PlaceError::Crowded {
            task: 1,
            core: CoreId(2),
            why: Unfit::Utilisation
        })
    );
}

/// Of two tasks of unknown execution time and one core for them, the one with the shorter deadline gets it, wherever it
/// is in the list.
#[test]
fn unknown_tasks_compete_by_deadline_and_not_by_place() {
    let (short, long) = (request(0, None, 20, None), request(0, None, 21, None));
    for (requests, refused) in [([short, long], 1), ([long, short], 0)] {
        let placement = place(&requests, &cores(2), &Limits::default()).expect("no task names a core");
        assert_eq!(placement.refused, [(refused, Unfit::Unknown)]);
    }
}

#[test]
fn one_real_time_task_has_the_last_core_and_all_others_the_rest() {
    let requests = [request(2, None, 40, None), request(1, Some(20), 40, None)];
    for count in 2..9 {
        let placement = place(&requests, &cores(count), &Limits::default()).expect("sound");
        assert_eq!(placement.seats[1].cores(), [CoreId(count - 1)]);
        assert_eq!(placement.seats[0].cores(), cores(count - 1));
        assert_eq!(
            (placement.update_core(), placement.house()),
            (CoreId(count - 1), CoreId(0))
        );
    }
    let alone = place(&requests, &cores(1), &Limits::default()).expect("sound");
    assert_eq!((alone.rest, alone.real_time), (cores(1), cores(1)));
}

#[test]
fn contradictions_are_refused_with_a_remedy() {
    let exclusive = request(0, Some(20), 40, Some(3));
    let absent = request(1, Some(20), 40, Some(7));
    let taken = request(2, None, 40, Some(3));
    let only = request(0, Some(20), 40, Some(0));
    let unknown = request(0, None, 40, Some(3));
    let mut list = String::new();
    for (name, requests, count, task) in [
        ("a core that is absent", vec![absent], 4, Some(0)),
        (
            "a core that an exclusive task names",
            vec![exclusive, taken],
            4,
            Some(1),
        ),
        ("exclusive tasks on every core", vec![only], 1, Some(0)),
        ("an exclusive core without room", vec![exclusive, unknown], 4, Some(1)),
        ("no core", vec![], 0, None),
    ] {
        let error = place(&requests, &cores(count), &Limits::default()).unwrap_err();
        assert_eq!(error.task(), task, "{name}");
        list += &format!("{name}\n  => {error}\n");
    }
    let span = Nanos(8);
    for why in [
        Unfit::Zero { task: 0 },
        Unfit::Utilisation,
        Unfit::Response {
            task: 0,
            response: Nanos(9),
            deadline: span,
        },
        Unfit::Throttled {
            demand: Nanos(9),
            span: Nanos(10),
            runtime: span,
        },
        Unfit::Unknown,
        Unfit::NoCore,
        Unfit::OnlyCore,
        Unfit::NotGranted,
        Unfit::Undecided,
    ] {
        let name = format!("{why:?}");
        let name = name.split(' ').next().unwrap_or_default();
        list += &format!("{name}\n  => {why}\n");
    }
    insta::assert_snapshot!("placement", list);
}

#[test]
fn a_core_that_the_machine_does_not_grant_is_a_reported_refusal() {
    let requests = [request(0, Some(20), 40, Some(2)), request(0, Some(20), 40, None)];
    let limits = Limits {
        exclusive: Some(vec![CoreId(3)]),
        ..Limits::default()
    };
    let placement = place(&requests, &cores(4), &limits).expect("no contradiction");
    assert_eq!(placement.refused, [(0, Unfit::NotGranted)]);
    assert_eq!(placement.exclusive, [CoreId(3)]);
    assert_eq!(placement.seats[0].cores(), [CoreId(2)], "it is a real-time task there");
}

/// The order in which cores are taken is the caller's: isolated ones first, say.
#[test]
fn exclusive_tasks_get_the_cores_that_are_open_to_them_in_their_order() {
    let task = || request(0, Some(30), 50, None);
    let placed = |open: &[u32], tasks: usize, on: u32| {
        let limits = Limits {
            exclusive: Some(open.iter().copied().map(CoreId).collect()),
            ..Limits::default()
        };
        let tasks: Vec<PlacementRequest> = (0..tasks).map(|_| task()).collect();
        let placement = place(&tasks, &cores(on), &limits).unwrap();
        assert_eq!(faults(&tasks, &cores(on), &placement), Vec::<String>::new());
        let exclusive: Vec<u32> = placement.exclusive.iter().map(|core| core.0).collect();
        (exclusive, placement.refused.len())
    };
    assert_eq!(placed(&[1, 3, 2, 0], 1, 4), (vec![1], 0));
    assert_eq!(placed(&[1, 3, 2, 0], 2, 4), (vec![1, 3], 0));
    assert_eq!(
        placed(&[1, 3, 2, 0], 4, 4),
        (vec![1, 2, 3], 1),
        "core 0 stays with the rest"
    );
    assert_eq!(placed(&[0, 1], 2, 4), (vec![0, 1], 0), "cores 2 and 3 are left");
    assert_eq!(placed(&[2], 2, 4), (vec![2], 1));
    assert_eq!(placed(&[7], 1, 4), (vec![], 1));
}

#[test]
fn two_exclusive_tasks_on_cores_of_their_own_leave_the_others_to_the_rest() {
    let tasks = [
        request(0, Some(30), 50, Some(2)),
        request(0, Some(30), 50, Some(3)),
        request(1, Some(10), 50, None),
        request(2, None, 50, None),
    ];
    let placement = place(&tasks, &cores(4), &Limits::default()).unwrap();
    assert_eq!(faults(&tasks, &cores(4), &placement), Vec::<String>::new());
    let on: Vec<u32> = placement.seats.iter().map(|seat| seat.cores()[0].0).collect();
    assert_eq!(on, [2, 3, 1, 0]);
    assert_eq!(placement.exclusive, [CoreId(2), CoreId(3)]);
}

/// Limits with real-time tasks of another program: cores, execution times where known, and periods.
fn beside(tasks: &[(u32, Option<u64>, u64)]) -> Limits {
    let theirs = |(core, execution, period): &(u32, Option<u64>, u64)| {
        let task = execution.map(|execution| Sporadic {
            execution: Nanos(execution),
            deadline: Nanos(*period),
            period: Nanos(*period),
        });
        (CoreId(*core), task)
    };
    Limits {
        beside: tasks.iter().map(theirs).collect(),
        ..Limits::default()
    }
}

#[test]
fn a_core_with_tasks_of_another_program_is_left_to_it_while_there_is_another_one() {
    let tasks = [request(1, Some(20), 50, None), request(2, None, 50, None)];
    let on = |limits: &Limits, count| {
        let placement = place(&tasks, &cores(count), limits).unwrap();
        let on: Vec<Vec<u32>> = { placement.seats.iter() }
            .map(|seat| seat.cores().iter().map(|core| core.0).collect())
            .collect();
        (on, placement.rest.clone(), placement.update_core())
    };
    let expected = |real_time: u32, rest: Vec<u32>| {
        let rest_cores: Vec<CoreId> = rest.iter().copied().map(CoreId).collect();
        (vec![vec![real_time], rest], rest_cores, CoreId(real_time))
    };
    assert_eq!(on(&Limits::default(), 2), expected(1, vec![0]));
    assert_eq!(on(&beside(&[(1, Some(5), 50)]), 2), expected(0, vec![0]));
    assert_eq!(on(&beside(&[(3, Some(5), 50)]), 4), expected(2, vec![0, 1]));
    assert_eq!(on(&beside(&[(0, None, 50), (3, None, 50)]), 4), expected(2, vec![1]));
    // Exclusive cores are others, too; the one that is left stays with the rest.
    let exclusive = [request(0, Some(20), 50, None)];
    let placed = |count| {
        place(&exclusive, &cores(count), &beside(&[(1, Some(5), 50)]))
            .unwrap()
            .exclusive
    };
    assert_eq!((placed(2), placed(3)), (vec![], vec![CoreId(2)]));
}

#[test]
fn tasks_share_a_core_with_those_of_another_program_below_these_or_are_refused() {
    let task = |execution, core| [request(1, Some(execution), 50, core)];
    let both = |load| beside(&[(0, Some(load), 50), (1, Some(30), 100)]);
    // 20 + 30 of 50: the task is due last although the other's deadline is longer; core 0 has less room.
    let placement = place(&task(20, None), &cores(2), &both(40)).unwrap();
    let chair = placement.seats[0].chair().unwrap();
    assert_eq!(
        (chair.core, chair.rank, chair.response),
        (CoreId(1), 1, Some(Nanos(50)))
    );
    let refused = |requests: &[PlacementRequest], limits: &Limits| match place(requests, &cores(2), limits) {
        Err(PlaceError::Occupied { task, core, .. }) => Some((task, core.0)),
        _ => None,
    };
    assert_eq!(refused(&task(21, None), &both(40)), Some((0, 1)));
    assert_eq!(refused(&task(21, None), &both(20)), None, "core 0 has room");
    assert_eq!(
        refused(&task(21, Some(1)), &both(20)),
        Some((0, 1)),
        "but it is not the named one"
    );
    // Without their times there is nothing to refuse by.
    assert_eq!(refused(&task(21, Some(1)), &beside(&[(1, None, 50)])), None);
    let named = [request(0, Some(1), 50, Some(1))];
    assert_eq!(refused(&named, &both(1)), Some((0, 1)), "an exclusive task");
}
