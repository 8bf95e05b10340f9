//! The keeper: the ordinary thread that starts all others, executes callers' commands, and restores the machine.
//!
//! Its threads are scoped: none of them outlives it, so the machine is restored after the last of them, however a run
//! ends. Callers send [`Command`]s to it; it sends [`Order`]s to the control thread, which never make that thread wait.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread::ScopedJoinHandle;

use punctual_cores::{LendingLog, Limits, PlaceError, Placement, PlacementRequest, Seat, Unfit, place};
use punctual_loop::{AdmissionSetup, EventLog, LOG_VERSION, MadeFor, Regulator, RegulatorOptions};
use punctual_os::LinuxOs;
use punctual_platform::linux::exclusive::{ExclusiveCore, GroupUse, check_groups, check_interrupts};
use punctual_platform::linux::probe::GapProbe;
use punctual_platform::linux::thread::{AsFound, Tid, set_scheduling};
use punctual_platform::linux::{BestEffort, KernelTree, busy, thread};
use punctual_platform::{KnobId, Machine, Plan, Refusal, Value};
use punctual_store::engine::Engine;
use punctual_store::{Store, StoreError};
use punctual_units::{Clock, CoreId, Nanos, Share, TaskId};
use punctual_workload::{Class, Goal, Pace, TaskGoal};
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::control::{Control, Controlled, Standing, Told};
use super::exclusive::{Exclusive, Placed, kept, limits_beside, priority};
use super::feeder::install;
use super::seats::{Place, Seated};
use super::service::{Figures, Learnt, TaskHandle};
use super::shared::{Order, Shared, Tenure, ThreadGroup, ThreadPlace, ThreadStart, join, protection};
use super::tasks::{Running, TaskState, sleep_until};
use super::tenancy::{Accountant, Observer};
use super::witness::Witness;
use super::{
    CONTROL_PRIORITY, FEEDER_PRIORITY, LEAD, PROBE_PERIOD, PROBE_PRIORITY, Prepared, RunOptions, SILENCE, STEPS_MAX,
    TOLD_MAX, TaskSetup, UPDATER_PRIORITY,
};
use crate::collector::{Collector, Ending};
use crate::error::RuntimeError;
use crate::figures::{TaskFigures, Watched};
use crate::learn::{Learning, Record};
use crate::report::{Finished, LendingReport, Protection, RunHeader};
use crate::under_way::UnderWay;

/// Interval at which the keeper reads the control thread's messages, if no caller sends a command.
const TURN: Nanos = Nanos::from_millis(20);

/// Greatest number of tasks in a runtime's life, ended ones included: each keeps its figures to the end.
pub const TASKS_MAX: usize = 256;

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

/// State of the keeper during the run.
struct Ward<'scope, 'env> {
    group: ThreadGroup<'scope, 'env>,
    shared: &'scope Shared,
    roster: Roster,
    threads: Vec<ScopedJoinHandle<'scope, ()>>,
    /// Callers that wait for figures.
    asking: Vec<SyncSender<Figures>>,
    /// Options of the model being learnt, if any.
    learning: Option<Learning>,
    learnt: Learnt,
    /// Options of the loop without a learnt model.
    base: RegulatorOptions,
    base_pace: Pace,
    made_for: MadeFor,
}

