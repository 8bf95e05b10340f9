//! Jobs with I/O on cores: identities, and what no schedule may do.

use proptest::prelude::*;
use punctual_cores::{Completion, LendingCosts, Sporadic};
use punctual_evaluation::dual::{
    DualError, DualMachine, DualReport, Exclusive, Management, Sharing, computes, simulate,
};
use punctual_evaluation::edf::first_fit;
use punctual_machine::media::{Disk, MediaDevice, Medium};
use punctual_sim::{Access, Jobs, PageRequest, Release, Step, Task};
use punctual_units::{CoreId, Nanos, Time};
use punctual_workload::{Active, Arrival, JobOutcome};

fn machine(cores: u32, exclusive: &[u32], switch_us: f64) -> DualMachine {
    DualMachine {
        name: "test".into(),
        cores,
        exclusive: exclusive.iter().copied().map(CoreId).collect(),
        quantum_us: 1000.0,
        switch_us,
        cache_step_pages: 1,
    }
}

/// A device of which every request takes so many microseconds.
fn disk(us: f64) -> MediaDevice {
    let disk = Disk {
        read_us: us,
        write_us: us,
    };
    MediaDevice::new(&Medium::Disk(disk), 4096, 1)
}

fn us(us: u64) -> Nanos {
    Nanos::from_micros(us)
}

fn compute(micros: u64) -> Step {
    punctual_evaluation::dual::compute(us(micros))
}

fn read(device: usize) -> Step {
    Step::Io {
        device,
        request: PageRequest {
            access: Access::Read,
            page: 0,
            pages: 1,
        },
    }
}

fn task(name: &str, deadline: Option<Nanos>, release: Release, jobs: Jobs) -> Task {
    Task {
        name: name.into(),
        deadline,
        release,
        active: Active::ALWAYS,
        core: None,
        jobs,
        program: None,
        backlog_max: 0,
    }
}

fn periodic(period: u64, jobs: Vec<Vec<Step>>) -> Task {
    first_at(0, period, jobs)
}

fn first_at(first: u64, period: u64, jobs: Vec<Vec<Step>>) -> Task {
    let (first, period) = (Time::ZERO + us(first), us(period));
    task(
        "player",
        Some(period),
        Release::Paced { first, period },
        Jobs::Once(jobs),
    )
}

fn forever(steps: Vec<Step>) -> Task {
    let (pause_min, pause_max) = (Nanos::ZERO, Nanos::ZERO);
    let release = Release::Arrival(Arrival::AfterCompletion { pause_min, pause_max });
    task("browser", None, release, Jobs::Cycled(vec![steps]))
}

/// In the ready queue, or being switched to.
fn waited(job: &JobOutcome) -> Nanos {
    job.split.released_late + job.split.preempted
}

fn shared(sharing: Sharing) -> Management {
    Management::Shared(sharing)
}

fn polling(places: &[u32], devices: usize, switch: Nanos) -> Management {
    Management::Dual(Exclusive {
        places: places.iter().copied().map(CoreId).collect(),
        waits: vec![Completion::Poll; devices],
        costs: LendingCosts {
            hand_over: switch,
            take_back: switch,
        },
        slack: Nanos::ZERO,
        wait: Nanos::ZERO,
    })
}

fn run(machine: &DualMachine, management: &Management, tasks: &[Task], devices: Vec<MediaDevice>) -> DualReport {
    simulate(machine, management, tasks, devices, Time(2_000_000_000)).unwrap()
}

#[test]
fn a_blocking_job_waits_for_the_end_of_the_quantum() {
    // One I/O of 100 us between two computations, beside a hog on each of two cores, no cost of switching.
    let tasks = [
        periodic(20_000, vec![vec![compute(2_000), read(0), compute(1_000)]]),
        forever(vec![compute(1_000_000)]),
        forever(vec![compute(1_000_000)]),
    ];
    let response = |sharing| {
        let report = run(&machine(2, &[1], 0.0), &shared(sharing), &tasks, vec![disk(100.0)]);
        assert_eq!(report.jobs.len(), 1);
        (report.jobs[0].response(), waited(&report.jobs[0]))
    };
    // Its I/O ends within the quantum of the hog that took over: it waits for the rest, or for the other core's.
    let (quantum, waited) = response(Sharing::Quantum);
    assert!(waited > Nanos::ZERO && waited <= us(900), "{waited}");
    assert_eq!(quantum, us(3_100) + waited);
    assert_eq!(response(Sharing::Fifo), (us(3_100), Nanos::ZERO));
    assert_eq!(response(Sharing::QuantumAfter(us(200))), (us(3_300), us(200)));
}

