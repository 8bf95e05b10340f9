//! The keeper: the ordinary thread that starts all others, executes callers' commands, and restores the machine.
//!
//! Its threads are scoped: none of them outlives it, so the machine is restored after the last of them, however a run
//! ends. Callers send [`Command`]s to it; it sends [`Order`]s to the control thread, which never make that thread wait.

mod task_list;
mod threads;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use punctual_cores::{LendingLog, PlacementRequest};
use punctual_loop::{AdmissionSetup, EventLog, LOG_VERSION, MadeFor, Regulator, RegulatorOptions};
use punctual_os::LinuxOs;
use punctual_platform::linux::exclusive::{ExclusiveCore, GroupUse, check_groups, check_interrupts};
use punctual_platform::linux::probe::GapProbe;
use punctual_platform::linux::thread::Tid;
use punctual_platform::linux::{KernelTree, busy, thread};
use punctual_platform::{KnobId, Machine, Plan, Refusal, Value};
use punctual_store::engine::Engine;
use punctual_store::{Store, StoreError};
use punctual_units::{Clock, Nanos, Share, TaskId};
use punctual_workload::{Goal, Pace};

pub use self::task_list::TASKS_MAX;
use self::task_list::{Roster, at, first_core};
use self::threads::Ward;
use super::control::{Control, Controlled, Told};
use super::exclusive::{Exclusive, Placed, limits_beside};
use super::feeder::install;
use super::seats::Seated;
use super::service::{Figures, Learnt, TaskHandle};
use super::shared::{Shared, ThreadGroup, ThreadStart, join, protection};
use super::tasks::sleep_until;
use super::tenancy::{Accountant, Observer};
use super::witness::Witness;
use super::{
    CONTROL_PRIORITY, FEEDER_PRIORITY, LEAD, PROBE_PERIOD, PROBE_PRIORITY, Prepared, RunOptions, STEPS_MAX, TOLD_MAX,
    TaskSetup, UPDATER_PRIORITY,
};
use crate::collector::{Collector, Ending};
use crate::error::RuntimeError;
use crate::figures::Watched;
use crate::learn::Learning;
use crate::report::{Finished, LendingReport, Protection, RunHeader};
use crate::under_way::UnderWay;

/// Command from a caller to the keeper.
pub(super) enum Command<E: Engine> {
    /// Add a task to the run.
    Add(Box<TaskSetup<E>>, SyncSender<Result<TaskHandle, RuntimeError>>),
    /// Run a thread of this process on a core, beside the tasks.
    Seat(String, PlacementRequest, Tid, SyncSender<Result<Seated, RuntimeError>>),
    /// Return the figures so far.
    Tell(SyncSender<Figures>),
    /// Learn a model of the running tasks, and control by it.
    Learn(Learning, SyncSender<Result<(), RuntimeError>>),
}

/// Input of the keeper's thread.
pub(super) struct Keeper<E: Engine> {
    pub(super) prepared: Prepared<E>,
    pub(super) options: RunOptions,
    pub(super) shared: Arc<Shared>,
    pub(super) commands: Receiver<Command<E>>,
    /// Notified when all threads have started.
    pub(super) started: SyncSender<RunHeader>,
    /// Receives the control thread's messages.
    pub(super) watcher: Option<SyncSender<Told>>,
}

/// Results of a run, after all threads have ended.
struct Ran {
    controlled: Controlled,
    regulator: RegulatorOptions,
    record: Option<AdmissionSetup>,
    /// Decisions about lending each exclusive core.
    lending: Vec<LendingLog>,
    /// Lending report of each exclusive core.
    lent: Vec<LendingReport>,
}