impl<'scope> Ward<'scope, '_> {
    /// Starts the tasks that were added before the run.
    fn start<E: Engine + 'static>(
        &mut self,
        tasks: Vec<TaskSetup<E>>,
        requests: &[(String, PlacementRequest)],
        placement: &Placement,
        mut exclusive: Option<Exclusive>,
    ) -> Result<(), RuntimeError> {
        for ((task, (_, request)), seat) in tasks.into_iter().zip(requests).zip(&placement.seats) {
            let tenancy = match seat {
                Seat::Exclusive(chair) => exclusive.as_mut().and_then(|exclusive| exclusive.tenancy(chair.core)),
                Seat::RealTime(_) | Seat::BestEffort(_) => None,
            };
            self.spawn(task, *request, seat.clone(), tenancy)?;
        }
        Ok(())
    }

    fn spawn<E: Engine + 'static>(
        &mut self,
        task: TaskSetup<E>,
        request: PlacementRequest,
        seat: Seat,
        tenancy: Option<super::tenancy::Tenancy>,
    ) -> Result<(TaskId, Arc<TaskState>), RuntimeError> {
        let id = TaskId(self.roster.tasks.len() as u32);
        let state = Arc::clone(&task.state);
        let place = self.roster.thread_place(&task.name, &seat);
        let goal = task.asks(self.roster.goal);
        let running = Running {
            id,
            deadline: task.class.deadline(),
            arrival: task.arrival,
            events: task.events,
            active: task.active,
            body: task.body,
            rng: Xoshiro256PlusPlus::seed_from_u64(self.roster.seed.wrapping_add(u64::from(id.0))),
            tenancy,
            state: Arc::clone(&state),
            accounts: None,
        };
        let (store, shared) = (task.store, self.shared);
        let thread = self
            .group
            .spawn(place, move |thread| running.run(&store, shared, thread))?;
        self.threads.push(thread);
        self.roster.tasks.push(Kept {
            name: task.name,
            request,
            seat,
            goal,
            state: Arc::clone(&state),
        });
        Ok((id, state))
    }

    /// Executes commands until the control thread ends.
    fn obey<E: Engine + 'static>(
        &mut self,
        commands: &Receiver<Command<E>>,
        told: &Receiver<Told>,
        watcher: Option<SyncSender<Told>>,
        store: &Store<E, LinuxOs>,
    ) {
        loop {
            match commands.recv_timeout(TURN.into()) {
                Ok(command) => self.carry_out(command),
                Err(RecvTimeoutError::Timeout) => {}
                // The last handle was dropped in one of our own threads: the run is being stopped.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(TURN.into()),
            }
            loop {
                match told.try_recv() {
                    Ok(told) => self.hear(told, watcher.as_ref(), store),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            self.threads.retain(|thread| !thread.is_finished());
        }
    }

    fn carry_out<E: Engine + 'static>(&mut self, command: Command<E>) {
        // A caller that has gone away does not get the answer, but the command is still executed.
        match command {
            Command::Add(task, answer) => drop(answer.send(self.add(*task))),
            Command::Seat(name, request, thread, answer) => drop(answer.send(self.seat(name, request, thread))),
            Command::Learn(learning, answer) => drop(answer.send(self.learn(learning))),
            Command::Tell(answer) => {
                self.asking.push(answer);
                self.shared.order(Order::Tell);
            }
        }
    }

    fn hear<E: Engine>(&mut self, told: Told, watcher: Option<&SyncSender<Told>>, store: &Store<E, LinuxOs>) {
        match told {
            Told::Standing(standing) => {
                let figures = self.figures(*standing, store);
                for caller in self.asking.drain(..) {
                    let _ = caller.try_send(figures.clone());
                }
            }
            Told::Recorded(record) => self.learnt(record),
            told => {
                if let Some(watcher) = watcher {
                    // A watching caller may be slow; the run does not wait for it.
                    let _ = watcher.try_send(told);
                }
            }
        }
    }

    fn figures<E: Engine>(&self, standing: Standing, store: &Store<E, LinuxOs>) -> Figures {
        let Standing { at, tasks, plan, step } = standing;
        Figures {
            running_for: at.since(self.base.start),
            tasks,
            mode: step.as_ref().map(|step| step.mode).unwrap_or_default(),
            fallback: step.and_then(|step| step.fallback),
            admitted: plan.share(KnobId::AdmittedShare).unwrap_or(Share::ONE),
            clock: plan.clock(),
            updates: store.counts(),
            learnt: self.learnt.clone(),
        }
    }

    /// Adds a task to the run.
    fn add<E: Engine + 'static>(&mut self, task: TaskSetup<E>) -> Result<TaskHandle, RuntimeError> {
        let (seat, request, told) = self.roster.seat(&task.name, task.request())?;
        let (name, watched) = (task.name.clone(), task.watched(self.roster.goal));
        let goal = task.asks(self.roster.goal);
        let core = first_core(&seat);
        let (id, state) = self.spawn(task, request, seat, None)?;
        let obtained: Vec<Protection> = told.into_iter().chain(self.group.ready()).collect();
        self.roster.reorder();
        self.shared.order(Order::Watch {
            task: id,
            goal,
            figures: TaskFigures::new(watched, self.roster.settle_s).map(Box::new),
            state: Arc::clone(&state),
            core,
            real_time: self.group.take_real_time(),
            obtained,
        });
        self.group.go(LinuxOs.now() + LEAD);
        Ok(TaskHandle::new(name, state))
    }

    /// Runs a thread of this process on a core, beside the tasks.
    fn seat(&mut self, name: String, request: PlacementRequest, thread: Tid) -> Result<Seated, RuntimeError> {
        self.roster.guests.retain(|guest| guest.place.is_taken());
        let (seat, request, told) = self.roster.seat(&name, request)?;
        let found = AsFound::of(thread)?;
        let chair = seat.chair().ok_or(RuntimeError::Stopped)?;
        let core = match seat {
            Seat::Exclusive(_) => self.roster.taken(chair.core).cloned(),
            Seat::RealTime(_) | Seat::BestEffort(_) => None,
        };
        let (place, seated) = Place::seat(&name, found, chair.core, core, priority(chair), told);
        self.roster.guests.push(Guest {
            name,
            request,
            seat,
            place,
        });
        self.roster.reorder();
        Ok(seated)
    }

    /// Begins to move the knobs through their levels.
    fn learn(&mut self, learning: Learning) -> Result<(), RuntimeError> {
        let refused = |why: String| RuntimeError::Learning { why };
        if self.learning.is_some() {
            return Err(refused(
                "a model is being learnt already: wait until Figures::learnt says that it is over".into(),
            ));
        }
        let top = self.base.offers.clock().map(|clock| clock.top());
        let record = learning.record(top).map_err(refused)?;
        let options = RegulatorOptions {
            excite: Some(learning.levels(top.is_some())),
            ..self.base.clone()
        };
        self.switch(options, Pace::Period(learning.period), Some(record))?;
        self.learning = Some(learning);
        self.learnt = Learnt::UnderWay;
        Ok(())
    }

    /// The record is complete: controls by the learnt model or, if there is none, as before.
    fn learnt(&mut self, record: Record) {
        let Some(learning) = self.learning.take() else { return };
        let pace = Pace::Period(learning.period);
        let made_for = MadeFor {
            pace,
            ..self.made_for.clone()
        };
        let law = record.learn(made_for).and_then(|(kind, design)| {
            let options = RegulatorOptions {
                kind,
                design: Some(design),
                silence: SILENCE,
                ..self.base.clone()
            };
            let switched = self.switch(options, pace, None).map_err(|error| error.to_string());
            switched.map(|()| kind)
        });
        self.learnt = match law {
            Ok(kind) => Learnt::Controls(kind),
            Err(why) => {
                // Cannot fail: the loop ran with these options before.
                let _ = self.switch(self.base.clone(), self.base_pace, None);
                Learnt::Failed(why)
            }
        };
    }

    fn switch(&mut self, options: RegulatorOptions, pace: Pace, record: Option<Record>) -> Result<(), RuntimeError> {
        let regulator = Regulator::new(RegulatorOptions {
            goals: self.roster.goals(),
            start: LinuxOs.now(),
            warm_up: Nanos::ZERO,
            ..options
        })?;
        self.shared.order(Order::Switch {
            regulator: Box::new(regulator),
            pace,
            record,
        });
        Ok(())
    }
}

