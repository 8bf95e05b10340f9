//! Stages on the simulated machine: the work of a frame adds up, background work delays it, and the loop acts on that.

use crate::common;

use std::ops::ControlFlow;

use common::{request, unwatched};
use punctual_loop::{EventLog, replay};
use punctual_pipelines::{EdgeSpec, WhenFull};
use punctual_runtime::report::{Progress, RunReport, StageReport};
use punctual_scenario::stages::{Body, EdgeNeeds, StageNeeds, StagesSpec, kind};
use punctual_scenario::{PlatformChoice, RunError, RunRequest, run};
use punctual_units::{CoreId, Nanos, Share};
use punctual_workload::{Arrival, Class, ControllerKind, TaskGoal};

const MS: Nanos = Nanos::from_millis(1);

fn stage(name: &str, does: Body) -> StageNeeds {
    StageNeeds {
        name: name.into(),
        does,
        takes: None,
        makes: None,
        state_bytes: None,
        save_every: 1,
        migratable: None,
        core: None,
        compute: Nanos::ZERO,
        period: None,
        deadline: None,
        restart: false,
        goal: None,
    }
}

/// A frame every 50 ms, for which the first stage computes 6 ms and the second 3 ms; beside one analysis, and
/// background load on all other cores.
fn perception(kind_of: ControllerKind, due: Nanos, seconds: u64) -> RunRequest {
    let mut request = request(PlatformChoice::Sim, kind_of, seconds);
    let tasks = &mut request.scenario.tasks;
    tasks[1].per_core = 2;
    tasks[1].arrival = Arrival::AfterCompletion {
        pause_min: Nanos::ZERO,
        pause_max: Nanos::ZERO,
    };
    let copy = |name: &str, compute: Nanos| StageNeeds {
        compute,
        goal: Some(TaskGoal::Late(Share::clamped(0.05))),
        ..stage(name, Body::Kind("copy".into(), kind("copy", None).expect("built in")))
    };
    let edge = |from: &str, to: &str, full| EdgeNeeds {
        from: (from.into(), 0),
        to: (to.into(), 0),
        edge: EdgeSpec {
            slots: 4,
            frame_bytes: 1 << 30,
            full,
        },
    };
    request.pipeline = StagesSpec {
        stages: vec![
            StageNeeds {
                period: Some(MS * 50),
                deadline: Some(due),
                ..stage("camera", Body::File("/dev/zero".into()))
            },
            copy("detect", MS * 6),
            copy("track", MS * 3),
            stage("sink", Body::File("/dev/null".into())),
        ],
        edges: vec![
            edge("camera", "detect", WhenFull::DropOldest),
            edge("detect", "track", WhenFull::Wait),
            edge("track", "sink", WhenFull::Wait),
        ],
        ..StagesSpec::default()
    };
    request.record = true;
    request
}

fn finished(request: &RunRequest) -> (RunReport, EventLog) {
    let finished = run(request, &mut unwatched).expect("the run ends in order");
    (finished.report, finished.log.expect("a log was asked for"))
}

fn row<'r>(report: &'r RunReport, name: &str) -> &'r StageReport {
    report.stages.iter().find(|stage| stage.name == name).expect("a row")
}

#[test]
fn a_frame_takes_the_work_of_its_stages() {
    let mut request = perception(ControllerKind::Open, MS * 50, 10);
    request.scenario.tasks.pop();
    let (report, _) = finished(&request);
    let sink = row(&report, "sink");
    assert_eq!((sink.frames_taken, sink.late, sink.left), (200, 0, 0));
    // 9 ms of 50 ms, cut to 1 in 4096, at a resolution of 1 in 16.
    let median = sink.tardiness.expect("frames came").p50;
    assert!((0.1799..0.192).contains(&median), "{median}");
    for (name, work) in [("detect", 6.0), ("track", 3.0)] {
        let row = row(&report, name);
        assert_eq!((row.frames_made, row.steps), (200, 200), "{name}");
        assert!(
            (row.busy_us - 200.0 * work * 1e3).abs() < 10.0,
            "{name}: {}",
            row.busy_us
        );
        assert_ne!(row.core, None);
    }
}

/// Programs, files and kinds that do not migrate compute side by side, too.
#[test]
fn stages_that_compute_are_dealt_out_to_all_cores() {
    let mut request = perception(ControllerKind::Open, MS * 50, 2);
    let stages = &mut request.pipeline.stages;
    stages[0].compute = MS;
    stages[1].migratable = Some(false);
    stages[2].does = Body::Program(vec!["cat".into()]);
    let (report, _) = finished(&request);
    let cores: Vec<_> = report.stages.iter().filter_map(|stage| stage.core).collect();
    assert!(
        cores.len() == 3 && cores.windows(2).all(|two| two[0] != two[1]),
        "{cores:?}"
    );
}

