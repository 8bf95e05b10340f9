//! Requests to devices: a job goes on once its request is complete.

use punctual_sim::{
    Access, Device, Dispatch, Jobs, MachineModel, PageRequest, Release, Simulation, SimulationEvent, Step, Task,
    TaskWorkload,
};
use punctual_units::{Nanos, Time};
use punctual_workload::{Active, Op};

/// Time of each request.
const SERVICE: Nanos = Nanos::from_micros(700);

/// A device that serves one request at a time.
#[derive(Clone, Debug, Default)]
struct Slow {
    free_at: Time,
    requests: u64,
}

impl Device for Slow {
    fn submit(&mut self, _: PageRequest, now: Time) -> Time {
        self.requests += 1;
        self.free_at = self.free_at.max(now) + SERVICE;
        self.free_at
    }

    fn boxed(&self) -> Box<dyn Device> {
        Box::new(self.clone())
    }
}

/// A machine on which this many tasks send two requests a job to one device, with 100 us to compute between them.
fn machine(tasks: usize) -> Simulation {
    let read = Step::Io {
        device: 0,
        request: PageRequest {
            access: Access::Read,
            page: 0,
            pages: 1,
        },
    };
    let compute = Step::Op(Op::Compute { cycles: 100_000 });
    let task = |number: usize| Task {
        name: format!("reader {number}"),
        deadline: Some(Nanos::from_millis(10)),
        release: Release::Paced {
            first: Time::ZERO,
            period: Nanos::from_millis(10),
        },
        active: Active::ALWAYS,
        core: Some(number),
        jobs: Jobs::Alike(vec![read, compute, read]),
        program: None,
        backlog_max: 0,
    };
    let work = TaskWorkload {
        tasks: (0..tasks).map(task).collect(),
        scheduling: Dispatch::EarliestDeadline,
        split: None,
        rule: None,
        waits: Vec::new(),
        devices: vec![Box::new(Slow::default())],
        seed: 1,
    };
    Simulation::of(MachineModel::bare("test", 2), work).unwrap()
}

/// Response times of the jobs that end by `end`.
fn responses(machine: &mut Simulation, end: Nanos) -> Vec<Nanos> {
    let events = std::iter::from_fn(|| match machine.run_until(Time::ZERO + end) {
        SimulationEvent::Reached => None,
        event => Some(event),
    });
    let response = |event| match event {
        SimulationEvent::Completed(outcome) => Some(outcome.response()),
        _ => None,
    };
    events.filter_map(response).collect()
}

#[test]
fn a_job_waits_for_its_requests_and_behind_those_of_others() {
    let us = Nanos::from_micros;
    assert_eq!(responses(&mut machine(1), Nanos::from_millis(9)), [us(1_500)]);
    // The device never rests: requests end after 700, 1400, 2100 and 2800 us.
    assert_eq!(
        responses(&mut machine(2), Nanos::from_millis(9)),
        [us(2_100), us(2_800)]
    );
}

#[test]
fn a_copy_of_a_machine_has_devices_of_its_own() {
    let mut first = machine(1);
    responses(&mut first, Nanos::from_micros(1_000));
    let mut copy = first.clone();
    responses(&mut copy, Nanos::from_millis(25));
    let requests = |machine: &Simulation| machine.devices::<Slow>().map(|slow| slow.requests).collect::<Vec<_>>();
    assert_eq!((requests(&first), requests(&copy)), (vec![2], vec![6]));
    assert_eq!((first.requests_begun(), first.requests_ended()), (2, 1));
    assert_eq!(
        responses(&mut first, Nanos::from_millis(25)),
        [Nanos::from_micros(1_500); 3]
    );
}