/// The tasks of a run, and the input of their placement.
struct Roster {
    cores: Vec<CoreId>,
    exclusive: Vec<ExclusiveCore>,
    limits: Limits,
    /// Exclusive cores for tasks and threads that come later.
    kept: Vec<CoreId>,
    /// Threads of the caller, not of the runtime.
    guests: Vec<Guest>,
    bounded: Option<BestEffort>,
    goal: Goal,
    seed: u64,
    settle_s: f64,
    /// Indexed by number, ended tasks included.
    tasks: Vec<Kept>,
}

/// A thread of the caller, on the core that it was given.
struct Guest {
    name: String,
    request: PlacementRequest,
    seat: Seat,
    place: Arc<Place>,
}

impl Drop for Guest {
    /// Runs before the machine is restored, because the sweep of the thread's core would undo the restored affinity.
    fn drop(&mut self) {
        self.place.give_back();
    }
}

struct Kept {
    name: String,
    request: PlacementRequest,
    seat: Seat,
    goal: Option<TaskGoal>,
    state: Arc<TaskState>,
}

impl Kept {
    fn runs(&self) -> bool {
        self.state.ended().is_none()
    }

    /// The task's request, fixed to its present core.
    fn settled(&self) -> PlacementRequest {
        settled(self.request, &self.seat)
    }
}

