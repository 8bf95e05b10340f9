//! The harness against closed forms and orderings, the fit against a machine that is known.

use std::sync::Mutex;

use punctual_sim::{Effort, MachineModel, costs};
use punctual_units::{Hertz, Nanos};
use punctual_workload::UpdateMode;

use super::targets::tests::example;
use super::*;

const JOB: Work = Work {
    compute_ms: 8.0,
    data_ms: 2.5,
};
const JOBS: u64 = 4;

fn base() -> MachineModel {
    MachineModel::exynos5422_a15()
}

fn bench() -> Bench {
    Bench::new(&example(), JOBS, 1)
}

fn condition(mhz: u64, interferers: u32, qod: f64) -> Condition {
    Condition {
        clock: Hertz::from_mhz(mhz),
        interferers,
        qod,
    }
}

fn busy(job: Work) -> Interferer {
    Interferer {
        work: Work::of(job.nominal_ms(), 0.9),
        pause_min: Nanos::ZERO,
        pause_max: Nanos::ZERO,
    }
}

fn measure(machine: &MachineModel, job: Work, condition: Condition) -> Response {
    bench().measure(machine, job, busy(job), condition).unwrap()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-3 * a.abs().max(b.abs())
}

#[test]
fn alone_and_without_updates_a_job_takes_what_it_was_given() {
    let response = measure(&base(), JOB, condition(2000, 0, 0.0));
    assert!(close(response.computation, 8.0 / 50.0), "{response:?}");
    assert!(close(response.data, 2.5 / 50.0), "{response:?}");
}

#[test]
fn what_follows_the_clock_doubles_at_half_the_clock_and_the_rest_stays() {
    // The working set fits: all hits, and a hit takes cycles.
    let slow = measure(&base(), JOB, condition(1000, 0, 0.0));
    assert!(close(slow.computation, 0.32) && close(slow.data, 0.1), "{slow:?}");

    let mut constant = base();
    constant.cache.size_kib = 0.0;
    constant.cache.hit_cycles = 0.0;
    constant.memory.service_cycles = 0.0;
    for effort in [&mut constant.store.read_txn, &mut constant.store.get] {
        *effort = Effort::new(0.0, effort.accesses);
    }
    let slow = measure(&constant, JOB, condition(1000, 0, 0.0));
    assert!(close(slow.computation, 0.32) && close(slow.data, 0.05), "{slow:?}");
}

#[test]
fn gets_are_counted_so_that_the_data_time_is_met() {
    let machine = base();
    let get = costs(&machine, UpdateMode::Transaction).unwrap().get_ns;
    // Enough of them that the first jobs warm the cache.
    for data_ms in [2.5, 3.0, 3.9] {
        let response = measure(&machine, Work { data_ms, ..JOB }, condition(2000, 0, 0.0));
        assert!((response.data * 50.0 - data_ms).abs() <= get * 1e-6, "{response:?}");
    }
}

#[test]
fn a_job_that_does_not_fit_is_never_done() {
    let long = Work {
        compute_ms: 250.0,
        data_ms: 1.0,
    };
    assert_eq!(measure(&base(), long, condition(2000, 0, 1.0)), Response::NEVER);
    assert_eq!(Response::NEVER.drr(), 0.0);
}

#[test]
fn a_condition_that_does_not_fit_the_machine_is_refused() {
    let refused = |condition| {
        bench()
            .measure(&base(), JOB, busy(JOB), condition)
            .unwrap_err()
            .to_string()
    };
    let name = base().name;
    assert_eq!(
        refused(condition(1050, 0, 1.0)),
        format!("{name}: has no clock step at 1050 MHz; add it to the machine, or change the figure's clock-mhz")
    );
    assert_eq!(
        refused(condition(2000, 4, 1.0)),
        format!("{name}: 4 interfering cores and the real-time core do not fit on 4 cores")
    );
}

/// On the machines that the search starts from; not on every machine of the box: where updates keep the job's working set
/// in the cache, whatever else changes moves that, too.
#[test]
fn more_interferers_and_slower_clocks_never_help() {
    for member in ensemble() {
        let Candidate { machine, job } = member.starts()[0].candidate(&base());
        let mhz = |step: usize| machine.steps[step].clock.0 / 1_000_000;
        let data = |step, cores| measure(&machine, job, condition(mhz(step), cores, 0.5)).data;
        for (step, cores) in [(18, 0), (18, 1), (18, 2), (12, 0), (12, 2), (9, 1)] {
            let here = data(step, cores);
            // One report more or less may fall into a job by the shift of its end, and the jobs are few: 2 %.
            let (more, slower) = (data(step, cores + 1), data(step - 1, cores));
            assert!(
                more >= here * 0.98,
                "step {step}, {cores} cores: {here}, with one more {more}"
            );
            assert!(
                slower >= here * 0.98,
                "step {step}, {cores} cores: {here}, a step slower {slower}"
            );
        }
    }
}

