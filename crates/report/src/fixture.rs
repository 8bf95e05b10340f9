//! Synthetic run for tests of all views: 60 s with a period of 0.2 s, disturbed from 25 s to 40 s.

use punctual_loop::ModeName;
use punctual_platform::{KnobId, Provenance, Refusal};
use punctual_runtime::report::{
    Activity, Bin, CauseReport, ControllerCosts, Culprit, KnobReport, LoadReport, PlatformChoice, Protection,
    ResponseTimes, RunHeader, RunMark, RunReport, Sample, SettingReport, StartUp, Summary, TaskReport, UpdateTotals,
    WhereTimeWent,
};
use punctual_units::{Hertz, Share};
use punctual_workload::{Cause, ControllerKind, Goal, TaskGoal, UpdateMode};

/// Header of the run.
pub fn header() -> RunHeader {
    let knob = |knob, offered, used, range: &str| KnobReport {
        knob,
        offered,
        used,
        range: range.into(),
    };
    RunHeader {
        scenario: "fire-rescue".into(),
        platform: PlatformChoice::Linux,
        machine: "Example CPU @ 2.00GHz".into(),
        seed: 1,
        controller: ControllerKind::Mimo,
        goal: Goal {
            tasks: TaskGoal::default(),
            drr: 0.62,
            min_fresh: Share::clamped(0.5),
        },
        prices: None,
        knobs: vec![
            knob(
                KnobId::CLOCK,
                Some(Provenance::Emulated),
                true,
                "1000 MHz to 2000 MHz in 11 steps",
            ),
            knob(KnobId::AdmittedShare, Some(Provenance::Real), true, "0 to 1"),
            knob(KnobId::BestEffortShare, None, false, "0 to 1"),
        ],
        protection: vec![
            Protection {
                what: "analysis: SCHED_FIFO 80 on core 1".into(),
                refused: None,
                stays: Vec::new(),
            },
            Protection {
                what: "memory locked".into(),
                refused: Some(Refusal {
                    what: "memory lock".into(),
                    why: "operation not permitted".into(),
                    remedy: "raise the limit: ulimit -l unlimited".into(),
                }),
                stays: Vec::new(),
            },
        ],
        load: LoadReport {
            sensors: 5120,
            replicas: 5,
            updates_per_s: 27_500.0,
            update_mode: UpdateMode::Transaction,
            update_us: 20.1,
            get_ns: 310.0,
            top_clock: Hertz::from_mhz(2000),
        },
        settle_s: 7.0,
    }
}

/// Sample of step `k`, 0 to 299.
pub fn sample(k: u64) -> Sample {
    let t_s = 0.2 * (k + 1) as f64;
    // A fixed irregular sequence stands in for noise.
    let noise = ((k * 7919) % 101) as f64 / 101.0 - 0.5;
    let settling = (-t_s / 2.5).exp();
    let disturbance = if (25.0..40.0).contains(&t_s) {
        (-(t_s - 25.0) / 2.0).exp()
    } else {
        0.0
    };
    let tardiness = 0.85 + 0.5 * settling + 0.35 * disturbance + 0.12 * noise;
    let admitted =
        (1.0 - 0.3 * (1.0 - settling) - if (25.0..40.0).contains(&t_s) { 0.15 } else { 0.0 }).clamp(0.0, 1.0);
    let mode = if t_s < 2.0 { ModeName::WarmUp } else { ModeName::Running };
    Sample {
        k,
        t_s,
        tardiness: (k != 70).then_some(tardiness),
        drr: (k != 70).then_some(0.62 + 0.1 * settling - 0.05 * noise),
        admitted_share: admitted,
        admitted_knob: admitted,
        fresh_share: (admitted + 0.2 + 0.02 * noise).min(1.0),
        stage_pressure: None,
        best_effort_share: None,
        clock_hz: Some(
            ((1400.0 + 500.0 * (1.0 - settling) + 80.0 * noise + 60.0 * disturbance) / 100.0).round() as u64
                * 100_000_000,
        ),
        energy_j: None,
        celsius: Some(61.5 + noise),
        jobs: 2,
        misses: u32::from(tardiness > 1.0) + u32::from(tardiness > 1.2),
        ended: 2,
        decision_us: Some(0.9 + 0.4 * (noise + 0.5)),
        actuation_us: Some(11.0 + 9.0 * (noise + 0.5)),
        busy: vec![0.62 + 0.1 * noise, 0.88 + 0.1 * noise],
        mode,
        fallback: None,
    }
}

