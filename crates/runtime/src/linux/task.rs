//! Builder of a task.

use std::os::fd::AsFd;
use std::sync::Arc;

use punctual_cores::PlacementRequest;
use punctual_platform::linux::events::EventSource;
use punctual_platform::linux::thread::Tid;
use punctual_store::engine::Engine;
use punctual_units::{CoreId, Nanos, Share};
use punctual_workload::{Arrival, Class, TaskGoal};

use super::TaskSetup;
use super::job::Job;
use super::seats::CorePin;
use super::service::{Runtime, TaskHandle};
use super::tasks::JobResult;
use crate::error::RuntimeError;

/// A task under construction; [`run`](TaskBuilder::run) adds it. Without a deadline its jobs are due by the end of the
/// period, and without a goal the runtime's goal holds.
#[must_use = "a task runs once `run` has been called"]
pub struct TaskBuilder<'r, E: Engine + 'static> {
    runtime: &'r Runtime<E>,
    name: String,
    arrival: Option<Arrival>,
    events: Option<EventSource>,
    gap: Option<Nanos>,
    deadline: Option<Nanos>,
    best_effort: bool,
    exclusive: bool,
    goal: Option<TaskGoal>,
    core: Option<CoreId>,
    execution: Option<Nanos>,
    /// Message about the first invalid option.
    wrong: Option<String>,
}

