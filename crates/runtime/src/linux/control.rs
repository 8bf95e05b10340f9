//! The control thread: the only one that steps the regulator and turns knobs.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use punctual_loop::{Answer, Decision, Event, Regulator, Step, Vitals};
use punctual_os::LinuxOs;
use punctual_platform::linux::thread::{Tid, thread_cpu_time};
use punctual_platform::{Applied, KnobId, Machine, Plan, Value};
use punctual_store::Store;
use punctual_store::engine::Engine;
use punctual_units::{Clock, Nanos, TaskId, Time};
use punctual_workload::{JobProgress, Pace};

use super::shared::{JobEvent, Order, Shared, StopOnPanic, ThreadStart};
use super::tasks::{Ended, TaskState};
use super::witness::Witness;
use crate::collector::{Collector, Took};
use crate::learn::Record;
use crate::report::{Protection, Sample, TaskReport};
use crate::under_way::UnderWay;

/// How long the control thread waits for an outcome where nothing else is due.
const NAP: Nanos = Nanos::from_millis(50);

/// How often the figures of each task are reported: a task's histogram takes microseconds to read.
const FIGURES_EVERY: Nanos = Nanos::from_millis(500);

/// How often at most objects are ranked by their reads: it goes through all of them.
const REBALANCE_EVERY: Nanos = Nanos::from_millis(100);

/// What the control thread tells while a run goes on.
#[derive(Clone, Debug)]
pub(super) enum Told {
    /// One step is complete.
    Sample(Sample),
    /// The figures of each task so far.
    Tasks(Vec<TaskReport>),
    /// How things stand, because a caller asked.
    Standing(Box<Standing>),
    /// The knobs have gone through their levels.
    Recorded(Record),
}

/// How things stand.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    pub(super) at: Time,
    pub(super) tasks: Vec<TaskReport>,
    pub(super) plan: Plan,
    /// The last step, if there was one.
    pub(super) step: Option<Step>,
}

/// The loop on a real machine.
pub(super) struct Control<'r, M, E: Engine> {
    pub(super) machine: &'r mut M,
    pub(super) store: &'r Store<E, LinuxOs>,
    pub(super) shared: &'r Shared,
    pub(super) regulator: Regulator,
    pub(super) collector: Collector,
    pub(super) pace: Pace,
    /// Watchdog of a loop at every job: it decides anyway if no job has ended for this long.
    pub(super) patience: Option<Nanos>,
    pub(super) until: Time,
    pub(super) told: SyncSender<Told>,
    pub(super) witness: Witness<'r>,
    /// When the figures of each task are reported next.
    pub(super) figures_due: Time,
    /// By the tasks' numbers.
    pub(super) states: Vec<Arc<TaskState>>,
    /// What a model is learnt from, while the knobs go through their levels.
    pub(super) record: Option<Record>,
    /// The last step.
    pub(super) last: Option<Step>,
    /// When objects are ranked by their reads next.
    pub(super) rebalance_due: Time,
    /// Log of the regulator, where one is kept.
    pub(super) log: Option<Vec<Decision>>,
    /// The most that it holds, and how many found no room.
    pub(super) log_max: usize,
    /// See [`Control::log_max`].
    pub(super) unlogged: u64,
    /// Jobs that may run past their deadlines.
    pub(super) under_way: UnderWay,
}

/// What is left of the loop at the end.
pub(super) struct Controlled {
    pub(super) collector: Collector,
    pub(super) log: Option<Vec<Decision>>,
    pub(super) cpu: Nanos,
}

