//! The threads of a run: started together, then joined for their results.
//!
//! The threads of the tasks start first, then those of the store, and the control thread last: its report begins with a
//! header that lists what all threads obtained.

use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::thread::{Scope, ScopedJoinHandle};

use punctual_cores::Placement;
use punctual_loop::{AdmissionSetup, DeciderSetup, EventLog, Regulator};
use punctual_os::LinuxOs;
use punctual_platform::linux::LinuxMachine;
use punctual_platform::{KnobId, Plan};
use punctual_store::engine::Engine;
use punctual_store::{Store, StoreError};
use punctual_units::{Clock, Nanos, Share, TaskId, Time};

use super::holdings::Holdings;
use super::task_list::{TaskList, at};
use super::threads::RunThreads;
use crate::collector::Collector;
use crate::error::RuntimeError;
use crate::figures::TaskInfo;
use crate::frames::FrameEvents;
use crate::linux::control::{Control, ControlMessage, ControlResult};
use crate::linux::exclusive::{Exclusive, TaskPlacement};
use crate::linux::feeder::{Feed, install};
use crate::linux::reported::ReportedTask;
use crate::linux::shared::{RunState, ThreadGroup, ThreadStart, join};
use crate::linux::starvation::Roster;
use crate::linux::tasks::sleep_until;
use crate::linux::tenancy::{Accountant, Observer};
use crate::linux::witness::Witness;
use crate::linux::{
    CONTROL_PRIORITY, FEEDER_PRIORITY, RunOptions, RuntimeBuilder, STEPS_MAX, UPDATER_PRIORITY, first_release,
};
use crate::report::{LendingReport, Protection, RunHeader};

/// Results of a run, after all threads have ended.
pub(super) struct RunResult {
    pub(super) controlled: ControlResult,
    /// When the tasks began.
    pub(super) start: Time,
    pub(super) record: Option<AdmissionSetup>,
    /// Decisions about lending each exclusive core.
    pub(super) lending: Vec<EventLog>,
    /// Lending report of each exclusive core.
    pub(super) lent: Vec<LendingReport>,
    /// Changes of the machine that the ledger had.
    pub(super) settings: crate::settings::SettingRows,
}

/// A run whose threads have started.
pub(super) struct StartedRun<'scope, 'env, E: Engine> {
    /// Threads of the tasks, to which callers may add.
    pub(super) threads: RunThreads<'scope, 'env, E>,
    store_threads: StoreThreads<'scope>,
    /// Takes the reports of other programs' jobs; returns notes on them.
    reports: Option<ScopedJoinHandle<'scope, Vec<String>>>,
    control: ScopedJoinHandle<'scope, Option<ControlResult>>,
    /// Protections of the control thread, which its own report does not list yet.
    control_obtained: Vec<Protection>,
    observer: Observer,
    accountants: Vec<Accountant>,
    start: Time,
    record: Option<AdmissionSetup>,
}