/// Three jobs that waited for a thread, and one that was preempted.
fn causes() -> Vec<CauseReport> {
    let logger = Culprit {
        thread: Some(1234),
        doing: Some(Activity::Syncing),
        jobs: 3,
        us: 25_000.0,
        ..Culprit::named("logger")
    };
    let cause = |cause, jobs: u64, us_mean, usual, by| CauseReport {
        cause,
        jobs,
        behind: 0,
        share: jobs as f64 / 4.0,
        us_mean,
        usual_us: Some(usual),
        by,
    };
    vec![
        cause(Cause::Lock, 3, 9_100.0, 350.0, vec![logger]),
        cause(Cause::Preempted, 1, 8_000.0, 1_300.0, Vec::new()),
    ]
}

/// Two tasks: one that uses most of its deadline, one that uses little.
pub fn tasks() -> Vec<TaskReport> {
    vec![analysis(), steer()]
}

fn analysis() -> TaskReport {
    TaskReport {
        name: "analysis".into(),
        goal_late: Some(0.01),
        goal_tardiness: None,
        deadline_us: 50_000.0,
        jobs: 530,
        late: 4,
        late_share: Some(4.0 / 530.0),
        failed: 0,
        skipped: 0,
        overdue: 0,
        unfinished: None,
        merged: 0,
        put_off: 0,
        excused: 2,
        response_us: Some(ResponseTimes {
            p50: 42_600.0,
            p99: 49_400.0,
            p999: 55_100.0,
            max: 55_300.0,
        }),
        tardiness_mean: Some(0.86),
        where_us: Some(WhereTimeWent {
            released_late: 1_100.0,
            preempted: 1_300.0,
            lock: 420.0,
            data: 25_200.0,
            computation: 14_600.0,
            commit: 0.0,
        }),
        where_late_us: Some(WhereTimeWent {
            released_late: 1_200.0,
            preempted: 1_500.0,
            lock: 9_100.0,
            data: 25_400.0,
            computation: 14_700.0,
            commit: 0.0,
        }),
        where_on_time_us: Some(WhereTimeWent {
            released_late: 1_100.0,
            preempted: 1_300.0,
            lock: 350.0,
            data: 25_200.0,
            computation: 14_600.0,
            commit: 0.0,
        }),
        first_failure: None,
        ended: None,
        causes: causes(),
        late_jobs: Vec::new(),
        start_up: StartUp {
            seconds: 7.0,
            jobs: 70,
            late: 12,
        },
        histogram: bins(50_000.0, -3, &[3, 61, 462, 4]),
    }
}

fn steer() -> TaskReport {
    TaskReport {
        name: "steer".into(),
        goal_late: Some(0.01),
        goal_tardiness: None,
        deadline_us: 5_000.0,
        jobs: 5_300,
        late: 0,
        late_share: Some(0.0),
        failed: 0,
        skipped: 0,
        overdue: 0,
        unfinished: None,
        merged: 0,
        put_off: 0,
        excused: 0,
        response_us: Some(ResponseTimes {
            p50: 1_200.0,
            p99: 2_610.0,
            p999: 3_900.0,
            max: 4_400.0,
        }),
        tardiness_mean: Some(0.25),
        where_us: Some(WhereTimeWent {
            released_late: 21.0,
            preempted: 40.0,
            lock: 0.0,
            data: 110.0,
            computation: 1_080.0,
            commit: 0.0,
        }),
        where_late_us: None,
        where_on_time_us: Some(WhereTimeWent {
            released_late: 21.0,
            preempted: 40.0,
            lock: 0.0,
            data: 110.0,
            computation: 1_080.0,
            commit: 0.0,
        }),
        first_failure: None,
        ended: None,
        causes: Vec::new(),
        late_jobs: Vec::new(),
        start_up: StartUp {
            seconds: 7.0,
            jobs: 700,
            late: 0,
        },
        histogram: bins(5_000.0, -10, &[12, 1_480, 2_960, 640, 120, 50, 21, 14, 3]),
    }
}