impl<'r, E: Engine + 'static> TaskBuilder<'r, E> {
    pub(super) fn new(runtime: &'r Runtime<E>, name: String) -> Self {
        TaskBuilder {
            runtime,
            name,
            arrival: None,
            events: None,
            gap: None,
            deadline: None,
            best_effort: false,
            exclusive: false,
            goal: None,
            core: None,
            execution: None,
            wrong: None,
        }
    }

    /// Releases a job every `period`, above 0.
    pub fn every(mut self, period: Nanos) -> Self {
        self.arrival = Some(Arrival::Periodic { period });
        self
    }

    /// Releases jobs at gaps drawn uniformly between two bounds, the first one above 0.
    pub fn at_gaps(mut self, gap_min: Nanos, gap_max: Nanos) -> Self {
        self.arrival = Some(Arrival::Sporadic { gap_min, gap_max });
        self
    }

    /// Releases a job after the previous one has ended and a pause has passed, drawn uniformly between two bounds.
    pub fn after_pauses(mut self, pause_min: Nanos, pause_max: Nanos) -> Self {
        self.arrival = Some(Arrival::AfterCompletion { pause_min, pause_max });
        self
    }

    /// Releases a job when `fd` becomes readable: an eventfd ([`Bell`](punctual_platform::linux::events::Bell)), a
    /// timerfd, a device's interrupt (`/dev/uio0`), a socket, a pipe. The caller may close `fd` afterwards.
    ///
    /// Set the least gap between events with [`at_most_every`](Self::at_most_every). The release is the instant at
    /// which the thread saw the event, so the wake-up is not in the response time; a job that knows its event's own
    /// instant reports it ([`Job::happened_at`]). The runtime reads the counter of an eventfd, a timerfd or a UIO
    /// device, and one job serves all events counted there ([`Job::events`]; the report counts them as `merged`). Data
    /// of a socket or pipe must be read by the job, or it is released again at once. When the other side is closed the
    /// task ends ([`TaskEnd::SourceClosed`](super::TaskEnd::SourceClosed)).
    pub fn on_event(mut self, fd: impl AsFd) -> Self {
        match EventSource::of(fd) {
            Ok(source) => self.events = Some(source),
            Err(refusal) => drop(self.wrong.get_or_insert(refusal.to_string())),
        }
        self
    }

    /// Sets the least time between events that release jobs, above 0, which admission relies on. Events may be ahead of
    /// their gaps by one, because a wake-up may be late; an event that is further ahead is put off until it no longer
    /// is, and counted (`put_off`), so a runaway device takes no more than its part of the core.
    pub fn at_most_every(mut self, gap: Nanos) -> Self {
        self.gap = Some(gap);
        self
    }

    /// Sets the time from a job's release to its deadline, above 0.
    pub fn due_in(mut self, deadline: Nanos) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Runs jobs without a deadline, on the cores without real-time tasks, with the CPU time that is left there.
    pub fn best_effort(mut self) -> Self {
        self.best_effort = true;
        self
    }

    /// Runs on a core that the runtime reserves ([`RuntimeOptions::keep_cores`](super::RuntimeOptions::keep_cores)) and
    /// that no other thread may use. Set the execution time with [`takes_at_most`](Self::takes_at_most), so that other
    /// exclusive tasks may share the core if all deadlines hold. If no such core is available, the task runs as a
    /// real-time task, and the report says so.
    pub fn exclusive(mut self) -> Self {
        self.exclusive = true;
        self
    }

    /// Sets the share of its jobs that may be late, above 0 and below 100 percent: `Late::percent(1.0)`, or as text
    /// `"1 %"`.
    pub fn late(mut self, share: impl Into<Late>) -> Self {
        match share.into().0 {
            Ok(share) => self.goal = Some(TaskGoal::Late(share)),
            Err(given) => {
                let why = format!("late({given}): give a share of jobs above 0 and below 100 percent, such as \"1 %\"");
                self.wrong.get_or_insert(why);
            }
        }
        self
    }

    /// Runs the task on this core.
    pub fn on_core(mut self, core: CoreId) -> Self {
        self.core = Some(core);
        self
    }

    /// Sets the longest time for which a job keeps its core, on an otherwise idle machine: placement spreads tasks over
    /// cores by it.
    pub fn takes_at_most(mut self, execution: Nanos) -> Self {
        self.execution = Some(execution);
        self
    }

    /// Runs the calling thread where such a task would run: see [`seat`](Self::seat).
    ///
    /// # Errors
    /// The errors of [`seat`](Self::seat).
    pub fn seat_this_thread(self) -> Result<CorePin, RuntimeError> {
        self.seat(Tid::current())
    }

    /// Runs `thread`, of this process, where such a task would run: on its core, at its priority. Admission counts the
    /// thread with the gap and execution time set here. Its jobs are not the runtime's, so there are no figures of
    /// them, no goal, and the core is not lent. The thread is restored when the result is dropped or the runtime ends.
    ///
    /// ```no_run
    /// # use punctual_runtime::{RuntimeError, linux::{Runtime, RuntimeOptions}};
    /// # use punctual_units::Nanos;
    /// # fn example<E: punctual_store::engine::Engine>(runtime: Runtime<E>) -> Result<(), RuntimeError> {
    /// // In the callback of a sound library, at its first call:
    /// let ms = Nanos::from_millis;
    /// let audio = runtime.task("audio").at_most_every(ms(5)).takes_at_most(ms(1)).exclusive();
    /// let seated = audio.seat_this_thread()?;
    /// println!("on core {}", seated.core());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`RuntimeError::Task`] and [`RuntimeError::Place`] as for a task; [`RuntimeError::Machine`] if this process has
    /// no such thread; [`RuntimeError::Stopped`] once the runtime has ended.
    pub fn seat(self, thread: Tid) -> Result<CorePin, RuntimeError> {
        let wrong = |why: &str| RuntimeError::Task {
            name: self.name.clone(),
            why: why.into(),
        };
        if self.arrival.is_some() || self.events.is_some() || self.best_effort || self.goal.is_some() {
            return Err(wrong(
                "a thread of yours releases its own jobs: say only at_most_every(..), due_in(..), takes_at_most(..)",
            ));
        }
        let period = self
            .gap
            .ok_or_else(|| wrong("say how far its jobs are apart at least: at_most_every(..)"))?;
        let deadline = self.deadline.unwrap_or(period);
        if period == Nanos::ZERO || deadline == Nanos::ZERO {
            return Err(wrong("give times above 0"));
        }
        let request = PlacementRequest {
            class: match self.exclusive {
                true => Class::Exclusive { deadline },
                false => Class::RealTime { deadline },
            },
            arrival: Arrival::Periodic { period },
            execution: self.execution,
            core: self.core,
            cores: Some(1),
        };
        self.runtime.seat(self.name, request, thread)
    }

    /// Adds the task: `body` is called once per job, and may return nothing or a result with any error.
    ///
    /// # Errors
    /// [`RuntimeError::Task`] names the first invalid option; also the errors of [`Runtime::add`].
    pub fn run<R: JobResult>(
        self,
        body: impl FnMut(&mut Job<'_, E>) -> R + Send + 'static,
    ) -> Result<TaskHandle, RuntimeError> {
        let (class, arrival) = self.checked().map_err(|why| RuntimeError::Task {
            name: self.name.clone(),
            why,
        })?;
        let store = Arc::clone(self.runtime.store());
        let mut task = TaskSetup::new(self.name, class, arrival, store, body);
        if let (Some(source), Some(gap)) = (self.events, self.gap) {
            task = task.on_event(source, gap);
        }
        (task.goal, task.core, task.execution) = (self.goal, self.core, self.execution);
        self.runtime.add(task)
    }

    fn checked_arrival(&self) -> Result<Arrival, String> {
        let said = match (self.arrival, &self.events, self.gap) {
            (Some(arrival), None, None) => Ok(arrival),
            (None, Some(_), Some(period)) => Ok(Arrival::Periodic { period }),
            (None, None, None) => {
                Err("say when its jobs come: every(..), at_gaps(..), after_pauses(..) or on_event(..)")
            }
            (Some(_), ..) => {
                Err("its jobs come by the time or by events: leave out on_event(..) and at_most_every(..)")
            }
            (None, Some(_), None) => Err("say how far its events are apart at least: at_most_every(..)"),
            (None, None, Some(_)) => Err("say which events release it: on_event(..), or every(..)"),
        };
        said.map_err(String::from)
    }

    fn checked(&self) -> Result<(Class, Arrival), String> {
        if let Some(wrong) = &self.wrong {
            return Err(wrong.clone());
        }
        let arrival = self.checked_arrival()?;
        let (shortest, longest) = match arrival {
            Arrival::Periodic { period } => (period, period),
            Arrival::Sporadic { gap_min, gap_max } => (gap_min, gap_max),
            Arrival::AfterCompletion { pause_min, pause_max } => (pause_min.max(Nanos(1)), pause_max.max(Nanos(1))),
        };
        if shortest == Nanos::ZERO || longest < shortest {
            return Err("jobs come at times above 0, and the first of two bounds is not above the second".into());
        }
        if self.best_effort && self.exclusive {
            return Err("a task is best_effort() or exclusive(): leave out one of them".into());
        }
        if self.best_effort {
            return match (self.deadline, self.goal) {
                (None, None) => Ok((Class::BestEffort, arrival)),
                _ => Err("a best-effort task has no deadline and no goal: leave out due_in(..) and late(..)".into()),
            };
        }
        let deadline = match (self.deadline, arrival) {
            (Some(deadline), _) => deadline,
            (None, Arrival::AfterCompletion { .. }) => {
                return Err("say by when a job is due: due_in(..), or best_effort()".into());
            }
            (None, _) => shortest,
        };
        if deadline == Nanos::ZERO {
            return Err("due_in(0) cannot be met: give a time above 0".into());
        }
        let class = match self.exclusive {
            true => Class::Exclusive { deadline },
            false => Class::RealTime { deadline },
        };
        Ok((class, arrival))
    }
}

