//! Changes of the machine that the ledger has of this run, each with the tasks that it is for and the reason.

use punctual_cores::Seat;
use punctual_platform::linux::journal::{Journal, Property, StandingChange};
use punctual_units::{Nanos, Time};
use punctual_workload::Class;

use super::task_list::{TaskEntry, TaskList};
use crate::report::SettingReport;
use crate::settings::SettingRows;

/// Interval between two looks, if no thread comes or goes: a busy desktop has hundreds of threads off a core.
const LOOK_EVERY: Nanos = Nanos::from_secs(1);
/// Delay of a look after threads have come or gone, which brings many together: a look takes the ledger's lock, and a
/// knob that is turned meanwhile is written without the ledger.
const LOOK_SOON: Nanos = Nanos::from_millis(500);

/// The run's changes so far.
pub(super) struct Holdings {
    pub(super) rows: SettingRows,
    journal: Journal,
    /// Start of the run, from which times count.
    pub(super) start: Time,
    /// When the next look is due.
    pub(super) due: Time,
}

impl Holdings {
    pub(super) fn new(journal: Journal) -> Holdings {
        Holdings {
            rows: SettingRows::default(),
            journal,
            start: Time::ZERO,
            due: Time::ZERO,
        }
    }

    /// Makes a look due soon, because threads have come or gone.
    pub(super) fn look_soon(&mut self, now: Time) {
        self.due = self.due.min(now + LOOK_SOON);
    }

    /// Looks at the ledger, but not while others have it: the next turn looks again. A run that `is_ending` has put a
    /// part of its changes back.
    pub(super) fn look(&mut self, now: Time, list: &TaskList, is_ending: impl Fn() -> bool) {
        let standing = self.journal.standing();
        if let Some(standing) = standing.filter(|_| !is_ending()) {
            self.due = now + LOOK_EVERY;
            let rows = standing.into_iter().map(|change| Holdings::row(change, list));
            self.rows.stand(now.since(self.start).as_secs_f64(), rows.collect());
        }
    }

    /// Row of a change, with the tasks for which it was made, and the reason.
    fn row(change: StandingChange, list: &TaskList) -> SettingReport {
        let guest = { list.guests.iter() }.find(|guest| guest.thread.is_some() && guest.thread == change.thread);
        let core = (change.property == Property::Core).then_some(&change.of);
        let alone = |seat: &Seat| matches!(seat, Seat::Exclusive(chair) if core.is_none_or(|core| *core == chair.core.to_string()));
        // Of the tasks: all with a goal, those with an exclusive core, or none.
        let (all, exclusive, why) = match (change.property, guest.map(|guest| guest.request.class)) {
            (_, Some(Class::RealTime { .. })) => (false, false, "class = \"real-time\"".into()),
            (_, Some(_)) => (false, false, "class = \"exclusive\"".into()),
            (Property::CpuTime, _) => (true, false, "[best_effort]".into()),
            (Property::Clock, _) => (true, false, "the controller turns the clock".into()),
            (Property::Cache, _) => (true, false, "[allocation]".into()),
            (Property::Core | Property::Scheduling | Property::Cores | Property::Idle, _) => {
                (false, true, "class = \"exclusive\"".into())
            }
            _ => (false, false, "means of the run itself".into()),
        };
        let beside = list.guests.iter().filter(|guest| exclusive && alone(&guest.seat));
        let guests = guest.into_iter().chain(beside).flat_map(|guest| &guest.tasks);
        let meant = |task: &&TaskEntry| all && task.goal.is_some() || exclusive && alone(&task.seat);
        let own = list.tasks.iter().filter(meant);
        let tasks = guests.map(|task| &list.tasks[task.index()]).chain(own);
        let tasks: Vec<String> = tasks.map(|task| task.name.clone()).collect();
        let kept = core.is_some() && tasks.is_empty();
        SettingReport {
            what: change.property.name().into(),
            of: vec![change.of],
            before: change.before,
            now: change.now,
            tasks,
            why: if kept {
                "kept for later (keep_cores)".into()
            } else {
                why
            },
            ..SettingReport::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_come_and_go_make_a_look_due_once_in_half_a_second() {
        let mut holdings = Holdings::new(Journal::alone().unwrap());
        holdings.due = Time::ZERO + LOOK_EVERY;
        let due = [100, 200, 900].map(|at| {
            holdings.look_soon(Time::ZERO + Nanos::from_millis(at));
            holdings.due
        });
        assert_eq!(due, [Time::ZERO + Nanos::from_millis(600); 3]);
    }
}
