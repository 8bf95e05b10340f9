//! Settings of the machine that a run changes: since when, for which tasks, why, and how many of their jobs were late
//! with each of them and without it.
//!
//! **Problem.** The ledger knows what was changed, the loop why, the figures how late jobs were. **Method.** One list:
//! a row for each knob that the loop turns away from its first setting and, on Linux, for each change of the ledger. It
//! begins when the setting is first seen, and ends when that is back. Jobs of its tasks that end meanwhile count as
//! *with* it, all others of the run as *without*. A knob is turned for all tasks.
//!
//! Limits: jobs count by the figures at hand, which are half a second old on Linux. Rows of settings that are back are
//! forgotten once there are [`ROWS_MAX`] rows.

use std::collections::{BTreeMap, BTreeSet};

use punctual_loop::Step;
use punctual_platform::{KnobId, Plan, Value};

use crate::report::{SettingReport, TaskReport};

/// Most rows: twice as many as the ledger has changes.
const ROWS_MAX: usize = 8192;

/// Rows, by property and thing.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingRows {
    rows: BTreeMap<(String, Vec<String>), SettingReport>,
    knobs: BTreeMap<KnobId, KnobRow>,
    /// Jobs of each task, and late ones among them, by the last figures; a name comes again if a later task has it.
    totals: Vec<(String, [u64; 2])>,
}

/// A knob that was turned away. The control thread may turn it at each job: its words are made when reported.
#[derive(Clone, Debug)]
struct KnobRow {
    first: Value,
    now: Value,
    /// The decision that set `now`, and the name of its lead by `SettingRows::totals`.
    step: Step,
    lead: Option<usize>,
    /// Times and jobs.
    row: SettingReport,
}

impl SettingReport {
    fn key(&self) -> (String, Vec<String>) {
        (self.what.clone(), self.of.clone())
    }

    fn add(&mut self, [jobs, late]: [u64; 2]) {
        let (all, late_ones) = match self.until_s {
            None => (&mut self.jobs_with, &mut self.late_with),
            Some(_) => (&mut self.jobs_without, &mut self.late_without),
        };
        (*all, *late_ones) = (*all + jobs, *late_ones + late);
    }

    /// Begins or goes on at `t_s`, in seconds of the run, if it `stands`; else ends.
    fn turn(&mut self, t_s: f64, stands: bool) {
        if stands && self.until_s.is_some() {
            self.since_s = t_s;
        }
        self.until_s = (!stands).then_some(t_s);
    }
}