/// Bins of a quarter of an octave, the first of them `first` bins from the deadline.
fn bins(deadline_us: f64, first: i32, jobs: &[u64]) -> Vec<Bin> {
    let edge = |number: i32| deadline_us * (f64::from(number) / 4.0).exp2();
    let bin = |(number, jobs): (i32, &u64)| Bin {
        from_us: edge(number),
        to_us: edge(number + 1),
        jobs: *jobs,
    };
    (first..).zip(jobs).map(bin).collect()
}

/// Settings: of threads, of a knob, refused.
pub fn settings() -> Vec<SettingReport> {
    let held = SettingReport {
        what: "cores of".into(),
        of: (7..12).map(|thread| format!("vision (thread {thread})")).collect(),
        before: "0-1".into(),
        now: "0".into(),
        since_s: 0.5,
        until_s: Some(55.0),
        tasks: vec!["steer".into()],
        why: "class = \"exclusive\"".into(),
        jobs_with: 5_000,
        jobs_without: 300,
        late_without: 6,
        ..SettingReport::default()
    };
    let knob = SettingReport {
        what: "admitted-share".into(),
        before: "100.0 %".into(),
        now: "55.0 %".into(),
        since_s: 26.2,
        tasks: vec!["analysis".into()],
        why: "analysis is furthest from its goal, 2 of 9 jobs late in the window".into(),
        jobs_with: 300,
        late_with: 3,
        jobs_without: 230,
        late_without: 1,
        ..SettingReport::default()
    };
    let refused = SettingReport {
        what: "memory locked".into(),
        refused: header().protection[1].refused.clone(),
        ..SettingReport::default()
    };
    vec![held, knob, refused]
}

/// The whole run with all its parts.
pub fn report() -> RunReport {
    RunReport {
        header: header(),
        tasks: tasks(),
        lending: Vec::new(),
        settings: settings(),
        marks: vec![RunMark {
            t_s: 30.0,
            text: "door <opened>".into(),
        }],
        stages: Vec::new(),
        jobs: Vec::new(),
        late_jobs: Vec::new(),
        steps_per_sample: 1,
        samples: (0..300).map(sample).collect(),
        summary: Summary {
            start_up: StartUp {
                seconds: 7.0,
                jobs: 770,
                late: 12,
            },
            jobs: 5_830,
            misses: 4,
            failed: 0,
            overdue: 0,
            excused: 2,
            skipped: 0,
            inconclusive: false,
            tardiness_mean: Some(0.86),
            tardiness_p99: Some(1.12),
            drr_mean: Some(0.61),
            fresh_share_mean: Some(0.91),
            fresh_share_min: Some(0.71),
            admitted_share_mean: Some(0.69),
            clock_hz_mean: Some(1.88e9),
            updates: UpdateTotals {
                offered: 1_650_000,
                installed: 1_155_000,
                shed: 490_000,
                superseded: 5_000,
                unfinished: 0,
                lost: 0,
                sensors_unreconciled: 0,
            },
            energy_j: None,
            energy_parts_j: None,
            celsius_max: Some(61.5),
            best_effort_jobs: 5_321,
            controller: ControllerCosts {
                decision_us_median: Some(1.1),
                clock_changes_within_jobs: 0,
                pacing_us_median: None,
                core_share: Some(0.0004),
            },
            probe_us: Some([4.0, 61.0, 912.0]),
            steal_share: Some(0.012),
            filled_cores: Vec::new(),
            notes: vec!["fallback: 3 windows without a finished job".into()],
        },
    }
}

/// Every opened element is closed in order; what HTML leaves open is allowed for.
pub fn check_nesting(page: &str) {
    // Else a table that is wider than the window cannot be scrolled by keyboard.
    let sheets = page.matches("class=\"sheet\"").count();
    assert_eq!(page.matches("class=\"sheet\" tabindex=\"0\"").count(), sheets);
    let body = page.split_once("</style>").expect("a style").1;
    let mut open = vec!["html", "head"];
    for tag in body
        .split('<')
        .skip(1)
        .filter_map(|rest| rest.split_once('>').map(|(tag, _)| tag))
    {
        let name = tag.split_whitespace().next().unwrap_or("").trim_end_matches('/');
        match name.strip_prefix('/') {
            Some(closed) => assert_eq!(open.pop(), Some(closed), "</{closed}> closes something else"),
            None if name == "br" || tag.ends_with('/') => {}
            None => open.push(name),
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
}