#[test]
fn switches_are_paid_by_the_job_that_is_switched_to() {
    let tasks = [periodic(20_000, vec![vec![compute(1_000), read(0), compute(1_000)]])];
    let report = run(
        &machine(2, &[1], 15.0),
        &shared(Sharing::Quantum),
        &tasks,
        vec![disk(100.0)],
    );
    assert_eq!(report.jobs[0].response(), us(15 + 1_000 + 100 + 15 + 1_000));
    let polled = run(
        &machine(2, &[1], 15.0),
        &polling(&[1], 1, us(15)),
        &tasks,
        vec![disk(100.0)],
    );
    assert_eq!(polled.jobs[0].response(), us(15 + 1_000 + 100 + 1_000));
    assert_eq!(polled.cores[1].polling, us(100));
}

#[test]
fn a_late_job_is_followed_at_once_and_judged_from_its_own_begin() {
    let tasks = [periodic(
        1_000,
        vec![vec![compute(1_500)], vec![compute(400)], vec![compute(400)]],
    )];
    let report = run(&machine(2, &[1], 0.0), &shared(Sharing::Fifo), &tasks, Vec::new());
    let begun: Vec<Time> = report.jobs.iter().map(|job| job.released).collect();
    assert_eq!(begun, [Time(0), Time(1_500_000), Time(2_500_000)]);
    let missed: Vec<bool> = report.jobs.iter().map(|job| job.overrun().is_some()).collect();
    assert_eq!(missed, [true, false, false]);
}

#[test]
fn an_exclusive_core_is_lent_between_jobs_and_is_back_in_time() {
    let jobs = vec![vec![compute(4_000)]; 10];
    let tasks = [
        periodic(10_000, jobs),
        forever(vec![compute(1_000_000)]),
        forever(vec![compute(1_000_000)]),
    ];
    let report = run(&machine(2, &[1], 15.0), &polling(&[1], 0, us(15)), &tasks, Vec::new());
    // The first is switched to; the others find their core switched back.
    let responses: Vec<Nanos> = report.jobs.iter().map(|job| job.response()).collect();
    assert_eq!(responses[0], us(4_015));
    assert!(
        responses[1..].iter().all(|response| *response == us(4_000)),
        "{responses:?}"
    );
    assert_eq!(idle(&report, 1), Nanos::ZERO, "it was lent, or being taken back");
    assert_eq!(fault(&report, &tasks), None);
    let kept = run(
        &machine(2, &[1], 15.0),
        &polling(&[1], 0, us(8_000)),
        &tasks,
        Vec::new(),
    );
    assert!(
        idle(&kept, 1) > us(9 * 5_000),
        "a core that takes long to take back is not lent"
    );
}

#[test]
fn a_core_is_switched_once_between_a_lease_and_the_job_after_it() {
    // One hog for each core: no other task takes the exclusive one within a lease.
    let tasks = [
        periodic(10_000, vec![vec![compute(4_000)]; 10]),
        forever(vec![compute(1_000_000)]),
        forever(vec![compute(1_000_000)]),
    ];
    let long = us(40);
    let report = run(&machine(2, &[1], 15.0), &polling(&[1], 0, long), &tasks, Vec::new());
    let jobs: Nanos = report.jobs.iter().map(waited).sum();
    assert_eq!(jobs, us(15), "switching to the first one");
    // Each of nine leases: to the hog and back; and the first job's.
    assert_eq!(report.cores[1].switching, us(15) + (us(15) + long) * 9);
}

