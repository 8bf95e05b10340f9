//! Threads of the tasks while the run lasts: the keeper executes callers' commands on them, and reads the control
//! thread's messages.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, channel};
use std::thread::ScopedJoinHandle;

use punctual_cores::{Placement, PlacementRequest, Seat};
use punctual_jobs::Listener;
use punctual_loop::{MadeFor, Regulator, RegulatorOptions};
use punctual_os::LinuxOs;
use punctual_platform::linux::exclusive::ExclusiveCore;
use punctual_platform::linux::thread::{AsFound, Guests, Tid, start_of};
use punctual_platform::{ClockOffer, KnobId, Refusal};
use punctual_store::Store;
use punctual_store::engine::Engine;
use punctual_units::{Clock, CoreId, Nanos, Share, TaskId};
use punctual_workload::{Arrival, Class, ControllerKind, Pace};

use super::KeeperCommand;
use super::holdings::Holdings;
use super::task_list::{Guest, TaskEntry, TaskList, at, first_core};
use crate::error::RuntimeError;
use crate::figures::TaskFigures;
use crate::learn::{Learning, Record};
use crate::linux::control::{ControlMessage, RunSnapshot};
use crate::linux::exclusive::{Exclusive, priority};
use crate::linux::reported::{GuestNotice, ReportReader, ReportedTask};
use crate::linux::seats::{CorePin, SavedThread};
use crate::linux::service::{LearningState, RuntimeFigures, TaskHandle};
use crate::linux::shared::{Order, RunState, ThreadGroup, protection};
use crate::linux::tasks::{ReadyTask, TaskState};
use crate::linux::tenancy::Tenancy;
use crate::linux::{FEEDER_PRIORITY, RunOptions, SILENCE, TaskSetup, first_release};
use crate::report::{NAMED_MAX, Protection, RunHeader};

/// Interval at which the keeper reads the control thread's messages, if no caller sends a command.
const TURN: Nanos = Nanos::from_millis(20);

/// Most settings that a watching caller gets, the oldest first: the report has all.
const SETTINGS_MAX: usize = 200;

/// Threads of the tasks, which callers may add to while the run lasts.
pub(super) struct RunThreads<'scope, 'env, E: Engine> {
    pub(super) group: ThreadGroup<'scope, 'env>,
    pub(super) shared: &'scope RunState,
    pub(super) store: &'scope Store<E, LinuxOs>,
    pub(super) list: TaskList,
    /// Tasks whose threads have not ended.
    pub(super) tasks: Vec<ScopedJoinHandle<'scope, ()>>,
    /// Callers that wait for figures.
    asking: Vec<SyncSender<RuntimeFigures>>,
    /// Options of the model being learnt, if any.
    learning: Option<Learning>,
    learnt: LearningState,
    /// Options and pace of the loop when no model is being learnt.
    base: (RegulatorOptions, Pace),
    made_for: MadeFor,
    /// Reporting threads of other programs that come and go.
    guests: Option<Receiver<GuestNotice>>,
    /// Changes that the ledger has of this run.
    pub(super) holdings: Holdings,
}

