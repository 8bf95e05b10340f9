//! A made-up run for tests of everything that shows one: 60 s at 0.2 s, disturbed from 25 s to 40 s.

use punctual_platform::{Provenance, Refusal};
use punctual_runtime::report::{KnobReport, LoadReport, Protection, RunHeader, RunReport, Sample, Summary};
use punctual_units::{Hertz, Share};
use punctual_workload::{ControllerKind, Goal, TaskGoal};

/// What ran where.
pub fn header() -> RunHeader {
    let knob = |knob: &str, offered, used, range: &str| KnobReport {
        knob: knob.into(),
        offered,
        used,
        range: range.into(),
    };
    RunHeader {
        scenario: "fire-rescue".into(),
        platform: "linux".into(),
        machine: "Example CPU @ 2.00GHz".into(),
        seed: 1,
        controller: ControllerKind::Mimo,
        goal: Goal {
            tasks: TaskGoal::Tardiness(0.85),
            drr: 0.62,
            min_fresh: Share::clamped(0.5),
        },
        knobs: vec![
            knob(
                "clock",
                Some(Provenance::Emulated),
                true,
                "1000 MHz to 2000 MHz in 11 steps",
            ),
            knob("admitted-share", Some(Provenance::Real), true, "0 to 1"),
            knob("best-effort-share", None, false, "0 to 1"),
        ],
        protection: vec![
            Protection {
                what: "analysis: SCHED_FIFO 80 on core 1".into(),
                refused: None,
            },
            Protection {
                what: "memory locked".into(),
                refused: Some(Refusal {
                    what: "memory lock".into(),
                    why: "operation not permitted".into(),
                    remedy: "raise the limit: ulimit -l unlimited".into(),
                }),
            },
        ],
        load: LoadReport {
            sensors: 5120,
            replicas: 5,
            updates_per_s: 27_500.0,
            update_mode: "transaction".into(),
            update_us: 20.1,
            get_ns: 310.0,
            top_clock: Hertz::from_mhz(2000),
        },
        settle_s: 7.0,
    }
}

/// One step, `k` from 0 to 299.
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
    let mode = if t_s < 2.0 { "warm-up" } else { "running" };
    Sample {
        k,
        t_s,
        tardiness: (k != 70).then_some(tardiness),
        drr: (k != 70).then_some(0.62 + 0.1 * settling - 0.05 * noise),
        admitted_share: admitted,
        admitted_knob: admitted,
        fresh_share: (admitted + 0.2 + 0.02 * noise).min(1.0),
        clock_hz: Some(
            ((1400.0 + 500.0 * (1.0 - settling) + 80.0 * noise + 60.0 * disturbance) / 100.0).round() as u64
                * 100_000_000,
        ),
        energy_j: None,
        jobs: 2,
        misses: u32::from(tardiness > 1.0) + u32::from(tardiness > 1.2),
        decision_us: Some(0.9 + 0.4 * (noise + 0.5)),
        actuation_us: Some(11.0 + 9.0 * (noise + 0.5)),
        busy: vec![0.62 + 0.1 * noise, 0.88 + 0.1 * noise],
        mode: mode.into(),
        fallback: None,
    }
}

/// The whole run.
pub fn report() -> RunReport {
    RunReport {
        header: header(),
        jobs: Vec::new(),
        samples: (0..300).map(sample).collect(),
        summary: Summary {
            jobs: 600,
            misses: 14,
            excused: 2,
            skipped: 0,
            inconclusive: false,
            tardiness_mean: 0.86,
            tardiness_p99: 1.12,
            drr_mean: 0.61,
            fresh_share_mean: 0.91,
            fresh_share_min: 0.71,
            admitted_share_mean: 0.69,
            clock_hz_mean: Some(1.88e9),
            updates_offered: 1_650_000,
            updates_installed: 1_155_000,
            updates_shed: 490_000,
            updates_superseded: 5_000,
            updates_lost: 0,
            sensors_unreconciled: 0,
            energy_j: None,
            energy_parts_j: None,
            best_effort_jobs: 5_321,
            decision_us_median: Some(1.1),
            clock_changes_within_jobs: 0,
            pacing_us_median: None,
            controller_core_share: Some(0.0004),
            probe_us: Some([4.0, 61.0, 912.0]),
            steal_share: Some(0.012),
            notes: vec!["fallback: 3 windows without a finished job".into()],
        },
    }
}