impl SettingRows {
    /// Takes the number of jobs of each task over the whole run so far, start-up included, and of late ones; always in
    /// the same order, in which later tasks are the last.
    pub(crate) fn count<'t>(&mut self, tasks: impl Iterator<Item = (&'t str, [u64; 2])>) {
        for (at, (task, totals)) in tasks.enumerate() {
            if at == self.totals.len() {
                self.totals.push((task.to_owned(), [0; 2]));
            }
            let counted = &mut self.totals[at].1;
            let more = [0, 1].map(|of| totals[of].saturating_sub(counted[of]));
            *counted = [0, 1].map(|of| counted[of] + more[of]);
            let rows = self
                .rows
                .values_mut()
                .filter(|row| row.tasks.iter().any(|it| it == task));
            let knobs = self.knobs.values_mut().map(|knob| &mut knob.row);
            rows.chain(knobs).for_each(|row| row.add(more));
        }
    }

    /// As [`count`](Self::count), of all tasks.
    pub(crate) fn figures(&mut self, tasks: &[TaskReport]) {
        let totals = |task: &TaskReport| [task.jobs + task.start_up.jobs, task.late + task.start_up.late];
        self.count(tasks.iter().map(|task| (&*task.name, totals(task))));
    }

    fn set(&mut self, t_s: f64, row: SettingReport) {
        let known = self.rows.entry(row.key()).or_insert_with(|| SettingReport {
            until_s: Some(t_s),
            tasks: Vec::new(),
            ..row.clone()
        });
        for task in row.tasks {
            if !known.tasks.contains(&task) {
                for (_, [jobs, late]) in self.totals.iter().filter(|(name, _)| *name == task) {
                    (known.jobs_without, known.late_without) = (known.jobs_without + jobs, known.late_without + late);
                }
                known.tasks.push(task);
            }
        }
        if known.until_s.is_some() {
            known.before = row.before;
        }
        known.turn(t_s, true);
        (known.now, known.why) = (row.now, row.why);
    }

    /// Takes a decision at `t_s`, by which the knobs go on from the plan `last`; `first` was the first one, `lead` is
    /// the task that the law follows.
    pub(crate) fn turn(&mut self, t_s: f64, step: &Step, [first, last]: [&Plan; 2], lead: Option<&str>) {
        for (knob, value) in step.plan.iter().filter(|(knob, value)| last.get(*knob) != Some(*value)) {
            let Some(found) = first.get(knob) else { continue };
            let stands = found != value;
            if stands && !self.knobs.contains_key(&knob) {
                let mut row = SettingReport {
                    until_s: Some(t_s),
                    ..SettingReport::default()
                };
                self.totals.iter().for_each(|(_, totals)| row.add(*totals));
                let (first, now, step) = (found, value, step.clone());
                self.knobs.insert(
                    knob,
                    KnobRow {
                        first,
                        now,
                        step,
                        lead: None,
                        row,
                    },
                );
            }
            let Some(known) = self.knobs.get_mut(&knob) else {
                continue;
            };
            known.row.turn(t_s, stands);
            if stands {
                let lead = lead.and_then(|lead| self.totals.iter().rposition(|(name, _)| name == lead));
                (known.now, known.step, known.lead) = (value, step.clone(), lead);
            }
        }
    }

    /// Takes the rows that stand at `t_s`, in place of all before.
    pub(crate) fn stand(&mut self, t_s: f64, rows: Vec<SettingReport>) {
        let keys: BTreeSet<_> = rows.iter().map(SettingReport::key).collect();
        for (_, row) in self.rows.iter_mut().filter(|(key, _)| !keys.contains(key)) {
            row.until_s = row.until_s.or(Some(t_s));
        }
        rows.into_iter().for_each(|row| self.set(t_s, row));
        if self.rows.len() > ROWS_MAX {
            self.rows.retain(|_, row| row.until_s.is_none());
        }
    }

    /// The rows, oldest first; things with the same setting for the same reason are one row, which has the names of at
    /// most `names` of them.
    pub(crate) fn reports(&self, names: usize) -> Vec<SettingReport> {
        let tasks: BTreeSet<_> = self.totals.iter().map(|(task, _)| task).collect();
        let told = |(knob, it): (&KnobId, &KnobRow)| SettingReport {
            what: knob.to_string(),
            before: it.first.to_string(),
            now: it.now.to_string(),
            tasks: tasks.iter().copied().cloned().collect(),
            why: reason(&it.step, it.lead.map(|lead| self.totals[lead].0.as_str())),
            ..it.row.clone()
        };
        let knobs: Vec<_> = self.knobs.iter().map(told).collect();
        let mut merged = BTreeMap::<_, SettingReport>::new();
        for row in self.rows.values().chain(&knobs) {
            let key = (
                &row.what,
                &row.before,
                &row.now,
                &row.why,
                &row.tasks,
                row.until_s.is_some(),
            );
            let same = merged.entry(key).and_modify(|it| {
                it.since_s = it.since_s.min(row.since_s);
                it.until_s = it.until_s.zip(row.until_s).map(|(a, b)| a.max(b));
                if it.of.len() < names {
                    it.of.extend(row.of.iter().cloned());
                } else {
                    it.more += 1;
                }
            });
            same.or_insert_with(|| row.clone());
        }
        let mut merged: Vec<SettingReport> = merged.into_values().collect();
        merged.sort_by(|a, b| a.since_s.total_cmp(&b.since_s));
        merged
    }
}