impl<'scope, 'env, E: Engine + 'static> StartedRun<'scope, 'env, E> {
    /// Starts every thread. Returns the run, and its header with what the threads obtained. `tell` takes the control
    /// thread's messages.
    pub(super) fn start(
        scope: &'scope Scope<'scope, 'env>,
        prepared: &'scope mut RuntimeBuilder<E>,
        mut options: RunOptions,
        shared: &'scope RunState,
        placed: TaskPlacement,
        witness: Witness<'scope>,
        (tell, roster): (SyncSender<ControlMessage>, Roster),
    ) -> Result<(Self, RunHeader), RuntimeError> {
        let goal = options.regulator.goal;
        let reported = prepared.reported.take();
        let of_reported = |task: &ReportedTask| task.watched(goal.tasks);
        let others: Vec<TaskInfo> = reported.iter().flat_map(|(_, tasks)| tasks).map(of_reported).collect();
        let asked = prepared.tasks.iter().map(|task| task.asks(goal));
        options.regulator.goals = asked.chain(others.iter().map(|task| Some(task.goal))).collect();
        let plan = Regulator::new(options.regulator.clone())?.plan();
        let accountants = placed
            .exclusive
            .as_ref()
            .map(Exclusive::accountants)
            .unwrap_or_default();
        let placement = &placed.placement;
        let list = TaskList::new(&prepared.machine, &options, &placed);
        let requests = prepared.requests();
        let journal = prepared.machine.journal().clone();
        let RuntimeBuilder {
            machine, store, tasks, ..
        } = prepared;
        let (store, tasks) = (&**store, std::mem::take(tasks));
        let input = LoopInput {
            watched: tasks.iter().map(|task| task.watched(goal)).chain(others).collect(),
            machine,
            plan,
            witness,
            tell,
        };
        store.set_admitted_share(plan.share(KnobId::AdmittedShare).unwrap_or(Share::ONE));
        if options.record.is_some() {
            if options.duration.is_some() {
                store.keep_admission_log();
            }
            accountants.iter().for_each(Accountant::record);
        }

        let holdings = Holdings::new(journal);
        let group = ThreadGroup::new(scope, roster);
        let mut threads = RunThreads::new(group, shared, store, list, &options, holdings);
        let making = LinuxOs.now();
        threads.start(tasks, &requests, placement, placed.exclusive)?;
        let reports = reported
            .map(|reported| threads.read_reports(reported, placement.house(), input.tell.clone()))
            .transpose()?;
        let store_threads = StoreThreads::start(
            &mut threads.group,
            store,
            shared,
            placement,
            prepared.feed.take(),
            prepared.group_commit,
        )?;
        options.header.protection.extend(threads.group.ready());
        let start = first_release(making);
        options.regulator.start = start;
        threads.holdings.start = start;
        let control = input.control(&options, &mut threads)?;
        let place = at("control", placement.house(), Some(CONTROL_PRIORITY));
        let control = threads.group.spawn(place, |thread| control.run(thread))?;
        let control_obtained = threads.group.ready();
        options.header.protection.extend(control_obtained.iter().cloned());
        threads.group.go(start);
        let observer = Observer::start(accountants.clone());
        if let Some(learning) = options.learning {
            threads.learn(learning)?;
        }
        let run = StartedRun {
            threads,
            store_threads,
            reports,
            control,
            control_obtained,
            observer,
            accountants,
            start,
            record: options.record,
        };
        Ok((run, options.header))
    }

    /// Waits for the end of every thread. Returns the results, or the first error of the store.
    pub(super) fn collect(mut self) -> Result<RunResult, RuntimeError> {
        let controlled = join(self.control);
        self.threads.shared.stop();
        drop(self.observer);
        self.threads.tasks.drain(..).for_each(join);
        let reported = self.reports.map(join).unwrap_or_default();
        let failed = self.store_threads.join(self.threads.store);
        self.threads.list.guests.clear();
        let mut controlled = controlled.ok_or(RuntimeError::Stopped)?;
        if let Some(error) = failed {
            return Err(error.into());
        }
        controlled.close(self.control_obtained, &self.threads.list.states(), self.threads.shared);
        let lending: Vec<EventLog> = self.accountants.iter().map(Accountant::log).collect();
        let unlogged = lending.iter().filter(|log| self.record.is_some() && log.lost > 0);
        let unlogged = unlogged.map(|log| {
            let (lost, about) = (log.lost, log.deciders[0].about());
            format!("{lost} decisions about {about} found no room in the log")
        });
        let lent = self.accountants.iter().filter_map(Accountant::trouble);
        for note in self
            .threads
            .notes()
            .into_iter()
            .chain(reported)
            .chain(lent)
            .chain(unlogged)
        {
            controlled.collector.note(note);
        }
        Ok(RunResult {
            controlled,
            start: self.start,
            record: self.record,
            lent: self.accountants.iter().map(Accountant::report).collect(),
            settings: self.threads.holdings.rows,
            lending,
        })
    }
}

/// Input of the control thread that is known before the tasks start.
struct LoopInput<'r> {
    machine: &'r mut LinuxMachine,
    plan: Plan,
    witness: Witness<'r>,
    tell: SyncSender<ControlMessage>,
    /// Properties of each task that the report needs.
    watched: Vec<TaskInfo>,
}

