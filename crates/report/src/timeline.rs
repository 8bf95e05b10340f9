//! A run as a timeline for a trace viewer: each job from its release to its end, late ones with their causes, and the
//! figures of each window as counters.
//!
//! Left out: causes of jobs in the start-up and of late jobs beyond [`LATE_JOBS_MAX`], and releases without a job.
//!
//! Format: the JSON object of the Trace Event Format, which Perfetto and Chrome read; times in microseconds since the
//! start of the run. A job is a pair of asynchronous events, because jobs of one task overlap when one waits for the
//! other.

use std::collections::HashMap;

use punctual_runtime::collector::{JOBS_MAX, LATE_JOBS_MAX};
use punctual_runtime::report::{LateJob, RunReport, Sample};
use serde_json::{Map, Value, json};

use crate::causes::thread;

/// Process number of all events: there is one run.
const RUN: u32 = 1;

/// The timeline of `report`.
pub fn timeline(report: &RunReport) -> Value {
    let name = format!("{} on {}", report.header.scenario, report.header.machine);
    let mut events = vec![json!({"ph": "M", "pid": RUN, "name": "process_name", "args": {"name": name}})];
    let late: HashMap<(usize, u64), &LateJob> = report
        .late_jobs
        .iter()
        .map(|(task, late)| ((*task, late.job), late))
        .collect();
    for (number, job) in report.jobs.iter().enumerate() {
        let Some(task) = report.tasks.get(job.task) else {
            continue;
        };
        let (end_us, response_us) = (job.t_s * 1e6, job.tardiness * task.deadline_us);
        // Viewers show events of one name on one track.
        let name = if job.tardiness > 1.0 {
            format!("{}: late", task.name)
        } else {
            task.name.clone()
        };
        let mut details = Map::new();
        details.insert("response over deadline".into(), json!(job.tardiness));
        if let Some(late) = late.get(&(job.task, job.job)) {
            explain(&mut details, late);
        }
        let event = |ph: &str, ts: f64| json!({"ph": ph, "pid": RUN, "cat": task.name, "id": number, "name": name, "ts": (ts * 1e3).round() / 1e3});
        let mut begin = event("b", end_us - response_us);
        begin["args"] = details.into();
        events.extend([begin, event("e", end_us)]);
    }
    let mut instant = |reached: bool, what: &str, t_s: f64| {
        if reached {
            events.push(json!({"ph": "i", "s": "g", "pid": RUN, "name": what, "ts": t_s * 1e6}));
        }
    };
    let last_s = report.jobs.last().map_or(0.0, |job| job.t_s);
    let last_late_s = report.late_jobs.last().map_or(0.0, |(_, late)| late.released_s);
    instant(report.jobs.len() == JOBS_MAX, "later jobs are left out", last_s);
    let is_full = report.late_jobs.len() == LATE_JOBS_MAX;
    instant(is_full, "later causes are left out", last_late_s);
    for mark in &report.marks {
        instant(true, &format!("mark: {}", mark.text), mark.t_s);
    }
    let mut mode = None;
    for window in &report.samples {
        events.extend(counters(window));
        if mode.replace(window.mode) != Some(window.mode) {
            let name = format!("loop: {}", window.mode.as_str());
            events.push(json!({"ph": "i", "s": "p", "pid": RUN, "name": name, "ts": window.t_s * 1e6}));
        }
    }
    json!({"displayTimeUnit": "ms", "traceEvents": events})
}

fn explain(details: &mut Map<String, Value>, late: &LateJob) {
    details.insert("late by, us".into(), json!(late.late_us));
    let cause = match late.behind {
        true => format!("{}, of an earlier job", late.cause.words()),
        false => late.cause.words().into(),
    };
    details.insert("cause".into(), cause.into());
    let spans = late
        .spans_us
        .iter()
        .map(|(cause, us)| (cause.words().to_owned(), json!(us)));
    details.insert("where the time went, us".into(), spans.collect::<Map<_, _>>().into());
    if !late.by.is_empty() {
        let by = late.by.iter().map(thread);
        details.insert("by".into(), by.collect::<Vec<_>>().join("; ").into());
    }
    for (name, count) in [
        ("major page faults", late.major_faults),
        ("minor page faults", late.minor_faults),
    ] {
        if count > 0 {
            details.insert(name.into(), count.into());
        }
    }
}

fn counters(window: &Sample) -> impl Iterator<Item = Value> {
    let figures = [
        ("response over deadline", window.tardiness),
        ("fresh, %", Some(window.fresh_share * 100.0)),
        ("admitted, %", Some(window.admitted_share * 100.0)),
        ("clock, MHz", window.clock_hz.map(|hz| hz as f64 / 1e6)),
        ("late jobs", Some(f64::from(window.misses))),
    ];
    let ts = window.t_s * 1e6;
    figures.into_iter().filter_map(move |(name, value)| {
        Some(json!({"ph": "C", "pid": RUN, "name": name, "ts": ts, "args": {"value": value?}}))
    })
}

#[cfg(test)]
mod tests {
    use punctual_runtime::report::FinishedJob;
    use punctual_workload::Cause;

    use super::*;
    use crate::fixture;

    fn late(job: u64, released_s: f64, late_us: f64) -> LateJob {
        LateJob {
            job,
            released_s,
            late_us,
            cause: Cause::Lock,
            behind: false,
            us: late_us,
            usual_us: None,
            by: Vec::new(),
            spans_us: [(Cause::Lock, late_us)].into(),
            major_faults: 0,
            minor_faults: 0,
            stolen_us: None,
            interrupts_us: None,
        }
    }

    /// Two jobs that end at one instant in different tasks: only the late one has a cause.
    #[test]
    fn each_job_begins_at_its_release_and_late_ones_have_causes() {
        let mut report = fixture::report();
        report.tasks[0].deadline_us = 50_000.0;
        let job = |task, job, tardiness| FinishedJob {
            task,
            job,
            t_s: 2.0,
            tardiness,
        };
        report.jobs = vec![job(0, 7, 1.2), job(0, 8, 0.5), job(99, 7, 0.5)];
        report.late_jobs = vec![(0, late(7, 1.94, 10_000.0))];
        let timeline = timeline(&report);
        let events = timeline["traceEvents"].as_array().unwrap();
        let of = |ph: &str| events.iter().filter(|event| event["ph"] == ph).collect::<Vec<_>>();
        let (begins, ends) = (of("b"), of("e"));
        // The job of a task that is not in the report is left out.
        assert_eq!((begins.len(), ends.len()), (2, 2));
        assert_eq!(begins[0]["name"], format!("{}: late", report.tasks[0].name));
        assert_eq!(begins[0]["args"]["cause"], Cause::Lock.words());
        assert!((begins[0]["ts"].as_f64().unwrap() - 1.94e6).abs() < 1.0);
        assert_eq!(begins[1]["args"].get("cause"), None);
        assert!((begins[1]["ts"].as_f64().unwrap() - 1.975e6).abs() < 1.0);
        assert!(begins.iter().zip(&ends).all(|(begin, end)| begin["id"] == end["id"]));
        assert!(of("C").len() >= report.samples.len());
        let is_mark = |event: &&Value| event["name"] == "mark: door <opened>" && event["ts"] == 30e6;
        assert_eq!(of("i").into_iter().filter(|event| is_mark(event)).count(), 1);
    }
}