/// Reason of a decision.
fn reason(step: &Step, lead: Option<&str>) -> String {
    match (&step.fallback, step.shedding, lead) {
        (Some(reason), _, _) => format!("fallback: {reason}"),
        (_, Some(review), _) if !review.helped => "given back, because shedding updates did not help".into(),
        (_, _, Some(task)) => format!(
            "{task} is furthest from its goal, {} of {} jobs late in the window",
            step.window.misses, step.window.jobs
        ),
        _ if step.stage_pressure > Some(1.0) => "a stage is beyond its goal".into(),
        _ => "no job in the window".into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_loop::{ModeName, Window};
    use punctual_platform::{KnobId, Value};
    use punctual_units::Share;

    use super::*;

    fn step(share: f64) -> Step {
        Step {
            window: Window {
                jobs: 5,
                misses: 2,
                ..Window::default()
            },
            lead: None,
            stage_pressure: None,
            plan: Plan::of(KnobId::BestEffortShare, Value::Share(Share::clamped(share))),
            mode: ModeName::Running,
            fallback: None,
            shedding: None,
        }
    }

    #[test]
    fn a_knob_has_a_row_with_its_last_reason_and_the_late_jobs_with_it() {
        let (mut rows, first) = (SettingRows::default(), step(0.5).plan);
        let mut last = first;
        let mut turn = |t_s, share, totals: [u64; 2]| {
            let drive = (t_s > 6.0).then_some(("drive", [5, 2]));
            rows.count([("vision", totals)].into_iter().chain(drive));
            rows.turn(t_s, &step(share), [&first, &last], Some("vision"));
            last = step(share).plan;
            rows.reports(3).pop()
        };
        assert_eq!(turn(1.0, 0.5, [10, 4]), None);
        turn(2.0, 0.3, [20, 8]);
        let row = turn(6.0, 0.1, [50, 9]).unwrap();
        assert_eq!((row.before.as_str(), row.now.as_str()), ("50.0 %", "10.0 %"));
        assert_eq!((row.since_s, row.until_s), (2.0, None));
        let jobs = |row: &SettingReport| [row.jobs_with, row.late_with, row.jobs_without, row.late_without];
        assert_eq!(jobs(&row), [30, 1, 20, 8]);
        assert_eq!(row.tasks, ["vision"]);
        assert!(
            row.why.contains("vision") && row.why.contains("2 of 5 jobs late"),
            "{row:?}"
        );
        // The first jobs of a task that came meanwhile count as with it.
        let row = turn(8.0, 0.5, [60, 9]).unwrap();
        assert_eq!((row.until_s, jobs(&row)), (Some(8.0), [45, 3, 20, 8]));
        assert_eq!(
            (row.now.as_str(), row.tasks.as_slice()),
            ("10.0 %", &["drive", "vision"].map(String::from)[..])
        );
        let row = turn(9.0, 0.2, [70, 12]).unwrap();
        assert_eq!((row.since_s, row.until_s, jobs(&row)), (9.0, None, [45, 3, 30, 11]));
    }

    fn held(of: &str, now: &str) -> SettingReport {
        SettingReport {
            what: "cores of".into(),
            of: vec![of.into()],
            before: "0-1".into(),
            now: now.into(),
            tasks: vec!["drive".into()],
            ..SettingReport::default()
        }
    }

    #[test]
    fn things_with_the_same_setting_are_one_row_and_one_that_is_back_another() {
        let mut rows = SettingRows::default();
        rows.stand(1.0, vec![held("a", "0"), held("b", "0"), held("c", "1")]);
        rows.stand(2.0, vec![held("b", "0"), held("c", "1"), held("d", "0")]);
        let of: Vec<_> = rows
            .reports(3)
            .into_iter()
            .map(|row| (row.of.concat(), row.until_s))
            .collect();
        assert_eq!(of, [("bd".into(), None), ("a".into(), Some(2.0)), ("c".into(), None)]);
        assert!(rows.reports(1).iter().any(|row| row.of == ["b"] && row.more == 1));
        let before = "0-3".to_string();
        rows.stand(
            3.0,
            vec![SettingReport {
                before,
                ..held("a", "0")
            }],
        );
        let again = rows.reports(3).into_iter().find(|row| row.of == ["a"]).unwrap();
        assert_eq!(
            (again.since_s, again.until_s, again.before.as_str()),
            (3.0, None, "0-3")
        );
    }

    #[test]
    fn jobs_of_a_task_that_is_added_anew_under_its_name_count_at_once() {
        let (mut rows, ended) = (SettingRows::default(), ("drive", [100, 10]));
        rows.count([ended].into_iter());
        rows.stand(1.0, vec![held("a", "0")]);
        rows.count([ended, ("drive", [3, 1])].into_iter());
        rows.count([ended, ("drive", [5, 1])].into_iter());
        let row = rows.reports(3).pop().unwrap();
        assert_eq!(
            [row.jobs_with, row.late_with, row.jobs_without, row.late_without],
            [5, 1, 100, 10]
        );
    }

    proptest! {
        /// Each job counts once, with the setting or without it, however often that comes and goes.
        #[test]
        fn jobs_with_and_without_add_up(looks in prop::collection::vec((any::<bool>(), 0u64..50, 0u64..50), 1..40)) {
            let (mut rows, mut now, mut with, mut stood, mut any) =
                (SettingRows::default(), [0, 0], [0, 0], false, false);
            for (at, (stands, late, on_time)) in looks.into_iter().enumerate() {
                let more = [late + on_time, late];
                now = [0, 1].map(|of| now[of] + more[of]);
                with = if stood { [0, 1].map(|of| with[of] + more[of]) } else { with };
                rows.count([("drive", now)].into_iter());
                rows.stand(at as f64, if stands { vec![held("a", "0")] } else { Vec::new() });
                (stood, any) = (stands, any || stands);
            }
            let row = rows.reports(3).pop();
            prop_assert_eq!(row.is_some(), any);
            if let Some(row) = row {
                prop_assert_eq!([row.jobs_with, row.late_with], with);
                prop_assert_eq!([row.jobs_with + row.jobs_without, row.late_with + row.late_without], now);
            }
        }
    }
}
