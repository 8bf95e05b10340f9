//! The announced real-time tasks of all holders, and which holder came to a core first.

use std::sync::atomic::Ordering;

use punctual_units::{CoreId, Nanos};

use super::{AnnouncedTask, CoreMask, HOLDERS, Holder, HolderId, TASKS, Table, Task};

impl Table {
    /// Announces `tasks` in place of those that the holder announced before; returns whether there was room for all.
    /// Holders of other processes with tasks on these cores have it recorded, where this one had no task before.
    pub(crate) fn announce(&mut self, id: HolderId, tasks: &[AnnouncedTask]) -> bool {
        if !self.knows(id) {
            return false;
        }
        let serial = self.next_serial();
        let mut since = [serial; TASKS];
        for (since, task) in since.iter_mut().zip(tasks) {
            *since = self.since(id, task.core).unwrap_or(serial);
        }
        self.withdraw_tasks(id.place);
        let Some(holder) = self.holder(id) else { return false };
        holder.announced = 1;
        let (pid, name) = (holder.pid, holder.name);
        let own = tasks.iter().zip(&since);
        let mut left = own.clone();
        for entry in &mut self.tasks {
            if entry.holder.load(Ordering::Acquire) != 0 {
                continue;
            }
            let Some((task, since)) = left.next() else { break };
            entry.core = task.core.0;
            entry.execution = task.execution.map_or(0, |execution| execution.0);
            (entry.deadline, entry.period, entry.since) = (task.deadline.0, task.period.0, *since);
            entry.holder.store(id.place as u32, Ordering::Release);
        }
        let has_room = left.next().is_none() && tasks.len() <= TASKS;
        for place in 0..HOLDERS {
            let joins = |theirs: &(usize, AnnouncedTask)| {
                let is_new = |(task, since): (&AnnouncedTask, &u64)| task.core == theirs.1.core && *since == serial;
                theirs.0 == place && own.clone().any(is_new)
            };
            let joined = self.tasks_of_others(pid).find(joins).map(|(_, task)| task.core);
            if let (Some(core), Some(holder)) = (joined, self.holders.get_mut(place)) {
                (holder.joined_by, holder.joined_core, holder.joined_name) = (pid, core.0, name);
            }
        }
        has_room
    }

    /// Withdraws from other holders that this one began work on a core where it has none: it went elsewhere before it
    /// began.
    pub(crate) fn unjoin(&mut self, id: HolderId) {
        let Some(pid) = self.holder(id).map(|holder| holder.pid) else {
            return;
        };
        let its: CoreMask = {
            let own = |place| self.holder_at(place).is_some_and(|holder| holder.pid == pid);
            let tasks = self.tasks().filter(|(place, _)| own(*place));
            tasks.map(|(_, task)| task.core).collect()
        };
        let joined = |holder: &&mut Holder| holder.joined_by == pid && !its.has(CoreId(holder.joined_core));
        self.holders.iter_mut().filter(joined).for_each(|it| it.joined_by = 0);
    }

    /// Serial number of the announcement since which the holder has had tasks on `core`; `None`: it has none there.
    fn since(&self, id: HolderId, core: CoreId) -> Option<u64> {
        let there = |task: &&Task| task.holder.load(Ordering::Acquire) as usize == id.place && task.core == core.0;
        self.tasks.iter().find(there).map(|task| task.since)
    }

    /// Whether the holder at `place` has had tasks on `core` for a shorter time than the holder `id`.
    pub(crate) fn came_later(&self, place: usize, id: HolderId, core: CoreId) -> bool {
        let theirs = HolderId { place, ..id };
        let (own, theirs) = (self.since(id, core), self.since(theirs, core));
        own.zip(theirs).is_some_and(|(own, theirs)| own < theirs)
    }

    pub(super) fn withdraw_tasks(&mut self, place: usize) {
        let its = self
            .tasks
            .iter()
            .filter(|task| task.holder.load(Ordering::Acquire) as usize == place);
        its.for_each(|task| task.holder.store(0, Ordering::Release));
    }

    /// All announced tasks, each with the index of its holder.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = (usize, AnnouncedTask)> {
        self.tasks.iter().filter_map(|task| {
            let announced = AnnouncedTask {
                core: CoreId(task.core),
                execution: (task.execution > 0).then_some(Nanos(task.execution)),
                deadline: Nanos(task.deadline),
                period: Nanos(task.period),
            };
            let place = task.holder.load(Ordering::Acquire) as usize;
            (place != 0).then_some((place, announced))
        })
    }

    /// The tasks that processes other than `pid` have announced.
    pub(crate) fn tasks_of_others(&self, pid: i32) -> impl Iterator<Item = (usize, AnnouncedTask)> {
        let other = move |place| self.holder_at(place).is_some_and(|holder| holder.pid != pid);
        self.tasks().filter(move |(place, _)| other(*place))
    }
}