/// The share of a task's jobs that may be late, for [`TaskBuilder::late`]; it refuses one out of range.
#[derive(Clone, Debug, PartialEq)]
pub struct Late(Result<Share, String>);

impl Late {
    /// A share in percent, above 0 and below 100.
    pub fn percent(percent: f64) -> Late {
        Late::of(Some(percent), || format!("{percent} %"))
    }

    fn of(percent: Option<f64>, given: impl FnOnce() -> String) -> Late {
        let percent = percent.filter(|percent| *percent > 0.0 && *percent < 100.0);
        Late(percent.map(|percent| Share::clamped(percent / 100.0)).ok_or_else(given))
    }
}

impl From<&str> for Late {
    fn from(text: &str) -> Late {
        let number = text
            .trim()
            .strip_suffix('%')
            .and_then(|number| number.trim().parse().ok());
        Late::of(number, || format!("{text:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_given_in_percent() {
        assert_eq!(Late::from("1 %").0, Ok(Share::clamped(0.01)));
        assert_eq!(Late::from("1 %"), Late::percent(1.0));
        assert_eq!(Late::from(" 0.1% ").0, Ok(Share::clamped(0.001)));
        for wrong in ["1", "0 %", "100 %", "-1 %", "one %", "nan %", "%", ""] {
            assert_eq!(Late::from(wrong).0, Err(format!("{wrong:?}")));
        }
        assert_eq!(Late::percent(100.0).0, Err("100 %".into()));
    }
}