/// Turns `request` into one for the class and core of `seat`.
fn settled(request: PlacementRequest, seat: &Seat) -> PlacementRequest {
    let class = match (seat, request.class) {
        // An exclusive task that was refused a core.
        (Seat::RealTime(_), Class::Exclusive { deadline }) => Class::RealTime { deadline },
        (_, class) => class,
    };
    PlacementRequest {
        class,
        core: Some(first_core(seat)),
        ..request
    }
}

impl Roster {
    /// Places a new task beside the running ones, which stay on their cores. Returns its seat, the request after any
    /// downgrade, and the refusal.
    fn seat(
        &self,
        name: &str,
        request: PlacementRequest,
    ) -> Result<(Seat, PlacementRequest, Option<Protection>), RuntimeError> {
        let refused = |why: String| RuntimeError::Task {
            name: name.to_owned(),
            why,
        };
        if self.tasks.len() == TASKS_MAX {
            return Err(refused(format!(
                "{TASKS_MAX} tasks were added to this runtime, and their figures are kept: use one task with changing jobs, or start another runtime"
            )));
        }
        if self.running().any(|kept| kept.name == name) || self.seated().any(|guest| guest.name == name) {
            return Err(refused(
                "a task of this name runs already: stop it first, or choose another name".into(),
            ));
        }
        let (request, told) = match request.class {
            Class::Exclusive { deadline } => match self.seat_exclusively(request) {
                Ok(seat) => return Ok((seat, request, None)),
                Err(why) => {
                    let (class, core) = (Class::RealTime { deadline }, None);
                    (PlacementRequest { class, core, ..request }, Some(no_core(name, why)))
                }
            },
            Class::RealTime { .. } | Class::BestEffort => (request, None),
        };
        let (_, seat) = self.place_beside(request).map_err(|error| RuntimeError::Place {
            name: name.to_owned(),
            error,
        })?;
        Ok((seat, request, told))
    }

    /// Place on the first reserved core that admits the request, or the reason why none does.
    fn seat_exclusively(&self, request: PlacementRequest) -> Result<Seat, String> {
        let meant = |core: &&CoreId| request.core.is_none_or(|named| named == **core);
        let mut why = "no core is kept for tasks and threads that come later".to_owned();
        for core in self.kept.iter().filter(meant) {
            let core = Some(*core);
            match self.place_beside(PlacementRequest { core, ..request }) {
                Ok((_, seat @ Seat::Exclusive(_))) => return Ok(seat),
                Ok((Some(unfit), _)) => why = unfit.to_string(),
                Ok((None, _)) => {}
                Err(error) => why = error.to_string(),
            }
        }
        Err(why)
    }

    /// Places `request` beside everything that runs; the first value says why it was refused what it asked for.
    fn place_beside(&self, request: PlacementRequest) -> Result<(Option<Unfit>, Seat), PlaceError> {
        let mut requests = self.requests();
        let new = requests.len();
        requests.push(request);
        let placement = self.place(&requests)?;
        let unfit = placement.refused.into_iter().find(|(task, _)| *task == new);
        Ok((unfit.map(|(_, why)| why), placement.seats[new].clone()))
    }

    /// Requests of the running tasks, then of the callers' threads, fixed to their cores.
    fn requests(&self) -> Vec<PlacementRequest> {
        let guests = self.seated().map(|guest| settled(guest.request, &guest.seat));
        self.running().map(Kept::settled).chain(guests).collect()
    }