#[test]
fn a_wait_that_is_set_holds_up_only_a_job_that_finds_its_core_lent() {
    let tasks = [
        periodic(10_000, vec![vec![compute(1_000), read(0), compute(1_000)]; 10]),
        forever(vec![compute(1_000_000)]),
        forever(vec![compute(1_000_000)]),
    ];
    let waits = |way: Completion| {
        let Management::Dual(mut decided) = polling(&[1], 1, us(15)) else {
            unreachable!()
        };
        (decided.waits[0], decided.slack, decided.wait) = (way, us(1_000), us(200));
        let management = Management::Dual(decided);
        let report = run(&machine(2, &[1], 15.0), &management, &tasks, vec![disk(500.0)]);
        assert_eq!(fault(&report, &tasks), None);
        // Each switch to the job is part of its wait.
        report.jobs.iter().map(waited).collect::<Vec<_>>()
    };
    let mut polled = vec![Nanos::ZERO; 10];
    polled[0] = us(15);
    assert_eq!(waits(Completion::Poll), polled, "taken back in time, but for the first");
    let mut blocked = vec![us(200 + 15); 10];
    blocked[0] = us(200 + 2 * 15);
    assert_eq!(waits(Completion::Block), blocked, "lent while it was blocked");
}

#[test]
fn a_job_that_spins_and_then_blocks_keeps_its_core_for_the_short_ones() {
    let tasks = [
        periodic(20_000, vec![vec![read(0), compute(100), read(1), compute(100)]]),
        forever(vec![compute(1_000_000)]),
        forever(vec![compute(1_000_000)]),
    ];
    let management = Management::Dual(Exclusive {
        places: vec![CoreId(1)],
        waits: vec![Completion::SpinThenBlock(us(50)), Completion::SpinThenBlock(us(50))],
        costs: LendingCosts::default(),
        slack: us(1_000),
        wait: Nanos::ZERO,
    });
    let report = run(
        &machine(2, &[1], 0.0),
        &management,
        &tasks,
        vec![disk(40.0), disk(5_000.0)],
    );
    assert_eq!(report.cores[1].polling, us(40 + 50));
    assert_eq!(
        report.jobs[0].response(),
        us(40 + 100 + 5_000 + 100),
        "it takes its core back at once"
    );
    assert!(report.cores[1].working > us(4_900), "lent meanwhile");
}

#[test]
fn what_cannot_be_simulated_is_refused() {
    let machine = machine(2, &[1], 0.0);
    let refused =
        |management: &Management, task: Task| simulate(&machine, management, &[task], Vec::new(), Time(1)).unwrap_err();
    let fifo = shared(Sharing::Fifo);
    assert!(matches!(
        refused(&fifo, periodic(1, vec![vec![read(0)]])),
        DualError::Device {
            device: 0,
            devices: 0,
            ..
        }
    ));
    assert!(matches!(
        refused(&fifo, periodic(0, Vec::new())),
        DualError::Timeless(_)
    ));
    assert!(matches!(
        refused(&fifo, forever(vec![compute(0)])),
        DualError::Timeless(_)
    ));
    let elsewhere = polling(&[0], 0, Nanos::ZERO);
    assert!(matches!(
        refused(&elsewhere, periodic(1, Vec::new())),
        DualError::Decisions { tasks: 1, devices: 0 }
    ));
    let mut broken = machine.clone();
    broken.exclusive = vec![CoreId(9)];
    let error = simulate(&broken, &fifo, &[], Vec::new(), Time(1)).unwrap_err();
    assert!(matches!(error, DualError::Machine(_)), "{error}");
}

/// A job of a few steps; I/O goes to its own device.
fn job(device: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![(0u64..700).prop_map(compute), Just(read(device))];
    prop::collection::vec(step, 1..6)
}

fn tasks() -> impl Strategy<Value = Vec<Task>> {
    let player = |device| {
        (2_000u64..9_000, prop::collection::vec(job(device), 1..8)).prop_map(|(period, jobs)| periodic(period, jobs))
    };
    let browser = job(2).prop_map(|mut steps| {
        steps.push(compute(300));
        forever(steps)
    });
    (player(0), player(1), prop::collection::vec(browser, 0..4)).prop_map(|(a, b, mut others)| {
        others.extend([a, b]);
        others
    })
}

fn devices(us: f64) -> Vec<MediaDevice> {
    vec![disk(us), disk(3.0 * us), disk(2.0 * us)]
}

