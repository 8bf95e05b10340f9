//! Changes of the machine that the ledger has of this run, each with the tasks that it is for and the reason.

use punctual_cores::Seat;
use punctual_os::LinuxOs;
use punctual_platform::linux::journal::{Journal, Property, StandingChange};
use punctual_units::{Clock, Nanos, Time};
use punctual_workload::Class;

use super::task_list::{TaskEntry, TaskList};
use crate::report::SettingReport;
use crate::settings::SettingRows;

/// Interval between two looks, if no thread comes or goes: a busy desktop has hundreds of threads off a core.
const LOOK_EVERY: Nanos = Nanos::from_secs(1);

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

    /// Looks at the ledger, if that is due.
    pub(super) fn look(&mut self, list: &TaskList) {
        let now = LinuxOs.now();
        if now >= self.due {
            self.due = now + LOOK_EVERY;
            let standing = self.journal.standing().into_iter();
            let rows = standing.map(|change| Holdings::row(change, list)).collect();
            self.rows.stand(now.since(self.start).as_secs_f64(), rows);
        }
    }

    /// Row of a change, with the tasks for which it was made, and the reason.
    fn row(change: StandingChange, list: &TaskList) -> SettingReport {
        let guest = { list.guests.iter() }.find(|guest| guest.thread.is_some() && guest.thread == change.thread);
        let alone = |seat: &Seat| matches!(seat, Seat::Exclusive(_));
        // Of the tasks: all with a goal, those with an exclusive core, or none.
        let (all, exclusive, why) = match (change.property, guest.map(|guest| guest.request.class)) {
            (_, Some(Class::RealTime { .. })) => (false, false, "class = \"real-time\"".into()),
            (_, Some(_)) => (false, false, "class = \"exclusive\"".into()),
            (Property::CpuTime, _) => (true, false, "[best_effort]".into()),
            (Property::Clock, _) => (true, false, "the controller turns the clock".into()),
            (Property::Cache, _) => (true, false, "[allocation]".into()),
            (Property::Entry, _) => (false, false, "groups and files of the run itself".into()),
            _ => (false, true, "class = \"exclusive\"".into()),
        };
        let beside = list.guests.iter().filter(|guest| exclusive && alone(&guest.seat));
        let guests = guest.into_iter().chain(beside).flat_map(|guest| &guest.tasks);
        let meant = |task: &&TaskEntry| all && task.goal.is_some() || exclusive && alone(&task.seat);
        let own = list.tasks.iter().filter(meant);
        let tasks = guests.map(|task| &list.tasks[task.index()]).chain(own);
        SettingReport {
            what: change.property.name().into(),
            of: vec![change.of],
            before: change.before,
            now: change.now,
            tasks: tasks.map(|task| task.name.clone()).collect(),
            why,
            ..SettingReport::default()
        }
    }
}
