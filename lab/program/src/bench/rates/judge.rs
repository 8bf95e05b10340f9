//! Decides whether a rate of sensor updates is held: conditions for a run without control, and premises of the verdict.

use punctual_evaluation::claims::Premise;
use punctual_runtime::report::{RunReport, Sample, Summary};
use punctual_units::Nanos;
use punctual_workload::{SensorStream, Trace};

use super::super::undisturbed;
use punctual_report::summary::{count, percent};

/// Least fresh share of any sample after settling. A value is valid for longer than its sensor's period, so a store
/// that keeps up has all of them fresh; one in a hundred leaves room for a late wake-up.
const FRESH_LEAST: f64 = 0.99;
/// Least share of the due updates that must have been offered: below it, the feeder (which stands in for the network)
/// did not keep up.
const OFFERED_LEAST: f64 = 0.99;

/// The conditions, in a sentence, for a goal of `tardiness`.
pub fn conditions(tardiness: f64) -> String {
    format!(
        "held: mean tardiness at most {tardiness}, no update shed, superseded or lost, no job left out, {:.0} % of the data fresh at any time",
        FRESH_LEAST * 100.0
    )
}

/// Whether the loop has fallen back, because no job ended for too long: no later sample can show a held rate.
pub fn is_hopeless(sample: &Sample) -> bool {
    sample.fallback.is_some()
}

/// Reasons why the rate of `report` is not held; empty if it is.
pub fn failings(report: &RunReport) -> Vec<String> {
    let summary = &report.summary;
    if let Some(reason) = report.samples.iter().find_map(|sample| sample.fallback.as_ref()) {
        return vec![reason.clone()];
    }
    let settled = || {
        report
            .samples
            .iter()
            .filter(|sample| sample.t_s >= report.header.settle_s)
    };
    let mut failings = Vec::new();
    let mut require = |holds: bool, what: String| {
        if !holds {
            failings.push(what);
        }
    };
    let jobs: u32 = settled().map(|sample| sample.jobs).sum();
    require(jobs > 0, "no real-time job ended".into());
    let tardiness = summary.tardiness_mean.unwrap_or(f64::INFINITY);
    require(
        tardiness <= report.header.goal.tasks.nominal(),
        format!("tardiness {tardiness:.2}"),
    );
    require(
        summary.skipped == 0,
        format!("{} jobs left out", count(summary.skipped)),
    );
    let fresh = settled().map(|sample| sample.fresh_share).fold(1.0, f64::min);
    require(fresh >= FRESH_LEAST, format!("{} fresh", percent(fresh)));
    for (updates, what) in [
        (summary.updates.shed, "shed"),
        (summary.updates.superseded, "superseded"),
        (summary.updates.lost, "lost"),
    ] {
        require(updates == 0, format!("{} {what}", count(updates)));
    }
    failings
}

/// The premise that a run with these failings fails. A rate is held only if it was offered; one that is not held with
/// fewer updates is not held with all. A disturbance can only lower the result: it is no doubt about a rate that is
/// held.
pub fn failed_premise(summary: &Summary, due: u64, failings: &[String]) -> Option<Premise> {
    if !failings.is_empty() {
        return undisturbed(summary);
    }
    let offered = summary.updates.offered as f64 / due.max(1) as f64;
    let needs = format!("a feeder that offers {} of the updates", percent(OFFERED_LEAST));
    Premise::unless(offered >= OFFERED_LEAST, &needs, || percent(offered))
}

/// Least number of updates of `replicas` copies of `trace` that are due in the first `elapsed` of a run: copies start
/// within a second of trace time, and all are counted as if they started last.
pub fn due(trace: &Trace, speedup: f64, replicas: u32, elapsed: Nanos) -> u64 {
    let from_the_last = elapsed.saturating_sub(Nanos::from_secs(1).scaled(1.0 / speedup));
    let of_one = SensorStream::new(trace.clone(), speedup, 1).take_while(|update| update.at <= from_the_last);
    of_one.count() as u64 * u64::from(replicas)
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_report::fixture;

    /// The made-up run, changed so that its rate is held.
    fn held() -> RunReport {
        let mut report = fixture::report();
        report.samples.iter_mut().for_each(|sample| sample.fresh_share = 1.0);
        report.summary.tardiness_mean = Some(0.84);
        report.summary.updates.shed = 0;
        report.summary.updates.superseded = 0;
        report
    }

    fn failings_of(change: impl FnOnce(&mut RunReport)) -> String {
        let mut report = held();
        change(&mut report);
        failings(&report).join(", ")
    }

    #[test]
    fn each_condition_is_needed() {
        assert_eq!(failings_of(|_| {}), "");
        assert_eq!(
            failings_of(|report| report.summary.tardiness_mean = Some(0.86)),
            "tardiness 0.86"
        );
        assert_eq!(failings_of(|report| report.summary.updates.shed = 1000), "1,000 shed");
        assert_eq!(
            failings_of(|report| report.summary.updates.superseded = 1),
            "1 superseded"
        );
        assert_eq!(failings_of(|report| report.summary.updates.lost = 2), "2 lost");
        assert_eq!(failings_of(|report| report.summary.skipped = 3), "3 jobs left out");
        assert_eq!(
            failings_of(|report| report.samples[200].fresh_share = 0.98),
            "98.0 % fresh"
        );
        // A run in which no job ended has a mean tardiness of 0.
        assert_eq!(
            failings_of(|report| report.samples.truncate(20)),
            "no real-time job ended"
        );
        assert_eq!(
            failings_of(|report| report.samples[8].fallback = Some("no jobs".into())),
            "no jobs"
        );
    }

    #[test]
    fn a_rate_is_judged_only_where_its_premise_holds() {
        let premise = |offered: u64, inconclusive: bool, failings: &[String]| {
            let mut summary = held().summary;
            (summary.updates.offered, summary.inconclusive) = (offered, inconclusive);
            failed_premise(&summary, 1_650_000, failings).map(|premise| premise.found)
        };
        let late = ["tardiness 0.91".to_string()];
        assert_eq!(premise(1_650_000, true, &[]), None);
        assert_eq!(premise(1_600_000, false, &[]).as_deref(), Some("97.0 %"));
        assert_eq!(premise(1_600_000, false, &late), None);
        assert!(premise(1_650_000, true, &late).is_some());
    }

    #[test]
    fn stale_data_before_settling_is_no_failing() {
        assert_eq!(failings_of(|report| report.samples[3].fresh_share = 0.1), "");
    }

    #[test]
    fn what_is_due_is_never_more_than_what_arrives() {
        let period = [Nanos::from_millis(50), Nanos::from_millis(400)];
        let trace = Trace::synthetic(9, period[0], period[1], Nanos::from_secs(4), 1);
        for (speedup, replicas, elapsed) in [(1.0, 3, 9), (20.0, 5, 2), (2.0, 1, 1)] {
            let elapsed = Nanos::from_secs(elapsed);
            let arrived = SensorStream::new(trace.clone(), speedup, replicas)
                .take_while(|update| update.at <= elapsed)
                .count() as u64;
            let due = due(&trace, speedup, replicas, elapsed);
            assert!(due <= arrived && due > arrived / 2, "{due} due, {arrived} arrived");
        }
    }
}