#[test]
fn more_updates_take_more_of_the_job() {
    // Not so on every machine: where a job reads little, updates keep its working set in the cache.
    let Candidate { machine, job } = ensemble()[0].starts()[0].candidate(&base());
    let many = Targets {
        sensors: 1024,
        ..example()
    };
    let bench = Bench::new(&many, JOBS, 1);
    let under = |qod| {
        bench
            .measure(&machine, job, busy(job), condition(1000, 3, qod))
            .unwrap()
    };
    let data = [0.0, 0.25, 0.5, 1.0].map(|qod| under(qod).data);
    assert!(data.is_sorted() && data[0] < 0.9 * data[3], "{data:?}");
}

/// The figures that this machine gives.
fn figures_of(candidate: &Candidate) -> Targets {
    let mut targets = example();
    let conditions = [
        (2000, 0, 1.0),
        (2000, 3, 1.0),
        (1000, 0, 1.0),
        (1000, 3, 1.0),
        (1000, 3, 0.5),
    ];
    let model = targets.figures[0].clone();
    targets.figures = conditions
        .into_iter()
        .flat_map(|(clock_mhz, interferers, qod)| {
            [Quantity::Data, Quantity::Response].map(|quantity| Target {
                id: format!("{quantity:?}-{clock_mhz}-{interferers}-{qod}"),
                quantity,
                clock_mhz,
                interferers,
                qod,
                ..model.clone()
            })
        })
        .collect();
    let bench = bench();
    let task = Task {
        targets: &targets,
        bench: &bench,
        base: &base(),
        evaluations_max: 0,
    };
    let figures = task.figures(candidate).unwrap();
    for (target, figure) in targets.figures.iter_mut().zip(figures) {
        target.value = figure.ours;
    }
    targets
}

#[test]
fn a_machine_that_is_known_is_fitted() {
    let truth = Point::middle()
        .with(Parameter::Compute, 8.0)
        .with(Parameter::Data, 1.5)
        .with(Parameter::CachedShare, 0.4)
        .with(Parameter::Update, 60.0);
    let targets = figures_of(&truth.candidate(&base()));
    let bench = bench();
    let task = Task {
        targets: &targets,
        bench: &bench,
        base: &base(),
        evaluations_max: 250,
    };
    let member = Member {
        name: "known",
        about: "",
        question: Question::Service,
        pinned: Parameter::ALL.into_iter().skip(3).map(|p| (p, truth.get(p))).collect(),
    };
    let told = Mutex::new(Vec::new());
    let mut tell = |evaluations, rms| told.lock().unwrap().push((evaluations, rms));
    let fit = task.fit(&member, &mut tell).unwrap();
    assert!(fit.rms < 0.01, "{fit:?}");
    assert!(fit.evaluations <= 250);
    assert!((fit.candidate.job.compute_ms - 8.0).abs() < 0.2, "{fit:?}");
    let told = told.into_inner().unwrap();
    assert!(
        told.windows(2)
            .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 >= pair[1].1),
        "{told:?}"
    );
}

#[test]
fn the_same_plan_gives_the_same_bytes_on_any_number_of_threads() {
    let plan = |threads| Plan {
        targets: example(),
        base: base(),
        members: ensemble().split_off(4),
        seed: 3,
        jobs: 2,
        evaluations_max: 12,
        threads,
    };
    let bytes = |threads| serde_json::to_vec(&calibrate(&plan(threads), &|_| {}).unwrap()).unwrap();
    let once = bytes(1);
    assert_eq!(once, bytes(3));
    let other = Plan { seed: 4, ..plan(1) };
    assert_ne!(once, serde_json::to_vec(&calibrate(&other, &|_| {}).unwrap()).unwrap());
}

#[test]
fn where_nothing_is_shared_nothing_interferes() {
    let mut machine = base();
    for effort in [
        &mut machine.store.read_txn,
        &mut machine.store.get,
        &mut machine.store.write_begin,
        &mut machine.store.put,
        &mut machine.store.commit,
    ] {
        *effort = Effort::new(effort.cycles + 500.0, 0.0);
    }
    let candidate = Candidate { machine, job: JOB };
    let predictions = predictions(&bench(), &candidate).unwrap();
    let alone = predictions[0].clock_mhz.unwrap();
    assert!((alone - 900.0).abs() < 20.0, "{predictions:?}");
    for prediction in predictions.iter().filter(|prediction| prediction.situation.qod == 1.0) {
        assert_eq!(prediction.rise, Some(0.0), "{predictions:?}");
    }
}

#[test]
fn members_pin_what_they_say_and_have_names_of_their_own() {
    let members = ensemble();
    assert!(members.len() >= 4);
    for (i, member) in members.iter().enumerate() {
        assert!(members[..i].iter().all(|other| other.name != member.name));
        assert!(!member.pinned.is_empty());
        for start in member.starts() {
            for (parameter, value) in &member.pinned {
                assert_eq!(
                    start.get(*parameter),
                    *value,
                    "{}: {parameter:?} is out of its range",
                    member.name
                );
            }
        }
        assert_eq!(member.free().len() + member.pinned.len(), Parameter::ALL.len());
    }
    for question in Question::ALL {
        let answers = members.iter().filter(|member| member.question == question).count();
        assert!(answers == 0 || answers == 2, "{question:?}");
    }
}