fn managements() -> Vec<Management> {
    let mut all: Vec<Management> = [
        Sharing::Quantum,
        Sharing::QuantumAfter(us(200)),
        Sharing::Fair,
        Sharing::Fifo,
    ]
    .into_iter()
    .map(shared)
    .collect();
    all.push(polling(&[1, 1], 3, us(15)));
    let Management::Dual(mut decided) = polling(&[1, 1], 3, us(15)) else {
        return all;
    };
    decided.waits = vec![Completion::Block, Completion::SpinThenBlock(us(40)), Completion::Block];
    decided.slack = us(100);
    all.push(Management::Dual(decided.clone()));
    decided.wait = us(200);
    all.push(Management::Dual(decided));
    all
}

/// What every report must say; words for what does not.
fn fault(report: &DualReport, tasks: &[Task]) -> Option<String> {
    let expected: usize = tasks.iter().filter_map(|task| task.jobs.count()).sum();
    if (report.unfinished, report.jobs.len()) != (0, expected) {
        return Some(format!("{} of {expected} jobs ended", report.jobs.len()));
    }
    if report.io_begun != report.io_ended + report.io_pending {
        return Some(format!(
            "{} requests, {} ended, {} pending",
            report.io_begun, report.io_ended, report.io_pending
        ));
    }
    if report.idle_while_ready > Nanos::ZERO {
        return Some(format!(
            "a core idled for {} while a job waited",
            report.idle_while_ready
        ));
    }
    let length = report.ended.since(Time::ZERO);
    if let Some(core) = report.cores.iter().find(|core| core.busy() > length) {
        return Some(format!("a core was busy for {} of {length}", core.busy()));
    }
    let computing: Nanos = report.cores.iter().map(|core| core.working).sum();
    let computed: Nanos = report.computed.iter().copied().sum();
    if computing != computed {
        return Some(format!("cores computed {computing}, tasks {computed}"));
    }
    for job in &report.jobs {
        let steps = &tasks[job.task.index()].jobs.lists()[job.job as usize];
        if job.split.computation != declared(steps) {
            return Some(format!("{job:?} has {} to compute", declared(steps)));
        }
        if job.response() != job.split.response() {
            return Some(format!("{job:?} did nothing for a part of its {}", job.response()));
        }
    }
    let requests = |job: &JobOutcome| requests(&tasks[job.task.index()].jobs.lists()[job.job as usize]);
    let least: usize = report.jobs.iter().map(requests).sum();
    if report.io_ended < least as u64 {
        return Some(format!("{} requests ended, ended jobs have {least}", report.io_ended));
    }
    (0..tasks.len()).find_map(|id| computed_fault(report, tasks, id))
}

/// What a task computed is what its ended jobs declare, and of the job that is under way no more than the whole.
fn computed_fault(report: &DualReport, tasks: &[Task], id: usize) -> Option<String> {
    let (task, computed) = (&tasks[id], report.computed[id]);
    let ended = match task.deadline {
        None => report.interactive_jobs[id],
        Some(_) => report.jobs.iter().filter(|job| job.task.index() == id).count() as u64,
    };
    let jobs = || task.jobs.lists().iter().map(|steps| declared(steps)).cycle();
    let least: Nanos = jobs().take(ended as usize).sum();
    let under_way = match task.deadline {
        None => jobs().nth(ended as usize).unwrap_or_default(),
        Some(_) => Nanos::ZERO,
    };
    let sound = (least..=least + under_way).contains(&computed);
    (!sound).then(|| format!("task {id} computed {computed} in {ended} jobs of {least}, and {under_way} under way"))
}

fn requests(steps: &[Step]) -> usize {
    steps.iter().filter(|step| computes(step).is_none()).count()
}

fn declared(steps: &[Step]) -> Nanos {
    steps.iter().filter_map(computes).sum()
}

fn idle(report: &DualReport, core: usize) -> Nanos {
    report.ended.since(Time::ZERO) - report.cores[core].busy()
}