    fn seated(&self) -> impl Iterator<Item = &Guest> {
        self.guests.iter().filter(|guest| guest.place.is_taken())
    }

    fn taken(&self, core: CoreId) -> Option<&ExclusiveCore> {
        self.exclusive.iter().find(|taken| taken.obtained().core == core)
    }

    fn running(&self) -> impl Iterator<Item = &Kept> {
        self.tasks.iter().filter(|kept| kept.runs())
    }

    /// Places `requests`, and keeps empty reserved cores reserved.
    fn place(&self, requests: &[PlacementRequest]) -> Result<Placement, PlaceError> {
        let exclusive = |request: &&PlacementRequest| matches!(request.class, Class::Exclusive { .. });
        let used: Vec<CoreId> = requests
            .iter()
            .filter(exclusive)
            .filter_map(|request| request.core)
            .collect();
        let empty = self.kept.iter().filter(|core| !used.contains(core));
        let all: Vec<PlacementRequest> = requests
            .iter()
            .copied()
            .chain(empty.map(|core| kept(Some(*core))))
            .collect();
        place(&all, &self.cores, &self.limits)
    }

    /// Sets the priorities of all real-time threads anew, from all tasks that run now. A thread whose priority is
    /// refused keeps its old one: the report of its start says what it obtained.
    fn reorder(&mut self) {
        let Ok(placement) = self.place(&self.requests()) else {
            return;
        };
        let mut seats = placement.seats.into_iter();
        let rank = |seat: &Seat| seat.chair().map(|chair| chair.rank);
        for kept in self.tasks.iter_mut().filter(|kept| kept.runs()) {
            let Some(seat) = seats.next() else { return };
            let moved = rank(&kept.seat) != rank(&seat);
            if let (true, Some(tid), Some(chair)) = (moved, kept.state.thread(), seat.chair()) {
                let _ = set_scheduling(tid, thread::Scheduling::Fifo(priority(chair)));
            }
            kept.seat = seat;
        }
        for guest in self.guests.iter_mut().filter(|guest| guest.place.is_taken()) {
            let Some(seat) = seats.next() else { return };
            if let (true, Some(chair)) = (rank(&guest.seat) != rank(&seat), seat.chair()) {
                guest.place.set_priority(priority(chair));
            }
            guest.seat = seat;
        }
    }

    fn thread_place(&self, name: &str, seat: &Seat) -> ThreadPlace {
        let thread = at(name, first_core(seat), seat.chair().map(priority));
        let exclusive = |core: CoreId| self.taken(core);
        match seat {
            Seat::RealTime(_) => thread,
            Seat::Exclusive(chair) => ThreadPlace {
                tenure: exclusive(chair.core).cloned().map(Tenure::Occupant),
                ..thread
            },
            Seat::BestEffort(_) => ThreadPlace {
                bounded: self.bounded.clone(),
                // A thread that is kept off one of the exclusive cores is kept off all.
                tenure: self.exclusive.first().cloned().map(Tenure::Lendee),
                ..thread
            },
        }
    }

    /// Goal of each task, by its number; `None` for best-effort ones.
    fn goals(&self) -> Vec<Option<TaskGoal>> {
        self.tasks.iter().map(|kept| kept.goal).collect()
    }

    fn states(&self) -> Vec<(String, Arc<TaskState>)> {
        let state = |kept: &Kept| (kept.name.clone(), Arc::clone(&kept.state));
        self.tasks.iter().map(state).collect()
    }
}

/// Report entry: a task or thread runs as a real-time one, because it has no exclusive core.
fn no_core(name: &str, why: String) -> Protection {
    let what = format!("{name}: on a core of its own");
    let refusal = Refusal {
        what: what.clone(),
        why,
        remedy: "keep a core for it when the runtime starts (keep_cores), and say how long it takes (takes_at_most)"
            .into(),
    };
    protection(what, Err(refusal))
}

fn first_core(seat: &Seat) -> CoreId {
    seat.cores().first().copied().unwrap_or_default()
}

fn at(role: &str, core: CoreId, priority: Option<u8>) -> ThreadPlace {
    ThreadPlace {
        role: role.into(),
        core,
        priority,
        bounded: None,
        tenure: None,
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
