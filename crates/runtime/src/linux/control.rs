//! The control thread: the only one that steps the regulator and turns knobs.

use std::sync::mpsc::SyncSender;

use punctual_loop::{Answer, Decision, Event, Plan, Regulator, Vitals};
use punctual_platform::Machine;
use punctual_platform::linux::clock::MonotonicClock;
use punctual_platform::linux::thread::{Tid, thread_cpu_time};
use punctual_store::Store;
use punctual_store::engine::Engine;
use punctual_units::{Clock, Nanos, Time};
use punctual_workload::{JobProgress, Pace};

use super::shared::{Shared, Starter, StopOnPanic, Tidings};
use super::tasks::Failed;
use super::witness::Witness;
use crate::actuate::turn_clock;
use crate::collector::{Collector, Took};
use crate::report::{Protection, Sample, TaskReport};

/// How long the control thread waits for an outcome where nothing else is due.
const NAP: Nanos = Nanos::from_millis(50);

/// How often the figures of each task are told: a task's histogram takes microseconds to read.
const FIGURES_EVERY: Nanos = Nanos::from_millis(500);

/// What the control thread tells while a run goes on.
#[derive(Clone, Debug)]
pub(super) enum Told {
    /// One step is complete.
    Sample(Sample),
    /// The figures of each task so far.
    Tasks(Vec<TaskReport>),
}

/// The loop on a real machine.
pub(super) struct Control<'r, M, E: Engine> {
    pub(super) machine: &'r mut M,
    pub(super) store: &'r Store<E, MonotonicClock>,
    pub(super) shared: &'r Shared,
    pub(super) regulator: Regulator,
    pub(super) collector: Collector,
    pub(super) pace: Pace,
    /// How long a loop at every job waits for a job's end before it is asked all the same.
    pub(super) patience: Option<Nanos>,
    pub(super) until: Time,
    pub(super) told: SyncSender<Told>,
    pub(super) witness: Witness<'r>,
    /// When the figures of each task are told next.
    pub(super) figures_due: Time,
    /// Log of the regulator, where one is kept.
    pub(super) log: Option<Vec<Decision>>,
    /// The last period, for [`rehearse`](Control::rehearse).
    pub(super) rehearsal: Option<Event>,
}

/// What is left of the loop at the end.
pub(super) struct Controlled {
    pub(super) collector: Collector,
    pub(super) log: Option<Vec<Decision>>,
    pub(super) cpu: Nanos,
}

