//! The keeper: the ordinary thread that starts all others, executes callers' commands, and restores the machine.
//!
//! Its threads are scoped: none of them outlives it, so the machine is restored after the last of them, however a run
//! ends. Callers send [`KeeperCommand`]s to it; it sends [`Order`]s to the control thread, which never make that thread
//! wait.

mod holdings;
mod run;
mod task_list;
mod threads;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use punctual_cores::PlacementRequest;
use punctual_loop::{DeciderEvent, DeciderSetup, EventLog};
use punctual_os::LinuxOs;
use punctual_platform::linux::exclusive::{GroupUse, check_groups, check_interrupts};
use punctual_platform::linux::journal::changed_since;
use punctual_platform::linux::probe::GapProbe;
use punctual_platform::linux::thread::Tid;
use punctual_platform::linux::{KernelTree, busy, thread};
use punctual_platform::{KnobId, Machine, Plan, Refusal, Value};
use punctual_store::engine::Engine;
use punctual_units::{Clock, Nanos, Share, TaskId};

use self::run::{RunResult, StartedRun};
pub use self::task_list::TASKS_MAX;
use self::task_list::first_core;
use super::control::ControlMessage;
use super::exclusive::{AskedTasks, Exclusive, TaskPlacement, limits_beside};
use super::seats::CorePin;
use super::service::{RuntimeFigures, TaskHandle};
use super::shared::{RunState, protection};
use super::starvation::{Relieving, Roster};
use super::witness::Witness;
use super::{PROBE_PERIOD, PROBE_PRIORITY, RunOptions, RuntimeBuilder, TOLD_MAX, TaskSetup};
use crate::collector::Ending;
use crate::error::RuntimeError;
use crate::learn::Learning;
use crate::report::{FinishedRun, Protection, RunHeader};

/// Cores of which thread switches are recorded for tasks without a core, each in memory of 256 KiB.
const WATCHED_MAX: usize = 16;

/// Command from a caller to the keeper.
pub(super) enum KeeperCommand<E: Engine> {
    /// Add a task to the run.
    Add(Box<TaskSetup<E>>, SyncSender<Result<TaskHandle, RuntimeError>>),
    /// Run a thread of this process on a core, beside the tasks.
    Seat(String, PlacementRequest, Tid, SyncSender<Result<CorePin, RuntimeError>>),
    /// Return the figures so far.
    Tell(SyncSender<RuntimeFigures>),
    /// Learn a model of the running tasks, and control by it.
    Learn(Learning, SyncSender<Result<(), RuntimeError>>),
}

/// Input of the keeper's thread.
pub(super) struct Keeper<E: Engine> {
    pub(super) prepared: RuntimeBuilder<E>,
    pub(super) options: RunOptions,
    pub(super) shared: Arc<RunState>,
    pub(super) commands: Receiver<KeeperCommand<E>>,
    /// Notified when all threads have started.
    pub(super) started: SyncSender<RunHeader>,
    /// Receives the control thread's messages.
    pub(super) watcher: Option<SyncSender<ControlMessage>>,
}

impl<E: Engine + 'static> Keeper<E> {
    /// Runs to the end, and restores the machine.
    pub(super) fn run(mut self) -> Result<FinishedRun, RuntimeError> {
        self.shared.enter();
        let result = self.keep();
        let left_over = self.prepared.machine.restore();
        // A knob that another program has made its own needs no restoring.
        let failed = left_over.iter().find(|refusal| !changed_since(refusal));
        let mut finished = match (result, failed) {
            (Err(error), Some(left)) => {
                return Err(RuntimeError::NotPutBack {
                    error: Box::new(error),
                    left: left.clone(),
                });
            }
            (result, _) => result?,
        };
        let notes = &mut finished.report.summary.notes;
        notes.extend(left_over.iter().map(|refusal| format!("not restored: {refusal}")));
        Ok(finished)
    }

    fn keep(&mut self) -> Result<FinishedRun, RuntimeError> {
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
        let requests = self.prepared.requests();
        let (machine, keep) = (&self.prepared.machine, &self.prepared.keep_cores);
        let asked = AskedTasks::new(machine, &requests, keep, &self.options.header.load);
        let obtained = &mut self.options.header.protection;
        let placed = TaskPlacement::take(&asked, &self.prepared.neighbours, limits, obtained)?;
        let TaskPlacement {
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
        obtained.extend(witness.watch_core(placement.house()));
        if self.prepared.reported.is_some() {
            // Threads of other programs run where the kernel puts them.
            let cores = machine.offers().cores.iter().take(WATCHED_MAX);
            cores.for_each(|core| obtained.extend(witness.watch_core(*core)));
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
        let RunResult {
            controlled,
            start,
            record,
            lending,
            lent,
            mut settings,
        } = ran?;

        let store = &self.prepared.store;
        let elapsed = LinuxOs.now().since(start);
        let ending = Ending {
            counts: store.counts(),
            reconciliation: store.reconcile(),
            energy_parts_j: None,
            controller_core_share: Some(controlled.cpu.ratio(elapsed)),
            probe_us: running.map(oversleep_us),
            filled_cores: controlled.filled_cores,
            steal_share: steal
                .zip(stolen())
                .map(|(before, after)| after.saturating_sub(before).ratio(elapsed * cores as u64)),
        };
        let log = record.zip(controlled.log).map(|(admission, mut log)| {
            let mut updates = EventLog::of(DeciderSetup::Updates(admission), usize::MAX);
            for step in store.take_admission_log() {
                updates.note(step.now, DeciderEvent::Updates(step.event), step.admitted);
            }
            log.join(updates);
            lending.into_iter().for_each(|lending| log.join(lending));
            log
        });
        let mut report = controlled.collector.finish(ending);
        let joined = self.prepared.machine.journal().joined();
        report
            .summary
            .notes
            .extend(joined.map(|refusal| format!("not kept: {refusal}")));
        report.lending = lent;
        settings.figures(&report.tasks);
        report.settings.splice(..0, settings.reports(usize::MAX));
        Ok(FinishedRun { report, log })
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
    fn run_threads(&mut self, placed: TaskPlacement, witness: Witness<'_>) -> Result<RunResult, RuntimeError> {
        let (prepared, shared, options) = (&mut self.prepared, &*self.shared, self.options.clone());
        let (tell, told) = sync_channel(TOLD_MAX);
        let roster = Roster::default();
        let relieving = Relieving::start(roster.clone(), Arc::clone(&self.shared))?;
        let ran = std::thread::scope(|scope| {
            let to = (tell, roster);
            let (mut run, header) = StartedRun::start(scope, prepared, options, shared, placed, witness, to)?;
            // The caller that started the runtime may have gone; the run continues until it is stopped.
            let _ = self.started.send(header);
            run.threads.obey(&self.commands, &told, self.watcher.take());
            run.collect()
        });
        let notes = relieving.end();
        let mut ran: RunResult = ran?;
        notes.into_iter().for_each(|note| ran.controlled.collector.note(note));
        Ok(ran)
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