impl<M: Machine, E: Engine> Control<'_, M, E> {
    /// Steps until the run ends, in the calling thread.
    pub(super) fn run(mut self, thread: ThreadStart) -> Option<Controlled> {
        let _guard = StopOnPanic(self.shared);
        let own = (thread.place.core, Tid::current());
        let start = thread.start()?.at;
        self.witness.count([own]);
        self.collector.begin(self.machine.read());
        self.act(self.regulator.plan());
        let mut due = self.first_due(start);
        while !self.shared.stopping() {
            let now = LinuxOs.now();
            // The last period ends with the run, and counts.
            if now >= due {
                self.tick();
                due = self.next_due(due, now);
                continue;
            }
            if now >= self.until {
                break;
            }
            match self.shared.job_events.wait(due.min(self.until).min(now + NAP)) {
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
                        self.tick();
                        due = self.after(LinuxOs.now());
                    }
                }
                None => {}
            }
        }
        self.shared.stop();
        while let Some(event) = self.shared.job_events.take() {
            self.observe(event);
        }
        let witness = &self.witness;
        self.collector.judge_late(|job| witness.explains(job));
        if self.unlogged > 0 {
            let what = format!("{} steps of the loop found no room in the log", self.unlogged);
            self.collector.note(what);
        }
        for unheld in self.regulator.unheld() {
            let name = self.collector.name(unheld.task).unwrap_or("a task").to_owned();
            self.collector.note(unheld.told(&name));
        }
        Some(Controlled {
            collector: self.collector,
            log: self.log,
            cpu: thread_cpu_time(),
        })
    }

    fn observe(&mut self, event: JobEvent) {
        match event {
            // Too late to turn anything for it.
            JobEvent::Progress(_) => {}
            JobEvent::Outcome(outcome, beside) => {
                self.under_way.completed(outcome.task, outcome.job);
                // First: a decision does not wait for what is known of a late job.
                self.step(Event::Completed(outcome), LinuxOs.now());
                let evidence = self.witness.evidence(&outcome, beside);
                self.collector.job(&outcome, &evidence);
            }
            JobEvent::Failed { task, at } => self.collector.failed(task, at),
            JobEvent::Ended { task } => self.collector.ended(task),
            JobEvent::Ordered => self.obey(),
            JobEvent::Events {
                task,
                merged,
                put_off,
                at,
            } => self.collector.events(task, merged, put_off, at),
            JobEvent::Skipped { task, releases, at } => {
                self.collector.skipped(task, releases, at);
                let jobs = u32::try_from(releases).unwrap_or(u32::MAX);
                self.step(Event::Skipped { task, jobs }, LinuxOs.now());
            }
        }
    }

    /// Carries out all orders.
    fn obey(&mut self) {
        while let Some(order) = self.shared.next_order() {
            match order {
                Order::Watch {
                    task,
                    goal,
                    figures,
                    state,
                    core,
                    real_time,
                    obtained,
                } => {
                    self.step(Event::Added { task, goal }, LinuxOs.now());
                    self.collector.protected(obtained);
                    let refused = self.witness.watch(task, core, figures.is_some());
                    self.collector.protected(refused.into_iter().collect());
                    self.under_way
                        .watch(task, figures.as_ref().map(|figures| figures.deadline()));
                    self.collector.watch(task, figures.map(|figures| *figures));
                    self.states.push(state);
                    self.witness.count(real_time);
                }
                Order::Tell => {
                    let standing = Standing {
                        at: LinuxOs.now(),
                        tasks: self.tasks(),
                        plan: self.regulator.plan(),
                        step: self.last.clone(),
                    };
                    self.tell(Told::Standing(Box::new(standing)));
                }
                Order::Switch {
                    regulator,
                    pace,
                    record,
                } => {
                    self.regulator = *regulator;
                    self.pace = pace;
                    self.record = record;
                    self.act(self.regulator.plan());
                }
            }
        }
    }

    /// The figures of each real-time task, with what only its thread knows.
    fn tasks(&mut self) -> Vec<TaskReport> {
        for (number, state) in self.states.iter().enumerate() {
            say(&mut self.collector, number, state);
        }
        self.collector.tasks()
    }

    /// A job under way may need another clock.
    fn progressed(&mut self, job: JobProgress) {
        self.under_way.progressed(&job);
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
    }

    /// When the first decision after `now` is due.
    fn first_due(&self, now: Time) -> Time {
        match self.pace {
            Pace::Period(period) => now + period,
            Pace::Job => self.after(now),
        }
    }

    /// When a loop at every job is asked although none has ended since `now`.
    fn after(&self, now: Time) -> Time {
        self.patience.map_or(Time::MAX, |patience| now + patience)
    }

    /// The next instant of a periodic tick that lies in the future: a late tick is not made up for.
    fn next_due(&self, due: Time, now: Time) -> Time {
        match self.pace {
            Pace::Job => self.after(now),
            Pace::Period(period) => due + period * (now.since(due).0 / period.0 + 1),
        }
    }

    /// Sense, decide, act: the loop.
    fn tick(&mut self) {
        // What goes through all objects comes first, so that nothing long lies between the other readings and the
        // knobs.
        let fresh = self.store.fresh_share(LinuxOs.now());
        let counts = self.store.counts();
        while let Some(overdue) = self.under_way.overdue(LinuxOs.now()) {
            self.step(overdue, LinuxOs.now());
        }
        let readings = self.machine.read();
        let vitals = Vitals {
            fresh,
            updates_offered: counts.offered,
            updates_admitted: counts.admitted,
            updates_for_minimum: counts.for_minimum,
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
        let took = Took {
            decision: Some(decided.since(begun)),
            actuation: Some(LinuxOs.now().since(decided)),
            real_time: Some(self.witness.used()),
        };
        self.witness.look();
        let witness = &self.witness;
        let sample = self.collector.step(&step, &readings, took, |job| witness.explains(job));
        if let Some(full) = self.record.as_mut().and_then(|record| record.take(&sample)) {
            self.record = None;
            self.tell(Told::Recorded(full));
        }
        self.tell(Told::Sample(sample));
        self.last = Some(step);
        if readings.at >= self.figures_due {
            self.figures_due = readings.at + FIGURES_EVERY;
            let tasks = self.tasks();
            self.tell(Told::Tasks(tasks));
        }
        if readings.at >= self.rebalance_due {
            self.rebalance_due = readings.at + REBALANCE_EVERY;
            self.store.rebalance();
        }
    }

    /// A caller that watches may be slow; the loop does not wait for it.
    fn tell(&self, told: Told) {
        let _ = self.told.try_send(told);
    }

    fn act(&mut self, plan: Plan) {
        let applied = self.apply(&plan);
        self.step(Event::Applied(applied), LinuxOs.now());
    }

    /// The one door to the knobs: the admitted share is the store's, all others are the machine's.
    fn apply(&mut self, plan: &Plan) -> Applied {
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
        let Some(log) = &mut self.log else {
            return;
        };
        if log.len() >= self.log_max {
            self.unlogged += 1;
        } else {
            log.push(Decision {
                now,
                event: event.clone(),
                answer: answer.clone(),
            });
        }
    }
}

impl Controlled {
    /// Takes what only the end of the threads tells.
    pub(super) fn close(&mut self, obtained: Vec<Protection>, tasks: &[(String, Arc<TaskState>)], shared: &Shared) {
        self.collector.protected(obtained);
        for (number, (name, state)) in tasks.iter().enumerate() {
            say(&mut self.collector, number, state);
            if let Some(first) = state.first_failure() {
                self.collector
                    .note(format!("{name}: {} jobs failed, the first: {first}", state.failed()));
            }
            match state.ended() {
                Some(Ended::Panicked(words)) => {
                    let note = format!("{name} was ended, because a job panicked: {words}");
                    self.collector.note(note);
                }
                Some(how @ Ended::SourceClosed(_)) => self.collector.note(format!("{name} ended: {how}")),
                Some(Ended::Stopped) | None => {}
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
