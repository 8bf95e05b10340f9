//! Real runs on this machine: the log replays to the same decisions, embedded closures keep their store and their
//! accounts, and the machine is as it was. Nothing here depends on how fast the machine is.
#![cfg(target_os = "linux")]

use crate::common;
use crate::learnt;
use crate::user::User;

use std::ops::ControlFlow;
use std::sync::Arc;

use common::{request, unwatched};
use punctual_engines::Memory;
use punctual_loop::{DeciderAnswer, DeciderEvent, Decision, Event, EventLog, replay};
use punctual_os::LinuxOs;
use punctual_platform::linux::{LinuxMachine, LinuxOptions};
use punctual_platform::{KnobId, Machine, Plan, Value};
use punctual_runtime::FinishedRun;
use punctual_runtime::linux::RuntimeBuilder;
use punctual_runtime::report::Progress;
use punctual_scenario::{ControllerSource, PlatformChoice, run};
use punctual_store::updates::AdmissionEvent;
use punctual_store::{Store, StoreOptions};
use punctual_testing::{machine, shared_machine};
use punctual_units::{Nanos, Share};
use punctual_workload::{Arrival, Class, ControllerKind, Pace};

fn recorded(within: bool) -> EventLog {
    let _machine = machine();
    // A model of the simulated machine, relabelled: replay needs decisions, not good ones.
    let mut model = learnt::model().clone();
    model.made_for.platform = "linux".into();
    model.made_for.machine = None;
    let mut request = request(PlatformChoice::Linux, ControllerKind::Mimo, 3);
    if within {
        (request.scenario.control.pace, request.scenario.control.within) = (Pace::Job, true);
    }
    request.controller = Some(ControllerSource::Model(model));
    request.record = true;
    let mut user = User::of(&request);
    let finished = run(&request, &mut |progress| user.watch(progress)).unwrap();
    user.check(&finished);
    let FinishedRun { report, log } = finished;
    assert_eq!(
        (report.summary.updates.lost, report.summary.updates.sensors_unreconciled),
        (0, 0)
    );
    log.unwrap()
}

#[test]
fn the_log_of_a_linux_run_replays_to_identical_decisions() {
    let log = recorded(false);
    let is_step = |it: &&mut Decision| matches!(it.answer, DeciderAnswer::Step(_));
    let is_offer = |it: &Decision| matches!(it.event, DeciderEvent::Updates(AdmissionEvent::Offered { .. }));
    assert!(log.decisions.iter().any(|it| is_offer(it) && it.answer == false.into()));
    let text = serde_json::to_string(&log).unwrap();
    let log: EventLog = serde_json::from_str(&text).unwrap();
    assert_eq!(replay(&log).unwrap(), []);

    let mut planted = log.clone();
    let stepped = planted.decisions.iter_mut().rev().find(is_step);
    let DeciderAnswer::Step(answer) = &mut stepped.expect("the loop has stepped").answer else {
        unreachable!()
    };
    let admitted = answer.plan.share(KnobId::AdmittedShare).unwrap_or(Share::ONE);
    // Another one, wherever the loop stood at the end.
    let other = if admitted == Share::ONE {
        Share::ZERO
    } else {
        Share::ONE
    };
    answer.plan.set(KnobId::AdmittedShare, Value::Share(other));
    assert_eq!(
        replay(&planted).unwrap().len(),
        1,
        "a decision that was tampered with is found"
    );

    let mut planted = log;
    let offered = planted.decisions.iter_mut().find(|it| is_offer(it)).unwrap();
    offered.answer = (offered.answer == false.into()).into();
    assert_eq!(replay(&planted).unwrap().len(), 1, "and so is a verdict of admission");
}

/// Likewise where jobs are paced from within: each checkpoint and what was answered is in the log.
#[test]
fn paced_jobs_replay_to_the_same_clocks() {
    let log = recorded(true);
    assert_eq!(replay(&log).unwrap(), []);

    let mut planted = log;
    let progress = |it: &mut Decision| match &it.event {
        DeciderEvent::Tasks(event) => match **event {
            Event::Progressed(progress) => Some(progress),
            _ => None,
        },
        _ => None,
    };
    let mut answered = planted.decisions.iter_mut();
    let (progress, answered) = answered.find_map(|it| Some((progress(it)?, it))).unwrap();
    let unasked = Plan::default();
    assert!(progress.done >= 1 && progress.done < progress.of);
    answered.answer = unasked.into();
    assert_eq!(
        replay(&planted).unwrap().len(),
        1,
        "a clock that was tampered with is found"
    );
}

#[test]
fn closures_run_as_tasks_and_every_job_is_accounted_for() {
    let _machine = shared_machine();
    let machine = LinuxMachine::open(LinuxOptions::default()).unwrap();
    let store = Arc::new(Store::open(Memory::default(), LinuxOs, StoreOptions::default()).unwrap());
    let scenario = request(PlatformChoice::Linux, ControllerKind::Open, 1).scenario;
    let mut runtime = RuntimeBuilder::new(machine, Arc::clone(&store));
    let ten_ms = Nanos::from_millis(10);
    runtime.task(
        "steer",
        Class::RealTime { deadline: ten_ms },
        Arrival::Periodic { period: ten_ms },
        |job| {
            let number = job.number();
            job.write(|store| store.put(b"last job", number.to_le_bytes()))
        },
    );
    let gaps = Arrival::Sporadic {
        gap_min: Nanos::from_millis(5),
        gap_max: ten_ms,
    };
    runtime.task("listen", Class::RealTime { deadline: ten_ms }, gaps, |job| {
        job.read(|store| store.get(b"last job").map(drop))
    });
    let pauses = Arrival::AfterCompletion {
        pause_min: Nanos::from_millis(1),
        pause_max: Nanos::from_millis(3),
    };
    runtime.task("log", Class::BestEffort, pauses, |job| {
        job.read(|store| store.get(b"nothing").map(drop))
    });

    let options = runtime.options("closures", scenario.goal, Nanos::from_secs(3));
    let report = runtime.run(options, &mut unwatched).unwrap().report;
    assert!(report.summary.jobs > 0, "{:?}", report.summary);
    assert_eq!(
        report.samples.iter().map(|sample| u64::from(sample.ended)).sum::<u64>(),
        report.samples.len() as u64
    );
    assert!(report.summary.best_effort_jobs > 0);
    // Another program may fill the core meanwhile, which is noted as well.
    assert!(
        !report.summary.notes.iter().any(|note| note.contains("ended early")),
        "{:?}",
        report.summary.notes
    );
    assert!(store.get(b"last job").unwrap().is_some());
}

#[test]
fn a_watcher_can_end_a_run_and_the_clock_is_as_before() {
    let _machine = machine();
    let mut request = request(PlatformChoice::Linux, ControllerKind::Open, 3600);
    request.scenario.control.best_effort_share = Share::clamped(0.5);
    let mut samples = 0;
    let mut watch = |progress: Progress<'_>| match progress {
        Progress::Sample(_) => {
            samples += 1;
            if samples == 3 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        }
        _ => ControlFlow::Continue(()),
    };
    let report = run(&request, &mut watch).unwrap().report;
    assert!(report.samples.len() >= 3, "{}", report.samples.len());
    let mut machine = LinuxMachine::open(LinuxOptions::default()).unwrap();
    let top = machine.offers().clock().map(|clock| clock.top());
    assert_eq!(machine.read().clock(), top);
}