impl<E: Engine + 'static> Keeper<E> {
    /// Runs to the end, and restores the machine.
    pub(super) fn run(mut self) -> Result<Finished, RuntimeError> {
        self.shared.enter();
        let result = self.keep();
        let left_over = self.prepared.machine.restore();
        let mut finished = match (result, left_over.first()) {
            (Err(error), Some(left)) => {
                return Err(RuntimeError::NotPutBack {
                    error: Box::new(error),
                    left: left.clone(),
                });
            }
            (result, _) => result?,
        };
        let notes = &mut finished.report.summary.notes;
        notes.extend(left_over.iter().map(|refusal| format!("not put back: {refusal}")));
        Ok(finished)
    }

    fn keep(&mut self) -> Result<Finished, RuntimeError> {
        check_groups(
            &KernelTree::default(),
            &self.prepared.neighbours.lend_to,
            GroupUse::Lent,
        )?;
        check_groups(
            &KernelTree::default(),
            &self.prepared.neighbours.share_with,
            GroupUse::Shared,
        )?;
        check_interrupts(&KernelTree::default(), &self.prepared.neighbours)?;
        let limits = limits_beside(&self.prepared.neighbours)?;
        let obtained = &mut self.options.header.protection;
        let requests = self.prepared.requests();
        let placed = Placed::take(
            &self.prepared.machine,
            &requests,
            &self.prepared.neighbours,
            self.prepared.keep_cores,
            limits,
            obtained,
        )
        .map_err(|error| {
            let name = error.task().map_or("placement", |task| &requests[task].0).to_owned();
            RuntimeError::Place { name, error }
        })?;
        let Placed {
            placement, exclusive, ..
        } = &placed;
        let taken = exclusive.iter().flat_map(Exclusive::cores).next();
        let probed = taken.map_or(placement.update_core(), |core| core.obtained().core);
        let probe = self.options.probe.then(|| match taken {
            Some(core) => GapProbe::start_within(core, PROBE_PRIORITY, PROBE_PERIOD),
            None => GapProbe::start(probed, PROBE_PRIORITY, PROBE_PERIOD),
        });
        let running = probe.as_ref().and_then(|probe| probe.as_ref().ok());
        let mut witness = Witness::new(probed, running);
        for (task, seat) in placement.seats.iter().enumerate() {
            let judged = self.prepared.tasks[task].class.deadline().is_some();
            obtained.extend(witness.watch(TaskId(task as u32), first_core(seat), judged));
        }
        obtained.push(protection("memory locked".into(), thread::lock_memory()));
        let guarded = guarded(self.prepared.machine.guarded());
        obtained.push(protection(
            "guardian puts the machine back after a kill".into(),
            guarded,
        ));
        obtained.extend(probe.as_ref().map(|probe| {
            let started = probe.as_ref().map(drop).map_err(Clone::clone);
            protection("probe on the real-time core".into(), started)
        }));
        let share = self.options.best_effort_share;
        let turned = self.options.regulator.best_effort.is_some();
        let bounded = self.bound_best_effort(share, turned, placement.rest.len());
        self.options.header.protection.extend(bounded);
        let steal = stolen();
        let cores = self.prepared.machine.offers().cores.len();
        let ran = self.run_threads(placed, witness);
        thread::unlock_memory();
        let Ran {
            controlled,
            regulator,
            record,
            lending,
            lent,
        } = ran?;

        let store = &self.prepared.store;
        let elapsed = LinuxOs.now().since(regulator.start);
        let ending = Ending {
            counts: store.counts(),
            reconciliation: store.reconcile(),
            energy_parts_j: None,
            controller_core_share: Some(controlled.cpu.ratio(elapsed)),
            probe_us: running.map(oversleep_us),
            steal_share: steal
                .zip(stolen())
                .map(|(before, after)| after.saturating_sub(before).ratio(elapsed * cores as u64)),
        };
        let log = record.zip(controlled.log).map(|(admission, steps)| EventLog {
            version: LOG_VERSION,
            regulator: Some(regulator),
            steps,
            admission,
            updates: store.take_admission_log(),
            lending,
            mapping: None,
            clocks: None,
            backlogs: Vec::new(),
        });
        let mut report = controlled.collector.finish(ending);
        report.lending = lent;
        Ok(Finished { report, log })
    }

    /// Bounds best-effort work for the run, if it has a bound or the loop sets one.
    fn bound_best_effort(&mut self, share: Share, turned: bool, cores: usize) -> Option<Protection> {
        if share == Share::ONE && !turned {
            return None;
        }
        let machine = &mut self.prepared.machine;
        let bound = machine.best_effort().runs_on(cores);
        let plan = Plan::of(KnobId::BestEffortShare, Value::Share(share));
        let bound = bound.and_then(|()| match machine.apply(&plan).refused.pop() {
            Some((_, refusal)) => Err(refusal),
            None => Ok(()),
        });
        Some(protection(
            format!("best-effort work bounded to {share} of {cores} cores"),
            bound,
        ))
    }

    /// Starts every thread, executes commands until the run ends, and collects the threads' results.
    fn run_threads(&mut self, placed: Placed, mut witness: Witness<'_>) -> Result<Ran, RuntimeError> {
        let RunOptions {
            mut header,
            mut regulator,
            pace,
            patience,
            duration,
            seed,
            record,
            best_effort_share,
            learning,
            probe: _,
        } = self.options.clone();
        let prepared = &mut self.prepared;
        regulator.goals = prepared.tasks.iter().map(|task| task.asks(regulator.goal)).collect();
        let turned = best_effort_share < Share::ONE || regulator.best_effort.is_some();
        let bounded = turned.then(|| prepared.machine.best_effort());
        let plan = Regulator::new(regulator.clone())?.plan();
        let (tell, told) = sync_channel(TOLD_MAX);
        let watched = watched(&prepared.tasks, regulator.goal);
        let Placed {
            placement,
            exclusive,
            limits,
            kept,
        } = placed;
        // Kept to the end of the run: dropping the last handle would end the sweep for threads that start meanwhile.
        let kept_cores: Vec<ExclusiveCore> = exclusive.iter().flat_map(Exclusive::cores).cloned().collect();
        let accountants = exclusive.as_ref().map(Exclusive::accountants).unwrap_or_default();
        let (house, update_core) = (placement.house(), placement.update_core());
        if let Err(refusal) = prepared.machine.share_core(update_core) {
            let refused = protection(refusal.what.clone(), Err(refusal));
            header.protection.push(refused);
        }
        let roster = Roster {
            cores: prepared.machine.offers().cores.clone(),
            exclusive: kept_cores,
            limits,
            kept,
            guests: Vec::new(),
            bounded,
            goal: regulator.goal,
            seed,
            settle_s: header.settle_s,
            tasks: Vec::new(),
        };
        let requests = prepared.requests();
        let tasks = std::mem::take(&mut prepared.tasks);
        let under_way = UnderWay::new(tasks.iter().map(|task| task.class.deadline()));
        let (feed, group_commit) = (prepared.feed.take(), prepared.group_commit);
        let (machine, store, shared) = (&mut prepared.machine, &*prepared.store, &*self.shared);
        store.set_admitted_share(plan.share(KnobId::AdmittedShare).unwrap_or(Share::ONE));
        if record.is_some() {
            if duration.is_some() {
                store.keep_admission_log();
            }
            accountants.iter().for_each(Accountant::record);
        }

        std::thread::scope(|scope| {
            let mut ward = Ward {
                group: ThreadGroup::new(scope),
                shared,
                roster,
                threads: Vec::new(),
                asking: Vec::new(),
                learning: None,
                learnt: Learnt::NotAsked,
                base: regulator.clone(),
                base_pace: pace,
                made_for: made_for(&header, store, pace),
            };
            ward.start(tasks, &requests, &placement, exclusive)?;
            let mut feeding = None;
            if let Some(feed) = feed {
                // The feeder first: the updater waits for its end.
                let feeder = at("feeder", house, Some(FEEDER_PRIORITY));
                feeding = Some(
                    ward.group
                        .spawn(feeder, move |thread| feed.run(store, shared, thread))?,
                );
            } else {
                shared.feed_over.store(true, std::sync::atomic::Ordering::Release);
            }
            let mut installing = None;
            if store.objects() > 0 {
                let updater = at("updater", update_core, Some(UPDATER_PRIORITY));
                installing = Some(
                    ward.group
                        .spawn(updater, move |thread| install(store, shared, thread))?,
                );
            }
            let mut flushing = None;
            if let Some(interval) = group_commit {
                let committer = at("group commit", house, None);
                let flush = move |thread| flush(store, shared, thread, interval);
                flushing = Some(ward.group.spawn(committer, flush)?);
            }

            // The control thread comes last: its report begins with a header that lists what all threads obtained.
            header.protection.extend(ward.group.ready());
            let start = LinuxOs.now() + LEAD;
            regulator.start = start;
            let mut collector = Collector::new(header.clone(), watched, start, plan);
            if regulator.excite.is_some() {
                collector = collector.learning();
            } else if duration.is_none() {
                collector = collector.lasting();
            }
            witness.count(ward.group.take_real_time());
            let control = Control {
                machine,
                store,
                shared,
                regulator: Regulator::new(regulator.clone())?,
                collector,
                pace,
                patience,
                until: duration.map_or(punctual_units::Time::MAX, |duration| start + duration),
                told: tell,
                witness,
                figures_due: start,
                states: ward.roster.tasks.iter().map(|kept| Arc::clone(&kept.state)).collect(),
                record: None,
                last: None,
                rebalance_due: start,
                log: record.is_some().then(Vec::new),
                log_max: duration.map_or(STEPS_MAX, |_| usize::MAX),
                unlogged: 0,
                under_way,
            };
            let control = ward
                .group
                .spawn(at("control", house, Some(CONTROL_PRIORITY)), |thread| {
                    control.run(thread)
                })?;
            let control_obtained = ward.group.ready();
            header.protection.extend(control_obtained.iter().cloned());
            ward.group.go(start);
            let observer = Observer::start(accountants.clone());
            if let Some(learning) = learning {
                ward.learn(learning)?;
            }
            // The caller that started the runtime may have gone; the run continues until it is stopped.
            let _ = self.started.send(header);
            ward.obey(&self.commands, &told, self.watcher.take(), store);

            let controlled = join(control);
            shared.stop();
            drop(observer);
            ward.threads.drain(..).for_each(join);
            let fed = feeding.and_then(join);
            let installed = installing.and_then(join);
            let flushed = flushing.and_then(join);
            // Updates that were installed after the last group.
            let flushed = flushed.or_else(|| group_commit.and_then(|_| store.commit_group().err()));
            ward.roster.guests.clear();
            let mut controlled = controlled.ok_or(RuntimeError::Stopped)?;
            if let Some(error) = fed.or(installed).or(flushed) {
                return Err(error.into());
            }
            controlled.close(control_obtained, &ward.roster.states(), shared);
            if let Learnt::Failed(why) = &ward.learnt {
                controlled
                    .collector
                    .note(format!("nothing was learnt, so it went on as before: {why}"));
            }
            let ended = store.readers_ended();
            if let Some(last) = ended.last {
                let count = ended.count;
                controlled.collector.note(format!(
                    "readers that were ended because they stood in the way of writers: {count}; {last}"
                ));
            }
            let lent = |accountant: &Accountant| [accountant.trouble(), accountant.told()];
            for note in accountants.iter().flat_map(lent).flatten() {
                controlled.collector.note(note);
            }
            let lending: Vec<LendingLog> = accountants.iter().map(Accountant::log).collect();
            for log in lending.iter().filter(|log| record.is_some() && log.lost > 0) {
                let (lost, core) = (log.lost, log.core);
                let note = format!("{lost} decisions about lending core {core} found no room in the log");
                controlled.collector.note(note);
            }
            Ok(Ran {
                controlled,
                regulator,
                record,
                lending,
                lent: accountants.iter().map(Accountant::report).collect(),
            })
        })
    }
}