impl<'scope, 'env, E: Engine + 'static> RunThreads<'scope, 'env, E> {
    pub(super) fn new(
        group: ThreadGroup<'scope, 'env>,
        shared: &'scope RunState,
        store: &'scope Store<E, LinuxOs>,
        list: TaskList,
        options: &RunOptions,
        holdings: Holdings,
    ) -> Self {
        RunThreads {
            group,
            shared,
            store,
            list,
            tasks: Vec::new(),
            asking: Vec::new(),
            learning: None,
            learnt: LearningState::NotAsked,
            base: (options.regulator.clone(), options.pace),
            made_for: made_for(&options.header, store, options.pace),
            guests: None,
            holdings,
        }
    }

    /// Starts the tasks that were added before the run.
    pub(super) fn start(
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

    fn spawn(
        &mut self,
        task: TaskSetup<E>,
        request: PlacementRequest,
        seat: Seat,
        tenancy: Option<Tenancy>,
    ) -> Result<(TaskId, Arc<TaskState>), RuntimeError> {
        let number = self.list.tasks.len();
        let id = TaskId(number as u32);
        let state = Arc::clone(&task.state);
        let timed = task.events.is_none().then_some((task.arrival, task.active));
        let place = self.list.thread_place(&task.name, &seat);
        let goal = task.asks(self.list.goal);
        let running = ReadyTask {
            id,
            deadline: task.class.deadline(),
            arrival: task.arrival,
            events: task.events,
            active: task.active,
            body: task.body,
            rng: self.list.rng(number),
            tenancy,
            state: Arc::clone(&state),
            accounts: None,
        };
        let (store, shared) = (task.store, self.shared);
        let thread = self
            .group
            .spawn(place, move |thread| running.run(&store, shared, thread))?;
        self.tasks.push(thread);
        self.list.tasks.push(TaskEntry {
            name: task.name,
            request,
            seat,
            goal,
            is_reported: false,
            timed,
            state: Arc::clone(&state),
        });
        Ok((id, state))
    }

    /// Starts the thread that takes the reports of other programs' jobs, on `core`.
    pub(super) fn read_reports(
        &mut self,
        (listener, tasks): (Listener, Vec<ReportedTask>),
        core: CoreId,
        notes: SyncSender<ControlMessage>,
    ) -> Result<ScopedJoinHandle<'scope, Vec<String>>, RuntimeError> {
        let (tell, guests) = channel();
        self.guests = Some(guests);
        let mut reader = ReportReader::new(listener, tell, notes);
        for task in tasks {
            let (id, state) = (TaskId(self.list.tasks.len() as u32), Arc::<TaskState>::default());
            self.list.tasks.push(TaskEntry {
                name: task.name.clone(),
                request: PlacementRequest {
                    class: Class::BestEffort,
                    arrival: Arrival::Periodic { period: task.deadline },
                    execution: None,
                    core: None,
                    cores: None,
                },
                seat: Seat::BestEffort(vec![core]),
                goal: Some(task.goal.unwrap_or(self.list.goal.tasks)),
                is_reported: true,
                timed: None,
                state: Arc::clone(&state),
            });
            reader.add(id, task, state);
        }
        let (shared, place) = (self.shared, at("reports", core, Some(FEEDER_PRIORITY)));
        self.group.spawn(place, move |thread| reader.run(shared, thread))
    }

    /// Executes commands until the control thread ends.
    pub(super) fn obey(
        &mut self,
        commands: &Receiver<KeeperCommand<E>>,
        told: &Receiver<ControlMessage>,
        watcher: Option<SyncSender<ControlMessage>>,
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
                    Ok(told) => self.hear(told, watcher.as_ref()),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            self.receive_guests();
            self.retire();
            if LinuxOs.now() >= self.holdings.due {
                let is_ending = || self.shared.stopping();
                self.holdings.look(LinuxOs.now(), &self.list, is_ending);
            }
        }
    }

    /// Forgets tasks that have ended and threads that were given back, and announces the others.
    fn retire(&mut self) {
        let (tasks, guests) = (self.tasks.len(), self.list.guests.len());
        self.tasks.retain(|thread| !thread.is_finished());
        self.list.guests.retain(|guest| guest.place.is_taken());
        if (tasks, guests) != (self.tasks.len(), self.list.guests.len()) {
            self.list.reorder();
            self.holdings.look_soon(LinuxOs.now());
        }
    }

    fn carry_out(&mut self, command: KeeperCommand<E>) {
        // A caller that has gone away does not get the answer, but the command is still executed.
        match command {
            KeeperCommand::Add(task, answer) => drop(answer.send(self.add(*task))),
            KeeperCommand::Seat(name, request, thread, answer) => drop(answer.send(self.seat(name, request, thread))),
            KeeperCommand::Learn(learning, answer) => drop(answer.send(self.learn(learning))),
            KeeperCommand::Tell(answer) => {
                self.asking.push(answer);
                self.shared.order(Order::Tell);
            }
        }
    }

    fn hear(&mut self, told: ControlMessage, watcher: Option<&SyncSender<ControlMessage>>) {
        match told {
            ControlMessage::Standing(standing) => {
                let figures = self.figures(*standing);
                for caller in self.asking.drain(..) {
                    let _ = caller.try_send(figures.clone());
                }
            }
            ControlMessage::Recorded(record) => self.learnt(record),
            mut told => {
                match &mut told {
                    ControlMessage::Tasks(tasks) => self.holdings.rows.figures(tasks),
                    ControlMessage::Settings(rows) if watcher.is_some() => {
                        rows.splice(..0, self.holdings.rows.reports(NAMED_MAX));
                        rows.truncate(SETTINGS_MAX);
                    }
                    _ => {}
                }
                if let Some(watcher) = watcher {
                    // A watching caller may be slow; the run does not wait for it.
                    let _ = watcher.try_send(told);
                }
            }
        }
    }

    fn figures(&self, standing: RunSnapshot) -> RuntimeFigures {
        let RunSnapshot { at, tasks, plan, step } = standing;
        RuntimeFigures {
            running_for: at.since(self.base.0.start),
            tasks,
            mode: step.as_ref().map(|step| step.mode).unwrap_or_default(),
            fallback: step.and_then(|step| step.fallback),
            admitted: plan.share(KnobId::AdmittedShare).unwrap_or(Share::ONE),
            clock: plan.clock(),
            updates: self.store.counts(),
            learnt: self.learnt.clone(),
        }
    }

    /// Adds a task to the run.
    fn add(&mut self, task: TaskSetup<E>) -> Result<TaskHandle, RuntimeError> {
        let (seat, request, told) = self.list.seat(&task.name, task.request())?;
        let (name, watched) = (task.name.clone(), task.watched(self.list.goal));
        let goal = task.asks(self.list.goal);
        let core = first_core(&seat);
        let making = LinuxOs.now();
        let (id, state) = self.spawn(task, request, seat, None)?;
        let obtained: Vec<Protection> = told.into_iter().chain(self.group.ready()).collect();
        self.list.reorder();
        let start = first_release(making);
        self.shared.order(Order::Watch {
            task: id,
            goal,
            figures: TaskFigures::new(watched, self.list.settle_s).map(Box::new),
            schedule: self.list.schedule(id.index(), start).map(Box::new),
            state: Arc::clone(&state),
            core,
            real_time: self.group.take_real_time(),
            obtained,
        });
        self.group.go(start);
        Ok(TaskHandle::new(name, state))
    }

    /// Runs a thread of this process on a core, beside the tasks.
    fn seat(&mut self, name: String, request: PlacementRequest, thread: Tid) -> Result<CorePin, RuntimeError> {
        let (seat, request, told) = self.list.seat(&name, request)?;
        let found = AsFound::of(thread)?;
        let (place, seated) = self.settle(&name, &seat, (found, None), told)?;
        self.list.guests.push(Guest {
            name,
            request,
            seat,
            place,
            thread: None,
            tasks: Vec::new(),
        });
        self.list.reorder();
        Ok(seated)
    }

    /// Runs the thread of `found` on the core of `seat`.
    fn settle(
        &self,
        name: &str,
        seat: &Seat,
        found: (AsFound, Option<Guests>),
        told: Option<Protection>,
    ) -> Result<(Arc<SavedThread>, CorePin), RuntimeError> {
        let chair = seat.chair().ok_or(RuntimeError::Stopped)?;
        let core = self.exclusive(seat);
        Ok(SavedThread::seat(name, found, chair.core, core, priority(chair), told))
    }

    fn exclusive(&self, seat: &Seat) -> Option<ExclusiveCore> {
        match seat {
            Seat::Exclusive(chair) => self.list.taken(chair.core).cloned(),
            Seat::RealTime(_) | Seat::BestEffort(_) => None,
        }
    }

    /// Seats reporting threads of other programs that have come, and gives those back that have left.
    fn receive_guests(&mut self) {
        while let Some(notice) = self.guests.as_ref().and_then(|guests| guests.try_recv().ok()) {
            match notice.request {
                Some(request) => self.receive_guest(notice, request),
                None => self.list.dismiss(notice.thread, notice.task),
            }
            self.holdings.look_soon(LinuxOs.now());
        }
    }

    fn receive_guest(&mut self, notice: GuestNotice, request: PlacementRequest) {
        let (task, thread) = (notice.task, notice.thread);
        let name = self.list.tasks[task.index()].name.clone();
        let taken = self.list.guests.iter().any(|guest| guest.name == name);
        let name = if taken {
            format!("{name} (thread {thread})")
        } else {
            name
        };
        let (core, obtained) = match self.list.guest(thread) {
            // The thread has a core, and keeps it as long as it reports one of its tasks.
            Some(guest) => {
                guest.tasks.push(task);
                (Some(first_core(&guest.seat)), Vec::new())
            }
            None => match self.seat_guest(&name, request, notice) {
                Ok((core, obtained)) => (Some(core), obtained),
                Err(error) => (None, vec![unseated(&name, &error)]),
            },
        };
        let real_time = core.map(|core| (core, thread));
        self.shared.order(Order::Seated {
            task,
            real_time,
            obtained,
        });
    }

    fn seat_guest(
        &mut self,
        name: &str,
        request: PlacementRequest,
        notice: GuestNotice,
    ) -> Result<(CoreId, Vec<Protection>), RuntimeError> {
        let thread = notice.thread;
        // Before and after: until it is recorded, its number may become that of another program's thread.
        let is_it = || match start_of(notice.process, thread) {
            Some(started) if notice.started == Some(started) => Ok(()),
            _ => Err(Refusal {
                what: format!("running thread {thread} of process {} on a core", notice.process),
                why: "it has ended".into(),
                remedy: "it needs none any more".into(),
            }),
        };
        is_it()?;
        let (seat, request, told) = self.list.seat(name, request)?;
        let core = self.exclusive(&seat);
        // First, because in a group without the core the thread shows less than it will get back.
        if let Some(core) = &core {
            core.enter(thread)?;
        }
        let found = AsFound::of_guest(thread).inspect_err(|_| {
            // Fails only for a thread that has ended, which has left the core already.
            core.iter().for_each(|core| drop(core.leave(thread)));
        })?;
        let (place, mut seated) = self.settle(name, &seat, (found, Some(self.list.movers())), told)?;
        is_it()?; // else dropping `seated` gives the thread back
        self.list.guests.push(Guest {
            name: name.to_owned(),
            request,
            seat,
            place,
            thread: Some(thread),
            tasks: vec![notice.task],
        });
        self.list.reorder();
        Ok((seated.core(), seated.keep()))
    }

    /// Begins to move the knobs through their levels.
    pub(super) fn learn(&mut self, learning: Learning) -> Result<(), RuntimeError> {
        let refused = |why: String| RuntimeError::Learning { why };
        if self.learning.is_some() {
            return Err(refused(
                "a model is being learnt already: wait until RuntimeFigures::learnt says that it is over".into(),
            ));
        }
        let (base, _) = &self.base;
        let clock = base.offers.clock().filter(|clock| clock.is_turnable());
        let top = clock.map(ClockOffer::top);
        let record = learning.record(top).map_err(refused)?;
        let options = RegulatorOptions {
            excite: Some(learning.levels(top.is_some())),
            ..base.clone()
        };
        self.switch(options, Pace::Period(learning.period), Some(record))?;
        self.learning = Some(learning);
        self.learnt = LearningState::UnderWay;
        Ok(())
    }

    /// The record is complete: controls by the learnt model or, if there is none, as [`without_model`] says. Either way
    /// from the safe setting, as at any start: the last of the levels says nothing of what jobs can bear.
    fn learnt(&mut self, record: Record) {
        let Some(learning) = self.learning.take() else { return };
        let pace = Pace::Period(learning.period);
        let made_for = MadeFor {
            pace,
            ..self.made_for.clone()
        };
        let law = record.learn(made_for).and_then(|(kind, design)| {
            let law = RegulatorOptions {
                kind,
                design: Some(design),
                silence: SILENCE,
                ..self.base.0.clone()
            };
            self.switch(law.clone(), pace, None)
                .map_err(|error| error.to_string())?;
            self.base = (law, pace);
            Ok(kind)
        });
        self.learnt = match law {
            Ok(kind) => LearningState::Controls(kind),
            Err(why) => {
                let (law, pace) = without_model(&self.base, record.kind(), pace);
                // Cannot fail: it ran before, or it turns no clock where there is none.
                let _ = self.switch(law, pace, None);
                LearningState::Failed(why)
            }
        };
    }

    /// Facts for the report that the control thread does not know: a model that was not learnt, readers ended by the
    /// store.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let LearningState::Failed(why) = &self.learnt {
            let instead = match self.base.0.kind {
                ControllerKind::Open => "so the knobs move in steps, towards fewer late jobs",
                _ => "so the controller from before went on",
            };
            notes.push(format!("nothing was learnt, {instead}: {why}"));
        }
        let ended = self.store.readers_ended();
        if let Some(last) = ended.last {
            let count = ended.count;
            notes.push(format!(
                "readers that were ended because they stood in the way of writers: {count}; {last}"
            ));
        }
        notes
    }

    fn switch(&mut self, options: RegulatorOptions, pace: Pace, record: Option<Record>) -> Result<(), RuntimeError> {
        let regulator = Regulator::new(RegulatorOptions {
            goals: self.list.goals(),
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

/// Report entry: a thread of another program runs as it did.
fn unseated(name: &str, error: &RuntimeError) -> Protection {
    let what = format!("{name}: on a core, in real time");
    let refusal = match error {
        RuntimeError::Machine(refusal) => refusal.clone(),
        error => Refusal {
            what: what.clone(),
            why: error.to_string(),
            remedy: "it runs as it did".into(),
        },
    };
    protection(what, Err(refusal))
}

/// The loop that goes on where nothing was learnt, and its pace: the one from before or, where that turned no knob, one
/// that moves the knobs of `kind` in steps at `pace`.
fn without_model(before: &(RegulatorOptions, Pace), kind: ControllerKind, pace: Pace) -> (RegulatorOptions, Pace) {
    match before.0.kind {
        ControllerKind::Open => {
            let steps = RegulatorOptions {
                kind,
                silence: SILENCE,
                ..before.0.clone()
            };
            (steps, pace)
        }
        _ => before.clone(),
    }
}

fn made_for<E: Engine>(header: &RunHeader, store: &Store<E, LinuxOs>, pace: Pace) -> MadeFor {
    MadeFor {
        scenario: header.scenario.clone(),
        platform: header.platform.name().into(),
        pace,
        update_mode: store.update_mode(),
        machine: None,
        shipped: false,
    }
}

#[cfg(test)]
mod tests {
    use punctual_platform::Offers;
    use punctual_units::Time;
    use punctual_workload::{Goal, TaskGoal};

    use super::*;

    #[test]
    fn a_law_from_before_goes_on_where_nothing_was_learnt() {
        let regulator = |kind| RegulatorOptions {
            kind,
            goal: Goal {
                tasks: TaskGoal::default(),
                drr: 0.5,
                min_fresh: Share::ZERO,
            },
            goals: Vec::new(),
            stages: Vec::new(),
            offers: Offers {
                machine: String::new(),
                cores: Vec::new(),
                knobs: Vec::new(),
                domains: Vec::new(),
                meters: Vec::new(),
            },
            start: Time::ZERO,
            warm_up: Nanos::ZERO,
            silence: Nanos::MAX,
            impatient: false,
            within: false,
            design: None,
            best_effort: None,
            split: None,
            prices: None,
            idle_clock: false,
            excite: None,
        };
        let learning = Pace::Period(Learning::default().period);
        let law = (regulator(ControllerKind::Clock), Pace::Job);
        assert_eq!(without_model(&law, ControllerKind::Qod, learning), law);
        let open = (regulator(ControllerKind::Open), Pace::Job);
        let (steps, pace) = without_model(&open, ControllerKind::Qod, learning);
        assert_eq!(
            (steps.kind, steps.silence, pace),
            (ControllerKind::Qod, SILENCE, learning)
        );
    }
}