impl<M: Machine, E: Engine> Control<'_, M, E> {
    /// Steps until the run ends, in the calling thread.
    pub(super) fn run(mut self, starter: Starter) -> Option<Controlled> {
        let _guard = StopOnPanic(self.shared);
        let own = (starter.place.core, Tid::current());
        let start = starter.start()?;
        self.witness.count([own]);
        self.collector.begin(self.machine.read());
        self.act(self.regulator.plan());
        let mut due = match self.pace {
            Pace::Period(period) => start + period,
            Pace::Job => self.after(start),
        };
        while !self.shared.stopping() {
            let now = MonotonicClock.now();
            // The last period ends with the run, and counts.
            if now >= due {
                self.tick();
                due = self.next_due(due, now);
                continue;
            }
            if now >= self.until {
                break;
            }
            match self.shared.tidings.wait(due.min(self.until).min(now + NAP)) {
                Some(Tidings::Progress(job)) => self.progressed(job),
                Some(tidings) => {
                    let steps = self.pace == Pace::Job && tidings.ends_a_real_time_job();
                    self.observe(tidings);
                    if steps {
                        self.tick();
                        due = self.after(MonotonicClock.now());
                    }
                }
                None => {}
            }
        }
        self.shared.stop();
        while let Some(tidings) = self.shared.tidings.take() {
            self.observe(tidings);
        }
        let witness = &self.witness;
        self.collector.judge_late(|job| witness.explains(job));
        Some(Controlled {
            collector: self.collector,
            log: self.log,
            cpu: thread_cpu_time(),
        })
    }

    fn observe(&mut self, tidings: Tidings) {
        match tidings {
            // Too late to turn anything for it.
            Tidings::Progress(_) => {}
            Tidings::Outcome(outcome) => {
                self.collector.job(&outcome);
                self.step(Event::Completed(outcome), MonotonicClock.now());
            }
            Tidings::Failed { task, at } => self.collector.failed(task, at),
            Tidings::Skipped { task, releases, at } => {
                self.collector.skipped(task, releases, at);
                let jobs = u32::try_from(releases).unwrap_or(u32::MAX);
                self.step(Event::Skipped { task, jobs }, MonotonicClock.now());
            }
        }
    }

    /// A job under way may need another clock.
    fn progressed(&mut self, job: JobProgress) {
        let event = Event::Progressed(job);
        let now = MonotonicClock.now();
        let answer = self.regulator.step(&event, now);
        self.note(&event, now, &answer);
        if let Some(Answer::Pace(plan)) = answer {
            let applied = turn_clock(self.machine, plan);
            let turned = MonotonicClock.now();
            self.step(Event::Applied(applied), turned);
            self.collector.paced(turned, Some(turned.since(job.at)));
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
        // What goes through all objects comes first, so that nothing long lies between the other readings and the knobs.
        let fresh = self.store.fresh_share(MonotonicClock.now());
        let counts = self.store.counts();
        self.rehearse();
        let readings = self.machine.read();
        let vitals = Vitals {
            fresh,
            updates_offered: counts.offered,
            updates_admitted: counts.admitted,
            updates_for_minimum: counts.for_minimum,
            machine: readings.clone(),
        };
        let begun = MonotonicClock.now();
        let period = Event::Period(vitals);
        let answer = self.regulator.step(&period, begun);
        let decided = MonotonicClock.now();
        self.note(&period, begun, &answer);
        self.rehearsal = Some(period);
        let Some(step) = answer.and_then(Answer::step) else {
            return;
        };
        self.act(step.plan);
        let took = Took {
            decision: Some(decided.since(begun)),
            actuation: Some(MonotonicClock.now().since(decided)),
            real_time: Some(self.witness.used()),
        };
        let witness = &self.witness;
        let sample = self.collector.step(&step, &readings, took, |job| witness.explains(job));
        self.tell(Told::Sample(sample));
        if readings.at >= self.figures_due {
            self.figures_due = readings.at + FIGURES_EVERY;
            self.tell(Told::Tasks(self.collector.tasks()));
        }
    }

    /// A caller that watches may be slow; the loop does not wait for it.
    fn tell(&self, told: Told) {
        let _ = self.told.try_send(told);
    }

    fn act(&mut self, plan: Plan) {
        self.shared.set_admitted(plan.admitted);
        let applied = turn_clock(self.machine, plan);
        self.step(Event::Applied(applied), MonotonicClock.now());
    }

    /// Takes the last decision once more, on a copy. What the loop last did a period ago has left the caches meanwhile, and
    /// fetching it would otherwise lie between the reading of the meters and the turning of the knobs.
    fn rehearse(&mut self) {
        if let Some(event) = &self.rehearsal {
            std::hint::black_box(self.regulator.clone().step(event, MonotonicClock.now()));
        }
    }

    fn step(&mut self, event: Event, now: Time) {
        let answer = self.regulator.step(&event, now);
        self.note(&event, now, &answer);
    }

    fn note(&mut self, event: &Event, now: Time, answer: &Option<Answer>) {
        if let Some(log) = &mut self.log {
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
    pub(super) fn close(&mut self, obtained: Vec<Protection>, failed: &[Failed], shared: &Shared) {
        self.collector.protected(obtained);
        for Failed { first, jobs } in failed {
            self.collector.note(format!("{jobs} jobs ended early: {first}"));
        }
        if shared.unreported() > 0 {
            self.collector.note(format!(
                "{} outcomes came faster than the loop could take them",
                shared.unreported()
            ));
        }
    }
}