proptest! {
    #[test]
    fn every_job_and_every_io_ends_and_no_core_idles_beside_work(
        tasks in tasks(),
        io in 1.0..400.0f64,
        exclusive in any::<bool>(),
        switch in 0u32..40,
    ) {
        let machine = machine(if exclusive { 3 } else { 2 }, &[1], f64::from(switch));
        for management in managements() {
            let report = run(&machine, &management, &tasks, devices(io));
            if let Some(fault) = fault(&report, &tasks) {
                prop_assert!(false, "{management:?}: {fault}");
            }
            let again = run(&machine, &management, &tasks, devices(io));
            prop_assert_eq!(report, again, "the same bytes");
        }
    }

    /// The identity of dual management: what admission accepts, with polling and switches charged, misses nothing,
    /// whatever else runs.
    #[test]
    fn admitted_tasks_miss_nothing_on_their_polling_cores(
        shapes in prop::collection::vec((1_500u64..9_000, 1u64..900, 0usize..4, 0u64..3_000), 1..5),
        hogs in 0usize..4,
        io in 1u32..300,
    ) {
        let (io, switch) = (u64::from(io), 15);
        let mut tasks = Vec::new();
        let mut demands = Vec::new();
        for (device, (period, chunk, reads, first)) in shapes.iter().enumerate() {
            let mut steps = vec![compute(*chunk)];
            for _ in 0..*reads {
                steps.extend([read(device), compute(*chunk)]);
            }
            let task = first_at(*first, *period, vec![steps; 12]);
            let polls = *reads as u64 * io;
            // A core switches to a job once, and back to the job that it preempted.
            let execution = us((*reads as u64 + 1) * chunk + polls + 2 * switch);
            demands.push(Sporadic { execution, deadline: us(*period), period: us(*period) });
            tasks.push(task);
        }
        let devices = || vec![disk(io as f64); shapes.len()];
        if let Some(places) = first_fit(&demands, &[CoreId(1), CoreId(2)]) {
            let places: Vec<u32> = places.iter().map(|core| core.0).collect();
            tasks.extend((0..hogs).map(|_| forever(vec![compute(700)])));
            let management = polling(&places, shapes.len(), us(switch));
            let report = run(&machine(4, &[1, 2], switch as f64), &management, &tasks, devices());
            prop_assert_eq!(report.unfinished, 0);
            let late = report.jobs.iter().find(|job| job.overrun().is_some());
            prop_assert!(late.is_none(), "{late:?}");
        }
    }
}

#[test]
fn the_checker_sees_planted_faults() {
    let tasks = [
        periodic(5_000, vec![vec![compute(100), read(0)]; 3]),
        forever(vec![compute(500)]),
    ];
    let good = run(
        &machine(2, &[1], 15.0),
        &shared(Sharing::Quantum),
        &tasks,
        vec![disk(50.0)],
    );
    assert_eq!(fault(&good, &tasks), None);
    let planted = |change: &dyn Fn(&mut DualReport)| {
        let mut bad = good.clone();
        change(&mut bad);
        fault(&bad, &tasks).is_some()
    };
    assert!(planted(&|report| report.jobs.truncate(1)));
    assert!(planted(&|report| report.io_ended -= 1));
    assert!(planted(&|report| report.idle_while_ready = Nanos(1)));
    assert!(planted(
        &|report| report.cores[0].switching += report.ended.since(Time::ZERO)
    ));
    assert!(planted(&|report| report.computed[0] += Nanos(1)));
    assert!(planted(&|report| report.jobs[0].split.preempted += us(5_000)));
    assert!(planted(&|report| report.jobs[0].split.data += Nanos(1)));
    assert!(planted(
        &|report| (report.io_begun, report.io_ended) = (report.io_begun - 2, report.io_ended - 2)
    ));
    // A step that is done twice, consistently on its core and in its job.
    assert!(planted(&|report| {
        report.cores[0].working += us(100);
        report.computed[0] += us(100);
        report.jobs[0].split.computation += us(100);
        report.jobs[0].finished = report.jobs[0].finished + us(100);
    }));
    // The same of an interactive job, in the place of other work: an ended job is not counted.
    assert!(planted(&|report| report.interactive_jobs[1] -= 1));
}

#[test]
fn a_job_that_ends_with_a_request_is_told_though_nothing_follows() {
    let tasks = [periodic(20_000, vec![vec![compute(300), read(0)]])];
    for sharing in [Sharing::Quantum, Sharing::Fair, Sharing::Fifo] {
        let report = run(&machine(2, &[1], 0.0), &shared(sharing), &tasks, vec![disk(1.0)]);
        assert_eq!(fault(&report, &tasks), None);
        assert_eq!(report.ended, Time::ZERO + us(301), "told when it ends");
    }
}

