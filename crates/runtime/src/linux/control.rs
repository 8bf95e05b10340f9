//! The control thread: the only one that steps the regulator and sets knobs.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use punctual_loop::{Answer, Event, EventLog, JobRelease, Regulator, Step, Vitals};
use punctual_os::LinuxOs;
use punctual_platform::linux::LinuxMachine;
use punctual_platform::linux::thread::{Tid, thread_cpu_time};
use punctual_platform::{Applied, KnobId, Machine, Plan, Value};
use punctual_store::Store;
use punctual_store::engine::Engine;
use punctual_units::{Clock, Hertz, Nanos, TaskId, Time};
use punctual_workload::{JobProgress, Pace};

use super::shared::{JobEvent, Order, RunState, StopOnPanic, ThreadStart};
use super::tasks::{TaskEnd, TaskState};
use super::witness::Witness;
use crate::collector::{Collector, StepTimes};
use crate::frames::FrameEvents;
use crate::learn::Record;
use crate::report::{FilledCore, Protection, Sample, SettingReport, TaskReport, UserRequest};

/// Rest of the control thread after a late job, if it steps at intervals: many late jobs are examined together.
const REST: Nanos = Nanos::from_millis(10);

/// Interval between reports of each task's figures: reading a task's histogram takes microseconds.
const FIGURES_EVERY: Nanos = Nanos::from_millis(500);

/// Least interval between rankings of objects by reads; one ranking visits all objects.
const REBALANCE_EVERY: Nanos = Nanos::from_millis(100);

/// Message from the control thread during a run.
#[derive(Clone, Debug)]
pub(super) enum ControlMessage {
    /// A step is complete.
    Sample(Sample),
    /// Figures of each task so far.
    Tasks(Vec<TaskReport>),
    /// Settings of the loop so far; the keeper adds those of the ledger.
    Settings(Vec<SettingReport>),
    /// News of the programs that report jobs, for the user.
    Note(String),
    /// State of the run, because a caller asked for it.
    Standing(Box<RunSnapshot>),
    /// The knobs have visited all levels; rows for learning a model.
    Recorded(Record),
}

/// State of the run at one instant.
#[derive(Clone, Debug)]
pub(super) struct RunSnapshot {
    pub(super) at: Time,
    pub(super) tasks: Vec<TaskReport>,
    pub(super) plan: Plan,
    /// Last step of the loop, if any.
    pub(super) step: Option<Step>,
}

/// State of the loop on a real machine.
pub(super) struct Control<'r, E: Engine> {
    pub(super) machine: &'r mut LinuxMachine,
    pub(super) store: &'r Store<E, LinuxOs>,
    pub(super) shared: &'r RunState,
    pub(super) regulator: Regulator,
    pub(super) collector: Collector,
    pub(super) pace: Pace,
    /// Watchdog of a loop that steps at every job: it decides anyway if no job has ended for this long.
    pub(super) patience: Option<Nanos>,
    pub(super) until: Time,
    pub(super) told: SyncSender<ControlMessage>,
    pub(super) witness: Witness<'r>,
    /// The clock that was asked for last.
    pub(super) clock: Option<Hertz>,
    /// Next time at which the figures of each task are reported.
    pub(super) figures_due: Time,
    /// Indexed by task number.
    pub(super) states: Vec<Arc<TaskState>>,
    /// Rows for learning a model, while the knobs visit their levels.
    pub(super) record: Option<Record>,
    pub(super) last: Option<Step>,
    /// Next time at which objects are ranked by reads.
    pub(super) rebalance_due: Time,
    /// Log of the regulator, if one is kept.
    pub(super) log: Option<EventLog>,
    /// Stages with a goal, and their frames since the last step.
    pub(super) frames: FrameEvents,
    /// All that happened before this instant is known: the mailbox was empty.
    pub(super) heard: Time,
}