/// Properties of each task that the report needs.
fn watched<E: Engine>(tasks: &[TaskSetup<E>], goal: Goal) -> Vec<Watched> {
    tasks.iter().map(|task| task.watched(goal)).collect()
}

fn made_for<E: Engine>(header: &RunHeader, store: &Store<E, LinuxOs>, pace: Pace) -> MadeFor {
    MadeFor {
        scenario: header.scenario.clone(),
        platform: header.platform.name().into(),
        pace,
        update_mode: match store.group_interval() {
            Some(_) => punctual_workload::UpdateMode::MemoryFirst,
            None => punctual_workload::UpdateMode::Transaction,
        },
        machine: None,
        shipped: false,
    }
}

fn guarded(watched: bool) -> Result<(), Refusal> {
    if watched {
        return Ok(());
    }
    Err(Refusal {
        what: "guardian".into(),
        why: "the process could not be forked, or the guardian has ended".into(),
        remedy: "a kill would leave the clock and CPU shares as they are: run `punctual doctor` afterwards".into(),
    })
}

/// Commits memory-first updates in groups until the run ends, then once more. Returns the first error.
fn flush<E: Engine>(
    store: &Store<E, LinuxOs>,
    shared: &Shared,
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

/// Host time in which the hypervisor ran something else, over all cores; `None` if the kernel does not report it.
fn stolen() -> Option<Nanos> {
    let times = busy::read(&KernelTree::default()).ok()?;
    Some(times.iter().map(|core| core.steal).sum())
}

/// Oversleep of the probe in microseconds: median, p99, maximum.
fn oversleep_us(probe: &GapProbe) -> [f64; 3] {
    let seen = probe.summary();
    [seen.p50, seen.p99, seen.max].map(Nanos::as_micros_f64)
}