#[test]
fn a_slice_whose_job_blocks_at_once_leaves_its_core_idle() {
    // Where a switch costs nothing, the player has a core and blocks at one instant; nothing else is ready until its
    // request ends.
    let tasks = [periodic(20_000, vec![vec![read(0), compute(100)]])];
    for sharing in [Sharing::Quantum, Sharing::Fair, Sharing::Fifo] {
        let report = run(&machine(2, &[1], 0.0), &shared(sharing), &tasks, vec![disk(5_000.0)]);
        assert_eq!(fault(&report, &tasks), None);
        assert_eq!(
            report.jobs[0].response(),
            us(5_100),
            "its request takes longer than a quantum"
        );
    }
}

#[test]
fn a_step_that_ends_as_a_job_wakes_is_done_once() {
    // Both hogs are at the end of their only step as the player, which ran less, wakes and takes a core.
    let player = first_at(10_000, 20_000, vec![vec![compute(500)]; 3]);
    let tasks = [player, forever(vec![compute(10_000)]), forever(vec![compute(10_000)])];
    let report = run(&machine(2, &[1], 0.0), &shared(Sharing::Fair), &tasks, Vec::new());
    assert_eq!(fault(&report, &tasks), None);
    assert_eq!(
        report.jobs[0].response(),
        us(500),
        "it ran 3 ms less than they: it preempts"
    );
}

#[test]
fn a_spin_ends_when_it_was_to_end_whichever_job_came_in_between() {
    // The slow one polls for at most 50 us of 5 ms; 20 us after it began to poll, the quick one takes the core for 10
    // us, and later for 400 us.
    let slow = periodic(20_000, vec![vec![compute(100), read(0), compute(100)]]);
    let spun = |quick: u64| {
        let other = first_at(120, 2_000, vec![vec![compute(quick)]]);
        let management = Management::Dual(Exclusive {
            places: vec![CoreId(1); 2],
            waits: vec![Completion::SpinThenBlock(us(50))],
            costs: LendingCosts::default(),
            slack: us(1_000),
            wait: Nanos::ZERO,
        });
        let tasks = [slow.clone(), other, forever(vec![compute(1_000_000)])];
        let report = run(&machine(2, &[1], 0.0), &management, &tasks, vec![disk(5_000.0)]);
        assert_eq!(fault(&report, &tasks), None);
        report.cores[1].polling
    };
    assert_eq!(spun(10), us(20 + 20), "it is back before its spin is over");
    assert_eq!(spun(400), us(20), "it is back after that, and blocks at once");
}

#[test]
fn an_overload_is_seen_to_miss() {
    // The planted fault of the identity: tasks that admission refuses do miss.
    let demand = Sporadic {
        execution: us(3_000),
        deadline: us(5_000),
        period: us(5_000),
    };
    assert!(first_fit(&[demand, demand], &[CoreId(1)]).is_none());
    let tasks = [
        periodic(5_000, vec![vec![compute(3_000)]; 5]),
        periodic(5_000, vec![vec![compute(3_000)]; 5]),
    ];
    let report = run(
        &machine(2, &[1], 0.0),
        &polling(&[1, 1], 0, Nanos::ZERO),
        &tasks,
        Vec::new(),
    );
    assert!(report.jobs.iter().any(|job| job.overrun().is_some()));
}

#[test]
fn a_core_that_is_nearly_full_misses_nothing() {
    // 0.97 of the core with switches charged, beside hogs that it is lent to.
    let demand = |execution: u64, period: u64| Sporadic {
        execution: us(execution),
        deadline: us(period),
        period: us(period),
    };
    assert!(first_fit(&[demand(2_030, 5_000), demand(5_630, 10_000)], &[CoreId(1)]).is_some());
    let tasks = [
        periodic(5_000, vec![vec![compute(1_000), read(0), compute(900)]; 40]),
        periodic(10_000, vec![vec![compute(5_000), read(1), compute(500)]; 20]),
        forever(vec![compute(400)]),
        forever(vec![compute(400)]),
    ];
    let report = run(
        &machine(2, &[1], 15.0),
        &polling(&[1, 1], 2, us(15)),
        &tasks,
        vec![disk(100.0), disk(100.0)],
    );
    assert_eq!((report.unfinished, report.jobs.len()), (0, 60));
    assert!(report.jobs.iter().all(|job| job.overrun().is_none()));
}