#[test]
fn frames_that_cannot_come_in_time_are_late_or_dropped_but_not_lost() {
    let mut request = perception(ControllerKind::Open, MS * 8, 10);
    request.scenario.tasks.pop();
    // More than a frame's time for each frame: the ring before it fills up, and old frames are dropped.
    request.pipeline.stages[1].compute = MS * 60;
    let (report, _) = finished(&request);
    let (camera, detect, sink) = (row(&report, "camera"), row(&report, "detect"), row(&report, "sink"));
    assert!(detect.dropped > 20, "{detect:?}");
    assert_eq!(detect.frames_taken + detect.dropped, camera.frames_made);
    assert_eq!((sink.frames_taken, sink.left), (detect.frames_taken, 0));
    assert_eq!(sink.late, sink.timed);
}

#[test]
fn the_loop_takes_time_from_background_work_for_late_frames() {
    let with = |least: Option<f64>| {
        let mut request = perception(ControllerKind::Qod, MS * 20, 40);
        request.scenario.control.best_effort_min = least.map(Share::clamped);
        finished(&request)
    };
    let ((before, _), (after, log)) = (with(None), with(Some(0.1)));
    let (before, after) = (row(&before, "track"), row(&after, "track"));
    assert!(before.late * 10 > before.timed, "{before:?}");
    assert!(
        after.late * 4 < before.late,
        "{} late instead of {}",
        after.late,
        before.late
    );
    assert_eq!(replay(&log), Ok(vec![]));
}

#[test]
fn a_core_or_a_period_that_is_missing_is_named() {
    let refused = |change: fn(&mut StagesSpec)| {
        let mut request = perception(ControllerKind::Open, MS * 50, 4);
        change(&mut request.pipeline);
        match run(&request, &mut unwatched) {
            Err(RunError::Problem(problem)) => problem.key,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(|spec| spec.stages[1].core = Some(CoreId(99))), "stage[1].core");
    assert_eq!(refused(|spec| spec.cores = vec![CoreId(99)]), "pipeline.cores");
    for period in [None, Some(Nanos(1)), Some(Nanos(9_999))] {
        let mut request = perception(ControllerKind::Open, MS * 50, 4);
        request.pipeline.stages[0].period = period;
        let refused = run(&request, &mut unwatched);
        assert!(
            matches!(&refused, Err(RunError::Problem(problem)) if problem.key == "stage[0].period"),
            "{period:?}"
        );
    }
    // A kind has no period: the remedy is another key.
    assert_eq!(
        refused(|spec| {
            let mut kind_of = kind("copy", None).expect("built in");
            kind_of.spec.takes.clear();
            let spare = stage("spare", Body::Kind("numbers".into(), kind_of));
            spec.stages[0] = StageNeeds {
                name: "camera".into(),
                ..spare
            };
            spec.stages.iter_mut().for_each(|stage| stage.goal = None);
        }),
        "stage[0].compute"
    );
    assert_eq!(refused(|spec| spec.step_max = Some(MS * 6)), "stage[1].compute");
    // Without the key a step may last 5 s.
    assert_eq!(refused(|spec| spec.stages[1].compute = MS * 5000), "stage[1].compute");
}

/// An exclusive task leaves the named cores to the stages, as on Linux; one that names such a core itself is an error.
#[test]
fn stages_do_not_get_exclusive_cores() {
    let on = |core: Option<CoreId>, change: fn(&mut StagesSpec)| {
        let mut request = perception(ControllerKind::Open, MS * 50, 2);
        let task = &mut request.scenario.tasks[0];
        let deadline = task.deadline().expect("a real-time task");
        (task.class, task.core) = (Class::Exclusive { deadline }, core);
        change(&mut request.pipeline);
        run(&request, &mut unwatched)
    };
    type Change = fn(&mut StagesSpec);
    let named: Change = |spec| spec.cores = vec![CoreId(3)];
    let of_stage: Change = |spec| spec.stages[1].core = Some(CoreId(3));
    for (change, key) in [(named, "pipeline.cores"), (of_stage, "stage[1].core")] {
        let report = on(None, change).expect("the task gets another core").report;
        assert_eq!(row(&report, "detect").core, Some(CoreId(3)), "{key}");
        let kept = report
            .header
            .protection
            .iter()
            .any(|it| it.what.starts_with("core 2 kept"));
        assert!(kept, "{:?}", report.header.protection);
        match on(Some(CoreId(3)), change) {
            Err(RunError::Problem(problem)) => {
                assert_eq!(problem.key, key);
                assert!(problem.what.contains("the exclusive task"), "{problem:?}");
            }
            other => panic!("{key}: {other:?}"),
        }
    }
    let all = on(None, |spec| spec.cores = (0..4).map(CoreId).collect());
    assert!(matches!(all, Err(RunError::Problem(problem)) if problem.key == "pipeline.cores"));
}

/// A watcher that ends the run is heeded within a second of simulated time that has many events.
#[test]
fn the_watcher_is_asked_by_events_too() {
    let mut request = perception(ControllerKind::Open, MS * 50, 4);
    request.pipeline.stages[0].period = Some(Nanos::from_micros(10));
    let mut asked = 0;
    let finished = run(&request, &mut |progress| match progress {
        Progress::Waiting => {
            asked += 1;
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    let made = finished.expect("the run ends in order").report.stages[0].frames_made;
    assert!(asked == 1 && made < 90_000, "{made}");
}
