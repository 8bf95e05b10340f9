//! What happens on a core: steps begin and end, jobs end, I/O is waited for.

use punctual_cores::Completion;
use punctual_units::{Nanos, Time};

use super::cores::Doing;
use super::engine::Engine;
use super::report::JobRecord;
use super::state::{Poll, State};
use super::{Management, Release, Step};

impl Engine<'_> {
    /// Whatever ends on this core now, but for slices.
    pub fn settle(&mut self, core: usize) {
        while self.cores[core].until().is_some_and(|until| until <= self.now) {
            match self.cores[core].doing {
                // Whoever wakes now may be next: see `end_slice`.
                Doing::Running { task, .. } if self.tasks[task].left > Nanos::ZERO => return,
                Doing::Running { task, .. } => self.step_ended(core, task),
                Doing::Nothing => return,
                Doing::TakingBack { .. } => {
                    self.cores[core].taken_back = true;
                    self.cores[core].doing = Doing::Nothing;
                }
                Doing::Switching { task, .. } => self.resume(core, task),
                Doing::Polling { task, until, done } => self.poll(core, task, Poll { until, done }),
            }
        }
    }

    /// Goes on where the task was when it lost its core.
    fn resume(&mut self, core: usize, task: usize) {
        match self.tasks[task].polled.take() {
            Some(poll) => self.poll(core, task, poll),
            None if self.tasks[task].left > Nanos::ZERO => self.keep_running(core, task),
            None => self.begin_step(core, task),
        }
    }

    pub fn keep_running(&mut self, core: usize, task: usize) {
        let until = (self.now + self.tasks[task].left).min(self.cores[core].slice_end);
        self.cores[core].doing = Doing::Running { task, until };
    }

    /// Polls on, unless the I/O is complete or has taken longer than is polled for.
    fn poll(&mut self, core: usize, task: usize, Poll { until, done }: Poll) {
        if done <= self.now {
            self.io_ended(core, task);
        } else if until <= self.now {
            self.block(core, task, done);
        } else {
            self.cores[core].doing = Doing::Polling { task, until, done };
        }
    }

    fn block(&mut self, core: usize, task: usize, done: Time) {
        self.tasks[task].state = State::Blocked(done);
        self.cores[core].doing = Doing::Nothing;
    }

    fn io_ended(&mut self, core: usize, task: usize) {
        self.report.io_ended += 1;
        self.step_ended(core, task);
    }

    fn step_ended(&mut self, core: usize, task: usize) {
        self.tasks[task].step += 1;
        self.begin_step(core, task);
    }

    /// Begins the step that the task is at, or the next job where there is none. Bounded: a cycle of jobs computes something.
    fn begin_step(&mut self, core: usize, task: usize) {
        loop {
            match self.tasks[task].current() {
                Some(Step::Compute(Nanos::ZERO)) => self.tasks[task].step += 1,
                Some(Step::Compute(span)) => {
                    self.tasks[task].left = span;
                    return self.keep_running(core, task);
                }
                Some(Step::Io { device, request }) => {
                    let done = self.devices[device].submit(request, self.now);
                    self.report.io_begun += 1;
                    self.tasks[task].requests += 1;
                    return self.wait_for_io(core, task, device, done);
                }
                None => {
                    if !self.end_job(task) {
                        self.cores[core].doing = Doing::Nothing;
                        return;
                    }
                }
            }
        }
    }

    fn wait_for_io(&mut self, core: usize, task: usize, device: usize, done: Time) {
        let way = match self.management {
            Management::Dual(decided) if self.tasks[task].is_real_time() => decided.waits[device],
            _ => Completion::Block,
        };
        let until = match way {
            Completion::Poll => done,
            Completion::SpinThenBlock(spin) => done.min(self.now + spin),
            Completion::Block => return self.block(core, task, done),
        };
        self.cores[core].doing = Doing::Polling { task, until, done };
    }

    /// Ends the task's job; whether the next one begins at once.
    fn end_job(&mut self, id: usize) -> bool {
        let (now, deadline) = (self.now, self.tasks[id].deadline());
        let task = &mut self.tasks[id];
        match task.task.release {
            Release::Forever => {
                task.ended_jobs += 1;
                task.job = (task.job + 1) % task.task.jobs.len();
                task.begin(now);
                true
            }
            Release::Periodic { period, .. } => {
                self.report.jobs.push(JobRecord {
                    task: id,
                    job: task.job,
                    begun: task.begun,
                    deadline,
                    ended: now,
                    waited: task.waited,
                    io: task.io,
                    computed: task.job_computed,
                    switching: task.switching,
                    requests: task.requests,
                });
                task.job += 1;
                let next = task.begun + period;
                if task.job == task.task.jobs.len() {
                    task.state = State::Finished;
                    return false;
                }
                let late = next <= now;
                if late {
                    task.begin(now);
                } else {
                    task.state = State::Sleeping(next);
                }
                late
            }
        }
    }
}