impl<'r> LoopInput<'r> {
    /// State of the control thread of a run whose tasks wait for their start, at `options.regulator.start`.
    fn control<E: Engine>(
        mut self,
        options: &RunOptions,
        threads: &mut RunThreads<'r, '_, E>,
    ) -> Result<Control<'r, E>, RuntimeError> {
        let (start, duration) = (options.regulator.start, options.duration);
        let mut collector = Collector::new(options.header.clone(), self.watched, start, self.plan)
            .stages(options.stages.iter().map(|stage| stage.name.clone()).collect());
        if options.regulator.excite.is_some() {
            collector = collector.learning();
        } else if duration.is_none() {
            collector = collector.lasting();
        }
        for number in 0..threads.list.tasks.len() {
            if let Some(schedule) = threads.list.schedule(number, start) {
                collector.schedule(TaskId(number as u32), schedule);
            }
        }
        self.witness.count(threads.group.take_real_time());
        let log = || {
            let setup = DeciderSetup::Tasks(Box::new(options.regulator.clone()));
            EventLog::of(setup, duration.map_or(STEPS_MAX, |_| usize::MAX))
        };
        Ok(Control {
            machine: self.machine,
            store: threads.store,
            shared: threads.shared,
            regulator: Regulator::new(options.regulator.clone())?,
            collector,
            pace: options.pace,
            patience: options.patience,
            until: duration.map_or(Time::MAX, |duration| start + duration),
            told: self.tell,
            witness: self.witness,
            clock: None,
            figures_due: start,
            states: threads.list.states().into_iter().map(|(_, state)| state).collect(),
            record: None,
            last: None,
            rebalance_due: start,
            log: options.record.is_some().then(log),
            frames: FrameEvents::of(options.stages.clone()),
            heard: start,
        })
    }
}

/// Threads that bring readings into the store and write them. Each returns its first error.
struct StoreThreads<'scope> {
    feeder: Option<ScopedJoinHandle<'scope, Option<StoreError>>>,
    updater: Option<ScopedJoinHandle<'scope, Option<StoreError>>>,
    committer: Option<ScopedJoinHandle<'scope, Option<StoreError>>>,
}

impl<'scope> StoreThreads<'scope> {
    /// Starts those of the threads that `store` needs: the feeder for a recording, the updater for temporal objects,
    /// the committer for groups of memory-first updates.
    fn start<E: Engine>(
        group: &mut ThreadGroup<'scope, '_>,
        store: &'scope Store<E, LinuxOs>,
        shared: &'scope RunState,
        placement: &Placement,
        feed: Option<Feed>,
        group_commit: Option<Nanos>,
    ) -> Result<Self, RuntimeError> {
        let mut threads = StoreThreads {
            feeder: None,
            updater: None,
            committer: None,
        };
        if let Some(feed) = feed {
            // The feeder first: the updater waits for its end.
            let place = at("feeder", placement.house(), Some(FEEDER_PRIORITY));
            threads.feeder = Some(group.spawn(place, move |thread| feed.run(store, shared, thread))?);
        } else {
            shared.feed_over.store(true, Ordering::Release);
        }
        if store.objects() > 0 {
            let place = at("updater", placement.update_core(), Some(UPDATER_PRIORITY));
            threads.updater = Some(group.spawn(place, move |thread| install(store, shared, thread))?);
        }
        if let Some(interval) = group_commit {
            let place = at("group commit", placement.house(), None);
            let flush = move |thread| flush(store, shared, thread, interval);
            threads.committer = Some(group.spawn(place, flush)?);
        }
        Ok(threads)
    }

    /// Waits for the end of the threads. Returns the first error of the feeder, else the updater's, else the
    /// committer's.
    fn join<E: Engine>(self, store: &Store<E, LinuxOs>) -> Option<StoreError> {
        let fed = self.feeder.and_then(join);
        let installed = self.updater.and_then(join);
        // Updates that were installed after the last group, or into a mapped file alone.
        let rest = || store.commit_group().err();
        let flushed = match self.committer {
            Some(committer) => join(committer).or_else(rest),
            None => store.medium().and_then(|_| rest()),
        };
        fed.or(installed).or(flushed)
    }
}

/// Commits memory-first updates in groups until the run ends, then once more. Returns the first error.
fn flush<E: Engine>(
    store: &Store<E, LinuxOs>,
    shared: &RunState,
    thread: ThreadStart,
    interval: Nanos,
) -> Option<StoreError> {
    let mut wake = thread.start()?.at;
    loop {
        wake = wake + interval;
        let going_on = sleep_until(wake, || !shared.stopping());
        match store.commit_group() {
            // Updates that were not written are written with the next group.
            Ok(_) | Err(StoreError::LockTimeout { .. } | StoreError::TooManyWaiters) => {}
            Err(error) => {
                shared.stop();
                return Some(error);
            }
        }
        if !going_on {
            return None;
        }
        // After a standstill one group is enough.
        wake = wake.max(LinuxOs.now());
    }
}