/// Results of the loop at the end.
pub(super) struct ControlResult {
    pub(super) collector: Collector,
    pub(super) log: Option<EventLog>,
    pub(super) cpu: Nanos,
    /// Cores that real-time threads of other processes filled.
    pub(super) filled_cores: Vec<FilledCore>,
}

impl<E: Engine> Control<'_, E> {
    /// Steps the loop in the calling thread until the run ends.
    pub(super) fn run(mut self, thread: ThreadStart) -> Option<ControlResult> {
        let _guard = StopOnPanic(self.shared);
        let own = (thread.place.core, Tid::current());
        let start = thread.start()?.at;
        self.witness.count([own]);
        self.witness.runs_on(own.0);
        self.collector.begin(self.machine.read());
        self.act(self.regulator.plan());
        self.shared.wake_at_jobs(self.pace == Pace::Job);
        let mut due = self.first_due(start);
        while !self.shared.stopping() {
            let now = LinuxOs.now();
            // The last period ends with the run, and counts.
            if now >= due {
                self.hear(self.pace != Pace::Job);
                self.tick();
                due = self.next_due(due, now);
                continue;
            }
            if now >= self.until {
                break;
            }
            match self.shared.job_events.wait(due.min(self.until)) {
                Some(JobEvent::Begun(begun)) => self.begun(begun),
                Some(JobEvent::Progress(job)) => self.progressed(job),
                Some(JobEvent::Ordered) => {
                    let pace = self.pace;
                    self.obey();
                    if self.pace != pace {
                        due = self.first_due(LinuxOs.now());
                    }
                }
                Some(event) => {
                    let steps = self.pace == Pace::Job && event.ends_a_real_time_job();
                    self.observe(event);
                    if steps {
                        self.hear(false);
                        self.tick();
                        due = self.after(LinuxOs.now());
                    } else if self.rests() {
                        LinuxOs.sleep_until(due.min(now + REST));
                        self.shared.job_events.rest(due.min(self.until));
                    }
                }
                None => self.heard = now,
            }
        }
        self.hear(true);
        // A goal changed just before the end counts; nothing else that was ordered still has an effect.
        while let Some(order) = self.shared.next_order() {
            if let Order::Request(request) = order {
                self.requested(request);
            }
        }
        self.count_open();
        self.shared.stop();
        let witness = &self.witness;
        self.collector.judge_late(|job| witness.explains(job));
        if let Some(EventLog { lost: lost @ 1.., .. }) = &self.log {
            let what = format!("{lost} steps of the loop found no room in the log");
            self.collector.note(what);
        }
        self.regulator
            .unheld()
            .for_each(|unheld| self.collector.unheld(&unheld));
        Some(ControlResult {
            collector: self.collector,
            log: self.log,
            cpu: thread_cpu_time(),
            filled_cores: self.witness.filled_cores(),
        })
    }

    /// Whether nothing waits that concerns the loop before its next step.
    fn rests(&self) -> bool {
        self.pace != Pace::Job && !self.shared.within() && self.shared.job_events.is_empty()
    }

    /// Observes all that has been reported so far, if it is to be observed without a step of the loop for each job.
    fn hear(&mut self, all: bool) {
        let now = LinuxOs.now();
        while all && let Some(event) = self.shared.job_events.take() {
            self.observe(event);
        }
        if self.shared.job_events.is_empty() {
            self.heard = now;
        }
    }

    /// Counts the releases that are late although their jobs have not ended.
    fn count_open(&mut self) {
        for (state, task) in self.states.iter().zip(0..) {
            if let Some((job, released)) = state.begun() {
                self.collector.began(TaskId(task), (job, released), state.behind());
            }
            if state.stopping() {
                self.collector.stopping(TaskId(task), self.heard);
            }
        }
        // After that instant no thread begins another job.
        let until = self.shared.stopped_at().unwrap_or(Time::MAX);
        self.collector.count_open(self.heard.min(until));
    }

    fn observe(&mut self, event: JobEvent) {
        match event {
            JobEvent::Begun(begun) => self.begun(begun),
            // Too late to change the clock for that job.
            JobEvent::Progress(_) if self.regulator.paces() => {}
            JobEvent::Progress(job) => self.step(Event::Progressed(job), LinuxOs.now()),
            JobEvent::Outcome(outcome, beside) => {
                // First: a decision does not wait for the evidence about a late job.
                if beside.spared {
                    let (task, job) = (outcome.task, outcome.job);
                    self.step(Event::Spared { task, job }, LinuxOs.now());
                }
                self.step(Event::Completed(outcome), LinuxOs.now());
                let evidence = self.witness.evidence(&outcome, beside);
                self.collector.job(&outcome, &evidence);
            }
            JobEvent::Failed { task, at } => self.collector.failed(task, at),
            // A task that ends with the run keeps its open jobs, for the report.
            JobEvent::Ended { task } => {
                let early = |state: &Arc<TaskState>| state.ended_early().is_some();
                if !self.shared.stopping() || self.states.get(task.index()).is_some_and(early) {
                    self.collector.ended(task);
                }
            }
            JobEvent::Ordered => self.obey(),
            JobEvent::Events {
                task,
                merged,
                put_off,
                at,
            } => self.collector.events(task, merged, put_off, at),
            JobEvent::Skipped {
                task,
                why,
                releases,
                at,
            } => {
                let news = self.collector.skipped(task, releases, at, why);
                let jobs = u32::try_from(news).unwrap_or(u32::MAX);
                if jobs > 0 {
                    self.step(Event::Skipped { task, jobs }, LinuxOs.now());
                }
            }
        }
    }

    /// Executes all pending orders.
    fn obey(&mut self) {
        while let Some(order) = self.shared.next_order() {
            match order {
                Order::Watch {
                    task,
                    goal,
                    figures,
                    schedule,
                    state,
                    core,
                    real_time,
                    obtained,
                } => {
                    self.step(Event::Added { task, goal }, LinuxOs.now());
                    self.collector.protected(obtained);
                    let refused = self.witness.watch(task, core, figures.is_some());
                    self.collector.protected(refused.into_iter().collect());
                    self.collector.watch(task, figures.map(|figures| *figures));
                    if let Some(schedule) = schedule {
                        self.collector.schedule(task, *schedule);
                    }
                    self.states.push(state);
                    self.witness.count(real_time);
                }
                Order::Seated {
                    task,
                    real_time,
                    obtained,
                } => {
                    self.collector.protected(obtained);
                    if let Some((core, _)) = real_time {
                        let refused = self.witness.watch(task, core, true);
                        self.collector.protected(refused.into_iter().collect());
                    }
                    self.witness.count(real_time);
                }
                Order::Request(request) => self.requested(request),
                Order::Tell => {
                    let standing = RunSnapshot {
                        at: LinuxOs.now(),
                        tasks: self.tasks(),
                        plan: self.regulator.plan(),
                        step: self.last.clone(),
                    };
                    self.tell(ControlMessage::Standing(Box::new(standing)));
                }
                Order::Switch {
                    regulator,
                    pace,
                    record,
                } => {
                    self.regulator = *regulator;
                    // A user may have changed the goals that it was made with.
                    for goal in self.collector.goals() {
                        self.regulator.step(&goal, LinuxOs.now());
                    }
                    self.pace = pace;
                    self.shared.wake_at_jobs(pace == Pace::Job);
                    self.record = record;
                    self.frames.restart();
                    self.act(self.regulator.plan());
                }
            }
        }
    }

    fn requested(&mut self, request: UserRequest) {
        let now = LinuxOs.now();
        if let Some(changed) = self.collector.requested(request, now) {
            self.step(changed, now);
        }
    }

    /// Figures of each real-time task, with the facts that only its thread knows.
    fn tasks(&mut self) -> Vec<TaskReport> {
        for (number, state) in self.states.iter().enumerate() {
            say(&mut self.collector, number, state);
        }
        self.count_open();
        self.collector.tasks()
    }

    /// Steps the regulator with a release of which it does not know, and applies the clock that it may answer.
    fn begun(&mut self, begun: JobRelease) {
        if !self.collector.tell_release(&begun) {
            return;
        }
        let (event, now) = (Event::Begun(begun), LinuxOs.now());
        let answer = self.regulator.step(&event, now);
        self.note(&event, now, &answer);
        if let Some(Answer::Turn(plan)) = answer {
            self.act(plan);
            if let Some(state) = self.states.get(begun.task.index()) {
                let next = self.regulator.forecast_next(begun.task);
                state.forecast(Some(self.regulator.forecast_begun(&begun)), next);
            }
        }
    }

    /// Steps the regulator with a job's progress, and applies the clock that it may answer.
    fn progressed(&mut self, job: JobProgress) {
        let event = Event::Progressed(job);
        let now = LinuxOs.now();
        let answer = self.regulator.step(&event, now);
        self.note(&event, now, &answer);
        if let Some(Answer::Turn(plan)) = answer {
            let applied = self.apply(&plan);
            let turned = LinuxOs.now();
            self.step(Event::Applied(applied), turned);
            self.collector.paced(turned, Some(turned.since(job.at)));
        }
        if let Some(state) = self.states.get(job.task.index()) {
            let next = self.regulator.forecast_next(job.task);
            state.forecast(Some(self.regulator.forecast(&job)), next);
        }
    }

    /// Lets checkpoints wake this thread where they may change the clock, by what was decided last.
    fn pace_jobs(&self) {
        if !self.shared.within() {
            return;
        }
        self.shared.wake_within(self.regulator.paces());
        for (state, task) in self.states.iter().zip(0..) {
            state.forecast(None, self.regulator.forecast_next(TaskId(task)));
        }
    }

    /// When the first decision after `now` is due.
    fn first_due(&self, now: Time) -> Time {
        match self.pace {
            Pace::Period(period) => now + period,
            Pace::Job => self.after(now),
        }
    }

    /// When a loop that steps at every job decides anyway, if no job has ended since `now`.
    fn after(&self, now: Time) -> Time {
        self.patience.map_or(Time::MAX, |patience| now + patience)
    }

    /// Next instant of the periodic tick that lies in the future: missed ticks are not made up for.
    fn next_due(&self, due: Time, now: Time) -> Time {
        match self.pace {
            Pace::Job => self.after(now),
            Pace::Period(period) => due + period * (now.since(due).0 / period.0 + 1),
        }
    }

    /// Steps the loop: sense, decide, act.
    fn tick(&mut self) {
        // Reading all objects comes first, so that nothing long happens between the other readings and the knobs.
        let fresh = self.store.fresh_share(LinuxOs.now());
        let counts = self.store.counts();
        self.count_open();
        while let Some(late) = self.collector.news() {
            self.step(late, LinuxOs.now());
        }
        while self.shared.rests
            && let Some(untold) = self.collector.untold_release(self.store.pending_updates())
        {
            self.begun(untold);
        }
        self.take_frames();
        let readings = self.machine.read();
        let vitals = Vitals {
            fresh,
            updates_offered: counts.offered,
            updates_admitted: counts.admitted,
            updates_for_minimum: counts.for_minimum,
            updates_least: self.store.least_share(),
            machine: readings.clone(),
        };
        let begun = LinuxOs.now();
        let period = Event::Period(vitals);
        let answer = self.regulator.step(&period, begun);
        let decided = LinuxOs.now();
        self.note(&period, begun, &answer);
        let Some(step) = answer.and_then(Answer::step) else {
            return;
        };
        self.act(step.plan);
        let took = StepTimes {
            decision: Some(decided.since(begun)),
            actuation: Some(LinuxOs.now().since(decided)),
            real_time: Some(self.witness.used()),
        };
        self.pace_jobs();
        self.witness.look(self.machine.core_times());
        let witness = &self.witness;
        let sample = self.collector.step(&step, &readings, took, |job| witness.explains(job));
        if let Some(full) = self.record.as_mut().and_then(|record| record.take(&sample)) {
            self.record = None;
            self.tell(ControlMessage::Recorded(full));
        }
        self.tell(ControlMessage::Sample(sample));
        self.last = Some(step);
        if readings.at >= self.figures_due {
            self.figures_due = readings.at + FIGURES_EVERY;
            let tasks = self.tasks();
            self.tell(ControlMessage::Tasks(tasks));
            let settings = self.collector.settings();
            self.tell(ControlMessage::Settings(settings));
        }
        if readings.at >= self.rebalance_due {
            self.rebalance_due = readings.at + REBALANCE_EVERY;
            self.store.rebalance();
        }
    }

    /// Steps the loop with the frames that stages have taken since the last step.
    fn take_frames(&mut self) {
        let mut frames = std::mem::take(&mut self.frames);
        frames.report(LinuxOs.now(), &mut |event| {
            self.step(event, LinuxOs.now());
        });
        self.frames = frames;
    }

    /// Never waits: a watching caller may be slow.
    fn tell(&self, told: ControlMessage) {
        let _ = self.told.try_send(told);
    }

    fn act(&mut self, plan: Plan) {
        let applied = self.apply(&plan);
        self.step(Event::Applied(applied), LinuxOs.now());
    }

    /// The only path to the knobs: the store has the admitted share, the machine all others.
    fn apply(&mut self, plan: &Plan) -> Applied {
        // At another clock, jobs come to their checkpoints at other times.
        if plan.clock() != self.clock {
            self.clock = plan.clock();
            self.states.iter().for_each(|state| state.clock_turned());
        }
        let Some(admitted) = plan.share(KnobId::AdmittedShare) else {
            return self.machine.apply(plan);
        };
        self.store.set_admitted_share(admitted);
        let mut applied = self.machine.apply(&plan.without(KnobId::AdmittedShare));
        applied.note(KnobId::AdmittedShare, Ok(Value::Share(admitted)));
        applied
    }

    fn step(&mut self, event: Event, now: Time) {
        let answer = self.regulator.step(&event, now);
        self.note(&event, now, &answer);
    }

    fn note(&mut self, event: &Event, now: Time, answer: &Option<Answer>) {
        if let Some(log) = &mut self.log {
            log.note(now, event.clone(), answer.clone());
        }
    }
}

impl ControlResult {
    /// Adds facts that are known only after the threads have ended.
    pub(super) fn close(&mut self, obtained: Vec<Protection>, tasks: &[(String, Arc<TaskState>)], shared: &RunState) {
        self.collector.protected(obtained);
        for (number, (name, state)) in tasks.iter().enumerate() {
            say(&mut self.collector, number, state);
            if let Some(first) = state.first_failure() {
                self.collector
                    .note(format!("{name}: {} jobs failed, the first: {first}", state.failed()));
            }
            match state.ended() {
                Some(TaskEnd::Panicked(words)) => {
                    let note = format!("{name} was ended, because a job panicked: {words}");
                    self.collector.note(note);
                }
                Some(how @ TaskEnd::SourceClosed(_)) => self.collector.note(format!("{name} ended: {how}")),
                Some(TaskEnd::Stopped) | None => {}
            }
        }
        if shared.unreported() > 0 {
            self.collector.note(format!(
                "{} outcomes came faster than the loop could take them",
                shared.unreported()
            ));
        }
    }
}

fn say(collector: &mut Collector, number: usize, state: &TaskState) {
    let first_failure = state.first_failure().map(String::from);
    collector.said(TaskId(number as u32), first_failure, state.ended_early());
}
